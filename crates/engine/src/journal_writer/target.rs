//! Where a driven run is kept: in storage, or in this process only.

use std::{future::pending, sync::Arc};

use graphrun_core::{event::Status, fault, state::State};
use tracing::{Instrument, debug_span};

use crate::{
    RunError,
    checkpoint::{
        CheckpointError, Checkpointer, Commit, Entry, GraphOutline, Migration, RunInfo, RunStatus,
        TaskRecord,
    },
    lease::Lease,
    log::Log,
    machine::Machine,
    storage::{InMemoryStorage, rules::stops_run},
    stream::StreamSender,
};

/// Where a run is kept.
#[derive(Debug)]
pub(super) enum Target {
    Storage(Box<StoredRun>),
    Process(ProcessRun),
}

/// A run that is saved entry by entry, by the owner of its lease.
#[derive(Debug)]
pub(super) struct StoredRun {
    storage: Arc<dyn Checkpointer>,
    lease: Lease,
    /// The entry that is not saved yet. Nothing may follow from it before it is durable.
    entry: Entry,
    /// The state after the step of the entry, if it is streamed.
    state: Option<Arc<State>>,
}

/// A run that exists in this process only. It is kept once, when it stops before its end.
#[derive(Debug)]
pub(super) struct ProcessRun {
    storage: Arc<InMemoryStorage>,
    info: Box<RunInfo>,
    /// The records of the open step.
    records: Vec<Arc<TaskRecord>>,
}

impl Target {
    pub(super) fn storage(storage: Arc<dyn Checkpointer>, lease: Lease) -> Self {
        Self::Storage(Box::new(StoredRun { storage, lease, entry: Entry::default(), state: None }))
    }

    pub(super) fn process(storage: Arc<InMemoryStorage>, info: RunInfo) -> Self {
        Self::Process(ProcessRun { storage, info: Box::new(info), records: Vec::new() })
    }

    /// Waits until it is no longer certain that this process owns the run.
    pub(super) async fn lease_lost(&self) {
        match self {
            Self::Storage(it) => it.lease.lost().await,
            Self::Process(_) => pending().await,
        }
    }

    /// Returns whether it is no longer certain that this process owns the run.
    pub(super) fn is_lease_lost(&self) -> bool {
        matches!(self, Self::Storage(it) if it.lease.is_lost())
    }

    /// Makes sure that this process owns the run, and returns whether it does.
    pub(super) async fn confirm_lease(&self) -> bool {
        match self {
            Self::Storage(it) => it.lease.confirm().await,
            Self::Process(_) => true,
        }
    }

    /// Adds a record to the open step. A record in this process is streamed at once: nothing saves it.
    pub(super) fn add_record(&mut self, record: Arc<TaskRecord>, stream: Option<&StreamSender>) {
        match self {
            Self::Storage(it) => it.entry.records.push(Arc::unwrap_or_clone(record)),
            Self::Process(it) => {
                stream.inspect(|it| it.send_update(&record));
                it.records.push(record);
            }
        }
    }

    /// Ends the open step with a commit, and with its state if that is streamed.
    pub(super) fn add_commit(&mut self, commit: Commit, state: Option<Arc<State>>) {
        if let Self::Storage(it) = self {
            it.entry.commit = Some(commit);
            it.state = state;
        }
    }

    /// Sets the migration that the step of the entry makes.
    pub(super) fn set_migration(&mut self, migration: Option<Box<Migration>>) {
        if let Self::Storage(it) = self {
            it.entry.migration = migration;
        }
    }

    /// Ends the open step of a run that exists in this process only.
    pub(super) fn end_step(&mut self) {
        if let Self::Process(it) = self {
            it.records.clear();
        }
    }

    /// Returns whether the step has ended and waits to be saved.
    pub(super) fn has_unsaved_step(&self) -> bool {
        matches!(self, Self::Storage(it) if it.entry.commit.is_some())
    }

    /// Sets the status that is saved next.
    pub(super) fn set_status(&mut self, status: RunStatus) {
        if let Self::Storage(it) = self {
            it.entry.run_status = Some(status);
        }
    }

    /// Returns whether the run is about to stop with a status that is not saved yet.
    pub(super) fn has_unsaved_status(&self) -> bool {
        matches!(self, Self::Storage(it) if it.entry.run_status.is_some())
    }

    /// Discards the results that are not saved yet.
    pub(super) fn discard_unsaved(&mut self) {
        if let Self::Storage(it) = self {
            it.entry = Entry::default();
        }
    }

    /// Releases the lease.
    pub(super) async fn release(&self) -> Result<(), RunError> {
        if let Self::Storage(it) = self {
            it.lease.release().await?;
        }
        Ok(())
    }
}

impl StoredRun {
    /// Returns whether nothing waits to be saved. Events alone wait for the next entry.
    pub(super) fn is_saved(&self) -> bool {
        self.entry.is_empty()
    }

    /// Saves the pending entry with the events of the log, then streams its writes and its state.
    pub(super) async fn append(&mut self, log: &mut Log) -> Result<(), RunError> {
        self.entry.events = log.take_unsaved();
        let span = debug_span!("storage", operation = "append", records = self.entry.records.len());
        let saved = self.storage.append(self.lease.token(), &self.entry).instrument(span).await;
        log.give_back(std::mem::take(&mut self.entry.events));
        saved?;
        let entry = std::mem::take(&mut self.entry);
        if stops_run(&entry) {
            self.lease.forget();
        }
        fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
        let Some(stream) = log.stream() else { return Ok(()) };
        entry.records.iter().for_each(|it| stream.send_update(it));
        if let (Some(commit), Some(state)) = (&entry.commit, self.state.take()) {
            stream.send_values(commit.position.step, state);
        }
        Ok(())
    }
}

impl ProcessRun {
    /// Keeps a run that stops before its end, so that it can be resumed.
    pub(super) fn keep(&mut self, machine: &Machine, run_status: &RunStatus, log: &Log) {
        if run_status.status == Status::Done {
            return;
        }
        let records = std::mem::take(&mut self.records);
        let records = records.into_iter().map(Arc::unwrap_or_clone).collect();
        let changes = machine.state().as_changes().collect();
        let commit = Commit { position: machine.position(), changes };
        let graph = Some(Arc::new(GraphOutline::of(machine.graph())));
        let info = RunInfo { graph, ..RunInfo::clone(&self.info) };
        let entry = Entry { records, run_status: Some(run_status.clone()), ..Entry::default() };
        self.storage.keep(info, commit, entry, log.last_seq(), log.now());
    }
}
