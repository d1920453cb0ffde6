//! Evaluates an expression in a state. Evaluation always terminates, with a value or an error.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use serde_json::Value;

use super::{
    ExpressionView,
    evaluate_error::{EvaluateError, kind},
    functions::{Function, FunctionValue},
    meter::Meter,
    numbers::{Numeric, arithmetic, float, numeric, order_of},
    syntax::{Kind, Node, Operator, Pattern},
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

pub(super) struct Evaluation<'a> {
    view: ExpressionView<'a>,
    variables: Vec<(&'a str, Cow<'a, Value>)>,
    meter: Meter,
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
            Kind::Call(function, arguments) => self.call(function, arguments)?,
            // Only their calls read them.
            Kind::NodeName(_) | Kind::Pattern(_) | Kind::Variable(_) => Value::Null,
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

    fn call(&mut self, function: &'static Function, arguments: &'a [Node]) -> Evaluated<Value> {
        match &function.value {
            FunctionValue::Presence => Ok(Value::Bool(self.look_up(&arguments[0])?.is_some())),
            FunctionValue::OfValues(evaluate) => {
                let values = arguments.iter().map(|it| self.value(it));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                for text in values.iter().filter_map(|it| it.as_str()) {
                    self.meter.look_at(text)?;
                }
                let arguments = Arguments { function, nodes: arguments, values, view: &self.view };
                let value = evaluate(&arguments, &mut self.meter)?;
                self.meter.count(&value)?;
                Ok(value)
            }
            FunctionValue::OfItems(evaluate) => {
                let [list, Node { kind: Kind::Variable(variable), .. }, body] = arguments else {
                    unreachable!("the parameters are a list, a variable and a body")
                };
                let list: Box<dyn Iterator<Item = _>> = match self.value(list)? {
                    Cow::Borrowed(Value::Array(items)) => Box::new(items.iter().map(Cow::Borrowed)),
                    Cow::Owned(Value::Array(items)) => Box::new(items.into_iter().map(Cow::Owned)),
                    other => return Err(kind(function.name, "a list", &other)),
                };
                let function = function.name;
                evaluate(Items { function, evaluation: self, list, variable, body })
            }
        }
    }
}

/// The arguments of a function, evaluated.
pub(super) struct Arguments<'v, 'a> {
    function: &'static Function,
    nodes: &'a [Node],
    values: Vec<Cow<'a, Value>>,
    view: &'v ExpressionView<'a>,
}

impl Arguments<'_, '_> {
    pub(super) fn value(&self, at: usize) -> &Value {
        &self.values[at]
    }

    pub(super) fn text(&self, at: usize) -> Evaluated<&str> {
        let value = self.value(at);
        let noun = self.function.parameters[at].takes.noun();
        value.as_str().ok_or_else(|| kind(self.function.name, noun, value))
    }

    pub(super) fn pattern(&self, at: usize) -> &Pattern {
        let Kind::Pattern(pattern) = &self.nodes[at].kind else {
            unreachable!("the parser compiles the argument for a pattern")
        };
        pattern
    }

    /// Returns how often the named node has run.
    pub(super) fn visits(&self, at: usize) -> u32 {
        let Kind::NodeName(name) = &self.nodes[at].kind else {
            unreachable!("the parser takes the argument for the name of a node")
        };
        self.view.visits.get(name.as_str()).unwrap_or(0)
    }
}

/// The items of a list, each with the value of an expression of it.
pub(super) struct Items<'e, 'a> {
    function: &'static str,
    evaluation: &'e mut Evaluation<'a>,
    list: Box<dyn Iterator<Item = Cow<'a, Value>> + 'a>,
    variable: &'a str,
    body: &'a Node,
}

impl<'a> Items<'_, 'a> {
    /// Returns the next item, and whether the condition holds for it.
    pub(super) fn next_condition(&mut self) -> Evaluated<Option<(Cow<'a, Value>, bool)>> {
        let value =
            |evaluation: &mut Evaluation<'a>, body| evaluation.value(body).map(Cow::into_owned);
        let Some((item, value)) = self.next_of(value)? else { return Ok(None) };
        let holds = value.as_bool().ok_or_else(|| kind(self.function, "a bool", &value))?;
        Ok(Some((item, holds)))
    }

    /// Returns the next item and the value of the expression.
    pub(super) fn next_value(&mut self) -> Evaluated<Option<(Cow<'a, Value>, Value)>> {
        self.next_of(Evaluation::owned)
    }

    fn next_of(
        &mut self,
        evaluate: impl FnOnce(&mut Evaluation<'a>, &'a Node) -> Evaluated<Value>,
    ) -> Evaluated<Option<(Cow<'a, Value>, Value)>> {
        let Some(item) = self.list.next() else { return Ok(None) };
        self.evaluation.meter.step()?;
        self.evaluation.variables.push((self.variable, item));
        let value = evaluate(self.evaluation, self.body);
        let item = self.evaluation.variables.pop();
        Ok(item.map(|(_, item)| item).zip(Some(value?)))
    }

    /// Returns an item for a new list.
    pub(super) fn copy(&mut self, item: Cow<'a, Value>) -> Evaluated<Value> {
        match item {
            Cow::Borrowed(item) => Ok(self.evaluation.meter.copy(item)?),
            Cow::Owned(item) => Ok(item),
        }
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
