//! The worst case beside the true one: every behaviour of the nodes of small random graphs is tried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use graphrun::{
    checkpoint::Position,
    compile::{CompiledGraph, WorstCase},
    engine::machine::{Action, FirstStep, Machine, RunSettings, Task, TaskEvent},
    graph::{Command, Edge, ErrorKind, Failure, Goto, Target},
    id::{NodeName, RunId},
    state::Update,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::{
    free_attempt,
    random::{Dice, LoopsRecipe, Recipe, Script, loops_recipe, small_recipe},
};
use crate::support::takes_all;

/// The most positions of a graph, and the most behaviours of one step. Larger graphs are left out.
const POSITIONS_MAX: usize = 3_000;
const BEHAVIOURS_MAX: usize = 2_000;

/// The most that runs from a position on take. Each number is the most of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Worst {
    steps: u64,
    visits: u64,
    of_nodes: BTreeMap<NodeName, u64>,
}

/// The search through all runs of a graph.
struct Search<'a> {
    graph: &'a CompiledGraph,
    dice: &'a Dice,
    known: HashMap<String, Worst>,
}

impl Worst {
    /// Takes the larger one of each number.
    fn or(&mut self, other: &Self) {
        self.steps = self.steps.max(other.steps);
        self.visits = self.visits.max(other.visits);
        for (node, visits) in &other.of_nodes {
            let most = self.of_nodes.entry(node.clone()).or_default();
            *most = (*most).max(*visits);
        }
    }

    /// Adds a step in which these nodes run.
    fn after(mut self, position: &Position) -> Self {
        let nodes: BTreeSet<&NodeName> = position.frontier.iter().map(|it| &it.node).collect();
        self.steps += 1;
        self.visits += nodes.len() as u64;
        for node in nodes {
            *self.of_nodes.entry(node.clone()).or_default() += 1;
        }
        self
    }
}

impl Search<'_> {
    /// Returns the worst of all runs; `None` if there are too many.
    fn all(&mut self) -> Option<Worst> {
        let graph = self.graph.clone();
        let limits = self.graph.definition().limits.clone();
        let id = RunId::parse("r").unwrap();
        let settings = RunSettings { limits, ..RunSettings::default() };
        let begun = Machine::start(graph, settings, id, Update::default()).unwrap();
        let FirstStep { machine, actions, .. } = begun;
        let tasks: Vec<Task> = actions.into_iter().filter_map(task).collect();
        self.from(&machine, &tasks)
    }

    /// Returns the worst of the runs from the start of a step on.
    fn from(&mut self, machine: &Machine, tasks: &[Task]) -> Option<Worst> {
        let position = machine.position();
        if tasks.is_empty() {
            return Some(Worst::default());
        }
        let key = key_of(self.graph, &position);
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        if self.known.len() >= POSITIONS_MAX {
            return None;
        }
        let mut worst = Worst::default();
        let mut script = Some(Script::default());
        let mut next: HashMap<String, (Machine, Vec<Task>)> = HashMap::new();
        for _ in 0..BEHAVIOURS_MAX {
            let Some(current) = script.take() else { break };
            self.dice.follow(current);
            let mut after = machine.clone();
            let mut open = Vec::new();
            for task in tasks {
                let actions = after.apply(outcome(self.graph, task, self.dice));
                open.extend(actions.into_iter().filter_map(self::task));
            }
            script = self.dice.followed().next();
            let key = key_of(self.graph, &after.position());
            next.entry(key).or_insert((after, open));
        }
        if script.is_some() {
            return None;
        }
        for (machine, tasks) in next.into_values() {
            worst.or(&self.from(&machine, &tasks)?);
        }
        let worst = worst.after(&position);
        self.known.insert(key, worst.clone());
        Some(worst)
    }
}

/// The part of a position that decides how a run continues.
fn key_of(graph: &CompiledGraph, position: &Position) -> String {
    let Position { step, frontier, joins, rounds, deferred, visits, failure, used, .. } = position;
    let frontier: Vec<(&NodeName, bool)> =
        frontier.iter().map(|it| (&it.node, it.is_dispatched())).collect();
    let deferred: Vec<&NodeName> = deferred.keys().collect();
    let is_limited = used.limit.is_some();
    // Without a limit of steps, their number decides nothing.
    let step = graph.definition().limits.exhausted.as_ref().map(|_| step);
    format!(
        "{step:?} {frontier:?} {joins:?} {rounds:?} {deferred:?} {visits:?} {failure:?} {is_limited}"
    )
}

fn task(action: Action) -> Option<Task> {
    match action {
        Action::Run(task) => Some(*task),
        _ => None,
    }
}

