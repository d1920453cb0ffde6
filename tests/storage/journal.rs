//! The promises about reading: every entry is unchanged and in order, with a proof of that.

use graphrun::{
    checkpoint::{Detail, Entry, EntryHash, JournalEntry, Outcome, RunInfo, TaskRecord},
    event::Status,
    graph::{Target, Transition},
    id::Step,
    state::{Change, ChangeKind, Update},
};
use serde_json::{Value, json};

use crate::storage::sample::*;

promises! {
    the_journal_gives_back_every_entry_as_it_was_appended
    the_journal_is_read_from_any_number_and_with_any_limit
    equal_values_of_several_tasks_are_kept_apart
    values_only_equal_to_an_update_are_stored_themselves
    the_position_and_the_values_of_every_step_can_be_read
    equal_histories_have_equal_links
    a_link_differs_when_anything_differs
    a_link_follows_from_the_entry_before
}

/// Returns a record of a task that finished with these writes.
fn wrote(step: u64, index: u32, writes: &[(&str, Value)]) -> TaskRecord {
    let writes = writes.iter().map(|(name, value)| (channel(name), value.clone().into())).collect();
    let update = Update { clears: vec![], writes };
    record(
        step,
        index,
        Outcome::Finished { update, transitions: vec![Transition::To(Target::End)] },
    )
}

fn items(name: &str, items: Value) -> Change {
    let Value::Array(items) = items else { panic!("{items}") };
    Change { channel: channel(name), kind: ChangeKind::Appended(items) }
}

/// Creates a run from these entries, and reads it with another storage instance.
async fn journal_of(home: &Home, info: &RunInfo, entries: &[Entry]) -> Vec<JournalEntry> {
    let token = home.open().create(info, &request(), &entries[0]).await.unwrap();
    for entry in &entries[1..] {
        home.open().append(&token, entry).await.unwrap();
    }
    home.open().journal(&info.id).await.unwrap()
}

/// Checks that entries are read as they were appended, including the order of object fields and the
/// sign of a zero, which `==` ignores.
pub(crate) async fn assert_kept(home: &Home, entries: &[Entry]) {
    let journal = journal_of(home, &info("R1", "a"), entries).await;
    assert_eq!(journal.len(), entries.len());
    for (number, (logged, entry)) in (1..).zip(journal.iter().zip(entries)) {
        assert_eq!(logged.number, number);
        assert_eq!(logged.entry, *entry, "entry {number}");
        assert_eq!(format!("{:?}", logged.entry), format!("{entry:?}"), "entry {number}");
    }
    let storage = home.open();
    let records: Vec<_> = entries.iter().flat_map(|it| it.records.clone()).collect();
    assert_eq!(storage.records(&run("R1")).await.unwrap(), records);
    let told: Vec<_> = entries.iter().flat_map(|it| it.events.clone()).collect();
    assert_eq!(storage.events(&run("R1"), 0).await.unwrap(), told);
}

/// Returns a journal with every kind of content.
fn everything() -> Vec<Entry> {
    vec![
        entry(
            commit(0, vec![set("brief", "x"), items("notes", json!(["a"]))]),
            &events("R1", [1, 2]),
        ),
        entry(wrote(1, 1, &[("notes", json!(["b", "c"])), ("brief", json!({"n": 1.5}))]), &[]),
        entry(record(1, 0, failed()), &events("R1", [3])),
        Entry::default(),
        entry(Entry::default(), &events("R1", [4])),
        entry(run_status(Status::Running, Some("tries again")), &events("R1", [5, 6])),
        Entry {
            records: vec![record(1, 2, asked()), record(1, 2, answered()), record(1, 3, caught())],
            events: events("R1", [7]),
            ..Entry::default()
        },
        Entry {
            records: vec![wrote(1, 0, &[("notes", json!("d")), ("notes", json!(null))])],
            commit: Some(commit(
                1,
                vec![
                    items("notes", json!(["d", null, "b", "c"])),
                    set("brief", json!({"n": 1.5})),
                    cleared("verdict"),
                ],
            )),
            run_status: Some(run_status(Status::Running, None)),
            events: events("R1", [8, 9]),
            migration: None,
        },
        entry(record(2, 0, skipped()), &[]),
        commit(2, vec![]).into(),
        Entry {
            records: vec![wrote(3, 0, &[])],
            commit: Some(commit(
                3,
                vec![set("brief", json!({"n": 1.5})), items("notes", json!([]))],
            )),
            run_status: Some(run_status(Status::Done, None)),
            events: events("R1", [10]),
            migration: None,
        },
    ]
}

