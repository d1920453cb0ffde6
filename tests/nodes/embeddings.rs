//! Tiers with embeddings: recall by meaning, failures of the model, and the usage.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::RunInfo,
    compile::compile,
    diagnostic::SourceFile,
    engine::{Answers, Engine},
    event::{Event, Report, Status},
    id::RunId,
    memory::{
        Approval, Batch, InMemoryStore, Memory, NewEntry, Search, Source, SqliteStore, Store,
    },
    models::{
        ChatModel, EmbeddingModel, EmbeddingReply, EmbeddingRequest, ModelError, Price, Prices,
        TokenPrice, TokenUsage,
    },
    nodes::{ModelSource, Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    workflow::{Workflow, parse},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Ended,
    agent_tools::{Scripted, call, calls, says},
    run_with, services,
};

/// A model whose vectors depend on a few words, and its failures.
#[derive(Clone, Debug, Default)]
struct Meaning {
    failures: Arc<Mutex<Vec<ModelError>>>,
    asked: Arc<Mutex<Vec<EmbeddingRequest>>>,
    characters_max: Option<usize>,
    /// A text with this word is refused.
    refused: Option<&'static str>,
    chats: Option<Scripted>,
}

impl Meaning {
    fn failing(failure: &ModelError, times: usize) -> Self {
        Self { failures: Arc::new(Mutex::new(vec![failure.clone(); times])), ..Self::default() }
    }

    /// The texts of each request.
    fn asked(&self) -> Vec<Vec<String>> {
        self.asked.lock().unwrap().iter().map(|it| it.texts.clone()).collect()
    }

    fn vector(text: &str) -> Vec<f32> {
        let has = |words: &[&str]| words.iter().any(|it| text.contains(it));
        let number = |it: bool| if it { 1.0 } else { 0.0 };
        let locks = number(has(&["lock", "mutex", "synchronise"]));
        let time = number(has(&["slow", "latency"]));
        vec![locks, time, 0.01]
    }

    fn services(&self, store: &Arc<dyn Store>) -> Services {
        let memory = Memory::new(Arc::clone(store));
        Services { memory, models: Arc::new(self.clone()), ..services() }
    }
}

#[async_trait]
impl EmbeddingModel for Meaning {
    async fn embed(&self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        self.asked.lock().unwrap().push(request.clone());
        if let Some(failure) = self.failures.lock().unwrap().pop() {
            return Err(failure);
        }
        let is_too_long = |it: &String| self.characters_max.is_some_and(|max| it.len() > max);
        if request.texts.iter().any(is_too_long) {
            let message = "too long".to_owned();
            let usage = TokenUsage::default();
            return Err(ModelError::ContextOverflow { message, usage });
        }
        let is_refused = |it: &String| self.refused.is_some_and(|word| it.contains(word));
        if request.texts.iter().any(is_refused) {
            return Err(ModelError::BadRequest { status: 400, message: "invalid input".into() });
        }
        let vectors = request.texts.iter().map(|it| Self::vector(it)).collect();
        let usage = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
        let model = "v-1".into();
        Ok(EmbeddingReply { vectors, usage, model, ..EmbeddingReply::default() })
    }

    fn name(&self) -> &'static str {
        "lab/v"
    }
}

impl ModelSource for Meaning {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        match &self.chats {
            Some(chats) => chats.model(name),
            None => Err(ModelError::Auth { message: "no chats here".into() }),
        }
    }

    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        assert_eq!(name, "lab/v");
        Ok(Arc::new(self.clone()))
    }
}

fn down() -> ModelError {
    ModelError::Overloaded { after: None, message: "no capacity".into() }
}

fn store() -> Arc<dyn Store> {
    Arc::new(InMemoryStore::default())
}

async fn add(store: &Arc<dyn Store>, text: &str) {
    let person = Source::Person { name: "ana".into() };
    let approval = Approval::Approved;
    let entry = NewEntry { approval, ..NewEntry::of("notes", text.into(), person) };
    let batch = Batch { key: text.to_owned(), entries: vec![entry], now: Timestamp::now() };
    store.put(&batch).await.unwrap();
}

const LEARN: &str = "
graphrun: 1
name: learn
models: { v: lab/v }
memory: { notes: { embeddings: v } }
state: { lessons: [string] }
input: lessons
start: keep
nodes:
  keep: { remember: lessons, as: notes, retry: 1, then: end }
";

