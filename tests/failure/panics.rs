//! Panics in the code of library users, at every place that calls it.

use std::{sync::Arc, time::Duration};

use graphrun::{
    event::Status,
    graph::{Attempts, GraphBuilder, IntoNode, NodeContext, NodeError, Policies, START, node_fn},
    id::ChannelName,
    state::{Channel, Fold, Reducer, Schema},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{Noted, Nothing, Saved, Team, caught_by, compiled, noted, notes, notes_its_way};

/// Runs a graph beside an unrelated node, and returns the notes.
async fn contained(graph: GraphBuilder) -> Vec<String> {
    let graph = graph.node("help", notes_its_way()).edge("help", "end");
    let graph = graph.node("beside", notes_its_way()).edge(START, "beside").edge("beside", "end");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    let end = saved.start(&engine).await;
    assert_eq!((end.status, end.reason), (Status::Done, None));
    let notes = notes(&end.state);
    assert_eq!(notes[0], "beside", "what others did is kept");
    notes[1..].to_vec()
}

#[tokio::test]
async fn a_panic_in_a_condition_fails_its_node() {
    for (name, via) in [("first", false), ("later", true)] {
        let graph = GraphBuilder::new::<Team>("condition");
        let graph = if via {
            graph.node("start", notes_its_way()).edge(START, "start").edge("start", name)
        } else {
            graph.edge(START, name)
        };
        let graph = graph
            .node(name, notes_its_way().with_policies(caught_by("help")))
            .when(name, "it may", |state: &Team| -> bool { panic!("{} notes", state.notes.len()) })
            .edge(name, "end");
        let notes = contained(graph).await;
        assert!(notes.last().unwrap().contains("the condition panicked"), "{notes:?}");
    }
}

#[derive(Debug)]
struct Sums;

impl Fold for Sums {
    fn name(&self) -> &'static str {
        "sums"
    }

    fn fold(&self, current: Option<Value>, written: Value) -> Result<Value, String> {
        let sum = current.map_or(0, |it| it.as_i64().unwrap()) + written.as_i64().unwrap();
        assert!(sum < 10, "{sum} is too much");
        Ok(json!(sum))
    }
}

/// A graph with a sum that nodes write; the sum panics from ten on.
fn summing(writes: &[(&str, i64)]) -> GraphBuilder {
    let name = |it| ChannelName::parse(it).unwrap();
    let list = json!({"type": "array", "items": {"type": "string"}});
    let schema = Schema::new([
        Channel::new(name("notes"), list, Reducer::Append).unwrap(),
        Channel::new(name("sum"), json!({"type": "integer"}), Reducer::Custom(Arc::new(Sums)))
            .unwrap(),
    ]);
    let mut graph = GraphBuilder::with_schema("sum", schema.unwrap());
    for &(node, value) in writes {
        let adds =
            node_fn(
                move |_: Nothing, _| async move { Ok::<_, NodeError>(json!({ "sum": value })) },
            );
        graph = graph
            .node(node, adds.with_policies(caught_by("help")))
            .edge(START, node)
            .edge(node, "end");
    }
    graph
}

#[tokio::test]
async fn a_panic_in_a_reducer_fails_the_writing_node() {
    let notes = contained(summing(&[("adds", 12)])).await;
    assert!(notes[0].ends_with("`sums` panicked: 12 is too much"), "{notes:?}");
}

#[tokio::test]
async fn a_panic_while_folding_a_step_fails_one_of_its_tasks() {
    let graph = compiled(summing(&[("one", 6), ("two", 7)]).node("help", notes_its_way()));
    let saved = Saved::new();
    let engine = saved.engine(&graph);
    let end = saved.start(&engine).await;
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(end.state.get("sum"), Some(&json!(6)), "the first one fits");
    let notes = end.state.get("notes").unwrap().to_string();
    assert!(notes.contains("`sums` panicked: 13 is too much"), "{notes}");
}

