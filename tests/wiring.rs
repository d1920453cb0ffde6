//! A graph that compiles cannot fail on its wiring: random small graphs are run by the real rules,
//! with dice for what nodes and routes do, and none of those that passed may ever read what is
//! unwritten, write one field twice in a step, or wait for what never comes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::RunStatus,
    compile::{CompiledGraph, compile},
    engine::machine::{Action, AttemptStats, FirstStep, Machine, RunSettings, Task, TaskEvent},
    event::{Status, Usage},
    graph::{
        Bounds, Catch, Command, Contract, Edge, ErrorKind, Failure, GraphBuilder, Node,
        NodeContext, NodeDescription, NodeError, NodeSpec, OnFinish, Policies, Read, Route,
        RouteChoice, RouteError, RouteTarget, RouteView, Spread, Target, Transition,
        UncheckedGraph,
    },
    id::{ChannelName, NodeName, RunId},
    state::{Channel, Reducer, Schema, Update},
};
use proptest::prelude::*;
use serde_json::json;

const FIELDS: [&str; 3] = ["a", "b", "c"];

/// A node of which only the contract matters.
struct Only(Contract);

#[async_trait]
impl Node for Only {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        unreachable!("nothing runs here")
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { contract: self.0.clone(), ..NodeDescription::default() }
    }
}

/// A route that a number in the state of the test decides: each field `visits` is even or odd.
#[derive(Debug)]
struct ByDice {
    dice: Arc<std::sync::Mutex<u64>>,
    ways: Vec<RouteTarget>,
    choices: Vec<Vec<Target>>,
}

impl Route for ByDice {
    fn targets(&self) -> &[RouteTarget] {
        &self.ways
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&[])
    }

    fn spread(&self) -> Spread {
        Spread::Several
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let choice = |to: &Vec<Target>| RouteChoice { to: to.clone(), ..RouteChoice::default() };
        Some(self.choices.iter().map(choice).collect())
    }

    fn decide(&self, _: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        let at = throw(&self.dice, self.choices.len());
        Ok(self.choices[at].iter().cloned().map(Transition::To).collect())
    }
}

/// A number below another one; the same ones for the same seed (`SplitMix64`).
fn throw(dice: &std::sync::Mutex<u64>, below: usize) -> usize {
    let mut state = dice.lock().unwrap();
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % below
}

#[derive(Clone, Debug)]
struct Recipe {
    nodes: Vec<NodeRecipe>,
    second_start: bool,
    limit: Option<(u64, u8)>,
}

#[derive(Clone, Debug)]
struct NodeRecipe {
    /// Sets of fields, a bit for each.
    reads: u8,
    writes: u8,
    clears: u8,
    bound: Option<(u32, u8)>,
    catch: Option<u8>,
    /// Its targets: alternatives of sets.
    to: Vec<Vec<u8>>,
    join: Vec<u8>,
    resets: Option<u8>,
    /// The node before it that leads to it, if none waits.
    parent: u8,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    // Few fields, few of each: else nearly every graph is refused for its data.
    let few = || prop_oneof![5 => Just(0u8), 2 => 1..8u8];
    let alternatives = prop_oneof![
        4 => prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2), 1..3),
        1 => prop::collection::vec(prop::collection::vec(any::<u8>(), 1..4), 1..3),
    ];
    let join = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 2..4)];
    let node = (
        few(),
        prop_oneof![2 => Just(0u8), 3 => 1..8u8],
        prop_oneof![6 => Just(0u8), 1 => 1..8u8],
        prop::option::weighted(0.4, (1..3u32, any::<u8>())),
        prop::option::weighted(0.3, any::<u8>()),
        alternatives,
        join,
        prop::option::weighted(0.1, any::<u8>()),
        any::<u8>(),
    )
        .prop_map(|(reads, writes, clears, bound, catch, to, join, resets, parent)| {
            NodeRecipe { reads, writes, clears, bound, catch, to, join, resets, parent }
        });
    let limit = prop::option::weighted(0.2, (1..8u64, any::<u8>()));
    (prop::collection::vec(node, 2..7), any::<bool>(), limit)
        .prop_map(|(nodes, second_start, limit)| Recipe { nodes, second_start, limit })
}

fn name(at: usize) -> NodeName {
    NodeName::parse(&format!("n{at}")).unwrap()
}

