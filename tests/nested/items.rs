//! A `map` over a `use`, and graphs as nodes of Rust graphs: each task is a nested run.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use graphrun::{
    checkpoint::{Checkpointer, Outcome, RunHistory as _, TaskRecord},
    compile::{CompiledGraph, compile},
    engine::{Clock, Engine, RunEnd, ShutdownHandle, subgraph},
    event::{Event, EventSink, Report, Status, Usage},
    graph::{
        ErrorKind, Failure, GraphBuilder, Item, Limits, NESTED_LEVELS_MAX, NodeContext, NodeError,
        Question, START, dispatch, node_fn,
    },
    nodes::{Services, factory},
    prelude::{END, FAIL},
    registry,
    state::Update,
    storage::{InMemoryStorage, SqliteStorage},
    workflow::load,
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

/// A review that improves a text until it has a length.
const REVIEW: &str = "
graphrun: 1
name: review
state: { text: string, wanted: int, result: string, log: { type: \"[string]\", merge: append, default: [] } }
input: [text, wanted]
output: [result]
start: improve
nodes:
  improve:
    node: improve
    max_visits: 9
    exhausted: fail
    then:
      - { when: text.size() < wanted, to: improve }
      - { to: finish }
  finish: { node: finish, then: end }
";

/// Reviews all parts.
const ALL: &str = "
graphrun: 1
name: all
types: { Part: { text: string, wanted: int }, Lost: { index: int, kind: string, message: string } }
state:
  parts: '[Part]'
  results: { type: '[string]', merge: append, default: [] }
  lost: { type: '[Lost]', merge: append, default: [] }
  ends: { type: '[string]', merge: append, default: [] }
input: parts
start: each
nodes:
  each: { map: { over: parts, as: part, do: review }, then: close }
  review:
    use:
      workflow: review.yaml
      in: { text: part.text, wanted: part.wanted }
      out: { results: result }
  close: { set: { ends: '[\"closed\"]' }, then: end }
";

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Improved {
    text: String,
    log: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Finished {
    result: String,
}

/// What the node `improve` does with a text that ends with `!`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    Works,
    Fails,
    FailsOnce,
    Hangs,
    Asks,
}

/// A process with the workflow; its nodes note their work.
struct Process {
    _folder: TempDir,
    graph: CompiledGraph,
    did: Arc<Mutex<Vec<String>>>,
    hangs: Arc<Notify>,
}

/// Replaces a part of a workflow, which must be there.
fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old}");
    text.replace(old, new)
}

impl Process {
    fn new(marked: Marked) -> Self {
        Self::of(ALL, REVIEW, marked)
    }

    fn of(all: &str, review: &str, marked: Marked) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("all.yaml"), all).unwrap();
        fs::write(folder.path().join("review.yaml"), review).unwrap();
        let did: Arc<Mutex<Vec<String>>> = Arc::default();
        let hangs = Arc::new(Notify::new());
        let failed = Arc::new(AtomicUsize::new(0));
        let improve = {
            let did = Arc::clone(&did);
            let hangs = Arc::clone(&hangs);
            node_fn(move |Text { text }: Text, ctx: NodeContext| {
                let (did, hangs, failed) =
                    (Arc::clone(&did), Arc::clone(&hangs), Arc::clone(&failed));
                async move {
                    let usage = Usage { cost_usd: Some(0.25), ..Usage::default() };
                    let tokens = graphrun::models::TokenUsage { calls: 1, ..Default::default() };
                    let usage = Usage { tokens, ..usage };
                    ctx.within_budget().await;
                    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                    ctx.emit(&text).await?;
                    let mut text = text;
                    if text.ends_with('!') {
                        let is_first = failed.fetch_add(1, Ordering::Relaxed) == 0;
                        match marked {
                            Marked::Works => (),
                            Marked::Fails => return Err(NodeError::permanent("it is marked")),
                            Marked::FailsOnce if is_first => {
                                return Err(NodeError::transient("it is marked"));
                            }
                            Marked::FailsOnce => (),
                            Marked::Hangs => {
                                hangs.notify_one();
                                std::future::pending::<()>().await;
                            }
                            Marked::Asks => {
                                let deadline =
                                    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
                                let question = graphrun::graph::Question::new("mark", "Keep it?");
                                text = ctx.ask(question.with_deadline(deadline))?;
                            }
                        }
                    }
                    did.lock().unwrap().push(format!("improve {text}"));
                    Ok(Improved { log: vec![text.clone()], text: text + "." })
                }
            })
        };
        let finish = {
            let did = Arc::clone(&did);
            node_fn(move |Text { text }: Text, _: NodeContext| {
                did.lock().unwrap().push(format!("finish {text}"));
                async move { Ok::<_, NodeError>(Finished { result: text }) }
            })
        };
        let registry =
            registry().node("improve", Arc::new(improve)).node("finish", Arc::new(finish));
        let (workflow, _) =
            load(&folder.path().join("all.yaml"), &registry).unwrap_or_else(|it| panic!("{it:?}"));
        let factory = factory(Services::offline(), registry);
        let graph = compile(workflow.into_graph(&factory)).unwrap_or_else(|it| panic!("{it}"));
        assert!(review != REVIEW || graph.warnings().is_empty(), "{}", graph.warnings());
        Self { _folder: folder, graph, did, hangs }
    }

    fn engine(&self) -> Engine {
        Engine::new(self.graph.clone()).with_clock(Clock::new(|| Timestamp::UNIX_EPOCH))
    }

    /// Returns what the nodes did, sorted, and forgets it.
    fn did(&self) -> Vec<String> {
        let mut did = std::mem::take(&mut *self.did.lock().unwrap());
        did.sort();
        did
    }
}

