//! The promises of the trait. All storages keep each of them, and another storage instance, opened
//! later, reads what one call wrote.

use std::collections::BTreeMap;

use graphrun::{
    checkpoint::{
        CheckpointError, Detail, Entry, LeaseToken, Message, Outcome, RunStatus, SavedCheckpoint,
        SavedRun,
    },
    event::Status,
    graph::{Failure, Target, Transition},
    id::{ChannelName, Step},
    state::{Change, ChangeKind, Update},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::storage::sample::*;

promises! {
    a_run_is_loaded_as_it_was_accepted
    a_taken_id_or_name_is_refused_and_its_owner_stays_as_it_was
    the_values_after_every_step_can_be_read
    numbers_are_the_same_after_saving
    only_records_of_the_open_step_are_loaded_but_all_are_kept
    a_question_and_its_answer_are_both_kept_in_order
    every_outcome_is_read_as_it_was_written
    events_are_read_from_any_number
    a_status_is_kept_with_its_reason
    the_newest_run_is_listed_first
    runs_are_listed_page_by_page
    a_run_is_found_by_id_by_name_and_by_the_beginning_of_its_id
    an_unknown_run_is_an_error_everywhere
    messages_are_kept_in_order_and_once
    an_ended_run_takes_no_messages
    an_append_to_what_is_no_list_is_damage
    a_load_with_kept_values_reads_only_the_entries_since
    a_run_is_as_old_as_its_last_event
}

async fn a_load_with_kept_values_reads_only_the_entries_since(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let append = async |steps: std::ops::RangeInclusive<u64>| {
        for step in steps {
            let brief = set("brief", format!("of {step}"));
            let changes = vec![brief, appended("notes", &[&step.to_string()])];
            storage.append(&token, &commit(step, changes).into()).await.unwrap();
        }
    };
    let state = |last: u64| {
        let notes: Vec<String> = (1..=last).map(|it| it.to_string()).collect();
        json!({"brief": format!("of {last}"), "notes": notes})
    };
    append(1..=5).await;
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!((saved.entries_read, json!(saved.values)), (6, state(5)));
    let other = LeaseToken { fence: token.fence + 1, ..token.clone() };
    storage.keep_values(&other, &saved).await.unwrap_err();
    for last in [5, 7, 9] {
        let saved = storage.load(&run("R1")).await.unwrap();
        storage.keep_values(&token, &saved).await.unwrap();
        append(last + 1..=last + 2).await;
        // Another instance reads what this one kept.
        let loaded = home.open().load(&run("R1")).await.unwrap();
        assert_eq!(json!(loaded.values), state(last + 2));
        assert_eq!(loaded.position, position(last + 2));
        assert!(loaded.entries_read <= 3, "{}", loaded.entries_read);
        for step in 1..=last + 2 {
            let values = home.open().values_at(&run("R1"), Step(step)).await.unwrap();
            assert_eq!(json!(values), state(step));
        }
    }
    storage.release(&token).await.unwrap();
    storage.remove(&run("R1")).await.unwrap();
}

async fn a_run_is_as_old_as_its_last_event(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let at = |seq, ts: &str| {
        let event = events("R1", [seq]).remove(0);
        graphrun::event::RunEvent { ts: ts.to_owned(), ..event }
    };
    for (seq, ts) in [(1, "2025-06-01T12:00:00Z"), (2, "2025-07-01T12:00:00Z")] {
        let entry = entry(commit(seq, vec![]), &[at(seq, ts)]);
        storage.append(&token, &entry).await.unwrap();
        assert_eq!(home.open().find("R1").await.unwrap().updated, ts);
    }
    storage.append(&token, &commit(3, vec![]).into()).await.unwrap();
    let listed = home.open().list().await.unwrap();
    assert_eq!(listed[0].updated, "2025-07-01T12:00:00Z", "an entry without events");
}

async fn a_run_is_loaded_as_it_was_accepted(home: Home) {
    let changes = vec![set("brief", "a calculator"), appended("notes", &["a"])];
    home.open()
        .create(
            &info("R1", "calm-otter"),
            &request(),
            &entry(commit(0, changes), &events("R1", [1, 2])),
        )
        .await
        .unwrap();

    let SavedRun { summary, position: found, values, records, last_seq, .. } =
        home.open().load(&run("R1")).await.unwrap();
    assert_eq!(summary.info, info("R1", "calm-otter"));
    assert_eq!((summary.status, summary.reason, summary.step), (Status::Running, None, Step(0)));
    assert_eq!(found, position(0));
    assert_eq!(json!(values), json!({"brief": "a calculator", "notes": ["a"]}));
    assert_eq!((records, last_seq), (vec![], 2));
}

async fn messages_are_kept_in_order_and_once(home: Home) {
    let storage = home.open();
    for (id, name) in [("R1", "calm-otter"), ("R2", "bold-ibis")] {
        let first = commit(0, vec![]).into();
        storage.create(&info(id, name), &request(), &first).await.unwrap();
    }
    let channel = ChannelName::parse("notes").unwrap();
    let said = |value: Value| Message::new(channel.clone(), value, Some("ann@desk".into()));
    let messages = [said(json!("a")), said(json!({"b": [null]})), said(json!("a"))];
    let mut numbers = Vec::new();
    for message in &messages {
        // Posting needs no lease, and works beside one.
        numbers.push(storage.post(&run("R1"), message).await.unwrap());
        storage.post(&run("R2"), message).await.unwrap();
    }
    let again = storage.post(&run("R1"), &messages[1]).await.unwrap();
    assert_eq!(again, numbers[1], "a message that was posted twice is there once");
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0] > 0, "{numbers:?}");

    let storage = home.open();
    let inbox = storage.inbox(&run("R1"), 0).await.unwrap();
    let kept: Vec<(u64, Message)> = inbox.into_iter().map(|it| (it.number, it.message)).collect();
    let all: Vec<(u64, Message)> = numbers.iter().copied().zip(messages.clone()).collect();
    assert_eq!(kept, all);
    let later = storage.inbox(&run("R1"), numbers[1]).await.unwrap();
    assert_eq!(later.len(), 1);
    let unknown = storage.post(&run("R9"), &messages[0]).await;
    assert!(matches!(unknown, Err(CheckpointError::UnknownRun(_))), "{unknown:?}");
}

