//! Derives the schema of a state from a Rust type.

use std::sync::Arc;

use graphrun_guard::data_limit::DataLimit;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::{Channel, Fold, Reducer, Schema, SchemaError, schema_size};
use crate::id::ChannelName;

impl Schema {
    /// Makes a schema of a struct: a channel for each field.
    ///
    /// A field of type `Option<T>` is a channel of `T` that is unwritten at first; a field with a serde
    /// default starts with it. `#[schemars(extend("x-merge" = "append"))]` sets its reducer; only
    /// `{"best": "path.to.number"}` takes an argument. A field with `"x-private" = true` is
    /// [private](Channel::private).
    ///
    /// # Errors
    ///
    /// Fails when the type is not a struct or names an unknown reducer.
    pub fn of<T: JsonSchema>() -> Result<Self, SchemaError> {
        Self::of_with_reducers::<T>(&[])
    }

    /// Does the same as [`Schema::of`], but `x-merge` may also name custom reducers.
    ///
    /// # Errors
    ///
    /// Fails when the type is not a struct or names an unknown reducer.
    pub fn of_with_reducers<T: JsonSchema>(
        reducers: &[Arc<dyn Fold>],
    ) -> Result<Self, SchemaError> {
        let generator = SchemaSettings::draft2020_12().into_generator();
        let mut root = generator.into_root_schema_for::<T>().to_value();
        let properties = root.get_mut("properties").and_then(Value::as_object_mut);
        properties.into_iter().flat_map(Map::values_mut).for_each(remove_null);
        Self::of_json_schema(&root, reducers)
    }

    /// Does the same as [`Schema::of_with_reducers`] for the JSON Schema of an object. A property that may be null is an
    /// optional channel.
    ///
    /// # Errors
    ///
    /// Fails when the schema does not describe an object with properties, or names an unknown reducer.
    pub fn of_json_schema(root: &Value, reducers: &[Arc<dyn Fold>]) -> Result<Self, SchemaError> {
        let Some(Value::Object(properties)) = root.get("properties") else {
            let title = root.get("title").and_then(Value::as_str).unwrap_or("this type");
            return Err(SchemaError::NotAStruct(title.to_owned()));
        };
        let mut channels = Vec::new();
        let mut nodes = 0;
        for (name, property) in properties {
            let name = ChannelName::parse(name)?;
            let reducer = match property.get("x-merge") {
                None => Reducer::Replace,
                Some(named) => Reducer::of_schema(named, reducers).ok_or_else(|| {
                    SchemaError::Reducer { channel: name.clone(), reducer: named.to_string() }
                })?,
            };
            let default = property.get("default").filter(|it| !it.is_null()).cloned();
            let is_private = property.get("x-private") == Some(&Value::Bool(true));
            let schema = standing_alone(property.clone(), root);
            // Each field has a separate copy of the definitions that it refers to.
            nodes += schema_size(&schema)?;
            DataLimit::SchemaNodes.check(nodes)?;
            let channel = Channel::new(name.clone(), schema, reducer)
                .map_err(|reason| SchemaError::Schema { channel: name, reason })?;
            let channel = if is_private { channel.private() } else { channel };
            channels.push(match default {
                Some(default) => channel.with_default(default),
                None => channel,
            });
        }
        Self::new(channels)
    }
}

/// Makes the schema of `T` of that of `Option<T>`.
fn remove_null(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    let is_null = |it: &Value| it.get("type").and_then(Value::as_str) == Some("null");
    if let Some(Value::Array(options)) = object.get_mut("anyOf")
        && options.iter().any(is_null)
    {
        options.retain(|it| !is_null(it));
        if let [Value::Object(only)] = options.as_mut_slice() {
            let only = std::mem::take(only);
            object.shift_remove("anyOf");
            object.extend(only);
        }
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            object.insert("type".into(), only);
        }
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
}

