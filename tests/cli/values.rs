//! Every value that the program accepts is unchanged when it is saved, shown, resumed, exported and
//! verified.

use std::{collections::BTreeMap, fs};

use proptest::{
    prelude::{Strategy, any, prop_oneof},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place},
    support::postgres::Schema,
};

/// Accepts a value as input, one as an answer and one as a message.
const WORKFLOW: &str = "
graphrun: 1
name: values
about: A workflow that keeps what it is given.
state:
  given: json
  answer: { type: json, default: null }
  heard: { type: \"[json]\", merge: append, default: [] }
  copy: { type: json, default: null }
input: [given]
inbox: heard
start: help
nodes:
  help: { ask: \"What now?\", writes: answer, then: last }
  last: { set: { copy: given }, then: end }
";

/// Low limits, set in the child process: the values are as large as the limits, and the tests stay
/// fast.
const VALUE_MEMORY: usize = 20_000;
const STATE_MEMORY: usize = 50_000;
/// The longest text: it counts 104 bytes, and four for each byte of its JSON with two quotes.
const TEXT_BYTES: usize = (VALUE_MEMORY - 104) / 4 - 2;
const DEPTH: usize = 64;

/// A database for runs.
struct Home {
    place: Place,
    url: String,
    _schema: Option<Schema>,
}

impl Home {
    fn all() -> Vec<Self> {
        let homes =
            vec![Self { place: Place::new(), url: "sqlite:runs.db".to_owned(), _schema: None }];
        let homes: Vec<Self> = {
            let schema = Schema::new();
            let url = schema.url();
            let postgres = Self { place: Place::new(), url, _schema: Some(schema) };
            homes.into_iter().chain([postgres]).collect()
        };
        for home in &homes {
            fs::write(home.place.path("values.yaml"), WORKFLOW).unwrap();
        }
        homes
    }

    fn run(&self, args: &[&str]) -> Ended {
        let value = VALUE_MEMORY.to_string();
        let state = STATE_MEMORY.to_string();
        let mut command = self.place.command(args);
        command.env("GRAPHRUN_DB", &self.url);
        command.env("GRAPHRUN_LIMIT_VALUE_MEMORY", value).env("GRAPHRUN_LIMIT_STATE_MEMORY", state);
        Ended::of(&mut command)
    }

    /// Starts a run with a text as its input.
    fn execute(&self, id: &str, given: &str) -> Ended {
        fs::write(self.place.path("input.json"), format!("{{\"given\": {given}}}")).unwrap();
        let args = ["execute", "values.yaml", "-i", "@input.json", "--run-id", id];
        self.run(&[&args[..], &["--output", "json"]].concat())
    }

    /// Sends the value in every way, and reads it in every way.
    fn round_trip(&self, id: &str, value: &Value) {
        let text = value.to_string();
        let began = self.execute(id, &text);
        assert_eq!(began.code, 3, "{text}: {began}");
        assert_same(&began.json()["state"]["given"], value);
        let question = began.json()["questions"][0]["key"].as_str().unwrap().to_owned();
        let said = self.run(&["message", id, &text]);
        if said.code == 2 {
            // In its list, it is one level deeper and a few bytes larger.
            assert!(said.stderr.contains("GRAPHRUN_LIMIT_VALUE_"), "{text}: {said}");
        } else {
            assert_eq!(said.code, 0, "{text}: {said}");
        }
        let ended = self.run(&[
            "resume",
            id,
            "--answer",
            &format!("{question}={text}"),
            "--output",
            "json",
        ]);
        // All three fit into the state; otherwise, the run fails by its limit and stays readable.
        if ended.code == 1 {
            assert!(ended.stderr.contains("GRAPHRUN_LIMIT_STATE_MEMORY"), "{text}: {ended}");
            return self.look(id, &[("given", value)]);
        }
        assert_eq!(ended.code, 0, "{text}: {ended}");
        let heard = if said.code == 0 { json!([value]) } else { json!([]) };
        let kept = [("given", value), ("answer", value), ("copy", value), ("heard", &heard)];
        for (field, value) in kept {
            assert_same(&ended.json()["state"][field], value);
        }
        self.look(id, &kept);
    }

    /// Reads a run with each command.
    fn look(&self, id: &str, fields: &[(&str, &Value)]) {
        let shown = |args: &[&str]| {
            let ended = self.run(args);
            assert_eq!(ended.code, 0, "{args:?}: {ended}");
            ended
        };
        let state = shown(&["runs", "state", id, "--output", "json"]).json();
        let exported = shown(&["runs", "export", id]).stdout;
        let exported: Vec<Value> =
            exported.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        for (field, value) in fields {
            assert_same(&state[field], value);
            assert!(exported.iter().any(|it| contains(it, value)), "no {value} in {exported:?}");
        }
        for line in shown(&["runs", "events", id, "--output", "jsonl"]).stdout.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
        for command in ["show", "history"] {
            shown(&["runs", command, id, "--output", "json"]).json();
            shown(&["runs", command, id]);
        }
        shown(&["runs", "state", id]);
        shown(&["runs", "verify", id]);
    }
}

/// Fails unless both are equal byte for byte, apart from the order of fields: equal numbers may
/// differ in text.
fn assert_same(one: &Value, other: &Value) {
    assert_eq!(sorted(one).to_string(), sorted(other).to_string());
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> =
                fields.iter().map(|(name, it)| (name, sorted(it))).collect();
            json!(fields)
        }
        other => other.clone(),
    }
}

fn contains(tree: &Value, value: &Value) -> bool {
    let one = sorted(tree).to_string();
    let other = sorted(value).to_string();
    one == other
        || match tree {
            Value::Array(items) => items.iter().any(|it| contains(it, value)),
            Value::Object(fields) => fields.values().any(|it| contains(it, value)),
            _ => false,
        }
}

