//! Every example runs and prints the result that it documents.

use serde_json::json;

#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/agent_tool.rs"]
pub(crate) mod agent_tool;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/custom_node.rs"]
mod custom_node;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/hello.rs"]
mod hello;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/human_in_the_loop.rs"]
mod human_in_the_loop;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/map_reduce.rs"]
mod map_reduce;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/memory.rs"]
mod memory;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/streaming.rs"]
mod streaming;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/subgraph.rs"]
mod subgraph;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/sweep_exchanges.rs"]
mod sweep_exchanges;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/thread.rs"]
mod thread;
#[expect(dead_code, unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/typed_routing.rs"]
mod typed_routing;

#[tokio::test]
async fn hello_greets() {
    assert_eq!(hello::run().await.unwrap(), "Hello, world!");
}

#[tokio::test]
async fn agent_tool_looks_before_it_answers() {
    let answer = agent_tool::run("Have you a bowler, or a fez?").await.unwrap();
    assert_eq!(answer, "We have three bowlers, and no fez.");
}

#[tokio::test]
async fn custom_node_serves_a_yaml_workflow() {
    assert_eq!(custom_node::run("To be, or not to be. That is it!").await.unwrap(), "short");
    let long = "and so ".repeat(30);
    assert_eq!(custom_node::run(&long).await.unwrap(), "long");
}

#[tokio::test]
async fn memory_is_shared_by_runs() {
    let known = memory::run().await.unwrap();
    assert_eq!(known, json!(["The parser needs a limit on its depth"]));
}

#[tokio::test]
async fn typed_routing_loops_until_the_guess_is_near() {
    let guesses = typed_routing::run(2.0).await.unwrap();
    assert_eq!(guesses.len(), 4, "{guesses:?}");
    assert!((guesses[3] - std::f64::consts::SQRT_2).abs() < 1e-9);
}

#[tokio::test]
async fn map_reduce_keeps_the_order_in_which_items_were_sent() {
    let texts = ["to be or not to be", "that is the question", "", "aye"];
    assert_eq!(map_reduce::run(&texts).await.unwrap(), (vec![6, 4, 0, 1], 11));
}

#[tokio::test]
async fn subgraph_runs_a_loop_for_each_item() {
    let texts = ["a bridge opens in spring", "short", "the council has met again today"];
    let headlines = subgraph::run(&texts).await.unwrap();
    assert_eq!(headlines, ["a bridge", "short", "the council"]);
}

#[tokio::test]
async fn thread_remembers_the_first_turn() {
    let history = thread::run(&["Ada", "Tell my name."]).await.unwrap();
    assert_eq!(history, ["Ada", "Hello, Ada.", "Tell my name.", "You are Ada."]);
}

#[tokio::test]
async fn streaming_shows_progress_before_the_end() {
    let seen = streaming::run().await.unwrap();
    let expected =
        ["line 1 is there", "line 2 is there", "write has finished", "the river / under ice"];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn human_in_the_loop_waits_refuses_and_continues() {
    let told = human_in_the_loop::run(json!(false)).await.unwrap();
    insta::assert_snapshot!(told.join("\n"), @r#"
    Ship this? two fixes
    the answer to `ship` does not fit: "perhaps" is not of type "boolean"
    shipped: Some(false)
    "#);
}

/// The exchanges in a form that its simple reader does not have.
const UNCOMMON: [&str; 25] = [
    "anthropic_context",
    "cut_off_context_window",
    "disguised_text_error_in_choice",
    "no_content_harmony",
    "ok_content_object",
    "ok_harmony",
    "ok_old_completion",
    "ok_usage_other_names",
    "ok_wrong_types",
    "refusal_part",
    "responses_commentary",
    "responses_commentary_alone",
    "responses_stream_no_output",
    "stream_calls_no_index",
    "stream_calls_old",
    "stream_calls_repeated_at_end",
    "stream_calls_same_index",
    "stream_calls_same_index_no_ids",
    "stream_calls_same_index_objects",
    "stream_calls_same_index_pieces",
    "stream_error_raw",
    "stream_garbage",
    "stream_garbage_line",
    "stream_ok_crlf",
    "stream_ok_old_completion",
];

#[test]
fn sweep_exchanges_reads_the_replies_of_every_protocol() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/exchanges");
    let sweep = sweep_exchanges::sweep(folder.as_ref()).unwrap();
    let differing = sweep.problems.iter().map(|it| it.split(".json: ").next().unwrap());
    assert_eq!(differing.collect::<Vec<_>>(), UNCOMMON, "{:?}", sweep.problems);
    for protocol in ["chat", "responses", "anthropic", "gemini"] {
        for end in ["whole   answer", "whole   error", "stream  answer", "stream  error"] {
            let start = format!("{protocol:<10} {end}");
            assert!(sweep.counts.keys().any(|it| it.starts_with(&start)), "{start}");
        }
    }
}
