//! The worst case of a graph: no run goes beyond it, and some runs reach it.

mod brute;
mod calls;
mod corners;
mod exclusive;
mod nested;
mod random;
mod used;
mod when;

use std::collections::BTreeMap;

use graphrun::{
    compile::{CompiledGraph, NodeWorstCase, VisitBound, WorstCase},
    draw::{Charset, Drawing},
    engine::machine::{Action, AttemptStats, FirstStep, Machine, RunSettings, Task, TaskEvent},
    event::Usage,
    graph::{
        Bounds, Command, Dispatch, Edge, ErrorKind, Failure, Goto, GraphBuilder, IntoNode, Limits,
        Node, NodeContext, NodeDescription, NodeError, OnFinish, Policies, START, Target,
        Transition,
    },
    id::{NodeName, RunId},
    state::{Schema, Update},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

use self::random::{Dice, recipe};
use crate::support::takes_all;

/// Runs are abandoned after this many tasks; their usage so far must fit as well.
const TASKS_MAX: usize = 2_000;

/// A node whose result the test decides.
struct Decided;

#[async_trait::async_trait]
impl Node for Decided {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        unreachable!("these tests run no node")
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { calls_max: Some(1), ..NodeDescription::default() }
    }
}

/// What a run took.
#[derive(Debug, Default)]
struct Taken {
    steps: u64,
    visits: BTreeMap<NodeName, u64>,
    attempts: BTreeMap<NodeName, u64>,
    /// The most tasks of a node in one step.
    width: BTreeMap<NodeName, u64>,
}

/// Drives a run by the real rules; dice decide what every node and every route does.
fn run(graph: &CompiledGraph, dice: &Dice) -> Taken {
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let id = RunId::parse("r").unwrap();
    let FirstStep { mut machine, actions: first, .. } =
        Machine::start(graph.clone(), settings, id, Update::default()).unwrap();
    let mut taken = Taken::default();
    let mut open = Vec::<Task>::new();
    let mut next = first;
    taken.count(&machine);
    for _ in 0..TASKS_MAX {
        while !next.is_empty() {
            for action in std::mem::take(&mut next) {
                match action {
                    Action::Run(task) => open.push(*task),
                    Action::Sleep { task, wait } => {
                        next.extend(machine.apply(TaskEvent::Woke { task, wake: wait.wake }));
                    }
                    Action::Commit(_) => taken.count(&machine),
                    Action::Emit { .. } | Action::PublishMessages(_) | Action::EndStep(_) => (),
                    Action::Record(_) | Action::Stop(_) => (),
                }
            }
        }
        if open.is_empty() {
            break;
        }
        let task = open.swap_remove(dice.below(open.len()));
        *taken.attempts.entry(task.node.clone()).or_default() += 1;
        next = machine.apply(outcome(graph, &task, dice));
    }
    taken
}

