//! The rules of a run, without I/O, clock or randomness: events in, actions out.
//!
//! A [`Machine`] holds the position of a run. The driver performs the actions in order, and feeds the resulting events
//! back. It may save several records and a commit in one transaction, but nothing that follows them is started or
//! published before they are durable. The order in which the results of one step arrive makes no difference.
//!
//! This file has the cycle of a machine: an event comes, a step begins, advances and is committed. Then read
//! - `protocol`: the events and actions; `start`: how a run begins or is restored; `status`: what a driver reads.
//! - `open_step`: the tasks of the step; `task_state`: one of them; `task_end`: what follows when one ends; `backoff`: the
//!   waits, for a time or a next attempt.
//! - `routing`: conditions, updates and routes; `frontier`: what runs next; `rounds`: joins that do not wait for all;
//!   `limits`: the way to `limits.exhausted`.
//! - `facts`: what nodes may read about the run; `item_order`: items of a map that wait for others; `inbox` and `breakpoints`: what happens between two steps.
//! - `revise`, `migrate`: steps that people make; `indexed`: the position by index; `fit`: whether it fits the graph.

mod backoff;
mod breakpoints;
mod deferred;
mod facts;
mod fit;
mod frontier;
mod inbox;
mod indexed;
mod item_order;
mod limits;
mod migrate;
mod open_step;
mod protocol;
mod revise;
mod rounds;
mod routing;
mod start;
mod status;
mod task_end;
mod task_state;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::Status,
    graph::{ErrorKind, Failure, Limits, OriginalTask, Policies, RunFacts, Visits},
    id::{NodeName, RunId},
    state::{Change, State, StateError, Update},
};
use jiff::Timestamp;

pub use self::{
    backoff::Wait,
    breakpoints::Breakpoints,
    inbox::ProcessedMessage,
    limits::has_used_up_limits,
    protocol::{
        Action, AttemptStats, FirstStep, RestoreError, SavedStep, StepSummary, Task, TaskEvent,
    },
    revise::ReviseError,
};
use self::{
    frontier::{StepResults, next_frontier},
    inbox::{Inbox, InboxChanges},
    indexed::{IndexedActivation, IndexedPosition},
    limits::route_if_limit_reached,
    open_step::OpenStep,
    routing::Routing,
};
pub(super) use self::{
    migrate::{migrate_position, migrate_values},
    revise::{Revision, revise},
    start::step_began,
};
use super::budget::{self, Budget, StepLimits};
use crate::checkpoint::{Commit, InboxMessage, Outcome, RunStatus, TaskRecord};

/// The settings of a run apart from its graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// The limits.
    pub limits: Limits,
    /// The breakpoints.
    pub breakpoints: Breakpoints,
    /// Whether the run exists in this process only: [`Action::EndStep`] then takes the place of each commit.
    pub is_in_process: bool,
    /// When the machine starts. The rules have no clock; later they learn the time from events.
    pub now: Timestamp,
}

/// The state machine of one run.
#[derive(Clone, Debug)]
pub struct Machine {
    graph: CompiledGraph,
    limits: Limits,
    breakpoints: Breakpoints,
    run: RunId,
    position: IndexedPosition,
    state: Arc<State>,
    open_step: OpenStep,
    inbox: Inbox,
    is_in_process: bool,
    /// The latest known time.
    now: Timestamp,
    /// The facts at the start of the open step.
    facts: Arc<RunFacts>,
    /// The actions of the event at hand; empty between two events.
    actions: Vec<Action>,
}

impl Machine {
    /// Applies an event and returns the next actions.
    ///
    /// An event about a task that is settled, or not of this step, changes nothing. So delivering an event
    /// twice does no harm.
    pub fn apply(&mut self, event: TaskEvent) -> Vec<Action> {
        let Some(index) = self.open_step.index(event.task()) else { return Vec::new() };
        if !self.open_step.expects(index, &event) {
            return Vec::new();
        }
        self.now = event.time().map_or(self.now, |it| it.max(self.now));
        // Room for the usual actions: a record, a commit and the next task.
        self.actions.reserve(3);
        self.handle_event(index, event);
        self.advance();
        self.take_actions()
    }

