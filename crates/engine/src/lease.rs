//! Keeps the leases of runs while their nodes work.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use graphrun_core::{
    fault::{self, Point},
    id::RunId,
};
use tokio::{
    runtime::{self, Handle},
    sync::Notify,
    task::AbortHandle,
    time::{sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{
    CheckpointError, Checkpointer, Entry, LeaseRequest, LeaseToken, Presence, RunInfo,
};

/// How many times a lease is renewed during its duration.
const RENEWALS_PER_LEASE: u32 = 3;

/// The pause between renewals of a lease that lasts longer than a clock counts.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The renewals of this process. None if their thread could not start: then a lease expires after its duration, and
/// the fencing token protects the run.
static RENEWALS: LazyLock<Option<Renewals>> = LazyLock::new(Renewals::start);

/// The leases of all runs of this process, and the thread that renews them.
#[derive(Debug)]
struct Renewals {
    thread: Handle,
    schedule: Arc<Schedule>,
}

/// The leases in the order in which they are renewed.
///
/// A new lease is due after those before it, so the thread need not be woken for it, nor for one that ends. A run that
/// ends before its first renewal therefore costs the thread nothing.
#[derive(Debug, Default)]
struct Schedule {
    leases: Mutex<Leases>,
    /// Notified if a lease is due before the thread wakes up.
    is_earlier: Notify,
}

#[derive(Debug, Default)]
struct Leases {
    by_number: BTreeMap<u64, Renewal>,
    last_number: u64,
    /// When each is renewed next.
    due: BTreeSet<(Instant, u64)>,
    /// When the thread wakes up; none if it waits for a lease.
    wakes: Option<Instant>,
}

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
    /// Cancelled once it is no longer certain that this process owns the run.
    lost: CancellationToken,
    term: Arc<Mutex<Term>>,
    /// The number of its renewal.
    renewal: Option<u64>,
    /// Shows other runs of this process that the owner is alive.
    _presence: Presence,
}

/// The time for which a lease certainly lasts.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// The time before the lease was requested: the storage granted it later.
    start: Instant,
    /// The same time by another clock, which also counts while the machine is suspended.
    wall_start: SystemTime,
    ttl: Duration,
}

impl Term {
    fn begin(ttl: Duration) -> Self {
        Self { start: Instant::now(), wall_start: SystemTime::now(), ttl }
    }

    /// Returns whether the lease may have expired. A clock that was set ahead makes it look so.
    fn may_be_over(&self) -> bool {
        let is_over = |elapsed| elapsed >= self.ttl;
        is_over(self.start.elapsed()) || self.wall_start.elapsed().is_ok_and(is_over)
    }

    /// Returns when it ends, by the clock of timers.
    fn end(&self) -> Instant {
        later(self.start, self.ttl)
    }

