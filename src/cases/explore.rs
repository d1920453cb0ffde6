//! Explores all outcomes of nodes that affect where a run continues.
//!
//! The rules of a run are pure, so the search clones the run at each step and tries each choice.
//! States that differ only in irrelevant values count as one, so loops end. The search is
//! breadth-first, so the first path to a state is a shortest one. Concurrent tasks have many
//! combined outcomes. If there are too many, the search tries each single outcome once before all
//! combinations, so that it also covers later steps. While many states wait, all sets of nodes that run together get
//! the same number of tries, so that it reaches the later ones; a path to them may be longer than the shortest one.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun_core::usage::TokenUsage;

use super::{
    Suite,
    coverage::{StepEnds, used_up},
    outcomes::{Outcome, Outcomes},
    relevant::Relevant,
    undecided::{sums_in_a_range, undecided},
};
use crate::{
    checkpoint::{Outcome as RecordedModels, Position, RunStatus, TaskRecord},
    compile::CompiledGraph,
    engine::machine::{Action, AttemptStats, FirstStep, Machine, RunSettings, Task, TaskEvent},
    event::{Status, Usage},
    graph::{Failure, Limits, Target, Transition},
    id::{NodeName, RunId, TaskId},
    workflow::Workflow,
};

/// The id of every run.
const RUN: &str = "explored";
/// The maximum number of combined outcomes of a step that the search tries at a time.
const TOGETHER_MAX: usize = 1_000;
/// The number of waiting states from which the search is no longer breadth-first.
const OPEN_MANY: usize = 2_000;
/// A step through the states of a group that meets all of them, and not neighbours, which are much alike.
const STRIDE: usize = 7_919;

/// A limit that no path through a workflow reaches, and with which expressions can still compute.
const UNREACHED_LIMIT: u64 = 1_000_000_000_000;
const UNREACHED_USD: f64 = 1e9;

/// The limits of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The maximum number of states.
    pub states_max: usize,
    /// The maximum duration; `None` for no limit.
    pub time_max: Option<Duration>,
}

/// The result of the search.
#[derive(Clone, Debug, Default)]
pub struct ExplorationResult {
    /// The number of different states.
    pub states: usize,
    /// The number of steps from these states.
    pub steps: usize,
    /// Whether the search is complete; if not, it reached a limit of its effort.
    pub is_complete: bool,
    /// The number of states whose steps are not all tried.
    pub open: usize,
    /// The nodes that no run reached, although more time or other outcomes may reach them.
    pub not_yet_reached: Vec<NodeName>,
    /// The runs that fail although no route leads to failure, each with a shortest path.
    pub stuck: Vec<DeadEnd>,
    /// The failures that the search did not try and that a `catch` handles, each with a shortest path: a node that could not
    /// compute, or whose update was refused. The run continues.
    pub caught: Vec<DeadEnd>,
    /// The nodes that no outcome leads to; only set after a complete search of all outcomes.
    pub unreached: Vec<NodeName>,
    /// Descriptions of the cases that the search could not try.
    pub gaps: Vec<String>,
}

/// A run that fails although no route leads to failure, or a node whose failure is caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadEnd {
    /// The reason of the failure.
    pub reason: String,
    /// The choices of the nodes in each step that had a choice.
    pub path: Vec<Vec<(NodeName, String)>>,
}

/// A state of a run before a step, and the choices that led to it.
#[derive(Debug)]
struct Waypoint {
    before: Option<usize>,
    step: Vec<(NodeName, String)>,
}

/// A run before a step, or between the tasks of a step of which some need others.
#[derive(Debug)]
struct PendingRun {
    machine: Machine,
    tasks: Vec<Task>,
    /// The records of the tasks that are settled in this step.
    records: Vec<TaskRecord>,
    at: usize,
    /// The outcomes of its tasks that are tried next; `None` before the first.
    next: Option<Vec<usize>>,
}

/// The states that wait for their step, by the nodes that run in it.
#[derive(Debug, Default)]
struct Waiting {
    groups: BTreeMap<Vec<NodeName>, Group>,
    count: usize,
}

