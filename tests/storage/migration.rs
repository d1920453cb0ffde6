//! The promises about migrated runs: the history stays unchanged, and later reads return the new
//! workflow.

use graphrun::{
    checkpoint::{
        Basis, CheckpointError, Commit, Detail, Entry, Mapping, Migration, Outcome, Position,
        RunInfo, SavedCheckpoint, TaskRecord,
    },
    event::Status,
    id::Step,
    state::Update,
    storage::prove,
};
use serde_json::{Value, json};

use crate::storage::sample::*;

promises! {
    a_migration_changes_what_a_run_goes_by_and_nothing_before_it
    migrated_records_are_open_and_finished_tasks_stay_finished
    a_migration_that_is_not_sound_is_refused
    several_migrations_follow_each_other
}

fn basis(workflow: &str) -> Basis {
    let origin = json!({"path": format!("{workflow}.yaml"), "text": "\"quoted\" \\ and é"});
    Basis { workflow: workflow.to_owned(), origin, graph: None }
}

fn wrote(step: u64, index: u32, value: Value) -> TaskRecord {
    let update = Update::default().write(channel("notes"), value);
    record(step, index, Outcome::Finished { update, transitions: Vec::new() })
}

/// Returns an entry that migrates a run, with records of the step after it.
fn migrating(step: u64, from: Basis, to: Basis, records: Vec<TaskRecord>) -> Entry {
    let mapping = Mapping::default().node(node("ba"), node("analyst"));
    Entry {
        migration: Some(Box::new(Migration { from, to, mapping, records })),
        run_status: Some(run_status(Status::Interrupted, Some("the run was migrated"))),
        ..commit(step, vec![cleared("brief"), set("text", "a calculator")]).into()
    }
}

async fn a_migration_changes_what_a_run_goes_by_and_nothing_before_it(home: Home) {
    let first = entry(commit(0, vec![set("brief", "a calculator")]), &events("R1", [1]));
    let token = home.open().create(&info("R1", "a"), &request(), &first).await.unwrap();
    let before = home.open().journal(&run("R1")).await.unwrap();
    let from = info("R1", "a").basis();
    let entry = migrating(1, from, basis("board"), vec![]);
    home.open().append(&token, &entry).await.unwrap();

    let storage = home.open();
    let expected = info("R1", "a").on(basis("board"));
    assert_eq!(storage.find("a").await.unwrap().info, expected);
    assert_eq!(storage.list().await.unwrap()[0].info, expected);
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!((saved.summary.info, saved.position), (expected, position(1)));
    assert_eq!(json!(saved.values), json!({"text": "a calculator"}));
    let SavedCheckpoint { position: old, values } =
        storage.checkpoint_at(&run("R1"), Step(0)).await.unwrap();
    assert_eq!((old, json!(values)), (position(0), json!({"brief": "a calculator"})));
    let journal = storage.journal(&run("R1")).await.unwrap();
    assert_eq!(journal[..1], before);
    assert_eq!(journal[1].entry, entry);
    let proof = prove(storage.as_ref(), &run("R1"), Some(before[0].hash)).await.unwrap();
    assert_eq!((proof.entries, proof.expected_at), (2, Some(1)));
}

async fn migrated_records_are_open_and_finished_tasks_stay_finished(home: Home) {
    let token = create(&home.open(), "R1").await;
    let open =
        Entry { records: vec![wrote(1, 0, json!("a")), record(1, 1, asked())], ..Entry::default() };
    home.open().append(&token, &open).await.unwrap();
    let carried = vec![wrote(2, 1, json!("a")), record(2, 0, asked())];
    let from = info("R1", "R1-name").basis();
    let entry = migrating(1, from, basis("board"), carried.clone());
    home.open().append(&token, &entry).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, carried);

    let token = home.open().acquire(&run("R1"), &request()).await.unwrap();
    for (what, index, is_refused) in [("finished before", 1, true), ("answered", 0, false)] {
        let record = record(2, index, finished());
        let added = home.open().append(&token, &record.clone().into()).await;
        assert_eq!(added.is_err(), is_refused, "{what}: {added:?}");
        if !is_refused {
            let mut all = carried.clone();
            all.push(record);
            assert_eq!(home.open().load(&run("R1")).await.unwrap().records, all);
        }
    }
    // The step takes in the migrated records, although they are stored in another entry.
    let next =
        Entry::from(commit(2, vec![set("notes", json!(["a"])), set("brief", "a calculator")]));
    home.open().append(&token, &next).await.unwrap();
    let storage = home.open();
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!(saved.records, []);
    let values = json!({"text": "a calculator", "notes": ["a"], "brief": "a calculator"});
    assert_eq!(json!(saved.values), values);
    // Reading from any entry on needs no earlier entry.
    for after in 0..5 {
        let journal = storage.entries(&run("R1"), after, 9, Detail::Whole).await.unwrap();
        assert_eq!(journal.len() as u64, 5 - after, "after {after}");
    }
    prove(storage.as_ref(), &run("R1"), None).await.unwrap();
}

async fn a_migration_that_is_not_sound_is_refused(home: Home) {
    let token = create(&home.open(), "R1").await;
    let good = |records| migrating(1, info("R1", "R1-name").basis(), basis("board"), records);
    for (what, wrong) in [
        ("no step", Entry { commit: None, ..good(vec![]) }),
        ("records before it", Entry { records: vec![record(1, 0, finished())], ..good(vec![]) }),
        ("records of the same step", good(vec![record(1, 0, finished())])),
        ("finished twice", good(vec![record(2, 0, finished()), record(2, 0, finished())])),
    ] {
        let refused = home.open().append(&token, &wrong).await;
        assert!(matches!(refused, Err(CheckpointError::Storage { .. })), "{what}: {refused:?}");
    }
    let first = Entry { migration: good(vec![]).migration, ..commit(0, vec![]).into() };
    let refused = home.open().create(&info("R2", "b"), &request(), &first).await;
    assert!(refused.is_err(), "{refused:?}");
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!(saved.summary.info, info("R1", "R1-name"));
}

async fn several_migrations_follow_each_other(home: Home) {
    let first: RunInfo = info("R1", "R1-name");
    let token = create(&home.open(), "R1").await;
    let one = migrating(1, first.basis(), basis("one"), vec![]);
    home.open().append(&token, &one).await.unwrap();
    let token = home.open().acquire(&run("R1"), &request()).await.unwrap();
    let position = Position { step: Step(2), ..Position::default() };
    let two = Entry {
        commit: Some(Commit { position, changes: vec![] }),
        ..migrating(2, basis("one"), basis("two"), vec![])
    };
    home.open().append(&token, &two).await.unwrap();
    let storage = home.open();
    assert_eq!(storage.find("R1").await.unwrap().info, first.on(basis("two")));
    let proof = prove(storage.as_ref(), &run("R1"), None).await.unwrap();
    assert_eq!(proof.entries, 3);
}
