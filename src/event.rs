//! What a run tells the outside: one vocabulary for the terminal, the log, a stream and a page.
//!
//! The driver stamps every event with a number that goes up by one; nobody has other data.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    id::{NodeName, RunId, Step, TaskId},
    llm::Usage,
};

/// The version of the form in which events are written.
pub const EVENT_VERSION: u32 = 1;

/// The number of events a slow reader may fall behind before the run waits for it.
const SINK_CAPACITY: usize = 1024;

/// An event with its place in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stamped {
    /// The version of this form.
    pub v: u32,
    /// The place among the events of the run, from one, without gaps.
    pub seq: u64,
    /// When it happened, in RFC 3339.
    pub ts: String,
    /// The run.
    pub run: RunId,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The JSON Schema of an event as it is written, for programs that read a run's.
///
/// Later versions of this form may have more kinds of events, and more keys in each.
///
/// ```
/// let schema = graphrun::event::json_schema();
/// assert!(schema["required"].as_array().unwrap().contains(&"seq".into()));
/// ```
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Stamped>().to_value()
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    /// A run was accepted and saved.
    #[serde(rename = "run.started")]
    RunStarted {
        /// The name people call it by.
        name: String,
        /// The workflow it runs.
        workflow: String,
    },
    /// A saved run goes on in this process.
    #[serde(rename = "run.resumed")]
    RunResumed {
        /// The last committed step.
        step: Step,
    },
    /// The workflow is not as it was when the run was started, in ways that do not break the run.
    #[serde(rename = "workflow.changed")]
    WorkflowChanged {
        /// What has changed, in words.
        changes: Vec<String>,
    },
    /// Somebody carried the run over to a workflow that had changed in a way that breaks it.
    #[serde(rename = "workflow.migrated")]
    WorkflowMigrated {
        /// The step that this makes.
        step: Step,
        /// The name of the workflow that it goes by since.
        workflow: String,
        /// The nodes and fields that have another name since, as `old → new`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        mapped: Vec<String>,
        /// The nodes and fields that were left behind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dropped: Vec<String>,
        /// The nodes whose tasks begin anew, by the names they had.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<String>,
        /// The channels that were given a value.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set: Vec<String>,
        /// The nodes of the next step, in task order.
        next: Vec<NodeName>,
    },
    /// A run was made of a checkpoint of another one.
    #[serde(rename = "run.forked")]
    RunForked {
        /// The other run.
        from: RunId,
        /// The step of it.
        step: Step,
        /// The channels that hold something else than they did there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set: Vec<String>,
    },
    /// Somebody changed the state of a run at rest.
    #[serde(rename = "state.updated")]
    StateUpdated {
        /// The step that this makes.
        step: Step,
        /// The node in whose place it was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
        /// The channels that were written or emptied.
        wrote: Vec<String>,
    },
    /// A task began an attempt.
    #[serde(rename = "task.started")]
    TaskStarted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt, from one.
        attempt: u32,
        /// How often the node has run since its count was last reset, this time included.
        visit: u32,
        /// The bound of `visit`, if the node has one.
        max_visits: Option<u32>,
    },
    /// A node said something while it worked.
    #[serde(rename = "task.reported")]
    TaskReported {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// What it said.
        report: Report,
    },
    /// An attempt failed and another one follows.
    #[serde(rename = "task.retrying")]
    TaskRetrying {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt that failed.
        attempt: u32,
        /// Why it failed.
        error: String,
        /// How long the run waits before the next attempt.
        wait_ms: u64,
    },
    /// A task saved the result of a part of its work, which is not done again.
    #[serde(rename = "task.noted")]
    TaskNoted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// What the part is called.
        name: String,
    },
    /// An attempt was cut off, since a limit of the run was reached. It does not count as failed.
    #[serde(rename = "task.cut_off")]
    TaskCutOff {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt, which begins anew if the run goes on.
        attempt: u32,
        /// What the task took so far, from the start of the first attempt.
        ms: u64,
        /// What its models took.
        spent: Spent,
    },
    /// The result of a task is durable; it never runs again.
    #[serde(rename = "task.finished")]
    TaskFinished {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt that succeeded.
        attempt: u32,
        /// What it took, from the start of the first attempt.
        ms: u64,
        /// The channels it wrote.
        wrote: Vec<String>,
        /// Where it leads.
        to: Vec<String>,
        /// What its models took.
        spent: Spent,
    },
    /// A task was not to run, by the condition of its node.
    #[serde(rename = "task.skipped")]
    TaskSkipped {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The condition that did not hold.
        condition: String,
        /// Where it leads.
        to: Vec<String>,
    },
    /// A task failed for good.
    #[serde(rename = "task.failed")]
    TaskFailed {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt that failed last.
        attempt: u32,
        /// What it took, from the start of the first attempt.
        ms: u64,
        /// The kind of failure, as `catch` names it.
        kind: String,
        /// What went wrong.
        error: String,
        /// Where a `catch` route takes the run; empty if nothing catches it.
        to: Vec<String>,
        /// What its models took.
        spent: Spent,
    },
    /// A task waits for an answer.
    #[serde(rename = "question.asked")]
    QuestionAsked {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The key an answer names.
        key: String,
        /// What is asked.
        prompt: String,
        /// The JSON Schema of an answer.
        schema: Value,
    },
    /// A question was answered.
    #[serde(rename = "question.answered")]
    QuestionAnswered {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The key of the question.
        key: String,
        /// Who answered, if they said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// What a person said was taken in, between two steps.
    #[serde(rename = "said")]
    Said {
        /// The channel it was appended to.
        to: String,
        /// Who said it, if they said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Why it was dropped, if it does not fit the state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The run came to a node with `emits`.
    #[serde(rename = "emitted")]
    Emitted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The name the workflow gives the event.
        name: String,
        /// A sentence for people.
        message: String,
    },
    /// A step was committed and its checkpoint is durable.
    #[serde(rename = "step.committed")]
    StepCommitted {
        /// The step.
        step: Step,
        /// The nodes of the next step, in task order.
        next: Vec<NodeName>,
    },
    /// The run came to rest in this process.
    #[serde(rename = "run.finished")]
    RunFinished {
        /// How: done, failed, paused, limit or interrupted.
        status: Status,
        /// Why, if not done.
        reason: Option<String>,
        /// The committed steps.
        steps: u64,
        /// What the models took in all.
        spent: Spent,
    },
}