    /// Returns the actions of the event at hand.
    fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    fn handle_event(&mut self, index: usize, event: TaskEvent) {
        match event {
            TaskEvent::Finished { command, attempt, .. } => {
                self.open_step.add_attempt(index, &attempt);
                self.finish(index, command, attempt.ended);
            }
            TaskEvent::Failed { failure, attempt, .. } => {
                self.open_step.add_attempt(index, &attempt);
                self.retry_or_end(index, failure, attempt.ended);
            }
            TaskEvent::Aborted { attempt, .. } => {
                self.open_step.add_attempt(index, &attempt);
                self.actions.push(self.open_step.abort(index).into());
            }
            TaskEvent::MemoSaved { name, value, attempt, .. } => {
                self.actions.push(self.open_step.save_memo(index, &attempt, name, value).into());
            }
            TaskEvent::Asked { question, attempt, .. } => {
                self.open_step.add_attempt(index, &attempt);
                self.ask(index, question);
            }
            TaskEvent::TimerSet { timer, attempt, .. } => {
                self.open_step.add_attempt(index, &attempt);
                self.set_timer(index, timer, attempt.ended);
            }
            TaskEvent::Answered { key, answer, by, question_hash, .. } => {
                let record = self.open_step.answer(index, key, answer, by, question_hash);
                self.actions.extend([record.into(), self.run_action(index)]);
            }
            TaskEvent::Expired { .. } => self.expire(index),
            TaskEvent::Woke { .. } => {
                self.open_step.run_again(index);
                self.actions.push(self.run_action(index));
            }
        }
    }

    /// Begins the tasks of the frontier, and returns `true`. Stops the run if the frontier is empty or a limit is
    /// reached.
    fn begin_step(&mut self) -> bool {
        if let Some(stop) = self.stop_before_step() {
            self.actions.push(stop);
            return false;
        }
        self.actions.reserve(self.position.frontier.len());
        for index in 0..self.position.frontier.len() {
            self.begin_task(index);
        }
        true
    }

    /// Returns the action that stops a run whose frontier is empty, or that has reached a limit.
    fn stop_before_step(&self) -> Option<Action> {
        if self.position.frontier.is_empty() {
            let IndexedPosition { failure, used, .. } = &self.position;
            return Some(Action::Stop(RunStatus::at_end(failure.as_ref(), used)));
        }
        let reached = self.limit_before_step()?;
        Some(Action::stop(Status::Limit, Some(reached)))
    }

    /// Describes the limit that is reached before the tasks of the step begin.
    fn limit_before_step(&self) -> Option<String> {
        let nodes = self.position.frontier.iter().map(|it| it.node);
        self.budget().reached_limit(|| budget::may_call_models(&self.graph, nodes))
    }

    /// Begins a task of the step. If its node has finished and its route failed, only the decision is tried again.
    fn begin_task(&mut self, index: usize) {
        if let Some((update, goto)) = self.open_step.take_undecided(index) {
            self.decide(index, update, goto);
        } else if !self.open_step.block(index) && !self.end_by_failed_need(index) {
            self.run_or_skip(index);
        }
    }

    /// Ends an item of a map that needs an item which failed. Returns whether it did.
    fn end_by_failed_need(&mut self, index: usize) -> bool {
        let Some((failure, need)) = self.open_step.failed_need(index) else { return false };
        // If that failure was caught for all items, this one takes the same transitions, for the same reason.
        let caught = need.and_then(|record| match &record.outcome {
            Outcome::Caught { for_all_items: true, transitions, failure, .. } => {
                Some((failure.clone(), transitions.clone()))
            }
            _ => None,
        });
        match caught {
            Some((cause, transitions)) => {
                let failure = if cause.is_node_limit() { cause } else { failure };
                let update = Update::default();
                let for_all_items = true;
                let caught = Outcome::Caught { failure, update, for_all_items, transitions };
                self.settle(index, caught);
            }
            None => self.end_with_failure(index, failure),
        }
        true
    }