async fn an_ended_run_takes_no_messages(home: Home) {
    let storage = home.open();
    let said = |id: &str| {
        let channel = ChannelName::parse("notes").unwrap();
        Message { id: id.to_owned(), ..Message::new(channel, json!("a"), None) }
    };
    let ended = |status| Entry {
        run_status: Some(RunStatus { status, reason: None }),
        ..Entry::from(commit(1, vec![]))
    };
    for (id, status) in [("R1", Status::Done), ("R2", Status::Failed)] {
        let token = create(&storage, id).await;
        let number = storage.post(&run(id), &said("first")).await.unwrap();
        let mut entry = ended(status);
        entry.commit.as_mut().unwrap().position.frontier.clear();
        storage.append(&token, &entry).await.unwrap();
        let refused = storage.post(&run(id), &said("second")).await.unwrap_err();
        assert!(matches!(refused, CheckpointError::Ended { .. }), "{refused}");
        let text = format!("run `{id}` is {} and accepts no messages", status.as_str());
        assert_eq!(refused.to_string(), text);
        let again = storage.post(&run(id), &said("first")).await.unwrap();
        assert_eq!(again, number, "it was posted while the run could read it");
        assert_eq!(storage.inbox(&run(id), 0).await.unwrap().len(), 1);
    }
    // A failed run with a task that can be retried reads messages.
    let token = create(&storage, "R3").await;
    storage.append(&token, &ended(Status::Failed)).await.unwrap();
    storage.post(&run("R3"), &said("third")).await.unwrap();
}

