//! The types of operators.

use std::{ops::Range, sync::Arc};

use graphrun_core::state::{Field, Record, Type};
use serde_json::Value;

use super::{
    checker::ExpressionChecker,
    ranges,
    syntax::{Node, NodeKind, Operator},
    typing::{comparable, describe, is_null, values_of},
};
use crate::problem::{Problem, suggestion};

impl ExpressionChecker<'_> {
    pub(super) fn binary(
        &mut self,
        operator: Operator,
        left: &Node,
        right: &Node,
        range: &Range<usize>,
    ) -> Type {
        match operator {
            Operator::And | Operator::Or => {
                self.condition(left);
                let before = self.known.count();
                self.learn(left, operator == Operator::And);
                self.learn_ranges(left, operator == Operator::And);
                self.condition(right);
                self.known.truncate(before);
                Type::Bool
            }
            Operator::Equal | Operator::Unequal => {
                self.compared(operator, left, right, range);
                Type::Bool
            }
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => {
                let ty = self.compared(operator, left, right, range);
                let ordered = ty.is_number() || matches!(ty, Type::Any | Type::String | Type::Date);
                if !ordered {
                    let message = format!("{} has no order", describe(&ty));
                    self.problem("GR022", range, message, "cannot be compared with `<` or `>`");
                }
                Type::Bool
            }
            Operator::In => {
                self.contained(left, right);
                Type::Bool
            }
            Operator::Add => self.sum(left, right, range, None),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                let types = (self.number(left), self.number(right));
                self.keep_fractions([(left, &types.0), (right, &types.1)]);
                ranges::arithmetic(operator, &types.0, &types.1)
            }
        }
    }

    /// Reports a division of whole numbers where its value meets a float: it has dropped the fraction that the float may have.
    pub(super) fn keep_fractions(&mut self, parts: [(&Node, &Type); 2]) {
        if parts.iter().any(|it| matches!(within_lists(it.1), Type::Float(_))) {
            for (node, ty) in parts {
                self.keep_fraction(node, ty);
            }
        }
    }

    /// Reports the divisions of whole numbers that make a value which stands for a float, or an item of a list of floats.
    pub(super) fn keep_fraction(&mut self, node: &Node, ty: &Type) {
        if let (NodeKind::List(items), Type::List(item)) = (&node.kind, ty.required()) {
            return items.iter().for_each(|it| self.keep_fraction(it, item));
        }
        if !matches!(ty.required(), Type::Int(_)) {
            return;
        }
        match &node.kind {
            NodeKind::Binary(Operator::Divide, left, _) => {
                let is_known = |it: &Problem| it.code == "GR022" && it.range == node.range;
                if self.problems.iter().any(is_known) {
                    return;
                }
                let message = format!("`{node}` drops the fraction: both are whole numbers");
                let quotient = node.to_string();
                let kept = quotient.replacen(&left.to_string(), &format!("float({left})"), 1);
                self.problem("GR022", &node.range, message, "a whole number, used as a float")
                    .help = Some(format!("write `{kept}`; `int({node})` drops it on purpose"));
            }
            NodeKind::Binary(
                Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Remainder,
                left,
                right,
            ) => [left, right].into_iter().for_each(|it| self.keep_fraction(it, ty)),
            NodeKind::Negate(of) => self.keep_fraction(of, ty),
            NodeKind::If(parts) => {
                parts[1..].iter().for_each(|it| self.keep_fraction(it, ty));
            }
            _ => (),
        }
    }

    /// Checks both sides of a comparison and returns the compared type.
    fn compared(
        &mut self,
        operator: Operator,
        left: &Node,
        right: &Node,
        range: &Range<usize>,
    ) -> Type {
        let problems = self.problems.len();
        let mut left_type = self.value(left);
        let mut right_type = self.value(right);
        self.keep_fractions([(left, &left_type), (right, &right_type)]);
        // A literal is a value of the type of the other side; of two literals, neither declares values.
        if [left, right].iter().all(|it| matches!(it.kind, NodeKind::Literal(_))) {
            for ty in [&mut left_type, &mut right_type] {
                if values_of(ty).is_some() {
                    *ty = Type::String;
                }
            }
        }
        for (ty, node) in [(&left_type, right), (&right_type, left)] {
            let NodeKind::Name(name) = &node.kind else { continue };
            if !values_of(ty).is_some_and(|it| it.contains(name)) {
                continue;
            }
            let is_unknown = |it: &&mut Problem| it.code == "GR021" && it.range == node.range;
            if let Some(problem) = self.problems[problems..].iter_mut().find(is_unknown) {
                problem.help = Some(format!("it is a value of `{ty}`: write `\"{name}\"`"));
            }
        }
        for (ty, node, other) in [(&left_type, right, &right_type), (&right_type, left, &left_type)]
        {
            if matches!(node.kind, NodeKind::Literal(_)) && !self.is_value_of(ty, node, other) {
                return Type::Any;
            }
        }
        if !comparable(&left_type, &right_type) {
            let left_shown = describe(&left_type);
            let right_shown = describe(&right_type);
            let message = format!("{left_shown} and {right_shown} are never compared");
            let help = unquoted(&left_type, right).or_else(|| unquoted(&right_type, left));
            let help = help.or_else(|| spelled(&left_type, &right_type).map(str::to_owned));
            self.problem(
                "GR022",
                range,
                message,
                format!("`{}` of two types", operator.symbol()),
            )
            .help = help;
            return Type::Any;
        }
        // The type of a literal text has only this one value; the other side is more general.
        if matches!(left.kind, NodeKind::Literal(_)) { right_type } else { left_type }
    }

    /// Returns whether a literal can be a value of a type; reported if not.
    fn is_value_of(&mut self, ty: &Type, literal: &Node, literal_type: &Type) -> bool {
        let (Some(values), Some(texts)) = (values_of(ty), values_of(literal_type)) else {
            return true;
        };
        let Some(text) = texts.iter().find(|it| !values.contains(it)) else { return true };
        let help = suggestion(text, values.iter().map(String::as_str));
        let message = format!("\"{text}\" is never a value of `{ty}`");
        self.problem("GR023", &literal.range, message, "never true").help = help;
        false
    }

    fn contained(&mut self, left: &Node, right: &Node) {
        let item = self.value(left);
        let list = self.value(right);
        self.keep_fractions([(left, &item), (right, &list)]);
        let of = match list.required() {
            Type::List(of) => Type::clone(of),
            Type::Record(record) => {
                self.check_key(left, record);
                Type::String
            }
            Type::Map(_) => Type::String,
            Type::Any => Type::Any,
            other => {
                let message =
                    format!("`in` needs a list, a record or a map, not {}", describe(other));
                self.problem("GR022", &right.range, message, "no list");
                return;
            }
        };
        if let (NodeKind::List(items), Some(_)) = (&right.kind, values_of(&item)) {
            for literal in items.iter().filter(|it| matches!(it.kind, NodeKind::Literal(_))) {
                let ty = self.ty(literal, None);
                self.is_value_of(&item, literal, &ty);
            }
        } else if matches!(left.kind, NodeKind::Literal(_)) && !self.is_value_of(&of, left, &item) {
            return;
        }
        if !comparable(item.required(), of.required()) {
            let message = format!("{} is never in a list of {}", describe(&item), describe(&of));
            self.problem("GR022", &left.range, message, "another type");
        }
    }

    /// Reports a name that no record of a type has as a field.
    fn check_key(&mut self, key: &Node, record: &Arc<Record>) {
        let NodeKind::Literal(Value::String(name)) = &key.kind else { return };
        let names = || record.fields.iter().map(|it| it.name.as_str());
        if !record.is_closed || names().any(|it| it == name) {
            return;
        }
        let shown = describe(&Type::Record(Arc::clone(record)));
        let message = format!("{shown} has no field `{name}`");
        self.problem("GR021", &key.range, message, "never true").help = suggestion(name, names());
    }

    pub(super) fn sum(
        &mut self,
        left: &Node,
        right: &Node,
        range: &Range<usize>,
        expected: Option<&Type>,
    ) -> Type {
        let is_empty = (left.is_empty_list(), right.is_empty_list());
        let nodes = (left, right);
        let left = self.value_as(left, expected);
        let right = self.value_as(right, expected);
        self.keep_fractions([(nodes.0, &left), (nodes.1, &right)]);
        let text = |it: &Type| matches!(it, Type::String | Type::Enum(_));
        match (&left, &right) {
            (Type::Any, _) | (_, Type::Any) => Type::Any,
            (a, b) if a.is_number() && b.is_number() => ranges::arithmetic(Operator::Add, a, b),
            (a, b) if text(a) && text(b) => Type::String,
            (Type::List(_), list @ Type::List(_)) if is_empty.0 => list.clone(),
            (list @ Type::List(_), Type::List(_)) if is_empty.1 => list.clone(),
            (Type::List(a), Type::List(b)) if joined(a, b).is_some() => {
                Type::List(Box::new(joined(a, b).unwrap_or(Type::Any)))
            }
            (a, b) => {
                let message = format!("{} and {} are not added", describe(a), describe(b));
                let is_shown = |it: &Type| it.is_number() || *it == Type::Bool;
                let help = (text(a) && is_shown(b) || is_shown(a) && text(b))
                    .then(|| "`string(…)` makes a text of the other value".to_owned());
                self.problem("GR022", range, message, "`+` of two types").help = help;
                Type::Any
            }
        }
    }

    pub(super) fn number(&mut self, node: &Node) -> Type {
        let ty = self.value(node);
        if ty.is_number() || ty == Type::Any {
            return ty;
        }
        let message = format!("expected a number, found {}", describe(&ty));
        self.problem("GR022", &node.range, message, "not a number");
        Type::Any
    }
}

