//! The access set of an expression: the fields it reads and the constants it compares them with.

use std::collections::BTreeSet;

use graphrun_core::{
    graph::{Access, AccessSet, Fraction},
    id::{ChannelName, NodeName},
};
use serde_json::Value;

use super::syntax::{Node, NodeKind, Operator};

/// Returns the access set of a checked expression. Its names are channels or the item.
pub(super) fn access_set(root: &Node, reads: &[ChannelName], item: Option<&str>) -> AccessSet {
    let mut looker = Looker {
        reads,
        item,
        set: AccessSet::default(),
        numbers: vec![],
        fractions: vec![],
        texts: vec![],
    };
    looker.look(root, false);
    let Looker { mut set, numbers, fractions, texts, .. } = looker;
    for access in &mut set.fields {
        access.numbers.clone_from(&numbers);
        access.fractions.clone_from(&fractions);
        access.texts.clone_from(&texts);
    }
    if !set.item_paths.is_empty() {
        (set.item_numbers, set.item_fractions, set.item_texts) = (numbers, fractions, texts);
    }
    let mut seen = BTreeSet::new();
    set.fields.retain(|it| seen.insert(it.clone()));
    set.is_opaque = !is_transparent(root);
    set.may_fail = divides(root);
    set
}

/// Returns an expression for a part of the value of another one.
pub(super) fn part_of(node: &Node, path: &[String]) -> Node {
    let Some((name, rest)) = path.split_first() else { return node.clone() };
    let kind = match &node.kind {
        NodeKind::If(parts) => {
            let [condition, then, otherwise] = parts.as_ref();
            let parts = [condition.clone(), part_of(then, path), part_of(otherwise, path)];
            NodeKind::If(Box::new(parts))
        }
        NodeKind::Record(_, fields) => {
            return match fields.iter().find(|it| it.name == *name) {
                Some(field) => part_of(&field.value, rest),
                None => Node { kind: NodeKind::Literal(Value::Null), range: node.range.clone() },
            };
        }
        _ => {
            let field = NodeKind::Field(Box::new(node.clone()), name.clone());
            return part_of(&Node { kind: field, range: node.range.clone() }, rest);
        }
    };
    Node { kind, range: node.range.clone() }
}

/// Returns the list of which an expression reads a part of one item, with the names of this part.
fn item_of_list(node: &Node) -> Option<(&Node, Vec<String>)> {
    match &node.kind {
        NodeKind::Field(of, name) => {
            let (list, mut names) = item_of_list(of)?;
            names.push(name.clone());
            Some((list, names))
        }
        NodeKind::Index(list, _) => list.path().map(|_| (&**list, Vec::new())),
        NodeKind::Call(function, arguments) if matches!(function.name, "first" | "last") => {
            arguments[0].path().map(|_| (&arguments[0], Vec::new()))
        }
        _ => None,
    }
}

/// Returns whether an expression divides by a value that may be zero.
fn divides(node: &Node) -> bool {
    let by_zero = |node: &Node| match &node.kind {
        NodeKind::Literal(value) => value.as_f64() == Some(0.0),
        _ => true,
    };
    matches!(&node.kind, NodeKind::Binary(Operator::Divide | Operator::Remainder, _, by) if by_zero(by))
        || node.parts().into_iter().any(divides)
}

/// Returns whether each name of a checked expression is a channel, and no call gives a fact of the run. Expressions with
/// names for the items of lists count as others.
pub(super) fn reads_only_fields(node: &Node, reads: &[ChannelName]) -> bool {
    match &node.kind {
        NodeKind::Name(name) => reads.iter().any(|it| it.as_str() == name),
        NodeKind::Call(function, _) if function.gives_facts() => false,
        NodeKind::NodeName(_) | NodeKind::Variable(_) => false,
        _ => node.parts().into_iter().all(|it| reads_only_fields(it, reads)),
    }
}

