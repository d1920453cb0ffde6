//! What an operation of a template does with values of some types: the engine tries it on a sample of each.
//!
//! So the check agrees with the engine about every operator, filter, test and function, without a table of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use graphrun_core::state::{Field, Type, contained};
use minijinja::{
    AutoEscape, Environment, ErrorKind, Value,
    machinery::{CodeGenerator, eval, make_string_output},
    value::{Serde, ValueKind},
};
use serde_json::json;

use super::{
    TEMPLATE, environment,
    metered::metered,
    parsed,
    shapes::{alternatives, any_of, tuple_items},
};

/// The names of the operands in the source of an operation.
pub(super) const OPERANDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// The largest number of a literal with which an operation is tried.
const LITERAL_MAX: f64 = 1_000.0;
/// The most values of an enum that are tried one by one. A longer one is tried like any text.
const ENUM_VALUES_MAX: usize = 500;

/// A part of an expression that is missing without an `else`, which is written as nothing.
pub(super) static NOTHING: LazyLock<Value> = LazyLock::new(|| {
    let missing = ENVIRONMENT.compile_expression("1 if false").and_then(|it| it.eval(()));
    missing.unwrap_or(Value::UNDEFINED)
});

/// An operand of an operation.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    Literal(Value),
    Of(Type),
}

impl Operand {
    /// The operand with the value of a literal, unless it is so large that the operation could take long.
    pub(super) fn literal(value: &Value) -> Self {
        let is_small = match value.kind() {
            ValueKind::Number => {
                (-LITERAL_MAX..=LITERAL_MAX).contains(&f64::try_from(value.clone()).unwrap_or(0.0))
            }
            ValueKind::String => value.as_str().is_some_and(|it| it.len() <= 1_000),
            _ => value.len().is_none_or(|it| it <= 100),
        };
        if is_small { Self::Literal(value.clone()) } else { Self::Of(type_of(value)) }
    }

    fn sample(&self, unknown: &serde_json::Value) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Of(ty) => Value::from(Serde(sample(ty.required(), unknown, Variant::Full))),
        }
    }

    fn is_known(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Of(ty) => is_known(ty),
        }
    }
}

/// Returns whether a type says what all parts of its values are.
fn is_known(ty: &Type) -> bool {
    match ty {
        Type::Any => false,
        Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => is_known(inner),
        Type::Record(record) => record.fields.iter().all(|it| is_known(&it.ty)),
        _ => true,
    }
}

/// Why an operation fails, as the engine says it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) when: FailingValues,
    pub(super) reason: String,
}

/// The values with which an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailingValues {
    Always,
    /// A part of an operand is absent.
    Absent,
    /// An operand is empty.
    Empty,
    /// An operand has one of its values.
    Value,
}

/// The operations that were tried.
#[derive(Debug, Default)]
pub(super) struct OperationResults(HashMap<String, Result<Type, Failure>>);

impl OperationResults {
    /// Returns the type of the result of an operation such as `a | round`, or the reason why it fails with values of
    /// these types.
    pub(super) fn operation(
        &mut self,
        source: &str,
        operands: &[Operand],
    ) -> Result<Type, Failure> {
        let key = format!("{source} {operands:?}");
        self.0.entry(key).or_insert_with(|| attempt(source, operands)).clone()
    }
}

