//! The files with test cases of a workflow.

use std::borrow::Cow;

use graphrun_core::{event::Status, graph::ErrorKind};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::values::{
    Anything, Count, Dollars, Either, EventName, FieldName, Flag, NamedMap, NodeRef, OneOrMany,
    Text, ToolName, Version,
};
use crate::case_file::STATUSES;

crate::value_types! {
    /// The path of the workflow under test.
    WorkflowPath = {"type": "string", "x-refers": "workflow"};
    /// The path of a recording.
    RecordingPath = {"type": "string", "x-refers": "recording"};
    /// A moment in RFC 3339.
    Moment = {"type": "string", "examples": ["2025-01-01T00:00:00Z"]};
    /// A value of the field that the key names, or a part of it.
    FieldValue = {"x-refers": "data"};
    /// A field of the state, or the path of a part of it.
    FieldPath = {"type": "string", "x-refers": "path"};
    /// A node, or a list of nodes that run together, or `...` for any number of steps.
    Step = {
        "type": ["string", "array"],
        "examples": ["..."],
        "x-refers": "node",
        "items": {"type": "string", "x-refers": "node"},
    };
    /// The run status at the end.
    StatusWord = {"enum": (STATUSES.map(Status::as_str))};
    /// A kind of failure.
    ErrorWord = {"enum": (ErrorKind::ALL.map(ErrorKind::as_str))};
}

/// Test cases of a workflow: scripted answers instead of real nodes, and the expected runs.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CaseFileKeys {
    /// The version of the format: `graphrun_test: 1`.
    graphrun_test: Version,
    /// The workflow under test, relative to this file. Default: the file of the same name without `.test`.
    workflow: Option<WorkflowPath>,
    /// The purpose of the file.
    about: Option<Text>,
    /// The input of every case without its own.
    input: Option<NamedMap<FieldName, FieldValue>>,
    /// The scripted answers of nodes, for every case without its own. A case may need fewer visits than a list here has.
    nodes: Option<NamedMap<NodeRef, Answers>>,
    /// A recording, made by `execute --record`, that answers for agents without a scripted answer.
    replay: Option<RecordingPath>,
    /// The time at which every case without its own runs. Default: `2025-01-01T00:00:00Z`.
    now: Option<Moment>,
    /// The cases.
    cases: Vec<TestCaseKeys>,
}

/// A test case.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TestCaseKeys {
    /// The claim that the case tests, unique in the file.
    name: Text,
    /// More about the case.
    about: Option<Text>,
    /// The input of the run, on top of the input for all cases.
    input: Option<NamedMap<FieldName, FieldValue>>,
    /// The node at which the run starts, or several that run together, instead of the first ones of the workflow.
    start: Option<OneOrMany<NodeRef>>,
    /// The fields that hold a value at the start of the run, besides the input and the defaults.
    state: Option<NamedMap<FieldName, FieldValue>>,
    /// How often nodes have run before the start of the run.
    visits: Option<NamedMap<NodeRef, Count>>,
    /// The usage of models before the start of the run.
    usage: Option<UsageKeys>,
    /// The time at which the run takes place; time stands still in a case.
    now: Option<Moment>,
    /// The node, or the first of several, before which the run stops.
    until: Option<OneOrMany<NodeRef>>,
    /// The limit of steps of the run, in place of that of the workflow.
    steps: Option<Count>,
    /// The scripted answers of nodes, instead of those for all cases.
    nodes: Option<NamedMap<NodeRef, Answers>>,
    /// A recording, made by `execute --record`, that answers for agents without a scripted answer.
    replay: Option<RecordingPath>,
    /// The expected run.
    expect: ExpectKeys,
}

/// The usage of models.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct UsageKeys {
    /// The tokens of requests and replies. Default: the sum of those of `nodes`.
    tokens: Option<Count>,
    /// Those of them that belong to replies. Default: none.
    output_tokens: Option<Count>,
    /// The requests. Default: one if there are tokens.
    calls: Option<Count>,
    /// The cost in US dollars. Without it, the price of a request is unknown.
    usd: Option<Dollars>,
    /// The tokens of the last request and its reply. Without it, they are unknown.
    context_tokens: Option<Count>,
    /// The context window of the model of the last request. Without it, it is unknown.
    context_window: Option<Count>,
    /// The usage of single nodes.
    nodes: Option<NamedMap<NodeRef, NodeUsageKeys>>,
}

