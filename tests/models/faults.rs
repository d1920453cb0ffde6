//! Networks and servers that break off, hang, or send too much: what no well-formed reply can show.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, http::StatusCode, response::IntoResponse};
use graphrun::models::{
    ChatModel, ChatRequest, ClientConfig, ConfigError, ExchangeLimits, Message, ModelError,
    ModelErrorKind, Phase, Profile, Protocol, ProviderClient, RequestSettings, Secret,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::{
    models::peer::{
        KEY, Peer, SHORT_TOTAL, client_of, client_with_limits, completion, hurried_client, request,
    },
    support::new_loopback,
};

/// What a broken server does after it has read a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Closes without a word.
    Closes,
    /// Says nothing and stays.
    Hangs,
    /// Promises more than it sends.
    BreaksOff,
    /// Sends the headers and the beginning, and nothing more.
    Stalls,
    /// Sends a byte every now and then, for ever.
    Drips,
    /// Is no HTTP server.
    SpeaksGarbage,
}

/// Serves the fault on a raw socket, and counts the requests.
async fn broken_server(fault: Fault) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(new_loopback()).await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            read_request(&mut socket).await;
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(misbehave(fault, socket));
        }
    });
    (format!("http://{address}/v1"), count)
}

async fn read_request(socket: &mut TcpStream) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(length) => request.extend_from_slice(&piece[..length]),
        }
    }
}

/// Returns whether a request has arrived with its body.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|it| it.strip_prefix("content-length: "));
    length.is_some_and(|it| it.parse() == Ok(body.len()))
}

async fn misbehave(fault: Fault, mut socket: TcpStream) {
    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{\"ch";
    let _ = match fault {
        Fault::Closes => Ok(()),
        Fault::Hangs => std::future::pending().await,
        Fault::BreaksOff => socket.write_all(HEAD).await,
        Fault::Stalls => {
            let sent = socket.write_all(HEAD).await;
            std::future::pending::<()>().await;
            sent
        }
        Fault::Drips => {
            let mut sent = socket.write_all(HEAD).await;
            let mut tick = tokio::time::interval(std::time::Duration::from_millis(50));
            while sent.is_ok() {
                tick.tick().await;
                sent = socket.write_all(b" ").await;
            }
            sent
        }
        Fault::SpeaksGarbage => socket.write_all(b"220 mail.example ESMTP\r\n").await,
    };
}

#[tokio::test]
async fn a_broken_server_is_given_up_in_time_and_asked_once() {
    let timeout = |phase| (ModelErrorKind::Timeout, Some(phase));
    let cases = [
        (Fault::Closes, (ModelErrorKind::Provider, None)),
        (Fault::Hangs, timeout(Phase::Response)),
        (Fault::BreaksOff, (ModelErrorKind::Provider, None)),
        (Fault::Stalls, timeout(Phase::Body)),
        (Fault::Drips, timeout(Phase::Body)),
        (Fault::SpeaksGarbage, (ModelErrorKind::Provider, None)),
    ];
    for (fault, (kind, phase)) in cases {
        let (base_url, count) = broken_server(fault).await;
        let client = hurried_client(&base_url, Protocol::Chat);
        let error = client.chat(&request("Which colour?")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        if let ModelError::Timeout { phase: seen, .. } = error.reason() {
            assert_eq!(Some(*seen), phase, "{fault:?}");
        }
        assert!(error.is_retryable(), "{fault:?}: {error}");
        assert!(!format!("{error} {error:?}").contains(KEY), "{fault:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{fault:?}: exactly one request");
    }
}

#[tokio::test]
async fn an_address_without_a_server_is_named() {
    let free = TcpListener::bind(new_loopback()).await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let client = client_of(&format!("http://user:{KEY}@{address}/v1"));
    let error = client.chat(&request("Which colour?")).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&format!("cannot connect to http://{address}")), "{message}");
    assert!(
        error.is_retryable() && !format!("{message} {error:?} {client:?}").contains(KEY),
        "{error:?}"
    );
}

