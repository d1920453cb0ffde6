//! The rules of a run, without I/O, clock or randomness: events in, actions out.
//!
//! A [`Machine`] holds the position of a run. Its driver performs the actions in their order, makes each
//! durable before the next, and feeds the resulting events back. The order in which the results of one step
//! arrive makes no difference.
//!
//! The machine settles tasks in its `OpenStep`, decides with `Routing`, and asks `frontier` what runs next.

mod backoff;
mod carry;
mod fit;
mod frontier;
mod inbox;
mod open_step;
mod pauses;
mod protocol;
mod revise;
mod routing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{Status, Usage},
    graph::{
        Command, ErrorKind, Failure, Goto, Limits, OriginalTask, Policies, Question, Transition,
        Trigger,
    },
    id::{NodeName, RunId, TaskId},
    state::{Schema, State, StateError, Update},
};
use jiff::Timestamp;

pub use self::inbox::ProcessedMessage;
pub use self::pauses::Pauses;
pub use self::protocol::{Action, Attempt, Event, RestoreError, Task};
pub use self::revise::ReviseError;
pub(super) use self::{
    carry::carry,
    revise::{Revised, revise},
};
use self::{
    frontier::next_frontier,
    inbox::{Inbox, Processed},
    open_step::{OpenStep, Phase, check_question},
    routing::Routing,
};
use super::budget::{self, Used};
use crate::checkpoint::{
    Activation, Checkpoint, Commit, InboxMessage, OpenQuestion, Outcome, Position, TaskRecord,
    named,
};

/// The settings of a run apart from its graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// The limits.
    pub limits: Limits,
    /// The breakpoints.
    pub pauses: Pauses,
    /// The inbox messages that are not processed yet, in the order of their numbers.
    pub messages: Vec<InboxMessage>,
}

impl From<Limits> for Terms {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// The state machine of one run.
#[derive(Clone, Debug)]
pub struct Machine {
    graph: CompiledGraph,
    limits: Limits,
    pauses: Pauses,
    run: RunId,
    position: Position,
    state: Arc<State>,
    /// The visits of the position, shared with the tasks.
    visits: Arc<BTreeMap<NodeName, u32>>,
    step: OpenStep,
    inbox: Inbox,
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
            position.frontier.push(Activation::by_edge(node.clone(), Trigger::Start));
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

    /// Restores a run from where it was saved, and returns the remaining actions. The next step starts even
    /// if it has a breakpoint: the run has already stopped there, or was resumed.
    ///
    /// # Errors
    ///
    /// Fails when the saved run does not fit the graph.
    pub fn restore(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        checkpoint: Checkpoint,
        records: Vec<TaskRecord>,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        Self::restore_only(graph, terms, run, (checkpoint, records), None)
    }

    /// Does the same as [`Machine::restore`], but if a node is named, only failed tasks of that node run
    /// again.
    ///
    /// # Errors
    ///
    /// As [`Machine::restore`].
    pub fn restore_only(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        (checkpoint, records): (Checkpoint, Vec<TaskRecord>),
        only: Option<&NodeName>,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        let is_new = records.is_empty();
        let mut machine = Self::recalled(graph, terms.into(), run, (checkpoint, records), only)?;
        if machine.step.tasks().iter().all(open_step::TaskState::is_untouched) {
            let mut actions = if is_new { machine.process_inbox() } else { Vec::new() };
            actions.extend(machine.begin_step());
            return Ok((machine, actions));
        }
        let actions = if machine.step.is_idle() {
            machine.advance()
        } else {
            // Each task counts as busy until it has begun, so the step cannot end before the last of these
            // has begun.
            machine.step.busy_tasks().into_iter().flat_map(|it| machine.continue_task(it)).collect()
        };
        Ok((machine, actions))
    }

