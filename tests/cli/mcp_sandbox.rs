//! MCP servers in a sandbox: the server of `mcp_server.py`, without any permission of the operator.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use graphrun::id::unique_id;
use serde_json::json;

use crate::{
    cli::program::{Ended, Place},
    sandbox::host::leftovers,
};

/// How long the end of all processes may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A workflow whose node calls a tool of a server in a sandbox.
fn workflow(behaviour: &str, sandbox: &str, time: &str) -> String {
    format!(
        "graphrun: 1\nname: serving\n\
         state: {{ a: int, sum: {{ type: int, default: 0 }}, reason: {{ type: string, default: none }} }}\n\
         input: a\noutput: [sum, reason]\n\
         sandboxes: {{ box: {{ time: 1s{sandbox} }} }}\n\
         mcp: {{ srv: {{ command: [python3, mcp_server.py, \"{behaviour}\"], in: box, scripts: mcp_server.py, time: {time} }} }}\n\
         start: add\nnodes:\n  \
         add: {{ tool: srv.add, args: {{ a: a, b: '2' }}, writes: {{ sum: sum }}, catch: {{ tool: lost }}, then: end }}\n  \
         lost: {{ render: {{ text: '{{{{ via.error.message }}}}' }}, writes: reason, then: end }}\n"
    )
}

/// A place with a workflow for a behaviour, and with the lock of a server that behaves well.
fn locked(behaviour: &str, sandbox: &str, time: &str) -> Place {
    let place = Place::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/workflows/mcp_server.py");
    fs::copy(script, place.path("mcp_server.py")).unwrap();
    fs::write(place.path("w.yaml"), workflow("well", "", "60s")).unwrap();
    let ended = place.run(["mcp", "lock", "w.yaml"]);
    assert_eq!(ended.code, 0, "{ended}");
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    fs::write(place.path("w.mcp.lock"), lock.replace("\"well\"", &format!("\"{behaviour}\"")))
        .unwrap();
    fs::write(place.path("w.yaml"), workflow(behaviour, sandbox, time)).unwrap();
    place
}

fn execute(place: &Place, more: &[&str]) -> Ended {
    let args = ["execute", "w.yaml", "-i", "a=1", "--output", "json"];
    place.run(args.iter().chain(more))
}

pub(super) fn assert_ends(word: &str) {
    let began = Instant::now();
    while !leftovers(word).is_empty() {
        assert!(began.elapsed() < PATIENCE, "a process with `{word}` is left");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_in_a_sandbox_needs_no_permission() {
    let place = locked("well", "", "60s");
    let record = execute(&place, &["--record", "calls.jsonl"]);
    assert_eq!(record.json()["state"], json!({"sum": 3, "reason": "none"}), "{record}");
    let replay = execute(&place, &["--replay", "calls.jsonl"]);
    assert_eq!(replay.json()["state"], json!({"sum": 3, "reason": "none"}), "{replay}");
    let missing = fs::read_to_string(place.path("w.yaml")).unwrap();
    fs::write(place.path("w.yaml"), missing.replace("[python3, mcp", "[no-such-server, mcp"))
        .unwrap();
    let ended = place.run(["mcp", "lock", "w.yaml"]);
    assert_eq!(ended.code, 5, "{ended}");
    let expected = "ended: there is no program `no-such-server` inside the sandbox";
    assert!(ended.stderr.contains(expected), "{ended}");
}

#[test]
fn a_bad_server_in_a_sandbox_harms_only_its_call() {
    let cases = [
        ("hang", "did not answer within 4s"),
        ("silent", "did not answer within 4s"),
        ("flood", "the server `srv` answered with more than 8 MiB"),
        ("die", "the server `srv` ended; it wrote: out of memory, token [redacted]"),
        ("memory", "MemoryError"),
        ("changed", "the server `srv` has changed its tool `echo` since it was locked"),
        ("pages", "the server `srv` lists its tools in more than 100 pages"),
        ("garbage", "none"),
        // The `time` of the sandbox is for one command.
        ("slow", "none"),
        ("fork", "none"),
    ];
    thread::scope(|threads| {
        for (behaviour, expected) in cases {
            threads.spawn(move || {
                let word = unique_id();
                let time = if expected.contains("4s") { "4s" } else { "60s" };
                let place = locked(&format!("{behaviour}:{word}"), ", memory: 256M", time);
                let ended = execute(&place, &[]);
                assert_eq!(ended.code, 0, "{behaviour}: {ended}");
                let reason = ended.json()["state"]["reason"].as_str().unwrap().to_owned();
                assert!(reason.contains(expected), "{behaviour}: {reason}");
                assert_ends(&word);
            });
        }
    });
}

/// Kills graphrun while its server works, which has the word among its arguments.
pub(super) fn check_end_with_graphrun(place: &Place, more: &[&str], word: &str) {
    let mut command = place.command(["execute", "w.yaml", "-i", "a=1"].iter().chain(more));
    command.env("SERVER_TOKEN", "x").stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    while leftovers(word).is_empty() {
        assert!(began.elapsed() < PATIENCE, "the server did not start");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ends(word);
}

#[test]
fn a_server_in_a_sandbox_ends_with_graphrun() {
    let word = unique_id();
    let place = locked(&format!("hang:{word}"), "", "60s");
    check_end_with_graphrun(&place, &[], &word);
}

#[test]
fn a_server_in_a_sandbox_reaches_the_allowed_hosts_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    let network = format!(", network: [\"{host}\"]");
    let place = locked(&format!("callout:{host}"), &network, "60s");
    let refused = execute(&place, &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    assert!(refused.stderr.contains(&format!("`--allow-network {host}`")), "{refused}");
    let refused = place.run(["mcp", "list", "w.yaml"]);
    assert!(refused.code == 5 && refused.stderr.contains("--allow-network"), "{refused}");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 8]);
        let _ = stream.write_all(b"x");
    });
    let ended = execute(&place, &["--allow-network-private", &host]);
    assert_eq!(ended.json()["state"], json!({"sum": 200, "reason": "none"}), "{ended}");
    let place = locked("callout:evil.example:443", &network, "60s");
    let ended = execute(&place, &["--allow-network-private", &host]);
    assert_eq!(ended.json()["state"], json!({"sum": 403, "reason": "none"}), "{ended}");
}
