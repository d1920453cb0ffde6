//! The values of keys: texts, numbers, names, one or several of them.

use std::{borrow::Cow, marker::PhantomData};

use graphrun_core::{graph::ErrorKind, state::Reducer};
use graphrun_models::RequestSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{
    Approval, OnOverflow, ProgramProtocol,
    node::policies::ATTEMPTS_MAX,
    sections::types::{LENIENCE, RANGE_KEYS, TYPES, reducer_names},
    tool::{BUILT_IN, Method},
};

/// The settings of the requests of an agent, or of a node that asks one.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct RequestKeys {
    /// How freely it answers, from 0 to 2.
    temperature: Option<Temperature>,
    /// The share of the likeliest tokens that it chooses from, above 0 and up to 1.
    top_p: Option<TopP>,
    /// The seed of its random choices, for providers that have one.
    seed: Option<Number>,
    /// The texts that end an answer: one or several.
    stop: Option<OneOrMany<Text>>,
    /// How much it reasons before it answers.
    effort: Option<Effort>,
    /// The most tokens of an answer. A longer answer is requested once more with twice as many.
    max_tokens: Option<Positive>,
    /// Headers of its requests, by name. A key does not belong here.
    headers: Option<NamedMap<Text, Text>>,
    /// Parameters of its requests that only some providers know.
    extra_body: Option<NamedMap<Text, Anything>>,
}

/// Declares types for values of YAML by their JSON Schemas, for the structs with the keys of
/// [kinds](crate::kind::Kind). A crate that uses it depends on `schemars`.
///
/// ```
/// graphrun_workflow::value_types! {
///     /// How loud it is.
///     pub Loudness = {"enum": ["quiet", "loud"]};
/// }
/// ```
#[macro_export]
macro_rules! value_types {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $schema:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        $vis struct $name;

        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    )*};
}

/// A template that is not a path.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct TemplateKeys {
    /// The template, written here.
    text: Template,
}