async fn the_journal_gives_back_every_entry_as_it_was_appended(home: Home) {
    assert_kept(&home, &everything()).await;
}

async fn the_journal_is_read_from_any_number_and_with_any_limit(home: Home) {
    let all = journal_of(&home, &info("R1", "a"), &everything()).await;
    journal_of(&home, &info("R2", "b"), &[commit(0, vec![]).into()]).await;
    let storage = home.open();
    for after in 0..=all.len() + 2 {
        for limit in [0, 1, 2, 3, all.len() - 1, all.len(), all.len() + 1, usize::MAX] {
            let found =
                storage.entries(&run("R1"), after as u64, limit, Detail::Whole).await.unwrap();
            let expected: Vec<_> = all.iter().skip(after).take(limit).cloned().collect();
            assert_eq!(found, expected, "after {after}, at most {limit}");
        }
    }
    for after in [u64::MAX >> 1, u64::MAX] {
        assert_eq!(
            storage.entries(&run("R1"), after, usize::MAX, Detail::Whole).await.unwrap(),
            [],
            "{after}"
        );
    }
    assert_eq!(storage.journal(&run("R2")).await.unwrap().len(), 1);
}

async fn equal_values_of_several_tasks_are_kept_apart(home: Home) {
    let list = json!(["a", "a"]);
    let writes = [("notes", list.clone()), ("brief", list.clone()), ("notes", json!("a"))];
    let all = vec![
        commit(0, vec![]).into(),
        wrote(1, 2, &writes).into(),
        wrote(1, 0, &writes).into(),
        Entry {
            records: vec![wrote(1, 1, &writes)],
            commit: Some(commit(
                1,
                vec![
                    items("notes", json!(["a", "a", "a", "a", "a", "a", "a", "a", "a"])),
                    set("brief", list.clone()),
                    set("verdict", list.clone()),
                ],
            )),
            ..Entry::default()
        },
        // A change of the previous step; none of its tasks is open.
        commit(2, vec![set("brief", list.clone()), items("notes", list.clone())]).into(),
        // Written by two tasks, as a list and as a single item.
        wrote(3, 0, &[("notes", json!([["a"]])), ("notes", json!([])), ("notes", json!(["a"]))])
            .into(),
        commit(3, vec![items("notes", json!([["a"], [], ["a"]]))]).into(),
        wrote(4, 0, &[("notes", json!([["a"]])), ("notes", json!([])), ("notes", json!(["a"]))])
            .into(),
        commit(4, vec![items("notes", json!([["a"], "a"]))]).into(),
        // More, less, and in another order than the written values.
        wrote(5, 1, &[("notes", json!("b"))]).into(),
        wrote(5, 0, &[("notes", json!("a"))]).into(),
        commit(5, vec![items("notes", json!(["b", "a"]))]).into(),
        wrote(6, 0, &[("notes", json!("b"))]).into(),
        commit(6, vec![items("notes", json!(["b", "a"]))]).into(),
        wrote(7, 0, &[("notes", json!("b")), ("notes", json!("c"))]).into(),
        commit(7, vec![items("notes", json!(["b"]))]).into(),
        wrote(8, 0, &[("notes", json!("b"))]).into(),
        commit(8, vec![items("notes", json!([]))]).into(),
    ];
    assert_kept(&home, &all).await;
    let values = home.open().load(&run("R1")).await.unwrap().values;
    assert_eq!(
        json!([values[&channel("brief")], values[&channel("verdict")]]),
        json!([list, list])
    );
    let nine = vec![json!("a"); 9];
    let rest = json!(["a", "a", ["a"], [], ["a"], ["a"], "a", "b", "a", "b", "a", "b"]);
    assert_eq!(values[&channel("notes")], json!([nine, rest.as_array().unwrap().clone()].concat()));
}

