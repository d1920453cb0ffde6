//! The workflow and its sections beside the nodes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    node::NodeKeys,
    values::{
        AgentDeclared, Anything, ApprovalWord, Attempts, Catch, CommandBeginning, Count, Dollars,
        Duration, EachStep, Either, ErrorKinds, ExitCode, Expression, FieldDeclared, FieldName,
        FieldType, FileName, Flag, Folder, FolderDeclared, FolderName, HostDeclared, Memory,
        MethodName, ModelDeclared, ModelName, ModelRef, Name, NamedMap, Network, NetworkHostName,
        NodeName, NodeRef, Number, NumberPath, OneOrMany, OverflowWord, Positive,
        ProgramProtocolName, PromptCache, PromptPath, ReducerName, RequestKeys, Requirement,
        SandboxDeclared, SandboxName, Scalar, SchemaPath, ServerDeclared, SomeOf, StateName,
        TargetName, TemplateKeys, Text, TierAccess, TierDeclared, ToolChoiceWord, ToolDeclared,
        ToolName, TypeDeclared, TypeNotation, VariableName, Version,
    },
};

/// A team of agents and other nodes, the state they write, and the routes between them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct WorkflowKeys {
    /// The version of the format: `graphrun: 1`.
    graphrun: Version,
    /// The name of the workflow, under which its runs are listed.
    name: Name,
    /// The purpose of the workflow.
    about: Option<Text>,
    /// The typed state that every node reads and writes: the name of a registered Rust type, or the
    /// fields with their types: `string`, `int`, `float`, `bool`, `json`, `date`, `duration`, `[T]`,
    /// `{field: T}`, `map[string, T]`, `a | b` for one of a few texts, `T?` for an optional value, or one of `types`;
    /// or `{ schema: file.json }`, a JSON Schema beside the workflow.
    state: Either<StateName, NamedMap<FieldDeclared, FieldType>>,
    /// Types with names of your choice, for the fields of the state.
    types: Option<NamedMap<TypeDeclared, TypeNotation>>,
    /// The fields that are given at the start of a run.
    input: Option<OneOrMany<FieldName>>,
    /// The fields that are the result of a run.
    output: Option<OneOrMany<FieldName>>,
    /// The lists for messages that people send with `graphrun message`, the default one first.
    inbox: Option<OneOrMany<FieldName>>,
    /// Models by names of your choice, each as `provider/model`, or a list in order of fallback.
    models: Option<NamedMap<ModelDeclared, Either<ModelName, SomeOf<ModelName>>>>,
    /// The agents. The nodes define their tasks.
    agents: Option<NamedMap<AgentDeclared, AgentKeys>>,
    /// The sandboxes in which generated code may run.
    sandboxes: Option<NamedMap<SandboxDeclared, SandboxKeys>>,
    /// The folders of a run: each is a git worktree on a branch of the run.
    folders: Option<NamedMap<FolderDeclared, FolderKeys>>,
    /// The tiers of memory across runs, by names of your choice. Workflows that name the same tier share it.
    memory: Option<NamedMap<TierDeclared, Either<TierAccess, TierKeys>>>,
    /// The hosts: commands on this machine, outside of a sandbox.
    hosts: Option<NamedMap<HostDeclared, HostKeys>>,
    /// The MCP servers: programs and addresses whose tools agents and nodes can call, as `SERVER.TOOL`.
    mcp: Option<NamedMap<ServerDeclared, McpServerKeys>>,
    /// The files that the built-in tools may read, and the tools of the workflow.
    tools: Option<ToolsSection>,
    /// The limits of a whole run.
    limits: Option<LimitsKeys>,
    /// The settings of nodes without their own.
    defaults: Option<DefaultsKeys>,
    /// The files that show people the state of a run, below its output folder. They are written when the run stops.
    reports: Option<NamedMap<FileName, Either<PromptPath, ReportKeys>>>,
    /// The first node, or several that start in parallel.
    start: OneOrMany<NodeRef>,
    /// The nodes by name. Each has exactly one kind and names its next nodes.
    nodes: NamedMap<NodeName, NodeKeys>,
}

