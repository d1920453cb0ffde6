//! Agents with a scripted model: it calls their tools as the test case says, and the tools return the results of the
//! test case. The agents themselves run as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    diagnostic::SourceSpan,
    graph::{NodeContext, Question},
    id::{NodeName, TaskId},
    models::{
        ChatModel, ChatReply, ChatRequest, EmbeddingModel, Finish, ModelError, Replay, ToolCall,
    },
    nodes::{ModelSource, ToolResults},
    state::validator_for,
    tool::{Tool, ToolContext, ToolError},
    workflow::case_file::{ScriptedAgent, ScriptedCall},
};

/// The conversations of the agents of one run.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    scripted: Mutex<BTreeMap<String, Conversation>>,
    /// The recording with the results of other agents' tools.
    recording: Option<Arc<Replay>>,
    /// Descriptions of the calls without a result.
    unrecorded: Mutex<BTreeSet<String>>,
}

/// The conversation of one task, over all of its attempts.
#[derive(Debug)]
struct Conversation {
    node: NodeName,
    task: TaskId,
    attempt: u32,
    script: Arc<ScriptedAgent>,
    /// The number of rounds that the model has asked for in this attempt.
    round: usize,
    /// The calls of these rounds that no tool has answered in this attempt.
    open: Vec<OpenCall>,
    /// The calls of all attempts, by their offsets in the file, with what became of each.
    calls: BTreeMap<usize, (SourceSpan, CallState)>,
}

/// A call that the model has made and no tool has answered.
#[derive(Debug)]
struct OpenCall {
    call: ScriptedCall,
    /// Whether a person has decided about it.
    is_decided: bool,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallState {
    /// The model was not asked for it.
    Unasked,
    /// The model made the call, and no tool was called.
    Made(String),
    /// A person was asked about the call, and the test case has no answer.
    Waits,
    /// The tool was called.
    Answered,
    /// The result does not fit the tool.
    Misfit(String),
}

impl Conversations {
    pub(super) fn of_recording(recording: Arc<Replay>) -> Self {
        Self { recording: Some(recording), ..Self::default() }
    }

    /// Begins the conversation of an attempt at a task. An attempt that continues after the answer of a person continues
    /// its conversation.
    pub(super) fn begin(&self, ctx: &NodeContext, node: &NodeName, script: &Arc<ScriptedAgent>) {
        let key = ctx.idempotency_key();
        let task = ctx.task;
        let attempt = ctx.attempt;
        let mut all = self.all();
        if all.get(&key).is_some_and(|it| it.attempt == attempt) {
            return;
        }
        let mut calls = all.remove(&key).map(|it| it.calls).unwrap_or_default();
        for call in script.rounds.iter().flatten() {
            let unasked = || (call.span.clone(), CallState::Unasked);
            calls.entry(call.span.range.start).or_insert_with(unasked);
        }
        let node = node.clone();
        let script = Arc::clone(script);
        let open = Vec::new();
        all.insert(key, Conversation { node, task, attempt, script, round: 0, open, calls });
    }

    /// Returns the answer of the test case to the question of a task about a call.
    pub(super) fn decide(&self, task: TaskId, question: &Question) -> Option<Value> {
        let mut all = self.all();
        let conversation = all.values_mut().find(|it| it.task == task)?;
        let is_asked = |open: &OpenCall| {
            let OpenCall { call, is_decided } = open;
            !is_decided
                && question.show["tool"] == call.tool
                && question.show["input"] == call.input
        };
        let at = conversation.open.iter().position(is_asked)?;
        let open = &mut conversation.open[at];
        let place = open.call.span.range.start;
        let span = open.call.span.clone();
        let Some(answer) = open.call.answer.clone() else {
            conversation.calls.insert(place, (span, CallState::Waits));
            return None;
        };
        open.is_decided = true;
        if open.call.is_rejected() {
            conversation.open.remove(at);
            conversation.calls.insert(place, (span, CallState::Answered));
        } else if let Some(input) = answer.get("input") {
            open.call.input = input.clone();
        }
        Some(answer)
    }

