//! Tries everything that nodes may do, as far as it decides where a run goes.
//!
//! The rules of a run are pure, so a run can be cloned at every step and sent each way. States
//! that differ in nothing that decides are one, so that loops end; the search is breadth first,
//! so that the first way found to a place is a shortest one.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use serde_json::json;

use super::{
    Suite,
    coverage::used_up,
    outcomes::{Outcome, Outcomes},
};
use crate::{
    checkpoint::{Activation, Checkpoint, Outcome as Recorded, Position, TaskRecord},
    compile::CompiledGraph,
    engine::{
        superstep::{Action, Attempt, Event, Machine, Task},
        use_up,
    },
    event::{Spent, Status},
    graph::{Edge, Graph, Hop, Input, Limits, Target, Touches, Via},
    id::{ChannelName, NodeName, RunId},
    workflow::{
        NodeKind, Workflow,
        case_file::{Computed, computed, sights},
    },
};

/// The id of every run.
const RUN: &str = "explored";

/// What was found by trying everything.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// How many different states were looked at.
    pub states: usize,
    /// Whether these are all; if not, there were more than were asked for.
    pub is_whole: bool,
    /// The runs that fail although no route asks for it, each in a shortest way.
    pub stuck: Vec<Stuck>,
    /// The nodes that no outcome leads to; told only if all states were looked at.
    pub unreached: Vec<NodeName>,
    /// What could not be tried, in words.
    pub gaps: Vec<String>,
}

/// A run that fails although no route asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Why it fails.
    pub reason: String,
    /// What the nodes of each step did, where they had a choice.
    pub way: Vec<Vec<(NodeName, String)>>,
}

/// A state of a run before a step, and how it was come to.
#[derive(Debug)]
struct Waypoint {
    before: Option<usize>,
    step: Vec<(NodeName, String)>,
}

/// A run that stands before a step.
#[derive(Debug)]
struct Open {
    machine: Machine,
    tasks: Vec<Task>,
    at: usize,
}

#[derive(Debug)]
struct Search<'a> {
    graph: &'a CompiledGraph,
    outcomes: Outcomes<'a>,
    relevant: Relevant,
    limits: Limits,
    run: RunId,
    seen: HashSet<blake3::Hash>,
    waypoints: Vec<Waypoint>,
    open: VecDeque<Open>,
    ran: BTreeSet<NodeName>,
    reasons: BTreeSet<String>,
    explored: Explored,
    states_max: usize,
}

/// What of a state decides where a run goes.
#[derive(Debug)]
struct Relevant {
    channels: BTreeSet<ChannelName>,
    visits: BTreeSet<NodeName>,
}

impl Suite {
    /// Tries every outcome of every node, see [`explore`].
    pub fn explore(&self, states_max: usize) -> Explored {
        explore(&self.definition, &self.compiled(), states_max)
    }
}

/// Tries every outcome of every node of a workflow, in every order that its bounds allow.
///
/// Limits of the run are lifted; that one of them is reached is tried after every step instead,
/// where the workflow says what happens then.
pub fn explore(definition: &Workflow, graph: &CompiledGraph, states_max: usize) -> Explored {
    let limits = Limits { exhausted: graph.graph().limits.exhausted.clone(), ..unlimited() };
    let mut search = Search {
        graph,
        outcomes: Outcomes::new(definition, graph),
        relevant: Relevant::of(definition, graph.graph()),
        limits,
        run: RunId::parse(RUN).expect("it is a word"),
        seen: HashSet::new(),
        waypoints: Vec::new(),
        open: VecDeque::new(),
        ran: BTreeSet::new(),
        reasons: BTreeSet::new(),
        explored: Explored { is_whole: true, ..Explored::default() },
        states_max,
    };
    search.start();
    while let Some(open) = search.open.pop_front() {
        search.step(&open);
    }
    search.finish()
}

fn unlimited() -> Limits {
    Limits { steps: u64::MAX, tokens: None, usd: None, time: None, ..Limits::default() }
}

