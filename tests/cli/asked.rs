//! The trust questions at a terminal: each is asked once, and only a yes means yes.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::cli::program::{Place, workflow};

/// Runs a program at a new terminal, and types an answer after each question.
const AT_A_TERMINAL: &str = r#"
import json, os, pty, signal, sys
answers = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    # A test runner in the background ignores it, and so would the program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
asked = 0
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    shown += part
    while sum(map(shown.count, (b"[y/N] ", b"one of these texts:", b"not accepted:"))) > asked:
        answer = answers[asked] if asked < len(answers) else "\x04"
        asked += 1
        os.write(terminal, answer.encode("latin-1"))
_, status = os.waitpid(child, 0)
code = os.waitstatus_to_exitcode(status)
json.dump({"code": code, "asked": asked, "shown": shown.decode(errors="replace")}, sys.stdout)
"#;

/// The output at the terminal, and the exit code.
#[derive(Debug)]
struct Seen {
    /// The exit code; negative for a signal.
    code: i64,
    /// The number of questions.
    asked: u64,
    shown: String,
}

fn at_terminal(place: &Place, folder: &Path, args: &[&str], answers: &[&str]) -> Seen {
    at_terminal_with(place, folder, args, answers, ("CI", ""))
}

fn at_terminal_with(
    place: &Place,
    folder: &Path,
    args: &[&str],
    answers: &[&str],
    variable: (&str, &str),
) -> Seen {
    let program = place.command(args);
    let mut command = Command::new("python3");
    command.args(["-c", AT_A_TERMINAL, &json!(answers).to_string()]);
    command.arg(program.get_program()).args(program.get_args()).env_clear();
    command.envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
    command.env("TERM", "xterm").env("OPENAI_API_KEY", "sk-secret").env(variable.0, variable.1);
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no terminal could be made with Python: {stderr}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    Seen {
        code: seen["code"].as_i64().unwrap(),
        asked: seen["asked"].as_u64().unwrap(),
        shown: seen["shown"].as_str().unwrap().to_owned(),
    }
}

/// Creates a cloned folder of this name, whose file places the database outside of it.
fn clone_at(place: &Place, name: &str) -> PathBuf {
    let folder = place.path(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("graphrun.toml"), "db = \"sqlite:../runs.db\"\n").unwrap();
    folder
}

const LIST: [&str; 4] = ["runs", "prune", "--older-than", "9999d"];

fn is_trusted(place: &Place) -> bool {
    place.run(["trust", "--list", "--output", "json"]).json() != json!([])
}

/// Answers that do not mean yes, and the exit code after each.
const REFUSALS: [(&str, i64); 6] =
    [("n\n", 5), ("\n", 5), ("\u{4}", 5), ("yess\n", 5), ("no y\n", 5), ("\u{3}", -2)];

#[test]
fn a_yes_trusts_a_folder_and_is_asked_for_once() {
    for yes in ["y\n", "YES\n"] {
        let place = Place::new();
        let folder = clone_at(&place, "clone");
        let seen = at_terminal(&place, &folder, &LIST, &[yes]);
        assert_eq!((seen.code, seen.asked), (0, 1), "{seen:?}");
        for part in [
            "has settings that need your trust",
            "graphrun.toml:1:6: `db` is `sqlite:../runs.db`",
            "Trust `",
        ] {
            assert!(seen.shown.contains(part), "{part}: {seen:?}");
        }
        assert!(is_trusted(&place));
        let again = at_terminal(&place, &folder, &LIST, &[]);
        assert_eq!((again.code, again.asked), (0, 0), "{again:?}");
    }
}

#[test]
fn anything_else_trusts_nothing() {
    for (no, code) in REFUSALS {
        let place = Place::new();
        let folder = clone_at(&place, "clone");
        for _ in 0..2 {
            let seen = at_terminal(&place, &folder, &LIST, &[no]);
            assert_eq!((seen.code, seen.asked), (code, 1), "{no:?}: {seen:?}");
            assert!(!is_trusted(&place), "{no:?}");
        }
        assert!(!place.path("runs.db").exists(), "{no:?}");
    }
}

#[test]
fn without_a_yes_no_key_is_sent() {
    let thief = TcpListener::bind("127.0.0.1:0").unwrap();
    thief.set_nonblocking(true).unwrap();
    let place = Place::new();
    let folder = clone_at(&place, "clone");
    let file = format!("base_url = \"http://{}/v1\"\n", thief.local_addr().unwrap());
    fs::write(folder.join("graphrun.toml"), file).unwrap();
    let execute = ["execute", &workflow("agent"), "-i", "brief=x"];
    for (no, code) in REFUSALS {
        let seen = at_terminal(&place, &folder, &execute, &[no]);
        assert_eq!((seen.code, seen.asked), (code, 1), "{no:?}: {seen:?}");
        assert!(thief.accept().is_err(), "{no:?}: a request was made");
    }
}

