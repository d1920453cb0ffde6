//! PostgreSQL with lost connections and held locks: uncertain outcomes are resolved.

use std::{
    thread,
    time::{Duration, Instant},
};

use graphrun::{
    checkpoint::{
        CheckpointError, Presence, RunHistory as _, RunJournal as _, RunLeases as _, RunList as _,
        RunMaintenance as _,
    },
    event::Status,
    id::Step,
    memory::{Batch, NewEntry, PostgresStore, Search, Source, Store as _},
    storage::PostgresStorage,
};
use serde_json::json;

use crate::{
    storage::{
        proxy::{Loss, Proxy},
        sample::*,
    },
    support::postgres::{Schema, ask, execute},
};

/// A storage that reaches the server through a proxy.
struct Through {
    storage: PostgresStorage,
    proxy: Proxy,
    schema: Schema,
}

impl Through {
    fn new() -> Self {
        let schema = Schema::new();
        let proxy = Proxy::before_test_server();
        Self { storage: PostgresStorage::open(&proxy.url(&schema)).unwrap(), proxy, schema }
    }

    /// Returns a storage on the same schema without the proxy.
    fn directly(&self) -> PostgresStorage {
        PostgresStorage::open_existing(&self.schema.url()).unwrap().unwrap()
    }
}

#[tokio::test]
async fn an_entry_whose_commit_lost_its_answer_is_saved_once() {
    for loss in [Loss::Before, Loss::After] {
        let it = Through::new();
        let first = commit(0, vec![set("n", 0)]).into();
        let token = it.storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
        for step in 1..=3 {
            it.proxy.lose(loss);
            let next = commit(step, vec![appended("notes", &["x"])]);
            it.storage.append(&token, &next.into()).await.unwrap();
        }
        // A repeated release is recognised, although the lease is over.
        it.proxy.lose(loss);
        it.storage.append(&token, &run_status(Status::Done, None).into()).await.unwrap();
        assert_eq!(it.proxy.lost(), 4, "{loss:?}");
        let journal = it.directly().journal(&run("R1")).await.unwrap();
        assert_eq!(journal.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let saved = it.directly().load(&run("R1")).await.unwrap();
        assert_eq!((saved.summary.status, saved.position.step), (Status::Done, Step(3)));
        assert_eq!(json!(saved.values), json!({"n": 0, "notes": ["x", "x", "x"]}));
    }
}

#[tokio::test]
async fn a_run_whose_acceptance_lost_its_answer_is_accepted_once() {
    for loss in [Loss::Before, Loss::After] {
        let it = Through::new();
        it.proxy.lose(loss);
        let first = commit(0, vec![set("n", 0)]).into();
        let token = it.storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
        assert_eq!((it.proxy.lost(), token.fence), (1, 1));
        it.storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        assert_eq!(it.directly().list().await.unwrap().len(), 1);
        // In doubt, another owner's run is not mistaken for ours.
        for (id, name) in [("R1", "b"), ("R2", "a")] {
            it.proxy.lose(loss);
            let error = it.storage.create(&info(id, name), &request(), &first).await.unwrap_err();
            assert!(matches!(error, CheckpointError::Exists(_)), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_claim_whose_commit_lost_its_answer_is_one_claim() {
    for loss in [Loss::Before, Loss::After] {
        let it = Through::new();
        let first = commit(0, vec![]).into();
        let token = it.storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
        it.proxy.lose(loss);
        it.storage.renew(&token, TTL).await.unwrap();
        it.proxy.lose(loss);
        it.storage.release(&token).await.unwrap();
        it.proxy.lose(loss);
        let presence = Presence::new();
        let wish =
            graphrun::checkpoint::LeaseRequest { owner: presence.owner().clone(), ..request() };
        let token = it.storage.acquire(&run("R1"), &wish).await.unwrap();
        assert_eq!((token.fence, it.proxy.lost()), (2, 3), "{loss:?}");
        it.storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
        it.storage.release(&token).await.unwrap();
        it.proxy.lose(loss);
        it.storage.remove(&run("R1")).await.unwrap();
        assert_eq!(it.directly().list().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_batch_whose_commit_lost_its_answer_is_remembered_once() {
    for loss in [Loss::Before, Loss::After] {
        let schema = Schema::new();
        let proxy = Proxy::before_test_server();
        let store = PostgresStore::open(&proxy.url(&schema)).unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let person = Source::Person { name: "ana".into() };
        let entry = |text: &str| NewEntry::of("core", text.into(), person.clone());
        let put = async |key: &str, text: &str| {
            proxy.lose(loss);
            let batch = Batch { key: key.into(), entries: vec![entry(text)], now };
            store.put(&batch).await.unwrap().remove(0)
        };
        let first = put("1", "a rule").await;
        let second = put("2", "another rule").await;
        assert_eq!(put("3", "a rule").await, first);
        proxy.lose(loss);
        store.approve(&first, "ana", now).await.unwrap();
        proxy.lose(loss);
        store.remove(&second).await.unwrap();
        assert_eq!(proxy.lost(), 5, "{loss:?}");
        let directly = PostgresStore::open(&schema.url()).unwrap();
        let found = directly.search(&Search::of("core", now).query("rules")).await.unwrap();
        assert_eq!(found.len(), 1, "{loss:?}: {found:?}");
        // The words are counted once, too.
        let totals = format!("SELECT entries || ' ' || words FROM {}.totals", schema.name);
        assert_eq!(ask(totals), "1 2", "{loss:?}");
    }
}

#[tokio::test]
async fn a_memory_outlives_connections_that_the_server_ends() {
    let schema = Schema::new();
    let url = format!("{}&application_name={}", schema.url(), schema.name);
    let store = PostgresStore::open(&url).unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    for number in 1..=3 {
        let person = Source::Person { name: "ana".into() };
        let entry = NewEntry::of("core", format!("rule {number}").into(), person);
        store.put(&Batch { key: number.to_string(), entries: vec![entry], now }).await.unwrap();
        let end = format!(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = '{}'",
            schema.name
        );
        assert_ne!(ask(end), "0");
        let found = store.search(&Search::of("core", now).query("rule")).await.unwrap();
        assert_eq!(found.len(), number);
    }
}

#[tokio::test]
async fn a_connection_that_the_server_ends_is_replaced() {
    let schema = Schema::new();
    let url = format!("{}&application_name={}", schema.url(), schema.name);
    let storage = PostgresStorage::open(&url).unwrap();
    let token =
        storage.create(&info("R1", "a"), &request(), &commit(0, vec![]).into()).await.unwrap();
    for step in 1..=3 {
        let end = format!(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = '{}'",
            schema.name
        );
        assert_ne!(ask(end), "0");
        storage.append(&token, &commit(step, vec![]).into()).await.unwrap();
    }
    assert_eq!(storage.load(&run("R1")).await.unwrap().position.step, Step(3));
}

#[tokio::test]
async fn a_lease_is_renewed_in_a_blocked_runtime() {
    let schema = Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let first = commit(0, vec![]).into();
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {}.journal; SELECT pg_sleep(2); COMMIT", schema.name);
    let locked = thread::spawn(move || execute(lock));
    thread::sleep(Duration::from_millis(500));
    // More calls than connections; none of them completes before the lock is released.
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let storage = storage.clone();
            tokio::spawn(async move { storage.load(&run("R1")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let renewing = storage.clone();
    let began = Instant::now();
    let renewed = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(renewing.renew(&token, TTL)).map(|()| began.elapsed())
    });
    // The only thread of this runtime does nothing else meanwhile.
    let took = renewed.join().unwrap().unwrap();
    assert!(!locked.is_finished() && took < Duration::from_millis(1200), "{took:?}");
    for load in waiting {
        load.await.unwrap().unwrap();
    }
    locked.join().unwrap();
}

#[tokio::test]
async fn many_processes_that_begin_at_once_make_the_tables_once() {
    let schema = Schema::new();
    let opened: Vec<_> = (0..8)
        .map(|_| {
            let url = schema.url();
            thread::spawn(move || PostgresStorage::open(&url))
        })
        .collect();
    for (at, storage) in opened.into_iter().enumerate() {
        let storage = storage.join().unwrap().unwrap();
        let id = format!("R{at}");
        let name = format!("run-{at}");
        storage.create(&info(&id, &name), &request(), &commit(0, vec![]).into()).await.unwrap();
    }
    let found = PostgresStorage::open(&schema.url()).unwrap().list().await.unwrap();
    assert_eq!(found.len(), 8);
    assert_eq!(ask(format!("SELECT count(*) FROM {}.graphrun_format", schema.name)), "1");
}
