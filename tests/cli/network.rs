//! Sandboxes that reach named hosts, which the operator allows.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    thread::{self, JoinHandle},
};

use crate::cli::program::{Ended, Place};

/// A workflow whose command asks for tunnels to these hosts, in a sandbox with this network. It prints the statuses.
fn workflow(network: &str, targets: &[String]) -> String {
    let words = targets.join(" ");
    format!(
        r#"graphrun: 1
name: fetching
state: {{ statuses: string, ready: bool }}
output: statuses
sandboxes: {{ box: {{ time: 20s, network: {network} }} }}
start: fetch
nodes:
  fetch:
    run:
      - python3
      - -c
      - |
        import os, socket, sys
        for target in sys.argv[1].split(" "):
            host, port = os.environ["https_proxy"].removeprefix("http://").split(":")
            s = socket.create_connection((host, int(port)))
            s.sendall(("CONNECT " + target + " HTTP/1.1\r\n\r\n").encode())
            print(s.recv(100).decode().split(" ")[1])
      - {words}
    in: box
    writes: {{ statuses: stdout }}
    then: look
  look: {{ ask: "Is it good?", writes: ready, then: end }}
"#
    )
}

fn execute(place: &Place, text: &str, more: &[&str]) -> Ended {
    fs::write(place.path("w.yaml"), text).unwrap();
    place.run(["execute", "w.yaml", "--output", "json"].iter().chain(more))
}

fn refused(text: &str, more: &[&str], expected: &[&str]) {
    let place = Place::new();
    let ended = execute(&place, text, more);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    for expected in expected {
        assert!(ended.stderr.contains(expected), "{expected}: {ended}");
    }
    assert!(!place.path(".graphrun").exists(), "something was started");
}

/// A server that accepts one connection.
fn serve() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 8]);
        let _ = stream.write_all(b"x");
    });
    (port, serving)
}

#[test]
fn a_program_of_an_agent_needs_the_operator_too() {
    let text = "graphrun: 1\nname: w\nstate: { answer: string }\noutput: answer\nsandboxes: { box: { network: [a.example] } }\n\
                agents: { coder: { command: [cat], in: box } }\nstart: it\nnodes:\n  it: { agent: coder, prompt: { text: Mend \
                it. }, writes: answer, then: end }\n";
    refused(text, &[], &["`a.example`", "`--allow-network a.example`"]);
}

#[test]
fn a_host_of_a_sandbox_needs_the_operator() {
    let text = workflow("[api.example.com, \"*.pypi.example\"]", &["x".to_owned()]);
    let expected = [
        "w.yaml` reach hosts that you have not allowed; nothing was started",
        "programs in a sandbox reach `api.example.com`",
        "`--allow-network api.example.com`",
        "programs in a sandbox reach `*.pypi.example`",
    ];
    refused(&text, &[], &expected);
    let narrower = ["--allow-network", "api.example.com", "--allow-network", "a.pypi.example"];
    refused(&text, &narrower, &["`--allow-network '*.pypi.example'`"]);
    let other_port = ["--allow-network", "api.example.com:80", "--allow-network", "*.pypi.example"];
    refused(&text, &other_port, &["`--allow-network api.example.com`"]);
}

#[test]
fn neither_files_nor_variables_allow_a_host() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), workflow("[a.example]", &["x".to_owned()])).unwrap();
    fs::write(place.path(".env"), "GRAPHRUN_ALLOW_NETWORK=a.example\n").unwrap();
    let ended = place.run_with(["execute", "w.yaml"], [("GRAPHRUN_ALLOW_NETWORK", "a.example")]);
    assert_eq!(ended.code, 5, "{ended}");
    fs::write(place.path("graphrun.toml"), "allow_network = [\"a.example\"]\n").unwrap();
    let ended = place.run(["execute", "w.yaml"]);
    assert_ne!(ended.code, 0, "{ended}");
}

#[test]
fn an_address_cannot_be_allowed() {
    let text = workflow("[a.example]", &["x".to_owned()]);
    let ended = execute(&Place::new(), &text, &["--allow-network", "127.0.0.1"]);
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("is an address, not the name of a host"), "{ended}");
}

#[test]
fn an_allowed_host_is_reached_and_is_in_the_trace() {
    let (port, serving) = serve();
    let host = format!("localhost:{port}");
    let targets = [host.clone(), "evil.example:443".to_owned()];
    let text = workflow(&format!("[\"{host}\"]"), &targets);
    let place = Place::new();
    let ended = execute(&place, &text, &["--allow-network-private", &host]);
    assert_eq!(ended.code, 3, "{ended}");
    serving.join().unwrap();
    let run = ended.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(ended.json()["state"]["statuses"], "200\n403\n", "{ended}");
    let events = place.run(["runs", "events", &run, "--output", "jsonl"]).stdout;
    let refused =
        "network: `evil.example:443` was refused: `network` of the sandbox has no such host";
    assert!(events.contains(refused), "{events}");
    assert!(events.contains(&format!("network: `{host}` was connected")), "{events}");
    let resume = ended.json()["resume"].as_str().unwrap().to_owned();
    assert!(resume.contains(&format!("--allow-network-private {host}")), "{resume}");
}

#[test]
fn a_private_host_needs_its_own_flag() {
    let (port, _serving) = serve();
    let host = format!("localhost:{port}");
    let text = workflow(&format!("[\"{host}\"]"), std::slice::from_ref(&host));
    let place = Place::new();
    let ended = execute(&place, &text, &["--allow-network", &host]);
    assert_eq!(ended.json()["state"]["statuses"], "403\n", "{ended}");
    let run = ended.json()["name"].as_str().unwrap().to_owned();
    let events = place.run(["runs", "events", &run, "--output", "jsonl"]).stdout;
    assert!(events.contains("it has an address that is not public"), "{events}");
}
