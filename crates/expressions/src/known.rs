//! The knowledge that an outcome of a condition gives: the values that are present, and the nodes that have run.

use graphrun_core::state::{Channel, NumberRange, Schema, Type};
use serde_json::Value;

use super::{
    checker::literal,
    functions::Function,
    parser, print, ranges, sizes,
    syntax::{Node, NodeKind, Operator},
};
use crate::flow::{guarantee::Guarantee, success::SuccessFields};

/// A value that a condition proves present: a name, or a part of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentValue {
    /// The name of the field.
    pub name: String,
    /// As the checks of expressions and prompts write it, such as `review.note`.
    pub path: String,
}

/// What a condition proves.
#[derive(Clone, Debug)]
pub struct ByOutcome<T> {
    /// If it is true.
    pub if_true: Vec<T>,
    /// If it is false.
    pub if_false: Vec<T>,
}

impl<T> ByOutcome<T> {
    /// Asks for both outcomes of a condition. An invalid one proves nothing.
    fn of(source: &str, proved: impl Fn(&Node, bool) -> Vec<T>) -> Self {
        match parser::parse(source) {
            Ok(condition) => {
                Self { if_true: proved(&condition, true), if_false: proved(&condition, false) }
            }
            Err(_) => Self::default(),
        }
    }
}

impl<T> Default for ByOutcome<T> {
    fn default() -> Self {
        Self { if_true: Vec::new(), if_false: Vec::new() }
    }
}

/// Returns the values that a condition proves present.
pub fn present_after(source: &str) -> ByOutcome<PresentValue> {
    ByOutcome::of(source, |condition, outcome| {
        let mut present = Vec::new();
        learn(condition, outcome, &mut |proved| {
            if let Proof::Present(node) = proved {
                add_present(node, &mut present);
            }
        });
        present
    })
}

/// A guarantee about fields, or about parts of their values. It holds until one of them changes.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldGuarantee {
    /// The fields that it is about.
    pub fields: Vec<String>,
    /// The guarantee.
    pub guarantee: Guarantee,
}

impl FieldGuarantee {
    /// A guarantee about the parts of fields at some paths.
    fn at<const N: usize>(paths: [&str; N], guarantee: Guarantee) -> Self {
        Self { fields: paths.map(root_of).to_vec(), guarantee }
    }
}

/// Returns the guarantees about fields that a condition proves.
pub fn guarantees_after(
    source: &str,
    schema: &Schema,
    success: &SuccessFields,
) -> ByOutcome<FieldGuarantee> {
    ByOutcome::of(source, |condition, outcome| {
        let mut known = Vec::new();
        let mut present = Vec::new();
        learn(condition, outcome, &mut |proved| match proved {
            Proof::Present(node) => drop(add_present(node, &mut present)),
            Proof::Ordered { left, operator, right } => {
                known.extend(range_of(left, operator, number_range(right, schema), schema));
                known.extend(range_of(
                    right,
                    operator.turned(),
                    number_range(left, schema),
                    schema,
                ));
                known.extend(below_size(left, operator, right, schema));
                known.extend(below_size(right, operator.turned(), left, schema));
            }
            Proof::Sized { list, number, fulfils } => {
                known.extend(size_of(list, number, fulfils, schema));
            }
            Proof::Contained { item, within } => {
                known.extend(item_of(item, within, schema));
                known.extend(range_of(item, Operator::Equal, item_range(within, schema), schema));
            }
            Proof::Decided { condition, holds: true } => {
                let path = condition.path();
                known.extend(path.iter().flat_map(|it| success.shown_by_bool(it)).map(written));
            }
            Proof::Numbered { value, fulfils } => {
                let path = value.path();
                let shown = path.iter().flat_map(|it| success.shown_by_code(it, fulfils));
                known.extend(shown.map(written));
            }
            Proof::Unequal { left, right } => {
                for (of, other) in [(left, right), (right, left)] {
                    known.extend(range_without(of, number_range(other, schema), schema));
                }
            }
            Proof::Decided { .. } | Proof::Compared { .. } | Proof::Visited { .. } => (),
        });
        let is_whole = |value: &PresentValue| {
            let is_optional = |it: &Channel| matches!(it.ty(), Type::Optional(_));
            value.path == value.name && !schema.channel(&value.name).is_some_and(is_optional)
        };
        // A written field is present, unless its type lets a writer leave it absent.
        let present = present.into_iter().filter(|it| !is_whole(it));
        known.extend(present.map(|it| FieldGuarantee::at([&it.name], Guarantee::Present(it.path))));
        known
    })
}

