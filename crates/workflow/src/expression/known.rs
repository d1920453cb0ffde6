//! Which fields are present once a condition is true or false.

use super::{
    parser,
    syntax::{Kind, Node, Operator},
};

/// Returns the names that are present if a condition is true, and those if it is false.
///
/// For an invalid expression both lists are empty.
pub(crate) fn known_after(source: &str) -> (Vec<String>, Vec<String>) {
    let (mut holds, mut fails) = (Vec::new(), Vec::new());
    if let Ok(condition) = parser::parse(source) {
        learn(&condition, true, &mut holds);
        learn(&condition, false, &mut fails);
    }
    (holds, fails)
}

fn learn(condition: &Node, outcome: bool, known: &mut Vec<String>) {
    match &condition.kind {
        Kind::Has(of) if outcome => {
            let path = of.path().unwrap_or_default();
            known.extend(path.split('.').next().map(str::to_owned));
        }
        Kind::Not(of) => learn(of, !outcome, known),
        Kind::Binary(Operator::And, left, right) if outcome => {
            learn(left, outcome, known);
            learn(right, outcome, known);
        }
        Kind::Binary(Operator::Or, left, right) if !outcome => {
            learn(left, outcome, known);
            learn(right, outcome, known);
        }
        _ => (),
    }
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
        assert_eq!(known("!has(a) || !has(b)"), " | a b");
        assert_eq!(known("has(a) || has(b)"), " | ");
        assert_eq!(known("has(a) &&"), " | ");
    }
}
