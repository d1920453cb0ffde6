//! A template whose operators are metered: a copy of its tree with a filter around each operand
//! that may be large.
//!
//! The engine has no other hook to count the operands of an operator. Code with the same cost for
//! small and large values, such as `and` or the access to a field, is copied unchanged. Text
//! between tags becomes an expression, so that the formatter counts it, also where a block captures
//! it.

use std::collections::BTreeSet;

use minijinja::{
    Value,
    machinery::{
        Span,
        ast::{
            AutoEscape, BinOp, BinOpKind, Call, CallArg, CallBlock, Compare, CompareOp, Const, Do,
            EmitExpr, Expr, Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List,
            Macro, Map, Set, SetBlock, Slice, Spanned, Stmt, Template, Test, Tuple, UnaryOp,
            UnaryOpKind, Var, WithBlock,
        },
    },
};

use super::{
    builtins::{COUNT, LIST, PART, PLUS, STEP, TEXT, TIMES},
    expressions::LOOP,
};

/// Returns a copy of a template that counts its operands, and the names that it reads.
pub(super) fn metered<'a>(template: &Stmt<'a>) -> (Stmt<'a>, BTreeSet<String>) {
    let mut copy = Copy::default();
    let stmt = match template {
        Stmt::Template(it) => {
            let children = copy.body(&it.children);
            Stmt::Template(Spanned::new(Template { children }, it.span()))
        }
        other => copy.statement(other).unwrap_or_else(|| nothing(Span::default())),
    };
    (stmt, copy.names.into_iter().map(str::to_owned).collect())
}

/// Returns the names that the body of a macro reads, with those of the blocks in it.
pub(super) fn reads<'a>(declaration: &Macro<'a>) -> BTreeSet<&'a str> {
    let mut copy = Copy::default();
    copy.exprs(&declaration.defaults);
    copy.body(&declaration.body);
    copy.names
}

/// Returns whether an expression is an end of a list, such as `tasks | first`, which an empty list has not. Written
/// out, it is `none` then.
pub(super) fn is_end(expression: &Expr<'_>) -> bool {
    let Expr::Filter(it) = expression else { return false };
    matches!(it.name, "first" | "last" | "min" | "max")
}

fn or_none(value: Expr<'_>, span: Span) -> Expr<'_> {
    let args = vec![CallArg::Pos(constant(Value::from("none"), span))];
    Expr::Filter(Spanned::new(Filter { name: "default", expr: Some(value), args }, span))
}

#[derive(Default)]
struct Copy<'a> {
    names: BTreeSet<&'a str>,
}

impl<'a> Copy<'a> {
    fn body(&mut self, statements: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
        statements.iter().filter_map(|it| self.statement(it)).collect()
    }

