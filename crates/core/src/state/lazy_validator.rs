//! Validators of schemas, which are built when they are first needed.
//!
//! Building a validator takes longer than anything else that a check of a workflow does with a channel, and most checks
//! need none. So the validator of a schema that is valid at sight is built with the first value. The validators of all other
//! schemas are built at once, because building them finds their mistakes.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use jsonschema::Validator;
use serde_json::Value;

use super::{schema_size, validator_for};

/// The validator of a schema.
#[derive(Debug)]
pub(super) struct LazyValidator {
    schema: Arc<Value>,
    validator: OnceLock<Validator>,
}

impl LazyValidator {
    /// # Errors
    ///
    /// Fails when the schema is invalid, or larger than the limit.
    pub(super) fn of(schema: Arc<Value>) -> Result<Self, String> {
        let is_valid = schema_size(&schema).is_ok() && is_simple(&schema);
        let validator = if is_valid {
            OnceLock::new()
        } else {
            OnceLock::from(validator_for(&schema).map_err(|error| error.to_string())?)
        };
        Ok(Self { schema, validator })
    }

    pub(super) fn get(&self) -> &Validator {
        let build = || validator_for(&self.schema).expect("a simple schema is valid");
        self.validator.get_or_init(build)
    }
}

/// Returns whether a schema is valid at sight: each of its keywords is one of these, with a right value.
fn is_simple(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return schema.is_boolean() };
    schema.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => match value {
            Value::Array(types) => types.iter().all(is_type) && are_distinct(types),
            one => is_type(one),
        },
        "description" | "title" | "format" => value.is_string(),
        "items" | "additionalProperties" => is_simple(value),
        "properties" => value.as_object().is_some_and(|it| it.values().all(is_simple)),
        "required" => value.as_array().is_some_and(|it| are_distinct(it)),
        "enum" => value.as_array().is_some_and(|it| !it.is_empty()),
        "anyOf" => value.as_array().is_some_and(|it| !it.is_empty() && it.iter().all(is_simple)),
        "minimum" | "maximum" => value.is_number(),
        "default" => true,
        annotation => annotation.starts_with("x-"),
    })
}

fn is_type(value: &Value) -> bool {
    let types = ["array", "boolean", "integer", "null", "number", "object", "string"];
    value.as_str().is_some_and(|it| types.contains(&it))
}

/// Returns whether these are different texts, and at least one.
fn are_distinct(texts: &[Value]) -> bool {
    let distinct: BTreeSet<&str> = texts.iter().filter_map(Value::as_str).collect();
    !texts.is_empty() && distinct.len() == texts.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A schema that is mostly valid: right and wrong values of each keyword, also within each other.
    fn schemas() -> impl Strategy<Value = Value> {
        let word = || {
            prop::sample::select(vec![
                json!("string"),
                json!("integer"),
                json!("null"),
                json!("text"),
                json!(3),
            ])
        };
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            word().prop_map(|it| json!({ "type": it })),
            prop::collection::vec(word(), 0..3).prop_map(|it| json!({ "type": it })),
            prop::collection::vec(word(), 0..3).prop_map(|it| json!({ "enum": it })),
            prop::collection::vec(word(), 0..3).prop_map(|it| json!({ "required": it })),
            word().prop_map(|it| json!({ "minimum": it, "maximum": 9, "type": "integer" })),
            word().prop_map(|it| json!({ "format": it, "type": "string" })),
            word().prop_map(|it| json!({ "title": it, "default": 1, "x-any": 2 })),
            word().prop_map(|it| json!({ "description": it, "format": "duration" })),
            Just(json!({ "pattern": "(" })),
            Just(json!({ "$ref": "#/nowhere" })),
            Just(json!(1)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|it| json!({ "items": it })),
                inner.clone().prop_map(|it| json!({ "properties": { "a": it } })),
                inner.clone().prop_map(|it| json!({ "additionalProperties": it })),
                prop::collection::vec(inner, 0..3).prop_map(|it| json!({ "anyOf": it })),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn a_simple_schema_is_valid(schema in schemas()) {
            prop_assert!(!is_simple(&schema) || validator_for(&schema).is_ok(), "{schema}");
            let lazy = LazyValidator::of(Arc::new(schema.clone()));
            prop_assert_eq!(lazy.is_ok(), validator_for(&schema).is_ok(), "{}", schema);
        }
    }

    #[test]
    fn the_validator_of_a_simple_schema_is_built_with_the_first_value() {
        let built = |schema: Value| {
            let lazy = LazyValidator::of(Arc::new(schema)).unwrap();
            let at_once = lazy.validator.get().is_some();
            (at_once, lazy.get().is_valid(&json!("a")))
        };
        assert_eq!(built(json!({ "type": "string" })), (false, true));
        assert_eq!(built(json!({ "type": "integer" })), (false, false));
        assert_eq!(built(json!({ "type": "string", "pattern": "^a" })), (true, true));
    }
}
