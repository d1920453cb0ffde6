//! `graphrun plan`: the worst case of a workflow.

use std::fs;

use serde_json::json;

use super::program::{Place, keys, workflow};

const DEV_TEAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/graphs/dev_team.yaml");

/// By hand:
/// - `qa` has 4 visits and is never reset. Each may send everything back, so `tl`, which it
///   resets, has 2 visits in 1 + 4 rounds, and `sse`, which both reset, 3 in 1 + 4 + 10.
/// - Every code is tested once, so `unit_tests` runs as often as `sse`.
/// - `revise` comes after `tl` or `qa`. But `qa` is only reached by way of `tl` and `help`, and
///   each of them goes one way: at most 10 + 1.
/// - From `qc` and `ta` on, whose join counts once, everything goes one way at a time, and
///   `publish` leaves the loop: 1.
/// - `flush` leads to `fail`, which ends the run: 1.
/// - An attempt is one of 3. A call is one of 1 + 2 repairs of each of the models; of 1 for `sse`,
///   which has no repairs: 45 × 3 × 2 models = 270.
/// - Super-steps: the sum of the runs, `qc` and `ta` counted once: 1 + 1 + 45 + 45 + 10 + 1 + 4
///   + 2 + 1 + 11 + 1 = 122.
/// - Time: three attempts of ten minutes each in every one of these steps but those of `help`, where
///   a person is waited for, and of `revise`, which computes: (122 - 1 - 11) × 30 minutes.
#[test]
fn the_worst_case_of_the_software_team_matches_a_manual_count() {
    let ended = Place::new().run(["plan", DEV_TEAM]);
    insta::assert_snapshot!(ended, @r"
    exit 0
    stdout:
    NODE        RUNS  ATTEMPTS  MODEL CALLS  WHY
    ba          1     3         9            the start leads to it once
    qc          1     3         9            after `ba` (1)
    ta          1     3         18           after `ba` (1)
    sse         45    135       270          3 visits × 15 rounds: the first, and reset by `qa` (4), `tl` (10)
    unit_tests  45    135       0            after `sse` (45)
    tl          10    30        180          2 visits × 5 rounds: the first, and reset by `qa` (4)
    help        1     3         0            1 visit
    qa          4     12        72           4 visits
    architect   2     6         36           2 visits
    publish     1     3         0            after `qc` (1)
    revise      11    33        0            after `help` (1), `tl` (10)
    flush       1     3         0            the run ends with it

    super-steps  119            mostly `sse`  limit: 90
    model calls  594            mostly `sse`
    tokens       180.0M tokens  mostly `sse`  limit: 200.0k tokens
    cost         $2606.40       mostly `sse`
    time         55 h 00 min    mostly `sse`  limit: 45 min 00 s

    anthropic/claude-opus-4-5  200.0k tokens, $5.00 / $25.00 per million (built in, 2026-08-01)
    openai/gpt-5               400.0k tokens, $1.25 / $10.00 per million (built in, 2026-11-26)
    openai/gpt-5-mini          400.0k tokens, $0.25 / $2.00 per million (built in, 2026-11-26)
    warning: the worst case exceeds `limits.steps`: after 90 super-steps a run continues at `flush`
    warning: the worst case exceeds `limits.tokens`: after 200.0k tokens a run continues at `flush`
    warning: the worst case exceeds `limits.time`: after 45 min 00 s of work a run continues at `flush`
    stderr:
    ");
}

#[test]
fn a_program_reads_the_same_worst_case_as_json() {
    let plan = Place::new().run(["plan", DEV_TEAM, "--output", "json"]).json();
    let expected = [
        "workflow",
        "steps_max",
        "calls_max",
        "calls_unknown",
        "tokens_max",
        "cost_usd_max",
        "time_ms_max",
        "largest",
        "unknown",
        "models",
        "limits",
        "warnings",
        "nodes",
    ];
    assert_eq!(keys(&plan), expected);
    assert_eq!((&plan["steps_max"], &plan["calls_max"]), (&json!(119), &json!(594)));
    // By the windows and prices of the models, the worst of each call: 400,000 tokens of output for most.
    assert_eq!(plan["tokens_max"], 180_000_000);
    assert!((plan["cost_usd_max"].as_f64().unwrap() - 2606.4).abs() < 1e-6, "{plan}");
    assert_eq!(plan["models"]["openai/gpt-5-mini"]["context"], 400_000);
    let sse = plan["nodes"].as_array().unwrap().iter().find(|it| it["node"] == "sse").unwrap();
    let why = "3 visits × 15 rounds: the first, and reset by `qa` (4), `tl` (10)";
    let expected = json!({"node": "sse", "kind": "agent", "runs_max": 45, "attempts_max": 135,
        "calls_max": 270, "tokens_max": 81_000_000, "cost_usd_max": 1215.0, "time_ms_max": 81_000_000,
        "is_per_item": false, "why": why});
    assert_eq!(sse, &expected);
    let largest = json!({"steps": "sse", "calls": "sse", "tokens": "sse", "cost_usd": "sse", "time_ms": "sse"});
    assert_eq!(plan["largest"], largest);
}

#[test]
fn a_plan_within_its_limits_has_no_warnings_and_writes_nothing() {
    let place = Place::new();
    insta::assert_snapshot!(place.run(["plan", &workflow("agent")]), @r"
    exit 0
    stdout:
    NODE   RUNS  ATTEMPTS  MODEL CALLS  WHY
    write  1     6         18           the start leads to it once

    super-steps  1            limit: 100
    model calls  18
    tokens       7.2M tokens
    cost         $14.40
    time         ?

    openai/gpt-5-mini  400.0k tokens, $0.25 / $2.00 per million (built in, 2026-11-26)
    not known: time: `write` without `timeout`
    stderr:
    ");
    assert!(place.is_empty());
}

#[test]
fn a_model_without_figures_makes_the_worst_case_unknown() {
    let place = Place::new();
    let ended = place.run_with(["plan", &workflow("agent")], [("GRAPHRUN_MODEL", "openai/tiny")]);
    for line in [
        "tokens       ?\n",
        "cost         ?\n",
        "openai/tiny  context ?, price ?\n",
        "not known: tokens and cost: no context window of `openai/tiny`; `[context]` in `graphrun.toml` sets it\n",
        "not known: cost: no price of `openai/tiny`; `[prices]` in `graphrun.toml` sets it\n",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended}");
    }
}

#[test]
fn a_workflow_that_does_not_load_has_no_plan() {
    let place = Place::new();
    let ended = place.run(["plan", &workflow("wrong")]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    assert!(ended.stderr.contains("did you mean `second`"), "{ended}");
    assert_eq!(place.run(["plan", &workflow("agent"), "--output", "jsonl"]).code, 2);
}

/// An algorithm that computes a flow from each node through all others would take minutes.
#[test]
fn the_worst_case_of_two_thousand_nodes_in_loops_is_found() {
    let place = Place::new();
    let mut text =
        "graphrun: 1\nname: many\nstate: { brief: string, go: bool }\ninput: [brief, go]\n\
                    limits: { steps: 6000 }\nstart: a0\nnodes:\n"
            .to_owned();
    for at in 0..1_000 {
        let next = if at == 999 { "end".to_owned() } else { format!("a{}", at + 1) };
        text.extend([format!(
            "  a{at}: {{ set: {{ brief: brief }}, max_visits: 3, exhausted: {next}, then: b{at} }}\n  \
             b{at}: {{ set: {{ brief: brief }}, then: [{{ when: go, to: {next} }}, {{ to: a{at} }}] }}\n"
        )]);
    }
    fs::write(place.path("many.yaml"), text).unwrap();
    let plan = place.run(["plan", "many.yaml", "--output", "json"]).json();
    assert_eq!((&plan["steps_max"], &plan["warnings"]), (&json!(6_000), &json!([])));
    let ended = place.run(["validate", "many.yaml"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended}");
}

const INNER: &str = r#"
graphrun: 1
name: inner
state: { t: string, a: string, b: string }
input: t
output: b
models: { m: openai/gpt-5-mini }
agents: { w: { model: m } }
start: one
nodes:
  one: { agent: w, prompt: { text: "{{ t }}" }, writes: a, retry: 2, then: two }
  two: { agent: w, prompt: { text: "{{ a }}" }, writes: b, retry: 1, then: end }
"#;

const OUTER: &str = r"
graphrun: 1
name: outer
state: { text: string, done: string }
input: text
output: done
start: single
nodes:
  single: { use: { workflow: inner.yaml, in: { t: text }, out: { done: b }, nested: true }, retry: 3, then: end }
";

/// `one` has 2 × 3 calls and `two` 3. Each of the two further attempts at the nested run follows a failure of one of
/// them, and at most `one` runs again: 9 + 2 × 6.
#[test]
fn a_nested_run_that_is_tried_again_repeats_only_a_failed_step() {
    let place = Place::new();
    fs::write(place.path("inner.yaml"), INNER).unwrap();
    fs::write(place.path("outer.yaml"), OUTER).unwrap();
    let planned = place.run(["plan", "outer.yaml", "--output", "json"]).json();
    assert_eq!(planned["calls_max"], json!(21), "{planned}");
    assert_eq!(planned["tokens_max"], json!(21 * 400_000), "{planned}");
    assert!(planned["cost_usd_max"].as_f64().is_some_and(|it| it > 0.0), "{planned}");
    assert!(planned["models"].get("openai/gpt-5-mini").is_some(), "{planned}");
    // A run that a route led to failure begins anew.
    let failing = INNER.replace("retry: 1, then: end", "retry: 1, then: fail");
    fs::write(place.path("inner.yaml"), failing).unwrap();
    let planned = place.run(["plan", "outer.yaml", "--output", "json"]).json();
    assert_eq!(planned["calls_max"], json!(27), "{planned}");
}
