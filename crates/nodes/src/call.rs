//! Calls a model from a node: reports the usage at once and classifies failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter, slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use graphrun_core::{
    event::{CONTENT_TARGET, MessagePart, Report, Usage},
    graph::{ErrorKind, Failure, MessagePiece, NodeContext, NodeError, Reporter},
    id::NodeName,
};
use graphrun_guard::redact::{REDACTED, redact_value};
use graphrun_models::{
    Admission, Admit, AnswerReader, AnswerSink, Attachment, ChatModel, ChatReply, ChatRequest,
    Finish, Message, ModelError, ModelErrorKind, Patience, Replay, TokenUsage, count_tokens,
};
use graphrun_workflow::kind::Services;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tracing::{Instrument, Level, Span, field, info_span, trace};

/// A model whose calls are reported to the watchers of a run, and whose answers are not paid for
/// twice.
///
/// Failed calls count as well, and each call as soon as it ends: the usage of a node that is
/// dropped before its end still counts.
///
/// An answer is saved before the next call of the task is made, and a retry finds it by its
/// request, even if the next call failed. The last answer is not saved: the result of the node is
/// saved at once, so the answer would be stored twice.
///
/// A failed call is saved in the same way: the next call is a longer request, a repair or a fallback. The next attempt finds
/// only a failure that has cost something and does not pass.
#[derive(Debug)]
pub(super) struct WatchedModel<'a> {
    candidate: Candidate<'a>,
    ctx: &'a NodeContext,
    services: &'a Services,
    calls: &'a Calls,
    /// Whether the pieces of its answers go to the watchers.
    shows_pieces: bool,
}

/// A connected model, which may be one of a list.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    /// The name of the model in the workflow, which determines its price.
    pub(super) name: &'a str,
    model: Arc<dyn ChatModel>,
    /// The number of models in the list.
    listed: u32,
    /// The number of models from this one on that can be asked.
    asked_from_here: u32,
}

/// The calls of an attempt at a task, of all models together.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<CallState>);

#[derive(Debug, Default)]
struct CallState {
    /// The number of equal requests, by their name: an equal request asks for another answer.
    counts: BTreeMap<String, u32>,
    /// The outcome of the last call, if it is not saved.
    last: Option<UnsavedOutcome>,
    /// Whether the attempt has asked a model.
    has_asked: bool,
    /// The last request to each model whose tokens the provider has counted.
    measured: BTreeMap<String, RequestSize>,
    /// The results of the calls of tools, by the names of the calls.
    results: BTreeMap<String, String>,
    /// The names of the calls that change files, also of those that a person rejects.
    changes: BTreeSet<String>,
    /// Those that may differ at another time, and that no outcome has answered to.
    unanswered: Vec<ToolFailure>,
}

/// An answer or a failure, and the name of its call.
#[derive(Debug)]
struct UnsavedOutcome {
    name: String,
    outcome: Result<ChatReply, SavedFailure<ModelError>>,
    /// The failures of tools that the request contains.
    answered: Vec<ToolFailure>,
}

/// The failure of a call of a tool that may pass.
#[derive(Debug)]
struct ToolFailure {
    /// The name of the call.
    name: String,
    /// The result for the model.
    result: String,
}

/// The failure of a call of a model or a tool, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
struct SavedFailure<F> {
    /// The attempt that made the call, if a later one makes it again.
    only_in: Option<u32>,
    failure: F,
}

impl<F: Serialize + DeserializeOwned> SavedFailure<F> {
    /// Returns the name under which the failure of a call is saved. A result has the name of the call itself.
    fn name(call: &str) -> String {
        format!("{call}/failed")
    }

    async fn save(&self, ctx: &NodeContext, call: &str) -> Result<(), NodeError> {
        ctx.save_memo(&Self::name(call), self).await
    }

    /// Returns the saved failure of a call, unless it is that of another attempt.
    fn recall(ctx: &NodeContext, call: &str) -> Option<F> {
        let saved: Self = ctx.recall_memo(&Self::name(call)).ok().flatten()?;
        saved.only_in.is_none_or(|it| it == ctx.attempt).then_some(saved.failure)
    }
}

