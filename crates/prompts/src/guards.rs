//! What a condition proves about the values of a template: which are present, and which lists have items.

use std::cmp::Ordering;

use graphrun_core::{
    id::NodeName,
    state::{NumberRange, Type},
};
use graphrun_expressions::flow::{
    guarantee::{Guarantee, path_of_key},
    success::SuccessFields,
};
use minijinja::{
    Value,
    machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, UnaryOpKind},
    value::ValueKind,
};

use super::{
    checker::{Meaning, PromptChecker},
    expressions::LOOP,
    shapes::{alternatives, tuple_items},
};

/// The filters whose results are lists.
const LISTS: [&str; 9] =
    ["dictsort", "items", "lines", "list", "reject", "select", "sort", "split", "unique"];

/// A comparison in a condition, and its outcome.
struct Comparison<'e> {
    left: &'e Expr<'e>,
    right: &'e Expr<'e>,
    operator: BinOpKind,
    outcome: bool,
}

/// An operand of a comparison, with the other one.
struct Side<'e> {
    value: &'e Expr<'e>,
    other: &'e Expr<'e>,
    /// Whether the value is on the right.
    is_turned: bool,
}

impl PromptChecker<'_, '_> {
    /// Records the guarantees once a condition has this outcome.
    pub(super) fn learn(&self, condition: &Expr<'_>, outcome: bool, known: &mut Vec<Guarantee>) {
        match condition {
            Expr::Test(it) if (it.name == "defined") == outcome => {
                let asks = asks_presence(it.name);
                // `a.b is defined` proves `a` as well.
                if asks {
                    learn_path(&it.expr, known);
                }
            }
            // An absent field is false, and so is an empty list.
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) if outcome => {
                learn_path(condition, known);
                if let Some(path) = path_of(condition) {
                    known.extend(self.shown(&path, |it| it.shown_by_bool(&path)));
                    known.push(has_items(path));
                }
            }
            Expr::GetAttr(it) if !outcome && is_loop(&it.expr) => {
                let neighbour = match it.name {
                    "first" => "loop.previtem",
                    "last" => "loop.nextitem",
                    _ => return,
                };
                if self.known.contains(&Guarantee::LoopHasItems) {
                    known.push(present(neighbour));
                }
            }
            Expr::Filter(it) if outcome && is_length(it.name) => {
                let path = it.expr.as_ref().and_then(path_of);
                known.extend(path.map(has_items));
            }
            Expr::Filter(_) if outcome => {
                known.extend(path_of(condition).map(Guarantee::Present));
            }
            Expr::Compare(it) => {
                if let [step] = it.ops.as_slice()
                    && let Some(operator) = outside_of_chain(step.op)
                {
                    let left = &it.expr;
                    let right = &step.expr;
                    self.learn_comparison(&Comparison { left, right, operator, outcome }, known);
                }
            }
            Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => {
                self.learn(&it.expr, !outcome, known);
            }
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd if outcome => {
                    self.learn(&it.left, outcome, known);
                    self.learn(&it.right, outcome, known);
                }
                BinOpKind::ScOr if !outcome => {
                    self.learn(&it.left, outcome, known);
                    self.learn(&it.right, outcome, known);
                }
                operator => {
                    let left = &it.left;
                    let right = &it.right;
                    self.learn_comparison(&Comparison { left, right, operator, outcome }, known);
                }
            },
            _ => (),
        }
    }

    /// Records what a comparison proves: the visits of a node, and what does not depend on the node.
    fn learn_comparison(&self, comparison: &Comparison<'_>, known: &mut Vec<Guarantee>) {
        for Side { value: visits, other: number, is_turned } in comparison.sides() {
            if let Some((node, number)) = self.visited_node(visits).zip(number_of(number)) {
                let fulfils = comparison.fulfilled_by(number, is_turned);
                let is_own = self.scope.written.is_at(node);
                known.extend(Guarantee::of_visits(node, is_own, fulfils));
            }
        }
        comparison.learn_trigger(known);
        self.learn_success(comparison, known);
        let is_list = |it: &Expr<'_>| self.is_list(it, known);
        known.extend(comparison.learn_items(is_list));
        comparison.learn_number(known);
    }

    /// Records what a comparison of an exit code, or of the success of a command, proves.
    fn learn_success(&self, comparison: &Comparison<'_>, known: &mut Vec<Guarantee>) {
        for Side { value, other, is_turned } in comparison.sides() {
            let Some(path) = path_of(value) else { continue };
            if let Some(number) = number_of(other) {
                let fulfils = comparison.fulfilled_by(number, is_turned);
                known.extend(self.shown(&path, |it| it.shown_by_code(&path, fulfils)));
            }
            let Some(is_equal) = comparison.is_equal() else { continue };
            if let Expr::Const(it) = other
                && it.value == Value::from(is_equal)
            {
                known.extend(self.shown(&path, |it| it.shown_by_bool(&path)));
            }
        }
    }

    /// Returns the guarantees for the fields that are written where a field shows the success of a command. A name that the
    /// template has defined hides a field.
    fn shown<'f, I: Iterator<Item = &'f str>>(
        &'f self,
        path: &str,
        fields: impl FnOnce(&'f SuccessFields) -> I,
    ) -> impl Iterator<Item = Guarantee> {
        let success = self.scope.written.success().filter(|_| !self.is_hidden(path));
        let shown = success.map(fields).into_iter().flatten();
        shown.filter(|it| !self.is_hidden(it)).map(present)
    }

    /// Returns whether the template has defined a name, so that it does not mean a field or a fact.
    pub(super) fn is_hidden(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }

    /// Returns whether a map is known to have keys whose values are null at times.
    pub(super) fn is_map_with_nulls(&self, of: &Expr<'_>) -> bool {
        let ty = self.declared_type(of);
        matches!(
            ty.as_ref().map(Type::required),
            Some(Type::Map(value)) if matches!(**value, Type::Optional(_))
        )
    }

    /// Returns whether a value is a list for certain. `known` has what the condition has proved so far.
    fn is_list(&self, value: &Expr<'_>, known: &[Guarantee]) -> bool {
        if let Expr::Filter(it) = value {
            let reversed = it.expr.as_ref().filter(|_| it.name == "reverse");
            return LISTS.contains(&it.name) || reversed.is_some_and(|it| self.is_list(it, known));
        }
        let Some(ty) = self.declared_type(value) else { return false };
        let is_proved = || {
            let is_present = |path: String| known.contains(&Guarantee::Present(path));
            self.is_proved(value) || path_of(value).is_some_and(is_present)
        };
        let is_there = !matches!(ty, Type::Optional(_)) || is_proved();
        let is_list = |it: &Type| matches!(it, Type::List(_)) || tuple_items(it).is_some();
        is_there && alternatives(&ty).into_iter().all(is_list)
    }

    /// Returns the type of a path, if it is declared.
    fn declared_type(&self, path: &Expr<'_>) -> Option<Type> {
        match path {
            Expr::Var(it) => match self.variable(it.id) {
                Some(Meaning::Value(ty)) => Some(ty.clone()),
                Some(_) => None,
                None => self.scope.schema.channel(it.id).map(|it| it.ty().clone()),
            },
            Expr::GetAttr(it) => self.declared_type(&it.expr)?.required().field(it.name).cloned(),
            Expr::GetItem(it) => match self.declared_type(&it.expr)?.required() {
                Type::List(item) | Type::Map(item) => Some(Type::clone(item)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the node whose visits an expression is: `visit`, or `visits("node")`.
    fn visited_node<'n>(&'n self, expression: &'n Expr<'_>) -> Option<&'n str> {
        let is_fact =
            |name: &str| self.variable(name).is_none() && self.scope.schema.channel(name).is_none();
        match expression {
            Expr::Var(it) if it.id == "visit" && is_fact(it.id) => {
                self.scope.node.map(NodeName::as_str)
            }
            Expr::Call(it) => match (&it.expr, it.args.as_slice()) {
                (Expr::Var(function), [CallArg::Pos(Expr::Const(node))])
                    if function.id == "visits" && is_fact(function.id) =>
                {
                    node.value.as_str()
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the same operator outside of a chain, which has no `not in`.
pub(super) fn outside_of_chain(operator: CompareOpKind) -> Option<BinOpKind> {
    Some(match operator {
        CompareOpKind::Eq => BinOpKind::Eq,
        CompareOpKind::Ne => BinOpKind::Ne,
        CompareOpKind::Gt => BinOpKind::Gt,
        CompareOpKind::Gte => BinOpKind::Gte,
        CompareOpKind::In => BinOpKind::In,
        CompareOpKind::Lt => BinOpKind::Lt,
        CompareOpKind::Lte => BinOpKind::Lte,
        CompareOpKind::NotIn => return None,
    })
}

impl<'e> Comparison<'e> {
    /// Returns each operand with the other one.
    fn sides(&self) -> [Side<'e>; 2] {
        let Self { left, right, .. } = *self;
        [
            Side { value: left, other: right, is_turned: false },
            Side { value: right, other: left, is_turned: true },
        ]
    }

    /// Returns whether both operands are equal, if it compares that.
    fn is_equal(&self) -> Option<bool> {
        match self.operator {
            BinOpKind::Eq => Some(self.outcome),
            BinOpKind::Ne => Some(!self.outcome),
            _ => None,
        }
    }

    /// Returns the condition on a number that its comparison with another one has this outcome. `is_turned` is whether the
    /// number is on the right of the operator.
    fn fulfilled_by(&self, number: i64, is_turned: bool) -> impl Fn(i64) -> bool + use<> {
        let Self { operator, outcome, .. } = *self;
        move |other| {
            let order = if is_turned { number.cmp(&other) } else { other.cmp(&number) };
            orders(operator, order).is_none_or(|it| it == outcome)
        }
    }

    /// Records the guarantees about the trigger that it proves.
    fn learn_trigger(&self, known: &mut Vec<Guarantee>) {
        let Some(is_equal) = self.is_equal() else { return };
        for Side { value, other: text, .. } in self.sides() {
            if let (Some(path), Expr::Const(it)) = (path_of(value), text)
                && let Some(text) = it.value.as_str()
            {
                known.extend(Guarantee::of_trigger(&path, text, is_equal));
            }
        }
    }

    /// Returns the length of a list, or the key of a map, that it proves. `is_list` is whether a value is a list.
    fn learn_items(&self, is_list: impl Fn(&Expr<'_>) -> bool) -> Vec<Guarantee> {
        if matches!(self.operator, BinOpKind::In) {
            let map = path_of(self.right);
            let key = map.and_then(|it| part_of(&it, self.left)).filter(|_| self.outcome);
            return key.map(Guarantee::HasKey).into_iter().collect();
        }
        let is_unequal = self.is_equal() == Some(false);
        let proved = |Side { value: list, other, is_turned }: Side<'_>| {
            match (list_of_length(list).and_then(path_of), number_of(other)) {
                (Some(path), Some(number)) => {
                    Guarantee::of_size(path, 0, number, self.fulfilled_by(number, is_turned))
                }
                // Null is no empty list either.
                _ if is_unequal && is_empty_list(other) && is_list(list) => {
                    path_of(list).map(has_items)
                }
                _ => None,
            }
        };
        self.sides().into_iter().filter_map(proved).collect()
    }

    /// Records the limits that it proves of a number that chooses an item: not below zero, or below the length of a list.
    fn learn_number(&self, known: &mut Vec<Guarantee>) {
        for Side { value, other, is_turned } in self.sides() {
            let Some(path) = path_of(value) else { continue };
            if let Some(number) = number_of(other) {
                let fulfils = self.fulfilled_by(number, is_turned);
                let below_zero = [i64::MIN, number, -1].into_iter().filter(|it| *it < 0);
                if !below_zero.into_iter().any(fulfils) {
                    known.push(Guarantee::InRange(path, NumberRange::FROM_ZERO));
                }
                continue;
            }
            let is_less = match self.operator {
                BinOpKind::Lt => self.outcome && !is_turned,
                BinOpKind::Gte => !self.outcome && !is_turned,
                BinOpKind::Gt => self.outcome && is_turned,
                BinOpKind::Lte => !self.outcome && is_turned,
                _ => false,
            };
            if let Some(list) = list_of_length(other).and_then(path_of).filter(|_| is_less) {
                known.push(Guarantee::below_size(&path, &list));
            }
        }
    }
}

fn present(path: &str) -> Guarantee {
    Guarantee::Present(path.to_owned())
}

fn has_items(list: String) -> Guarantee {
    Guarantee::HasItems { list, least: 1 }
}

impl PromptChecker<'_, '_> {
    /// Returns the type of a part of a map or a list that a condition has proved to have it.
    pub(super) fn known_part(&self, part: &Expr<'_>, of: &Type) -> Option<Type> {
        match of {
            Type::Map(value) => {
                let has_key = path_of(part).is_some_and(|it| self.known.has_key(&it));
                has_key.then(|| Type::clone(value))
            }
            Type::List(item) => {
                let Expr::GetItem(it) = part else { return None };
                let list = path_of(&it.expr)?;
                let has_item = match number_of(&it.subscript_expr) {
                    Some(number) => number >= 0 && self.known.least_size(&list) > number,
                    None => self.is_below_length(&it.subscript_expr, &list),
                };
                has_item.then(|| Type::clone(item))
            }
            _ => None,
        }
    }
}

impl PromptChecker<'_, '_> {
    /// Returns whether a whole number from zero on is below the length of a list.
    fn is_below_length(&self, number: &Expr<'_>, list: &str) -> bool {
        let Some(Type::Int(range)) = self.declared_type(number) else { return false };
        path_of(number).is_some_and(|path| {
            self.known.narrowed(&path, range).min.is_some_and(|it| it >= 0.0)
                && self.known.contains(&Guarantee::below_size(&path, list))
        })
    }
}

/// Returns whether a test asks whether a value is there.
pub(super) fn asks_presence(test: &str) -> bool {
    matches!(test, "defined" | "undefined" | "none")
}

fn is_loop(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Var(it) if it.id == LOOP)
}

fn is_length(filter: &str) -> bool {
    matches!(filter, "length" | "count")
}

/// Returns the list whose length an expression is.
fn list_of_length<'e>(expression: &'e Expr<'_>) -> Option<&'e Expr<'e>> {
    match expression {
        Expr::Filter(it) if is_length(it.name) => it.expr.as_ref(),
        _ => None,
    }
}

/// Returns the whole number that an expression is, if it is a literal.
pub(super) fn number_of(expression: &Expr<'_>) -> Option<i64> {
    match expression {
        Expr::Const(it) => i64::try_from(it.value.clone()).ok(),
        Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Neg) => {
            number_of(&it.expr)?.checked_neg()
        }
        _ => None,
    }
}

/// Records a path and the values that it leads through.
fn learn_path(path: &Expr<'_>, known: &mut Vec<Guarantee>) {
    known.extend(path_of(path).map(Guarantee::Present));
    match path {
        Expr::GetAttr(inner) => learn_path(&inner.expr, known),
        Expr::GetItem(inner) => learn_path(&inner.expr, known),
        _ => (),
    }
}

fn is_empty_list(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::List(it) => it.items.is_empty(),
        Expr::Const(it) => it.value.kind() == ValueKind::Seq && it.value.len() == Some(0),
        _ => false,
    }
}

/// Returns whether a comparison holds for operands in this order; `None` for another operator.
fn orders(operator: BinOpKind, order: Ordering) -> Option<bool> {
    Some(match operator {
        BinOpKind::Eq => order.is_eq(),
        BinOpKind::Ne => order.is_ne(),
        BinOpKind::Lt => order.is_lt(),
        BinOpKind::Lte => order.is_le(),
        BinOpKind::Gt => order.is_gt(),
        BinOpKind::Gte => order.is_ge(),
        _ => return None,
    })
}

/// Returns the path of a value, such as `review.notes`, `tasks[0].title` or `tasks | first`.
pub(super) fn path_of(expression: &Expr<'_>) -> Option<String> {
    match expression {
        Expr::Var(it) => Some(it.id.to_owned()),
        Expr::GetAttr(it) => Some(format!("{}.{}", path_of(&it.expr)?, it.name)),
        Expr::GetItem(it) => {
            let of = path_of(&it.expr)?;
            part_of(&of, &it.subscript_expr)
        }
        Expr::Filter(it) if it.args.is_empty() => {
            Some(format!("({} | {})", path_of(it.expr.as_ref()?)?, it.name))
        }
        _ => None,
    }
}

/// Returns the path of a part of a value.
fn part_of(of: &str, part: &Expr<'_>) -> Option<String> {
    if let Some(number) = number_of(part) {
        return Some(format!("{of}[{number}]"));
    }
    match part {
        Expr::Const(it) => Some(path_of_key(of, it.value.as_str()?)),
        part => Some(format!("{of}[{}]", path_of(part)?)),
    }
}
