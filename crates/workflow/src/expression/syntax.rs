//! The tree of an expression.

use std::ops::Range;

use regex::Regex;
use serde_json::Value;

/// A part of an expression and the bytes it was written at.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) range: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A bool, number or text.
    Literal(Value),
    List(Vec<Node>),
    /// A channel, or the variable of an `exists` or `all` around it.
    Name(String),
    Field(Box<Node>, String),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    /// `condition ? then : otherwise`.
    If(Box<[Node; 3]>),
    /// `has(path)`: assigned, present and not null.
    Has(Box<Node>),
    /// `visits("node")`.
    Visits(String),
    /// `list.size()`, also of texts and maps.
    Size(Box<Node>),
    /// `text.startsWith(part)` and its like.
    Text(TextQuestion, Box<Node>, Box<Node>),
    /// `text.matches("pattern")`; the pattern matches somewhere in the text.
    Matches(Box<Node>, Pattern),
    /// `list.exists(x, condition)` and its like.
    Each {
        what: Each,
        list: Box<Node>,
        variable: String,
        body: Box<Node>,
    },
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The approximate number of states of its automaton.
    pub(super) states: u64,
}

impl Pattern {
    /// The steps of a search in a text: each byte may lead to every state.
    pub(super) fn steps(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul(1 + self.states / 16) / 8 + 1
    }
}

/// A question about two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextQuestion {
    StartsWith,
    EndsWith,
    Contains,
}

/// The operation on the items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    Exists,
    All,
    ExistsOne,
    Filter,
    Map,
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
    /// A name and fields below it as one text, such as `review.verdict`.
    pub(super) fn path(&self) -> Option<String> {
        match &self.kind {
            Kind::Name(name) => Some(name.clone()),
            Kind::Field(of, name) => Some(format!("{}.{name}", of.path()?)),
            _ => None,
        }
    }

    /// The direct parts, in source order.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Literal(_) | Kind::Name(_) | Kind::Visits(_) => Vec::new(),
            Kind::List(items) => items.iter().collect(),
            Kind::Field(of, _)
            | Kind::Not(of)
            | Kind::Negate(of)
            | Kind::Has(of)
            | Kind::Size(of)
            | Kind::Matches(of, _) => vec![of],
            Kind::Binary(_, left, right) => vec![left, right],
            Kind::If(parts) => parts.iter().collect(),
            Kind::Text(_, of, part) => vec![of, part],
            Kind::Each { list, body, .. } => vec![list, body],
        }
    }
}

impl TextQuestion {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        [Self::StartsWith, Self::EndsWith, Self::Contains].into_iter().find(|it| it.name() == name)
    }
}

impl Each {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::All => "all",
            Self::ExistsOne => "exists_one",
            Self::Filter => "filter",
            Self::Map => "map",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        let all = [Self::Exists, Self::All, Self::ExistsOne, Self::Filter, Self::Map];
        all.into_iter().find(|it| it.name() == name)
    }
}

impl Operator {
    /// The operator that a symbol stands for.
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

    /// The binding power. Comparisons do not chain, so they cannot stand beside each other.
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
