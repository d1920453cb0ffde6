//! The facts of a run as values of a template.

use std::{collections::BTreeMap, fmt, sync::Arc};

use graphrun_expressions::facts::{Fact, FactsView};
use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Enumerator, Object, Serde},
};

/// Adds the facts to the names of a template; a field of the state takes precedence.
pub(super) fn add_facts(
    context: &mut BTreeMap<&str, Value>,
    view: &FactsView<'_>,
    counts: BTreeMap<String, u32>,
) {
    for fact in Fact::all() {
        let value = fact.value(view);
        let value = match fact.name {
            "via" => via(&value),
            "usage" => usage(Value::from(Serde(value)), view),
            _ => Value::from(Serde(value)),
        };
        context.entry(fact.name).or_insert(value);
    }
    let now = Value::from(Serde(view.now()));
    let now = Callable { of: Value::UNDEFINED, call: Box::new(move |_| Some(now.clone())) };
    context.entry("now").or_insert_with(|| Value::from_object(now));
    let visits = move |node: Option<&str>| {
        Some(Value::from(node.and_then(|it| counts.get(it)).copied().unwrap_or(0)))
    };
    let visits = Callable { of: Value::UNDEFINED, call: Box::new(visits) };
    context.entry("visits").or_insert_with(|| Value::from_object(visits));
}

/// `via`, whose error is shown as its message.
fn via(via: &serde_json::Value) -> Value {
    let field = |(name, it): (&String, &serde_json::Value)| {
        let value = Value::from(Serde(it.clone()));
        let is_error = name == "error";
        (name.clone(), if is_error { Value::from_object(ErrorText(value)) } else { value })
    };
    let fields: BTreeMap<String, Value> =
        via.as_object().into_iter().flatten().map(field).collect();
    Value::from(Serde(fields))
}

fn usage(total: Value, view: &FactsView<'_>) -> Value {
    let names = view.facts.node_usage.keys();
    let of = |it: &str| Value::from(Serde(view.usage_of(it)));
    let by_node: BTreeMap<String, Value> =
        names.map(|it| (it.to_string(), of(it.as_str()))).collect();
    let none = of("");
    let call =
        move |node: Option<&str>| Some(by_node.get(node?).cloned().unwrap_or_else(|| none.clone()));
    Value::from_object(Callable { of: total, call: Box::new(call) })
}

/// A record that can also be called, with a text or with nothing.
struct Callable {
    of: Value,
    call: Box<Call>,
}

/// A call with the name of a node, or with nothing. It has no value if the name is missing.
type Call = dyn Fn(Option<&str>) -> Option<Value> + Send + Sync;

impl Object for Callable {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.of.get_item(key).ok().filter(|it| !it.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys = self.of.try_iter().map(Iterator::collect).unwrap_or_default();
        Enumerator::Values(keys)
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        (self.call)(args.first().and_then(Value::as_str))
            .ok_or_else(|| Error::new(ErrorKind::MissingArgument, "the name of a node is missing"))
    }
}

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.of)
    }
}

/// An error with its kind and message, shown as its message.
#[derive(Debug)]
struct ErrorText(Value);

impl Object for ErrorText {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get_item(key).ok().filter(|it| !it.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&["kind", "message"])
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.0.get_item(&Value::from("message")).unwrap_or_default();
        f.write_str(message.as_str().unwrap_or_default())
    }
}
