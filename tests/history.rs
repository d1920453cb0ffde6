//! Going another way: updates of the state of a run at rest, and new runs from old checkpoints.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, ForkSource, LeaseRequest, Mapping, Presence, RunInfo,
    },
    compile::CompiledGraph,
    engine::{Answers, Engine, ReviseError, RunEnd, RunError, ShutdownHandle},
    event::{Event, EventSink, Report, Status, Usage},
    graph::{
        Bounds, END, GraphBuilder, IntoNode, Limits, NodeContext, NodeError, NodeLimits, Policies,
        Question, START, Target, node_fn,
    },
    id::{ChannelName, NodeName, RunId, Step},
    models::TokenUsage,
    state::Update,
    storage::{InMemoryStorage, prove},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Board {
    brief: Option<String>,
    verdict: Option<String>,
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct Brief {
    brief: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Verdict {
    verdict: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Judged {
    verdict: String,
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn noted(note: &str) -> Noted {
    Noted { notes: vec![note.to_owned()] }
}

/// `plan`, then `qc` beside `ta`, which fails unless there is a brief; then `sse` for both; then
/// `judge`, a person, who sends the run back to `plan` or to its end.
struct Bench {
    storage: Arc<dyn Checkpointer>,
    graph: CompiledGraph,
    /// How often `qc` has run.
    checked: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Self {
        let checked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&checked);
        let note = |_: Nothing, ctx: NodeContext| async move {
            Ok::<_, NodeError>(noted(ctx.node.as_str()))
        };
        let graph = GraphBuilder::new::<Board>("board")
            .node(
                "plan",
                node_fn(note).with_policies(Policies::from(Bounds {
                    max_visits: Some(2),
                    exhausted: Some(Target::End),
                    ..Bounds::default()
                })),
            )
            .node(
                "qc",
                node_fn(move |_: Nothing, _| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    async { Ok::<_, NodeError>(noted("qc")) }
                }),
            )
            .node(
                "ta",
                node_fn(|state: Brief, _| async move {
                    let brief =
                        state.brief.ok_or_else(|| NodeError::permanent("there is no brief"))?;
                    Ok::<_, NodeError>(noted(&format!("ta on {brief}")))
                }),
            )
            .node("sse", node_fn(note))
            .node(
                "judge",
                node_fn(|_: Nothing, ctx: NodeContext| async move {
                    let question = Question::new("verdict", "Is it good?")
                        .with_schema(json!({"type": "string"}));
                    Ok::<_, NodeError>(Judged { verdict: ctx.ask(question)? })
                }),
            )
            .edge(START, "plan")
            .edge("plan", "qc")
            .edge("plan", "ta")
            .edge(["qc", "ta"], "sse")
            .edge("sse", "judge")
            .route("judge", ["plan", "end"], |state: &Verdict| {
                if state.verdict.as_deref() == Some("rework") { "plan" } else { "end" }
            });
        let graph = graph.compile().unwrap();
        Self { storage: Arc::new(InMemoryStorage::default()), graph, checked }
    }

    fn engine(&self) -> Engine {
        Engine::new(self.graph.clone()).with_storage(Arc::clone(&self.storage))
    }

    /// Starts a run, which fails without a brief and asks with one.
    async fn start(&self, brief: Option<&str>) -> RunId {
        let info = RunInfo::new("board");
        let id = info.id.clone();
        let input = brief.map_or_else(Update::default, |it| write("brief", json!(it)));
        self.engine().run(input).with_info(info).await.unwrap();
        id
    }

    async fn resume(&self, run: &RunId) -> RunEnd {
        let events = EventSink::default();
        let stop = ShutdownHandle::default();
        self.engine().resume(run).with_events(events).with_shutdown(&stop).await.unwrap()
    }

    async fn fork(&self, run: &RunId, step: u64, set: &[(&str, Value)]) -> Result<RunId, RunError> {
        let info = RunInfo::new("board");
        let id = info.id.clone();
        let from = ForkSource { run: run.clone(), name: "one".into(), step: Step(step) };
        let set = set.iter().map(|(name, value)| (channel(name), Some(value.clone())));
        self.engine().fork(info, from, set.collect()).await.map(|()| id)
    }

    async fn next(&self, run: &RunId) -> Vec<String> {
        let frontier = self.storage.load(run).await.unwrap().position.frontier;
        frontier.into_iter().map(|it| it.node.to_string()).collect()
    }

    /// All that is saved of a run; it changes whenever something is.
    async fn saved(&self, run: &RunId) -> String {
        let journal = self.storage.journal(run).await.unwrap();
        format!("{journal:?}")
    }
}

fn write(field: &str, value: Value) -> Update {
    Update::default().write(channel(field), value)
}

fn notes(end: &RunEnd) -> Value {
    end.state.get("notes").cloned().unwrap_or_default()
}

#[tokio::test]
async fn an_update_repairs_a_failed_run_and_keeps_finished_tasks() {
    let bench = Bench::new();
    let run = bench.start(None).await;
    assert_eq!(bench.storage.load(&run).await.unwrap().summary.status, Status::Failed);
    let position = bench.engine().update(&run, write("brief", json!("x")), None).await.unwrap();
    assert_eq!((position.step, position.frontier.len()), (Step(2), 1));
    assert_eq!(bench.next(&run).await, ["ta"]);
    let saved = bench.storage.load(&run).await.unwrap();
    assert_eq!(saved.summary.status, Status::Interrupted);
    let end = bench.resume(&run).await;
    assert_eq!(
        (end.status, notes(&end)),
        (Status::Paused, json!(["plan", "qc", "ta on x", "sse"]))
    );
    assert_eq!(bench.checked.load(Ordering::Relaxed), 1, "finished tasks do not run again");
    prove(bench.storage.as_ref(), &run, None).await.unwrap();
}

/// Reports ten tokens of a model.
async fn spend(ctx: &NodeContext) {
    let tokens = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
    let usage = Usage { tokens, cost_usd: None };
    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
}

#[tokio::test]
async fn an_update_keeps_the_usage_of_the_tasks_that_stay() {
    let fails = node_fn(|state: Brief, ctx: NodeContext| async move {
        spend(&ctx).await;
        let brief = state.brief.ok_or_else(|| NodeError::permanent("there is no brief"))?;
        Ok::<_, NodeError>(noted(&brief))
    });
    let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        spend(&ctx).await;
        let question = Question::new("verdict", "Is it good?");
        Ok::<_, NodeError>(Judged { verdict: ctx.ask(question)? })
    });
    let limits = NodeLimits { tokens: Some(100), ..NodeLimits::default() };
    let bounds = Bounds { limits: Some(limits), ..Bounds::default() };
    let graph = GraphBuilder::new::<Board>("board")
        .node("fails", fails.with_policies(Policies::from(bounds)))
        .node("asks", asks)
        .edge(START, "fails")
        .edge(START, "asks")
        .edge("fails", END)
        .edge("asks", END)
        .compile()
        .unwrap();
    let engine = Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()));
    let end = engine.run(&()).await.unwrap();
    assert_eq!((end.status, end.position.used.usage.tokens.calls), (Status::Failed, 0));
    for (updates, calls) in [(1, 2), (2, 2)] {
        let position = engine.update(&end.run, write("brief", json!("x")), None).await.unwrap();
        assert_eq!(position.used.usage.tokens.calls, calls, "after {updates} updates");
        assert_eq!(position.used.node_usage[&name("fails")].usage.tokens.input_tokens, 10);
    }
    let end = engine.resume(&end.run).await.unwrap();
    assert_eq!((end.status, end.position.used.usage.tokens.calls), (Status::Paused, 2));
    let end = engine.resume(&end.run).answer(&end.questions[0].name, "yes").await.unwrap();
    assert_eq!((end.status, end.position.used.usage.tokens.calls), (Status::Done, 5));
}

