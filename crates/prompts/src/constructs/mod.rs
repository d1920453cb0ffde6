//! Each construct of a template, right and wrong: what loads can be rendered in every state of the types.

mod random;
mod right;
mod wrong;

use std::collections::BTreeSet;

use graphrun_core::{
    graph::{Input, RunFacts, Trigger, Visits},
    id::{ChannelName, NodeName},
    state::{Channel, Reducer, Schema, State, Type, Update},
};
use graphrun_expressions::{
    flow::{guarantee::Guarantees, written::AssignedFields},
    problem::Problem,
};
use serde_json::{Map, Value, json};

use self::{right::RIGHT, wrong::WRONG};
use super::{Prompt, PromptScope, PromptView};

/// Returns the fields of the state, each with its schema.
fn fields() -> Vec<(&'static str, Value)> {
    let record = |properties: Value, required: Value| {
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    };
    let text = json!({"type": "string"});
    let list_of = |it: &Value| json!({"type": "array", "items": it});
    let owner =
        record(json!({"name": text, "mail": {"type": ["string", "null"]}}), json!(["name"]));
    let story = record(
        json!({
            "title": text, "points": {"type": "integer"}, "owner": owner, "note": text,
            "labels": list_of(&text), "level": {"enum": ["low", "high"]},
        }),
        json!(["title", "points", "labels", "level"]),
    );
    let mut tree = record(
        json!({"name": text, "children": list_of(&json!({"$ref": "#"}))}),
        json!(["name", "children"]),
    );
    tree["title"] = json!("Tree");
    let parts = json!({
        "name": text, "media_type": text, "data": {"type": "string", "contentEncoding": "base64"},
    });
    let mut doc = record(parts, json!(["name", "media_type", "data"]));
    doc["title"] = json!("file");
    let mut loose = record(
        json!({"points": {"type": "integer"}, "note": {"type": ["string", "null"]}}),
        json!(["points"]),
    );
    loose["x-lenient"] = json!(true);
    let map_of = |it: &Value| json!({"type": "object", "additionalProperties": it});
    vec![
        ("brief", text.clone()),
        ("count", json!({"type": "integer"})),
        ("share", json!({"type": "number"})),
        ("flag", json!({"type": "boolean"})),
        ("level", json!({"enum": ["low", "high"]})),
        ("size", json!({"enum": ["1", "2", "3", "4", "5", "6", "7", "8", "many"]})),
        ("code", json!({"enum": (0..600).map(|it| it.to_string()).collect::<Vec<_>>()})),
        ("note", json!({"type": ["string", "null"]})),
        ("tags", json!({"type": ["array", "null"], "items": text})),
        ("texts", list_of(&text)),
        ("numbers", list_of(&json!({"type": "integer"}))),
        ("sizes", map_of(&json!({"type": "integer"}))),
        ("mails", map_of(&json!({"type": ["string", "null"]}))),
        ("scores", map_of(&json!({"type": ["integer", "null"]}))),
        ("marks", list_of(&json!({"type": ["integer", "null"]}))),
        ("story", story.clone()),
        ("stories", list_of(&story)),
        ("tree", tree),
        ("docs", list_of(&doc)),
        ("claim", record(json!({"doc": doc, "title": text}), json!(["doc", "title"]))),
        ("data", json!({})),
        ("loose", loose),
        ("grid", map_of(&map_of(&json!({"type": "integer"})))),
    ]
}

fn schema() -> Schema {
    let channel = |(name, schema): (&str, Value)| {
        Channel::new(ChannelName::parse(name).unwrap(), schema, Reducer::Replace).unwrap()
    };
    Schema::new(fields().into_iter().map(channel)).unwrap()
}

/// A source of choices that are the same in each run.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % end as u64).unwrap()
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }
}

/// Returns a value of a type, or nothing where it may be absent.
fn value(ty: &Type, depth: usize, choices: &mut Choices) -> Option<Value> {
    let length = |choices: &mut Choices| if depth > 4 { 0 } else { choices.below(3) };
    Some(match ty {
        Type::Any => json!({"a": [1]}),
        Type::Bool => json!(choices.below(2) == 0),
        Type::Int(_) => json!(choices.below(4)),
        Type::Float(_) => json!([0.0, 0.5, 1.0, -1.5][choices.below(4)]),
        Type::String => json!(choices.one(&["", "a", "b c", "12"])),
        Type::Date => json!("2026-01-31"),
        Type::Duration => json!("PT90M"),
        Type::Enum(values) => json!(values[choices.below(values.len())]),
        Type::List(item) => {
            let items = (0..length(choices)).map(|_| value(item, depth + 1, choices));
            items.map(|it| it.unwrap_or(Value::Null)).collect()
        }
        Type::Map(of) => {
            let names = ["k", "title"].into_iter().take(length(choices));
            let entry = |name: &str| {
                (name.to_owned(), value(of, depth + 1, choices).unwrap_or(Value::Null))
            };
            names.map(entry).collect::<Map<_, _>>().into()
        }
        Type::Record(record) => {
            let field = |field: &graphrun_core::state::Field| {
                Some((field.name.clone(), value(&field.ty, depth + 1, choices)?))
            };
            record.fields.iter().filter_map(field).collect::<Map<_, _>>().into()
        }
        Type::Optional(inner) => match choices.below(3) {
            0 => return None,
            1 => Value::Null,
            _ => value(inner, depth, choices)?,
        },
    })
}