fn fields(set: u8) -> Vec<ChannelName> {
    let has = |at: &usize| set & (1 << at) != 0;
    (0..3).filter(has).map(|it| ChannelName::parse(FIELDS[it]).unwrap()).collect()
}

impl Recipe {
    fn graph(&self, dice: &Arc<std::sync::Mutex<u64>>) -> UncheckedGraph {
        let channel = |it: &&str| {
            Channel::new(ChannelName::parse(it).unwrap(), json!({}), Reducer::Replace).unwrap()
        };
        let schema = Schema::new(FIELDS.iter().map(channel)).unwrap();
        let UncheckedGraph { mut graph, diagnostics } =
            GraphBuilder::with_schema("random", schema).build();
        graph.entry.push(name(0));
        if self.second_start {
            graph.entry.push(name(1));
        }
        if let Some((steps, to)) = self.limit {
            graph.limits.steps = steps;
            graph.limits.exhausted = Some(self.target(to));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let reads = fields(node.reads).into_iter();
            let reads = reads.map(|channel| Read { channel, required: true }).collect();
            let contract = Contract { reads: Some(reads), writes: Some(fields(node.writes)) };
            let later = |it: u8| {
                let later = self.nodes.len() - at - 1;
                match usize::from(it) % (later + 2) {
                    it if it < later => Target::Node(name(at + 1 + it)),
                    it if it == later => Target::End,
                    _ => Target::Fail,
                }
            };
            let resets = node.resets.filter(|_| node.bound.is_some());
            let resets = resets.map(|it| usize::from(it) % self.nodes.len());
            let resets = resets.filter(|it| *it > at && self.nodes[*it].bound.is_some());
            let policies = Policies {
                bounds: Bounds {
                    max_visits: node.bound.map(|it| it.0),
                    exhausted: node.bound.map(|it| later(it.1)),
                    ..Bounds::default()
                },
                on_finish: OnFinish {
                    clears: fields(node.clears),
                    resets: resets.map(name).into_iter().collect(),
                    ..OnFinish::default()
                },
                catch: node
                    .catch
                    .map(|it| Catch { kind: None, to: later(it) })
                    .into_iter()
                    .collect(),
                ..Policies::default()
            };
            let spec =
                NodeSpec { node: Arc::new(Only(contract)), policies, when: None, span: None };
            graph.nodes.insert(name(at), spec);
            let to = |it: &u8| if node.bound.is_some() { self.target(*it) } else { later(*it) };
            let mut choices: Vec<Vec<Target>> =
                node.to.iter().map(|it| it.iter().map(to).collect()).collect();
            for (later, child) in self.nodes.iter().enumerate().skip(at + 1) {
                if child.join.len() < 2 && usize::from(child.parent) % later == at {
                    let span = usize::from(child.parent) % choices.len();
                    choices[span].push(Target::Node(name(later)));
                }
            }
            for to in &mut choices {
                to.sort();
                to.dedup();
            }
            if let [only] = choices.as_slice() {
                let edge = |to: &Target| Edge::Then { from: name(at), to: to.clone(), span: None };
                graph.edges.extend(only.iter().map(edge));
            } else {
                let all = choices.iter().flatten();
                let ways = all.map(|to| RouteTarget { to: to.clone(), label: None }).collect();
                let route = Arc::new(ByDice { dice: Arc::clone(dice), ways, choices });
                graph.edges.push(Edge::Route { from: name(at), route, span: None });
            }
            let mut join: Vec<NodeName> =
                node.join.iter().filter(|_| at > 1).map(|it| name(usize::from(*it) % at)).collect();
            join.sort();
            join.dedup();
            if join.len() > 1 {
                // No other node needs to lead to it.
                let count = 1 + usize::from(node.parent) % join.len();
                graph.edges.push(Edge::Join { from: join, to: name(at), count, span: None });
            }
        }
        UncheckedGraph { graph, diagnostics }
    }

    fn target(&self, seed: u8) -> Target {
        match usize::from(seed) % (self.nodes.len() + 2) {
            it if it < self.nodes.len() => Target::Node(name(it)),
            it if it == self.nodes.len() => Target::End,
            _ => Target::Fail,
        }
    }
}

