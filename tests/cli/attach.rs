//! Files of an input that a model is sent.

use std::{fs, net::TcpListener, thread};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cli::{
    program::{Ended, Place, Running},
    provider::{answer_with, read_request},
};

const WORKFLOW: &str = r#"graphrun: 1
name: claims
state: { claim: file, photos: "[file]", notice: "file?", verdict: string }
input: [claim, photos, notice]
output: verdict
models: { eyes: openai/gpt-5 }
agents: { clerk: { model: eyes } }
start: judge
nodes:
  judge:
    agent: clerk
    prompt: { text: "Is {{ claim.name }} covered? There are {{ photos | length }} photos." }
    attach: [claim, photos, notice, rules.md]
    writes: verdict
    then: end
"#;

const INPUT: [&str; 7] = [
    "execute",
    "w.yaml",
    "-iclaim=@claim.pdf",
    "-iphotos=@1.png",
    "-iphotos=@2.PNG",
    "--output",
    "json",
];

fn place() -> Place {
    let place = Place::new();
    let files =
        [("w.yaml", WORKFLOW), ("rules.md", "Water."), ("claim.pdf", "pages"), ("1.png", "one")];
    for (name, text) in files.into_iter().chain([("2.PNG", "two")]) {
        fs::write(place.path(name), text).unwrap();
    }
    place
}

