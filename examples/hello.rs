//! The smallest graph: one node, one field in, one field out.
//!
//! `cargo run --example hello`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state: its fields are the channels of the graph. A field that is `None` is not written.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hello {
    name: Option<String>,
    greeting: Option<String>,
}

async fn greet(state: Hello) -> Result<Hello, NodeError> {
    let name = state.name.unwrap_or_else(|| "nobody".to_owned());
    Ok(Hello { greeting: Some(format!("Hello, {name}!")), ..Hello::default() })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}

/// Runs the graph and returns the greeting.
pub async fn run() -> Result<String, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Hello>("hello")
        .node("greet", greet)
        .edge(START, "greet")
        .edge("greet", END)
        .compile()?;
    let end: Hello = graph.invoke(&Hello { name: Some("world".into()), greeting: None }).await?;
    Ok(end.greeting.unwrap_or_default())
}