    /// Runs a task, or skips it if the condition of its node does not hold.
    fn run_or_skip(&mut self, index: usize) {
        let active = &self.position.frontier[index];
        if self.graph.spec_at(active.node).when.is_none() {
            return self.actions.push(self.run_action(index));
        }
        let facts = self.facts_of(index);
        let routing = Routing { facts: &facts, ..self.routing() };
        let condition = match routing.false_condition(active) {
            Ok(None) => return self.actions.push(self.run_action(index)),
            Ok(Some(condition)) => condition,
            Err(failure) => return self.end_with_failure(index, failure),
        };
        match routing.transitions(active, &[]) {
            Ok(transitions) => {
                self.settle(index, Outcome::Skipped { condition, transitions });
            }
            Err(failure) => self.fail_for_good(index, failure),
        }
    }

    /// Continues after tasks settled, suspended or were restored: commits the step and begins the next one, stops the
    /// run, or waits for the other tasks.
    ///
    /// It is a loop, because a step may settle at once: its nodes are skipped, or an item that others need has failed.
    fn advance(&mut self) {
        loop {
            while let Some(index) = self.open_step.next_ready() {
                self.begin_task(index);
            }
            if self.open_step.is_complete() {
                if !self.commit(None) {
                    return;
                }
            } else if !self.open_step.has_busy_task() {
                return self.actions.push(Action::Stop(self.open_status()));
            } else {
                return;
            }
        }
    }

    /// Commits the step and begins the next one. Returns whether the next one has begun: otherwise the run stops.
    /// `reached` is the limit that ended the step early, if one did.
    fn commit(&mut self, reached: Option<&str>) -> bool {
        self.summarize_last_step();
        let changes = match self.fold_fitting() {
            Ok(changes) => changes,
            Err(status) => {
                self.actions.push(Action::Stop(status));
                return false;
            }
        };
        let records = self.close_step(reached);
        self.actions.push(self.commit_action(changes));
        self.process_inbox();
        self.emit();
        let has_begun = match self.breakpoint_stop(&records) {
            Some(stop) => {
                self.actions.push(stop);
                false
            }
            None => self.begin_step(),
        };
        self.open_step.recycle(records);
        has_begun
    }

    /// Adds a summary to the last `EndStep` of the actions, before the position moves on.
    fn summarize_last_step(&mut self) {
        // A run with storage has no `EndStep`, and maybe a hundred thousand actions.
        if !self.is_in_process {
            return;
        }
        let last = self.actions.iter().rposition(|it| matches!(it, Action::EndStep(_)));
        let Some(last) = last.filter(|it| matches!(self.actions[*it], Action::EndStep(None)))
        else {
            return;
        };
        let (step, next) = (self.position.step, self.next_nodes());
        self.actions[last] = Action::EndStep(Some(Box::new(StepSummary { step, next })));
    }

    /// Folds the updates of the step into the state. Tasks whose updates do not fit beside the others fail. Returns the status
    /// with which the run stops if such a failure is not caught.
    fn fold_fitting(&mut self) -> Result<Vec<Change>, RunStatus> {
        loop {
            let error = match self.fold_step() {
                Ok(changes) => return Ok(changes),
                Err(error) => error,
            };
            // A list of failed items takes room, too, so the updates are folded again. Each task fails at most twice.
            if !self.fail_misfits() {
                let reason = Some(Failure::of(ErrorKind::Other, &error).message);
                return Err(RunStatus { status: Status::Failed, reason });
            }
            if self.open_step.failure().is_some() {
                return Err(self.open_status());
            }
        }
    }

