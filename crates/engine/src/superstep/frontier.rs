//! Computes the frontier of the next step from transitions, joins, bounds and limits.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{Defer, Dispatch, Input, Limits, Policies, Target, Transition, Trigger},
    id::NodeName,
};

use crate::{
    budget::{self, Used},
    checkpoint::{Activation, Outcome, Position, TaskRecord},
};

/// Returns the position after a step whose tasks left these records, in task order.
///
/// Tasks of the old frontier without a record stay in the frontier. They exist only in steps made by a
/// person.
pub(super) fn next_frontier(
    graph: &CompiledGraph,
    limits: &Limits,
    before: &Position,
    records: &[TaskRecord],
) -> Position {
    let mut position = Position {
        step: before.step.next(),
        frontier: Vec::new(),
        original_tasks: BTreeMap::new(),
        ..before.clone()
    };
    position.used.elapsed_ms += records.iter().map(|it| it.ms).max().unwrap_or(0);
    for record in records {
        position.used.usage.add(&record.usage);
        if graph.node(&record.node).is_some_and(|it| it.policies.limits.is_some()) {
            let node_usage = position.used.node_usage.entry(record.node.clone()).or_default();
            node_usage.usage.add(&record.usage);
            node_usage.elapsed_ms += record.ms;
        }
        if let Outcome::Finished { .. } = record.outcome {
            let policies = &graph.node(&record.node).expect("it ran").policies;
            for reset in &policies.resets {
                position.visits.remove(reset);
            }
        }
    }
    let mut next = Next {
        graph,
        position: &mut position,
        reached: BTreeMap::new(),
        sent: Vec::new(),
        arrived: BTreeMap::new(),
        left: BTreeSet::new(),
        kept: before.frontier.get(records.len()..).unwrap_or_default().to_vec(),
    };
    for (record, activation) in records.iter().zip(&before.frontier) {
        next.follow(record, activation);
    }
    next.complete_joins();
    next.abandon_left_scopes();
    next.defer();
    let Next { reached, sent, kept, .. } = next;
    fill(&mut position, kept, reached, sent);

    position.failure = position.failure.take().or_else(|| starved(graph, &position));
    if position.failure.is_some() {
        position.frontier.clear();
        position.deferred.clear();
    } else if !position.frontier.is_empty() && position.used.limit.is_none() {
        route_limit(graph, limits, &mut position);
    }
    position
}

/// Returns the joins and deferred nodes that no longer wait for anything in a position changed by a person,
/// with their triggers. The frontier does not change.
pub(super) fn resettled(
    graph: &CompiledGraph,
    position: &mut Position,
) -> BTreeMap<NodeName, Trigger> {
    let last = |it: &BTreeSet<NodeName>| it.last().cloned();
    let trigger = |it: NodeName| Trigger::Then { node: it };
    let arrived = position.joins.iter();
    let arrived = arrived.map(|(to, it)| (to.clone(), last(it).map_or(Trigger::Start, trigger)));
    let mut next = Next {
        graph,
        reached: BTreeMap::new(),
        sent: Vec::new(),
        arrived: arrived.collect(),
        left: BTreeSet::new(),
        kept: position.frontier.clone(),
        position,
    };
    next.complete_joins();
    next.defer();
    let reached = next.reached;
    for node in reached.keys() {
        *position.visits.entry(node.clone()).or_default() += 1;
    }
    reached
}

/// Collects the targets of the tasks of a step.
struct Next<'a> {
    graph: &'a CompiledGraph,
    position: &'a mut Position,
    reached: BTreeMap<NodeName, Trigger>,
    sent: Vec<(Dispatch, Trigger)>,
    /// The joins with arrivals in this step, with the last arrival of each.
    arrived: BTreeMap<NodeName, Trigger>,
    /// The used workflows that were left before they finished.
    left: BTreeSet<String>,
    /// The tasks of the old frontier that stay.
    kept: Vec<Activation>,
}

