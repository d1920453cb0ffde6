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
    id::NodeName,
    models::{ChatModel, ChatReply, ChatRequest, EmbeddingModel, Finish, ModelError, ToolCall},
    nodes::{ModelSource, ToolSource},
    state::{Update, validator_for},
    tool::{Tool, ToolContext, ToolError},
    workflow::case_file::{ScriptedAgent, ScriptedCall},
};

/// The conversations of the agents of one run.
#[derive(Debug, Default)]
pub(super) struct Conversations(Mutex<BTreeMap<String, Conversation>>);

/// The conversation of one task, over all of its attempts.
#[derive(Debug)]
struct Conversation {
    node: NodeName,
    script: Arc<ScriptedAgent>,
    /// The number of rounds that the model has asked for in this attempt.
    round: usize,
    /// The calls of these rounds that no tool has answered in this attempt.
    open: Vec<ScriptedCall>,
    /// The calls of all attempts, by their offsets in the file, with what became of each.
    calls: BTreeMap<usize, (SourceSpan, CallState)>,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CallState {
    /// The model was not asked for it.
    Unasked,
    /// The model made the call, and no tool was called.
    Made(String),
    /// The tool was called.
    Answered,
    /// The result does not fit the tool.
    Misfit(String),
}

impl Conversations {
    /// Begins the conversation of an attempt at a task, which has this key.
    pub(super) fn begin(&self, key: String, node: &NodeName, script: &Arc<ScriptedAgent>) {
        let mut all = self.all();
        let mut calls = all.remove(&key).map(|it| it.calls).unwrap_or_default();
        for call in script.rounds.iter().flatten() {
            let unasked = || (call.span.clone(), CallState::Unasked);
            calls.entry(call.span.range.start).or_insert_with(unasked);
        }
        let (node, script) = (node.clone(), Arc::clone(script));
        all.insert(key, Conversation { node, script, round: 0, open: Vec::new(), calls });
    }

    /// Returns the calls that no tool has answered, with the reason.
    pub(super) fn problems(&self) -> Vec<(SourceSpan, String)> {
        let all = self.all();
        let mut problems = BTreeMap::new();
        let mut answered = BTreeSet::new();
        for Conversation { node, calls, .. } in all.values() {
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
                    CallState::Misfit(problem) => format!("the result does not fit: {problem}"),
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
            return Some(ChatReply { text: answer_text(&script.answer, request), ..reply() });
        };
        conversation.round += 1;
        conversation.open.extend(calls.iter().cloned());
        let tools: Vec<String> = request.tools.iter().map(|it| format!("`{}`", it.name)).collect();
        let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
        let tools = format!("its tools are {tools}");
        for call in calls {
            let known = conversation.calls.get_mut(&call.span.range.start);
            if let Some((_, state @ CallState::Unasked)) = known {
                *state = CallState::Made(tools.clone());
            }
        }
        let call = |it: &ScriptedCall| ToolCall {
            id: String::new(),
            name: it.tool.clone(),
            arguments: it.input.to_string(),
            extra: None,
        };
        let tool_calls = calls.iter().map(call).collect();
        Some(ChatReply { tool_calls, finish: Finish::ToolCalls, ..reply() })
    }

    /// Returns the scripted result of a call.
    fn result(&self, tool: &dyn Tool, input: &Value, key: &str) -> Result<Value, ToolError> {
        let unscripted = || ToolError::permanent("the test case has no result for this call");
        let mut all = self.all();
        let conversation = find(&mut all, key).ok_or_else(unscripted)?;
        let is_this = |it: &ScriptedCall| it.tool == tool.name() && it.input == *input;
        let at = conversation.open.iter().position(is_this).ok_or_else(unscripted)?;
        let call = conversation.open.remove(at);
        let misfit = call.result.as_ref().ok().and_then(|it| misfit(tool, it));
        let state = misfit.map_or(CallState::Answered, CallState::Misfit);
        conversation.calls.insert(call.span.range.start, (call.span, state));
        call.result.map_err(ToolError::permanent)
    }

    /// A poisoned lock is no problem: no code panics while it holds the lock, and each change is complete.
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Conversation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the conversation of the task that a key of a request or a call belongs to.
fn find<'c>(
    all: &'c mut BTreeMap<String, Conversation>,
    key: &str,
) -> Option<&'c mut Conversation> {
    let is_of =
        |task: &String| key.strip_prefix(task.as_str()).is_some_and(|it| it.starts_with('/'));
    all.iter_mut().find(|(task, _)| is_of(task)).map(|(_, it)| it)
}

/// Returns why a result does not fit a tool.
fn misfit(tool: &dyn Tool, result: &Value) -> Option<String> {
    let validator = validator_for(tool.output_schema()).ok()?;
    let error = validator.iter_errors(result).next()?;
    Some(format!("`{}` returns another value: {error}", tool.name()))
}

fn reply() -> ChatReply {
    ChatReply { model: "script".to_owned(), ..ChatReply::default() }
}

/// Returns the answer in the form that the request asks for.
fn answer_text(answer: &Update, request: &ChatRequest) -> String {
    let writes = || answer.writes.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
    let Some(output) = &request.output else {
        return writes().find_map(|it| it.1.as_str()).unwrap_or_default().to_owned();
    };
    let properties = output.schema.get("properties").and_then(Value::as_object);
    let is_asked = |name: &str| properties.is_some_and(|it| it.contains_key(name));
    let asked = writes().filter(|it| is_asked(it.0));
    let asked: serde_json::Map<String, Value> =
        asked.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    // A single record is asked for without its name.
    match writes().find(|it| it.1.is_object()).filter(|_| asked.is_empty()) {
        Some((_, record)) => record.to_string(),
        None => Value::from(asked).to_string(),
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
        let (conversations, others) = (Arc::clone(&self.conversations), Arc::clone(&self.others));
        Ok(Arc::new(ScriptedModel { name: name.to_owned(), conversations, others }))
    }

    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        self.others.embeddings(name)
    }

    fn in_place_of_programs(&self) -> Option<Arc<dyn ChatModel>> {
        self.others.in_place_of_programs()
    }
}

#[derive(Debug)]
struct ScriptedModel {
    name: String,
    conversations: Arc<Conversations>,
    others: Arc<dyn ModelSource>,
}

#[async_trait]
impl ChatModel for ScriptedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        match self.conversations.reply(request) {
            Some(reply) => Ok(reply),
            None => self.others.model(&self.name)?.chat(request).await,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Tools with scripted results.
#[derive(Debug)]
pub(super) struct ScriptedTools(pub(super) Arc<Conversations>);

impl ToolSource for ScriptedTools {
    fn in_place_of(&self, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        Arc::new(ScriptedTool { tool, conversations: Arc::clone(&self.0) })
    }
}

struct ScriptedTool {
    tool: Arc<dyn Tool>,
    conversations: Arc<Conversations>,
}

#[async_trait]
impl Tool for ScriptedTool {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn input_schema(&self) -> &Value {
        self.tool.input_schema()
    }

    fn output_schema(&self) -> &Value {
        self.tool.output_schema()
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError> {
        self.conversations.result(self.tool.as_ref(), &input, &ctx.key)
    }
}