async fn a_taken_id_or_name_is_refused_and_its_owner_stays_as_it_was(home: Home) {
    let storage = home.open();
    storage
        .create(&info("R1", "calm-otter"), &request(), &commit(0, vec![set("brief", 1)]).into())
        .await
        .unwrap();
    for (id, name, taken) in [
        ("R1", "calm-otter", "R1"),
        ("R1", "new", "R1"),
        ("R2", "calm-otter", "calm-otter"),
        // The name would be ambiguous.
        ("calm-otter", "new", "calm-otter"),
        ("R2", "R1", "R1"),
        ("calm-otter", "R1", "calm-otter"),
    ] {
        let first = entry(commit(0, vec![set("brief", 2)]), &events(id, [1]));
        let error = storage.create(&info(id, name), &request(), &first).await.unwrap_err();
        assert!(matches!(&error, CheckpointError::Exists(it) if it == taken), "{error:?}");
    }
    let storage = home.open();
    assert_eq!(storage.list().await.unwrap().len(), 1);
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!(saved.summary.info, info("R1", "calm-otter"));
    assert_eq!((json!(saved.values), saved.last_seq), (json!({"brief": 1}), 0));
}

async fn the_values_after_every_step_can_be_read(home: Home) {
    let steps = [
        (vec![set("brief", "x"), appended("notes", &["a"])], json!({"brief": "x", "notes": ["a"]})),
        (vec![appended("notes", &["b", "c"])], json!({"brief": "x", "notes": ["a", "b", "c"]})),
        (vec![], json!({"brief": "x", "notes": ["a", "b", "c"]})),
        (vec![cleared("notes"), set("brief", Value::Null)], json!({"brief": null})),
        (vec![appended("notes", &[])], json!({"brief": null, "notes": []})),
        (vec![appended("notes", &["d"]), cleared("brief")], json!({"notes": ["d"]})),
        (vec![set("notes", json!(["e"]))], json!({"notes": ["e"]})),
        (vec![appended("notes", &["f"])], json!({"notes": ["e", "f"]})),
    ];
    let storage = home.open();
    let first = commit(0, steps[0].0.clone()).into();
    let token = storage.create(&info("R1", "calm-otter"), &request(), &first).await.unwrap();
    // The changes of another run must not be mixed with ours.
    let other = commit(0, vec![set("notes", json!(["other"])), set("brief", "other")]).into();
    storage.create(&info("R2", "other"), &request(), &other).await.unwrap();
    for (step, (changes, _)) in (0..).zip(&steps).skip(1) {
        storage.append(&token, &commit(step, changes.clone()).into()).await.unwrap();
    }
    let storage = home.open();
    for (step, (_, expected)) in (0..).zip(&steps) {
        let SavedCheckpoint { position: found, values } =
            storage.checkpoint_at(&run("R1"), Step(step)).await.unwrap();
        assert_eq!((json!(values), found), (expected.clone(), position(step)), "after step {step}");
        let values = storage.values_at(&run("R1"), Step(step)).await.unwrap();
        assert_eq!(json!(values), *expected, "after step {step}");
    }
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!((json!(saved.values), saved.position), (steps[7].1.clone(), position(7)));
    for error in [
        storage.values_at(&run("R1"), Step(8)).await.unwrap_err(),
        storage.checkpoint_at(&run("R1"), Step(8)).await.unwrap_err(),
    ] {
        assert_eq!(told(&error), "run `R1` has no step 8");
    }
}

async fn numbers_are_the_same_after_saving(home: Home) {
    // A fast JSON parser gets the last bit of the first number wrong.
    let numbers = json!([
        1.000_000_000_000_000_5e-9,
        0.1 + 0.2,
        -0.0,
        u64::MAX,
        i64::MIN,
        1e300,
        5e-324,
        51.248_178_376_505_71
    ]);
    let storage = home.open();
    storage
        .create(
            &info("R1", "a"),
            &request(),
            &commit(0, vec![set("numbers", numbers.clone())]).into(),
        )
        .await
        .unwrap();
    let values = home.open().values_at(&run("R1"), Step(0)).await.unwrap();
    assert_eq!(values["numbers"].to_string(), numbers.to_string());
}