/// Parts that take one, three and two visits of `improve`.
fn parts() -> Update {
    let part = |text: &str, wanted: u32| json!({"text": text, "wanted": wanted});
    Update::of(&json!({"parts": [part("a!", 1), part("b", 4), part("c", 3)]})).unwrap()
}

fn list(end: &RunEnd, field: &str) -> Value {
    end.state.get(field).cloned().unwrap_or_default()
}

const FIRST_PART: [&str; 2] = ["finish a!.", "improve a!"];
const OTHER_PARTS: [&str; 7] = [
    "finish b...",
    "finish c..",
    "improve b",
    "improve b.",
    "improve b..",
    "improve c",
    "improve c.",
];

fn all_parts() -> Vec<String> {
    let mut all: Vec<String> =
        FIRST_PART.iter().chain(&OTHER_PARTS).map(|it| (*it).to_owned()).collect();
    all.sort();
    all
}

#[tokio::test]
async fn each_item_is_a_run_of_the_workflow() {
    let process = Process::new(Marked::Works);
    let end = process.engine().run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!(["a!.", "b...", "c.."]), "in the order of the items");
    assert_eq!(list(&end, "ends"), json!(["closed"]), "`then` follows once");
    assert_eq!(process.did(), all_parts());
    assert_eq!(end.position.step.0, 3);
}

