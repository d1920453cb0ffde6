//! OpenAI's Responses.
//!
//! The conversation is a list of items: messages, calls, results, and the model's reasoning, which is encrypted. graphrun
//! lets OpenAI store nothing, so a request that continues after a call repeats the items of reasoning.

use graphrun_core::event::MessagePart;
use serde_json::{Map, Value, json};

use super::{
    Wire,
    stream::{Fold, send},
};
use crate::{
    Attachment, AttachmentKind, ChatReply, ChatRequest, Finish, Message, ModelError, Protocol,
    Role, ToolCall, ToolChoice,
    calls::{OfferedTools, wire_name},
    deltas::AnswerSink,
    failure,
    lenient::{parts_text, text_of},
    provider::{OutputMode, Parameter, SystemRole},
    reader::{Answer, ReplyMetadata, read_usage},
    shape::{Shape, add_extra, add_instruction, wire_schema},
    stated::StatedUsage,
    structured::strict_schema,
};

/// The most items of a stream.
const ITEMS_MAX: usize = 4096;

pub(super) fn shape(request: &ChatRequest, shape: &Shape<'_>) -> Wire {
    let mut body = Map::new();
    body.insert("model".into(), shape.model.into());
    body.insert("store".into(), false.into());
    let mut messages = request.messages.clone();
    if let Some(output) = &request.output {
        let schema = wire_schema(output);
        let format = match shape.mode {
            OutputMode::JsonSchema => {
                let strict = strict_schema(&schema);
                let is_strict = strict.is_some();
                Some(json!({
                    "type": "json_schema",
                    "name": wire_name(&output.name),
                    "strict": is_strict,
                    "schema": strict.unwrap_or(schema),
                }))
            }
            mode => {
                add_instruction(&mut messages, &schema);
                (mode == OutputMode::JsonObject).then(|| json!({"type": "json_object"}))
            }
        };
        if let Some(format) = format {
            body.insert("text".into(), json!({"format": format}));
        }
    }
    let offered = OfferedTools::of(&request.tools);
    let items = messages.iter().flat_map(|it| wire_items(it, &offered, shape));
    body.insert("input".into(), items.collect());
    if !request.tools.is_empty() {
        let tool = |(name, description, parameters): (&str, &str, Value)| json!({"type": "function", "name": name, "description": description, "parameters": parameters, "strict": false});
        body.insert("tools".into(), offered.on_the_wire().map(tool).collect());
        let choice = match &request.tool_choice {
            ToolChoice::Auto => "auto".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::None => "none".into(),
            ToolChoice::Tool(name) => {
                json!({"type": "function", "name": offered.name_on_the_wire(name)})
            }
        };
        shape.add(&mut body, Parameter::ToolChoice, Some(choice));
        let parallel = request.settings.parallel_tools.map(Value::from);
        shape.add(&mut body, Parameter::ParallelTools, parallel);
        // Other models reject it.
        if shape.profile.reasons(shape.model) {
            body.insert("include".into(), json!(["reasoning.encrypted_content"]));
        }
    }
    let settings = &request.settings;
    for (parameter, value) in settings.parameters() {
        let is_effort = parameter == Parameter::ReasoningEffort;
        let value = if is_effort { json!({"effort": value}) } else { value };
        shape.add(&mut body, parameter, Some(value));
    }
    if let Some(tokens) = settings.max_tokens {
        let tokens = shape.refused.most_tokens(tokens);
        body.insert("max_output_tokens".into(), tokens.into());
    }
    add_extra(&mut body, request);
    body.insert("stream".into(), shape.sends(Parameter::Stream).into());
    Wire { path: "/responses".to_owned(), body: Value::Object(body) }
}

fn wire_items(message: &Message, offered: &OfferedTools<'_>, shape: &Shape<'_>) -> Vec<Value> {
    let Message { role, content, attachments, tool_calls, tool_call_id, thinking, .. } = message;
    let text = |role: &str| json!({"role": role, "content": content});
    match role {
        Role::System => {
            let role = match shape.refused.system_role(shape.profile.system_role) {
                SystemRole::System => "system",
                SystemRole::Developer => "developer",
                SystemRole::User => "user",
            };
            vec![text(role)]
        }
        Role::User if attachments.is_empty() => vec![text("user")],
        Role::User => {
            let parts = attachments.iter().map(wire_file).chain([text_part(content)]);
            vec![json!({"role": "user", "content": parts.collect::<Vec<_>>()})]
        }
        Role::Tool => {
            let id = tool_call_id.as_deref().unwrap_or_default();
            vec![json!({"type": "function_call_output", "call_id": id, "output": content})]
        }
        Role::Assistant => {
            let mut items = thinking.clone();
            if !content.is_empty() {
                items.push(text("assistant"));
            }
            for call in tool_calls {
                let (name, arguments) = offered.call_on_the_wire(call);
                let arguments = arguments.to_string();
                items.push(json!({
                    "type": "function_call", "call_id": call.id, "name": name, "arguments": arguments,
                }));
            }
            items
        }
    }
}

