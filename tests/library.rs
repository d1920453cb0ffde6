//! The library as its users call it: functions as nodes, routes, runs, streams, and what a node is provided with.

use std::{io, sync::Arc, time::Duration};

use futures_util::StreamExt;
use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Board {
    topic: Option<String>,
    draft: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Log {
    log: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Topic {
    topic: String,
}

fn board() -> GraphBuilder {
    GraphBuilder::new::<Board>("board")
}

fn logged(line: impl Into<String>) -> Log {
    Log { log: vec![line.into()] }
}

async fn nothing() -> Result<(), NodeError> {
    Ok(())
}

async fn log_of(graph: GraphBuilder) -> Vec<String> {
    let graph = graph.compile().unwrap_or_else(|it| panic!("{it}"));
    let topic = Some("bridges".to_owned());
    graph.invoke::<Board>(&Board { topic, ..Board::default() }).await.unwrap().log
}

fn refused(graph: GraphBuilder) -> String {
    graph.compile().map(|_| ()).unwrap_err().to_string()
}

#[tokio::test]
async fn a_node_takes_its_arguments_in_any_number_and_order() {
    async fn reads(topic: Topic) -> Result<Log, NodeError> {
        Ok(logged(topic.topic))
    }
    async fn context(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(format!("visit {}", ctx.visit())))
    }
    async fn all(ctx: NodeContext, Item(item): Item<u32>, topic: Topic) -> Result<Log, NodeError> {
        Ok(logged(format!("{} {item} {}", ctx.node, topic.topic)))
    }
    let graph = board()
        .input("topic")
        .node("nothing", nothing)
        .node("reads", reads)
        .node("context", context)
        .node("all", all)
        .edge(START, "nothing")
        .edge("nothing", "reads")
        .edge("reads", "context")
        .route("context", ["all"], |_: &Board| [dispatch("all", &7), dispatch("all", &8)])
        .edge("all", END);
    assert_eq!(log_of(graph).await, ["bridges", "visit 1", "all 7 bridges", "all 8 bridges"]);
}

#[tokio::test]
async fn a_node_fails_with_the_error_of_its_own() {
    async fn breaks() -> Result<(), io::Error> {
        Err(io::Error::other("the disk is wet"))
    }
    let graph = board().node("breaks", breaks).edge(START, "breaks").edge("breaks", END);
    let error = graph.compile().unwrap().invoke::<Board>(&()).await.unwrap_err();
    assert!(matches!(error, RunError::NotDone { status: Status::Failed, .. }), "{error:?}");
    assert!(error.to_string().contains("the disk is wet"), "{error}");
}

#[tokio::test]
async fn policies_are_set_where_a_node_is_named() {
    async fn flaky(ctx: NodeContext) -> Result<Log, NodeError> {
        match ctx.attempt {
            1 => Err(NodeError::transient("not yet")),
            attempt => Ok(logged(format!("attempt {attempt}"))),
        }
    }
    let backoff = Backoff {
        attempts_max: Some(3),
        initial: Duration::ZERO,
        max: Duration::ZERO,
        total: None,
        ..Backoff::default()
    };
    let graph = board().node("flaky", flaky.backoff(backoff).timeout(Duration::from_secs(9)));
    assert_eq!(log_of(graph.edge(START, "flaky").edge("flaky", END)).await, ["attempt 2"]);
}

#[tokio::test(start_paused = true)]
async fn defaults_are_for_nodes_without_a_setting() {
    async fn flaky(ctx: NodeContext) -> Result<Log, NodeError> {
        match ctx.attempt {
            1 => Err(NodeError::transient("not yet")),
            attempt => Ok(logged(format!("{} {attempt}", ctx.node))),
        }
    }
    async fn slow() -> Result<Log, NodeError> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(logged("slow"))
    }
    async fn note(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.node.to_string()))
    }
    let graph = board()
        .default_retry(2)
        .default_timeout(Duration::from_secs(1))
        .default_catch(None, "rescue")
        .node("patient", slow.timeout(Duration::from_secs(9)))
        .node("flaky", flaky)
        .node("once", flaky.retry(1))
        .node("slow", slow)
        .node("other", note)
        // A failure of `rescue` that led to `rescue` again would be a loop without a bound.
        .node("rescue", note)
        .catch("slow", ErrorKind::Timeout, "other")
        .edge(START, "patient")
        .edge("patient", "flaky")
        .edge("flaky", "slow")
        .edge("slow", "once")
        .edge("other", "once")
        .edge("once", END)
        .edge("rescue", END);
    assert_eq!(log_of(graph).await, ["slow", "flaky 2", "other", "rescue"]);
}