/// The time between the end of the wait for a silent provider and the timeout of its node.
const MARGIN_MIN: Duration = Duration::from_millis(100);
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// A provider that has sent nothing for this time is silent, however long the timeout of the node is.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Returns when to give up a silent provider of this time, before the timeout of the node.
pub(super) fn before_end(time: Duration) -> Duration {
    let margin = (time / 10).clamp(MARGIN_MIN, MARGIN_MAX).min(time / 2);
    time.saturating_sub(margin)
}

/// The size of a request.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSize {
    /// The tokens of its texts, as [`text_tokens`] counts them.
    texts: u64,
    /// The tokens that the provider has counted.
    tokens: u64,
}

/// The most characters of a token. Prose has up to five with current models; code and most other languages have fewer.
const TOKEN_CHARACTERS_MAX: u64 = 5;

impl Calls {
    /// Counts a call, and returns its name: a hash of everything that the answer depends on, and the number among equal calls.
    fn next_name(&self, model: &str, request: &ChatRequest) -> String {
        let ChatRequest { messages, output, tools, tool_choice, settings, .. } = request;
        // The reasoning of the model is left out: it is no part of the question.
        let message = |it: &Message| {
            json!({
                "role": it.role,
                "content": it.content,
                "attachments": it.attachments,
                "tool_calls": it.tool_calls,
                "tool_call_id": it.tool_call_id,
            })
        };
        let asked = json!({
            "model": model,
            "messages": messages.iter().map(message).collect::<Value>(),
            "output": output.as_ref().map(|it| json!([it.name, it.schema])),
            "tools": tools.iter().map(|it| json!([it.name, it.schema])).collect::<Value>(),
            "tool_choice": tool_choice,
            "settings": settings,
        });
        let hash = blake3::hash(asked.to_string().as_bytes()).to_hex();
        let name = format!("model/{}", &hash[..16]);
        let count = *self.state().counts.entry(name.clone()).and_modify(|it| *it += 1).or_insert(1);
        numbered(name, count)
    }

    /// Returns the result of a call of a tool that was made before: in an earlier attempt, or in this one for another model.
    pub(super) fn known_result(&self, ctx: &NodeContext, name: &str) -> Option<String> {
        let kept = self.state().results.get(name).cloned();
        kept.or_else(|| {
            let saved = ctx.recall_memo(name).ok().flatten();
            let saved: String = saved.or_else(|| SavedFailure::recall(ctx, name))?;
            // An attempt reads each memo once.
            self.keep_result(name, &saved);
            Some(saved)
        })
    }

    /// Notes a call that changes files.
    pub(super) fn note_change(&self, name: &str) {
        self.state().changes.insert(name.to_owned());
    }

    /// Returns the number of calls so far that change files.
    pub(super) fn changes(&self) -> usize {
        self.state().changes.len()
    }

    /// Keeps the result of a call of a tool for the rest of the attempt.
    pub(super) fn keep_result(&self, name: &str, result: &str) {
        self.state().results.insert(name.to_owned(), result.to_owned());
    }

    /// Keeps the failure of a call of a tool, which may pass. It is saved with the outcome of the next request, which contains it: a
    /// resumed run finds the outcome by the request.
    pub(super) fn keep_failure(&self, name: &str, result: &str) {
        self.keep_result(name, result);
        let failure = ToolFailure { name: name.to_owned(), result: result.to_owned() };
        self.state().unanswered.push(failure);
    }

    /// Notes the outcome of a request.
    fn note_outcome(&self, name: String, outcome: Result<ChatReply, SavedFailure<ModelError>>) {
        let mut state = self.state();
        let answered = std::mem::take(&mut state.unanswered);
        state.last = Some(UnsavedOutcome { name, outcome, answered });
    }

    /// Returns the fewest tokens that a request can have: those of the last measured request of the task to this model,
    /// and those of the text that was added since. It does not depend on other tasks, so a resumed task decides the same.
    fn tokens_min(&self, model: &str, texts: u64) -> u64 {
        let measured = self.state().measured.get(model).copied();
        let measured = measured.filter(|it| it.texts <= texts).unwrap_or_default();
        measured.tokens.saturating_add(texts - measured.texts)
    }

