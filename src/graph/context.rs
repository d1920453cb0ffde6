//! What a node can see and do while it runs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Failure, NodeError, Question,
    memo::{Memo, Memos},
};
use crate::{
    event::{Report, Spent},
    id::{NodeName, RunId, TaskId},
    state::State,
};

/// What started a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// An edge: the node works on the state.
    #[default]
    State,
    /// A [`Dispatch`](super::Dispatch): the node works on this value.
    Value(Value),
}

/// By which way a run came to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Via {
    /// The run starts here.
    #[default]
    Start,
    /// An edge, a route or a dispatch.
    Then {
        /// The node it leaves.
        node: NodeName,
    },
    /// A bound was used up, and this is where the run goes then.
    Exhausted {
        /// The node whose bound it is.
        node: NodeName,
        /// The bound.
        max_visits: u32,
    },
    /// A failure was caught.
    Caught {
        /// The node that failed.
        node: NodeName,
        /// Why.
        failure: Failure,
    },
    /// A limit of the run was reached.
    Limit {
        /// Which, in words.
        error: String,
    },
}

/// A task and its node as they were called when it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The task.
    pub task: TaskId,
    /// The node.
    pub node: NodeName,
}

/// What a node can see and do while it runs.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// The run.
    pub run: RunId,
    /// The task, the same across retries and resumptions.
    pub task: TaskId,
    /// The node.
    pub node: NodeName,
    /// What both were called when the task began, if the run was carried over to another workflow
    /// since.
    pub began: Option<Began>,
    /// The attempt, from one; only failures count, not crashes.
    pub attempt: u32,
    /// How often each node has run since its count was last reset, this time included.
    pub visits: Arc<BTreeMap<NodeName, u32>>,
    /// The bound of this node's visits.
    pub max_visits: Option<u32>,
    /// The state at the start of the step.
    pub state: Arc<State>,
    /// What started the node.
    pub input: Input,
    /// By which way the run came here.
    pub via: Via,
    /// Cancelled when the run should stop at once.
    pub cancel: CancellationToken,
    /// The answers this task has been given, by key.
    pub answers: BTreeMap<String, Value>,
    /// What this task has noted down of its work; see [`NodeContext::memo`].
    pub memos: Memos,
    /// Tells watchers what the node does.
    pub reporter: Reporter,
}

/// Tells watchers what a node does, and counts what its models took.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    spent: Arc<Mutex<Spent>>,
    attempt: Option<Speaker>,
    heard: Arc<Mutex<Option<Instant>>>,
}

/// An attempt at a task, as it speaks to whoever drives its run.
#[derive(Clone, Debug)]
struct Speaker {
    task: TaskId,
    number: u32,
    started: Instant,
    to: mpsc::Sender<Word>,
}

/// Something that an attempt says.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) task: TaskId,
    /// Which attempt at the task it is.
    pub(crate) attempt: u32,
    pub(crate) said: Said,
}

/// What an attempt says.
#[derive(Debug)]
pub(crate) enum Said {
    /// To watchers.
    Report(Report),
    /// To be saved.
    Memo(Memo),
    /// That it is about to spend something; told if it may.
    Spending(oneshot::Sender<()>),
}

impl Input {
    /// The value that was dispatched, if one was.
    pub fn item(&self) -> Option<&Value> {
        match self {
            Self::State => None,
            Self::Value(item) => Some(item),
        }
    }
}

impl NodeContext {
    /// Asks a person and returns the answer once the run is resumed with one.
    ///
    /// The first call ends the node; pass the error on with `?`. On resumption the node starts
    /// over and this call returns the answer. Answers are found by key, so that a node may ask
    /// several questions in any order; null is an answer.
    ///
    /// # Errors
    ///
    /// Fails with the question itself while there is no answer.
    #[doc(alias = "interrupt")]
    pub fn ask<T: DeserializeOwned>(&self, question: Question) -> Result<T, NodeError> {
        match self.answers.get(&question.key) {
            Some(answer) => Ok(T::deserialize(answer)?),
            None => Err(NodeError::Ask(Box::new(question))),
        }
    }

    /// How often this node has run since its count was last reset, this time included.
    pub fn visit(&self) -> u32 {
        self.visits.get(&self.node).copied().unwrap_or(1)
    }

