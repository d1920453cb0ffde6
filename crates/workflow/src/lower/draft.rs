//! A workflow as it is written: its names are resolved and its edges known, but its expressions and
//! prompts are not read yet.
//!
//! The data flow is computed from the draft, and the checks of expressions and prompts need the data
//! flow. So policies and edges are read here, expressions and the keys of kinds in [`node`](crate::node).

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ItemPolicy, Policies},
    id::NodeName,
    state::Schema,
};

use crate::{
    Registry,
    edge::{draft::EdgeDraft, fan::Edges},
    format::{MappingKeys as _, NodeKeys},
    kind::RegisteredKind,
    node::{
        policies::{PolicyScope, read_policies},
        structure::{FAILED, MAP},
    },
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::{Section, is_later},
    },
};

/// The keys of a `parallel`.
const PARALLEL_KEYS: &[&str] = &["parallel", "about", "then"];

/// The key with the arguments of a tool.
const ARGUMENTS: &str = "args";

/// The nodes and edges of a workflow as they are written.
#[derive(Debug)]
pub(crate) struct WorkflowDraft<'y> {
    pub(crate) nodes: BTreeMap<NodeName, NodeDraft<'y>>,
    pub(crate) edges: Vec<EdgeDraft<'y>>,
    /// The arrivals at a join that lacks some of the nodes it waits for, because of a reported mistake.
    pub(crate) incomplete_arrivals: BTreeSet<(NodeName, NodeName)>,
    /// Whether edges are missing, because of a reported mistake.
    pub(crate) lacks_edges: bool,
}

/// A node as it is written.
#[derive(Debug)]
pub(crate) struct NodeDraft<'y> {
    pub(crate) key: &'y SpannedText,
    pub(crate) section: Section<'y>,
    /// Its kind, if it has exactly one.
    pub(crate) kind: Option<&'y RegisteredKind>,
    pub(crate) policies: Policies,
    pub(crate) about: Option<String>,
}

impl<'y> WorkflowDraft<'y> {
    pub(crate) fn read(report: &mut Report, nodes: &'y Yaml, scope: PolicyScope<'y, '_>) -> Self {
        let mut lacks_edges = false;
        if !matches!(nodes.data, Data::Map(_)) {
            report.wrong_kind(nodes, "`nodes`", "a mapping from names to nodes");
        }
        let declarations = scope.declarations;
        let mut drafts = BTreeMap::new();
        let mut edges = Edges::new(declarations, scope.schema);
        let keys = LazyNodeKeys::new(Box::new(|| node_keys(scope.registry)));
        for entry in nodes.entries() {
            let key = entry.key.text.as_str();
            if let Some((name, _)) = declarations.groups.get_key_value(key) {
                if let Some(section) = read_parallel(report, entry) {
                    let read = |report: &mut Report| edges.read(report, name, &section);
                    lacks_edges |= report.watch(read).has_error;
                }
            } else if let Some(name) = declarations.nodes.get(key) {
                let read =
                    report.watch(|report| NodeDraft::read(report, entry, name, &keys, scope));
                let Some(node) = read.value else {
                    lacks_edges = true;
                    continue;
                };
                lacks_edges |= node.kind.is_none() || hides_edges(&node.section, read.has_error);
                let read = report.watch(|report| {
                    if node.kind.is_some() || node.section.get("then").is_some() {
                        edges.read(report, name, &node.section);
                    }
                    edges.read_join(report, name, &node.section);
                });
                lacks_edges |= read.has_error;
                drafts.insert(name.clone(), node);
            }
        }
        lacks_edges |= report.watch(|report| edges.check_arrivals(report)).has_error;
        for (map, node) in &declarations.maps {
            move_failure_policies(&mut drafts, map, node, scope.schema);
        }
        Self {
            nodes: drafts,
            edges: edges.drafts,
            incomplete_arrivals: edges.incomplete_arrivals,
            lacks_edges,
        }
    }
}

/// Returns whether a mistake hides where a node leads by `catch` or `exhausted`, or a misspelt key hides an edge.
fn hides_edges(section: &Section<'_>, has_error: bool) -> bool {
    ["then", "catch", "exhausted"].into_iter().any(|key| match section.get(key) {
        Some(_) => has_error && key != "then",
        None => section.has_or_means(key),
    })
}

/// Moves `catch` and `failed` of a map to the node that it runs, because the map itself never fails.
fn move_failure_policies(
    drafts: &mut BTreeMap<NodeName, NodeDraft<'_>>,
    map: &NodeName,
    node: &NodeName,
    schema: &Schema,
) {
    let Some(of_map) = drafts.get_mut(map) else { return };
    let catch = std::mem::take(&mut of_map.policies.catch);
    let failed = of_map.section.get(MAP).and_then(|it| it.get(FAILED)).and_then(Yaml::text);
    let failed = failed.and_then(|it| schema.channel(it)).map(|it| it.name().clone());
    let Some(of_node) = drafts.get_mut(node) else { return };
    of_node.policies.catch = catch;
    of_node.policies.schedule.items = Some(ItemPolicy { failed, order: None });
}

