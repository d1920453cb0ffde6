//! Cached results of nodes for later runs, and the trait of storages for them.

use std::fmt;

use async_trait::async_trait;
use graphrun_core::state::Update;
use jiff::Timestamp;
use serde_json::Value;

use crate::checkpoint::CheckpointError;

/// The cache key of a result: a hash of all inputs that the result depends on.
///
/// ```
/// use graphrun_engine::results::ResultKey;
/// use serde_json::json;
///
/// let key = ResultKey::of(&json!({"prompt": "Name a colour.", "visit": 1}));
/// assert_eq!(key, ResultKey::of(&json!({"visit": 1, "prompt": "Name a colour."})));
/// assert_ne!(key, ResultKey::of(&json!({"visit": "1", "prompt": "Name a colour."})));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultKey([u8; blake3::OUT_LEN]);

/// A cached result.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedResult {
    /// The update of the node.
    pub update: Update,
    /// The time when it was saved.
    pub at: Timestamp,
}

/// A storage for cached results of nodes, shared by all runs.
///
/// The cache is optional: after any failure here, the node can still run. Cached results may be
/// lost at any time. If there are too many, the oldest are removed first.
#[async_trait]
pub trait ResultStore: fmt::Debug + Send + Sync {
    /// Returns the result for a key, regardless of its age.
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError>;

    /// Saves a result; it replaces an earlier one for the same key.
    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError>;
}

impl ResultKey {
    /// Returns the key for a value. The order of the keys in an object does not matter.
    pub fn of(basis: &Value) -> Self {
        let mut hasher = blake3::Hasher::new();
        add(&mut hasher, basis);
        Self(hasher.finalize().into())
    }

    /// Returns the hash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Adds a value with its kind and its length, so that different values never give the same bytes.
fn add(hasher: &mut blake3::Hasher, value: &Value) {
    let mut part = |kind: u8, length: usize, bytes: &[u8]| {
        hasher.update(&[kind]).update(&(length as u64).to_le_bytes()).update(bytes);
    };
    match value {
        Value::Null => part(b'n', 0, &[]),
        Value::Bool(it) => part(b'b', 1, &[u8::from(*it)]),
        Value::Number(it) => {
            let text = it.to_string();
            part(b'd', text.len(), text.as_bytes());
        }
        Value::String(it) => part(b's', it.len(), it.as_bytes()),
        Value::Array(items) => {
            part(b'a', items.len(), &[]);
            for item in items {
                add(hasher, item);
            }
        }
        Value::Object(fields) => {
            part(b'o', fields.len(), &[]);
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in sorted {
                hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
                add(hasher, value);
            }
        }
    }
}

impl fmt::Display for ResultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        blake3::Hash::from_bytes(self.0).to_hex().fmt(f)
    }
}

impl fmt::Debug for ResultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_differ_have_other_names() {
        let values = [
            json!(null),
            json!(false),
            json!(true),
            json!(0),
            json!(1),
            json!(-1),
            json!(1.5),
            json!(""),
            json!("1"),
            json!("true"),
            json!([]),
            json!([[]]),
            json!([[], []]),
            json!([[[]]]),
            json!(["a", "b"]),
            json!(["b", "a"]),
            json!(["ab"]),
            json!(["a", ["b"]]),
            json!([["a"], "b"]),
            json!({}),
            json!({"a": null}),
            json!({"a": {}}),
            json!({"a": "b"}),
            json!({"b": "a"}),
            json!({"ab": ""}),
            json!({"a": {"b": 1}, "c": 2}),
            json!({"a": {"b": 1, "c": 2}}),
        ];
        let names: BTreeSet<ResultKey> = values.iter().map(ResultKey::of).collect();
        assert_eq!(names.len(), values.len());
    }

    #[test]
    fn a_name_is_the_same_in_every_process() {
        let name = ResultKey::of(&json!({"b": [1, null], "a": "x"}));
        insta::assert_snapshot!(name, @"81cda262574cb4b4452b4ff08c16a63f84ee7974b9cce4513609caca8ee99a9f");
    }
}