    /// Folds the updates of the step into the state, in task order. If they conflict, nothing changes.
    fn fold_step(&mut self) -> Result<Vec<Change>, StateError> {
        let updates = self.open_step.records().filter_map(|it| it.outcome.update());
        // Lists grow in place, since the finished tasks no longer share the state.
        let state = Arc::make_mut(&mut self.state);
        let schema = self.graph.schema();
        if self.is_in_process {
            schema.fold(state, updates).map(|()| Vec::new())
        } else {
            schema.fold_changes(state, updates)
        }
    }

    /// Replaces the position and the open step by the next ones. Returns the records of the step.
    fn close_step(&mut self, reached: Option<&str>) -> Vec<Arc<TaskRecord>> {
        self.open_step.extend_conversation(&mut self.position.people);
        self.position.used.elapsed_ms += self.open_step.elapsed_ms();
        let records = self.open_step.take_records();
        let results = StepResults { records: &records, state: &self.state };
        let limits = StepLimits { limits: &self.limits, reached };
        next_frontier(&self.graph, limits, &mut self.position, results);
        self.position.began = step_began(&self.graph, self.now);
        self.open_next_step();
        records
    }

    /// Opens the step after the position.
    fn open_next_step(&mut self) {
        self.open_step.reset(&self.graph, &self.position);
        self.note_facts();
        self.link_items();
    }

    /// Reports that the run has reached each node of the frontier that has a name for this and is not skipped. This
    /// comes before a breakpoint: the nodes are not reached again when the run continues from there.
    fn emit(&mut self) {
        self.emit_but(&BTreeSet::new());
    }

    /// Reports the nodes that the run has reached, without those that are reported already.
    fn emit_but(&mut self, reported: &BTreeSet<usize>) {
        let next = self.position.frontier.iter().enumerate();
        let reached = next.filter_map(|(index, active)| {
            let (node, spec) = self.graph.at(active.node);
            let name = spec.policies.emits.clone()?;
            let is_new = self.will_run(index) && !reported.contains(&index);
            let (task, node) = (self.open_step.id(index), node.clone());
            is_new.then(|| Action::Emit { task, node, from: active.trigger.node().cloned(), name })
        });
        let reached: Vec<Action> = reached.collect();
        self.actions.extend(reached);
    }

    /// Returns the action that stops the run if there is a breakpoint before the next step. `records` are those of the
    /// previous step.
    fn breakpoint_stop(&self, records: &[Arc<TaskRecord>]) -> Option<Action> {
        if self.position.frontier.is_empty() || self.breakpoints.is_empty() {
            return None;
        }
        let ran = records.iter().filter(|record| {
            matches!(record.outcome, Outcome::Finished { .. } | Outcome::Caught { .. })
        });
        let next = self.position.frontier.iter().enumerate();
        let next = next.map(|(index, it)| (self.graph.name_at(it.node), index));
        let ran = ran.map(|it| &it.node);
        let reason = self.breakpoints.between(ran, next, |index| self.will_run(index))?;
        Some(Action::stop(Status::Paused, Some(reason)))
    }

    /// Returns the action that saves a step with these changes.
    fn commit_action(&self, changes: Vec<Change>) -> Action {
        if self.is_in_process {
            return Action::EndStep(None);
        }
        Action::Commit(Box::new(Commit { position: self.position(), changes }))
    }

    /// Processes the waiting messages in a separate step without tasks, if the frontier has a node that can
    /// read them. Returns whether it made the step.
    fn process_inbox(&mut self) -> bool {
        if !self.has_messages_to_process() {
            return false;
        }
        self.summarize_last_step();
        let state = Arc::make_mut(&mut self.state);
        let InboxChanges { messages, changes } = self.inbox.process(self.graph.schema(), state);
        self.position.people.last_message = self.inbox.last();
        self.position.people.pending_messages.clear();
        self.position.step = self.position.step.next();
        // This step counts, too.
        route_if_limit_reached(&self.graph, StepLimits::from(&self.limits), &mut self.position);
        self.open_next_step();
        self.actions.extend([Action::PublishMessages(messages), self.commit_action(changes)]);
        true
    }

