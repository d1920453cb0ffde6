//! Answers that arrive in pieces: when they arrive, who gets them, and what a silent or broken stream becomes.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use graphrun::{
    checkpoint::RunHistory as _,
    engine::{StreamChunk, StreamMode},
    event::{Event, EventSink, Status},
    models::{
        AnswerReader, AnswerSink, ChatModel as _, ChatRequest, MessagePart, ModelError, Phase,
        Protocol, ProviderSettings, Providers,
    },
};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use super::{
    bench,
    peer::{KEY, Peer, SHORT_IDLE, SHORT_TOTAL, client, completion, hurried_client, request},
};

const DONE: &str = "data: [DONE]\n\n";

fn piece(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

fn last() -> String {
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7});
    let end =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage});
    format!("data: {end}\n\n")
}

/// Returns a reply whose pieces the test sends, and the sender of them.
fn open_reply() -> (mpsc::UnboundedSender<String>, Response) {
    let (sender, mut pieces) = mpsc::unbounded_channel::<String>();
    let pieces = stream::poll_fn(move |context| pieces.poll_recv(context));
    let body = Body::from_stream(pieces.map(Ok::<_, Infallible>));
    (sender, body.into_response())
}

/// Starts a server with one reply, whose pieces the test sends.
async fn open_peer() -> (mpsc::UnboundedSender<String>, Peer) {
    let (sender, reply) = open_reply();
    let reply = Mutex::new(Some(reply));
    let peer = Peer::start(move |_| reply.lock().unwrap().take().expect("one request")).await;
    (sender, peer)
}

