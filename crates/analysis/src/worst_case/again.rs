//! The worst case of a nested run that is tried again after a failure.
//!
//! Finished tasks do not run again, so a further attempt repeats the tasks of one step: the failed one and those beside it. A
//! run that a route, a bound or a limit led to failure has nothing to continue, and begins anew.

use graphrun_core::{
    graph::{Edge, Graph, Target},
    id::NodeName,
};

use super::steps::calls_of_task;
use crate::{
    CompiledGraph,
    flow_model::{Bits, Concurrency, Draft, FlowModel},
};

/// Returns the most model calls of a further attempt, if they are known.
pub(crate) fn calls_again_max(graph: &CompiledGraph) -> Option<u64> {
    let all = graph.calls_max()?;
    let of_node = |name: &NodeName| calls_of_task(&graph.definition().nodes[name]);
    Some(most_again(graph, all, of_node).unwrap_or(all))
}

/// Returns an upper bound of a resource for a retried nested run. `all` is the amount of a whole run, `of_node` that of one
/// task of a node. Returns `None` if `of_node` does for a node.
pub(crate) fn most_again(
    graph: &CompiledGraph,
    all: u64,
    of_node: impl Fn(&NodeName) -> Option<u64>,
) -> Option<u64> {
    if may_fail_by_design(graph.definition()) {
        return Some(all);
    }
    let model = FlowModel::of(&Draft::of(graph.definition()));
    let used = graph.names().iter().map(of_node).collect::<Option<Vec<u64>>>()?;
    let beside = Concurrency::between(&model).all(&model);
    let in_a_step = |(node, beside): (usize, &Bits)| {
        let others = beside.iter().filter(|it| *it != node).map(|it| used[it]);
        others.fold(used[node], u64::saturating_add)
    };
    let most = beside.iter().enumerate().map(in_a_step).max();
    Some(most.unwrap_or_default().min(all))
}

/// Returns whether a route, a bound or a limit leads to failure.
fn may_fail_by_design(graph: &Graph) -> bool {
    let by_edges = graph.edges.iter().flat_map(Edge::targets);
    let policies = graph.nodes.values().map(|it| &it.policies);
    let mut by_policies = policies.flat_map(|policies| {
        let caught = policies.catch.iter().map(|it| &it.to);
        caught.chain(&policies.bounds.exhausted)
    });
    by_edges.into_iter().any(|it| it == Target::Fail)
        || by_policies.any(|it| *it == Target::Fail)
        || graph.limits.exhausted == Some(Target::Fail)
}
