//! Walks the tree of a template and checks names, fields, enum values and what may be unwritten.
//!
//! It says nothing it is not sure of: where a type is not known, anything goes. What is checked is
//! therefore wrong on every way; that a field is written on every way is not promised.

use std::{collections::BTreeSet, ops::Range};

use minijinja::machinery::{
    Span,
    ast::{BinOpKind, Call, CallArg, CompareOpKind, Expr, Filter, ForLoop, Stmt, UnaryOpKind},
    parse,
};

use super::{
    TEMPLATE,
    names::{FILTERS, FUNCTIONS, TESTS},
};
use crate::{
    graph::Via,
    id::{ChannelName, NodeName},
    state::{Field, Record, Schema, Type},
    workflow::{
        report::{Problem, suggestion},
        typing::{describe, values_of},
    },
};

/// What a prompt will see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptScope<'a> {
    pub(crate) schema: &'a Schema,
    /// The channels that something may have written by then.
    pub(crate) written: &'a BTreeSet<ChannelName>,
    pub(crate) node: &'a NodeName,
    /// Whether the node has a bound.
    pub(crate) bounded: bool,
}

pub(super) fn check(text: &str, scope: PromptScope<'_>) -> Vec<Problem> {
    // A text that does not parse has been refused when the prompt was compiled.
    let Ok(template) = parse(text, TEMPLATE, minijinja::syntax::SyntaxConfig::default()) else {
        return Vec::new();
    };
    let mut checker =
        Checker { scope, variables: Vec::new(), defined: Vec::new(), problems: Vec::new() };
    checker.statement(&template);
    checker.problems
}

