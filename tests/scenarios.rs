//! Scenarios of LangGraph's tests, in graphrun: those that end otherwise, as `COMPATIBILITY.md` says, and those beside
//! them that end the same.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Board {
    word: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Log {
    log: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Suffix {
    word: Option<String>,
}

fn board() -> GraphBuilder {
    GraphBuilder::new::<Board>("board")
}

fn logged(line: impl Into<String>) -> Log {
    Log { log: vec![line.into()] }
}

/// Notes the name of its node.
async fn note(ctx: NodeContext) -> Result<Log, NodeError> {
    Ok(logged(ctx.node.to_string()))
}

/// Notes its name in place of the list before.
async fn overwrite(
    ctx: NodeContext,
) -> Result<impl graphrun::graph::IntoCommand<Writes = Log>, NodeError> {
    Ok(clear("log").write(logged(ctx.node.to_string())))
}

async fn log_of(graph: GraphBuilder) -> Vec<String> {
    let graph = graph.compile().unwrap_or_else(|it| panic!("{it}"));
    let input = Board { log: vec!["input".to_owned()], ..Board::default() };
    graph.invoke::<Board>(&input).await.unwrap().log
}

#[tokio::test]
async fn a_write_may_replace_a_list_that_grows() {
    let graph = board().node("a", note).node("b", overwrite);
    let graph = graph.may_clear("b", ["log"]);
    assert_eq!(log_of(graph.edge(START, "a").edge("a", "b").edge("b", END)).await, ["b"]);
}

#[tokio::test]
async fn a_replaced_list_keeps_the_other_writes_of_the_step() {
    let graph = |c: GraphBuilder| {
        let c = c.may_clear("b", ["log"]).may_clear("c", ["log"]);
        c.edge(START, "a").edge("a", ["b", "c"]).edge("b", "d").edge("c", "d").edge("d", END)
    };
    let nodes = || board().node("a", note).node("b", overwrite).node("d", note);
    assert_eq!(log_of(graph(nodes().node("c", note))).await, ["b", "c", "d"]);
    // Two that replace it are no error: the list begins anew with both.
    assert_eq!(log_of(graph(nodes().node("c", overwrite))).await, ["b", "c", "d"]);
}

#[tokio::test]
async fn a_field_that_is_none_is_not_written() {
    async fn nothing() -> Result<Suffix, NodeError> {
        Ok(Suffix { word: None })
    }
    async fn cleared() -> Result<impl graphrun::graph::IntoCommand<Writes = ()>, NodeError> {
        Ok(clear("word"))
    }
    let word = || Board { word: Some("old".to_owned()), ..Board::default() };
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    assert_eq!(graph.invoke::<Board>(&word()).await.unwrap(), word());
    let graph = board().node("a", cleared).may_clear("a", ["word"]);
    let graph = graph.edge(START, "a").edge("a", END).compile().unwrap();
    assert_eq!(graph.invoke::<Board>(&word()).await.unwrap().word, None);
}

#[tokio::test]
async fn a_graph_within_another_one_chooses_where_that_continues() {
    let inner =
        || board().node("inner", note).edge(START, "inner").edge("inner", END).compile().unwrap();
    let output = |board: Board| goto("chosen").instead_of_edges().write(Log { log: board.log });
    let graph = board()
        .node("outer", subgraph(inner(), |(): ()| Board::default(), output))
        .node("usual", note)
        .node("chosen", note)
        .edge(START, "outer")
        .edge("outer", "usual")
        .goto("outer", ["chosen"])
        .edge("usual", END)
        .edge("chosen", END);
    assert_eq!(log_of(graph).await, ["input", "inner", "chosen"]);
}

#[tokio::test]
async fn each_call_of_a_graph_within_another_one_begins_anew() {
    let inner = board().node("inner", |ctx: NodeContext| async move {
        let lines = ctx.state.get("log").and_then(|it| it.as_array()).map_or(0, Vec::len);
        Ok::<_, NodeError>(logged(format!("visit {} after {lines}", ctx.visit())))
    });
    let inner = inner.edge(START, "inner").edge("inner", END).compile().unwrap();
    let node = subgraph(inner, |(): ()| Board::default(), |board: Board| Log { log: board.log });
    let graph = board().node("outer", node).edge(START, "outer").edge("outer", "outer");
    let lines = log_of(graph.max_visits("outer", 2, END)).await;
    assert_eq!(lines, ["input", "visit 1 after 0", "visit 1 after 0"]);
}

/// Asks under its name, and notes the answer.
async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
    let answer: String = ctx.ask(Question::new(ctx.node.as_str(), "Which word?"))?;
    Ok(logged(format!("{} {answer}", ctx.node)))
}

