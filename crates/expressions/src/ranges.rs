//! The ranges of computed numbers.
//!
//! Each function returns a range that includes every result for numbers of the given ranges, and perhaps more. The ends are
//! computed as a run computes the numbers themselves, and rounding keeps the order, so they are exact bounds of its results. Only
//! whole numbers from [`EXACT_BELOW`] on are computed otherwise, so a range of them is open there.

use graphrun_core::state::{NumberRange, Type};

use super::syntax::Operator;

/// Whole numbers below this are exact as floats. A comparison with a constant below it gives the
/// same result for whole numbers and for floats.
pub(super) const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// A range without ends that floats do not represent exactly.
pub(super) fn exact_range(NumberRange { min, max }: NumberRange) -> NumberRange {
    let is_exact = |it: &f64| it.abs() < EXACT_BELOW;
    NumberRange { min: min.filter(is_exact), max: max.filter(is_exact) }
}

/// Returns the range of one whole number; a number that floats do not represent is between two that they do.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "this is checked")]
pub(super) fn only(number: i64) -> NumberRange {
    let nearest = number as f64;
    if nearest as i128 == i128::from(number) {
        return NumberRange::only(nearest);
    }
    let max = nearest.next_up().min(i64::MAX as f64);
    NumberRange { min: Some(nearest.next_down()), max: Some(max) }
}

/// Returns the type of `a operator b`; [`Type::Any`] if one of them may be anything.
pub(super) fn arithmetic(operator: Operator, a: &Type, b: &Type) -> Type {
    let is_whole = matches!((a, b), (Type::Int(_), Type::Int(_)));
    of_both(a, b, |a, b| {
        if is_whole {
            return exact_range(of_whole(operator, exact_range(a), exact_range(b)));
        }
        match operator {
            Operator::Divide => quotient(a, b),
            Operator::Remainder => remainder(a, b, 0.0),
            _ => of_whole(operator, a, b),
        }
    })
}

fn of_whole(operator: Operator, a: NumberRange, b: NumberRange) -> NumberRange {
    match operator {
        Operator::Add => sum_of(a, b),
        Operator::Subtract => sum_of(a, opposite(b)),
        Operator::Multiply => product(a, b),
        Operator::Divide => without_fraction(quotient(a, b)),
        Operator::Remainder => remainder(a, b, 1.0),
        _ => NumberRange::ALL,
    }
}

/// Returns the type of `-a`.
pub(super) fn negated(of: Type) -> Type {
    match of {
        Type::Int(range) => Type::Int(opposite(range)),
        Type::Float(range) => Type::Float(opposite(range)),
        other => other,
    }
}

/// Returns the type of the smaller of two numbers.
pub(super) fn smaller(a: &Type, b: &Type) -> Type {
    of_both(a, b, |a, b| NumberRange {
        min: a.min.zip(b.min).map(|(a, b)| a.min(b)),
        max: [a.max, b.max].into_iter().flatten().reduce(f64::min),
    })
}

/// Returns the type of the larger of two numbers.
pub(super) fn larger(a: &Type, b: &Type) -> Type {
    of_both(a, b, |a, b| NumberRange {
        min: [a.min, b.min].into_iter().flatten().reduce(f64::max),
        max: a.max.zip(b.max).map(|(a, b)| a.max(b)),
    })
}

/// Returns the type of the sum of the items of a list, which may be empty.
pub(super) fn sum(item: &Type) -> Type {
    let of = |range: NumberRange| NumberRange {
        min: range.min.filter(|it| *it >= 0.0).map(|_| 0.0),
        max: range.max.filter(|it| *it <= 0.0).map(|_| 0.0),
    };
    match item {
        Type::Int(range) => Type::Int(of(*range)),
        Type::Float(range) => Type::Float(of(*range)),
        _ => Type::FLOAT,
    }
}

/// Returns the type of the part of a number before the point.
pub(super) fn whole_part(of: &Type) -> Type {
    let range = of.range().unwrap_or_default();
    let part = |it: f64| it.trunc() + 0.0;
    Type::Int(NumberRange { min: range.min.map(part), max: range.max.map(part) })
}

/// The numbers that compare with some others in one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedRange {
    range: NumberRange,
    /// Whether the ends are outside.
    is_open: bool,
}

/// Returns the numbers `a` for which `a operator b` may hold with a number of a range.
pub(super) fn compared(operator: Operator, b: NumberRange) -> ComparedRange {
    let range = match operator {
        Operator::Less | Operator::LessOrEqual => NumberRange { min: None, max: b.max },
        Operator::Greater | Operator::GreaterOrEqual => NumberRange { min: b.min, max: None },
        Operator::Equal => b,
        _ => NumberRange::ALL,
    };
    ComparedRange { range, is_open: matches!(operator, Operator::Less | Operator::Greater) }
}

