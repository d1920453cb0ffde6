//! What the constructs of the format do in a run: branches, maps, joins, conditions, deferral.
//!
//! The workflows compute with `set`, so that nothing but the engine decides what happens.

use graphrun::{data_limit::DataLimit, event::Status};
use serde_json::{Value, json};

use crate::support::ran::run;

#[tokio::test]
async fn the_branches_of_a_parallel_join_once() {
    let ran = run(
        r"
state: { brief: string, a: string, b: string, c: string, log: { type: [string], merge: append, default: [] } }
input: brief
start: both
nodes:
  both: { parallel: [[draft, check, polish], facts, inner], then: merge }
  draft: { set: { a: brief, log: '[brief]' }, max_visits: 2, exhausted: polish }
  check: { set: { log: '[a]' }, then: [{ when: visits('draft') < 2, to: draft }, { to: polish }] }
  polish: { set: { log: '[a + a]' } }
  facts: { set: { b: brief } }
  inner: { parallel: [more, [most, last]] }
  more: { set: { c: brief } }
  most: { set: { log: '[brief]' } }
  last: { set: { log: '[brief]' } }
  merge: { set: { log: '[a + b + c]' }, then: end }
",
        json!({"brief": "x"}),
    )
    .await;
    assert_eq!(ran.steps, "draft facts more most | check last | draft | check | polish | merge");
    assert_eq!(ran.end.status, Status::Done);
    assert_eq!(ran.field("log"), json!(["x", "x", "x", "x", "x", "x", "xx", "xxx"]));
}

const MAP: &str = r"
state: { words: [string], lengths: { type: [int], merge: append, default: [] }, total: int? }
input: words
start: each
nodes:
  each: { map: { over: words, as: word, do: measure, width: 2 }, then: sum }
  measure: { set: { lengths: '[word.size()]' }, when: word != 'skip' }
  sum: { set: { total: lengths.size() }, then: end }
";

#[tokio::test]
async fn a_map_runs_a_node_for_each_item_and_folds_in_order() {
    let ran = run(MAP, json!({"words": ["one", "three", "skip", "no"]})).await;
    assert_eq!(ran.steps, "each | (measure) measure measure measure | sum");
    assert_eq!((ran.field("lengths"), ran.field("total")), (json!([3, 5, 2]), json!(3)));
}

#[tokio::test]
async fn an_item_knows_its_position() {
    let ran = run(
        r#"
state:
  words: [string]
  texts: { type: [string], merge: append, default: [] }
  pairs: { type: [int], merge: append, default: [] }
input: words
start: each
nodes:
  each: { map: { over: words, as: word, do: show }, then: again }
  show: { render: { text: "{{ index }}/{{ words | length }} {{ word }}" }, writes: texts, when: index != 1 }
  again: { map: { over: words, do: double, width: 1 }, then: end }
  double: { set: { pairs: '[index * 2]' } }
"#,
        json!({"words": ["a", "b", "c"]}),
    )
    .await;
    assert_eq!(ran.field("texts"), json!(["0/3 a", "2/3 c"]));
    assert_eq!(ran.field("pairs"), json!([0, 2, 4]));
}

#[tokio::test]
async fn a_field_or_an_item_named_index_hides_the_position() {
    let ran = run(
        r#"
state:
  words: [string]
  index: { type: string, default: field }
  texts: { type: [string], merge: append, default: [] }
input: [words, index]
start: each
nodes:
  each: { map: { over: words, do: show }, then: end }
  show: { set: { texts: '[index + " " + item]' }, when: index != "" }
"#,
        json!({"words": ["a"]}),
    )
    .await;
    assert_eq!(ran.field("texts"), json!(["field a"]));
    let ran = run(
        r#"
state: { words: [string], texts: { type: [string], merge: append, default: [] } }
input: words
start: each
nodes:
  each: { map: { over: words, as: index, do: show }, then: end }
  show: { render: { text: "{{ index }}" }, writes: texts, when: index != "" }
"#,
        json!({"words": ["a"]}),
    )
    .await;
    assert_eq!(ran.field("texts"), json!(["a"]));
}

#[tokio::test]
async fn a_map_starts_its_tasks_in_order_within_its_width() {
    let words: Vec<String> = (0..500).map(|it| "x".repeat(it)).collect();
    let ran = run(MAP, json!({ "words": words })).await;
    assert_eq!(ran.field("lengths"), (0..500).collect::<Value>());
}

