//! The time until the whole program responds, beside a program that does nothing.
//!
//! `cargo bench --bench startup`. Each line is the median of several starts; both sides alternate.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const ROUNDS: usize = 41;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let fifty = folder.path().join("fifty.yaml");
    std::fs::write(&fifty, chain(50)).unwrap();
    let fifty = fifty.to_str().unwrap();
    let database = format!("sqlite:{}", folder.path().join("runs.db").display());
    let execute = ["execute", fifty, "--db", &database, "--progress", "none"];
    let cases: [(&str, &[&str]); 4] = [
        ("--help", &["--help"]),
        ("validate, 50 nodes", &["validate", fifty]),
        ("execute, 50 nodes", &execute),
        ("validate dev_team.yaml", &["validate", "graphs/dev_team.yaml"]),
    ];
    println!("{:<24} {:>12} {:>12} {:>8}", "milliseconds", "graphrun", "true", "ratio");
    for (what, args) in cases {
        let mut ours = Vec::new();
        let mut floor = Vec::new();
        for _ in 0..ROUNDS {
            ours.push(started(env!("CARGO_BIN_EXE_graphrun"), args));
            floor.push(started("true", &[]));
        }
        let ours = median(ours);
        let floor = median(floor);
        println!("{what:<24} {ours:>12.2} {floor:>12.2} {:>8.1}", ours / floor);
    }
}

fn started(program: &str, args: &[&str]) -> Duration {
    let began = Instant::now();
    let status = Command::new(program).args(args).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{program} {args:?}: {status}");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Returns a workflow with a chain of nodes that each compute a field.
fn chain(nodes: usize) -> String {
    let mut text = "graphrun: 1\nname: chain\nstate: { count: { type: int, default: 0 } }\nstart: n0\nnodes:\n".to_owned();
    for at in 0..nodes {
        let next = if at + 1 < nodes { format!("n{}", at + 1) } else { "end".to_owned() };
        writeln!(text, "  n{at}: {{ set: {{ count: count + 1 }}, then: {next} }}").unwrap();
    }
    text
}
