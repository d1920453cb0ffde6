//! Nested runs: a task that runs another graph.
//!
//! A nested run is a separate run, with its own steps, state, visits and limits. Its journal consists of memos of the
//! task, so it is as durable as the outer run: after a crash or a retry, its finished tasks do not run again. It asks
//! people through the task, spends from the budget of the outer run, and reports what its tasks do as events of the
//! task. When the task has finished, only its result is left.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::Status,
    graph::{
        ErrorKind, Failure, GRANT_MEMO, NestedAsker, NestedGraphRef, NodeContext, NodeDescription,
        NodeError, NodeSpec, OuterNode, ProvidedValues, Question, Reporter, SavedValues,
        SideEffects, Timer, TimerEnd,
    },
    id::{NodeName, RunId},
    state::{State, Update},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Answers, Clock, Engine, RunEnd, RunError, ShutdownHandle, failures,
    journal_writer::JournalWriter,
    storage::{InMemoryStorage, SavedNestedRun, TaskJournal},
    stream::{OuterReporter, StreamSender},
};
use crate::checkpoint::{
    CheckpointError, Entry, GraphOutline, OpenQuestion, Outcome, RunInfo, RunJournal, SavedRun,
    full_name, next_due, next_wake,
};

/// A graph that runs as a part of a task.
#[derive(Clone, Debug)]
pub struct NestedGraph {
    graph: CompiledGraph,
    /// The outline of the graph, once a nested run has needed it.
    outline: Arc<OnceLock<Arc<GraphOutline>>>,
    calls_max: Option<u64>,
    side_effects: SideEffects,
    /// The levels of graphs, with this one.
    levels: usize,
}

impl NestedGraph {
    /// Prepares a graph.
    pub fn new(graph: CompiledGraph) -> Self {
        let nodes = graph.definition().nodes.values();
        let nodes: Vec<&NodeDescription> = nodes.map(NodeSpec::describe).collect();
        let all: Vec<SideEffects> = nodes.iter().map(|it| it.side_effects).collect();
        let within = nodes.iter().map(|it| it.nested_levels).max().unwrap_or(0);
        let mut ranked = [SideEffects::World, SideEffects::Models].into_iter();
        let side_effects = ranked.find(|it| all.contains(it)).unwrap_or(SideEffects::Nothing);
        let calls_max = graph.calls_max();
        Self { outline: Arc::default(), calls_max, side_effects, levels: within + 1, graph }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &CompiledGraph {
        &self.graph
    }

    /// Adds what its nodes do to the description of the node that runs it.
    pub fn describe(&self, node: NodeDescription) -> NodeDescription {
        let Self { calls_max, side_effects, levels: nested_levels, .. } = *self;
        let nested = Some(NestedGraphRef::new(self.graph.clone()));
        NodeDescription { calls_max, side_effects, nested_levels, nested, ..node }
    }

    /// Runs the graph until it is done, and returns its state without private fields. When the task runs again, it
    /// continues where it was.
    ///
    /// # Errors
    ///
    /// Returns the failure of the first failed task of the graph, or its question. Fails if a route leads the graph to
    /// `fail`, if it reaches a limit of its graph, and if the input does not fit.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the finished tasks of the graph are kept.
    pub async fn run(&self, ctx: &NodeContext, input: Update) -> Result<State, NodeError> {
        let (mut journal, mut saved) = TaskJournal::find(ctx)?;
        if saved.as_ref().is_some_and(|it| is_failed_for_good(&it.entries)) {
            (journal, saved) = (journal.next_run(), None);
        }
        let is_begun = saved.is_some();
        let number = journal.number();
        let run = nested_id(ctx, number);
        let storage =
            InMemoryStorage::of_task(journal, saved).map_err(|it| node_error(&it.into()))?;
        let nested = NestedRun { ctx, run, number, storage: Arc::new(storage) };
        nested.drive(self, input, is_begun).await
    }
}

/// The attempt whose nested run an engine drives.
#[derive(Clone, Debug)]
pub(super) struct OuterAttempt {
    /// Reports what the tasks of the nested run do.
    pub(super) reporter: Reporter,
    /// The node of the attempt.
    pub(super) node: NodeName,
    /// What people have allowed for the rest of the outer run, as memos.
    pub(super) grants: SavedValues,
    /// The stream of the outer run, if it has the updates of tasks.
    pub(super) stream: Option<StreamSender>,
    /// The longest wait for which the outermost run keeps its process.
    pub(super) wait_max: Option<Duration>,
}

impl OuterAttempt {
    /// Returns what reports to the attempt.
    pub(super) fn outer_reporter(&self) -> OuterReporter {
        OuterReporter { reporter: self.reporter.clone(), node: self.node.clone() }
    }