/// A field of the state with more than a type.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FieldKeys {
    /// The type: `string`, `int`, `float`, `bool`, `json`, `date`, `duration`, `[T]`, `{field: T}`, `map[string, T]`,
    /// `a | b`, `T?`, or one of `types`.
    #[serde(rename = "type")]
    ty: TypeNotation,
    /// Instead of `type`: a JSON Schema beside the workflow.
    schema: Option<SchemaPath>,
    /// The smallest number, for `int` and `float`.
    min: Option<Number>,
    /// The largest number, for `int` and `float`.
    max: Option<Number>,
    /// The reducer: how an update is folded into the value of the field. Default: `replace`. `best`
    /// needs `by`.
    merge: Option<Either<ReducerName, BestKeys>>,
    /// With `merge: best`: the path of the number that is compared, such as `test_result.passed_count`.
    by: Option<NumberPath>,
    /// The value before the first write.
    default: Option<Anything>,
    /// Whether only nodes can use it: it is neither `input` nor `output`, nor part of the result.
    private: Option<Flag>,
    /// The meaning of the field; a model that writes it sees this text.
    about: Option<Text>,
}

/// The reducer that keeps the best value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct BestKeys {
    /// The path of the number that is compared; of two equal values the earlier one is kept.
    best: NumberPath,
}

/// An agent.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AgentKeys {
    /// One of `models`, or `provider/model` itself.
    model: Option<ModelRef>,
    /// In place of `model`: a program that does the work, such as a coding agent, and its arguments. It gets the prompt on its
    /// standard input.
    command: Option<Vec<Scalar>>,
    /// The form of the program's output. Default: `json`, by which the last JSON value is the answer.
    protocol: Option<ProgramProtocolName>,
    /// Where the program runs: one of `sandboxes` or of `hosts`.
    #[serde(rename = "in")]
    within: Option<SandboxName>,
    /// Files or folders beside the workflow that a program in a sandbox gets, under the same paths.
    scripts: Option<OneOrMany<Text>>,
    /// The variables of graphrun's environment that the program gets, in a sandbox with `network`, or on a host beside those
    /// of the host.
    secrets: Option<OneOrMany<VariableName>>,
    /// The system prompt, which gives the agent its role: the path of a file, or `{ text: … }`.
    system: Option<Either<PromptPath, TemplateKeys>>,
    #[schemars(flatten)]
    request: RequestKeys,
    /// The tools that it may call before it answers: built-in ones, ones of `tools`, or ones that the program
    /// registers.
    tools: Option<Either<ToolName, Vec<Either<ToolName, ToolUseKeys>>>>,
    /// How often it may call tools, several at once counting as one; then it must answer. Default: 8.
    max_tool_rounds: Option<Positive>,
    /// The longest duration of a call of a tool. A longer call fails, and the model can try another. Default:
    /// that of the tool.
    tool_timeout: Option<Duration>,
    /// Whether it may (`auto`) or must (`required`) call a tool before it answers, calls none, or must call the tool of
    /// this name. Default: `auto`.
    tool_choice: Option<ToolChoiceWord>,
    /// Whether it may call several tools at once. Default: as the provider decides.
    parallel_tools: Option<Flag>,
    /// The treatment of a request that is too long for its models: `fail` (default), or `cut`, which leaves out the
    /// oldest messages of its history, the middles of results of tools and of long values in its prompt.
    on_overflow: Option<OverflowWord>,
    /// `prompt`: the provider keeps the instructions and the conversation for the next request.
    cache: Option<PromptCache>,
    /// The purpose of the agent.
    about: Option<Text>,
}

/// A tool of an agent that needs a person's approval.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ToolUseKeys {
    /// The tool.
    tool: ToolName,
    /// When a person is asked before a call: before each call, once in a run, or never (the default).
    approve: Option<ApprovalWord>,
}

/// A sandbox for generated code.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct SandboxKeys {
    /// The hosts that programs may reach by `https`, such as `[api.example.com, "*.example.com"]`, if the operator
    /// allows them, too. Default: `off`, none.
    network: Option<Either<Network, Vec<NetworkHostName>>>,
    /// The memory limit of an execution, such as `2G`.
    memory: Option<Memory>,
    /// The time limit of an execution, such as `60s`.
    time: Option<Duration>,
    /// The room for files in the work folder, and again in `/tmp`, such as `1G`; it is memory of the machine.
    room: Option<Memory>,
    /// The Python environment.
    python: Option<PythonKeys>,
    /// The packages that lock files of one of `folders` name. They are installed before a run, by `graphrun prepare`.
    dependencies: Option<DependenciesKeys>,
}

