//! Agents whose work is done by a program: permission, secrets, approval, recordings and limits.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use graphrun::id::unique_id;
use nix::unistd::geteuid;

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodes/programs/fake.py");
const ALLOWED: &[&str] = &["--allow-host", "here"];
const KEY: &str = "canary-of-the-coder-51f0";

/// Writes a workflow of one agent, the fake on a host.
fn write(place: &Place, arguments: &str, host: &str, more: &str) {
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: {{ colour: string, count: int }} }}\noutput: answer\nhosts: {{ here: {{ allow: \
         [python3], {host} }} }}\nagents:\n  coder: {{ command: [python3, {FAKE}, {arguments}], in: here }}\n{more}start: \
         it\nnodes:\n  it: {{ agent: coder, prompt: {{ text: Mend it. }}, writes: answer, then: end }}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
}

fn execute(place: &Place, more: &[&str]) -> Ended {
    place.run(["execute", "w.yaml", "--output", "json"].iter().chain(more))
}

fn runs(place: &Place) -> usize {
    fs::read_to_string(place.path("runs.txt")).unwrap_or_default().lines().count()
}

fn teal() -> serde_json::Value {
    json!({ "colour": "teal", "count": 2 })
}

#[test]
fn a_program_on_a_host_needs_the_operator() {
    let place = Place::new();
    write(&place, "json", "approve: never", "");
    let ended = execute(&place, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    let expected = format!("here: `python3 {FAKE} json …` (never asks)");
    for expected in [&expected, "`--allow-host here`"] {
        assert!(ended.stderr.contains(expected), "{expected}: {ended}");
    }
    let done = execute(&place, ALLOWED);
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &teal()), "{done}");
}

#[test]
fn a_secret_reaches_the_program_alone_and_no_output() {
    let place = Place::new();
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: string, ok: bool }}\noutput: [answer, ok]\nhosts: {{ here: {{ allow: [python3, \
         printenv], approve: never }} }}\nagents:\n  coder: {{ command: [python3, {FAKE}, says, CODER_KEY], in: here, secrets: \
         CODER_KEY }}\nstart: it\nnodes:\n  it: {{ agent: coder, prompt: {{ text: Say it. }}, writes: answer, then: other }}\n  \
         other: {{ run: [printenv, CODER_KEY], in: here, writes: {{ ok: ok }}, then: end }}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
    let unset = execute(&place, ALLOWED);
    assert_eq!(unset.code, 5, "{unset}");
    assert!(unset.stderr.contains("needs the environment variable `CODER_KEY`"), "{unset}");
    let args = ["execute", "w.yaml", "--output", "json", "--run-id", "one", "--allow-host", "here"];
    let done = place.run_with(args, [("CODER_KEY", KEY)]);
    let expected = json!({ "answer": "[redacted]", "ok": false });
    assert_eq!((done.code, &done.json()["state"]), (0, &expected), "{done}");
    let events = place.run(["runs", "events", "one", "--output", "jsonl"]);
    assert!(events.stdout.contains("runs on the host `here`"), "{events}");
    assert!(!format!("{done}{events}").contains(KEY), "{done}{events}");
    assert!(!contains_key(&place.path("")), "a file has the key");
}

/// A workflow of one agent, the fake in a sandbox with a network, whose secret is `CODER_KEY`. `more` follows its node.
fn write_sandboxed(place: &Place, arguments: &str, answer: &str, more: &str) {
    fs::copy(FAKE, place.path("fake.py")).unwrap();
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: {answer}, seen: string }}\noutput: answer\nsandboxes: {{ box: {{ time: 20s, network: \
         [api.example.com] }} }}\nagents:\n  coder: {{ command: [python3, fake.py, {arguments}, CODER_KEY], in: box, scripts: \
         fake.py, secrets: CODER_KEY }}\nstart: it\nnodes:\n  it: {{ agent: coder, prompt: {{ text: Mend it. }}, writes: answer, \
         {more}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
}

fn execute_sandboxed(place: &Place) -> Ended {
    let args = ["execute", "w.yaml", "--output", "json", "--run-id", "one", "--allow-network"];
    place.run_with(args.iter().chain(&["api.example.com"]), [("CODER_KEY", KEY)])
}

/// Whether a file below a folder contains the key.
fn contains_key(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).any(|path| {
        if path.is_dir() {
            return contains_key(&path);
        }
        let content = fs::read(path).unwrap_or_default();
        content.windows(KEY.len()).any(|it| it == KEY.as_bytes())
    })
}

