//! What a condition on the size of a list proves: the items that are there.
//!
//! The knowledge is a mark among the paths that are known to be present, so it holds exactly as long as these.

/// Returns the mark of a list with at least so many items; `None` if that says nothing.
pub(crate) fn mark(list: &str, least: i64) -> Option<String> {
    (least > 0).then(|| format!("size({list}) >= {least}"))
}

/// Returns the lists that have items, each with the least number of them.
pub(crate) fn lists(present: &[String]) -> impl Iterator<Item = (&str, i64)> {
    present.iter().filter_map(|it| {
        let (list, least) = it.strip_prefix("size(")?.rsplit_once(") >= ")?;
        Some((list, least.parse().ok()?))
    })
}

/// Returns whether an item of a list is there for certain.
pub(super) fn prove(present: &[String], path: &str) -> bool {
    let Some((list, needed)) = item(path) else { return false };
    let has = |list: &str, needed| lists(present).any(|(it, least)| it == list && least >= needed);
    let mut made_of = Some((list, needed));
    while let Some((list, needed)) = made_of {
        if has(list, needed) || needed == 1 && is_split(list) {
            return true;
        }
        made_of = source(list).map(|(it, is_as_long)| (it, if is_as_long { needed } else { 1 }));
        // The first item is all that is certain of a list without repetitions.
        if needed > 1 && made_of.is_some_and(|(_, least)| least < needed) {
            return false;
        }
    }
    false
}

/// Returns whether a list has the parts of a text between separators that are not empty: it has one part at least.
fn is_split(list: &str) -> bool {
    let Some(before) = list.strip_suffix("\")") else { return false };
    let Some((_, separator)) = before.rsplit_once(".split(\"") else { return false };
    // The canonical text writes it as JSON. Anything else is more than one separator.
    let separator: Option<String> = serde_json::from_str(&format!("\"{separator}\"")).ok();
    separator.is_some_and(|it| !it.is_empty())
}

/// Returns the list of which a call makes a list with as many items, or with at least one item if it has one.
fn source(list: &str) -> Option<(&str, bool)> {
    if let Some(of) = list.strip_suffix(".distinct()") {
        return Some((of, false));
    }
    if let Some(of) = list.strip_suffix(".sort()") {
        return Some((of, true));
    }
    if !list.ends_with(')') {
        return None;
    }
    let open = last_call(list)?;
    Some((list[..open].strip_suffix(".map")?, true))
}

/// Returns the place of the bracket that opens the last call in the canonical text of an expression.
fn last_call(text: &str) -> Option<usize> {
    let (mut open, mut last) = (Vec::new(), None);
    let (mut is_in_text, mut is_escaped) = (false, false);
    for (at, it) in text.char_indices() {
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' if is_in_text => is_escaped = true,
            '"' => is_in_text = !is_in_text,
            '(' if !is_in_text => open.push(at),
            ')' if !is_in_text => last = open.pop(),
            _ => (),
        }
    }
    last
}

/// Returns the list of an item, and the least size of the list that has it.
fn item(path: &str) -> Option<(&str, i64)> {
    let end = |call| path.strip_suffix(call).map(|it| (it, 1));
    let by_number = || {
        let (list, number) = path.strip_suffix(']')?.rsplit_once('[')?;
        let number: i64 = number.parse().ok()?;
        Some((list, number.checked_add(1).filter(|it| *it > 0)?))
    };
    end(".first()").or_else(|| end(".last()")).or_else(by_number)
}

/// Returns the least size that is known of a list.
pub(super) fn known(present: &[String], list: &str) -> i64 {
    lists(present).filter(|it| it.0 == list).map(|it| it.1).max().unwrap_or(0)
}

/// Returns the least size that fulfils a comparison with a number, of a list with at least `known` items.
pub(crate) fn least(known: i64, number: i64, fulfils: impl Fn(i64) -> bool) -> i64 {
    // The comparison changes its outcome at the number, and beside it.
    let candidates = [known, number, number.saturating_add(1)];
    let fulfilling = candidates.into_iter().filter(|it| *it >= known && fulfils(*it));
    fulfilling.min().unwrap_or(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_proves_the_least_size_that_fulfils_it() {
        for (number, proved, condition) in [
            (0, 1, (|it, number| it > number) as fn(i64, i64) -> bool),
            (0, 1, |it, number| it != number),
            (3, 0, |it, number| it != number),
            (2, 3, |it, number| it > number),
            (2, 2, |it, number| it >= number),
            (2, 2, |it, number| it == number),
            (2, 0, |it, number| it < number),
            (-1, 0, |it, number| it > number),
            (i64::MAX, i64::MAX, |it, number| it == number),
        ] {
            assert_eq!(least(0, number, |it| condition(it, number)), proved, "{number}");
        }
    }

    #[test]
    fn lists_that_are_made_of_a_list_have_its_size() {
        let present: Vec<String> = mark("a", 2).into_iter().collect();
        for (path, is_proved) in [
            ("a.sort()[1]", true),
            ("a.map(it, it.f(1)).last()", true),
            ("a.map(x, x + (1)).sort()[1]", true),
            ("a.distinct().first()", true),
            ("a.distinct()[1]", false),
            ("a.sort()[2]", false),
            ("a.filter(it, it > 1)[0]", false),
            ("a.map(it, it + \")\")[0]", true),
            ("a.map(it, it + \"(\\\"\")[1]", true),
            ("a.map(it, it + \")\")[2]", false),
            ("a.filter(it, it == \".map(\")[0]", false),
            ("b.map(it, a)[0]", false),
            ("text.split(\", \")[0]", true),
            ("text.split(\", \").last()", true),
            ("text.split(\"\\n\")[0]", true),
            ("text.split(\"\\t\").first()", true),
            ("text.split(\"\\\\\").first()", true),
            ("text.split(\"\\\"\").last()", true),
            ("text.split(\"@\").map(x, x.trim()).last()", true),
            ("text.split(\"\\n\").map(x, x + \"(\").sort()[0]", true),
            ("text.split(\"@\").map(x, x.trim())[1]", false),
            ("text.split(\"@\").filter(x, x == \"\").last()", false),
            ("text.replace(\".split(\", \"a\")[0]", false),
            ("text.split(\"\")[0]", false),
            ("text.split(by)[0]", false),
            ("text.split(\",\")[1]", false),
        ] {
            assert_eq!(prove(&present, path), is_proved, "{path}");
        }
    }

    #[test]
    fn a_comparison_adds_to_the_known_size() {
        assert_eq!(least(1, 1, |it| it != 1), 2);
        assert_eq!(least(3, 1, |it| it != 1), 3);
        assert_eq!(least(2, 5, |it| it >= 5), 5);
        assert_eq!(least(2, 1, |it| it < 1), 2);
    }

    #[test]
    fn a_mark_proves_the_items_before_its_number() {
        let present: Vec<String> = [mark("a.b", 2), mark("c", 0)].into_iter().flatten().collect();
        for path in ["a.b[0]", "a.b[1]", "a.b.first()", "a.b.last()"] {
            assert!(prove(&present, path), "{path}");
        }
        for path in ["a.b[2]", "a.b[-1]", "a[0]", "c[0]", "a.b", "a.b[i]", "x.a.b[0]"] {
            assert!(!prove(&present, path), "{path}");
        }
    }
}
