//! A new turn of a thread: new input on the state of a run that has ended.

use std::time::Duration;

use graphrun_core::{
    event::{Event, Status},
    id::RunId,
    state::Update,
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Engine, RunError, ShutdownHandle,
    accept::{AcceptContext, AcceptedRun, check_input, immediate_stop, save_new, take_emissions},
    driver::run_finished,
    lease::Lease,
    machine::{FirstStep, Machine},
    redaction::redact_update,
    resume::{Continuation, changes_since, new_messages, saved_checkpoint},
    turn_queue::wait_for_others,
};
use crate::checkpoint::{
    Basis, CheckpointError, Mapping, Migration, RunInfo, RunStatus, RunSummary, SavedRun,
};

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

/// The turn of a thread that a caller asks for.
pub(super) struct TurnRequest {
    pub(super) thread: String,
    pub(super) input: Update,
    /// Whether it waits for other turns of the thread.
    pub(super) is_queued: bool,
    /// The origin of the process, which later ones continue the turn with; null for that of the turn before.
    pub(super) origin: Value,
}

impl TurnRequest {
    /// Waits for a part of the queue, unless the turn is stopped from outside.
    async fn wait<T>(
        &self,
        shutdown: &ShutdownHandle,
        wait: impl Future<Output = T>,
    ) -> Result<T, RunError> {
        tokio::select! {
            biased;
            () = shutdown.drain.cancelled() => {
                Err(RunError::NotBegun { thread: self.thread.clone() })
            }
            waited = wait => Ok(waited),
        }
    }
}

/// Saves that a turn of a thread begins, with a new run of this id and origin if it is the first one.
pub(super) async fn begin_or_continue_thread(
    context: AcceptContext<'_>,
    turn: TurnRequest,
    info: RunInfo,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, shutdown, .. } = context;
    // Held until the turn has begun, or has failed to.
    let _next = if turn.is_queued {
        Some(turn.wait(shutdown, wait_for_others(&engine.checkpointer, &turn.thread)).await?)
    } else {
        None
    };
    if let Some(run) = find_run(engine, &turn.thread).await? {
        return save_turn(context, turn, run).await;
    }
    let info = RunInfo { name: turn.thread.clone(), is_thread: true, ..info };
    match save_new(context.clone(), info, turn.input.clone()).await {
        Err(RunError::Checkpoint(error @ CheckpointError::Exists(_))) => {
            // Another turn has begun the thread meanwhile.
            let run = find_run(engine, &turn.thread).await?;
            save_turn(context, turn, run.ok_or(error)?).await
        }
        accepted => accepted,
    }
}

/// Saves that the next turn of the run of a thread begins. The turn may stop before its first task.
async fn save_turn(
    context: AcceptContext<'_>,
    mut turn: TurnRequest,
    run: RunId,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, shutdown, .. } = context;
    check_input(engine, &turn.input)?;
    redact_update(&mut turn.input);
    let lease = loop {
        match Lease::acquire(&engine.checkpointer, &run, engine.lease_duration).await {
            Err(CheckpointError::Owned { .. }) if turn.is_queued => {
                turn.wait(shutdown, sleep(QUEUE_POLL)).await?;
            }
            lease => break lease?,
        }
    };
    let prepared = prepare(engine, &turn, &lease).await;
    let PreparedTurn { first_step, continuation, migration } =
        lease.release_on_error(prepared).await?;
    let FirstStep { machine, commit, mut actions } = first_step;
    let position = &commit.position;
    let started = Event::TurnStarted { turn: position.earlier.turns + 1, step: position.step };
    let (mut journal, span) = continuation.begin(context, lease, &machine, started);
    // The driver streams the state with the input.
    journal.add_commit(commit, None).await?;
    journal.set_migration(migration);
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
    continuation: Continuation,
    /// To another version of the workflow, or to other options of the program.
    migration: Option<Box<Migration>>,
}

async fn prepare(
    engine: &Engine,
    TurnRequest { thread, input, origin, .. }: &TurnRequest,
    lease: &Lease,
) -> Result<PreparedTurn, RunError> {
    let run = &lease.token().run;
    let saved = engine.checkpointer.load(run).await?;
    if saved.entries_read > ENTRIES_READ_MAX {
        // A turn that cannot keep them is only slower.
        drop(engine.checkpointer.keep_values(lease.token(), &saved).await);
    }
    let status = saved.summary.status;
    if !saved.position.frontier.is_empty() || status == Status::Running {
        return Err(RunError::TurnOpen { thread: thread.clone(), status });
    }
    // The next turn takes over nothing else of the last one.
    let saved = SavedRun { position: saved.position.for_next_turn(), ..saved };
    let changes = changes_since(engine, &saved, &new_messages(engine, &saved).await?)?;
    let continuation = Continuation::of(&saved, changes);
    let migration = migration_of(engine, saved.summary.info.basis(), origin);
    let ended = saved_checkpoint(engine, run, saved.position, saved.values)?;
    let first_step =
        Machine::turn(engine.graph.clone(), engine.run_settings(), run.clone(), ended, input)
            .map_err(RunError::Input)?;
    Ok(PreparedTurn { first_step, continuation, migration })
}

/// Returns the migration of a turn that has another basis than the one before. All names stay.
fn migration_of(engine: &Engine, from: Basis, origin: &Value) -> Option<Box<Migration>> {
    let origin = if origin.is_null() { &from.origin } else { origin }.clone();
    let workflow = engine.graph.definition().name.clone();
    let to = Basis { workflow, origin, graph: Some(engine.outline()) };
    let mapping = Mapping::default();
    (to != from).then(|| Box::new(Migration { from, to, mapping, records: Vec::new() }))
}
