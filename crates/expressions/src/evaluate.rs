//! Evaluates an expression in a state. Evaluation always terminates, with a value or an error.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::state::{Absence, Type};
use serde_json::{Map, Value};

use super::{
    ExpressionView,
    evaluate_error::{EvaluateError, kind},
    facts::{Fact, FactsView},
    functions::{Function, FunctionValue},
    meter::ExpressionMeter,
    numbers::{Numeric, arithmetic, arithmetic_of_floats, float, numeric, order_of, whole},
    satisfiability::Types,
    syntax::{Node, NodeKind, Operator, Pattern, RecordField},
    values,
};
use crate::item::INDEX;

/// A value with the name of its variable, if there is one.
type Named<'a> = Option<(&'a str, &'a Value)>;

/// The places of the parts whose value JSON writes in several forms: a whole number as `7.0`, a float as `7`, and a record with
/// null for an absent field.
#[derive(Debug, Default)]
pub(super) struct TypedPlaces {
    whole: BTreeSet<(usize, usize)>,
    float: BTreeSet<(usize, usize)>,
    record: BTreeSet<(usize, usize)>,
    /// The fields that are null without a value, instead of omitted.
    nulls: BTreeMap<(usize, usize), Vec<String>>,
}

impl TypedPlaces {
    pub(super) fn of(types: &Types) -> Self {
        let places = |is_meant: fn(&Type) -> bool| {
            let meant = types.iter().filter(|it| is_meant(it.1.required()));
            meant.map(|it| *it.0).collect()
        };
        Self {
            whole: places(|it| matches!(it, Type::Int(_))),
            float: places(|it| matches!(it, Type::Float(_))),
            record: places(|it| matches!(it, Type::Record(_))),
            nulls: types.iter().filter_map(|(place, ty)| Some((*place, nulls(ty)?))).collect(),
        }
    }

    /// Returns the function that computes with some numbers.
    fn arithmetic(&self, numbers: &[&Node]) -> fn(Operator, Numeric, Numeric) -> Evaluated<Value> {
        let is_float = numbers.iter().any(|it| self.float.contains(&it.key()));
        if is_float { arithmetic_of_floats } else { arithmetic }
    }

    /// Returns whether a value has a key. A record has none for an absent field.
    fn has_key(&self, of: &Node, key: &Value) -> bool {
        !(key.is_null() && self.record.contains(&of.key()))
    }
}

/// Returns the fields of a record that are null without a value, if there are any.
fn nulls(ty: &Type) -> Option<Vec<String>> {
    let Type::Record(record) = ty.required() else { return None };
    let nulls = record.fields.iter().filter(|it| it.absence == Absence::Null);
    let names: Vec<String> = nulls.map(|it| it.name.clone()).collect();
    (!names.is_empty()).then_some(names)
}

/// What an expression reads besides the view, and how it is evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings<'a> {
    pub(super) item: Named<'a>,
    pub(super) variable: Named<'a>,
    pub(super) places: &'a TypedPlaces,
    pub(super) absent: Absent,
}

pub(super) fn evaluate(
    root: &Node,
    view: &ExpressionView<'_>,
    settings: Settings<'_>,
) -> Result<Arc<Value>, EvaluateError> {
    // A field is shared, so it takes no memory.
    let is_output = |name: &str| name == "output" && view.output_dir.is_some();
    if let NodeKind::Name(name) = &root.kind
        && !is_output(name)
        && settings.item.is_none_or(|(variable, _)| variable != name)
        && let Some(value) = view.state.get_shared(name).filter(|it| !it.is_null() && !it.is_f64())
    {
        return Ok(value);
    }
    evaluate_owned(root, view, settings).map(Arc::new)
}

pub(super) fn evaluate_owned(
    root: &Node,
    view: &ExpressionView<'_>,
    Settings { item, variable, places, absent }: Settings<'_>,
) -> Result<Value, EvaluateError> {
    // The item hides its position, and a field of the state with this name does, too.
    let index = view.facts.item_index.filter(|_| view.state.schema().channel(INDEX).is_none());
    let index = index.map(|it| (INDEX, Cow::Owned(Value::from(it)))).filter(|_| item.is_some());
    let item = item.map(|(name, value)| (name, Cow::Borrowed(value)));
    let variable = variable.map(|(name, value)| (name, Cow::Borrowed(value)));
    let variables = index.into_iter().chain(item).chain(variable).collect();
    let mut evaluation =
        Evaluation { view: *view, variables, places, meter: ExpressionMeter::default() };
    match absent {
        Absent::IsNull => Ok(evaluation.owned_if_present(root)?.unwrap_or_default()),
        Absent::IsError => evaluation.owned(root),
    }
}

