//! A checked workflow, as data: what each node does, and what follows what.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Expression, Prompt, TestRunner};
use crate::{
    diagnostic::{Diagnostic, Diagnostics, Place, SourceFile},
    graph::{Backoff, Catch, Condition, Edge, Graph, Limits, Node, NodeSpec, Policies, Scope},
    id::{ChannelName, NodeName},
    sandbox,
    state::{Schema, Type},
};

/// A workflow whose names, types, expressions and prompts are checked.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub about: Option<String>,
    /// The fields of its state.
    pub schema: Schema,
    /// The fields that a run is given.
    pub input: Vec<ChannelName>,
    /// The fields that are the result of a run.
    pub output: Vec<ChannelName>,
    /// The fields to which people may say something while it runs, the usual one first.
    pub inbox: Vec<ChannelName>,
    /// The limits of a run.
    pub limits: Limits,
    /// What the nodes have in common; it is in their policies already.
    pub defaults: Defaults,
    /// The nodes by name.
    pub nodes: BTreeMap<NodeName, NodeDefinition>,
    /// What follows what.
    pub edges: Vec<Edge>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// Each `parallel` and its branches, for drawings; it is no node of a run.
    pub groups: BTreeMap<NodeName, Vec<NodeName>>,
    /// The file it was read from.
    pub file: Arc<SourceFile>,
    /// The folder that its paths start at.
    pub folder: PathBuf,
    /// Of a workflow that is used, the fields that are written whenever it is done.
    pub(super) settled: BTreeSet<ChannelName>,
}

/// What holds for every node that does not say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// How transient failures are tried again.
    pub retry: Backoff,
    /// How long one attempt may take. A person is not hurried: it does not hold for `ask`.
    pub timeout: Option<Duration>,
    /// How long one attempt may go on without a word, people excepted as well.
    pub idle_timeout: Option<Duration>,
    /// Where failures lead.
    pub catch: Vec<Catch>,
    /// How often an agent may mend an answer that cannot be read.
    pub repairs_max: u32,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeDefinition {
    /// What it does.
    pub kind: NodeKind,
    /// Under which conditions.
    pub policies: Policies,
    /// Whether it runs when the run comes to it.
    pub when: Option<Expression>,
    /// How its results are kept for other runs, if they are.
    pub cache: Option<Caching>,
    /// Where it is written.
    pub place: Place,
    /// What it is for.
    pub about: Option<String>,
    /// The used workflows that it belongs to, the innermost first.
    pub scopes: Vec<Scope>,
}

/// How the results of a node are kept for other runs.
#[derive(Clone, Debug, Default)]
#[doc(alias = "CachePolicy")]
pub struct Caching {
    /// How old a result may be that is used; `None` is no bound.
    pub age_max: Option<Duration>,
    /// What tells the results of the node apart, if that is not what it is given.
    pub key: Option<Expression>,
}

/// What a node does.
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
    /// Has a node done for each item of a list.
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
    /// Who the agent is.
    pub system: Option<Prompt>,
    /// What it is to do.
    pub prompt: Prompt,
    /// What it is to do on a second and later visit, if that is something else.
    pub prompt_again: Option<Prompt>,
    /// How freely it answers, from 0 to 2.
    pub temperature: Option<f64>,
    /// The tools it may call before it answers, by name.
    pub tools: Vec<String>,
    /// The folder that the built-in tools see.
    pub tools_root: PathBuf,
    /// How often it may call tools before each answer of a model must be the last.
    pub tool_rounds_max: u32,
    /// The fields its answer is written to; at least one.
    pub writes: Vec<ChannelName>,
    /// How often it may mend an answer that cannot be read.
    pub repairs_max: u32,
}

/// A node that runs tests in a sandbox.
#[derive(Clone, Debug)]
pub struct RunTestsNode {
    /// The files to test.
    pub artifact: Expression,
    /// What runs them.
    pub runner: TestRunner,
    /// The number of the attempt, for the report.
    pub attempt: Option<Expression>,
    /// Where they run.
    pub sandbox: SandboxSettings,
    /// Which output goes to which field.
    pub writes: Vec<(ChannelName, TestOutput)>,
}

/// What a run of tests gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutput {
    /// What the runner reported.
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
    /// The Python packages that are there, as pip names them.
    pub requirements: Vec<String>,
}

