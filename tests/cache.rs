//! `cache`: which results are reused, and which are stored.

#![expect(clippy::unwrap_used, reason = "a test fails where its setup fails")]

mod custom;
mod flight;

use std::{
    collections::BTreeMap,
    future::IntoFuture as _,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::{Engine, RunEnd, ShutdownHandle},
    event::{Event, EventSink, Report, Status},
    graph::{
        Attempts, Bounds, Command, GraphBuilder, IntoNode, Item, Node, NodeContext, NodeError,
        Policies, Question, START, Target, dispatch, node_fn,
    },
    models::{ChatModel, ChatReply, ChatRequest, ModelError, TokenUsage},
    nodes::{Cache, CachedNode, ModelSource, Services, factory},
    registry,
    results::{CachedResult, ResultKey, ResultStore},
    state::Update,
    storage::{InMemoryStorage, MemoryResults},
    tool::{ToolContext, ToolError, tool_fn},
    workflow::{Registry, parse},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::disturbed::Disturbed;

use crate::support::{cache_dir, ran::other_codes};

/// A model that numbers its answers, and cannot give the first `failures` of them.
#[derive(Clone, Debug, Default)]
struct Counting {
    calls: Arc<AtomicUsize>,
    failures: usize,
}

impl Counting {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ChatModel for Counting {
    async fn chat(&self, _: &ChatRequest) -> Result<ChatReply, ModelError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if call <= self.failures {
            return Err(ModelError::Auth { message: "no key".to_owned() });
        }
        let usage = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
        Ok(ChatReply { text: format!("answer {call}"), usage, ..ChatReply::default() })
    }

    fn name(&self) -> &'static str {
        "counting"
    }
}

impl ModelSource for Counting {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

/// A store whose results are as old as that when they are kept.
#[derive(Debug)]
struct Aged(MemoryResults, Duration);

#[async_trait]
impl ResultStore for Aged {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        self.0.find(key).await
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        let at = result.at.checked_sub(self.1).unwrap();
        self.0.keep(key, &CachedResult { at, ..result.clone() }).await
    }
}

/// A store in which nothing works.
#[derive(Debug)]
struct Broken;

#[async_trait]
impl ResultStore for Broken {
    async fn find(&self, _: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let source = "the disk is gone".into();
        Err(CheckpointError::Storage { action: "look".to_owned(), source })
    }

    async fn keep(&self, _: &ResultKey, _: &CachedResult) -> Result<(), CheckpointError> {
        let source = "the disk is full".into();
        Err(CheckpointError::Storage { action: "keep".to_owned(), source })
    }
}

/// Runs that share a model and a store.
struct Bench {
    model: Counting,
    cache: Option<Cache>,
    registry: Registry,
}

/// How a run ended, and what its nodes said.
struct Ran {
    end: RunEnd,
    reports: Vec<Report>,
}

impl Bench {
    fn new() -> Self {
        Self::over(Arc::new(MemoryResults::default()))
    }

    fn over(store: Arc<dyn ResultStore>) -> Self {
        let cache = Some(Cache::new(store));
        Self { model: Counting::default(), cache, registry: registry() }
    }

    fn graph(&self, workflow: &str) -> CompiledGraph {
        let text = format!("graphrun: 1\nname: w\n{workflow}");
        let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
        let parsed = parse(file, Path::new("tests/workflow"), &self.registry);
        let (workflow, _) = parsed.unwrap_or_else(|it| panic!("{it}"));
        let services = Services {
            models: Arc::new(self.model.clone()),
            cache_dir: cache_dir(),
            ..Services::offline()
        };
        let graph = workflow
            .into_graph(&factory(services, self.registry.clone()).with_cache(self.cache.clone()));
        compile(graph).unwrap_or_else(|it| panic!("{it}"))
    }

    async fn run(&self, workflow: &str, input: Value) -> Ran {
        let ran = run(self.graph(workflow), input).await;
        assert_eq!(ran.end.status, Status::Done, "{:?}", ran.end.reason);
        ran
    }
}

impl Ran {
    fn field(&self, name: &str) -> Value {
        self.end.state.get(name).cloned().unwrap_or_default()
    }

    fn reused(&self) -> usize {
        self.reports.iter().filter(|it| matches!(it, Report::CacheHit { .. })).count()
    }

    fn warnings(&self) -> Vec<&str> {
        let mut warnings = Vec::new();
        for report in &self.reports {
            if let Report::Warning { message } = report {
                warnings.push(message.as_str());
            }
        }
        warnings
    }
}

