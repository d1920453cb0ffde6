//! What `compile` finds, all at once, in graphs built in Rust.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    compile::{WorstCase, compile},
    diagnostic::{Diagnostics, SourceFile},
    graph::{
        Attempts, Backoff, Bounds, Catch, Command, Contract, GraphBuilder, IntoNode, Node,
        NodeContext, NodeDescription, NodeError, OnFinish, Policies, Read, START, Target,
    },
    id::{ChannelName, NodeName},
    nodes::{Services, factory},
    registry,
    workflow::{load, parse},
};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
struct Team {
    brief: Option<String>,
    spec: Option<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

/// A node of which only the contract matters.
struct Only(Contract);

#[async_trait]
impl Node for Only {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        unreachable!("nothing runs here")
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { contract: self.0.clone(), ..NodeDescription::default() }
    }
}

fn channels(names: &[&str]) -> Vec<ChannelName> {
    names.iter().map(|it| ChannelName::parse(it).unwrap()).collect()
}

fn node(reads: &[&str], writes: &[&str]) -> Only {
    let reads = channels(reads).into_iter().map(|channel| Read { channel, required: true });
    Only(Contract { reads: Some(reads.collect()), writes: Some(channels(writes)) })
}

fn idle() -> Only {
    node(&[], &[])
}

fn target(name: &str) -> Target {
    Target::Node(NodeName::parse(name).unwrap())
}

fn bounded(exhausted: Target) -> Policies {
    Policies::from(Bounds { max_visits: Some(3), exhausted: Some(exhausted), ..Bounds::default() })
}

fn diagnostics(builder: GraphBuilder) -> String {
    builder.compile().map_or_else(|it| it.to_string(), |_| "nothing".to_owned())
}

fn graph() -> GraphBuilder {
    GraphBuilder::new::<Team>("test")
}

#[test]
fn a_sound_graph_has_no_diagnostics() {
    let sound = graph()
        .input("brief")
        .node("ba", node(&["brief"], &["spec"]))
        .node("code", node(&["spec"], &["notes"]).with_policies(bounded(Target::Fail)))
        .node("test", node(&["notes"], &["notes"]))
        .edge(START, "ba")
        .edge("ba", "code")
        .edge("code", "test")
        .route("test", ["code", "end"], |_: &serde_json::Value| "end");
    assert_eq!(diagnostics(sound), "nothing");
}

#[test]
fn unknown_names_are_found_with_similar_ones() {
    let wrong = graph()
        .node("ba", node(&["breif"], &["zzz"]))
        .node("9", idle())
        .node("end", idle())
        .edge(START, "ba")
        .edge("ba", "qa")
        .edge("bq", "ba");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR009: `9` is not allowed in the name `9`
    GR010: the edge from `ba` names `qa`, which is not a node
      help: did you mean `ba`?
    GR010: an edge names `bq`, which is not a node
      help: did you mean `ba`?
    GR016: `end` is built in and cannot name a node
    GR021: node `ba` names `breif`, which is not a field of the state
      help: did you mean `brief`?
    GR021: node `ba` names `zzz`, which is not a field of the state
      help: the fields are brief, spec, notes
    ");
}

#[test]
fn the_worst_case_has_the_attempts_after_exit_codes() {
    let retry = Backoff { attempts_max: Some(9), exit_codes: vec![7], ..Backoff::default() };
    let attempts = Attempts { retry: retry.on([]), ..Attempts::default() };
    let policies = Policies { attempts, ..Policies::default() };
    let graph = graph().node("a", idle().with_policies(policies)).edge(START, "a").edge("a", "end");
    let worst = WorstCase::of(&graph.compile().unwrap());
    assert_eq!(worst.nodes[&NodeName::parse("a").unwrap()].attempts_max, 9);
}