#[test]
fn a_secret_in_a_sandbox_needs_its_hosts_and_a_value() {
    let place = Place::new();
    write_sandboxed(&place, "says", "string", "then: end }");
    let refused = place.run_with(["execute", "w.yaml"], [("CODER_KEY", KEY)]);
    let grant = "gives `CODER_KEY` to `python3 fake.py says CODER_KEY` in the sandbox `box`, which may reach `api.example.com`";
    for expected in [grant, "`--allow-network api.example.com`"] {
        assert!(refused.stderr.contains(expected), "{expected}: {refused}");
    }
    let unset = execute(&place, &["--allow-network", "api.example.com"]);
    let expected = "a program in the sandbox `box` needs the environment variable `CODER_KEY`, which is not set";
    for expected in [expected, "set `CODER_KEY`"] {
        assert!(unset.stderr.contains(expected), "{expected}: {unset}");
    }
    assert_eq!((refused.code, unset.code), (5, 5), "{refused}{unset}");
    assert!(!place.path(".graphrun").exists(), "something was started");
}

#[test]
fn a_secret_in_a_sandbox_reaches_the_program_alone() {
    let place = Place::new();
    let answer = "{ has: bool, elsewhere: bool, seen: int }";
    let other = "then: other }\n  other: { run: [printenv, CODER_KEY], in: box, writes: { seen: stdout, code: exit_code }, then: end }";
    write_sandboxed(&place, "seeks", answer, other);
    let text = fs::read_to_string(place.path("w.yaml")).unwrap();
    let text = text.replace("seen: string }", "seen: string, code: int }");
    let text = text.replace("output: answer", "output: [answer, code]");
    fs::write(place.path("w.yaml"), text).unwrap();
    let done = execute_sandboxed(&place);
    let state = &done.json()["state"];
    assert_eq!((&state["answer"]["has"], &state["code"]), (&json!(true), &json!(1)), "{done}");
    assert_eq!(state["answer"]["elsewhere"], false, "another process shows it: {done}");
    assert!(state["answer"]["seen"].as_i64() > Some(2), "it saw no other process: {done}");
    let events = place.run(["runs", "events", "one", "--output", "jsonl"]);
    assert!(events.stdout.contains("gives `CODER_KEY` to `python3 fake.py"), "{events}");
}

#[test]
fn a_secret_in_a_sandbox_reaches_no_output() {
    let place = Place::new();
    write_sandboxed(&place, "says", "string", "then: end }");
    let done = execute_sandboxed(&place);
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &json!("[redacted]")), "{done}");
    let events = place.run(["runs", "events", "one", "--output", "jsonl"]);
    assert!(!format!("{done}{events}").contains(KEY), "{done}{events}");
    assert!(!contains_key(&place.path("")), "a file has the key");
}

