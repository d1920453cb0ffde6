//! Threads: `graphrun execute --thread` and `graphrun chat`.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    program::{Ended, Place, Running, workflow},
    provider::answer_with,
};

const PARROT: &str = "graphrun: 1
name: parrot
state:
  line: string
  said: { type: '[string]', merge: append, default: [] }
input: line
output: said
start: keep
nodes:
  keep: { set: { said: '[line + \"!\"]' }, then: check }
  check: { set: { said: '[]' }, then: [ { when: line == \"bad\", to: fail }, { to: end } ] }
";

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("parrot.yaml"), PARROT).unwrap();
    place
}

/// Runs the program with these lines as its stdin.
fn typed(mut command: Command, lines: impl AsRef<[u8]>) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_ref()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn each_line_of_a_chat_is_a_turn_of_its_thread() {
    let place = place();
    let chat = |lines: &str| typed(place.command(["chat", "parrot.yaml", "--thread", "t"]), lines);
    let first = chat("hello\n\nworld\n");
    assert_eq!((first.code, &*first.stdout), (0, "hello!\nworld!\n"), "{first}");
    assert_eq!(chat("again\n").stdout, "again!\n", "a reply has only new items");
    let args = ["execute", "parrot.yaml", "--thread", "t", "-i", "line=four", "--output", "json"];
    let executed = place.run(args);
    let said = json!(["hello!", "world!", "again!", "four!"]);
    assert_eq!(executed.json()["state"]["said"], said, "{executed}");
    let listed = place.run(["runs", "list", "--output", "json"]);
    assert_eq!(listed.json().as_array().unwrap().len(), 1, "{listed}");
}

/// The turn at hand is completed, and its reply is printed.
#[test]
fn a_signal_ends_a_chat_after_its_turn() {
    let place = Place::new();
    let (began, go) = (place.path("began"), place.path("go"));
    let waits = "graphrun: 1
name: waits
state: { line: string, said: string }
input: line
output: said
hosts: { here: { allow: python3, approve: never } }
start: hold
nodes:
  hold:
    run: [python3, HOLD]
    in: here
    writes: { said: stdout }
    then: end
";
    let hold = format!(
        "import pathlib, time\nprint('held', end='')\npathlib.Path({began:?}).touch()\n\
         while not pathlib.Path({go:?}).exists():\n    time.sleep(0.02)\n"
    );
    let script = place.path("hold.py");
    fs::write(&script, hold).unwrap();
    let waits = waits.replace("HOLD", &script.display().to_string());
    fs::write(place.path("waits.yaml"), waits).unwrap();
    let mut chat = place.command(["chat", "waits.yaml", "--allow-host", "here"]);
    let mut running = Running::of({
        chat.stdin(Stdio::piped());
        chat
    });
    running.write("one\ntwo\nthree\n");
    while !began.exists() {
        std::thread::yield_now();
    }
    running.signal(Signal::SIGTERM);
    running.wait_for("terminated");
    fs::write(go, "").unwrap();
    let ended = running.rest();
    assert_eq!((ended.code, &*ended.stdout), (143, "held\n"), "{ended}");
}

#[test]
fn a_line_that_is_no_text_is_refused_alone() {
    let place = place();
    let ended = typed(place.command(["chat", "parrot.yaml"]), b"one\n\xff\ntwo\n");
    assert_eq!((ended.code, &*ended.stdout), (0, "one!\ntwo!\n"), "{ended}");
    assert!(ended.stderr.contains("the line is not UTF-8"), "{ended}");
}

#[test]
fn a_line_that_does_not_fit_its_field_is_refused_alone() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: double
state: { n: int, by: int, product: int }
input: [n, by]
output: product
start: multiply
nodes:
  multiply: { set: { product: n * by }, then: end }
";
    fs::write(place.path("double.yaml"), workflow).unwrap();
    let chat = |flags: &[&str]| {
        let args = [&["chat", "double.yaml"], flags].concat();
        typed(place.command(args), "1\nabc\n3\n")
    };
    let ended = chat(&["-i", "by=2"]);
    assert_eq!((ended.code, &*ended.stdout), (0, "2\n6\n"), "{ended}");
    assert!(ended.stderr.contains("not sent: "), "{ended}");
    let missing = chat(&[]);
    assert_eq!((missing.code, &*missing.stdout), (2, ""), "{missing}");
    assert!(missing.stderr.contains("`by`"), "{missing}");
    let taken = chat(&["-i", "by=2", "-i", "n=3"]);
    assert!(taken.code == 2 && taken.stderr.contains("`n` takes the lines"), "{taken}");
}