/// The log of all crates at all levels.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_the_key_nor_a_conversation_nor_a_body_is_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let logging = crate::support::subscriber::subscribe(subscriber);
    tracing::info!("the log works");
    for status in [200, 400, 401, 429, 500] {
        let peer = Peer::start(move |seen| {
            let echo = format!("{:?} a body that says {}", seen.headers, seen.body);
            (StatusCode::from_u16(status).expect("a status"), echo).into_response()
        })
        .await;
        let error = peer.client().chat(&request("Which colour?")).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
    drop(logging);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("the log works"), "nothing was captured");
    for hidden in [KEY, "Which colour?", "a body that says"] {
        assert!(!log.contains(hidden), "{hidden:?} is in the log:\n{log}");
    }
}

#[tokio::test]
async fn a_reply_of_50_megabytes_is_not_read_to_its_end() {
    let peer = Peer::start(|_| Body::from(vec![b' '; 50 * 1024 * 1024]).into_response()).await;
    let error = peer.client().chat(&request("Which colour?")).await.unwrap_err();
    assert_eq!(*error.reason(), ModelError::ReplyTooLarge { bytes_max: 16 * 1024 * 1024 });
    assert_eq!(peer.seen().len(), 1);
}

#[tokio::test]
async fn a_broken_character_does_not_cost_the_whole_answer() {
    let peer = Peer::start(|_| {
        let mut body = br#"{"choices":[{"message":{"content":"Te?al."}}]}"#.to_vec();
        let at = body.iter().position(|&byte| byte == b'?').expect("it is there");
        body[at] = 0xff;
        Body::from(body).into_response()
    })
    .await;
    let reply = peer.client().chat(&request("Which colour?")).await.unwrap();
    assert_eq!(reply.text, "Te\u{fffd}al.");
}

#[tokio::test]
async fn a_half_character_and_what_follows_a_reply_cost_no_answer() {
    let reply = |text: &str, after: &str| {
        format!(
            r#"{{"choices": [{{"message": {{"content": "{text}"}}, "finish_reason": "stop"}}]}}{after}"#
        )
    };
    for (body, expected) in [
        (reply(r"Te\ud83dal\ude00.", ""), "Te\u{fffd}al\u{fffd}."),
        (reply(r"\\ud83d \ud83d\ude00 \uD83D", ""), "\\ud83d 😀 \u{fffd}"),
        (reply("Teal.", "<!-- 3 ms -->"), "Teal."),
    ] {
        let peer = Peer::start(move |_| body.clone().into_response()).await;
        assert_eq!(peer.client().chat(&request("Hi")).await.unwrap().text, expected);
    }
    let delta =
        |text: &str| format!(r#"data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}"#);
    let first = delta(r"\ud83d");
    let second = delta(r"\ude00");
    let end = r#"data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}"#;
    let body = format!("{first}\n\n{second}\n\n{end}\n\ndata: [DONE]\n\n");
    let peer = Peer::start(move |_| body.clone().into_response()).await;
    assert_eq!(peer.client().chat(&request("Hi")).await.unwrap().text, "\u{fffd}\u{fffd}");
    // The words of a server that says nothing else.
    let peer = Peer::start(|_| "error: upstream busy".into_response()).await;
    let error = peer.client().chat(&request("Hi")).await.unwrap_err();
    assert!(error.to_string().contains("upstream busy"), "{error}");
}

#[tokio::test]
async fn a_maximum_that_changes_each_time_is_learnt_once() {
    let peer = Peer::start(|seen| {
        let tokens = seen.body["max_tokens"].as_u64().unwrap();
        let message = format!("max_tokens: {tokens} > {}, which is the maximum", tokens - 1);
        let body = json!({"error": {"message": message}});
        (StatusCode::BAD_REQUEST, body.to_string()).into_response()
    })
    .await;
    for protocol in [Protocol::Anthropic, Protocol::Chat] {
        let settings = RequestSettings { max_tokens: Some(3000), ..RequestSettings::default() };
        let model = Some(format!("{protocol:?}"));
        let asked = ChatRequest { settings, model, ..request("Which colour?") };
        peer.client_with(protocol).chat(&asked).await.unwrap_err();
    }
    let sent: Vec<_> = peer.seen().iter().map(|it| it.body["max_tokens"].clone()).collect();
    assert_eq!(sent, [3000, 2999, 3000, 2999]);
}

#[tokio::test]
async fn a_redirect_takes_the_conversation_nowhere() {
    let elsewhere = Peer::start(|_| completion("Stolen.")).await;
    let location = elsewhere.base_url.clone();
    let peer = Peer::start(move |_| {
        (StatusCode::TEMPORARY_REDIRECT, [("location", location.clone())]).into_response()
    })
    .await;
    let error = peer.client().chat(&request("Which colour?")).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::BadRequest, "{error}");
    assert_eq!((peer.seen().len(), elsewhere.seen().len()), (1, 0));
    let target = elsewhere.base_url.trim_end_matches("/v1");
    let places = format!("({}/chat/completions to {target})", peer.base_url);
    assert!(error.to_string().ends_with(&places), "{error}");
}