    /// Notes the tokens of a request with these tokens of texts, unless they are an estimate.
    fn measure(&self, model: &str, texts: u64, usage: &TokenUsage) {
        if !usage.estimated && usage.input_tokens > 0 {
            let measured = RequestSize { texts, tokens: usage.input_tokens };
            self.state().measured.insert(model.to_owned(), measured);
        }
    }

    fn state(&self) -> MutexGuard<'_, CallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a part of the work that has the same name as others, by its number among them, from 1.
pub(super) fn numbered(name: String, number: u32) -> String {
    if number == 1 { name } else { format!("{name}/{number}") }
}

impl<'a> Candidate<'a> {
    /// Returns the only model of a task.
    pub(super) fn alone(name: &'a str, model: Arc<dyn ChatModel>) -> Self {
        Self { name, model, listed: 1, asked_from_here: 1 }
    }
}

impl<'a> WatchedModel<'a> {
    pub(super) fn new(
        candidate: Candidate<'a>,
        ctx: &'a NodeContext,
        services: &'a Services,
        calls: &'a Calls,
    ) -> Self {
        Self { candidate, ctx, services, calls, shows_pieces: true }
    }

    /// Shows no pieces of its answers: they are no answers of the node.
    pub(super) fn without_pieces(self) -> Self {
        Self { shows_pieces: false, ..self }
    }

    /// Saves the outcome of the last call, because the next work may depend on it.
    pub(super) async fn save_last(&self) {
        let last = self.calls.state().last.take();
        let Some(UnsavedOutcome { name, outcome, answered }) = last else { return };
        // Each holds as long as the outcome. Saving fails when the run has ended; then they are not needed.
        let only_in = outcome.as_ref().err().and_then(|it| it.only_in);
        for ToolFailure { name, result } in answered {
            drop(SavedFailure { only_in, failure: result }.save(self.ctx, &name).await);
        }
        drop(match outcome {
            Ok(reply) => self.ctx.save_memo(&name, &reply).await,
            Err(failure) => failure.save(self.ctx, &name).await,
        });
    }

    /// Returns the saved outcome of a call.
    fn recall(&self, name: &str) -> Option<Result<ChatReply, ModelError>> {
        if let Ok(Some(reply)) = self.ctx.recall_memo(name) {
            return Some(Ok(reply));
        }
        SavedFailure::recall(self.ctx, name).map(Err)
    }
}

impl WatchedModel<'_> {
    /// Refuses a request that leaves no room for an answer. Some servers cut its beginning off instead, without an error.
    fn check_window(&self, tokens_min: u64) -> Result<(), ModelError> {
        let window = self.services.windows.of(self.candidate.name).filter(|it| tokens_min >= *it);
        let Some(window) = window else { return Ok(()) };
        let message = format!(
            "it has at least {tokens_min} tokens, and the context of {} has {window}",
            self.candidate.name
        );
        Err(ModelError::ContextOverflow { message, usage: TokenUsage::default() })
    }

    /// Returns how long the provider may be silent. A silent one is given up before the timeout of the node, which would say
    /// that the node has worked for too long; and so early that each of the next models has its share of the time.
    fn patience(&self) -> Option<Patience> {
        let NodeContext { timeout, idle_timeout, .. } = *self.ctx;
        let Candidate { listed, asked_from_here, .. } = self.candidate;
        let silence_max = idle_timeout.map(before_end);
        let now = tokio::time::Instant::now();
        let until = self.ctx.time_left().and_then(|left| {
            now.checked_add(match asked_from_here {
                0 | 1 => before_end(left),
                models => left / models,
            })
        });
        let share = timeout.unwrap_or(SILENCE_MAX) / listed.saturating_mul(4).max(1);
        let silence_min = share.min(SILENCE_MAX);
        let is_bounded = until.is_some() || silence_max.is_some();
        is_bounded.then_some(Patience { until, silence_min, silence_max })
    }