const USE: &str = "
graphrun: 1
name: use
memory: { notes: { embeddings: lab/v } }
state: { task: string, known: [string] }
input: task
start: look
nodes:
  look: { recall: notes, query: task, limit: 2, writes: known, retry: 1, then: end }
";

async fn learn(model: &Meaning, store: &Arc<dyn Store>, lessons: Value) -> Ended {
    run_with(LEARN, json!({"lessons": lessons}), model.services(store), registry()).await
}

async fn look(model: &Meaning, store: &Arc<dyn Store>, task: &str) -> Ended {
    run_with(USE, json!({"task": task}), model.services(store), registry()).await
}

#[tokio::test]
async fn a_run_recalls_by_meaning() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("memory.db")).unwrap();
    for store in [store(), Arc::new(sqlite) as Arc<dyn Store>] {
        let model = Meaning::default();
        let lessons = json!(["a mutex guards the reader", "the parser is slow"]);
        let ended = learn(&model, &store, lessons.clone()).await;
        assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
        let ended = look(&model, &store, "synchronise it").await;
        // No word of the task is in an entry.
        assert_eq!(
            ended.state("known"),
            &json!(["a mutex guards the reader", "the parser is slow"])
        );
        assert_eq!(ended.warnings(), [""; 0]);
        let ended = look(&model, &store, "latency").await;
        assert_eq!(ended.state("known")[0], "the parser is slow");
        let texts: Vec<String> = serde_json::from_value(lessons).unwrap();
        assert_eq!(model.asked(), [texts, vec!["synchronise it".into()], vec!["latency".into()]]);
        assert_eq!(model.asked.lock().unwrap()[0].caller, "keep");
    }
}

#[tokio::test]
async fn usage_counts_and_has_a_price() {
    let model = Meaning::default();
    let store = store();
    let prices = [(
        "lab/v".to_owned(),
        Price { tokens: TokenPrice { input: 20.0, ..TokenPrice::default() }, long: None },
    )];
    let prices = Arc::new(Prices::from_iter(prices));
    let services = Services { prices, ..model.services(&store) };
    let ended = run_with(LEARN, json!({"lessons": ["a"]}), services, registry()).await;
    let usage = ended.end.position.used.usage;
    assert_eq!((usage.tokens.input_tokens, usage.tokens.calls), (100, 1));
    assert_eq!(usage.cost_usd, Some(0.002));
    let called = |event: &Event| matches!(event, Event::TaskReported { report: Report::ModelCall { model, .. }, .. } if model == "lab/v-1");
    assert!(ended.events.iter().any(|it| called(&it.event)), "{}", ended.told());
}

