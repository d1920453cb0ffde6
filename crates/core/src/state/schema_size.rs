//! The size of a JSON Schema after its references are followed.
//!
//! A few definitions that each refer to the next one twice describe a tree of billions of nodes. Validators
//! follow references, so the size is computed before any other use of a schema. The computation does not walk
//! that tree: a definition is measured once, and each reference adds its measured size. A recursive
//! definition counts once, as its tree is infinite.

use std::collections::BTreeMap;

use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use regex_syntax::{
    Parser,
    hir::{Class, Hir, HirKind},
};
use serde_json::Value;

/// The longest chain of references; the compilation of a schema recurses as deep.
const REFERENCES_MAX: usize = 200;
/// The approximate number of ranges of a character class that are compiled to one state.
const RANGES_PER_STATE: u64 = 8;
/// The number of bytes of text that count as one node.
const TEXT_BYTES: usize = 64;

/// Returns the number of nodes of a schema after its references are followed.
///
/// A text and a pattern count as nodes in proportion to their size.
///
/// # Errors
///
/// Fails when there are more than the limit allows.
pub fn schema_size(schema: &Value) -> Result<u64, DataLimitReached> {
    let mut anchors = BTreeMap::new();
    collect_anchors(schema, &mut anchors);
    let mut measuring =
        Measuring { root: schema, anchors, open: vec!["#"], definitions: BTreeMap::new() };
    let size = measuring.measure(schema).nodes;
    DataLimit::SchemaNodes.check(size).map(|()| size)
}

/// The schemas by their `$anchor`.
type Anchors<'a> = BTreeMap<&'a str, &'a Value>;

struct Measuring<'a> {
    root: &'a Value,
    anchors: Anchors<'a>,
    /// The references that are being followed, the outermost first: the schema itself.
    open: Vec<&'a str>,
    /// The size that each further reference to a measured definition adds.
    definitions: BTreeMap<&'a str, u64>,
}

/// The measured size of a part of a schema.
#[derive(Clone, Copy)]
struct Size {
    nodes: u64,
    /// The outermost open reference that the part refers back to, as an index into `open`.
    back_to: usize,
}

impl Size {
    fn of(nodes: u64) -> Self {
        Self { nodes, back_to: usize::MAX }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            back_to: self.back_to.min(other.back_to),
        }
    }
}

