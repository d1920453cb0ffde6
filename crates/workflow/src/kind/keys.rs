//! The keys of a kind, from the schema of a struct.
//!
//! The struct is the only list of them. The reader takes its known keys from here, and the JSON
//! Schema of a node is the union of the keys of all kinds: one flat mapping, so that a language
//! server marks the right key.

use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::Kind;
use crate::format::{MappingKeys as _, NodeKeys, schema_of};

/// The keys of a kind with their schemas.
#[derive(Clone, Debug)]
pub struct Keys {
    properties: Map<String, Value>,
    required: Vec<String>,
}

/// The keys of a kind, made when they are first needed: few commands need those of all kinds, and no workflow does.
type LazyKeys = LazyLock<Keys, Box<dyn FnOnce() -> Keys + Send>>;

/// The form of the value of a kind's key, as far as an editor shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// The name of what the node runs, such as an agent.
    Name,
    /// The names of nodes.
    Nodes,
    /// Anything else.
    Other,
}

/// A kind that workflows may use, with its keys.
#[derive(Clone, Debug)]
pub struct RegisteredKind {
    pub(crate) kind: Arc<dyn Kind>,
    keys: Arc<LazyKeys>,
}

impl Keys {
    /// Takes the fields of a struct as keys, with their doc comments as hover texts and their types
    /// as schemas. Optional fields are optional keys. The types are those of
    /// [`values`](super::values), or others that describe values of YAML.
    pub fn of<T: JsonSchema>() -> Self {
        let schema = schema_of::<T>();
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        Self {
            properties: properties.cloned().unwrap_or_default(),
            required: required.map(str::to_owned).collect(),
        }
    }

    /// Returns the names of the keys.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// Returns the keys of the mapping under a key, if it is a mapping with known keys.
    fn within(&self, key: &str) -> Vec<&str> {
        let inner = self.properties.get(key).and_then(|it| it.get("properties"));
        let inner = inner.and_then(Value::as_object);
        inner.into_iter().flatten().map(|(key, _)| key.as_str()).collect()
    }
}

impl RegisteredKind {
    /// # Panics
    ///
    /// Panics if the keys of the kind do not contain its own one, or contain one that all nodes have: in a debug build
    /// here, else where they are first needed.
    pub(crate) fn new(kind: Arc<dyn Kind>) -> Self {
        let own = Arc::clone(&kind);
        let keys: LazyKeys = LazyLock::new(Box::new(move || checked_keys(own.as_ref())));
        if cfg!(debug_assertions) {
            LazyLock::force(&keys);
        }
        Self { kind, keys: Arc::new(keys) }
    }

    /// Returns the key that makes a node one of this kind.
    pub fn key(&self) -> &'static str {
        self.kind.key()
    }

    /// Returns its keys beside that one.
    pub fn own_keys(&self) -> impl Iterator<Item = &str> {
        self.keys.names().filter(|it| *it != self.key())
    }

    /// Returns whether a node of this kind has a key that not all nodes have.
    pub fn takes(&self, key: &str) -> bool {
        self.keys.properties.contains_key(key)
    }

    /// Returns the keys of the mapping under one of its keys.
    pub(crate) fn keys_within(&self, key: &str) -> Vec<&str> {
        self.keys.within(key)
    }

    /// Returns whether a node of this kind is invalid without a key.
    pub(crate) fn requires(&self, key: &str) -> bool {
        self.keys.required.iter().any(|it| it == key)
    }

    /// Returns the keys under which a node names the fields that it writes: `writes`, or the key of the kind if its
    /// value is a mapping from fields.
    pub fn keys_of_written_fields(&self) -> impl Iterator<Item = &str> {
        let is_field = |(key, schema): (&str, &Value)| {
            let has_fields = |schema: &Value| schema["propertyNames"]["x-refers"] == "field";
            key == "writes" || key == self.key() && has_fields(schema)
        };
        let keys = self.keys.properties.iter().map(|(key, schema)| (key.as_str(), schema));
        keys.filter(move |it| is_field(*it)).map(|(key, _)| key)
    }

    /// Returns the form of the value of its key.
    pub fn value(&self) -> KeyValue {
        let schema = &self.keys.properties[self.key()];
        let refers_to = |schema: &Value| schema.get("x-refers") == Some(&"node".into());
        // An agent is mostly a name; a mapping chooses one of several.
        let is_agent = schema.get("x-refers").is_some_and(|it| it == "agent");
        if is_agent || schema.get("type").is_some_and(|it| it == "string") {
            KeyValue::Name
        } else if schema.get("items").is_some_and(refers_to) {
            KeyValue::Nodes
        } else {
            KeyValue::Other
        }
    }
}

fn checked_keys(kind: &dyn Kind) -> Keys {
    let key = kind.key();
    let keys = kind.keys();
    assert!(keys.properties.contains_key(key), "the keys of the kind `{key}` include `{key}`");
    let common = keys.names().find(|it| NodeKeys::keys().contains(it));
    assert!(common.is_none(), "the kind `{key}` has the key {common:?} of every node");
    keys
}

/// Adds the keys of all kinds to the schema of a node, which has the common keys.
pub(crate) fn node_schema(common: &mut Value, kinds: &[RegisteredKind]) {
    let names: Vec<String> = kinds.iter().map(|it| format!("`{}`", it.key())).collect();
    common["description"] = format!(
        "A node: exactly one kind ({}), and the keys common to all kinds.",
        names.join(", ")
    )
    .into();
    let mut properties = Map::new();
    for kind in kinds {
        let mut schema = kind.keys.properties[kind.key()].clone();
        schema["description"] = format!("Kind: {}", as_continuation(about(&schema))).into();
        properties.insert(kind.key().to_owned(), schema);
    }
    for key in kinds.iter().flat_map(RegisteredKind::own_keys) {
        if !properties.contains_key(key) {
            properties.insert(key.to_owned(), shared(key, kinds));
        }
    }
    if let Some(Value::Object(common)) = common.get_mut("properties") {
        properties.append(common);
        *common = properties;
    }
}