/// Returns the guarantee that a field is written.
fn written(field: &str) -> FieldGuarantee {
    FieldGuarantee::at([field], Guarantee::Present(field.to_owned()))
}

/// Returns the range of a part of a field that compares with a value of a range like this, unless its type says the same.
fn range_of(
    of: &Node,
    operator: Operator,
    with: Option<NumberRange>,
    schema: &Schema,
) -> Option<FieldGuarantee> {
    let path = of.path()?;
    let range = ranges::compared(operator, with?);
    let (range, declared) = match type_of(&path, schema)? {
        Type::Int(declared) => (range.whole(), declared),
        Type::Float(declared) => (range.closed(), declared),
        _ => return None,
    };
    (!range.includes(declared))
        .then(|| FieldGuarantee::at([&path], Guarantee::InRange(path.clone(), range)))
}

/// Returns the range of a part of a field that is a whole number and not a given one, if it narrows its declared range.
fn range_without(of: &Node, other: Option<NumberRange>, schema: &Schema) -> Option<FieldGuarantee> {
    let path = of.path()?;
    let Type::Int(declared) = type_of(&path, schema)? else { return None };
    let range = ranges::without(declared, ranges::single(other?)?);
    (range != declared)
        .then(|| FieldGuarantee::at([&path], Guarantee::InRange(path.clone(), range)))
}

/// Returns the size of a list of a field. Its items are there for certain unless they may be null.
fn size_of(
    list: &Node,
    number: i64,
    fulfils: impl Fn(i64) -> bool,
    schema: &Schema,
) -> Option<FieldGuarantee> {
    let path = list.path()?;
    let has_items =
        matches!(type_of(&path, schema)?, Type::List(item) if !matches!(*item, Type::Optional(_)));
    let guarantee = Guarantee::of_size(path.clone(), 0, number, fulfils).filter(|_| has_items)?;
    Some(FieldGuarantee::at([&path], guarantee))
}

/// Returns the value of a constant key that a map of a field has, or that a list of it has items.
fn item_of(item: &Node, within: &Node, schema: &Schema) -> Option<FieldGuarantee> {
    let path = within.path()?;
    match type_of(&path, schema)? {
        Type::List(_) => size_of(within, 0, |it| it > 0, schema),
        Type::Map(value)
            if !matches!(*value, Type::Optional(_))
                && matches!(item.kind, NodeKind::Literal(_)) =>
        {
            let guarantee = Guarantee::Present(print::item_of(within, item));
            Some(FieldGuarantee::at([&path], guarantee))
        }
        _ => None,
    }
}

/// Returns that a part of a field is below the size of a list of another one.
fn below_size(
    index: &Node,
    operator: Operator,
    with: &Node,
    schema: &Schema,
) -> Option<FieldGuarantee> {
    let (list, above) = sizes::list_above(operator, with)?;
    let list = list.path().filter(|_| above == 0)?;
    let index = index.path()?;
    let is_whole = matches!(type_of(&index, schema)?, Type::Int(_));
    let has_items =
        matches!(type_of(&list, schema)?, Type::List(item) if !matches!(*item, Type::Optional(_)));
    (is_whole && has_items).then(|| {
        let index = index.as_str();
        let list = list.as_str();
        FieldGuarantee::at([index, list], Guarantee::below_size(index, list))
    })
}

fn root_of(path: &str) -> String {
    path.split('.').next().unwrap_or_default().to_owned()
}

