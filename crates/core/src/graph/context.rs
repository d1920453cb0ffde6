//! The context of a node: everything that it can read and do while it runs.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    NodeError, ProvidedValues, Question, RunFacts, SavedValues, Trigger, Visits, memo::Memo,
};
use crate::{
    event::{MessagePart, Report, Usage},
    id::{NodeName, RunId, TaskId},
    state::{State, to_json, with_whole_numbers},
};

/// How often a task that waits for a permit shows that it is not idle.
const WAIT_BEAT: Duration = Duration::from_secs(1);

/// The input of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// An edge started the task: the node works on the state.
    #[default]
    State,
    /// A [`Dispatch`](super::Dispatch) started the task: the node works on this value.
    Value(Arc<Value>),
}

/// A task and its node under the names that they had when the task began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalTask {
    /// The task.
    pub task: TaskId,
    /// The node.
    pub node: NodeName,
}

/// The full name of the node that runs a nested run, which its nodes are provided with.
#[derive(Clone, Debug)]
pub struct OuterNode(pub NodeName);

/// The context of a node: everything that it can read and do while it runs.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// The run.
    pub run: RunId,
    /// The task, the same across retries and resumptions.
    pub task: TaskId,
    /// The node.
    pub node: NodeName,
    /// The names of both when the task began, if a migration of the run or messages to it have renamed them since.
    pub original: Option<OriginalTask>,
    /// The attempt, from one. A failure begins another one; a crash, an answer and the end of a
    /// [wait](NodeContext::wait_for) do not.
    pub attempt: u32,
    /// How often each node has run since its count was last reset, including this visit.
    pub visits: Arc<Visits>,
    /// The bound of this node's visits.
    pub max_visits: Option<u32>,
    /// When the attempt began, as the rules of the run know it: never before the end of a wait that it follows.
    pub began: Timestamp,
    /// The longest duration of the attempt, if it is limited.
    pub timeout: Option<Duration>,
    /// The longest time of the attempt without a report or a heartbeat, if it is limited.
    pub idle_timeout: Option<Duration>,
    /// The state at the start of the step.
    pub state: Arc<State>,
    /// The input of the task.
    pub input: Input,
    /// The trigger of the task.
    pub trigger: Trigger,
    /// Cancelled when the attempt should abort.
    pub cancel: Cancel,
    /// The answers this task has been given, by key.
    pub answers: SavedValues,
    /// The results of parts that this task has saved; see [`NodeContext::memo`].
    pub memos: SavedValues,
    /// Reports the node's actions to watchers.
    pub reporter: Reporter,
    /// The facts of the run at the start of the step.
    pub facts: Arc<RunFacts>,
    /// The values that the engine and the run provide; see [`NodeContext::get`].
    pub provided: ProvidedValues,
}

/// Reports a node's actions to watchers, and counts its model usage.
#[derive(Clone, Debug, Default)]
pub struct Reporter(Arc<SharedAttempt>);

/// The token that is cancelled when an attempt should abort.
///
/// It is a [`CancellationToken`], made when it is first used: most nodes never ask for it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<SharedAttempt>);

/// The connection of all attempts of a run to its driver.
#[derive(Debug)]
pub struct DriverLink {
    /// The messages to the driver. They are boxed because a channel keeps room for 32 of them in each run.
    pub messages: mpsc::Sender<Box<AttemptMessage>>,
    /// Cancelled when the run should abort.
    pub cancel: CancellationToken,
    /// The readers of the pieces of models' answers, if there are any.
    pub deltas: Option<Arc<dyn DeltaReader>>,
    /// Wakes the driver when a permitted call has ended.
    pub call_ended: Notify,
    /// The permits of outer runs for calls that have ended.
    pub ended_calls: Mutex<Vec<CallPermit>>,
    /// The attempt whose nested run the driver drives. Each sign of work in the run counts for the attempt, too.
    pub outer: Option<Reporter>,
}

