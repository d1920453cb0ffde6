//! A memory of runs that also remembers every position, and not only the last.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    checkpoint::{
        CheckpointError, Checkpointer, Commit, Position, RunInfo, RunSummary, SavedRun, TaskRecord,
    },
    event::{Stamped, Status},
    id::{ChannelName, RunId, Step},
    storage::MemoryStorage,
};

/// Keeps one run and all its positions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    storage: MemoryStorage,
    positions: Mutex<Vec<Position>>,
}

impl Memory {
    /// Where the run stood before its first step and after each.
    pub(super) fn positions(&self) -> Vec<Position> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, commit: &Commit) {
        let mut positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        positions.push(commit.position.clone());
    }
}

#[async_trait]
impl Checkpointer for Memory {
    async fn create(
        &self,
        info: &RunInfo,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.remember(commit);
        self.storage.create(info, commit, events).await
    }

    async fn record(
        &self,
        run: &RunId,
        record: &TaskRecord,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.storage.record(run, record, events).await
    }

    async fn commit(
        &self,
        run: &RunId,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.remember(commit);
        self.storage.commit(run, commit, events).await
    }

    async fn set_status(
        &self,
        run: &RunId,
        status: Status,
        reason: Option<&str>,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.storage.set_status(run, status, reason, events).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.storage.load(run).await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        self.storage.find(id_or_name).await
    }

    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.storage.list().await
    }

    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        self.storage.events(run, after).await
    }

    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        self.storage.records(run).await
    }

    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        self.storage.values_at(run, step).await
    }
}
