//! Coverage: which parts of a graph the runs have taken, and which they have missed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    checkpoint::{Activation, Outcome, Position, TaskRecord, is_followed},
    diagnostic::SourceSpan,
    engine::machine::has_used_up_limits,
    graph::{Catch, Edge, Failure, Graph, Target, Transition},
    id::{ChannelName, NodeName, Step, TaskId},
    workflow::Workflow,
};

/// The parts of a graph, and those that the runs have taken.
#[derive(Clone, Debug)]
pub struct Coverage {
    parts: Vec<Part>,
    index: BTreeMap<PartKey, usize>,
    taken: BTreeSet<usize>,
    /// The `catch` routes that all nodes share; each counts as one part.
    defaults: Vec<Catch>,
}

/// A part of a graph that a run takes or misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its kind.
    pub kind: PartKind,
    /// The node that it leaves; `None` for a part that all nodes share.
    pub from: Option<NodeName>,
    /// Its target; `None` for a node.
    pub to: Option<String>,
    /// The condition or the kind of failure.
    pub label: Option<String>,
    /// Its place in the file.
    pub span: Option<SourceSpan>,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A node runs.
    Node,
    /// A node is skipped by its condition.
    Skip,
    /// An unconditional edge.
    Edge,
    /// A join is complete.
    Join,
    /// One target of a route.
    RouteTarget,
    /// A failure is caught.
    Catch,
    /// A bound is used up.
    Exhausted,
    /// A limit of the run is reached, and the run continues at the target for it.
    Limit,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartKey {
    Node(NodeName),
    Skip(NodeName),
    Edge(usize),
    RouteTarget(usize, usize),
    Catch(NodeName, usize),
    DefaultCatch(usize),
    Exhausted(NodeName),
    Limit,
}

/// The data of one run from which coverage is computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    /// The positions before its first step and after each step.
    pub(super) positions: Vec<Position>,
    pub(super) records: Vec<TaskRecord>,
    /// The values at its end, with the inputs that are bounds.
    pub(super) values: BTreeMap<ChannelName, Value>,
    /// The choices of routes: the index of an edge, and of one of its targets.
    pub(super) route_targets: BTreeSet<(usize, usize)>,
}

impl Coverage {
    /// Makes a coverage of a workflow with no part taken. A failure that a node never has is no part.
    pub fn of(workflow: &Workflow, graph: &Graph) -> Self {
        let defaults = &workflow.defaults.catch;
        let may_take = |node: &NodeName, catch: &Catch| {
            catch.kind.is_none_or(|kind| workflow.may_fail_as(node, kind))
        };
        let mut coverage = Self {
            parts: Vec::new(),
            index: BTreeMap::new(),
            taken: BTreeSet::new(),
            defaults: defaults.clone(),
        };
        for (name, spec) in &graph.nodes {
            let part = |kind, to: Option<&Target>, label: Option<String>| Part {
                kind,
                from: Some(name.clone()),
                to: to.map(ToString::to_string),
                label,
                span: spec.span.clone(),
            };
            coverage.add(PartKey::Node(name.clone()), part(PartKind::Node, None, None));
            if let Some(when) = &spec.when {
                let label = Some(format!("not {}", when.text()));
                coverage.add(PartKey::Skip(name.clone()), part(PartKind::Skip, None, label));
            }
            if spec.policies.bounds.is_bounded() {
                let to = spec.policies.bounds.exhausted.as_ref().unwrap_or(&Target::Fail);
                let exhausted = part(PartKind::Exhausted, Some(to), None);
                coverage.add(PartKey::Exhausted(name.clone()), exhausted);
            }
            for (at, catch) in spec.policies.catch.iter().enumerate() {
                if !defaults.contains(catch) && may_take(name, catch) {
                    let caught = part(PartKind::Catch, Some(&catch.to), Some(kind_of(catch)));
                    coverage.add(PartKey::Catch(name.clone(), at), caught);
                }
            }
        }
        coverage.add_edges(graph);
        let common = |kind, to: &Target, label| {
            let to = Some(to.to_string());
            Part { kind, from: None, to, label, span: None }
        };
        for (at, catch) in defaults.iter().enumerate() {
            let mut nodes = graph.nodes.iter();
            if nodes.any(|(name, it)| it.policies.catch.contains(catch) && may_take(name, catch)) {
                let caught = common(PartKind::Catch, &catch.to, Some(kind_of(catch)));
                coverage.add(PartKey::DefaultCatch(at), caught);
            }
        }
        if let Some(to) = &graph.limits.exhausted {
            coverage.add(PartKey::Limit, common(PartKind::Limit, to, None));
        }
        coverage
    }

