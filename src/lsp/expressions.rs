//! Incomplete expressions and templates: the name at a cursor, its type, and the kind of text that
//! is expected next.
//!
//! This module uses only the text, because incomplete input cannot be parsed. The checks of the
//! workflow report errors in it.

use std::ops::Range;

use crate::{
    state::{Schema, Type},
    workflow::{Fact, Function, QuotedText, quoted_texts},
};

/// The fact whose value is the name of a node.
const LEADING_NODE: &str = "via.node";

/// The kind of text that is expected at the end of an incomplete expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedKind<'t> {
    /// A string that is compared with this, inside the quotes.
    ValueOf(&'t str),
    /// The name of a node, inside the quotes.
    Node,
    /// A field or method of this value.
    MemberOf(&'t str),
    /// A name, and the value that it is compared with, if there is one.
    Name(Option<&'t str>),
    /// Nothing known.
    Nothing,
}

/// The names that each prompt can use besides the fields.
pub(super) const OF_PROMPTS: &[(&str, &str)] = &[
    ("visit", "How often the node has run since its count was last reset, this time included."),
    ("max_visits", "The bound of `visit`, if the node has one."),
    ("item", "The input of a dispatched task."),
];

/// Returns the kind of text that is expected after a text, and where its typed part starts.
pub(super) fn wanted(before: &str) -> (ExpectedKind<'_>, usize) {
    if let Some(quoted) = quoted_texts(before).last().filter(|it| !it.is_closed) {
        return (expected_in(before, &quoted), quoted.inside().start);
    }
    let start = before.len() - trailing(before, is_word).len();
    let outer = &before[..start];
    if let Some(of) = outer.strip_suffix('.') {
        return (ExpectedKind::MemberOf(trailing_chain(of)), start);
    }
    (ExpectedKind::Name(compared(outer.trim_end())), start)
}

/// Returns the kind of text that is expected inside some quotes.
pub(super) fn expected_in<'t>(expression: &'t str, quoted: &QuotedText) -> ExpectedKind<'t> {
    let outer = expression[..quoted.range.start].trim_end();
    let called = outer.strip_suffix('(').map(|it| trailing(it, is_word));
    if called.and_then(function).is_some_and(Function::takes_node_name) {
        return ExpectedKind::Node;
    }
    let behind = expression[quoted.range.end..].trim_start();
    let right = || {
        let rest = behind.strip_prefix("==").or_else(|| behind.strip_prefix("!="))?;
        Some(leading(rest.trim_start(), is_part)).filter(|it| !it.is_empty())
    };
    match compared(outer).or_else(right) {
        Some(LEADING_NODE) => ExpectedKind::Node,
        Some(chain) => ExpectedKind::ValueOf(chain),
        None => ExpectedKind::Nothing,
    }
}

/// Returns the value that is compared with the text which follows.
fn compared(before: &str) -> Option<&str> {
    let code = without_texts(before);
    let list = code.rfind('[').filter(|it| !code[*it..].contains(']'));
    let is_in_list = code.ends_with(['[', ',']);
    let left = match list.filter(|_| is_in_list) {
        Some(at) => before[..at].trim_end().strip_suffix("in")?,
        None => before.strip_suffix("==").or_else(|| before.strip_suffix("!="))?,
    };
    let chain = trailing(left.trim_end(), is_part);
    (!chain.is_empty()).then_some(chain)
}

/// Returns an expression with blanks in place of the texts in its quotes.
pub(super) fn without_texts(expression: &str) -> String {
    let mut code = expression.to_owned();
    for quoted in quoted_texts(expression) {
        let inside = quoted.inside();
        code.replace_range(inside.clone(), &" ".repeat(inside.len()));
    }
    code
}

/// Returns the range of the names around an offset, up to the one there, as in `review.verdict`.
pub(super) fn chain_at(text: &str, at: usize) -> Option<Range<usize>> {
    if quoted_texts(text.get(..at)?).any(|it| !it.is_closed) {
        return None;
    }
    let start = at - trailing(&text[..at], is_part).len();
    let end = at + text[at..].find(|it| !is_word(it)).unwrap_or(text.len() - at);
    let first = text[start..end].chars().next()?;
    (!first.is_ascii_digit() && first != '.').then_some(start..end)
}

/// Returns the range of the quoted text around an offset, and the kind of text expected there.
pub(super) fn quoted_at(text: &str, at: usize) -> Option<(Range<usize>, ExpectedKind<'_>)> {
    let is_around = |it: &QuotedText| it.inside().start <= at && at <= it.inside().end;
    let quoted = quoted_texts(text).find(is_around)?;
    Some((quoted.inside(), expected_in(text, &quoted)))
}

/// Returns the function or method of a name.
pub(super) fn function(name: &str) -> Option<&'static Function> {
    Function::all().iter().find(|it| it.name == name)
}

