//! Compares a run with the expectation of its test case.

use graphrun_core::words::count;
use serde_json::Value;

use super::traces::Traces;
use crate::{
    diagnostic::SourceSpan,
    id::NodeName,
    workflow::case_file::{Expectation, ExpectedValue, PromptParts, Stage},
};

/// The number of steps shown before and after the first difference.
const STEPS_SHOWN: usize = 3;

/// A difference from the expectation of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place of the expectation in the file.
    pub span: SourceSpan,
    /// The difference in one line.
    pub what: String,
    /// The expected value, if it adds something to `what`.
    pub expected: Option<String>,
    /// The actual value.
    pub actual: Option<String>,
    /// A remedy.
    pub help: Option<String>,
}

impl Problem {
    pub(super) fn new(span: &SourceSpan, what: impl Into<String>) -> Self {
        let span = span.clone();
        let what = what.into();
        Self { span, what, expected: None, actual: None, help: None }
    }

    fn differs(mut self, expected: impl Into<String>, actual: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self.actual = Some(actual.into());
        self
    }

    /// Adds the route of the run.
    #[must_use]
    pub(super) fn differs_from_route(mut self, route: &[Vec<NodeName>]) -> Self {
        self.actual = Some(route_text(route)).filter(|it| !it.is_empty());
        self
    }

    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Returns all differences; causes come before their consequences.
pub(super) fn compare(expect: &Expectation, traces: &Traces) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(route) = &expect.route {
        problems.extend(compare_route(route, &traces.route));
    }
    let wanted = &expect.status;
    if wanted.value != traces.status {
        let reason = traces.reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
        let actual = format!("{}{reason}", traces.status.as_str());
        let problem = Problem::new(&wanted.span, "the run has another status");
        problems.push(problem.differs(wanted.value.as_str(), actual));
    } else if let Some(reason) = &expect.reason {
        let actual = traces.reason.as_deref().unwrap_or("no reason");
        if !actual.contains(&reason.value) {
            let problem = Problem::new(&reason.span, "the reason differs");
            problems.push(problem.differs(&reason.value, actual));
        }
    }
    problems.extend(expect.state.iter().filter_map(|it| compare_value(it, traces)));
    for unset in &expect.unset {
        let held = traces.values.get(unset.value.as_str());
        if let Some(value) = held.filter(|it| !it.is_null()) {
            let problem = Problem::new(&unset.span, format!("`{}` holds a value", unset.value));
            problems.push(problem.differs("nothing", shown(value)));
        }
    }
    for ExpectedValue { value: (node, wanted), span } in &expect.visits {
        let actual = traces.visits.get(node).copied().unwrap_or(0);
        if actual != *wanted {
            let problem = Problem::new(span, format!("`{node}` ran a different number of times"));
            problems.push(problem.differs(wanted.to_string(), actual.to_string()));
        }
    }
    for never in expect.never.iter().filter(|it| traces.visits.contains_key(&it.value)) {
        let problem = Problem::new(&never.span, format!("`{}` ran", never.value));
        problems.push(problem.differs("never", route_text(&traces.route)));
    }
    problems.extend(compare_events(&expect.events, &traces.events));
    problems.extend(expect.prompts.iter().flat_map(|it| compare_prompts(it, traces)));
    problems
}

/// Returns a route in one line, in the syntax of a test case.
pub(super) fn route_text(route: &[Vec<NodeName>]) -> String {
    route.iter().map(|it| step_text(it)).collect::<Vec<_>>().join(", ")
}

/// Returns one step of a route, in the syntax of a test case.
pub fn step_text(nodes: &[NodeName]) -> String {
    match nodes {
        [only] => only.to_string(),
        several => {
            let names: Vec<&str> = several.iter().map(NodeName::as_str).collect();
            format!("[{}]", names.join(", "))
        }
    }
}

/// Matches the route against the expected stages, with all interpretations of `…` in parallel.
fn compare_route(
    expected: &ExpectedValue<Vec<Stage>>,
    actual: &[Vec<NodeName>],
) -> Option<Problem> {
    let stages = &expected.value;
    let mut reading = readings(stages, vec![0]);
    for (at, step) in actual.iter().enumerate() {
        let next = reading.iter().filter_map(|&stage| match stages.get(stage)? {
            Stage::Any => Some(stage),
            Stage::Step(nodes) => (nodes == step).then_some(stage + 1),
        });
        let next = readings(stages, next.collect());
        if next.is_empty() {
            return Some(differs_at(expected, &reading, at, actual));
        }
        reading = next;
    }
    if reading.contains(&stages.len()) {
        return None;
    }
    Some(differs_at(expected, &reading, actual.len(), actual))
}

/// Adds the stages that may come next, because `…` may also match no step.
fn readings(stages: &[Stage], mut reading: Vec<usize>) -> Vec<usize> {
    let mut at = 0;
    while let Some(&stage) = reading.get(at) {
        if stages.get(stage) == Some(&Stage::Any) && !reading.contains(&(stage + 1)) {
            reading.push(stage + 1);
        }
        at += 1;
    }
    reading.sort_unstable();
    reading.dedup();
    reading
}

