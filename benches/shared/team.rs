//! The shape of the example team: a story, a design, code, tests that fail twice, a review that asks for one more round.
//!
//! Its nodes are ready at once. The floor reads and writes the same state as JSON and calls the same nodes as boxed
//! futures, without a graph, rules or bounds.

use std::{future::Future, pin::Pin};

use graphrun::{
    compile::CompiledGraph,
    engine::{Engine, RunEnd},
    event::Status,
    graph::{Bounds, GraphBuilder, IntoNode, NodeError, Policies, START, Target, node_fn},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Team {
    story: Option<String>,
    design: Option<String>,
    #[serde(default)]
    code: u64,
    #[serde(default)]
    passed: bool,
    #[serde(default)]
    reviews: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Story {
    story: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Design {
    design: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Code {
    code: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Passed {
    passed: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Reviews {
    reviews: u64,
}

pub(crate) fn team() -> CompiledGraph {
    let bound = |max_visits| {
        Policies::from(Bounds {
            max_visits: Some(max_visits),
            exhausted: Some(Target::Fail),
            ..Bounds::default()
        })
    };
    let graph = GraphBuilder::new::<Team>("team")
        .node("ba", node_fn(|(): (), _| async { Ok::<_, NodeError>(Story { story: story() }) }))
        .node(
            "architect",
            node_fn(|it: Story, _| async move { Ok::<_, NodeError>(Design { design: it.story }) }),
        )
        .node(
            "sse",
            node_fn(|it: Code, _| async move { Ok::<_, NodeError>(Code { code: it.code + 1 }) })
                .with_policies(bound(10)),
        )
        .node(
            "tests",
            node_fn(
                |it: Code, _| async move { Ok::<_, NodeError>(Passed { passed: it.code > 2 }) },
            ),
        )
        .node(
            "qa",
            node_fn(|it: Reviews, _| async move {
                Ok::<_, NodeError>(Reviews { reviews: it.reviews + 1 })
            }),
        )
        .node("deliver", node_fn(|(): (), _| async { Ok::<_, NodeError>(()) }))
        .edge(START, "ba")
        .edge("ba", "architect")
        .edge("architect", "sse")
        .edge("sse", "tests")
        .route("tests", ["qa", "sse"], |it: &Passed| if it.passed { "qa" } else { "sse" })
        .route(
            "qa",
            ["deliver", "sse"],
            |it: &Reviews| {
                if it.reviews > 1 { "deliver" } else { "sse" }
            },
        )
        .edge("deliver", "end");
    graph.compile().unwrap()
}

fn story() -> String {
    "As a user, I want to add two numbers.".to_owned()
}

/// Drives a run and checks its end.
pub(crate) async fn run(engine: &Engine) {
    let RunEnd { status, position, state, .. } = engine.run(&()).await.unwrap();
    assert_eq!((status, position.step.0), (Status::Done, 13));
    assert_eq!(state.get("code"), Some(&json!(4)));
}

/// Does the same work by hand. `save` gets each update before the next node runs.
pub(crate) async fn run_by_hand(mut save: impl FnMut(&Value)) {
    type Done = Pin<Box<dyn Future<Output = Value> + Send>>;
    let node = |value: Value| -> Done { Box::pin(async move { value }) };
    let mut state: Map<String, Value> =
        [("code", json!(0)), ("passed", json!(false)), ("reviews", json!(0))]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect();
    let number = |state: &Map<String, Value>, name: &str| state[name].as_u64().unwrap_or_default();
    let mut write = |state: &mut Map<String, Value>, update: Value| {
        save(&update);
        super::write(state, update);
    };
    write(&mut state, node(json!({ "story": story() })).await);
    let design = state["story"].clone();
    write(&mut state, node(json!({ "design": design })).await);
    loop {
        let code = number(&state, "code");
        write(&mut state, node(json!({ "code": code + 1 })).await);
        write(&mut state, node(json!({ "passed": code + 1 > 2 })).await);
        if state["passed"] != json!(true) {
            continue;
        }
        let reviews = number(&state, "reviews");
        write(&mut state, node(json!({ "reviews": reviews + 1 })).await);
        if number(&state, "reviews") > 1 {
            break;
        }
    }
    write(&mut state, node(json!({})).await);
    assert_eq!(state["code"], json!(4));
}
