//! A node asks a person; the run is saved and resumes with the answer.
//!
//! `cargo run --example human_in_the_loop`

use std::{collections::BTreeMap, error::Error, sync::Arc};

use graphrun::{
    checkpoint::RunInfo,
    compile::compile,
    engine::{Engine, Stop},
    event::{EventSink, Status},
    graph::{GraphBuilder, NodeContext, NodeError, Question, node_fn},
    state::Update,
    storage::MemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Release {
    notes: Option<String>,
    shipped: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
struct Notes {
    notes: String,
}

#[derive(Serialize, JsonSchema)]
struct Shipped {
    shipped: bool,
}

/// Runs twice: first up to the question, then from its start with the answer.
async fn ship(reads: Notes, ctx: NodeContext) -> Result<Shipped, NodeError> {
    let question = Question::new("ship", format!("Ship this? {}", reads.notes))
        .with_schema(json!({"type": "boolean"}));
    let shipped = ctx.ask(question)?;
    Ok(Shipped { shipped })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run(json!(true)).await? {
        println!("{line}");
    }
    Ok(())
}

/// Runs up to the question, then answers it; returns a line for each event.
pub async fn run(answer: Value) -> Result<Vec<String>, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Release>("release")
        .input("notes")
        .node("ship", node_fn(ship))
        .entry("ship")
        .then("ship", "end");
    let (graph, _warnings) = compile(graph.build())?;
    let engine = Engine::new(graph, Arc::new(MemoryStorage::default()));

    let info = RunInfo::new("release");
    let run = info.id.clone();
    let input = Update::of(&Release { notes: Some("two fixes".into()), ..Release::default() })?;
    let paused = engine.start(info, input, EventSink::default(), &Stop::default()).await?;
    assert_eq!(paused.status, Status::Paused);
    let mut told: Vec<String> =
        paused.questions.iter().map(|it| it.question.prompt.clone()).collect();

    // An invalid answer is refused, and the question stays open.
    let wrong = BTreeMap::from([("ship".to_owned(), json!("perhaps"))]);
    if let Err(refused) = engine.resume(&run, wrong, EventSink::default(), &Stop::default()).await {
        told.push(refused.to_string());
    }
    let answers = BTreeMap::from([("ship".to_owned(), answer)]);
    let end = engine.resume(&run, answers, EventSink::default(), &Stop::default()).await?;
    told.push(format!("shipped: {:?}", end.state.read::<Release>()?.shipped));
    Ok(told)
}
