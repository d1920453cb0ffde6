//! An agent that calls a function of the library user before it answers.
//!
//! `cargo run --example agent_tool`. The model is a recording; `graphrun::models::from_env` replaces
//! it with a real one.

use std::{error::Error, path::Path, sync::Arc};

use graphrun::{
    compile::compile,
    engine::Engine,
    models::{ChatModel, ModelError, Replay},
    nodes::{ModelSource, Services, factory},
    registry,
    tool::{ToolContext, ToolError, tool_fn},
    workflow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the tool takes: a model is shown this as a JSON Schema, with the comments.
#[derive(Deserialize, JsonSchema)]
struct Article {
    /// The kind of hat, such as `bowler`.
    article: String,
}

/// The output.
#[derive(Serialize, JsonSchema)]
struct Stock {
    pieces: u32,
}

/// Errors are returned to the model, which can correct its call or report them.
async fn count(input: Article, _: ToolContext) -> Result<Stock, ToolError> {
    match input.article.as_str() {
        "bowler" => Ok(Stock { pieces: 3 }),
        "boater" => Ok(Stock { pieces: 0 }),
        other => Err(ToolError::permanent(format!("there is no `{other}`"))),
    }
}

/// One model for every agent.
#[derive(Debug)]
struct Recorded(Arc<Replay>);

impl ModelSource for Recorded {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}

/// Asks the clerk.
pub async fn run(question: &str) -> Result<String, Box<dyn Error>> {
    let tool = tool_fn("stock.count", "Counts the hats of a kind that are in stock.", count);
    let registry = registry().tool(Arc::new(tool));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let models = Arc::new(Recorded(Arc::new(Replay::load(folder.join("agent_tool.jsonl"))?)));
    let services = Services { models, ..Services::offline() };

    let (workflow, _) = workflow::load(&folder.join("agent_tool.yaml"), &registry)?;
    let graph = compile(workflow.into_graph(&factory(services, registry)))?;
    let engine = Engine::new(graph);
    let end = engine.run(&serde_json::json!({ "question": question })).await?;
    let answer = end.state.get("answer").and_then(|it| it.as_str());
    Ok(answer.unwrap_or_default().to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run("Have you a bowler, or a fez?").await?);
    Ok(())
}
