//! Keeps the leases of runs while their nodes work.

use std::{
    future::pending,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU8, Ordering},
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
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{
    CheckpointError, Checkpointer, Claim, Entry, LeaseToken, Presence, RunInfo,
};

/// How many times a lease is renewed during its duration.
const BEATS_PER_LEASE: u32 = 3;

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
/// When dropped before the run stopped, it releases the run, as soon as that thread reacts.
#[derive(Debug)]
pub(super) struct Lease {
    storage: Arc<dyn Checkpointer>,
    hold: LeaseToken,
    shared: Arc<Shared>,
    /// Shows other runs of this process that the owner is alive.
    _presence: Presence,
}

#[derive(Debug, Default)]
struct Shared {
    wish: AtomicU8,
    /// Signals that the wish may have changed.
    dropped: Notify,
    lost: CancellationToken,
}

const KEEP: u8 = 0;
/// The run stopped, and the storage released the lease in the same transaction.
const FORGET: u8 = 1;
const GIVE_BACK: u8 = 2;

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
        let hold = storage.create(info, &claim, first).await?;
        Ok(Self::keep(storage, hold, ttl, presence))
    }

    /// Takes a run that has no owner, or whose owner is known to be dead.
    pub(super) async fn acquire(
        storage: &Arc<dyn Checkpointer>,
        run: &RunId,
        ttl: Duration,
    ) -> Result<Self, CheckpointError> {
        let presence = Presence::new();
        let claim = Claim { owner: presence.owner().clone(), ttl, over: None };
        let hold = match storage.acquire(run, &claim).await {
            Err(CheckpointError::Owned { holder, .. }) if holder.owner.is_gone() => {
                // Of several processes that see the dead owner, only one replaces exactly this lease.
                let claim = Claim { over: Some(holder.fence), ..claim };
                storage.acquire(run, &claim).await?
            }
            result => result?,
        };
        Ok(Self::keep(storage, hold, ttl, presence))
    }

    fn keep(
        storage: &Arc<dyn Checkpointer>,
        hold: LeaseToken,
        ttl: Duration,
        presence: Presence,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let storage = Arc::clone(storage);
        let beat = Beat {
            storage: Arc::clone(&storage),
            hold: hold.clone(),
            ttl,
            shared: Arc::clone(&shared),
        };
        if let Some(renewals) = &*RENEWALS {
            renewals.spawn(beat.run());
        }
        Self { storage, hold, shared, _presence: presence }
    }

    /// Returns the right to write.
    pub(super) fn hold(&self) -> &LeaseToken {
        &self.hold
    }

    /// Waits until another process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lost(&self) {
        self.shared.lost.cancelled().await;
    }

    /// Returns whether another process owns the run.
    pub(super) fn is_lost(&self) -> bool {
        self.shared.lost.is_cancelled()
    }

    /// Returns the lease with the result; on an error it releases the run first. A process that ends with
    /// this error would not wait until the lease thread releases the run.
    pub(super) async fn or_give_back<T, E>(self, made: Result<T, E>) -> Result<(Self, T), E> {
        match made {
            Ok(made) => Ok((self, made)),
            Err(refused) => {
                // If this fails, the lease expires and the run is free again.
                drop(self.storage.release(&self.hold).await);
                self.forget();
                Err(refused)
            }
        }
    }

    /// Ends the lease without a release: the storage released it when the run stopped.
    pub(super) fn forget(&self) {
        self.shared.wish.store(FORGET, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let wish = &self.shared.wish;
        let _ = wish.compare_exchange(KEEP, GIVE_BACK, Ordering::AcqRel, Ordering::Acquire);
        self.shared.dropped.notify_one();
    }
}

struct Beat {
    storage: Arc<dyn Checkpointer>,
    hold: LeaseToken,
    ttl: Duration,
    shared: Arc<Shared>,
}

impl Beat {
    async fn run(self) {
        let pause = self.ttl / BEATS_PER_LEASE;
        let mut renewed = Instant::now();
        let mut next = renewed + pause;
        loop {
            tokio::select! {
                () = sleep_until(next) => (),
                () = self.shared.dropped.notified() => (),
            }
            match self.shared.wish.load(Ordering::Acquire) {
                KEEP => (),
                GIVE_BACK => {
                    // If this fails, the lease expires and the run is free again.
                    drop(self.storage.release(&self.hold).await);
                    return;
                }
                _ => return,
            }
            if Instant::now() < next {
                continue;
            }
            match self.renew().await {
                Ok(()) => renewed = Instant::now(),
                // The storage may become reachable again in time.
                Err(error) if !is_taken(&error) && renewed.elapsed() < self.ttl => (),
                Err(_) => {
                    self.shared.lost.cancel();
                    return;
                }
            }
            next = Instant::now() + pause;
        }
    }

    async fn renew(&self) -> Result<(), CheckpointError> {
        fault::hit(Point::LeaseRenew).map_err(CheckpointError::injected)?;
        self.storage.renew(&self.hold, self.ttl).await
    }
}

/// Returns whether another process owns the run for certain.
fn is_taken(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Overtaken { .. } | CheckpointError::UnknownRun(_))
}
