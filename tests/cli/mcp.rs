//! Tools of MCP servers: a server of our own that behaves well, or badly in the ways that its argument names.

use std::{fs, os::unix::fs::symlink, path::Path, thread};

use graphrun::id::unique_id;
use serde_json::{Value, json};

use crate::cli::{
    mcp_sandbox::{assert_ends, check_end_with_graphrun},
    program::{Ended, Place},
};

const ALLOWED: [&str; 2] = ["--allow-host", "here"];

/// The behaviours of a server that does not answer a call.
const NEVER: [&str; 2] = ["hang", "silent"];

/// A workflow whose node calls a tool of a server.
fn workflow(behaviour: &str) -> String {
    let server = format!("{}/tests/cli/workflows/mcp_server.py", env!("CARGO_MANIFEST_DIR"));
    // These never answer.
    let time = if NEVER.contains(&behaviour) { ", time: 3s" } else { "" };
    format!(
        "graphrun: 1\nname: serving\n\
         state: {{ a: int, sum: {{ type: int, default: 0 }}, reason: {{ type: string, default: none }} }}\n\
         input: a\noutput: [sum, reason]\n\
         hosts: {{ here: {{ allow: [python3 {server}], approve: never, secrets: SERVER_TOKEN }} }}\n\
         mcp: {{ srv: {{ command: [python3, {server}, {behaviour}], in: here{time} }} }}\n\
         start: add\nnodes:\n  \
         add: {{ tool: srv.add, args: {{ a: a, b: '2' }}, writes: {{ sum: sum }}, catch: {{ tool: lost }}, then: end }}\n  \
         lost: {{ render: {{ text: '{{{{ via.error.message }}}}' }}, writes: reason, then: end }}\n"
    )
}

/// Runs the program with the secret of the server, and with a variable that the server must not get.
fn run(place: &Place, args: &[&str]) -> Ended {
    place.run_with(args, [("SERVER_TOKEN", "canary-of-mcp-71aa"), ("OTHER", "other")])
}

fn lock(place: &Place, behaviour: &str) -> Ended {
    fs::write(place.path("w.yaml"), workflow(behaviour)).unwrap();
    run(place, &["mcp", "lock", "w.yaml", "--allow-host", "here"])
}

/// Locks the tools of the server as it should be, and then lets it behave badly.
fn locked(behaviour: &str) -> Place {
    let place = Place::new();
    let ended = lock(&place, "well");
    assert_eq!(ended.code, 0, "{ended}");
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    fs::write(place.path("w.mcp.lock"), lock.replace("\"well\"", &format!("\"{behaviour}\"")))
        .unwrap();
    fs::write(place.path("w.yaml"), workflow(behaviour)).unwrap();
    place
}

fn execute(place: &Place, more: &[&str]) -> Ended {
    let args = ["execute", "w.yaml", "-i", "a=1", "--output", "json", "--run-id", "mine"];
    run(place, &[&args, more].concat())
}

/// A server that hangs reads no input, so it does not notice the end of graphrun.
#[test]
fn a_server_on_a_host_ends_with_graphrun() {
    let word = unique_id();
    let place = locked(&format!("hang:{word}"));
    check_end_with_graphrun(&place, &ALLOWED, &word);
}

/// Runs the workflow with recorded calls, without a server.
pub(super) fn replay(place: &Place) -> Ended {
    place.run(["execute", "w.yaml", "-i", "a=1", "--output", "json", "--replay", "calls.jsonl"])
}

