//! The matrix of faults: each bad reply and each bad network against a whole run, in virtual time.
//!
//! A row has its class, its number of requests, its costs and a bound of its time. No output of the run contains the key,
//! and the run is done once the server has recovered. Each reply of `exchanges/` is a row.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use graphrun::{
    checkpoint::RunHistory as _,
    engine::RunEnd,
    event::{Event, EventSink, Events, Report, Status},
    models::{OutputMode, Profile, Protocol},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    bench,
    faults::is_whole,
    peer::{KEY, client_with_limits},
};
use crate::support::new_loopback;

/// What a server does after it has read a request.
#[derive(Clone, Debug)]
enum Fault {
    /// Sends this, and closes the connection.
    Sends(Vec<u8>),
    /// Sends this, and stays.
    Stays(Vec<u8>),
    /// Sends the first part, and the second one every ten seconds.
    Drips(Vec<u8>, &'static str),
    /// Sends this, and resets the connection.
    Resets(Vec<u8>),
}

/// What becomes of a run.
#[derive(Clone, Debug)]
enum Class {
    Answer(String),
    /// So many calls of tools, and then an answer.
    Calls(usize),
    Failure(Failure),
}

#[derive(Clone, Debug)]
struct Failure {
    /// The kind, as `catch` names it.
    kind: &'static str,
    /// The variant of the error.
    class: String,
    /// Words of the message.
    says: String,
    is_repeated: bool,
}

impl Failure {
    /// Returns the words with which the messages of the class begin.
    fn words_of_class(&self) -> &'static str {
        match self.class.as_str() {
            "rate_limited" => "the provider limits the rate of requests: ",
            "overloaded" => "the provider is overloaded: ",
            "transient" => "the provider is unreachable or returned an invalid response: ",
            "timeout" => "no answer within ",
            "auth" => "the provider refuses the credentials: ",
            "quota" => "the account's quota is used up: ",
            "context_overflow" => "the request is too long for the model: ",
            "not_found" => "the provider finds no such model or address: ",
            "bad_request" => "the provider rejects the request with status ",
            "refused" => "the model refuses to answer: ",
            "truncated" => "the answer was truncated after ",
            "incomplete" => "the answer is not known to be whole: ",
            "stream_truncated" => "the stream ended before the answer was whole, ",
            "unknown_tool" => "the model called ",
            "empty_response" => "the reply is empty",
            "reply_too_large" => "the reply is larger than ",
            "misfit" => "the answer does not fit the request: ",
            other => panic!("{other}"),
        }
    }
}

#[derive(Debug)]
struct Row {
    name: String,
    protocol: Protocol,
    fault: Fault,
    class: Class,
    /// Whether the agent has the tools `look` and `now`.
    has_tools: bool,
    /// Whether the agent answers with an object, by the call of a tool.
    answers_by_call: bool,
    /// The requests of an attempt.
    requests: usize,
    /// The tokens of the request and of the reply. Only answers may leave them out: they are estimated.
    tokens: Option<(u64, u64)>,
    bound: Duration,
}

/// A server with a fault, until it recovers.
struct Server {
    base_url: String,
    requests: Arc<AtomicUsize>,
    has_recovered: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(row: &Row) -> Self {
        let listener = TcpListener::bind(new_loopback()).await.unwrap();
        // A gate is known by its address, and a port may be that of an earlier row.
        let base_url = format!("http://{}/{}/v1", listener.local_addr().unwrap(), row.name);
        let (requests, has_recovered) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let counted = Arc::clone(&requests);
        let recovered = Arc::clone(&has_recovered);
        let fault = row.fault.clone();
        let good = row.good_reply();
        let recovers_at_once = matches!(row.class, Class::Calls(_));
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let is_good = recovered.load(Ordering::SeqCst);
                let fault = if is_good { Fault::Sends(good.clone()) } else { fault.clone() };
                let counted = Arc::clone(&counted);
                let recovered = Arc::clone(&recovered);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !is_whole(&request) {
                        if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    recovered.fetch_or(recovers_at_once, Ordering::SeqCst);
                    drop(perform(fault, socket).await);
                });
            }
        });
        Self { base_url, requests, has_recovered, task }
    }
}

