//! A graph that compiles cannot fail on its wiring: random small graphs are run by the real rules,
//! with dice for what nodes and routes do, and none of those that passed may ever read what is
//! unwritten, run without the item that it takes, write one field twice in a step, or wait for what never comes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::RunStatus,
    compile::{CompiledGraph, compile},
    engine::machine::{Action, AttemptStats, FirstStep, Machine, RunSettings, Task, TaskEvent},
    event::{Status, Usage},
    graph::{
        Bounds, Catch, Command, Condition, Contract, Defer, Dispatch, Edge, ErrorKind, Failure,
        Goto, GraphBuilder, Input, IntoNode, ItemPolicy, Node, NodeContext, NodeDescription,
        NodeError, NodeSpec, OnFinish, Policies, Read, Route, RouteChoice, RouteError, RouteTarget,
        RouteView, Schedule, Spread, Target, Transition, UncheckedGraph,
    },
    id::{ChannelName, NodeName, RunId},
    state::{Channel, Reducer, Schema, Type, Update},
};
use proptest::prelude::*;
use serde_json::json;

const FIELDS: [&str; 3] = ["a", "b", "c"];

/// A list for the failures of items.
const FAILED: &str = "failed";

type Dice = std::sync::Mutex<u64>;

/// A node of which only the contract and its item matter.
struct Only {
    contract: Contract,
    takes_item: bool,
}

#[async_trait]
impl Node for Only {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        unreachable!("nothing runs here")
    }

    fn describe(&self) -> NodeDescription {
        let item = self.takes_item.then_some(Type::Any);
        NodeDescription { contract: self.contract.clone(), item, ..NodeDescription::default() }
    }
}

/// A condition that dice decide.
#[derive(Debug)]
struct Lucky(Arc<Dice>);

impl Condition for Lucky {
    fn text(&self) -> &'static str {
        "luck"
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&[])
    }

    fn holds(&self, _: &RouteView<'_>) -> Result<bool, RouteError> {
        Ok(throw(&self.0, 3) > 0)
    }
}

/// A route that dice decide.
#[derive(Debug)]
struct ByDice {
    dice: Arc<Dice>,
    ways: Vec<RouteTarget>,
    /// The choices, each with whether items are dispatched.
    choices: Vec<(Vec<Target>, bool)>,
    /// The targets that take an item.
    taking: Vec<Target>,
    /// Whether it declares its choices. Otherwise it may choose any of its targets, as its spread allows.
    is_exact: bool,
    spread: Spread,
}

impl Route for ByDice {
    fn targets(&self) -> &[RouteTarget] {
        &self.ways
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&[])
    }

    fn spread(&self) -> Spread {
        self.spread
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let choice = |(to, is_dispatched): &(Vec<Target>, bool)| RouteChoice {
            to: to.clone(),
            is_dispatched: *is_dispatched,
            ..RouteChoice::default()
        };
        self.is_exact.then(|| self.choices.iter().map(choice).collect())
    }

    fn decide(&self, _: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        if self.is_exact {
            let (to, is_dispatched) = &self.choices[throw(&self.dice, self.choices.len())];
            let transitions = to.iter().flat_map(|target| match is_dispatched {
                true => items(&self.dice, target, 1),
                false => vec![Transition::To(target.clone())],
            });
            return Ok(transitions.collect());
        }
        let (taking, ways): (Vec<&Target>, Vec<&Target>) =
            self.ways.iter().map(|it| &it.to).partition(|it| self.taking.contains(it));
        Ok(match self.spread {
            Spread::One => {
                let way = ways.get(throw(&self.dice, ways.len() + 1));
                way.map(|it| Transition::To((*it).clone())).into_iter().collect()
            }
            Spread::Several => some(&self.dice, &ways, false),
            Spread::Items => {
                let items = taking.iter().flat_map(|it| items(&self.dice, it, 0));
                some(&self.dice, &ways, true).into_iter().chain(items).collect()
            }
        })
    }
}

