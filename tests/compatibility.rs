//! Where graphrun is meant to do what LangGraph does: the rows of `COMPATIBILITY.md` that no other
//! test shows, and that every test which the page names is there.

use std::fs;

use graphrun::{
    engine::Engine,
    event::Status,
    graph::{
        Command, Goto, GraphBuilder, NodeContext, NodeError, START, Target, Transition, node_fn,
    },
    id::NodeName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::ran::run;

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = fs::read_to_string("COMPATIBILITY.md").unwrap();
    let rows = page.lines().filter(|it| it.starts_with("| ") && it.contains("`tests/"));
    let mut named = 0;
    for row in rows {
        let test = row.rsplit('`').nth(1).unwrap();
        let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("no test in {row}"));
        let source = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut lines = source.lines().map(str::trim).zip(source.lines().skip(1).map(str::trim));
        let declared = [format!("fn {name}()"), format!("async fn {name}()")];
        let is_test = lines.any(|(attribute, line)| {
            (attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test"))
                && declared.iter().any(|it| line.starts_with(it.as_str()))
        });
        assert!(is_test, "there is no test {test}");
        named += 1;
    }
    let tables = page.split("\n## ").filter(|it| it.contains("shown by"));
    let rows = tables.flat_map(str::lines).filter(|it| it.starts_with("| ")).count();
    assert_eq!((rows, named >= 25), (named + 2, true), "every row but the headings names a test");
}

#[tokio::test]
async fn a_node_sees_the_state_as_it_was_when_its_step_began() {
    let ran = run(
        r#"
state: { word: { type: string, default: old }, seen: string, later: string }
start: [a, b]
nodes:
  a: { set: { word: '"new"' }, then: c }
  b: { set: { seen: word }, then: end }
  c: { set: { later: word }, then: end }
"#,
        json!({}),
    )
    .await;
    assert_eq!(ran.steps, "a b | c");
    assert_eq!((ran.field("seen"), ran.field("later")), (json!("old"), json!("new")));
}

#[tokio::test]
async fn a_node_that_several_edges_lead_to_in_one_step_runs_once() {
    let ran = run(
        r"
state: { count: { type: int, merge: sum, default: 0 } }
start: [a, b, c]
nodes:
  a: { set: { count: 1 }, then: d }
  b: { set: { count: 1 }, then: d }
  c: { set: { count: 1 }, then: d }
  d: { set: { count: 10 }, then: end }
",
        json!({}),
    )
    .await;
    assert_eq!((ran.steps.as_str(), ran.field("count")), ("a b c | d", json!(13)));
}

#[tokio::test]
async fn a_node_that_is_reached_in_two_steps_runs_in_both() {
    let ran = run(
        r"
state: { count: { type: int, merge: sum, default: 0 } }
start: [a, b]
nodes:
  a: { set: { count: 1 }, then: d }
  b: { set: { count: 1 }, then: c }
  c: { set: { count: 1 }, then: d }
  d: { set: { count: 10 }, then: end }
",
        json!({}),
    )
    .await;
    assert_eq!((ran.steps.as_str(), ran.field("count")), ("a b | c d | d", json!(23)));
}

#[tokio::test]
async fn a_join_waits_again_in_every_round_of_a_loop() {
    let ran = run(
        r"
state: { count: { type: int, merge: sum, default: 0 } }
start: open
nodes:
  open: { set: { count: 1 }, max_visits: 5, exhausted: fail, then: [short, long] }
  short: { set: { count: 10 }, then: both }
  long: { set: { count: 10 }, then: longer }
  longer: { set: { count: 10 }, then: both }
  both: { join: [short, longer], set: { count: 100 }, then: [{ when: count < 390, to: open }, { to: end }] }
",
        json!({}),
    )
    .await;
    let round = "open | long short | longer | both";
    assert_eq!(ran.steps, [round; 3].join(" | "));
    assert_eq!((ran.end.status, ran.field("count")), (Status::Done, json!(393)));
}

#[tokio::test]
async fn a_route_may_lead_to_several_nodes() {
    let ran = run(
        r"
state: { wide: bool, count: { type: int, merge: sum, default: 0 } }
input: wide
start: a
nodes:
  a: { set: { count: 1 }, then: [{ when: wide, to: [b, c] }, { to: c }] }
  b: { set: { count: 1 }, then: end }
  c: { set: { count: 1 }, then: { match: wide, to: { true: end, false: [d, e] } } }
  d: { set: { count: 1 }, then: end }
  e: { set: { count: 1 }, then: end }
",
        json!({"wide": true}),
    );
    assert_eq!(ran.await.steps, "a | b c");
}

#[tokio::test]
async fn a_branch_that_ends_leaves_the_others_running() {
    let ran = run(
        r"
state: { count: { type: int, merge: sum, default: 0 } }
start: [a, b]
nodes:
  a: { set: { count: 1 }, then: end }
  b: { set: { count: 1 }, then: c }
  c: { set: { count: 1 }, then: end }
",
        json!({}),
    )
    .await;
    assert_eq!((ran.steps.as_str(), ran.end.status), ("a b | c", Status::Done));
}

#[tokio::test]
async fn a_reducer_folds_the_updates_of_a_step() {
    let ran = run(
        r#"
state:
  list: { type: [string], merge: append, default: [first] }
  set: { type: [string], merge: union, default: [a] }
  total: { type: int, merge: sum, default: 1 }
  most: { type: int, merge: max, default: 2 }
  last: string
start: [b, a]
nodes:
  a: { set: { list: '"a"', set: '["a", "b"]', total: 2, most: 3 }, then: c }
  b: { set: { list: '"b"', set: '["b", "c"]', total: 4, most: 1, last: '"b"' }, then: c }
  c: { set: { last: '"c"' }, then: end }
"#,
        json!({}),
    )
    .await;
    assert_eq!(ran.field("list"), json!(["first", "a", "b"]));
    assert_eq!(ran.field("set"), json!(["a", "b", "c"]));
    assert_eq!((ran.field("total"), ran.field("most")), (json!(7), json!(3)));
    assert_eq!(ran.field("last"), json!("c"), "without a reducer a write replaces");
}

#[tokio::test]
async fn a_task_of_a_map_sees_the_state_beside_its_item() {
    let ran = run(
        r#"
state: { brief: string, words: [string], made: { type: [string], merge: append, default: [] } }
input: [brief, words]
start: each
nodes:
  each: { map: { over: words, as: word, do: make }, then: end }
  make: { set: { made: 'brief + " " + word' } }
"#,
        json!({"brief": "say", "words": ["a", "b"]}),
    )
    .await;
    assert_eq!(ran.field("made"), json!(["say a", "say b"]));
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Notes {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn a_command_can_add_to_the_edges() {
    let noting = |name: &'static str, goto: Goto| {
        node_fn(move |_: Nothing, _: NodeContext| {
            let command =
                Command { update: Notes { notes: vec![name.into()] }, goto: goto.clone() };
            async move { Ok::<_, NodeError>(command) }
        })
    };
    let also = Goto::Also(vec![Transition::To(Target::Node(NodeName::parse("there").unwrap()))]);
    let graph = GraphBuilder::new::<Notes>("goto")
        .node("goes", noting("goes", also))
        .node("here", noting("here", Goto::Edges))
        .node("there", noting("there", Goto::Edges))
        .edge(START, "goes")
        .edge("goes", "here")
        .goto("goes", ["there"]);
    let graph = graph.compile().unwrap();
    let engine = Engine::new(graph);
    let end = engine.run(&()).await.unwrap();
    assert_eq!(end.state.get("notes"), Some(&json!(["goes", "here", "there"])));
}