fn reason(place: &Place) -> String {
    let ended = execute(place, &ALLOWED);
    assert_eq!(ended.code, 0, "{ended}");
    ended.json()["state"]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn a_node_calls_a_tool_and_a_replay_needs_no_server() {
    let place = locked("well");
    let record = execute(&place, &[&ALLOWED[..], &["--record", "calls.jsonl"]].concat());
    assert_eq!(record.json()["state"], json!({"sum": 3, "reason": "none"}), "{record}");
    // A replay starts no server, so it needs neither a permission nor a secret.
    let replay = replay(&place);
    assert_eq!(replay.json()["state"], json!({"sum": 3, "reason": "none"}), "{replay}");
    let other = place.run([
        "execute",
        "w.yaml",
        "-i",
        "a=2",
        "--output",
        "json",
        "--replay",
        "calls.jsonl",
    ]);
    let reason = other.json()["state"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("no entry of calls.jsonl answers"), "{reason}");
    let wrong = fs::read_to_string(place.path("w.yaml")).unwrap().replace("b: '2'", "b: '\"2\"'");
    fs::write(place.path("w.yaml"), wrong).unwrap();
    let refused = execute(&place, &ALLOWED);
    assert!(refused.code == 2 && refused.stderr.contains("GR022"), "{refused}");
}

/// A workflow whose node fills in a prompt of the server, in which an agent or another node can be instructed.
fn greeting(behaviour: &str) -> String {
    let prompt =
        "  add: { tool: srv.greet, args: { who: '\"Ann\"' }, writes: reason, then: end }\n";
    let text = workflow(behaviour).replace("in: here", "in: here, prompts: greet");
    format!("{}start: add\nnodes:\n{prompt}", text.split("start: add").next().unwrap())
}

#[test]
fn a_prompt_of_a_server_is_locked_typed_and_replayed() {
    let place = Place::new();
    let write = |text: &str| fs::write(place.path("w.yaml"), text).unwrap();
    lock(&place, "well");
    write(&greeting("well"));
    let refused = place.run(["validate", "w.yaml"]);
    assert!(
        refused.to_string().contains("the prompt `greet` of `srv` is not in the lock file"),
        "{refused}"
    );
    let locked = run(&place, &["mcp", "lock", "w.yaml", "--allow-host", "here"]);
    assert!(locked.stdout.contains("new: srv.greet (prompt)\n  Greets.\n"), "{locked}");
    assert!(locked.stderr.contains("locked 2 tools and 1 prompt"), "{locked}");
    let record = execute(&place, &[&ALLOWED[..], &["--record", "calls.jsonl"]].concat());
    let expected = json!({"sum": 0, "reason": "Greet Ann, as you like."});
    assert_eq!(record.json()["state"], expected, "{record}");
    let replay = replay(&place);
    assert_eq!(replay.json()["state"], expected, "{replay}");
    write(&greeting("well").replace("who: '\"Ann\"'", "how: '\"warmly\"'"));
    let refused = place.run(["validate", "w.yaml"]);
    assert!(refused.code == 2 && refused.to_string().contains("who"), "{refused}");
    // A server whose prompt has changed is not asked for it.
    let text = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    fs::write(place.path("w.mcp.lock"), text.replace("\"well\"", "\"other prompt\"")).unwrap();
    write(&greeting("\"other prompt\""));
    let ended = run(&place, &["execute", "w.yaml", "-i", "a=1", ALLOWED[0], ALLOWED[1]]);
    let changed = "the server `srv` has changed its prompt `greet` since it was locked";
    assert!(ended.code == 1 && ended.to_string().contains(changed), "{ended}");
}

/// So a call of this name has one meaning.
#[test]
fn a_prompt_with_the_name_of_a_tool_is_refused() {
    let place = Place::new();
    lock(&place, "well");
    let text = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let prompts =
        "\"prompts\": {\"echo\": {\"about\": \"\", \"input\": {\"type\": \"object\"}}}, \"tools\"";
    fs::write(place.path("w.mcp.lock"), text.replacen("\"tools\"", prompts, 1)).unwrap();
    let with = |keys: &str| {
        let text = workflow("well").replace("in: here }", &format!("in: here, {keys} }}"));
        fs::write(place.path("w.yaml"), text).unwrap();
        place.run(["validate", "w.yaml"])
    };
    let both = with("prompts: echo");
    assert!(both.to_string().contains("`srv` has a tool and a prompt `echo`"), "{both}");
    assert_eq!(with("prompts: echo, tools: add").code, 0);
    assert_eq!(with("resources: \"note://*\"").code, 0);
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let lock = lock.replace("\"resources\": true", "\"resources\": false");
    fs::write(place.path("w.mcp.lock"), lock).unwrap();
    let none = with("resources: \"note://*\"");
    assert!(none.to_string().contains("`srv` has no resources in the lock file"), "{none}");
}

#[test]
fn the_lock_shows_each_tool_that_is_new_or_changed() {
    let place = Place::new();
    let first = lock(&place, "well");
    assert_eq!(first.code, 0, "{first}");
    assert!(first.stdout.contains("new: srv.echo\n  Says it again.\n"), "{first}");
    let again = lock(&place, "well");
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again}");
    fs::write(place.path("w.yaml"), workflow("changed")).unwrap();
    let before = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let check = run(&place, &["mcp", "lock", "w.yaml", "--check", "--allow-host", "here"]);
    assert_eq!(check.code, 1, "{check}");
    assert!(check.stdout.contains("changed: srv.echo\n  Says it again. First send"), "{check}");
    assert_eq!(fs::read_to_string(place.path("w.mcp.lock")).unwrap(), before);
    let listed =
        run(&place, &["mcp", "list", "w.yaml", "--allow-host", "here", "--output", "json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<String> =
        listed.iter().map(|it| format!("{} {}", it["kind"], it["name"]).replace('"', "")).collect();
    let expected =
        "tool add, tool echo, resource note://one, resource file:///etc/hosts, prompt greet";
    assert_eq!(names.join(", "), expected);
}

/// So a person reads the same text as a model.
#[test]
fn hidden_characters_of_a_tool_are_shown_as_escapes() {
    let place = Place::new();
    // Characters that reorder a text reach neither of them.
    let shown = r"Says it\u200b again.";
    let ended = lock(&place, "hidden");
    for part in [shown, r"One \u009b31mtext."] {
        assert!(ended.code == 0 && ended.stdout.contains(part), "{part}: {ended}");
    }
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let lock: Value = serde_json::from_str(&lock).unwrap();
    let about = &lock["servers"]["srv"]["tools"]["echo"]["about"];
    assert_eq!(about, "Says it\u{200b} again.");
    let listed = run(&place, &["mcp", "list", "w.yaml", "--allow-host", "here"]);
    assert!(listed.code == 0 && listed.stdout.contains(shown), "{listed}");
}

#[test]
fn a_lock_that_no_workflow_can_load_is_not_written() {
    let place = locked("well");
    let before = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let ended = lock(&place, "huge");
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    for part in ["for the tool `srv.echo`", "the limit `file_bytes` of 1048576"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    assert_eq!(fs::read_to_string(place.path("w.mcp.lock")).unwrap(), before);
}

#[test]
fn tools_and_prompts_that_cannot_be_used_are_not_locked() {
    let place = Place::new();
    for behaviour in ["pattern", "reference"] {
        let ended = lock(&place, behaviour);
        assert_ne!(ended.code, 0, "{ended}");
        let expected =
            "`srv` has the tool `echo`, which cannot be used: the schema of its arguments";
        assert!(ended.stderr.contains(expected), "{ended}");
    }
    let ended = lock(&place, "mark");
    assert_ne!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("its name has other characters"), "{ended}");
    let ended = lock(&place, "formless");
    assert_ne!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("without the fields that MCP requires"), "{ended}");
    let tools = lock(&place, "twice");
    fs::write(place.path("w.yaml"), greeting("\"two prompts\"")).unwrap();
    let prompts = run(&place, &["mcp", "lock", "w.yaml", "--allow-host", "here"]);
    for (ended, part) in [(tools, "tool `echo`"), (prompts, "prompt `greet`")] {
        let expected = format!("`srv` has the {part}, which cannot be used: it is listed twice");
        assert!(ended.code == 5 && ended.stderr.contains(&expected), "{expected}: {ended}");
    }
    assert!(!place.path("w.mcp.lock").exists());
}

#[test]
fn an_empty_cursor_ends_a_list() {
    let place = Place::new();
    let ended = lock(&place, "empty");
    assert!(ended.code == 0 && ended.stderr.contains("locked 2 tools"), "{ended}");
}

#[test]
fn a_lock_file_is_replaced_and_no_link_is_followed() {
    let place = Place::new();
    let (outside, locked) = (place.path("outside"), place.path("w.mcp.lock"));
    for content in [Some("precious"), None] {
        drop(fs::remove_file(&outside));
        drop(fs::remove_file(&locked));
        if let Some(content) = content {
            fs::write(&outside, content).unwrap();
        }
        symlink(&outside, &locked).unwrap();
        let ended = lock(&place, "well");
        assert_eq!(ended.code, 2, "{ended}");
        assert!(ended.stderr.contains("cannot write `w.mcp.lock`"), "{ended}");
        assert!(ended.stderr.contains("symbolic link"), "{ended}");
        assert_eq!(fs::read_to_string(&outside).ok().as_deref(), content);
    }
    fs::remove_file(&locked).unwrap();
    fs::write(&outside, "precious").unwrap();
    fs::hard_link(&outside, &locked).unwrap();
    assert_eq!(lock(&place, "well").code, 0);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "precious");
}

