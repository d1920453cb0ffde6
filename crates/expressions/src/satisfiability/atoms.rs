//! The terms of some conditions, each with a finite set of values that distinguishes them.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use graphrun_core::state::NumberRange;

use super::{
    super::syntax::Operator,
    formula::{Ask, NumberKind, Term, Test},
};

/// The orders of two values.
pub(super) const ORDERS: [Ordering; 3] = [Ordering::Less, Ordering::Equal, Ordering::Greater];

/// A term and its values.
#[derive(Clone, Debug)]
pub(super) struct Atom {
    pub(super) term: Term,
    /// The values, with the best ones for examples first.
    pub(super) values: Vec<AtomValue>,
    /// The atoms that decide whether the term is present.
    pub(super) guards: Vec<usize>,
    /// Whether it is the presence of a path.
    pub(super) presence: bool,
}

/// A value, or a representative of values with the same behaviour.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AtomValue {
    Bool(bool),
    Present(bool),
    Text(String),
    /// A text that differs from all compared texts.
    OtherText,
    Number(f64),
    Order(Ordering),
}

/// The atoms of a list of conditions, in order of their first use.
#[derive(Debug, Default)]
pub(super) struct Atoms {
    pub(super) list: Vec<Atom>,
    by_key: BTreeMap<(Sort, String), usize>,
}

/// Questions of one sort about one term share an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Bool,
    Presence,
    Text,
    Number,
    Order,
}

impl Atoms {
    /// Returns the atoms of some tests.
    pub(super) fn of<'t>(tests: impl Iterator<Item = &'t Test>) -> Self {
        let mut atoms = Self::default();
        let mut asked: Vec<Vec<&Ask>> = Vec::new();
        for Test { term, ask } in tests {
            let next = atoms.list.len();
            let at = *atoms.by_key.entry((sort(ask), term.text.clone())).or_insert(next);
            if at == next {
                let presence = sort(ask) == Sort::Presence;
                let values = Vec::new();
                let guards = Vec::new();
                atoms.list.push(Atom { term: term.clone(), values, guards, presence });
                asked.push(Vec::new());
            }
            asked[at].push(ask);
        }
        for (atom, asked) in atoms.list.iter_mut().zip(&asked) {
            atom.values = values(asked);
        }
        atoms.guard();
        atoms
    }

    /// Returns the atom of a test.
    pub(super) fn find(&self, test: &Test) -> Option<usize> {
        self.by_key.get(&(sort(&test.ask), test.term.text.clone())).copied()
    }

    fn guard(&mut self) {
        let present: Vec<(usize, String)> = (self.list.iter().enumerate())
            .filter(|(_, it)| it.presence)
            .map(|(at, it)| (at, it.term.text.clone()))
            .collect();
        for (at, atom) in self.list.iter_mut().enumerate() {
            // A path is present only if every part of it is.
            let needs = if atom.presence { &atom.term.reads } else { &atom.term.needs };
            let guards = present
                .iter()
                .filter(|(guard, path)| *guard != at && needs.iter().any(|it| is_below(it, path)));
            atom.guards = guards.map(|(guard, _)| *guard).collect();
        }
    }
}

/// Returns whether a path equals another one or lies below it.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Ask {
    fn range(&self) -> Option<NumberRange> {
        match self {
            Self::Number { range, .. } => Some(*range),
            _ => None,
        }
    }

    /// Returns the answer for this value of the term.
    pub(super) fn answer(&self, value: &AtomValue) -> bool {
        match (self, value) {
            (Self::Holds, AtomValue::Bool(it)) | (Self::Present, AtomValue::Present(it)) => *it,
            (Self::Text { is, .. }, AtomValue::Text(it)) => it == is,
            (Self::Number { operator, than, .. }, AtomValue::Number(it)) => {
                it.partial_cmp(than).is_some_and(|order| holds(*operator, order))
            }
            (Self::Order { operator, .. }, AtomValue::Order(order)) => holds(*operator, *order),
            // `Text` with another text. Other combinations are impossible, because an atom has one
            // sort.
            _ => false,
        }
    }
}

fn holds(operator: Operator, order: Ordering) -> bool {
    operator.orders(order).unwrap_or(false)
}

fn sort(ask: &Ask) -> Sort {
    match ask {
        Ask::Holds => Sort::Bool,
        Ask::Present => Sort::Presence,
        Ask::Text { .. } => Sort::Text,
        Ask::Number { .. } => Sort::Number,
        Ask::Order { .. } => Sort::Order,
    }
}

