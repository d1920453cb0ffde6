//! How a run comes to rest: with all of its last words, or, on a full disk, with what fits.

use super::{Driver, Rest};
use crate::{
    checkpoint::{CheckpointError, Commit, Entry, RunInfo, Standing},
    engine::{Engine, RunEnd, RunError, lease::Lease, log::Log, superstep::Machine},
    event::{Event, EventSink, Status},
    fault::{self, Point},
};

/// Why a run rests that found no room to be saved in.
const FULL: &str = "the disk is full";

/// Saves a new run that rests before its first task, such as at a breakpoint.
///
/// That it rests is saved with its acceptance: a crash between the two would leave a run that looks
/// as if it had been told to go on.
pub(in crate::engine) async fn accept_at_rest(
    engine: &Engine,
    machine: Machine,
    events: EventSink,
    (info, first): (&RunInfo, Commit),
    (status, reason): Rest,
) -> Result<RunEnd, RunError> {
    let mut log = Log::new(info.id.clone(), (events, 0), engine.clock.clone());
    let (name, workflow) = (info.name.clone(), info.workflow.clone());
    log.add(Event::RunStarted { name, workflow });
    let spent = machine.spent();
    log.add(Event::RunFinished { status, reason: reason.clone(), steps: 0, spent });
    let first = Entry {
        standing: Some(Standing { status, reason: reason.clone() }),
        events: log.unsaved(),
        ..Entry::from(first)
    };
    let lease = Lease::create(&engine.checkpointer, info, &first, engine.lease).await?;
    fault::hit(Point::AcceptAfterCommit).map_err(CheckpointError::injected)?;
    engine.checkpointer.release(lease.hold()).await?;
    lease.forget();
    log.publish().await?;
    let (position, state) = (machine.position().clone(), machine.state().as_ref().clone());
    Ok(RunEnd { status, reason, position, state, questions: Vec::new() })
}

impl Driver<'_> {
    /// Notes that the run comes to rest, and how.
    fn rest(&mut self, status: Status, reason: Option<String>) {
        let (steps, spent) = (self.machine.position().step.0, self.machine.spent());
        self.log.add(Event::RunFinished { status, reason: reason.clone(), steps, spent });
        self.entry.standing = Some(Standing { status, reason });
    }

    pub(super) async fn finish(
        mut self,
        status: Status,
        reason: Option<String>,
    ) -> Result<RunEnd, RunError> {
        self.drop_tasks().await;
        let position = self.machine.position().clone();
        self.rest(status, reason.clone());
        if let Err(error) = self.save().await {
            return match error {
                RunError::Checkpoint(full @ CheckpointError::Full { .. }) => {
                    Err(self.rest_for_want_of_room(full).await)
                }
                error => Err(error),
            };
        }
        self.lease.forget();
        let questions = self.machine.open_questions();
        let state = self.machine.state().as_ref().clone();
        Ok(RunEnd { status, reason, position, state, questions })
    }

    /// Rests the run although there is no room, in what storage keeps for that: with what could not
    /// be saved, or without. If even that is too much, the run is as a dead process would leave it.
    pub(super) async fn rest_for_want_of_room(mut self, full: CheckpointError) -> RunError {
        self.drop_tasks().await;
        let reason = || Some(FULL.to_owned());
        let mut is_saved = false;
        // The end of the run may have been what found no room; that was tried.
        if self.entry.standing.is_none() {
            self.rest(Status::Interrupted, reason());
            is_saved = self.save().await.is_ok();
        }
        if !is_saved {
            self.entry = Entry::default();
            self.log.forget_untold();
            self.rest(Status::Interrupted, reason());
            is_saved = self.save().await.is_ok();
        }
        if is_saved {
            self.lease.forget();
        }
        full.into()
    }
}
