//! The state of a workflow: a registered type, a JSON Schema, or fields in a short notation.
//!
//! The notation is `string int float bool json date duration`, `[T]`, `{field: T}`, `map[string, T]`,
//! `a | b`, `T?` and the names under `types`. A field may have more keys:
//! `{type: T, merge: append, default: v, private: true, about: …}`. Start with [`read_state`].

mod defaults;
mod notation;
mod range;
mod reducers;
mod schema_file;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use graphrun_core::{
    diagnostic::{Diagnostic, did_you_mean},
    id::ChannelName,
    state::{Channel, Reducer, Schema, Type, schema_size},
};
use graphrun_expressions::{file::FILE, problem::suggestion};
use graphrun_guard::data_limit::DataLimit;
use serde_json::{Value, json};

use self::notation::is_lenience;
pub(crate) use self::{
    defaults::warn_of_placeholders,
    notation::{LENIENCE, TYPES},
    reducers::reducer_names,
    values::value_of,
};
use super::{memory::tier_types, tools::declared};
use crate::{
    format::{FieldKeys, MappingKeys as _},
    registry::Registry,
    source::{
        files::SourceFolder,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The keys of a field whose values are numbers. A record may have fields with these names, whose values are types.
pub(crate) const RANGE_KEYS: &[&str] = &["min", "max"];
/// Words with another meaning in prompts and expressions.
const RESERVED: &[&str] = &[
    "output",
    "via",
    "visit",
    "max_visits",
    "item",
    "loop",
    "true",
    "false",
    "null",
    "none",
    "in",
    "and",
    "or",
    "not",
];

/// The result of reading the state.
#[derive(Debug, Default)]
pub(crate) struct ReadState {
    /// `None` without a usable state, which is reported.
    pub(crate) schema: Option<Schema>,
    /// The types of records that have a name.
    pub(crate) types: BTreeMap<String, Type>,
    /// The used names under `types`.
    pub(crate) used: BTreeSet<String>,
    /// The fields whose declaration has a reported mistake.
    pub(crate) incomplete_fields: BTreeSet<ChannelName>,
    /// The types of the declared tools.
    pub(crate) tools: BTreeMap<String, ToolTypes>,
    /// The JSON Schemas of the values of tiers of `memory`.
    pub(crate) tiers: BTreeMap<String, Value>,
}

/// The JSON Schemas of a declared tool, as far as they are valid.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolTypes {
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<Value>,
}

/// Reads `state` and the types of `memory`, and the `types` that they may name.
pub(crate) fn read_state(
    report: &mut Report,
    top: &Section<'_>,
    folder: &SourceFolder,
    registry: &Registry,
) -> ReadState {
    let mut reading = TypeReader {
        report,
        registry,
        folder,
        types: BTreeMap::new(),
        open: Vec::new(),
        depth: 0,
        inputs: top.get("input").into_iter().flat_map(names).collect(),
        files: BTreeMap::new(),
        nodes: 0,
        used: BTreeSet::new(),
        incomplete_fields: BTreeSet::new(),
    };
    if let Some(types) = top.get("types") {
        reading.types(types);
    }
    let help = "name a registered type, or declare fields: `state: { brief: string }`";
    let state = top.require(reading.report, "state", help);
    let schema = state.and_then(|it| reading.state(it));
    let mut tools = BTreeMap::new();
    for Entry { key, value } in declared(top) {
        let mut schema = |key| value.get(key).and_then(|it| reading.schema_of(it));
        let types = ToolTypes { input: schema("input"), output: schema("output") };
        tools.insert(key.text.clone(), types);
    }
    let mut tiers = BTreeMap::new();
    for (name, ty) in tier_types(top) {
        tiers.extend(reading.schema_of(ty).map(|it| (name.to_owned(), it)));
    }
    let types = reading.record_types(schema.as_ref());
    ReadState {
        schema,
        types,
        used: reading.used,
        incomplete_fields: reading.incomplete_fields,
        tools,
        tiers,
    }
}

/// The state of reading types.
struct TypeReader<'a, 'y> {
    report: &'a mut Report,
    registry: &'a Registry,
    folder: &'a SourceFolder,
    types: BTreeMap<&'y str, DeclaredType<'y>>,
    /// The named types that are currently read, the outermost first.
    open: Vec<&'y str>,
    /// How many levels of the current type are around the part that is read, with those of named types.
    depth: usize,
    /// The names under `input`.
    inputs: BTreeSet<&'y str>,
    /// The schema files read so far, by their paths in the workflow.
    files: BTreeMap<&'y str, Value>,
    /// The nodes of all schemas from files and of all uses of named types.
    nodes: u64,
    used: BTreeSet<String>,
    incomplete_fields: BTreeSet<ChannelName>,
}

/// A type under `types`.
#[derive(Clone)]
enum DeclaredType<'y> {
    Unread(&'y Entry),
    Read(Value),
}

impl<'y> TypeReader<'_, 'y> {
    fn state(&mut self, yaml: &'y Yaml) -> Option<Schema> {
        if let Some(file) = schema_file::named_by(yaml) {
            return self.state_of_file(file);
        }
        let entries = match &yaml.data {
            Data::Map(entries) => entries,
            Data::Scalar { .. } => return self.registered(&yaml.word()?),
            Data::Null | Data::List(_) => {
                let wanted = "a mapping from names to types, or the name of a type";
                self.report.wrong_kind(yaml, "`state`", wanted);
                return None;
            }
        };
        let channels: Vec<Channel> =
            entries.iter().filter_map(|entry| self.channel(entry)).collect();
        // The reader ensures that no key is repeated.
        Schema::new(channels).ok()
    }

    /// Returns the types of records that have a name, under `types` or in a registered state.
    fn record_types(&self, schema: Option<&Schema>) -> BTreeMap<String, Type> {
        let mut found = BTreeMap::new();
        for (name, declared) in &self.types {
            let DeclaredType::Read(schema) = declared else { continue };
            let ty = Type::of_schema(schema);
            if matches!(ty, Type::Record(_)) {
                found.insert((*name).to_owned(), ty);
            }
        }
        let mut rest: Vec<&Type> = Vec::new();
        rest.extend(schema.into_iter().flat_map(Schema::channels).map(Channel::ty));
        while let Some(ty) = rest.pop() {
            match ty {
                Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => rest.push(inner),
                Type::Record(record) => {
                    rest.extend(record.fields.iter().map(|it| &it.ty));
                    if let Some(name) = record.name.clone() {
                        found.entry(name).or_insert_with(|| ty.clone());
                    }
                }
                _ => (),
            }
        }
        found
    }

    fn registered(&mut self, name: &SpannedText) -> Option<Schema> {
        let Some(schema) = self.registry.schema(&name.text) else {
            let help = suggestion(&name.text, self.registry.states())
                .unwrap_or_else(|| "no type is registered; declare the fields here".to_owned());
            let message = format!("no state `{}` is registered", name.text);
            let span = self.report.span(&name.range);
            let diagnostic = Diagnostic::error("GR014", message).at(span, "no such type");
            self.report.push(diagnostic.help(help));
            return None;
        };
        for channel in schema.channels() {
            refuse_reserved(self.report, channel.name().as_str(), name);
        }
        Some(schema.clone())
    }

    /// Counts a schema that is copied into the state; `None` above the limit, which is reported.
    fn grow(&mut self, schema: &Value, at: &Range<usize>) -> Option<()> {
        let limit = DataLimit::SchemaNodes;
        let is_told = limit.check(self.nodes).is_err();
        self.nodes = self.nodes.saturating_add(schema_size(schema).unwrap_or(u64::MAX));
        let Err(reached) = limit.check(self.nodes) else { return Some(()) };
        if !is_told {
            self.report.push_limit("the state with its types written out", &reached, at);
        }
        None
    }

    fn channel(&mut self, Entry { key, value }: &'y Entry) -> Option<Channel> {
        if refuse_reserved(self.report, &key.text, key) {
            return None;
        }
        let name = ChannelName::parse(&key.text);
        if let Err(error) = &name {
            let help = "letters from a to z, digits and `_`, not starting with a digit";
            self.report.bad_value(key, error.to_string(), help);
            self.report.refuse_name(&key.text);
        }
        let name = name.ok()?;
        if name.as_str().contains('-') {
            let help = "in an expression it means minus; use `_`";
            let message = format!("the name of the field `{name}` cannot contain `-`");
            self.report.bad_value(key, message, help);
            return None;
        }
        let channel = if as_spec(value) {
            self.channel_of_spec(&name, value)
        } else {
            let schema = self.schema_of(value);
            schema.and_then(|it| Channel::new(name.clone(), it, Reducer::Replace).ok())
        };
        if self.report.repeated.contains(&key.range.start) {
            self.incomplete_fields.insert(name.clone());
        }
        // A field whose type is reported counts as `any`, so that its uses are not reported too.
        channel.or_else(|| {
            self.incomplete_fields.insert(name.clone());
            Channel::new(name, json!({}), Reducer::Replace).ok()
        })
    }

    fn channel_of_spec(&mut self, name: &ChannelName, spec: &'y Yaml) -> Option<Channel> {
        let what = format!("the field `{name}`");
        let section = Section::read::<FieldKeys>(self.report, spec, &what)?;
        let mut schema = match (section.get("type"), section.get("schema")) {
            (Some(ty), None) => self.schema_of(ty)?,
            (None, Some(file)) => self.schema_of_file(file)?,
            (_, Some(file)) => {
                let word = self.report.word(file, "`schema`")?;
                let help = "remove one of them";
                self.report.bad_value(&word, "`type` defines its values already", help);
                return None;
            }
            (None, None) => return None,
        };
        self.restrict(&mut schema, spec)?;
        let ty = Type::of_schema(&schema);
        if let (Some(about), Value::Object(object)) = (section.get("about"), &mut schema) {
            let about = self.report.word(about, "`about`")?;
            object.insert("description".to_owned(), about.text.into());
        }
        let reducer = self.reducer(&section, &ty)?;
        let channel = match Channel::new(name.clone(), schema, reducer) {
            Ok(channel) => channel,
            Err(reason) => {
                let source = section.get("schema").or_else(|| section.get("type"))?;
                self.unusable_schema(source, &reason, schema_file::OF_FIELDS);
                return None;
            }
        };
        let is_private = section.get("private").and_then(|it| self.flag(it, "`private`"));
        let channel = if is_private == Some(true) { channel.private() } else { channel };
        let Some(default) = section.get("default") else {
            // A list that grows begins empty, unless the input gives it.
            let begins_empty =
                channel.reducer().grows_list() && !self.inputs.contains(name.as_str());
            return Some(if begins_empty { channel.with_default(json!([])) } else { channel });
        };
        let value = value_of(self.report, default, &ty)?;
        if let Err(problems) = channel.validate(&value) {
            let message = format!("the default of `{name}` does not fit: {}", problems.join("; "));
            let span = self.report.span(&default.range);
            let label = format!("not a `{ty}`");
            self.report.push(Diagnostic::error("GR022", message).at(span, label));
        }
        Some(channel.with_default(value))
    }

    fn flag(&mut self, yaml: &Yaml, what: &str) -> Option<bool> {
        match yaml.text() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => {
                self.report.wrong_kind(yaml, what, "`true` or `false`");
                None
            }
        }
    }
}

