//! Functions and methods: their names and arguments.

use std::ops::Range;

use graphrun_core::state::pattern_size;
use regex::RegexBuilder;
use serde_json::Value;

use super::{
    parser::{Parsed, Parser},
    syntax::{Each, Kind, Node, Pattern, TextQuestion},
};
use crate::report::{Problem, suggestion};

const FUNCTIONS: &[&str] = &["has", "visits", "size"];
const METHODS: &[&str] = &[
    "size",
    "exists",
    "all",
    "exists_one",
    "filter",
    "map",
    "startsWith",
    "endsWith",
    "contains",
    "matches",
];
/// The largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Parser {
    /// Parses a function call from `(` on.
    pub(super) fn function(&mut self, name: &str, range: Range<usize>) -> Parsed<Node> {
        self.next();
        let mut arguments = self.list(")")?;
        let whole = range.start..self.end();
        let argument = if arguments.len() == 1 { arguments.pop() } else { None };
        let kind = match (name, argument) {
            ("has", Some(of)) if of.path().is_some() => Kind::Has(Box::new(of)),
            ("has", _) => {
                return Err(misused(
                    whole,
                    "`has` takes one field",
                    "write `has(review.guidance)`",
                ));
            }
            ("visits", Some(Node { kind: Kind::Literal(Value::String(node)), .. })) => {
                Kind::Visits(node)
            }
            ("visits", _) => {
                let message = "`visits` takes the name of a node, in quotes";
                return Err(misused(whole, message, "write `visits(\"sse\")`"));
            }
            ("size", Some(of)) => Kind::Size(Box::new(of)),
            ("size", _) => {
                return Err(misused(whole, "`size` takes one value", "write `items.size()`"));
            }
            _ => {
                let message = format!("there is no function `{name}`");
                let problem = Problem::new("GR021", range, message, "no such function");
                return Err(problem.help(other_name(name, FUNCTIONS)));
            }
        };
        self.node(kind, whole)
    }

    /// Parses a method call from `(` on; the value before the dot starts at `start`.
    pub(super) fn method(
        &mut self,
        of: Node,
        name: &str,
        range: Range<usize>,
        start: usize,
    ) -> Parsed<Node> {
        self.next();
        let arguments = self.list(")")?;
        let whole = start..self.end();
        let kind = if name == "size" {
            if !arguments.is_empty() {
                return Err(misused(whole, "`size` takes nothing", "write `items.size()`"));
            }
            Kind::Size(Box::new(of))
        } else if let Some(what) = Each::of(name) {
            each(what, of, arguments, &whole)?
        } else if let Some(question) = TextQuestion::of(name) {
            let Ok([part]) = <[Node; 1]>::try_from(arguments) else {
                let help = format!("write `title.{name}(\"draft\")`");
                return Err(misused(whole, &format!("`{name}` takes one text"), &help));
            };
            Kind::Text(question, Box::new(of), Box::new(part))
        } else if name == "matches" {
            matches(of, arguments, &whole)?
        } else {
            let message = format!("there is no method `{name}`");
            let problem = Problem::new("GR021", range, message, "no such method");
            return Err(problem.help(other_name(name, METHODS)));
        };
        self.node(kind, whole)
    }
}

fn each(what: Each, of: Node, arguments: Vec<Node>, whole: &Range<usize>) -> Parsed<Kind> {
    let name = what.name();
    match <[Node; 2]>::try_from(arguments) {
        Ok([Node { kind: Kind::Name(variable), .. }, body]) => {
            let (list, body) = (Box::new(of), Box::new(body));
            Ok(Kind::Each { what, list, variable, body })
        }
        _ if what == Each::Map => {
            let message = "`map` takes a name and an expression";
            Err(misused(whole.clone(), message, "write `items.map(item, item.title)`"))
        }
        _ => {
            let message = format!("`{name}` takes a name and a condition");
            let help = format!("write `items.{name}(item, item.done)`");
            Err(misused(whole.clone(), &message, &help))
        }
    }
}

/// The pattern is compiled when the workflow is loaded, so it must be a literal.
fn matches(of: Node, arguments: Vec<Node>, whole: &Range<usize>) -> Parsed<Kind> {
    let Ok([Node { kind: Kind::Literal(Value::String(pattern)), range }]) =
        <[Node; 1]>::try_from(arguments)
    else {
        let help = "write `title.matches(\"^[A-Z]+-[0-9]+$\")`";
        return Err(misused(whole.clone(), "`matches` takes a pattern, in quotes", help));
    };
    match RegexBuilder::new(&pattern).size_limit(PATTERN_BYTES_MAX).build() {
        Ok(regex) => {
            let states = pattern_size(&pattern);
            Ok(Kind::Matches(Box::new(of), Pattern { regex, states }))
        }
        Err(error) => {
            // The first lines of the error draw the pattern and a marker, which does not fit here.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            let problem = Problem::new(
                "GR029",
                range,
                format!("the pattern is not understood: {reason}"),
                "here",
            );
            Err(problem.help("patterns are those of RE2; look-around is not supported"))
        }
    }
}

fn misused(range: Range<usize>, message: &str, help: &str) -> Problem {
    Problem::new("GR020", range, message, "here").help(help)
}

/// The name that is probably meant, also if it comes from another language.
fn other_name(name: &str, known: &[&str]) -> String {
    match name {
        "len" | "length" | "count" => "write `items.size()`".to_owned(),
        "any" | "some" => "write `items.exists(item, item.done)`".to_owned(),
        "every" => "write `items.all(item, item.done)`".to_owned(),
        "includes" => "write `item in items`, or `text.contains(\"part\")`".to_owned(),
        "defined" | "exists" | "present" => "write `has(review.guidance)`".to_owned(),
        _ => suggestion(name, known.iter().copied()).unwrap_or_default(),
    }
}
