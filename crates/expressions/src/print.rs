//! Prints a tree in a canonical form, so that equal parts have equal texts.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::syntax::{Node, NodeKind, Operator, RecordField};
use crate::flow::guarantee::{is_name, path_of_key};

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            NodeKind::Literal(value) => write!(f, "{value}"),
            NodeKind::List(items) => write!(f, "[{}]", listed(items)),
            NodeKind::Record(name, fields) => {
                let field = |it: &RecordField| format!("{}: {}", Key(&it.name), it.value);
                let fields = fields.iter().map(field).collect::<Vec<_>>().join(", ");
                write!(f, "{}{{{fields}}}", name.as_deref().unwrap_or_default())
            }
            NodeKind::Name(name) => f.write_str(name),
            NodeKind::Index(of, index) => f.write_str(&item_of(of, index)),
            NodeKind::Field(of, name) => write!(f, "{}.{name}", Inside(of)),
            NodeKind::Not(of) => write!(f, "!{}", Inside(of)),
            NodeKind::Negate(of) => write!(f, "-{}", Inside(of)),
            NodeKind::Binary(operator, left, right) => {
                let side = |it: &Self, tight: bool| match &it.kind {
                    NodeKind::If(_) => format!("({it})"),
                    NodeKind::Binary(inner, ..) if !stands_free(*inner, *operator, tight) => {
                        format!("({it})")
                    }
                    _ => it.to_string(),
                };
                write!(f, "{} {} {}", side(left, false), operator.symbol(), side(right, true))
            }
            NodeKind::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                write!(f, "{} ? {} : {}", Inside(condition), Inside(then), Inside(otherwise))
            }
            NodeKind::Call(function, arguments) => match arguments.split_first() {
                Some((of, rest)) if function.is_method() => {
                    write!(f, "{}.{}({})", Inside(of), function.name, listed(rest))
                }
                _ => write!(f, "{}({})", function.name, listed(arguments)),
            },
            NodeKind::NodeName(name) => write!(f, "\"{name}\""),
            NodeKind::Pattern(pattern) => write!(f, "{}", Value::from(pattern.regex.as_str())),
            NodeKind::Variable(name) => f.write_str(name),
        }
    }
}

/// Returns the canonical text of an item of a list or of a map.
pub(super) fn item_of(of: &Node, index: &Node) -> String {
    match &index.kind {
        // `counts["a"]` and `counts.a` are the same value.
        NodeKind::Literal(Value::String(name)) => path_of_key(&Inside(of).to_string(), name),
        _ => format!("{}[{index}]", Inside(of)),
    }
}

/// The name of a field, in quotes where the syntax needs them.
struct Key<'a>(&'a str);

impl Display for Key<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_name(self.0) { f.write_str(self.0) } else { write!(f, "{}", Value::from(self.0)) }
    }
}

/// An operand directly before or behind another token.
struct Inside<'a>(&'a Node);

impl Display for Inside<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            NodeKind::Binary(..) | NodeKind::If(_) | NodeKind::Not(_) | NodeKind::Negate(_) => {
                write!(f, "({})", self.0)
            }
            _ => write!(f, "{}", self.0),
        }
    }
}

/// Returns whether an operator needs no brackets beside another one.
fn stands_free(inner: Operator, outer: Operator, right: bool) -> bool {
    let inner = inner.binding();
    let outer = outer.binding();
    inner > outer || (inner == outer && !right && inner != Operator::COMPARISON)
}

fn listed(items: &[Node]) -> String {
    items.iter().map(Node::to_string).collect::<Vec<_>>().join(", ")
}