/// Takes the pieces of models' answers, without waiting.
pub trait DeltaReader: fmt::Debug + Send + Sync {
    /// Takes a piece of an answer of a task.
    fn take(&self, task: TaskId, attempt: u32, piece: MessagePiece);

    /// Takes no more pieces, and ends the streams of its readers. Code of a node may outlive its run.
    fn close(&self);
}

/// A piece of a model's answer, as a node reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagePiece {
    /// The node.
    pub node: NodeName,
    /// The number of the answer, unique in the process.
    pub message: u64,
    /// The model, by its name in the workflow.
    pub model: String,
    /// The part of the message.
    pub part: MessagePart,
    /// The text.
    pub text: String,
}

/// The part of an attempt that its node, its reporter and its supervision share.
#[derive(Debug, Default)]
struct SharedAttempt {
    attempt: Option<AttemptLink>,
    cancel: OnceLock<CancellationToken>,
    notes: Mutex<AttemptNotes>,
}

/// An attempt at a task, with its connection to the driver of its run.
#[derive(Debug)]
struct AttemptLink {
    task: TaskId,
    number: u32,
    started: Instant,
    driver: Arc<DriverLink>,
}

/// The facts about an attempt that change while it runs.
#[derive(Debug, Default)]
struct AttemptNotes {
    usage: Usage,
    last_report: Option<Instant>,
    /// The keys of the questions whose answers the attempt has read.
    asked: BTreeSet<String>,
    /// The names of the memos that the attempt has used.
    memos: BTreeSet<String>,
    /// The names of the grants that the attempt has made.
    grants: BTreeSet<String>,
}

/// A message of an attempt to the driver.
#[derive(Debug)]
pub struct AttemptMessage {
    /// The task.
    pub task: TaskId,
    /// The number of the attempt.
    pub attempt: u32,
    /// The content of the message.
    pub content: MessageContent,
}

/// The content of a message of an attempt.
#[derive(Debug)]
pub enum MessageContent {
    /// An event for watchers.
    Report(Report),
    /// A result to save.
    Memo(Memo),
    /// The attempt is about to call a model; the driver answers when it may.
    PlannedCall(PlannedCall),
}

/// A model call that waits for its permit.
#[derive(Debug)]
pub struct PlannedCall {
    /// The least usage of the call.
    pub usage_min: Usage,
    /// Whether the call has a permit already, and only asks whether the limits still have room for it.
    pub is_permitted: bool,
    /// The permit so far: each driver that admits the call adds a part.
    permit: CallPermit,
    /// Receives the permit. It is dropped if the call does not fit into the limits.
    answer: oneshot::Sender<CallPermit>,
}

/// The permit for one call of a model. The least usage of the call counts as used until the permit is dropped.
#[derive(Debug, Default)]
#[must_use = "hold the permit until the call has ended and its usage is reported"]
pub struct CallPermit {
    /// One part for each driver: that of the run, and then those of the runs around it.
    parts: VecDeque<PermitPart>,
}

/// The reservation of a call at one driver.
#[derive(Debug)]
struct PermitPart {
    reservation: Arc<()>,
    driver: Arc<DriverLink>,
}

impl PlannedCall {
    /// Adds the permit of a driver. The reservation is unique until the call has ended.
    pub fn admit(&mut self, driver: &Arc<DriverLink>) -> Weak<()> {
        let reservation = Arc::new(());
        let held = Arc::downgrade(&reservation);
        let driver = Arc::clone(driver);
        self.permit.parts.push_back(PermitPart { reservation, driver });
        held
    }

    /// Returns whether the task no longer waits for the permit.
    pub fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }

    /// Gives the task its permit.
    pub fn permit(self) {
        // A task that was dropped meanwhile no longer waits.
        drop(self.answer.send(self.permit));
    }
}

