//! The events of a run, read while it runs, also by readers that are interrupted.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cli::program::{Place, Running, workflow};

/// Returns every event of the stopped run, as the program prints them.
fn all(place: &Place, database: &[&str]) -> Vec<String> {
    let ended = place.run([&["runs", "events", "run-1", "--output", "jsonl"], database].concat());
    assert_eq!(ended.code, 0, "{ended}");
    ended.stdout.lines().map(str::to_owned).collect()
}

fn follow(place: &Place, after: usize, database: &[&str]) -> Command {
    let after = after.to_string();
    let args = ["runs", "events", "run-1", "--follow", "--after", &after, "--output", "jsonl"];
    place.command([&args[..], database].concat())
}

/// Starts a follower and reads its stdout.
fn reader(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    (child, BufReader::new(stdout))
}

/// Follows a run in another process: once completely, and once with readers that are killed after
/// each event and restarted.
fn a_run_is_followed(database: &[&str]) {
    let place = Place::new();
    let workflow = workflow("three_steps");
    let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "run-1", "--output", "json"];
    let mut command = place.command([&execute[..], database].concat());
    command.env("GRAPHRUN_FAIL", "task.before_run=sleep(150)");
    let mut running = Running::of(command);
    running.wait_for("run-1");
    let whole = follow(&place, 0, database).stdout(Stdio::piped()).spawn().unwrap();

    let mut seen: Vec<String> = Vec::new();
    while seen.last().is_none_or(|it| !it.contains(r#""type":"run.finished""#)) {
        let (mut child, mut lines) = reader(follow(&place, seen.len(), database));
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.ends_with('\n'), "an event is a line: {line}");
        seen.push(line.trim_end().to_owned());
    }
    assert_eq!(running.end().0, Some(0));
    let whole = whole.wait_with_output().unwrap();
    assert!(whole.status.success());
    let whole = String::from_utf8(whole.stdout).unwrap();
    let all = all(&place, database);
    assert_eq!(seen, all);
    assert_eq!(whole.lines().collect::<Vec<_>>(), all);
    for (line, seq) in all.iter().zip(1_u64..) {
        assert_eq!(serde_json::from_str::<Value>(line).unwrap()["seq"], seq, "{line}");
    }
    // For a stopped run, it prints the existing events from any number on.
    for after in 0..=all.len() {
        let rest = follow(&place, after, database).output().unwrap();
        let rest = String::from_utf8(rest.stdout).unwrap();
        assert_eq!(rest.lines().collect::<Vec<_>>(), all[after..], "after {after}");
    }
}

#[test]
fn disconnected_readers_see_every_event_once() {
    a_run_is_followed(&[]);
}

#[test]
fn disconnected_readers_see_every_event_once_in_postgres() {
    let schema = crate::support::postgres::Schema::new();
    a_run_is_followed(&["--db", &schema.url()]);
}

#[test]
fn following_ends_with_the_process_that_is_followed() {
    let place = Place::new();
    let provider = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let running = Running::start(&place, &provider);
    let _call = provider.accept().unwrap();
    let list = place.run(["runs", "list", "--output", "json"]).json();
    let name = list[0]["name"].as_str().unwrap().to_owned();
    let mut command = place.command(["runs", "events", &name, "--follow"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    running.signal(Signal::SIGKILL);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && said.contains(&format!("graphrun resume {name}")), "{said}");
}

#[test]
fn a_followed_run_is_printed_event_by_event() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let refused = place.run(["runs", "events", &name, "--follow", "--output", "json"]);
    assert!(refused.code == 2 && refused.stderr.contains("jsonl"), "{refused}");
    let text = place.run(["runs", "events", &name, "--follow"]);
    assert_eq!(text.code, 0, "{text}");
    assert_eq!(text.stdout, place.run(["runs", "events", &name]).stdout);
}

#[test]
fn the_log_has_the_spans_that_its_filter_names() {
    let place = Place::new();
    let workflow = workflow("three_steps");
    let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "run-1"];
    let logged = place.run([&execute[..], &["--log", "graphrun=info"]].concat());
    assert_eq!(logged.code, 0, "{logged}");
    assert!(logged.stderr.contains("run{run=run-1 workflow="), "{logged}");
    assert!(logged.stderr.contains(":task{node="), "{logged}");
    assert!(!logged.stderr.contains("DEBUG"), "the filter names the level info: {logged}");
    let mut by_variable = place.command(["execute", &workflow, "-i", "brief=x"]);
    let ended = by_variable.env("RUST_LOG", "graphrun=info").output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && said.contains(":task{node="), "{said}");

    let refused = place.run(["runs", "list", "--log", "graphrun=often"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("`graphrun=often` is not a valid log filter"), "{refused}");
    // The variable is shared with other programs.
    let mut command = place.command(["runs", "list"]);
    command.env("RUST_LOG", "graphrun=often");
    assert!(command.status().unwrap().success());
}
