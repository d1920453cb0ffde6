//! `graphrun init`: a workflow as a starting point.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::program::Place;
use crate::support::some_of;

/// Returns the templates that `graphrun init` lists, each with its pattern.
fn templates() -> Vec<(String, String)> {
    let listed = Place::new().run(["init", "--output", "json"]);
    assert_eq!(listed.code, 0, "{listed}");
    let text = |template: &Value, key: &str| template[key].as_str().expect(key).to_owned();
    let listed = listed.json()["templates"].as_array().expect("a list").clone();
    listed.iter().map(|it| (text(it, "name"), text(it, "pattern"))).collect()
}

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
    for (template, pattern) in some_of(3, templates()) {
        let place = Place::new();
        let made = place.run(["init", &template, "new", "--output", "json"]);
        assert_eq!(made.code, 0, "{made}");
        let made = made.json();
        let (code, said) = shell(&place, &format!("graphrun validate --strict {template}.yaml"));
        assert_eq!(code, Some(0), "{template}: {said}");
        let commands: Vec<&str> =
            made["commands"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let has = |start: &str| commands.iter().any(|it| it.starts_with(start));
        assert!(has("graphrun test ") && has("graphrun execute "), "{template}: {commands:?}");
        if pattern != "team" {
            assert!(has(&format!("graphrun test {template}.yaml --coverage")), "{commands:?}");
        }
        let mut calls = 0;
        for command in &commands {
            let (code, said) = shell(&place, command);
            let expected = expected(command, &pattern, &said);
            assert_eq!(code, Some(expected), "{template}: {command}\n{said}");
            if command.contains("--coverage") {
                assert!(said.contains("100%"), "{template} has ways without a case: {said}");
            }
            // The summary of a turn counts its own calls.
            let of_thread = if command.contains(" --thread ") { calls } else { 0 };
            calls = calls.max(of_thread + called(&said));
        }
        // The recordings of the systems have memory, too, and ways that they do not take here.
        let recording = fs::read_to_string(place.path("new/recording.jsonl"));
        assert!(pattern != "team" || recording.is_ok(), "{template} runs without a key");
        if let Some(recording) = recording.ok().filter(|_| pattern != "team") {
            assert_eq!(
                recording.lines().count(),
                calls,
                "each recorded answer is used: {template}"
            );
        }
    }
}

/// Returns the code with which a command of a template must end on a machine without keys and without a person.
fn expected(command: &str, pattern: &str, said: &str) -> i32 {
    let is_recorded = command.contains("--replay");
    if pattern == "team" && command.starts_with("graphrun execute ") && !is_recorded {
        // Nothing but the keys is missing: the workflow loads and the input fits.
        assert!(said.contains("no key for openai"), "{command}: {said}");
        return 5;
    }
    if said.contains(" asks: ") {
        let mut answered =
            ["or with: graphrun approve ", "answer it with: graphrun resume "].iter();
        assert!(answered.any(|it| said.contains(it)), "{said}");
        return 3;
    }
    0
}

/// Returns the number of calls of models that a summary reports.
fn called(said: &str) -> usize {
    let line = said.lines().find_map(|it| it.trim_start().strip_prefix("models  "));
    let count = line.and_then(|it| it.split(' ').next()).map(str::parse);
    count.map_or(0, |it| it.expect("the summary counts the calls"))
}

#[test]
fn without_a_template_all_are_listed_and_none_is_written() {
    let place = Place::new();
    let listed = place.run(["init"]);
    assert_eq!(listed.code, 0, "{listed}");
    insta::assert_snapshot!("templates", listed.stdout);
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0, "it wrote something");
}

#[test]
fn a_pattern_is_another_name_of_its_template() {
    let templates = templates();
    let of_patterns = templates.iter().filter(|it| it.1 != "team");
    for (template, pattern) in of_patterns.clone() {
        let place = Place::new();
        assert_eq!(place.run(["init", pattern]).code, 0, "{pattern}");
        assert!(place.path(&format!("{template}.yaml")).exists(), "{pattern} is {template}");
    }
    assert_eq!(of_patterns.count(), 8);
    let team = Place::new().run(["init", "team"]);
    assert_eq!(team.code, 2, "several templates are teams: {team}");
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