impl Drop for CallPermit {
    /// Ends the reservation at the first driver, and leaves the rest of the permit to it: the driver of an outer run learns
    /// the usage of the call from this one.
    fn drop(&mut self) {
        let Some(PermitPart { reservation, driver }) = self.parts.pop_front() else { return };
        drop(reservation);
        let rest = Self { parts: std::mem::take(&mut self.parts) };
        if !rest.parts.is_empty() {
            driver.ended_calls.lock().unwrap_or_else(PoisonError::into_inner).push(rest);
        }
        driver.call_ended.notify_one();
    }
}

impl DriverLink {
    /// Takes the permits of outer runs for calls that have ended. They are dropped when the outer runs have the usage of the
    /// calls.
    pub fn take_ended_calls(&self) -> Vec<CallPermit> {
        std::mem::take(&mut *self.ended_calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Input {
    /// Returns the dispatched value, if there is one.
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
    /// The first call ends the node; pass the error on with `?`. After the answer the node starts
    /// from its beginning, and this call returns the answer. Answers are found by key, so a node
    /// may ask several questions in any order, each key once in an attempt. `null` is an answer.
    ///
    /// A question without a schema gets that of `T`, so that an answer of another form is refused when it is
    /// given. If the node fails with the answer, a new answer to the question replaces it.
    ///
    /// # Errors
    ///
    /// Returns the question itself as an error while there is no answer. Fails if the answer does
    /// not fit `T`, and if this attempt has used the key before: the answer would be the same.
    #[doc(alias = "interrupt")]
    pub fn ask<T: DeserializeOwned + JsonSchema>(
        &self,
        question: Question,
    ) -> Result<T, NodeError> {
        match self.answers.get(&question.key) {
            Some(_) if !self.reporter.asks_first(&question.key) => {
                let key = &question.key;
                Err(NodeError::permanent(format!(
                    "the question `{key}` has its answer already; ask again under another key, \
                     such as `{key}-2`"
                )))
            }
            // A whole number may be written with a fraction of zero, which serde does not read as an integer.
            Some(answer) => T::deserialize(answer).or_else(|error| {
                T::deserialize(with_whole_numbers(answer)).map_err(|_| error.into())
            }),
            None => Err(NodeError::Ask(Box::new(question.for_type::<T>()))),
        }
    }

    /// Returns the value of this type that the engine or the run provides, such as a client.
    ///
    /// # Errors
    ///
    /// Fails when none is provided.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, NodeError> {
        self.provided.get().ok_or_else(|| {
            let wanted = std::any::type_name::<T>();
            NodeError::permanent(format!(
                "no `{wanted}` is provided; give it by `provide` to the engine or the run"
            ))
        })
    }

    /// Emits a value to the reader of the run's stream. It is saved with the events of the run.
    ///
    /// # Errors
    ///
    /// Fails when the value cannot be written as JSON.
    #[doc(alias = "get_stream_writer")]
    pub async fn emit<T: Serialize + Sync + ?Sized>(&self, value: &T) -> Result<(), NodeError> {
        let value = to_json(value)?;
        self.report(Report::Custom { value }).await;
        Ok(())
    }

    /// Returns the time until the timeout of the attempt, if it has one.
    pub fn time_left(&self) -> Option<Duration> {
        let elapsed = self.reporter.started().map(|it| it.elapsed()).unwrap_or_default();
        self.timeout.map(|it| it.saturating_sub(elapsed))
    }

    /// Returns how often this node has run since its count was last reset, including this visit.
    pub fn visit(&self) -> u32 {
        self.visits.get(self.node.as_str()).unwrap_or(1)
    }

    /// Returns the name of the node in the whole run: in a nested run, behind that of the node that runs it, such as
    /// `review.write`.
    pub fn full_name(&self) -> NodeName {
        match self.provided.get::<OuterNode>() {
            Some(outer) => self.node.within(&outer.0),
            None => self.node.clone(),
        }
    }

    /// Returns a key that is the same each time this task runs, for services that accept such a
    /// key.
    pub fn idempotency_key(&self) -> String {
        let now = || OriginalTask { task: self.task, node: self.node.clone() };
        let OriginalTask { task, node } = self.original.clone().unwrap_or_else(now);
        format!("{}/{}/{node}/{}", self.run, task.step, task.index)
    }

    /// Reports that the node still works, when it has no event to report. Only the time without a
    /// report or a heartbeat counts towards an idle timeout.
    pub fn heartbeat(&self) {
        self.reporter.heartbeat();
    }

    /// Sends a report to watchers; see [`Report`].
    pub async fn report(&self, report: Report) {
        self.reporter.report(report).await;
    }

    /// Waits until the run may make more calls and use more tokens or money. Call it before each model call. It returns
    /// at once unless the [reported](Report::ModelCall) usage of all tasks of the run has reached
    /// a limit of calls, tokens or cost. In that case the driver aborts the task here, and the task starts
    /// again once the run has a higher limit. Save results that must survive this as a
    /// [memo](NodeContext::memo).
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn within_budget(&self) {
        let _nothing_is_reserved = self.within_budget_for(Usage::default()).await;
    }

    /// As [`within_budget`](Self::within_budget), for a call with at least this usage. It returns only if the rest of each
    /// limit suffices, so that no money is spent on a call beyond it. Until the permit is dropped, that usage is reserved:
    /// a call that fits into the limits only without it waits. So drop the permit when the usage of the call is reported,
    /// before you plan the next call.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn within_budget_for(&self, usage_min: Usage) -> CallPermit {
        self.reporter.within_budget(usage_min).await
    }
}

impl AttemptLink {
    async fn send(
        &self,
        content: MessageContent,
    ) -> Result<(), mpsc::error::SendError<Box<AttemptMessage>>> {
        let message = AttemptMessage { task: self.task, attempt: self.number, content };
        self.driver.messages.send(Box::new(message)).await
    }
}

impl SharedAttempt {
    fn notes(&self) -> MutexGuard<'_, AttemptNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancel {
    /// Returns the token, for code that keeps it.
    pub fn token(&self) -> CancellationToken {
        CancellationToken::clone(self)
    }
}

impl Deref for Cancel {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        let driver = self.0.attempt.as_ref().map(|it| &it.driver);
        self.0.cancel.get_or_init(|| {
            driver.map_or_else(CancellationToken::new, |it| it.cancel.child_token())
        })
    }
}

