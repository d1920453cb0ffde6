//! The JSON Schema of a whole state: the inverse of deriving channels from a Rust type.

use serde_json::{Map, Value, json};

use super::{Channel, Schema};

impl Schema {
    /// Returns the JSON Schema of a state of these channels.
    ///
    /// No field is required: each is absent until it is written. `x-merge` names the reducer of a field, as
    /// in the schema of a Rust type.
    ///
    /// ```
    /// use graphrun_core::state::Schema;
    ///
    /// #[derive(schemars::JsonSchema)]
    /// #[expect(dead_code)]
    /// struct Board {
    ///     brief: String,
    /// }
    ///
    /// let schema = Schema::of::<Board>()?.to_json_schema();
    /// assert_eq!(schema["properties"]["brief"]["type"], "string");
    /// # Ok::<_, graphrun_core::state::SchemaError>(())
    /// ```
    pub fn to_json_schema(&self) -> Value {
        let mut definitions = Map::new();
        let properties: Map<String, Value> = self
            .channels()
            .iter()
            .map(|it| (it.name().to_string(), property(it, &mut definitions)))
            .collect();
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        if !definitions.is_empty() {
            schema["$defs"] = definitions.into();
        }
        schema
    }
}

/// Returns the schema of a channel, and moves its definitions to those of the whole schema.
fn property(channel: &Channel, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = channel.schema().clone();
    if let Value::Object(object) = &mut schema
        && let Some(Value::Object(own)) = object.shift_remove("$defs")
    {
        let taken =
            |(name, it): (&String, &Value)| definitions.get(name).is_some_and(|one| one != it);
        // Two fields from different sources may use one name for different definitions.
        let prefix =
            if own.iter().any(taken) { format!("{}.", channel.name()) } else { String::new() };
        rename(&mut schema, &prefix);
        for (name, mut definition) in own {
            rename(&mut definition, &prefix);
            definitions.insert(format!("{prefix}{name}"), definition);
        }
    }
    // A schema may also be just `true`.
    let Value::Object(object) = &mut schema else { return schema };
    if let Some(default) = channel.default() {
        object.insert("default".to_owned(), Value::clone(default));
    }
    if !channel.is_public() {
        object.insert("x-private".to_owned(), true.into());
    }
    match channel.reducer().to_schema() {
        None => drop(object.shift_remove("x-merge")),
        Some(reducer) => drop(object.insert("x-merge".to_owned(), reducer)),
    }
    schema
}

/// Adds a prefix to the definition name in every reference.
fn rename(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(target) if key == "$ref" => {
                        if let Some(name) = target.strip_prefix("#/$defs/") {
                            *target = format!("#/$defs/{prefix}{name}");
                        }
                    }
                    other => rename(other, prefix),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| rename(it, prefix)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::ChannelName, state::Reducer};

    fn channel(name: &str, schema: Value, reducer: Reducer) -> Channel {
        Channel::new(ChannelName::parse(name).unwrap(), schema, reducer).unwrap()
    }

    #[test]
    fn reducers_and_defaults_are_written_as_a_rust_type_writes_them() {
        let text = json!({"type": "string"});
        let best = Reducer::Best { by: vec!["a".into(), "b".into()] };
        let channels = [
            channel("plain", text.clone(), Reducer::Replace),
            channel("list", json!({"type": "array", "items": text}), Reducer::Append)
                .with_default(json!([])),
            channel("best", json!({"type": "object"}), best),
        ];
        let schema = Schema::new(channels).unwrap().to_json_schema();
        assert_eq!(
            schema["properties"],
            json!({
                "plain": {"type": "string"},
                "list": {"type": "array", "items": {"type": "string"}, "default": [], "x-merge": "append"},
                "best": {"type": "object", "x-merge": {"best": "a.b"}},
            })
        );
    }

    #[test]
    fn different_definitions_of_one_name_are_kept_apart() {
        let field = |ty: &str| {
            let inner = json!({"Inner": {"type": ty}});
            json!({"type": "array", "items": {"$ref": "#/$defs/Inner"}, "$defs": inner})
        };
        let channels = [
            channel("a", field("string"), Reducer::Replace),
            channel("b", field("integer"), Reducer::Replace),
            channel("c", field("string"), Reducer::Replace),
        ];
        let schema = Schema::new(channels).unwrap().to_json_schema();
        let fits = |value: Value| jsonschema::is_valid(&schema, &value);
        assert!(fits(json!({"a": ["x"], "b": [1], "c": ["x"]})));
        assert!(!fits(json!({"a": [1]})) && !fits(json!({"b": ["x"]})) && !fits(json!({"c": [1]})));
        assert_eq!(schema["$defs"].as_object().unwrap().len(), 2);
    }
}