/// What an expression without a value gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    IsNull,
    IsError,
}

pub(super) struct Evaluation<'a> {
    view: ExpressionView<'a>,
    variables: Vec<(&'a str, Cow<'a, Value>)>,
    places: &'a TypedPlaces,
    meter: ExpressionMeter,
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
        match self.if_present(node)? {
            Some(value) => Ok(value),
            None => Err(self.absent(node)),
        }
    }

    /// Returns the value; `None` if it is absent or null. A whole number that JSON writes as `7.0` becomes `7`.
    fn if_present(&mut self, node: &'a Node) -> Evaluated<Option<Cow<'a, Value>>> {
        let found = self.if_present_as_written(node)?;
        let is_float = found.as_deref().is_some_and(Value::is_f64);
        if is_float && self.places.whole.contains(&node.key()) {
            return Ok(found.map(|it| values::int(&it).map_or(it, Cow::Owned)));
        }
        Ok(found)
    }

    fn if_present_as_written(&mut self, node: &'a Node) -> Evaluated<Option<Cow<'a, Value>>> {
        self.meter.step()?;
        let value = match &node.kind {
            NodeKind::Literal(Value::Null) => return Ok(None),
            NodeKind::Literal(value) => return Ok(Some(Cow::Borrowed(value))),
            NodeKind::Name(_) | NodeKind::Field(..) | NodeKind::Index(..) => {
                return self.look_up(node);
            }
            NodeKind::Record(_, fields) => {
                self.meter.make_record()?;
                let mut made = Map::new();
                for RecordField { name, value, .. } in fields {
                    if let Some(value) = self.owned_if_present(value)? {
                        self.meter.make_field(name)?;
                        made.insert(name.clone(), value);
                    }
                }
                for name in self.places.nulls.get(&node.key()).into_iter().flatten() {
                    made.entry(name.clone()).or_insert(Value::Null);
                }
                Value::Object(made)
            }
            NodeKind::List(items) => {
                let values = items.iter().map(|it| self.owned(it));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            NodeKind::Not(of) => Value::Bool(!self.condition(of, "!")?),
            NodeKind::Negate(of) => match self.number(of, "-")? {
                Numeric::Int(it) => match whole(it.checked_neg(), "-") {
                    Err(_) if self.places.float.contains(&of.key()) => {
                        float(-Numeric::Int(it).as_float(), "-")?
                    }
                    negated => negated?,
                },
                Numeric::Float(it) => float(-it, "-")?,
            },
            NodeKind::Binary(operator, left, right) => self.binary(*operator, left, right)?,
            NodeKind::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let chosen = if self.condition(condition, "?")? { then } else { otherwise };
                return self.if_present(chosen);
            }
            NodeKind::Call(function, arguments) => self.call(node, function, arguments)?,
            // Only their calls read them.
            NodeKind::NodeName(_) | NodeKind::Pattern(_) | NodeKind::Variable(_) => {
                return Ok(None);
            }
        };
        Ok((!value.is_null()).then_some(Cow::Owned(value)))
    }

    /// Returns the value; values of the state are copied.
    fn owned(&mut self, node: &'a Node) -> Evaluated<Value> {
        match self.owned_if_present(node)? {
            Some(value) => Ok(value),
            None => Err(self.absent(node)),
        }
    }

    fn owned_if_present(&mut self, node: &'a Node) -> Evaluated<Option<Value>> {
        Ok(match self.if_present(node)? {
            Some(Cow::Borrowed(value)) => Some(self.meter.copy(value)?),
            Some(Cow::Owned(value)) => {
                self.meter.make()?;
                Some(value)
            }
            None => None,
        })
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
                NodeKind::Name(name) => self.named(name),
                NodeKind::Field(of, name) => match self.look_up(of)? {
                    Some(Cow::Borrowed(of)) => of.get(name).map(Cow::Borrowed),
                    Some(Cow::Owned(mut of)) => of.get_mut(name).map(Value::take).map(Cow::Owned),
                    None => None,
                },
                NodeKind::Index(of, index) => {
                    let index = self.value(index)?.into_owned();
                    match self.look_up(of)? {
                        Some(Cow::Borrowed(of)) => item(of, &index)?.map(Cow::Borrowed),
                        Some(Cow::Owned(of)) => item(&of, &index)?.cloned().map(Cow::Owned),
                        None => None,
                    }
                }
                _ => self.if_present(node)?,
            },
        };
        Ok(found.filter(|it| !it.is_null()))
    }

    /// Returns the error for the first absent part of a path.
    fn absent(&mut self, node: &'a Node) -> EvaluateError {
        match &node.kind {
            NodeKind::Field(of, _) | NodeKind::Index(of, _)
                if matches!(self.look_up(of), Ok(None)) =>
            {
                self.absent(of)
            }
            _ => EvaluateError::Absent(node.to_string()),
        }
    }

    fn named(&self, name: &str) -> Option<Cow<'a, Value>> {
        if let (Some(dir), "output") = (self.view.output_dir, name) {
            return Some(Cow::Owned(serde_json::json!({ "dir": dir })));
        }
        let ExpressionView { state, facts, trigger, .. } = self.view;
        match Fact::find(name).filter(|_| state.schema().channel(name).is_none()) {
            Some(fact) => Some(Cow::Owned(fact.value(&FactsView { facts, trigger }))),
            None => state.get(name).map(Cow::Borrowed),
        }
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
                let compute = self.places.arithmetic(&[left, right]);
                return compute(operator, self.number(left, symbol)?, self.number(right, symbol)?);
            }
        };
        Ok(Value::Bool(value))
    }

    fn equal(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<bool> {
        let left = self.value(left)?;
        let right = self.value(right)?;
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
        let left = self.value(left)?;
        let right = self.value(right)?;
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

    fn contained(&mut self, left: &'a Node, within: &'a Node) -> Evaluated<bool> {
        let item = self.value(left)?;
        let list = self.value(within)?;
        match list.as_ref() {
            Value::Array(items) => {
                for it in items {
                    if equal(it, &item, &mut self.meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::Object(fields) => {
                let found = item.as_str().and_then(|it| fields.get(it));
                Ok(found.is_some_and(|it| self.places.has_key(within, it)))
            }
            other => Err(kind("in", "a list", other)),
        }
    }

    fn sum(&mut self, left: &'a Node, right: &'a Node) -> Evaluated<Value> {
        let add = self.places.arithmetic(&[left, right]);
        let left = self.value(left)?;
        let right = self.value(right)?;
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
                (Some(left), Some(right)) => add(Operator::Add, left, right),
                (Some(_), None) => Err(kind("+", "two numbers", right)),
                (None, _) => Err(kind("+", "numbers, texts or lists", left)),
            },
        }
    }

    fn call(
        &mut self,
        call: &'a Node,
        function: &'static Function,
        arguments: &'a [Node],
    ) -> Evaluated<Value> {
        match &function.value {
            FunctionValue::Presence => Ok(Value::Bool(self.look_up(&arguments[0])?.is_some())),
            FunctionValue::Default => match self.look_up(&arguments[0])? {
                Some(Cow::Borrowed(value)) => Ok(self.meter.copy(value)?),
                Some(Cow::Owned(value)) => Ok(value),
                None => self.owned(&arguments[1]),
            },
            FunctionValue::OfValues(evaluate) => {
                let values = arguments.iter().map(|node| match node.kind {
                    NodeKind::NodeName(_) | NodeKind::Pattern(_) => Ok(Cow::Owned(Value::Null)),
                    _ => self.value(node),
                });
                let values = values.collect::<Result<Vec<_>, _>>()?;
                for text in values.iter().filter_map(|it| it.as_str()) {
                    self.meter.look_at(text)?;
                }
                let view = &self.view;
                let places = self.places;
                let arguments =
                    Arguments { function, call, nodes: arguments, values, view, places };
                evaluate(&arguments, &mut self.meter)
            }
            FunctionValue::OfItems(evaluate) => {
                let [list, Node { kind: NodeKind::Variable(variable), .. }, bodies @ ..] =
                    arguments
                else {
                    unreachable!("the parameters are a list, a variable and expressions")
                };
                let list: Box<dyn Iterator<Item = Cow<'a, Value>>> = match self.value(list)? {
                    Cow::Borrowed(Value::Array(items)) => Box::new(items.iter().map(Cow::Borrowed)),
                    Cow::Owned(Value::Array(items)) => Box::new(items.into_iter().map(Cow::Owned)),
                    other => return Err(kind(function.name, "a list", &other)),
                };
                let function = function.name;
                evaluate(Items { function, evaluation: self, list, variable, bodies })
            }
        }
    }
}

/// The arguments of a function, evaluated.
pub(super) struct Arguments<'v, 'a> {
    function: &'static Function,
    call: &'a Node,
    nodes: &'a [Node],
    values: Vec<Cow<'a, Value>>,
    view: &'v ExpressionView<'a>,
    places: &'a TypedPlaces,
}

impl Arguments<'_, '_> {
    pub(super) fn value(&self, at: usize) -> &Value {
        &self.values[at]
    }

    pub(super) fn text(&self, at: usize) -> Evaluated<&str> {
        self.value(at).as_str().ok_or_else(|| self.unfit(at))
    }

    pub(super) fn list(&self, at: usize) -> Evaluated<&[Value]> {
        let value = self.value(at);
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.unfit(at))
    }

    pub(super) fn fields(&self, at: usize) -> Evaluated<&Map<String, Value>> {
        self.value(at).as_object().ok_or_else(|| self.unfit(at))
    }

    /// Returns the keys of a map, or the names of the fields that a record has.
    pub(super) fn keys(&self, at: usize) -> Evaluated<impl Iterator<Item = &String>> {
        let fields = self.fields(at)?.iter();
        let of = &self.nodes[at];
        Ok(fields.filter(|it| self.places.has_key(of, it.1)).map(|it| it.0))
    }

    /// Returns the function that computes the numbers of the result.
    pub(super) fn arithmetic(&self) -> fn(Operator, Numeric, Numeric) -> Evaluated<Value> {
        self.places.arithmetic(&[self.call])
    }

    /// Returns a whole number, or the largest one if it is larger. A field of whole numbers may hold `1.0`.
    pub(super) fn whole(&self, at: usize) -> Evaluated<i64> {
        #[expect(clippy::cast_possible_truncation, reason = "the cast ends at the largest number")]
        match numeric(self.value(at)) {
            Some(Numeric::Int(it)) => Ok(i64::try_from(it).unwrap_or(i64::MAX)),
            Some(Numeric::Float(it)) => Ok(it as i64),
            None => Err(self.unfit(at)),
        }
    }

    /// Returns that one of the first two numbers which compares with the other one like this; the first if they are equal.
    pub(super) fn nearest(&self, order: Ordering) -> Evaluated<Value> {
        let number = |at: usize| numeric(self.value(at)).ok_or_else(|| self.unfit(at));
        let is_second = order_of(number(1)?, number(0)?) == Some(order);
        Ok(self.value(usize::from(is_second)).clone())
    }

    fn unfit(&self, at: usize) -> EvaluateError {
        let noun = self.function.parameters[at].takes.noun();
        kind(self.function.name, noun, self.value(at))
    }

    pub(super) fn pattern(&self, at: usize) -> &Pattern {
        let NodeKind::Pattern(pattern) = &self.nodes[at].kind else {
            unreachable!("the parser compiles the argument for a pattern")
        };
        pattern
    }

    /// Returns how often the named node has run.
    pub(super) fn visits(&self, at: usize) -> u32 {
        self.view.visits.get(self.node_name(at)).unwrap_or(0)
    }

    pub(super) fn node_name(&self, at: usize) -> &str {
        let NodeKind::NodeName(name) = &self.nodes[at].kind else {
            unreachable!("the parser takes the argument for the name of a node")
        };
        name
    }

    pub(super) fn facts(&self) -> FactsView<'_> {
        let ExpressionView { facts, trigger, .. } = *self.view;
        FactsView { facts, trigger }
    }
}