async fn perform(fault: Fault, mut socket: TcpStream) -> std::io::Result<()> {
    match fault {
        Fault::Sends(bytes) => {
            socket.write_all(&bytes).await?;
            socket.shutdown().await
        }
        Fault::Stays(bytes) => {
            socket.write_all(&bytes).await?;
            std::future::pending().await
        }
        Fault::Drips(bytes, again) => {
            socket.write_all(&bytes).await?;
            loop {
                sleep(Duration::from_secs(10)).await;
                socket.write_all(again.as_bytes()).await?;
            }
        }
        Fault::Resets(bytes) => {
            socket.write_all(&bytes).await?;
            // The client reads these bytes before the reset discards them.
            sleep(Duration::from_secs(1)).await;
            socket.set_zero_linger()
        }
    }
}

fn http(status: u16, headers: &BTreeMap<String, String>, body: &str) -> Vec<u8> {
    let mut reply = format!("HTTP/1.1 {status} Any\r\nconnection: close\r\n");
    for (name, value) in headers {
        reply.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
    }
    let length = body.len();
    (reply + &format!("content-length: {length}\r\n\r\n{body}")).into_bytes()
}

fn good_reply(protocol: Protocol) -> Vec<u8> {
    good_http(&reply_with(protocol, "Teal."))
}

fn good_http(body: &Value) -> Vec<u8> {
    http(200, &BTreeMap::new(), &body.to_string())
}

/// Returns a whole reply with this text, as the provider sends it at once.
pub(super) fn reply_with(protocol: Protocol, text: &str) -> Value {
    match protocol {
        Protocol::Chat => json!({
            "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7}
        }),
        Protocol::Responses => json!({
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
            "usage": {"input_tokens": 11, "output_tokens": 7}
        }),
        Protocol::Anthropic => json!({
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 11, "output_tokens": 7}
        }),
        Protocol::Gemini => json!({
            "candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7}
        }),
    }
}

/// Returns a whole reply that calls a tool, as the provider sends it at once.
pub(super) fn call_with(protocol: Protocol, name: &str, arguments: &Value) -> Value {
    let mut reply = reply_with(protocol, "");
    match protocol {
        Protocol::Chat => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let call = json!({"id": "c1", "type": "function", "function": function});
            let message = json!({"content": null, "tool_calls": [call]});
            reply["choices"] = json!([{"message": message, "finish_reason": "tool_calls"}]);
        }
        Protocol::Responses => {
            let arguments = arguments.to_string();
            let call = json!({"type": "function_call", "call_id": "c1", "name": name, "arguments": arguments});
            reply["output"] = json!([call]);
        }
        Protocol::Anthropic => {
            let call = json!({"type": "tool_use", "id": "c1", "name": name, "input": arguments});
            reply["content"] = json!([call]);
            reply["stop_reason"] = json!("tool_use");
        }
        Protocol::Gemini => {
            let call = json!({"functionCall": {"name": name, "args": arguments}});
            reply["candidates"][0]["content"]["parts"] = json!([call]);
        }
    }
    reply
}

/// Returns the event of a stream before the first piece of the answer, if the protocol has one.
fn start_event(protocol: Protocol) -> String {
    let block = json!({"type": "text", "text": ""});
    let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
    if protocol == Protocol::Anthropic { format!("data: {start}\n\n") } else { String::new() }
}

/// Returns an event of a stream with a piece of the answer.
fn event_with(protocol: Protocol, text: &str) -> String {
    let event = match protocol {
        Protocol::Chat => json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
        Protocol::Responses => json!({"type": "response.output_text.delta", "delta": text}),
        Protocol::Anthropic => {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
        }
        Protocol::Gemini => json!({"candidates": [{"content": {"parts": [{"text": text}]}}]}),
    };
    format!("data: {event}\n\n")
}

