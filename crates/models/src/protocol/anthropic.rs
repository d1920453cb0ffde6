//! Anthropic's Messages.
//!
//! Instructions are no messages, results of tools are parts of a message of the user, and each message is a list of blocks.
//! The blocks of reasoning are signed; a request that continues after a call of a tool repeats them unchanged.

use std::collections::BTreeMap;

use graphrun_core::event::MessagePart;
use serde_json::{Map, Value, json};

use super::{
    Wire,
    stream::{Fold, add_counts, append, send},
};
use crate::{
    Attachment, AttachmentKind, ChatReply, ChatRequest, Finish, Message, ModelError, Protocol,
    Role, TokenUsage, ToolCall, ToolChoice,
    calls::OfferedTools,
    deltas::AnswerSink,
    failure,
    lenient::{parts_text, text_of},
    provider::{OutputMode, Parameter},
    reader::{Answer, ReplyMetadata, read_usage},
    shape::{Shape, add_extra, add_instruction, split_instructions, text_part, wire_schema},
    stated::StatedUsage,
    structured::strict_schema,
};

/// The most tokens of an answer, which a request must state. A model that allows fewer says so.
const TOKENS_MAX: u32 = 32_000;

/// The most blocks of a stream. Their numbers are the provider's.
const BLOCKS_MAX: usize = 4096;

/// The field in which the arguments of a call are collected.
const PARTIAL_INPUT: &str = "partial_input";

pub(super) fn shape(request: &ChatRequest, shape: &Shape<'_>) -> Wire {
    let mut body = Map::new();
    body.insert("model".into(), shape.model.into());
    let settings = &request.settings;
    let tokens = shape.refused.most_tokens(settings.max_tokens.unwrap_or(TOKENS_MAX));
    body.insert("max_tokens".into(), tokens.into());
    let mut messages = request.messages.clone();
    let mut output_config = Map::new();
    if let Some(output) = &request.output {
        let schema = wire_schema(output);
        // The provider knows no schema with free keys, and no mode for any JSON.
        let strict = strict_schema(&schema).filter(|_| shape.mode == OutputMode::JsonSchema);
        match strict {
            Some(schema) => {
                let format = json!({"type": "json_schema", "schema": schema});
                output_config.insert("format".into(), format);
            }
            None => add_instruction(&mut messages, &schema),
        }
    }
    let (instructions, messages) = split_instructions(messages);
    let offered = OfferedTools::of(&request.tools);
    let mut system: Vec<Value> =
        instructions.iter().filter(|it| !it.trim().is_empty()).map(|it| text_part(it)).collect();
    let mut messages = wire_messages(&messages, &offered);
    if settings.cache_prompt {
        // The instructions, with the tools before them, are the same in other runs; the conversation in the next round.
        system.last_mut().map(mark_cached);
        let last = messages.last_mut().and_then(|it| it["content"].as_array_mut()?.last_mut());
        last.map(mark_cached);
    }
    if !system.is_empty() {
        body.insert("system".into(), system.into());
    }
    body.insert("messages".into(), messages.into());
    if !request.tools.is_empty() {
        let tool = |(name, description, schema): (&str, &str, Value)| json!({"name": name, "description": description, "input_schema": schema});
        body.insert("tools".into(), offered.on_the_wire().map(tool).collect());
        let choice = tool_choice(request, shape, &offered);
        shape.add(&mut body, Parameter::ToolChoice, Some(choice));
    }
    let effort = settings.effort.as_deref().filter(|_| shape.sends(Parameter::ReasoningEffort));
    let thinks = effort.is_some_and(|it| it != "none");
    for (parameter, value) in settings.parameters() {
        let is_left_out = match parameter {
            Parameter::ReasoningEffort => true,
            // The provider rejects them for a model that thinks.
            Parameter::Temperature | Parameter::TopP => thinks,
            _ => false,
        };
        if !is_left_out {
            shape.add(&mut body, parameter, Some(value));
        }
    }
    match effort {
        None => {}
        Some("none") => drop(body.insert("thinking".into(), json!({"type": "disabled"}))),
        Some(effort) => {
            let effort = if effort == "minimal" { "low" } else { effort };
            output_config.insert("effort".into(), effort.into());
            body.insert("thinking".into(), json!({"type": "adaptive"}));
        }
    }
    if !output_config.is_empty() {
        body.insert("output_config".into(), Value::Object(output_config));
    }
    add_extra(&mut body, request);
    body.insert("stream".into(), shape.sends(Parameter::Stream).into());
    Wire { path: "/messages".to_owned(), body: Value::Object(body) }
}