#[tokio::test]
async fn a_crash_repeats_no_finished_task_of_an_item() {
    let folder = TempDir::new().unwrap();
    let open = || -> Arc<dyn Checkpointer> {
        Arc::new(SqliteStorage::open(folder.path().join("runs.db")).unwrap())
    };
    let first = Process::new(Marked::Hangs);
    let storage = open();
    let engine = first.engine().with_storage(Arc::clone(&storage));
    // The future is dropped like in a crash once the others have finished.
    tokio::select! {
        end = engine.run(parts()) => panic!("{end:?}"),
        () = async {
            first.hangs.notified().await;
            while first.did.lock().unwrap().len() < OTHER_PARTS.len() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The last of them is saved meanwhile.
            tokio::time::sleep(Duration::from_millis(300)).await;
        } => (),
    }
    let run = storage.ids().await.unwrap().remove(0);
    tokio::select! {
        _ = engine.resume(&run) => panic!("it hangs"),
        () = tokio::time::sleep(Duration::from_millis(500)) => (),
    }
    assert_eq!(first.did(), OTHER_PARTS);
    drop((engine, storage));
    let second = Process::new(Marked::Works);
    let end = second.engine().with_storage(open()).resume(&run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(second.did(), FIRST_PART, "only the item that had not finished");
    assert_eq!(list(&end, "results"), json!(["a!.", "b...", "c.."]));
}

#[tokio::test]
async fn a_retry_runs_only_the_failed_task_of_an_item() {
    let review = with(REVIEW, "start: improve", "start: first")
        .replace("nodes:\n", "nodes:\n  first: { node: finish, then: improve }\n");
    let (failing, storage) =
        (Process::of(ALL, &review, Marked::Fails), Arc::new(InMemoryStorage::default()));
    let end = failing.engine().with_storage(storage.clone()).run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let reason = end.reason.unwrap();
    assert!(reason.contains("`review`") && reason.contains("`improve`: it is marked"), "{reason}");
    let did = failing.did();
    assert!(did.contains(&"finish a!".to_owned()) && did.len() == 10, "{did:?}");
    let works = Process::of(ALL, &review, Marked::Works);
    let end = works.engine().with_storage(storage).retry(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(works.did(), FIRST_PART, "`first` and the other items are finished");
}

#[tokio::test]
async fn an_item_that_a_route_failed_begins_anew() {
    let review = with(REVIEW, "max_visits: 9", "max_visits: 2");
    let process = Process::of(ALL, &review, Marked::Works);
    let storage = Arc::new(InMemoryStorage::default());
    let engine = process.engine().with_storage(storage);
    let end = engine.run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Failed, "the second part needs three visits");
    assert!(end.reason.unwrap().contains("used up its 2 visits"));
    process.did();
    let end = engine.retry(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    assert_eq!(process.did(), ["improve b", "improve b."], "the other items are finished");
}

/// What the first run did is not found again by the second one, which does it anew.
#[tokio::test]
async fn a_run_after_a_failed_one_has_idempotency_keys_of_its_own() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let pays = {
        let keys = Arc::clone(&keys);
        node_fn(move |(): (), ctx: NodeContext| {
            keys.lock().unwrap().push(ctx.idempotency_key());
            async { Ok::<_, NodeError>(()) }
        })
    };
    let inner = GraphBuilder::new::<Count>("one").node("pays", pays).edge(START, "pays");
    let inner = inner.edge("pays", FAIL).compile().unwrap();
    let node = subgraph(inner, |(): ()| Count::default(), |_: Count| ());
    let graph = GraphBuilder::new::<Sums>("outer").node("inner", node);
    let graph = graph.edge(START, "inner").edge("inner", END).compile().unwrap();
    let engine = Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()));
    let end = engine.run(&Sums::default()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    assert_eq!(engine.retry(&end.run).await.unwrap().status, Status::Failed);
    let keys = keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
}

#[tokio::test]
async fn failed_items_are_data_and_then_follows_once() {
    let all = with(ALL, "do: review }", "do: review, failed: lost }");
    let process = Process::of(&all, REVIEW, Marked::Fails);
    let end = process.engine().run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!(["b...", "c.."]));
    let lost = json!([{"index": 0, "kind": "other", "message": "`improve`: it is marked"}]);
    assert_eq!(list(&end, "lost"), lost);
    assert_eq!(list(&end, "ends"), json!(["closed"]));
}

#[tokio::test]
async fn the_retries_of_a_use_continue_the_item() {
    let all = with(ALL, "  review:\n", "  review:\n    retry: { attempts: 2, initial: 1ms }\n");
    let process = Process::of(&all, REVIEW, Marked::FailsOnce);
    let end = process.engine().run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(process.did(), all_parts());
    let end = Process::new(Marked::FailsOnce).engine().run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
}

#[tokio::test]
async fn an_item_asks_a_person_through_its_run() {
    let process = Process::new(Marked::Asks);
    let engine = process.engine();
    let end = engine.run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Paused);
    let [open] = end.questions.as_slice() else { panic!("{:?}", end.questions) };
    assert_eq!((open.node.as_str(), open.name.as_str()), ("review", "mark"));
    assert_eq!(open.question.nested.as_ref().unwrap().node.as_str(), "review.improve");
    assert_eq!(process.did(), OTHER_PARTS);
    let end = engine.resume(&end.run).answer("mark", "kept").await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!(["kept.", "b...", "c.."]));
    assert_eq!(process.did(), ["finish kept.", "improve kept"]);
}

