//! The program is killed at named points, as `kill -9` does, and another one goes on.

use std::os::unix::process::ExitStatusExt as _;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::program::{Place, workflow};

/// Runs the program with a fault that kills it.
fn killed(place: &Place, args: &[&str], fault: &str) {
    let output = place.command(args).env("GRAPHRUN_FAIL", fault).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(Signal::SIGKILL as i32), "{fault}: {said}");
}

#[test]
fn a_breakpoint_at_the_start_is_kept_whenever_the_program_dies() {
    for fault in
        ["accept.before_commit=abort", "accept.after_commit=abort", "event.publish=abort@1"]
    {
        let place = Place::new();
        let workflow = workflow("three_steps");
        let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "mine"];
        let execute = [&execute[..], &["--pause-before", "draft", "--pause-before", "publish"]];
        killed(&place, &execute.concat(), fault);
        let shown = place.run(["runs", "show", "mine", "--output", "json"]);
        if fault == "accept.before_commit=abort" {
            assert_eq!(shown.code, 6, "it was not accepted: {shown}");
            continue;
        }
        let report = shown.json();
        assert_eq!(report["status"], "paused", "{fault}: {shown}");
        assert_eq!(report["reason"], "it was to pause before `draft`", "{fault}");
        // Told to go on, it does, to the next one.
        let resumed = place.run(["resume", "mine", "--output", "json"]);
        assert_eq!(
            (resumed.code, &resumed.json()["state"]["log"]),
            (3, &json!(["draft", "check"]))
        );
    }
}
