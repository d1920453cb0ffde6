//! The items of a list that are there for certain, by the known size of the list or of another one that it is made of.

use serde_json::Value;

use super::syntax::{Node, NodeKind, Operator};
use crate::flow::guarantee::{Guarantee, Guarantees};

/// Returns whether an item of a list is there for certain.
pub(super) fn has_item(known: &Guarantees, item: &Node) -> bool {
    let Some((mut list, needed)) = list_of(item) else { return false };
    loop {
        if known.least_size(&list.to_string()) >= needed || needed == 1 && is_split(list) {
            return true;
        }
        list = match source(list) {
            Some((source, true)) => source,
            // The first item is all that is certain of a list without repetitions.
            Some((source, false)) if needed == 1 => source,
            _ => return false,
        };
    }
}

/// Returns the list whose size bounds every number that compares so with an expression, and how many a number may be above the
/// last item: none for `list.size()` with `<`, one with `<=`.
pub(super) fn list_above(operator: Operator, with: &Node) -> Option<(&Node, i64)> {
    let (size, less) = match &with.kind {
        NodeKind::Binary(Operator::Subtract, size, less) => match &less.kind {
            NodeKind::Literal(less) => (size.as_ref(), less.as_i64()?),
            _ => return None,
        },
        _ => (with, 0),
    };
    let above = match operator {
        Operator::Less => -less,
        Operator::LessOrEqual | Operator::Equal => 1 - less,
        _ => return None,
    };
    Some((list_of_size(size)?, above.max(0)))
}

/// Returns whether a whole number is below the size of a list.
pub(super) fn is_below(known: &Guarantees, number: &Node, list: &Node) -> bool {
    let is_size = |of: &Node| list_of_size(of).is_some_and(|it| it.to_string() == list.to_string());
    let is_known = || {
        let number = number.to_string();
        let list = list.to_string();
        known.contains(&Guarantee::below_size(&number, &list))
    };
    let follows = match &number.kind {
        NodeKind::Binary(Operator::Remainder, _, by) => is_size(by),
        NodeKind::Binary(Operator::Subtract, of, less) => match &less.kind {
            NodeKind::Literal(less) => match less.as_i64() {
                Some(1..) if is_size(of) => true,
                Some(0..) => is_below(known, of, list),
                _ => false,
            },
            _ => false,
        },
        NodeKind::Call(function, numbers) if function.name == "min" => {
            numbers.iter().any(|it| is_below(known, it, list))
        }
        _ => false,
    };
    follows || is_known()
}

/// Returns the value whose size an expression is.
pub(super) fn list_of_size(expression: &Node) -> Option<&Node> {
    match &expression.kind {
        NodeKind::Call(function, arguments) if function.name == "size" => arguments.first(),
        _ => None,
    }
}

/// Returns the list of an item, and the least size of the list that has it.
fn list_of(item: &Node) -> Option<(&Node, i64)> {
    match &item.kind {
        NodeKind::Index(list, number) => match &number.kind {
            NodeKind::Literal(number) => {
                Some((list, number.as_i64()?.checked_add(1).filter(|it| *it > 0)?))
            }
            _ => None,
        },
        NodeKind::Call(function, arguments)
            if matches!(function.name, "first" | "last" | "minBy" | "maxBy") =>
        {
            Some((arguments.first()?, 1))
        }
        _ => None,
    }
}

/// Returns whether a list has the parts of a text between separators that are not empty: it has one part at least.
fn is_split(list: &Node) -> bool {
    let NodeKind::Call(function, arguments) = &list.kind else { return false };
    let separator = arguments.get(1).filter(|_| function.name == "split").map(|it| &it.kind);
    matches!(separator, Some(NodeKind::Literal(Value::String(it))) if !it.is_empty())
}

/// Returns the list of which a call makes one with as many items, or with at least one item if it has one.
fn source(list: &Node) -> Option<(&Node, bool)> {
    let NodeKind::Call(function, arguments) = &list.kind else { return None };
    let is_as_long = match function.name {
        "sort" | "sortBy" | "reverse" | "map" => true,
        "distinct" => false,
        _ => return None,
    };
    Some((arguments.first()?, is_as_long))
}

#[cfg(test)]
mod tests {
    use super::{super::parser::parse, *};

    fn known(list: &str, least: i64) -> Guarantees {
        [Guarantee::HasItems { list: list.to_owned(), least }].into_iter().collect()
    }

    fn is_proved(known: &Guarantees, item: &str) -> bool {
        has_item(known, &parse(item).unwrap_or_else(|it| panic!("{item}: {it:?}")))
    }

    #[test]
    fn lists_that_are_made_of_a_list_have_its_size() {
        let known = known("a", 2);
        for (item, expected) in [
            ("a.sort()[1]", true),
            ("a.map(it, it.trim()).last()", true),
            ("a.sortBy(it, it.trim()).reverse()[1]", true),
            ("a.sortBy(it, it.trim())[2]", false),
            ("a.map(x, x + (1)).sort()[1]", true),
            ("a.distinct().first()", true),
            ("a.reverse().maxBy(it, it.trim())", true),
            ("a.filter(it, it == '').minBy(it, it.trim())", false),
            ("a.distinct()[1]", false),
            ("a.sort()[2]", false),
            ("a.filter(it, it > 1)[0]", false),
            ("a.map(it, it + \"(\\\"\")[1]", true),
            ("a.map(it, it + \")\")[2]", false),
            ("a.filter(it, it == \".map(\")[0]", false),
            ("b.map(it, a)[0]", false),
            ("text.split(\", \")[0]", true),
            ("text.split(\"\\n\").last()", true),
            ("text.split(\"@\").map(x, x.trim()).last()", true),
            ("text.split(\"\\n\").map(x, x + \"(\").sort()[0]", true),
            ("text.split(\"@\").map(x, x.trim())[1]", false),
            ("text.split(\"@\").filter(x, x == \"\").last()", false),
            ("text.split(\"\")[0]", false),
            ("text.split(by)[0]", false),
            ("text.split(\",\")[1]", false),
        ] {
            assert_eq!(is_proved(&known, item), expected, "{item}");
        }
    }

    #[test]
    fn a_known_size_proves_the_items_before_its_number() {
        let known = known("a.b", 2);
        for item in ["a.b[0]", "a.b[1]", "a.b.first()", "a.b.last()"] {
            assert!(is_proved(&known, item), "{item}");
        }
        for item in ["a.b[2]", "a.b[-1]", "a[0]", "a.b", "a.b[i]", "x.a.b[0]"] {
            assert!(!is_proved(&known, item), "{item}");
        }
    }
}
