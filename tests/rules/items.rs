//! The items of a map that depend on each other: their order, also after a crash, and what follows from a failure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use graphrun::{
    checkpoint::Checkpoint,
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::machine::{AttemptStats, FirstStep, Machine, RunSettings, SavedStep, TaskEvent},
    event::Status,
    graph::{Command, ErrorKind, Failure},
    id::TaskId,
    nodes::{Services, factory},
    registry,
    state::Update,
    workflow::parse,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Hand, attempt, channel, run_id};

/// A map whose items wait for others, with more keys of the map in place of `MORE`.
const WORKFLOW: &str = "
graphrun: 1
name: items
types: { Task: { id: string, needs: [string] }, Lost: { index: int, kind: string, message: string } }
state:
  tasks: [Task]
  done: { type: [string], merge: append, default: [] }
  lost: { type: [Lost], merge: append, default: [] }
  saved: { type: int, merge: sum, default: 0 }
input: tasks
start: each
nodes:
  each: { map: { over: tasks, as: task, key: task.id, after: task.needs, do: work MORE, then: end }
  work: { set: { done: '[task.id]', lost: '[]' } }
";

fn graph(more: &str) -> CompiledGraph {
    graph_of(WORKFLOW.replace(" MORE", more))
}

fn graph_of(text: String) -> CompiledGraph {
    let file = Arc::new(SourceFile { name: "items.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new(""), &registry()).unwrap();
    compile(workflow.into_graph(&factory(Services::offline(), registry()))).unwrap()
}

fn collecting() -> CompiledGraph {
    graph(", failed: lost }")
}

fn begin(graph: &CompiledGraph, tasks: &[(&str, Vec<String>)]) -> Hand {
    let tasks: Vec<Value> =
        tasks.iter().map(|(id, needs)| json!({ "id": id, "needs": needs })).collect();
    let input = Update::default().write(channel("tasks"), tasks);
    let begun = Machine::start(graph.clone(), RunSettings::default(), run_id(), input).unwrap();
    let FirstStep { machine, commit: saved, actions } = begun;
    let mut hand = Hand { machine, open: [].into(), records: Vec::new(), saved, rest: None };
    hand.perform(actions);
    let each = hand.open.pop_front().expect("the map runs first");
    hand.finish(&each, Command::default());
    hand
}

/// Two items run at once, so four items of a second take two seconds.
#[test]
fn items_that_wait_for_a_slot_use_time_of_the_run() {
    let graph = graph_of(
        "
graphrun: 1
name: slots
state: { list: [int], done: { type: int, merge: sum, default: 0 } }
input: list
limits: { time: 3s }
start: each
nodes:
  each: { map: { over: list, as: number, do: work, width: 2 }, then: last }
  work: { set: { done: number } }
  last: { set: { done: 1 }, then: end }
"
        .to_owned(),
    );
    let input = Update::default().write(channel("list"), json!([1, 2, 3, 4, 5]));
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let begun = Machine::start(graph, settings, run_id(), input).unwrap();
    let FirstStep { machine, commit: saved, actions } = begun;
    let mut hand = Hand { machine, open: [].into(), records: Vec::new(), saved, rest: None };
    hand.perform(actions);
    let each = hand.open.pop_front().unwrap();
    hand.finish(&each, Command::default());
    let left = |hand: &Hand, task: TaskId| hand.machine.time_left(task).unwrap().as_millis();
    let mut lefts = Vec::new();
    while hand.open.len() > 1 {
        let task = hand.open.pop_front().unwrap();
        lefts.push(left(&hand, task.id));
        let attempt = AttemptStats { ms: 1_000, ..attempt(1) };
        hand.tell(TaskEvent::Finished { task: task.id, command: Command::default(), attempt });
    }
    assert_eq!(lefts, [3_000, 2_500, 2_000, 1_500]);
    // The last item makes the step as long as half of all items together.
    let task = hand.open.pop_front().unwrap();
    let attempt = AttemptStats { ms: 1_500, ..attempt(1) };
    hand.tell(TaskEvent::Finished { task: task.id, command: Command::default(), attempt });
    assert_eq!(hand.rest, None);
    assert_eq!(left(&hand, hand.open[0].id), 250);
}

/// Continues in another process from the last commit and the records after it.
fn restored(hand: Hand, graph: &CompiledGraph) -> Hand {
    let Hand { machine, records, saved, .. } = hand;
    let checkpoint =
        Checkpoint { position: saved.position.clone(), state: machine.state().as_ref().clone() };
    let (machine, actions) = Machine::restore(
        graph.clone(),
        RunSettings::default(),
        run_id(),
        SavedStep::new(checkpoint, records.clone()),
    )
    .unwrap();
    let mut hand = Hand { machine, open: [].into(), records, saved, rest: None };
    hand.perform(actions);
    hand
}

fn id(hand: &Hand, at: usize) -> String {
    hand.open[at].input.item().unwrap()["id"].as_str().unwrap().to_owned()
}

/// The items that run now.
fn running(hand: &Hand) -> Vec<String> {
    (0..hand.open.len()).map(|it| id(hand, it)).collect()
}

/// Ends the running item of this id.
fn end(hand: &mut Hand, item: &str, succeeds: bool) {
    let at = (0..hand.open.len()).find(|&it| id(hand, it) == item);
    let task = hand.open.remove(at.expect("the item runs")).unwrap();
    if succeeds {
        let update = Update::default().write(channel("done"), vec![item.to_owned()]);
        return hand.finish(&task, update.into());
    }
    let failure = Failure::new(ErrorKind::Command, "broken");
    hand.tell(TaskEvent::Failed { task: task.id, failure, attempt: attempt(task.attempt) });
}

fn needs(names: &[&str]) -> Vec<String> {
    names.iter().map(|&it| it.to_owned()).collect()
}

/// `d` needs `b` and `c`, both need `a`; `e` needs nothing.
fn diamond() -> [(&'static str, Vec<String>); 5] {
    [
        ("d", needs(&["b", "c"])),
        ("b", needs(&["a"])),
        ("c", needs(&["a", "a"])),
        ("a", needs(&[])),
        ("e", needs(&[])),
    ]
}

#[test]
fn an_item_starts_when_those_it_needs_are_done() {
    let mut hand = begin(&collecting(), &diamond());
    assert_eq!(running(&hand), ["a", "e"]);
    end(&mut hand, "a", true);
    assert_eq!(running(&hand), ["e", "b", "c"], "they do not wait for `e`");
    end(&mut hand, "c", true);
    assert_eq!(running(&hand), ["e", "b"]);
    end(&mut hand, "b", true);
    end(&mut hand, "d", true);
    assert_eq!(hand.rest, None);
    end(&mut hand, "e", true);
    assert_eq!(hand.rest, Some((Status::Done, None)));
    assert_eq!(hand.machine.state().get("done").unwrap(), &json!(["d", "b", "c", "a", "e"]));
}

#[test]
fn items_that_need_a_failed_one_are_lost_without_running() {
    let mut hand = begin(&collecting(), &diamond());
    end(&mut hand, "a", true);
    end(&mut hand, "c", false);
    end(&mut hand, "b", true);
    end(&mut hand, "e", true);
    assert_eq!(hand.rest, Some((Status::Done, None)));
    let lost = hand.machine.state().get("lost").unwrap();
    let expected = json!([
        { "index": 0, "kind": "dependency", "message": "the item \"c\" that it needs failed" },
        { "index": 2, "kind": "command", "message": "broken" },
    ]);
    assert_eq!(lost, &expected);
    assert_eq!(hand.machine.state().get("done").unwrap(), &json!(["b", "a", "e"]));
}

#[test]
fn a_chain_behind_a_failed_item_is_lost_as_a_whole() {
    let names: Vec<String> = (0..20_000).map(|it| format!("i{it}")).collect();
    let after = |index: usize| if index == 0 { Vec::new() } else { vec![names[index - 1].clone()] };
    let tasks: Vec<(&str, Vec<String>)> =
        (0..names.len()).map(|it| (names[it].as_str(), after(it))).collect();
    let mut hand = begin(&collecting(), &tasks);
    end(&mut hand, "i0", false);
    assert_eq!(hand.rest, Some((Status::Done, None)));
    let lost = hand.machine.state().get("lost").and_then(Value::as_array).unwrap().len();
    assert_eq!(lost, names.len());
}

#[test]
fn a_caught_failure_leads_on_once_for_the_items_behind_it() {
    let text = WORKFLOW
        .replace(" MORE", " }, catch: { command: save }")
        .replace("nodes:", "nodes:\n  save: { set: { saved: 1 }, then: end }");
    let file = Arc::new(SourceFile { name: "items.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new(""), &registry()).unwrap();
    let graph = compile(workflow.into_graph(&factory(Services::offline(), registry()))).unwrap();
    let mut hand = begin(&graph, &diamond());
    end(&mut hand, "a", false);
    end(&mut hand, "e", true);
    let open: Vec<&str> = hand.open.iter().map(|it| it.node.as_str()).collect();
    assert_eq!((open, hand.rest), (vec!["save"], None), "once, and `e` does not lead to `end`");
}

#[test]
fn an_uncaught_failure_keeps_the_items_behind_it_for_a_retry() {
    let graph = graph(" }");
    let mut hand = begin(&graph, &diamond());
    end(&mut hand, "e", true);
    end(&mut hand, "a", false);
    assert_eq!(hand.rest.as_ref().unwrap().0, Status::Failed);
    let mut hand = restored(hand, &graph);
    assert_eq!(running(&hand), ["a"], "`e` is done, and the others still wait");
    end(&mut hand, "a", true);
    assert_eq!(running(&hand), ["b", "c"]);
}

#[test]
fn impossible_orders_fail_the_map_and_are_named() {
    let order = |tasks: &[(&str, Vec<String>)]| {
        let hand = begin(&collecting(), tasks);
        let (status, reason) = hand.rest.expect("the map failed");
        assert_eq!((status, hand.open.len()), (Status::Failed, 0));
        reason.unwrap()
    };
    for (tasks, expected) in [
        (vec![("a", needs(&[])), ("a", needs(&[]))], "two items have the key \"a\""),
        (vec![("a", needs(&["x"]))], "the item \"a\" needs \"x\", and no item has this key"),
        (vec![("a", needs(&["a"]))], "items need each other: \"a\" → \"a\""),
        (
            vec![("z", needs(&["a"])), ("a", needs(&["b"])), ("b", needs(&["a"]))],
            "items need each other: \"a\" → \"b\" → \"a\"",
        ),
    ] {
        let reason = order(&tasks);
        assert!(reason.contains("`each`") && reason.contains(expected), "{reason}");
    }
}

#[test]
fn the_time_of_a_step_is_that_of_its_longest_chain() {
    let mut hand = begin(&collecting(), &diamond());
    for (item, ms) in [("a", 5), ("e", 7), ("b", 1), ("c", 3), ("d", 2)] {
        let at = (0..hand.open.len()).find(|&it| id(&hand, it) == item).unwrap();
        let task = hand.open.remove(at).unwrap();
        let attempt = graphrun::engine::machine::AttemptStats { ms, ..attempt(1) };
        hand.tell(TaskEvent::Finished { task: task.id, command: Command::default(), attempt });
    }
    assert_eq!(hand.machine.position().used.elapsed_ms, 10, "`a`, `c` and `d`");
}

proptest! {
    /// Items with random needs, which end in a random order, some of them with a failure, and crashes between.
    #[test]
    fn every_item_runs_once_after_those_it_needs(
        edges in proptest::collection::vec((0_usize..12, 0_usize..12), 0..25),
        choices in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..10, any::<bool>()), 13),
        shuffle in Just((0_usize..12).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let graph = collecting();
        let mut of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (a, b) in edges {
            if a != b {
                of.entry(a.max(b)).or_default().insert(a.min(b));
            }
        }
        let names: Vec<String> = (0..12).map(|it| format!("i{it}")).collect();
        let needs = |index: usize| of.get(&index).into_iter().flatten().map(|&it| names[it].clone());
        let tasks: Vec<(&str, Vec<String>)> =
            shuffle.iter().map(|&it| (names[it].as_str(), needs(it).collect())).collect();
        let mut hand = begin(&graph, &tasks);
        let mut done = BTreeSet::new();
        let mut failed = BTreeSet::new();
        for (pick, luck, crashes) in choices {
            if hand.rest.is_some() {
                break;
            }
            if crashes {
                hand = restored(hand, &graph);
            }
            for item in running(&hand) {
                let (_, needs) = tasks.iter().find(|(it, _)| *it == item).unwrap();
                prop_assert!(needs.iter().all(|it| done.contains(it)), "{item} needs {needs:?}: {done:?}");
                prop_assert!(!done.contains(&item) && !failed.contains(&item), "{item} runs again");
            }
            let item = id(&hand, pick.index(hand.open.len()));
            let succeeds = luck > 1;
            end(&mut hand, &item, succeeds);
            if succeeds { done.insert(item) } else { failed.insert(item) };
        }
        prop_assert_eq!(hand.rest, Some((Status::Done, None)));
        let state = hand.machine.state();
        let in_order: Vec<&str> =
            tasks.iter().map(|it| it.0).filter(|it| done.contains(*it)).collect();
        prop_assert_eq!(state.get("done").unwrap(), &json!(in_order));
        let lost = state.get("lost").and_then(Value::as_array).unwrap();
        prop_assert_eq!(lost.len() + done.len(), 12);
        let not_run = lost.iter().filter(|it| it["kind"] == "dependency").count();
        prop_assert_eq!(not_run, 12 - done.len() - failed.len());
    }
}
