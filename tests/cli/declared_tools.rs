//! Tools that a workflow declares: commands in a sandbox, and HTTP requests to hosts that the operator allows.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place},
    support::git::git,
};

/// A workflow with a command as a tool, which runs this program.
fn command_tool(program: &str) -> String {
    format!(
        "graphrun: 1\nname: searching\n\
         state: {{ query: string, hits: [string], reason: {{ type: string, default: none }} }}\n\
         input: query\noutput: [hits, reason]\n\
         sandboxes: {{ box: {{ time: 5s }} }}\n\
         tools:\n  search:\n    about: Finds words.\n    run: [python3, -c, '{program}']\n    in: box\n    \
         input: {{ query: string, limit: int }}\n    output: {{ hits: [string] }}\n\
         start: find\nnodes:\n  find:\n    tool: search\n    args: {{ query: query, limit: '2' }}\n    \
         writes: {{ hits: hits }}\n    catch: {{ tool: lost }}\n    then: end\n  \
         lost: {{ render: {{ text: \"{{{{ via.error.message }}}}\" }}, writes: reason, then: none }}\n  \
         none: {{ set: {{ hits: '[]' }}, then: end }}\n"
    )
}

fn execute(place: &Place, text: &str, more: &[&str], variables: [(&str, &str); 1]) -> Ended {
    fs::write(place.path("w.yaml"), text).unwrap();
    let args = ["execute", "w.yaml", "-i", "query=a b", "--output", "json"];
    place.run_with(args.iter().chain(more), variables)
}

fn state(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{ended}");
    ended.json()["state"].clone()
}

const NONE: [(&str, &str); 1] = [("UNUSED", "x")];

#[test]
fn a_command_gets_its_input_as_json_and_prints_its_output() {
    let program = "import json, sys; it = json.load(sys.stdin); \
                   print(json.dumps({\"hits\": it[\"query\"].split()[:it[\"limit\"]]}))";
    let ended = execute(&Place::new(), &command_tool(program), &[], NONE);
    assert_eq!(state(&ended)["hits"], json!(["a", "b"]));
}

#[test]
fn an_output_that_does_not_fit_is_a_failure_of_the_tool() {
    for (program, expected) in [
        ("print(1)", "the output does not fit its schema"),
        (
            "import json; print(json.dumps({\"hits\": [], \"more\": 1}))",
            "the output does not fit its schema: Additional properties are not allowed",
        ),
        ("print(\"{\")", "the command printed no JSON"),
        (
            "import json; print(json.dumps({\"hits\": [\"x\" * (5 << 20)]}))",
            "the output of the command is larger than 1 MiB",
        ),
        (
            "import sys; print(\"why\", file=sys.stderr); sys.exit(3)",
            "the command ended with 3: why",
        ),
        (
            "import os; print(1, flush=True); os.kill(os.getppid(), 9)",
            "the command was stopped: a signal ended it together with the shell that keeps its output",
        ),
        ("import time; time.sleep(60)", "the command was stopped after 5s"),
        ("import socket; socket.create_connection((\"127.0.0.1\", 1))", "the command ended with 1"),
    ] {
        let ended = execute(&Place::new(), &command_tool(program), &[], NONE);
        let reason = state(&ended)["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(expected), "{reason}");
    }
}

/// A command that asks the proxy of its sandbox for a host that it may not reach.
const ASKS_FOR_A_HOST: &str = "import os, socket, sys; \
    host, port = os.environ[\"https_proxy\"].removeprefix(\"http://\").split(\":\"); \
    s = socket.create_connection((host, int(port))); \
    s.sendall(b\"CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n\"); s.recv(100); \
    sys.exit(4)";

#[test]
fn a_command_that_fails_names_the_refused_hosts() {
    let place = Place::new();
    let repository = place.path("repo");
    fs::create_dir_all(&repository).unwrap();
    fs::write(repository.join("kept.txt"), "kept\n").unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    git(&repository, &["add", "--all"]);
    git(&repository, &["commit", "--quiet", "--message", "first"]);
    let text = command_tool(ASKS_FOR_A_HOST)
        .replace("{ time: 5s }", "{ time: 5s, network: [a.example] }")
        .replace("state: {", "state: { repo: { type: string, default: repo },")
        .replace("sandboxes:", "folders: { work: { from: repo, git: true } }\nsandboxes:");
    for text in [text.clone(), text.replace("in: box\n", "in: box\n    folder: work\n")] {
        let ended = execute(&place, &text, &["--allow-network", "a.example"], NONE);
        let reason = state(&ended)["reason"].as_str().unwrap().to_owned();
        let expected = "the command ended with 4 (`evil.example:443` was refused: `network` of the sandbox has no such \
                        host)";
        assert!(reason.contains(expected), "{reason}");
    }
}

/// A server that gives this answer to each of some requests. Returns its port, and the requests.
fn serve(answer: &'static str, requests: usize) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let read = |_| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            let mut buffer = [0; 4096];
            while !request.contains("\r\n\r\n")
                || request.starts_with("POST") && !request.ends_with('}')
            {
                let count = stream.read(&mut buffer).unwrap();
                request.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            request
        };
        (0..requests).map(read).collect()
    });
    (port, serving)
}

