//! Random graphs that compile, and the dice that decide what happens in them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use graphrun::{
    compile::{CompiledGraph, compile},
    graph::{
        Attempts, Backoff, Bounds, Catch, Defer, Dispatch, Edge, ErrorKind, Graph, GraphBuilder,
        IntoNode, NodeSpec, OnFinish, Policies, Route, RouteChoice, RouteError, RouteTarget,
        RouteView, Schedule, Spread, Target, Transition,
    },
    id::{ChannelName, NodeName},
    state::Schema,
};
use proptest::prelude::*;
use serde_json::Value;

use super::{Decided, used::absorb};

/// Numbers that look random, the same ones for the same seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dice(Arc<Mutex<Thrown>>);

#[derive(Debug, Default)]
struct Thrown {
    state: u64,
    /// Of a hundred attempts, how many fail.
    failing: u64,
    /// Of a hundred choices, how many avoid to end anything.
    stubborn: u64,
    /// Instead of a sequence that looks random: these choices, and then the first one each time.
    script: Option<Script>,
}

/// The choices of one step, to try all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    choices: Vec<usize>,
    /// The number of possibilities of each choice that was made.
    widths: Vec<usize>,
}

impl Script {
    /// Returns the script after this one, in the order of the last choice; none after the last.
    pub(crate) fn next(mut self) -> Option<Self> {
        self.choices.resize(self.widths.len(), 0);
        while let (Some(choice), Some(width)) = (self.choices.pop(), self.widths.pop()) {
            if choice + 1 < width {
                self.choices.push(choice + 1);
                self.widths.clear();
                return Some(self);
            }
        }
        None
    }
}

impl Dice {
    /// Begins another sequence, in another mood.
    pub(crate) fn shake(&self, seed: u64) {
        let mut thrown = self.0.lock().unwrap();
        thrown.state = seed;
        thrown.failing = [0, 0, 5, 30][usize::try_from(seed % 4).unwrap()];
        thrown.stubborn = [0, 60, 95, 100][usize::try_from(seed / 4 % 4).unwrap()];
    }

    /// Follows a script from now on.
    pub(crate) fn follow(&self, script: Script) {
        self.0.lock().unwrap().script = Some(Script { widths: Vec::new(), ..script });
    }

    /// Returns the script with the choices that were made.
    pub(crate) fn followed(&self) -> Script {
        self.0.lock().unwrap().script.take().unwrap_or_default()
    }

    /// Whether they follow a script.
    fn is_scripted(&self) -> bool {
        self.0.lock().unwrap().script.is_some()
    }

    pub(crate) fn below(&self, many: usize) -> usize {
        let mut thrown = self.0.lock().unwrap();
        if let Some(script) = &mut thrown.script {
            script.widths.push(many);
            return script.choices.get(script.widths.len() - 1).copied().unwrap_or(0);
        }
        // SplitMix64.
        thrown.state = thrown.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (thrown.state ^ (thrown.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % many
    }

    pub(crate) fn coin(&self) -> bool {
        self.below(2) == 1
    }

    pub(crate) fn fails(&self) -> bool {
        let failing = self.0.lock().unwrap().failing;
        (self.below(100) as u64) < failing
    }

    /// One of the ways.
    fn way<'a>(&self, ways: &'a [Target]) -> &'a Target {
        if self.is_scripted() {
            return &ways[self.below(ways.len())];
        }
        let stubborn = self.0.lock().unwrap().stubborn;
        let on: Vec<&Target> = ways.iter().filter(|it| it.node().is_some()).collect();
        if !on.is_empty() && (self.below(100) as u64) < stubborn {
            return on[self.below(on.len())];
        }
        &ways[self.below(ways.len())]
    }

    /// A route of which they decide.
    pub(crate) fn route(
        &self,
        from: NodeName,
        ways: impl IntoIterator<Item = Target>,
        spread: Spread,
    ) -> Edge {
        let ways = ways.into_iter().map(|to| RouteTarget { to, label: None }).collect();
        let route = Thrower { dice: self.clone(), ways, spread, choices: None };
        Edge::Route { from, route: Arc::new(route), span: None }
    }

