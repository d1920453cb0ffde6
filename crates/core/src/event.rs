//! The events of a run: one vocabulary for the terminal, the log, a stream and a page.
//!
//! The driver gives every event a number that increases by one. All readers get the same data.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::usage::TokenUsage;
use jiff::Timestamp;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::id::{NodeName, RunId, Step, TaskId};

/// The version of the written form of events.
pub const EVENT_VERSION: u32 = 1;

/// The target of the `tracing` events, at the level trace, that have prompts, answers, and the arguments and results of tools.
/// They are made only if a subscriber enables this target.
pub const CONTENT_TARGET: &str = "graphrun::content";

/// The number of events by which a reader may fall behind before the run waits for it.
const SINK_CAPACITY: usize = 1024;

/// An event with its number in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEvent {
    /// The version of this form.
    pub v: u32,
    /// The number of the event in its run. Numbers start at one and have no gaps.
    pub seq: u64,
    /// The time of the event, in RFC 3339.
    pub ts: String,
    /// The run.
    pub run: RunId,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// A line of the output of a run: an event or, between events, a piece of a model's answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OutputLine {
    /// An event, which has a number.
    Event(RunEvent),
    /// A piece of an answer, which has none.
    Delta(DeltaLine),
}

/// A piece of a model's answer with its `type`, as events have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum DeltaLine {
    /// A piece of an answer.
    #[serde(rename = "message.delta")]
    Message(MessageDelta),
    /// The end of the output for a run that no event ends here.
    #[serde(rename = "run.left")]
    Left(LeftRun),
}

/// A run as a process leaves it without an event: its storage failed, or there was nothing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftRun {
    /// The id of the run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// Its last known status.
    pub status: Status,
    /// The reason.
    pub reason: Option<String>,
    /// The command that continues it.
    pub resume: Option<String>,
}

/// Returns the JSON Schema of an [`OutputLine`], for programs that read the output of a run.
///
/// Later versions of this form may add kinds of lines, and keys to each.
///
/// ```
/// let schema = graphrun_core::event::json_schema();
/// assert!(schema["$defs"]["RunEvent"]["required"].as_array().unwrap().contains(&"seq".into()));
/// ```
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<OutputLine>().to_value()
}

