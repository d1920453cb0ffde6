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
/// `parallel`, `map`, `use`, `node`),
/// and what holds for all of them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Node {
    // The kinds.
    /// Kind: one of `agents` is asked, and its answer written to the fields of `writes`.
    agent: Option<AgentName>,
    /// Kind: a command is run in a sandbox: the program and its arguments, as they are. What the
    /// state holds reaches it by `env`, `stdin` and `files`.
    run: Option<Vec<Scalar>>,
    /// Kind: tests are run in a sandbox.
    run_tests: Option<RunTests>,
    /// Kind: a tool is called: `fs.read`, `fs.list`, `fs.grep`, or one that a Rust program registers.
    tool: Option<ToolName>,
    /// Kind: a person is asked this question, which is a template. The run waits, saved.
    ask: Option<Template>,
    /// Kind: fields are computed by expressions. All see the state as it was before.
    set: Option<Named<FieldName, Expression>>,
    /// Kind: files are written to a folder.
    write_files: Option<WriteFiles>,
    /// Kind: runs the node that a Rust program has registered under this name.
    #[serde(rename = "node")]
    custom: Option<CustomName>,
    /// Kind: these branches run side by side; `then` waits for all of them. A branch is a node, or a
    /// list of nodes that follow each other.
    parallel: Option<Vec<OneOrMany<NodeRef>>>,
    /// Kind: another workflow is run as a part of this one.
    #[serde(rename = "use")]
    used: Option<Use>,
    /// Kind: a node is done for each item of a list, side by side; `then` waits for all of them.
    map: Option<Map>,

    // What belongs to some kinds.
    /// For `agent`: the path of the prompt; `prompts/NODE.md` if nothing is said.
    prompt: Option<Either<PromptPath, Prompt>>,
    /// The fields it writes. The type of a field is what a model is asked for, and the check of its
    /// answer. For `run` and `run_tests`: which output goes to which field. For `tool`: a field for
    /// the whole output, or which part of it goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, Named<FieldName, OutputName>>>,
    /// For `agent`: how often it may mend an answer that cannot be read.
    repair: Option<Count>,
    /// For `run` and `run_tests`: one of `sandboxes`.
    #[serde(rename = "in")]
    within: Option<SandboxName>,
    /// For `tool`: its arguments, by expressions.
    args: Option<Named<ArgumentName, Expression>>,
    /// For `run`: variables of the command, by expressions.
    env: Option<Named<VariableName, Expression>>,
    /// For `run`: what the command reads, by an expression: a text, or anything else as JSON.
    stdin: Option<Expression>,
    /// For `run`: the files that the command finds, by an expression.
    files: Option<Expression>,
    /// For `ask`: the fields that the person is shown.
    show: Option<OneOrMany<FieldName>>,
    /// For `ask`: the answers to choose from.
    choices: Option<OneOrMany<Scalar>>,

    // What every node takes.
    /// What the node is for.
    about: Option<Text>,
    /// What follows: a node, a list of nodes that run side by side, a list of cases (`when`, `to`)
    /// that are tried in order, or `{ match, to }` over an enum or a bool. `end` and `fail` are
    /// built in.
    then: Option<Then>,
    /// The nodes that this one waits for. It runs once when all of them have led to it.
    join: Option<OneOrMany<NodeRef>>,
    /// The condition under which it runs; else it is skipped, and the run goes on with `then`.
    when: Option<Expression>,
    /// Whether its result is kept, and used wherever the node would compute it from the same: `true`,
    /// or how old a result may be.
    cache: Option<Either<Flag, Either<Duration, Cache>>>,
    /// Whether it lets everything else that is left to run go first.
    defer: Option<bool>,
    /// How often the node may run before its count is reset. Every loop needs such a bound.
    max_visits: Option<Positive>,
    /// What all visits of the node in a run may take together.
    limits: Option<NodeLimits>,
    /// Where the run goes when `max_visits` or one of `limits` is used up.
    exhausted: Option<TargetName>,
    /// The nodes whose counts of visits start anew when this one finishes.
    resets: Option<OneOrMany<NodeRef>>,
    /// The fields that are emptied when this node finishes, before it writes.
    clears: Option<OneOrMany<FieldName>>,
    /// The event that tells watchers that the run came here: a verb in the past tense.
    emits: Option<EventName>,
    /// Where failures lead.
    catch: Option<Catch>,
    /// How long an attempt may take; in all, or without a word. For `ask`, how long the question
    /// waits for its answer, also while no process runs. Too late is a failure of the kind `timeout`.
    timeout: Option<Either<Duration, Timeout>>,
    /// How often a call that failed is tried, as a number of tries in all.
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
    /// Where the case leads.
    to: OneOrMany<TargetName>,
}

/// A route by value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Match {
    /// What is looked at: an enum or a bool.
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

/// Another workflow, and what comes in and goes out.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Use {
    /// The file, from the folder of this one or the one above.
    workflow: Text,
    /// Its inputs, each with an expression over the state here.
    #[serde(rename = "in")]
    input: Option<Named<Text, Expression>>,
    /// The fields here that are filled when it is done, each with one of its outputs.
    #[serde(rename = "out")]
    output: Option<Named<FieldName, Text>>,
}

/// A node that is done for each item of a list.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Map {
    /// The list, such as `plan.tasks`.
    over: Expression,
    /// What the prompts and expressions of that node call the item; `item` if nothing is said.
    #[serde(rename = "as")]
    name: Option<Text>,
    /// The node; its own `then` is left to the map.
    #[serde(rename = "do")]
    node: NodeRef,
    /// How many items are worked on at the same time.
    width: Option<Positive>,
}

/// What is tested, and with what.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct RunTests {
    /// The field with the files.
    artifact: Expression,
    /// What runs the tests; else there is a `command`.
    runner: Option<RunnerName>,
    /// The number of the attempt, for the report, such as `visits("sse")`.
    attempt: Option<Expression>,
    /// Files and folders with tests that a person wrote, from the folder of the workflow.
    fixed: Option<OneOrMany<Text>>,
    /// The least that a result must prove, to be passed.
    proof: Option<ProofName>,
    /// The exceptions that can hide a test; `conftest` if the key is left out.
    allow: Option<OneOrMany<AllowedName>>,
    /// A command that runs the tests and writes a report; its result proves nothing.
    command: Option<Vec<Scalar>>,
    /// The form of the report of the command.
    report: Option<ReportName>,
    /// The file of that report; without it, the report is what the command prints.
    report_path: Option<Text>,
}

/// What is written where.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WriteFiles {
    /// The folder: `output.dir`.
    to: Expression,
    /// The files, each with its path and content.
    files: Option<Expression>,
    /// Names of files, and what is written to them as JSON.
    documents: Option<Named<FileName, Expression>>,
    /// The path of a prompt that is rendered to `report.md`.
    report: Option<PromptPath>,
}

/// How results are kept.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Cache {
    /// How old a result may be that is used.
    #[serde(rename = "for")]
    age: Option<Duration>,
    /// What tells results apart, in the place of all that the node is given, such as `ticket.id`.
    key: Option<Expression>,
}

/// What all visits of a node in a run may take together. At a limit it is not run again.
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
