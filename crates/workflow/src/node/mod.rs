//! The nodes, read with the data flow around them: the keys that all kinds share, and the structural kinds.

pub(super) mod bounds;
mod cache;
mod failures;
pub(super) mod policies;
pub(super) mod structure;

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    diagnostic::{Diagnostic, SourceSpan},
    graph::Edge,
    id::NodeName,
};

use self::{cache::read_cache, failures::warn_of_failures_that_never_occur};
use super::{
    NodeDefinition,
    edge::{
        draft::EdgeDraft,
        then::{check_condition, fail_reason},
    },
    kind::{NodeReader, NodeSettings},
    lower::{
        draft::{NodeDraft, WorkflowDraft},
        environment::{Environment, NodeScope},
    },
    source::{
        reader::{SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// Reads the rest of a draft: the expressions, the prompts and the keys of each kind.
pub(super) fn read_nodes(
    report: &mut Report,
    env: &Environment,
    draft: &WorkflowDraft<'_>,
) -> (BTreeMap<NodeName, NodeDefinition>, Vec<Edge>) {
    let mut nodes = BTreeMap::new();
    let mut scopes = BTreeMap::new();
    for (name, node) in &draft.nodes {
        let scope = NodeScope::of(env, name);
        // A node that its `when` skips takes its routes, too, so the condition proves nothing there.
        scopes.insert(name, scope.clone().behind());
        let definition = read_node(report, scope, node);
        nodes.extend(definition.map(|it| (name.clone(), it)));
    }
    let mut compiled = |edge: &EdgeDraft<'_>| match edge {
        EdgeDraft::Plain(edge) => Some(edge.clone()),
        EdgeDraft::Route { from, route, span } => {
            let route = route.compile(report, scopes.get(from)?)?;
            Some(Edge::Route { from: from.clone(), route, span: span.clone() })
        }
    };
    let edges = draft.edges.iter().filter_map(&mut compiled).collect();
    for (name, definition) in &mut nodes {
        let channel = |it| Some(env.schema.channel(it)?.name().clone());
        definition.relies_on =
            report.references.assigned_fields(name).filter_map(channel).collect();
    }
    warn_of_failures_that_never_occur(report, env, draft, &nodes);
    (nodes, edges)
}

/// Reads a node.
fn read_node(
    report: &mut Report,
    mut scope: NodeScope<'_>,
    draft: &NodeDraft<'_>,
) -> Option<NodeDefinition> {
    let NodeDraft { key, section, kind, policies, about } = draft;
    let mut policies = policies.clone();
    policies.schedule.width_max = scope.item.and_then(|it| it.width_max);
    if let Some(items) = &mut policies.schedule.items {
        items.order = scope.item.and_then(|it| it.order.clone());
    }
    let when = section.get("when").and_then(|yaml| {
        let condition = scope.expression(report, yaml)?;
        check_condition(report, yaml, &condition);
        Some(condition)
    });
    if let Some(field) = section.get("then").and_then(fail_reason) {
        // As an expression, it is checked for being assigned.
        if policies.on_finish.fail_reason.is_some() {
            let scope = scope.clone().behind();
            scope.expression_for(report, field, scope.after().that_is_a_field());
        }
    }
    if let Some(when) = &when {
        scope.known = when.known().clone();
    }
    let settings = kind.and_then(|kind| {
        // The timeout limits the wait for a person, which continues while no process runs.
        let timeout = policies.attempts.timeout.take_if(|_| kind.kind.asks());
        let retry = &policies.attempts.retry;
        let scope = &scope;
        let mut reader = NodeReader { scope, report, name_key: key, section, kind, timeout, retry };
        kind.kind.read(&mut reader)
    });
    if let Some(settings) = &settings {
        warn_of_effectless_policies(report, section, settings.as_ref());
    }
    let cache = read_cache(report, &scope, section, settings.as_deref());
    let span = SourceSpan { file: report.file.clone(), range: key.range.clone() };
    let settings = settings?;
    let about = about.clone();
    let scopes = Vec::new();
    // The routes may read more.
    let relies_on = BTreeSet::new();
    Some(NodeDefinition { settings, policies, when, cache, span, about, scopes, relies_on })
}

/// Keys that change nothing for a node.
struct WithoutEffect {
    keys: Vec<SpannedText>,
    reason: &'static str,
    help: &'static str,
}

impl WithoutEffect {
    /// Finds them; `None` for a node to which all keys apply.
    fn of(section: &Section<'_>, settings: &dyn NodeSettings) -> Option<Self> {
        let keys = |keys: &[&str]| keys.iter().filter_map(|it| section.key(it)).cloned().collect();
        let is_pure = is_pure(settings);
        Some(if section.get("use").is_some() && is_pure {
            let help = "write `use: { nested: true, … }`, so that it applies to each call";
            Self { keys: keys(&["limits"]), reason: "the node only begins the used workflow", help }
        } else if section.get("map").is_some() && is_pure {
            // The other keys are refused.
            let help = "put it on the node that it runs";
            Self { keys: keys(&["limits"]), reason: "the node only begins its items", help }
        } else if is_pure {
            let keys = keys(&["retry", "timeout", "limits"]);
            let computes = "the node computes its fields at once";
            let reason =
                if section.get("wait").is_some() { "the node only waits" } else { computes };
            Self { keys, reason, help: "remove it" }
        } else if settings.models().is_none()
            && settings.programs().is_empty()
            && settings.needs_sandbox()
        {
            let limits = section.get("limits").map(Yaml::entries).unwrap_or_default();
            let of_models = limits.iter().map(|it| &it.key);
            let is_of_models = |it: &str| matches!(it, "calls" | "tokens" | "usd");
            let of_models = of_models.filter(|it| is_of_models(&it.text));
            let keys = of_models.cloned().collect();
            Self { keys, reason: "the node asks no model", help: "remove it" }
        } else {
            return None;
        })
    }
}

/// Returns whether a node only computes fields from the state.
pub(super) fn is_pure(settings: &dyn NodeSettings) -> bool {
    settings.computes().is_some() && settings.choices().is_none()
}

/// Warns about policies that change nothing for a node of this kind.
fn warn_of_effectless_policies(
    report: &mut Report,
    section: &Section<'_>,
    settings: &dyn NodeSettings,
) {
    let retry = section.get("retry").map(Yaml::entries).unwrap_or_default();
    let codes = retry.iter().map(|it| &it.key).find(|it| it.text == "exit_codes");
    if let Some(key) = codes.filter(|_| !settings.has_exit_code()) {
        let message = "`exit_codes` has no effect here: the node runs no command";
        warn_of_no_effect(report, key, message, "remove it; `on` names kinds of failure");
    }
    if let Some(WithoutEffect { keys, reason, help }) = WithoutEffect::of(section, settings) {
        for key in keys {
            let message = format!("`{}` has no effect here: {reason}", key.text);
            warn_of_no_effect(report, &key, message, help);
        }
    }
}

pub(super) fn warn_of_no_effect(
    report: &mut Report,
    key: &SpannedText,
    message: impl Into<String>,
    help: &str,
) {
    let span = report.span(&key.range);
    let diagnostic = Diagnostic::warning("GR134", message).at(span, "without effect");
    report.push(diagnostic.help(help));
}
