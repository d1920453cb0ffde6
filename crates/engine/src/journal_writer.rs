//! The journal of the driven run: which results are saved together, and what waits until they are durable.

use std::sync::Arc;

use graphrun_core::{
    event::Event,
    fault::{self, Point},
};
use tokio::sync::oneshot;

use super::{
    Engine, RunError,
    lease::Lease,
    log::{Log, event_of, event_of_message},
    storage::rules::stops_run,
    superstep::ProcessedMessage,
};
use crate::checkpoint::{
    CheckpointError, Checkpointer, Commit, Entry, RunInfo, RunStatus, TaskRecord,
};

/// Collects the next entry of the journal, saves it, and then publishes its events.
#[derive(Debug)]
pub(super) struct JournalWriter {
    storage: Arc<dyn Checkpointer>,
    lease: Lease,
    log: Log,
    /// The entry that is not saved yet. Nothing may follow from it before it is durable.
    entry: Entry,
    /// The nodes that wait until their memo is saved.
    confirmations: Vec<oneshot::Sender<()>>,
}

impl JournalWriter {
    /// Saves a new run, with the events of the log. They are not published yet.
    pub(super) async fn create(
        engine: &Engine,
        info: &RunInfo,
        first: Entry,
        log: Log,
    ) -> Result<Self, RunError> {
        let first = Entry { events: log.unsaved(), ..first };
        let lease = Lease::create(&engine.checkpointer, info, &first, engine.lease).await?;
        fault::hit(Point::AcceptAfterCommit).map_err(CheckpointError::injected)?;
        Ok(Self::new(engine, lease, log))
    }

    /// Continues the journal of a saved run.
    pub(super) fn new(engine: &Engine, lease: Lease, log: Log) -> Self {
        let (entry, confirmations) = (Entry::default(), Vec::new());
        Self { storage: Arc::clone(&engine.checkpointer), lease, log, entry, confirmations }
    }

    /// Waits until another process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lease_lost(&self) {
        self.lease.lost().await;
    }

    /// Adds the record of a task. A completed step is saved first: the record belongs to the next step.
    pub(super) async fn add_record(&mut self, record: TaskRecord) -> Result<(), RunError> {
        self.save_step().await?;
        self.log.add(event_of(&record));
        self.entry.records.push(record);
        Ok(())
    }

    /// Adds a step. A step before it is saved first.
    pub(super) async fn add_commit(&mut self, commit: Commit) -> Result<(), RunError> {
        self.save_step().await?;
        let position = &commit.position;
        let next = position.frontier.iter().map(|it| it.node.clone()).collect();
        self.log.add(Event::StepCommitted { step: position.step, next });
        self.entry.commit = Some(commit);
        Ok(())
    }

    /// Adds the inbox messages of the step that follows.
    pub(super) async fn add_messages(
        &mut self,
        messages: &[ProcessedMessage],
    ) -> Result<(), RunError> {
        self.save_step().await?;
        for message in messages {
            self.log.add(event_of_message(message));
        }
        Ok(())
    }

    /// Adds a status of the run with its event.
    pub(super) fn add_status(&mut self, status: RunStatus, event: Event) {
        self.entry.run_status = Some(status);
        self.log.add(event);
    }

    /// Adds an event that is published once it is saved.
    pub(super) fn add_event(&mut self, event: Event) {
        self.log.add(event);
    }

    /// Reports that the run has reached a node. The step that reached it is durable before that.
    pub(super) async fn emit(&mut self, event: Event) {
        if self.entry.commit.is_some() {
            self.log.add(event);
        } else {
            self.log.publish_early(event).await;
        }
    }

    /// Publishes an event that need not be durable first.
    pub(super) async fn publish_early(&mut self, event: Event) {
        self.log.publish_early(event).await;
    }

    /// Confirms a memo to its node once the entry is saved.
    pub(super) fn confirm_when_saved(&mut self, saved: oneshot::Sender<()>) {
        self.confirmations.push(saved);
    }

    async fn save_step(&mut self) -> Result<(), RunError> {
        if self.entry.commit.is_some() { self.save().await } else { Ok(()) }
    }

    /// Saves the pending entry, then publishes its events.
    pub(super) async fn save(&mut self) -> Result<(), RunError> {
        if self.entry.is_empty() {
            return Ok(());
        }
        self.entry.events = self.log.unsaved();
        self.storage.append(self.lease.hold(), &self.entry).await?;
        let entry = std::mem::take(&mut self.entry);
        if stops_run(&entry) {
            self.lease.forget();
        }
        fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
        for saved in self.confirmations.drain(..) {
            // A node that was dropped meanwhile no longer waits.
            _ = saved.send(());
        }
        self.publish().await
    }

    /// Publishes the events that are saved.
    pub(super) async fn publish(&mut self) -> Result<(), RunError> {
        Ok(self.log.publish().await?)
    }

    /// Releases a new run that stopped before its first task.
    pub(super) async fn release(mut self) -> Result<(), RunError> {
        self.storage.release(self.lease.hold()).await?;
        self.lease.forget();
        self.publish().await
    }

    /// Stops the run on a full disk, in the space that storage reserves for that: with the unsaved results,
    /// or without them. If even that fails, the run is in the state that a crash would leave.
    pub(super) async fn save_on_full_disk(&mut self, status: RunStatus, event: Event) {
        // The entry that did not fit may have been the final one; that was tried already.
        if self.entry.run_status.is_none() {
            self.add_status(status.clone(), event.clone());
            if self.save().await.is_ok() {
                return;
            }
        }
        self.entry = Entry::default();
        self.log.discard_unpublished();
        self.add_status(status, event);
        drop(self.save().await);
    }
}