impl Search<'_> {
    fn start(&mut self) {
        for (label, input) in self.outcomes.inputs() {
            let started =
                Machine::start(self.graph.clone(), self.limits.clone(), self.run.clone(), &input);
            let Ok((machine, commit, actions)) = started else {
                self.explored.gaps.push("no input was found that fits".to_owned());
                continue;
            };
            let step = if label.is_empty() { Vec::new() } else { vec![(input_name(), label)] };
            self.arrive(machine, &commit.position, actions, None, step);
        }
    }

    /// Sends a run every way that its step can go.
    fn step(&mut self, open: &Open) {
        let mut choices: Vec<Vec<Outcome>> = Vec::new();
        for task in &open.tasks {
            self.ran.insert(task.node.clone());
            choices.push(self.outcomes.of(&self.run, task));
        }
        // Which outcome each task has, counted like the digits of a number.
        let mut chosen = vec![0; choices.len()];
        if choices.iter().any(Vec::is_empty) {
            return;
        }
        loop {
            self.go(open, &choices, &chosen);
            let next = (0..chosen.len()).find(|&at| chosen[at] + 1 < choices[at].len());
            let (Some(at), true) = (next, self.explored.is_whole) else { return };
            chosen[at] += 1;
            chosen[..at].fill(0);
        }
    }

    fn go(&mut self, open: &Open, choices: &[Vec<Outcome>], chosen: &[usize]) {
        let mut machine = open.machine.clone();
        let before = machine.position().clone();
        let mut actions = Vec::new();
        let mut step = Vec::new();
        for (task, (outcomes, &at)) in open.tasks.iter().zip(choices.iter().zip(chosen)) {
            let Outcome { label, result, .. } = &outcomes[at];
            let attempt = Attempt {
                number: task.attempt,
                ms: 0,
                spent: Spent::default(),
                ended: jiff::Timestamp::UNIX_EPOCH,
            };
            let task_id = task.id;
            let event = match result.clone() {
                Ok(command) => Event::Finished { task: task_id, command, attempt },
                Err(failure) => Event::Failed { task: task_id, failure, attempt },
            };
            actions.extend(machine.apply(event));
            step.push((task.node.clone(), label.clone()));
        }
        self.note_accidents(open, choices, chosen, &actions, &step);
        self.arrive(machine, &before, actions, Some(open.at), step);
    }

    /// A node that failed though no failure was tried: it could not compute, its update was
    /// refused, or its route could not decide. That something catches it does not make it right.
    fn note_accidents(
        &mut self,
        open: &Open,
        choices: &[Vec<Outcome>],
        chosen: &[usize],
        actions: &[Action],
        step: &[(NodeName, String)],
    ) {
        for action in actions {
            let Action::Record(TaskRecord {
                task,
                node,
                outcome: Recorded::Caught { failure, .. },
                ..
            }) = action
            else {
                continue;
            };
            let Some(at) = open.tasks.iter().position(|it| it.id == *task) else { continue };
            if !choices[at][chosen[at]].is_expected {
                let reason = format!("`{node}` failed: {}", failure.message);
                self.stuck(reason, Some(open.at), step.to_vec());
            }
        }
    }

    /// Takes in where a step led: to the next one, or to the end of the run.
    fn arrive(
        &mut self,
        machine: Machine,
        before: &Position,
        actions: Vec<Action>,
        from: Option<usize>,
        step: Vec<(NodeName, String)>,
    ) {
        let (mut tasks, mut records, mut rest) = (Vec::new(), Vec::new(), None);
        for action in actions {
            match action {
                Action::Run(task) => tasks.push(*task),
                Action::Record(record) => records.push(record),
                Action::Rest { status, reason } => rest = Some((status, reason)),
                Action::Commit(_) | Action::Hear(_) | Action::Sleep { .. } => (),
            }
        }
        if let Some((status, reason)) = rest {
            let is_asked_for = asked_to_fail(self.graph.graph(), before, &records);
            if status != Status::Done && !is_asked_for {
                self.stuck(reason.unwrap_or_default(), from, step);
            }
            return;
        }
        let limited = self.at_limit(&machine, from.is_some());
        let entered = self.enter(machine, tasks, from, step);
        if let (Some(at), Some((machine, tasks))) = (entered, limited) {
            self.enter(machine, tasks, Some(at), vec![(limit_name(), String::new())]);
        }
    }

    /// Notes a state, if it is new.
    fn enter(
        &mut self,
        machine: Machine,
        tasks: Vec<Task>,
        before: Option<usize>,
        step: Vec<(NodeName, String)>,
    ) -> Option<usize> {
        if !self.seen.insert(self.relevant.key(&machine)) {
            return None;
        }
        if self.waypoints.len() >= self.states_max {
            self.explored.is_whole = false;
            return None;
        }
        let at = self.waypoints.len();
        self.waypoints.push(Waypoint { before, step });
        self.open.push_back(Open { machine, tasks, at });
        Some(at)
    }

    /// The run as it goes on if a limit is reached now, where the workflow says how.
    fn at_limit(&self, machine: &Machine, has_begun: bool) -> Option<(Machine, Vec<Task>)> {
        let Some(Target::Node(node)) = &self.limits.exhausted else { return None };
        let mut position = machine.position().clone();
        if !has_begun || position.limit.is_some() {
            return None;
        }
        let error = "a limit is reached".to_owned();
        for dropped in std::mem::take(&mut position.frontier) {
            if let Some(visits) = position.visits.get_mut(&dropped.node) {
                *visits = visits.saturating_sub(1);
            }
        }
        use_up(&self.limits, &mut position, error.clone());
        *position.visits.entry(node.clone()).or_default() += 1;
        let via = Via::Limit { error };
        position.frontier.push(Activation { node: node.clone(), input: Input::State, via });
        let state = machine.state().as_ref().clone();
        let checkpoint = Checkpoint { position, state };
        let restored = Machine::restore(
            self.graph.clone(),
            self.limits.clone(),
            self.run.clone(),
            checkpoint,
            Vec::new(),
        );
        let (machine, actions) = restored.ok()?;
        let tasks = actions.into_iter().filter_map(|it| match it {
            Action::Run(task) => Some(*task),
            _ => None,
        });
        let tasks: Vec<Task> = tasks.collect();
        (!tasks.is_empty()).then_some((machine, tasks))
    }

    /// Keeps the first, and so a shortest, way to each reason.
    fn stuck(&mut self, reason: String, from: Option<usize>, step: Vec<(NodeName, String)>) {
        if !self.reasons.insert(reason.clone()) {
            return;
        }
        let mut way = vec![step];
        let mut before = from;
        while let Some(waypoint) = before.and_then(|it| self.waypoints.get(it)) {
            if !waypoint.step.is_empty() {
                way.push(waypoint.step.clone());
            }
            before = waypoint.before;
        }
        way.reverse();
        self.explored.stuck.push(Stuck { reason, way });
    }

    fn finish(self) -> Explored {
        let mut explored = self.explored;
        explored.states = self.waypoints.len();
        explored.gaps.extend(self.outcomes.gaps);
        if explored.is_whole {
            let nodes = self.graph.graph().nodes.keys();
            explored.unreached = nodes.filter(|it| !self.ran.contains(*it)).cloned().collect();
        }
        explored
    }
}