#[test]
fn a_graph_without_a_start_is_found() {
    insta::assert_snapshot!(diagnostics(graph().node("a", idle()).edge("a", "end")), @r#"
    GR006: no node starts the graph
      help: name one with `start`; in Rust, add `.edge(START, "name")`
    "#);
}

#[test]
fn nodes_that_are_never_reached_or_never_end_are_found() {
    let wrong = graph()
        .node("a", idle())
        .node("lonely", idle())
        .node("spin", idle().with_policies(bounded(target("spun"))))
        .node("spun", idle().with_policies(bounded(target("spin"))))
        .edge(START, "a")
        .edge("a", "spin")
        .edge("spin", "spin")
        .edge("spun", "spin")
        .edge("lonely", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR030: nothing leads to node `lonely`
      help: lead an edge to it, or remove it
    GR031: no path leads from `a` to an end
      help: give one of the nodes after it `then: end`
    GR031: no path leads from `spin` to an end
      help: give one of the nodes after it `then: end`
    GR031: no path leads from `spun` to an end
      help: give one of the nodes after it `then: end`
    GR033: when the visits of `spin` are used up, `exhausted` leads back to it by `spin`, `spun`
      help: lead `exhausted` out of the loop
    ");
}

#[test]
fn a_loop_without_a_bound_is_found() {
    let wrong = graph()
        .node("code", idle())
        .node("test", idle())
        .node("done", idle())
        .edge(START, "code")
        .edge("code", "test")
        .route("test", ["code", "done"], |_: &serde_json::Value| "done")
        .edge("done", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR032: the loop `code`, `test` has no bound
      help: give one of its nodes `max_visits` and `exhausted`, so that the worst case is known
    ");
}

#[test]
fn a_bound_that_leads_back_into_its_loop_is_found() {
    let wrong = graph()
        .node("code", idle().with_policies(bounded(target("help"))))
        .node("help", idle())
        .edge(START, "code")
        .edge("code", "end")
        .edge("help", "code");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR033: when the visits of `code` are used up, `exhausted` leads back to it by `code`, `help`
      help: lead `exhausted` out of the loop
    ");
}

#[test]
fn resets_that_bound_nothing_are_found() {
    let resets = |whose: &str| Policies {
        on_finish: OnFinish {
            resets: vec![NodeName::parse(whose).unwrap()],
            ..OnFinish::default()
        },
        ..bounded(Target::Fail)
    };
    let free = || {
        Policies::from(OnFinish {
            resets: vec![NodeName::parse("c").unwrap()],
            ..OnFinish::default()
        })
    };
    let wrong = graph()
        .node("a", idle().with_policies(resets("b")))
        .node("b", idle().with_policies(resets("a")))
        .node("c", idle().with_policies(bounded(Target::Fail)))
        .node("d", idle().with_policies(free()))
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", "c")
        .edge("c", "d")
        .route("d", ["c", "end"], |_: &serde_json::Value| "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR034: the bounds of `a`, `b` reset each other
      help: let only one of them reset the other
    GR034: `d` resets a bound, but its own visits have none
      help: give `d` `max_visits` and `exhausted`, or another node of its loop that it does not reset
    ");
    // The bound of the outer loop also bounds the reset node.
    let right = graph()
        .node("plan", idle().with_policies(bounded(Target::End)))
        .node("c", idle().with_policies(bounded(target("plan"))))
        .node("d", idle().with_policies(free()))
        .edge(START, "plan")
        .edge("plan", "d")
        .edge("d", "c")
        .route("c", ["c", "plan"], |_: &serde_json::Value| "plan");
    assert_eq!(diagnostics(right), "nothing");
    // Each of two loops is bounded by what the other one resets, so neither is.
    let one = || {
        Policies::from(OnFinish {
            resets: vec![NodeName::parse("y").unwrap()],
            ..OnFinish::default()
        })
    };
    let other = || {
        Policies::from(OnFinish {
            resets: vec![NodeName::parse("x").unwrap()],
            ..OnFinish::default()
        })
    };
    let wrong = graph()
        .node("x", idle().with_policies(bounded(Target::End)))
        .node("y", idle().with_policies(bounded(Target::End)))
        .node("one", idle().with_policies(one()))
        .node("other", idle().with_policies(other()))
        .edge(START, "x")
        .edge("x", "one")
        .edge("y", "other")
        .route("one", ["x", "y"], |_: &serde_json::Value| "x")
        .route("other", ["x", "y"], |_: &serde_json::Value| "y");
    assert_eq!(diagnostics(wrong).matches("its own visits have none").count(), 2);
}

#[test]
fn two_writers_of_one_value_in_one_step_are_found() {
    let wrong = graph()
        .node("start", idle())
        .node("qc", node(&[], &["spec", "notes"]))
        .node("ta", node(&[], &["spec", "notes"]))
        .node("sse", idle())
        .edge(START, "start")
        .edge("start", "qc")
        .edge("start", "ta")
        .edge(["qc", "ta"], "sse")
        .edge("sse", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR036: `qc` and `ta` write `spec` in the same step
      help: let one write another field
    ");
}

#[test]
fn an_unwritten_field_cannot_be_read() {
    let wrong = graph()
        .node("ba", node(&["brief"], &[]))
        .node("sse", node(&["spec"], &[]))
        .node("ta", node(&[], &["spec"]))
        .edge(START, "ba")
        .edge("ba", "sse")
        .edge("sse", "ta")
        .edge("ta", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR035: `ba` reads `brief`, which nothing writes before it
      help: make `brief` an input, give it a default, or let an earlier node write it
    GR035: `sse` reads `spec`, which nothing writes before it
      help: make `spec` an input, give it a default, or let an earlier node write it
    ");
}

#[test]
fn joins_that_are_not_clear_are_found() {
    let wrong = graph()
        .node("a", idle())
        .node("b", idle())
        .node("c", idle())
        .edge(START, "a")
        .edge(START, "b")
        .edge(["a", "a"], "c")
        .edge(["b"], "c")
        .edge("c", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR037: the join at `c` waits for `a` twice
    GR038: node `c` waits for two sets of nodes
      help: name all of them in one join
    ");
}

#[test]
fn only_writers_that_meet_after_a_fork_conflict() {
    let branches = |late: &str| {
        graph()
            .node("qc", idle())
            .node("ta", node(&[], &["spec"]))
            .node("check", node(&[], &["spec"]))
            .node("sse", idle())
            .edge(START, "qc")
            .edge(START, "ta")
            .edge("qc", "check")
            .edge(late, "sse")
            .edge("sse", "end")
    };
    // `ta` has written before `check` does: one step lies between them.
    let apart = branches("check").edge(["ta", "check"], "sse");
    assert_eq!(diagnostics(apart), "nothing");
    let wait = branches("check").node("wait", node(&[], &["spec"])).edge("ta", "wait");
    let wait = wait.edge("wait", "end");
    insta::assert_snapshot!(diagnostics(wait), @r"
    GR036: `check` and `wait` write `spec` in the same step
      help: let one write another field
    ");
}

#[test]
fn a_field_that_is_not_written_on_every_path_cannot_be_read() {
    let catch = |to: &str| Policies {
        catch: vec![Catch { kind: None, to: target(to) }],
        ..Policies::default()
    };
    let wrong = graph()
        .node("ba", node(&[], &["brief"]).with_policies(catch("sse")))
        .node("ta", node(&[], &["spec"]))
        .node("sse", node(&["spec", "brief"], &[]))
        .edge(START, "ba")
        .route("ba", ["ta", "sse"], |_: &serde_json::Value| "ta")
        .edge("ta", "sse")
        .edge("sse", "end");
    insta::assert_snapshot!(diagnostics(wrong), @r"
    GR130: `sse` reads `spec`, which is not written when `sse` comes after `ba`
      help: make `spec` an input, give it a default, or let an earlier node write it
    GR130: `sse` reads `brief`, which is not written when `ba` fails and `catch` leads to `sse`
      help: make `brief` an input, give it a default, or let an earlier node write it
    ");
}

#[test]
fn loops_and_joins_are_mended_by_the_key_that_the_help_names() {
    let help = |name: &str| {
        let path = format!("tests/compile/{name}.yaml");
        let (workflow, _) = load(Path::new(&path), &registry()).unwrap();
        let graph = workflow.into_graph(&factory(Services::offline(), registry()));
        let diagnostics = compile(graph).map_or_else(|it| it, |_| panic!("nothing was found"));
        let first = diagnostics.in_order()[0];
        format!("{}: {}", first.code, first.help.as_deref().unwrap())
    };
    insta::assert_snapshot!(["inherited_catch", "bounded_items", "branches"].map(help).join("\n"), @r"
    GR032: `tell` inherits the `catch` of `defaults`, which leads to `oops`: give `tell` `catch: {}` to opt out, or give one of its nodes `max_visits` and `exhausted`, so that the worst case is known
    GR032: an empty list skips `one`, so its bound does not stop the loop: give `s` the bound
    GR131: make every path from `a` lead to `other` or to `fail`; if only some of the awaited nodes run, give `sum` `defer: true` in place of its `join`, or let these lead to one node, such as `either: { set: {} }`, and wait for that
    ");
}

#[test]
fn joins_that_may_wait_forever_are_found_with_a_path() {
    let (workflow, _) = load(Path::new("tests/compile/joins.yaml"), &registry()).unwrap();
    let graph = workflow.into_graph(&factory(Services::offline(), registry()));
    let diagnostics = compile(graph).map_or_else(|it| it, |_| panic!("nothing was found"));
    let shown = diagnostics.in_order().into_iter().map(|diagnostic| {
        let label = |label: &graphrun::diagnostic::Label| {
            format!("\n  line {}: {}", label.span.line_and_column().0, label.text)
        };
        let labels: String = diagnostic.labels.iter().map(label).collect();
        format!("{}: {}{labels}", diagnostic.code, diagnostic.message)
    });
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r"
    GR036: `a` and `e` write `count` in the same step
      line 11: one writer
      line 23: the other writer, after the start
    GR131: `joined` may wait for `b` forever
      line 12: may lead to `end` only
      line 10: waits for `b`
    GR131: `after_failure` may wait for `c` forever
      line 17: its `catch` leads to `note` only
      line 16: waits for `c`
    GR036: `f` and `look` write `out` in the same step
      line 24: one writer
      line 12: the other writer, after the start
    GR131: `round` may wait for `e` forever
      line 25: leads to `e` and `f`, which may be used up
      line 22: waits for `e`
    ");
}

/// What a node may take in all is used up like its visits, here on its second one.
#[test]
fn the_advice_about_a_join_names_what_the_file_can_mend() {
    let found = diagnostics_of(
        r#"
graphrun: 1
name: case
state: { x: int, text: string, l: { type: [int], merge: append }, a: int, b: int, verdict: string }
input: [x, text]
output: [l, verdict]
start: s
nodes:
  s: { set: { l: "[0]" }, then: [p, y, u] }
  p: { set: { a: 10 / x }, catch: { any: j }, then: j }
  y: { set: { b: "2" }, then: [j, k] }
  j: { join: [p, y], set: { l: "[has(b) ? b : 0, has(a) ? a : 0]" }, then: end }
  u:
    use: { workflow: workflow/used/gate.yaml, in: { text: text }, out: { verdict: verdict } }
    catch: { any: r }
    then: k
  r: { set: { l: "[1]" }, then: end }
  k: { join: [u, y], set: { l: "[2]" }, then: end }
"#,
    );
    let failure = "this is no arrival at `j`: let it lead to a node for which `j` waits";
    assert!(found.contains(failure), "{found}");
    assert!(found.contains("GR131: `k` may wait for `u` forever"), "{found}");
    assert!(found.contains("make every path from `u` lead to `k` or to `fail`"), "{found}");
}

#[test]
fn a_limited_node_takes_its_route_past_a_join() {
    let text = r#"
graphrun: 1
name: limited
state: { brief: string, one: string, other: string, sum: string }
input: brief
models: { m: openai/gpt-5-mini }
agents: { writer: { model: m } }
start: begin
nodes:
  begin: { set: { sum: brief }, max_visits: 2, exhausted: end, then: both }
  both: { parallel: [one, other], then: sum_up }
  one:
    agent: writer
    prompt: { text: "{{ brief }}" }
    writes: one
    limits: { tokens: 5 }
    exhausted: give_up
  other: { set: { other: brief } }
  give_up: { set: { sum: brief }, then: end }
  sum_up: { set: { sum: one + other }, then: begin }
"#;
    let diagnostics = diagnostics_of(text);
    assert!(diagnostics.contains("GR131: `sum_up` may wait for `one` forever"), "{diagnostics}");
}

#[test]
fn the_target_of_a_limit_survives_a_use() {
    let folder = tempfile::tempdir().unwrap();
    let inner = r#"
graphrun: 1
name: inner
state: { brief: string, answer: string }
input: brief
output: answer
models: { m: openai/gpt-5-mini }
agents: { writer: { model: m } }
start: write
nodes:
  write:
    agent: writer
    prompt: { text: "{{ brief }}" }
    writes: answer
    limits: { tokens: 5 }
    exhausted: give_up
    then: end
  give_up: { set: { answer: brief }, then: end }
"#;
    let outer = "
graphrun: 1
name: outer
state: { brief: string, answer: string }
input: brief
output: answer
start: ask
nodes:
  ask: { use: { workflow: inner.yaml, in: { brief: brief }, out: { answer: answer } }, then: end }
";
    std::fs::write(folder.path().join("inner.yaml"), inner).unwrap();
    std::fs::write(folder.path().join("outer.yaml"), outer).unwrap();
    let (workflow, _) = load(&folder.path().join("outer.yaml"), &registry()).unwrap();
    let policies = &workflow.nodes[&NodeName::parse_path("ask.write").unwrap()].policies;
    assert_eq!(
        policies.bounds.exhausted,
        Some(Target::Node(NodeName::parse_path("ask.give_up").unwrap()))
    );
    let graph = compile(workflow.into_graph(&factory(Services::offline(), registry()))).unwrap();
    let worst_case = WorstCase::of(&graph);
    let give_up = &worst_case.nodes[&NodeName::parse_path("ask.give_up").unwrap()];
    assert_eq!(give_up.visits_max, 1, "it is reached when the tokens are used up");
}

/// Every diagnostic about a workflow, of loading and of compiling it.
fn diagnostics_of(text: &str) -> String {
    found_in(text).to_string()
}

fn found_in(text: &str) -> Diagnostics {
    let file = Arc::new(SourceFile { name: "case.yaml".into(), text: text.to_owned() });
    let (workflow, mut found) = match parse(file, Path::new("tests"), &registry()) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return diagnostics,
    };
    match compile(workflow.into_graph(&factory(Services::offline(), registry()))) {
        Ok(graph) => found.extend(graph.warnings().in_order().into_iter().cloned()),
        Err(diagnostics) => return diagnostics,
    }
    found
}

/// Three branches lead to `d`; the last one is three steps long.
fn branches(join: &str) -> String {
    diagnostics_of(&format!(
        "
graphrun: 1
name: branches
state: {{ q: string, log: {{ type: '[string]', merge: append }} }}
input: q
start: [a, b, c1]
nodes:
  a: {{ set: {{ log: q }}, then: d }}
  b: {{ set: {{ log: q }}, then: d }}
  c1: {{ set: {{ log: q }}, then: c2 }}
  c2: {{ set: {{ log: q }}, then: c3 }}
  c3: {{ set: {{ log: q }}, then: d }}
  d: {{ join: {join}, set: {{ log: q }}, then: end }}
"
    ))
}

#[test]
fn a_conflict_shows_the_steps_to_the_meeting() {
    let found = found_in(
        "
graphrun: 1
name: meeting
state: { q: string, x: string? }
input: q
start: [a, b]
nodes:
  a: { set: {}, then: fork }
  fork: { set: {}, then: [c, d] }
  b: { set: {}, then: e }
  e: { set: {}, then: f }
  c: { set: {}, then: one }
  d: { set: {}, then: end }
  f: { set: {}, then: other }
  one: { set: { x: q }, then: end }
  other: { set: { x: q }, then: end }
",
    );
    let path = "the other writer, after `a` + `b`, then `e` + `fork`, then `c` + `d` + `f`";
    let conflict = found.in_order()[0];
    assert_eq!((conflict.code, conflict.labels[1].text.as_str()), ("GR036", path));
}

#[test]
fn a_branch_that_a_join_does_not_name_is_a_hint() {
    let found = branches("[a, b]");
    let message = "GR139: `d` may run more than once: `c3` leads to it past its `join`";
    let help = "help: to run it once, add `c3` to its `join`";
    assert!(found.contains(message) && found.contains(help), "{found}");
    // A join that waits for some nodes runs before the others anyway.
    for join in ["[a, b, c3]", "{ of: [a, b], count: 1 }"] {
        let found = branches(join);
        assert!(!found.contains("GR139"), "{join}: {found}");
    }
}

/// A route that excludes the branches of a join, and a loop back to a node with a join.
#[test]
fn routes_that_exclude_a_join_and_loops_back_to_it_are_no_hints() {
    let workflow = |nodes: &str| {
        diagnostics_of(&format!(
            "
graphrun: 1
name: joined
state: {{ q: string, is_quick: bool, log: {{ type: '[string]', merge: append }} }}
input: [q, is_quick]
start: s
nodes:
  a: {{ set: {{ log: q }}, then: d }}
  b: {{ set: {{ log: q }}, then: d }}
{nodes}
"
        ))
    };
    let excluded = "
  s: { set: { log: q }, then: [{ when: is_quick, to: c }, { to: [a, b] }] }
  c: { set: { log: q }, then: d }
  d: { join: [a, b], set: { log: q }, then: end }";
    let looped = "
  s: { set: { log: q }, then: [a, b] }
  d:
    join: [a, b]
    set: { log: q }
    max_visits: 5
    exhausted: end
    then: [{ when: is_quick, to: end }, { to: e }]
  e: { set: { log: q }, then: d }";
    for nodes in [excluded, looped] {
        let found = workflow(nodes);
        assert!(!found.contains("GR139"), "{found}");
    }
}

#[test]
fn an_advised_reducer_fits_the_type_of_its_field() {
    const FIELDS: [(&str, &str, &str, &str); 5] = [
        ("int", "1", "sum", "(`merge: sum` or `merge: min` or `merge: max`)"),
        ("'[string]'", "'[brief]'", "union", "(`merge: append` or `merge: union`)"),
        ("'map[string, int]'", "'{ \"a\": 1 }'", "merge", "(`merge: merge`)"),
        ("json", "brief", "append", "(`merge: append` or"),
        ("string?", "brief", "", "help: let one write another field"),
    ];
    for (ty, value, reducer, advice) in FIELDS {
        let workflow = |field: &str| {
            diagnostics_of(&format!(
                "
graphrun: 1
name: case
state: {{ brief: string, field: {field} }}
input: brief
output: field
start: [a, b]
nodes:
  a: {{ set: {{ field: {value} }}, then: end }}
  b: {{ set: {{ field: {value} }}, then: end }}
"
            ))
        };
        let found = workflow(ty);
        assert!(found.contains("GR036") && found.contains(advice), "{found}");
        if !reducer.is_empty() {
            let found = workflow(&format!("{{ type: {ty}, merge: {reducer} }}"));
            assert!(!found.contains("GR036") && !found.contains("GR019"), "{found}");
        }
    }
    let each = diagnostics_of(
        "
graphrun: 1
name: case
state: { brief: string, names: '[string]', each: string }
input: [brief, names]
output: each
start: m
nodes:
  m: { map: { over: names, do: n }, then: end }
  n: { set: { each: item } }
",
    );
    assert!(each.contains("write `each: { type: [string], merge: append }`"), "{each}");
}

#[test]
fn limits_below_the_worst_case_without_a_target_are_warned() {
    let workflow = |limits: &str, visits: u32| {
        diagnostics_of(&format!(
            "
graphrun: 1
name: rounds
state: {{ brief: string, draft: string, count: {{ type: int, merge: sum, default: 0 }} }}
input: brief
output: draft
{limits}
models: {{ m: openai/gpt-5-mini }}
agents: {{ writer: {{ model: m }} }}
start: write
nodes:
  write: {{ agent: writer, prompt: {{ text: \"{{{{ brief }}}}\" }}, writes: draft, max_visits: {visits}, exhausted: end, timeout: 1m, retry: 2, then: check }}
  check:
    set: {{ count: 1 }}
    then: [{{ when: count > 5, to: end }}, {{ to: write }}]
"
        ))
    };
    assert_eq!(workflow("", 50), "");
    insta::assert_snapshot!(workflow("", 51), @r"
    GR132: a run may take 102 super-steps, and its limit is 100; `write` takes 51 of them: 51 visits
      at case.yaml:12:3: stops a run half-way
      help: raise the limit, lower a bound (`graphrun plan` shows which count), or name a target for such runs with `exhausted` in `limits`
    ");
    insta::assert_snapshot!(workflow("limits: { steps: 9, time: 9m }", 5), @r"
    GR132: a run may take 10 super-steps, and its limit is 9; `write` takes 5 of them: 5 visits
      at case.yaml:7:1: stops a run half-way
      help: raise the limit, lower a bound (`graphrun plan` shows which count), or name a target for such runs with `exhausted` in `limits`
    GR132: a run may work for 10m, and its limit is 9m
      at case.yaml:7:1: stops a run half-way
      help: raise the limit, lower a bound (`graphrun plan` shows which count), or name a target for such runs with `exhausted` in `limits`
    ");
    assert_eq!(workflow("limits: { steps: 10, time: 10m }", 5), "");
    assert_eq!(workflow("limits: { steps: 9, time: 9m, exhausted: end }", 5), "");
}

const REVIEW: &str = "
graphrun: 1
name: review
state:
  items: '[string]'
  is_due: { type: bool, default: false }
  sum: { type: int, merge: sum, default: 0 }
input: items
output: sum
start: try
nodes:
  try: { set: { sum: 1 }, max_visits: 2, exhausted: fail, then: both }
  both: { parallel: [a, b], then: judge }
  a: { set: { sum: 1 } }
  b: { set: { sum: 1 } }
  judge: { set: { sum: 1 }, then: [{ when: is_due, to: try }, { to: tell }] }
  tell: { set: { sum: 1 }, then: last }
  last: { parallel: [one, other], then: end }
  one: { set: { sum: 1 } }
  other: { set: { sum: 1 } }
";

/// Eight parts one after the other take eight times the steps of one, however often a part parts its
/// ways: with that limit there is no diagnostic, and with one less there is.
fn assert_takes(steps_of_one: u32, part: impl Fn(u32, &str) -> String) {
    let next = |at| if at < 8 { format!("s{at}") } else { "end".to_owned() };
    let parts: String = (0..8).map(|at| part(at, &next(at + 1))).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("review.yaml"), REVIEW).unwrap();
    let diagnostics = |steps: u32| {
        let text = format!(
            "
graphrun: 1
name: chain
state:
  items: '[string]'
  is_due: bool
  sum: {{ type: int, merge: sum, default: 0 }}
input: [items, is_due]
output: sum
limits: {{ steps: {steps} }}
start: s0
nodes:
{parts}"
        );
        let path = folder.path().join("chain.yaml");
        std::fs::write(&path, text).unwrap();
        let (workflow, warnings) = load(&path, &registry()).unwrap();
        let graph = workflow.into_graph(&factory(Services::offline(), registry()));
        let graph = compile(graph).unwrap();
        let all = warnings.in_order().into_iter().chain(graph.warnings().in_order());
        // Not every part reads every input.
        all.filter(|it| it.code != "GR018").map(|it| it.message.clone()).collect::<String>()
    };
    assert_eq!(diagnostics(8 * steps_of_one), "");
    let told = diagnostics(8 * steps_of_one - 1);
    assert!(told.contains(&format!("a run may take {} super-steps", 8 * steps_of_one)), "{told}");
}

#[test]
fn maps_in_a_row_take_two_steps_each() {
    assert_takes(2, |at, next| {
        format!(
            "
  s{at}: {{ map: {{ over: items, do: each{at} }}, then: {next} }}
  each{at}: {{ set: {{ sum: index }} }}"
        )
    });
    assert_takes(5, |at, next| {
        format!(
            "
  s{at}: {{ set: {{ sum: 1 }}, then: both{at} }}
  both{at}: {{ parallel: [[a{at}, last_a{at}], [b{at}, last_b{at}]], then: join{at} }}
  a{at}: {{ map: {{ over: items, do: each_a{at} }} }}
  b{at}: {{ map: {{ over: items, do: each_b{at} }} }}
  each_a{at}: {{ set: {{ sum: index }} }}
  each_b{at}: {{ set: {{ sum: index }} }}
  last_a{at}: {{ set: {{ sum: 1 }} }}
  last_b{at}: {{ set: {{ sum: 1 }} }}
  join{at}: {{ set: {{ sum: 1 }}, then: {next} }}"
        )
    });
}

#[test]
fn one_parallel_or_the_other_takes_the_steps_of_one() {
    assert_takes(3, |at, next| {
        format!(
            "
  s{at}: {{ set: {{ sum: 1 }}, then: [{{ when: is_due, to: one{at} }}, {{ to: two{at} }}] }}
  one{at}: {{ parallel: [a{at}, b{at}], then: last_a{at} }}
  two{at}: {{ parallel: [c{at}, d{at}], then: last_c{at} }}
  a{at}: {{ set: {{ sum: 1 }} }}
  b{at}: {{ set: {{ sum: 1 }} }}
  c{at}: {{ set: {{ sum: 1 }} }}
  d{at}: {{ set: {{ sum: 1 }} }}
  last_a{at}: {{ set: {{ sum: 1 }}, then: {next} }}
  last_c{at}: {{ set: {{ sum: 1 }}, then: {next} }}"
        )
    });
}

#[test]
fn a_used_workflow_ends_once_however_many_branches_it_ends_with() {
    // The one that uses it, two rounds of three steps, the two it ends with, its end, and what catches
    // its failure.
    assert_takes(1 + 2 * 3 + 2 + 1 + 1, |at, next| {
        format!(
            "
  s{at}: {{ use: {{ workflow: review.yaml, in: {{ items: items }}, out: {{ sum: sum }} }}, catch: {{ any: late{at} }}, then: {next} }}
  late{at}: {{ set: {{ sum: 1 }}, then: {next} }}"
        )
    });
    assert_takes(1 + 1 + 2 * 3 + 2 + 1, |at, next| {
        format!(
            "
  s{at}: {{ set: {{ sum: 1 }}, then: [{{ when: is_due, to: review{at} }}, {{ to: {next} }}] }}
  review{at}: {{ use: {{ workflow: review.yaml, in: {{ items: items }}, out: {{ sum: sum }} }}, then: {next} }}"
        )
    });
}

#[test]
fn parallel_nodes_count_the_steps_of_the_longest() {
    let mut text = "graphrun: 1\nname: wide\nstate: { brief: string, log: { type: [string], merge: append, default: [] } }\n\
                    input: brief\nlimits: { steps: 8 }\nstart: all\nnodes:\n  all: { parallel: ["
        .to_owned();
    let branches: Vec<String> = (0..9).map(|it| format!("[a{it}, b{it}]")).collect();
    text += &branches.join(", ");
    text += "], then: end }\n";
    for it in 0..9 {
        text.extend([format!(
            "  a{it}: {{ set: {{ log: brief }} }}\n  b{it}: {{ set: {{ log: brief }} }}\n"
        )]);
    }
    assert_eq!(diagnostics_of(&text), "");
}
