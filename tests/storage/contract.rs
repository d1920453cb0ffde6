//! The promises of the trait. Each is kept by both storages, and what one call wrote is read
//! through a storage that was opened afterwards.

use std::collections::BTreeMap;

use graphrun::{
    checkpoint::{CheckpointError, Commit, Outcome, SavedRun},
    event::Status,
    graph::{Failure, Hop, Target},
    id::{ChannelName, Step},
    state::{Change, ChangeKind},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::sample::*;

macro_rules! promises {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(crate::sample::Home::memory()).await; })*
        }
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(crate::sample::Home::sqlite()).await; })*
        }
    };
}

promises! {
    a_run_is_loaded_as_it_was_accepted
    a_taken_id_or_name_is_refused_and_its_owner_stays_as_it_was
    the_values_after_every_step_can_be_read
    numbers_are_the_same_after_saving
    only_the_records_of_the_open_step_are_loaded_and_all_are_kept
    a_question_and_its_answer_are_both_kept_in_order
    every_outcome_is_read_as_it_was_written
    a_finished_task_cannot_finish_again
    what_is_out_of_turn_is_refused_with_its_events
    a_duplicate_event_undoes_the_write_it_came_with
    events_are_read_from_any_number
    a_status_is_kept_with_its_reason
    the_newest_run_is_listed_first
    a_run_is_found_by_id_by_name_and_by_the_beginning_of_its_id
    an_unknown_run_is_an_error_everywhere
    an_append_to_what_is_no_list_is_damage
}

async fn a_run_is_loaded_as_it_was_accepted(home: Home) {
    let changes = vec![set("brief", "a calculator"), appended("notes", &["a"])];
    home.open()
        .create(&info("R1", "calm-otter"), &commit(0, changes), &events("R1", [1, 2]))
        .await
        .unwrap();

    let SavedRun { summary, position: found, values, records, last_seq } =
        home.open().load(&run("R1")).await.unwrap();
    assert_eq!(summary.info, info("R1", "calm-otter"));
    assert_eq!((summary.status, summary.reason, summary.step), (Status::Running, None, Step(0)));
    assert_eq!(found, position(0));
    assert_eq!(json!(values), json!({"brief": "a calculator", "notes": ["a"]}));
    assert_eq!((records, last_seq), (vec![], 2));
}

async fn a_taken_id_or_name_is_refused_and_its_owner_stays_as_it_was(home: Home) {
    let storage = home.open();
    storage
        .create(&info("R1", "calm-otter"), &commit(0, vec![set("brief", 1)]), &[])
        .await
        .unwrap();
    for (id, name, taken) in
        [("R1", "calm-otter", "R1"), ("R1", "new", "R1"), ("R2", "calm-otter", "calm-otter")]
    {
        let commit = commit(0, vec![set("brief", 2)]);
        let error = storage.create(&info(id, name), &commit, &events(id, [1])).await.unwrap_err();
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
    for (step, (changes, _)) in (0..).zip(&steps) {
        let commit = commit(step, changes.clone());
        if step == 0 {
            storage.create(&info("R1", "calm-otter"), &commit, &[]).await.unwrap();
            // A neighbour whose changes must not be mistaken for ours.
            let other = vec![set("notes", json!(["other"])), set("brief", "other")];
            storage
                .create(&info("R2", "other"), &Commit { changes: other, ..commit }, &[])
                .await
                .unwrap();
        } else {
            storage.commit(&run("R1"), &commit, &[]).await.unwrap();
        }
    }
    let storage = home.open();
    for (step, (_, expected)) in (0..).zip(&steps) {
        let values = storage.values_at(&run("R1"), Step(step)).await.unwrap();
        assert_eq!(json!(values), *expected, "after step {step}");
    }
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!((json!(saved.values), saved.position), (steps[7].1.clone(), position(7)));
    let error = storage.values_at(&run("R1"), Step(8)).await.unwrap_err();
    assert_eq!(told(&error), "run `R1` has no step 8");
}

async fn numbers_are_the_same_after_saving(home: Home) {
    // The first is one that a fast reader of JSON gets wrong in the last bit.
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
        .create(&info("R1", "a"), &commit(0, vec![set("numbers", numbers.clone())]), &[])
        .await
        .unwrap();
    let values = home.open().values_at(&run("R1"), Step(0)).await.unwrap();
    assert_eq!(values["numbers"].to_string(), numbers.to_string());
}

async fn only_the_records_of_the_open_step_are_loaded_and_all_are_kept(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    let made = [record(1, 1, finished()), record(1, 0, finished()), record(2, 4, failed())];
    storage.record(&run("R1"), &made[0], &[]).await.unwrap();
    storage.record(&run("R1"), &made[1], &[]).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made[..2]);

    storage.commit(&run("R1"), &commit(1, vec![]), &[]).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, []);

    storage.record(&run("R1"), &made[2], &[]).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made[2..]);
    assert_eq!(home.open().records(&run("R1")).await.unwrap(), made);
}