    /// Returns the machine with the saved records, before any task starts.
    fn recalled(
        graph: CompiledGraph,
        mut terms: Terms,
        run: RunId,
        (checkpoint, records): (Checkpoint, Vec<TaskRecord>),
        only: Option<&NodeName>,
    ) -> Result<Self, RestoreError> {
        fit::check(&graph, &checkpoint.position, &records)?;
        // Messages from before a migration to this graph come first.
        terms.messages.splice(0..0, checkpoint.position.people.pending_messages.iter().cloned());
        let mut machine = Self::at(graph, terms, run, checkpoint);
        for record in records {
            let index = machine.step.index(record.task);
            machine.step.recall(index.ok_or(RestoreError::Record(record.task))?, record, only);
        }
        Ok(machine)
    }

    fn at(graph: CompiledGraph, terms: Terms, run: RunId, checkpoint: Checkpoint) -> Self {
        let Checkpoint { position, state } = checkpoint;
        let Terms { limits, pauses, messages } = terms;
        let step = OpenStep::after(&position);
        let inbox = Inbox::new(position.people.last_message, messages);
        let (visits, state) = (Arc::new(position.visits.clone()), Arc::new(state));
        Self { graph, limits, pauses, run, position, state, visits, step, inbox }
    }

    /// Applies an event and returns the next actions.
    ///
    /// An event about a task that is settled, or not of this step, changes nothing. So delivering an event
    /// twice does no harm.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        let Some(index) = self.step.index(event.task()) else { return Vec::new() };
        if !self.step.expects(index, &event) {
            return Vec::new();
        }
        match event {
            Event::Finished { command, attempt, .. } => {
                self.step.add_attempt(index, &attempt);
                self.finish(index, command)
            }
            Event::Failed { failure, attempt, .. } => {
                self.step.add_attempt(index, &attempt);
                self.fail_attempt(index, failure, attempt.ended)
            }
            Event::Aborted { attempt, .. } => {
                self.step.add_attempt(index, &attempt);
                vec![self.step.abort(index).into()]
            }
            Event::MemoSaved { name, value, attempt, .. } => {
                vec![self.step.save_memo(index, &attempt, name, value).into()]
            }
            Event::Asked { question, attempt, .. } => {
                self.step.add_attempt(index, &attempt);
                self.ask(index, question)
            }
            Event::Answered { key, answer, by, question_hash, .. } => {
                let record = self.step.answer(index, key, answer, by, question_hash);
                vec![record.into(), self.run_task(index)]
            }
            Event::Expired { .. } => self.expire(index),
            Event::Woke { .. } => {
                self.step.run_again(index);
                vec![self.run_task(index)]
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
        self.step.index(task).map(|index| &self.position.frontier[index].node)
    }

    /// Returns the model usage so far, including tasks of the step that is not committed yet.
    pub fn usage(&self) -> Usage {
        self.used().usage
    }

    fn used(&self) -> Used {
        let (mut used, of_step) = (Used::by(&self.position), self.step.usage());
        used.usage.add(&of_step.usage);
        used.elapsed_ms += of_step.ms;
        used
    }

    /// Returns how long a task of the step may still work before the run is out of time, if the time is
    /// limited.
    pub fn time_left(&self, task: TaskId) -> Option<Duration> {
        let mut used = Used::by(&self.position);
        used.elapsed_ms = used.elapsed_ms.saturating_add(self.step.elapsed_ms(task));
        used.time_left(&self.limits)
    }

    /// Returns whether the run may spend more on models, given the usage of its running attempts.
    pub fn may_spend(&self, running: &Usage) -> bool {
        let mut used = self.used();
        used.usage.add(running);
        used.reached_by_models(&self.limits).is_none()
    }

    /// Returns the questions that wait for an answer, each with its own key.
    pub fn open_questions(&self) -> Vec<OpenQuestion> {
        let tasks = self.step.tasks();
        let mut askers: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, task) in tasks.iter().enumerate() {
            for key in &task.question_keys {
                askers.entry(key).or_default().insert(index);
            }
        }
        let asked = tasks.iter().enumerate().filter_map(|(at, it)| Some((at, it.question()?)));
        asked
            .map(|(index, question)| {
                let (key, node) = (question.key.as_str(), &self.position.frontier[index].node);
                let is_known =
                    self.position.people.question_keys.contains(key) || askers[key].len() > 1;
                let first = self.original_task(index).map(|it| it.task);
                named((self.step.id(index), first), node, question, is_known)
            })
            .collect()
    }

