//! The super-steps of the worst case, and their duration.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use graphrun_core::{
    graph::{Edge, ErrorKind, Failure, Graph, NodeDescription, NodeSpec, SideEffects},
    id::NodeName,
};

use super::{
    NodeWorstCase,
    branches::{self, NodeGroup, Part, Parts},
    tokens::Tokens,
    total::{Program, TotalFlow, rounded},
};

/// The maximum of all steps of a run together.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) most: u64,
    pub(super) time_max: Option<Duration>,
    /// The nodes that are always visited in the same steps.
    alike: Vec<Vec<usize>>,
    branches: Parts,
    /// The duration of a task of each node.
    tasks: Vec<Option<Duration>>,
}

/// The predecessors of a node that only unconditional edges lead to: whether the run starts with it, and
/// the nodes before it.
pub(super) type Predecessors<'a> = (bool, BTreeSet<&'a NodeName>);

impl Steps {
    /// Returns the minimum of two rules, which both hold for every run.
    pub(super) fn of(
        graph: &Graph,
        tokens: &Tokens<'_>,
        nodes: &BTreeMap<NodeName, NodeWorstCase>,
    ) -> Self {
        let alone = |(name, worst_case): (&NodeName, &NodeWorstCase)| {
            let task = if worst_case.visits_max > 0 {
                task_time(&graph.nodes[name])
            } else {
                Some(Duration::ZERO)
            };
            let time = task.map(|task| times(task, worst_case.visits_max));
            NodeGroup { steps: worst_case.visits_max, time, task }
        };
        let alone: Vec<NodeGroup> = nodes.iter().map(alone).collect();
        let alike = alike(graph, nodes);
        let together = branches::sum(alike.iter().map(|it| together(it, &alone)));
        let tasks = alone.iter().map(|it| it.task).collect();
        let (shared, branches) = branches::count(graph, tokens, alone);
        let time_max = together.time.zip(shared.time).map(|(a, b)| a.min(b));
        let most = together.steps.min(shared.steps);
        Self { most, time_max, alike, branches, tasks }
    }

    /// Returns the steps and their duration, of which alternatives that exclude each other are not added up.
    pub(super) fn in_one_flow(&self, flow: &TotalFlow) -> (u64, Option<Duration>) {
        let Some(program) = flow.program() else { return (self.most, self.time_max) };
        let ones = vec![1.0; self.tasks.len()];
        let steps_max = self
            .most
            .min(self.alike_total(&program, &ones))
            .min(rounded(self.branches_steps(&program)));
        let seconds: Option<Vec<f64>> =
            self.tasks.iter().map(|time| time.map(|it| it.as_secs_f64())).collect();
        let time_max = self.time_max.zip(seconds).map(|(most, seconds)| {
            let ms: Vec<f64> = seconds.iter().map(|it| (it * 1000.0).ceil()).collect();
            let least =
                self.alike_total(&program, &ms).min(rounded(self.branches_time(&program, &ms)));
            most.min(Duration::from_millis(least))
        });
        (steps_max, time_max)
    }

    /// Returns the total of these weights of the nodes; those that are visited in the same steps count once.
    fn alike_total(&self, program: &Program, weights: &[f64]) -> u64 {
        let mut program = program.clone();
        for nodes in &self.alike {
            let weight = nodes.iter().map(|it| weights[*it]).fold(0.0, f64::max);
            match nodes.as_slice() {
                [node] => program.weigh(*node, weight),
                nodes => {
                    let steps = program.add(weight);
                    for node in nodes {
                        program.limit(steps, [(*node, 1.0)]);
                    }
                }
            }
        }
        rounded(program.most())
    }

    /// Returns the steps of all parts.
    fn branches_steps(&self, program: &Program) -> Option<f64> {
        let mut program = program.clone();
        for part in self.steps_of_parts(&mut program) {
            program.weigh(part, 1.0);
        }
        program.most()
    }

    /// Returns the total duration of all parts: that of their tasks one after the other, or of the longest task in each step.
    fn branches_time(&self, program: &Program, ms: &[f64]) -> Option<f64> {
        let mut program = program.clone();
        let nodes = ms.len();
        let mut steps: Vec<usize> = (0..nodes).collect();
        let mut longest = ms.to_vec();
        let mut times: Vec<usize> = Vec::new();
        for (node, ms) in ms.iter().enumerate() {
            let time = program.add(0.0);
            program.limit(time, [(node, *ms)]);
            times.push(time);
        }
        for part in &self.branches.parts {
            steps.push(add_part(&mut program, part, &steps));
            longest.push(part.of.iter().map(|it| longest[*it]).fold(0.0, f64::max));
            let time = program.add(0.0);
            program.limit(time, part.of.iter().map(|it| (times[*it], 1.0)));
            program.limit(time, [(steps[steps.len() - 1], longest[longest.len() - 1])]);
            times.push(time);
        }
        for part in &self.branches.left {
            program.weigh(times[*part], 1.0);
        }
        program.most()
    }

    /// Adds the steps of each part; returns those of the parts that are not within others.
    fn steps_of_parts(&self, program: &mut Program) -> Vec<usize> {
        let mut steps: Vec<usize> = (0..self.tasks.len()).collect();
        for part in &self.branches.parts {
            steps.push(add_part(program, part, &steps));
        }
        self.branches.left.iter().map(|it| steps[*it]).collect()
    }
}

