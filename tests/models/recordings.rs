//! Recordings: written exchanges are read back, and mismatches are reported.

use std::{fs, path::PathBuf, sync::Arc};

use axum::{http::StatusCode, response::IntoResponse};
use graphrun::models::{
    CallPlace, ChatModel, ChatReply, ChatRequest, Message, ModelError, ModelErrorKind,
    OutputSchema, Recorder, RecordingError, RecordingFile, Replay, Secret, TokenUsage, ToolCall,
    ToolSpec, result_of_changed_call,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::models::peer::{KEY, Peer, completion, request};

/// A recording in a folder that goes away with it.
struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(lines: &[Value]) -> Self {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        Self::of_text(&(lines.join("\n") + "\n"))
    }

    fn of_text(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("run.jsonl");
        fs::write(&path, text).expect("a writable folder");
        Self { _folder: folder, path }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("the recording is there")
    }

    fn load(&self) -> Replay {
        Replay::load(&self.path).expect("the recording is valid")
    }
}

fn by(node: &str, text: &str) -> ChatRequest {
    ChatRequest { caller: node.into(), ..request(text) }
}

async fn text_of(replay: &Replay, node: &str, text: &str) -> String {
    replay.chat(&by(node, text)).await.expect("the recording answers").text
}

async fn refusal_of(replay: &Replay, node: &str, text: &str) -> String {
    let error = replay.chat(&by(node, text)).await.expect_err("the recording has no answer");
    assert_eq!(error.kind(), ModelErrorKind::Recording);
    assert!(!error.is_retryable());
    error.to_string().replace(&format!("{}/", std::env::temp_dir().display()), "")
}

/// `fs_read` is the name of `fs.read` in requests.
#[tokio::test]
async fn a_recorded_call_means_the_tool_of_that_name() {
    let call = json!({"tool_calls": [{"name": "fs_read", "arguments": {}}]});
    let file = File::new(&[json!({"v": 1, "node": "ask", "when": {}, "reply": call})]);
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        schema: json!({"type": "object"}),
    };
    for (names, called) in [(["fs.read", "fs_read"], "fs_read"), (["fs.read", "other"], "fs.read")]
    {
        let tools = names.map(tool).to_vec();
        let asked = ChatRequest { tools, ..by("ask", "read") };
        let reply = file.load().chat(&asked).await.unwrap();
        assert_eq!(reply.tool_calls[0].name, called);
    }
}

/// The lines of a model do not answer what the node asks an MCP server or the memory.
#[test]
fn a_question_that_no_model_answers_has_lines_of_its_own() {
    let line =
        |when: Value, reply: Value| json!({"v": 1, "node": "ask", "when": when, "reply": reply});
    let is_list = |it: &Value| it.is_array();
    let file = File::new(&[
        line(json!({}), json!({"text": "hello"})),
        line(json!({}), json!({"json": {"title": "hello"}})),
        line(
            json!({"lacks": ["recall("]}),
            json!({"tool_calls": [{"name": "recall", "arguments": {}}]}),
        ),
        line(json!({}), json!({"error": {"kind": "timeout"}})),
    ]);
    let error = file.load().look_up("ask", "recall 3 of notes", is_list).unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Recording);
    let mut text = String::from("\u{feff}");
    text += &file.text();
    text += &line(json!({"contains": ["recall 3"]}), json!({"json": ["bees"]})).to_string();
    let found = File::of_text(&text).load().look_up("ask", "recall 3 of notes", is_list);
    assert_eq!(found.unwrap(), json!(["bees"]));
}

/// Answers `n` questions, of which the third is turned down once.
/// A conversation with a call of `count` for each result. After the last result stand the messages of a repair.
fn counted(prompt: &str, results: &[&str], repair: &[&str]) -> Vec<Message> {
    let mut messages = vec![Message::user(prompt)];
    for (number, result) in results.iter().enumerate() {
        let id = format!("call{number}");
        let call = ToolCall { id, name: "count".into(), arguments: String::new(), extra: None };
        let id = call.id.clone();
        messages.push(Message::calls(ChatReply { tool_calls: vec![call], ..ChatReply::default() }));
        messages.push(Message::tool(&id, *result));
    }
    messages.extend(repair.iter().map(|it| Message::user(*it)));
    messages
}

