//! Waits between attempts end at their due time, independent of the process that waits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphrun::{
    checkpoint::{Outcome, RunHistory as _},
    engine::{Clock, Engine, ShutdownHandle},
    event::{EventSink, Report, Status, Usage},
    graph::{
        Backoff, ErrorKind, Failure, GraphBuilder, IntoNode, Limits, NodeContext, START, node_fn,
    },
    models::TokenUsage,
    state::Update,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout};

use super::{Nothing, Saved, compiled, name, noted, notes, notes_its_way};

/// The attempts that a node began, each with the time since the test began.
#[derive(Clone, Debug)]
struct Attempts {
    begun: Instant,
    seen: Arc<Mutex<Vec<(u32, u64)>>>,
}

impl Attempts {
    fn new() -> Self {
        Self { begun: Instant::now(), seen: Arc::default() }
    }

    fn note(&self, ctx: &NodeContext) {
        self.seen.lock().unwrap().push((ctx.attempt, self.begun.elapsed().as_secs()));
    }

    fn seen(&self) -> Vec<(u32, u64)> {
        self.seen.lock().unwrap().clone()
    }

    /// A clock that follows the paused clock of the runtime.
    fn clock(&self) -> Clock {
        let begun = self.begun;
        Clock::new(move || {
            let passed = SignedDuration::try_from(begun.elapsed()).unwrap();
            Timestamp::UNIX_EPOCH + passed
        })
    }

    /// A graph of one node, whose provider requests a wait of one minute until an attempt succeeds.
    fn graph(&self, succeeds: u32, limits: Limits) -> GraphBuilder {
        let attempts = self.clone();
        let calls = node_fn(move |_: Nothing, ctx: NodeContext| {
            let attempts = attempts.clone();
            async move {
                attempts.note(&ctx);
                let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
                let usage = Usage { tokens, cost_usd: None };
                ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                if ctx.attempt >= succeeds {
                    return noted(format!("attempt {}", ctx.attempt));
                }
                let patience = Failure::new(ErrorKind::RateLimit, "429");
                Err(Failure { transient: true, retry_after_ms: Some(60_000), ..patience }.into())
            }
        });
        // No jitter above the wait of the provider.
        let initial = Duration::ZERO;
        let retry = Backoff { attempts_max: Some(5), initial, ..Backoff::default() };
        GraphBuilder::new::<super::Team>("patience")
            .node("calls", calls.backoff(retry))
            .edge(START, "calls")
            .limits(limits)
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_waits_only_for_the_remaining_time() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(4, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    // The process dies 20 s into the first wait, and 70 s into the remaining wait.
    assert!(timeout(Duration::from_secs(20), saved.start(&engine)).await.is_err());
    assert!(timeout(Duration::from_secs(70), saved.resume(&engine)).await.is_err());
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["attempt 4".to_owned()]));
    assert_eq!(attempts.seen(), [(1, 0), (2, 60), (3, 120), (4, 180)]);
    assert_eq!(end.position.used.usage.tokens.calls, 4, "what failed attempts took is kept, too");
}

#[tokio::test(start_paused = true)]
async fn an_expired_wait_ends_at_once_on_resume() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(2, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    assert!(timeout(Duration::from_secs(20), saved.start(&engine)).await.is_err());
    tokio::time::advance(Duration::from_secs(3_600)).await;
    saved.resume(&engine).await.unwrap();
    assert_eq!(attempts.seen(), [(1, 0), (2, 3_620)]);
}

