//! The stream of OpenAI's chat completions. [`shape`](crate::shape) and [`reader`](crate::reader) have the rest.

use std::collections::BTreeMap;

use graphrun_core::event::MessagePart;
use serde_json::{Map, Value, json};

use super::stream::{Fold, add_counts, append, send};
use crate::{
    deltas::AnswerSink,
    lenient::{is_content_part, text_of},
    reader::REASONING_DETAILS,
};

/// The most choices and calls of a stream. Their numbers are the provider's.
const PARTS_MAX: usize = 1024;

/// Collects the chunks of a stream.
#[derive(Debug, Default)]
pub(super) struct ChatFold {
    /// The fields beside the choices, as they were sent last.
    body: Map<String, Value>,
    /// Only the first choice is the answer; others may arrive between its pieces.
    choices: BTreeMap<u64, Choice>,
    has_content: bool,
}

#[derive(Debug, Default)]
struct Choice {
    message: Map<String, Value>,
    calls: Vec<Call>,
    /// The fields beside the message, such as the reason of its end.
    fields: Map<String, Value>,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    call: Value,
}

impl Fold for ChatFold {
    fn add(&mut self, event: Value, deltas: &AnswerSink) -> bool {
        let Value::Object(event) = event else { return false };
        let mut is_data = false;
        for (name, value) in event {
            match (name.as_str(), value) {
                ("choices", Value::Array(choices)) => {
                    for choice in choices {
                        is_data |= self.add_choice(choice, deltas);
                    }
                }
                // Groq puts the usage of a stream elsewhere.
                ("x_groq", value) => {
                    if let Some(usage) = value.get("usage") {
                        is_data |= self.add_usage(usage.clone());
                    }
                }
                (_, Value::Null) => {}
                // Each chunk of some servers has counts, and those of the last ones may be empty.
                ("usage", usage) => is_data |= self.add_usage(usage),
                (_, value) => drop(self.body.insert(name, value)),
            }
        }
        is_data
    }

    fn is_whole(&self) -> bool {
        let first = self.choices.values().next();
        first.is_some_and(|choice| choice.fields.get("finish_reason").is_some_and(|it| *it != ""))
    }

    fn may_be_silent(&self) -> bool {
        !self.has_content
    }

    fn body(&mut self) -> Value {
        let choices = std::mem::take(&mut self.choices);
        let choices: Vec<Value> = choices.into_values().map(Choice::into_value).collect();
        let mut body = std::mem::take(&mut self.body);
        body.insert("choices".to_owned(), choices.into());
        Value::Object(body)
    }
}

impl ChatFold {
    fn add_usage(&mut self, usage: Value) -> bool {
        add_counts(self.body.entry("usage").or_insert(Value::Null), usage)
    }

    /// Adds a piece of a choice, and returns whether it has content or an end.
    fn add_choice(&mut self, choice: Value, deltas: &AnswerSink) -> bool {
        let Value::Object(choice) = choice else { return false };
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
        if self.choices.len() >= PARTS_MAX && !self.choices.contains_key(&index) {
            return false;
        }
        let is_first = self.choices.keys().next().is_none_or(|first| index <= *first);
        let place = self.choices.entry(index).or_default();
        let silent = AnswerSink::default();
        let deltas = if is_first { deltas } else { &silent };
        let mut has_content = false;
        let mut has_end = false;
        for (name, value) in choice {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                // A whole message in place of a piece, as some servers send it for a short answer.
                ("delta" | "message", Value::Object(delta)) => {
                    has_content |= place.add(delta, deltas);
                }
                // The older completions.
                ("text", text @ Value::String(_)) => {
                    let delta = Map::from_iter([("content".to_owned(), text)]);
                    has_content |= place.add(delta, deltas);
                }
                (_, value) => {
                    has_end |= name == "finish_reason" && value != "";
                    place.fields.insert(name, value);
                }
            }
        }
        self.has_content |= has_content;
        has_content || has_end
    }
}