#[derive(Debug, Default)]
struct Group {
    /// In the order in which they were found.
    states: VecDeque<PendingRun>,
    tried: usize,
}

impl Waiting {
    fn push(&mut self, open: PendingRun) {
        let nodes = open.tasks.iter().map(|it| it.node.clone()).collect();
        self.groups.entry(nodes).or_default().states.push_back(open);
        self.count += 1;
    }

    /// Returns the first state, or if there are many, one of the group with the fewest tries.
    fn pop(&mut self) -> Option<PendingRun> {
        let groups = self.groups.values_mut().filter(|it| !it.states.is_empty());
        let first = |it: &Group| it.states.front().map(|it| it.at);
        let next = if self.count < OPEN_MANY {
            let group = groups.min_by_key(|it| first(it))?;
            group.states.pop_front()
        } else {
            let group = groups.min_by_key(|it| (it.tried, first(it)))?;
            group.tried += 1;
            let at = group.tried.wrapping_mul(STRIDE) % group.states.len();
            group.states.swap_remove_front(at)
        };
        self.count -= 1;
        next
    }
}

#[derive(Debug)]
struct Search<'a> {
    graph: &'a CompiledGraph,
    outcomes: Outcomes<'a>,
    /// The decisions of which it may miss a result.
    undecided: Vec<String>,
    /// The sums that may leave their range after more updates than it tries.
    sums: Vec<String>,
    relevant: Relevant,
    limits: Limits,
    run: RunId,
    seen: HashSet<blake3::Hash>,
    waypoints: Vec<Waypoint>,
    open: Waiting,
    /// The runs with untried combinations; they wait until all others are done.
    begun: VecDeque<PendingRun>,
    ran: BTreeSet<NodeName>,
    explored: ExplorationResult,
    states_max: usize,
    until: Option<Instant>,
}

impl Suite {
    /// Tries all outcomes of all nodes, see [`explore`].
    pub fn explore(&self, effort: Effort) -> ExplorationResult {
        explore(&self.definition, &self.compiled(), effort, |_| ())
    }
}

/// Tries all outcomes of all nodes of a workflow, in each order that its bounds allow, and reports
/// its progress with `watch`.
///
/// It ignores the limits of the run. Instead, if the workflow has a target for a reached limit, it
/// tries after each step that a limit is reached.
pub fn explore(
    definition: &Workflow,
    graph: &CompiledGraph,
    effort: Effort,
    mut watch: impl FnMut(&ExplorationResult),
) -> ExplorationResult {
    let declared = &graph.definition().limits;
    let limits = Limits { exhausted: declared.exhausted.clone(), ..unlimited(declared) };
    let mut search = Search {
        graph,
        outcomes: Outcomes::new(definition, graph),
        undecided: undecided(definition, graph.definition()),
        sums: sums_in_a_range(definition, graph.definition()),
        relevant: Relevant::of(definition, graph.definition()),
        limits,
        run: RunId::parse(RUN).expect("it is a word"),
        seen: HashSet::new(),
        waypoints: Vec::new(),
        open: Waiting::default(),
        begun: VecDeque::new(),
        ran: BTreeSet::new(),
        explored: ExplorationResult { is_complete: true, ..ExplorationResult::default() },
        states_max: effort.states_max,
        until: effort.time_max.and_then(|it| Instant::now().checked_add(it)),
    };
    search.start();
    while let Some(open) = search.open.pop().or_else(|| search.begun.pop_front()) {
        search.step(open);
        if search.is_over() {
            break;
        }
        search.explored.states = search.waypoints.len();
        watch(&search.explored);
    }
    search.finish()
}

/// Returns the limits of a run that reaches none of them. Those of the workflow are there, since its nodes may read
/// what remains.
fn unlimited(declared: &Limits) -> Limits {
    Limits {
        steps: UNREACHED_LIMIT,
        calls: declared.calls.map(|it| it.max(UNREACHED_LIMIT)),
        tokens: declared.tokens.map(|it| it.max(UNREACHED_LIMIT)),
        usd: declared.usd.map(|it| it.max(UNREACHED_USD)),
        time: None,
        ..Limits::default()
    }
}

