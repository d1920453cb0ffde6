//! Outages of providers: the default policy, what `catch` takes, and waits that suspend the run.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphrun::{
    checkpoint::{Outcome, RunHistory as _, next_due},
    compile::CompiledGraph,
    engine::{Clock, Engine},
    event::Status,
    graph::{
        Attempts, Backoff, Catch, ErrorKind, Failure, GraphBuilder, IntoNode, NodeContext,
        NodeError, Policies, START, Target, node_fn,
    },
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{Nothing, Saved, caught_by, compiled, name, noted, notes, notes_its_way};

/// A provider that fails until a number of requests have failed.
#[derive(Clone, Debug)]
struct Provider {
    begun: Instant,
    failures: usize,
    failure: Failure,
    /// When each request arrived.
    requests: Arc<Mutex<Vec<Duration>>>,
}

impl Provider {
    fn failing(failures: usize, kind: ErrorKind, retry_after_ms: Option<u64>) -> Self {
        let failure =
            Failure { transient: true, retry_after_ms, ..Failure::new(kind, "no capacity") };
        Self { begun: Instant::now(), failures, failure, requests: Arc::default() }
    }

    fn down() -> Self {
        Self::failing(usize::MAX, ErrorKind::Provider, None)
    }

    /// A graph of one node that asks the provider, and the targets of its failures.
    fn graph(&self, policies: Policies) -> CompiledGraph {
        let provider = self.clone();
        let asks = node_fn(move |_: Nothing, _: NodeContext| {
            let provider = provider.clone();
            async move {
                let mut requests = provider.requests.lock().unwrap();
                requests.push(provider.begun.elapsed());
                if requests.len() > provider.failures {
                    return noted("answered");
                }
                Err(NodeError::from(provider.failure.clone()))
            }
        });
        compiled(
            GraphBuilder::new::<super::Team>("outage")
                .node("asks", asks.with_policies(policies))
                .node("flush", notes_its_way())
                .edge(START, "asks"),
        )
    }

    fn engine(&self, saved: &Saved, policies: Policies) -> Engine {
        let begun = self.begun;
        let clock = Clock::new(move || {
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(begun.elapsed()).unwrap()
        });
        saved.engine(&self.graph(policies)).with_clock(clock)
    }

    fn requests(&self) -> Vec<Duration> {
        self.requests.lock().unwrap().clone()
    }
}

fn retry(attempts_max: u32) -> Policies {
    let retry = Backoff { attempts_max: Some(attempts_max), ..Backoff::default() };
    Policies { attempts: Attempts { retry, ..Attempts::default() }, ..caught_by("flush") }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_retried_without_being_asked_to() {
    for kind in [ErrorKind::Provider, ErrorKind::RateLimit] {
        let provider = Provider::failing(5, kind, None);
        let saved = Saved::new();
        let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
        assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["answered".to_owned()]));
        assert_eq!(provider.requests().len(), 6, "{kind}");
        assert!(provider.begun.elapsed() <= Duration::from_millis(15_500), "{kind}");
    }
    // Another failure that may pass is retried only where the workflow says so.
    let provider = Provider::failing(5, ErrorKind::Tool, None);
    let saved = Saved::new();
    let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    assert_eq!((end.status, provider.requests().len()), (Status::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_sent_nothing_does_not_count() {
    let held_back = |failures, after| {
        let mut provider = Provider::failing(failures, ErrorKind::RateLimit, Some(after));
        provider.failure.is_unsent = true;
        provider
    };
    let provider = held_back(20, 2000);
    let saved = Saved::new();
    let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    assert_eq!((end.status, provider.requests().len()), (Status::Done, 21));
    // The time of the policy ends it all the same, and a policy without attempts has none.
    let provider = held_back(usize::MAX, 2000);
    let saved = Saved::new();
    let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    let last = *provider.requests().last().unwrap();
    assert_eq!(end.status, Status::Failed);
    assert!((Duration::from_secs(115)..Duration::from_secs(130)).contains(&last), "{last:?}");
    let provider = held_back(usize::MAX, 2000);
    let saved = Saved::new();
    saved.start(&provider.engine(&saved, retry(1))).await;
    assert_eq!(provider.requests().len(), 1);
    // A wait that does not count towards that time makes the attempt count.
    let provider = held_back(usize::MAX, 60_000);
    let saved = Saved::new();
    saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    assert_eq!(provider.requests().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_leaves_a_run_that_can_be_resumed() {
    let provider = Provider::failing(8, ErrorKind::Provider, None);
    let saved = Saved::new();
    let engine = provider.engine(&saved, caught_by("flush"));
    let end = saved.start(&engine).await;
    let reason = "`asks` failed: no capacity";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(reason)));
    assert_eq!(
        (end.position.frontier[0].node.clone(), provider.requests().len()),
        (name("asks"), 6)
    );
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["answered".to_owned()]));
    assert_eq!(provider.requests().len(), 9, "all attempts are there again");
}