/// Some of these targets by their names, or also by items.
fn some(dice: &Dice, ways: &[&Target], may_dispatch: bool) -> Vec<Transition> {
    let taken = ways.iter().flat_map(|&target| match throw(dice, 3) {
        0 => Vec::new(),
        1 if may_dispatch && target.node().is_some() => items(dice, target, 0),
        _ => vec![Transition::To(target.clone())],
    });
    taken.collect()
}

/// A few items for a node, at least so many.
fn items(dice: &Dice, to: &Target, least: usize) -> Vec<Transition> {
    let Target::Node(node) = to else { return vec![Transition::To(to.clone())] };
    let item = Transition::Dispatch(Dispatch::new(node.clone(), json!(1)));
    vec![item; least + throw(dice, 3)]
}

/// A number below another one; the same ones for the same seed (`SplitMix64`).
fn throw(dice: &Dice, below: usize) -> usize {
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
    more: MoreRecipe,
}

/// The rarer properties of a node.
#[derive(Clone, Debug, Default)]
struct MoreRecipe {
    takes_item: bool,
    has_condition: bool,
    is_deferred: bool,
    /// Whether its items are those of a map, and whether their failures are collected.
    map: Option<bool>,
    may_clear: u8,
    /// The choices of its route of which items are dispatched, a bit for each.
    dispatched: u8,
    /// The spread of a route that does not declare its choices.
    guess: Option<u8>,
    /// The targets that the node itself may choose, and those to which it may dispatch.
    goto: Vec<u8>,
    dispatches: Vec<u8>,
}

