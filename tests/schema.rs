//! `graphrun schema`: what the JSON Schemas take and refuse is what the program takes and refuses.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use graphrun::{
    diagnostic::CODES,
    event::{self, Event, Report, RunEvent, Status, Usage},
    id::{NodeName, RunId, Step, TaskId},
    models::TokenUsage,
    registry,
    state::Schema,
    team::TeamState,
    workflow,
};
use jiff::Timestamp;
use jsonschema::Validator;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// Every workflow of the repository that is right.
fn workflows() -> Vec<PathBuf> {
    let folders =
        ["tests/workflow/right", "tests/corpus", "graphs", "examples", "tests/cli/workflows"];
    let mut found: Vec<PathBuf> = folders
        .iter()
        .flat_map(|it| fs::read_dir(it).unwrap())
        .map(|it| it.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "yaml"))
        .filter(|path| !path.ends_with("wrong.yaml") && !path.to_str().unwrap().contains(".test."))
        // The parser of this test refuses its closing brackets, which graphrun indents for the parser.
        .filter(|it| !it.ends_with("brackets.yaml"))
        .collect();
    found.sort();
    assert!(found.len() > 10, "only {} files", found.len());
    found
}

/// A YAML file as an editor sees it: by the core schema of YAML 1.2.
pub(crate) fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    to_json(&Yaml::load_from_str(&text).unwrap()[0])
}

fn to_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(it)) => json!(it),
        Yaml::Value(Scalar::Integer(it)) => json!(it),
        Yaml::Value(Scalar::FloatingPoint(it)) => json!(it.into_inner()),
        Yaml::Value(Scalar::String(it)) => json!(it),
        Yaml::Sequence(items) => items.iter().map(to_json).collect(),
        Yaml::Mapping(entries) => {
            let key = |yaml: &Yaml<'_>| match to_json(yaml) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            Value::Object(entries.iter().map(|(k, v)| (key(k), to_json(v))).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn problems(validator: &Validator, value: &Value) -> Vec<String> {
    let described = |it: jsonschema::ValidationError<'_>| format!("{}: {it}", it.instance_path());
    validator.iter_errors(value).map(described).collect()
}

#[test]
fn loaded_files_fit_the_schema() {
    let validator = jsonschema::validator_for(&workflow::json_schema(&registry())).unwrap();
    for path in workflows() {
        let problems = problems(&validator, &read(&path));
        assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
    }
}

#[test]
fn the_right_examples_of_every_code_fit_the_schema() {
    let validator = jsonschema::validator_for(&workflow::json_schema(&registry())).unwrap();
    let of_workflows = CODES.iter().filter(|it| !it.right().starts_with("graphrun_test:"));
    for code in of_workflows {
        let example = to_json(&Yaml::load_from_str(code.right()).unwrap()[0]);
        let problems = problems(&validator, &example);
        assert!(problems.is_empty(), "{}: {problems:#?}", code.as_str());
    }
}

/// Each section of each workflow gets, one at a time, a key that is misspelt. Nothing but that is
/// blamed, and in the end no section of the schema is left untried.
#[test]
fn a_misspelt_key_is_refused_at_its_section() {
    let schema = workflow::json_schema(&registry());
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut tried = BTreeSet::new();
    for path in workflows() {
        let whole = read(&path);
        let mut sections = Vec::new();
        closed_sections(&schema, "", &whole, "", &mut sections);
        for (pointer, place) in sections {
            let mut wrong = whole.clone();
            let section = wrong.pointer_mut(&place).unwrap().as_object_mut().unwrap();
            let Some((key, _)) = section.iter().next() else { continue };
            let misspelt = format!("{key}x");
            let value = section.shift_remove(&key.clone()).unwrap();
            section.insert(misspelt.clone(), value);
            let mut errors = validator.iter_errors(&wrong);
            let blamed = errors.any(|error| {
                error.instance_path().as_str() == place && error.to_string().contains(&misspelt)
            });
            assert!(blamed, "{}: {misspelt} at {place} is taken", path.display());
            tried.insert(pointer);
        }
    }
    let mut all = BTreeSet::new();
    closed(&schema, "", &mut all);
    let untried: Vec<&String> = all.difference(&tried).collect();
    assert!(untried.is_empty(), "no workflow has these sections: {untried:#?}");
}