impl Search<'_> {
    fn start(&mut self) {
        for (label, input) in self.outcomes.inputs() {
            let settings = RunSettings { limits: self.limits.clone(), ..RunSettings::default() };
            let started = Machine::start(self.graph.clone(), settings, self.run.clone(), input);
            let Ok(FirstStep { machine, commit, actions }) = started else {
                self.explored.gaps.push("no valid input was found".to_owned());
                continue;
            };
            let step = if label.is_empty() { Vec::new() } else { vec![(input_name(), label)] };
            self.arrive(machine, &commit.position, actions, &[], None, step);
        }
    }

    /// Tries the combined outcomes of a step: all of them, or as many as fit into one turn.
    fn step(&mut self, mut open: PendingRun) {
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
            // The chosen outcomes are counted like the digits of a number.
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

    /// Tries each outcome of each task once, and leaves the other combinations for later.
    fn sample(&mut self, mut open: PendingRun, choices: &[Vec<Outcome>], lengths: &[usize]) {
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

    /// Returns whether the search stops early.
    fn is_over(&mut self) -> bool {
        self.explored.is_complete &= self.until.is_none_or(|it| Instant::now() < it);
        !self.explored.is_complete
    }

    fn go(&mut self, open: &PendingRun, choices: &[Vec<Outcome>], chosen: &[usize]) {
        self.explored.steps += 1;
        let mut machine = open.machine.clone();
        let before = machine.position();
        let mut actions = Vec::new();
        let mut step = Vec::new();
        for (task, (outcomes, &at)) in open.tasks.iter().zip(choices.iter().zip(chosen)) {
            let Outcome { label, result, uses_up_limits, .. } = &outcomes[at];
            let (ms, usage) =
                if *uses_up_limits { self.limits_of(&task.node) } else { (0, Usage::default()) };
            let ended = jiff::Timestamp::UNIX_EPOCH;
            let attempt = AttemptStats { number: task.attempt, ms, usage, ended };
            let task_id = task.id;
            let mut applied = match result.clone() {
                Ok(command) => {
                    machine.apply(TaskEvent::Finished { task: task_id, command, attempt })
                }
                Err(failure) => fail(&mut machine, task_id, &failure, attempt),
            };
            actions.append(&mut applied);
            step.push((task.node.clone(), label.clone()));
        }
        self.note_accidents(open, choices, chosen, &actions, &step);
        self.arrive(machine, &before, actions, &open.records, Some(open.at), step);
    }

    /// Returns the duration and the usage at which a node has used up its limits.
    fn limits_of(&self, node: &NodeName) -> (u64, Usage) {
        let policies = self.graph.node(node).map(|it| &it.policies);
        let Some(limits) = policies.and_then(|it| it.bounds.limits.as_ref()) else {
            return (0, Usage::default());
        };
        let input_tokens = limits.tokens.unwrap_or_default();
        let calls = limits.calls.unwrap_or_default();
        let ms = limits.time.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let tokens = TokenUsage { input_tokens, calls, ..TokenUsage::default() };
        (ms, Usage { tokens, cost_usd: limits.usd })
    }

    /// Reports a node that failed although the search tried no failure: it could not compute, its
    /// update was refused, or its route could not decide. A `catch` handles it, so the run is not stuck.
    fn note_accidents(
        &mut self,
        open: &PendingRun,
        choices: &[Vec<Outcome>],
        chosen: &[usize],
        actions: &[Action],
        step: &[(NodeName, String)],
    ) {
        for action in actions {
            let Action::Record(record) = action else { continue };
            let TaskRecord { task, node, outcome: RecordedModels::Caught { failure, .. }, .. } =
                record.as_ref()
            else {
                continue;
            };
            let Some(at) = open.tasks.iter().position(|it| it.id == *task) else { continue };
            if !choices[at][chosen[at]].is_expected {
                let reason = format!("`{node}` failed: {}", failure.message);
                if !self.explored.caught.iter().any(|it| it.reason == reason) {
                    let caught = self.dead_end(reason, Some(open.at), step.to_vec());
                    self.explored.caught.push(caught);
                }
            }
        }
    }

    /// Handles the result of a step: the next tasks, or the end of the run.
    ///
    /// Without a commit, the next tasks are items of the same step that needed some of the settled ones.
    fn arrive(
        &mut self,
        machine: Machine,
        before: &Position,
        actions: Vec<Action>,
        settled: &[TaskRecord],
        from: Option<usize>,
        step: Vec<(NodeName, String)>,
    ) {
        let mut tasks = Vec::new();
        let mut records = settled.to_vec();
        let mut rest = None;
        let mut committed = None;
        for action in actions {
            match action {
                Action::Run(task) => tasks.push(*task),
                Action::Record(record) => records.push(Arc::unwrap_or_clone(record)),
                Action::Stop(RunStatus { status, reason }) => rest = Some((status, reason)),
                Action::Commit(_) => committed = Some(records.len()),
                Action::EndStep(_)
                | Action::Emit { .. }
                | Action::PublishMessages(_)
                | Action::Sleep { .. } => (),
            }
        }
        if let Some((status, reason)) = rest {
            let is_asked_for = asked_to_fail(&machine, before, &records);
            if status != Status::Done && !is_asked_for {
                let reason = reason.unwrap_or_default();
                if !self.explored.stuck.iter().any(|it| it.reason == reason) {
                    let stuck = self.dead_end(reason, from, step);
                    self.explored.stuck.push(stuck);
                }
            }
            return;
        }
        let limited = Self::at_limit(&machine, from.is_some() && committed.is_some());
        let is_between_steps = from.is_none() || committed.is_some();
        let informed = if is_between_steps { self.with_message(&machine) } else { Vec::new() };
        let records = records.split_off(committed.unwrap_or_default());
        let Some(at) = self.enter(machine, tasks, records, from, step) else { return };
        if let Some((machine, tasks)) = limited {
            self.enter(machine, tasks, Vec::new(), Some(at), vec![(limit_name(), String::new())]);
        }
        for (label, machine, actions) in informed {
            let before = machine.position();
            let step = vec![(message_name(), label)];
            self.arrive(machine, &before, actions, &[], Some(at), step);
        }
    }

    /// Returns the continuations of a run after each message that a person may send now. Only the first message of a run is
    /// tried.
    fn with_message(&mut self, machine: &Machine) -> Vec<(String, Machine, Vec<Action>)> {
        let messages = self.outcomes.messages();
        if messages.is_empty() || machine.position().people.last_message > 0 {
            return Vec::new();
        }
        let mut informed = Vec::new();
        for (label, channel, value) in messages {
            let branch = machine.branch_with_message(channel, value);
            informed.extend(branch.map(|(machine, actions)| (label, machine, actions)));
        }
        informed
    }

    /// Records a state, if it is new.
    fn enter(
        &mut self,
        machine: Machine,
        tasks: Vec<Task>,
        records: Vec<TaskRecord>,
        before: Option<usize>,
        step: Vec<(NodeName, String)>,
    ) -> Option<usize> {
        if !self.seen.insert(self.relevant.key(&machine, &records)) {
            return None;
        }
        if self.waypoints.len() >= self.states_max {
            self.explored.is_complete = false;
            return None;
        }
        let at = self.waypoints.len();
        self.waypoints.push(Waypoint { before, step });
        self.open.push(PendingRun { machine, tasks, records, at, next: None });
        Some(at)
    }

    /// Returns the run as it continues if a limit is reached now, if the workflow has a target for
    /// that.
    fn at_limit(machine: &Machine, has_begun: bool) -> Option<(Machine, Vec<Task>)> {
        if !has_begun {
            return None;
        }
        let (machine, actions) = machine.branch_at_limit("a limit is reached".to_owned())?;
        let tasks = actions.into_iter().filter_map(|it| match it {
            Action::Run(task) => Some(*task),
            _ => None,
        });
        let tasks: Vec<Task> = tasks.collect();
        (!tasks.is_empty()).then_some((machine, tasks))
    }

    /// Returns the path to a failure. The first one to a reason is a shortest one.
    fn dead_end(
        &self,
        reason: String,
        from: Option<usize>,
        step: Vec<(NodeName, String)>,
    ) -> DeadEnd {
        let mut path = vec![step];
        let mut before = from;
        while let Some(waypoint) = before.and_then(|it| self.waypoints.get(it)) {
            if !waypoint.step.is_empty() {
                path.push(waypoint.step.clone());
            }
            before = waypoint.before;
        }
        path.reverse();
        DeadEnd { reason, path }
    }

    fn finish(self) -> ExplorationResult {
        let mut explored = self.explored;
        explored.states = self.waypoints.len();
        explored.open = self.open.count + self.begun.len();
        let nodes = self.graph.definition().nodes.keys();
        let missed: Vec<NodeName> = nodes.filter(|it| !self.ran.contains(*it)).cloned().collect();
        explored.gaps.extend(self.outcomes.gaps);
        explored.gaps.extend(self.sums);
        let lacking = self.undecided.into_iter().chain(self.outcomes.untried);
        let lacking: Vec<String> = lacking.filter(|_| !missed.is_empty()).collect();
        if explored.is_complete && !self.outcomes.is_sampled && lacking.is_empty() {
            explored.unreached = missed;
        } else {
            explored.not_yet_reached = missed;
        }
        explored.gaps.extend(lacking);
        explored
    }
}

/// Fails all attempts at a task: a retry has the same result.
fn fail(
    machine: &mut Machine,
    task: TaskId,
    failure: &Failure,
    mut attempt: AttemptStats,
) -> Vec<Action> {
    loop {
        let failure = failure.clone();
        let actions = machine.apply(TaskEvent::Failed { task, failure, attempt });
        let wake = actions.iter().find_map(|it| match it {
            Action::Sleep { wait, .. } => Some(wait.wake),
            _ => None,
        });
        let Some(wake) = wake else { return actions };
        machine.apply(TaskEvent::Woke { task, wake });
        attempt.number += 1;
    }
}

/// Returns whether a route, a bound or a limit of the workflow leads to failure by design.
fn asked_to_fail(machine: &Machine, before: &Position, records: &[TaskRecord]) -> bool {
    let fails = |it: &TaskRecord| match &it.outcome {
        RecordedModels::Finished { transitions, .. }
        | RecordedModels::Skipped { transitions, .. }
        | RecordedModels::Caught { transitions, .. } => {
            transitions.contains(&Transition::To(Target::Fail))
        }
        RecordedModels::Undecided { .. }
        | RecordedModels::Failed { .. }
        | RecordedModels::Retrying { .. }
        | RecordedModels::TimerSet { .. }
        | RecordedModels::Aborted
        | RecordedModels::MemoSaved { .. }
        | RecordedModels::Asked { .. }
        | RecordedModels::Answered { .. } => false,
    };
    let records_of_step: Vec<&TaskRecord> = records.iter().collect();
    let graph = machine.graph().definition();
    let state = machine.state();
    let after = machine.position();
    let around = StepEnds { before, after: &after };
    let used_up = used_up(graph, around, &records_of_step, |it| state.get(it.as_str()));
    records.iter().any(fails)
        || used_up.iter().any(|(_, target)| *target == Some(Target::Fail))
        || before.failure.is_some()
}

/// Returns the name that represents the input in a path.
fn input_name() -> NodeName {
    NodeName::parse("input").expect("it is a word")
}

/// Returns the name that represents a message of a person in a path.
fn message_name() -> NodeName {
    NodeName::parse("message").expect("it is a word")
}

/// Returns the name that represents a limit of the run in a path.
fn limit_name() -> NodeName {
    NodeName::parse("limit").expect("it is a word")
}