async fn a_question_and_its_answer_are_both_kept_in_order(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    let made = [
        record(1, 0, asked()),
        record(1, 0, answered()),
        record(1, 0, asked()),
        record(1, 0, finished()),
    ];
    for record in &made {
        storage.record(&run("R1"), record, &[]).await.unwrap();
    }
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made);
}

async fn every_outcome_is_read_as_it_was_written(home: Home) {
    let Outcome::Failed { failure } = failed() else { unreachable!() };
    let failure = Failure { retry_after_ms: Some(1500), raw: Some("{\"a\":".into()), ..failure };
    let caught = Outcome::Caught { failure, hops: vec![Hop::To(Target::Fail)] };
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    let made: Vec<_> = (0..)
        .zip([finished(), caught, failed(), asked(), answered()])
        .map(|(index, outcome)| record(1, index, outcome))
        .collect();
    for record in &made {
        storage.record(&run("R1"), record, &[]).await.unwrap();
    }
    assert_eq!(home.open().records(&run("R1")).await.unwrap(), made);
}

async fn a_finished_task_cannot_finish_again(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    storage.create(&info("R2", "b"), &commit(0, vec![]), &[]).await.unwrap();
    for outcome in [failed(), failed(), finished()] {
        storage.record(&run("R1"), &record(1, 0, outcome), &[]).await.unwrap();
    }
    let (again, news) = (record(1, 0, finished()), events("R1", [1]));
    let error = storage.record(&run("R1"), &again, &news).await.unwrap_err();
    assert_eq!(
        told(&error),
        "could not save the outcome of task 1.0 of run `R1`: task 1.0 has finished already"
    );
    storage.record(&run("R1"), &record(1, 1, finished()), &[]).await.unwrap();
    storage.record(&run("R2"), &record(1, 0, finished()), &[]).await.unwrap();
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!((saved.records.len(), saved.last_seq), (4, 0));
}

async fn what_is_out_of_turn_is_refused_with_its_events(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    storage.commit(&run("R1"), &commit(1, vec![set("brief", 1)]), &[]).await.unwrap();
    let mut refusals = Vec::new();
    for step in [0, 1, 3] {
        let commit = commit(step, vec![set("brief", 2)]);
        refusals.push(told(
            &storage.commit(&run("R1"), &commit, &events("R1", [1])).await.unwrap_err(),
        ));
        let record = record(step, 0, finished());
        refusals.push(told(
            &storage.record(&run("R1"), &record, &events("R1", [1])).await.unwrap_err(),
        ));
    }
    let twice = commit(2, vec![set("brief", 2), cleared("brief")]);
    refusals.push(told(&storage.commit(&run("R1"), &twice, &events("R1", [1])).await.unwrap_err()));
    assert_eq!(
        refusals.join("\n"),
        "\
could not save step 0 of run `R1`: step 2 comes next, and this is about step 0
could not save the outcome of task 0.0 of run `R1`: step 2 comes next, and this is about step 0
could not save step 1 of run `R1`: step 2 comes next, and this is about step 1
could not save the outcome of task 1.0 of run `R1`: step 2 comes next, and this is about step 1
could not save step 3 of run `R1`: step 2 comes next, and this is about step 3
could not save the outcome of task 3.0 of run `R1`: step 2 comes next, and this is about step 3
could not save step 2 of run `R1`: one step changes the channel `brief` twice"
    );
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!((saved.position.step, saved.last_seq, saved.records), (Step(1), 0, vec![]));
    assert_eq!(json!(saved.values), json!({"brief": 1}));
}