#[tokio::test]
async fn questions_at_the_same_time_are_answered_by_their_keys() {
    let graph = board().node("a", asks).node("b", asks).node("c", note);
    let graph = graph.edge(START, ["a", "b"]).edge(["a", "b"], "c").edge("c", END);
    let engine = Engine::new(graph.compile().unwrap());
    let end = engine.run(&Board::default()).await.unwrap();
    assert_eq!((end.status, end.questions.len()), (Status::Paused, 2));
    // An answer without a key that is asked is for none of them.
    let refused = engine.resume(&end.run).answer("word", "x").await.unwrap_err();
    assert!(refused.to_string().contains("word"), "{refused:?}");
    let end = engine.resume(&end.run).answer("b", "second").await.unwrap();
    assert_eq!((end.status, end.questions.len()), (Status::Paused, 1));
    let end = engine.resume(&end.run).answer("a", "first").await.unwrap();
    assert_eq!(end.output::<Board>().unwrap().log, ["a first", "b second", "c"]);
}

#[tokio::test]
async fn a_graph_within_another_one_may_ask_twice() {
    let begun = Arc::new(AtomicU32::new(0));
    let first = {
        let begun = Arc::clone(&begun);
        move |ctx: NodeContext| {
            begun.fetch_add(1, Ordering::SeqCst);
            asks(ctx)
        }
    };
    let inner = board().node("a", first).node("b", asks);
    let inner = inner.edge(START, "a").edge("a", "b").edge("b", END).compile().unwrap();
    let node = subgraph(inner, |(): ()| Board::default(), |board: Board| Log { log: board.log });
    let graph = board().node("outer", node).edge(START, "outer").edge("outer", END);
    let engine = Engine::new(graph.compile().unwrap());
    let mut end = engine.run(&Board::default()).await.unwrap();
    for (key, answer) in [("a", "one"), ("b", "two")] {
        assert_eq!(end.questions[0].name, key);
        end = engine.resume(&end.run).answer(key, answer).await.unwrap();
    }
    assert_eq!(end.output::<Board>().unwrap().log, ["a one", "b two"]);
    assert_eq!(begun.load(Ordering::SeqCst), 2, "once before its answer and once with it");
}

#[tokio::test]
async fn routes_of_dispatched_tasks_lead_to_a_node_once() {
    async fn item(Item(item): Item<u32>, ctx: NodeContext) -> Result<Log, NodeError> {
        Ok(logged(format!("{} {item}", ctx.node)))
    }
    let graph = board()
        .node("a", item)
        .node("b", item)
        .node("c", note)
        .route(START, ["a"], |_: &Board| [1, 2].map(|it| dispatch("a", &it)))
        .route("a", ["b", "c"], |board: &Log| {
            let items = u32::try_from(board.log.len()).unwrap();
            [Next::from("c"), dispatch("b", &items).into()]
        })
        .edge("b", "c")
        .edge("c", END);
    // Each task sees its own line beside the input, and the step after the items has `c` once and both dispatches.
    let lines = ["input", "a 1", "a 2", "c", "b 2", "b 2", "c"];
    assert_eq!(log_of(graph).await, lines);
}

#[tokio::test]
async fn a_node_that_no_edge_leaves_ends_its_branch_with_a_warning() {
    let graph = board().node("a", note).edge(START, "a").compile().unwrap();
    let found = graph.warnings().in_order();
    assert_eq!((found[0].code, &*found[0].message), ("GR006", "no edge leaves `a`"));
    assert_eq!(graph.invoke::<Board>(&Board::default()).await.unwrap().log, ["a"]);
}
