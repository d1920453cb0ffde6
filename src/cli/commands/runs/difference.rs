//! Computes the differences between two states, field by field and as deep as possible.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::id::ChannelName;

/// A difference between two states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// The field of the state.
    pub(crate) field: String,
    /// The path in the field, such as `review.problems[2]`; the field itself if it differs as a
    /// whole.
    pub(crate) path: String,
    /// The old value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<Value>,
    /// The new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new: Option<Value>,
}

impl Difference {
    /// Returns the index of the item that differs, if the field is a list.
    pub(crate) fn index(&self) -> Option<usize> {
        let (index, _) = self.path.strip_prefix(&self.field)?.strip_prefix('[')?.split_once(']')?;
        index.parse().ok()
    }
}

/// Returns every difference between two states, ordered by name.
pub(crate) fn differences(
    old: &BTreeMap<ChannelName, Value>,
    new: &BTreeMap<ChannelName, Value>,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let fields: BTreeSet<&ChannelName> = old.keys().chain(new.keys()).collect();
    for field in fields {
        let mut comparing = Comparing { field: field.as_str(), found: &mut found };
        comparing.compare(field.to_string(), old.get(field), new.get(field));
    }
    found
}

struct Comparing<'a> {
    field: &'a str,
    found: &'a mut Vec<Difference>,
}

impl Comparing<'_> {
    fn compare(&mut self, path: String, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) if old == new => (),
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    self.compare(format!("{path}.{key}"), old.get(key), new.get(key));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                // Lists are compared by index: items are mostly appended.
                for at in 0..old.len().max(new.len()) {
                    self.compare(format!("{path}[{at}]"), old.get(at), new.get(at));
                }
            }
            (old, new) => self.found.push(Difference {
                field: self.field.to_owned(),
                path,
                old: old.cloned(),
                new: new.cloned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn describe(old: Value, new: Value) -> Vec<String> {
        let state = |it: Value| serde_json::from_value(it).unwrap();
        let found = differences(&state(old), &state(new));
        let text = |value: Option<Value>| value.map_or("-".to_owned(), |it| it.to_string());
        found
            .into_iter()
            .map(|it| format!("{} {} {}", it.path, text(it.old), text(it.new)))
            .collect()
    }

    #[test]
    fn differences_have_their_paths() {
        let old =
            json!({"a": 1, "list": [1, 2], "deep": {"x": {"y": 1}, "same": []}, "gone": null});
        let new = json!({"a": "1", "list": [1, 3, 4], "deep": {"x": {"y": 2, "z": 3}, "same": []}});
        assert_eq!(
            describe(old.clone(), new),
            [
                "a 1 \"1\"",
                "deep.x.y 1 2",
                "deep.x.z - 3",
                "gone null -",
                "list[1] 2 3",
                "list[2] - 4"
            ]
        );
        assert_eq!(describe(old.clone(), old), Vec::<String>::new());
    }

    #[test]
    fn values_of_different_kinds_differ_as_a_whole() {
        assert_eq!(describe(json!({"a": [1]}), json!({"a": {"b": 1}})), [r#"a [1] {"b":1}"#]);
        assert_eq!(describe(json!({"a": []}), json!({"a": {}})), ["a [] {}"]);
        assert_eq!(describe(json!({}), json!({"a": null})), ["a - null"]);
    }
}