/// Returns a value nested in lists or records to a depth.
fn deep(depth: usize, is_record: bool) -> Value {
    (1..depth)
        .fold(json!([]), |inner, _| if is_record { json!({ "": inner }) } else { json!([inner]) })
}

/// Returns values at the limits.
fn special() -> Vec<Value> {
    let texts = "\u{0}\u{1}\u{1b}[2J\u{7f}\u{85}\u{202e}\u{2066}\u{feff}\u{fffe}\u{ffff}\u{d7ff}\u{e000}\u{10ffff}\"\\/é";
    let pairs: serde_json::Map<String, Value> =
        texts.chars().map(|it| (it.to_string(), json!(it.to_string()))).collect();
    vec![
        json!([null, true, false, "", {}, [], [[]], {"": {"": ""}}, texts]),
        Value::Object(pairs),
        json!([i64::MIN, i64::MIN + 1, i64::MAX, u64::MAX, u64::MAX - 1, 0, -1]),
        json!([
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            -0.0,
            0.1,
            1e21,
            1e23,
            1e300
        ]),
        json!([9_007_199_254_740_993_u64, 9_007_199_254_740_992.0, 1.0, 1e15, 123_456_789.125]),
        json!({"$serde_json::private::Number": "1", "__proto__": null, "k".repeat(3000): 1}),
        // The largest possible value.
        json!("x".repeat(TEXT_BYTES)),
        json!("é".repeat(TEXT_BYTES / 2)),
        // Each item counts 72 bytes, and so does the list.
        json!(vec![7; VALUE_MEMORY / 72 - 1]),
        deep(DEPTH - 1, false),
        deep(DEPTH, false),
        deep(DEPTH, true),
    ]
}

#[test]
fn values_at_every_limit_come_back_as_they_were() {
    for home in Home::all() {
        for (at, value) in special().iter().enumerate() {
            home.round_trip(&format!("run-{at}"), value);
        }
        let all = home.run(&["runs", "verify"]);
        assert_eq!(all.code, 0, "{all}");
    }
}

/// Generates any value, of any depth and size up to the limits.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        ("\\PC{0,3}", 0..9_000_usize).prop_map(|(text, times)| Value::from(text.repeat(times))),
    ];
    let inner = leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    (inner, 0..DEPTH + 8, any::<bool>()).prop_map(|(inner, deeper, is_record)| {
        (0..deeper).fold(inner, |it, _| if is_record { json!({ "": it }) } else { json!([it]) })
    })
}

#[test]
fn any_value_is_refused_or_comes_back_as_it_was() {
    let homes = Home::all();
    let mut runner = TestRunner::deterministic();
    let mut taken = 0;
    let mut refused = 0;
    for at in 0..10 {
        let value = any_value().new_tree(&mut runner).unwrap().current();
        for home in &homes {
            let id = format!("any-{at}");
            let tried = home.execute(&format!("try-{at}"), &value.to_string());
            if tried.code == 3 {
                taken += 1;
                home.round_trip(&id, &value);
            } else {
                refused += 1;
                assert_refused(home, &format!("try-{at}"), &tried, "GRAPHRUN_LIMIT_VALUE_");
            }
        }
    }
    assert!(taken >= 8 && refused >= 4, "{taken} taken, {refused} refused");
}

/// Fails unless the program refused an input with this reason, and saved nothing.
fn assert_refused(home: &Home, id: &str, ended: &Ended, reason: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{ended}");
    assert!(ended.stderr.contains(reason), "{reason}: {ended}");
    let found = home.run(&["runs", "show", id]);
    assert_eq!(found.code, 6, "{found}");
}

#[test]
fn values_beyond_a_limit_are_refused_at_each_entrance() {
    let beyond = [
        (json!("x".repeat(TEXT_BYTES + 1)).to_string(), "GRAPHRUN_LIMIT_VALUE_MEMORY"),
        (deep(DEPTH + 1, false).to_string(), "GRAPHRUN_LIMIT_VALUE_DEPTH"),
        (deep(DEPTH + 1, true).to_string(), "GRAPHRUN_LIMIT_VALUE_DEPTH"),
        // Half of a surrogate pair is not a character, and these numbers would lose digits.
        ("\"\\ud800\"".to_owned(), "hex escape"),
        ("[\"\\udc00x\"]".to_owned(), "hex escape"),
        ("18446744073709551616".to_owned(), "18446744073709551616"),
        ("-9223372036854775809".to_owned(), "-9223372036854775809"),
        ("1e999".to_owned(), "number"),
    ];
    for home in Home::all() {
        let began = home.execute("kept", "1");
        assert_eq!(began.code, 3, "{began}");
        let question = began.json()["questions"][0]["key"].as_str().unwrap().to_owned();
        let before = home.run(&["runs", "export", "kept"]).stdout;
        for (text, reason) in &beyond {
            let ended = home.execute("refused", text);
            assert_refused(&home, "refused", &ended, reason);
            let answer = format!("{question}={text}");
            let set = format!("given={text}");
            for args in [
                &["resume", "kept", "--answer", &answer][..],
                &["message", "kept", text],
                &["fork", "kept@0", "--set", &set, "--no-run"],
                &["runs", "update", "kept", "--set", &set],
            ] {
                let ended = home.run(args);
                assert_eq!(ended.code, 2, "{args:?}: {ended}");
            }
        }
        assert_eq!(home.run(&["runs", "export", "kept"]).stdout, before, "nothing has changed");
        let listed = home.run(&["runs", "list", "--output", "json"]).json();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    }
}
