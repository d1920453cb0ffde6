//! The rules of a run, without I/O, clock or randomness: events in, actions out.
//!
//! A [`Machine`] holds the position of a run. Its driver performs the actions in their order, makes each
//! durable before the next, and feeds the resulting events back. The order in which the results of one step
//! arrive makes no difference.

mod carry;
mod fit;
mod frontier;
mod hear;
mod pause;
mod protocol;
mod restore;
mod revise;
mod room;
mod settle;
mod time;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{Status, Usage},
    graph::{ErrorKind, Failure, Input, OriginalTask, Question, Trigger},
    id::{NodeName, RunId, TaskId},
    state::{State, StateError, Update},
};
use jiff::Timestamp;
use serde_json::Value;

pub(super) use self::carry::carry;
use self::frontier::next_frontier;
pub use self::hear::ProcessedMessage;
pub use self::pause::{Pauses, Terms};
pub use self::protocol::{Action, Attempt, Event, RestoreError, Task};
pub use self::revise::{ReviseError, Revised};
use super::budget::{self, Used};
use crate::checkpoint::{
    Activation, Checkpoint, Commit, OpenQuestion, Outcome, Position, TaskRecord, named,
};

/// The usage of a task, summed over its attempts.
#[derive(Clone, Copy, Debug, Default)]
struct TaskUsage {
    ms: u64,
    usage: Usage,
}

/// The state machine of one run.
#[derive(Clone, Debug)]
pub struct Machine {
    graph: CompiledGraph,
    terms: Terms,
    run: RunId,
    position: Position,
    state: Arc<State>,
    visits: Arc<BTreeMap<NodeName, u32>>,
    tasks: Vec<TaskState>,
    /// The number of tasks whose records are not final.
    open: usize,
    /// The number of tasks that run, sleep or were aborted. It is counted, because a step may have ten
    /// thousand tasks.
    busy: usize,
    /// The size in bytes of the updates and dispatches of this step.
    written: u64,
}

/// The state of one task of the current step.
#[derive(Clone, Debug, Default)]
struct TaskState {
    phase: Phase,
    attempt: u32,
    total: TaskUsage,
    answers: BTreeMap<String, Value>,
    /// The memos of the task: saved results of parts of its work.
    memos: BTreeMap<String, Value>,
    /// The keys of the questions it has asked.
    question_keys: Vec<String>,
    record: Option<Box<TaskRecord>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Phase {
    /// The driver runs it, or will.
    #[default]
    Running,
    /// It waits for its next attempt.
    Sleeping { wake: Timestamp, wait_ms: u64 },
    /// It waits for a person.
    Waiting(Box<Question>),
    /// It was aborted because a limit of the run is reached.
    Aborted,
    /// It failed, and no route caught the failure.
    Failed(String),
    /// Its record is final.
    Settled,
}

impl Phase {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Running | Self::Sleeping { .. } | Self::Aborted)
    }
}

impl TaskState {
    fn is_untouched(&self) -> bool {
        self.phase == Phase::Running && self.answers.is_empty()
    }

    /// Returns the deadline of the open question, if the task has one with a deadline.
    fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Waiting(question) => question.deadline,
            _ => None,
        }
    }
}

impl TaskUsage {
    fn add(&mut self, attempt: &Attempt) {
        self.ms += attempt.ms;
        self.usage.add(&attempt.usage);
    }
}

impl Machine {
    /// Starts a run. Returns the commit that accepts it and the first actions.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state.
    pub fn start(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        input: Update,
    ) -> Result<(Self, Commit, Vec<Action>), StateError> {
        let state = graph.schema().begin(input)?;
        // Defaults are saved with the input: a later change of the schema does not affect a run that has
        // started.
        let changes = state.as_changes().collect();
        let mut position = Position::default();
        for node in &graph.graph().entry {
            position.visits.insert(node.clone(), 1);
            let activation =
                Activation { node: node.clone(), input: Input::State, trigger: Trigger::Start };
            position.frontier.push(activation);
        }
        position.frontier.sort_by(|a, b| a.node.cmp(&b.node));
        // A node that is named twice is activated once, like one with two incoming edges.
        position.frontier.dedup_by(|a, b| a.node == b.node);
        let commit = Commit { position: position.clone(), changes };
        let mut machine = Self::at(graph, terms.into(), run, Checkpoint { position, state });
        let actions = machine.pause(&[]).unwrap_or_else(|| {
            let mut actions = machine.emissions();
            actions.extend(machine.begin_step());
            actions
        });
        Ok((machine, commit, actions))
    }

