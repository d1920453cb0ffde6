//! Graphs in which one rule alone keeps the worst case true, too rare to wait for among random ones.

use graphrun::{
    compile::{WorstCase, compile},
    graph::{
        Bounds, Catch, Defer, Edge, GraphBuilder, IntoNode, Policies, RouteChoice, START, Schedule,
        Spread, Target, UncheckedGraph,
    },
};

use super::{Decided, Taken, bounded, graph, name, nodes, random::Dice, run};

/// Runs a graph in many ways; gives the most visits of a node and the most super-steps.
///
/// # Panics
///
/// When a run goes beyond the worst case.
fn most(builder: GraphBuilder, routes: &[(&str, &[&str], Spread)], node: &str) -> (u64, u64) {
    most_of(builder.build(), routes, node)
}

fn most_of(mut made: UncheckedGraph, routes: &[(&str, &[&str], Spread)], node: &str) -> (u64, u64) {
    let dice = Dice::default();
    for (from, ways, spread) in routes {
        let ways = ways.iter().map(|it| Target::Node(name(it)));
        made.graph.edges.push(dice.route(name(from), ways, *spread));
    }
    let graph = compile(made).unwrap();
    let worst_case = WorstCase::of(&graph);
    let mut visits = 0;
    let mut steps = 0;
    for seed in 0..512 {
        dice.shake(seed);
        let taken = run(&graph, &dice);
        taken.fits(&worst_case).unwrap();
        visits = visits.max(Taken::of(&taken.visits, &name(node)));
        steps = steps.max(taken.steps);
    }
    (visits, steps)
}

#[test]
fn items_of_one_node_may_take_different_routes() {
    let map = nodes(["plan", "write", "mend", "sum"]).edge(START, "plan").edge("mend", "sum");
    let routes: &[(&str, &[&str], Spread)] =
        &[("plan", &["write"], Spread::Items), ("write", &["mend", "sum"], Spread::One)];
    assert_eq!(most(map, routes, "sum").0, 2);
}

#[test]
fn items_of_one_node_arrive_at_a_join_once() {
    let map = nodes(["plan", "write", "sum", "stop"])
        .node("tick", Decided.with_policies(bounded(3, "stop", &[])))
        .edge(START, "plan")
        .edge(START, "tick")
        .edge("tick", "tick")
        // Only a run that fails may leave `sum` waiting for another item.
        .edge("stop", "fail")
        .edge(["tick", "write"], "sum");
    // What the later items bring is no arrival for the next round.
    assert_eq!(most(map, &[("plan", &["write"], Spread::Items)], "sum").0, 1);
}

#[test]
fn a_node_that_may_choose_need_not_fail() {
    let choosing = nodes(["flush"])
        .node("work", Decided.with_policies(bounded(3, "flush", &[])))
        .edge(START, "work")
        .edge("work", "work")
        .edge("work", "flush")
        .edge("flush", "fail")
        .goto("flush", ["end"]);
    assert_eq!(most(choosing, &[], "flush").0, 3);
}

#[test]
fn a_node_also_reached_by_a_failure_has_separate_steps() {
    let catch = vec![Catch { kind: None, to: Target::Node(name("late")) }];
    let caught = nodes(["plan", "early", "late"])
        .node("check", Decided.with_policies(Policies { catch, ..Policies::default() }))
        .edge(START, "plan")
        .edge("plan", "early")
        .edge("plan", "late")
        .edge("early", "check");
    assert_eq!(most(caught, &[], "late"), (2, 4));
}

#[test]
fn a_node_that_is_used_up_leaves_its_steps_to_the_others() {
    let bounded = |max_visits| {
        Policies::from(Bounds {
            max_visits: Some(max_visits),
            exhausted: Some(Target::End),
            ..Bounds::default()
        })
    };
    let spent = nodes(["work"])
        .node("plan", Decided.with_policies(bounded(3)))
        .node("once", Decided.with_policies(bounded(1)))
        .edge(START, "plan")
        .edge("plan", "once")
        .edge("plan", "work")
        .edge("work", "plan");
    assert_eq!(most(spent, &[], "work"), (3, 6));
}

#[test]
fn a_run_starts_with_a_node_that_may_never_be_visited() {
    let never = graph()
        .node("never", Decided.with_policies(bounded(0, "done", &[])))
        .node("done", Decided)
        .edge(START, "never")
        .edge("never", "never");
    // The builder refuses such a bound.
    assert_eq!(most_of(never.build().graph.into(), &[], "never"), (1, 2));
}

#[test]
fn a_map_goes_through_its_items_or_past_them() {
    let dice = Dice::default();
    let mut made =
        nodes(["a", "b", "c", "each_a", "each_b", "each_c", "last"]).edge(START, "a").build();
    let to = |it: &str| vec![Target::Node(name(it))];
    for (map, each, after) in [("a", "each_a", "b"), ("b", "each_b", "c"), ("c", "each_c", "last")]
    {
        let items = RouteChoice { to: to(each), is_dispatched: true, ..RouteChoice::default() };
        let none = RouteChoice { to: to(after), ..RouteChoice::default() };
        made.graph.edges.push(dice.choosing(name(map), vec![items, none]));
        let after = Target::Node(name(after));
        made.graph.edges.push(Edge::Then { from: name(each), to: after, span: None });
    }
    let worst_case = WorstCase::of(&compile(made).unwrap());
    assert!(worst_case.nodes.values().all(|it| it.visits_max == 1), "{worst_case:#?}");
    assert_eq!(worst_case.steps_max, 7);
}

#[test]
fn items_do_not_wait_where_their_node_does() {
    let defer = Some(Defer::Siblings);
    let map = nodes(["plan", "work"])
        .node(
            "last",
            Decided.with_policies(Policies::from(Schedule { defer, ..Schedule::default() })),
        )
        .edge(START, "plan")
        .edge("plan", "work");
    assert_eq!(most(map, &[("plan", &["last"], Spread::Items)], "last").0, 2);
}

#[test]
fn a_used_up_bound_leads_on_without_a_step() {
    let waits_once = Policies {
        schedule: Schedule { defer: Some(Defer::Siblings), ..Schedule::default() },
        ..bounded(1, "late", &[])
    };
    let failing = nodes(["plan", "stop", "late"])
        .node("last", Decided.with_policies(waits_once))
        .edge(START, "plan")
        .edge("plan", "stop")
        .edge("stop", "fail");
    // An edge reserves the only visit of `last`, so an item that arrives in the same step leads to `late`, beside `stop`.
    assert_eq!(most(failing, &[("plan", &["last"], Spread::Items)], "late"), (1, 2));
}
