//! Brings a database of an older format to that of this program.
//!
//! The migration is one transaction: a process that dies in it leaves the database unchanged, and
//! one of several concurrent processes does it. So no backup copy is needed. Migrations never
//! rewrite journal entries, so that noted hashes stay valid.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{fault::Fault, run::now};
use crate::migrations::{Migrations, still_owned};

/// The migrations of this program: none, because its format is the first one.
pub(super) const MIGRATIONS: Migrations = Migrations(&[]);

/// Applies the migrations that a database lacks, unless another process just did.
pub(super) fn migrate(connection: &mut Connection, migrations: Migrations) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let format = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let missing = migrations.missing(format).map_err(Fault::Unusable)?;
    if missing.is_empty() {
        return Ok(());
    }
    require_no_owner(&transaction, format)?;
    for sql in missing {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "user_version", migrations.format())?;
    transaction.commit()?;
    // Programs that only read the header also see the new format. If other processes use the
    // database, this happens later.
    drop(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    Ok(())
}

/// Fails if a process owns a run: it only supports the old format.
fn require_no_owner(database: &Connection, format: u32) -> Result<(), Fault> {
    let sql = "SELECT id FROM heads JOIN runs ON key = run
               WHERE owner IS NOT NULL AND until > ? LIMIT 1";
    let owned = database.query_row(sql, [now(database)?], |row| row.get::<_, String>(0));
    match owned.optional()? {
        Some(run) => Err(Fault::Unusable(still_owned(format, &run))),
        None => Ok(()),
    }
}
