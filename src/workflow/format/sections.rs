//! The workflow and its sections beside the nodes.

use schemars::JsonSchema;

use super::{
    node::Node,
    values::{
        AgentDeclared, Anything, Attempts, Catch, Count, Dollars, Duration, Either, FieldDeclared,
        FieldName, FieldType, Flag, Folder, Memory, ModelDeclared, ModelName, ModelRef, Named,
        Network, NodeName, NodeRef, NumberPath, OneOrMany, Positive, PromptPath, ReducerName,
        Requirement, SandboxDeclared, SchemaPath, StateName, TargetName, Temperature, Template,
        Text, ToolName, TypeDeclared, TypeNotation, Version,
    },
};

/// A team of agents and other nodes, what they write, and where the work goes next.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WorkflowFile {
    /// The version of the format: `graphrun: 1`.
    graphrun: Version,
    /// The name of the workflow, which its runs are listed under.
    name: Text,
    /// What the workflow is for.
    about: Option<Text>,
    /// The typed state that every node reads and writes: the name of a registered Rust type, or the
    /// fields with their types: `string`, `int`, `float`, `bool`, `json`, `date`, `duration`, `[T]`,
    /// `{field: T}`, `a | b` for one of a few texts, `T?` for what may be absent, or one of `types`;
    /// or `{ schema: file.json }`, a JSON Schema beside the workflow.
    state: Either<StateName, Named<FieldDeclared, FieldType>>,
    /// Types by a name of your own, which the fields of the state may use.
    types: Option<Named<TypeDeclared, TypeNotation>>,
    /// The fields that a run is given when it starts.
    input: Option<OneOrMany<FieldName>>,
    /// The fields that are the result of a run.
    output: Option<OneOrMany<FieldName>>,
    /// The lists to which people may say something while it runs (`graphrun say`), the usual one first.
    inbox: Option<OneOrMany<FieldName>>,
    /// Models by a name of your own, each as `provider/model`, or a list in order of fallback.
    models: Option<Named<ModelDeclared, OneOrMany<ModelName>>>,
    /// Who works here. What each one does is said by the nodes.
    agents: Option<Named<AgentDeclared, Agent>>,
    /// Where code of a model may run.
    sandboxes: Option<Named<SandboxDeclared, Sandbox>>,
    /// What the built-in tools may see.
    tools: Option<Tools>,
    /// What a run may take in all.
    limits: Option<Limits>,
    /// What holds for every node that does not say otherwise.
    defaults: Option<Defaults>,
    /// The first node, or several that start side by side.
    start: OneOrMany<NodeRef>,
    /// The nodes by name. Each is of exactly one kind and says what follows it.
    nodes: Named<NodeName, Node>,
}

/// A field of the state that says more than its type.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Field {
    /// The type: `string`, `int`, `float`, `bool`, `json`, `date`, `duration`, `[T]`, `{field: T}`,
    /// `a | b`, `T?`, or one of `types`.
    #[serde(rename = "type")]
    ty: Anything,
    /// Instead of `type`: a JSON Schema beside the workflow.
    schema: Option<SchemaPath>,
    /// The reducer: how a write goes together with what is there. `replace` (the default), `append`,
    /// `union`, `sum`, `min`, `max`, `merge`, `messages`, or `best`, which goes with `by`.
    merge: Option<Either<ReducerName, Best>>,
    /// With `merge: best`: the path of the number that is compared, such as `test_result.passed_count`.
    by: Option<NumberPath>,
    /// The value before the first write.
    default: Option<Anything>,
    /// Whether it is for the nodes alone: no part of the result, neither `input` nor `output`.
    private: Option<Flag>,
    /// What the field means; a model that writes it is shown this.
    about: Option<Text>,
}

/// The reducer that keeps the best value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Best {
    /// The path of the number that is compared; of two equal values the earlier one is kept.
    best: NumberPath,
}

/// Someone who works here.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Agent {
    /// One of `models`, or `provider/model` itself.
    model: ModelRef,
    /// The system prompt, which says who the agent is: the path of a file, or `{ text: … }`.
    system: Option<Either<PromptPath, System>>,
    /// How freely it answers, from 0 to 2.
    temperature: Option<Temperature>,
    /// The tools that it may call before it answers: `fs.read`, `fs.list`, `fs.grep`, or one that the
    /// program registers.
    tools: Option<OneOrMany<ToolName>>,
    /// How often it may call tools, several at once counting as one; then it must answer. 8 if nothing
    /// is said.
    max_tool_rounds: Option<Positive>,
    /// What the agent is for.
    about: Option<Text>,
}

/// A system prompt that is not a path.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct System {
    /// The prompt, written here.
    text: Template,
}

/// A place for code of a model, without a network.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Sandbox {
    /// There is none: `network: off`.
    network: Option<Network>,
    /// How much memory a run may take, such as `2G`.
    memory: Option<Memory>,
    /// How long a run may take, such as `60s`.
    time: Option<Duration>,
    /// What is there of Python.
    python: Option<Python>,
}

/// What the built-in tools may see.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Tools {
    /// The tools for files: `fs.read`, `fs.list`, `fs.grep`.
    fs: Option<Files>,
}

/// The tools for files.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Files {
    /// The folder that nothing is read outside of; that of the workflow if nothing is said.
    root: Option<Folder>,
}

/// What is there of Python in a sandbox.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Python {
    /// The packages, as pip names them.
    requirements: Option<OneOrMany<Requirement>>,
}

/// What a run may take in all. At a limit it stops and can be resumed, or goes to `exhausted`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Limits {
    /// Super-steps; 100 if nothing is said.
    steps: Option<Positive>,
    /// Tokens of all requests and replies.
    tokens: Option<Positive>,
    /// US dollars, as far as prices are known.
    usd: Option<Dollars>,
    /// Time at work. Waiting for people does not count.
    time: Option<Duration>,
    /// Where a run goes, once, when it reaches a limit.
    exhausted: Option<TargetName>,
    /// How many tasks may run at the same time.
    concurrency: Option<Positive>,
}

/// What holds for every node that does not say otherwise.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Defaults {
    /// How often a call that failed is tried, as a number of tries in all.
    retry: Option<Either<Attempts, Retry>>,
    /// How long an attempt may take. People are not hurried by it.
    timeout: Option<Either<Duration, Timeout>>,
    /// Where failures lead.
    catch: Option<Catch>,
    /// How often an agent may mend an answer that cannot be read.
    repair: Option<Count>,
}

/// How long an attempt may take.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Timeout {
    /// In all.
    total: Option<Duration>,
    /// Without a word: a node is heard when it reports something, as agents do after each call.
    idle: Option<Duration>,
}

/// How often and how patiently a call that failed is tried again.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Retry {
    /// How many tries there are in all.
    attempts: Attempts,
    /// The wait before the second try; it doubles from try to try.
    initial: Option<Duration>,
    /// The longest wait.
    max: Option<Duration>,
}
