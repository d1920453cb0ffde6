//! Walks the tree of a template and checks names, fields, enum values and unassigned fields.
//!
//! It reports only certain mistakes: a value of an unknown type is compatible with everything.

use std::{cmp::Ordering, collections::BTreeSet, ops::Range};

use graphrun_core::{
    graph::FactNeeds,
    id::NodeName,
    state::{Schema, Type},
};
use minijinja::machinery::{
    Span,
    ast::{BinOpKind, CallArg, CompareOpKind, Expr, ForLoop, Stmt, UnaryOpKind},
    parse,
};

use super::{
    TEMPLATE,
    expressions::{LOOP, is_single, loop_type},
    metered::is_end,
    tried::Tried,
};
use crate::{
    report::Problem, structure::names_of_item, types::file_type, typing::describe, via, visited,
    written::AssignedFields,
};

/// The most items of a list whose presence is known from a condition on its length.
const ITEMS_MAX: i64 = 16;

/// The scope of a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptScope<'a> {
    pub(crate) schema: &'a Schema,
    /// The channels that are assigned at this point.
    pub(crate) written: &'a AssignedFields,
    /// The nodes whose visits and usage can be read.
    pub(crate) nodes: &'a BTreeSet<NodeName>,
    /// The node that renders it; a report belongs to none.
    pub(crate) node: Option<&'a NodeName>,
    /// Whether the node has a bound.
    pub(crate) bounded: bool,
    /// The name and the type of the item that is dispatched to the node.
    pub(crate) item: Option<(&'a str, &'a Type)>,
    /// Whether an unknown name may be the name of an item.
    pub(crate) any_item: bool,
    /// The paths that are known to be present before the prompt, with the marks of [triggers](via) and [visits](visited).
    pub(crate) given: &'a [String],
}

/// Returns the problems of a prompt, and the facts that a run must save for it.
pub(super) fn check(text: &str, scope: PromptScope<'_>) -> (Vec<Problem>, FactNeeds) {
    // A text that does not parse was refused when the prompt was compiled.
    let Ok(template) = parse(text, TEMPLATE, minijinja::syntax::SyntaxConfig::default()) else {
        return Default::default();
    };
    let variables = names_of_item(scope.item, scope.schema);
    let defined = scope.given.to_vec();
    let mut checker = Checker {
        scope,
        variables,
        defined,
        problems: Vec::new(),
        missed: Vec::new(),
        facts: FactNeeds::default(),
        tried: Tried::default(),
    };
    checker.statement(&template);
    (checker.problems, checker.facts)
}

pub(super) struct Checker<'a> {
    pub(super) scope: PromptScope<'a>,
    /// The item of the task, and the names that the template has defined.
    pub(super) variables: Vec<(String, Type)>,
    /// The names that an enclosing condition has proved defined.
    pub(super) defined: Vec<String>,
    pub(super) problems: Vec<Problem>,
    /// The fields that were reported as unassigned; one guard may cover all places.
    pub(super) missed: Vec<String>,
    pub(super) facts: FactNeeds,
    pub(super) tried: Tried,
}

