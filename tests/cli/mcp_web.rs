//! MCP servers over HTTP: a server of our own that behaves well, or badly in the ways that its path names.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use serde_json::json;

use crate::cli::{
    mcp::replay,
    program::{Ended, Place},
};

/// The secret in a header, which nothing that graphrun writes may have.
const CANARY: &str = "canary-of-mcp-71aa";

/// The server. Dropping it ends the process.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let program = "tests/cli/workflows/mcp_web_server.py";
        let mut child = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(program))
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed for tests: see scripts/setup --tests");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        Self { child, stdout, port: line.trim().parse().unwrap() }
    }

    /// Ends the process, and returns its output since the start.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        std::io::read_to_string(&mut self.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A workflow whose node calls a tool of the server at an address.
fn workflow(url: &str) -> String {
    // These never answer.
    let never = ["/hang", "/silent", "/drip"].iter().any(|it| url.ends_with(it));
    let time = if never { "3s" } else { "60s" };
    format!(
        "graphrun: 1\nname: serving\n\
         state: {{ a: int, sum: {{ type: int, default: 0 }}, reason: {{ type: string, default: none }} }}\n\
         input: a\noutput: [sum, reason]\n\
         mcp:\n  srv:\n    url: \"{url}\"\n    time: {time}\n    \
         headers: {{ Authorization: {{ secret: SERVER_TOKEN, prefix: \"Bearer \" }}, x-team: blue }}\n\
         start: add\nnodes:\n  \
         add: {{ tool: srv.add, args: {{ a: a, b: '2' }}, writes: {{ sum: sum }}, catch: {{ tool: lost }}, then: end }}\n  \
         lost: {{ render: {{ text: '{{{{ via.error.message }}}}' }}, writes: reason, then: end }}\n"
    )
}

fn run(place: &Place, args: &[&str]) -> Ended {
    place.run_with(args, [("SERVER_TOKEN", CANARY)])
}

fn execute(place: &Place, more: &[&str]) -> Ended {
    let args = ["execute", "w.yaml", "-i", "a=1", "--output", "json"];
    run(place, &[&args, more].concat())
}

/// A place with a workflow for a behaviour, and with the lock of a server that behaves well.
fn locked(port: u16, behaviour: &str) -> Place {
    let place = Place::new();
    let url = format!("http://127.0.0.1:{port}/");
    fs::write(place.path("w.yaml"), workflow(&format!("{url}picky"))).unwrap();
    let ended = run(&place, &["mcp", "lock", "w.yaml", "--allow-http-private", "127.0.0.1"]);
    assert_eq!(ended.code, 0, "{ended}");
    let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
    let lock = lock.replace("/picky\"", &format!("/{behaviour}\""));
    fs::write(place.path("w.mcp.lock"), lock).unwrap();
    fs::write(place.path("w.yaml"), workflow(&format!("{url}{behaviour}"))).unwrap();
    place
}

const ALLOWED: [&str; 2] = ["--allow-http-private", "127.0.0.1"];

#[test]
fn a_server_gets_its_headers_and_a_replay_needs_no_server() {
    let server = Server::start();
    for behaviour in ["picky", "events"] {
        let place = locked(server.port, behaviour);
        let lock = fs::read_to_string(place.path("w.mcp.lock")).unwrap();
        assert!(!lock.contains("command") && lock.contains(&format!("/{behaviour}\"")), "{lock}");
        let record = execute(&place, &[&ALLOWED[..], &["--record", "calls.jsonl"]].concat());
        assert_eq!(record.json()["state"], json!({"sum": 3, "reason": "none"}), "{record}");
        let replay = replay(&place);
        assert_eq!(replay.json()["state"], json!({"sum": 3, "reason": "none"}), "{replay}");
    }
}

