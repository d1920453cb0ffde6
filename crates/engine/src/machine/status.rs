//! What a driver reads from a machine between two events: its position, its usage, its deadlines.

use std::{sync::Arc, time::Duration};

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    event::{Status, Usage},
    graph::{ErrorKind, Failure, Limits},
    id::{NodeName, RunId, Step, TaskId},
    state::State,
};
use jiff::Timestamp;

use super::{Machine, Task, Wait};
use crate::checkpoint::{OpenQuestion, Position, QuestionNames, RunStatus, unanswered};

impl Machine {
    /// Returns the id of the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the position of the run.
    pub fn position(&self) -> Position {
        self.position.named(&self.graph, self.state.removed_messages())
    }

    /// Returns the number of committed steps.
    pub fn committed_step(&self) -> Step {
        self.position.step
    }

    /// Returns the nodes of the next step, in task order.
    pub fn next_nodes(&self) -> Vec<NodeName> {
        let names = self.position.frontier.iter().map(|it| self.graph.name_at(it.node).clone());
        names.collect()
    }

    /// Returns the state of the run.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Returns the state of the run with the results of the finished tasks of the open step, unless they conflict.
    pub fn state_so_far(&self) -> State {
        let mut state = State::clone(&self.state);
        // Updates that do not fit together now fail their tasks at the end of the step.
        self.graph.schema().fold(&mut state, self.open_step.updates()).ok();
        state
    }

    /// Returns the graph of the run.
    pub fn graph(&self) -> &CompiledGraph {
        &self.graph
    }

    /// Returns the node of a task of the current step.
    pub fn node_of(&self, task: TaskId) -> Option<&NodeName> {
        self.node_index_of(task).map(|it| self.graph.name_at(it))
    }

    /// Returns a task of the current step as the driver gets it when the task runs.
    pub fn task(&self, task: TaskId) -> Option<Task> {
        self.open_step.index(task).map(|index| self.task_at(index))
    }

    /// Returns the index of the node of a task of the current step.
    pub fn node_index_of(&self, task: TaskId) -> Option<NodeIndex> {
        self.open_step.index(task).map(|index| self.position.frontier[index].node)
    }

    /// Returns the model usage of all turns so far, including tasks of the step that is not committed yet.
    pub fn usage(&self) -> Usage {
        let mut usage = self.position.earlier.usage;
        usage.add(&self.budget().usage);
        usage
    }

    /// Returns how long a task of the step may still work before the run is out of time, if the time is
    /// limited.
    pub fn time_left(&self, task: TaskId) -> Option<Duration> {
        let left = self.committed_budget().time_left()?;
        let before = self.open_step.elapsed_ms_before_attempt(task);
        Some(left.saturating_sub(Duration::from_millis(before)))
    }

    /// Returns the failure of an item of a map, if a limit of its node is reached and the item may not start for that reason.
    /// An attempt that has begun may continue, with an answer or after a crash.
    pub fn node_limit_failure(&self, task: TaskId) -> Option<Failure> {
        let index = self.open_step.index(task)?;
        let active = &self.position.frontier[index];
        let is_item = active.is_dispatched() && self.policies(index).schedule.items.is_some();
        if !is_item || self.open_step.tasks()[index].continues_attempt() {
            return None;
        }
        Some(Failure::new(ErrorKind::Limit, self.reached_node_limit(index)?))
    }

    /// Returns whether the run admits a model call with at least this usage, given the usage of its running attempts.
    pub fn admits_call(&self, running: &Usage, next_call: Usage) -> bool {
        let Limits { calls, tokens, usd, .. } = &self.limits;
        if calls.is_none() && tokens.is_none() && usd.is_none() {
            return true;
        }
        let mut budget = self.committed_budget().with_next_call(next_call);
        budget.usage.add(self.open_step.counted_usage());
        budget.usage.add(running);
        budget.reached_model_limit().is_none()
    }

    /// Returns the nodes of the open step that failed for good, or whose routes did, in task order.
    pub fn failures(&self) -> Vec<(NodeName, Failure)> {
        let tasks = self.open_step.tasks().iter().enumerate();
        let failed = tasks.filter_map(|(index, task)| {
            let failure = task.final_failure()?.failure.clone();
            Some((self.name_of_task(index).clone(), failure))
        });
        failed.collect()
    }

    /// Returns the questions that wait for an answer, in task order.
    pub fn open_questions(&self) -> Vec<OpenQuestion> {
        let tasks = self.open_step.tasks();
        let asked = tasks.iter().enumerate().flat_map(|(index, task)| {
            let id = self.open_step.id(index);
            task.question_keys.iter().map(move |key| (key.as_str(), id))
        });
        let names = QuestionNames::new(&self.position.people, asked);
        let open = tasks.iter().enumerate().filter_map(|(index, it)| {
            let question = it.question()?.clone();
            let task = self.open_step.id(index);
            let original_task = self.original_task(index).map_or(task, |it| it.task);
            let node = self.name_of_task(index).clone();
            let name = names.of(&question.key, original_task);
            Some(OpenQuestion { task, original_task, node, name, question })
        });
        open.collect()
    }

    /// Returns the next deadline of an open question.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.open_step.next_deadline()
    }

    /// Returns the wait that ends first, for a time or a next attempt, if no task runs. Tasks that wait for a person do not matter.
    pub fn next_wait(&self) -> Option<Wait> {
        self.open_step.next_wait()
    }

    /// Returns the status of a run whose step stays open: a task failed, or each waits for a person, a time or its next attempt.
    pub fn open_status(&self) -> RunStatus {
        if let Some(reason) = self.open_step.failure() {
            return RunStatus { status: Status::Failed, reason: Some(reason) };
        }
        let waiting = self.open_step.tasks().iter().filter_map(|it| Some((it, it.wait()?)));
        let first = waiting.min_by_key(|(_, (wait, _))| wait.wake).map(|(task, (wait, reason))| {
            let reason = reason.map(|it| format!(": {it}")).unwrap_or_default();
            format!("`{}` waits until {:.0}{reason}", task.node, wait.wake)
        });
        let unanswered = unanswered(&self.open_questions());
        let reasons: Vec<String> = first.into_iter().chain(unanswered).collect();
        let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        RunStatus { status: Status::Paused, reason }
    }

    /// Returns the tasks whose deadline has passed without an answer.
    pub fn expired(&self, now: Timestamp) -> Vec<TaskId> {
        self.open_step.expired(now)
    }

    /// Returns the number of the last known message.
    pub fn last_message(&self) -> u64 {
        self.inbox.last()
    }

    /// Returns whether the step ends with the next finished task.
    pub fn is_at_last_task(&self) -> bool {
        self.open_step.is_at_last_task()
    }
}