impl Choice {
    /// Adds a piece, and returns whether it has content.
    fn add(&mut self, delta: Map<String, Value>, deltas: &AnswerSink) -> bool {
        let mut has_content = false;
        for (name, value) in delta {
            let value = match value {
                part if name == "content" && is_content_part(&part) => Value::Array(vec![part]),
                value => value,
            };
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("role", value) => drop(self.message.insert(name, value)),
                ("tool_calls", Value::Array(calls)) => {
                    has_content |= !calls.is_empty();
                    for call in calls {
                        self.add_call(call, deltas);
                    }
                }
                ("function_call", Value::Object(call)) => {
                    has_content = true;
                    let place = self.message.entry(name).or_insert_with(|| json!({}));
                    add_function(place, call, deltas);
                }
                (_, Value::String(text)) => {
                    let part = match name.as_str() {
                        "content" => Some(MessagePart::Text),
                        // The same reasoning may have two names; one is enough to watch.
                        "reasoning_content" | "reasoning" => Some(MessagePart::Reasoning),
                        _ => None,
                    };
                    let is_repeated =
                        name == "reasoning" && self.message.contains_key("reasoning_content");
                    if let Some(part) = part.filter(|_| !is_repeated) {
                        deltas.send(part, &text);
                    }
                    has_content |= !text.is_empty();
                    append(self.message.entry(name).or_insert(Value::Null), &text);
                }
                (REASONING_DETAILS, Value::Array(details)) => {
                    has_content |= !details.is_empty();
                    let place = self.message.entry(name).or_insert_with(|| json!([]));
                    if let Value::Array(known) = place {
                        for detail in details {
                            add_detail(known, detail);
                        }
                    }
                }
                // Parts of content.
                (_, Value::Array(parts)) => {
                    has_content |= !parts.is_empty();
                    for part in &parts {
                        send(
                            deltas,
                            MessagePart::Text,
                            part.get("text").filter(|_| name == "content"),
                        );
                    }
                    let place = self.message.entry(name).or_insert_with(|| json!([]));
                    if let Value::String(text) = place {
                        *place = json!([{"type": "text", "text": text.as_str()}]);
                    }
                    if let Value::Array(known) = place {
                        known.extend(parts);
                    }
                }
                (_, value) => drop(self.message.insert(name, value)),
            }
        }
        has_content
    }

    /// Adds a piece of a call. It belongs to the call with its number. Servers without numbers send whole calls, or pieces
    /// that follow their call; only the first piece has a name.
    fn add_call(&mut self, piece: Value, deltas: &AnswerSink) {
        let Value::Object(mut piece) = piece else { return };
        let index = piece.get("index").and_then(Value::as_u64);
        let id = piece.get("id").and_then(Value::as_str).filter(|it| !it.is_empty());
        let has_name = text_in(&piece, "name").is_some();
        let begins_anew = |it: &Call| begins_another_call(&it.call["function"], &piece);
        // One server gives all calls the same id.
        let has_ended = |it: &Call| is_whole_call(&it.call["function"]) && begins_anew(it);
        let same = |call: &Call| match (index, id) {
            // One server numbers all calls with zero, but each call has another id.
            (Some(index), Some(id)) => {
                call.index == Some(index)
                    && (call.call["id"] == id && !has_ended(call)
                        || !has_name
                        || call.call["id"].is_null() && !begins_anew(call))
            }
            // Another one has no ids, either.
            (Some(index), None) => call.index == Some(index) && !begins_anew(call),
            (None, Some(id)) => call.call["id"] == id && !has_ended(call),
            (None, None) => false,
        };
        let at = self.calls.iter().rposition(same);
        let at = at.or_else(|| {
            let follows = index.is_none() && !has_name && !self.calls.is_empty();
            follows.then(|| self.calls.len() - 1)
        });
        let at = at.unwrap_or_else(|| {
            self.calls.push(Call { index, call: json!({}) });
            self.calls.len() - 1
        });
        if at >= PARTS_MAX {
            self.calls.truncate(PARTS_MAX);
            return;
        }
        if repeats_call(&self.calls[at].call["function"], &piece) {
            return;
        }
        let Some(call) = self.calls[at].call.as_object_mut() else { return };
        if let Some(Value::Object(function)) = piece.remove("function") {
            add_function(call.entry("function").or_insert_with(|| json!({})), function, deltas);
        }
        for (name, value) in piece {
            let is_empty = value.is_null() || value == "";
            if !is_empty && name != "index" {
                call.insert(name, value);
            }
        }
    }

    fn into_value(self) -> Value {
        let Self { mut message, calls, mut fields } = self;
        if !calls.is_empty() {
            let calls: Vec<Value> = calls.into_iter().map(|it| it.call).collect();
            message.insert("tool_calls".to_owned(), calls.into());
        }
        fields.insert("message".to_owned(), Value::Object(message));
        Value::Object(fields)
    }
}