impl Next<'_> {
    fn follow(&mut self, record: &TaskRecord, activation: &Activation) {
        let (transitions, trigger) = match &record.outcome {
            Outcome::Finished { transitions, .. } | Outcome::Skipped { transitions, .. } => {
                (transitions, Trigger::Then { node: record.node.clone() })
            }
            Outcome::Caught { transitions, failure } => (
                transitions,
                Trigger::Caught { node: record.node.clone(), failure: failure.clone() },
            ),
            // A limit of the run is reached: the task stays in the frontier, unless the run is routed
            // elsewhere.
            Outcome::Aborted => return self.kept.push(activation.clone()),
            _ => unreachable!("a step is committed when every record of it is final"),
        };
        for transition in transitions {
            match transition {
                Transition::To(Target::End) => (),
                Transition::To(Target::Fail) => self.fail(&record.node, activation, &trigger),
                Transition::To(Target::Node(name)) => {
                    if let Some(reached) = self.reach(name.clone(), trigger.clone()) {
                        self.note_left_scopes(&record.node, &reached);
                    }
                }
                Transition::Join(name) => self.arrive(name, &record.node, &trigger),
                Transition::Dispatch(dispatch) => self.send(dispatch, &trigger),
            }
        }
    }

    /// Activates a node, or its `exhausted` target if its bound is used up.
    fn reach(&mut self, name: NodeName, trigger: Trigger) -> Option<NodeName> {
        let (name, trigger) = self.within_bound(name, trigger)?;
        // The node gets the first trigger in task order.
        self.reached.entry(name.clone()).or_insert(trigger);
        Some(name)
    }

    /// Records which used workflows a transition leaves. Only the last node of a workflow may leave it when
    /// the workflow is done; any other exit, such as a caught failure, abandons the remaining work in it.
    fn note_left_scopes(&mut self, from: &NodeName, to: &NodeName) {
        let done = match &self.graph.node(from).expect("it ran").policies.defer {
            Some(Defer::Scope(done)) => Some(done),
            _ => None,
        };
        let own = from.scope();
        let is_done = done.is_some_and(|it| own == Some(it.as_str()));
        let mut scope = if is_done { done.and_then(NodeName::scope) } else { own };
        while let Some(left) = scope.filter(|it| to.strip_scope(it).is_none()) {
            self.left.insert(left.to_owned());
            scope = left.rsplit_once('.').map(|(outer, _)| outer);
        }
    }

    fn abandon_left_scopes(&mut self) {
        for scope in &self.left {
            let stays = |it: &NodeName| it.strip_scope(scope).is_none();
            self.reached.retain(|it, _| stays(it));
            self.sent.retain(|(it, _)| stays(&it.node));
            self.kept.retain(|it| stays(&it.node));
            self.position.joins.retain(|it, _| stays(it));
            self.position.deferred.retain(|it, _| stays(it));
        }
    }

    /// Holds back the deferred nodes, and releases those that no longer need to wait.
    fn defer(&mut self) {
        let graph = self.graph;
        let defer = |it: &NodeName| graph.node(it).and_then(|it| it.policies.defer.as_ref());
        let reached = self.reached.keys();
        let kept: Vec<NodeName> = reached.filter(|it| defer(it).is_some()).cloned().collect();
        for name in kept {
            if let Some(trigger) = self.reached.remove(&name) {
                self.position.deferred.entry(name).or_insert(trigger);
            }
        }
        if self.position.deferred.is_empty() {
            return;
        }
        let sent = self.sent.iter().map(|(it, _)| &it.node);
        let kept = self.kept.iter().map(|it| &it.node);
        let running: BTreeSet<&NodeName> = self.reached.keys().chain(sent).chain(kept).collect();
        let waiting: Vec<NodeName> = self.position.deferred.keys().cloned().collect();
        let rank = |it: &NodeName| defer(it).map(|defer| rank(it, defer));
        let is_free = |name: &NodeName| {
            let comes_first = |other: &NodeName| {
                other != name && defer(name).is_some_and(|it| lets_go(name, it, other))
            };
            !running.iter().any(|it| comes_first(it))
                && !waiting.iter().any(|it| comes_first(it) && rank(it) > rank(name))
        };
        let free: Vec<NodeName> = waiting.iter().filter(|it| is_free(it)).cloned().collect();
        for name in free {
            if let Some(trigger) = self.position.deferred.remove(&name) {
                self.reached.insert(name, trigger);
            }
        }
        self.leave_room();
    }

    /// Turns away dispatches that would use up the bound of a deferred node: dispatches do not wait, and the
    /// deferred node has a visit reserved.
    fn leave_room(&mut self) {
        let mut others_come = false;
        for (dispatch, trigger) in std::mem::take(&mut self.sent) {
            let name = dispatch.node.clone();
            let promised = u32::from(self.position.deferred.contains_key(&name));
            match self.within_bound_but(promised, name, trigger) {
                Some((name, trigger)) if name == dispatch.node => {
                    self.sent.push((dispatch, trigger));
                }
                Some((instead, trigger)) => {
                    others_come = true;
                    self.reached.entry(instead).or_insert(trigger);
                }
                None => (),
            }
        }
        if others_come {
            // The new targets may have to wait themselves. The loop ends because each round has fewer
            // dispatches.
            self.defer();
        }
    }

    fn policies(&self, name: &NodeName) -> &Policies {
        &self.graph.node(name).expect("compile checked every target").policies
    }

    fn send(&mut self, dispatch: &Dispatch, trigger: &Trigger) {
        match self.within_bound(dispatch.node.clone(), trigger.clone()) {
            Some((name, trigger)) if name == dispatch.node => {
                self.sent.push((dispatch.clone(), trigger));
            }
            Some((name, trigger)) => drop(self.reached.entry(name).or_insert(trigger)),
            None => (),
        }
    }

    fn arrive(&mut self, name: &NodeName, from: &NodeName, trigger: &Trigger) {
        self.position.joins.entry(name.clone()).or_default().insert(from.clone());
        self.arrived.insert(name.clone(), trigger.clone());
    }

    /// Activates the joins whose waiting is over.
    ///
    /// This runs after all arrivals of the step: a node that was dispatched three times arrives three times,
    /// and arrivals after the last one needed must not count for the next round.
    fn complete_joins(&mut self) {
        for (name, trigger) in std::mem::take(&mut self.arrived) {
            let arrived = self.position.joins.get(&name).map_or(0, BTreeSet::len);
            if arrived == self.graph.awaited_by(&name).len() {
                self.position.joins.remove(&name);
                drop(self.reach(name, trigger));
            }
        }
    }

    /// Follows `exhausted` until it reaches a node that may still run.
    ///
    /// It terminates because `compile` refuses graphs whose `exhausted` targets form a cycle.
    fn within_bound(&mut self, name: NodeName, trigger: Trigger) -> Option<(NodeName, Trigger)> {
        self.within_bound_but(0, name, trigger)
    }

    /// Does the same as `within_bound` if this many visits of the node are already reserved.
    fn within_bound_but(
        &mut self,
        mut promised: u32,
        mut name: NodeName,
        mut trigger: Trigger,
    ) -> Option<(NodeName, Trigger)> {
        loop {
            let policies = self.policies(&name);
            let visits = self.position.visits.get(&name).copied().unwrap_or(0);
            let visits = visits.saturating_add(std::mem::take(&mut promised));
            let node_usage = self.position.used.node_usage.get(&name);
            if let Some(max_visits) = policies.max_visits.filter(|&max| visits >= max) {
                trigger = Trigger::Exhausted { node: name.clone(), max_visits };
            } else if let Some(error) = budget::reached_by_node(&name, policies, node_usage) {
                trigger = Trigger::Limit { error };
            } else {
                return Some((name, trigger));
            }
            match &policies.exhausted {
                Some(Target::Node(next)) => name = next.clone(),
                Some(Target::End) => return None,
                Some(Target::Fail) | None => {
                    self.position.failure = self.position.failure.take().or(trigger.error());
                    return None;
                }
            }
        }
    }

    /// Handles a route to `fail`. The reason names the error that led to the node, if there is one.
    fn fail(&mut self, node: &NodeName, activation: &Activation, trigger: &Trigger) {
        let cause = trigger.error().or(activation.trigger.error());
        let reason = match cause {
            Some(cause) => format!("`{node}` ended the run: {cause}"),
            None => format!("`{node}` ended the run"),
        };
        self.position.failure.get_or_insert(reason);
    }
}

