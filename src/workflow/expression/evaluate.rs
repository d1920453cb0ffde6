//! The value of an expression in a state. Total: what cannot be computed is an error.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::{Number, Value};
use thiserror::Error;

use super::{
    ExpressionView,
    syntax::{Each, Kind, Node, Operator, TextQuestion},
};

/// An expression has no value in a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluateError {
    /// Something is not written, not there or null.
    #[error("`{0}` is not there")]
    Absent(String),
    /// A value is not of the kind that an operator works on.
    #[error("`{operator}` needs {needed}, got `{got}`")]
    Kind {
        /// The operator.
        operator: &'static str,
        /// What it works on.
        needed: &'static str,
        /// What it was given, shortened.
        got: String,
    },
    /// A number left its range.
    #[error("`{0}` leaves the range of numbers")]
    Range(&'static str),
    /// Division by zero.
    #[error("division by zero")]
    DivisionByZero,
}

pub(super) fn evaluate(
    root: &Node,
    view: &ExpressionView<'_>,
    item: Option<(&str, &Value)>,
) -> Result<Value, EvaluateError> {
    let variables = item.map(|(name, value)| (name, value.clone())).into_iter().collect();
    Evaluation { view: *view, variables }.value(root).map(Cow::into_owned)
}

struct Evaluation<'a> {
    view: ExpressionView<'a>,
    variables: Vec<(&'a str, Value)>,
}

#[derive(Clone, Copy)]
enum Numeric {
    Int(i64),
    Float(f64),
}

type Evaluated<T> = Result<T, EvaluateError>;

impl<'a> Evaluation<'a> {
    fn value(&mut self, node: &'a Node) -> Evaluated<Cow<'a, Value>> {
        let value = match &node.kind {
            Kind::Literal(value) => return Ok(Cow::Borrowed(value)),
            Kind::Name(_) | Kind::Field(..) => {
                return match self.look_up(node)? {
                    Some(value) => Ok(value),
                    None => Err(self.absent(node)),
                };
            }
            Kind::List(items) => {
                let values = items.iter().map(|it| self.value(it).map(Cow::into_owned));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            Kind::Not(of) => Value::Bool(!self.condition(of, "!")?),
            Kind::Negate(of) => match self.number(of, "-")? {
                Numeric::Int(it) => it.checked_neg().ok_or(EvaluateError::Range("-"))?.into(),
                Numeric::Float(it) => float(-it, "-")?,
            },
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right)?,
            Kind::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let chosen = if self.condition(condition, "?")? { then } else { otherwise };
                return self.value(chosen);
            }
            Kind::Has(of) => Value::Bool(self.look_up(of)?.is_some()),
            Kind::Visits(node) => {
                Value::from(self.view.visits.get(node.as_str()).copied().unwrap_or(0))
            }
            Kind::Size(of) => self.size(of)?,
            Kind::Text(question, of, part) => self.text_question(*question, of, part)?,
            Kind::Matches(of, pattern) => {
                let text = self.value(of)?;
                let text = text.as_str().ok_or_else(|| kind("matches", "a text", &text))?;
                Value::Bool(pattern.is_match(text))
            }
            Kind::Each { what, list, variable, body } => self.each(*what, list, variable, body)?,
        };
        Ok(Cow::Owned(value))
    }

    /// The value at a path; `None` where something on the way is absent or null.
    fn look_up(&mut self, node: &'a Node) -> Evaluated<Option<Cow<'a, Value>>> {
        let found = match &node.kind {
            Kind::Name(name) => self.named(name),
            Kind::Field(of, name) => match self.look_up(of)? {
                Some(Cow::Borrowed(of)) => of.get(name).map(Cow::Borrowed),
                Some(Cow::Owned(of)) => of.get(name).cloned().map(Cow::Owned),
                None => None,
            },
            _ => Some(self.value(node)?),
        };
        Ok(found.filter(|it| !it.is_null()))
    }

    /// Names the first part of a path that is not there.
    fn absent(&mut self, node: &'a Node) -> EvaluateError {
        match &node.kind {
            Kind::Field(of, _) if matches!(self.look_up(of), Ok(None)) => self.absent(of),
            _ => EvaluateError::Absent(node.path().unwrap_or_else(|| "a field".to_owned())),
        }
    }

    fn named(&self, name: &str) -> Option<Cow<'a, Value>> {
        if let Some((_, value)) = self.variables.iter().rev().find(|(it, _)| *it == name) {
            return Some(Cow::Owned(value.clone()));
        }
        if let (Some(dir), "output") = (self.view.output_dir, name) {
            return Some(Cow::Owned(serde_json::json!({ "dir": dir })));
        }
        self.view.state.get(name).map(Cow::Borrowed)
    }

