//! Tests of the row format, besides the promises that every storage keeps.

use std::sync::Arc;

use graphrun_core::{
    event::{EVENT_VERSION, Event, RunEvent, Usage},
    id::{NodeName, RunId, TaskId},
    state::{Change, ChangeKind, Update},
};
use graphrun_engine::{
    checkpoint::{Commit, Detail, Entry, Outcome},
    storage::rules::{Head, beginning},
};
use serde_json::{Value, json};

use super::*;
fn run() -> RunId {
    RunId::parse("R1").unwrap()
}

fn notes() -> ChannelName {
    ChannelName::parse("notes").unwrap()
}

fn finished(index: u32, value: Value) -> TaskRecord {
    let update = Update::default().write(notes(), value);
    TaskRecord {
        task: TaskId { step: Step(1), index },
        node: NodeName::parse("sse").unwrap(),
        attempt: 1,
        ms: 3,
        usage: Usage::default(),
        outcome: Outcome::Finished { update, transitions: Vec::new() },
    }
}

fn step(step: u64, kind: ChangeKind) -> Commit {
    let position = Position { step: Step(step), ..Position::default() };
    Commit { position, changes: vec![Change { channel: notes(), kind }] }
}

/// Returns the rows of a run with one step, whose records are saved before it.
fn rows(records: &[TaskRecord], kind: ChangeKind) -> Vec<Row> {
    let run = run();
    let mut codec = Codec::new().unwrap();
    let first = Entry::from(step(0, ChangeKind::Cleared));
    let mut head = Head::first(&first).unwrap();
    let before = beginning(&run, b"{}");
    let open = Reader::trusted(&run, Vec::new());
    let mut rows = vec![encode(&mut codec, &first, &head, before, &open).unwrap()];
    let entries = records.iter().cloned().map(Entry::from).chain([step(1, kind).into()]);
    for entry in entries {
        head = head.after(&entry, |_| false).unwrap();
        let before = rows.last().unwrap().hash;
        let open = Reader::trusted(&run, rows.clone());
        let row = encode(&mut codec, &entry, &head, before, &open).unwrap();
        rows.push(row);
    }
    rows
}

/// Returns the body with other changes, and more meta and data.
fn with(body: &Body, changes: Option<&[u8]>, meta: &[u8], data: &[u8]) -> Body {
    Body::new(changes, &[body.meta(), meta].concat(), &[body.data(), data].concat())
}

fn text(packed: &[u8]) -> String {
    String::from_utf8(Codec::new().unwrap().unpack(packed).unwrap().to_vec()).unwrap()
}

#[test]
fn updates_of_tasks_are_stored_once() {
    let records = [finished(0, json!(["a", "b"])), finished(1, json!("c"))];
    let made = rows(&records, ChangeKind::Appended(vec![json!("a"), json!("b"), json!("c")]));
    let data: Vec<String> = made.iter().map(|it| text(it.body.data())).collect();
    assert_eq!(data, ["[]", r#"[["a","b"]]"#, r#"["c"]"#, "[]"]);
    let last = text(made[3].body.changes().unwrap());
    assert_eq!(last, r#"[["notes",{"+":[[2,0,true],[3,0,false]]}]]"#);

    let made = rows(&records, ChangeKind::Set(Arc::new(json!("c"))));
    assert_eq!(text(made[3].body.changes().unwrap()), r#"[["notes",{"=":[3,0]}]]"#);
}

#[test]
fn values_without_a_task_are_stored_with_the_step() {
    let records = [finished(0, json!("a"))];
    let made = rows(&records, ChangeKind::Appended(vec![json!("a"), json!("z")]));
    assert_eq!(text(made[2].body.data()), r#"[["a","z"]]"#);
    assert_eq!(text(made[2].body.changes().unwrap()), r#"[["notes",{"+":[[0,0,true]]}]]"#);
}

#[test]
fn an_entry_is_mostly_its_updates() {
    let value = json!("x".repeat(40));
    let made = rows(&[finished(0, value.clone())], ChangeKind::Set(Arc::new(value)));
    let [_, record, commit] = made.as_slice() else { panic!("{made:?}") };
    assert!(
        record.body.meta().len() < 80,
        "{} bytes for {}",
        record.body.meta().len(),
        text(record.body.meta())
    );
    let commit_length = commit.body.meta().len() + commit.body.changes().unwrap().len();
    assert!(commit_length < 80, "{commit_length} bytes for {}", text(commit.body.meta()));
}

/// Its checksum may fit, because an attacker can compute one.
#[test]
fn more_events_than_the_run_has_are_damage() {
    let run = run();
    let event = |seq| RunEvent {
        v: EVENT_VERSION,
        seq,
        ts: "1970-01-01T00:00:00Z".into(),
        run: run.clone(),
        event: Event::StepCommitted { step: Step(0), next: Vec::new() },
    };
    let first = Entry { events: vec![event(1), event(2)], ..step(0, ChangeKind::Cleared).into() };
    let mut codec = Codec::new().unwrap();
    let head = Head::first(&first).unwrap();
    let open = Reader::trusted(&run, Vec::new());
    let good = encode(&mut codec, &first, &head, beginning(&run, b"{}"), &open).unwrap();
    let mut read = |seq| {
        let rows = vec![Row { seq, ..good.clone() }];
        let read = Reader::trusted(&run, rows).entries(&mut codec, 0, Detail::Whole);
        read.map(|it| it[0].entry.events[0].seq)
    };
    assert_eq!(read(2).unwrap(), 1);
    let damaged = read(0).unwrap_err();
    let reason = std::error::Error::source(&damaged).map(ToString::to_string);
    assert!(reason.is_some_and(|it| it.contains("more events")), "{damaged}");
}

#[test]
fn missing_changed_or_reordered_rows_are_detected() {
    let run = run();
    let good = rows(&[finished(0, json!("a"))], ChangeKind::Set(Arc::new(json!("a"))));
    let end = good.last().map(|it| it.hash);
    let before = beginning(&run, b"{}");
    let check = |rows: Vec<Row>, before| {
        let span = Span { first: 1, last: 3, end };
        Reader::check(&run, HashedRows::of(before, rows), span).map(drop)
    };
    assert!(check(good.clone(), before).is_ok());
    assert!(check(good.clone(), beginning(&run, b"{ }")).is_err(), "of another run");
    for at in 0..good.len() {
        let mut missing = good.clone();
        missing.remove(at);
        assert!(check(missing, before).is_err(), "without {at}");
        for change in [
            |it: &mut Row| it.body = with(&it.body, it.body.changes(), b" ", b""),
            |it: &mut Row| it.body = with(&it.body, it.body.changes(), b"", b" "),
            |it: &mut Row| it.body = with(&it.body, Some(b""), b"", b""),
            |it: &mut Row| it.step = Step(it.step.0 + 1),
            |it: &mut Row| it.seq += 1,
            |it: &mut Row| it.number += 1,
            |it: &mut Row| it.hash.0[31] ^= 1,
        ] {
            let mut changed = good.clone();
            change(&mut changed[at]);
            assert!(check(changed, before).is_err(), "{at} changed");
        }
    }
    let mut swapped = good.clone();
    swapped.swap(1, 2);
    assert!(check(swapped, before).is_err());
    // An attacker who can compute hashes extended this entry, but not the last one.
    let mut longer = good.clone();
    let mut row = Row { number: 4, ..good[2].clone() };
    row.hash = row.hash_after(good[2].hash);
    longer.push(row);
    assert!(check(longer, before).is_err());
}
