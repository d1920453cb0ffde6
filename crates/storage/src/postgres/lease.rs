//! The lease of a run in the database.

use tokio_postgres::types::ToSql;

use super::{
    fault::Fault,
    run::{Locked, signed},
    session::Session,
};
use crate::lease::Lease;

/// The clock of the server; it advances while a transaction waits.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

impl Locked {
    /// Saves the lease.
    pub(super) async fn put_lease(&self, session: &Session, lease: &Lease) -> Result<(), Fault> {
        let sql = "UPDATE heads SET fence = $2, owner = $3, until = $4, lease_checksum = $5
                   WHERE run = $1";
        let sum = lease.checksum(&self.run.id);
        let values: [&(dyn ToSql + Sync); 5] =
            [&self.run.key, &signed(lease.fence)?, &lease.json, &lease.until_ms(), &sum.as_slice()];
        session.execute(sql, &values).await?;
        Ok(())
    }
}
