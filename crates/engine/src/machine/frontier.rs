//! Computes the frontier of the next step from transitions, joins, bounds and limits.
//!
//! Deferred nodes are the hard part. A deferred node runs once, after all other work of its workflow. When a transition
//! reaches it, it enters `position.deferred`. It leaves when neither the next tasks nor another deferred node must come
//! first; deferred nodes of inner workflows come first.
//!
//! A dispatch to a deferred node never waits, and it needs a separate visit: one visit stays reserved for the deferred run.
//! If the bound has no other, the dispatch goes to the node's `exhausted` target. That target may itself be deferred, so
//! the decision repeats until no dispatch is refused.
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
    state::{State, plain_text},
    words::quoted_list,
};

use super::{
    RestoreError,
    deferred::{rank, waits_for},
    indexed::{IndexedActivation, IndexedPosition},
    limits::{route_if_limit_reached, shortened},
    rounds::Rounds,
};
use crate::{
    budget::{self, StepLimits},
    checkpoint::{Outcome, Position, TaskRecord, TaskUsage, is_followed},
};

/// The results of a step.
pub(super) struct StepResults<'a> {
    /// The records of its tasks: `records[i]` belongs to `frontier[i]`. Activations beyond the last record stay in the
    /// frontier; they exist only in steps made by a person.
    pub(super) records: &'a [Arc<TaskRecord>],
    /// The state after the step.
    pub(super) state: &'a State,
}

/// Adds the first nodes of a graph to an empty frontier. A node that is named twice runs once, like one with two incoming
/// edges, and a deferred one waits for the others.
pub(super) fn first_frontier(graph: &CompiledGraph, position: &mut IndexedPosition) {
    let mut first = FrontierBuilder::new(graph, None, position, Vec::new());
    let nodes = graph.definition().entry.iter().filter_map(|it| graph.index(it));
    first.activated = nodes.map(|it| (it, Trigger::Start)).collect();
    first.resolve_deferred();
    first.fill(Vec::new());
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
    let staying = before.split_off(records.len().min(before.len()));
    let mut next = FrontierBuilder::new(graph, Some(state), position, staying);
    let open_maps = next.open_maps();
    let is_followed = is_followed(records.iter().map(|it| &**it));
    for (record, active) in records.iter().zip(before.drain(..)) {
        // A task that an edge started follows its transitions as usual, even if items of its node run in this step.
        let is_of_open_map = || open_maps.contains(&active.node);
        if !active.is_dispatched() || (is_followed(record) && !is_of_open_map()) {
            next.follow(record, active);
        }
    }
    next.complete_joins();
    next.drop_abandoned_scopes();
    next.resolve_deferred();
    next.renew_rounds();
    // `before` is empty by now; its memory is used again.
    next.fill(before);

    position.failure = position.failure.take().or_else(|| starvation_failure(graph, position));
    if position.failure.is_some() {
        position.frontier.clear();
        position.deferred.clear();
        position.rounds.clear();
    } else if !position.frontier.is_empty() {
        route_if_limit_reached(graph, limits, position);
    }
}

/// Adds the usage of finished tasks to the budget, and resets the visits that they reset.
fn count_records<'a>(
    graph: &CompiledGraph,
    position: &mut IndexedPosition,
    finished: impl Iterator<Item = (&'a Arc<TaskRecord>, &'a IndexedActivation)>,
) {
    for (record, active) in finished {
        count_usage(graph, position, active.node, record.used());
        if let Outcome::Finished { .. } = record.outcome {
            position.caught.remove(&active.node);
            let on_finish = &graph.policies_at(active.node).on_finish;
            for reset in on_finish.resets.iter().filter_map(|it| graph.index(it)) {
                position.visits_mut().set(reset.index(), None);
            }
        }
    }
}

/// Adds the usage of a task of a node to the budget.
pub(super) fn count_usage(
    graph: &CompiledGraph,
    position: &mut IndexedPosition,
    node: NodeIndex,
    used: TaskUsage,
) {
    position.used.usage.add(&used.usage);
    if is_counted_alone(graph, node) {
        let name = graph.name_at(node).clone();
        position.used.node_usage.entry(name).or_default().add(used);
    }
}

