//! Brings tables of an older format to that of this program.
//!
//! The migration is part of the transaction that opens the database and holds the lock for that. It
//! is done whole or not at all, and by one of several concurrent processes. Migrations never
//! rewrite journal entries, so that noted hashes stay valid.

use deadpool_postgres::Transaction;

use super::{fault::Fault, open::forbidden, run::NOW, session::Server};
use crate::migrations::{Migrations, still_owned};

/// The migrations of this program: none, because its format is the first one.
pub(super) const MIGRATIONS: Migrations = Migrations(&[]);

/// Applies the migrations that tables of this format lack.
pub(super) async fn migrate(
    transaction: &Transaction<'_>,
    server: &Server,
    migrations: Migrations,
    format: u32,
) -> Result<(), Fault> {
    let missing = migrations.missing(format).map_err(Fault::Unusable)?;
    if missing.is_empty() {
        return Ok(());
    }
    require_no_owner(transaction, format).await?;
    let newest = migrations.format();
    for sql in missing {
        transaction.batch_execute(sql).await.map_err(|error| {
            let (user, schema) = (server.place.user(), &server.place.schema);
            forbidden(error, &format!(
                "its tables have format {format}, and user `{user}` may not bring them to {newest}; \
                 let their owner do it: graphrun doctor --db postgres://OWNER@…?schema={schema}"
            ))
        })?;
    }
    let newest = i32::try_from(newest).expect("formats are few");
    transaction.execute("UPDATE graphrun_format SET version = $1", &[&newest]).await?;
    Ok(())
}

/// Fails if a process owns a run: it only supports the old format. No process can acquire a run
/// before the end of the transaction.
async fn require_no_owner(transaction: &Transaction<'_>, format: u32) -> Result<(), Fault> {
    transaction.batch_execute("LOCK TABLE heads IN EXCLUSIVE MODE").await?;
    let sql = format!(
        "SELECT r.id FROM heads h JOIN runs r ON r.key = h.run
         WHERE h.owner IS NOT NULL AND h.until > {NOW} LIMIT 1"
    );
    match transaction.query_opt(&sql, &[]).await? {
        Some(row) => Err(Fault::Unusable(still_owned(format, row.get(0)))),
        None => Ok(()),
    }
}