/// Asks in each turn, and writes the version of the workflow.
fn versioned(version: &str) -> String {
    format!(
        "graphrun: 1
name: versions
state:
  line: string
  answer: string?
  log: {{ type: '[string]', merge: append, default: [] }}
input: line
output: log
start: ask
nodes:
  ask: {{ ask: 'ok?', choices: [yes, no], writes: answer, then: note }}
  note: {{ set: {{ log: '\"{version} \" + line' }}, then: save }}
  save: {{ write_files: {{ to: output.dir, files: '[{{ path: \"log.txt\", content: line }}]' }}, then: end }}
"
    )
}

#[test]
fn a_turn_continues_with_its_own_workflow_folder_and_flags() {
    let place = Place::new();
    for version in ["one", "two"] {
        fs::write(place.path(&format!("{version}.yaml")), versioned(version)).unwrap();
    }
    let turn = |file: &str, flags: &[&str]| {
        let args = ["execute", file, "--thread", "t", "-i", "line=x"];
        place.run([&args, flags].concat())
    };
    let approve = || place.run(["approve", "t"]);
    assert_eq!(turn("one.yaml", &["--out", "a", "--max-steps", "9"]).code, 3);
    assert_eq!(approve().code, 0);
    assert_eq!(turn("two.yaml", &["--out", "b", "--max-steps", "2"]).code, 3);
    let limited = approve();
    assert_eq!(limited.code, 4, "the limit of the second turn counts: {limited}");
    assert_eq!(place.run(["resume", "t", "--max-steps", "9"]).code, 0);
    // Without flags, a turn has neither the limit nor another folder.
    fs::remove_file(place.path("b/log.txt")).unwrap();
    assert_eq!(turn("two.yaml", &[]).code, 3);
    let last = approve();
    assert_eq!(last.code, 0, "{last}");
    let state = place.run(["runs", "state", "t", "--output", "json"]).json();
    assert_eq!(state["log"], json!(["one x", "two x", "two x"]), "{state}");
    assert!(place.path("a/log.txt").exists() && place.path("b/log.txt").exists());
    assert_eq!(place.run(["runs", "verify", "t"]).code, 0);
    let history = place.run(["runs", "history", "t"]);
    assert!(!history.stdout.contains("migrated"), "{history}");
}

#[test]
fn a_turn_that_does_not_fit_names_the_command_for_its_own_workflow() {
    let place = Place::new();
    fs::write(place.path("one.yaml"), PARROT).unwrap();
    fs::write(place.path("two.yaml"), PARROT.replace("said", "log")).unwrap();
    assert_eq!(place.run(["execute", "one.yaml", "--thread", "t", "-i", "line=a"]).code, 0);
    let refused = place.run(["execute", "two.yaml", "--thread", "t", "-i", "line=b"]);
    assert_eq!(refused.code, 6, "{refused}");
    assert!(refused.stderr.contains("graphrun migrate t") && refused.stderr.contains("two.yaml"));
}

#[test]
fn a_reply_that_is_the_same_again_is_shown_again() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: yes
state: { line: string, reply: string }
input: line
output: reply
start: answer
nodes:
  answer: { set: { reply: '\"Yes.\"' }, then: end }
