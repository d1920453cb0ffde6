//! Parses tokens into a tree, by binding power (Pratt).

use std::ops::Range;

use serde_json::{Number, Value};

use super::{
    lexer::{Token, tokens},
    syntax::{Node, NodeKind, Operator, RecordField},
};
use crate::problem::Problem;

/// The deepest nesting of an expression.
const DEPTH_MAX: usize = 32;
/// The most parts of an expression. It also bounds the depth of the tree.
const PARTS_MAX: usize = 400;

pub(super) type Parsed<T> = Result<T, Problem>;

pub(super) fn parse(source: &str) -> Parsed<Node> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, parts: 0 };
    let root = parser.expression(0)?;
    match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

pub(super) struct Parser {
    /// Ends with [`Token::End`], which is never consumed.
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    depth: usize,
    parts: usize,
}

impl Parser {
    /// Parses everything that binds more tightly than `binding`.
    fn expression(&mut self, binding: u8) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.problem("the expression is nested too deeply", "too deep"));
        }
        // Brackets are no node of the tree, but belong to the marked range.
        let start = self.range().start;
        let mut left = self.prefix()?;
        let mut compared = false;
        while let Some(operator) = self.operator().filter(|it| it.binding() > binding) {
            let comparison = operator.binding() == Operator::COMPARISON;
            if comparison && compared {
                let problem = self.problem("comparisons do not chain", "the second comparison");
                return Err(problem.help("write `a < b && b < c`"));
            }
            compared |= comparison;
            self.next();
            let right = self.expression(operator.binding())?;
            let range = start..self.end();
            left = self.node(NodeKind::Binary(operator, Box::new(left), Box::new(right)), range)?;
        }
        if binding == 0 && self.takes("?") {
            let then = self.expression(0)?;
            self.expect(":")?;
            let otherwise = self.expression(0)?;
            let range = start..self.end();
            left = self.node(NodeKind::If(Box::new([left, then, otherwise])), range)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn prefix(&mut self) -> Parsed<Node> {
        let start = self.range().start;
        let make: fn(Box<Node>) -> NodeKind = if self.takes("!") {
            NodeKind::Not
        } else if self.takes("-") {
            NodeKind::Negate
        } else {
            return self.postfix();
        };
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.problem("the expression is nested too deeply", "too deep"));
        }
        let of = self.prefix()?;
        self.depth -= 1;
        let range = start..self.end();
        self.node(make(Box::new(of)), range)
    }

    fn postfix(&mut self) -> Parsed<Node> {
        let start = self.range().start;
        let mut node = self.primary()?;
        loop {
            if self.takes("[") {
                let index = self.expression(0)?;
                self.expect("]")?;
                let whole = start..self.end();
                node = self.node(NodeKind::Index(Box::new(node), Box::new(index)), whole)?;
                continue;
            }
            if !self.takes(".") {
                return Ok(node);
            }
            let (name, range) = self.name("the name of a field")?;
            let whole = start..range.end;
            node = if *self.peek() == Token::Symbol("(") {
                self.call(Some(node), &name, range, start)?
            } else {
                self.node(NodeKind::Field(Box::new(node), name), whole)?
            };
        }
    }

    fn primary(&mut self) -> Parsed<Node> {
        let (token, range) = self.tokens[self.at].clone();
        let kind = match token {
            Token::Int(number) => NodeKind::Literal(Value::from(number)),
            Token::Float(number) => {
                // The lexer accepts only finite numbers, and JSON can represent all of them.
                NodeKind::Literal(Number::from_f64(number).map_or(Value::Null, Value::Number))
            }
            Token::Text(text) => NodeKind::Literal(Value::String(text)),
            Token::Name(name) => return self.named(name, range),
            Token::Symbol("(") => {
                self.next();
                let inner = self.expression(0)?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Symbol("[") => {
                self.next();
                let items = self.list("]")?;
                let end = self.end();
                return self.node(NodeKind::List(items), range.start..end);
            }
            Token::Symbol("{") => return self.record(None, range.start),
            Token::Symbol(_) | Token::End => return Err(self.unexpected("a value")),
        };
        self.next();
        self.node(kind, range)
    }

    fn named(&mut self, name: String, range: Range<usize>) -> Parsed<Node> {
        self.next();
        let kind = match name.as_str() {
            "true" => NodeKind::Literal(Value::Bool(true)),
            "false" => NodeKind::Literal(Value::Bool(false)),
            "null" => NodeKind::Literal(Value::Null),
            "none" | "None" | "nil" => {
                let message = format!("`{name}` has no meaning in an expression");
                let problem = Problem::new("GR020", range, message, "here");
                let help = "the value of an absent field is `null`; `has(x)` asks whether a value is there";
                return Err(problem.help(help));
            }
            "and" | "or" | "not" | "in" => {
                self.at -= 1;
                return Err(self.unexpected("a value"));
            }
            _ if *self.peek() == Token::Symbol("(") => {
                let start = range.start;
                return self.call(None, &name, range, start);
            }
            _ if *self.peek() == Token::Symbol("{") => {
                return self.record(Some(name), range.start);
            }
            _ => NodeKind::Name(name),
        };
        self.node(kind, range)
    }

    /// Parses a record from `{` on. The whole begins at `start`.
    fn record(&mut self, name: Option<String>, start: usize) -> Parsed<Node> {
        self.next();
        let mut fields: Vec<RecordField> = Vec::new();
        while !self.takes("}") {
            let (Token::Name(name) | Token::Text(name), range) = self.tokens[self.at].clone()
            else {
                return Err(self.unexpected("the name of a field"));
            };
            if fields.iter().any(|it| it.name == name) {
                let message = format!("the field `{name}` is given twice");
                return Err(Problem::new("GR020", range, message, "the second value"));
            }
            self.next();
            if !self.takes(":") {
                let help = "a record is written `{ field: value }`; remove the braces if no record is meant";
                return Err(self.unexpected("`:`").help(help));
            }
            let value = self.expression(0)?;
            fields.push(RecordField { name, range, value });
            if !self.takes(",") && *self.peek() != Token::Symbol("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        self.node(NodeKind::Record(name, fields), start..self.end())
    }

    /// Parses expressions up to a closing symbol and consumes it.
    pub(super) fn list(&mut self, close: &'static str) -> Parsed<Vec<Node>> {
        let mut items = Vec::new();
        while !self.takes(close) {
            items.push(self.expression(0)?);
            if !self.takes(",") && *self.peek() != Token::Symbol(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
        Ok(items)
    }

    pub(super) fn node(&mut self, kind: NodeKind, range: Range<usize>) -> Parsed<Node> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            let message = format!("an expression has at most {PARTS_MAX} parts");
            return Err(Problem::new("GR020", range, message, "too many"));
        }
        Ok(Node { kind, range })
    }

    fn operator(&self) -> Option<Operator> {
        match self.peek() {
            Token::Symbol(symbol) => Operator::of(symbol),
            Token::Name(name) if name == "in" => Some(Operator::In),
            _ => None,
        }
    }

    fn name(&mut self, wanted: &str) -> Parsed<(String, Range<usize>)> {
        match self.tokens[self.at].clone() {
            (Token::Name(name), range) => {
                self.next();
                Ok((name, range))
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn range(&self) -> Range<usize> {
        self.tokens[self.at].1.clone()
    }

    /// Returns the end of the previous token.
    pub(super) fn end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].1.end
    }

    pub(super) fn next(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn takes(&mut self, symbol: &'static str) -> bool {
        let found = *self.peek() == Token::Symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, symbol: &'static str) -> Parsed<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn problem(&self, message: &str, label: &str) -> Problem {
        Problem::new("GR020", self.range(), message, label)
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        let found = match self.peek() {
            Token::Int(number) => format!("`{number}`"),
            Token::Float(number) => format!("`{number}`"),
            Token::Text(_) => "a text".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        };
        let message = format!("expected {wanted}, found {found}");
        let problem = Problem::new("GR020", self.range(), message, format!("expected {wanted}"));
        let before = self.at.checked_sub(1).map(|at| &self.tokens[at].0);
        match self.peek() {
            Token::Name(name) if name == "and" => problem.help("and is `&&`"),
            Token::Name(name) if name == "or" => problem.help("or is `||`"),
            Token::Name(name) if name == "not" => problem.help("not is `!`"),
            Token::Name(name) if name == "is" => {
                let after = |at: usize| self.tokens.get(self.at + at).map(|it| &it.0);
                let is_none = |it: Option<&Token>| matches!(it, Some(Token::Name(name)) if matches!(name.as_str(), "None" | "none" | "null"));
                let is_not = matches!(after(1), Some(Token::Name(name)) if name == "not");
                match (is_not, is_none(after(1)), is_none(after(2))) {
                    (true, _, true) => problem.help("`has(x)` asks whether `x` has a value"),
                    (_, true, _) => problem.help("`!has(x)` asks whether `x` has no value"),
                    _ => problem.help("equality is `==`"),
                }
            }
            Token::Symbol(">") if before == Some(&Token::Symbol("<")) => {
                problem.help("unequal is `!=`")
            }
            _ => problem,
        }
    }
}
