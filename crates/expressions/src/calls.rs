//! Parses calls of functions and methods.

use std::ops::Range;

use graphrun_core::state::pattern_size;
use regex::RegexBuilder;
use serde_json::Value;

use super::{
    functions::{Function, Style, Takes},
    parser::{Parsed, Parser},
    syntax::{Node, NodeKind, Pattern},
};
use crate::problem::{Problem, suggestion};

/// The largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Parser {
    /// Parses a call from `(` on: of a method, if there is a value before the dot. The whole begins at `start`.
    pub(super) fn call(
        &mut self,
        of: Option<Node>,
        name: &str,
        range: Range<usize>,
        start: usize,
    ) -> Parsed<Node> {
        let (what, other) =
            if of.is_some() { ("method", Style::Function) } else { ("function", Style::Method) };
        self.next();
        let before_dot = usize::from(of.is_some());
        let arguments: Vec<Node> = of.into_iter().chain(self.list(")")?).collect();
        let whole = start..self.end();
        let known = || Function::all().iter().filter(|it| it.style != other);
        let Some(function) = known().find(|it| it.name == name) else {
            let message = format!("there is no {what} `{name}`");
            let problem = Problem::new("GR021", range, message, format!("no such {what}"));
            return Err(problem.help(other_name(name, known().map(|it| it.name))));
        };
        let kind = call_of(function, arguments)?.ok_or_else(|| {
            let taken = function.parameters[before_dot..].iter().map(|it| it.takes.noun());
            let taken = taken.collect::<Vec<_>>().join(" and ");
            let taken = if taken.is_empty() { "nothing" } else { &taken };
            let message = format!("`{name}` takes {taken}");
            let problem = Problem::new("GR020", whole.clone(), message, "here");
            problem.help(format!("write `{}`", function.example))
        })?;
        self.node(kind, whole)
    }
}

/// Returns the call of a function, or `None` if an argument is none for its parameter.
fn call_of(function: &'static Function, mut arguments: Vec<Node>) -> Parsed<Option<NodeKind>> {
    if arguments.len() != function.parameters.len() {
        return Ok(None);
    }
    for (parameter, argument) in function.parameters.iter().zip(&mut arguments) {
        let kind = match (&parameter.takes, &argument.kind) {
            (Takes::Path, _) if argument.fact_path().is_some() => continue,
            (
                Takes::Value { .. }
                | Takes::Condition
                | Takes::Expression
                | Takes::Key
                | Takes::Order,
                _,
            ) => continue,
            (Takes::NodeName, NodeKind::Literal(Value::String(name))) => {
                NodeKind::NodeName(name.clone())
            }
            (Takes::Pattern, NodeKind::Literal(Value::String(pattern))) => {
                let pattern = compiled(pattern, &argument.range)?;
                if function.name == "groups" && pattern.regex.captures_len() == 1 {
                    let message = "the pattern has no group";
                    let problem = Problem::new("GR029", argument.range.clone(), message, "here");
                    return Err(problem.help(format!("write `{}`", function.example)));
                }
                NodeKind::Pattern(pattern)
            }
            (Takes::Variable, NodeKind::Name(name)) => NodeKind::Variable(name.clone()),
            (Takes::Path | Takes::NodeName | Takes::Pattern | Takes::Variable, _) => {
                return Ok(None);
            }
        };
        argument.kind = kind;
    }
    Ok(Some(NodeKind::Call(function, arguments)))
}

fn compiled(pattern: &str, range: &Range<usize>) -> Parsed<Pattern> {
    match RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build() {
        Ok(regex) => Ok(Pattern { regex, states: pattern_size(pattern) }),
        Err(error) => {
            // The first lines of the error draw the pattern and a marker, which does not fit here.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ");
            let message = format!("the pattern is not understood: {reason}");
            let problem = Problem::new("GR029", range.clone(), message, "here");
            Err(problem.help("patterns are those of RE2; look-around is not supported"))
        }
    }
}

/// Returns the name that is probably meant, also if it comes from another language.
fn other_name<'f>(name: &str, known: impl Iterator<Item = &'f str>) -> String {
    if name == "includes" {
        return "write `item in items`, or `text.contains(\"part\")`".to_owned();
    }
    // A function that is called as a method, or a method as a function.
    let same = || Function::all().iter().find(|it| it.name == name);
    match Function::all().iter().find(|it| it.aliases.contains(&name)).or_else(same) {
        Some(function) => format!("write `{}`", function.example),
        None => suggestion(name, known).unwrap_or_default(),
    }
}
