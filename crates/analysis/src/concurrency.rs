//! Checks of concurrency: no two nodes in one super-step write a field that keeps one value, no used
//! workflow is called again while it runs, and no node waits forever.
//!
//! The first two checks work on pairs of nodes, which may overestimate concurrency. If they find a
//! conflict, they explore every situation of a run to confirm it. The last check always explores.
//! If there are too many situations, the first two keep their result and the last one checks each join alone, or
//! reports that it did not. Otherwise they are exact, with two simplifications: bounds are independent, and so are routes
//! without exclusive conditions.

use std::{cell::LazyCell, collections::BTreeSet};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceSpan},
    graph::{Defer, Edge, Graph, NodeSpec, Route},
    id::{ChannelName, NodeName},
    state::Reducer,
};
use petgraph::{Incoming, algo::tarjan_scc};

use crate::{
    flow_model::{
        Arrow, Bits, Concurrency, Ending, Exclusions, FlowModel, JoinVerdict, Outcome, StarvedJoin,
        WrongChoice, check_join_alone, explore, field_numbers, find_starving_joins,
    },
    network::Digraph,
};

/// The most routes with conditions that are compared with each other.
const ROUTES_MAX: usize = 40;

pub(super) fn run(graph: &Graph, model: &FlowModel, diagnostics: &mut Diagnostics) {
    let names: Vec<&NodeName> = graph.nodes.keys().collect();
    let specs: Vec<&NodeSpec> = graph.nodes.values().collect();
    let checked = ConcurrencyCheck { graph, model, names, specs };
    let found = |beside: &[Bits]| (checked.conflicts(beside), checked.repeated(beside));
    let (mut conflicts, mut repeated) = found(&Concurrency::between(model).all(model));
    let late = checked.reached_twice();
    let is_clear = conflicts.is_empty() && repeated.is_empty() && late.is_empty();
    let exclusions = LazyCell::new(|| checked.exclusions());
    let situations = if is_clear { None } else { explore(model, &exclusions) };
    if let Some(situations) = &situations {
        (conflicts, repeated) = found(&situations.beside);
        let again = situations.run_again(model.nodes.len());
        for (node, from) in late.into_iter().filter(|(node, _)| again.contains(*node)) {
            diagnostics.push(checked.twice(node, &from));
        }
    }
    for (one, other, field) in conflicts {
        let path = situations.as_ref().and_then(|it| it.path_to(one, other));
        diagnostics.push(checked.conflict(one, other, field, path.as_deref()));
    }
    for (user, inner) in repeated {
        diagnostics.push(checked.repetition(user, inner));
    }
    if !model.joins.is_empty() {
        let mut found = find_starving_joins(model, &Exclusions::default());
        if !found.starving.is_empty() && !exclusions.is_empty() {
            found = find_starving_joins(model, &exclusions);
        }
        for starving in &found.starving {
            diagnostics.extend(checked.starving(starving));
        }
        if found.starving.is_empty() && !found.is_complete {
            checked.joins_alone(&exclusions, diagnostics);
        }
    }
}

struct ConcurrencyCheck<'a> {
    graph: &'a Graph,
    model: &'a FlowModel,
    names: Vec<&'a NodeName>,
    specs: Vec<&'a NodeSpec>,
}

