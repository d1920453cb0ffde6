//! The state of a workflow: a registered type, or fields in the short notation.
//!
//! The notation is `string int float bool json`, `[T]`, `{field: T}`, `a | b` and `T?`. A field
//! may say more: `{type: T, merge: append, default: v, about: …}`.

use serde_json::{Map, Value, json};

use super::{
    reader::{Data, Entry, Word, Yaml},
    registry::Registry,
    report::{Report, suggestion},
    shape::Section,
    typing::is_number,
};
use crate::{
    diagnostic::{Diagnostic, did_you_mean},
    id::ChannelName,
    state::{Channel, Reducer, Schema, Type},
};

/// The keys of a field that says more than its type.
pub(super) const SPEC_KEYS: &[&str] = &["type", "merge", "default", "about"];
const TYPES: &[&str] = &["string", "int", "float", "bool", "json"];
/// The keys of the reducer that takes an argument.
pub(super) const BEST_KEYS: &[&str] = &["best"];
/// The reducers that take no argument.
pub(super) const REDUCERS: &[&str] =
    &["replace", "append", "union", "sum", "min", "max", "merge", "messages"];
/// Words that prompts and expressions know otherwise.
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

/// Reads `state`.
pub(super) fn read_state(report: &mut Report, yaml: &Yaml, registry: &Registry) -> Option<Schema> {
    let Data::Map(entries) = &yaml.data else {
        let name = report.word(yaml, "`state`")?;
        return find_state(report, &name, registry);
    };
    let channels: Vec<Channel> =
        entries.iter().filter_map(|entry| read_channel(report, entry)).collect();
    // The reader has seen to it that no key is given twice.
    Schema::new(channels).ok()
}

fn find_state(report: &mut Report, name: &Word, registry: &Registry) -> Option<Schema> {
    let Some(schema) = registry.schema(&name.text) else {
        let help = suggestion(&name.text, registry.states())
            .unwrap_or_else(|| "no type is registered; declare the fields here".to_owned());
        let message = format!("no state `{}` is registered", name.text);
        let place = report.place(&name.range);
        report.push(Diagnostic::error("GR014", message).at(place, "no such type").help(help));
        return None;
    };
    for channel in schema.channels() {
        refuse_reserved(report, channel.name().as_str(), name);
    }
    Some(schema.clone())
}

/// Whether a field has a name that it cannot have; reported if so.
fn refuse_reserved(report: &mut Report, field: &str, at: &Word) -> bool {
    let reserved = RESERVED.contains(&field);
    if reserved {
        let message = format!("`{field}` means something else in expressions and prompts");
        let place = report.place(&at.range);
        report.push(Diagnostic::error("GR016", message).at(place, "reserved"));
    }
    reserved
}

fn read_channel(report: &mut Report, Entry { key, value }: &Entry) -> Option<Channel> {
    if refuse_reserved(report, &key.text, key) {
        return None;
    }
    let name = ChannelName::parse(&key.text);
    if let Err(error) = &name {
        report.bad_value(key, error.to_string(), "letters, digits and `_`");
    }
    let name = name.ok()?;
    if name.as_str().contains('-') {
        let help = "an expression would read it as minus; use `_`";
        report.bad_value(key, format!("`-` may not stand in the field `{name}`"), help);
        return None;
    }
    let channel = match as_spec(value) {
        Some(spec) => read_spec(report, &name, spec),
        None => schema_of(report, value)
            .and_then(|it| Channel::new(name.clone(), it, Reducer::Replace).ok()),
    };
    // A field whose type is reported may be anything, so that whatever uses it is not blamed.
    channel.or_else(|| Channel::new(name, json!({}), Reducer::Replace).ok())
}

fn read_spec(report: &mut Report, name: &ChannelName, spec: &Yaml) -> Option<Channel> {
    let section = Section::read(report, spec, &format!("the field `{name}`"), SPEC_KEYS)?;
    let mut schema = schema_of(report, section.get("type")?)?;
    let ty = Type::of_schema(&schema);
    if let (Some(about), Value::Object(object)) = (section.get("about"), &mut schema) {
        let about = report.word(about, "`about`")?;
        object.insert("description".to_owned(), about.text.into());
    }
    let reducer = match section.get("merge") {
        Some(merge) => read_reducer(report, merge, &ty)?,
        None => Reducer::Replace,
    };
    let channel = Channel::new(name.clone(), schema, reducer).ok()?;
    let Some(default) = section.get("default") else { return Some(channel) };
    let value = value_of(report, default, &ty)?;
    if let Err(problems) = channel.validate(&value) {
        let message = format!("the default of `{name}` does not fit: {}", problems.join("; "));
        let place = report.place(&default.range);
        report.push(Diagnostic::error("GR022", message).at(place, format!("not a `{ty}`")));
    }
    Some(channel.with_default(value))
}