/// Returns whether the usage of a node is counted apart from that of the run: for its limits, or for expressions and prompts.
pub(super) fn is_counted_alone(graph: &CompiledGraph, node: NodeIndex) -> bool {
    let (name, spec) = graph.at(node);
    spec.policies.bounds.limits.is_some() || graph.definition().facts.usage_of.contains(name)
}

/// Returns the joins and deferred nodes that no longer wait for anything in a position changed by a person,
/// with their triggers. The frontier does not change.
pub(super) fn activate_released(
    graph: &CompiledGraph,
    state: Option<&State>,
    position: &mut Position,
) -> Result<BTreeMap<NodeName, Trigger>, RestoreError> {
    let removed = std::mem::take(&mut position.removed_messages);
    let mut indexed = IndexedPosition::of(graph, std::mem::take(position))?;
    let name = |it: NodeIndex| graph.name_at(it).clone();
    let trigger = |&it: &NodeIndex| Trigger::Then { node: name(it) };
    let arrived = indexed.joins.iter();
    let arrived = arrived.map(|(to, it)| (*to, it.last().map_or(Trigger::Start, trigger)));
    let arrived = arrived.collect();
    let staying = indexed.frontier.clone();
    let mut next = FrontierBuilder::new(graph, state, &mut indexed, staying);
    next.arrived = arrived;
    next.complete_joins();
    next.resolve_deferred();
    next.renew_rounds();
    let activated = next.activated;
    for (node, _) in &activated {
        indexed.count_visit(*node);
    }
    *position = indexed.named(graph, &removed);
    Ok(activated.into_iter().map(|(it, trigger)| (name(it), trigger)).collect())
}

/// Collects the targets of the tasks of a step.
struct FrontierBuilder<'a> {
    graph: &'a CompiledGraph,
    /// The state after the step; `None` if the position was changed by a person and no bound reads the state.
    state: Option<&'a State>,
    position: &'a mut IndexedPosition,
    /// The nodes that are activated, in the order of their transitions until they are sorted.
    activated: Vec<(NodeIndex, Trigger)>,
    dispatched: Vec<IndexedActivation>,
    /// The joins with arrivals in this step, with the last arrival of each.
    arrived: BTreeMap<NodeIndex, Trigger>,
    /// The used workflows that a transition left before they finished.
    abandoned_scopes: Vec<String>,
    /// The tasks of the old frontier that stay.
    staying: Vec<IndexedActivation>,
    rounds: Rounds,
}

impl<'a> FrontierBuilder<'a> {
    /// Begins the frontier after this position. These tasks of its frontier stay.
    fn new(
        graph: &'a CompiledGraph,
        state: Option<&'a State>,
        position: &'a mut IndexedPosition,
        staying: Vec<IndexedActivation>,
    ) -> Self {
        let mut rounds = Rounds::before(graph, position);
        for active in &staying {
            rounds.note_staying(active.node);
        }
        Self {
            graph,
            state,
            position,
            activated: Vec::new(),
            dispatched: Vec::new(),
            arrived: BTreeMap::new(),
            abandoned_scopes: Vec::new(),
            staying,
            rounds,
        }
    }

    /// Returns the maps of which items stay: a map ends once, with its last item.
    fn open_maps(&self) -> BTreeSet<NodeIndex> {
        let items = self.staying.iter().filter(|it| it.is_dispatched()).map(|it| it.node);
        items.filter(|&it| self.policies(it).schedule.items.is_some()).collect()
    }

