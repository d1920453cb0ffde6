//! The small repository that the recorded agents work on.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place},
    support::git::git,
};

/// Makes the repository `repo`, whose tests need a function that it does not have.
pub(crate) fn repository(place: &Place) {
    repository_of(place, "greeting", &["greet.py", "conftest.py", "tests/test_greet.py"]);
}

/// Makes the repository `repo` of files of a folder of recordings.
pub(crate) fn repository_of(place: &Place, folder: &str, files: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let from = root.join(folder);
    let to = place.path("repo");
    fs::create_dir_all(to.join("tests")).unwrap();
    for file in files {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    git(&to, &["init", "--quiet", "--initial-branch=main"]);
    git(&to, &["add", "--all"]);
    git(&to, &["commit", "--quiet", "--message", "first"]);
}

/// Executes a workflow of `graphs` on it with the recording of the same name.
pub(crate) fn execute(place: &Place, name: &str, run: &str, more: &[&str]) -> Ended {
    let at = |path: String| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let graph = at(format!("graphs/{name}.yaml"));
    let replay = at(format!("tests/recordings/{name}/farewell.jsonl"));
    let task = "task=Add farewell to greet.py, so that all tests pass.";
    let args = ["execute", &graph, "-i", "repo_path=repo", "-i", task, "--replay", &replay];
    place.run([&args[..], &["--run-id", run, "--output", "json"], more].concat())
}

/// Returns the nodes of a run that are named, in their order.
pub(crate) fn performed(report: &Value, named: &[&str]) -> String {
    let tasks = report["trace"].as_array().unwrap().iter();
    let nodes = tasks.map(|it| it["node"].as_str().unwrap());
    nodes.filter(|it| named.contains(it)).collect::<Vec<_>>().join(" ")
}

/// Writes a recording of answers, each with its node and the texts that its prompt has and lacks.
pub(crate) fn record(place: &Place, answers: &[(&str, &[&str], &[&str], Value)]) {
    let line = |(node, contains, lacks, reply): &(&str, &[&str], &[&str], Value)| {
        let when = json!({ "contains": contains, "lacks": lacks });
        json!({ "v": 1, "node": node, "when": when, "reply": reply }).to_string()
    };
    let lines: Vec<String> = answers.iter().map(line).collect();
    fs::write(place.path("replay.jsonl"), lines.join("\n")).unwrap();
}

/// The content of `greet.py` with which its tests pass.
pub(crate) const SOLVED: &str = "def greet(name: str) -> str:\n    return f\"Hello, {name}\"\n\n\n\
    def farewell(name: str) -> str:\n    name = name.strip()\n    return f\"Goodbye, {name}\" if name else \"Goodbye\"\n";
