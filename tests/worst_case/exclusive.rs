//! Routes whose conditions exclude each other: the branches behind them are not added up.

use std::fmt::Write;

use graphrun::{
    compile::{CompiledGraph, WorstCase},
    engine::Engine,
    event::Status,
    state::Update,
};
use serde_json::{Value, json};

use super::{brute::Ratio, random::Dice};
use crate::support::loaded;

/// The most nodes of a random workflow besides its first one.
const NODES_MAX: usize = 6;

fn head(start: &str) -> String {
    format!(
        "graphrun: 1\nname: exclusive\nstate: {{ a: bool, kind: x | y | z, n: {{ type: int, merge: sum, default: 0 }} }}\n\
         input: [a, kind]\nlimits: {{ steps: 1000 }}\nstart: {start}\nnodes:\n"
    )
}

fn node(name: &str, then: &str) -> String {
    format!("  {name}: {{ set: {{ n: 1 }}, then: {then} }}\n")
}

/// The most visits of all nodes together.
fn visits(text: &str) -> u64 {
    let graph = loaded(text).unwrap_or_else(|| panic!("{text}"));
    WorstCase::of(&graph).most(|_, it| Some(it.visits_max))
}

#[test]
fn of_branches_that_exclude_each_other_one_counts() {
    let branches = |one: &str, other: &str, first: &str| {
        let case =
            |when: &str, to: &str| format!("[{{ when: '{when}', to: {to} }}, {{ to: end }}]");
        let nodes = [
            first.to_owned(),
            node("l", &case(one, "l1")),
            node("r", &case(other, "r1")),
            node("l1", "l2"),
            node("l2", "end"),
            node("r1", "r2"),
            node("r2", "end"),
        ];
        visits(&(head("s") + &nodes.concat()))
    };
    let plain = node("s", "[l, r]");
    assert_eq!(branches("a", "!a", &plain), 5);
    assert_eq!(branches("kind == \"x\"", "kind == \"y\"", &plain), 5);
    assert_eq!(branches("kind == \"x\"", "kind != \"y\"", &plain), 7);
    assert_eq!(branches("a", "kind == \"x\"", &plain), 7);
    // Written before both.
    let before = plain.replace("n: 1", "a: \"kind == 'x'\"");
    assert_eq!(branches("a", "!a", &before), 5);
    // One after the other, and written in between.
    let row = |between: &str| {
        let nodes = [
            node("s", "[{ when: a, to: l1 }, { to: t }]"),
            node("l1", "t"),
            format!("  t: {{ set: {{ {between} }}, then: u }}\n"),
            node("u", "[{ when: '!a', to: r1 }, { to: end }]"),
            node("r1", "end"),
        ];
        visits(&(head("s") + &nodes.concat()))
    };
    assert_eq!(row("n: 1"), 4);
    assert_eq!(row("a: '!a'"), 5);
    let matches = [
        node("s", "[l, r]"),
        node("l", "{ match: kind, to: { x: x1, y: y1, z: end } }"),
        node("r", "{ match: kind, to: { x: end, y: end, z: z1 } }"),
        node("x1", "x2"),
        node("x2", "end"),
        node("y1", "end"),
        node("z1", "end"),
    ];
    assert_eq!(visits(&(head("s") + &matches.concat())), 5);
}

/// In each round another branch may be taken, and in each step one of them.
#[test]
fn in_a_loop_one_branch_counts_in_each_round() {
    let nodes = |write: &str| {
        [
            format!("  s: {{ set: {{ {write} }}, max_visits: 3, exhausted: end, then: [l, r] }}\n"),
            node("l", "[{ when: a, to: l1 }, { to: end }]"),
            node("r", "[{ when: '!a', to: r1 }, { to: end }]"),
            node("l1", "s"),
            node("r1", "s"),
        ]
    };
    assert_eq!(visits(&(head("s") + &nodes("n: 1").concat())), 12);
    assert_eq!(visits(&(head("s") + &nodes("a: '!a'").concat())), 12);
}

/// A random workflow: routes on two inputs, some of which nodes write.
fn random(dice: &Dice) -> String {
    let count = 3 + dice.below(NODES_MAX - 2);
    let target = |from: usize, dice: &Dice| {
        // Loops have bounds.
        let to = if dice.below(8) == 0 { dice.below(count) } else { from + 1 + dice.below(3) };
        if to < count { format!("n{to}") } else { "end".to_owned() }
    };
    let condition = |dice: &Dice| {
        const CONDITIONS: [&str; 8] = [
            "a",
            "!a",
            "a",
            "!a",
            "kind == \"x\"",
            "kind != \"x\"",
            "kind == \"y\"",
            "a && kind == \"z\"",
        ];
        CONDITIONS[dice.below(CONDITIONS.len())]
    };
    let mut text = head("n0");
    for at in 0..count {
        let set =
            ["n: 1", "n: 1", "n: 1", "n: 1", "n: 1", "a: '!a'", "kind: '\"y\"'"][dice.below(7)];
        let then = match dice.below(6) {
            0 => target(at, dice),
            1 | 2 => format!("[{}, {}]", target(at, dice), target(at, dice)),
            3 => {
                let x = target(at, dice);
                let y = target(at, dice);
                let z = target(at, dice);
                format!("{{ match: kind, to: {{ x: {x}, y: {y}, z: {z} }} }}")
            }
            _ => format!(
                "[{{ when: '{}', to: {} }}, {{ to: {} }}]",
                condition(dice),
                target(at, dice),
                target(at, dice)
            ),
        };
        let bound = if dice.below(3) == 0 { "max_visits: 2, exhausted: end, " } else { "" };
        writeln!(text, "  n{at}: {{ set: {{ {set} }}, {bound}then: {then} }}").unwrap();
    }
    text
}

/// The steps and the visits of a run, which its input decides.
async fn truth(graph: &CompiledGraph, input: Value) -> (u64, u64) {
    let end = Engine::new(graph.clone()).run(Update::of(&input).unwrap()).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    let visits = end.position.visits.values().map(|it| u64::from(*it)).sum();
    (end.position.step.0, visits)
}

/// The bounds of random workflows are never below the true numbers, and on average within 1.3 of them.
#[tokio::test]
async fn random_branches_are_bounded_near_the_truth() {
    let dice = Dice::default();
    let mut steps = Ratio::default();
    let mut visits = Ratio::default();
    for seed in 0..1_200 {
        dice.shake(seed);
        let text = random(&dice);
        let Some(graph) = loaded(&text) else { continue };
        let mut steps_max = 0;
        let mut visits_max = 0;
        for (a, kind) in [true, false].into_iter().flat_map(|a| ["x", "y", "z"].map(|it| (a, it))) {
            let (steps, visits) = truth(&graph, json!({"a": a, "kind": kind})).await;
            steps_max = steps_max.max(steps);
            visits_max = visits_max.max(visits);
        }
        let worst_case = WorstCase::of(&graph);
        let most = worst_case.most(|_, it| Some(it.visits_max));
        assert!(worst_case.steps_max >= steps_max, "{steps_max} steps: {worst_case:#?}\n{text}");
        assert!(most >= visits_max, "{visits_max} visits, at most {most}: {worst_case:#?}\n{text}");
        steps.add(worst_case.steps_max, steps_max);
        visits.add(most, visits_max);
    }
    println!("{steps:?} {visits:?}");
    assert!(steps.count > 200, "only {} workflows load", steps.count);
    for average in [steps.average(), visits.average()] {
        assert!(average <= 1.3, "{average} on average");
    }
}
