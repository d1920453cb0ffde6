//! Types in the short notation, and those with a name.
//!
//! A named type is expanded where it is used, with its name as the title of a record. So a type
//! cannot contain itself, and the size of all uses is bounded.

use std::ops::Range;

use graphrun_core::{
    diagnostic::Diagnostic,
    state::{LENIENT, Type, validator_for},
};
use graphrun_expressions::{
    file::{FILE, file_schema},
    problem::suggestion,
};
use serde_json::{Map, Value, json};

use super::{DeclaredType, TypeReader, as_spec, check_type_name, value_of};
use crate::source::reader::{Data, Entry, SpannedText, Yaml};

/// The types with a name.
pub(crate) const TYPES: &[&str] =
    &["string", "int", "float", "bool", "json", "date", "duration", "message", "file"];

/// The only key of a record beside its fields.
pub(crate) const LENIENCE: &str = "lenient";

/// The keys of a field inside a record.
const INSIDE: &[&str] = &["type", "about", "min", "max"];
/// The keys of a field inside a lenient record.
const INSIDE_LENIENT: &[&str] = &["type", "about", "min", "max", "default"];

/// The start of the type of a map.
const MAP: &str = "map[";

/// The deepest nesting of lists, maps and records in a type, named types included. The reader, the checks and the schemas
/// for models follow it by recursion.
const DEPTH_MAX: usize = 32;