#[test]
fn a_workflow_without_a_fitting_lock_does_not_load() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), workflow("well")).unwrap();
    let check = |expected: &str| {
        let ended = place.run(["validate", "w.yaml"]);
        assert_eq!(ended.code, 2, "{ended}");
        for part in ["GR054", expected, "graphrun mcp lock w.yaml"] {
            assert!(ended.to_string().contains(part), "{part}: {ended}");
        }
    };
    check("`w.mcp.lock` cannot be read");
    lock(&place, "well");
    assert_eq!(place.run(["validate", "w.yaml"]).code, 0);
    fs::write(place.path("w.yaml"), workflow("other")).unwrap();
    check("the tools of `srv` have another command in the lock file");
    fs::write(
        place.path("w.yaml"),
        workflow("well").replace("in: here }", "in: here, tools: [echo, ad, add] }"),
    )
    .unwrap();
    check("the tool `ad` of `srv` is not in the lock file");
    fs::write(place.path("w.yaml"), workflow("well")).unwrap();
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    fs::write(place.path("w.mcp.lock"), lock.replace("\"integer\"", "\"number of\"")).unwrap();
    check("is not valid: of `srv.add`, the schema of its arguments is invalid");
    let ended = place.run(["validate", "w.yaml"]).to_string();
    assert!(!ended.contains("GR010") && !ended.contains("GR114"), "nothing follows: {ended}");
    fs::write(place.path("w.mcp.lock"), "{\"v\": 2, \"servers\": {}}").unwrap();
    check("is not valid: its version is 2");
}