/// An event in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    /// A run was accepted and saved.
    #[serde(rename = "run.started")]
    RunStarted {
        /// The name of the run.
        name: String,
        /// The workflow it runs.
        workflow: String,
    },
    /// This process continues a saved run.
    #[serde(rename = "run.resumed")]
    RunResumed {
        /// The last committed step.
        step: Step,
    },
    /// A new turn of a thread began.
    #[serde(rename = "turn.started")]
    TurnStarted {
        /// The number of the turn, from two: the first one is the start of the run.
        turn: u64,
        /// The number of this step.
        step: Step,
    },
    /// The workflow has changed since the run was started, without breaking the run.
    #[serde(rename = "workflow.changed")]
    WorkflowChanged {
        /// The changes, in words.
        changes: Vec<String>,
    },
    /// The run was migrated to a workflow with changes that break it.
    #[serde(rename = "workflow.migrated")]
    WorkflowMigrated {
        /// The number of this step.
        step: Step,
        /// The name of the new workflow.
        workflow: String,
        /// The nodes and fields with a new name, as `old → new`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        mapped: Vec<String>,
        /// The nodes and fields that were dropped.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dropped: Vec<String>,
        /// The nodes whose tasks start again, by their old names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<String>,
        /// The channels that were set.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set: Vec<String>,
        /// The nodes of the next step, in task order.
        next: Vec<NodeName>,
    },
    /// The run was forked from a checkpoint of another run.
    #[serde(rename = "run.forked")]
    RunForked {
        /// The other run.
        from: RunId,
        /// The step of the checkpoint.
        step: Step,
        /// The channels with a changed value.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set: Vec<String>,
    },
    /// The state of a stopped run was changed.
    #[serde(rename = "state.updated")]
    StateUpdated {
        /// The number of this step.
        step: Step,
        /// The node in whose place the update was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
        /// The channels that were written or cleared.
        writes: Vec<String>,
    },
    /// A task started an attempt.
    #[serde(rename = "task.started")]
    TaskStarted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt, from one.
        attempt: u32,
        /// How often the node has run since its count was last reset, including this visit.
        visit: u32,
        /// The bound of `visit`, if the node has one.
        max_visits: Option<u32>,
    },
    /// A node sent a report.
    #[serde(rename = "task.reported")]
    TaskReported {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The report.
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
        /// The error.
        error: String,
        /// The delay before the next attempt.
        wait_ms: u64,
    },
    /// A task waits for a time.
    #[serde(rename = "timer.set")]
    TimerSet {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The key of the wait, unique in the task.
        key: String,
        /// The time at which it ends, in any process.
        #[schemars(with = "String")]
        wake: Timestamp,
        /// Why the task waits, if its nested run does.
        reason: Option<String>,
    },
    /// A task saved the result of a part of its work, which does not run again.
    #[serde(rename = "memo.saved")]
    MemoSaved {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The name of the part.
        name: String,
    },
    /// An attempt was aborted because a limit of the run was reached. It does not count as failed.
    #[serde(rename = "task.aborted")]
    TaskAborted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt, which starts again if the run continues.
        attempt: u32,
        /// The elapsed time of the task, from the start of its first attempt.
        ms: u64,
        /// The usage of its models.
        usage: Usage,
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
        /// The elapsed time, from the start of the first attempt.
        ms: u64,
        /// The channels it wrote.
        writes: Vec<String>,
        /// Its targets.
        to: Vec<String>,
        /// The usage of its models.
        usage: Usage,
    },
    /// A task finished, but a route of its node failed. Its result is kept; when the run continues,
    /// only the route is tried again.
    #[serde(rename = "task.undecided")]
    TaskUndecided {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The attempt that succeeded.
        attempt: u32,
        /// The elapsed time, from the start of the first attempt.
        ms: u64,
        /// The channels it wrote.
        writes: Vec<String>,
        /// The kind of failure of the route.
        kind: String,
        /// The error of the route.
        error: String,
        /// The usage of its models.
        usage: Usage,
    },
    /// A task was skipped by the condition of its node.
    #[serde(rename = "task.skipped")]
    TaskSkipped {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The condition, which was false.
        condition: String,
        /// Its targets.
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
        /// The elapsed time, from the start of the first attempt.
        ms: u64,
        /// The kind of failure, as `catch` names it.
        kind: String,
        /// The error.
        error: String,
        /// The target of the `catch` route; empty if no route catches the failure.
        to: Vec<String>,
        /// The usage of its models.
        usage: Usage,
    },
    /// A task waits for an answer.
    #[serde(rename = "question.asked")]
    QuestionAsked {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The key that an answer names.
        key: String,
        /// The text of the question.
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
        /// The name of the sender, if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A message from a person was taken in, between two steps.
    #[serde(rename = "message.received")]
    MessageReceived {
        /// The channel it was appended to.
        to: String,
        /// The name of the sender, if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Why the message was dropped, if it does not fit the state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The run reached a node with `emits`.
    #[serde(rename = "task.emitted")]
    TaskEmitted {
        /// The task.
        task: TaskId,
        /// Its node.
        node: NodeName,
        /// The name of the event in the workflow.
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
    /// The run stopped in this process.
    #[serde(rename = "run.finished")]
    RunFinished {
        /// The run status: done, failed, paused, limit or interrupted.
        status: Status,
        /// The reason, if the run is not done or has reached a limit.
        reason: Option<String>,
        /// The committed steps.
        steps: u64,
        /// The usage of all models together.
        usage: Usage,
    },
}

impl Event {
    /// Returns an event about the work of a task of a nested run, with the name of the outer node before that of the
    /// node: `review.lint`. Returns `None` for other events.
    pub fn within(mut self, user: &NodeName) -> Option<Self> {
        match &mut self {
            Self::TaskReported { node, report, .. } => {
                *node = node.within(user);
                if let Report::Nested { event } = report {
                    **event = Self::clone(event).within(user)?;
                }
            }
            Self::TaskStarted { node, .. }
            | Self::TaskRetrying { node, .. }
            | Self::TimerSet { node, .. }
            | Self::TaskAborted { node, .. }
            | Self::TaskFinished { node, .. }
            | Self::TaskUndecided { node, .. }
            | Self::TaskSkipped { node, .. }
            | Self::TaskFailed { node, .. }
            | Self::TaskEmitted { node, .. } => *node = node.within(user),
            _ => return None,
        }
        Some(self)
    }
}

/// A report of a node during its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report {
    /// A model call succeeded or failed.
    ModelCall {
        /// The full name of the model that answered.
        model: String,
        /// The usage of the call.
        usage: Usage,
        /// The elapsed time.
        ms: u64,
    },
    /// A model called a tool.
    ToolCall {
        /// The tool.
        tool: String,
        /// The input as JSON, truncated if it is long.
        input: String,
        /// The elapsed time.
        ms: u64,
        /// The error of the tool, if it failed. The model receives it and continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A problem that does not stop the node, but deserves attention.
    Warning {
        /// The text.
        message: String,
    },
    /// Information for watchers.
    Note {
        /// The text.
        message: String,
    },
    /// The node did not run: a cached result for the same inputs is used.
    CacheHit {
        /// When the result was computed, in RFC 3339.
        computed_at: String,
    },
    /// A value of the node's own, for programs that stream the run.
    Custom {
        /// The value.
        value: Value,
    },
    /// A file was written outside the database.
    Artifact {
        /// Its path.
        path: String,
    },
    /// An event in the nested run of the task, about the work of one of its tasks.
    Nested {
        /// The event. Its node has the name of this one before its own: `review.lint`.
        event: Box<Event>,
    },
}

impl Report {
    /// Returns the usage of models that it reports, also that of a nested run.
    pub fn usage(&self) -> Option<&Usage> {
        match self {
            Self::ModelCall { usage, .. } => Some(usage),
            Self::Nested { event } => match event.as_ref() {
                Event::TaskReported { report, .. } => report.usage(),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The usage of models: tokens, calls, and money where prices are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens and calls.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// US dollars, or `None` if the price of a call is unknown.
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Adds other usage. The cost stays known only if both are known.
    pub fn add(&mut self, other: &Self) {
        self.cost_usd = match (self.tokens.calls, other.tokens.calls) {
            (_, 0) => self.cost_usd,
            (0, _) => other.cost_usd,
            _ => self.cost_usd.zip(other.cost_usd).map(|(a, b)| a + b),
        };
        self.tokens += other.tokens;
    }

    /// Returns the tokens of requests and replies.
    pub fn total_tokens(&self) -> u64 {
        self.tokens.input_tokens.saturating_add(self.tokens.output_tokens)
    }
}

/// The run status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A process owns it, or died while it owned it.
    Running,
    /// It reached its end.
    Done,
    /// It failed; the results of finished tasks are kept.
    Failed,
    /// It waits for a person: for an answer, or at a breakpoint.
    Paused,
    /// A limit stopped it.
    Limit,
    /// It stopped before its end: from outside, by a full disk, or after a fork, an update or a
    /// migration.
    Interrupted,
}

impl Status {
    /// Returns the word for it.
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

/// A piece of a model's answer, as it arrives.
///
/// It is no event: it has no number, it is not saved, and a reader that falls behind misses some. The answer itself is
/// in the events and the state, once it is whole. An attempt that fails has sent the pieces of an answer that is never
/// used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageDelta {
    /// The version of this form.
    pub v: u32,
    /// The time, in RFC 3339.
    pub ts: String,
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskId,
    /// Its node; of a nested run, with the name of the node that runs its graph before it.
    pub node: NodeName,
    /// The attempt.
    pub attempt: u32,
    /// The number of the answer. All pieces of an answer have it, and no other answer of the process has it.
    pub message: u64,
    /// The model, by its name in the workflow.
    pub model: String,
    /// Whether it is a part of the answer or of the reasoning before it.
    pub part: MessagePart,
    /// The text. The texts of a part, joined, are that part.
    pub text: String,
    /// The number of pieces before this one that the reader missed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The part of a model's message that a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessagePart {
    /// The answer.
    Text,
    /// The reasoning before it.
    Reasoning,
}

/// The pieces of answers, as a reader gets them.
#[derive(Debug)]
pub struct Deltas(mpsc::Receiver<MessageDelta>);

impl Deltas {
    /// Returns the next piece; `None` after the run.
    ///
    /// # Cancel safety
    /// Loses nothing.
    pub async fn recv(&mut self) -> Option<MessageDelta> {
        self.0.recv().await
    }

    /// Returns the next piece if one is there.
    pub fn try_recv(&mut self) -> Option<MessageDelta> {
        self.0.try_recv().ok()
    }
}

/// The end of [`Deltas`] at the run.
#[derive(Clone, Debug)]
struct DeltaSender {
    deltas: mpsc::Sender<MessageDelta>,
    missed: Arc<AtomicU64>,
}

impl DeltaSender {
    /// Sends a piece if there is room.
    fn send(&self, mut delta: MessageDelta) {
        delta.missed = self.missed.swap(0, Ordering::Relaxed);
        let missed = delta.missed + 1;
        if self.deltas.try_send(delta).is_err() {
            self.missed.fetch_add(missed, Ordering::Relaxed);
        }
    }
}

/// The receivers of the events of a run. A full sink slows the run down and loses no events.
#[derive(Clone, Debug, Default)]
pub struct EventSink {
    events: Vec<mpsc::Sender<RunEvent>>,
    deltas: Vec<DeltaSender>,
}

/// The events of a run as they occur.
pub type Events = mpsc::Receiver<RunEvent>;

impl EventSink {
    /// Adds a reader.
    ///
    /// Read from it while the run is active: a reader that falls too far behind blocks the run.
    pub fn subscribe(&mut self) -> Events {
        let (sender, receiver) = mpsc::channel(SINK_CAPACITY);
        self.events.push(sender);
        receiver
    }

    /// Adds a reader of the pieces of models' answers. A reader that falls behind by more than 1,024 pieces misses the
    /// next ones, and never slows the run down.
    pub fn subscribe_deltas(&mut self) -> Deltas {
        let (deltas, receiver) = mpsc::channel(SINK_CAPACITY);
        self.deltas.push(DeltaSender { deltas, missed: Arc::default() });
        Deltas(receiver)
    }

    /// Returns whether it has readers of the pieces of answers.
    pub fn wants_deltas(&self) -> bool {
        !self.deltas.is_empty()
    }

    /// Sends a piece of an answer to the readers that have room for it.
    pub fn send_delta(&self, delta: &MessageDelta) {
        for reader in &self.deltas {
            reader.send(delta.clone());
        }
    }

    /// Returns whether no reader takes events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Sends an event. A closed reader is not an error: the run continues without it.
    pub async fn send(&self, event: &RunEvent) {
        for reader in &self.events {
            drop(reader.send(event.clone()).await);
        }
    }
}