#[tokio::test]
async fn a_wrong_address_or_protocol_is_named() {
    let peer = Peer::start(|seen| match &*seen.path {
        "/v1/messages" => (StatusCode::METHOD_NOT_ALLOWED, "no").into_response(),
        "/v1/responses" => completion("Teal."),
        _ => (StatusCode::NOT_FOUND, "404 page not found").into_response(),
    })
    .await;
    let with_password = peer.base_url.replace("http://", &format!("http://user:{KEY}@"));
    let gone = client_of(&format!("{with_password}?key={KEY}")).chat(&request("Hi")).await;
    let expected = format!("404 page not found ({}/chat/completions)", peer.base_url);
    let gone = gone.unwrap_err();
    assert!(matches!(gone, ModelError::NotFound { .. }), "{gone}");
    assert!(gone.to_string().ends_with(&expected), "{gone}");
    let refused = peer.client_with(Protocol::Anthropic).chat(&request("Hi")).await.unwrap_err();
    assert!(
        refused.to_string().ends_with(&format!("no ({}/messages)", peer.base_url)),
        "{refused}"
    );
    let other = peer.client_with(Protocol::Responses).chat(&request("Hi")).await.unwrap_err();
    let expected = "not one of the protocol `responses` (it has [\"model\", \"choices\", \"usage\"]); \
                    check `base_url` and `protocol` of the provider";
    assert!(other.to_string().ends_with(expected), "{other}");
}

#[tokio::test]
async fn a_request_has_both_keys_and_not_the_node() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let request = ChatRequest {
        messages: vec![Message::system("Be brief."), Message::user("Which colour?")],
        settings: RequestSettings {
            max_tokens: Some(50),
            temperature: Some(0.25),
            top_p: Some(0.5),
            seed: Some(7),
            stop: vec!["END".into()],
            effort: Some("low".into()),
            // Without tools it is not sent.
            parallel_tools: Some(false),
            cache_prompt: true,
            headers: [("x-team".to_owned(), "a".to_owned())].into(),
            extra_body: json!({"top_k": 5, "messages": []}).as_object().cloned().unwrap(),
        },
        ..request("")
    };
    let reply = peer.client().chat(&request).await.unwrap();
    assert_eq!(reply.text, "Teal.");

    let seen = &peer.seen()[0];
    assert_eq!(seen.path, "/v1/chat/completions");
    assert_eq!(seen.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(seen.headers["idempotency-key"], "run-1/3/painter");
    assert_eq!(seen.headers["x-team"], "a");
    assert_eq!(
        seen.body,
        json!({
            "model": "small",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Which colour?"}
            ],
            "temperature": 0.25,
            "top_p": 0.5,
            "seed": 7,
            "stop": ["END"],
            "reasoning_effort": "low",
            "max_tokens": 50,
            "top_k": 5,
            "stream": true,
            "stream_options": {"include_usage": true}
        })
    );
}

