//! Arithmetic: whole numbers are exact; next to a float they become floats.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{evaluate::Evaluated, evaluate_error::EvaluateError, syntax::Operator};

#[derive(Clone, Copy)]
pub(super) enum Numeric {
    /// JSON has whole numbers up to 2⁶⁴; those beyond 64 bits with a sign are compared and shown, and results are never
    /// that large.
    Int(i128),
    Float(f64),
}

pub(super) fn arithmetic(operator: Operator, left: Numeric, right: Numeric) -> Evaluated<Value> {
    let symbol = operator.symbol();
    let by_zero = match right {
        Numeric::Int(it) => it == 0,
        Numeric::Float(it) => it == 0.0,
    };
    if by_zero && matches!(operator, Operator::Divide | Operator::Remainder) {
        return Err(EvaluateError::DivisionByZero);
    }
    if let (Numeric::Int(left), Numeric::Int(right)) = (left, right) {
        let result = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            Operator::Remainder => left.checked_rem(right),
            _ => None,
        };
        return whole(result, symbol);
    }
    let left = left.as_float();
    let right = right.as_float();
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
        _ => f64::NAN,
    };
    float(result, symbol)
}

/// Computes with numbers that stand for floats, which JSON may write as whole ones: the half of `7` is `3.5`.
pub(super) fn arithmetic_of_floats(
    operator: Operator,
    left: Numeric,
    right: Numeric,
) -> Evaluated<Value> {
    let as_floats = || arithmetic(operator, Numeric::Float(left.as_float()), right);
    match operator {
        Operator::Divide => as_floats(),
        // Whole results stay exact as far as whole numbers go.
        _ => arithmetic(operator, left, right).or_else(|_| as_floats()),
    }
}

impl Numeric {
    #[expect(clippy::cast_precision_loss, reason = "beside a float, a whole number is one as well")]
    pub(super) fn as_float(self) -> f64 {
        match self {
            Self::Int(it) => it as f64,
            Self::Float(it) => it,
        }
    }
}

pub(super) fn numeric(value: &Value) -> Option<Numeric> {
    let Value::Number(number) = value else { return None };
    number.as_i128().map(Numeric::Int).or_else(|| number.as_f64().map(Numeric::Float))
}

pub(super) fn order_of(left: Numeric, right: Numeric) -> Option<Ordering> {
    match (left, right) {
        (Numeric::Int(left), Numeric::Int(right)) => Some(left.cmp(&right)),
        _ => left.as_float().partial_cmp(&right.as_float()),
    }
}

/// Returns a whole number that an operator has computed, if it is in the range of numbers.
pub(super) fn whole(number: Option<i128>, operator: &'static str) -> Evaluated<Value> {
    let number = number.and_then(|it| i64::try_from(it).ok());
    number.map(Value::from).ok_or(EvaluateError::Range(operator))
}

pub(super) fn float(number: f64, operator: &'static str) -> Evaluated<Value> {
    Number::from_f64(number).map(Value::Number).ok_or(EvaluateError::Range(operator))
}