/// Returns whether values beside the constants of an expression, and each constant, show everything that it can be.
fn is_transparent(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Literal(_) | NodeKind::NodeName(_) | NodeKind::Variable(_) => true,
        NodeKind::Name(_) | NodeKind::Field(..) => node.path().is_some(),
        NodeKind::Not(of) => is_transparent(of),
        NodeKind::If(parts) => parts.iter().all(is_transparent),
        NodeKind::Binary(Operator::And | Operator::Or, one, other) => {
            is_transparent(one) && is_transparent(other)
        }
        NodeKind::Binary(Operator::In, item, list) => {
            let NodeKind::List(items) = &list.kind else { return false };
            let is_constant = |it: &Node| matches!(it.kind, NodeKind::Literal(_));
            item.path().is_some() && items.iter().all(is_constant)
        }
        NodeKind::Binary(operator, one, other) => {
            is_compared(*operator, one, other) || is_compared(*operator, other, one)
        }
        NodeKind::Call(function, arguments) => {
            let is_of_node = |it: &Node| matches!(it.kind, NodeKind::NodeName(_));
            function.is_presence() || !arguments.is_empty() && arguments.iter().all(is_of_node)
        }
        NodeKind::List(_)
        | NodeKind::Record(..)
        | NodeKind::Index(..)
        | NodeKind::Negate(_)
        | NodeKind::Pattern(_) => false,
    }
}

/// Returns whether a part of the state is compared with a constant in a way that the values beside it show.
fn is_compared(operator: Operator, value: &Node, constant: &Node) -> bool {
    let is_equality = matches!(operator, Operator::Equal | Operator::Unequal);
    let is_order = matches!(
        operator,
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
    );
    let constant = match &constant.kind {
        NodeKind::Negate(of) => of,
        _ => constant,
    };
    let NodeKind::Literal(constant) = &constant.kind else { return false };
    match &value.kind {
        // Texts and lists without and with one item are tried, and not every length.
        NodeKind::Call(function, of) if function.name == "size" => {
            constant.as_i64() == Some(0)
                && of[0].path().is_some()
                && (is_equality || operator == Operator::Greater)
        }
        NodeKind::Call(..) => is_transparent(value),
        _ if value.path().is_none() => false,
        _ => is_equality || is_order && constant.is_number(),
    }
}

/// Returns whether a path leads to a fact that does not follow from the path of the run through the workflow.
fn is_open(path: &str) -> bool {
    let root = path.split('.').next().unwrap_or_default();
    matches!(root, "run" | "usage" | "remaining") || path.starts_with("via.error.")
}

/// Returns whether a call depends on a list by its length, and by the parts of its items that the call names.
fn reads_items_by_name(function: &str) -> bool {
    matches!(function, "all" | "exists" | "exists_one" | "map" | "size")
}

/// Adds the paths that an expression reads within an item of this name.
fn item_parts(node: &Node, item: &str, parts: &mut Vec<Vec<String>>) {
    let Some(path) = node.path() else {
        return node.parts().into_iter().for_each(|it| item_parts(it, item, parts));
    };
    let mut names = path.split('.').map(str::to_owned);
    if names.next().as_deref() == Some(item) {
        parts.push(names.collect());
    }
}

struct Looker<'a> {
    reads: &'a [ChannelName],
    item: Option<&'a str>,
    set: AccessSet,
    numbers: Vec<i64>,
    fractions: Vec<Fraction>,
    texts: Vec<String>,
}