/// One of the outcomes that matter: a failure that is caught, or a result with one of the choices of the node.
fn outcome(graph: &CompiledGraph, task: &Task, dice: &Dice) -> TaskEvent {
    let attempt = free_attempt(task);
    let catches = &graph.node(&task.node).unwrap().policies.catch;
    let kinds: Vec<ErrorKind> =
        catches.iter().map(|it| it.kind.unwrap_or(ErrorKind::Other)).collect();
    if let Some(kind) = dice.below(1 + kinds.len()).checked_sub(1) {
        let failure = Failure { transient: false, ..Failure::new(kinds[kind], "no luck") };
        return TaskEvent::Failed { task: task.id, failure, attempt };
    }
    let may = graph.leaving(&task.node).filter_map(|edge| match edge {
        Edge::May { to, .. } => Some(to.clone()),
        _ => None,
    });
    let may: Vec<Target> = may.flatten().collect();
    let goto = match if may.is_empty() { 0 } else { dice.below(3) } {
        1 => Goto::Instead(dice.transitions(&may, 3)),
        2 => Goto::Also(dice.transitions(&may, 3)),
        _ => Goto::Edges,
    };
    let command = Command { update: Update::default(), goto };
    TaskEvent::Finished { task: task.id, command, attempt }
}

/// The sum of ratios of bounds to true numbers.
#[derive(Debug, Default)]
pub(super) struct Ratio {
    sum: f64,
    pub(super) count: u32,
    worst: f64,
}

impl Ratio {
    #[expect(clippy::cast_precision_loss, reason = "the numbers of small graphs are small")]
    pub(super) fn add(&mut self, bound: u64, truth: u64) {
        let ratio = bound as f64 / truth as f64;
        self.sum += ratio;
        self.count += 1;
        self.worst = self.worst.max(ratio);
    }

    pub(super) fn average(&self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

/// How near the bounds of several graphs are to the true numbers.
#[derive(Debug, Default)]
struct Nearness {
    steps: Ratio,
    visits: Ratio,
    nodes: Ratio,
    left_out: u32,
}

impl Nearness {
    /// Compares the bounds of a graph with the worst of all its runs, if these are few enough. No bound is below it.
    fn compare(&mut self, graph: &CompiledGraph, dice: &Dice, recipe: &dyn fmt::Debug) {
        let mut search = Search { graph, dice, known: HashMap::new() };
        let Some(worst) = search.all() else {
            self.left_out += 1;
            dice.followed();
            return;
        };
        let worst_case = WorstCase::of(graph);
        let most = worst_case.most(|_, it| Some(it.visits_max));
        let shown = || format!("{worst:?}\n{worst_case:#?}\n{recipe:#?}");
        assert!(worst_case.steps_max >= worst.steps, "{}", shown());
        assert!(most >= worst.visits, "{}", shown());
        self.steps.add(worst_case.steps_max, worst.steps);
        self.visits.add(most, worst.visits);
        for (node, bound) in &worst_case.nodes {
            let truth = worst.of_nodes.get(node).copied().unwrap_or(0);
            assert!(bound.visits_max >= truth, "{node}: {}", shown());
            if truth > 0 {
                self.nodes.add(bound.visits_max, truth);
            }
        }
    }

    /// Returns the average of the steps, of all visits, and of the visits of single nodes.
    fn averages(&self) -> [f64; 3] {
        println!("{self:?}");
        let small = self.steps.count;
        assert!(small * 2 >= graphs(), "only {small} graphs were small enough");
        [&self.steps, &self.visits, &self.nodes].map(Ratio::average)
    }
}

/// The number of graphs of a fixed sequence, fewer in the short form of a test.
fn graphs() -> u32 {
    if takes_all() { 400 } else { 120 }
}

/// Compares the bounds of a fixed sequence of graphs with the truth.
fn nearness_of<R: fmt::Debug>(
    recipes: impl Strategy<Value = R>,
    compiled: impl Fn(&R, &Dice) -> CompiledGraph,
) -> Nearness {
    let mut runner = TestRunner::deterministic();
    let dice = Dice::default();
    let mut nearness = Nearness::default();
    for _ in 0..graphs() {
        let recipe = recipes.new_tree(&mut runner).unwrap().current();
        nearness.compare(&compiled(&recipe, &dice), &dice, &recipe);
    }
    nearness
}

/// The bounds of a fixed sequence of graphs are never below the true numbers, and on average within 1.3 of them.
#[test]
fn bounds_are_near_the_true_worst_case() {
    for average in nearness_of(small_recipe(), Recipe::compiled).averages() {
        assert!(average <= 1.3, "{average} on average");
    }
}

/// Of several loops behind a router, the worst case has the longest one, and not all of them.
#[test]
fn loops_that_exclude_each_other_are_not_added_up() {
    for average in nearness_of(loops_recipe(), LoopsRecipe::compiled).averages() {
        assert!(average <= 1.15, "{average} on average");
    }
}
