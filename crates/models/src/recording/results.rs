//! The results of the calls that models have made, as a recording has them.
//!
//! A result stands in the next request of its conversation, and in all later ones. It is filed under its node, its call and the
//! [place](CallPlace) of the call: an equal call in another conversation may have another result.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::entry::{Entry, add_message};
use crate::Message;

/// The parts of a result around the arguments that a person has put in place of those of the model.
const CHANGED_START: &str = "(a person changed the arguments of this call to ";
const CHANGED_END: &str = ")\n";

/// Returns the result of a call with the arguments of a person, as the model sees it.
pub fn result_of_changed_call(arguments: &str, result: &str) -> String {
    format!("{CHANGED_START}{arguments}{CHANGED_END}{result}")
}

/// Returns the arguments of a person, and the result of the call with them.
fn changed_call(text: &str) -> Option<(Value, &str)> {
    let rest = text.strip_prefix(CHANGED_START)?;
    let mut values = serde_json::Deserializer::from_str(rest).into_iter();
    let arguments = values.next()?.ok()?;
    Some((arguments, rest[values.byte_offset()..].strip_prefix(CHANGED_END)?))
}

/// The place of a call of a model: the conversation with the call, and the number of the call in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPlace {
    conversation: blake3::Hash,
    number: usize,
}

impl CallPlace {
    /// Returns the places of the calls of the last message of a conversation.
    pub fn of_last_message(messages: &[Message]) -> Vec<Self> {
        let mut hash = blake3::Hasher::new();
        for message in messages {
            add_message(&mut hash, message);
        }
        let conversation = hash.finalize();
        let calls = messages.last().map_or(0, |it| it.tool_calls.len());
        (0..calls).map(|number| Self { conversation, number }).collect()
    }
}

/// The result of a call, as the model saw it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolResult {
    place: CallPlace,
    tool: String,
    arguments: Value,
    text: String,
    /// Whether later calls of the same request have results, too.
    is_earlier: bool,
    /// The number of messages of the request after the results of its last calls. More of them belong to an answer under repair.
    messages_after: usize,
}

impl ToolResult {
    /// Returns the results in the messages of a request.
    pub(super) fn all_in(messages: &[Message]) -> Vec<Self> {
        let Some(last) = messages.iter().rposition(|it| !it.tool_calls.is_empty()) else {
            return Vec::new();
        };
        let after = &messages[last + 1..];
        let messages_after = after.iter().skip_while(|it| it.tool_call_id.is_some()).count();
        let mut results = Vec::new();
        let mut hash = blake3::Hasher::new();
        for (at, message) in messages[..=last].iter().enumerate() {
            add_message(&mut hash, message);
            let conversation = hash.finalize();
            for (number, call) in message.tool_calls.iter().enumerate() {
                let is_result = |it: &&Message| it.tool_call_id.as_ref() == Some(&call.id);
                let Some(result) = messages[at + 1..].iter().find(is_result) else { continue };
                let Ok(input) = call.input() else { continue };
                let content = result.content.as_str();
                let (arguments, text) = changed_call(content).unwrap_or((input, content));
                results.push(Self {
                    place: CallPlace { conversation, number },
                    tool: call.name.clone(),
                    arguments,
                    text: text.to_owned(),
                    is_earlier: at < last,
                    messages_after,
                });
            }
        }
        results
    }
}

/// The results of a recording, each call once.
#[derive(Debug, Default)]
pub(super) struct RecordedResults {
    results: Vec<RecordedResult>,
    /// Parallel to `results`: whether each has taken the place of a call.
    used: Mutex<Vec<bool>>,
}

#[derive(Debug)]
struct RecordedResult {
    node: String,
    result: ToolResult,
    /// Whether the request with it failed. It was sent again with the same result.
    has_failed: bool,
}

impl RecordedResults {
    /// Collects the results of the entries of a recording.
    pub(super) fn of(entries: &mut [Entry]) -> Self {
        let mut collected = Self::default();
        for entry in entries {
            for result in std::mem::take(&mut entry.results) {
                collected.add(RecordedResult {
                    node: entry.node.clone(),
                    result,
                    has_failed: entry.is_failure(),
                });
            }
        }
        collected.used = Mutex::new(vec![false; collected.results.len()]);
        collected
    }

    /// Adds the result of a call, unless a request before has the same one.
    fn add(&mut self, new: RecordedResult) {
        let known: Vec<usize> = (0..self.results.len())
            .filter(|&at| {
                let RecordedResult { node, result, .. } = &self.results[at];
                *node == new.node && result.place == new.result.place
            })
            .collect();
        let is_repeated = known.first().is_some_and(|&first| {
            let first = &self.results[first].result;
            new.result.is_earlier || new.result.messages_after > first.messages_after
        });
        let failed = known.into_iter().find(|&at| {
            let RecordedResult { result, has_failed, .. } = &self.results[at];
            *has_failed && result.text == new.result.text
        });
        match failed {
            _ if is_repeated => {}
            Some(at) => self.results[at].has_failed = new.has_failed,
            None => self.results.push(new),
        }
    }

    /// Returns the result that takes the place of a call of a node with one of these names. Those of the same place come first; each is
    /// used once, in the order of the file, and the last one from then on.
    pub(super) fn take<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        tool: &str,
        arguments: &Value,
        place: Option<&CallPlace>,
    ) -> Option<&str> {
        names.into_iter().find_map(|node| {
            let is_call = |it: &RecordedResult| {
                it.node == node && it.result.tool == tool && it.result.arguments == *arguments
            };
            let here = |it: &RecordedResult| is_call(it) && place == Some(&it.result.place);
            self.take_one(&here).or_else(|| self.take_one(&is_call))
        })
    }

    fn take_one(&self, fits: &dyn Fn(&RecordedResult) -> bool) -> Option<&str> {
        let all = self.results.iter().enumerate();
        let fitting: Vec<usize> = all.filter(|it| fits(it.1)).map(|it| it.0).collect();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let at = fitting.iter().find(|&&at| !used[at]).or(fitting.last()).copied()?;
        used[at] = true;
        Some(&self.results[at].result.text)
    }
}
