//! What several test files need.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Commit, RunInfo, RunSummary, SavedRun, TaskRecord,
    },
    event::{Stamped, Status},
    graph::NodeContext,
    id::{ChannelName, RunId, Step, TaskId},
};
use serde_json::Value;

/// Counts outside the engine how often each task did its work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<TaskId, u32>>>);

impl Ledger {
    pub(crate) fn done(&self, ctx: &NodeContext) {
        *self.0.lock().unwrap().entry(ctx.task).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<TaskId, u32> {
        self.0.lock().unwrap().clone()
    }
}

/// A storage that fails every write from one on, as if the process had died there.
#[derive(Debug)]
pub(crate) struct Dying {
    inner: Arc<dyn Checkpointer>,
    writes_left: AtomicUsize,
}

impl Dying {
    pub(crate) fn after(writes: usize, inner: Arc<dyn Checkpointer>) -> Self {
        Self { inner, writes_left: writes.into() }
    }

    fn write(&self) -> Result<(), CheckpointError> {
        let spent = self
            .writes_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
        spent.map(drop).map_err(|_| CheckpointError::Storage {
            action: "write after the crash".into(),
            source: "injected".into(),
        })
    }
}

#[async_trait]
impl Checkpointer for Dying {
    async fn create(
        &self,
        info: &RunInfo,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.write()?;
        self.inner.create(info, commit, events).await
    }

    async fn record(
        &self,
        run: &RunId,
        record: &TaskRecord,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.write()?;
        self.inner.record(run, record, events).await
    }

    async fn commit(
        &self,
        run: &RunId,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.write()?;
        self.inner.commit(run, commit, events).await
    }

    async fn set_status(
        &self,
        run: &RunId,
        status: Status,
        reason: Option<&str>,
        events: &[Stamped],
    ) -> Result<(), CheckpointError> {
        self.write()?;
        self.inner.set_status(run, status, reason, events).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.inner.load(run).await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        self.inner.find(id_or_name).await
    }

    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError> {
        self.inner.list().await
    }

    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError> {
        self.inner.events(run, after).await
    }

    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError> {
        self.inner.records(run).await
    }

    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError> {
        self.inner.values_at(run, step).await
    }
}