/// The first answer has to be mended. The run stops between the two calls, for an approval.
#[test]
fn a_resumed_run_repeats_no_finished_program() {
    let place = Place::new();
    write(&place, "mend", "approve: each", "");
    let asked = execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
    let question = &asked.json()["questions"][0];
    assert_eq!((asked.code, runs(&place)), (3, 0), "{asked}");
    let shown = question["show"]["stdin"].as_str().unwrap();
    assert!(
        shown.starts_with("Mend it.\n\nWhen the work is done: Answer with one JSON"),
        "{shown}"
    );
    let approve = |_: &str| place.run(["approve", "one", "--output", "json"].iter().chain(ALLOWED));
    let again = approve("the first call");
    assert_eq!((again.code, runs(&place)), (3, 1), "{again}");
    let shown = again.json()["questions"][0]["show"]["stdin"].as_str().unwrap().to_owned();
    assert!(shown.contains("You answered:\n{\"colour\": \"te"), "{shown}");
    let done = approve("the repair");
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &teal()), "{done}");
    assert_eq!(runs(&place), 2, "the first call was made again");
}

/// Both repairs have the same prompt.
#[test]
fn each_run_of_a_program_has_its_own_approval() {
    let place = Place::new();
    write(&place, "mend, '2'", "approve: each", "");
    let asked = execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
    assert_eq!((asked.code, runs(&place)), (3, 0), "{asked}");
    for (number, code) in [(1, 3), (2, 3), (3, 0)] {
        let ended = place.run(["approve", "one", "--output", "json"].iter().chain(ALLOWED));
        assert_eq!((ended.code, runs(&place)), (code, number), "{ended}");
    }
}

#[test]
fn a_declined_program_does_not_run() {
    let place = Place::new();
    write(&place, "mend", "approve: each", "");
    execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
    let ended = place.run(["reject", "one", "--output", "json"].iter().chain(ALLOWED));
    assert_eq!((ended.code, runs(&place)), (1, 0), "{ended}");
    assert!(ended.stdout.contains("a person declined `python3"), "{ended}");
}

#[test]
fn a_replay_runs_no_program_and_needs_no_permission() {
    let place = Place::new();
    write(&place, "mend", "approve: never", "");
    let done = execute(&place, &[&["--record", "it.jsonl"], ALLOWED].concat());
    assert_eq!((done.code, runs(&place)), (0, 2), "{done}");
    let replayed = execute(&place, &["--replay", "it.jsonl"]);
    assert_eq!((replayed.code, &replayed.json()["state"]["answer"]), (0, &teal()), "{replayed}");
    assert_eq!(runs(&place), 2, "the replay ran the program");
}

#[test]
fn a_recorded_failure_of_a_program_fails_the_same_way() {
    let place = Place::new();
    write(&place, "fail", "approve: never", "");
    let failed = execute(&place, &[&["--record", "it.jsonl"], ALLOWED].concat());
    let replayed = execute(&place, &["--replay", "it.jsonl"]);
    let reason = |it: &Ended| it.json()["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason(&failed).contains("ended with 3: no such branch"), "{failed}");
    assert_eq!((reason(&replayed), replayed.code), (reason(&failed), failed.code), "{replayed}");
}

#[test]
fn a_cost_limit_needs_a_cost_of_the_program() {
    let place = Place::new();
    let limits = "limits: { usd: 5 }\n";
    write(&place, "codex", "approve: never", limits);
    let protocol = |name: &str| {
        let text = fs::read_to_string(place.path("w.yaml")).unwrap();
        let text = text.replace(", in: here", &format!(", in: here, protocol: {name}"));
        fs::write(place.path("w.yaml"), text).unwrap();
    };
    protocol("codex");
    let refused = execute(&place, ALLOWED);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("[prices.\"codex/coder\"]"), "{refused}");
    write(&place, "claude", "approve: never", limits);
    protocol("claude");
    let done = execute(&place, ALLOWED);
    assert_eq!((done.code, &done.json()["usage"]["cost_usd"]), (0, &json!(0.25)), "{done}");
}

#[test]
fn a_plan_counts_the_calls_of_a_program() {
    let place = Place::new();
    write(&place, "json", "approve: never", "");
    let plan = place.run(["plan", "w.yaml", "--output", "json"]).json();
    // Each of the six attempts may run it three times: two answers may be sent back.
    assert_eq!((&plan["calls_max"], &plan["tokens_max"]), (&json!(18), &json!(null)), "{plan}");
}