#[tokio::test]
async fn an_update_in_the_place_of_a_node_goes_where_its_routes_lead() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let judge = name("judge");
    let rework = write("verdict", json!("rework"));
    let position = bench.engine().update(&run, rework, Some(&judge)).await.unwrap();
    assert_eq!(bench.next(&run).await, ["plan"]);
    assert_eq!(position.visits[&name("plan")], 2);
    let records = bench.storage.records(&run).await.unwrap();
    let last = records.last().unwrap();
    assert!(last.node == judge && last.outcome.is_final(), "it is a record of the node: {last:?}");
    let events = bench.storage.events(&run, 0).await.unwrap();
    let told = Event::StateUpdated {
        step: Step(4),
        node: Some(judge.clone()),
        writes: vec!["verdict".into()],
    };
    assert_eq!(events.last().unwrap().event, told);

    let end = bench.resume(&run).await;
    assert_eq!((end.status, end.position.step), (Status::Paused, Step(7)));
    let good = write("verdict", json!("good"));
    let end = bench.engine().update(&run, good, Some(&judge)).await.unwrap();
    assert!(end.frontier.is_empty());
    assert_eq!(bench.storage.load(&run).await.unwrap().summary.status, Status::Done);
}

#[tokio::test]
async fn an_update_that_ends_a_run_keeps_the_limit_that_led_there() {
    async fn note() -> Result<Noted, NodeError> {
        Ok(Noted { notes: vec!["noted".into()] })
    }
    async fn asks(ctx: NodeContext) -> Result<Noted, NodeError> {
        Ok(Noted { notes: vec![ctx.ask(Question::new("note", "Which note?"))?] })
    }
    let limits =
        Limits { steps: 1, exhausted: Some(Target::Node(name("asks"))), ..Limits::default() };
    let graph = GraphBuilder::new::<Board>("limited").node("first", note).node("second", note);
    let graph = graph.node("asks", asks).edge(START, "first").edge("first", "second");
    let graph = graph.edge("second", END).edge("asks", END).limits(limits);
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph.compile().unwrap()).with_storage(Arc::clone(&storage));
    let paused = engine.run(&json!({ "notes": [] })).await.unwrap();
    assert_eq!(paused.status, Status::Paused);
    let by_hand = write("notes", json!(["by hand"]));
    engine.update(&paused.run, by_hand, Some(&name("asks"))).await.unwrap();
    let summary = storage.load(&paused.run).await.unwrap().summary;
    let limit = Some("the limit of 1 step is reached".to_owned());
    assert_eq!((summary.status, summary.reason), (Status::Done, limit));
}