/// Reports private fields among the inputs or outputs.
pub(crate) fn refuse_private(report: &mut Report, yaml: &Yaml, what: &str, schema: &Schema) {
    for word in yaml.items().iter().chain([yaml]).filter_map(Yaml::word) {
        if schema.channel(&word.text).is_some_and(Channel::is_private) {
            let message = format!("{what} names `{}`, which is private", word.text);
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::error("GR112", message).at(span, "for the nodes alone");
            report.push(diagnostic.help("remove it here, or remove `private` from the field"));
        }
    }
}

/// Returns why a field cannot have a name.
///
/// # Errors
///
/// Fails with the reason.
pub fn check_field_name(name: &str) -> Result<(), String> {
    let parsed = ChannelName::parse(name).map_err(|error| error.to_string())?;
    if is_reserved(name) {
        return Err(format!("`{parsed}` means something else in expressions and prompts"));
    }
    if name.contains('-') {
        return Err(format!("the name of the field `{parsed}` cannot contain `-`"));
    }
    Ok(())
}

/// Returns why a type under `types` cannot have a name.
///
/// # Errors
///
/// Fails with the reason.
pub fn check_type_name(name: &str) -> Result<(), String> {
    // Workflows about programs often declare a record with the name `file`.
    if TYPES.contains(&name) && name != FILE {
        return Err(format!("`{name}` is built in and cannot name another type"));
    }
    if name == "map" {
        return Err("`map` is built in, as in `map[string, int]`".to_owned());
    }
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_';
    if !name.starts_with(|it: char| it.is_ascii_alphabetic()) || !name.chars().all(fits) {
        return Err(format!("`{name}` cannot be the name of a type"));
    }
    Ok(())
}