impl<'y> TypeReader<'_, 'y> {
    /// Reads `types`.
    pub(super) fn types(&mut self, yaml: &'y Yaml) {
        if !matches!(yaml.data, Data::Map(_)) {
            self.report.wrong_kind(yaml, "`types`", "a mapping from names to types");
        }
        for entry in yaml.entries() {
            let name = entry.key.text.as_str();
            if let Err(message) = check_type_name(name) {
                if TYPES.contains(&name) || name == "map" {
                    let span = self.report.span(&entry.key.range);
                    let diagnostic = Diagnostic::error("GR016", message).at(span, "reserved");
                    self.report.push(diagnostic.help("choose another name"));
                } else {
                    let help = "letters from a to z, digits and `_`, starting with a letter";
                    self.report.bad_value(&entry.key, message, help);
                }
            } else {
                self.types.insert(name, DeclaredType::Unread(entry));
            }
        }
        for name in self.types.keys().copied().collect::<Vec<_>>() {
            self.read_named(name);
        }
    }

    /// Returns the JSON Schema of a type under `types`; a type with reported mistakes may be anything.
    fn read_named(&mut self, name: &'y str) -> Option<Value> {
        match self.types.get(name)?.clone() {
            DeclaredType::Read(schema) => Some(schema),
            DeclaredType::Unread(entry) => {
                self.open.push(name);
                let schema = self.schema_of(&entry.value);
                self.open.pop();
                let mut schema = schema.unwrap_or_else(|| json!({}));
                if let (Type::Record(_), Some(object)) =
                    (Type::of_schema(&schema), schema.as_object_mut())
                    && !object.contains_key("title")
                {
                    object.insert("title".to_owned(), name.into());
                }
                self.types.insert(name, DeclaredType::Read(schema.clone()));
                Some(schema)
            }
        }
    }

    /// Returns the JSON Schema of a type in the short notation.
    pub(super) fn schema_of(&mut self, yaml: &'y Yaml) -> Option<Value> {
        self.nested(&yaml.range, |it| it.schema_of_part(yaml))
    }

    /// Reads a part of a type one level deeper.
    fn nested<T>(
        &mut self,
        at: &Range<usize>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        self.depth += 1;
        let part = self.check_depth(0, at).and_then(|()| read(self));
        self.depth -= 1;
        part
    }

    /// Reports a type that is nested too deep: the part at this place has this many levels itself.
    fn check_depth(&mut self, levels: usize, at: &Range<usize>) -> Option<()> {
        if self.depth + levels <= DEPTH_MAX {
            return Some(());
        }
        let message = format!("this type is nested deeper than {DEPTH_MAX} levels");
        let diagnostic = Diagnostic::error("GR014", message).at(self.report.span(at), "too deep");
        self.report.push(diagnostic.help("declare an inner part as `json`"));
        None
    }

    fn schema_of_part(&mut self, yaml: &'y Yaml) -> Option<Value> {
        match &yaml.data {
            Data::List(items) => {
                let [item] = items.as_slice() else {
                    let wanted = "`[T]` with one type";
                    let diagnostic = self.report.of_wrong_kind(yaml, "the type of a list", wanted);
                    self.report.push(Diagnostic { help: as_enum(items), ..diagnostic });
                    return None;
                };
                Some(json!({"type": "array", "items": self.schema_of(item)?}))
            }
            Data::Map(_) if yaml.get("type").is_some() && as_spec(yaml) => {
                self.described(yaml.get("type")?, yaml, INSIDE)
            }
            Data::Map(entries) => self.record(entries),
            Data::Null => {
                self.report.wrong_kind(yaml, "a type", "a text such as `string` or `[int]`");
                None
            }
            Data::Scalar { text, .. } => {
                let word = SpannedText { text: text.clone(), range: yaml.range.clone() };
                let (schema, rest) = self.notation(&word, text.trim())?;
                if !rest.is_empty() {
                    let span = self.report.span(&word.range);
                    self.report.push(unreadable(&word, rest).at(span, "here"));
                    return None;
                }
                Some(schema)
            }
        }
    }

    /// Returns a type with a description or a range, inside another type.
    fn described(&mut self, ty: &'y Yaml, spec: &'y Yaml, keys: &[&str]) -> Option<Value> {
        let mut schema = self.schema_of(ty)?;
        self.restrict(&mut schema, spec)?;
        let about = spec.get("about").and_then(Yaml::text);
        if let (Some(about), Value::Object(object)) = (about, &mut schema) {
            object.insert("description".to_owned(), about.into());
        }
        let others = spec.entries().iter().map(|it| &it.key);
        for key in { others }.filter(|it| !keys.contains(&it.text.as_str())) {
            let message = format!("`{}` is for fields of the state, not inside one", key.text);
            let span = self.report.span(&key.range);
            let diagnostic = Diagnostic::error("GR003", message).at(span, "not here");
            self.report.push(match key.text.as_str() {
                "default" => {
                    diagnostic.help("only a record with `lenient: true` has such defaults")
                }
                _ => diagnostic,
            });
        }
        if let Some(default) = spec.get("default").filter(|_| keys.contains(&"default")) {
            let value = value_of(self.report, default, &Type::of_schema(&schema))?;
            let problem = validator_for(&schema)
                .ok()
                .and_then(|schema| schema.validate(&value).err().map(|it| it.to_string()));
            if let Some(problem) = problem {
                let message = format!("the default does not fit: {problem}");
                let span = self.report.span(&default.range);
                let label = format!("not a `{}`", Type::of_schema(&schema));
                self.report.push(Diagnostic::error("GR022", message).at(span, label));
            }
            schema.as_object_mut()?.insert("default".to_owned(), value);
        }
        Some(schema)
    }

    fn record(&mut self, entries: &'y [Entry]) -> Option<Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut whole = true;
        let is_lenient = |it: &&Entry| is_lenience(it);
        let lenient = entries.iter().find(is_lenient).and_then(|it| it.value.text());
        let lenient = lenient == Some("true");
        for Entry { key, value } in entries.iter().filter(|it| !is_lenience(it)) {
            let schema = match value.get("type") {
                Some(ty) if lenient && as_spec(value) => self.described(ty, value, INSIDE_LENIENT),
                _ => self.schema_of(value),
            };
            let Some(schema) = schema else {
                whole = false;
                continue;
            };
            // `json?` is not a separate type, because any JSON may be null; it only makes the key
            // optional.
            let may_be_absent = schema == optional(&json!({}));
            if !may_be_absent && !matches!(Type::of_schema(&schema), Type::Optional(_)) {
                required.push(key.text.clone());
            }
            properties.insert(key.text.clone(), schema);
        }
        whole.then(|| {
            let mut schema = json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            });
            if lenient {
                schema[LENIENT] = true.into();
            }
            schema
        })
    }

    /// Parses a type at the front of a text and returns the rest.
    fn notation<'t>(&mut self, word: &SpannedText, text: &'t str) -> Option<(Value, &'t str)> {
        let (schema, rest) = if let Some(inner) = text.strip_prefix('[') {
            let read = |it: &mut Self| it.notation(word, inner.trim_start());
            let (item, rest) = self.nested(&word.range, read)?;
            let Some(rest) = rest.strip_prefix(']') else {
                let diagnostic = Diagnostic::error("GR014", format!("`{}` lacks a `]`", word.text));
                self.report.push(diagnostic.at(self.report.span(&word.range), "not closed"));
                return None;
            };
            (json!({"type": "array", "items": item}), rest.trim_start())
        } else if let Some(inner) = text.strip_prefix(MAP) {
            self.map(word, inner.trim_start())?
        } else if text.starts_with('{') {
            // No type; its commas belong to it.
            let end = text.rfind('}').map_or(text.len(), |it| it + 1);
            (self.own(word, text[..end].trim())?, "")
        } else {
            let end = text.find(['?', ']', '[', ',']).unwrap_or(text.len());
            let (named, rest) = text.split_at(end);
            (self.simple(word, named.trim())?, rest)
        };
        Some(match rest.strip_prefix('?') {
            Some(rest) => (optional(&schema), rest.trim_start()),
            None => (schema, rest),
        })
    }

    /// Parses the parts of `map[string, T]` behind the bracket.
    fn map<'t>(&mut self, word: &SpannedText, text: &'t str) -> Option<(Value, &'t str)> {
        let form = |reading: &mut Self, label: &str| {
            let message = format!("`{}` is not a map from texts to values of a type", word.text);
            let diagnostic = Diagnostic::error("GR014", message);
            let diagnostic = diagnostic.at(reading.report.span(&word.range), label);
            reading.report.push(diagnostic.help("write `map[string, T]`"));
        };
        let value = text.strip_prefix("string").map(str::trim_start);
        let Some(value) = value.and_then(|it| it.strip_prefix(',')) else {
            form(self, "the keys are texts");
            return None;
        };
        let read = |it: &mut Self| it.notation(word, value.trim_start());
        let (value, rest) = self.nested(&word.range, read)?;
        let Some(rest) = rest.strip_prefix(']') else {
            form(self, "not closed");
            return None;
        };
        Some((json!({"type": "object", "additionalProperties": value}), rest.trim_start()))
    }

    fn simple(&mut self, word: &SpannedText, named: &str) -> Option<Value> {
        if named.contains('|') {
            let values: Vec<&str> = named.split('|').map(|it| unquoted(it.trim())).collect();
            if values.iter().any(|it| it.is_empty()) {
                let message = "a value of this enum is empty";
                self.report.bad_value(word, message, "write `a | b | c`");
                return None;
            }
            if let Some((_, again)) =
                values.iter().enumerate().find(|(at, it)| values[..*at].contains(it))
            {
                let message = format!("the value `{again}` of this enum is given twice");
                let span = self.report.span(&word.range);
                self.report.push(Diagnostic::error("GR002", message).at(span, "given twice"));
                return None;
            }
            return Some(json!({"type": "string", "enum": values}));
        }
        Some(match named {
            "string" => json!({"type": "string"}),
            "int" => json!({"type": "integer"}),
            "float" => json!({"type": "number"}),
            "bool" => json!({"type": "boolean"}),
            "json" => json!({}),
            "date" => json!({"type": "string", "format": "date"}),
            "duration" => json!({"type": "string", "format": "duration"}),
            "message" => json!({
                "type": "object",
                "title": "message",
                "properties": {
                    "id": optional(&json!({"type": "string"})),
                    "role": {"type": "string", "enum": ["system", "user", "assistant"]},
                    "content": {"type": "string"},
                },
                "required": ["role", "content"],
                "additionalProperties": false,
            }),
            FILE if !self.types.contains_key(FILE) => file_schema(),
            own => return self.own(word, own),
        })
    }

    /// Returns a use of a type under `types`.
    fn own(&mut self, word: &SpannedText, named: &str) -> Option<Value> {
        let Some(name) = self.types.keys().copied().find(|it| *it == named) else {
            let known = self.types.keys().copied().chain(TYPES.iter().copied());
            let record = "a record is a mapping, without quotes: `{ field: type }`";
            let help = named
                .starts_with('{')
                .then(|| record.to_owned())
                .or_else(|| in_python(&word.text).map(|it| format!("did you mean `{it}`?")))
                .or_else(|| in_other_words(named).map(|it| format!("did you mean `{it}`?")))
                .or_else(|| suggestion(named, known))
                .unwrap_or_default();
            let message = format!("there is no type `{named}`");
            let span = self.report.span(&word.range);
            let diagnostic = Diagnostic::error("GR014", message).at(span, "no such type");
            self.report.push(diagnostic.help(help));
            return None;
        };
        if self.open.contains(&name) {
            let message = format!("the type `{name}` contains itself");
            let span = self.report.span(&word.range);
            let diagnostic = Diagnostic::error("GR111", message).at(span, "endless from here on");
            let help = "keep a list of all parts, each with the name of the one it belongs to";
            self.report.push(diagnostic.help(help));
            return None;
        }
        self.used.insert(name.to_owned());
        let schema = self.read_named(name)?;
        self.grow(&schema, &word.range)?;
        self.check_depth(levels_of(&schema), &word.range)?;
        Some(schema)
    }
}