async fn values_only_equal_to_an_update_are_stored_themselves(home: Home) {
    let [one, other] = [json!({"a": 0.0, "b": [1]}), json!({"b": [1], "a": -0.0})];
    assert_eq!(one, other);
    let all = vec![
        commit(0, vec![]).into(),
        wrote(1, 0, &[("brief", one.clone()), ("notes", one.clone()), ("items", json!([one]))])
            .into(),
        commit(
            1,
            vec![
                set("brief", other.clone()),
                items("notes", json!([other])),
                items("items", json!([other])),
            ],
        )
        .into(),
    ];
    assert_kept(&home, &all).await;
    let values = home.open().load(&run("R1")).await.unwrap().values;
    let expected = json!({"brief": other, "items": [other], "notes": [other]});
    assert_eq!(json!(values).to_string(), expected.to_string());
}

async fn the_position_and_the_values_of_every_step_can_be_read(home: Home) {
    let all = everything();
    journal_of(&home, &info("R1", "a"), &all).await;
    let storage = home.open();
    let notes = json!(["a", "d", null, "b", "c"]);
    let n = json!({"n": 1.5});
    for (step, values) in [
        (0, json!({"brief": "x", "notes": ["a"]})),
        (1, json!({"brief": n, "notes": notes})),
        (2, json!({"brief": n, "notes": notes})),
        (3, json!({"brief": n, "notes": notes})),
    ] {
        let found = storage.checkpoint_at(&run("R1"), Step(step)).await.unwrap();
        assert_eq!((found.position, json!(found.values)), (position(step), values), "step {step}");
    }
    let error = storage.checkpoint_at(&run("R1"), Step(4)).await.unwrap_err();
    assert_eq!(told(&error), "run `R1` has no step 4");
}

fn hashes(journal: &[JournalEntry]) -> Vec<EntryHash> {
    journal.iter().map(|it| it.hash).collect()
}

async fn equal_histories_have_equal_links(home: Home) {
    let one = journal_of(&home, &info("R1", "a"), &everything()).await;
    // With another owner, at another time, and in a database with other content.
    let elsewhere = home.like();
    journal_of(&elsewhere, &info("R0", "b"), &everything()[..1]).await;
    let mut token = None;
    for entry in everything() {
        let storage = elsewhere.open();
        let next = match token {
            None => storage.create(&info("R1", "a"), &request_of(7), &entry).await.unwrap(),
            Some(token) => {
                storage.append(&token, &entry).await.unwrap();
                storage.release(&token).await.unwrap();
                storage.acquire(&run("R1"), &request_of(8)).await.unwrap()
            }
        };
        token = Some(next);
    }
    let other = elsewhere.open().journal(&run("R1")).await.unwrap();
    assert_eq!(hashes(&one), hashes(&other));
    let mut different = hashes(&one);
    different.sort_by_key(|it| it.0);
    different.dedup();
    assert_eq!(different.len(), everything().len(), "no two entries have the same hash");
}

