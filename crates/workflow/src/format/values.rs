//! The values of keys: texts, numbers, names, one or several of them.

use std::{borrow::Cow, marker::PhantomData};

use graphrun_core::graph::ErrorKind;
use graphrun_sandbox::{Allowed, Proof, ReportForm};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{
    RunOutput, Runner, TestOutput,
    policies::ATTEMPTS_MAX,
    tool::BUILT_IN,
    types::{REDUCERS, TYPES},
};

/// Declares a type for each kind of value, with its schema.
macro_rules! values {
    ($($(#[$doc:meta])* $name:ident = $schema:tt;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

values! {
    /// True or false.
    Flag = {"type": "boolean"};
    /// A type in the short notation: a text, a list with one type, or a record.
    TypeNotation = {"type": ["string", "array", "object"], "examples": TYPES, "x-refers": "type"};
    /// The name of a type under `types`.
    TypeDeclared = {"type": "string", "x-declares": "type"};
    /// The path of a JSON Schema beside the workflow.
    SchemaPath = {"type": "string", "x-refers": "schema"};
    /// A text; a number is one too.
    Text = {"type": ["string", "number"]};
    /// Any scalar, taken as it is written.
    Scalar = {"type": ["string", "number", "boolean"]};
    /// Anything at all.
    Anything = {};
    /// The version of the format.
    Version = {"const": 1};
    /// A whole number from zero on; `200_000` is one too.
    Count = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9][0-9_]*$"};
    /// A whole number from one on; `200_000` is one too.
    Positive = {"type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9][0-9_]*$"};
    /// The number of attempts in all.
    Attempts = {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX};
    /// A sum of money.
    Dollars = {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": "^[0-9][0-9_.]*$"};
    /// How freely a model answers.
    Temperature = {"type": "number", "minimum": 0, "maximum": 2};
    /// A span of time.
    Duration = {"type": "string", "examples": ["30s", "10m", "1h30m", "24h"]};
    /// An amount of memory.
    Memory = {"type": "string", "pattern": "^\\+?[0-9]+[KMG]$", "examples": ["512M", "2G"]};
    /// A model as its provider calls it.
    ModelName = {"type": "string", "pattern": "^[^/\\s]+/\\S+$", "examples": ["openai/gpt-5-mini"]};
    /// The network of a sandbox.
    Network = {"enum": ["off"]};
    /// The name of an event.
    EventName = {"type": "string"};
    /// A condition or a computed value.
    Expression = {"type": ["string", "number", "boolean"], "x-refers": "expression"};
    /// A template that is written in the workflow.
    Template = {"type": ["string", "number"], "x-refers": "template"};
    /// The path of a template.
    PromptPath = {"type": "string", "x-refers": "prompt"};
    /// A node, a `parallel`, `end` or `fail`.
    TargetName = {"type": "string", "x-refers": "target"};
    /// A node or a `parallel`.
    NodeRef = {"type": "string", "x-refers": "node"};
    /// The name of a node under `nodes`.
    NodeName = {"type": "string", "x-declares": "node"};
    /// The name of a field under `state`.
    FieldDeclared = {"type": "string", "x-declares": "field"};
    /// A field of the state.
    FieldName = {"type": "string", "x-refers": "field"};
    /// The name of an agent under `agents`.
    AgentDeclared = {"type": "string", "x-declares": "agent"};
    /// One of `agents`.
    AgentName = {"type": "string", "x-refers": "agent"};
    /// The name of a model under `models`.
    ModelDeclared = {"type": "string", "x-declares": "model"};
    /// One of `models`, or a model as its provider calls it.
    ModelRef = {"type": "string", "x-refers": "model"};
    /// The name of a sandbox under `sandboxes`.
    SandboxDeclared = {"type": "string", "x-declares": "sandbox"};
    /// One of `sandboxes`.
    SandboxName = {"type": "string", "x-refers": "sandbox"};
    /// A value of the matched expression.
    MatchedValue = {"type": "string", "x-refers": "value"};
    /// A Rust type that is registered as a state.
    StateName = {"type": "string", "x-refers": "state"};
    /// A node that is registered from Rust.
    CustomName = {"type": "string", "x-refers": "custom"};
    /// The name of a file below the output folder.
    FileName = {"type": "string"};
    /// A Python package.
    Requirement = {"type": "string"};
    /// A path to a number inside a field.
    NumberPath = {"type": "string"};
    /// What runs tests.
    RunnerName = {"enum": (Runner::ALL.map(Runner::as_str))};
    /// What a result of tests proves.
    ProofName = {"enum": (Proof::ALL.map(Proof::as_str))};
    /// Something that a run of tests accepts.
    AllowedName = {"enum": (Allowed::ALL.map(Allowed::as_str))};
    /// The form of a report of tests.
    ReportName = {"enum": (ReportForm::ALL.map(ReportForm::as_str))};
    /// What a command or a run of tests gives, or a path into the output of a tool.
    OutputName = {"type": "string", "examples": (outputs())};
    /// The name of a tool.
    ToolName = {"type": "string", "examples": BUILT_IN};
    /// The name of an argument of a tool.
    ArgumentName = {"type": "string"};
    /// A folder.
    Folder = {"type": "string"};
    /// The name of a variable.
    VariableName = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"};
    /// A built-in reducer.
    ReducerName = {"type": "string", "pattern": (one_of(REDUCERS)), "examples": REDUCERS};
}

fn outputs() -> Vec<&'static str> {
    let of_a_command = RunOutput::ALL.map(RunOutput::as_str);
    of_a_command.into_iter().chain(TestOutput::ALL.map(TestOutput::as_str)).collect()
}

/// A pattern instead of an `enum`, for places that also accept another kind of value.
fn one_of(words: &[&str]) -> String {
    format!("^({})$", words.join("|"))
}

/// One of two kinds of values without a common value, such as texts and lists.
pub(super) struct Either<A, B>(PhantomData<(A, B)>);

/// One of them, or a list.
pub(super) type OneOrMany<T> = Either<T, Vec<T>>;

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Either<A, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", A::schema_name(), B::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut both = A::json_schema(generator);
        let second = B::json_schema(generator);
        let types = [&both, &second].map(|it| match it.get("type") {
            Some(Value::Array(types)) => types.clone(),
            one => one.cloned().into_iter().collect(),
        });
        // Each keyword applies to one kind of value only, so the keywords of both never conflict.
        for (keyword, value) in second.as_object().into_iter().flatten() {
            if both.get(keyword).is_none() {
                both.insert(keyword.clone(), value.clone());
            }
        }
        both.insert("type".to_owned(), types.concat().into());
        both
    }
}

/// A mapping whose keys are names.
pub(super) struct Named<K, V>(PhantomData<(K, V)>);

impl<K: JsonSchema, V: JsonSchema> JsonSchema for Named<K, V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_by_{}", V::schema_name(), K::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": K::json_schema(generator),
            "additionalProperties": V::json_schema(generator),
        })
    }
}