    fn follow(&mut self, record: &TaskRecord, active: IndexedActivation) {
        let (transitions, trigger) = match &record.outcome {
            Outcome::Finished { transitions, .. } | Outcome::Skipped { transitions, .. } => {
                (transitions, Trigger::Then { node: record.node.clone() })
            }
            // The failure is data, and the map takes its usual edge.
            Outcome::Caught { transitions, .. } if record.outcome.is_collected() => {
                (transitions, Trigger::Then { node: record.node.clone() })
            }
            Outcome::Caught { transitions, failure, .. } => {
                self.note_caught(active.node, failure);
                let is_caught = || self.policies(active.node).catch_of(failure).is_some();
                let trigger = if failure.is_node_limit() && !is_caught() {
                    Trigger::Limit { error: failure.message.clone() }
                } else {
                    let node = record.node.clone();
                    let failure = Box::new(failure.clone());
                    Trigger::Caught { node, failure }
                };
                (transitions, trigger)
            }
            // A limit of the run is reached: the task stays in the frontier, unless the run is routed
            // elsewhere.
            Outcome::Aborted => {
                self.rounds.note_staying(active.node);
                return self.staying.push(active);
            }
            _ => unreachable!("a step is committed when every record of it is final"),
        };
        for transition in transitions {
            match transition {
                Transition::To(Target::End) => (),
                Transition::To(Target::Fail) => self.fail_run(&record.node, &active, &trigger),
                Transition::To(Target::Node(name)) => {
                    let to = self.index(name);
                    self.rounds.note_source(to, active.node);
                    let trigger = self.trigger_at_target(&active, to, &trigger);
                    if let Some(activated) = self.activate(to, trigger) {
                        let abandoned = self.scopes_abandoned_by(active.node, activated);
                        self.abandoned_scopes.extend(abandoned);
                    }
                }
                Transition::Join(name) => self.arrive(self.index(name), active.node, &trigger),
                Transition::Dispatch(dispatch) => self.dispatch(dispatch, active.node, &trigger),
            }
        }
    }

    /// Activates a node, or its `exhausted` target if its bound is used up.
    fn activate(&mut self, node: NodeIndex, trigger: Trigger) -> Option<NodeIndex> {
        let meant = node;
        let (node, trigger) = self.follow_exhausted(0, node, trigger)?;
        self.push_activated(node, meant, trigger);
        Some(node)
    }

    /// Activates a node in place of the one that was meant, which may be the same.
    fn push_activated(&mut self, node: NodeIndex, meant: NodeIndex, trigger: Trigger) {
        self.rounds.note_activated(node, meant);
        self.activated.push((node, trigger));
    }

    fn index(&self, name: &NodeName) -> NodeIndex {
        self.graph.index(name).expect("compile checked every target")
    }

    /// Returns the trigger of a node that a transition reaches. The `fail` of a used workflow is a failure of the node
    /// that uses it, and its `catch` leads here.
    fn trigger_at_target(
        &self,
        active: &IndexedActivation,
        to: NodeIndex,
        trigger: &Trigger,
    ) -> Trigger {
        match trigger {
            Trigger::Then { node } if !self.scopes_abandoned_by(active.node, to).is_empty() => {
                let reason = self.reason_of_fail(node, active, trigger);
                let failure = Box::new(Failure::new(ErrorKind::Other, reason));
                Trigger::Caught { node: node.clone(), failure }
            }
            _ => trigger.clone(),
        }
    }

