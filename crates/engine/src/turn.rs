//! A new turn of a thread: new input on the state of a run that has ended.

use std::time::Duration;

use graphrun_core::{
    event::{Event, Status},
    id::RunId,
    state::Update,
};
use tokio::time::sleep;

use super::{
    Engine, RunError,
    accept::{AcceptedRun, check_input, take_emissions},
    driver::{run_end, run_finished},
    entrance::redact_update,
    journal_writer::JournalWriter,
    lease::Lease,
    log::Log,
    machine::{Action, FirstStep, Machine},
    resume::{changes_since, new_messages},
    spans,
    stream::Sinks,
};
use crate::checkpoint::{Checkpoint, CheckpointError, RunStatus, RunSummary};

/// The time after which a queued turn looks again whether the thread is free.
const QUEUE_POLL: Duration = Duration::from_millis(50);

/// Returns the run of a thread. A run whose id only begins with the name is another one.
pub(super) async fn find_run(engine: &Engine, thread: &str) -> Result<Option<RunId>, RunError> {
    match engine.checkpointer.find(thread).await {
        Ok(RunSummary { info, .. }) => {
            Ok(Some(info.id).filter(|it| info.name == thread || it.as_str() == thread))
        }
        Err(CheckpointError::UnknownRun(_) | CheckpointError::AmbiguousRun { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Accepts the next turn of the run of a thread. The turn may stop before its first task.
pub(super) async fn accept(
    engine: &Engine,
    thread: &str,
    run: RunId,
    mut input: Update,
    is_queued: bool,
    sinks: Sinks,
) -> Result<AcceptedRun, RunError> {
    check_input(engine, &input)?;
    redact_update(&mut input);
    let lease = loop {
        match Lease::acquire(&engine.checkpointer, &run, engine.lease).await {
            Err(CheckpointError::Owned { .. }) if is_queued => sleep(QUEUE_POLL).await,
            lease => break lease?,
        }
    };
    let turn = prepare(engine, thread, &run, &input).await;
    let (lease, Turn { first_step, last_seq, changes, first_trace }) =
        lease.or_give_back(turn).await?;
    let FirstStep { machine, commit, mut actions } = first_step;
    let span = spans::run(&machine, sinks.span, first_trace.as_deref());
    let log = Log::after(last_seq, run, sinks, engine.clock.clone());
    let mut journal = JournalWriter::new(engine, lease, log);
    let position = &commit.position;
    let started = Event::TurnStarted { turn: position.earlier.turns + 1, step: position.step };
    let values = journal.streams_values().then(|| machine.state().clone());
    journal.add_event(started);
    if !changes.is_empty() {
        journal.add_event(Event::WorkflowChanged { changes });
    }
    journal.add_commit(commit, values).await?;
    for event in take_emissions(&mut actions) {
        journal.add_event(event);
    }
    if let [Action::Stop(status)] = actions.as_slice() {
        journal.add_status(status.clone(), run_finished(&machine, status));
        journal.save().await?;
        return Ok(AcceptedRun::Stopped(Box::new(run_end(&machine, status.clone()))));
    }
    journal.set_status(RunStatus { status: Status::Running, reason: None });
    journal.save().await?;
    Ok(AcceptedRun::ready(machine, journal, actions, span))
}

/// A turn that is ready to begin.
struct Turn {
    first_step: FirstStep,
    /// The number of the last event of the turns before.
    last_seq: u64,
    /// The changes of the workflow, as text.
    changes: Vec<String>,
    /// The trace of the first process of the run.
    first_trace: Option<String>,
}

async fn prepare(
    engine: &Engine,
    thread: &str,
    run: &RunId,
    input: &Update,
) -> Result<Turn, RunError> {
    let saved = engine.checkpointer.load(run).await?;
    let first_trace = saved.summary.info.trace.clone();
    let status = saved.summary.status;
    if !saved.position.frontier.is_empty() || status == Status::Running {
        return Err(RunError::TurnOpen { thread: thread.to_owned(), status });
    }
    let changes = changes_since(engine, &saved, &new_messages(engine, &saved).await?)?;
    let changed = |source| RunError::Changed { run: run.clone(), source };
    let state = engine.graph.schema().restore(saved.values).map_err(|it| changed(it.into()))?;
    let ended = Checkpoint { position: saved.position, state };
    let first_step =
        Machine::turn(engine.graph.clone(), engine.run_settings(), run.clone(), ended, input)
            .map_err(RunError::Input)?;
    Ok(Turn { first_step, last_seq: saved.last_seq, changes, first_trace })
}
