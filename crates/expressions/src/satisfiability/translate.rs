//! Makes a formula of a checked condition.
//!
//! A part that it cannot translate becomes an independent term that may be true or false.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range};

use graphrun_core::state::{NumberRange, Type, always_matches};
use serde_json::Value;

use super::{
    super::{
        closed::evaluate_closed,
        evaluate::TypedPlaces,
        functions::Function,
        ranges::{EXACT_BELOW, exact_range},
        syntax::{Node, NodeKind, Operator, RecordField},
        values::int,
    },
    atoms::ORDERS,
    formula::{Ask, Formula, FormulaKind, NumberKind, Term, Test},
};

/// A condition is decided value by value for at most so many values.
const VALUES_MAX: usize = 32;
/// Two enums with more values in common are compared as a whole.
const COMMON_MAX: usize = 32;

/// The types of the parts of an expression, by their bytes in the source.
pub(crate) type Types = BTreeMap<(usize, usize), Type>;

/// The conditions of an expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    /// The whole expression, if it is a bool.
    pub(super) whole: Option<Formula>,
    /// The conditions inside of other values: of `exists` and `all`, of `? :`, of a list or a record.
    pub(super) inside: Vec<Formula>,
}

/// Returns the conditions of an expression; `types` are the types of its parts.
pub(crate) fn translate(root: &Node, types: &Types, places: &TypedPlaces) -> Conditions {
    let translation = Translation { types, places };
    let is_condition = matches!(translation.ty(root), Type::Bool | Type::Any);
    let whole = is_condition.then(|| translation.formula(root));
    let mut inside = Vec::new();
    translation.look_inside(root, is_condition, &mut inside);
    Conditions { whole, inside }
}

struct Translation<'a> {
    types: &'a Types,
    places: &'a TypedPlaces,
}