/// States of the types: the parts that may be absent are absent in some of them, and lists are empty in some.
fn states(schema: &Schema, count: u64) -> Vec<State> {
    let state = |seed: u64| {
        let mut choices = Choices(seed);
        let update = schema.channels().iter().fold(Update::default(), |update, channel| {
            let value = value(channel.ty(), 0, &mut choices).unwrap_or(Value::Null);
            update.write(channel.name().clone(), value)
        });
        schema.apply(schema.empty(), [&update]).unwrap().0
    };
    (0..count).map(state).collect()
}

/// Checks a prompt of a node that has a value in each field.
pub(super) fn check(schema: &Schema, prompt: &Prompt) -> Vec<Problem> {
    let written: AssignedFields = schema.channels().iter().map(|it| it.name().clone()).collect();
    let scope = PromptScope {
        schema,
        written: &written,
        nodes: &BTreeSet::new(),
        node: Some(&NodeName::parse("node").unwrap()),
        bounded: false,
        any_item: false,
        item: None,
        known: &Guarantees::NONE,
    };
    prompt.check(scope).0
}

/// Returns the problems of a template, each with its code, its place and its help.
fn problems(schema: &Schema, template: &str) -> Vec<String> {
    let prompt = match Prompt::compile("p.md", template) {
        Ok(prompt) => prompt,
        Err(problem) => return vec![format!("{} {}", problem.code, problem.message)],
    };
    let problems = check(schema, &prompt).into_iter();
    problems
        .map(|problem| {
            let part = template.get(problem.range.clone()).unwrap_or("?");
            let help = problem.help.unwrap_or_default();
            format!("{} `{part}` {} ({help})", problem.code, problem.message)
        })
        .collect()
}

/// Returns the failure of a template in one of some states.
fn failure(states: &[State], template: &str) -> Option<String> {
    let prompt = Prompt::compile("p.md", template).unwrap();
    states.iter().find_map(|state| {
        let view = PromptView {
            state,
            visit: 1,
            max_visits: None,
            trigger: &Trigger::Start,
            input: &Input::State,
            visits: &Visits::default(),
            facts: &RunFacts::default(),
        };
        let error = prompt.render(&view).err()?;
        Some(format!("{error}: {:?}", std::error::Error::source(&error)))
    })
}

/// Templates that are rendered with each number in place of `count`.
const OF_NUMBERS: &[&str] = &[
    "{{ data | tojson(indent=count) }}{{ data | tojson(count) }}",
    "{{ count | indent(2) }}{{ count * count * count * count }}{{ count + count }}",
];

#[test]
fn right_constructs_load_and_are_rendered() {
    let schema = schema();
    let states = states(&schema, 60);
    let mut wrong = Vec::new();
    for template in RIGHT {
        let problems = problems(&schema, template);
        if !problems.is_empty() {
            wrong.push(format!("{template}\n  {}", problems.join("\n  ")));
            continue;
        }
        let failed = failure(&states, template);
        wrong.extend(failed.map(|it| format!("{template}\n  {it}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_of_every_size_are_rendered() {
    let schema = schema();
    let [state] = states(&schema, 1).try_into().unwrap();
    let count = ChannelName::parse("count").unwrap();
    for template in OF_NUMBERS {
        assert_eq!(problems(&schema, template), [""; 0], "{template}");
        for number in [i64::MIN, -1, 0, 3, 1_700_000_000_000, i64::MAX] {
            let update = Update::default().write(count.clone(), number);
            let state = schema.apply(state.clone(), [&update]).unwrap().0;
            assert_eq!(failure(&[state], template), None, "{template} with {number}");
        }
    }
}

#[test]
fn wrong_constructs_are_refused_with_code_place_and_remedy() {
    let schema = schema();
    let mut wrong = Vec::new();
    for (template, start, part) in WRONG {
        let problems = problems(&schema, template);
        let is_found = problems.iter().any(|it| it.starts_with(start) && it.contains(part));
        if !is_found || problems.len() > 2 {
            wrong.push(format!("{template}\n  {start} … {part}\n  {}", problems.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without a clone of all names for each macro, each call and each condition, these take seconds.
#[test]
fn prompts_with_thousands_of_names_are_checked() {
    let many = |part: fn(usize) -> String| (0..800).map(part).collect::<String>();
    let sets = many(|it| format!("{{% set v{it} = story %}}"));
    let conditions = many(|it| format!("{{% if flag %}}{{% set v{it} = 1 %}}{{% endif %}}"));
    let schema = schema();
    for template in [
        "{ ".repeat(400_000),
        many(|it| format!("{{% macro m{it}(x) %}}{{% endmacro %}}")),
        format!("{sets}{{% macro m(x) %}}{{% endmacro %}}{}", "{{ m(1) }}".repeat(800)),
        format!(
            "{sets}{{% for t in tree.children recursive %}}{}{{% endfor %}}",
            "{{ loop(t.children) }}".repeat(800)
        ),
        format!("{conditions}{{% if flag %}}{{{{ v0 + v799 }}}}{{% endif %}}"),
    ] {
        assert_eq!(problems(&schema, &template), [""; 0], "{template:.80}");
    }
}
