//! Two runs of a workflow: the second one recalls what the first one has learnt.
//!
//! `cargo run --example memory`. The store is in the memory of this process; `SqliteStore` keeps
//! entries in a file.

use std::{error::Error, path::Path, sync::Arc};

use graphrun::{
    compile::compile,
    engine::Engine,
    memory::{InMemoryStore, Memory},
    nodes::{Services, factory},
    registry, workflow,
};
use serde_json::{Value, json};

/// Works on a task and learns a lesson. Returns the lessons of earlier runs.
async fn work(memory: &Memory, task: &str, lesson: &str) -> Result<Value, Box<dyn Error>> {
    let services = Services { memory: memory.clone(), ..Services::offline() };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/memory.yaml");
    let (workflow, _) = workflow::load(&path, &registry())?;
    let graph = compile(workflow.into_graph(&factory(services, registry())))?;
    let end = Engine::new(graph).run(&json!({ "task": task, "lesson": lesson })).await?;
    Ok(end.state.get("known").cloned().unwrap_or_default())
}

/// Returns the lessons that the second run knows.
pub async fn run() -> Result<Value, Box<dyn Error>> {
    let memory = Memory::new(Arc::new(InMemoryStore::default()));
    work(&memory, "write the parser", "The parser needs a limit on its depth").await?;
    work(&memory, "speed up the parser", "Measure before you change anything").await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}
