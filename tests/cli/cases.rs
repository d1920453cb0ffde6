//! `graphrun test`: files, formats and exit codes.

use std::fs;

use serde_json::{Value, json};

use super::program::{Ended, Place, keys, workflow};

const HALF: &str = "graphrun_test: 1\ninput: { brief: x }\ncases:\n\
    \x20 - { name: the brief is the answer, expect: { state: { answer: x } } }\n\
    \x20 - { name: the draft comes last, expect: { route: [second, first] } }\n";

/// Creates a folder with the workflow of two steps and these test cases.
fn place(cases: &str) -> Place {
    let place = Place::new();
    fs::create_dir(place.path("flows")).unwrap();
    fs::copy(workflow("two_steps"), place.path("flows/two_steps.yaml")).unwrap();
    fs::write(place.path("flows/two_steps.test.yaml"), cases).unwrap();
    place
}

/// Returns the output, without durations.
fn timeless(ended: &Ended) -> String {
    let word =
        |word: &str| if word.parse::<u64>().is_ok() { "N".to_owned() } else { word.to_owned() };
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((rest, "ms")) => {
            let (rest, number) = rest.rsplit_once(' ').unwrap();
            format!("{rest} {} ms", word(number))
        }
        _ => line.to_owned(),
    };
    ended.to_string().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_case_that_fails_is_exit_1_and_shows_the_step_that_differs() {
    let place = place(HALF);
    insta::assert_snapshot!(timeless(&place.run(["test"])), @r"
    exit 1
    stdout:
    flows/two_steps.test.yaml
      ok    the brief is the answer  N ms
      FAIL  the draft comes last  N ms
            flows/two_steps.test.yaml:5: the route differs at step 1
              expected  → second, first
              actual    → first, second
            the whole run: first, second

    2 cases: 1 passed, 1 failed, N ms
    stderr:
    ");
    let quiet = place.run(["test", "-q", "flows/two_steps.yaml"]);
    assert!(quiet.code == 1 && !quiet.stdout.contains("ok  "), "{quiet}");
    let passing = place.run(["test", "--filter", "the brief"]);
    assert!(passing.code == 0 && passing.stdout.contains("1 case: 1 passed"), "{passing}");
    let cases = place.run(["test", "flows/two_steps.test.yaml"]);
    assert_eq!(timeless(&cases), timeless(&place.run(["test"])));
    assert!(!place.path(".graphrun").exists(), "a case leaves nothing");
}

#[test]
fn the_test_cases_below_a_named_folder_run() {
    let place = place(HALF);
    fs::create_dir(place.path("empty")).unwrap();
    let ran = place.run(["test", "flows"]);
    assert!(ran.stdout.contains("the brief is the answer"), "{ran}");
    let none = place.run(["test", "empty"]);
    assert_eq!(none.code, 2, "{none}");
    assert!(none.stderr.contains("no `*.test.yaml` below `empty`"), "{none}");
}

#[test]
fn invalid_test_cases_are_exit_2_and_none_runs() {
    let misspelt = place(&HALF.replace("first]", "frist]"));
    let ended = misspelt.run(["test"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{ended}");
    assert!(ended.stderr.contains("did you mean `first`?"), "{ended}");
    let none = place(HALF);
    for (args, said) in [
        (&["test", "--filter", "nothing"][..], "no case has `nothing` in its name"),
        (&["test", "nowhere.yaml"], "cannot read `nowhere.yaml`"),
        (&["test", "--output", "sarif"], "no output `sarif`"),
    ] {
        let ended = none.run(args);
        assert!(ended.code == 2 && ended.stderr.contains(said), "{ended}");
    }
    let empty = Place::new();
    fs::copy(workflow("agent"), empty.path("agent.yaml")).unwrap();
    for (args, said) in [
        (&["test", "agent.yaml"][..], "`agent.test.yaml`"),
        (&["test"], "there is no `*.test.yaml`"),
    ] {
        let ended = empty.run(args);
        assert!(ended.code == 2 && ended.stderr.contains(said), "{ended}");
    }
}

#[test]
fn a_node_with_side_effects_stops_its_case() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let cases = "graphrun_test: 1\ninput: { brief: x }\ncases:\n\
        \x20 - { name: an answer, expect: { route: [write] } }\n";
    fs::write(place.path("agent.test.yaml"), cases).unwrap();
    let ended = place.run(["test"]);
    for part in [
        "agent.test.yaml:4: the run reached `write`, which has no answer\n",
        "help: a test runs no real nodes: give the fields it writes, as in `nodes: { write: {} }`",
    ] {
        assert!(ended.code == 1 && ended.stdout.contains(part), "{ended}");
    }
}

#[test]
fn programs_read_the_result_of_each_case() {
    let place = place(HALF);
    let object = place.run(["test", "--output", "json"]).json();
    assert_eq!(keys(&object), ["passed", "failed", "ms", "files"]);
    assert_eq!((&object["passed"], &object["failed"]), (&json!(1), &json!(1)));
    let file = &object["files"][0];
    assert_eq!(file["file"], "flows/two_steps.test.yaml");
    assert_eq!(file["workflow"], "flows/two_steps.yaml");
    let case = &file["cases"][1];
    assert_eq!(keys(case), ["name", "passed", "ms", "status", "reason", "route", "problems"]);
    assert_eq!(case["route"], json!([["first"], ["second"]]));
    let problem = &case["problems"][0];
    assert_eq!(keys(problem), ["file", "line", "column", "what", "expected", "actual", "help"]);
    assert_eq!((&problem["line"], &problem["expected"]), (&json!(5), &json!("→ second, first")));

    let lines = place.run(["test", "--output", "jsonl"]).stdout;
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let types: Vec<&Value> = lines.iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["case.finished", "case.finished", "test.finished"]);
    assert!(lines.iter().all(|it| it["v"] == 1), "{lines:?}");
}

#[test]
fn uncovered_parts_are_listed_and_have_a_minimum() {
    let place = Place::new();
    fs::copy(workflow("asks"), place.path("asks.yaml")).unwrap();
    let cases = "graphrun_test: 1\ninput: { brief: x }\ncases:\n\
        \x20 - { name: nobody answers, expect: { status: paused } }\n";
    fs::write(place.path("asks.test.yaml"), cases).unwrap();
    let covered = place.run(["test", "--coverage"]);
    insta::assert_snapshot!(timeless(&covered), @r"
    exit 0
    stdout:
    asks.test.yaml
      ok    nobody answers  N ms

    coverage of asks.yaml: 50%, 1 of 2 parts
      never taken:
        asks.yaml:9  edge  help → end

    1 case: 1 passed, N ms
    stderr:
    ");
    assert_eq!(place.run(["test", "--coverage-min", "50"]).code, 0);
    assert_eq!(place.run(["test", "--coverage-min", "51"]).code, 1);
    assert_eq!(place.run(["test", "--coverage-min", "101"]).code, 2);
    let object = place.run(["test", "--coverage", "--output", "json"]).json();
    let coverage = &object["coverage"][0];
    assert_eq!(keys(coverage), ["workflow", "parts", "taken", "percent", "missed"]);
    let missed = &coverage["missed"][0];
    assert_eq!(keys(missed), ["kind", "from", "to", "label", "file", "line", "column"]);
    assert_eq!((&missed["kind"], &missed["to"]), (&json!("edge"), &json!("end")));
}

#[test]
fn one_workflow_has_one_coverage_however_its_path_is_written() {
    let place = Place::new();
    fs::copy(workflow("two_steps"), place.path("flow.yaml")).unwrap();
    let cases = |start: &str, head: &str| {
        format!(
            "graphrun_test: 1\n{head}input: {{ brief: x }}\ncases:\n\
             \x20 - {{ name: a part of the run, {start}, expect: {{ status: paused }} }}\n"
        )
    };
    fs::write(place.path("flow.test.yaml"), cases("until: second", "")).unwrap();
    let head = "workflow: ./flow.yaml\n";
    let rest = cases("start: second, state: { draft: y }", head).replace("paused", "done");
    fs::write(place.path("other.test.yaml"), rest).unwrap();
    let ended = place.run(["test", "--coverage", "--explore", "--output", "json"]);
    let report = ended.json();
    let percents: Vec<&Value> =
        report["coverage"].as_array().unwrap().iter().map(|it| &it["percent"]).collect();
    assert_eq!(percents, [100], "{ended}");
    assert_eq!(report["explored"].as_array().unwrap().len(), 1, "{ended}");
    assert_eq!(place.run(["test", "--coverage-min", "100"]).code, 0);
}

#[test]
fn an_explored_workflow_without_test_cases_has_no_coverage() {
    let place = Place::new();
    fs::copy(workflow("asks"), place.path("asks.yaml")).unwrap();
    let ended = place.run(["test", "--explore", "--coverage-min", "1", "asks.yaml"]);
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stdout.contains("coverage of asks.yaml: 0%, 0 of 2 parts\n"), "{ended}");
    assert_eq!(place.run(["test", "--explore", "--coverage-min", "0", "asks.yaml"]).code, 0);
}

#[test]
fn warnings_about_test_cases_are_shown() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let line = |node: &str| {
        format!(
            "{{\"v\": 1, \"node\": \"{node}\", \"when\": {{}}, \"reply\": {{\"text\": \"hi\"}}}}\n"
        )
    };
    fs::write(place.path("r.jsonl"), line("write") + &line("wrote")).unwrap();
    let cases = "graphrun_test: 1\ninput: { brief: x }\nreplay: r.jsonl\ncases:\n\
        \x20 - { name: an answer, expect: { route: [write] } }\n";
    fs::write(place.path("agent.test.yaml"), cases).unwrap();
    let ended = place.run(["test"]);
    assert_eq!(ended.code, 0, "{ended}");
    let warning = "line 2 of `r.jsonl` names `wrote`, which is no node";
    assert!(ended.stderr.contains("GR085") && ended.stderr.contains(warning), "{ended}");
}

