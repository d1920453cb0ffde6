//! Computes the frontier of the next step from transitions, joins, bounds and limits.
//!
//! Deferred nodes are the hard part. A deferred node runs once, after all other work in its workflow. When the run reaches it, it
//! is put into `deferred`. It is released when nothing that it waits for runs next, and no deferred node that it waits for comes
//! first, as those of inner workflows do. Dispatches do not wait. A dispatch to a deferred node must leave the visit that is reserved for it, and goes to `exhausted` if
//! its bound has no other. That target may be deferred as well, so the decision is repeated until no dispatch is refused.
//!
//! **Example.** `plan` leads to `report`, which is deferred, and to `slow`. After `plan`, `report` waits and `slow` runs;
//! after `slow`, nothing else is left, and `report` runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    graph::{
        Defer, Dispatch, ErrorKind, Failure, Input, Policies, Target, Transition, Trigger,
        with_cause,
    },
    id::NodeName,
    state::State,
};

use super::{
    RestoreError,
    indexed::{IndexedActivation, IndexedPosition},
    limits::route_limit,
    rounds::Rounds,
};
use crate::{
    budget::{self, StepLimits},
    checkpoint::{NodeUsage, Outcome, Position, TaskRecord, is_followed},
};

/// The longest text of the state in the reason of a failure, in characters.
const REASON_CHARACTERS_MAX: usize = 2_000;

/// The results of a step.
pub(super) struct StepResults<'a> {
    /// The records of its tasks: `records[i]` belongs to `frontier[i]`. Activations beyond the last record stay in the
    /// frontier; they exist only in steps made by a person.
    pub(super) records: &'a [Arc<TaskRecord>],
    /// The state after the step.
    pub(super) state: &'a State,
}

/// Replaces a position by the one after a step.
pub(super) fn next_frontier(
    graph: &CompiledGraph,
    limits: StepLimits<'_>,
    position: &mut IndexedPosition,
    StepResults { records, state }: StepResults<'_>,
) {
    position.step = position.step.next();
    if !position.original_tasks.is_empty() {
        position.original_tasks.clear();
    }
    let mut before = std::mem::take(&mut position.frontier);
    count_records(graph, position, records.iter().zip(&before));
    let kept = before.split_off(records.len().min(before.len()));
    let mut next = FrontierBuilder::new(graph, Some(state), position, kept);
    let open_maps = next.open_maps();
    let is_leading = is_followed(records.iter().map(|it| &**it));
    for (record, active) in records.iter().zip(before.drain(..)) {
        // A task that an edge started follows its transitions as usual, even if items of its node run in this step.
        let is_of_open_map = || open_maps.contains(&active.node);
        if !active.is_dispatched() || (is_leading(record) && !is_of_open_map()) {
            next.follow(record, active);
        }
    }
    next.complete_joins();
    next.drop_abandoned_scopes();
    next.settle_deferred();
    next.renew_rounds();
    let FrontierBuilder { reached, sent, kept, .. } = next;
    // Its memory is used again.
    position.frontier = before;
    fill(position, kept, reached, sent);

    position.failure = position.failure.take().or_else(|| starved(graph, position));
    if position.failure.is_some() {
        position.frontier.clear();
        position.deferred.clear();
        position.rounds.clear();
    } else if !position.frontier.is_empty() && position.used.limit.is_none() {
        route_limit(graph, limits, position);
    }
}

/// Adds the usage of finished tasks to the budget, and resets the visits that they reset.
fn count_records<'a>(
    graph: &CompiledGraph,
    position: &mut IndexedPosition,
    finished: impl Iterator<Item = (&'a Arc<TaskRecord>, &'a IndexedActivation)>,
) {
    for (record, active) in finished {
        position.used.usage.add(&record.usage);
        let policies = graph.policies_at(active.node);
        let is_read = || graph.graph().facts.usage_of.contains(&record.node);
        if policies.bounds.limits.is_some() || is_read() {
            let node_usage = position.used.node_usage.entry(record.node.clone()).or_default();
            node_usage.add(NodeUsage { usage: record.usage, elapsed_ms: record.ms });
        }
        if let Outcome::Finished { .. } = record.outcome {
            position.caught.remove(&active.node);
            for reset in policies.on_finish.resets.iter().filter_map(|it| graph.index(it)) {
                position.visits_mut().set(reset.index(), None);
            }
        }
    }
}

