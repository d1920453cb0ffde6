//! Checks of single names and edges.

pub(super) mod nested;
mod types;

use std::collections::BTreeSet;

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceSpan, did_you_mean},
    graph::{Edge, Graph, NESTED_LEVELS_MAX, NodeDescription, NodeFault, Starts, Target},
    id::{ChannelName, NodeName},
};

pub(super) fn run(graph: &Graph, unmade: &BTreeSet<NodeName>, diagnostics: &mut Diagnostics) {
    let mut names = NodeNames { graph, unmade, diagnostics };
    names.check_entry();
    names.check_targets();
    check_schema(graph, diagnostics);
    check_channels(graph, diagnostics);
    check_joins(graph, diagnostics);
    check_items(graph, diagnostics);
    types::check_types(graph, diagnostics);
    for (name, spec) in &graph.nodes {
        let NodeDescription { faults, nested_levels, .. } = spec.describe();
        let mut faults = faults.clone();
        if *nested_levels > NESTED_LEVELS_MAX {
            let message = format!(
                "it has {nested_levels} levels of graphs within it, and at most {NESTED_LEVELS_MAX} are possible"
            );
            faults.push(NodeFault { code: "GR055", message });
        }
        for NodeFault { code, message } in faults {
            let diagnostic = Diagnostic::error(code, format!("`{name}`: {message}"));
            diagnostics.push(diagnostic.at(spec.span.clone(), "here"));
        }
    }
}

/// The check that each named node exists.
struct NodeNames<'a> {
    graph: &'a Graph,
    /// The nodes that could not be made, for a reason that is reported.
    unmade: &'a BTreeSet<NodeName>,
    diagnostics: &'a mut Diagnostics,
}

impl NodeNames<'_> {
    fn check_entry(&mut self) {
        if self.graph.entry.is_empty() {
            let diagnostic = Diagnostic::error("GR006", "no node starts the graph");
            let help = "name one with `start`; in Rust, add `.edge(START, \"name\")`";
            self.diagnostics.push(diagnostic.help(help));
        }
        for name in &self.graph.entry {
            self.check(name, "the start", None);
        }
        if let Some(Target::Node(name)) = &self.graph.limits.exhausted {
            self.check(name, "`limits`", None);
        }
    }

    fn check_targets(&mut self) {
        for edge in &self.graph.edges {
            let span = edge.span();
            for name in edge.sources() {
                self.check(name, "an edge", span);
            }
            let from = edge.sources().first().map(ToString::to_string).unwrap_or_default();
            for target in edge.targets() {
                if let Target::Node(name) = target {
                    self.check(&name, &format!("the edge from `{from}`"), span);
                }
            }
        }
        for (from, spec) in &self.graph.nodes {
            let policies = &spec.policies;
            let caught = policies.catch.iter().map(|it| &it.to);
            for target in policies.bounds.exhausted.iter().chain(caught) {
                if let Target::Node(name) = target {
                    self.check(name, &format!("node `{from}`"), spec.span.as_ref());
                }
            }
            for name in &policies.on_finish.resets {
                self.check(name, &format!("`resets` of `{from}`"), spec.span.as_ref());
            }
        }
    }

    fn check(&mut self, name: &NodeName, whose: &str, span: Option<&SourceSpan>) {
        if self.graph.nodes.contains_key(name) || self.unmade.contains(name) {
            return;
        }
        let diagnostic =
            Diagnostic::error("GR010", format!("{whose} names `{name}`, which is not a node"))
                .at(span.cloned(), "no such node");
        let known = self.graph.nodes.keys().map(NodeName::as_str);
        self.diagnostics.push(match did_you_mean(name.as_str(), known) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic,
        });
    }
}

fn check_channels(graph: &Graph, diagnostics: &mut Diagnostics) {
    for name in &graph.input {
        check_channel(graph, name, "the input", None, diagnostics);
    }
    for (node, spec) in &graph.nodes {
        let contract = &spec.describe().contract;
        let reads = contract.reads.iter().flatten().map(|it| &it.channel);
        let named = reads.chain(contract.writes.iter().flatten());
        let collects = spec.policies.schedule.items.iter().filter_map(|it| it.failed.as_ref());
        let of_policies = spec.policies.on_finish.cleared().chain(collects);
        let named: BTreeSet<&ChannelName> = named.chain(of_policies).collect();
        for name in named {
            check_channel(graph, name, &format!("node `{node}`"), spec.span.as_ref(), diagnostics);
        }
        for name in spec.when.iter().filter_map(|it| it.reads()).flatten() {
            let whose = format!("the condition of `{node}`");
            check_channel(graph, name, &whose, spec.span.as_ref(), diagnostics);
        }
    }
    for edge in &graph.edges {
        let Edge::Route { from, route, span } = edge else { continue };
        for name in route.reads().into_iter().flatten() {
            check_channel(
                graph,
                name,
                &format!("the route of `{from}`"),
                span.as_ref(),
                diagnostics,
            );
        }
    }
}

/// Each reducer can fold the values of its field, and each default is a value of its field.
fn check_schema(graph: &Graph, diagnostics: &mut Diagnostics) {
    for channel in graph.schema.channels() {
        let (name, ty, reducer) = (channel.name(), channel.ty(), channel.reducer());
        if !reducer.fits(ty) {
            let needed = reducer.needs();
            let message = format!("`{reducer}` needs {needed}, and the field `{name}` is `{ty}`");
            let help = "give the field another `x-merge`, or another type";
            diagnostics.push(Diagnostic::error("GR019", message).help(help));
        }
        if let Some(problems) = channel.default().and_then(|it| channel.validate(it).err()) {
            let message = format!("the default of `{name}` does not fit: {}", problems.join("; "));
            diagnostics.push(Diagnostic::error("GR022", message).help(
                "change the default, or make the field an `Option`, which has no value at the start",
            ));
        }
    }
}

