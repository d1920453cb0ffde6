//! A checked workflow, as data: its nodes and edges.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, Place, SourceFile},
    graph::{Backoff, Catch, Condition, Edge, Graph, Limits, Node, NodeSpec, Policies, Scope},
    id::{ChannelName, NodeName},
    state::{Schema, Type},
};
use serde_json::{Value, json};

use super::{Expression, Prompt, TestRunner};
/// A workflow whose names, types, expressions and prompts are checked.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// The description of the workflow.
    pub about: Option<String>,
    /// The fields of its state.
    pub schema: Schema,
    /// The fields of the input.
    pub input: Vec<ChannelName>,
    /// The fields that are the result of a run.
    pub output: Vec<ChannelName>,
    /// The fields that receive people's messages, the default one first.
    pub inbox: Vec<ChannelName>,
    /// The limits of a run.
    pub limits: Limits,
    /// The defaults of the nodes, which are already part of their policies.
    pub defaults: Defaults,
    /// The nodes by name.
    pub nodes: BTreeMap<NodeName, NodeDefinition>,
    /// The edges.
    pub edges: Vec<Edge>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// Each `parallel` and its branches, for drawings; a run has no node for it.
    pub groups: BTreeMap<NodeName, Vec<NodeName>>,
    /// The file it was read from.
    pub file: Arc<SourceFile>,
    /// The folder that its relative paths start from.
    pub folder: PathBuf,
    /// The fields that are assigned whenever a run is done; only set for a used workflow.
    pub(super) settled: BTreeSet<ChannelName>,
}

/// The settings of nodes without their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The retry policy for transient failures.
    pub retry: Backoff,
    /// The longest duration of one attempt. It does not apply to `ask`.
    pub timeout: Option<Duration>,
    /// The longest time without progress in one attempt. It does not apply to `ask` either.
    pub idle_timeout: Option<Duration>,
    /// The targets of failures.
    pub catch: Vec<Catch>,
    /// How often an agent may repair an invalid answer.
    pub repairs_max: u32,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeDefinition {
    /// The kind of the node and its settings.
    pub kind: NodeKind,
    /// The policies: retries, bounds, limits, routes for failures.
    pub policies: Policies,
    /// The condition under which it runs; otherwise it is skipped.
    pub when: Option<Expression>,
    /// The cache settings, if its results are cached.
    pub cache: Option<Caching>,
    /// Where it is written.
    pub place: Place,
    /// The description of the node.
    pub about: Option<String>,
    /// The used workflows that it belongs to, the innermost first.
    pub scopes: Vec<Scope>,
}

/// The cache settings of a node.
#[derive(Clone, Debug, Default)]
#[doc(alias = "CachePolicy")]
pub struct Caching {
    /// The greatest age of a reused result; `None` is no bound.
    pub age_max: Option<Duration>,
    /// The cache key of the node, if it differs from the node's input.
    pub key: Option<Expression>,
}

/// The kind of a node and its settings.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Asks a model.
    Agent(AgentNode),
    /// Runs tests in a sandbox.
    RunTests(RunTestsNode),
    /// Runs a command in a sandbox.
    Run(RunNode),
    /// Calls a tool.
    Tool(ToolNode),
    /// Asks a person.
    Ask(AskNode),
    /// Computes fields of the state.
    Set(SetNode),
    /// Runs a node for each item of a list.
    Map(MapNode),
    /// Begins a used workflow.
    Enter(EnterNode),
    /// Ends a used workflow.
    Leave(LeaveNode),
    /// Writes files to a folder.
    WriteFiles(WriteFilesNode),
    /// Runs the node that is registered under this name.
    Custom(String),
}

