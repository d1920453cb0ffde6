//! Checks the types of an expression: names, fields, operators, enum values, and absent values.
//!
//! After a mistake the type is [`Type::Any`], which is compatible with everything, so that one
//! mistake is reported once.

use std::{collections::BTreeSet, ops::Range};

use graphrun_core::{
    graph::FactNeeds,
    id::{ChannelName, NodeName},
    state::{Field, NumberRange, Record, Type},
    words::count,
};
use serde_json::Value;

use super::{
    ExpressionScope,
    facts::Fact,
    functions::{Function, Takes},
    operators::joined,
    ranges,
    satisfiability::Types,
    sizes,
    syntax::{Node, NodeKind, Operator},
    typing::{describe, null},
};
use crate::{
    flow::{guarantee::Guarantees, written::Presence},
    item::{INDEX, names_of_item},
    problem::{Problem, suggestion},
};

pub(super) struct CheckedExpression {
    pub(super) ty: Type,
    /// The type of each part.
    pub(super) types: Types,
    pub(super) reads: BTreeSet<ChannelName>,
    /// The named types of the records that it makes.
    pub(super) named: BTreeSet<String>,
    /// The facts that a run must save for it.
    pub(super) facts: FactNeeds,
    /// The guarantees if the expression is true.
    pub(super) known: Guarantees,
    /// The guarantees if the expression is false.
    pub(super) known_otherwise: Guarantees,
    pub(super) problems: Vec<Problem>,
}

pub(super) fn check(root: &Node, scope: ExpressionScope<'_>) -> CheckedExpression {
    let mut variables = names_of_item(scope.item, scope.schema);
    variables.extend(scope.variable.map(|(name, ty)| (name.to_owned(), ty.clone())));
    let mut checker = ExpressionChecker {
        scope,
        variables,
        known: scope.known.clone(),
        misasked: Vec::new(),
        asking: false,
        types: Types::new(),
        types_here: Types::new(),
        reads: BTreeSet::new(),
        named: BTreeSet::new(),
        facts: FactNeeds::default(),
        problems: Vec::new(),
        unguarded: Vec::new(),
    };
    let ty = match scope.expected {
        Some(expected @ Type::Optional(_)) => checker.maybe(root, Some(expected)),
        expected => checker.value_as(root, expected),
    };
    checker.advise_guards(&ty);
    checker.learn(root, false);
    let known_otherwise = std::mem::replace(&mut checker.known, scope.known.clone());
    // A list of cases passes them from one case to the next.
    let known_otherwise = known_otherwise.without_repetitions(scope.known.count());
    checker.learn(root, true);
    checker.learn_ranges(root, true);
    let ExpressionChecker { types, reads, named, facts, known, problems, .. } = checker;
    CheckedExpression { ty, types, reads, named, facts, known, known_otherwise, problems }
}

pub(super) struct ExpressionChecker<'a> {
    pub(super) scope: ExpressionScope<'a>,
    /// The item of the task, and the variables of the quantifiers around.
    variables: Vec<(String, Type)>,
    /// What an enclosing guard has proved.
    pub(super) known: Guarantees,
    /// The paths of unknown fields in a `has`, where another field may have been meant.
    misasked: Vec<String>,
    /// Whether the checker is inside `has`, where values may be absent.
    asking: bool,
    pub(super) types: Types,
    /// The type of each part where it is evaluated, in the ranges that are known there.
    pub(super) types_here: Types,
    reads: BTreeSet<ChannelName>,
    pub(super) named: BTreeSet<String>,
    facts: FactNeeds,
    pub(super) problems: Vec<Problem>,
    /// The problems of values that are not guarded, by their number, each with the value.
    unguarded: Vec<UnguardedValue>,
}

/// A value that may be absent and is not guarded.
struct UnguardedValue {
    /// The number of its problem.
    problem: usize,
    value: String,
    is_nullable: bool,
}

