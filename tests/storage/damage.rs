//! Database files that another program has changed.

use std::{fs, path::Path, sync::Arc};

use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Detail, LeaseToken, RunHistory as _, RunJournal as _,
        RunLeases as _, RunList as _,
    },
    event::Status,
    id::Step,
    storage::SqliteStorage,
};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::storage::sample::*;

/// Saves two runs with content in every column, and closes the database. Both have the same
/// entries; the first is stopped, and the second has an owner.
async fn save(path: &Path) {
    let storage = SqliteStorage::open(path).unwrap();
    for id in ["R1", "R2"] {
        let first = entry(
            commit(0, vec![set("brief", "a new calculator"), set("notes", json!(["a"]))]),
            &events(id, [1, 2]),
        );
        let token = storage.create(&info(id, id), &request(), &first).await.unwrap();
        let second = vec![appended("notes", &["b"]), set("brief", "a calculator")];
        for entry in [
            entry(record(1, 0, finished()), &events(id, [3])),
            entry(commit(1, second), &events(id, [4])),
            entry(record(2, 0, asked()), &events(id, [5])),
            entry(run_status(Status::Paused, Some("asks")), &events(id, [6])),
        ] {
            storage.append(&token, &entry).await.unwrap();
        }
    }
    storage.acquire(&run("R2"), &request()).await.unwrap();
}

/// Reads everything of a database.
async fn read(path: &Path) -> Result<String, CheckpointError> {
    let storage = SqliteStorage::open_existing(path)?;
    let mut all = vec![format!("{:?}", storage.list().await?)];
    for id in ["R1", "R2"] {
        let run = run(id);
        all.push(format!("{:?}", storage.find(id).await?));
        all.push(format!("{:?}", storage.load(&run).await?));
        all.push(format!("{:?}", storage.events(&run, 0).await?));
        all.push(format!("{:?}", storage.records(&run).await?));
        for step in [0, 1] {
            all.push(format!("{:?}", storage.checkpoint_at(&run, Step(step)).await?));
        }
        for after in 0..6 {
            for limit in [1, 9] {
                all.push(format!(
                    "{:?}",
                    storage.entries(&run, after, limit, Detail::Whole).await?
                ));
            }
        }
    }
    Ok(all.join("\n"))
}

async fn verify(path: &Path) -> Result<(), CheckpointError> {
    SqliteStorage::open_existing(path)?.verify().await
}

/// Creates a folder with a database of these two runs.
pub(crate) async fn saved() -> TempDir {
    let folder = TempDir::new().unwrap();
    save(&folder.path().join("runs.db")).await;
    folder
}

/// Returns a changed copy of a database.
pub(crate) fn changed(saved: &TempDir, change: &str) -> (TempDir, SqliteStorage) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    fs::copy(saved.path().join("runs.db"), &path).unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(&format!("PRAGMA foreign_keys = off; {change}")).unwrap();
    assert!(raw.total_changes() > 0, "{change}");
    (folder, SqliteStorage::open_existing(path).unwrap())
}

/// Returns the detected damage in databases with these changes. Each change damages a run.
async fn found(changes: &[&str]) -> String {
    let saved = saved().await;
    let mut found = Vec::new();
    for change in changes {
        let (folder, _) = changed(&saved, change);
        match read(&folder.path().join("runs.db")).await {
            Err(error @ CheckpointError::Damaged { .. }) => found.push(told(&error)),
            Err(error) => found.push(format!("NOT NAMED: {change}: {}", told(&error))),
            Ok(_) => found.push(format!("NOT FOUND: {change}")),
        }
    }
    found.join("\n")
}

