//! Entries of several runs that are saved together: each keeps its own result.

use std::sync::Arc;

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Entry, LeaseRequest, LeaseToken},
    id::Step,
    storage::{PostgresStorage, SqliteStorage},
};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    storage::{
        proxy::{Loss, Proxy},
        sample::*,
    },
    support::postgres::{Schema, execute},
};

/// The number of runs that write at once.
const RUNS: usize = 40;

promises! {
    a_refused_entry_affects_no_other_of_its_group
    a_refused_run_affects_no_other_of_its_group
    two_entries_of_a_run_at_once_are_saved_in_order
}

/// Creates runs, all at once.
async fn create_all(storage: &Arc<dyn Checkpointer>) -> Vec<LeaseToken> {
    let mut creating = JoinSet::new();
    for number in 0..RUNS {
        let storage = Arc::clone(storage);
        creating.spawn(async move { create(&storage, &format!("R{number:02}")).await });
    }
    let mut holds = creating.join_all().await;
    holds.sort_by(|a, b| a.run.cmp(&b.run));
    holds
}

/// Appends an entry to each run, all at once, and returns the results in the order of the runs.
async fn append_all(
    storage: &Arc<dyn Checkpointer>,
    holds: &[LeaseToken],
    entry: impl Fn(usize) -> Entry,
) -> Vec<Result<(), CheckpointError>> {
    let appends = holds.iter().enumerate().map(|(number, token)| {
        let storage = Arc::clone(storage);
        let token = token.clone();
        let entry = entry(number);
        tokio::spawn(async move { storage.append(&token, &entry).await })
    });
    let mut results = Vec::new();
    for append in appends.collect::<Vec<_>>() {
        results.push(append.await.unwrap());
    }
    results
}

async fn steps(storage: &Arc<dyn Checkpointer>, holds: &[LeaseToken]) -> Vec<u64> {
    let mut steps = Vec::new();
    for token in holds {
        steps.push(storage.load(&token.run).await.unwrap().position.step.0);
    }
    steps
}

async fn a_refused_entry_affects_no_other_of_its_group(home: Home) {
    let storage = home.open();
    let holds = create_all(&storage).await;
    let is_refused = |number: usize| number.is_multiple_of(5);
    for step in 1..=8 {
        // Every fifth entry has a step that does not follow.
        let entry = |number| {
            commit(step + u64::from(is_refused(number)), vec![appended("notes", &["x"])]).into()
        };
        let results = append_all(&storage, &holds, entry).await;
        for (number, result) in results.into_iter().enumerate() {
            match result {
                Ok(()) => assert!(!is_refused(number), "{number}"),
                Err(error) => {
                    assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
                    assert!(is_refused(number), "{number}: {error:?}");
                }
            }
        }
    }
    let expected: Vec<u64> = (0..RUNS).map(|it| if is_refused(it) { 0 } else { 8 }).collect();
    assert_eq!(steps(&home.open(), &holds).await, expected);
}

async fn a_refused_run_affects_no_other_of_its_group(home: Home) {
    let storage = home.open();
    let mut creating = JoinSet::new();
    for number in 0..2 * RUNS {
        let storage = Arc::clone(&storage);
        // Each id twice.
        let id = format!("R{}", number / 2);
        creating.spawn(async move {
            let first = commit(0, vec![set("brief", 1)]).into();
            storage.create(&info(&id, &id), &request(), &first).await
        });
    }
    let results = creating.join_all().await;
    let refused = |it: &Result<_, _>| matches!(it, Err(CheckpointError::Exists(_)));
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), RUNS);
    assert_eq!(results.iter().filter(|it| refused(it)).count(), RUNS, "{results:?}");
    assert_eq!(home.open().list().await.unwrap().len(), RUNS);
}

