//! Threads: turns of one run, each with new input on the state of the turns before.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join, join_all};
use graphrun::{
    checkpoint::{Checkpointer, ForkSource, Mapping, RunInfo, Turns},
    event::{Report, Usage},
    id::Step,
    prelude::*,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Chat {
    said: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    lines: Vec<String>,
}

async fn keep(chat: Chat) -> Result<Chat, NodeError> {
    Ok(Chat { lines: chat.said.into_iter().collect(), ..Chat::default() })
}

fn say(text: &str) -> Chat {
    Chat { said: Some(text.to_owned()), ..Chat::default() }
}

fn chat() -> GraphBuilder {
    GraphBuilder::new::<Chat>("chat").node("keep", keep).edge(START, "keep").edge("keep", END)
}

fn engine(graph: GraphBuilder) -> Engine {
    Engine::new(graph.compile().unwrap())
}

#[tokio::test]
async fn a_turn_begins_its_limits_anew_and_keeps_the_totals() {
    let limits = Limits { steps: 1, ..Limits::default() };
    let engine = engine(chat().max_visits("keep", 1, FAIL).limits(limits));
    for (turn, text) in (1..).zip(["one", "two", "three"]) {
        let end = engine.turn("t", &say(text)).await.unwrap();
        assert_eq!((end.status, end.position.earlier.turns), (Status::Done, turn - 1), "{end:?}");
        assert_eq!(end.output::<Chat>().unwrap().lines.len() as u64, turn);
    }
    let end = engine.turn("t", &say("four")).await.unwrap();
    // One step each, and one for each input but the first, which is saved with the start.
    assert_eq!((end.position.step.0, end.position.earlier.steps), (7, 6));
    assert_eq!(end.output::<Chat>().unwrap().lines, ["one", "two", "three", "four"]);
}

#[tokio::test]
async fn a_turn_begins_its_limit_of_tokens_anew() {
    async fn asks(ctx: NodeContext) -> Result<Chat, NodeError> {
        let mut usage = Usage::default();
        usage.tokens.input_tokens = 60;
        usage.tokens.calls = 1;
        ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
        Ok(Chat { lines: vec![format!("{:?}", ctx.facts.remaining.tokens)], ..Chat::default() })
    }
    let limits = Limits { tokens: Some(100), ..Limits::default() };
    let graph = GraphBuilder::new::<Chat>("chat").node("first", asks).node("second", asks);
    let graph = graph.edge(START, "first").edge("first", "second").edge("second", END);
    let engine = engine(graph.limits(limits));
    for turn in 1..=3 {
        let end = engine.turn("t", &say("hello")).await.unwrap();
        assert_eq!(end.status, Status::Done, "turn {turn}: {:?}", end.reason);
        assert_eq!(end.position.used.usage.tokens.input_tokens, 120);
        assert_eq!(end.position.earlier.usage.tokens.input_tokens, 120 * (turn - 1));
    }
    let end = engine.turn("t", &say("hello")).await.unwrap();
    let lines = end.output::<Chat>().unwrap().lines;
    assert_eq!(lines[6..], ["Some(100)", "Some(40)"], "the rest is that of the turn");
}

#[tokio::test]
async fn a_turn_after_a_failed_one_waits_for_its_retry() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let breaks = Arc::clone(&is_broken);
    let work = move |chat: Chat| {
        let breaks = breaks.load(Ordering::SeqCst);
        async move { if breaks { Err(NodeError::permanent("broken")) } else { keep(chat).await } }
    };
    let graph = GraphBuilder::new::<Chat>("chat").node("work", work);
    let engine = engine(graph.edge(START, "work").edge("work", END));
    let failed = engine.turn("t", &say("one")).await.unwrap();
    assert_eq!(failed.status, Status::Failed);
    let refused = engine.turn("t", &say("two")).await.unwrap_err();
    assert!(matches!(refused, RunError::TurnOpen { status: Status::Failed, .. }), "{refused}");
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(engine.retry(&failed.run).await.unwrap().status, Status::Done);
    let end = engine.turn("t", &say("two")).await.unwrap();
    assert_eq!(end.output::<Chat>().unwrap().lines, ["one", "two"]);
}

