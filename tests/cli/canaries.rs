//! A key that comes in anywhere, in any encoding, is neither shown nor saved.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use serde_json::{Value, json};

use crate::{
    program::{Ended, Place, workflow},
    provider::read_request,
};

/// The key that the program is given. It has no known form, so only the program's knowledge of it protects it.
const KEY: &str = "canary-7f3A9c2b-QuietOtter/51+e8";

/// A key of a known form that the program is not given.
const STRANGER: &str = "sk-proj-Zq8w4N1xT6yL3vB9aaaa";

/// A workflow whose agent answers with anything, and may read files.
const ANYTHING: &str = "
graphrun: 1
name: anything
about: An agent that answers with anything.
state: { brief: string, answer: json }
input: [brief]
output: [answer]
models: { small: openai/gpt-5-mini }
agents: { writer: { model: small } }
start: write
nodes:
  write:
    agent: writer
    prompt: { text: \"Answer this: {{ brief }}\" }
    writes: answer
    then: end
";

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text.as_bytes()
        .chunks(3)
        .flat_map(|three| {
            let number = three.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
            let number = number << (8 * (3 - three.len()));
            (0..=three.len()).map(move |at| char::from(DIGITS[number >> (18 - 6 * at) & 63]))
        })
        .collect()
}

/// The key in the encodings in which servers and programs repeat one.
fn encodings(key: &str) -> Vec<String> {
    let each = |encode: fn(u8) -> String| key.bytes().map(encode).collect::<String>();
    vec![
        key.to_owned(),
        key.to_uppercase(),
        key.replace('/', "\\/"),
        each(|it| format!("\\u{it:04x}")),
        each(|it| format!("%{it:02X}")),
        each(|it| format!("%25{it:02x}")),
        each(|it| format!("&#{it};")),
        each(|it| format!("&#x{it:x};")),
        each(|it| format!("\\x{it:02x}")),
        each(|it| format!("\\{it:03o}")),
        each(|it| format!("{it:02x}")),
        each(|it| format!("{it:02X}")),
        base64(key),
        base64(&format!("x{key}")),
        base64(&format!("me{key}:")).replace('+', "-").replace('/', "_"),
        key.chars().rev().collect(),
        format!("{}\u{200b}{}", &key[..9], &key[9..]),
        format!("{}\n{}", &key[..12], &key[12..]),
    ]
}

/// A text with the key in every encoding.
fn everything(key: &str) -> String {
    encodings(key).join(" | ")
}

/// The parts of the encodings by which each is recognised, however it is cut or quoted.
fn traces(key: &str) -> Vec<String> {
    let middle = |text: String| {
        let text: Vec<char> = text.chars().collect();
        text[text.len() / 3..text.len() * 2 / 3].iter().collect::<String>().to_lowercase()
    };
    encodings(key).into_iter().map(middle).collect()
}

/// Fails if there is a trace of a key in a text.
fn check_text(place: &str, text: &str) {
    let text = text.to_lowercase();
    for trace in [traces(KEY), traces(STRANGER)[..1].to_vec()].concat() {
        assert!(!text.contains(&trace), "{place} contains {trace:?}: {text}");
    }
}

fn check_file(path: &Path) {
    let bytes = fs::read(path).unwrap();
    check_text(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
}

/// Fails if a program has shown a key, or if one is in any file that it wrote, or in what a run tells of itself.
fn check(place: &Place, ended: &Ended) {
    check_text("stdout", &ended.stdout);
    check_text("stderr", &ended.stderr);
    for name in ["runs.db", "runs.db-wal", "calls.jsonl"] {
        let path = place.path(name);
        if path.exists() {
            check_file(&path);
        }
    }
    for command in ["events", "state", "export", "show", "history"] {
        let told = place.run(["runs", command, "mine", "--db", "sqlite:runs.db"]);
        // Nothing was saved where the program refused to start.
        check_text(command, &told.stdout);
        check_text(command, &told.stderr);
    }
}

/// Answers calls with a status, headers and a body until the test ends.
fn serve(status: &'static str, header: String, bodies: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut bodies = bodies.iter().cycle();
        for call in listener.incoming() {
            let (mut call, body): (TcpStream, &String) = (call.unwrap(), bodies.next().unwrap());
            read_request(&mut call);
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\nx-echo: {header}");
            write!(call, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            // The program may close first.
            drop(call.read(&mut [0; 1]));
        }
    });
    format!("http://{address}/v1")
}