#[test]
fn everything_is_tried_without_any_case() {
    let place = Place::new();
    fs::copy(workflow("asks"), place.path("asks.yaml")).unwrap();
    insta::assert_snapshot!(place.run(["test", "--explore", "asks.yaml"]), @r"
    exit 0
    stdout:
    explored asks.yaml: 1 state, all of them
      no run gets stuck, and every node is reached

    stderr:
    ");
    let stuck = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/explore/stuck.yaml");
    fs::copy(stuck, place.path("stuck.yaml")).unwrap();
    insta::assert_snapshot!(place.run(["test", "--explore", "stuck.yaml"]), @r#"
    exit 1
    stdout:
    explored stuck.yaml: 5 states, all of them
      stuck  `share` failed: division by zero (in `total / count`)
          1  judge (verdict "good")
          2  count (count 0)
          3  share
      never reached  mend

    stderr:
    "#);
    let object = place.run(["test", "--explore", "stuck.yaml", "--output", "json"]).json();
    let explored = &object["explored"][0];
    assert_eq!(
        keys(explored),
        [
            "workflow",
            "states",
            "steps",
            "is_complete",
            "open",
            "not_yet_reached",
            "stuck",
            "caught",
            "unreached",
            "gaps"
        ]
    );
    assert_eq!(explored["unreached"], json!(["mend"]));
    assert_eq!(explored["stuck"][0]["path"][0][0]["node"], "judge");
    let ended = place.run(["test", "--explore", "--explore-max", "1", "stuck.yaml"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.contains("raise `--explore-max` or `--explore-time`"), "{ended}");
    assert!(ended.stdout.contains("  not reached yet  share\n"), "{ended}");
}
