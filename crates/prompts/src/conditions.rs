//! Conditions of a template that are always or never true.
//!
//! A condition that means the same in an expression of the workflow is written as one, and
//! [`Expression::constant_parts`] decides it. Others, and values that may be absent, are left out: in a template they are false.

use std::collections::BTreeMap;

use graphrun_expressions::{
    Expression, ExpressionScope,
    flow::{guarantee::Guarantees, written::AssignedFields},
};
use minijinja::{
    Value,
    machinery::ast::{BinOpKind, Expr, UnaryOpKind},
    value::ValueKind,
};
use serde_json::json;

use super::{checker::PromptChecker, guards::outside_of_chain};

impl PromptChecker<'_, '_> {
    /// Reports the innermost parts of a condition that are always or never true. Returns whether there are any.
    pub(super) fn check_constant(&mut self, condition: &Expr<'_>) -> bool {
        let parts = match condition {
            Expr::BinOp(it) if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                vec![&it.left, &it.right]
            }
            Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => vec![&it.expr],
            _ => Vec::new(),
        };
        let mut is_inside = false;
        for part in parts {
            is_inside |= self.check_constant(part);
        }
        if is_inside {
            return true;
        }
        let Some(source) = self.as_expression(condition) else { return false };
        let scope = ExpressionScope {
            schema: self.scope.schema,
            written: &AssignedFields::everything(),
            nodes: self.scope.nodes,
            item: self.scope.item,
            variable: None,
            any_item: false,
            known: &Guarantees::NONE,
            output: false,
            types: &BTreeMap::new(),
            expected: None,
        };
        // The check of the template reports mistakes in the types.
        let Ok(expression) = Expression::compile(&source, scope) else { return false };
        let Some(problem) = expression.constant_parts().into_iter().next() else { return false };
        let part = &source[problem.range];
        let message = if part.len() < source.len() {
            format!("{}: `{part}`", problem.message)
        } else {
            problem.message
        };
        self.problem(problem.code, condition.span(), message, problem.label).help = problem.help;
        true
    }

    /// Writes an expression of a template as one of the workflow with the same meaning, if there is one.
    fn as_expression(&self, expression: &Expr<'_>) -> Option<String> {
        Some(match expression {
            Expr::Const(it) => constant(&it.value)?,
            Expr::Var(it) => {
                // The names of the template hide those of the state and the item.
                if self.variables.is_defined(it.id) {
                    return None;
                }
                it.id.to_owned()
            }
            Expr::GetAttr(it) => format!("{}.{}", self.as_expression(&it.expr)?, it.name),
            Expr::UnaryOp(it) => {
                let symbol = if matches!(it.op, UnaryOpKind::Not) { "!" } else { "-" };
                format!("{symbol}({})", self.as_expression(&it.expr)?)
            }
            Expr::BinOp(it) => self.joined(&it.left, it.op, &it.right)?,
            Expr::Compare(it) => {
                let [step] = it.ops.as_slice() else { return None };
                self.joined(&it.expr, outside_of_chain(step.op)?, &step.expr)?
            }
            Expr::Filter(it) if matches!(it.name, "length" | "count") && it.args.is_empty() => {
                format!("({}).size()", self.as_expression(it.expr.as_ref()?)?)
            }
            Expr::List(it) => {
                let items = it.items.iter().map(|it| self.as_expression(it));
                format!("[{}]", items.collect::<Option<Vec<_>>>()?.join(", "))
            }
            _ => return None,
        })
    }

    fn joined(&self, left: &Expr<'_>, operator: BinOpKind, right: &Expr<'_>) -> Option<String> {
        let symbol = symbol_of(operator)?;
        let left = self.as_expression(left)?;
        let right = self.as_expression(right)?;
        Some(format!("({left}) {symbol} ({right})"))
    }
}

/// Returns the symbol of an operator that means the same in an expression.
pub(super) fn symbol_of(operator: BinOpKind) -> Option<&'static str> {
    Some(match operator {
        BinOpKind::ScAnd => "&&",
        BinOpKind::ScOr => "||",
        BinOpKind::Eq => "==",
        BinOpKind::Ne => "!=",
        BinOpKind::Lt => "<",
        BinOpKind::Lte => "<=",
        BinOpKind::Gt => ">",
        BinOpKind::Gte => ">=",
        BinOpKind::In => "in",
        BinOpKind::Add => "+",
        BinOpKind::Sub => "-",
        BinOpKind::Mul => "*",
        // Division of whole numbers differs.
        _ => return None,
    })
}

/// A constant as it is written in an expression.
fn constant(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true().to_string()),
        ValueKind::Number => Some(value.to_string()),
        ValueKind::String => Some(json!(value.as_str()?).to_string()),
        ValueKind::Seq => {
            let items = value.try_iter().ok()?.map(|it| constant(&it));
            Some(format!("[{}]", items.collect::<Option<Vec<_>>>()?.join(", ")))
        }
        _ => None,
    }
}
