//! Operations of a template are [tried](super::tried) on samples of their operands, and those that fail are reported.

use graphrun_core::state::Type;
use graphrun_expressions::typing::describe;
use minijinja::{
    Value,
    machinery::{
        Span,
        ast::{CallArg, Expr},
    },
};

use super::{
    checker::PromptChecker,
    guards::number_of,
    shapes::{alternatives, items_of},
    tried::{FailingValues, Failure, OPERANDS, Operand},
};

/// An expression with its type.
#[derive(Clone, Copy)]
pub(super) struct TypedExpression<'e> {
    pub(super) expression: &'e Expr<'e>,
    pub(super) ty: &'e Type,
}

/// An operand of an operation that is tried.
#[derive(Clone, Copy)]
pub(super) struct TestedOperand<'e> {
    /// The expression, unless it is the text of a block.
    pub(super) expression: Option<&'e Expr<'e>>,
    pub(super) ty: &'e Type,
}

impl<'e> From<TypedExpression<'e>> for TestedOperand<'e> {
    fn from(TypedExpression { expression, ty }: TypedExpression<'e>) -> Self {
        Self { expression: Some(expression), ty }
    }
}

impl TestedOperand<'_> {
    /// Returns the value of a literal, or its type.
    fn operand(&self) -> Operand {
        let Some(expression) = self.expression else { return Operand::Of(self.ty.clone()) };
        match (expression, number_of(expression)) {
            (Expr::Const(it), _) => Operand::literal(&it.value),
            (_, Some(number)) => Operand::literal(&Value::from(number)),
            _ => Operand::Of(self.ty.clone()),
        }
    }

    /// How a message shows it.
    fn shown(&self) -> String {
        match self.operand() {
            Operand::Literal(value) if value.as_str().is_none() => format!("`{value}`"),
            _ => describe(self.ty.required()),
        }
    }

    /// Returns whether it is a value of a type that says something.
    fn is_known(&self) -> bool {
        match self.operand() {
            Operand::Literal(value) => value.as_str().is_some(),
            Operand::Of(ty) => ty.required() != &Type::Any,
        }
    }
}

impl PromptChecker<'_, '_> {
    /// Tries an operation on samples of its operands, and reports one that always fails. Returns its type.
    pub(super) fn try_operation(
        &mut self,
        source: &str,
        what: &str,
        operands: &[TypedExpression<'_>],
        span: Span,
    ) -> Type {
        let operands: Vec<TestedOperand<'_>> = operands.iter().map(|it| (*it).into()).collect();
        self.try_values(source, what, &operands, operands.len(), span)
    }

    /// Tries an operation; messages show the types of the first operands.
    pub(super) fn try_values(
        &mut self,
        source: &str,
        what: &str,
        operands: &[TestedOperand<'_>],
        shown: usize,
        span: Span,
    ) -> Type {
        let mut values: Vec<Operand> = operands.iter().map(TestedOperand::operand).collect();
        let ty = match self.tried.operation(source, &values) {
            Ok(ty) => ty,
            Err(failure) => {
                self.report_failure(&failure, what, &operands[..shown], span);
                return Type::Any;
            }
        };
        for (at, operand) in operands.iter().enumerate() {
            let Some(expression) = operand.expression else { continue };
            for form in self.null_forms(expression, operand.ty) {
                let value = std::mem::replace(&mut values[at], Operand::Literal(form));
                let fails = self.tried.operation(source, &values).is_err();
                values[at] = value;
                if fails {
                    self.report_absence(expression, operand.ty);
                    break;
                }
            }
        }
        ty
    }

    /// Returns the type of the result of an operation whose failures are reported elsewhere.
    pub(super) fn type_of_operation(
        &mut self,
        source: &str,
        first: &Type,
        rest: &[TypedExpression<'_>],
    ) -> Type {
        let rest = rest.iter().map(|it| TestedOperand::from(*it).operand());
        let operands: Vec<Operand> = [Operand::Of(first.clone())].into_iter().chain(rest).collect();
        self.tried.operation(source, &operands).unwrap_or(Type::Any)
    }

    fn report_failure(
        &mut self,
        failure: &Failure,
        what: &str,
        operands: &[TestedOperand<'_>],
        span: Span,
    ) {
        let shown: Vec<String> = operands.iter().map(TestedOperand::shown).collect();
        let shown = if operands.iter().any(TestedOperand::is_known) {
            format!("does not work on {}", shown.join(" and "))
        } else {
            "always fails".to_owned()
        };
        let reason = match failure.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        match failure.when {
            FailingValues::Always => {
                let message = format!("{what} {shown}{reason}");
                let is_mixed = operands.iter().any(|it| alternatives(it.ty).len() > 1);
                let help = "give it one type in all cases, or convert it: `… | string`";
                self.problem("GR022", span, message, "always fails").help =
                    is_mixed.then(|| help.to_owned());
            }
            FailingValues::Value => {
                let message = format!("{what} {shown}, not for all values{reason}");
                self.problem("GR022", span, message, "fails at times");
            }
            FailingValues::Empty => {
                let message = format!("{what} {shown} if it is empty{reason}");
                self.problem("GR022", span, message, "fails at times");
            }
            FailingValues::Absent => {
                let message = format!("{what} {shown} if a part is absent{reason}");
                let item = operands.first().and_then(|it| items_of(it.ty));
                let selection = match item {
                    Some(Type::Optional(_)) => "reject(\"none\")",
                    _ => "selectattr(\"PART\")",
                };
                let help = format!("leave out such items first: `… | {selection} | …`");
                self.problem("GR026", span, message, "may be absent").help = Some(help);
            }
        }
    }

    /// Tries an operation with arguments. `source` makes its text from theirs. `first` is the value of a filter or a test; a
    /// function has none.
    pub(super) fn try_with_arguments<'e>(
        &mut self,
        source: impl Fn(&str) -> String,
        what: &str,
        first: impl Into<Option<TestedOperand<'e>>>,
        arguments: &'e [CallArg<'e>],
        types: &'e [Type],
        span: Span,
    ) -> Type {
        let mut operands: Vec<TestedOperand<'_>> = first.into().into_iter().collect();
        let shown = if operands.is_empty() { arguments.len() } else { 1 };
        let mut texts = Vec::new();
        if arguments.len() >= OPERANDS.len() {
            let message = format!("{what} has too many arguments");
            self.problem("GR041", span, message, "too many");
            return Type::Any;
        }
        let names = &OPERANDS[operands.len()..];
        for ((argument, ty), name) in arguments.iter().zip(types).zip(names) {
            let (expression, text) = match argument {
                CallArg::Pos(it) => (it, (*name).to_owned()),
                CallArg::Kwarg(key, it) => (it, format!("{key}={name}")),
                CallArg::PosSplat(it) | CallArg::KwargSplat(it) => {
                    self.refuse_splat(it.span());
                    return Type::Any;
                }
            };
            operands.push(TestedOperand { expression: Some(expression), ty });
            texts.push(text);
        }
        let texts = texts.join(", ");
        let texts = if texts.is_empty() { texts } else { format!("({texts})") };
        self.try_values(&source(&texts), what, &operands, shown, span)
    }

    pub(super) fn refuse_splat(&mut self, span: Span) {
        let message = "a prompt has no `*` before an argument".to_owned();
        self.problem("GR040", span, message, "not in a prompt").help =
            Some("write the arguments one by one".to_owned());
    }
}