/// Returns the schema of a key that some kinds have: it accepts what one of them accepts, and its text has a sentence
/// for each meaning.
fn shared(key: &str, kinds: &[RegisteredKind]) -> Value {
    let mut schema = Value::Null;
    let mut meanings: Vec<(&str, Vec<String>)> = Vec::new();
    for kind in kinds {
        let Some(of_kind) = kind.keys.properties.get(key) else { continue };
        let name = format!("`{}`", kind.key());
        match meanings.iter_mut().find(|(about, _)| *about == self::about(of_kind)) {
            Some((_, kinds)) => kinds.push(name),
            None => meanings.push((about(of_kind), vec![name])),
        }
        if schema.is_null() {
            schema = of_kind.clone();
        } else {
            accept_also(&mut schema, of_kind);
        }
    }
    let sentence = |(about, kinds): (&str, Vec<String>)| {
        format!("For {}: {}", kinds.join(" and "), as_continuation(about))
    };
    let sentences: Vec<String> = meanings.into_iter().map(sentence).collect();
    schema["description"] = sentences.join(" ").into();
    schema
}

/// Widens a schema so that it also accepts the values of another one.
///
/// A keyword applies to one type of values only. So the keywords of types that only one side has
/// stay; of keywords that both have, lists of words are united, and others stay if they are equal.
fn accept_also(schema: &mut Value, other: &Value) {
    let own = types(schema);
    let others = types(other);
    let (Value::Object(schema), Value::Object(other)) = (schema, other) else { return };
    let is_shared = own.iter().any(|it| others.contains(it));
    for (keyword, value) in other {
        match (keyword.as_str(), schema.get_mut(keyword)) {
            ("type", Some(own)) => {
                let mut all: Vec<Value> = listed(own);
                all.extend(listed(value).into_iter().filter(|it| !listed(own).contains(it)));
                *own = if all.len() == 1 { all.remove(0) } else { all.into() };
            }
            ("examples" | "enum", Some(own)) => {
                let more: Vec<Value> =
                    listed(value).into_iter().filter(|it| !listed(own).contains(it)).collect();
                *own = [listed(own), more].concat().into();
            }
            ("items" | "additionalProperties" | "propertyNames", Some(own)) => {
                accept_also(own, value);
            }
            ("properties", Some(Value::Object(own))) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    match own.get_mut(key) {
                        Some(own) => accept_also(own, value),
                        None => _ = own.insert(key.clone(), value.clone()),
                    }
                }
            }
            (_, Some(_)) => (),
            (_, None) if bounds_a_shared_type(keyword, is_shared) => (),
            (_, None) => _ = schema.insert(keyword.clone(), value.clone()),
        }
    }
    // A bound that only one side has would refuse values of the other one.
    schema.retain(|keyword, value| {
        !bounds_a_shared_type(keyword, is_shared)
            || other.get(keyword) == Some(value)
            || keyword == "enum" && other.contains_key(keyword)
    });
}

fn bounds_a_shared_type(keyword: &str, is_shared: bool) -> bool {
    let bounds = ["enum", "const", "pattern", "minimum", "maximum", "required"];
    is_shared && bounds.contains(&keyword)
}

fn types(schema: &Value) -> Vec<Value> {
    schema.get("type").map(listed).unwrap_or_default()
}

fn listed(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        one => vec![one.clone()],
    }
}

fn about(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// Returns a sentence that continues after a colon.
fn as_continuation(sentence: &str) -> String {
    let mut characters = sentence.chars();
    match (characters.next(), characters.clone().next()) {
        // A word in capitals stays as it is.
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(characters).collect()
        }
        _ => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shared_key_accepts_the_values_of_each_kind() {
        let united = |one: Value, other: Value| {
            let mut schema = one;
            accept_also(&mut schema, &other);
            schema
        };
        assert_eq!(
            united(json!({"type": "string", "enum": ["a"]}), json!({"type": "string"})),
            json!({"type": "string"})
        );
        assert_eq!(
            united(json!({"type": "string"}), json!({"type": "string", "pattern": "x"})),
            json!({"type": "string"})
        );
        assert_eq!(
            united(
                json!({"enum": ["a"], "type": "string"}),
                json!({"enum": ["a", "b"], "type": "string"})
            ),
            json!({"enum": ["a", "b"], "type": "string"})
        );
        assert_eq!(
            united(
                json!({"type": "string", "x-refers": "field"}),
                json!({"type": ["string", "object"], "additionalProperties": {"type": "string"}})
            ),
            json!({
                "type": ["string", "object"],
                "x-refers": "field",
                "additionalProperties": {"type": "string"},
            })
        );
        assert_eq!(
            united(
                json!({"type": "object", "additionalProperties": {"type": "string", "examples": ["a"]}}),
                json!({"type": "object", "additionalProperties": {"type": "string", "examples": ["b"]}})
            ),
            json!({"type": "object", "additionalProperties": {"type": "string", "examples": ["a", "b"]}})
        );
    }

    #[test]
    fn a_sentence_continues_in_lower_case() {
        assert_eq!(as_continuation("Asks a model."), "asks a model.");
        assert_eq!(as_continuation("JSON goes here."), "JSON goes here.");
        assert_eq!(as_continuation("A file."), "a file.");
        assert_eq!(as_continuation(""), "");
    }
}
