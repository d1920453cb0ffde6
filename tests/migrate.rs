//! Migrates runs at any position to a changed graph.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, ForkSource, LeaseRequest, Mapping, Message, Outcome,
        Presence, QuestionOutcome, RunHistory as _, RunInbox as _, RunInfo, RunJournal as _,
        RunLeases as _, asked_questions,
    },
    compile::CompiledGraph,
    engine::{
        Answers, Engine, MigrationResult, RunEnd, RunError, ShutdownHandle, machine::Breakpoints,
    },
    event::{Event, EventSink, Status, Usage},
    graph::{
        Bounds, Dispatch, GraphBuilder, IntoNode, NodeContext, NodeError, NodeLimits, Policies,
        Question, START, Target, node_fn,
    },
    id::{ChannelName, NodeName, RunId, Step},
    models::TokenUsage,
    state::Update,
    storage::{InMemoryStorage, prove},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Board {
    brief: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

/// The same with another name for the list, and one more field.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Other {
    brief: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
    #[serde(default = "three")]
    count: u32,
}

fn three() -> u32 {
    3
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Logged {
    log: Vec<String>,
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn mapped(pairs: &[(&str, &str)]) -> Mapping {
    pairs.iter().fold(Mapping::default(), |it, (old, new)| it.node(name(old), name(new)))
}

fn compiled(builder: GraphBuilder) -> CompiledGraph {
    builder.compile().unwrap()
}

/// The keys of tasks, each time they began; kept outside the database.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn began(&self, ctx: &NodeContext) {
        self.0.lock().unwrap().push(ctx.idempotency_key());
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A run in memory, and the graphs it continues with.
struct Place {
    storage: Arc<InMemoryStorage>,
    run: RunId,
    ledger: Ledger,
}

impl Place {
    fn new() -> Self {
        let storage = Arc::default();
        let ledger = Ledger::default();
        Self { storage, run: RunId::parse("r").unwrap(), ledger }
    }

    fn engine(&self, graph: GraphBuilder) -> Engine {
        Engine::new(compiled(graph))
            .with_storage(Arc::clone(&self.storage) as Arc<dyn Checkpointer>)
    }

    async fn start(&self, engine: &Engine) -> RunEnd {
        let info = RunInfo { id: self.run.clone(), ..RunInfo::new("board") };
        let (input, events, stop) =
            (Update::default(), EventSink::default(), ShutdownHandle::default());
        engine.run(input).with_info(info).with_events(events).with_shutdown(&stop).await.unwrap()
    }

    async fn migrate(
        &self,
        graph: GraphBuilder,
        mapping: &Mapping,
    ) -> Result<MigrationResult, RunError> {
        self.engine(graph).migrate(&self.run, mapping, None).await
    }

    /// Resumes the run; returns its events as well.
    async fn resume(
        &self,
        graph: GraphBuilder,
        answers: &[(&str, Value)],
    ) -> (Result<RunEnd, RunError>, Vec<Event>) {
        let answers = answers.iter().map(|(key, answer)| ((*key).to_owned(), answer.clone()));
        let answers = Answers { by_name: answers.collect(), by: None };
        let mut sink = EventSink::default();
        let mut told = sink.subscribe();
        let end =
            self.engine(graph).resume(&self.run).with_answers(answers).with_events(sink).await;
        let mut events = Vec::new();
        while let Some(it) = told.recv().await {
            events.push(it.event);
        }
        (end, events)
    }

    /// Resumes the run to its end, and expects no report of a change.
    async fn end(&self, graph: GraphBuilder, answers: &[(&str, Value)]) -> RunEnd {
        let (end, events) = self.resume(graph, answers).await;
        let is_notice = |it: &&Event| matches!(it, Event::WorkflowChanged { .. });
        assert_eq!(events.iter().find(is_notice), None);
        let end = end.unwrap();
        assert_eq!(end.status, Status::Done, "{end:?}");
        prove(self.storage.as_ref(), &self.run, None).await.unwrap();
        end
    }
}

fn list(end: &RunEnd, field: &str) -> Vec<String> {
    serde_json::from_value(end.state.get(field).cloned().unwrap_or(json!([]))).unwrap()
}

/// `plan`, then two nodes in parallel, of which the second may hang, then a join.
fn beside(ledger: &Ledger, [plan, quick, slow, both]: [&str; 4], waits: bool) -> GraphBuilder {
    let note = |ledger: &Ledger, waits: bool| {
        let ledger = ledger.clone();
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let ledger = ledger.clone();
            async move {
                ledger.began(&ctx);
                if waits {
                    std::future::pending::<()>().await;
                }
                Ok::<_, NodeError>(Noted { notes: vec![ctx.node.to_string()] })
            }
        })
    };
    GraphBuilder::new::<Board>("board")
        .node(plan, note(ledger, false))
        .node(quick, note(ledger, false))
        .node(slow, note(ledger, waits))
        .node(both, note(ledger, false))
        .edge(START, plan)
        .edge(plan, quick)
        .edge(plan, slow)
        .edge([quick, slow], both)
}

