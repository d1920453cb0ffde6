//! Used workflows with limits: each call is a nested run, whose work counts as that of its node.

use std::{path::Path, sync::Arc};

use graphrun::{
    compile::{WorstCase, compile},
    diagnostic::SourceFile,
    id::NodeName,
    nodes::{Services, factory},
    registry,
    workflow::parse,
};

/// The attempts and the calls of a node that uses a workflow, three times in a loop.
fn attempts_and_calls(of: &str, policies: &str) -> (u64, Option<u64>) {
    let text = format!(
        "graphrun: 1\nname: outer\nstate: {{ brief: string, out: string }}\ninput: brief\noutput: out\nstart: a\nnodes:\n  \
         a: {{ use: {{ workflow: used/limited.yaml, in: {{ text: brief }}, out: {{ out: text }}{of} }}, {policies}max_visits: 3, \
         exhausted: end, then: b }}\n  b: {{ set: {{ out: out }}, then: [{{ when: out.size() > 3, to: end }}, {{ to: a }}] }}\n"
    );
    let file = Arc::new(SourceFile { name: "outer.yaml".into(), text });
    let (workflow, _) =
        parse(file, Path::new("tests/workflow"), &registry()).unwrap_or_else(|it| panic!("{it}"));
    let graph = compile(workflow.into_graph(&factory(Services::offline(), registry())));
    let worst_case = WorstCase::of(&graph.unwrap_or_else(|it| panic!("{it}")));
    let node = if of.is_empty() { "a" } else { "a.work" };
    let node = &worst_case.nodes[&NodeName::parse_path(node).unwrap()];
    (node.attempts_max, node.calls_max)
}

#[test]
fn the_attempts_within_a_nested_run_count_once() {
    let (attempts, calls) = attempts_and_calls(", nested: false", "");
    assert_eq!(attempts, 18);
    assert_eq!(attempts_and_calls("", ""), (3, calls));
    assert_eq!(attempts_and_calls("", "retry: 2, "), (6, calls.map(|it| it * 2)));
}
