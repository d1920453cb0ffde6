//! The lease of a run.

use std::time::Duration;

use graphrun_engine::{
    checkpoint::{CheckpointError, Claim, Holder, LeaseToken, Owner},
    storage::rules::check_fence,
};
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{
    fault::Fault,
    payload::bytes,
    run::{Run, broken},
};
use crate::journal::checksum::of_lease;

/// The last lease of a run; it may have expired.
#[derive(Debug)]
pub(super) struct Lease {
    /// The fencing token; zero if there was no lease.
    pub(super) fence: u64,
    /// The stored owner; none if the lease was released.
    json: Option<String>,
    owner: Option<Owner>,
    until: Timestamp,
}

/// A lease ends after a century at the latest: the year 9999 is the last that can be parsed again.
const TTL_MAX_MS: i64 = 100 * 365 * 86_400_000;

impl Lease {
    /// Reads the lease from the last four columns of a head.
    pub(super) fn read(run: &str, row: &Row<'_>) -> Result<Self, Fault> {
        let (fence, until) = (row.get(7)?, row.get(9)?);
        let json = row.get::<_, Option<String>>(8)?;
        if of_lease(run, fence, json.as_deref(), until) != bytes(row, 10)? {
            return Err(broken(run, "the lease", "its checksum does not match"));
        }
        let owner = json.as_ref().map(|it| serde_json::from_str(it)).transpose();
        let owner = owner.map_err(|error| broken(run, "the lease", error))?;
        let until = Timestamp::from_millisecond(until);
        let until = until.map_err(|error| broken(run, "the lease", error))?;
        Ok(Self { fence, json, owner, until })
    }

    /// Returns the owner; the lease may have expired.
    pub(super) fn holder(&self) -> Option<Holder> {
        let (fence, until) = (self.fence, self.until);
        self.owner.clone().map(|owner| Holder { owner, fence, until })
    }
}

impl Run {
    /// Gives the run to this claim, unless it has an owner.
    pub(super) fn acquire(
        &self,
        database: &Connection,
        claim: &Claim,
    ) -> Result<LeaseToken, Fault> {
        let lease = self.stored_head(database)?.lease;
        if let Some(holder) = present(database, &lease)?
            && Some(holder.fence) != claim.over
        {
            return Err(self.owned(holder).into());
        }
        self.give(database, lease.fence, claim)
    }

    /// Fails if the run has an owner.
    pub(super) fn require_free(&self, database: &Connection) -> Result<(), Fault> {
        match present(database, &self.stored_head(database)?.lease)? {
            Some(holder) => Err(self.owned(holder).into()),
            None => Ok(()),
        }
    }

    /// Gives the run to this claim, with the next fencing token.
    pub(super) fn give(
        &self,
        database: &Connection,
        last: u64,
        claim: &Claim,
    ) -> Result<LeaseToken, Fault> {
        let owner = serde_json::to_string(&claim.owner).map_err(Fault::Unwritable)?;
        let until = now(database)? + ms(claim.ttl);
        self.put_lease(database, last + 1, Some(&owner), until)?;
        Ok(LeaseToken { run: self.id.clone(), fence: last + 1 })
    }

    /// Extends a lease from now.
    pub(super) fn renew(
        &self,
        database: &Connection,
        fence: u64,
        ttl: Duration,
    ) -> Result<(), Fault> {
        let lease = self.stored_head(database)?.lease;
        check_fence(lease.holder().as_ref(), fence)?;
        let until = now(database)? + ms(ttl);
        self.put_lease(database, fence, lease.json.as_deref(), until)
    }

    /// Releases the lease with this fencing token.
    pub(super) fn take_back(&self, database: &Connection, fence: u64) -> Result<(), Fault> {
        let lease = self.stored_head(database)?.lease;
        if lease.fence != fence {
            return Ok(());
        }
        self.put_lease(database, fence, None, lease.until.as_millisecond())
    }

    fn put_lease(
        &self,
        database: &Connection,
        fence: u64,
        owner: Option<&str>,
        until: i64,
    ) -> Result<(), Fault> {
        let checksum = of_lease(self.id.as_str(), fence, owner, until);
        let sql = "UPDATE heads SET fence = ?, owner = ?, until = ?, lease_checksum = ?
                   WHERE run = ?";
        let values = params![fence, owner, until, checksum, self.key];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    fn owned(&self, holder: Holder) -> CheckpointError {
        CheckpointError::Owned { run: self.id.clone(), holder: Box::new(holder) }
    }
}

/// Returns the owner of a run, if the lease has not expired.
fn present(database: &Connection, lease: &Lease) -> Result<Option<Holder>, Fault> {
    let now = Timestamp::from_millisecond(now(database)?).unwrap_or(Timestamp::MAX);
    Ok(lease.holder().filter(|it| it.has_it(now)))
}

/// Returns the time of the database, in milliseconds since 1970.
pub(super) fn now(database: &Connection) -> Result<i64, Fault> {
    let sql = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    Ok(database.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

fn ms(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(TTL_MAX_MS).min(TTL_MAX_MS)
}