/// The second question has another name than its key, which the first answer has.
#[tokio::test]
async fn a_task_that_runs_again_keeps_both_answers_to_one_key() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let asks = || {
        let is_broken = Arc::clone(&is_broken);
        node_fn(move |(): (), ctx: NodeContext| {
            let is_broken = ctx.node.as_str() == "second" && is_broken.load(Ordering::Relaxed);
            async move {
                let answer: u32 = ctx.ask(Question::new("help", "How many?"))?;
                if is_broken {
                    return Err(NodeError::permanent("it is broken"));
                }
                Ok::<_, NodeError>(Count { count: answer })
            }
        })
    };
    let inner = GraphBuilder::new::<Count>("two").node("first", asks()).node("second", asks());
    let inner = inner.edge(START, "first").edge("first", "second").edge("second", END);
    let inner = inner.compile().unwrap();
    let node = subgraph(
        inner,
        |(): ()| Count::default(),
        |it: Count| Sums { sums: vec![it.count], ..Sums::default() },
    );
    let graph = GraphBuilder::new::<Sums>("outer").node("inner", node);
    let graph = graph.edge(START, "inner").edge("inner", END).compile().unwrap();
    let engine = Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()));
    let end = engine.run(&Sums::default()).await.unwrap();
    let end = engine.resume(&end.run).answer("help", 1).await.unwrap();
    let [open] = end.questions.as_slice() else { panic!("{:?}", end.questions) };
    let end = engine.resume(&end.run).answer(&open.name, 2).await.unwrap();
    assert_eq!(end.status, Status::Failed, "{:?}", end.reason);
    is_broken.store(false, Ordering::Relaxed);
    let end = engine.retry(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "sums"), json!([2]));
}

#[tokio::test]
async fn a_late_answer_fails_the_node_that_asked() {
    let caught = "  finish:";
    let review =
        with(REVIEW, caught, "  late: { set: { text: '\"late\"' }, then: finish }\n  finish:");
    let review = with(&review, "max_visits: 9\n", "max_visits: 9\n    catch: { timeout: late }\n");
    let process = Process::of(ALL, &review, Marked::Asks);
    let storage = Arc::new(InMemoryStorage::default());
    let end = process.engine().with_storage(storage.clone()).run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Paused);
    let later = Clock::new(|| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(61));
    let engine = process.engine().with_clock(later).with_storage(storage);
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!(["late", "b...", "c.."]));
}

#[tokio::test]
async fn a_nested_run_spends_from_the_budget_of_its_run() {
    let process = Process::new(Marked::Works);
    let end = process.engine().run(parts()).await.unwrap();
    assert_eq!(end.position.used.usage.tokens.calls, 6);
    assert_eq!(end.position.used.usage.cost_usd, Some(1.5));
    let limits = Limits { usd: Some(0.6), concurrency: 1, ..Limits::default() };
    let storage = Arc::new(InMemoryStorage::default());
    let engine = process.engine().with_storage(storage);
    let end = engine.clone().with_limits(limits).run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Limit, "{:?}", end.reason);
    process.did();
    let first = end.position.used.usage.tokens.calls;
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(first, 0, "no step was committed before the limit");
    assert_eq!(end.position.used.usage.tokens.calls, 6, "no call was repeated");
}

#[tokio::test]
async fn the_limits_of_the_used_file_hold_for_each_item() {
    let review = with(REVIEW, "start: improve", "limits: { steps: 3 }\nstart: improve");
    let process = Process::of(ALL, &review, Marked::Works);
    let end = process.engine().run(parts()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let reason = end.reason.unwrap();
    assert!(reason.contains("its workflow reached a limit"), "{reason}");
}

#[tokio::test]
async fn the_limits_of_a_used_file_hold_for_each_call() {
    let all = "
graphrun: 1
name: twice
state:
  word: string
  results: { type: '[string]', merge: append, default: [] }
input: word
start: review
nodes:
  review:
    use: { workflow: review.yaml, in: { text: word, wanted: '4' }, out: { results: result } }
    max_visits: 2
    exhausted: end
    catch: { limit: sorry }
    then: extend
  extend: { set: { word: 'word + \"x\"' }, then: review }
  sorry: { set: { results: 'word + \" is too short\"' }, then: end }
";
    let run = async |all: &str, review: &str, word: &str| {
        let process = Process::of(all, review, Marked::Works);
        let input = Update::of(&json!({"word": word})).unwrap();
        let end = process.engine().run(input).await.unwrap();
        assert_eq!(end.status, Status::Done, "{:?}", end.reason);
        list(&end, "results")
    };
    let limited = with(REVIEW, "start: improve", "limits: { steps: 3 }\nstart: improve");
    // Both calls together have more steps than the limit.
    assert_eq!(run(all, &limited, "ab").await, json!(["ab..", "abx."]));
    assert_eq!(run(all, &limited, "a").await, json!(["a is too short"]));
    let ended = with(&limited, "steps: 3 }", "steps: 3, exhausted: finish }");
    assert_eq!(run(all, &ended, "a").await, json!(["a...", "ax.."]));
    let part = with(all, "review.yaml, in:", "review.yaml, nested: false, in:");
    let part = with(&part, "catch: { limit: sorry }", "catch: { any: sorry }");
    assert_eq!(run(&part, &limited, "a").await, json!(["a...", "ax.."]));
}

#[tokio::test]
async fn watchers_see_the_tasks_of_nested_runs() {
    let process = Process::new(Marked::Works);
    let storage = Arc::new(InMemoryStorage::default());
    let mut sink = EventSink::default();
    let mut events = sink.subscribe();
    let engine = process.engine().with_storage(storage.clone());
    let end = engine.run(parts()).with_events(sink).await.unwrap();
    let nested = |event: &Event| match event {
        Event::TaskReported { node, report: Report::Nested { event }, .. } => {
            assert_eq!(node.as_str(), "review");
            Some(Event::clone(event))
        }
        Event::MemoSaved { name, .. } => panic!("{name}"),
        _ => None,
    };
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        seen.extend(nested(&event.event));
    }
    let finished = |event: &&Event| matches!(event, Event::TaskFinished { node, .. } if node.as_str() == "review.finish");
    assert_eq!(seen.iter().filter(finished).count(), 3);
    let saved = storage.events(&end.run, 0).await.unwrap();
    assert_eq!(saved.iter().filter_map(|it| nested(&it.event)).collect::<Vec<_>>(), seen);
}

