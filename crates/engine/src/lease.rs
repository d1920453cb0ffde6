//! Keeps the lease of a run while its nodes work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use graphrun_core::{
    fault::{self, Point},
    id::RunId,
};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{
    CheckpointError, Checkpointer, Claim, Entry, LeaseToken, Presence, RunInfo,
};

/// How many times a lease is renewed during its duration.
const BEATS_PER_LEASE: u32 = 3;

/// The lease of a run. A separate thread renews it, so that a node that blocks the runtime does not make the
/// process look dead.
///
/// When dropped before the run stopped, it releases the run, as soon as that thread reacts.
#[derive(Debug)]
pub(super) struct Lease {
    storage: Arc<dyn Checkpointer>,
    hold: LeaseToken,
    shared: Arc<Shared>,
    beat: Option<Thread>,
    /// Shows other runs of this process that the owner is alive.
    _presence: Presence,
}

#[derive(Debug, Default)]
struct Shared {
    wish: AtomicU8,
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
        // If the thread cannot start, the lease expires after its duration; the fencing token protects the
        // run.
        let beat = thread::Builder::new().name("lease".to_owned()).spawn(move || beat.run());
        let beat = beat.map(|it| it.thread().clone()).ok();
        Self { storage, hold, shared, beat, _presence: presence }
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
        if let Some(beat) = &self.beat {
            beat.unpark();
        }
    }
}

struct Beat {
    storage: Arc<dyn Checkpointer>,
    hold: LeaseToken,
    ttl: Duration,
    shared: Arc<Shared>,
}

impl Beat {
    fn run(self) {
        let pause = self.ttl / BEATS_PER_LEASE;
        let mut renewed = Instant::now();
        let mut next = renewed + pause;
        loop {
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
            match self.shared.wish.load(Ordering::Acquire) {
                KEEP => (),
                GIVE_BACK => {
                    // If this fails, the lease expires and the run is free again.
                    drop(wait_for(self.storage.release(&self.hold)));
                    return;
                }
                _ => return,
            }
            if Instant::now() < next {
                continue;
            }
            let renewal = async {
                fault::hit(Point::LeaseRenew).map_err(CheckpointError::injected)?;
                self.storage.renew(&self.hold, self.ttl).await
            };
            match wait_for(renewal) {
                Some(Ok(())) => renewed = Instant::now(),
                Some(Err(CheckpointError::Overtaken { .. } | CheckpointError::UnknownRun(_))) => {
                    self.shared.lost.cancel();
                    return;
                }
                // The storage may become reachable again in time.
                Some(Err(_)) | None if renewed.elapsed() < self.ttl => (),
                Some(Err(_)) | None => {
                    self.shared.lost.cancel();
                    return;
                }
            }
            next = Instant::now() + pause;
        }
    }
}

/// Blocks on a runtime of this thread, which no other work can delay.
fn wait_for<T>(work: impl Future<Output = T>) -> Option<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
    Some(runtime.block_on(work))
}