    /// Returns a request whose answer is watched, and which is sent only while it fits the budget.
    fn watched(&self, request: &ChatRequest, usage_min: Usage) -> ChatRequest {
        let has_asked = std::mem::replace(&mut self.calls.state().has_asked, true);
        ChatRequest {
            // The request that failed in the last attempt.
            is_repeat: request.is_repeat || self.ctx.attempt > 1 && !has_asked,
            admission: Admission::by(Arc::new(StillInBudget {
                reporter: self.ctx.reporter.clone(),
                usage_min,
            })),
            patience: self.patience(),
            deltas: AnswerSink::to(Arc::new(Pieces {
                is_shown: self.shows_pieces,
                ..Pieces::new(self.candidate.name, self.ctx)
            })),
            ..request.clone()
        }
    }

    /// Reports the usage of a call, if it has any.
    async fn report_usage(
        &self,
        replied: &Result<ChatReply, ModelError>,
        tokens: TokenUsage,
        time: Duration,
    ) {
        if tokens == TokenUsage::default() {
            return;
        }
        let Candidate { name: named, model, .. } = &self.candidate;
        let (model, stated) = match replied {
            Ok(reply) => (answered_by(named, &reply.model), reply.cost_usd),
            Err(error) => (model.name().to_owned(), error.cost_usd()),
        };
        // The provider knows discounts and fees that no table of prices has.
        let cost_usd = stated.or_else(|| self.services.prices.cost(named, tokens));
        let tokens = tokens.in_window(self.services.windows.of(named));
        let usage = Usage { tokens, cost_usd };
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ctx.report(Report::ModelCall { model, usage, ms }).await;
    }

    /// Corrects later estimates. The tokens of files follow other rules than those of texts.
    fn note_estimate(&self, request: &ChatRequest, usage: &TokenUsage) {
        let has_files = request.messages.iter().any(|it| !it.attachments.is_empty());
        if !usage.estimated && !has_files {
            let characters = whole_characters(request);
            self.services.estimates.note(self.candidate.name, characters, usage.input_tokens);
        }
    }

    /// Returns the least usage that a request is likely to have: all of its tokens may come from the provider's cache.
    fn usage_min(&self, request: &ChatRequest, tokens_min: u64) -> Usage {
        let likely = self.services.estimates.tokens(self.candidate.name, whole_characters(request));
        let tokens_min = tokens_min.max(likely.unwrap_or_default());
        let tokens = TokenUsage {
            input_tokens: tokens_min,
            cached_input_tokens: tokens_min,
            calls: 1,
            estimated: true,
            ..TokenUsage::default()
        };
        Usage { tokens, cost_usd: self.services.prices.cost(self.candidate.name, tokens) }
    }
}

/// A call without its end: the usage of an answer that has begun counts, also if the task is aborted.
struct OpenCall<'a> {
    call: &'a WatchedModel<'a>,
    request: &'a ChatRequest,
    is_open: bool,
}

impl OpenCall<'_> {
    /// Returns the usage of a failed call. A provider counts an answer at its end, and states less before.
    fn usage_of(&self, error: &ModelError) -> TokenUsage {
        let stated = error.usage();
        let is_whole = stated != TokenUsage::default() && has_ended(error);
        let Some(estimated) = self.estimate().filter(|_| !is_whole) else { return stated };
        if stated.output_tokens >= estimated.output_tokens {
            return stated;
        }
        let input_tokens = match stated.input_tokens {
            0 => estimated.input_tokens,
            counted => counted,
        };
        let output_tokens = estimated.output_tokens;
        TokenUsage { input_tokens, output_tokens, calls: 1, estimated: true, ..stated }
    }

    /// Returns the least usage of an answer of which a part has arrived; `None` before that.
    fn estimate(&self) -> Option<TokenUsage> {
        let length = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
        let arrived = length(self.request.deltas.characters());
        let asked = length(self.request.characters());
        (arrived > 0).then(|| TokenUsage::estimate(asked, arrived))
    }
}