    fn binary(&mut self, operator: Operator, left: &'a Node, right: &'a Node) -> Evaluated<Value> {
        let symbol = operator.symbol();
        let value = match operator {
            Operator::And => self.condition(left, symbol)? && self.condition(right, symbol)?,
            Operator::Or => self.condition(left, symbol)? || self.condition(right, symbol)?,
            Operator::Equal => equal(&*self.value(left)?, &*self.value(right)?),
            Operator::Unequal => !equal(&*self.value(left)?, &*self.value(right)?),
            Operator::Less => self.order(operator, left, right)?.is_lt(),
            Operator::LessOrEqual => self.order(operator, left, right)?.is_le(),
            Operator::Greater => self.order(operator, left, right)?.is_gt(),
            Operator::GreaterOrEqual => self.order(operator, left, right)?.is_ge(),
            Operator::In => self.contained(left, right)?,
            Operator::Add => return self.sum(left, right),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                let (left, right) = (self.number(left, symbol)?, self.number(right, symbol)?);
                return arithmetic(operator, left, right);
            }
        };
        Ok(Value::Bool(value))
    }

    fn condition(&mut self, node: &'a Node, operator: &'static str) -> Evaluated<bool> {
        let value = self.value(node)?;
        value.as_bool().ok_or_else(|| kind(operator, "a bool", &value))
    }

    fn number(&mut self, node: &'a Node, operator: &'static str) -> Evaluated<Numeric> {
        let value = self.value(node)?;
        numeric(&value).ok_or_else(|| kind(operator, "a number", &value))
    }

    fn order(
        &mut self,
        operator: Operator,
        left: &'a Node,
        right: &'a Node,
    ) -> Evaluated<Ordering> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        let order = match (left.as_ref(), right.as_ref()) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (left, right) => match (numeric(left), numeric(right)) {
                (Some(left), Some(right)) => order_of(left, right),
                _ => None,
            },
        };
        order.ok_or_else(|| kind(operator.symbol(), "two numbers or two texts", &left))
    }

    fn contained(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<bool> {
        let (item, list) = (self.value(left)?, self.value(right)?);
        match list.as_ref() {
            Value::Array(items) => Ok(items.iter().any(|it| equal(it, &item))),
            Value::Object(fields) => Ok(item.as_str().is_some_and(|it| fields.contains_key(it))),
            other => Err(kind("in", "a list", other)),
        }
    }

    fn sum(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<Value> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        match (left.as_ref(), right.as_ref()) {
            (Value::String(left), Value::String(right)) => Ok(format!("{left}{right}").into()),
            (Value::Array(left), Value::Array(right)) => {
                Ok(left.iter().chain(right).cloned().collect())
            }
            (left, right) => match (numeric(left), numeric(right)) {
                (Some(left), Some(right)) => arithmetic(Operator::Add, left, right),
                (Some(_), None) => Err(kind("+", "two numbers", right)),
                (None, _) => Err(kind("+", "numbers, texts or lists", left)),
            },
        }
    }

    fn size(&mut self, of: &'a Node) -> Evaluated<Value> {
        let value = self.value(of)?;
        let size = match value.as_ref() {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            Value::String(text) => text.chars().count(),
            other => return Err(kind("size", "a list or a text", other)),
        };
        Ok(Value::from(size))
    }

    fn text_question(
        &mut self,
        question: TextQuestion,
        of: &'a Node,
        part: &'a Node,
    ) -> Evaluated<Value> {
        let (of, part) = (self.value(of)?, self.value(part)?);
        let text = |it: &'_ Value| match it {
            Value::String(text) => Ok(text.clone()),
            other => Err(kind(question.name(), "texts", other)),
        };
        let (of, part) = (text(&of)?, text(&part)?);
        Ok(Value::Bool(match question {
            TextQuestion::StartsWith => of.starts_with(&part),
            TextQuestion::EndsWith => of.ends_with(&part),
            TextQuestion::Contains => of.contains(&part),
        }))
    }

    fn each(
        &mut self,
        what: Each,
        list: &'a Node,
        variable: &'a str,
        body: &'a Node,
    ) -> Evaluated<Value> {
        let list = self.value(list)?;
        let Value::Array(items) = list.as_ref() else {
            return Err(kind(what.name(), "a list", &list));
        };
        let (mut found, mut made) = (0, Vec::new());
        for item in items {
            self.variables.push((variable, item.clone()));
            let value = self.value(body).map(Cow::into_owned);
            self.variables.pop();
            let value = value?;
            if what == Each::Map {
                made.push(value);
                continue;
            }
            let holds = value.as_bool().ok_or_else(|| kind(what.name(), "a bool", &value))?;
            match what {
                Each::Exists if holds => return Ok(Value::Bool(true)),
                Each::All if !holds => return Ok(Value::Bool(false)),
                Each::ExistsOne => found += usize::from(holds),
                Each::Filter if holds => made.push(item.clone()),
                Each::Exists | Each::All | Each::Filter | Each::Map => (),
            }
        }
        Ok(match what {
            Each::Exists => Value::Bool(false),
            Each::All => Value::Bool(true),
            Each::ExistsOne => Value::Bool(found == 1),
            Each::Filter | Each::Map => Value::Array(made),
        })
    }
}

