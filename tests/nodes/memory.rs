//! `recall` and `remember`, and the tools for memory.

use std::sync::{Arc, Mutex};

use graphrun::{
    checkpoint::RunInfo,
    compile::compile,
    diagnostic::SourceFile,
    engine::{Answers, Clock, Engine},
    event::Status,
    id::RunId,
    memory::{
        Approval, Batch, InMemoryStore, Listing, Memory, NewEntry, Source, SqliteStore, Store,
    },
    nodes::{Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    workflow::parse,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Ended,
    agent_tools::{Scripted, call, calls, says},
    run_with, services,
};

/// A memory with a clock that the test sets.
struct Home {
    store: Arc<dyn Store>,
    now: Arc<Mutex<Timestamp>>,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(folder.path().join("memory.db")).unwrap());
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { store, now: Arc::new(Mutex::new(start)), _folder: folder }
    }

    fn memory(&self) -> Memory {
        let now = Arc::clone(&self.now);
        Memory::new(Arc::clone(&self.store)).with_clock(Clock::new(move || *now.lock().unwrap()))
    }

    fn wait(&self, hours: i64) {
        *self.now.lock().unwrap() += SignedDuration::from_hours(hours);
    }

    fn services(&self) -> Services {
        Services { memory: self.memory(), ..services() }
    }

    async fn run(&self, text: &str, input: Value) -> Ended {
        run_with(text, input, self.services(), registry()).await
    }

    async fn entries(&self) -> Vec<graphrun::memory::Entry> {
        let now = *self.now.lock().unwrap();
        self.store.list(&Listing::all(now)).await.unwrap()
    }

    async fn add(&self, tier: &str, text: &str) {
        let person = Source::Person { name: "ana".into() };
        let approval = Approval::Approved;
        let entry = NewEntry { approval, ..NewEntry::of(tier, text.into(), person) };
        let now = *self.now.lock().unwrap();
        let batch = Batch { key: text.to_owned(), entries: vec![entry], now };
        self.store.put(&batch).await.unwrap();
    }
}

const LEARN: &str = "
graphrun: 1
name: learn
memory:
  insights: { keep: 48h, approve: true, type: Insight }
types: { Insight: { lesson: string, severity: low | high } }
state: { found: [Insight], area: string }
input: [found, area]
start: keep
nodes:
  keep: { remember: found, as: insights, module: area, confidence: 0.5, then: end }
";

const USE: &str = "
graphrun: 1
name: use
memory: { insights: { type: Insight } }
types:
  Insight: { lesson: string, severity: low | high }
  Known: { value: Insight, module: string?, approved: bool, confidence: float?, node: string? }
state: { task: string, area: string, known: [Insight], entries: [Known] }
input: [task, area]
start: values
nodes:
  values:
    recall: insights
    query: task
    where: has(entry.module) && entry.module == area && entry.value.severity == \"high\"
    writes: known
    then: whole
  whole: { recall: insights, module: area, limit: 1, writes: entries, then: end }
";

#[tokio::test]
async fn a_run_recalls_what_another_one_remembered() {
    let home = Home::new();
    let insight = |lesson: &str, severity: &str| json!({"lesson": lesson, "severity": severity});
    let found = [
        insight("the parser needs a lock", "high"),
        insight("parsers are slow", "low"),
        insight("use tabs", "high"),
    ];
    let ended = home.run(LEARN, json!({"found": found, "area": "api"})).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert!(ended.told().contains("remembered 3 entries in `insights`"), "{}", ended.told());
    home.run(LEARN, json!({"found": [insight("parser of the web", "high")], "area": "web"})).await;

    let task = json!({"task": "repair the parser", "area": "api"});
    let ended = home.run(USE, task.clone()).await;
    assert_eq!(ended.state("known"), &json!([found[0]]), "{}", ended.reason());
    let entry = &ended.state("entries")[0];
    assert_eq!(entry["module"], "api");
    assert_eq!((&entry["approved"], &entry["confidence"]), (&json!(false), &json!(0.5)));
    assert_eq!(entry["node"], "keep");

    // What no person approved ends.
    let first = home.entries().await.into_iter().find(|it| it.text.contains("lock")).unwrap();
    let now = *home.now.lock().unwrap();
    home.store.approve(&first.id, "ana", now).await.unwrap();
    home.wait(48);
    let ended = home.run(USE, task).await;
    assert_eq!(ended.state("known"), &json!([found[0]]));
    assert_eq!(ended.state("entries").as_array().unwrap().len(), 1);
    assert_eq!(ended.state("entries")[0]["approved"], true);
}

#[tokio::test]
async fn entries_of_another_type_are_left_out_with_a_warning() {
    let home = Home::new();
    home.add("insights", "a text of a person").await;
    let ended = home.run(USE, json!({"task": "text", "area": "x"})).await;
    assert_eq!(ended.state("known"), &json!([]), "{}", ended.reason());
    let warned = |ended: &Ended| ended.told().contains(" of the tier `insights` w");
    assert!(!warned(&ended), "the condition on `entry.module` comes first");
    // An entry without the field is no failure of the condition.
    let condition = "has(entry.module) && entry.module == area && entry.value.severity == \"high\"";
    let of_value = USE.replace(condition, "entry.value.severity == \"high\"");
    let ended = home.run(&of_value, json!({"task": "text", "area": "x"})).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(ended.state("known"), &json!([]));
    assert!(warned(&ended), "{}", ended.told());
    let all = USE.replace("    where: has(entry.module) && entry.module == area && entry.value.severity == \"high\"\n", "");
    let ended = home.run(&all, json!({"task": "text", "area": "x"})).await;
    assert_eq!(ended.state("known"), &json!([]));
    assert!(warned(&ended), "{}", ended.told());
}

