//! Ranges of numbers, and bounds of loops that are inputs of a run.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use graphrun::{
    checkpoint::{Checkpointer, RunHistory as _, RunInfo, RunJournal as _},
    compile::{CompiledGraph, WorstCase, compile},
    diagnostic::{Diagnostics, SourceFile},
    draw::{Drawing, Reason},
    engine::{Engine, RunError},
    event::Status,
    id::NodeName,
    nodes::{Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    workflow::parse,
};
use serde_json::{Value, json};

use crate::support::ran::{other_codes, run};

/// A gate that a run passes as often as its input allows, with a question to a person after the fourth time.
const GATES: &str = r"
state:
  max_gate: { type: int, min: 1, max: 10, default: 3 }
  passed: { type: int, merge: sum, default: 0 }
  by: string?
  why: string?
input: max_gate
start: gate
nodes:
  gate:
    set: { passed: 1 }
    max_visits: max_gate
    exhausted: out
    then: [{ when: passed == 4, to: ask }, { to: gate }]
  ask: { ask: 'Go on?', writes: by, then: gate }
  out: { set: { why: via.reason }, then: end }
";

fn parsed(text: &str) -> Result<CompiledGraph, Diagnostics> {
    let text = format!("graphrun: 1\nname: case\n{text}");
    let file = Arc::new(SourceFile { name: "case.yaml".into(), text });
    let registry = registry();
    let (workflow, diagnostics) = parse(file, Path::new("tests/workflow"), &registry)?;
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    compile(workflow.into_graph(&factory(Services::offline(), registry)))
}

fn input(value: &Value) -> Update {
    Update::of(value).unwrap()
}

#[tokio::test]
async fn a_node_runs_as_often_as_its_input_allows() {
    for (given, passed) in
        [(json!({}), 3), (json!({"max_gate": 1}), 1), (json!({"max_gate": 2}), 2)]
    {
        let ran = run(GATES, given.clone()).await;
        assert_eq!((ran.end.status, ran.field("passed")), (Status::Done, json!(passed)), "{given}");
        assert_eq!(ran.field("why"), json!("exhausted"), "{given}");
        assert_eq!(ran.steps, format!("{}out", "gate | ".repeat(passed)));
    }
}

#[tokio::test]
async fn an_input_outside_of_its_range_is_refused() {
    for given in [0, 11, -1] {
        let engine = Engine::new(parsed(GATES).unwrap());
        let error = engine.run(input(&json!({"max_gate": given}))).await.unwrap_err();
        let error = chain_of(&error);
        let end =
            if given < 1 { "less than the minimum of 1" } else { "greater than the maximum of 10" };
        assert!(error.contains("max_gate") && error.contains(end), "{error}");
    }
}

