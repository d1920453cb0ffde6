//! Descriptors that a shell leaves open for the program, or closed: none reaches generated code, and a closed stream is no
//! error.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::program::{Place, workflow};

const LOOKS: &str = "graphrun: 1
name: looks
state: { code: int }
sandboxes: { s: {} }
start: look
nodes:
  look: { run: [bash, -c, '! [[ -e /proc/self/fd/6 || -e /proc/self/fd/7 ]]'], in: s, then: end }
";

#[test]
fn a_descriptor_of_the_shell_reaches_no_sandbox() {
    let place = Place::new();
    fs::write(place.path("looks.yaml"), LOOKS).unwrap();
    // The numbers of the channel, which this node has not.
    let ended = with_shell(&place, "execute looks.yaml --db memory:", "6<looks.yaml 7<looks.yaml")
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Returns the program as a shell starts it with this end of the line.
fn with_shell(place: &Place, args: &str, end: &str) -> Command {
    let plain = place.command([""; 0]);
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("\"$0\" {args} {end}"), env!("CARGO_BIN_EXE_graphrun")]);
    shell.current_dir(place.path("")).stdin(Stdio::null()).env_clear();
    for (name, value) in plain.get_envs() {
        shell.envs(value.map(|it| (name, it)));
    }
    shell
}

/// A closed stream and a closed pipe change neither what a command does nor its exit code.
#[test]
fn closed_streams_do_not_change_the_exit_code() {
    let place = Place::new();
    for name in ["two_steps", "asks", "fails", "wrong"] {
        fs::copy(workflow(name), place.path(&format!("{name}.yaml"))).unwrap();
    }
    let begun = [("two_steps", "run-1", 0), ("asks", "run-2", 3)];
    for (name, run, code) in begun {
        let file = format!("{name}.yaml");
        let begun = place.run(["execute", &file, "-i", "brief=x", "--run-id", run]);
        assert_eq!(begun.code, code, "{begun}");
    }
    for (code, args) in [
        (0, "execute two_steps.yaml -i brief=x"),
        (0, "execute two_steps.yaml -i brief=x --output json"),
        (0, "execute two_steps.yaml -i brief=x --output jsonl"),
        (3, "execute asks.yaml -i brief=x"),
        (1, "execute fails.yaml -i brief=x"),
        (2, "execute missing.yaml"),
        (2, "execute"),
        (3, "resume run-2"),
        (6, "resume missing"),
        (6, "retry run-1"),
        (0, "fork run-1@1"),
        (0, "chat two_steps.yaml"),
        (0, "validate two_steps.yaml"),
        (2, "validate wrong.yaml"),
        (0, "fmt two_steps.yaml"),
        (0, "plan two_steps.yaml"),
        (0, "graph two_steps.yaml"),
        (0, "runs list"),
        (0, "runs show run-1"),
        (0, "runs events run-1 --output jsonl"),
        (0, "runs state run-1"),
        (0, "runs history run-1"),
        (0, "runs export run-1"),
        (0, "runs verify run-1"),
        (0, "memory list"),
        (0, "schema workflow"),
        (0, "explain GR001"),
        (0, "completions bash"),
        (0, "init"),
        (0, "--version"),
        (0, "execute --help"),
    ] {
        let ends = [
            ">&- 2>/dev/null",
            "2>&- >/dev/null",
            "<&- >&- 2>&-",
            "2>/dev/null | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}",
            "2>&1 | true; exit ${PIPESTATUS[0]}",
        ];
        for end in ends {
            let status = with_shell(&place, args, end).status().unwrap();
            assert_eq!(status.code(), Some(code), "{args} {end}");
        }
    }
}