/// Returns the levels of lists, maps and records in the schema of a type.
fn levels_of(schema: &Value) -> usize {
    let inside =
        |key: &str| schema.get(key).filter(|it| it.is_object()).map(|it| 1 + levels_of(it));
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flat_map(Map::values).map(|it| 1 + levels_of(it));
    let forms = schema.get("anyOf").and_then(Value::as_array);
    let forms = forms.into_iter().flatten().map(levels_of);
    let parts = [inside("items"), inside("additionalProperties")].into_iter().flatten();
    parts.chain(fields).chain(forms).max().unwrap_or(0)
}

/// Returns whether an entry of a record makes it lenient or not. A field of that name has a type, which is no such
/// word.
pub(super) fn is_lenience(entry: &Entry) -> bool {
    entry.key.text == LENIENCE && entry.value.text().is_some_and(|it| it.parse::<bool>().is_ok())
}

/// Returns the notation of an enum, for several texts in place of one type.
fn as_enum(items: &[Yaml]) -> Option<String> {
    let texts: Option<Vec<&str>> = items.iter().map(Yaml::text).collect();
    let texts =
        texts.filter(|words| words.len() > 1 && !words.iter().any(|it| TYPES.contains(it)))?;
    Some(format!("one of a few texts is written `{}`", texts.join(" | ")))
}

