//! Google's `generateContent`.
//!
//! The model is a part of the path, and so is the choice of a stream. A call may have no id: its result follows by name. The
//! signature of the thoughts before a call is a field beside the call, and a request that repeats the call has it, too. It
//! may also stand in a part without a call, which has its place among the calls.

use graphrun_core::event::MessagePart;
use serde_json::{Map, Value, json};

use super::{
    Wire,
    stream::{Fold, add_counts, append, send},
};
use crate::{
    Attachment, ChatReply, ChatRequest, Finish, Message, ModelError, Protocol, Role, TokenUsage,
    ToolCall, ToolChoice,
    calls::OfferedTools,
    deltas::AnswerSink,
    failure,
    lenient::text_of,
    provider::{OutputMode, Parameter},
    reader::{Answer, ReplyMetadata},
    shape::{Shape, add_extra, add_instruction, split_instructions, wire_schema},
    stated::StatedUsage,
    structured::strict_schema,
};

/// The field of a call with the signature of the thoughts before it.
const SIGNATURE: &str = "thoughtSignature";
/// The provider's id of a call, in the data that graphrun keeps with it. Another id may be unique where this one is not.
const CALL_ID: &str = "functionCallId";
/// A signed part without a call, and the number of calls before it, in the record of reasoning.
const SIGNED_PART: &str = "part";
const CALLS_BEFORE: &str = "calls_before";

pub(super) fn shape(request: &ChatRequest, shape: &Shape<'_>) -> Wire {
    let mut body = Map::new();
    let mut config = Map::new();
    let mut messages = request.messages.clone();
    if let Some(output) = &request.output {
        let schema = wire_schema(output);
        if shape.mode != OutputMode::Prompted {
            config.insert("responseMimeType".into(), "application/json".into());
        }
        if shape.mode == OutputMode::JsonSchema {
            let schema = strict_schema(&schema).unwrap_or(schema);
            config.insert("responseJsonSchema".into(), schema);
        } else {
            add_instruction(&mut messages, &schema);
        }
    }
    let (instructions, messages) = split_instructions(messages);
    if !instructions.is_empty() {
        let parts: Vec<Value> = instructions.iter().map(|it| json!({"text": it})).collect();
        body.insert("systemInstruction".into(), json!({"parts": parts}));
    }
    let offered = OfferedTools::of(&request.tools);
    body.insert("contents".into(), wire_contents(&messages, &offered).into());
    if !request.tools.is_empty() {
        let tool = |(name, description, schema): (&str, &str, Value)| json!({"name": name, "description": description, "parametersJsonSchema": schema});
        let declarations: Vec<Value> = offered.on_the_wire().map(tool).collect();
        body.insert("tools".into(), json!([{"functionDeclarations": declarations}]));
        let config = match &request.tool_choice {
            ToolChoice::Auto => json!({"mode": "AUTO"}),
            ToolChoice::Required => json!({"mode": "ANY"}),
            ToolChoice::None => json!({"mode": "NONE"}),
            ToolChoice::Tool(name) => {
                json!({"mode": "ANY", "allowedFunctionNames": [offered.name_on_the_wire(name)]})
            }
        };
        let choice = json!({"functionCallingConfig": config});
        shape.add(&mut body, Parameter::ToolChoice, Some(choice));
    }
    let settings = &request.settings;
    for (parameter, value) in settings.parameters() {
        let is_effort = parameter == Parameter::ReasoningEffort;
        let value = if is_effort { thinking_config(shape.model, &value) } else { value };
        shape.add(&mut config, parameter, Some(value));
    }
    if let Some(tokens) = settings.max_tokens {
        let tokens = shape.refused.most_tokens(tokens);
        config.insert("maxOutputTokens".into(), tokens.into());
    }
    if !config.is_empty() {
        body.insert("generationConfig".into(), Value::Object(config));
    }
    add_extra(&mut body, request);
    let method = if shape.sends(Parameter::Stream) {
        "streamGenerateContent?alt=sse"
    } else {
        "generateContent"
    };
    let model = path_of(shape.model);
    Wire { path: format!("/{model}:{method}"), body: Value::Object(body) }
}