/// Returns the range from one count to another.
pub(super) fn sizes(min: usize, max: usize) -> NumberRange {
    let number = |it| f64::from(u32::try_from(it).unwrap_or(u32::MAX));
    NumberRange { min: Some(number(min)), max: Some(number(max)) }
}

/// Returns the only number of a range.
pub(super) fn single(of: NumberRange) -> Option<f64> {
    of.min.filter(|it| of.max == Some(*it))
}

/// Returns the range of the whole numbers of another range without one of them, which is narrower if that one is an end.
pub(super) fn without(of: NumberRange, value: f64) -> NumberRange {
    let is_only = of.min == of.max;
    let is_end = |end: &f64| !is_only && end.total_cmp(&value).is_eq();
    NumberRange {
        min: of.min.map(|it| if is_end(&it) { it + 1.0 } else { it }),
        max: of.max.map(|it| if is_end(&it) { it - 1.0 } else { it }),
    }
}

impl ComparedRange {
    /// Returns the range of the whole numbers among them.
    pub(super) fn whole(self) -> NumberRange {
        let NumberRange { min, max } = self.range;
        let above = |it: f64| if self.is_open { it.floor() + 1.0 } else { it.ceil() };
        let below = |it: f64| if self.is_open { it.ceil() - 1.0 } else { it.floor() };
        NumberRange { min: min.map(above), max: max.map(below) }
    }

    /// Returns the smallest range with its ends that includes all of them.
    pub(super) fn closed(self) -> NumberRange {
        self.range
    }
}

fn of_both(a: &Type, b: &Type, of: impl Fn(NumberRange, NumberRange) -> NumberRange) -> Type {
    match (a, b) {
        (Type::Int(a), Type::Int(b)) => Type::Int(of(*a, *b)),
        (Type::Int(a) | Type::Float(a), Type::Int(b) | Type::Float(b)) => Type::Float(of(*a, *b)),
        _ => Type::Any,
    }
}

/// Returns the range with these ends, open where one is infinite.
fn between(min: f64, max: f64) -> NumberRange {
    // The sum with zero is never minus zero, which would be shown as `-0`.
    let end = |it: f64| it.is_finite().then_some(it + 0.0);
    NumberRange { min: end(min), max: end(max) }
}

fn opposite(of: NumberRange) -> NumberRange {
    let (min, max) = ends(of);
    between(-max, -min)
}

fn sum_of(a: NumberRange, b: NumberRange) -> NumberRange {
    let ((a_min, a_max), (b_min, b_max)) = (ends(a), ends(b));
    between(a_min + b_min, a_max + b_max)
}

fn product(a: NumberRange, b: NumberRange) -> NumberRange {
    // An open end is infinite. Zero times infinity is zero here: no number is infinite.
    let times = |a: f64, b: f64| if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
    let ((a_min, a_max), (b_min, b_max)) = (ends(a), ends(b));
    hull([times(a_min, b_min), times(a_min, b_max), times(a_max, b_min), times(a_max, b_max)])
}

fn quotient(a: NumberRange, b: NumberRange) -> NumberRange {
    let ((a_min, a_max), (b_min, b_max)) = (ends(a), ends(b));
    if b_min <= 0.0 && b_max >= 0.0 {
        // A fraction may be as close to zero as it likes.
        return NumberRange::ALL;
    }
    let by = |a: f64, b: f64| if b.is_infinite() { 0.0 } else { a / b };
    hull([by(a_min, b_min), by(a_min, b_max), by(a_max, b_min), by(a_max, b_max)])
}

/// The division of whole numbers drops the fraction.
fn without_fraction(of: NumberRange) -> NumberRange {
    let (min, max) = ends(of);
    between(min.trunc(), max.trunc())
}

/// The remainder has the sign of the dividend and is smaller than the divisor, by `gap` at least.
fn remainder(a: NumberRange, b: NumberRange, gap: f64) -> NumberRange {
    let ((a_min, a_max), (b_min, b_max)) = (ends(a), ends(b));
    if b_min == 0.0 && b_max == 0.0 {
        // It has no value at all.
        return NumberRange::ALL;
    }
    let largest = (b_min.abs().max(b_max.abs()) - gap).max(0.0);
    between(a_min.max(-largest).min(0.0), a_max.min(largest).max(0.0))
}

/// Returns the ends of a range, infinite where it is open.
fn ends(of: NumberRange) -> (f64, f64) {
    (of.min.unwrap_or(f64::NEG_INFINITY), of.max.unwrap_or(f64::INFINITY))
}

/// Returns the range from the smallest to the largest of some numbers.
fn hull(of: [f64; 4]) -> NumberRange {
    between(
        of.into_iter().fold(f64::INFINITY, f64::min),
        of.into_iter().fold(f64::NEG_INFINITY, f64::max),
    )
}
