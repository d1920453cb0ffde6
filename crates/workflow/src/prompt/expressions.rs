//! The types of the expressions of a template.

use graphrun_core::{
    id::NodeName,
    state::{Channel, Type},
};
use minijinja::{
    machinery::{
        Span,
        ast::{BinOp, BinOpKind, Call, CallArg, Expr, Filter, GetItem, Slice, Test, UnaryOpKind},
    },
    value::ValueKind,
};

use super::{
    checker::{Checker, has_items, number_of, outside_of_chain, path_of},
    names::{FILTERS, FUNCTIONS, FactFunction, TESTS},
    tried::{OPERANDS, Operand},
};
use crate::{
    facts::{Fact, record, usage_type},
    report::suggestion,
    structure::{INDEX, ITEM},
    typing::{describe, values_of},
    via,
    written::Presence,
};

/// The operand of an operation: the value of a literal, or a type.
fn operand(expression: &Expr<'_>, ty: &Type) -> Operand {
    match expression {
        Expr::Const(it) => Operand::literal(&it.value),
        _ => Operand::Of(ty.clone()),
    }
}

/// The variable of a loop over its items.
pub(super) const LOOP: &str = "loop";
/// What of [`LOOP`] is called.
const LOOP_METHODS: [&str; 2] = ["cycle", "changed"];

/// The type of [`LOOP`].
pub(super) fn loop_type() -> Type {
    const NUMBERS: [&str; 7] =
        ["index", "index0", "revindex", "revindex0", "length", "depth", "depth0"];
    let numbers = NUMBERS.map(|it| (it, Type::Int));
    let others = [("first", Type::Bool), ("last", Type::Bool)];
    let items = ["previtem", "nextitem"].map(|it| (it, Type::Any));
    record(LOOP, numbers.into_iter().chain(others).chain(items))
}

/// The type of a part whose name only a run knows.
fn absent_at_times() -> Type {
    Type::Optional(Box::new(Type::Any))
}

/// The symbol of an operator that does not work on all types.
fn symbol(operator: BinOpKind) -> Option<&'static str> {
    Some(match operator {
        BinOpKind::Add => "+",
        BinOpKind::Sub => "-",
        BinOpKind::Mul => "*",
        BinOpKind::Div => "/",
        BinOpKind::FloorDiv => "//",
        BinOpKind::Rem => "%",
        BinOpKind::Pow => "**",
        BinOpKind::Concat => "~",
        BinOpKind::In => "in",
        _ => return None,
    })
}

/// Whether only a node that a `map` runs has this name.
fn is_of_item(name: &str) -> bool {
    name == ITEM || name == INDEX
}

/// Whether only a template that a node renders has this name.
fn is_of_node(name: &str) -> bool {
    is_of_item(name) || matches!(name, "visit" | "max_visits" | "via" | "remaining")
}

/// The forms of values: those of different forms are never equal and have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A bool counts as a number.
    Number,
    Text,
    List,
    Mapping,
}

impl Form {
    /// The form of a value, if its type is known. A constant has no type unless it is a text.
    fn of(expression: &Expr<'_>, ty: &Type) -> Option<Self> {
        match ty.required() {
            Type::Bool | Type::Int | Type::Float => Some(Self::Number),
            Type::String | Type::Enum(_) | Type::Date | Type::Duration => Some(Self::Text),
            Type::List(_) => Some(Self::List),
            Type::Map(_) | Type::Record(_) => Some(Self::Mapping),
            Type::Any => match expression {
                Expr::Const(it) if it.value.is_number() => Some(Self::Number),
                Expr::Const(it) if it.value.kind() == ValueKind::Bool => Some(Self::Number),
                _ => None,
            },
            Type::Optional(_) => None,
        }
    }
}

/// Whether a value of the type has no items.
pub(super) fn is_single(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Bool
            | Type::Int
            | Type::Float
            | Type::String
            | Type::Date
            | Type::Duration
            | Type::Enum(_)
    )
}

