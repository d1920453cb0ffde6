//! From an older format to the one of this program.
//!
//! It is one transaction: a process that dies in it leaves the database as it was, and of several
//! that come at once one does it. So no copy is made before. What is in the journal is never
//! written anew: links that were noted down stay valid.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{fault::Fault, lease::now};
use crate::{
    checkpoint::FORMAT_VERSION,
    fault::{Point, hit},
    storage::rules::still_held,
};

/// What makes each format of the one before.
const MIGRATIONS: [(u32, &str); 1] = [
    // The entries of an open step say which of its tasks have finished, and their links prove it.
    (3, "DROP TABLE finished"),
];

/// Brings a database of one of the older formats to this one, unless somebody else just did.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let before = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if before == FORMAT_VERSION {
        return Ok(());
    }
    require_rest(&transaction, before)?;
    for (after, sql) in MIGRATIONS.into_iter().filter(|(after, _)| *after > before) {
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", after)?;
    }
    hit(Point::MigrateInTransaction)?;
    transaction.commit()?;
    // The header tells the format also to those who look at nothing else. Where others use the
    // database, that comes later.
    drop(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    Ok(())
}

/// Fails if a process goes on with a run: it knows the old format only.
fn require_rest(database: &Connection, format: u32) -> Result<(), Fault> {
    let sql = "SELECT id FROM heads JOIN runs ON key = run
               WHERE owner IS NOT NULL AND until > ? LIMIT 1";
    let held = database.query_row(sql, [now(database)?], |row| row.get::<_, String>(0));
    match held.optional()? {
        Some(run) => Err(Fault::Unusable(still_held(format, &run))),
        None => Ok(()),
    }
}