/// Returns the joins and deferred nodes that no longer wait for anything in a position changed by a person,
/// with their triggers. The frontier does not change.
pub(super) fn resettled(
    graph: &CompiledGraph,
    state: Option<&State>,
    position: &mut Position,
) -> Result<BTreeMap<NodeName, Trigger>, RestoreError> {
    let mut indexed = IndexedPosition::of(graph, std::mem::take(position))?;
    let name = |it: NodeIndex| graph.name_at(it).clone();
    let trigger = |&it: &NodeIndex| Trigger::Then { node: name(it) };
    let arrived = indexed.joins.iter();
    let arrived = arrived.map(|(to, it)| (*to, it.last().map_or(Trigger::Start, trigger)));
    let arrived = arrived.collect();
    let kept = indexed.frontier.clone();
    let mut next = FrontierBuilder::new(graph, state, &mut indexed, kept);
    next.arrived = arrived;
    next.complete_joins();
    next.settle_deferred();
    next.renew_rounds();
    let reached = next.reached;
    for (node, _) in &reached {
        indexed.count_visit(*node);
    }
    *position = indexed.named(graph);
    Ok(reached.into_iter().map(|(it, trigger)| (name(it), trigger)).collect())
}

/// Collects the targets of the tasks of a step.
struct FrontierBuilder<'a> {
    graph: &'a CompiledGraph,
    /// The state after the step; `None` if the position was changed by a person and no bound reads the state.
    state: Option<&'a State>,
    position: &'a mut IndexedPosition,
    /// The nodes that are activated, in the order of their transitions until they are sorted.
    reached: Vec<(NodeIndex, Trigger)>,
    sent: Vec<IndexedActivation>,
    /// The joins with arrivals in this step, with the last arrival of each.
    arrived: BTreeMap<NodeIndex, Trigger>,
    /// The used workflows that a transition left before they finished.
    abandoned_scopes: Vec<String>,
    /// The tasks of the old frontier that stay.
    kept: Vec<IndexedActivation>,
    rounds: Rounds,
}

impl<'a> FrontierBuilder<'a> {
    /// Begins the frontier after this position. These tasks of its frontier stay.
    fn new(
        graph: &'a CompiledGraph,
        state: Option<&'a State>,
        position: &'a mut IndexedPosition,
        kept: Vec<IndexedActivation>,
    ) -> Self {
        let mut rounds = Rounds::before(graph, position);
        for active in &kept {
            rounds.keep(active.node);
        }
        Self {
            graph,
            state,
            position,
            reached: Vec::new(),
            sent: Vec::new(),
            arrived: BTreeMap::new(),
            abandoned_scopes: Vec::new(),
            kept,
            rounds,
        }
    }

    /// Returns the maps of which items stay: a map ends once, with its last item.
    fn open_maps(&self) -> BTreeSet<NodeIndex> {
        let items = self.kept.iter().filter(|it| it.is_dispatched()).map(|it| it.node);
        items.filter(|&it| self.policies(it).schedule.items.is_some()).collect()
    }

