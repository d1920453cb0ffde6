//! Translates a span of `tracing` into the conventions, and removes keys from its texts. This happens on the thread that sends,
//! so a run does not wait for it.

use graphrun_core::event::CONTENT_TARGET;
use graphrun_guard::redact::redact;
use graphrun_models::Message;
use opentelemetry::{
    Array, KeyValue, StringValue, Value,
    trace::{Event, Link, Status},
};
use opentelemetry_sdk::trace::SpanData;
use serde_json::json;

use crate::{
    caller::read_trace_context,
    names::{
        FieldName, Form, OPERATION, OTHER_ERROR, SPANS, SpanNames, TARGET_PREFIX, content,
        model_operation, split_model,
    },
};

/// The attributes that `tracing-opentelemetry` adds to spans and events.
const TARGET: &str = "target";
const LEVEL: &str = "level";

/// The field with the trace of the first process of a run, which becomes a link.
const FIRST_TRACE: &str = "first_trace";

/// Gives a span its names, and removes keys from it.
pub(super) fn translate(mut span: SpanData) -> SpanData {
    let target = take(&mut span.attributes, TARGET);
    let is_ours = target.is_some_and(|it| it.as_str().starts_with(TARGET_PREFIX));
    if is_ours && let Some(names) = SPANS.iter().find(|it| it.fits(&span)) {
        let first = find(&span.attributes, FIRST_TRACE);
        if let Some(first) = first.and_then(|it| read_trace_context(&it.as_str())) {
            span.links.links.push(Link::with_context(first));
        }
        names.apply(&mut span);
    }
    let events = std::mem::take(&mut span.events.events);
    for mut event in events {
        let target = take(&mut event.attributes, TARGET);
        take(&mut event.attributes, LEVEL);
        if target.is_some_and(|it| it.as_str() == CONTENT_TARGET) {
            span.attributes.extend(event.attributes.iter().filter_map(content_attribute));
        } else {
            span.events.events.push(event);
        }
    }
    remove_keys(&mut span);
    span
}

impl SpanNames {
    fn fits(&self, span: &SpanData) -> bool {
        let has = |(field, value)| {
            find(&span.attributes, field).is_some_and(|it| it.as_str().as_ref() == value)
        };
        span.name == self.span && self.only.is_none_or(has)
    }

    fn apply(&self, span: &mut SpanData) {
        let subject = self.subject.and_then(|it| find(&span.attributes, it)).map(Value::as_str);
        span.name = match subject {
            Some(subject) if model_operation(self.span).is_some() => {
                format!("{} {}", self.operation, split_model(&subject).1).into()
            }
            Some(subject) => format!("{} {subject}", self.operation).into(),
            None => self.operation.into(),
        };
        span.span_kind = self.kind.clone();
        let mut attributes = Vec::with_capacity(self.fields.len() + 1);
        if self.is_standard {
            attributes.push(KeyValue::new(OPERATION, self.operation));
        }
        for FieldName { field, attribute, form } in self.fields {
            let Some(value) = find(&span.attributes, field) else { continue };
            if let Some(value) = form.convert(value, &mut span.status) {
                attributes.push(KeyValue::new(*attribute, value));
            }
        }
        span.attributes = attributes;
    }
}

impl Form {
    /// Returns the value in this form; `None` if there is nothing to tell.
    fn convert(self, value: &Value, status: &mut Status) -> Option<Value> {
        let text = value.as_str();
        Some(match self {
            Self::Text => value.clone(),
            // `tracing-opentelemetry` writes unsigned numbers as texts.
            Self::Integer => text.parse::<i64>().ok()?.into(),
            Self::Number => text.parse::<f64>().ok()?.into(),
            Self::Texts => Value::Array(Array::String(vec![text.into_owned().into()])),
            Self::Model => split_model(&text).1.to_owned().into(),
            Self::Provider => split_model(&text).0?.to_owned().into(),
            Self::Error => {
                *status = Status::error("");
                // A span without a kind of error has `true`.
                match value {
                    Value::Bool(_) => OTHER_ERROR.into(),
                    _ => value.clone(),
                }
            }
            Self::Status => {
                if text == "failed" {
                    *status = Status::error("");
                }
                value.clone()
            }
        })
    }
}