    /// Adds the grants of the outer run to the memos of a task.
    pub(super) fn add_grants(&self, memos: &mut SavedValues) {
        for name in self.grants.names() {
            memos.insert(name.to_owned(), Value::Bool(true));
        }
    }
}

/// What nested runs take over from their outer run, besides the context of their task.
#[derive(Clone, Debug)]
struct OuterSettings {
    /// The longest wait for which the outermost run keeps its process.
    wait_max: Option<Duration>,
    grace: Duration,
    stream: Option<StreamSender>,
    /// The handle of the outer run.
    shutdown: ShutdownHandle,
}

/// Returns the values that the nodes of a run are provided with, and what its nested runs take over.
pub(super) fn provided(
    engine: &Engine,
    journal: &JournalWriter,
    shutdown: &ShutdownHandle,
) -> ProvidedValues {
    let mut provided = engine.provided.clone();
    if engine.graph.has_nested_runs() {
        let stream = journal.updates_stream().cloned();
        provided.insert(OuterSettings {
            wait_max: engine.outer.as_ref().map_or(engine.wait_max, |it| it.wait_max),
            grace: engine.grace,
            stream,
            shutdown: shutdown.clone(),
        });
    }
    provided
}

/// Returns whether a route ended the run as failed, so that it has nothing to continue.
fn is_failed_for_good(entries: &[Entry]) -> bool {
    let status = entries.iter().rev().find_map(|it| it.run_status.as_ref());
    let commit = entries.iter().rev().find_map(|it| it.commit.as_ref());
    status.is_some_and(|it| it.status == Status::Failed)
        && commit.is_none_or(|it| it.position.frontier.is_empty())
}

/// Returns the nested run that a task with these memos continues, if there is one.
pub(super) fn begun_run(memos: &SavedValues) -> Result<Option<SavedRun>, CheckpointError> {
    let (_, saved) = SavedNestedRun::find(memos).map_err(|error| CheckpointError::Storage {
        action: "read the nested run".to_owned(),
        source: error.into(),
    })?;
    let continued = saved.filter(|it| !is_failed_for_good(&it.entries));
    continued.map(SavedNestedRun::load).transpose()
}

struct NestedRun<'a> {
    ctx: &'a NodeContext,
    run: RunId,
    /// The number of the run among those of the task.
    number: u64,
    storage: Arc<InMemoryStorage>,
}

