//! Workflows three levels within another one: their questions, failures, history and crashes are
//! those of the whole run.

mod items;
mod people;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::disturbed::Disturbed;
use graphrun::{
    checkpoint::{
        AskedQuestion, Checkpointer, ForkSource, QuestionOutcome, RunInfo, SavedCheckpoint,
        asked_questions,
    },
    compile::{CompiledGraph, compile},
    engine::{Answers, Engine, RunEnd, RunError, ShutdownHandle, failures},
    event::Status,
    graph::{NodeContext, NodeError, node_fn},
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    nodes::{Services, factory},
    registry,
    state::Update,
    storage::{InMemoryStorage, SqliteStorage, prove},
    workflow::load,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::Notify, time::sleep};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
}

/// What the node `fragile` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragile {
    Works,
    Fails,
    /// It never ends.
    Hangs,
}

/// A process with nodes that note, outside the engine, which tasks they did.
struct Process {
    graph: CompiledGraph,
    done: Arc<Mutex<Vec<(TaskId, String)>>>,
    /// Told when `fragile` hangs.
    hangs: Arc<Notify>,
}

impl Process {
    fn new(workflow: &str, fragile: Fragile) -> Self {
        let done: Arc<Mutex<Vec<(TaskId, String)>>> = Arc::default();
        let hangs = Arc::new(Notify::new());
        let node = |does: Fragile| {
            let done = Arc::clone(&done);
            let hangs = Arc::clone(&hangs);
            Arc::new(node_fn(move |_: Nothing, ctx: NodeContext| {
                let done = Arc::clone(&done);
                let hangs = Arc::clone(&hangs);
                async move {
                    if does == Fragile::Hangs {
                        hangs.notify_one();
                        std::future::pending::<()>().await;
                    }
                    // Those of one step end, and are saved, one after the other.
                    sleep(Duration::from_millis(20) * ctx.task.index).await;
                    done.lock().unwrap().push((ctx.task, ctx.node.to_string()));
                    if does == Fragile::Fails {
                        return Err(NodeError::permanent("it is broken"));
                    }
                    Ok(Noted { notes: vec![ctx.node.to_string()] })
                }
            }))
        };
        let registry = registry().node("work", node(Fragile::Works)).node("fragile", node(fragile));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nested");
        let (workflow, warnings) =
            load(&folder.join(workflow), &registry).unwrap_or_else(|it| panic!("{it}"));
        assert!(warnings.is_empty(), "{warnings}");
        let factory = factory(Services::offline(), registry);
        let compiled = compile(workflow.into_graph(&factory));
        let graph = compiled.unwrap_or_else(|it| panic!("{it}"));
        assert!(graph.warnings().is_empty(), "{}", graph.warnings());
        Self { graph, done, hangs }
    }

    fn engine(&self, storage: &Arc<dyn Checkpointer>) -> Engine {
        Engine::new(self.graph.clone()).with_storage(Arc::clone(storage))
    }

    async fn start(&self, storage: &Arc<dyn Checkpointer>) -> Result<RunEnd, RunError> {
        let info = RunInfo { id: run(), ..RunInfo::new("top") };
        let input = Update::of(&json!({"topic": "a poem"})).unwrap();
        self.engine(storage).run(input).with_info(info).await
    }

    async fn resume(
        &self,
        storage: &Arc<dyn Checkpointer>,
        run: &RunId,
        answer: Option<&str>,
    ) -> Result<RunEnd, RunError> {
        let by_name: BTreeMap<_, _> =
            answer.map(|it| (ASK.to_owned(), json!(it))).into_iter().collect();
        let answers = Answers { by_name, by: Some("ann".to_owned()) };
        let engine = self.engine(storage);
        engine.resume(run).with_answers(answers).await
    }

    /// The nodes that did their work, in the order of their tasks.
    fn did(&self) -> Vec<String> {
        let mut done = self.done.lock().unwrap().clone();
        done.sort();
        done.into_iter().map(|(_, node)| node).collect()
    }

    fn tasks(&self) -> BTreeSet<(TaskId, String)> {
        self.done.lock().unwrap().iter().cloned().collect()
    }
}

/// A database that is opened anew by each process.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    fn open(&self) -> Arc<dyn Checkpointer> {
        Arc::new(SqliteStorage::open(self.path()).unwrap())
    }
}

