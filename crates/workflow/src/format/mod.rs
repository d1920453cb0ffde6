//! The format as Rust types: a struct for each mapping, with a field for each key. Their JSON Schema
//! gives editors completion, hover texts and squiggles, and the reader takes the names of the keys
//! from it ([`MappingKeys`]). The values are not read by these types: the reader lowers them by hand,
//! so that one mistake does not hide the next.
//!
//! The keys of a kind of node are a struct beside the kind ([`kind`](crate::kind)). To add another
//! key: add a field with a doc comment (the hover text) to the struct of its mapping here, and the
//! code that reads it. Its type is one of `values`, which describes the allowed values or names. A
//! new mapping is a new struct, and its name in the list below.
//!
//! The schema is flat: no `oneOf`, so that a language server marks the right key. `x-refers` on a
//! text, or on the names of a mapping, gives the kind of thing that it names; `x-declares` marks
//! the text that declares such a name.

#[expect(dead_code, reason = "only the schemas of these types are of interest")]
mod cases;
#[expect(dead_code, reason = "only the schemas of these types are of interest")]
mod node;
#[expect(dead_code, reason = "only the schemas of these types are of interest")]
mod sections;
#[cfg(test)]
mod tests;
pub mod values;

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::Value;

use self::values::{RequestKeys, TemplateKeys};
pub(crate) use self::{
    cases::{CallKeys, CaseFileKeys, ExpectKeys, FailKeys, NodeUsageKeys, TestCaseKeys, UsageKeys},
    node::{CacheKeys, CaseKeys, JoinKeys, MatchKeys, NodeKeys, NodeLimitsKeys},
    sections::{
        AgentKeys, BestKeys, DefaultsKeys, DependenciesKeys, FieldKeys, FilesKeys, FolderKeys,
        HeaderKeys, HostKeys, HttpKeys, LimitsKeys, McpServerKeys, PythonKeys, ReportKeys,
        RetryKeys, SandboxKeys, TierKeys, TimeoutKeys, ToolKeys, ToolUseKeys, WorkflowKeys,
    },
};
use crate::{
    Registry,
    kind::{Keys, node_schema},
};

/// The pointer to the schema of a node.
const NODE: &str = "/properties/nodes/additionalProperties";

/// A struct that describes a mapping of the format: its fields are the keys.
pub(crate) trait MappingKeys: JsonSchema {
    /// Returns the names of the keys, in the order of the fields.
    fn keys() -> &'static [&'static str];
}

/// Implements [`MappingKeys`] with the JSON Schema of each struct, which is made once.
macro_rules! mapping_keys {
    ($($keys:ident),* $(,)?) => {$(
        impl MappingKeys for $keys {
            fn keys() -> &'static [&'static str] {
                static KEYS: LazyLock<Keys> = LazyLock::new(Keys::of::<$keys>);
                static NAMES: LazyLock<Vec<&'static str>> =
                    LazyLock::new(|| KEYS.names().collect());
                &NAMES
            }
        }
    )*};
}

mapping_keys! {
    // Files.
    WorkflowKeys, CaseFileKeys,
    // The sections of a workflow.
    AgentKeys, RequestKeys, TemplateKeys, ToolUseKeys, SandboxKeys, PythonKeys, DependenciesKeys, FolderKeys, TierKeys,
    HostKeys, McpServerKeys, ToolKeys, HttpKeys, HeaderKeys, FilesKeys, LimitsKeys, DefaultsKeys,
    ReportKeys, FieldKeys, BestKeys,
    // Nodes.
    NodeKeys, RetryKeys, TimeoutKeys, NodeLimitsKeys, CacheKeys, JoinKeys, MatchKeys, CaseKeys,
    // Test cases.
    TestCaseKeys, UsageKeys, NodeUsageKeys, ExpectKeys, FailKeys, CallKeys,
}

/// Returns the JSON Schema of the format with the kinds of a registry, for the YAML language server and for `graphrun
/// lsp`.
///
/// It covers the shape of a file: keys, kinds of values, enumerated words. Only
/// [`parse`](super::parse) checks the names.
///
/// ```
/// use graphrun_workflow::{Registry, json_schema};
///
/// let schema = json_schema(&Registry::new());
/// let about = schema.pointer("/properties/start/description").unwrap();
/// assert!(about.as_str().unwrap().contains("first node"));
/// ```
pub fn json_schema(registry: &Registry) -> Value {
    let mut schema = schema_of::<WorkflowKeys>();
    schema["title"] = "graphrun workflow".into();
    if let Some(node) = schema.pointer_mut(NODE) {
        node_schema(node, registry.kinds());
    }
    schema
}

/// Returns the JSON Schema of files with test cases, for the same programs.
///
/// ```
/// use graphrun_workflow::cases_json_schema;
///
/// let schema = cases_json_schema();
/// let about = schema.pointer("/properties/cases/items/properties/expect/description").unwrap();
/// assert_eq!(about, "The expected run.");
/// ```
pub fn cases_json_schema() -> Value {
    let mut schema = schema_of::<CaseFileKeys>();
    schema["title"] = "graphrun test cases".into();
    schema
}

/// Returns the schema of a part of the format.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    // Every YAML language server supports draft 7.
    let settings = SchemaSettings::draft07().with(|it| it.inline_subschemas = true);
    let generator = settings.with_transform(without_null).into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// An optional key is not a nullable one.
fn without_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|it| !it.is_null());
    }
    transform_subschemas(&mut without_null, schema);
}