/// What a node says while it works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report {
    /// A model answered, or failed to.
    ModelCalled {
        /// The model.
        model: String,
        /// What the call took.
        spent: Spent,
        /// How long it took.
        ms: u64,
    },
    /// A tool was called by a model.
    ToolCalled {
        /// The tool.
        tool: String,
        /// Its input as JSON, cut if it is long.
        input: String,
        /// How long it took.
        ms: u64,
        /// Why it could not do what it was asked, if it could not. The model is told, and goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Something was overlooked that is worth a look.
    Warning {
        /// What.
        message: String,
    },
    /// Something happened that a watcher may want to know.
    Note {
        /// What.
        message: String,
    },
    /// The node does not run: a result is used that was computed before, from the same.
    Reused {
        /// When that was, in RFC 3339.
        kept: String,
    },
    /// A file was written outside the database.
    Artifact {
        /// Its path.
        path: String,
    },
}

/// What models took: tokens, calls, and money as far as prices are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Tokens and calls.
    #[serde(flatten)]
    pub usage: Usage,
    /// US dollars, or `None` if the price of a call is not known.
    pub cost_usd: Option<f64>,
}

impl Spent {
    /// Adds what something else took. The cost stays known only if both are.
    pub fn add(&mut self, other: &Self) {
        self.cost_usd = match (self.usage.calls, other.usage.calls) {
            (_, 0) => self.cost_usd,
            (0, _) => other.cost_usd,
            _ => self.cost_usd.zip(other.cost_usd).map(|(a, b)| a + b),
        };
        self.usage += other.usage;
    }

    /// The tokens of requests and replies.
    pub fn tokens(&self) -> u64 {
        self.usage.input_tokens.saturating_add(self.usage.output_tokens)
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A process works on it, or died while it did.
    Running,
    /// It reached its end.
    Done,
    /// It failed; what finished is kept.
    Failed,
    /// It waits for a person.
    Paused,
    /// A limit stopped it.
    Limit,
    /// Somebody stopped it.
    Interrupted,
}

impl Status {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Limit => "limit",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where a run sends its events. A full sink slows the run down rather than losing events.
#[derive(Clone, Debug, Default)]
pub struct EventSink(Vec<mpsc::Sender<Stamped>>);

/// The events of a run as they happen.
pub type Events = mpsc::Receiver<Stamped>;

impl EventSink {
    /// Adds a reader.
    ///
    /// It must be read while the run goes on: a reader that falls too far behind holds the run up.
    pub fn subscribe(&mut self) -> Events {
        let (sender, receiver) = mpsc::channel(SINK_CAPACITY);
        self.0.push(sender);
        receiver
    }

    /// Sends an event. A reader that went away is not an error: the run goes on unwatched.
    pub async fn send(&self, event: &Stamped) {
        for reader in &self.0 {
            drop(reader.send(event.clone()).await);
        }
    }
}
