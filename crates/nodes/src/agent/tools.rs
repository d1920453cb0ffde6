//! The tools of an agent: a model calls them before it answers, in a bounded number of rounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::future::join_all;
use graphrun_core::{event::Report, graph::NodeError, words::duration};
use graphrun_models::{
    CallPlace, ChatModel, ChatReply, ChatRequest, Message, ModelError, ToolCall, ToolChoice,
    ToolSpec, names_on_the_wire, result_of_changed_call,
};
use graphrun_workflow::tool::{ToolContext, ToolError};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};

use super::{
    attempt::AgentAttempt,
    cut::FittingModel,
    result::{ERROR_PREFIX, INPUT_CHARACTERS_MAX, RESULT_CHARACTERS_MAX, cut, result_text},
};
use crate::{
    approval::{AskedCall, CallPermission},
    call::numbered,
    checked::{CheckedTool, FileUse},
};

/// The most calls of one answer that are made. The result of each further call says so.
pub(super) const CALLS_AT_ONCE_MAX: usize = 16;
/// How often the same call is made. A further one means that the model repeats itself.
const SAME_CALL_MAX: u32 = 2;

/// The tools that an agent may call.
#[derive(Debug)]
pub(crate) struct Toolbox {
    tools: Vec<CheckedTool>,
    /// The folder of the run in which they work.
    folder: Option<String>,
    /// The longest duration of a call.
    timeout: Option<Duration>,
}

impl Toolbox {
    pub(crate) fn new(
        tools: Vec<CheckedTool>,
        folder: Option<String>,
        timeout: Option<Duration>,
    ) -> Self {
        Self { tools, folder, timeout }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns whether all of them are known to ask no model.
    pub(super) fn ask_no_model(&self) -> bool {
        self.tools.iter().all(|it| it.asks_no_model)
    }

    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        let spec = |checked: &CheckedTool| ToolSpec {
            name: checked.tool.name().to_owned(),
            description: checked.tool.description().to_owned(),
            schema: checked.tool.input_schema().clone(),
        };
        self.tools.iter().map(spec).collect()
    }

    /// Returns the part of the cache key for the tools.
    pub(super) fn fingerprint(&self) -> Value {
        let fingerprint = |checked: &CheckedTool| {
            json!([checked.tool.name(), checked.tool.description(), checked.tool.input_schema()])
        };
        self.tools.iter().map(fingerprint).collect()
    }

    fn find(&self, name: &str) -> Option<&CheckedTool> {
        self.tools.iter().find(|it| it.tool.name() == name)
    }
}

/// A model that may call tools before it answers.
///
/// The conversation keeps its calls and their results, also where an answer is sent back for
/// repair. After the last round the model has to answer with the information it has.
#[derive(Debug)]
pub(super) struct WithTools<'a> {
    model: &'a FittingModel<'a>,
    attempt: &'a AgentAttempt<'a>,
    exchange: Mutex<Exchange>,
}

/// A call of a model, before it is made.
#[derive(Debug)]
enum PlannedToolCall<'a> {
    /// Its result is known without a call.
    Known(String),
    /// It is made.
    Call(PermittedCall<'a>),
}

/// A call that is made.
#[derive(Debug)]
struct PermittedCall<'a> {
    tool: &'a CheckedTool,
    input: Value,
    /// The name of its result in the task.
    memo: String,
    /// Whether a person has changed the input.
    is_changed: bool,
    /// Its place in the conversation, in a replay.
    place: Option<CallPlace>,
}

impl PlannedToolCall<'_> {
    fn refused(reason: &str) -> Self {
        Self::Known(format!("{ERROR_PREFIX}{reason}"))
    }

    fn file_use(&self) -> FileUse {
        match self {
            Self::Known(_) => FileUse::None,
            Self::Call(call) => call.tool.file_use,
        }
    }
}

/// The messages between the question and the answer.
#[derive(Debug, Default)]
struct Exchange {
    /// The number of messages of the question.
    asked: Option<usize>,
    messages: Vec<Message>,
    rounds: u32,
    /// The number of equal calls, by name and arguments.
    counts: BTreeMap<(String, String), u32>,
    ids: BTreeSet<String>,
    /// Whether the model repeats itself.
    is_stuck: bool,
}

