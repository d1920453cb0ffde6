//! A server with runs: what this process keeps of them between transactions.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use graphrun_engine::checkpoint::{CheckpointError, LeaseToken};

use super::{
    cached_heads::CachedHeads,
    group::GroupedWrite,
    renewals::Renewal,
    session::{Server, unfinished},
};
use crate::{group::Group, journal::Codec, open_steps::OpenSteps};

/// A server with runs.
pub(super) struct RunServer {
    pub(super) server: Arc<Server>,
    codec: Mutex<Codec>,
    open_steps: Mutex<OpenSteps>,
    heads: Mutex<CachedHeads>,
    group: Group<GroupedWrite, LeaseToken>,
    renewals: Group<Renewal, ()>,
}

impl RunServer {
    pub(super) fn new(server: Arc<Server>) -> Result<Self, CheckpointError> {
        let open_steps = Mutex::default();
        let heads = Mutex::default();
        let group = Group::default();
        let renewals = Group::default();
        Ok(Self { server, codec: Mutex::new(new_codec()?), open_steps, heads, group, renewals })
    }

    /// Returns the cache of open steps.
    pub(super) fn open_steps(&self) -> MutexGuard<'_, OpenSteps> {
        self.open_steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cache of heads.
    pub(super) fn heads(&self) -> MutexGuard<'_, CachedHeads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the runs and the entries that wait for the next transaction.
    pub(super) fn group(&self) -> &Group<GroupedWrite, LeaseToken> {
        &self.group
    }

    /// Returns the leases that wait for their renewal.
    pub(super) fn renewals(&self) -> &Group<Renewal, ()> {
        &self.renewals
    }

    /// Borrows the codec. A panic of another borrower left nothing half-done.
    pub(super) fn with_codec<T>(&self, work: impl FnOnce(&mut Codec) -> T) -> T {
        work(&mut self.codec.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Computes a value from rows. This may take long, so it does not block the runtime.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        make: impl FnOnce(&mut Codec) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let work = || make(&mut new_codec()?);
        let computed = async {
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|it| Err(unfinished(it)))
        };
        self.server.spawn(computed).await
    }
}

fn new_codec() -> Result<Codec, CheckpointError> {
    Codec::new().map_err(|error| CheckpointError::Storage {
        action: "decompress the journal".to_owned(),
        source: error.into(),
    })
}

impl fmt::Debug for RunServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}