impl Checker<'_> {
    fn body(&mut self, statements: &[Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// The names of a block are not visible outside of it.
    fn block(&mut self, statements: &[Stmt<'_>]) {
        let outside = self.variables.len();
        self.body(statements);
        self.variables.truncate(outside);
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(it) => self.body(&it.children),
            Stmt::EmitRaw(it) => self.raw(it.raw, it.span()),
            // Written out, an absent end of a list is `none`.
            Stmt::EmitExpr(it) if is_end(&it.expr) => drop(self.ty(&it.expr)),
            Stmt::EmitExpr(it) => self.printed(&it.expr),
            Stmt::IfCond(it) => {
                self.condition(&it.expr);
                // A `set` inside an `if` is visible after it.
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

    /// Warns about text that looks like a placeholder of another template language.
    fn raw(&mut self, text: &str, span: Span) {
        let is_field = |it: &str| self.scope.schema.channel(it).is_some();
        let mut found = Vec::new();
        for (at, _) in text.match_indices('{') {
            let rest = &text[at + 1..];
            let name = rest.split_once('}').map_or("", |it| it.0);
            let root = name.split('.').next().unwrap_or_default();
            if is_field(root) && name.chars().all(|it| it.is_alphanumeric() || "_.".contains(it)) {
                found.push((at..at + name.len() + 2, name.to_owned()));
            }
        }
        let start = span.start_offset as usize;
        for (range, name) in found {
            let range = start + range.start..start + range.end;
            let message = format!("`{{{name}}}` is a part of the text");
            let problem = Problem::new("GR042", range, message, "not filled in");
            self.problems.push(problem.warning().help(format!("write `{{{{ {name} }}}}`")));
        }
        if text.ends_with('$') {
            let end = span.end_offset as usize;
            let message = "the `$` before `{{` is a part of the text";
            let problem = Problem::new("GR042", end.saturating_sub(1)..end, message, "stays there");
            self.problems.push(problem.warning().help("remove it, or put a blank behind it"));
        }
    }

    fn for_loop(&mut self, it: &ForLoop<'_>) {
        let iterated = self.present(&it.iter);
        let item = match iterated.required() {
            // A recursive loop iterates over the items of its items.
            _ if it.recursive => Type::Any,
            Type::List(item) => Type::clone(item),
            Type::Map(_) | Type::Record(_) => Type::String,
            single if is_single(single) => {
                let message = format!("{} cannot be looped over", describe(&iterated));
                self.problem("GR022", it.iter.span(), message, "no list");
                Type::Any
            }
            _ => Type::Any,
        };
        if matches!(it.target, Expr::List(_) | Expr::Tuple(_)) && is_single(&item) {
            let message = format!("an item of {} is one value", describe(&iterated));
            let help = "write `… | items` to loop over the keys and values of a record or a map";
            self.problem("GR022", it.target.span(), message, "several names").help =
                Some(help.to_owned());
        }
        let outside = self.variables.len();
        self.name_target(&it.target, item);
        self.variables.push((LOOP.to_owned(), loop_type()));
        match &it.filter_expr {
            Some(filter) => {
                self.condition(filter);
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

    /// Runs a check with the knowledge that a condition has this outcome.
    pub(super) fn knowing(
        &mut self,
        condition: &Expr<'_>,
        outcome: bool,
        then: impl FnOnce(&mut Self),
    ) {
        let before = self.defined.len();
        let mut learned = Vec::new();
        self.learn(condition, outcome, &mut learned);
        self.defined.extend(learned);
        then(self);
        self.defined.truncate(before);
    }

    /// Records the names that are defined once a condition has this outcome.
    fn learn(&self, condition: &Expr<'_>, outcome: bool, defined: &mut Vec<String>) {
        match condition {
            // A part of a value that is absent is undefined, which is not none.
            Expr::Test(it) if it.name == "none" && !outcome && matches!(it.expr, Expr::Var(_)) => {
                learn_path(&it.expr, defined);
            }
            Expr::Test(it) if (it.name == "defined") == outcome => {
                let asks = matches!(it.name, "defined" | "undefined");
                // `a.b is defined` proves `a` as well.
                if asks {
                    learn_path(&it.expr, defined);
                }
            }
            // An absent field is false, and so is an empty list.
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) if outcome => {
                learn_path(condition, defined);
                defined.extend(path_of(condition).map(|it| has_items(&it)));
            }
            Expr::Filter(it) if outcome && is_length(it.name) => {
                let path = it.expr.as_ref().and_then(path_of);
                defined.extend(path.map(|it| has_items(&it)));
            }
            Expr::Filter(_) if outcome => defined.extend(path_of(condition)),
            Expr::Compare(it) => {
                if let [step] = it.ops.as_slice()
                    && let Some(operator) = outside_of_chain(step.op)
                {
                    self.learn_comparison((&it.expr, &step.expr), operator, outcome, defined);
                }
            }
            Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Not) => {
                self.learn(&it.expr, !outcome, defined);
            }
            Expr::BinOp(it) => match it.op {
                BinOpKind::ScAnd if outcome => {
                    self.learn(&it.left, outcome, defined);
                    self.learn(&it.right, outcome, defined);
                }
                BinOpKind::ScOr if !outcome => {
                    self.learn(&it.left, outcome, defined);
                    self.learn(&it.right, outcome, defined);
                }
                _ => self.learn_comparison((&it.left, &it.right), it.op, outcome, defined),
            },
            _ => (),
        }
    }

    /// Records what a comparison proves: the visits of a node, and what does not depend on the node.
    fn learn_comparison(
        &self,
        (left, right): (&Expr<'_>, &Expr<'_>),
        operator: BinOpKind,
        outcome: bool,
        defined: &mut Vec<String>,
    ) {
        for (visits, number, is_turned) in [(left, right, false), (right, left, true)] {
            if let Some((node, number)) = self.visited_node(visits).zip(number_of(number)) {
                let fulfils = |it: i64| {
                    let order = if is_turned { number.cmp(&it) } else { it.cmp(&number) };
                    orders(operator, order).is_none_or(|it| it == outcome)
                };
                let is_own = self.scope.written.is_at(node);
                defined.extend(visited::mark(node, visited::least(is_own, fulfils)));
            }
        }
        learn_comparison((left, right), operator, outcome, defined);
    }

    /// Returns the node whose visits an expression is: `visit`, or `visits("node")`.
    fn visited_node<'n>(&'n self, expression: &'n Expr<'_>) -> Option<&'n str> {
        let is_fact = |name: &str| {
            let is_variable = self.variables.iter().any(|(it, _)| it == name);
            !is_variable && self.scope.schema.channel(name).is_none()
        };
        match expression {
            Expr::Var(it) if it.id == "visit" && is_fact(it.id) => {
                self.scope.node.map(NodeName::as_str)
            }
            Expr::Call(it) => match (&it.expr, it.args.as_slice()) {
                (Expr::Var(function), [CallArg::Pos(Expr::Const(node))])
                    if function.id == "visits" && is_fact(function.id) =>
                {
                    node.value.as_str()
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Checks a value that is printed. The content of a file is not for readers of a text.
    fn printed(&mut self, expression: &Expr<'_>) {
        let ty = self.present(expression);
        let is_file = |it: &Type| *it.required() == file_type();
        let has_files = match ty.required() {
            Type::List(item) => is_file(item),
            ty => is_file(ty),
        };
        if has_files {
            let message = "a prompt cannot print a file".to_owned();
            let help = "name the file in `attach` of the agent; a prompt can print its `name` and `media_type`";
            self.problem("GR022", expression.span(), message, "a file").help =
                Some(help.to_owned());
        }
    }

    fn stands_alone(&mut self, span: Span, what: &str) {
        let message = format!("a prompt cannot use other files; there is no `{what}`");
        self.problem("GR040", span, message, "not in a prompt");
    }

    pub(super) fn problem(
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

/// The same operator outside of a chain, which has no `not in`.
pub(super) fn outside_of_chain(operator: CompareOpKind) -> Option<BinOpKind> {
    Some(match operator {
        CompareOpKind::Eq => BinOpKind::Eq,
        CompareOpKind::Ne => BinOpKind::Ne,
        CompareOpKind::Gt => BinOpKind::Gt,
        CompareOpKind::Gte => BinOpKind::Gte,
        CompareOpKind::In => BinOpKind::In,
        CompareOpKind::Lt => BinOpKind::Lt,
        CompareOpKind::Lte => BinOpKind::Lte,
        CompareOpKind::NotIn => return None,
    })
}

/// Records what a comparison proves: the length of a list, a key of a map, or [the trigger](via).
fn learn_comparison(
    (left, right): (&Expr<'_>, &Expr<'_>),
    operator: BinOpKind,
    outcome: bool,
    defined: &mut Vec<String>,
) {
    if matches!(operator, BinOpKind::Eq | BinOpKind::Ne) {
        let is_equal = matches!(operator, BinOpKind::Eq) == outcome;
        for (value, text) in [(left, right), (right, left)] {
            if let (Some(path), Expr::Const(it)) = (path_of(value), text)
                && let Some(text) = it.value.as_str()
            {
                defined.extend(via::learned(&path, text, is_equal));
            }
        }
    }
    if !outcome {
        return;
    }
    if matches!(operator, BinOpKind::In) {
        defined.extend(path_of(right).and_then(|of| part_of(&of, left)));
        return;
    }
    let Some((path, number)) = path_of_length(left).zip(number_of(right)) else { return };
    let length = match operator {
        BinOpKind::Gt => number.saturating_add(1),
        BinOpKind::Gte | BinOpKind::Eq => number,
        BinOpKind::Ne if number == 0 => 1,
        _ => 0,
    };
    if length > 0 {
        defined.push(has_items(&path));
    }
    defined.extend((0..length.min(ITEMS_MAX)).map(|at| format!("{path}[{at}]")));
}

/// The mark of a list that is known to have items.
pub(super) fn has_items(path: &str) -> String {
    format!("{path}[]")
}

fn is_length(filter: &str) -> bool {
    matches!(filter, "length" | "count")
}

/// The path of the list whose length an expression is.
fn path_of_length(expression: &Expr<'_>) -> Option<String> {
    match expression {
        Expr::Filter(it) if is_length(it.name) => path_of(it.expr.as_ref()?),
        _ => None,
    }
}

/// The whole number that an expression is, if it is a literal.
pub(super) fn number_of(expression: &Expr<'_>) -> Option<i64> {
    match expression {
        Expr::Const(it) => i64::try_from(it.value.clone()).ok(),
        Expr::UnaryOp(it) if matches!(it.op, UnaryOpKind::Neg) => {
            number_of(&it.expr)?.checked_neg()
        }
        _ => None,
    }
}

/// Records a path and the values that it leads through.
fn learn_path(path: &Expr<'_>, defined: &mut Vec<String>) {
    defined.extend(path_of(path));
    match path {
        Expr::GetAttr(inner) => learn_path(&inner.expr, defined),
        Expr::GetItem(inner) => learn_path(&inner.expr, defined),
        _ => (),
    }
}

/// Returns whether a comparison holds for operands in this order; `None` for another operator.
fn orders(operator: BinOpKind, order: Ordering) -> Option<bool> {
    Some(match operator {
        BinOpKind::Eq => order.is_eq(),
        BinOpKind::Ne => order.is_ne(),
        BinOpKind::Lt => order.is_lt(),
        BinOpKind::Lte => order.is_le(),
        BinOpKind::Gt => order.is_gt(),
        BinOpKind::Gte => order.is_ge(),
        _ => return None,
    })
}

/// The path of a value, such as `review.notes`, `tasks[0].title` or `tasks | first`.
pub(super) fn path_of(expression: &Expr<'_>) -> Option<String> {
    match expression {
        Expr::Var(it) => Some(it.id.to_owned()),
        Expr::GetAttr(it) => Some(format!("{}.{}", path_of(&it.expr)?, it.name)),
        Expr::GetItem(it) => {
            let of = path_of(&it.expr)?;
            part_of(&of, &it.subscript_expr)
        }
        Expr::Filter(it) if it.args.is_empty() => {
            Some(format!("({} | {})", path_of(it.expr.as_ref()?)?, it.name))
        }
        _ => None,
    }
}

/// The path of a part of a value.
fn part_of(of: &str, part: &Expr<'_>) -> Option<String> {
    if let Some(number) = number_of(part) {
        return Some(format!("{of}[{number}]"));
    }
    match part {
        Expr::Const(it) => Some(format!("{of}.{}", it.value.as_str()?)),
        part => Some(format!("{of}[{}]", path_of(part)?)),
    }
}

fn bytes(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}
