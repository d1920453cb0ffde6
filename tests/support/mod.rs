//! What several test files need.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Claim, Entry, Hold, Logged, Message, Position, Posted,
        RunInfo, RunSummary, SavedRun,
    },
    graph::NodeContext,
    id::{ChannelName, RunId, Step, TaskId},
    llm::{ChatModel, ModelError, Replay},
    nodes::ModelSource,
    sandbox::default_cache_dir,
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
        claim: &Claim,
        first: &Entry,
    ) -> Result<Hold, CheckpointError> {
        self.write()?;
        self.inner.create(info, claim, first).await
    }

    async fn acquire(&self, run: &RunId, claim: &Claim) -> Result<Hold, CheckpointError> {
        self.write()?;
        self.inner.acquire(run, claim).await
    }

    async fn renew(&self, hold: &Hold, ttl: Duration) -> Result<(), CheckpointError> {
        self.inner.renew(hold, ttl).await
    }

    async fn release(&self, _: &Hold) -> Result<(), CheckpointError> {
        // The dead give nothing back.
        Ok(())
    }

    async fn append(&self, hold: &Hold, entry: &Entry) -> Result<(), CheckpointError> {
        self.write()?;
        self.inner.append(hold, entry).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.inner.load(run).await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        self.inner.find(id_or_name).await
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, CheckpointError> {
        self.inner.page(before, limit).await
    }

    async fn journal(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>, CheckpointError> {
        self.inner.journal(run, after, limit).await
    }

    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        self.inner.post(run, message).await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        self.inner.inbox(run, after).await
    }

    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        self.inner.remove(run).await
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<(Position, BTreeMap<ChannelName, Value>), CheckpointError> {
        self.inner.checkpoint_at(run, step).await
    }
}

/// One recording in the place of every model.
#[derive(Debug)]
pub(crate) struct Recorded(pub(crate) Arc<Replay>);

impl ModelSource for Recorded {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}

/// Where the environments of generated code are kept over all test runs.
pub(crate) fn cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (home, cache) = (variable("HOME"), variable("XDG_CACHE_HOME"));
    default_cache_dir(home.as_deref(), cache.as_deref()).expect("HOME is set")
}