    /// Returns the used workflows that a transition abandons. Only the last node of a workflow may leave it when
    /// the workflow is done; any other exit, such as a caught failure, abandons the remaining work in it.
    fn scopes_abandoned_by(&self, from: NodeIndex, to: NodeIndex) -> Vec<String> {
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
            self.activated.retain(|it| stays(it.0));
            self.dispatched.retain(|it| stays(it.node));
            self.staying.retain(|it| stays(it.node));
            self.position.joins.retain(|it, _| stays(*it));
            self.position.rounds.retain(|it, _| stays(*it));
            self.position.deferred.retain(|it, _| stays(*it));
        }
    }

    /// Decides which deferred nodes wait, and which run next.
    fn resolve_deferred(&mut self) {
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
        self.sort_activated();
        let graph = self.graph;
        let is_deferred = |it: NodeIndex| graph.policies_at(it).schedule.defer.is_some();
        for (node, trigger) in self.activated.extract_if(.., |it| is_deferred(it.0)) {
            self.position.deferred.entry(node).or_insert(trigger);
        }
    }

    /// Activates the deferred nodes that no longer need to wait.
    fn release_free_deferred(&mut self) {
        let tasks = self.dispatched.iter().chain(&self.staying).map(|it| it.node);
        let activated = self.activated.iter().map(|it| it.0);
        let running: BTreeSet<NodeIndex> = activated.chain(tasks).collect();
        let waiting: Vec<NodeIndex> = self.position.deferred.keys().copied().collect();
        for node in &waiting {
            if self.may_run(*node, &running, &waiting)
                && let Some(trigger) = self.position.deferred.remove(node)
            {
                // It waited longest, so its trigger is the first one.
                self.activated.insert(0, (*node, trigger));
            }
        }
        self.sort_activated();
    }

    /// Returns whether a deferred node waits for none of these: the nodes that run next, and the other deferred nodes.
    fn may_run(
        &self,
        node: NodeIndex,
        running: &BTreeSet<NodeIndex>,
        waiting: &[NodeIndex],
    ) -> bool {
        let name_and_defer = |node: NodeIndex| {
            let defer = self.policies(node).schedule.defer.as_ref()?;
            Some((self.graph.name_at(node), defer))
        };
        let Some((name, defer)) = name_and_defer(node) else { return true };
        let waits =
            |other: NodeIndex| other != node && waits_for(name, defer, self.graph.name_at(other));
        let comes_first = |other: NodeIndex| {
            name_and_defer(other).is_some_and(|(other, it)| rank(other, it) > rank(name, defer))
        };
        !running.iter().any(|&it| waits(it))
            && !waiting.iter().any(|&it| waits(it) && comes_first(it))
    }

    /// Sorts the activated nodes. A node that is activated several times gets the first trigger in task order.
    fn sort_activated(&mut self) {
        self.activated.sort_by_key(|it| it.0);
        self.activated.dedup_by_key(|it| it.0);
    }

    /// Refuses dispatches that would use up the bound of a deferred node, which has a visit reserved. Returns whether
    /// another node is activated in place of one of them.
    fn refuse_reserved_dispatches(&mut self) -> bool {
        let mut others_come = false;
        for dispatched in std::mem::take(&mut self.dispatched) {
            let reserved = u32::from(self.position.deferred.contains_key(&dispatched.node));
            others_come |= self.activate_dispatched(reserved, dispatched);
        }
        others_come
    }

    fn policies(&self, node: NodeIndex) -> &Policies {
        self.graph.policies_at(node)
    }

    fn dispatch(&mut self, dispatch: &Dispatch, from: NodeIndex, trigger: &Trigger) {
        let node = self.index(&dispatch.node);
        self.rounds.note_source(node, from);
        let input = Input::Value(dispatch.input.clone());
        let trigger = trigger.clone();
        let timeout_ms = dispatch.timeout_ms;
        self.activate_dispatched(0, IndexedActivation { node, input, trigger, timeout_ms });
    }

    /// Activates a dispatched task, or the `exhausted` target if the bound of its node is used up. Returns whether it
    /// is the latter. This many visits of the node are already reserved.
    fn activate_dispatched(&mut self, reserved: u32, dispatched: IndexedActivation) -> bool {
        let IndexedActivation { node, input, trigger, timeout_ms } = dispatched;
        match self.follow_exhausted(reserved, node, trigger) {
            Some((within, trigger)) if within == node => {
                self.dispatched.push(IndexedActivation { node, input, trigger, timeout_ms });
                false
            }
            Some((instead, trigger)) => {
                self.push_activated(instead, node, trigger);
                true
            }
            None => false,
        }
    }

    fn arrive(&mut self, to: NodeIndex, from: NodeIndex, trigger: &Trigger) {
        if self.position.rounds.get(&to).is_some_and(|it| it.absorbs(&from)) {
            return;
        }
        self.rounds.note_source(to, from);
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
            if arrived >= self.graph.arrivals_needed_at(node) {
                let arrived = self.position.joins.remove(&node).unwrap_or_default();
                self.rounds.note_completed(self.graph, node, &arrived);
                let _ = self.activate(node, trigger);
            }
        }
    }

    /// Passes the rounds of joins on to the tasks of the next step.
    fn renew_rounds(&mut self) {
        if !self.graph.has_partial_joins() {
            return;
        }
        let IndexedPosition { joins, deferred, rounds, .. } = &mut *self.position;
        let tasks = self.dispatched.iter().chain(&self.staying).map(|it| it.node);
        let waiting = joins.keys().chain(deferred.keys()).copied();
        let activated = self.activated.iter().map(|it| it.0);
        let active = activated.chain(tasks).chain(waiting).collect();
        *rounds = self.rounds.after(self.graph, std::mem::take(rounds), &active);
    }

    /// Follows `exhausted` until it reaches a node that may still run. If there is none, the run may have failed.
    /// `reserved` visits of the first node count as used; no visit is reserved at the nodes after it.
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
            let visits = self.position.visits_of(node).saturating_add(reserved);
            reserved = 0;
            let node_usage = self.position.used.node_usage.get(name).copied().unwrap_or_default();
            let max_visits = match self.state {
                Some(state) => policies.bounds.max_visits_in(state),
                None => policies.bounds.max_visits,
            };
            if let Some(max_visits) = max_visits.filter(|&max| visits >= max) {
                let cause = self.position.cause(node, &trigger).map(str::to_owned);
                trigger = Trigger::Exhausted { node: name.clone(), max_visits, cause };
            } else if let Some(error) = budget::reached_by_node(name, policies, node_usage) {
                trigger = Trigger::Limit {
                    error: with_cause(error, self.position.cause(node, &trigger)),
                };
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
            let error = shortened(&failure.message);
            self.position.caught.insert(node, error);
        }
    }

    /// Handles a route to `fail`.
    fn fail_run(&mut self, node: &NodeName, active: &IndexedActivation, trigger: &Trigger) {
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
        let text = field.and_then(|it| self.state?.get(it.as_str())).map(plain_text);
        // A text for people often holds the error already.
        let is_included = |error: &str| text.as_ref().is_some_and(|it| it.contains(error.trim()));
        let cause = cause.filter(|it| !is_included(it));
        let text = text.map(|it| shortened(&it));
        match (text, cause) {
            (Some(text), cause) => {
                with_cause(format!("`{node}` ended the run: {}", text.trim()), cause.as_deref())
            }
            (None, Some(cause)) => format!("`{node}` ended the run: {cause}"),
            (None, None) => format!("`{node}` ended the run"),
        }
    }

    /// Fills the frontier: activated nodes, once each and by name, then dispatched tasks in their order. The memory of the
    /// old frontier is used again.
    ///
    /// This order is the order of the updates. Visits are counted once per step. Tasks that stay were counted when they
    /// were activated.
    fn fill(self, memory: Vec<IndexedActivation>) {
        let Self { position, mut activated, dispatched, staying, .. } = self;
        position.frontier = memory;
        if staying.is_empty() && dispatched.is_empty() {
            // The usual case: the nodes are sorted.
            for (node, trigger) in activated {
                position.count_visit(node);
                position.frontier.push(IndexedActivation::by_edge(node, trigger));
            }
            return;
        }
        let (staying_dispatched, staying): (Vec<_>, Vec<_>) =
            staying.into_iter().partition(IndexedActivation::is_dispatched);
        activated.retain(|(node, _)| staying.iter().all(|it| it.node != *node));
        let mut counted: Vec<NodeIndex> = activated.iter().map(|it| it.0).collect();
        position.frontier.extend(staying);
        for (node, trigger) in activated {
            position.frontier.push(IndexedActivation::by_edge(node, trigger));
        }
        position.frontier.sort_by_key(|it| it.node);
        position.frontier.extend(staying_dispatched);
        position.frontier.reserve_exact(dispatched.len());
        for active in dispatched {
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
}

/// Returns the failure of a run that has nothing left to run while a join still waits.
fn starvation_failure(graph: &CompiledGraph, position: &IndexedPosition) -> Option<String> {
    let (join, arrived) = position.joins.iter().next().filter(|_| position.frontier.is_empty())?;
    let has_arrived = |name: &NodeName| graph.index(name).is_some_and(|it| arrived.contains(&it));
    let awaited = graph.awaited_at(*join).iter().filter(|it| !has_arrived(it));
    let missing: Vec<&NodeName> = awaited.collect();
    let name = graph.name_at(*join);
    let still_needed = graph.arrivals_needed_at(*join).saturating_sub(arrived.len());
    let some =
        if still_needed < missing.len() { format!("{still_needed} of ") } else { String::new() };
    Some(format!("`{name}` waits for {some}{}, and nothing is left to run", quoted_list(missing)))
}