/// Returns whether an answer has ended, so that the counts of the provider are those of all of it.
fn has_ended(error: &ModelError) -> bool {
    matches!(
        error.reason(),
        ModelError::Refused { .. }
            | ModelError::Truncated { .. }
            | ModelError::ContextOverflow { .. }
            | ModelError::Incomplete { .. }
            | ModelError::UnknownTool { .. }
            | ModelError::NoAnswer { .. }
            | ModelError::EmptyResponse { .. }
            | ModelError::Program { .. }
            | ModelError::NotRecorded { .. }
    )
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if let Some(tokens) = self.estimate().filter(|_| self.is_open) {
            let cost_usd = self.call.services.prices.cost(self.call.candidate.name, tokens);
            self.call.ctx.reporter.add_usage(&Usage { tokens, cost_usd });
        }
    }
}

/// Checks the budget again after a call has waited for its turn: others may have used the rest meanwhile.
#[derive(Debug)]
struct StillInBudget {
    reporter: Reporter,
    usage_min: Usage,
}

#[async_trait]
impl Admit for StillInBudget {
    async fn admit(&self) {
        self.reporter.still_within_budget(self.usage_min).await;
    }
}

/// Returns the characters of a request with the schemas of its tools and its answer, which cost tokens, too.
fn whole_characters(request: &ChatRequest) -> u64 {
    let length = |schema: &Value| u64::try_from(schema.to_string().len()).unwrap_or(u64::MAX);
    let tools = request.tools.iter().map(|tool| {
        let names = u64::try_from(tool.name.len() + tool.description.len()).unwrap_or(u64::MAX);
        names.saturating_add(length(&tool.schema))
    });
    let output = request.output.iter().map(|it| length(&it.schema));
    request.characters().saturating_add(tools.chain(output).sum())
}

/// Returns the tokens of the texts and calls of a request, or the least that they can be if the model's vocabulary is
/// unknown.
async fn text_tokens(model: &str, request: &ChatRequest) -> u64 {
    let texts = || {
        let texts_of = |message: &Message| {
            let calls = message.tool_calls.iter().map(|it| it.arguments.clone());
            let files = message.attachments.iter().filter_map(Attachment::text);
            iter::once(message.content.clone()).chain(calls).chain(files).collect::<Vec<_>>()
        };
        request.messages.iter().flat_map(texts_of).collect()
    };
    let counted = count_tokens(model, texts).await;
    counted.unwrap_or_else(|| request.characters() / TOKEN_CHARACTERS_MAX)
}

#[async_trait]
impl ChatModel for WatchedModel<'_> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        self.save_last().await;
        let Candidate { name: named, model, .. } = &self.candidate;
        let name = self.calls.next_name(model.name(), request);
        let texts = text_tokens(named, request).await;
        if let Some(outcome) = self.recall(&name) {
            if let Ok(reply) = &outcome {
                self.calls.measure(named, texts, &reply.usage);
            }
            return outcome;
        }
        let tokens_min = self.calls.tokens_min(named, texts);
        self.check_window(tokens_min)?;
        let usage_min = self.usage_min(request, tokens_min);
        let permit = self.ctx.within_budget_for(usage_min).await;
        let request = &self.watched(request, usage_min);
        let started = Instant::now();
        let span = info_span!(
            "chat",
            model = named,
            temperature = request.settings.temperature,
            max_tokens = request.settings.max_tokens,
            answered_by = field::Empty,
            finish = field::Empty,
            input_tokens = field::Empty,
            cached_input_tokens = field::Empty,
            output_tokens = field::Empty,
            reasoning_output_tokens = field::Empty,
            error = field::Empty
        );
        let mut open = OpenCall { call: self, request, is_open: true };
        let mut replied = model.chat(request).instrument(span.clone()).await;
        open.is_open = false;
        let has_key = remove_keys(&mut replied);
        let tokens = match &replied {
            // A model of a program may count tokens only.
            Ok(reply) => TokenUsage { calls: reply.usage.calls.max(1), ..reply.usage },
            Err(error) => open.usage_of(error),
        };
        note_reply(&span, request, &replied, tokens);
        self.report_usage(&replied, tokens, started.elapsed()).await;
        drop(permit);
        if let Ok(reply) = &replied {
            let removed = has_key.then(|| {
                format!("a key in the answer of {named} was removed; `{REDACTED}` stands for it")
            });
            for message in removed.into_iter().chain(reply.stated.warning(named)) {
                self.ctx.report(Report::Warning { message }).await;
            }
        }
        let outcome = match &replied {
            Ok(reply) => {
                self.calls.measure(named, texts, &reply.usage);
                self.note_estimate(request, &reply.usage);
                Ok(reply.clone())
            }
            Err(error) => {
                // A later attempt exists to make the call again.
                let may_differ = tokens == TokenUsage::default() || error.is_retryable();
                let only_in = may_differ.then_some(self.ctx.attempt);
                Err(SavedFailure { only_in, failure: error.clone() })
            }
        };
        self.calls.note_outcome(name, outcome);
        replied
    }

    fn name(&self) -> &str {
        self.candidate.model.name()
    }
}