impl Reporter {
    /// Makes a reporter for the attempt with this number, which begins now.
    pub fn new(task: TaskId, number: u32, driver: Arc<DriverLink>) -> Self {
        let attempt = Some(AttemptLink { task, number, started: Instant::now(), driver });
        Self(Arc::new(SharedAttempt { attempt, ..SharedAttempt::default() }))
    }

    /// Returns the token that aborts the attempt.
    pub fn cancel(&self) -> Cancel {
        Cancel(Arc::clone(&self.0))
    }

    /// Returns when the attempt began; `None` without a run.
    pub fn started(&self) -> Option<Instant> {
        self.0.attempt.as_ref().map(|it| it.started)
    }

    /// Returns whether the attempt has not read the answer to this question before.
    fn asks_first(&self, key: &str) -> bool {
        self.0.notes().asked.insert(key.to_owned())
    }

    /// Returns whether the attempt has not used a memo of this name before.
    pub(super) fn recalls_first(&self, name: &str) -> bool {
        self.0.notes().memos.insert(name.to_owned())
    }

    pub(super) fn add_grant(&self, name: &str) {
        self.0.notes().grants.insert(name.to_owned());
    }

    pub(super) fn has_grant(&self, name: &str) -> bool {
        self.0.notes().grants.contains(name)
    }

    /// Sends a report to watchers. It counts the usage of a model call even without watchers.
    pub async fn report(&self, report: Report) {
        self.heartbeat();
        if let Report::ModelCall { usage, .. } = &report {
            self.add_usage(usage);
        }
        if let Some(attempt) = &self.0.attempt {
            // The driver may be gone; the report is then dropped.
            drop(attempt.send(MessageContent::Report(report)).await);
        }
    }

