//! Tiers with embeddings: what a run needs, recordings, and runs without a provider.

use std::{fs, io::Write as _, net::TcpListener, sync::mpsc, thread, time::Duration};

use serde_json::{Value, json};

use super::provider::read_request;
use crate::cli::program::{Ended, Place};

const WORKFLOW: &str = "\
graphrun: 1
name: learn
memory: { notes: { embeddings: openai/text-embedding-3-small } }
state: { lessons: [string], task: string, known: [string] }
input: [lessons, task]
start: keep
nodes:
  keep: { remember: lessons, as: notes, retry: 1, then: look }
  look: { recall: notes, query: task, limit: 1, writes: known, retry: 1, then: end }
";

const INPUT: [&str; 6] = [
    "execute",
    "learn.yaml",
    "-i",
    r#"lessons=["a mutex guards it","the parser is slow"]"#,
    "-i",
    "task=synchronise",
];

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("learn.yaml"), WORKFLOW).unwrap();
    place
}

/// A provider of embeddings. Its vectors depend on a few words. Returns its address and the requests that it gets.
fn provider() -> (String, mpsc::Receiver<Value>) {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for call in provider.incoming() {
            let mut call = call.unwrap();
            let request: Value = serde_json::from_str(&read_request(&mut call)).unwrap();
            let item = |text: &Value| {
                let is_lock =
                    ["mutex", "synchronise"].iter().any(|it| text.as_str().unwrap().contains(it));
                json!({"embedding": [f32::from(u8::from(is_lock)), 0.1]})
            };
            let items: Vec<Value> = request["input"].as_array().unwrap().iter().map(item).collect();
            let body =
                json!({"data": items, "model": "v", "usage": {"prompt_tokens": 50}}).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            write!(call, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            if sender.send(request).is_err() {
                break;
            }
        }
    });
    (url, requests)
}

fn learn(place: &Place, url: &str, more: &[&str]) -> Ended {
    let args = INPUT.into_iter().chain(["--output", "json"]).chain(more.iter().copied());
    place.run_with(args, [("OPENAI_BASE_URL", url)])
}

#[test]
fn a_recording_has_the_vectors_so_a_replay_needs_no_provider() {
    let (place, other, (url, requests)) = (place(), place(), provider());
    let recorded = learn(&place, &url, &["--record", "run.jsonl"]);
    assert_eq!(recorded.code, 0, "{recorded}");
    assert_eq!(recorded.json()["state"]["known"], json!(["a mutex guards it"]));
    let usage = &recorded.json()["usage"];
    assert_eq!((&usage["input_tokens"], &usage["calls"]), (&json!(100), &json!(2)), "{recorded}");
    let texts: Vec<Value> = requests.try_iter().map(|it| it["input"].clone()).collect();
    assert_eq!(texts, [json!(["a mutex guards it", "the parser is slow"]), json!(["synchronise"])]);

    fs::copy(place.path("run.jsonl"), other.path("run.jsonl")).unwrap();
    let args = INPUT.into_iter().chain(["--output", "json", "--replay", "run.jsonl"]);
    let replayed = other.run(args);
    assert_eq!(replayed.code, 0, "{replayed}");
    assert_eq!(replayed.json()["state"], recorded.json()["state"]);
    assert!(!other.path(".graphrun/memory.db").exists(), "a replay leaves the memory alone");

    // A recording without the vectors is no reason to rank by words.
    let lines = fs::read_to_string(place.path("run.jsonl")).unwrap();
    let chats: Vec<&str> = lines.lines().filter(|it| !it.contains("embeddings of")).collect();
    assert_eq!(chats.len() + 2, lines.lines().count());
    fs::write(other.path("run.jsonl"), chats.join("\n")).unwrap();
    let refused = other.run(INPUT.into_iter().chain(["--replay", "run.jsonl"]));
    assert_eq!(refused.code, 5, "{refused}");
    assert!(
        refused.stderr.contains("no entry of") && refused.stderr.contains("\"keep\""),
        "{refused}"
    );
}

#[test]
fn a_model_that_cannot_be_used_is_refused_before_the_run() {
    let place = place();
    let refused = place.run(INPUT);
    assert_eq!(refused.code, 5, "{refused}");
    for says in [
        "a model for embeddings cannot be used; nothing was started",
        "`keep`, `look`: no key for openai: set the environment variable OPENAI_API_KEY",
        "name another model in `embeddings` of the tier",
    ] {
        assert!(refused.stderr.contains(says), "{says}: {refused}");
    }
    let needs = place.run(["doctor", "learn.yaml"]);
    assert!(needs.stdout.contains("a model for embeddings cannot be used"), "{needs}");
    let key = [("OPENAI_API_KEY", "a-key-of-nobody")];
    let needs = place.run_with(["doctor", "learn.yaml", "--output", "json"], key);
    assert!(needs.stdout.contains("openai/text-embedding-3-small"), "{needs}");

    let other = WORKFLOW.replace("openai/text-embedding-3-small", "anthropic/claude-haiku-4-5");
    fs::write(place.path("learn.yaml"), other).unwrap();
    let refused = place.run_with(INPUT, [("ANTHROPIC_API_KEY", "a-key-of-nobody")]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("anthropic has no embeddings"), "{refused}");
}

#[test]
fn a_cost_limit_needs_the_price_of_the_embeddings() {
    let (place, (url, _requests)) = (place(), provider());
    let limited = WORKFLOW.replace("start:", "limits: { usd: 1.0 }\nstart:");
    fs::write(place.path("learn.yaml"), &limited).unwrap();
    let done = learn(&place, &url, &[]);
    assert_eq!(done.code, 0, "{done}");
    let unknown = limited.replace("text-embedding-3-small", "vectors");
    fs::write(place.path("learn.yaml"), unknown).unwrap();
    let refused = learn(&place, &url, &[]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("`openai/vectors`"), "{refused}");
    let plan = place.run(["plan", "learn.yaml", "--output", "json"]).json();
    assert_eq!(plan["calls_max"], 252, "{plan}");
}

#[test]
fn models_are_listed_and_tried_for_their_purpose() {
    let (place, (url, requests)) = (place(), provider());
    let args = ["models", "learn.yaml", "--try", "--output", "json"];
    let listed = place.run_with(args, [("OPENAI_BASE_URL", &*url)]);
    assert_eq!(listed.code, 0, "{listed}");
    let row = listed.json()["models"][0].clone();
    assert_eq!((&row["purpose"], &row["try"]["class"]), (&json!("embeddings"), &json!("vectors")));
    assert_eq!(row["nodes"], json!(["keep", "look"]));
    // The server notes a request after its answer.
    assert!(requests.recv_timeout(Duration::from_secs(60)).is_ok());
    let listed = place.run(args);
    assert_eq!(listed.code, 5, "{listed}");
}

#[test]
fn the_model_of_the_command_line_is_not_for_embeddings() {
    let (place, (url, requests)) = (place(), provider());
    let ended = learn(&place, &url, &["--model", "openai/gpt-5-mini"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(requests.try_iter().all(|it| it["model"] == "text-embedding-3-small"));
}