/// Returns the attribute of a field of a content event.
fn content_attribute(field: &KeyValue) -> Option<KeyValue> {
    let text = field.value.as_str();
    let (name, value) = match field.key.as_str() {
        "input" => (content::INPUT, messages(&text, None)?),
        "output" => (content::OUTPUT, messages(&format!("[{text}]"), Some("stop"))?),
        "arguments" => (content::ARGUMENTS, text.into_owned()),
        "result" => (content::RESULT, text.into_owned()),
        _ => return None,
    };
    Some(KeyValue::new(name, value))
}

/// Writes messages in the form of the conventions; those of an answer say why it ended.
fn messages(written: &str, finish: Option<&str>) -> Option<String> {
    let messages: Vec<Message> = serde_json::from_str(written).ok()?;
    let message = |message: Message| {
        let mut parts = Vec::new();
        if let Some(reasoning) = message.reasoning {
            parts.push(json!({"type": "reasoning", "content": reasoning}));
        }
        match message.tool_call_id {
            Some(id) => {
                parts.push(
                    json!({"type": "tool_call_response", "id": id, "response": message.content}),
                );
            }
            None if message.content.is_empty() => (),
            None => parts.push(json!({"type": "text", "content": message.content})),
        }
        for file in message.attachments {
            parts.push(json!({"type": "attachment", "name": file.name()}));
        }
        let is_call = !message.tool_calls.is_empty();
        for call in message.tool_calls {
            let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments);
            let arguments = arguments.unwrap_or_else(|_| call.arguments.into());
            parts.push(json!({
                "type": "tool_call",
                "id": call.id,
                "name": call.name,
                "arguments": arguments,
            }));
        }
        let mut object = json!({"role": message.role.as_str(), "parts": parts});
        if let Some(finish) = finish {
            object["finish_reason"] = if is_call { "tool_call" } else { finish }.into();
        }
        object
    };
    Some(json!(messages.into_iter().map(message).collect::<Vec<_>>()).to_string())
}

fn find<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a Value> {
    // Of a field that was recorded twice, the last value counts.
    attributes.iter().rev().find(|it| it.key.as_str() == name).map(|it| &it.value)
}

fn take(attributes: &mut Vec<KeyValue>, name: &str) -> Option<Value> {
    let at = attributes.iter().position(|it| it.key.as_str() == name)?;
    Some(attributes.remove(at).value)
}

/// Removes keys from every text of a span.
fn remove_keys(span: &mut SpanData) {
    span.name = redact(&span.name).into_owned().into();
    if let Status::Error { description } = &span.status {
        span.status = Status::error(redact(description).into_owned());
    }
    let events = span.events.events.iter_mut();
    for Event { name, attributes, .. } in events {
        *name = redact(name).into_owned().into();
        remove_keys_of_values(attributes);
    }
    remove_keys_of_values(&mut span.attributes);
}

