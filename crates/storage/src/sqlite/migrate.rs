//! Migrates an older format to that of this program.
//!
//! The migration is one transaction: a process that dies in it leaves the database unchanged, and
//! one of several concurrent processes does it. So no backup copy is needed. Journal entries are
//! never rewritten, so that noted hashes stay valid.

use graphrun_core::fault::{Point, hit};
use graphrun_engine::{checkpoint::FORMAT_VERSION, storage::rules::still_held};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{fault::Fault, lease::now};
/// The statements that migrate each format to the next.
const MIGRATIONS: [(u32, &str); 1] = [
    // The entries of an open step contain its finished tasks, and their hashes prove it.
    (3, "DROP TABLE finished"),
];

/// Migrates a database of an older format, unless another process just did.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let before = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if before == FORMAT_VERSION {
        return Ok(());
    }
    require_no_owner(&transaction, before)?;
    for (after, sql) in MIGRATIONS.into_iter().filter(|(after, _)| *after > before) {
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", after)?;
    }
    hit(Point::MigrateInTransaction)?;
    transaction.commit()?;
    // Programs that only read the header also see the new format. If other processes use the
    // database, this happens later.
    drop(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    Ok(())
}

/// Fails if a process runs a run: it only supports the old format.
fn require_no_owner(database: &Connection, format: u32) -> Result<(), Fault> {
    let sql = "SELECT id FROM heads JOIN runs ON key = run
               WHERE owner IS NOT NULL AND until > ? LIMIT 1";
    let held = database.query_row(sql, [now(database)?], |row| row.get::<_, String>(0));
    match held.optional()? {
        Some(run) => Err(Fault::Unusable(still_held(format, &run))),
        None => Ok(()),
    }
}
