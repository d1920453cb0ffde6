//! `retry`: only failed tasks run again.

use std::fs;

use super::program::Place;

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
