//! Fan-out and fan-in: the edges behind the nodes, the branches of a `parallel` and the tasks of a
//! `map`, and the joins.

use std::collections::BTreeSet;

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    graph::{Edge, Target},
    id::NodeName,
    state::Schema,
};

use super::{
    draft::{EdgeDraft, RouteDraft},
    then::{fail_reason, is_conditional, read_then, targets_within},
};
use crate::{
    lower::declarations::{AwaitedNodes, Declarations, Follows},
    source::{
        reader::{Data, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The edges of a workflow, as far as they are read.
#[derive(Debug)]
pub(crate) struct Edges<'y, 'd> {
    declarations: &'d Declarations,
    schema: &'d Schema,
    pub(crate) drafts: Vec<EdgeDraft<'y>>,
    /// The arrivals: each node that leads to a join that awaits it, with the join.
    arrivals: BTreeSet<(NodeName, NodeName)>,
    /// The arrivals at a join that lacks some of the nodes it waits for, because of a reported mistake.
    pub(crate) incomplete_arrivals: BTreeSet<(NodeName, NodeName)>,
}

/// The continuation behind a name.
enum Following<'y> {
    /// The targets that its `then` gives.
    Written(&'y Yaml),
    /// The next name of its branch.
    Next(NodeName, Option<SourceSpan>),
    /// The `parallel` or `map` around it makes the edges.
    Owned,
}

impl<'y, 'd> Edges<'y, 'd> {
    pub(crate) fn new(declarations: &'d Declarations, schema: &'d Schema) -> Self {
        let arrivals = BTreeSet::new();
        let incomplete_arrivals = BTreeSet::new();
        Self { declarations, schema, drafts: Vec::new(), arrivals, incomplete_arrivals }
    }

    /// Reads the edges that leave a node, a `map` or a `parallel`.
    pub(crate) fn read(&mut self, report: &mut Report, name: &NodeName, section: &Section<'y>) {
        let Some(following) = self.following(report, name, section) else { return };
        let is_group = self.declarations.groups.contains_key(name);
        let is_map = section.get("map").is_some();
        match following {
            Following::Owned if is_map => {
                let message = format!("the map `{name}` is the last node of its branch");
                let span = section.key("map").and_then(|it| report.span(&it.range));
                let diagnostic = Diagnostic::error("GR039", message);
                let diagnostic = diagnostic.at(span, "no node gathers its results");
                report.push(diagnostic.help("let another node of the branch follow it"));
            }
            Following::Owned => (),
            Following::Written(then) if is_group || is_map => {
                let targets = self.plain_targets(report, then, is_map);
                self.gather(name, &targets, report.span(&then.range).as_ref());
            }
            Following::Written(then) if fail_reason(then).is_some() => {
                self.lead(name, vec![Target::Fail], report.span(&then.range).as_ref());
            }
            Following::Written(then) if is_conditional(then) => {
                let route = read_then(report, self.declarations, self.schema, then);
                if let Some(route) = route {
                    self.push_route(name, route, report.span(&then.range));
                }
            }
            Following::Written(then) => {
                let targets = self.declarations.read_targets(report, then, "`then`");
                self.lead(name, targets, report.span(&then.range).as_ref());
            }
            Following::Next(next, span) => {
                let starts = self.declarations.starts(&next);
                let targets: Vec<Target> = starts.into_iter().map(Target::Node).collect();
                if is_group || is_map {
                    self.gather(name, &targets, span.as_ref());
                } else {
                    self.lead(name, targets, span.as_ref());
                }
            }
        }
    }

    fn following(
        &self,
        report: &mut Report,
        name: &NodeName,
        section: &Section<'y>,
    ) -> Option<Following<'y>> {
        let then = section.get("then");
        let owner = match self.declarations.follows(name) {
            Follows::Then if then.is_none() && self.declarations.may_be_a_part(name) => {
                return None;
            }
            Follows::Then => {
                let help = "add `then`, even if it is `then: end`";
                return section.require(report, "then", help).map(Following::Written);
            }
            Follows::Next(next) => {
                let span = section.keys().next().and_then(|it| report.span(&it.range));
                return Some(then.map_or(Following::Next(next.clone(), span), Following::Written));
            }
            Follows::Group(owner) | Follows::Map(owner) => owner,
        };
        if let Some(then) = section.key("then") {
            let message = format!("`{owner}` decides the next node after `{name}`");
            let span = report.span(&then.range);
            let diagnostic = Diagnostic::error("GR039", message).at(span, "not here");
            report.push(diagnostic.help(format!("move it to `{owner}`")));
        }
        Some(Following::Owned)
    }

    /// Reads plain targets behind several tasks. No single task can decide for all, so routes are
    /// refused.
    fn plain_targets(&self, report: &mut Report, then: &Yaml, is_map: bool) -> Vec<Target> {
        if let Some(reason) = fail_reason(then) {
            let message = "only a single node can fail with a reason";
            let diagnostic = Diagnostic::error("GR039", message);
            report.push(diagnostic.at(report.span(&reason.range), "not here"));
            return vec![Target::Fail];
        }
        if !is_conditional(then) {
            return self.declarations.read_targets(report, then, "`then`");
        }
        let what = if is_map { "a map" } else { "a parallel" };
        let message = format!("the node after {what} cannot depend on the state");
        let diagnostic =
            Diagnostic::error("GR039", message).at(report.span(&then.range), "conditions");
        report.push(diagnostic.help("lead to one node, and route from there"));
        targets_within(self.declarations, then)
    }

    fn push_route(&mut self, from: &NodeName, route: RouteDraft<'y>, span: Option<SourceSpan>) {
        self.drafts.push(EdgeDraft::Route { from: from.clone(), route, span });
    }

    /// Adds plain edges. If the target is a join that awaits the node, the join is the edge.
    fn lead(&mut self, from: &NodeName, targets: Vec<Target>, span: Option<&SourceSpan>) {
        for to in targets {
            match to {
                Target::Node(join) if self.declarations.is_awaited(from, &join) => {
                    self.arrive(from.clone(), join, false);
                }
                to => {
                    let from = from.clone();
                    let span = span.cloned();
                    self.drafts.push(EdgeDraft::Plain(Edge::Then { from, to, span }));
                }
            }
        }
    }

    fn arrive(&mut self, from: NodeName, join: NodeName, is_incomplete: bool) {
        if is_incomplete || self.declarations.is_incomplete_join(&join) {
            self.incomplete_arrivals.insert((from.clone(), join.clone()));
        }
        self.arrivals.insert((from, join));
    }

    /// Adds the edges behind a `parallel`, which waits for all branches, or a `map`, whose tasks
    /// are one step.
    fn gather(&mut self, name: &NodeName, targets: &[Target], span: Option<&SourceSpan>) {
        let ends = self.declarations.ends(name);
        if let Some(node) = self.declarations.maps.get(name).cloned() {
            let after = targets.to_vec();
            self.push_route(name, RouteDraft::Each { node, after }, span.cloned());
            for end in &ends {
                self.lead(end, targets.to_vec(), span);
            }
            return;
        }
        let is_incomplete = self.declarations.incomplete.contains(name);
        for target in targets {
            let Target::Node(to) = target else {
                // The run ends when no task is left, independent of the order of the branches.
                for end in &ends {
                    self.lead(end, vec![target.clone()], span);
                }
                continue;
            };
            let is_awaited = |end: &NodeName| self.declarations.is_awaited(end, to);
            if ends.is_empty() || !ends.iter().all(is_awaited) {
                let from = ends.clone();
                let to = to.clone();
                let span = span.cloned();
                let count = from.len();
                self.drafts.push(EdgeDraft::Plain(Edge::Join { from, to, count, span }));
            }
            for end in &ends {
                self.arrive(end.clone(), to.clone(), is_incomplete);
            }
        }
    }

    /// A node with a `join` waits for others, each of which must lead to it.
    pub(crate) fn read_join(
        &mut self,
        report: &mut Report,
        name: &NodeName,
        section: &Section<'_>,
    ) {
        let (Some(yaml), Some(AwaitedNodes { nodes: from, count })) =
            (section.get("join"), self.declarations.joins.get(name).cloned())
        else {
            return;
        };
        let span = report.span(&yaml.range);
        let names = yaml.get("any").or_else(|| yaml.get("of")).unwrap_or(yaml);
        if from.len() < 2 && names.items().len() < 2 && !matches!(names.data, Data::Map(_)) {
            let diagnostic = Diagnostic::error("GR037", "a join waits for several nodes");
            report.push(diagnostic.at(span.clone(), "only one").help("remove `join`"));
        }
        let to = name.clone();
        self.drafts.push(EdgeDraft::Plain(Edge::Join { from, to, count, span }));
    }

    /// Each awaited node must lead to its join; otherwise the join would wait for ever.
    pub(crate) fn check_arrivals(&self, report: &mut Report) {
        if report.has_errors() {
            // The missing edge may be a misspelt one.
            return;
        }
        // A join of the node of a map is reported already.
        let is_of_map = |name: &NodeName| self.declarations.maps.values().any(|it| it == name);
        for (name, awaited) in self.declarations.joins.iter().filter(|it| !is_of_map(it.0)) {
            for from in &awaited.nodes {
                let is_routed = self.drafts.iter().any(|it| it.may_lead(from, name));
                if is_routed || self.arrivals.contains(&(from.clone(), name.clone())) {
                    continue;
                }
                let joins = self.drafts.iter().filter_map(|edge| match edge {
                    EdgeDraft::Plain(Edge::Join { from, to, span, .. }) if to == name => {
                        Some((from == &awaited.nodes, span.clone()))
                    }
                    _ => None,
                });
                let (own, others): (Vec<_>, Vec<_>) = joins.partition(|it| it.0);
                let span = own.into_iter().find_map(|it| it.1);
                if let Some((_, other)) = others.into_iter().next() {
                    let message =
                        format!("`{name}` has two joins: its own, and that of a `parallel`");
                    let diagnostic =
                        Diagnostic::error("GR037", message).at(span, "waits for these");
                    let diagnostic = diagnostic.at(other, "waits for all branches");
                    let help = "name the `parallel` in `join`, or remove `join`";
                    report.push(diagnostic.help(help));
                    break;
                }
                let message = format!("`{name}` waits for `{from}`, which does not lead to it");
                let diagnostic = Diagnostic::error("GR037", message).at(span, "waits forever");
                report.push(diagnostic.help(format!("give `{from}` the target `then: {name}`")));
            }
        }
    }
}
