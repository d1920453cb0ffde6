//! Data flow: the fields that may be assigned, and those that must be assigned, when a node runs.
//!
//! It is computed from the [draft](super::lower::draft) of the workflow, because the checks of expressions
//! and prompts need it. A part that is missing because of a reported mistake counts as one that may
//! do anything, so nothing is reported about its consequences.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use graphrun_analysis::flow_model::{DraftEdge, DraftNode, FlowModel, field_numbers};
use graphrun_core::{
    graph::{Edge, Limits, NodeDescription, Policies, RouteChoice, Target},
    id::{ChannelName, NodeName},
    state::{Schema, Type},
};
use graphrun_expressions::{
    FieldGuarantee,
    flow::{Flow, FlowParts, guarantee::Guarantee, success::SuccessFields},
};

use super::{
    Registry, Workflow,
    edge::draft::{EdgeDraft, RouteDraft},
    lower::{
        declarations::Declarations,
        draft::{NodeDraft, WorkflowDraft},
    },
    node::structure::fields_of_use,
    source::{reader::Yaml, shape::Section},
};

/// The inputs of the data flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    pub(super) top: &'a Section<'a>,
    pub(super) draft: &'a WorkflowDraft<'a>,
    pub(super) declarations: &'a Declarations,
    pub(super) schema: &'a Schema,
    pub(super) input: &'a [ChannelName],
    pub(super) start: &'a [NodeName],
    pub(super) limits: &'a Limits,
    pub(super) registry: &'a Registry,
    /// The used workflows, by the node that uses them.
    pub(super) loaded: &'a BTreeMap<NodeName, Workflow>,
    /// The fields whose declaration has a reported mistake.
    pub(super) incomplete_fields: &'a BTreeSet<ChannelName>,
    /// Whether an error hides where a run starts, or where a limit leads.
    pub(super) lacks_start: bool,
}

/// The guarantees that the routes of a workflow prove, each once.
#[derive(Debug, Default)]
struct RouteGuarantees {
    guarantees: Vec<Guarantee>,
    /// The fields of each.
    fields: Vec<Vec<ChannelName>>,
}

impl RouteGuarantees {
    fn of(sources: Sources<'_>, success: &SuccessFields) -> Self {
        let mut found = Self::default();
        let routes = sources.draft.edges.iter().filter_map(|edge| match edge {
            EdgeDraft::Route { route, .. } => Some(route),
            EdgeDraft::Plain(_) => None,
        });
        for proved in routes.flat_map(|it| it.guarantees(sources.schema, success)).flatten() {
            let field = |it: &String| Some(sources.schema.channel(it)?.name().clone());
            let fields: Option<Vec<_>> = proved.fields.iter().map(field).collect();
            let Some(fields) = fields.filter(|_| !found.guarantees.contains(&proved.guarantee))
            else {
                continue;
            };
            found.guarantees.push(proved.guarantee);
            found.fields.push(fields);
        }
        found
    }

    /// Returns the numbers of the guarantees that follow from those that a decision proves.
    fn numbers(&self, proved: &[FieldGuarantee]) -> Vec<usize> {
        let follows =
            |guarantee: &Guarantee| guarantee.follows_from(proved.iter().map(|it| &it.guarantee));
        let guarantees = self.guarantees.iter().enumerate();
        guarantees.filter(|(_, it)| follows(it)).map(|(at, _)| at).collect()
    }
}

impl<'a> Sources<'a> {
    /// Returns the data flow.
    pub(super) fn flow(self) -> Flow {
        let names: Vec<NodeName> = self.declarations.nodes.iter().cloned().collect();
        let range = |yaml: Option<&Yaml>| yaml.map_or(0..0, |it| it.range.clone());
        let start = range(self.top.get("start"));
        let limit = self.top.get("limits").and_then(|it| it.get("exhausted"));
        let span = |name: &NodeName| self.draft.nodes.get(name).map(|it| it.key.range.clone());
        let spans = names.iter().map(|it| span(it).unwrap_or(start.clone())).collect();
        let success = self.success();
        let proved = RouteGuarantees::of(self, &success);
        Flow::of(FlowParts {
            model: FlowModel::of(&self.flow_draft(&proved, &success)),
            fields: field_numbers(self.schema),
            proved: proved.guarantees,
            success,
            has_incomplete_nodes: self.has_incomplete_nodes(),
            lacks_edges: self.lacks_edges(),
            names,
            spans,
            start,
            limit: range(limit),
        })
    }

