//! What follows when a run reaches a limit: it continues at `limits.exhausted`, if that is set.

use std::collections::BTreeSet;

use graphrun_analysis::CompiledGraph;
use graphrun_core::graph::{Limits, Target, Trigger};

use super::indexed::{IndexedActivation, IndexedPosition};
use crate::budget::{self, Budget, StepLimits};

/// Routes a run that reached a limit to `limits.exhausted`, if that is set.
pub(super) fn route_limit(
    graph: &CompiledGraph,
    StepLimits { limits, refused_call }: StepLimits<'_>,
    position: &mut IndexedPosition,
) {
    let nodes = position.frontier.iter().map(|it| it.node);
    let budget = Budget::after(limits, position.steps_of_turn(), &position.used);
    let budget = budget.with_next_call(refused_call);
    if let Some(reason) = budget.reached_limit(|| budget::may_call_models(graph, nodes)) {
        route_to_exhausted(graph, limits, position, reason);
    }
}

/// Replaces the frontier by `limits.exhausted`, if that is set, because a limit is reached.
pub(super) fn route_to_exhausted(
    graph: &CompiledGraph,
    limits: &Limits,
    position: &mut IndexedPosition,
    reason: String,
) {
    let Some(target) = &limits.exhausted else { return };
    position.used.exhaust(limits, reason.clone());
    position.deferred.clear();
    // The nodes they wait for are dropped with the frontier.
    position.joins.clear();
    position.rounds.clear();
    let dropped = std::mem::take(&mut position.frontier).into_iter().map(|it| it.node);
    for node in dropped.collect::<BTreeSet<_>>() {
        // The dropped task was counted at activation, but does not run.
        let visits = position.visits_mut();
        let count = visits.at(node.index()).unwrap_or(0);
        visits.set(node.index(), Some(count.saturating_sub(1)));
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