async fn only_records_of_the_open_step_are_loaded_but_all_are_kept(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let made = [record(1, 1, finished()), record(1, 0, finished()), record(2, 4, failed())];
    storage.append(&token, &made[0].clone().into()).await.unwrap();
    storage.append(&token, &made[1].clone().into()).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made[..2]);

    storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, []);

    storage.append(&token, &made[2].clone().into()).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made[2..]);
    assert_eq!(home.open().records(&run("R1")).await.unwrap(), made);
}

async fn a_question_and_its_answer_are_both_kept_in_order(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let made = [
        record(1, 0, asked()),
        record(1, 0, answered()),
        record(1, 0, asked()),
        record(1, 0, finished()),
    ];
    for record in &made {
        storage.append(&token, &record.clone().into()).await.unwrap();
    }
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made);
}

async fn every_outcome_is_read_as_it_was_written(home: Home) {
    let Outcome::Failed { failure } = failed() else { unreachable!() };
    let failure = Failure { retry_after_ms: Some(1500), raw: Some("{\"a\":".into()), ..failure };
    let transitions = vec![Transition::To(Target::Fail)];
    let update = Update::default();
    let for_all_items = false;
    let caught = Outcome::Caught { failure, update, for_all_items, transitions };
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let made: Vec<_> = (0..)
        .zip([finished(), caught, failed(), asked(), answered(), skipped()])
        .map(|(index, outcome)| record(1, index, outcome))
        .collect();
    for record in &made {
        storage.append(&token, &record.clone().into()).await.unwrap();
    }
    assert_eq!(home.open().records(&run("R1")).await.unwrap(), made);
}

async fn events_are_read_from_any_number(home: Home) {
    let storage = home.open();
    let first = entry(commit(0, vec![]), &events("R1", [1, 2]));
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    let first = entry(commit(0, vec![]), &events("R2", [1]));
    storage.create(&info("R2", "b"), &request(), &first).await.unwrap();
    let done = entry(run_status(Status::Done, None), &events("R1", 6..=12));
    for entry in [
        entry(record(1, 0, finished()), &events("R1", [3])),
        entry(commit(1, vec![]), &events("R1", [4, 5])),
        done,
    ] {
        storage.append(&token, &entry).await.unwrap();
    }
    let storage = home.open();
    for after in 0..=12 {
        let found = storage.events(&run("R1"), after).await.unwrap();
        assert_eq!(found, events("R1", after + 1..=12), "after {after}");
    }
    assert_eq!(storage.events(&run("R2"), 0).await.unwrap(), events("R2", [1]));
    assert_eq!(storage.load(&run("R1")).await.unwrap().last_seq, 12);
}

async fn a_status_is_kept_with_its_reason(home: Home) {
    let all = [
        (Status::Done, None),
        (Status::Failed, Some("it \"broke\"\n")),
        (Status::Paused, Some("")),
        (Status::Limit, Some("tokens")),
        (Status::Interrupted, None),
        (Status::Running, None),
    ];
    let first = create(&home.open(), "R1").await;
    home.open().release(&first).await.unwrap();
    for (status, reason) in all {
        let token = home.open().acquire(&first.run, &request()).await.unwrap();
        home.open().append(&token, &run_status(status, reason).into()).await.unwrap();
        let found = home.open().load(&run("R1")).await.unwrap().summary;
        assert_eq!((found.status, found.reason.as_deref()), (status, reason));
    }
}

