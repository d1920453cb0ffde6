//! Expressions and templates as they are typed: the name at a cursor, its type, what is wanted
//! next.
//!
//! This looks at the text alone, as what is being typed cannot be parsed. Whether it is right is
//! said by the checks of the workflow.

use std::ops::Range;

use crate::state::{Schema, Type};

/// What can stand at the end of the beginning of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted<'t> {
    /// A text that is compared with this, inside the quotes.
    ValueOf(&'t str),
    /// The name of a node, inside the quotes.
    Node,
    /// A field or method of this.
    MemberOf(&'t str),
    /// A name; what it is compared with, if anything.
    Name(Option<&'t str>),
    /// Nothing that is known.
    Nothing,
}

/// The names that every prompt sees beside the state.
pub(super) const OF_PROMPTS: &[(&str, &str)] = &[
    ("visit", "How often the node has run since its count was last reset, this time included."),
    ("max_visits", "The bound of `visit`, if the node has one."),
    ("via", "By which way the run came here: `via.reason`, and `via.node` and `via.error` if any."),
    ("item", "What a dispatched task was given."),
];

/// What is wanted behind a text, and where what is typed of it begins.
pub(super) fn wanted(before: &str) -> (Wanted<'_>, usize) {
    if let Some(quote) = open_quote(before) {
        let outer = before[..quote].trim_end();
        let wanted = if outer.ends_with("visits(") {
            Wanted::Node
        } else {
            compared(outer).map_or(Wanted::Nothing, Wanted::ValueOf)
        };
        return (wanted, quote + 1);
    }
    let start = before.len() - trailing(before, is_word).len();
    let outer = &before[..start];
    if let Some(of) = outer.strip_suffix('.') {
        let of = trailing(of, is_part);
        return (Wanted::MemberOf(of), start);
    }
    (Wanted::Name(compared(outer.trim_end())), start)
}

/// What is compared with what comes behind a text.
fn compared(before: &str) -> Option<&str> {
    let list = before.rfind('[').filter(|it| !before[*it..].contains(']'));
    let is_in_list = before.ends_with(['[', ',']);
    let left = match list.filter(|_| is_in_list) {
        Some(at) => before[..at].trim_end().strip_suffix("in")?,
        None => before.strip_suffix("==").or_else(|| before.strip_suffix("!="))?,
    };
    let chain = trailing(left.trim_end(), is_part);
    (!chain.is_empty()).then_some(chain)
}

/// The names around a place, from the first to the one at the place, as in `review.verdict`.
pub(super) fn chain_at(text: &str, at: usize) -> Option<Range<usize>> {
    if open_quote(text.get(..at)?).is_some() {
        return None;
    }
    let start = at - trailing(&text[..at], is_part).len();
    let end = at + text[at..].find(|it| !is_word(it)).unwrap_or(text.len() - at);
    let first = text[start..end].chars().next()?;
    (!first.is_ascii_digit() && first != '.').then_some(start..end)
}

/// The text in quotes around a place, with what stands before it.
pub(super) fn quoted_at(text: &str, at: usize) -> Option<(Range<usize>, Wanted<'_>)> {
    let quote = open_quote(text.get(..at)?)?;
    let (wanted, start) = wanted(&text[..=quote]);
    let end = at + text[at..].find(['"', '\'']).unwrap_or(text.len() - at);
    Some((start..end, wanted))
}

/// The type of names such as `review.verdict`, behind a text that may bind some of them.
pub(super) fn type_of(chain: &str, before: &str, state: &Schema) -> Option<Type> {
    let mut names = chain.split('.');
    let first = names.next()?;
    let root = match item_of(first, before, state) {
        Some(ty) => ty,
        None => state.channel(first)?.ty().clone(),
    };
    names.try_fold(root, |ty, name| ty.field(name).cloned())
}

/// The type of a variable that a quantifier or a loop before binds.
fn item_of(name: &str, before: &str, state: &Schema) -> Option<Type> {
    bindings(before).into_iter().rev().find(|it| it.variable == name).and_then(|it| match type_of(
        it.list,
        &before[..it.at],
        state,
    )?
    .required()
    {
        Type::List(item) => Some(item.required().clone()),
        _ => None,
    })
}

/// The variables that are bound in a text.
pub(super) fn variables(before: &str) -> Vec<&str> {
    bindings(before).into_iter().map(|it| it.variable).collect()
}

struct Binding<'t> {
    variable: &'t str,
    list: &'t str,
    /// Where it is bound, before which its list is looked up.
    at: usize,
}

/// `list.exists(x, …)`, `list.all(x, …)` and `for x in list`, in their order.
fn bindings(before: &str) -> Vec<Binding<'_>> {
    let mut found = Vec::new();
    for method in [".exists(", ".all("] {
        for (at, _) in before.match_indices(method) {
            let variable = leading(before[at + method.len()..].trim_start(), is_word);
            let list = trailing(&before[..at], is_part);
            found.push(Binding { variable, list, at: at - list.len() });
        }
    }
    for (at, _) in before.match_indices("for ") {
        let rest = before[at + "for ".len()..].trim_start();
        let variable = leading(rest, is_word);
        let list = rest[variable.len()..].trim_start().strip_prefix("in ");
        let list = leading(list.unwrap_or_default().trim_start(), is_part);
        found.push(Binding { variable, list, at });
    }
    found.retain(|it| !it.variable.is_empty() && !it.list.is_empty());
    found.sort_by_key(|it| it.at);
    found
}

