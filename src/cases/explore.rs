//! Tries everything that nodes may do, as far as it decides where a run goes.
//!
//! The rules of a run are pure, so a run can be cloned at every step and sent each way. States
//! that differ in nothing that decides are one, so that loops end; the search is breadth first,
//! so that the first way found to a place is a shortest one. Tasks that run side by side have many
//! outcomes together; where those are too many, each outcome is tried once before all of them are
//! combined, so that what comes later is looked at, too.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::{
    Suite,
    coverage::used_up,
    outcomes::{Outcome, Outcomes},
    relevant::Relevant,
};
use crate::{
    checkpoint::{Activation, Checkpoint, Outcome as Recorded, Position, TaskRecord},
    compile::CompiledGraph,
    engine::{
        superstep::{Action, Attempt, Event, Machine, Task},
        use_up,
    },
    event::{Spent, Status},
    graph::{Graph, Hop, Input, Limits, Target, Via},
    id::{NodeName, RunId},
    workflow::Workflow,
};

/// The id of every run.
const RUN: &str = "explored";
/// So many combined outcomes of the tasks of a step are tried at a time.
const TOGETHER_MAX: usize = 1_000;

/// How much is tried before the search is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The states that are looked at.
    pub states_max: usize,
    /// The time it takes; `None` if it may take any.
    pub time_max: Option<Duration>,
}

/// What was found by trying everything.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// How many different states were looked at.
    pub states: usize,
    /// How many steps were taken from them.
    pub steps: usize,
    /// Whether these are all; if not, the search was given up.
    pub is_whole: bool,
    /// Of the states, those of which not every step was taken.
    pub open: usize,
    /// The nodes that no run had come to when the search was given up; more time may reach them.
    pub not_come_to: Vec<NodeName>,
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
    /// Which outcomes its tasks have in the next step to be taken; none if there was none yet.
    next: Option<Vec<usize>>,
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
    /// Those of which only some steps were taken; they wait until all others are done.
    begun: VecDeque<Open>,
    ran: BTreeSet<NodeName>,
    reasons: BTreeSet<String>,
    explored: Explored,
    states_max: usize,
    until: Option<Instant>,
}

impl Suite {
    /// Tries every outcome of every node, see [`explore`].
    pub fn explore(&self, effort: Effort) -> Explored {
        explore(&self.definition, &self.compiled(), effort, |_| ())
    }
}

/// Tries every outcome of every node of a workflow, in every order that its bounds allow; tells how
/// far it has come from time to time.
///
/// Limits of the run are lifted; that one of them is reached is tried after every step instead,
/// where the workflow says what happens then.
pub fn explore(
    definition: &Workflow,
    graph: &CompiledGraph,
    effort: Effort,
    mut watch: impl FnMut(&Explored),
) -> Explored {
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
        begun: VecDeque::new(),
        ran: BTreeSet::new(),
        reasons: BTreeSet::new(),
        explored: Explored { is_whole: true, ..Explored::default() },
        states_max: effort.states_max,
        until: effort.time_max.and_then(|it| Instant::now().checked_add(it)),
    };
    search.start();
    while let Some(open) = search.open.pop_front().or_else(|| search.begun.pop_front()) {
        search.step(open);
        if search.is_over() {
            break;
        }
        search.explored.states = search.waypoints.len();
        watch(&search.explored);
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
                Machine::start(self.graph.clone(), self.limits.clone(), self.run.clone(), input);
            let Ok((machine, commit, actions)) = started else {
                self.explored.gaps.push("no input was found that fits".to_owned());
                continue;
            };
            let step = if label.is_empty() { Vec::new() } else { vec![(input_name(), label)] };
            self.arrive(machine, &commit.position, actions, None, step);
        }
    }

    /// Sends a run the ways that its step can go: all of them, or as many as are tried at a time.
    fn step(&mut self, mut open: Open) {
        let mut choices: Vec<Vec<Outcome>> = Vec::new();
        for task in &open.tasks {
            self.ran.insert(task.node.clone());
            choices.push(self.outcomes.of(&self.run, task));
        }
        if choices.iter().any(Vec::is_empty) {
            return;
        }
        let lengths: Vec<usize> = choices.iter().map(Vec::len).collect();
        let all = lengths.iter().fold(1, |all: usize, it| all.saturating_mul(*it));
        let mut chosen = match open.next.take() {
            Some(chosen) => chosen,
            None if all <= TOGETHER_MAX => vec![0; lengths.len()],
            None => return self.sample(open, &choices, &lengths),
        };
        for _ in 0..TOGETHER_MAX {
            self.go(&open, &choices, &chosen);
            // Which outcome each task has is counted like the digits of a number.
            let next = (0..chosen.len()).find(|&at| chosen[at] + 1 < lengths[at]);
            let Some(at) = next else { return };
            chosen[at] += 1;
            chosen[..at].fill(0);
            if self.is_over() {
                break;
            }
        }
        open.next = Some(chosen);
        self.begun.push_back(open);
    }

    /// Lets every task have each of its outcomes once, and leaves the rest for later.
    fn sample(&mut self, mut open: Open, choices: &[Vec<Outcome>], lengths: &[usize]) {
        for turn in 0..lengths.iter().copied().max().unwrap_or(0) {
            let chosen: Vec<usize> = lengths.iter().map(|it| turn % it).collect();
            self.go(&open, choices, &chosen);
            if self.is_over() {
                break;
            }
        }
        open.next = Some(vec![0; lengths.len()]);
        self.begun.push_back(open);
    }

    /// Whether the search is given up.
    fn is_over(&mut self) -> bool {
        self.explored.is_whole &= self.until.is_none_or(|it| Instant::now() < it);
        !self.explored.is_whole
    }

    fn go(&mut self, open: &Open, choices: &[Vec<Outcome>], chosen: &[usize]) {
        self.explored.steps += 1;
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
        self.open.push_back(Open { machine, tasks, at, next: None });
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
        explored.open = self.open.len() + self.begun.len();
        explored.gaps.extend(self.outcomes.gaps);
        let nodes = self.graph.graph().nodes.keys();
        let missed = nodes.filter(|it| !self.ran.contains(*it)).cloned().collect();
        if explored.is_whole {
            explored.unreached = missed;
        } else {
            explored.not_come_to = missed;
        }
        explored
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
