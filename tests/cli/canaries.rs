//! A key from any source, in any encoding, is neither shown nor saved.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::cli::{
    program::{Ended, Place, workflow},
    provider::read_request,
};

/// The key in the environment of the program. It has no known form, so only the program's knowledge
/// of it protects it.
const KEY: &str = "canary-7f3A9c2b-QuietOtter/51+e8";

/// A key of a known form that is not in the environment.
const STRANGER: &str = "sk-proj-Zq8w4N1xT6yL3vB9aaaa";

/// A workflow whose agent may answer anything and may read files.
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

fn base32(text: &str) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bits = String::new();
    for byte in text.bytes() {
        write!(bits, "{byte:08b}").unwrap();
    }
    let digit = |five: &[u8]| {
        let number = five.iter().fold(0, |number, bit| number << 1 | usize::from(bit - b'0'));
        char::from(DIGITS[number << (5 - five.len())])
    };
    bits.as_bytes().chunks(5).map(digit).collect()
}

fn rot13(text: &str) -> String {
    let turn = |letter: char| match letter {
        'a'..='m' | 'A'..='M' => char::from(letter as u8 + 13),
        'n'..='z' | 'N'..='Z' => char::from(letter as u8 - 13),
        letter => letter,
    };
    text.chars().map(turn).collect()
}

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

/// Returns the key in the encodings in which servers and programs repeat one.
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
        base32(key),
        base32(&format!("you{key}")),
        rot13(key),
        key.chars().rev().collect(),
        format!("{}\u{200b}{}", &key[..9], &key[9..]),
        format!("{}\n{}", &key[..12], &key[12..]),
    ]
}

/// Returns a text with the key in every encoding.
fn everything(key: &str) -> String {
    encodings(key).join(" | ")
}

/// Returns the parts of the encodings by which each is recognised, even if it is truncated or
/// quoted.
fn traces(key: &str) -> Vec<String> {
    let middle = |text: String| {
        let text: Vec<char> = text.chars().collect();
        text[text.len() / 3..text.len() * 2 / 3].iter().collect::<String>().to_lowercase()
    };
    encodings(key).into_iter().map(middle).collect()
}

/// Fails if a text contains a trace of a key.
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

/// Fails if the output of a program, its files, or the commands that show its run contain a key.
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
        // Nothing was saved if the program refused to start.
        check_text(command, &told.stdout);
        check_text(command, &told.stderr);
    }
}

/// Answers calls with a status, headers and a body until the test ends.
fn serve(status: &'static str, header: String, bodies: Vec<String>) -> String {
    serve_and_keep(status, header, bodies).0
}

/// Same as `serve`, and keeps the requests.
fn serve_and_keep(
    status: &'static str,
    header: String,
    bodies: Vec<String>,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut bodies = bodies.iter().cycle();
        for call in listener.incoming() {
            let (mut call, body): (TcpStream, &String) = (call.unwrap(), bodies.next().unwrap());
            let request = read_request(&mut call);
            kept.lock().unwrap().push(request);
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\nx-echo: {header}");
            write!(call, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            // The program may close first.
            drop(call.read(&mut [0; 1]));
        }
    });
    (format!("http://{address}/v1"), asked)
}

/// Runs the workflow with a provider.
fn execute(place: &Place, provider: &str, input: &str) -> Ended {
    execute_file(place, ANYTHING, provider, input)
}

fn execute_file(place: &Place, file: &str, provider: &str, input: &str) -> Ended {
    fs::write(place.path("anything.yaml"), file).unwrap();
    let input = format!("brief={input}");
    let args = ["execute", "anything.yaml", "-i", &input, "--run-id", "mine"];
    let more = ["--db", "sqlite:runs.db", "--record", "calls.jsonl", "--output", "json"];
    let variables = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", provider), ("RUST_LOG", "debug")];
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
    // JSON allows an escape for every character, and serde_json escapes few.
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
        let twice = ANYTHING.replace("writes: answer", "writes: answer\n    retry: 2");
        let ended = execute_file(&place, &twice, &provider, "x");
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
            assert!(
                ended.stderr.contains("warning: the value of `brief` seems to contain"),
                "{ended}"
            );
            check(&place, &ended);
        }
    }
}