impl Translation<'_> {
    /// Adds the conditions in a part that are no parts of other ones.
    fn look_inside(&self, node: &Node, is_in_formula: bool, found: &mut Vec<Formula>) {
        let is_decided = matches!(
            node.kind,
            NodeKind::Not(_) | NodeKind::Binary(..) | NodeKind::Call(..) | NodeKind::If(_)
        );
        let is_condition = is_decided && *self.ty(node) == Type::Bool;
        if is_condition && !is_in_formula {
            found.push(self.formula(node));
        }
        let is_logic = match &node.kind {
            NodeKind::Not(_) | NodeKind::Binary(Operator::And | Operator::Or, ..) => true,
            NodeKind::If(_) => is_condition,
            NodeKind::Binary(Operator::Equal | Operator::Unequal, left, _) => {
                *self.ty(left) == Type::Bool
            }
            _ => false,
        };
        for part in node.parts() {
            self.look_inside(part, is_logic, found);
        }
    }

    fn formula(&self, node: &Node) -> Formula {
        let pair = |left: &Node, right: &Node| Box::new([self.formula(left), self.formula(right)]);
        let kind = match &node.kind {
            NodeKind::Not(of) => FormulaKind::Not(Box::new(self.formula(of))),
            NodeKind::Binary(Operator::And, left, right) => FormulaKind::And(pair(left, right)),
            NodeKind::Binary(Operator::Or, left, right) => FormulaKind::Or(pair(left, right)),
            NodeKind::If(parts) => {
                FormulaKind::If(Box::new(parts.each_ref().map(|it| self.formula(it))))
            }
            NodeKind::Call(function, arguments) if function.is_presence() => {
                self.present(&arguments[0])
            }
            NodeKind::Literal(Value::Bool(it)) => FormulaKind::Literal(*it),
            NodeKind::Binary(operator, left, right) => {
                let is_direct = is_path(left) || is_path(right);
                self.closed(node)
                    .or_else(|| if is_direct { None } else { self.by_values(node) })
                    .unwrap_or_else(|| self.compared(*operator, left, right, node))
            }
            NodeKind::Call(function, arguments) => self
                .closed(node)
                .or_else(|| self.by_values(node))
                .or_else(|| self.found_in_every_text(function, arguments).map(FormulaKind::Known))
                .unwrap_or_else(|| holds(node)),
            _ => self.closed(node).unwrap_or_else(|| holds(node)),
        };
        Formula { kind, range: node.range.clone() }
    }

    /// Returns a condition that reads one part of the state with few values, as a choice among these.
    fn by_values(&self, node: &Node) -> Option<FormulaKind> {
        let mut paths = Vec::new();
        free_paths(node, &mut Vec::new(), &mut paths);
        let (of, others) = paths.split_first()?;
        let path = of.path()?;
        if others.iter().any(|it| it.path().as_deref() != Some(&path))
            || self.has_value_without(&path, node)
        {
            return None;
        }
        // Each value with the question whether the part has it.
        let values: Vec<(Value, FormulaKind)> = match self.ty(of) {
            Type::Enum(values) if values.len() <= VALUES_MAX => {
                let value = |it: &String| (it.as_str().into(), text(of, Some(values), it));
                values.iter().map(value).collect()
            }
            Type::Int(range) => {
                let value = |it: f64| {
                    Some((int(&Value::from(it)).ok()?, self.number(of, Operator::Equal, it)))
                };
                whole_numbers(*range)?.into_iter().map(value).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let range = node.range.clone();
        let count = values.len();
        let mut chosen = Vec::new();
        for (value, is_value) in values {
            if evaluate_closed(&node.with_constant(&path, &value), self.places)?.ok()?.as_bool()? {
                chosen.push(is_value);
            }
        }
        if chosen.len() == count {
            return Some(FormulaKind::Known(true));
        }
        let formula = |kind| Formula { kind, range: range.clone() };
        let none = formula(FormulaKind::Known(false));
        Some(chosen.into_iter().fold(none, |before, it| or(before, formula(it))).kind)
    }

    /// Returns whether a part has a value although that of a path is absent: a call gives a default for it, or a record leaves
    /// the field out.
    fn has_value_without(&self, path: &str, part: &Node) -> bool {
        let is_optional =
            |it: &RecordField| matches!(self.types.get(&it.value.key()), Some(Type::Optional(_)));
        let is_here = match &part.kind {
            NodeKind::Call(function, arguments) if function.is_default() => {
                arguments[0].path().as_deref() == Some(path)
            }
            NodeKind::Record(_, fields) => fields.iter().any(is_optional),
            _ => false,
        };
        is_here || part.parts().into_iter().any(|it| self.has_value_without(path, it))
    }

    fn compared(&self, operator: Operator, left: &Node, right: &Node, whole: &Node) -> FormulaKind {
        match operator {
            Operator::Unequal => {
                let equal = self.compared(Operator::Equal, left, right, whole);
                FormulaKind::Not(Box::new(Formula { kind: equal, range: whole.range.clone() }))
            }
            Operator::Equal => self.equal(left, right, &whole.range),
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => self.ordered(operator, left, right),
            Operator::In => match &right.kind {
                NodeKind::List(items) => {
                    let range = &whole.range;
                    let none = Formula { kind: FormulaKind::Known(false), range: range.clone() };
                    let any = items.iter().fold(none, |before, item| {
                        let kind = self.equal(left, item, &item.range);
                        or(before, Formula { kind, range: item.range.clone() })
                    });
                    any.kind
                }
                _ => match self.is_contained(left, right) {
                    Some(outcome) => FormulaKind::Known(outcome),
                    None => holds(whole),
                },
            },
            _ => holds(whole),
        }
    }

    /// Returns whether a record always or never has a field, or a list an item, by their types.
    fn is_contained(&self, item: &Node, within: &Node) -> Option<bool> {
        match self.ty(within) {
            Type::Record(record) => {
                let Type::Enum(names) = self.ty(item) else { return None };
                let mut outcomes = names.iter().map(|name| {
                    let field = record.fields.iter().find(|it| it.name == *name);
                    match field.map(|it| &it.ty) {
                        Some(Type::Optional(_) | Type::Any) => None,
                        Some(_) => Some(true),
                        None => record.is_closed.then_some(false),
                    }
                });
                let first = outcomes.next()??;
                outcomes.all(|it| it == Some(first)).then_some(first)
            }
            Type::List(of) => never_equal(self.ty(item), of.required()).then_some(false),
            _ => None,
        }
    }

    /// Returns whether two values of other types than texts and numbers are always or never equal.
    fn are_equal(&self, left: &Node, right: &Node) -> Option<bool> {
        if left.to_string() == right.to_string() {
            return Some(true);
        }
        if let (NodeKind::List(left), NodeKind::List(right)) = (&left.kind, &right.kind) {
            let mut pairs = left.iter().zip(right);
            let differs = left.len() != right.len()
                || pairs.any(|(left, right)| never_equal(self.ty(left), self.ty(right)));
            return differs.then_some(false);
        }
        let items = [left, right].map(|node| match (&node.kind, self.ty(node)) {
            (NodeKind::List(items), _) if items.is_empty() => None,
            (_, Type::List(item)) => Some(item.required()),
            _ => None,
        });
        let is_filled = |it: &Node| matches!(it.kind, NodeKind::List(_));
        match items {
            [Some(left_item), Some(right_item)] if is_filled(left) || is_filled(right) => {
                never_equal(left_item, right_item).then_some(false)
            }
            _ => never_equal(self.ty(left), self.ty(right)).then_some(false),
        }
    }

    fn equal(&self, left: &Node, right: &Node, range: &Range<usize>) -> FormulaKind {
        let (left, right) = if literal(left).is_some() { (right, left) } else { (left, right) };
        let left_type = self.ty(left);
        let right_type = self.ty(right);
        match (left_type, right_type, literal(right)) {
            (Type::Bool, Type::Bool, _) => {
                FormulaKind::Same(Box::new([self.formula(left), self.formula(right)]))
            }
            (Type::String, _, Some(Value::String(is))) => text(left, None, is),
            (Type::Enum(values), _, Some(Value::String(is))) => text(left, Some(values), is),
            (Type::Enum(a), Type::Enum(b), None) => {
                let common: Vec<&String> = a.iter().filter(|it| b.contains(it)).collect();
                if common.len() > COMMON_MAX {
                    return ordering(Operator::Equal, left, right, ORDERS.to_vec());
                }
                let formula = |kind| Formula { kind, range: range.clone() };
                let none = formula(FormulaKind::Known(false));
                let any = common.into_iter().fold(none, |before, item| {
                    let both = [text(left, Some(a), item), text(right, Some(b), item)];
                    or(before, formula(FormulaKind::And(Box::new(both.map(formula)))))
                });
                any.kind
            }
            (Type::Int(_) | Type::Float(_), Type::Int(_) | Type::Float(_), _) => {
                self.ordered(Operator::Equal, left, right)
            }
            (
                Type::String | Type::Enum(_) | Type::Date,
                Type::String | Type::Enum(_) | Type::Date,
                _,
            ) => ordering(Operator::Equal, left, right, ORDERS.to_vec()),
            // For other types the relation between equality and order is unknown.
            _ => {
                if let Some(outcome) = self.are_equal(left, right) {
                    return FormulaKind::Known(outcome);
                }
                let a = left.to_string();
                let b = right.to_string();
                let in_order = a <= b || literal(right).is_some();
                let text = if in_order { format!("{a} == {b}") } else { format!("{b} == {a}") };
                let term = Term { free: false, text, ..of_both(left, right) };
                test(term, Ask::Holds)
            }
        }
    }

    fn ordered(&self, operator: Operator, left: &Node, right: &Node) -> FormulaKind {
        let number = |it: &Node| self.ty(it).is_number();
        // Dates are texts whose order is the order of time.
        let text = |it: &Node| matches!(self.ty(it), Type::String | Type::Enum(_) | Type::Date);
        if number(left) && number(right) {
            return match (self.exact(left), self.exact(right)) {
                (_, Some(than)) => self.number(left, operator, than),
                (Some(than), _) => self.number(right, operator.turned(), than),
                (None, None) => {
                    let possible = possible_orders(self.range(left), self.range(right));
                    ordering(operator, left, right, possible)
                }
            };
        }
        if text(left) && text(right) {
            return ordering(operator, left, right, ORDERS.to_vec());
        }
        let kind = NodeKind::Binary(operator, Box::new(left.clone()), Box::new(right.clone()));
        holds(&Node { kind, range: left.range.clone() })
    }

    fn number(&self, of: &Node, operator: Operator, than: f64) -> FormulaKind {
        let mut term = term(of);
        if let NodeKind::Call(Function { counts: true, .. }, arguments) = &of.kind {
            let is_free = |node: &Node| match (&node.kind, self.ty(node)) {
                (NodeKind::NodeName(_), _) => true,
                (_, Type::List(_) | Type::String | Type::Map(_)) => is_path(node),
                _ => false,
            };
            term.free = arguments.iter().all(is_free);
        }
        test(
            term,
            Ask::Number { kind: self.number_kind(of), range: self.range(of), operator, than },
        )
    }

    fn range(&self, node: &Node) -> NumberRange {
        exact_range(self.ty(node).range().unwrap_or_default())
    }

    fn number_kind(&self, node: &Node) -> NumberKind {
        match &node.kind {
            NodeKind::Call(Function { counts: true, .. }, _) => NumberKind::Whole,
            _ if matches!(self.ty(node), Type::Int(_)) => NumberKind::Whole,
            _ => NumberKind::Real,
        }
    }

    fn present(&self, of: &Node) -> FormulaKind {
        // A field that a record needs is there exactly where the record is.
        let is_needed = |node: &Node| {
            let found = self.types.get(&(node.range.start, node.range.end));
            found.is_some_and(|it| !matches!(it, Type::Optional(_) | Type::Any))
        };
        let mut of = of;
        while let NodeKind::Field(record, _) = &of.kind
            && is_needed(of)
        {
            of = record;
        }
        // An optional value may be absent; about others nothing is known here. An item is not independent of the
        // size of its list, nor is the result of a call of its arguments.
        let found = self.types.get(&of.key());
        let free = is_path(of) && matches!(found, Some(Type::Optional(_)));
        let Term { text, needs, .. } = term(of);
        test(Term { text, reads: needs, needs: Vec::new(), free }, Ask::Present)
    }

    /// Returns the value of a constant condition.
    fn closed(&self, node: &Node) -> Option<FormulaKind> {
        evaluate_closed(node, self.places)?.ok()?.as_bool().map(FormulaKind::Known)
    }

    /// Returns a constant that can be compared exactly with every number.
    fn exact(&self, node: &Node) -> Option<f64> {
        let number = evaluate_closed(node, self.places)?.ok()?.as_f64()?;
        (number.abs() < EXACT_BELOW).then_some(number)
    }

    /// Returns whether a question about parts of a text has the same answer for every text.
    fn found_in_every_text(&self, function: &Function, arguments: &[Node]) -> Option<bool> {
        match (function.name, arguments) {
            ("matches", [_, Node { kind: NodeKind::Pattern(pattern), .. }]) => {
                always_matches(pattern.regex.as_str())
            }
            ("contains" | "startsWith" | "endsWith", [text, part]) => {
                let is_empty = evaluate_closed(part, self.places).and_then(Result::ok)
                    == Some(Value::from(""));
                (is_empty || text.to_string() == part.to_string()).then_some(true)
            }
            _ => None,
        }
    }

    fn ty(&self, node: &Node) -> &Type {
        let found = self.types.get(&node.key());
        found.map_or(&Type::Any, Type::required)
    }
}

/// Returns whether no value of one type equals one of another.
fn never_equal(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Int(a) | Type::Float(a), Type::Int(b) | Type::Float(b)) => {
            let a = exact_range(*a);
            let b = exact_range(*b);
            a.common(b).is_none()
        }
        (Type::Enum(a), Type::Enum(b)) => !a.iter().any(|it| b.contains(it)),
        (Type::Record(a), Type::Record(b)) => a.fields.iter().any(|field| {
            let other = b.fields.iter().find(|it| it.name == field.name);
            other.is_some_and(|it| never_equal(&field.ty, &it.ty))
        }),
        _ => false,
    }
}

