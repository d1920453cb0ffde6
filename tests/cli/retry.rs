//! `retry`: only failed tasks run again.

use std::fs;

use serde_json::Value;

use super::{
    killed::killed,
    program::{Ended, Place},
};

/// Reads two files in parallel, each by a tool that fails while its file is missing.
const READS: &str = r#"graphrun: 1
name: reads
state: { left: string, right: string, both: string }
output: both
tools: { fs: { root: . } }
start: reads
nodes:
  reads: { parallel: [left, right], then: both }
  left: { tool: fs.read, args: { path: '"left.txt"' }, writes: { left: text } }
  right: { tool: fs.read, args: { path: '"right.txt"' }, writes: { right: text } }
  both: { set: { both: left + right }, then: end }
"#;

/// Creates a folder with a run that failed because both files are missing.
fn failed() -> Place {
    let place = Place::new();
    fs::write(place.path("reads.yaml"), READS).unwrap();
    let ended = place.run(["execute", "reads.yaml", "--run-id", "run-1"]);
    assert_eq!(ended.code, 1, "{ended}");
    place
}

#[test]
fn a_mended_run_is_retried_node_by_node_or_as_a_whole() {
    let place = failed();
    let shown = place.run(["runs", "show", "run-1", "--output", "json"]).json();
    let nodes = ["left", "right"];
    for (at, node) in nodes.iter().enumerate() {
        let failure = &shown["failures"][at];
        assert_eq!((&failure["node"], &failure["kind"]), (&(*node).into(), &"tool".into()));
        assert_eq!(failure["class"], "permanent");
    }

    fs::write(place.path("left.txt"), "l").unwrap();
    fs::write(place.path("right.txt"), "r").unwrap();
    let ended = place.run(["retry", "run-1", "--node", "left", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["failures"][0]["node"]), (1, &"right".into()), "{ended}");
    let ended = place.run(["retry", "run-1", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["state"]["both"]), (0, &"lr".into()), "{ended}");
    let trace = ended.json()["trace"].clone();
    let of = |node: &str| {
        let lines = trace.as_array().unwrap().iter().filter(|it| it["node"] == node);
        lines.map(|it| it["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("left"), ["failed", "finished"]);
    assert_eq!(of("right"), ["failed", "finished"]);
}

#[test]
fn a_node_of_a_used_workflow_is_retried_by_its_name() {
    let place = failed();
    let outer = "graphrun: 1\nname: outer\nstate: { both: string }\noutput: both\nstart: part\nnodes:\n  \
                 part: { use: { workflow: reads.yaml, out: { both: both } }, then: end }\n";
    fs::write(place.path("outer.yaml"), outer).unwrap();
    assert_eq!(place.run(["execute", "outer.yaml", "--run-id", "run-2"]).code, 1);
    fs::write(place.path("left.txt"), "l").unwrap();
    let ended = place.run(["retry", "run-2", "--node", "part.left", "--output", "json"]);
    let failures = &ended.json()["failures"];
    assert_eq!((ended.code, &failures[0]["node"]), (1, &"part.right".into()), "{ended}");
    let updated = ["runs", "update", "run-2", "--as", "part.right", "--set", "both=\"x\""];
    assert!(!place.run(updated).stderr.contains("not the name of a node"));
}

#[test]
fn an_impossible_retry_is_refused_with_exit_6_and_a_remedy() {
    let place = failed();
    insta::assert_snapshot!(place.run(["retry", "run-1", "--node", "both"]), @r"
    exit 6
    stdout:
    stderr:
    error: `both` did not fail; the failed nodes are `left`, `right`
    help: without `--node`, all failed tasks run again
    ");
    fs::write(place.path("left.txt"), "l").unwrap();
    fs::write(place.path("right.txt"), "r").unwrap();
    assert_eq!(place.run(["resume", "run-1"]).code, 0, "resume does as retry does");
    insta::assert_snapshot!(place.run(["retry", "run-1"]), @r"
    exit 6
    stdout:
    stderr:
    error: the run is done, and only failed runs can be retried
    help: start a new run to repeat its work
    ");
}

/// Reads a file, and tries twice while it is missing.
const READS_TWICE: &str = r#"graphrun: 1
name: reads
state: { text: string }
output: text
tools: { fs: { root: . } }
start: read
nodes:
  read:
    tool: fs.read
    args: { path: '"text.txt"' }
    writes: { text: text }
    retry: { attempts: 2, initial: 1ms, on: [tool] }
    then: end
"#;

/// Returns the numbers of the attempts that began, by the events.
fn started(ended: &Ended) -> Vec<u64> {
    let events = ended.stdout.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let started = events.filter(|it| it["type"] == "task.started");
    started.map(|it| it["attempt"].as_u64().unwrap()).collect()
}

/// Returns the numbers of the attempts that began, by the progress in the terminal.
fn shown_as_started(ended: &Ended) -> Vec<u64> {
    let lines = ended.stderr.lines().filter_map(|it| it.split_once("read started"));
    lines
        .map(|(_, rest)| rest.strip_prefix(", attempt ").map_or(1, |it| it.parse().unwrap()))
        .collect()
}

/// A crash repeats an attempt under its number. `resume` of a failed run begins at 1.
#[test]
fn an_attempt_has_the_same_number_in_every_output() {
    let place = Place::new();
    fs::write(place.path("reads.yaml"), READS_TWICE).unwrap();
    let failed = place.run(["execute", "reads.yaml", "--run-id", "run-1", "--output", "jsonl"]);
    assert_eq!((failed.code, started(&failed)), (1, vec![1, 2]), "{failed}");
    assert_eq!(shown_as_started(&failed), [1, 2], "{failed}");
    killed(&place, &["resume", "run-1"], "task.before_run=abort@2");
    fs::write(place.path("text.txt"), "t").unwrap();
    let done = place.run(["resume", "run-1", "--output", "jsonl"]);
    assert_eq!((done.code, started(&done)), (0, vec![2]), "{done}");
    assert_eq!(shown_as_started(&done), [2], "{done}");
    let events = place.run(["runs", "events", "run-1", "--output", "jsonl"]);
    // The process died before it saved the second beginning of the second attempt.
    assert_eq!(started(&events), [1, 2, 1, 2], "{events}");
    let report = place.run(["runs", "show", "run-1", "--output", "json"]).json();
    let trace = report["trace"].as_array().unwrap().iter();
    let trace: Vec<_> = trace.map(|it| (it["attempt"].as_u64(), it["outcome"].as_str())).collect();
    assert_eq!(trace, [(Some(2), Some("failed")), (Some(2), Some("finished"))]);
}