/// The places of a value at which the schema takes known keys only.
fn closed_sections(
    schema: &Value,
    pointer: &str,
    value: &Value,
    place: &str,
    found: &mut Vec<(String, String)>,
) {
    match value {
        Value::Object(entries) => {
            if schema["additionalProperties"] == json!(false) {
                found.push((pointer.to_owned(), place.to_owned()));
            }
            for (key, value) in entries {
                let (inner, step) = match schema.pointer(&format!("/properties/{key}")) {
                    Some(inner) => (inner, format!("properties/{key}")),
                    None => (&schema["additionalProperties"], "additionalProperties".to_owned()),
                };
                let pointer = format!("{pointer}/{step}");
                let place = format!("{place}/{key}");
                closed_sections(inner, &pointer, value, &place, found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/items");
                let place = format!("{place}/{at}");
                closed_sections(&schema["items"], &pointer, item, &place, found);
            }
        }
        _ => (),
    }
}

/// The places of the schema that take known keys only, less those behind a condition.
fn closed(schema: &Value, pointer: &str, found: &mut BTreeSet<String>) {
    if schema["additionalProperties"] == json!(false) {
        found.insert(pointer.to_owned());
    }
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        closed(value, &format!("{pointer}/properties/{key}"), found);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            closed(&schema[keyword], &format!("{pointer}/{keyword}"), found);
        }
    }
}

#[test]
fn known_words_and_bounds_are_part_of_the_schema() {
    let validator = jsonschema::validator_for(&workflow::json_schema(&registry())).unwrap();
    let mut right = read(Path::new("graphs/dev_team.yaml"));
    right["limits"]["usd"] = json!(5);
    right["limits"]["calls"] = json!(5);
    assert!(validator.is_valid(&right));
    let wrong = [
        ("/graphrun", json!(2)),
        ("/models/fast", json!("gpt-5-mini")),
        ("/agents/sse/temperature", json!(3)),
        ("/agents/ba/model", json!(["fast"])),
        ("/sandboxes/python/network", json!("on")),
        ("/sandboxes/python/memory", json!("2 GB")),
        ("/limits/steps", json!(0)),
        ("/limits/calls", json!(0)),
        ("/limits/tokens", json!("many")),
        ("/limits/usd", json!(-1)),
        ("/defaults/retry", json!(0)),
        ("/nodes/unit_tests/run_tests/runner", json!("jest")),
        ("/nodes/unit_tests/writes/test_result", json!(["result"])),
        ("/nodes/sse/max_visits", json!("3 times")),
        ("/nodes/sse/then", json!(null)),
        ("/nodes/qa/then/to", json!("publish")),
        ("/start", json!({"ba": 1})),
    ];
    for (place, value) in wrong {
        let mut changed = right.clone();
        *changed.pointer_mut(place).unwrap() = value.clone();
        let errors: Vec<String> =
            validator.iter_errors(&changed).map(|it| it.instance_path().to_string()).collect();
        assert!(errors.iter().any(|it| it.starts_with(place)), "{place} takes {value}: {errors:?}");
    }
}

#[test]
fn a_field_with_more_than_a_type_differs_from_a_record() {
    let validator = jsonschema::validator_for(&workflow::json_schema(&registry())).unwrap();
    let fits = |state: Value| {
        let state = json!({"graphrun": 1, "name": "w", "start": "a", "nodes": {}, "state": state});
        problems(&validator, &state).is_empty()
    };
    assert!(fits(json!({"a": {"type": ["string"], "merge": "append", "default": []}})));
    assert!(fits(json!({"a": {"type": "int", "merge": {"best": "b.c"}, "about": "what"}})));
    assert!(fits(json!({"a": {"type": "string", "merge": "string", "other": "int"}})));
    assert!(!fits(json!({"a": {"type": ["string"], "merge": "appendd"}})));
    assert!(!fits(json!({"a": {"type": "int", "merge": {"bst": "b.c"}}})));
    assert!(!fits(json!({"a": 3})));
}

fn program(arguments: &[&str]) -> (i32, String, String) {
    let program = Command::new(env!("CARGO_BIN_EXE_graphrun")).args(arguments).output().unwrap();
    let text = |it| String::from_utf8(it).unwrap();
    (program.status.code().unwrap(), text(program.stdout), text(program.stderr))
}