#[tokio::test]
async fn a_map_over_too_many_items_fails_before_any_is_dispatched() {
    let workflow = r"
state: { all: [int], done: { type: int, merge: sum, default: 0 } }
input: all
start: each
nodes:
  each: { map: { over: all, do: count }, then: end }
  count: { set: { done: item } }
";
    let many = usize::try_from(DataLimit::MapItems.value()).unwrap() + 1;
    let ran = run(workflow, json!({ "all": vec![0; many] })).await;
    assert_eq!((ran.end.status, ran.field("done")), (Status::Failed, json!(0)));
    let reason = ran.end.reason.unwrap();
    for part in
        ["`each` finished, but its route failed", "300001 items", "GRAPHRUN_LIMIT_MAP_ITEMS"]
    {
        assert!(reason.contains(part), "{reason}");
    }
}

#[tokio::test]
async fn a_map_over_an_empty_list_continues() {
    let ran = run(MAP, json!({"words": []})).await;
    assert_eq!((ran.steps.as_str(), ran.field("total")), ("each | sum", json!(0)));
}

/// A map whose items divide by themselves, so that an item of zero fails. `state` and `nodes` are more lines of
/// these sections.
fn dividing(map: &str, more: &str, state: &str, nodes: &str) -> String {
    format!(
        r"
state:
  numbers: [int]
  parts: {{ type: [int], merge: append, default: [] }}
  ended: {{ type: int, merge: sum, default: 0 }}
{state}
input: numbers
start: each
nodes:
  each: {{ map: {{ over: numbers, as: number, do: divide{map} }}, then: count{more} }}
  divide: {{ set: {{ parts: '[12 / number]' }} }}
  count: {{ set: {{ ended: 1 }}, then: end }}
{nodes}
"
    )
}

fn collecting(fields: &str) -> String {
    let state = format!(
        "  lost: {{ type: [Lost], merge: append, default: [] }}\ntypes: {{ Lost: {{ {fields} }} }}"
    );
    dividing(", failed: lost", "", &state, "")
}

fn catching(catch: &str) -> String {
    let (more, state) =
        (format!(", catch: {catch}"), "  saved: { type: int, merge: sum, default: 0 }");
    dividing("", &more, state, "  save: { set: { saved: 1 }, then: end }")
}

#[tokio::test]
async fn a_map_collects_failed_items_and_ends_once() {
    let workflow = collecting("index: int, item: int, node: string, kind: string, message: string");
    for (numbers, parts, lost) in [
        (json!([3, 0, 4, 0]), json!([4, 3]), json!([1, 3])),
        (json!([0, 0]), json!([]), json!([0, 1])),
        (json!([1]), json!([12]), json!([])),
        (json!([]), json!([]), json!([])),
    ] {
        let ran = run(&workflow, json!({ "numbers": numbers })).await;
        assert_eq!((ran.end.status, ran.field("ended")), (Status::Done, json!(1)), "{numbers}");
        assert_eq!(ran.field("parts"), parts);
        let records = ran.field("lost");
        let records = records.as_array().unwrap();
        let index = |it: &Value| it["index"].clone();
        assert_eq!(records.iter().map(index).collect::<Value>(), lost);
        for record in records {
            assert_eq!((&record["item"], &record["node"]), (&json!(0), &json!("divide")));
            assert_eq!(record["kind"], "other");
            assert!(record["message"].as_str().unwrap().contains("divi"), "{record}");
        }
    }
}

#[tokio::test]
async fn a_record_of_a_failed_item_has_the_declared_fields() {
    let ran = run(&collecting("kind: string, message: string"), json!({ "numbers": [0] })).await;
    assert_eq!(ran.end.status, Status::Done);
    let lost = ran.field("lost");
    assert_eq!(lost[0].as_object().unwrap().keys().collect::<Vec<_>>(), ["kind", "message"]);
}

#[tokio::test]
async fn a_caught_failure_of_an_item_leads_on_once_instead_of_then() {
    let workflow = catching("{ any: save }");
    for (numbers, saved) in [(json!([3, 0, 4, 0]), 1), (json!([0, 0]), 1), (json!([2, 3]), 0)] {
        let ran = run(&workflow, json!({ "numbers": numbers })).await;
        let ended = (ran.field("saved"), ran.field("ended"));
        assert_eq!(ended, (json!(saved), json!(1 - saved)), "{numbers}");
        assert_eq!(ran.end.status, Status::Done);
    }
    let ran = run(&workflow, json!({ "numbers": [3, 0] })).await;
    let expected = ("each | divide divide | save", json!([4]));
    assert_eq!((ran.steps.as_str(), ran.field("parts")), expected);
}