/// Returns the path of a model. The name of a model of another publisher contains its path.
pub(super) fn path_of(model: &str) -> String {
    if model.contains('/') { model.to_owned() } else { format!("models/{model}") }
}

/// Returns how much a model thinks: a level, or a number of tokens for those that know no levels.
fn thinking_config(model: &str, effort: &Value) -> Value {
    let effort = effort.as_str().unwrap_or_default();
    let tokens = match effort {
        "none" => 0,
        "minimal" | "low" => 1024,
        "medium" => 8192,
        _ => 24_576,
    };
    if tokens == 0 || model.starts_with("gemini-2") {
        return json!({"thinkingBudget": tokens});
    }
    json!({"thinkingLevel": if effort == "xhigh" { "high" } else { effort }})
}

/// Returns the conversation. Messages of one author that follow each other are one message.
fn wire_contents(messages: &[Message], offered: &OfferedTools<'_>) -> Vec<Value> {
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let Message { role, content, attachments, tool_calls, tool_call_id, thinking, .. } =
            message;
        let mut parts: Vec<Value> = attachments.iter().map(file_part).collect();
        let role = match role {
            Role::Tool => {
                let calls = messages.iter().flat_map(|it| &it.tool_calls);
                let id = tool_call_id.as_deref().unwrap_or_default();
                let call = calls.rev().find(|it| it.id == id);
                let name = call.map(|it| offered.call_on_the_wire(it).0).unwrap_or_default();
                let mut response = json!({"name": name, "response": {"result": content}});
                if let Some(id) = call.and_then(id_of) {
                    response["id"] = id.clone();
                }
                parts.push(json!({"functionResponse": response}));
                "user"
            }
            role => {
                if !content.is_empty() {
                    parts.push(json!({"text": content}));
                }
                if *role == Role::Assistant { "model" } else { "user" }
            }
        };
        let signed = |calls: usize| {
            let here = thinking.iter().filter(move |it| it[CALLS_BEFORE] == calls);
            here.map(|it| it[SIGNED_PART].clone())
        };
        for (at, call) in tool_calls.iter().enumerate() {
            parts.extend(signed(at));
            parts.push(wire_call(call, offered));
        }
        parts.extend(signed(tool_calls.len()));
        match contents.last_mut() {
            _ if parts.is_empty() => {}
            Some((last, known)) if *last == role => known.extend(parts),
            _ => contents.push((role, parts)),
        }
    }
    contents.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn wire_call(call: &ToolCall, offered: &OfferedTools<'_>) -> Value {
    let (name, args) = offered.call_on_the_wire(call);
    let mut part = json!({"functionCall": {"name": name, "args": args}});
    if let Some(id) = id_of(call) {
        part["functionCall"]["id"] = id.clone();
    }
    if let Some(signature) = call.extra.as_ref().and_then(|it| it.get(SIGNATURE)) {
        part[SIGNATURE] = signature.clone();
    }
    part
}

fn file_part(file: &Attachment) -> Value {
    match file.text() {
        Some(text) => json!({"text": text}),
        None => json!({"inlineData": {"mimeType": file.media_type(), "data": file.data()}}),
    }
}