#[tokio::test]
async fn a_limit_of_tokens_holds_for_embeddings() {
    let model = Meaning::default();
    let store = store();
    let text = LEARN
        .replace("start:", "limits: { tokens: 150 }\nstart:")
        .replace("then: end", "then: again }\n  again: { remember: lessons, as: notes, then: end");
    let input = json!({"lessons": ["a mutex", &"long ".repeat(80)]});
    let ended = run_with(&text, input, model.services(&store), registry()).await;
    assert_eq!(ended.end.status, Status::Limit, "{}", ended.told());
    assert_eq!(model.asked().len(), 1, "the second call does not fit into the rest of the limit");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_no_failure() {
    let model = Meaning::failing(&down(), 2);
    let store = store();
    let started = tokio::time::Instant::now();
    let ended = learn(&model, &store, json!(["a mutex"])).await;
    assert_eq!((ended.end.status, ended.warnings().len()), (Status::Done, 0), "{}", ended.told());
    assert_eq!(started.elapsed(), Duration::from_millis(1_500));
    let repeats: Vec<bool> = model.asked.lock().unwrap().iter().map(|it| it.is_repeat).collect();
    assert_eq!(repeats, [false, true, true]);
    let ended = look(&model, &store, "synchronise").await;
    assert_eq!(ended.state("known"), &json!(["a mutex"]));
}

#[tokio::test(start_paused = true)]
async fn without_the_model_words_are_enough() {
    let model = Meaning::failing(&down(), 6);
    let store = store();
    let ended = learn(&model, &store, json!(["a mutex of the reader", "a slow reader"])).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.told());
    let says = "`lab/v` makes no vectors: the provider is overloaded: no capacity; ";
    let saved = format!("{says}the entries are saved without vectors");
    assert_eq!(ended.warnings(), [saved.as_str()]);
    assert_eq!(model.asked().len(), 3);
    let ended = look(&model, &store, "which mutex?").await;
    assert_eq!(ended.state("known"), &json!(["a mutex of the reader"]));
    let ranked = format!("{says}entries of `notes` are ranked by their words alone");
    assert_eq!(ended.warnings(), [ranked.as_str()]);
    assert_eq!(model.asked().len(), 6);
    // The entries get their vectors as soon as the model answers again.
    let ended = look(&model, &store, "latency").await;
    assert_eq!(ended.state("known")[0], "a slow reader", "{}", ended.told());
    assert_eq!(model.asked()[7].len(), 2);
    look(&model, &store, "latency").await;
    assert_eq!(model.asked().len(), 9, "no entry lacks one any more");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_not_repeated() {
    for failure in [
        ModelError::Auth { message: "no".into() },
        ModelError::RateLimited { after: Some(Duration::from_secs(60)), message: "no".into() },
        ModelError::Timeout {
            phase: graphrun::models::Phase::Body,
            after: Duration::from_secs(60),
        },
    ] {
        let model = Meaning::failing(&failure, 9);
        let store = store();
        let ended = learn(&model, &store, json!(["a mutex"])).await;
        assert_eq!((ended.end.status, ended.warnings().len()), (Status::Done, 1));
        assert_eq!(model.asked().len(), 1, "{failure}");
    }
}

#[tokio::test]
async fn entries_of_people_get_vectors_when_they_are_first_searched() {
    let model = Meaning::default();
    let store = store();
    add(&store, "a mutex guards the reader").await;
    let text = USE.replace("{ embeddings: lab/v }", "{ access: read, embeddings: lab/v }");
    let input = json!({"task": "synchronise"});
    let ended = run_with(&text, input, model.services(&store), registry()).await;
    assert_eq!(ended.state("known"), &json!(["a mutex guards the reader"]), "{}", ended.told());
    assert!(store.without_vector("notes", "lab/v", 9).await.unwrap().is_empty());
    // The newest entries need no vectors.
    let text = text.replace("query: task, ", "");
    run_with(&text, json!({"task": "x"}), model.services(&store), registry()).await;
    assert_eq!(model.asked().len(), 2);
    assert_eq!(calls_of(&text), 0);
    assert_eq!((calls_of(USE), calls_of(LEARN)), (2, 250));
    assert_eq!(calls_of(&LEARN.replace("remember: lessons", "remember: 'lessons[0]'")), 1);
}

/// The most calls of a workflow.
fn calls_of(text: &str) -> u64 {
    let graph = loaded(text).into_graph(&factory(services(), registry()));
    compile(graph).unwrap().calls_max().unwrap()
}

fn loaded(text: &str) -> Workflow {
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() });
    parse(file, Path::new(""), &registry()).unwrap_or_else(|diagnostics| panic!("{diagnostics}")).0
}

#[tokio::test]
async fn a_text_that_is_too_long_for_the_model_is_cut() {
    let model = Meaning { characters_max: Some(600), ..Meaning::default() };
    let store = store();
    let lessons = json!([format!("a mutex {}", "and more ".repeat(400)), "short"]);
    let ended = learn(&model, &store, lessons).await;
    assert_eq!(ended.warnings(), [""; 0]);
    let lengths: Vec<usize> = model.asked().iter().map(|it| it[0].len()).collect();
    assert_eq!(lengths, [3_608, 1_804, 902, 451]);
    let ended = look(&model, &store, "synchronise").await;
    assert!(ended.state("known")[0].as_str().unwrap().ends_with("and more "));
    let model = Meaning { characters_max: Some(10), ..Meaning::default() };
    let ended = learn(&model, &store, json!(["x".repeat(300)])).await;
    assert!(ended.warnings()[0].contains("the request is too long"), "{}", ended.told());
}

/// Returns the entries without a vector, at most ten.
async fn lacking(store: &Arc<dyn Store>) -> usize {
    store.without_vector("notes", "lab/v", 10).await.unwrap().len()
}

