//! Checks of the ways through a graph: every node is reachable, and every run ends.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::{Edge, Graph, Target},
    id::NodeName,
};
use petgraph::{algo::tarjan_scc, visit::Dfs};

use super::{Connection, ways};
pub(super) fn run(graph: &Graph, findings: &mut Diagnostics) {
    check_reachable(graph, findings);
    check_ends(graph, findings);
    check_loops(graph, findings);
    check_resets(graph, findings);
}

fn check_reachable(graph: &Graph, findings: &mut Diagnostics) {
    let all = ways(graph, |_, _| true);
    let mut unreached: BTreeSet<&NodeName> = graph.nodes.keys().collect();
    let after_limit = graph.limits.exhausted.as_ref().and_then(Target::node);
    for start in graph.entry.iter().chain(after_limit) {
        let mut visit = Dfs::new(&all, start);
        while let Some(seen) = visit.next(&all) {
            unreached.remove(seen);
        }
    }
    for name in unreached {
        let place = graph.nodes[name].place.clone();
        let finding = Diagnostic::error("GR030", format!("nothing leads to node `{name}`"));
        findings.push(finding.at(place, "never runs").help("lead an edge to it, or remove it"));
    }
}

/// Checks that each node has a way to the end of a branch.
fn check_ends(graph: &Graph, findings: &mut Diagnostics) {
    let all = ways(graph, |_, _| true);
    let mut leaving: BTreeMap<&NodeName, Vec<&Edge>> = BTreeMap::new();
    for edge in &graph.edges {
        for from in edge.sources() {
            leaving.entry(from).or_default().push(edge);
        }
    }
    let is_last = |name: &NodeName| {
        let edges = leaving.get(name).map_or(&[][..], Vec::as_slice);
        let mut targets = edges.iter().flat_map(|it| it.targets());
        let policies = &graph.nodes[name].policies;
        let caught = policies.catch.iter().map(|it| &it.to);
        edges.is_empty()
            || targets.any(|it| it.node().is_none())
            || policies.exhausted.iter().chain(caught).any(|it| it.node().is_none())
    };
    let mut open: Vec<&NodeName> = graph.nodes.keys().filter(|it| is_last(it)).collect();
    let mut ending: BTreeSet<&NodeName> = open.iter().copied().collect();
    while let Some(name) = open.pop() {
        let before = all.neighbors_directed(name, petgraph::Direction::Incoming);
        open.extend(before.filter(|it| ending.insert(it)));
    }
    for (name, spec) in graph.nodes.iter().filter(|(name, _)| !ending.contains(name)) {
        let finding = Diagnostic::error("GR031", format!("no path leads from `{name}` to an end"));
        let finding = finding.at(spec.place.clone(), "a run that reaches this node never ends");
        findings.push(finding.help("give one of the nodes after it `then: end`"));
    }
}

/// Checks that every loop has a bound, and that the target of a used-up bound is outside the loop.
fn check_loops(graph: &Graph, findings: &mut Diagnostics) {
    let bounded = |name: &NodeName| graph.nodes[name].policies.max_visits.is_some();
    let unbounded = ways(graph, |from, _| !bounded(from));
    for cycle in cycles(&unbounded) {
        let shown = shown(&cycle);
        let place = graph.nodes[cycle[0]].place.clone();
        let finding = Diagnostic::error("GR032", format!("the loop {shown} has no bound"));
        findings.push(finding.at(place, "part of the loop").help(
            "give one of its nodes `max_visits` and `exhausted`, so that the worst case is known",
        ));
    }
    let spent = ways(graph, |from, way| !bounded(from) || way == Connection::Exhausted);
    for cycle in cycles(&spent) {
        // The check above has reported loops of unbounded nodes.
        if let Some(name) = cycle.iter().find(|it| bounded(it)) {
            let message = format!(
                "when the visits of `{name}` are used up, `exhausted` leads back to it by {}",
                shown(&cycle)
            );
            let finding = Diagnostic::error("GR033", message);
            let finding = finding.at(graph.nodes[*name].place.clone(), "this bound stops nothing");
            findings.push(finding.help("lead `exhausted` out of the loop"));
        }
    }
}