fn tool_choice(request: &ChatRequest, shape: &Shape<'_>, offered: &OfferedTools<'_>) -> Value {
    let settings = &request.settings;
    let thinks = settings.effort.as_deref().is_some_and(|it| it != "none")
        && shape.sends(Parameter::ReasoningEffort);
    let mut choice = match &request.tool_choice {
        ToolChoice::None => return json!({"type": "none"}),
        // The provider rejects a forced call of a model that thinks.
        forced if thinks && forced.is_forced() => json!({"type": "auto"}),
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => {
            json!({"type": "tool", "name": offered.name_on_the_wire(name)})
        }
    };
    if let Some(parallel) = settings.parallel_tools
        && shape.sends(Parameter::ParallelTools)
    {
        choice[shape.profile.name_of(Parameter::ParallelTools)] = (!parallel).into();
    }
    choice
}

fn mark_cached(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Returns the conversation. Messages of one author that follow each other are one message.
fn wire_messages(messages: &[Message], offered: &OfferedTools<'_>) -> Vec<Value> {
    let mut wire: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            Role::Assistant => ("assistant", assistant_blocks(message, offered)),
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let mut result = json!({"type": "tool_result", "tool_use_id": id});
                if !message.content.trim().is_empty() {
                    result["content"] = message.content.as_str().into();
                }
                ("user", vec![result])
            }
            Role::System | Role::User => {
                let mut blocks: Vec<Value> = message.attachments.iter().map(file_block).collect();
                blocks.extend(text_blocks(&message.content));
                ("user", blocks)
            }
        };
        match wire.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, known)) if *last == role => known.extend(blocks),
            _ => wire.push((role, blocks)),
        }
    }
    wire.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn file_block(file: &Attachment) -> Value {
    let source = json!({"type": "base64", "media_type": file.media_type(), "data": file.data()});
    match file.kind() {
        AttachmentKind::Text => text_part(&file.text().unwrap_or_default()),
        AttachmentKind::Image => json!({"type": "image", "source": source}),
        AttachmentKind::Pdf | AttachmentKind::Audio => {
            json!({"type": "document", "source": source, "title": file.name()})
        }
    }
}

/// Returns the blocks of a text: none for a blank one, which the provider rejects.
fn text_blocks(text: &str) -> Vec<Value> {
    let text = text.trim_end();
    if text.is_empty() { Vec::new() } else { vec![text_part(text)] }
}

fn assistant_blocks(message: &Message, offered: &OfferedTools<'_>) -> Vec<Value> {
    let mut blocks = message.thinking.clone();
    blocks.extend(text_blocks(&message.content));
    for call in &message.tool_calls {
        let (name, input) = offered.call_on_the_wire(call);
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": name, "input": input}));
    }
    blocks
}