fn chain_of(error: &RunError) -> String {
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |it| it.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn a_write_outside_of_its_range_fails_its_node() {
    let workflow = r"
state: { given: json, level: { type: int, min: 0, max: 5, default: 0 }, sum: { type: float, max: 7.5, merge: sum, default: 0 } }
input: given
start: raise
nodes:
  raise: { set: { level: given }, then: add }
  add: { set: { sum: given }, max_visits: 2, exhausted: end, then: add }
";
    let ran = run(workflow, json!({"given": 3})).await;
    assert_eq!((ran.end.status, ran.field("sum")), (Status::Done, json!(6)));
    let ran = run(workflow, json!({"given": 6})).await;
    assert_eq!((ran.end.status, ran.field("level")), (Status::Failed, json!(0)));
    // The folded value counts, too.
    let ran = run(workflow, json!({"given": 4})).await;
    assert_eq!((ran.end.status, ran.field("sum")), (Status::Failed, json!(4)));
}

#[tokio::test]
async fn a_bound_is_the_same_after_a_pause() {
    for (given, passed) in [(5, 5), (9, 9)] {
        let storage = Arc::new(InMemoryStorage::default());
        let engine = || {
            let storage = Arc::clone(&storage) as Arc<dyn Checkpointer>;
            Engine::new(parsed(GATES).unwrap()).with_storage(storage)
        };
        let info = RunInfo::new("case");
        let run = engine().run(input(&json!({"max_gate": given}))).with_info(info.clone());
        assert_eq!(run.await.unwrap().status, Status::Paused);
        let key = engine().resume(&info.id).await.unwrap().questions[0].name.clone();
        let end = engine()
            .resume(&info.id)
            .with_answers(BTreeMap::from([(key, json!("yes"))]))
            .await
            .unwrap();
        assert_eq!(end.state.get("passed"), Some(&json!(passed)));
    }
}

#[tokio::test]
async fn a_used_workflow_has_the_bound_of_each_call() {
    let workflow = r"
state: { most: { type: int, min: 1, max: 3 }, rounds: { type: int, merge: sum, default: 0 }, made: { type: [int], merge: append } }
input: most
start: draft
nodes:
  draft:
    use: { workflow: used/bounded.yaml, in: { most: 'rounds == 0 ? most : 4' }, out: { made: made } }
    max_visits: 2
    exhausted: end
    then: count
  count: { set: { rounds: 1 }, then: draft }
";
    let ran = run(workflow, json!({"most": 2})).await;
    assert_eq!((ran.end.status, ran.field("made")), (Status::Done, json!([2, 4])), "{:?}", ran.end);
}

#[test]
fn the_worst_case_has_the_largest_bound() {
    let compiled = parsed(GATES).unwrap();
    let worst_case = WorstCase::of(&compiled);
    let gate = NodeName::parse("gate").unwrap();
    assert_eq!(worst_case.nodes[&gate].visits_max, 10);
}

#[tokio::test]
async fn a_drawing_over_a_run_has_the_bound_of_the_run() {
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(parsed(GATES).unwrap())
        .with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("case");
    let run = engine.run(input(&json!({"max_gate": 2}))).with_info(info.clone());
    assert_eq!(run.await.unwrap().status, Status::Done);
    let saved = storage.load(&info.id).await.unwrap();
    let records = storage.records(&info.id).await.unwrap();
    let drawing = Drawing::of(parsed(GATES).unwrap().definition());
    let gate = |drawing: &Drawing| {
        drawing.nodes.iter().find(|it| it.name.as_str() == "gate").unwrap().max_visits
    };
    assert_eq!(gate(&drawing), Some(10));
    let drawing = drawing.with_run(&saved, &records);
    assert_eq!(gate(&drawing), Some(2));
    let exhausted = drawing.arrows.iter().find(|it| it.reason == Reason::Exhausted).unwrap();
    assert_eq!(exhausted.taken, Some(1));
}

#[test]
fn conditions_know_the_range_of_a_number() {
    let workflow = |condition: &str| {
        format!(
            r"
types: {{ Plan: {{ level: {{ type: int, min: 1, max: 3 }}, share: {{ type: 'float?', min: 0 }} }} }}
state: {{ plan: Plan, count: {{ type: int, max: 9 }}, free: int }}
input: [plan, count, free]
start: a
nodes:
  a: {{ set: {{ free: '1' }}, then: [{{ when: {condition}, to: b }}, {{ to: end }}] }}
  b: {{ set: {{ free: '2' }}, then: end }}
"
        )
    };
    let codes = |condition: &str| -> Vec<&'static str> {
        let diagnostics = parsed(&workflow(condition)).err().unwrap_or_default();
        other_codes(&diagnostics)
    };
    for never in ["plan.level > 3", "plan.level < 1", "count == 10", "plan.level >= 1"] {
        assert!(!codes(never).is_empty(), "{never}");
    }
    for open in
        ["plan.level > 2", "count < -100", "free > 9", "has(plan.share) && plan.share > 3.5"]
    {
        assert_eq!(codes(open), [""; 0], "{open}");
    }
}
