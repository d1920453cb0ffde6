//! A loop whose route is a function over the typed state, with a required bound.
//!
//! `cargo run --example typed_routing`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Draws a number near a target and corrects itself until it is near enough.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Search {
    target: Option<f64>,
    guess: Option<f64>,
    verdict: Option<Verdict>,
    /// Every guess, in order: two nodes may write it, because `append` settles it.
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    history: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    TooFar,
    Near,
}

#[derive(Deserialize, JsonSchema)]
struct Before {
    target: f64,
    guess: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Guessed {
    guess: f64,
    history: Vec<f64>,
}

/// Newton's step for the square root of the target.
async fn guess(reads: Before) -> Result<Guessed, NodeError> {
    let last = reads.guess.unwrap_or(reads.target);
    let guess = f64::midpoint(last, reads.target / last);
    Ok(Guessed { guess, history: vec![guess] })
}

#[derive(Deserialize, JsonSchema)]
struct Attempt {
    target: f64,
    guess: f64,
}

#[derive(Serialize, JsonSchema)]
struct Judged {
    verdict: Verdict,
}

async fn judge(reads: Attempt) -> Result<Judged, NodeError> {
    let off = (reads.guess * reads.guess - reads.target).abs();
    Ok(Judged { verdict: if off < 1e-9 { Verdict::Near } else { Verdict::TooFar } })
}

#[derive(Deserialize, JsonSchema)]
struct Verdicts {
    verdict: Verdict,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", run(2.0).await?);
    Ok(())
}

/// Returns the guesses that led to the square root of `target`.
pub async fn run(target: f64) -> Result<Vec<f64>, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Search>("square_root")
        .input("target")
        .node("guess", guess)
        .node("judge", judge)
        .edge(START, "guess")
        .edge("guess", "judge")
        .route("judge", ["guess", END], |state: &Verdicts| match state.verdict {
            Verdict::TooFar => "guess",
            Verdict::Near => END,
        })
        // Without a bound on this loop the graph does not compile.
        .max_visits("guess", 20, FAIL)
        .compile()?;
    let input = Search { target: Some(target), ..Search::default() };
    Ok(graph.invoke::<Search>(&input).await?.history)
}
