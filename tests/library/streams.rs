//! Runs as streams.

use super::*;

fn streaming() -> CompiledGraph {
    async fn first(ctx: NodeContext) -> Result<Log, NodeError> {
        ctx.emit(&("half", 1)).await?;
        Ok(logged("first"))
    }
    async fn second() -> Result<Log, NodeError> {
        Ok(logged("second"))
    }
    let graph = board().node("first", first).node("second", second);
    graph.edge(START, "first").edge("first", "second").edge("second", END).compile().unwrap()
}

/// The stream of a run in words.
async fn streamed(modes: &[StreamMode]) -> Vec<String> {
    let launch = Engine::new(streaming()).run(&()).stream(modes.iter().copied());
    let run = launch.start().await.unwrap();
    let said = |chunk: StreamChunk| match chunk {
        StreamChunk::Values { step, state } => {
            format!("{step} {}", serde_json::to_string(&state.to_json()["log"]).unwrap())
        }
        StreamChunk::Updates { node, update, .. } => format!("{node} wrote {}", update.writes[0].1),
        StreamChunk::Custom { node, value, .. } => format!("{node} emitted {value}"),
        StreamChunk::Debug(event) => {
            serde_json::to_value(&event.event).unwrap()["type"].to_string()
        }
        other => format!("{other:?}"),
    };
    run.map(said).collect().await
}

