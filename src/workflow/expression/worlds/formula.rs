//! A condition as questions about terms, joined by the logic around them.

use std::ops::Range;

use super::super::syntax::Operator;

/// A condition, or a part of one, and the bytes it was written at.
#[derive(Clone, Debug)]
pub(in super::super) struct Formula {
    pub(super) kind: FormulaKind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum FormulaKind {
    /// Written as `true` or `false`.
    Literal(bool),
    /// It turned out so when it was translated.
    Known(bool),
    Test(Box<Test>),
    Not(Box<Formula>),
    And(Box<[Formula; 2]>),
    Or(Box<[Formula; 2]>),
    /// Both hold, or neither does.
    Same(Box<[Formula; 2]>),
    If(Box<[Formula; 3]>),
}

/// A question about a term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) term: Term,
    pub(super) ask: Ask,
}

/// What has one value in a state. Equal texts are equal terms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) text: String,
    /// The paths it looks at, by whatever way.
    pub(super) reads: Vec<String>,
    /// The paths without which it has no value.
    pub(super) needs: Vec<String>,
    /// Whether each of its values is that of some state, whatever other terms are.
    pub(super) free: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// Whether it is true.
    Holds,
    /// Whether the path that is the term is there.
    Present,
    /// Whether it is this text, one of a few if `among` says so.
    Text { among: Option<Vec<String>>, is: String },
    /// How a number compares with a constant.
    Number { kind: NumberKind, operator: Operator, than: f64 },
    /// How one thing compares with another; the term is both.
    Order { operator: Operator },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberKind {
    /// A whole number from zero on.
    Count,
    Whole,
    Real,
}

impl Formula {
    /// How many parts it has.
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