#[tokio::test]
async fn a_second_turn_at_once_is_refused_or_queued() {
    async fn slow(chat: Chat) -> Result<Chat, NodeError> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        keep(chat).await
    }
    let graph = GraphBuilder::new::<Chat>("chat").node("slow", slow);
    let engine = engine(graph.edge(START, "slow").edge("slow", END));
    engine.turn("t", &say("first")).await.unwrap();
    let one = engine.turn("t", &say("one")).start().await.unwrap();
    let refused = engine.turn("t", &say("two")).await.unwrap_err();
    assert!(matches!(refused, RunError::Checkpoint(_)), "{refused:?}");
    let queued = engine.turn("t", &say("two")).queued().into_future();
    let (one, two) = join(one.outcome(), queued).await;
    assert_eq!(one.unwrap().output::<Chat>().unwrap().lines, ["first", "one"]);
    assert_eq!(two.unwrap().output::<Chat>().unwrap().lines, ["first", "one", "two"]);
}

/// Neither of the two knows that the other one begins the thread.
#[tokio::test]
async fn two_first_turns_that_may_wait_begin_one_thread() {
    let storage: Arc<dyn Checkpointer> = Arc::new(graphrun::storage::InMemoryStorage::default());
    let engine = engine(chat()).with_storage(storage);
    for thread in 0..20 {
        let thread = format!("t{thread}");
        let turn = |text: &str| engine.turn(thread.clone(), &say(text)).queued().into_future();
        let (one, two) = join(turn("one"), turn("two")).await;
        let mut lines = [one, two].map(|it| it.unwrap().output::<Chat>().unwrap().lines.len());
        lines.sort_unstable();
        assert_eq!(lines, [1, 2]);
    }
}

/// The id of a run is no name of a thread, even if it begins with the name.
#[tokio::test]
async fn a_thread_is_no_run_whose_id_begins_with_its_name() {
    let storage: Arc<dyn Checkpointer> = Arc::new(graphrun::storage::InMemoryStorage::default());
    let engine = engine(chat()).with_storage(storage);
    let other = engine.turn("other", &say("one")).await.unwrap();
    let begins = &other.run.as_str()[..12];
    let end = engine.turn(begins, &say("two")).await.unwrap();
    assert_ne!(end.run, other.run);
    assert_eq!(end.output::<Chat>().unwrap().lines, ["two"]);
}

#[tokio::test]
async fn a_turn_waits_until_the_last_one_has_ended() {
    async fn asks(ctx: NodeContext) -> Result<Chat, NodeError> {
        Ok(Chat { lines: vec![ctx.ask(Question::new("name", "Your name?"))?], ..Chat::default() })
    }
    let graph = GraphBuilder::new::<Chat>("chat").node("asks", asks);
    let engine = engine(graph.edge(START, "asks").edge("asks", END));
    for name in ["Ada", "Bob"] {
        let paused = engine.turn("t", &say("hello")).await.unwrap();
        assert_eq!(paused.status, Status::Paused);
        let refused = engine.turn("t", &say("again")).await.unwrap_err();
        assert!(matches!(refused, RunError::TurnOpen { status: Status::Paused, .. }));
        engine.resume(&paused.run).answer(&*paused.questions[0].name, name).await.unwrap();
    }
    let third = engine.turn("t", &say("hello")).await.unwrap();
    assert_eq!(third.state.read::<Chat>().unwrap().lines, ["Ada", "Bob"]);
}