/// The question and its node, as the whole run calls them.
const ASK: &str = "middle.inner.deepest.ask";
const FRAGILE: &str = "middle.inner.deepest.fragile";
/// What the names of all that is third within begin with.
const DEEPEST: &str = "middle.inner.deepest.";

fn run() -> RunId {
    RunId::parse("r").unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse_path(name).unwrap()
}

/// The steps of an undisturbed run, one line each.
const STEPS: [&str; 13] = [
    "a middle",
    "b middle.inner",
    "c middle.inner.deepest",
    "d middle.inner.deepest.first",
    "e middle.inner.deepest.fragile middle.inner.deepest.sound",
    "middle.inner.deepest.ask",
    "middle.inner.deepest.last",
    "middle.inner.deepest.end",
    "middle.inner.after",
    "middle.inner.end",
    "middle.after",
    "middle.end",
    "after",
];

/// The nodes that do their work once the question is answered.
const ONCE_ANSWERED: [&str; 4] =
    ["middle.inner.deepest.last", "middle.inner.after", "middle.after", "after"];

/// The end of an undisturbed run.
fn usual() -> (Status, Value, Value) {
    let beside = ["a", "b", "c", "d", "e"].map(str::to_owned);
    let deepest = ["first", "fragile", "sound"].map(|it| format!("{DEEPEST}{it}"));
    let after = ONCE_ANSWERED.map(str::to_owned);
    let notes = [beside.as_slice(), &deepest, &after].concat();
    (Status::Done, json!("good"), json!(notes))
}

fn ended(end: &RunEnd) -> (Status, Value, Value) {
    let field = |name| end.state.get(name).cloned().unwrap_or_default();
    (end.status, field("verdict"), field("notes"))
}

/// The nodes of the records of a run, a line for each step.
async fn steps(storage: &dyn Checkpointer, run: &RunId) -> Vec<String> {
    let mut steps: BTreeMap<Step, BTreeSet<String>> = BTreeMap::new();
    for record in storage.records(run).await.unwrap() {
        steps.entry(record.task.step).or_default().insert(record.node.to_string());
    }
    steps.into_values().map(|it| Vec::from_iter(it).join(" ")).collect()
}

/// The tasks that never run again.
async fn finished(storage: &dyn Checkpointer) -> BTreeSet<TaskId> {
    let records = storage.records(&run()).await.unwrap();
    records.iter().filter(|it| it.outcome.is_final()).map(|it| it.task).collect()
}

async fn asked(storage: &dyn Checkpointer, run: &RunId) -> Vec<AskedQuestion> {
    asked_questions(&storage.journal(run).await.unwrap())
}

#[tokio::test]
async fn a_nested_question_is_answered_by_another_process() {
    let place = Place::new();
    {
        let first = Process::new("top.yaml", Fragile::Works);
        let storage = place.open();
        let end = first.start(&storage).await.unwrap();
        assert_eq!((end.status, end.state.get("verdict")), (Status::Paused, None));
        let [open] = end.questions.as_slice() else { panic!("one question: {:?}", end.questions) };
        assert_eq!((open.node.as_str(), open.name.as_str()), (ASK, ASK));
        assert_eq!(open.question.prompt, "Is a poem good?");
    }
    let next = Process::new("top.yaml", Fragile::Works);
    let storage = place.open();
    let wrong = next.resume(&storage, &run(), Some("perhaps")).await.unwrap_err();
    assert!(matches!(wrong, RunError::WrongAnswer { .. }), "{wrong}");
    let end = next.resume(&storage, &run(), Some("good")).await.unwrap();
    assert_eq!(ended(&end), usual());
    assert_eq!(next.did(), ONCE_ANSWERED, "finished tasks do not run again");

    let asked = asked(storage.as_ref(), &run()).await;
    let [asked] = asked.as_slice() else { panic!("it is asked once: {asked:?}") };
    let by_ann =
        matches!(&asked.outcome, QuestionOutcome::Answered { by: Some(by), .. } if by == "ann");
    assert!(asked.node.as_str() == ASK && by_ann, "{asked:?}");
    let late = next.resume(&storage, &run(), Some("bad")).await.unwrap_err();
    assert!(matches!(late, RunError::Closed { .. }), "{late}");
}