impl Checker<'_> {
    /// The type of an expression; [`Type::Any`] where it is not known.
    pub(super) fn ty(&mut self, expression: &Expr<'_>) -> Type {
        match expression {
            Expr::Var(it) => self.name(it.id, it.span()),
            Expr::Const(it) => match it.value.as_str() {
                Some(text) => Type::Enum(vec![text.to_owned()]),
                None => Type::Any,
            },
            Expr::GetAttr(it) => {
                let ty = self.present(&it.expr);
                if matches!(it.expr, Expr::Var(_)) {
                    self.check_presence(&it.expr, &ty);
                }
                self.field(&ty, it.name, it.span())
            }
            Expr::GetItem(it) => self.item(it, it.span()),
            Expr::Slice(it) => self.slice(it, it.span()),
            Expr::UnaryOp(it) => {
                if matches!(it.op, UnaryOpKind::Not) {
                    self.condition(&it.expr);
                    return Type::Bool;
                }
                let ty = self.present(&it.expr);
                self.try_operation("-a", "`-`", &[(&it.expr, &ty)], it.span())
            }
            Expr::BinOp(it) => self.operator(it, it.span()),
            Expr::Compare(it) => {
                let mut left = (self.present(&it.expr), &it.expr);
                for step in &it.ops {
                    let right = (self.present(&step.expr), &step.expr);
                    if let Some(operator) = outside_of_chain(step.op) {
                        self.compare(&left.0, left.1, &right.0, right.1, operator);
                    }
                    left = right;
                }
                Type::Bool
            }
            Expr::IfExpr(it) => {
                self.condition(&it.test_expr);
                self.knowing(&it.test_expr, true, |checker| drop(checker.ty(&it.true_expr)));
                if let Some(otherwise) = &it.false_expr {
                    self.knowing(&it.test_expr, false, |checker| drop(checker.ty(otherwise)));
                }
                Type::Any
            }
            Expr::Filter(it) => self.filter(it, it.span()),
            Expr::Test(it) => self.test(it, it.span()),
            Expr::Call(it) => self.call(it),
            Expr::List(it) => self.items(&it.items),
            Expr::Tuple(it) => self.items(&it.items),
            Expr::Map(it) => {
                it.keys.iter().chain(&it.values).for_each(|it| drop(self.ty(it)));
                Type::Any
            }
        }
    }

    /// Checks a condition, where an optional field is false if it is absent.
    pub(super) fn condition(&mut self, expression: &Expr<'_>) {
        let is_optional = |it: &Self, name: &str| {
            let field = it.scope.schema.channel(name).map(Channel::ty);
            let is_field = it.variables.iter().all(|(variable, _)| variable != name);
            is_field && matches!(field, Some(Type::Optional(_)))
        };
        match expression {
            Expr::Var(it) if is_optional(self, it.id) => (),
            Expr::BinOp(it) if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                self.condition(&it.left);
                let outcome = matches!(it.op, BinOpKind::ScAnd);
                self.knowing(&it.left, outcome, |checker| checker.condition(&it.right));
            }
            expression => drop(self.ty(expression)),
        }
    }

    /// An item of a list or a map, or a field by its name.
    fn item(&mut self, it: &GetItem<'_>, span: Span) -> Type {
        let ty = self.present(&it.expr);
        let index = self.ty(&it.subscript_expr);
        match (ty.required(), values_of(&index)) {
            (Type::Record(_), Some([name])) => self.field(&ty, name, span),
            (Type::Record(_), _) => absent_at_times(),
            (Type::List(item), _) => {
                let is_end = matches!(number_of(&it.subscript_expr), Some(0 | -1));
                let item = Type::clone(item);
                if is_end && self.has_items(&it.expr) { item } else { item.optional() }
            }
            (Type::Map(value), _) => Type::clone(value).optional(),
            (single, _) if is_single(single) => {
                let message = format!("{} has no items", describe(&ty));
                self.problem("GR022", span, message, "no list");
                Type::Any
            }
            _ => Type::Any,
        }
    }

    fn slice(&mut self, it: &Slice<'_>, span: Span) -> Type {
        let ty = self.present(&it.expr);
        let mut operands = vec![operand(&it.expr, &ty)];
        let mut bounds = Vec::new();
        for bound in [&it.start, &it.stop, &it.step] {
            let Some(bound) = bound else {
                bounds.push("");
                continue;
            };
            let ty = self.present(bound);
            bounds.push(OPERANDS[operands.len()]);
            operands.push(operand(bound, &ty));
        }
        let source = format!("a[{}]", bounds.join(":"));
        self.try_values(&source, "a slice", &operands, &[&ty], span);
        ty
    }

    fn operator(&mut self, it: &BinOp<'_>, span: Span) -> Type {
        match it.op {
            BinOpKind::ScAnd | BinOpKind::ScOr => {
                self.condition(&it.left);
                let outcome = matches!(it.op, BinOpKind::ScAnd);
                self.knowing(&it.left, outcome, |checker| drop(checker.ty(&it.right)));
                return Type::Any;
            }
            _ => (),
        }
        let (left, right) = (self.present(&it.left), self.present(&it.right));
        if let Some(symbol) = symbol(it.op) {
            let operands = [(&it.left, &left), (&it.right, &right)];
            let (source, what) = (format!("a {symbol} b"), format!("`{symbol}`"));
            return self.try_operation(&source, &what, &operands, span);
        }
        self.compare(&left, &it.left, &right, &it.right, it.op);
        Type::Bool
    }

    fn test(&mut self, it: &Test<'_>, span: Span) -> Type {
        let known = self.problems.len();
        let args = self.arguments(&it.args);
        self.known("test", it.name, TESTS, span);
        // These tests may use an undefined name.
        let asks = matches!(it.name, "defined" | "undefined");
        let ty = self.maybe_undefined(&it.expr, asks);
        if self.problems.len() == known {
            let tested = (operand(&it.expr, &ty), &ty);
            let what = format!("the test `{}`", it.name);
            let source = |args: &str| format!("a is {}{args}", it.name);
            self.try_with_arguments(source, &what, tested, &it.args, &args, span);
        }
        Type::Bool
    }

    /// The type of an expression whose value is needed. A value that may be absent must be guarded.
    pub(super) fn present(&mut self, expression: &Expr<'_>) -> Type {
        let ty = self.ty(expression);
        let is_variable = |name: &str| self.variables.iter().any(|(it, _)| it == name);
        match expression {
            Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Filter(_) => {
                self.check_presence(expression, &ty);
            }
            // A field of the state that is null is written as `none`.
            Expr::Var(it) if is_variable(it.id) => self.check_presence(expression, &ty),
            _ => (),
        }
        ty
    }

    /// Returns whether a condition has proved that a list has items.
    fn has_items(&self, list: &Expr<'_>) -> bool {
        path_of(list).is_some_and(|it| self.defined.contains(&has_items(&it)))
    }

    /// Reports a value that may be absent and is not guarded.
    fn check_presence(&mut self, expression: &Expr<'_>, ty: &Type) {
        if !matches!(ty, Type::Optional(_)) {
            return;
        }
        let Some(path) = path_of(expression) else {
            let message = "this may be absent, and then the prompt cannot be rendered";
            let help = "give another text: `… | default(\"…\")`".to_owned();
            self.problem("GR026", expression.span(), message.to_owned(), "may be absent").help =
                Some(help);
            return;
        };
        let is_proved = self.defined.contains(&path) || self.missed.contains(&path);
        let root = path.split('.').next().unwrap_or_default();
        let channel = self.scope.schema.channel(root);
        let is_sure = channel.is_none() && via::is_sure(&path, &self.defined);
        // A reader makes a value of a Rust type, which has all of its fields.
        let is_whole =
            channel.is_some_and(|it| it.reader().is_some()) && !path.contains(['[', '(']);
        let is_proved = is_proved || is_whole;
        if !is_proved && !is_sure {
            let message = format!("`{path}` may be absent, and then the prompt cannot be rendered");
            let help = format!(
                "guard it: `{{% if {path} %}} … {{% endif %}}`, or give another text: \
                 `{{{{ {path} | default(\"…\") }}}}`"
            );
            self.problem("GR026", expression.span(), message, "may be absent").help = Some(help);
            self.missed.push(path);
        }
    }

    /// Tries an operation on samples of its operands, and reports one that always fails. Returns its type.
    fn try_operation(
        &mut self,
        source: &str,
        what: &str,
        operands: &[(&Expr<'_>, &Type)],
        span: Span,
    ) -> Type {
        let values: Vec<Operand> = operands.iter().map(|(it, ty)| operand(it, ty)).collect();
        let types: Vec<&Type> = operands.iter().map(|(_, ty)| *ty).collect();
        self.try_values(source, what, &values, &types, span)
    }

    fn try_values(
        &mut self,
        source: &str,
        what: &str,
        values: &[Operand],
        types: &[&Type],
        span: Span,
    ) -> Type {
        match self.tried.operation(source, values) {
            Ok(ty) => ty,
            Err(reason) => {
                let shown = types.iter().zip(values).map(|(ty, value)| match value {
                    Operand::Literal(value) if ty.required() == &Type::Any => format!("`{value}`"),
                    _ => describe(ty.required()),
                });
                let shown: Vec<String> = shown.collect();
                let is_known = types.iter().any(|it| it.required() != &Type::Any);
                let fails = if is_known {
                    format!("{what} does not work on {}", shown.join(" and "))
                } else {
                    format!("{what} always fails")
                };
                let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
                let message = format!("{fails}{reason}");
                self.problem("GR022", span, message, "always fails");
                Type::Any
            }
        }
    }

    /// Tries an operation with arguments. `source` makes its text from theirs.
    fn try_with_arguments(
        &mut self,
        source: impl Fn(&str) -> String,
        what: &str,
        (first, ty): (Operand, &Type),
        arguments: &[CallArg<'_>],
        types: &[Type],
        span: Span,
    ) -> Type {
        if arguments.len() >= OPERANDS.len() {
            return Type::Any;
        }
        let mut values = vec![first];
        let mut texts = Vec::new();
        for ((argument, ty), name) in arguments.iter().zip(types).zip(&OPERANDS[1..]) {
            let (value, text) = match argument {
                CallArg::Pos(it) => (operand(it, ty), (*name).to_owned()),
                CallArg::Kwarg(key, it) => (operand(it, ty), format!("{key}={name}")),
                CallArg::PosSplat(_) | CallArg::KwargSplat(_) => return Type::Any,
            };
            values.push(value);
            texts.push(text);
        }
        let texts = texts.join(", ");
        let texts = if texts.is_empty() { texts } else { format!("({texts})") };
        self.try_values(&source(&texts), what, &values, &[ty], span)
    }

    /// The advice for a name that may be undefined.
    fn guarded(&self, name: &str) -> String {
        let guard = format!("guard it: `{{% if {name} is defined %}} … {{% endif %}}`");
        match self.scope.schema.channel(name).and_then(|it| it.reducer().natural_start()) {
            Some(start) => format!("{guard}, or let it start: `default: {start}`"),
            None => guard,
        }
    }

    fn items(&mut self, items: &[Expr<'_>]) -> Type {
        for item in items {
            self.ty(item);
        }
        Type::Any
    }

    fn name(&mut self, name: &str, span: Span) -> Type {
        let is_private = self.scope.schema.channel(name).is_some_and(Channel::is_private);
        if is_private && self.scope.node.is_none() {
            let message = format!("a report shows `{name}`, which is private");
            let help = "remove it here, or remove `private` from the field";
            self.problem("GR112", span, message, "for the nodes alone").help =
                Some(help.to_owned());
        }
        self.facts.item_index |= name == INDEX;
        match self.look_up(name) {
            Some((ty, Presence::Always)) => ty,
            Some((_, Presence::Never)) if self.scope.any_item && is_of_item(name) => Type::Any,
            None if self.scope.any_item => Type::Any,
            Some((ty, _)) if self.missed.iter().any(|it| it == name) => ty,
            Some((ty, Presence::Never)) => {
                self.missed.push(name.to_owned());
                let node = self.reader();
                let problem = if self.scope.schema.channel(name).is_some() {
                    format!("`{name}` is used here, but nothing writes it before `{node}` runs")
                } else if is_of_item(name) {
                    format!("`{name}` is used here, but no `map` runs `{node}`")
                } else {
                    format!("`{name}` is used here, but `{node}` has no bound")
                };
                let help = self.guarded(name);
                self.problem("GR035", span, problem, "never has a value").help = Some(help);
                ty
            }
            Some((ty, Presence::Sometimes)) => {
                self.missed.push(name.to_owned());
                let message = match self.scope.node {
                    Some(node) => {
                        format!("`{name}` is used here, but not every path to `{node}` writes it")
                    }
                    None => format!("`{name}` is used here, and not every state of a run has it"),
                };
                let help = self.guarded(name);
                let without = self.scope.written.without(name);
                let problem = self.problem("GR130", span, message, "may be unwritten here");
                problem.without = without.map(Box::new);
                problem.help = Some(help);
                ty
            }
            None => {
                let fields = self.scope.schema.channels().iter().map(|it| it.name().as_str());
                let variables = self.variables.iter().map(|(it, _)| it.as_str());
                let known = fields.chain(variables);
                let (help, message) = if self.scope.node.is_some() {
                    let known = known.chain(["visit", "max_visits", "via"]);
                    let help = Fact::meant_by(name).or_else(|| suggestion(name, known));
                    (help, format!("a prompt has no name `{name}`"))
                } else if is_of_node(name) {
                    let help = "no node renders a report: it reads fields, `run`, `usage`, \
                                `now()` and `visits(\"NODE\")`";
                    (Some(help.to_owned()), format!("a report has no `{name}`"))
                } else {
                    (suggestion(name, known), format!("a report has no name `{name}`"))
                };
                self.problem("GR041", span, message, "not known").help = help;
                Type::Any
            }
        }
    }

    /// The name of the node for messages.
    fn reader(&self) -> &str {
        self.scope.node.map_or("a report", NodeName::as_str)
    }

    /// The type of a name, and its presence.
    fn look_up(&self, name: &str) -> Option<(Type, Presence)> {
        if let Some((_, ty)) = self.variables.iter().rev().find(|(it, _)| it == name) {
            return Some((ty.clone(), Presence::Always));
        }
        if self.scope.node.is_none()
            && is_of_node(name)
            && self.scope.schema.channel(name).is_none()
        {
            return None;
        }
        let defined = self.defined.iter().any(|it| it == name);
        let ty = match name {
            "visit" => Type::Int,
            "max_visits" if self.scope.bounded || defined => Type::Int,
            "max_visits" => return Some((Type::Int, Presence::Never)),
            // A registered node may dispatch an item, but a `map` names it.
            ITEM if defined => Type::Any,
            ITEM if self.scope.item.is_none() => return Some((Type::Any, Presence::Never)),
            ITEM => return None,
            INDEX if self.scope.schema.channel(name).is_none() && defined => Type::Int,
            INDEX if self.scope.schema.channel(name).is_none() => {
                return Some((Type::Int, Presence::Never));
            }
            _ if FUNCTIONS.contains(&name) => Type::Any,
            _ => {
                let Some(channel) = self.scope.schema.channel(name) else {
                    return Some((Fact::find(name)?.ty(), Presence::Always));
                };
                let ty = channel.ty().clone();
                let presence = if defined {
                    Presence::Always
                } else {
                    self.scope.written.presence_given(name, &self.defined)
                };
                return Some((ty, presence));
            }
        };
        Some((ty, Presence::Always))
    }

    fn field(&mut self, of: &Type, name: &str, span: Span) -> Type {
        match of.required() {
            Type::Any => Type::Any,
            Type::Map(value) => Type::clone(value).optional(),
            Type::Record(record) => of.field(name).cloned().unwrap_or_else(|| {
                let help = suggestion(name, record.fields.iter().map(|it| it.name.as_str()));
                let message = format!("{} has no field `{name}`", describe(of.required()));
                self.problem("GR041", span, message, "no such field").help = help;
                Type::Any
            }),
            _ => {
                let message = format!("{} has no fields, so no `{name}`", describe(of));
                self.problem("GR041", span, message, "no field");
                Type::Any
            }
        }
    }

    fn filter(&mut self, it: &Filter<'_>, span: Span) -> Type {
        let known = self.problems.len();
        self.known("filter", it.name, FILTERS, span);
        let args = self.arguments(&it.args);
        let fallback = matches!(it.name, "default" | "d");
        let input = match &it.expr {
            Some(of) => self.maybe_undefined(of, fallback),
            // The block of a `{% filter %}`.
            None => Type::String,
        };
        let list = matches!(input.required(), Type::List(_));
        if it.name == "join" && is_single(input.required()) {
            let message = format!("{} is no list that can be joined", describe(&input));
            self.problem("GR022", span, message, "no list");
        }
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
        let mut result = Type::Any;
        if self.problems.len() == known {
            let value = it.expr.as_ref().map_or_else(
                || Operand::Of(Type::String),
                |expression| operand(expression, &input),
            );
            let what = format!("the filter `{}`", it.name);
            let source = |args: &str| format!("a | {}{args}", it.name);
            result = self.try_with_arguments(source, &what, (value, &input), &it.args, &args, span);
            self.advise_default(it, known);
        }
        match (it.name, input.required()) {
            ("first" | "last" | "min" | "max", Type::List(item)) => {
                let has_items = it.expr.as_ref().is_some_and(|it| self.has_items(it));
                let item = Type::clone(item);
                if has_items { item } else { item.optional() }
            }
            // A character of a text, or a key of a map.
            ("first" | "last" | "min" | "max", Type::String | Type::Map(_)) => {
                let has_items = it.expr.as_ref().is_some_and(|it| self.has_items(it));
                if has_items { Type::String } else { Type::String.optional() }
            }
            ("attr", Type::Record(_)) => {
                first.and_then(|it| input.field(it).cloned()).unwrap_or_else(absent_at_times)
            }
            ("attr", _) => absent_at_times(),
            ("list" | "sort" | "reverse" | "unique" | "select" | "reject", _) if list => input,
            ("selectattr" | "rejectattr", _) if list => input,
            ("length" | "count" | "int", _) => Type::Int,
            ("tojson" | "join" | "trim" | "upper" | "lower" | "title" | "string", _) => {
                Type::String
            }
            _ => result,
        }
    }

    /// Advises to give a default to a conversion of a text, which may show no number.
    fn advise_default(&mut self, it: &Filter<'_>, known: usize) {
        if matches!(it.name, "int" | "float")
            && let Some(problem) = self.problems.get_mut(known)
        {
            problem.help = Some(format!("give a default: `… | {}(default=0)`", it.name));
        }
    }

    /// The type of an operand that may be undefined, if it is a plain name.
    fn maybe_undefined(&mut self, expression: &Expr<'_>, allowed: bool) -> Type {
        match expression {
            Expr::Var(it) if allowed && self.look_up(it.id).is_some() => {
                self.look_up(it.id).map_or(Type::Any, |(ty, _)| ty)
            }
            other if allowed => self.ty(other),
            other => self.present(other),
        }
    }

    pub(super) fn call(&mut self, call: &Call<'_>) -> Type {
        let args = self.arguments(&call.args);
        match &call.expr {
            Expr::Var(it) => {
                let ours = self.variables.iter().any(|(name, _)| name == it.id);
                if !ours && let Some(function) = FactFunction::find(it.id) {
                    return self.fact(function, it.id, call);
                }
                if !ours {
                    let known = self.problems.len();
                    self.known("function", it.id, FUNCTIONS, it.span());
                    if self.problems.len() == known {
                        let what = format!("the function `{}`", it.id);
                        let source = |args: &str| {
                            format!("{}{}", it.id, if args.is_empty() { "()" } else { args })
                        };
                        let none = (Operand::Literal(minijinja::Value::UNDEFINED), &Type::Any);
                        let span = call.expr.span();
                        return self
                            .try_with_arguments(source, &what, none, &call.args, &args, span);
                    }
                }
            }
            Expr::GetAttr(it) => {
                let of = self.ty(&it.expr);
                let is_loop = of == loop_type();
                if is_loop && it.name == "cycle" && call.args.is_empty() {
                    let message = "`loop.cycle` takes the values to choose from".to_owned();
                    self.problem("GR041", it.span(), message, "without a value");
                }
                if of != Type::Any && !(is_loop && LOOP_METHODS.contains(&it.name)) {
                    let message = format!("{} has no method `{}`", describe(&of), it.name);
                    self.problem("GR041", it.span(), message, "no method").help =
                        Some("use a filter: `… | trim`".to_owned());
                }
            }
            other => drop(self.ty(other)),
        }
        Type::Any
    }

    /// A call of a function for facts of the run.
    fn fact(&mut self, function: FactFunction, name: &str, call: &Call<'_>) -> Type {
        let node = match (function.takes_node(), call.args.as_slice()) {
            (false, []) => None,
            (true, [CallArg::Pos(Expr::Const(it))]) if it.value.as_str().is_some() => {
                it.value.as_str()
            }
            (takes_node, _) => {
                let (what, form) = if takes_node {
                    ("the name of a node, in quotes", "\"node\"")
                } else {
                    ("nothing", "")
                };
                let message = format!("`{name}` takes {what}");
                self.problem("GR041", call.expr.span(), message, "here").help =
                    Some(format!("write `{name}({form})`"));
                return Type::Any;
            }
        };
        if let Some(node) = node.filter(|it| !self.scope.nodes.contains(*it)) {
            let help = suggestion(node, self.scope.nodes.iter().map(NodeName::as_str));
            let message = format!("there is no node `{node}`");
            self.problem("GR010", call.expr.span(), message, "no such node").help = help;
        }
        match function {
            FactFunction::Now => {
                self.facts.time = true;
                Type::String
            }
            FactFunction::Visits => Type::Int,
            FactFunction::Usage => {
                self.facts.usage_of.extend(node.and_then(|it| NodeName::parse_path(it).ok()));
                usage_type()
            }
        }
    }

    /// The types of arguments.
    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Vec<Type> {
        let mut types = Vec::new();
        for argument in arguments {
            types.push(match argument {
                CallArg::Pos(it)
                | CallArg::Kwarg(_, it)
                | CallArg::PosSplat(it)
                | CallArg::KwargSplat(it) => self.present(it),
            });
        }
        types
    }

    /// Checks that two compared values have types that can be compared, and that a literal text that is
    /// compared with an enum is one of its values.
    fn compare(
        &mut self,
        left: &Type,
        left_is: &Expr<'_>,
        right: &Type,
        right_is: &Expr<'_>,
        operator: BinOpKind,
    ) {
        let is_equality = match operator {
            BinOpKind::Eq | BinOpKind::Ne => true,
            BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => false,
            _ => return,
        };
        let forms = Form::of(left_is, left).zip(Form::of(right_is, right));
        if let Some(forms) = forms.filter(|(one, other)| one != other) {
            let shown = |it: &Type, is: &Expr<'_>| match (values_of(it), is) {
                (Some([text]), Expr::Const(_)) => format!("the text \"{text}\""),
                (_, Expr::Const(it)) => it.value.to_string(),
                _ => describe(it),
            };
            let (one, other) = (shown(left, left_is), shown(right, right_is));
            let (message, label) = if is_equality {
                (format!("{one} is never equal to {other}"), "never equal")
            } else {
                (format!("{one} and {other} have no order"), "no order")
            };
            let is_list = [forms.0, forms.1].contains(&Form::List);
            let help = if is_list {
                "`value in list` asks whether it is one of the items"
            } else {
                "compare values of one type: write a number without quotes"
            };
            self.problem("GR022", right_is.span(), message, label).help = Some(help.to_owned());
            return;
        }
        if !is_equality {
            return;
        }
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

    fn known(&mut self, kind: &str, name: &str, known: &[&str], span: Span) {
        let is_symbol = !name.starts_with(|it: char| it.is_alphabetic());
        if !is_symbol && !known.contains(&name) {
            let help = suggestion(name, known.iter().copied());
            let message = format!("there is no {kind} `{name}`");
            self.problem("GR041", span, message, format!("no such {kind}")).help = help;
        }
    }
}