/// The usage of one node.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct NodeUsageKeys {
    /// The tokens of its requests and replies.
    tokens: Option<Count>,
    /// Those of them that belong to replies. Default: none.
    output_tokens: Option<Count>,
    /// Its requests. Default: one if there are tokens.
    calls: Option<Count>,
    /// Their cost in US dollars. Without it, the price of a request is unknown.
    usd: Option<Dollars>,
    /// The tokens of its last request and the reply. Without it, they are unknown.
    context_tokens: Option<Count>,
    /// The context window of the model of its last request. Without it, it is unknown.
    context_window: Option<Count>,
}

/// The expected run. The status is always compared, the rest where it is given.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ExpectKeys {
    /// The run status at the end. Default: `done`, or `paused` with `until`.
    status: Option<StatusWord>,
    /// A part of the reason of the run.
    reason: Option<Text>,
    /// All steps of the run: a node, a list of nodes that run together, or `...` for any number of steps.
    route: Option<Vec<Step>>,
    /// Fields at the end, by their paths, such as `review.verdict`. A mapping may name some fields of a record.
    state: Option<NamedMap<FieldPath, FieldValue>>,
    /// The fields without a value at the end.
    unset: Option<OneOrMany<FieldName>>,
    /// How often nodes run.
    visits: Option<NamedMap<NodeRef, Count>>,
    /// The events that nodes emit with `emits`, in this order; others may come between.
    events: Option<OneOrMany<EventName>>,
    /// The nodes that do not run.
    never: Option<OneOrMany<NodeRef>>,
    /// Parts of the prompts of nodes: one for each visit, or a list with one for each.
    prompts: Option<NamedMap<NodeRef, OneOrMany<Text>>>,
}

/// The keys of a scripted answer besides the fields that the node writes.
#[derive(JsonSchema)]
pub(crate) struct FailKeys {
    /// The node fails, with this kind of failure.
    fail: Option<ErrorWord>,
    /// The message of the failure.
    message: Option<Text>,
    /// Whether the failure may be retried. Default: as usual for its kind.
    transient: Option<Flag>,
}

/// A scripted answer, beside the fields that the node writes.
#[derive(JsonSchema)]
struct AnswerKeys {
    #[schemars(flatten)]
    fail: FailKeys,
    /// The answer of a person to the question of the node.
    answer: Option<Anything>,
    /// The calls of tools that the model of the agent makes before it answers with the fields beside this key. The agent
    /// runs with its prompt and its checks.
    calls: Option<Vec<Either<CallKeys, Vec<CallKeys>>>>,
}

/// A call of a tool, with its result.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CallKeys {
    /// The tool, one of those of the agent.
    tool: ToolName,
    /// The arguments.
    input: Option<NamedMap<Text, Anything>>,
    /// The result, which the tool would return.
    result: Option<Anything>,
    /// The message of the error with which the tool fails.
    fail: Option<Text>,
    /// The decision of a person, if the tool needs an approval: `approve`, `approve_for_run`, `reject`, or
    /// `{ decision, input, comment }`. A rejected call has no result.
    answer: Option<Anything>,
}

/// A scripted answer, or a list with one for each visit; one of those is an answer, or a list with one for each attempt.
pub(super) struct Answers;

impl JsonSchema for Answers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Answers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut answer = AnswerKeys::json_schema(generator).to_value();
        answer["propertyNames"] = FieldName::json_schema(generator).to_value();
        answer["additionalProperties"] = FieldValue::json_schema(generator).to_value();
        answer["type"] = "object".into();
        let listed = |items: &Value| {
            let mut both = answer.clone();
            both["type"] = json!(["object", "array"]);
            both["items"] = items.clone();
            both
        };
        let visit = listed(&answer);
        Schema::try_from(listed(&visit)).expect("it is an object")
    }
}
