//! `map`: runs a node for each item of a list.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Command, Contract, ErrorKind, ItemOrder, Node, NodeContext, NodeDescription, NodeError,
        SideEffects,
    },
    id::{ChannelName, NodeName},
    state::{Field, NumberRange, Record, Type},
};
use graphrun_expressions::{
    facts::Fact,
    item::{ITEM, names_of_item},
};
use schemars::JsonSchema;

use super::order::KeyedOrder;
use crate::{
    Expression, Registry,
    kind::{
        CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings,
        values::{self, FieldName, NodeRef, Positive, Text},
    },
    lower::{
        draft::WorkflowDraft,
        environment::{Environment, NodeScope},
    },
    sections::types::is_reserved,
    source::{
        reader::{Entry, SpannedText, Yaml},
        references::References,
        report::Report,
    },
};

/// The key of the kind.
pub(crate) const MAP: &str = "map";

/// The key of the list for failed items.
pub(crate) const FAILED: &str = "failed";

/// The keys that a map does not take, with the help for each.
const REFUSED: &[(&str, &str)] = &[
    ("when", "put the condition on the node that it runs"),
    ("retry", "put it on the node that it runs"),
    ("timeout", "put it on the node that it runs"),
];

/// The section of [`Report::uses`] for the nodes that read their item or its position.
pub(crate) const ITEMS: &str = "items";

/// The section of [`Report::uses`] for the fields that nodes with items read.
pub(crate) const READS_OF_ITEMS: &str = "reads of items";

/// Returns the name of a read in [`READS_OF_ITEMS`].
pub(crate) fn read_of_item(node: &NodeName, field: &str) -> String {
    format!("{node} {field}")
}

/// The kind `map`.
#[derive(Debug)]
pub struct Map;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct MapKeys {
    /// Runs a node for each item of a list, in parallel; `then` waits for all of them.
    map: MapParts,
}

/// A node that runs for each item of a list.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct MapParts {
    /// The list, such as `plan.tasks`.
    over: values::Expression,
    /// The name of the item in the prompts and expressions of that node. Default: `item`.
    #[serde(rename = "as")]
    name: Option<Text>,
    /// The node. It has no `then`; the map leads on.
    #[serde(rename = "do")]
    node: NodeRef,
    /// The most items that run at the same time.
    width: Option<Positive>,
    /// The key of an item that others need, such as `task.id`.
    key: Option<values::Expression>,
    /// The keys of the items that an item needs, such as `task.depends_on`: it starts when they are done.
    after: Option<values::Expression>,
    /// A list for the failures of items: the others are not affected. Each entry has those of these fields that
    /// its type declares: `index`, `item`, `node`, `kind` and `message`.
    failed: Option<FieldName>,
}

/// A node that runs another one for each item of a list.
#[derive(Clone, Debug)]
pub struct MapSettings {
    /// The list.
    pub over: Expression,
    /// The node.
    pub node: NodeName,
    /// The name of the item in that node.
    pub item: String,
    /// How many items run at the same time.
    pub width_max: Option<usize>,
}

/// The list of a `map`, which is read before the node that runs for its items.
#[derive(Clone, Debug)]
pub(crate) struct MapList {
    pub(crate) over: Option<Expression>,
    pub(crate) node: Option<NodeName>,
    pub(crate) item: Item,
}

/// The item of a node that runs for each item of a list.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) width_max: Option<usize>,
    /// The order of items that depend on each other.
    pub(crate) order: Option<Arc<dyn ItemOrder>>,
    /// Whether its name, or a key that may have been meant as `as`, is invalid, which is reported.
    pub(crate) has_invalid_name: bool,
}

impl Kind for Map {
    fn key(&self) -> &'static str {
        MAP
    }

    fn keys(&self) -> Keys {
        Keys::of::<MapKeys>()
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        for (key, help) in REFUSED {
            if let Some(key) = reader.key(key) {
                let message = format!("a node that is `map` takes no key `{}`", key.text);
                let span = reader.report().span(&key.range);
                let diagnostic = Diagnostic::error("GR003", message).at(span, "not a key here");
                reader.report().push(diagnostic.help(*help));
            }
        }
        let parts = reader.parts()?;
        parts.require(reader.report(), "over", "name the list: `over: plan.tasks`");
        parts.require(reader.report(), "do", "name the node that runs for each item");
        let list = reader.scope.env.maps.get(reader.scope.name)?;
        if let Some(word) = parts.get(FAILED).and_then(|it| reader.report().word(it, "`failed`")) {
            check_failed(reader, &word, &list.item.ty);
        }
        let over = list.over.clone()?;
        let node = list.node.clone()?;
        let item = list.item.name.clone();
        let width_max = list.item.width_max;
        Some(Arc::new(MapSettings { over, node, item, width_max }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "write it on the node that runs for each item"))
    }

    fn runs_others(&self) -> bool {
        true
    }
}