struct Checker<'a> {
    scope: PromptScope<'a>,
    /// What the template itself has named.
    variables: Vec<(String, Type)>,
    /// The names that a condition around has found to be defined.
    defined: Vec<String>,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn body(&mut self, statements: &[Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// What a block names is not known outside of it.
    fn block(&mut self, statements: &[Stmt<'_>]) {
        let outside = self.variables.len();
        self.body(statements);
        self.variables.truncate(outside);
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(it) => self.body(&it.children),
            Stmt::EmitRaw(_) => (),
            Stmt::EmitExpr(it) => drop(self.ty(&it.expr)),
            Stmt::IfCond(it) => {
                self.ty(&it.expr);
                // `set` inside an `if` is seen after it.
                self.knowing(&it.expr, true, |checker| checker.body(&it.true_body));
                self.knowing(&it.expr, false, |checker| checker.body(&it.false_body));
            }
            Stmt::ForLoop(it) => self.for_loop(it),
            Stmt::WithBlock(it) => {
                let outside = self.variables.len();
                for (target, value) in &it.assignments {
                    let ty = self.ty(value);
                    self.name_target(target, ty);
                }
                self.body(&it.body);
                self.variables.truncate(outside);
            }
            Stmt::Set(it) => {
                let ty = self.ty(&it.expr);
                self.name_target(&it.target, ty);
            }
            Stmt::SetBlock(it) => {
                self.block(&it.body);
                self.name_target(&it.target, Type::String);
            }
            Stmt::AutoEscape(it) => self.block(&it.body),
            Stmt::FilterBlock(it) => {
                self.block(&it.body);
                self.ty(&it.filter);
            }
            Stmt::Macro(it) => {
                self.variables.push((it.name.to_owned(), Type::Any));
                let outside = self.variables.len();
                for argument in &it.args {
                    self.name_target(argument, Type::Any);
                }
                self.variables.push(("caller".to_owned(), Type::Any));
                self.body(&it.body);
                self.variables.truncate(outside);
            }
            Stmt::CallBlock(it) => {
                self.call(&it.call);
                let outside = self.variables.len();
                for argument in &it.macro_decl.args {
                    self.name_target(argument, Type::Any);
                }
                self.body(&it.macro_decl.body);
                self.variables.truncate(outside);
            }
            Stmt::Do(it) => drop(self.call(&it.call)),
            Stmt::Block(it) => self.stands_alone(it.span(), "block"),
            Stmt::Import(it) => self.stands_alone(it.span(), "import"),
            Stmt::FromImport(it) => self.stands_alone(it.span(), "from … import"),
            Stmt::Extends(it) => self.stands_alone(it.span(), "extends"),
            Stmt::Include(it) => self.stands_alone(it.span(), "include"),
        }
    }

    fn for_loop(&mut self, it: &ForLoop<'_>) {
        let iterated = self.ty(&it.iter);
        let item = match iterated.required() {
            // A recursive loop goes into items of its own items.
            _ if it.recursive => Type::Any,
            Type::List(item) => Type::clone(item),
            Type::Map(_) | Type::Record(_) => Type::String,
            Type::Bool | Type::Int | Type::Float => {
                let message = format!("{} cannot be looped over", describe(&iterated));
                self.problem("GR022", it.iter.span(), message, "no list");
                Type::Any
            }
            Type::Any | Type::String | Type::Enum(_) | Type::Optional(_) => Type::Any,
        };
        let outside = self.variables.len();
        self.name_target(&it.target, item);
        self.variables.push(("loop".to_owned(), Type::Any));
        match &it.filter_expr {
            Some(filter) => {
                self.ty(filter);
                self.knowing(filter, true, |checker| checker.body(&it.body));
            }
            None => self.body(&it.body),
        }
        self.variables.truncate(outside);
        self.block(&it.else_body);
    }

    fn name_target(&mut self, target: &Expr<'_>, ty: Type) {
        match target {
            Expr::Var(it) => self.variables.push((it.id.to_owned(), ty)),
            Expr::List(it) => it.items.iter().for_each(|it| self.name_target(it, Type::Any)),
            Expr::Tuple(it) => it.items.iter().for_each(|it| self.name_target(it, Type::Any)),
            // `set namespace.field`.
            _ => (),
        }
    }

    /// The type of an expression; [`Type::Any`] where it is not known.
    fn ty(&mut self, expression: &Expr<'_>) -> Type {
        match expression {
            Expr::Var(it) => self.name(it.id, it.span()),
            Expr::Const(it) => match it.value.as_str() {
                Some(text) => Type::Enum(vec![text.to_owned()]),
                None => Type::Any,
            },
            Expr::GetAttr(it) => {
                let ty = self.ty(&it.expr);
                self.field(&ty, it.name, it.span())
            }
            Expr::GetItem(it) => {
                let ty = self.ty(&it.expr);
                let index = self.ty(&it.subscript_expr);
                match (ty.required(), values_of(&index)) {
                    (Type::Record(_), Some([name])) => self.field(&ty, name, it.span()),
                    (Type::List(item), _) => Type::clone(item),
                    (Type::Map(value), _) => Type::clone(value),
                    _ => Type::Any,
                }
            }
            Expr::Slice(it) => {
                let parts = [&it.start, &it.stop, &it.step];
                parts.into_iter().flatten().for_each(|it| drop(self.ty(it)));
                self.ty(&it.expr)
            }
            Expr::UnaryOp(it) => {
                self.ty(&it.expr);
                Type::Any
            }
            Expr::BinOp(it) => {
                let left = self.ty(&it.left);
                match it.op {
                    BinOpKind::ScAnd => self.knowing(&it.left, true, |it2| drop(it2.ty(&it.right))),
                    BinOpKind::ScOr => self.knowing(&it.left, false, |it2| drop(it2.ty(&it.right))),
                    BinOpKind::Eq | BinOpKind::Ne => {
                        let right = self.ty(&it.right);
                        self.compare(&left, &it.left, &right, &it.right);
                    }
                    _ => drop(self.ty(&it.right)),
                }
                Type::Any
            }
            Expr::Compare(it) => {
                let mut left = (self.ty(&it.expr), &it.expr);
                for step in &it.ops {
                    let right = (self.ty(&step.expr), &step.expr);
                    if matches!(step.op, CompareOpKind::Eq | CompareOpKind::Ne) {
                        self.compare(&left.0, left.1, &right.0, right.1);
                    }
                    left = right;
                }
                Type::Any
            }
            Expr::IfExpr(it) => {
                self.ty(&it.test_expr);
                self.knowing(&it.test_expr, true, |checker| drop(checker.ty(&it.true_expr)));
                if let Some(otherwise) = &it.false_expr {
                    self.knowing(&it.test_expr, false, |checker| drop(checker.ty(otherwise)));
                }
                Type::Any
            }
            Expr::Filter(it) => self.filter(it, it.span()),
            Expr::Test(it) => {
                self.arguments(&it.args);
                self.known("test", it.name, TESTS, it.span());
                // Asking whether a name is defined is what may be done with one that is not.
                let asks = matches!(it.name, "defined" | "undefined");
                self.maybe_undefined(&it.expr, asks);
                Type::Any
            }
            Expr::Call(it) => self.call(it),
            Expr::List(it) => self.items(&it.items),
            Expr::Tuple(it) => self.items(&it.items),
            Expr::Map(it) => {
                it.keys.iter().chain(&it.values).for_each(|it| drop(self.ty(it)));
                Type::Any
            }
        }
    }

    fn items(&mut self, items: &[Expr<'_>]) -> Type {
        items.iter().for_each(|it| drop(self.ty(it)));
        Type::Any
    }

    fn name(&mut self, name: &str, span: Span) -> Type {
        match self.look_up(name) {
            Some((ty, true)) => ty,
            Some((ty, false)) => {
                let node = self.scope.node;
                let problem = if self.scope.schema.channel(name).is_some() {
                    format!("`{name}` is used here, and nothing writes it before `{node}` runs")
                } else {
                    format!("`{name}` is used here, and `{node}` has no bound")
                };
                self.problem("GR035", span, problem, "never there").help =
                    Some(format!("guard it: `{{% if {name} is defined %}} … {{% endif %}}`"));
                ty
            }
            None => {
                let fields = self.scope.schema.channels().iter().map(|it| it.name().as_str());
                let variables = self.variables.iter().map(|(it, _)| it.as_str());
                let known = fields.chain(variables).chain(["visit", "max_visits", "via"]);
                let help = suggestion(name, known);
                let message = format!("a prompt sees nothing called `{name}`");
                self.problem("GR041", span, message, "not known").help = help;
                Type::Any
            }
        }
    }

    /// The type of a name, and whether it may be there.
    fn look_up(&self, name: &str) -> Option<(Type, bool)> {
        if let Some((_, ty)) = self.variables.iter().rev().find(|(it, _)| it == name) {
            return Some((ty.clone(), true));
        }
        let defined = self.defined.iter().any(|it| it == name);
        match name {
            "visit" => return Some((Type::Int, true)),
            "max_visits" => return Some((Type::Int, self.scope.bounded || defined)),
            "item" => return Some((Type::Any, true)),
            "via" => return Some((via_type(), true)),
            _ if FUNCTIONS.contains(&name) => return Some((Type::Any, true)),
            _ => (),
        }
        let channel = self.scope.schema.channel(name)?;
        let written = defined || self.scope.written.contains(channel.name());
        Some((channel.ty().clone(), written))
    }

    fn field(&mut self, of: &Type, name: &str, span: Span) -> Type {
        match of.required() {
            Type::Any => Type::Any,
            Type::Map(value) => Type::clone(value),
            Type::Record(record) => match of.field(name) {
                Some(ty) => ty.clone(),
                None => {
                    let help = suggestion(name, record.fields.iter().map(|it| it.name.as_str()));
                    let message = format!("{} has no field `{name}`", describe(of.required()));
                    self.problem("GR041", span, message, "no such field").help = help;
                    Type::Any
                }
            },
            _ => {
                let message = format!("{} has no fields, so no `{name}`", describe(of));
                self.problem("GR041", span, message, "no field");
                Type::Any
            }
        }
    }

    fn filter(&mut self, it: &Filter<'_>, span: Span) -> Type {
        self.known("filter", it.name, FILTERS, span);
        self.arguments(&it.args);
        let fallback = matches!(it.name, "default" | "d");
        let input = match &it.expr {
            Some(of) => self.maybe_undefined(of, fallback),
            // The block of a `{% filter %}`.
            None => Type::String,
        };
        let list = matches!(input.required(), Type::List(_));
        let first = it.args.iter().find_map(|argument| match argument {
            CallArg::Pos(Expr::Const(name)) | CallArg::Kwarg("attribute", Expr::Const(name)) => {
                name.value.as_str()
            }
            _ => None,
        });
        let by_attribute = match it.name {
            "selectattr" | "rejectattr" | "groupby" => true,
            "map" | "sort" | "unique" | "sum" => {
                it.args.iter().any(|it| matches!(it, CallArg::Kwarg("attribute", _)))
            }
            _ => false,
        };
        if let (true, Some(path), Type::List(item)) = (by_attribute, first, input.required()) {
            path.split('.').fold(Type::clone(item), |ty, name| self.field(&ty, name, span));
        }
        match (it.name, input.required()) {
            ("first" | "last" | "min" | "max", Type::List(item)) => Type::clone(item),
            ("list" | "sort" | "reverse" | "unique" | "select" | "reject", _) if list => input,
            ("selectattr" | "rejectattr", _) if list => input,
            ("length" | "count" | "int", _) => Type::Int,
            ("tojson" | "join" | "trim" | "upper" | "lower" | "title" | "string", _) => {
                Type::String
            }
            _ => Type::Any,
        }
    }

    /// The type of something that need not be defined, if it is a plain name.
    fn maybe_undefined(&mut self, expression: &Expr<'_>, allowed: bool) -> Type {
        match expression {
            Expr::Var(it) if allowed && self.look_up(it.id).is_some() => {
                self.look_up(it.id).map_or(Type::Any, |(ty, _)| ty)
            }
            other => self.ty(other),
        }
    }

    fn call(&mut self, call: &Call<'_>) -> Type {
        self.arguments(&call.args);
        match &call.expr {
            Expr::Var(it) => {
                let ours = self.variables.iter().any(|(name, _)| name == it.id);
                if !ours {
                    self.known("function", it.id, FUNCTIONS, it.span());
                }
            }
            Expr::GetAttr(it) => {
                let of = self.ty(&it.expr);
                if of != Type::Any {
                    let message = format!("{} has no method `{}`", describe(&of), it.name);
                    self.problem("GR041", it.span(), message, "no method").help =
                        Some(format!("filters do that: `… | {}`", it.name));
                }
            }
            other => drop(self.ty(other)),
        }
        Type::Any
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(it)
                | CallArg::Kwarg(_, it)
                | CallArg::PosSplat(it)
                | CallArg::KwargSplat(it) => drop(self.ty(it)),
            }
        }
    }

    /// A text in quotes that is compared with an enum must be one of its values.
    fn compare(&mut self, left: &Type, left_is: &Expr<'_>, right: &Type, right_is: &Expr<'_>) {
        for (ty, literal, is) in [(left, right, right_is), (right, left, left_is)] {
            let (Expr::Const(_), Some(values), Some([text])) =
                (is, values_of(ty), values_of(literal))
            else {
                continue;
            };
            if !values.contains(text) {
                let help = suggestion(text, values.iter().map(String::as_str));
                let message = format!("\"{text}\" is never a value of `{}`", ty.required());
                self.problem("GR023", is.span(), message, "never equal").help = help;
            }
        }
    }

    /// Does something with what a condition tells if it turns out this way.
    fn knowing(&mut self, condition: &Expr<'_>, outcome: bool, then: impl FnOnce(&mut Self)) {
        let before = self.defined.len();
        learn(condition, outcome, &mut self.defined);
        then(self);
        self.defined.truncate(before);
    }

    fn known(&mut self, kind: &str, name: &str, known: &[&str], span: Span) {
        let is_symbol = !name.starts_with(|it: char| it.is_alphabetic());
        if !is_symbol && !known.contains(&name) {
            let help = suggestion(name, known.iter().copied());
            let message = format!("there is no {kind} `{name}`");
            self.problem("GR041", span, message, format!("no such {kind}")).help = help;
        }
    }

    fn stands_alone(&mut self, span: Span, what: &str) {
        let message = format!("a prompt stands alone; there is no `{what}`");
        self.problem("GR040", span, message, "not in a prompt");
    }

    fn problem(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        label: impl Into<String>,
    ) -> &mut Problem {
        let at = self.problems.len();
        self.problems.push(Problem::new(code, bytes(span), message, label));
        &mut self.problems[at]
    }
}

