//! Reads a reply that may be a stream of events.
//!
//! A stream is folded into the reply that the provider would have sent at once, so one reader decides what both mean. The
//! fold of a protocol only collects; this file decides when a stream is over, broken or silent for too long.

use graphrun_core::event::MessagePart;
use serde_json::Value;

use super::Protocol;
use crate::{
    ChatReply, ModelError, TokenUsage,
    deltas::AnswerSink,
    failure::{ErrorReply, is_error, read_body, read_json, readable},
    reader::usage_of_part,
    sse::{SseItem, SseReader},
};

/// The bytes of an event that are no content: names, ids and counts that each piece repeats. They do not count towards the
/// limit of a reply.
const EVENT_OVERHEAD_BYTES: usize = 512;

/// The least part of an event that counts nevertheless, so that the limit holds for small events. A token of an answer has about
/// 30 of 250 bytes.
const EVENT_CONTENT_PART: usize = 8;

/// The most blanks at the end of an answer. Some models that are forced to write JSON write blanks until their limit of
/// tokens.
const BLANKS_MAX: u64 = 4096;

/// Collects the events of a protocol's stream.
pub(super) trait Fold: Send {
    /// Adds an event, and sends the text in it to `deltas`. Returns whether the event is data: it adds to the reply, and does not only keep
    /// the connection open.
    fn add(&mut self, event: Value, deltas: &AnswerSink) -> bool;

    /// Returns whether the model has ended its answer.
    fn is_whole(&self) -> bool;

    /// Returns whether the protocol's own last event has arrived, after which nothing follows. By default, a stream has none.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns whether the model may be silent for long: before its answer, and while it thinks without showing it.
    fn may_be_silent(&self) -> bool;

    /// Returns the reply as the provider sends it at once, as far as it has arrived.
    fn body(&mut self) -> Value;
}

/// A reply that arrives in pieces.
pub(crate) struct IncomingReply {
    protocol: Protocol,
    deltas: AnswerSink,
    bytes_max: usize,
    bytes: usize,
    form: Form,
}

/// The form of a reply. Its first character decides, not its content type: proxies and servers set a wrong one.
enum Form {
    Unknown(Vec<u8>),
    Whole(Vec<u8>),
    Stream(Box<Events>),
}

struct Events {
    sse: SseReader,
    fold: Box<dyn Fold>,
    /// Whether the stream has signalled its end.
    is_done: bool,
    /// Whether an event has arrived.
    has_begun: bool,
    /// The error of the stream, which ends it.
    error: Option<Value>,
}

/// An item of a stream that was taken.
struct TakenItem {
    /// Its size as a part of the reply.
    bytes: usize,
    /// Whether it is more than a sign that keeps the connection open.
    is_data: bool,
}

/// What a reply allows until its next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The next piece is due within the idle time.
    Steady,
    /// The model may think for long.
    Silent,
    /// The answer is whole. Only its usage may follow.
    Ending,
    /// The reply is over, whether the connection is or not.
    Over,
}

impl IncomingReply {
    pub(crate) fn new(protocol: Protocol, deltas: &AnswerSink, bytes_max: usize) -> Self {
        let deltas = deltas.for_request();
        Self { protocol, deltas, bytes_max, bytes: 0, form: Form::Unknown(Vec::new()) }
    }