#[tokio::test]
async fn a_dropped_turn_is_resumed_and_nothing_is_done_twice() {
    async fn hangs(ctx: NodeContext) -> Result<(), NodeError> {
        if ctx.get::<()>().is_err() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
    let graph = GraphBuilder::new::<Chat>("chat").node("keep", keep).node("hangs", hangs);
    let graph = graph.edge(START, "keep").edge("keep", "hangs").edge("hangs", END);
    let engine = engine(graph);
    let first = engine.turn("t", &say("one")).provide(()).await.unwrap();
    let second = engine.turn("t", &say("two"));
    assert!(tokio::time::timeout(Duration::from_millis(100), second.into_future()).await.is_err());
    // The lease of the dropped turn is given back soon.
    let end = loop {
        match engine.resume(&first.run).provide(()).await {
            Ok(end) => break end,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(end.output::<Chat>().unwrap().lines, ["one", "two"]);
    assert_eq!(end.position.earlier.turns, 1);
}

#[tokio::test]
async fn a_turn_on_a_changed_graph_follows_the_rules_of_resume() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Other {
        said: Option<String>,
        lines: Option<u32>,
    }
    async fn nothing() -> Result<(), NodeError> {
        Ok(())
    }
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let with = |graph: GraphBuilder| engine(graph).with_storage(Arc::clone(&storage));
    with(chat()).turn("t", &say("one")).await.unwrap();
    let longer = chat().node("more", nothing).edge("keep", "more").edge("more", END);
    let end = with(longer).turn("t", &say("two")).await.unwrap();
    assert_eq!(end.output::<Chat>().unwrap().lines, ["one", "two"]);

    let other = GraphBuilder::new::<Other>("chat").node("keep", nothing);
    let other = with(other.edge(START, "keep").edge("keep", END));
    let refused = other.turn("t", &say("three")).await.unwrap_err();
    assert!(matches!(refused, RunError::Broken { .. }), "{refused:?}");

    // Threads are runs: they are listed, and they can be removed.
    let listed = storage.list().await.unwrap();
    assert_eq!(listed[0].info.name, "t");
    storage.remove(&listed[0].info.id).await.unwrap();
    let anew = with(chat()).turn("t", &say("one")).await.unwrap();
    assert_eq!(anew.output::<Chat>().unwrap().lines, ["one"]);
}

fn storages(folder: &tempfile::TempDir) -> [Arc<dyn Checkpointer>; 2] {
    let on_disk = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
    [Arc::new(InMemoryStorage::default()), Arc::new(on_disk.on_the_same_thread())]
}

/// The load at the beginning of a turn is the part of its cost that could grow.
#[tokio::test]
async fn a_turn_reads_no_more_entries_after_many_turns() {
    let folder = tempfile::TempDir::new().unwrap();
    for storage in storages(&folder) {
        let engine = engine(chat()).with_storage(Arc::clone(&storage));
        let mut read = BTreeSet::new();
        for turn in 1..=400 {
            let end = engine.turn("t", &say("x")).await.unwrap();
            let saved = storage.load(&end.run).await.unwrap();
            assert_eq!(saved.values["lines"].as_array().unwrap().len(), turn);
            read.insert(saved.entries_read);
        }
        let run = storage.find("t").await.unwrap().info.id;
        let entries = storage.journal(&run).await.unwrap().len() as u64;
        assert!(read.last().unwrap() * 2 < entries, "{read:?} of {entries}");
        assert!(*read.last().unwrap() < 270, "{read:?}");
    }
}

#[tokio::test]
async fn queued_turns_of_a_thread_begin_in_their_order() {
    async fn slow(chat: Chat) -> Result<Chat, NodeError> {
        tokio::time::sleep(Duration::from_millis(70)).await;
        keep(chat).await
    }
    let graph = GraphBuilder::new::<Chat>("chat").node("slow", slow);
    let engine = engine(graph.edge(START, "slow").edge("slow", END));
    let turns = (0..8).map(|number: u64| {
        let engine = engine.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5 * number)).await;
            engine.turn("t", &say(&number.to_string())).queued().await.unwrap()
        }
    });
    let ends = join_all(turns).await;
    let lines = ends.last().unwrap().output::<Chat>().unwrap().lines;
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn names_of_runs_and_threads_follow_one_rule() {
    let long = "x".repeat(100_000);
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    for engine in [engine(chat()), engine(chat()).with_storage(Arc::clone(&storage))] {
        for name in ["", " ", "a\nb", "--db", "a/b", &long] {
            let turn = engine.turn(name, &say("one")).await.unwrap_err();
            let run = engine.run(&say("one")).named(name).await.unwrap_err();
            for refused in [turn, run] {
                assert!(matches!(refused, RunError::Name(_)), "{refused:?}");
                assert!(refused.to_string().len() < 350, "{refused}");
            }
        }
    }
    assert_eq!(storage.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_turn_on_a_run_that_is_no_thread_is_refused() {
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let engine = engine(chat()).with_storage(storage);
    engine.run(&say("one")).named("t").await.unwrap();
    let refused = engine.turn("t", &say("two")).await.unwrap_err();
    assert!(matches!(refused, RunError::NotThread { .. }), "{refused:?}");
    assert_eq!(refused.to_string(), "`t` is a run and no thread, so it takes no turns");
}

#[tokio::test]
async fn a_thread_is_migrated_between_two_turns() {
    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    struct Longer {
        said: Option<String>,
        #[serde(default)]
        #[schemars(extend("x-merge" = "append"))]
        lines: Vec<String>,
        #[serde(default)]
        count: u32,
    }
    async fn count(chat: Longer) -> Result<Longer, NodeError> {
        let lines = chat.said.into_iter().collect();
        Ok(Longer { lines, count: chat.count + 1, ..Longer::default() })
    }
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let with = |graph: GraphBuilder| engine(graph).with_storage(Arc::clone(&storage));
    let old = chat().max_visits("keep", 2, FAIL);
    let first = with(old).turn("t", &say("one")).await.unwrap();
    let longer = || {
        let graph = GraphBuilder::new::<Longer>("chat").node("count", count);
        with(graph.edge(START, "count").edge("count", END))
    };
    let refused = longer().turn("t", &say("two")).await.unwrap_err();
    assert!(matches!(refused, RunError::Broken { .. }), "{refused:?}");
    let cause = refused.source().unwrap().to_string();
    assert!(cause.starts_with("the field `count` (int) is new; the run has no value"), "{cause}");

    // The visits of `keep` end with its turn, so the node may be gone.
    let preview = longer().try_migration(&first.run, &Mapping::default()).await.unwrap();
    let migrated = longer().migrate(&first.run, &Mapping::default(), None).await.unwrap();
    assert_eq!((migrated.position.frontier.len(), preview), (0, migrated));
    assert_eq!(storage.find("t").await.unwrap().status, Status::Done);
    let end = longer().turn("t", &say("two")).await.unwrap();
    let state = end.output::<Longer>().unwrap();
    assert_eq!((state.count, state.lines), (1, vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!(end.position.earlier.turns, 1);

    let run = longer().run(&say("one")).named("run").await.unwrap();
    let ended = longer().migrate(&run.run, &Mapping::default(), None).await.unwrap_err();
    assert!(matches!(ended, RunError::Revise(graphrun::engine::ReviseError::AtItsEnd)), "{ended}");
}

/// Only nodes see private fields.
#[tokio::test]
async fn a_stream_has_no_private_fields() {
    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    struct Secretive {
        #[serde(default)]
        answer: u32,
        #[serde(default)]
        #[schemars(extend("x-private" = true))]
        scratch: u32,
    }
    async fn think(it: Secretive) -> Result<Secretive, NodeError> {
        Ok(Secretive { answer: it.answer + 1, scratch: 7 })
    }
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let graph = || {
        let graph = GraphBuilder::new::<Secretive>("think").node("think", think);
        engine(graph.edge(START, "think").edge("think", END))
    };
    for engine in [graph(), graph().with_storage(storage)] {
        let run = engine.run(&Secretive::default());
        let run = run.stream([StreamMode::Values, StreamMode::Updates]).start().await.unwrap();
        let chunks: Vec<StreamChunk> = futures_util::StreamExt::collect(run).await;
        assert!(chunks.len() >= 2, "{chunks:?}");
        for chunk in chunks {
            match chunk {
                StreamChunk::Values { state, .. } => {
                    assert_eq!(state.get("scratch"), None);
                    assert!(state.get("answer").is_some());
                }
                StreamChunk::Updates { update, .. } => {
                    let names = update.writes.iter().map(|(name, _)| name.as_str());
                    assert_eq!(names.collect::<Vec<_>>(), ["answer"]);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Talk {
    #[serde(default)]
    #[schemars(extend("x-merge" = "messages"))]
    messages: Vec<serde_json::Value>,
}

fn talk() -> Engine {
    async fn listen() -> Result<(), NodeError> {
        Ok(())
    }
    let graph = GraphBuilder::new::<Talk>("talk").node("listen", listen);
    engine(graph.edge(START, "listen").edge("listen", END))
}

/// A program may hold an id for as long as it likes.
#[tokio::test]
async fn an_id_of_a_removed_message_is_never_given_again() {
    let folder = tempfile::TempDir::new().unwrap();
    for storage in storages(&folder) {
        let engine = talk().with_storage(Arc::clone(&storage));
        let ids = async |thread: &str, write: serde_json::Value| {
            let end = engine.turn(thread, &json!({ "messages": write })).await.unwrap();
            let messages = end.output::<Talk>().unwrap().messages;
            messages.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let text = json!({"text": "x"});
        let remove = |id: &str| json!({"id": id, "remove": true});
        assert_eq!(ids("t", json!([text, text])).await, ["m1", "m2"]);
        assert_eq!(ids("t", remove("m2")).await, ["m1"]);
        assert_eq!(ids("t", text.clone()).await, ["m1", "m3"]);
        assert_eq!(ids("t", remove("__remove_all__")).await, [""; 0]);
        // A fork continues the numbers, also those of messages that its new value drops.
        let thread = storage.find("t").await.unwrap();
        let field = graphrun::id::ChannelName::parse("messages").unwrap();
        for (fork, step, set, expected) in [
            ("fork", thread.step, None, "m4"),
            ("set", Step(5), Some((field, Some(json!([])))), "m4"),
        ] {
            let from = ForkSource { run: thread.info.id.clone(), name: "t".into(), step };
            let info = RunInfo { name: fork.into(), ..RunInfo::new("talk") };
            engine.fork(info, from, set.into_iter().collect()).await.unwrap();
            assert_eq!(ids(fork, text.clone()).await, [expected], "{fork}");
        }
        assert_eq!(ids("t", text).await, ["m4"]);
    }
}

#[tokio::test]
async fn a_thread_is_forked_at_the_end_of_a_turn() {
    let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
    let engine = engine(chat()).with_storage(Arc::clone(&storage));
    let ends = join_all(
        ["one", "two"].map(|text| async { engine.turn("t", &say(text)).queued().await.unwrap() }),
    );
    let first = ends.await.remove(0);
    let from = ForkSource { run: first.run.clone(), name: "t".into(), step: first.position.step };
    let info = RunInfo { name: "fork".into(), ..RunInfo::new("chat") };
    engine.fork(info, from.clone(), BTreeMap::new()).await.unwrap();
    let forked = storage.find("fork").await.unwrap();
    assert_eq!(
        (forked.status, forked.turns),
        (Status::Done, Some(Turns { count: 1, has_ended: true }))
    );
    let end = engine.turn("fork", &say("other")).await.unwrap();
    assert_eq!(end.output::<Chat>().unwrap().lines, ["one", "other"]);
    assert_eq!(storage.find("fork").await.unwrap().turns.unwrap().count, 2);

    // A run that is no thread takes no turns.
    let run = engine.run(&say("one")).await.unwrap();
    let from = ForkSource { run: run.run, step: run.position.step, ..from };
    let refused = engine.fork(RunInfo::new("chat"), from, BTreeMap::new()).await.unwrap_err();
    assert!(matches!(refused, RunError::Revise(graphrun::engine::ReviseError::AtItsEnd)));
}

#[tokio::test]
async fn a_shutdown_ends_the_wait_of_a_queued_turn() {
    async fn waits(ctx: NodeContext) -> Result<(), NodeError> {
        ctx.get::<Arc<tokio::sync::Notify>>()?.notified().await;
        Ok(())
    }
    let graph = GraphBuilder::new::<Chat>("chat").node("waits", waits);
    let notify = Arc::new(tokio::sync::Notify::new());
    let engine = engine(graph.edge(START, "waits").edge("waits", END));
    let engine = engine.provide(Arc::clone(&notify));
    notify.notify_one();
    engine.turn("t", &say("first")).await.unwrap();
    let open = engine.turn("t", &say("one")).start().await.unwrap();
    // The second one waits for the lease, the third one for its place in the queue.
    let shutdown = ShutdownHandle::default();
    let turn = || engine.turn("t", &say("two")).queued().with_shutdown(&shutdown).into_future();
    let (second, third, ()) = futures_util::join!(turn(), turn(), async {
        tokio::task::yield_now().await;
        shutdown.drain();
    });
    for refused in [second, third] {
        assert!(matches!(refused.unwrap_err(), RunError::NotBegun { .. }));
    }
    notify.notify_one();
    assert_eq!(open.outcome().await.unwrap().status, Status::Done);
}
