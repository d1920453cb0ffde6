//! Warnings about limits below the worst case, and the effect of reaching them.

use super::{Plan, PlannedNode, ms};
use crate::{
    cli::output::words::{cost, count, duration, tokens},
    graph::{Graph, Limits, Target},
    id::NodeName,
};

/// Returns every limit of the run and of its nodes that is below the known worst case.
///
/// If a part is unknown, the other parts may still exceed a limit.
pub(super) fn of(plan: &Plan, graph: &Graph) -> Vec<String> {
    let nodes = &plan.nodes;
    let then = goes_on(&graph.limits);
    let mut warnings = Vec::new();
    let mut warn = |limit: &str, after: String| {
        warnings
            .push(format!("the worst case exceeds `limits.{limit}`: after {after} a run {then}"));
    };
    let Limits { steps, calls, tokens: tokens_max, usd, time, .. } = &graph.limits;
    if plan.steps_max > *steps {
        warn("steps", count(*steps, "super-step"));
    }
    if let Some(limit) = calls.filter(|it| plan.calls_max > *it) {
        warn("calls", count(limit, "model call"));
    }
    if let Some(limit) = tokens_max.filter(|it| plan.totals.tokens > *it) {
        warn("tokens", tokens(limit));
    }
    if let Some(limit) = usd.filter(|it| plan.totals.cost_usd > *it) {
        warn("usd", cost(Some(limit)));
    }
    // Tasks of one step run at the same time, so their durations cannot be added.
    let known = nodes.iter().filter_map(|it| it.time_ms_max).max();
    if let Some(limit) = time.map(ms).filter(|it| plan.time_ms_max.or(known) > Some(*it)) {
        warn("time", format!("{} of work", duration(limit)));
    }
    warnings.extend(nodes.iter().flat_map(|it| of_node(it, graph)));
    warnings
}

/// Returns every limit of a node that is below the worst case of all its visits.
fn of_node(planned: &PlannedNode, graph: &Graph) -> Vec<String> {
    let name = &planned.node;
    let policies = &graph.nodes[name].policies;
    let Some(limits) = &policies.bounds.limits else { return Vec::new() };
    let then = match &policies.bounds.exhausted {
        Some(target) => leads_to(target),
        None => "fails".to_owned(),
    };
    let warn = |limit: &str, after: String| {
        format!(
            "the worst case of `{name}` exceeds its `limits.{limit}`: after {after} a run {then}"
        )
    };
    let calls = limits.calls.filter(|it| planned.calls_max > Some(*it));
    let tokens_max = limits.tokens.filter(|it| planned.tokens_max > Some(*it));
    let usd = limits.usd.filter(|it| planned.cost_usd_max.is_some_and(|most| most > *it));
    let time = limits.time.map(ms).filter(|it| planned.time_ms_max > Some(*it));
    let warnings = [
        calls.map(|it| warn("calls", count(it, "model call"))),
        tokens_max.map(|it| warn("tokens", tokens(it))),
        usd.map(|it| warn("usd", cost(Some(it)))),
        time.map(|it| warn("time", format!("{} of work", duration(it)))),
    ];
    warnings.into_iter().flatten().collect()
}

fn goes_on(limits: &Limits) -> String {
    match &limits.exhausted {
        Some(target) => leads_to(target),
        None => "stops, and can be resumed with a higher limit".to_owned(),
    }
}

fn leads_to(target: &Target) -> String {
    match target.node().map(NodeName::as_str) {
        Some(node) => format!("continues at `{node}`"),
        None if *target == Target::End => "ends".to_owned(),
        None => "fails".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_the_fate_of_the_run() {
        let flush = Target::Node(NodeName::parse("flush").unwrap());
        for (exhausted, end) in [
            (None, "stops, and can be resumed with a higher limit"),
            (Some(Target::Fail), "fails"),
            (Some(Target::End), "ends"),
            (Some(flush), "continues at `flush`"),
        ] {
            assert_eq!(goes_on(&Limits { exhausted, ..Limits::default() }), end);
        }
    }
}
