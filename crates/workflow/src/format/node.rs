//! The nodes: one type with the keys of every kind, so that a language server blames the right one.

use schemars::JsonSchema;

use super::{
    sections::{Retry, Timeout},
    values::{
        AgentName, AllowedName, ArgumentName, Attempts, Catch, Count, CustomName, Dollars,
        Duration, Either, EventName, Expression, FieldName, FileName, Flag, MatchedValue, Named,
        NodeRef, OneOrMany, OutputName, Positive, PromptPath, ProofName, ReportName, RunnerName,
        SandboxName, Scalar, TargetName, Template, Text, ToolName, VariableName,
    },
};

/// A node: exactly one kind (`agent`, `run`, `run_tests`, `tool`, `ask`, `set`, `write_files`,
/// `parallel`, `map`, `use`, `node`), and the keys common to all kinds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Node {
    // The kinds.
    /// Kind: asks one of `agents` and writes its answer to the fields of `writes`.
    agent: Option<AgentName>,
    /// Kind: runs a command in a sandbox: the program and its arguments, without a shell. Values of
    /// the state reach it by `env`, `stdin` and `files`.
    run: Option<Vec<Scalar>>,
    /// Kind: runs tests in a sandbox.
    run_tests: Option<RunTests>,
    /// Kind: calls a tool: `fs.read`, `fs.list`, `fs.grep`, or one that a Rust program registers.
    tool: Option<ToolName>,
    /// Kind: asks a person this question, which is a template. The run is saved and waits.
    ask: Option<Template>,
    /// Kind: computes fields by expressions. All of them read the state before this node.
    set: Option<Named<FieldName, Expression>>,
    /// Kind: writes files to a folder.
    write_files: Option<WriteFiles>,
    /// Kind: runs the node that a Rust program has registered under this name.
    #[serde(rename = "node")]
    custom: Option<CustomName>,
    /// Kind: runs these branches in parallel; `then` waits for all of them. A branch is a node, or
    /// a list of nodes that follow each other.
    parallel: Option<Vec<OneOrMany<NodeRef>>>,
    /// Kind: runs another workflow as a part of this one.
    #[serde(rename = "use")]
    used: Option<Use>,
    /// Kind: runs a node for each item of a list, in parallel; `then` waits for all of them.
    map: Option<Map>,

    // Keys of some kinds.
    /// For `agent`: the path of the prompt. Default: `prompts/NODE.md`.
    prompt: Option<Either<PromptPath, Prompt>>,
    /// The fields it writes. A model is asked for values of their types, and its answer is checked
    /// against them. For `run` and `run_tests`: which output goes to which field. For `tool`: a
    /// field for the whole output, or which part of it goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, Named<FieldName, OutputName>>>,
    /// For `agent`: how often it may repair an invalid answer.
    repair: Option<Count>,
    /// For `run` and `run_tests`: one of `sandboxes`.
    #[serde(rename = "in")]
    within: Option<SandboxName>,
    /// For `tool`: its arguments, by expressions.
    args: Option<Named<ArgumentName, Expression>>,
    /// For `run`: variables of the command, by expressions.
    env: Option<Named<VariableName, Expression>>,
    /// For `run`: the standard input of the command, by an expression: a text, or other values as
    /// JSON.
    stdin: Option<Expression>,
    /// For `run`: the files in the command's folder, by an expression.
    files: Option<Expression>,
    /// For `ask`: the fields that are shown to the person.
    show: Option<OneOrMany<FieldName>>,
    /// For `ask`: the answers to choose from.
    choices: Option<OneOrMany<Scalar>>,

    // Keys of all kinds.
    /// The purpose of the node.
    about: Option<Text>,
    /// The next node: a name, a list of nodes that run in parallel, a list of cases (`when`, `to`)
    /// that are tried in order, or `{ match, to }` over an enum or a bool. `end` and `fail` are
    /// built in.
    then: Option<Then>,
    /// The nodes that this one waits for. It runs once when all of them have led to it.
    join: Option<OneOrMany<NodeRef>>,
    /// The condition under which it runs; otherwise it is skipped and the run continues with
    /// `then`.
    when: Option<Expression>,
    /// Whether its result is cached and reused for identical inputs: `true`, or the greatest age of
    /// a result.
    cache: Option<Either<Flag, Either<Duration, Cache>>>,
    /// Whether it waits until no other task is left to run.
    defer: Option<bool>,
    /// How often the node may run before its count is reset. Every loop needs such a bound.
    max_visits: Option<Positive>,
    /// The limits of all visits of the node in a run together.
    limits: Option<NodeLimits>,
    /// The target when `max_visits` or one of `limits` is used up.
    exhausted: Option<TargetName>,
    /// The nodes whose counts of visits are reset when this one finishes.
    resets: Option<OneOrMany<NodeRef>>,
    /// The fields that are emptied when this node finishes, before it writes.
    clears: Option<OneOrMany<FieldName>>,
    /// The event that is reported when the run reaches this node: a verb in the past tense.
    emits: Option<EventName>,
    /// The targets of failures, by their kinds.
    catch: Option<Catch>,
    /// The longest duration of an attempt, in all or without progress. For `ask`: how long the
    /// question waits for its answer, also while no process runs. Reaching it is a failure of the
    /// kind `timeout`.
    timeout: Option<Either<Duration, Timeout>>,
    /// The number of attempts of a failed call, including the first one.
    retry: Option<Either<Attempts, Retry>>,
}