/// Returns the text in quotes. A plain text of YAML keeps the quotes in it, as in `pass | "fail"`.
fn unquoted(text: &str) -> &str {
    let inside = |quote| text.strip_prefix(quote).and_then(|it| it.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

fn optional(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// Returns the notation of a type of Python, such as `Optional[list[str]]`.
fn in_python(text: &str) -> Option<String> {
    let text = text.trim();
    let Some((outer, inner)) = text.strip_suffix(']').and_then(|it| it.split_once('[')) else {
        let is_known = TYPES.contains(&text);
        return is_known
            .then(|| text.to_owned())
            .or_else(|| in_other_words(text).map(str::to_owned));
    };
    let part = |it: &str| in_python(it).unwrap_or_else(|| it.trim().to_owned());
    match outer.trim().to_ascii_lowercase().as_str() {
        "optional" => Some(format!("{}?", part(inner))),
        "list" | "sequence" | "set" | "array" | "vec" => Some(format!("[{}]", part(inner))),
        "dict" | "mapping" => {
            Some(format!("map[string, {}]", part(inner.split_once(',').map_or("", |it| it.1))))
        }
        "literal" => {
            let values: Vec<&str> = inner.split(',').map(|it| unquoted(it.trim())).collect();
            Some(values.join(" | "))
        }
        _ => None,
    }
}

/// Returns the type for a name of other languages.
fn in_other_words(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "str" | "text" | "char" | "varchar" => "string",
        "integer" | "i32" | "i64" | "u32" | "u64" | "long" => "int",
        "number" | "double" | "f32" | "f64" | "decimal" => "float",
        "boolean" => "bool",
        "any" | "object" => "json",
        "dict" | "map" | "hash" => "map[string, json]",
        "array" | "list" | "vec" => "[string]",
        "datetime" | "timestamp" => "date",
        _ => return None,
    })
}

fn unreadable(word: &SpannedText, rest: &str) -> Diagnostic {
    let message = format!("`{}` is not a type from `{rest}` on", word.text);
    Diagnostic::error("GR014", message)
        .help("types are `string`, `[T]`, `{field: T}`, `map[string, T]`, `a | b` and `T?`")
}
