//! The library as its users call it: functions as nodes, routes, runs, streams, and what a node is provided with.

use std::{io, sync::Arc, time::Duration};

use futures_util::StreamExt;
use graphrun::{event::Event, graph::Target, prelude::*};
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
        .max_visits("breaks", 2, FAIL)
        .catch("breaks", ErrorKind::Other, "helps")
        .node("breaks", breaks)
        .node("helps", helps)
        .edge(START, "breaks")
        .edge("breaks", END)
        .edge("helps", "breaks")
        .max_visits("helps", 1, END);
    assert_eq!(log_of(graph).await, ["broken"]);
    let unknown =
        board().node("a", nothing).edge(START, "a").edge("a", END).max_visits("b", 1, END);
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
        .may_clear("clears", ["draft"])
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
    run.abort();
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

#[tokio::test(start_paused = true)]
async fn a_dispatch_may_have_a_timeout_of_its_own() {
    async fn works(Item(seconds): Item<u64>, ctx: NodeContext) -> Result<Log, NodeError> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(logged(format!("{seconds} of {:?}", ctx.timeout.unwrap().as_secs())))
    }
    let graph = board()
        .node("choose", || async {
            Ok::<_, NodeError>(goto(dispatch("work", &40).timeout(Duration::from_secs(60))))
        })
        .node("work", works.timeout(Duration::from_secs(10)).retry(2))
        .route(START, ["work", "choose"], |_: &Board| {
            let timeout = |it: u64| dispatch("work", &it).timeout(Duration::from_secs(it - 1));
            [
                Next::from(dispatch("work", &5)),
                timeout(20).into(),
                timeout(4).into(),
                "choose".into(),
            ]
        })
        .goto("choose", ["work"])
        .catch("work", ErrorKind::Timeout, "late")
        .node("late", nothing)
        .edge("late", END)
        .edge("work", END)
        .edge("choose", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let mut run = Engine::new(graph).run(&Board::default()).start().await.unwrap();
    let mut retried = Vec::new();
    while let Some(chunk) = run.next().await {
        if let StreamChunk::Debug(event) = chunk
            && let Event::TaskRetrying { error, .. } = event.event
        {
            retried.push(error);
        }
    }
    let end = run.outcome().await.unwrap();
    // The work of 4 and of 20 seconds has a second less; each attempt has all of its timeout.
    assert_eq!(end.output::<Board>().unwrap().log, ["5 of 10", "40 of 60"]);
    assert_eq!(retried, ["not finished within 3s", "not finished within 19s"]);
}

