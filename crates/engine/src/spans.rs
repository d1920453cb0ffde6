//! The `tracing` spans and events of a run: run → step → task, one for each attempt at a task. The spans of model calls,
//! tools and sandboxes are within that of their attempt.
//!
//! The values of the state, prompts and answers are in no span and no event. Texts of errors may quote them, so they
//! are fields of events at the level `debug` only. Without a subscriber a span costs a comparison.

use std::collections::BTreeMap;

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    graph::Failure,
    id::{Step, TaskId},
};
use tracing::{Span, debug, field, info, info_span, warn};

use crate::{
    checkpoint::{Outcome, RunStatus, TaskRecord},
    machine::{Machine, Task},
};

/// Where the span of a run belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SpanPlacement {
    /// Below the current span.
    #[default]
    Current,
    /// Below no span of this process: the run may outlive the current one.
    Detached,
}

/// Returns the span of a run that this process drives, with the trace of its first process if that was another one.
pub(super) fn run(machine: &Machine, placement: SpanPlacement, first_trace: Option<&str>) -> Span {
    let run = machine.run();
    let workflow = &machine.graph().definition().name;
    macro_rules! span {
        ($($parent:tt)*) => {
            info_span!(
                $($parent)*
                "run",
                %run,
                %workflow,
                status = field::Empty,
                steps = field::Empty,
                first_trace
            )
        };
    }
    // Without a current span, a subscriber may put it below a caller of the process.
    match placement {
        SpanPlacement::Detached if Span::current().id().is_some() => span!(parent: None,),
        SpanPlacement::Detached | SpanPlacement::Current => span!(),
    }
}

/// Notes in the current span, that of the run, that it stopped.
pub(super) fn note_stop(machine: &Machine, run_status: &RunStatus) {
    let status = run_status.status.as_str();
    let steps = machine.committed_step().0;
    let span = Span::current();
    span.record("status", status).record("steps", steps);
    info!(status, steps, "the run stopped");
    if let Some(reason) = &run_status.reason {
        debug!(reason, "the reason");
    }
}

/// The spans of the current step and of its attempts.
#[derive(Debug, Default)]
pub(super) struct StepSpans {
    step: Option<(Step, Span)>,
    /// The attempts that have no outcome yet. A span ends when the last of its handles is dropped.
    attempts: BTreeMap<TaskId, Span>,
    /// The kinds of nodes; a description is too large to be made for each attempt.
    kinds: BTreeMap<NodeIndex, &'static str>,
}

impl StepSpans {
    /// Returns the span of an attempt that starts.
    pub(super) fn attempt(&mut self, graph: &CompiledGraph, task: &Task) -> Span {
        if !tracing::enabled!(tracing::Level::INFO) {
            return Span::none();
        }
        let number = task.id.step;
        if self.step.as_ref().is_none_or(|(step, _)| *step != number) {
            self.attempts.clear();
            self.step = Some((number, info_span!("step", step = number.0)));
        }
        let step = self.step.as_ref().and_then(|(_, span)| span.id());
        let parent = step.or_else(|| Span::current().id());
        let describe = || graph.spec_at(task.node_index).describe().kind;
        let kind = *self.kinds.entry(task.node_index).or_insert_with(describe);
        let node = &task.node;
        let id = task.id;
        let attempt = task.attempt;
        let visit = task.visit();
        let span = info_span!(
            parent: parent,
            "task",
            %node,
            kind,
            agent = field::Empty,
            task = %id,
            visit,
            attempt,
            outcome = field::Empty,
            error = field::Empty
        );
        self.attempts.insert(id, span.clone());
        span
    }

    /// Notes the outcome of an attempt in its span, which then ends.
    pub(super) fn note(&mut self, record: &TaskRecord) {
        let continues = matches!(
            record.outcome,
            Outcome::MemoSaved { .. } | Outcome::Answered { .. } | Outcome::Skipped { .. }
        );
        let span = if continues {
            self.attempts.get(&record.task).cloned()
        } else {
            self.attempts.remove(&record.task)
        };
        let Some(span) = span else { return };
        let _entered = span.enter();
        let attempt = record.attempt;
        let ms = record.ms;
        let note_failure = |what: &str, failure: &Failure| {
            span.record("error", field::display(failure.kind));
            warn!(kind = %failure.kind, "{what}");
            debug!(error = failure.message, "the failure");
        };
        match &record.outcome {
            Outcome::Finished { .. } => {
                span.record("outcome", "finished");
                debug!(ms, "finished");
            }
            Outcome::Undecided { failure, .. } => {
                span.record("outcome", "undecided");
                note_failure("finished, and its route failed", failure);
            }
            Outcome::Caught { failure, .. } => {
                span.record("outcome", "caught");
                note_failure("failed; the failure is caught", failure);
            }
            Outcome::Failed { failure } => {
                span.record("outcome", "failed");
                note_failure("failed", failure);
            }
            Outcome::Retrying { failure, wait_ms, .. } => {
                span.record("outcome", "retrying").record("error", field::display(failure.kind));
                warn!(attempt, wait_ms, kind = %failure.kind, "the attempt failed and is retried");
                debug!(error = failure.message, "the failure");
            }
            Outcome::TimerSet { key, wait_ms, reason, .. } => {
                span.record("outcome", "waiting");
                info!(key, wait_ms, "waits for a time");
                if let Some(reason) = reason {
                    debug!(reason, "the reason");
                }
            }
            Outcome::Aborted => {
                span.record("outcome", "aborted");
                warn!(ms, "aborted: a limit of the run is reached");
            }
            Outcome::Asked { question } => {
                span.record("outcome", "asked");
                info!(key = question.key, "waits for an answer");
            }
            Outcome::Answered { key, .. } => info!(key, "answered"),
            Outcome::MemoSaved { .. } | Outcome::Skipped { .. } => (),
        }
    }
}