/// Checks that the records of failed items can be appended to a field.
fn check_failed(reader: &mut NodeReader<'_>, word: &SpannedText, item: &Type) {
    let Some(name) = reader.channel(word) else { return };
    let kinds = ErrorKind::ALL.iter().map(|it| it.as_str().to_owned()).collect();
    let fields = [
        ("index", Type::Int(NumberRange::FROM_ZERO)),
        ("item", item.clone()),
        ("node", Type::String),
        ("kind", Type::Enum(kinds)),
        ("message", Type::String),
    ];
    let fields = fields.map(|(name, ty)| Field::new(name, ty));
    let record = Type::Record(Record { name: None, fields: fields.into(), is_closed: true }.into());
    let channel = reader.schema().channel(name.as_str());
    let grows = channel.is_some_and(|it| it.reducer().grows_list());
    let takes_it = match reader.type_of(&name) {
        Type::List(declared) => record.fits_cut(declared),
        Type::Any => true,
        _ => false,
    };
    if !grows || !takes_it {
        let message = format!("`{name}` is not a list to which failed items can be appended");
        let diagnostic = Diagnostic::error("GR022", message);
        let span = reader.report().span(&word.range);
        let help = "declare it as `{ type: \"[Lost]\", merge: append, default: [] }` with \
                    `Lost: { index: int, kind: string, message: string }`";
        reader.report().push(diagnostic.at(span, "cannot take them").help(help));
    }
}

impl NodeSettings for MapSettings {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        // The route behind the node dispatches the items.
        Ok(Arc::new(Pass))
    }

    /// It computes nothing itself; its route reads the list.
    fn computes(&self) -> Option<Vec<Computation>> {
        Some(Vec::new())
    }

    fn detail(&self) -> Option<String> {
        Some(format!("over {}", self.over.source()))
    }
}

/// Does nothing, and exists for its edges.
#[derive(Debug)]
struct Pass;

#[async_trait]
impl Node for Pass {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: MAP,
            contract: Contract { reads: Some(Vec::new()), writes: Some(Vec::new()) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            ..NodeDescription::default()
        }
    }
}

/// Reads the lists of all maps.
pub(crate) fn read_lists(
    report: &mut Report,
    env: &Environment,
    nodes: &Yaml,
) -> BTreeMap<NodeName, MapList> {
    let mut lists = BTreeMap::new();
    for Entry { key, value } in nodes.entries() {
        let (Some(map), Some(name)) =
            (value.get(MAP), env.declarations.nodes.get(key.text.as_str()))
        else {
            continue;
        };
        let yaml = map.get("over");
        let over = yaml.and_then(|it| NodeScope::of_list(env, name).expression(report, it));
        let ty = match (yaml, &over) {
            (Some(yaml), Some(over)) => item_type(report, yaml, over),
            _ => Type::Any,
        };
        let width_max = map.get("width").and_then(|it| report.count(it, "`width`", 1));
        let (item, has_invalid_name) = item_name(report, env, map);
        let mut item = Item { name: item, ty, width_max, order: None, has_invalid_name };
        item.order = KeyedOrder::read(report, &NodeScope::of_item(env, name, &item), &item.ty, map);
        let node = env.declarations.maps.get(name).cloned();
        lists.insert(name.clone(), MapList { over, node, item });
    }
    lists
}