";
    fs::write(place.path("yes.yaml"), workflow).unwrap();
    let ended = typed(place.command(["chat", "yes.yaml", "--thread", "t"]), "a\nb\n");
    assert_eq!((ended.code, &*ended.stdout), (0, "Yes.\nYes.\n"), "{ended}");
}

#[test]
fn a_chat_ends_with_a_turn_that_fails() {
    let place = place();
    let ended = typed(place.command(["chat", "parrot.yaml", "--thread", "t"]), "bad\nnever\n");
    assert_eq!(ended.code, 1, "{ended}");
    assert!(!ended.stdout.contains("never!"), "{ended}");
}

#[test]
fn a_thread_of_another_workflow_is_refused() {
    let place = place();
    fs::write(place.path("other.yaml"), PARROT.replace("parrot", "other")).unwrap();
    place.run(["execute", "parrot.yaml", "--thread", "t", "-i", "line=one"]);
    let other = place.run(["execute", "other.yaml", "--thread", "t", "-i", "line=two"]);
    assert_eq!(other.code, 2, "{other}");
    assert!(other.stderr.contains("`t` is a run of the workflow `parrot`, not of `other`"));
    let field = place.run(["chat", "parrot.yaml", "--field", "lines"]);
    assert!(field.code == 2 && field.stderr.contains("did you mean `line`?"), "{field}");
}

