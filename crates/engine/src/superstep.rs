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
mod indexed;
mod open_step;
mod pauses;
mod protocol;
mod revise;
mod rounds;
mod routing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    event::{Status, Usage},
    graph::{
        Command, ErrorKind, Failure, Goto, Input, ItemNeeds, Limits, OriginalTask, Policies,
        Question, Remaining, RunFacts, Transition, Trigger, Visits,
    },
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    state::{Change, Channel, State, StateError, Type, Update},
};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use self::inbox::ProcessedMessage;
pub use self::pauses::Pauses;
pub use self::protocol::{Action, Attempt, Event, RestoreError, Task};
pub use self::revise::ReviseError;
pub(super) use self::{
    carry::{carry, carry_values},
    revise::{Revised, revise},
};
use self::{
    frontier::next_frontier,
    inbox::{Inbox, Processed},
    indexed::{Active, IndexedPosition},
    open_step::{OpenStep, Phase, check_question},
    routing::Routing,
};
use super::budget::{self, Used};
use crate::checkpoint::{
    Checkpoint, Commit, EarlierTurns, InboxMessage, OpenQuestion, Outcome, Position, RunStatus,
    TaskRecord, named,
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
    /// Whether nothing saves the run: [`Action::StepEnded`] then takes the place of each commit.
    pub is_unsaved: bool,
    /// When the machine starts. The rules have no clock; later they learn the time from events.
    pub now: Timestamp,
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
    position: IndexedPosition,
    state: Arc<State>,
    step: OpenStep,
    inbox: Inbox,
    is_unsaved: bool,
    /// Whether items that waited for others begin. A chain of items that all end at once would otherwise recurse.
    is_releasing: bool,
    /// The latest known time.
    now: Timestamp,
    /// The facts at the start of the open step.
    facts: Arc<RunFacts>,
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
        let position = at_entry(&graph, Position::default());
        Ok(Self::enter(graph, terms.into(), run, (position, state), changes))
    }

    /// Begins a new turn of a run that has ended, with its input as an update. The limits and the visit counts begin
    /// anew; the totals and the state are kept.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state.
    pub fn turn(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        ended: Checkpoint,
        input: &Update,
    ) -> Result<(Self, Commit, Vec<Action>), StateError> {
        let Checkpoint { position, state } = ended;
        let schema = graph.schema();
        schema.check(input)?;
        let (state, changes) = schema.apply(state, [input]).map_err(|it| it.error)?;
        let earlier = EarlierTurns {
            turns: position.earlier.turns + 1,
            steps: position.step.next().0,
            usage: position.total_usage(),
            elapsed_ms: position.earlier.elapsed_ms + position.used.elapsed_ms,
        };
        let (step, people) = (position.step.next(), position.people);
        let position = at_entry(&graph, Position { step, earlier, people, ..Position::default() });
        Ok(Self::enter(graph, terms.into(), run, (position, state), changes))
    }

    /// Enters the graph at its first nodes.
    fn enter(
        graph: CompiledGraph,
        terms: Terms,
        run: RunId,
        (position, state): (IndexedPosition, State),
        changes: Vec<Change>,
    ) -> (Self, Commit, Vec<Action>) {
        let began = graph.graph().facts.time.then_some(terms.now);
        let position = IndexedPosition { began, ..position };
        let commit = Commit { position: position.named(&graph), changes };
        let mut machine = Self::at(graph, terms, run, position, state);
        let actions = machine.pause(&[]).unwrap_or_else(|| {
            let mut actions = machine.emissions();
            machine.begin_step(&mut actions);
            actions
        });
        (machine, commit, actions)
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
            machine.begin_step(&mut actions);
            return Ok((machine, actions));
        }
        let mut actions = Vec::new();
        if machine.step.is_idle() {
            machine.advance(&mut actions);
        } else {
            // Each task counts as busy until it has begun, so the step cannot end before the last of these
            // has begun.
            for index in machine.step.busy_tasks() {
                actions.extend(machine.continue_task(index));
            }
        }
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
        let Checkpoint { position, state } = checkpoint;
        let position = IndexedPosition::of(&graph, position)?;
        let mut machine = Self::at(graph, terms, run, position, state);
        for record in records {
            let index = machine.step.index(record.task);
            machine.step.recall(index.ok_or(RestoreError::Record(record.task))?, record, only);
        }
        Ok(machine)
    }

    fn at(
        graph: CompiledGraph,
        terms: Terms,
        run: RunId,
        position: IndexedPosition,
        state: State,
    ) -> Self {
        let Terms { limits, pauses, messages, is_unsaved, now } = terms;
        let step = OpenStep::after(&graph, &position);
        let inbox = Inbox::new(position.people.last_message, messages);
        let state = Arc::new(state);
        let workflow = graph.graph().name.as_str().into();
        let facts = Arc::new(RunFacts { workflow, ..RunFacts::default() });
        let mut machine = Self {
            graph,
            limits,
            pauses,
            run,
            position,
            state,
            step,
            inbox,
            is_unsaved,
            is_releasing: false,
            now,
            facts,
        };
        machine.prepare_step();
        machine
    }

    /// Notes the facts at the start of the step after the position, and the order of its items.
    fn prepare_step(&mut self) {
        self.note_facts();
        let mut maps: BTreeMap<NodeIndex, Vec<usize>> = BTreeMap::new();
        for (index, active) in self.position.frontier.iter().enumerate() {
            let items = self.policies(index).items.as_ref();
            if active.is_dispatched() && items.is_some_and(|it| it.order.is_some()) {
                maps.entry(active.node).or_default().push(index);
            }
        }
        for items in maps.into_values() {
            let needs = self.item_needs(&items);
            self.step.order_items(&items, needs);
        }
    }

    /// Returns the needs of the items of a map, whose tasks have these indexes.
    fn item_needs(&self, items: &[usize]) -> Result<ItemNeeds, Failure> {
        let first = items.first().copied().unwrap_or_default();
        let Some(order) = self.policies(first).items.as_ref().and_then(|it| it.order.as_ref())
        else {
            return Ok(ItemNeeds::default());
        };
        let values = items.iter().filter_map(|&it| self.position.frontier[it].input.item());
        let values: Vec<&Value> = values.collect();
        self.routing().needs(order.as_ref(), &values, &self.position.frontier[first].trigger)
    }

    /// Notes the facts at the start of the step after the position.
    fn note_facts(&mut self) {
        let (graph, used) = (self.graph.graph(), &self.position.used);
        let usage_of = |it: &NodeName| Some((it.clone(), used.node_usage.get(it)?.usage));
        let steps = self.limits.steps.saturating_sub(self.position.steps_of_turn());
        let tokens = self.limits.tokens.map(|it| it.saturating_sub(used.usage.total_tokens()));
        let cost = if used.usage.tokens.calls == 0 { Some(0.0) } else { used.usage.cost_usd };
        let usd = self.limits.usd.zip(cost).map(|(limit, cost)| (limit - cost).max(0.0));
        self.facts = Arc::new(RunFacts {
            run: Some(self.run.clone()),
            workflow: Arc::clone(&self.facts.workflow),
            // A run of an earlier version has no time.
            began: graph.facts.time.then(|| self.position.began.unwrap_or(self.now)),
            usage: used.usage,
            node_usage: graph.facts.usage_of.iter().filter_map(usage_of).collect(),
            remaining: Remaining { steps, tokens, usd },
            item_index: None,
        });
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
        self.now = event.time().map_or(self.now, |it| it.max(self.now));
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
    pub fn position(&self) -> Position {
        self.position.named(&self.graph)
    }

    /// Returns the number of committed steps.
    pub fn step(&self) -> Step {
        self.position.step
    }

    /// Returns the nodes of the next step, in task order.
    pub fn next_nodes(&self) -> Vec<NodeName> {
        let names = self.position.frontier.iter().map(|it| self.graph.at(it.node).0.clone());
        names.collect()
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
        self.index_of(task).map(|it| self.graph.at(it).0)
    }

    /// Returns a task of the current step as the driver gets it when the task runs.
    pub fn task(&self, task: TaskId) -> Option<Task> {
        self.step.index(task).map(|index| self.task_at(index))
    }

    /// Returns the index of the node of a task of the current step.
    pub fn index_of(&self, task: TaskId) -> Option<NodeIndex> {
        self.step.index(task).map(|index| self.position.frontier[index].node)
    }

    /// Returns the model usage of all turns so far, including tasks of the step that is not committed yet.
    pub fn usage(&self) -> Usage {
        let mut usage = self.position.earlier.usage;
        usage.add(&self.used().usage);
        usage
    }

    fn used(&self) -> Used {
        let mut used = Used::by(self.position.steps_of_turn(), &self.position.used);
        let of_step = self.step.usage();
        used.usage.add(&of_step.usage);
        used.elapsed_ms += of_step.ms;
        used
    }

    /// Returns how long a task of the step may still work before the run is out of time, if the time is
    /// limited.
    pub fn time_left(&self, task: TaskId) -> Option<Duration> {
        let mut used = Used::by(self.position.steps_of_turn(), &self.position.used);
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
                let (key, node) = (question.key.as_str(), self.name_at(index));
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

    /// Returns the first end of a wait and how long the wait may last at most, if every task with work left waits for
    /// its next attempt.
    pub fn next_wake(&self) -> Option<(Timestamp, u64)> {
        self.step.next_wake()
    }

    /// Suspends the run until the next wait ends.
    pub fn suspend(&self) -> RunStatus {
        let waits = self.step.tasks().iter().filter_map(|it| {
            let (wake, failure) = it.wait()?;
            Some((wake, format!("`{}` waits until {wake:.0}: {failure}", it.node())))
        });
        let waits: BTreeMap<Timestamp, String> = waits.collect();
        if let Some(reason) = self.step.failure() {
            return RunStatus { status: Status::Failed, reason: Some(reason) };
        }
        let reasons: Vec<String> = waits.into_values().take(1).chain(self.unanswered()).collect();
        RunStatus { status: Status::Paused, reason: Some(reasons.join("; ")) }
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
        self.commit(&mut actions);
        actions
    }

    /// Returns the original names of a task of the step if it began before a migration.
    fn original_task(&self, index: usize) -> Option<&OriginalTask> {
        self.position.original_tasks.get(&u32::try_from(index).ok()?)
    }

    fn run_task(&self, index: usize) -> Action {
        Action::Run(Box::new(self.task_at(index)))
    }

    fn task_at(&self, index: usize) -> Task {
        let Active { node, input, trigger } = self.position.frontier[index].clone();
        let task = &self.step.tasks()[index];
        Task {
            id: self.step.id(index),
            node: self.graph.at(node).0.clone(),
            node_index: node,
            original: self.original_task(index).cloned(),
            attempt: task.attempt,
            input,
            trigger,
            facts: self.facts_of(index),
            visits: Arc::clone(&self.position.visits),
            state: Arc::clone(&self.state),
            answers: task.answers.clone(),
            memos: task.memos.clone(),
        }
    }

    fn routing(&self) -> Routing<'_> {
        let (graph, state, facts) = (&self.graph, &self.state, &self.facts);
        Routing { graph, state, visits: self.visits(), facts }
    }

    /// Returns the facts for a task of the step.
    fn facts_of(&self, index: usize) -> Arc<RunFacts> {
        match self.step.tasks()[index].item.filter(|_| self.graph.graph().facts.item_index) {
            Some(item) => {
                Arc::new(RunFacts { item_index: Some(item), ..self.facts.as_ref().clone() })
            }
            None => Arc::clone(&self.facts),
        }
    }

    /// Returns whether a task of the step is not skipped.
    fn is_to_run(&self, index: usize) -> bool {
        let facts = self.facts_of(index);
        Routing { facts: &facts, ..self.routing() }.is_to_run(&self.position.frontier[index])
    }

    fn visits(&self) -> &Visits {
        &self.position.visits
    }

    fn policies(&self, index: usize) -> &Policies {
        &self.graph.at(self.position.frontier[index].node).1.policies
    }

    /// Returns the node of a task.
    fn name_at(&self, index: usize) -> &NodeName {
        self.graph.at(self.position.frontier[index].node).0
    }

    /// Reports each node of the frontier that has a name for this and is not skipped.
    fn emissions(&self) -> Vec<Action> {
        let frontier = self.position.frontier.iter().enumerate();
        let emission = |(index, active): (usize, &Active)| {
            let (node, spec) = self.graph.at(active.node);
            let name = spec.policies.emits.clone()?;
            let (node, from) = (node.clone(), active.trigger.node().cloned());
            let task = self.step.id(index);
            self.is_to_run(index).then(|| Action::Emit { task, node, from, name })
        };
        frontier.filter_map(emission).collect()
    }

    /// Stops before the next step if there is a breakpoint. `records` are those of the previous step.
    fn pause(&self, records: &[Arc<TaskRecord>]) -> Option<Vec<Action>> {
        if self.position.frontier.is_empty() || self.pauses.is_empty() {
            return None;
        }
        let ran = records
            .iter()
            .filter(|it| matches!(it.outcome, Outcome::Finished { .. } | Outcome::Caught { .. }));
        let next = self.position.frontier.iter().enumerate();
        let next = next.map(|(index, it)| (self.graph.at(it.node).0, index));
        let ran = ran.map(|it| &it.node);
        let reason = self.pauses.between(ran, next, |index| self.is_to_run(index))?;
        Some(vec![Action::stop(Status::Paused, Some(reason))])
    }

    /// Runs the frontier, or stops the run if the frontier is empty or a limit is reached.
    fn begin_step(&mut self, actions: &mut Vec<Action>) {
        if self.position.frontier.is_empty() {
            let failure = self.position.failure.clone();
            let status = if failure.is_some() { Status::Failed } else { Status::Done };
            let limit = || self.position.used.limit.clone();
            return actions.push(Action::stop(status, failure.or_else(limit)));
        }
        let nodes = self.position.frontier.iter().map(|it| it.node);
        let may_spend = || budget::may_spend(&self.graph, nodes);
        if let Some(reason) = self.used().reached(&self.limits, may_spend) {
            return actions.push(Action::stop(Status::Limit, Some(reason)));
        }
        actions.reserve(self.position.frontier.len());
        for index in 0..self.position.frontier.len() {
            self.begin(index, actions);
        }
    }

    /// Continues a task from its restored state.
    fn continue_task(&mut self, index: usize) -> Vec<Action> {
        match *self.step.tasks()[index].phase() {
            Phase::Running => {
                let mut actions = Vec::new();
                self.begin(index, &mut actions);
                actions
            }
            Phase::Sleeping { wake, wait_ms, .. } => {
                vec![Action::Sleep { task: self.step.id(index), wake, wait_ms }]
            }
            Phase::Blocked
            | Phase::Aborted
            | Phase::Waiting(_)
            | Phase::Failed(_)
            | Phase::Settled => Vec::new(),
        }
    }

    /// Runs a task of the step, or skips it if the condition of its node does not hold. If its node has finished
    /// and its route failed, only the decision is tried again.
    fn begin(&mut self, index: usize, actions: &mut Vec<Action>) {
        if let Some((update, goto)) = self.step.take_result(index) {
            return actions.extend(self.decide(index, update, goto));
        }
        if self.step.block(index) {
            return self.advance(actions);
        }
        if let Some((failure, need)) = self.step.failed_need(index) {
            // The first failed item decides for all of them, also for those that need it.
            let caught = need.and_then(|it| match &it.outcome {
                Outcome::Caught { for_all_items: true, transitions, .. } => Some(transitions),
                _ => None,
            });
            let Some(transitions) = caught.cloned() else {
                return actions.extend(self.fail(index, failure));
            };
            let (update, for_all_items) = (Update::default(), true);
            let caught = Outcome::Caught { failure, update, for_all_items, transitions };
            return actions.extend(self.settle(index, caught));
        }
        let facts = self.facts_of(index);
        let routing = Routing { facts: &facts, ..self.routing() };
        let active = &self.position.frontier[index];
        let condition = match routing.false_condition(active) {
            Ok(None) => return actions.push(self.run_task(index)),
            Ok(Some(condition)) => condition,
            Err(failure) => return actions.extend(self.fail(index, failure)),
        };
        actions.extend(match routing.transitions(active, &[]) {
            Ok(transitions) => self.settle(index, Outcome::Skipped { condition, transitions }),
            Err(failure) => self.fail_uncaught(index, failure),
        });
    }

    /// Handles the result of a node: checks it, evaluates the routes of the node and puts both into one
    /// record.
    fn finish(&mut self, index: usize, command: Command) -> Vec<Action> {
        let Command { mut update, goto } = command;
        update.clears.extend(self.policies(index).clears.iter().cloned());
        let (routing, active) = (self.routing(), &self.position.frontier[index]);
        let checked = routing
            .check_update(&update)
            .and_then(|()| routing.check_choice(active.node, &goto))
            .and_then(|()| self.step.add_result(&update, goto.chosen()));
        match checked {
            Ok(()) => self.decide(index, update, goto),
            Err(failure) => self.fail(index, failure),
        }
    }

    /// Decides where a finished node leads.
    ///
    /// A route that fails is no failure of its node: the result is kept, and no `catch` of the node applies.
    /// The routes are tried again when the run continues.
    fn decide(&mut self, index: usize, update: Update, goto: Goto) -> Vec<Action> {
        let (routing, active) = (self.routing(), &self.position.frontier[index]);
        let decided = routing.by_edges(active, &[&update], &goto).and_then(|transitions| {
            self.step.add_result(&Update::default(), &transitions)?;
            Ok(transitions)
        });
        match decided {
            Ok(mut transitions) => {
                transitions.extend(goto.into_chosen());
                self.settle(index, Outcome::Finished { update, transitions })
            }
            Err(failure) => {
                let record = self.step.leave_undecided(index, update, goto, failure);
                self.record_and_advance(record)
            }
        }
    }

    /// Handles a failed attempt: the node waits for its next attempt, or has failed.
    ///
    /// The end of the wait is saved, so that another process waits only for the rest of it.
    fn fail_attempt(&mut self, index: usize, failure: Failure, ended: Timestamp) -> Vec<Action> {
        let (task, state) = (self.step.id(index), &self.step.tasks()[index]);
        let (attempt, lasted) = (state.attempt, state.retried_for());
        let retry = self.policies(index).retry.for_failure(&failure);
        let is_last = attempt >= retry.attempts_after(&failure);
        if is_last || retry.is_over(&failure, lasted) {
            return self.fail(index, failure);
        }
        let seed = format!("{}/{task}/{attempt}", self.run);
        let wait_ms = backoff::wait_ms(retry, &seed, attempt, failure.retry_after_ms);
        let wake = backoff::after(ended, wait_ms);
        let record = self.step.retry(index, failure, wake, wait_ms);
        vec![record.into(), Action::Sleep { task, wake, wait_ms }]
    }

    /// Handles a node that failed for good: a route catches the failure, the map of the item collects it, or the
    /// task has failed.
    fn fail(&mut self, index: usize, failure: Failure) -> Vec<Action> {
        let (policies, active) = (self.policies(index), &self.position.frontier[index]);
        let items = policies.items.as_ref().filter(|_| active.is_dispatched());
        if let Some(catch) = policies.catch.iter().find(|it| it.takes(&failure)) {
            let (transitions, update) = (vec![Transition::To(catch.to.clone())], Update::default());
            let for_all_items = items.is_some();
            let caught = Outcome::Caught { failure, update, for_all_items, transitions };
            return self.settle(index, caught);
        }
        let failed = items.and_then(|it| it.failed.clone());
        match failed.filter(|_| failure.ends_its_task()) {
            Some(failed) => self.collect(index, failure, failed),
            None => self.fail_uncaught(index, failure),
        }
    }

    /// Records the failure of an item in a list of the state. The item counts as finished.
    fn collect(&mut self, index: usize, failure: Failure, failed: ChannelName) -> Vec<Action> {
        let (routing, active) = (self.routing(), &self.position.frontier[index]);
        let item = self.step.tasks()[index].item.unwrap_or_default();
        let ty = self.graph.schema().channel(failed.as_str()).map(Channel::ty);
        let node = self.graph.at(active.node).0;
        let record = failed_item(ty, item, (node, &active.input), &failure);
        let update = Update::default().write(failed, vec![record]);
        let decided = routing
            .check_update(&update)
            .and_then(|()| routing.transitions(active, &[&update]))
            .and_then(|transitions| {
                self.step.add_result(&update, &transitions)?;
                Ok(transitions)
            });
        match decided {
            Ok(transitions) => {
                let for_all_items = false;
                self.settle(index, Outcome::Caught { failure, update, for_all_items, transitions })
            }
            // The first failure is the cause.
            Err(_) => self.fail_uncaught(index, failure),
        }
    }

    /// Handles a failure that no route of the node catches.
    fn fail_uncaught(&mut self, index: usize, failure: Failure) -> Vec<Action> {
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

    /// Fails a task whose question was not answered in time. If a task of a nested run asked, that one fails, so the
    /// task runs again.
    fn expire(&mut self, index: usize) -> Vec<Action> {
        let task = &self.step.tasks()[index];
        let Some(deadline) = task.deadline() else { return Vec::new() };
        if task.question().is_some_and(|it| it.nested.is_some()) {
            self.step.run_again(index);
            return vec![self.run_task(index)];
        }
        let message = format!("no answer by {deadline:.0}");
        self.fail(index, Failure::new(ErrorKind::Timeout, message))
    }

    fn settle(&mut self, index: usize, outcome: Outcome) -> Vec<Action> {
        let record = self.step.settle(index, outcome);
        self.record_and_advance(record)
    }

    fn record_and_advance(&mut self, record: impl Into<Action>) -> Vec<Action> {
        // A step with one task: its record, the commit and the next task.
        let mut actions = Vec::with_capacity(3);
        actions.push(record.into());
        self.advance(&mut actions);
        actions
    }

    /// Continues after a task settled or suspended: commits the step, stops the run, or waits for the other
    /// tasks.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        if self.is_releasing {
            // The call that begins the waiting items continues after them.
            return;
        }
        self.is_releasing = true;
        while let Some(index) = self.step.next_ready() {
            self.begin(index, actions);
        }
        self.is_releasing = false;
        if self.step.is_complete() {
            self.commit(actions);
        } else if self.step.is_idle() {
            actions.push(self.stop_open());
        }
    }

    /// Stops a run whose step is still open: a task failed, or a person has to answer.
    fn stop_open(&self) -> Action {
        if let Some(reason) = self.step.failure() {
            return Action::stop(Status::Failed, Some(reason));
        }
        Action::stop(Status::Paused, self.unanswered())
    }

    fn unanswered(&self) -> Option<String> {
        let open = self.open_questions().into_iter().map(|it| it.question.key);
        let keys: Vec<String> = open.collect();
        (!keys.is_empty()).then(|| format!("waiting for an answer to {}", keys.join(", ")))
    }

    /// Folds the records of the step, in task order, into the next checkpoint.
    fn commit(&mut self, actions: &mut Vec<Action>) {
        let question_keys: Vec<String> = self.step.question_keys().cloned().collect();
        self.position.used.elapsed_ms += self.step.longest_ms();
        let records = self.step.take_records();
        let updates = records.iter().filter_map(|it| it.outcome.update());
        // Lists grow in place, since the finished tasks no longer share the state.
        let state = Arc::make_mut(&mut self.state);
        let changes = match self.graph.schema().fold(state, updates) {
            Ok(changes) => changes,
            Err(error) => {
                let reason = Failure::of(ErrorKind::Other, &error).message;
                return actions.push(Action::stop(Status::Failed, Some(reason)));
            }
        };
        let done = (&records[..], &*self.state);
        next_frontier(&self.graph, &self.limits, &mut self.position, done);
        self.position.people.question_keys.extend(question_keys);
        self.position.began = self.graph.graph().facts.time.then_some(self.now);
        self.step.reset(&self.graph, &self.position);
        self.prepare_step();

        actions.push(self.committed(changes));
        actions.extend(self.emissions());
        actions.extend(self.process_inbox());
        match self.pause(&records) {
            Some(stop) => actions.extend(stop),
            None => self.begin_step(actions),
        }
        self.step.recycle(records);
    }

    /// Returns the action that saves a step with these changes.
    fn committed(&self, changes: Vec<Change>) -> Action {
        if self.is_unsaved {
            return Action::StepEnded;
        }
        Action::Commit(Box::new(Commit { position: self.position.named(&self.graph), changes }))
    }

    /// Processes the waiting messages in a separate step without tasks, if the frontier has a node that can
    /// read them.
    fn process_inbox(&mut self) -> Vec<Action> {
        if self.inbox.is_empty() || self.position.frontier.is_empty() {
            return Vec::new();
        }
        let state = Arc::make_mut(&mut self.state);
        let Processed { messages, changes } = self.inbox.process(self.graph.schema(), state);
        self.position.people.last_message = self.inbox.last();
        self.position.people.pending_messages.clear();
        self.position.step = self.position.step.next();
        self.step.reset(&self.graph, &self.position);
        self.prepare_step();
        vec![Action::PublishMessages(messages), self.committed(changes)]
    }
}