/// A node, several of them, cases in order, or a match.
type Then = Either<TargetName, Either<Vec<Either<TargetName, Case>>, Match>>;

/// A case of a route.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Case {
    /// The condition, such as `review.verdict == "approved"`; the last case has none.
    when: Option<Expression>,
    /// The target of the case.
    to: OneOrMany<TargetName>,
}

/// A route by value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Match {
    /// The matched expression: an enum or a bool.
    #[serde(rename = "match")]
    on: Expression,
    /// A target for each value.
    to: Named<MatchedValue, OneOrMany<TargetName>>,
}

/// A prompt that is not simply a path.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Prompt {
    /// The whole prompt, written here.
    text: Option<Template>,
    /// The path of the prompt of the first visit.
    first: Option<PromptPath>,
    /// The path of the prompt of later visits.
    again: Option<PromptPath>,
}

/// Another workflow with its inputs and outputs.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Use {
    /// The file, from the folder of this one or the one above.
    workflow: Text,
    /// Its inputs, each with an expression over the state here.
    #[serde(rename = "in")]
    input: Option<Named<Text, Expression>>,
    /// The fields of this workflow that receive its outputs when it is done.
    #[serde(rename = "out")]
    output: Option<Named<FieldName, Text>>,
}

/// A node that runs for each item of a list.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Map {
    /// The list, such as `plan.tasks`.
    over: Expression,
    /// The name of the item in the prompts and expressions of that node. Default: `item`.
    #[serde(rename = "as")]
    name: Option<Text>,
    /// The node. It has no `then`; the map leads on.
    #[serde(rename = "do")]
    node: NodeRef,
    /// The most items that run at the same time.
    width: Option<Positive>,
}

/// The tested files and the runner of the tests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct RunTests {
    /// The field with the files.
    artifact: Expression,
    /// The runner of the tests; without one there is a `command`.
    runner: Option<RunnerName>,
    /// The number of the attempt, for the report, such as `visits("sse")`.
    attempt: Option<Expression>,
    /// Files and folders with tests that a person wrote, from the folder of the workflow.
    fixed: Option<OneOrMany<Text>>,
    /// The weakest proof with which a result passes.
    proof: Option<ProofName>,
    /// The exceptions that can hide a test; `conftest` if the key is left out.
    allow: Option<OneOrMany<AllowedName>>,
    /// A command that runs the tests and writes a report; its result proves nothing.
    command: Option<Vec<Scalar>>,
    /// The form of the report of the command.
    report: Option<ReportName>,
    /// The file of that report; without it, the report is the output of the command.
    report_path: Option<Text>,
}

/// Files and the folder they are written to.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WriteFiles {
    /// The folder: `output.dir`.
    to: Expression,
    /// The files, each with its path and content.
    files: Option<Expression>,
    /// The names of files with the values that are written to them as JSON.
    documents: Option<Named<FileName, Expression>>,
    /// The path of a prompt that is rendered to `report.md`.
    report: Option<PromptPath>,
}

/// How results are cached.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Cache {
    /// The greatest age of a result that is reused.
    #[serde(rename = "for")]
    age: Option<Duration>,
    /// The cache key, in place of all inputs of the node, such as `ticket.id`.
    key: Option<Expression>,
}

/// The limits of all visits of a node in a run together. At a limit it is not run again.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct NodeLimits {
    /// Tokens of all its requests and replies.
    tokens: Option<Positive>,
    /// US dollars, as far as prices are known.
    usd: Option<Dollars>,
    /// Time at work.
    time: Option<Duration>,
}