async fn run(graph: CompiledGraph, input: Value) -> Ran {
    let engine = Engine::new(graph);
    let mut sink = EventSink::default();
    let mut told = sink.subscribe();
    let collect = async {
        let mut reports = Vec::new();
        while let Some(event) = told.recv().await {
            if let Event::TaskReported { report, .. } = event.event {
                reports.push(report);
            }
        }
        reports
    };
    let (info, input, stop) =
        (RunInfo::new("w"), Update::of(&input).unwrap(), ShutdownHandle::default());
    let (end, reports) = tokio::join!(
        engine.run(input).with_info(info).with_events(sink).with_shutdown(&stop),
        collect
    );
    Ran { end: end.unwrap(), reports }
}

/// An agent that reads `brief`, beside a field that it does not read.
fn writer(cache: &str) -> String {
    format!(
        "state: {{ brief: string, other: string, answer: string }}\ninput: [brief, other]\n\
         models: {{ small: lab/small }}\n\
         agents: {{ writer: {{ model: small, system: prompts/system.md, temperature: 0.5 }} }}\n\
         start: write\nnodes:\n  write:\n    agent: writer\n    \
         prompt: {{ text: 'Write about {{{{ brief }}}}.' }}\n    writes: answer\n    {cache}\n    \
         then: end\n"
    )
    .replace(", system: prompts/system.md", "")
}

fn brief(brief: &str) -> Value {
    json!({"brief": brief, "other": "x"})
}

#[tokio::test]
async fn a_result_is_used_by_another_run_and_takes_nothing() {
    let bench = Bench::new();
    let first = bench.run(&writer("cache: true"), brief("cats")).await;
    assert_eq!((first.field("answer"), first.reused()), (json!("answer 1"), 0));
    assert_eq!(first.end.position.used.usage.tokens.calls, 1);
    let second = bench.run(&writer("cache: true"), brief("cats")).await;
    assert_eq!((second.field("answer"), second.reused()), (json!("answer 1"), 1));
    assert_eq!(second.end.position.used.usage.tokens, TokenUsage::default());
    assert_eq!(bench.model.calls(), 1);
}

#[tokio::test]
async fn without_the_key_and_with_false_every_run_computes() {
    let bench = Bench::new();
    for cache in ["", "cache: false"] {
        for _ in 0..2 {
            assert_eq!(bench.run(&writer(cache), brief("cats")).await.reused(), 0);
        }
    }
    assert_eq!(bench.model.calls(), 4);
}

#[tokio::test]
async fn every_relevant_change_makes_another_result() {
    let bench = Bench::new();
    let written = writer("cache: true");
    bench.run(&written, brief("cats")).await;
    let changes = [
        ("lab/small", "lab/large"),
        ("lab/small", "[lab/small, lab/large]"),
        ("Write about", "Write a lot about"),
        ("temperature: 0.5", "temperature: 0.6"),
        ("temperature: 0.5", "temperature: 0.5, effort: low"),
        ("start: write\nnodes:\n  write:", "start: draft\nnodes:\n  draft:"),
        ("answer: string }", "answer: { type: string, about: one line } }"),
        ("writes: answer", "writes: other"),
    ];
    for (calls, (from, to)) in (2..).zip(changes) {
        let changed = written.replace(from, to);
        assert_ne!(changed, written);
        bench.run(&changed, brief("cats")).await;
        assert_eq!(bench.model.calls(), calls, "{to}");
        assert_eq!(bench.run(&changed, brief("cats")).await.reused(), 1, "{to}");
    }
    let calls = bench.model.calls();
    bench.run(&written, brief("dogs")).await;
    assert_eq!(bench.model.calls(), calls + 1);
}

#[tokio::test]
async fn irrelevant_changes_keep_the_cached_result() {
    let bench = Bench::new();
    let written = writer("cache: true");
    bench.run(&written, brief("cats")).await;
    bench.run(&written, json!({"brief": "cats", "other": "y"})).await;
    for (from, to) in [
        ("cache: true", "cache: 24h"),
        ("writes: answer", "writes: answer\n    timeout: 5m\n    repair: 3"),
        ("then: end", "then: next\n  next: { set: { other: brief }, then: end }"),
        ("state: {", "state: { more: 'string?',"),
    ] {
        let changed = written.replace(from, to);
        assert_ne!(changed, written);
        assert_eq!(bench.run(&changed, brief("cats")).await.reused(), 1, "{to}");
    }
    assert_eq!(bench.model.calls(), 1);
}

