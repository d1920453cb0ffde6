//! The journal of the driven run: which results are saved together, and what waits until they are durable.

use std::sync::Arc;

use graphrun_core::{
    event::{Event, Status},
    fault::{self, Point},
    graph::DeltaReader,
    state::State,
};
use tokio::sync::oneshot;
use tracing::{Instrument, debug_span};

use super::{
    Engine, RunError,
    lease::Lease,
    log::{Log, event_of, event_of_message},
    storage::{MemoryStorage, rules::stops_run},
    stream::{Sender, StreamMode},
    superstep::{Machine, ProcessedMessage},
};
use crate::checkpoint::{
    CheckpointError, Checkpointer, Commit, Entry, Outline, RunInfo, RunStatus, TaskRecord,
};

/// Collects the next entry of the journal, saves it, and then publishes its events.
///
/// An engine without storage keeps no journal, only the records of the open step: see [`JournalWriter::keep`].
#[derive(Debug)]
pub(super) struct JournalWriter {
    target: Target,
    log: Log,
    /// The entry that is not saved yet. Nothing may follow from it before it is durable.
    entry: Entry,
    /// The state after the step of the entry, if it is streamed.
    state: Option<Arc<State>>,
    /// The nodes that wait until their memo is saved.
    confirmations: Vec<oneshot::Sender<()>>,
}

/// Where a run is kept.
#[derive(Debug)]
enum Target {
    Storage {
        storage: Arc<dyn Checkpointer>,
        lease: Lease,
    },
    /// In the process, and only if it stops before its end.
    Process {
        kept: Arc<MemoryStorage>,
        info: Box<RunInfo>,
        /// The records of the open step.
        records: Vec<Arc<TaskRecord>>,
    },
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

    /// Begins a run of an engine without storage.
    pub(super) fn in_process(kept: Arc<MemoryStorage>, info: RunInfo, log: Log) -> Self {
        let target = Target::Process { kept, info: Box::new(info), records: Vec::new() };
        Self::at(target, log.in_process())
    }

    fn at(target: Target, log: Log) -> Self {
        let (entry, confirmations) = (Entry::default(), Vec::new());
        Self { target, log, entry, state: None, confirmations }
    }

    /// Continues the journal of a saved run.
    pub(super) fn new(engine: &Engine, lease: Lease, log: Log) -> Self {
        let target = Target::Storage { storage: Arc::clone(&engine.checkpointer), lease };
        Self::at(target, log)
    }