#[tokio::test]
async fn the_updates_of_nested_tasks_are_streamed() {
    async fn note(Item(text): Item<String>, ctx: NodeContext) -> Result<Log, NodeError> {
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
    let launch = Engine::new(graph).run(&()).stream([StreamMode::Updates, StreamMode::Values]);
    let run = launch.start().await.unwrap();
    let said = |chunk: StreamChunk| match chunk {
        StreamChunk::Updates { task, node, update } => {
            format!(
                "{task} {node} {}",
                update.writes.first().map_or("-".into(), |it| it.1.to_string())
            )
        }
        StreamChunk::Values { step, .. } => format!("step {step}"),
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
        ["middle", "middle.leaf", "middle.leaf.note"].map(|it| format!("{task} {it} {line}"))
    };
    let tasks = said.iter().filter(|it| it.contains("middle")).cloned().collect::<Vec<_>>();
    let mut expected = [of("2.0", "a"), of("2.1", "b")].concat();
    expected.sort();
    let nested = |it: &&String| !it.contains("start");
    assert_eq!(tasks.iter().filter(nested).cloned().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_used_up_bound_names_the_error_behind_the_handler_that_led_back() {
    async fn breaks(ctx: NodeContext) -> Result<(), NodeError> {
        Err(NodeError::permanent(format!("broken {}", ctx.visit())))
    }
    let graph = |fixers: [&str; 2]| {
        board()
            .node("work", breaks)
            .node("fix", nothing)
            .node("check", nothing)
            .edge(START, "work")
            .edge("work", END)
            .catch("work", None, "fix")
            .edge("fix", fixers[0])
            .edge("check", fixers[1])
            .max_visits("work", 2, FAIL)
    };
    // Through one node that handles the failure, and through two.
    for fixers in [["work", END], ["check", "work"]] {
        let graph = graph(fixers);
        let graph = if fixers[0] == "work" { graph.edge(START, "check") } else { graph };
        let end = Engine::new(graph.compile().unwrap_or_else(|it| panic!("{it}")));
        let end = end.run(&Board::default()).await.unwrap();
        let reason = "`work` used up its 2 visits; the last error: broken 2";
        assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(reason)));
    }
}

#[tokio::test]
async fn a_used_up_bound_names_no_error_that_was_mended() {
    async fn breaks_once(ctx: NodeContext) -> Result<(), NodeError> {
        if ctx.visit() == 1 { Err(NodeError::permanent("broken")) } else { Ok(()) }
    }
    let graph = board()
        .node("work", breaks_once)
        .node("fix", nothing)
        .edge(START, "work")
        .edge("work", "fix")
        .catch("work", None, "fix")
        .edge("fix", "work")
        .max_visits("work", 3, FAIL);
    let end = Engine::new(graph.compile().unwrap()).run(&Board::default()).await.unwrap();
    assert_eq!(end.reason.as_deref(), Some("`work` used up its 3 visits"));
}

/// Graphs with one mistake each.
fn wrong_graphs() -> Vec<(&'static str, GraphBuilder)> {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Draft {
        draft: String,
    }
    async fn drafts() -> Result<Draft, NodeError> {
        Ok(Draft { draft: String::new() })
    }
    async fn reads(_: Draft) -> Result<(), NodeError> {
        Ok(())
    }
    let line = || {
        let graph = board().node("a", nothing).node("b", nothing);
        graph.edge(START, "a").edge("a", "b").edge("b", END)
    };
    vec![
        ("an edge to no node", line().edge("a", "c")),
        ("an edge from no node", line().edge("c", "a")),
        ("an edge back without a bound", line().edge("b", "a")),
        ("no first node", board().node("a", nothing).edge("a", END)),
        ("a dead end", line().node("c", nothing).edge("a", "c")),
        ("a node that nothing leads to", line().node("c", nothing).edge("c", END)),
        ("two nodes of one name", line().node("a", nothing)),
        ("a name that is none", line().node("not a name", nothing)),
        ("a built-in name", line().node("end", nothing)),
        ("a route to no node", line().route("a", ["c"], |_: &Board| "c")),
        ("a failure that leads to no node", line().catch("a", None, "c")),
        ("a bound of no node", line().max_visits("c", 2, END)),
        ("a reset of no node", line().resets("a", ["c"])),
        ("a clear of no field", line().clears("a", ["none"])),
        ("an input that is no field", line().input("none")),
        ("a field without a writer", line().node("c", reads).edge("a", "c").edge("c", END)),
        (
            "two writers of a field in one step",
            line()
                .node("c", drafts)
                .node("d", drafts)
                .edge("a", ["c", "d"])
                .edge("c", END)
                .edge("d", END),
        ),
        (
            "a join that may wait forever",
            board()
                .node("a", nothing)
                .node("b", nothing)
                .node("c", nothing)
                .edge(START, "a")
                .route("a", ["b", END], |_: &Board| END)
                .edge("b", END)
                .edge(["a", "b"], "c")
                .edge("c", END),
        ),
        (
            "a join of one that is no node",
            line().node("c", nothing).edge(["a", "x"], "c").edge("c", END),
        ),
        (
            "a join of more than there are",
            line().node("c", nothing).edge_of(3, ["a", "b"], "c").edge("c", END),
        ),
        (
            "bounds that lead to each other",
            line().edge("b", "a").max_visits("a", 1, "b").max_visits("b", 1, "a"),
        ),
        ("a limit below the worst case", line().limits(Limits { steps: 1, ..Limits::default() })),
        (
            "no attempts for a node",
            line().node("c", nothing.retry(0)).edge("a", "c").edge("c", END),
        ),
        (
            "no time for a node",
            line().node("c", nothing.timeout(Duration::ZERO)).edge("a", "c").edge("c", END),
        ),
        ("a choice without a declaration", line().goto("a", ["c"])),
        ("an undeclared field that may be cleared", line().may_clear("a", ["none"])),
        ("no visits for a node", line().max_visits("a", 0, END)),
        (
            "a route that reads what nothing writes",
            line().node("c", nothing).route("b", ["c"], |_: &Draft| "c").edge("c", END),
        ),
        ("a condition on what nothing writes", line().when("b", "drafted", |_: &Draft| true)),
        (
            "a route that reads what its node writes unless it is skipped",
            board()
                .node("a", drafts)
                .when("a", "a topic", |it: &Board| it.topic.is_some())
                .edge(START, "a")
                .route("a", [END], |_: &Draft| END),
        ),
        (
            "a route that reads what its node may clear",
            board()
                .input("draft")
                .node("a", nothing)
                .may_clear("a", ["draft"])
                .edge(START, "a")
                .route("a", [END], |_: &Draft| END),
        ),
    ]
}

