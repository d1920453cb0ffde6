//! Stops a run: with its final entry or, on a full disk, with as much of it as fits.

use graphrun_core::{
    event::{Event, EventSink, Status},
    fault::{self, Point},
};

use super::{Driver, Rest};
use crate::{
    Engine, RunEnd, RunError,
    checkpoint::{CheckpointError, Commit, Entry, RunInfo, RunStatus},
    lease::Lease,
    log::Log,
    superstep::Machine,
};

/// The reason of a run that stops because it could not be saved.
const FULL: &str = "the disk is full";

/// Saves a new run that stops before its first task, such as at a breakpoint.
///
/// Acceptance and status are saved together. A crash between the two would leave a run that looks unfinished
/// and gets resumed past its breakpoint.
pub(crate) async fn accept_stopped(
    engine: &Engine,
    machine: Machine,
    events: EventSink,
    (info, first): (&RunInfo, Commit),
    (status, reason): Rest,
) -> Result<RunEnd, RunError> {
    let mut log = Log::new(info.id.clone(), (events, 0), engine.clock.clone());
    let (name, workflow) = (info.name.clone(), info.workflow.clone());
    log.add(Event::RunStarted { name, workflow });
    let usage = machine.usage();
    log.add(Event::RunFinished { status, reason: reason.clone(), steps: 0, usage });
    let first = Entry {
        run_status: Some(RunStatus { status, reason: reason.clone() }),
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
    /// Adds the final status of the run to the entry.
    fn rest(&mut self, status: Status, reason: Option<String>) {
        let (steps, usage) = (self.machine.position().step.0, self.machine.usage());
        self.log.add(Event::RunFinished { status, reason: reason.clone(), steps, usage });
        self.entry.run_status = Some(RunStatus { status, reason });
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
                    Err(self.stop_on_full_disk(full).await)
                }
                error => Err(error),
            };
        }
        self.lease.forget();
        let questions = self.machine.open_questions();
        let state = self.machine.state().as_ref().clone();
        Ok(RunEnd { status, reason, position, state, questions })
    }

    /// Stops the run on a full disk, in the space that storage reserves for that: with the unsaved results,
    /// or without them. If even that fails, the run is in the state that a crash would leave.
    pub(super) async fn stop_on_full_disk(mut self, full: CheckpointError) -> RunError {
        self.drop_tasks().await;
        let reason = || Some(FULL.to_owned());
        let mut is_saved = false;
        // The entry that did not fit may have been the final one; that was tried already.
        if self.entry.run_status.is_none() {
            self.rest(Status::Interrupted, reason());
            is_saved = self.save().await.is_ok();
        }
        if !is_saved {
            self.entry = Entry::default();
            self.log.discard_unpublished();
            self.rest(Status::Interrupted, reason());
            is_saved = self.save().await.is_ok();
        }
        if is_saved {
            self.lease.forget();
        }
        full.into()
    }
}