/// Returns a position whose next tasks are the first nodes of the graph.
fn at_entry(graph: &CompiledGraph, position: Position) -> IndexedPosition {
    let mut position = IndexedPosition::of(graph, position).expect("the position names no node");
    for node in graph.graph().entry.iter().filter_map(|it| graph.index(it)) {
        position.visits_mut().set(node.index(), Some(1));
        position.frontier.push(Active::by_edge(node, Trigger::Start));
    }
    position.frontier.sort_by_key(|it| it.node);
    // A node that is named twice is activated once, like one with two incoming edges.
    position.frontier.dedup_by(|a, b| a.node == b.node);
    position
}

/// Returns the record of a failed item, with the fields that the list declares.
fn failed_item(
    list: Option<&Type>,
    index: u64,
    (node, input): (&NodeName, &Input),
    failure: &Failure,
) -> Value {
    let record = json!({
        "index": index,
        "item": input.item(),
        "node": node,
        "kind": failure.kind.as_str(),
        "message": failure.message,
    });
    let declared = match list {
        Some(Type::List(item)) => match item.as_ref() {
            Type::Record(record) => Some(record),
            _ => None,
        },
        _ => None,
    };
    let is_declared = |name: &str| {
        declared.is_none_or(|record| record.fields.iter().any(|field| field.name == name))
    };
    let fields = record.as_object().expect("it is an object").iter();
    fields
        .filter(|(name, _)| is_declared(name))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}
