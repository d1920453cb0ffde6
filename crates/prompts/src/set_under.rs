//! Names that a template sets under a condition: where the same condition has the same outcome again, they have a value.
//!
//! **Example.** After `{% if note %}{% set text = note %}{% endif %}`, a second `{% if note %}` may read `text`.

use minijinja::machinery::ast::{BinOpKind, Expr, UnaryOpKind};

use super::{
    checker::{PromptChecker, reads},
    conditions::symbol_of,
    guards::outside_of_chain,
};

/// A name that has a value if a condition has an outcome.
#[derive(Clone, Debug)]
pub(super) struct SetUnder {
    pub(super) name: String,
    /// The text of the condition.
    pub(super) condition: String,
    outcome: bool,
}

impl PromptChecker<'_, '_> {
    /// Records the names that have a value after one branch of a condition only. Each name that a branch sets has whether
    /// the condition is true in that branch.
    pub(super) fn remember(&mut self, condition: &Expr<'_>, set: Vec<(String, Option<bool>)>) {
        let Some(text) = text_of(condition) else { return };
        // With another value of a name, the condition may have another outcome.
        if set.iter().any(|(name, _)| reads(&text, name)) {
            return;
        }
        for (name, outcome) in set {
            let condition = text.clone();
            self.set_under.extend(outcome.map(|outcome| SetUnder { name, condition, outcome }));
        }
    }

    /// Returns the names that have a value where a condition has this outcome.
    pub(super) fn names_set_under(&self, condition: &Expr<'_>, outcome: bool) -> Vec<String> {
        if self.set_under.is_empty() {
            return Vec::new();
        }
        let Some(text) = text_of(condition) else { return Vec::new() };
        let set = self.set_under.iter().filter(|it| it.outcome == outcome && it.condition == text);
        set.map(|it| it.name.clone()).collect()
    }
}

/// Returns a text that is the same for conditions with the same outcome, as long as their names have their values. A
/// call may read other names, or give another value each time.
fn text_of(condition: &Expr<'_>) -> Option<String> {
    let both = |left: &Expr<'_>, operator: BinOpKind, right: &Expr<'_>| {
        Some(format!("({} {} {})", text_of(left)?, symbol_of(operator)?, text_of(right)?))
    };
    Some(match condition {
        Expr::Const(it) => format!("{:?}", it.value),
        Expr::Var(it) => it.id.to_owned(),
        Expr::GetAttr(it) => format!("{}.{}", text_of(&it.expr)?, it.name),
        Expr::GetItem(it) => format!("{}[{}]", text_of(&it.expr)?, text_of(&it.subscript_expr)?),
        Expr::UnaryOp(it) => {
            let operator = if matches!(it.op, UnaryOpKind::Not) { "not" } else { "-" };
            format!("{operator} {}", text_of(&it.expr)?)
        }
        Expr::BinOp(it) => both(&it.left, it.op, &it.right)?,
        Expr::Compare(it) => match it.ops.as_slice() {
            [step] => both(&it.expr, outside_of_chain(step.op)?, &step.expr)?,
            _ => return None,
        },
        Expr::Filter(it) if it.args.is_empty() => {
            format!("({} | {})", text_of(it.expr.as_ref()?)?, it.name)
        }
        Expr::Test(it) if it.args.is_empty() => format!("({} is {})", text_of(&it.expr)?, it.name),
        _ => return None,
    })
}