fn wire_file(file: &Attachment) -> Value {
    match file.kind() {
        AttachmentKind::Image => json!({"type": "input_image", "image_url": file.data_url()}),
        AttachmentKind::Text => text_part(&file.text().unwrap_or_default()),
        AttachmentKind::Pdf | AttachmentKind::Audio => {
            json!({"type": "input_file", "filename": file.name(), "file_data": file.data_url()})
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

pub(super) fn read(body: &Value) -> Result<ChatReply, ModelError> {
    let output = body.get("output").and_then(Value::as_array);
    let mut stated = StatedUsage::default();
    let usage = read_usage(body.get("usage"), &mut stated);
    let answer = output.map(|it| read_items(it)).unwrap_or_default();
    if output.is_none() || failure::has_error(body) {
        let error = failure::not_a_reply(body, Protocol::Responses);
        return Err(answer.fail(error, usage, None));
    }
    let why = body.pointer("/incomplete_details/reason").and_then(Value::as_str);
    let finish = match body.get("status").and_then(Value::as_str) {
        None | Some("completed") if answer.tool_calls.is_empty() => Finish::Stop,
        None | Some("completed") => Finish::ToolCalls,
        Some(status) => Finish::Other(why.unwrap_or(status).to_owned()),
    };
    let model = text_of(body.get("model"));
    answer.without_thoughts().conclude(ReplyMetadata {
        usage,
        stated,
        finish,
        model,
        ..ReplyMetadata::default()
    })
}

fn read_items(output: &[Value]) -> Answer {
    let mut answer = Answer::default();
    let mut reasoning = String::new();
    for item in output {
        match item.get("type").and_then(Value::as_str) {
            Some("reasoning") => {
                reasoning.push_str(&parts_text(item));
                if item.get("encrypted_content").is_some_and(Value::is_string) {
                    answer.thinking.push(kept_reasoning(item));
                }
            }
            Some("function_call") => answer.tool_calls.extend(read_call(item)),
            Some("message") | None if is_commentary(item) => {
                let text = item.get("content").map(parts_text).unwrap_or_default();
                reasoning.push_str(&text);
                answer.thinking.push(kept_commentary(item, &text));
            }
            Some("message") | None => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    match part.get("type").and_then(Value::as_str) {
                        Some("refusal") => answer.refusal = Some(parts_text(part)),
                        _ => answer.text.push_str(&parts_text(part)),
                    }
                }
            }
            // Calls of tools that the provider runs itself.
            Some(_) => {}
        }
    }
    answer.reasoning = Some(reasoning);
    answer
}

/// Returns whether a message is one before the answer, such as what the model is about to do.
fn is_commentary(message: &Value) -> bool {
    let phase = message.get("phase").and_then(Value::as_str);
    phase.is_some_and(|it| it != "final_answer")
}

/// Returns a message before the answer as a later request has it.
fn kept_commentary(message: &Value, text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "phase": message["phase"], "content": text})
}

/// Returns an item of reasoning as a later request has it.
fn kept_reasoning(item: &Value) -> Value {
    let mut kept = json!({"type": "reasoning", "summary": []});
    for name in ["id", "summary", "encrypted_content"] {
        if let Some(value) = item.get(name) {
            kept[name] = value.clone();
        }
    }
    kept
}

fn read_call(item: &Value) -> Option<ToolCall> {
    let name = item.get("name")?.as_str().filter(|it| !it.is_empty())?;
    let id = text_of(item.get("call_id"));
    let arguments = text_of(item.get("arguments"));
    Some(ToolCall { id, name: name.to_owned(), arguments, extra: None })
}

/// Collects the events of a stream. The last event has the whole reply; the items before it are for streams without it.
#[derive(Debug, Default)]
pub(super) struct ResponsesFold {
    response: Option<Value>,
    items: Vec<Value>,
    open: OpenItem,
    has_content: bool,
    is_over: bool,
}

/// The item that is being written, for a stream that breaks off.
#[derive(Debug, Default)]
struct OpenItem {
    /// The item as it was announced, without its content.
    item: Value,
    text: String,
    reasoning: String,
    /// The arguments of a call.
    arguments: String,
}