    fn follow(&mut self, record: &TaskRecord, active: IndexedActivation) {
        let (transitions, trigger) = match &record.outcome {
            Outcome::Finished { transitions, .. } | Outcome::Skipped { transitions, .. } => {
                (transitions, Trigger::Then { node: record.node.clone() })
            }
            // The failure is data, and the map goes its usual way.
            Outcome::Caught { transitions, .. } if record.outcome.is_collected() => {
                (transitions, Trigger::Then { node: record.node.clone() })
            }
            Outcome::Caught { transitions, failure, .. } => {
                self.note_caught(active.node, failure);
                let trigger = if self.policies(active.node).catch_of(failure).is_some() {
                    let (node, failure) = (record.node.clone(), Box::new(failure.clone()));
                    Trigger::Caught { node, failure }
                } else {
                    Trigger::Limit { error: failure.message.clone() }
                };
                (transitions, trigger)
            }
            // A limit of the run is reached: the task stays in the frontier, unless the run is routed
            // elsewhere.
            Outcome::Aborted => {
                self.rounds.keep(active.node);
                return self.kept.push(active);
            }
            _ => unreachable!("a step is committed when every record of it is final"),
        };
        for transition in transitions {
            match transition {
                Transition::To(Target::End) => (),
                Transition::To(Target::Fail) => self.fail(&record.node, &active, &trigger),
                Transition::To(Target::Node(name)) => {
                    let to = self.index(name);
                    self.rounds.lead(to, active.node);
                    let trigger = self.trigger_of_exit(&active, to, &trigger);
                    if let Some(reached) = self.reach(to, trigger) {
                        let abandoned = self.scopes_left(active.node, reached);
                        self.abandoned_scopes.extend(abandoned);
                    }
                }
                Transition::Join(name) => self.arrive(self.index(name), active.node, &trigger),
                Transition::Dispatch(dispatch) => self.send(dispatch, active.node, &trigger),
            }
        }
    }

    /// Activates a node, or its `exhausted` target if its bound is used up.
    fn reach(&mut self, node: NodeIndex, trigger: Trigger) -> Option<NodeIndex> {
        let meant = node;
        let (node, trigger) = self.follow_exhausted(0, node, trigger)?;
        self.rounds.enter(node, meant);
        self.reached.push((node, trigger));
        Some(node)
    }

    fn index(&self, name: &NodeName) -> NodeIndex {
        self.graph.index(name).expect("compile checked every target")
    }

    /// Returns the trigger of a node that a transition reaches. The `fail` of a used workflow is a failure of the node
    /// that uses it, and its `catch` leads here.
    fn trigger_of_exit(
        &self,
        active: &IndexedActivation,
        to: NodeIndex,
        trigger: &Trigger,
    ) -> Trigger {
        match trigger {
            Trigger::Then { node } if !self.scopes_left(active.node, to).is_empty() => {
                let reason = self.reason_of_fail(node, active, trigger);
                let failure = Box::new(Failure::new(ErrorKind::Other, reason));
                Trigger::Caught { node: node.clone(), failure }
            }
            _ => trigger.clone(),
        }
    }

    /// Returns the used workflows that a transition abandons. Only the last node of a workflow may leave it when
    /// the workflow is done; any other exit, such as a caught failure, abandons the remaining work in it.
    fn scopes_left(&self, from: NodeIndex, to: NodeIndex) -> Vec<String> {
        let mut abandoned = Vec::new();
        let ((from, spec), (to, _)) = (self.graph.at(from), self.graph.at(to));
        let done = match &spec.policies.schedule.defer {
            Some(Defer::Scope(done)) => Some(done),
            _ => None,
        };
        let own = from.scope();
        let is_done = done.is_some_and(|it| own == Some(it.as_str()));
        let mut scope = if is_done { done.and_then(NodeName::scope) } else { own };
        while let Some(inner) = scope.filter(|it| to.strip_scope(it).is_none()) {
            abandoned.push(inner.to_owned());
            scope = inner.rsplit_once('.').map(|(outer, _)| outer);
        }
        abandoned
    }

    fn drop_abandoned_scopes(&mut self) {
        for scope in &self.abandoned_scopes {
            let stays = |it: NodeIndex| self.graph.name_at(it).strip_scope(scope).is_none();
            self.reached.retain(|it| stays(it.0));
            self.sent.retain(|it| stays(it.node));
            self.kept.retain(|it| stays(it.node));
            self.position.joins.retain(|it, _| stays(*it));
            self.position.rounds.retain(|it, _| stays(*it));
            self.position.deferred.retain(|it, _| stays(*it));
        }
    }

