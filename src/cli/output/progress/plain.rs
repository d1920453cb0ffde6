//! One line per event, for logs.

use std::io;

use jiff::Timestamp;

use super::{
    super::{
        terminal::print_message,
        words::{clean, cost, duration, tokens, tokens_and_cost},
    },
    Caption, ProgressView,
};
use crate::{
    event::{Event, Report, RunEvent},
    id::NodeName,
};

/// Writes one line per event to stderr.
#[derive(Debug)]
pub(super) struct Plain {
    caption: Caption,
}

impl Plain {
    /// Creates an empty view; the first line comes with the first event.
    pub(super) fn new(caption: Caption) -> Self {
        Self { caption }
    }
}

impl ProgressView for Plain {
    fn show(&mut self, stamped: &RunEvent) -> io::Result<()> {
        print_message(&line(stamped, &self.caption));
        Ok(())
    }

    fn note(&mut self, text: &str) {
        print_message(text);
    }
}

/// Returns an event as one line: the time of day in UTC, and the event.
pub(crate) fn line(stamped: &RunEvent, caption: &Caption) -> String {
    let time = stamped.ts.get(11..19).unwrap_or_default();
    format!("{time} {}", text(stamped, caption))
}

fn text(stamped: &RunEvent, caption: &Caption) -> String {
    text_of(&stamped.event, stamped, caption)
}

fn text_of(event: &Event, stamped: &RunEvent, caption: &Caption) -> String {
    match event {
        Event::RunStarted { name, workflow } => {
            format!("run {name} ({}) of {workflow}{}", stamped.run, resume(caption))
        }
        Event::RunResumed { step } => {
            let name = &caption.name;
            format!("run {name} ({}) continues after step {step}{}", stamped.run, resume(caption))
        }
        Event::TurnStarted { turn, .. } => {
            let name = &caption.name;
            format!("turn {turn} of {name} ({}){}", stamped.run, resume(caption))
        }
        Event::WorkflowChanged { changes } => {
            format!("the workflow has changed: {}", clean(&changes.join("; ")))
        }
        Event::WorkflowMigrated { workflow, mapped, dropped, again, set, .. } => {
            let part = |word: &str, names: &[String]| {
                if names.is_empty() {
                    String::new()
                } else {
                    format!("; {word}{}", names.join(", "))
                }
            };
            let mapped = part("", mapped);
            let dropped = part("without ", dropped);
            let again = part("again: ", again);
            let set = written(set);
            format!("migrated to {}{mapped}{dropped}{again}{set}", clean(workflow))
        }
        Event::RunForked { from, step, set } => {
            format!("forked from {from} after step {step}{}", written(set))
        }
        Event::StateUpdated { step, node, writes } => {
            let place = node.as_ref().map(|it| format!(" as the update of {it}"));
            let place = place.unwrap_or_default();
            format!("step {step} was made by hand{place}{}", written(writes))
        }
        Event::TaskStarted { node, attempt, visit, max_visits, .. } => {
            let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            format!("{} started{again}", label(node, *visit, *max_visits))
        }
        Event::TaskReported { node, report, .. } => match report {
            Report::Nested { event } => text_of(event, stamped, caption),
            report => format!("{node} {}", reported(report)),
        },
        Event::MemoSaved { node, name, .. } => format!("{node} has saved `{}`", clean(name)),
        Event::TaskRetrying { node, attempt, error, wait_ms, .. } => {
            let error = clean(error);
            let wait = duration(*wait_ms);
            format!("{node} attempt {attempt} failed: {error}; retries in {wait}")
        }
        Event::TimerSet { node, wake, reason, .. } => waits(node, *wake, reason.as_deref()),
        Event::TaskAborted { node, ms, .. } => {
            format!("{node} was aborted after {}: a limit of the run is reached", duration(*ms))
        }
        Event::TaskFinished { node, ms, to, usage, .. } => {
            let usage = tokens_and_cost(usage).map(|it| format!(" ({it})")).unwrap_or_default();
            format!("{node} finished in {}{}{usage}", duration(*ms), describe_targets(to))
        }
        Event::TaskUndecided { node, ms, error, usage, .. } => {
            let usage = tokens_and_cost(usage).map(|it| format!(" ({it})")).unwrap_or_default();
            let after = duration(*ms);
            let error = clean(error);
            format!("{node} finished in {after}{usage}, but its route failed: {error}")
        }
        Event::TaskSkipped { node, condition, to, .. } => {
            format!("{node} skipped: `{}` is not true{}", clean(condition), describe_targets(to))
        }
        Event::TaskFailed { node, ms, kind, error, to, .. } => {
            let after = duration(*ms);
            let error = clean(error);
            format!("{node} failed after {after} ({kind}): {error}{}", describe_targets(to))
        }
        Event::QuestionAsked { node, key, prompt, .. } => {
            format!("{node} asks `{key}`: {}", clean(prompt))
        }
        Event::QuestionAnswered { node, key, .. } => format!(
            "{node}: the question `{key}` is \
            answered"
        ),
        Event::MessageReceived { to, by, problem } => {
            describe_message(to, by.as_deref(), problem.as_deref())
        }
        Event::TaskEmitted { name, message, .. } => format!("*** {} ({name})", clean(message)),
        Event::StepCommitted { step, next } if next.is_empty() => format!("step {step} is saved"),
        Event::StepCommitted { step, next } => {
            let next: Vec<&str> = next.iter().map(NodeName::as_str).collect();
            format!("step {step} is saved, next: {}", next.join(", "))
        }
        Event::RunFinished { status, reason, steps, usage } => {
            let usage = tokens_and_cost(usage).map(|it| format!(" ({it})")).unwrap_or_default();
            let reason = reason.as_deref().map(|it| format!(": {}", clean(it)));
            let name = &caption.name;
            let status = status.as_str();
            format!("run {name} {status} after step {steps}{usage}{}", reason.unwrap_or_default())
        }
    }
}