#[tokio::test]
async fn maps_over_uses_can_be_within_each_other() {
    let outer = "
graphrun: 1
name: outer
types: { Part: { text: string, wanted: int } }
state:
  groups: '[[Part]]'
  results: { type: '[[string]]', merge: append, default: [] }
input: groups
start: each
nodes:
  each: { map: { over: groups, as: group, do: all }, then: end }
  all: { use: { workflow: inner.yaml, in: { parts: group }, out: { results: results } } }
";
    let process = {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("inner.yaml"), ALL).unwrap();
        fs::write(folder.path().join("review.yaml"), REVIEW).unwrap();
        fs::write(folder.path().join("outer.yaml"), outer).unwrap();
        let did: Arc<Mutex<Vec<String>>> = Arc::default();
        let improve = node_fn(|Text { text }: Text, _: NodeContext| async move {
            Ok::<_, NodeError>(Improved { log: Vec::new(), text: text + "." })
        });
        let finish = node_fn(|Text { text }: Text, _: NodeContext| async move {
            Ok::<_, NodeError>(Finished { result: text })
        });
        let registry =
            registry().node("improve", Arc::new(improve)).node("finish", Arc::new(finish));
        let (workflow, _) = load(&folder.path().join("outer.yaml"), &registry)
            .unwrap_or_else(|it| panic!("{it:?}"));
        let factory = factory(Services::offline(), registry);
        let graph = compile(workflow.into_graph(&factory)).unwrap_or_else(|it| panic!("{it}"));
        Process { _folder: folder, graph, did, hangs: Arc::default() }
    };
    let part = |text: &str| json!({"text": text, "wanted": 3});
    let input = json!({"groups": [[part("a"), part("b")], [part("c")]]});
    let end = process.engine().run(Update::of(&input).unwrap()).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!([["a..", "b.."], ["c.."]]));
    // The result of a group without parts is one of the results, too.
    let input = json!({"groups": [[], [part("c")], []]});
    let end = process.engine().run(Update::of(&input).unwrap()).await.unwrap();
    assert_eq!(list(&end, "results"), json!([[], ["c.."], []]), "{:?}", end.reason);
}

