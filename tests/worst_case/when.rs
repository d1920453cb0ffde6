//! Nodes whose conditions exclude each other: their work is not added up.

use std::{path::Path, sync::Arc};

use graphrun::{
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    nodes::{Services, factory},
    registry,
    workflow::parse,
};

use super::*;

/// Compiles a workflow with these nodes, which begins with `sort`.
fn workflow(nodes: &str) -> CompiledGraph {
    let text = format!(
        "graphrun: 1\nname: sorted\nstate: {{ brief: string, kind: bug | idea | other, size: int, texts: {{ type: \
         [string], merge: append }} }}\ninput: [brief, size]\nmodels: {{ m: openai/gpt-5-mini }}\nagents: {{ a: {{ model: m \
         }} }}\ndefaults: {{ retry: 1 }}\nlimits: {{ steps: 1000 }}\nstart: sort\nnodes:\n{nodes}"
    );
    let file = Arc::new(SourceFile { name: "sorted.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new(""), &registry()).unwrap_or_else(|it| panic!("{it}"));
    let graph = workflow.into_graph(&factory(Services::offline(), registry()));
    compile(graph).unwrap_or_else(|it| panic!("{it}"))
}

/// How many agents' work the worst case has: the calls of all nodes by those of one.
fn agents(nodes: &str) -> u64 {
    let worst_case = WorstCase::of(&workflow(nodes));
    let sort = &worst_case.nodes[&name("sort")];
    let one = sort.calls_max.unwrap() / sort.visits_max;
    let all = worst_case.calls_max().unwrap();
    assert_eq!(all % one, 0, "{all} calls of {one} each: {worst_case:#?}");
    all / one
}

const SORT: &str =
    "  sort: { agent: a, prompt: { text: \"{{ brief }}\" }, writes: kind, then: THEN }\n";
const BUG: &str = "  bug: { agent: a, prompt: { text: \"{{ brief }}\" }, when: WHEN, writes: texts, then: THEN }\n";
const IDEA: &str = "  idea: { agent: a, prompt: { text: \"{{ brief }}\" }, when: WHEN, writes: texts, then: THEN }\n";

fn nodes(parts: &[(&str, &str, &str)]) -> String {
    parts
        .iter()
        .map(|(node, when, then)| node.replace("WHEN", when).replace("THEN", then))
        .collect()
}

#[test]
fn of_siblings_that_exclude_each_other_one_works() {
    let siblings = |bug: &str, idea: &str| {
        agents(&nodes(&[(SORT, "", "[bug, idea]"), (BUG, bug, "end"), (IDEA, idea, "end")]))
    };
    assert_eq!(siblings("kind == \"bug\"", "kind == \"idea\""), 2);
    assert_eq!(siblings("kind == \"bug\" && size > 2", "size <= 2"), 2);
    assert_eq!(siblings("kind != \"bug\"", "kind != \"idea\""), 3);
    assert_eq!(siblings("kind == \"bug\"", "size > 2"), 3);
}

#[test]
fn in_a_row_one_works_if_nothing_changes_the_fields() {
    let row = |bug: &str, idea: &str| {
        agents(&nodes(&[(SORT, "", "bug"), (BUG, bug, "idea"), (IDEA, idea, "end")]))
    };
    assert_eq!(row("kind == \"bug\"", "kind == \"idea\""), 2);
    assert_eq!(row("size > 2", "size <= 2"), 2);
    assert_eq!(row("kind == \"bug\"", "kind != \"idea\""), 3);
    // A count of visits changes in the run.
    assert_eq!(row("visits(\"idea\") == 0", "visits(\"idea\") > 0"), 3);
    let rewritten = BUG.replace("writes: texts", "writes: kind");
    let parts = [
        (SORT, "", "bug"),
        (rewritten.as_str(), "kind == \"bug\"", "idea"),
        (IDEA, "kind == \"idea\"", "end"),
    ];
    assert_eq!(agents(&nodes(&parts)), 3);
}

/// In each round, another one may work.
#[test]
fn in_a_loop_one_works_in_each_round() {
    let bound = "end, max_visits: 3, exhausted: end";
    let sort = SORT.replace("then: THEN", "max_visits: 3, exhausted: end, then: THEN");
    let bug = "kind == \"bug\"";
    let idea = "kind == \"idea\"";
    let siblings = [(sort.as_str(), "", "[bug, idea]"), (BUG, bug, "sort"), (IDEA, idea, "sort")];
    assert_eq!(agents(&nodes(&siblings)), 6);
    let row = [(sort.as_str(), "", "bug"), (BUG, bug, "idea"), (IDEA, idea, "sort")];
    assert_eq!(agents(&nodes(&row)), 9);
    let once = [(SORT, "", "bug"), (BUG, bug, "idea"), (IDEA, idea, bound)];
    assert_eq!(agents(&nodes(&once)), 2);
}