/// A node that asks a model.
#[derive(Clone, Debug)]
pub struct AgentNode {
    /// The name of the agent.
    pub agent: String,
    /// The models as `provider/model`, in order of fallback; at least one.
    pub models: Vec<String>,
    /// The system prompt.
    pub system: Option<Prompt>,
    /// The prompt.
    pub prompt: Prompt,
    /// The prompt of the second and later visits, if it differs.
    pub prompt_again: Option<Prompt>,
    /// The temperature, from 0 to 2.
    pub temperature: Option<f64>,
    /// The tools it may call before it answers, by name.
    pub tools: Vec<String>,
    /// The folder that the built-in tools can read.
    pub tools_root: PathBuf,
    /// How many rounds of tool calls it may make; then each answer must be final.
    pub tool_rounds_max: u32,
    /// The fields its answer is written to; at least one.
    pub writes: Vec<ChannelName>,
    /// How often it may repair an invalid answer.
    pub repairs_max: u32,
}

/// A node that runs tests in a sandbox.
#[derive(Clone, Debug)]
pub struct RunTestsNode {
    /// The files to test.
    pub artifact: Expression,
    /// The test runner.
    pub runner: TestRunner,
    /// The number of the attempt, for the report.
    pub attempt: Option<Expression>,
    /// The limits of the sandbox.
    pub sandbox: SandboxSettings,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, TestOutput)>,
}

/// An output of a run of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutput {
    /// The report of the runner.
    TestResult,
    /// The artifact, with the result and the number of the attempt filled in.
    CodeArtifact,
    /// `passed` or `needs_review`.
    Status,
    /// The number of the attempt.
    Attempts,
}

/// The limits of a sandbox. There is no network in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Memory.
    pub memory_bytes: u64,
    /// Time of one run.
    pub time: Duration,
    /// The installed Python packages, as pip names them.
    pub requirements: Vec<String>,
}

/// A node that runs a command in a sandbox.
#[derive(Clone, Debug)]
pub struct RunNode {
    /// The program and its constant arguments; no value of the state is among them.
    pub argv: Vec<String>,
    /// The limits of the sandbox.
    pub sandbox: SandboxSettings,
    /// The environment variables.
    pub env: Vec<(String, Expression)>,
    /// The standard input: a text, or other values as JSON.
    pub stdin: Option<Expression>,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, RunOutput)>,
}

/// An output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutput {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
    /// The exit code. If a field receives it, no exit code is a failure.
    ExitCode,
    /// Whether the exit code is zero. If a field receives it, no exit code is a failure.
    Ok,
    /// The standard output, parsed as JSON.
    Json,
}

/// A node that calls a tool.
#[derive(Clone, Debug)]
pub struct ToolNode {
    /// The name of the tool.
    pub tool: String,
    /// The folder that the built-in tools can read.
    pub root: PathBuf,
    /// The arguments by name.
    pub args: Vec<(String, Expression)>,
    /// The fields with the path of the output that each receives. An empty path is the whole
    /// output.
    pub writes: Vec<(ChannelName, Vec<String>)>,
}

/// A node that asks a person.
#[derive(Clone, Debug)]
pub struct AskNode {
    /// The question.
    pub prompt: Prompt,
    /// The fields the person sees.
    pub show: Vec<ChannelName>,
    /// The answers to choose from. If empty, every value that fits the written field is accepted.
    pub choices: Vec<String>,
    /// The field the answer is written to.
    pub writes: Option<ChannelName>,
    /// How long the question waits for its answer.
    pub timeout: Option<Duration>,
}

/// A node that computes fields of the state.
#[derive(Clone, Debug)]
pub struct SetNode {
    /// Each field and its value; all expressions read the state before the node.
    pub sets: Vec<(ChannelName, Expression)>,
}

/// A node that runs another one for each item of a list.
#[derive(Clone, Debug)]
pub struct MapNode {
    /// The list.
    pub over: Expression,
    /// The node.
    pub node: NodeName,
    /// The name of the item in that node.
    pub item: String,
    /// How many items run at the same time.
    pub width_max: Option<usize>,
}

