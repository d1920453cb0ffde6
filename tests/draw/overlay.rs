//! Runs laid over drawings, compared with the triggers that the nodes received.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{Checkpointer, RunHistory as _, RunInfo, RunJournal as _},
    compile::compile,
    draw::{Charset, Drawing, NodeStatus, Reason},
    engine::{Engine, ShutdownHandle},
    graph::{
        Backoff, Catch, Command, Dispatch, Goto, GraphBuilder, IntoNode, ItemPolicy, Limits, Node,
        NodeContext, NodeError, OnFinish, Policies, START, Schedule, Transition, Trigger,
    },
    id::NodeName,
    state::Update,
    storage::InMemoryStorage,
};
use serde_json::Value;

use super::{bounded, builder, target};

/// The triggers of the nodes of a run.
type Told = Arc<Mutex<BTreeMap<(String, &'static str, String), u64>>>;

/// What a node does at its nth run, from one.
type Work = fn(u32) -> Result<Command, NodeError>;

/// A node that notes its trigger.
struct Noting {
    told: Told,
    runs: Mutex<u32>,
    work: Work,
}

#[async_trait]
impl Node for Noting {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        if ctx.attempt == 1 {
            let (from, how) = match &ctx.trigger {
                Trigger::Start => (String::new(), "start"),
                Trigger::Then { node } => (node.to_string(), "then"),
                Trigger::Exhausted { node, .. } => (node.to_string(), "exhausted"),
                Trigger::Caught { node, .. } => (node.to_string(), "caught"),
                Trigger::Limit { .. } => (String::new(), "limit"),
            };
            let key = (from, how, ctx.node.to_string());
            *self.told.lock().unwrap().entry(key).or_default() += 1;
        }
        let run = {
            let mut runs = self.runs.lock().unwrap();
            *runs += 1;
            *runs
        };
        (self.work)(run)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of every work")]
fn goes_on(_: u32) -> Result<Command, NodeError> {
    Ok(Command::default())
}

fn goto(names: &[&str]) -> Command {
    let transitions = names.iter().map(|it| Transition::To(target(it))).collect();
    Command { update: Update::default(), goto: Goto::Instead(transitions) }
}

/// Runs a graph of nodes that do these things, and lays the run over its drawing.
async fn ran(
    make: impl FnOnce(GraphBuilder, &dyn Fn(Work) -> Noting) -> GraphBuilder,
) -> (Drawing, BTreeMap<(String, &'static str, String), u64>) {
    let told = Told::default();
    let node = |work| Noting { told: Arc::clone(&told), runs: Mutex::default(), work };
    let parts = make(builder("ran"), &node).build();
    let graph = compile(parts).unwrap_or_else(|it| panic!("{it}"));
    let drawing = Drawing::of(graph.definition());
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo { name: "calm-otter".into(), ..RunInfo::new("ran") };
    let id = info.id.clone();
    let stop = ShutdownHandle::default();
    engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();
    let saved = storage.load(&id).await.unwrap();
    let records = storage.records(&id).await.unwrap();
    let told = told.lock().unwrap().clone();
    (drawing.with_run(&saved, &records), told)
}

/// How often the drawing says that an arrow was taken.
fn taken(drawing: &Drawing, from: &str, is_wanted: impl Fn(&Reason) -> bool, to: &str) -> u64 {
    let fits = |arrow: &&graphrun::draw::Arrow| {
        arrow.from.as_ref().map_or("", NodeName::as_str) == from
            && arrow.to == target(to)
            && is_wanted(&arrow.reason)
    };
    drawing.arrows.iter().find(fits).unwrap().taken.unwrap()
}

fn visits(drawing: &Drawing, name: &str) -> Option<graphrun::draw::Visits> {
    drawing.nodes.iter().find(|it| it.name.as_str() == name).unwrap().visits
}

const ROUND: fn(u32) -> Result<Command, NodeError> = |run| match run {
    1..=5 => Ok(goto(&["write"])),
    _ => Ok(goto(&["end"])),
};

#[tokio::test]
async fn used_up_bounds_are_drawn_as_taken_in_each_round() {
    let (drawing, told) = ran(|graph, node| {
        graph
            .node("write", node(goes_on).with_policies(bounded(2, "boss")))
            .node("test", node(ROUND))
            .node(
                "boss",
                node(goes_on).with_policies(Policies {
                    on_finish: OnFinish {
                        resets: vec![NodeName::parse("write").unwrap()],
                        ..OnFinish::default()
                    },
                    ..bounded(2, "give_up")
                }),
            )
            .node("give_up", node(goes_on))
            .edge(START, "write")
            .edge("write", "test")
            .goto("test", ["write", "end"])
            .edge("boss", "write")
            .edge("give_up", "end")
    })
    .await;
    // write test write test (boss) write test write test (boss) write test write, test ends.
    let exhausted = |it: &Reason| *it == Reason::Exhausted;
    let onward = |it: &Reason| !exhausted(it);
    let engine = |from: &str, how, to: &str| {
        told.get(&(from.to_owned(), how, to.to_owned())).copied().unwrap_or(0)
    };
    assert_eq!(engine("write", "exhausted", "boss"), 2);
    assert_eq!(taken(&drawing, "write", exhausted, "boss"), 2);
    assert_eq!(taken(&drawing, "boss", onward, "write"), engine("boss", "then", "write"));
    assert_eq!(taken(&drawing, "write", onward, "test"), 6);
    assert_eq!(taken(&drawing, "test", onward, "write"), 5);
    assert_eq!(taken(&drawing, "test", onward, "end"), 1);
    assert_eq!(taken(&drawing, "boss", exhausted, "give_up"), 0);
    assert_eq!(visits(&drawing, "write").map(|it| it.steps), Some(6));
    assert_eq!(visits(&drawing, "give_up"), None);
    insta::assert_snapshot!(drawing.to_listing(Charset::Unicode));
}

#[tokio::test]
async fn used_up_joins_and_limits_are_drawn_as_taken() {
    let (drawing, told) = ran(|graph, node| {
        graph
            .node("a", node(goes_on))
            .node("b", node(goes_on))
            .node("both", node(goes_on).with_policies(bounded(1, "more")))
            .node("more", node(goes_on).with_policies(bounded(9, "end")))
            .node("flush", node(goes_on))
            .edge(START, "a")
            .edge(START, "b")
            .edge(["a", "b"], "both")
            .edge("both", "a")
            .edge("both", "b")
            .edge("more", "a")
            .edge("more", "b")
            .edge("flush", "end")
            .limits(Limits { steps: 6, exhausted: Some(target("flush")), ..Limits::default() })
    })
    .await;
    // a∥b both a∥b (more) a∥b (more), and then the limit.
    assert_eq!(told[&("both".to_owned(), "exhausted", "more".to_owned())], 2);
    assert_eq!(told[&(String::new(), "limit", "flush".to_owned())], 1);
    let exhausted = |it: &Reason| *it == Reason::Exhausted;
    assert_eq!(taken(&drawing, "both", exhausted, "more"), 2);
    assert_eq!(taken(&drawing, "", exhausted, "flush"), 1);
    let join = |it: &Reason| matches!(it, Reason::Join { .. });
    assert_eq!((taken(&drawing, "a", join, "both"), taken(&drawing, "b", join, "both")), (3, 3));
}

/// The items of a map go where the first failed one leads. A task that an edge started beside them goes its own way.
#[tokio::test]
async fn a_task_beside_the_items_of_its_node_goes_its_own_way() {
    let sends: Work = |_| {
        let node = NodeName::parse("item").unwrap();
        let sent = |n: u64| Transition::Dispatch(Dispatch::new(node.clone(), Value::from(n)));
        Ok(Command { update: Update::default(), goto: Goto::Instead((0..2).map(sent).collect()) })
    };
    // The task of the edge is the first one.
    let items: Work =
        |run| if run > 1 { Err(NodeError::permanent("no")) } else { Ok(Command::default()) };
    let (drawing, told) = ran(|graph, node| {
        let catch = vec![Catch { kind: None, to: target("lost") }];
        let policies = Policies {
            schedule: Schedule { items: Some(ItemPolicy::default()), ..Schedule::default() },
            catch,
            ..Policies::default()
        };
        graph
            .node("plan", node(sends))
            .node("other", node(goes_on))
            .node("item", node(items).with_policies(policies))
            .node("done", node(goes_on))
            .node("lost", node(goes_on))
            .edge(START, "plan")
            .edge(START, "other")
            .dispatches("plan", ["item"])
            .edge("other", "item")
            .edge("item", "done")
            .edge("done", "end")
            .edge("lost", "end")
    })
    .await;
    let engine = |from: &str, how, to: &str| {
        told.get(&(from.to_owned(), how, to.to_owned())).copied().unwrap_or(0)
    };
    assert_eq!((engine("item", "then", "done"), engine("item", "caught", "lost")), (1, 1));
    let caught = |it: &Reason| matches!(it, Reason::Catch(_) | Reason::Failures { .. });
    assert_eq!(taken(&drawing, "item", |it| !caught(it), "done"), 1);
    assert_eq!(taken(&drawing, "item", caught, "lost"), 1);
}

#[tokio::test]
async fn attempts_dispatches_and_failures_are_counted() {
    let flaky: Work = |run| match run {
        1 | 2 => Err(NodeError::transient("not yet")),
        _ => {
            let transition = |n: u64| {
                let node = NodeName::parse("item").unwrap();
                Transition::Dispatch(Dispatch::new(node, Value::from(n)))
            };
            let goto = Goto::Instead((0..3).map(transition).collect());
            Ok(Command { update: Update::default(), goto })
        }
    };
    let fails: Work = |run| if run == 2 { Err(NodeError::permanent("no")) } else { goes_on(run) };
    let (drawing, told) = ran(|graph, node| {
        let retry = Backoff {
            attempts_max: Some(3),
            initial: std::time::Duration::ZERO,
            max: std::time::Duration::ZERO,
            total: None,
            ..Backoff::default()
        };
        let catch = vec![graphrun::graph::Catch { kind: None, to: target("mend") }];
        graph
            .node("flaky", node(flaky).backoff(retry))
            .node("item", node(fails).with_policies(Policies { catch, ..Policies::default() }))
            .node("mend", node(goes_on))
            .edge(START, "flaky")
            .dispatches("flaky", ["item"])
            .edge("item", "end")
            .edge("mend", "end")
    })
    .await;
    let flaky = visits(&drawing, "flaky").unwrap();
    assert_eq!((flaky.steps, flaky.tasks, flaky.attempts, flaky.failures), (1, 1, 3, 2));
    let item = visits(&drawing, "item").unwrap();
    assert_eq!((item.steps, item.tasks, item.attempts, item.failures), (1, 3, 3, 1));
    assert_eq!(told[&("item".to_owned(), "caught", "mend".to_owned())], 1);
    assert_eq!(taken(&drawing, "item", |it| matches!(it, Reason::Catch(_)), "mend"), 1);
    assert_eq!(taken(&drawing, "item", |it| *it == Reason::Always, "end"), 2);
    assert_eq!(taken(&drawing, "flaky", |it| *it == Reason::Goto, "item"), 3);
}

#[tokio::test]
async fn a_skipped_node_did_not_run_and_the_run_continued() {
    let (drawing, told) = ran(|graph, node| {
        graph
            .node("a", node(goes_on))
            .node("b", node(goes_on))
            .node("c", node(goes_on))
            .edge(START, "a")
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", "end")
            .when("b", "it matters", |_: &Value| false)
    })
    .await;
    assert!(!told.keys().any(|(_, _, node)| node == "b"), "{told:?}");
    let skipped = visits(&drawing, "b").unwrap();
    assert_eq!((skipped.steps, skipped.tasks, skipped.skipped), (0, 0, 1));
    assert!(drawing.to_mermaid().contains("class n1 unreached"), "{}", drawing.to_mermaid());
    assert_eq!(taken(&drawing, "b", |it| *it == Reason::Always, "c"), 1);
    insta::assert_snapshot!(drawing.to_listing(Charset::Unicode), @r"
    ran
    calm-otter: done after 3 steps
    └─ start → a ×1

    a (node, ran once)
    └─→ b ×1

    b (node, when it matters, skipped once)
    └─→ c ×1

    c (node, ran once)
    └─→ end ×1
    ");
}

#[tokio::test]
async fn where_a_run_failed_is_where_it_stands() {
    let fails: Work = |_| Err(NodeError::permanent("no"));
    let (drawing, _) = ran(|graph, node| {
        graph
            .node("a", node(goes_on))
            .node("b", node(fails))
            .node("c", node(goes_on))
            .edge(START, "a")
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", "end")
    })
    .await;
    assert_eq!(visits(&drawing, "b").unwrap().status, Some(NodeStatus::Failed));
    assert_eq!((visits(&drawing, "a").unwrap().status, visits(&drawing, "c")), (None, None));
    insta::assert_snapshot!(drawing.to_listing(Charset::Unicode), @r"
    ran
    calm-otter: failed after 1 step: `b` failed: no
    └─ start → a ×1

    a (node, ran once)
    └─→ b ×1

    b (node, ran once, 1 failed, failed)
    └─→ c

    c (node, not reached)
    └─→ end
    ");
    for (text, words) in [
        (drawing.to_mermaid(), ["class n1 failed", "class n2 unreached"]),
        (drawing.to_dot(), ["penwidth=3", "not reached"]),
        (drawing.to_svg(), ["class=\"node failed\"", "(taken 1 time)"]),
    ] {
        assert!(words.iter().all(|it| text.contains(it)), "{text}");
    }
}

#[tokio::test]
async fn parts_missing_in_a_changed_workflow_become_notes() {
    let storage = Arc::new(InMemoryStorage::default());
    let told = Told::default();
    let node = || Noting { told: Arc::clone(&told), runs: Mutex::default(), work: goes_on };
    let old = builder("ran")
        .node("a", node())
        .node("gone", node())
        .edge(START, "a")
        .edge("a", "gone")
        .edge("gone", "end");
    let graph = old.compile().unwrap();
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("ran");
    let id = info.id.clone();
    let stop = ShutdownHandle::default();
    engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();

    let new = builder("ran").node("a", node()).edge(START, "a").edge("a", "end").build().graph;
    let saved = storage.load(&id).await.unwrap();
    let records = storage.records(&id).await.unwrap();
    let drawing = Drawing::of(&new).with_run(&saved, &records);
    let run = drawing.run.as_ref().unwrap();
    assert_eq!(
        run.notes,
        [
            "the run reached `gone`, which the drawing lacks",
            "the run went from `a` to `gone`, and no edge leads there now",
            "the run went from `gone` to `end`, and no edge leads there now",
        ]
    );
    assert_eq!(taken(&drawing, "a", |it| *it == Reason::Always, "end"), 0);
    for text in [drawing.to_listing(Charset::Unicode), drawing.to_svg()] {
        assert!(text.contains("note: the run reached `gone`"), "{text}");
    }
}
