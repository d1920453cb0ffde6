//! A condition as a formula: questions about terms, joined by logic.

use std::{cmp::Ordering, ops::Range};

use graphrun_core::state::NumberRange;

use super::super::syntax::Operator;

/// A condition, or a part of one, with its bytes in the source.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    pub(super) kind: FormulaKind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum FormulaKind {
    /// Written as `true` or `false`.
    Literal(bool),
    /// Decided by the translation.
    Known(bool),
    Test(Box<Test>),
    Not(Box<Formula>),
    And(Box<[Formula; 2]>),
    Or(Box<[Formula; 2]>),
    /// Both are true, or both are false.
    Same(Box<[Formula; 2]>),
    If(Box<[Formula; 3]>),
}

/// A question about a term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) term: Term,
    pub(super) ask: Ask,
}

/// A term with one value in each state. Equal texts are equal terms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) text: String,
    /// The paths that the term reads, directly or indirectly.
    pub(super) reads: Vec<String>,
    /// The paths that it needs to have a value.
    pub(super) needs: Vec<String>,
    /// Whether each of its values occurs in some state, independent of the other terms.
    pub(super) free: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// Whether it is true.
    Holds,
    /// Whether the path is present; the term is the path.
    Present,
    /// Whether it is this text. `among` lists the possible texts if they are known.
    Text { among: Option<Vec<String>>, is: String },
    /// How a number compares with a constant.
    Number { kind: NumberKind, range: NumberRange, operator: Operator, than: f64 },
    /// How one operand compares with the other; the term contains both. `possible` lists the orders that occur.
    Order { operator: Operator, possible: Vec<Ordering> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberKind {
    Whole,
    Real,
}

impl Formula {
    /// Returns the number of parts.
    pub(super) fn size(&self) -> usize {
        1 + self.parts().iter().map(Self::size).sum::<usize>()
    }

    pub(super) fn parts(&self) -> &[Self] {
        match &self.kind {
            FormulaKind::Literal(_) | FormulaKind::Known(_) | FormulaKind::Test(_) => &[],
            FormulaKind::Not(of) => std::slice::from_ref(of),
            FormulaKind::And(both) | FormulaKind::Or(both) | FormulaKind::Same(both) => {
                both.as_slice()
            }
            FormulaKind::If(parts) => parts.as_slice(),
        }
    }
}