pub(super) fn read(body: &Value) -> Result<ChatReply, ModelError> {
    let content = body.get("content").and_then(Value::as_array);
    let mut stated = StatedUsage::default();
    let usage = usage_of(body.get("usage"), &mut stated);
    let answer = content.map(|it| read_content(it)).unwrap_or_default();
    if content.is_none() || failure::has_error(body) {
        let error = failure::not_a_reply(body, Protocol::Anthropic);
        return Err(answer.fail(error, usage, None));
    }
    let finish = match body.get("stop_reason").and_then(Value::as_str) {
        None | Some("end_turn") => Finish::Stop,
        Some("tool_use") => Finish::ToolCalls,
        Some(other) => Finish::Other(other.to_owned()),
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

fn read_content(content: &[Value]) -> Answer {
    let mut answer = Answer::default();
    let mut reasoning = String::new();
    for block in content {
        match block.get("type").and_then(Value::as_str) {
            Some("thinking") => {
                reasoning.push_str(&parts_text(block));
                answer.thinking.push(block.clone());
            }
            Some("redacted_thinking") => answer.thinking.push(block.clone()),
            Some("tool_use") => answer.tool_calls.extend(read_call(block)),
            _ => answer.text.push_str(&parts_text(block)),
        }
    }
    answer.reasoning = Some(reasoning);
    answer
}

fn read_call(block: &Value) -> Option<ToolCall> {
    let name = block.get("name")?.as_str().filter(|it| !it.is_empty())?;
    let arguments = text_of(block.get("input"));
    Some(ToolCall { id: text_of(block.get("id")), name: name.to_owned(), arguments, extra: None })
}

/// Reads the counts of tokens. Those of the cache are not part of the others.
fn usage_of(usage: Option<&Value>, stated: &mut StatedUsage) -> TokenUsage {
    let plain = read_usage(usage, stated);
    if stated.has_ignored_count() {
        return plain;
    }
    let name = "cache_read_input_tokens";
    let cached = stated.part(name, usage.and_then(|it| it.get(name)));
    let input = plain.input_tokens.saturating_add(cached);
    TokenUsage {
        input_tokens: input.saturating_add(plain.cache_write_input_tokens),
        cached_input_tokens: cached,
        ..plain
    }
}

/// Collects the events of a stream: blocks by their number, and the message around them.
#[derive(Debug, Default)]
pub(super) struct AnthropicFold {
    message: Map<String, Value>,
    blocks: Vec<Value>,
    /// The places of blocks whose number another block has already.
    moved: BTreeMap<usize, usize>,
    has_content: bool,
    /// Whether the last block is one of reasoning. Some models do not show it.
    is_thinking: bool,
    is_over: bool,
}

impl Fold for AnthropicFold {
    fn add(&mut self, event: Value, deltas: &AnswerSink) -> bool {
        let index =
            event.get("index").and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok());
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                if let Some(Value::Object(message)) = event.get("message") {
                    self.message.clone_from(message);
                }
            }
            Some("content_block_start") => {
                let block = event.get("content_block").cloned().unwrap_or_else(|| json!({}));
                let kind = block.get("type").and_then(Value::as_str);
                self.is_thinking = matches!(kind, Some("thinking" | "redacted_thinking"));
                send(deltas, MessagePart::Text, block.get("text"));
                self.move_if_used(index);
                if let Some(place) = self.block(index) {
                    *place = block;
                }
            }
            Some("content_block_delta") => {
                self.has_content = true;
                return event.get("delta").is_some_and(|it| self.add_delta(index, it, deltas));
            }
            Some("content_block_stop") => self.is_thinking = false,
            Some("message_delta") => self.add_end(&event),
            Some("message_stop") => self.is_over = true,
            // A `ping`, or an event of a later version.
            _ => return false,
        }
        true
    }

    fn is_whole(&self) -> bool {
        self.is_over || self.message.get("stop_reason").is_some_and(Value::is_string)
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn may_be_silent(&self) -> bool {
        !self.has_content || self.is_thinking
    }

    fn body(&mut self) -> Value {
        let mut body = std::mem::take(&mut self.message);
        let blocks = std::mem::take(&mut self.blocks).into_iter().map(|mut block| {
            let partial = block.as_object_mut().and_then(|it| it.remove(PARTIAL_INPUT));
            if let Some(Value::String(text)) = partial {
                block["input"] = serde_json::from_str(&text).unwrap_or(Value::String(text));
            }
            block
        });
        // A signature is of no use without its block.
        let blocks: Vec<Value> = blocks.filter(|it| it.get("type").is_some()).collect();
        body.insert("content".to_owned(), blocks.into());
        Value::Object(body)
    }
}

impl AnthropicFold {
    /// Moves a new block to another place, if its number is that of an earlier one.
    fn move_if_used(&mut self, index: Option<usize>) {
        let Some(index) = index else { return };
        let place = self.moved.get(&index).copied().unwrap_or(index);
        let is_used = self.blocks.get(place).is_some_and(|it| it.get("type").is_some());
        if is_used && self.blocks.len() < BLOCKS_MAX {
            self.moved.insert(index, self.blocks.len());
        }
    }

    fn block(&mut self, index: Option<usize>) -> Option<&mut Value> {
        let index = index.unwrap_or(self.blocks.len().saturating_sub(1));
        let index = self.moved.get(&index).copied().unwrap_or(index);
        if index >= BLOCKS_MAX {
            return None;
        }
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, json!({}));
        }
        self.blocks.get_mut(index)
    }

    /// Adds a piece of a block, and returns whether it has content.
    fn add_delta(&mut self, index: Option<usize>, delta: &Value, deltas: &AnswerSink) -> bool {
        let Some(Value::Object(block)) = self.block(index) else { return false };
        let mut has_content = false;
        let kinds = [
            ("text", "text", Some(MessagePart::Text)),
            ("thinking", "thinking", Some(MessagePart::Reasoning)),
            ("signature", "signature", None),
            ("partial_json", PARTIAL_INPUT, None),
        ];
        for (name, field, part) in kinds {
            let Some(text) = delta.get(name).and_then(Value::as_str) else { continue };
            match part {
                Some(part) => deltas.send(part, text),
                None if field == PARTIAL_INPUT => deltas.count(text),
                None => {}
            }
            if !text.is_empty() {
                has_content = true;
                append(block.entry(field).or_insert(Value::Null), text);
            }
        }
        has_content
    }

    /// The counts of the end are those of the whole answer, but not all are repeated.
    fn add_end(&mut self, event: &Value) {
        if let Some(Value::Object(delta)) = event.get("delta") {
            self.message.extend(delta.clone());
        }
        if let Some(counts) = event.get("usage") {
            add_counts(self.message.entry("usage").or_insert(Value::Null), counts.clone());
        }
    }
}