#[tokio::test]
async fn an_interrupted_task_keeps_its_key_after_migration() {
    let place = Place::new();
    let old = ["plan", "quick", "slow", "both"];
    let engine = place.engine(beside(&place.ledger, old, true));
    let mut sink = EventSink::default();
    let mut events = sink.subscribe();
    let info = RunInfo { id: place.run.clone(), ..RunInfo::new("board") };
    let stop = ShutdownHandle::default();
    {
        let run =
            engine.run(Update::default()).with_info(info).with_events(sink).with_shutdown(&stop);
        let run = run.into_future();
        tokio::pin!(run);
        // Runs until `quick` has finished, which is saved then; `slow` never finishes.
        loop {
            tokio::select! {
                _ = &mut run => panic!("it waits"),
                event = events.recv() => match event.unwrap().event {
                    Event::TaskFinished { node, .. } if node == name("quick") => break,
                    _ => (),
                },
            }
        }
    }
    let new = ["plan", "zwift", "slower", "sum"];
    let mapping = mapped(&[("quick", "zwift"), ("slow", "slower"), ("both", "sum")]);
    let begun = place.ledger.keys();
    assert_eq!(begun.len(), 3, "{begun:?}");
    let graph = || beside(&place.ledger, new, false);
    let migrated = place.migrate(graph(), &mapping).await.unwrap();
    assert_eq!(migrated.position.step, Step(2));
    let next: Vec<&str> = migrated.position.frontier.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(next, ["slower", "zwift"], "in the order of their names");

    let end = place.end(graph(), &[]).await;
    // Earlier updates keep their order; tasks are ordered by the new names.
    assert_eq!(list(&end, "notes"), ["plan", "slower", "quick", "sum"]);
    let keys = place.ledger.keys();
    assert_eq!(keys[3..], ["r/2/slow/1".to_owned(), "r/4/sum/0".to_owned()]);
    assert!(begun.contains(&keys[3]), "{keys:?}");
}