#[tokio::test]
async fn a_result_that_is_too_old_is_computed_again() {
    let bench = Bench::over(Arc::new(Aged(MemoryResults::default(), Duration::from_secs(7200))));
    bench.run(&writer("cache: true"), brief("cats")).await;
    for (cache, is_used) in [
        ("cache: true", true),
        ("cache: {}", true),
        ("cache: 3h", true),
        ("cache: { for: 121m }", true),
        ("cache: 119m", false),
        ("cache: { for: 1h }", false),
    ] {
        let ran = bench.run(&writer(cache), brief("cats")).await;
        assert_eq!(ran.reused() == 1, is_used, "{cache}");
    }
}

#[tokio::test]
async fn a_clock_that_was_put_back_makes_no_result_old() {
    #[derive(Debug)]
    struct Ahead(MemoryResults);
    #[async_trait]
    impl ResultStore for Ahead {
        async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
            self.0.find(key).await
        }
        async fn keep(&self, key: &ResultKey, it: &CachedResult) -> Result<(), CheckpointError> {
            let at = it.at.checked_add(Duration::from_secs(7200)).unwrap();
            self.0.keep(key, &CachedResult { at, ..it.clone() }).await
        }
    }
    let bench = Bench::over(Arc::new(Ahead(MemoryResults::default())));
    bench.run(&writer("cache: 1h"), brief("cats")).await;
    assert_eq!(bench.run(&writer("cache: 1h"), brief("cats")).await.reused(), 1);
}

#[tokio::test]
async fn a_failure_is_not_kept() {
    let mut bench = Bench::new();
    bench.model.failures = 2;
    for _ in 0..2 {
        let ran = run(bench.graph(&writer("cache: true")), brief("cats")).await;
        assert_eq!(ran.end.status, Status::Failed);
    }
    assert_eq!(bench.run(&writer("cache: true"), brief("cats")).await.reused(), 0);
    assert_eq!(bench.run(&writer("cache: true"), brief("cats")).await.reused(), 1);
    assert_eq!(bench.model.calls(), 3);
}

#[tokio::test]
async fn results_are_renewed_where_that_is_asked_for() {
    let store = Arc::new(MemoryResults::default());
    let mut bench = Bench::over(Arc::clone(&store) as Arc<dyn ResultStore>);
    bench.run(&writer("cache: true"), brief("cats")).await;
    bench.cache = bench.cache.map(Cache::renewed);
    let renewed = bench.run(&writer("cache: true"), brief("cats")).await;
    assert_eq!((renewed.field("answer"), renewed.reused()), (json!("answer 2"), 0));
    bench.cache = Some(Cache::new(store));
    let third = bench.run(&writer("cache: true"), brief("cats")).await;
    assert_eq!((third.field("answer"), third.reused()), (json!("answer 2"), 1));
}

#[tokio::test]
async fn a_store_that_does_not_work_costs_the_results_and_not_the_run() {
    let bench = Bench::over(Arc::new(Broken));
    let ran = bench.run(&writer("cache: true"), brief("cats")).await;
    assert_eq!(ran.field("answer"), json!("answer 1"));
    let told = [
        "no cached result is used: could not look: the disk is gone",
        "the result is not cached: could not keep: the disk is full",
    ];
    assert_eq!(ran.warnings(), told);
}

#[tokio::test]
async fn a_finished_node_is_cached_before_a_crash_can_lose_it() {
    let bench = Bench::new();
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    // The run is accepted, and the record of the node is the write that fails.
    let dying = Engine::new(bench.graph(&writer("cache: true")))
        .with_storage(Arc::new(Disturbed::dying_after(1, Arc::clone(&storage))));
    let info = RunInfo::new("w");
    let input = Update::of(&brief("cats")).unwrap();
    let sink = EventSink::default();
    let stop = ShutdownHandle::default();
    dying
        .run(input)
        .with_info(info.clone())
        .with_events(sink.clone())
        .with_shutdown(&stop)
        .await
        .unwrap_err();
    assert_eq!(storage.records(&info.id).await.unwrap(), []);

    let engine = Engine::new(bench.graph(&writer("cache: true"))).with_storage(storage);
    let end = engine.resume(&info.id).with_events(sink).with_shutdown(&stop).await.unwrap();
    assert_eq!((end.status, bench.model.calls()), (Status::Done, 1));
}

