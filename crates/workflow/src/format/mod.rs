//! The format as Rust types, for editors: their JSON Schema gives completion, hover texts and
//! squiggles. They are not used for reading; the reader lowers by hand, so that one mistake does
//! not hide the next.
//!
//! The keys of a kind of node are a struct beside the kind ([`kind`](crate::kind)). To add another
//! key: add a field with a doc comment (the hover text) to the type of its section here.
//! Its type is one of `values`, which describes the allowed values or names. The tests below
//! compare the keys of every section with those that the reader takes, and fail until both are
//! equal. A new section is a new type and a row in the table of the tests.
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

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::Value;

use self::{cases::CasesFile, sections::WorkflowFile};
use crate::{Registry, kind::node_schema};

/// The pointer to the schema of a node.
const NODE: &str = "/properties/nodes/additionalProperties";

/// The JSON Schema of the format with the kinds of a registry, for the YAML language server and for
/// `graphrun lsp`.
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
    let mut schema = schema_of::<WorkflowFile>();
    schema["title"] = "graphrun workflow".into();
    if let Some(node) = schema.pointer_mut(NODE) {
        node_schema(node, registry.kinds());
    }
    schema
}

/// The JSON Schema of files with test cases, for the same programs.
///
/// ```
/// use graphrun_workflow::cases_json_schema;
///
/// let schema = cases_json_schema();
/// let about = schema.pointer("/properties/cases/items/properties/expect/description").unwrap();
/// assert_eq!(about, "The expected run.");
/// ```
pub fn cases_json_schema() -> Value {
    let mut schema = schema_of::<CasesFile>();
    schema["title"] = "graphrun test cases".into();
    schema
}

/// The schema of a part of the format.
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