    /// A route of which they decide, and which says what goes together.
    pub(crate) fn choosing(&self, from: NodeName, choices: Vec<RouteChoice>) -> Edge {
        let ways = choices.iter().flat_map(|it| it.to.clone());
        let ways = ways.map(|to| RouteTarget { to, label: None }).collect();
        let spread = if choices.iter().any(|it| it.is_dispatched) {
            Spread::Items
        } else if choices.iter().any(|it| it.to.len() > 1) {
            Spread::Several
        } else {
            Spread::One
        };
        let route = Thrower { dice: self.clone(), ways, spread, choices: Some(choices) };
        Edge::Route { from, route: Arc::new(route), span: None }
    }

    /// Some hops along the ways, dispatches among them.
    pub(crate) fn transitions(&self, ways: &[Target], many: usize) -> Vec<Transition> {
        if self.is_scripted() {
            return self.some_transitions(ways);
        }
        let transition = |_| match self.way(ways) {
            Target::Node(node) if self.coin() => {
                Transition::Dispatch(Dispatch::new(node.clone(), Value::Null))
            }
            target => Transition::To(target.clone()),
        };
        (0..=self.below(many)).map(transition).collect()
    }
}

impl Dice {
    /// For each of the ways nothing, an edge, one item or two.
    fn some_transitions(&self, ways: &[Target]) -> Vec<Transition> {
        let ways: BTreeSet<&Target> = ways.iter().collect();
        let mut transitions = Vec::new();
        for to in ways {
            match (self.below(if to.node().is_some() { 4 } else { 2 }), to) {
                (0, _) => (),
                (items @ 2.., Target::Node(node)) => {
                    let sent = Transition::Dispatch(Dispatch::new(node.clone(), Value::Null));
                    transitions.extend(std::iter::repeat_n(sent, items - 1));
                }
                (_, to) => transitions.push(Transition::To(to.clone())),
            }
        }
        transitions
    }
}

/// A route of which dice decide.
#[derive(Debug)]
struct Thrower {
    dice: Dice,
    ways: Vec<RouteTarget>,
    spread: Spread,
    choices: Option<Vec<RouteChoice>>,
}

impl Route for Thrower {
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
        self.choices.clone()
    }

    fn decide(&self, _: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        if let Some(choices) = &self.choices {
            let RouteChoice { to, is_dispatched, .. } = &choices[self.dice.below(choices.len())];
            let most = if self.dice.is_scripted() { 2 } else { 3 };
            let items = if *is_dispatched { 1 + self.dice.below(most) } else { 1 };
            let transition = |to: &Target| match to {
                Target::Node(node) if *is_dispatched => {
                    Transition::Dispatch(Dispatch::new(node.clone(), Value::Null))
                }
                target => Transition::To(target.clone()),
            };
            return Ok((0..items).flat_map(|_| to.iter().map(transition)).collect());
        }
        let ways: Vec<Target> = self.ways.iter().map(|it| it.to.clone()).collect();
        Ok(match self.spread {
            Spread::One => vec![Transition::To(self.dice.way(&ways).clone())],
            Spread::Several => {
                let possible = if self.dice.is_scripted() { 2 } else { 4 };
                let is_taken = |_: &Target| self.dice.below(possible) > 0;
                ways.into_iter().filter(is_taken).map(Transition::To).collect()
            }
            Spread::Items => self.dice.transitions(&ways, 4),
        })
    }
}

/// A graph, before its nodes have names.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    nodes: Vec<NodeRecipe>,
    /// Whether bounds are reset by later nodes rather than by earlier ones.
    resets_backwards: bool,
    limit: Option<(u64, u8)>,
    second_entry: Option<u8>,
    /// A graph that one of the nodes uses.
    used: Option<(u8, Box<Self>)>,
}

#[derive(Clone, Debug)]
struct NodeRecipe {
    bound: Option<u32>,
    exhausted: u8,
    catches: Vec<u8>,
    resets: Vec<u8>,
    attempts: u32,
    edges: Vec<EdgeRecipe>,
    /// The node before it that leads to it, and how.
    parent: (u8, u8),
    join: Vec<u8>,
    /// Whether it lets others go first.
    defers: bool,
}

#[derive(Clone, Debug)]
enum EdgeRecipe {
    Then(u8),
    Route(Vec<u8>, Spread),
    /// One of several lists.
    Choice(Vec<Vec<u8>>),
    /// The next node for each item of a list, and these afterwards or if there is none.
    Map(Vec<u8>),
    May(Vec<u8>),
}

/// Graphs that compile, some of which use others.
pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
    let inner = part(5);
    let used = prop::option::weighted(0.3, (any::<u8>(), inner));
    let middle = (part(5), used.clone()).prop_map(using);
    let used = prop::option::weighted(0.3, (any::<u8>(), middle));
    (part(8), used)
        .prop_map(using)
        .prop_filter("it does not compile", |it| it.compile(&Dice::default()).is_some())
}