#[tokio::test]
async fn a_finished_run_continues_at_the_targets_of_a_node() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let judge = name("judge");
    bench.engine().update(&run, write("verdict", json!("good")), Some(&judge)).await.unwrap();
    let rework = write("verdict", json!("rework"));
    bench.engine().update(&run, rework.clone(), Some(&judge)).await.unwrap();
    assert_eq!(bench.next(&run).await, ["plan"]);
    let end = bench.resume(&run).await;
    assert_eq!((end.status, end.position.visits[&name("plan")]), (Status::Paused, 2));
    // The loop is bounded for every task in it.
    bench.engine().update(&run, rework, Some(&judge)).await.unwrap();
    assert_eq!(bench.storage.load(&run).await.unwrap().summary.status, Status::Done);
}

#[tokio::test]
async fn an_update_saves_only_the_items_it_appends() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    bench.engine().update(&run, write("notes", json!(["by hand"])), None).await.unwrap();
    let saved = bench.storage.load(&run).await.unwrap();
    let all = json!(["plan", "qc", "ta on x", "sse", "by hand"]);
    assert_eq!(saved.values[&channel("notes")], all);
    let last = bench.storage.journal(&run).await.unwrap().pop().unwrap();
    let changes = serde_json::to_value(last.entry.commit.unwrap().changes).unwrap();
    assert_eq!(changes, json!([{"channel": "notes", "kind": {"appended": ["by hand"]}}]));
    // The question is asked again.
    assert_eq!(bench.resume(&run).await.questions.len(), 1);
}

#[tokio::test]
async fn an_answer_from_before_an_update_is_not_reused() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    bench.engine().update(&run, write("brief", json!("y")), None).await.unwrap();
    let open = bench.resume(&run).await.questions;
    let stale = Answers { by_name: [("verdict".to_owned(), json!("good"))].into(), by: None };
    let engine = bench.engine();
    let events = EventSink::default();
    let refused = engine.resume(&run).with_answers(stale).with_events(events).await.unwrap_err();
    let is_refused = matches!(refused, RunError::Closed { .. } | RunError::UnknownQuestion { .. });
    assert!(is_refused, "{refused}");
    let end = bench.resume(&run).await;
    assert_eq!((end.status, end.questions), (Status::Paused, open));
}