async fn the_newest_run_is_listed_first(home: Home) {
    let storage = home.open();
    assert_eq!(storage.list().await.unwrap(), []);
    let mut holds = Vec::new();
    for (id, name) in [("R2", "b"), ("R9", "c"), ("R1", "a")] {
        let first = commit(0, vec![]).into();
        holds.push(storage.create(&info(id, name), &request(), &first).await.unwrap());
    }
    storage.append(&holds[1], &commit(1, vec![]).into()).await.unwrap();
    let found = home.open().list().await.unwrap();
    let shown: Vec<_> = found.iter().map(|it| (it.info.name.as_str(), it.step)).collect();
    assert_eq!(shown, [("a", Step(0)), ("c", Step(1)), ("b", Step(0))]);
}

async fn runs_are_listed_page_by_page(home: Home) {
    let storage = home.open();
    for (id, name) in [("R5", "a"), ("R1", "b"), ("R4", "c"), ("R2", "d"), ("R3", "e")] {
        storage.create(&info(id, name), &request(), &commit(0, vec![]).into()).await.unwrap();
    }
    let page = async |before: Option<&str>, limit| {
        let before = before.map(run);
        let found = home.open().page(before.as_ref(), limit).await?;
        found.into_iter().map(|it| Ok(it?.info.name)).collect::<Result<String, CheckpointError>>()
    };
    assert_eq!(page(None, 2).await.unwrap(), "ed");
    assert_eq!(page(Some("R2"), 2).await.unwrap(), "cb");
    assert_eq!(page(Some("R1"), 2).await.unwrap(), "a");
    assert_eq!(page(Some("R5"), 2).await.unwrap(), "");
    assert_eq!(page(Some("R3"), usize::MAX).await.unwrap(), "dcba");
    assert_eq!(page(None, 0).await.unwrap(), "");
    let error = page(Some("R6"), 2).await.unwrap_err();
    assert!(matches!(&error, CheckpointError::UnknownRun(it) if it == "R6"), "{error:?}");
}

async fn a_run_is_found_by_id_by_name_and_by_the_beginning_of_its_id(home: Home) {
    let storage = home.open();
    let ids = ["01JABCDEX", "01JABCDEY", "01JABCD", "01JXYZ-zz"];
    for (id, name) in ids.iter().zip(["one", "two", "01JABCDEX-not", "01JABCDEY2"]) {
        storage.create(&info(id, name), &request(), &commit(0, vec![]).into()).await.unwrap();
    }
    let storage = home.open();
    let mut shown = Vec::new();
    for text in [
        "two",
        "01JABCD",
        "01JABCDEX",
        "01JABCDEX-not",
        "01JXYZ",
        "01JXYZ-z",
        "01JABCDE",
        "01JXY",
        "01JXYZ%",
        "01jxyz",
        "01JXYZ-zzz",
        "",
        "ones",
    ] {
        let answer = match storage.find(text).await {
            Ok(found) => found.info.id.to_string(),
            Err(error) => told(&error),
        };
        shown.push(format!("{text} → {answer}"));
    }
    assert_eq!(
        shown.join("\n"),
        "\
two → 01JABCDEY
01JABCD → 01JABCD
01JABCDEX → 01JABCDEX
01JABCDEX-not → 01JABCD
01JXYZ → 01JXYZ-zz
01JXYZ-z → 01JXYZ-zz
01JABCDE → the ids of several runs begin with `01JABCDE`: 01JABCDEX, 01JABCDEY
01JXY → there is no run `01JXY`
01JXYZ% → there is no run `01JXYZ%`
01jxyz → there is no run `01jxyz`
01JXYZ-zzz → there is no run `01JXYZ-zzz`
 → there is no run ``
ones → there is no run `ones`"
    );
}

