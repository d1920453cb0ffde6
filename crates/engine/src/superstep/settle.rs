//! Handles the events of one task: its record, its retries, and its transitions.

use graphrun_core::{
    graph::{
        Backoff, Command, Condition, Edge, ErrorKind, Failure, Goto, Input, Question, Route,
        RouteError, RouteView, Spread, Target, Transition,
    },
    id::{ChannelName, NodeName, TaskId},
    state::{ReduceError, StateError, Update, contained},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Action, Attempt, Machine, Phase, TaskState, TaskUsage, room::check_question};
use crate::checkpoint::{Activation, EntryHash, Outcome, TaskRecord};

impl Machine {
    /// Handles the result of a node: checks its update, evaluates its routes and puts both into one record.
    pub(super) fn finish(&mut self, index: usize, command: Command) -> Vec<Action> {
        let Activation { node, input, .. } = self.position.frontier[index].clone();
        let Command { mut update, goto } = command;
        update.clears.extend(self.policies(&node).clears.iter().cloned());
        let decided = self
            .graph
            .schema()
            .check(&update)
            .and_then(|()| self.try_fold(&update))
            .map_err(|error| refusal(&error))
            .and_then(|()| self.decide((&node, &input), &update, goto))
            .and_then(|transitions| Ok((self.size_of_result(&update, &transitions)?, transitions)));
        match decided {
            Ok((size, transitions)) => {
                self.written = self.written.saturating_add(size);
                self.settle(index, Outcome::Finished { update, transitions })
            }
            Err(failure) => self.fail(index, failure),
        }
    }

    /// Handles a failed attempt: the node waits for its next attempt, or has failed.
    ///
    /// The end of the wait is saved, so that another process waits only for the rest of it.
    pub(super) fn fail_attempt(
        &mut self,
        index: usize,
        failure: Failure,
        ended: Timestamp,
    ) -> Vec<Action> {
        let node = self.position.frontier[index].node.clone();
        let (task, attempt) = (self.id(index), self.tasks[index].attempt);
        let retry = &self.policies(&node).retry;
        if !failure.transient || attempt >= retry.attempts_max {
            return self.fail(index, failure);
        }
        let wait_ms = self.wait_ms(retry, task, attempt, failure.retry_after_ms);
        let wake = after(ended, wait_ms);
        let outcome = Outcome::Retrying { failure, wait_ms, wake };
        let record = record(task, node, &self.tasks[index], outcome);
        self.tasks[index].attempt += 1;
        self.set_phase(index, Phase::Sleeping { wake, wait_ms });
        vec![Action::Record(Box::new(record)), Action::Sleep { task, wake, wait_ms }]
    }

    /// Handles a node that failed for good: a route catches the failure, or the task has failed.
    pub(super) fn fail(&mut self, index: usize, failure: Failure) -> Vec<Action> {
        let node = self.position.frontier[index].node.clone();
        let task = self.id(index);
        let policies = self.policies(&node);
        let catch = policies.catch.iter().find(|it| it.takes(failure.kind));
        if let Some(catch) = catch {
            let transitions = vec![Transition::To(catch.to.clone())];
            return self.settle(index, Outcome::Caught { failure, transitions });
        }
        self.set_phase(index, failed(&node, &failure));
        let record = record(task, node, &self.tasks[index], Outcome::Failed { failure });
        self.then_go_on(record)
    }

    /// Saves a memo: the result of a part of a node's work, which later attempts can read.
    pub(super) fn note(
        &mut self,
        index: usize,
        until_now: &Attempt,
        name: String,
        value: Value,
    ) -> Vec<Action> {
        let (task, node) = (self.id(index), self.position.frontier[index].node.clone());
        let state = &mut self.tasks[index];
        state.memos.insert(name.clone(), value.clone());
        let record = record(task, node, state, Outcome::MemoSaved { name, value });
        // The attempt's usage is added when it ends. If it never ends, the usage known by now is recorded.
        let mut total = state.total;
        total.add(until_now);
        let TaskUsage { ms, usage } = total;
        vec![Action::Record(Box::new(TaskRecord { ms, usage, ..record }))]
    }

    /// Handles a question to a person: the task waits.
    pub(super) fn wait_for(&mut self, index: usize, question: Question) -> Vec<Action> {
        if let Err(failure) = check_question(&question) {
            return self.fail(index, failure);
        }
        let (task, node) = (self.id(index), self.position.frontier[index].node.clone());
        self.set_phase(index, Phase::Waiting(Box::new(question.clone())));
        self.tasks[index].question_keys.push(question.key.clone());
        let record = record(task, node, &self.tasks[index], Outcome::Asked { question });
        self.then_go_on(record)
    }