/// An attempt that took no time and no tokens.
fn free_attempt(task: &Task) -> AttemptStats {
    AttemptStats {
        number: task.attempt,
        ms: 0,
        usage: Usage::default(),
        ended: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn outcome(graph: &CompiledGraph, task: &Task, dice: &Dice) -> TaskEvent {
    let attempt = free_attempt(task);
    if dice.fails() {
        let kind = if dice.coin() { ErrorKind::Timeout } else { ErrorKind::Other };
        let failure = Failure { transient: dice.coin(), ..Failure::new(kind, "no luck") };
        return TaskEvent::Failed { task: task.id, failure, attempt };
    }
    let may = graph.leaving(&task.node).filter_map(|edge| match edge {
        Edge::May { to, .. } => Some(to.clone()),
        _ => None,
    });
    let may: Vec<Target> = may.flatten().collect();
    let transitions: Vec<Transition> =
        if may.is_empty() { Vec::new() } else { dice.transitions(&may, 3) };
    let goto = match dice.below(3) {
        1 if !transitions.is_empty() => Goto::Instead(transitions),
        2 => Goto::Also(transitions),
        _ => Goto::Edges,
    };
    let command = Command { update: Update::default(), goto };
    TaskEvent::Finished { task: task.id, command, attempt }
}

impl Taken {
    /// Counts what the next step runs.
    fn count(&mut self, machine: &Machine) {
        self.steps = machine.position().step.0;
        let mut tasks: BTreeMap<&NodeName, u64> = BTreeMap::new();
        let position = machine.position();
        for activation in &position.frontier {
            *tasks.entry(&activation.node).or_default() += 1;
        }
        for (node, many) in tasks {
            *self.visits.entry(node.clone()).or_default() += 1;
            let width = self.width.entry(node.clone()).or_default();
            *width = many.max(*width);
        }
    }

    fn of(counts: &BTreeMap<NodeName, u64>, node: &NodeName) -> u64 {
        counts.get(node).copied().unwrap_or(0)
    }

    fn fits(&self, worst_case: &WorstCase) -> Result<(), TestCaseError> {
        prop_assert!(self.steps <= worst_case.steps_max, "{} steps: {worst_case:#?}", self.steps);
        let visits: u64 = self.visits.values().sum();
        let visits_max = worst_case.most(|_, it| Some(it.visits_max));
        prop_assert!(visits <= visits_max, "{visits} visits of {visits_max}: {worst_case:#?}");
        for (node, most) in &worst_case.nodes {
            let visits = Self::of(&self.visits, node);
            let attempts = Self::of(&self.attempts, node);
            let width = Self::of(&self.width, node).max(1);
            prop_assert!(visits <= most.visits_max, "{visits} visits of {node}: {most:?}");
            prop_assert!(width == 1 || most.is_dispatched, "{width} tasks of {node} in a step");
            let attempts_max = most.attempts_max.saturating_mul(width);
            prop_assert!(attempts <= attempts_max, "{attempts} attempts of {node}: {most:?}");
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_run_goes_beyond_the_worst_case(recipe in recipe(), seeds in prop::array::uniform8(any::<u64>())) {
        let dice = Dice::default();
        let graph = recipe.compiled(&dice);
        let worst_case = WorstCase::of(&graph);
        for seed in seeds {
            dice.shake(seed);
            let fits = run(&graph, &dice).fits(&worst_case);
            let drawn = || Drawing::of(graph.definition()).to_listing(Charset::Unicode);
            fits.map_err(|it| TestCaseError::fail(format!("{it} in\n{}", drawn())))?;
        }
    }
}

/// How often a bound was reached by a run, of how many.
#[derive(Debug, Default)]
struct Reached {
    reached: u32,
    of: u32,
}

/// How tight the bounds are, and how rich the graphs: every rule is met, and met exactly.
#[test]
fn runs_reach_every_kind_of_bound() {
    let mut runner = TestRunner::deterministic();
    let mut kinds: BTreeMap<&str, Reached> = BTreeMap::new();
    let dice = Dice::default();
    let runs = if takes_all() { 64 } else { 24 };
    for _ in 0..400 {
        let graph = recipe().new_tree(&mut runner).unwrap().current().compiled(&dice);
        let worst_case = WorstCase::of(&graph);
        let taken: Vec<Taken> = (0..runs)
            .map(|seed| {
                dice.shake(seed);
                run(&graph, &dice)
            })
            .collect();
        let mut count = |kind, most: u64, taken: u64| {
            let reached = kinds.entry(kind).or_default();
            reached.of += 1;
            reached.reached += u32::from(taken == most);
        };
        let most = |of: &dyn Fn(&Taken) -> u64| taken.iter().map(of).max().unwrap_or(0);
        count("super-steps", worst_case.steps_max, most(&|it| it.steps));
        for (node, NodeWorstCase { visits_max, attempts_max, why, is_dispatched, .. }) in
            &worst_case.nodes
        {
            let kind = match why {
                VisitBound::Last => "last",
                VisitBound::Rounds { resets, .. } if resets.is_empty() => "one round",
                VisitBound::Rounds { .. } => "reset rounds",
                VisitBound::After(causes) if causes.len() == 1 => "after one",
                VisitBound::After(_) => "after several",
                VisitBound::Deferred(_) => "deferred",
                VisitBound::Fails { .. } => "fails",
            };
            count(kind, *visits_max, most(&|it| Taken::of(&it.visits, node)));
            if *visits_max < *attempts_max && !is_dispatched {
                count("attempts", *attempts_max, most(&|it| Taken::of(&it.attempts, node)));
            }
        }
    }
    // In percent, well below what this sequence of graphs gives.
    let least = [
        ("after one", 50),
        ("after several", 5),
        ("attempts", 15),
        ("deferred", 10),
        ("fails", 10),
        ("last", 50),
        ("one round", 50),
        ("reset rounds", 5),
        ("super-steps", 10),
    ];
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), least.map(|(kind, _)| kind));
    for (kind, percent) in least {
        let Reached { reached, of } = kinds[kind];
        assert!(reached * 100 >= percent * of, "{kind}: {reached} of {of}");
    }
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn graph() -> GraphBuilder {
    GraphBuilder::with_schema("test", Schema::default())
}

fn nodes<const N: usize>(names: [&str; N]) -> GraphBuilder {
    names.into_iter().fold(graph(), |graph, name| graph.node(name, Decided))
}

fn bounded(max_visits: u32, exhausted: &str, resets: &[&str]) -> Policies {
    Policies {
        bounds: Bounds {
            max_visits: Some(max_visits),
            exhausted: Some(Target::Node(name(exhausted))),
            ..Bounds::default()
        },
        on_finish: OnFinish {
            resets: resets.iter().map(|it| name(it)).collect(),
            ..OnFinish::default()
        },
        ..Policies::default()
    }
}

/// A line for each node, and the super-steps.
fn worst_case(builder: GraphBuilder) -> String {
    let worst_case = WorstCase::of(&builder.compile().unwrap());
    let node = |(name, it): (&NodeName, &NodeWorstCase)| {
        let items = if it.is_dispatched { " × items" } else { "" };
        format!("{name}: {}{items}, {}\n", it.visits_max, it.why)
    };
    let lines: String = worst_case.nodes.iter().map(node).collect();
    format!("{lines}{} steps\n", worst_case.steps_max)
}

#[test]
fn alternative_routes_arrive_once_at_a_common_node() {
    let diamond = nodes(["a", "b", "c", "d"])
        .edge(START, "a")
        .route("a", ["b", "c"], |_: &Value| "b")
        .edge("b", "d")
        .edge("c", "d");
    insta::assert_snapshot!(worst_case(diamond), @r"
    a: 1, the start leads to it once
    b: 1, after `a` (1)
    c: 1, after `a` (1)
    d: 1, after `a` (1)
    3 steps
    ");
}

#[test]
fn parallel_edges_arrive_once_each_unless_joined() {
    let both = || nodes(["a", "b", "c", "d"]).edge(START, "a").edge("a", "b").edge("a", "c");
    insta::assert_snapshot!(worst_case(both().edge("b", "d").edge("c", "d")), @r"
    a: 1, the start leads to it once
    b: 1, after `a` (1)
    c: 1, after `a` (1)
    d: 2, after `b` (1), `c` (1)
    4 steps
    ");
    insta::assert_snapshot!(worst_case(both().edge(["b", "c"], "d")), @r"
    a: 1, the start leads to it once
    b: 1, after `a` (1)
    c: 1, after `a` (1)
    d: 1, after `b` (1)
    3 steps
    ");
}

#[test]
fn a_join_and_an_edge_from_the_same_node_are_two_arrivals() {
    let late = nodes(["a", "b", "c", "d"])
        .edge(START, "a")
        .edge("a", "d")
        .edge("a", "b")
        .edge("b", "c")
        .edge(["a", "c"], "d");
    insta::assert_snapshot!(worst_case(late), @r"
    a: 1, the start leads to it once
    b: 1, after `a` (1)
    c: 1, after `b` (1)
    d: 2, after `a` (1), `c` (1)
    5 steps
    ");
}

#[test]
fn a_visit_of_a_resetting_node_begins_a_round() {
    let team = graph()
        .node("code", Decided.with_policies(bounded(3, "lead", &[])))
        .node("test", Decided)
        .node("lead", Decided.with_policies(bounded(2, "help", &["code"])))
        .node("help", Decided.with_policies(bounded(4, "flush", &["lead", "code"])))
        .node("flush", Decided)
        .node("ship", Decided)
        .edge(START, "code")
        .edge("code", "test")
        .route("test", ["code", "ship"], |_: &Value| "ship")
        .edge("lead", "code")
        .edge("help", "code")
        .edge("flush", "fail");
    insta::assert_snapshot!(worst_case(team), @r"
    code: 45, 3 visits × 15 rounds: the first, and reset by `help` (4), `lead` (10)
    flush: 1, the run ends with it
    help: 4, 4 visits
    lead: 10, 2 visits × 5 rounds: the first, and reset by `help` (4)
    ship: 1, the start leads to it once
    test: 45, after `code` (45)
    105 steps
    ");
}

#[test]
fn a_limit_leads_to_its_target_once() {
    let exhausted = Some(Target::Node(name("flush")));
    let limited = graph()
        .node("work", Decided.with_policies(bounded(3, "flush", &[])))
        .node("flush", Decided.with_policies(bounded(1, "stop", &[])))
        .node("stop", Decided)
        .edge(START, "work")
        .route("work", ["work", "end"], |_: &Value| "end")
        .limits(Limits { exhausted, ..Limits::default() });
    insta::assert_snapshot!(worst_case(limited), @r"
    flush: 2, 1 visit, and 1 after a limit
    stop: 2, after the start (1), a limit (1)
    work: 3, 3 visits
    5 steps
    ");
}

#[test]
fn dispatched_tasks_are_counted_for_each_item() {
    let map = nodes(["plan", "write", "sum"])
        .edge(START, "plan")
        .route("plan", ["write"], |_: &Value| vec![Dispatch::new(name("write"), json!(1))])
        .edge(["write"], "sum");
    insta::assert_snapshot!(worst_case(map), @r"
    plan: 1, the start leads to it once
    sum: 1, after `write` (1)
    write: 1 × items, after `plan` (1)
    3 steps
    ");
}

#[test]
fn numbers_beyond_counting_stay_at_the_largest() {
    let vast = |resets| bounded(u32::MAX, "stop", resets);
    let graph = graph()
        .node("a", Decided.with_policies(vast(&["b"])))
        .node("b", Decided.with_policies(vast(&["c"])))
        .node("c", Decided.with_policies(vast(&[])))
        .node("stop", Decided)
        .edge(START, "a")
        .route("a", ["a", "b"], |_: &Value| "a")
        .route("b", ["a", "b", "c"], |_: &Value| "a")
        .route("c", ["a", "b", "c"], |_: &Value| "a");
    let worst_case = WorstCase::of(&graph.compile().unwrap());
    assert_eq!(
        (worst_case.nodes[&name("c")].visits_max, worst_case.steps_max),
        (u64::MAX, u64::MAX)
    );
}
