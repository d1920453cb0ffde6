//! The types of the expressions of a template.

use graphrun_core::{
    id::NodeName,
    state::{Channel, Field, Record, Type},
};
use graphrun_expressions::{
    facts::{Fact, record},
    file::{CONTENT, is_file},
    flow::written::Presence,
    item::{INDEX, ITEM},
    problem::suggestion,
    typing::{describe, null, values_of},
};
use minijinja::machinery::{
    Span,
    ast::{BinOp, BinOpKind, CallArg, Expr, GetItem, IfExpr, Map, Slice, Test, UnaryOpKind},
};

use super::{
    checker::{Meaning, PromptChecker},
    guards::{asks_presence, number_of, outside_of_chain},
    names::TESTS,
    operations::{TestedOperand, TypedExpression},
    shapes::{
        GROUP_PARTS, alternatives, any_of, as_list, either, group_part, is_group, is_shape,
        of_any_length, present, tuple, tuple_items, values_of_map,
    },
    tried::{OPERANDS, type_of},
};

/// The variable of a loop over its items.
pub(super) const LOOP: &str = "loop";
/// The block that a macro is called with.
pub(super) const CALLER: &str = "caller";

/// Returns the type of [`LOOP`] in a loop over items of a type.
pub(super) fn loop_type(item: &Type) -> Type {
    const NUMBERS: [&str; 7] =
        ["index", "index0", "revindex", "revindex0", "length", "depth", "depth0"];
    let numbers = NUMBERS.map(|it| (it, Type::INT));
    let others = [("first", Type::Bool), ("last", Type::Bool)];
    let items = ["previtem", "nextitem"].map(|it| (it, Type::Optional(item.clone().into())));
    record(LOOP, numbers.into_iter().chain(others).chain(items))
}

/// Returns the type of a part whose name only a run knows.
pub(super) fn absent_at_times() -> Type {
    Type::Optional(Box::new(Type::Any))
}

/// Returns the symbol of an operator that does not work on all types.
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

/// Returns whether only a node that a `map` runs has this name.
fn is_of_item(name: &str) -> bool {
    name == ITEM || name == INDEX
}

/// Returns whether only a template that a node renders has this name.
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
    /// Returns the form of a value, if its type is known.
    fn of(ty: &Type) -> Option<Self> {
        match ty.required() {
            ty if tuple_items(ty).is_some() => Some(Self::List),
            ty if is_shape(ty) => None,
            Type::Bool | Type::Int(_) | Type::Float(_) => Some(Self::Number),
            Type::String | Type::Enum(_) | Type::Date | Type::Duration => Some(Self::Text),
            Type::List(_) => Some(Self::List),
            Type::Map(_) | Type::Record(_) => Some(Self::Mapping),
            Type::Any | Type::Optional(_) => None,
        }
    }
}

/// Returns the operator that a test means.
fn operator_of(test: &str) -> Option<BinOpKind> {
    Some(match test {
        "eq" | "equalto" | "==" => BinOpKind::Eq,
        "ne" | "!=" => BinOpKind::Ne,
        "lt" | "lessthan" | "<" => BinOpKind::Lt,
        "le" | "<=" => BinOpKind::Lte,
        "gt" | "greaterthan" | ">" => BinOpKind::Gt,
        "ge" | ">=" => BinOpKind::Gte,
        "in" => BinOpKind::In,
        _ => return None,
    })
}

/// Returns whether a value of the type has no items.
pub(super) fn is_single(ty: &Type) -> bool {
    let mut types = alternatives(ty).into_iter();
    types.any(|ty| {
        matches!(
            ty,
            Type::Bool
                | Type::Int(_)
                | Type::Float(_)
                | Type::String
                | Type::Date
                | Type::Duration
                | Type::Enum(_)
        )
    })
}