/// Returns the orders of two numbers of these ranges that occur.
fn possible_orders(left: NumberRange, right: NumberRange) -> Vec<Ordering> {
    let is_below = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| a < b);
    let is_possible = |order: &Ordering| match order {
        Ordering::Less => is_below(left.min, right.max),
        Ordering::Equal => left.common(right).is_some(),
        Ordering::Greater => is_below(right.min, left.max),
    };
    ORDERS.into_iter().filter(is_possible).collect()
}

/// Returns the whole numbers of a range, if they are few.
fn whole_numbers(range: NumberRange) -> Option<Vec<f64>> {
    let min = exact_range(range).min?;
    let max = exact_range(range).max?;
    let numbers = std::iter::successors(Some(min.ceil()), |it| Some(it + 1.0));
    let numbers: Vec<f64> = numbers.take_while(|it| *it <= max).take(VALUES_MAX + 1).collect();
    (numbers.len() <= VALUES_MAX).then_some(numbers)
}

fn holds(node: &Node) -> FormulaKind {
    test(term(node), Ask::Holds)
}

fn text(of: &Node, among: Option<&Vec<String>>, is: &str) -> FormulaKind {
    test(term(of), Ask::Text { among: among.cloned(), is: is.to_owned() })
}

/// Returns a comparison of two terms, of which only the possible orders are known.
fn ordering(
    operator: Operator,
    left: &Node,
    right: &Node,
    mut possible: Vec<Ordering>,
) -> FormulaKind {
    let a = left.to_string();
    let b = right.to_string();
    let (operator, text) = if a <= b {
        (operator, format!("{a} <=> {b}"))
    } else {
        for order in &mut possible {
            *order = order.reverse();
        }
        (operator.turned(), format!("{b} <=> {a}"))
    };
    if a == b {
        return FormulaKind::Known(matches!(
            operator,
            Operator::Equal | Operator::LessOrEqual | Operator::GreaterOrEqual
        ));
    }
    test(Term { text, ..of_both(left, right) }, Ask::Order { operator, possible })
}