#[test]
fn a_database_that_came_with_a_folder_is_asked_about() {
    let stranger = Place::new();
    let place = Place::new();
    stranger.execute("two_steps");
    fs::create_dir(place.path(".graphrun")).unwrap();
    fs::copy(stranger.path(".graphrun/runs.db"), place.path(".graphrun/runs.db")).unwrap();
    let folder = place.path("");
    for (no, code) in REFUSALS {
        let seen = at_terminal(&place, &folder, &LIST, &[no]);
        assert_eq!((seen.code, seen.asked), (code, 1), "{no:?}: {seen:?}");
        assert!(!seen.shown.contains("removed") && !is_trusted(&place), "{no:?}: {seen:?}");
    }
    let seen = at_terminal(&place, &folder, &LIST, &["y\n"]);
    assert_eq!((seen.code, seen.asked), (0, 1), "{seen:?}");
    assert!(seen.shown.contains("is not a database that graphrun made for you"), "{seen:?}");
    assert!(seen.shown.contains("removed 0 runs") && is_trusted(&place), "{seen:?}");
    assert_eq!(at_terminal(&place, &folder, &LIST, &[]).asked, 0);
}

#[test]
fn a_question_of_a_run_is_asked_with_any_progress() {
    for (progress, ci, asked) in [("none", "", 1), ("plain", "", 1), ("plain", "1", 0)] {
        let place = Place::new();
        let workflow = workflow("asks");
        let args = ["execute", &workflow, "-i", "brief=x", "--progress", progress];
        let seen = at_terminal_with(&place, &place.path(""), &args, &["stop\n"], ("CI", ci));
        let code = if asked == 1 { 0 } else { 3 };
        assert_eq!((seen.code, seen.asked), (code, asked), "{seen:?}");
    }
}

/// The deadline of the first question passes while it is asked, and another question follows.
const SECOND_QUESTION: &str = "
graphrun: 1
name: second_question
state: { answer: go_on | stop }
input: []
output: [answer]
start: first
nodes:
  first:
    ask: Go on or stop?
    choices: [go_on, stop]
    writes: answer
    timeout: 1s
    catch: { timeout: second }
    then: end
  second: { ask: Go on or stop?, choices: [go_on, stop], writes: answer, then: end }
";

#[test]
fn a_question_after_a_deadline_reads_the_next_line() {
    let place = Place::new();
    fs::write(place.path("second.yaml"), SECOND_QUESTION).unwrap();
    let args = ["execute", "second.yaml", "--progress", "none"];
    let seen = at_terminal(&place, &place.path(""), &args, &["", "stop\n"]);
    assert!(seen.shown.contains("too late: the deadline has passed"), "{seen:?}");
    assert_eq!((seen.code, seen.asked), (0, 2), "{seen:?}");
}

#[test]
fn the_command_trust_asks_as_well() {
    for (answer, code, trusts) in [("y\n", 0, true), ("\n", 2, false), ("\u{3}", -2, false)] {
        let place = Place::new();
        let folder = clone_at(&place, "clone");
        let seen = at_terminal(&place, &folder, &["trust"], &[answer]);
        assert_eq!((seen.code, seen.asked), (code, 1), "{seen:?}");
        assert!(seen.shown.contains("db = sqlite:../runs.db"), "{seen:?}");
        assert_eq!(is_trusted(&place), trusts, "{seen:?}");
    }
}

#[test]
fn the_name_of_a_folder_cannot_control_the_terminal() {
    let place = Place::new();
    let name = "a\u{1b}]0;x\u{7}\u{1b}[2J\r\u{202e}b\u{9b}31m";
    let folder = clone_at(&place, name);
    for args in [&LIST[..], &["trust"]] {
        let seen = at_terminal(&place, &folder, args, &["n\n"]);
        assert_eq!(seen.asked, 1, "{seen:?}");
        for hidden in ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{202e}", "\u{9b}", "\r\\u", "\r\u{202e}"]
        {
            assert!(!seen.shown.contains(hidden), "{hidden:?}: {seen:?}");
        }
    }
}

const STARS: &str = "graphrun: 1
name: stars
state: { stars: '\"3\" | \"2\" | \"1\"' }
output: stars
start: rate
nodes:
  rate: { ask: How good?, writes: stars, then: end }
";

#[test]
fn a_number_that_is_a_choice_is_that_choice() {
    let place = Place::new();
    fs::write(place.path("stars.yaml"), STARS).unwrap();
    let args = ["execute", "stars.yaml", "--run-id", "run-1", "--progress", "none"];
    // The first line is not UTF-8.
    let seen = at_terminal(&place, &place.path(""), &args, &["\u{ff}\n", "3\n"]);
    assert!(seen.shown.contains("the line is not UTF-8"), "{seen:?}");
    assert_eq!((seen.code, seen.asked), (0, 2), "{seen:?}");
    let state = place.run(["runs", "state", "run-1", "--output", "json"]);
    assert!(state.stdout.contains("\"3\""), "{state}");
}
