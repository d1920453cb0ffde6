//! Each construct of a template, right and wrong: what loads can be rendered in every state of the types.

mod random;

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

/// Templates that load, and are rendered in every state.
const RIGHT: &[&str] = &[
    // Macros.
    "{% macro m(x) %}{{ x.title }}{% endmacro %}{{ m(story) }}{{ m(x=story) }}",
    "{% macro m(x, y=1) %}{{ x }}{{ y + 1 }}{% endmacro %}{{ m(brief) }}{{ m(brief, 2) }}{{ m(1, y=count) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(brief) | upper }}{{ m(count) }}{{ m(texts) }}",
    "{% macro m(x) %}{% if x %}{{ x | upper }}{% endif %}{% endmacro %}{{ m() }}{{ m(note) }}{{ m(story.note) }}",
    "{% macro m(x='-') %}{{ x }}{% endmacro %}{{ m() }}",
    "{% macro a(x) %}{{ b(x.title) }}{% endmacro %}{% macro b(x) %}{{ x | upper }}{% endmacro %}{{ a(story) }}",
    "{% macro m() %}{{ brief }} {{ brief[1:] }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ story.note }}{% endmacro %}{% if story.note %}{{ m() }}{% endif %}",
    "{% macro m(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call m(1) %}in{{ brief }}{% endcall %}",
    "{% macro m(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}\
     {% call(it) m(stories) %}{{ it.title }}{% endcall %}",
    "{% macro m() %}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}\
     {% for s in stories %}{% call m() %}{{ s.title[1:] }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% for s in stories %}{% macro m(x) %}{{ x }}{% endmacro %}{{ m(s.title) }}{% endfor %}",
    "{% macro m(x) %}{{ x.title }}{% endmacro %}{% do m(story) %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{% call m() %}x{% endcall %}{% endcall %}",
    "{% macro unused(x) %}{{ x.title }}{{ caller() }}{% endmacro %}",
    // Neighbours in a loop.
    "{% for s in stories %}{% if loop.nextitem %}{{ loop.nextitem.title }}{% endif %}{% endfor %}",
    "{% for s in stories %}{% if not loop.last %}{{ loop.nextitem.points + 1 }}{% endif %}{% endfor %}",
    "{% for s in stories %}{{ '' if loop.first else loop.previtem.title | upper }}{% endfor %}",
    "{% for s in stories %}{{ loop.nextitem | default('-') }}{{ loop.cycle('a', 'b') | upper }}{% endfor %}",
    "{% for s in stories %}{% if loop.changed(s.level) %}{{ s.level }}{% endif %}{% endfor %}",
    // Parts of items.
    "{{ stories | map(attribute='title') | join(', ') | upper }}",
    "{{ stories | map(attribute='note', default='-') | join(', ') }}",
    "{{ stories | map(attribute='note') | select | join(', ') }}",
    "{{ stories | selectattr('note') | map(attribute='note') | join(', ') }}",
    "{{ stories | selectattr('owner') | map(attribute='owner.name') | join(', ') }}",
    "{% for s in stories | selectattr('owner', 'defined') %}{{ s.owner.name }}{% endfor %}",
    "{% for level, of in stories | groupby('level') %}{{ level | upper }}{% for s in of %}{{ s.title }}{% endfor %}{% endfor %}",
    "{% for g in stories | groupby('level') %}{{ g[0] }}{{ g[1] | length }}{% endfor %}",
    "{% for note, of in stories | groupby('note', default='-') %}{{ note | upper }}{{ of | length }}{% endfor %}",
    "{% for s in stories | sort(attribute='points', reverse=true) %}{{ s.title }}{% endfor %}",
    "{% for s in stories | sort(attribute='level, points') | unique(attribute='level') %}{{ s.title }}{% endfor %}",
    "{{ (stories | sum(attribute='points')) + 1 }}{{ stories | rejectattr('points', 'gt', 1) | length }}",
    "{% if stories %}{{ (stories | max(attribute='points')).title }}{% endif %}",
    "{{ texts | map('upper') | join }}{{ texts | map('length') | sum }}{{ texts | map('default', 'x') | list | length }}",
    "{{ stories | map(attribute='labels') | map('join', '+') | join(', ') }}",
    "{{ texts | select('in', ['a', 'b']) | list | length }}",
    "{{ stories | map(attribute='note', default='-') | map('upper') | join(', ') }}",
    "{% for note, of in stories | groupby('note', default='-') %}{{ note | upper }}{{ of | map(attribute='title') | join }}{% endfor %}",
    "{% for g in stories | groupby(attribute='note', default='-', case_sensitive=true) %}{{ g[0] | upper }}{{ g[1][0:1] | length }}{{ g }}{% endfor %}",
    "{{ marks | map('default', 0) | sum }}{{ texts | map('first') | select | map('upper') | join }}",
    "{{ texts | map('last') | map('default', '-') | map('upper') | join }}",
    "{% for v in marks if v is not none %}{{ v + 1 }}{% endfor %}",
    "{{ [story.note, note] | map('default', '-') | join }}{{ [count, story.note] | map('default', 0) | list }}",
    "{{ 'ab' * (count - 2) }}{{ texts * (count - 2) }}",
    // Mappings.
    "{% for k, v in sizes | items %}{{ k | upper }}{{ v + 1 }}{% endfor %}",
    "{% for k, v in sizes | dictsort(by='value') %}{{ k }}{{ v + 1 }}{% endfor %}",
    "{% for k in sizes %}{{ sizes[k] + 1 }}{% endfor %}",
    "{% for k, v in mails | items %}{% if v %}{{ v | upper }}{% endif %}{% endfor %}",
    "{% if 'k' in mails and mails['k'] %}{{ mails['k'] | upper }}{% endif %}",
    "{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}{{ v + 1 }}{% endfor %}",
    "{{ dict(a=1, b='x').b | upper }}{{ {'a': story}.a.title }}",
    "{{ sizes['k'] | default(0) + 1 }}{% if 'k' in sizes %}{{ sizes['k'] + 1 }}{% endif %}",
    "{% if 'k' in scores and scores.k is defined %}{{ scores.k + 1 }}{% endif %}",
    "{% for k in scores %}{% if scores[k] %}{{ scores[k] + 1 }}{% endif %}{% endfor %}",
    "{% if 'a b' in sizes %}{{ sizes['a b'] + 1 }}{% endif %}",
    "{% if 'a' in grid and 'b' in grid.a %}{{ grid.a.b + grid['a']['b'] }}{% endif %}",
    "{% if numbers | length > 1 %}{{ numbers[0] + numbers[1] }}{% endif %}",
    "{% if count == 2 and count < numbers | length %}{{ numbers[count] + 1 }}{% endif %}",
    "{% if marks | length > 1 and marks[1] %}{{ marks[1] + 1 }}{% endif %}",
    // Texts that look like placeholders.
    "costs 5$",
    "{{ count }}${% if flag %} {% endif %}$",
    "{% raw %}{brief} {{ brief }} ${% endraw %}{{ brief }}{%- raw -%} {brief} {%- endraw +%}",
    // Files.
    "{{ docs | map(attribute='name') | join(', ') }}{{ claim.title }}{{ claim.doc.media_type }}",
    "{% for d in docs %}{{ d.name }}{% endfor %}{{ docs | length }}{{ docs | join(attribute='name') }}",
    "{% if docs %}{{ (docs | first).name }}{% endif %}",
    "{{ docs }}{{ docs | batch(2) | list }}{{ claim }}{{ claim | items | list }}{{ claim | string }}",
    "{% for k, v in claim | items %}{{ v }}{% endfor %}",
    // Several names.
    "{% set a, b = 1, 'x' %}{{ a + 1 }}{{ b | upper }}",
    "{% set a, b = [1, 'x'] %}{{ a + 1 }}{{ b | upper }}",
    "{% set a, b = 1, 2 %}{% set a, b = b, a %}{{ a + b }}",
    "{% for a, b in [('x', 1), ('y', 2)] %}{{ a | upper }}{{ b + 1 }}{% endfor %}",
    "{% for a, b in texts | zip(numbers) %}{{ a | upper }}{{ b + 1 }}{% endfor %}",
    "{% for (a, b), c in [(('x', 1), 2)] %}{{ a }}{{ b + c }}{% endfor %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}",
    // Names that are set in branches.
    "{% if flag %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x + 1 }}",
    "{% set x = 'a' %}{% if flag %}{% set x = brief %}{% endif %}{{ x | upper }}",
    "{% if note %}{% set x = note %}{% endif %}{% if note %}{% set x = x ~ '!' %}{{ x | upper }}{% endif %}\
     {% if note %}{{ x | upper }}{% endif %}",
    "{% if flag and count > 1 %}{% set x = 1 %}{% endif %}{% if flag  and count > 1 and note %}{{ x + 1 }}{% endif %}",
    "{% if flag %}{% else %}{% set x = 1 %}{% endif %}{% if not flag %}{{ x + 1 }}{% endif %}",
    "{% for s in stories %}{% if s.note %}{% set x = s.note %}{% endif %}{% if s.note %}{{ x | upper }}{% endif %}{% endfor %}",
    "{% if flag %}{% set x = 1 %}{% endif %}{{ x + 1 if flag else 0 }}",
    "{% set x = 1 %}{% if flag %}{% set x = 'a' %}{% endif %}{{ x }}{{ x ~ '!' }}{{ x | string | upper }}",
    "{% if flag %}{% set x = 1 %}{% endif %}{% if x %}{{ x + 1 }}{% endif %}{{ x | default(0) }}",
    "{% if story.note %}{% set n = story.note %}{% else %}{% set n = '-' %}{% endif %}{{ n | upper }}",
    "{% if not note %}{% set note = 'none' %}{% endif %}{{ note | length }}",
    "{% if note is none %}{% set note = '-' %}{% endif %}{{ note | length }}",
    "{% if note and flag %}{% set y = 1 %}{% elif not note %}{% set note = '-' %}{% endif %}{{ note | length }}",
    "{% set n = story.note %}{% if n %}{% set y = n %}{% else %}{% set n = '-' %}{% endif %}{{ n | length }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x | upper }}{{ y + 1 }}",
    "{% set x | upper | trim %}a{% endset %}{{ x | lower }}",
    "{% set xs = [] %}{% for s in stories %}{% set xs = xs + [s] %}{% endfor %}{{ xs | length }}",
    // Choices.
    "{{ 'a' if flag }}{{ 'a' if flag else count }}{{ ('a' if flag) ~ '!' }}",
    "{{ story.note or none }}{{ story.note if story.note else '-' }}{{ (story.note or '-') | upper }}{{ note or 'none' }}",
    "{{ (note if note else '-') | length }}{{ story.owner.name if story.owner }}",
    "{% for x in (texts if flag else []) %}{{ x | upper }}{% endfor %}{% for x in (texts if flag) %}{{ x }}{% endfor %}",
    "{% if stories %}{{ (stories | first).title }}{{ stories[-1].title }}{% endif %}",
    "{% for s in stories if s.note and s.note != 'a' %}{{ s.note | upper }}{% endfor %}",
    "{{ (stories | first | default(story)).title }}",
    "{{ tags | default([]) | join(', ') }}{% for t in tags %}{{ t }}{% endfor %}{{ note | upper }}",
    "{{ loose.points }}{% if loose.note %}{{ loose.note | upper }}{% endif %}{{ loose.note | default('-') }}",
    // Loops that call themselves.
    "{% for t in tree.children recursive %}{{ t.name }}{{ loop.depth }}{{ loop(t.children) }}{% endfor %}",
    "{% for t in [tree] recursive %}{{ t.name | upper }}{% if t.children %}({{ loop(t.children) | trim }}){% endif %}{% endfor %}",
    // Enums.
    "{{ size | upper }}{{ size | int(default=0) + 1 }}{{ code | upper }}{{ code | int(default=0) }}",
    // Lists.
    "{% for x in (texts + ['a']) %}{{ x | upper }}{% endfor %}{% for x in numbers * 2 %}{{ x + 1 }}{% endfor %}",
    "{% for x in stories[1:] %}{{ x.title }}{% endfor %}{% for row in numbers | batch(2, 0) %}{{ row | sum }}{% endfor %}",
    "{% for x in texts | chain(['a']) %}{{ x | upper }}{% endfor %}{% for x in [1, 'a'] %}{{ x }}{% endfor %}",
    "{% for x in stories | reverse | list %}{{ x.title }}{% endfor %}{{ brief | reverse | upper }}",
    "{% for line in brief | lines %}{{ line | trim }}{% endfor %}{% for i in range(3) %}{{ i + 1 }}{% endfor %}",
    "{{ (numbers | sum) / 2 }}{{ '%s and %s' | format(brief, count) }}{{ '12' | int(default=0) + 1 }}",
    "{% filter upper | trim %}{{ brief }}{% endfilter %}{% autoescape false %}{{ brief }}{% endautoescape %}",
    "{{ data.a }}{% for x in data.a %}{{ x + 1 }}{% endfor %}",
    // Names and macros of the places around.
    "{% if flag %}{% set x = 1 %}{% endif %}\
     {% if flag %}{% for t in [tree] recursive %}{{ x + 1 }}{{ loop(t.children) }}{% endfor %}{% endif %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% if flag %}{% set x = 1 %}{% endif %}\
     {% if flag %}{% call m() %}{{ x + 1 }}{% endcall %}{% endif %}",
    "{% if flag %}{% set x = 1 %}{% endif %}{% if flag %}{% set flag = 0 %}{{ x + 1 }}{% endif %}",
    "{% if flag %}{% if flag %}{% set x = 1 %}{% endif %}{{ x + 1 }}{% endif %}",
    "{% for t in [tree] recursive %}{% if t.name %}{% set x = 1 %}{% endif %}\
     {{ loop(t.children) }}{% if t.name %}{{ x + 1 }}{% endif %}{% endfor %}",
    "{% macro m() %}{{ brief }}{% endmacro %}{% set brief = 1 %}{{ brief + 1 }}",
    "{% macro b() %}{{ brief[1:] }}{% endmacro %}\
     {% for brief in [1] %}{% macro a() %}{{ b() }}{% endmacro %}{{ a() }}{{ brief + 1 }}{% endfor %}",
    // A slice of an enum is any text.
    "{% if level[0:1] == 'l' %}x{% endif %}{% if 'abc'[0:2] == 'ab' %}y{% endif %}{{ level[:1] is eq('l') }}",
    "{% set y = '2026-01' %}{{ y[0:4] | int(default=0) + 1 }}{% set z = [1] if flag else 'ab' %}{{ z[1:] }}",
    // Lists that are not empty.
    "{% if texts != [] %}{{ (texts | list | first) | upper }}{% endif %}{% if not ([] == numbers) %}{{ numbers[0] + 1 }}{% endif %}",
    "{% if tags and tags != [] %}{{ (tags | sort | first) | upper }}{% endif %}",
    "{% if (tags | list) != [] %}{{ (tags | list | first) | upper }}{% endif %}",
    "{% for x in stories if x.labels != [] %}{{ (x.labels | first) | upper }}{% endfor %}",
    // Sums that begin with a value.
    "{% for x in stories | sum(attribute='labels', start=['a']) %}{{ x | upper }}{% endfor %}",
    "{{ (numbers | sum(start=1)) + 1 }}{{ (texts | sum(start='x')) | upper }}{{ (stories | sum('points', 0.5)) + 1 }}",
    "{{ (stories | sum(attribute='level', start='')) == 'lowhigh' }}{{ numbers | sum(start=none) }}",
    // The last value of a repeated key counts.
    "{{ {'a': 'x', 'a': 1}.a + 1 }}{{ ('a' | int(default='x', default=0)) + 1 }}",
    // The parts of a group.
    "{% for g in stories | groupby('level') %}{{ g.grouper | upper }}{{ g.list | length }}{% for s in g.list %}{{ s.title }}{% endfor %}{% endfor %}",
    "{% for g in stories | groupby('note', default='-') %}{{ g['grouper'] | upper }}{{ (g['list'] | first | default(story)).title }}{% endfor %}",
    "{% for g in stories | groupby('note') | selectattr('grouper') | sort(attribute='grouper') %}{{ g.grouper | upper }}{% endfor %}",
    "{% for n in stories | groupby('level') | map(attribute='list') %}{{ n | length + 1 }}{% endfor %}",
    "{% set gs = (stories | groupby('level')) if flag else (stories | groupby('title')) %}{% for g in gs %}{{ g.grouper | upper }}{% endfor %}",
    // Items of which an absent part is left out.
    "{{ (marks | reject('none') | sum) + 1 }}{{ (marks | select('integer') | sum) + 1 }}",
    "{% for s in stories | rejectattr('note', 'none') %}{{ s.note | upper }}{% endfor %}",
    "{% for k, v in mails | items | selectattr(1) %}{{ v | upper }}{% endfor %}",
    "{% for k, v in scores | items | rejectattr('1', 'none') | list %}{{ k | upper }}{{ v + 1 }}{% endfor %}",
    "{% for s in [story, {'note': story.note, 'level': 1}] | selectattr('note') %}{{ s.note | upper }}{% endfor %}",
];

