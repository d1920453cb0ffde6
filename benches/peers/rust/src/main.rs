//! The workloads of `benches/engine.rs` and `benches/durable` in graph crates of others.
//!
//! `peers CRATE [ROW]…` measures one crate, in a process for it alone, and prints a JSON object for each row. `../run`
//! calls it. The rows have the names of our benchmarks, and each run checks the same result.

mod measure;
mod with_graph_flow;
mod with_juncture;
mod with_langgraph;

use measure::Measure;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let measure = Measure::new(arguments.collect());
    match name.as_str() {
        "graph-flow" => with_graph_flow::measure(&measure),
        "juncture" => with_juncture::measure(&measure),
        "langgraph" => with_langgraph::measure(&measure),
        _ => panic!("expected graph-flow, juncture or langgraph, found {name:?}"),
    }
}
