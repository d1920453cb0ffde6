//! Which fields are present once a condition is true or false.

use serde_json::Value;

use super::{
    parser,
    syntax::{Kind, Node, Operator},
};

/// Returns the names that are present if a condition is true, and those if it is false.
///
/// For an invalid expression both lists are empty.
pub(crate) fn known_after(source: &str) -> (Vec<String>, Vec<String>) {
    let Ok(condition) = parser::parse(source) else { return (Vec::new(), Vec::new()) };
    let known = |outcome| {
        let mut known = Vec::new();
        learn(&condition, outcome, &mut |proved| {
            let Proved::Present(mut root) = proved else { return };
            while let Some(container) = root.container() {
                root = container;
            }
            if let Kind::Name(name) = &root.kind {
                known.push(name.clone());
            }
        });
        known
    };
    (known(true), known(false))
}

/// What the outcome of a condition proves.
pub(super) enum Proved<'n> {
    /// This path is present.
    Present(&'n Node),
    /// One number compares with another one like this.
    Ordered { left: &'n Node, operator: Operator, right: &'n Node },
    /// The value of a path is equal to a text, or is not.
    Compared { path: String, to: &'n str, is_equal: bool },
}

/// Finds what a condition with this outcome proves.
pub(super) fn learn<'n>(condition: &'n Node, outcome: bool, prove: &mut impl FnMut(Proved<'n>)) {
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

#[cfg(test)]
mod tests {
    use super::known_after;

    #[test]
    fn a_guard_proves_presence() {
        let known = |source| {
            let (holds, fails) = known_after(source);
            format!("{} | {}", holds.join(" "), fails.join(" "))
        };
        assert_eq!(known("has(a) && (has(b.c) && n > 1)"), "a b | ");
        assert_eq!(known("has(a[0].b) && has(int(c))"), "a | ");
        assert_eq!(known("!has(a) || !has(b)"), " | a b");
        assert_eq!(known("has(a) || has(b)"), " | ");
        assert_eq!(known("has(a) &&"), " | ");
    }
}