    /// Adds bytes. Returns whether there was data in them: the signs that keep a connection alive are none.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<bool, ModelError> {
        if let Form::Unknown(start) = &mut self.form {
            start.extend_from_slice(bytes);
            let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
            let Some(first) = text.trim_ascii_start().first().copied() else {
                // Blank bytes before a reply are no part of it, but their number is limited, too.
                self.bytes += bytes.len();
                start.clear();
                return self.within_limit(false);
            };
            let start = std::mem::take(start);
            self.form = if matches!(first, b':' | b'd' | b'e' | b'i' | b'r') {
                Form::Stream(Box::new(Events {
                    sse: SseReader::default(),
                    fold: self.protocol.fold(),
                    is_done: false,
                    has_begun: false,
                    error: None,
                }))
            } else {
                Form::Whole(Vec::new())
            };
            return self.add(&start);
        }
        let has_data = match &mut self.form {
            Form::Unknown(_) => false,
            Form::Whole(body) => {
                self.bytes += bytes.len();
                body.extend_from_slice(bytes);
                !bytes.is_empty()
            }
            Form::Stream(events) => {
                let mut has_data = false;
                for item in events.sse.add(bytes) {
                    let taken = events.take(item, &self.deltas)?;
                    self.bytes += taken.bytes;
                    has_data |= taken.is_data;
                    if events.is_over() {
                        break;
                    }
                    if self.deltas.blanks() > BLANKS_MAX {
                        return Err(endless_blanks());
                    }
                }
                has_data
            }
        };
        self.within_limit(has_data)
    }

    fn within_limit(&self, has_data: bool) -> Result<bool, ModelError> {
        let waiting = match &self.form {
            Form::Stream(events) => events.sse.waiting_bytes(),
            _ => 0,
        };
        if self.bytes + waiting > self.bytes_max {
            return Err(ModelError::ReplyTooLarge { bytes_max: self.bytes_max });
        }
        Ok(has_data)
    }

    pub(crate) fn pace(&self) -> Pace {
        match &self.form {
            Form::Stream(events) if events.is_over() => Pace::Over,
            Form::Stream(events) if events.fold.is_whole() => Pace::Ending,
            Form::Stream(events) if events.fold.may_be_silent() => Pace::Silent,
            Form::Unknown(_) => Pace::Silent,
            Form::Whole(_) | Form::Stream(_) => Pace::Steady,
        }
    }

    /// Returns whether the answer is known to be whole, also if its connection has broken off.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.form, Form::Stream(events) if events.fold.is_whole())
    }

    /// Returns whether an event of a stream has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(&self.form, Form::Stream(events) if events.has_begun)
    }

    /// Ends the reply because of a failure, and returns the failure with the usage of the part that has arrived.
    pub(crate) fn fail(self, error: ModelError) -> ModelError {
        let Form::Stream(mut events) = self.form else { return error };
        // The error of the reply is that of a provider that fails in the middle of its answer.
        let broken = with_error(events.fold.body(), serde_json::json!({"error": "broken"}));
        match self.protocol.read_reply(&broken) {
            Err(found) if found.usage() != TokenUsage::default() => {
                error.charged(found.usage(), found.cost_usd())
            }
            _ => error,
        }
    }

    /// Ends the reply, and returns it as the provider sends it at once.
    ///
    /// # Errors
    /// Returns [`ModelError::StreamTruncated`] for a stream that ended before its answer, and a classified error for a
    /// body that cannot be read.
    pub(crate) fn finish(self) -> Result<Value, ModelError> {
        let events = match self.form {
            Form::Unknown(body) | Form::Whole(body) => {
                let body = String::from_utf8_lossy(&body);
                return read_body(&body).map_err(|error| charged_for(error, &body));
            }
            Form::Stream(events) => *events,
        };
        let Events { sse, mut fold, mut is_done, mut has_begun, mut error } = events;
        for item in sse.finish() {
            if let SseItem::Stray(line) = &item
                && !has_begun
                && error.is_none()
            {
                // It is all that the server has said.
                return Err(garbage(line));
            }
            // The connection may have broken off in the middle of it.
            if let SseItem::Event { name, data } = item
                && !is_done
                && error.is_none()
            {
                match read_event(&name, &data) {
                    Some(Read::Done) => is_done = true,
                    Some(Read::Error(body)) => error = Some(body),
                    Some(Read::Event(event)) => {
                        fold.add(event, &self.deltas);
                    }
                    Some(Read::Garbage) | None => {}
                }
                has_begun = true;
            }
        }
        if let Some(error) = error {
            // It may contain an answer that the provider itself has checked and rejected.
            let text = error.to_string();
            let failure = ErrorReply { status: 400, after: None, body: &text };
            let classified = failure.classify();
            let body = with_error(fold.body(), error);
            return Ok(match classified {
                Ok(reply) => {
                    let mut whole = completion(&reply);
                    whole["usage"] = body.get("usage").cloned().unwrap_or_default();
                    whole
                }
                Err(_) => body,
            });
        }
        if !has_begun {
            return Err(ModelError::EmptyResponse { usage: TokenUsage::default() });
        }
        let is_whole = is_done || fold.is_whole();
        let body = fold.body();
        if is_whole {
            return Ok(body);
        }
        Err(match self.protocol.read_reply(&body) {
            Ok(reply) => {
                let usage = usage_of_part(reply.usage, reply.characters());
                let broken = ModelError::StreamTruncated { text: reply.text, usage };
                broken.charged(usage, reply.cost_usd)
            }
            Err(error) => match error.reason() {
                ModelError::EmptyResponse { .. } => {
                    let usage = error.usage();
                    let broken = ModelError::StreamTruncated { text: String::new(), usage };
                    broken.charged(usage, error.cost_usd())
                }
                // The stream itself says why it ended.
                _ => error,
            },
        })
    }
}