    /// Handles an answer: the node runs again and can read it.
    pub(super) fn answer(
        &mut self,
        index: usize,
        answer: Value,
        by: Option<String>,
        question_hash: Option<EntryHash>,
    ) -> Vec<Action> {
        let (task, node) = (self.id(index), self.position.frontier[index].node.clone());
        let Phase::Waiting(question) = &self.tasks[index].phase else {
            return Vec::new();
        };
        let key = question.key.clone();
        self.set_phase(index, Phase::Running);
        let state = &mut self.tasks[index];
        state.answers.insert(key.clone(), answer.clone());
        let record =
            record(task, node, state, Outcome::Answered { key, answer, by, question_hash });
        vec![Action::Record(Box::new(record)), Action::Run(Box::new(self.task(index)))]
    }

    /// Fails a task whose question was not answered in time.
    pub(super) fn expire(&mut self, index: usize) -> Vec<Action> {
        let Some(deadline) = self.tasks[index].deadline() else { return Vec::new() };
        let message = format!("no answer by {deadline:.0}");
        self.fail(index, Failure::new(ErrorKind::Timeout, message))
    }

    /// Runs a task of the step, or skips it if the condition of its node does not hold.
    pub(super) fn begin(&mut self, index: usize) -> Vec<Action> {
        let Activation { node, input, .. } = &self.position.frontier[index];
        let spec = self.graph.node(node).expect("a frontier names only nodes of the graph");
        let Some(when) = spec.when.clone() else {
            return vec![Action::Run(Box::new(self.task(index)))];
        };
        let view = RouteView { state: &self.state, visits: &self.visits, input };
        let skipped = match holds(when.as_ref(), &view) {
            Ok(true) => return vec![Action::Run(Box::new(self.task(index)))],
            Ok(false) => self.decide((node, input), &Update::default(), Goto::Edges),
            Err(error) => Err(indecision(&error)),
        };
        match skipped {
            Ok(transitions) => {
                let condition = when.text().to_owned();
                self.settle(index, Outcome::Skipped { condition, transitions })
            }
            Err(failure) => self.fail(index, failure),
        }
    }

    fn settle(&mut self, index: usize, outcome: Outcome) -> Vec<Action> {
        let (task, node) = (self.id(index), self.position.frontier[index].node.clone());
        self.set_phase(index, Phase::Settled);
        let state = &mut self.tasks[index];
        let record = record(task, node, state, outcome);
        state.record = Some(Box::new(record.clone()));
        self.then_go_on(record)
    }

    fn then_go_on(&mut self, record: TaskRecord) -> Vec<Action> {
        let mut actions = vec![Action::Record(Box::new(record))];
        actions.extend(self.advance());
        actions
    }

    /// Folds the updates that a reducer may refuse, and checks the size of the state for the rest. A refusal
    /// here is a failure of this node, which can be caught or retried. A refusal at the commit of the step
    /// would leave a run that can never continue.
    fn try_fold(&self, update: &Update) -> Result<(), StateError> {
        let schema = self.graph.schema();
        let may_refuse = |name: &ChannelName| {
            schema.channel(name.as_str()).is_some_and(|it| it.reducer().may_refuse())
        };
        let own = update.limited_to(may_refuse);
        let folded = schema.apply(self.state.as_ref().clone(), [&own]);
        let (state, _) = folded.map_err(|refused| refused.error)?;
        schema.check_room(&state, update, |it| !may_refuse(it))
    }

    /// Returns where a finished task leads, by its edges and by its own choice.
    pub(super) fn decide(
        &self,
        (node, input): (&NodeName, &Input),
        update: &Update,
        goto: Goto,
    ) -> Result<Vec<Transition>, Failure> {
        let (by_edges, chosen) = match goto {
            Goto::Edges => (true, Vec::new()),
            Goto::Also(chosen) => (true, chosen),
            Goto::Instead(chosen) => (false, chosen),
        };
        let mut transitions = Vec::new();
        let mut may: Vec<Target> = Vec::new();
        for edge in self.graph.leaving(node) {
            match edge {
                Edge::May { to, .. } => may.extend(to.iter().cloned()),
                _ if !by_edges => (),
                Edge::Then { to, .. } => transitions.push(Transition::To(to.clone())),
                Edge::Join { to, .. } if self.graph.arrives_by_route(node, to) => (),
                Edge::Join { to, .. } => transitions.push(Transition::Join(to.clone())),
                Edge::Route { route, .. } => {
                    let decided = self.ask_route(route.as_ref(), input, update);
                    let decided = decided.map_err(|it| indecision(&it))?;
                    transitions.extend(decided.into_iter().map(|it| self.arriving(node, it)));
                }
            }
        }
        if !by_edges && chosen.is_empty() && !may.contains(&Target::End) {
            let message = format!(
                "`{node}` chose to end its branch, which is not declared with `may_go` to `end`"
            );
            return Err(Failure::new(ErrorKind::Other, message));
        }
        // Only edges lead to a join, so that it waits for each of its nodes.
        let is_declared =
            |it: &&Transition| !matches!(it, Transition::Join(_)) && may.contains(&it.target());
        if let Some(transition) = chosen.iter().find(|it| !is_declared(it)) {
            let message = format!(
                "`{node}` chose to go to `{}`, which is not declared with `may_go`",
                transition.target()
            );
            return Err(Failure::new(ErrorKind::Other, message));
        }
        transitions.extend(chosen);
        Ok(transitions)
    }