fn test(term: Term, ask: Ask) -> FormulaKind {
    FormulaKind::Test(Box::new(Test { term, ask }))
}

fn or(left: Formula, right: Formula) -> Formula {
    if matches!(left.kind, FormulaKind::Known(false)) {
        return right;
    }
    Formula { range: left.range.clone(), kind: FormulaKind::Or(Box::new([left, right])) }
}

fn term(node: &Node) -> Term {
    let text = node.to_string();
    let free = is_path(node);
    let mut term = Term { text, reads: Vec::new(), needs: Vec::new(), free };
    look(node, true, &mut term);
    term
}

fn of_both(left: &Node, right: &Node) -> Term {
    let free = [left, right].iter().all(|it| is_path(it));
    let mut both = Term { text: String::new(), reads: Vec::new(), needs: Vec::new(), free };
    look(left, true, &mut both);
    look(right, true, &mut both);
    both
}

/// Adds the largest paths in a part that begin outside of it.
fn free_paths<'n>(node: &'n Node, bound: &mut Vec<&'n str>, found: &mut Vec<&'n Node>) {
    if let Some(path) = node.path() {
        let root = path.split('.').next().unwrap_or_default();
        if !bound.contains(&root) {
            found.push(node);
        }
        return;
    }
    let outside = bound.len();
    for part in node.parts() {
        match &part.kind {
            NodeKind::Variable(name) => bound.push(name),
            _ => free_paths(part, bound, found),
        }
    }
    bound.truncate(outside);
}

