//! The tree of an expression.

use std::{cmp::Ordering, ops::Range};

use regex::Regex;
use serde_json::Value;

use super::functions::Function;

/// A part of an expression and the bytes it was written at.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    /// A bool, number or text, or null.
    Literal(Value),
    List(Vec<Node>),
    /// The fields of a record or a map, with the name of the type if it is written.
    Record(Option<String>, Vec<RecordField>),
    /// A channel, or a variable of a call around it.
    Name(String),
    Field(Box<Node>, String),
    /// An item of a list, by its number from zero on, or of a map, by its key.
    Index(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    /// `condition ? then : otherwise`.
    If(Box<[Node; 3]>),
    /// A call of a function or method, with an argument for each parameter.
    Call(&'static Function, Vec<Node>),
    /// The name of a node, as an argument.
    NodeName(String),
    /// A pattern, as an argument.
    Pattern(Pattern),
    /// The name that a call gives to each item, as an argument.
    Variable(String),
}

/// A field of a record that an expression makes.
#[derive(Clone, Debug)]
pub(super) struct RecordField {
    pub(super) name: String,
    /// The bytes of the name.
    pub(super) range: Range<usize>,
    pub(super) value: Node,
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The approximate number of states of its automaton.
    pub(super) states: u64,
}

impl Pattern {
    /// Returns the steps of a search in a text: each byte may lead to every state.
    pub(super) fn steps(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul(1 + self.states / 16) / 8 + 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Node {
    /// Returns a name and fields below it as one text, such as `review.verdict`.
    pub(super) fn path(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Name(name) => Some(name.clone()),
            NodeKind::Field(of, name) => Some(format!("{}.{name}", of.path()?)),
            _ => None,
        }
    }

    /// Returns the canonical text of a value that a guard may prove present: a field, an item, or the result of a call.
    /// An expression has no side effects, so equal texts have equal values.
    pub(super) fn fact_path(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Name(_) | NodeKind::Field(..) | NodeKind::Index(..) | NodeKind::Call(..) => {
                Some(self.to_string())
            }
            _ => None,
        }
    }

    /// Returns the first byte and the one after the last: the key of a part in the tables of its types.
    pub(super) fn key(&self) -> (usize, usize) {
        (self.range.start, self.range.end)
    }

    /// Returns whether it is an empty list, which is a list of any type.
    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.kind, NodeKind::List(items) if items.is_empty())
    }

    /// Returns the value that contains this one as a field or an item.
    pub(super) fn container(&self) -> Option<&Self> {
        match &self.kind {
            NodeKind::Field(of, _) | NodeKind::Index(of, _) => Some(of),
            _ => None,
        }
    }

    /// The same with another name for a variable.
    pub(super) fn with_variable(&self, name: &str, other: &str) -> Self {
        let mut copy = self.clone();
        if name != other {
            copy.rename(name, other);
        }
        copy
    }

    fn rename(&mut self, name: &str, other: &str) {
        if let NodeKind::Name(it) | NodeKind::Variable(it) = &mut self.kind
            && it == name
        {
            other.clone_into(it);
        }
        self.parts_mut().into_iter().for_each(|it| it.rename(name, other));
    }

    /// The same with a constant in each place of a path.
    pub(super) fn with_constant(&self, path: &str, constant: &Value) -> Self {
        let mut copy = self.clone();
        copy.replace(path, constant);
        copy
    }

    fn replace(&mut self, path: &str, constant: &Value) {
        if self.path().is_some_and(|it| it == path) {
            self.kind = NodeKind::Literal(constant.clone());
        }
        self.parts_mut().into_iter().for_each(|it| it.replace(path, constant));
    }

    fn parts_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.kind {
            NodeKind::Literal(_)
            | NodeKind::Name(_)
            | NodeKind::NodeName(_)
            | NodeKind::Pattern(_)
            | NodeKind::Variable(_) => Vec::new(),
            NodeKind::List(items) | NodeKind::Call(_, items) => items.iter_mut().collect(),
            NodeKind::Field(of, _) | NodeKind::Not(of) | NodeKind::Negate(of) => vec![of],
            NodeKind::Record(_, fields) => fields.iter_mut().map(|it| &mut it.value).collect(),
            NodeKind::Index(of, index) => vec![of, index],
            NodeKind::Binary(_, left, right) => vec![left, right],
            NodeKind::If(parts) => parts.iter_mut().collect(),
        }
    }

    /// Returns the direct parts, in source order.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match &self.kind {
            NodeKind::Literal(_)
            | NodeKind::Name(_)
            | NodeKind::NodeName(_)
            | NodeKind::Pattern(_)
            | NodeKind::Variable(_) => Vec::new(),
            NodeKind::List(items) | NodeKind::Call(_, items) => items.iter().collect(),
            NodeKind::Field(of, _) | NodeKind::Not(of) | NodeKind::Negate(of) => vec![of],
            NodeKind::Record(_, fields) => fields.iter().map(|it| &it.value).collect(),
            NodeKind::Index(of, index) => vec![of, index],
            NodeKind::Binary(_, left, right) => vec![left, right],
            NodeKind::If(parts) => parts.iter().collect(),
        }
    }
}

impl Operator {
    /// Returns the operator that a symbol stands for.
    pub(super) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "||" => Self::Or,
            "&&" => Self::And,
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            "in" => Self::In,
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            _ => return None,
        })
    }

    /// The equivalent operator for exchanged operands of a comparison.
    pub(super) fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// Returns whether a comparison holds for operands in this order; `None` for another operator.
    pub(super) fn orders(self, order: Ordering) -> Option<bool> {
        Some(match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            _ => return None,
        })
    }

    /// Returns the binding power. Comparisons do not chain, so they cannot stand beside each other.
    pub(super) fn binding(self) -> u8 {
        match self {
            Self::Or => 2,
            Self::And => 3,
            Self::Equal
            | Self::Unequal
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual
            | Self::In => Self::COMPARISON,
            Self::Add | Self::Subtract => 5,
            Self::Multiply | Self::Divide | Self::Remainder => 6,
        }
    }

    pub(super) const COMPARISON: u8 = 4;
}
