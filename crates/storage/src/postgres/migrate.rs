//! Brings tables of an older format to that of this program.
//!
//! The migration is part of the transaction that opens the database and holds the lock for that. It
//! is done whole or not at all, and by one of several concurrent processes. Migrations never
//! rewrite journal entries, so that noted hashes stay valid.

use deadpool_postgres::Transaction;

use super::{
    fault::{Fault, forbidden},
    session::Server,
    tables::Tables,
};
use crate::migrations::still_owned;

/// Applies the migrations that tables of this format lack.
pub(super) async fn migrate(
    transaction: &Transaction<'_>,
    server: &Server,
    tables: &Tables,
    format: u32,
) -> Result<(), Fault> {
    let missing = tables.migrations.missing(format).map_err(Fault::Unusable)?;
    if missing.is_empty() {
        return Ok(());
    }
    require_no_owner(transaction, tables, format).await?;
    let newest = tables.migrations.format();
    for sql in missing {
        transaction.batch_execute(sql).await.map_err(|error| {
            let user = server.place.user();
            let schema = &server.place.schema;
            forbidden(error, &format!(
                "its tables have format {format}, and user `{user}` may not bring them to {newest}; \
                 let their owner open it first: postgres://OWNER@…?schema={schema}"
            ))
        })?;
    }
    let newest = i32::try_from(newest).expect("formats are few");
    let sql = format!("UPDATE {} SET version = $1", tables.format_table);
    transaction.execute(&sql, &[&newest]).await?;
    Ok(())
}

/// Fails if a process owns a run: it only supports the old format. No process can acquire a run
/// before the end of the transaction.
async fn require_no_owner(
    transaction: &Transaction<'_>,
    tables: &Tables,
    format: u32,
) -> Result<(), Fault> {
    let Some(owned) = &tables.owned else { return Ok(()) };
    transaction.batch_execute(owned.lock).await?;
    match transaction.query_opt(owned.run, &[]).await? {
        Some(row) => Err(Fault::Unusable(still_owned(format, row.get(0)))),
        None => Ok(()),
    }
}