/// Returns whether a word has another meaning in expressions and prompts than a field or an item of that name.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns whether a field has a reserved name; reported if so.
fn refuse_reserved(report: &mut Report, field: &str, at: &SpannedText) -> bool {
    let reserved = is_reserved(field);
    if reserved {
        let message = format!("`{field}` means something else in expressions and prompts");
        let span = report.span(&at.range);
        report.push(Diagnostic::error("GR016", message).at(span, "reserved"));
    }
    reserved
}

/// Returns the names in a text or a list of texts.
fn names(yaml: &Yaml) -> impl Iterator<Item = &str> {
    yaml.items().iter().chain([yaml]).filter_map(Yaml::text)
}

/// Returns whether a mapping is a field with more than a type, and not a record.
fn as_spec(yaml: &Yaml) -> bool {
    // A misspelt key still marks a specification, and so does a key whose value cannot be a type.
    let is_flag = |yaml: &Yaml| {
        let is_number =
            |it: &str| it.replace('_', "").parse::<f64>().is_ok() || range::is_endless(it);
        yaml.text().is_some_and(|it| it.parse::<bool>().is_ok() || is_number(it))
    };
    let is_reducer = |yaml: &Yaml| yaml.text().is_some_and(|it| reducer_names().contains(&it));
    let meant = |Entry { key, value }: &Entry| {
        let keys = FieldKeys::keys().iter().copied().filter(|it| !RANGE_KEYS.contains(it));
        did_you_mean(&key.text, keys).is_some_and(|_| !RANGE_KEYS.contains(&key.text.as_str()))
            || is_flag(value)
            || is_reducer(value)
    };
    // A number beside one end of a range shows that the other end is meant as one.
    let is_end = |it: &&Entry| RANGE_KEYS.contains(&it.key.text.as_str());
    let has_end = yaml.entries().iter().filter(is_end).any(|it| is_flag(&it.value));
    let is_typed = yaml.get("type").is_some() || schema_file::named_by(yaml).is_some();
    let is_meant = |it: &Entry| meant(it) || has_end && is_end(&it);
    is_typed && !yaml.entries().iter().any(is_lenience) && yaml.entries().iter().all(is_meant)
}
