//! Values that may be absent: where a value is needed, a condition must have proved that it is there.

use graphrun_core::state::{Channel, Type};
use minijinja::{
    Value,
    machinery::ast::{BinOpKind, Expr},
};

use super::{checker::PromptChecker, guards::path_of, tried::NOTHING};

/// The filters whose result has items if their list has some.
const KEEPS_ITEMS: &[&str] = &["sort", "reverse", "list", "map", "unique"];

impl PromptChecker<'_, '_> {
    /// Returns the type of an expression whose value is needed. A value that may be absent must be guarded. The type of
    /// a field that may be null is optional: it is written as `none`, and so is a choice of it.
    pub(super) fn present(&mut self, expression: &Expr<'_>) -> Type {
        match expression {
            Expr::IfExpr(it) => self.choice(it, Self::present),
            Expr::BinOp(it) if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                self.connection(it, Self::present)
            }
            Expr::Var(it) if self.variable(it.id).is_none() => self.value(expression),
            Expr::Const(_) => self.ty(expression),
            _ => {
                let ty = self.ty(expression);
                self.check_presence(expression, &ty);
                if self.null_forms(expression, &ty).is_empty() { ty.required().clone() } else { ty }
            }
        }
    }

    /// Returns the type of an expression that must be there and not null, because a part of it is read.
    pub(super) fn required(&mut self, expression: &Expr<'_>) -> Type {
        let ty = self.present(expression);
        if matches!(ty, Type::Optional(_)) {
            self.report_absence(expression, &ty);
        }
        ty.required().clone()
    }

    /// Returns the type of an expression, which is not optional if a condition has proved its presence.
    pub(super) fn value(&mut self, expression: &Expr<'_>) -> Type {
        let ty = self.ty(expression);
        if self.is_proved(expression) { ty.required().clone() } else { ty }
    }

    pub(super) fn is_proved(&self, expression: &Expr<'_>) -> bool {
        path_of(expression).is_some_and(|path| {
            let root = path.split('.').next().unwrap_or_default();
            let is_fact = self.scope.schema.channel(root).is_none() && !self.is_hidden(root);
            self.known.is_present(&path)
                || self.set_under.has_value(&path)
                || self.missed.contains(&path)
                || is_fact && self.known.is_part_of_trigger(&path)
        })
    }

    /// What an expression of an optional type is when it is not there: such values pass [`Self::present`].
    pub(super) fn null_forms(&self, expression: &Expr<'_>, ty: &Type) -> Vec<Value> {
        if !matches!(ty, Type::Optional(_)) || self.is_proved(expression) {
            return Vec::new();
        }
        let of = |it: &Expr<'_>| self.null_forms(it, ty);
        match expression {
            Expr::Var(it) if self.variable(it.id).is_none() => vec![Value::from(())],
            Expr::IfExpr(it) => {
                let otherwise = it.false_expr.as_ref().map_or(vec![NOTHING.clone()], of);
                [of(&it.true_expr), otherwise].concat()
            }
            Expr::BinOp(it) => [of(&it.left), of(&it.right)].concat(),
            Expr::GetAttr(_) if self.is_whole(expression) => vec![Value::from(())],
            _ => Vec::new(),
        }
    }

    /// Returns whether a part of a field is there, but may be null: a reader makes a value of a Rust type, which has
    /// all of its fields.
    fn is_whole(&self, expression: &Expr<'_>) -> bool {
        path_of(expression).is_some_and(|path| {
            let root = path.split('.').next().unwrap_or_default();
            let channel = self.scope.schema.channel(root);
            channel.is_some_and(Channel::reads_whole_records) && !path.contains(['[', '('])
        })
    }

    /// Returns whether a condition has proved that a list has items.
    pub(super) fn has_items(&self, list: &Expr<'_>) -> bool {
        if path_of(list).is_some_and(|it| self.known.least_size(&it) > 0) {
            return true;
        }
        match list {
            Expr::Filter(it) if KEEPS_ITEMS.contains(&it.name) => {
                it.expr.as_ref().is_some_and(|it| self.has_items(it))
            }
            _ => false,
        }
    }

    /// Reports a value that may be absent and is not guarded.
    fn check_presence(&mut self, expression: &Expr<'_>, ty: &Type) {
        if matches!(ty, Type::Optional(_)) && !self.is_whole(expression) {
            self.report_absence(expression, ty);
        }
    }

    /// Reports a value of an optional type that may be absent.
    pub(super) fn report_absence(&mut self, expression: &Expr<'_>, ty: &Type) {
        // A condition drops zero and false, too.
        let (test, default) = match ty.required() {
            Type::Int(_) | Type::Float(_) => (" is defined", "default(0)"),
            Type::Bool => (" is defined", "default(false)"),
            _ => ("", "default(\"…\")"),
        };
        let Some(path) = path_of(expression) else {
            let message = "this may be absent, and then the prompt cannot be rendered";
            let help = format!("give another value: `… | {default}`");
            self.problem("GR026", expression.span(), message.to_owned(), "may be absent").help =
                Some(help);
            return;
        };
        if !self.is_proved(expression) {
            let container = match expression {
                Expr::GetAttr(it) => Some(&it.expr),
                Expr::GetItem(it) => Some(&it.expr),
                _ => None,
            };
            let is_nullable = container.is_some_and(|it| self.is_map_with_nulls(it));
            let (what, why) = if is_nullable {
                ("absent or null", "; `in` is true for null, too")
            } else {
                ("absent", "")
            };
            let message = format!("`{path}` may be {what}, and then the prompt cannot be rendered");
            let help = format!(
                "guard it: `{{% if {path}{test} %}} … {{% endif %}}`, or give another value: \
                 `{{{{ {path} | {default} }}}}`{why}"
            );
            self.problem("GR026", expression.span(), message, "may be absent").help = Some(help);
            self.missed.push(path);
        }
    }
}
