//! Retries of failed tasks, and only of those.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use graphrun::{
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::{Engine, RunEnd, RunError, failures},
    event::Status,
    graph::{
        ErrorKind, Failure, FailureClass, GraphBuilder, NodeContext, NodeError, Question, START,
        node_fn,
    },
    nodes::{Services, factory},
    registry,
    workflow::parse,
};

use super::{Nothing, Saved, Team, compiled, name, noted, notes, notes_its_way};

/// The nodes that ran, in the order in which they began.
type NodeLog = Arc<Mutex<Vec<String>>>;

/// The nodes that are broken at the moment.
type Broken = Arc<Mutex<Vec<&'static str>>>;

fn taken(ran: &NodeLog) -> Vec<String> {
    let mut ran = std::mem::take(&mut *ran.lock().unwrap());
    ran.sort();
    ran
}

/// Three parallel nodes, some of them broken, and a join that waits for all.
fn three(ran: &NodeLog, broken: &Broken) -> CompiledGraph {
    let work = || {
        let ran = Arc::clone(ran);
        let broken = Arc::clone(broken);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let ran = Arc::clone(&ran);
            let broken = Arc::clone(&broken);
            async move {
                ran.lock().unwrap().push(ctx.node.to_string());
                if broken.lock().unwrap().contains(&ctx.node.as_str()) {
                    return Err(NodeError::permanent("broken"));
                }
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                noted(ctx.node.as_str())
            }
        })
    };
    compiled(
        GraphBuilder::new::<Team>("three")
            .node("one", work())
            .node("two", work())
            .node("three", work())
            .node("all", notes_its_way())
            .edge(START, "one")
            .edge(START, "two")
            .edge(START, "three")
            .edge(["one", "two", "three"], "all"),
    )
}

async fn retry(saved: &Saved, engine: &Engine, node: Option<&str>) -> Result<RunEnd, RunError> {
    let node = node.map(name);
    engine.retry(saved.run()).only(node.clone()).await
}

#[tokio::test(start_paused = true)]
async fn retry_runs_only_the_failed_parallel_tasks() {
    let ran = NodeLog::default();
    let broken = Broken::default();
    *broken.lock().unwrap() = vec!["one", "three"];
    let saved = Saved::new();
    let graph = three(&ran, &broken);
    let engine = saved.engine(&graph);
    let end = saved.start(&engine).await;
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some("`one` failed: broken")));
    assert_eq!(taken(&ran), ["one", "three", "two"]);

    // One node is repaired and retried: the other failure is kept.
    broken.lock().unwrap().clear();
    let end = retry(&saved, &engine, Some("one")).await.unwrap();
    assert_eq!(
        (end.status, end.reason.as_deref()),
        (Status::Failed, Some("`three` failed: broken"))
    );
    assert_eq!(taken(&ran), ["one"]);

    let refused = retry(&saved, &engine, Some("one")).await.unwrap_err();
    assert_eq!(refused.to_string(), "`one` did not fail; the failed nodes are `three`");
    let end = retry(&saved, &engine, None).await.unwrap();
    assert_eq!((end.status, notes(&end.state).len()), (Status::Done, 4));
    assert_eq!(taken(&ran), ["three"]);
    let refused = retry(&saved, &engine, None).await.unwrap_err();
    assert_eq!(refused.to_string(), "the run is done, and only failed runs can be retried");
}

#[tokio::test(start_paused = true)]
async fn a_run_failed_by_a_route_has_nothing_to_retry() {
    let graph = GraphBuilder::new::<Team>("refused")
        .node("judge", notes_its_way())
        .edge(START, "judge")
        .edge("judge", "fail");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    assert_eq!(saved.start(&engine).await.status, Status::Failed);
    let refused = retry(&saved, &engine, None).await.unwrap_err();
    assert!(matches!(refused, RunError::NothingFailed { node: None, .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_question_stays_open_when_a_parallel_failure_is_retried() {
    let ran = NodeLog::default();
    let broken = Broken::default();
    *broken.lock().unwrap() = vec!["one"];
    let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        noted(ctx.ask::<String>(Question::new("go", "Go on?"))?)
    });
    let seen = Arc::clone(&ran);
    let fails = Arc::clone(&broken);
    let works = node_fn(move |_: Nothing, ctx: NodeContext| {
        seen.lock().unwrap().push(ctx.node.to_string());
        let is_broken = !fails.lock().unwrap().is_empty();
        async move { if is_broken { Err(NodeError::permanent("no")) } else { noted("worked") } }
    });
    let graph = GraphBuilder::new::<Team>("asks")
        .node("asks", asks)
        .node("works", works)
        .edge(START, "asks")
        .edge(START, "works");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    let end = saved.start(&engine).await;
    assert_eq!((end.status, end.questions.len()), (Status::Failed, 1));
    broken.lock().unwrap().clear();
    let end = retry(&saved, &engine, None).await.unwrap();
    assert_eq!((end.status, end.questions.len()), (Status::Paused, 1));
    assert_eq!(taken(&ran), ["works", "works"]);
}

#[test]
fn every_failure_has_one_class() {
    for kind in ErrorKind::ALL {
        let failure = Failure::new(kind, "no");
        let mended = failure.class();
        let again = Failure { transient: true, ..failure }.class();
        let expected = match kind {
            ErrorKind::Panic => [FailureClass::Bug; 2],
            _ if kind.is_for_the_operator() => [FailureClass::NeedsHuman; 2],
            _ => [FailureClass::Permanent, FailureClass::Retryable],
        };
        assert_eq!([mended, again], expected, "{kind}");
    }
    assert!(failures(&[]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_workflow_names_the_kinds_that_are_retried() {
    let timeout = "retry: { attempts: 3, on: timeout }, ";
    for (defaults, own, kind, expected) in [
        ("5", "retry: { attempts: 3, on: [timeout, sandbox] }, ", ErrorKind::Sandbox, Status::Done),
        ("5", timeout, ErrorKind::Timeout, Status::Done),
        ("5", timeout, ErrorKind::Command, Status::Failed),
        ("{ attempts: 3, on: [command] }", "", ErrorKind::Command, Status::Done),
        ("{ attempts: 3, on: [command] }", "", ErrorKind::Tool, Status::Failed),
        ("3", "", ErrorKind::Command, Status::Failed),
    ] {
        let text = format!(
            "graphrun: 1\nname: named\nstate: {{ topic: string? }}\n\
             defaults: {{ retry: {defaults} }}\nstart: works\n\
             nodes: {{ works: {{ node: works, {own}then: end }} }}\n"
        );
        let works = node_fn(move |_: Nothing, ctx: NodeContext| async move {
            let failure = Failure::new(kind, "no luck");
            if ctx.attempt < 3 { Err(NodeError::from(failure)) } else { Ok(()) }
        });
        let registry = registry().node("works", Arc::new(works));
        let file = Arc::new(SourceFile { name: "named.yaml".into(), text });
        let (workflow, _) = parse(file, Path::new("."), &registry).unwrap();
        let graph = compile(workflow.into_graph(&factory(Services::offline(), registry))).unwrap();
        let saved = Saved::new();
        let end = saved.start(&saved.engine(&graph)).await;
        assert_eq!(end.status, expected, "{defaults} {own}{kind}: {:?}", end.reason);
    }
}