/// A loop of three turns with a fake that keeps its session in a file, and does one thing in its own way.
fn write_session(place: &Place, protocol: &str, quirk: &str) {
    // Codex takes its options before the prompt.
    let last = if protocol == "codex" { ", \"-\"" } else { "" };
    let text = format!(
        r#"graphrun: 1
name: w
state: {{ answer: {{ colour: string, count: int }}, session: {{ type: string, default: "" }} }}
output: [answer, session]
hosts: {{ here: {{ allow: [python3], approve: never }} }}
agents:
  coder:
    command: [python3, {FAKE}, session, {protocol}, {quirk}{last}]
    protocol: {protocol}
    in: here
    system: {{ text: You mend things. }}
start: it
nodes:
  it:
    agent: coder
    session: session
    prompt: {{ text: "Visit {{{{ visit }}}}." }}
    writes: answer
    max_visits: 5
    exhausted: end
    then: [{{ to: end, when: answer.count >= 3 }}, {{ to: it }}]
"#
    );
    fs::write(place.path("w.yaml"), text).unwrap();
}

/// Returns the prompts that each session has got, without the form of the answer.
fn turns(place: &Place) -> Vec<Vec<String>> {
    let mut paths: Vec<_> =
        fs::read_dir(place.path("sessions")).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    let prompt = |line: &str| {
        let prompt: String = serde_json::from_str(line).unwrap();
        prompt.split("\n\nWhen the work is done").next().unwrap().to_owned()
    };
    let read = |path| fs::read_to_string(path).unwrap().lines().map(prompt).collect();
    paths.iter().map(read).collect()
}

#[test]
fn each_protocol_continues_its_session_over_visits() {
    for protocol in ["claude", "codex", "gemini", "json"] {
        let place = Place::new();
        write_session(&place, protocol, "none");
        let done = execute(&place, ALLOWED);
        let expected =
            json!({ "answer": { "colour": "teal", "count": 3 }, "session": "session-1" });
        assert_eq!((done.code, &done.json()["state"]), (0, &expected), "{protocol}: {done}");
        let [turns] = &turns(&place)[..] else { panic!("{protocol}: {done}") };
        let expected = ["You mend things.\n\nVisit 1.", "Visit 2.", "Visit 3."];
        assert_eq!(turns[..], expected, "{protocol}");
        assert!(!done.stderr.contains("warning"), "{protocol}: {done}");
    }
}

/// The program kills its run in the second visit.
#[test]
fn a_killed_run_continues_the_session() {
    let place = Place::new();
    write_session(&place, "claude", "dies");
    let args = ["execute", "w.yaml", "--output", "json", "--run-id", "one"];
    let killed = place.command(args.iter().chain(ALLOWED)).output().unwrap();
    assert_eq!((killed.status.signal(), turns(&place)[0].len()), (Some(9), 2), "{killed:?}");
    let done = place.run(["resume", "one", "--output", "json"].iter().chain(ALLOWED));
    assert_eq!((done.code, &done.json()["state"]["session"]), (0, &json!("session-1")), "{done}");
    let expected = ["You mend things.\n\nVisit 1.", "Visit 2.", "Visit 2."];
    assert_eq!(turns(&place), [expected], "{done}");
}

#[test]
fn a_lost_session_is_replaced_by_a_new_one_with_a_warning() {
    for protocol in ["claude", "codex", "gemini"] {
        let place = Place::new();
        write_session(&place, protocol, "forgets");
        let done = execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
        assert_eq!(done.json()["state"]["session"], "session-3", "{protocol}: {done}");
        let expected = ["1", "2", "3"].map(|it| vec![format!("You mend things.\n\nVisit {it}.")]);
        assert_eq!(turns(&place), expected, "{protocol}");
        let events = place.run(["runs", "events", "one", "--output", "jsonl"]).stdout;
        let lost = "cannot continue its session session-1 (it failed: no conversation session-1); it starts a new one";
        assert!(events.contains(lost), "{protocol}: {events}");
    }
}

