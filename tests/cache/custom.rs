//! Cached nodes of a program.

use graphrun::graph::NodeFn;

use super::*;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Counts {
    #[serde(default)]
    base: u64,
    #[serde(default)]
    other: u64,
    sum: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Base {
    base: u64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Sum {
    pub(super) sum: u64,
}

/// A custom node that counts its runs.
fn adding(runs: &Arc<AtomicUsize>) -> impl Node + use<> {
    let runs = Arc::clone(runs);
    node_fn(move |reads: Base, _: NodeContext| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok(Sum { sum: reads.base + 1 }) }
    })
}

#[tokio::test]
async fn a_custom_node_is_cached_by_its_reads() {
    let runs = Arc::new(AtomicUsize::new(0));
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    let graph = || {
        let node = CachedNode::new(Arc::new(adding(&runs)), cache.clone());
        let builder = GraphBuilder::new::<Counts>("w").node("add", node).edge(START, "add");
        builder.edge("add", "end").compile().unwrap()
    };
    for (base, other, expected) in [(1, 1, 1), (1, 2, 1), (2, 2, 2), (1, 3, 2)] {
        let ran = run(graph(), json!({"base": base, "other": other})).await;
        assert_eq!(ran.field("sum"), json!(base + 1));
        assert_eq!(runs.load(Ordering::SeqCst), expected, "{base} {other}");
    }
}

/// Functions of one name in a cache, as nodes of one name: of two graphs, or of two versions of one graph.
#[tokio::test]
async fn another_function_or_graph_has_a_result_of_its_own() {
    async fn one(reads: Base) -> Result<Sum, NodeError> {
        Ok(Sum { sum: reads.base + 1 })
    }
    async fn two(reads: Base) -> Result<Sum, NodeError> {
        Ok(Sum { sum: reads.base + 2 })
    }
    async fn sum(cache: &Cache, graph: &str, node: impl Node + 'static, label: &str) -> Value {
        let node = CachedNode::new(Arc::new(node), cache.clone()).labelled(label);
        let graph = GraphBuilder::new::<Counts>(graph).node("add", node).edge(START, "add");
        run(graph.edge("add", "end").compile().unwrap(), json!({"base": 1})).await.field("sum")
    }
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    assert_eq!(sum(&cache, "w", NodeFn::new(one), "").await, json!(2));
    assert_eq!(sum(&cache, "w", NodeFn::new(two), "").await, json!(3));
    let three = node_fn(|it: Base, _: NodeContext| async move { Ok(Sum { sum: it.base + 3 }) });
    let four = node_fn(|it: Base, _: NodeContext| async move { Ok(Sum { sum: it.base + 4 }) });
    assert_eq!(sum(&cache, "w", three, "").await, json!(4));
    assert_eq!(sum(&cache, "w", four, "").await, json!(5));

    // What a closure captured is no part of its type.
    let adding = |number: u64| {
        node_fn(
            move |reads: Base, _: NodeContext| async move { Ok(Sum { sum: reads.base + number }) },
        )
    };
    assert_eq!(sum(&cache, "w", adding(10), "").await, json!(11));
    assert_eq!(sum(&cache, "other", adding(20), "").await, json!(21));
    assert_eq!(sum(&cache, "w", adding(30), "30").await, json!(31));
    assert_eq!(sum(&cache, "w", adding(40), "").await, json!(11));
}

#[tokio::test]
async fn a_custom_node_is_reused_in_a_loop() {
    let runs = Arc::new(AtomicUsize::new(0));
    let node =
        CachedNode::new(Arc::new(adding(&runs)), Cache::new(Arc::new(MemoryResults::default())));
    let again = Policies::from(Bounds {
        max_visits: Some(4),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    let builder =
        GraphBuilder::new::<Counts>("w").node("add", node.with_policies(again)).edge(START, "add");
    let graph = builder.edge("add", "add").compile().unwrap();
    run(graph, json!({"base": 1, "other": 1})).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1, "four visits with the same input");
}

/// A node that does not declare its reads.
#[derive(Debug)]
struct Opaque(Arc<Mutex<Vec<u64>>>, fn(&NodeContext) -> Result<Command, NodeError>);

#[async_trait]
impl Node for Opaque {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        self.0.lock().unwrap().push(u64::from(ctx.visit()));
        (self.1)(&ctx)
    }
}

fn opaque(
    ran: &Arc<Mutex<Vec<u64>>>,
    cache: &Cache,
    work: fn(&NodeContext) -> Result<Command, NodeError>,
) -> CompiledGraph {
    let node = CachedNode::new(Arc::new(Opaque(Arc::clone(ran), work)), cache.clone());
    let builder = GraphBuilder::new::<Counts>("w").node("it", node).edge(START, "it");
    compile(builder.edge("it", "end").goto("it", ["end"]).build()).unwrap()
}

#[tokio::test]
async fn a_node_without_declared_reads_is_cached_by_the_state() {
    let ran = Arc::default();
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    let graph = || opaque(&ran, &cache, |_| Ok(Command::default()));
    for (other, expected) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
        run(graph(), json!({"base": 1, "other": other})).await;
        assert_eq!(ran.lock().unwrap().len(), expected);
    }
}

#[tokio::test]
async fn a_question_and_results_of_its_answer_are_not_cached() {
    let ran = Arc::default();
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    for runs in [2, 4] {
        let graph = opaque(&ran, &cache, |ctx| {
            let sum: u64 = ctx.ask(Question::new("sum", "How many?"))?;
            Ok(Update::of(&Sum { sum })?.into())
        });
        let engine = Engine::new(graph);
        let info = RunInfo::new("w");
        let stop = ShutdownHandle::default();
        let sink = EventSink::default();
        let end = engine
            .run(Update::default())
            .with_info(info.clone())
            .with_events(sink.clone())
            .with_shutdown(&stop)
            .await
            .unwrap();
        assert_eq!(end.status, Status::Paused);
        let answers = BTreeMap::from([("sum".to_owned(), json!(runs))]);
        let end = engine
            .resume(&info.id)
            .with_answers(answers)
            .with_events(sink)
            .with_shutdown(&stop)
            .await
            .unwrap();
        assert_eq!((end.status, end.state.get("sum")), (Status::Done, Some(&json!(runs))));
        assert_eq!(ran.lock().unwrap().len(), runs);
    }
}

#[tokio::test]
async fn a_node_that_chooses_its_target_is_not_cached() {
    let ran = Arc::default();
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    for runs in 1..=2 {
        let graph = opaque(&ran, &cache, |_| {
            let goto =
                graphrun::graph::Goto::Instead(vec![graphrun::graph::Transition::To(Target::End)]);
            Ok(Command { update: Update::default(), goto })
        });
        let told = run(graph, json!({})).await;
        let why = "the result is not cached: the node chose where to go itself";
        assert_eq!((told.warnings(), ran.lock().unwrap().len()), (vec![why], runs));
    }
}

#[tokio::test]
async fn a_result_that_does_not_fit_is_not_cached() {
    let ran = Arc::default();
    let cache = Cache::new(Arc::new(MemoryResults::default()));
    for runs in 1..=2 {
        let graph = opaque(&ran, &cache, |_| Ok(Update::of(&json!({"sum": "many"}))?.into()));
        let end = run(graph, json!({})).await.end;
        assert_eq!((end.status, ran.lock().unwrap().len()), (Status::Failed, runs));
    }
}
