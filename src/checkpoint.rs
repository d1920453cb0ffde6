//! What is saved of a run, and the trait of the places it is saved in.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::{
    event::{Spent, Stamped, Status},
    graph::{Failure, Hop, Input, Question, Via},
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    state::{Change, State, Update},
};

/// The version of the form in which runs are saved.
pub const FORMAT_VERSION: u32 = 1;

/// Where a run stands between two steps, apart from its state.
///
/// It says what comes next; nothing is inferred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The committed steps.
    pub step: Step,
    /// What runs in the next step, in the order its updates are applied; empty at the end.
    pub frontier: Vec<Activation>,
    /// For each waiting node, which of its predecessors have arrived.
    pub joins: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// The nodes that the run has come to and that let others go first, and by which way.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deferred: BTreeMap<NodeName, Via>,
    /// How often each node has run since its count was last reset.
    pub visits: BTreeMap<NodeName, u32>,
    /// What models took so far.
    pub spent: Spent,
    /// The time at work so far.
    pub worked_ms: u64,
    /// What each node that has limits of its own took so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub took: BTreeMap<NodeName, NodeTook>,
    /// The limit that was reached and routed, if one was; it is routed once.
    pub limit: Option<String>,
    /// Why the run is to fail, if a route led to failure.
    pub failure: Option<String>,
}

/// What all tasks of a node took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTook {
    /// What its models took.
    pub spent: Spent,
    /// The time they were at work.
    pub worked_ms: u64,
}

/// A node about to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    /// The node.
    pub node: NodeName,
    /// What it works on.
    #[serde(default)]
    pub input: Input,
    /// By which way the run came to it.
    pub via: Via,
}

/// A position with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where the run stands.
    pub position: Position,
    /// Its state.
    pub state: State,
}

/// What a step made of the one before: the new position, and only what changed of the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// Where the run stands now.
    pub position: Position,
    /// What the step changed.
    pub changes: Vec<Change>,
}

/// What became of a task, saved before its step is committed.
///
/// With these a resumed run does not repeat the tasks that had finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The attempt it is about.
    pub attempt: u32,
    /// The time it took, all attempts in this process.
    pub ms: u64,
    /// What its models took, all attempts in this process.
    pub spent: Spent,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It finished. This is final.
    Finished {
        /// What it writes.
        update: Update,
        /// Where it leads.
        hops: Vec<Hop>,
    },
    /// It failed, and a route caught the failure. This is final.
    Caught {
        /// Why it failed.
        failure: Failure,
        /// Where the route leads.
        hops: Vec<Hop>,
    },
    /// It was not to run, by its condition. This is final.
    Skipped {
        /// The condition that did not hold.
        condition: String,
        /// Where it leads.
        hops: Vec<Hop>,
    },
    /// It failed and nothing caught it; a resumed run tries it again.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It waits for an answer.
    Asked {
        /// The question.
        question: Question,
    },
    /// It was given an answer and goes on.
    Answered {
        /// The key of the question.
        key: String,
        /// The answer.
        answer: Value,
    },
}

impl Outcome {
    /// Whether the task never runs again.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::Caught { .. } | Self::Skipped { .. } => true,
            Self::Failed { .. } | Self::Asked { .. } | Self::Answered { .. } => false,
        }
    }
}

/// What is known of a run from its beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The identity.
    pub id: RunId,
    /// The name people call it by, unique in its database.
    pub name: String,
    /// The workflow it runs.
    pub workflow: String,
    /// When it was accepted, in RFC 3339.
    pub created: String,
    /// Whatever the program that started it needs to resume it, such as paths.
    pub origin: Value,
}

impl RunInfo {
    /// A run that begins now, under an id that sorts by time and serves as its name.
    pub fn new(workflow: impl Into<String>) -> Self {
        let id = ulid::Ulid::new().to_string();
        Self {
            id: RunId::parse(&id).expect("a ULID is made of letters and digits"),
            name: id.to_lowercase(),
            workflow: workflow.into(),
            created: jiff::Timestamp::now().to_string(),
            origin: Value::Null,
        }
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// What is known from its beginning.
    pub info: RunInfo,
    /// How it stands.
    pub status: Status,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The committed steps.
    pub step: Step,
}

/// A run as it was saved.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRun {
    /// What a list shows of it.
    pub summary: RunSummary,
    /// Where it stands.
    pub position: Position,
    /// The values of its channels.
    pub values: BTreeMap<ChannelName, Value>,
    /// The records of the step that is not committed yet, oldest first.
    pub records: Vec<TaskRecord>,
    /// The number of its last event.
    pub last_seq: u64,
}

/// A place that keeps runs.
///
/// When a method returns `Ok`, what it wrote survives the loss of this process. Each method is
/// one transaction. The events it is given are the ones that became true with it.
#[async_trait]
pub trait Checkpointer: fmt::Debug + Send + Sync {
    /// Accepts a run. Fails if its id or its name is taken.
    async fn create(
        &self,
        info: &RunInfo,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError>;

    /// Adds a record to the step that is not committed yet.
    async fn record(
        &self,
        run: &RunId,
        record: &TaskRecord,
        events: &[Stamped],
    ) -> Result<(), CheckpointError>;

    /// Saves a step.
    async fn commit(
        &self,
        run: &RunId,
        commit: &Commit,
        events: &[Stamped],
    ) -> Result<(), CheckpointError>;

    /// Saves that a run came to rest, or that it goes on.
    async fn set_status(
        &self,
        run: &RunId,
        status: Status,
        reason: Option<&str>,
        events: &[Stamped],
    ) -> Result<(), CheckpointError>;

    /// Loads a run.
    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError>;

    /// The run with that id or name.
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError>;

    /// All runs, the newest first.
    async fn list(&self) -> Result<Vec<RunSummary>, CheckpointError>;

    /// The events of a run after a number, oldest first.
    async fn events(&self, run: &RunId, after: u64) -> Result<Vec<Stamped>, CheckpointError>;

    /// Every record of a run in the order of its steps and, in a step, as they were made.
    async fn records(&self, run: &RunId) -> Result<Vec<TaskRecord>, CheckpointError>;

    /// The values of the channels after a step; zero is what the run began with.
    async fn values_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, CheckpointError>;
}

/// A run could not be saved or loaded. It rests where its last record is.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// The id or the name of a new run belongs to another.
    #[error("there is a run `{0}` already")]
    Exists(String),
    /// There is no such step.
    #[error("run `{run}` has no step {step}")]
    UnknownStep {
        /// The run.
        run: RunId,
        /// The step.
        step: Step,
    },
    /// What was saved cannot be understood.
    #[error("{what} of run `{run}` is damaged")]
    Damaged {
        /// The run.
        run: String,
        /// What cannot be understood.
        what: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database is not one of ours, or of a newer format.
    #[error("{path} cannot be used: {reason}")]
    Unusable {
        /// The database.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// What comes before is not what this process saved: another one has gone on with the run.
    #[error("could not {action}")]
    Overtaken {
        /// What was tried, such as "save step 3".
        action: String,
        /// Where the two met.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The storage underneath failed.
    #[error("could not {action}")]
    Storage {
        /// What was tried, such as "save step 3".
        action: String,
        /// The failure.
        source: Box<dyn Error + Send + Sync>,
    },
}