/// Returns the common type of both types, if there is one.
pub fn joined(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Type::Any, _) | (_, Type::Any) => Some(Type::Any),
        (a, b) if is_null(a) || is_null(b) => {
            Some(if is_null(a) { b.clone() } else { a.clone() }.optional())
        }
        (Type::Optional(a), b) | (b, Type::Optional(a)) => {
            joined(a, b.required()).map(Type::optional)
        }
        (Type::Enum(a), Type::Enum(b)) => {
            let more = b.iter().filter(|it| !a.contains(it));
            Some(Type::Enum(a.iter().chain(more).cloned().collect()))
        }
        (Type::String, Type::Enum(_)) | (Type::Enum(_), Type::String) => Some(Type::String),
        // A literal text may be written in their notation.
        (ty @ (Type::Date | Type::Duration), text @ Type::Enum(_))
        | (text @ Type::Enum(_), ty @ (Type::Date | Type::Duration))
            if text.fits(ty) =>
        {
            Some(ty.clone())
        }
        (Type::Int(a), Type::Int(b)) => Some(Type::Int(a.joined(*b))),
        (Type::Int(a) | Type::Float(a), Type::Int(b) | Type::Float(b)) => {
            Some(Type::Float(a.joined(*b)))
        }
        (Type::List(a), Type::List(b)) => joined(a, b).map(|it| Type::List(Box::new(it))),
        (Type::Map(a), Type::Map(b)) => joined(a, b).map(|it| Type::Map(Box::new(it))),
        (Type::Record(a), Type::Record(b)) if a.name.is_none() || b.name.is_none() => {
            joined_records(a, b)
        }
        _ => None,
    }
}