    /// Turns a transition to a join that waits for this node into an arrival.
    fn arriving(&self, node: &NodeName, transition: Transition) -> Transition {
        match transition {
            Transition::To(Target::Node(to)) if self.graph.arrives_by_route(node, &to) => {
                Transition::Join(to)
            }
            other => other,
        }
    }

    /// A route reads the state of the step with the update of the finished task, never with those of
    /// siblings.
    fn ask_route(
        &self,
        route: &dyn Route,
        input: &Input,
        update: &Update,
    ) -> Result<Vec<Transition>, RouteError> {
        let own = update.limited_to(|it| route.reads().is_none_or(|reads| reads.contains(it)));
        let visits = &self.visits;
        if own.is_empty() {
            let view = RouteView { state: &self.state, visits, input };
            return decision(route, &view);
        }
        let (state, _) = self
            .graph
            .schema()
            .apply(self.state.as_ref().clone(), [&own])
            .map_err(|refused| RouteError::State(refused.error))?;
        decision(route, &RouteView { state: &state, visits, input })
    }

    /// Returns the wait before the next attempt. A hash provides the jitter, so that the rules stay pure and
    /// many runs do not retry at the same moment.
    fn wait_ms(
        &self,
        retry: &Backoff,
        task: TaskId,
        attempt: u32,
        retry_after_ms: Option<u64>,
    ) -> u64 {
        let doubled = retry.initial.saturating_mul(1 << (attempt - 1).min(16)).min(retry.max);
        let whole = u64::try_from(doubled.as_millis()).unwrap_or(u64::MAX);
        let hash = blake3::hash(format!("{}/{task}/{attempt}", self.run).as_bytes());
        let drawn = hash.as_bytes().iter().take(2).fold(0, |sum, &it| sum << 8 | u64::from(it));
        let jittered = whole / 2 + (whole / 2).saturating_mul(drawn) / u64::from(u16::MAX);
        // A provider may request any wait; the workflow's `max` is the longest wait of a task.
        let max = u64::try_from(retry.max.as_millis()).unwrap_or(u64::MAX);
        jittered.max(retry_after_ms.unwrap_or(0).min(max))
    }

    pub(super) fn policies(&self, node: &NodeName) -> &graphrun_core::graph::Policies {
        let spec = self.graph.node(node);
        &spec.expect("a frontier names only nodes of the graph").policies
    }
}

pub(super) fn failed(node: &NodeName, failure: &Failure) -> Phase {
    Phase::Failed(format!("`{node}` failed: {}", failure.message))
}

/// Returns the later moment, or the last representable one.
fn after(moment: Timestamp, ms: u64) -> Timestamp {
    let wait = SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    moment.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Evaluates the condition of a node.
pub(super) fn holds(condition: &dyn Condition, view: &RouteView<'_>) -> Result<bool, RouteError> {
    contained(|| condition.holds(view))
        .unwrap_or_else(|message| Err(RouteError::Panicked { what: "condition", message }))
}

fn decision(route: &dyn Route, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
    contained(|| as_declared(route, route.decide(view)?))
        .unwrap_or_else(|message| Err(RouteError::Panicked { what: "route", message }))
}

/// Returns the failure of a node whose route or condition could not be evaluated.
fn indecision(error: &RouteError) -> Failure {
    let kind = match error {
        RouteError::Panicked { .. } => ErrorKind::Panic,
        RouteError::State(source) => refusal(source).kind,
        _ => ErrorKind::Other,
    };
    Failure::of(kind, error)
}

/// Returns the failure of a node whose update the state refused.
fn refusal(error: &StateError) -> Failure {
    let kind = match error {
        StateError::Reduce { source: ReduceError::Panicked { .. }, .. } => ErrorKind::Panic,
        _ => ErrorKind::Other,
    };
    Failure::of(kind, error)
}

/// Checks that the targets are declared: checks, drawings and the worst case rely on the declaration.
fn as_declared(
    route: &dyn Route,
    transitions: Vec<Transition>,
) -> Result<Vec<Transition>, RouteError> {
    let spread = route.spread();
    let fits = |(at, transition): &(usize, &Transition)| {
        let has_room = match transition {
            Transition::To(_) => spread != Spread::One || *at == 0,
            Transition::Dispatch(_) => spread == Spread::Items,
            Transition::Join(_) => false,
        };
        has_room && route.ways().iter().any(|it| it.to == transition.target())
    };
    match transitions.iter().enumerate().find(|it| !fits(it)) {
        Some((_, transition)) => Err(RouteError::Undeclared(transition.target().to_string())),
        None => Ok(transitions),
    }
}

pub(super) fn record(
    task: TaskId,
    node: NodeName,
    state: &TaskState,
    outcome: Outcome,
) -> TaskRecord {
    let TaskUsage { ms, usage } = state.total;
    TaskRecord { task, node, attempt: state.attempt, ms, usage, outcome }
}
