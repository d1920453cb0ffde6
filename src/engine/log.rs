//! The events of a run: numbered as they happen, told in that order, saved with what they are about.

use super::{Clock, superstep::Heard};
use crate::{
    checkpoint::{CheckpointError, Message, Outcome, TaskRecord},
    event::{EVENT_VERSION, Event, EventSink, Stamped},
    fault::{self, Point},
    id::RunId,
};

/// Numbers the events of a run, and keeps those that are not saved yet.
#[derive(Debug)]
pub(super) struct Log {
    run: RunId,
    seq: u64,
    unsaved: Vec<Stamped>,
    /// How many of the unsaved ones, from the first, are told already.
    told: usize,
    sink: EventSink,
    clock: Clock,
}

/// A run that goes on, as watchers see it: who they are, the number of its last event, and what has
/// changed in its workflow.
pub(super) struct Watched {
    pub(super) events: EventSink,
    pub(super) last_seq: u64,
    pub(super) changes: Vec<String>,
}

impl Log {
    pub(super) fn new(run: RunId, (sink, last_seq): (EventSink, u64), clock: Clock) -> Self {
        Self { run, seq: last_seq, unsaved: Vec::new(), told: 0, sink, clock }
    }

    /// Adds an event that becomes true when it is saved.
    pub(super) fn add(&mut self, event: Event) {
        self.seq += 1;
        let ts = self.clock.now().to_string();
        let (v, seq, run) = (EVENT_VERSION, self.seq, self.run.clone());
        self.unsaved.push(Stamped { v, seq, ts, run, event });
    }

    /// Tells what need not be durable first: that something began or was said. It waits only for
    /// those before it that do.
    pub(super) async fn tell(&mut self, event: Event) {
        self.add(event);
        if self.told + 1 == self.unsaved.len() {
            self.sink.send(&self.unsaved[self.told]).await;
            self.told += 1;
        }
    }

    /// The events to be saved next.
    pub(super) fn unsaved(&self) -> Vec<Stamped> {
        self.unsaved.clone()
    }

    /// Forgets what was not told yet: what it is about was not saved, and has not happened.
    pub(super) fn forget_untold(&mut self) {
        let forgotten = self.unsaved.len() - self.told;
        self.seq -= forgotten as u64;
        self.unsaved.truncate(self.told);
    }

    /// Tells the events that are saved now, less those that were told before.
    pub(super) async fn publish(&mut self) -> Result<(), CheckpointError> {
        for stamped in &self.unsaved[self.told..] {
            fault::hit(Point::EventPublish).map_err(CheckpointError::injected)?;
            self.sink.send(stamped).await;
        }
        self.unsaved.clear();
        self.told = 0;
        Ok(())
    }
}

/// What a message says to watchers.
pub(super) fn event_of_heard(heard: &Heard) -> Event {
    let Message { channel, by, .. } = &heard.message;
    Event::Said { to: channel.to_string(), by: by.clone(), problem: heard.problem.clone() }
}

/// What a record says to watchers.
pub(super) fn event_of(record: &TaskRecord) -> Event {
    let TaskRecord { task, node, attempt, ms, spent, outcome } = record;
    let (task, node, attempt, ms, spent) = (*task, node.clone(), *attempt, *ms, *spent);
    let to = |hops: &[crate::graph::Hop]| hops.iter().map(|it| it.target().to_string()).collect();
    match outcome {
        Outcome::Finished { update, hops } => {
            let wrote = update.writes.iter().map(|(name, _)| name.to_string()).collect();
            Event::TaskFinished { task, node, attempt, ms, wrote, to: to(hops), spent }
        }
        Outcome::Skipped { condition, hops } => {
            Event::TaskSkipped { task, node, condition: condition.clone(), to: to(hops) }
        }
        Outcome::Caught { failure, hops } => {
            let (kind, error) = (failure.kind.to_string(), failure.message.clone());
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: to(hops), spent }
        }
        Outcome::Failed { failure } => {
            let (kind, error) = (failure.kind.to_string(), failure.message.clone());
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: Vec::new(), spent }
        }
        Outcome::Retrying { failure, wait_ms, .. } => {
            let (error, wait_ms) = (failure.message.clone(), *wait_ms);
            Event::TaskRetrying { task, node, attempt, error, wait_ms }
        }
        Outcome::Noted { name, .. } => Event::TaskNoted { task, node, name: name.clone() },
        Outcome::CutOff => Event::TaskCutOff { task, node, attempt, ms, spent },
        Outcome::Asked { question } => {
            let (key, prompt) = (question.key.clone(), question.prompt.clone());
            Event::QuestionAsked { task, node, key, prompt, schema: question.schema.clone() }
        }
        Outcome::Answered { key, by, .. } => {
            Event::QuestionAnswered { task, node, key: key.clone(), by: by.clone() }
        }
    }
}