/// Removes keys from the outcome of a call, as the engine removes them from a memo: the requests and the calls of tools that
/// build on it are the same after it was recalled. Returns whether there was a key.
fn remove_keys(replied: &mut Result<ChatReply, ModelError>) -> bool {
    match replied {
        Ok(reply) => {
            // The JSON is without it.
            let stated = std::mem::take(&mut reply.stated);
            let found = remove_keys_of(reply);
            reply.stated = stated;
            found
        }
        Err(error) => remove_keys_of(error),
    }
}

fn remove_keys_of<T: Serialize + DeserializeOwned>(saved: &mut T) -> bool {
    let Ok(mut value) = serde_json::to_value(&*saved) else { return false };
    if !redact_value(&mut value) {
        return false;
    }
    // A memo with these texts could be read either.
    if let Ok(redacted) = T::deserialize(value) {
        *saved = redacted;
    }
    true
}

/// Notes a reply in the span of its call. Its content is only for a subscriber that asks for it by name.
fn note_reply(
    span: &Span,
    request: &ChatRequest,
    replied: &Result<ChatReply, ModelError>,
    tokens: TokenUsage,
) {
    span.record("input_tokens", tokens.input_tokens)
        .record("cached_input_tokens", tokens.cached_input_tokens)
        .record("output_tokens", tokens.output_tokens)
        .record("reasoning_output_tokens", tokens.reasoning_output_tokens);
    match replied {
        Ok(reply) => {
            let finish = match &reply.finish {
                Finish::Stop => "stop",
                Finish::ToolCalls => "tool_calls",
                Finish::Other(word) => word,
            };
            span.record("answered_by", &reply.model).record("finish", finish);
        }
        Err(error) => drop(span.record("error", error.kind().as_str())),
    }
    if tracing::enabled!(target: CONTENT_TARGET, Level::TRACE) {
        let input = json!(request.messages);
        let output = replied.as_ref().ok().map(|it| json!(Message::calls(it.clone())));
        let output = output.map(field::display);
        span.in_scope(|| trace!(target: CONTENT_TARGET, %input, output, "messages"));
    }
}

/// Reports the pieces of one answer to the watchers of a run.
#[derive(Debug)]
struct Pieces {
    reporter: Reporter,
    node: NodeName,
    model: String,
    message: u64,
    is_shown: bool,
}

impl Pieces {
    fn new(model: &str, ctx: &NodeContext) -> Self {
        static MESSAGES: AtomicU64 = AtomicU64::new(1);
        let message = MESSAGES.fetch_add(1, Ordering::Relaxed);
        let reporter = ctx.reporter.clone();
        let node = ctx.node.clone();
        Self { reporter, node, model: model.to_owned(), message, is_shown: true }
    }
}

impl AnswerReader for Pieces {
    fn take(&self, part: MessagePart, text: &str) {
        let node = self.node.clone();
        let message = self.message;
        let model = self.model.clone();
        let text = text.to_owned();
        self.reporter.send_delta(MessagePiece { node, message, model, part, text });
    }