/// Small graphs that compile, without others in them: few enough runs to try all of them. They have no limits, which the
/// worst case does not include.
pub(crate) fn small_recipe() -> impl Strategy<Value = Recipe> {
    let compiles = |it: &Recipe| it.compile(&Dice::default()).is_some();
    let unlimited = part(6).prop_map(|it| Recipe { limit: None, ..it });
    unlimited.prop_filter("it does not compile", compiles)
}

fn using((recipe, used): (Recipe, Option<(u8, Recipe)>)) -> Recipe {
    Recipe { used: used.map(|(at, it)| (at, Box::new(it))), ..recipe }
}

fn part(nodes_max: usize) -> impl Strategy<Value = Recipe> + Clone {
    let some = |most| prop::collection::vec(any::<u8>(), 0..most);
    let ways = || prop::collection::vec(any::<u8>(), 1..4);
    let edge = prop_oneof![
        3 => any::<u8>().prop_map(EdgeRecipe::Then),
        4 => ways().prop_map(|it| EdgeRecipe::Route(it, Spread::One)),
        1 => ways().prop_map(|it| EdgeRecipe::Route(it, Spread::Several)),
        1 => ways().prop_map(|it| EdgeRecipe::Route(it, Spread::Items)),
        1 => prop::collection::vec(some(3), 1..4).prop_map(EdgeRecipe::Choice),
        4 => prop::collection::vec(any::<u8>(), 1..3).prop_map(EdgeRecipe::Map),
        1 => ways().prop_map(EdgeRecipe::May),
    ];
    let edges = prop_oneof![
        4 => prop::collection::vec(edge.clone(), 1),
        1 => prop::collection::vec(edge, 0..3),
    ];
    let join = prop_oneof![3 => Just(Vec::new()), 1 => some(4)];
    let bound = prop::option::weighted(0.6, 1..4u32);
    let catches = prop_oneof![2 => Just(Vec::new()), 1 => some(3)];
    let defers = prop::bool::weighted(0.1);
    let joins = (join, defers);
    let node = (bound, any::<u8>(), catches, some(3), 1..3u32, edges, any::<(u8, u8)>(), joins)
        .prop_map(|(bound, exhausted, catches, resets, attempts, edges, parent, joins)| {
            let (join, defers) = joins;
            NodeRecipe { bound, exhausted, catches, resets, attempts, edges, parent, join, defers }
        });
    let limit = prop::option::weighted(0.3, (1..30u64, any::<u8>()));
    let second = prop::option::weighted(0.2, any::<u8>());
    (prop::collection::vec(node, 1..nodes_max), any::<bool>(), limit, second).prop_map(
        |(nodes, resets_backwards, limit, second_entry)| Recipe {
            nodes,
            resets_backwards,
            limit,
            second_entry,
            used: None,
        },
    )
}

impl Recipe {
    pub(crate) fn compiled(&self, dice: &Dice) -> CompiledGraph {
        self.compile(dice).expect("recipes that do not compile are filtered out")
    }

    fn compile(&self, dice: &Dice) -> Option<CompiledGraph> {
        let mut graph = self.graph(dice);
        graph.limits.steps = u64::MAX;
        if let Some((steps, exhausted)) = self.limit {
            graph.limits.steps = steps;
            graph.limits.exhausted = Some(self.anywhere(exhausted));
        }
        compile(graph.into()).ok()
    }

    fn graph(&self, dice: &Dice) -> Graph {
        let mut graph = GraphBuilder::with_schema("random", Schema::default()).build().graph;
        graph.entry.push(name(0));
        graph.entry.extend(self.second_entry.map(|it| name(usize::from(it) % self.nodes.len())));
        for (at, node) in self.nodes.iter().enumerate() {
            graph.nodes.insert(name(at), self.spec(at, node));
            self.lead_from(at, node, &mut graph, dice);
            Self::lead_to(at, node, &mut graph);
        }
        if let Some((user, used)) = &self.used {
            let user = name(usize::from(*user) % self.nodes.len());
            absorb(&mut graph, &user, used.graph(dice));
        }
        graph
    }

