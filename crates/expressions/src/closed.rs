//! Constant parts of an expression: they read nothing, so their value is known before any run.

use graphrun_core::{
    graph::{RunFacts, Trigger, Visits},
    state::Schema,
};
use serde_json::Value;

use super::{
    EvaluateError, ExpressionView,
    evaluate::{Absent, Settings, TypedPlaces, evaluate_owned},
    syntax::{Node, NodeKind, Operator},
};
use crate::problem::Problem;

/// Evaluates an expression that reads nothing; its value is the same in every state. Returns `None`
/// if it reads something. `places` are the typed places of it, or of the expression that it is a part of.
pub(super) fn evaluate_closed(
    root: &Node,
    places: &TypedPlaces,
) -> Option<Result<Value, EvaluateError>> {
    if !is_closed(root, &mut Vec::new()) {
        return None;
    }
    let state = Schema::default().empty();
    let visits = Visits::default();
    let trigger = &Trigger::Start;
    let facts = &RunFacts::default();
    let state = &state;
    let visits = &visits;
    let view = ExpressionView { state, visits, item: None, output_dir: None, trigger, facts };
    let settings = Settings { item: None, variable: None, places, absent: Absent::IsNull };
    Some(evaluate_owned(root, &view, settings))
}

/// Reports the innermost parts that have no value in any state. Returns whether there are any.
pub(super) fn note_valueless(
    node: &Node,
    places: &TypedPlaces,
    problems: &mut Vec<Problem>,
) -> bool {
    let mut inside = false;
    for part in node.parts() {
        inside |= note_valueless(part, places, problems);
    }
    if inside {
        return true;
    }
    let error = match &node.kind {
        NodeKind::Binary(Operator::Divide | Operator::Remainder, _, by) => {
            let zero = evaluate_closed(by, places)
                .is_some_and(|result| result.is_ok_and(|it| it.as_f64() == Some(0.0)));
            zero.then_some(EvaluateError::DivisionByZero)
        }
        _ => None,
    };
    let Some(error) = error.or_else(|| evaluate_closed(node, places)?.err()) else { return false };
    let message = format!("this never has a value: {error}");
    let problem = Problem::new("GR028", node.range.clone(), message, "no value in any run");
    problems.push(problem.help("a run that comes here would fail"));
    true
}

fn is_closed<'a>(node: &'a Node, variables: &mut Vec<&'a str>) -> bool {
    match &node.kind {
        NodeKind::Name(name) => variables.contains(&name.as_str()),
        NodeKind::NodeName(_) => false,
        NodeKind::Call(function, arguments) => {
            let bound = variables.len();
            // A function without arguments reads a fact.
            let is_closed = !function.is_presence()
                && !arguments.is_empty()
                && arguments.iter().all(|node| match &node.kind {
                    NodeKind::Variable(name) => {
                        variables.push(name);
                        true
                    }
                    _ => is_closed(node, variables),
                });
            variables.truncate(bound);
            is_closed
        }
        _ => node.parts().into_iter().all(|it| is_closed(it, variables)),
    }
}
