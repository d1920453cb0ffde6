//! The library as its users call it: functions as nodes, routes, runs, streams, and what a node is provided with.

mod checks;
mod streams;
mod values;
mod workflows;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use graphrun::{
    event::{Event, EventSink},
    graph::{ErrorKind, Failure, Target},
    prelude::*,
};
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
async fn the_kinds_of_failure_that_are_tried_again_are_set_where_a_node_is_named() {
    async fn slow(ctx: NodeContext) -> Result<Log, NodeError> {
        match ctx.attempt {
            1 => Err(Failure::new(ErrorKind::Timeout, "slow").into()),
            attempt => Ok(logged(format!("attempt {attempt}"))),
        }
    }
    let named = |kind| {
        let graph = board().node("slow", slow.retry_on(2, [kind]));
        graph.edge(START, "slow").edge("slow", END)
    };
    assert_eq!(log_of(named(ErrorKind::Timeout)).await, ["attempt 2"]);
    let other = named(ErrorKind::Sandbox).compile().unwrap();
    other.invoke::<Board>(&()).await.unwrap_err();
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
        .goto("clears", ["other"])
        .dispatches("clears", ["item"])
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
    let (node, failure) = &without.failures[0];
    assert_eq!(
        (node.as_str(), failure.kind, without.failures.len()),
        ("calls", ErrorKind::Other, 1)
    );
    let engine = engine.provide(Client("of the engine"));
    let log = |end: RunEnd| end.output::<Board>().unwrap().log;
    assert_eq!(log(engine.run(&()).await.unwrap()), ["of the engine"]);
    assert_eq!(log(engine.run(&()).provide(Client("of the run")).await.unwrap()), ["of the run"]);
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

/// A node that obeys the cancellation fails, and that failure is none of the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_an_abort_is_no_failure_of_the_node() {
    async fn obeys(ctx: NodeContext) -> Result<Log, NodeError> {
        if ctx.get::<()>().is_ok() {
            return Ok(logged("worked"));
        }
        ctx.emit(&"began").await?;
        ctx.cancel.cancelled().await;
        Err(NodeError::permanent("cancelled"))
    }
    async fn recovers() -> Result<Log, NodeError> {
        Ok(logged("recovered"))
    }
    let graph =
        board().node("obeys", obeys).node("recovers", recovers).catch("obeys", None, "recovers");
    let graph = graph.edge(START, "obeys").edge("obeys", END).edge("recovers", END);
    let engine = Engine::new(graph.compile().unwrap());
    for round in 0..50 {
        let mut run = engine.run(&()).stream([StreamMode::Custom]).start().await.unwrap();
        assert!(run.next().await.is_some());
        run.abort();
        let id = run.id().clone();
        assert_eq!(run.outcome().await.unwrap().status, Status::Interrupted, "round {round}");
        let end = engine.resume(&id).provide(()).await.unwrap();
        assert_eq!(end.output::<Board>().unwrap().log, ["worked"], "round {round}");
    }
}

#[tokio::test]
async fn limits_of_an_engine_keep_the_checked_target_of_the_graph() {
    let nowhere = Some(Target::Node(NodeName::parse("nowhere").unwrap()));
    let limits = Limits { steps: 1, exhausted: nowhere, ..Limits::default() };
    let two = || {
        let graph = board().node("a", nothing).node("b", nothing);
        graph.edge(START, "a").edge("a", "b").edge("b", END)
    };
    let engine = Engine::new(two().compile().unwrap()).with_limits(limits.clone());
    assert_eq!(engine.run(&()).await.unwrap().status, Status::Limit);
    let ends = Limits { exhausted: Some(Target::End), ..Limits::default() };
    let engine = Engine::new(two().limits(ends).compile().unwrap()).with_limits(limits);
    assert_eq!(engine.run(&()).await.unwrap().status, Status::Done);
}

#[tokio::test]
async fn a_run_that_stops_within_a_step_shows_what_has_finished() {
    async fn writes() -> Result<Log, NodeError> {
        Ok(logged("written"))
    }
    async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(ctx.ask::<String>(Question::new("name", "Your name?"))?))
    }
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let breaks = move || {
        let is_broken = broken.load(Ordering::SeqCst);
        async move { if is_broken { Err(NodeError::permanent("broken")) } else { Ok(logged("mended")) } }
    };
    let engine = |graph: GraphBuilder| {
        let graph = graph.node("writes", writes).edge(START, "writes").edge("writes", END);
        Engine::new(graph.edge(START, "other").edge("other", END).compile().unwrap())
    };
    let log = |end: &RunEnd| end.state.read::<Board>().unwrap().log;

    let asking = engine(board().node("other", asks));
    let paused = asking.run(&Board::default()).await.unwrap();
    assert_eq!((paused.status, log(&paused)), (Status::Paused, vec!["written".to_owned()]));
    let end = asking.resume(&paused.run).answer("name", "Ada").await.unwrap();
    assert_eq!(log(&end), ["Ada", "written"], "the order is that of the tasks");

    let breaking = engine(board().node("other", breaks));
    let failed = breaking.run(&Board::default()).await.unwrap();
    assert_eq!((failed.status, log(&failed)), (Status::Failed, vec!["written".to_owned()]));
    is_broken.store(false, Ordering::SeqCst);
    let end = breaking.retry(&failed.run).await.unwrap();
    assert_eq!(log(&end), ["mended", "written"]);
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
        .dispatches("choose", ["work"])
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
async fn a_used_up_bound_names_the_error_behind_its_handler() {
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

#[tokio::test]
async fn a_node_dispatches_and_chooses_only_as_it_declares() {
    let graph = |command: fn() -> graphrun::graph::Go| {
        board()
            .node("a", move || async move { Ok::<_, NodeError>(command()) })
            .node("b", nothing)
            .edge(START, "a")
            .edge("a", END)
            .edge("b", END)
    };
    let (by_name, by_item) = (|| goto("b"), || goto(dispatch("b", &1)));
    for (graph, expected) in [
        (graph(by_name).goto("a", ["b"]), None),
        (graph(by_item).dispatches("a", ["b"]), None),
        (graph(by_name).dispatches("a", ["b"]), Some("which is not declared with `goto`")),
        (graph(by_item).goto("a", ["b"]), Some("which is not declared with `dispatches`")),
    ] {
        let ended = graph.compile().unwrap().invoke::<Board>(&()).await;
        let error = ended.err().map(|it| it.to_string());
        let contains = expected.is_none_or(|it| error.as_ref().is_some_and(|of| of.contains(it)));
        assert!(contains && error.is_some() == expected.is_some(), "{expected:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_route_by_name_to_a_node_of_items_fails_before_the_node() {
    async fn counts(Item(item): Item<u32>) -> Result<Log, NodeError> {
        Ok(logged(item.to_string()))
    }
    let graph = |next: fn() -> Next| {
        let graph = board().node("a", nothing).node("counts", counts).edge(START, "a");
        graph.route("a", ["counts", END], move |_: &Board| [next()]).edge("counts", END)
    };
    assert_eq!(log_of(graph(|| dispatch("counts", &7).into())).await, ["7"]);
    let error = graph(|| "counts".into()).compile().unwrap().invoke::<Board>(&()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the route chose `counts` without the item that it takes"), "{error}");
}