#[tokio::test]
async fn a_changed_row_is_found_and_named() {
    // Each changes R1 only. The last ones move whole rows with all hashes.
    let changes = [
        "UPDATE runs SET info = CAST(replace(CAST(info AS TEXT), 'dev_team', 'dev_teem') AS BLOB)
         WHERE key = 1",
        "UPDATE runs SET name = 'R3' WHERE key = 1",
        "UPDATE runs SET info_checksum = zeroblob(8) WHERE key = 1",
        "UPDATE heads SET run_status = replace(run_status, 'paused', 'failed') WHERE run = 1",
        "UPDATE heads SET run_status = replace(run_status, 'asks', 'axes') WHERE run = 1",
        "UPDATE heads SET number = number - 1 WHERE run = 1",
        "UPDATE heads SET before_open = before_open - 2 WHERE run = 1",
        "UPDATE heads SET step = step + 1 WHERE run = 1",
        "UPDATE heads SET seq = seq - 1 WHERE run = 1",
        "UPDATE heads SET hash = zeroblob(32) WHERE run = 1",
        "UPDATE heads SET hash = (SELECT hash FROM journal WHERE run = 1 AND number = 4)
         WHERE run = 1",
        "UPDATE heads SET hash = x'' WHERE run = 1",
        "UPDATE heads SET checksum = zeroblob(8) WHERE run = 1",
        "UPDATE heads SET checksum = x'' WHERE run = 1",
        "UPDATE heads SET owner = 'another' WHERE run = 1",
        "UPDATE heads SET until = 9223372036854775807 WHERE run = 1",
        "UPDATE journal SET meta = substr(meta, 1, length(meta) - 1) WHERE run = 1 AND number = 3",
        "UPDATE journal SET meta = x'' WHERE run = 1 AND number = 1",
        "UPDATE journal SET meta = (SELECT meta FROM journal WHERE run = 1 AND number = 4)
         WHERE run = 1 AND number = 2",
        "UPDATE journal SET data = CAST(replace(CAST(data AS TEXT), 'calculator', 'calculatos') AS BLOB)
         WHERE run = 1 AND number = 2",
        "UPDATE journal SET data = CAST('p[]' AS BLOB) WHERE run = 1 AND number = 2",
        "UPDATE journal SET data = CAST('p[0]' AS BLOB) WHERE run = 1 AND number = 5",
        "UPDATE journal SET changes = CAST(replace(CAST(changes AS TEXT), 'brief', 'bribe') AS BLOB)
         WHERE run = 1 AND number = 3",
        "UPDATE journal SET changes = NULL WHERE run = 1 AND number = 3",
        "UPDATE journal SET changes = CAST('p[]' AS BLOB) WHERE run = 1 AND number = 4",
        "UPDATE journal SET changes = x'' WHERE run = 1 AND number = 5",
        "UPDATE journal SET changes = (SELECT changes FROM journal WHERE run = 1 AND number = 1)
         WHERE run = 1 AND number = 3",
        "UPDATE journal SET hash = zeroblob(32) WHERE run = 1 AND number = 1",
        "UPDATE journal SET hash = (SELECT hash FROM journal WHERE run = 1 AND number = 2)
         WHERE run = 1 AND number = 3",
        "UPDATE journal SET hash = zeroblob(32) WHERE run = 1 AND number = 5",
        "UPDATE journal SET hash = x'00' WHERE run = 1 AND number = 3",
        "UPDATE journal SET step = 2 WHERE run = 1 AND number = 3",
        "UPDATE journal SET seq = 7 WHERE run = 1 AND number = 2",
        "UPDATE journal SET number = 9 WHERE run = 1 AND number = 5",
        "UPDATE journal SET number = 0 WHERE run = 1 AND number = 1",
        "UPDATE journal SET number = number + 9 WHERE run = 1",
        "INSERT INTO journal (run, number, step, seq, changes, meta, data, hash)
         SELECT run, 6, step, seq, changes, meta, data, hash FROM journal
         WHERE run = 1 AND number = 5",
        "DELETE FROM journal WHERE run = 1 AND number = 1",
        "DELETE FROM journal WHERE run = 1 AND number = 3",
        "DELETE FROM journal WHERE run = 1 AND number = 5",
        "DELETE FROM journal WHERE run = 1",
        "DELETE FROM heads WHERE run = 1",
        "UPDATE journal SET number = 9 WHERE run = 1 AND number = 2;
         UPDATE journal SET number = 2 WHERE run = 1 AND number = 4;
         UPDATE journal SET number = 4 WHERE run = 1 AND number = 9",
        "DELETE FROM journal WHERE run = 1 AND number = 4;
         UPDATE journal SET run = 1 WHERE run = 2 AND number = 4",
        "UPDATE journal SET run = 3 WHERE run = 1; UPDATE journal SET run = 1 WHERE run = 2;
         UPDATE journal SET run = 2 WHERE run = 3",
        "UPDATE heads SET run = 3 WHERE run = 1; UPDATE heads SET run = 1 WHERE run = 2;
         UPDATE heads SET run = 2 WHERE run = 3",
        "UPDATE heads SET run = 3 WHERE run = 1; UPDATE heads SET run = 1 WHERE run = 2;
         UPDATE heads SET run = 2 WHERE run = 3;
         UPDATE journal SET run = 3 WHERE run = 1; UPDATE journal SET run = 1 WHERE run = 2;
         UPDATE journal SET run = 2 WHERE run = 3",
        "UPDATE runs SET id = 'R3' WHERE key = 2; UPDATE runs SET id = 'R2' WHERE key = 1;
         UPDATE runs SET id = 'R1' WHERE key = 2",
        "UPDATE runs SET name = 'R3' WHERE key = 2; UPDATE runs SET name = 'R2' WHERE key = 1;
         UPDATE runs SET name = 'R1' WHERE key = 2",
    ];
    let found = found(&changes).await;
    assert!(!found.contains("NOT "), "{found}");
    insta::assert_snapshot!(found);
}