/// The content of the message that the model is sent.
fn content() -> Value {
    let image = |data: &str| {
        let url = format!("data:image/png;base64,{data}");
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let pdf = "data:application/pdf;base64,cGFnZXM=";
    json!([
        {"type": "file", "file": {"filename": "claim.pdf", "file_data": pdf}},
        image("b25l"),
        image("dHdv"),
        {"type": "text", "text": "File `rules.md`:\n\nWater."},
        {"type": "text", "text": "Is claim.pdf covered? There are 2 photos."},
    ])
}

fn content_of(request: &str) -> Value {
    let request: Value = serde_json::from_str(request).unwrap();
    request["messages"][0]["content"].clone()
}

fn provider() -> (TcpListener, String) {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    (provider, url)
}

fn replay(place: &Place) -> Ended {
    place.run(INPUT.into_iter().chain(["--replay", "calls.jsonl"]))
}

#[test]
fn a_model_is_sent_the_files_and_a_recording_has_their_hashes() {
    let place = place();
    let (provider, url) = provider();
    let asked = thread::spawn(move || answer_with(&mut provider.accept().unwrap().0, "covered"));
    let record = INPUT.into_iter().chain(["--record", "calls.jsonl"]);
    let ended = place.run_with(record, [("OPENAI_BASE_URL", &url)]);
    assert_eq!((ended.code, &ended.json()["state"]["verdict"]), (0, &json!("covered")), "{ended}");
    assert_eq!(content_of(&asked.join().unwrap()), content());
    let recording = fs::read_to_string(place.path("calls.jsonl")).unwrap();
    assert!(recording.contains("claim.pdf") && !recording.contains("cGFnZXM="), "{recording}");

    let same = replay(&place);
    assert_eq!((same.code, &same.json()["state"]["verdict"]), (0, &json!("covered")), "{same}");
    fs::write(place.path("2.PNG"), "another").unwrap();
    let other = replay(&place);
    assert_eq!(other.json()["status"], "failed", "{other}");
    let error = other.json()["failures"][0]["error"].clone();
    assert!(error.as_str().unwrap().contains("where this one has \"[2.PNG "), "{other}");
}

#[test]
fn a_resumed_run_sends_the_files_that_it_began_with() {
    let place = place();
    let (provider, url) = provider();
    let mut command = place.command(INPUT.into_iter().chain(["--run-id", "run-1"]));
    command.env("OPENAI_BASE_URL", &url);
    let run = Running::of(command);
    let (mut call, _) = provider.accept().unwrap();
    assert_eq!(content_of(&read_request(&mut call)), content());
    run.signal(Signal::SIGKILL);
    drop((run, call));
    for name in ["claim.pdf", "1.png", "2.PNG"] {
        fs::write(place.path(name), "changed").unwrap();
    }
    let asked = thread::spawn(move || answer_with(&mut provider.accept().unwrap().0, "covered"));
    let resumed =
        place.run_with(["resume", "run-1", "--output", "json"], [("OPENAI_BASE_URL", &url)]);
    assert_eq!(resumed.code, 0, "{resumed}");
    assert_eq!(content_of(&asked.join().unwrap()), content());
}

#[test]
fn render_shows_the_files_without_their_content() {
    let place = place();
    let flags = ["-iclaim=@claim.pdf", "-iphotos=[]", "-inotice=@rules.md"];
    let rendered =
        place.run(["render", "w.yaml", "judge", "--output", "json"].into_iter().chain(flags));
    let attachments = rendered.json()["attachments"].clone();
    let named = |it: &Value| json!([it["name"], it["media_type"], it.get("data")]);
    let named: Vec<Value> = attachments.as_array().unwrap().iter().map(named).collect();
    let text = |name: &str| json!([name, "text/plain", null]);
    assert_eq!(
        named,
        [json!(["claim.pdf", "application/pdf", null]), text("rules.md"), text("rules.md")]
    );
}

#[test]
fn a_file_that_no_model_reads_starts_nothing() {
    let place = place();
    fs::write(place.path("claim.zip"), b"PK\x03\x04\xff").unwrap();
    fs::write(place.path("empty.png"), "").unwrap();
    let flags = ["-iclaim=@claim.zip", "-iphotos=@empty.png", "-iphotos=@none.png"];
    let refused = place.run(["execute", "w.yaml"].into_iter().chain(flags));
    assert_eq!(refused.code, 2, "{refused}");
    let problems = [
        "`claim`: `claim.zip` has the type `application/octet-stream`, which no model reads",
        "`photos`: `empty.png` is empty",
        "cannot read `none.png`",
    ];
    let text = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for problem in problems {
        assert!(text.contains(problem), "{problem}: {refused}");
    }
    assert!(!text.contains("given twice"), "{refused}");
}

#[test]
fn a_question_shows_files_without_their_content() {
    let place = place();
    let workflow = r#"graphrun: 1
name: seen
state: { claim: file, pages: { count: int, scans: "[file]" }, ok: bool }
input: [claim, pages]
output: ok
start: look
nodes: { look: { ask: "Is it readable?", show: [claim, pages], writes: ok, then: end } }
"#;
    fs::write(place.path("seen.yaml"), workflow).unwrap();
    let scan = json!({"name": "a.tiff", "media_type": "image/tiff", "data": "AAAA"});
    let pages = format!("-ipages={}", json!({"count": 1, "scans": [scan]}));
    let args = ["execute", "seen.yaml", "-iclaim=@claim.pdf", &pages, "--output", "json"];
    let paused = place.run(args);
    assert_eq!(paused.code, 3, "{paused}");
    let shown = &paused.json()["questions"][0]["show"];
    let hash = shown["claim"]["hash"].as_str().unwrap();
    assert_eq!(hash.len(), 64);
    let claim = json!({"name": "claim.pdf", "media_type": "application/pdf", "hash": hash});
    let scan = json!({"name": "a.tiff", "media_type": "image/tiff"});
    assert_eq!(*shown, json!({"claim": claim, "pages": {"count": 1, "scans": [scan]}}));
}

/// A text with the content of a file would be long, and no reader could use it.
#[test]
fn files_in_a_text_have_their_name_and_no_content() {
    const SHOWN: &str = r#"graphrun: 1
name: shown
types: { Case: { scan: file, pages: "map[string, file]", note: string } }
state:
  claim: file
  photos: "[file]"
  case: Case
  text: string
  lines: { type: "[string]", merge: append }
input: [claim, photos, case]
output: [text, lines]
start: show
nodes:
  show:
    render: { text: "{{ photos }}{{ photos | tojson }}{{ [claim] }}{{ case }}{{ case.pages | pprint }}{{ {'it': claim} }}{{ claim | tojson }}{{ claim.name ~ photos }}" }
    writes: text
    then: each
  each: { map: { over: photos, as: photo, do: line }, then: end }
  line: { render: { text: "{{ photo | tojson }}{{ [photo] | string }}" }, writes: lines }
"#;
    let place = place();
    fs::write(place.path("w.yaml"), SHOWN).unwrap();
    let scan = json!({"name": "scan.png", "media_type": "image/png", "data": "c2Nhbg=="});
    let case = json!({"scan": scan, "pages": {"first": scan}, "note": "wet"});
    let case = format!("case={case}");
    let ended = place.run([&INPUT[..], &["-i", &case]].concat());
    assert_eq!(ended.code, 0, "{ended}");
    let state = &ended.json()["state"];
    let text = state["text"].as_str().unwrap();
    for content in ["cGFnZXM", "b25l", "dHdv", "c2Nhbg"] {
        assert!(!state.to_string().contains(content), "{content}: {state}");
    }
    let png = r#"{"media_type": "image/png", "name": "1.png"}"#;
    assert!(text.contains(&format!("[{png}, ")), "{text}");
    assert!(text.contains("claim.pdf") && text.contains("wet"), "{text}");
    assert_eq!(text.matches("scan.png").count(), 3, "{text}");
    assert!(state["lines"][0].as_str().unwrap().starts_with(png), "{state}");
}
