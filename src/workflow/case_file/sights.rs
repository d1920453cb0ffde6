//! What the routes and conditions of a graph look at: fields, paths in them, and the numbers they are compared
//! with. What decides where a run goes is told apart here from what only passes through.

use std::collections::BTreeSet;

use crate::{
    graph::{Edge, Graph, Spread},
    id::ChannelName,
    state::Schema,
};

/// Something in the state that a route looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sight {
    /// The field.
    pub channel: ChannelName,
    /// The way into it, such as `verdict`; empty for the field itself.
    pub path: Vec<String>,
    /// Whether all below may matter as well: the route is written in Rust, or looks at a list.
    pub is_whole: bool,
    /// Whether only its being there matters, and not its value.
    pub is_presence: bool,
    /// The whole numbers that its condition names.
    pub numbers: Vec<i64>,
    /// The texts that its condition names.
    pub texts: Vec<String>,
}

/// Everything that the routes of a graph and the conditions of its nodes look at, each once.
pub fn sights(graph: &Graph) -> Vec<Sight> {
    let routes = graph.edges.iter().filter_map(|it| match it {
        Edge::Route { route, .. } => Some(route.as_ref()),
        _ => None,
    });
    let conditions = graph.nodes.values().filter_map(|it| it.when.as_deref());
    let mut found = BTreeSet::new();
    let mut looks_at_items = false;
    for (texts, reads) in routes
        .clone()
        .map(|it| (it.conditions(), it.reads()))
        .chain(conditions.map(|it| (vec![it.text()], it.reads())))
    {
        looks_at_items |= texts.iter().any(|it| names_items(it, &graph.schema));
        found.extend(sights_of(&texts, reads, &graph.schema));
    }
    if looks_at_items {
        // What stands in the lists that are gone through decides as well.
        let lists = routes.filter(|it| it.spread() == Spread::Items);
        let lists = lists.flat_map(|it| sights_of(&it.conditions(), it.reads(), &graph.schema));
        found.extend(lists.map(|it| Sight { is_whole: true, ..it }));
    }
    found.into_iter().collect()
}

impl Sight {
    /// Whether the value at a path of a channel makes a difference to it.
    pub fn is_below(&self, channel: &ChannelName, path: &[String]) -> bool {
        !self.is_presence
            && self.channel == *channel
            && (self.path.starts_with(path) || self.is_whole && path.starts_with(&self.path))
    }
}

/// What conditions look at: what their texts name, and all of whatever else they read.
fn sights_of(texts: &[&str], reads: Option<&[ChannelName]>, schema: &Schema) -> Vec<Sight> {
    let mut found: Vec<Sight> = texts.iter().flat_map(|it| sights_in(it, schema)).collect();
    let all = || schema.channels().iter().map(|it| it.name().clone()).collect();
    let read = reads.map_or_else(all, <[ChannelName]>::to_vec);
    let unnamed = read.into_iter().filter(|it| !found.iter().any(|sight| sight.channel == *it));
    let whole = |channel| {
        let (numbers, texts) = (Vec::new(), Vec::new());
        let (is_whole, is_presence) = (true, false);
        Sight { channel, path: Vec::new(), is_whole, is_presence, numbers, texts }
    };
    let unnamed: Vec<Sight> = unnamed.map(whole).collect();
    found.extend(unnamed);
    found
}

/// The paths in the text of a condition. It was checked when it was loaded, so that any chain of
/// names that begins with a field is one; what follows a call or an index is not told apart.
fn sights_in(condition: &str, schema: &Schema) -> Vec<Sight> {
    let (words, texts) = words_and_texts(condition);
    let numbers: Vec<i64> = words.iter().filter_map(|it| it.parse().ok()).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let Some(channel) = schema.channel(&words[at]) else {
            // A field of a record may be called like a field of the state.
            at += if words.get(at + 1).is_some_and(|it| it == ".") { 2 } else { 1 };
            continue;
        };
        let (mut path, mut next, mut is_whole) = (Vec::new(), at + 1, false);
        while let (Some("."), Some(name)) =
            (words.get(next).map(String::as_str), words.get(next + 1))
        {
            if words.get(next + 2).is_some_and(|it| it == "(") {
                is_whole = true;
                break;
            }
            path.push(name.clone());
            next += 2;
        }
        is_whole |= words.get(next).is_some_and(|it| it == "[");
        let before =
            [at.checked_sub(2), at.checked_sub(1)].map(|at| at.map(|it| words[it].as_str()));
        let is_presence = before == [Some("has"), Some("(")];
        let (channel, numbers, texts) = (channel.name().clone(), numbers.clone(), texts.clone());
        found.push(Sight { channel, path, is_whole, is_presence, numbers, texts });
        at = next.max(at + 1);
    }
    found
}

/// Whether a condition speaks of something that is no field: an item of a list.
fn names_items(condition: &str, schema: &Schema) -> bool {
    let (words, _) = words_and_texts(condition);
    let is = |at: Option<usize>, sign: &str| {
        at.and_then(|it| words.get(it)).is_some_and(|it| it == sign)
    };
    words.iter().enumerate().any(|(at, word)| {
        word.starts_with(|it: char| it.is_alphabetic() || it == '_')
            && !["true", "false", "in"].contains(&word.as_str())
            && !is(at.checked_sub(1), ".")
            && !is(Some(at + 1), "(")
            && schema.channel(word).is_none()
    })
}

/// Names, numbers and signs; and what stands in quotes.
fn words_and_texts(condition: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut texts) = (Vec::new(), Vec::new());
    let mut characters = condition.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '"' || character == '\'' {
            let mut text = String::new();
            while let Some(inner) = characters.next() {
                match inner {
                    '\\' => text.extend(characters.next()),
                    it if it == character => break,
                    it => text.push(it),
                }
            }
            texts.push(text);
        } else if is_of_name(character) {
            let mut word = String::from(character);
            while let Some(more) = characters.next_if(|it| is_of_name(*it)) {
                word.push(more);
            }
            words.push(word);
        } else if !character.is_whitespace() {
            words.push(character.to_string());
        }
    }
    (words, texts)
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::TeamState;

    #[test]
    fn a_condition_names_what_it_looks_at() {
        let shown = |condition: &str| {
            let sights = sights_in(condition, &TeamState::schema());
            let shown = sights.iter().map(|it| {
                let path: Vec<&str> = it.path.iter().map(String::as_str).collect();
                let star = if it.is_whole { ".*" } else { "" };
                let star = if it.is_presence { "?" } else { star };
                format!(
                    "{}{star} {:?}",
                    [&[it.channel.as_str()], &path[..]].concat().join("."),
                    it.numbers
                )
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        let cases = [
            ("review.verdict == \"candidate\"", "review.verdict []"),
            ("has(sse_status) && sse_status == \"passed\"", "sse_status? [], sse_status []"),
            ("test_result.passed_count >= 8", "test_result.passed_count [8]"),
            ("user_stories.size() > 2", "user_stories.* [2]"),
            ("candidate.files.exists(f, f.content == 'brief')", "candidate.files.* []"),
            ("visits(\"sse\") > 3", ""),
        ];
        for (condition, expected) in cases {
            assert_eq!(shown(condition), expected, "{condition}");
        }
    }

    #[test]
    fn what_is_no_field_is_an_item() {
        for (condition, expected) in [
            ("story.priority == 'high'", true),
            ("has(review) && review.verdict in ['story']", false),
            ("visits(\"sse\") > 3 && true", false),
        ] {
            assert_eq!(names_items(condition, &TeamState::schema()), expected, "{condition}");
        }
    }
}