    fn flow_draft(
        self,
        proved: &RouteGuarantees,
        success: &SuccessFields,
    ) -> graphrun_analysis::flow_model::Draft<'a> {
        graphrun_analysis::flow_model::Draft {
            schema: self.schema,
            input: self.input,
            given: self.possible_inputs(),
            facts: proved.fields.clone(),
            start: self.start,
            after_limit: self.limits.exhausted.as_ref(),
            nodes: self.declarations.nodes.iter().map(|it| (it, self.node(it))).collect(),
            edges: self.edges(proved, success),
        }
    }

    /// Returns whether a reported mistake leaves it open what some node changes, or where it leads.
    fn has_incomplete_nodes(self) -> bool {
        let is_registered = |node: &NodeDraft<'_>| {
            node.section
                .get("node")
                .and_then(Yaml::text)
                .is_some_and(|it| self.registry.custom(it).is_some())
        };
        let is_open = |(name, node): (&NodeName, &NodeDraft<'a>)| {
            !is_registered(node) && self.written(name, node).is_none()
        };
        !self.declarations.incomplete.is_empty()
            || self.draft.nodes.len() < self.declarations.nodes.len()
            || self.draft.nodes.iter().any(is_open)
    }

    /// Returns whether edges are missing, because of a reported mistake.
    pub(super) fn lacks_edges(self) -> bool {
        self.lacks_start
            || self.draft.lacks_edges
            || !self.declarations.incomplete.is_empty()
            || self
                .draft
                .edges
                .iter()
                .any(|it| self.edges_of_incomplete_match(it).is_some() || lacks_bool(it))
    }

    fn every_field(self) -> Vec<ChannelName> {
        self.schema.channels().iter().map(|it| it.name().clone()).collect()
    }

    /// Returns the fields that were probably meant as assigned before the first step.
    fn possible_inputs(self) -> Vec<ChannelName> {
        let input = self.top.get("input").map(Yaml::words).unwrap_or_default();
        if input.iter().any(|it| self.schema.channel(it).is_none()) {
            return self.every_field();
        }
        self.incomplete_fields.iter().cloned().collect()
    }

    fn node(self, name: &NodeName) -> DraftNode<'a> {
        let Some(node) = self.draft.nodes.get(name) else {
            let policies = Cow::Owned(Policies::default());
            return DraftNode {
                policies,
                has_condition: false,
                may_assign: None,
                must_assign: None,
            };
        };
        let mut policies = Cow::Borrowed(&node.policies);
        if policies.bounds.max_visits.is_none() && node.section.get("max_visits").is_some() {
            policies.to_mut().bounds.max_visits = Some(1);
        }
        if !self.declarations.incomplete.is_empty() && !policies.on_finish.clears.is_empty() {
            // The order of assignments and clears is unknown.
            policies.to_mut().on_finish.clears.clear();
        }
        let (may_assign, must_assign) = self.written(name, node).unzip();
        let has_condition = node.section.get("when").is_some();
        DraftNode { policies, has_condition, may_assign, must_assign }
    }

    /// Returns the fields that a node may write, and those that it writes whenever it finishes.
    ///
    /// A node without valid ones counts as assigning every field, so that no reader of its fields
    /// is reported.
    pub(super) fn written(
        self,
        name: &NodeName,
        node: &NodeDraft<'a>,
    ) -> Option<(Vec<ChannelName>, Vec<ChannelName>)> {
        let section = &node.section;
        if let Some(custom) = section.get("node").and_then(Yaml::text) {
            let custom = self.registry.custom(custom)?;
            let NodeDescription { contract, writes_always, .. } = custom.describe();
            let may_assign = contract.writes?;
            let must_assign = writes_always.unwrap_or_else(|| may_assign.clone());
            let known = |it: Vec<ChannelName>| self.known(it.iter().map(ChannelName::as_str));
            return known(may_assign).zip(known(must_assign));
        }
        if let Some(used) = section.get("use") {
            let (may_assign, must_assign) = fields_of_use(used, self.loaded.get(name));
            return self.known(may_assign.into_iter()).zip(self.known(must_assign.into_iter()));
        }
        let is_incomplete = self.declarations.incomplete.contains(name)
            && !self.declarations.joins.contains_key(name);
        let mut keys: BTreeSet<&str> = ["writes"].into();
        let mut lacks_writes = false;
        let (mut may_omit, mut also): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for kind in self.registry.kinds_of(section.yaml()) {
            lacks_writes |= kind.requires("writes") && section.get("writes").is_none();
            keys.extend(kind.keys_of_written_fields());
            may_omit.extend(kind.kind.may_leave_unwritten(section));
            also.extend(kind.kind.also_changes(section));
        }
        let written = keys.into_iter().filter_map(|it| section.get(it)).flat_map(Yaml::words);
        let may_assign = self.known(written).filter(|_| !is_incomplete && !lacks_writes)?;
        let must_assign =
            may_assign.iter().filter(|it| !may_omit.contains(&it.as_str())).cloned().collect();
        let also = also.iter().filter_map(|it| Some(self.schema.channel(it)?.name().clone()));
        Some((may_assign.into_iter().chain(also).collect(), must_assign))
    }

    /// The fields of these names, unless one is unknown.
    fn known<'n>(self, names: impl Iterator<Item = &'n str>) -> Option<Vec<ChannelName>> {
        names.map(|it| Some(self.schema.channel(it)?.name().clone())).collect()
    }

    /// Returns the fields that show the success of commands. Only commands write such a field, so it shows the success
    /// of the last one, also later in the run.
    fn success(self) -> SuccessFields {
        let shown = |node: &NodeDraft<'a>| {
            let kinds = self.registry.kinds_of(node.section.yaml());
            kinds.flat_map(|it| it.kind.success_fields(&node.section)).collect::<Vec<_>>()
        };
        let nodes: Vec<_> = self.draft.nodes.iter().map(|it| (it, shown(it.1))).collect();
        let mut found = SuccessFields::default();
        let is_certain = |name: &str| {
            let channel = self.schema.channel(name);
            channel.is_some_and(|channel| {
                let is_input = self.input.contains(channel.name());
                !is_input && channel.default().is_none() && channel.reducer().is_replace()
            })
        };
        let fields = nodes.iter().flat_map(|it| &it.1).map(|it| it.0);
        let fields: BTreeSet<&str> = fields.filter(|it| is_certain(it)).collect();
        if fields.is_empty() {
            return found;
        }
        let cleared = |name: &&str| {
            let mut clears = nodes.iter().flat_map(|((_, it), _)| &it.policies.on_finish.clears);
            clears.any(|it| it.as_str() == *name)
        };
        let may_be_null = |name: &&str| {
            let channel = self.schema.channel(name);
            channel.is_none_or(|it| matches!(it.ty(), Type::Optional(_)))
        };
        let left = |node: &NodeDraft<'a>| {
            let kinds = self.registry.kinds_of(node.section.yaml());
            let left = kinds.flat_map(|it| it.kind.may_leave_unwritten(&node.section));
            left.filter(|it| !cleared(it) && !may_be_null(it)).map(str::to_owned).collect()
        };
        for ((name, node), shown) in &nodes {
            let Some((written, _)) = self.written(name, node) else {
                return SuccessFields::default();
            };
            for field in written.iter().filter(|it| fields.contains(it.as_str())) {
                match shown.iter().find(|it| it.0 == field.as_str()) {
                    Some((_, form)) => found.add(field.as_str(), *form, left(node)),
                    None => found.add_unrelated(field.as_str()),
                }
            }
        }
        found
    }

    fn edges(self, guarantees: &RouteGuarantees, success: &SuccessFields) -> Vec<DraftEdge<'a>> {
        let edge = |draft: &'a EdgeDraft<'a>| match draft {
            EdgeDraft::Plain(Edge::Then { from, to, .. }) if self.is_incomplete_join(to) => {
                self.edge_to_incomplete_join(from, to.clone())
            }
            EdgeDraft::Plain(edge) => DraftEdge::of(edge),
            EdgeDraft::Route { from, route, .. } => {
                let mut choices = route.choices();
                for choice in &mut choices {
                    if choice.to.iter().any(|it| self.is_incomplete_join(it)) {
                        choice.known = self.every_field();
                    }
                }
                let proved = route.guarantees(self.schema, success);
                let proved = proved.iter().map(|it| guarantees.numbers(it)).collect();
                DraftEdge::Choice { from, choices, proved }
            }
        };
        let incomplete_matches =
            self.draft.edges.iter().filter_map(|it| self.edges_of_incomplete_match(it));
        let arrivals = self.draft.incomplete_arrivals.iter();
        let arrivals =
            arrivals.map(|(from, to)| self.edge_to_incomplete_join(from, Target::Node(to.clone())));
        self.draft.edges.iter().map(edge).chain(incomplete_matches).chain(arrivals).collect()
    }

    /// Returns the edges of a match that lacks a case, which is reported: the case may have been meant to lead to any
    /// node.
    fn edges_of_incomplete_match(self, edge: &'a EdgeDraft<'a>) -> Option<DraftEdge<'a>> {
        let EdgeDraft::Route { from, route: RouteDraft::Match { on, arms, .. }, .. } = edge else {
            return None;
        };
        let mut names = on.as_ref()?.text()?.trim().split('.');
        let field = self.schema.channel(names.next()?)?.ty().required().clone();
        let ty = names.try_fold(field, |ty, name| Some(ty.field(name)?.required().clone()))?;
        let values: Vec<&str> = match &ty {
            Type::Enum(values) => values.iter().map(String::as_str).collect(),
            Type::Bool => vec!["true", "false"],
            _ => return None,
        };
        let has = |value: &str| arms.iter().any(|it| it.0.text == value);
        let missing = values.iter().filter(|it| !has(it)).count();
        // A misspelt case has its target.
        let misspelt = arms.iter().filter(|it| !values.contains(&it.0.text.as_str())).count();
        let choice = |to: &NodeName| RouteChoice {
            to: vec![Target::Node(to.clone())],
            is_dispatched: false,
            known: self.every_field(),
        };
        let choices = || self.declarations.nodes.iter().map(choice).collect();
        (missing > misspelt).then(|| DraftEdge::Choice {
            from,
            choices: choices(),
            proved: Vec::new(),
        })
    }

    /// Returns whether a target is a join that lacks some of the nodes it waits for.
    fn is_incomplete_join(self, target: &Target) -> bool {
        target.node().is_some_and(|it| self.declarations.is_incomplete_join(it))
    }

    /// Returns an edge to such a join: the nodes that it lacks may have assigned every field.
    fn edge_to_incomplete_join(self, from: &'a NodeName, to: Target) -> DraftEdge<'a> {
        let choice = RouteChoice { to: vec![to], is_dispatched: false, known: self.every_field() };
        DraftEdge::Choice { from, choices: vec![choice], proved: Vec::new() }
    }
}

/// Returns whether a match over `true` and `false` lacks one of them, which is reported.
fn lacks_bool(edge: &EdgeDraft<'_>) -> bool {
    let EdgeDraft::Route { route: RouteDraft::Match { arms, .. }, .. } = edge else { return false };
    matches!(arms.as_slice(), [(only, _)] if matches!(only.text.as_str(), "true" | "false"))
}