/// A node that runs a command in a sandbox.
#[derive(Clone, Debug)]
pub struct RunNode {
    /// The program and its arguments, as they are written; nothing of the state is among them.
    pub argv: Vec<String>,
    /// Where it runs.
    pub sandbox: SandboxSettings,
    /// Its variables.
    pub env: Vec<(String, Expression)>,
    /// Its standard input: a text, or anything else as JSON.
    pub stdin: Option<Expression>,
    /// Its files, each with its path and content.
    pub files: Option<Expression>,
    /// Which output goes to which field.
    pub writes: Vec<(ChannelName, RunOutput)>,
}

/// What a command gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutput {
    /// What it printed.
    Stdout,
    /// What it printed as errors.
    Stderr,
    /// The code it ended with. If it is written, no code is a failure.
    ExitCode,
    /// Whether that code is zero. If it is written, no code is a failure.
    Ok,
    /// What it printed, as the JSON that it is.
    Json,
}

/// A node that calls a tool.
#[derive(Clone, Debug)]
pub struct ToolNode {
    /// The name of the tool.
    pub tool: String,
    /// The folder that the built-in tools see.
    pub root: PathBuf,
    /// The arguments by name.
    pub args: Vec<(String, Expression)>,
    /// Which part of the output goes to which field, as a path; an empty one is all of it.
    pub writes: Vec<(ChannelName, Vec<String>)>,
}

/// A node that asks a person.
#[derive(Clone, Debug)]
pub struct AskNode {
    /// The question.
    pub prompt: Prompt,
    /// The fields the person sees.
    pub show: Vec<ChannelName>,
    /// The answers to choose from; if empty, whatever fits the written field.
    pub choices: Vec<String>,
    /// The field the answer is written to.
    pub writes: Option<ChannelName>,
    /// How long the question waits for its answer.
    pub timeout: Option<Duration>,
}

/// A node that computes fields of the state.
#[derive(Clone, Debug)]
pub struct SetNode {
    /// Each field and its value; all see the state as it was before.
    pub sets: Vec<(ChannelName, Expression)>,
}

/// A node that has another one done for each item of a list.
#[derive(Clone, Debug)]
pub struct MapNode {
    /// The list.
    pub over: Expression,
    /// The node.
    pub node: NodeName,
    /// What that node calls its item.
    pub item: String,
    /// How many items are worked on at the same time.
    pub width_max: Option<usize>,
}

/// A node that begins a used workflow.
#[derive(Clone, Debug)]
pub struct EnterNode {
    /// The name that the used workflow gives itself.
    pub workflow: String,
    /// The fields of the used workflow that are given.
    pub sets: Vec<(ChannelName, Expression)>,
}

/// A node that is reached when nothing is left to do in a used workflow.
#[derive(Clone, Debug)]
pub struct LeaveNode {
    /// Each field that is filled, with the one of the used workflow that it is taken from.
    pub takes: Vec<(ChannelName, ChannelName)>,
}

/// A node that writes files.
#[derive(Clone, Debug)]
pub struct WriteFilesNode {
    /// The folder.
    pub to: Expression,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// Names of files, and what is written to them as JSON.
    pub documents: Vec<(String, Expression)>,
    /// What is rendered to `report.md`.
    pub report: Option<Prompt>,
}

/// Makes the node values of a workflow.
pub trait NodeFactory {
    /// Makes the node of a definition.
    ///
    /// # Errors
    ///
    /// Says what is missing here to run such a node.
    fn make(
        &self,
        name: &NodeName,
        definition: &NodeDefinition,
    ) -> Result<Arc<dyn Node>, Diagnostic>;
}

impl Workflow {
    /// Makes the graph, with everything that its nodes miss.
    ///
    /// With errors the graph lacks the nodes that they are about.
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

    /// The word a workflow uses for it.
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

    /// The word a workflow uses for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::ExitCode => "exit_code",
            Self::Ok => "ok",
            Self::Json => "json",
        }
    }

    /// What a field that takes it must be.
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
    /// What tells the results of jobs in it apart.
    pub(crate) fn identity(&self) -> Value {
        let Self { memory_bytes, time, requirements } = self;
        json!({"memory": memory_bytes, "time_ms": time.as_millis(), "requirements": requirements})
    }

    /// What a job in it may use.
    pub fn limits(&self) -> sandbox::Limits {
        sandbox::Limits {
            wall: self.time,
            memory_bytes: self.memory_bytes,
            ..sandbox::Limits::default()
        }
    }
}
