//! The knowledge that an outcome of a condition gives: the values that are present, and the nodes that have run.

use serde_json::Value;

use super::{
    functions::Function,
    parser,
    syntax::{Kind, Node, Operator},
};

/// A value that a condition proves present: a name, or a part of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentValue {
    pub(crate) name: String,
    /// As the checks of expressions and prompts write it, such as `review.note`.
    pub(crate) path: String,
}

/// Returns the values that are present if a condition is true, and those if it is false.
///
/// For an invalid expression both lists are empty.
pub(crate) fn known_after(source: &str) -> (Vec<PresentValue>, Vec<PresentValue>) {
    let Ok(condition) = parser::parse(source) else { return (Vec::new(), Vec::new()) };
    let known = |outcome| {
        let mut known = Vec::new();
        learn(&condition, outcome, &mut |proved| {
            if let Proved::Present(node) = proved {
                add_present(node, &mut known);
            }
        });
        known
    };
    (known(true), known(false))
}

/// Adds a value and the values that contain it, the outermost first; returns the name of that one, if it has one.
fn add_present(node: &Node, known: &mut Vec<PresentValue>) -> Option<String> {
    let name = match (&node.kind, node.container()) {
        (Kind::Name(name), _) => name.clone(),
        (_, Some(container)) => add_present(container, known)?,
        _ => return None,
    };
    // Another item is meant once the value changes that chooses it.
    let is_chosen = |it: &Node| matches!(&it.kind, Kind::Index(_, index) if !matches!(index.kind, Kind::Literal(_)));
    let mut parts = std::iter::successors(Some(node), |it| it.container());
    if !parts.any(is_chosen) {
        known.push(PresentValue { name: name.clone(), path: node.to_string() });
    }
    Some(name)
}

/// What the outcome of a condition proves.
pub(super) enum Proved<'n> {
    /// This path is present.
    Present(&'n Node),
    /// One number compares with another one like this.
    Ordered { left: &'n Node, operator: Operator, right: &'n Node },
    /// The value of a path is equal to a text, or is not.
    Compared { path: String, to: &'n str, is_equal: bool },
    /// The number of visits of a node fulfils a comparison.
    Visited { node: &'n str, fulfils: &'n dyn Fn(i64) -> bool },
}

/// Finds what a condition with this outcome proves.
pub(super) fn learn(condition: &Node, outcome: bool, prove: &mut dyn FnMut(Proved<'_>)) {
    if let Kind::Binary(operator, left, right) = &condition.kind {
        for (visits, number, operator) in
            [(left, right, *operator), (right, left, operator.turned())]
        {
            if let Some((node, number)) = visited_node(visits).zip(number_of(number)) {
                let fulfils =
                    |it: i64| operator.orders(it.cmp(&number)).is_none_or(|it| it == outcome);
                prove(Proved::Visited { node, fulfils: &fulfils });
            }
        }
    }
    match &condition.kind {
        Kind::Call(function, arguments) if outcome && function.is_presence() => {
            arguments.iter().map(Proved::Present).for_each(prove);
        }
        Kind::Binary(operator @ (Operator::Equal | Operator::Unequal), left, right) => {
            let is_equal = (*operator == Operator::Equal) == outcome;
            for (path, text) in [(left, right), (right, left)] {
                if let (Some(path), Kind::Literal(Value::String(to))) = (path.path(), &text.kind) {
                    prove(Proved::Compared { path, to, is_equal });
                }
            }
            if is_equal {
                prove(Proved::Ordered { left, operator: Operator::Equal, right });
            }
        }
        Kind::Not(of) => learn(of, !outcome, prove),
        Kind::Binary(Operator::And, left, right) if outcome => {
            learn(left, outcome, prove);
            learn(right, outcome, prove);
        }
        Kind::Binary(Operator::Or, left, right) if !outcome => {
            learn(left, outcome, prove);
            learn(right, outcome, prove);
        }
        Kind::Binary(operator, left, right) => {
            let order = opposite(*operator).map(|it| if outcome { *operator } else { it });
            if let Some(operator) = order {
                prove(Proved::Ordered { left, operator, right });
            }
        }
        _ => (),
    }
}

/// The order that holds when this one does not.
fn opposite(operator: Operator) -> Option<Operator> {
    Some(match operator {
        Operator::Less => Operator::GreaterOrEqual,
        Operator::LessOrEqual => Operator::Greater,
        Operator::Greater => Operator::LessOrEqual,
        Operator::GreaterOrEqual => Operator::Less,
        _ => return None,
    })
}

/// Returns the node whose visits an expression is.
fn visited_node(expression: &Node) -> Option<&str> {
    match &expression.kind {
        Kind::Call(Function { name: "visits", .. }, arguments) => match &arguments.first()?.kind {
            Kind::NodeName(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the whole number that an expression is, if it is a literal.
fn number_of(expression: &Node) -> Option<i64> {
    match &expression.kind {
        Kind::Literal(value) => value.as_i64(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{PresentValue, known_after};

    #[test]
    fn a_guard_proves_presence() {
        let paths = |it: Vec<PresentValue>| -> Vec<String> {
            it.iter().map(|it| format!("{}:{}", it.name, it.path)).collect()
        };
        let known = |source| {
            let (holds, fails) = known_after(source);
            format!("{} | {}", paths(holds).join(" "), paths(fails).join(" "))
        };
        assert_eq!(known("has(a) && (has(b.c) && n > 1)"), "a:a b:b b:b.c | ");
        assert_eq!(known("has(a[0].b) && has(int(c))"), "a:a a:a[0] a:a[0].b | ");
        assert_eq!(known("has(a[i].b)"), "a:a | ");
        assert_eq!(known("!has(a) || !has(b)"), " | a:a b:b");
        assert_eq!(known("has(a) || has(b)"), " | ");
        assert_eq!(known("has(a) &&"), " | ");
    }
}