#[test]
fn wrong_graphs_in_rust_get_the_codes_of_workflows() {
    let found = wrong_graphs().into_iter().map(|(what, graph)| {
        let codes = match graph.compile() {
            Ok(graph) => graph
                .warnings()
                .in_order()
                .iter()
                .map(|it| format!("{} (warning)", it.code))
                .collect(),
            Err(it) => it.in_order().iter().map(|it| it.code.to_owned()).collect::<Vec<_>>(),
        };
        format!("{what}: {}", codes.join(" "))
    });
    let found: Vec<String> = found.collect();
    insta::assert_snapshot!(found.join("\n"), @r"
    an edge to no node: GR010
    an edge from no node: GR010
    an edge back without a bound: GR032
    no first node: GR006
    a dead end: GR006 (warning)
    a node that nothing leads to: GR030
    two nodes of one name: GR002
    a name that is none: GR009
    a built-in name: GR016
    a route to no node: GR010
    a failure that leads to no node: GR010
    a bound of no node: GR010
    a reset of no node: GR010
    a clear of no field: GR021
    an input that is no field: GR021
    a field without a writer: GR035
    two writers of a field in one step: GR036
    a join that may wait forever: GR131
    a join of one that is no node: GR010
    a join of more than there are: GR037
    bounds that lead to each other: GR033
    a limit below the worst case: GR132 (warning)
    no attempts for a node: GR005
    no time for a node: GR005
    a choice without a declaration: GR010
    an undeclared field that may be cleared: GR021
    no visits for a node: GR005
    a route that reads what nothing writes: GR035
    a condition on what nothing writes: GR035
    a route that reads what its node writes unless it is skipped: GR130
    a route that reads what its node may clear: GR130
    ");
}

/// The types of one field of a node, a route or a condition, and the state as a whole.
#[test]
fn types_that_no_value_of_the_state_has_are_found() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Misread {
        draft: Option<u8>,
    }
    #[derive(Serialize, JsonSchema)]
    struct MisreadLog {
        log: u8,
    }
    let graph = || board().edge(START, "a").edge("a", END);
    let reads = "`a` reads `draft` as `int`, and the field is `string`";
    let all = [
        (graph().node("a", async |_: Misread| Ok::<_, NodeError>(())), reads),
        (
            graph().node(
                "a",
                subgraph(inner_of_types(), |_: Misread| Board::default(), |_: Board| ()),
            ),
            reads,
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>(Misread::default())),
            "`a` writes `draft` as `int`, and the field is `string`",
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>(MisreadLog { log: 1 })),
            "`a` writes `log` as `int`, and the field is `[string]`",
        ),
        (
            graph().node("a", nothing).when("a", "drafted", |_: &Misread| true),
            "the condition of `a` reads `draft` as `int`, and the field is `string`",
        ),
        (
            board().node("a", nothing).edge(START, "a").route("a", [END], |_: &Misread| END),
            "the route of `a` reads `draft` as `int`, and the field is `string`",
        ),
        (
            graph().node("a", async |_: Vec<u8>| Ok::<_, NodeError>(())),
            "`a` reads `[int]`, which is not a struct of fields",
        ),
        (
            graph().node("a", async |_: String| Ok::<_, NodeError>(())),
            "`a` reads `string`, which is not a struct of fields",
        ),
        (
            graph().node("a", async |_: Option<Topic>| Ok::<_, NodeError>(())),
            "`a` reads `Topic?`, which is not a struct of fields",
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>("a text".to_owned())),
            "`a` writes `string`, which is not a struct of fields",
        ),
    ];
    for (graph, expected) in all {
        let found = refused(graph);
        assert!(found.contains("GR022") && found.contains(expected), "{expected}: {found}");
    }
}