/// Runs the workflow with a provider, and gives back how it ended.
fn execute(place: &Place, provider: &str, input: &str) -> Ended {
    fs::write(place.path("anything.yaml"), ANYTHING).unwrap();
    let input = format!("brief={input}");
    let args = ["execute", "anything.yaml", "-i", &input, "--run-id", "mine"];
    let more = ["--db", "sqlite:runs.db", "--record", "calls.jsonl", "--output", "json"];
    let variables =
        [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", provider), ("GRAPHRUN_LOG", "debug")];
    place.run_with(args.into_iter().chain(more), variables)
}

fn completion(message: &Value) -> String {
    json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string()
}

#[test]
fn a_key_in_a_reply_is_removed_after_decoding() {
    let all = everything(KEY);
    let fields = json!({"a": all, &*all: {KEY: [all]}, "s": STRANGER}).to_string();
    let mut escaped = String::new();
    for unit in KEY.encode_utf16() {
        write!(escaped, "\\u{unit:04X}").unwrap();
    }
    // JSON allows every character to be escaped, and serde_json escapes few.
    let raw = format!(
        "{{\"{escaped}\": \"{escaped}\", \"part\": \"{}\"}}",
        escaped.replacen("\\u0063", "c", 1)
    );
    let bodies = [
        completion(&json!({"content": fields})),
        completion(&json!({"content": raw, "reasoning_content": all})),
        format!(r#"{{"choices": [{{"message": {{"content": "\"{escaped}\""}}}}]}}"#),
    ];
    for body in bodies {
        let place = Place::new();
        let provider = serve("200 OK", KEY.to_owned(), vec![body.clone()]);
        let ended = execute(&place, &provider, "x");
        assert_eq!(ended.code, 0, "{ended}\n{body}");
        assert!(ended.stdout.contains("[redacted]"), "{ended}\n{body}");
        check(&place, &ended);
    }
}

#[test]
fn a_key_in_an_error_of_the_provider_is_removed() {
    let all = everything(KEY);
    let cases = [
        ("401 Unauthorized", json!({"error": {"message": all, "code": KEY}}).to_string()),
        ("400 Bad Request", json!({"detail": [{"msg": all, KEY: all}]}).to_string()),
        ("403 Forbidden", format!("<html><title>{all}</title></html>")),
        ("200 OK", format!("{all} is no JSON")),
        ("200 OK", json!({"error": {"message": all, "code": 401}}).to_string()),
        ("200 OK", json!({KEY: all}).to_string()),
        ("200 OK", completion(&json!({"refusal": all}))),
        (
            "200 OK",
            completion(&json!({"tool_calls": [
                {"function": {"name": KEY, "arguments": json!({"a": all}).to_string()}},
            ]})),
        ),
    ];
    for (status, body) in cases {
        let place = Place::new();
        let provider = serve(status, all.replace(['\n', '\u{200b}'], " "), vec![body.clone()]);
        let ended = execute(&place, &provider, "x");
        assert_ne!(ended.code, 0, "{ended}\n{body}");
        check(&place, &ended);
    }
}

#[test]
fn a_key_that_is_typed_as_input_is_replaced_with_a_warning() {
    let place = Place::new();
    let provider = serve("200 OK", String::new(), vec![completion(&json!({"content": "42"}))]);
    for input in [everything(KEY), format!("use {STRANGER}")] {
        fs::write(place.path("input.txt"), &input).unwrap();
        fs::write(place.path("input.json"), json!({"brief": input}).to_string()).unwrap();
        for flag in [input.as_str(), "@input.txt"] {
            drop(fs::remove_file(place.path("runs.db")));
            let ended = execute(&place, &provider, flag);
            assert_eq!(ended.code, 0, "{ended}");
            assert!(ended.stderr.contains("warning: the value of `brief` contains"), "{ended}");
            check(&place, &ended);
        }
    }
}

#[test]
fn a_key_in_an_answer_is_replaced() {
    let place = Place::new();
    let run = ["execute", &workflow("asks"), "-i", "brief=x", "--run-id", "mine"];
    let run = run.into_iter().chain(["--db", "sqlite:runs.db", "--output", "json"]);
    let asked = place.run_with(run, [("OPENAI_API_KEY", KEY)]);
    assert_eq!(asked.code, 3, "{asked}");
    let key = asked.json()["questions"][0]["key"].as_str().unwrap().to_owned();
    let answer = format!("{key}={}", json!(everything(KEY)));
    let args = ["resume", "mine", "--answer", &answer, "--db", "sqlite:runs.db"];
    let ended = place.run_with(args, [("OPENAI_API_KEY", KEY)]);
    check(&place, &ended);
}

#[test]
fn a_key_in_a_flag_or_a_file_of_settings_is_not_shown() {
    let place = Place::new();
    fs::write(place.path("graphrun.toml"), format!("api_key = \"{KEY}\"\n{KEY} = 1\n")).unwrap();
    let workflow = workflow("agent");
    let url = format!("postgres://me:{KEY}@/nowhere?port={KEY}");
    for args in [
        vec!["validate", &workflow],
        vec!["execute", KEY],
        vec![KEY],
        vec!["runs", "show", KEY],
        vec!["doctor", "--db", &url],
        vec!["runs", "list", "--db", &url],
        vec!["execute", &workflow, "-i", KEY],
        vec!["execute", &workflow, "--max-steps", KEY],
    ] {
        let ended = place.run_with(&args, [("OPENAI_API_KEY", KEY)]);
        check_text("stdout", &ended.stdout);
        check_text("stderr", &ended.stderr);
    }
}