    /// Returns the calls that no tool has answered, with the reason. A run that is expected to wait for a person need not
    /// make the calls of the agent that waits.
    pub(super) fn problems(&self, may_wait: bool) -> Vec<(SourceSpan, String)> {
        let all = self.all();
        let mut problems = BTreeMap::new();
        let mut answered = BTreeSet::new();
        for Conversation { node, calls, .. } in all.values() {
            if may_wait && calls.values().any(|it| it.1 == CallState::Waits) {
                continue;
            }
            for (at, (span, state)) in calls {
                let text = match state {
                    CallState::Answered => {
                        answered.insert(*at);
                        continue;
                    }
                    CallState::Unasked => format!("`{node}` ended before its model made this call"),
                    CallState::Made(tools) => format!(
                        "`{node}` refused this call: {tools}, the input must fit the tool, and the \
                         agent may call tools in a limited number of rounds"
                    ),
                    CallState::Waits => format!(
                        "`{node}` asks a person before this call: give it `answer: approve` or `answer: reject`"
                    ),
                    CallState::Misfit(problem) => problem.clone(),
                };
                problems.insert(*at, (span.clone(), text));
            }
        }
        // Several tasks may have the same answer, and some of them may end early.
        problems.into_iter().filter(|(at, _)| !answered.contains(at)).map(|(_, it)| it).collect()
    }

    /// Returns the next reply of the model to the task of a request, if it has a scripted one.
    fn reply(&self, request: &ChatRequest) -> Option<ChatReply> {
        let mut all = self.all();
        let conversation = find(&mut all, &request.key)?;
        if request.key.contains("/compact/") {
            return Some(ChatReply { text: "A summary.".to_owned(), ..reply() });
        }
        let script = Arc::clone(&conversation.script);
        let Some(calls) = script.rounds.get(conversation.round) else {
            return Some(ChatReply { text: answer_text(&script, request), ..reply() });
        };
        conversation.round += 1;
        let open = |it: &ScriptedCall| OpenCall { call: it.clone(), is_decided: false };
        conversation.open.extend(calls.iter().map(open));
        let tools: Vec<String> = request.tools.iter().map(|it| format!("`{}`", it.name)).collect();
        let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
        let tools = format!("its tools are {tools}");
        for call in calls {
            let known = conversation.calls.get_mut(&call.span.range.start);
            if let Some((_, state @ CallState::Unasked)) = known {
                *state = CallState::Made(tools.clone());
            }
        }
        let call = |scripted: &ScriptedCall| ToolCall {
            id: String::new(),
            name: scripted.tool.clone(),
            arguments: scripted.input.to_string(),
            extra: None,
        };
        let tool_calls = calls.iter().map(call).collect();
        Some(ChatReply { tool_calls, finish: Finish::ToolCalls, ..reply() })
    }

    /// Returns the scripted or recorded result of a call.
    fn known_result(
        &self,
        tool: &dyn Tool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let unscripted = || ToolError::permanent("the test case has no result for this call");
        let mut all = self.all();
        let Some(conversation) = find(&mut all, &ctx.key) else {
            return self.recorded_result(tool, input, ctx).unwrap_or_else(|| {
                let text = format!(
                    "`{}` calls `{}`, and no result of it is recorded",
                    ctx.caller,
                    tool.name()
                );
                self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
                Err(unscripted())
            });
        };
        let is_this = |it: &OpenCall| it.call.tool == tool.name() && it.call.input == *input;
        let at = conversation.open.iter().position(is_this).ok_or_else(unscripted)?;
        let OpenCall { call, is_decided } = conversation.open.remove(at);
        let misfit = match &call.result {
            _ if call.answer.is_some() && !is_decided => {
                Some("this call needs no approval, so it takes no `answer`".to_owned())
            }
            Ok(result) => misfit(tool, result),
            Err(_) => None,
        };
        let state = misfit.map_or(CallState::Answered, CallState::Misfit);
        conversation.calls.insert(call.span.range.start, (call.span, state));
        call.result.map_err(ToolError::permanent)
    }