/// Returns a row for each reply of `exchanges/`.
fn rows_of_exchanges() -> Vec<Row> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/exchanges");
    let mut rows = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let expect = &file["expect"];
        let headers = file.get("headers").cloned().unwrap_or_else(|| json!({}));
        let headers: BTreeMap<String, String> = serde_json::from_value(headers).unwrap();
        let body = file["body"].as_str().map_or_else(|| file["body"].to_string(), str::to_owned);
        let status = u16::try_from(file["status"].as_u64().unwrap()).unwrap();
        let text = |name: &str| expect[name].as_str().unwrap().to_owned();
        let class = match (expect["error"].as_str(), expect["calls"].as_array()) {
            (None, None) => Class::Answer(text("text")),
            (None, Some(calls)) => Class::Calls(calls.len()),
            (Some(word), _) => {
                let kind = match word {
                    "auth" | "quota" => "credentials",
                    "rate_limit" => "rate_limit",
                    "refused" => "refused",
                    "invalid_output" => "invalid_output",
                    "context_overflow" => "context_overflow",
                    "provider" | "bad_request" => "provider",
                    other => panic!("{}: {other}", path.display()),
                };
                let is_repeated = expect["retryable"].as_bool().unwrap();
                Class::Failure(Failure {
                    kind,
                    class: text("class"),
                    says: text("says"),
                    is_repeated,
                })
            }
        };
        let wait = Duration::from_millis(expect["after_ms"].as_u64().unwrap_or(0));
        rows.push(Row {
            name: path.file_stem().unwrap().display().to_string(),
            protocol: Protocol::parse(file["protocol"].as_str().unwrap_or("chat")).unwrap(),
            fault: Fault::Sends(http(status, &headers, &body.replace("{{key}}", KEY))),
            class,
            has_tools: !file["tools"].is_null(),
            answers_by_call: false,
            requests: 1,
            tokens: serde_json::from_value(expect["tokens"].clone()).unwrap(),
            // The longest wait between two attempts, with its jitter.
            bound: Duration::from_secs(35) + wait * 2,
        });
    }
    rows
}

/// Returns a body of 190 KB that expands to 200 MB of zeros.
fn gzip_bomb() -> Vec<u8> {
    let start = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff];
    let block = [0xec, 0xc1, 1, 1, 0, 0, 0, 0x80, 0x90, 0xfe, 0xaf, 0xee, 8, 0x0a];
    let end = [0x80, 0x93, 0, 0x43, 0xe0, 0x4d, 0xbe, 0, 0xc2, 0xeb, 0x0b];
    [&start[..], &block, &vec![0; 194_386], &end].concat()
}

impl Row {
    /// Returns a failure that costs nothing, with words of its message.
    fn failing(protocol: Protocol, name: &str, fault: Fault, class: &str, says: &str) -> Self {
        let kind = if class == "auth" { "credentials" } else { "provider" };
        let is_repeated = !matches!(class, "auth" | "reply_too_large");
        let class = class.to_owned();
        let says = says.to_owned();
        Self {
            name: format!("{}_{name}", protocol.as_str()),
            protocol,
            fault,
            class: Class::Failure(Failure { kind, class, says, is_repeated }),
            has_tools: false,
            answers_by_call: false,
            requests: 1,
            tokens: Some((0, 0)),
            bound: Duration::from_secs(35),
        }
    }

    /// Returns a row of an agent that answers by a call.
    fn by_call(protocol: Protocol, name: &str, body: &Value, class: Class) -> Self {
        let fault = Fault::Sends(good_http(body));
        let row = Self::failing(protocol, &format!("call_{name}"), fault, "", "").costing(11, 7);
        Self { class, answers_by_call: true, ..row }
    }

    /// Returns what the server sends once it has recovered.
    fn good_reply(&self) -> Vec<u8> {
        if self.answers_by_call {
            return good_http(&call_with(self.protocol, "paint", &paint("teal")));
        }
        good_reply(self.protocol)
    }

