//! Makes a formula of a checked condition.
//!
//! A part that it cannot translate becomes an independent term that may be true or false.

use std::{collections::BTreeMap, ops::Range};

use graphrun_core::state::{NumberRange, Type};
use serde_json::Value;

use super::{
    super::{
        closed::evaluate_closed,
        functions::{Function, Takes},
        syntax::{Node, NodeKind, Operator},
    },
    formula::{Ask, Formula, FormulaKind, NumberKind, Term, Test},
};

/// Whole numbers below this are exact as floats. A comparison with a constant below it gives the
/// same result for whole numbers and for floats.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
/// Two enums with more values in common are compared as a whole.
const COMMON_MAX: usize = 32;

/// The types of the parts of an expression, by their bytes in the source.
pub(in super::super) type Types = BTreeMap<(usize, usize), Type>;

/// The conditions of an expression.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Conditions {
    /// The whole expression, if it is a bool.
    pub(super) whole: Option<Formula>,
    /// The conditions inside parts that are no bools: of `exists` and `all`, of `? :`.
    pub(super) inside: Vec<Formula>,
}

/// Returns the conditions of an expression; `types` are the types of its parts.
pub(in super::super) fn translate(root: &Node, types: &Types) -> Conditions {
    let translation = Translation { types };
    let is_condition = matches!(translation.ty(root), Type::Bool | Type::Any);
    let whole = is_condition.then(|| translation.formula(root));
    let mut inside = Vec::new();
    translation.look_inside(root, &mut inside);
    Conditions { whole, inside }
}

struct Translation<'a> {
    types: &'a Types,
}

