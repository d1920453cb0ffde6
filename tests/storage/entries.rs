//! The promises about appending: an entry is saved whole or not at all, and only if it follows from
//! the entries before it.

use std::collections::BTreeMap;

use graphrun::{
    checkpoint::{CheckpointError, Commit, Entry, Outcome},
    event::Status,
    id::Step,
};
use serde_json::json;

use crate::storage::sample::*;

promises! {
    an_entry_is_saved_as_a_whole
    an_entry_of_which_one_part_is_refused_is_not_saved
    several_records_in_one_entry_are_kept_in_order
    a_finished_task_cannot_finish_again
    a_task_finishes_once_however_its_records_are_saved
    a_failure_in_an_entry_may_be_followed_by_success_in_it
    a_failure_may_follow_the_result_of_a_task
    a_run_begins_with_the_commit_of_step_zero
    an_entry_out_of_turn_is_refused_with_its_events
    an_event_out_of_turn_undoes_the_write_it_came_with
}

/// Returns two records, the step that they complete, its end and all its events.
fn full() -> Entry {
    Entry {
        records: vec![record(1, 0, failed()), record(1, 0, finished())],
        commit: Some(commit(1, vec![set("brief", "a calculator"), appended("notes", &["b"])])),
        migration: None,
        run_status: Some(run_status(Status::Failed, Some("it broke"))),
        events: events("R1", [2, 3]),
    }
}

async fn an_entry_is_saved_as_a_whole(home: Home) {
    let first = entry(commit(0, vec![set("notes", json!(["a"]))]), &events("R1", [1]));
    let token = home.open().create(&info("R1", "a"), &request(), &first).await.unwrap();
    home.open().append(&token, &full()).await.unwrap();
    let storage = home.open();
    let saved = storage.load(&run("R1")).await.unwrap();
    assert_eq!((saved.summary.status, saved.summary.step), (Status::Failed, Step(1)));
    assert_eq!(saved.summary.reason.as_deref(), Some("it broke"));
    assert_eq!((saved.position, saved.last_seq), (position(1), 3));
    assert_eq!(json!(saved.values), json!({"notes": ["a", "b"], "brief": "a calculator"}));
    assert_eq!(saved.records, [], "its step is committed");
    assert_eq!(storage.records(&run("R1")).await.unwrap(), full().records);
    assert_eq!(storage.events(&run("R1"), 1).await.unwrap(), full().events);
    let journal = storage.journal(&run("R1")).await.unwrap();
    assert_eq!(journal.into_iter().map(|it| it.entry).collect::<Vec<_>>(), [first, full()]);
}

async fn an_entry_of_which_one_part_is_refused_is_not_saved(home: Home) {
    let first = entry(commit(0, vec![set("brief", 0)]), &events("R1", [1]));
    let token = home.open().create(&info("R1", "a"), &request(), &first).await.unwrap();
    let twice = vec![set("brief", 1), cleared("brief")];
    let refused: [(Entry, &str); 6] = [
        (
            Entry { records: vec![record(1, 0, finished()), record(2, 0, finished())], ..full() },
            "save step 1 of run `R1`: expected step 1, got step 2",
        ),
        (
            Entry { records: vec![record(1, 0, finished()), record(1, 0, finished())], ..full() },
            "save step 1 of run `R1`: task 1.0 has finished already",
        ),
        (
            Entry { commit: Some(commit(2, vec![])), ..full() },
            "save step 2 of run `R1`: expected step 1, got step 2",
        ),
        (
            Entry { commit: Some(commit(1, twice)), ..full() },
            "save step 1 of run `R1`: one step changes the channel `brief` twice",
        ),
        (
            Entry { events: events("R1", [2, 4]), ..full() },
            "save step 1 of run `R1`: expected event 3, got event 4",
        ),
        (
            Entry { commit: None, events: events("R1", [3]), ..full() },
            "save the outcomes of tasks 1.0 to 1.0 of run `R1`: expected event 2, got event 3",
        ),
    ];
    let before = home.open().load(&run("R1")).await.unwrap();
    for (entry, why) in refused {
        let error = home.open().append(&token, &entry).await.unwrap_err();
        assert_eq!(told(&error), format!("could not {why}"));
        let storage = home.open();
        assert_eq!(storage.load(&run("R1")).await.unwrap(), before, "{why}");
        assert_eq!(storage.journal(&run("R1")).await.unwrap().len(), 1, "{why}");
    }
    // Nothing of them remains: no finished task, no event, no end of the run.
    home.open().append(&token, &full()).await.unwrap();
}