/// Returns the values of a term for these questions, all of one sort.
fn values(asked: &[&Ask]) -> Vec<AtomValue> {
    let Some(first) = asked.first() else { return Vec::new() };
    match first {
        Ask::Holds => vec![AtomValue::Bool(false), AtomValue::Bool(true)],
        Ask::Present => vec![AtomValue::Present(false), AtomValue::Present(true)],
        Ask::Text { among: Some(values), .. } => {
            values.iter().cloned().map(AtomValue::Text).collect()
        }
        Ask::Text { among: None, .. } => {
            let mut texts: Vec<AtomValue> = Vec::new();
            for ask in asked {
                if let Ask::Text { is, .. } = ask
                    && !texts.contains(&AtomValue::Text(is.clone()))
                {
                    texts.push(AtomValue::Text(is.clone()));
                }
            }
            texts.push(AtomValue::OtherText);
            texts
        }
        Ask::Number { kind, .. } => {
            let cut = |it: &&Ask| match it {
                Ask::Number { than, .. } => Some(*than),
                _ => None,
            };
            // Where a guard holds, the range of a term may be narrower than elsewhere.
            let range = asked.iter().filter_map(|it| it.range()).reduce(NumberRange::joined);
            numbers(*kind, range.unwrap_or_default(), asked.iter().filter_map(cut).collect())
        }
        Ask::Order { .. } => {
            let is_possible = |order: &Ordering| {
                let mut asked = asked.iter();
                asked
                    .any(|it| matches!(it, Ask::Order { possible, .. } if possible.contains(order)))
            };
            ORDERS.into_iter().filter(is_possible).map(AtomValue::Order).collect()
        }
    }
}

/// Returns the constants that are numbers of the kind in the range, then one number from each gap around them.
fn numbers(kind: NumberKind, range: NumberRange, mut cuts: Vec<f64>) -> Vec<AtomValue> {
    cuts.extend(range.min.into_iter().chain(range.max));
    cuts.sort_by(f64::total_cmp);
    cuts.dedup_by(|a, b| a.partial_cmp(&b) == Some(Ordering::Equal));
    let is_of_kind = |it: &f64| match kind {
        NumberKind::Whole => it.fract() == 0.0,
        NumberKind::Real => true,
    };
    let is_one = |it: &f64| is_of_kind(it) && range.contains(*it);
    let ends = [cuts.first().map(|it| below(*it)), cuts.last().map(|it| above(*it))];
    let between = cuts.windows(2).filter_map(|pair| match kind {
        NumberKind::Real => between(pair[0], pair[1]),
        NumberKind::Whole => Some(above(pair[0])).filter(|it| *it < pair[1]),
    });
    let all = cuts.iter().copied().chain(between).chain(ends.into_iter().flatten());
    // Without this, minus zero would be shown as `-0`.
    all.filter(is_one).map(|it| AtomValue::Number(it + 0.0)).collect()
}

/// Returns a whole number below one that is exact.
fn below(number: f64) -> f64 {
    number.ceil() - 1.0
}

/// Returns the next whole number above one that is exact.
fn above(number: f64) -> f64 {
    number.floor() + 1.0
}

/// Returns a short number between two, if there is one.
fn between(low: f64, high: f64) -> Option<f64> {
    let inside = |it: &f64| low < *it && *it < high;
    let middle = f64::midpoint(low, high);
    let mut tried =
        [1.0, 10.0, 100.0, 1000.0].map(|scale| (middle * scale).round() / scale).into_iter();
    tried.find(inside).or(Some(middle).filter(inside)).or(Some(low.next_up()).filter(inside))
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.term.text)
    }
}

impl Atom {
    /// This value of the term, in words.
    pub(super) fn describe(&self, value: &AtomValue) -> String {
        let text = &self.term.text;
        match value {
            AtomValue::Bool(it) => format!("`{text}` is {it}"),
            AtomValue::Present(true) => format!("`{text}` is there"),
            AtomValue::Present(false) => format!("`{text}` is absent"),
            AtomValue::Text(it) => format!("`{text}` is {it:?}"),
            AtomValue::OtherText => format!("`{text}` is another text"),
            AtomValue::Number(it) => format!("`{text}` is {it}"),
            AtomValue::Order(order) => {
                let (left, right) = text.split_once(" <=> ").unwrap_or((text, ""));
                let how = match order {
                    Ordering::Less => "less than",
                    Ordering::Equal => "equal to",
                    Ordering::Greater => "greater than",
                };
                format!("`{left}` is {how} `{right}`")
            }
        }
    }
}