    /// Decides which deferred nodes wait, and which run next.
    fn settle_deferred(&mut self) {
        loop {
            self.hold_back_deferred();
            if self.position.deferred.is_empty() {
                return;
            }
            self.release_free_deferred();
            // The targets of refused dispatches may have to wait themselves. The loop ends because each round has
            // fewer dispatches.
            if !self.refuse_reserved_dispatches() {
                return;
            }
        }
    }

    /// Lets the deferred nodes among the activated ones wait.
    fn hold_back_deferred(&mut self) {
        self.sort_reached();
        let graph = self.graph;
        let is_deferred = |it: NodeIndex| graph.policies_at(it).schedule.defer.is_some();
        for (node, trigger) in self.reached.extract_if(.., |it| is_deferred(it.0)) {
            self.position.deferred.entry(node).or_insert(trigger);
        }
    }

    /// Activates the deferred nodes that no longer need to wait.
    fn release_free_deferred(&mut self) {
        let tasks = self.sent.iter().chain(&self.kept).map(|it| it.node);
        let reached = self.reached.iter().map(|it| it.0);
        let running: BTreeSet<NodeIndex> = reached.chain(tasks).collect();
        let waiting: Vec<NodeIndex> = self.position.deferred.keys().copied().collect();
        for node in &waiting {
            if self.may_run(*node, &running, &waiting)
                && let Some(trigger) = self.position.deferred.remove(node)
            {
                // It waited longest, so its trigger is the first one.
                self.reached.insert(0, (*node, trigger));
            }
        }
        self.sort_reached();
    }

    /// Returns whether a deferred node waits for none of these: the nodes that run next, and the other deferred nodes.
    fn may_run(
        &self,
        node: NodeIndex,
        running: &BTreeSet<NodeIndex>,
        waiting: &[NodeIndex],
    ) -> bool {
        let name_and_defer = |it: NodeIndex| {
            let defer = self.policies(it).schedule.defer.as_ref()?;
            Some((self.graph.name_at(it), defer))
        };
        let Some((name, defer)) = name_and_defer(node) else { return true };
        let waits = |it: NodeIndex| it != node && waits_for(name, defer, self.graph.name_at(it));
        let comes_first = |other: NodeIndex| {
            name_and_defer(other).is_some_and(|(other, it)| rank(other, it) > rank(name, defer))
        };
        !running.iter().any(|&it| waits(it))
            && !waiting.iter().any(|&it| waits(it) && comes_first(it))
    }

    /// Sorts the activated nodes. A node that is reached several times gets the first trigger in task order.
    fn sort_reached(&mut self) {
        self.reached.sort_by_key(|it| it.0);
        self.reached.dedup_by_key(|it| it.0);
    }

    /// Refuses dispatches that would use up the bound of a deferred node, which has a visit reserved. Returns whether
    /// another node is activated in place of one of them.
    fn refuse_reserved_dispatches(&mut self) -> bool {
        let mut others_come = false;
        for dispatched in std::mem::take(&mut self.sent) {
            let reserved = u32::from(self.position.deferred.contains_key(&dispatched.node));
            others_come |= self.activate_dispatched(reserved, dispatched);
        }
        others_come
    }

    fn policies(&self, node: NodeIndex) -> &Policies {
        self.graph.policies_at(node)
    }

    fn send(&mut self, dispatch: &Dispatch, from: NodeIndex, trigger: &Trigger) {
        let node = self.index(&dispatch.node);
        self.rounds.lead(node, from);
        let (input, trigger) = (Input::Value(dispatch.input.clone()), trigger.clone());
        let timeout_ms = dispatch.timeout_ms;
        self.activate_dispatched(0, IndexedActivation { node, input, trigger, timeout_ms });
    }

    /// Activates a dispatched task, or the `exhausted` target if the bound of its node is used up. Returns whether it
    /// is the latter. This many visits of the node are already reserved.
    fn activate_dispatched(&mut self, reserved: u32, dispatched: IndexedActivation) -> bool {
        let IndexedActivation { node, input, trigger, timeout_ms } = dispatched;
        match self.follow_exhausted(reserved, node, trigger) {
            Some((within, trigger)) if within == node => {
                self.sent.push(IndexedActivation { node, input, trigger, timeout_ms });
                false
            }
            Some((instead, trigger)) => {
                self.rounds.enter(instead, node);
                self.reached.push((instead, trigger));
                true
            }
            None => false,
        }
    }

