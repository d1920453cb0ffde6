//! Joins of some of several nodes: when they run, and what comes too late for them.

use graphrun::{checkpoint::Position, compile::WorstCase, graph::END};

use super::*;

/// Branches of one, two and three steps behind `ask`, and a join at `answer`.
fn race(count: usize) -> GraphBuilder {
    GraphBuilder::new::<Team>("race")
        .node("ask", Decided)
        .node("quick", Decided)
        .node("slow1", Decided)
        .node("slow2", Decided)
        .node("long1", Decided)
        .node("long2", Decided)
        .node("long3", Decided)
        .node("answer", Decided)
        .edge(START, "ask")
        .edge("ask", ["quick", "slow1", "long1"])
        .edge("slow1", "slow2")
        .edge("long1", "long2")
        .edge("long2", "long3")
        .edge_of(count, ["quick", "slow2", "long3"], "answer")
}

fn run(graph: GraphBuilder) -> (Vec<String>, (Status, Option<String>)) {
    let (state, rest) = Hand::start(&compiled(graph)).run(|_| 0, |task| Ok(noting(task)));
    (notes(&state), rest)
}

const DONE: (Status, Option<String>) = (Status::Done, None);

/// Finishes the first open tasks, until a node is about to run.
fn until(hand: &mut Hand, node: &str) {
    while hand.open.iter().all(|it| it.node.as_str() != node) {
        let task = hand.open.pop_front().expect("the node is reached");
        hand.finish(&task, noting(&task));
    }
}

#[test]
fn a_join_runs_once_after_enough_arrivals() {
    for (count, after) in [
        (1, ["answer", "long2", "slow2", "long3"]),
        (2, ["long2", "slow2", "answer", "long3"]),
        (3, ["long2", "slow2", "long3", "answer"]),
    ] {
        let before = ["ask", "long1", "quick", "slow1"];
        let all: Vec<String> = before.into_iter().chain(after).map(str::to_owned).collect();
        assert_eq!(run(race(count).edge("answer", "end")), (all, DONE));
    }
}

#[test]
fn arrivals_in_one_step_run_a_join_once() {
    let graph = GraphBuilder::new::<Team>("vote")
        .node("a", Decided)
        .node("b", Decided)
        .node("c", Decided)
        .node("count", Decided)
        .edge(START, ["a", "b", "c"])
        .edge_of(2, ["a", "b", "c"], "count")
        .edge("count", "end");
    assert_eq!(run(graph), (vec!["a".into(), "b".into(), "c".into(), "count".into()], DONE));
}

/// The second round begins while a branch of the first one still works. If its arrival counted, the second round would
/// answer after one fresh arrival.
#[test]
fn a_late_arrival_does_not_count_for_the_next_round() {
    let graph = GraphBuilder::new::<Team>("again")
        .node("ask", Decided)
        .node("one", Decided)
        .node("two1", Decided)
        .node("two2", Decided)
        .node("answer", Decided)
        .node("rest", Decided)
        .edge(START, "ask")
        .edge("ask", ["one", "two1"])
        .edge("two1", "two2")
        .edge_of(1, ["one", "two2"], "answer")
        .edge("answer", "ask")
        .edge("rest", "end")
        .max_visits("ask", 3, "rest");
    let (notes, rest) = run(graph);
    assert_eq!(rest, DONE);
    let visits = |node: &str| notes.iter().filter(|it| it.starts_with(node)).count();
    assert_eq!((visits("ask"), visits("answer"), visits("two2")), (3, 3, 3), "{notes:?}");
}

/// A branch that never arrives leaves no trace: the first arrival of the next round counts, also one of its node.
#[test]
fn a_branch_that_was_not_taken_owes_nothing() {
    let graph = GraphBuilder::new::<Team>("either")
        .node("ask", Decided)
        .node("left", Decided)
        .node("right", Decided)
        .node("answer", Decided)
        .node("rest", Decided)
        .edge(START, "ask")
        .route("ask", ["left", "right"], |team: &Team| {
            let asked = team.notes.iter().filter(|it| it.starts_with("ask")).count();
            if asked % 2 == 1 { "left" } else { "right" }
        })
        .edge_of(1, ["left", "right"], "answer")
        .edge("answer", "ask")
        .edge("rest", "end")
        .max_visits("ask", 3, "rest");
    let (notes, rest) = run(graph);
    let all = ["ask", "left", "answer", "ask", "right", "answer", "ask", "left", "answer", "rest"];
    assert_eq!((notes, rest), (all.map(str::to_owned).to_vec(), DONE));
}