/// Commands on this machine, outside of a sandbox. They run only if the operator allows the host, too.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HostKeys {
    /// The beginnings of the commands that may run: a program and its first arguments, such as `git push`.
    allow: OneOrMany<CommandBeginning>,
    /// One of `folders`, in which commands start. Default: the current folder of graphrun.
    folder: Option<FolderName>,
    /// When a person is asked: before each call (the default), once in a run, or never.
    approve: Option<ApprovalWord>,
    /// The variables of graphrun's environment that commands get, such as `GH_TOKEN`.
    secrets: Option<OneOrMany<VariableName>>,
    /// The time limit of a command, such as `60s`.
    time: Option<Duration>,
}

/// A server of tools: a program that speaks MCP over its standard streams, or an address.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct McpServerKeys {
    /// The program of the server and its arguments.
    command: Option<Vec<Scalar>>,
    /// Where it runs: one of `sandboxes`, or one of `hosts` with `approve: never` and without a folder.
    #[serde(rename = "in")]
    within: Option<SandboxName>,
    /// Files or folders beside the workflow that a server in a sandbox gets, under the same paths.
    scripts: Option<OneOrMany<Text>>,
    /// The address of a server that is reached over HTTP, in place of `command`. The operator must allow its host.
    url: Option<Text>,
    /// The headers of each request to `url`: texts, or secrets of the environment.
    headers: Option<NamedMap<Text, Either<Text, HeaderKeys>>>,
    /// The tools that the lock file has. Default: all tools of the server.
    tools: Option<OneOrMany<Text>>,
    /// The prompts of the server that agents and nodes can call like its tools. Default: none.
    prompts: Option<OneOrMany<Text>>,
    /// The URIs of the resources that can be read; one that ends in `*` stands for all that begin so. Default: all.
    resources: Option<OneOrMany<Text>>,
    /// The time limit of a call, and of the start of the server. Default: `60s`.
    time: Option<Duration>,
}

/// A folder of a run, with a history.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FolderKeys {
    /// The top folder of a git repository, by an expression over the input. A relative path starts at the current folder.
    from: Expression,
    /// `true`: each run has its own git worktree and branch.
    git: Flag,
    /// The name of the branch, by an expression over the input. Default: `"graphrun/" + run.id`.
    branch: Option<Expression>,
}

/// A tier of memory.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TierKeys {
    /// `read`: only people write it. Default: `write`.
    access: Option<TierAccess>,
    /// How long an entry is kept after it was last written, unless a person approves it. Default: for good.
    keep: Option<Duration>,
    /// Whether its entries wait for a person's approval, by `graphrun memory approve`.
    approve: Option<Flag>,
    /// The type of its values. Default: `string`.
    #[serde(rename = "type")]
    ty: Option<TypeNotation>,
    /// The model that makes vectors of its entries, so that a search also finds texts that mean the same.
    embeddings: Option<ModelRef>,
}

/// A report that is not only written when the run stops.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ReportKeys {
    /// Its template: the path of a file, or `{ text: … }`.
    render: Either<PromptPath, TemplateKeys>,
    /// `step`: it is also written after each step.
    each: Option<EachStep>,
}

/// The settings of the built-in tools.
#[derive(JsonSchema)]
pub(crate) struct BuiltInToolsKeys {
    /// The tools for files.
    fs: Option<FilesKeys>,
}

/// The settings of the built-in tools, and the declared tools by name.
pub(super) struct ToolsSection;

impl JsonSchema for ToolsSection {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ToolsSection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = BuiltInToolsKeys::json_schema(generator);
        schema.insert("additionalProperties".into(), ToolKeys::json_schema(generator).into());
        schema.insert("propertyNames".into(), ToolDeclared::json_schema(generator).into());
        schema
    }
}