fn arithmetic(operator: Operator, left: Numeric, right: Numeric) -> Evaluated<Value> {
    let symbol = operator.symbol();
    let by_zero = match right {
        Numeric::Int(it) => it == 0,
        Numeric::Float(it) => it == 0.0,
    };
    if by_zero && matches!(operator, Operator::Divide | Operator::Remainder) {
        return Err(EvaluateError::DivisionByZero);
    }
    if let (Numeric::Int(left), Numeric::Int(right)) = (left, right) {
        let result = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            Operator::Remainder => left.checked_rem(right),
            _ => None,
        };
        return result.map(Value::from).ok_or(EvaluateError::Range(symbol));
    }
    let (left, right) = (left.as_float(), right.as_float());
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
        _ => f64::NAN,
    };
    float(result, symbol)
}

impl Numeric {
    #[expect(clippy::cast_precision_loss, reason = "beside a float, a whole number is one as well")]
    fn as_float(self) -> f64 {
        match self {
            Self::Int(it) => it as f64,
            Self::Float(it) => it,
        }
    }
}

fn numeric(value: &Value) -> Option<Numeric> {
    let Value::Number(number) = value else { return None };
    number.as_i64().map(Numeric::Int).or_else(|| number.as_f64().map(Numeric::Float))
}

fn order_of(left: Numeric, right: Numeric) -> Option<Ordering> {
    match (left, right) {
        (Numeric::Int(left), Numeric::Int(right)) => Some(left.cmp(&right)),
        _ => left.as_float().partial_cmp(&right.as_float()),
    }
}

/// Equality in which `1` and `1.0` are the same number.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| equal(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, a)| right.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => match (numeric(left), numeric(right)) {
            (Some(left), Some(right)) => order_of(left, right) == Some(Ordering::Equal),
            _ => left == right,
        },
    }
}

fn float(number: f64, operator: &'static str) -> Evaluated<Value> {
    Number::from_f64(number).map(Value::Number).ok_or(EvaluateError::Range(operator))
}

fn kind(operator: &'static str, needed: &'static str, got: &Value) -> EvaluateError {
    EvaluateError::Kind { operator, needed, got: got.to_string().chars().take(40).collect() }
}