impl<'a> Measuring<'a> {
    fn measure(&mut self, part: &'a Value) -> Size {
        match part {
            Value::Object(fields) => fields.iter().fold(Size::of(1), |sum, (key, value)| {
                let size = match value {
                    Value::String(target) if key == "$ref" => self.reference(target),
                    Value::String(pattern) if key == "pattern" => Size::of(pattern_size(pattern)),
                    other => self.measure(other),
                };
                sum.plus(size).plus(Size::of(text_size(key) - 1))
            }),
            Value::Array(items) => {
                items.iter().fold(Size::of(1), |sum, it| sum.plus(self.measure(it)))
            }
            Value::String(text) => Size::of(text_size(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Size::of(1),
        }
    }

    fn reference(&mut self, target: &'a str) -> Size {
        if let Some(at) = self.open.iter().position(|it| *it == target) {
            return Size { nodes: 1, back_to: at };
        }
        if let Some(nodes) = self.definitions.get(target) {
            return Size::of(*nodes);
        }
        let Some(definition) = self.find(target) else { return Size::of(1) };
        if self.open.len() >= REFERENCES_MAX {
            return Size::of(u64::MAX);
        }
        let own = self.open.len();
        self.open.push(target);
        let size = self.measure(definition);
        self.open.pop();
        // A definition that refers back to an open reference is part of its infinite tree.
        let is_part = size.back_to < own;
        self.definitions.insert(target, if is_part { 1 } else { size.nodes });
        Size { back_to: if is_part { size.back_to } else { usize::MAX }, ..size }
    }

    fn find(&self, target: &str) -> Option<&'a Value> {
        let name = target.strip_prefix('#')?;
        self.root.pointer(name).or_else(|| self.anchors.get(name).copied())
    }
}

fn collect_anchors<'a>(part: &'a Value, anchors: &mut Anchors<'a>) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get("$anchor") {
                anchors.insert(name, part);
            }
            fields.values().for_each(|it| collect_anchors(it, anchors));
        }
        Value::Array(items) => items.iter().for_each(|it| collect_anchors(it, anchors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

fn text_size(text: &str) -> u64 {
    1 + (text.len() / TEXT_BYTES) as u64
}

/// Returns the approximate size of a compiled pattern: `(a{1000}){1000}` has a million states.
pub fn pattern_size(pattern: &str) -> u64 {
    let parsed = Parser::new().parse(pattern);
    // Look-around is not part of this syntax; another engine compiles such patterns.
    parsed.map_or_else(|_| pattern.len() as u64, |it| states(&it)).max(text_size(pattern))
}

/// Returns whether a pattern matches in every text, or in none; `None` if that depends on the text.
pub fn always_matches(pattern: &str) -> Option<bool> {
    let parsed = Parser::new().parse(pattern).ok()?;
    let parts = parsed.properties();
    match parts.minimum_len() {
        // An empty match is in every text, unless it asks for its neighbours.
        Some(0) if parts.look_set().is_empty() => Some(true),
        Some(_) => None,
        None => Some(false),
    }
}

fn states(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(class) => match class {
            Class::Unicode(class) => class.ranges().len() as u64 / RANGES_PER_STATE + 1,
            Class::Bytes(class) => class.ranges().len() as u64 / RANGES_PER_STATE + 1,
        },
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            states(&repetition.sub).saturating_mul(u64::from(times))
        }
        HirKind::Capture(capture) => states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum, it| sum.saturating_add(states(it)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Returns definitions, each made by a function of its number.
    fn definitions(count: usize, definition: impl Fn(usize) -> Value) -> Value {
        let all: Map<String, Value> =
            (0..count).map(|at| (format!("d{at}"), definition(at))).collect();
        json!({"$ref": "#/$defs/d0", "$defs": all})
    }

    fn next(at: usize) -> Value {
        json!({"$ref": format!("#/$defs/d{}", at + 1)})
    }

    #[test]
    fn unbounded_growth_is_refused() {
        let tower = |at| json!({"properties": {"a": next(at), "b": next(at)}});
        let all_of = |at| json!({"allOf": [next(at), next(at)]});
        // Each definition of this tower also refers back to itself.
        let endless =
            |at| json!({"anyOf": [{"$ref": format!("#/$defs/d{at}")}, next(at), next(at)]});
        let anchors = |at| {
            let next = json!({"$ref": format!("#a{}", at + 1)});
            json!({"$anchor": format!("a{at}"), "items": next, "not": next})
        };
        let cases = [
            ("a tower", definitions(40, tower)),
            ("a tower of allOf", definitions(40, all_of)),
            ("a tower of endless trees", definitions(40, endless)),
            ("a tower of anchors", definitions(40, anchors)),
            ("a chain", definitions(1_000, next)),
            ("an enum", json!({"enum": (0..200_000).collect::<Vec<_>>()})),
            ("a pattern", json!({"pattern": "(a{1000}){1000}"})),
            ("a class", json!({"pattern": "\\w{2000}"})),
            ("a text", json!({"description": "x".repeat(10_000_000)})),
        ];
        for (name, schema) in cases {
            let error = schema_size(&schema).err();
            assert_eq!(error.map(|it| it.limit), Some(DataLimit::SchemaNodes), "{name}");
        }
    }

    #[test]
    fn ordinary_schemas_are_measured_and_accepted() {
        let tree = json!({"$ref": "#/$defs/T", "$defs": {"T": {"properties": {
            "left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}}}}});
        // Twenty kinds of nodes, each of which may contain any other.
        let refers = |to: usize| json!({"$ref": format!("#/$defs/d{to}")});
        let any = |_| json!({"anyOf": (0..20).map(refers).collect::<Vec<_>>()});
        for (name, schema, max) in [
            ("a tree", tree, 50),
            ("a language", definitions(20, any), 20_000),
            ("a reference to itself", json!({"$ref": "#"}), 10),
            ("a reference to nothing", json!({"$ref": "#/nowhere"}), 10),
            ("a pattern", json!({"pattern": "^[A-Z]+-[0-9]{1,6}$"}), 20),
        ] {
            let size = schema_size(&schema).unwrap();
            assert!((1..=max).contains(&size), "{name} has {size} nodes");
        }
    }
}
