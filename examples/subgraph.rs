//! A graph as a node of another one: each item of a list is a nested run with its own steps.
//!
//! `cargo run --example subgraph`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of the inner graph: one text, which is shortened until it fits.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Headline {
    #[serde(default)]
    text: String,
}

async fn shorten(state: Headline) -> Result<Headline, NodeError> {
    let words: Vec<&str> = state.text.split(' ').collect();
    let text = words[..words.len().max(1) - 1].join(" ");
    Ok(Headline { text })
}

/// The state of the outer graph.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Page {
    #[serde(default)]
    texts: Vec<String>,
    /// The nested runs write it in the order of the texts.
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    headlines: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Headlines {
    headlines: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let texts = ["a bridge opens in spring", "short", "the council has met again today"];
    println!("{:?}", run(&texts).await?);
    Ok(())
}

/// Shortens each text to at most twelve characters.
pub async fn run(texts: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let fits = |state: &Headline| if state.text.len() <= 12 { END } else { "shorten" };
    let headline = GraphBuilder::new::<Headline>("headline")
        .node("shorten", shorten)
        .route(START, ["shorten", END], fits)
        .route("shorten", ["shorten", END], fits)
        .max_visits("shorten", 20, FAIL)
        .compile()?;
    let headline = subgraph(
        headline,
        |Item(text): Item<String>| Headline { text },
        |end: Headline| Headlines { headlines: vec![end.text] },
    );
    let graph = GraphBuilder::new::<Page>("page")
        .node("headline", headline.concurrency(4))
        .route(START, ["headline"], |page: &Page| {
            page.texts.iter().map(|it| dispatch("headline", it)).collect::<Vec<_>>()
        })
        .edge("headline", END)
        .compile()?;
    let texts = texts.iter().map(|it| (*it).to_owned()).collect();
    let page: Page = graph.invoke(&Page { texts, ..Page::default() }).await?;
    Ok(page.headlines)
}