fn attempt(source: &str, operands: &[Operand]) -> Result<Type, Failure> {
    let is_any = |it: &Operand| matches!(it, Operand::Of(ty) if ty.required() == &Type::Any);
    if operands.iter().any(is_any) {
        return Ok(Type::Any);
    }
    // Each of the types that an operand may have is tried.
    for (at, operand) in operands.iter().enumerate() {
        let Operand::Of(ty) = operand else { continue };
        let alternatives = alternatives(ty);
        if alternatives.len() > 1 {
            let with = |ty: &Type| {
                let mut operands = operands.to_vec();
                operands[at] = Operand::Of(ty.clone());
                attempt(source, &operands)
            };
            let results: Result<Vec<Type>, Failure> = alternatives.into_iter().map(with).collect();
            return results.map(any_of);
        }
    }
    let mut reason = String::new();
    // In place of an unknown part of a value there is one of each kind: one that works is enough.
    let unknown =
        [json!(1), json!("x"), json!([1]), json!(["x"]), json!({"x": 1}), json!({"x": "x"})];
    for unknown in unknown {
        let values: Vec<Value> = operands.iter().map(|it| it.sample(&unknown)).collect();
        match without_panic(|| performed(source, &values)) {
            // With a value of another kind, the result may be of another type.
            Ok(_) if !operands.iter().all(Operand::is_known) => {
                let absent = attempt_variants(source, operands, &values, &unknown);
                return match absent {
                    // Others depend on the unknown parts.
                    Err(failure) if failure.when == FailingValues::Absent => Err(failure),
                    _ => Ok(Type::Any),
                };
            }
            Ok(ty) => return attempt_variants(source, operands, &values, &unknown).map(|()| ty),
            // How large a value is depends on others than its type.
            Err(error) if error.kind() == ErrorKind::OutOfFuel => return Ok(Type::Any),
            Err(error) => error.detail().unwrap_or_default().clone_into(&mut reason),
        }
    }
    Err(Failure { when: FailingValues::Always, reason })
}

/// Tries an operation that works with samples of its operands with other values of each: without their optional parts,
/// empty, the values of an enum, and the types that a part may have. `unknown` is in the place of unknown parts.
fn attempt_variants(
    source: &str,
    operands: &[Operand],
    samples: &[Value],
    unknown: &serde_json::Value,
) -> Result<(), Failure> {
    for (at, operand) in operands.iter().enumerate() {
        let Operand::Of(ty) = operand else { continue };
        let usual = sample(ty.required(), unknown, Variant::Full);
        let variants = [
            (Variant::Omitted, FailingValues::Absent),
            (Variant::Null, FailingValues::Absent),
            (Variant::Empty, FailingValues::Empty),
        ];
        let values = (1..values_count(ty)).map(|it| (Variant::Value(it), FailingValues::Value));
        for (variant, when) in variants.into_iter().chain(values) {
            let value = sample(ty.required(), unknown, variant);
            if value == usual {
                continue;
            }
            let mut values = samples.to_vec();
            values[at] = Value::from(Serde(value));
            match without_panic(|| rendered(source, &values)) {
                Err(error) if error.kind() != ErrorKind::OutOfFuel => {
                    let reason = error.detail().unwrap_or_default().to_owned();
                    return Err(Failure { when, reason });
                }
                _ => (),
            }
        }
    }
    Ok(())
}

