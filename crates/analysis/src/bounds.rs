//! Checks of the paths through a graph: every node is reachable, and every run ends.

use std::collections::BTreeSet;

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::{Defer, Edge, Graph, NodeSpec},
    id::NodeName,
    words::quoted_list,
};
use petgraph::{
    Direction::{Incoming, Outgoing},
    algo::tarjan_scc,
    graph::{DiGraph, NodeIndex},
    visit::{Dfs, IntoNeighbors, IntoNodeIdentifiers, NodeIndexable},
};

use super::network::{EdgeKind, Network};

pub(super) fn run(graph: &Graph, network: &Network, diagnostics: &mut Diagnostics) {
    check_reachable(graph, network, diagnostics);
    check_ends(graph, network, diagnostics);
    check_loops(graph, network, diagnostics);
    check_resets(graph, network, diagnostics);
}

fn check_reachable(graph: &Graph, network: &Network, diagnostics: &mut Diagnostics) {
    // A used workflow that always fails never reaches its end, and no file has a node for the end.
    let is_end = |index: &NodeIndex| {
        matches!(network.node(*index).1.policies.schedule.defer, Some(Defer::Scope(_)))
    };
    let mut unreached: BTreeSet<NodeIndex> =
        network.node_indices().filter(|it| !is_end(it)).collect();
    // In its own file, the target of a limit is reached.
    let limited = graph.inner_limit_targets.iter().filter_map(|it| network.index(it));
    let mut visit = Dfs::new(network.graph(), network.start());
    visit.stack.extend(limited);
    while let Some(seen) = visit.next(network.graph()) {
        unreached.remove(&seen);
    }
    for name in unreached.into_iter().map(|it| network.name(it)) {
        let span = graph.nodes[name].span.clone();
        let diagnostic = Diagnostic::error("GR030", format!("nothing leads to node `{name}`"));
        diagnostics
            .push(diagnostic.at(span, "never runs").help("lead an edge to it, or remove it"));
    }
}

/// Checks that each node has a path to the end of a branch.
fn check_ends(graph: &Graph, network: &Network, diagnostics: &mut Diagnostics) {
    let sources: BTreeSet<&NodeName> = graph.edges.iter().flat_map(Edge::sources).collect();
    let is_last = |index: &NodeIndex| {
        let mut targets = network.neighbours(*index, Outgoing, |_| true);
        !sources.contains(network.name(*index)) || targets.any(|it| !network.is_node(it))
    };
    let mut open: Vec<NodeIndex> = network.node_indices().filter(is_last).collect();
    let mut ending: BTreeSet<NodeIndex> = open.iter().copied().collect();
    while let Some(index) = open.pop() {
        let before = network.neighbours(index, Incoming, |_| true);
        open.extend(before.filter(|&it| network.is_node(it) && ending.insert(it)));
    }
    for index in network.node_indices().filter(|it| !ending.contains(it)) {
        let name = network.name(index);
        let diagnostic =
            Diagnostic::error("GR031", format!("no path leads from `{name}` to an end"));
        let span = graph.nodes[name].span.clone();
        let diagnostic = diagnostic.at(span, "a run that reaches this node never ends");
        diagnostics.push(diagnostic.help("give one of the nodes after it `then: end`"));
    }
}

/// Checks that every loop has a bound, and that the target of a used-up bound is outside the loop.
fn check_loops(graph: &Graph, network: &Network, diagnostics: &mut Diagnostics) {
    let is_bounded = |index: NodeIndex| {
        network.is_node(index) && network.node(index).1.policies.bounds.max_visits.is_some()
    };
    let unbounded = network.with_edges(|from, _| !is_bounded(from));
    for cycle in cycles(network, &unbounded) {
        let shown = quoted_list(&cycle);
        let span = graph.nodes[cycle[0]].span.clone();
        let diagnostic = Diagnostic::error("GR032", format!("the loop {shown} has no bound"));
        let help =
            "give one of its nodes `max_visits` and `exhausted`, so that the worst case is known";
        let inherited = cycle.iter().find_map(|name| {
            let policies = &graph.nodes[*name].policies;
            let to = policies.catch.iter().filter_map(|it| it.to.node());
            let to = to.filter(|_| policies.inherits_catch).find(|to| cycle.contains(to))?;
            Some(format!(
                "`{name}` inherits the `catch` of `defaults`, which leads to `{to}`: give `{name}` `catch: {{}}` to \
                 opt out, or {help}"
            ))
        });
        // A bound of the node that a map runs does not bound the map.
        let is_item = |it: &NodeSpec| it.policies.schedule.items.is_some();
        let bounded_item = cycle.iter().find_map(|name| {
            let to = network.neighbours(network.index(name)?, Outgoing, |_| true);
            let mut items = to.filter(|it| network.is_node(*it) && is_bounded(*it));
            let item = items.find(|it| is_item(network.node(*it).1))?;
            Some(format!(
                "an empty list skips `{}`, so its bound does not stop the loop: give `{name}` the bound",
                network.name(item)
            ))
        });
        let help = inherited.or(bounded_item).unwrap_or_else(|| help.to_owned());
        diagnostics.push(diagnostic.at(span, "part of the loop").help(help));
    }
    let spent = network.with_edges(|from, kind| !is_bounded(from) || kind == EdgeKind::Exhausted);
    for cycle in cycles(network, &spent) {
        // The check above has reported loops of unbounded nodes.
        let bounded = |it: &&&NodeName| graph.nodes[**it].policies.bounds.max_visits.is_some();
        if let Some(name) = cycle.iter().find(bounded) {
            let message = format!(
                "when the visits of `{name}` are used up, `exhausted` leads back to it by {}",
                quoted_list(&cycle)
            );
            let diagnostic = Diagnostic::error("GR033", message);
            let diagnostic =
                diagnostic.at(graph.nodes[*name].span.clone(), "this bound stops nothing");
            diagnostics.push(diagnostic.help("lead `exhausted` out of the loop"));
        }
    }
}

