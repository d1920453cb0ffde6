//! A storage with injected faults.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Detail, Entry, InboxMessage, JournalEntry, LeaseRequest,
        LeaseToken, Message, Presence, RunHistory, RunInbox, RunInfo, RunJournal, RunLeases,
        RunList, RunListItem, RunMaintenance, RunSummary, SavedCheckpoint, SavedRun,
    },
    id::{RunId, Step},
};
use tokio::time::sleep;

/// The fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happens {
    Nothing,
    /// It is delayed.
    Late(Duration),
    /// It is not made.
    Refused,
    /// It is made, and returns an error.
    Unnoticed,
    /// Another process has acquired the run before.
    Stolen,
}

/// A storage whose writes get faults by their number.
pub(crate) struct Disturbed {
    inner: Arc<dyn Checkpointer>,
    writes: AtomicUsize,
    fate: Fate,
    renewals: AtomicUsize,
    fate_of_renewal: Fate,
}

/// The fault of each write, by its number.
type Fate = Box<dyn Fn(usize) -> Happens + Send + Sync>;

impl Disturbed {
    /// Takes the fault of each write; the number of the first write is zero.
    pub(crate) fn new(
        inner: Arc<dyn Checkpointer>,
        fate: impl Fn(usize) -> Happens + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            writes: AtomicUsize::new(0),
            fate: Box::new(fate),
            renewals: AtomicUsize::new(0),
            fate_of_renewal: Box::new(|_| Happens::Nothing),
        }
    }

    /// Takes the fault of each renewal of a lease; the number of the first one is zero.
    pub(crate) fn with_renewals(
        self,
        fate: impl Fn(usize) -> Happens + Send + Sync + 'static,
    ) -> Self {
        Self { fate_of_renewal: Box::new(fate), ..self }
    }

    /// Returns a storage that fails every write from a number on, like a process that died there.
    pub(crate) fn dying_after(writes: usize, inner: Arc<dyn Checkpointer>) -> Self {
        let fate = move |nth: usize| if nth < writes { Happens::Nothing } else { Happens::Refused };
        Self::new(inner, fate)
    }

    /// Makes a write, unless it has a fault. `hold` is the lease, if there is one.
    async fn write<T>(
        &self,
        token: Option<&LeaseToken>,
        write: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let happens = (self.fate)(self.writes.fetch_add(1, Ordering::SeqCst));
        self.happen(happens, token, write).await
    }

    async fn happen<T>(
        &self,
        happens: Happens,
        token: Option<&LeaseToken>,
        write: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let lost = || CheckpointError::Storage {
            action: "write after the crash".into(),
            source: "injected".into(),
        };
        match happens {
            Happens::Nothing => write.await,
            Happens::Late(time) => {
                sleep(time).await;
                write.await
            }
            Happens::Refused => Err(lost()),
            Happens::Unnoticed => {
                write.await?;
                Err(lost())
            }
            Happens::Stolen => {
                if let Some(token) = token {
                    self.steal(token).await;
                }
                write.await
            }
        }
    }

    /// Acquires a run, like a process that considers its owner dead, and dies.
    async fn steal(&self, token: &LeaseToken) {
        let presence = Presence::new();
        let ttl = Duration::from_secs(60);
        let request = LeaseRequest {
            owner: presence.owner().clone(),
            ttl,
            replaces_fence: Some(token.fence),
        };
        // A stopped run has no owner; then this claim has no effect.
        drop(self.inner.acquire(&token.run, &request).await);
    }
}

impl fmt::Debug for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disturbed({:?})", self.inner)
    }
}

#[async_trait]
impl RunJournal for Disturbed {
    async fn create(
        &self,
        info: &RunInfo,
        request: &LeaseRequest,
        first: &Entry,
    ) -> Result<LeaseToken, CheckpointError> {
        self.write(None, self.inner.create(info, request, first)).await
    }

    async fn append(&self, token: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError> {
        self.write(Some(token), self.inner.append(token, entry)).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.inner.load(run).await
    }
}

#[async_trait]
impl RunLeases for Disturbed {
    async fn acquire(
        &self,
        run: &RunId,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, CheckpointError> {
        self.write(None, self.inner.acquire(run, request)).await
    }

    async fn renew(&self, token: &LeaseToken, ttl: Duration) -> Result<(), CheckpointError> {
        let happens = (self.fate_of_renewal)(self.renewals.fetch_add(1, Ordering::SeqCst));
        self.happen(happens, Some(token), self.inner.renew(token, ttl)).await
    }

    async fn release(&self, _: &LeaseToken) -> Result<(), CheckpointError> {
        // A dead process releases nothing.
        Ok(())
    }
}

#[async_trait]
impl RunInbox for Disturbed {
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        self.inner.post(run, message).await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<InboxMessage>, CheckpointError> {
        self.inner.inbox(run, after).await
    }
}

#[async_trait]
impl RunList for Disturbed {
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        self.inner.find(id_or_name).await
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunListItem>, CheckpointError> {
        self.inner.page(before, limit).await
    }

    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        self.inner.ids().await
    }
}

#[async_trait]
impl RunHistory for Disturbed {
    async fn entries(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        self.inner.entries(run, after, limit, detail).await
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        self.inner.checkpoint_at(run, step).await
    }
}

#[async_trait]
impl RunMaintenance for Disturbed {
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        self.inner.remove(run).await
    }
}