/// A tool of the workflow: a command in a sandbox, or a request.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ToolKeys {
    /// The purpose of the tool, which a model chooses it by.
    about: Text,
    /// The command: it gets its input as JSON on its standard input, and prints its output as JSON.
    run: Option<Vec<Scalar>>,
    /// One of `sandboxes`, for `run`.
    #[serde(rename = "in")]
    within: Option<SandboxName>,
    /// One of `folders`: the command starts in it, and its changes are lost.
    folder: Option<FolderName>,
    /// Files or folders beside the workflow that the command gets, under the same paths.
    scripts: Option<OneOrMany<Text>>,
    /// The HTTP request.
    http: Option<HttpKeys>,
    /// The arguments: a record in the notation of types.
    input: TypeNotation,
    /// The type of the result.
    output: TypeNotation,
    /// When a person is asked before a call: before each call, once in a run, or never (the default).
    approve: Option<ApprovalWord>,
}

/// The HTTP request of a tool. The operator must allow its host.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HttpKeys {
    /// The method. Default: `GET`. With `POST`, `PUT` and `PATCH` the arguments that are not in the address are sent as JSON.
    method: Option<MethodName>,
    /// The address; arguments stand in braces, in the path or behind `?`.
    url: Text,
    /// The headers: texts, or secrets of the environment.
    headers: Option<NamedMap<Text, Either<Text, HeaderKeys>>>,
    /// The time limit of a call. Default: `30s`.
    time: Option<Duration>,
}

/// A header with a secret, which is never shown.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HeaderKeys {
    /// The environment variable with the secret.
    secret: VariableName,
    /// The text before it, such as `Bearer `.
    prefix: Option<Text>,
}

/// The tools for files.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FilesKeys {
    /// The folder to which reading is restricted. Default: the folder of the workflow.
    root: Option<Folder>,
}

/// The Python environment of a sandbox.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PythonKeys {
    /// The packages, as pip names them.
    requirements: Option<OneOrMany<Requirement>>,
}

/// The packages of lock files, as the commit has them that the branch of the run starts from.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct DependenciesKeys {
    /// One of `folders`.
    folder: FolderName,
    /// The path of a file of requirements for pip in the folder, each as `NAME==VERSION`.
    pip: Option<Text>,
    /// The path of a `package-lock.json` in the folder.
    npm: Option<Text>,
    /// The path of a `Cargo.lock` in the folder.
    cargo: Option<Text>,
    /// The path of a `go.sum` in the folder, with a `go.mod` beside it.
    go: Option<Text>,
}

/// The limits of a whole run. At a limit it stops and can be resumed, or it leads to `exhausted`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct LimitsKeys {
    /// Super-steps. Default: 100.
    steps: Option<Positive>,
    /// Calls of models, with those of retries and repairs. A request without an answer does not count.
    calls: Option<Positive>,
    /// Tokens of all requests and replies.
    tokens: Option<Positive>,
    /// US dollars, as far as prices are known.
    usd: Option<Dollars>,
    /// Time at work. Waiting for people does not count.
    time: Option<Duration>,
    /// The target of a run, once, when it reaches a limit.
    exhausted: Option<TargetName>,
    /// How many tasks may run at the same time.
    concurrency: Option<Positive>,
}

/// The settings of nodes without their own.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct DefaultsKeys {
    /// The number of attempts of a failed call, including the first one.
    retry: Option<Either<Attempts, RetryKeys>>,
    /// The longest duration of an attempt. It does not apply to `ask`.
    timeout: Option<Either<Duration, TimeoutKeys>>,
    /// The targets of failures, by their kinds.
    catch: Option<Catch>,
    /// How often an agent may repair an invalid answer.
    repair: Option<Count>,
}

/// The longest duration of an attempt.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TimeoutKeys {
    /// The whole attempt.
    total: Option<Duration>,
    /// Without progress: agents report progress after each call.
    idle: Option<Duration>,
}

/// The number of attempts of a failed call, and the waits between them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct RetryKeys {
    /// The number of attempts, including the first one.
    attempts: Attempts,
    /// The wait before the second attempt; it doubles with each attempt.
    initial: Option<Duration>,
    /// The longest wait.
    max: Option<Duration>,
    /// The kinds of failure that are tried again, also if a failure is not transient. The default policy applies to
    /// all other kinds.
    on: Option<ErrorKinds>,
    /// The exit codes of `run` that are tried again, such as `75`.
    exit_codes: Option<OneOrMany<ExitCode>>,
}
