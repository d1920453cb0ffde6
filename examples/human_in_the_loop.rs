//! A node asks a person; the run is saved and resumes with the answer.
//!
//! `cargo run --example human_in_the_loop`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Release {
    notes: Option<String>,
    shipped: Option<bool>,
}

/// What the node reads. A field that is not optional must be there before the node may run.
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
        .node("ship", ship)
        .edge(START, "ship")
        .edge("ship", END)
        .compile()?;
    let engine = Engine::new(graph);

    let input = Release { notes: Some("two fixes".into()), ..Release::default() };
    let paused = engine.run(&input).await?;
    assert_eq!(paused.status, Status::Paused);
    let mut told: Vec<String> =
        paused.questions.iter().map(|it| it.question.prompt.clone()).collect();

    // An invalid answer is refused, and the question stays open.
    if let Err(refused) = engine.resume(&paused.run).answer("ship", "perhaps").await {
        told.push(refused.to_string());
    }
    let end = engine.resume(&paused.run).answer("ship", answer).await?;
    told.push(format!("shipped: {:?}", end.output::<Release>()?.shipped));
    Ok(told)
}
