//! A new turn of a thread: new input on the state of a run that has ended.

use std::time::Duration;

use graphrun_core::{
    event::{Event, Status},
    id::RunId,
    state::Update,
};
use tokio::time::sleep;

use super::{
    Engine, RunError, ShutdownHandle,
    accept::{AcceptedRun, check_input, immediate_stop, save_new, take_emissions},
    driver::run_finished,
    entrance::redact_update,
    journal_writer::JournalWriter,
    lease::Lease,
    log::Log,
    machine::{FirstStep, Machine},
    resume::{changes_since, new_messages},
    spans,
    stream::Sinks,
    turn_queue::wait_for_others,
};
use crate::checkpoint::{Checkpoint, CheckpointError, RunInfo, RunStatus, RunSummary, SavedRun};

/// The time after which a queued turn looks again whether the thread is free.
const QUEUE_POLL: Duration = Duration::from_millis(50);

/// The values of a thread are kept anew after a load that has read more entries than this. So a turn costs the same
/// however many there were before it, and few turns write the whole state.
const ENTRIES_READ_MAX: u64 = 256;

/// Returns the run of a thread. A run whose id only begins with the name is another one.
async fn find_run(engine: &Engine, thread: &str) -> Result<Option<RunId>, RunError> {
    match engine.checkpointer.find(thread).await {
        Ok(RunSummary { info, .. }) if info.name != thread && info.id.as_str() != thread => {
            Ok(None)
        }
        Ok(RunSummary { info, .. }) if !info.is_thread => {
            Err(RunError::NotThread { name: thread.to_owned() })
        }
        Ok(RunSummary { info, .. }) => Ok(Some(info.id)),
        Err(CheckpointError::UnknownRun(_) | CheckpointError::AmbiguousRun { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What a caller asks for: a turn of a thread.
pub(super) struct Turn {
    pub(super) thread: String,
    pub(super) input: Update,
    /// Whether it waits for other turns of the thread.
    pub(super) is_queued: bool,
    /// Ends the wait.
    pub(super) shutdown: ShutdownHandle,
}

impl Turn {
    /// Waits for a part of the queue, unless the turn is stopped from outside.
    async fn wait<T>(&self, wait: impl Future<Output = T>) -> Result<T, RunError> {
        tokio::select! {
            biased;
            () = self.shutdown.drain.cancelled() => {
                Err(RunError::NotBegun { thread: self.thread.clone() })
            }
            waited = wait => Ok(waited),
        }
    }
}

/// Saves that a turn of a thread begins, with a new run of this id and origin if it is the first one.
pub(super) async fn begin_or_continue_thread(
    engine: &Engine,
    turn: Turn,
    info: RunInfo,
    sinks: Sinks,
) -> Result<AcceptedRun, RunError> {
    // Held until the turn has begun, or has failed to.
    let _next = if turn.is_queued {
        Some(turn.wait(wait_for_others(&engine.checkpointer, &turn.thread)).await?)
    } else {
        None
    };
    if let Some(run) = find_run(engine, &turn.thread).await? {
        return save_turn(engine, turn, run, sinks).await;
    }
    let info = RunInfo { name: turn.thread.clone(), is_thread: true, ..info };
    match save_new(engine, info, turn.input.clone(), sinks.clone()).await {
        Err(RunError::Checkpoint(error @ CheckpointError::Exists(_))) => {
            // Another turn has begun the thread meanwhile.
            let run = find_run(engine, &turn.thread).await?;
            save_turn(engine, turn, run.ok_or(error)?, sinks).await
        }
        accepted => accepted,
    }
}

/// Saves that the next turn of the run of a thread begins. The turn may stop before its first task.
async fn save_turn(
    engine: &Engine,
    mut turn: Turn,
    run: RunId,
    sinks: Sinks,
) -> Result<AcceptedRun, RunError> {
    check_input(engine, &turn.input)?;
    redact_update(&mut turn.input);
    let lease = loop {
        match Lease::acquire(&engine.checkpointer, &run, engine.lease_duration).await {
            Err(CheckpointError::Owned { .. }) if turn.is_queued => {
                turn.wait(sleep(QUEUE_POLL)).await?;
            }
            lease => break lease?,
        }
    };
    let turn = prepare(engine, &turn.thread, &lease, &turn.input).await;
    let (lease, PreparedTurn { first_step, last_seq, changes, first_trace }) =
        lease.or_release(turn).await?;
    let FirstStep { machine, commit, mut actions } = first_step;
    let span = spans::run(&machine, sinks.span, first_trace.as_deref());
    let log = Log::after(last_seq, run, sinks, engine.clock.clone());
    let mut journal = JournalWriter::new(engine, lease, log);
    let position = &commit.position;
    let started = Event::TurnStarted { turn: position.earlier.turns + 1, step: position.step };
    journal.add_event(started);
    if !changes.is_empty() {
        journal.add_event(Event::WorkflowChanged { changes });
    }
    // The driver streams the state with the input.
    journal.add_commit(commit, None).await?;
    for event in take_emissions(&mut actions) {
        journal.add_event(event);
    }
    if let Some(status) = immediate_stop(&actions) {
        journal.add_status(status.clone(), run_finished(&machine, status));
        journal.save().await?;
        return Ok(AcceptedRun::stopped(&machine, status));
    }
    journal.set_status(RunStatus { status: Status::Running, reason: None });
    journal.save().await?;
    Ok(AcceptedRun::ready(machine, journal, actions, span))
}

/// A turn that is ready to begin.
struct PreparedTurn {
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
    lease: &Lease,
    input: &Update,
) -> Result<PreparedTurn, RunError> {
    let run = &lease.token().run;
    let saved = engine.checkpointer.load(run).await?;
    if saved.entries_read > ENTRIES_READ_MAX {
        // A turn that cannot keep them is only slower.
        drop(engine.checkpointer.keep_values(lease.token(), &saved).await);
    }
    let first_trace = saved.summary.info.trace.clone();
    let status = saved.summary.status;
    if !saved.position.frontier.is_empty() || status == Status::Running {
        return Err(RunError::TurnOpen { thread: thread.to_owned(), status });
    }
    // What else the last turn has left has no part in the next one.
    let saved = SavedRun { position: saved.position.at_end(), ..saved };
    let changes = changes_since(engine, &saved, &new_messages(engine, &saved).await?)?;
    let changed = |reason| RunError::Changed { run: run.clone(), reason };
    let state = engine.graph.schema().restore(saved.values).map_err(|it| changed(it.into()))?;
    let ended = Checkpoint { position: saved.position, state };
    let first_step =
        Machine::turn(engine.graph.clone(), engine.run_settings(), run.clone(), ended, input)
            .map_err(RunError::Input)?;
    Ok(PreparedTurn { first_step, last_seq: saved.last_seq, changes, first_trace })
}