impl<'a> WithTools<'a> {
    pub(super) fn new(model: &'a FittingModel<'a>, attempt: &'a AgentAttempt<'a>) -> Self {
        Self { model, attempt, exchange: Mutex::default() }
    }

    async fn warn(&self, message: String) {
        self.attempt.ctx.report(Report::Warning { message }).await;
    }

    /// Reports calls after the last round.
    async fn warn_of_calls(&self, calls: &[ToolCall], rounds: u32) {
        let names: BTreeSet<String> = calls.iter().map(|it| format!("`{}`", it.name)).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let model = self.model.name();
        self.warn(format!("{model} calls {names} after its {rounds} rounds of calls")).await;
    }

    /// Makes the calls of a reply, and adds them to the conversation with their results.
    ///
    /// People are asked before any call is made: the question ends the attempt, and the next one makes all calls of the
    /// reply, which it finds saved.
    async fn make_calls(
        &self,
        exchange: &mut Exchange,
        request: &ChatRequest,
        mut reply: ChatReply,
    ) -> Result<(), NodeError> {
        exchange.assign_ids(&mut reply.tool_calls);
        let calls = reply.tool_calls.clone();
        exchange.messages.push(Message::calls(reply));
        let places = self.places(exchange, request);
        // The tools may have irreversible effects, so the reply that requests them is saved first.
        self.model.save_last().await;
        let mut planned = Vec::new();
        for (at, call) in calls.iter().enumerate() {
            if at >= CALLS_AT_ONCE_MAX {
                // It is not made, so it does not count.
                planned.push(PlannedToolCall::refused(&format!(
                    "not more than {CALLS_AT_ONCE_MAX} calls at once; call it again"
                )));
                continue;
            }
            let number = exchange.count(call);
            exchange.is_stuck |= number > SAME_CALL_MAX;
            planned.push(match self.plan(call, number).await? {
                PlannedToolCall::Call(call) => {
                    PlannedToolCall::Call(PermittedCall { place: places.get(at).copied(), ..call })
                }
                known @ PlannedToolCall::Known(_) => known,
            });
        }
        let results = self.results(planned).await;
        for (call, result) in calls.iter().zip(results) {
            exchange.messages.push(Message::tool(&call.id, result));
        }
        if exchange.is_stuck {
            let message = "the model repeats the same call; it must answer now";
            self.warn(message.to_owned()).await;
        }
        Ok(())
    }

    /// Returns the places of the last calls of a conversation, if recorded results can take their place.
    fn places(&self, exchange: &Exchange, request: &ChatRequest) -> Vec<CallPlace> {
        if self.attempt.agent.services.tool_results.is_none() {
            return Vec::new();
        }
        CallPlace::of_last_message(&[exchange.question(request), &exchange.messages].concat())
    }