/// Returns the record with the fields of both; a field that one of them lacks may be absent.
fn joined_records(a: &Record, b: &Record) -> Option<Type> {
    let only_one = |field: &Field, other: &Record| {
        // An open record may have it with another type.
        let ty = if other.is_closed { field.ty.clone().optional() } else { Type::Any };
        field.joined(None, ty)
    };
    let mut fields = Vec::new();
    for field in &a.fields {
        let other = b.fields.iter().find(|it| it.name == field.name);
        fields.push(match other {
            Some(other) => field.joined(Some(other), joined(&field.ty, &other.ty)?),
            None => only_one(field, b),
        });
    }
    let only_b = b.fields.iter().filter(|it| !a.fields.iter().any(|field| field.name == it.name));
    fields.extend(only_b.map(|it| only_one(it, a)));
    let is_closed = a.is_closed && b.is_closed;
    Some(Type::Record(Arc::new(Record { name: None, fields, is_closed })))
}

/// Returns the advice for types that cannot be compared because of their notation.
fn spelled(a: &Type, b: &Type) -> Option<&'static str> {
    match (a, b) {
        (Type::Duration, _) | (_, Type::Duration) => {
            Some("`1h` and `PT60M` are one duration: keep a number of minutes to compare them")
        }
        (Type::Date, _) | (_, Type::Date) => Some("a date is written as \"2026-01-31\""),
        _ => None,
    }
}

/// Returns the advice for a number in quotes.
fn unquoted(ty: &Type, literal: &Node) -> Option<String> {
    match &literal.kind {
        NodeKind::Literal(Value::String(text)) if ty.is_number() && text.parse::<f64>().is_ok() => {
            Some(format!("leave out the quotes: {text}"))
        }
        _ => None,
    }
}

/// Returns the type of the items of a list, at any depth; of another value, its own type.
fn within_lists(ty: &Type) -> &Type {
    match ty.required() {
        Type::List(item) => within_lists(item),
        other => other,
    }
}