/// A loop of `draft` and `check`, at most three times; `check` asks.
fn rounds([draft, check]: [&str; 2], list: &'static str) -> GraphBuilder {
    let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let question = Question::new("good", "Is it good?").with_schema(json!({"type": "boolean"}));
        let _: bool = ctx.ask(question)?;
        Ok::<_, NodeError>(())
    });
    let bound = Policies::from(Bounds {
        max_visits: Some(3),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    let said = |ctx: &NodeContext| vec![format!("{} {}", ctx.node, ctx.visit())];
    let graph = if list == "log" {
        let notes = node_fn(move |_: Nothing, ctx: NodeContext| async move {
            Ok::<_, NodeError>(Logged { log: said(&ctx) })
        });
        GraphBuilder::new::<Other>("board").node(draft, notes.with_policies(bound))
    } else {
        let notes = node_fn(move |_: Nothing, ctx: NodeContext| async move {
            Ok::<_, NodeError>(Noted { notes: said(&ctx) })
        });
        GraphBuilder::new::<Board>("board").node(draft, notes.with_policies(bound))
    };
    let graph = graph.node(check, asks);
    graph.edge(START, draft).edge(draft, check).edge(check, draft).inbox(list)
}

#[tokio::test]
async fn migration_keeps_loop_counts_and_lists_all_gaps() {
    let place = Place::new();
    place.start(&place.engine(rounds(["draft", "check"], "notes"))).await;
    place.resume(rounds(["draft", "check"], "notes"), &[("good", json!(false))]).await.0.unwrap();
    let said = Message::new(channel("notes"), json!("be brief"), None);
    place.storage.post(&place.run, &said).await.unwrap();
    let graph = || rounds(["write", "judge"], "log");

    let Err(RunError::NoCounterpart { differences, .. }) =
        place.migrate(graph(), &Mapping::default()).await
    else {
        panic!("no difference names the renamed parts")
    };
    let told: Vec<String> = differences
        .iter()
        .filter(|it| it.breaks.is_some())
        .map(|it| format!("{} [{}]", it.what, it.remedies[0]))
        .collect();
    assert_eq!(
        told,
        [
            "the node `check` is gone [--map check=judge]",
            "the field `notes` ([string]) is gone [--map notes=log]",
        ]
    );
    let journal = place.storage.journal(&place.run).await.unwrap();
    let mapping = mapped(&[("draft", "write"), ("check", "judge")]);
    let mapping = mapping.field(channel("notes"), channel("log"));
    let preview = place.engine(graph()).try_migration(&place.run, &mapping).await.unwrap();
    assert_eq!(place.storage.journal(&place.run).await.unwrap(), journal);
    let migrated = place.migrate(graph(), &mapping).await.unwrap();
    assert_eq!(preview, migrated);
    assert_eq!(migrated.questions[0].name, "good@4.0", "it was asked before");

    let (end, _) = place.resume(graph(), &[("good@4.0", json!(false))]).await;
    assert_eq!(list(&end.unwrap(), "log"), ["draft 1", "draft 2", "be brief", "write 3"]);
    let end = place.end(graph(), &[("good@8.0", json!(false))]).await;
    assert_eq!(list(&end, "log").len(), 4, "three visits are all");
    assert_eq!(end.state.get("count"), Some(&json!(3)), "a new field starts with its default");
}

#[tokio::test]
async fn migration_keeps_questions_with_name_and_deadline() {
    let place = Place::new();
    let graph = |node: &'static str| {
        let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
            let mut question =
                Question::new("go", "Go on?").with_schema(json!({"type": "boolean"}));
            question.deadline = Some(Timestamp::now() + Duration::from_secs(3600));
            let answer: bool = ctx.ask(question)?;
            let mut why = Question::new("why", "Why?").with_schema(json!({"type": "string"}));
            why.deadline = None;
            let why: String = ctx.ask(why)?;
            Ok::<_, NodeError>(Noted { notes: vec![format!("{} {answer} {why}", ctx.node)] })
        });
        GraphBuilder::new::<Board>("map")
            .node("plan", node_fn(|_: Nothing, _| async { Ok::<_, NodeError>(()) }))
            .node(node, asks)
            .edge(START, "plan")
            .route("plan", [node], move |_: &Nothing| {
                (0..2).map(|it| Dispatch::new(name(node), json!(it))).collect::<Vec<_>>()
            })
    };
    place.start(&place.engine(graph("review"))).await;
    place.resume(graph("review"), &[("go@2.1", json!(true))]).await.0.unwrap();
    let before = place.storage.load(&place.run).await.unwrap();
    let asked = |journal: &[graphrun::checkpoint::JournalEntry]| {
        let asked = asked_questions(journal).into_iter();
        let told = |asked: graphrun::checkpoint::AskedQuestion| {
            (
                asked.full_name(),
                asked.hash,
                asked.outcome == QuestionOutcome::Open,
                asked.question.deadline,
            )
        };
        asked.map(told).collect::<Vec<_>>()
    };
    let were = asked(&place.storage.journal(&place.run).await.unwrap());

    let mapping = mapped(&[("review", "check")]);
    let migrated = place.migrate(graph("check"), &mapping).await.unwrap();
    let keys: Vec<&str> = migrated.questions.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(keys, ["go@2.0", "why"]);
    assert_eq!(asked(&place.storage.journal(&place.run).await.unwrap()), were);
    let inputs = |saved: &graphrun::checkpoint::SavedRun| {
        let frontier = saved.position.frontier.iter();
        frontier.map(|it| it.input.clone()).collect::<Vec<_>>()
    };
    let after = place.storage.load(&place.run).await.unwrap();
    assert_eq!(inputs(&before), inputs(&after));
    assert_eq!(after.summary.status, Status::Paused);
    assert_eq!(after.summary.reason.unwrap(), "waiting for an answer to go@2.0, why");

    // The second task uses the answer that it was given before.
    let answers = [("why", json!("fast")), ("go@2.0", json!(false))];
    let (end, _) = place.resume(graph("check"), &answers).await;
    assert_eq!(end.unwrap().questions[0].name, "why@2.0");
    let end = place.end(graph("check"), &[("why@2.0", json!("slow"))]).await;
    assert_eq!(list(&end, "notes"), ["check false slow", "check true fast"]);
}