/// Returns the recording of these conversations with an answer each, or a failure if `fails`.
fn conversations(all: &[(Vec<Message>, bool)]) -> Replay {
    let line = |(messages, fails): &(Vec<Message>, bool)| {
        let reply =
            if *fails { json!({"error": {"kind": "overloaded"}}) } else { json!({"text": "x"}) };
        json!({"v": 1, "node": "ask", "request": {"messages": messages, "tools": ["count"]}, "reply": reply})
    };
    File::new(&all.iter().map(line).collect::<Vec<_>>()).load()
}

/// Returns the recorded result of the call after these messages and results.
fn next_count(replay: &Replay, prompt: &str, results: &[&str]) -> Option<String> {
    let with_call = counted(prompt, &[results, &["?"]].concat(), &[]);
    let place = CallPlace::of_last_message(&with_call[..with_call.len() - 1])[0];
    replay.tool_result("ask", "count", &json!({}), Some(&place)).map(str::to_owned)
}

#[test]
fn equal_calls_have_the_results_of_their_conversations() {
    let replay = conversations(&[
        (counted("b", &[], &[]), false),
        (counted("b", &["3"], &[]), false),
        (counted("a", &["1"], &[]), false),
        (counted("a", &["1", "2"], &[]), false),
    ]);
    for _ in 0..2 {
        assert_eq!(next_count(&replay, "a", &[]).as_deref(), Some("1"));
        assert_eq!(next_count(&replay, "a", &["1"]).as_deref(), Some("2"));
        assert_eq!(next_count(&replay, "b", &[]).as_deref(), Some("3"));
    }
    // Without a recorded conversation, each is used once, in the order of the file.
    let replay =
        conversations(&[(counted("b", &["3"], &[]), false), (counted("a", &["1"], &[]), false)]);
    let results = [0; 3].map(|_| replay.tool_result("ask", "count", &json!({}), None));
    assert_eq!(results, [Some("3"), Some("1"), Some("1")]);
}

#[test]
fn equal_conversations_have_their_results_in_their_order() {
    let replay = conversations(&[
        // A request that failed is sent again, and an answer is repaired: the call was made once.
        (counted("a", &["1"], &[]), true),
        (counted("a", &["1"], &[]), false),
        (counted("a", &["1"], &["It is invalid."]), false),
        (counted("a", &["1"], &[]), false),
        (counted("a", &["1", "7"], &[]), false),
        (counted("a", &["2"], &[]), false),
    ]);
    let results = [0; 4].map(|_| next_count(&replay, "a", &[]));
    assert_eq!(results.map(Option::unwrap), ["1", "1", "2", "2"]);
}