#[test]
fn a_round_is_saved_and_ends_with_its_last_task() {
    let graph = compiled(race(1).edge("answer", "end"));
    let mut hand = Hand::start(&graph);
    until(&mut hand, "answer");
    let rounds = hand.saved.position.rounds.clone();
    let round = &rounds[&name("answer")];
    assert_eq!(round.missing, [name("slow2"), name("long3")].into());
    assert_eq!(round.tasks, [name("slow2"), name("long2")].into());
    let saved = serde_json::to_value(&hand.saved.position).unwrap();
    assert_eq!(serde_json::from_value::<Position>(saved).unwrap(), hand.machine.position());

    // Another process continues from here, and absorbs the same arrivals.
    let state = hand.machine.state().as_ref().clone();
    let checkpoint = Checkpoint { position: hand.saved.position.clone(), state };
    let (machine, actions) =
        Machine::restore(graph, RunSettings::default(), run_id(), checkpoint.into()).unwrap();
    let mut next =
        Hand { machine, open: VecDeque::new(), records: Vec::new(), saved: hand.saved, rest: None };
    next.perform(actions);
    until(&mut next, "long3");
    assert_eq!(next.saved.position.rounds[&name("answer")].tasks, [name("long3")].into());
    let (state, rest) = next.run(|_| 0, |task| Ok(noting(task)));
    assert_eq!(rest, DONE);
    assert_eq!(notes(&state).iter().filter(|it| it.starts_with("answer")).count(), 1);
}

#[test]
fn too_few_arrivals_fail_the_run() {
    let catch = vec![Catch { kind: None, to: Target::End }];
    let leaves = Policies { catch, ..Policies::default() };
    let graph = GraphBuilder::new::<Team>("few")
        .node("a", Decided)
        .node("b", Decided.with_policies(leaves.clone()))
        .node("c", Decided.with_policies(leaves))
        .node("decide", Decided)
        .edge(START, ["a", "b", "c"])
        .edge_of(2, ["a", "b", "c"], "decide")
        .edge("decide", "end");
    let diagnostics = graph.compile().unwrap_err();
    let codes: Vec<&str> = diagnostics.in_order().iter().map(|it| it.code).collect();
    assert_eq!(codes, ["GR131"], "it is found before any run");
}

#[test]
fn one_branch_of_a_join_of_two_may_go_elsewhere() {
    let catch = vec![Catch { kind: None, to: Target::End }];
    let leaves = Policies { catch, ..Policies::default() };
    let graph = GraphBuilder::new::<Team>("enough")
        .node("a", Decided)
        .node("b", Decided)
        .node("c", Decided.with_policies(leaves))
        .node("decide", Decided)
        .edge(START, ["a", "b", "c"])
        .edge_of(2, ["a", "b", "c"], "decide")
        .edge("decide", "end");
    let (state, rest) = Hand::start(&compiled(graph)).run(
        |_| 0,
        |task| match task.node.as_str() {
            "c" => Err(Failure::new(ErrorKind::Tool, "no")),
            _ => Ok(noting(task)),
        },
    );
    assert_eq!((notes(&state), rest), (["a", "b", "decide"].map(str::to_owned).to_vec(), DONE));
}

#[test]
fn a_join_waits_for_a_number_of_its_nodes() {
    for count in [0, 4] {
        let diagnostics = race(count).edge("answer", "end").compile().unwrap_err();
        let found: Vec<_> =
            diagnostics.in_order().iter().map(|it| (it.code, &it.message)).collect();
        let message = format!("the join at `answer` waits for {count} of 3 nodes");
        assert_eq!(found, [("GR037", &message)]);
    }
}

#[test]
fn the_worst_case_of_a_join_without_a_loop_counts_one_round() {
    let worst_case = WorstCase::of(&compiled(race(2).edge("answer", "end")));
    assert_eq!(worst_case.nodes[&name("answer")].visits_max, 1, "late arrivals are absorbed");
    let twice = race(2).node("again", Decided).edge("answer", "again").edge("again", "ask");
    let worst_case = WorstCase::of(&compiled(twice.max_visits("ask", 2, END)));
    assert!(worst_case.nodes[&name("answer")].visits_max >= 2);
}

/// The node behind such a join runs in one step with the branches that are left.
#[test]
fn the_rest_of_a_round_may_not_write_the_same_field() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Draft {
        text: String,
    }
    async fn write() -> Result<Draft, NodeError> {
        unreachable!("these tests run no node")
    }
    let graph = |count| {
        GraphBuilder::new::<Draft>("drafts")
            .node("quick", Decided)
            .node("slow1", Decided)
            .node("slow2", write)
            .node("answer", write)
            .edge(START, ["quick", "slow1"])
            .edge("slow1", "slow2")
            .edge_of(count, ["quick", "slow2"], "answer")
            .edge("answer", END)
    };
    graph(2).compile().expect("all branches have finished");
    let diagnostics = graph(1).compile().unwrap_err();
    let codes: Vec<&str> = diagnostics.in_order().iter().map(|it| it.code).collect();
    assert_eq!(codes, ["GR036"]);
}