/// Notes the names that are defined when a condition turned out this way.
fn learn(condition: &Expr<'_>, outcome: bool, defined: &mut Vec<String>) {
    match condition {
        Expr::Test(it) if (it.name == "defined") == outcome => {
            let asks = matches!(it.name, "defined" | "undefined");
            let mut of = &it.expr;
            while let Expr::GetAttr(inner) = of {
                of = &inner.expr;
            }
            if let (true, Expr::Var(var)) = (asks, of) {
                defined.push(var.id.to_owned());
            }
        }
        Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => {
            learn(&it.expr, !outcome, defined)
        }
        Expr::BinOp(it) => match it.op {
            BinOpKind::ScAnd if outcome => {
                learn(&it.left, outcome, defined);
                learn(&it.right, outcome, defined);
            }
            BinOpKind::ScOr if !outcome => {
                learn(&it.left, outcome, defined);
                learn(&it.right, outcome, defined);
            }
            _ => (),
        },
        _ => (),
    }
}

fn via_type() -> Type {
    let reasons = [Via::Start.reason(), "then", "exhausted", "caught", "limit"];
    let field = |name: &str, ty: Type| Field { name: name.to_owned(), ty };
    let reason = Type::Enum(reasons.map(str::to_owned).to_vec());
    let fields = vec![
        field("node", Type::String.optional()),
        field("reason", reason),
        field("error", Type::String.optional()),
    ];
    Type::Record(Record { name: Some("via".to_owned()), fields }.into())
}

fn bytes(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}