#[tokio::test]
async fn a_text_that_the_model_refuses_is_asked_about_once() {
    let folder = tempfile::tempdir().unwrap();
    let saved = SqliteStore::open(folder.path().join("memory.db")).unwrap();
    for store in [store(), Arc::new(saved) as Arc<dyn Store>] {
        let model = Meaning { refused: Some("forbidden"), ..Meaning::default() };
        for number in 0..7 {
            add(&store, &format!("a mutex {number}")).await;
            if number % 3 == 1 {
                add(&store, &format!("a forbidden lock {number}")).await;
            }
        }
        let mut searches = 0;
        while lacking(&store).await > 0 {
            let before = model.asked().len();
            assert_eq!(look(&model, &store, "mutex").await.end.status, Status::Done);
            searches += 1;
            assert!(model.asked().len() - before <= 6, "{:?}", model.asked());
            assert!(searches < 10, "each search makes some progress");
        }
        let before = model.asked().len();
        let ended = look(&model, &store, "synchronise").await;
        assert_eq!((ended.warnings(), model.asked().len()), (vec![], before + 1));
        let found = ended.state("known").to_string();
        assert!(found.contains("a mutex"), "by meaning: {found}");
        assert!(!found.contains("forbidden"), "it has no vector: {found}");
    }
}

#[tokio::test]
async fn a_text_that_the_model_refuses_takes_no_vectors_from_others() {
    let model = Meaning { refused: Some("forbidden"), ..Meaning::default() };
    let store = store();
    let ended = learn(&model, &store, json!(["forbidden", "a mutex", "slow", "a lock"])).await;
    assert_eq!((ended.end.status, ended.warnings().len()), (Status::Done, 1));
    assert_eq!(lacking(&store).await, 2, "the first is marked, and the second has a vector");
    // A model that refuses everything has marked nothing.
    let model = Meaning { refused: Some("a"), ..Meaning::default() };
    let store = self::store();
    learn(&model, &store, json!(["a mutex", "a lock"])).await;
    assert_eq!(lacking(&store).await, 2);
}

#[tokio::test]
async fn too_many_entries_at_once_cost_nothing() {
    let model = Meaning::default();
    let store = store();
    let lessons: Vec<String> = (0..1_001).map(|it| format!("lesson {it}")).collect();
    let ended = learn(&model, &store, json!(lessons)).await;
    assert_eq!((ended.end.status, model.asked().len()), (Status::Failed, 0));
    assert!(ended.reason().contains("1001"), "{}", ended.reason());
}

#[tokio::test]
async fn a_resumed_run_needs_no_vectors_for_what_it_recalled() {
    let text = "
graphrun: 1
name: w
memory: { notes: { embeddings: lab/v } }
state: { known: [string], go: bool }
start: look
nodes:
  look: { recall: notes, query: '\"synchronise\"', writes: known, then: ask }
  ask: { ask: Go on?, show: known, writes: go, then: end }
";
    let model = Meaning::default();
    let store = store();
    learn(&model, &store, json!(["a mutex"])).await;
    let graph = loaded(text).into_graph(&factory(model.services(&store), registry()));
    let engine =
        Engine::new(compile(graph).unwrap()).with_storage(Arc::new(InMemoryStorage::default()));
    let run = RunId::parse("r1").unwrap();
    let info = RunInfo { id: run.clone(), ..RunInfo::new("w") };
    let end = engine.run(Update::default()).with_info(info).await.unwrap();
    assert_eq!(end.status, Status::Paused, "{:?}", end.reason);
    learn(&model, &store, json!(["another lock"])).await;
    let asked = model.asked().len();
    let answers = [(end.questions[0].name.clone(), json!(true))].into();
    let answers = Answers { by_name: answers, by: None };
    let end = engine.resume(&run).with_answers(answers).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(end.state.get("known"), Some(&json!(["a mutex"])));
    assert_eq!(model.asked().len(), asked);
}