    fn add_edges(&mut self, graph: &Graph) {
        for (at, edge) in graph.edges.iter().enumerate() {
            let part = |kind, from: &NodeName, to: &Target, label| Part {
                kind,
                from: Some(from.clone()),
                to: Some(to.to_string()),
                label,
                span: edge.span().cloned(),
            };
            match edge {
                Edge::Then { from, to, .. } => {
                    self.add(PartKey::Edge(at), part(PartKind::Edge, from, to, None));
                }
                Edge::Join { from, to, count, .. } => {
                    let names: Vec<&str> = from.iter().map(NodeName::as_str).collect();
                    let some =
                        if *count < from.len() { format!("{count} of ") } else { String::new() };
                    let label = Some(some + &names.join(", "));
                    let to = Target::Node(to.clone());
                    let Some(first) = from.first() else { continue };
                    self.add(PartKey::Edge(at), part(PartKind::Join, first, &to, label));
                }
                Edge::Route { from, route, .. } => {
                    for (target, it) in route.targets().iter().enumerate() {
                        let part = part(PartKind::RouteTarget, from, &it.to, it.label.clone());
                        self.add(PartKey::RouteTarget(at, target), part);
                    }
                }
                // The graph does not contain the choices that the code of a node makes.
                Edge::May { .. } => (),
            }
        }
    }

    fn add(&mut self, key: PartKey, part: Part) {
        self.index.insert(key, self.parts.len());
        self.parts.push(part);
    }

    fn take(&mut self, key: &PartKey) {
        self.taken.extend(self.index.get(key));
    }

    /// Adds the parts that a run took.
    pub(super) fn follow(&mut self, graph: &Graph, trail: &Trail) {
        for &(edge, target) in &trail.route_targets {
            self.take(&PartKey::RouteTarget(edge, target));
        }
        let mut finished = BTreeSet::new();
        let mut tasks: BTreeMap<TaskId, &TaskRecord> = BTreeMap::new();
        for record in &trail.records {
            tasks.insert(record.task, record);
        }
        let mut steps: BTreeMap<Step, Vec<&TaskRecord>> = BTreeMap::new();
        for record in tasks.values() {
            steps.entry(record.task.step).or_default().push(record);
        }
        for (step, records) in &steps {
            let before = trail.positions.iter().find(|it| it.step.next() == *step);
            let is_followed = followed_tasks(before, records);
            for record in records.iter().filter(|it| is_followed(it)) {
                self.follow_task(graph, record, &mut finished);
            }
        }
        for (at, edge) in graph.edges.iter().enumerate() {
            if let Edge::Join { from, to, count, .. } = edge {
                let ran = tasks.values().any(|it| it.node == *to);
                if ran && from.iter().filter(|it| finished.contains(it)).count() >= *count {
                    self.take(&PartKey::Edge(at));
                }
            }
        }
        for before in &trail.positions {
            let of_step = |it: &&&TaskRecord| it.task.step == before.step.next();
            let records: Vec<&TaskRecord> = tasks.values().filter(of_step).copied().collect();
            let after = trail.positions.iter().find(|it| it.step == before.step.next());
            let around = StepEnds { before, after: after.unwrap_or(before) };
            for (node, _) in used_up(graph, around, &records, |it| trail.values.get(it)) {
                self.take(&PartKey::Exhausted(node));
            }
        }
        if trail.positions.iter().any(|it| it.used.limit.is_some()) {
            self.take(&PartKey::Limit);
        }
    }

    fn follow_task<'r>(
        &mut self,
        graph: &Graph,
        record: &'r TaskRecord,
        finished: &mut BTreeSet<&'r NodeName>,
    ) {
        let node = &record.node;
        match &record.outcome {
            Outcome::Skipped { .. } => self.take(&PartKey::Skip(node.clone())),
            _ => self.take(&PartKey::Node(node.clone())),
        }
        match &record.outcome {
            Outcome::Finished { transitions, .. } | Outcome::Skipped { transitions, .. } => {
                finished.insert(node);
                for (at, edge) in graph.edges.iter().enumerate() {
                    if let Edge::Then { from, to, .. } = edge
                        && from == node
                        && transitions.contains(&Transition::To(to.clone()))
                    {
                        self.take(&PartKey::Edge(at));
                    }
                }
            }
            Outcome::Caught { .. } if record.outcome.is_collected() => _ = finished.insert(node),
            Outcome::Caught { failure, .. } => {
                let Some(spec) = graph.nodes.get(node) else { return };
                let catch = spec.policies.catch.iter().position(|it| it.takes(failure));
                let Some(at) = catch else { return self.take_limit(node, failure) };
                let caught = &spec.policies.catch[at];
                match self.defaults.iter().position(|it| it == caught) {
                    Some(common) => self.take(&PartKey::DefaultCatch(common)),
                    None => self.take(&PartKey::Catch(node.clone(), at)),
                }
            }
            Outcome::Failed { failure } => self.take_limit(node, failure),
            Outcome::Undecided { .. }
            | Outcome::Retrying { .. }
            | Outcome::TimerSet { .. }
            | Outcome::Aborted
            | Outcome::MemoSaved { .. }
            | Outcome::Asked { .. }
            | Outcome::Answered { .. } => (),
        }
    }

    /// Takes the bound of a node that reached one of its limits while it ran.
    fn take_limit(&mut self, node: &NodeName, failure: &Failure) {
        if failure.is_node_limit() {
            self.take(&PartKey::Exhausted(node.clone()));
        }
    }

    /// Adds the parts that another coverage of the same graph has taken.
    pub fn add_all(&mut self, other: &Self) {
        self.taken.extend(&other.taken);
    }

    /// Returns the parts that no run has taken, in the order of their places.
    pub fn missed(&self) -> Vec<&Part> {
        let missed = self.parts.iter().enumerate().filter(|(at, _)| !self.taken.contains(at));
        let mut missed: Vec<&Part> = missed.map(|(_, part)| part).collect();
        missed.sort_by_key(|part| {
            part.span.as_ref().map_or((true, 0), |span| (false, span.range.start))
        });
        missed
    }

    /// Returns the number of parts, and the number of taken parts.
    pub fn counts(&self) -> (usize, usize) {
        (self.parts.len(), self.taken.len())
    }

    /// Returns the percentage of taken parts, rounded down: 100 only if no part is missed.
    pub fn percent(&self) -> usize {
        let (all, taken) = self.counts();
        (taken * 100).checked_div(all).unwrap_or(100)
    }
}

