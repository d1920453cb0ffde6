//! What memory keeps: entries, each a text with its source, and what a run or a person writes.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Embedding;

/// The number of hexadecimal digits of an id.
const DIGITS: usize = 16;

/// The id of an entry: a hash of its tier, its module and its text.
///
/// So the same text in one tier and module is one entry, in every store.
///
/// ```
/// use graphrun_memory::EntryId;
///
/// let id = EntryId::of("discovered", None, "tests need Redis");
/// assert_eq!(EntryId::parse(id.as_str()), Some(id));
/// assert_eq!(EntryId::parse("12"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(String);

impl EntryId {
    /// Returns the id of a text.
    pub fn of(tier: &str, module: Option<&str>, text: &str) -> Self {
        let mut hash = blake3::Hasher::new();
        for part in [tier, module.unwrap_or_default(), text] {
            // The length is included, so that no two lists of parts are equal when joined.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(hash.finalize().to_hex()[..DIGITS].to_owned())
    }

    /// Reads an id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
        (text.len() == DIGITS && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One piece of knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The id, which follows from tier, module and text.
    pub id: EntryId,
    /// The tier.
    pub tier: String,
    /// The part of a project that it is about. An empty one is none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_module")]
    pub module: Option<String>,
    /// The text, which a search reads.
    pub text: String,
    /// The value, if it is not just the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// How certain its writer was, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Whether a person has approved it.
    pub approval: Approval,
    /// Who approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Who wrote it last.
    pub source: Source,
    /// When it was first written.
    pub created: Timestamp,
    /// When it was last written or approved.
    pub updated: Timestamp,
    /// When it ends, unless a person approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// Whether a person has approved an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Its tier does not ask for it.
    #[default]
    None,
    /// A person has not looked at it yet.
    Pending,
    /// A person has approved it, or has written it. It never expires, and runs do not change it.
    Approved,
}

/// Who wrote an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A node of a run.
    Run {
        /// The workflow.
        workflow: String,
        /// The id of the run.
        run: String,
        /// The node.
        node: String,
    },
    /// A person.
    Person {
        /// The name.
        name: String,
    },
}

/// An entry to write.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// The tier.
    pub tier: String,
    /// The part of a project that it is about. An empty one is none.
    pub module: Option<String>,
    /// The text, which a search reads.
    pub text: String,
    /// The value, if it is not just the text.
    pub value: Option<Value>,
    /// How certain its writer is, from 0 to 1.
    pub confidence: Option<f64>,
    /// Whether a person has approved it.
    pub approval: Approval,
    /// How long it is kept, unless a person approves it.
    pub keep: Option<Duration>,
    /// The writer.
    pub source: Source,
    /// The vector of the text, if there is one.
    pub embedding: Option<Embedding>,
}

/// Entries that are written together.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// An idempotency key: a batch whose key a store knows changes nothing.
    pub key: String,
    /// The entries.
    pub entries: Vec<NewEntry>,
    /// The current time.
    pub now: Timestamp,
}

impl Entry {
    /// Returns the value: the text, unless it has another one.
    pub fn value(&self) -> Value {
        self.value.clone().unwrap_or_else(|| self.text.clone().into())
    }

    /// Returns whether it has ended.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|it| it <= now)
    }
}

impl NewEntry {
    /// Makes an entry of a value. The text of a record or a list consists of the texts in it, a line each.
    pub fn of(tier: impl Into<String>, value: Value, source: Source) -> Self {
        let (text, value) = match value {
            Value::String(text) => (text, None),
            value => (text_of(&value), Some(value)),
        };
        Self {
            tier: tier.into(),
            module: None,
            text,
            value,
            confidence: None,
            approval: Approval::None,
            keep: None,
            source,
            embedding: None,
        }
    }

    /// Returns the id that the entry gets.
    pub fn id(&self) -> EntryId {
        EntryId::of(&self.tier, self.module.as_deref(), &self.text)
    }
}

fn read_module<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let module = Option::<String>::deserialize(deserializer)?;
    Ok(module.filter(|it| !it.is_empty()))
}

/// Returns the texts in a value, a line each. A value without a text is written as JSON.
fn text_of(value: &Value) -> String {
    fn collect(value: &Value, lines: &mut Vec<String>) {
        match value {
            Value::String(text) if !text.trim().is_empty() => lines.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|it| collect(it, lines)),
            Value::Object(fields) => fields.values().for_each(|it| collect(it, lines)),
            _ => (),
        }
    }
    let mut lines = Vec::new();
    collect(value, &mut lines);
    if lines.is_empty() { value.to_string() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_record_is_its_texts() {
        let value = json!({"lesson": "use a lock", "count": 3, "files": ["a.py", "b.py"]});
        assert_eq!(text_of(&value), "use a lock\na.py\nb.py");
        assert_eq!(text_of(&json!({"count": 3})), "{\"count\":3}");
    }

    #[test]
    fn the_id_depends_on_tier_module_and_text() {
        let id = |tier, module, text| EntryId::of(tier, module, text);
        assert_eq!(id("a", None, "b"), id("a", None, "b"));
        for other in [id("ab", None, ""), id("a", Some("b"), ""), id("a", None, "c")] {
            assert_ne!(id("a", None, "b"), other);
        }
    }
}