fn check_resets(graph: &Graph, network: &Network, diagnostics: &mut Diagnostics) {
    let mutual = check_mutual_resets(graph, network, diagnostics);
    let finite = finite_visits(network);
    for (name, spec) in &graph.nodes {
        let policies = &spec.policies;
        for reset in &policies.on_finish.resets {
            // A used workflow starts with all counts of its nodes reset.
            let is_within = reset.strip_scope(name.as_str()).is_some();
            if graph.nodes[reset].policies.bounds.max_visits.is_none() && !is_within {
                let message = format!("`{name}` resets `{reset}`, which has no `max_visits`");
                diagnostics.push(Diagnostic::error("GR034", message).at(spec.span.clone(), "here"));
            }
        }
        if policies.on_finish.resets.is_empty() || finite.contains(name) || mutual.contains(name) {
            continue;
        }
        let message = format!("`{name}` resets a bound, but its own visits have none");
        let diagnostic = Diagnostic::error("GR034", message);
        let diagnostic = diagnostic.at(spec.span.clone(), "could reset it forever");
        diagnostics.push(diagnostic.help(format!(
            "give `{name}` `max_visits` and `exhausted`, or another node of its loop that it does not reset"
        )));
    }
}

/// Returns the nodes that run a finite number of times, with any decisions of the routes.
///
/// A bounded node does if each node that resets it does. Any other node does if each node that
/// leads to it does. The target of a used-up bound is reached each time the run reaches the bounded
/// node, not each time that node runs.
fn finite_visits(network: &Network) -> BTreeSet<&NodeName> {
    let by_visit = |it| it != EdgeKind::Exhausted;
    let by_arrival = |it| it == EdgeKind::Exhausted;
    let policies = |it: NodeIndex| &network.node(it).1.policies;
    let index = |it: &NodeName| network.index(it).expect("the policies name only nodes");
    let resets = |it: NodeIndex| policies(it).on_finish.resets.iter().map(index);
    let mut resetters = vec![Vec::new(); network.node_count()];
    for from in network.node_indices() {
        resets(from).for_each(|it| resetters[it.index()].push(from));
    }
    let mut arrives = BTreeSet::new();
    let mut runs = BTreeSet::new();
    let mut open: BTreeSet<NodeIndex> = network.node_indices().collect();
    while let Some(index) = open.pop_first() {
        // The start of a run leads to its first nodes once.
        let is_start = |it: &NodeIndex| *it == network.start();
        let mut sources = network.neighbours(index, Incoming, by_visit);
        let arrived = sources.all(|it| is_start(&it) || runs.contains(&it))
            && network.neighbours(index, Incoming, by_arrival).all(|it| arrives.contains(&it));
        let bounded = policies(index).bounds.max_visits.is_some();
        let runs_on =
            arrived || (bounded && resetters[index.index()].iter().all(|it| runs.contains(it)));
        let news = (arrived && arrives.insert(index), runs_on && runs.insert(index));
        let is_node = |it: &NodeIndex| network.is_node(*it);
        if news.0 {
            open.extend(network.neighbours(index, Outgoing, by_arrival).filter(is_node));
        }
        if news.1 {
            open.extend(network.neighbours(index, Outgoing, by_visit).filter(is_node));
            open.extend(resets(index));
        }
    }
    runs.into_iter().map(|it| network.name(it)).collect()
}

/// Reports bounds that reset each other, because together they bound nothing.
fn check_mutual_resets<'a>(
    graph: &Graph,
    network: &'a Network,
    diagnostics: &mut Diagnostics,
) -> BTreeSet<&'a NodeName> {
    let mut resets = DiGraph::<(), ()>::with_capacity(network.node_count(), 0);
    for _ in network.node_indices() {
        resets.add_node(());
    }
    for from in network.node_indices() {
        for reset in &network.node(from).1.policies.on_finish.resets {
            resets.add_edge(from, network.index(reset).expect("it names a node"), ());
        }
    }
    let cycles = cycles(network, &resets);
    for cycle in &cycles {
        let message = format!("the bounds of {} reset each other", quoted_list(cycle));
        let diagnostic = Diagnostic::error("GR034", message);
        let diagnostic = diagnostic.at(graph.nodes[cycle[0]].span.clone(), "one of them");
        diagnostics.push(diagnostic.help("let only one of them reset the other"));
    }
    cycles.into_iter().flatten().collect()
}

/// Returns the sets of nodes that lead back to themselves, each sorted by name.
fn cycles<G>(network: &Network, edges: G) -> Vec<Vec<&NodeName>>
where
    G: IntoNodeIdentifiers<NodeId = NodeIndex> + IntoNeighbors + NodeIndexable + Copy,
{
    let is_cycle =
        |it: &Vec<NodeIndex>| it.len() > 1 || edges.neighbors(it[0]).any(|next| next == it[0]);
    let mut found: Vec<Vec<NodeIndex>> = tarjan_scc(edges).into_iter().filter(is_cycle).collect();
    // The order of the indices is that of the names.
    for cycle in &mut found {
        cycle.sort();
    }
    found.sort();
    let names = |nodes: Vec<NodeIndex>| nodes.into_iter().map(|it| network.name(it)).collect();
    found.into_iter().map(names).collect()
}