    /// Returns whether messages wait and the frontier has a node that can read them.
    fn has_messages_to_process(&self) -> bool {
        !self.inbox.is_empty() && !self.position.frontier.is_empty()
    }

    /// Processes the messages that came after the last commit, which has reported the next nodes. Reports those that run only
    /// because of a message.
    fn process_inbox_anew(&mut self) {
        if !self.has_messages_to_process() {
            return;
        }
        let was_routed = self.position.used.limit.is_some();
        let mut reported: BTreeSet<usize> =
            (0..self.position.frontier.len()).filter(|it| self.will_run(*it)).collect();
        self.keep_original_tasks();
        self.process_inbox();
        // The step has reached a limit, so other nodes are next.
        if !was_routed && self.position.used.limit.is_some() {
            reported.clear();
        }
        self.emit_but(&reported);
    }

    /// Keeps the names of the tasks of the frontier, which the step of the messages renumbers: without a record, a task may
    /// have begun under its name in a process that was killed.
    fn keep_original_tasks(&mut self) {
        for (index, active) in self.position.frontier.iter().enumerate() {
            let task = self.open_step.id(index);
            let node = self.graph.name_at(active.node).clone();
            let original = OriginalTask { task, node };
            self.position.original_tasks.entry(task.index).or_insert(original);
        }
    }

    /// Queues messages, to be processed when the current step is done. Messages that were queued or processed
    /// before change nothing.
    pub fn queue_messages(&mut self, messages: Vec<InboxMessage>) {
        self.inbox.add(messages);
    }

    /// Returns the budget with the usage of the open step.
    fn budget(&self) -> Budget<'_> {
        let mut budget = self.committed_budget();
        let of_step = self.open_step.usage();
        budget.usage.add(&of_step.usage);
        budget.elapsed_ms += of_step.elapsed_ms;
        budget
    }

    fn committed_budget(&self) -> Budget<'_> {
        Budget::after(&self.limits, self.position.steps_of_turn(), &self.position.used)
    }

    /// Returns the original names of a task of the step if it may have begun under them.
    fn original_task(&self, index: usize) -> Option<&OriginalTask> {
        self.position.original_tasks.get(&u32::try_from(index).ok()?)
    }

    fn run_action(&self, index: usize) -> Action {
        Action::Run(Box::new(self.task_at(index)))
    }

    fn task_at(&self, index: usize) -> Task {
        let IndexedActivation { node, input, trigger, timeout_ms } =
            self.position.frontier[index].clone();
        let task = &self.open_step.tasks()[index];
        Task {
            id: self.open_step.id(index),
            node: self.graph.name_at(node).clone(),
            node_index: node,
            original: self.original_task(index).cloned(),
            attempt: task.attempt,
            input,
            trigger,
            timeout: timeout_ms.map(Duration::from_millis),
            facts: self.facts_of(index),
            visits: Arc::clone(&self.position.visits),
            state: Arc::clone(&self.state),
            answers: task.answers.clone(),
            memos: self.open_step.memos_of(index, &self.position.people.grants),
            began: self.now,
        }
    }

    fn routing(&self) -> Routing<'_> {
        let graph = &self.graph;
        let state = &self.state;
        let facts = &self.facts;
        Routing { graph, state, visits: self.visits(), facts }
    }

    /// Returns whether a task of the step is not skipped.
    fn will_run(&self, index: usize) -> bool {
        let facts = self.facts_of(index);
        Routing { facts: &facts, ..self.routing() }.will_run(&self.position.frontier[index])
    }

    fn visits(&self) -> &Visits {
        &self.position.visits
    }

    fn policies(&self, index: usize) -> &Policies {
        self.graph.policies_at(self.position.frontier[index].node)
    }

    /// Returns the node of a task.
    fn name_of_task(&self, index: usize) -> &NodeName {
        self.graph.name_at(self.position.frontier[index].node)
    }
}