fn check_resets(graph: &Graph, findings: &mut Diagnostics) {
    let mutual = check_mutual_resets(graph, findings);
    let finite = finite_visits(graph);
    for (name, spec) in &graph.nodes {
        let policies = &spec.policies;
        for reset in &policies.resets {
            // A used workflow starts with all counts of its nodes reset.
            let is_within = reset.strip_scope(name.as_str()).is_some();
            if graph.nodes[reset].policies.max_visits.is_none() && !is_within {
                let message = format!("`{name}` resets `{reset}`, which has no `max_visits`");
                findings.push(Diagnostic::error("GR034", message).at(spec.place.clone(), "here"));
            }
        }
        if policies.resets.is_empty() || finite.contains(name) || mutual.contains(name) {
            continue;
        }
        let message = format!("`{name}` resets a bound, but its own visits have none");
        let finding = Diagnostic::error("GR034", message);
        let finding = finding.at(spec.place.clone(), "could reset it forever");
        findings.push(finding.help(format!(
            "give `{name}` `max_visits` and `exhausted`, or another node of its loop that it does not reset"
        )));
    }
}

/// Returns the nodes that run a finite number of times, with any decisions of the routes.
///
/// A bounded node does if each node that resets it does. Any other node does if each node that
/// leads to it does. The target of a used-up bound is reached each time the run reaches the bounded
/// node, not each time that node runs.
fn finite_visits(graph: &Graph) -> BTreeSet<&NodeName> {
    let by_visit = ways(graph, |_, way| way != Connection::Exhausted);
    let by_arrival = ways(graph, |_, way| way == Connection::Exhausted);
    let mut resetters: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
    for (name, spec) in &graph.nodes {
        for reset in &spec.policies.resets {
            resetters.entry(reset).or_default().push(name);
        }
    }
    let (mut arrives, mut runs) = (BTreeSet::new(), BTreeSet::new());
    let incoming = petgraph::Direction::Incoming;
    let mut open: BTreeSet<&NodeName> = graph.nodes.keys().collect();
    while let Some(name) = open.pop_first() {
        let mut sources = by_visit.neighbors_directed(name, incoming);
        let arrived = sources.all(|it| runs.contains(it))
            && by_arrival.neighbors_directed(name, incoming).all(|it| arrives.contains(it));
        let bounded = graph.nodes[name].policies.max_visits.is_some();
        let reset_by = resetters.get(name).map_or(&[][..], Vec::as_slice);
        let runs_on = arrived || (bounded && reset_by.iter().all(|it| runs.contains(it)));
        let news = (arrived && arrives.insert(name), runs_on && runs.insert(name));
        if news.0 {
            open.extend(by_arrival.neighbors(name));
        }
        if news.1 {
            open.extend(by_visit.neighbors(name));
            open.extend(graph.nodes[name].policies.resets.iter());
        }
    }
    runs
}

/// Reports bounds that reset each other, because together they bound nothing.
fn check_mutual_resets<'a>(graph: &'a Graph, findings: &mut Diagnostics) -> BTreeSet<&'a NodeName> {
    let mut resets = petgraph::graphmap::DiGraphMap::new();
    for (name, spec) in &graph.nodes {
        for reset in &spec.policies.resets {
            resets.add_edge(name, reset, ());
        }
    }
    let cycles = cycles(&resets);
    for cycle in &cycles {
        let message = format!("the bounds of {} reset each other", shown(cycle));
        let finding = Diagnostic::error("GR034", message);
        let finding = finding.at(graph.nodes[cycle[0]].place.clone(), "one of them");
        findings.push(finding.help("let only one of them reset the other"));
    }
    cycles.into_iter().flatten().collect()
}

/// Returns the sets of nodes that lead back to themselves, each sorted by name.
fn cycles<'a>(ways: &petgraph::graphmap::DiGraphMap<&'a NodeName, ()>) -> Vec<Vec<&'a NodeName>> {
    let is_cycle = |it: &Vec<&'a NodeName>| it.len() > 1 || ways.contains_edge(it[0], it[0]);
    let mut found: Vec<Vec<&NodeName>> = tarjan_scc(ways).into_iter().filter(is_cycle).collect();
    for cycle in &mut found {
        cycle.sort();
    }
    found.sort();
    found
}

fn shown(names: &[&NodeName]) -> String {
    let names: Vec<String> = names.iter().map(|it| format!("`{it}`")).collect();
    names.join(", ")
}
