//! Continues a saved run from its position, or retries its failed tasks.

use std::sync::Arc;

use graphrun_core::{
    event::{Event, Status},
    fault::{self, Point},
    id::{NodeName, RunId},
};
use tracing::{Instrument, debug_span};

use super::{
    Answers, Engine, RunError,
    accept::AcceptedRun,
    answers::{match_answers, replace_answers},
    check_retry,
    compare::{Comparison, compare, suggest},
    journal_writer::JournalWriter,
    lease::Lease,
    log::Log,
    machine::{self, Action, Machine, RunSettings},
    spans,
    stream::Sinks,
};
use crate::checkpoint::{
    Checkpoint, CheckpointError, InboxMessage, RunStatus, SavedRun, TaskRecord,
};

/// A saved run that is ready to continue.
pub(super) struct Resumption {
    machine: Machine,
    actions: Vec<Action>,
    last_seq: u64,
    /// New answers to questions of failed tasks, to be saved.
    replaced: Vec<TaskRecord>,
    /// The changes of its workflow, as text.
    changes: Vec<String>,
    /// The trace of its first process.
    first_trace: Option<String>,
}

impl Resumption {
    /// Loads a run that continues with the answers to its questions.
    pub(super) async fn load_with_answers(
        engine: &Engine,
        run: &RunId,
        mut answers: Answers,
    ) -> Result<Self, RunError> {
        fault::hit(Point::AcquireAfter).map_err(CheckpointError::injected)?;
        let span = debug_span!("storage", operation = "load");
        let mut saved = engine.checkpointer.load(run).instrument(span).await?;
        let last_seq = saved.last_seq;
        // A process may have died after the last step, before the final status was saved.
        if saved.position.frontier.is_empty() && saved.summary.status != Status::Running {
            match_answers(engine, run, &[], answers).await?;
            return Err(RunError::AlreadyEnded(saved.summary.status));
        }
        let messages = new_messages(engine, &saved).await?;
        let changes = changes_since(engine, &saved, &messages)?;
        let messages =
            if engine.graph.definition().inbox.is_empty() { Vec::new() } else { messages };
        let replaced = replace_answers(engine, &saved, &mut answers).await?;
        saved.records.extend(replaced.iter().cloned());
        let settings = RunSettings { messages, ..engine.run_settings() };
        let first_trace = saved.summary.info.trace.clone();
        let (mut machine, mut actions) = restore(engine, saved, settings)?;
        let open = machine.open_questions();
        let answered = match_answers(engine, run, &open, answers).await?;
        let late = machine.expired(engine.clock.now()).into_iter();
        for event in
            answered.into_iter().chain(late.map(|task| machine::TaskEvent::Expired { task }))
        {
            // The machine wanted to stop because these answers were missing.
            actions.retain(|it| !matches!(it, Action::Stop(_)));
            actions.extend(machine.apply(event));
        }
        Ok(Self { machine, actions, last_seq, replaced, changes, first_trace })
    }

    /// Loads a run that retries its failed tasks: all of them, or those of one node.
    pub(super) async fn load_for_retry(
        engine: &Engine,
        run: &RunId,
        node: Option<&NodeName>,
    ) -> Result<Self, RunError> {
        let saved = engine.checkpointer.load(run).await?;
        check_retry(&saved, node)?;
        let last_seq = saved.last_seq;
        let changes = changes_since(engine, &saved, &new_messages(engine, &saved).await?)?;
        let settings = RunSettings { retry_only: node.cloned(), ..engine.run_settings() };
        let first_trace = saved.summary.info.trace.clone();
        let (machine, actions) = restore(engine, saved, settings)?;
        Ok(Self { machine, actions, last_seq, replaced: Vec::new(), changes, first_trace })
    }

    /// Saves that the run continues.
    pub(super) async fn save(
        self,
        engine: &Engine,
        lease: Lease,
        sinks: Sinks,
    ) -> Result<AcceptedRun, RunError> {
        let Self { machine, actions, last_seq, replaced, changes, first_trace } = self;
        let span = spans::run(&machine, sinks.span, first_trace.as_deref());
        let log = Log::after(last_seq, machine.run().clone(), sinks, engine.clock.clone());
        let mut journal = JournalWriter::new(engine, lease, log);
        let running = RunStatus { status: Status::Running, reason: None };
        journal.add_status(running, Event::RunResumed { step: machine.committed_step() });
        if !changes.is_empty() {
            journal.add_event(Event::WorkflowChanged { changes });
        }
        for record in replaced {
            journal.add_record(Arc::new(record)).await?;
        }
        journal.save().await?;
        Ok(AcceptedRun::ready(machine, journal, actions, span))
    }
}

/// Checks whether a saved run can continue with the current graph.
pub(super) async fn check_compatibility(engine: &Engine, run: &RunId) -> Result<(), RunError> {
    let saved = engine.checkpointer.load(run).await?;
    let messages = new_messages(engine, &saved).await?;
    changes_since(engine, &saved, &messages).map(drop)
}

fn restore(
    engine: &Engine,
    saved: SavedRun,
    settings: RunSettings,
) -> Result<(Machine, Vec<Action>), RunError> {
    let run = saved.summary.info.id;
    let changed = |reason| RunError::Changed { run: run.clone(), reason };
    let state = engine.graph.schema().restore(saved.values).map_err(|it| changed(it.into()))?;
    let checkpoint = Checkpoint { position: saved.position, state };
    let graph = engine.graph.clone();
    Machine::restore(graph, settings, run.clone(), checkpoint, saved.records).map_err(changed)
}

/// Returns the inbox messages that are not processed yet, if the run or the graph accepts messages.
pub(super) async fn new_messages(
    engine: &Engine,
    saved: &SavedRun,
) -> Result<Vec<InboxMessage>, RunError> {
    let old = saved.summary.info.graph.as_deref();
    if engine.graph.definition().inbox.is_empty() && old.is_none_or(|it| !it.accepts_messages()) {
        return Ok(Vec::new());
    }
    Ok(engine
        .checkpointer
        .inbox(&saved.summary.info.id, saved.position.people.last_message)
        .await?)
}

/// Describes the changes of the graph since the run was started.
pub(super) fn changes_since(
    engine: &Engine,
    saved: &SavedRun,
    messages: &[InboxMessage],
) -> Result<Vec<String>, RunError> {
    let Some(old) = &saved.summary.info.graph else { return Ok(Vec::new()) };
    let new = engine.outline();
    if *old == new {
        return Ok(Vec::new());
    }
    let compared = Comparison { old, new: &new, graph: &engine.graph, saved, messages };
    let differences = compare(compared, None);
    if differences.iter().any(|it| it.breaks.is_some()) {
        let run = saved.summary.info.id.clone();
        let remedies = suggest(compared);
        return Err(RunError::broken(run, differences, remedies));
    }
    Ok(differences.into_iter().map(|it| it.what).collect())
}
