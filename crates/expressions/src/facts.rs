//! The facts of a run as expressions and prompts see them: [`Fact::all`] lists their names. A field of the state with
//! such a name takes precedence.

use graphrun_core::{
    diagnostic::did_you_mean,
    event::Usage,
    graph::{ErrorKind, RunFacts, Trigger, TriggerKind},
    state::{Field, NumberRange, Record, Type},
};
use serde_json::{Map, Value, json};

/// The type of a number that counts something.
const COUNT: Type = Type::Int(NumberRange::FROM_ZERO);
/// The type of an amount of money.
const COST: Type = Type::Float(NumberRange::FROM_ZERO);

/// A name that stands for facts of the run.
#[derive(Debug)]
pub struct Fact {
    /// The name.
    pub name: &'static str,
    /// The meaning, in one sentence.
    pub about: &'static str,
    ty: fn() -> Type,
    value: fn(&FactsView<'_>) -> Value,
}

/// The values of facts at one point of a run.
#[derive(Clone, Copy, Debug)]
pub struct FactsView<'a> {
    /// The facts.
    pub facts: &'a RunFacts,
    /// The trigger of the task.
    pub trigger: &'a Trigger,
}

static FACTS: &[Fact] = &[
    Fact {
        name: "via",
        about: "How the run reached this node: `via.reason`; `via.node`, if a node led here; and `via.error.message` and `via.error.kind` (a kind of `catch`, `exhausted` or `limit`), if an error did.",
        ty: via_type,
        value: |view| {
            let mut via =
                Map::from_iter([("reason".to_owned(), view.trigger.kind().as_str().into())]);
            via.extend(view.trigger.node().map(|it| ("node".to_owned(), it.as_str().into())));
            let error = view.trigger.error().zip(view.trigger.error_kind());
            let error = error.map(|(message, kind)| json!({"kind": kind, "message": message}));
            via.extend(error.map(|it| ("error".to_owned(), it)));
            via.into()
        },
    },
    Fact {
        name: "run",
        about: "The run: `run.id`, and `run.name`, the name of its workflow.",
        ty: || record("run", [("id", Type::String), ("name", Type::String)]),
        value: |view| {
            let id = view.facts.run.as_ref().map_or("", |it| it.as_str());
            json!({"id": id, "name": &*view.facts.workflow})
        },
    },
    Fact {
        name: "usage",
        about: "The usage of models before this step: `usage.tokens`, `.input_tokens`, `.output_tokens`, `.calls`, and `.usd` if all prices are known; `.context_tokens` of the last request and its reply, if the provider counts them, and `.context_window` of its model, if it is known. `usage(\"node\")` is that of one node.",
        ty: usage_type,
        value: |view| usage_value(&view.facts.usage),
    },
    Fact {
        name: "remaining",
        about: "The rest of the limits at the start of this step: `remaining.steps`, and `remaining.calls`, `remaining.tokens` and `remaining.usd` if they are limited.",
        ty: remaining_type,
        value: |view| {
            let rest = view.facts.remaining;
            let mut remaining = Map::from_iter([("steps".to_owned(), whole(rest.steps))]);
            remaining.extend(rest.calls.map(|it| ("calls".to_owned(), whole(it))));
            remaining.extend(rest.tokens.map(|it| ("tokens".to_owned(), whole(it))));
            remaining.extend(rest.usd.map(|it| ("usd".to_owned(), it.into())));
            remaining.into()
        },
    },
];

impl Fact {
    /// Returns all facts, in the order of the documentation.
    pub fn all() -> &'static [Self] {
        FACTS
    }

    /// Returns the fact of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FACTS.iter().find(|it| it.name == name)
    }

    /// Returns advice for a name that is similar to that of a fact.
    pub fn meant_by(name: &str) -> Option<String> {
        let meant = did_you_mean(name, FACTS.iter().map(|it| it.name))?;
        Some(format!("did you mean `{meant}`?"))
    }

    /// Returns its type.
    pub fn ty(&self) -> Type {
        (self.ty)()
    }

    /// Returns its value in a run.
    pub fn value(&self, view: &FactsView<'_>) -> Value {
        (self.value)(view)
    }
}

impl FactsView<'_> {
    /// Returns the time when the step began, as a text.
    pub fn now(&self) -> Value {
        self.facts.began.unwrap_or_default().to_string().into()
    }

    /// Returns the usage of one node.
    pub fn usage_of(&self, node: &str) -> Value {
        usage_value(&self.facts.node_usage.get(node).copied().unwrap_or_default())
    }
}

/// Returns the type of the usage of models.
pub fn usage_type() -> Type {
    let whole = ["tokens", "input_tokens", "output_tokens", "calls"].map(|it| (it, COUNT));
    let optional = [
        ("usd", COST.optional()),
        ("context_tokens", COUNT.optional()),
        ("context_window", COUNT.optional()),
    ];
    record("usage", whole.into_iter().chain(optional))
}

fn remaining_type() -> Type {
    let fields = [
        ("steps", COUNT),
        ("calls", COUNT.optional()),
        ("tokens", COUNT.optional()),
        ("usd", COST.optional()),
    ];
    record("remaining", fields)
}

fn via_type() -> Type {
    let texts = |values: &[&str]| Type::Enum(values.iter().map(|&it| it.to_owned()).collect());
    let kinds = ErrorKind::ALL.map(ErrorKind::as_str);
    let kinds = texts(&[&kinds[..], &Trigger::OTHER_ERROR_KINDS].concat());
    let error = record("error", [("kind", kinds), ("message", Type::String)]);
    let fields = [
        ("node", Type::String.optional()),
        ("reason", texts(&TriggerKind::ALL.map(TriggerKind::as_str))),
        ("error", error.optional()),
    ];
    record("via", fields)
}

/// Returns the type of a record with these fields.
pub fn record(name: &str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Type {
    let fields = fields.into_iter().map(|(name, ty)| Field::new(name, ty));
    let name = Some(name.to_owned());
    let fields = fields.collect();
    Type::Record(Record { name, fields, is_closed: true }.into())
}

fn usage_value(usage: &Usage) -> Value {
    let tokens = &usage.tokens;
    let mut value = Map::from_iter(
        [
            ("tokens", usage.total_tokens()),
            ("input_tokens", tokens.input_tokens),
            ("output_tokens", tokens.output_tokens),
            ("calls", tokens.calls),
        ]
        .map(|(name, count)| (name.to_owned(), whole(count))),
    );
    let cost = if tokens.calls == 0 { Some(0.0) } else { usage.cost_usd };
    value.extend(cost.map(|it| ("usd".to_owned(), it.into())));
    let context =
        [("context_tokens", tokens.context_tokens), ("context_window", tokens.context_window)];
    value.extend(
        context.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?.get().into()))),
    );
    value.into()
}

fn whole(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}