/// A workflow that asks for a text, accepts messages, and returns both.
const ASKS: &str = "
graphrun: 1
name: asks
about: A workflow that asks for a text.
state:
  brief: { type: string, default: none }
  answer: { type: string, default: none }
  heard: { type: \"[string]\", merge: append, default: [] }
input: [brief]
output: [answer, heard, brief]
inbox: [heard]
start: help
nodes:
  help: { ask: \"What now?\", writes: answer, then: last }
  last: { set: { brief: brief }, then: end }
";

/// Starts [`ASKS`], which then waits; returns the question.
fn asked(place: &Place) -> String {
    fs::write(place.path("asks.yaml"), ASKS).unwrap();
    let args =
        ["execute", "asks.yaml", "-i", "brief=x", "--run-id", "mine", "--db", "sqlite:runs.db"];
    let asked = place.run_with(args.into_iter().chain(["--output", "json"]), KNOWN);
    assert_eq!(asked.code, 3, "{asked}");
    asked.json()["questions"][0]["key"].as_str().unwrap().to_owned()
}

/// An environment that contains the key.
const KNOWN: [(&str, &str); 1] = [("OPENAI_API_KEY", KEY)];

#[test]
fn a_key_in_an_answer_is_replaced() {
    let place = Place::new();
    let question = asked(&place);
    let answer = format!("{question}={} and {STRANGER}", everything(KEY));
    let args =
        ["resume", "mine", "--answer", &answer, "--db", "sqlite:runs.db", "--output", "json"];
    let ended = place.run_with(args, KNOWN);
    assert_eq!(ended.code, 0, "{ended}");
    let taken = ended.json()["state"]["answer"].as_str().unwrap().to_owned();
    assert_eq!(taken.matches("[redacted]").count(), encodings(KEY).len() + 1, "{taken}");
    assert!(ended.stderr.contains("seems to contain a key"), "{ended}");
    check(&place, &ended);
}

#[test]
fn a_key_in_a_message_is_replaced() {
    let place = Place::new();
    let question = asked(&place);
    let message = format!("{} and {STRANGER}", everything(KEY));
    let said = place.run_with(["message", "mine", &message, "--db", "sqlite:runs.db"], KNOWN);
    assert_eq!(said.code, 0, "{said}");
    assert!(said.stderr.contains("seems to contain a key"), "{said}");
    check(&place, &said);
    let answer = format!("{question}=go");
    let args =
        ["resume", "mine", "--answer", &answer, "--db", "sqlite:runs.db", "--output", "json"];
    let ended = place.run_with(args, KNOWN);
    assert_eq!(ended.code, 0, "{ended}");
    let heard = ended.json()["state"]["heard"][0].as_str().unwrap().to_owned();
    assert_eq!(heard.matches("[redacted]").count(), encodings(KEY).len() + 1, "{heard}");
    check(&place, &ended);
}

#[test]
fn a_key_in_a_file_or_stdin_that_is_given_is_replaced() {
    let text = everything(KEY);
    let fields = json!({"brief": text, "answer": json!({KEY: [text]}).to_string()}).to_string();
    let mut escaped = String::new();
    for unit in KEY.encode_utf16() {
        write!(escaped, "\\u{unit:04x}").unwrap();
    }
    let raw = format!("{{\"brief\": \"{escaped}\"}}");
    for (flag, file, stdin) in [
        ("@input.json", fields.as_str(), ""),
        ("@input.json", &raw, ""),
        ("@-", "", fields.as_str()),
        ("@-", "", raw.as_str()),
        ("brief=@-", "", text.as_str()),
    ] {
        let place = Place::new();
        fs::write(
            place.path("asks.yaml"),
            ASKS.replace("input: [brief]", "input: [brief, answer]"),
        )
        .unwrap();
        fs::write(place.path("input.json"), file).unwrap();
        fs::write(place.path("stdin"), stdin).unwrap();
        let args = ["execute", "asks.yaml", "-i", flag, "--run-id", "mine", "--output", "json"];
        let mut command = place.command(args.into_iter().chain(["--db", "sqlite:runs.db"]));
        command.envs(KNOWN).stdin(fs::File::open(place.path("stdin")).unwrap());
        let ended = Ended::of(&mut command);
        assert_eq!(ended.code, 3, "{flag}: {ended}");
        assert!(ended.json()["state"]["brief"].as_str().unwrap().contains("[redacted]"), "{ended}");
        check(&place, &ended);
    }
}

/// Returns a script that prints a text without containing it.
fn prints(text: &str, more: &str) -> String {
    let numbers: Vec<String> = text.encode_utf16().map(|it| (it ^ 1).to_string()).collect();
    let numbers = numbers.join(",");
    format!("import sys; text = ''.join(chr(it ^ 1) for it in [{numbers}]); {more}")
}

/// Runs a workflow with one node that runs in a sandbox, and returns its result.
fn in_sandbox(node: &str, fields: &'static str) -> (Place, Ended) {
    let place = Place::new();
    let name = |it: &'static str| it.split(':').next().unwrap();
    let names: Vec<&str> = fields.split(",  ").map(name).collect();
    let workflow = format!(
        "graphrun: 1\nname: works\nabout: A node that works in a sandbox.\nstate: {{ {fields} }}\n\
         output: [{}]\nstart: work\nsandboxes: {{ box: {{ time: 30s }} }}\nnodes:\n  work:\n{node}    in: box\n    then: end\n",
        names.join(", ")
    );
    fs::write(place.path("works.yaml"), workflow).unwrap();
    let args = ["execute", "works.yaml", "--run-id", "mine", "--output", "json"];
    let ended = place.run_with(args.into_iter().chain(["--db", "sqlite:runs.db"]), KNOWN);
    (place, ended)
}

#[test]
fn a_key_in_the_output_of_a_command_is_replaced() {
    let script = prints(&everything(KEY), "print(text); print('told', text, file=sys.stderr)");
    let node = format!(
        "    run: [python3, -c, {}]\n    writes: {{ out: stdout, err: stderr }}\n",
        json!(script)
    );
    let (place, ended) = in_sandbox(&node, "out: string,  err: string");
    assert_eq!(ended.code, 0, "{ended}");
    for field in ["out", "err"] {
        let text = ended.json()["state"][field].as_str().unwrap().to_owned();
        assert_eq!(text.matches("[redacted]").count(), encodings(KEY).len(), "{text}");
    }
    check(&place, &ended);
    // As JSON, and as the last output of a failure.
    let script = prints(&json!({KEY: [everything(KEY)]}).to_string(), "print(text)");
    let node = format!("    run: [python3, -c, {}]\n    writes: {{ out: json }}\n", json!(script));
    let (place, ended) = in_sandbox(&node, "out: json");
    assert!(ended.code == 0 && ended.stdout.contains("[redacted]"), "{ended}");
    check(&place, &ended);
    let script = prints(&everything(KEY).replace('\n', " "), "sys.exit(text)");
    let node =
        format!("    run: [python3, -c, {}]\n    writes: {{ out: stdout }}\n", json!(script));
    let (place, ended) = in_sandbox(&node, "out: string");
    assert!(ended.code == 1 && ended.stderr.contains("[redacted]"), "{ended}");
    check(&place, &ended);
}

#[test]
fn a_key_that_the_limit_of_output_cuts_is_not_shown_in_part() {
    const STREAM_BYTES: usize = 1 << 20;
    for kept in [8, 9, 15, KEY.len() - 1] {
        let before = STREAM_BYTES - kept - 1;
        let script = prints(KEY, &format!("print('x' * {before}); print(text + 'y' * 9999)"));
        let node =
            format!("    run: [python3, -c, {}]\n    writes: {{ out: stdout }}\n", json!(script));
        let (place, ended) = in_sandbox(&node, "out: string");
        assert_eq!(ended.code, 0, "{kept}: {}", ended.stderr);
        let text = ended.json()["state"]["out"].as_str().unwrap().to_owned();
        assert!(text.ends_with("x\n[redacted]\n… cut after 1 MiB\n"), "{}", &text[before - 20..]);
        for name in ["runs.db", "runs.db-wal"] {
            let bytes = fs::read(place.path(name)).unwrap_or_default();
            assert!(!bytes.windows(8).any(|it| it == &KEY.as_bytes()[..8]), "{name}");
        }
    }
}

#[test]
fn a_key_in_the_output_of_tests_is_replaced() {
    for (tail, passes) in [
        ("print('1..1'); print('ok 1 - ' + text)", true),
        ("print('1..1'); print('not ok 1 - ' + text); print(text, file=sys.stderr)", false),
    ] {
        let script = prints(&everything(KEY).replace('\n', " "), tail);
        let node = format!(
            "    run_tests: {{ artifact: code, command: [python3, -c, {}], report: tap }}\n    \
             writes: {{ result: test_result }}\n",
            json!(script)
        );
        let fields = "code: { type: json, default: { files: [{ file_path: a.txt, content: x }] } },  result: json";
        let (place, ended) = in_sandbox(&node, fields);
        assert_eq!(ended.code, 0, "{ended}");
        let result = &ended.json()["state"]["result"];
        assert_eq!(result["passed"], passes, "{result}");
        assert!(passes || result.to_string().contains("[redacted]"), "{result}");
        check(&place, &ended);
    }
}

#[test]
fn a_key_in_the_results_of_real_tools_is_replaced() {
    let place = Place::new();
    let all = everything(KEY);
    fs::create_dir(place.path("files")).unwrap();
    // A limit of the tool truncates the key at the end.
    let long = format!("{}{}", "x\n".repeat(128 << 10).split_at((256 << 10) - 12).0, KEY);
    for (name, text) in [("all.txt", &all), ("long.txt", &long)] {
        fs::write(place.path(&format!("files/{name}")), text).unwrap();
    }
    fs::write(place.path(&format!("files/{}", KEY.replace('/', "_"))), "x").unwrap();
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let calls = json!({"content": null, "tool_calls": [
        call("a", "fs_read", json!({"path": "all.txt"})),
        call("b", "fs_read", json!({"path": "long.txt", "from": 131_000})),
        call("c", "fs_grep", json!({"pattern": "."})),
        call("d", "fs_list", json!({})),
        call("e", "fs_read", json!({"path": KEY})),
    ]});
    let bodies = vec![completion(&calls), completion(&json!({"content": "\"done\""}))];
    let (provider, asked) = serve_and_keep("200 OK", String::new(), bodies);
    let workflow = ANYTHING
        .replace("{ model: small }", "{ model: small, tools: [fs.read, fs.list, fs.grep] }")
        .replace("start:", "tools: { fs: { root: files } }\nstart:");
    fs::write(place.path("tools.yaml"), workflow).unwrap();
    let args =
        ["execute", "tools.yaml", "-i", "brief=x", "--run-id", "mine", "--db", "sqlite:runs.db"];
    let more = ["--record", "calls.jsonl", "--output", "json"];
    let variables =
        [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", &provider), ("RUST_LOG", "debug")];
    let ended = place.run_with(args.into_iter().chain(more), variables);
    assert_eq!(ended.code, 0, "{ended}");
    let asked = asked.lock().unwrap().clone();
    let told: Vec<&String> = asked.iter().filter(|it| it.contains("\"tool\"")).collect();
    assert_eq!(told.len(), 1, "{asked:?}");
    assert!(told[0].contains("[redacted]"), "{}", told[0]);
    check_text("the request", told[0]);
    for file in [told[0].as_bytes().to_vec(), fs::read(place.path("runs.db")).unwrap()] {
        let part = file.windows(12).position(|it| it == &KEY.as_bytes()[..12]);
        let around = part.map(|at| String::from_utf8_lossy(&file[at.saturating_sub(99)..at + 40]));
        assert_eq!(around, None, "a part is shown");
    }
    check(&place, &ended);
}

#[test]
fn a_key_in_the_files_of_a_workflow_is_not_shown() {
    let place = Place::new();
    let provider = serve("200 OK", String::new(), vec![completion(&json!({"content": "{}"}))]);
    let all = everything(KEY);
    fs::write(place.path("prompt.md"), format!("Answer {{{{ brief }}}} with {all}")).unwrap();
    let schema = json!({"type": "object", "title": all, "description": KEY, "properties": {"a": {"const": KEY}}});
    fs::write(place.path("answer.schema.json"), schema.to_string()).unwrap();
    let workflow = ANYTHING
        .replace(
            "answer: json",
            &format!(
                "answer: {{ schema: answer.schema.json }}, other: {{ type: string, default: {} }}",
                json!(all)
            ),
        )
        .replace("about: An agent", &format!("about: {KEY}. An agent"))
        .replace("prompt: { text: \"Answer this: {{ brief }}\" }", "prompt: prompt.md")
        .replace("output: [answer]", "output: [answer, other]");
    fs::write(place.path("files.yaml"), workflow).unwrap();
    let args =
        ["execute", "files.yaml", "-i", "brief=x", "--run-id", "mine", "--db", "sqlite:runs.db"];
    let more = ["--record", "calls.jsonl", "--output", "json"];
    let variables =
        [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", &provider), ("RUST_LOG", "debug")];
    let ended = place.run_with(args.into_iter().chain(more), variables);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.json()["state"]["other"].as_str().unwrap().contains("[redacted]"), "{ended}");
    check(&place, &ended);
    for args in [
        vec!["validate", "files.yaml"],
        vec!["plan", "files.yaml"],
        vec!["plan", "files.yaml", "--output", "json"],
        vec!["graph", "files.yaml"],
        vec!["graph", "files.yaml", "--format", "svg"],
        vec!["graph", "files.yaml", "--format", "json"],
    ] {
        let shown = place.run_with(&args, KNOWN);
        assert_eq!(shown.code, 0, "{args:?}: {shown}");
        check_text("stdout", &shown.stdout);
        check_text("stderr", &shown.stderr);
    }
}

#[test]
fn a_password_outside_of_the_url_of_a_database_is_not_shown() {
    let place = Place::new();
    let quoted = format!("host=db user=me password='{KEY}'");
    for (url, variables) in [
        (format!("host=db user=me password={KEY}"), vec![]),
        (quoted.clone(), vec![]),
        (format!("postgres:{quoted}"), vec![]),
        (format!("mysql://db?password={KEY}"), vec![]),
        ("postgres://me@127.0.0.1:1/nowhere".to_owned(), vec![("PGPASSWORD", KEY)]),
        (String::new(), vec![("GRAPHRUN_DB", quoted.as_str())]),
    ] {
        let mut args = vec!["runs", "list"];
        if !url.is_empty() {
            args.extend(["--db", &url]);
        }
        let ended = Ended::of(place.command(&args).envs(variables));
        assert_ne!(ended.code, 0, "{ended}");
        assert!(!ended.stderr.contains("panicked"), "{ended}");
        check_text("stdout", &ended.stdout);
        check_text("stderr", &ended.stderr);
    }
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