    /// A key that is the same whenever this task runs, for services that take one.
    pub fn idempotency_key(&self) -> String {
        let now = || Began { task: self.task, node: self.node.clone() };
        let Began { task, node } = self.began.clone().unwrap_or_else(now);
        format!("{}/{}/{node}/{}", self.run, task.step, task.index)
    }

    /// Says that the node is still at work, where it has nothing to report: only silence counts
    /// towards an idle timeout.
    #[doc(alias = "heartbeat")]
    pub fn beat(&self) {
        self.reporter.beat();
    }

    /// Tells watchers something; see [`Report`].
    pub async fn report(&self, report: Report) {
        self.reporter.report(report).await;
    }

    /// Waits until the run may spend something on models, to be called before each call of one. It
    /// may at once, unless what is [reported](Report::ModelCalled) of all its tasks has reached a
    /// limit of tokens or cost: then the task is cut off here, and begins again once the run has
    /// more. What is to survive that is a [memo](NodeContext::memo).
    ///
    /// # Cancel safety
    ///
    /// It may be dropped at any time.
    pub async fn within_budget(&self) {
        self.reporter.within_budget().await;
    }
}

impl Speaker {
    async fn say(&self, said: Said) -> Result<(), mpsc::error::SendError<Word>> {
        self.to.send(Word { task: self.task, attempt: self.number, said }).await
    }
}

impl Reporter {
    /// Speaks for the attempt with this number, which begins now.
    pub(crate) fn new(task: TaskId, number: u32, to: mpsc::Sender<Word>) -> Self {
        let attempt = Some(Speaker { task, number, started: Instant::now(), to });
        Self { attempt, ..Self::default() }
    }

    /// Tells watchers something. What a model call took is counted even if nobody watches.
    pub async fn report(&self, report: Report) {
        self.beat();
        if let Report::ModelCalled { spent, .. } = &report {
            self.spent.lock().unwrap_or_else(PoisonError::into_inner).add(spent);
        }
        if let Some(attempt) = &self.attempt {
            // Where nobody listens any more, nobody needs to hear it.
            drop(attempt.say(Said::Report(report)).await);
        }
    }

    /// Has a result saved, and waits until it is. Without a run there is nothing to save it for.
    pub(super) async fn note(&self, name: &str, value: Value) -> Result<(), NodeError> {
        self.beat();
        let Some(attempt) = &self.attempt else { return Ok(()) };
        let (saved, is_saved) = oneshot::channel();
        let ms = u64::try_from(attempt.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let memo = Memo { name: name.to_owned(), value, ms, spent: self.spent(), saved };
        drop(attempt.say(Said::Memo(memo)).await);
        let lost = |_| NodeError::transient(format!("the run has ended before `{name}` was saved"));
        is_saved.await.map_err(lost)
    }

    async fn within_budget(&self) {
        self.beat();
        let Some(attempt) = &self.attempt else { return };
        let (may, is_told) = oneshot::channel();
        drop(attempt.say(Said::Spending(may)).await);
        if is_told.await.is_err() {
            // Nobody is to go on here: it is about to be cut off.
            std::future::pending::<()>().await;
        }
    }

    /// Says that its node is still at work.
    pub fn beat(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// When its node was last heard of, if it was.
    pub(crate) fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been reported as taken so far.
    pub fn spent(&self) -> Spent {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Via {
    /// The node that led here.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Start | Self::Limit { .. } => None,
            Self::Then { node } | Self::Exhausted { node, .. } | Self::Caught { node, .. } => {
                Some(node)
            }
        }
    }

    /// The word a prompt sees.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Then { .. } => "then",
            Self::Exhausted { .. } => "exhausted",
            Self::Caught { .. } => "caught",
            Self::Limit { .. } => "limit",
        }
    }

    /// What went wrong, if something did.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Start | Self::Then { .. } => None,
            Self::Exhausted { node, max_visits } => {
                Some(format!("`{node}` used up its {max_visits} visits"))
            }
            Self::Caught { failure, .. } => Some(failure.message.clone()),
            Self::Limit { error } => Some(error.clone()),
        }
    }
}