#[tokio::test]
async fn a_default_catch_applies_to_the_items_of_a_map() {
    let workflow = catching("{ panic: save }");
    let workflow = format!("defaults: {{ catch: {{ any: save }} }}\n{workflow}");
    let ran = run(&workflow, json!({ "numbers": [3, 0] })).await;
    assert_eq!((ran.field("saved"), ran.field("ended")), (json!(1), json!(0)));
}

#[tokio::test]
async fn an_item_whose_failure_nothing_takes_fails_the_run() {
    let ran = run(&dividing("", "", "", ""), json!({ "numbers": [3, 0] })).await;
    assert_eq!((ran.end.status, ran.field("ended")), (Status::Failed, json!(0)));
    assert!(ran.end.reason.unwrap().starts_with("`divide` failed: "));
}

#[tokio::test]
async fn a_join_waits_for_every_node_it_names_on_any_route() {
    let ran = run(
        r"
state: { brief: string, rounds: { type: int, merge: sum, default: 0 }, a: string?, b: string? }
input: brief
start: [long, short]
nodes:
  long: { set: { rounds: 1 }, max_visits: 3, exhausted: fail, then: [{ when: rounds < 3, to: long }, { to: both }] }
  short: { set: { a: brief }, then: both }
  both: { join: [long, short], set: { b: brief }, then: end }
",
        json!({"brief": "x"}),
    )
    .await;
    assert_eq!(ran.steps, "long short | long | long | both");
}

#[tokio::test]
async fn a_skipped_node_is_in_the_trace_and_a_deferred_one_comes_last() {
    let workflow = r"
state: { brief: string, deep: bool, notes: string?, log: { type: [string], merge: append, default: [] } }
input: [brief, deep]
start: [plan, quick]
nodes:
  plan: { set: { log: '[brief]' }, then: research }
  quick: { set: { log: '[brief]' }, then: report }
  research: { set: { notes: brief }, when: deep, then: write }
  write: { set: { log: 'has(notes) ? [notes] : [brief]' }, then: report }
  report: { set: { log: '[brief]' }, defer: true, then: end }
";
    let deep = run(workflow, json!({"brief": "x", "deep": true})).await;
    assert_eq!(deep.steps, "plan quick | research | write | report");
    let quick = run(workflow, json!({"brief": "x", "deep": false})).await;
    assert_eq!(quick.steps, "plan quick | (research) | write | report");
    assert_eq!(quick.field("notes"), Value::Null);
}

/// The state that the workflows of `tests/workflow/used` are used with.
const STATE: &str = r"
state:
  brief: string
  wanted: { type: int, default: 3 }
  draft: string?
  verdict: good | bad
  rounds: { type: int, merge: sum, default: 0 }
  log: { type: [string], merge: append, default: [] }
input: [brief, wanted]
";

#[tokio::test]
async fn a_used_workflow_ends_with_its_last_task() {
    let nodes = r"
start: [review, slow]
nodes:
  review:
    use: { workflow: used/review.yaml, in: { text: brief, wanted: wanted }, out: { draft: draft, log: log } }
    then: after
  slow: { set: { log: '[brief]' }, then: end }
  after: { set: { log: '[brief + brief]' }, then: end }
";
    let ran = run(&format!("{STATE}{nodes}"), json!({"brief": "x", "wanted": 2})).await;
    assert_eq!(
        ran.steps,
        "review slow | review.lint review.write | review.more review.write | review.judge | \
         review.end | after"
    );
    let log = json!(["x", "lint", "write", "more", "write", "xx"]);
    assert_eq!((ran.field("draft"), ran.field("log")), (json!("xx"), log));
}

#[tokio::test]
async fn each_use_begins_afresh() {
    let nodes = r"
start: review
nodes:
  review:
    use: { workflow: used/review.yaml, in: { text: brief, wanted: wanted + rounds }, out: { draft: draft, verdict: verdict } }
    max_visits: 3
    exhausted: fail
    then: count
  count: { set: { rounds: 1, log: '[verdict]' }, then: [{ when: rounds < 2, to: review }, { to: end }] }
";
    let ran = run(&format!("{STATE}{nodes}"), json!({"brief": "x", "wanted": 2})).await;
    // The second use drafts three times: neither its draft nor its visits are those of the first.
    assert_eq!((ran.field("draft"), ran.field("log")), (json!("xxx"), json!(["good", "bad"])));
    assert_eq!(ran.end.status, Status::Done);
}

