//! Runs that receive a signal, or that two processes try to resume.

use std::{net::TcpListener, process::Command};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::cli::{
    program::{Place, Running, workflow},
    provider::answer,
};

#[test]
fn the_first_signal_lets_running_nodes_finish() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let mut run = Running::start(&place, &provider);
    // The call arrives before the signal, and the answer comes after it.
    let (mut call, _) = provider.accept().unwrap();
    run.signal(Signal::SIGINT);
    run.wait_for("no new node starts");
    answer(&mut call);
    let (code, object) = run.end();
    assert_eq!(object["trace"][0]["outcome"], "finished", "what ran was dropped");
    assert_eq!((code, &object["state"]["answer"]), (Some(0), &json!("42")));
}

#[test]
fn the_second_signal_leaves_a_resumable_run() {
    // A provider that accepts the call and never answers.
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 143)] {
        let place = Place::new();
        let mut run = Running::start(&place, &provider);
        run.wait_for("write started");
        run.signal(signal);
        run.wait_for("no new node starts");
        run.signal(signal);
        run.wait_for("graphrun resume");
        let (ended, object) = run.end();
        assert_eq!((ended, &object["status"]), (Some(code), &json!("interrupted")));
        // The run is found, and a requirement is missing: the key was removed.
        let resumed = place.run(["resume", object["name"].as_str().unwrap()]);
        assert!(resumed.code == 5 && resumed.stderr.contains("OPENAI_API_KEY"), "{resumed}");
    }
}

#[test]
fn a_program_that_may_outlive_its_terminal_does() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--output", "json"];
    let program = place.command(args);
    // As `nohup` does.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program.get_program());
    command.args(program.get_args()).current_dir(place.path("")).env_clear();
    command.envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
    command.env("OPENAI_BASE_URL", format!("http://{}/v1", provider.local_addr().unwrap()));
    let mut run = Running::of(command);
    let (mut call, _) = provider.accept().unwrap();
    run.signal(Signal::SIGHUP);
    run.signal(Signal::SIGINT);
    run.wait_for("interrupted: no new node starts");
    answer(&mut call);
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn a_second_owner_is_refused_with_the_name_of_the_first() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let first = Running::start(&place, &provider);
    let (mut call, _) = provider.accept().unwrap();
    let listed = place.run(["runs", "list", "--output", "json"]);
    let name = listed.json()[0]["name"].as_str().unwrap().to_owned();
    let owner = listed.json()[0]["owner"].as_str().unwrap().to_owned();
    let (pid, host) = owner.split_once('@').unwrap();
    assert_eq!(pid, first.id().to_string());
    let other = place.run(["resume", &name, "--replay", "/dev/null"]);
    let said = format!("owned by process {pid} on {host} since ");
    assert!(other.code == 6 && other.stderr.contains(&said), "{other}");
    answer(&mut call);
    assert_eq!(first.end().0, Some(0));
}