    /// Returns the next deadline of an open question.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.step.next_deadline()
    }

    /// Returns the tasks whose deadline has passed without an answer.
    pub fn expired(&self, now: Timestamp) -> Vec<TaskId> {
        self.step.expired(now)
    }

    /// Queues messages, to be processed when the current step is done. Messages that were queued or processed
    /// before change nothing.
    pub fn queue_messages(&mut self, messages: Vec<InboxMessage>) {
        self.inbox.add(messages);
    }

    /// Returns the number of the last known message.
    pub fn last_message(&self) -> u64 {
        self.inbox.last()
    }

    /// Returns whether the step ends with the next finished task.
    pub fn is_at_last_task(&self) -> bool {
        self.step.is_at_last_task()
    }

    /// Ends the step early: running tasks were aborted, and a limit of the run is reached.
    ///
    /// The run stops as `limit`, or is routed to `limits.exhausted` with the finished results. If a task has
    /// failed for good, it stops as failed, as it would have done without the limit.
    pub fn out_of_budget(&mut self) -> Vec<Action> {
        if self.step.failure().is_some() {
            return vec![self.stop_open()];
        }
        let is_routed = self.limits.exhausted.is_some() && self.position.used.limit.is_none();
        if !is_routed {
            return vec![Action::stop(Status::Limit, self.used().reached(&self.limits, || true))];
        }
        let mut actions = Vec::new();
        for index in 0..self.step.tasks().len() {
            if self.step.tasks()[index].record.is_none() {
                // The task waits for its turn, its next attempt or a person.
                actions.push(self.step.abort(index).into());
            }
        }
        actions.extend(self.commit());
        actions
    }

    /// Returns the original names of a task of the step if it began before a migration.
    fn original_task(&self, index: usize) -> Option<&OriginalTask> {
        self.position.original_tasks.get(&u32::try_from(index).ok()?)
    }

    fn run_task(&self, index: usize) -> Action {
        let Activation { node, input, trigger } = self.position.frontier[index].clone();
        let task = &self.step.tasks()[index];
        Action::Run(Box::new(Task {
            id: self.step.id(index),
            node,
            original: self.original_task(index).cloned(),
            attempt: task.attempt,
            input,
            trigger,
            visits: Arc::clone(&self.visits),
            state: Arc::clone(&self.state),
            answers: task.answers.clone(),
            memos: task.memos.clone(),
        }))
    }