    fn arrive(&mut self, to: NodeIndex, from: NodeIndex, trigger: &Trigger) {
        if self.position.rounds.get(&to).is_some_and(|it| it.absorbs(&from)) {
            return;
        }
        self.rounds.lead(to, from);
        self.position.joins.entry(to).or_default().insert(from);
        self.arrived.insert(to, trigger.clone());
    }

    /// Activates the joins whose waiting is over.
    ///
    /// This runs after all arrivals of the step: a node that was dispatched three times arrives three times,
    /// and arrivals after the last one needed must not count for the next round.
    fn complete_joins(&mut self) {
        if self.arrived.is_empty() {
            return;
        }
        for (node, trigger) in std::mem::take(&mut self.arrived) {
            let arrived = self.position.joins.get(&node).map_or(0, BTreeSet::len);
            if arrived >= self.graph.count_at(node) {
                let arrived = self.position.joins.remove(&node).unwrap_or_default();
                self.rounds.fire(self.graph, node, &arrived);
                let _ = self.reach(node, trigger);
            }
        }
    }

    /// Passes the rounds of joins on to the tasks of the next step.
    fn renew_rounds(&mut self) {
        if !self.graph.has_partial_joins() {
            return;
        }
        let IndexedPosition { joins, deferred, rounds, .. } = &mut *self.position;
        let tasks = self.sent.iter().chain(&self.kept).map(|it| it.node);
        let waiting = joins.keys().chain(deferred.keys()).copied();
        let reached = self.reached.iter().map(|it| it.0);
        let active = reached.chain(tasks).chain(waiting).collect();
        *rounds = self.rounds.after(self.graph, std::mem::take(rounds), &active);
    }

    /// Follows `exhausted` until it reaches a node that may still run. If there is none, the run may have failed. This
    /// many visits of the first node are already reserved.
    ///
    /// It terminates because `compile` refuses graphs whose `exhausted` targets form a cycle.
    fn follow_exhausted(
        &mut self,
        mut reserved: u32,
        mut node: NodeIndex,
        mut trigger: Trigger,
    ) -> Option<(NodeIndex, Trigger)> {
        loop {
            let name = self.graph.name_at(node);
            let policies = self.policies(node);
            let visits = self.position.visits.at(node.index()).unwrap_or(0);
            let visits = visits.saturating_add(std::mem::take(&mut reserved));
            let node_usage = self.position.used.node_usage.get(name).copied().unwrap_or_default();
            let max_visits = match self.state {
                Some(state) => policies.bounds.max_visits_in(state),
                None => policies.bounds.max_visits,
            };
            if let Some(max_visits) = max_visits.filter(|&max| visits >= max) {
                let cause = self.cause(node, &trigger).map(str::to_owned);
                trigger = Trigger::Exhausted { node: name.clone(), max_visits, cause };
            } else if let Some(error) = budget::reached_by_node(name, policies, node_usage) {
                trigger = Trigger::Limit { error: with_cause(error, self.cause(node, &trigger)) };
            } else {
                return Some((node, trigger));
            }
            match &policies.bounds.exhausted {
                Some(Target::Node(next)) => node = self.index(next),
                Some(Target::End) => return None,
                Some(Target::Fail) | None => {
                    self.position.failure = self.position.failure.take().or(trigger.error());
                    return None;
                }
            }
        }
    }

    /// Notes the failure of a node with a bound: the node that handles it may lead back, until the bound is used up.
    fn note_caught(&mut self, node: NodeIndex, failure: &Failure) {
        let policies = self.policies(node);
        if policies.bounds.is_bounded() {
            let error = failure.message.chars().take(REASON_CHARACTERS_MAX).collect();
            self.position.caught.insert(node, error);
        }
    }