impl Relevant {
    /// What conditions look at, and what is computed with.
    fn of(definition: &Workflow, graph: &Graph) -> Self {
        let mut channels: BTreeSet<ChannelName> =
            sights(definition, graph).into_iter().map(|it| it.channel).collect();
        let mut counted: BTreeSet<NodeName> = BTreeSet::new();
        for edge in &graph.edges {
            if let Edge::Route { route, .. } = edge {
                counted.extend(route.sights().into_iter().flat_map(|it| it.visits));
            }
        }
        let conditions = graph.nodes.values().filter_map(|it| it.when.as_ref()?.sights());
        counted.extend(conditions.flat_map(|it| it.visits));
        for Computed { from, .. } in computed(definition, graph) {
            channels.extend(from.fields.into_iter().map(|it| it.channel));
            counted.extend(from.visits);
        }
        for (name, spec) in &graph.nodes {
            // What is computed is noted above; what is shown to people does not decide, nor does what
            // a route reads twice.
            let is_known = matches!(
                definition.nodes.get(name).map(|it| &it.kind),
                Some(
                    NodeKind::Set(_)
                        | NodeKind::Enter(_)
                        | NodeKind::Leave(_)
                        | NodeKind::Ask(_)
                        | NodeKind::Map(_)
                )
            );
            if is_known || spec.node.touches() != Touches::Nothing {
                continue;
            }
            let all = || graph.schema.channels().iter().map(|it| it.name().clone()).collect();
            let read = spec.node.contract().reads;
            let read: Vec<ChannelName> =
                read.map_or_else(all, |it| it.into_iter().map(|it| it.channel).collect());
            channels.extend(read);
        }
        let bounded = |name: &NodeName| graph.nodes[name].policies.max_visits.is_some();
        let visits =
            graph.nodes.keys().filter(|it| bounded(it) || counted.contains(*it)).cloned().collect();
        Self { channels, visits }
    }

    /// The same for two runs that go on in the same way.
    fn key(&self, machine: &Machine) -> blake3::Hash {
        let position = machine.position();
        let frontier: Vec<_> = position.frontier.iter().map(|it| (&it.node, &it.input)).collect();
        let visits: BTreeMap<_, _> =
            position.visits.iter().filter(|(name, _)| self.visits.contains(*name)).collect();
        let channels: BTreeMap<_, _> = self
            .channels
            .iter()
            .filter_map(|it| Some((it, machine.state().get(it.as_str())?)))
            .collect();
        let deferred: Vec<_> = position.deferred.keys().collect();
        let key =
            json!(
                [frontier, position.joins, deferred, visits, channels, position.limit.is_some(),]
            );
        blake3::hash(key.to_string().as_bytes())
    }
}

/// Whether a route, a bound or a limit of the workflow leads to failure, rather than an accident.
fn asked_to_fail(graph: &Graph, before: &Position, records: &[TaskRecord]) -> bool {
    let fails = |it: &TaskRecord| match &it.outcome {
        Recorded::Finished { hops, .. }
        | Recorded::Skipped { hops, .. }
        | Recorded::Caught { hops, .. } => hops.contains(&Hop::To(Target::Fail)),
        Recorded::Failed { .. }
        | Recorded::Retrying { .. }
        | Recorded::CutOff
        | Recorded::Noted { .. }
        | Recorded::Asked { .. }
        | Recorded::Answered { .. } => false,
    };
    let records_of_step: Vec<&TaskRecord> = records.iter().collect();
    let used_up = used_up(graph, before, &records_of_step);
    records.iter().any(fails)
        || used_up.iter().any(|(_, target)| *target == Some(Target::Fail))
        || before.failure.is_some()
}

/// What stands for the input in a way.
fn input_name() -> NodeName {
    NodeName::parse("input").expect("it is a word")
}

/// What stands for a limit of the run in a way.
fn limit_name() -> NodeName {
    NodeName::parse("limit").expect("it is a word")
}