fn inner_of_types() -> CompiledGraph {
    board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap()
}

#[tokio::test]
async fn types_that_some_value_of_the_state_has_are_taken() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Reads {
        topic: Option<char>,
        draft: Option<serde_json::Value>,
        log: std::collections::VecDeque<std::borrow::Cow<'static, str>>,
    }
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    enum Writes {
        Item { log: &'static str },
    }
    #[derive(Serialize, JsonSchema)]
    struct Item {
        log: &'static str,
    }
    let graph = board()
        .node("whole", async |_: Reads| Ok::<_, NodeError>(Writes::Item { log: "untagged" }))
        .node("item", async |_: serde_json::Value| Ok::<_, NodeError>(Some(Item { log: "item" })))
        .node("none", async || Ok::<_, NodeError>(None::<Item>))
        .edge(START, "whole")
        .edge("whole", "item")
        .edge("item", "none")
        .edge("none", END)
        .compile()
        .unwrap();
    let end: Board = graph.invoke(&Board::default()).await.unwrap();
    assert_eq!(end.log, ["untagged", "item"]);
}

#[tokio::test]
async fn a_node_clears_only_declared_fields() {
    let graph = board().node("a", async || Ok::<_, NodeError>(clear("draft")));
    let graph = graph.edge(START, "a").edge("a", END).may_clear("a", ["topic"]);
    let error = graph.compile().unwrap().invoke::<Board>(&()).await.unwrap_err().to_string();
    assert!(
        error.contains("`a` clears `draft`, which is not declared with `may_clear`"),
        "{error}"
    );
}

#[test]
fn a_node_of_items_is_led_to_by_no_failure_bound_or_limit() {
    async fn counts(_: Item<u32>) -> Result<(), NodeError> {
        Ok(())
    }
    async fn both(_: Item<u32>, _: Item<String>) -> Result<(), NodeError> {
        Ok(())
    }
    let graph = || {
        let graph = board().node("a", nothing).node("counts", counts).edge("counts", END);
        graph.edge(START, "a").edge("a", END)
    };
    let exhausted = Some(Target::Node(NodeName::parse("counts").unwrap()));
    let all = [
        (graph().catch("a", None, "counts"), "a failure of `a` starts it without one"),
        (graph().max_visits("a", 1, "counts"), "a bound of `a` starts it without one"),
        (
            graph().limits(Limits { exhausted, ..Limits::default() }),
            "a limit of the run starts it without one",
        ),
        (
            board()
                .node("a", both)
                .route(START, ["a"], |_: &Board| dispatch("a", &1))
                .edge("a", END),
            "`a` takes an item as `int` and as `string`",
        ),
    ];
    for (graph, expected) in all {
        let found = refused(graph);
        assert!(found.contains("GR022") && found.contains(expected), "{expected}: {found}");
    }
}

#[tokio::test]
async fn numbers_that_json_does_not_have_fail_and_name_their_field() {
    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    struct Score {
        #[serde(default)]
        score: f64,
        best: Option<f32>,
    }
    async fn compute() -> Result<Score, NodeError> {
        Ok(Score { score: 1.0, best: Some(f32::INFINITY) })
    }
    let graph = GraphBuilder::new::<Score>("score").node("a", compute);
    let graph = graph.edge(START, "a").edge("a", END).compile().unwrap();
    let causes = |error: &dyn std::error::Error| graphrun::graph::with_causes(error);
    let error = graph.invoke::<Score>(&Score::default()).await.unwrap_err();
    let written = causes(&error);
    assert!(written.contains("`best`: the number inf cannot be written as JSON"), "{written}");
    let input = Score { score: f64::NAN, best: None };
    let given = causes(&graph.invoke::<Score>(&input).await.unwrap_err());
    assert!(given.contains("`score`: the number NaN cannot be written as JSON"), "{given}");
}