impl NestedRun<'_> {
    async fn drive(
        &self,
        nested: &NestedGraph,
        input: Update,
        is_begun: bool,
    ) -> Result<State, NodeError> {
        let inherited = self.ctx.provided.get::<OuterSettings>();
        let engine = self.engine(nested, inherited.as_deref());
        let wait_max = inherited.as_ref().and_then(|it| it.wait_max);
        // Dropping the task stops a nested run at once. A drain lets its running nodes finish, too.
        let shutdown = inherited.map_or_else(ShutdownHandle::default, |it| it.shutdown.clone());
        let mut end = if is_begun {
            let saved = self.saved().await?;
            if saved.summary.status == Status::Done {
                let state = nested.graph.schema().restore(saved.values)?;
                return Ok(state.public());
            }
            let answers = self.new_answers(&saved);
            engine.resume(&self.run).with_answers(answers).with_shutdown(&shutdown).await
        } else {
            let info =
                RunInfo { id: self.run.clone(), name: self.run.to_string(), ..engine.new_info() };
            engine.run(input).with_info(info).with_shutdown(&shutdown).await
        };
        loop {
            let stopped = end.map_err(|it| node_error(&it))?;
            if stopped.status != Status::Paused || stopped.questions.is_empty() {
                return self.outcome(stopped).await;
            }
            let is_answered = |it: &&OpenQuestion| self.answer_to(&it.name).is_some();
            let Some(open) = stopped.questions.iter().find(is_answered) else {
                return Err(self.suspended(stopped, wait_max, engine.clock.now()).await?);
            };
            let answer: Value = self.ctx.ask(self.question(open, None))?;
            let resumed = engine.resume(&self.run).answer(&open.name, answer);
            end = resumed.with_shutdown(&shutdown).await;
        }
    }

    fn engine(&self, nested: &NestedGraph, inherited: Option<&OuterSettings>) -> Engine {
        let NestedGraph { graph, outline, .. } = nested;
        let mut engine = Engine::new(graph.clone()).with_storage(Arc::clone(&self.storage) as _);
        engine.outline = Arc::clone(outline);
        if let Some(clock) = self.ctx.provided.get::<Clock>() {
            engine.clock = Clock::clone(&clock);
        }
        // The task runs again when a wait of the nested run is over, which may be a little before the clock says so.
        let (clock, began) = (engine.clock.clone(), self.ctx.began);
        engine.clock = Clock::new(move || clock.now().max(began));
        engine.provided = self.ctx.provided.clone();
        engine.provided.insert(OuterNode(self.ctx.full_name()));
        let NodeContext { reporter, node, task, .. } = self.ctx;
        // The outer run waits: a wait inside the attempt would be work, and would count towards its limits of time.
        engine.wait_max = Some(Duration::ZERO);
        engine.grace = inherited.map_or(engine.grace, |it| it.grace);
        let stream =
            inherited.and_then(|it| Some(it.stream.as_ref()?.of_nested_run(*task, node, graph)));
        let mut grants = self.ctx.memos.clone();
        grants.retain(|name| name.starts_with(GRANT_MEMO));
        let reporter = reporter.clone();
        let node = node.clone();
        let wait_max = inherited.and_then(|it| it.wait_max);
        engine.outer = Some(OuterAttempt { reporter, node, grants, stream, wait_max });
        engine
    }

    async fn saved(&self) -> Result<SavedRun, NodeError> {
        self.storage.load(&self.run).await.map_err(|it| node_error(&it.into()))
    }

    /// Returns the answers that replace those of failed tasks.
    fn new_answers(&self, saved: &SavedRun) -> Answers {
        let SavedRun { position, records, .. } = saved;
        let mut by_name = BTreeMap::new();
        for record in records {
            if let Outcome::Answered { key, answer, .. } = &record.outcome {
                let full_name = full_name(key, position.original_task(record.task));
                // The task got the answer by the name that the question had: its key, unless that was in use.
                let by_key = || {
                    let is_known = position.people.question_keys.contains(key);
                    self.answer_to(key).filter(|_| !is_known)
                };
                let given = self.answer_to(&full_name).or_else(by_key);
                match given.filter(|it| *it != answer) {
                    Some(given) => drop(by_name.insert(full_name, given.clone())),
                    None => drop(by_name.remove(&full_name)),
                }
            }
        }
        Answers { by_name, by: None }
    }

    /// Returns the end of an attempt whose nested run waits for people, and maybe for a time.
    async fn suspended(
        &self,
        stopped: RunEnd,
        wait_max: Option<Duration>,
        now: Timestamp,
    ) -> Result<NodeError, NodeError> {
        let records = self.saved().await?.records;
        let due = next_due(&records);
        let is_short = |wake: &Timestamp| {
            let left = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            wait_max.is_none_or(|max| left <= max)
        };
        // A process that stays for a wait does so here, too. It asks when none is left.
        if let Some(due) = due.filter(|_| next_wake(&records).as_ref().is_some_and(is_short)) {
            return Ok(wait(TimerEnd::At(due), stopped.reason.unwrap_or_default()));
        }
        let urgency = |it: &&OpenQuestion| it.question.deadline.unwrap_or(Timestamp::MAX);
        match stopped.questions.iter().min_by_key(urgency) {
            Some(first) => Ok(NodeError::Ask(Box::new(self.question(first, due)))),
            None => Ok(stopped_failure(&stopped.reason.unwrap_or_default()).into()),
        }
    }

    /// Returns a question of the nested run as one of the task.
    fn question(&self, open: &OpenQuestion, due: Option<Timestamp>) -> Question {
        let nested = match &open.question.nested {
            Some(NestedAsker { run, task, node, .. }) => {
                let node = node.within(&self.ctx.node);
                NestedAsker { run: run.clone(), task: *task, node, due }
            }
            None => NestedAsker {
                run: self.run.clone(),
                task: open.task,
                node: open.node.within(&self.ctx.node),
                due,
            },
        };
        let key = question_key(&open.name, self.number);
        Question { key, nested: Some(nested), ..open.question.clone() }
    }

    /// Returns the answer that the task has to a question of the nested run.
    fn answer_to(&self, name: &str) -> Option<&Value> {
        self.ctx.answers.get(&question_key(name, self.number))
    }

    async fn outcome(&self, end: RunEnd) -> Result<State, NodeError> {
        let reason = end.reason.unwrap_or_else(|| end.status.as_str().to_owned());
        match end.status {
            Status::Done => Ok(end.state),
            Status::Failed => {
                let failed = failures(&self.saved().await?.records).into_iter().next();
                let Some((node, failure)) = failed else {
                    return Err(NodeError::permanent(reason));
                };
                let message = format!("`{node}`: {}", failure.message);
                Err(Failure { message, is_nested: true, is_unsent: false, ..failure }.into())
            }
            Status::Limit => {
                let what = format!("its workflow reached a limit: {reason}");
                let failure = Failure::new(ErrorKind::Limit, what);
                Err(Failure { is_nested: true, ..failure }.into())
            }
            Status::Paused => match next_due(&self.saved().await?.records) {
                Some(due) => Err(wait(TimerEnd::At(due), reason)),
                None => Err(stopped_failure(&reason).into()),
            },
            // The outer run stops, too. When it continues, so does the task.
            Status::Interrupted => Err(wait(TimerEnd::After(Duration::ZERO), reason)),
            Status::Running => Err(stopped_failure(&reason).into()),
        }
    }
}

