//! Tests that need access to the connection.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use graphrun_core::{id::ChannelName, state::Update};
use graphrun_engine::results::{CachedResult, ResultKey, ResultStore};
use jiff::Timestamp;
use serde_json::json;

use super::{fault::Fault, results::Keep, *};
use graphrun_engine::{checkpoint::FORMAT_VERSION, storage::RESULT_LIMITS};

#[path = "../../../../tests/support/postgres.rs"]
mod server;

#[test]
fn commits_are_durable_despite_settings_of_the_user() {
    for (setting, ours) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        let url = server::server();
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}options=-csynchronous_commit%3D{setting}");
        let server =
            Arc::new(Server::new(DatabaseAddress::parse(&url, TABLES.schema).unwrap()).unwrap());
        let asking = Arc::clone(&server);
        let found = server.wait(async move {
            let client = asking.connect().await.unwrap();
            let row = client.query_one("SHOW synchronous_commit", &[]).await.unwrap();
            Ok(row.get::<_, String>(0))
        });
        assert_eq!(found.unwrap(), ours, "{setting}");
    }
}

/// A server that restarts, or a proxy before it, may end a connection at any moment.
#[test]
fn a_connection_that_ends_during_the_handshake_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut asked = [0; 8];
            client.read_exact(&mut asked).unwrap();
            client.write_all(b"S").unwrap();
            // The begin of the client's message.
            client.read_exact(&mut asked).unwrap();
        }
    });
    let url = format!("postgres://me@127.0.0.1:{port}/app");
    let address = DatabaseAddress::parse(&url, TABLES.schema).unwrap();
    let server = Arc::new(Server::new(address).unwrap());
    let asking = Arc::clone(&server);
    let fault = server.wait(async move { Ok(asking.connect().await.err().unwrap()) }).unwrap();
    assert!(fault.is_passing(), "{fault:?}");
    let error = fault.explain(&server.place, "look".to_owned());
    assert!(error.to_string().contains("the server closed the connection"), "{error}");
}

#[test]
fn an_older_format_is_migrated_once_and_as_a_whole() {
    const ADD: &str = "CREATE TABLE added (number integer)";
    let schema = server::Schema::new();
    let name = &schema.name;
    let url = schema.url();
    drop(PostgresStorage::open(&url).unwrap());
    let own =
        "INSERT INTO runs (id, name, info, info_checksum) VALUES ('R1', 'calm-otter', '', '');
        INSERT INTO heads SELECT key, 0, 0, 0, 0, '', '', '', 1, '{}', 9000000000000, '' FROM runs";
    server::execute(format!("SET search_path = {name}; {own}"));
    let version = || server::ask(format!("SELECT version FROM {name}.graphrun_format"));
    let open = |steps| {
        let server =
            Arc::new(Server::new(DatabaseAddress::parse(&url, TABLES.schema).unwrap()).unwrap());
        let opening = Arc::clone(&server);
        server.wait(async move {
            let opened = {
                let tables = Tables { migrations: Migrations(steps), ..TABLES };
                open::open(&opening, Missing::Leave, &tables).await
            };
            Ok(opened.map_err(|fault| match fault {
                Fault::Postgres(error) => format!("{error:?}"),
                fault => fault.to_string(),
            }))
        })
    };
    let refused = |steps| {
        let reason = open(steps).unwrap().unwrap_err();
        assert_eq!(version(), FORMAT_VERSION.to_string());
        reason
    };
    let reason = refused(&[ADD]);
    assert!(reason.contains("it has format 1, and an older program owns run `R1`"), "{reason}");
    server::execute(format!("UPDATE {name}.heads SET owner = NULL"));
    let reason = refused(&[ADD, "INSERT INTO missing VALUES (1)"]);
    assert!(reason.contains("\\\"missing\\\" does not exist"), "{reason}");

    // A second migration would fail, because the table exists.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| open(&[ADD]).unwrap().unwrap());
        }
    });
    assert_eq!(version(), "2");
    let reason = PostgresStorage::open(&url).unwrap_err().to_string();
    let says = "it has format 2, but this program supports formats up to 1; use the program";
    assert!(reason.contains(says), "{reason}");
}

#[tokio::test]
async fn when_there_are_too_many_results_the_oldest_goes() {
    let schema = server::Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let key = |name: i64| ResultKey::of(&json!(name));
    let update = Update::default().write(ChannelName::parse("t").unwrap(), "x");
    let bytes = serde_json::to_string(&update).unwrap().len();
    let limits = [(3, 1000), (2, 1000), (1000, 2 * bytes), (1000, 2 * bytes - 1)];
    for ((results, bytes), left) in limits.into_iter().zip([3, 2, 2, 1]) {
        for second in [3, 1, 4, 2, 5] {
            let at = Timestamp::from_second(second).unwrap();
            let result = CachedResult { update: update.clone(), at };
            let limits = graphrun_engine::storage::ResultLimits { results, bytes, ..RESULT_LIMITS };
            let work = Keep::new(&key(second), &result, limits).unwrap();
            storage.transact("keep a result".to_owned(), work).await.unwrap();
        }
        let mut found = Vec::new();
        for second in 1..=5 {
            if ResultStore::find(&storage, &key(second)).await.unwrap().is_some() {
                found.push(second);
            }
        }
        assert_eq!(found, (6 - left..=5).collect::<Vec<i64>>(), "{results} results, {bytes} bytes");
    }
}