    /// Decides about a call with its number among equal ones: whether it can be made, has a known result, or is rejected by
    /// a person.
    ///
    /// The number is that of this model: what another model of the attempt has called for before it failed is not done twice.
    async fn plan(&self, call: &ToolCall, number: u32) -> Result<PlannedToolCall<'_>, NodeError> {
        let AgentAttempt { agent, ctx, calls, .. } = self.attempt;
        let toolbox = &agent.toolbox;
        if number > SAME_CALL_MAX {
            let reason = "this call was made before; its result is in the conversation";
            return Ok(self.refuse(call, reason.to_owned()).await);
        }
        let Some(tool) = toolbox.find(&call.name) else {
            let known = names_on_the_wire(&toolbox.specs()).join(", ");
            let reason = format!("there is no `{}`, only {known}", call.name);
            return Ok(self.refuse(call, reason).await);
        };
        let input = match call.input() {
            Ok(input) => input,
            Err(problem) => return Ok(self.refuse(call, problem).await),
        };
        let hash = blake3::hash(input.to_string().as_bytes()).to_hex();
        let mut memo = format!("tool/{}/{}", tool.tool.name(), &hash[..16]);
        // What another model has changed reads differently now.
        if tool.file_use == FileUse::Reads && calls.changes() > 0 {
            memo = format!("{memo}/changed{}", calls.changes());
        }
        let memo = numbered(memo, number);
        if tool.file_use == FileUse::Changes {
            calls.note_change(&memo);
        }
        if let Some(known) = calls.known_result(ctx, &memo) {
            return Ok(PlannedToolCall::Known(known));
        }
        let folder = toolbox.folder.as_deref();
        let asked = AskedCall { tool, input: &input, name: &memo, folder };
        let permitted = |input, memo, is_changed| {
            PlannedToolCall::Call(PermittedCall { tool, input, memo, is_changed, place: None })
        };
        Ok(match asked.ask(ctx).await? {
            CallPermission::Approved => permitted(input, memo, false),
            CallPermission::Changed(input) => permitted(input, memo, true),
            CallPermission::Rejected(comment) => {
                let reason = comment.map(|it| format!(": {it}")).unwrap_or_default();
                let rejected = format!("{ERROR_PREFIX}a person rejected this call{reason}");
                // Another model gets the same result: the question is asked once.
                calls.keep_result(&memo, &rejected);
                PlannedToolCall::Known(rejected)
            }
        })
    }

    /// Answers a call that cannot be made.
    async fn refuse(&self, call: &ToolCall, reason: String) -> PlannedToolCall<'_> {
        let refused = PlannedToolCall::refused(&reason);
        let report = Report::ToolCall {
            tool: call.name.clone(),
            input: cut(&call.arguments, INPUT_CHARACTERS_MAX),
            ms: 0,
            error: Some(reason),
        };
        self.attempt.ctx.report(report).await;
        refused
    }

    /// Makes the calls side by side. If one of them changes a file, those that work on files are made one after another, in
    /// the order of the answer: two edits of one file would lose one of them.
    async fn results(&self, planned: Vec<PlannedToolCall<'_>>) -> Vec<String> {
        let is_ordered = planned.iter().any(|it| it.file_use() == FileUse::Changes);
        // It is given in the order in which it is asked for, and all futures ask for it in their order.
        let turn = Mutex::new(());
        let results = planned.into_iter().map(|it| async {
            let has_turn = is_ordered && it.file_use() != FileUse::None;
            let _turn = if has_turn { Some(turn.lock().await) } else { None };
            self.result(it).await
        });
        join_all(results).await
    }

    /// Returns the result of a call for the model.
    async fn result(&self, planned: PlannedToolCall<'_>) -> String {
        match planned {
            PlannedToolCall::Known(result) => result,
            PlannedToolCall::Call(call) => self.call(call).await,
        }
    }

    /// Calls a tool and saves the result, under a name that counts equal calls. A retry of the task
    /// reuses saved results; a call without one is made again, with the same idempotency key.
    ///
    /// A failure that may pass is not saved at once: the next attempt makes the call again, unless the model has answered to
    /// the failure.
    async fn call(&self, call: PermittedCall<'_>) -> String {
        let PermittedCall { tool, input, memo, is_changed, place } = call;
        let given = input.to_string();
        let key = format!("{}/{memo}", self.attempt.ctx.idempotency_key());
        let tool_ctx = ToolContext { key, place, ..self.attempt.tools.clone() };
        let started = Instant::now();
        let outcome = match self.attempt.agent.toolbox.timeout {
            None => tool.call(input, &tool_ctx).await,
            Some(limit) => timeout(limit, tool.call(input, &tool_ctx)).await.unwrap_or_else(|_| {
                Err(ToolError::transient(format!("it was stopped after {}", duration(limit))))
            }),
        };
        let report = Report::ToolCall {
            tool: tool.tool.name().to_owned(),
            input: cut(&given, INPUT_CHARACTERS_MAX),
            ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            error: outcome.as_ref().err().map(ToolError::to_string),
        };
        self.attempt.ctx.report(report).await;
        let is_final = outcome.as_ref().err().is_none_or(|it| !it.transient);
        let mut result = result_text(outcome);
        if is_changed {
            result = result_of_changed_call(&cut(&given, RESULT_CHARACTERS_MAX), &result);
        }
        if is_final {
            self.attempt.calls.keep_result(&memo, &result);
            // Saving fails when the run has ended; then the result of this node is not needed.
            drop(self.attempt.ctx.save_memo(&memo, &result).await);
        } else {
            self.attempt.calls.keep_failure(&memo, &result);
        }
        result
    }
}

