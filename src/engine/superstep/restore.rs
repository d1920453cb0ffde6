//! Taking a run up again: what its records say is put back in its place.

use super::{Action, Machine, Phase, RestoreError, TaskState, Terms, Took, fit, settle::failed};
use crate::{
    checkpoint::{Checkpoint, Outcome, TaskRecord},
    compile::CompiledGraph,
    id::{NodeName, RunId},
};

impl Machine {
    /// Takes a run up again where it was saved: gives what is still to be done. What it stands
    /// before is started, also where a breakpoint is: the run has rested there, or was to go on.
    ///
    /// # Errors
    ///
    /// Fails when what was saved does not fit the graph.
    pub fn restore(
        graph: CompiledGraph,
        terms: impl Into<Terms>,
        run: RunId,
        checkpoint: Checkpoint,
        records: Vec<TaskRecord>,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        Self::restore_only(graph, terms, run, (checkpoint, records), None)
    }

    /// As [`Machine::restore`], but of the tasks that failed for good only those of one node, if
    /// one is named, run again.
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
            machine.go_on()
        } else {
            // The step cannot end before the last of these has begun.
            let mut busy = (0..machine.tasks.len()).collect::<Vec<usize>>();
            busy.retain(|&it| machine.tasks[it].phase.is_busy());
            busy.into_iter().flat_map(|it| machine.take_up(it)).collect()
        };
        Ok((machine, actions))
    }

    /// The run as it was saved, before anything goes on.
    pub(super) fn recalled(
        graph: CompiledGraph,
        mut terms: Terms,
        run: RunId,
        (checkpoint, records): (Checkpoint, Vec<TaskRecord>),
        only: Option<&NodeName>,
    ) -> Result<Self, RestoreError> {
        fit::check(&graph, &checkpoint.position, &records)?;
        // What was said before the run was carried over to this graph comes first.
        terms.said.splice(0..0, checkpoint.position.said.iter().cloned());
        let mut machine = Self::at(graph, terms, run, checkpoint);
        for record in records {
            let index = machine.index(record.task).ok_or(RestoreError::Record(record.task))?;
            machine.recall(index, record, only);
        }
        Ok(machine)
    }

    /// Goes on with a task where it stood.
    fn take_up(&mut self, index: usize) -> Vec<Action> {
        match self.tasks[index].phase {
            Phase::Running => self.begin(index),
            Phase::Sleeping { wake, wait_ms } => {
                vec![Action::Sleep { task: self.id(index), wake, wait_ms }]
            }
            Phase::CutOff | Phase::Waiting(_) | Phase::Failed(_) | Phase::Settled => Vec::new(),
        }
    }

    /// Puts a saved record back in its place.
    fn recall(&mut self, index: usize, record: TaskRecord, only: Option<&NodeName>) {
        let Took { ms, spent } = self.tasks[index].took;
        let took = match &record.outcome {
            Outcome::Answered { .. } => Took { ms, spent },
            _ => Took { ms: record.ms, spent: record.spent },
        };
        self.tasks[index].took = took;
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
                // Whoever goes on with a failed run means to try as often as at first, and all of it:
                // what was noted down may be why it failed.
                self.tasks[index].attempt = 1;
                self.tasks[index].memos.clear();
                self.set_phase(index, Phase::Running);
            }
            Outcome::Retrying { wait_ms, wake, .. } => {
                self.tasks[index].attempt = record.attempt.saturating_add(1);
                self.set_phase(index, Phase::Sleeping { wake: *wake, wait_ms: *wait_ms });
            }
            Outcome::CutOff => self.set_phase(index, Phase::Running),
            Outcome::Noted { name, value } => {
                self.tasks[index].memos.insert(name.clone(), value.clone());
                self.set_phase(index, Phase::Running);
            }
            Outcome::Asked { question } => {
                self.tasks[index].asked.push(question.key.clone());
                self.set_phase(index, Phase::Waiting(Box::new(question.clone())));
            }
            Outcome::Answered { key, answer, .. } => {
                self.tasks[index].answers.insert(key.clone(), answer.clone());
                self.set_phase(index, Phase::Running);
            }
        }
    }
}