/// A mapping that says more of a field than its type.
fn as_spec(yaml: &Yaml) -> Option<&Yaml> {
    yaml.get("type")?;
    // A misspelt key is still meant as one, rather than as a field of a record.
    let meant = |key: &str| did_you_mean(key, SPEC_KEYS.iter().copied()).is_some();
    yaml.entries().iter().all(|it| meant(&it.key.text)).then_some(yaml)
}

/// The JSON Schema of a type in the short notation.
fn schema_of(report: &mut Report, yaml: &Yaml) -> Option<Value> {
    match &yaml.data {
        Data::List(items) => {
            let [item] = items.as_slice() else {
                report.wrong_kind(yaml, "the type of a list", "`[T]` with one type");
                return None;
            };
            Some(json!({"type": "array", "items": schema_of(report, item)?}))
        }
        Data::Map(_) if as_spec(yaml).is_some() => {
            let mut schema = schema_of(report, yaml.get("type")?)?;
            let about = yaml.get("about").and_then(Yaml::text);
            if let (Some(about), Value::Object(object)) = (about, &mut schema) {
                object.insert("description".to_owned(), about.into());
            }
            for entry in yaml
                .entries()
                .iter()
                .filter(|it| !["type", "about"].contains(&it.key.text.as_str()))
            {
                let message =
                    format!("`{}` is for fields of the state, not inside one", entry.key.text);
                let place = report.place(&entry.key.range);
                report.push(Diagnostic::error("GR003", message).at(place, "not here"));
            }
            Some(schema)
        }
        Data::Map(entries) => record(report, entries),
        Data::Null => {
            report.wrong_kind(yaml, "a type", "a text such as `string` or `[int]`");
            None
        }
        Data::Scalar { text, .. } => {
            let word = Word { text: text.clone(), range: yaml.range.clone() };
            let (schema, rest) = notation(report, &word, text.trim())?;
            if !rest.is_empty() {
                report.push(unreadable(&word, rest).at(report.place(&word.range), "here"));
                return None;
            }
            Some(schema)
        }
    }
}

fn record(report: &mut Report, entries: &[Entry]) -> Option<Value> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut whole = true;
    for Entry { key, value } in entries {
        let Some(schema) = schema_of(report, value) else {
            whole = false;
            continue;
        };
        if !matches!(Type::of_schema(&schema), Type::Optional(_)) {
            required.push(key.text.clone());
        }
        properties.insert(key.text.clone(), schema);
    }
    whole.then(|| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    })
}

/// Reads a type off the front of a text, and gives back the rest.
fn notation<'t>(report: &mut Report, word: &Word, text: &'t str) -> Option<(Value, &'t str)> {
    let (schema, rest) = if let Some(inner) = text.strip_prefix('[') {
        let (item, rest) = notation(report, word, inner.trim_start())?;
        let Some(rest) = rest.strip_prefix(']') else {
            let finding = Diagnostic::error("GR014", format!("`{}` lacks a `]`", word.text));
            report.push(finding.at(report.place(&word.range), "not closed"));
            return None;
        };
        (json!({"type": "array", "items": item}), rest.trim_start())
    } else {
        let end = text.find(['?', ']', '[']).unwrap_or(text.len());
        let (named, rest) = text.split_at(end);
        (simple(report, word, named.trim())?, rest)
    };
    Some(match rest.strip_prefix('?') {
        Some(rest) => (json!({"anyOf": [schema, {"type": "null"}]}), rest.trim_start()),
        None => (schema, rest),
    })
}

fn simple(report: &mut Report, word: &Word, named: &str) -> Option<Value> {
    if named.contains('|') {
        let values: Vec<&str> = named.split('|').map(str::trim).collect();
        if values.iter().any(|it| it.is_empty()) {
            report.bad_value(word, "a value of this enum is empty", "write `a | b | c`");
            return None;
        }
        return Some(json!({"type": "string", "enum": values}));
    }
    let name = match named {
        "string" => "string",
        "int" => "integer",
        "float" => "number",
        "bool" => "boolean",
        "json" => return Some(json!({})),
        "date" | "duration" => {
            let message = format!("this version does not support the type `{named}` yet");
            let place = report.place(&word.range);
            report.push(Diagnostic::error("GR004", message).at(place, "not yet"));
            return None;
        }
        _ => {
            let help = suggestion(named, TYPES.iter().copied()).unwrap_or_default();
            let message = format!("there is no type `{named}`");
            let place = report.place(&word.range);
            report.push(Diagnostic::error("GR014", message).at(place, "no such type").help(help));
            return None;
        }
    };
    Some(json!({ "type": name }))
}