    /// Returns the recorded result of a call, if there is one.
    fn recorded_result(
        &self,
        tool: &dyn Tool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Option<Result<Value, ToolError>> {
        recorded_result(self.recording.as_ref()?, tool, input, ctx)
    }

    /// Returns descriptions of the calls that have no recorded result.
    pub(super) fn unrecorded(&self) -> BTreeSet<String> {
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A poisoned lock is no problem: no code panics while it holds the lock, and each change is complete.
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Conversation>> {
        self.scripted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the conversation of the task that a key of a request or a call belongs to.
fn find<'c>(
    all: &'c mut BTreeMap<String, Conversation>,
    key: &str,
) -> Option<&'c mut Conversation> {
    // The request to a program has the key of its task.
    let is_of = |task: &String| {
        let rest = key.strip_prefix(task.as_str());
        rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
    };
    all.iter_mut().find(|(task, _)| is_of(task)).map(|(_, it)| it)
}

/// Returns the recorded result of a call, if there is one.
pub(crate) fn recorded_result(
    recording: &Replay,
    tool: &dyn Tool,
    input: &Value,
    ctx: &ToolContext,
) -> Option<Result<Value, ToolError>> {
    let text = recording.tool_result(&ctx.caller, tool.name(), input, ctx.place.as_ref())?;
    if let Some(reason) = text.strip_prefix("error: ") {
        return Some(Err(ToolError::permanent(reason)));
    }
    let values = [Value::from(text)].into_iter().chain(serde_json::from_str(text).ok());
    values.into_iter().find(|it| misfit(tool, it).is_none()).map(Ok)
}

/// Returns why a result does not fit a tool.
fn misfit(tool: &dyn Tool, result: &Value) -> Option<String> {
    let validator = validator_for(tool.output_schema()).ok()?;
    let error = validator.iter_errors(result).next()?;
    Some(format!("the result does not fit: `{}` returns another value: {error}", tool.name()))
}

fn reply() -> ChatReply {
    ChatReply { model: "script".to_owned(), ..ChatReply::default() }
}

/// Returns the answer in the form that the request asks for.
fn answer_text(script: &ScriptedAgent, request: &ChatRequest) -> String {
    let ScriptedAgent { answer, is_bare, .. } = script;
    if request.output.is_none() {
        return answer.values().find_map(Value::as_str).unwrap_or_default().to_owned();
    }
    match answer.values().next().filter(|_| *is_bare) {
        Some(value) => value.to_string(),
        None => Value::from(answer.clone()).to_string(),
    }
}

/// The scripted models of a run; other agents ask other models.
#[derive(Debug)]
pub(super) struct ScriptedModels {
    pub(super) conversations: Arc<Conversations>,
    pub(super) others: Arc<dyn ModelSource>,
}

impl ModelSource for ScriptedModels {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(self.with_other(name, self.others.model(name))))
    }

    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        self.others.embeddings(name)
    }

    /// No program runs in a test case.
    fn in_place_of_programs(&self) -> Option<Arc<dyn ChatModel>> {
        let none = || ModelError::Unavailable {
            message: "the test case has no answer in place of the program".to_owned(),
        };
        let other = self.others.in_place_of_programs().ok_or_else(none);
        Some(Arc::new(self.with_other("script", other)))
    }
}

impl ScriptedModels {
    /// Returns the scripted model of a name. The other one answers requests of agents without a script.
    fn with_other(
        &self,
        name: &str,
        other: Result<Arc<dyn ChatModel>, ModelError>,
    ) -> ScriptedModel {
        let conversations = Arc::clone(&self.conversations);
        ScriptedModel { name: name.to_owned(), conversations, other }
    }
}

#[derive(Debug)]
struct ScriptedModel {
    name: String,
    conversations: Arc<Conversations>,
    /// The model for agents without a script, or why there is none.
    other: Result<Arc<dyn ChatModel>, ModelError>,
}

#[async_trait]
impl ChatModel for ScriptedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        match self.conversations.reply(request) {
            Some(reply) => Ok(reply),
            None => self.other.clone()?.chat(request).await,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl ToolResults for Conversations {
    /// Every call has a result here: the scripted or recorded one, or an error.
    fn result(
        &self,
        tool: &dyn Tool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Option<Result<Value, ToolError>> {
        Some(self.known_result(tool, input, ctx))
    }
}
