//! Migrates an older format to that of this program, or creates the tables.
//!
//! The migration is part of the transaction that opens the database and holds the lock for that. It
//! is done whole or not at all, and by one of several concurrent processes. Journal entries are
//! never rewritten, so that noted hashes stay valid.

use deadpool_postgres::Transaction;
use graphrun_core::fault::{Point, hit};
use graphrun_engine::{
    checkpoint::{CheckpointError, FORMAT_VERSION},
    storage::rules::still_held,
};

use super::{fault::Fault, lease::NOW, open::forbidden, session::Server};
/// The tables of this format.
const SCHEMA: &str = include_str!("schema.sql");

/// The statements that migrate each format to the next.
const MIGRATIONS: [(u32, &str); 1] = [
    // The entries of an open step contain its finished tasks, and their hashes prove it.
    (3, "DROP TABLE finished"),
];

/// Migrates the tables from the format `before` to this one; zero means that there are no tables.
pub(super) async fn migrate(
    transaction: &Transaction<'_>,
    server: &Server,
    before: u32,
) -> Result<(), Fault> {
    if before == FORMAT_VERSION {
        return Ok(());
    }
    if before == 0 {
        transaction.batch_execute(SCHEMA).await?;
    } else {
        require_no_owner(transaction, before).await?;
    }
    for (_, sql) in MIGRATIONS.into_iter().filter(|(after, _)| before != 0 && *after > before) {
        transaction.batch_execute(sql).await.map_err(|error| {
            let (user, schema) = (server.place.user(), &server.place.schema);
            forbidden(error, &format!(
                "its tables have format {before}, and user `{user}` may not bring them to {FORMAT_VERSION}; \
                 let their owner do it: graphrun doctor --db postgres://OWNER@…?schema={schema}"
            ))
        })?;
    }
    let after = i32::try_from(FORMAT_VERSION).expect("versions are small");
    transaction.execute("UPDATE graphrun_format SET version = $1", &[&after]).await?;
    Ok(hit(Point::MigrateInTransaction).map_err(CheckpointError::injected)?)
}

/// Fails if a process runs a run: it only supports the old format. No process can acquire a run
/// before the end of the transaction.
async fn require_no_owner(transaction: &Transaction<'_>, format: u32) -> Result<(), Fault> {
    transaction.batch_execute("LOCK TABLE heads IN EXCLUSIVE MODE").await?;
    let sql = format!(
        "SELECT r.id FROM heads h JOIN runs r ON r.key = h.run
         WHERE h.owner IS NOT NULL AND h.until > {NOW} LIMIT 1"
    );
    match transaction.query_opt(&sql, &[]).await? {
        Some(row) => Err(Fault::Unusable(still_held(format, row.get(0)))),
        None => Ok(()),
    }
}