fn printed(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = program(arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn the_program_prints_each_schema() {
    assert_eq!(printed(&["schema", "workflow"]), workflow::json_schema(&registry()));
    assert_eq!(printed(&["schema", "events"]), event::json_schema());
    let team = printed(&["schema", "state", "TeamState"]);
    let mut expected = TeamState::schema().to_json_schema();
    expected["title"] = "TeamState".into();
    assert_eq!(team, expected);
    let mut of_file = printed(&["schema", "state", "graphs/dev_team.yaml", "--output", "json"]);
    assert_eq!(of_file["title"], "dev_team");
    of_file["title"] = "TeamState".into();
    assert_eq!(of_file, expected);
}

#[test]
fn a_state_that_is_not_there_is_exit_2() {
    let (code, stdout, stderr) = program(&["schema", "state", "TeamStat"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("did you mean `TeamState`?"), "{stderr}");
    let (code, _, stderr) = program(&["schema", "state", "nowhere.yaml"]);
    assert!(code == 2 && stderr.contains("nowhere.yaml"), "{stderr}");
    let (code, _, stderr) = program(&["schema", "state", "tests/cli/workflows/wrong.yaml"]);
    assert!(code == 2 && stderr.contains("GR0"), "{stderr}");
}

#[test]
fn the_schema_of_a_state_accepts_only_its_states() {
    let path = "tests/cli/workflows/two_steps.yaml";
    let home = tempfile::tempdir().unwrap();
    let db = format!("sqlite:{}", home.path().join("runs.db").display());
    let arguments = ["execute", path, "-i", "brief=x", "--output", "json", "--db", &db];
    let (code, stdout, stderr) = program(&arguments);
    assert_eq!(code, 0, "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let schema = printed(&["schema", "state", path]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let state = report["state"].as_object().unwrap();
    assert!(!state.is_empty() && problems(&validator, &report["state"]).is_empty());
    for field in state.keys() {
        let mut wrong = report["state"].clone();
        wrong[field] = json!(["no such type"]);
        assert!(!validator.is_valid(&wrong), "{field}");
    }
    assert!(!validator.is_valid(&json!({"no_such_field": 1})));
}

#[test]
fn the_schema_of_a_state_is_complete() {
    let schema = TeamState::schema().to_json_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&json!({})), "every field is absent at first");
    let fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let state: Schema = TeamState::schema();
    let channels: Vec<&str> = state.channels().iter().map(|it| it.name().as_str()).collect();
    assert_eq!(fields, channels);
    let merge = &schema["properties"]["code_artifact"]["x-merge"];
    assert_eq!(merge, &json!({"best": "test_result.passed_count"}));
    let wrong = json!({"review": {"verdict": "approved", "score": "high"}});
    assert!(!validator.is_valid(&wrong), "definitions are followed");
}

/// Does not compile if a kind of event is missing in it.
fn is_listed(event: &Event) {
    match event {
        Event::RunStarted { .. }
        | Event::RunResumed { .. }
        | Event::TurnStarted { .. }
        | Event::WorkflowChanged { .. }
        | Event::WorkflowMigrated { .. }
        | Event::RunForked { .. }
        | Event::StateUpdated { .. }
        | Event::TaskStarted { .. }
        | Event::TaskReported { .. }
        | Event::TaskRetrying { .. }
        | Event::TimerSet { .. }
        | Event::MemoSaved { .. }
        | Event::TaskAborted { .. }
        | Event::TaskFinished { .. }
        | Event::TaskSkipped { .. }
        | Event::TaskUndecided { .. }
        | Event::TaskFailed { .. }
        | Event::QuestionAsked { .. }
        | Event::QuestionAnswered { .. }
        | Event::MessageReceived { .. }
        | Event::TaskEmitted { .. }
        | Event::StepCommitted { .. }
        | Event::RunFinished { .. } => (),
    }
}

/// One of each kind in [`is_listed`].
fn events() -> Vec<Event> {
    let task = TaskId { step: Step(1), index: 0 };
    let node = NodeName::parse("a").unwrap();
    let text = || "x".to_owned();
    let tokens =
        TokenUsage { calls: 1, cached_input_tokens: 1, estimated: true, ..TokenUsage::default() };
    let usage = Usage { tokens, cost_usd: Some(0.5) };
    let none = Usage::default();
    let wake = Timestamp::UNIX_EPOCH;
    let reports = [
        Report::ModelCall { model: text(), usage, ms: 1 },
        Report::ToolCall { tool: text(), input: text(), ms: 1, error: Some(text()) },
        Report::Warning { message: text() },
        Report::Note { message: text() },
        Report::CacheHit { computed_at: text() },
        Report::Artifact { path: text() },
        Report::Custom { value: json!({"half": [1, null]}) },
        Report::Nested {
            event: Box::new(Event::TaskReported {
                task,
                node: node.clone(),
                report: Report::Note { message: text() },
            }),
        },
    ];
    let reported = reports.into_iter().map(|report| {
        let (Report::ModelCall { .. }
        | Report::ToolCall { .. }
        | Report::Warning { .. }
        | Report::Note { .. }
        | Report::CacheHit { .. }
        | Report::Artifact { .. }
        | Report::Custom { .. }
        | Report::Nested { .. }) = report;
        Event::TaskReported { task, node: node.clone(), report }
    });
    let mut events: Vec<Event> = reported.collect();
    let node = || node.clone();
    events.extend([
        Event::RunStarted { name: text(), workflow: text() },
        Event::RunResumed { step: Step(3) },
        Event::TurnStarted { turn: 2, step: Step(3) },
        Event::WorkflowChanged { changes: vec![text()] },
        Event::WorkflowMigrated {
            step: Step(4),
            workflow: text(),
            mapped: Vec::new(),
            dropped: Vec::new(),
            again: Vec::new(),
            set: Vec::new(),
            next: vec![node()],
        },
        Event::RunForked { from: RunId::parse("R0").unwrap(), step: Step(3), set: Vec::new() },
        Event::StateUpdated { step: Step(4), node: None, writes: vec![text()] },
        Event::TaskStarted { task, node: node(), attempt: 1, visit: 1, max_visits: None },
        Event::TaskStarted { task, node: node(), attempt: 1, visit: 1, max_visits: Some(2) },
        Event::TaskRetrying { task, node: node(), attempt: 1, error: text(), wait_ms: 1 },
        Event::TimerSet { task, node: node(), key: text(), wake, reason: None },
        Event::MemoSaved { task, node: node(), name: text() },
        Event::TaskAborted { task, node: node(), attempt: 1, ms: 1, usage },
        Event::TaskFinished {
            task,
            node: node(),
            attempt: 1,
            ms: 1,
            writes: vec![text()],
            to: vec![text()],
            usage,
        },
        Event::TaskSkipped { task, node: node(), condition: text(), to: vec![text()] },
        Event::TaskUndecided {
            task,
            node: node(),
            attempt: 1,
            ms: 1,
            writes: vec![text()],
            kind: text(),
            error: text(),
            usage,
        },
        Event::TaskFailed {
            task,
            node: node(),
            attempt: 1,
            ms: 1,
            kind: text(),
            error: text(),
            to: Vec::new(),
            usage: none,
        },
        Event::QuestionAsked { task, node: node(), key: text(), prompt: text(), schema: json!({}) },
        Event::QuestionAnswered { task, node: node(), key: text(), by: None },
        Event::MessageReceived { to: text(), by: None, problem: None },
        Event::TaskEmitted { task, node: node(), name: text(), message: text() },
        Event::StepCommitted { step: Step(1), next: vec![node()] },
        Event::RunFinished { status: Status::Done, reason: None, steps: 1, usage },
    ]);
    events.iter().for_each(is_listed);
    events
}

/// A key that is left out is refused, unless it may be absent.
const MAY_BE_ABSENT: &[&str] = &["estimated", "cached_input_tokens"];

#[test]
fn the_schema_accepts_events_and_refuses_damaged_ones() {
    let validator = jsonschema::validator_for(&event::json_schema()).unwrap();
    for event in events() {
        let stamped = RunEvent {
            v: event::EVENT_VERSION,
            seq: 1,
            ts: "2026-01-01T00:00:00Z".into(),
            run: RunId::parse("r").unwrap(),
            event,
        };
        let right = serde_json::to_value(stamped).unwrap();
        assert_eq!(problems(&validator, &right), [""; 0], "{right}");
        let keys: Map<String, Value> = right.as_object().unwrap().clone();
        for (key, value) in keys {
            let mut wrong = right.clone();
            wrong.as_object_mut().unwrap().shift_remove(&key);
            let optional = value.is_null() || MAY_BE_ABSENT.contains(&key.as_str());
            assert!(optional || !validator.is_valid(&wrong), "without {key}: {right}");
            if key == "schema" {
                continue;
            }
            wrong[&key] = json!([[1]]);
            assert!(!validator.is_valid(&wrong), "another {key}: {right}");
        }
    }
}

#[test]
fn the_events_of_real_runs_fit_the_schema() {
    let validator = jsonschema::validator_for(&printed(&["schema", "events"])).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut kinds = BTreeSet::new();
    for workflow in ["two_steps", "asks", "fails"] {
        let db = format!("sqlite:{}", home.path().join(workflow).display());
        let path = format!("tests/cli/workflows/{workflow}.yaml");
        let arguments = ["execute", &path, "-i", "brief=x", "--output", "jsonl", "--db", &db];
        let (_, stdout, stderr) = program(&arguments);
        assert!(!stdout.is_empty(), "{stderr}");
        for line in stdout.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(problems(&validator, &event), [""; 0], "{event}");
            kinds.insert(event["type"].as_str().unwrap().to_owned());
        }
    }
    let told = ["run.started", "task.started", "task.finished", "question.asked", "run.finished"];
    assert!(told.iter().all(|it| kinds.contains(*it)), "{kinds:?}");
}