    /// Waits until another process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lease_lost(&self) {
        match &self.target {
            Target::Storage { lease, .. } => lease.lost().await,
            Target::Process { .. } => std::future::pending().await,
        }
    }

    /// Returns whether another process owns the run.
    pub(super) fn is_lease_lost(&self) -> bool {
        matches!(&self.target, Target::Storage { lease, .. } if lease.is_lost())
    }

    /// Adds the record of a task. A completed step is saved first: the record belongs to the next step.
    pub(super) async fn add_record(&mut self, record: Arc<TaskRecord>) -> Result<(), RunError> {
        self.save_step().await?;
        // The reports of a nested run show its progress.
        if !record.is_of_nested_run() {
            self.log.add_with(|| event_of(&record));
        }
        match &mut self.target {
            Target::Storage { .. } => self.entry.records.push(Arc::unwrap_or_clone(record)),
            Target::Process { records, .. } => {
                if let Some(stream) = self.log.stream() {
                    stream.send_update(&record);
                }
                records.push(record);
            }
        }
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
        self.entry.commit = Some(commit);
        self.state = state;
        Ok(())
    }

    /// Ends a step of a run that exists in this process only.
    pub(super) fn end_step(&mut self, machine: &Machine) {
        if let Target::Process { records, .. } = &mut self.target {
            records.clear();
        }
        let (step, next) = (machine.committed_step(), || machine.next_nodes());
        self.log.add_with(|| Event::StepCommitted { step, next: next() });
        if let Some(stream) = self.log.stream()
            && stream.wants(StreamMode::Values)
        {
            stream.send_values(step, machine.state().clone());
        }
    }

    /// Keeps a run of an engine without storage that stopped before its end, so that it can be resumed.
    pub(super) fn keep(&mut self, machine: &Machine, run_status: &RunStatus) {
        let Target::Process { kept, info, records } = &mut self.target else { return };
        if run_status.status == Status::Done {
            return;
        }
        let records = std::mem::take(records).into_iter().map(Arc::unwrap_or_clone).collect();
        let commit = Commit {
            position: machine.position(),
            changes: machine.state().as_changes().collect(),
        };
        let graph = Some(Box::new(Outline::of(machine.graph())));
        let info = RunInfo { graph, ..RunInfo::clone(info) };
        let entry = Entry { records, run_status: Some(run_status.clone()), ..Entry::default() };
        kept.keep(info, commit, entry, self.log.last_seq());
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
        if matches!(self.target, Target::Storage { .. }) {
            self.entry.run_status = Some(status);
        }
        self.log.add(event);
    }

    /// Adds a status of the run that needs no event.
    pub(super) fn set_status(&mut self, status: RunStatus) {
        self.entry.run_status = Some(status);
    }

    /// Adds an event that is published once it is saved.
    pub(super) fn add_event(&mut self, event: Event) {
        self.log.add(event);
    }

    /// Reports that the run has reached a node. The step that reached it is durable before that.
    pub(super) async fn emit(&mut self, event: impl FnOnce() -> Event) {
        if self.entry.commit.is_some() {
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
        if self.entry.commit.is_some() { self.save().await } else { Ok(()) }
    }

    /// Saves the pending entry, then publishes its events.
    pub(super) async fn save(&mut self) -> Result<(), RunError> {
        if matches!(self.target, Target::Storage { .. }) {
            if self.entry.is_empty() {
                return Ok(());
            }
            // Boxed: a run without storage would otherwise move this future at each step.
            Box::pin(self.append()).await?;
        }
        for saved in self.confirmations.drain(..) {
            // A node that was dropped meanwhile no longer waits.
            _ = saved.send(());
        }
        self.publish().await
    }

    /// Saves the pending entry in the storage.
    async fn append(&mut self) -> Result<(), RunError> {
        let Target::Storage { storage, lease } = &self.target else { return Ok(()) };
        self.entry.events = self.log.unsaved();
        let span = debug_span!("storage", operation = "append", records = self.entry.records.len());
        storage.append(lease.hold(), &self.entry).instrument(span).await?;
        let entry = std::mem::take(&mut self.entry);
        if stops_run(&entry) {
            lease.forget();
        }
        fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
        self.stream(&entry);
        Ok(())
    }

    /// Returns the reader of the pieces of models' answers, if the run has readers of them.
    pub(super) fn delta_reader(&self) -> Option<Arc<dyn DeltaReader>> {
        self.log.delta_reader()
    }

    /// Returns the stream of the run, if it has the updates of tasks.
    pub(super) fn updates_stream(&self) -> Option<&Sender> {
        self.log.stream().filter(|it| it.wants(StreamMode::Updates))
    }

    /// Returns whether the state after each step is streamed.
    pub(super) fn streams_values(&self) -> bool {
        self.log.stream().is_some_and(|it| it.wants(StreamMode::Values))
    }

    /// Streams the writes and the state of an entry that is saved.
    fn stream(&mut self, entry: &Entry) {
        let Some(stream) = self.log.stream() else { return };
        entry.records.iter().for_each(|it| stream.send_update(it));
        if let (Some(commit), Some(state)) = (&entry.commit, self.state.take()) {
            stream.send_values(commit.position.step, state);
        }
    }

    /// Publishes the events that are saved.
    pub(super) async fn publish(&mut self) -> Result<(), RunError> {
        Ok(self.log.publish().await?)
    }

    /// Releases a new run that stopped before its first task.
    pub(super) async fn release(mut self) -> Result<(), RunError> {
        if let Target::Storage { storage, lease } = &self.target {
            storage.release(lease.hold()).await?;
            lease.forget();
        }
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