/// Adds a detail of reasoning, or a piece of one. The texts of its pieces are joined; its signature comes with one of them.
fn add_detail(known: &mut Vec<Value>, piece: Value) {
    let is_whole = piece.get("data").is_some_and(|it| !it.is_null());
    let is_same = |it: &Value| {
        let is_other_id = !it["id"].is_null() && !piece["id"].is_null() && it["id"] != piece["id"];
        it["type"] == piece["type"] && it["index"] == piece["index"] && !is_other_id
    };
    // Details without numbers are pieces of the last one only. Encrypted ones may all have the same number.
    let at = if piece["index"].is_null() {
        known.len().checked_sub(1).filter(|last| is_same(&known[*last]))
    } else {
        known.iter().rposition(is_same)
    };
    let place = at.filter(|_| !is_whole).and_then(|at| known[at].as_object_mut());
    let (Some(place), Some(piece)) = (place, piece.as_object()) else {
        known.push(piece);
        return;
    };
    for (name, value) in piece {
        match value {
            Value::Null => {}
            Value::String(text) if matches!(name.as_str(), "text" | "summary") => {
                append(place.entry(name).or_insert(Value::Null), text);
            }
            value => drop(place.insert(name.clone(), value.clone())),
        }
    }
}

/// Returns whether a piece with a name is no piece of this call. The call has another name, or is whole already.
fn begins_another_call(function: &Value, piece: &Map<String, Value>) -> bool {
    let Some(name) = text_in(piece, "name") else { return false };
    let known_name = function.get("name").and_then(Value::as_str);
    if known_name.is_some_and(|it| it != name) {
        return true;
    }
    let more = arguments_in(piece);
    is_whole_call(function) && more.is_some() && more != function.get("arguments")
}

/// Returns whether a piece is this whole call again. A server that repeats a call in its last chunk does not make it twice.
fn repeats_call(function: &Value, piece: &Map<String, Value>) -> bool {
    let more = arguments_in(piece);
    let is_same = more.is_some() && more == function.get("arguments");
    is_same && text_in(piece, "name").is_some() && is_whole_call(function)
}

fn is_whole_call(function: &Value) -> bool {
    function.get("arguments").is_some_and(|arguments| match arguments {
        Value::String(text) => serde_json::from_str::<Value>(text).is_ok_and(|it| it.is_object()),
        other => other.is_object(),
    })
}

/// Returns the arguments in a piece, unless they are empty.
fn arguments_in(piece: &Map<String, Value>) -> Option<&Value> {
    let arguments = piece.get("function")?.get("arguments")?;
    let is_empty = arguments.as_str().map_or(arguments.is_null(), |it| it.trim().is_empty());
    (!is_empty).then_some(arguments)
}

/// Returns a text of the function in a piece, unless it is empty.
fn text_in<'a>(piece: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let text = piece.get("function")?.get(name)?.as_str();
    text.filter(|it| !it.is_empty())
}