/// Such a program names its session at its end, so its failure may have any reason.
#[test]
fn a_failed_json_program_is_not_started_again() {
    let place = Place::new();
    write_session(&place, "json", "forgets");
    let failed = execute(&place, ALLOWED);
    assert_eq!((failed.code, turns(&place).len()), (1, 1), "{failed}");
    let reason = failed.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("ended with 1: no conversation session-1"), "{reason}");
}

#[test]
fn a_repair_continues_the_session() {
    let place = Place::new();
    write_session(&place, "claude", "halves");
    let done = execute(&place, ALLOWED);
    let turns = turns(&place);
    assert_eq!((done.code, turns.len(), turns[0].len()), (0, 1, 3), "{done}");
    assert!(turns[0][1].contains("cannot be used"), "{turns:?}");
    assert!(!turns[0][1].contains("Visit"), "the session has it already: {turns:?}");
    assert_eq!(turns[0][2], "Visit 2.");
}

#[test]
fn doctor_names_the_programs_that_are_missing() {
    let place = Place::new();
    let agent =
        |name: &str| format!("{{ agent: {name}, prompt: {{ text: Mend it. }}, writes: answer");
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: string }}\noutput: answer\nsandboxes: {{ box: {{ time: 20s }} }}\nhosts: {{ here: {{ \
         allow: no-such-coder }} }}\nagents:\n  a: {{ command: [no-such-coder], in: here }}\n  b: {{ command: [bash], in: box }}\n  \
         c: {{ command: [no-other-coder], in: box }}\nstart: x\nnodes:\n  x: {}, then: y }}\n  y: {}, then: z }}\n  z: {}, then: end }}\n",
        agent("a"),
        agent("b"),
        agent("c"),
    );
    fs::write(place.path("w.yaml"), &text).unwrap();
    let check = || {
        let checks = place.run(["doctor", "w.yaml", "--output", "json"]).json();
        let checks = checks.as_array().unwrap().clone();
        checks.into_iter().find(|it| it["name"] == "programs").unwrap()
    };
    let detail = "not installed: `no-other-coder` of `c`, `no-such-coder` of `a`";
    assert_eq!((&check()["ok"], &check()["detail"]), (&json!(false), &json!(detail)));
    let installed = text.replace("no-such-coder", "tar").replace("no-other-coder", "env");
    fs::write(place.path("w.yaml"), installed).unwrap();
    let detail = "`bash` of `b`, `env` of `c`, `tar` of `a`";
    assert_eq!((&check()["ok"], &check()["detail"]), (&json!(true), &json!(detail)));
}

