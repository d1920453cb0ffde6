//! Keeps the leases of runs while their nodes work.

use std::{
    future::pending,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use graphrun_core::{
    fault::{self, Point},
    id::RunId,
};
use tokio::{
    runtime::{self, Handle},
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::checkpoint::{
    CheckpointError, Checkpointer, Claim, Entry, LeaseToken, Presence, RunInfo,
};

/// How many times a lease is renewed during its duration.
const RENEWALS_PER_LEASE: u32 = 3;

/// The runtime of the thread that renews the leases of all runs of this process. None if it could not start: then a
/// lease expires after its duration, and the fencing token protects the run.
static RENEWALS: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    let renew = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("lease".to_owned()).spawn(renew).ok()?;
    Some(handle)
});

/// The lease of a run. A separate thread renews it, so that a node that blocks the runtime does not make the
/// process look dead.
///
/// When dropped before the run stopped, that thread releases the run.
#[derive(Debug)]
pub(super) struct Lease {
    storage: Arc<dyn Checkpointer>,
    token: LeaseToken,
    /// Whether the storage released the lease already, in the transaction with which the run stopped.
    is_released: AtomicBool,
    lost: CancellationToken,
    _renewal: Option<AbortOnDropHandle<()>>,
    /// Shows other runs of this process that the owner is alive.
    _presence: Presence,
}

impl Lease {
    /// Creates a new run and takes its lease.
    pub(super) async fn create(
        storage: &Arc<dyn Checkpointer>,
        info: &RunInfo,
        first: &Entry,
        ttl: Duration,
    ) -> Result<Self, CheckpointError> {
        let presence = Presence::new();
        let claim = Claim { owner: presence.owner().clone(), ttl, over: None };
        let token = storage.create(info, &claim, first).await?;
        Ok(Self::keep(storage, token, ttl, presence))
    }

    /// Takes a run that has no owner, or whose owner is known to be dead.
    pub(super) async fn acquire(
        storage: &Arc<dyn Checkpointer>,
        run: &RunId,
        ttl: Duration,
    ) -> Result<Self, CheckpointError> {
        let presence = Presence::new();
        let claim = Claim { owner: presence.owner().clone(), ttl, over: None };
        let token = match storage.acquire(run, &claim).await {
            Err(CheckpointError::Owned { holder, .. }) if holder.owner.is_gone() => {
                // Of several processes that see the dead owner, only one replaces exactly this lease.
                let claim = Claim { over: Some(holder.fence), ..claim };
                storage.acquire(run, &claim).await?
            }
            result => result?,
        };
        Ok(Self::keep(storage, token, ttl, presence))
    }

    fn keep(
        storage: &Arc<dyn Checkpointer>,
        token: LeaseToken,
        ttl: Duration,
        presence: Presence,
    ) -> Self {
        let lost = CancellationToken::new();
        let renewal = Renewal {
            storage: Arc::downgrade(storage),
            token: token.clone(),
            ttl,
            lost: lost.clone(),
        };
        let spawn = |it: &Handle| AbortOnDropHandle::new(it.spawn(renewal.run()));
        let renewal = RENEWALS.as_ref().map(spawn);
        Self {
            storage: Arc::clone(storage),
            token,
            is_released: AtomicBool::new(false),
            lost,
            _renewal: renewal,
            _presence: presence,
        }
    }

    /// Returns the right to write.
    pub(super) fn token(&self) -> &LeaseToken {
        &self.token
    }

    /// Waits until another process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Returns whether another process owns the run.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Returns the lease with the result; on an error it releases the run first. A process that ends with
    /// this error would not wait until the lease thread releases the run.
    pub(super) async fn or_release<T, E>(self, made: Result<T, E>) -> Result<(Self, T), E> {
        match made {
            Ok(made) => Ok((self, made)),
            Err(refused) => {
                // If this fails, the lease expires and the run is free again.
                drop(self.storage.release(&self.token).await);
                self.forget();
                Err(refused)
            }
        }
    }

    /// Ends the lease without a release: the storage released it when the run stopped.
    pub(super) fn forget(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if *self.is_released.get_mut() {
            return;
        }
        let (storage, token) = (Arc::clone(&self.storage), self.token.clone());
        if let Some(renewals) = &*RENEWALS {
            // If this fails, the lease expires and the run is free again.
            renewals.spawn(async move { drop(storage.release(&token).await) });
        }
    }
}

struct Renewal {
    /// Not kept open: the database is closed as soon as the run stopped.
    storage: Weak<dyn Checkpointer>,
    token: LeaseToken,
    ttl: Duration,
    lost: CancellationToken,
}

impl Renewal {
    async fn run(self) {
        let pause = self.ttl / RENEWALS_PER_LEASE;
        let mut renewed = Instant::now();
        loop {
            sleep(pause).await;
            match self.renew().await {
                Ok(()) => renewed = Instant::now(),
                // The storage may become reachable again in time.
                Err(error) if !is_taken(&error) && renewed.elapsed() < self.ttl => (),
                Err(_) => return self.lost.cancel(),
            }
        }
    }

    async fn renew(&self) -> Result<(), CheckpointError> {
        fault::hit(Point::LeaseRenew).map_err(CheckpointError::injected)?;
        match self.storage.upgrade() {
            Some(storage) => storage.renew(&self.token, self.ttl).await,
            None => Ok(()),
        }
    }
}

/// Returns whether another process owns the run for certain.
fn is_taken(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Overtaken { .. } | CheckpointError::UnknownRun(_))
}