fn check_channel(
    graph: &Graph,
    name: &ChannelName,
    whose: &str,
    span: Option<&SourceSpan>,
    diagnostics: &mut Diagnostics,
) {
    if graph.schema.channel(name.as_str()).is_some() {
        return;
    }
    let known: Vec<&str> = graph.schema.channels().iter().map(|it| it.name().as_str()).collect();
    let message = format!("{whose} names `{name}`, which is not a field of the state");
    let diagnostic = Diagnostic::error("GR021", message).at(span.cloned(), "here");
    diagnostics.push(match did_you_mean(name.as_str(), known.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("the fields are {}", known.join(", "))),
    });
}

fn check_joins(graph: &Graph, diagnostics: &mut Diagnostics) {
    let mut joined = BTreeSet::new();
    for edge in &graph.edges {
        let Edge::Join { from, to, count, span } = edge else { continue };
        if !joined.insert(to) {
            let message = format!("node `{to}` waits for two sets of nodes");
            let diagnostic = Diagnostic::error("GR038", message).at(span.clone(), "the second one");
            diagnostics.push(diagnostic.help("name all of them in one join"));
        }
        let mut named = BTreeSet::new();
        if let Some(twice) = from.iter().find(|it| !named.insert(*it)) {
            let message = format!("the join at `{to}` waits for `{twice}` twice");
            diagnostics.push(Diagnostic::error("GR037", message).at(span.clone(), "here"));
        } else if from.is_empty() {
            let message = format!("the join at `{to}` waits for no node");
            diagnostics.push(Diagnostic::error("GR037", message).at(span.clone(), "here"));
        } else if !(1..=from.len()).contains(count) {
            let all = from.len();
            let message = format!("the join at `{to}` waits for {count} of {all} nodes");
            let diagnostic = Diagnostic::error("GR037", message).at(span.clone(), "here");
            diagnostics.push(diagnostic.help(format!("wait for a number from 1 to {all}")));
        }
    }
}

/// A node that takes an item runs only for items, and each has the type that it takes.
fn check_items(graph: &Graph, diagnostics: &mut Diagnostics) {
    let item_of = |name: &NodeName| graph.nodes.get(name)?.describe().item.as_ref();
    let mut without = |from: &str, to: &NodeName, span: Option<&SourceSpan>| {
        let message = format!("`{to}` takes an item, and {from} starts it without one");
        let diagnostic = Diagnostic::error("GR022", message).at(span.cloned(), "here");
        diagnostics.push(diagnostic.help("dispatch the items to it from a route, or from a node that declares it with `dispatches`"));
    };
    for name in graph.entry.iter().filter(|it| item_of(it).is_some()) {
        without("the start", name, None);
    }
    let takes_item = |target: &&Target| target.node().is_some_and(|it| item_of(it).is_some());
    for name in graph.limits.exhausted.iter().filter(takes_item).filter_map(Target::node) {
        without("a limit of the run", name, graph.limits.span.as_ref());
    }
    for (from, spec) in &graph.nodes {
        let catch = &spec.policies.catch;
        let exhausted = &spec.policies.bounds.exhausted;
        for name in catch.iter().map(|it| &it.to).filter(takes_item).filter_map(Target::node) {
            without(&format!("a failure of `{from}`"), name, spec.span.as_ref());
        }
        for name in exhausted.iter().filter(takes_item).filter_map(Target::node) {
            without(&format!("a bound of `{from}`"), name, spec.span.as_ref());
        }
    }
    let mut unfit = Vec::new();
    for edge in &graph.edges {
        let (starts, leader) = match edge {
            Edge::Then { .. } | Edge::Join { .. } => (Starts::State, "the edge from"),
            Edge::Route { route, .. } => (route.starts(), "the route of"),
            Edge::May { is_dispatched: false, .. } => (Starts::State, "the choice of"),
            Edge::May { is_dispatched: true, .. } => (Starts::Unknown, "the choice of"),
        };
        let from = edge.sources().first().map(ToString::to_string).unwrap_or_default();
        for to in edge.targets() {
            let Some((to, item)) = to.node().and_then(|it| Some((it, item_of(it)?))) else {
                continue;
            };
            match &starts {
                Starts::State => without(&format!("{leader} `{from}`"), to, edge.span()),
                _ if by_name(edge, to) => without(&format!("{leader} `{from}`"), to, edge.span()),
                // The range of a Rust type is that of its size: an `i32` may well be a `u64`.
                Starts::Item(given) if !given.fits_apart_from_ranges(item) => {
                    let message =
                        format!("`{from}` dispatches `{given}` to `{to}`, which takes `{item}`");
                    unfit
                        .push(Diagnostic::error("GR022", message).at(edge.span().cloned(), "here"));
                }
                Starts::Item(_) | Starts::Unknown => (),
            }
        }
    }
    diagnostics.extend(unfit);
}

/// Returns whether a route has a choice that leads to a node by its name alone, without an item.
fn by_name(edge: &Edge, to: &NodeName) -> bool {
    let Edge::Route { route, .. } = edge else { return false };
    let mut choices = route.choices().into_iter().flatten();
    choices.any(|it| !it.is_dispatched && it.to.iter().any(|it| it.node() == Some(to)))
}