#[tokio::test]
async fn each_call_of_a_nested_use_is_a_run() {
    let all = "
graphrun: 1
name: twice
state:
  word: string
  results: { type: '[string]', merge: append, default: [] }
input: word
start: [review, extend]
nodes:
  extend: { set: { word: 'word + \"x\"' }, then: review }
  review:
    use: { workflow: review.yaml, nested: true, in: { text: word, wanted: '3' }, out: { results: result } }
    retry: { attempts: 2, initial: 1ms }
    timeout: 1m
    max_visits: 2
    exhausted: end
    then: end
";
    let process = Process::of(all, REVIEW, Marked::FailsOnce);
    let input = Update::of(&json!({"word": "a!"})).unwrap();
    let end = process.engine().run(input).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(list(&end, "results"), json!(["a!.", "a!x."]), "one call a step");
    let short = all.replace("timeout: 1m\n", "timeout: 100ms\n");
    let process = Process::of(&short, REVIEW, Marked::Hangs);
    let input = Update::of(&json!({"word": "a!"})).unwrap();
    let end = process.engine().run(input).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    assert!(end.reason.as_ref().unwrap().contains("not finished within"), "{:?}", end.reason);
    let plain = all.replace("nested: true, ", "");
    let plain = plain.replace("    retry: { attempts: 2, initial: 1ms }\n    timeout: 1m\n", "");
    assert!(plain.contains("review.yaml, in:"));
    let refused = std::panic::catch_unwind(|| Process::of(&plain, REVIEW, Marked::Works));
    let refused = refused.err().unwrap();
    let refused = refused.downcast_ref::<String>().unwrap();
    assert!(refused.contains("GR133") && refused.contains("nested: true"), "{refused}");
}

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Count {
    #[serde(default)]
    count: u32,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Sums {
    #[serde(default)]
    numbers: Vec<u32>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    sums: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct Summed {
    sums: Vec<u32>,
}

/// A graph that adds one to a count, `times` times.
fn adder(times: u32) -> CompiledGraph {
    let add = |input: Count| async move { Ok::<_, NodeError>(Count { count: input.count + 1 }) };
    let is_enough = move |it: &Count| if it.count % 10 >= times { END } else { "add" };
    GraphBuilder::new::<Count>("adder")
        .node("add", graphrun::graph::NodeFn::new(add))
        .edge(START, "add")
        .route("add", ["add", END], is_enough)
        .max_visits("add", 9, END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"))
}

#[tokio::test]
async fn a_graph_is_a_node_and_takes_dispatches() {
    let sums = |it: Count| Summed { sums: vec![it.count] };
    let graph = GraphBuilder::new::<Sums>("sums")
        .node("sum", subgraph(adder(3), |Item(count): Item<u32>| Count { count }, sums))
        .node("last", subgraph(adder(2), |(): ()| Count { count: 90 }, sums))
        .route(START, ["sum"], |sums: &Sums| {
            sums.numbers.iter().map(|it| dispatch("sum", it)).collect::<Vec<_>>()
        })
        .edge("sum", "last")
        .edge("last", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let engine = Engine::new(graph);
    let end = engine.run(&Sums { numbers: vec![10, 20, 31], sums: Vec::new() }).await.unwrap();
    assert_eq!(end.output::<Sums>().unwrap().sums, [13, 23, 33, 92]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_reaches_the_runs_within_a_run() {
    let stop = ShutdownHandle::default();
    let did = Arc::<Mutex<Vec<String>>>::default();
    let work = |does_stop: bool| {
        let stop = stop.clone();
        let did = Arc::clone(&did);
        node_fn(move |Count { count }: Count, ctx: NodeContext| {
            let stop = stop.clone();
            let did = Arc::clone(&did);
            async move {
                if does_stop {
                    stop.drain();
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                did.lock().unwrap().push(ctx.node.to_string());
                Ok::<_, NodeError>(Count { count: count + 1 })
            }
        })
    };
    let inner = GraphBuilder::new::<Count>("inner")
        .node("first", work(true))
        .node("second", work(false))
        .edge(START, "first")
        .edge("first", "second")
        .edge("second", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let middle = GraphBuilder::new::<Count>("middle")
        .node("inner", subgraph(inner, |it: Count| it, |it: Count| it))
        .edge(START, "inner")
        .edge("inner", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let sums = |it: Count| Summed { sums: vec![it.count] };
    let graph = GraphBuilder::new::<Sums>("outer")
        .node("middle", subgraph(middle, |(): ()| Count { count: 40 }, sums))
        .edge(START, "middle")
        .edge("middle", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(storage.clone());
    let start = tokio::time::Instant::now();
    let end = engine.run(&Sums::default()).with_shutdown(&stop).await.unwrap();
    assert_eq!((end.status, start.elapsed().as_secs()), (Status::Interrupted, 1));
    assert_eq!(*did.lock().unwrap(), ["first"], "it finishes, and nothing follows");

    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!(end.output::<Sums>().unwrap().sums, [42]);
    assert_eq!(*did.lock().unwrap(), ["first", "second"]);
    assert_eq!(attempts(&storage.records(&end.run).await.unwrap()), [1], "a stop is no failure");
}

/// Starts a graph with a node `inner`, which runs a graph of one node.
fn outer_of<F, Marker: 'static>(function: F) -> GraphBuilder
where
    F: graphrun::graph::NodeFunction<Marker>,
{
    let inner = GraphBuilder::new::<Count>("one")
        .node("fails", graphrun::graph::NodeFn::new(function))
        .edge(START, "fails")
        .edge("fails", END)
        .compile()
        .unwrap();
    let node = subgraph(inner, |(): ()| Count::default(), |_: Count| ());
    GraphBuilder::new::<Sums>("outer").node("inner", node)
}

#[tokio::test]
async fn the_failure_of_a_nested_task_keeps_its_kind() {
    let fails =
        || async { Err::<(), NodeError>(Failure::new(ErrorKind::Refused, "no such thing").into()) };
    let graph = outer_of(fails)
        .node("caught", || async { Ok::<_, NodeError>(Summed { sums: vec![7] }) })
        .edge(START, "inner")
        .edge("inner", END)
        .catch("inner", ErrorKind::Refused, "caught")
        .edge("caught", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    let end = Engine::new(graph).run(&()).await.unwrap();
    assert_eq!(end.output::<Sums>().unwrap().sums, [7]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_in_a_nested_run_is_retried_there_only() {
    let calls = Arc::new(AtomicUsize::new(0));
    let fails = {
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::Relaxed);
            let failure = Failure::new(ErrorKind::Provider, "the server is busy");
            async move { Err::<(), NodeError>(Failure { transient: true, ..failure }.into()) }
        }
    };
    let graph = outer_of(fails).edge(START, "inner").edge("inner", END).compile().unwrap();
    let end = Engine::new(graph).run(&()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    assert_eq!(calls.load(Ordering::Relaxed), 6, "{:?}", end.reason);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_suspended_while_a_nested_run_waits() {
    let calls = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(Mutex::new(Timestamp::UNIX_EPOCH));
    let busy_once = {
        let calls = Arc::clone(&calls);
        move || {
            let is_busy = calls.fetch_add(1, Ordering::Relaxed) == 0;
            let failure = Failure::new(ErrorKind::RateLimit, "too many requests");
            let busy = Failure { transient: true, retry_after_ms: Some(3_600_000), ..failure };
            async move { if is_busy { Err(NodeError::from(busy)) } else { Ok(()) } }
        }
    };
    let inner = outer_of(busy_once).edge(START, "inner").edge("inner", END).compile().unwrap();
    // Two levels: the innermost task waits.
    let node = subgraph(inner, |(): ()| Sums::default(), |_: Sums| Summed { sums: vec![1] });
    let graph = GraphBuilder::new::<Sums>("outermost").node("outer", node);
    let graph = graph.edge(START, "outer").edge("outer", END).compile().unwrap();
    let clock = {
        let now = Arc::clone(&now);
        Clock::new(move || *now.lock().unwrap())
    };
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph)
        .with_storage(storage.clone())
        .with_clock(clock)
        .with_wait_max(Duration::from_secs(60));
    let begun = tokio::time::Instant::now();
    let end = engine.run(&Sums::default()).await.unwrap();
    assert_eq!(end.status, Status::Paused, "{:?}", end.reason);
    let reason = end.reason.unwrap();
    assert!(reason.starts_with("`outer` waits until 1970-01-01T01:00:0"), "{reason}");
    assert!(reason.ends_with("too many requests"), "{reason}");
    assert_eq!(begun.elapsed(), Duration::ZERO, "it does not wait in the process");
    // A run that is resumed too early waits further, and calls nothing.
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!((end.status, calls.load(Ordering::Relaxed)), (Status::Paused, 1));
    *now.lock().unwrap() += SignedDuration::from_secs(3_700);
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!((end.status, calls.load(Ordering::Relaxed)), (Status::Done, 2), "{:?}", end.reason);
    assert_eq!(end.output::<Sums>().unwrap().sums, [1]);
    assert_eq!(attempts(&storage.records(&end.run).await.unwrap()), [1], "no attempt has failed");
}

/// Returns the numbers of the attempts that a run has begun.
fn attempts(records: &[TaskRecord]) -> Vec<u32> {
    let is_failed = |it: &&TaskRecord| matches!(it.outcome, Outcome::Retrying { .. });
    assert_eq!(records.iter().find(is_failed), None);
    Vec::from_iter(records.iter().map(|it| it.attempt).collect::<BTreeSet<_>>())
}

/// Returns a graph with so many levels of other graphs within it. The innermost one keeps a deep value and asks.
fn nested_graph(levels: usize) -> Result<CompiledGraph, String> {
    async fn asks(ctx: NodeContext) -> Result<Summed, NodeError> {
        let deep = (0..60).fold(json!(1), |it, _| json!([it]));
        let kept: Value = ctx.memo("deep", async { Ok::<_, NodeError>(deep.clone()) }).await?;
        assert_eq!(kept, deep);
        Ok(Summed { sums: vec![ctx.ask(Question::new("sum", "Which sum?"))?] })
    }
    let innermost = GraphBuilder::new::<Sums>("innermost").node("asks", asks);
    let mut graph = innermost.edge(START, "asks").edge("asks", END).compile().unwrap();
    for _ in 0..levels {
        let node =
            subgraph(graph, |(): ()| Sums::default(), |inner: Sums| Summed { sums: inner.sums });
        let outer = GraphBuilder::new::<Sums>("outer").node("inner", node);
        let outer = outer.edge(START, "inner").edge("inner", END);
        graph = outer.compile().map_err(|it| it.to_string())?;
    }
    Ok(graph)
}

/// Each level saves its entries within those of the level around it, and they are read again.
#[tokio::test]
async fn graphs_nest_as_deep_as_the_limit_and_compile_refuses_more() {
    let refused = nested_graph(NESTED_LEVELS_MAX + 1).unwrap_err();
    let expected = "GR055: `inner`: it has 33 levels of graphs within it, and at most 32 are";
    assert!(refused.contains(expected), "{refused}");
    let folder = TempDir::new().unwrap();
    let storage: Arc<dyn Checkpointer> =
        Arc::new(SqliteStorage::open(folder.path().join("runs.db")).unwrap());
    let engine = Engine::new(nested_graph(NESTED_LEVELS_MAX).unwrap()).with_storage(storage);
    let paused = engine.run(&Sums::default()).await.unwrap();
    assert_eq!(paused.status, Status::Paused, "{:?}", paused.reason);
    let end = engine.resume(&paused.run).answer(&*paused.questions[0].name, 7).await.unwrap();
    assert_eq!(end.output::<Sums>().unwrap().sums, [7]);
}

/// The types of the functions around a graph are those of its input and its result.
#[test]
fn what_goes_into_a_graph_and_comes_out_of_it_is_checked() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Other {
        other: Option<u32>,
    }
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Misread {
        count: Vec<String>,
    }
    async fn nothing() -> Result<(), NodeError> {
        Ok(())
    }
    let inner = || {
        #[derive(Serialize, Deserialize, JsonSchema)]
        struct Inner {
            count: u32,
        }
        let graph = GraphBuilder::new::<Inner>("inner").node("a", nothing).input("count");
        graph.edge(START, "a").edge("a", END).compile().unwrap()
    };
    let count = |(): ()| Count { count: 1 };
    let all = [
        (
            subgraph(inner(), |(): ()| (), |_: Count| ()),
            "GR071: `n`: its graph needs the input `count`",
        ),
        (
            subgraph(inner(), |(): ()| Other::default(), |_: Count| ()),
            "GR072: `n`: its graph has no field `other` for the input",
        ),
        (
            subgraph(inner(), count, |_: Other| ()),
            "GR072: `n`: its graph has no field `other` for the result",
        ),
        (
            subgraph(inner(), |(): ()| Misread::default(), |_: Count| ()),
            "GR022: `n`: the input of its graph writes `count` as `[string]`",
        ),
        (
            subgraph(inner(), count, |_: Misread| ()),
            "GR022: `n`: the result of its graph reads `count` as `[string]`",
        ),
    ];
    for (node, expected) in all {
        let graph = GraphBuilder::new::<Sums>("outer").node("n", node);
        let refused = graph.edge(START, "n").edge("n", END).compile().unwrap_err().to_string();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    let graph =
        GraphBuilder::new::<Sums>("outer").node("n", subgraph(inner(), count, |_: Count| ()));
    assert!(graph.edge(START, "n").edge("n", END).compile().is_ok());
}