/// Adds the steps of a part: those of its parts one after the other, or of its longest branch after each split.
#[expect(clippy::cast_precision_loss, reason = "a branch has few nodes")]
fn add_part(program: &mut Program, part: &Part, steps: &[usize]) -> usize {
    let own = program.add(0.0);
    program.limit(own, part.of.iter().map(|it| (steps[*it], 1.0)));
    match part.split {
        _ if part.longest == u64::MAX => (),
        Some(split) => program.limit(own, [(split, part.longest as f64)]),
        None => program.bound(own, part.longest as f64),
    }
    own
}

/// Returns all nodes; those that are always visited in the same steps are together.
fn alike(graph: &Graph, nodes: &BTreeMap<NodeName, NodeWorstCase>) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut alike: BTreeMap<Predecessors<'_>, Vec<usize>> = BTreeMap::new();
    let predecessors = plain_predecessors(graph);
    for (node, name) in nodes.keys().enumerate() {
        match predecessors.get(name) {
            Some(before) => alike.entry(before.clone()).or_default().push(node),
            None => all.push(vec![node]),
        }
    }
    all.extend(alike.into_values());
    all
}

/// Counts nodes that are always visited in the same steps once.
fn together(nodes: &[usize], alone: &[NodeGroup]) -> NodeGroup {
    let mut all = nodes.iter().map(|it| alone[*it]);
    let mut most = all.next().expect("there is a node in each list");
    for shared in all {
        most.steps = most.steps.min(shared.steps);
        most.task = most.task.zip(shared.task).map(|(a, b)| a.max(b));
        most.time = most.task.map(|task| times(task, most.steps));
    }
    most
}

/// Returns the maximum duration of one task of a node, all attempts together, if it is known.
///
/// A node without side effects computes synchronously or waits for a person; neither counts.
pub(super) fn task_time(spec: &NodeSpec) -> Option<Duration> {
    if spec.describe().side_effects == SideEffects::Nothing {
        return Some(Duration::ZERO);
    }
    Some(times(spec.policies.attempts.timeout?, attempts_max(spec).into()))
}

/// Returns the maximum number of attempts at one task of a node. Only a node that asks models has outages, and those of a
/// nested run are tried again there.
pub(super) fn attempts_max(spec: &NodeSpec) -> u32 {
    let NodeDescription { calls_max, nested_levels, .. } = spec.describe();
    let asks_models = *calls_max != Some(0);
    let retry = &spec.policies.attempts.retry;
    let attempts_after = |kind, exit_code| {
        let mut failure = Failure { transient: true, exit_code, ..Failure::new(kind, "") };
        failure.transient = asks_models || !failure.is_outage();
        failure.is_nested = *nested_levels > 0;
        retry.for_failure(&failure).attempts_after(&failure)
    };
    // One exit code stands for all that are tried again.
    let exit_codes = [None].into_iter().chain(retry.exit_codes.first().copied().map(Some));
    let failures = exit_codes.flat_map(|code| ErrorKind::ALL.map(|kind| (kind, code)));
    failures.fold(1, |most, (kind, code)| most.max(attempts_after(kind, code)))
}

/// Returns the maximum number of model calls of one task of a node, all attempts together, if it is known.
pub(super) fn calls_of_task(spec: &NodeSpec) -> Option<u64> {
    let NodeDescription { calls_max, calls_again_max, .. } = spec.describe();
    let first = (*calls_max)?;
    let again = calls_again_max.unwrap_or(first);
    Some(first.saturating_add(again.saturating_mul(u64::from(attempts_max(spec)) - 1)))
}

/// Multiplies a duration.
pub(super) fn times(time: Duration, many: u64) -> Duration {
    match u32::try_from(many) {
        Ok(many) => time.saturating_mul(many),
        Err(_) if time.is_zero() => time,
        Err(_) => Duration::MAX,
    }
}

/// Returns the predecessors of each node that only unconditional edges lead to. Nodes with the same ones
/// are visited in the same steps.
pub(super) fn plain_predecessors(graph: &Graph) -> BTreeMap<&NodeName, Predecessors<'_>> {
    let policies = graph.nodes.values().map(|it| &it.policies);
    let caught = policies.clone().flat_map(|policies| policies.catch.iter().map(|it| &it.to));
    let exhausted = policies.filter_map(|it| it.bounds.exhausted.as_ref());
    let by_policies = caught.chain(exhausted).chain(&graph.limits.exhausted);
    let mut others: BTreeSet<&NodeName> = by_policies.filter_map(|it| it.node()).collect();
    let mut before: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
    for edge in &graph.edges {
        let targets = edge.targets();
        let targets = targets.iter().filter_map(|it| graph.nodes.get_key_value(it.node()?));
        for (to, _) in targets {
            match edge {
                Edge::Then { from, .. } => before.entry(to).or_default().insert(from),
                _ => others.insert(to),
            };
        }
    }
    let is_plain = |(name, spec): &(&NodeName, &NodeSpec)| {
        spec.policies.bounds.max_visits.is_none()
            && spec.policies.schedule.defer.is_none()
            && !others.contains(*name)
    };
    let first: BTreeSet<&NodeName> = graph.entry.iter().collect();
    let plain = graph.nodes.iter().filter(is_plain);
    plain
        .map(|(name, _)| {
            (name, (first.contains(name), before.get(name).cloned().unwrap_or_default()))
        })
        .collect()
}