fn unreadable(word: &Word, rest: &str) -> Diagnostic {
    let message = format!("`{}` is no type from `{rest}` on", word.text);
    Diagnostic::error("GR014", message)
        .help("types are `string`, `[T]`, `{field: T}`, `a | b` and `T?`")
}

fn read_reducer(report: &mut Report, yaml: &Yaml, ty: &Type) -> Option<Reducer> {
    if let Some(path) = yaml.get("best") {
        Section::read(report, yaml, "`merge`", BEST_KEYS)?;
        let path = report.word(path, "`best`")?;
        let by: Vec<String> = path.text.split('.').map(str::to_owned).collect();
        let found = by.iter().try_fold(ty, |it, name| it.field(name));
        if !found.is_some_and(|it| is_number(it.required()) || *it == Type::Any) {
            let message = format!("`best` needs a number, and `{}` of `{ty}` is none", path.text);
            let place = report.place(&path.range);
            report.push(Diagnostic::error("GR019", message).at(place, "not a number"));
            return None;
        }
        return Some(Reducer::Best { by });
    }
    let name = report.word(yaml, "`merge`")?;
    let (reducer, fits, needed) = match name.text.as_str() {
        "replace" => (Reducer::Replace, true, ""),
        "append" => (Reducer::Append, matches!(ty, Type::List(_)), "a list"),
        "union" => (Reducer::Union, matches!(ty, Type::List(_)), "a list"),
        "messages" => (Reducer::Messages, matches!(ty, Type::List(_)), "a list"),
        "sum" => (Reducer::Sum, is_number(ty), "a number"),
        "min" => (Reducer::Min, is_number(ty), "a number"),
        "max" => (Reducer::Max, is_number(ty), "a number"),
        "merge" => (Reducer::Merge, matches!(ty, Type::Record(_) | Type::Map(_)), "a record"),
        unknown => {
            let known = REDUCERS.iter().copied().chain(["best"]);
            let help = suggestion(unknown, known).unwrap_or_default();
            let message = format!("there is no reducer `{unknown}`");
            let place = report.place(&name.range);
            report
                .push(Diagnostic::error("GR019", message).at(place, "no such reducer").help(help));
            return None;
        }
    };
    if !fits && *ty != Type::Any {
        let message = format!("`{}` needs {needed}, and this field is `{ty}`", name.text);
        let place = report.place(&name.range);
        report.push(Diagnostic::error("GR019", message).at(place, format!("needs {needed}")));
        return None;
    }
    Some(reducer)
}

/// A value that is written in the file, read as a type.
fn value_of(report: &mut Report, yaml: &Yaml, ty: &Type) -> Option<Value> {
    Some(match &yaml.data {
        Data::Null => Value::Null,
        Data::List(items) => {
            let item_type = match ty.required() {
                Type::List(item) => item.as_ref(),
                _ => &Type::Any,
            };
            let items = items.iter().map(|it| value_of(report, it, item_type));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Data::Map(entries) => {
            let field = |Entry { key, value }: &Entry| {
                let ty = ty.field(&key.text).unwrap_or(&Type::Any);
                Some((key.text.clone(), value_of(report, value, ty)?))
            };
            Value::Object(entries.iter().map(field).collect::<Option<_>>()?)
        }
        Data::Scalar { text, plain: false } => Value::String(text.clone()),
        Data::Scalar { text, plain: true } => match ty.required() {
            Type::String | Type::Enum(_) => Value::String(text.clone()),
            _ => return plain_value(report, yaml, text),
        },
    })
}

fn plain_value(report: &mut Report, yaml: &Yaml, text: &str) -> Option<Value> {
    const AMBIGUOUS: &[&str] = &["yes", "no", "on", "off", "y", "n"];
    if AMBIGUOUS.contains(&text.to_lowercase().as_str()) {
        let wanted = "`true`, `false`, or a text in quotes";
        report.wrong_kind(yaml, "this value", wanted);
        return None;
    }
    let value = match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.replace('_', "").parse::<serde_json::Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    };
    Some(value)
}
