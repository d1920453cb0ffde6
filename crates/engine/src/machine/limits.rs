//! What follows when a run reaches a limit: it continues at `limits.exhausted`, if that is set.

use std::collections::BTreeSet;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{Status, Usage},
    graph::{Graph, Limits, Target, Trigger, with_cause},
    id::{ChannelName, NodeName},
};
use serde_json::Value;

use super::{
    Action, Machine,
    indexed::{IndexedActivation, IndexedPosition},
};
use crate::{
    budget::{self, Budget, StepLimits},
    checkpoint::{InboxMessage, Message, Position},
};

/// The longest text of the state in the reason of a failure, in characters.
const REASON_CHARACTERS_MAX: usize = 2_000;

impl Machine {
    /// Ends the step early: running tasks were aborted, and a limit of the run is reached.
    ///
    /// The run stops as `limit`, or is routed to `limits.exhausted` with the finished results. If a task has
    /// failed for good, it stops as failed, as it would have done without the limit.
    pub fn end_step_at_limit(&mut self, refused_call: Usage) -> Vec<Action> {
        if self.open_step.failure().is_some() {
            return vec![Action::Stop(self.open_status())];
        }
        let reached = self.budget().with_next_call(refused_call).limit_that_ended_step();
        if !self.can_route_to_exhausted() {
            return vec![Action::stop(Status::Limit, Some(reached))];
        }
        self.route_at_limit(&reached);
        self.take_actions()
    }

    /// Ends the step, and continues at `limits.exhausted`.
    pub(super) fn route_at_limit(&mut self, reached: &str) {
        for index in 0..self.open_step.tasks().len() {
            if self.open_step.tasks()[index].record.is_none() {
                // The task waits for its turn, its next attempt or a person, or the step has not begun.
                self.actions.push(self.open_step.abort(index).into());
            }
        }
        if self.commit(Some(reached)) {
            self.advance();
        }
    }

    /// Returns a copy of the run that continues at `limits.exhausted`, because a limit is reached before the open step, with
    /// its first actions; nothing if that cannot be. Only explorations of a graph use this.
    pub fn branch_at_limit(&self, reason: String) -> Option<(Self, Vec<Action>)> {
        if !self.can_route_to_exhausted() {
            return None;
        }
        let mut machine = self.clone();
        route_to_exhausted(&machine.graph, &machine.limits, &mut machine.position, reason);
        machine.open_next_step();
        if machine.begin_step() {
            machine.advance();
        }
        let actions = machine.take_actions();
        Some((machine, actions))
    }

    /// Returns a copy of the run to which a person has sent a message before the open step, with its first actions; nothing
    /// if no task can read it. Only explorations of a graph use this.
    pub fn branch_with_message(
        &self,
        channel: ChannelName,
        value: Value,
    ) -> Option<(Self, Vec<Action>)> {
        let mut machine = self.clone();
        let (id, at) = Default::default();
        let message = Message { id, channel, value, by: None, at };
        machine.inbox.add(vec![InboxMessage { number: self.inbox.last() + 1, message }]);
        if !machine.process_inbox() {
            return None;
        }
        if machine.begin_step() {
            machine.advance();
        }
        let actions = machine.take_actions();
        Some((machine, actions))
    }

    /// Returns whether a reached limit leads to `limits.exhausted`. This happens once in a run.
    pub(super) fn can_route_to_exhausted(&self) -> bool {
        self.limits.exhausted.is_some() && self.position.used.limit.is_none()
    }
}

/// Returns whether a node has used up its own limits at a position, so that it does not run again.
pub fn has_used_up_limits(graph: &Graph, position: &Position, node: &NodeName) -> bool {
    let used = position.used.node_usage.get(node).copied().unwrap_or_default();
    let policies = graph.nodes.get(node).map(|it| &it.policies);
    policies.is_some_and(|it| budget::reached_by_node(node, it, used).is_some())
}

/// Routes a run that reached a limit to `limits.exhausted`, if that is set and the run was not routed there before.
pub(super) fn route_if_limit_reached(
    graph: &CompiledGraph,
    StepLimits { limits, reached }: StepLimits<'_>,
    position: &mut IndexedPosition,
) {
    if position.used.limit.is_some() {
        return;
    }
    let nodes = position.frontier.iter().map(|it| it.node);
    let budget = Budget::after(limits, position.steps_of_turn(), &position.used);
    let may_call_models = || budget::may_call_models(graph, nodes);
    let reached = reached.map(str::to_owned).or_else(|| budget.reached_limit(may_call_models));
    if let Some(reason) = reached {
        route_to_exhausted(graph, limits, position, reason);
    }
}

/// Replaces the frontier by `limits.exhausted`, if that is set, because a limit is reached.
fn route_to_exhausted(
    graph: &CompiledGraph,
    limits: &Limits,
    position: &mut IndexedPosition,
    reason: String,
) {
    let Some(target) = &limits.exhausted else { return };
    // A limit that is reached while the run handles an error hides it otherwise.
    let cause = position.frontier.iter().find_map(|it| position.cause(it.node, &it.trigger));
    let reason = with_cause(reason, cause.map(shortened).as_deref());
    position.used.exhaust(limits, reason.clone());
    position.deferred.clear();
    // The names of dropped tasks that may have begun under others.
    position.original_tasks.clear();
    // The nodes they wait for are dropped with the frontier.
    position.joins.clear();
    position.rounds.clear();
    let dropped = std::mem::take(&mut position.frontier).into_iter().map(|it| it.node);
    for node in dropped.collect::<BTreeSet<_>>() {
        // The dropped task was counted at activation, but does not run.
        position.uncount_visit(node);
    }
    match target {
        Target::Node(node) => {
            let node = graph.index(node).expect("compile checked every target");
            position.count_visit(node);
            let trigger = Trigger::Limit { error: reason };
            position.frontier.push(IndexedActivation::by_edge(node, trigger));
        }
        Target::Fail => position.failure = Some(reason),
        Target::End => (),
    }
}

/// Returns the beginning of a text, as long as a reason may be.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(REASON_CHARACTERS_MAX).collect()
}
