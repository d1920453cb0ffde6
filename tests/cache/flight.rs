//! Tasks that want the same result at the same time: one computes it, and the others wait.

use super::{custom::Sum, *};

/// A graph with a cached node for each of these numbers.
fn cached_items(
    cache: &Cache,
    policies: Policies,
    numbers: &'static [u64],
    work: impl Fn(u64) -> futures_util::future::BoxFuture<'static, Result<Sum, NodeError>>
    + Send
    + Sync
    + 'static,
) -> CompiledGraph {
    let node = node_fn(move |Item(number): Item<u64>, _: NodeContext| work(number));
    let node = CachedNode::new(Arc::new(node), cache.clone());
    let builder = GraphBuilder::new::<Sums>("w").node("add", node.with_policies(policies));
    let builder = builder.route(START, ["add"], |_: &Sums| {
        numbers.iter().map(|it| dispatch("add", it)).collect::<Vec<_>>()
    });
    builder.edge("add", "end").compile().unwrap()
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Sums {
    #[serde(default)]
    #[schemars(extend("x-merge" = "sum"))]
    sum: u64,
}

#[tokio::test(start_paused = true)]
async fn tasks_that_want_the_same_result_compute_it_once() {
    let (runs, cache) =
        (Arc::new(AtomicUsize::new(0)), Cache::new(Arc::new(MemoryResults::default())));
    let counted = Arc::clone(&runs);
    let quiet = Policies::from(Attempts {
        idle_timeout: Some(Duration::from_secs(5)),
        ..Attempts::default()
    });
    let graph = cached_items(&cache, Policies::default(), &[1, 1, 2, 1], move |number| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Sum { sum: number })
        })
    });
    let engine = Engine::new(graph);
    // Two runs at once: of the eight tasks, one works on each of the two numbers.
    let one = Update::default();
    let two = Update::default();
    let begun = tokio::time::Instant::now();
    let (one, two) = tokio::join!(engine.run(one).into_future(), engine.run(two).into_future());
    for end in [one.unwrap(), two.unwrap()] {
        assert_eq!(end.output::<Sums>().unwrap().sum, 5);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(begun.elapsed().as_secs(), 60, "the numbers are worked on at the same time");

    // A task that waits is not silent, although the node does not report while another task computes.
    let graph = cached_items(&cache, quiet, &[7, 7], |number| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok(Sum { sum: number })
        })
    });
    let end = Engine::new(graph).run(Update::default()).await.unwrap();
    assert_eq!(end.output::<Sums>().unwrap().sum, 14);
}

#[tokio::test(start_paused = true)]
async fn a_failed_computation_is_handed_over_to_the_next_task() {
    let (runs, cache) =
        (Arc::new(AtomicUsize::new(0)), Cache::new(Arc::new(MemoryResults::default())));
    let counted = Arc::clone(&runs);
    let caught = vec![graphrun::graph::Catch { kind: None, to: Target::End }];
    let policies = Policies { catch: caught, ..Policies::default() };
    let graph = cached_items(&cache, policies, &[3, 3, 3], move |number| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if run == 0 { Err(NodeError::permanent("no luck")) } else { Ok(Sum { sum: number }) }
        })
    });
    let end = Engine::new(graph).run(Update::default()).await.unwrap();
    // The first task failed, the second one computed the result, the third one used it.
    assert_eq!((end.output::<Sums>().unwrap().sum, runs.load(Ordering::SeqCst)), (6, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_computation_is_handed_over_to_another_run() {
    let (runs, cache) =
        (Arc::new(AtomicUsize::new(0)), Cache::new(Arc::new(MemoryResults::default())));
    let counted = Arc::clone(&runs);
    let graph = cached_items(&cache, Policies::default(), &[4], move |number| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(Sum { sum: number })
        })
    });
    let engine = Engine::new(graph);
    let first = engine.run(Update::default()).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = engine.run(Update::default()).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the second run waits");
    first.shutdown().abort();
    assert_eq!(first.outcome().await.unwrap().status, Status::Interrupted);
    let end = second.outcome().await.unwrap();
    assert_eq!((end.output::<Sums>().unwrap().sum, runs.load(Ordering::SeqCst)), (4, 2));
}