    /// Applies an event and returns the next actions.
    ///
    /// An event about a task that is settled, or not of this step, changes nothing. So delivering an event
    /// twice does no harm.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        let Some(index) = self.index(event.task()) else { return Vec::new() };
        let expected = match (&event, &self.tasks[index].phase) {
            (Event::Woke { wake, .. }, phase) => {
                matches!(phase, Phase::Sleeping { wake: until, .. } if until == wake)
            }
            (Event::Expired { .. }, _) => self.tasks[index].deadline().is_some(),
            (Event::Answered { key, .. }, Phase::Waiting(question)) => question.key == *key,
            (Event::Answered { .. }, _) => false,
            (
                Event::Finished { attempt, .. }
                | Event::Failed { attempt, .. }
                | Event::Aborted { attempt, .. }
                | Event::MemoSaved { attempt, .. }
                | Event::Asked { attempt, .. },
                phase,
            ) => *phase == Phase::Running && attempt.number == self.tasks[index].attempt,
        };
        if !expected {
            return Vec::new();
        }
        match event {
            Event::Finished { command, attempt, .. } => {
                self.tasks[index].total.add(&attempt);
                self.finish(index, command)
            }
            Event::Failed { failure, attempt, .. } => {
                self.tasks[index].total.add(&attempt);
                self.fail_attempt(index, failure, attempt.ended)
            }
            Event::Aborted { attempt, .. } => {
                self.tasks[index].total.add(&attempt);
                vec![Action::Record(Box::new(self.cut_off(index)))]
            }
            Event::MemoSaved { name, value, attempt, .. } => {
                self.note(index, &attempt, name, value)
            }
            Event::Asked { question, attempt, .. } => {
                self.tasks[index].total.add(&attempt);
                self.wait_for(index, question)
            }
            Event::Answered { answer, by, question_hash, .. } => {
                self.answer(index, answer, by, question_hash)
            }
            Event::Expired { .. } => self.expire(index),
            Event::Woke { .. } => {
                self.set_phase(index, Phase::Running);
                vec![Action::Run(Box::new(self.task(index)))]
            }
        }
    }

    /// Returns the id of the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the position of the run.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the model usage so far, including tasks of the step that is not committed yet.
    pub fn usage(&self) -> Usage {
        self.used().usage
    }

    fn used(&self) -> Used {
        let mut used = Used::by(&self.position);
        for it in &self.tasks {
            used.usage.add(&it.total.usage);
        }
        used.elapsed_ms += self.tasks.iter().map(|it| it.total.ms).max().unwrap_or(0);
        used
    }

    /// Returns the state of the run.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Returns the graph of the run.
    pub fn graph(&self) -> &CompiledGraph {
        &self.graph
    }

    /// Returns the node of a task of the current step.
    pub fn node_of(&self, task: TaskId) -> Option<&NodeName> {
        self.index(task).map(|index| &self.position.frontier[index].node)
    }

    /// Returns the questions that wait for an answer, each with its own key.
    pub fn open_questions(&self) -> Vec<OpenQuestion> {
        let asked = self.tasks.iter().enumerate().filter_map(|(index, it)| match &it.phase {
            Phase::Waiting(question) => Some((index, question)),
            _ => None,
        });
        let mut askers: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            for key in &task.question_keys {
                askers.entry(key).or_default().insert(index);
            }
        }
        asked
            .map(|(index, question)| {
                let (key, node) = (question.key.as_str(), &self.position.frontier[index].node);
                let is_known = self.position.question_keys.contains(key) || askers[key].len() > 1;
                let first = self.original_task(index).map(|it| it.task);
                named((self.id(index), first), node, question, is_known)
            })
            .collect()
    }

    /// Returns the next deadline of an open question.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.tasks.iter().filter_map(TaskState::deadline).min()
    }

    /// Returns the tasks whose deadline has passed without an answer.
    pub fn expired(&self, now: Timestamp) -> Vec<TaskId> {
        let is_over = |it: &usize| self.tasks[*it].deadline().is_some_and(|it| it <= now);
        (0..self.tasks.len()).filter(is_over).map(|it| self.id(it)).collect()
    }

    fn at(graph: CompiledGraph, terms: Terms, run: RunId, checkpoint: Checkpoint) -> Self {
        let Checkpoint { position, state } = checkpoint;
        let tasks = vec![TaskState { attempt: 1, ..TaskState::default() }; position.frontier.len()];
        let (open, busy) = (tasks.len(), tasks.len());
        let (visits, state) = (Arc::new(position.visits.clone()), Arc::new(state));
        Self { graph, terms, run, position, state, visits, tasks, open, busy, written: 0 }
    }

    fn id(&self, index: usize) -> TaskId {
        let index = u32::try_from(index).expect("a frontier is far smaller than 2³²");
        TaskId { step: self.position.step.next(), index }
    }

    /// Returns the original names of a task of the step if it began before a migration.
    fn original_task(&self, index: usize) -> Option<&OriginalTask> {
        self.position.original_tasks.get(&u32::try_from(index).ok()?)
    }

    fn index(&self, task: TaskId) -> Option<usize> {
        let index = usize::try_from(task.index).ok()?;
        (task.step == self.position.step.next() && index < self.tasks.len()).then_some(index)
    }

    fn task(&self, index: usize) -> Task {
        let Activation { node, input, trigger } = self.position.frontier[index].clone();
        Task {
            id: self.id(index),
            node,
            original: self.original_task(index).cloned(),
            attempt: self.tasks[index].attempt,
            input,
            trigger,
            visits: Arc::clone(&self.visits),
            state: Arc::clone(&self.state),
            answers: self.tasks[index].answers.clone(),
            memos: self.tasks[index].memos.clone(),
        }
    }

    fn set_phase(&mut self, index: usize, phase: Phase) {
        let is_settled = phase == Phase::Settled;
        let is_busy = phase.is_busy();
        let before = std::mem::replace(&mut self.tasks[index].phase, phase);
        self.open = self.open + usize::from(before == Phase::Settled) - usize::from(is_settled);
        self.busy = self.busy + usize::from(is_busy) - usize::from(before.is_busy());
    }

    /// Reports each node of the frontier that has a name for this and is not skipped.
    fn emissions(&self) -> Vec<Action> {
        let frontier = self.position.frontier.iter().enumerate();
        let emission = |(index, activation): (usize, &Activation)| {
            let node = activation.node.clone();
            let name = self.graph.node(&node)?.policies.emits.clone()?;
            let from = activation.trigger.node().cloned();
            self.is_to_run(activation).then(|| Action::Emit {
                task: self.id(index),
                node,
                from,
                name,
            })
        };
        frontier.filter_map(emission).collect()
    }

    /// Runs the frontier, or stops the run if the frontier is empty or a limit is reached.
    fn begin_step(&mut self) -> Vec<Action> {
        if self.tasks.is_empty() {
            let failure = self.position.failure.clone();
            let status = if failure.is_some() { Status::Failed } else { Status::Done };
            return vec![Action::Rest { status, reason: failure }];
        }
        let exhausted_limits = self.position.exhausted_limits;
        if let Some(reason) = budget::reached(&self.terms.limits, exhausted_limits, &self.used()) {
            return vec![Action::Rest { status: Status::Limit, reason: Some(reason) }];
        }
        // Each task counts as busy until it has begun, so the step cannot end before its last task has begun.
        (0..self.tasks.len()).flat_map(|it| self.begin(it)).collect()
    }

    /// Continues after a task settled or suspended: commits the step, stops the run, or waits for the other
    /// tasks.
    fn advance(&mut self) -> Vec<Action> {
        if self.open == 0 {
            return self.commit();
        }
        if self.busy > 0 {
            return Vec::new();
        }
        vec![self.rest_open()]
    }

    /// Stops a run whose step is still open: a task failed, or a person has to answer.
    fn rest_open(&self) -> Action {
        let failed = self.tasks.iter().find_map(|it| match &it.phase {
            Phase::Failed(reason) => Some(reason.clone()),
            _ => None,
        });
        let (status, reason) = if let Some(reason) = failed {
            (Status::Failed, reason)
        } else {
            let open = self.open_questions().into_iter().map(|it| it.question.key);
            let keys: Vec<String> = open.collect();
            (Status::Paused, format!("waiting for an answer to {}", keys.join(", ")))
        };
        Action::Rest { status, reason: Some(reason) }
    }

    /// Folds the records of the step, in task order, into the next checkpoint.
    fn commit(&mut self) -> Vec<Action> {
        let tasks = std::mem::take(&mut self.tasks);
        let question_keys: Vec<String> =
            tasks.iter().flat_map(|it| it.question_keys.iter().cloned()).collect();
        let mut records: Vec<TaskRecord> = Vec::with_capacity(tasks.len());
        records.extend(tasks.into_iter().filter_map(|it| it.record).map(|it| *it));
        assert_eq!(
            records.len(),
            self.position.frontier.len(),
            "every task of the step is settled"
        );

        let updates = records.iter().filter_map(|it| match &it.outcome {
            Outcome::Finished { update, .. } => Some(update),
            _ => None,
        });
        // This is the last reference to the old state, so lists grow in place.
        let schema = self.graph.schema().clone();
        let state = std::mem::replace(&mut self.state, Arc::new(schema.empty()));
        let (state, changes) = match schema.apply(Arc::unwrap_or_clone(state), updates) {
            Ok(next) => next,
            Err(refused) => {
                self.state = Arc::new(refused.state);
                let reason = Failure::of(ErrorKind::Other, &refused.error).message;
                return vec![Action::Rest { status: Status::Failed, reason: Some(reason) }];
            }
        };
        self.position = next_frontier(&self.graph, &self.terms.limits, &self.position, &records);
        self.position.question_keys.extend(question_keys);
        self.state = Arc::new(state);
        self.visits = Arc::new(self.position.visits.clone());
        self.tasks =
            vec![TaskState { attempt: 1, ..TaskState::default() }; self.position.frontier.len()];
        (self.open, self.busy, self.written) = (self.tasks.len(), self.tasks.len(), 0);

        let commit = Commit { position: self.position.clone(), changes };
        let mut actions = vec![Action::Commit(Box::new(commit))];
        actions.extend(self.emissions());
        actions.extend(self.take_in());
        actions.extend(self.pause(&records).unwrap_or_else(|| self.begin_step()));
        actions
    }
}
