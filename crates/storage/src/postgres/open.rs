//! Creates our tables and refuses every other database.

use std::sync::Arc;

use graphrun_engine::checkpoint::CheckpointError;
use graphrun_guard::redact;
use tokio_postgres::Row;

use super::{
    fault::{Fault, forbidden, read_only},
    migrate::migrate,
    place::DatabaseAddress,
    session::Server,
    tables::Tables,
};

/// The oldest maintained server version with the features we use.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The advisory lock for checking and changing the tables; "graphrun" as a number.
const LOCK: i64 = i64::from_be_bytes(*b"graphrun");

/// The state of the database before anything else is read.
const SURVEY: &str = "
    SELECT current_setting('server_version_num')::int AS server,
        current_setting('server_version') AS server_name,
        current_setting('server_encoding') AS encoding,
        current_setting('transaction_read_only')::bool AS read_only,
        current_setting('fsync')::bool AS fsync,
        EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS schema,
        has_database_privilege(current_database(), 'CREATE') AS makes_schema,
        coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1), true) AS usable,
        coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1), true) AS makes_tables,
        EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind = 'r') AS marked,
        EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c'))
            OR EXISTS (SELECT FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
                WHERE n.nspname = $1 AND t.typtype IN ('e', 'd', 'r')) AS used";

/// Our tables that this user may not read and write.
const FORBIDDEN: &str = "
    SELECT name FROM unnest($1::text[]) AS name
    WHERE NOT (has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
        AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE'))";

/// Properties of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// The version, as the server reports it.
    pub(super) version: String,
    /// Whether the server flushes commits to its disk.
    pub(super) fsync: bool,
}

/// What to do if the tables are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Create them.
    Make,
    /// Leave the database as it is.
    Leave,
    /// The same, and fail if this user could not create them.
    Check,
}

impl Server {
    /// Connects to the database of a libpq URL, checks it and creates the tables if requested.
    ///
    /// The second part of the result is none if there are no tables. This call blocks until the server answers.
    ///
    /// # Errors
    ///
    /// Fails with [`CheckpointError::Unusable`] when the server or the database cannot be used.
    pub fn open(
        url: &str,
        tables: &'static Tables,
        missing: Missing,
    ) -> Result<(Arc<Self>, Option<Traits>), CheckpointError> {
        redact::learn_url(url);
        let place = DatabaseAddress::parse(url, tables.schema).map_err(|reason| {
            CheckpointError::Unusable { path: "the URL of the database".to_owned(), reason }
        })?;
        let server = Arc::new(Self::new(place)?);
        let opening = Arc::clone(&server);
        let traits = server.wait(async move {
            let opened = open(&opening, missing, tables).await;
            opened.map_err(|fault| fault.explain(&opening.place, format!("open {}", opening.place)))
        })?;
        Ok((server, traits))
    }
}

/// Checks the database and creates the tables if requested. Returns none if there are none.
///
/// Tables of an older format get the migrations that they lack.
///
/// This never retries: a user who starts a program should see the error immediately.
pub(super) async fn open(
    server: &Server,
    missing: Missing,
    tables: &Tables,
) -> Result<Option<Traits>, Fault> {
    let mut client = server.connect().await?;
    let schema = &server.place.schema;
    let format_table = &tables.format_table;
    let version_query = format!("SELECT version FROM {format_table}");
    let found = client.query_one(SURVEY, &[schema, format_table]).await?;
    let traits = Traits { version: found.get("server_name"), fsync: found.get("fsync") };
    check_server(&found)?;
    if !found.get::<_, bool>("usable") {
        let user = server.place.user();
        return Err(Fault::Unusable(format!(
            "user `{user}` may not use the schema `{schema}`; let its owner allow it: GRANT USAGE ON SCHEMA {schema} TO \
             {user}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
        )));
    }
    if !found.get::<_, bool>("marked") {
        if found.get("used") {
            return Err(Fault::Unusable(format!(
                "the schema `{schema}` belongs to another program; name one of your own with \
                 `?schema=NAME`"
            )));
        }
        let rights = ["schema", "makes_schema", "makes_tables"].map(|it| found.get(it));
        match (missing, rights) {
            (Missing::Check, [false, false, _]) => return Err(Fault::Unusable(no_schema(server))),
            (Missing::Check, [true, _, false]) => return Err(Fault::Unusable(no_tables(server))),
            (Missing::Check | Missing::Leave, _) => return Ok(None),
            (Missing::Make, _) => {}
        }
    } else if tables
        .migrations
        .missing(version(tables, &client.query(&version_query, &[]).await?)?)
        .map_err(Fault::Unusable)?
        .is_empty()
    {
        check_rights(server, &client.query(FORBIDDEN, &[&tables.names]).await?)?;
        return Ok(Some(traits));
    }
    // If several processes find missing tables, one creates them.
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let found = transaction.query_one(SURVEY, &[schema, format_table]).await?;
    if !found.get::<_, bool>("schema") {
        let made = transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await;
        made.map_err(|error| forbidden(error, &no_schema(server)))?;
    }
    if found.get("marked") {
        let format = version(tables, &transaction.query(&version_query, &[]).await?)?;
        migrate(&transaction, server, tables, format).await?;
    } else {
        let sql = format!("CREATE TABLE {format_table} (version integer NOT NULL)");
        let made = transaction.batch_execute(&sql).await;
        made.map_err(|error| forbidden(error, &no_tables(server)))?;
        let format = i32::try_from(tables.migrations.format()).expect("formats are few");
        let sql = format!("INSERT INTO {format_table} VALUES ($1)");
        transaction.execute(&sql, &[&format]).await?;
        transaction.batch_execute(tables.sql).await?;
    }
    transaction.commit().await?;
    check_rights(server, &client.query(FORBIDDEN, &[&tables.names]).await?)?;
    Ok(Some(traits))
}

/// Returns why the schema cannot be created.
fn no_schema(server: &Server) -> String {
    let (schema, user) = (&server.place.schema, server.place.user());
    format!(
        "user `{user}` may make no schema in it; let its owner do it: CREATE SCHEMA {schema} AUTHORIZATION {user}"
    )
}

/// Returns why the tables cannot be created.
fn no_tables(server: &Server) -> String {
    let (schema, user) = (&server.place.schema, server.place.user());
    format!(
        "user `{user}` may make no tables in the schema `{schema}`; let its owner allow it: GRANT CREATE ON SCHEMA {schema} TO \
         {user}"
    )
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
            "its texts are {encoding}, and this program needs UTF8; make a database with `createdb -E UTF8 -T template0`"
        )
    } else if found.get("read_only") {
        read_only()
    } else {
        return Ok(());
    };
    Err(Fault::Unusable(problem))
}

/// Returns the format of the tables.
fn version(tables: &Tables, rows: &[Row]) -> Result<u32, Fault> {
    let version = match rows {
        [row] => u32::try_from(row.get::<_, i32>(0)).ok(),
        _ => None,
    };
    version.ok_or_else(|| {
        let table = tables.format_table;
        Fault::Unusable(format!("its table `{table}` holds no version; restore a backup"))
    })
}

fn check_rights(server: &Server, forbidden: &[Row]) -> Result<(), Fault> {
    if forbidden.is_empty() {
        return Ok(());
    }
    let user = server.place.user();
    let schema = &server.place.schema;
    Err(Fault::Unusable(format!(
        "user `{user}` may not read and write its tables; let their owner allow it: \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
    )))
}