impl Events {
    fn is_over(&self) -> bool {
        self.is_done || self.error.is_some() || self.fold.is_over()
    }

    /// Refuses data that is no JSON. After a whole answer it ends the stream: it is no reason to pay for the answer again.
    fn end_at_garbage(&mut self, data: &str) -> Result<TakenItem, ModelError> {
        self.is_done = self.fold.is_whole();
        if self.is_done { Ok(TakenItem { bytes: 0, is_data: true }) } else { Err(garbage(data)) }
    }

    /// Takes an item.
    fn take(&mut self, item: SseItem, deltas: &AnswerSink) -> Result<TakenItem, ModelError> {
        let (name, data) = match item {
            SseItem::Event { name, data } => (name, data),
            SseItem::Stray(line) => {
                // Some servers write an error into the stream as it is.
                let Some(Read::Error(body)) = read_event("", &line) else {
                    return self.end_at_garbage(&line);
                };
                self.error = Some(body);
                return Ok(TakenItem { bytes: 0, is_data: true });
            }
        };
        let beyond = data.len().saturating_sub(EVENT_OVERHEAD_BYTES);
        let size = beyond.max(data.len() / EVENT_CONTENT_PART);
        let mut is_data = true;
        match read_event(&name, &data) {
            None => return Ok(TakenItem { bytes: 0, is_data: false }),
            Some(Read::Done) => self.is_done = true,
            Some(Read::Error(body)) => self.error = Some(body),
            Some(Read::Event(event)) => is_data = self.fold.add(event, deltas),
            Some(Read::Garbage) => return self.end_at_garbage(&data),
        }
        self.has_begun = true;
        Ok(TakenItem { bytes: size, is_data })
    }
}

/// The meaning of an event in every protocol.
enum Read {
    /// The stream is over.
    Done,
    /// The stream ends with an error, in the form of a reply.
    Error(Value),
    /// An event of the protocol.
    Event(Value),
    /// The data is no JSON.
    Garbage,
}

/// Reads an event; `None` for one without data.
fn read_event(name: &str, data: &str) -> Option<Read> {
    match data.trim() {
        "" => return None,
        "[DONE]" => return Some(Read::Done),
        _ => {}
    }
    let body = read_json(data).ok();
    Some(match body {
        // The error of a choice belongs to its reply, beside the text so far.
        Some(body) if crate::failure::has_error(&body) => Read::Error(body),
        Some(body) if name == "error" || is_error(&body) => {
            Read::Error(serde_json::json!({"error": body}))
        }
        Some(body) => Read::Event(body),
        None if name == "error" => Read::Error(serde_json::json!({"error": data})),
        None => Read::Garbage,
    })
}

/// Returns the reply as far as it has arrived, with the error that ended it beside it. The reply has the counts of the
/// provider before the error.
fn with_error(body: Value, error: Value) -> Value {
    let (Value::Object(mut body), Value::Object(error)) = (body, error.clone()) else {
        return error;
    };
    for (name, value) in error {
        match name.as_str() {
            "usage" | "usageMetadata" => {
                add_counts(body.entry(name).or_insert(Value::Null), value);
            }
            // The event may repeat the form of a reply.
            "choices" | "content" | "candidates" | "output" => {
                body.entry(name).or_insert(value);
            }
            _ => drop(body.insert(name, value)),
        }
    }
    Value::Object(body)
}

/// Adds the counts of a later event to those of earlier ones. Counts only grow during an answer, but some servers end with
/// zeros, so the larger one of two numbers stays.
///
/// Returns whether the counts have changed.
pub(super) fn add_counts(place: &mut Value, counts: Value) -> bool {
    match (place, counts) {
        (Value::Object(known), Value::Object(counts)) => {
            let mut has_changed = false;
            for (name, count) in counts {
                has_changed |= add_counts(known.entry(name).or_insert(Value::Null), count);
            }
            has_changed
        }
        (_, Value::Null) | (Value::Object(_), _) => false,
        (place, counts) => {
            let is_smaller =
                number_of(place).zip(number_of(&counts)).is_some_and(|(known, new)| new < known);
            if is_smaller || *place == counts {
                return false;
            }
            *place = counts;
            true
        }
    }
}