#[tokio::test]
async fn an_update_that_does_not_fit_changes_nothing() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let before = bench.saved(&run).await;
    let engine = bench.engine();
    let refused = async |update: Update, node: Option<&str>| {
        let node = node.map(name);
        match engine.update(&run, update, node.as_ref()).await {
            Err(RunError::Revise(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let wrong = refused(write("notes", json!([1])), None).await;
    assert!(matches!(wrong, ReviseError::State(_)), "{wrong}");
    let unknown = refused(write("verdict", json!("x")), Some("jugde")).await;
    assert_eq!(unknown.to_string(), "there is no node `jugde`; did you mean `judge`?");
    let other = refused(write("verdict", json!("x")), Some("sse")).await;
    assert_eq!(other.to_string(), "`sse` does not run next; the next nodes are `judge`");
    assert_eq!(bench.saved(&run).await, before);
}

#[tokio::test]
async fn a_run_with_an_owner_is_not_updated() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let presence = Presence::new();
    let ttl = Duration::from_secs(60);
    let request = LeaseRequest { owner: presence.owner().clone(), ttl, replaces_fence: None };
    let token = bench.storage.acquire(&run, &request).await.unwrap();
    let engine = bench.engine();
    let update = || engine.update(&run, write("verdict", json!("x")), None);
    let refused = update().await;
    assert!(matches!(refused, Err(RunError::Checkpoint(CheckpointError::Owned { .. }))));
    bench.storage.release(&token).await.unwrap();
    update().await.unwrap();
}

#[tokio::test]
async fn a_refused_call_releases_the_run() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let engine = bench.engine();
    let stop = ShutdownHandle::default();
    let answers: Answers = BTreeMap::from([("nobody".to_owned(), json!("x"))]).into();
    let nowhere = Mapping::default().node(name("judge"), name("nowhere"));
    // A process that ends right then leaves nothing that others would wait for.
    let is_free = async || bench.storage.find(run.as_str()).await.unwrap().lease.is_none();
    engine.resume(&run).with_answers(answers).with_shutdown(&stop).await.unwrap_err();
    assert!(is_free().await, "after `resume`");
    engine.retry(&run).with_shutdown(&stop).await.unwrap_err();
    assert!(is_free().await, "after `retry`");
    engine.update(&run, write("nobody", json!("x")), None).await.unwrap_err();
    assert!(is_free().await, "after `update`");
    engine.migrate(&run, &nowhere, None).await.unwrap_err();
    assert!(is_free().await, "after `migrate`");
}

#[tokio::test]
async fn a_fork_takes_another_route_and_keeps_the_original() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let before = bench.saved(&run).await;
    let fork = bench.fork(&run, 1, &[("brief", json!("y"))]).await.unwrap();
    let saved = bench.storage.load(&fork).await.unwrap();
    assert_eq!((saved.position.step, saved.summary.status), (Step(0), Status::Interrupted));
    let from = saved.summary.info.fork_source.unwrap();
    assert_eq!((from.run, from.step), (run.clone(), Step(1)));
    let end = bench.resume(&fork).await;
    assert_eq!(
        (end.status, notes(&end)),
        (Status::Paused, json!(["plan", "qc", "ta on y", "sse"]))
    );
    assert_eq!(bench.saved(&run).await, before);
    prove(bench.storage.as_ref(), &fork, None).await.unwrap();
}

#[tokio::test]
async fn a_fork_resets_usage_and_keeps_visits() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let judge = name("judge");
    bench.engine().update(&run, write("verdict", json!("rework")), Some(&judge)).await.unwrap();
    let fork = bench.fork(&run, 4, &[]).await.unwrap();
    let position = bench.storage.load(&fork).await.unwrap().position;
    assert_eq!((position.used.elapsed_ms, position.visits[&name("plan")]), (0, 2));
    assert_eq!((position.people.question_keys.len(), position.people.last_message), (0, 0));
}

#[tokio::test]
async fn a_fork_that_cannot_run_is_not_made() {
    let bench = Bench::new();
    let run = bench.start(Some("x")).await;
    let count = async || bench.storage.list().await.unwrap().len();
    let wrong = bench.fork(&run, 1, &[("notes", json!("no list"))]).await.unwrap_err();
    assert!(matches!(wrong, RunError::Revise(ReviseError::State(_))), "{wrong}");
    let unknown = bench.fork(&run, 1, &[("nots", json!([]))]).await.unwrap_err();
    assert!(matches!(unknown, RunError::Revise(ReviseError::State(_))), "{unknown}");
    let step = bench.fork(&run, 9, &[]).await.unwrap_err();
    assert!(matches!(step, RunError::Checkpoint(CheckpointError::UnknownStep { .. })), "{step}");
    bench
        .engine()
        .update(&run, write("verdict", json!("good")), Some(&name("judge")))
        .await
        .unwrap();
    let over = bench.fork(&run, 4, &[]).await.unwrap_err();
    assert!(matches!(over, RunError::Revise(ReviseError::AtItsEnd)), "{over}");
    assert_eq!(count().await, 1);
}