pub(super) fn read(body: &Value) -> Result<ChatReply, ModelError> {
    // Without the choice of events, a stream is a list of replies.
    if let Value::Array(chunks) = body {
        let mut fold = GeminiFold::default();
        for chunk in chunks {
            fold.add(chunk.clone(), &AnswerSink::default());
        }
        return read(&fold.body());
    }
    let mut stated = StatedUsage::default();
    let usage = usage_of(body.get("usageMetadata"), &mut stated);
    let candidates = body.get("candidates").and_then(Value::as_array);
    if failure::has_error(body) {
        let answer = candidates.and_then(|it| it.first()).map(read_candidate).unwrap_or_default();
        let error = failure::not_a_reply(body, Protocol::Gemini);
        return Err(answer.fail(error, usage, None));
    }
    if let Some(word) = body.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        let text = format!("the provider blocks the prompt ({})", failure::readable(word));
        return Err(ModelError::Refused { text, usage });
    }
    let Some(candidates) = candidates else {
        let is_empty = body.get("usageMetadata").is_some();
        return Err(if is_empty {
            ModelError::EmptyResponse { usage }
        } else {
            failure::not_a_reply(body, Protocol::Gemini)
        });
    };
    let Some(candidate) = candidates.first() else {
        return Err(ModelError::EmptyResponse { usage });
    };
    let answer = read_candidate(candidate);
    let finish = match candidate.get("finishReason").and_then(Value::as_str) {
        Some("STOP" | "FINISH_REASON_UNSPECIFIED") | None if answer.tool_calls.is_empty() => {
            Finish::Stop
        }
        Some("STOP" | "FINISH_REASON_UNSPECIFIED") | None => Finish::ToolCalls,
        Some(other) => Finish::Other(other.to_owned()),
    };
    let model = text_of(body.get("modelVersion"));
    answer.without_thoughts().conclude(ReplyMetadata {
        usage,
        stated,
        finish,
        model,
        ..ReplyMetadata::default()
    })
}

fn read_candidate(candidate: &Value) -> Answer {
    let mut answer = Answer::default();
    let mut reasoning = String::new();
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
        if is_thought(part) {
            reasoning.push_str(text);
        } else {
            answer.text.push_str(text);
        }
        let call = read_call(part);
        if let Some(signature) = part.get(SIGNATURE).filter(|_| call.is_none()) {
            let kept = if is_thought(part) {
                part.clone()
            } else {
                json!({"text": "", SIGNATURE: signature})
            };
            // The order of parts counts, and the calls are kept elsewhere.
            let calls_before = answer.tool_calls.len();
            answer.thinking.push(json!({CALLS_BEFORE: calls_before, SIGNED_PART: kept}));
        }
        answer.tool_calls.extend(call);
    }
    answer.reasoning = Some(reasoning);
    answer
}

fn is_thought(part: &Value) -> bool {
    part.get("thought").and_then(Value::as_bool) == Some(true)
}

fn read_call(part: &Value) -> Option<ToolCall> {
    let call = part.get("functionCall")?;
    let name = call.get("name")?.as_str().filter(|it| !it.is_empty())?;
    let id = call.get("id").and_then(Value::as_str).filter(|it| !it.is_empty());
    let mut extra = Map::new();
    if let Some(signature) = part.get(SIGNATURE) {
        extra.insert(SIGNATURE.to_owned(), signature.clone());
    }
    if let Some(id) = id {
        extra.insert(CALL_ID.to_owned(), id.into());
    }
    Some(ToolCall {
        id: id.unwrap_or_default().to_owned(),
        name: name.to_owned(),
        arguments: text_of(call.get("args")),
        extra: (!extra.is_empty()).then_some(Value::Object(extra)),
    })
}

/// Returns the provider's own id of a call.
fn id_of(call: &ToolCall) -> Option<&Value> {
    call.extra.as_ref()?.get(CALL_ID)
}

