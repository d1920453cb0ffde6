//! Lenient types: what an agent may answer, and what the state then has.

use std::{path::Path, sync::Arc};

use graphrun::{
    diagnostic::SourceFile,
    registry,
    state::{ReadLeniently, Schema},
    team::UserStory,
    workflow::parse,
};
use serde_json::{Value, json};

use crate::support::ran::other_codes;

/// The user story of the software team, as a type of a workflow.
const STORY: &str = r"
graphrun: 1
name: case
state:
  story:
    type:
      lenient: true
      story_id: string
      title: string
      as_a: { type: string, default: '' }
      i_want: string
      so_that: { type: string, default: '' }
      acceptance_criteria: { type: '[string]', default: [] }
      priority: { type: critical | high | medium | low, default: medium }
input: story
start: a
nodes: { a: { set: { story: story }, then: end } }
";

const TYPES: &str = r"
graphrun: 1
name: case
types:
  Part: { kind: a | b_c, tags: '[string]' }
  Report:
    lenient: true
    verdict: pass | needs_work
    mood: { type: good | bad, default: bad }
    score: { type: int, min: 0, max: 10, default: 5 }
    share: float?
    sure: bool
    parts: '[Part]'
    counts: 'map[string, int]'
    notes: string?
  Strict: { about: string, report: Report }
state: { report: Report, reports: '[Report]', strict: Strict, maybe: Report?, log: { type: '[Strict]', merge: append }, all: '[Strict]' }
input: [report, reports, strict, maybe, log, all]
start: a
nodes:
  a: { set: { report: strict.report, maybe: report, reports: '[report]' }, then: end }
";

fn schema() -> Schema {
    schema_of(TYPES)
}

fn schema_of(text: &str) -> Schema {
    let file = Arc::new(SourceFile { name: "case.yaml".into(), text: text.into() });
    let (workflow, diagnostics) =
        parse(file, Path::new("."), &registry()).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(other_codes(&diagnostics), [""; 0], "{diagnostics}");
    workflow.schema
}

/// Reads an answer as an agent does; returns the value with the number of warnings, or the problems.
fn read(field: &str, answer: Value) -> Result<(Value, usize), Vec<String>> {
    read_with(&schema(), field, answer)
}

fn read_with(schema: &Schema, field: &str, answer: Value) -> Result<(Value, usize), Vec<String>> {
    let channel = schema.channel(field).unwrap();
    let reading = channel.reader().unwrap()(answer).map_err(|it| it.problems)?;
    channel.check(&reading.value)?;
    Ok((reading.value, reading.warnings.len()))
}

fn exact() -> Value {
    json!({
        "verdict": "needs_work", "mood": "good", "score": 7, "share": 0.5, "sure": true,
        "parts": [{"kind": "b_c", "tags": ["x"]}], "counts": {"a": 1}, "notes": "n",
    })
}

#[test]
fn an_exact_answer_is_read_unchanged_and_without_warnings() {
    assert_eq!(read("report", exact()), Ok((exact(), 0)));
    assert_eq!(read("maybe", Value::Null), Ok((Value::Null, 0)));
    let strict = json!({"about": "x", "report": exact()});
    assert_eq!(read("strict", strict.clone()), Ok((strict, 0)));
}

#[test]
fn forms_with_one_meaning_become_the_exact_answer() {
    let answer = json!({
        "verdict": " Needs-Work. ", "mood": "GOOD", "score": "7", "share": "0.5", "sure": "True",
        "parts": {"kind": "B C", "tags": "x", "more": 1}, "counts": {"a": "1"}, "notes": "n", "extra": [],
    });
    assert_eq!(read("report", answer.clone()), Ok((exact(), 11)));
    assert_eq!(read("maybe", answer.clone()), Ok((exact(), 11)));
    assert_eq!(read("reports", json!([answer.clone()])), Ok((json!([exact()]), 11)));
    assert_eq!(read("reports", answer.clone()), Ok((json!([exact()]), 12)));
    let strict = json!({"about": "x", "report": answer});
    let exact = json!({"about": "x", "report": exact()});
    assert_eq!(read("strict", strict.clone()), Ok((exact.clone(), 11)));
    assert_eq!(read("log", json!([strict])), Ok((json!([exact]), 11)));
    assert_eq!(read("log", strict.clone()), Ok((exact, 11)), "one item of a growing list");
    assert!(read("all", strict).is_err(), "a strict list stays a list");
}