#[test]
fn a_server_needs_the_operator_for_its_host() {
    let server = Server::start();
    let place = locked(server.port, "picky");
    let host = format!("127.0.0.1:{}", server.port);
    let refused = execute(&place, &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    for part in [
        format!("srv: POST http://{host}, with `SERVER_TOKEN`"),
        format!("`--allow-http-private {host}`"),
    ] {
        assert!(refused.stderr.contains(&part), "{part}: {refused}");
    }
    assert!(!place.path(".graphrun").exists(), "something was started");
    let plain = execute(&place, &["--allow-http", &host]);
    assert!(plain.code == 5 && plain.stderr.contains("would not be encrypted"), "{plain}");
    let other = execute(&place, &["--allow-http-private", "127.0.0.1:1"]);
    assert_eq!(other.code, 5, "{other}");
    let lock = run(&place, &["mcp", "list", "w.yaml"]);
    assert!(lock.code == 5 && lock.stderr.contains("--allow-http"), "{lock}");
    let unset = place.run(["execute", "w.yaml", "-i", "a=1", ALLOWED[0], ALLOWED[1]]);
    assert!(unset.code == 5 && unset.stderr.contains("set `SERVER_TOKEN`"), "{unset}");
    // A public name that leads inside is refused at the connection.
    let inside = format!("https://localhost:{}/picky", server.port);
    fs::write(place.path("w.yaml"), workflow(&inside)).unwrap();
    let ended = run(&place, &["mcp", "lock", "w.yaml", "--allow-http", "localhost"]);
    assert!(ended.code == 5 && ended.stderr.contains("is not public"), "{ended}");
}

#[test]
fn a_bad_server_harms_only_its_call() {
    let cases = [
        ("hang", "the server `srv` did not answer within 3s"),
        ("silent", "the server `srv` did not answer within 3s"),
        ("drip", "the server `srv` did not answer within 3s"),
        ("flood", "the server `srv` answered with more than 8 MiB"),
        ("endless", "sent an event of more than 8 MiB"),
        ("pages", "the server `srv` lists its tools in more than 100 pages"),
        ("changed", "the server `srv` has changed its tool `echo` since it was locked"),
        ("denied", "the server `srv` denies access (401): check its `headers`"),
        ("challenged", "the server `srv` denies access (401): check its `headers`"),
        ("redirect", "the answer is a redirect (307 Temporary Redirect), which is not followed"),
        ("html", "gave no answer of MCP: it sent `text/html`; check its `url`"),
        ("nonsense", "the server `srv` gave no answer of MCP"),
        ("busy", "the server `srv` answered with status 503"),
        ("forgotten", "the server `srv` answered with status 404"),
        ("closed", "the server `srv` cannot be reached"),
        ("refuses", "the server `srv` refused: no rights for Bearer [redacted]"),
    ];
    let server = Server::start();
    let port = server.port;
    thread::scope(|threads| {
        for (behaviour, expected) in cases {
            threads.spawn(move || {
                let ended = execute(&locked(port, behaviour), &ALLOWED);
                assert_eq!(ended.code, 0, "{behaviour}: {ended}");
                let reason = ended.json()["state"]["reason"].as_str().unwrap().to_owned();
                assert!(reason.contains(expected), "{behaviour}: {reason}");
                assert!(!ended.to_string().contains(CANARY), "{behaviour}: {ended}");
            });
        }
    });
    assert_eq!(server.end(), "", "a redirect was followed");
}

#[test]
fn the_session_of_a_server_ends_with_the_run() {
    let server = Server::start();
    for behaviour in ["ending", "keeping"] {
        let place = locked(server.port, behaviour);
        let ended = execute(&place, &ALLOWED);
        assert_eq!(ended.json()["state"], json!({"sum": 3, "reason": "none"}), "{ended}");
    }
    // With the headers of the server, once for each run, which waits for the answer.
    assert_eq!(server.end(), "/ending one True True\n/keeping one True True\n");
}

/// Its session ends without its answer.
#[test]
fn a_server_that_hangs_at_the_end_delays_nothing_for_long() {
    let server = Server::start();
    let place = locked(server.port, "clinging");
    let lock = [&["mcp", "lock", "w.yaml", "--check"], &ALLOWED[..]].concat();
    let ended = run(&place, &lock);
    assert_eq!(ended.code, 0, "{ended}");
    let ended = execute(&place, &ALLOWED);
    assert_eq!(ended.json()["state"], json!({"sum": 3, "reason": "none"}), "{ended}");
}

#[test]
fn another_address_needs_another_lock() {
    let server = Server::start();
    let place = locked(server.port, "picky");
    assert_eq!(place.run(["validate", "w.yaml"]).code, 0);
    let text = fs::read_to_string(place.path("w.yaml")).unwrap();
    fs::write(place.path("w.yaml"), text.replace("/picky", "/other")).unwrap();
    let ended = place.run(["validate", "w.yaml"]);
    assert_eq!(ended.code, 2, "{ended}");
    let flag = format!("--allow-http-private 127.0.0.1:{}`", server.port);
    for part in ["GR054", "the tools of `srv` have another address in the lock file", &flag] {
        assert!(ended.to_string().contains(part), "{part}: {ended}");
    }
}

#[test]
fn a_server_that_is_gone_is_named() {
    let server = Server::start();
    let place = locked(server.port, "picky");
    drop(server);
    let ended = execute(&place, &ALLOWED);
    let reason = ended.json()["state"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("the server `srv` cannot be reached: "), "{reason}");
    assert!(reason.ends_with("; check its `url`"), "{reason}");
}
