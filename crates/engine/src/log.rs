//! The events of a run: numbered in order, published in that order, saved with the entry they belong to.

use std::sync::Arc;

use jiff::Timestamp;

use graphrun_core::{
    event::{EVENT_VERSION, Event, RunEvent},
    fault::{self, Point},
    graph::DeltaReader,
    id::{NodeName, RunId, TaskId},
};

use super::{
    Clock,
    machine::ProcessedMessage,
    stream::{DeltaPublisher, Sinks, StreamSender},
};
use crate::checkpoint::{CheckpointError, Message, Outcome, RunInfo, TaskRecord};

/// Numbers the events of a run and keeps those that are not saved yet.
#[derive(Debug)]
pub(super) struct Log {
    run: RunId,
    seq: u64,
    unsaved: Vec<RunEvent>,
    /// How many of the unsaved events, from the first, are already published.
    published: usize,
    sinks: Sinks,
    clock: Clock,
    /// Whether the events are saved. Without that and without readers, none is made.
    is_saved: bool,
}

impl Log {
    /// Begins the events of a new run.
    pub(super) fn begin(info: &RunInfo, sinks: Sinks, clock: Clock) -> Self {
        let mut log = Self::after(0, info.id.clone(), sinks, clock);
        let name = info.name.clone();
        let workflow = info.workflow.clone();
        log.add(Event::RunStarted { name, workflow });
        log
    }

    /// Returns the stream of the run, if it has one.
    pub(super) fn stream(&self) -> Option<&StreamSender> {
        self.sinks.stream.as_ref()
    }

    /// Returns the reader of the pieces of models' answers, if the run has readers of them.
    pub(super) fn delta_reader(&self) -> Option<Arc<dyn DeltaReader>> {
        DeltaPublisher::of(&self.run, &self.sinks, &self.clock)
    }

    /// Continues the events of a run after the event with this number.
    pub(super) fn after(last_seq: u64, run: RunId, sinks: Sinks, clock: Clock) -> Self {
        let unsaved = Vec::new();
        let published = 0;
        let is_saved = true;
        Self { run, seq: last_seq, unsaved, published, sinks, clock, is_saved }
    }

    /// Makes events for the readers only: the run exists in this process only, and no event is saved.
    #[must_use]
    pub(super) fn in_process(self) -> Self {
        Self { is_saved: false, ..self }
    }

    /// Returns whether an event would be saved or read.
    fn is_wanted(&self) -> bool {
        self.is_saved || !self.sinks.is_empty()
    }

    /// Returns the time of an event that happens now.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the number of the last event.
    pub(super) fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Adds an event as [`Log::add`], but makes it only if it would be saved or read.
    pub(super) fn add_with(&mut self, event: impl FnOnce() -> Event) {
        if self.is_wanted() {
            self.add(event());
        }
    }

    /// Adds an event that is published once it is saved.
    pub(super) fn add(&mut self, event: Event) {
        if !self.is_wanted() {
            return;
        }
        self.seq += 1;
        let ts = self.clock.now().to_string();
        let v = EVENT_VERSION;
        let seq = self.seq;
        let run = self.run.clone();
        self.unsaved.push(RunEvent { v, seq, ts, run, event });
    }

    /// Publishes an event that need not be durable first, such as the start of a task or a report. It waits
    /// only for earlier events that must be durable.
    pub(super) async fn publish_early(&mut self, event: impl FnOnce() -> Event) {
        if !self.is_wanted() {
            return;
        }
        self.add(event());
        if self.published + 1 == self.unsaved.len() {
            self.sinks.send(&self.unsaved[self.published]).await;
            self.published += 1;
        }
    }

    /// Returns the events to save next.
    pub(super) fn unsaved(&self) -> Vec<RunEvent> {
        self.unsaved.clone()
    }

    /// Takes the events to save next, until they are [given back](Self::give_back): a copy would cost as much as
    /// encoding them.
    pub(super) fn take_unsaved(&mut self) -> Vec<RunEvent> {
        std::mem::take(&mut self.unsaved)
    }

