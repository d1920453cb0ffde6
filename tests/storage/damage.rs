//! Files that something else has changed since we wrote them.

use std::{fs, path::Path};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer},
    event::Status,
    id::Step,
    storage::SqliteStorage,
};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::sample::*;

/// Saves two runs with something in every table, and closes the database.
async fn save(path: &Path) {
    let storage = SqliteStorage::open(path).unwrap();
    for id in ["R1", "R2"] {
        let first = vec![set("brief", "a calculator"), set("notes", json!(["a"]))];
        storage.create(&info(id, id), &commit(0, first), &events(id, [1, 2])).await.unwrap();
        storage.record(&run(id), &record(1, 0, finished()), &events(id, [3])).await.unwrap();
        let second = vec![appended("notes", &["b"]), cleared("brief")];
        storage.commit(&run(id), &commit(1, second), &events(id, [4])).await.unwrap();
        storage.record(&run(id), &record(2, 0, asked()), &events(id, [5])).await.unwrap();
        storage.set_status(&run(id), Status::Paused, Some("asks"), &events(id, [6])).await.unwrap();
    }
}

/// Everything that can be read of a database.
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
            all.push(format!("{:?}", storage.values_at(&run, Step(step)).await?));
        }
    }
    Ok(all.join("\n"))
}

async fn verify(path: &Path) -> Result<(), CheckpointError> {
    SqliteStorage::open_existing(path)?.verify().await
}

#[tokio::test]
async fn a_changed_row_is_found_and_named() {
    // Each changes R1 only. The last ones move whole rows, payload, checksum and all.
    let changes = [
        "UPDATE runs SET info = replace(info, 'dev_team', 'dev_teem') WHERE key = 1",
        "UPDATE runs SET standing = replace(standing, 'paused', 'failed') WHERE key = 1",
        "UPDATE runs SET info_checksum = zeroblob(32) WHERE key = 1",
        "UPDATE positions SET payload = replace(payload, '\"qc\"', '\"qd\"') WHERE run = 1 AND step = 1",
        "UPDATE changes SET payload = replace(payload, 'calculator', 'calculatos') WHERE run = 1",
        "UPDATE changes SET payload = payload || ' ' WHERE run = 1 AND step = 1",
        "UPDATE changes SET checksum = x'' WHERE run = 1 AND channel = 'notes'",
        "UPDATE records SET payload = replace(payload, 'Go on?', 'Go in?') WHERE run = 1",
        "UPDATE records SET payload = replace(payload, 'finished', 'failed') WHERE run = 1",
        "UPDATE events SET payload = replace(payload, ':4,', ':5,') WHERE run = 1 AND seq = 4",
        "UPDATE positions SET step = 2 WHERE run = 1 AND step = 1",
        "UPDATE changes SET channel = 'bribe' WHERE run = 1 AND channel = 'brief'",
        "UPDATE changes SET step = 3 WHERE run = 1 AND channel = 'notes' AND step = 0;
         UPDATE changes SET step = 0 WHERE run = 1 AND channel = 'notes' AND step = 1",
        "UPDATE records SET task = 1 WHERE run = 1 AND step = 2",
        "UPDATE events SET seq = 7 WHERE run = 1 AND seq = 3",
        "UPDATE runs SET id = 'R3' WHERE key = 2; UPDATE runs SET id = 'R2' WHERE key = 1;
         UPDATE runs SET id = 'R1' WHERE key = 2",
        "DELETE FROM positions WHERE run = 1",
    ];
    let mut found = Vec::new();
    for change in changes {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        save(&path).await;
        let raw = Connection::open(&path).unwrap();
        raw.execute_batch(change).unwrap();
        drop(raw);
        match read(&path).await {
            Err(error @ CheckpointError::Damaged { .. }) => found.push(told(&error)),
            other => panic!("{change}: {other:?}"),
        }
    }
    insta::assert_snapshot!(found.join("\n"));
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
    // Every eleventh of the places that hold something; all of them would take a minute.
    for at in (0..good.len()).filter(|&at| good[at] != 0).step_by(11) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&copy, bad).unwrap();
        if let (Ok(()), Ok(read)) = (verify(&copy).await, read(&copy).await)
            && read != truth
        {
            lies.push((at, read));
        }
        for rest in ["copy.db-wal", "copy.db-shm"] {
            drop(fs::remove_file(folder.path().join(rest)));
        }
    }
    assert!(lies.is_empty(), "{} lies: {lies:#?}", lies.len());
}