fn remove_keys_of_values(attributes: &mut [KeyValue]) {
    let without = |text: &StringValue| StringValue::from(redact(text.as_str()).into_owned());
    for KeyValue { value, .. } in attributes {
        match value {
            Value::String(text) => *text = without(text),
            Value::Array(Array::String(texts)) => {
                for text in texts {
                    *text = without(text);
                }
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::SystemTime};

    use opentelemetry::{
        InstrumentationScope,
        trace::{SpanContext, SpanId, SpanKind},
    };
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    fn span(name: &'static str, fields: &[(&'static str, Value)]) -> SpanData {
        let mut attributes = vec![KeyValue::new(TARGET, "graphrun_nodes::call")];
        attributes.extend(fields.iter().map(|(name, it)| KeyValue::new(*name, it.clone())));
        SpanData {
            span_context: SpanContext::empty_context(),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("test").build(),
        }
    }

    fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
        span.attributes.iter().map(|it| (it.key.as_str(), it.value.as_str().into_owned())).collect()
    }

    #[test]
    fn a_call_has_the_names_of_the_conventions() {
        let translated = translate(span(
            "chat",
            &[
                ("model", "mistral/large".into()),
                ("input_tokens", "12".into()),
                ("finish", "stop".into()),
                ("other", "is dropped".into()),
            ],
        ));
        assert_eq!(translated.name, "chat large");
        assert_eq!(translated.span_kind, SpanKind::Client);
        assert_eq!(translated.status, Status::Unset);
        let expected = [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "mistral_ai"),
            ("gen_ai.request.model", "large"),
            ("gen_ai.response.finish_reasons", "[\"stop\"]"),
            ("gen_ai.usage.input_tokens", "12"),
        ];
        assert_eq!(
            attributes(&translated),
            expected.map(|(name, it)| (name, it.to_owned())).into()
        );
        let tokens = find(&translated.attributes, "gen_ai.usage.input_tokens");
        assert_eq!(tokens, Some(&Value::I64(12)));
    }

    #[test]
    fn a_call_for_embeddings_has_its_own_operation() {
        let fields = [
            ("model", "openai/text-embedding-3-small".into()),
            ("texts", "3".into()),
            ("answered_by", "small-1".into()),
            ("input_tokens", "12".into()),
        ];
        let translated = translate(span("embeddings", &fields));
        assert_eq!(translated.name, "embeddings text-embedding-3-small");
        assert_eq!(translated.span_kind, SpanKind::Client);
        let expected = [
            ("gen_ai.operation.name", "embeddings"),
            ("gen_ai.provider.name", "openai"),
            ("gen_ai.request.model", "text-embedding-3-small"),
            ("gen_ai.response.model", "small-1"),
            ("gen_ai.usage.input_tokens", "12"),
        ];
        assert_eq!(
            attributes(&translated),
            expected.map(|(name, it)| (name, it.to_owned())).into()
        );
    }

    #[test]
    fn an_error_is_the_status_of_its_span() {
        for (name, field, value, status) in [
            ("chat", "error", Value::from("rate_limit"), Status::error("")),
            ("tool", "error", true.into(), Status::error("")),
            ("task", "error", "timeout".into(), Status::error("")),
            ("run", "status", "failed".into(), Status::error("")),
            ("run", "status", "paused".into(), Status::Unset),
        ] {
            let translated = translate(span(name, &[(field, value)]));
            assert_eq!(translated.status, status, "{name} {field}");
        }
        let of_tool = translate(span("tool", &[("error", true.into())]));
        assert_eq!(attributes(&of_tool)["error.type"], "_OTHER");
    }

    #[test]
    fn only_an_agent_is_invoked() {
        let fields =
            [("kind", "agent".into()), ("node", "write".into()), ("agent", "writer".into())];
        let agent = translate(span("task", &fields));
        assert_eq!(agent.name, "invoke_agent write");
        let found = attributes(&agent);
        assert_eq!(found["gen_ai.agent.name"], "writer");
        assert_eq!(found["graphrun.node.name"], "write");
        let other = span("task", &[("kind", "set".into()), ("node", "count".into())]);
        let other = translate(other);
        assert_eq!(other.name, "task count");
        assert!(!attributes(&other).contains_key(OPERATION));
    }

    #[test]
    fn spans_of_the_program_keep_their_names() {
        let mut own = span("run", &[("workflow", "sk-proj-Zq8w4N1xT6yL3vB9aaaa".into())]);
        own.attributes[0] = KeyValue::new(TARGET, "their_server");
        let translated = translate(own);
        assert_eq!(translated.name, "run");
        // Keys are removed from them, too.
        assert_eq!(attributes(&translated)["workflow"], "[redacted]");
    }

    #[test]
    fn content_becomes_attributes_in_the_form_of_the_conventions() {
        let mut call = span("chat", &[("model", "openai/gpt-5".into())]);
        let input = json!([
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "find", "arguments": "{\"a\":1}"}]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]);
        let attributes_of_event = vec![
            KeyValue::new(LEVEL, "TRACE"),
            KeyValue::new(TARGET, CONTENT_TARGET),
            KeyValue::new("input", input.to_string()),
            KeyValue::new("output", json!({"role": "assistant", "content": "So."}).to_string()),
        ];
        let event = Event::new("messages", SystemTime::UNIX_EPOCH, attributes_of_event, 0);
        call.events.events.push(event);
        let translated = translate(call);
        assert!(translated.events.events.is_empty());
        let json = |name| -> serde_json::Value {
            serde_json::from_str(&attributes(&translated)[name]).unwrap()
        };
        assert_eq!(
            json(content::INPUT),
            json!([
                {"role": "user", "parts": [{"type": "text", "content": "Why?"}]},
                {"role": "assistant", "parts": [
                    {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"a": 1}}
                ]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "42"}]},
            ])
        );
        let parts = json!([{"type": "text", "content": "So."}]);
        let output = json!([{"role": "assistant", "parts": parts, "finish_reason": "stop"}]);
        assert_eq!(json(content::OUTPUT), output);
    }
}