/// Returns the type of names such as `review.verdict`, after a text that may bind some of them.
pub(super) fn type_of(chain: &str, before: &str, state: &Schema) -> Option<Type> {
    let mut parts = chain.split(['.', '[']);
    let first = parts.next()?;
    let root = match (item_of(first, before, state), state.channel(first)) {
        (Some(ty), _) => ty,
        (None, Some(channel)) => channel.ty().clone(),
        (None, None) => Fact::find(first)?.ty(),
    };
    parts.try_fold(root, |ty, part| match (part.strip_suffix(']'), ty.required()) {
        (Some(_), Type::List(item) | Type::Map(item)) => Some(Type::clone(item)),
        (Some(name), record) => record.field(name.trim_matches(['"', '\''])).cloned(),
        (None, ty) => ty.field(part).cloned(),
    })
}

/// Returns the type of a variable that an earlier quantifier or loop binds.
fn item_of(name: &str, before: &str, state: &Schema) -> Option<Type> {
    let (list, before) = binding_of(name, before)?;
    match type_of(list, before, state)?.required() {
        Type::List(item) => Some(item.required().clone()),
        _ => None,
    }
}

/// Returns the variables that a text binds.
pub(super) fn variables(before: &str) -> Vec<&str> {
    bindings(before).into_iter().map(|it| it.variable).collect()
}

/// Returns the list that a text binds a variable to the items of, and the text before the binding.
pub(super) fn binding_of<'t>(name: &str, before: &'t str) -> Option<(&'t str, &'t str)> {
    let binding = bindings(before).into_iter().rev().find(|it| it.variable == name)?;
    Some((binding.list, &before[..binding.at]))
}

/// Returns whether the word after a text is a variable that it binds there.
pub(super) fn binds_next(before: &str) -> bool {
    let before = before.trim_end();
    let opens = |method: &str| before.strip_suffix(method).is_some_and(|it| it.ends_with('.'));
    let is_loop = before.strip_suffix("for").is_some_and(|it| !it.ends_with(is_word));
    is_loop || Function::all().iter().filter(|it| it.binds_item()).any(|it| opens(&it.opening()))
}

struct Binding<'t> {
    variable: &'t str,
    list: &'t str,
    /// The offset of the binding; its list is resolved in the text before it.
    at: usize,
}

/// Returns the bindings of methods such as `list.exists(x, …)`, and of `for x in list`, in their order.
fn bindings(before: &str) -> Vec<Binding<'_>> {
    let code = without_texts(before);
    let mut found = Vec::new();
    for method in Function::all().iter().filter(|it| it.binds_item()) {
        let method = format!(".{}", method.opening());
        for (at, _) in code.match_indices(&method) {
            let variable = leading(before[at + method.len()..].trim_start(), is_word);
            let list = trailing(&before[..at], is_part);
            found.push(Binding { variable, list, at: at - list.len() });
        }
    }
    for (at, _) in code.match_indices("for ") {
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

pub(super) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn is_part(char: char) -> bool {
    is_word(char) || char == '.'
}

/// Returns the names at the end of a text, with items such as `tasks[0]`.
pub(super) fn trailing_chain(text: &str) -> &str {
    let mut start = text.len();
    loop {
        start -= trailing(&text[..start], is_part).len();
        let open = text[..start].strip_suffix(']').and_then(|it| it.rfind('['));
        match open.filter(|at| text[*at..].starts_with('[') && text[..*at].ends_with(is_word)) {
            Some(open) if !text[open + 1..start - 1].contains(['.', ']']) => start = open,
            _ => return &text[start..],
        }
    }
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
    fn the_completion_follows_from_the_typed_text() {
        use ExpectedKind::{MemberOf, Name, Node, Nothing, ValueOf};
        for (before, expected, start) in [
            ("", Name(None), 0),
            ("rev", Name(None), 0),
            ("a && rev", Name(None), 5),
            ("review.", MemberOf("review"), 7),
            ("review.ver", MemberOf("review"), 7),
            ("a.b.c", MemberOf("a.b"), 4),
            ("x in [a[0].b[\"k\"].", MemberOf("a[0].b[\"k\"]"), 18),
            ("[a].", MemberOf(""), 4),
            ("a.b == ", Name(Some("a.b")), 7),
            ("a.b == \"", ValueOf("a.b"), 8),
            ("x && a.b != 'ap", ValueOf("a.b"), 13),
            ("a in [\"x\", \"", ValueOf("a"), 12),
            ("a in [", Name(Some("a")), 6),
            ("visits(\"s", Node, 8),
            ("via.node == 's", Node, 13),
            ("via.node in ['[', \"s", Node, 19),
            ("a == \"it's \\\"b\\\"\" && c == 'd", ValueOf("c"), 27),
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
        assert_eq!(ty("via.error.message", ""), Some("string".into()));
        assert_eq!(ty("review.nothing", ""), None);
        assert_eq!(ty("code_artifact.files[0].file_path", ""), Some("string".into()));
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