/// Four processes take turns of a thread that does not exist yet. Each one is refused, or reports the turn that it has made.
#[test]
fn first_turns_at_once_are_refused_or_report_their_own_result() {
    let place = place();
    let turn = |line: &str| {
        let field = format!("line={line}");
        let args = ["execute", "parrot.yaml", "--thread", "t", "-i", &field, "--output", "json"];
        place.run(args)
    };
    let ended: Vec<(String, Ended)> = std::thread::scope(|scope| {
        let lines = ["one", "two", "three", "four"].map(str::to_owned);
        let turn = &turn;
        let start = |line: String| {
            scope.spawn(move || {
                let ended = turn(&line);
                (line, ended)
            })
        };
        let started: Vec<_> = lines.into_iter().map(start).collect();
        started.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let shown = place.run(["runs", "state", "t", "--output", "json"]);
    for (line, ended) in ended {
        let said = format!("{line}!");
        match ended.code {
            0 => {
                let report = ended.json();
                let last = report["state"]["said"].as_array().unwrap().last().cloned();
                assert_eq!(last, Some(json!(said)), "{ended}");
                assert_eq!(report["status"], "done", "{ended}");
            }
            6 => assert!(!shown.stdout.contains(&said), "{line} was made: {ended}"),
            _ => panic!("{line}: {ended}"),
        }
    }
}

#[test]
fn a_thread_follows_a_changed_workflow_and_hides_private_fields() {
    let place = place();
    let turn = |line: &str| {
        place.run(["execute", "parrot.yaml", "--thread", "t", "-i", &format!("line={line}")])
    };
    assert_eq!(turn("one").code, 0);
    let longer =
        PARROT.replace("input:", "  mood: { type: string, default: calm, private: true }\ninput:");
    fs::write(place.path("parrot.yaml"), longer).unwrap();
    let refused = turn("two");
    assert_eq!(refused.code, 6, "{refused}");
    assert!(refused.stderr.contains("graphrun migrate t parrot.yaml"), "{refused}");
    let migrated = place.run(["migrate", "t", "parrot.yaml"]);
    assert_eq!(migrated.code, 0, "{migrated}");
    assert!(migrated.stdout.contains("next: a turn of the thread"), "{migrated}");
    assert!(!migrated.stdout.contains("resume"), "{migrated}");
    assert_eq!(turn("two").code, 0);
    for args in [vec!["runs", "state", "t"], vec!["runs", "diff", "t@0", "t", "--output", "json"]] {
        let shown = place.run(&args);
        assert_eq!(shown.code, 0, "{shown}");
        assert!(!shown.stdout.contains("mood"), "{args:?}: {shown}");
        assert!(shown.stdout.contains("two!"), "{args:?}: {shown}");
    }
}

#[test]
fn a_report_names_nodes_whose_writes_are_not_committed() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: beside
state: { a: string, b: string, ok: bool }
output: [a, b]
start: [s, q]
nodes:
  s: { set: { a: '\"x\"' }, then: end }
  q: { ask: \"Good?\", writes: ok, then: last }
  last: { set: { b: '\"y\"' }, then: end }
";
    fs::write(place.path("beside.yaml"), workflow).unwrap();
    let args = ["execute", "beside.yaml", "--run-id", "r", "--output", "json"];
    let paused = place.run(args);
    assert_eq!(paused.code, 3, "{paused}");
    let report = paused.json();
    assert_eq!((&report["uncommitted"], report["state"].get("a")), (&json!(["s"]), None));
    let shown = place.run(["runs", "show", "r"]);
    let line = "saved, and in the state after the step: s";
    assert!(shown.stdout.contains(line), "{shown}");
    let done = place.run(["resume", "r", "--answer", "q=true", "--output", "json"]).json();
    assert_eq!((done.get("uncommitted"), &done["state"]["a"]), (None, &json!("x")), "{done}");
}

#[test]
fn a_thread_is_listed_with_its_turns_and_forked_between_them() {
    let place = place();
    let turn = |thread: &str, line: &str| {
        let field = format!("line={line}");
        place.run(["execute", "parrot.yaml", "--thread", thread, "-i", &field, "--output", "json"])
    };
    turn("t", "one");
    let second = turn("t", "two").json();
    let traced = |it: &Value| it["trace"].as_array().unwrap().len();
    assert_eq!((traced(&second), &second["state"]["said"]), (2, &json!(["one!", "two!"])));
    assert_eq!(traced(&place.run(["runs", "show", "t", "--output", "json"]).json()), 4);
    let history = place.run(["runs", "history", "t"]);
    assert!(history.stdout.contains("turn 2 begins"), "{history}");

    // The first turn ends with step 2.
    let forked = place.run(["fork", "t@2", "--output", "json"]);
    assert_eq!(forked.code, 0, "{forked}");
    let fork = forked.json();
    assert_eq!((&fork["status"], &fork["state"]["said"]), (&json!("done"), &json!(["one!"])));
    let name = fork["name"].as_str().unwrap();
    let next = format!("parrot.yaml --thread {name}\n");
    assert!(forked.stderr.ends_with(&next), "{forked}");
    assert_eq!(turn(name, "other").json()["state"]["said"], json!(["one!", "other!"]));

    assert_eq!(turn("open", "bad").code, 1);
    let listed = place.run(["runs", "list", "--output", "json"]).json();
    let turns: Vec<&Value> = listed.as_array().unwrap().iter().map(|it| &it["turns"]).collect();
    let ended = |count: u64| json!({"count": count, "has_ended": true});
    assert_eq!(turns, [&ended(1), &ended(2), &ended(2)]);
}

#[test]
fn a_queued_turn_waits_for_that_of_another_process() {
    let place = Place::new();
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let agent = workflow("agent");
    let turn = |flags: &[&str]| {
        let args = ["execute", &agent, "--thread", "t", "-i", "brief=x"];
        let mut command = place.command(args.iter().chain(flags));
        command.env("OPENAI_BASE_URL", &url);
        Running::of(command)
    };
    let first = turn(&[]);
    let (mut call, _) = provider.accept().unwrap();
    let refused = turn(&[]).rest();
    assert_eq!(refused.code, 6, "{refused}");
    let queued = turn(&["--queue"]);
    answer_with(&mut call, "one");
    assert_eq!(first.rest().code, 0);
    answer_with(&mut provider.accept().unwrap().0, "two");
    let queued = queued.rest();
    assert!(queued.code == 0 && queued.stderr.contains("turn 2 of t"), "{queued}");
    let alone = place.run(["execute", &agent, "--queue", "-i", "brief=x"]);
    assert_eq!(alone.code, 2, "only a turn of a thread can wait: {alone}");
}