/// The targets of failures, by their kinds.
pub(super) struct Catch;

impl JsonSchema for Catch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Catch".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let target = TargetName::json_schema(generator);
        let described = |about: &str| {
            let mut target = target.clone();
            target.insert("description".to_owned(), about.into());
            target.to_value()
        };
        let any = "All other kinds, except those that only the operator can fix: credentials, \
                   sandbox, recording, delivery.";
        let kinds = ErrorKind::json_schema(generator);
        let kinds = kinds.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let mut properties: serde_json::Map<String, Value> = kinds
            .filter_map(|it| {
                let about = it["description"].as_str().unwrap_or_default();
                Some((it["const"].as_str()?.to_owned(), described(about)))
            })
            .collect();
        properties.insert("any".to_owned(), described(any));
        json_schema!({"type": "object", "properties": properties, "additionalProperties": false})
    }
}

/// The type of a field of the state, or a record of such types.
pub(super) struct FieldType;

impl JsonSchema for FieldType {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FieldType".into()
    }

    /// A mapping is a specification if it has a `type` and only keys of specifications; otherwise
    /// it is a record with any keys.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let spec = super::sections::Field::json_schema(generator).to_value();
        let keys: Vec<&str> = spec["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        let described = |(key, schema): (&String, &Value)| {
            (key.clone(), json!({"description": schema["description"]}))
        };
        let hints: serde_json::Map<String, Value> =
            spec["properties"].as_object().into_iter().flatten().map(described).collect();
        json_schema!({
            "type": ["string", "array", "object"],
            "examples": TYPES,
            "x-refers": "type",
            "properties": hints,
            "if": {"type": "object", "required": ["type"], "propertyNames": {"enum": keys}},
            "then": {"properties": spec["properties"]},
        })
    }
}