    fn spec(&self, at: usize, node: &NodeRecipe) -> NodeSpec {
        let kinds = [Some(ErrorKind::Timeout), None];
        let catch = node.catches.iter().zip(kinds);
        let resets = node.resets.iter().filter_map(|reset| {
            let reset = usize::from(*reset) % self.nodes.len();
            let is_fit = if self.resets_backwards { reset < at } else { reset > at };
            (is_fit && node.bound.is_some() && self.nodes[reset].bound.is_some())
                .then(|| name(reset))
        });
        let policies = Policies {
            attempts: Attempts {
                retry: Backoff { attempts_max: Some(node.attempts), ..Backoff::default() },
                ..Attempts::default()
            },
            bounds: Bounds {
                max_visits: node.bound,
                exhausted: node.bound.map(|_| self.onwards(at, node.exhausted)),
                ..Bounds::default()
            },
            on_finish: OnFinish { resets: resets.collect(), ..OnFinish::default() },
            schedule: Schedule {
                defer: node.defers.then_some(Defer::Siblings),
                ..Schedule::default()
            },
            catch: catch.map(|(to, kind)| Catch { kind, to: self.target(at, *to) }).collect(),
            ..Policies::default()
        };
        Decided.with_policies(policies)
    }

    fn lead_from(&self, at: usize, node: &NodeRecipe, graph: &mut Graph, dice: &Dice) {
        let from = name(at);
        for edge in &node.edges {
            let edge = match edge {
                EdgeRecipe::Then(to) => {
                    Edge::Then { from: from.clone(), to: self.target(at, *to), span: None }
                }
                EdgeRecipe::Route(to, spread) => {
                    let ways = to.iter().map(|it| self.target(at, *it));
                    dice.route(from.clone(), ways, *spread)
                }
                EdgeRecipe::Choice(lists) => {
                    let targets =
                        |targets: &Vec<u8>| targets.iter().map(|it| self.target(at, *it)).collect();
                    let choice = |it| RouteChoice { to: targets(it), ..RouteChoice::default() };
                    dice.choosing(from.clone(), lists.iter().map(choice).collect())
                }
                EdgeRecipe::Map(after) => self.map(at, after, graph, dice),
                EdgeRecipe::May(to) => {
                    let to: Vec<Target> = to.iter().map(|it| self.target(at, *it)).collect();
                    let by_name =
                        Edge::May { from: from.clone(), to: to.clone(), is_dispatched: false };
                    graph.edges.push(by_name);
                    Edge::May { from: from.clone(), to, is_dispatched: true }
                }
            };
            graph.edges.push(edge);
        }
    }

    /// The next node for each item, and what follows all of them.
    fn map(&self, at: usize, after: &[u8], graph: &mut Graph, dice: &Dice) -> Edge {
        let item = (at + 1) % self.nodes.len();
        let after = after.iter().map(|it| self.onwards(at.max(item), *it));
        let after: Vec<Target> = after.collect();
        let then = |to: &Target| Edge::Then { from: name(item), to: to.clone(), span: None };
        graph.edges.extend(after.iter().map(then));
        let to = vec![Target::Node(name(item))];
        let each = RouteChoice { to, is_dispatched: true, ..RouteChoice::default() };
        let none = RouteChoice { to: after, ..RouteChoice::default() };
        dice.choosing(name(at), vec![each, none])
    }

    /// Makes sure that a node is reached, by an existing edge of its parent or by a new edge.
    fn lead_to(at: usize, node: &NodeRecipe, graph: &mut Graph) {
        if at == 0 {
            return;
        }
        let join: BTreeSet<usize> = node.join.iter().map(|it| usize::from(*it) % at).collect();
        let (parent, how) = node.parent;
        let from = name(usize::from(parent) % at);
        if !join.is_empty() {
            let from: Vec<NodeName> = join.into_iter().map(name).collect();
            let count = 1 + usize::from(how) % from.len();
            graph.edges.push(Edge::Join { from, to: name(at), count, span: None });
        } else if let (0..=2, Some(spec)) = (how % 8, graph.nodes.get_mut(&from)) {
            let to = Target::Node(name(at));
            if spec.policies.bounds.max_visits.is_some() {
                spec.policies.bounds.exhausted = Some(to);
            } else {
                spec.policies.catch = vec![Catch { kind: None, to }];
            }
        } else {
            let to = Target::Node(name(at));
            graph.edges.push(Edge::Then { from, to, span: None });
        }
    }

    /// Where a node may lead: anywhere if it is bounded, else to later ones only.
    fn target(&self, at: usize, seed: u8) -> Target {
        if self.nodes[at].bound.is_some() { self.anywhere(seed) } else { self.onwards(at, seed) }
    }

