//! The journal of the driven run: which results are saved together, and what waits until they are durable.

mod target;

use std::sync::Arc;

use graphrun_core::{
    event::Event,
    fault::{self, Point},
    graph::DeltaReader,
    id::Step,
    state::State,
};
use tokio::sync::oneshot;

use self::target::Target;
use super::{
    Engine, RunError,
    lease::Lease,
    log::{Log, event_of_message, event_of_record},
    machine::{Machine, ProcessedMessage, StepSummary},
    storage::InMemoryStorage,
    stream::{StreamMode, StreamSender},
};
use crate::checkpoint::{
    CheckpointError, Commit, Entry, Migration, RunInfo, RunStatus, TaskRecord,
};

/// Collects the next entry of the journal, saves it, and then publishes its events.
///
/// An engine without storage keeps no journal, only the records of the open step: see [`JournalWriter::keep`].
#[derive(Debug)]
pub(super) struct JournalWriter {
    target: Target,
    log: Log,
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
        let lease =
            Lease::create(&engine.checkpointer, info, &first, engine.lease_duration).await?;
        fault::hit(Point::AcceptAfterCommit).map_err(CheckpointError::injected)?;
        Ok(Self::new(engine, lease, log))
    }

    /// Begins a run of an engine without storage.
    pub(super) fn in_process(storage: Arc<InMemoryStorage>, info: RunInfo, log: Log) -> Self {
        Self::at(Target::process(storage, info), log.in_process())
    }

    fn at(target: Target, log: Log) -> Self {
        Self { target, log, confirmations: Vec::new() }
    }

    /// Continues the journal of a saved run.
    pub(super) fn new(engine: &Engine, lease: Lease, log: Log) -> Self {
        Self::at(Target::storage(Arc::clone(&engine.checkpointer), lease), log)
    }

    /// Waits until it is no longer certain that this process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lease_lost(&self) {
        self.target.lease_lost().await;
    }

    /// Returns whether it is no longer certain that this process owns the run.
    pub(super) fn is_lease_lost(&self) -> bool {
        self.target.is_lease_lost()
    }

    /// Makes sure that this process owns the run, and returns whether it does.
    pub(super) async fn confirm_lease(&self) -> bool {
        self.target.confirm_lease().await
    }

    /// Adds the record of a task. A completed step is saved first: the record belongs to the next step.
    pub(super) async fn add_record(&mut self, record: Arc<TaskRecord>) -> Result<(), RunError> {
        self.save_step().await?;
        // The reports of a nested run show its progress.
        if !record.is_of_nested_run() {
            self.log.add_with(|| event_of_record(&record));
        }
        self.target.add_record(record, self.log.stream());
        Ok(())
    }

    /// Adds a step, with its state if that is streamed. A step before it is saved first.
    pub(super) async fn add_commit(
        &mut self,
        commit: Commit,
        state: Option<Arc<State>>,
    ) -> Result<(), RunError> {
        self.save_step().await?;
        let position = &commit.position;
        let next = position.frontier.iter().map(|it| it.node.clone()).collect();
        self.log.add(Event::StepCommitted { step: position.step, next });
        self.target.add_commit(commit, state);
        Ok(())
    }

    /// Ends a step of a run that exists in this process only: this one, or the last one of the machine.
    pub(super) fn end_step(&mut self, machine: &Machine, summary: Option<StepSummary>) {
        self.target.end_step();
        let step = summary.as_ref().map_or_else(|| machine.committed_step(), |it| it.step);
        let next = || summary.map_or_else(|| machine.next_nodes(), |it| it.next);
        self.log.add_with(|| Event::StepCommitted { step, next: next() });
        self.stream_values(machine, step);
    }

    /// Streams the state after a step, or at the start of the run.
    pub(super) fn stream_values(&self, machine: &Machine, step: Step) {
        if self.wants_values()
            && let Some(stream) = self.log.stream()
        {
            stream.send_values(step, machine.state().clone());
        }
    }

    /// Keeps a run of an engine without storage that stopped before its end, so that it can be resumed.
    pub(super) fn keep(&mut self, machine: &Machine, run_status: &RunStatus) {
        if let Target::Process(run) = &mut self.target {
            run.keep(machine, run_status, &self.log);
        }
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

    /// Sets the migration that the step of the entry makes.
    pub(super) fn set_migration(&mut self, migration: Option<Box<Migration>>) {
        self.target.set_migration(migration);
    }

    /// Adds a status of the run with its event.
    pub(super) fn add_status(&mut self, status: RunStatus, event: Event) {
        self.target.set_status(status);
        self.log.add(event);
    }

    /// Adds a status of the run that needs no event.
    pub(super) fn set_status(&mut self, status: RunStatus) {
        self.target.set_status(status);
    }

    /// Adds an event that is published once it is saved.
    pub(super) fn add_event(&mut self, event: Event) {
        self.log.add(event);
    }

    /// Reports that the run has reached a node. The step that reached it is durable before that.
    pub(super) async fn emit(&mut self, event: impl FnOnce() -> Event) {
        if self.target.has_unsaved_step() {
            self.log.add_with(event);
        } else {
            self.log.publish_early(event).await;
        }
    }

    /// Publishes an event that need not be durable first.
    pub(super) async fn publish_early(&mut self, event: impl FnOnce() -> Event) {
        self.log.publish_early(event).await;
    }

    /// Confirms a memo to its node once the entry is saved.
    pub(super) fn confirm_when_saved(&mut self, saved: oneshot::Sender<()>) {
        self.confirmations.push(saved);
    }

    async fn save_step(&mut self) -> Result<(), RunError> {
        if self.target.has_unsaved_step() { self.save().await } else { Ok(()) }
    }

    /// Saves the pending entry, then publishes its events.
    pub(super) async fn save(&mut self) -> Result<(), RunError> {
        if let Target::Storage(run) = &mut self.target {
            if run.is_saved() {
                return Ok(());
            }
            // Boxed: a run without storage would otherwise move this future at each step.
            Box::pin(run.append(&mut self.log)).await?;
        }
        for saved in self.confirmations.drain(..) {
            // A node that was dropped meanwhile no longer waits.
            _ = saved.send(());
        }
        self.publish().await
    }

    /// Returns the reader of the pieces of models' answers, if the run has readers of them.
    pub(super) fn delta_reader(&self) -> Option<Arc<dyn DeltaReader>> {
        self.log.delta_reader()
    }

    /// Returns the stream of the run, if it has the updates of tasks.
    pub(super) fn updates_stream(&self) -> Option<&StreamSender> {
        self.log.stream().filter(|it| it.wants(StreamMode::Updates))
    }

    /// Returns whether the state after each step is streamed.
    pub(super) fn wants_values(&self) -> bool {
        self.log.stream().is_some_and(|it| it.wants(StreamMode::Values))
    }

    /// Publishes the events that are saved.
    pub(super) async fn publish(&mut self) -> Result<(), RunError> {
        Ok(self.log.publish().await?)
    }

    /// Releases a new run that stopped before its first task.
    pub(super) async fn release(mut self) -> Result<(), RunError> {
        self.target.release().await?;
        self.publish().await
    }

    /// Stops the run on a full disk, in the space that storage reserves for that. First tries to save the pending entry
    /// with this status. If that fails, drops the entry and saves the status alone. If even that fails, the run is in the
    /// state that a crash would leave.
    pub(super) async fn save_on_full_disk(&mut self, status: RunStatus, event: Event) {
        // The entry that did not fit may have been the final one; that was tried already.
        if !self.target.has_unsaved_status() {
            self.add_status(status.clone(), event.clone());
            if self.save().await.is_ok() {
                return;
            }
        }
        self.target.discard_unsaved();
        self.log.discard_unpublished();
        self.add_status(status, event);
        drop(self.save().await);
    }
}
