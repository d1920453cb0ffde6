//! Names that a template sets under a condition: where the same condition has the same outcome again, they have a value.
//!
//! **Example.** After `{% if note %}{% set text = note %}{% endif %}`, a second `{% if note %}` may read `text`.

use std::{fmt::Write, rc::Rc};

use graphrun_expressions::flow::guarantee::Guarantee;
use minijinja::machinery::ast::{BinOpKind, Expr, UnaryOpKind};

use super::{
    checker::{PromptChecker, names_in},
    conditions::symbol_of,
    guards::outside_of_chain,
    variables::Digest,
};

/// The longest condition that is recognised where it stands again, in bytes: each part of a condition is remembered.
const CONDITION_BYTES_MAX: u32 = 300;

/// The names that were set under conditions, and the conditions around with their outcomes.
#[derive(Clone, Default)]
pub(super) struct SetUnder {
    names: Vec<Rc<SetName>>,
    /// The conditions around that still have their outcomes.
    outcomes: Vec<Option<Rc<Outcome>>>,
}

/// A name that has a value if a condition has an outcome.
struct SetName {
    name: String,
    digest: Digest,
    under: Rc<Outcome>,
}

/// A condition, and its outcome.
struct Outcome {
    /// The text of the condition.
    condition: String,
    is_true: bool,
    /// The names that the condition reads. With other values of them, it may have another outcome.
    reads: Vec<String>,
    digest: Digest,
}

impl Outcome {
    fn new(condition: &Expr<'_>, outcome: bool) -> Option<Self> {
        let span = condition.span();
        if span.end_offset.saturating_sub(span.start_offset) > CONDITION_BYTES_MAX {
            return None;
        }
        let mut text = String::new();
        write_condition(condition, &mut text)?;
        let condition = text;
        let reads = names_in(&condition).map(str::to_owned).collect();
        let digest = Digest::of(&condition, &format!("is {outcome}"));
        Some(Self { condition, is_true: outcome, reads, digest })
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.is_true == other.is_true && self.condition == other.condition
    }

    fn reads(&self, name: &str) -> bool {
        self.reads.iter().any(|it| it == name)
    }
}

impl SetUnder {
    /// Returns whether a name has a value, because the condition under which it was set has the same outcome here.
    pub(super) fn has_value(&self, name: &str) -> bool {
        !self.outcomes.is_empty() && self.names.iter().any(|it| it.name == name && self.holds(it))
    }

    /// Returns the digest of the names and the conditions.
    pub(super) fn digest(&self) -> Digest {
        let outcomes = self.outcomes.iter().flatten().map(|it| it.digest);
        Digest::sum(self.names.iter().map(|it| it.digest).chain(outcomes))
    }

    /// Returns how many conditions are around.
    pub(super) fn depth(&self) -> usize {
        self.outcomes.len()
    }

    /// Adds a condition around, and those that have an outcome by it.
    pub(super) fn enter(&mut self, condition: &Expr<'_>, outcome: bool) {
        let outcome_here = Outcome::new(condition, outcome);
        let is_known =
            |it: &Outcome| self.outcomes.iter().flatten().any(|other| other.is_equal(it));
        let new = outcome_here.filter(|it| !is_known(it));
        self.outcomes.extend(new.map(|it| Some(Rc::new(it))));
        match condition {
            Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => {
                self.enter(&it.expr, !outcome);
            }
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd if outcome => {
                    self.enter(&it.left, outcome);
                    self.enter(&it.right, outcome);
                }
                BinOpKind::ScOr if !outcome => {
                    self.enter(&it.left, outcome);
                    self.enter(&it.right, outcome);
                }
                _ => (),
            },
            _ => (),
        }
    }

    /// Removes the conditions around after the first ones.
    pub(super) fn leave(&mut self, first: usize) {
        self.outcomes.truncate(first);
    }

    /// Forgets what depends on the former value of a name. Returns the other names that have a value here, although the outcome
    /// of their condition is forgotten.
    pub(super) fn forget(&mut self, name: &str) -> Vec<Guarantee> {
        let is_around = self.outcomes.iter().flatten().any(|it| it.reads(name));
        let proved =
            self.names.iter().filter(|it| is_around && it.under.reads(name) && self.holds(it));
        let proved = proved.map(|it| present(it)).collect();
        self.names.retain(|it| it.name != name && !it.under.reads(name));
        for outcome in &mut self.outcomes {
            if outcome.as_ref().is_some_and(|it| it.reads(name)) {
                *outcome = None;
            }
        }
        proved
    }

    fn holds(&self, name: &SetName) -> bool {
        self.outcomes.iter().flatten().any(|it| it.is_equal(&name.under))
    }
}

impl PromptChecker<'_, '_> {
    /// Records the names that have a value after one branch of a condition only. Each name that a branch sets has whether
    /// the condition is true in that branch.
    pub(super) fn remember(&mut self, condition: &Expr<'_>, set: Vec<(String, Option<bool>)>) {
        let [Some(is_true), Some(is_false)] = [true, false].map(|it| Outcome::new(condition, it))
        else {
            return;
        };
        // With another value of a name, the condition may have another outcome.
        if set.iter().any(|(name, _)| is_true.reads(name)) {
            return;
        }
        let outcomes = [Rc::new(is_false), Rc::new(is_true)];
        for (name, outcome) in set {
            let under = outcome.map(|it| Rc::clone(&outcomes[usize::from(it)]));
            let set = under.map(|under| {
                let digest = Digest::of(&name, &format!("set under {:?}", under.digest));
                Rc::new(SetName { name, digest, under })
            });
            self.set_under.names.extend(set);
        }
    }
}

fn present(name: &SetName) -> Guarantee {
    Guarantee::Present(name.name.clone())
}

/// Writes a text that is the same for conditions with the same outcome, as long as their names have their values. A
/// call may read other names, or give another value each time.
fn write_condition(condition: &Expr<'_>, to: &mut String) -> Option<()> {
    match condition {
        Expr::Const(it) => write!(to, "{:?}", it.value).ok()?,
        Expr::Var(it) => to.push_str(it.id),
        Expr::GetAttr(it) => {
            write_condition(&it.expr, to)?;
            write!(to, ".{}", it.name).ok()?;
        }
        Expr::GetItem(it) => {
            write_condition(&it.expr, to)?;
            to.push('[');
            write_condition(&it.subscript_expr, to)?;
            to.push(']');
        }
        Expr::UnaryOp(it) => {
            to.push_str(if matches!(it.op, UnaryOpKind::Not) { "not " } else { "- " });
            write_condition(&it.expr, to)?;
        }
        Expr::BinOp(it) => write_operation(&it.left, it.op, &it.right, to)?,
        Expr::Compare(it) => match it.ops.as_slice() {
            [step] => write_operation(&it.expr, outside_of_chain(step.op)?, &step.expr, to)?,
            _ => return None,
        },
        Expr::Filter(it) if it.args.is_empty() => {
            to.push('(');
            write_condition(it.expr.as_ref()?, to)?;
            write!(to, " | {})", it.name).ok()?;
        }
        Expr::Test(it) if it.args.is_empty() => {
            to.push('(');
            write_condition(&it.expr, to)?;
            write!(to, " is {})", it.name).ok()?;
        }
        _ => return None,
    }
    Some(())
}

fn write_operation(
    left: &Expr<'_>,
    operator: BinOpKind,
    right: &Expr<'_>,
    to: &mut String,
) -> Option<()> {
    to.push('(');
    write_condition(left, to)?;
    write!(to, " {} ", symbol_of(operator)?).ok()?;
    write_condition(right, to)?;
    to.push(')');
    Some(())
}