/// Sends a piece over and over, for as long as the client listens.
fn repeat(sender: mpsc::UnboundedSender<String>, text: &'static str) {
    tokio::spawn(async move {
        while sender.send(text.to_owned()).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Passes each piece on.
#[derive(Debug)]
struct Pass(mpsc::UnboundedSender<(MessagePart, String)>);

impl AnswerReader for Pass {
    fn take(&self, part: MessagePart, text: &str) {
        drop(self.0.send((part, text.to_owned())));
    }
}

#[tokio::test]
async fn a_piece_arrives_before_the_answer_is_whole() {
    let (sender, peer) = open_peer().await;
    let (pass, mut seen) = mpsc::unbounded_channel();
    let deltas = AnswerSink::to(Arc::new(Pass(pass)));
    let asked = ChatRequest { deltas, ..request("Which colour?") };
    let client = peer.client();
    let answer = tokio::spawn(async move { client.chat(&asked).await });
    sender.send(piece("Deep ")).unwrap();
    // The end of it may wait for the next piece, because a key may begin with it.
    let (part, mut text) = seen.recv().await.unwrap();
    assert!(part == MessagePart::Text && "Deep ".starts_with(&text), "{text}");
    assert!(!answer.is_finished());
    // A key that the server sends in two pieces reaches no reader.
    for text in [&piece(&KEY[..9]), &piece(&KEY[9..]), &last(), DONE] {
        sender.send(text.to_owned()).unwrap();
    }
    let reply = answer.await.unwrap().unwrap();
    assert_eq!(reply.usage.total_tokens(), 18);
    text.extend(std::iter::from_fn(|| seen.try_recv().ok()).map(|it| it.1));
    assert_eq!(text, "Deep [redacted]");
}

#[tokio::test]
async fn the_pieces_reach_a_stream_of_the_run_and_not_its_journal() {
    let peer = Peer::start(|_| {
        [piece("Deep "), piece("te"), piece("al"), last(), DONE.to_owned()].concat().into_response()
    })
    .await;
    let (engine, storage) = bench::engine(peer.client());
    let mut sink = EventSink::default();
    let mut deltas = sink.subscribe_deltas();
    let launch = engine.run(&()).with_events(sink).stream([StreamMode::Messages]);
    let mut run = launch.start().await.unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = run.next().await {
        chunks.push(chunk);
    }
    let end = run.outcome().await.unwrap();
    assert_eq!((end.status, end.state.get("colour")), (Status::Done, Some(&json!("Deep teal"))));
    let mut text = String::new();
    for chunk in &chunks {
        let StreamChunk::Message(delta) = chunk else { panic!("{chunk:?}") };
        assert_eq!((delta.node.as_str(), delta.model.as_str()), ("paint", "lab/small"));
        assert_eq!((delta.attempt, delta.part, delta.missed), (1, MessagePart::Text, 0));
        assert_eq!(delta.message, chunks.iter().find_map(number).unwrap(), "one answer");
        text.push_str(&delta.text);
        assert_eq!(deltas.recv().await.as_ref(), Some(&**delta), "both readers get the same");
    }
    assert_eq!(text, "Deep teal");
    assert_eq!(deltas.recv().await, None);
    let journal = storage.journal(&end.run).await.unwrap();
    let events: Vec<String> = journal
        .iter()
        .flat_map(|it| &it.entry.events)
        .map(|it| serde_json::to_string(it).unwrap())
        .collect();
    assert!(events.len() > 4 && events.iter().all(|it| !it.contains("Deep")), "{events:?}");
}

fn number(chunk: &StreamChunk) -> Option<u64> {
    let StreamChunk::Message(delta) = chunk else { return None };
    Some(delta.message)
}

#[tokio::test]
async fn a_reader_that_lags_misses_pieces_and_does_not_slow_the_run() {
    const PIECES: usize = 5000;
    let body: String = (0..PIECES).map(|_| piece("word ")).collect();
    let peer = Peer::start(move |_| [&body, &*last(), DONE].concat().into_response()).await;
    let (engine, _) = bench::engine(peer.client());
    let mut sink = EventSink::default();
    let mut events = sink.subscribe();
    let mut deltas = sink.subscribe_deltas();
    let launch = engine.run(&()).with_events(sink).stream([StreamMode::Messages]);
    let mut run = launch.start().await.unwrap();
    // Nothing reads the pieces until the run is over.
    while let Some(event) = events.recv().await {
        if let Event::RunFinished { status, .. } = event.event {
            assert_eq!(status, Status::Done);
        }
    }
    let mut seen = 0;
    let mut missed = 0;
    while let Some(chunk) = run.next().await {
        match chunk {
            StreamChunk::Message(_) => seen += 1,
            StreamChunk::Missed(count) => missed += usize::try_from(count).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0 && seen <= 1024, "{seen} seen, {missed} missed");
    // The end of the last piece may come alone, because a key may begin with it.
    assert!((PIECES..=PIECES + 1).contains(&(seen + missed)), "{seen} seen, {missed} missed");
    let kept = std::iter::from_fn(|| deltas.try_recv()).count();
    assert_eq!(kept, 1024);
}

#[tokio::test]
async fn cancellation_closes_the_connection() {
    let (sender, peer) = open_peer().await;
    let client = peer.client();
    let answer = tokio::spawn(async move { client.chat(&request("Which colour?")).await });
    sender.send(piece("Te")).unwrap();
    while peer.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    answer.abort();
    assert!(answer.await.unwrap_err().is_cancelled());
    timeout(Duration::from_secs(10), sender.closed()).await.expect("the server sees the end");
}

#[tokio::test]
async fn signs_of_life_are_no_data() {
    let (sender, peer) = open_peer().await;
    sender.send(piece("Te")).unwrap();
    repeat(sender, ": waiting\n\n");
    let client = hurried_client(&peer.base_url, Protocol::Chat);
    let error = client.chat(&request("Which colour?")).await.unwrap_err();
    let after = SHORT_IDLE;
    assert_eq!(*error.reason(), ModelError::Timeout { phase: Phase::Body, after });
}

#[tokio::test]
async fn a_model_may_think_until_the_deadline() {
    // Before its answer.
    let (sender, peer) = open_peer().await;
    sender.send(piece("")).unwrap();
    repeat(sender, ": waiting\n\n");
    let client = hurried_client(&peer.base_url, Protocol::Chat);
    let error = client.chat(&request("Which colour?")).await.unwrap_err();
    let after = SHORT_TOTAL;
    assert_eq!(*error.reason(), ModelError::Timeout { phase: Phase::Body, after });

    // After a first text, in a block that it does not show.
    let (sender, peer) = open_peer().await;
    let event = |event: Value| sender.send(format!("data: {event}\n\n")).unwrap();
    let block = |kind: &str| json!({"type": "content_block_start", "index": 1, "content_block": {"type": kind}});
    event(json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}));
    event(
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hm"}}),
    );
    event(block("thinking"));
    repeat(sender, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    let client = hurried_client(&peer.base_url, Protocol::Anthropic);
    let error = client.chat(&request("Which colour?")).await.unwrap_err();
    assert_eq!(*error.reason(), ModelError::Timeout { phase: Phase::Body, after });
}

#[tokio::test]
async fn an_answer_that_is_over_does_not_wait_for_the_connection() {
    for end in [format!("{}{DONE}", last()), last()] {
        let (sender, peer) = open_peer().await;
        for text in [piece("Teal."), end] {
            sender.send(text).unwrap();
        }
        let reply = hurried_client(&peer.base_url, Protocol::Chat)
            .chat(&request("Which colour?"))
            .await
            .unwrap();
        assert_eq!((reply.text.as_str(), reply.usage.total_tokens()), ("Teal.", 18));
        // The sender is kept: the server has not closed the connection.
        assert_eq!(peer.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_whole_answer_does_not_wait_for_the_connection() {
    let event = |event: Value| format!("data: {event}\n\n");
    let text = json!({"type": "text_delta", "text": "Teal."});
    let item = json!({"type": "message", "content": [{"type": "output_text", "text": "Teal."}]});
    let ended = json!({"status": "completed", "output": [item], "usage": {"input_tokens": 11, "output_tokens": 7}});
    let candidate = json!({"content": {"parts": [{"text": "Teal."}]}, "finishReason": "STOP"});
    let counts = json!({"promptTokenCount": 11, "candidatesTokenCount": 7});
    let answers = [
        (Protocol::Chat, piece("Teal.") + &last()),
        (
            Protocol::Anthropic,
            [
                json!({"type": "message_start", "message": {"usage": {"input_tokens": 11}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": text}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
                json!({"type": "message_stop"}),
            ]
            .map(event)
            .concat(),
        ),
        (Protocol::Responses, event(json!({"type": "response.completed", "response": ended}))),
        (Protocol::Gemini, event(json!({"candidates": [candidate], "usageMetadata": counts}))),
    ];
    for (protocol, answer) in answers {
        for after in ["", "<html>", "data: nonsense\n\n", "nonsense\n"] {
            let (sender, peer) = open_peer().await;
            sender.send(format!("{answer}{after}")).unwrap();
            let asked = request("Which colour?");
            let client = peer.client_with(protocol);
            let reply = timeout(Duration::from_secs(20), client.chat(&asked)).await;
            let reply = reply.expect("the idle time has not passed").unwrap();
            let told = (reply.text.as_str(), reply.usage.total_tokens());
            assert_eq!(told, ("Teal.", 18), "{protocol:?} {after:?}");
            assert_eq!(peer.seen().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_refused_stream_is_asked_for_at_once_from_then_on() {
    for (message, refused) in [
        ("Streaming is not supported by this deployment", "stream"),
        ("Unknown parameter: 'stream_options'", "stream_options"),
    ] {
        let refusals = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refusals);
        let peer = Peer::start(move |seen| {
            if seen.body.get(refused).is_some_and(|it| *it != false) {
                counted.fetch_add(1, Ordering::SeqCst);
                let body = json!({"error": {"message": message}});
                return (StatusCode::BAD_REQUEST, body.to_string()).into_response();
            }
            completion("Teal.")
        })
        .await;
        for _ in 0..2 {
            // Another client of the same model in the same process.
            let reply = peer.client().chat(&request("Which colour?")).await.unwrap();
            assert_eq!(reply.text, "Teal.", "{message}");
        }
        assert_eq!((peer.seen().len(), refusals.load(Ordering::SeqCst)), (3, 1), "{message}");
    }
}

#[tokio::test]
async fn a_provider_whose_table_has_no_stream_is_asked_without() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let table: toml_edit::DocumentMut = "unsupported = ['stream']".parse().unwrap();
    let mut problems = Vec::new();
    let settings = ProviderSettings::read(table.as_table(), &mut problems);
    let mut providers = Providers::default();
    providers.add("lab", settings);
    assert!(problems.is_empty(), "{problems:?}");
    let profile = providers.get("lab").unwrap().profile.clone();
    client(&peer.base_url, profile).chat(&request("Which colour?")).await.unwrap();
    let body = &peer.seen()[0].body;
    assert_eq!((&body["stream"], body.get("stream_options")), (&json!(false), None));
}

#[tokio::test]
async fn a_connection_that_breaks_off_ends_its_stream() {
    let peer = Peer::start(|_| {
        let parts = stream::iter([true, false]).then(async |is_piece| {
            if is_piece {
                return Ok(piece("Te"));
            }
            // Until then, the piece is on its way.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(std::io::Error::other("cable"))
        });
        Body::from_stream(parts).into_response()
    })
    .await;
    let error = peer.client().chat(&request("Which colour?")).await.unwrap_err();
    let ModelError::StreamTruncated { text, usage } = &error else { panic!("{error:?}") };
    assert!(text == "Te" && usage.estimated && usage.calls == 1, "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
}
