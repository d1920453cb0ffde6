//! Checks a path below `output.dir` before a run, as far as it is constant.

use serde_json::Value;

use super::{
    Expression,
    syntax::{Node, NodeKind, Operator},
};

/// Stands for a part of a path that is only known in a run. It is an ordinary name, and remains one
/// with any text beside it.
const UNKNOWN: &str = "value";

/// Why an expression cannot be a path below the output folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputPathError<E> {
    /// It does not begin with `output.dir`.
    Elsewhere,
    /// A text follows `output.dir` without a `/` between them: it names a folder beside the output folder.
    Beside(String),
    /// The part below is not acceptable.
    Below {
        /// The part, as far as it is known.
        path: String,
        /// The rule that it breaks.
        error: E,
    },
}

/// A part of a path.
enum PathPart<'a> {
    Output,
    Text(&'a str),
    Unknown,
}

impl Expression {
    /// Checks that the value can be `output.dir` or a path below it, as far as it is constant. The part below fulfils a
    /// rule.
    ///
    /// # Errors
    ///
    /// Fails when no run could accept the value.
    pub fn check_output_path<E>(
        &self,
        rule: impl Fn(&str) -> Result<(), E>,
    ) -> Result<(), OutputPathError<E>> {
        check(&self.root, &rule)
    }
}

/// Checks the parts below `output.dir` with a rule.
type Rule<'r, E> = &'r dyn Fn(&str) -> Result<(), E>;

fn check<E>(node: &Node, rule: Rule<'_, E>) -> Result<(), OutputPathError<E>> {
    if let NodeKind::If(parts) = &node.kind {
        let [_, then, otherwise] = parts.as_ref();
        return check(then, rule).and_then(|()| check(otherwise, rule));
    }
    let mut parts = Vec::new();
    flatten(node, &mut parts);
    let mut rest = parts.into_iter();
    match rest.next() {
        Some(PathPart::Output) => {}
        // A whole path that another expression chooses, as in `(a ? output.dir : output.dir + "/x") + "/y"`.
        Some(PathPart::Unknown) if matches!(first(node).kind, NodeKind::If(_)) => {
            return check(first(node), rule);
        }
        _ => return Err(OutputPathError::Elsewhere),
    }
    let mut path = String::new();
    for part in rest {
        match part {
            PathPart::Text(text) => path.push_str(text),
            PathPart::Output | PathPart::Unknown => path.push_str(UNKNOWN),
        }
    }
    check_below(node, &path, rule)
}

fn check_below<E>(node: &Node, path: &str, rule: Rule<'_, E>) -> Result<(), OutputPathError<E>> {
    if path.is_empty() {
        return Ok(());
    }
    let Some(below) = path.strip_prefix('/') else {
        // A part that is only known in a run may begin with a `/`.
        let is_known = matches!(second(node), Some(NodeKind::Literal(_)));
        return if is_known { Err(OutputPathError::Beside(path.to_owned())) } else { Ok(()) };
    };
    let below = below.trim_end_matches('/');
    if below.is_empty() {
        return Ok(());
    }
    rule(below).map_err(|error| OutputPathError::Below { path: below.to_owned(), error })
}

/// Takes a sum of texts apart.
fn flatten<'a>(node: &'a Node, parts: &mut Vec<PathPart<'a>>) {
    match &node.kind {
        NodeKind::Binary(Operator::Add, left, right) => {
            flatten(left, parts);
            flatten(right, parts);
        }
        NodeKind::Literal(Value::String(text)) if text.is_empty() => {}
        NodeKind::Literal(Value::String(text)) => parts.push(PathPart::Text(text)),
        _ if node.path().as_deref() == Some("output.dir") => parts.push(PathPart::Output),
        _ => parts.push(PathPart::Unknown),
    }
}

/// Returns the first operand of a sum.
fn first(node: &Node) -> &Node {
    match &node.kind {
        NodeKind::Binary(Operator::Add, left, _) => first(left),
        _ => node,
    }
}

/// Returns the second operand of a sum.
fn second(node: &Node) -> Option<&NodeKind> {
    let NodeKind::Binary(Operator::Add, left, right) = &node.kind else { return None };
    match &left.kind {
        NodeKind::Binary(Operator::Add, ..) => second(left),
        _ => Some(&first(right).kind),
    }
}