/// Three items, each a task of `node`; the second fails unless it is repaired.
fn mapping_over(ledger: &Ledger, [node, sum]: [&'static str; 2], is_mended: bool) -> GraphBuilder {
    let ledger = ledger.clone();
    let work = node_fn(move |_: Nothing, ctx: NodeContext| {
        let ledger = ledger.clone();
        async move {
            ledger.began(&ctx);
            let item = ctx.input.item().cloned().unwrap_or_default();
            if item == json!(1) && !is_mended {
                return Err(NodeError::permanent("it is broken"));
            }
            Ok::<_, NodeError>(Noted { notes: vec![format!("{} {item}", ctx.node)] })
        }
    });
    let nothing = || node_fn(|_: Nothing, _| async { Ok::<_, NodeError>(()) });
    GraphBuilder::new::<Board>("map")
        .node("plan", nothing())
        .node(node, work)
        .node(sum, nothing())
        .edge(START, "plan")
        .route("plan", [node], move |_: &Nothing| {
            (0..3).map(|it| Dispatch::new(name(node), json!(it))).collect::<Vec<_>>()
        })
        .edge([node], sum)
}

#[tokio::test]
async fn migration_keeps_the_results_of_a_partial_map() {
    let place = Place::new();
    let end = place.start(&place.engine(mapping_over(&place.ledger, ["work", "sum"], false))).await;
    assert_eq!(end.status, Status::Failed);
    let graph = || mapping_over(&place.ledger, ["do", "all"], true);
    let mapping = mapped(&[("work", "do"), ("sum", "all")]);
    place.migrate(graph(), &mapping).await.unwrap();
    let saved = place.storage.load(&place.run).await.unwrap();
    assert_eq!(saved.summary.status, Status::Failed);
    assert_eq!(saved.summary.reason.as_deref(), Some("`do` failed: it is broken"));
    let engine = place.engine(graph());
    let stop = ShutdownHandle::default();
    let end = engine.retry(&place.run).with_shutdown(&stop).await.unwrap();
    assert_eq!(end.status, Status::Done);
    assert_eq!(list(&end, "notes"), ["work 0", "do 1", "work 2"]);
    assert_eq!(place.ledger.keys().len(), 4, "only what failed ran again");
    assert_eq!(place.ledger.keys()[3], "r/2/work/1");
}

/// `plan`, then a short branch beside a long one, and a join.
fn uneven([short, long, last, both]: [&str; 4]) -> GraphBuilder {
    let note = || {
        node_fn(|_: Nothing, ctx: NodeContext| async move {
            Ok::<_, NodeError>(Noted { notes: vec![ctx.node.to_string()] })
        })
    };
    GraphBuilder::new::<Board>("board")
        .node("plan", note())
        .node(short, note())
        .node(long, note())
        .node(last, note())
        .node(both, note())
        .edge(START, "plan")
        .edge("plan", short)
        .edge("plan", long)
        .edge(long, last)
        .edge([short, last], both)
}

#[tokio::test]
async fn migration_keeps_the_arrivals_at_a_join() {
    let place = Place::new();
    let pauses = Breakpoints { before: [name("last")].into(), ..Breakpoints::default() };
    let engine = place.engine(uneven(["short", "long", "last", "both"])).with_breakpoints(pauses);
    assert_eq!(place.start(&engine).await.status, Status::Paused);
    let saved = place.storage.load(&place.run).await.unwrap();
    assert_eq!(saved.position.joins, [(name("both"), [name("short")].into())].into());

    let graph = || uneven(["brief", "long", "end_of_it", "sum"]);
    let mapping = mapped(&[("short", "brief"), ("last", "end_of_it"), ("both", "sum")]);
    let migrated = place.migrate(graph(), &mapping).await.unwrap();
    assert_eq!(migrated.position.joins, [(name("sum"), [name("brief")].into())].into());
    let end = place.end(graph(), &[]).await;
    assert_eq!(list(&end, "notes"), ["plan", "long", "short", "end_of_it", "sum"]);
}

#[tokio::test]
async fn dropped_tasks_still_count_their_usage() {
    let place = Place::new();
    let old = ["plan", "work", "both"];
    let graph = |[plan, work, both]: [&'static str; 3]| {
        let note = || {
            node_fn(|_: Nothing, ctx: NodeContext| async move {
                Ok::<_, NodeError>(Noted { notes: vec![ctx.node.to_string()] })
            })
        };
        let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
            let _: bool = ctx.ask(Question::new("go", "Go on?"))?;
            Ok::<_, NodeError>(())
        });
        GraphBuilder::new::<Board>("board")
            .node(plan, note())
            .node(work, note())
            .node("help", asks)
            .node(both, note())
            .edge(START, plan)
            .edge(plan, work)
            .edge(plan, "help")
            .edge([work, "help"], both)
    };
    place.start(&place.engine(graph(old))).await;
    let mapping = Mapping::default().drop_node(name("help"));
    let migrated = place.migrate(graph(old), &mapping).await.unwrap();
    assert_eq!(migrated.questions, []);
    let asked = asked_questions(&place.storage.journal(&place.run).await.unwrap());
    assert!(matches!(asked[0].outcome, QuestionOutcome::Dropped { .. }), "{asked:?}");
    let end = place.end(graph(old), &[]).await;
    assert_eq!(list(&end, "notes"), ["plan", "work", "both"]);

    // If all nodes are dropped, nothing is left to migrate.
    let place = Place::new();
    place.start(&place.engine(graph(old))).await;
    let all = mapping.drop_node(name("work"));
    let Err(RunError::NoCounterpart { .. }) = place.migrate(graph(old), &all).await else {
        panic!("`both` would run without anything before it, or nothing would");
    };
}

