//! A user's program runs every command with its nodes. This test starts itself as that program.

use std::process::{Command, ExitCode, Output};

#[expect(unreachable_pub, reason = "it is also a separate program")]
#[path = "../examples/own_program.rs"]
mod own_program;

/// Set for the process that is the program.
const IS_PROGRAM: &str = "GRAPHRUN_TEST_OWN_PROGRAM";

const WORKFLOW: &str = "examples/custom_node.yaml";

const CASES: &str = "graphrun_test: 1
workflow: own.yaml
cases:
  - name: a short text
    input: { text: a b }
    nodes: { count: { counts: { words: 2, sentences: 1 } } }
    expect: { status: done, state: { verdict: short } }
";

fn main() -> ExitCode {
    if std::env::var_os(IS_PROGRAM).is_some() {
        return own_program::main();
    }
    let valid = run(&["validate", WORKFLOW]);
    assert!(valid.status.success(), "{valid:?}");

    let text = "text=To be, or not to be. That is it!";
    let line = ["execute", WORKFLOW, "-i", text, "--db", "memory:", "--output", "json"];
    let executed = run(&line);
    let printed = String::from_utf8_lossy(&executed.stdout);
    assert!(executed.status.success() && printed.contains("\"short\""), "{executed:?}");

    let drawn = run(&["graph", WORKFLOW]);
    assert!(String::from_utf8_lossy(&drawn.stdout).contains("count"), "{drawn:?}");
    let planned = run(&["plan", WORKFLOW, "--output", "json"]);
    assert!(String::from_utf8_lossy(&planned.stdout).contains("\"count\""), "{planned:?}");
    // A test case gives the result of the node.
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let [copy, cases] = ["own.yaml", "own.test.yaml"].map(|it| folder.path().join(it));
    std::fs::copy(WORKFLOW, copy).expect("it is a file");
    std::fs::write(&cases, CASES).expect("the folder takes files");
    let tested = run(&["test", &cases.to_string_lossy()]);
    assert!(tested.status.success(), "{tested:?}");

    // It does not load with a field of another type than the node reads.
    let other = std::fs::read_to_string(WORKFLOW).expect("it is a file");
    let other = other.replace("text: string", "text: int");
    let file = folder.path().join("other.yaml");
    std::fs::write(&file, other).expect("the folder takes files");
    let refused = run(&["validate", &file.to_string_lossy()]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    let printed = format!("{printed}{}", String::from_utf8_lossy(&refused.stdout));
    assert!(printed.contains("reads `text` as `string`, and the field is `int`"), "{printed}");

    // The same file does not load without the node.
    let graphrun =
        Command::new(env!("CARGO_BIN_EXE_graphrun")).args(["validate", WORKFLOW]).output();
    assert!(!graphrun.expect("the program is built").status.success());
    ExitCode::SUCCESS
}

fn run(line: &[&str]) -> Output {
    let this = std::env::current_exe().expect("this program has a path");
    let program = Command::new(this).args(line).env(IS_PROGRAM, "1").output();
    program.expect("this program can start itself")
}