/// Takes a number and its text.
fn number_of(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Returns the failure of a body that cannot be read, with an estimate of an answer that has its length. The page of a proxy is no answer, and
/// costs nothing.
fn charged_for(error: ModelError, body: &str) -> ModelError {
    let is_answer = body.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']);
    if !is_answer {
        return error;
    }
    error.charged(TokenUsage::estimate(0, body.chars().count()), None)
}

fn endless_blanks() -> ModelError {
    let message = format!("the answer ends with more than {BLANKS_MAX} blanks");
    ModelError::Transient { after: None, message }
}

fn garbage(data: &str) -> ModelError {
    let start: String = data.chars().take(80).collect();
    let message =
        readable(&format!("the stream has data that is no JSON; it begins with {start:?}"));
    ModelError::Transient { after: None, message }
}

/// Sends the text of a field of an event, if it is there.
pub(super) fn send(deltas: &AnswerSink, part: MessagePart, text: Option<&Value>) -> bool {
    let text = text.and_then(Value::as_str).filter(|it| !it.is_empty());
    if let Some(text) = text {
        deltas.send(part, text);
    }
    text.is_some()
}

/// Appends a text to the text or the parts of a field.
pub(super) fn append(place: &mut Value, text: &str) {
    match place {
        Value::String(known) => known.push_str(text),
        Value::Array(parts) => parts.push(serde_json::json!({"type": "text", "text": text})),
        _ => *place = text.into(),
    }
}

/// Converts an answer from inside an error into a completion.
pub(crate) fn completion(reply: &ChatReply) -> Value {
    serde_json::json!({"choices": [{"message": {"content": reply.text}, "finish_reason": "failed_generation"}]})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::AnswerReader;

    /// Takes no pieces.
    #[derive(Debug)]
    struct Nothing;

    impl AnswerReader for Nothing {
        fn take(&self, _: MessagePart, text: &str) {
            panic!("{text}");
        }
    }

    #[test]
    fn small_events_count_towards_the_limit_of_a_reply() {
        const EVENTS_MAX: usize = 1000;
        let event = json!({"choices": [{"index": 0, "delta": {"content": "z".repeat(400)}}]});
        let event = format!("data: {event}\n\n");
        let bytes_max = EVENTS_MAX * event.len() / EVENT_CONTENT_PART;
        let mut incoming = IncomingReply::new(Protocol::Chat, &AnswerSink::default(), bytes_max);
        let taken = (0..=2 * EVENTS_MAX).take_while(|_| incoming.add(event.as_bytes()).is_ok());
        let count = taken.count();
        assert!((EVENTS_MAX..EVENTS_MAX + EVENTS_MAX / 10).contains(&count), "{count}");
    }

    /// Returns whether there is data in these events.
    fn is_data(protocol: Protocol, events: &[Value]) -> Vec<bool> {
        let mut incoming = IncomingReply::new(protocol, &AnswerSink::default(), usize::MAX);
        let add = |it: &Value| incoming.add(format!("data: {it}\n\n").as_bytes()).unwrap();
        events.iter().map(add).collect()
    }

    #[test]
    fn events_that_keep_a_connection_open_are_no_data() {
        let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
        let usage = |tokens: u64| json!({"choices": [], "usage": {"completion_tokens": tokens}});
        let chat = [
            delta(json!({"content": "Hi"})),
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({})),
            json!({"type": "ping"}),
            usage(1),
            usage(1),
            delta(
                json!({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]}),
            ),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ];
        let expected = [true, false, false, false, true, false, true, true];
        assert_eq!(is_data(Protocol::Chat, &chat), expected);
        let delta = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
        let start = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
        let anthropic =
            [start, delta("Hi"), delta(""), json!({"type": "ping"}), json!({"type": "later"})];
        let expected = [true, true, false, false, false];
        assert_eq!(is_data(Protocol::Anthropic, &anthropic), expected);
        let delta = |text: &str| json!({"type": "response.output_text.delta", "delta": text});
        let responses =
            [delta("Hi"), delta(""), json!({"type": "keepalive", "sequence_number": 3})];
        assert_eq!(is_data(Protocol::Responses, &responses), [true, false, false]);
        let part = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}}]});
        let gemini = [part("Hi"), part(""), json!({"candidates": [], "modelVersion": "m"})];
        assert_eq!(is_data(Protocol::Gemini, &gemini), [true, false, false]);
    }

    #[test]
    fn a_call_whose_arguments_end_with_blanks_is_given_up() {
        let call = |arguments: &str| json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": arguments}}]}}]});
        let mut incoming = IncomingReply::new(Protocol::Chat, &AnswerSink::default(), usize::MAX);
        let mut add =
            |arguments: &str| incoming.add(format!("data: {}\n\n", call(arguments)).as_bytes());
        add("{\"at\":").unwrap();
        let blanks = " \n".repeat(64);
        let count = (0..100).take_while(|_| add(&blanks).is_ok()).count();
        assert_eq!(count, usize::try_from(BLANKS_MAX).unwrap() / blanks.len());
    }

    #[test]
    fn a_body_that_cannot_be_read_has_a_usage() {
        let finished = |body: &str| {
            let mut incoming =
                IncomingReply::new(Protocol::Chat, &AnswerSink::default(), usize::MAX);
            incoming.add(body.as_bytes()).unwrap();
            incoming.finish()
        };
        let error =
            finished(&format!(r#"{{"choices":[{{"message":{{"content":"{}"#, "z".repeat(700)))
                .unwrap_err();
        let usage = error.usage();
        assert!(error.is_retryable() && usage.estimated, "{error:?}");
        assert!(usage.calls == 1 && (200..230).contains(&usage.output_tokens), "{usage:?}");
        // The page of a proxy is no answer.
        let error = finished("<html>502 Bad Gateway</html>").unwrap_err();
        assert_eq!(error.usage(), TokenUsage::default());
    }

    #[test]
    fn numbers_that_json_does_not_have_count_as_absent() {
        for number in ["NaN", "-NaN", "Infinity", "-Infinity", "1e999", "-1E+999", "nan", "inf"] {
            let text = r#"a NaN, \" 1e999 \\"#;
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"{text}"}},"logprobs":[{number} , 1]}}],"x":{number}}}"#
            );
            let read = read_body(&body).unwrap();
            assert_eq!(read["choices"][0]["message"]["content"], r#"a NaN, " 1e999 \"#);
            assert_eq!(read["choices"][0]["logprobs"], json!([null, 1]));
            assert_eq!(read["x"], Value::Null, "{number}");
            assert!(read_json(&body).is_ok());
        }
        assert!(read_body(r#"{"a": Nope}"#).is_err());
    }

    #[test]
    fn arguments_of_calls_are_counted_and_not_shown() {
        let function = |arguments: &Value| json!({"name": "look", "arguments": arguments});
        let chat = |name: &str, call: Value| json!({"choices": [{"delta": {name: call}}]});
        let json_delta = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}});
        let item_delta =
            |text: &str| json!({"type": "response.function_call_arguments.delta", "delta": text});
        let gemini = json!({"functionCall": {"name": "look", "args": {"at": 1}}});
        for (protocol, events) in [
            (
                Protocol::Chat,
                vec![
                    chat(
                        "tool_calls",
                        json!([{"index": 0, "function": function(&json!("{\"at"))}]),
                    ),
                    chat("tool_calls", json!([{"index": 0, "function": {"arguments": "\":1}"}}])),
                ],
            ),
            (Protocol::Chat, vec![chat("function_call", function(&json!({"at": 1})))]),
            (Protocol::Responses, vec![item_delta("{\"at"), item_delta("\":1}")]),
            (Protocol::Anthropic, vec![json_delta("{\"at"), json_delta("\":1}")]),
            (Protocol::Gemini, vec![json!({"candidates": [{"content": {"parts": [gemini]}}]})]),
        ] {
            let deltas = AnswerSink::to(Arc::new(Nothing));
            let mut incoming = IncomingReply::new(protocol, &deltas, usize::MAX);
            for event in events {
                incoming.add(format!("data: {event}\n\n").as_bytes()).unwrap();
            }
            deltas.end();
            assert_eq!(deltas.characters(), r#"{"at":1}"#.len() as u64, "{protocol:?}");
        }
    }
}
