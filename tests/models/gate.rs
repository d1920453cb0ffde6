//! Many tasks at one provider: how many requests it gets while it fails, and how many at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{http::StatusCode, response::IntoResponse};
use futures_util::future::join_all;
use graphrun::models::{ChatModel, ChatReply, ChatRequest, ModelError, ProviderClient};
use tokio::time::{Instant, sleep};

use super::peer::{self, Peer, client_of, completion};

/// Returns a request to a model that only these tests ask. A gate is known by its address and model, and another test may
/// get the port of a server whose gate is closed.
fn request(question: &str) -> ChatRequest {
    ChatRequest { model: Some("gated".to_owned()), ..peer::request(question) }
}

/// Asks until there is an answer, as the engine does: at most six times, after the named waits.
async fn ask(client: &ProviderClient, requests: usize) -> Result<ChatReply, ModelError> {
    let mut attempt = 1;
    loop {
        let again = ChatRequest { is_repeat: attempt > 1, ..request("Which colour?") };
        match client.chat(&again).await {
            Err(error) if error.is_retryable() && attempt < requests => {
                let after = error.retry_after().unwrap_or_default();
                sleep(after + Duration::from_millis(50 * attempt as u64)).await;
            }
            done => return done,
        }
        attempt += 1;
    }
}

#[tokio::test]
async fn a_dead_provider_gets_few_requests_of_many_tasks() {
    let peer = Peer::start(|_| (StatusCode::BAD_GATEWAY, "no").into_response()).await;
    let client = peer.client();
    let tasks = (0..12).map(|_| ask(&client, 4));
    let ended = join_all(tasks).await;
    let is_transient = |it: &ModelError| matches!(it.reason(), ModelError::Transient { .. });
    assert!(ended.iter().all(|it| it.as_ref().is_err_and(is_transient)));
    // Those that were under way when the breaker opened, and a probe for each of its times.
    let requests = peer.seen().len();
    assert!((5..=16).contains(&requests), "{requests} requests");
    // The next run of this process does not ask at all, but its error names the cause.
    let refused = client_of(&peer.base_url).chat(&request("Which colour?")).await.unwrap_err();
    assert_eq!(peer.seen().len(), requests);
    assert!(refused.to_string().contains("no") && refused.retry_after().is_some(), "{refused}");
}

#[tokio::test]
async fn a_probe_closes_the_breaker_for_all_tasks() {
    let is_up = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&is_up);
    let peer = Peer::start(move |_| {
        if state.load(Ordering::SeqCst) {
            completion("Teal.")
        } else {
            (StatusCode::BAD_GATEWAY, "no").into_response()
        }
    })
    .await;
    let client = peer.client();
    let begun = Instant::now();
    let recovers = async {
        sleep(Duration::from_millis(500)).await;
        is_up.store(true, Ordering::SeqCst);
    };
    let (ended, ()) = tokio::join!(join_all((0..12).map(|_| ask(&client, 6))), recovers);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert!(peer.seen().len() <= 12 + 12, "{} requests", peer.seen().len());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_rejected_request_does_not_open_the_breaker() {
    let peer = Peer::start(|_| (StatusCode::BAD_REQUEST, "no").into_response()).await;
    for _ in 0..12 {
        let error = client_of(&peer.base_url).chat(&request("Which colour?")).await.unwrap_err();
        assert!(matches!(error, ModelError::BadRequest { .. }), "{error}");
    }
    assert_eq!(peer.seen().len(), 12);
}

