//! The views of a run. All of them only read its events.

mod lines;
mod plain;
mod tree;
mod tty;

use std::{fmt, io};

pub(crate) use self::plain::line;
use self::{lines::Lines, plain::Plain, tty::Tty};
use crate::{
    cli::arguments::globals::{Globals, Output, Progress},
    event::{MessageDelta, RunEvent},
};

/// The parts of the first line that no event contains.
#[derive(Clone, Debug)]
pub(crate) struct Caption {
    /// The name of the run.
    pub(crate) name: String,
    /// The command that resumes it, if there is one.
    pub(crate) resume: Option<String>,
}

/// A view of a run.
trait ProgressView: fmt::Debug {
    /// Shows an event.
    fn show(&mut self, stamped: &RunEvent) -> io::Result<()>;

    /// Shows a piece of a model's answer.
    fn show_delta(&mut self, _: &MessageDelta) -> io::Result<()> {
        Ok(())
    }

    /// Shows a message of the program.
    fn note(&mut self, text: &str);

    /// Updates the elapsed time.
    fn tick(&mut self) {}

    /// Restores the terminal.
    fn close(&mut self) {}
}

/// The views of one run.
#[derive(Debug)]
pub(crate) struct Views {
    views: Vec<Box<dyn ProgressView>>,
    failure: Option<io::Error>,
}

impl Views {
    /// Returns whether a view shows the pieces of models' answers.
    pub(crate) fn want_deltas(globals: &Globals) -> bool {
        globals.output == Output::Jsonl || globals.progress == Progress::Tree
    }

    /// Creates the requested views.
    pub(crate) fn new(globals: &Globals, caption: &Caption) -> Self {
        let mut views: Vec<Box<dyn ProgressView>> = Vec::new();
        match globals.progress {
            Progress::Tree => views.push(Box::new(Tty::new(caption.clone(), globals.stderr))),
            Progress::Plain => views.push(Box::new(Plain::new(caption.clone()))),
            Progress::Silent => (),
        }
        if globals.output == Output::Jsonl {
            views.push(Box::new(Lines));
        }
        Self { views, failure: None }
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, stamped: &RunEvent) {
        for view in &mut self.views {
            if let Err(error) = view.show(stamped) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Shows a piece of a model's answer.
    pub(crate) fn show_delta(&mut self, delta: &MessageDelta) {
        for view in &mut self.views {
            if let Err(error) = view.show_delta(delta) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Shows a message of the program.
    pub(crate) fn note(&mut self, text: &str) {
        for view in &mut self.views {
            view.note(text);
        }
    }

    /// Updates the elapsed time.
    pub(crate) fn tick(&mut self) {
        for view in &mut self.views {
            view.tick();
        }
    }

    /// Restores the terminal.
    ///
    /// # Errors
    ///
    /// Fails if an event could not be written.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        for view in &mut self.views {
            view.close();
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// The events of a run, for the tests of the views.
#[cfg(test)]
mod sample {
    use serde_json::{Value, json};

    use super::{Caption, RunEvent};

    pub(super) fn caption() -> Caption {
        Caption { name: "calm-otter".into(), resume: Some("graphrun resume calm-otter".into()) }
    }

    /// Returns a small team: a fan-out, a retry, a loop with a bound, an escalation, a question, a failure.
    pub(super) fn events() -> Vec<RunEvent> {
        let usage = |tokens: u64| json!({"input_tokens": tokens, "output_tokens": 0, "calls": u64::from(tokens > 0), "cost_usd": null});
        let started = |step: u64, index: u64, node: &str, visit: u64, max: Value| {
            json!({"type": "task.started", "task": {"step": step, "index": index}, "node": node,
                   "attempt": 1, "visit": visit, "max_visits": max})
        };
        let finished = |step: u64, index: u64, node: &str, ms: u64, to: Value, tokens: u64| {
            json!({"type": "task.finished", "task": {"step": step, "index": index}, "node": node,
                   "attempt": 1, "ms": ms, "writes": [], "to": to, "usage": usage(tokens)})
        };
        let reported = |step: u64, node: &str, report: Value| json!({"type": "task.reported", "task": {"step": step, "index": 0}, "node": node, "report": report});
        let committed =
            |step: u64, next: Value| json!({"type": "step.committed", "step": step, "next": next});
        let events = [
            json!({"type": "run.started", "name": "calm-otter", "workflow": "dev_team"}),
            started(1, 0, "qc", 1, json!(null)),
            started(1, 1, "ta", 1, json!(null)),
            reported(
                1,
                "qc",
                json!({"kind": "model_call", "model": "lab/small",
                     "usage": usage(1500), "ms": 2100}),
            ),
            json!({"type": "task.retrying", "task": {"step": 1, "index": 1}, "node": "ta",
                   "attempt": 1, "error": "the provider is overloaded:\n\u{1b}[31mbusy", "wait_ms": 2000}),
            finished(1, 0, "qc", 2300, json!(["sse"]), 1500),
            json!({"type": "task.started", "task": {"step": 1, "index": 1}, "node": "ta",
                   "attempt": 2, "visit": 1, "max_visits": null}),
            finished(1, 1, "ta", 9100, json!(["sse"]), 0),
            committed(1, json!(["sse"])),
            started(2, 0, "sse", 2, json!(3)),
            reported(
                2,
                "sse",
                json!({"kind": "warning", "message": "`prioirity` was read as `priority`"}),
            ),
            reported(2, "sse", json!({"kind": "artifact", "path": "out/calm-otter/app.py"})),
            finished(2, 0, "sse", 64_000, json!(["architect"]), 12_000),
            json!({"type": "task.emitted", "task": {"step": 2, "index": 0}, "node": "architect",
                   "name": "escalated", "message": "QA escalated to Architect"}),
            committed(2, json!(["help", "qa"])),
            started(3, 0, "help", 1, json!(1)),
            started(3, 1, "qa", 1, json!(null)),
            json!({"type": "question.asked", "task": {"step": 3, "index": 0}, "node": "help",
                   "key": "help", "prompt": "Go on?", "schema": {"enum": ["go_on", "stop"]}}),
            json!({"type": "task.failed", "task": {"step": 3, "index": 1}, "node": "qa", "attempt": 3,
                   "ms": 700, "kind": "timeout", "error": "no answer within 10 s", "to": [],
                   "usage": usage(0)}),
            json!({"type": "run.finished", "status": "paused", "reason": "waits for an answer to `help`",
                   "steps": 2, "usage": usage(13_500)}),
        ];
        events.into_iter().zip(1u64..).map(|(event, seq)| stamped(event, seq)).collect()
    }

    fn stamped(mut event: Value, seq: u64) -> RunEvent {
        event["v"] = json!(1);
        event["seq"] = json!(seq);
        event["ts"] = json!(format!("2026-01-01T12:00:{seq:02}.5Z"));
        event["run"] = json!("01JABC");
        serde_json::from_value(event).unwrap()
    }
}