    fn is_watched(&self) -> bool {
        self.is_shown && self.reporter.wants_deltas()
    }

    /// A model that answers is at work, so the idle timeout of its node does not run out.
    fn heartbeat(&self) {
        self.reporter.heartbeat();
    }
}

/// The models of a list, which are asked in their order until one answers.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    models: slice::Iter<'a, String>,
    services: &'a Services,
    count: usize,
    failed: Vec<(String, ModelError)>,
    /// The first model that cannot be connected.
    skipped: Option<(String, ModelError)>,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(models: &'a [String], services: &'a Services) -> Self {
        let count = models.len();
        Self { models: models.iter(), services, count, failed: Vec::new(), skipped: None }
    }

    /// Returns the next model that can be connected: a list may name models of providers that this machine has no key
    /// for.
    pub(super) async fn next(&mut self, ctx: &NodeContext) -> Option<Candidate<'a>> {
        for name in self.models.by_ref() {
            let model = match self.services.models.model(name) {
                Ok(model) => model,
                Err(error) => {
                    self.skipped.get_or_insert((name.to_owned(), error));
                    continue;
                }
            };
            // A model that cannot be connected stays so, and one warning is enough.
            let skipped = self.skipped.as_ref().filter(|_| ctx.attempt == 1);
            if let Some((failed, error)) = self.failed.last().or(skipped) {
                let message = format!("{failed}: {error}; falling back to {name}");
                ctx.report(Report::Warning { message }).await;
            }
            let (listed, asked_from_here) = self.counts();
            return Some(Candidate { name, model, listed, asked_from_here });
        }
        None
    }

    /// Returns the number of models, and of those from the current one on that can be connected.
    fn counts(&self) -> (u32, u32) {
        let next = self.models.clone().filter(|it| self.services.models.model(it).is_ok());
        let [count, next] =
            [self.count, next.count()].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        (count, next.saturating_add(1))
    }

    /// Notes that a model gave no answer.
    ///
    /// # Errors
    ///
    /// Fails if no other model may be asked.
    pub(super) fn failed(&mut self, name: &str, error: ModelError) -> Result<(), NodeError> {
        let is_last = !may_fall_back(&error);
        let stands = is_answer(&error);
        if is_last && stands {
            return Err(failure_of_model(name, &error).into());
        }
        self.failed.push((name.to_owned(), error));
        if is_last { Err(self.failure()) } else { Ok(()) }
    }

    /// Returns the failure of the whole list.
    pub(super) fn failure(&mut self) -> NodeError {
        let failure = self.whole_failure();
        failure.map_or_else(|| NodeError::permanent("the agent has no model"), NodeError::from)
    }

    /// Returns the failure of the whole list, unless it is empty.
    ///
    /// If one of the models may answer later, the failure is transient, and the next attempt need not wait longer
    /// than for the first of these models. Models that cannot be connected count only if no other model was asked.
    fn whole_failure(&mut self) -> Option<Failure> {
        let failed = std::mem::take(&mut self.failed);
        let skipped = self.skipped.take();
        let failed = if failed.is_empty() { Vec::from_iter(skipped) } else { failed };
        let errors = || failed.iter().map(|it| &it.1);
        if let [(name, error)] = failed.as_slice() {
            return Some(failure_of_model(name, error));
        }
        let soonest = errors().filter(|it| it.is_retryable()).min_by_key(|it| it.retry_after());
        let failure = failure_of(soonest.or(failed.last().map(|it| &it.1))?);
        let is_unsent = errors().all(|it| it.is_unsent() || !it.is_retryable());
        let is_unsent = failure.is_unsent && is_unsent;
        let each = failed.iter().map(|(name, error)| format!("{name}: {error}"));
        Some(Failure { message: each.collect::<Vec<_>>().join("; "), is_unsent, ..failure })
    }
}

/// The kinds of [`failure_of`] a model.
pub(super) const MODEL_FAILURES: [ErrorKind; 7] = [
    ErrorKind::RateLimit,
    ErrorKind::Credentials,
    ErrorKind::Refused,
    ErrorKind::InvalidOutput,
    ErrorKind::ContextOverflow,
    ErrorKind::Recording,
    ErrorKind::Provider,
];