#[tokio::test]
async fn an_accepted_answer_can_be_read() {
    async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
        let level: u8 = ctx.ask(Question::new("level", "Which level?"))?;
        let share: Vec<f32> = ctx.ask(Question::new("share", "Which shares?"))?;
        Ok(logged(format!("{level} {share:?}")))
    }
    let graph = board().node("asks", asks).edge(START, "asks").edge("asks", END);
    let engine = Engine::new(graph.compile().unwrap());
    let paused = engine.run(&()).await.unwrap();
    let paused = engine.resume(&paused.run).answer("level", 7.0).await.unwrap();
    let share = serde_json::json!([0.5, 1e300]);
    let error = engine.resume(&paused.run).answer("share", share).await.unwrap_err();
    let error = graphrun::graph::with_causes(&error);
    assert!(error.contains("is greater than the maximum"), "{error}");
    let end = engine.resume(&paused.run).answer("share", serde_json::json!([0.5, 1])).await;
    assert_eq!(end.unwrap().output::<Board>().unwrap().log, ["7 [0.5, 1.0]"]);
}

#[tokio::test]
async fn an_unknown_field_of_the_input_is_refused() {
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    let input = serde_json::json!({"topic": "bridges", "topc": 1});
    let error = graph.invoke::<Board>(&input).await.unwrap_err();
    assert!(graphrun::graph::with_causes(&error).contains("`topc`"), "{error}");
}

#[tokio::test]
async fn messages_are_removed_by_their_ids() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Chat {
        #[serde(default)]
        #[schemars(extend("x-merge" = "messages"))]
        messages: Vec<Line>,
    }
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Line {
        id: Option<String>,
        text: Option<String>,
        #[serde(default)]
        remove: bool,
    }
    let chat = |write: serde_json::Value| {
        let node = move || {
            let write = write.clone();
            async move { Ok::<_, NodeError>(write) }
        };
        let graph = GraphBuilder::new::<Chat>("chat").node("a", node);
        graph.edge(START, "a").edge("a", END).compile().unwrap()
    };
    let ids = async |write: serde_json::Value| {
        let input = serde_json::json!({"messages": [{"text": "a"}, {"text": "b"}]});
        let end = chat(serde_json::json!({"messages": write})).invoke::<Chat>(&input).await?;
        Ok::<_, RunError>(end.messages.into_iter().filter_map(|it| it.id).collect::<Vec<_>>())
    };
    let remove = |id: &str| serde_json::json!({"id": id, "remove": true});
    assert_eq!(ids(remove("m1")).await.unwrap(), ["m2"]);
    assert_eq!(ids(remove("unknown")).await.unwrap(), ["m1", "m2"]);
    let anew = serde_json::json!([remove("__remove_all__"), {"text": "c"}]);
    assert_eq!(ids(anew).await.unwrap(), ["m3"]);
    let error = ids(serde_json::json!({"remove": true})).await.unwrap_err();
    let error = graphrun::graph::with_causes(&error);
    assert!(error.contains("a removal needs the `id` of a message"), "{error}");
}

/// A function without the context uses nothing of a limit, and others can be declared so.
#[tokio::test]
async fn a_used_up_limit_of_tokens_stops_no_node_without_models() {
    use graphrun::event::{Report, Usage};
    async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
        let mut usage = Usage::default();
        usage.tokens.input_tokens = 60_000;
        usage.tokens.calls = 1;
        ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
        Ok(logged("asks"))
    }
    async fn plain() -> Result<Log, NodeError> {
        Ok(logged("plain"))
    }
    async fn notes(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.node.to_string()))
    }
    let graph = board()
        .node("asks", asks)
        .node("plain", plain)
        .node("declared", notes.without_models())
        .node("unknown", notes)
        .node("flush", notes)
        .edge(START, "asks")
        .edge("asks", "plain")
        .edge("plain", "declared")
        .edge("declared", "unknown")
        .edge("unknown", END)
        .edge("flush", END);
    let exhausted = Some(Target::Node(NodeName::parse("flush").unwrap()));
    let limits = Limits { tokens: Some(50_000), exhausted, ..Limits::default() };
    let log = log_of(graph.limits(limits)).await;
    assert_eq!(log, ["asks", "plain", "declared", "flush"]);
}