#[tokio::test]
async fn a_nested_failure_keeps_its_siblings_at_every_level() {
    let place = Place::new();
    let storages: [Arc<dyn Checkpointer>; 2] = [place.open(), Arc::new(InMemoryStorage::default())];
    for storage in storages {
        let first = Process::new("top.yaml", Fragile::Fails);
        let end = first.start(&storage).await.unwrap();
        assert_eq!(end.status, Status::Failed);
        assert!(end.reason.is_some_and(|it| it.contains(FRAGILE)));
        let saved = storage.load(&run()).await.unwrap();
        let failed = failures(&saved.records);
        let failed: Vec<&str> = failed.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(failed, [FRAGILE]);

        let again = Process::new("top.yaml", Fragile::Works);
        let engine = again.engine(&storage);
        let stop = ShutdownHandle::default();
        let sound = NodeName::parse_path("middle.inner.deepest.sound").unwrap();
        let refused = engine.retry(&run()).only(sound.clone()).with_shutdown(&stop).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, RunError::NothingFailed { .. }), "{refused}");
        let fragile = NodeName::parse_path(FRAGILE).unwrap();
        let end = engine.retry(&run()).only(fragile.clone()).with_shutdown(&stop).await.unwrap();
        assert_eq!(end.status, Status::Paused);
        assert_eq!(again.did(), [FRAGILE], "nothing but what failed");
        let before = first.did();
        for beside in ["e", "middle.inner.deepest.sound", FRAGILE] {
            assert_eq!(before.iter().filter(|it| *it == beside).count(), 1, "{before:?}");
        }
        let end = again.resume(&storage, &run(), Some("good")).await.unwrap();
        assert_eq!(ended(&end), usual());
        assert_eq!(steps(storage.as_ref(), &run()).await, STEPS);
    }
}

#[tokio::test]
async fn a_run_that_failed_three_levels_within_is_resumed_there() {
    let place = Place::new();
    let first = Process::new("top.yaml", Fragile::Fails);
    assert_eq!(first.start(&place.open()).await.unwrap().status, Status::Failed);
    let again = Process::new("top.yaml", Fragile::Works);
    let storage = place.open();
    assert_eq!(again.resume(&storage, &run(), None).await.unwrap().status, Status::Paused);
    assert_eq!(again.did(), [FRAGILE]);
    let end = again.resume(&storage, &run(), Some("good")).await.unwrap();
    assert_eq!(ended(&end), usual());
}

#[tokio::test]
async fn a_failure_three_levels_within_is_caught_two_levels_above_it() {
    let place = Place::new();
    let process = Process::new("careful.yaml", Fragile::Fails);
    let storage = place.open();
    let end = process.start(&storage).await.unwrap();
    let notes = json!(["a", "b", "c", "d", "e", "sorry", "middle.after", "after"]);
    assert_eq!(ended(&end), (Status::Done, json!("bad"), notes));
    let after = ["middle.sorry", "middle.after", "middle.end", "after"];
    let steps = steps(storage.as_ref(), &run()).await;
    assert_eq!(steps[..5], STEPS[..5]);
    assert_eq!(steps[5..], after, "neither a question nor the ends of what failed");

    // Where nothing fails, nothing is caught.
    let place = Place::new();
    let sound = Process::new("careful.yaml", Fragile::Works);
    let storage = place.open();
    assert_eq!(sound.start(&storage).await.unwrap().status, Status::Paused);
    let end = sound.resume(&storage, &run(), Some("good")).await.unwrap();
    assert_eq!(ended(&end), usual());
}

/// The field `notes` of each level after a step, from the top down.
async fn notes_at(storage: &dyn Checkpointer, step: u64) -> [Vec<String>; 4] {
    let SavedCheckpoint { position, values } =
        storage.checkpoint_at(&run(), Step(step)).await.unwrap();
    assert_eq!(position.step, Step(step));
    ["notes", "middle.notes", "middle.inner.notes", "middle.inner.deepest.notes"].map(|name| {
        let notes = values[&channel(name)].as_array().unwrap().iter();
        notes.map(|it| it.as_str().unwrap().replace(DEEPEST, "")).collect()
    })
}

