//! The renewal of leases: one transaction renews all that are due.
//!
//! A process has one connection for leases. While one transaction renews some of them, the next ones collect, so the number of
//! runs hardly matters.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use graphrun_core::id::RunId;
use graphrun_engine::{
    checkpoint::{CheckpointError, LeaseToken},
    storage::rules::check_fence,
};

use super::{
    fault::Fault,
    run::{LockedLease, Run, put_leases, unknown},
    run_server::RunServer,
    session::{Earlier, Mode, Session, Work},
};
use crate::{group::Job, lease::Lease};

/// A lease to renew.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    token: LeaseToken,
    ttl: Duration,
}

/// Renews a lease, together with those of other runs.
pub(super) async fn renew(
    server: &Arc<RunServer>,
    token: LeaseToken,
    ttl: Duration,
) -> Result<(), CheckpointError> {
    let start = || {
        let renewer = Renewer(Arc::clone(server));
        server.server.detach(renewer.renew_all());
    };
    server.renewals().add(Renewal { token, ttl }, start).await
}

/// The task that renews.
struct Renewer(Arc<RunServer>);

impl Renewer {
    async fn renew_all(self) {
        loop {
            let jobs = self.0.renewals().next();
            if jobs.is_empty() {
                return;
            }
            let since = Instant::now();
            // Most runs are not locked. The others must not wait for one that is locked for long.
            let mut skipped = self.renew(since, OtherLocks::Skip, jobs).await;
            while !skipped.is_empty() {
                skipped = self.renew(since, OtherLocks::Await, skipped).await;
            }
        }
    }

    /// Renews leases with one transaction, and returns those that it has skipped.
    async fn renew(
        &self,
        since: Instant,
        other_locks: OtherLocks,
        jobs: Vec<Job<Renewal, ()>>,
    ) -> Vec<Job<Renewal, ()>> {
        let server = &self.0.server;
        let renewals = jobs.iter().map(|it| it.work.clone()).collect();
        let work = RenewAll { renewals, other_locks };
        let earlier = Earlier { since, in_doubt: false };
        let action = format!("renew the leases of {} runs", jobs.len());
        let renewed = server.transact_after(earlier, action, &work).await.map_err(Arc::new);
        let mut skipped = Vec::new();
        match renewed {
            Ok(results) => {
                for (job, result) in jobs.into_iter().zip(results) {
                    match result {
                        LeaseResult::Skipped => skipped.push(job),
                        LeaseResult::Renewed => job.done.send(Ok(())),
                        LeaseResult::Refused(fault) => {
                            job.done.send(Err(fault.explain(&server.place, job.work.action())));
                        }
                    }
                }
            }
            Err(error) => {
                for Job { work, done } in jobs {
                    let source = Arc::clone(&error).into();
                    done.send(Err(CheckpointError::Storage { action: work.action(), source }));
                }
            }
        }
        skipped
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.renewals().abandon();
        }
    }
}

impl Renewal {
    fn action(&self) -> String {
        format!("renew the lease of run `{}`", self.token.run)
    }
}

/// What to do with a run that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherLocks {
    Skip,
    Await,
}

/// Renews the leases of several runs.
struct RenewAll {
    renewals: Vec<Renewal>,
    other_locks: OtherLocks,
}

/// The result of a renewal.
enum LeaseResult {
    Renewed,
    Refused(Fault),
    /// Another transaction has locked the run, or another lease of it was renewed.
    Skipped,
}

#[async_trait]
impl Work for RenewAll {
    type Output = Vec<LeaseResult>;

    const MODE: Mode = Mode::Lease;

    async fn attempt(&self, session: &Session) -> Result<Vec<LeaseResult>, Fault> {
        let ids: Vec<&str> = self.renewals.iter().map(|it| it.token.run.as_str()).collect();
        let locked = Run::lock_leases(session, &ids, self.other_locks).await?;
        let mut locked: BTreeMap<RunId, Option<LockedLease>> =
            locked.into_iter().map(|it| (it.run.id.clone(), Some(it))).collect();
        let mut renewed = Vec::new();
        let mut results = Vec::new();
        for Renewal { token, ttl } in &self.renewals {
            let locked = locked.get_mut(&token.run).map(Option::take);
            results.push(match (locked, self.other_locks) {
                (None, OtherLocks::Skip) | (Some(None), _) => LeaseResult::Skipped,
                (None, OtherLocks::Await) => LeaseResult::Refused(unknown(token.run.as_str())),
                (Some(Some(LockedLease { run, lease, now })), _) => {
                    match renewal(lease, token, *ttl, now) {
                        Ok(lease) => {
                            renewed.push((run, lease));
                            LeaseResult::Renewed
                        }
                        Err(refused) => LeaseResult::Refused(refused),
                    }
                }
            });
        }
        put_leases(session, &renewed).await?;
        Ok(results)
    }
}

fn renewal(
    lease: Result<Lease, Fault>,
    token: &LeaseToken,
    ttl: Duration,
    now: i64,
) -> Result<Lease, Fault> {
    let lease = lease?;
    check_fence(lease.info().as_ref(), token.fence)?;
    Ok(lease.renewed(now, ttl))
}