async fn two_entries_of_a_run_at_once_are_saved_in_order(home: Home) {
    let storage = home.open();
    let holds = create_all(&storage).await;
    // The first one is polled first, and both wait for the same transaction.
    let both = holds.iter().flat_map(|token| {
        [1, 2].map(|step| {
            let storage = Arc::clone(&storage);
            let token = token.clone();
            async move { storage.append(&token, &commit(step, vec![]).into()).await }
        })
    });
    for result in futures_util::future::join_all(both).await {
        result.unwrap();
    }
    assert_eq!(steps(&home.open(), &holds).await, [2; RUNS]);
}

#[tokio::test]
async fn a_failed_entry_affects_no_other_of_its_group_in_sqlite() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let storage: Arc<dyn Checkpointer> = Arc::new(SqliteStorage::open(&path).unwrap());
    let holds = create_all(&storage).await;
    let trigger = "CREATE TRIGGER broken BEFORE INSERT ON journal WHEN NEW.run % 5 = 1
                   BEGIN SELECT RAISE(ABORT, 'on purpose'); END";
    Connection::open(&path).unwrap().execute_batch(trigger).unwrap();
    assert_only_fifth_fails(&storage, &holds).await;
}

#[tokio::test]
async fn a_failed_entry_affects_no_other_of_its_group_in_postgres() {
    let schema = Schema::new();
    let storage: Arc<dyn Checkpointer> = Arc::new(PostgresStorage::open(&schema.url()).unwrap());
    let holds = create_all(&storage).await;
    execute(format!(
        "SET search_path = {}; CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'on purpose'; END $$;
         CREATE TRIGGER broken BEFORE INSERT ON journal FOR EACH ROW
             WHEN (NEW.run % 5 = 1) EXECUTE FUNCTION broken()",
        schema.name
    ));
    assert_only_fifth_fails(&storage, &holds).await;
}

/// Appends an entry to each run at once; the database refuses those of every fifth run.
async fn assert_only_fifth_fails(storage: &Arc<dyn Checkpointer>, holds: &[LeaseToken]) {
    for step in 1..=3 {
        let results = append_all(storage, holds, |_| commit(step, vec![]).into()).await;
        let failed: Vec<&CheckpointError> =
            results.iter().filter_map(|it| it.as_ref().err()).collect();
        // They stay at their first step, which does not follow from itself later.
        assert_eq!(failed.len(), RUNS / 5, "{failed:?}");
        let expected = if step == 1 { "on purpose" } else { "expected step 1" };
        assert!(failed.iter().all(|it| told(it).contains(expected)), "{failed:?}");
    }
    let steps = steps(storage, holds).await;
    assert_eq!(steps.iter().filter(|it| **it == 3).count(), RUNS - RUNS / 5, "{steps:?}");
    assert_eq!(steps.iter().filter(|it| **it == 0).count(), RUNS / 5, "{steps:?}");
}

#[tokio::test]
async fn a_locked_run_delays_no_other_of_its_group() {
    let schema = Schema::new();
    let storage: Arc<dyn Checkpointer> = Arc::new(PostgresStorage::open(&schema.url()).unwrap());
    let holds = create_all(&storage).await;
    let (client, connection) =
        tokio_postgres::connect(&crate::support::postgres::server(), tokio_postgres::NoTls)
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let lock = format!(
        "BEGIN; SELECT FROM {0}.heads WHERE run = (SELECT key FROM {0}.runs WHERE id = 'R07') FOR UPDATE",
        schema.name
    );
    client.batch_execute(&lock).await.unwrap();
    let locked = tokio::spawn({
        let storage = Arc::clone(&storage);
        let token = holds[7].clone();
        async move { storage.append(&token, &commit(1, vec![]).into()).await }
    });
    let others: Vec<LeaseToken> = holds.iter().filter(|it| **it != holds[7]).cloned().collect();
    for step in 1..=3 {
        for result in append_all(&storage, &others, |_| commit(step, vec![]).into()).await {
            result.unwrap();
        }
    }
    assert!(!locked.is_finished());
    client.batch_execute("COMMIT").await.unwrap();
    locked.await.unwrap().unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    assert_eq!(storage.load(&holds[7].run).await.unwrap().position.step, Step(1));
}

