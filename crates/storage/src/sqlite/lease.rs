//! The lease of a run in the database.

use std::time::Duration;

use graphrun_engine::{
    checkpoint::{Claim, LeaseToken},
    storage::rules::check_fence,
};
use rusqlite::{Connection, params};

use super::{fault::Fault, run::Run};
use crate::lease::Lease;

impl Run {
    /// Gives the run to this claim, unless it has an owner.
    pub(super) fn acquire(
        &self,
        database: &Connection,
        claim: &Claim,
    ) -> Result<LeaseToken, Fault> {
        let lease = self.stored_head(database)?.lease;
        lease.require_free(&self.id, now(database)?, claim.over)?;
        self.give(database, lease.fence, claim)
    }

    /// Fails if the run has an owner.
    pub(super) fn require_free(&self, database: &Connection) -> Result<(), Fault> {
        Ok(self.stored_head(database)?.lease.require_free(&self.id, now(database)?, None)?)
    }

    /// Gives the run to this claim, with the next fencing token.
    pub(super) fn give(
        &self,
        database: &Connection,
        last: u64,
        claim: &Claim,
    ) -> Result<LeaseToken, Fault> {
        let lease = Lease::next(last, claim, now(database)?).map_err(Fault::Unwritable)?;
        self.put_lease(database, &lease)?;
        Ok(LeaseToken { run: self.id.clone(), fence: lease.fence })
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
        self.put_lease(database, &lease.renewed(now(database)?, ttl))
    }

    /// Releases the lease with this fencing token.
    pub(super) fn take_back(&self, database: &Connection, fence: u64) -> Result<(), Fault> {
        let lease = self.stored_head(database)?.lease;
        if lease.fence != fence {
            return Ok(());
        }
        self.put_lease(database, &lease.released())
    }

    fn put_lease(&self, database: &Connection, lease: &Lease) -> Result<(), Fault> {
        let sql = "UPDATE heads SET fence = ?, owner = ?, until = ?, lease_checksum = ?
                   WHERE run = ?";
        let (until, checksum) = (lease.until_ms(), lease.checksum(&self.id));
        let values = params![lease.fence, lease.json, until, checksum, self.key];
        database.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }
}

/// Returns the time of the database, in milliseconds since 1970.
pub(super) fn now(database: &Connection) -> Result<i64, Fault> {
    let sql = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    Ok(database.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}
