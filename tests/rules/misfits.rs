//! Updates of a step that fit alone and not together: tasks fail, and the run can continue.

use std::{path::Path, sync::Arc};

use graphrun::{
    checkpoint::{Outcome, RunHistory as _, RunJournal as _},
    diagnostic::SourceFile,
    draw::Drawing,
    engine::{Engine, check_retry, machine::RunSettings},
    nodes::{Services, factory},
    registry,
    storage::{InMemoryStorage, prove},
    workflow::parse,
};
use serde_json::Value;

use super::*;

/// A map that adds its numbers, with more keys of it in place of `MORE`.
const WORKFLOW: &str = "
graphrun: 1
name: sum
types: { Lost: { index: int, message: string } }
state:
  list: [int]
  total: { type: int, merge: sum, default: 0 }
  lost: { type: [Lost], merge: append, default: [] }
input: list
start: each
nodes:
  each: { map: { over: list, as: number, do: one MORE, then: last }
  one: { set: { total: number, lost: '[]' } }
  last: { set: { total: 1 }, then: end }
";

/// Two of these are too large for a sum.
const HUGE: i64 = 9_000_000_000_000_000_000;

fn graph(more: &str) -> CompiledGraph {
    let text = WORKFLOW.replace(" MORE", more);
    let file = Arc::new(SourceFile { name: "sum.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new(""), &registry()).unwrap();
    compile(workflow.into_graph(&factory(Services::offline(), registry()))).unwrap()
}

/// Runs the map over some numbers; `pick` chooses which open task ends next.
fn run_map(graph: &CompiledGraph, numbers: &[i64], pick: impl Fn(usize) -> usize) -> Hand {
    let input = Update::default().write(channel("list"), json!(numbers));
    let begun = Machine::start(graph.clone(), RunSettings::default(), run_id(), input).unwrap();
    let FirstStep { machine, commit: saved, actions } = begun;
    let mut hand = Hand { machine, open: [].into(), records: Vec::new(), saved, rest: None };
    hand.perform(actions);
    finish_all(&mut hand, pick);
    hand
}

/// Finishes all tasks: the items write their numbers.
fn finish_all(hand: &mut Hand, pick: impl Fn(usize) -> usize) {
    while !hand.open.is_empty() {
        let task = hand.open.remove(pick(hand.open.len())).unwrap();
        let number = task.input.item().cloned();
        let total = number.or_else(|| (task.node == name("last")).then(|| json!(1)));
        let update = total
            .into_iter()
            .fold(Update::default(), |update, it| update.write(channel("total"), it));
        hand.finish(&task, update.into());
    }
}

/// Continues in another process, as `retry` and `resume` do.
fn restored(hand: Hand, graph: &CompiledGraph) -> Hand {
    let state = hand.machine.state().as_ref().clone();
    let checkpoint = Checkpoint { position: hand.saved.position.clone(), state };
    let saved = SavedStep::new(checkpoint, hand.records.clone());
    let restored = Machine::restore(graph.clone(), RunSettings::default(), run_id(), saved);
    let (machine, actions) = restored.unwrap();
    let mut again = Hand { machine, open: VecDeque::new(), rest: None, ..hand };
    again.perform(actions);
    again
}

fn total(hand: &Hand) -> Option<i64> {
    hand.machine.state().get("total").and_then(Value::as_i64)
}

/// The items end in each order, and the same one fails.
#[test]
fn an_update_that_does_not_fit_beside_others_fails_its_task() {
    let graph = graph(" }");
    for pick in [|_| 0, |open| open - 1] {
        let hand = run_map(&graph, &[5, HUGE, HUGE, 7], pick);
        let Some((Status::Failed, Some(reason))) = &hand.rest else { panic!("{:?}", hand.rest) };
        assert_eq!(
            reason,
            "`one` failed: it does not fit beside the other results of the step: could not fold a \
             write to `total`: the sum of 9000000000000000005 and 9000000000000000000 is too large"
        );
        let last = hand.records.last().unwrap();
        assert!(matches!(last.outcome, Outcome::Failed { .. }), "{last:?}");
        assert_eq!(last.task.index, 2, "the first in task order that does not fit");
        // A process that dies before that failure is saved finds the same.
        let mut cut = hand;
        cut.records.pop();
        let failed = restored(cut, &graph);
        assert_eq!(failed.records.last().unwrap().task.index, 2);
        // Only the failed task runs again.
        let mut again = restored(failed, &graph);
        let open: Vec<u32> = again.open.iter().map(|it| it.id.index).collect();
        assert_eq!(open, [2]);
        let task = again.open.pop_front().unwrap();
        again.finish(&task, Update::default().write(channel("total"), json!(100)).into());
        finish_all(&mut again, |_| 0);
        assert_eq!((total(&again), again.rest), (Some(HUGE + 113), Some((Status::Done, None))));
    }
}

#[test]
fn a_failure_of_an_update_beside_others_is_caught() {
    for (more, sum) in [(" }, catch: { any: end }", HUGE), (", failed: lost }", HUGE + 1)] {
        let graph = graph(more);
        let hand = run_map(&graph, &[HUGE, HUGE], |_| 0);
        let lost = hand.machine.state().get("lost").and_then(Value::as_array).unwrap();
        let indexes: Vec<u64> = lost.iter().filter_map(|it| it["index"].as_u64()).collect();
        assert_eq!(indexes, if sum == HUGE { vec![] } else { vec![1] }, "{more}");
        assert_eq!((total(&hand), hand.rest), (Some(sum), Some((Status::Done, None))), "{more}");
    }
}

/// The journal accepts the failure after the result, and `retry` runs the task again.
#[tokio::test]
async fn a_saved_run_continues_after_updates_that_do_not_fit_together() {
    let storage = Arc::new(InMemoryStorage::default());
    let graph = graph(" }");
    let engine = Engine::new(graph.clone()).with_storage(Arc::clone(&storage) as _);
    let input = Update::default().write(channel("list"), json!([HUGE, HUGE]));
    let end = engine.run(input).await.unwrap();
    assert_eq!((end.status, end.failures.len()), (Status::Failed, 1), "{:?}", end.reason);
    let (saved, records) =
        (storage.load(&end.run).await.unwrap(), storage.records(&end.run).await.unwrap());
    let drawing = Drawing::of(graph.definition()).with_run(&saved, &records);
    let drawn = drawing.nodes.iter().find(|it| it.name == name("one")).and_then(|it| it.visits);
    let drawn = drawn.map(|it| (it.tasks, it.attempts, it.failures));
    assert_eq!(drawn, Some((2, 2, 1)), "an attempt whose result did not fit is one attempt");
    for _ in 0..2 {
        let saved = storage.load(&end.run).await.unwrap();
        check_retry(&saved, None).unwrap();
        check_retry(&saved, Some(&name("one"))).unwrap();
        let again = engine.retry(&end.run).await.unwrap();
        assert_eq!(again.reason, end.reason, "the node returns the same");
        prove(storage.as_ref(), &end.run, None).await.unwrap();
    }
    // The item that fits is kept.
    let by_hand = Update::default().write(channel("total"), json!(2));
    engine.update(&end.run, by_hand, Some(&name("one"))).await.unwrap();
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(end.state.get("total").and_then(Value::as_i64), Some(HUGE + 3));
    prove(storage.as_ref(), &end.run, None).await.unwrap();
}