impl Looker<'_> {
    /// Records the accesses of a part. `is_whole` says whether the part around it depends on the
    /// whole value or on the named field alone.
    fn look(&mut self, node: &Node, is_whole: bool) {
        match &node.kind {
            NodeKind::Name(_) | NodeKind::Field(..) => self.path(node, is_whole, false),
            NodeKind::Literal(value) => self.literal(value),
            NodeKind::Negate(of) => match &of.kind {
                NodeKind::Literal(Value::Number(number)) => match number.as_i64() {
                    Some(number) => self.numbers.push(-number),
                    None => self.fractions.extend(number.as_f64().map(|it| Fraction(-it))),
                },
                _ => self.look(of, false),
            },
            NodeKind::NodeName(name) => self.set.visits.extend(NodeName::parse_path(name)),
            NodeKind::Pattern(pattern) => self.texts.push(pattern.regex.as_str().to_owned()),
            NodeKind::Variable(_) => (),
            NodeKind::Call(function, arguments) if function.is_presence() => {
                self.path(&arguments[0], false, true);
            }
            NodeKind::Call(function, arguments) if function.is_default() => {
                self.path(&arguments[0], false, true);
                for argument in arguments {
                    self.look(argument, is_whole);
                }
            }
            NodeKind::Call(function, _) if function.gives_facts() && function.name != "visits" => {
                self.set.reads_facts = true;
            }
            NodeKind::Call(function, arguments) if reads_items_by_name(function.name) => {
                let list = &arguments[0];
                let body = arguments.get(2..).unwrap_or_default();
                self.look(list, true);
                // Another list than one of the state may be made of whole items.
                if list.path().is_some_and(|it| self.is_last(&it))
                    && let Some(access) = self.set.fields.last_mut()
                {
                    let mut parts = Vec::new();
                    if let Some(NodeKind::Variable(item)) = arguments.get(1).map(|it| &it.kind) {
                        for it in body {
                            item_parts(it, item, &mut parts);
                        }
                    }
                    access.item_parts = Some(parts);
                }
                for it in body {
                    self.look(it, true);
                }
            }
            NodeKind::Index(..) if item_of_list(node).is_some() => self.path(node, true, false),
            NodeKind::Call(..) | NodeKind::List(_) | NodeKind::Record(..) | NodeKind::Index(..) => {
                node.parts().into_iter().for_each(|it| self.look(it, true));
            }
            NodeKind::Binary(Operator::In, item, list) => {
                self.look(item, false);
                self.look(list, true);
            }
            NodeKind::Not(_) | NodeKind::Binary(..) | NodeKind::If(_) => {
                node.parts().into_iter().for_each(|it| self.look(it, is_whole));
            }
        }
    }

    /// Returns whether the field at a path is the last one that was recorded.
    fn is_last(&self, path: &str) -> bool {
        self.set.fields.last().is_some_and(|access| {
            let names =
                [access.channel.as_str()].into_iter().chain(access.path.iter().map(String::as_str));
            names.eq(path.split('.'))
        })
    }

    fn path(&mut self, node: &Node, is_whole: bool, is_presence: bool) {
        let Some(path) = node.path() else {
            return self.computed_path(node, is_presence);
        };
        let mut names = path.split('.').map(str::to_owned);
        let first = names.next().unwrap_or_default();
        // The checker forbids variables with the name of a field.
        let Some(channel) = self.reads.iter().find(|it| it.as_str() == first).cloned() else {
            if self.item == Some(first.as_str()) {
                self.set.item_paths.push(names.collect());
            } else {
                self.set.reads_facts |= is_open(&path);
            }
            return;
        };
        let path = names.collect();
        let access = Access { path, is_whole, is_presence, ..Access::whole(channel) };
        self.set.fields.push(access);
    }

    /// Records the accesses of a field of a computed value. Of an item of a list, only the named part matters.
    fn computed_path(&mut self, node: &Node, is_presence: bool) {
        let Some((list, part)) = item_of_list(node) else {
            return node.parts().into_iter().for_each(|it| self.look(it, true));
        };
        let mut of = node;
        while let NodeKind::Field(inner, _) = &of.kind {
            of = inner;
        }
        if let NodeKind::Index(_, index) = &of.kind {
            self.look(index, true);
        }
        self.look(list, true);
        let parts = match (part.is_empty(), is_presence) {
            // The length alone tells whether the item is there.
            (true, true) => Some(Vec::new()),
            (true, false) => None,
            (false, _) => Some(vec![part]),
        };
        if list.path().is_some_and(|it| self.is_last(&it))
            && let Some(access) = self.set.fields.last_mut()
        {
            access.item_parts = parts;
        }
    }

    fn literal(&mut self, value: &Value) {
        match value {
            Value::Number(number) => match number.as_i64() {
                Some(number) => self.numbers.push(number),
                None => self.fractions.extend(number.as_f64().map(Fraction)),
            },
            Value::String(text) => self.texts.push(text.clone()),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parser;
    use super::*;

    fn looked_at(condition: &str) -> AccessSet {
        let reads = ["review", "sse_status", "test_result", "user_stories", "candidate"];
        let reads = reads.map(|it| ChannelName::parse(it).unwrap());
        access_set(&parser::parse(condition).unwrap(), &reads, Some("story"))
    }

    #[test]
    fn a_condition_lists_its_reads() {
        let shown = |access: &Access| {
            let path: Vec<&str> = access.path.iter().map(String::as_str).collect();
            let star = if access.is_whole { ".*" } else { "" };
            let star = if access.is_presence { "?" } else { star };
            let name = [&[access.channel.as_str()], &path[..]].concat().join(".");
            let parts = access.item_parts.iter().map(|parts| {
                let parts: Vec<String> = parts
                    .iter()
                    .map(|it| if it.is_empty() { "*".to_owned() } else { it.join(".") })
                    .collect();
                format!("({})", parts.join(" "))
            });
            let parts: String = parts.collect();
            format!("{name}{star}{parts} {:?} {:?}", access.numbers, access.texts)
        };
        for (condition, expected) in [
            ("review.verdict == \"candidate\"", "review.verdict [] [\"candidate\"]"),
            (
                "has(sse_status) && test_result.passed",
                "sse_status? [] [], test_result.passed [] []",
            ),
            ("test_result.score >= 8 && test_result.score > -3", "test_result.score [8, -3] []"),
            ("user_stories.size() > 2", "user_stories.*() [2] []"),
            (
                "candidate.files.exists(f, f.content == 'brief')",
                "candidate.files.*(content) [] [\"brief\"]",
            ),
            (
                "user_stories.all(s, s.hard && s.parts.exists(p, p.by.name == s.owner))",
                "user_stories.*(hard parts owner) [] []",
            ),
            ("user_stories.map(s, s.title) == []", "user_stories.*(title) [] []"),
            (
                "user_stories.exists(s, s == candidate)",
                "user_stories.*(*) [] [], candidate.* [] []",
            ),
            ("user_stories.first().title == 'a'", "user_stories.*(title) [] [\"a\"]"),
            (
                "has(user_stories[0]) && user_stories[0].by.hard",
                "user_stories.*() [0, 0] [], user_stories.*(by.hard) [0, 0] []",
            ),
            ("'x' in user_stories", "user_stories.* [] [\"x\"]"),
            ("review.verdict in ['a', 'b']", "review.verdict [] [\"a\", \"b\"]"),
            ("visits(\"sse\") > 3", ""),
            ("user_stories.filter(it, it.hard).map(it, it.title) == []", "user_stories.* [] []"),
        ] {
            let fields: Vec<String> = looked_at(condition).fields.iter().map(shown).collect();
            assert_eq!(fields.join(", "), expected, "{condition}");
        }
    }

    #[test]
    fn the_visits_it_counts_and_the_item_are_no_fields() {
        let set = looked_at("visits(\"sse\") > 3 && story.title != \"review\"");
        assert_eq!(
            (&set.item_numbers[..], &set.item_texts[..]),
            (&[3][..], &["review".into()][..])
        );
        assert_eq!(set.visits, [NodeName::parse("sse").unwrap()]);
        assert_eq!(
            (&set.item_paths[..], &set.fields[..]),
            (&[vec!["title".to_owned()]][..], &[][..])
        );
        assert!(looked_at("has(review) && review.story in ['story']").item_paths.is_empty());
    }
}
