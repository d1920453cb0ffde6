//! Nodes that finished, but whose route failed: the result is kept, and only the decision is tried again.

use graphrun::{checkpoint::Outcome, engine::machine::RunSettings};

use super::*;

/// Divides by `round`, like `when: 10 / round > 1`.
fn by_division(broken: bool) -> impl Fn(&Team) -> &'static str + Send + Sync + 'static {
    move |team: &Team| {
        assert!(!broken || team.round > 0, "division by zero");
        "next"
    }
}

fn graph(broken: bool) -> CompiledGraph {
    let catch = vec![Catch { kind: None, to: Target::Node(name("help")) }];
    compiled(
        GraphBuilder::new::<Team>("division")
            .node("work", Decided.with_policies(Policies { catch, ..Policies::default() }))
            .node("beside", Decided)
            .node("next", Decided)
            .node("extra", Decided)
            .node("help", Decided)
            .edge(START, "work")
            .edge(START, "beside")
            .route("work", ["next"], by_division(broken))
            .goto("work", ["extra"])
            .edge("beside", "end"),
    )
}

/// Returns a run whose two first nodes have finished, the first of them with a broken route.
fn stopped(graph: &CompiledGraph) -> Hand {
    let mut hand = Hand::start(graph);
    while let Some(task) = hand.open.pop_front() {
        let mut usage = Usage { cost_usd: Some(0.5), ..Usage::default() };
        usage.tokens.calls = 1;
        let attempt = AttemptStats { ms: 7, usage, ..attempt(task.attempt) };
        let mut command = noting(&task);
        if task.node == name("work") {
            command.goto = Goto::Also(vec![Transition::To(Target::Node(name("extra")))]);
        }
        hand.tell(TaskEvent::Finished { task: task.id, command, attempt });
    }
    hand
}

fn checkpoint(hand: &Hand) -> Checkpoint {
    let state = hand.machine.state().as_ref().clone();
    Checkpoint { position: hand.saved.position.clone(), state }
}

/// Restores the run with a graph.
fn restored(hand: Hand, graph: CompiledGraph, only: Option<&NodeName>) -> Hand {
    let checkpoint = checkpoint(&hand);
    let records = hand.records.clone();
    let saved = SavedStep { retry_only: only.cloned(), ..SavedStep::new(checkpoint, records) };
    let restored = Machine::restore(graph, RunSettings::default(), run_id(), saved);
    let (machine, actions) = restored.unwrap();
    let mut again = Hand { machine, open: VecDeque::new(), rest: None, ..hand };
    again.perform(actions);
    again
}

#[test]
fn a_failed_route_keeps_the_result_of_its_node() {
    let hand = stopped(&graph(true));
    let reason = "`work` finished, but its route failed: the route panicked: division by zero";
    assert_eq!(hand.rest, Some((Status::Failed, Some(reason.into()))), "no `catch` applies");
    let [kept, beside] = <[TaskRecord; 2]>::try_from(hand.records.clone()).unwrap();
    let kept = if kept.node == name("work") { kept } else { beside };
    let Outcome::Undecided { update, goto, failure } = &kept.outcome else { panic!("{kept:?}") };
    assert_eq!((update.writes.len(), goto.chosen().len()), (1, 1));
    assert_eq!(failure.kind, ErrorKind::Panic);

    // Without a correction, the decision fails again, and nothing runs.
    let hand = restored(hand, graph(true), None);
    assert_eq!(hand.rest, Some((Status::Failed, Some(reason.into()))));
    assert_eq!((hand.open.len(), hand.records.len()), (0, 3), "two results, one more failure");

    let hand = restored(hand, graph(false), None);
    let open: Vec<&str> = hand.open.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(open, ["extra", "next"], "the node does not run again; its choice is followed");
    assert_eq!(notes(hand.machine.state()), ["beside", "work"]);
    let used = &hand.machine.position().used;
    assert_eq!((used.usage.cost_usd, used.elapsed_ms), (Some(1.0), 7), "it is counted once");
}

#[test]
fn a_retry_of_another_node_leaves_the_route_alone() {
    let hand = restored(stopped(&graph(true)), graph(false), Some(&name("beside")));
    assert_eq!(hand.rest.as_ref().unwrap().0, Status::Failed);
    assert_eq!(restored(hand, graph(false), Some(&name("work"))).open.len(), 2);
}

#[test]
fn a_choice_for_a_removed_node_is_refused() {
    let removed = compiled(
        GraphBuilder::new::<Team>("division")
            .node("work", Decided)
            .node("beside", Decided)
            .edge(START, "work")
            .edge(START, "beside"),
    );
    let refused = restored_by(&stopped(&graph(true)), removed);
    assert_eq!(refused, "node `extra` runs next, but the workflow has no such node");
}

#[test]
fn a_failed_route_after_a_skipped_node_is_not_caught() {
    let catch = vec![Catch { kind: None, to: Target::Node(name("help")) }];
    let graph = compiled(
        GraphBuilder::new::<Team>("skipped")
            .node("work", Decided.with_policies(Policies { catch, ..Policies::default() }))
            .when("work", "never", |_: &Team| false)
            .node("next", Decided)
            .node("help", Decided)
            .edge(START, "work")
            .route("work", ["next"], by_division(true)),
    );
    let hand = Hand::start(&graph);
    let reason = "`work` failed: the route panicked: division by zero";
    assert_eq!(hand.rest, Some((Status::Failed, Some(reason.into()))));
}

#[test]
fn an_undeclared_choice_is_still_a_failure_of_its_node() {
    let mut hand = Hand::start(&graph(true));
    let task = hand.open.iter().find(|it| it.node == name("work")).unwrap().clone();
    let goto = Goto::Instead(vec![Transition::To(Target::Node(name("beside")))]);
    hand.finish(&task, Command { goto, ..noting(&task) });
    assert!(matches!(hand.records[0].outcome, Outcome::Caught { .. }), "{:?}", hand.records);
}
