//! Removes API keys from everything that enters a run.
//!
//! Everything that a run saves, publishes and sends to models comes from its input, from the results and
//! reports of its nodes, and from people's messages. Keys are removed here, before the rules see a value. The
//! state in memory, the journal, the events and a resumed run then agree. A message to a run has no keys when it is made
//! (`Message::new`).

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    event::Report,
    graph::{Command, Failure, Goto, Question, Transition},
    id::ChannelName,
    state::Update,
};
use graphrun_guard::redact::{redact_text, redact_value};
use serde_json::Value;

use crate::checkpoint::Mapping;

use super::machine::TaskEvent;

/// Removes keys from an update.
pub(super) fn redact_update(update: &mut Update) {
    redacted_channels(update);
}

/// Removes keys from an update, and returns the names of the channels that had some.
fn redacted_channels(update: &mut Update) -> Vec<String> {
    let mut redacted = Vec::new();
    for (channel, value) in &mut update.writes {
        if redact_value(Arc::make_mut(value)) {
            redacted.push(channel.to_string());
        }
    }
    redacted
}

/// Removes keys from the field values of a migration.
pub(super) fn redact_mapping(mapping: &mut Mapping) {
    for value in mapping.set.values_mut() {
        redact_value(value);
    }
}

/// Removes keys from the values that a person gives to channels.
pub(super) fn redact_changes(changes: &mut BTreeMap<ChannelName, Option<Value>>) {
    for value in changes.values_mut().flatten() {
        redact_value(value);
    }
}

/// Removes keys from an event of a task. Returns the names of the channels that had some: their values are no longer what the
/// node wrote, and a file made of them would be damaged.
pub(super) fn redact_event(event: &mut TaskEvent) -> Vec<String> {
    match event {
        TaskEvent::Finished { command, .. } => return redact_command(command),
        TaskEvent::Failed { failure, .. } => redact_failure(failure),
        TaskEvent::MemoSaved { name, value, .. } => {
            redact_text(name);
            redact_value(value);
        }
        TaskEvent::Asked { question, .. } => redact_question(question),
        TaskEvent::TimerSet { timer, .. } => {
            redact_text(&mut timer.key);
            timer.reason.as_mut().map(redact_text);
        }
        TaskEvent::Answered { answer, by, .. } => {
            redact_value(answer);
            by.as_mut().map(redact_text);
        }
        TaskEvent::Aborted { .. } | TaskEvent::Expired { .. } | TaskEvent::Woke { .. } => (),
    }
    Vec::new()
}

/// Removes keys from a report of a node.
pub(super) fn redact_report(report: &mut Report) {
    match report {
        Report::ModelCall { model, .. } => redact_text(model),
        Report::ToolCall { tool, input, error, .. } => {
            error.as_mut().map(redact_text);
            redact_text(tool) | redact_text(input)
        }
        Report::Warning { message } | Report::Note { message } => redact_text(message),
        Report::Artifact { path } => redact_text(path),
        Report::Custom { value } => redact_value(value),
        // The nested run has redacted its events.
        Report::CacheHit { .. } | Report::Nested { .. } => false,
    };
}

fn redact_command(command: &mut Command) -> Vec<String> {
    let redacted = redacted_channels(&mut command.update);
    let (Goto::Also(transitions) | Goto::Instead(transitions)) = &mut command.goto else {
        return redacted;
    };
    for transition in transitions {
        if let Transition::Dispatch(dispatch) = transition {
            redact_value(Arc::make_mut(&mut dispatch.input));
        }
    }
    redacted
}

fn redact_failure(failure: &mut Failure) {
    redact_text(&mut failure.message);
    failure.raw.as_mut().map(redact_text);
}

fn redact_question(question: &mut Question) {
    redact_text(&mut question.prompt);
    redact_value(&mut question.schema);
    redact_value(&mut question.show);
}