/// Adds a piece of a function: its name comes once or with each piece, its arguments in pieces.
fn add_function(place: &mut Value, piece: Map<String, Value>, deltas: &AnswerSink) {
    let Some(place) = place.as_object_mut() else { return };
    for (name, value) in piece {
        if name == "arguments" {
            deltas.count(&text_of(Some(&value)));
        }
        match value {
            Value::String(text) if name == "arguments" => {
                append(place.entry(name).or_insert(Value::Null), &text);
            }
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            value => drop(place.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChatRequest, Message, ModelError, Profile, Protocol, provider::OutputMode,
        refused::RefusedParameters, shape::Shape,
    };

    fn stream_of(deltas: &[Value]) -> String {
        let piece = |delta: &Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
        let pieces: String = deltas.iter().map(piece).collect();
        format!("{pieces}data: {end}\n\ndata: [DONE]\n\n")
    }

    /// Returns the message with the calls of a reply, as the next request has it.
    fn sent_back(reply: &str) -> Value {
        let reply = Protocol::Chat.read_text(reply).unwrap();
        let request = ChatRequest { messages: vec![Message::calls(reply)], ..Default::default() };
        let shape = Shape {
            model: "m",
            profile: &Profile::default(),
            mode: OutputMode::Prompted,
            refused: &RefusedParameters::default(),
        };
        Protocol::Chat.shape(&request, &shape).body["messages"][0].clone()
    }

    #[test]
    fn details_of_reasoning_are_sent_back() {
        let function = json!({"name": "look", "arguments": "{}"});
        let calls = json!([{"id": "call_1", "type": "function", "function": function}]);
        let text = |text: Option<&str>, signature: Option<&str>, index: u64| {
            json!({
                "type": "reasoning.text", "text": text, "signature": signature, "id": null,
                "format": "anthropic-claude-v1", "index": index
            })
        };
        let secret = |id: &str| {
            json!({
                "type": "reasoning.encrypted", "data": "c2ln", "id": id,
                "format": "google-gemini-v1", "index": 0
            })
        };
        let whole = json!([
            text(Some("Sea or sky?"), Some("c2ln"), 0),
            text(Some("Sea."), Some("c2lo"), 1),
            secret("call_1"),
            secret("call_2"),
        ]);
        let message = json!({"tool_calls": calls, "reasoning_details": whole});
        let reply = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
        let streamed = stream_of(&[
            json!({"reasoning": "Sea or", "reasoning_details": [text(Some("Sea or"), None, 0)]}),
            json!({"reasoning_details": [text(Some(" sky?"), None, 0)]}),
            json!({"reasoning_details": [text(Some("Sea."), None, 1), text(None, Some("c2ln"), 0)]}),
            json!({"reasoning_details": [text(None, Some("c2lo"), 1), secret("call_1")]}),
            json!({"reasoning_details": [secret("call_2")], "tool_calls": calls}),
        ]);
        for reply in [reply.to_string(), streamed] {
            assert_eq!(sent_back(&reply)["reasoning_details"], whole, "{reply}");
        }
        let plain = json!({"choices": [{"message": {"tool_calls": calls}}]}).to_string();
        assert_eq!(sent_back(&plain).get("reasoning_details"), None);
    }

    /// Returns the arguments of the calls of a stream.
    fn arguments_of(calls: &[Value]) -> Vec<String> {
        let deltas: Vec<Value> = calls.iter().map(|it| json!({"tool_calls": [it]})).collect();
        let reply = Protocol::Chat.read_text(&stream_of(&deltas)).unwrap();
        reply.tool_calls.into_iter().map(|it| it.arguments).collect()
    }

    #[test]
    fn whole_calls_with_one_id_stay_apart() {
        for index in [json!(0), Value::Null] {
            let call = |name: &str, arguments: &str| {
                let function = json!({"name": name, "arguments": arguments});
                json!({"index": index, "id": "call_0", "type": "function", "function": function})
            };
            let (one, two) = (r#"{"text":"one"}"#, r#"{"text":"two"}"#);
            let calls = [call("save", one), call("save", two), call("save", one)];
            assert_eq!(arguments_of(&calls), [one, two], "a call that is repeated is one");
            let calls = [call("save", one), call("save", r#"{"text""#), call("", r#":"two"}"#)];
            assert_eq!(arguments_of(&calls), [one, two]);
            // Pieces that repeat the name belong to their call.
            let calls = [call("save", ""), call("save", r#"{"text""#), call("save", r#":"two"}"#)];
            assert_eq!(arguments_of(&calls), [two]);
        }
    }

    #[test]
    fn a_refusal_without_a_text_is_none() {
        for refusal in [json!(false), json!(""), Value::Null, json!({}), json!([])] {
            let message = json!({"content": "Hello", "refusal": refusal});
            let reply = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
            assert_eq!(Protocol::Chat.read_text(&reply.to_string()).unwrap().text, "Hello");
        }
    }

    #[test]
    fn an_error_in_place_of_a_reply_keeps_its_message_and_class() {
        let error =
            json!({"object": "error", "message": "The model `x` does not exist.", "code": 404});
        let error = Protocol::Chat.read_text(&error.to_string()).unwrap_err();
        let expected = "The model `x` does not exist.".to_owned();
        assert_eq!(error, ModelError::NotFound { message: expected });
    }

    #[test]
    fn a_part_in_place_of_a_text_is_a_text() {
        for (content, text) in [
            (json!({"type": "text", "text": "Hello"}), "Hello"),
            (json!({"colour": "teal"}), r#"{"colour":"teal"}"#),
            (json!({"type": "square", "text": "x"}), r#"{"type":"square","text":"x"}"#),
        ] {
            let reply =
                json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]});
            assert_eq!(Protocol::Chat.read_text(&reply.to_string()).unwrap().text, text);
        }
        let part = |text: &str| json!({"content": {"type": "text", "text": text}});
        let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
        let event = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        let stream = format!("{}{}data: {end}\n\n", event(part("Hel")), event(part("lo")));
        assert_eq!(Protocol::Chat.read_text(&stream).unwrap().text, "Hello");
    }

    #[test]
    fn details_without_numbers_are_joined_in_their_order() {
        let summary = |text: &str| json!({"type": "reasoning.summary", "summary": text});
        let secret = json!({"type": "reasoning.encrypted", "data": "c2ln"});
        let mut details = Vec::new();
        for piece in [summary("Se"), summary("a."), secret.clone(), secret.clone(), summary("Sky.")]
        {
            add_detail(&mut details, piece);
        }
        assert_eq!(details, [summary("Sea."), secret.clone(), secret, summary("Sky.")]);
    }
}