#[tokio::test]
async fn the_history_contains_inner_nodes_and_fields() {
    let place = Place::new();
    let process = Process::new("top.yaml", Fragile::Works);
    let storage = place.open();
    process.start(&storage).await.unwrap();
    process.resume(&storage, &run(), Some("good")).await.unwrap();
    let storage = place.open();
    assert_eq!(steps(storage.as_ref(), &run()).await, STEPS);

    let at = async |step| notes_at(storage.as_ref(), step).await.map(|it| it.join(" "));
    assert_eq!(at(3).await, ["a b c", "", "", ""]);
    assert_eq!(at(4).await, ["a b c d", "", "", "first"]);
    assert_eq!(at(5).await, ["a b c d e", "", "", "first fragile sound"]);
    let deepest = "first fragile sound last";
    let top = "a b c d e";
    assert_eq!(at(7).await, [top, "", "", deepest]);
    assert_eq!(at(8).await, [top, "", deepest, deepest], "its end gives them to the one outside");
    let inner = format!("{deepest} middle.inner.after");
    assert_eq!(at(10).await, [top, &inner, &inner, deepest]);
    let middle = format!("{inner} middle.after");
    assert_eq!(at(12).await, [&format!("{top} {middle}"), &middle, &inner, deepest]);

    let verdict = channel("middle.inner.deepest.verdict");
    for (step, is_there) in [(5, false), (6, true)] {
        let values = storage.values_at(&run(), Step(step)).await.unwrap();
        assert_eq!(values.contains_key(&verdict), is_there, "after step {step}");
    }
    prove(storage.as_ref(), &run(), None).await.unwrap();
}

#[tokio::test]
async fn a_fork_inside_a_used_workflow_ends_the_same() {
    let place = Place::new();
    let process = Process::new("top.yaml", Fragile::Works);
    let storage = place.open();
    process.start(&storage).await.unwrap();
    process.resume(&storage, &run(), Some("good")).await.unwrap();
    let saved = async || {
        let journal = storage.journal(&run()).await.unwrap();
        let loaded = storage.load(&run()).await.unwrap();
        format!("{journal:?} {loaded:?}")
    };
    let before = saved().await;

    // After `first`, and with another topic after the last step before the question.
    let topic = (channel("middle.inner.deepest.topic"), Some(json!("a song")));
    let forks = [(4, None, "Is a poem good?"), (5, Some(topic), "Is a song good?")];
    for (step, set, prompt) in forks {
        let next = Process::new("top.yaml", Fragile::Works);
        let info = RunInfo::new("top");
        let fork = info.id.clone();
        let from = ForkSource { run: run(), name: "r".into(), step: Step(step) };
        next.engine(&storage).fork(info, from, set.into_iter().collect()).await.unwrap();
        let end = next.resume(&storage, &fork, None).await.unwrap();
        assert_eq!(
            (end.status, end.questions[0].question.prompt.as_str()),
            (Status::Paused, prompt)
        );
        let end = next.resume(&storage, &fork, Some("good")).await.unwrap();
        assert_eq!(ended(&end), usual());
        let left = STEPS.iter().skip(usize::try_from(step).unwrap());
        assert_eq!(steps(storage.as_ref(), &fork).await, left.copied().collect::<Vec<_>>());
        assert_eq!(asked(storage.as_ref(), &fork).await.len(), 1);
        prove(storage.as_ref(), &fork, None).await.unwrap();
    }
    assert_eq!(saved().await, before);
}

/// If the process dies at any write, another one runs the remaining tasks, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_crash_inside_a_used_workflow_repeats_no_finished_task() {
    let whole = Process::new("top.yaml", Fragile::Works);
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    whole.start(&storage).await.unwrap();
    whole.resume(&storage, &run(), Some("good")).await.unwrap();

    let mut within = 0;
    let mut half_done = 0;
    for writes in 1.. {
        let place = Place::new();
        let first = Process::new("top.yaml", Fragile::Works);
        let dying: Arc<dyn Checkpointer> = Arc::new(Disturbed::dying_after(writes, place.open()));
        let died = match first.start(&dying).await {
            Ok(_) => first.resume(&dying, &run(), Some("good")).await.err(),
            Err(error) => Some(error),
        };
        if died.is_none() {
            break;
        }
        drop(dying);
        let next = Process::new("top.yaml", Fragile::Works);
        let storage = place.open();
        let saved = storage.load(&run()).await.unwrap();
        let mut frontier = saved.position.frontier.iter();
        if frontier.any(|it| it.node.as_str().starts_with(DEEPEST)) {
            within += 1;
            half_done += usize::from(saved.records.iter().any(|it| it.outcome.is_final()));
        }
        let finished = finished(storage.as_ref()).await;
        let mut end = next.resume(&storage, &run(), None).await.unwrap();
        if end.status == Status::Paused {
            end = next.resume(&storage, &run(), Some("good")).await.unwrap();
        }
        assert_eq!(ended(&end), usual(), "after {writes} writes");
        let left = whole.tasks().into_iter().filter(|(task, _)| !finished.contains(task));
        assert_eq!(next.tasks(), left.collect(), "after {writes} writes");
        assert_eq!(next.did().len(), next.tasks().len(), "each once, after {writes} writes");
        assert_eq!(steps(storage.as_ref(), &run()).await, STEPS, "after {writes} writes");
        prove(storage.as_ref(), &run(), None).await.unwrap();
    }
    assert!(within >= 5 && half_done >= 2, "{within} within, {half_done} amid a step: too few");
}

