//! Tests that need access to the connection.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use futures_util::future::{join_all, select_all};
use graphrun_core::{id::ChannelName, state::Update};
use graphrun_engine::{
    checkpoint::{Commit, Position, Presence},
    results::{CachedResult, ResultKey, ResultStore},
};
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

const TTL: Duration = Duration::from_secs(60);

async fn create_runs(storage: &PostgresStorage, count: usize) -> Vec<LeaseToken> {
    let mut tokens = Vec::new();
    for number in 0..count {
        let info = RunInfo {
            id: RunId::parse(&format!("R{number:03}")).unwrap(),
            name: format!("run-{number}"),
            created: "2025-06-01T12:00:00Z".into(),
            ..RunInfo::new("dev_team")
        };
        let owner = Presence::new().owner().clone();
        let request = LeaseRequest { owner, ttl: TTL, replaces_fence: None };
        let first = Commit { position: Position::default(), changes: Vec::new() }.into();
        tokens.push(storage.create(&info, &request, &first).await.unwrap());
    }
    tokens
}

#[tokio::test]
async fn leases_that_are_due_together_are_renewed_together() {
    let schema = server::Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let tokens = create_runs(&storage, 40).await;
    server::execute(format!(
        "SET search_path = {}; CREATE TABLE updates (number serial);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO {}.updates DEFAULT VALUES; RETURN NULL; END $$;
         CREATE TRIGGER noted AFTER UPDATE ON heads FOR EACH STATEMENT EXECUTE FUNCTION note()",
        schema.name, schema.name
    ));
    let mut stale = tokens[7].clone();
    stale.fence += 1;
    let renewing = tokens.iter().chain([&stale]).map(|it| storage.renew(it, TTL * 60));
    let mut results = join_all(renewing).await;
    let refused = results.pop().unwrap().unwrap_err();
    assert!(matches!(refused, CheckpointError::Overtaken { .. }), "{refused:?}");
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let soon = Timestamp::now() + TTL * 30;
    for run in storage.list().await.unwrap() {
        assert!(run.lease.unwrap().until > soon);
    }
    let updates: usize =
        server::ask(format!("SELECT count(*) FROM {}.updates", schema.name)).parse().unwrap();
    assert!(updates < 10, "{updates} updates");
}

#[tokio::test]
async fn a_locked_run_keeps_no_other_lease_from_its_renewal() {
    let schema = server::Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let tokens = create_runs(&storage, 5).await;
    let other = storage.runs.server.connect().await.unwrap();
    let lock =
        "BEGIN; SELECT FROM heads JOIN runs ON key = run WHERE id = 'R002' FOR UPDATE OF heads";
    other.batch_execute(lock).await.unwrap();
    let mut waiting: Vec<_> = tokens.iter().map(|it| storage.renew(it, TTL)).collect();
    while waiting.len() > 1 {
        let (renewed, _, rest) = select_all(waiting).await;
        renewed.unwrap();
        waiting = rest;
    }
    other.batch_execute("COMMIT").await.unwrap();
    waiting.remove(0).await.unwrap();
}

#[tokio::test]
async fn kept_values_that_cannot_be_unpacked_are_not_used() {
    let schema = server::Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let token = create_runs(&storage, 1).await.remove(0);
    let position = Position { step: Step(1), ..Position::default() };
    storage.append(&token, &Commit { position, changes: Vec::new() }.into()).await.unwrap();
    let work = KeepValues { token: token.clone(), step: Step(1), content: b"broken".to_vec() };
    storage.transact("keep".to_owned(), work).await.unwrap();
    assert_eq!(storage.load(&token.run).await.unwrap().entries_read, 2);
}