/// Adds the definitions that a schema cut out of its root refers to.
fn standing_alone(mut schema: Value, root: &Value) -> Value {
    // Older drafts use the second name.
    for key in ["$defs", "definitions"] {
        let (Value::Object(object), Some(Value::Object(all))) = (&mut schema, root.get(key)) else {
            continue;
        };
        let mut needed = Map::new();
        let mut open = vec![Value::Object(object.clone())];
        while let Some(part) = open.pop() {
            for name in references(&part) {
                if let (false, Some(definition)) = (needed.contains_key(&name), all.get(&name)) {
                    open.push(definition.clone());
                    needed.insert(name, definition.clone());
                }
            }
        }
        if !needed.is_empty() {
            object.insert(key.into(), Value::Object(needed));
        }
    }
    schema
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(object) => object
            .iter()
            .flat_map(|(key, value)| match value {
                Value::String(target) if key == "$ref" => {
                    vec![target.rsplit('/').next().unwrap_or_default().to_owned()]
                }
                other => references(other),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::state::{Change, ChangeKind, StateError, Update};

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Attempt {
        name: String,
        passed: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Work {
        brief: Option<String>,
        #[serde(default)]
        #[schemars(extend("x-merge" = "append"))]
        notes: Vec<String>,
        #[schemars(extend("x-merge" = {"best": "passed"}))]
        best: Option<Attempt>,
    }

    fn name(name: &str) -> ChannelName {
        ChannelName::parse(name).unwrap()
    }

    #[test]
    fn the_fields_of_a_struct_are_channels() {
        let schema = Schema::of::<Work>().unwrap();
        let shown: Vec<String> = schema.channels().iter().map(|it| format!("{it:?}")).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        brief: string (replace)
        notes: [string] (append)
        best: Attempt (best(passed))
        ");
        assert_eq!(schema.empty().get("notes"), Some(&json!([])));
        assert_eq!(schema.empty().get("brief"), None);
    }

    #[test]
    fn appending_stores_the_appended_items_only() {
        let schema = Schema::of::<Work>().unwrap();
        let one = Update::default().write(name("notes"), json!(["a"]));
        let two = Update::default().write(name("notes"), "b").write(name("brief"), "x");
        let (state, _) = schema.apply(schema.empty(), [&one]).unwrap();
        let (state, changes) = schema.apply(state, [&two]).unwrap();
        assert_eq!(state.get("notes"), Some(&json!(["a", "b"])));
        assert_eq!(
            changes,
            [
                Change { channel: name("brief"), kind: ChangeKind::Set(Arc::new(json!("x"))) },
                Change { channel: name("notes"), kind: ChangeKind::Appended(vec![json!("b")]) },
            ]
        );
    }

    #[test]
    fn a_cleared_channel_starts_afresh() {
        let schema = Schema::of::<Work>().unwrap();
        let attempt = |name: &str, passed: u32| json!({"name": name, "passed": passed});
        let first = Update::default().write(name("best"), attempt("old design", 9));
        let (state, _) = schema.apply(schema.empty(), [&first]).unwrap();
        let clear = Update { clears: vec![name("best")], writes: Vec::new() };
        let (state, changes) = schema.apply(state, [&clear]).unwrap();
        assert_eq!(changes[0].kind, ChangeKind::Cleared);
        let second = Update::default().write(name("best"), attempt("new design", 1));
        let (state, _) = schema.apply(state, [&second]).unwrap();
        assert_eq!(state.get("best"), Some(&attempt("new design", 1)));
    }

    #[test]
    fn misfits_are_refused_before_they_are_recorded() {
        let schema = Schema::of::<Work>().unwrap();
        let problem = |channel: &str, value: Value| {
            schema.check(&Update::default().write(name(channel), value)).unwrap_err().to_string()
        };
        insta::assert_snapshot!(problem("brief", json!(3)), @r#"the value does not fit `brief`: 3 is not of type "string""#);
        insta::assert_snapshot!(problem("notes", json!(["a", 1])), @r#"the value does not fit `notes`: /1: 1 is not of type "string""#);
        insta::assert_snapshot!(problem("nots", json!("a")), @"there is no channel `nots`");
    }

    /// Keeps the longer of two texts.
    #[derive(Debug)]
    struct Longest;

    impl Fold for Longest {
        fn name(&self) -> &'static str {
            "longest"
        }

        fn fold(&self, current: Option<Value>, written: Value) -> Result<Value, String> {
            let length = |it: &Value| it.as_str().map(str::len).ok_or("not a text".to_owned());
            match current {
                Some(before) if length(&written)? <= length(&before)? => Ok(before),
                _ => Ok(written),
            }
        }
    }

    #[derive(Serialize, JsonSchema)]
    struct Essay {
        #[schemars(extend("x-merge" = "longest"))]
        text: Option<String>,
    }

    #[test]
    fn a_registered_reducer_is_named_as_the_built_in_ones_are() {
        assert!(matches!(Schema::of::<Essay>(), Err(SchemaError::Reducer { .. })));
        let schema = Schema::of_with_reducers::<Essay>(&[Arc::new(Longest)]).unwrap();
        let write = |text: Value| Update::default().write(name("text"), text);
        let writes = [write(json!("long enough")), write(json!("short"))];
        let (state, _) = schema.apply(schema.empty(), &writes).unwrap();
        assert_eq!(state.get("text"), Some(&json!("long enough")));
        let refused = schema.apply(state, [&write(json!(7))]).unwrap_err();
        let reason = std::error::Error::source(&refused).unwrap().to_string();
        assert_eq!(reason, "`longest` refused: not a text");
    }

    #[test]
    fn two_writers_of_one_value_are_a_conflict() {
        let schema = Schema::of::<Work>().unwrap();
        let write = Update::default().write(name("brief"), "x");
        let refused = schema.apply(schema.empty(), [&write, &write]).unwrap_err();
        assert_eq!(refused, StateError::Conflict(name("brief")));
    }

    #[test]
    fn a_step_that_is_refused_leaves_the_state_as_it_was() {
        let schema = Schema::of::<Work>().unwrap();
        let write = Update::default().write(name("notes"), json!(["a"])).write(name("brief"), "x");
        let (state, _) = schema.apply(schema.empty(), [&write]).unwrap();
        let clear = Update { clears: vec![name("notes")], writes: Vec::new() };
        let mut unchanged = state.clone();
        schema.fold_changes(&mut unchanged, [&write, &clear, &write]).unwrap_err();
        assert_eq!(unchanged, state);
    }

    #[test]
    fn a_state_is_read_as_the_struct_it_came_from() {
        let schema = Schema::of::<Work>().unwrap();
        let update = Update::default().write(name("brief"), "x");
        let (state, _) = schema.apply(schema.empty(), [&update]).unwrap();
        let work: Work = state.read().unwrap();
        assert_eq!(work, Work { brief: Some("x".into()), notes: Vec::new(), best: None });
        let saved = state.to_json().into_iter().map(|(key, value)| (name(&key), value));
        assert_eq!(schema.restore(saved).unwrap(), state);
    }
}