fn read_parallel<'y>(report: &mut Report, entry: &'y Entry) -> Option<Section<'y>> {
    let what = format!("the parallel `{}`", entry.key.text);
    let section = Section::read_known(report, &entry.value, &what, PARALLEL_KEYS)?;
    if let Some(about) = section.get("about") {
        report.word(about, "`about`");
    }
    Some(section)
}

impl<'y> NodeDraft<'y> {
    fn read(
        report: &mut Report,
        entry: &'y Entry,
        name: &NodeName,
        keys: &LazyNodeKeys<'_>,
        scope: PolicyScope<'y, '_>,
    ) -> Option<Self> {
        let section = node_section(report, entry, keys, scope.registry)?;
        let kind = kind_of(report, entry, &section, scope.registry);
        let policies = read_policies(report, scope, name, &section);
        let about = section.get("about").and_then(|it| report.word(it, "`about`"));
        let about = about.map(|it| it.text);
        Some(Self { key: &entry.key, section, kind, policies, about })
    }
}

/// The keys of the nodes of any kind, made when a node has a key that its own kind does not take.
type LazyNodeKeys<'r> = LazyCell<Vec<&'r str>, Box<dyn FnOnce() -> Vec<&'r str> + 'r>>;

/// Returns all keys that nodes of any kind take, in alphabetical order.
fn node_keys(registry: &Registry) -> Vec<&str> {
    let own = registry.kinds().iter().flat_map(|it| it.own_keys().chain([it.key()]));
    let mut keys: Vec<&str> = own.chain(NodeKeys::keys().iter().copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Reads the keys of a node. Those of all kinds are `all_keys`.
fn node_section<'y>(
    report: &mut Report,
    entry: &'y Entry,
    all_keys: &LazyNodeKeys<'_>,
    registry: &Registry,
) -> Option<Section<'y>> {
    let its_kinds = || registry.kinds_of(&entry.value);
    let common = NodeKeys::keys();
    let is_own = |key: &str| its_kinds().any(|it| it.takes(key));
    let present: Vec<&str> = entry.value.entries().iter().map(|it| it.key.text.as_str()).collect();
    let is_right = |key: &&str| common.contains(key) || is_own(key);
    let known = if !present.is_empty() && present.iter().all(is_right) {
        present
    } else {
        // A wrong key was probably meant for the kind of the node, and a help names only the first known ones.
        let mut known: Vec<&str> = all_keys.to_vec();
        known.sort_by_key(|key| match common.contains(key) {
            _ if is_own(key) => 0,
            true => 1,
            false => 2,
        });
        known
    };
    let within = |key: &str| {
        its_kinds().find_map(|it| within_kind(it, key).or_else(|| arguments_of(it, key)))
    };
    let what = format!("the node `{}`", entry.key.text);
    Section::read_hinted(report, &entry.value, &what, &known, within)
}

/// Returns the advice for a key that belongs into the mapping under the kind's key.
fn within_kind(kind: &RegisteredKind, key: &str) -> Option<String> {
    let has_it = kind.keys_within(kind.key()).contains(&key);
    has_it.then(|| format!("it belongs into `{}: {{ … }}`", kind.key()))
}

/// Returns the advice for the arguments of a tool under their name in other formats.
fn arguments_of(kind: &RegisteredKind, key: &str) -> Option<String> {
    let is_meant = ["input", "inputs", "arguments", "params", "parameters"].contains(&key);
    (is_meant && kind.takes(ARGUMENTS)).then(|| format!("this format calls it `{ARGUMENTS}`"))
}

/// Returns the kind of a node, if it has exactly one.
fn kind_of<'r>(
    report: &mut Report,
    entry: &Entry,
    section: &Section<'_>,
    registry: &'r Registry,
) -> Option<&'r RegisteredKind> {
    let found: Vec<&RegisteredKind> = registry.kinds_of(&entry.value).collect();
    let [kind] = found.as_slice() else {
        let names: Vec<&str> = found.iter().map(|it| it.key()).collect();
        if names.is_empty() && entry.value.entries().iter().any(|it| is_later(&it.key.text)) {
            // It has a key of a later version, which is reported.
            return None;
        }
        let name = &entry.key.text;
        let message = match names.as_slice() {
            [] => format!("the node `{name}` has no kind"),
            several => format!("the node `{name}` has several kinds: {}", several.join(", ")),
        };
        let span = report.span(&entry.key.range);
        let all: Vec<&str> = registry.kinds().iter().map(RegisteredKind::key).collect();
        let diagnostic = Diagnostic::error("GR007", message).at(span, "must be of one kind");
        report.push(diagnostic.help(format!("give it one of: {}", all.join(", "))));
        return None;
    };
    for key in section.keys() {
        let key_name = key.text.as_str();
        if !kind.takes(key_name) && !NodeKeys::keys().contains(&key_name) {
            let owners = registry.kinds().iter().filter(|it| it.takes(key_name));
            let owners: Vec<String> = owners.map(|it| format!("`{}`", it.key())).collect();
            let elsewhere = || format!("it belongs to {}", owners.join(" and "));
            let message = format!("a node that is `{}` takes no key `{key_name}`", kind.key());
            let span = report.span(&key.range);
            let diagnostic = Diagnostic::error("GR003", message).at(span, "not a key here");
            report.push(diagnostic.help(within_kind(kind, key_name).unwrap_or_else(elsewhere)));
        }
    }
    Some(kind)
}