#[test]
fn a_call_that_a_person_has_changed_is_filed_under_its_new_arguments() {
    let result = result_of_changed_call(r#"{"by":2}"#, "error: busy)\nx");
    let replay = conversations(&[(counted("a", &[&result], &[]), false)]);
    let result = |arguments: Value| replay.tool_result("ask", "count", &arguments, None);
    assert_eq!(result(json!({"by": 2})), Some("error: busy)\nx"));
    assert_eq!(result(json!({})), None);
}

async fn recorded_run(file: &File) -> Vec<Result<ChatReply, ModelError>> {
    let peer = Peer::start(|seen| {
        let question = seen.body["messages"][0]["content"].as_str().expect("a question");
        if question.contains("third") && seen.headers["idempotency-key"] == "first attempt" {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")], "slow down")
                .into_response();
        }
        completion(&format!("<think>hm</think>Answer to {question}"))
    })
    .await;
    let recorder = Recorder::wrap(Arc::new(peer.client()), &file.path).expect("a writable file");
    assert_eq!(recorder.name(), "openai-compatible/small");
    let _known = Secret::new(KEY);
    let mut outcomes = Vec::new();
    for (node, text, key) in run_of_questions() {
        outcomes.push(recorder.chat(&ChatRequest { key: key.into(), ..by(node, text) }).await);
    }
    outcomes
}

fn run_of_questions() -> [(&'static str, &'static str, &'static str); 5] {
    [
        ("ba", "the first question, in 0.03s", ""),
        ("qc", "the second question", ""),
        ("ta", "the third question", "first attempt"),
        ("ta", "the third question", "second attempt"),
        ("sse", "a question with correct-horse-battery-staple and sk-abcdefghijkl0123456789", ""),
    ]
}

#[tokio::test]
async fn a_replay_gives_the_recorded_replies_and_failures() {
    let file = File::of_text("");
    let recorded = recorded_run(&file).await;
    assert_eq!(recorded.iter().filter(|outcome| outcome.is_err()).count(), 1);

    let replay = file.load();
    assert_eq!(replay.unused().len(), 5);
    for ((node, text, _), expected) in run_of_questions().into_iter().zip(recorded).take(4) {
        assert_eq!(replay.chat(&by(node, text)).await, expected, "{node}");
    }
    assert_eq!(replay.unused().iter().map(|entry| entry.line).collect::<Vec<_>>(), [5]);
}

#[tokio::test]
async fn lines_name_nodes_of_nested_runs_in_full_or_by_their_file() {
    let line =
        |node: &str, text: &str| json!({"v": 1, "node": node, "when": {}, "reply": {"text": text}});
    let asked = json!({"messages": [{"role": "user", "content": "again"}]});
    let recorded = json!({"v": 1, "node": "lead", "request": asked, "reply": {"text": "recorded"}});
    let replay = File::new(&[line("lead", "any"), recorded, line("sales.lead", "sales")]).load();
    for (node, text, answer) in [
        ("sales.lead", "one", "sales"),
        ("research.lead", "one", "any"),
        ("research.lead", "again", "recorded"),
        ("lead", "one", "any"),
    ] {
        assert_eq!(text_of(&replay, node, text).await, answer, "{node}");
    }
    assert!(refusal_of(&replay, "misleads", "one").await.contains("misleads"));
}

#[tokio::test]
async fn a_duration_that_differs_is_the_same_request() {
    let file = File::of_text("");
    recorded_run(&file).await;
    let replay = file.load();
    assert_eq!(
        text_of(&replay, "ba", "the first question, in 14.2s").await,
        "Answer to the first question, in 0.03s"
    );
    refusal_of(&replay, "ba", "the first question, in brief").await;
}

#[tokio::test]
async fn no_secret_from_any_source_reaches_the_file() {
    let file = File::of_text("");
    let outcomes = recorded_run(&file).await;
    let echo = &outcomes[4].as_ref().unwrap().text;
    assert_eq!(echo, "Answer to a question with [redacted] and [redacted]");
    let text = file.text();
    assert_eq!(text.lines().count(), 5);
    assert!(!text.contains(KEY) && !text.contains("sk-abcdef"), "{text}");
    // The form of a known key is normalised on both sides, so such a request is found all the same.
    let replay = file.load();
    let question = "a question with [redacted] and sk-zzzzzzzzzzzz0000000000";
    assert!(text_of(&replay, "sse", question).await.contains("[redacted] and [redacted]"));
}

#[tokio::test]
async fn parallel_nodes_with_one_question_cannot_swap_their_answers() {
    let peer =
        Peer::start(|seen| completion(seen.headers["idempotency-key"].to_str().unwrap())).await;
    let file = File::of_text("");
    let model: Arc<dyn ChatModel> = Arc::new(peer.client());
    // One recorder a model, as a workflow with several models has them, on the same file.
    let [qc, ta] = ["qc", "ta"].map(|node| {
        let recorder = Recorder::wrap(model.clone(), &file.path).unwrap();
        let request =
            ChatRequest { key: format!("answer for {node}"), ..by(node, "the same question") };
        (recorder, request)
    });
    let (one, two) = tokio::join!(qc.0.chat(&qc.1), ta.0.chat(&ta.1));
    one.unwrap();
    two.unwrap();

    let replay = file.load();
    // In the other order, and in a process that knows of no keys.
    assert_eq!(text_of(&replay, "ta", "the same question").await, "answer for ta");
    assert_eq!(text_of(&replay, "qc", "the same question").await, "answer for qc");
    assert!(replay.unused().is_empty());
}

#[tokio::test]
async fn a_hand_written_entry_matches_by_content() {
    let file = File::new(&[
        json!({"v": 1, "node": "sse", "when": {"contains": ["attempt 2", "3 failed in 0.5s"]},
            "reply": {"json": {"id": "CODE-002"}, "usage": {"input_tokens": 9, "output_tokens": 4}, "model": "m"}}),
        json!({"v": 1, "node": "sse", "about": "the first attempt",
            "when": {"lacks": ["attempt 2"]}, "reply": {"text": "one"}}),
        json!({"v": 1, "node": "sse", "when": {"lacks": ["attempt 2"]}, "reply": {"text": "two"}}),
    ]);
    let replay = file.load();
    assert_eq!(replay.name(), "replay/run");

    let reply =
        replay.chat(&by("sse", "this is attempt 2: 21 passed, 3 failed in 7.25s")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), (r#"{"id":"CODE-002"}"#, "m"));
    assert_eq!((reply.usage.input_tokens, reply.usage.calls, reply.usage.estimated), (9, 1, false));

    let unused = replay.unused();
    assert_eq!((unused[0].line, unused[0].about.as_deref()), (2, Some("the first attempt")));
    // Both fit: each once, and the last from then on.
    for expected in ["one", "two", "two"] {
        assert_eq!(text_of(&replay, "sse", "the first attempt").await, expected);
    }
    assert!(replay.unused().is_empty());

    let reply = replay.chat(&by("sse", "seven characters")).await.unwrap();
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.estimated),
        (5, 1, true)
    );
}

#[tokio::test]
async fn the_recorded_request_comes_before_any_rule() {
    let messages = json!([{"role": "user", "content": "Which colour?"}]);
    let file = File::new(&[
        json!({"v": 1, "node": "a", "when": {}, "reply": {"text": "by rule"}}),
        json!({"v": 1, "node": "a", "request": {"messages": messages}, "reply": {"text": "by request"}}),
        json!({"v": 1, "node": "a", "request": {"messages": messages, "schema": "Colour"}, "reply": {"text": "with schema"}}),
    ]);
    let replay = file.load();
    assert_eq!(text_of(&replay, "a", "Which colour?").await, "by request");
    assert_eq!(text_of(&replay, "a", "Which shape?").await, "by rule");
    let output = Some(OutputSchema { name: "Colour".into(), schema: json!({}) });
    let asked = ChatRequest { output, ..by("a", "Which colour?") };
    assert_eq!(replay.chat(&asked).await.unwrap().text, "with schema");
}

#[tokio::test]
async fn a_request_without_an_entry_is_explained() {
    let recorded = json!([{"role": "user", "content": "line one\nthe colour is teal\nline three"}]);
    let file = File::new(&[
        json!({"v": 1, "node": "sse", "when": {"contains": ["alpha", "beta", "gamma"]}, "reply": {"text": "x"}}),
        json!({"v": 1, "node": "sse", "when": {"contains": ["alpha", "beta"], "lacks": ["attempt"]}, "reply": {"text": "x"}}),
        json!({"v": 1, "node": "ta", "request": {"messages": recorded}, "reply": {"text": "x"}}),
    ]);
    let replay = file.load();
    let told = [
        refusal_of(&replay, "sse", "alpha at the second attempt, beta").await,
        refusal_of(&replay, "sse", "alpha only").await,
        refusal_of(&replay, "ta", "line one\nthe colour is jade\nline three").await,
        refusal_of(&replay, "nobody", "hello").await,
    ];
    let told = told.map(|text| text.split_once("run.jsonl").unwrap().1.to_owned());
    insta::assert_snapshot!(told.join("\n"), @r#"
     answers node "sse": nearest is line 2, but the request has "attempt"
     answers node "sse": nearest is line 2, but the request lacks "beta"
     answers node "ta": nearest is line 3, but line 2 of its request is "the colour is teal", where this one has "the colour is jade"
     answers node "nobody": the recording has no entry for this node
    "#);
    assert_eq!(replay.unused().len(), 3, "an entry that did not answer is not used");
}

#[tokio::test]
async fn failures_can_be_scripted() {
    let error = |error: Value| json!({"v": 1, "node": "a", "when": {}, "reply": {"error": error}});
    let file = File::new(&[
        error(json!({"kind": "rate_limited", "after_ms": 1500})),
        error(json!({"kind": "timeout", "after_ms": 9})),
        error(json!({"kind": "bad_request", "status": 404, "message": "no such model"})),
        json!({"v": 1, "node": "a", "when": {}, "reply": {"text": "half a", "error": {"kind": "truncated"}}}),
        json!({"v": 1, "node": "a", "when": {}, "reply": {"text": "at last"}}),
    ]);
    let replay = file.load();
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(replay.chat(&by("a", "?")).await.unwrap_err().kind().as_str());
    }
    assert_eq!(kinds, ["rate_limit", "timeout", "bad_request", "invalid_output"]);
    assert_eq!(text_of(&replay, "a", "?").await, "at last");
}

#[test]
fn every_bad_line_is_named_with_its_error() {
    let file = File::of_text(concat!(
        "{\"v\":1,\"node\":\"a\",\"when\":{},\"reply\":{\"text\":\"fine\"}}\n",
        "\n",
        "not json\n",
        "{\"node\":\"a\",\"when\":{},\"reply\":{\"text\":\"x\"}}\n",
        "{\"v\":7,\"node\":\"a\"}\n",
        "{\"v\":1,\"node\":\"a\",\"when\":{\"contians\":[]},\"reply\":{\"text\":\"x\"}}\n",
        "{\"v\":1,\"node\":\"a\",\"reply\":{\"text\":\"x\"}}\n",
        "{\"v\":1,\"node\":\"a\",\"when\":{},\"key\":\"k\",\"reply\":{\"text\":\"x\"}}\n",
        "{\"v\":1,\"node\":\"a\",\"when\":{},\"reply\":{\"text\":\"x\",\"json\":1}}\n",
        "{\"v\":1,\"node\":\"a\",\"when\":{},\"reply\":{\"error\":{\"kind\":\"flood\"}}}\n",
    ));
    let error = Replay::load(&file.path).unwrap_err();
    assert!(matches!(&error, RecordingError::Lines { lines, .. } if lines.len() == 8), "{error}");
    let text = error.to_string().replace(&file.path.display().to_string(), "run.jsonl");
    insta::assert_snapshot!(text);
    let missing = Replay::load(file.path.with_extension("none")).unwrap_err();
    assert!(matches!(missing, RecordingError::Open { .. }), "{missing}");
}

#[tokio::test]
async fn a_recording_truncated_by_a_crash_is_continued() {
    let whole = json!({"v": 1, "node": "a", "when": {}, "reply": {"text": "kept"}}).to_string();
    let peer = Peer::start(|_| completion("Teal.")).await;
    for (before, lines) in [
        (format!("{whole}\n{{\"v\":1,\"node\":\"a\",\"rep"), 2),
        (format!("{whole}\n"), 2),
        (whole.clone(), 2),
        (String::new(), 1),
    ] {
        let file = File::of_text(&before);
        let recorder = Recorder::wrap(Arc::new(peer.client()), &file.path).unwrap();
        recorder.chat(&by("b", "Which colour?")).await.unwrap();
        let replay = file.load();
        assert_eq!(replay.unused().len(), lines, "{before:?}");
        assert_eq!(text_of(&replay, "b", "Which colour?").await, "Teal.");
    }
}

#[tokio::test]
async fn an_exchange_that_cannot_be_recorded_is_a_failure() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    // Every write to this device fails.
    let recorder = Recorder::wrap(Arc::new(peer.client()), "/dev/full").unwrap();
    let error = recorder.chat(&by("a", "Which colour?")).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::Recording, "{error}");
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