/// Returns the key, within the task, of a question with this name of one of its nested runs. An answer to a question of an
/// earlier run must not reach that of a later one, so the key has the number of the run. The first run adds none, unless the
/// name has a `~`: otherwise it might be the key of a later run.
fn question_key(name: &str, number: u64) -> String {
    if number > 0 || name.contains('~') { format!("{name}~{number}") } else { name.to_owned() }
}

/// Returns the wait of a task for its nested run. The task finds the end of the wait in the nested run, and not by the key.
fn wait(end: TimerEnd, reason: String) -> NodeError {
    let key = "nested run".to_owned();
    NodeError::Wait(Box::new(Timer { key, end, reason: Some(reason) }))
}

fn stopped_failure(reason: &str) -> Failure {
    let what = format!("its workflow stopped: {reason}");
    Failure { transient: true, ..Failure::new(ErrorKind::Other, what) }
}

/// Returns the id of a nested run of a task, which its idempotency keys begin with. Each run of the task has its own:
/// what the first one did, the next one does again.
fn nested_id(ctx: &NodeContext, number: u64) -> RunId {
    let task = ctx.original.as_ref().map_or(ctx.task, |it| it.task);
    let mut id = format!("{}-{}-{}", ctx.run, task.step, task.index);
    if number > 0 {
        // No task has step 0, so this is not the id of a run within the first one.
        id = format!("{id}-0-{number}");
    }
    // A run within several others has a long id.
    RunId::parse(&id).unwrap_or_else(|_| {
        let hash = blake3::hash(id.as_bytes()).to_hex();
        RunId::parse(&hash[..32]).expect("it has 32 hexadecimal digits")
    })
}

fn node_error(error: &RunError) -> NodeError {
    let failure = Failure::of(ErrorKind::Other, error);
    // The attempt of the outer task has ended before the entry was saved, so the task can be tried again.
    let transient = matches!(error, RunError::Checkpoint(CheckpointError::Storage { .. }));
    Failure { transient, ..failure }.into()
}