/// Returns whether the transitions of a task are followed, in the step after a position. A task that an edge started
/// beside the items of its node leads where it does without them.
fn followed_tasks<'r>(
    before: Option<&Position>,
    records: &[&'r TaskRecord],
) -> impl Fn(&TaskRecord) -> bool + use<'r> {
    let frontier = before.map_or(&[][..], |it| it.frontier.as_slice());
    let is_dispatched = |task: TaskId| {
        let index = usize::try_from(task.index).unwrap_or(usize::MAX);
        frontier.get(index).is_some_and(Activation::is_dispatched)
    };
    let items: Vec<&'r TaskRecord> =
        records.iter().copied().filter(|it| is_dispatched(it.task)).collect();
    let dispatched: BTreeSet<TaskId> = items.iter().map(|it| it.task).collect();
    let is_followed = is_followed(items);
    move |it| !dispatched.contains(&it.task) || is_followed(it)
}

/// The positions before and after a step. If nothing was saved after it, both are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepEnds<'p> {
    pub(super) before: &'p Position,
    pub(super) after: &'p Position,
}

/// Returns the nodes that a step would have reached if their bounds were not used up, each with its
/// target for that case.
pub(super) fn used_up<'v>(
    graph: &Graph,
    StepEnds { before, after }: StepEnds<'_>,
    records: &[&TaskRecord],
    value: impl Fn(&ChannelName) -> Option<&'v Value>,
) -> Vec<(NodeName, Option<Target>)> {
    let mut visits = before.visits.clone();
    let mut reached: Vec<NodeName> = Vec::new();
    let mut joins = before.joins.clone();
    let is_followed = followed_tasks(Some(before), records);
    for record in records.iter().filter(|it| is_followed(it)) {
        let Some(spec) = graph.nodes.get(&record.node) else { continue };
        if let Outcome::Finished { .. } = record.outcome {
            for reset in &spec.policies.on_finish.resets {
                visits.remove(reset);
            }
        }
        let (Outcome::Finished { transitions, .. }
        | Outcome::Skipped { transitions, .. }
        | Outcome::Caught { transitions, .. }) = &record.outcome
        else {
            continue;
        };
        for transition in transitions {
            match transition {
                Transition::Join(to) => {
                    if !before.rounds.get(to).is_some_and(|it| it.absorbs(&record.node)) {
                        joins.entry(to.clone()).or_default().insert(record.node.clone());
                    }
                }
                Transition::To(_) | Transition::Dispatch(_) => {
                    reached.extend(transition.target().node().cloned());
                }
            }
        }
    }
    for edge in &graph.edges {
        if let Edge::Join { to, count, .. } = edge
            && joins.get(to).is_some_and(|it| it.len() >= *count)
        {
            reached.push(to.clone());
        }
    }
    let mut found = Vec::new();
    for mut name in reached {
        // `compile` refuses graphs with a circle of `exhausted` targets.
        while let Some(spec) = graph.nodes.get(&name) {
            let made = visits.get(&name).copied().unwrap_or(0);
            let bounds = &spec.policies.bounds;
            let may_visit = bounds.max_visits_of(&value).is_none_or(|it| made < it);
            if may_visit && !has_used_up_limits(graph, after, &name) {
                break;
            }
            found.push((name.clone(), bounds.exhausted.clone()));
            match &bounds.exhausted {
                Some(Target::Node(next)) => name = next.clone(),
                _ => break,
            }
        }
    }
    found
}

impl PartKind {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Skip => "skip",
            Self::Edge => "edge",
            Self::Join => "join",
            Self::RouteTarget => "route",
            Self::Catch => "catch",
            Self::Exhausted => "exhausted",
            Self::Limit => "limit",
        }
    }
}

fn kind_of(catch: &Catch) -> String {
    catch.kind.map_or_else(|| "any".to_owned(), |it| it.to_string())
}