/// Reads the counts of tokens. Those of thoughts are not part of the answer's.
pub(super) fn usage_of(usage: Option<&Value>, stated: &mut StatedUsage) -> TokenUsage {
    let counts = [
        "promptTokenCount",
        "toolUsePromptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
    ];
    let counts = counts.map(|it| stated.count(it, usage.and_then(|usage| usage.get(it))));
    let [prompt, tools, answer, thoughts] = counts.map(Option::unwrap_or_default);
    let name = "cachedContentTokenCount";
    let usage = TokenUsage {
        input_tokens: prompt.saturating_add(tools),
        cached_input_tokens: stated.part(name, usage.and_then(|it| it.get(name))),
        output_tokens: answer.saturating_add(thoughts),
        reasoning_output_tokens: thoughts,
        calls: 1,
        ..TokenUsage::default()
    };
    stated.usage(usage).unwrap_or(TokenUsage { calls: 1, ..TokenUsage::default() })
}

/// Collects the pieces of a stream, each of which has the form of a reply.
#[derive(Debug, Default)]
pub(super) struct GeminiFold {
    body: Map<String, Value>,
    candidate: Map<String, Value>,
    parts: Vec<Value>,
    has_content: bool,
}

impl Fold for GeminiFold {
    fn add(&mut self, event: Value, deltas: &AnswerSink) -> bool {
        let Value::Object(event) = event else { return false };
        let mut is_data = false;
        for (name, value) in event {
            if name == "usageMetadata" {
                is_data |= add_counts(self.body.entry(name).or_insert(Value::Null), value);
                continue;
            }
            is_data |= name == "promptFeedback";
            if name != "candidates" {
                self.body.insert(name, value);
                continue;
            }
            let Value::Array(candidates) = value else { continue };
            // Only the first candidate is the answer.
            let number = |it: &Value| it.get("index").and_then(Value::as_u64).unwrap_or(0);
            for candidate in candidates.into_iter().filter(|it| number(it) == 0) {
                let Value::Object(mut candidate) = candidate else { continue };
                let content = candidate.remove("content");
                let parts = content.as_ref().and_then(|it| it.get("parts")?.as_array());
                for part in parts.into_iter().flatten() {
                    is_data |= self.add_part(part, deltas);
                }
                is_data |= candidate.get("finishReason").is_some_and(Value::is_string);
                self.candidate.extend(candidate);
            }
        }
        is_data
    }

    fn is_whole(&self) -> bool {
        let blocked = self.body.get("promptFeedback").and_then(|it| it.get("blockReason"));
        self.candidate.get("finishReason").or(blocked).is_some_and(Value::is_string)
    }

    fn may_be_silent(&self) -> bool {
        !self.has_content
    }

    fn body(&mut self) -> Value {
        let mut body = std::mem::take(&mut self.body);
        let mut candidate = std::mem::take(&mut self.candidate);
        let parts = std::mem::take(&mut self.parts);
        if !parts.is_empty() || !candidate.is_empty() {
            candidate.insert("content".to_owned(), json!({"role": "model", "parts": parts}));
            body.insert("candidates".to_owned(), json!([candidate]));
        } else {
            body.entry("candidates").or_insert_with(|| json!([]));
        }
        Value::Object(body)
    }
}

impl GeminiFold {
    /// Adds a part, and returns whether it has content. Each piece of a text is a part.
    fn add_part(&mut self, part: &Value, deltas: &AnswerSink) -> bool {
        let kind = if is_thought(part) { MessagePart::Reasoning } else { MessagePart::Text };
        let has_text = send(deltas, kind, part.get("text"));
        let call = part.get("functionCall");
        if let Some(args) = call.and_then(|it| it.get("args")) {
            deltas.count(&text_of(Some(args)));
        }
        self.has_content |= has_text || call.is_some();
        // A signature belongs to its own piece.
        let is_signed = |it: &Value| it.get(SIGNATURE).is_some();
        let text = part.get("text").and_then(Value::as_str).filter(|_| !is_signed(part));
        match (text, self.parts.last_mut()) {
            (Some(text), Some(last))
                if last["text"].is_string()
                    && !is_signed(last)
                    && is_thought(last) == is_thought(part) =>
            {
                append(&mut last["text"], text);
            }
            _ => self.parts.push(part.clone()),
        }
        has_text || text.is_none()
    }
}
