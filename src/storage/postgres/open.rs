//! Making our tables, and refusing every database that is not one of ours.

use tokio_postgres::Row;

use super::{
    fault::{Fault, read_only},
    migrate::migrate,
    session::Server,
};
use crate::{checkpoint::FORMAT_VERSION, storage::rules::other_format};

/// The oldest server whose features we use and that is still kept up.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The lock that those take who look at the tables to change them; "graphrun" as a number.
const LOCK: i64 = i64::from_be_bytes(*b"graphrun");

/// What is there before anything is read from it.
const SURVEY: &str = "
    SELECT current_setting('server_version_num')::int AS server,
        current_setting('server_version') AS server_name,
        current_setting('server_encoding') AS encoding,
        current_setting('transaction_read_only')::bool AS read_only,
        current_setting('fsync')::bool AS fsync,
        EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS schema,
        EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = 'graphrun_format' AND c.relkind = 'r') AS marked,
        EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')) AS used";

/// The tables of ours that this user may not read and write as we do.
const FORBIDDEN: &str = "
    SELECT name FROM unnest(ARRAY['runs', 'heads', 'journal', 'inbox', 'results']) AS name
    WHERE NOT (has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
        AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE'))";

/// What a server is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    /// Its version, as it says it.
    pub(super) version: String,
    /// Whether what it says to be on its disk is there.
    pub(super) fsync: bool,
}

/// Whether to make tables where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Leave,
}

/// Looks at the database and makes our tables if it is to. None if there are none.
///
/// Whatever fails here fails at once: whoever starts a program wants to know.
pub(super) async fn open(server: &Server, missing: Missing) -> Result<Option<Traits>, Fault> {
    let mut client = server.connect().await?;
    let schema = &server.place.schema;
    let found = client.query_one(SURVEY, &[schema]).await?;
    let traits = Traits { version: found.get("server_name"), fsync: found.get("fsync") };
    check_server(&found)?;
    if !found.get::<_, bool>("marked") {
        if found.get("used") {
            return Err(Fault::Unusable(format!(
                "the schema `{schema}` belongs to another program; name one of your own with \
                 `?schema=NAME`"
            )));
        }
        if missing == Missing::Leave {
            return Ok(None);
        }
    } else if version(&client.query("SELECT version FROM graphrun_format", &[]).await?)?
        == FORMAT_VERSION
    {
        check_rights(server, &client.query(FORBIDDEN, &[]).await?)?;
        return Ok(Some(traits));
    }
    // Of several processes that find something to do, one does it.
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let found = transaction.query_one(SURVEY, &[schema]).await?;
    if !found.get::<_, bool>("schema") {
        transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await.map_err(|error| {
            let user = server.place.user();
            forbidden(error, &format!(
                "user `{user}` may make no schema in it; let its owner do it: CREATE SCHEMA {schema} AUTHORIZATION {user}"
            ))
        })?;
    }
    if !found.get::<_, bool>("marked") {
        let sql = "CREATE TABLE graphrun_format (version integer NOT NULL)";
        transaction.batch_execute(sql).await.map_err(|error| {
            let user = server.place.user();
            forbidden(error, &format!(
                "user `{user}` may make no tables in the schema `{schema}`; let its owner allow it: GRANT CREATE ON SCHEMA {schema} TO {user}"
            ))
        })?;
        transaction.execute("INSERT INTO graphrun_format VALUES (0)", &[]).await?;
    }
    let before = version(&transaction.query("SELECT version FROM graphrun_format", &[]).await?)?;
    migrate(&transaction, server, before).await?;
    transaction.commit().await?;
    check_rights(server, &client.query(FORBIDDEN, &[]).await?)?;
    Ok(Some(traits))
}

fn check_server(found: &Row) -> Result<(), Fault> {
    let encoding: &str = found.get("encoding");
    let problem = if found.get::<_, i32>("server") < SERVER_VERSION_MIN {
        let version: &str = found.get("server_name");
        format!(
            "its server is PostgreSQL {version}, and this program needs 14 or newer; use a newer server"
        )
    } else if encoding != "UTF8" {
        format!(
            "its texts are {encoding}, and runs need UTF8; make a database with `createdb -E UTF8 -T template0`"
        )
    } else if found.get("read_only") {
        read_only()
    } else {
        return Ok(());
    };
    Err(Fault::Unusable(problem))
}

/// The version of the tables, if this program knows it; zero if they are to be made.
fn version(rows: &[Row]) -> Result<u32, Fault> {
    let version = match rows {
        [row] => u32::try_from(row.get::<_, i32>(0)).ok(),
        _ => None,
    };
    let Some(version) = version else {
        return Err(Fault::Unusable(
            "its table `graphrun_format` holds no version; put a copy from before in its place"
                .to_owned(),
        ));
    };
    match other_format(version).filter(|_| version != 0) {
        Some(reason) => Err(Fault::Unusable(reason)),
        None => Ok(version),
    }
}

fn check_rights(server: &Server, forbidden: &[Row]) -> Result<(), Fault> {
    if forbidden.is_empty() {
        return Ok(());
    }
    let (user, schema) = (server.place.user(), &server.place.schema);
    Err(Fault::Unusable(format!(
        "user `{user}` may not read and write its tables; let their owner allow it: \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
    )))
}

/// The problem behind an error, if that is a missing right.
pub(super) fn forbidden(error: tokio_postgres::Error, problem: &str) -> Fault {
    if error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) {
        Fault::Unusable(problem.to_owned())
    } else {
        error.into()
    }
}