/// Warns about nodes that do the same for each item, or read what other items write, unless errors may be the reason.
pub(crate) fn warn_of_unread_items(
    report: &mut Report,
    env: &Environment,
    draft: &WorkflowDraft<'_>,
    input: &[ChannelName],
) {
    if report.has_errors() {
        return;
    }
    for (map, MapList { node, item, .. }) in &env.maps {
        let Some(node) = node else { continue };
        let of_node = draft.nodes.get(node);
        if item.order.is_some() {
            let key = of_node.map(|it| it.key);
            for field in fields_of_items(&report.references, env, node, input) {
                warn_of_unseen_writes(report, map, node, key, field);
            }
        }
        let kind = of_node.and_then(|it| it.kind);
        let is_known = kind.is_some_and(|it| it.kind.reads_only_named_values());
        if !is_known || report.references.contains(ITEMS, node.as_str()) {
            continue;
        }
        let section = draft.nodes.get(map).map(|it| &it.section);
        let Some(yaml) = section.and_then(|it| it.get(MAP)?.get("do")) else { continue };
        let message = format!("`{node}` never reads its item, so it does the same for each one");
        let diagnostic = Diagnostic::warning("GR138", message);
        let diagnostic = diagnostic.at(report.span(&yaml.range), "does not depend on the item");
        let names = names_of_item(Some((&item.name, &item.ty)), &env.schema);
        let names: Vec<String> = names.iter().rev().map(|(it, _)| format!("`{it}`")).collect();
        let names = names.join(" or ");
        report.push(diagnostic.help(format!(
            "read {names} in its prompt or its expressions; to run it once, lead to it with `then`"
        )));
    }
}

/// Returns the fields that items read and only items write, which run this node.
fn fields_of_items<'e>(
    references: &References,
    env: &'e Environment,
    node: &NodeName,
    input: &[ChannelName],
) -> Vec<&'e str> {
    let fields = env.schema.channels().iter().filter(|it| !input.contains(it.name()));
    let fields = fields.map(|it| it.name().as_str());
    let is_read = |field: &&str| references.contains(READS_OF_ITEMS, &read_of_item(node, field));
    fields.filter(is_read).filter(|it| env.flow.is_only_writer(node, it)).collect()
}

/// Warns about a field that only the items of a map with `key` write and read: an item sees it as it was before the map.
fn warn_of_unseen_writes(
    report: &mut Report,
    map: &NodeName,
    node: &NodeName,
    key: Option<&SpannedText>,
    field: &str,
) {
    let message = format!("`{node}` reads `{field}`, which only the items of `{map}` write");
    let span = key.and_then(|it| report.span(&it.range));
    let diagnostic = Diagnostic::warning("GR141", message);
    let diagnostic = diagnostic.at(span, format!("sees `{field}` as it was before the map"));
    report.push(diagnostic.help(
        "the updates of all items are folded when the map ends: let a node after the map read the field, or loop over \
         one item at a time",
    ));
}

fn item_type(report: &mut Report, yaml: &Yaml, over: &Expression) -> Type {
    match over.ty() {
        Type::List(item) => Type::clone(item),
        Type::Any => Type::Any,
        other => {
            let message = format!("a map needs a list, and this is `{other}`");
            let span = report.span(&yaml.range);
            report.push(Diagnostic::error("GR022", message).at(span, "no list"));
            Type::Any
        }
    }
}

/// Returns the name of the item, and whether another name may have been meant.
fn item_name(report: &mut Report, env: &Environment, map: &Yaml) -> (String, bool) {
    let Some(yaml) = map.get("as") else {
        let known = env.registry.kind_of(MAP).map(|it| it.keys_within(MAP)).unwrap_or_default();
        let is_unknown = |it: &Entry| !known.contains(&it.key.text.as_str());
        return (ITEM.to_owned(), map.entries().iter().any(is_unknown));
    };
    let Some(word) = report.word(yaml, "`as`") else { return (ITEM.to_owned(), true) };
    let name = &word.text;
    let taken = if env.schema.channel(name).is_some() {
        Some(format!("`{name}` is already a field of the state"))
    } else if Fact::find(name).is_some() {
        // The guarantees about a fact would hold for the item, too.
        Some(format!("`{name}` stands for facts of the run"))
    } else {
        let is_other = name != ITEM && is_reserved(name);
        is_other.then(|| format!("`{name}` means something else in expressions and prompts"))
    };
    if let Some(message) = taken {
        report.bad_value(&word, message, "choose another name for the item");
        return (ITEM.to_owned(), true);
    }
    if report.node_name(&word).is_none() || name.contains('-') {
        return (ITEM.to_owned(), true);
    }
    (word.text, false)
}