/// Templates that are rendered with each number in place of `count`.
const OF_NUMBERS: &[&str] = &[
    "{{ data | tojson(indent=count) }}{{ data | tojson(count) }}",
    "{{ count | indent(2) }}{{ count * count * count * count }}{{ count + count }}",
];

/// Templates that do not load, each with the code and the place of its problem, and a part of the message or the help.
const WRONG: &[(&str, &str, &str)] = &[
    // A name that may be absent for two reasons.
    ("{% if flag %}{% set v = story.note %}{% endif %}{{ v }}", "GR026 `v`", "guard it"),
    ("{% if flag %}{% set v = texts[9] %}{% endif %}{{ v | upper }}", "GR026 `v`", "guard it"),
    (
        "{% if flag %}{% set v = stories[5] %}{% endif %}{% if v %}{{ v.no_such }}{% endif %}",
        "GR041 `v.no_such`",
        "has no field",
    ),
    ("{% set v = story.note if flag else none %}{{ v | upper }}", "GR026 `v`", "guard it"),
    (
        "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m(story.note if flag) }}",
        "GR026 `x`",
        "guard it",
    ),
    // `none` is never the value of an `or`.
    ("{{ (none or brief) | abs }}", "GR022 `abs`", "does not work on"),
    ("{% set x = none %}{{ (x or brief) | abs }}", "GR022 `abs`", "does not work on"),
    ("{{ (none | default(count)) | length }}", "GR022 `length`", "does not work on"),
    // Macros.
    ("{% macro m(x='-') %}{{ x | length }}{% endmacro %}{{ m(none) }}", "GR026 `x`", "guard it"),
    (
        "{% macro m() %}{{ brief }}{% endmacro %}{{ m() }}{% set brief = 1 %}{{ m() }}",
        "GR041 `brief`",
        "as an argument",
    ),
    (
        "{% macro m(x) %}{{ x.no_such }}{% endmacro %}{{ m(story) }}",
        "GR041 `x.no_such`",
        "has no field `no_such`",
    ),
    (
        "{% macro m(x) %}{{ x | round }}{% endmacro %}{{ m(1) }}{{ m(brief) }}",
        "GR022 `round`",
        "string",
    ),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}", "GR041 `2`", "takes 1 argument"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, z=2) }}", "GR041 `2`", "no argument `z`"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}", "GR041 `2`", "twice"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m() }}", "GR026 `x`", "may be absent"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(story.note) }}", "GR026 `x`", "guard it"),
    ("{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(1) }}", "GR041 `x`", "no name `x`"),
    ("{% macro m(x='-') %}{{ x | round }}{% endmacro %}{{ m() }}", "GR022 `round`", "round"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*texts) }}", "GR040 `texts`", "one by one"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m }}", "GR041 `m`", "call it"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}", "GR041 `m`", "call it"),
    ("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "GR040 `m`", "use a loop"),
    (
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "GR040 `a`",
        "calls itself",
    ),
    ("{{ m(1) }}{% macro m(x) %}{{ x }}{% endmacro %}", "GR041 `m`", "no function `m`"),
    ("{% set y = 1 %}{% macro m() %}{{ y }}{% endmacro %}{{ m() }}", "GR041 `y`", "as an argument"),
    (
        "{% macro m() %}{{ brief }}{% endmacro %}{% set brief = 1 %}{{ m() }}",
        "GR041 `brief`",
        "as an argument",
    ),
    ("{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "GR041 `caller`", "{% call"),
    (
        "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
        "GR041 `m`",
        "does not use its block",
    ),
    ("{% call range(3) %}y{% endcall %}", "GR041 `range`", "needs a macro"),
    (
        "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call m() %}y{% endcall %}",
        "GR041 `1`",
        "takes 0 arguments",
    ),
    (
        "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(x) m() %}{{ x.y }}{% endcall %}",
        "GR041 `x.y`",
        "a call gives `caller` `x`: `int`",
    ),
    (
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ caller() }}{% endcall %}",
        "GR041 `caller`",
        "outside",
    ),
    ("{% if flag %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "GR041 `m`", "is a value"),
    ("{% macro unused() %}{{ nosuch }}{% endmacro %}", "GR041 `nosuch`", "no name"),
    // A condition on a name proves nothing about a field or a fact that has the same name.
    (
        "{% macro m() %}{{ story.note | upper }}{% endmacro %}\
         {% for story in stories %}{% if story.note %}{{ m() }}{% endif %}{% endfor %}",
        "GR026 `story.note`",
        "guard it",
    ),
    (
        "{% macro m() %}{{ numbers[1] + 1 }}{% endmacro %}\
         {% with numbers = [1, 2] %}{% if numbers | length > 1 %}{{ m() }}{% endif %}{% endwith %}",
        "GR026 `numbers[1]`",
        "absent",
    ),
    (
        "{% with via = {'reason': brief, 'node': story.note} %}\
         {% if via.reason == 'caught' %}{{ via.node | upper }}{% endif %}{% endwith %}",
        "GR026 `via.node`",
        "absent",
    ),
    // Neighbours in a loop.
    (
        "{% for s in stories %}{{ loop.nextitem.title }}{% endfor %}",
        "GR026 `loop.nextitem`",
        "guard it",
    ),
    ("{% for s in stories %}{{ loop.previtem }}{% endfor %}", "GR026 `loop.previtem`", "guard it"),
    (
        "{% for s in stories %}{% if loop.nextitem %}{{ loop.nextitem.no }}{% endif %}{% endfor %}",
        "GR041 `",
        "no field `no`",
    ),
    (
        "{% for s in stories %}{% if not loop.first %}{{ loop.nextitem }}{% endif %}{% endfor %}",
        "GR026 `loop.nextitem`",
        "absent",
    ),
    (
        "{% for s in stories %}{% if not loop.last %}{% for t in texts %}{{ loop.nextitem }}{% endfor %}{% endif %}{% endfor %}",
        "GR026 `loop.nextitem`",
        "absent",
    ),
    ("{% for s in stories %}{{ loop.cycle(1, 2).x }}{% endfor %}", "GR041 `", "so no `x`"),
    // Parts of items.
    (
        "{{ stories | map(attribute='nosuch') | join }}",
        "GR041 `map(attribute='nosuch')`",
        "no field",
    ),
    ("{{ stories | map(attribute='note') | join }}", "GR026 `join`", "absent"),
    ("{% for n in stories | map(attribute='note') %}{{ n }}{% endfor %}", "GR026 `n`", "absent"),
    (
        "{{ stories | map(attribute='owner.name') | join }}",
        "GR026 `map(attribute='owner.name')`",
        "absent",
    ),
    ("{{ stories | selectattr('owner.name', 'eq', 'a') | list }}", "GR026 `selectattr", "absent"),
    ("{% for n, of in stories | groupby('note') %}{{ n }}{% endfor %}", "GR026 `n`", "absent"),
    (
        "{% for l, of in stories | groupby('level') %}{% for s in of %}{{ s.no }}{% endfor %}{% endfor %}",
        "GR041 `s.no`",
        "no field `no`",
    ),
    ("{{ stories | sum(attribute='title') }}", "GR022 `sum(attribute='title')`", "sum"),
    ("{{ stories | sort(attribute='nosuch') | list }}", "GR041 `sort", "no field"),
    ("{{ stories | join(', ', attribute='nosuch') }}", "GR041 `join", "no field"),
    ("{{ stories | min(attribute='nosuch') }}", "GR041 `min", "no field"),
    ("{{ stories | map(attribute=brief) | list }}", "GR022 `brief`", "in quotes"),
    ("{{ texts | map('round') | list }}", "GR022 `map('round')`", "round"),
    ("{% for t in texts | map('upper') %}{{ t.x }}{% endfor %}", "GR041 `t.x`", "so no `x`"),
    (
        "{% for s in stories | sort(attribute='points') %}{{ s.no }}{% endfor %}",
        "GR041 `s.no`",
        "no field `no`",
    ),
    // Mappings.
    ("{% for k, v in sizes | items %}{{ v.x }}{% endfor %}", "GR041 `v.x`", "so no `x`"),
    ("{% for k, v in sizes | dictsort %}{{ k | round }}{% endfor %}", "GR022 `round`", "string"),
    ("{% for k, v in mails | items %}{{ v | upper }}{% endfor %}", "GR026 `v`", "absent"),
    ("{% if 'k' in mails %}{{ mails['k'] | upper }}{% endif %}", "GR026", "guard it"),
    ("{% for k, v in story | items %}{{ v | upper }}{% endfor %}", "GR026 `v`", "absent"),
    (
        "{% if 'k' in scores %}{{ scores.k + 1 }}{% endif %}",
        "GR026 `scores.k`",
        "{% if scores.k is defined %}",
    ),
    ("{% for k in scores %}{{ scores[k] + 1 }}{% endfor %}", "GR026 `scores[k]`", "absent"),
    ("{% if marks %}{{ marks[0] + 1 }}{% endif %}", "GR026 `marks[0]`", "absent"),
    ("{% if marks | length > 1 %}{{ marks[1] + 1 }}{% endif %}", "GR026 `marks[1]`", "absent"),
    ("{% if 1 in numbers %}{{ numbers[1] + 1 }}{% endif %}", "GR026 `numbers[1]`", "absent"),
    (
        "{% if count == -2 and count < numbers | length %}{{ numbers[count] + 1 }}{% endif %}",
        "GR026 `numbers[count]`",
        "absent",
    ),
    (
        "{% if 'a' in grid and 'a.b' in grid %}{{ grid.a.b + 1 }}{% endif %}",
        "GR026",
        "`grid.a.b` may be absent",
    ),
    ("{{ {'a': 1}.b }}", "GR041 `", "no field `b`"),
    ("{{ dict(a=1).b }}", "GR041 `", "no field `b`"),
    // Texts that look like placeholders.
    ("{brief}", "GR042 `{brief}`", "{{ brief }}"),
    ("{% raw %}a{% endraw %}{brief}", "GR042 `{brief}`", "{{ brief }}"),
    ("for ${{ brief }}", "GR042 `$`", "remove it"),
    ("for $ {{- brief }}", "GR042 `$`", "remove it"),
    // Files.
    ("{{ docs | first }}", "GR022 `first`", "`attach`"),
    ("{% if docs %}{{ docs[0] }}{% endif %}", "GR022 `docs[0]`", "`attach`"),
    ("{{ docs | max(attribute='name') }}", "GR022 `max", "`attach`"),
    ("{{ docs | join(', ') }}", "GR022 `join", "`attach`"),
    ("{{ docs | map('string') | join }}", "GR022 `map", "`attach`"),
    ("{{ '%s' | format(claim.doc) }}", "GR022 `format", "`attach`"),
    ("{{ 'claim: ' ~ claim.doc }}", "GR022 `claim.doc`", "`attach`"),
    // Several names.
    ("{% for a, b in texts %}{{ a }}{% endfor %}", "GR022 `a, b`", "one value"),
    ("{% for a, b, c in sizes | items %}{{ a }}{% endfor %}", "GR022 `a, b, c`", "2 items, not 3"),
    ("{% set a, b = 1, 2, 3 %}{{ a }}", "GR022 `a, b`", "3 items, not 2"),
    ("{% set a, b = texts %}{{ a }}", "GR022 `a, b`", "any number of items"),
    ("{% set a, b = story %}{{ a }}", "GR022 `a, b`", "one value"),
    (
        "{% for a, b in texts | batch(2) %}{{ a }}{% endfor %}",
        "GR022 `a, b`",
        "any number of items",
    ),
    ("{% set a, b = 1, 'x' %}{{ b | round }}", "GR022 `round`", "round"),
    ("{% set story.title = 1 %}", "GR040 `title`", "set a name"),
    // Names that are set in branches.
    ("{% if flag %}{% set x = 1 %}{% endif %}{{ x }}", "GR026 `x`", "guard it"),
    (
        "{% if flag %}{% set x = 1 %}{% endif %}{% if not flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if note %}{% set x = 1 %}{% endif %}{% set note = 'a' %}{% if note %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% set x = 1 %}{% set flag = false %}{% else %}{% set flag = true %}{% endif %}\
         {% if flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% if s.note %}{% set x = 1 %}{% endif %}\
         {% for s in stories %}{% if s.note %}{{ x + 1 }}{% endif %}{% endfor %}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% if loop.changed(s.level) %}{% set x = 1 %}{% endif %}\
         {% if loop.changed(s.level) %}{{ x + 1 }}{% endif %}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% set x = 1 %}{% if flag %}{% set x = 'a' %}{% endif %}{{ x + 1 }}",
        "GR022 `x + 1`",
        "give it one type",
    ),
    (
        "{% set x = story %}{% if flag %}{% set x = brief %}{% endif %}{{ x.title }}",
        "GR041 `x.title`",
        "so no `title`",
    ),
    (
        "{% if story.note %}{% set story = stories[0] %}{{ story.note }}{% endif %}",
        "GR026 `story`",
        "absent",
    ),
    (
        "{% if flag %}{% set note = 'none' %}{% endif %}{{ note | length }}",
        "GR026 `note`",
        "guard it",
    ),
    (
        "{% if not note %}{% if flag %}{% set note = '-' %}{% endif %}{% endif %}{{ note | length }}",
        "GR026 `note`",
        "guard it",
    ),
    ("{% set x = story.note %}{{ x }}", "GR026 `x`", "guard it"),
    ("{% for s in stories %}{% else %}{% set x = 1 %}{% endfor %}{{ x }}", "GR026 `x`", "guard it"),
    ("{% set x = none %}{{ x.title }}", "GR026 `x`", "guard it"),
    ("{% set x | nosuch %}a{% endset %}", "GR041 `nosuch`", "no filter"),
    // Choices.
    ("{{ (story if flag).title }}", "GR026 `(story if flag`", "absent"),
    ("{{ (story if flag else brief).title }}", "GR041 `", "so no `title`"),
    ("{{ ('a' if flag else 1) + 1 }}", "GR022 `", "`+`"),
    ("{{ story.note | default([] | last) }}", "GR026", "absent"),
    ("{% set x = [] | first %}{{ x | upper }}", "GR026 `x`", "absent"),
    ("{{ (stories | first).title }}", "GR026 `first`", "absent"),
    ("{{ story.note and 'x' }}", "GR026 `story.note`", "guard it"),
    ("{{ (count or brief) + 1 }}", "GR022", "`+`"),
    ("{{ sizes['k'] | default('?') + 1 }}", "GR022", "`+`"),
    ("{{ tags | length }}", "GR026 `tags`", "guard it"),
    ("{{ 'x' in tags }}", "GR026 `tags`", "guard it"),
    ("{{ 'x' not in count }}", "GR022 `", "`in` does not work"),
    // Loops that call themselves.
    (
        "{% for t in tree.children recursive %}{{ loop(t.name) }}{% endfor %}",
        "GR022 `t.name`",
        "looped over",
    ),
    (
        "{% for t in [tree] recursive %}{{ t.name }}{{ loop(stories) }}{% endfor %}",
        "GR041 `t.name`",
        "no field `name`",
    ),
    ("{% for t in tree.children %}{{ loop(t.children) }}{% endfor %}", "GR041 `loop`", "recursive"),
    (
        "{% for t in tree.children recursive %}{% for u in t.children %}{{ loop(u.children) }}{% endfor %}{% endfor %}",
        "GR041 `loop`",
        "recursive",
    ),
    (
        "{% for s in stories if s.note recursive %}{{ s.note }}{{ loop(stories) }}{% endfor %}",
        "GR026 `s.note`",
        "absent",
    ),
    ("{% for t in tree.children recursive %}{{ loop() }}{% endfor %}", "GR041 `loop`", "one list"),
    // Enums.
    ("{{ size | int }}", "GR022 `int`", "not for all values"),
    ("{{ code | int }}", "GR022 `int`", "does not work"),
    // Others.
    ("{{ range }}", "GR041 `range`", "no name"),
    ("{{ brief() }}", "GR041 `brief`", "no function"),
    ("{{ texts | map('first') | map('upper') | join }}", "GR026 `map('upper')`", "absent"),
    ("{{ numbers | batch(2) | map('min') | join }}", "GR026 `join`", "absent"),
    (
        "{% for n in stories | groupby('note') | map(attribute=0) %}{{ n | upper }}{% endfor %}",
        "GR026 `n`",
        "absent",
    ),
    (
        "{{ numbers | batch(2, 'a') | map('sum') | join }}",
        "GR022 `map('sum')`",
        "not for all values",
    ),
    (
        "{% for r in numbers | slice(2, 'a') %}{{ r | sum }}{% endfor %}",
        "GR022 `sum`",
        "not for all values",
    ),
    ("{{ [story.note, 1] | map('round') | join }}", "GR0", "`map`"),
    ("{{ texts | map('attr', 'a') | map('round') | join }}", "GR026 `map('round')`", "absent"),
    ("{{ texts | chain(count) | join }}", "GR022 `chain(count)`", "no list"),
    ("{{ loose.note | upper }}", "GR026 `loose.note`", "may be absent"),
    ("{{ count is lt('a') }}", "GR022 `'a'`", "no order"),
    ("{{ count is eq('7') }}", "GR022 `'7'`", "never equal"),
    ("{{ level is eq('lwo') }}", "GR023 `'lwo'`", "never a value"),
    ("{{ count in '7' }}", "GR022 `'7'`", "never a part"),
    ("{{ count is in(brief) }}", "GR022 `brief`", "never a part"),
    (
        "{{ texts | select('in', brief) | join }}{{ 1 < 2 and count in brief }}",
        "GR022",
        "never a part",
    ),
    ("{{ brief.upper() }}", "GR041", "`… | upper`"),
    ("{{ brief.split(',') }}", "GR041", "`… | split(…)`"),
    ("{{ brief.strip() }}", "GR041", "`… | trim`"),
    ("{{ brief.startswith('a') }}", "GR041", "is startingwith(…)"),
    ("{{ brief.unknown_one() }}", "GR041", "`… | FILTER`"),
    ("{{ sizes.items() }}", "GR041", "`… | items`"),
    ("{{ story.title() }}", "GR041", "no method"),
    ("{{ data.items() }}", "GR041", "no method"),
    ("{{ (stories | first)() }}", "GR041 `", "is no function"),
    ("{{ brief | format(1) }}", "GR022 `format(1)`", "literal"),
    ("{% for x in texts + [1] %}{{ x | upper }}{{ x + 1 }}{% endfor %}", "GR022 `x + 1`", "`+`"),
    ("{% for x in stories[1:] %}{{ x.no }}{% endfor %}", "GR041 `x.no`", "no field `no`"),
    ("{% for i in range(3) %}{{ i.x }}{% endfor %}", "GR041 `i.x`", "so no `x`"),
    ("{% autoescape 'javascript' %}{% endautoescape %}", "GR040", "escaped"),
    ("{{ brief | upper(1) }}", "GR022", "upper"),
    ("{{ brief | upper(*texts) }}", "GR040 `texts`", "one by one"),
    // Names and macros of the places around.
    (
        "{% macro m() %}{% if flag %}{% set x = 1 %}{% endif %}{{ x + 1 }}{% endmacro %}{% if flag %}{{ m() }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% set x = 1 %}{% endif %}{% if flag %}{% set flag = 0 %}{% endif %}{% if flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% if count %}{% set x = 1 %}{% endif %}{% if count %}{{ x }}{% endif %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for t in [tree] recursive %}{% if t.name %}{% set x = 1 %}{% endif %}{{ loop(t.children) }}{{ x + 1 }}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% macro m() %}{{ nosuch }}{% endmacro %}{% endfor %}",
        "GR041 `nosuch`",
        "no name",
    ),
    (
        "{% if flag %}{% macro m() %}{{ nosuch }}{% endmacro %}{% endif %}",
        "GR041 `nosuch`",
        "no name",
    ),
    // A value that is no empty list may be null, or no list.
    ("{% if tags != [] %}{{ (tags | list | first) | upper }}{% endif %}", "GR026", "absent"),
    ("{% if [] != tags %}{{ (tags | sort | first) | upper }}{% endif %}", "GR026", "absent"),
    (
        "{% if not (tags == []) %}{{ (tags | unique | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    (
        "{% set x = texts if flag else '' %}{% if x != [] %}{{ (x | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    (
        "{% if (tags | default) != [] %}{{ (tags | default | list | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    // A slice of an enum is any text.
    ("{{ '12'[2:] | int }}", "GR022 `int`", "does not work on `string`"),
    ("{% set x = '12' %}{{ x[2:] | int }}", "GR022 `int`", "does not work on `string`"),
    ("{{ code[5:] | int }}", "GR022 `int`", "does not work on `string`"),
    // Sums that begin with a value.
    (
        "{% for x in stories | map(attribute='points') | batch(2) | sum(start=['a']) %}{{ x + 1 }}{% endfor %}",
        "GR022 `x + 1`",
        "`+`",
    ),
    (
        "{% for x in stories | sum(attribute='labels', start=[1]) %}{{ x + 'a' }}{% endfor %}",
        "GR022 `x + 'a'`",
        "`+`",
    ),
    ("{{ (stories | sum('labels', ['a'])) + 1 }}", "GR022", "`+`"),
    (
        "{% if stories | sum('level', '') == 'lwo' %}{% endif %}{{ (texts | sum(start='x')) + 1 }}",
        "GR022",
        "`+`",
    ),
    ("{{ numbers | sum(start='x') }}", "GR022 `sum(start='x')`", "sum"),
    // The last value of a repeated key counts.
    ("{{ {'a': 1, 'a': 'x'}.a + 1 }}", "GR022", "`+`"),
    ("{{ ('a' | int(default=0, default='x')) + 1 }}", "GR022", "`+`"),
    // The parts of a group.
    (
        "{% for g in stories | groupby('level') %}{{ g.lst }}{% endfor %}",
        "GR041 `g.lst`",
        "did you mean `list`",
    ),
    ("{% for p in sizes | items %}{{ p.list }}{% endfor %}", "GR041 `p.list`", "no field `list`"),
    (
        "{% for x in sizes | items | map(attribute='list') %}{{ x + 1 }}{% endfor %}",
        "GR041 `map(attribute='list')`",
        "no field `list`",
    ),
    // Items that may be absent.
    ("{{ marks | sum }}", "GR026 `sum`", "`… | reject(\"none\") | …`"),
    (
        "{% for k, v in scores | items | selectattr(0) %}{{ v + 1 }}{% endfor %}",
        "GR026 `v`",
        "absent",
    ),
    // Functions.
    ("{{ range(share) | list }}", "GR022 `range`", "does not work on `float`"),
    ("{{ range(1, brief) | list }}", "GR022 `range`", "does not work on `1` and `string`"),
    (
        "{% if flag %}{% macro m() %}x{% endmacro %}{% else %}{% macro m() %}y{% endmacro %}{% endif %}{{ m() }}",
        "GR041 `m`",
        "before the `if`",
    ),
    (
        "{% macro outer() %}{% macro inner() %}{{ nosuch }}{% endmacro %}{% endmacro %}",
        "GR041 `nosuch`",
        "no name",
    ),
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
