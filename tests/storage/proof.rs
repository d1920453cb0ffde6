//! The proof that a run is unchanged.

use std::{fs, sync::Arc};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, EntryHash},
    event::Status,
    id::Step,
    storage::{SqliteStorage, prove},
};

use crate::storage::{
    damage::{changed, saved},
    sample::*,
};

/// Saves a run of three hundred steps, more than are read at once, and returns its hashes.
async fn long_run(storage: &Arc<dyn Checkpointer>) -> Vec<EntryHash> {
    let token = create(storage, "R1").await;
    for step in 1..=300 {
        let step = entry(commit(step, vec![appended("notes", &["x"])]), &[]);
        storage.append(&token, &step).await.unwrap();
    }
    let journal = storage.journal(&run("R1")).await.unwrap();
    journal.into_iter().map(|it| it.hash).collect()
}

promises! {
    a_history_is_proven_by_its_last_link
    a_link_is_found_wherever_it_is_in_the_history
    a_run_with_an_owner_can_be_verified
}

async fn a_history_is_proven_by_its_last_link(home: Home) {
    let storage = home.open();
    let hashes = long_run(&storage).await;
    let proof = prove(home.open().as_ref(), &run("R1"), None).await.unwrap();
    assert_eq!((proof.entries, proof.steps, proof.expected_at), (301, Step(300), None));
    assert_eq!(Some(&proof.hash), hashes.last());
}

async fn a_link_is_found_wherever_it_is_in_the_history(home: Home) {
    let storage = home.open();
    let hashes = long_run(&storage).await;
    for at in [0, 1, 255, 256, 300] {
        let proof = prove(storage.as_ref(), &run("R1"), Some(hashes[at])).await.unwrap();
        assert_eq!(proof.expected_at, Some(at as u64 + 1));
    }
    let mut other = hashes[7];
    other.0[0] ^= 1;
    let proof = prove(storage.as_ref(), &run("R1"), Some(other)).await.unwrap();
    assert_eq!(proof.expected_at, None);
}

async fn a_run_with_an_owner_can_be_verified(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    storage.append(&token, &entry(record(1, 0, finished()), &[])).await.unwrap();
    assert_eq!(prove(storage.as_ref(), &run("R1"), None).await.unwrap().entries, 2);
    storage.append(&token, &run_status(Status::Paused, Some("asks")).into()).await.unwrap();
    assert_eq!(prove(storage.as_ref(), &run("R1"), None).await.unwrap().entries, 3);
    let unknown = prove(storage.as_ref(), &run("R2"), None).await.unwrap_err();
    assert!(matches!(unknown, CheckpointError::UnknownRun(_)), "{unknown}");
}

#[tokio::test]
async fn a_changed_row_does_not_pass_the_proof() {
    let saved = saved().await;
    let mut changes = Vec::new();
    for number in 1..=5 {
        let here = format!("WHERE run = 1 AND number = {number}");
        changes.push(format!("DELETE FROM journal {here}"));
        for column in ["meta", "data", "hash"] {
            changes.push(format!(
                "UPDATE journal SET {column} = CAST(substr({column}, 1, length({column}) - 1) || x'00' AS BLOB) {here}"
            ));
        }
        for column in ["step", "seq"] {
            changes.push(format!("UPDATE journal SET {column} = {column} + 1 {here}"));
        }
    }
    for (one, other) in [(1, 2), (2, 4), (3, 5)] {
        changes.push(format!(
            "UPDATE journal SET number = -1 WHERE run = 1 AND number = {one};
             UPDATE journal SET number = {one} WHERE run = 1 AND number = {other};
             UPDATE journal SET number = {other} WHERE run = 1 AND number = -1"
        ));
    }
    for change in changes {
        let (_folder, storage) = changed(&saved, &change);
        match prove(&storage, &run("R1"), None).await {
            Err(CheckpointError::Damaged { run, .. }) => assert_eq!(run, "R1", "{change}"),
            other => panic!("{change}: {other:?}"),
        }
        prove(&storage, &run("R2"), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_noted_hash_detects_a_truncated_history() {
    let home = Home::sqlite();
    let Home::Sqlite(folder) = &home else { unreachable!("it was just made") };
    let storage = home.open();
    let token = create(&storage, "R1").await;
    drop(storage);
    let earlier = folder.path().join("earlier.db");
    fs::copy(folder.path().join("runs.db"), &earlier).unwrap();

    let storage = home.open();
    storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
    let noted = prove(storage.as_ref(), &run("R1"), None).await.unwrap().hash;
    // The history is consistent, and only the hash shows that there was more.
    let storage = SqliteStorage::open_existing(earlier).unwrap();
    storage.verify().await.unwrap();
    let proof = prove(&storage, &run("R1"), Some(noted)).await.unwrap();
    assert_eq!((proof.entries, proof.expected_at), (1, None));
}