#[test]
fn doctor_checks_all_that_a_workflow_needs() {
    let place = Place::new();
    let text = "graphrun: 1\nname: w\nstate: { answer: string }\noutput: answer\n\
                hosts: { here: { allow: git push, secrets: [PUSH_TOKEN] } }\n\
                sandboxes: { box: { network: [pypi.example.com] } }\n\
                tools: { find: { about: Finds., http: { url: \"https://find.example.com/?q={q}\" }, input: { q: string }, \
                output: { text: string } } }\n\
                agents: { a: { model: openai/gpt-5-mini, tools: [find] } }\nstart: x\nnodes:\n  \
                x: { agent: a, prompt: { text: Hello. }, writes: answer, then: y }\n  \
                y: { run: [git, push], in: here, then: z }\n  z: { run: [ls], in: box, then: end }\n";
    fs::write(place.path("w.yaml"), text).unwrap();
    let rows = |arguments: &[&str], key: &str| -> Value {
        let all = [&["doctor", "w.yaml", "--output", "json"], arguments].concat();
        let checks =
            place.run_with(all, [("OPENAI_API_KEY", key), ("PUSH_TOKEN", "0123456789abcdef")]);
        let rows = checks.json().as_array().unwrap().clone();
        let of_workflow = ["programs", "hosts", "requests", "network", "agents"];
        let rows = rows.iter().filter(|it| of_workflow.contains(&it["name"].as_str().unwrap()));
        rows.map(|it| json!([it["name"], it["ok"], it["detail"], it["help"]])).collect()
    };
    let refused = rows(&[], "");
    let help = |row: usize| refused[row][3].as_str().unwrap_or_default();
    assert_eq!(refused[0], json!(["programs", true, "no agent is a program", null]));
    for (row, name, remedy) in [
        (1, "hosts", "`--allow-host here`"),
        (2, "requests", "`--allow-http find.example.com`"),
        (3, "network", "`--allow-network pypi.example.com`"),
        (4, "agents", "`--model`"),
    ] {
        assert_eq!((&refused[row][0], &refused[row][1]), (&json!(name), &json!(false)));
        assert!(help(row).contains(remedy), "{}", refused[row]);
    }
    let allowed = [
        "--allow-host",
        "here",
        "--allow-http",
        "find.example.com",
        "--allow-network",
        "pypi.example.com",
    ];
    let ready = json!([
        ["programs", true, "no agent is a program", null],
        ["hosts", true, "here", null],
        ["requests", true, "https://find.example.com", null],
        ["network", true, "pypi.example.com", null],
        ["agents", true, "openai/gpt-5-mini", null],
    ]);
    assert_eq!(rows(&allowed, "sk-0123456789abcdef"), ready);
    fs::write(place.path("w.yaml"), "graphrun: 1\n").unwrap();
    let checks = place.run(["doctor", "w.yaml", "--output", "json"]).json();
    assert_eq!((&checks[6]["name"], &checks[6]["ok"]), (&json!("workflow"), &json!(false)));
}

/// The homes of the programs of a run in the cache of this user.
fn homes(run: &str) -> Vec<PathBuf> {
    let cache = if geteuid().is_root() {
        PathBuf::from("/var/cache/graphrun")
    } else {
        PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/graphrun")
    };
    let all = fs::read_dir(cache.join("homes")).into_iter().flatten().flatten();
    all.map(|it| it.path()).filter(|it| it.to_string_lossy().ends_with(run)).collect()
}

/// The same loop in a sandbox.
fn write_boxed_session(place: &Place, protocol: &str, quirk: &str) {
    write_session(place, protocol, quirk);
    let text = fs::read_to_string(place.path("w.yaml")).unwrap();
    let text = text
        .replace("hosts: { here: { allow: [python3], approve: never } }", "sandboxes: { box: {} }")
        .replace(FAKE, "fake.py")
        .replace("in: here", "in: box\n    scripts: fake.py");
    fs::write(place.path("w.yaml"), text).unwrap();
    fs::copy(FAKE, place.path("fake.py")).unwrap();
}

#[test]
fn a_session_in_a_sandbox_lasts_as_long_as_its_run() {
    let runs = ["one", "two"].map(|it| format!("{it}-{}", unique_id().to_lowercase()));
    let place = Place::new();
    for (protocol, run) in ["claude", "json"].into_iter().zip(&runs) {
        write_boxed_session(&place, protocol, "none");
        // The home of another run is never found, or the session would have another number.
        let done = execute(&place, &["--run-id", run]);
        let expected =
            json!({ "answer": { "colour": "teal", "count": 3 }, "session": "session-1" });
        assert_eq!((done.code, &done.json()["state"]), (0, &expected), "{protocol}: {done}");
        assert!(!done.stderr.contains("warning"), "{protocol}: {done}");
        assert_eq!(homes(run).len(), 1);
    }
    let fork = format!("fork-{}", unique_id().to_lowercase());
    let forked = place.run(["fork", &format!("{}@0", runs[1]), "--run-id", &fork]);
    assert_eq!((forked.code, homes(&fork).len()), (0, 1), "{forked}");
    for run in runs.iter().chain([&fork]) {
        assert_eq!(place.run(["runs", "rm", run]).code, 0);
        assert!(homes(run).is_empty());
    }
}