#[tokio::test]
async fn absent_values_are_not_remembered_and_secrets_removed() {
    let home = Home::new();
    let text = "
graphrun: 1
name: w
memory: { notes: write }
state: { note: string?, more: [string] }
input: [note, more]
start: one
nodes:
  one: { remember: note, as: notes, then: all }
  all: { remember: more, as: notes, then: end }
";
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEF";
    let more = json!(["", format!("the key is {secret}"), " \n"]);
    for nothing in [Value::Null, json!(""), json!("  ")] {
        let ended = home.run(text, json!({"note": nothing, "more": more})).await;
        assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    }
    let entries = home.entries().await;
    assert_eq!(entries.len(), 1);
    assert!(entries[0].text.starts_with("the key is ") && !entries[0].text.contains(secret));
}

#[tokio::test]
async fn a_large_value_or_wrong_confidence_fails_the_node() {
    let home = Home::new();
    let text = "
graphrun: 1
name: w
memory: { notes: {} }
state: { note: string, sure: json }
input: [note, sure]
start: keep
nodes:
  keep: { remember: note, as: notes, confidence: sure, then: end }
";
    let ended = home.run(text, json!({"note": "x", "sure": 1.5})).await;
    let says = "the confidence is 1.5, which is not between 0 and 1";
    assert!(ended.reason().contains(says), "{}", ended.reason());
    let ended = home.run(text, json!({"note": "x".repeat(70_000), "sure": 1})).await;
    let says = "the text of an entry has 70000 bytes, more than 65536";
    assert!(ended.reason().contains(says), "{}", ended.reason());
    assert!(ended.told().contains("\"kind\":\"memory\""), "{}", ended.told());
    assert!(home.entries().await.is_empty());
}

const AGENT: &str = "
graphrun: 1
name: w
memory: { core: read, notes: { keep: 48h } }
models: { m: x/1 }
agents: { a: { model: m, tools: [memory.search, memory.add] } }
state: { answer: string }
start: ask
nodes:
  ask: { agent: a, prompt: { text: What? }, writes: answer, retry: 1, then: end }
";

#[tokio::test]
async fn an_agent_searches_and_adds_within_the_declared_tiers() {
    let home = Home::new();
    home.add("core", "always test the parser").await;
    home.add("other", "a tier of another workflow").await;
    let model = Scripted::new([
        calls([
            call("1", "memory.search", r#"{"tier":"core","query":"parser"}"#),
            call("2", "memory.add", r#"{"tier":"notes","value":"the parser is fragile"}"#),
            call("3", "memory.add", r#"{"tier":"core","value":"mine"}"#),
            call("4", "memory.search", r#"{"tier":"other","query":"tier"}"#),
        ]),
        says("done"),
    ]);
    let services = Services { memory: home.memory(), ..model.services() };
    let ended = run_with(AGENT, json!({}), services, registry()).await;
    assert_eq!(ended.state("answer"), "done", "{}", ended.reason());
    let asked = model.asked();
    let tiers = |at: usize| asked[0].tools[at].schema["properties"]["tier"]["enum"].clone();
    assert_eq!((tiers(0), tiers(1)), (json!(["core", "notes"]), json!(["notes"])));
    let results: Vec<&str> = asked[1]
        .messages
        .iter()
        .filter(|it| it.tool_call_id.is_some())
        .map(|it| it.content.as_str())
        .collect();
    assert!(results[0].contains("always test the parser"), "{results:?}");
    assert!(results[1].contains("\"id\""), "{results:?}");
    assert!(results[2].starts_with("error: ") && results[3].starts_with("error: "), "{results:?}");
    let mut kept: Vec<_> = home.entries().await.into_iter().map(|it| (it.tier, it.text)).collect();
    kept.sort();
    let expected = [
        ("core", "always test the parser"),
        ("notes", "the parser is fragile"),
        ("other", "a tier of another workflow"),
    ];
    assert_eq!(kept, expected.map(|(tier, text)| (tier.to_owned(), text.to_owned())));
}

#[tokio::test]
async fn a_resumed_run_sees_what_it_recalled_before() {
    let text = "
graphrun: 1
name: w
memory: { notes: {} }
state: { known: [string], ok: { choice: yes | no } }
start: look
nodes:
  look: { recall: notes, query: '\"parser\"', writes: known, then: ask }
  ask: { ask: Go on?, show: known, writes: ok, then: end }
";
    let home = Home::new();
    home.add("notes", "the parser is old").await;
    let file = Arc::new(SourceFile {
        name: "w.yaml".into(),
        text: text.replace("yes | no", "yes_ | no_"),
    });
    let (workflow, _) = parse(file, std::path::Path::new(""), &registry())
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let graph = compile(workflow.into_graph(&factory(home.services(), registry()))).unwrap();
    let engine = Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()));
    let run = RunId::parse("r1").unwrap();
    let info = RunInfo { id: run.clone(), ..RunInfo::new("w") };
    let end = engine.run(Update::default()).with_info(info).await.unwrap();
    assert_eq!(end.status, Status::Paused);
    home.add("notes", "another parser").await;
    let key = end.questions[0].name.clone();
    let answers = Answers { by_name: [(key, json!({"choice": "yes_"}))].into(), by: None };
    let end = engine.resume(&run).with_answers(answers).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(end.state.get("known"), Some(&json!(["the parser is old"])));
    // Another run sees both.
    let end = engine.run(Update::default()).with_info(RunInfo::new("w")).await.unwrap();
    assert_eq!(end.state.get("known").and_then(Value::as_array).map(Vec::len), Some(2));
}

#[test]
fn a_memory_without_storage_is_enough_for_a_library() {
    let services = Services::offline();
    assert_eq!(format!("{:?}", services.memory.store), format!("{:?}", InMemoryStore::default()));
}