    /// Saves a result and waits until it is durable. Without a run it saves nothing.
    ///
    /// # Errors
    ///
    /// Fails when the run ends before.
    pub async fn note(&self, name: &str, value: Value) -> Result<(), NodeError> {
        self.heartbeat();
        let Some(attempt) = &self.0.attempt else { return Ok(()) };
        let (saved, is_saved) = oneshot::channel();
        let ms = u64::try_from(attempt.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let memo = Memo { name: name.to_owned(), value, ms, usage: self.usage(), saved };
        drop(attempt.send(MessageContent::Memo(memo)).await);
        let lost = |_| NodeError::transient(format!("the run has ended before `{name}` was saved"));
        is_saved.await.map_err(lost)
    }

    async fn within_budget(&self, usage_min: Usage) -> CallPermit {
        self.plan_call(usage_min, false).await
    }

    /// Waits until the driver has checked that a call with a permit still fits into the limits. Call it if the call had to
    /// wait before it begins: other calls may have used the rest meanwhile. It does not return if they have; see
    /// [`within_budget`](NodeContext::within_budget).
    pub async fn still_within_budget(&self, usage_min: Usage) {
        let _nothing_is_reserved = self.plan_call(usage_min, true).await;
    }

    async fn plan_call(&self, usage_min: Usage, is_permitted: bool) -> CallPermit {
        let permit = CallPermit::default();
        let Some(attempt) = &self.0.attempt else { return permit };
        let (answer, mut answered) = oneshot::channel();
        let call = PlannedCall { usage_min, is_permitted, permit, answer };
        drop(attempt.send(MessageContent::PlannedCall(call)).await);
        loop {
            // The time in which other calls use the rest of a limit is not idle.
            self.heartbeat();
            match timeout(WAIT_BEAT, &mut answered).await {
                Ok(Ok(permit)) => return permit,
                // The driver refused and will abort this attempt; wait for that.
                Ok(Err(_)) => std::future::pending::<()>().await,
                Err(_) => (),
            }
        }
    }

    /// Passes the request of a nested run for a model call on to the driver, which sends the permit. Without a run it
    /// permits the call.
    pub async fn forward_call(&self, call: PlannedCall) {
        self.heartbeat();
        match &self.0.attempt {
            Some(attempt) => drop(attempt.send(MessageContent::PlannedCall(call)).await),
            None => call.permit(),
        }
    }

    /// Returns whether there are readers of the pieces of models' answers.
    pub fn wants_deltas(&self) -> bool {
        self.0.attempt.as_ref().is_some_and(|it| it.driver.deltas.is_some())
    }

    /// Gives a piece of a model's answer to its readers. It never waits, and nothing saves the piece.
    pub fn send_delta(&self, piece: MessagePiece) {
        self.heartbeat();
        if let Some(attempt) = &self.0.attempt
            && let Some(deltas) = &attempt.driver.deltas
        {
            deltas.take(attempt.task, attempt.number, piece);
        }
    }

    /// Reports that the node still works, and the nodes whose nested run it is part of.
    pub fn heartbeat(&self) {
        self.0.notes().last_report = Some(Instant::now());
        if let Some(outer) = self.0.attempt.as_ref().and_then(|it| it.driver.outer.as_ref()) {
            outer.heartbeat();
        }
    }

    /// Returns the time of the last report or heartbeat of the node.
    pub fn last_report(&self) -> Option<Instant> {
        self.0.notes().last_report
    }

    /// Counts usage of a nested run, whose events may arrive later.
    pub fn add_usage(&self, usage: &Usage) {
        self.0.notes().usage.add(usage);
    }

    /// Returns the usage reported so far.
    pub fn usage(&self) -> Usage {
        self.0.notes().usage
    }
}