#[test]
fn values_without_a_meaning_become_the_default_or_null() {
    for unknown in [json!("middling"), Value::Null, json!(3), json!("good or bad")] {
        let mut answer = exact();
        answer["mood"] = unknown.clone();
        let (value, warnings) = read("report", answer).unwrap();
        assert_eq!((&value["mood"], warnings), (&json!("bad"), 1), "{unknown}");
    }
    let mut answer = exact();
    answer["share"] = json!("half");
    answer["score"] = json!(2.5);
    answer.as_object_mut().unwrap().remove("mood");
    answer.as_object_mut().unwrap().remove("notes");
    let (value, warnings) = read("report", answer).unwrap();
    assert_eq!(
        (&value["share"], &value["score"], &value["mood"]),
        (&Value::Null, &json!(5), &json!("bad"))
    );
    assert_eq!((value.get("notes"), warnings), (None, 3));
}

#[test]
fn values_without_a_meaning_are_refused_with_their_places() {
    let mut answer = exact();
    answer["verdict"] = json!("perhaps");
    answer["sure"] = json!("yes, it is");
    answer["parts"] = json!([{"kind": null, "tags": []}]);
    let problems = read("report", answer).unwrap_err();
    assert_eq!(
        problems,
        [
            "verdict: one of pass, needs_work is required, got \"perhaps\"",
            "sure: true or false is required, got \"yes, it is\"",
            "parts[0].kind: a value is required, got null",
        ]
    );
    assert!(read("report", json!("a text")).is_err() && read("report", Value::Null).is_err());
}

#[test]
fn a_lenient_answer_keeps_to_the_range_of_its_type() {
    let mut answer = exact();
    answer["score"] = json!("11");
    let problems = read("report", answer).unwrap_err();
    assert!(problems[0].contains("greater than the maximum of 10"), "{problems:?}");
}

#[test]
fn a_strict_part_stays_as_it_is() {
    let answer = json!({"about": "x", "report": exact(), "more": 1});
    assert!(read("strict", answer).is_err());
    let schema = schema();
    let report = schema.channel("report").unwrap();
    assert!(report.check(&json!({"verdict": "PASS"})).is_err(), "only answers are read leniently");
}

/// The reader of the team also refuses blank texts, which is a rule of a story and not of a type.
#[test]
fn a_lenient_type_reads_as_the_reader_of_the_team_does() {
    let schema = schema_of(STORY);
    let story = json!({
        "story_id": "US-001", "title": "Add a task", "as_a": "person", "i_want": "to add a task",
        "so_that": "I remember it", "acceptance_criteria": ["listed"], "priority": "high",
    });
    let changes = [
        json!({}),
        json!({"notes": "more", "status": null}),
        json!({"priority": " High. "}),
        json!({"priority": "HIGH"}),
        json!({"priority": "P7"}),
        json!({"priority": null}),
        json!({"priority": 3}),
        json!({"story_id": 7, "title": ["two", "lines"]}),
        json!({"as_a": null, "so_that": 1.5}),
        json!({"acceptance_criteria": "listed"}),
        json!({"acceptance_criteria": null}),
        json!({"acceptance_criteria": [1, "two"]}),
        json!({"title": null}),
    ];
    let removed = ["", "priority", "as_a", "acceptance_criteria", "i_want"];
    let mut read = 0;
    let mut refused = 0;
    for change in &changes {
        for removed in removed {
            let mut answer = story.as_object().unwrap().clone();
            answer.extend(change.as_object().unwrap().clone());
            answer.remove(removed);
            let answer = Value::Object(answer);
            let by_team = UserStory::read_leniently(answer.clone());
            let by_type = read_with(&schema, "story", answer.clone());
            match (by_team, by_type) {
                (Ok(team), Ok((of_type, _))) => {
                    assert_eq!(serde_json::to_value(team.value).unwrap(), of_type, "{answer}");
                    read += 1;
                }
                (Err(_), Err(_)) => refused += 1,
                (team, of_type) => panic!("{answer}: {team:?} and {of_type:?}"),
            }
        }
    }
    assert!(read > 40 && refused > 10, "{read} answers are read, {refused} are refused");
}
