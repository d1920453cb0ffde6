//! Messages from running nodes.

use graphrun_core::{
    event::{Event, Report},
    graph::{AttemptMessage, Memo, MessageContent},
    id::TaskId,
};

use super::Driver;
use crate::{
    RunError,
    entrance::{redact_event, redact_report},
    superstep::{Attempt, Event as MachineEvent},
};

impl Driver<'_> {
    /// Handles a message of a node: publishes a report, or adds a memo to the next entry.
    pub(super) async fn handle_message(&mut self, message: AttemptMessage) -> Result<(), RunError> {
        let AttemptMessage { task, attempt, content } = message;
        match content {
            MessageContent::Report(report) => {
                if let Report::ModelCall { usage, .. } = &report {
                    self.model_budget.spend(task, usage);
                }
                self.publish_report(task, report).await;
                Ok(())
            }
            MessageContent::Spending(may) => {
                self.may_spend(task, may);
                Ok(())
            }
            MessageContent::Memo(memo) => self.note_down(task, attempt, memo).await,
        }
    }

    async fn publish_report(&mut self, task: TaskId, mut report: Report) {
        redact_report(&mut report);
        // Code that a node has spawned may still send messages after the step has ended.
        if let Some(node) = self.machine.node_of(task).cloned() {
            self.log.publish_early(Event::TaskReported { task, node, report }).await;
        }
    }

    async fn note_down(&mut self, task: TaskId, number: u32, memo: Memo) -> Result<(), RunError> {
        let Memo { name, value, ms, usage, saved } = memo;
        let attempt = Attempt { number, ms, usage, ended: self.engine.clock.now() };
        let mut event = MachineEvent::MemoSaved { task, name, value, attempt };
        redact_event(&mut event);
        let actions = self.machine.apply(event);
        // A memo of an abandoned attempt is not kept, and its sender gets no confirmation.
        if !actions.is_empty() {
            self.note(actions).await?;
            self.noted.push(saved);
        }
        Ok(())
    }
}