fn more() -> impl Strategy<Value = MoreRecipe> {
    let rarely = || prop::bool::weighted(0.12);
    let sometimes =
        || prop_oneof![7 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 1..3)];
    (
        (
            prop::bool::weighted(0.25),
            rarely(),
            rarely(),
            prop::option::weighted(0.2, any::<bool>()),
        ),
        prop_oneof![12 => Just(0u8), 1 => 1..8u8],
        prop_oneof![3 => Just(0u8), 1 => any::<u8>()],
        prop::option::weighted(0.2, any::<u8>()),
        (sometimes(), sometimes()),
    )
        .prop_map(|(flags, may_clear, dispatched, guess, (goto, dispatches))| {
            let (takes_item, has_condition, is_deferred, map) = flags;
            MoreRecipe {
                takes_item,
                has_condition,
                is_deferred,
                map,
                may_clear,
                dispatched,
                guess,
                goto,
                dispatches,
            }
        })
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
        (any::<u8>(), prop_oneof![Just(MoreRecipe::default()).boxed(), more().boxed()]),
    )
        .prop_map(|(reads, writes, clears, bound, catch, to, join, resets, (parent, more))| {
            NodeRecipe { reads, writes, clears, bound, catch, to, join, resets, parent, more }
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
    fn graph(&self, dice: &Arc<Dice>) -> UncheckedGraph {
        let channel = |name: &&str| {
            Channel::new(ChannelName::parse(name).unwrap(), json!({}), Reducer::Replace).unwrap()
        };
        let list = json!({"type": "array", "items": {}});
        let failed = Channel::new(ChannelName::parse(FAILED).unwrap(), list, Reducer::Append);
        let schema = Schema::new(FIELDS.iter().map(channel).chain([failed.unwrap()])).unwrap();
        let UncheckedGraph { mut graph, unmade, diagnostics } =
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
            graph.nodes.insert(name(at), self.spec(at, node, dice));
            graph.edges.extend(self.edges(at, node, dice));
        }
        UncheckedGraph { graph, unmade, diagnostics }
    }

    fn spec(&self, at: usize, node: &NodeRecipe, dice: &Arc<Dice>) -> NodeSpec {
        let NodeRecipe { more, bound, .. } = node;
        let reads = fields(node.reads).into_iter();
        let reads = reads.map(|channel| Read { channel, required: true }).collect();
        let contract = Contract { reads: Some(reads), writes: Some(fields(node.writes)) };
        let resets = node.resets.filter(|_| bound.is_some());
        let resets = resets.map(|it| usize::from(it) % self.nodes.len());
        let resets = resets.filter(|it| *it > at && self.nodes[*it].bound.is_some());
        let failed =
            |is_collecting: bool| is_collecting.then(|| ChannelName::parse(FAILED).unwrap());
        let policies = Policies {
            bounds: Bounds {
                max_visits: bound.map(|it| it.0),
                exhausted: bound.map(|it| self.later(at, it.1)),
                ..Bounds::default()
            },
            on_finish: OnFinish {
                clears: fields(node.clears),
                may_clear: fields(more.may_clear),
                resets: resets.map(name).into_iter().collect(),
                ..OnFinish::default()
            },
            catch: node
                .catch
                .map(|it| Catch { kind: None, to: self.later(at, it) })
                .into_iter()
                .collect(),
            schedule: Schedule {
                defer: more.is_deferred.then_some(Defer::Siblings),
                items: more.map.map(|it| ItemPolicy { failed: failed(it), order: None }),
                ..Schedule::default()
            },
            ..Policies::default()
        };
        let only = Only { contract, takes_item: more.takes_item };
        let when = more.has_condition.then(|| Arc::new(Lucky(Arc::clone(dice))) as _);
        let mut spec = only.with_policies(policies);
        spec.when = when;
        spec
    }

    fn edges(&self, at: usize, node: &NodeRecipe, dice: &Arc<Dice>) -> Vec<Edge> {
        let more = &node.more;
        let to = |number: &u8| match node.bound {
            Some(_) => self.target(*number),
            None => self.later(at, *number),
        };
        let mut choices: Vec<Vec<Target>> =
            node.to.iter().map(|it| it.iter().map(to).collect()).collect();
        for (later, child) in self.nodes.iter().enumerate().skip(at + 1) {
            if child.join.len() < 2 && usize::from(child.parent) % later == at {
                let choice = usize::from(child.parent) % choices.len();
                choices[choice].push(Target::Node(name(later)));
            }
        }
        for to in &mut choices {
            to.sort();
            to.dedup();
        }
        let takes_item = |target: &Target| {
            let taking =
                |at: &usize| self.nodes[*at].more.takes_item && target.node() == Some(&name(*at));
            (0..self.nodes.len()).any(|at| taking(&at))
        };
        let is_dispatched = |at: usize, to: &[Target]| {
            more.dispatched & (1 << (at % 8)) != 0 || to.iter().any(takes_item)
        };
        let mut edges = Vec::new();
        match choices.as_slice() {
            [only] if !is_dispatched(0, only) && more.guess.is_none() => {
                let edge = |to: &Target| Edge::Then { from: name(at), to: to.clone(), span: None };
                edges.extend(only.iter().map(edge));
            }
            _ => {
                let all = choices.iter().flatten();
                let ways = all.map(|to| RouteTarget { to: to.clone(), label: None }).collect();
                let choices = choices.into_iter().enumerate();
                let choices = choices.map(|(at, to)| {
                    let is_dispatched = is_dispatched(at, &to);
                    (to, is_dispatched)
                });
                let choices: Vec<(Vec<Target>, bool)> = choices.collect();
                let spread = match more.guess.map(|it| it % 3) {
                    Some(0) => Spread::One,
                    Some(1) => Spread::Several,
                    None if choices.iter().all(|it| !it.1) => Spread::Several,
                    Some(_) | None => Spread::Items,
                };
                let taking = choices.iter().flat_map(|it| &it.0).filter(|it| takes_item(it));
                let taking = taking.cloned().collect();
                let is_exact = more.guess.is_none();
                let dice = Arc::clone(dice);
                let route = Arc::new(ByDice { dice, ways, choices, taking, is_exact, spread });
                edges.push(Edge::Route { from: name(at), route, span: None });
            }
        }
        for (to, is_dispatched) in [(&more.goto, false), (&more.dispatches, true)] {
            let to = to.iter().map(|it| self.later(at, *it));
            let to: Vec<Target> = to.filter(|it| !is_dispatched || it.node().is_some()).collect();
            if !to.is_empty() {
                edges.push(Edge::May { from: name(at), to, is_dispatched });
            }
        }
        let mut join: Vec<NodeName> =
            node.join.iter().filter(|_| at > 1).map(|it| name(usize::from(*it) % at)).collect();
        join.sort();
        join.dedup();
        if join.len() > 1 {
            // No other node needs to lead to it.
            let count = 1 + usize::from(node.parent) % join.len();
            edges.push(Edge::Join { from: join, to: name(at), count, span: None });
        }
        edges
    }

    /// A later node than this one, or an end.
    fn later(&self, at: usize, seed: u8) -> Target {
        let later = self.nodes.len() - at - 1;
        match usize::from(seed) % (later + 2) {
            it if it < later => Target::Node(name(at + 1 + it)),
            it if it == later => Target::End,
            _ => Target::Fail,
        }
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
fn run(graph: &CompiledGraph, dice: &Dice) -> Option<String> {
    let limits = graph.definition().limits.clone();
    let settings = RunSettings { limits, ..RunSettings::default() };
    let id = RunId::parse("r").unwrap();
    let FirstStep { mut machine, actions, .. } =
        Machine::start(graph.clone(), settings, id, Update::default()).unwrap();
    let mut open: VecDeque<Action> = actions.into();
    while let Some(action) = open.pop_front() {
        match action {
            Action::Run(task) => {
                let reads = graph.node(&task.node).unwrap().describe().contract.reads.as_ref();
                let unwritten = reads.unwrap().iter().find(|change| {
                    task.state.iter().all(|(name, _)| name != change.channel.as_str())
                });
                if let Some(read) = unwritten {
                    return Some(format!("`{}` reads `{}`", task.node, read.channel));
                }
                if graph.takes_item(&task.node) && task.input == Input::State {
                    return Some(format!("`{}` runs without an item", task.node));
                }
                open.extend(machine.apply(event(graph, &task, dice)));
            }
            Action::Stop(RunStatus { status: Status::Failed, reason }) => {
                let reason = reason.unwrap_or_default();
                let may_starve = reason.contains("nothing is left to run") && !guesses(graph);
                return (may_starve || reason.contains("two tasks of one step")).then_some(reason);
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

fn event(graph: &CompiledGraph, task: &Task, dice: &Dice) -> TaskEvent {
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
    let writes = spec.describe().contract.writes.iter().flatten().cloned();
    let mut update = writes.fold(Update::default(), |it, channel| it.write(channel, 1));
    if throw(dice, 2) == 0 {
        update.clears.clone_from(&spec.policies.on_finish.may_clear);
    }
    let goto = goto(graph, &task.node, dice);
    TaskEvent::Finished { task: task.id, command: Command { update, goto }, attempt }
}

/// A choice that the node declares.
fn goto(graph: &CompiledGraph, node: &NodeName, dice: &Dice) -> Goto {
    let mut chosen = Vec::new();
    let mut may_end = false;
    let mut may_choose = false;
    for edge in graph.leaving(node) {
        let Edge::May { to, is_dispatched, .. } = edge else { continue };
        may_choose = true;
        let to: Vec<&Target> = to.iter().collect();
        if *is_dispatched {
            let to = to.into_iter().filter(|it| it.node().is_some());
            chosen.extend(to.flat_map(|it| items(dice, it, 0)));
        } else {
            may_end |= to.contains(&&Target::End);
            chosen.extend(some(dice, &to, false));
        }
    }
    match if may_choose { throw(dice, 3) } else { 0 } {
        1 if may_end || !chosen.is_empty() => Goto::Instead(chosen),
        2 => Goto::Also(chosen),
        _ => Goto::Edges,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn a_compiled_graph_never_fails_on_its_wiring(recipe in recipe(), seed in any::<u64>()) {
        let dice = Arc::new(Dice::new(seed));
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

/// A route decides about an arrival, too, if it only dispatches items to the join. `n0` never arrives here.
#[test]
fn items_for_a_join_are_no_arrival() {
    let node = |to: &[&[u8]], join: &[u8]| NodeRecipe {
        reads: 0,
        writes: 0,
        clears: 0,
        bound: None,
        catch: None,
        to: to.iter().map(|it| it.to_vec()).collect(),
        join: join.to_vec(),
        resets: None,
        parent: 1,
        more: MoreRecipe::default(),
    };
    // `n0` sends items to `n2` and fails, or leads to `n1`. `n2` waits for both.
    let mut first = node(&[&[1, 3], &[0]], &[]);
    first.more.dispatched = 1;
    let nodes = vec![first, node(&[&[0]], &[]), node(&[&[0]], &[0, 1])];
    let recipe = Recipe { nodes, second_start: false, limit: None };
    let diagnostics = compile(recipe.graph(&Arc::new(Dice::new(0)))).unwrap_err().to_string();
    let expected = "GR131: `n2` may wait for `n0` forever";
    assert_eq!(diagnostics.lines().next(), Some(expected), "{diagnostics}");
}

/// Whether a warning says that a join was not checked.
fn is_unchecked(graph: &CompiledGraph) -> bool {
    graph.warnings().in_order().iter().any(|it| it.code == "GR136")
}

/// Whether code chooses among targets without a declaration of which it takes together. Such code counts as one that
/// lets no join wait forever.
fn guesses(graph: &CompiledGraph) -> bool {
    graph.definition().edges.iter().any(|edge| match edge {
        Edge::Route { route, .. } => route.choices().is_none(),
        Edge::May { .. } => true,
        Edge::Then { .. } | Edge::Join { .. } => false,
    })
}

/// What a graph has.
fn kinds(graph: &CompiledGraph) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    let mut add = |kind, has: bool| has.then(|| kinds.insert(kind));
    add("partial joins", graph.has_partial_joins());
    for edge in &graph.definition().edges {
        add("joins", matches!(edge, Edge::Join { .. }));
        let route = |has: fn(&dyn Route) -> bool| matches!(edge, Edge::Route { route, .. } if has(route.as_ref()));
        add("routes that guess", route(|it| it.choices().is_none()));
        add("names", matches!(edge, Edge::May { is_dispatched: false, .. }));
        add("items", matches!(edge, Edge::May { is_dispatched: true, .. }));
    }
    for (name, spec) in &graph.definition().nodes {
        let schedule = &spec.policies.schedule;
        add("taken items", graph.takes_item(name));
        add("maps", schedule.items.is_some());
        add("collecting maps", schedule.items.as_ref().is_some_and(|it| it.failed.is_some()));
        add("conditions", spec.when.is_some());
        add("deferred nodes", schedule.defer.is_some());
    }
    kinds
}

/// The generator makes graphs that are refused for each of the mistakes, and many that are not.
#[test]
fn the_random_graphs_are_of_all_kinds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..1_000 {
        let tree = recipe().new_tree(&mut runner).unwrap();
        let dice = Arc::new(Dice::new(1));
        let recipe = proptest::strategy::ValueTree::current(&tree);
        match compile(recipe.graph(&dice)) {
            Ok(graph) => {
                *found.entry("fine").or_default() += 1;
                *found.entry("unchecked").or_default() += usize::from(is_unchecked(&graph));
                for kind in kinds(&graph) {
                    *found.entry(kind).or_default() += 1;
                }
            }
            Err(diagnostics) => {
                for diagnostic in diagnostics.in_order() {
                    *found.entry(diagnostic.code).or_default() += 1;
                }
            }
        }
    }
    let fine =
        ["fine", "joins", "partial joins", "routes that guess", "names", "items", "taken items"];
    let fine = fine.into_iter().chain(["maps", "collecting maps", "conditions", "deferred nodes"]);
    for kind in fine.chain(["GR022", "GR035", "GR036", "GR130", "GR131"]) {
        assert!(found.get(kind).is_some_and(|it| *it >= 5), "{kind}: {found:?}");
    }
    assert!(found["unchecked"] * 50 <= found["fine"], "{found:?}");
}