    /// Takes back the events that were saved, or could not be.
    pub(super) fn give_back(&mut self, events: Vec<RunEvent>) {
        self.unsaved = events;
    }

    /// Discards the unpublished events: their entry was not saved, so they did not happen.
    pub(super) fn discard_unpublished(&mut self) {
        let discarded = self.unsaved.len() - self.published;
        self.seq -= discarded as u64;
        self.unsaved.truncate(self.published);
    }

    /// Publishes the events that are saved now, except those already published.
    pub(super) async fn publish(&mut self) -> Result<(), CheckpointError> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        for stamped in &self.unsaved[self.published..] {
            fault::hit(Point::EventPublish).map_err(CheckpointError::injected)?;
            self.sinks.send(stamped).await;
        }
        self.unsaved.clear();
        self.published = 0;
        Ok(())
    }
}

/// Returns the event for a message from the inbox.
pub(super) fn event_of_message(processed: &ProcessedMessage) -> Event {
    let Message { channel, by, .. } = &processed.message;
    Event::MessageReceived {
        to: channel.to_string(),
        by: by.clone(),
        problem: processed.problem.clone(),
    }
}

/// Returns the event for a node that the run has reached, under the name that its author gave this.
pub(super) fn event_of_emission(
    task: TaskId,
    node: NodeName,
    from: Option<NodeName>,
    name: String,
) -> Event {
    let message = match from {
        Some(from) => format!("{from} {name} to {node}"),
        None => format!("{node} {name}"),
    };
    Event::TaskEmitted { task, node, name, message }
}

/// Returns the event for a task record.
pub(super) fn event_of_record(record: &TaskRecord) -> Event {
    let TaskRecord { task, node, attempt, ms, usage, outcome } = record;
    let task = *task;
    let node = node.clone();
    let attempt = *attempt;
    let ms = *ms;
    let usage = *usage;
    let to = |transitions: &[graphrun_core::graph::Transition]| {
        transitions.iter().map(|it| it.target().to_string()).collect()
    };
    match outcome {
        Outcome::Finished { update, transitions } => {
            let writes = update.writes.iter().map(|(name, _)| name.to_string()).collect();
            Event::TaskFinished { task, node, attempt, ms, writes, to: to(transitions), usage }
        }
        Outcome::Undecided { update, failure, .. } => {
            let writes = update.writes.iter().map(|(name, _)| name.to_string()).collect();
            let kind = failure.kind.to_string();
            let error = failure.message.clone();
            Event::TaskUndecided { task, node, attempt, ms, writes, kind, error, usage }
        }
        Outcome::Skipped { condition, transitions } => {
            Event::TaskSkipped { task, node, condition: condition.clone(), to: to(transitions) }
        }
        Outcome::Caught { failure, transitions, .. } => {
            let kind = failure.kind.to_string();
            let error = failure.message.clone();
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: to(transitions), usage }
        }
        Outcome::Failed { failure } => {
            let kind = failure.kind.to_string();
            let error = failure.message.clone();
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: Vec::new(), usage }
        }
        Outcome::Retrying { failure, wait_ms, .. } => {
            let error = failure.message.clone();
            let wait_ms = *wait_ms;
            Event::TaskRetrying { task, node, attempt, error, wait_ms }
        }
        Outcome::TimerSet { key, wake, reason, .. } => {
            let key = key.clone();
            let wake = *wake;
            let reason = reason.clone();
            Event::TimerSet { task, node, key, wake, reason }
        }
        Outcome::MemoSaved { name, .. } => Event::MemoSaved { task, node, name: name.clone() },
        Outcome::Aborted => Event::TaskAborted { task, node, attempt, ms, usage },
        Outcome::Asked { question } => {
            let key = question.key.clone();
            let prompt = question.prompt.clone();
            Event::QuestionAsked { task, node, key, prompt, schema: question.schema.clone() }
        }
        Outcome::Answered { key, by, .. } => {
            Event::QuestionAnswered { task, node, key: key.clone(), by: by.clone() }
        }
    }
}