#[tokio::test]
async fn owned_and_finished_runs_are_not_migrated() {
    let place = Place::new();
    let graph = || rounds(["draft", "check"], "notes");
    place.start(&place.engine(graph())).await;
    let presence = Presence::new();
    let owner = presence.owner().clone();
    let ttl = Duration::from_secs(60);
    let claim = LeaseRequest { owner, ttl, replaces_fence: None };
    let token = place.storage.acquire(&place.run, &claim).await.unwrap();
    let refused = place.migrate(graph(), &Mapping::default()).await;
    let Err(RunError::Checkpoint(CheckpointError::Owned { .. })) = refused else {
        panic!("{refused:?}")
    };
    // A trial migration needs no lease.
    place.engine(graph()).try_migration(&place.run, &Mapping::default()).await.unwrap();
    place.storage.release(&token).await.unwrap();

    let place = Place::new();
    let graph = || mapping_over(&place.ledger, ["work", "sum"], true);
    assert_eq!(place.start(&place.engine(graph())).await.status, Status::Done);
    let refused = place.migrate(graph(), &Mapping::default()).await;
    assert!(matches!(refused, Err(RunError::Revise(_))), "{refused:?}");
}

/// The usage of the task counts towards the limits of its node, and only the key of its question is taken.
#[tokio::test]
async fn a_task_that_starts_again_keeps_its_usage() {
    let graph = || {
        let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
            let tokens = TokenUsage { input_tokens: 80, calls: 1, ..TokenUsage::default() };
            ctx.reporter.add_usage(&Usage { tokens, cost_usd: None });
            let question = Question::new("approve", "Go?").with_schema(json!({"type": "boolean"}));
            let _: bool = ctx.ask(question)?;
            Ok::<_, NodeError>(())
        });
        let limits = Some(NodeLimits { tokens: Some(100), ..NodeLimits::default() });
        let limited = Policies::from(Bounds { limits, ..Bounds::default() });
        let work = asks.with_policies(limited);
        GraphBuilder::new::<Board>("board")
            .node("work", work)
            .edge(START, "work")
            .edge("work", "end")
    };
    let place = Place::new();
    assert_eq!(place.start(&place.engine(graph())).await.status, Status::Paused);
    let again = Mapping::default().again(name("work"));
    let position = place.migrate(graph(), &again).await.unwrap().position;
    assert_eq!(position.used.node_usage[&name("work")].usage.total_tokens(), 80);
    let keys = &position.people.question_keys;
    assert!(keys.contains("approve") && !keys.contains("work"), "{keys:?}");
}

