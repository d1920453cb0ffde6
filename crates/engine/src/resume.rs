//! Continues a saved run from its position, or retries its failed tasks.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    event::{Event, Status},
    fault::{self, Point},
    id::{ChannelName, NodeName, RunId},
};
use serde_json::Value;
use tracing::{Instrument, Span, debug_span};

use super::{
    Answers, Engine, RunError,
    accept::{AcceptContext, AcceptedRun},
    answers::{match_answers, replace_answers},
    check_retry,
    compare::{Comparison, compare, suggest},
    journal_writer::JournalWriter,
    lease::Lease,
    log::Log,
    machine::{self, Action, Machine, SavedStep},
    spans,
};
use crate::checkpoint::{
    Checkpoint, CheckpointError, InboxMessage, Outcome, Position, RunStatus, SavedRun, TaskRecord,
};

/// A saved run that is ready to continue.
pub(super) struct Resumption {
    machine: Machine,
    actions: Vec<Action>,
    /// New answers to questions of failed tasks, to be saved.
    replaced: Vec<TaskRecord>,
    continuation: Continuation,
}

/// The continuation of a saved run, by a resume or a turn.
pub(super) struct Continuation {
    /// The number of its last event.
    last_seq: u64,
    /// The changes of its workflow, as text.
    changes: Vec<String>,
    /// The trace of its first process.
    first_trace: Option<String>,
}

impl Continuation {
    pub(super) fn of(saved: &SavedRun, changes: Vec<String>) -> Self {
        let first_trace = saved.summary.info.trace.clone();
        Self { last_seq: saved.last_seq, changes, first_trace }
    }

    /// Begins the journal of this process, with its first event. Returns also the span of the run.
    pub(super) fn begin(
        self,
        context: AcceptContext<'_>,
        lease: Lease,
        machine: &Machine,
        first: Event,
    ) -> (JournalWriter, Span) {
        let Self { last_seq, changes, first_trace } = self;
        let AcceptContext { engine, sinks, span, .. } = context;
        let span = spans::run(machine, span, first_trace.as_deref());
        let log = Log::after(last_seq, machine.run().clone(), sinks, engine.clock.clone());
        let mut journal = JournalWriter::new(engine, lease, log);
        journal.add_event(first);
        if !changes.is_empty() {
            journal.add_event(Event::WorkflowChanged { changes });
        }
        (journal, span)
    }
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
        let continuation = Continuation::of(&saved, changes);
        let (mut machine, mut actions) = restore(engine, saved, messages, None)?;
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
        Ok(Self { machine, actions, replaced, continuation })
    }

    /// Loads a run that retries its failed tasks: all of them, or those of one node.
    pub(super) async fn load_for_retry(
        engine: &Engine,
        run: &RunId,
        node: Option<&NodeName>,
    ) -> Result<Self, RunError> {
        let saved = engine.checkpointer.load(run).await?;
        check_retry(&saved, node)?;
        let changes = changes_since(engine, &saved, &new_messages(engine, &saved).await?)?;
        let continuation = Continuation::of(&saved, changes);
        let (machine, actions) = restore(engine, saved, Vec::new(), node.cloned())?;
        Ok(Self { machine, actions, replaced: Vec::new(), continuation })
    }

    /// Saves that the run continues.
    pub(super) async fn save(
        self,
        context: AcceptContext<'_>,
        lease: Lease,
    ) -> Result<AcceptedRun, RunError> {
        let Self { machine, mut actions, replaced, continuation } = self;
        let resumed = Event::RunResumed { step: machine.committed_step() };
        let (mut journal, span) = continuation.begin(context, lease, &machine, resumed);
        journal.set_status(RunStatus { status: Status::Running, reason: None });
        for record in replaced {
            journal.add_record(Arc::new(record)).await?;
        }
        for answer in take_answers(&mut actions) {
            journal.add_record(answer).await?;
        }
        journal.save().await?;
        Ok(AcceptedRun::ready(machine, journal, actions, span))
    }
}

/// Takes the answers, which are saved before their run is driven: a person who gave one must not be asked again.
fn take_answers(actions: &mut Vec<Action>) -> Vec<Arc<TaskRecord>> {
    let is_answer = |it: &mut Action| matches!(it, Action::Record(record) if matches!(record.outcome, Outcome::Answered { .. }));
    let answers = actions.extract_if(.., is_answer).filter_map(|it| match it {
        Action::Record(record) => Some(record),
        _ => None,
    });
    answers.collect()
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
    messages: Vec<InboxMessage>,
    retry_only: Option<NodeName>,
) -> Result<(Machine, Vec<Action>), RunError> {
    let run = saved.summary.info.id;
    let checkpoint = saved_checkpoint(engine, &run, saved.position, saved.values)?;
    let saved = SavedStep { checkpoint, records: saved.records, messages, retry_only };
    Machine::restore(engine.graph.clone(), engine.run_settings(), run.clone(), saved)
        .map_err(|reason| RunError::changed(&run, reason))
}

/// Returns the checkpoint of a saved run, if its values fit the current graph.
pub(super) fn saved_checkpoint(
    engine: &Engine,
    run: &RunId,
    position: Position,
    values: BTreeMap<ChannelName, Value>,
) -> Result<Checkpoint, RunError> {
    let restored = engine.graph.schema().restore(values);
    let state = restored.map_err(|reason| RunError::changed(run, reason.into()))?;
    Ok(Checkpoint { position, state })
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
