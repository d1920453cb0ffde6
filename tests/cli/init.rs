//! `graphrun init`: a workflow as a starting point.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::program::Place;

const TEMPLATES: [&str; 8] =
    ["review", "approval", "research", "dev_team", "cycle", "lifecycle", "escalation", "autocode"];

/// Runs a shell line in which `graphrun` is the built program.
fn shell(place: &Place, line: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_graphrun");
    let script = format!("graphrun() {{ {program} \"$@\"; }}\n{line}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.path("new")).stdin(Stdio::null());
    command.envs(place.own_folders());
    let output = command.output().expect("there is a shell");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn each_template_is_valid_and_its_commands_work() {
    for template in TEMPLATES {
        let place = Place::new();
        let made = place.run(["init", template, "new", "--output", "json"]);
        assert_eq!(made.code, 0, "{made}");
        let made = made.json();
        let (code, said) = shell(&place, &format!("graphrun validate --strict {template}.yaml"));
        assert_eq!(code, Some(0), "{template}: {said}");
        let commands: Vec<&str> =
            made["commands"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(commands.len() >= 2, "{template}: {commands:?}");
        for command in commands {
            let (code, said) = shell(&place, command);
            // A test has no person at the terminal.
            let expected = if said.contains(" asks: ") { 3 } else { 0 };
            assert_eq!(code, Some(expected), "{template}: {command}\n{said}");
            if expected == 3 {
                assert!(said.contains("or with: graphrun approve "), "{said}");
            }
            if command.contains("--coverage") {
                assert!(said.contains("100%"), "{template} has ways without a case: {said}");
            }
            if command.contains("--replay") {
                let made = fs::read_to_string(place.path("new/recording.jsonl")).unwrap();
                let calls = format!("{} calls", made.lines().count());
                assert!(said.contains(&calls), "each recorded answer is used: {said}");
            }
        }
    }
}

#[test]
fn the_first_line_of_a_template_names_a_schema_that_is_there() {
    let place = Place::new();
    assert_eq!(place.run(["init", "approval"]).code, 0);
    let workflow = fs::read_to_string(place.path("approval.yaml")).unwrap();
    let line = workflow.lines().next().unwrap();
    let schema = line.strip_prefix("# yaml-language-server: $schema=").expect(line);
    let schema = fs::read_to_string(place.path(schema)).unwrap();
    assert_eq!(schema, place.run(["schema", "workflow"]).stdout);
}

#[test]
fn nothing_that_is_there_is_written_over() {
    let place = Place::new();
    fs::write(place.path("approval.yaml"), "mine").unwrap();
    let refused = place.run(["init", "approval"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("- ./approval.yaml"), "{refused}");
    assert!(!refused.stderr.contains("approval.test.yaml"), "only existing files: {refused}");
    assert_eq!(fs::read_to_string(place.path("approval.yaml")).unwrap(), "mine");
    assert!(!place.path("approval.test.yaml").exists(), "it wrote some of its files");
}

#[test]
fn an_unwritable_file_prevents_all_others() {
    let place = Place::new();
    fs::write(place.path("prompts"), "a file where a folder should be").unwrap();
    let refused = place.run(["init", "research"]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("could not write ./prompts/split.md"), "{refused}");
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1, "a partial result is removed");
}