    /// Returns the error behind a visit of a node: that of the trigger, or the last one of the node itself.
    fn cause<'t>(&'t self, node: NodeIndex, trigger: &'t Trigger) -> Option<&'t str> {
        trigger.cause().or(self.position.caught.get(&node).map(String::as_str))
    }

    /// Handles a route to `fail`.
    fn fail(&mut self, node: &NodeName, active: &IndexedActivation, trigger: &Trigger) {
        let reason = self.reason_of_fail(node, active, trigger);
        self.position.failure.get_or_insert(reason);
    }

    /// Returns the reason of a route to `fail`: the text that the node names, and the error that led to the node, if there
    /// are any.
    fn reason_of_fail(
        &self,
        node: &NodeName,
        active: &IndexedActivation,
        trigger: &Trigger,
    ) -> String {
        let cause = trigger.error().or(active.trigger.error());
        let field = self.policies(active.node).on_finish.fail_reason.as_ref();
        let text = field.and_then(|it| self.state?.get(it.as_str())).map(|it| match it.as_str() {
            Some(text) => text.to_owned(),
            None => it.to_string(),
        });
        let text = text.map(|it| it.chars().take(REASON_CHARACTERS_MAX).collect::<String>());
        match (text, cause) {
            (Some(text), cause) => {
                with_cause(format!("`{node}` ended the run: {}", text.trim()), cause.as_deref())
            }
            (None, Some(cause)) => format!("`{node}` ended the run: {cause}"),
            (None, None) => format!("`{node}` ended the run"),
        }
    }
}

/// Returns whether a deferred node lets another one run first.
pub(super) fn waits_for(name: &NodeName, defer: &Defer, other: &NodeName) -> bool {
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
fn starved(graph: &CompiledGraph, position: &IndexedPosition) -> Option<String> {
    let (join, arrived) = position.joins.iter().next().filter(|_| position.frontier.is_empty())?;
    let has_arrived = |it: &NodeName| graph.index(it).is_some_and(|it| arrived.contains(&it));
    let awaited = graph.awaited_at(*join).iter().filter(|it| !has_arrived(it));
    let missing: Vec<String> = awaited.map(|it| format!("`{it}`")).collect();
    let name = graph.name_at(*join);
    let still_needed = graph.count_at(*join).saturating_sub(arrived.len());
    let some =
        if still_needed < missing.len() { format!("{still_needed} of ") } else { String::new() };
    Some(format!("`{name}` waits for {some}{}, and nothing is left to run", missing.join(", ")))
}

/// Fills the frontier: activated nodes, once each and by name, then dispatches in the order they were sent.
///
/// This order is the order of the updates. Visits are counted once per step. Tasks that stay were counted
/// when they were activated.
fn fill(
    position: &mut IndexedPosition,
    kept: Vec<IndexedActivation>,
    mut reached: Vec<(NodeIndex, Trigger)>,
    sent: Vec<IndexedActivation>,
) {
    if kept.is_empty() && sent.is_empty() {
        // The usual case: the nodes are sorted.
        for (node, trigger) in reached {
            position.count_visit(node);
            position.frontier.push(IndexedActivation::by_edge(node, trigger));
        }
        return;
    }
    let (by_edges, dispatched): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|it| it.input == Input::State);
    reached.retain(|(node, _)| by_edges.iter().all(|it| it.node != *node));
    let mut counted: Vec<NodeIndex> = reached.iter().map(|it| it.0).collect();
    position.frontier.extend(by_edges);
    for (node, trigger) in reached {
        position.frontier.push(IndexedActivation::by_edge(node, trigger));
    }
    position.frontier.sort_by_key(|it| it.node);
    position.frontier.extend(dispatched);
    position.frontier.reserve_exact(sent.len());
    for active in sent {
        if counted.last() != Some(&active.node) {
            counted.push(active.node);
        }
        position.frontier.push(active);
    }
    counted.sort();
    counted.dedup();
    for node in counted {
        position.count_visit(node);
    }
}
