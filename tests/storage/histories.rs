//! Runs of random steps, whose journals must be read as they were appended.

use std::{collections::BTreeMap, sync::Arc};

use graphrun::{
    checkpoint::{Detail, Entry, EntryHash, JournalEntry, Outcome, RunStatus, TaskRecord},
    event::Status,
    graph::{Dispatch, ErrorKind, Failure, Goto, Target, Transition},
    state::{Change, ChangeKind, Update},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::storage::{journal::assert_kept, sample::*};

/// Generates a value from a small set, so that equal ones are frequent.
fn any_value() -> impl Strategy<Value = Value> {
    let long = "the same words again and again, ".repeat(4);
    select(vec![
        json!(null),
        json!(1),
        json!(1.0),
        json!(-0.0),
        json!("a"),
        json!(""),
        json!([]),
        json!(["a"]),
        json!(["a", 1]),
        json!([["a"]]),
        json!([[]]),
        json!({"a": 1, "b": [2]}),
        json!({}),
        json!(long),
        json!([long, long]),
    ])
}

#[derive(Clone, Debug)]
struct ChangePlan {
    channel: &'static str,
    kind: u8,
    values: Vec<Value>,
}

fn any_channel() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "c"])
}

fn any_change() -> impl Strategy<Value = ChangePlan> {
    (any_channel(), 0..8_u8, vec(any_value(), 0..4))
        .prop_map(|(channel, kind, values)| ChangePlan { channel, kind, values })
}

fn any_update() -> impl Strategy<Value = Update> {
    let writes = vec((any_channel().prop_map(channel), any_value().prop_map(Arc::new)), 0..4);
    let clears = vec(any_channel().prop_map(channel), 0..2);
    (clears, writes).prop_map(|(clears, writes)| Update { clears, writes })
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => any_update().prop_map(|update| Outcome::Finished {
            update,
            transitions: vec![Transition::To(Target::End)],
        }),
        2 => (any_update(), any_value()).prop_map(|(update, input)| Outcome::Undecided {
            update,
            goto: Goto::Instead(vec![Transition::Dispatch(Dispatch::new(node("qc"), input))]),
            failure: Failure::new(ErrorKind::Panic, "the route panicked"),
        }),
        2 => (any_update(), any::<bool>()).prop_map(|(update, for_all_items)| Outcome::Caught {
            failure: Failure::new(ErrorKind::Other, "an item failed"),
            update,
            for_all_items,
            transitions: vec![Transition::To(Target::End)],
        }),
        2 => (any_value(), any::<Option<[u8; 32]>>()).prop_map(|(answer, hash)| Outcome::Answered {
            key: "go_on".into(),
            answer,
            by: hash.map(|_| "ann@desk".to_owned()),
            question_hash: hash.map(EntryHash),
        }),
        1 => any_value().prop_map(|value| Outcome::MemoSaved { name: "part".into(), value }),
        1 => select(vec![failed(), undecided(), asked(), caught(), skipped()]),
    ]
}

/// The tasks of a step, each with its outcome and whether its entry ends with it; then the changes
/// of the step, and whether its commit is saved with the last record.
type AnyStep = (Vec<(Outcome, bool)>, Vec<ChangePlan>, bool, u8);

fn any_step() -> impl Strategy<Value = AnyStep> {
    (vec((any_outcome(), any::<bool>()), 0..5), vec(any_change(), 0..4), any::<bool>(), 0..4_u8)
}

/// Returns a valid change from values that tasks of the step wrote.
fn change_of(made: &ChangePlan, records: &[TaskRecord]) -> Change {
    let channel = channel(made.channel);
    let mut tasks: Vec<_> = records.iter().collect();
    tasks.sort_by_key(|it| it.task);
    let mut written = Vec::new();
    for record in tasks {
        if let Some(update) = record.outcome.update().filter(|_| record.outcome.is_final()) {
            let of_channel = update.writes.iter().filter(|(it, _)| *it == channel);
            written.extend(of_channel.map(|(_, value)| Value::clone(value)));
        }
    }
    let flat = |values: &[Value]| -> Vec<Value> {
        let flat = values.iter().map(|it| it.as_array().cloned().unwrap_or(vec![it.clone()]));
        flat.flatten().collect()
    };
    let kind = match made.kind {
        0 => ChangeKind::Cleared,
        1 => ChangeKind::Set(json!(made.values).into()),
        2 => ChangeKind::Appended(made.values.clone()),
        // The most frequent change.
        3 => ChangeKind::Set(written.last().cloned().unwrap_or_default().into()),
        4 => ChangeKind::Set(written.first().cloned().unwrap_or_default().into()),
        5 => ChangeKind::Appended(flat(&written)),
        6 => ChangeKind::Appended(written),
        _ => ChangeKind::Appended(flat(&[&written[..], &made.values[..]].concat())),
    };
    Change { channel, kind }
}

/// Returns the entries of a run with these steps.
fn entries_of(steps: &[AnyStep]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut seq = 0;
    let mut add = |mut entry: Entry, news: u64| {
        entry.events = events("R1", seq + 1..=seq + news);
        seq += news;
        entries.push(entry);
    };
    for (step, (tasks, changes, with_last, news)) in (0..).zip(steps) {
        let news = u64::from(*news);
        let mut records = Vec::new();
        let mut open = Vec::new();
        let tasks = if step == 0 { &[][..] } else { &tasks[..] };
        // Later tasks finish earlier.
        for (index, (outcome, ends)) in tasks.iter().enumerate().rev() {
            let record = record(step, u32::try_from(index).unwrap(), outcome.clone());
            records.push(record.clone());
            open.push(record);
            if *ends {
                add(Entry { records: std::mem::take(&mut open), ..Entry::default() }, news / 2);
            }
        }
        if !with_last && !open.is_empty() {
            add(Entry { records: std::mem::take(&mut open), ..Entry::default() }, news);
        }
        let mut made: BTreeMap<_, Change> = BTreeMap::new();
        for change in changes {
            made.insert(change.channel, change_of(change, &records));
        }
        let run_status = (news == 3).then_some(RunStatus { status: Status::Running, reason: None });
        let commit = Some(commit(step, made.into_values().collect()));
        add(Entry { records: open, commit, run_status, ..Entry::default() }, news);
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_entries_are_given_back_as_they_were(
        steps in vec(any_step(), 1..7), after in 0..20_u64, limit in 0..6_usize
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let entries = entries_of(&steps);
        for home in Home::all() {
            runtime.block_on(async {
                assert_kept(&home, &entries).await;
                let some = home.open().entries(&run("R1"), after, limit, Detail::Whole).await.unwrap();
                let outline = home.open().entries(&run("R1"), after, limit, Detail::WithoutValues).await.unwrap();
                let bare: Vec<_> = some.iter().cloned().map(JournalEntry::without_values).collect();
                assert_eq!(outline, bare);
                let some: Vec<_> = some.into_iter().map(|it| (it.number, it.entry)).collect();
                let all = (1..).zip(entries.iter().cloned());
                let expected: Vec<_> = all.skip_while(|it| it.0 <= after).take(limit).collect();
                assert_eq!(some, expected);
            });
        }
    }
}
