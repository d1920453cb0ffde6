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
    diagnostic::{Diagnostic, SourceSpan},
    graph::{Edge, ItemPolicy, Policies, RouteChoice, Target},
    id::{ChannelName, NodeName},
    state::Schema,
};

use crate::{
    Registry,
    edge::fan::Edges,
    expression::{FieldGuarantee, PresentValue, guarantees_after, known_after},
    flow::success::SuccessFields,
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

/// An edge as it is written.
#[derive(Debug)]
pub(crate) enum EdgeDraft<'y> {
    /// One that does not depend on the state.
    Plain(Edge),
    /// One that does.
    Route { from: NodeName, route: RouteDraft<'y>, span: Option<SourceSpan> },
}

/// A route whose expressions are not read yet.
#[derive(Debug)]
pub(crate) enum RouteDraft<'y> {
    /// Cases that are tried in order.
    Cases { then: &'y Yaml, cases: Vec<CaseDraft<'y>> },
    /// A target for each value.
    Match { on: Option<&'y Yaml>, to: &'y SpannedText, arms: Vec<(SpannedText, Vec<Target>)> },
    /// A task for each item of the list of a `map`.
    Each { node: NodeName, after: Vec<Target> },
}

/// A case of a route.
#[derive(Debug)]
pub(crate) struct CaseDraft<'y> {
    pub(crate) item: &'y Yaml,
    pub(crate) when: Option<&'y Yaml>,
    /// Whether its condition has an unknown key, which is reported.
    pub(crate) is_incomplete: bool,
    pub(crate) to: Vec<Target>,
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
        let mut errors_of_edges = 0;
        for entry in nodes.entries() {
            let key = entry.key.text.as_str();
            if let Some((name, _)) = declarations.groups.get_key_value(key) {
                if let Some(section) = read_parallel(report, entry) {
                    let errors_before = report.error_count();
                    edges.read(report, name, &section);
                    errors_of_edges += report.error_count() - errors_before;
                }
            } else if let Some(name) = declarations.nodes.get(key) {
                let errors_before = report.error_count();
                let Some(node) = NodeDraft::read(report, entry, name, &keys, scope) else {
                    lacks_edges = true;
                    continue;
                };
                lacks_edges |=
                    node.kind.is_none() || hides_edges(&node.section, report, errors_before);
                let errors_before = report.error_count();
                if node.kind.is_some() || node.section.get("then").is_some() {
                    edges.read(report, name, &node.section);
                }
                edges.read_join(report, name, &node.section);
                errors_of_edges += report.error_count() - errors_before;
                drafts.insert(name.clone(), node);
            }
        }
        let errors_before = report.error_count();
        edges.check_arrivals(report);
        lacks_edges |= errors_of_edges > 0 || report.error_count() > errors_before;
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
fn hides_edges(section: &Section<'_>, report: &Report, errors_before: usize) -> bool {
    let has_error = report.error_count() > errors_before;
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

impl EdgeDraft<'_> {
    /// Returns whether it is a route behind one node with another one as a target.
    pub(crate) fn may_lead(&self, from: &NodeName, to: &NodeName) -> bool {
        let Self::Route { from: source, route, .. } = self else { return false };
        let leads = |choice: &RouteChoice| choice.to.iter().any(|it| it.node() == Some(to));
        source == from && route.choices().iter().any(leads)
    }
}

impl RouteDraft<'_> {
    /// Returns the guarantees that each decision proves; nothing, if none does.
    pub(crate) fn proved(
        &self,
        schema: &Schema,
        success: &SuccessFields,
    ) -> Vec<Vec<FieldGuarantee>> {
        self.learned(|it| guarantees_after(it, schema, success))
    }

    /// What each decision proves. The function gives what follows from a condition that is true, and from one that is false.
    fn learned<T: Clone>(&self, of: impl Fn(&str) -> (Vec<T>, Vec<T>)) -> Vec<Vec<T>> {
        match self {
            Self::Cases { cases, .. } => {
                learned_by_cases(cases.iter().map(|it| it.when.map(text_of)), of)
            }
            Self::Match { on, arms, .. } => {
                let on = on.map(text_of).unwrap_or_default();
                learned_by_match(on, arms.iter().map(|it| it.0.text.as_str()), of)
            }
            Self::Each { .. } => Vec::new(),
        }
    }

    /// Returns the possible decisions, of which exactly one is made.
    pub(crate) fn choices(&self) -> Vec<RouteChoice> {
        match self {
            Self::Cases { cases, .. } => {
                case_choices(cases.iter().map(|it| (it.when.map(text_of), &it.to)))
            }
            Self::Match { on, arms, .. } => {
                let on = on.map(text_of).unwrap_or_default();
                match_choices(on, arms.iter().map(|(value, to)| (value.text.as_str(), to)))
            }
            Self::Each { node, after } => {
                let to = vec![Target::Node(node.clone())];
                vec![
                    RouteChoice { to, is_dispatched: true, known: Vec::new() },
                    RouteChoice { to: after.clone(), ..RouteChoice::default() },
                ]
            }
        }
    }
}

fn text_of(yaml: &Yaml) -> &str {
    yaml.text().unwrap_or_default()
}

/// Returns the choices of cases with their conditions.
pub(crate) fn case_choices<'a>(
    cases: impl Iterator<Item = (Option<&'a str>, &'a Vec<Target>)>,
) -> Vec<RouteChoice> {
    let (conditions, targets): (Vec<_>, Vec<_>) = cases.unzip();
    let known = learned_by_cases(conditions.into_iter(), known_after);
    targets.into_iter().zip(known).map(|(to, known)| choice(to, &known)).collect()
}

/// Returns the choices of a match over this expression, with the value of each.
pub(crate) fn match_choices<'a>(
    on: &str,
    arms: impl Iterator<Item = (&'a str, &'a Vec<Target>)>,
) -> Vec<RouteChoice> {
    let (values, targets): (Vec<_>, Vec<_>) = arms.unzip();
    let known = learned_by_match(on, values.into_iter(), known_after);
    targets.into_iter().zip(known).map(|(to, known)| choice(to, &known)).collect()
}

/// What each value of a matched expression proves.
fn learned_by_match<'a, T: Clone>(
    on: &str,
    values: impl Iterator<Item = &'a str>,
    of: impl Fn(&str) -> (Vec<T>, Vec<T>),
) -> Vec<Vec<T>> {
    let (holds, fails) = of(on);
    let learned = |value: &str| match value {
        "true" => holds.clone(),
        "false" => fails.clone(),
        _ => Vec::new(),
    };
    values.map(learned).collect()
}

/// Returns a choice that proves these values present.
fn choice(to: &[Target], known: &[PresentValue]) -> RouteChoice {
    let whole = known.iter().filter(|it| it.path == it.name);
    let known = whole.filter_map(|it| ChannelName::parse(&it.name).ok()).collect();
    RouteChoice { to: to.to_vec(), is_dispatched: false, known }
}

/// What each case proves. A case is taken if its condition is true and all earlier ones are false.
fn learned_by_cases<'a, T: Clone>(
    conditions: impl Iterator<Item = Option<&'a str>>,
    of: impl Fn(&str) -> (Vec<T>, Vec<T>),
) -> Vec<Vec<T>> {
    let mut passed: Vec<T> = Vec::new();
    let known = |when: Option<&str>| {
        let (holds, fails) = when.map(&of).unwrap_or_default();
        let known = passed.iter().cloned().chain(holds).collect();
        passed.extend(fails);
        known
    };
    conditions.map(known).collect()
}