value_types! {
    /// True or false.
    pub Flag = {"type": "boolean"};
    /// A type in the short notation: a text, a list with one type, or a record.
    pub TypeNotation = {
        "type": ["string", "array", "object"],
        "examples": TYPES,
        "x-refers": "type",
        "properties": {(LENIENCE): {"description": "Whether answers of models are read tolerantly: unknown keys are \
            dropped, and a word, a number or a list may have another form with the same meaning."}},
    };
    /// The name of a type under `types`.
    pub TypeDeclared = {"type": "string", "x-declares": "type"};
    /// The path of a JSON Schema beside the workflow.
    pub SchemaPath = {"type": "string", "x-refers": "schema"};
    /// A text; a number is one too.
    pub Text = {"type": ["string", "number"]};
    /// The name of a workflow.
    pub Name = {"type": ["string", "number"], "pattern": "\\S"};
    /// Any scalar, taken as it is written.
    pub Scalar = {"type": ["string", "number", "boolean"]};
    /// Anything at all.
    pub Anything = {};
    /// The version of the format.
    pub Version = {"const": 1};
    /// A whole number from zero on; `200_000` is one too.
    pub Count = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9][0-9_]*$"};
    /// A whole number from one on; `200_000` is one too.
    pub Positive = {"type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9][0-9_]*$"};
    /// A whole number from one on, or an input with a range.
    pub VisitsMax = {
        "type": ["integer", "string"],
        "minimum": 1,
        "pattern": "^([0-9][0-9_]*|[A-Za-z][A-Za-z0-9_]*)$",
        "x-refers": "field",
    };
    /// A number.
    pub Number = {"type": ["number", "string"], "pattern": "^[-+]?[0-9.][0-9_.eE+-]*$"};
    /// The number of attempts in all.
    pub Attempts = {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX};
    /// An exit code that is not zero.
    pub ExitCode = {"type": "integer", "minimum": 1, "maximum": 255};
    /// One kind of failure, or several.
    pub ErrorKinds = {
        "type": ["string", "array"],
        "pattern": format!("^({})$", ErrorKind::ALL.map(ErrorKind::as_str).join("|")),
        "minItems": 1,
        "items": {"enum": ErrorKind::ALL.map(ErrorKind::as_str)},
    };
    /// A sum of money.
    pub Dollars = {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": "^[0-9][0-9_.]*$"};
    /// How freely a model answers.
    pub Temperature = {"type": "number", "minimum": 0, "maximum": 2};
    /// The share of the likeliest tokens that a model chooses from.
    pub TopP = {"type": "number", "exclusiveMinimum": 0, "maximum": 1};
    /// How much a model reasons.
    pub Effort = {"enum": RequestSettings::EFFORTS};
    /// The part of its requests that an agent lets the provider keep.
    pub PromptCache = {"enum": ["prompt"]};
    /// A span of time.
    pub Duration = {"type": "string", "examples": ["30s", "10m", "1h30m", "24h"]};
    /// A span of time, or an expression for one.
    pub WaitTime = {"type": "string", "examples": ["30s", "10m", "1h30m"], "x-refers": "expression"};
    /// A day or a time, or an expression for one.
    pub Moment = {"type": "string", "examples": ["2026-01-31", "2026-01-31T08:30:00Z"], "x-refers": "expression"};
    /// An amount of memory.
    pub Memory = {"type": "string", "pattern": "^\\+?[0-9]+[KMG]$", "examples": ["512M", "2G"]};
    /// A model as its provider calls it.
    pub ModelName = {"type": "string", "pattern": "^[^/\\s]+/\\S+$", "examples": ["openai/gpt-5-mini"]};
    /// The network of a sandbox without hosts.
    pub Network = {"type": "string", "pattern": "^off$", "examples": ["off"]};
    /// A host by its name, or all hosts below a name, with a port if it is not 443.
    pub NetworkHostName = {"type": "string", "examples": ["api.example.com", "*.example.com"]};
    /// The name of an event.
    pub EventName = {"type": "string"};
    /// A condition or a computed value.
    pub Expression = {"type": ["string", "number", "boolean"], "x-refers": "expression"};
    /// A value with a file, or the path of a file in the folder of the workflow.
    pub Attached = {"type": "string", "x-refers": "expression"};
    /// A template that is written in the workflow.
    pub Template = {"type": ["string", "number"], "x-refers": "template"};
    /// The path of a template.
    pub PromptPath = {"type": "string", "x-refers": "prompt"};
    /// A node, a `parallel`, `end` or `fail`.
    pub TargetName = {"type": "string", "x-refers": "target"};
    /// A node or a `parallel`.
    pub NodeRef = {"type": "string", "x-refers": "node"};
    /// The name of a node under `nodes`.
    pub NodeName = {"type": "string", "x-declares": "node"};
    /// The name of a field under `state`.
    pub FieldDeclared = {"type": "string", "x-declares": "field"};
    /// A field of the state.
    pub FieldName = {"type": "string", "x-refers": "field"};
    /// The name of an agent under `agents`.
    pub AgentDeclared = {"type": "string", "x-declares": "agent"};
    /// One of `agents`.
    pub AgentName = {"type": "string", "x-refers": "agent"};
    /// The name of a model under `models`.
    pub ModelDeclared = {"type": "string", "x-declares": "model"};
    /// One of `models`, or a model as its provider calls it.
    pub ModelRef = {"type": "string", "x-refers": "model"};
    /// The name of a sandbox under `sandboxes`.
    pub SandboxDeclared = {"type": "string", "x-declares": "sandbox"};
    /// One of `sandboxes`, or one of `hosts` for `run` and for a program.
    pub SandboxName = {"type": "string", "x-refers": "sandbox"};
    /// The name of a host under `hosts`.
    pub HostDeclared = {"type": "string", "x-declares": "sandbox"};
    /// The name of a server under `mcp`.
    pub ServerDeclared = {"type": "string"};
    /// The form of a program's output.
    pub ProgramProtocolName = {"enum": (ProgramProtocol::ALL.map(ProgramProtocol::as_str))};
    /// The beginning of a command.
    pub CommandBeginning = {"type": "string", "examples": ["git push", "gh pr create"]};
    /// When a person is asked.
    pub ApprovalWord = {"enum": (Approval::ALL.map(Approval::as_str))};
    /// The name of a folder under `folders`.
    pub FolderDeclared = {"type": "string", "x-declares": "folder"};
    /// One of `folders`.
    pub FolderName = {"type": "string", "x-refers": "folder"};
    /// The name of a tier under `memory`.
    pub TierDeclared = {"type": "string", "x-declares": "tier"};
    /// One of the tiers of `memory`.
    pub TierName = {"type": "string", "x-refers": "tier"};
    /// Whether runs write a tier.
    pub TierAccess = {"type": "string", "pattern": "^(read|write)$", "examples": ["read", "write"]};
    /// A value of the matched expression.
    pub MatchedValue = {"type": "string", "x-refers": "value"};
    /// A Rust type that is registered as a state.
    pub StateName = {"type": "string", "x-refers": "state"};
    /// A node that is registered from Rust.
    pub CustomName = {"type": "string", "x-refers": "custom"};
    /// The name of a file below the output folder.
    pub FileName = {"type": "string"};
    /// When a report is written, besides the end.
    pub EachStep = {"enum": ["step"]};
    /// A Python package.
    pub Requirement = {"type": "string"};
    /// A path to a number inside a field.
    pub NumberPath = {"type": "string"};
    /// The name of a tool.
    pub ToolName = {
        "type": "string",
        "examples": (BUILT_IN.iter().map(|it| it.name).collect::<Vec<_>>()),
        "x-refers": "tool",
        "x-about": (described(BUILT_IN.iter().map(|it| (it.name, it.about)))),
    };
    /// The treatment of a request that is too long for a model.
    pub OverflowWord = {"enum": (OnOverflow::ALL.map(OnOverflow::as_str))};
    /// Whether an agent may or must call a tool: a word, or one of its tools.
    pub ToolChoiceWord = {
        "type": "string",
        "examples": ["auto", "required", "none"],
        "x-refers": "tool",
    };
    /// The name of a tool under `tools`.
    pub ToolDeclared = {"type": "string", "x-declares": "tool"};
    /// The method of a request.
    pub MethodName = {"enum": (Method::ALL.map(Method::as_str))};
    /// The name of an argument of a tool.
    pub ArgumentName = {"type": "string"};
    /// A folder.
    pub Folder = {"type": "string"};
    /// The name of a variable.
    pub VariableName = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"};
    /// A built-in reducer. A pattern instead of an `enum`, because `merge` also accepts a mapping.
    pub ReducerName = {
        "type": "string",
        "pattern": (format!("^({})$", reducer_names().join("|"))),
        "examples": (reducer_names()),
        "x-refers": "word",
        "x-about": (described(Reducer::BUILT_IN.iter().map(|it| (it.name(), it.about())))),
    };
}