#[tokio::test]
async fn a_base_url_may_have_a_query() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let azure = peer.base_url.replace("/v1", "/openai/deployments/small");
    for base_url in [
        format!("{azure}?api-version=2024-10-21"),
        format!("{azure}/chat/completions?api-version=2024-10-21"),
    ] {
        client_of(&base_url).chat(&request("Which colour?")).await.unwrap();
    }
    client_of(&format!("{}/?team=a&x=%20#here", peer.base_url)).chat(&request("Hi")).await.unwrap();
    let seen = peer.seen();
    for seen in &seen[..2] {
        assert_eq!(seen.path, "/openai/deployments/small/chat/completions");
        assert_eq!(seen.query.as_deref(), Some("api-version=2024-10-21"));
        assert_eq!(seen.headers["api-key"], KEY, "Azure reads the key there");
        assert!(!seen.headers.contains_key("authorization"));
    }
    assert_eq!(
        (seen[2].path.as_str(), seen[2].query.as_deref()),
        ("/v1/chat/completions", Some("team=a&x=%20"))
    );
    assert_eq!(seen[2].headers["authorization"], format!("Bearer {KEY}"));
}

#[tokio::test]
async fn the_timeout_of_a_request_replaces_the_limit_of_the_client() {
    let (base_url, _) = broken_server(Fault::Hangs).await;
    let short = Duration::from_millis(200);
    let hurried = ChatRequest { timeout: Some(short), ..request("Which colour?") };
    let error = client_of(&base_url).chat(&hurried).await.unwrap_err();
    assert_eq!(error, ModelError::Timeout { phase: Phase::Response, after: short });

    let peer = Peer::slow(|| async {
        tokio::time::sleep(SHORT_TOTAL + Duration::from_millis(300)).await;
        completion("Teal.")
    })
    .await;
    let limits = ExchangeLimits { total: SHORT_TOTAL, ..ExchangeLimits::default() };
    let client = client_with_limits(&peer.base_url, Profile::default(), Some(limits));
    let patient =
        ChatRequest { timeout: Some(Duration::from_secs(600)), ..request("Which colour?") };
    assert_eq!(client.chat(&patient).await.unwrap().text, "Teal.");
}

#[tokio::test]
async fn without_a_key_no_authorization_is_sent() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let client = ProviderClient::new(ClientConfig::new(&peer.base_url, "small")).unwrap();
    client.chat(&ChatRequest { model: Some("other".into()), ..request("Hi") }).await.unwrap();
    let seen = &peer.seen()[0];
    assert!(!seen.headers.contains_key("authorization"));
    assert_eq!(seen.body["model"], "other", "the request's model comes before the client's");
    assert_eq!(client.name(), "openai-compatible/small");
}

#[test]
fn an_impossible_configuration_is_refused_before_its_use() {
    let refused = |base_url: &str, key: &str| {
        let config =
            ClientConfig { api_key: Secret::new(key), ..ClientConfig::new(base_url, "small") };
        ProviderClient::new(config).unwrap_err()
    };
    assert!(matches!(refused("http://x/v1", "two\nlines-of-a-secret"), ConfigError::Key));
    for url in ["", "localhost:11434", "ftp://x/v1", "not a url"] {
        let error = refused(url, "");
        assert!(
            matches!(&error, ConfigError::BaseUrl { url: named } if named == url),
            "{url}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_accepted_is_given_up() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(new_loopback()).unwrap();
    // The listener accepts no connection, and a full queue takes no others.
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    // Until the queue is full.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = tokio::time::Instant::now();
    let client = client_of(&format!("http://{address}/v1"));
    let error = client.chat(&request("Which colour?")).await.unwrap_err();
    let after = ExchangeLimits::default().connect;
    assert_eq!(*error.reason(), ModelError::Timeout { phase: Phase::Connect, after });
    assert!(error.is_retryable() && began.elapsed() < after * 2, "{:?}", began.elapsed());
    drop(waiting);
}