/// Returns the wait of a node for a time.
pub(super) fn waits(node: &NodeName, wake: Timestamp, reason: Option<&str>) -> String {
    let reason = reason.map(|it| format!(": {}", clean(it))).unwrap_or_default();
    format!("{node} waits until {wake:.0}{reason}")
}

/// Returns a message to the run: its author and the result.
pub(super) fn describe_message(to: &str, by: Option<&str>, problem: Option<&str>) -> String {
    let by = by.map_or_else(|| "a person".to_owned(), clean);
    match problem {
        Some(problem) => {
            format!("a message from {by} to `{to}` was dropped: {}", clean(problem))
        }
        None => format!("message from {by} to `{to}`"),
    }
}

/// Returns a node and its iteration in a loop.
pub(super) fn label(node: &NodeName, visit: u32, max_visits: Option<u32>) -> String {
    match max_visits {
        Some(max) => format!("{node} {visit}/{max}"),
        None if visit > 1 => format!("{node} {visit}"),
        None => node.to_string(),
    }
}

/// Returns the targets of a transition, if there are any.
pub(super) fn describe_targets(to: &[String]) -> String {
    if to.is_empty() { String::new() } else { format!(" → {}", to.join(", ")) }
}

/// Returns the written fields, if there are any.
fn written(fields: &[String]) -> String {
    if fields.is_empty() { String::new() } else { format!(", with another {}", fields.join(", ")) }
}

fn reported(report: &Report) -> String {
    match report {
        Report::ModelCall { model, usage, ms } => {
            let tokens = tokens(usage.total_tokens());
            let cost = cost(usage.cost_usd);
            format!("got an answer from {} in {}: {tokens}, {cost}", clean(model), duration(*ms))
        }
        Report::ToolCall { tool, input, ms, error } => called(tool, input, *ms, error.as_deref()),
        Report::Warning { message } => format!("warning: {}", clean(message)),
        Report::Note { message } => format!("note: {}", clean(message)),
        Report::CacheHit { computed_at } => {
            format!("uses the cached result of {}", clean(computed_at))
        }
        Report::Artifact { path } => format!("wrote {}", clean(path)),
        Report::Custom { value } => format!("emitted {}", clean(&value.to_string())),
        Report::Nested { .. } => "works on its nested run".to_owned(),
    }
}

/// Returns a tool call, and its error if it failed.
pub(super) fn called(tool: &str, input: &str, ms: u64, error: Option<&str>) -> String {
    let error = error.map(|it| format!(", failed: {}", clean(it))).unwrap_or_default();
    format!("called {} {} in {}{error}", clean(tool), clean(input), duration(ms))
}

fn resume(caption: &Caption) -> String {
    match &caption.resume {
        Some(command) => format!("; to resume it: {command}"),
        None => "; it ends with this process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    #[test]
    fn every_event_is_one_line() {
        let lines: Vec<String> =
            sample::events().iter().map(|it| line(it, &sample::caption())).collect();
        assert!(lines.iter().all(|it| !it.contains('\n')));
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// The limit may be on time, tokens or cost.
    #[test]
    fn an_aborted_task_names_the_limit() {
        let mut stamped = sample::events().remove(0);
        let step = crate::id::Step(1);
        let node = NodeName::parse("sse").unwrap();
        let task = crate::id::TaskId { step, index: 0 };
        let usage = crate::event::Usage::default();
        stamped.event = Event::TaskAborted { task, node, attempt: 1, ms: 2_000, usage };
        let line = line(&stamped, &sample::caption());
        assert!(
            line.ends_with("sse was aborted after 2.0 s: a limit of the run is reached"),
            "{line}"
        );
    }
}
