//! Runs workflows that are written in a test.

use std::{path::Path, sync::Arc};

use graphrun::{
    checkpoint::{Checkpointer, Outcome, RunHistory as _, RunInfo},
    compile::compile,
    diagnostic::{Diagnostics, SourceFile},
    engine::{Engine, RunEnd},
    nodes::{Services, factory},
    registry,
    state::Update,
    storage::InMemoryStorage,
    workflow::parse,
};
use serde_json::Value;

/// A finished run, and the nodes of its steps: `a b | c`; skipped ones are in brackets.
pub(crate) struct TestRun {
    pub(crate) end: RunEnd,
    pub(crate) steps: String,
}

impl TestRun {
    /// Returns a field of the final state; null if it has no value.
    pub(crate) fn field(&self, name: &str) -> Value {
        self.end.state.get(name).cloned().unwrap_or_default()
    }
}

/// Returns the codes of the diagnostics, without unread inputs and nodes that run twice, which short workflows often have.
pub(crate) fn other_codes(diagnostics: &Diagnostics) -> Vec<&'static str> {
    let others = diagnostics.in_order();
    let others = others.iter().filter(|it| !["GR018", "GR139", "GR140"].contains(&it.code));
    others.map(|it| it.code).collect()
}

/// Runs a workflow without its first two lines; it must have no warnings but those of an unread input.
pub(crate) async fn run(workflow: &str, input: Value) -> TestRun {
    let text = format!("graphrun: 1\nname: case\n{workflow}");
    let file = Arc::new(SourceFile { name: "case.yaml".into(), text });
    let registry = registry();
    let (workflow, warnings) =
        parse(file, Path::new("tests/workflow"), &registry).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(other_codes(&warnings), [""; 0], "{warnings}");
    let factory = factory(Services::offline(), registry);
    let graph = compile(workflow.into_graph(&factory)).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(other_codes(graph.warnings()), [""; 0], "{}", graph.warnings());

    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("case");
    let update = Update::of(&input).unwrap();
    let end = engine.run(update).with_info(info.clone()).await.unwrap();
    let mut steps: Vec<(u64, Vec<String>)> = Vec::new();
    for record in storage.records(&info.id).await.unwrap() {
        let step = record.task.step.0;
        let node = match record.outcome {
            Outcome::Skipped { .. } => format!("({})", record.node),
            _ => record.node.to_string(),
        };
        match steps.last_mut() {
            Some((last, nodes)) if *last == step => nodes.push(node),
            _ => steps.push((step, vec![node])),
        }
    }
    let sorted = steps.into_iter().map(|(_, mut nodes)| {
        nodes.sort();
        nodes.join(" ")
    });
    let steps = sorted.collect::<Vec<_>>().join(" | ");
    TestRun { end, steps }
}