/// A workflow with a request as a tool.
fn request_tool(http: &str) -> String {
    let text = command_tool("");
    let start = text.find("    run:").unwrap();
    let end = text.find("    input:").unwrap();
    let text = format!("{}    http: {http}\n{}", &text[..start], &text[end..]);
    text.replace("sandboxes: { box: { time: 5s } }\n", "")
}

const FOUND: &str = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"hits\": [\"x\", \"y\"]}";
const SECRET: [(&str, &str); 1] = [("TRACKER_TOKEN", "canary-of-tools-88d1")];

#[test]
fn a_request_sends_encoded_arguments_and_hides_its_secret() {
    let (port, serving) = serve(FOUND, 1);
    let host = format!("127.0.0.1:{port}");
    let text = request_tool(&format!(
        "{{ url: \"http://{host}/find/{{query}}/x?n={{limit}}\", headers: {{ authorization: {{ secret: \
         TRACKER_TOKEN, prefix: \"Bearer \" }}, x-kind: plain }} }}"
    ));
    let place = Place::new();
    let ended = execute(&place, &text, &["--allow-http-private", &host], SECRET);
    assert_eq!(state(&ended)["hits"], json!(["x", "y"]));
    let request = &serving.join().unwrap()[0];
    assert!(request.starts_with("GET /find/a%20b/x?n=2 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer canary-of-tools-88d1\r\n"), "{request}");
    assert!(request.contains("x-kind: plain\r\n"), "{request}");
    let name = ended.json()["name"].as_str().unwrap().to_owned();
    let events = place.run(["runs", "events", &name, "--output", "jsonl"]);
    assert!(!events.stdout.contains("canary") && !ended.to_string().contains("canary"));
}

#[test]
fn the_arguments_beside_the_address_are_the_body() {
    let (port, serving) = serve(FOUND, 1);
    let host = format!("127.0.0.1:{port}");
    let text = request_tool(&format!("{{ method: POST, url: \"http://{host}/?q={{query}}\" }}"));
    let ended = execute(&Place::new(), &text, &["--allow-http-private", "127.0.0.1"], NONE);
    assert_eq!(state(&ended)["hits"], json!(["x", "y"]));
    let request = &serving.join().unwrap()[0];
    assert!(request.ends_with("\r\n\r\n{\"limit\":2}"), "{request}");
}

/// Returns the value of a header, in lower case.
fn header<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    let lines = request.lines().filter_map(|it| it.split_once(": "));
    lines.filter(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1).next()
}