/// Panics when it is dropped.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("it went off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_during_abort_is_reported_with_the_timeout() {
    let hangs = node_fn(|_: Nothing, _| async {
        let _mine = Mine;
        std::future::pending::<Result<Noted, NodeError>>().await
    });
    let policies = Policies {
        attempts: Attempts { timeout: Some(Duration::from_secs(9)), ..Attempts::default() },
        ..caught_by("help")
    };
    let graph = GraphBuilder::new::<Team>("drop")
        .node("hangs", hangs.with_policies(policies))
        .edge(START, "hangs");
    let told = "help after: not finished within 9s; then the node panicked: it went off";
    assert_eq!(contained(graph.edge("hangs", "end")).await, [told]);
}

#[tokio::test]
async fn a_panic_in_drop_fails_the_node() {
    let drops = node_fn(|_: Nothing, _: NodeContext| async {
        drop(Mine);
        noted("never")
    });
    let graph = GraphBuilder::new::<Team>("drop")
        .node("drops", drops.with_policies(caught_by("help")))
        .edge(START, "drops")
        .edge("drops", "end");
    assert_eq!(contained(graph).await, ["help after: the node panicked: it went off"]);
}

/// Panics when it is serialised or deserialised.
#[derive(JsonSchema)]
struct Unwritable {
    #[expect(dead_code, reason = "it is only for the schema")]
    notes: Vec<String>,
}

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("these cannot be written")
    }
}

impl<'de> Deserialize<'de> for Unwritable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("these cannot be read")
    }
}

#[tokio::test]
async fn a_panic_in_serde_code_fails_the_node() {
    let writes = node_fn(|_: Nothing, _: NodeContext| async {
        Ok::<_, NodeError>(Unwritable { notes: Vec::new() })
    });
    let graph = GraphBuilder::new::<Team>("writes")
        .node("writes", writes.with_policies(caught_by("help")))
        .edge(START, "writes")
        .edge("writes", "end");
    assert_eq!(contained(graph).await, ["help after: the node panicked: these cannot be written"]);

    let reads = node_fn(|_: Unwritable, _: NodeContext| async { noted("never") });
    let graph = GraphBuilder::new::<Team>("reads")
        .node("reads", reads.with_policies(caught_by("help")))
        .edge(START, "reads")
        .edge("reads", "end");
    assert_eq!(contained(graph).await, ["help after: the node panicked: these cannot be read"]);

    let graph = GraphBuilder::new::<Team>("route")
        .node("routed", notes_its_way().with_policies(caught_by("help")))
        .edge(START, "routed")
        .route("routed", ["end"], |_: &Unwritable| "end");
    let graph = compiled(graph.node("help", notes_its_way()));
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph)).await;
    let told = "`routed` finished, but its route failed: the route panicked: these cannot be read";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(told)));
}

#[tokio::test]
async fn a_panic_in_a_node_does_not_affect_other_runs() {
    let panics = node_fn(|_: Nothing, _: NodeContext| async {
        let empty: Vec<Noted> = Vec::new();
        Ok::<_, NodeError>(empty.into_iter().next().expect("a note is missing"))
    });
    let graph = GraphBuilder::new::<Team>("panics")
        .node("panics", panics)
        .edge(START, "panics")
        .edge("panics", "end");
    let saved = Saved::new();
    let other = Saved::new();
    let calm = GraphBuilder::new::<Team>("calm")
        .node("calm", notes_its_way())
        .edge(START, "calm")
        .edge("calm", "end");
    let graph = compiled(graph);
    let calm = compiled(calm);
    let engine = saved.engine(&graph);
    let calm = other.engine(&calm);
    let (end, beside) = tokio::join!(saved.start(&engine), other.start(&calm));
    let told = "`panics` failed: the node panicked: a note is missing";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(told)));
    assert_eq!((beside.status, notes(&beside.state)), (Status::Done, vec!["calm".to_owned()]));
}