/// Returns the largest number of values of an enum in a type, or of types of a part of it, of those that are tried one
/// by one.
fn values_count(ty: &Type) -> usize {
    let types = alternatives(ty);
    if types.len() > 1 {
        let inside = types.iter().map(|it| values_count(it)).max();
        return types.len().max(inside.unwrap_or(0));
    }
    match ty {
        Type::Enum(values) if values.len() <= ENUM_VALUES_MAX => values.len(),
        Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => values_count(inner),
        Type::Record(record) => {
            record.fields.iter().map(|it| values_count(&it.ty)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

fn context_of(values: &[Value]) -> Value {
    let context: BTreeMap<&str, Value> = OPERANDS.into_iter().zip(values.iter().cloned()).collect();
    Value::from(Serde(context))
}

/// Returns a panic of the engine as an error: an operation that panics on a sample is refused.
fn without_panic<T>(
    attempt: impl FnOnce() -> Result<T, minijinja::Error>,
) -> Result<T, minijinja::Error> {
    contained(attempt).unwrap_or_else(|message| {
        let message = format!("the template engine panics: {message}");
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    })
}

/// Performs an operation as a run would, and returns the type of its result.
fn performed(source: &str, values: &[Value]) -> Result<Type, minijinja::Error> {
    rendered(source, values)?;
    let expression = ENVIRONMENT.compile_expression(source);
    let result = expression.and_then(|it| it.eval(context_of(values)));
    Ok(result.map_or(Type::Any, |it| type_of(&it)))
}

/// Performs an operation as a run would. Its result may be absent.
fn rendered(source: &str, values: &[Value]) -> Result<(), minijinja::Error> {
    let text = format!("{{{{ ({source}) | default(1) }}}}");
    let template = parsed(&text)?;
    let mut generator = CodeGenerator::new(TEMPLATE, &text);
    generator.compile_stmt(&metered(&template).0);
    let (instructions, blocks) = generator.finish();
    let mut written = String::new();
    let mut out = make_string_output(&mut written);
    let root = context_of(values);
    eval(&ENVIRONMENT, &instructions, root, &blocks, &mut out, AutoEscape::None).map(drop)
}

/// Returns the type of a value, as far as it is one of a few.
pub(super) fn type_of(value: &Value) -> Type {
    match value.kind() {
        ValueKind::Bool => Type::Bool,
        ValueKind::Number if value.is_integer() => Type::INT,
        ValueKind::Number => Type::FLOAT,
        ValueKind::String => Type::String,
        ValueKind::Seq | ValueKind::Iterable => Type::List(Box::new(Type::Any)),
        _ => Type::Any,
    }
}

/// Which of the values of a type a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// All parts are there.
    Full,
    /// The optional parts are missing.
    Omitted,
    /// The optional parts are null.
    Null,
    /// Lists, maps and texts are empty.
    Empty,
    /// Enums have one of their later values, and parts of several types have one of the later types.
    Value(usize),
}

/// Returns a value of a type.
fn sample(ty: &Type, unknown: &serde_json::Value, variant: Variant) -> serde_json::Value {
    let is_empty = variant == Variant::Empty;
    if let Some(items) = tuple_items(ty) {
        return items.into_iter().map(|it| sample(it, unknown, variant)).collect();
    }
    match ty {
        Type::Any => unknown.clone(),
        Type::Bool => json!(true),
        Type::Int(_) => json!(1),
        Type::Float(_) => json!(1.5),
        Type::String if is_empty => json!(""),
        Type::String => json!("x"),
        Type::Date => json!("2026-01-31"),
        Type::Duration => json!("PT90M"),
        Type::Enum(values) if values.len() > ENUM_VALUES_MAX => {
            sample(&Type::String, unknown, variant)
        }
        Type::Enum(values) => match variant {
            Variant::Value(at) => json!(values.get(at % values.len().max(1))),
            _ => json!(values.first()),
        },
        Type::List(_) if is_empty => json!([]),
        Type::List(item) => json!([sample(item, unknown, variant)]),
        Type::Map(_) if is_empty => json!({}),
        Type::Map(value) => json!({"x": sample(value, unknown, variant)}),
        Type::Record(_) if alternatives(ty).len() > 1 => {
            let types = alternatives(ty);
            let at = if let Variant::Value(at) = variant { at % types.len() } else { 0 };
            types.get(at).map_or(json!(1), |it| sample(it, unknown, variant))
        }
        Type::Record(record) => {
            let is_there =
                |it: &&Field| variant != Variant::Omitted || !matches!(it.ty, Type::Optional(_));
            let fields = record.fields.iter().filter(is_there);
            fields.map(|it| (it.name.clone(), sample(&it.ty, unknown, variant))).collect()
        }
        Type::Optional(_) if matches!(variant, Variant::Omitted | Variant::Null) => json!(null),
        Type::Optional(inner) => sample(inner, unknown, variant),
    }
}

#[cfg(test)]
mod tests {

    use graphrun_core::{
        graph::{Input, RunFacts, Trigger, Visits},
        id::ChannelName,
        state::{Channel, Reducer, Schema, State, Update},
    };

    use super::{
        super::{
            Prompt, PromptView, constructs,
            names::{FILTERS, TESTS},
        },
        *,
    };

    /// Types, each with its schema and some of its values.
    fn types() -> Vec<(&'static str, serde_json::Value, Vec<serde_json::Value>)> {
        let record = json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": false,
        });
        let list_of = |it: &str| json!({"type": "array", "items": {"type": it}});
        let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        vec![
            ("flag", json!({"type": "boolean"}), vec![json!(false), json!(true)]),
            ("count", json!({"type": "integer"}), vec![json!(7), json!(1)]),
            ("share", json!({"type": "number"}), vec![json!(0.5), json!(-2.25), json!(3)]),
            ("text", json!({"type": "string"}), vec![json!(""), json!("a, b"), json!("12")]),
            ("day", json!({"type": "string", "format": "date"}), vec![json!("2026-11-24")]),
            ("word", json!({"enum": ["minor", "major"]}), vec![json!("minor"), json!("major")]),
            ("texts", list_of("string"), vec![json!([]), json!(["b"]), json!(["b", "", "a"])]),
            ("counts", list_of("integer"), vec![json!([]), json!([3, 1])]),
            ("sizes", map, vec![json!({}), json!({"k": 2})]),
            ("rec", record, vec![json!({"a": 1}), json!({"a": 1, "b": "x"})]),
        ]
    }

    fn schema() -> Schema {
        let name = |name: &str| ChannelName::parse(name).unwrap();
        let channel = |(it, schema, _): (&str, _, _)| {
            Channel::new(name(it), schema, Reducer::Replace).unwrap()
        };
        Schema::new(types().into_iter().map(channel)).unwrap()
    }

    /// Returns the messages of the check of a template that is an expression.
    fn problems(schema: &Schema, expression: &str) -> Vec<String> {
        let prompt = Prompt::compile("p.md", &template(expression)).unwrap();
        constructs::check(schema, &prompt).into_iter().map(|it| it.message).collect()
    }

    fn template(expression: &str) -> String {
        if expression.contains("{%") {
            expression.to_owned()
        } else {
            format!("{{{{ {expression} }}}}")
        }
    }

    fn rendered(state: &State, expression: &str) -> Result<String, String> {
        let view = PromptView {
            state,
            visit: 1,
            max_visits: None,
            trigger: &Trigger::Start,
            input: &Input::State,
            visits: &Visits::default(),
            facts: &RunFacts::default(),
        };
        let prompt = Prompt::compile("p.md", &template(expression)).unwrap();
        prompt.render(&view).map_err(|it| format!("{it}: {:?}", std::error::Error::source(&it)))
    }

    /// States in which each field has each of its values.
    fn states(schema: &Schema) -> Vec<State> {
        let rounds = types().iter().map(|it| it.2.len()).max().unwrap();
        let state = |round: usize| {
            let update =
                types().into_iter().fold(Update::default(), |update, (name, _, values)| {
                    let value = values[round % values.len()].clone();
                    update.write(ChannelName::parse(name).unwrap(), value)
                });
            schema.apply(schema.empty(), [&update]).unwrap().0
        };
        (0..rounds).map(state).collect()
    }

    /// Returns the operations with an operand of each type, and arguments that have one.
    fn expressions() -> Vec<String> {
        let names: Vec<&str> = types().iter().map(|it| it.0).collect();
        let arguments = [
            "",
            "(1)",
            "(2)",
            "(0)",
            "(\"a\")",
            "(\"upper\")",
            "(attribute=\"a\")",
            "(default=0)",
            "(text)",
            "(count)",
            "(texts)",
        ];
        let mut expressions = Vec::new();
        for name in &names {
            for argument in arguments {
                expressions.extend(FILTERS.iter().map(|it| format!("{name} | {it}{argument}")));
                expressions.extend(TESTS.iter().map(|it| format!("{name} is {it}{argument}")));
            }
            for other in &names {
                let symbols = ["+", "-", "*", "/", "//", "%", "~", "in", "==", "<", "and", "or"];
                expressions.extend(symbols.iter().map(|it| format!("{name} {it} {other}")));
                expressions.push(format!("{name}[{other}]"));
                expressions.push(format!("{name}[{other}] | default(1)"));
                expressions.push(format!("{name} | first | default({other})"));
            }
            expressions.push(format!("([{name}] * 3) | join(\"x\")"));
            expressions.push(format!("([{name}] + [1]) | length + 1"));
            expressions.push(format!("-{name}"));
            expressions.push(format!("{name}[1:]"));
            expressions.push(format!("{name}[:-1] | upper"));
            expressions.push(format!("{name} | first"));
            expressions.push(format!("{{% for it in {name} %}}{{{{ it }}}}{{% endfor %}}"));
            expressions.push(format!("{{% for k, v in {name} %}}{{{{ k }}}}{{% endfor %}}"));
            expressions
                .push(format!("{{% for k, v in {name} | items %}}{{{{ v }}}}{{% endfor %}}"));
            expressions
                .push(format!("{{% if {name} %}}{{{{ {name} | first | string }}}}{{% endif %}}"));
        }
        expressions
    }

    #[test]
    fn a_slice_has_no_step_below_one() {
        let schema = schema();
        let negative = |it: &str| problems(&schema, it);
        for expression in
            ["text[::-1]", "texts[::-2]", "text[3:0:-1]", "(text | upper)[::-1]", "counts[::0]"]
        {
            let found = negative(expression);
            assert!(found[0].starts_with("a slice has no step of"), "{expression}: {found:?}");
        }
        assert_eq!(negative("texts[1::2] ~ text[::count]"), [""; 0]);
        let state = &states(&schema)[0];
        for expression in ["text[::-count]", "texts[::-count] | join", "texts[::count - 7]"] {
            let reason = rendered(state, expression).unwrap_err();
            assert!(reason.contains("the step of a slice is 1 or more"), "{expression}: {reason}");
        }
    }

    /// What the engine does wrong in an operation must not end the check of a workflow.
    #[test]
    fn a_panic_of_the_engine_is_an_error_of_the_trial() {
        let error = without_panic::<()>(|| panic!("index out of bounds")).unwrap_err();
        assert_eq!(error.detail(), Some("the template engine panics: index out of bounds"));
    }

    /// Operations that depend on the value of a number, and not on its type: `false` counts as zero.
    fn is_of_numbers(expression: &str) -> bool {
        ["/ flag", "% flag"].iter().any(|it| expression.ends_with(it))
    }

    #[test]
    fn what_the_check_accepts_can_be_rendered() {
        let schema = schema();
        let states = states(&schema);
        let mut accepted = 0;
        let mut refused = 0;
        let mut failed = Vec::new();
        for expression in expressions().into_iter().filter(|it| !is_of_numbers(it)) {
            if !problems(&schema, &expression).is_empty() {
                refused += 1;
                continue;
            }
            accepted += 1;
            for state in &states {
                if let Err(reason) = rendered(state, &expression) {
                    failed.push(format!("{expression}: {reason}"));
                    break;
                }
            }
        }
        assert!(accepted > 1_000 && refused > 1_000, "{accepted} accepted, {refused} refused");
        assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
    }

    /// Other problems are operations that the engine performs, although they are mistakes: a loop over a text, a
    /// comparison that is never true.
    fn is_failure(problem: &str) -> bool {
        // The days and words of these states have the characters that `attr` reads.
        let is_refused = !problem.starts_with("this may be absent");
        is_refused
            && ["does not work on", "always fails", "may be absent"]
                .iter()
                .any(|it| problem.contains(it))
    }

    #[test]
    fn what_the_check_refuses_fails_in_some_state() {
        let schema = schema();
        let states = states(&schema);
        let mut fine = Vec::new();
        for expression in expressions() {
            let mut problems = problems(&schema, &expression);
            problems.retain(|it| is_failure(it));
            // A part that is null is written as `none`.
            problems.retain(|_| !expression.contains("rec | items"));
            if !problems.is_empty() && states.iter().all(|it| rendered(it, &expression).is_ok()) {
                fine.push(format!("{expression}: {}", problems.join(", ")));
            }
        }
        assert!(fine.is_empty(), "{} never fail:\n{}", fine.len(), fine.join("\n"));
    }
}