#[tokio::test]
async fn a_node_knows_the_rest_of_the_limits() {
    async fn rest(ctx: NodeContext) -> Result<Log, NodeError> {
        let rest = ctx.facts.remaining;
        Ok(logged(format!("{} {:?} {:?}", rest.steps, rest.tokens, rest.usd)))
    }
    let graph = board()
        .limits(Limits { steps: 5, tokens: Some(100), ..Limits::default() })
        .node("first", rest)
        .node("second", rest)
        .edge(START, "first")
        .edge("first", "second")
        .edge("second", END);
    assert_eq!(log_of(graph).await, ["5 Some(100) None", "4 Some(100) None"]);
}

#[tokio::test]
async fn a_bound_and_a_catch_may_stand_before_their_nodes() {
    async fn breaks() -> Result<(), NodeError> {
        Err(NodeError::permanent("broken"))
    }
    async fn helps(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.trigger.error().unwrap_or_default()))
    }
    let graph = board()
        .bound("breaks", 2, FAIL)
        .catch("breaks", ErrorKind::Other, "helps")
        .node("breaks", breaks)
        .node("helps", helps)
        .edge(START, "breaks")
        .edge("breaks", END)
        .edge("helps", "breaks")
        .bound("helps", 1, END);
    assert_eq!(log_of(graph).await, ["broken"]);
    let unknown = board().node("a", nothing).edge(START, "a").edge("a", END).bound("b", 1, END);
    assert!(refused(unknown).contains("GR010: a policy names `b`, which is not a node"));
}

#[tokio::test]
async fn a_route_returns_names_items_a_mix_or_nothing() {
    async fn says(ctx: NodeContext) -> Result<Log, NodeError> {
        let item = ctx.input.item().map(|it| format!(" {it}")).unwrap_or_default();
        Ok(logged(format!("{}{item}", ctx.node)))
    }
    let graph = || {
        board()
            .node("a", nothing)
            .node("b", says)
            .node("c", says)
            .edge(START, "a")
            .edge("b", END)
            .edge("c", END)
    };
    let to = ["b", "c"];
    let string = graph().route("a", to, |_: &Board| "c".to_owned());
    assert_eq!(log_of(string).await, ["c"]);
    let option = graph().route("a", to, |it: &Board| it.draft.is_some().then_some("b"));
    assert_eq!(log_of(option).await, [""; 0]);
    let mixed = graph().route("a", to, |_: &Board| vec!["b".into(), Next::from(dispatch("c", &1))]);
    assert_eq!(log_of(mixed).await, ["b", "c 1"]);
    let wrong = graph().route("a", to, |_: &Board| vec![dispatch("d", &1)]);
    let error = wrong.compile().unwrap().invoke::<Board>(&()).await.unwrap_err();
    assert!(error.to_string().contains("the route chose `d`"), "{error}");
}

#[tokio::test]
async fn a_node_chooses_targets_and_clears_fields() {
    async fn clears(
        board: Board,
    ) -> Result<impl graphrun::graph::IntoCommand<Writes = Log>, NodeError> {
        let line = format!("{:?}", board.draft);
        Ok(goto("other").and(dispatch("item", "x")).clear("draft").write(logged(line)))
    }
    async fn other(board: Board) -> Result<Log, NodeError> {
        Ok(logged(format!("{:?}", board.draft)))
    }
    async fn item(Item(item): Item<String>) -> Result<Log, NodeError> {
        Ok(logged(item))
    }
    let graph = board()
        .node("clears", clears)
        .node("other", other)
        .node("item", item)
        .edge(START, "clears")
        .goto("clears", ["other", "item"])
        .edge("other", END)
        .edge("item", END)
        .compile()
        .unwrap();
    let input = Board { draft: Some("old".into()), ..Board::default() };
    let end: Board = graph.invoke(&input).await.unwrap();
    assert_eq!(
        (end.draft, end.log),
        (None, ["Some(\"old\")", "None", "x"].map(String::from).to_vec())
    );
}

