//! Evaluates an expression in a state. Evaluation always terminates, with a value or an error.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use serde_json::Value;

use super::{
    ExpressionView,
    evaluate_error::{EvaluateError, kind},
    meter::Meter,
    numbers::{Numeric, arithmetic, float, numeric, order_of},
    syntax::{Each, Kind, Node, Operator, TextQuestion},
};

pub(super) fn evaluate(
    root: &Node,
    view: &ExpressionView<'_>,
    item: Option<(&str, &Value)>,
) -> Result<Arc<Value>, EvaluateError> {
    // A field is shared, so it takes no memory.
    let is_output = |name: &str| name == "output" && view.output_dir.is_some();
    if let Kind::Name(name) = &root.kind
        && !is_output(name)
        && item.is_none_or(|(variable, _)| variable != name)
        && let Some(value) = view.state.get_shared(name).filter(|it| !it.is_null())
    {
        return Ok(value);
    }
    evaluate_owned(root, view, item).map(Arc::new)
}

pub(super) fn evaluate_owned(
    root: &Node,
    view: &ExpressionView<'_>,
    item: Option<(&str, &Value)>,
) -> Result<Value, EvaluateError> {
    let item = item.map(|(name, value)| (name, Cow::Borrowed(value)));
    let variables = item.into_iter().collect();
    Evaluation { view: *view, variables, meter: Meter::default() }.owned(root)
}

struct Evaluation<'a> {
    view: ExpressionView<'a>,
    variables: Vec<(&'a str, Cow<'a, Value>)>,
    meter: Meter,
}

/// The items of a list: borrowed from the state, or owned.
enum Items<'a> {
    State(std::slice::Iter<'a, Value>),
    Made(std::vec::IntoIter<Value>),
}

impl<'a> Iterator for Items<'a> {
    type Item = Cow<'a, Value>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::State(items) => items.next().map(Cow::Borrowed),
            Self::Made(items) => items.next().map(Cow::Owned),
        }
    }
}