impl<'t> PromptChecker<'_, 't> {
    /// Returns the meaning of a name that the template has defined.
    pub(super) fn variable(&self, name: &str) -> Option<&Meaning<'t>> {
        self.variables.meaning(name)
    }

    /// Returns the type of an expression; [`Type::Any`] where it is not known.
    pub(super) fn ty(&mut self, expression: &Expr<'_>) -> Type {
        self.depth += 1;
        let ty = self.type_of(expression);
        self.depth -= 1;
        ty
    }

    fn type_of(&mut self, expression: &Expr<'_>) -> Type {
        match expression {
            Expr::Var(it) => self.name(it.id, it.span()),
            Expr::Const(it) => match it.value.as_str() {
                Some(text) => Type::Enum(vec![text.to_owned()]),
                None if it.value.is_none() => null(),
                None => type_of(&it.value),
            },
            Expr::GetAttr(it) => {
                let ty = self.required(&it.expr);
                let part = self.known_part(expression, &ty);
                part.unwrap_or_else(|| self.field(&ty, it.name, it.span()))
            }
            Expr::GetItem(it) => {
                let ty = self.required(&it.expr);
                let index = self.ty(&it.subscript_expr);
                let part = self.known_part(expression, &ty);
                part.unwrap_or_else(|| self.item(it, &ty, &index, it.span()))
            }
            Expr::Slice(it) => self.slice(it, it.span()),
            Expr::UnaryOp(it) => {
                if matches!(it.op, UnaryOpKind::Not) {
                    self.condition(&it.expr);
                    return Type::Bool;
                }
                let ty = self.present(&it.expr);
                let operand = TypedExpression { expression: &it.expr, ty: &ty };
                self.try_operation("-a", "`-`", &[operand], it.span())
            }
            Expr::BinOp(it) => self.operator(it, it.span()),
            Expr::Compare(it) => {
                let mut left = &it.expr;
                let mut left_type = self.present(&it.expr);
                for step in &it.ops {
                    let right = &step.expr;
                    let right_type = self.present(&step.expr);
                    let operands = [
                        TypedExpression { expression: left, ty: &left_type },
                        TypedExpression { expression: right, ty: &right_type },
                    ];
                    let operator = outside_of_chain(step.op);
                    if let Some(operator) = operator.filter(|it| symbol(*it).is_none()) {
                        self.compare(operands, operator);
                    } else {
                        self.try_operation("a in b", "`in`", &operands, right.span());
                        self.check_contained(operands);
                    }
                    (left, left_type) = (right, right_type);
                }
                Type::Bool
            }
            Expr::IfExpr(it) => self.choice(it, Self::value),
            Expr::Filter(it) => self.filter(it, it.span()),
            Expr::Test(it) => self.test(it, it.span()),
            Expr::Call(it) => self.call(it),
            Expr::List(it) => tuple(it.items.iter().map(|it| self.value(it)).collect()),
            Expr::Tuple(it) => tuple(it.items.iter().map(|it| self.value(it)).collect()),
            Expr::Map(it) => self.mapping(it),
        }
    }

    /// Returns the type of a mapping that the template makes.
    fn mapping(&mut self, it: &Map<'_>) -> Type {
        let keys: Vec<Type> = it.keys.iter().map(|it| self.present(it)).collect();
        let values: Vec<Type> = it.values.iter().map(|it| self.value(it)).collect();
        let names = it.keys.iter().map(|it| match it {
            Expr::Const(it) => it.value.as_str(),
            _ => None,
        });
        match names.collect::<Option<Vec<&str>>>() {
            Some(names) => {
                let mut fields: Vec<Field> = Vec::new();
                for (name, ty) in names.into_iter().zip(values) {
                    // The last value of a key counts.
                    fields.retain(|it| it.name != name);
                    fields.push(Field::new(name, ty));
                }
                Type::Record(Record { name: None, fields, is_closed: true }.into())
            }
            None if keys.contains(&Type::Any) => Type::Any,
            None => Type::Map(any_of(values).into()),
        }
    }

    /// Returns a choice between two values, or between a value and nothing.
    pub(super) fn choice(
        &mut self,
        it: &IfExpr<'_>,
        type_of: fn(&mut Self, &Expr<'_>) -> Type,
    ) -> Type {
        self.condition(&it.test_expr);
        self.check_constant(&it.test_expr);
        let mut chosen = Type::Any;
        self.knowing(&it.test_expr, true, |checker| chosen = type_of(checker, &it.true_expr));
        let Some(otherwise) = &it.false_expr else { return either(chosen, null()) };
        self.knowing(&it.test_expr, false, |checker| {
            chosen = either(chosen.clone(), type_of(checker, otherwise));
        });
        chosen
    }

    /// `and` and `or`, whose value is that of one side.
    pub(super) fn connection(
        &mut self,
        it: &BinOp<'_>,
        type_of: fn(&mut Self, &Expr<'_>) -> Type,
    ) -> Type {
        let is_and = matches!(it.op, BinOpKind::ScAnd);
        let left = if is_and {
            Some(type_of(self, &it.left))
        } else {
            present(&self.condition(&it.left)).cloned()
        };
        let mut ty = Type::Any;
        self.knowing(&it.left, is_and, |checker| {
            let right = type_of(checker, &it.right);
            ty = match left {
                Some(left) => either(left, right),
                None => right,
            };
        });
        ty
    }

    /// Checks a condition, where an optional field is false if it is absent. Returns its type.
    pub(super) fn condition(&mut self, expression: &Expr<'_>) -> Type {
        let optional = |checker: &Self, name: &str| {
            let field = checker.scope.schema.channel(name).map(Channel::ty);
            let is_field = checker.variable(name).is_none();
            field.filter(|it| is_field && matches!(it, Type::Optional(_))).cloned()
        };
        match expression {
            // Whether the macro is called with a block.
            Expr::Var(it) if matches!(self.variable(it.id), Some(Meaning::Macro(_))) => Type::Any,
            Expr::Var(it) if optional(self, it.id).is_some() => {
                optional(self, it.id).unwrap_or(Type::Any)
            }
            Expr::BinOp(it) if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                let outcome = matches!(it.op, BinOpKind::ScAnd);
                let left = self.condition(&it.left);
                let mut ty = left.clone();
                self.knowing(&it.left, outcome, |checker| {
                    ty = either(left, checker.condition(&it.right));
                });
                ty
            }
            expression => self.ty(expression),
        }
    }

    /// Returns an item of a list or a map, or a field by its name.
    fn item(&mut self, it: &GetItem<'_>, of: &Type, index: &Type, span: Span) -> Type {
        let types: Vec<Type> = alternatives(of).into_iter().cloned().collect();
        any_of(types.iter().map(|ty| self.item_of(ty, it, index, span)))
    }

    fn item_of(&mut self, of: &Type, it: &GetItem<'_>, index: &Type, span: Span) -> Type {
        let number = number_of(&it.subscript_expr);
        if let Some(items) = tuple_items(of) {
            if let Some([name]) = values_of(index)
                && let Some(part) = group_part(of, name)
            {
                return part.clone();
            }
            let Some(number) = number else {
                let item = items.into_iter().cloned().reduce(either);
                return item.map_or_else(null, Type::optional);
            };
            let at = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
            let at = if number < 0 { items.len().checked_sub(at) } else { Some(at) };
            let item = at.and_then(|at| items.get(at));
            return item.map_or_else(null, |it| Type::clone(it));
        }
        match (of, values_of(index)) {
            (Type::Record(_), Some([name])) => self.field(of, name, span),
            (Type::Record(_), _) => either(null(), values_of_map(of)),
            (Type::List(item), _) => {
                let is_end = matches!(number, Some(0 | -1));
                let item = Type::clone(item);
                if is_end && self.has_items(&it.expr) { item } else { item.optional() }
            }
            (Type::Map(value), _) => Type::clone(value).optional(),
            (single, _) if is_single(single) => {
                let message = format!("{} has no items", describe(of));
                self.problem("GR022", span, message, "no list");
                Type::Any
            }
            _ => Type::Any,
        }
    }

    fn slice(&mut self, it: &Slice<'_>, span: Span) -> Type {
        let ty = self.present(&it.expr);
        let bounds = [&it.start, &it.stop, &it.step]
            .map(|it| it.as_ref().map(|bound| (bound, self.present(bound))));
        if let [_, _, Some((step, step_type))] = &bounds
            && self.refuse_step(step, step_type)
        {
            return of_any_length(&ty);
        }
        let mut operands = vec![TestedOperand { expression: Some(&it.expr), ty: &ty }];
        let mut names = Vec::new();
        for bound in &bounds {
            let Some((expression, ty)) = bound else {
                names.push("");
                continue;
            };
            names.push(OPERANDS[operands.len()]);
            operands.push(TestedOperand { expression: Some(expression), ty });
        }
        let source = format!("a[{}]", names.join(":"));
        self.try_values(&source, "a slice", &operands, 1, span);
        match ty {
            // A slice of null is an empty list.
            Type::Optional(ty) => either(of_any_length(&ty), tuple(Vec::new())),
            ty => of_any_length(&ty),
        }
    }

    /// Reports a step of a slice that is never positive: the engine has no others.
    fn refuse_step(&mut self, step: &Expr<'_>, ty: &Type) -> bool {
        let largest = ty.required().range().and_then(|it| it.max);
        let message = match number_of(step) {
            Some(number) if number < 1 => format!("a slice has no step of {number}"),
            None if largest.is_some_and(|it| it < 1.0) => {
                "this step of a slice is never 1 or more".to_owned()
            }
            _ => return false,
        };
        self.problem("GR022", step.span(), message, "1 or more").help =
            Some("write `… | reverse` for the reverse order".to_owned());
        true
    }

    fn operator(&mut self, it: &BinOp<'_>, span: Span) -> Type {
        if matches!(it.op, BinOpKind::ScAnd | BinOpKind::ScOr) {
            return self.connection(it, Self::value);
        }
        let left = self.present(&it.left);
        let right = self.present(&it.right);
        let operands = [
            TypedExpression { expression: &it.left, ty: &left },
            TypedExpression { expression: &it.right, ty: &right },
        ];
        if let Some(symbol) = symbol(it.op) {
            let source = format!("a {symbol} b");
            let what = format!("`{symbol}`");
            let ty = self.try_operation(&source, &what, &operands, span);
            if matches!(it.op, BinOpKind::Concat) {
                self.printed(&left, it.left.span());
                self.printed(&right, it.right.span());
            }
            if matches!(it.op, BinOpKind::In) {
                self.check_contained(operands);
            }
            return match ty {
                // A list of lists, or a list several times.
                Type::List(_) if symbol == "+" => either(as_list(&left), as_list(&right)),
                Type::List(_) => {
                    let is_list = |it: &&Type| matches!(as_list(it), Type::List(_));
                    [&left, &right].into_iter().find(is_list).map_or(ty, as_list)
                }
                ty => ty,
            };
        }
        self.compare(operands, it.op);
        Type::Bool
    }

    fn test(&mut self, it: &Test<'_>, span: Span) -> Type {
        let known = self.problems.len();
        let args = self.arguments(&it.args);
        self.known("test", it.name, TESTS, span);
        // These tests may use an undefined name.
        let asks = asks_presence(it.name);
        let ty = self.maybe_undefined(&it.expr, asks);
        if self.problems.len() == known {
            let tested = TestedOperand { expression: Some(&it.expr), ty: &ty };
            let what = format!("the test `{}`", it.name);
            let source = |args: &str| format!("a is {}{args}", it.name);
            self.try_with_arguments(source, &what, tested, &it.args, &args, span);
        }
        if self.problems.len() == known
            && let ([CallArg::Pos(other)], [other_type]) = (it.args.as_slice(), args.as_slice())
            && let Some(operator) = operator_of(it.name)
        {
            let operands = [
                TypedExpression { expression: &it.expr, ty: &ty },
                TypedExpression { expression: other, ty: other_type },
            ];
            if matches!(operator, BinOpKind::In) {
                self.check_contained(operands);
            } else {
                self.compare(operands, operator);
            }
        }
        Type::Bool
    }

    /// Returns the advice for a name that may be undefined.
    pub(super) fn guarded(&self, name: &str) -> String {
        let guard = format!("guard it: `{{% if {name} is defined %}} … {{% endif %}}`");
        match self.scope.schema.channel(name).and_then(|it| it.reducer().natural_start()) {
            Some(start) => format!("{guard}, or let it start: `default: {start}`"),
            None => guard,
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Type {
        let is_private = self.scope.schema.channel(name).is_some_and(|it| !it.is_public());
        if is_private && self.scope.node.is_none() {
            let message = format!("a report shows `{name}`, which is private");
            let help = "remove it here, or remove `private` from the field";
            self.problem("GR112", span, message, "for the nodes alone").help =
                Some(help.to_owned());
        }
        self.facts.item_index |= name == INDEX;
        match self.variable(name) {
            Some(Meaning::Macro(_)) => {
                let message = format!("`{name}` is a macro, and no value");
                self.problem("GR041", span, message, "not called").help =
                    Some(format!("call it: `{name}(…)`"));
                return Type::Any;
            }
            Some(Meaning::Outside) => {
                self.report_outside(name, span);
                return Type::Any;
            }
            Some(Meaning::Value(_)) | None => (),
        }
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
                let gap = self.scope.written.gap(name);
                let problem = self.problem("GR130", span, message, "may be unwritten here");
                problem.gap = gap.map(Box::new);
                problem.help = Some(help);
                ty
            }
            None => {
                let fields = self.scope.schema.channels().iter().map(|it| it.name().as_str());
                let known: Vec<&str> = fields.chain(self.variables.names()).collect();
                let (help, message) = if self.scope.node.is_some() {
                    let known = known.into_iter().chain(["visit", "max_visits", "via"]);
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

    /// Returns the name of the node for messages.
    fn reader(&self) -> &str {
        self.scope.node.map_or("a report", NodeName::as_str)
    }

    pub(super) fn report_outside(&mut self, name: &str, span: Span) {
        let message = format!("`{name}` is defined outside of this macro, which does not see it");
        self.problem("GR041", span, message, "not known here").help =
            Some(format!("pass it to the macro as an argument: `MACRO({name})`"));
    }

    /// Returns the type of a name, and its presence.
    pub(super) fn look_up(&self, name: &str) -> Option<(Type, Presence)> {
        match self.variable(name) {
            Some(Meaning::Value(ty)) => return Some((ty.clone(), Presence::Always)),
            Some(Meaning::Macro(_) | Meaning::Outside) => {
                return Some((Type::Any, Presence::Always));
            }
            None => (),
        }
        if self.scope.node.is_none()
            && is_of_node(name)
            && self.scope.schema.channel(name).is_none()
        {
            return None;
        }
        let defined = self.known.is_present(name);
        let ty = match name {
            "visit" => Type::INT,
            "max_visits" if self.scope.bounded || defined => Type::INT,
            "max_visits" => return Some((Type::INT, Presence::Never)),
            // A registered node may dispatch an item, but a `map` names it.
            ITEM if defined => Type::Any,
            ITEM if self.scope.item.is_none() => return Some((Type::Any, Presence::Never)),
            ITEM => return None,
            INDEX if self.scope.schema.channel(name).is_none() && defined => Type::INT,
            INDEX if self.scope.schema.channel(name).is_none() => {
                return Some((Type::INT, Presence::Never));
            }
            _ => {
                let Some(channel) = self.scope.schema.channel(name) else {
                    return Some((Fact::find(name)?.ty(), Presence::Always));
                };
                let ty = channel.ty().clone();
                let presence = if defined {
                    Presence::Always
                } else {
                    self.scope.written.presence_given(name, &self.known)
                };
                return Some((ty, presence));
            }
        };
        Some((ty, Presence::Always))
    }

    pub(super) fn field(&mut self, of: &Type, name: &str, span: Span) -> Type {
        let types: Vec<Type> = alternatives(of).into_iter().cloned().collect();
        if types.len() > 1 {
            return any_of(types.iter().map(|it| self.field(it, name, span)));
        }
        match of.required() {
            Type::Any => Type::Any,
            Type::Map(value) => Type::clone(value).optional(),
            Type::Record(_) if name == CONTENT && is_file(of) => {
                self.refuse_file(span);
                Type::Any
            }
            ty if group_part(ty, name).is_some() => {
                group_part(ty, name).cloned().unwrap_or(Type::Any)
            }
            Type::Record(record) => of.field(name).cloned().unwrap_or_else(|| {
                let help = if is_group(of.required()) {
                    suggestion(name, GROUP_PARTS)
                } else {
                    suggestion(name, record.fields.iter().map(|it| it.name.as_str()))
                };
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

    /// Returns the type of an operand that may be undefined, if it is a plain name.
    pub(super) fn maybe_undefined(&mut self, expression: &Expr<'_>, allowed: bool) -> Type {
        match expression {
            Expr::Var(it) if allowed && self.look_up(it.id).is_some() => {
                self.look_up(it.id).map_or(Type::Any, |(ty, _)| ty)
            }
            other if allowed => self.ty(other),
            other => self.present(other),
        }
    }

    /// Reports a value that no text can contain, because it is no text: the first operand of `in`.
    fn check_contained(&mut self, [item, within]: [TypedExpression<'_>; 2]) {
        let is_other = |it: Form| it != Form::Text;
        if Form::of(within.ty) != Some(Form::Text) || !Form::of(item.ty).is_some_and(is_other) {
            return;
        }
        let shown = describe(item.ty);
        let of = describe(within.ty);
        let message = format!("{shown} is never a part of {of}");
        let help = match item.expression {
            Expr::Const(_) => "write it in quotes".to_owned(),
            _ => "compare it with the items of a list: `… in [1, 2]`".to_owned(),
        };
        self.problem("GR022", within.expression.span(), message, "never true").help = Some(help);
    }

    /// Checks that two compared values have types that can be compared, and that a literal text that is
    /// compared with an enum is one of its values.
    fn compare(&mut self, [left, right]: [TypedExpression<'_>; 2], operator: BinOpKind) {
        let is_equality = match operator {
            BinOpKind::Eq | BinOpKind::Ne => true,
            BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => false,
            _ => return,
        };
        let forms = Form::of(left.ty).zip(Form::of(right.ty));
        if let Some(forms) = forms.filter(|(one, other)| one != other) {
            let shown =
                |operand: TypedExpression<'_>| match (values_of(operand.ty), operand.expression) {
                    (Some([text]), Expr::Const(_)) => format!("the text \"{text}\""),
                    (_, Expr::Const(it)) => it.value.to_string(),
                    _ => describe(operand.ty),
                };
            let one = shown(left);
            let other = shown(right);
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
            self.problem("GR022", right.expression.span(), message, label).help =
                Some(help.to_owned());
            return;
        }
        if !is_equality {
            return;
        }
        for (one, other) in [(left, right), (right, left)] {
            let (Expr::Const(literal), Some(values), Some([text])) =
                (other.expression, values_of(one.ty), values_of(other.ty))
            else {
                continue;
            };
            if !values.contains(text) {
                let help = suggestion(text, values.iter().map(String::as_str));
                let message = format!("\"{text}\" is never a value of `{}`", one.ty.required());
                self.problem("GR023", literal.span(), message, "never equal").help = help;
            }
        }
    }

    pub(super) fn known(&mut self, kind: &str, name: &str, known: &[&str], span: Span) {
        let is_symbol = !name.starts_with(|it: char| it.is_alphabetic());
        if !is_symbol && !known.contains(&name) {
            let help = suggestion(name, known.iter().copied());
            let message = format!("there is no {kind} `{name}`");
            self.problem("GR041", span, message, format!("no such {kind}")).help = help;
        }
    }
}
