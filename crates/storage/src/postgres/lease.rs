//! The lease of a run.

use std::time::Duration;

use graphrun_core::id::RunId;
use graphrun_engine::checkpoint::{CheckpointError, Claim, Holder, Owner};
use jiff::Timestamp;
use tokio_postgres::{Row, types::ToSql};

use super::{
    fault::Fault,
    run::{Locked, broken, get, number, signed},
    session::Session,
};
use crate::journal::checksum::{Checksum, of_lease};

/// The clock of the server; it advances while a transaction waits.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A lease ends after a century at the latest: the year 9999 is the last that can be parsed again.
const TTL_MAX_MS: i64 = 100 * 365 * 86_400_000;

/// The last lease of a run; it may have expired.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    /// The fencing token.
    pub(super) fence: u64,
    /// The stored owner; none if the lease was released.
    pub(super) json: Option<String>,
    owner: Option<Owner>,
    pub(super) until: Timestamp,
}

impl Lease {
    /// Reads the lease from the row of a head.
    pub(super) fn read(run: &RunId, row: &Row) -> Result<Self, Fault> {
        let (fence, until) = (number(run, row, "fence")?, get(row, "until")?);
        let json = get::<Option<String>>(row, "owner")?;
        let sum = of_lease(run.as_str(), fence, json.as_deref(), until);
        if sum != get::<&[u8]>(row, "lease_checksum")? {
            return Err(broken(run, "the lease", "its checksum does not match"));
        }
        let owner = json.as_ref().map(|it| serde_json::from_str(it)).transpose();
        let owner = owner.map_err(|error| broken(run, "the lease", error))?;
        let until = Timestamp::from_millisecond(until);
        let until = until.map_err(|error| broken(run, "the lease", error))?;
        Ok(Self { fence, json, owner, until })
    }

    /// Returns the next lease for this claim; `last` is the last fencing token.
    pub(super) fn next(last: u64, claim: &Claim, now: i64) -> Result<Self, Fault> {
        let json = serde_json::to_string(&claim.owner).map_err(Fault::Unwritable)?;
        let (json, owner) = (Some(json), Some(claim.owner.clone()));
        Ok(Self { fence: last + 1, json, owner, until: end_of(now, claim.ttl) })
    }

    /// Returns the owner; the lease may have expired.
    pub(super) fn holder(&self) -> Option<Holder> {
        let (fence, until) = (self.fence, self.until);
        self.owner.clone().map(|owner| Holder { owner, fence, until })
    }

    /// Returns the same lease, extended from now.
    pub(super) fn renewed(self, now: i64, ttl: Duration) -> Self {
        Self { until: end_of(now, ttl), ..self }
    }

    /// Returns the same lease, released.
    pub(super) fn released(self) -> Self {
        Self { json: None, owner: None, ..self }
    }

    pub(super) fn checksum(&self, run: &RunId) -> Checksum {
        of_lease(run.as_str(), self.fence, self.json.as_deref(), self.until.as_millisecond())
    }
}

impl Locked {
    /// Returns the owner, if the lease has not expired.
    pub(super) fn present_holder(&self) -> Option<Holder> {
        let now = Timestamp::from_millisecond(self.now).unwrap_or(Timestamp::MAX);
        self.stored.lease.holder().filter(|it| it.has_it(now))
    }

    /// Fails if the run has an owner.
    pub(super) fn require_free(&self) -> Result<(), Fault> {
        self.present_holder().map_or(Ok(()), |holder| Err(self.owned(holder)))
    }

    pub(super) fn owned(&self, holder: Holder) -> Fault {
        CheckpointError::Owned { run: self.run.id.clone(), holder: Box::new(holder) }.into()
    }

    /// Saves the lease.
    pub(super) async fn put_lease(&self, session: &Session, lease: &Lease) -> Result<(), Fault> {
        let sql = "UPDATE heads SET fence = $2, owner = $3, until = $4, lease_checksum = $5
                   WHERE run = $1";
        let sum = lease.checksum(&self.run.id);
        let values: [&(dyn ToSql + Sync); 5] = [
            &self.run.key,
            &signed(lease.fence)?,
            &lease.json,
            &lease.until.as_millisecond(),
            &sum.as_slice(),
        ];
        session.execute(sql, &values).await?;
        Ok(())
    }
}

fn end_of(now: i64, ttl: Duration) -> Timestamp {
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(TTL_MAX_MS).min(TTL_MAX_MS);
    Timestamp::from_millisecond(now.saturating_add(ttl)).unwrap_or(Timestamp::MAX)
}