#[tokio::test]
async fn a_changed_lease_is_found_and_named() {
    // The owner of a lease, its expiry and its number prevent two processes from writing one run.
    let changes = [
        "UPDATE heads SET owner = NULL WHERE run = 2",
        "UPDATE heads SET owner = 'another' WHERE run = 2",
        "UPDATE heads SET owner = replace(owner, '\"pid\":', '\"pid\":1') WHERE run = 2",
        "UPDATE heads SET fence = fence + 1 WHERE run = 2",
        "UPDATE heads SET fence = fence - 1 WHERE run = 2",
        "UPDATE heads SET until = 0 WHERE run = 2",
        "UPDATE heads SET until = until + 1 WHERE run = 2",
        "UPDATE heads SET fence = fence - 1 WHERE run = 1",
        "UPDATE heads SET owner = (SELECT owner FROM heads WHERE run = 2) WHERE run = 1",
    ];
    let found = found(&changes).await;
    assert!(!found.contains("NOT "), "{found}");
}

#[tokio::test]
async fn a_missing_entry_is_found_wherever_reading_begins_and_ends() {
    let saved = saved().await;
    for missing in 1..=5 {
        let change = format!("DELETE FROM journal WHERE run = 1 AND number = {missing}");
        let (_folder, storage) = changed(&saved, &change);
        for after in 0..missing {
            for limit in usize::try_from(missing - after).unwrap()..=6 {
                let read = storage.entries(&run("R1"), after, limit, Detail::Whole).await;
                let error = read.map(|it| it.len());
                assert!(
                    matches!(error, Err(CheckpointError::Damaged { .. })),
                    "entry {missing} is missing; after {after}, at most {limit}: {error:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn damage_in_a_long_run_is_reported_at_its_first_entry() {
    // Other threads check hashes while later rows are read. The reported error is the same as with
    // sequential checks: an unreadable row first, then a missing one, then a wrong hash, each the
    // first of its kind.
    let folder = TempDir::new().unwrap();
    {
        let storage: Arc<dyn Checkpointer> =
            Arc::new(SqliteStorage::open(folder.path().join("runs.db")).unwrap());
        let token = create(&storage, "R1").await;
        for step in 1..=1_500 {
            let step = entry(commit(step, vec![appended("notes", &["x"])]), &[]);
            storage.append(&token, &step).await.unwrap();
        }
    }
    let last = "UPDATE journal SET data = zeroblob(9) WHERE number = 1501";
    let middle = "UPDATE journal SET data = zeroblob(9) WHERE number IN (700, 900)";
    let edge = "UPDATE journal SET hash = zeroblob(32) WHERE number = 256";
    let missing = "DELETE FROM journal WHERE number IN (1200, 1400)";
    let unreadable = "UPDATE journal SET hash = x'00' WHERE number IN (1300, 1500)";
    for (changes, expected) in [
        (vec![last], "entry 1501 of run `R1` is damaged: its checksum does not match"),
        (vec![last, middle], "entry 700 of run `R1` is damaged: its checksum does not match"),
        (vec![middle, edge], "entry 256 of run `R1` is damaged: its checksum does not match"),
        (vec![middle, missing], "entry 1200 of run `R1` is damaged: it is missing"),
        (
            vec![middle, missing, unreadable],
            "entry 1300 of run `R1` is damaged: its hash is too short",
        ),
    ] {
        let (_folder, storage) = changed(&folder, &changes.join(";"));
        let error = storage.load(&run("R1")).await.unwrap_err();
        assert_eq!(told(&error), expected, "{changes:?}");
    }
}

#[tokio::test]
async fn nothing_is_appended_to_a_damaged_journal() {
    let (_folder, storage) = changed(
        &saved().await,
        "UPDATE heads SET seq = seq + 1 WHERE run = 2;
         UPDATE heads SET run_status = replace(run_status, 'paused', 'failed') WHERE run = 1",
    );
    let token = LeaseToken { run: run("R2"), fence: 2 };
    let next = entry(record(2, 0, answered()), &events("R2", [8]));
    for error in [
        storage.append(&token, &next).await.unwrap_err(),
        storage.renew(&token, TTL).await.unwrap_err(),
        storage.acquire(&run("R1"), &request()).await.unwrap_err(),
    ] {
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn nothing_is_added_to_an_open_step_whose_entries_are_damaged() {
    // A process that opens the database reads the finished tasks from there.
    let saved = saved().await;
    for change in [
        "UPDATE journal SET meta = substr(meta, 1, length(meta) - 1) WHERE run = 2 AND number = 4",
        "UPDATE journal SET hash = zeroblob(32) WHERE run = 2 AND number = 3",
        "DELETE FROM journal WHERE run = 2 AND number = 4",
        "DELETE FROM journal WHERE run = 2 AND number = 3",
        "DELETE FROM journal WHERE run = 2 AND number = 5",
    ] {
        let (_folder, storage) = changed(&saved, change);
        let token = LeaseToken { run: run("R2"), fence: 2 };
        let next = entry(record(2, 0, answered()), &events("R2", [7]));
        let error = storage.append(&token, &next).await.expect_err(change);
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{change}: {error:?}");
    }
}

#[tokio::test]
async fn a_damaged_run_hides_no_other_in_a_list() {
    let saved = saved().await;
    for change in [
        "UPDATE runs SET info = x'' WHERE key = 1",
        "UPDATE runs SET id = 'R 1' WHERE key = 1",
        "UPDATE heads SET seq = seq + 1 WHERE run = 1",
        "UPDATE heads SET owner = 'another' WHERE run = 1",
        "DELETE FROM heads WHERE run = 1",
    ] {
        let (_folder, storage) = changed(&saved, change);
        assert_only_first_is_damaged(&storage, change).await;
    }
}

#[tokio::test]
async fn rows_whose_run_is_gone_are_found() {
    let saved = saved().await;
    for table in ["journal", "heads"] {
        let other = if table == "journal" { "heads" } else { "journal" };
        let change = format!("DELETE FROM runs WHERE key = 1; DELETE FROM {other} WHERE run = 1");
        let (_folder, storage) = changed(&saved, &change);
        let error = told(&storage.verify().await.unwrap_err());
        assert!(error.contains(&format!("`{table}` has a row without a run")), "{error}");
    }
}

#[tokio::test]
async fn a_flipped_bit_is_never_taken_for_the_truth() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    save(&path).await;
    let truth = read(&path).await.unwrap();
    let good = fs::read(&path).unwrap();
    let copy = folder.path().join("copy.db");
    let mut lies = Vec::new();
    // Every eleventh of the non-zero bytes; all of them would take a minute.
    for at in (0..good.len()).filter(|&at| good[at] != 0).step_by(11) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&copy, bad).unwrap();
        if let (Ok(()), Ok(read)) = (verify(&copy).await, read(&copy).await)
            && read != truth
        {
            let differs = read.lines().zip(truth.lines()).find(|(read, truth)| read != truth);
            lies.push((at, differs.map(|(read, truth)| format!("{read}\n{truth}"))));
        }
        for rest in ["copy.db-wal", "copy.db-shm"] {
            drop(fs::remove_file(folder.path().join(rest)));
        }
    }
    assert!(lies.is_empty(), "{} lies: {lies:#?}", lies.len());
}

#[tokio::test]
async fn damaged_kept_values_cost_time_and_forged_ones_are_found() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let storage: Arc<dyn Checkpointer> = Arc::new(SqliteStorage::open(&path).unwrap());
    let token = create(&storage, "R1").await;
    for step in 1..=4 {
        let changes = vec![set("brief", format!("of {step}"))];
        storage.append(&token, &commit(step, changes).into()).await.unwrap();
    }
    let mut saved = storage.load(&run("R1")).await.unwrap();
    storage.keep_values(&token, &saved).await.unwrap();
    let raw = Connection::open(&path).unwrap();
    for damage in ["content = x'00'", "checksum = x''", "number = number - 1"] {
        raw.execute_batch(&format!("UPDATE kept_values SET {damage}")).unwrap();
        let loaded = storage.load(&run("R1")).await.unwrap();
        assert_eq!((loaded.entries_read, &loaded.values), (5, &saved.values), "{damage}");
        storage.keep_values(&token, &saved).await.unwrap();
    }
    assert_eq!(storage.load(&run("R1")).await.unwrap().entries_read, 1);
    graphrun::storage::prove(storage.as_ref(), &run("R1"), None).await.unwrap();

    saved.values.insert(channel("brief"), json!("forged"));
    storage.keep_values(&token, &saved).await.unwrap();
    let refused = graphrun::storage::prove(storage.as_ref(), &run("R1"), None).await.unwrap_err();
    assert!(refused.to_string().contains("the kept values"), "{refused}");
}