/// Returns whether a deferred node lets another one run first.
fn lets_go(name: &NodeName, defer: &Defer, other: &NodeName) -> bool {
    let scope = match defer {
        Defer::Siblings => name.scope(),
        Defer::Scope(scope) => Some(scope.as_str()),
    };
    scope.is_none_or(|it| other.strip_scope(it).is_some())
}

/// Orders nodes that wait for each other: the node of the inner workflow goes first, and the end of a
/// workflow comes after the nodes that wait in it.
fn rank(name: &NodeName, defer: &Defer) -> (usize, bool) {
    let depth = |scope: Option<&str>| scope.map_or(0, |it| it.split('.').count());
    match defer {
        Defer::Siblings => (depth(name.scope()), true),
        Defer::Scope(scope) => (depth(Some(scope.as_str())), false),
    }
}

/// Returns the failure of a run that has nothing left to run while a join still waits.
fn starved(graph: &CompiledGraph, position: &Position) -> Option<String> {
    let (name, arrived) = position.joins.iter().next().filter(|_| position.frontier.is_empty())?;
    let missing: Vec<String> = graph
        .awaited_by(name)
        .iter()
        .filter(|it| !arrived.contains(*it))
        .map(|it| format!("`{it}`"))
        .collect();
    Some(format!("`{name}` waits for {}, and nothing is left to run", missing.join(", ")))
}