#[tokio::test(start_paused = true)]
async fn a_named_kind_is_caught_when_the_policy_is_used_up() {
    for kind in [ErrorKind::Provider, ErrorKind::RateLimit] {
        let provider = Provider::failing(usize::MAX, kind, None);
        let saved = Saved::new();
        let catch = vec![Catch { kind: Some(kind), to: Target::Node(name("flush")) }];
        let end =
            saved.start(&provider.engine(&saved, Policies { catch, ..Policies::default() })).await;
        assert_eq!(
            (end.status, notes(&end.state)),
            (Status::Done, vec!["flush after: no capacity".to_owned()])
        );
        assert_eq!(provider.requests().len(), 6, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_of_a_provider_is_caught_by_any() {
    let mut provider = Provider::down();
    provider.failure.transient = false;
    let saved = Saved::new();
    let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    assert_eq!((end.status, provider.requests().len()), (Status::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn a_number_of_attempts_replaces_only_that_of_the_policy() {
    let provider = Provider::down();
    let saved = Saved::new();
    saved.start(&provider.engine(&saved, retry(2))).await;
    assert_eq!(provider.requests().len(), 2);

    // After two minutes no further attempt follows, however many there were.
    let (provider, saved) =
        (Provider::failing(99, ErrorKind::RateLimit, Some(29_000)), Saved::new());
    saved.start(&provider.engine(&saved, retry(20))).await;
    let last = *provider.requests().last().unwrap();
    assert!((Duration::from_secs(120)..Duration::from_secs(180)).contains(&last), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_at_least_what_the_provider_asks_for() {
    let provider = Provider::failing(3, ErrorKind::Provider, Some(20_000));
    let saved = Saved::new();
    saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    let requests = provider.requests();
    let mut jitter = Vec::new();
    for pair in requests.windows(2) {
        let waited = pair[1].saturating_sub(pair[0]);
        assert!((20_000..22_500).contains(&waited.as_millis()), "{waited:?}");
        jitter.push(waited.as_millis() - 20_000);
    }
    assert!(jitter.iter().any(|it| *it > 0), "the waits of many runs differ: {jitter:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_suspends_the_run() {
    let hour = Duration::from_secs(3600);
    let (provider, saved) =
        (Provider::failing(1, ErrorKind::RateLimit, Some(3_600_000)), Saved::new());
    let engine = provider.engine(&saved, caught_by("flush"));
    let impatient = engine.clone().with_wait_max(Duration::from_secs(120));
    let end = saved.start(&impatient).await;
    let reason = "`asks` waits until 1970-01-01T01:00:00Z: no capacity";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Paused, Some(reason)));
    assert_eq!(provider.begun.elapsed(), Duration::ZERO);
    let records = saved.storage.records(saved.run()).await.unwrap();
    assert!(matches!(records[..], [ref one] if matches!(one.outcome, Outcome::Retrying { .. })));
    let due = next_due(&records).unwrap().duration_since(Timestamp::UNIX_EPOCH);
    assert!((3600..3602).contains(&due.as_secs()), "{due:?}");

    // Too early: no request is made, and the run pauses again.
    tokio::time::advance(Duration::from_secs(1770)).await;
    let end = saved.resume(&impatient).await.unwrap();
    assert_eq!((end.status, provider.requests().len()), (Status::Paused, 1));
    // Nearly over: the process waits for the rest.
    tokio::time::advance(Duration::from_secs(1770)).await;
    let end = saved.resume(&impatient).await.unwrap();
    assert_eq!((end.status, provider.requests().len()), (Status::Done, 2));
    assert!(provider.requests()[1] >= hour);
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_in_its_process_unless_told_otherwise() {
    let provider = Provider::failing(1, ErrorKind::RateLimit, Some(3_600_000));
    let saved = Saved::new();
    let end = saved.start(&provider.engine(&saved, caught_by("flush"))).await;
    assert_eq!((end.status, provider.requests().len()), (Status::Done, 2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_does_not_hide_the_work_or_the_failure_beside_it() {
    let provider = Provider::failing(1, ErrorKind::RateLimit, Some(3_600_000));
    for is_broken in [false, true] {
        let asks = provider.clone();
        let asks = node_fn(move |_: Nothing, _: NodeContext| {
            let failure = asks.failure.clone();
            async move { Err::<super::Noted, _>(NodeError::from(failure)) }
        });
        let works = node_fn(move |_: Nothing, _: NodeContext| async move {
            tokio::time::sleep(Duration::from_secs(300)).await;
            if is_broken { Err(NodeError::permanent("broken")) } else { noted("worked") }
        });
        let graph = GraphBuilder::new::<super::Team>("both")
            .node("asks", asks)
            .node("works", works)
            .edge(START, "asks")
            .edge(START, "works");
        let saved = Saved::new();
        let engine = saved.engine(&compiled(graph)).with_wait_max(Duration::from_secs(120));
        let end = saved.start(&engine).await;
        let records = saved.storage.records(saved.run()).await.unwrap();
        if is_broken {
            assert_eq!(
                (end.status, end.reason.as_deref()),
                (Status::Failed, Some("`works` failed: broken"))
            );
        } else {
            assert_eq!(end.status, Status::Paused, "{:?}", end.reason);
            assert!(records.iter().any(|it| matches!(it.outcome, Outcome::Finished { .. })));
        }
    }
}
