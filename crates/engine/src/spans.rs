//! The `tracing` spans and events of a run: run → step → task → attempt. The spans of model calls, tools and sandboxes are
//! within that of their attempt.
//!
//! The values of the state, prompts and answers are in no span and no event. Texts of errors may quote them, so they
//! are fields of events at the level `debug` only. Without a subscriber a span costs a comparison.

use std::collections::BTreeMap;

use graphrun_core::{
    graph::Failure,
    id::{Step, TaskId},
};
use tracing::{Span, debug, debug_span, field, info, info_span, warn};

use crate::{
    checkpoint::{Outcome, RunStatus, TaskRecord},
    superstep::{Machine, Task},
};

/// Returns the span of a run that this process drives.
pub(super) fn run(machine: &Machine) -> Span {
    let (run, workflow) = (machine.run(), &machine.graph().graph().name);
    info_span!("run", %run, %workflow, status = field::Empty, steps = field::Empty)
}

/// Notes in the current span, that of the run, that it stopped.
pub(super) fn note_stop(machine: &Machine, run_status: &RunStatus) {
    let (status, steps) = (run_status.status.as_str(), machine.committed_step().0);
    let span = Span::current();
    span.record("status", status).record("steps", steps);
    info!(status, steps, "the run stopped");
    if let Some(reason) = &run_status.reason {
        debug!(reason, "the reason");
    }
}

/// The spans of the current step and of its tasks.
#[derive(Debug, Default)]
pub(super) struct StepSpans {
    step: Option<(Step, Span)>,
    tasks: BTreeMap<TaskId, Span>,
}

impl StepSpans {
    /// Returns the span of an attempt that starts.
    pub(super) fn attempt(&mut self, task: &Task) -> Span {
        // The span of a task has the lowest level that has attempts within it.
        if !tracing::enabled!(tracing::Level::INFO) {
            return Span::none();
        }
        let number = task.id.step;
        if self.step.as_ref().is_none_or(|(step, _)| *step != number) {
            self.tasks.clear();
            self.step = Some((number, debug_span!("step", step = number.0)));
        }
        let step = self.step.as_ref().and_then(|(_, span)| span.id());
        let span = self.tasks.entry(task.id).or_insert_with(|| {
            let visit = task.visits.at(task.node_index.index()).unwrap_or(1);
            let (node, id) = (&task.node, task.id);
            let parent = step.or_else(|| Span::current().id());
            info_span!(parent: parent, "task", %node, task = %id, visit, outcome = field::Empty)
        });
        let attempt = debug_span!(parent: &*span, "attempt", attempt = task.attempt);
        if attempt.is_disabled() { span.clone() } else { attempt }
    }

    /// Notes the outcome of an attempt, in the span of its task.
    pub(super) fn note(&self, record: &TaskRecord) {
        let Some(span) = self.tasks.get(&record.task) else { return };
        let _entered = span.enter();
        let (attempt, ms) = (record.attempt, record.ms);
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
                warn!(attempt, wait_ms, kind = %failure.kind, "the attempt failed and is retried");
                debug!(error = failure.message, "the failure");
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

fn note_failure(what: &str, failure: &Failure) {
    warn!(kind = %failure.kind, "{what}");
    debug!(error = failure.message, "the failure");
}