#[tokio::test]
async fn forks_from_before_a_migration_use_the_new_graph() {
    let place = Place::new();
    place.start(&place.engine(rounds(["draft", "check"], "notes"))).await;
    let mapping = mapped(&[("draft", "first"), ("check", "judge")]);
    let mapping = mapping.field(channel("notes"), channel("log"));
    place.migrate(rounds(["first", "judge"], "log"), &mapping).await.unwrap();
    // A second migration.
    let again = mapped(&[("first", "write")]);
    let graph = || rounds(["write", "judge"], "log");
    let migrated = place.migrate(graph(), &again).await.unwrap();
    assert_eq!(migrated.questions[0].name, "good");
    let old = place.storage.values_at(&place.run, Step(1)).await.unwrap();
    assert_eq!(json!(old), json!({"notes": ["draft 1"]}), "old steps keep their state");

    for (step, id, expected) in
        [(0, "f0", vec!["write 1"]), (1, "f1", vec!["draft 1"]), (3, "f3", vec!["draft 1"])]
    {
        let fork = RunInfo { id: RunId::parse(id).unwrap(), name: id.into(), ..RunInfo::new("b") };
        let from = ForkSource { run: place.run.clone(), name: "r".into(), step: Step(step) };
        place.engine(graph()).fork(fork, from, BTreeMap::new()).await.unwrap();
        let run = RunId::parse(id).unwrap();
        let events = EventSink::default();
        let stop = ShutdownHandle::default();
        let end = place.engine(graph()).resume(&run).with_events(events).with_shutdown(&stop).await;
        let end = end.unwrap();
        assert_eq!(
            (end.status, list(&end, "log")),
            (Status::Paused, expected.iter().map(|it| (*it).to_owned()).collect()),
            "{id}"
        );
    }
}

#[tokio::test]
async fn new_fields_and_changed_reducers_need_a_decision() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Needs {
        brief: Option<String>,
        #[serde(default)]
        notes: Vec<String>,
        audience: Option<String>,
    }
    #[derive(Deserialize, JsonSchema)]
    struct Audience {
        audience: String,
    }
    let place = Place::new();
    let pauses = Breakpoints { before: [name("last")].into(), ..Breakpoints::default() };
    let note = || {
        node_fn(|_: Nothing, ctx: NodeContext| async move {
            Ok::<_, NodeError>(Noted { notes: vec![ctx.node.to_string()] })
        })
    };
    let old = GraphBuilder::new::<Board>("board").node("first", note()).node("last", note());
    let old = old.edge(START, "first").edge("first", "last");
    place.start(&place.engine(old).with_breakpoints(pauses)).await;
    let graph = || {
        let reads = node_fn(|input: Audience, _| async move {
            Ok::<_, NodeError>(Noted { notes: vec![input.audience] })
        });
        let graph = GraphBuilder::new::<Needs>("board").node("first", note()).node("last", reads);
        graph.input("audience").edge(START, "first").edge("first", "last")
    };
    let Err(RunError::Broken { differences, remedies, .. }) = place.resume(graph(), &[]).await.0
    else {
        panic!("`last` would have no value to read")
    };
    let told: Vec<String> =
        differences.iter().filter(|it| it.breaks.is_some()).map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "the reducer of `notes` was append and is replace; the old reducer made its value; \
             `--map notes=notes` keeps the value, `--set notes=JSON` replaces it",
            "the field `audience` (string) is new; `last` reads it, and the run may reach that \
             node before the field is written; `--set audience=JSON` sets it",
        ]
    );
    let flags: Vec<String> = remedies.iter().map(ToString::to_string).collect();
    assert_eq!(flags, ["--map notes=notes", "--set audience=JSON"]);
    let mapping = Mapping::default().field(channel("notes"), channel("notes"));
    let mapping = mapping.set(channel("audience"), json!("all"));
    place.migrate(graph(), &mapping).await.unwrap();
    assert_eq!(list(&place.end(graph(), &[]).await, "notes"), ["all"]);
    let records = place.storage.records(&place.run).await.unwrap();
    let finished = records.iter().filter(|it| matches!(it.outcome, Outcome::Finished { .. }));
    assert_eq!(finished.count(), 2);
}