const EQUAL: &str = "
state: { words: '[string]', answers: { type: '[string]', merge: append, default: [] }, n: int? }
input: words
models: { small: lab/small }
agents: { writer: { model: small } }
start: each
nodes:
  each: { map: { over: words, as: word, do: write }, then: end }
  write:
    agent: writer
    prompt: { text: 'Write about {{ word }}.' }
    writes: answers
    cache: true
";

#[tokio::test]
async fn equal_tasks_of_one_step_ask_a_model_once() {
    #[derive(Clone, Debug, Default)]
    struct Listing(Counting);
    #[async_trait]
    impl ChatModel for Listing {
        async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
            // All have begun before one of them ends.
            tokio::task::yield_now().await;
            let reply = self.0.chat(request).await?;
            let text = json!({"answers": [reply.text]}).to_string();
            Ok(ChatReply { text, ..reply })
        }
        fn name(&self) -> &'static str {
            "listing"
        }
    }
    impl ModelSource for Listing {
        fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
            Ok(Arc::new(self.clone()))
        }
    }
    let bench = Bench::new();
    let listing = Listing(bench.model.clone());
    let graph = || {
        let text = format!("graphrun: 1\nname: w\n{EQUAL}");
        let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
        let (workflow, _) = parse(file, Path::new("tests/workflow"), &registry()).unwrap();
        let services = Services { models: Arc::new(listing.clone()), ..Services::offline() };
        compile(workflow.into_graph(&factory(services, registry()).with_cache(bench.cache.clone())))
            .unwrap()
    };
    let first = run(graph(), json!({"words": ["cats", "cats", "dogs"]})).await;
    assert_eq!((first.end.status, first.reused(), bench.model.calls()), (Status::Done, 1, 2));
    let second = run(graph(), json!({"words": ["dogs", "cats", "cats", "birds"]})).await;
    assert_eq!((second.reused(), bench.model.calls()), (3, 3));
    let answers = second.field("answers");
    assert_eq!(answers[1], answers[2], "equal tasks get the same result");
    assert_eq!(answers[3], "answer 3");
}

#[tokio::test]
async fn the_transition_of_a_cached_result_is_decided_again() {
    let bench = Bench::new();
    let routed = "
state: { brief: string, other: string, answer: string, end: string }
input: [brief, other]
models: { small: lab/small }
agents: { writer: { model: small } }
start: write
nodes:
  write:
    agent: writer
    prompt: { text: 'Write about {{ brief }}.' }
    writes: answer
    cache: true
    then: [{ when: other == 'x', to: left }, { to: right }]
  left: { set: { end: '\"left\"' }, then: end }
  right: { set: { end: '\"right\"' }, then: end }
";
    let left = bench.run(routed, json!({"brief": "cats", "other": "x"})).await;
    let right = bench.run(routed, json!({"brief": "cats", "other": "y"})).await;
    assert_eq!((left.field("end"), right.field("end")), (json!("left"), json!("right")));
    assert_eq!((right.field("answer"), bench.model.calls()), (json!("answer 1"), 1));
}

#[tokio::test]
async fn a_cache_key_replaces_the_input_but_not_the_identity() {
    let bench = Bench::new();
    let keyed = |key: &str| writer(&format!("cache: {{ key: {key} }}"));
    let input = |brief: &str, other: &str| json!({"brief": brief, "other": other});
    bench.run(&keyed("other"), input("cats", "x")).await;
    assert_eq!(bench.run(&keyed("other"), input("dogs", "x")).await.reused(), 1);
    assert_eq!(bench.run(&keyed("other"), input("cats", "y")).await.reused(), 0);
    assert_eq!(bench.run(&keyed("brief"), input("x", "cats")).await.reused(), 0);
    let another = keyed("other").replace("Write about", "Write a lot about");
    assert_eq!(bench.run(&another, input("cats", "x")).await.reused(), 0);
}

#[tokio::test]
async fn a_key_without_a_value_is_a_warning_and_caches_nothing() {
    let bench = Bench::new();
    let divided = writer("cache: { key: 10 / brief.size() }");
    for calls in 1..=2 {
        let ran = bench.run(&divided, json!({"brief": "", "other": "x"})).await;
        let told = "the result is not cached, because its key cannot be computed: division by zero \
                    (in `10 / brief.size()`)";
        assert_eq!((ran.warnings(), bench.model.calls()), (vec![told], calls));
    }
    for reused in 0..=1 {
        assert_eq!(bench.run(&divided, brief("cats")).await.reused(), reused);
    }
}