/// Returns the range of a number that is a constant, or a part of a field.
fn number_range(of: &Node, schema: &Schema) -> Option<NumberRange> {
    match &of.kind {
        NodeKind::Literal(value) => literal(value).range(),
        NodeKind::Negate(of) => match &of.kind {
            NodeKind::Literal(value) => ranges::negated(literal(value)).range(),
            _ => None,
        },
        _ => type_of(&of.path()?, schema)?.range(),
    }
}

/// Returns the range of the numbers in a list.
fn item_range(list: &Node, schema: &Schema) -> Option<NumberRange> {
    match &list.kind {
        NodeKind::List(items) => {
            let mut ranges = items.iter().map(|it| number_range(it, schema));
            let first = ranges.next()??;
            ranges.try_fold(first, |all, it| Some(all.joined(it?)))
        }
        _ => match type_of(&list.path()?, schema)? {
            Type::List(item) => item.required().range(),
            _ => None,
        },
    }
}

/// Returns the type of a part of a field.
fn type_of(path: &str, schema: &Schema) -> Option<Type> {
    let mut names = path.split('.');
    let field = schema.channel(names.next()?)?.ty().required().clone();
    names.try_fold(field, |ty, name| Some(ty.field(name)?.required().clone()))
}

/// Adds a value and the values that contain it, the outermost first; returns the name of that one, if it has one.
fn add_present(node: &Node, known: &mut Vec<PresentValue>) -> Option<String> {
    let name = match (&node.kind, node.container()) {
        (NodeKind::Name(name), _) => name.clone(),
        (_, Some(container)) => add_present(container, known)?,
        _ => return None,
    };
    // Another item is meant once the value changes that chooses it.
    let is_chosen = |node: &Node| matches!(&node.kind, NodeKind::Index(_, index) if !matches!(index.kind, NodeKind::Literal(_)));
    let mut parts = std::iter::successors(Some(node), |it| it.container());
    if !parts.any(is_chosen) {
        known.push(PresentValue { name: name.clone(), path: node.to_string() });
    }
    Some(name)
}