/// Fills the frontier: activated nodes, once each and by name, then dispatches in the order they were sent.
///
/// This order is the order of the updates. Visits are counted once per step. Tasks that stay were counted
/// when they were activated.
fn fill(
    position: &mut Position,
    kept: Vec<Activation>,
    mut reached: BTreeMap<NodeName, Trigger>,
    sent: Vec<(Dispatch, Trigger)>,
) {
    let (by_edges, dispatched): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|it| it.input == Input::State);
    reached.retain(|name, _| by_edges.iter().all(|it| it.node != *name));
    let mut counted: Vec<NodeName> = reached.keys().cloned().collect();
    position.frontier.extend(by_edges);
    for (node, trigger) in reached {
        position.frontier.push(Activation::by_edge(node, trigger));
    }
    position.frontier.sort_by(|a, b| a.node.cmp(&b.node));
    position.frontier.extend(dispatched);
    position.frontier.reserve_exact(sent.len());
    for (Dispatch { node, input }, trigger) in sent {
        if counted.last() != Some(&node) {
            counted.push(node.clone());
        }
        position.frontier.push(Activation { node, input: Input::Value(input), trigger });
    }
    counted.sort();
    counted.dedup();
    for node in counted {
        *position.visits.entry(node).or_default() += 1;
    }
}

/// Routes a run that reached a limit to `limits.exhausted`, if that is set.
fn route_limit(graph: &CompiledGraph, limits: &Limits, position: &mut Position) {
    let may_spend = || budget::may_spend(graph, &position.frontier);
    let reached = Used::by(position).reached(limits, may_spend);
    let (Some(target), Some(error)) = (&limits.exhausted, reached) else { return };
    budget::use_up(limits, position, error.clone());
    position.deferred.clear();
    // The nodes they wait for are dropped with the frontier.
    position.joins.clear();
    let dropped = std::mem::take(&mut position.frontier).into_iter().map(|it| it.node);
    for node in dropped.collect::<BTreeSet<_>>() {
        // The dropped task was counted at activation, but does not run.
        let visits = position.visits.entry(node).or_default();
        *visits = visits.saturating_sub(1);
    }
    match target {
        Target::Node(node) => {
            debug_assert!(graph.node(node).is_some(), "compile checked every target");
            *position.visits.entry(node.clone()).or_default() += 1;
            let trigger = Trigger::Limit { error };
            position.frontier.push(Activation::by_edge(node.clone(), trigger));
        }
        Target::Fail => position.failure = Some(error),
        Target::End => (),
    }
}
