//! Restores a run from its saved position and records.

use graphrun_analysis::CompiledGraph;
use graphrun_core::id::{NodeName, RunId};

use super::{
    Action, Machine, Phase, RestoreError, TaskState, TaskUsage, Terms, fit, settle::failed,
};
use crate::checkpoint::{Checkpoint, Outcome, TaskRecord};

impl Machine {
    /// Restores a run from where it was saved, and returns the remaining actions. The next step starts even
    /// if it has a breakpoint: the run has already stopped there, or was resumed.
    ///
    /// # Errors
    ///
    /// Fails when the saved run does not fit the graph.
    pub fn restore(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        checkpoint: Checkpoint,
        records: Vec<TaskRecord>,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        Self::restore_only(graph, terms, run, (checkpoint, records), None)
    }

    /// Does the same as [`Machine::restore`], but if a node is named, only failed tasks of that node run
    /// again.
    ///
    /// # Errors
    ///
    /// As [`Machine::restore`].
    pub fn restore_only(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        (checkpoint, records): (Checkpoint, Vec<TaskRecord>),
        only: Option<&NodeName>,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        let is_new = records.is_empty();
        let mut machine = Self::recalled(graph, terms.into(), run, (checkpoint, records), only)?;
        if machine.tasks.iter().all(TaskState::is_untouched) {
            let mut actions = if is_new { machine.take_in() } else { Vec::new() };
            actions.extend(machine.begin_step());
            return Ok((machine, actions));
        }
        let actions = if machine.busy == 0 {
            machine.advance()
        } else {
            // Each task counts as busy until it has begun, so the step cannot end before the last of these
            // has begun.
            let mut busy = (0..machine.tasks.len()).collect::<Vec<usize>>();
            busy.retain(|&it| machine.tasks[it].phase.is_busy());
            busy.into_iter().flat_map(|it| machine.take_up(it)).collect()
        };
        Ok((machine, actions))
    }

    /// Returns the machine with the saved records, before any task starts.
    pub(super) fn recalled(
        graph: CompiledGraph,
        mut terms: Terms,
        run: RunId,
        (checkpoint, records): (Checkpoint, Vec<TaskRecord>),
        only: Option<&NodeName>,
    ) -> Result<Self, RestoreError> {
        fit::check(&graph, &checkpoint.position, &records)?;
        // Messages from before a migration to this graph come first.
        terms.messages.splice(0..0, checkpoint.position.pending_messages.iter().cloned());
        let mut machine = Self::at(graph, terms, run, checkpoint);
        for record in records {
            let index = machine.index(record.task).ok_or(RestoreError::Record(record.task))?;
            machine.recall(index, record, only);
        }
        Ok(machine)
    }

    /// Continues a task from its restored state.
    fn take_up(&mut self, index: usize) -> Vec<Action> {
        match self.tasks[index].phase {
            Phase::Running => self.begin(index),
            Phase::Sleeping { wake, wait_ms } => {
                vec![Action::Sleep { task: self.id(index), wake, wait_ms }]
            }
            Phase::Aborted | Phase::Waiting(_) | Phase::Failed(_) | Phase::Settled => Vec::new(),
        }
    }

    /// Restores the state of a task from its record.
    fn recall(&mut self, index: usize, record: TaskRecord, only: Option<&NodeName>) {
        let TaskUsage { ms, usage } = self.tasks[index].total;
        let total = match &record.outcome {
            Outcome::Answered { .. } => TaskUsage { ms, usage },
            _ => TaskUsage { ms: record.ms, usage: record.usage },
        };
        self.tasks[index].total = total;
        self.tasks[index].attempt = record.attempt;
        if let Outcome::Finished { update, .. } = &record.outcome {
            self.written = self.written.saturating_add(update.size());
        }
        match &record.outcome {
            Outcome::Finished { .. } | Outcome::Caught { .. } | Outcome::Skipped { .. } => {
                self.set_phase(index, Phase::Settled);
                self.tasks[index].record = Some(Box::new(record));
            }
            Outcome::Failed { failure } if only.is_some_and(|it| *it != record.node) => {
                self.set_phase(index, failed(&record.node, failure));
            }
            Outcome::Failed { .. } => {
                // Retrying a failed run restarts the number of attempts and drops the memos: a memo may have
                // caused the failure.
                self.tasks[index].attempt = 1;
                self.tasks[index].memos.clear();
                self.set_phase(index, Phase::Running);
            }
            Outcome::Retrying { wait_ms, wake, .. } => {
                self.tasks[index].attempt = record.attempt.saturating_add(1);
                self.set_phase(index, Phase::Sleeping { wake: *wake, wait_ms: *wait_ms });
            }
            Outcome::Aborted => self.set_phase(index, Phase::Running),
            Outcome::MemoSaved { name, value } => {
                self.tasks[index].memos.insert(name.clone(), value.clone());
                self.set_phase(index, Phase::Running);
            }
            Outcome::Asked { question } => {
                self.tasks[index].question_keys.push(question.key.clone());
                self.set_phase(index, Phase::Waiting(Box::new(question.clone())));
            }
            Outcome::Answered { key, answer, .. } => {
                self.tasks[index].answers.insert(key.clone(), answer.clone());
                self.set_phase(index, Phase::Running);
            }
        }
    }
}