impl Translation<'_> {
    fn look_inside(&self, node: &Node, found: &mut Vec<Formula>) {
        match &node.kind {
            NodeKind::Call(function, arguments) => {
                let arguments = function.parameters.iter().zip(arguments);
                let conditions = arguments.filter(|(it, _)| matches!(it.takes, Takes::Condition));
                found.extend(conditions.map(|(_, it)| self.formula(it)));
            }
            NodeKind::If(parts) if *self.ty(node) != Type::Bool => {
                found.push(self.formula(&parts[0]));
            }
            _ => (),
        }
        for part in node.parts() {
            self.look_inside(part, found);
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
            NodeKind::Binary(operator, left, right) => match closed(node) {
                Some(value) => value,
                None => self.compared(*operator, left, right, node),
            },
            _ => closed(node).unwrap_or_else(|| holds(node)),
        };
        Formula { kind, range: node.range.clone() }
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
                _ => holds(whole),
            },
            _ => holds(whole),
        }
    }

    fn equal(&self, left: &Node, right: &Node, range: &Range<usize>) -> FormulaKind {
        let (left, right) = if literal(left).is_some() { (right, left) } else { (left, right) };
        let (left_type, right_type) = (self.ty(left), self.ty(right));
        match (left_type, right_type, literal(right)) {
            (Type::Bool, Type::Bool, _) => {
                FormulaKind::Same(Box::new([self.formula(left), self.formula(right)]))
            }
            (Type::String, _, Some(Value::String(is))) => text(left, None, is),
            (Type::Enum(values), _, Some(Value::String(is))) => text(left, Some(values), is),
            (Type::Enum(a), Type::Enum(b), None) => {
                let common: Vec<&String> = a.iter().filter(|it| b.contains(it)).collect();
                if common.len() > COMMON_MAX {
                    return ordering(Operator::Equal, left, right);
                }
                let formula = |kind| Formula { kind, range: range.clone() };
                let none = formula(FormulaKind::Known(false));
                let any = common.into_iter().fold(none, |before, it| {
                    let both = [text(left, Some(a), it), text(right, Some(b), it)];
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
            ) => ordering(Operator::Equal, left, right),
            // For other types the relation between equality and order is unknown.
            _ => {
                let (a, b) = (left.to_string(), right.to_string());
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
            return match (exact(left), exact(right)) {
                (_, Some(than)) => self.number(left, operator, than),
                (Some(than), _) => self.number(right, operator.turned(), than),
                (None, None) => ordering(operator, left, right),
            };
        }
        if text(left) && text(right) {
            return ordering(operator, left, right);
        }
        let kind = NodeKind::Binary(operator, Box::new(left.clone()), Box::new(right.clone()));
        holds(&Node { kind, range: left.range.clone() })
    }

    fn number(&self, of: &Node, operator: Operator, than: f64) -> FormulaKind {
        let mut term = term(of);
        if let NodeKind::Call(Function { counts: true, .. }, arguments) = &of.kind {
            let is_free = |it: &Node| match (&it.kind, self.ty(it)) {
                (NodeKind::NodeName(_), _) => true,
                (_, Type::List(_) | Type::String | Type::Map(_)) => is_path(it),
                _ => false,
            };
            term.free = arguments.iter().all(is_free);
        }
        test(
            term,
            Ask::Number { kind: self.number_kind(of), range: self.range(of), operator, than },
        )
    }

    /// Returns the range of a number. Ends that floats do not represent exactly are left out.
    fn range(&self, node: &Node) -> NumberRange {
        let NumberRange { min, max } = self.ty(node).range().unwrap_or_default();
        let is_exact = |it: &f64| it.abs() < EXACT_BELOW;
        NumberRange { min: min.filter(is_exact), max: max.filter(is_exact) }
    }

    fn number_kind(&self, node: &Node) -> NumberKind {
        match &node.kind {
            NodeKind::Call(Function { counts: true, .. }, _) => NumberKind::Whole,
            _ if matches!(self.ty(node), Type::Int(_)) => NumberKind::Whole,
            _ => NumberKind::Real,
        }
    }

    fn present(&self, of: &Node) -> FormulaKind {
        // An optional value may be absent; about others nothing is known here. An item is not independent of the
        // size of its list, nor is the result of a call of its arguments.
        let found = self.types.get(&(of.range.start, of.range.end));
        let free = is_path(of) && matches!(found, Some(Type::Optional(_)));
        let Term { text, needs, .. } = term(of);
        test(Term { text, reads: needs, needs: Vec::new(), free }, Ask::Present)
    }

    fn ty(&self, node: &Node) -> &Type {
        let found = self.types.get(&(node.range.start, node.range.end));
        found.map_or(&Type::Any, Type::required)
    }
}

fn holds(node: &Node) -> FormulaKind {
    test(term(node), Ask::Holds)
}

fn text(of: &Node, among: Option<&Vec<String>>, is: &str) -> FormulaKind {
    test(term(of), Ask::Text { among: among.cloned(), is: is.to_owned() })
}

/// Returns a comparison of two terms, of which only their order is known.
fn ordering(operator: Operator, left: &Node, right: &Node) -> FormulaKind {
    let (a, b) = (left.to_string(), right.to_string());
    let (operator, text) = if a <= b {
        (operator, format!("{a} <=> {b}"))
    } else {
        (operator.turned(), format!("{b} <=> {a}"))
    };
    if a == b {
        return FormulaKind::Known(matches!(
            operator,
            Operator::Equal | Operator::LessOrEqual | Operator::GreaterOrEqual
        ));
    }
    test(Term { text, ..of_both(left, right) }, Ask::Order { operator })
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
    let (text, free) = (node.to_string(), is_path(node));
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

fn is_path(node: &Node) -> bool {
    node.path().is_some()
}

/// Records the paths of a part. `always` means that the term needs them to have a value.
fn look(node: &Node, always: bool, into: &mut Term) {
    if let Some(span) = node.span() {
        if always && !into.needs.contains(&span) {
            into.needs.push(span.clone());
        }
        if !into.reads.contains(&span) {
            into.reads.push(span);
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

/// Returns the value of a constant condition.
fn closed(node: &Node) -> Option<FormulaKind> {
    evaluate_closed(node)?.ok()?.as_bool().map(FormulaKind::Known)
}

fn literal(node: &Node) -> Option<&Value> {
    match &node.kind {
        NodeKind::Literal(value) => Some(value),
        _ => None,
    }
}

/// Returns a constant that can be compared exactly with every number.
fn exact(node: &Node) -> Option<f64> {
    let number = evaluate_closed(node)?.ok()?.as_f64()?;
    (number.abs() < EXACT_BELOW).then_some(number)
}
