//! What a condition proves about the values of a template: which are present, and which lists have items.

use std::cmp::Ordering;

use graphrun_core::{id::NodeName, state::Type};
use minijinja::{
    Value,
    machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, UnaryOpKind},
    value::ValueKind,
};

use super::{
    checker::{Meaning, PromptChecker},
    expressions::LOOP,
};
use crate::{expression::sizes, via, visited};

/// The most items of a list whose presence is known from a condition on its length.
const ITEMS_MAX: i64 = 16;

/// The mark of a loop whose items are never null.
pub(super) const SURE_ITEMS: &str = "loop has items";

impl PromptChecker<'_, '_> {
    /// Records the names that are defined once a condition has this outcome.
    pub(super) fn learn(&self, condition: &Expr<'_>, outcome: bool, defined: &mut Vec<String>) {
        defined.extend(self.names_set_under(condition, outcome));
        match condition {
            Expr::Test(it) if (it.name == "defined") == outcome => {
                let asks = asks_presence(it.name);
                // `a.b is defined` proves `a` as well.
                if asks {
                    learn_path(&it.expr, defined);
                }
            }
            // An absent field is false, and so is an empty list.
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) if outcome => {
                learn_path(condition, defined);
                if let (Some(success), Some(path)) =
                    (self.scope.written.success(), path_of(condition))
                {
                    defined.extend(success.shown_by_bool(&path).map(str::to_owned));
                }
                defined.extend(path_of(condition).map(|it| has_items(&it)));
            }
            Expr::GetAttr(it) if !outcome && is_loop(&it.expr) => {
                let neighbour = match it.name {
                    "first" => "loop.previtem",
                    "last" => "loop.nextitem",
                    _ => return,
                };
                if self.defined.iter().any(|it| it == SURE_ITEMS) {
                    defined.push(neighbour.to_owned());
                }
            }
            Expr::Filter(it) if outcome && is_length(it.name) => {
                let path = it.expr.as_ref().and_then(path_of);
                defined.extend(path.map(|it| has_items(&it)));
            }
            Expr::Filter(_) if outcome => defined.extend(path_of(condition)),
            Expr::Compare(it) => {
                if let [step] = it.ops.as_slice()
                    && let Some(operator) = outside_of_chain(step.op)
                {
                    self.learn_comparison((&it.expr, &step.expr), operator, outcome, defined);
                }
            }
            Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => {
                self.learn(&it.expr, !outcome, defined);
            }
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd if outcome => {
                    self.learn(&it.left, outcome, defined);
                    self.learn(&it.right, outcome, defined);
                }
                BinOpKind::ScOr if !outcome => {
                    self.learn(&it.left, outcome, defined);
                    self.learn(&it.right, outcome, defined);
                }
                _ => self.learn_comparison((&it.left, &it.right), it.op, outcome, defined),
            },
            _ => (),
        }
    }

    /// Records what a comparison proves: the visits of a node, and what does not depend on the node.
    fn learn_comparison(
        &self,
        (left, right): (&Expr<'_>, &Expr<'_>),
        operator: BinOpKind,
        outcome: bool,
        defined: &mut Vec<String>,
    ) {
        for (visits, number, is_turned) in [(left, right, false), (right, left, true)] {
            if let Some((node, number)) = self.visited_node(visits).zip(number_of(number)) {
                let fulfils = fulfilled_by(operator, number, is_turned, outcome);
                let is_own = self.scope.written.is_at(node);
                defined.extend(visited::mark(node, visited::least(is_own, fulfils)));
            }
        }
        learn_trigger((left, right), operator, outcome, defined);
        self.learn_success((left, right), operator, outcome, defined);
        Self::learn_items((left, right), operator, outcome, defined);
    }

    /// Records what a comparison of an exit code, or of the success of a command, proves.
    fn learn_success(
        &self,
        (left, right): (&Expr<'_>, &Expr<'_>),
        operator: BinOpKind,
        outcome: bool,
        defined: &mut Vec<String>,
    ) {
        let Some(success) = self.scope.written.success() else { return };
        for (value, other, is_turned) in [(left, right, false), (right, left, true)] {
            let Some(path) = path_of(value) else { continue };
            if let Some(number) = number_of(other) {
                let fulfils = fulfilled_by(operator, number, is_turned, outcome);
                defined.extend(success.shown_by_code(&path, fulfils).map(str::to_owned));
            }
            let is_equal = match operator {
                BinOpKind::Eq => outcome,
                BinOpKind::Ne => !outcome,
                _ => continue,
            };
            if let Expr::Const(it) = other
                && it.value == Value::from(is_equal)
            {
                defined.extend(success.shown_by_bool(&path).map(str::to_owned));
            }
        }
    }

    /// Records what a comparison proves: the length of a list, or a key of a map.
    fn learn_items(
        (left, right): (&Expr<'_>, &Expr<'_>),
        operator: BinOpKind,
        outcome: bool,
        defined: &mut Vec<String>,
    ) {
        if matches!(operator, BinOpKind::In) {
            let key = path_of(right).and_then(|of| part_of(&of, left)).filter(|_| outcome);
            defined.extend(key.map(|it| has_key(&it)));
            return;
        }
        let is_unequal = match operator {
            BinOpKind::Eq => !outcome,
            BinOpKind::Ne => outcome,
            _ => false,
        };
        for (list, other, is_turned) in [(left, right, false), (right, left, true)] {
            let proved = match (list_of_length(list).and_then(path_of), number_of(other)) {
                (Some(path), Some(number)) => {
                    let fulfils = fulfilled_by(operator, number, is_turned, outcome);
                    Some((path, sizes::least(0, number, fulfils)))
                }
                _ if is_unequal && is_empty_list(other) => path_of(list).map(|it| (it, 1)),
                _ => None,
            };
            let Some((path, length)) = proved else { continue };
            if length > 0 {
                defined.push(has_items(&path));
            }
            defined.extend(items_of(&path, length).map(|it| has_item(&it)));
        }
    }

    /// Returns whether a map is known to have keys whose values are null at times.
    pub(super) fn is_map_with_nulls(&self, of: &Expr<'_>) -> bool {
        let ty = self.declared_type(of);
        matches!(
            ty.as_ref().map(Type::required),
            Some(Type::Map(value)) if matches!(**value, Type::Optional(_))
        )
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

/// Records what a comparison proves about [the trigger](via).
fn learn_trigger(
    (left, right): (&Expr<'_>, &Expr<'_>),
    operator: BinOpKind,
    outcome: bool,
    defined: &mut Vec<String>,
) {
    if matches!(operator, BinOpKind::Eq | BinOpKind::Ne) {
        let is_equal = matches!(operator, BinOpKind::Eq) == outcome;
        for (value, text) in [(left, right), (right, left)] {
            if let (Some(path), Expr::Const(it)) = (path_of(value), text)
                && let Some(text) = it.value.as_str()
            {
                defined.extend(via::learned(&path, text, is_equal));
            }
        }
    }
}

/// Returns the paths of the first items of a list of this length.
fn items_of(path: &str, length: i64) -> impl Iterator<Item = String> {
    (0..length.min(ITEMS_MAX)).map(move |at| format!("{path}[{at}]"))
}

/// What a prompt knows of a list of at least this length, whose items are not null.
pub(crate) fn known_items(path: &str, length: i64) -> impl Iterator<Item = String> {
    let has_items = (length > 0).then(|| has_items(path));
    has_items.into_iter().chain(items_of(path, length))
}

/// Returns the mark of a list that is known to have items.
pub(super) fn has_items(path: &str) -> String {
    format!("{path}[]")
}

/// Returns the mark of a key that a map is known to have. Its value may be null.
pub(super) fn has_key(path: &str) -> String {
    format!("{path}?")
}

/// Returns the mark of an item that a list is known to have. It may be null.
fn has_item(path: &str) -> String {
    format!("{path}!")
}

impl PromptChecker<'_, '_> {
    /// Returns the type of a part of a map or a list that a condition has proved to have it.
    pub(super) fn known_part(&self, part: &Expr<'_>, of: &Type) -> Option<Type> {
        let is_known = |mark: fn(&str) -> String| {
            path_of(part).is_some_and(|it| self.defined.contains(&mark(&it)))
        };
        match of {
            Type::Map(value) if is_known(has_key) => Some(Type::clone(value)),
            Type::List(item) if is_known(has_item) => Some(Type::clone(item)),
            _ => None,
        }
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
fn learn_path(path: &Expr<'_>, defined: &mut Vec<String>) {
    defined.extend(path_of(path));
    match path {
        Expr::GetAttr(inner) => learn_path(&inner.expr, defined),
        Expr::GetItem(inner) => learn_path(&inner.expr, defined),
        _ => (),
    }
}

/// Returns the condition on a number that a comparison with another one has this outcome. `is_turned` is whether the number
/// is on the right of the operator.
fn fulfilled_by(
    operator: BinOpKind,
    number: i64,
    is_turned: bool,
    outcome: bool,
) -> impl Fn(i64) -> bool {
    move |it| {
        let order = if is_turned { number.cmp(&it) } else { it.cmp(&number) };
        orders(operator, order).is_none_or(|it| it == outcome)
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
        Expr::Const(it) => Some(format!("{of}.{}", it.value.as_str()?)),
        part => Some(format!("{of}[{}]", path_of(part)?)),
    }
}