    /// Returns the answer of a run whose server has recovered.
    fn good_answer(&self) -> &'static str {
        if self.answers_by_call { "teal" } else { "Teal." }
    }

    fn costing(self, input: u64, output: u64) -> Self {
        Self { tokens: Some((input, output)), ..self }
    }

    fn within(self, seconds: u64) -> Self {
        Self { bound: Duration::from_secs(seconds), ..self }
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n";

/// The words of a request that has reached the end of the idle time, and of one that has reached that of the whole one.
const IDLE: &str = "60 s while reading the reply";
const WHOLE: &str = "600 s while reading the reply";

fn sends(text: &str) -> Fault {
    Fault::Sends(text.as_bytes().to_vec())
}

fn stays(text: &str) -> Fault {
    Fault::Stays(text.as_bytes().to_vec())
}

fn drips(text: &str, again: &'static str) -> Fault {
    Fault::Drips(text.as_bytes().to_vec(), again)
}

fn resets(text: &str) -> Fault {
    Fault::Resets(text.as_bytes().to_vec())
}

fn rows_of_networks(protocol: Protocol) -> Vec<Row> {
    let json = format!("{HEAD}content-type: application/json\r\n");
    let part = format!("{json}content-length: 5000\r\n\r\n{{\"a");
    let bomb = [json.as_bytes(), b"content-encoding: gzip\r\n\r\n", &gzip_bomb()].concat();
    let error = json!({"error": {"message": format!("unknown key {KEY}")}});
    let refusal = format!("HTTP/1.1 401 No\r\nconnection: close\r\n\r\n{error}");
    let no_http = format!("220 {KEY} ESMTP\r\n");
    // Longer than the limit of 16 MiB, after which a client reads no further.
    let large = format!("{json}\r\n{}", " ".repeat(17 * 1024 * 1024));
    let fails = |name: &str, fault: Fault, class: &str, says: &str| {
        Row::failing(protocol, name, fault, class, says)
    };
    let talk = "cannot talk to http://";
    let mut other_bytes = good_reply(protocol);
    let at = other_bytes.windows(5).position(|it| it == b"Teal.").unwrap();
    other_bytes[at + 1] = 0xff;
    let answer = Class::Answer("T\u{fffd}al.".to_owned());
    let no_utf8 = fails("is_no_utf8", Fault::Sends(other_bytes), "", "").costing(11, 7);
    vec![
        fails("closes", sends(""), "transient", talk),
        fails("resets", resets(""), "transient", talk).within(40),
        fails("is_silent", stays(""), "timeout", "600 s while waiting for the reply").within(1240),
        fails("is_no_http", sends(&no_http), "transient", talk),
        fails("breaks_off", sends(&part), "transient", talk),
        fails("breaks_off_reset", resets(&part), "transient", talk).within(40),
        fails("stalls", stays(&part), "timeout", IDLE).within(160),
        fails("drips", drips(&part, " "), "timeout", WHOLE).within(1240),
        fails("compresses", Fault::Sends(bomb), "transient", "is not JSON"),
        fails("sends_too_much", sends(&large), "reply_too_large", "16777216 bytes"),
        fails("echoes_key", sends(&refusal), "auth", "unknown key [redacted]"),
        Row { class: answer, ..no_utf8 },
    ]
}

fn rows_of_streams(protocol: Protocol) -> Vec<Row> {
    let events = format!("{HEAD}content-type: text/event-stream\r\n\r\n");
    let begun = events.clone() + &start_event(protocol);
    let first = begun.clone() + &event_with(protocol, "Te");
    let blank = begun + &event_with(protocol, &" ".repeat(2_000)).repeat(3);
    let garbage = format!("{first}data: oh {KEY}\n\n");
    let error = json!({"error": {"message": format!("unknown key {KEY}")}});
    let echo = format!("{first}data: {error}\n\n");
    let fails = |name: &str, fault: Fault, class: &str, says: &str| {
        Row::failing(protocol, &format!("stream_{name}"), fault, class, says)
    };
    // The cost of the request and of two characters, by their number.
    let breaks = |name: &str, fault: Fault, class: &str, says: &str| {
        fails(name, fault, class, says).costing(4, 1)
    };
    let pings = ": waiting\n\n";
    let truncated = "stream_truncated";
    vec![
        fails("has_headers_only", stays(&events), "timeout", WHOLE).within(1240),
        fails("is_empty", sends(&events), "empty_response", ""),
        breaks("closes", sends(&first), truncated, "after 2 characters"),
        breaks("resets", resets(&first), truncated, "after 2 characters").within(40),
        breaks("stalls", stays(&first), "timeout", IDLE).within(160),
        breaks("pings", drips(&first, pings), "timeout", IDLE).within(160),
        fails("pings_only", drips(&events, pings), "timeout", WHOLE).within(1240),
        fails("of_blanks", stays(&blank), "transient", "more than 4096 blanks").costing(4, 1_715),
        breaks("garbage", stays(&garbage), "transient", "no JSON"),
        breaks("echoes_key", sends(&echo), "transient", "unknown key [redacted]"),
    ]
}

fn paint(name: &str) -> Value {
    json!({"name": name, "depth": 3})
}

/// Returns the rows of an agent that answers by the call of a tool.
fn rows_of_calls(protocol: Protocol) -> Vec<Row> {
    let teal = || Class::Answer("teal".to_owned());
    let invalid = |class: &str, says: &str| {
        let class = class.to_owned();
        let says = says.to_owned();
        Class::Failure(Failure { kind: "invalid_output", class, says, is_repeated: false })
    };
    let row = |name: &str, body: &Value, class| Row::by_call(protocol, name, body, class);
    let called = |arguments: &Value| call_with(protocol, "paint", arguments);
    let other = call_with(protocol, "draw", &paint("teal"));
    let mut rows = vec![
        row("answers", &called(&paint("teal")), teal()),
        row("text", &reply_with(protocol, &paint("teal").to_string()), teal()),
        row("misfits", &called(&paint(KEY)), invalid("misfit", "name")),
        row("lacks", &called(&json!({"name": "teal"})), invalid("misfit", "depth")),
        row("other_tool", &other, invalid("unknown_tool", "`draw`, a tool that does not exist")),
    ];
    if protocol != Protocol::Chat {
        return rows;
    }
    // The arguments of the other protocols are JSON, or have the same reader.
    let with_arguments = |arguments: &str, finish: &str| {
        let mut body = called(&Value::Null);
        body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments.into();
        body["choices"][0]["finish_reason"] = finish.into();
        body
    };
    let fenced = format!("```json\n{}\n```", paint("teal"));
    let mut beside = called(&paint("teal"));
    beside["choices"][0]["message"]["content"] = "I call the tool.".into();
    rows.extend([
        row("fenced", &with_arguments(&fenced, "stop"), teal()),
        row("beside_text", &beside, teal()),
        row("no_json", &with_arguments("{oh", "tool_calls"), invalid("misfit", "JSON")),
        row("nothing", &with_arguments("", "tool_calls"), invalid("misfit", "name")),
        row("truncated", &with_arguments("{\"na", "length"), invalid("truncated", "")),
    ]);
    let failing = |name: &str, fault: Fault, class: &str, says: &str| Row {
        answers_by_call: true,
        ..Row::failing(protocol, &format!("call_{name}"), fault, class, says)
    };
    let error = json!({"error": {"message": format!("no tools for {KEY}")}}).to_string();
    let refused = Fault::Sends(http(400, &BTreeMap::new(), &error));
    let refused = failing("refused", refused, "bad_request", "no tools for [redacted]");
    let Class::Failure(failure) = refused.class.clone() else { unreachable!("it fails") };
    let class = Class::Failure(Failure { is_repeated: false, ..failure });
    let call = json!({"index": 0, "id": "c1", "function": {"name": "paint", "arguments": "{\"na"}});
    let event = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
    let cut = sends(&format!("{HEAD}content-type: text/event-stream\r\n\r\ndata: {event}\n\n"));
    let overloaded = Fault::Sends(http(503, &BTreeMap::new(), &error));
    rows.extend([
        // The schema in the prompt is the last form.
        Row { requests: 2, class, ..refused },
        failing("overloaded", overloaded, "overloaded", "no tools for [redacted]"),
        failing("stream_cut", cut, "stream_truncated", "").costing(4, 2),
    ]);
    rows
}

/// The events of a run until its end, in the form in which they are shown.
struct Shown {
    text: String,
    /// The kind of each failure, whether its request was repeated, and its message.
    failures: Vec<(String, bool, String)>,
    calls: usize,
    tokens: (u64, u64),
}

async fn read(mut events: Events) -> Shown {
    let mut shown = Shown { text: String::new(), failures: Vec::new(), calls: 0, tokens: (0, 0) };
    while let Some(event) = events.recv().await {
        shown.text += &serde_json::to_string(&event).unwrap();
        match event.event {
            Event::TaskFailed { kind, attempt, error, .. } => {
                shown.failures.push((kind, attempt > 1, error));
            }
            Event::TaskReported { report: Report::ToolCall { .. }, .. } => shown.calls += 1,
            Event::RunFinished { usage, .. } => {
                shown.tokens = (usage.tokens.input_tokens, usage.tokens.output_tokens);
            }
            _ => {}
        }
    }
    shown
}

fn colour(end: &RunEnd) -> Option<&str> {
    let colour = end.state.get("colour")?;
    colour.get("name").unwrap_or(colour).as_str()
}

async fn check(row: &Row) {
    let name = &row.name;
    let server = Server::start(row).await;
    let first = if row.answers_by_call { OutputMode::Tool } else { OutputMode::JsonSchema };
    let profile = Profile { protocol: row.protocol, output: first, ..Profile::default() };
    let client = client_with_limits(&server.base_url, profile, None);
    let (engine, storage) = match (row.has_tools, row.answers_by_call) {
        (true, _) => bench::engine_with_tools(client),
        (false, true) => bench::engine_without_repairs(client),
        (false, false) => bench::engine(client),
    };
    let start = Instant::now();
    let mut sink = EventSink::default();
    let events = sink.subscribe();
    let (end, shown) = tokio::join!(engine.run(&()).with_events(sink), read(events));
    let end = end.unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed <= row.bound, "{name}: {elapsed:?}");
    let requests = server.requests.load(Ordering::SeqCst);
    // The tokens of the good reply after calls.
    let (expected, times, more) = match &row.class {
        Class::Answer(text) => {
            assert_eq!((end.status, colour(&end)), (Status::Done, Some(text.as_str())), "{name}");
            (1, 1, (0, 0))
        }
        Class::Calls(count) => {
            assert_eq!((end.status, colour(&end)), (Status::Done, Some("Teal.")), "{name}");
            assert_eq!(shown.calls, *count, "{name}: {}", shown.text);
            (2, 1, (11, 7))
        }
        Class::Failure(failure) => {
            assert_eq!(end.status, Status::Failed, "{name}");
            let [(kind, is_repeated, message)] = &shown.failures[..] else {
                panic!("{name}: {}", shown.text)
            };
            let found = (kind.as_str(), *is_repeated);
            assert_eq!(found, (failure.kind, failure.is_repeated), "{name}: {message}");
            for words in [failure.words_of_class(), &failure.says] {
                assert!(message.contains(words), "{name}: {words:?} is not in {message:?}");
            }
            assert!(row.tokens.is_some(), "{name} has no tokens");
            if failure.is_repeated { (2, 2, (0, 0)) } else { (1, 1, (0, 0)) }
        }
    };
    assert_eq!(requests, expected * row.requests, "{name}: requests");
    if let Some((input, output)) = row.tokens {
        let tokens = (input * times + more.0, output * times + more.1);
        assert_eq!(shown.tokens, tokens, "{name}: each request costs once");
    }
    let mut outputs = vec![format!("{} {end:?}", shown.text)];
    if matches!(row.class, Class::Failure(..)) {
        server.has_recovered.store(true, Ordering::SeqCst);
        let mut sink = EventSink::default();
        let events = sink.subscribe();
        let retried = engine.retry(&end.run).with_events(sink);
        let (end, again) = tokio::join!(retried, read(events));
        let end = end.unwrap();
        assert_eq!(
            (end.status, colour(&end)),
            (Status::Done, Some(row.good_answer())),
            "{name} recovers"
        );
        let before = shown.tokens;
        assert_eq!(again.tokens, (before.0 + 11, before.1 + 7), "{name}: the costs of both");
        assert_eq!(server.requests.load(Ordering::SeqCst), requests + 1, "{name}");
        outputs.push(format!("{} {end:?}", again.text));
    }
    outputs.push(format!("{:?}", storage.journal(&end.run).await.unwrap()));
    assert!(outputs.iter().all(|it| !it.contains(KEY)), "{name}: the key is in an output");
}

#[tokio::test(start_paused = true)]
async fn every_fault_has_its_class_its_costs_and_a_run_that_recovers() {
    let mut rows = rows_of_exchanges();
    rows.extend(Protocol::ALL.iter().flat_map(|it| rows_of_networks(*it)));
    rows.extend(Protocol::ALL.iter().flat_map(|it| rows_of_streams(*it)));
    rows.extend(Protocol::ALL.iter().flat_map(|it| rows_of_calls(*it)));
    let faults = rows.iter().filter(|it| matches!(it.class, Class::Failure(..))).count();
    assert!(faults >= 235, "only {faults} rows are faults");
    for row in &rows {
        check(row).await;
    }
}