/// A node that begins a used workflow.
#[derive(Clone, Debug)]
pub struct EnterNode {
    /// The name of the used workflow.
    pub workflow: String,
    /// The input fields of the used workflow with their values.
    pub sets: Vec<(ChannelName, Expression)>,
}

/// A node that runs when a used workflow has no tasks left.
#[derive(Clone, Debug)]
pub struct LeaveNode {
    /// Each field that receives a result, with the field of the used workflow it comes from.
    pub takes: Vec<(ChannelName, ChannelName)>,
}

/// A node that writes files.
#[derive(Clone, Debug)]
pub struct WriteFilesNode {
    /// The folder.
    pub to: Expression,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// The names of files with the values that are written to them as JSON.
    pub documents: Vec<(String, Expression)>,
    /// The template that is rendered to `report.md`.
    pub report: Option<Prompt>,
}

/// Makes the node values of a workflow.
pub trait NodeFactory {
    /// Makes the node of a definition.
    ///
    /// # Errors
    ///
    /// Fails with a description of the missing part if this machine cannot run such a node.
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, Diagnostic>;
}

impl Workflow {
    /// Makes the graph. The findings include everything that its nodes lack on this machine.
    ///
    /// If there are errors, the affected nodes are missing in the graph.
    pub fn into_graph(self, factory: &dyn NodeFactory) -> (Graph, Diagnostics) {
        let mut findings = Diagnostics::default();
        let mut nodes = BTreeMap::new();
        for (name, definition) in self.nodes {
            match factory.make(&name, &definition) {
                Ok(node) => {
                    let NodeDefinition { policies, when, place, scopes, .. } = definition;
                    let node = scopes.iter().fold(node, |it, scope| scope.node(it));
                    let when = when.map(|it| Arc::new(it) as Arc<dyn Condition>);
                    let outside = |it, scope: &Scope| scope.condition(it);
                    let when = when.map(|it| scopes.iter().fold(it, outside));
                    let place = Some(place);
                    nodes.insert(name, NodeSpec { node, policies, when, place });
                }
                Err(finding) => findings.push(finding),
            }
        }
        let graph = Graph {
            name: self.name,
            schema: self.schema,
            input: self.input,
            inbox: self.inbox,
            nodes,
            edges: self.edges,
            entry: self.entry,
            limits: self.limits,
        };
        (graph, findings)
    }
}

impl TestOutput {
    /// Every output.
    pub const ALL: [Self; 4] = [Self::TestResult, Self::CodeArtifact, Self::Status, Self::Attempts];

    /// The word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TestResult => "test_result",
            Self::CodeArtifact => "code_artifact",
            Self::Status => "status",
            Self::Attempts => "attempts",
        }
    }
}

impl RunOutput {
    /// Every output.
    pub const ALL: [Self; 5] = [Self::Stdout, Self::Stderr, Self::ExitCode, Self::Ok, Self::Json];

    /// The word for it in a workflow file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::ExitCode => "exit_code",
            Self::Ok => "ok",
            Self::Json => "json",
        }
    }

    /// The type that a field must have to receive it.
    pub fn ty(self) -> Type {
        match self {
            Self::Stdout | Self::Stderr => Type::String,
            Self::ExitCode => Type::Int,
            Self::Ok => Type::Bool,
            Self::Json => Type::Any,
        }
    }
}

impl SandboxSettings {
    /// The part of the cache key of jobs in this sandbox.
    pub fn fingerprint(&self) -> Value {
        let Self { memory_bytes, time, requirements } = self;
        json!({"memory": memory_bytes, "time_ms": time.as_millis(), "requirements": requirements})
    }

    /// The limits of a job in this sandbox.
    pub fn limits(&self) -> graphrun_sandbox::Limits {
        graphrun_sandbox::Limits {
            wall: self.time,
            memory_bytes: self.memory_bytes,
            ..graphrun_sandbox::Limits::default()
        }
    }
}