#[tokio::test]
async fn a_run_streams_what_its_modes_ask_for() {
    let values = streamed(&[StreamMode::Values]).await;
    // The first chunk is the state with the input.
    assert_eq!(values, ["0 []", r#"1 ["first"]"#, r#"2 ["first","second"]"#]);
    let both = streamed(&[StreamMode::Updates, StreamMode::Custom]).await;
    let expected =
        [r#"first emitted ["half",1]"#, r#"first wrote ["first"]"#, r#"second wrote ["second"]"#];
    assert_eq!(both, expected);
    let events = streamed(&[]).await;
    assert_eq!(events.first().unwrap(), "\"run.started\"");
    assert_eq!(events.last().unwrap(), "\"run.finished\"");
}

/// Code that a node has spawned may keep its context for longer than the run takes.
#[tokio::test]
async fn a_stream_of_pieces_ends_with_its_run() {
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let keeps = move |ctx: NodeContext| {
        keeps.lock().unwrap().push(ctx);
        async { Ok::<_, NodeError>(()) }
    };
    let graph = board().node("keeps", keeps).edge(START, "keeps").edge("keeps", END);
    let engine = Engine::new(graph.compile().unwrap());
    let mut sink = EventSink::default();
    let mut deltas = sink.subscribe_deltas();
    let run = engine.run(&()).with_events(sink).stream([StreamMode::Messages]);
    let run = run.start().await.unwrap();
    let patience = Duration::from_secs(60);
    let ended = async { (run.count().await, deltas.recv().await) };
    assert_eq!(tokio::time::timeout(patience, ended).await.unwrap(), (0, None));
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_slow_reader_stops_no_run_and_learns_what_it_missed() {
    async fn talks(ctx: NodeContext) -> Result<(), NodeError> {
        for number in 0..3_000 {
            ctx.emit(&number).await?;
        }
        ctx.get::<Arc<Notify>>()?.notify_one();
        Ok(())
    }
    let graph = board().node("talks", talks).edge(START, "talks").edge("talks", END);
    let engine = Engine::new(graph.compile().unwrap());
    let talked = Arc::new(Notify::new());
    let launch = engine.run(&()).provide(Arc::clone(&talked)).stream([StreamMode::Custom]);
    let mut run = launch.start().await.unwrap();
    // The node comes to its end although the stream is not read.
    talked.notified().await;
    let mut seen = 0;
    let mut missed = 0;
    while let Some(chunk) = run.next().await {
        match chunk {
            StreamChunk::Missed(number) => missed += number,
            _ => seen += 1,
        }
    }
    assert_eq!((seen + missed, missed > 0), (3_000, true));
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
}

#[tokio::test]
async fn the_updates_of_nested_tasks_are_streamed() {
    async fn note(Item(text): Item<String>, ctx: NodeContext) -> Result<Log, NodeError> {
        ctx.emit(&text).await?;
        Ok(logged(format!("{text} {}", ctx.node)))
    }
    let leaf = board()
        .node("note", note)
        .route(START, ["note"], |board: &Board| board.topic.as_ref().map(|it| dispatch("note", it)))
        .edge("note", END)
        .compile()
        .unwrap();
    let topic = |topic: Topic| Board { topic: Some(topic.topic), ..Board::default() };
    let log = |board: Board| Log { log: board.log };
    let middle = board().node("leaf", subgraph(leaf, topic, log));
    let middle = middle.edge(START, "leaf").edge("leaf", END).input("topic").compile().unwrap();
    let item = |Item(topic): Item<String>| Board { topic: Some(topic), ..Board::default() };
    let graph = board()
        .node("middle", subgraph(middle, item, log))
        .route(START, ["middle"], |_: &Board| ["a", "b"].map(|it| dispatch("middle", it)))
        .edge("middle", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let modes = [StreamMode::Updates, StreamMode::Values, StreamMode::Custom];
    let launch = Engine::new(graph).run(&()).stream(modes);
    let run = launch.start().await.unwrap();
    let said = |chunk: StreamChunk| match chunk {
        StreamChunk::Updates { task, node, update } => {
            format!(
                "{task} {node} {}",
                update.writes.first().map_or("-".into(), |it| it.1.to_string())
            )
        }
        StreamChunk::Values { step, .. } => format!("step {step}"),
        StreamChunk::Custom { task, node, value } => format!("{task} {node} emitted {value}"),
        other => format!("{other:?}"),
    };
    let mut said: Vec<String> = run.map(said).collect().await;
    let ends: Vec<&str> =
        said.iter().map(String::as_str).filter(|it| it.contains("step")).collect();
    assert_eq!(
        ends,
        ["step 0", "step 1", "step 2"],
        "the values of nested runs are no values of the run"
    );
    // The two nested runs proceed at the same time.
    said.sort();
    let of = |task: &str, text: &str| {
        let line = format!("[\"{text} note\"]");
        let nodes = ["middle", "middle.leaf", "middle.leaf.note"];
        let mut lines = nodes.map(|it| format!("{task} {it} {line}")).to_vec();
        lines.push(format!("{task} middle.leaf.note emitted \"{text}\""));
        lines
    };
    let tasks = said.iter().filter(|it| it.contains("middle")).cloned().collect::<Vec<_>>();
    let mut expected = [of("2.0", "a"), of("2.1", "b")].concat();
    expected.sort();
    let nested = |it: &&String| !it.contains("start");
    assert_eq!(tasks.iter().filter(nested).cloned().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_reader_that_goes_away_stops_no_run() {
    #[derive(Default)]
    struct Signals {
        gone: Notify,
        ended: Notify,
    }
    async fn emits(ctx: NodeContext) -> Result<(), NodeError> {
        ctx.emit(&"half").await?;
        ctx.get::<Arc<Signals>>()?.gone.notified().await;
        ctx.emit(&"whole").await
    }
    async fn ends(ctx: NodeContext) -> Result<(), NodeError> {
        ctx.get::<Arc<Signals>>()?.ended.notify_one();
        Ok(())
    }
    let graph = board().node("emits", emits).node("ends", ends).edge(START, "emits");
    let graph = graph.edge("emits", "ends").edge("ends", END).compile().unwrap();
    let signals = Arc::new(Signals::default());
    let launch = Engine::new(graph).run(&()).provide(Arc::clone(&signals));
    let mut run = launch.stream([StreamMode::Custom]).start().await.unwrap();
    assert!(run.next().await.is_some());
    drop(run);
    signals.gone.notify_one();
    signals.ended.notified().await;
}

#[tokio::test]
async fn each_turn_streams_its_states_once() {
    let engine = Engine::new(streaming()).with_storage(Arc::new(InMemoryStorage::default()));
    for expected in [[0, 1, 2], [3, 4, 5]] {
        let turn = engine.turn("talk", &()).stream([StreamMode::Values]);
        let chunks: Vec<StreamChunk> = turn.start().await.unwrap().collect().await;
        let steps = chunks.iter().map(|chunk| match chunk {
            StreamChunk::Values { step, .. } => step.0,
            other => panic!("{other:?}"),
        });
        assert_eq!(steps.collect::<Vec<u64>>(), expected);
    }
}