impl OpenItem {
    fn is_thinking(&self) -> bool {
        self.item.get("type").is_some_and(|it| it == "reasoning")
    }

    /// Returns the part that has arrived, as whole items have it.
    fn into_items(self) -> impl Iterator<Item = Value> {
        let Self { mut item, text, reasoning, arguments } = self;
        let part = |kind: &str, text: String| json!({"type": kind, "text": text});
        let reasoning = (!reasoning.is_empty())
            .then(|| json!({"type": "reasoning", "summary": [part("summary_text", reasoning)]}));
        let message = (!text.is_empty())
            .then(|| json!({"type": "message", "content": [part("output_text", text)]}));
        let call = (!arguments.is_empty() && item.is_object()).then(|| {
            item["arguments"] = arguments.into();
            item
        });
        reasoning.into_iter().chain(message).chain(call)
    }
}

impl Fold for ResponsesFold {
    fn add(&mut self, event: Value, deltas: &AnswerSink) -> bool {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let delta = event.get("delta");
        let text = delta.and_then(Value::as_str).unwrap_or_default();
        match kind {
            "response.output_text.delta" if is_commentary(&self.open.item) => {
                self.has_content |= send(deltas, MessagePart::Reasoning, delta);
                self.open.reasoning.push_str(text);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.has_content |= send(deltas, MessagePart::Text, delta);
                self.open.text.push_str(text);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.has_content |= send(deltas, MessagePart::Reasoning, delta);
                self.open.reasoning.push_str(text);
            }
            "response.output_item.added" => {
                self.open.item = event.get("item").cloned().unwrap_or_default();
            }
            "response.output_item.done" => {
                self.open = OpenItem::default();
                self.has_content = true;
                if let Some(item) = event.get("item").filter(|_| self.items.len() < ITEMS_MAX) {
                    self.items.push(item.clone());
                }
            }
            "response.function_call_arguments.delta" => {
                self.has_content = true;
                deltas.count(text);
                self.open.arguments.push_str(text);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                self.is_over = true;
                self.response = event.get("response").cloned();
            }
            _ => {
                if let Some(response) = event.get("response").filter(|_| !self.is_over) {
                    self.response = Some(response.clone());
                }
            }
        }
        // Other events, and pieces without a text, keep the connection open.
        kind.starts_with("response.") && delta.is_none_or(|it| *it != "")
    }

    fn is_whole(&self) -> bool {
        self.is_over
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn may_be_silent(&self) -> bool {
        !self.has_content || self.open.is_thinking()
    }

    fn body(&mut self) -> Value {
        let mut body = self.response.take().unwrap_or_else(|| json!({}));
        let mut items = std::mem::take(&mut self.items);
        items.extend(std::mem::take(&mut self.open).into_items());
        let is_empty = body.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if is_empty && body.is_object() {
            body["output"] = items.into();
        }
        if !self.is_over && body.is_object() {
            // The status of a stream that broke off is that of its beginning.
            body["status"] = Value::Null;
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(events: &[Value]) -> String {
        let lines: Vec<String> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
        lines.concat()
    }

    #[test]
    fn the_part_of_a_broken_item_is_estimated() {
        let created = json!({"type": "response.created", "response": {"status": "in_progress", "output": [], "usage": null}});
        let added = |item: Value| json!({"type": "response.output_item.added", "item": item});
        let call =
            json!({"type": "function_call", "call_id": "call_1", "name": "look", "arguments": ""});
        let message = |phase: &str| json!({"type": "message", "phase": phase, "content": []});
        let failed =
            json!({"type": "error", "error": {"code": "server_error", "message": "later"}});
        for (item, kind) in [
            (call, "response.function_call_arguments.delta"),
            (message("commentary"), "response.output_text.delta"),
            (message("final_answer"), "response.output_text.delta"),
            (json!({"type": "reasoning"}), "response.reasoning_summary_text.delta"),
        ] {
            let delta = json!({"type": kind, "delta": "z".repeat(175)});
            let begun = [created.clone(), added(item), delta.clone(), delta];
            for events in [&begun[..], &[&begun[..], std::slice::from_ref(&failed)].concat()] {
                let error = Protocol::Responses.read_text(&stream(events)).unwrap_err();
                let usage = error.usage();
                assert!(error.is_retryable(), "{error:?}");
                assert_eq!((usage.output_tokens, usage.estimated), (100, true), "{kind} {error:?}");
            }
        }
    }
}