    fn routing(&self) -> Routing<'_> {
        Routing { graph: &self.graph, state: &self.state, visits: &self.visits }
    }

    fn policies(&self, index: usize) -> &Policies {
        let spec = self.graph.node(&self.position.frontier[index].node);
        &spec.expect("a frontier names only nodes of the graph").policies
    }

    /// Reports each node of the frontier that has a name for this and is not skipped.
    fn emissions(&self) -> Vec<Action> {
        let frontier = self.position.frontier.iter().enumerate();
        let emission = |(index, activation): (usize, &Activation)| {
            let node = activation.node.clone();
            let name = self.graph.node(&node)?.policies.emits.clone()?;
            let from = activation.trigger.node().cloned();
            let task = self.step.id(index);
            let is_to_run = self.routing().is_to_run(activation);
            is_to_run.then(|| Action::Emit { task, node, from, name })
        };
        frontier.filter_map(emission).collect()
    }

    /// Stops before the next step if there is a breakpoint. `records` are those of the previous step.
    fn pause(&self, records: &[TaskRecord]) -> Option<Vec<Action>> {
        if self.position.frontier.is_empty() {
            return None;
        }
        let ran = records
            .iter()
            .filter(|it| matches!(it.outcome, Outcome::Finished { .. } | Outcome::Caught { .. }));
        let (ran, next) = (ran.map(|it| &it.node), &self.position.frontier);
        let reason = self.pauses.between(ran, next, |it| self.routing().is_to_run(it))?;
        Some(vec![Action::stop(Status::Paused, Some(reason))])
    }

    /// Runs the frontier, or stops the run if the frontier is empty or a limit is reached.
    fn begin_step(&mut self) -> Vec<Action> {
        if self.position.frontier.is_empty() {
            let failure = self.position.failure.clone();
            let status = if failure.is_some() { Status::Failed } else { Status::Done };
            let limit = || self.position.used.limit.clone();
            return vec![Action::stop(status, failure.or_else(limit))];
        }
        let may_spend = || budget::may_spend(&self.graph, &self.position.frontier);
        if let Some(reason) = self.used().reached(&self.limits, may_spend) {
            return vec![Action::stop(Status::Limit, Some(reason))];
        }
        (0..self.position.frontier.len()).flat_map(|it| self.begin(it)).collect()
    }

    /// Continues a task from its restored state.
    fn continue_task(&mut self, index: usize) -> Vec<Action> {
        match *self.step.tasks()[index].phase() {
            Phase::Running => self.begin(index),
            Phase::Sleeping { wake, wait_ms } => {
                vec![Action::Sleep { task: self.step.id(index), wake, wait_ms }]
            }
            Phase::Aborted | Phase::Waiting(_) | Phase::Failed(_) | Phase::Settled => Vec::new(),
        }
    }

    /// Runs a task of the step, or skips it if the condition of its node does not hold.
    fn begin(&mut self, index: usize) -> Vec<Action> {
        let (routing, activation) = (self.routing(), &self.position.frontier[index]);
        let skipped = match routing.false_condition(activation) {
            Ok(None) => return vec![self.run_task(index)],
            Ok(Some(condition)) => routing
                .transitions(activation, &Update::default(), Goto::Edges)
                .map(|transitions| Outcome::Skipped { condition, transitions }),
            Err(failure) => Err(failure),
        };
        match skipped {
            Ok(outcome) => self.settle(index, outcome),
            Err(failure) => self.fail(index, failure),
        }
    }

    /// Handles the result of a node: checks its update, evaluates its routes and puts both into one record.
    fn finish(&mut self, index: usize, command: Command) -> Vec<Action> {
        let Command { mut update, goto } = command;
        update.clears.extend(self.policies(index).clears.iter().cloned());
        let (routing, activation) = (self.routing(), &self.position.frontier[index]);
        let decided = routing
            .check_update(&update)
            .and_then(|()| routing.transitions(activation, &update, goto));
        let recorded = decided.and_then(|transitions| {
            self.step.add_result(&update, &transitions)?;
            Ok(transitions)
        });
        match recorded {
            Ok(transitions) => self.settle(index, Outcome::Finished { update, transitions }),
            Err(failure) => self.fail(index, failure),
        }
    }

    /// Handles a failed attempt: the node waits for its next attempt, or has failed.
    ///
    /// The end of the wait is saved, so that another process waits only for the rest of it.
    fn fail_attempt(&mut self, index: usize, failure: Failure, ended: Timestamp) -> Vec<Action> {
        let (task, attempt) = (self.step.id(index), self.step.tasks()[index].attempt);
        let retry = &self.policies(index).retry;
        if !failure.transient || attempt >= retry.attempts_max {
            return self.fail(index, failure);
        }
        let seed = format!("{}/{task}/{attempt}", self.run);
        let wait_ms = backoff::wait_ms(retry, &seed, attempt, failure.retry_after_ms);
        let wake = backoff::after(ended, wait_ms);
        let record = self.step.retry(index, failure, wake, wait_ms);
        vec![record.into(), Action::Sleep { task, wake, wait_ms }]
    }

    /// Handles a node that failed for good: a route catches the failure, or the task has failed.
    fn fail(&mut self, index: usize, failure: Failure) -> Vec<Action> {
        let catch = self.policies(index).catch.iter().find(|it| it.takes(failure.kind));
        if let Some(catch) = catch {
            let transitions = vec![Transition::To(catch.to.clone())];
            return self.settle(index, Outcome::Caught { failure, transitions });
        }
        let record = self.step.fail(index, failure);
        self.record_and_advance(record)
    }

    /// Handles a question to a person: the task waits.
    fn ask(&mut self, index: usize, question: Question) -> Vec<Action> {
        if let Err(failure) = check_question(&question) {
            return self.fail(index, failure);
        }
        let record = self.step.ask(index, question);
        self.record_and_advance(record)
    }

    /// Fails a task whose question was not answered in time.
    fn expire(&mut self, index: usize) -> Vec<Action> {
        let Some(deadline) = self.step.tasks()[index].deadline() else { return Vec::new() };
        let message = format!("no answer by {deadline:.0}");
        self.fail(index, Failure::new(ErrorKind::Timeout, message))
    }

    fn settle(&mut self, index: usize, outcome: Outcome) -> Vec<Action> {
        let record = self.step.settle(index, outcome);
        self.record_and_advance(record)
    }

    fn record_and_advance(&mut self, record: TaskRecord) -> Vec<Action> {
        let mut actions = vec![record.into()];
        actions.extend(self.advance());
        actions
    }

    /// Continues after a task settled or suspended: commits the step, stops the run, or waits for the other
    /// tasks.
    fn advance(&mut self) -> Vec<Action> {
        if self.step.is_complete() {
            return self.commit();
        }
        if self.step.is_idle() { vec![self.stop_open()] } else { Vec::new() }
    }

    /// Stops a run whose step is still open: a task failed, or a person has to answer.
    fn stop_open(&self) -> Action {
        if let Some(reason) = self.step.failure() {
            return Action::stop(Status::Failed, Some(reason));
        }
        let open = self.open_questions().into_iter().map(|it| it.question.key);
        let keys: Vec<String> = open.collect();
        let reason = format!("waiting for an answer to {}", keys.join(", "));
        Action::stop(Status::Paused, Some(reason))
    }

    /// Folds the records of the step, in task order, into the next checkpoint.
    fn commit(&mut self) -> Vec<Action> {
        let question_keys: Vec<String> = self.step.question_keys().cloned().collect();
        let records = self.step.take_records();
        let updates = records.iter().filter_map(|it| it.outcome.update());
        let schema = self.graph.schema();
        let (state, changes) = match schema.apply(take(schema, &mut self.state), updates) {
            Ok(next) => next,
            Err(refused) => {
                self.state = Arc::new(refused.state);
                let reason = Failure::of(ErrorKind::Other, &refused.error).message;
                return vec![Action::stop(Status::Failed, Some(reason))];
            }
        };
        self.position = next_frontier(&self.graph, &self.limits, &self.position, &records);
        self.position.people.question_keys.extend(question_keys);
        self.state = Arc::new(state);
        self.visits = Arc::new(self.position.visits.clone());
        self.step = OpenStep::after(&self.position);

        let commit = Commit { position: self.position.clone(), changes };
        let mut actions = vec![Action::Commit(Box::new(commit))];
        actions.extend(self.emissions());
        actions.extend(self.process_inbox());
        actions.extend(self.pause(&records).unwrap_or_else(|| self.begin_step()));
        actions
    }

    /// Processes the waiting messages in a separate step without tasks, if the frontier has a node that can
    /// read them.
    fn process_inbox(&mut self) -> Vec<Action> {
        if self.inbox.is_empty() || self.position.frontier.is_empty() {
            return Vec::new();
        }
        let (schema, state) = (self.graph.schema(), &mut self.state);
        let processed = self.inbox.process(schema, take(schema, state));
        let Processed { messages, state, changes } = processed;
        self.state = Arc::new(state);
        self.position.people.last_message = self.inbox.last();
        self.position.people.pending_messages.clear();
        self.position.step = self.position.step.next();
        self.step = OpenStep::after(&self.position);
        let commit = Commit { position: self.position.clone(), changes };
        vec![Action::PublishMessages(messages), Action::Commit(Box::new(commit))]
    }
}

/// Takes the state out of its place, so that lists grow in place if the machine holds the last reference.
fn take(schema: &Schema, state: &mut Arc<State>) -> State {
    Arc::unwrap_or_clone(std::mem::replace(state, Arc::new(schema.empty())))
}
