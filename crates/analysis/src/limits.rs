//! Checks whether the limits of a run are below its worst case, based on the graph alone.

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Graph, Limits},
    id::NodeName,
    words::duration,
};

use super::{NodeWorstCase, VisitBound, WorstCase};

/// Returns a warning for each limit that stops a run in its worst case.
///
/// If the limits have a target for that case, such a run is part of the workflow, and there is no
/// warning. A worst case that takes long to compute is only computed on request.
pub(super) fn run(graph: &Graph) -> Vec<Diagnostic> {
    if graph.limits.exhausted.is_some() {
        return Vec::new();
    }
    let is_beyond = |it: &WorstCase| !beyond(it, &graph.limits).is_empty();
    let Some(worst_case) = WorstCase::if_quick(graph, is_beyond) else { return Vec::new() };
    let warning = |message| {
        let first = graph.entry.first().and_then(|it| graph.nodes[it].span.clone());
        let span = graph.limits.span.clone().or(first);
        let diagnostic = Diagnostic::warning("GR132", message);
        diagnostic.at(span, "stops a run half-way").help(
            "raise the limit, lower a bound (`graphrun plan` shows which count), or name a target \
             for such runs with `exhausted` in `limits`",
        )
    };
    beyond(&worst_case, &graph.limits).into_iter().map(warning).collect()
}

fn beyond(worst_case: &WorstCase, limits: &Limits) -> Vec<String> {
    let steps = worst_case.steps_max;
    let time = worst_case.time_max;
    let mut beyond = Vec::new();
    if steps > limits.steps {
        let most = most(worst_case, steps, |it| it.visits_max);
        let steps = if steps == u64::MAX { "countless".to_owned() } else { steps.to_string() };
        let limit = limits.steps;
        beyond.push(format!("a run may take {steps} super-steps, and its limit is {limit}{most}"));
    }
    if let (Some(time), Some(limit)) = (time, limits.time)
        && time > limit
    {
        let time = duration(time);
        let limit = duration(limit);
        beyond.push(format!("a run may work for {time}, and its limit is {limit}"));
    }
    beyond
}

/// Returns a text about the node with the highest number, if there are several nodes; of equal
/// ones, one with a bound.
fn most(worst_case: &WorstCase, all: u64, of: impl Fn(&NodeWorstCase) -> u64) -> String {
    let has_bound = |it: &NodeWorstCase| matches!(it.why, VisitBound::Rounds { .. });
    let most = worst_case.nodes.iter().max_by_key(|(_, it)| (of(it), has_bound(it)));
    let counted = most.filter(|(_, it)| of(it) < all);
    counted.map_or_else(String::new, |(name, worst_case): (&NodeName, _)| {
        format!("; `{name}` takes {} of them: {}", of(worst_case), worst_case.why)
    })
}