impl ConcurrencyCheck<'_> {
    /// Returns the choices of routes that exclude each other, because their conditions do.
    fn exclusions(&self) -> Exclusions {
        let channels = self.graph.schema.channels();
        let numbers = field_numbers(&self.graph.schema);
        let fields = |names: &[ChannelName]| {
            let mut fields = Bits::none(channels.len());
            for at in names.iter().filter_map(|it| numbers.get(it)) {
                fields.insert(*at);
            }
            fields
        };
        let changes = |spec: &&NodeSpec| {
            let Some(mut changed) = spec.describe().contract.writes.clone() else {
                return Bits::all(channels.len());
            };
            let policies = &spec.policies;
            changed.extend(policies.on_finish.cleared().cloned());
            changed.extend(policies.schedule.items.iter().filter_map(|it| it.failed.clone()));
            fields(&changed)
        };
        let mut exclusions = Exclusions::new(self.specs.iter().map(changes).collect());
        let is_sent = |it: &ChannelName| self.graph.inbox.contains(it);
        let mut routes: Vec<(usize, &dyn Route, usize, Bits)> = Vec::new();
        for (edge, it) in self.graph.edges.iter().enumerate() {
            let Edge::Route { from, route, .. } = it else { continue };
            let (Some(reads), Some(choices)) = (route.reads(), route.choices()) else { continue };
            let Ok(node) = self.names.binary_search(&from) else { continue };
            if choices.len() > 1 && !reads.is_empty() && !reads.iter().any(is_sent) {
                exclusions.add_route(edge, node, fields(reads));
                routes.push((edge, route.as_ref(), choices.len(), fields(reads)));
            }
        }
        routes.truncate(ROUTES_MAX);
        for (at, (edge, route, choices, reads)) in routes.iter().enumerate() {
            let edge = *edge;
            let choices = *choices;
            for (other_edge, other, others, _) in
                routes[at + 1..].iter().filter(|it| it.3.meets(reads))
            {
                let other_edge = *other_edge;
                let others = *others;
                for choice in 0..choices {
                    for other_choice in 0..others {
                        if route.excludes(choice, *other, other_choice) {
                            exclusions.add((edge, choice), (other_edge, other_choice));
                        }
                    }
                }
            }
        }
        exclusions
    }

    /// Returns pairs of nodes that may run concurrently, each with a single-value field that both
    /// write. Each node is reported once for a field.
    fn conflicts(&self, beside: &[Bits]) -> Vec<(usize, usize, usize)> {
        let channels = self.graph.schema.channels();
        let mut single = Bits::none(channels.len());
        for (at, channel) in channels.iter().enumerate() {
            if !channel.reducer().takes_several_writers() {
                single.insert(at);
            }
        }
        // Nothing is known about a node without declared writes, so it is not checked.
        let writes = |(at, spec): (usize, &&NodeSpec)| {
            let mut writes = self.model.nodes[at].may_assign.clone();
            writes.keep(&single);
            match spec.describe().contract.writes {
                Some(_) => writes,
                None => Bits::none(channels.len()),
            }
        };
        let writes: Vec<Bits> = self.specs.iter().enumerate().map(writes).collect();
        let mut blamed = BTreeSet::new();
        let mut found = Vec::new();
        // Both see the state at the start of the step, in which one of them at most runs.
        let excludes = |one: usize, other: usize| {
            let one = self.specs[one].when.as_ref();
            let other = self.specs[other].when.as_ref();
            one.zip(other).is_some_and(|(one, other)| one.excludes(other.as_ref()))
        };
        for (one, beside) in beside.iter().enumerate().filter(|(at, _)| !writes[*at].is_empty()) {
            let writes_it = |other: &usize| {
                *other >= one
                    && writes[*other].meets(&writes[one])
                    && (*other == one || !excludes(one, *other))
            };
            for other in beside.iter().filter(writes_it) {
                let mut both = writes[one].clone();
                both.keep(&writes[other]);
                for field in both.iter() {
                    if blamed.insert((other, field)) {
                        found.push((one, other, field));
                    }
                }
            }
        }
        found
    }

    /// Returns the nodes that may call a used workflow while an earlier call of it runs, each with a
    /// node of the used workflow.
    ///
    /// A used workflow that is a part of the graph runs once at a time. A second call would clear the fields of the first
    /// one.
    fn repeated(&self, beside: &[Bits]) -> Vec<(usize, usize)> {
        let inner = |user: usize| {
            let user = self.names[user].as_str();
            move |it: &usize| self.names[*it].strip_scope(user).is_some()
        };
        let first = |(user, beside): (usize, &Bits)| Some((user, beside.iter().find(inner(user))?));
        beside.iter().enumerate().filter_map(first).collect()
    }

    fn repetition(&self, user: usize, inner: usize) -> Diagnostic {
        let name = self.names[user];
        let inner = self.names[inner];
        let message = format!("`{name}` may start its workflow again while `{inner}` still runs");
        let diagnostic =
            Diagnostic::error("GR133", message).at(self.specs[user].span.clone(), "called twice");
        let help = format!(
            "let each call be a separate run with `use: {{ nested: true }}`, let the paths to `{name}` meet in a \
             `join`, or give each a `use` node"
        );
        diagnostic.help(help)
    }

    /// Returns the nodes that several edges lead to, outside of loops, each with the nodes before it: it runs twice if
    /// these do not run in the same step. A node with a join is one of them if an edge passes by the join.
    fn reached_twice(&self) -> Vec<(usize, Vec<usize>)> {
        let count = self.model.nodes.len();
        let mut digraph: Digraph = Digraph::new();
        for node in 0..count {
            digraph.add_node(node);
        }
        let mut awaited = Bits::none(count);
        let mut awaits_some = Bits::none(count);
        for (from, node) in self.model.nodes.iter().enumerate() {
            let spent = node.bound.map(|it| it.exhausted);
            for arrow in node.arrows().chain(spent) {
                match arrow {
                    Arrow::Node(to) | Arrow::Tasks(to) => drop(digraph.add_edge(from, to, ())),
                    Arrow::Join(join) => {
                        let join = &self.model.joins[join];
                        let to = join.node;
                        awaited.insert(to);
                        if join.count < join.awaited.len() {
                            awaits_some.insert(to);
                        }
                        digraph.add_edge(from, to, ());
                    }
                    Arrow::End | Arrow::Fail => (),
                }
            }
        }
        let mut looped = Bits::none(count);
        // Nodes before others are found after them.
        for nodes in tarjan_scc(&digraph).iter().rev() {
            let before = |node: &usize| {
                digraph.neighbors_directed(*node, Incoming).any(|it| looped.contains(it))
            };
            let is_loop = nodes.len() > 1 || digraph.contains_edge(nodes[0], nodes[0]);
            if is_loop || nodes.iter().any(before) {
                for node in nodes {
                    looped.insert(*node);
                }
            }
        }
        let is_plain = |node: &usize| {
            // A bound, a `defer` and a join say how often it is meant to run; after a failure nothing runs.
            let policies = &self.specs[*node].policies;
            let is_bounded =
                policies.bounds.max_visits.is_some() || policies.schedule.defer.is_some();
            let fails = self.model.nodes[*node].arrows().all(|it| it == Arrow::Fail);
            !(looped.contains(*node) || awaits_some.contains(*node) || is_bounded || fails)
                && self.model.node_after_limit() != Some(*node)
        };
        let leads_to = |from: usize, to: usize| {
            // A failure or a used-up bound is an exception, and not what the edges describe.
            let finished =
                self.model.nodes[from].outcomes.iter().filter(|it| it.ending.has_written());
            let arrows = finished.flat_map(Outcome::alternatives).flat_map(|it| &it.arrows);
            arrows.copied().any(|it| it == Arrow::Node(to))
        };
        let with_sources = (0..count).filter(is_plain).map(|node| {
            let from =
                digraph.neighbors_directed(node, Incoming).filter(|from| leads_to(*from, node));
            let mut from: Vec<usize> = from.collect();
            from.sort_unstable();
            (node, from)
        });
        // The join is one more edge.
        let edges = |node: usize, from: &[usize]| from.len() + usize::from(awaited.contains(node));
        with_sources.filter(|(it, from)| !from.is_empty() && edges(*it, from) > 1).collect()
    }

    fn twice(&self, node: usize, from: &[usize]) -> Diagnostic {
        let name = self.names[node];
        let all: Vec<String> = from.iter().map(|it| format!("`{}`", self.names[*it])).collect();
        let span = self.specs[node].span.clone();
        if self.model.joins.iter().any(|it| it.node == node) {
            let all = all.join(" and ");
            let verb = if from.len() == 1 { "leads" } else { "lead" };
            let message =
                format!("`{name}` may run more than once: {all} {verb} to it past its `join`");
            let help = format!("to run it once, add {all} to its `join`");
            return Diagnostic::hint("GR139", message).at(span, "runs once for each").help(help);
        }
        let message = format!(
            "`{name}` may run more than once: {} reach it in different steps",
            all.join(", ")
        );
        let help = "to run it once, let these paths meet in a `join` on it, or give it `defer: true`; to run it each \
                    time, leave it as it is";
        Diagnostic::hint("GR139", message).at(span, "runs once for each").help(help)
    }

    fn conflict(
        &self,
        one: usize,
        other: usize,
        field: usize,
        path: Option<&[Vec<usize>]>,
    ) -> Diagnostic {
        let channel = self.graph.schema.channels()[field].name();
        let span = |it: usize| self.specs[it].span.clone();
        let first = self.names[one];
        let second = self.names[other];
        let ty = self.graph.schema.channels()[field].ty().required();
        let reducers = Reducer::for_several_writers(ty);
        let reducers: Vec<String> = reducers.iter().map(|it| format!("`merge: {it}`")).collect();
        let reducer = (!reducers.is_empty())
            .then(|| format!("give `{channel}` a reducer ({})", reducers.join(" or ")));
        if one == other {
            let message = format!("several tasks of `{first}` write `{channel}` in the same step");
            let diagnostic =
                Diagnostic::error("GR036", message).at(span(one), "once for each item");
            let as_list = || {
                format!(
                    "no reducer fits `{ty}`: write `{channel}: {{ type: [{ty}], merge: append }}`"
                )
            };
            return diagnostic.help(reducer.unwrap_or_else(as_list));
        }
        let message = format!("`{first}` and `{second}` write `{channel}` in the same step");
        let diagnostic = Diagnostic::error("GR036", message).at(span(one), "one writer");
        let label = match path {
            Some(path) => format!("the other writer, after {}", self.described(path)),
            None => "the other writer".to_owned(),
        };
        diagnostic.at(span(other), label).help(match reducer {
            Some(reducer) => format!("{reducer}, or let one write another field"),
            None => "let one write another field".to_owned(),
        })
    }

    /// Returns the steps before the last one of a path.
    fn described(&self, path: &[Vec<usize>]) -> String {
        const STEPS_MAX: usize = 6;
        let Some((_, before)) = path.split_last().filter(|(_, it)| !it.is_empty()) else {
            return "the start".to_owned();
        };
        let step = |nodes: &Vec<usize>| {
            let names: Vec<String> =
                nodes.iter().map(|it| format!("`{}`", self.names[*it])).collect();
            names.join(" + ")
        };
        let shown = &before[before.len().saturating_sub(STEPS_MAX)..];
        let mut steps: Vec<String> = shown.iter().map(step).collect();
        if shown.len() < before.len() {
            steps.insert(0, "…".to_owned());
        }
        steps.join(", then ")
    }

    /// Returns `None` if another diagnostic reports the cause.
    fn starving(&self, starving: &StarvedJoin) -> Option<Diagnostic> {
        let StarvedJoin { join, missing, by } = starving;
        let name = self.names[self.model.joins[*join].node];
        if !self.model.reached().contains(*missing) {
            return None;
        }
        let missing = self.shown(*missing);
        let message = format!("`{name}` may wait for `{missing}` forever");
        let Some(by) = by else {
            // It is never reached; the check of reachability reports it if no edge leads to it.
            let diagnostic =
                Diagnostic::error("GR131", message).at(self.place_of_join(name), "here");
            let help = format!("lead to `{missing}` on every path, or do not wait for it");
            return Some(diagnostic.help(help));
        };
        let diagnostic = Diagnostic::error("GR131", message)
            .at(self.specs[by.from].span.clone(), self.astray(by))
            .at(self.place_of_join(name), format!("waits for `{missing}`"));
        let from = match self.names[by.from].strip_scope(missing.as_str()) {
            Some(_) => missing,
            None => self.shown(by.from),
        };
        let is_failure = matches!(by.ending, Ending::Caught | Ending::Exhausted);
        let help = if by.from == self.model.joins[*join].node {
            format!("let `{name}` lead to every node that it waits for")
        } else if is_failure && by.to.contains(&Arrow::Node(self.model.joins[*join].node)) {
            format!(
                "this is no arrival at `{name}`: let it lead to a node for which `{name}` waits, or give `{name}` \
                 `defer: true` in place of its `join`"
            )
        } else {
            let to = if from == missing { name } else { missing };
            format!(
                "make every path from `{from}` lead to `{to}` or to `fail`; if only some of the awaited nodes run, \
                 give `{name}` `defer: true` in place of its `join`, or let these lead to one node, such as \
                 `either: {{ set: {{}} }}`, and wait for that"
            )
        };
        Some(diagnostic.help(help))
    }

    /// Returns the name of a node in its file: the end of a used workflow has that of the node that uses it.
    fn shown(&self, node: usize) -> &NodeName {
        match &self.specs[node].policies.schedule.defer {
            Some(Defer::Scope(name)) => name,
            Some(Defer::Siblings) | None => self.names[node],
        }
    }

    fn astray(&self, by: &WrongChoice) -> String {
        let target = |arrow: &Arrow| match *arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => Some(self.names[to]),
            Arrow::Join(join) => Some(self.names[self.model.joins[join].node]),
            Arrow::End | Arrow::Fail => None,
        };
        let to: Vec<String> = by.to.iter().filter_map(target).map(|it| format!("`{it}`")).collect();
        let to = if to.is_empty() { "`end`".to_owned() } else { to.join(" and ") };
        match by.ending {
            _ if by.is_spent => format!("leads to {to}, which may be used up"),
            Ending::Caught => format!("its `catch` leads to {to} only"),
            Ending::Exhausted => format!("its `exhausted` leads to {to} only"),
            Ending::Finished | Ending::Chosen | Ending::Skipped => format!("may lead to {to} only"),
        }
    }

    /// Checks each join alone, because there are too many situations to explore.
    fn joins_alone(&self, exclusions: &Exclusions, diagnostics: &mut Diagnostics) {
        for (at, join) in self.model.joins.iter().enumerate() {
            match check_join_alone(self.model, at) {
                JoinVerdict::Completes => (),
                JoinVerdict::Starves(starving) if exclusions.is_empty() => {
                    diagnostics.extend(self.starving(&starving));
                }
                // The routes on the path may exclude each other.
                JoinVerdict::Starves(_) | JoinVerdict::Unknown => {
                    let name = self.names[join.node];
                    let message = format!("whether `{name}` may wait forever was not checked");
                    let label = "too many combinations of paths lead here";
                    let help = "let fewer branches meet here, or move some into a workflow of their own with \
                                `use: { nested: true }`";
                    let span = self.place_of_join(name);
                    diagnostics
                        .push(Diagnostic::warning("GR136", message).at(span, label).help(help));
                }
            }
        }
    }

    fn place_of_join(&self, name: &NodeName) -> Option<SourceSpan> {
        self.graph.edges.iter().find_map(|it| match it {
            Edge::Join { to, span, .. } if to == name => span.clone(),
            _ => None,
        })
    }
}