/// The location of the value at a path that begins with a variable; `None` if it is absent.
enum InVariable<'v, 'a> {
    /// In the state.
    State(Option<&'a Value>),
    /// In a value that this evaluation made.
    Made(Option<&'v Value>),
}

pub(super) type Evaluated<T> = Result<T, EvaluateError>;

impl<'a> Evaluation<'a> {
    fn value(&mut self, node: &'a Node) -> Evaluated<Cow<'a, Value>> {
        self.meter.step()?;
        let value = match &node.kind {
            Kind::Literal(value) => return Ok(Cow::Borrowed(value)),
            Kind::Name(_) | Kind::Field(..) => {
                return match self.look_up(node)? {
                    Some(value) => Ok(value),
                    None => Err(self.absent(node)),
                };
            }
            Kind::List(items) => {
                let values = items.iter().map(|it| self.owned(it));
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
                self.meter.steps(pattern.steps(text))?;
                Value::Bool(pattern.regex.is_match(text))
            }
            Kind::Each { what, list, variable, body } => self.each(*what, list, variable, body)?,
        };
        Ok(Cow::Owned(value))
    }

    /// Returns the value; values of the state are copied.
    fn owned(&mut self, node: &'a Node) -> Evaluated<Value> {
        match self.value(node)? {
            Cow::Borrowed(value) => Ok(self.meter.copy(value)?),
            Cow::Owned(value) => {
                self.meter.make()?;
                Ok(value)
            }
        }
    }

    /// Returns the value at a path; `None` if a part of the path is absent or null.
    fn look_up(&mut self, node: &'a Node) -> Evaluated<Option<Cow<'a, Value>>> {
        self.meter.step()?;
        let found = match in_variable(&self.variables, node) {
            Some(InVariable::State(found)) => found.map(Cow::Borrowed),
            // Copies the value at the path, not the item that contains it.
            Some(InVariable::Made(found)) => {
                found.map(|it| self.meter.copy(it)).transpose()?.map(Cow::Owned)
            }
            None => match &node.kind {
                Kind::Name(name) => self.named(name),
                Kind::Field(of, name) => match self.look_up(of)? {
                    Some(Cow::Borrowed(of)) => of.get(name).map(Cow::Borrowed),
                    Some(Cow::Owned(mut of)) => of.get_mut(name).map(Value::take).map(Cow::Owned),
                    None => None,
                },
                _ => Some(self.value(node)?),
            },
        };
        Ok(found.filter(|it| !it.is_null()))
    }

    /// Returns the error for the first absent part of a path.
    fn absent(&mut self, node: &'a Node) -> EvaluateError {
        match &node.kind {
            Kind::Field(of, _) if matches!(self.look_up(of), Ok(None)) => self.absent(of),
            _ => EvaluateError::Absent(node.path().unwrap_or_else(|| "a field".to_owned())),
        }
    }

    fn named(&self, name: &str) -> Option<Cow<'a, Value>> {
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
            Operator::Equal => self.equal(left, right)?,
            Operator::Unequal => !self.equal(left, right)?,
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

    fn equal(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<bool> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        equal(&left, &right, &mut self.meter)
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
            (Value::String(left), Value::String(right)) => {
                self.meter.look_at(left)?;
                Some(left.cmp(right))
            }
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
            Value::Array(items) => {
                for it in items {
                    if equal(it, &item, &mut self.meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::Object(fields) => Ok(item.as_str().is_some_and(|it| fields.contains_key(it))),
            other => Err(kind("in", "a list", other)),
        }
    }

    fn sum(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<Value> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        match (left.as_ref(), right.as_ref()) {
            (Value::String(left), Value::String(right)) => {
                self.meter.make_text(left.len() + right.len())?;
                Ok([left.as_str(), right].concat().into())
            }
            (Value::Array(left), Value::Array(right)) => {
                for item in left.iter().chain(right) {
                    self.meter.count(item)?;
                }
                Ok([left.as_slice(), right].concat().into())
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
            Value::String(text) => {
                self.meter.look_at(text)?;
                text.chars().count()
            }
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
        let text = |it: &Value| kind(question.name(), "texts", it);
        let of = of.as_str().ok_or_else(|| text(&of))?;
        let part = part.as_str().ok_or_else(|| text(&part))?;
        self.meter.look_at(of)?;
        Ok(Value::Bool(match question {
            TextQuestion::StartsWith => of.starts_with(part),
            TextQuestion::EndsWith => of.ends_with(part),
            TextQuestion::Contains => of.contains(part),
        }))
    }

    fn each(
        &mut self,
        what: Each,
        list: &'a Node,
        variable: &'a str,
        body: &'a Node,
    ) -> Evaluated<Value> {
        let list = match self.value(list)? {
            Cow::Borrowed(Value::Array(items)) => Items::State(items.iter()),
            Cow::Owned(Value::Array(items)) => Items::Made(items.into_iter()),
            other => return Err(kind(what.name(), "a list", &other)),
        };
        let (mut found, mut made) = (0, Vec::new());
        for item in list {
            self.meter.step()?;
            self.variables.push((variable, item));
            let value = if what == Each::Map {
                self.owned(body)
            } else {
                self.value(body).map(Cow::into_owned)
            };
            let item = self.variables.pop();
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
                Each::Filter if holds => match item {
                    Some((_, Cow::Borrowed(item))) => made.push(self.meter.copy(item)?),
                    Some((_, Cow::Owned(item))) => made.push(item),
                    None => (),
                },
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

/// Finds the value at a path that begins with a variable.
fn in_variable<'v, 'a>(
    variables: &'v [(&'a str, Cow<'a, Value>)],
    node: &Node,
) -> Option<InVariable<'v, 'a>> {
    match &node.kind {
        Kind::Name(name) => {
            let (_, value) = variables.iter().rev().find(|(it, _)| it == name)?;
            Some(match value {
                Cow::Borrowed(value) => InVariable::State(Some(*value)),
                Cow::Owned(value) => InVariable::Made(Some(value)),
            })
        }
        Kind::Field(of, name) => Some(match in_variable(variables, of)? {
            InVariable::State(of) => InVariable::State(of.and_then(|it| it.get(name))),
            InVariable::Made(of) => InVariable::Made(of.and_then(|it| it.get(name))),
        }),
        _ => None,
    }
}

/// Compares for equality; `1` and `1.0` are equal.
fn equal(left: &Value, right: &Value, meter: &mut Meter) -> Evaluated<bool> {
    meter.step()?;
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            all(left.iter().zip(right), |(a, b)| equal(a, b, meter))
        }
        (Value::Object(left), Value::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            all(left, |(key, a)| right.get(key).map_or(Ok(false), |b| equal(a, b, meter)))
        }
        (Value::String(left), Value::String(right)) => {
            meter.look_at(left)?;
            Ok(left == right)
        }
        _ => Ok(match (numeric(left), numeric(right)) {
            (Some(left), Some(right)) => order_of(left, right) == Some(Ordering::Equal),
            _ => left == right,
        }),
    }
}

/// Whether a condition holds for all items; stops at the first item for which it does not.
fn all<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Evaluated<bool>,
) -> Evaluated<bool> {
    for item in items {
        if !holds(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}
