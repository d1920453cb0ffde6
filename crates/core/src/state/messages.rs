//! A list of messages: a write adds, replaces or removes messages by their ids.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Channel;
use crate::id::ChannelName;

/// The id with which a removal removes all messages before it.
const ALL_MESSAGES: &str = "__remove_all__";

/// The largest number in an id from which the ids of messages are counted, far more than a list has. Behind the largest `u64`
/// in an id of an author, there would be no other.
const MESSAGE_NUMBER_MAX: u64 = 1 << 53;

/// For each list of messages, the largest number in an id of a removed one. Later messages get higher numbers, so an id
/// that a program still holds never names another message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RemovedMessages(BTreeMap<ChannelName, u64>);

impl RemovedMessages {
    /// Returns whether no message with a number has been removed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that a channel loses this value. That of a channel without messages changes nothing.
    pub fn note(&mut self, channel: &Channel, value: &Value) {
        let messages = value.as_array().map_or(&[][..], Vec::as_slice);
        self.change(channel, |removed_max| {
            *removed_max = (*removed_max).max(largest_number(messages));
        });
    }

    /// Returns the same for channels with new names. Those without one are left out.
    #[must_use]
    pub fn renamed(&self, new_name: impl Fn(&ChannelName) -> Option<ChannelName>) -> Self {
        let renamed = self.0.iter().filter_map(|(name, number)| Some((new_name(name)?, *number)));
        Self(renamed.collect())
    }

    /// Lets a fold into a channel read and change its number.
    pub(super) fn change<T>(&mut self, channel: &Channel, fold: impl FnOnce(&mut u64) -> T) -> T {
        if !channel.reducer().is_messages() {
            return fold(&mut 0);
        }
        let before = self.0.get(channel.name()).copied().unwrap_or(0);
        let mut removed_max = before;
        let folded = fold(&mut removed_max);
        if removed_max > before {
            self.0.insert(channel.name().clone(), removed_max);
        }
        folded
    }
}

/// Adds, replaces and removes messages. `removed_max` is the largest number in an id of a message that the list had before.
pub(super) fn add_messages(list: &mut Vec<Value>, messages: &[Value], removed_max: &mut u64) {
    let mut last = largest_number(list).max(*removed_max);
    for message in messages {
        match place_of(message, list) {
            _ if removes_all(message) => {
                *removed_max = largest_number(list).max(*removed_max);
                list.clear();
            }
            Some(at) if is_removal(message) => {
                let removed = list.remove(at);
                *removed_max = number_of(&removed).unwrap_or(0).max(*removed_max);
            }
            Some(at) => list[at] = message.clone(),
            // The message was removed before.
            None if is_removal(message) => (),
            None => {
                let mut message = message.clone();
                if let Value::Object(fields) = &mut message
                    && fields.get("id").is_none_or(Value::is_null)
                {
                    fields.insert("id".to_owned(), next_id(last, list).into());
                }
                last = number_of(&message).unwrap_or(0).max(last);
                list.push(message);
            }
        }
    }
}

/// Returns whether messages would change some of those that are already in the list.
pub(super) fn changes_messages(list: &[Value], messages: &[Value]) -> bool {
    messages.iter().any(|it| removes_all(it) || place_of(it, list).is_some())
}

/// Returns whether a write to a list of messages removes some of them.
pub(super) fn is_removal(message: &Value) -> bool {
    message.get("remove") == Some(&Value::Bool(true))
}

fn removes_all(message: &Value) -> bool {
    is_removal(message) && message.get("id").and_then(Value::as_str) == Some(ALL_MESSAGES)
}

/// Returns the id of a message that came without one: the number behind the last one.
fn next_id(last: u64, list: &[Value]) -> String {
    let mut number = last;
    loop {
        number += 1;
        let id = Value::from(format!("m{number}"));
        // Beyond the largest number that counts, the next one may have been given already.
        if number <= MESSAGE_NUMBER_MAX || list.iter().all(|it| it.get("id") != Some(&id)) {
            return format!("m{number}");
        }
    }
}

fn largest_number(messages: &[Value]) -> u64 {
    messages.iter().filter_map(number_of).max().unwrap_or(0)
}

fn number_of(message: &Value) -> Option<u64> {
    let number = message.get("id")?.as_str()?.strip_prefix('m')?.parse().ok()?;
    (number <= MESSAGE_NUMBER_MAX).then_some(number)
}

/// Returns the index of the message with the same `id`.
fn place_of(message: &Value, messages: &[Value]) -> Option<usize> {
    let id = message.get("id").filter(|it| !it.is_null())?;
    messages.iter().position(|it| it.get("id") == Some(id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The list after these writes, each of which is a list of messages.
    fn folded(writes: &[Value]) -> Vec<Value> {
        let mut list = Vec::new();
        let mut removed_max = 0;
        for write in writes {
            add_messages(&mut list, write.as_array().unwrap(), &mut removed_max);
        }
        list
    }

    fn ids(writes: &[Value]) -> Vec<String> {
        folded(writes).iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn messages_get_ids_and_are_replaced_and_removed_by_them() {
        let text = |it: &str| json!({"text": it});
        let with_id = |id: &str, it: &str| json!({"id": id, "text": it});
        let writes = [
            json!([text("a"), {"id": null, "text": "b"}]),
            json!([with_id("m7", "c")]),
            json!([with_id("m2", "B"), {"id": "m1", "remove": true}, {"id": "m1", "remove": true}]),
            json!([text("d")]),
        ];
        let expected = [with_id("m2", "B"), with_id("m7", "c"), json!({"text": "d", "id": "m8"})];
        assert_eq!(folded(&writes), expected);
    }

    #[test]
    fn an_id_is_given_to_one_message_only() {
        let remove = |id: &str| json!({"id": id, "remove": true});
        let text = json!({"text": "a"});
        let huge = "m18446744073709551615";
        // Not that of a removed message, nor one that has the largest number.
        assert_eq!(ids(&[json!([text, text]), json!([remove("m2"), text])]), ["m1", "m3"]);
        let later = [json!([text, text]), json!([remove("m2")]), json!([text])];
        assert_eq!(ids(&later), ["m1", "m3"]);
        assert_eq!(
            ids(&[json!([{"id": huge}, text, text]), json!([text])]),
            [huge, "m1", "m2", "m3"]
        );
        let last = format!("m{MESSAGE_NUMBER_MAX}");
        let given = ids(&[json!([{"id": last}]), json!([text]), json!([text])]);
        assert_eq!(given, [&last, "m9007199254740993", "m9007199254740994"]);
        // All messages before it.
        let all = [json!([text, text]), json!([remove(ALL_MESSAGES)]), json!([text])];
        assert_eq!(ids(&all), ["m3"]);
    }
}