/// A run may be removed by a machine that has another cache.
#[test]
fn doctor_names_the_homes_of_removed_runs() {
    let run = format!("gone-{}", unique_id().to_lowercase());
    let place = Place::new();
    write_boxed_session(&place, "json", "none");
    execute(&place, &["--run-id", &run]);
    let [home] = &homes(&run)[..] else { panic!("no home") };
    let doctor = || {
        let checks = place.run(["doctor", "--output", "json"]).json();
        let all = checks.as_array().unwrap().iter();
        all.clone().find(|it| it["name"] == "folders").unwrap().clone()
    };
    assert!(!doctor()["detail"].as_str().unwrap().contains("homes"), "{}", doctor());
    assert_eq!(place.run(["runs", "rm", &run]).code, 0);
    assert!(homes(&run).is_empty());
    fs::create_dir(home).unwrap();
    let found = doctor();
    let detail = found["detail"].as_str().unwrap();
    let help = found["help"].as_str().unwrap();
    let expected = format!("homes of programs without a run: `{}`", home.display());
    assert!(
        detail.contains(&expected) && help.contains("`chmod -R u+rwX PATH; rm -r PATH`"),
        "{found}"
    );
    // Those of another database may belong to its runs.
    let other = Place::new().run(["doctor"]).stdout;
    assert!(!other.contains(&run), "{other}");
    fs::remove_dir(home).unwrap();
}

#[test]
fn a_home_without_end_stops_its_program() {
    // The second one hides its files below folders that are nested too deeply for a path.
    for quirk in ["hoards", "buries"] {
        let run = format!("{quirk}-{}", unique_id().to_lowercase());
        let place = Place::new();
        write_boxed_session(&place, "json", quirk);
        let failed = execute(&place, &["--run-id", &run]);
        let reason = failed.json()["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("was stopped: the home of the program had more than"), "{reason}");
        let [home] = &homes(&run)[..] else { panic!("{failed}") };
        assert_eq!(fs::read_dir(home).unwrap().count(), 0);
        assert_eq!(place.run(["runs", "rm", &run]).code, 0);
        assert!(homes(&run).is_empty());
    }
}

#[test]
fn a_home_with_deep_folders_is_removed_with_its_run() {
    let run = format!("nests-{}", unique_id().to_lowercase());
    let place = Place::new();
    write_boxed_session(&place, "json", "nests");
    let done = execute(&place, &["--run-id", &run]);
    assert_eq!((done.code, homes(&run).len()), (0, 1), "{done}");
    let remove = place.command(["runs", "rm", &run]);
    let mut with_few_files = Command::new("bash");
    with_few_files.args(["-c", r#"ulimit -n 128; exec "$@""#, "few"]);
    with_few_files.arg(remove.get_program()).args(remove.get_args());
    with_few_files.current_dir(place.path("")).envs(place.own_folders());
    let removed = Ended::of(&mut with_few_files);
    assert_eq!((removed.code, homes(&run).len()), (0, 0), "{removed}");
    assert!(!removed.stderr.contains("stay"), "{removed}");
}

/// Root may list every folder.
#[test]
fn a_home_with_a_hidden_folder_stops_its_program() {
    if geteuid().is_root() {
        return;
    }
    let run = format!("hides-{}", unique_id().to_lowercase());
    let place = Place::new();
    write_boxed_session(&place, "json", "hides");
    let failed = execute(&place, &["--run-id", &run]);
    let reason = failed.json()["reason"].as_str().unwrap().to_owned();
    let expected = "was stopped: the home of the program had a folder without permissions";
    assert!(reason.contains(expected), "{reason}");
    let [home] = &homes(&run)[..] else { panic!("{failed}") };
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
    assert_eq!(place.run(["runs", "rm", &run]).code, 0);
}