#[test]
fn a_repeated_request_has_the_key_of_the_first_one() {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    let keys = |http: &str| -> (Vec<String>, String) {
        let (port, serving) = serve(BUSY, 2);
        let host = format!("127.0.0.1:{port}");
        let text = request_tool(&http.replace("HOST", &host));
        let retried = "catch: { tool: lost }\n    retry: { attempts: 2, initial: 1ms }";
        let text = text.replacen("catch: { tool: lost }", retried, 1);
        let ended = execute(&Place::new(), &text, &["--allow-http-private", &host], NONE);
        assert!(state(&ended)["reason"].as_str().unwrap().contains("503"), "{ended}");
        let requests = serving.join().unwrap();
        let key = |it: &String| header(it, "idempotency-key").map(str::to_owned);
        (
            requests.iter().filter_map(key).collect(),
            ended.json()["run"].as_str().unwrap().to_owned(),
        )
    };
    let (sent, run) = keys("{ method: POST, url: \"http://HOST/?q={query}\" }");
    assert_eq!(sent.len(), 2);
    assert!(sent[0] == sent[1] && sent[0].starts_with(&format!("{run}/")), "{sent:?}");
    let (sent, _) = keys("{ url: \"http://HOST/{query}?n={limit}\" }");
    assert_eq!(sent, [""; 0]);
    let own =
        "{ method: POST, url: \"http://HOST/?q={query}\", headers: { idempotency-key: own } }";
    assert_eq!(keys(own).0, ["own", "own"]);
}

#[test]
fn a_request_needs_the_operator() {
    let place = Place::new();
    let refused = |text: &str, more: &[&str], variables, expected: &[&str]| {
        let ended = execute(&place, text, more, variables);
        assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
        for expected in expected {
            assert!(ended.stderr.contains(expected), "{expected}: {ended}");
        }
        assert!(!place.path(".graphrun").exists(), "something was started");
    };
    let secret = "headers: { authorization: { secret: TRACKER_TOKEN } }";
    let text = request_tool(&format!(
        "{{ url: \"https://api.example.com/{{query}}?n={{limit}}\", {secret} }}"
    ));
    let expected = [
        "search: GET https://api.example.com, with `TRACKER_TOKEN`",
        "`--allow-http api.example.com`",
    ];
    refused(&text, &[], SECRET, &expected);
    refused(&text, &["--allow-http", "example.com"], SECRET, &expected);
    refused(&text, &["--allow-http", "api.example.com"], NONE, &["set `TRACKER_TOKEN`"]);
    let plain = text.replace("https:", "http:");
    let expected = ["would not be encrypted", "`--allow-http-private api.example.com`"];
    refused(&plain, &["--allow-http", "api.example.com"], SECRET, &expected);
    // The first help names the flag that suffices.
    refused(&plain, &[], SECRET, &expected[1..]);
}

/// The address of a public name is not public, and the name is allowed.
#[test]
fn an_allowed_name_reaches_no_inner_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    let text = request_tool(&format!("{{ url: \"https://{host}/{{query}}?n={{limit}}\" }}"));
    let ended = execute(&Place::new(), &text, &["--allow-http", &host], NONE);
    let reason = state(&ended)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("which is not public"), "{reason}");
    assert!(listener.accept().is_err(), "a connection was made");
}

#[test]
fn a_request_ends_with_its_time() {
    // Connections wait here, and are never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let text =
        request_tool(&format!("{{ url: \"http://{host}/{{query}}?n={{limit}}\", time: 1s }}"));
    let ended = execute(&Place::new(), &text, &["--allow-http-private", &host], NONE);
    let reason = state(&ended)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("within 1s"), "{reason}");
}

#[test]
fn redirects_errors_and_large_answers_are_failures_of_the_tool() {
    let large = "HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n";
    let large = format!("{large}{}", " ".repeat(2_000_000));
    for (answer, expected) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "answered with a redirect (302)",
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope",
            "the server answered 404: nope",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "the output does not fit its schema"),
        (Box::leak(large.into_boxed_str()), "is larger than 1 MiB"),
    ] {
        let (port, serving) = serve(answer, 1);
        let host = format!("127.0.0.1:{port}");
        let text = request_tool(&format!("{{ url: \"http://{host}/{{query}}?n={{limit}}\" }}"));
        let ended = execute(&Place::new(), &text, &["--allow-http-private", &host], NONE);
        let reason = state(&ended)["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(expected), "{reason}");
        drop(serving);
    }
}