    fn anywhere(&self, seed: u8) -> Target {
        match usize::from(seed) % (self.nodes.len() + 1) {
            it if it < self.nodes.len() => Target::Node(name(it)),
            _ => Target::End,
        }
    }

    fn onwards(&self, at: usize, seed: u8) -> Target {
        let later = self.nodes.len() - at - 1;
        match usize::from(seed) % (later + 2) {
            it if it < later => Target::Node(name(at + 1 + it)),
            it if it == later => Target::End,
            _ => Target::Fail,
        }
    }
}

fn name(at: usize) -> NodeName {
    NodeName::parse(&format!("n{at}")).unwrap()
}

/// A router to one of several loops, which may lead back to it.
#[derive(Clone, Debug)]
pub(crate) struct LoopsRecipe {
    /// The bound of the router.
    rounds: u32,
    /// Whether the router resets the bounds of the loops.
    resets: bool,
    loops: Vec<LoopRecipe>,
}

#[derive(Clone, Copy, Debug)]
struct LoopRecipe {
    bound: u32,
    /// Whether it is a loop of two nodes.
    has_check: bool,
    /// Whether it leads back to the router.
    leads_back: bool,
    /// Whether another node runs beside it.
    is_watched: bool,
}

/// Routers to loops that compile.
pub(crate) fn loops_recipe() -> impl Strategy<Value = LoopsRecipe> {
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    let each = (1..5u32, flags).prop_map(|(bound, (has_check, leads_back, is_watched))| {
        LoopRecipe { bound, has_check, leads_back, is_watched }
    });
    (1..4u32, any::<bool>(), prop::collection::vec(each, 2..4))
        .prop_map(|(rounds, resets, loops)| LoopsRecipe { rounds, resets, loops })
        .prop_filter("it does not compile", |it| it.compile(&Dice::default()).is_some())
}

impl LoopsRecipe {
    pub(crate) fn compiled(&self, dice: &Dice) -> CompiledGraph {
        self.compile(dice).expect("recipes that do not compile are filtered out")
    }

    fn compile(&self, dice: &Dice) -> Option<CompiledGraph> {
        let named = |kind: &str, at: usize| NodeName::parse(&format!("{kind}{at}")).unwrap();
        let mut graph = GraphBuilder::with_schema("loops", Schema::default()).build().graph;
        graph.limits.steps = u64::MAX;
        let mut add = |name: NodeName, bounds: Bounds, resets: Vec<NodeName>| {
            let on_finish = OnFinish { resets, ..OnFinish::default() };
            let policies = Policies { bounds, on_finish, ..Policies::default() };
            graph.nodes.insert(name, Decided.with_policies(policies));
        };
        let bounded = |most: u32, exhausted: &Target| Bounds {
            max_visits: Some(most),
            exhausted: Some(exhausted.clone()),
            ..Bounds::default()
        };
        let heads = (0..self.loops.len()).map(|it| named("head", it));
        let router = name(0);
        let last = Target::Node(name(1));
        let resets = if self.resets { heads.clone().collect() } else { Vec::new() };
        add(router.clone(), bounded(self.rounds, &last), resets);
        add(name(1), Bounds::default(), Vec::new());
        let mut edges = vec![
            dice.route(router.clone(), heads.map(Target::Node), Spread::One),
            Edge::Then { from: name(1), to: Target::End, span: None },
        ];
        for (at, it) in self.loops.iter().enumerate() {
            let head = named("head", at);
            let check = named("check", at);
            let out = if it.leads_back { Target::Node(router.clone()) } else { last.clone() };
            add(head.clone(), bounded(it.bound, &out), Vec::new());
            let ways = [Target::Node(head.clone()), out];
            if it.has_check {
                add(check.clone(), Bounds::default(), Vec::new());
                let to = Target::Node(check.clone());
                edges.push(Edge::Then { from: head.clone(), to, span: None });
                edges.push(dice.route(check, ways, Spread::One));
            } else {
                edges.push(dice.route(head.clone(), ways, Spread::One));
            }
            if it.is_watched {
                let watch = named("watch", at);
                add(watch.clone(), Bounds::default(), Vec::new());
                edges.push(Edge::Then { from: head, to: Target::Node(watch.clone()), span: None });
                edges.push(Edge::Then { from: watch, to: Target::End, span: None });
            }
        }
        graph.entry.push(router);
        graph.edges = edges;
        compile(graph.into()).ok()
    }
}