/// Runs a graph once, and says what went wrong with its wiring.
fn run(graph: &CompiledGraph, dice: &std::sync::Mutex<u64>) -> Option<String> {
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let id = RunId::parse("r").unwrap();
    let FirstStep { mut machine, actions, .. } =
        Machine::start(graph.clone(), settings, id, Update::default()).unwrap();
    let mut open: VecDeque<Action> = actions.into();
    while let Some(action) = open.pop_front() {
        match action {
            Action::Run(task) => {
                let node = &graph.node(&task.node).unwrap().node;
                let unwritten = node
                    .describe()
                    .contract
                    .reads
                    .unwrap()
                    .into_iter()
                    .find(|it| task.state.iter().all(|(name, _)| name != it.channel.as_str()));
                if let Some(read) = unwritten {
                    return Some(format!("`{}` reads `{}`", task.node, read.channel));
                }
                open.extend(machine.apply(event(graph, &task, dice)));
            }
            Action::Stop(RunStatus { status: Status::Failed, reason }) => {
                let reason = reason.unwrap_or_default();
                let wiring = ["nothing is left to run", "two tasks of one step"];
                return wiring.iter().any(|it| reason.contains(it)).then_some(reason);
            }
            Action::Stop(_) => return None,
            Action::Record(_)
            | Action::Commit(_)
            | Action::EndStep(_)
            | Action::Emit { .. }
            | Action::PublishMessages(_)
            | Action::Sleep { .. } => (),
        }
    }
    None
}

fn event(graph: &CompiledGraph, task: &Task, dice: &std::sync::Mutex<u64>) -> TaskEvent {
    let attempt = AttemptStats {
        number: task.attempt,
        ms: 0,
        usage: Usage::default(),
        ended: jiff::Timestamp::UNIX_EPOCH,
    };
    let spec = graph.node(&task.node).unwrap();
    if !spec.policies.catch.is_empty() && throw(dice, 3) == 0 {
        let failure = Failure::new(ErrorKind::Other, "dice");
        return TaskEvent::Failed { task: task.id, failure, attempt };
    }
    let writes = spec.node.describe().contract.writes.unwrap().into_iter();
    let update = writes.fold(Update::default(), |it, channel| it.write(channel, 1));
    TaskEvent::Finished { task: task.id, command: update.into(), attempt }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn a_compiled_graph_never_fails_on_its_wiring(recipe in recipe(), seed in any::<u64>()) {
        let dice = Arc::new(std::sync::Mutex::new(seed));
        if let Ok(graph) = compile(recipe.graph(&dice))
            && !is_unchecked(&graph)
        {
            for _ in 0..40 {
                let wrong = run(&graph, &dice);
                prop_assert_eq!(wrong, None);
            }
        }
    }
}

/// Whether a warning says that a join was not checked.
fn is_unchecked(graph: &CompiledGraph) -> bool {
    graph.warnings().in_order().iter().any(|it| it.code == "GR136")
}

/// The generator makes graphs that are refused for each of the mistakes, and many that are not.
#[test]
fn the_random_graphs_are_of_all_kinds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..600 {
        let tree = recipe().new_tree(&mut runner).unwrap();
        let dice = Arc::new(std::sync::Mutex::new(1));
        let recipe = proptest::strategy::ValueTree::current(&tree);
        match compile(recipe.graph(&dice)) {
            Ok(graph) => {
                *found.entry("fine").or_default() += 1;
                *found.entry("unchecked").or_default() += usize::from(is_unchecked(&graph));
                let joins =
                    graph.definition().edges.iter().any(|it| matches!(it, Edge::Join { .. }));
                *found.entry("fine, with joins").or_default() += usize::from(joins);
                let is_partial = graph.has_partial_joins();
                *found.entry("fine, with partial joins").or_default() += usize::from(is_partial);
            }
            Err(diagnostics) => {
                for diagnostic in diagnostics.in_order() {
                    *found.entry(diagnostic.code).or_default() += 1;
                }
            }
        }
    }
    let fine = ["fine", "fine, with joins", "fine, with partial joins"];
    for kind in fine.into_iter().chain(["GR035", "GR036", "GR130", "GR131"]) {
        assert!(found.get(kind).is_some_and(|it| *it >= 5), "{kind}: {found:?}");
    }
    assert!(found["unchecked"] * 50 <= found["fine"], "{found:?}");
}