/// The items of a list, each with the values of expressions of it.
pub(super) struct Items<'e, 'a> {
    function: &'static str,
    evaluation: &'e mut Evaluation<'a>,
    list: Box<dyn Iterator<Item = Cow<'a, Value>> + 'a>,
    variable: &'a str,
    bodies: &'a [Node],
}

impl<'a> Items<'_, 'a> {
    /// Returns the next item, and whether the condition holds for it.
    pub(super) fn next_condition(&mut self) -> Evaluated<Option<(Cow<'a, Value>, bool)>> {
        let body = &self.bodies[0];
        let found = self.next_of(|it| it.value(body).map(Cow::into_owned))?;
        let Some((item, value)) = found else { return Ok(None) };
        let holds = value.as_bool().ok_or_else(|| kind(self.function, "a bool", &value))?;
        Ok(Some((item, holds)))
    }

    /// Returns the next item and the value of the expression.
    pub(super) fn next_value(&mut self) -> Evaluated<Option<(Cow<'a, Value>, Value)>> {
        let body = &self.bodies[0];
        self.next_of(|it| it.owned(body))
    }

    /// Returns the text and the value of the next item.
    pub(super) fn next_pair(&mut self) -> Evaluated<Option<(String, Value)>> {
        let [key, body] = self.bodies else { unreachable!("the function has two expressions") };
        let function = self.function;
        let found = self.next_of(|evaluation| {
            let key = match evaluation.value(key)?.as_ref() {
                Value::String(key) => key.clone(),
                other => return Err(kind(function, "a text", other)),
            };
            evaluation.meter.make_field(&key)?;
            Ok((key, evaluation.owned(body)?))
        })?;
        Ok(found.map(|(_, pair)| pair))
    }

    fn next_of<T>(
        &mut self,
        evaluate: impl FnOnce(&mut Evaluation<'a>) -> Evaluated<T>,
    ) -> Evaluated<Option<(Cow<'a, Value>, T)>> {
        let Some(item) = self.list.next() else { return Ok(None) };
        self.evaluation.meter.step()?;
        self.evaluation.variables.push((self.variable, item));
        let value = evaluate(self.evaluation);
        let item = self.evaluation.variables.pop();
        Ok(item.map(|(_, item)| item).zip(Some(value?)))
    }

    /// Returns the items in the order of the numbers or texts that they have been given.
    pub(super) fn sorted(self, keyed: Vec<(Value, Value)>) -> Evaluated<Value> {
        values::sort_by_key(self.function, keyed, &mut self.evaluation.meter)
    }

    /// Returns the item with the smallest or the largest number or text, the first of equal ones; null if there is none.
    pub(super) fn extreme(mut self, order: Ordering) -> Evaluated<Value> {
        let mut found: Option<(Value, Cow<'a, Value>)> = None;
        while let Some((item, key)) = self.next_value()? {
            let meter = &mut self.evaluation.meter;
            if values::compare_keys(self.function, &key, found.as_ref().map(|it| &it.0), meter)?
                .is_none_or(|it| it == order)
            {
                found = Some((key, item));
            }
        }
        found.map_or(Ok(Value::Null), |(_, item)| self.copy(item))
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
        NodeKind::Name(name) => {
            let (_, value) = variables.iter().rev().find(|(it, _)| it == name)?;
            Some(match value {
                Cow::Borrowed(value) => InVariable::State(Some(*value)),
                Cow::Owned(value) => InVariable::Made(Some(value)),
            })
        }
        NodeKind::Field(of, name) => Some(match in_variable(variables, of)? {
            InVariable::State(of) => InVariable::State(of.and_then(|it| it.get(name))),
            InVariable::Made(of) => InVariable::Made(of.and_then(|it| it.get(name))),
        }),
        _ => None,
    }
}

/// Returns an item of a list or a map; `None` if there is none.
fn item<'v>(of: &'v Value, index: &Value) -> Evaluated<Option<&'v Value>> {
    match (of, index) {
        (Value::Array(items), Value::Number(_)) => {
            // No list has an item beyond the largest whole number.
            let number = values::int(index).ok().and_then(|it| usize::try_from(it.as_u64()?).ok());
            Ok(number.and_then(|it| items.get(it)))
        }
        (Value::Object(fields), Value::String(name)) => Ok(fields.get(name)),
        (Value::Array(_), other) => Err(kind("[]", "a whole number", other)),
        (Value::Object(_), other) => Err(kind("[]", "a text", other)),
        (other, _) => Err(kind("[]", "a list or a map", other)),
    }
}

/// Compares for equality; `1` and `1.0` are equal, and so are records with null and without a value for a field.
fn equal(left: &Value, right: &Value, meter: &mut ExpressionMeter) -> Evaluated<bool> {
    meter.step()?;
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            all(left.iter().zip(right), |(a, b)| equal(a, b, meter))
        }
        (Value::Object(left), Value::Object(right)) => {
            let given = |of: &Map<String, Value>| of.values().filter(|it| !it.is_null()).count();
            if given(left) != given(right) {
                return Ok(false);
            }
            let left = left.iter().filter(|it| !it.1.is_null());
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

/// Returns whether a condition holds for all items; stops at the first item for which it does not.
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