async fn several_records_in_one_entry_are_kept_in_order(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let made = [
        record(1, 3, finished()),
        record(1, 0, asked()),
        record(1, 0, answered()),
        record(1, 7, skipped()),
        record(1, 0, finished()),
        record(1, 1, failed()),
    ];
    let [one, other] =
        [&made[..4], &made[4..]].map(|it| Entry { records: it.to_vec(), ..Entry::default() });
    storage.append(&token, &one).await.unwrap();
    storage.append(&token, &other).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made);
    storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, []);
    assert_eq!(home.open().records(&run("R1")).await.unwrap(), made);
}

async fn a_task_finishes_once_however_its_records_are_saved(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    for (step, last) in (1..).zip([finished(), caught(), skipped()]) {
        let several = vec![record(step, 0, finished()), record(step, 1, last)];
        storage.append(&token, &Entry { records: several, ..Entry::default() }).await.unwrap();
        for (task, again) in [(0, finished()), (1, finished()), (1, skipped())] {
            let again = Entry::from(record(step, task, again));
            let with_another = Entry {
                records: [&[record(step, 5, finished())], &*again.records].concat(),
                ..Entry::default()
            };
            let with_commit = Entry { commit: Some(commit(step, vec![])), ..again.clone() };
            for entry in [again, with_another, with_commit] {
                let error = storage.append(&token, &entry).await.unwrap_err();
                assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
                let text = told(&error);
                assert!(
                    text.ends_with(&format!("task {step}.{task} has finished already")),
                    "{text}"
                );
            }
        }
        // The task of a refused entry has not finished; tasks of the next step are different ones.
        // The step ends with a record that is saved together with its commit.
        let end =
            Entry { commit: Some(commit(step, vec![])), ..record(step, 5, finished()).into() };
        storage.append(&token, &end).await.unwrap();
        let late = storage.append(&token, &record(step, 6, finished()).into()).await.unwrap_err();
        assert!(told(&late).contains("expected step"), "{}", told(&late));
    }
    assert_eq!(home.open().records(&run("R1")).await.unwrap().len(), 9);
}

async fn a_failure_in_an_entry_may_be_followed_by_success_in_it(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let made = [failed(), failed(), finished()].map(|it| record(1, 0, it)).to_vec();
    let entry = Entry { records: made.clone(), ..Entry::default() };
    storage.append(&token, &entry).await.unwrap();
    assert_eq!(home.open().load(&run("R1")).await.unwrap().records, made);
    let again = record(1, 0, finished());
    assert!(home.open().append(&token, &again.into()).await.is_err());
}

/// At the end of a step, the update of a finished task may not fit beside the others.
async fn a_failure_may_follow_the_result_of_a_task(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let append = async |home: &Home, outcomes: &[Outcome]| {
        let records = outcomes.iter().map(|it| record(1, 0, it.clone())).collect();
        home.open().append(&token, &Entry { records, ..Entry::default() }).await
    };
    append(&home, &[finished()]).await.unwrap();
    append(&home, &[failed()]).await.unwrap();
    append(&home, &[finished(), caught()]).await.unwrap();
    append(&home, &[finished()]).await.unwrap_err();
    append(&home, &[failed(), finished()]).await.unwrap();
    append(&home, &[skipped()]).await.unwrap_err();
    assert_eq!(home.open().records(&run("R1")).await.unwrap().len(), 6);
}

async fn a_run_begins_with_the_commit_of_step_zero(home: Home) {
    let storage = home.open();
    let begin = |entry: Entry| {
        let storage = home.open();
        async move { storage.create(&info("R1", "a"), &request(), &entry).await }
    };
    let zero = Commit { position: position(0), changes: vec![] };
    for first in [
        Entry::default(),
        entry(run_status(Status::Running, None), &events("R1", [1])),
        commit(1, vec![]).into(),
        Entry { commit: Some(zero.clone()), ..record(0, 0, finished()).into() },
        Entry { commit: Some(zero.clone()), ..record(1, 0, failed()).into() },
    ] {
        let error = begin(first).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Storage { .. }), "{error:?}");
        assert_eq!(
            told(&error),
            "could not create run `R1`: only the first entry of a run may contain step 0"
        );
    }
    let twice = begin(commit(0, vec![set("brief", 1), set("brief", 1)]).into()).await.unwrap_err();
    assert_eq!(
        told(&twice),
        "could not create run `R1`: one step changes the channel `brief` twice"
    );
    assert_eq!(storage.list().await.unwrap(), []);
    begin(zero.into()).await.unwrap();
}