/// A transaction of several statements waits for the server once for each.
#[tokio::test]
async fn entries_of_owned_runs_take_one_request() {
    let schema = Schema::new();
    let proxy = Proxy::before_test_server();
    let storage = PostgresStorage::open(&proxy.url(&schema)).unwrap();
    let storage: Arc<dyn Checkpointer> = Arc::new(storage);
    let token = create(&storage, "R1").await;
    // The first entry prepares the statement.
    for step in 1..=3 {
        let before = proxy.requests();
        storage.append(&token, &record(step, 0, finished()).into()).await.unwrap();
        storage.append(&token, &record(step, 1, finished()).into()).await.unwrap();
        assert!(step == 1 || proxy.requests() == before + 2);
        let entry = commit(step, vec![appended("notes", &["x"])]);
        storage.append(&token, &entry.into()).await.unwrap();
    }
    for step in 4..=6 {
        let before = proxy.requests();
        let entry = commit(step, vec![appended("notes", &["x"])]);
        storage.append(&token, &entry.into()).await.unwrap();
        assert_eq!(proxy.requests(), before + 1, "step {step}");
    }
    // Two statements, of which the first one looks for the id and the name.
    let before = proxy.requests();
    create(&storage, "R2").await;
    assert_eq!(proxy.requests(), before + 2);
}

#[tokio::test]
async fn a_cached_head_that_is_out_of_date_saves_nothing() {
    let schema = Schema::new();
    let storages: [Arc<dyn Checkpointer>; 2] =
        [(); 2].map(|()| Arc::new(PostgresStorage::open(&schema.url()).unwrap()) as _);
    let [ours, theirs] = &storages;
    let token = create(ours, "R1").await;
    ours.append(&token, &commit(1, vec![]).into()).await.unwrap();
    // Another process writes with the same lease, which only a test does.
    theirs.append(&token, &commit(2, vec![]).into()).await.unwrap();
    let error = ours.append(&token, &commit(2, vec![]).into()).await.unwrap_err();
    assert!(told(&error).contains("expected step 3, got step 2"), "{error:?}");
    ours.append(&token, &commit(3, vec![]).into()).await.unwrap();
    let over = LeaseRequest { replaces_fence: Some(token.fence), ..request() };
    let other = theirs.acquire(&token.run, &over).await.unwrap();
    let error = ours.append(&token, &commit(4, vec![]).into()).await.unwrap_err();
    assert!(told(&error).contains("the run was taken over"), "{error:?}");
    theirs.append(&other, &commit(4, vec![]).into()).await.unwrap();
    assert_eq!(theirs.load(&token.run).await.unwrap().position.step, Step(4));
}

#[tokio::test]
async fn a_group_whose_commit_lost_its_answer_is_saved_once() {
    for loss in [Loss::Before, Loss::After] {
        let schema = Schema::new();
        let proxy = Proxy::before_test_server();
        let storage: Arc<dyn Checkpointer> =
            Arc::new(PostgresStorage::open(&proxy.url(&schema)).unwrap());
        let holds = create_all(&storage).await;
        for step in 1..=5 {
            proxy.lose(loss);
            let entry = |_| commit(step, vec![appended("notes", &["x"])]).into();
            for result in append_all(&storage, &holds, entry).await {
                result.unwrap();
            }
            assert_eq!(proxy.lost(), u32::try_from(step).unwrap(), "{loss:?}");
        }
        let directly: Arc<dyn Checkpointer> =
            Arc::new(PostgresStorage::open(&schema.url()).unwrap());
        for token in &holds {
            let journal = directly.journal(&token.run).await.unwrap();
            let numbers: Vec<u64> = journal.iter().map(|it| it.number).collect();
            assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "{loss:?}");
        }
    }
}