/// What the outcome of a condition proves.
pub(super) enum Proof<'n> {
    /// This path is present.
    Present(&'n Node),
    /// One number compares with another one like this.
    Ordered { left: &'n Node, operator: Operator, right: &'n Node },
    /// One value is not equal to another one.
    Unequal { left: &'n Node, right: &'n Node },
    /// The value of a path is equal to a text, or is not.
    Compared { path: String, to: &'n str, is_equal: bool },
    /// The size of a list fulfils a comparison with a number.
    Sized { list: &'n Node, number: i64, fulfils: &'n dyn Fn(i64) -> bool },
    /// A list has this item, or a map this key.
    Contained { item: &'n Node, within: &'n Node },
    /// This condition holds, or does not.
    Decided { condition: &'n Node, holds: bool },
    /// A number fulfils a comparison with another one.
    Numbered { value: &'n Node, fulfils: &'n dyn Fn(i64) -> bool },
    /// The number of visits of a node fulfils a comparison.
    Visited { node: &'n str, fulfils: &'n dyn Fn(i64) -> bool },
}

/// Finds what a condition with this outcome proves.
pub(super) fn learn(condition: &Node, outcome: bool, prove: &mut dyn FnMut(Proof<'_>)) {
    if let NodeKind::Binary(operator, left, right) = &condition.kind {
        for (value, number, operator) in
            [(left, right, *operator), (right, left, operator.turned())]
        {
            if let Some((node, number)) = visited_node(value).zip(number_of(number)) {
                let fulfils =
                    |other: i64| operator.orders(other.cmp(&number)).is_none_or(|it| it == outcome);
                prove(Proof::Visited { node, fulfils: &fulfils });
            }
            if let Some(number) = number_of(number) {
                let fulfils =
                    |other: i64| operator.orders(other.cmp(&number)).is_none_or(|it| it == outcome);
                if let Some(list) = sizes::list_of_size(value) {
                    prove(Proof::Sized { list, number, fulfils: &fulfils });
                }
                prove(Proof::Numbered { value, fulfils: &fulfils });
            }
            let is_unequal = (operator == Operator::Unequal) == outcome
                && matches!(operator, Operator::Equal | Operator::Unequal);
            if is_unequal && number.is_empty_list() {
                prove(Proof::Sized { list: value, number: 0, fulfils: &|it| it > 0 });
            }
        }
    }
    match &condition.kind {
        NodeKind::Call(function, arguments) if outcome && function.is_presence() => {
            arguments.iter().map(Proof::Present).for_each(prove);
        }
        NodeKind::Binary(operator @ (Operator::Equal | Operator::Unequal), left, right) => {
            let is_equal = (*operator == Operator::Equal) == outcome;
            for (path, text) in [(left, right), (right, left)] {
                if let (Some(path), NodeKind::Literal(Value::String(to))) =
                    (path.path(), &text.kind)
                {
                    prove(Proof::Compared { path, to, is_equal });
                }
                if let NodeKind::Literal(Value::Bool(to)) = text.kind {
                    learn(path, to == is_equal, prove);
                }
            }
            prove(if is_equal {
                Proof::Ordered { left, operator: Operator::Equal, right }
            } else {
                Proof::Unequal { left, right }
            });
        }
        NodeKind::Binary(Operator::In, item, within) if outcome => {
            prove(Proof::Contained { item, within });
        }
        NodeKind::Not(of) => learn(of, !outcome, prove),
        NodeKind::Name(_) | NodeKind::Field(..) => {
            prove(Proof::Decided { condition, holds: outcome });
        }
        NodeKind::Binary(Operator::And, left, right) if outcome => {
            learn(left, outcome, prove);
            learn(right, outcome, prove);
        }
        NodeKind::Binary(Operator::Or, left, right) if !outcome => {
            learn(left, outcome, prove);
            learn(right, outcome, prove);
        }
        NodeKind::Binary(operator, left, right) => {
            let order = opposite(*operator).map(|it| if outcome { *operator } else { it });
            if let Some(operator) = order {
                prove(Proof::Ordered { left, operator, right });
            }
        }
        _ => (),
    }
}

/// Returns the order that holds when this one does not.
fn opposite(operator: Operator) -> Option<Operator> {
    Some(match operator {
        Operator::Less => Operator::GreaterOrEqual,
        Operator::LessOrEqual => Operator::Greater,
        Operator::Greater => Operator::LessOrEqual,
        Operator::GreaterOrEqual => Operator::Less,
        _ => return None,
    })
}

/// Returns the node whose visits an expression is.
fn visited_node(expression: &Node) -> Option<&str> {
    match &expression.kind {
        NodeKind::Call(Function { name: "visits", .. }, arguments) => {
            match &arguments.first()?.kind {
                NodeKind::NodeName(name) => Some(name),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the whole number that an expression is, if it is a literal.
fn number_of(expression: &Node) -> Option<i64> {
    match &expression.kind {
        NodeKind::Literal(value) => value.as_i64(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{PresentValue, present_after};

    #[test]
    fn a_guard_proves_presence() {
        let paths = |values: Vec<PresentValue>| -> Vec<String> {
            values.iter().map(|it| format!("{}:{}", it.name, it.path)).collect()
        };
        let known = |source| {
            let after = present_after(source);
            format!("{} | {}", paths(after.if_true).join(" "), paths(after.if_false).join(" "))
        };
        assert_eq!(known("has(a) && (has(b.c) && n > 1)"), "a:a b:b b:b.c | ");
        assert_eq!(known("has(a[0].b) && has(int(c))"), "a:a a:a[0] a:a[0].b | ");
        assert_eq!(known("has(a[i].b)"), "a:a | ");
        assert_eq!(known("!has(a) || !has(b)"), " | a:a b:b");
        assert_eq!(known("has(a) || has(b)"), " | ");
        assert_eq!(known("has(a) &&"), " | ");
    }
}