async fn a_finished_task_cannot_finish_again(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    let other = create(&storage, "R2").await;
    for outcome in [failed(), failed(), finished()] {
        storage.append(&token, &record(1, 0, outcome).into()).await.unwrap();
    }
    let again = record(1, 0, finished());
    let news = events("R1", [1]);
    let error = storage.append(&token, &entry(again, &news)).await.unwrap_err();
    assert_eq!(
        told(&error),
        "could not save the outcome of task 1.0 of run `R1`: task 1.0 has finished already"
    );
    storage.append(&token, &record(1, 1, finished()).into()).await.unwrap();
    storage.append(&other, &record(1, 0, finished()).into()).await.unwrap();
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!((saved.records.len(), saved.last_seq), (4, 0));
}

async fn an_entry_out_of_turn_is_refused_with_its_events(home: Home) {
    let storage = home.open();
    let token = create(&storage, "R1").await;
    storage.append(&token, &commit(1, vec![set("brief", 1)]).into()).await.unwrap();
    let mut refusals = Vec::new();
    for step in [0, 1, 3] {
        for out_of_turn in [
            entry(commit(step, vec![set("brief", 2)]), &events("R1", [1])),
            entry(record(step, 0, finished()), &events("R1", [1])),
        ] {
            let error = storage.append(&token, &out_of_turn).await.unwrap_err();
            assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
            refusals.push(told(&error));
        }
    }
    let twice = commit(2, vec![set("brief", 2), cleared("brief")]);
    let twice = entry(twice, &events("R1", [1]));
    refusals.push(told(&storage.append(&token, &twice).await.unwrap_err()));
    assert_eq!(
        refusals.join("\n"),
        "\
could not save step 0 of run `R1`: expected step 2, got step 0
could not save the outcome of task 0.0 of run `R1`: expected step 2, got step 0
could not save step 1 of run `R1`: expected step 2, got step 1
could not save the outcome of task 1.0 of run `R1`: expected step 2, got step 1
could not save step 3 of run `R1`: expected step 2, got step 3
could not save the outcome of task 3.0 of run `R1`: expected step 2, got step 3
could not save step 2 of run `R1`: one step changes the channel `brief` twice"
    );
    let saved = home.open().load(&run("R1")).await.unwrap();
    assert_eq!((saved.position.step, saved.last_seq, saved.records), (Step(1), 0, vec![]));
    assert_eq!(json!(saved.values), json!({"brief": 1}));
}

async fn an_event_out_of_turn_undoes_the_write_it_came_with(home: Home) {
    let storage = home.open();
    let first = entry(commit(0, vec![]), &events("R1", [1, 2]));
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    let id = run("R1");
    let out_of_turn: [(&[u64], &str); 7] = [
        (&[2], "expected event 3, got event 2"),
        (&[3, 2], "expected event 4, got event 2"),
        (&[3, 3], "expected event 4, got event 3"),
        (&[4], "expected event 3, got event 4"),
        (&[3, 5], "expected event 4, got event 5"),
        (&[0], "expected event 3, got event 0"),
        (&[1, 2, 3], "expected event 3, got event 1"),
    ];
    for (seqs, why) in out_of_turn {
        let news = events("R1", seqs.iter().copied());
        for (what, entry) in [
            ("save the outcome of task 1.0 of run `R1`", entry(record(1, 0, finished()), &news)),
            ("save step 1 of run `R1`", entry(commit(1, vec![set("brief", 1)]), &news)),
            ("save run `R1` as done", entry(run_status(Status::Done, None), &news)),
            ("save the events of run `R1`", entry(Entry::default(), &news)),
        ] {
            let error = storage.append(&token, &entry).await.unwrap_err();
            assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
            assert_eq!(told(&error), format!("could not {what}: {why}"));
        }
    }
    for (seqs, next, given) in [(&[1, 1][..], 2, 1), (&[2], 1, 2), (&[0, 1], 1, 0), (&[1, 3], 2, 3)]
    {
        let first = entry(commit(0, vec![]), &events("R2", seqs.iter().copied()));
        let error = storage.create(&info("R2", "b"), &request(), &first).await.unwrap_err();
        assert!(matches!(error, CheckpointError::Overtaken { .. }), "{error:?}");
        let why = format!("expected event {next}, got event {given}");
        assert_eq!(told(&error), format!("could not create run `R2`: {why}"));
    }
    let storage = home.open();
    let saved = storage.load(&id).await.unwrap();
    assert_eq!((saved.position.step, saved.records, saved.last_seq), (Step(0), vec![], 2));
    assert_eq!((saved.summary.status, saved.values), (Status::Running, BTreeMap::new()));
    assert_eq!(storage.events(&id, 0).await.unwrap(), events("R1", [1, 2]));
    assert_eq!(storage.journal(&id).await.unwrap().len(), 1);
    assert_eq!(storage.list().await.unwrap().len(), 1);
}
