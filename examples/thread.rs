//! A conversation: each turn of a thread adds input to the state that the turns before it have left.
//!
//! `cargo run --example thread`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state: the new line, and all lines so far.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat {
    line: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    history: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Lines {
    history: Vec<String>,
}

async fn reply(chat: Chat) -> Result<Lines, NodeError> {
    let line = chat.line.unwrap_or_default();
    let reply = match chat.history.first() {
        None => format!("Hello, {line}."),
        Some(name) => format!("You are {name}."),
    };
    Ok(Lines { history: vec![line, reply] })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run(&["Ada", "Tell my name."]).await? {
        println!("{line}");
    }
    Ok(())
}

/// Takes a turn for each line, and returns the whole conversation.
pub async fn run(lines: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Chat>("chat").node("reply", reply);
    let engine = Engine::new(graph.edge(START, "reply").edge("reply", END).compile()?);
    let mut history = Vec::new();
    for line in lines {
        let input = Chat { line: Some((*line).to_owned()), ..Chat::default() };
        history = engine.turn("ada", &input).await?.output::<Chat>()?.history;
    }
    Ok(history)
}