impl ExpressionChecker<'_> {
    /// Returns the type of a value that must be present.
    pub(super) fn value(&mut self, node: &Node) -> Type {
        self.value_as(node, None)
    }

    /// Returns the type of a value that must be present, and that should have an expected type.
    pub(super) fn value_as(&mut self, node: &Node, expected: Option<&Type>) -> Type {
        let ty = self.ty(node, expected);
        let Type::Optional(inner) = ty else { return ty };
        let guarded = self.is_guarded(node);
        if matches!(node.kind, NodeKind::Literal(Value::Null)) {
            let message = "null is the value of an absent field, but a value is needed here";
            self.problem("GR022", &node.range, message.to_owned(), "no value").help =
                Some("`has(x)` asks whether a value is there".to_owned());
        } else if !guarded && !self.asking {
            let is_nullable = node.container().is_some_and(|it| self.is_map_with_nulls(it));
            let shown = node.fact_path().unwrap_or_else(|| "this".to_owned());
            let what = if is_nullable { "absent or null" } else { "absent" };
            self.unguarded.push(UnguardedValue {
                problem: self.problems.len(),
                value: shown.clone(),
                is_nullable,
            });
            let message = format!("`{shown}` may be {what}");
            self.problem("GR026", &node.range, message, "not guarded");
        }
        inner.required().clone()
    }

    /// Advises how to guard values: the guard of a condition makes it false, and that of another value chooses one.
    fn advise_guards(&mut self, root: &Type) {
        let expected = self.scope.expected.map(Type::required);
        let is_condition = *root.required() == Type::Bool || expected == Some(&Type::Bool);
        for UnguardedValue { problem, value, is_nullable } in self.unguarded.drain(..) {
            let guard = if is_condition {
                format!("has({value}) && …")
            } else {
                format!("has({value}) ? {value} : …")
            };
            let why = if is_nullable { "; `in` is true for null, too" } else { "" };
            self.problems[problem].help = Some(format!("guard it: `{guard}`{why}"));
        }
    }

    /// Returns the type of a value that may be absent.
    pub(super) fn maybe(&mut self, node: &Node, expected: Option<&Type>) -> Type {
        let ty = match &node.kind {
            NodeKind::If(parts) => {
                let ty = self.conditional(parts, &node.range, |it, part| it.maybe(part, expected));
                self.note(node, &ty);
                self.types_here.insert(node.key(), ty.clone());
                ty
            }
            _ => self.ty(node, expected),
        };
        if self.is_guarded(node) { ty.required().clone() } else { ty }
    }

    /// Returns whether a value is there for certain.
    fn is_guarded(&self, node: &Node) -> bool {
        let Some(path) = node.fact_path() else { return false };
        let is_misasked = |of: &Node| self.misasked.contains(&of.to_string());
        let is_fact = || self.scope.schema.channel("via").is_none();
        self.known.is_present(&path)
            || sizes::has_item(&self.known, node)
            || self.is_within_size(node)
            || !self.misasked.is_empty() && node.container().is_some_and(is_misasked)
            || self.known.is_part_of_trigger(&path) && is_fact()
    }

    /// Returns the type of a value that may be absent, except that both parts of `? :` must be present.
    pub(super) fn ty(&mut self, node: &Node, expected: Option<&Type>) -> Type {
        let ty = self.found(node, expected);
        if matches!(expected.map(Type::required), Some(Type::Float(_))) {
            self.keep_fraction(node, &ty);
        }
        self.note(node, &ty);
        let ty = self.narrowed(node, ty);
        self.types_here.insert(node.key(), ty.clone());
        ty
    }

    fn note(&mut self, node: &Node, ty: &Type) {
        // The types that are noted hold everywhere. The type of a computed number holds only where the known ranges do. A
        // value that is read or counted has the same range everywhere.
        let is_computed = match &node.kind {
            NodeKind::Name(_) | NodeKind::Field(..) | NodeKind::Index(..) => false,
            NodeKind::Call(function, _) => !function.counts,
            _ => true,
        };
        let ty = match ty {
            Type::Int(_) if is_computed && self.known.has_ranges() => {
                Type::Int(self.computed(node))
            }
            Type::Float(_) if is_computed && self.known.has_ranges() => {
                Type::Float(self.computed(node))
            }
            ty => ty.clone(),
        };
        self.types.insert(node.key(), ty);
    }

    /// Returns the range of a computed number everywhere, by those of its parts.
    fn computed(&self, node: &Node) -> NumberRange {
        let noted = |of: &Node| self.noted(of).cloned().unwrap_or(Type::Any);
        let ty = match &node.kind {
            NodeKind::Literal(value) => literal(value),
            NodeKind::Negate(of) => ranges::negated(noted(of)),
            NodeKind::Binary(operator, left, right) => {
                ranges::arithmetic(*operator, &noted(left), &noted(right))
            }
            NodeKind::If(parts) => {
                let [_, then, otherwise] = parts.as_ref();
                let then = noted(then);
                let otherwise = noted(otherwise);
                joined(&then, &otherwise).unwrap_or(Type::Any)
            }
            NodeKind::Call(function, arguments) => {
                (function.result)(&arguments.iter().map(noted).collect::<Vec<_>>())
            }
            _ => Type::Any,
        };
        ty.required().range().unwrap_or_default()
    }

    /// Returns the type of a number in the range that is known of it here.
    pub(super) fn narrowed(&self, node: &Node, ty: Type) -> Type {
        if !ty.required().is_number() || !self.known.has_ranges() {
            return ty;
        }
        let text = node.to_string();
        let narrow = |range| self.known.narrowed(&text, range);
        match ty {
            Type::Int(range) => Type::Int(narrow(range)),
            Type::Float(range) => Type::Float(narrow(range)),
            Type::Optional(inner) => match *inner {
                Type::Int(range) => Type::Int(narrow(range)).optional(),
                Type::Float(range) => Type::Float(narrow(range)).optional(),
                other => other.optional(),
            },
            other => other,
        }
    }

    fn found(&mut self, node: &Node, expected: Option<&Type>) -> Type {
        match &node.kind {
            NodeKind::Literal(value) => literal(value),
            NodeKind::List(items) => self.list(items, expected.and_then(item_of)),
            NodeKind::Record(name, fields) => {
                self.record(name.as_deref(), fields, &node.range, expected)
            }
            NodeKind::Index(of, index) => self.item(of, index, &node.range),
            NodeKind::Name(name) => self.name(name, &node.range),
            NodeKind::Field(of, name) => self.field(of, name, &node.range),
            NodeKind::Not(of) => {
                self.condition(of);
                Type::Bool
            }
            NodeKind::Negate(of) => ranges::negated(self.number(of)),
            NodeKind::Binary(Operator::Add, left, right) => {
                self.sum(left, right, &node.range, expected)
            }
            NodeKind::Binary(operator, left, right) => {
                self.binary(*operator, left, right, &node.range)
            }
            NodeKind::If(parts) => {
                self.conditional(parts, &node.range, |it, part| it.value_as(part, expected))
            }
            NodeKind::Call(function, arguments) => {
                self.call(function, arguments, &node.range, expected)
            }
            // Only their calls read them.
            NodeKind::NodeName(_) | NodeKind::Pattern(_) | NodeKind::Variable(_) => Type::Any,
        }
    }

    fn list(&mut self, items: &[Node], expected: Option<&Type>) -> Type {
        let mut types = Vec::new();
        for item in items {
            let ty = self.value_as(item, expected);
            if let Some(expected) = expected.filter(|it| ty.out_of_range(it).is_some()) {
                self.misfit(item, &ty, expected, "an item");
            }
            types.push((item, ty));
        }
        if types.iter().any(|(_, ty)| matches!(ty.required(), Type::Float(_))) {
            for (item, ty) in &types {
                self.keep_fraction(item, ty);
            }
        }
        // An empty list is a list of any type, so the others decide.
        types.sort_by_key(|(item, _)| item.is_empty_list());
        let mut item_type: Option<Type> = None;
        for (item, ty) in types {
            if item.is_empty_list() && item_type.as_ref().is_some_and(is_list) {
                continue;
            }
            let Some(before) = item_type else {
                item_type = Some(ty);
                continue;
            };
            let both = joined(&before, &ty);
            if both.is_none() {
                let message = format!("a list of {} holds {}", describe(&before), describe(&ty));
                self.problem("GR022", &item.range, message, "another type");
            }
            item_type = Some(both.unwrap_or(Type::Any));
        }
        let item_type = item_type.or_else(|| expected.cloned());
        Type::List(Box::new(item_type.unwrap_or(Type::Any)))
    }

    fn name(&mut self, name: &str, range: &Range<usize>) -> Type {
        if let Some((_, ty)) = self.variables.iter().rev().find(|(it, _)| it == name) {
            self.facts.item_index |= name == INDEX;
            return ty.clone();
        }
        if name == "output" && self.scope.output {
            let dir = Field::new("dir", Type::String);
            return Type::Record(
                Record { name: Some("output".into()), fields: vec![dir], is_closed: true }.into(),
            );
        }
        let schema = self.scope.schema;
        let Some(channel) = schema.channel(name) else {
            if let Some(fact) = Fact::find(name) {
                return fact.ty();
            }
            if self.scope.any_item {
                return Type::Any;
            }
            let known = schema.channels().iter().map(|it| it.name().as_str());
            let known = known.chain(self.variables.iter().map(|(it, _)| it.as_str()));
            let lower = name.to_ascii_lowercase();
            let literal = matches!(lower.as_str(), "true" | "false");
            let literal = literal.then(|| format!("write `{lower}`"));
            let help = literal.or_else(|| Fact::meant_by(name)).or_else(|| suggestion(name, known));
            self.problem(
                "GR021",
                range,
                format!("the state has no field `{name}`"),
                "no such field",
            )
            .help = help;
            return Type::Any;
        };
        self.reads.insert(channel.name().clone());
        if !self.asking && !self.known.is_present(name) {
            self.expect_written(name, matches!(channel.ty(), Type::Optional(_)), range);
        }
        channel.ty().clone()
    }

    fn expect_written(&mut self, name: &str, is_optional: bool, range: &Range<usize>) {
        match self.scope.written.presence_given(name, &self.known) {
            Presence::Always => (),
            Presence::Never => {
                let message = format!("`{name}` is read here, but nothing writes it before");
                self.problem("GR035", range, message, "never written before").help = Some(format!(
                    "make `{name}` an input, give it a default, or let an earlier node write it"
                ));
            }
            // The type already shows that an optional field needs a guard.
            Presence::Sometimes if is_optional => (),
            Presence::Sometimes => {
                let message =
                    format!("`{name}` is read here, but not every path to here writes it");
                let start =
                    self.scope.schema.channel(name).and_then(|it| it.reducer().natural_start());
                let gap = self.scope.written.gap(name);
                let problem = self.problem("GR130", range, message, "may be unwritten here");
                problem.gap = gap.map(Box::new);
                problem.help = Some(match start {
                    Some(start) => {
                        format!("guard it with `has({name})`, or let it start: `default: {start}`")
                    }
                    None => format!("guard it with `has({name})`, or write it on every path"),
                });
            }
        }
    }

    fn field(&mut self, of: &Node, name: &str, range: &Range<usize>) -> Type {
        let ty = self.value(of);
        self.field_of(of, &ty, name, range.end - name.len()..range.end)
    }

    fn field_of(&mut self, of: &Node, ty: &Type, name: &str, span: Range<usize>) -> Type {
        match ty {
            Type::Any => Type::Any,
            Type::Map(value) => Type::clone(value).optional(),
            Type::Record(record) => ty.field(name).cloned().unwrap_or_else(|| {
                let help = suggestion(name, record.fields.iter().map(|it| it.name.as_str()));
                let message = format!("{} has no field `{name}`", describe(ty));
                self.problem("GR021", &span, message, "no such field").help = help;
                if self.asking {
                    self.misasked.extend(of.fact_path());
                }
                Type::Any
            }),
            _ => {
                let message = format!("{} has no fields", describe(ty));
                let is_size = matches!(name, "length" | "len" | "size" | "count");
                let help = (is_size && matches!(ty, Type::List(_) | Type::String))
                    .then(|| format!("write `{of}.size()`"));
                self.problem("GR021", &span, message, "no field").help = help;
                Type::Any
            }
        }
    }

    /// Returns an item of a list or of a map. It may be absent: a number may lie beyond the end, and a map may lack a
    /// key.
    fn item(&mut self, of: &Node, index: &Node, range: &Range<usize>) -> Type {
        let ty = self.value(of);
        // Only the list or the map may be asked for, not the value that chooses one of its items.
        let index_type = self.strictly(|it| it.value(index));
        let (noun, fits) = match &ty {
            Type::Any => return Type::Any,
            Type::Record(_) => match &index.kind {
                NodeKind::Literal(Value::String(name)) => {
                    return self.field_of(of, &ty, name, index.range.clone());
                }
                _ => ("the name of a field, in quotes", false),
            },
            Type::List(_) => ("a whole number", matches!(index_type, Type::Int(_))),
            Type::Map(_) => ("a text", matches!(index_type, Type::String | Type::Enum(_))),
            _ => {
                let message = format!("{} has no items", describe(&ty));
                let text = matches!(ty, Type::String | Type::Enum(_) | Type::Date);
                self.problem("GR022", range, message, "no item").help =
                    text.then(|| "a part of a text is `text.slice(0, 1)`".to_owned());
                return Type::Any;
            }
        };
        if !fits && index_type != Type::Any {
            let message = format!("expected {noun}, found {}", describe(&index_type));
            self.problem("GR022", &index.range, message, format!("not {noun}"));
        }
        if of.is_empty_list() {
            return null();
        }
        let item = item_of(&ty).cloned().unwrap_or(Type::Any);
        let (Type::List(_), Type::Int(numbers)) = (&ty, &index_type) else {
            return item.optional();
        };
        if numbers.max.is_some_and(|it| it < 0.0) {
            let message = "items are counted from zero on, so this one never exists";
            self.problem("GR022", &index.range, message.to_owned(), "below zero").help =
                Some("the last item is `items.last()`".to_owned());
        }
        let NodeKind::List(items) = &of.kind else { return item.optional() };
        let existing = ranges::sizes(0, items.len() - 1);
        if existing.includes(*numbers) {
            return item;
        }
        if numbers.min.zip(existing.max).is_some_and(|(it, last)| it > last) {
            let message = format!(
                "the list has {}, so this one never exists",
                count(items.len() as u64, "item")
            );
            self.problem("GR022", &index.range, message, "beyond the end");
            return Type::Any;
        }
        item.optional()
    }

    /// Checks a part outside of `has`.
    fn strictly<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.asking, false);
        let checked = check(self);
        self.asking = before;
        checked
    }

    pub(super) fn condition(&mut self, node: &Node) {
        let ty = self.value(node);
        let help = match &ty {
            Type::Bool | Type::Any => return,
            Type::Enum(values) if !matches!(node.kind, NodeKind::Literal(_)) => {
                let value = values.first().map_or("", String::as_str);
                format!("compare it: `… == \"{value}\"`")
            }
            Type::List(_) | Type::Map(_) => "write `… .size() > 0`".to_owned(),
            _ => "only a bool is a condition; compare the value with another".to_owned(),
        };
        let message = format!("expected a condition, found {}", describe(&ty));
        self.problem("GR022", &node.range, message, "not a bool").help = Some(help);
    }

    fn conditional(
        &mut self,
        [condition, then_node, otherwise_node]: &[Node; 3],
        range: &Range<usize>,
        mut check: impl FnMut(&mut Self, &Node) -> Type,
    ) -> Type {
        self.condition(condition);
        let then = self.knowing(condition, true, |it| check(it, then_node));
        let otherwise = self.knowing(condition, false, |it| check(it, otherwise_node));
        self.keep_fractions([(then_node, &then), (otherwise_node, &otherwise)]);
        if otherwise_node.is_empty_list() && is_list(&then) {
            return then;
        }
        if then_node.is_empty_list() && is_list(&otherwise) {
            return otherwise;
        }
        joined(&then, &otherwise).unwrap_or_else(|| {
            let message = format!("either {} or {}", describe(&then), describe(&otherwise));
            self.problem("GR022", range, message, "both must be of one type");
            Type::Any
        })
    }

    fn call(
        &mut self,
        function: &Function,
        arguments: &[Node],
        range: &Range<usize>,
        expected: Option<&Type>,
    ) -> Type {
        let before = std::mem::replace(&mut self.asking, false);
        let bound = self.variables.len();
        let known = self.known.count();
        let mut types = Vec::new();
        for (parameter, argument) in function.parameters.iter().zip(arguments) {
            types.push(match (&parameter.takes, &argument.kind) {
                (Takes::Value { noun, includes }, _) => self.taken(argument, noun, *includes),
                (Takes::Path, _) if function.is_default() => self.defaulted(argument),
                (Takes::Path, _) => {
                    self.asking = true;
                    let ty = self.ty(argument, None);
                    self.asking = false;
                    if matches!(argument.kind, NodeKind::Call(..)) && ty == *ty.required() {
                        self.always_there(argument, &ty);
                    }
                    ty
                }
                (Takes::Condition, _) => {
                    self.condition(argument);
                    if function.name == "filter" {
                        self.items_with(argument, &arguments[1], &types[1])
                    } else {
                        Type::Bool
                    }
                }
                (Takes::Expression, _) if function.is_default() => {
                    let expected = expected.map(Type::required).or(types.last());
                    // An empty list is one of any type.
                    match types.last().filter(|it| argument.is_empty_list() && is_list(it)).cloned()
                    {
                        Some(list) => list,
                        None => self.value_as(argument, expected.cloned().as_ref()),
                    }
                }
                (Takes::Expression, _) => self.value_as(argument, expected.and_then(item_of)),
                (Takes::Key, _) => {
                    let is_text = |it: &Type| matches!(it, Type::String | Type::Enum(_));
                    self.taken(argument, "a text", is_text)
                }
                (Takes::Order, _) => {
                    let has_order = |it: &Type| {
                        it.is_number() || matches!(it, Type::String | Type::Enum(_) | Type::Date)
                    };
                    self.taken(argument, "a number or a text", has_order)
                }
                (Takes::Pattern, NodeKind::Pattern(pattern)) => pattern.groups_type(),
                (_, NodeKind::NodeName(name)) => {
                    if function.name == "usage" {
                        self.facts.usage_of.extend(NodeName::parse_path(name));
                    }
                    self.node_name(name, range)
                }
                (_, NodeKind::Variable(name)) => {
                    let ty = self.variable(name, types.last(), &argument.range);
                    self.learn_filtered(&arguments[0], name);
                    ty
                }
                (Takes::NodeName | Takes::Pattern | Takes::Variable, _) => Type::String,
            });
        }
        if let ([a, b], [a_type, b_type], "min" | "max" | "orValue") =
            (arguments, &types[..], function.name)
        {
            self.keep_fractions([(a, a_type), (b, b_type)]);
        }
        self.facts.time |= function.name == "now";
        self.variables.truncate(bound);
        self.known.truncate(known);
        self.asking = before;
        if let Some(types) = (function.two_types)(&types) {
            let message = format!("`{}` makes values that are {types}", function.name);
            let last = arguments.last().map_or(range, |it| &it.range);
            self.problem("GR022", last, message, "another type").help =
                Some("give both values of one type, or write a record with all fields".to_owned());
        }
        if let Some(NodeKind::List(items)) = arguments.first().map(|it| &it.kind) {
            match function.name {
                "first" | "last" | "minBy" | "maxBy" if items.is_empty() => return null(),
                "first" | "last" | "minBy" | "maxBy" => {
                    return item_of(&types[0]).cloned().unwrap_or(Type::Any);
                }
                "size" => return Type::Int(ranges::sizes(items.len(), items.len())),
                _ => (),
            }
        }
        (function.result)(&types)
    }

    /// Returns the type of a value that has a default, which must be one that may be absent.
    fn defaulted(&mut self, node: &Node) -> Type {
        self.asking = true;
        let ty = self.ty(node, None);
        self.asking = false;
        if self.is_certain(node) {
            let message = format!("`{node}` always has a value");
            self.problem("GR022", &node.range, message, "never absent").help =
                Some("omit `orValue`".to_owned());
        }
        ty.required().clone()
    }

    /// Returns whether a value that has been checked is never absent.
    fn is_certain(&self, node: &Node) -> bool {
        let ty = self.types.get(&node.key());
        let is_optional = !ty.is_some_and(|it| !matches!(it, Type::Optional(_) | Type::Any));
        if is_optional && !self.is_guarded(node) {
            return false;
        }
        match &node.kind {
            NodeKind::Name(name) if self.scope.schema.channel(name).is_some() => {
                self.known.is_present(name)
                    || self.scope.written.presence_given(name, &self.known) == Presence::Always
            }
            NodeKind::Field(of, _) | NodeKind::Index(of, _) => self.is_certain(of),
            _ => true,
        }
    }

    fn always_there(&mut self, call: &Node, ty: &Type) {
        if *ty != Type::Any {
            let message = format!("`{call}` always has a value");
            self.problem("GR022", &call.range, message, "never absent").help =
                Some("omit `has`".to_owned());
        }
    }

    /// Checks an argument that must have one of some types.
    fn taken(&mut self, argument: &Node, noun: &str, includes: fn(&Type) -> bool) -> Type {
        let ty = self.value(argument);
        if ty == Type::Any || includes(&ty) {
            return ty;
        }
        let message = format!("expected {noun}, found {}", describe(&ty));
        self.problem("GR022", &argument.range, message, format!("not {noun}"));
        Type::Any
    }

    fn node_name(&mut self, name: &str, range: &Range<usize>) -> Type {
        if !self.scope.nodes.contains(name) {
            let help = suggestion(name, self.scope.nodes.iter().map(NodeName::as_str));
            let message = format!("there is no node `{name}`");
            self.problem("GR010", range, message, "no such node").help = help;
        }
        Type::String
    }

    /// Binds a name to each item of a list, for the next arguments.
    fn variable(&mut self, name: &str, list: Option<&Type>, range: &Range<usize>) -> Type {
        // The guarantees about a fact would hold for the items, too.
        let is_fact = Fact::find(name).is_some();
        let taken = is_fact || self.variables.iter().any(|(it, _)| it == name);
        if taken || self.scope.schema.channel(name).is_some() {
            let message = format!("the name `{name}` is already in use");
            self.problem("GR021", range, message, "ambiguous").help =
                Some("choose another name".to_owned());
        }
        let item = match list {
            Some(Type::List(item)) => Type::clone(item),
            _ => Type::Any,
        };
        self.variables.push((name.to_owned(), item.clone()));
        item
    }

    pub(super) fn problem(
        &mut self,
        code: &'static str,
        range: &Range<usize>,
        message: String,
        label: impl Into<String>,
    ) -> &mut Problem {
        let at = self.problems.len();
        self.problems.push(Problem::new(code, range.clone(), message, label));
        &mut self.problems[at]
    }
}

fn is_list(ty: &Type) -> bool {
    matches!(ty.required(), Type::List(_))
}

/// Returns the type of the items of a list or of a map.
fn item_of(ty: &Type) -> Option<&Type> {
    match ty.required() {
        Type::List(item) | Type::Map(item) => Some(item),
        _ => None,
    }
}

/// Returns the type of a literal.
pub(super) fn literal(value: &Value) -> Type {
    match value {
        Value::Null => null(),
        Value::Bool(_) => Type::Bool,
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Type::Int(ranges::only(whole)),
            None => Type::Float(number.as_f64().map(NumberRange::only).unwrap_or_default()),
        },
        Value::String(text) => Type::Enum(vec![text.clone()]),
        Value::Array(_) | Value::Object(_) => Type::Any,
    }
}