async fn a_duplicate_event_undoes_the_write_it_came_with(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &events("R1", [1, 2])).await.unwrap();
    let twice = events("R1", [3, 2]);
    let id = run("R1");
    let told_of = [
        told(&storage.record(&id, &record(1, 0, finished()), &twice).await.unwrap_err()),
        told(&storage.commit(&id, &commit(1, vec![set("brief", 1)]), &twice).await.unwrap_err()),
        told(&storage.set_status(&id, Status::Done, None, &twice).await.unwrap_err()),
        told(
            &storage.set_status(&id, Status::Done, None, &events("R1", [3, 3])).await.unwrap_err(),
        ),
        told(
            &storage
                .create(&info("R2", "b"), &commit(0, vec![]), &events("R2", [1, 1]))
                .await
                .unwrap_err(),
        ),
    ];
    assert_eq!(
        told_of.join("\n"),
        "\
could not save the outcome of task 1.0 of run `R1`: event 2 is saved already
could not save step 1 of run `R1`: event 2 is saved already
could not save that run `R1` is done: event 2 is saved already
could not save that run `R1` is done: event 3 is saved already
could not accept run `R2`: event 1 is saved already"
    );
    let storage = home.open();
    let saved = storage.load(&id).await.unwrap();
    assert_eq!((saved.position.step, saved.records, saved.last_seq), (Step(0), vec![], 2));
    assert_eq!((saved.summary.status, saved.values), (Status::Running, BTreeMap::new()));
    assert_eq!(storage.events(&id, 0).await.unwrap(), events("R1", [1, 2]));
    assert_eq!(storage.list().await.unwrap().len(), 1);
}

async fn events_are_read_from_any_number(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![]), &events("R1", [1, 2])).await.unwrap();
    storage.create(&info("R2", "b"), &commit(0, vec![]), &events("R2", [1])).await.unwrap();
    storage.record(&run("R1"), &record(1, 0, finished()), &events("R1", [3])).await.unwrap();
    storage.commit(&run("R1"), &commit(1, vec![]), &events("R1", [4, 5])).await.unwrap();
    storage.set_status(&run("R1"), Status::Done, None, &events("R1", 6..=12)).await.unwrap();
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
    home.open().create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    for (status, reason) in all {
        home.open().set_status(&run("R1"), status, reason, &[]).await.unwrap();
        let found = home.open().load(&run("R1")).await.unwrap().summary;
        assert_eq!((found.status, found.reason.as_deref()), (status, reason));
    }
}

async fn the_newest_run_is_listed_first(home: Home) {
    let storage = home.open();
    assert_eq!(storage.list().await.unwrap(), []);
    for (id, name) in [("R2", "b"), ("R9", "c"), ("R1", "a")] {
        storage.create(&info(id, name), &commit(0, vec![]), &[]).await.unwrap();
    }
    storage.commit(&run("R9"), &commit(1, vec![]), &[]).await.unwrap();
    let found = home.open().list().await.unwrap();
    let shown: Vec<_> = found.iter().map(|it| (it.info.name.as_str(), it.step)).collect();
    assert_eq!(shown, [("a", Step(0)), ("c", Step(1)), ("b", Step(0))]);
}