#[tokio::test(start_paused = true)]
async fn setting_the_clock_back_makes_no_wait_longer() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(2, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    assert!(timeout(Duration::from_secs(20), saved.start(&engine)).await.is_err());
    let a_year_ago = Timestamp::UNIX_EPOCH - SignedDuration::from_hours(24 * 365);
    let engine = engine.with_clock(Clock::new(move || a_year_ago));
    saved.resume(&engine).await.unwrap();
    assert_eq!(attempts.seen(), [(1, 0), (2, 80)]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_wait_and_resume_continues_it() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(2, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    let stop = ShutdownHandle::default();
    let stopped = stop.clone();
    let input = Update::default();
    let events = EventSink::default();
    let run =
        engine.run(input).with_info(saved.info.clone()).with_events(events).with_shutdown(&stop);
    let stops = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stopped.drain();
    };
    let (end, ()) = tokio::join!(run, stops);
    assert_eq!(end.unwrap().status, Status::Interrupted);
    assert_eq!(attempts.begun.elapsed().as_secs(), 10, "a wait needs no grace");
    saved.resume(&engine).await.unwrap();
    assert_eq!(attempts.seen(), [(1, 0), (2, 60)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_saved_with_cause_and_wake_time() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(9, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    assert!(timeout(Duration::from_secs(90), saved.start(&engine)).await.is_err());
    let records = saved.storage.records(saved.run()).await.unwrap();
    let waits = records.iter().map(|record| match &record.outcome {
        Outcome::Retrying { failure, wait_ms, wake } => {
            let until = wake.duration_since(Timestamp::UNIX_EPOCH).as_secs();
            (record.attempt, failure.message.as_str(), *wait_ms, until, record.usage.tokens.calls)
        }
        other => panic!("{other:?}"),
    });
    let expected = [(1, "429", 60_000, 60, 1), (2, "429", 60_000, 120, 2)];
    assert_eq!(waits.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_before_a_crash_count_towards_limits() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let limits = Limits { tokens: Some(300), ..Limits::default() };
    let graph = attempts.graph(3, limits).node("after", notes_its_way()).edge("calls", "after");
    let graph = compiled(graph);
    let engine = |graph| -> Engine { saved.engine(graph).with_clock(attempts.clock()) };
    assert!(timeout(Duration::from_secs(20), saved.start(&engine(&graph))).await.is_err());
    let end = saved.resume(&engine(&graph)).await.unwrap();
    let reason = "the limit of 300 tokens is reached: 300 are used";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Limit, Some(reason)));
}

#[tokio::test(start_paused = true)]
async fn a_retried_run_has_all_of_its_attempts_again() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(attempts.graph(9, Limits::default()));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    assert_eq!(saved.start(&engine).await.status, Status::Failed);
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!(
        (end.status, end.position.frontier[0].node.clone()),
        (Status::Failed, name("calls"))
    );
    let numbers: Vec<u32> = attempts.seen().into_iter().map(|it| it.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
}

/// A graph of one node that waits for an hour, until a time in the past, and for a minute.
fn waiting(attempts: &Attempts) -> GraphBuilder {
    let attempts = attempts.clone();
    let waits = node_fn(move |_: Nothing, ctx: NodeContext| {
        let attempts = attempts.clone();
        async move {
            attempts.note(&ctx);
            ctx.wait_for("hour", Duration::from_secs(3_600))?;
            ctx.wait_until("past", Timestamp::UNIX_EPOCH)?;
            ctx.wait_for("minute", Duration::from_secs(60))?;
            noted(format!("attempt {}", ctx.attempt))
        }
    });
    GraphBuilder::new::<super::Team>("patience").node("waits", waits).edge(START, "waits")
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_for_a_time_continues_after_a_crash() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(waiting(&attempts));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    // The process dies twice in the first wait, and once in the last one.
    assert!(timeout(Duration::from_mins(20), saved.start(&engine)).await.is_err());
    assert!(timeout(Duration::from_mins(20), saved.resume(&engine)).await.is_err());
    assert!(timeout(Duration::from_secs(1_230), saved.resume(&engine)).await.is_err());
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["attempt 1".to_owned()]));
    assert_eq!(attempts.seen(), [(1, 0), (1, 3_600), (1, 3_660)]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_a_node_that_is_too_long_pauses_the_run() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let graph = compiled(waiting(&attempts));
    let engine = saved.engine(&graph).with_clock(attempts.clock());
    let engine = engine.with_wait_max(Duration::from_mins(2));
    let end = saved.start(&engine).await;
    let reason = "`waits` waits until 1970-01-01T01:00:00Z";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Paused, Some(reason)));
    // A resumed run whose time has not come pauses again.
    assert_eq!(saved.resume(&engine).await.unwrap().status, Status::Paused);
    tokio::time::advance(Duration::from_hours(2)).await;
    assert_eq!(saved.resume(&engine).await.unwrap().status, Status::Done);
    assert_eq!(attempts.seen(), [(1, 0), (1, 7_200), (1, 7_260)]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_ends_a_step_keeps_the_end_of_a_wait() {
    let attempts = Attempts::new();
    let saved = Saved::new();
    let spender = attempts.clone();
    let spends = node_fn(move |_: Nothing, ctx: NodeContext| {
        let spender = spender.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            spender.note(&ctx);
            noted("spent".to_owned())
        }
    });
    let limits = Limits { time: Some(Duration::from_secs(10)), ..Limits::default() };
    let graph = waiting(&attempts).node("spends", spends).edge(START, "spends").limits(limits);
    let limited = compiled(graph);
    let engine = saved.engine(&limited).with_clock(attempts.clock());
    assert_eq!(saved.start(&engine).await.status, Status::Limit);
    let longer = Limits { time: Some(Duration::from_secs(3_600)), ..Limits::default() };
    let end = saved.resume(&engine.with_limits(longer)).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    let of_wait: Vec<_> = attempts.seen().into_iter().filter(|it| it.1 != 40).collect();
    assert_eq!(of_wait, [(1, 0), (1, 3_600), (1, 3_660)]);
}