#[test]
fn a_node_of_items_is_checked_against_what_starts_it() {
    async fn counts(_: Item<u32>) -> Result<(), NodeError> {
        Ok(())
    }
    let graph = || board().node("a", nothing).node("counts", counts).edge("counts", END);
    let by_edge = refused(graph().edge(START, "a").edge("a", "counts"));
    assert!(
        by_edge
            .contains("GR022: `counts` takes an item, and the edge from `a` starts it without one")
    );
    let by_start = refused(graph().edge(START, ["a", "counts"]).edge("a", END));
    assert!(
        by_start.contains("GR022: `counts` takes an item, and the start starts it without one")
    );
    let name = refused(graph().edge(START, "a").route("a", ["counts", END], |_: &Board| "counts"));
    assert!(name.contains("GR022"), "{name}");
    let other_type = graph().edge(START, "a");
    let other_type = other_type.route("a", ["counts"], |_: &Board| vec![dispatch("counts", "one")]);
    let found = refused(other_type);
    assert!(
        found.contains("GR022: `a` dispatches `string` to `counts`, which takes `int`"),
        "{found}"
    );
    let right = graph().edge(START, "a");
    let right = right.route("a", ["counts"], |_: &Board| vec![dispatch("counts", &1_u32)]);
    assert!(right.compile().is_ok());
}

#[test]
fn a_compiled_graph_keeps_its_warnings() {
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    assert!(graph.warnings().is_empty());
    let unbounded = Limits { steps: 1, ..Limits::default() };
    let two = board().node("a", nothing).node("b", nothing).limits(unbounded);
    let two = two.edge(START, "a").edge("a", "b").edge("b", END).compile().unwrap();
    assert!(two.warnings().to_string().contains("GR132"), "{}", two.warnings());
}

#[tokio::test]
async fn nodes_read_what_the_engine_and_the_run_provide() {
    struct Client(&'static str);
    async fn calls(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.get::<Client>()?.0))
    }
    let graph = board().node("calls", calls).edge(START, "calls").edge("calls", END);
    let engine = Engine::new(graph.compile().unwrap());
    let without = engine.run(&()).await.unwrap();
    assert!(without.reason.unwrap().contains("Client` is provided"));
    let engine = engine.provide(Client("of the engine"));
    let log = |end: RunEnd| end.output::<Board>().unwrap().log;
    assert_eq!(log(engine.run(&()).await.unwrap()), ["of the engine"]);
    assert_eq!(log(engine.run(&()).provide(Client("of the run")).await.unwrap()), ["of the run"]);
}

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
    assert_eq!(values, [r#"1 ["first"]"#, r#"2 ["first","second"]"#]);
    let both = streamed(&[StreamMode::Updates, StreamMode::Custom]).await;
    let expected =
        [r#"first emitted ["half",1]"#, r#"first wrote ["first"]"#, r#"second wrote ["second"]"#];
    assert_eq!(both, expected);
    let events = streamed(&[]).await;
    assert_eq!(events.first().unwrap(), "\"run.started\"");
    assert_eq!(events.last().unwrap(), "\"run.finished\"");
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
    let (mut seen, mut missed) = (0, 0);
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
async fn a_started_run_can_be_cancelled_and_resumed() {
    async fn waits(ctx: NodeContext) -> Result<Log, NodeError> {
        if ctx.get::<()>().is_err() {
            std::future::pending::<()>().await;
        }
        Ok(logged("waited"))
    }
    let graph = board().node("waits", waits).edge(START, "waits").edge("waits", END);
    let engine = Engine::new(graph.compile().unwrap());
    let mut run = engine.run(&()).named("patient").start().await.unwrap();
    while let Some(StreamChunk::Debug(event)) = run.next().await {
        if matches!(event.event, graphrun::event::Event::TaskStarted { .. }) {
            break;
        }
    }
    run.cancel();
    let id = run.id().clone();
    assert_eq!(run.outcome().await.unwrap().status, Status::Interrupted);
    let end = engine.resume(&id).provide(()).await.unwrap();
    assert_eq!(end.output::<Board>().unwrap().log, ["waited"]);
}

#[tokio::test]
async fn an_answer_is_given_by_its_key() {
    async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.ask::<String>(Question::new("name", "Your name?"))?))
    }
    let graph = board().node("asks", asks).edge(START, "asks").edge("asks", END);
    let engine = Engine::new(graph.compile().unwrap());
    let paused = engine.run(&()).await.unwrap();
    let error = paused.output::<Board>().unwrap_err();
    assert!(matches!(error, RunError::NotDone { status: Status::Paused, .. }));
    let end = engine.resume(&paused.run).answer("name", "Ada").await.unwrap();
    assert_eq!(end.output::<Board>().unwrap().log, ["Ada"]);
}