    /// Returns when to renew the lease.
    fn next_renewal(&self) -> Instant {
        later(self.start, self.ttl / RENEWALS_PER_LEASE)
    }
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
        let request = LeaseRequest { owner: presence.owner().clone(), ttl, replaces_fence: None };
        let term = Term::begin(ttl);
        let token = storage.create(info, &request, first).await?;
        Ok(Self::keep(storage, token, term, presence))
    }

    /// Takes a run that has no owner, or whose owner is known to be dead.
    pub(super) async fn acquire(
        storage: &Arc<dyn Checkpointer>,
        run: &RunId,
        ttl: Duration,
    ) -> Result<Self, CheckpointError> {
        let presence = Presence::new();
        let request = LeaseRequest { owner: presence.owner().clone(), ttl, replaces_fence: None };
        let mut term = Term::begin(ttl);
        let token = match storage.acquire(run, &request).await {
            Err(CheckpointError::Owned { lease, .. }) if lease.owner.is_dead() => {
                // Of several processes that see the dead owner, only one replaces exactly this lease.
                let request = LeaseRequest { replaces_fence: Some(lease.fence), ..request };
                term = Term::begin(ttl);
                storage.acquire(run, &request).await?
            }
            result => result?,
        };
        Ok(Self::keep(storage, token, term, presence))
    }

    fn keep(
        storage: &Arc<dyn Checkpointer>,
        token: LeaseToken,
        term: Term,
        presence: Presence,
    ) -> Self {
        let lost = CancellationToken::new();
        let term = Arc::new(Mutex::new(term));
        let renewal = RENEWALS.as_ref().map(|renewal| {
            let lease = RenewedLease {
                storage: Arc::downgrade(storage),
                token: token.clone(),
                term: Arc::clone(&term),
            };
            renewal.schedule.add(lease, lost.clone())
        });
        Self {
            storage: Arc::clone(storage),
            token,
            is_released: AtomicBool::new(false),
            lost,
            term,
            renewal,
            _presence: presence,
        }
    }

    /// Returns the right to write.
    pub(super) fn token(&self) -> &LeaseToken {
        &self.token
    }

    /// Waits until it is no longer certain that this process owns the run.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Returns whether it is no longer certain that this process owns the run.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Makes sure that this process owns the run, and returns whether it does. After the process was stopped or the machine was
    /// suspended, the lease may have expired, and the thread that renews it was stopped, too.
    pub(super) async fn confirm(&self) -> bool {
        // Without that thread, only the fencing token protects the run.
        if self.renewal.is_some() && !self.is_lost() && current(&self.term).may_be_over() {
            let ttl = current(&self.term).ttl;
            let next = Term::begin(ttl);
            match self.storage.renew(&self.token, ttl).await {
                Ok(()) => extend(&self.term, next),
                Err(_) => self.lost.cancel(),
            }
        }
        !self.is_lost()
    }

    /// Releases the run if the result is an error, and returns the result. A process that ends with this error would not
    /// wait until the lease thread releases the run.
    pub(super) async fn release_on_error<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            // If this fails, the lease expires and the run is free again.
            drop(self.release().await);
        }
        result
    }

    /// Releases the run. If this fails, dropping the lease tries it again.
    pub(super) async fn release(&self) -> Result<(), CheckpointError> {
        self.storage.release(&self.token).await?;
        self.forget();
        Ok(())
    }

    /// Ends the lease without a release: the storage released it when the run stopped.
    pub(super) fn forget(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(renewals) = &*RENEWALS else { return };
        if let Some(number) = self.renewal {
            renewals.schedule.remove(number);
        }
        if !*self.is_released.get_mut() {
            let storage = Arc::clone(&self.storage);
            let token = self.token.clone();
            // If this fails, the lease expires and the run is free again.
            renewals.thread.spawn(async move { drop(storage.release(&token).await) });
        }
    }
}

/// The renewal of a lease.
#[derive(Debug)]
struct Renewal {
    lease: RenewedLease,
    lost: CancellationToken,
    /// When it is renewed next; none while it is being renewed.
    due: Option<Instant>,
    /// The attempt that may be at work.
    attempt: Option<AbortHandle>,
}

/// What renews a lease.
#[derive(Clone, Debug)]
struct RenewedLease {
    /// Not kept open: the database is closed as soon as the run stopped.
    storage: Weak<dyn Checkpointer>,
    token: LeaseToken,
    term: Arc<Mutex<Term>>,
}

impl Renewals {
    fn start() -> Option<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let thread = runtime.handle().clone();
        let schedule = Arc::<Schedule>::default();
        let renewing = Arc::clone(&schedule);
        let renew = move || runtime.block_on(renewing.renew_all());
        thread::Builder::new().name("lease".to_owned()).spawn(renew).ok()?;
        Some(Self { thread, schedule })
    }
}

impl Schedule {
    /// Adds a lease that was just taken, and returns the number of its renewal.
    fn add(&self, lease: RenewedLease, lost: CancellationToken) -> u64 {
        let mut leases = self.leases();
        leases.last_number += 1;
        let number = leases.last_number;
        let due = lease.term().next_renewal();
        leases.by_number.insert(number, Renewal { lease, lost, due: None, attempt: None });
        self.plan(&mut leases, number, due);
        number
    }