/// Returns the failure of a node whose model did not answer.
pub(super) fn failure_of(error: &ModelError) -> Failure {
    if let ModelError::Program { failure, .. } = error.reason() {
        return Failure::clone(failure);
    }
    let kind = match error.kind() {
        ModelErrorKind::RateLimit => ErrorKind::RateLimit,
        ModelErrorKind::Auth | ModelErrorKind::Quota => ErrorKind::Credentials,
        ModelErrorKind::Refused => ErrorKind::Refused,
        ModelErrorKind::InvalidOutput => ErrorKind::InvalidOutput,
        ModelErrorKind::ContextOverflow => ErrorKind::ContextOverflow,
        ModelErrorKind::Recording => ErrorKind::Recording,
        ModelErrorKind::Program => ErrorKind::Command,
        // The provider was silent. A timeout of the node itself is reported by the engine.
        ModelErrorKind::Timeout | ModelErrorKind::Provider | ModelErrorKind::BadRequest => {
            ErrorKind::Provider
        }
    };
    let after = error.retry_after().and_then(|it| u64::try_from(it.as_millis()).ok());
    let raw = match error.reason() {
        ModelError::Truncated { text, .. }
        | ModelError::Incomplete { text, .. }
        | ModelError::StreamTruncated { text, .. }
        | ModelError::Refused { text, .. }
        | ModelError::UnknownTool { arguments: text, .. } => Some(text.clone()),
        _ => None,
    };
    Failure {
        transient: error.is_retryable(),
        retry_after_ms: after,
        is_unsent: error.is_unsent(),
        raw,
        ..Failure::of(kind, error)
    }
}

/// Returns the failure of a node whose only model did not answer: the reader of the message may have several nodes and
/// providers.
fn failure_of_model(name: &str, error: &ModelError) -> Failure {
    let failure = failure_of(error);
    match error.kind() {
        // These name the file, or the program that answers in place of a model.
        ModelErrorKind::Recording | ModelErrorKind::Program => failure,
        _ => with_model(name, failure),
    }
}

/// Returns a failure that names its model.
pub(super) fn with_model(name: &str, failure: Failure) -> Failure {
    Failure { message: format!("{name}: {}", failure.message), ..failure }
}

/// Returns the full name of the model that answered. Most providers reply with a name without the provider, often that of
/// a certain version; a recording may name no model.
pub(super) fn answered_by(named: &str, reply: &str) -> String {
    match named.split_once('/') {
        _ if reply.is_empty() => named.to_owned(),
        Some((provider, _))
            if reply != Replay::MODEL && !reply.starts_with(&format!("{provider}/")) =>
        {
            format!("{provider}/{reply}")
        }
        _ => reply.to_owned(),
    }
}

/// Returns whether the model itself caused the failure by its answer. Such an answer stands, also if models before it
/// in a list may answer later.
fn is_answer(error: &ModelError) -> bool {
    matches!(error.kind(), ModelErrorKind::Refused | ModelErrorKind::InvalidOutput)
}

/// Returns whether another model may succeed.
fn may_fall_back(error: &ModelError) -> bool {
    match error.kind() {
        // The next model may exist, and take the file.
        ModelErrorKind::BadRequest
            if matches!(
                error.reason(),
                ModelError::NotFound { .. } | ModelError::Attachment { .. }
            ) =>
        {
            true
        }
        ModelErrorKind::Timeout
        | ModelErrorKind::RateLimit
        | ModelErrorKind::Provider
        | ModelErrorKind::Auth
        | ModelErrorKind::Quota
        | ModelErrorKind::ContextOverflow => true,
        // Asking another provider after a refusal is not the library's decision, and an invalid
        // request stays invalid.
        ModelErrorKind::BadRequest
        | ModelErrorKind::Refused
        | ModelErrorKind::InvalidOutput
        | ModelErrorKind::Program
        | ModelErrorKind::Recording => false,
    }
}