fn is_path(node: &Node) -> bool {
    node.path().is_some()
}

/// Records the paths of a part. `always` means that the term needs them to have a value.
fn look(node: &Node, always: bool, into: &mut Term) {
    if let Some(path) = node.fact_path() {
        // The text of a value with a default begins like that of the value which may be absent.
        if always && !is_of_default(node) && !into.needs.contains(&path) {
            into.needs.push(path.clone());
        }
        if !into.reads.contains(&path) {
            into.reads.push(path);
        }
        if is_path(node) {
            return;
        }
    }
    match &node.kind {
        NodeKind::Literal(_)
        | NodeKind::Name(_)
        | NodeKind::NodeName(_)
        | NodeKind::Pattern(_)
        | NodeKind::Variable(_) => (),
        NodeKind::List(_) | NodeKind::Index(..) => {
            for part in node.parts() {
                look(part, always, into);
            }
        }
        // A record has a value without its absent fields.
        NodeKind::Record(_, fields) => {
            for field in fields {
                look(&field.value, false, into);
            }
        }
        NodeKind::Field(of, _) | NodeKind::Not(of) | NodeKind::Negate(of) => look(of, always, into),
        NodeKind::Call(function, arguments) => {
            for (parameter, argument) in function.parameters.iter().zip(arguments) {
                look(argument, always && parameter.takes.is_always_evaluated(), into);
            }
        }
        NodeKind::Binary(operator, left, right) => {
            look(left, always, into);
            let both = !matches!(operator, Operator::And | Operator::Or);
            look(right, always && both, into);
        }
        NodeKind::If(parts) => {
            let [condition, then, otherwise] = parts.as_ref();
            look(condition, always, into);
            look(then, false, into);
            look(otherwise, false, into);
        }
    }
}

/// Returns whether a value is one with a default, or a part or a method call of one.
fn is_of_default(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Call(function, arguments) => {
            function.is_default()
                || function.is_method() && arguments.first().is_some_and(is_of_default)
        }
        _ => node.container().is_some_and(is_of_default),
    }
}

fn literal(node: &Node) -> Option<&Value> {
    match &node.kind {
        NodeKind::Literal(value) => Some(value),
        _ => None,
    }
}