/// Where the code of a template begins that goes on to its end.
pub(super) fn open_code(template: &str) -> Option<usize> {
    let open = template.rfind("{{").max(template.rfind("{%"))? + 2;
    let close = template.rfind("}}").max(template.rfind("%}"));
    close.is_none_or(|it| it < open).then_some(open)
}

/// Where the quotes begin that a text ends in.
fn open_quote(text: &str) -> Option<usize> {
    let mut open: Option<(usize, char)> = None;
    for (at, char) in text.char_indices() {
        match open {
            Some((_, quote)) if quote == char => open = None,
            None if char == '"' || char == '\'' => open = Some((at, char)),
            _ => (),
        }
    }
    open.map(|(at, _)| at)
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn is_part(char: char) -> bool {
    is_word(char) || char == '.'
}

fn leading(text: &str, fits: fn(char) -> bool) -> &str {
    &text[..text.find(|it| !fits(it)).unwrap_or(text.len())]
}

fn trailing(text: &str, fits: fn(char) -> bool) -> &str {
    &text[text.trim_end_matches(fits).len()..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::TeamState;

    #[test]
    fn what_is_wanted_follows_from_what_is_typed() {
        use Wanted::{MemberOf, Name, Node, Nothing, ValueOf};
        for (before, expected, start) in [
            ("", Name(None), 0),
            ("rev", Name(None), 0),
            ("a && rev", Name(None), 5),
            ("review.", MemberOf("review"), 7),
            ("review.ver", MemberOf("review"), 7),
            ("a.b.c", MemberOf("a.b"), 4),
            ("a.b == ", Name(Some("a.b")), 7),
            ("a.b == \"", ValueOf("a.b"), 8),
            ("x && a.b != 'ap", ValueOf("a.b"), 13),
            ("a in [\"x\", \"", ValueOf("a"), 12),
            ("a in [", Name(Some("a")), 6),
            ("visits(\"s", Node, 8),
            ("\"", Nothing, 1),
            ("a == \"x\" && ", Name(None), 12),
        ] {
            assert_eq!(wanted(before), (expected, start), "{before}");
        }
    }

    #[test]
    fn names_have_the_types_of_the_state() {
        let state = TeamState::schema();
        let ty =
            |chain: &str, before: &str| type_of(chain, before, &state).map(|it| it.to_string());
        assert_eq!(ty("review", ""), Some("Review".into()));
        assert_eq!(ty("test_result.passed", ""), Some("bool".into()));
        assert_eq!(ty("review.nothing", ""), None);
        let before = "code_artifact.files.exists(f, ";
        assert_eq!(ty("f.file_path", before), Some("string".into()));
        let before = "{% for f in code_artifact.files %}{{ ";
        assert_eq!(ty("f.file_path", before), Some("string".into()));
        assert_eq!(ty("f", "f.exists(f, f.all(f, "), None);
    }

    #[test]
    fn a_chain_ends_at_the_name_under_the_cursor() {
        let text = "x && review.verdict == \"a.b\"";
        let at = |at| chain_at(text, at).map(|it| &text[it]);
        assert_eq!(
            [at(6), at(14), at(0), at(4)].map(|it| it.unwrap_or("-")),
            ["review", "review.verdict", "x", "-"]
        );
        assert_eq!(at(25), None);
        assert_eq!(quoted_at(text, 25).map(|(it, _)| &text[it]), Some("a.b"));
    }
}