#[tokio::test]
async fn a_limited_provider_is_asked_less_and_less_at_once() {
    // It refuses every request beyond two in 100 ms.
    let arrived: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let all = Arc::clone(&arrived);
    let peer = Peer::start(move |_| {
        let mut all = all.lock().unwrap();
        let now = Instant::now();
        all.push(now);
        let recent = all.iter().filter(|it| now - **it < Duration::from_millis(100)).count();
        if recent > 2 {
            let wait = [("retry-after-ms", "150")];
            return (StatusCode::TOO_MANY_REQUESTS, wait, "slow down").into_response();
        }
        completion("Teal.")
    })
    .await;
    let client = peer.client();
    let ended = join_all((0..12).map(|_| ask(&client, 40))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let arrived = arrived.lock().unwrap();
    let waves = |from: usize| {
        let after = &arrived[from..];
        let count = |start: &Instant| {
            after
                .iter()
                .filter(|at| **at >= *start && **at - *start < Duration::from_millis(50))
                .count()
        };
        after.iter().map(count).max().unwrap_or_default()
    };
    assert!(waves(0) <= 8, "{} at once at the beginning", waves(0));
    assert!(waves(arrived.len() / 2) <= 4, "{} at once later", waves(arrived.len() / 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_provider_is_asked_by_more_and_more_tasks() {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&running);
    let max = Arc::clone(&most);
    let peer = Peer::slow(move || {
        let now = Arc::clone(&now);
        let max = Arc::clone(&max);
        async move {
            max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(50)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            completion("Teal.")
        }
    })
    .await;
    let client = peer.client();
    let ended = join_all((0..100).map(|_| ask(&client, 1))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert!(most.load(Ordering::SeqCst) > 16, "only {most:?} at once");
}

#[tokio::test]
async fn a_cancelled_request_frees_its_slot() {
    let peer = Peer::slow(|| async {
        sleep(Duration::from_secs(5)).await;
        completion("Teal.")
    })
    .await;
    let client = client_of(&peer.base_url);
    for _ in 0..20 {
        let asked = request("Which colour?");
        let cancelled = tokio::time::timeout(Duration::from_millis(20), client.chat(&asked)).await;
        assert!(cancelled.is_err());
    }
    assert!(peer.seen().len() > 8, "{} requests", peer.seen().len());
}

#[tokio::test]
async fn stated_rates_are_kept() {
    // The allowance grows by ten requests a second, and the first reply has used it up.
    let arrived: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let all = Arc::clone(&arrived);
    let peer = Peer::start(move |_| {
        let mut all = all.lock().unwrap();
        all.push(Instant::now());
        let mut reply = completion("Teal.");
        if all.len() == 1 {
            for (name, value) in [("limit", "10"), ("remaining", "0"), ("reset", "1s")] {
                let name = format!("x-ratelimit-{name}-requests");
                let name = axum::http::HeaderName::try_from(name).unwrap();
                reply.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        reply
    })
    .await;
    let client = peer.client();
    client.chat(&request("Which colour?")).await.unwrap();
    let asked = request("Which colour?");
    let ended = join_all((0..4).map(|_| client.chat(&asked))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let arrived = arrived.lock().unwrap().clone();
    for (at, arrival) in arrived.iter().enumerate() {
        let earliest = Duration::from_millis(u64::try_from(at).unwrap() * 100);
        assert!(*arrival - arrived[0] + Duration::from_millis(20) >= earliest, "{arrived:?}");
    }
}

#[tokio::test]
async fn a_request_beyond_a_stated_rate_is_not_sent() {
    let peer = Peer::start(|_| {
        let headers = [
            ("x-ratelimit-limit-tokens", "100"),
            ("x-ratelimit-remaining-tokens", "1"),
            ("x-ratelimit-reset-tokens", "1h"),
        ];
        (headers, completion("Teal.")).into_response()
    })
    .await;
    let client = peer.client();
    client.chat(&request("Which colour?")).await.unwrap();
    let error = client.chat(&request(&"Which colour? ".repeat(20))).await.unwrap_err();
    let ModelError::RateLimited { after: Some(after), .. } = error.reason() else {
        panic!("{error:?}")
    };
    let expected = Duration::from_secs(40)..=Duration::from_secs(60);
    assert!(error.is_unsent() && expected.contains(after) && peer.seen().len() == 1, "{error}");
}

#[tokio::test]
async fn a_reset_that_is_none_silences_nobody() {
    for reset in ["30d", "1796000000000", "2999-01-01T00:00:00Z"] {
        let peer = Peer::start(move |_| {
            let headers = [
                ("x-ratelimit-limit-requests", "100"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", reset),
            ];
            (headers, completion("Teal.")).into_response()
        })
        .await;
        let client = peer.client();
        for _ in 0..3 {
            client.chat(&request("Which colour?")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_hanging_probe_refuses_the_others_at_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let peer = Peer::slow(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number >= 5 {
                std::future::pending::<()>().await;
            }
            (StatusCode::INTERNAL_SERVER_ERROR, "no").into_response()
        }
    })
    .await;
    let client = peer.client();
    for _ in 0..5 {
        client.chat(&request("Which colour?")).await.unwrap_err();
    }
    sleep(Duration::from_millis(2100)).await;
    let asked = request("Which colour?");
    let probe = client.chat(&asked);
    tokio::pin!(probe);
    let others = join_all((0..3).map(|_| client.chat(&asked)));
    let others = tokio::select! {
        biased;
        ended = &mut probe => panic!("{ended:?}"),
        ended = others => ended,
    };
    for error in others.into_iter().map(Result::unwrap_err) {
        assert!(error.is_unsent() && error.to_string().contains("no"), "{error}");
        assert!(error.retry_after().is_some_and(|it| it <= Duration::from_secs(5)), "{error:?}");
    }
}

/// Sends many requests at once, and returns how many reached the server.
async fn count_sent(peer: &Peer, client: &ProviderClient, count: usize, is_repeat: bool) -> usize {
    let before = peer.seen().len();
    let asked = ChatRequest { is_repeat, ..request("Which colour?") };
    join_all((0..count).map(|_| client.chat(&asked))).await;
    peer.seen().len() - before
}

#[tokio::test(start_paused = true)]
async fn repeated_requests_are_a_fifth_of_the_others() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let client = peer.client();
    // Ten at once, and two within the longest wait for a turn.
    assert_eq!(count_sent(&peer, &client, 30, true).await, 12);
    // Four seconds have passed, so the two are paid for.
    assert_eq!(count_sent(&peer, &client, 25, false).await, 25);
    assert_eq!(count_sent(&peer, &client, 30, true).await, 5 + 2);
}

#[tokio::test(start_paused = true)]
async fn many_failures_in_half_a_minute_open_the_breaker() {
    let count = AtomicUsize::new(0);
    // Every second request fails, so never two in a row.
    let peer = Peer::start(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
            (StatusCode::BAD_GATEWAY, "no").into_response()
        } else {
            completion("Teal.")
        }
    })
    .await;
    let client = peer.client();
    let asked = request("Which colour?");
    let is_unsent = async |count: usize| {
        let mut last = false;
        for _ in 0..count {
            last = client.chat(&asked).await.is_err_and(|it| it.is_unsent());
        }
        last
    };
    assert!(!is_unsent(9).await, "nine are too few");
    sleep(Duration::from_secs(31)).await;
    assert!(!is_unsent(9).await, "the older ones are forgotten");
    assert_eq!(peer.seen().len(), 18);
    // The tenth succeeds or fails: after ten with five failures no other is sent.
    assert!(is_unsent(3).await);
    assert!(peer.seen().len() <= 20, "{} requests", peer.seen().len());
}

#[tokio::test(start_paused = true)]
async fn few_failures_among_many_requests_change_nothing() {
    let count = AtomicUsize::new(0);
    let peer = Peer::start(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) % 3 == 2 {
            (StatusCode::BAD_GATEWAY, "no").into_response()
        } else {
            completion("Teal.")
        }
    })
    .await;
    assert_eq!(count_sent(&peer, &peer.client(), 60, false).await, 60);
}