async fn an_unknown_run_is_an_error_everywhere(home: Home) {
    let storage = home.open();
    create(&storage, "R1").await;
    let id = run("R2");
    let token = LeaseToken { run: id.clone(), fence: 1 };
    let errors = [
        storage.append(&token, &record(1, 0, finished()).into()).await.unwrap_err(),
        storage.append(&token, &commit(1, vec![]).into()).await.unwrap_err(),
        storage.append(&token, &run_status(Status::Done, None).into()).await.unwrap_err(),
        storage.acquire(&id, &request()).await.unwrap_err(),
        storage.renew(&token, TTL).await.unwrap_err(),
        storage.release(&token).await.unwrap_err(),
        storage.remove(&id).await.unwrap_err(),
        storage.load(&id).await.unwrap_err(),
        storage.find("R2").await.unwrap_err(),
        storage.events(&id, 0).await.unwrap_err(),
        storage.records(&id).await.unwrap_err(),
        storage.entries(&id, 0, 1, Detail::Whole).await.unwrap_err(),
        storage.entries(&id, 1, 1, Detail::Whole).await.unwrap_err(),
        storage.values_at(&id, Step(0)).await.unwrap_err(),
        storage.checkpoint_at(&id, Step(0)).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, CheckpointError::UnknownRun(it) if it == "R2"), "{error:?}");
    }
}

async fn an_append_to_what_is_no_list_is_damage(home: Home) {
    let storage = home.open();
    let first = commit(0, vec![set("notes", 3)]).into();
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    storage.append(&token, &commit(1, vec![appended("notes", &["a"])]).into()).await.unwrap();
    let error = home.open().load(&run("R1")).await.unwrap_err();
    assert_eq!(
        told(&error),
        "the channel `notes` at step 1 of run `R1` is damaged: items were appended to `notes`, \
         which is not a list"
    );
}

/// Computes the value of a channel after a change, in the simplest way.
fn expect(values: &mut BTreeMap<ChannelName, Value>, change: &Change) {
    let before = values.remove(&change.channel);
    let after = match (&change.kind, before) {
        (ChangeKind::Cleared, _) => return,
        (ChangeKind::Set(value), _) => Value::clone(value),
        (ChangeKind::Appended(items), None) => json!(items),
        (ChangeKind::Appended(items), Some(before)) => {
            json!([before.as_array().unwrap().as_slice(), items.as_slice()].concat())
        }
    };
    values.insert(change.channel.clone(), after);
}

/// Generates a change of one of three lists, or none.
fn any_change(name: &'static str) -> impl Strategy<Value = Option<Change>> {
    let items = proptest::collection::vec(any::<u8>().prop_map(Value::from), 0..3);
    let kind = prop_oneof![
        3 => items.clone().prop_map(ChangeKind::Appended),
        1 => items.prop_map(|it| ChangeKind::Set(Value::Array(it).into())),
        1 => Just(ChangeKind::Cleared),
    ];
    proptest::option::of(kind.prop_map(move |kind| Change { channel: channel(name), kind }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_are_rebuilt_after_every_step(
        steps in proptest::collection::vec((any_change("a"), any_change("b"), any_change("c")), 1..12)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for home in [Home::memory(), Home::sqlite()] {
            runtime.block_on(async {
                let storage = home.open();
                let id = run("R1");
                let mut values = BTreeMap::new();
                let mut expected = Vec::new();
                let mut token = None;
                for (step, (a, b, c)) in (0..).zip(&steps) {
                    let changes: Vec<Change> = [a, b, c].into_iter().flatten().cloned().collect();
                    for change in &changes {
                        expect(&mut values, change);
                    }
                    expected.push(values.clone());
                    let entry = commit(step, changes).into();
                    token = Some(match token {
                        None => storage.create(&info("R1", "a"), &request(), &entry).await.unwrap(),
                        Some(token) => {
                            storage.append(&token, &entry).await.unwrap();
                            token
                        }
                    });
                }
                for (step, expected) in (0..).zip(&expected) {
                    assert_eq!(storage.values_at(&id, Step(step)).await.unwrap(), *expected);
                }
                assert_eq!(Some(&storage.load(&id).await.unwrap().values), expected.last());
            });
        }
    }
}