#[async_trait]
impl ChatModel for WithTools<'_> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let rounds_max = self.attempt.agent.definition.tool_rounds_max;
        let mut exchange = self.exchange.lock().await;
        loop {
            let may_call = request.tool_choice.allows_calls()
                && exchange.rounds < rounds_max
                && !exchange.is_stuck;
            let reply = self.model.chat(&exchange.request(request, may_call)).await?;
            let is_broken = reply.finish.is_failed_generation();
            if reply.tool_calls.is_empty() && !(is_broken && may_call) {
                return Ok(reply);
            }
            if !may_call {
                let rounds = exchange.rounds;
                self.warn_of_calls(&reply.tool_calls, rounds).await;
                // Without a form, a text beside a call is no answer: models comment their calls there.
                let is_no_answer = request.output.is_none() || reply.text.trim().is_empty();
                return match reply.tool_calls.first() {
                    Some(call) if is_no_answer => {
                        let name = call.name.clone();
                        let usage = reply.usage;
                        Err(ModelError::NoAnswer { name, rounds, usage })
                    }
                    _ => Ok(ChatReply { tool_calls: Vec::new(), ..reply }),
                };
            }
            exchange.rounds += 1;
            if reply.tool_calls.is_empty() {
                exchange.complain(reply.text);
            } else {
                let name = reply.tool_calls[0].name.clone();
                let usage = reply.usage;
                if let Err(end) = self.make_calls(&mut exchange, request, reply).await {
                    self.attempt.end.set(end);
                    let rounds = exchange.rounds;
                    return Err(ModelError::NoAnswer { name, rounds, usage });
                }
            }
        }
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

impl Exchange {
    /// Returns the messages of the question.
    fn question<'r>(&self, request: &'r ChatRequest) -> &'r [Message] {
        let all = &request.messages;
        &all[..self.asked.unwrap_or(all.len()).min(all.len())]
    }

    /// Returns the request with the exchanges so far, right after the question. Messages behind
    /// them belong to an answer under repair.
    fn request(&mut self, request: &ChatRequest, may_call: bool) -> ChatRequest {
        self.asked.get_or_insert(request.messages.len());
        let question = self.question(request);
        let rest = &request.messages[question.len()..];
        let messages = [question, &self.messages, rest].concat();
        // Another request needs another key: the first one's would return the first answer.
        let key = match (request.key.as_str(), self.rounds) {
            ("", _) | (_, 0) => request.key.clone(),
            (key, round) => format!("{key}/tools-{round}"),
        };
        let tool_choice = match &request.tool_choice {
            _ if !may_call => ToolChoice::None,
            // The model has called: it would never answer if it had to call again.
            forced if forced.is_forced() && self.rounds > 0 => ToolChoice::Auto,
            choice => choice.clone(),
        };
        ChatRequest { key, messages, tool_choice, ..request.clone() }
    }

    /// Returns the number of a call among equal ones, from 1. The form of its JSON makes no difference.
    fn count(&mut self, call: &ToolCall) -> u32 {
        let arguments = call.input().map_or_else(|_| call.arguments.clone(), |it| it.to_string());
        let count = self.counts.entry((call.name.clone(), arguments));
        *count.and_modify(|it| *it += 1).or_insert(1)
    }

    /// Gives each call a unique id of nine letters and digits, because some providers accept no
    /// other.
    fn assign_ids(&mut self, calls: &mut [ToolCall]) {
        for call in calls {
            let mut number = self.ids.len();
            while call.id.is_empty() || !self.ids.insert(call.id.clone()) {
                number += 1;
                call.id = format!("call{number:05}");
            }
        }
    }

    /// Returns a call that the provider could not parse to the model.
    fn complain(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.messages.push(Message::assistant(text));
        }
        let complaint = "This is no call of a tool that can be read. Call the tool in the form you \
                         were given, with its arguments as JSON, or give your answer.";
        self.messages.push(Message::user(complaint));
    }
}