async fn a_run_is_found_by_id_by_name_and_by_the_beginning_of_its_id(home: Home) {
    let storage = home.open();
    let ids = ["01JABCDEX", "01JABCDEY", "01JABCD", "01JXYZ-zz"];
    for (id, name) in ids.iter().zip(["one", "two", "01JABCDEX-not", "01JABCDEY2"]) {
        storage.create(&info(id, name), &commit(0, vec![]), &[]).await.unwrap();
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
01JABCDE → could not tell which run `01JABCDE` is: several ids begin like that: 01JABCDEX, 01JABCDEY
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
    storage.create(&info("R1", "a"), &commit(0, vec![]), &[]).await.unwrap();
    let id = run("R2");
    let errors = [
        storage.record(&id, &record(1, 0, finished()), &[]).await.unwrap_err(),
        storage.commit(&id, &commit(1, vec![]), &[]).await.unwrap_err(),
        storage.set_status(&id, Status::Done, None, &[]).await.unwrap_err(),
        storage.load(&id).await.unwrap_err(),
        storage.find("R2").await.unwrap_err(),
        storage.events(&id, 0).await.unwrap_err(),
        storage.records(&id).await.unwrap_err(),
        storage.values_at(&id, Step(0)).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, CheckpointError::UnknownRun(it) if it == "R2"), "{error:?}");
    }
}

async fn an_append_to_what_is_no_list_is_damage(home: Home) {
    let storage = home.open();
    storage.create(&info("R1", "a"), &commit(0, vec![set("notes", 3)]), &[]).await.unwrap();
    storage.commit(&run("R1"), &commit(1, vec![appended("notes", &["a"])]), &[]).await.unwrap();
    let error = home.open().load(&run("R1")).await.unwrap_err();
    assert_eq!(
        told(&error),
        "the channel `notes` at step 1 of run `R1` is damaged: items were appended to `notes`, which holds no list"
    );
}

/// What a channel is to hold after a change, said the simple way.
fn expect(values: &mut BTreeMap<ChannelName, Value>, change: &Change) {
    let before = values.remove(&change.channel);
    let after = match (&change.kind, before) {
        (ChangeKind::Cleared, _) => return,
        (ChangeKind::Set(value), _) => value.clone(),
        (ChangeKind::Appended(items), None) => json!(items),
        (ChangeKind::Appended(items), Some(before)) => {
            json!([before.as_array().unwrap().as_slice(), items.as_slice()].concat())
        }
    };
    values.insert(change.channel.clone(), after);
}

/// A change of one of three lists, or none.
fn any_change(name: &'static str) -> impl Strategy<Value = Option<Change>> {
    let items = proptest::collection::vec(any::<u8>().prop_map(Value::from), 0..3);
    let kind = prop_oneof![
        3 => items.clone().prop_map(ChangeKind::Appended),
        1 => items.prop_map(|it| ChangeKind::Set(Value::Array(it))),
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
                let (storage, id) = (home.open(), run("R1"));
                let (mut values, mut expected) = (BTreeMap::new(), Vec::new());
                for (step, (a, b, c)) in (0..).zip(&steps) {
                    let changes: Vec<Change> = [a, b, c].into_iter().flatten().cloned().collect();
                    for change in &changes {
                        expect(&mut values, change);
                    }
                    expected.push(values.clone());
                    let commit = commit(step, changes);
                    if step == 0 {
                        storage.create(&info("R1", "a"), &commit, &[]).await.unwrap();
                    } else {
                        storage.commit(&id, &commit, &[]).await.unwrap();
                    }
                }
                for (step, expected) in (0..).zip(&expected) {
                    assert_eq!(storage.values_at(&id, Step(step)).await.unwrap(), *expected);
                }
                assert_eq!(Some(&storage.load(&id).await.unwrap().values), expected.last());
            });
        }
    }
}