#[tokio::test]
async fn a_dropped_run_repeats_only_the_hanging_inner_node() {
    let place = Place::new();
    let first = Process::new("top.yaml", Fragile::Hangs);
    let storage = place.open();
    let beside_is_saved = async {
        first.hangs.notified().await;
        // Of the fifth step, `e` and `sound` are over.
        let of_the_step = |it: &&TaskId| it.step == Step(5);
        while finished(storage.as_ref()).await.iter().filter(of_the_step).count() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = first.start(&storage) => panic!("it hangs: {end:?}"),
        () = beside_is_saved => (),
    }
    let next = Process::new("top.yaml", Fragile::Works);
    let storage = place.open();
    assert_eq!(next.resume(&storage, &run(), None).await.unwrap().status, Status::Paused);
    assert_eq!(next.did(), [FRAGILE]);
    let end = next.resume(&storage, &run(), Some("good")).await.unwrap();
    assert_eq!(ended(&end), usual());
}

/// The diagnostics about a workflow that uses `inner.yaml`.
fn diagnostics(nodes: &str) -> String {
    let folder = TempDir::new().unwrap();
    let inner = "graphrun: 1\nname: inner\nstate: { y: int }\noutput: y\nstart: a\n\
                 nodes: { a: { set: { y: '2' }, then: end } }\n";
    std::fs::write(folder.path().join("inner.yaml"), inner).unwrap();
    let endless = "graphrun: 1\nname: endless\nstate: { y: int }\noutput: y\nstart: a\n\
                   nodes: { a: { set: { y: '2' }, then: [{ when: y < 9, to: a }, { to: end }] } }\n";
    std::fs::write(folder.path().join("endless.yaml"), endless).unwrap();
    let text = format!(
        "graphrun: 1\nname: outer\nstate: {{ n: '[int]', ys: {{ type: '[int]', merge: append }} }}\n\
         input: n\n{nodes}"
    );
    let path = folder.path().join("outer.yaml");
    std::fs::write(&path, text).unwrap();
    let (workflow, _) = match load(&path, &registry()) {
        Ok(loaded) => loaded,
        Err(graphrun::workflow::LoadError::Invalid(diagnostics)) => return diagnostics.to_string(),
        Err(error) => panic!("{error}"),
    };
    let graph = workflow.into_graph(&factory(Services::offline(), registry()));
    compile(graph).err().map(|it| it.to_string()).unwrap_or_default()
}

#[test]
fn two_calls_of_a_used_workflow_never_meet() {
    let graph = |b: &str, sub: &str| {
        diagnostics(&format!(
            "start: [a, b]\nnodes:\n  a: {{ set: {{ ys: '[1]' }}, then: sub }}\n  b: {{ {b} }}\n  \
             c: {{ set: {{ ys: '[3]' }}, then: sub }}\n  \
             sub: {{ use: {{ workflow: inner.yaml, out: {{ ys: y }} }}, {sub}then: end }}\n"
        ))
    };
    let later = graph("set: { ys: '[2]' }, then: c", "");
    assert!(
        later.contains("GR133: `sub` may start its workflow again while `sub.a` still runs"),
        "{later}"
    );
    // A join makes one call of the two.
    assert_eq!(graph("set: { ys: '[2]' }, then: c", "join: [a, c], "), "");
}

/// The node that uses it is missing then, which is no second mistake.
#[test]
fn only_the_mistake_of_a_nested_run_is_reported() {
    let found = diagnostics(
        "start: sub\nnodes:\n  sub: { use: { workflow: endless.yaml, nested: true, out: { ys: y } }, then: last }\n  \
         last: { set: { ys: '[3]' }, then: end, catch: { any: sub } }\n",
    );
    let codes: Vec<&str> = found.lines().filter(|it| it.starts_with("GR")).collect();
    assert!(matches!(codes[..], [one] if one.contains("the loop `a` has no bound")), "{found}");
}
