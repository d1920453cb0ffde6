//! Routes that fail: the result of their node is kept, and only the decision is tried again.

use std::sync::atomic::{AtomicUsize, Ordering};

use graphrun::{
    checkpoint::{Mapping, Outcome, RunHistory as _, RunJournal as _},
    engine::{check_retry, failures},
    event::{Event, Status},
    graph::{ErrorKind, GraphBuilder, IntoNode, NodeError, START},
    id::ChannelName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sums {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
    #[serde(default)]
    n: u32,
}

#[derive(Serialize, JsonSchema)]
struct Worked {
    notes: Vec<String>,
    n: u32,
}

/// A node whose route divides by its own write, beside another node.
fn graph(ran: &Arc<AtomicUsize>, is_broken: bool) -> CompiledGraph {
    let ran = Arc::clone(ran);
    let work = node_fn(move |_: Nothing, _| {
        ran.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, NodeError>(Worked { notes: vec!["work".into()], n: 0 }) }
    });
    compiled(
        GraphBuilder::new::<Sums>("sums")
            .node("work", work.with_policies(caught_by("help")))
            .node("beside", notes_its_way())
            .node("next", notes_its_way())
            .node("help", notes_its_way())
            .edge(START, "work")
            .edge(START, "beside")
            .route("work", ["next"], move |sums: &Sums| {
                assert!(!is_broken || 10 / sums.n > 1, "unreachable: it divides by zero");
                "next"
            })
            .edge("beside", "end"),
    )
}

const REASON: &str =
    "`work` finished, but its route failed: the route panicked: attempt to divide by zero";

/// Returns a run that stopped at its broken route.
async fn stopped(ran: &Arc<AtomicUsize>) -> Saved {
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph(ran, true))).await;
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(REASON)));
    saved
}

#[tokio::test]
async fn a_panic_in_a_route_keeps_the_result_of_its_node() {
    let ran = Arc::default();
    let saved = stopped(&ran).await;
    let stopped = saved.storage.load(saved.run()).await.unwrap();
    let failed = failures(&stopped.records);
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].0.as_str(), failed[0].1.kind), ("work", ErrorKind::Panic));
    check_retry(&stopped, Some(&name("work"))).unwrap();

    // A retry decides again, and a corrected workflow succeeds.
    let end = saved.resume(&saved.engine(&graph(&ran, true))).await.unwrap();
    assert_eq!(end.reason.as_deref(), Some(REASON));
    let end = saved.resume(&saved.engine(&graph(&ran, false))).await.unwrap();
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, ["beside", "work", "next"].map(String::from).to_vec())
    );
    assert_eq!(ran.load(Ordering::Relaxed), 1, "the node ran once");

    let journal = saved.storage.journal(saved.run()).await.unwrap();
    let told =
        journal.iter().flat_map(|it| &it.entry.events).filter_map(|event| match &event.event {
            Event::TaskUndecided { node, writes, error, .. } => {
                assert!(error.ends_with("divide by zero"), "{error}");
                assert_eq!(writes, &["notes", "n"]);
                Some(format!("{node} undecided"))
            }
            Event::TaskFinished { node, to, .. } => Some(format!("{node} to {}", to.join(", "))),
            _ => None,
        });
    let told: Vec<String> = told.collect();
    assert_eq!(told.iter().filter(|it| *it == "work undecided").count(), 2, "{told:?}");
    assert_eq!(told.iter().filter(|it| *it == "work to next").count(), 1, "{told:?}");
}

#[tokio::test]
async fn an_update_decides_a_failed_route_or_is_refused() {
    let ran = Arc::default();
    let saved = stopped(&ran).await;
    let engine = saved.engine(&graph(&ran, true));
    let n = ChannelName::parse("n").unwrap();
    let refused = engine.update(saved.run(), Update::default().write(n.clone(), 0), None).await;
    let refused = refused.expect_err("the result of `work` would be lost").to_string();
    assert!(refused.contains("the routes of `work` cannot be evaluated"), "{refused}");

    let position = engine.update(saved.run(), Update::default().write(n, 2), None).await.unwrap();
    let next: Vec<&str> = position.frontier.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(next, ["next"]);
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!((end.status, end.state.get("n")), (Status::Done, Some(&serde_json::json!(2))));
    assert_eq!(notes(&end.state), ["beside", "work", "next"]);
    assert_eq!(ran.load(Ordering::Relaxed), 1, "the node ran once");
}

#[tokio::test]
async fn a_migration_carries_an_undecided_result() {
    let ran = Arc::default();
    let saved = stopped(&ran).await;
    let renamed = Arc::clone(&ran);
    let work = node_fn(move |_: Nothing, _| {
        renamed.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, NodeError>(Worked { notes: vec!["work".into()], n: 0 }) }
    });
    let graph = compiled(
        GraphBuilder::new::<Sums>("sums")
            .node("labour", work)
            .node("beside", notes_its_way())
            .node("next", notes_its_way())
            .edge(START, "labour")
            .edge(START, "beside")
            .edge("labour", "next")
            .edge("beside", "end"),
    );
    let engine = saved.engine(&graph);
    let mapping = Mapping::default().node(name("work"), name("labour")).drop_node(name("help"));
    let migrated = engine.migrate(saved.run(), &mapping, None).await.unwrap();
    let kept = migrated.records.iter().find(|it| it.node == name("labour")).unwrap();
    assert!(matches!(kept.outcome, Outcome::Undecided { .. }), "{kept:?}");
    let loaded = saved.storage.load(saved.run()).await.unwrap();
    assert_eq!(loaded.summary.status, Status::Failed);
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!(notes(&end.state), ["beside", "work", "next"]);
    assert_eq!(ran.load(Ordering::Relaxed), 1, "the node ran once");
}