#[tokio::test]
async fn a_used_workflow_reads_how_its_own_nodes_led_on() {
    let own = include_str!("workflow/used/follows.yaml").split_once("state:").unwrap().1;
    let alone = run(&format!("state:{own}"), json!({"text": "again"})).await;
    let expected = json!(["start", "again", "then again", "then first"]);
    assert_eq!(alone.field("paths"), expected);
    let nodes = r"
start: follow
nodes:
  follow: { use: { workflow: used/follows.yaml, in: { text: brief }, out: { log: paths } }, then: end }
";
    let used = run(&format!("{STATE}{nodes}"), json!({"brief": "again", "wanted": 2})).await;
    assert_eq!(used.field("log"), expected);
}

#[tokio::test]
async fn a_nested_failure_is_caught_three_levels_up() {
    let nodes = |catch: &str| {
        format!(
            r"{STATE}
start: outer
nodes:
  outer:
    use: {{ workflow: used/outer.yaml, in: {{ text: brief, wanted: wanted }}, out: {{ draft: draft }} }}
    {catch}
    then: end
  sorry: {{ set: {{ log: '[brief]' }}, then: end }}
"
        )
    };
    let caught = nodes("catch: { any: sorry }");
    let ran = run(&caught, json!({"brief": "x", "wanted": 2})).await;
    assert_eq!((ran.end.status, ran.field("draft")), (Status::Done, json!("xx")));
    assert!(ran.steps.contains("outer.strict.inner.judge"), "{}", ran.steps);
    assert!(!ran.steps.contains("sorry"), "{}", ran.steps);

    let ran = run(&caught, json!({"brief": "x", "wanted": 4})).await;
    assert_eq!((ran.end.status, ran.field("log")), (Status::Done, json!(["x"])));
    assert!(ran.steps.ends_with("| outer.strict.inner.end | sorry"), "{}", ran.steps);

    let uncaught = nodes("").replace("  sorry: { set: { log: '[brief]' }, then: end }\n", "");
    let ran = run(&uncaught, json!({"brief": "x", "wanted": 4})).await;
    assert_eq!(ran.end.status, Status::Failed);
}

#[tokio::test]
async fn a_person_is_asked_from_within_a_used_workflow() {
    let nodes = r"
start: gate
nodes:
  gate: { use: { workflow: used/gate.yaml, in: { text: brief }, out: { verdict: verdict } }, then: end }
";
    let ran = run(&format!("{STATE}{nodes}"), json!({"brief": "x"})).await;
    assert_eq!(ran.end.status, Status::Paused);
    let [question] = ran.end.questions.as_slice() else { panic!("one question") };
    assert_eq!(question.node.as_str(), "gate.inner.ask");
    assert_eq!(question.question.prompt, "Is x good?");
}

/// The default is there again, and is read without asking; a field without one holds nothing.
#[tokio::test]
async fn a_cleared_field_returns_to_its_default() {
    let ran = run(
        r"
state: { brief: string, count: { type: int, merge: sum, default: 10 }, first: int, second: int, log: { type: [int], merge: append, default: [0] } }
input: brief
start: add
nodes:
  add: { set: { count: 1, log: '5' }, then: look }
  look: { set: { first: count }, then: forget }
  forget: { set: { log: '7' }, clears: [count, log], then: again }
  again: { set: { second: count }, then: end }
",
        json!({"brief": "x"}),
    )
    .await;
    assert_eq!((ran.field("first"), ran.field("second")), (json!(11), json!(10)));
    assert_eq!(ran.field("log"), json!([0, 7]));
}

#[tokio::test]
async fn a_clear_drops_no_write_of_its_step() {
    let workflow = r"
state: { brief: string, log: { type: [string], merge: append, default: [] }, seen: { type: int, default: 0 } }
input: brief
start: begin
nodes:
  begin: { set: { log: '[brief]' }, then: [forget, write] }
  forget: { set: {}, clears: log, then: end }
  write: { set: { log: '[brief + brief]' }, then: end }
";
    let ran = run(workflow, json!({"brief": "x"})).await;
    assert_eq!(ran.field("log"), json!(["xx"]), "{}", ran.steps);
    // In the other order of names as well.
    let ran = run(&workflow.replace("write", "again"), json!({"brief": "x"})).await;
    assert_eq!(ran.field("log"), json!(["xx"]), "{}", ran.steps);
}