/// The codes of everything that is wrong with a workflow.
fn codes(workflow: &str) -> Vec<&'static str> {
    let text = format!("graphrun: 1\nname: w\n{workflow}");
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
    let diagnostics = match parse(file, Path::new("tests/workflow"), &registry()) {
        Ok((_, diagnostics)) | Err(diagnostics) => diagnostics,
    };
    other_codes(&diagnostics)
}

#[test]
fn hostile_keys_do_not_load() {
    let deep = format!("{}brief{}", "(".repeat(5_000), ")".repeat(5_000));
    let long = vec!["brief"; 20_000].join(" + ");
    for (cache, code) in [
        ("cache: { key: breif }", "GR021"),
        ("cache: { key: brief.id }", "GR021"),
        ("cache: { key: answer }", "GR035"),
        ("cache: { key: output.dir }", "GR021"),
        ("cache: { key: brief + 1 }", "GR022"),
        ("cache: { key: brief and other }", "GR020"),
        ("cache: { key: '{{ brief }}' }", "GR020"),
        ("cache: { key: 'visits(\"nowhere\")' }", "GR010"),
        ("cache: { key: [brief] }", "GR005"),
        ("cache: { key: }", "GR005"),
        (&format!("cache: {{ key: '{deep}' }}"), "GR020"),
        (&format!("cache: {{ key: '{long}' }}"), "GR020"),
        ("cache: { keys: brief }", "GR003"),
        ("cache: { for: 0s }", "GR005"),
        ("cache: 'true'", "GR005"),
        ("cache: yes", "GR005"),
        ("cache: 24", "GR005"),
        ("cache: [24h]", "GR005"),
        ("cache:", "GR005"),
    ] {
        let short: String = cache.chars().take(60).collect();
        assert_eq!(codes(&writer(cache)), [code], "{short}");
    }
}

#[test]
fn kinds_without_reusable_results_refuse_a_cache() {
    let state = "state: { brief: string, items: '[string]', answer: string, files: json }\n\
                 input: [brief, items, files]\n";
    for (kind, more) in [
        ("ask: Well?, writes: answer", ""),
        ("set: { answer: brief }", ""),
        ("write_files: { to: output.dir, files: files }", ""),
        ("map: { over: items, do: other }", "  other: { set: { answer: item } }\n"),
        ("tool: fs.read, args: { path: brief }, writes: { answer: text }", ""),
    ] {
        let node = |cache: &str| {
            format!("{state}start: it\nnodes:\n  it: {{ {kind}, {cache}then: end }}\n{more}")
        };
        assert_eq!(codes(&node("cache: true, ")), ["GR049"], "{kind}");
        assert_eq!(codes(&node("cache: false, ")), [""; 0], "{kind}");
    }
    let group = "start: both\nnodes:\n  both: { parallel: [a, b], cache: true, then: end }\n  \
                 a: { set: { answer: brief } }\n  b: { set: { files: brief } }\n";
    assert_eq!(codes(&format!("{state}{group}")), ["GR003"]);
}

#[test]
fn agents_that_depend_on_more_than_inputs_refuse_a_cache() {
    let session = "id: { type: string, default: '' }";
    let coder = "command: [codex, exec], protocol: codex, in: box";
    for (field, section, agent, node) in [
        ("", "", "model: openai/gpt-5, tools: fs.read", ""),
        ("", "memory: { facts: {} }", "model: openai/gpt-5, tools: memory.search", ""),
        (
            "chat: { type: [message], merge: messages }",
            "",
            "model: openai/gpt-5",
            "history: { field: chat, compact: { to: 100 } }, ",
        ),
        (session, "sandboxes: { box: { time: 20s } }", coder, "session: id, "),
    ] {
        let workflow = |cache: &str| {
            format!(
                "state: {{ brief: string, answer: string, {field} }}\ninput: brief\n{section}\nagents: {{ a: {{ {agent} }} \
                 }}\nstart: it\nnodes:\n  it: {{ agent: a, prompt: {{ text: '{{{{ brief }}}}' }}, writes: answer, \
                 {node}{cache}then: end }}\n"
            )
        };
        assert_eq!(codes(&workflow("cache: true, ")), ["GR049"], "{agent}");
        assert_eq!(codes(&workflow("")), [""; 0], "{agent}");
    }
}

