//! The pieces of a model's answer in the output of the program.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpListener,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::{Value, json};

use crate::cli::{
    program::{Place, workflow},
    provider::read_request,
};

#[test]
fn the_pieces_of_an_answer_are_lines_between_the_events() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let served = thread::spawn(move || {
        let (mut call, _) = provider.accept().unwrap();
        assert!(read_request(&mut call).contains(r#""stream":true"#));
        write!(call, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").unwrap();
        for text in ["for", "ty ", "two"] {
            let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
            write!(call, "data: {piece}\n\n").unwrap();
        }
        write!(call, "data: [DONE]\n\n").unwrap();
    });
    let place = Place::new();
    let agent = workflow("agent");
    let execute = ["execute", &agent, "-i", "brief=x", "--run-id", "run-1", "--output", "jsonl"];
    let done = place.run_with(execute, [("OPENAI_BASE_URL", &*url)]);
    served.join().unwrap();
    assert_eq!(done.code, 0, "{done}");

    let lines: Vec<Value> =
        done.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let schema = place.run(["schema", "events"]).json();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for line in &lines {
        assert!(schema.is_valid(line), "{line}");
    }
    let is_delta = |it: &&Value| it["type"] == "message.delta";
    let deltas: Vec<&Value> = lines.iter().filter(is_delta).collect();
    let text: String = deltas.iter().map(|it| it["text"].as_str().unwrap()).collect();
    assert_eq!(text, "forty two");
    assert!(deltas.iter().all(|it| it["run"] == "run-1" && it.get("seq").is_none()), "{deltas:?}");
    let called = lines.iter().position(|it| it["report"]["kind"] == "model_call").unwrap();
    let last = lines.iter().rposition(|it| is_delta(&it)).unwrap();
    assert!(last < called, "the pieces come before the end of the call: {lines:#?}");

    // The journal has the events only, without gaps in their numbers.
    let events = place.run(["runs", "events", "run-1", "--output", "jsonl"]);
    let kept: Vec<Value> =
        events.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let shown: Vec<&Value> = lines.iter().filter(|it| !is_delta(it)).collect();
    assert_eq!(kept.iter().collect::<Vec<_>>(), shown);
}

/// Starts a program in a terminal of a hundred columns, and copies its output.
const TERMINAL: &str = r#"
import fcntl, os, pty, struct, sys, termios
process, terminal = pty.fork()
if process == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
try:
    while data := os.read(terminal, 4096):
        os.write(1, data)
except OSError:
    pass  # The program has closed its side.
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"#;

#[test]
fn a_terminal_shows_an_answer_while_it_arrives() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let (seen, is_seen) = mpsc::channel();
    let served = thread::spawn(move || {
        let (mut call, _) = provider.accept().unwrap();
        read_request(&mut call);
        write!(call, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").unwrap();
        let mut send = |text: &str| {
            let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
            write!(call, "data: {piece}\n\n").unwrap();
        };
        // A word is shown once it is complete, because a key is removed as a whole.
        send("forty ");
        is_seen.recv().unwrap();
        send("two");
        write!(call, "data: [DONE]\n\n").unwrap();
    });
    let place = Place::new();
    let program = place.command(["execute", &workflow("agent"), "-i", "brief=x"]);
    let variables = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut terminal = Command::new("python3")
        .args(["-c", TERMINAL])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(place.path(""))
        .env_clear()
        .envs(variables)
        .envs([("TERM", "xterm"), ("OPENAI_BASE_URL", &url)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = terminal.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut read_until = |text: &str| {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&shown).contains(text) {
            let count = output.read(&mut buffer).unwrap();
            assert!(count > 0, "`{text}` is not in {}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&buffer[..count]);
        }
    };
    read_until("forty");
    seen.send(()).unwrap();
    read_until("done");
    io::copy(&mut output, &mut io::sink()).unwrap();
    assert!(terminal.wait().unwrap().success());
    served.join().unwrap();
}