async fn a_link_differs_when_anything_differs(home: Home) {
    let at = Entry {
        records: vec![wrote(1, 0, &[("brief", json!("x"))]), record(1, 1, failed())],
        commit: Some(commit(1, vec![set("brief", "x"), items("notes", json!(["a"]))])),
        run_status: Some(run_status(Status::Running, Some("why"))),
        events: events("R1", [1, 2]),
        migration: None,
    };
    let changes: Vec<fn(&mut Entry)> = vec![
        |_| (),
        |it| it.records[0] = wrote(1, 0, &[("brief", json!("y"))]),
        |it| it.records[0] = wrote(1, 0, &[("notes", json!("x"))]),
        |it| it.records[0] = wrote(1, 0, &[("brief", json!(["x"]))]),
        |it| it.records[0] = wrote(1, 0, &[]),
        |it| it.records[0].task.index = 7,
        |it| it.records[0].node = node("qc"),
        |it| it.records[0].attempt += 1,
        |it| it.records[0].ms += 1,
        |it| it.records[0].usage.tokens.calls += 1,
        |it| it.records[0].outcome = finished(),
        |it| it.records[1].outcome = asked(),
        |it| it.records.reverse(),
        |it| drop(it.records.pop()),
        |it| it.commit = None,
        |it| it.commit.as_mut().unwrap().position.used.elapsed_ms += 1,
        |it| drop(it.commit.as_mut().unwrap().position.frontier.pop()),
        |it| it.commit.as_mut().unwrap().position.visits.clear(),
        |it| it.commit.as_mut().unwrap().changes[0] = set("brief", "y"),
        |it| it.commit.as_mut().unwrap().changes[0] = set("bribe", "x"),
        |it| it.commit.as_mut().unwrap().changes[0] = cleared("brief"),
        |entry| entry.commit.as_mut().unwrap().changes[0] = items("brief", json!(["x"])),
        |entry| entry.commit.as_mut().unwrap().changes[1] = items("notes", json!([["a"]])),
        |entry| entry.commit.as_mut().unwrap().changes[1] = set("notes", json!(["a"])),
        |it| it.commit.as_mut().unwrap().changes.reverse(),
        |it| it.commit.as_mut().unwrap().changes.clear(),
        |it| it.run_status = None,
        |it| it.run_status = Some(run_status(Status::Running, None)),
        |it| it.run_status = Some(run_status(Status::Running, Some(""))),
        |entry| entry.run_status = Some(run_status(Status::Paused, Some("why"))),
        |it| drop(it.events.pop()),
        |it| it.events.clear(),
        |it| it.events[0].ts = "2025-06-01T12:00:00.6Z".into(),
        |it| it.events[0].v += 1,
        |it| it.events[1].event = it.events[0].event.clone(),
        |it| *it = Entry::default(),
    ];
    let mut found: Vec<(usize, [EntryHash; 2])> = Vec::new();
    let first = Entry::from(commit(0, vec![]));
    for (which, change) in changes.iter().enumerate() {
        let mut entry = at.clone();
        change(&mut entry);
        let storage = home.like();
        let all = [first.clone(), entry];
        let journal = journal_of(&storage, &info("R1", "a"), &all).await;
        found.push((which, [journal[0].hash, journal[1].hash]));
    }
    for (which, [before, hash]) in &found {
        assert_eq!(*before, found[0].1[0], "later entries do not change earlier ones");
        for (other, [_, another]) in &found[..*which] {
            assert_ne!(hash, another, "{which} and {other} cannot be told apart");
        }
    }

    // The info of the run as well.
    let mut runs: Vec<(RunInfo, EntryHash)> = Vec::new();
    let changes: Vec<fn(&mut RunInfo)> = vec![
        |_| (),
        |it| it.id = run("R2"),
        |it| it.name = "b".into(),
        |it| it.workflow.push('2'),
        |it| it.created = "2025-06-01T12:00:01Z".into(),
        |it| it.origin = Value::Null,
    ];
    for change in changes {
        let mut info = info("R1", "a");
        change(&mut info);
        let journal = journal_of(&home.like(), &info, std::slice::from_ref(&first)).await;
        for (other, hash) in &runs {
            assert_ne!(journal[0].hash, *hash, "{info:?} {other:?}");
        }
        runs.push((info, journal[0].hash));
    }
}

async fn a_link_follows_from_the_entry_before(home: Home) {
    let same: [Entry; 3] =
        [record(1, 0, failed()).into(), Entry::default(), commit(1, vec![set("brief", 1)]).into()];
    let begins = [commit(0, vec![]), commit(0, vec![set("brief", 0)])].map(Entry::from);
    let mut found = Vec::new();
    for begin in begins {
        let all = [&[begin][..], &same].concat();
        found.push(hashes(&journal_of(&home.like(), &info("R1", "a"), &all).await));
    }
    for (number, (one, other)) in found[0].iter().zip(&found[1]).enumerate() {
        assert_ne!(one, other, "entry {}", number + 1);
    }
    // Zero entries differ from one empty entry, and two entries from one merged entry.
    let begin = || vec![Entry::from(commit(0, vec![]))];
    let [once, twice] = [record(1, 0, failed()), record(1, 1, failed())];
    let together = Entry { records: vec![once.clone(), twice.clone()], ..Entry::default() };
    let mut ends = Vec::new();
    for rest in [
        vec![Entry::default()],
        vec![Entry::default(), Entry::default()],
        vec![together],
        vec![once.clone().into(), twice.clone().into()],
        vec![twice.into(), once.into()],
    ] {
        let all = [begin(), rest].concat();
        let journal = journal_of(&home.like(), &info("R1", "a"), &all).await;
        let end = journal.last().unwrap().hash;
        assert!(!ends.contains(&end));
        ends.push(end);
    }
}
