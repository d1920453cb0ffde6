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
    event::{Event, EventSink, Events, Status},
    models::{Profile, Protocol},
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
}

/// What becomes of a run.
#[derive(Clone, Debug)]
enum Class {
    Answer(String),
    /// The kind of the failure, and whether the request is repeated.
    Failure(&'static str, bool),
}

#[derive(Debug)]
struct Row {
    name: String,
    protocol: Protocol,
    fault: Fault,
    class: Class,
    /// The tokens of the request and of the reply, if the row has counts.
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
        let (counted, recovered) = (Arc::clone(&requests), Arc::clone(&has_recovered));
        let (fault, good) = (row.fault.clone(), good_reply(row.protocol));
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let is_good = recovered.load(Ordering::SeqCst);
                let fault = if is_good { Fault::Sends(good.clone()) } else { fault.clone() };
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !is_whole(&request) {
                        if socket.read_buf(&mut request).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
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
    let body = match protocol {
        Protocol::Chat => json!({
            "choices": [{"message": {"content": "Teal."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7}
        }),
        Protocol::Responses => json!({
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Teal."}]}],
            "usage": {"input_tokens": 11, "output_tokens": 7}
        }),
        Protocol::Anthropic => json!({
            "content": [{"type": "text", "text": "Teal."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 11, "output_tokens": 7}
        }),
        Protocol::Gemini => json!({
            "candidates": [{"content": {"parts": [{"text": "Teal."}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7}
        }),
    };
    http(200, &BTreeMap::new(), &body.to_string())
}

/// Returns the first event of a stream, with content.
fn first_event(protocol: Protocol) -> String {
    let event = match protocol {
        Protocol::Chat => json!({"choices": [{"index": 0, "delta": {"content": "Te"}}]}),
        Protocol::Responses => json!({"type": "response.output_text.delta", "delta": "Te"}),
        Protocol::Anthropic => {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Te"}})
        }
        Protocol::Gemini => json!({"candidates": [{"content": {"parts": [{"text": "Te"}]}}]}),
    };
    format!("data: {event}\n\n")
}

/// Returns a row for each reply of `exchanges/`, but calls, which an agent without tools does not ask for.
fn rows_of_exchanges() -> Vec<Row> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/exchanges");
    let mut rows = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let expect = &file["expect"];
        if !file["tools"].is_null() {
            continue;
        }
        let headers = file.get("headers").cloned().unwrap_or_else(|| json!({}));
        let headers: BTreeMap<String, String> = serde_json::from_value(headers).unwrap();
        let body = file["body"].as_str().map_or_else(|| file["body"].to_string(), str::to_owned);
        let status = u16::try_from(file["status"].as_u64().unwrap()).unwrap();
        let class = match expect["error"].as_str() {
            None => Class::Answer(expect["text"].as_str().unwrap().to_owned()),
            Some(word) => {
                let kind = match word {
                    "auth" | "quota" => "credentials",
                    "rate_limit" => "rate_limit",
                    "refused" => "refused",
                    "invalid_output" => "invalid_output",
                    "context_overflow" => "context_overflow",
                    "provider" | "bad_request" => "provider",
                    other => panic!("{}: {other}", path.display()),
                };
                Class::Failure(kind, expect["retryable"].as_bool().unwrap())
            }
        };
        let wait = Duration::from_millis(expect["after_ms"].as_u64().unwrap_or(0));
        rows.push(Row {
            name: path.file_stem().unwrap().display().to_string(),
            protocol: Protocol::parse(file["protocol"].as_str().unwrap_or("chat")).unwrap(),
            fault: Fault::Sends(http(status, &headers, &body.replace("{{key}}", KEY))),
            class,
            tokens: serde_json::from_value(expect["tokens"].clone()).unwrap(),
            // The longest wait between two attempts, with its jitter.
            bound: Duration::from_secs(35) + wait * 2,
        });
    }
    rows
}

fn rows_of_networks(protocol: Protocol) -> Vec<Row> {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    let json = format!("{head}content-type: application/json\r\n");
    let events = format!("{head}content-type: text/event-stream\r\n\r\n");
    let first = first_event(protocol);
    let mut bomb = format!("{json}content-encoding: gzip\r\n\r\n").into_bytes();
    bomb.extend([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    let bytes = |text: String| text.into_bytes();
    let provider = Class::Failure("provider", true);
    let rows = [
        ("closes", Fault::Sends(Vec::new()), 35),
        ("is_silent", Fault::Stays(Vec::new()), 1240),
        ("sends_headers_only", Fault::Stays(bytes(events.clone())), 1240),
        ("is_no_http", Fault::Sends(b"220 mail.example ESMTP\r\n".to_vec()), 35),
        ("breaks_off", Fault::Sends(bytes(format!("{json}content-length: 500\r\n\r\n{{\"a"))), 35),
        ("stalls", Fault::Stays(bytes(format!("{json}content-length: 500\r\n\r\n{{\"a"))), 160),
        (
            "drips",
            Fault::Drips(bytes(format!("{json}content-length: 5000\r\n\r\n{{\"a")), " "),
            1240,
        ),
        ("compresses", Fault::Sends(bomb), 35),
        ("stream_closes", Fault::Sends(bytes(format!("{events}{first}"))), 35),
        ("stream_stalls", Fault::Stays(bytes(format!("{events}{first}"))), 160),
        ("stream_pings", Fault::Drips(bytes(format!("{events}{first}")), ": waiting\n\n"), 160),
        ("stream_pings_only", Fault::Drips(bytes(events.clone()), ": waiting\n\n"), 1240),
        ("stream_garbage", Fault::Stays(bytes(format!("{events}{first}data: oh\n\n"))), 35),
    ];
    let row = |(name, fault, bound)| Row {
        name: format!("{}_{name}", protocol.as_str()),
        protocol,
        fault,
        class: provider.clone(),
        tokens: None,
        bound: Duration::from_secs(bound),
    };
    let mut rows: Vec<Row> = rows.into_iter().map(row).collect();
    let large = Fault::Sends(bytes(format!("{json}\r\n{}", " ".repeat(17 * 1024 * 1024))));
    let class = Class::Failure("provider", false);
    rows.push(Row { class, ..row(("sends_too_much", large, 35)) });
    rows
}

/// The events of a run until its end, in the form in which they are shown.
struct Shown {
    text: String,
    kinds: Vec<(String, bool)>,
    tokens: (u64, u64),
}

async fn read(mut events: Events) -> Shown {
    let mut shown = Shown { text: String::new(), kinds: Vec::new(), tokens: (0, 0) };
    while let Some(event) = events.recv().await {
        shown.text += &serde_json::to_string(&event).unwrap();
        match event.event {
            Event::TaskFailed { kind, attempt, .. } => shown.kinds.push((kind, attempt > 1)),
            Event::RunFinished { usage, .. } => {
                shown.tokens = (usage.tokens.input_tokens, usage.tokens.output_tokens);
            }
            _ => {}
        }
    }
    shown
}

fn colour(end: &RunEnd) -> Option<&str> {
    end.state.get("colour").and_then(Value::as_str)
}

async fn check(row: &Row) {
    let name = &row.name;
    let server = Server::start(row).await;
    let profile = Profile { protocol: row.protocol, ..Profile::default() };
    let client = client_with_limits(&server.base_url, profile, None);
    let (engine, storage) = bench::engine(client);
    let start = Instant::now();
    let mut sink = EventSink::default();
    let events = sink.subscribe();
    let (end, shown) = tokio::join!(engine.run(&()).with_events(sink), read(events));
    let end = end.unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed <= row.bound, "{name}: {elapsed:?}");
    let requests = server.requests.load(Ordering::SeqCst);
    let (expected, is_repeated) = match &row.class {
        Class::Answer(text) => {
            assert_eq!((end.status, colour(&end)), (Status::Done, Some(text.as_str())), "{name}");
            (1, false)
        }
        Class::Failure(kind, is_repeated) => {
            assert_eq!(shown.kinds, [((*kind).to_owned(), *is_repeated)], "{name}: {}", shown.text);
            assert_eq!(end.status, Status::Failed, "{name}");
            (if *is_repeated { 2 } else { 1 }, *is_repeated)
        }
    };
    assert_eq!(requests, expected, "{name}: requests");
    if let Some((input, output)) = row.tokens {
        let times = if is_repeated { 2 } else { 1 };
        assert_eq!(
            shown.tokens,
            (input * times, output * times),
            "{name}: each request costs once"
        );
    }
    let mut outputs = vec![format!("{} {end:?}", shown.text)];
    if matches!(row.class, Class::Failure(..)) {
        server.has_recovered.store(true, Ordering::SeqCst);
        let mut sink = EventSink::default();
        let events = sink.subscribe();
        let retried = engine.retry(&end.run).with_events(sink);
        let (end, again) = tokio::join!(retried, read(events));
        let end = end.unwrap();
        assert_eq!((end.status, colour(&end)), (Status::Done, Some("Teal.")), "{name} recovers");
        let before = shown.tokens;
        assert_eq!(again.tokens, (before.0 + 11, before.1 + 7), "{name}: the costs of both");
        assert_eq!(server.requests.load(Ordering::SeqCst), expected + 1, "{name}");
        outputs.push(format!("{} {end:?}", again.text));
    }
    outputs.push(format!("{:?}", storage.journal(&end.run).await.unwrap()));
    assert!(outputs.iter().all(|it| !it.contains(KEY)), "{name}: the key is in an output");
}

#[tokio::test(start_paused = true)]
async fn every_fault_has_its_class_its_costs_and_a_run_that_recovers() {
    let mut rows = rows_of_exchanges();
    rows.extend(Protocol::ALL.iter().flat_map(|it| rows_of_networks(*it)));
    let faults = rows.iter().filter(|it| matches!(it.class, Class::Failure(..))).count();
    assert!(faults >= 150, "only {faults} rows are faults");
    for row in &rows {
        check(row).await;
    }
}