    /// Returns `None` for a statement that prompts cannot have; the checks report it.
    fn statement(&mut self, statement: &Stmt<'a>) -> Option<Stmt<'a>> {
        Some(match statement {
            Stmt::Template(it) => {
                let children = self.body(&it.children);
                Stmt::Template(Spanned::new(Template { children }, it.span()))
            }
            Stmt::EmitRaw(it) => emit(constant(Value::from(it.raw), it.span()), it.span()),
            Stmt::EmitExpr(it) if is_end(&it.expr) => {
                emit(or_none(self.expr(&it.expr), it.span()), it.span())
            }
            Stmt::EmitExpr(it) => emit(self.expr(&it.expr), it.span()),
            Stmt::IfCond(it) => {
                let copy = IfCond {
                    expr: self.expr(&it.expr),
                    true_body: self.body(&it.true_body),
                    false_body: self.body(&it.false_body),
                };
                Stmt::IfCond(Spanned::new(copy, it.span()))
            }
            Stmt::ForLoop(it) => {
                let copy = ForLoop {
                    target: target(&it.target),
                    iter: counted(TEXT, self.expr(&it.iter)),
                    filter_expr: it.filter_expr.as_ref().map(|it| self.expr(it)),
                    recursive: it.recursive,
                    body: self.body(&it.body),
                    else_body: self.body(&it.else_body),
                };
                Stmt::ForLoop(Spanned::new(copy, it.span()))
            }
            Stmt::WithBlock(it) => {
                let pair = |(name, value): &(Expr<'a>, Expr<'a>)| (target(name), self.expr(value));
                let assignments = it.assignments.iter().map(pair).collect();
                let copy = WithBlock { assignments, body: self.body(&it.body) };
                Stmt::WithBlock(Spanned::new(copy, it.span()))
            }
            Stmt::Set(it) => {
                let copy = Set { target: target(&it.target), expr: self.expr(&it.expr) };
                Stmt::Set(Spanned::new(copy, it.span()))
            }
            Stmt::SetBlock(it) => {
                let copy = SetBlock {
                    target: target(&it.target),
                    filter: it.filter.as_ref().map(|it| self.expr(it)),
                    body: self.body(&it.body),
                };
                Stmt::SetBlock(Spanned::new(copy, it.span()))
            }
            Stmt::AutoEscape(it) => {
                let copy =
                    AutoEscape { enabled: self.expr(&it.enabled), body: self.body(&it.body) };
                Stmt::AutoEscape(Spanned::new(copy, it.span()))
            }
            Stmt::FilterBlock(it) => {
                let copy = FilterBlock { filter: self.expr(&it.filter), body: self.body(&it.body) };
                Stmt::FilterBlock(Spanned::new(copy, it.span()))
            }
            Stmt::Macro(it) => Stmt::Macro(self.declaration(it)),
            Stmt::CallBlock(it) => {
                let copy = CallBlock {
                    call: self.call(&it.call),
                    macro_decl: self.declaration(&it.macro_decl),
                };
                Stmt::CallBlock(Spanned::new(copy, it.span()))
            }
            Stmt::Do(it) => Stmt::Do(Spanned::new(Do { call: self.call(&it.call) }, it.span())),
            Stmt::Block(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_) => return None,
        })
    }

    /// A macro takes the values of the names that it reads from where it stands. The engine overlooks those in slices,
    /// in the filters of blocks and in `set x = x`, so the copy begins with all of them, in a branch that is never taken.
    fn declaration(&mut self, it: &Spanned<Macro<'a>>) -> Spanned<Macro<'a>> {
        let span = it.span();
        let outside = std::mem::take(&mut self.names);
        let defaults = self.exprs(&it.defaults);
        let body = self.body(&it.body);
        let read = self.names.iter().filter(|it| **it != LOOP);
        let read = read.map(|id| emit(Expr::Var(Spanned::new(Var { id }, span)), span)).collect();
        let never = constant(Value::from(false), span);
        let first = IfCond { expr: never, true_body: read, false_body: Vec::new() };
        let first = Stmt::IfCond(Spanned::new(first, span));
        self.names.extend(outside);
        let copy = Macro {
            name: it.name,
            args: it.args.iter().map(target).collect(),
            defaults,
            body: [first].into_iter().chain(body).collect(),
        };
        Spanned::new(copy, span)
    }

    fn call(&mut self, it: &Spanned<Call<'a>>) -> Spanned<Call<'a>> {
        Spanned::new(Call { expr: self.expr(&it.expr), args: self.args(&it.args) }, it.span())
    }

    fn exprs(&mut self, all: &[Expr<'a>]) -> Vec<Expr<'a>> {
        all.iter().map(|it| self.expr(it)).collect()
    }

    fn optional(&mut self, expr: Option<&Expr<'a>>) -> Option<Expr<'a>> {
        expr.map(|it| self.expr(it))
    }

    /// Counts each argument: a method may read all of one.
    fn args(&mut self, args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
        let mut copy = |it: &Expr<'a>| counted(COUNT, self.expr(it));
        args.iter()
            .map(|it| match it {
                CallArg::Pos(it) => CallArg::Pos(copy(it)),
                CallArg::Kwarg(name, it) => CallArg::Kwarg(name, copy(it)),
                CallArg::PosSplat(it) => CallArg::PosSplat(copy(it)),
                CallArg::KwargSplat(it) => CallArg::KwargSplat(copy(it)),
            })
            .collect()
    }

    fn expr(&mut self, expr: &Expr<'a>) -> Expr<'a> {
        let span = expr.span();
        match expr {
            Expr::Var(it) => {
                self.names.insert(it.id);
                Expr::Var(Spanned::new(Var { id: it.id }, span))
            }
            Expr::Const(it) => constant(it.value.clone(), span),
            Expr::Slice(it) => {
                let copy = Slice {
                    expr: counted(COUNT, self.expr(&it.expr)),
                    start: self.optional(it.start.as_ref()),
                    stop: self.optional(it.stop.as_ref()),
                    step: self.optional(it.step.as_ref()).map(checked_step),
                };
                counted(LIST, Expr::Slice(Spanned::new(copy, span)))
            }
            Expr::UnaryOp(it) => {
                #[expect(
                    clippy::needless_match,
                    reason = "the operator is neither `Copy` nor `Clone`"
                )]
                let op = match it.op {
                    UnaryOpKind::Not => UnaryOpKind::Not,
                    UnaryOpKind::Neg => UnaryOpKind::Neg,
                };
                Expr::UnaryOp(Spanned::new(UnaryOp { op, expr: self.expr(&it.expr) }, span))
            }
            Expr::BinOp(it) => self.binary(it, span),
            Expr::Compare(it) => {
                let step = |it: &CompareOp<'a>| CompareOp {
                    op: it.op,
                    expr: counted(COUNT, self.expr(&it.expr)),
                };
                let ops = it.ops.iter().map(step).collect();
                let copy = Compare { expr: counted(COUNT, self.expr(&it.expr)), ops };
                Expr::Compare(Spanned::new(copy, span))
            }
            Expr::IfExpr(it) => {
                let copy = IfExpr {
                    test_expr: self.expr(&it.test_expr),
                    true_expr: self.expr(&it.true_expr),
                    false_expr: self.optional(it.false_expr.as_ref()),
                };
                Expr::IfExpr(Spanned::new(copy, span))
            }
            // Filters and tests count their own arguments.
            Expr::Filter(it) => {
                let copy = Filter {
                    name: it.name,
                    expr: self.optional(it.expr.as_ref()),
                    args: self.args(&it.args),
                };
                Expr::Filter(Spanned::new(copy, span))
            }
            Expr::Test(it) => {
                let copy =
                    Test { name: it.name, expr: self.expr(&it.expr), args: self.args(&it.args) };
                Expr::Test(Spanned::new(copy, span))
            }
            Expr::GetAttr(it) => Expr::GetAttr(Spanned::new(
                GetAttr { expr: self.expr(&it.expr), name: it.name },
                span,
            )),
            Expr::GetItem(it) => {
                let copy = GetItem {
                    expr: counted(TEXT, self.expr(&it.expr)),
                    subscript_expr: self.expr(&it.subscript_expr),
                };
                Expr::GetItem(Spanned::new(copy, span))
            }
            Expr::Call(it) => Expr::Call(self.call(it)),
            Expr::List(it) => counted(
                COUNT,
                Expr::List(Spanned::new(List { items: self.parts(&it.items) }, span)),
            ),
            Expr::Tuple(it) => counted(
                COUNT,
                Expr::Tuple(Spanned::new(Tuple { items: self.parts(&it.items) }, span)),
            ),
            Expr::Map(it) => {
                let copy = Map { keys: self.exprs(&it.keys), values: self.parts(&it.values) };
                counted(COUNT, Expr::Map(Spanned::new(copy, span)))
            }
        }
    }

    /// Copies the parts of a list or a mapping. A part that is absent is null, as in the lists and records of the state.
    fn parts(&mut self, parts: &[Expr<'a>]) -> Vec<Expr<'a>> {
        self.exprs(parts).into_iter().map(|it| counted(PART, it)).collect()
    }

    fn binary(&mut self, it: &BinOp<'a>, span: Span) -> Expr<'a> {
        let left = self.expr(&it.left);
        let right = self.expr(&it.right);
        let (left, right) = match it.op {
            BinOpKind::Add => return with_argument(PLUS, left, right),
            BinOpKind::Mul => return with_argument(TIMES, left, right),
            BinOpKind::ScAnd | BinOpKind::ScOr => (left, right),
            BinOpKind::Sub
            | BinOpKind::Div
            | BinOpKind::FloorDiv
            | BinOpKind::Rem
            | BinOpKind::Pow => (left, right),
            BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte
            | BinOpKind::Concat
            | BinOpKind::In => (counted(COUNT, left), counted(COUNT, right)),
        };
        Expr::BinOp(Spanned::new(BinOp { op: it.op, left, right }, span))
    }
}

fn emit(expr: Expr<'_>, span: Span) -> Stmt<'_> {
    Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, span))
}

/// Copies the target of an assignment, which is no value itself.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    match expr {
        Expr::List(it) => {
            Expr::List(Spanned::new(List { items: it.items.iter().map(target).collect() }, span))
        }
        Expr::Tuple(it) => {
            Expr::Tuple(Spanned::new(Tuple { items: it.items.iter().map(target).collect() }, span))
        }
        Expr::GetAttr(it) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: target(&it.expr), name: it.name }, span))
        }
        Expr::Var(it) => Expr::Var(Spanned::new(Var { id: it.id }, span)),
        // The parser accepts no other target.
        _ => constant(Value::UNDEFINED, span),
    }
}

fn nothing<'a>(span: Span) -> Stmt<'a> {
    emit(constant(Value::from(""), span), span)
}

fn constant<'a>(value: Value, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(Const { value }, span))
}

/// Returns an expression behind a filter that counts its value.
fn counted<'a>(filter: &'static str, expr: Expr<'a>) -> Expr<'a> {
    // The size of a constant is bounded by the source.
    if matches!(expr, Expr::Const(_)) {
        return expr;
    }
    let span = expr.span();
    Expr::Filter(Spanned::new(Filter { name: filter, expr: Some(expr), args: Vec::new() }, span))
}

/// Returns a step of a slice behind a filter that refuses a negative one, also if it is a constant.
fn checked_step(step: Expr<'_>) -> Expr<'_> {
    let span = step.span();
    Expr::Filter(Spanned::new(Filter { name: STEP, expr: Some(step), args: Vec::new() }, span))
}

fn with_argument<'a>(filter: &'static str, left: Expr<'a>, right: Expr<'a>) -> Expr<'a> {
    let span = left.span();
    let args = vec![CallArg::Pos(right)];
    Expr::Filter(Spanned::new(Filter { name: filter, expr: Some(left), args }, span))
}
