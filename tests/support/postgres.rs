//! A PostgreSQL server for tests, and a schema for each.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{env, thread};

use tokio_postgres::{Client, NoTls};

/// The variable for a server other than the usual one.
pub(crate) const SERVER_VARIABLE: &str = "GRAPHRUN_TEST_POSTGRES";

/// The URL of the usual server.
const SERVER_USUAL: &str = "postgres://postgres@127.0.0.1:5432/postgres";

/// Returns the URL of the test server.
pub(crate) fn server() -> String {
    env::var(SERVER_VARIABLE).unwrap_or_else(|_| SERVER_USUAL.to_owned())
}

/// A schema that is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: String,
}

impl Schema {
    /// Chooses an unused name. The storage creates the schema.
    pub(crate) fn new() -> Self {
        Self { name: format!("graphrun_test_{:016x}", rand::random::<u64>()) }
    }

    /// Returns the URL of the schema on the test server.
    pub(crate) fn url(&self) -> String {
        self.url_at(&server())
    }

    /// Returns the URL of the schema on another server.
    pub(crate) fn url_at(&self, server: &str) -> String {
        let mark = if server.contains('?') { '&' } else { '?' };
        format!("{server}{mark}schema={}", self.name)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        // Errors are ignored: the test may have used another server, which may be gone.
        let _ = thread::spawn(move || with_client(async |client| client.batch_execute(&sql).await))
            .join();
    }
}

/// Executes a statement on the server, from any runtime.
pub(crate) fn execute(sql: impl Into<String>) {
    let sql = sql.into();
    thread::spawn(move || {
        with_client(async |client| client.batch_execute(&sql).await).expect("the server does it");
    })
    .join()
    .expect("it is done");
}

/// Returns the single text or number of a query.
pub(crate) fn ask(sql: impl Into<String>) -> String {
    let sql = sql.into();
    let asked = thread::spawn(move || {
        with_client(async |client| client.simple_query(&sql).await).expect("the server answers")
    });
    let messages = asked.join().expect("it is answered");
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.expect("there is a row").to_owned()
}

/// Returns SQL that makes every new entry fail like on a full disk of the server, in the first
/// schema of the search path.
pub(crate) fn without_room(message: &str) -> String {
    format!(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '53100'; END $$;
         CREATE TRIGGER full_disk BEFORE INSERT ON journal FOR EACH ROW
             WHEN (NEW.number > 1) EXECUTE FUNCTION full_disk()"
    )
}

fn with_client<T>(work: impl AsyncFnOnce(&Client) -> T) -> T {
    let url = server();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a thread can have a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap_or_else(|error| {
            panic!(
                "no PostgreSQL for the tests at {url} ({error}): name a server in {SERVER_VARIABLE}, \
                 or start one with `scripts/postgres`"
            )
        });
        let connection = tokio::spawn(connection);
        let made = work(&client).await;
        drop(client);
        let _ = connection.await;
        made
    })
}
