//! Streams, colours and help of every command.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::cli::program::{Place, workflow};

#[test]
fn help_and_the_check_of_fifty_nodes_leave_stderr_empty() {
    let place = Place::new();
    fs::write(place.path("fifty.yaml"), chain(50)).unwrap();
    for args in [&["--help"][..], &["validate", "fifty.yaml"]] {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended}");
    }
}

#[test]
fn colours_are_only_where_they_are_asked_for() {
    let place = Place::new();
    let run = |color: &str| {
        let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--color", color];
        place.run(args).stdout.contains('\u{1b}')
    };
    assert!(run("always") && !run("auto") && !run("never"));
    let help = |color: &str| place.run(["--help", color]).stdout.contains('\u{1b}');
    assert!(help("--color=always") && !help("--color=never"));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let place = Place::new();
    for args in [
        vec!["--help".to_owned()],
        vec!["execute".into(), workflow("two_steps"), "-i".into(), "brief=x".into()],
        vec!["completions".into(), "bash".into()],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(&args);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("panic"), "{args:?}: {stderr}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = place.run(["completions", shell]);
        assert!(ended.code == 0 && ended.stdout.contains("execute"), "{shell}: {ended}");
    }
}

#[test]
fn the_exit_code_of_doctor_is_the_result_of_its_checks() {
    let ended = Place::new().run(["doctor", "--output", "json"]);
    let checks = ended.json();
    let names: Vec<&Value> = checks.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["sandbox", "python", "models", "database", "folders", "settings"]);
    // The tests run without any key.
    assert_eq!((&checks[2]["ok"], ended.code), (&json!(false), 5), "{ended}");
    assert!(checks[2]["help"].as_str().unwrap().contains("OPENAI_API_KEY"));
}

#[test]
fn a_workflow_without_models_needs_no_key() {
    let ended = Place::new().run(["doctor", &workflow("two_steps"), "--output", "json"]);
    let checks = ended.json();
    let mut models = checks.as_array().unwrap().iter().filter(|it| it["name"] == "models");
    assert_eq!(models.next().unwrap()["ok"], json!(true), "{ended}");
    let ended = Place::new().run(["doctor", &workflow("agent"), "--output", "json"]);
    assert_eq!(ended.json()[2]["ok"], json!(false), "{ended}");
}

#[test]
fn a_run_without_events_has_a_line_in_jsonl() {
    let place = Place::new();
    let name = place.execute("two_steps");
    for args in
        [&["resume", &*name][..], &["fork", &format!("{name}@1"), "--no-run", "--run-id", "f"]]
    {
        let ended = place.run([args, &["--output", "jsonl"]].concat());
        let line = ended.json();
        assert_eq!(line["type"], "run.left", "{ended}");
        assert!(line["status"].is_string() && ended.code == 0, "{ended}");
    }
}

/// Returns a workflow with a chain of nodes.
fn chain(length: usize) -> String {
    let mut text = "graphrun: 1\nname: chain\nstate: { brief: string, answer: string }\n\
        input: [brief]\noutput: [answer]\nstart: n1\nnodes:\n"
        .to_owned();
    for at in 1..=length {
        let next = if at == length { "end".to_owned() } else { format!("n{}", at + 1) };
        text.extend([format!("  n{at}: {{ set: {{ answer: brief }}, then: {next} }}\n")]);
    }
    text
}
