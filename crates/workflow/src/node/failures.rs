//! The kinds of failure that the nodes of a workflow can have, for the settings that name some.
//!
//! The kinds of one node are those of [`NodeSettings::failures`]. A `map` has those of its items, and a `use` those of the
//! nodes of the used workflow.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{ErrorKind, Policies},
    id::NodeName,
};

use super::{
    is_pure,
    structure::{EnterNode, LeaveNode, NestedUse},
    warn_of_no_effect,
};
use crate::{
    MapSettings, NodeDefinition, Workflow,
    kind::NodeSettings,
    lower::{draft::WorkflowDraft, environment::Environment},
    source::{
        reader::{SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The kinds of failure of some nodes; `None` if they are not known.
type Failures = Option<BTreeSet<ErrorKind>>;

/// The kinds that any node can have: a value may reach a limit, and the code of a node may panic.
const OF_ALL: [ErrorKind; 2] = [ErrorKind::Other, ErrorKind::Panic];

/// Warns about the kinds of failure that a `catch` or a `retry` names, and that its node never has.
pub(crate) fn warn_of_failures_that_never_occur(
    report: &mut Report,
    env: &Environment,
    draft: &WorkflowDraft<'_>,
    nodes: &BTreeMap<NodeName, NodeDefinition>,
) {
    let read = NodesRead { nodes, env };
    for (name, node) in &draft.nodes {
        let Some(definition) = nodes.get(name) else { continue };
        let Some(failures) = read.failures(name, definition) else { continue };
        let with_items = definition.settings.downcast_ref::<MapSettings>();
        let with_items = with_items.and_then(|it| draft.nodes.get(&it.node));
        // The node has one with a value that is reported.
        let has_timeout = report.has_errors()
            && [Some(node), with_items]
                .iter()
                .flatten()
                .any(|it| it.section.has_or_means("timeout"));
        let is_needless = |word: &&SpannedText| {
            ErrorKind::named(&word.text).is_some_and(|kind| {
                let may_occur = OF_ALL.contains(&kind) || failures.contains(&kind);
                !may_occur && (kind != ErrorKind::Timeout || !has_timeout)
            })
        };
        let computes = is_pure(&*definition.settings) && node.section.get("wait").is_none();
        let why = if computes && failures.is_empty() {
            "the node computes its fields at once, and never fails"
        } else {
            "the node never fails"
        };
        for key in named_in_catch(&node.section).filter(is_needless) {
            let message = format!("{why} as `{}`", key.text);
            warn_of_no_effect(report, key, message, help(key, definition));
        }
        for word in named_in_retry(&node.section).iter().filter(is_needless) {
            let message = format!("{why} as `{}`", word.text);
            warn_of_no_effect(report, word, message, help(word, definition));
        }
    }
}

fn named_in_catch<'y>(section: &Section<'y>) -> impl Iterator<Item = &'y SpannedText> {
    section.get("catch").map(Yaml::entries).unwrap_or_default().iter().map(|it| &it.key)
}

fn named_in_retry(section: &Section<'_>) -> Vec<SpannedText> {
    let Some(on) = section.get("retry").and_then(|it| it.get("on")) else { return Vec::new() };
    on.items().iter().chain([on]).filter_map(Yaml::word).collect()
}

fn help(kind: &SpannedText, definition: &NodeDefinition) -> &'static str {
    let is_pure = is_pure(&*definition.settings);
    match ErrorKind::named(&kind.text) {
        Some(ErrorKind::Timeout) if !is_pure => "give the node a `timeout`, or remove it",
        Some(ErrorKind::Limit) => {
            "only items of a map and nested runs fail so: give their node `limits`, or use its `exhausted`"
        }
        _ => "remove it",
    }
}

/// The nodes of a file, as they have been read.
struct NodesRead<'r> {
    nodes: &'r BTreeMap<NodeName, NodeDefinition>,
    env: &'r Environment,
}

impl NodesRead<'_> {
    fn failures(&self, name: &NodeName, definition: &NodeDefinition) -> Failures {
        let NodeDefinition { settings, policies, .. } = definition;
        if let Some(map) = settings.downcast_ref::<MapSettings>() {
            let node = self.nodes.get(&map.node)?;
            let mut failures = self.failures(&map.node, node)?;
            let is_ordered = self.env.maps.get(name).is_some_and(|it| it.item.order.is_some());
            failures.extend(is_ordered.then_some(ErrorKind::Dependency));
            failures.extend(node.policies.bounds.limits.is_some().then_some(ErrorKind::Limit));
            return Some(failures);
        }
        let is_used = settings.downcast_ref::<EnterNode>().is_some()
            || settings.downcast_ref::<NestedUse>().is_some();
        if !is_used {
            return of_node(&**settings, policies);
        }
        let mut failures = of_workflow(self.env.loaded.get(name)?)?;
        failures.extend(timeout_of(policies));
        // Each nested run has the limits of its file, or the default ones.
        let is_nested = settings.downcast_ref::<NestedUse>().is_some();
        failures.extend(is_nested.then_some(ErrorKind::Limit));
        Some(failures)
    }
}

/// Returns the kinds of failure of the nodes of a workflow, at any depth.
fn of_workflow(workflow: &Workflow) -> Failures {
    let mut failures = BTreeSet::new();
    for (name, definition) in &workflow.nodes {
        failures.extend(of_node_in(workflow, name, definition)?);
    }
    Some(failures)
}

/// Returns the kinds of failure of a node of a workflow, with those that its items have as such.
fn of_node_in(workflow: &Workflow, name: &NodeName, definition: &NodeDefinition) -> Failures {
    let NodeDefinition { settings, policies, .. } = definition;
    let mut failures = match workflow.nested.get(name) {
        Some(nested) => {
            let of_run = [ErrorKind::Limit].into_iter().chain(timeout_of(policies));
            of_workflow(nested)?.into_iter().chain(of_run).collect()
        }
        None if is_structure(&**settings) => BTreeSet::new(),
        None => of_node(&**settings, policies)?,
    };
    let items = policies.schedule.items.as_ref();
    let is_ordered = items.is_some_and(|it| it.order.is_some());
    failures.extend(is_ordered.then_some(ErrorKind::Dependency));
    let has_limits = items.is_some() && policies.bounds.limits.is_some();
    failures.extend(has_limits.then_some(ErrorKind::Limit));
    Some(failures)
}

impl Workflow {
    /// Returns whether a node may have a failure of this kind. If its kinds are not known, it may have any.
    pub fn may_fail_as(&self, node: &NodeName, kind: ErrorKind) -> bool {
        let Some(definition) = self.nodes.get(node) else { return true };
        let failures = of_node_in(self, node, definition);
        OF_ALL.contains(&kind) || failures.is_none_or(|it| it.contains(&kind))
    }
}

/// Returns whether a node only leads to others, which fail in its place.
fn is_structure(settings: &dyn NodeSettings) -> bool {
    settings.downcast_ref::<MapSettings>().is_some()
        || settings.downcast_ref::<EnterNode>().is_some()
        || settings.downcast_ref::<LeaveNode>().is_some()
}

fn of_node(settings: &dyn NodeSettings, policies: &Policies) -> Failures {
    let mut failures: BTreeSet<ErrorKind> = settings.failures()?.into_iter().collect();
    if !is_pure(settings) {
        failures.extend(timeout_of(policies));
    }
    Some(failures)
}

fn timeout_of(policies: &Policies) -> Option<ErrorKind> {
    let attempts = &policies.attempts;
    attempts.timeout.or(attempts.idle_timeout).map(|_| ErrorKind::Timeout)
}