#[tokio::test]
async fn a_store_that_fails_is_still_a_failure() {
    /// Fails to search, and counts.
    #[derive(Debug, Default)]
    struct Broken(AtomicUsize);

    #[async_trait]
    impl Store for Broken {
        async fn put(
            &self,
            _: &Batch,
        ) -> Result<Vec<graphrun::memory::EntryId>, graphrun::memory::StoreError> {
            unreachable!("nothing is written")
        }

        async fn search(
            &self,
            search: &Search,
        ) -> Result<Vec<graphrun::memory::Entry>, graphrun::memory::StoreError> {
            assert_eq!(search.embedding.as_ref().map(|it| it.model.as_str()), Some("lab/v"));
            self.0.fetch_add(1, Ordering::Relaxed);
            let place = "memory.db".to_owned();
            let reason = "it is gone".to_owned();
            Err(graphrun::memory::StoreError::Unusable { place, reason })
        }

        async fn list(
            &self,
            _: &graphrun::memory::Listing,
        ) -> Result<Vec<graphrun::memory::Entry>, graphrun::memory::StoreError> {
            unreachable!("nothing is listed")
        }

        async fn find(
            &self,
            _: &str,
        ) -> Result<Vec<graphrun::memory::Entry>, graphrun::memory::StoreError> {
            unreachable!("nothing is looked for")
        }

        async fn approve(
            &self,
            _: &graphrun::memory::EntryId,
            _: &str,
            _: Timestamp,
        ) -> Result<(), graphrun::memory::StoreError> {
            unreachable!("nothing is approved")
        }

        async fn remove(
            &self,
            _: &graphrun::memory::EntryId,
        ) -> Result<(), graphrun::memory::StoreError> {
            unreachable!("nothing is removed")
        }

        async fn import(
            &self,
            _: &[graphrun::memory::Entry],
        ) -> Result<(), graphrun::memory::StoreError> {
            unreachable!("nothing is imported")
        }
    }

    let model = Meaning::default();
    let broken = Arc::new(Broken::default());
    let store: Arc<dyn Store> = Arc::clone(&broken) as _;
    let ended = look(&model, &store, "synchronise").await;
    assert_eq!(ended.end.status, Status::Failed);
    assert!(ended.reason().contains("it is gone") && broken.0.load(Ordering::Relaxed) > 0);
}

const AGENTS: &str = "
graphrun: 1
name: w
memory: { notes: { embeddings: lab/v } }
models: { m: x/1 }
agents: { a: { model: m, tools: [memory.search, memory.add], max_tool_rounds: 2 }, b: { model: m } }
types: { Kind: memory | other }
state: { kind: Kind, answer: string }
input: kind
start: ask
nodes:
  ask: { agent: AGENT, prompt: { text: What? }, writes: answer, retry: 1, then: end }
";

#[tokio::test]
async fn the_tools_of_agents_search_and_add_by_meaning() {
    for agent in ["a", "{ match: kind, to: { memory: a, other: b } }"] {
        let chats = Scripted::new([
            calls([call("1", "memory.add", r#"{"tier":"notes","value":"a mutex"}"#)]),
            calls([call("2", "memory.search", r#"{"tier":"notes","query":"synchronise"}"#)]),
            says("done"),
        ]);
        let (model, store) =
            (Meaning { chats: Some(chats.clone()), ..Meaning::default() }, store());
        let text = AGENTS.replace("AGENT", agent);
        let services = model.services(&store);
        let ended = run_with(&text, json!({"kind": "memory"}), services, registry()).await;
        assert_eq!(ended.state("answer"), "done", "{}", ended.reason());
        let asked = chats.asked();
        let result = &asked[2].messages.last().unwrap().content;
        assert!(result.contains("a mutex"), "{result}");
        assert_eq!(model.asked(), [["a mutex"], ["synchronise"]]);
        // The answers, and in each round sixteen searches with two calls each.
        assert_eq!(calls_of(&text), calls_of(&text.replace("embeddings: lab/v", "")) + 2 * 16 * 2);
    }
}

#[test]
fn an_agent_that_a_value_chooses_needs_the_memory_of_its_tools() {
    let text = AGENTS.replace("AGENT", "{ match: kind, to: { memory: a, other: b } }");
    assert!(loaded(&text).needs_memory());
    let nodes = loaded(&text);
    let used = nodes.all_nodes().into_values().find_map(|it| it.settings.embeddings()).unwrap();
    assert_eq!(used.models.into_iter().collect::<Vec<_>>(), ["lab/v"]);
    let text = AGENTS.replace("AGENT", "b");
    assert!(!loaded(&text).needs_memory());
}

#[tokio::test]
async fn a_tool_node_searches_by_meaning() {
    let text = "
graphrun: 1
name: w
memory: { notes: { embeddings: lab/v } }
types: { Found: { text: string } }
state: { found: [Found] }
start: look
nodes:
  look: { tool: memory.search, args: { tier: '\"notes\"', query: '\"synchronise\"' }, writes: { found: entries }, retry: 1, then: end }
";
    let model = Meaning::default();
    let store = store();
    add(&store, "a mutex").await;
    let ended = run_with(text, json!({}), model.services(&store), registry()).await;
    assert_eq!(ended.state("found")[0]["text"], "a mutex", "{}", ended.reason());
    assert_eq!(calls_of(text), 2);
}