    /// Ends the renewal of a lease.
    fn remove(&self, number: u64) {
        let mut leases = self.leases();
        let Some(removed) = leases.by_number.remove(&number) else { return };
        if let Some(due) = removed.due {
            leases.due.remove(&(due, number));
        }
        if let Some(attempt) = removed.attempt {
            attempt.abort();
        }
    }

    /// Plans the next renewal of a lease.
    fn plan(&self, leases: &mut Leases, number: u64, due: Instant) {
        let Some(renewal) = leases.by_number.get_mut(&number) else { return };
        renewal.due = Some(due);
        leases.due.insert((due, number));
        if leases.wakes.is_none_or(|it| due < it) {
            leases.wakes = Some(due);
            self.is_earlier.notify_one();
        }
    }

    /// Renews all leases when they are due.
    async fn renew_all(self: Arc<Self>) {
        loop {
            match self.start_due() {
                Some(wakes) => tokio::select! {
                    () = sleep_until(wakes.into()) => (),
                    () = self.is_earlier.notified() => (),
                },
                None => self.is_earlier.notified().await,
            }
        }
    }

    /// Starts the renewals that are due, and returns when the next one is.
    fn start_due(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let mut leases = self.leases();
        while let Some((_, number)) = leases.due.first().copied().filter(|(due, _)| *due <= now) {
            leases.due.pop_first();
            if let Some(renewal) = leases.by_number.get_mut(&number) {
                renewal.due = None;
                let renew = Arc::clone(self).renew(number, renewal.lease.clone());
                renewal.attempt = Some(tokio::spawn(renew).abort_handle());
            }
        }
        leases.wakes = leases.due.first().map(|(due, _)| *due);
        leases.wakes
    }

    /// Renews a lease once, and plans its next renewal unless the lease is lost.
    async fn renew(self: Arc<Self>, number: u64, lease: RenewedLease) {
        let term = lease.term();
        let now = Instant::now();
        // A process that was stopped until the end of the term may still own the run.
        let end = if now < term.end() { term.end() } else { later(now, term.ttl) };
        let again = match timeout_at(end.into(), lease.renew()).await {
            // The storage may become reachable again in time.
            Ok(Err(error)) if !is_taken(&error) => {
                let again = later(Instant::now(), term.ttl / RENEWALS_PER_LEASE);
                if again >= end {
                    sleep_until(end.into()).await;
                }
                Some(again).filter(|it| *it < end)
            }
            Ok(_) | Err(_) => None,
        };
        let next = lease.term();
        let due = if next.start > term.start { Some(next.next_renewal()) } else { again };
        let mut leases = self.leases();
        let Some(renewal) = leases.by_number.get_mut(&number) else { return };
        match due {
            Some(due) => self.plan(&mut leases, number, due),
            None => renewal.lost.cancel(),
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RenewedLease {
    fn term(&self) -> Term {
        current(&self.term)
    }

    async fn renew(&self) -> Result<(), CheckpointError> {
        fault::hit(Point::LeaseRenew).map_err(CheckpointError::injected)?;
        if let Some(storage) = self.storage.upgrade() {
            let ttl = self.term().ttl;
            let next = Term::begin(ttl);
            storage.renew(&self.token, ttl).await?;
            extend(&self.term, next);
        }
        Ok(())
    }
}

/// Returns a time, or at most one that timers can count to.
fn later(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or(start + PAUSE_MAX)
}

fn current(term: &Mutex<Term>) -> Term {
    *term.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins the next term, unless a later one has begun.
fn extend(term: &Mutex<Term>, next: Term) {
    let mut term = term.lock().unwrap_or_else(PoisonError::into_inner);
    if next.start > term.start {
        *term = next;
    }
}

/// Returns whether another process owns the run for certain.
fn is_taken(error: &CheckpointError) -> bool {
    matches!(error, CheckpointError::Overtaken { .. } | CheckpointError::UnknownRun(_))
}