#[test]
fn an_exchange_that_is_not_recorded_keeps_its_cost() {
    let file = RecordingFile::open("/dev/full").unwrap();
    let usage = TokenUsage { input_tokens: 12, calls: 1, ..TokenUsage::default() };
    let cost_usd = Some(0.25);
    let reply = ChatReply { usage, cost_usd, ..ChatReply::default() };
    let failure = ModelError::EmptyResponse { usage }.charged(usage, cost_usd);
    for outcome in [Ok(reply), Err(failure)] {
        let error = file.append(&by("a", "Which colour?"), &outcome).unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Recording, "{error}");
        assert_eq!((error.usage(), error.cost_usd()), (usage, cost_usd), "{outcome:?}");
    }
}

#[test]
fn messages_are_read_as_they_are_written() {
    let line = json!({"role": "assistant", "content": "Teal."});
    let message: Message = serde_json::from_value(line.clone()).unwrap();
    assert_eq!(serde_json::to_value(message).unwrap(), line);
}

#[tokio::test]
async fn a_file_that_is_no_recording_is_left_unchanged() {
    let notes = ["# notes\nthe last line has no end", "one line", "{\n  \"a\": 1\n}", "{}x\n"];
    let model: Arc<dyn ChatModel> = Arc::new(File::new(&[]).load());
    for text in notes {
        let file = File::of_text(text);
        let refused = Recorder::wrap(Arc::clone(&model), &file.path).map(drop);
        assert!(matches!(refused, Err(RecordingError::Open { .. })), "{text}");
        assert_eq!(file.text(), text);
    }
}

#[test]
fn the_page_on_recordings_shows_lines_that_load() {
    let page = include_str!("../../docs/recordings.md");
    for block in page.split("```jsonl\n").skip(1) {
        let (lines, _) = block.split_once("```").unwrap();
        let file = File::of_text(lines);
        assert_eq!(file.load().unused().len(), lines.lines().count());
    }
    let kinds = ["rate_limited", "overloaded", "transient", "timeout", "auth", "quota"];
    let more = ["context_overflow", "bad_request", "refused", "truncated", "empty_response"];
    for kind in kinds.into_iter().chain(more) {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
        let line = json!({"v": 1, "node": "n", "when": {}, "reply": {"error": {"kind": kind}}});
        File::of_text(&line.to_string()).load();
    }
}
