//! From an older format to the one of this program, or from nothing.
//!
//! It is done in the transaction of whoever opens the database, who holds the lock for that: either
//! all of it is done or nothing, and of several processes that come at once one does it. What is in
//! the journal is never written anew: links that were noted down stay valid.

use deadpool_postgres::Transaction;

use super::{fault::Fault, lease::NOW, open::forbidden, session::Server};
use crate::{
    checkpoint::{CheckpointError, FORMAT_VERSION},
    fault::{Point, hit},
    storage::rules::still_held,
};

/// The tables of this format.
const SCHEMA: &str = include_str!("schema.sql");

/// What makes each format of the one before.
const MIGRATIONS: [(u32, &str); 1] = [
    // The entries of an open step say which of its tasks have finished, and their links prove it.
    (3, "DROP TABLE finished"),
];

/// Brings the tables from the format `before` to this one; zero is that there are none.
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
        require_rest(transaction, before).await?;
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

/// Fails if a process goes on with a run: it knows the old format only. Until the end of the
/// transaction none takes one up.
async fn require_rest(transaction: &Transaction<'_>, format: u32) -> Result<(), Fault> {
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
