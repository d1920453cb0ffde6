//! The parts of a JSON Schema behind references and the allowance for null.

use serde_json::Value;

/// The maximum number of references that are followed to a part of a schema.
const REFERENCES_MAX: usize = 16;

/// A part of a schema that describes the values other than null.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'s> {
    pub(super) schema: &'s Value,
    /// Whether the value may be null.
    pub(super) is_optional: bool,
}

/// Returns the described values of a part, whose references point into a root; `None` for a choice of several kinds.
pub(super) fn resolve<'s>(root: &'s Value, mut schema: &'s Value) -> Option<Part<'s>> {
    let mut is_optional = false;
    for _ in 0..REFERENCES_MAX {
        let options = ["anyOf", "oneOf"].into_iter().find_map(|it| schema.get(it)?.as_array());
        if let Some(options) = options {
            let is_null = |it: &&Value| it.get("type").and_then(Value::as_str) == Some("null");
            is_optional |= options.iter().any(|it| is_null(&it));
            let mut others = options.iter().filter(|it| !is_null(it));
            let (Some(only), None) = (others.next(), others.next()) else { return None };
            schema = only;
        } else if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            schema = root.pointer(reference.strip_prefix('#')?)?;
        } else {
            return Some(Part { schema, is_optional });
        }
    }
    None
}