#[tokio::test]
async fn a_route_that_divides_by_zero_keeps_the_result_of_its_node() {
    let ran = run(
        r"
state: { n: int, log: { type: [string], merge: append, default: [] } }
input: n
start: work
nodes:
  work: { set: { log: '[string(n)]' }, then: [{ when: 10 / n > 1, to: end }, { to: fail }] }
",
        json!({"n": 0}),
    )
    .await;
    let reason = ran.end.reason.clone().unwrap();
    assert_eq!(ran.end.status, Status::Failed);
    assert!(reason.contains("`work` finished, but its route failed"), "{reason}");
    assert!(reason.contains("division by zero"), "{reason}");
    assert_eq!(ran.field("log"), json!(["0"]), "the result is kept");
}

/// A used workflow begins with its defaults, each time, and folds its inputs into them like a
/// separate run.
#[tokio::test]
async fn a_used_workflow_begins_with_its_defaults_each_time() {
    let ran = run(
        r"
state: { brief: string, all: { type: [string], merge: append, default: [] }, rounds: { type: int, merge: sum, default: 0 } }
input: brief
start: go
nodes:
  go:
    use: { workflow: used/notes.yaml, in: { note: brief }, out: { all: notes } }
    max_visits: 2
    exhausted: end
    then: count
  count: { set: { rounds: 1 }, then: go }
",
        json!({"brief": "x"}),
    )
    .await;
    assert_eq!(
        (ran.field("all"), ran.field("rounds")),
        (json!(["first", "x", "first", "x"]), json!(2))
    );
}

#[tokio::test]
async fn an_absent_output_of_a_used_workflow_leaves_a_field_that_takes_no_null() {
    for nested in [false, true] {
        let ran = run(
            &format!(
                r"
state:
  n: int?
  number: {{ type: int, default: 7 }}
  may: {{ type: int?, default: 7 }}
  all: {{ type: [int], merge: append, default: [] }}
  holes: {{ type: ['int?'], merge: append, default: [] }}
input: n
start: ask
nodes:
  ask:
    use:
      workflow: used/optional_output.yaml
      nested: {nested}
      in: {{ given: n }}
      out: {{ number: found, may: found, all: found, holes: found }}
    then: end
"
            ),
            json!({}),
        )
        .await;
        let found = ["number", "may", "all", "holes"].map(|it| ran.field(it));
        assert_eq!(found, [json!(7), json!(null), json!([]), json!([null])], "nested: {nested}");
    }
}

#[tokio::test]
async fn the_fail_of_a_used_workflow_is_caught_as_another_failure() {
    for (n, why) in [(1, "n is 1"), (2, "`use.spend` used up its 1 visit")] {
        for (nested, catch) in
            [(false, "{ other: note }"), (true, "{ other: note }"), (false, "{ any: note }")]
        {
            let ran = run(
                &format!(
                    r"
state: {{ n: int, why: string?, found: string? }}
input: n
output: [why, found]
start: use
nodes:
  use:
    use: {{ workflow: used/failing.yaml, nested: {nested}, in: {{ n: n }}, out: {{ found: why }} }}
    catch: {catch}
    then: end
  note: {{ set: {{ why: 'has(via.error) ? via.error.message : null' }}, then: end }}
"
                ),
                json!({"n": n}),
            )
            .await;
            assert_eq!(ran.end.status, Status::Done, "{nested} {catch}");
            let found = ran.field("why").to_string();
            assert!(
                found.contains(&why.replace("use.", if nested { "" } else { "use." })),
                "{found}"
            );
        }
    }
}

#[tokio::test]
async fn a_whole_float_is_the_key_of_an_item() {
    let ran = run(
        r"
state: { n: int, items: [Item], done: { type: [int], merge: append, default: [] } }
types: { Item: { id: int, after: [float] } }
input: n
start: list
nodes:
  list: { set: { items: '[Item{ id: 2, after: [float(n)] }, Item{ id: n, after: [] }]' }, then: each }
  each: { map: { over: items, as: it, key: it.id, after: it.after, do: note }, then: end }
  note: { set: { done: it.id } }
",
        json!({"n": 1}),
    )
    .await;
    assert_eq!((ran.end.status, ran.field("done")), (Status::Done, json!([2, 1])));
}