/// Returns the descriptions of words, for editors.
fn described<'w>(words: impl Iterator<Item = (&'w str, &'w str)>) -> Value {
    words.map(|(word, about)| (word.to_owned(), Value::from(about))).collect()
}

/// One of two kinds of values without a common value, such as texts and lists.
#[derive(Debug)]
pub struct Either<A, B>(PhantomData<(A, B)>);

/// One of them, or a list.
pub type OneOrMany<T> = Either<T, Vec<T>>;

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
        // An enumeration applies to every kind of value, a pattern to texts only.
        if let Some(Value::Array(words)) = both.remove("enum") {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            both.insert("pattern".to_owned(), format!("^({})$", words.join("|")).into());
            both.insert("examples".to_owned(), words.into());
            both.insert("type".to_owned(), "string".into());
        }
        let types = [&both, &second].map(|schema| match schema.get("type") {
            Some(Value::Array(types)) => types.clone(),
            one => one.cloned().into_iter().collect(),
        });
        // Each other keyword applies to one kind of value only, so the keywords of both never conflict.
        for (keyword, value) in second.as_object().into_iter().flatten() {
            if both.get(keyword).is_none() {
                both.insert(keyword.clone(), value.clone());
            }
        }
        both.insert("type".to_owned(), types.concat().into());
        both
    }
}

/// A list with at least one item.
#[derive(Debug)]
pub struct SomeOf<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for SomeOf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("some_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": T::json_schema(generator), "minItems": 1})
    }
}

/// A mapping whose keys are names.
#[derive(Debug)]
pub struct NamedMap<K, V>(PhantomData<(K, V)>);

impl<K: JsonSchema, V: JsonSchema> JsonSchema for NamedMap<K, V> {
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
#[derive(Debug)]
pub struct Catch;

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
        let excluded = ErrorKind::ALL.into_iter().filter(|it| it.is_for_the_operator());
        let excluded = excluded.map(ErrorKind::as_str).collect::<Vec<_>>().join(", ");
        let any =
            &format!("All other kinds, except those that only the operator can fix: {excluded}.");
        let about = |it: ErrorKind| (it.as_str().to_owned(), described(it.about()));
        let mut properties = serde_json::Map::from_iter(ErrorKind::ALL.map(about));
        properties.insert("any".to_owned(), described(any));
        json_schema!({"type": "object", "properties": properties, "additionalProperties": false})
    }
}

/// The type of a field of the state, or a record of such types.
#[derive(Debug)]
pub struct FieldType;

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
        let spec = super::sections::FieldKeys::json_schema(generator).to_value();
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
        // A record may have fields with these names, whose values are types.
        let number = |it: &str| (it.to_owned(), Number::json_schema(generator).to_value());
        let numbers: serde_json::Map<String, Value> =
            RANGE_KEYS.iter().copied().map(number).collect();
        json_schema!({
            "type": ["string", "array", "object"],
            "examples": TYPES,
            "x-refers": "type",
            "properties": hints,
            "if": {
                "type": "object",
                "required": ["type"],
                "propertyNames": {"enum": keys},
                "properties": numbers,
            },
            "then": {"properties": spec["properties"]},
        })
    }
}