#[test]
fn a_server_needs_the_operator_and_a_host_that_does_not_ask() {
    let place = locked("well");
    let refused = execute(&place, &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    assert!(refused.stderr.contains("mcp_server.py well …`, with `SERVER_TOKEN`"), "{refused}");
    assert!(!place.path(".graphrun").exists(), "something was started");
    let lock = run(&place, &["mcp", "lock", "w.yaml"]);
    assert!(lock.code == 5 && lock.stderr.contains("`--allow-host here`"), "{lock}");
    let text = workflow("well").replace("approve: never", "approve: each");
    fs::write(place.path("w.yaml"), text).unwrap();
    let ended = execute(&place, &ALLOWED);
    assert!(ended.code == 2 && ended.stderr.contains("asks before a command"), "{ended}");
    fs::write(place.path("w.yaml"), workflow("well")).unwrap();
    let folder = place.path("own/graphrun");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("config.toml"),
        "[hosts.here]\ncommands = [\"python3\"]\nsecrets = [\"SERVER_TOKEN\"]\n",
    )
    .unwrap();
    let own = place.path("own").display().to_string();
    let args = ["execute", "w.yaml", "-i", "a=1"];
    let asks =
        place.run_with(args, [("SERVER_TOKEN", "canary-of-mcp-71aa"), ("XDG_CONFIG_HOME", &own)]);
    assert!(
        asks.code == 5 && asks.stderr.contains("write `approve = \"never\"` into `[hosts.here]`"),
        "{asks}"
    );
    // With it, the server starts, and has its secret from the variables of graphrun.
    let text = workflow("well").replace(
        "tool: srv.add, args: { a: a, b: '2' }, writes: { sum: sum }",
        "tool: srv.echo, args: { text: '\"hi\"' }, writes: reason",
    );
    fs::write(place.path("w.yaml"), text).unwrap();
    fs::write(
        folder.join("config.toml"),
        "[hosts.here]\ncommands = [\"python3\"]\napprove = \"never\"\nsecrets = [\"SERVER_TOKEN\"]\n",
    )
    .unwrap();
    let args = [&args[..], &["--output", "json"]].concat();
    let runs = place.run_with(
        args,
        [("SERVER_TOKEN", "canary-of-mcp-71aa"), ("OTHER", "other"), ("XDG_CONFIG_HOME", &own)],
    );
    assert_eq!(runs.json()["state"]["reason"], "hi [redacted] -", "{runs}");
}

#[test]
fn a_server_that_ignores_the_end_of_its_input_is_killed() {
    let word = unique_id();
    let place = locked(&format!("stay:{word}"));
    assert_eq!(reason(&place), "none");
    assert_ends(&word);
}

#[test]
fn a_bad_server_harms_only_its_call() {
    let cases = [
        ("hang", "the server `srv` did not answer within 3s"),
        ("silent", "the server `srv` did not answer within 3s"),
        ("flood", "the server `srv` answered with more than 8 MiB"),
        ("die", "the server `srv` ended; it wrote: out of memory, token [redacted]"),
        ("changed", "the server `srv` has changed its tool `echo` since it was locked"),
        // A call could mean the other one.
        ("twice", "the server `srv` has changed its tool `echo` since it was locked"),
        ("pages", "the server `srv` lists its tools in more than 100 pages"),
        // Lines that are no messages are passed over.
        ("garbage", "none"),
    ];
    // Each waits for its time limit.
    thread::scope(|threads| {
        for (behaviour, expected) in cases {
            threads.spawn(move || {
                let reason = reason(&locked(behaviour));
                assert!(reason.contains(expected), "{behaviour}: {reason}");
            });
        }
    });
}

#[test]
fn no_process_of_a_server_is_left() {
    let place = locked("fork");
    assert_eq!(reason(&place), "none");
    let child = fs::read_to_string(place.path("forked.pid")).unwrap();
    // A killed process may still wait for a parent that collects it.
    let status =
        fs::read_to_string(Path::new("/proc").join(child).join("stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|it| it.chars().next());
    assert!(matches!(state, None | Some('Z' | 'X')), "{status}");
}