fn differs_at(
    expected: &ExpectedValue<Vec<Stage>>,
    reading: &[usize],
    at: usize,
    actual: &[Vec<NodeName>],
) -> Problem {
    let stage_text = |stage: &Stage| match stage {
        Stage::Any => "…".to_owned(),
        Stage::Step(nodes) => step_text(nodes),
    };
    let stages: Vec<String> = expected.value.iter().map(stage_text).collect();
    let steps: Vec<String> = actual.iter().map(|it| step_text(it)).collect();
    // The furthest interpretation is the best match.
    let stage = reading.last().copied().unwrap_or_default();
    let problem = Problem::new(&expected.span, format!("the route differs at step {}", at + 1));
    problem.differs(excerpt(&stages, stage), excerpt(&steps, at))
}

/// Returns the steps around one, which is marked; `end` after the last step.
fn excerpt(steps: &[String], at: usize) -> String {
    let start = at.saturating_sub(STEPS_SHOWN).min(steps.len());
    let end = (at + 1 + STEPS_SHOWN).min(steps.len());
    let mut shown: Vec<String> = Vec::new();
    if start > 0 {
        shown.push("…".to_owned());
    }
    shown.extend(steps[start..at.min(steps.len())].iter().cloned());
    let marked = steps.get(at).map_or("end", String::as_str);
    shown.push(format!("→ {marked}"));
    if at < steps.len() {
        shown.extend(steps[at + 1..end].iter().cloned());
        if end < steps.len() {
            shown.push("…".to_owned());
        }
    }
    shown.join(", ")
}

fn compare_value(
    expected: &ExpectedValue<(Vec<String>, Value)>,
    traces: &Traces,
) -> Option<Problem> {
    let (path, wanted) = &expected.value;
    let held = traces.values.get(path[0].as_str()).unwrap_or(&Value::Null);
    let actual = path[1..].iter().try_fold(held, |value, name| value.get(name));
    let actual = actual.unwrap_or(&Value::Null);
    if includes(actual, wanted) {
        return None;
    }
    let problem = Problem::new(&expected.span, format!("`{}` differs", path.join(".")));
    Some(problem.differs(shown(wanted), shown(actual)))
}

/// Returns whether a value is the wanted one; a wanted record may have only some of its fields.
fn includes(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Value::Object(actual), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| includes(actual.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len()
                && actual.iter().zip(wanted).all(|(actual, wanted)| includes(actual, wanted))
        }
        // 3 and 3.0 are the same number.
        (Value::Number(actual), Value::Number(wanted)) => {
            let is_float = actual.is_f64() || wanted.is_f64();
            actual == wanted || is_float && actual.as_f64() == wanted.as_f64()
        }
        (actual, wanted) => actual == wanted,
    }
}

/// Looks for the expected parts in the prompts of a node.
fn compare_prompts(
    ExpectedValue { value: (node, parts), span }: &ExpectedValue<(NodeName, PromptParts)>,
    traces: &Traces,
) -> Vec<Problem> {
    let prompts = traces.prompts.get(node).map_or(&[][..], Vec::as_slice);
    if prompts.iter().all(|it| it.as_ref().is_ok_and(String::is_empty)) {
        let what = if prompts.is_empty() { "did not run" } else { "has no prompt" };
        return vec![Problem::new(span, format!("`{node}` {what}"))];
    }
    let parts = match parts {
        PromptParts::Each(part) => vec![part; prompts.len()],
        PromptParts::Visits(parts) => parts.iter().collect(),
    };
    // The items of a map are one visit, and each has its prompt.
    let visits = traces.visits.get(node).copied().unwrap_or_default();
    let (noun, on) = if visits < prompts.len() { ("item", "for") } else { ("visit", "on") };
    let further = prompts.len().checked_sub(parts.len()).filter(|it| *it > 0).map(|_| {
        let made = count(prompts.len() as u64, noun);
        let expected = match parts.len() {
            1 => "1 is expected".to_owned(),
            several => format!("{several} are expected"),
        };
        Problem::new(span, format!("`{node}` has {made}, and {expected}"))
    });
    let missed = parts.into_iter().enumerate().filter_map(|(at, part)| {
        let number = at + 1;
        let Some(prompt) = prompts.get(at) else {
            return Some(Problem::new(span, format!("`{node}` has no {noun} {number}")));
        };
        let what = format!("the prompt of `{node}` {on} {noun} {number}");
        match prompt {
            Ok(prompt) if prompt.contains(part) => None,
            Ok(prompt) => Some(Problem::new(span, format!("{what} differs")).differs(part, prompt)),
            Err(error) => {
                Some(Problem::new(span, format!("{what} cannot be rendered")).differs(part, error))
            }
        }
    });
    missed.chain(further).collect()
}

/// Looks for the expected events in their order; other events may come between them.
fn compare_events(expected: &[ExpectedValue<String>], actual: &[String]) -> Option<Problem> {
    let mut told = actual.iter();
    let missed = expected.iter().find(|wanted| !told.any(|it| *it == wanted.value))?;
    let names = expected.iter().map(|it| it.value.as_str()).collect::<Vec<_>>().join(", ");
    let actual = if actual.is_empty() { "none".to_owned() } else { actual.join(", ") };
    let what = format!("`{}` was not emitted in this order", missed.value);
    Some(Problem::new(&missed.span, what).differs(names, actual))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}