#[tokio::test]
async fn a_tool_with_a_built_in_name_is_judged_as_its_own() {
    #[derive(Deserialize, JsonSchema)]
    struct Input {
        path: String,
    }
    #[derive(Serialize, JsonSchema)]
    struct Output {
        text: String,
    }
    async fn shout(input: Input, _: ToolContext) -> Result<Output, ToolError> {
        Ok(Output { text: input.path.to_uppercase() })
    }
    let mut bench = Bench::new();
    let workflow = |tool: &str| {
        format!(
            "state: {{ brief: string, answer: string }}\ninput: brief\nstart: it\nnodes:\n  \
             it: {{ tool: {tool}, args: {{ path: brief }}, writes: {{ answer: text }}, then: end }}\n"
        )
    };
    assert_eq!(bench.graph(&workflow("fs.read")).calls_max(), Some(0));
    for name in ["fs.read", "fs.write"] {
        bench.registry = bench.registry.tool(Arc::new(tool_fn(name, "Shouts.", shout)));
        // It may ask models, it may be cached, and it changes no files of a folder.
        assert_eq!(bench.graph(&workflow(name)).calls_max(), None);
        let cached = workflow(name).replace("then: end", "cache: true, then: end");
        let input = json!({"brief": "cats"});
        let ran = bench.run(&cached, input.clone()).await;
        assert_eq!((ran.field("answer"), ran.reused()), (json!("CATS"), 0));
        assert_eq!(bench.run(&cached, input).await.reused(), 1);
    }
}

#[tokio::test]
async fn a_command_and_a_tool_are_cached_by_their_inputs() {
    #[derive(Deserialize, JsonSchema)]
    struct Text {
        text: String,
    }
    #[derive(Serialize, JsonSchema)]
    struct Counted {
        text: String,
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let count = move |input: Text, _: ToolContext| {
        let counted = Arc::clone(&counted);
        async move {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ToolError>(Counted { text: format!("{} {call}", input.text) })
        }
    };
    let mut bench = Bench::new();
    bench.registry = bench.registry.tool(Arc::new(tool_fn("text.count", "Counts.", count)));
    let workflow = "
state: { brief: string, other: string, time: string, answer: string }
input: [brief, other]
sandboxes: { box: { time: 10s } }
start: [command, call]
nodes:
  command:
    run: [date, '+%s%N']
    in: box
    stdin: brief
    writes: { time: stdout }
    cache: true
    then: end
  call: { tool: text.count, args: { text: brief }, writes: { answer: text }, cache: true, then: end }
";
    let first = bench.run(workflow, brief("cats")).await;
    let second = bench.run(workflow, json!({"brief": "cats", "other": "y"})).await;
    assert_eq!(second.reused(), 2);
    assert_eq!(second.field("time"), first.field("time"));
    assert_eq!(second.field("answer"), json!("cats 0"));
    assert_eq!(bench.run(workflow, brief("dogs")).await.reused(), 0);
    let elsewhere = workflow.replace("time: 10s", "time: 11s");
    let third = bench.run(&elsewhere, brief("cats")).await;
    assert_eq!(third.reused(), 1, "the sandbox of the command is another one");
    assert_ne!(third.field("time"), first.field("time"));
}

#[tokio::test]
async fn a_used_workflow_has_separate_results_for_each_use() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let inner = format!("graphrun: 1\nname: inner\n{}", writer("cache: { key: brief }"))
        .replace("input: [brief, other]", "input: brief\noutput: answer")
        .replace(" other: string,", "");
    std::fs::write(folder.path().join("inner.yaml"), inner).unwrap();
    let outer = "graphrun: 1\nname: outer\n\
        state: { topic: string, one: string, two: string }\ninput: topic\nstart: first\nnodes:\n  \
        first: { use: { workflow: inner.yaml, in: { brief: topic }, out: { one: answer } }, then: second }\n  \
        second: { use: { workflow: inner.yaml, in: { brief: topic }, out: { two: answer } }, then: end }\n";
    std::fs::write(folder.path().join("outer.yaml"), outer).unwrap();
    let graph = || {
        let path = folder.path().join("outer.yaml");
        let (workflow, _) = graphrun_workflow::load(&path, &registry()).unwrap();
        let services = Services { models: Arc::new(bench.model.clone()), ..Services::offline() };
        compile(workflow.into_graph(&factory(services, registry()).with_cache(bench.cache.clone())))
            .unwrap()
    };
    for reused in [0, 2] {
        let ran = run(graph(), json!({"topic": "cats"})).await;
        assert_eq!((ran.field("one"), ran.field("two")), (json!("answer 1"), json!("answer 2")));
        assert_eq!(ran.reused(), reused);
    }
}
