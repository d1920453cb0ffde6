//! Compaction: a conversation in the state gets shorter, by a model's summary of its older turns.
//!
//! A turn begins with a message of the user, so the calls of tools stay with their results. The summary takes the place of
//! the oldest message, and the other older ones are removed; the last turns stay as they are.
//!
//! The decision depends on the state alone, and the summary is saved before anything depends on it: a
//! task that runs again asks no model twice. The shorter history is part of the task's update, so a resumed run has it.

use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{NodeContext, NodeError},
    id::ChannelName,
    state::{Reducer, State},
    usage::TokenUsage,
};
use graphrun_models::{ChatModel as _, ChatRequest, Message, RequestSettings};
use graphrun_workflow::{
    OnOverflow,
    kind::{NodeReader, Section, Services, SpannedText, Yaml, values::Positive},
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{
    cut::{BETWEEN_MESSAGES, FittingModel},
    result::cut,
};
use crate::call::{Calls, Candidates, WatchedModel};

/// The turns that stay whole if the workflow names no number.
const KEEP_DEFAULT: u32 = 2;
/// The fewest tokens of a summary, also if the turns that stay leave less.
const SUMMARY_TOKENS_MIN: u64 = 100;
/// The beginning of a summary. A later compaction summarises it with the messages after it.
const SUMMARY_START: &str = "Summary of ";
/// The keys of a compaction.
const COMPACTION_KEYS: [&str; 3] = ["to", "over", "keep"];

/// When a conversation is compacted, and to which length.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct CompactionParts {
    /// The length after it, in tokens: one for 3.5 characters.
    to: Positive,
    /// The length from which it is compacted. Default: twice `to`.
    over: Option<Positive>,
    /// How many of the last turns stay whole. Default: 2.
    keep: Option<Positive>,
}

/// When a conversation is compacted, and to which length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The length after it, in estimated tokens.
    pub to: u32,
    /// The length from which it is compacted.
    pub over: u32,
    /// How many of the last turns stay whole.
    pub keep: u32,
}

/// A conversation that is too long.
#[derive(Debug, PartialEq)]
struct Excess<'h> {
    /// The messages that are summarised.
    older: &'h [Value],
    /// The messages that stay.
    kept: &'h [Value],
    /// The most tokens of the summary.
    room: u64,
}

/// A conversation after its compaction.
#[derive(Debug, PartialEq)]
pub(crate) struct CompactedHistory {
    /// The changed messages, as an update of the field.
    pub(crate) changes: Vec<Value>,
    /// All messages.
    pub(crate) messages: Vec<Value>,
}

/// The models that write a summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summariser<'a> {
    pub(crate) models: &'a [String],
    pub(crate) settings: &'a RequestSettings,
    pub(crate) services: &'a Services,
}

impl Compaction {
    /// Reads the keys of a compaction.
    pub(crate) fn read(reader: &mut NodeReader<'_>, section: &Section<'_>) -> Option<Self> {
        let help = "the length in tokens after a compaction, as in `to: 4_000`";
        let to = section.require(reader.report(), "to", help);
        let to: Option<u32> = to.and_then(|it| reader.report().count(it, "`to`", 1));
        let mut optional = |key: &str, default: Option<u32>| match section.get(key) {
            Some(yaml) => reader.report().count(yaml, &format!("`{key}`"), 1),
            None => default,
        };
        let over = optional("over", to.map(|it| it.saturating_mul(2)));
        let keep = optional("keep", Some(KEEP_DEFAULT));
        let to = to?;
        let over = over?;
        let keep = keep?;
        if over < to {
            let word = reader.report().word(section.get("over")?, "`over`")?;
            let message = format!("`over` is {over}, less than the {to} of `to`");
            reader.report().bad_value(&word, message, "omit it, or write a larger number");
            return None;
        }
        Some(Self { to, over, keep })
    }

    /// Reads the mapping under `compact`.
    pub(crate) fn read_within(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Self> {
        let section = reader.section(yaml, "`compact`", &COMPACTION_KEYS)?;
        Self::read(reader, &section)
    }

    pub(crate) fn fingerprint(self) -> Value {
        json!([self.to, self.over, self.keep])
    }

    /// Returns the older turns of a conversation, if it is too long and has any.
    fn excess(self, messages: &[Value]) -> Option<Excess<'_>> {
        if tokens_of(messages) <= u64::from(self.over) {
            return None;
        }
        let turns = messages.iter().enumerate().filter(|(_, it)| it["role"] == "user");
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let (start, _) = turns.rev().nth(keep.saturating_sub(1))?;
        let (older, kept) = messages.split_at(start);
        let room = u64::from(self.to).saturating_sub(tokens_of(kept)).max(SUMMARY_TOKENS_MIN);
        // Older messages that are shorter than the longest summary stay as they are.
        (tokens_of(older) > room).then_some(Excess { older, kept, room })
    }

    /// Compacts a field if it is too long.
    pub(crate) async fn apply(
        self,
        ctx: &NodeContext,
        field: &ChannelName,
        summariser: Summariser<'_>,
        calls: &Calls,
    ) -> Result<Option<CompactedHistory>, NodeError> {
        let messages = messages_of(&ctx.state, field);
        let Some(excess) = self.excess(messages) else { return Ok(None) };
        let before = tokens_of(messages);
        let text = summariser.summarise(ctx, &excess, calls).await?;
        let compacted = excess.replaced_by(&text, field)?;
        let count = excess.older.len();
        let after = tokens_of(&compacted.messages);
        let message = format!(
            "`{field}` is compacted: a summary takes the place of {count} messages, about {after} tokens instead of {before}"
        );
        ctx.report(Report::Note { message }).await;
        Ok(Some(compacted))
    }
}

impl Excess<'_> {
    fn transcript(&self) -> Vec<String> {
        self.older.iter().map(transcribed).collect()
    }

    /// Returns the request for a summary.
    fn request(&self, ctx: &NodeContext, settings: &RequestSettings) -> ChatRequest {
        let words = self.room * 3 / 4;
        let prompt = format!(
            "Summarise the conversation below in at most {words} words, so that it can continue without these messages. \
             Keep the goals and requests of the user, decisions and their reasons, facts, names, numbers, paths, results \
             of tools that still matter, and open questions. Keep what an earlier summary says. Write only the \
             summary.\n\n<conversation>\n{}\n</conversation>",
            self.transcript().join(BETWEEN_MESSAGES)
        );
        ChatRequest {
            caller: ctx.full_name().to_string(),
            key: format!("{}/compact", ctx.idempotency_key()),
            timeout: ctx.timeout,
            messages: vec![
                Message::system("You summarise conversations. You do not take part in them."),
                Message::user(prompt),
            ],
            // A stop text and a limit of tokens are for the answers of the agent, and would end a summary too early.
            settings: RequestSettings { stop: Vec::new(), max_tokens: None, ..settings.clone() },
            ..ChatRequest::default()
        }
    }

    /// Replaces the older messages by a summary.
    fn replaced_by(
        &self,
        summary: &str,
        field: &ChannelName,
    ) -> Result<CompactedHistory, NodeError> {
        let mut changes = Vec::new();
        for message in self.older {
            let Some(id) = message.get("id").filter(|it| it.is_string()) else {
                return Err(NodeError::permanent(format!("`{field}` has a message without an id")));
            };
            changes.push(json!({"id": id, "remove": true}));
        }
        let content = format!("{SUMMARY_START}{} earlier messages:\n\n{summary}", self.older.len());
        let first = json!({"id": self.older[0]["id"], "role": "user", "content": content});
        changes[0] = first.clone();
        let messages = std::iter::once(first).chain(self.kept.iter().cloned()).collect();
        Ok(CompactedHistory { changes, messages })
    }
}

impl Summariser<'_> {
    /// Asks the models in their order for a summary. A conversation that is too long for one of them is cut.
    async fn summarise(
        self,
        ctx: &NodeContext,
        excess: &Excess<'_>,
        calls: &Calls,
    ) -> Result<String, NodeError> {
        let request = excess.request(ctx, self.settings);
        let mut candidates = Candidates::new(self.models, self.services);
        while let Some(candidate) = candidates.next(ctx).await {
            let name = candidate.name;
            let request = ChatRequest { key: format!("{}/{name}", request.key), ..request.clone() };
            let watched = WatchedModel::new(candidate, ctx, self.services, calls).without_pieces();
            let fitted = FittingModel::new(&watched, ctx, OnOverflow::Cut, &request)
                .with_transcript(excess.transcript());
            match fitted.chat(&request).await {
                Ok(reply) => return Ok(self.bounded(ctx, reply.text.trim(), excess.room).await),
                Err(error) => candidates.failed(name, error)?,
            }
        }
        Err(candidates.failure())
    }

    /// Truncates a summary that is too long.
    async fn bounded(self, ctx: &NodeContext, text: &str, room: u64) -> String {
        // As many characters as the estimate of tokens allows.
        let most = usize::try_from(room.saturating_mul(7) / 2).unwrap_or(usize::MAX);
        if text.chars().count() > most {
            let message = format!("the summary has more than {room} tokens, and is truncated");
            ctx.report(Report::Warning { message }).await;
        }
        cut(text, most)
    }
}

/// Returns whether a message is a summary of earlier ones.
pub(crate) fn is_summary(message: &Message) -> bool {
    message.content.starts_with(SUMMARY_START)
}

/// Returns the messages of a field.
fn messages_of<'s>(state: &'s State, field: &ChannelName) -> &'s [Value] {
    let list = state.get(field.as_str()).and_then(Value::as_array);
    list.map_or(&[][..], Vec::as_slice)
}

/// Returns a message with its author, as a summary reads it.
fn transcribed(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or("unknown");
    format!("{role}:\n{}", text_of(message))
}

/// Returns the text of a message, with its other fields, such as calls of tools.
fn text_of(message: &Value) -> String {
    let content = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let is_other =
        |name: &str, it: &Value| !["id", "role", "content"].contains(&name) && !it.is_null();
    let fields = message.as_object().into_iter().flatten();
    let others: Map<String, Value> = fields
        .filter(|(name, it)| is_other(name, it))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    if others.is_empty() { content } else { format!("{content}\n{}", Value::Object(others)) }
}

/// Returns about how many tokens messages have. The estimate depends on nothing but the messages.
fn tokens_of(messages: &[Value]) -> u64 {
    let characters = messages.iter().map(|it| text_of(it).chars().count()).sum();
    TokenUsage::estimate(characters, 0).input_tokens
}

/// Reports a field whose messages cannot be replaced.
pub(crate) fn check_replaceable(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    field: &ChannelName,
) -> Option<()> {
    let channel = reader.schema().channel(field.as_str());
    if channel.is_some_and(|it| matches!(it.reducer(), Reducer::Messages)) {
        return Some(());
    }
    let span = reader.report().span(&yaml.range);
    let message = format!("`{field}` cannot be compacted: its messages are only added");
    let help = format!("declare it as `{field}: {{ type: [message], merge: messages }}`");
    let diagnostic = Diagnostic::error("GR022", message).at(span, "without `merge: messages`");
    reader.report().push(diagnostic.help(help));
    None
}

/// Reports a program in place of a model that writes summaries.
pub(crate) fn refuse_program(reader: &mut NodeReader<'_>, word: &SpannedText, program: &str) {
    let message = format!("a model writes the summary, and `{program}` is a program");
    reader.report().bad_value(word, message, "name an agent with a `model`, or remove it");
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPACTION: Compaction = Compaction { to: 400, over: 600, keep: 1 };

    /// Makes messages of this many tokens, by their roles.
    fn history(roles: &[(&str, usize)]) -> Vec<Value> {
        let message = |(at, (role, tokens)): (usize, &(&str, usize))| json!({"id": format!("m{at}"), "role": role, "content": "x".repeat(tokens * 7 / 2)});
        roles.iter().enumerate().map(message).collect()
    }

    fn split(compaction: Compaction, roles: &[(&str, usize)]) -> Option<(usize, usize, u64)> {
        let messages = history(roles);
        compaction.excess(&messages).map(|it| (it.older.len(), it.kept.len(), it.room))
    }

    #[test]
    fn the_last_turns_stay_whole_and_the_summary_fills_the_rest() {
        let turns = [("user", 200), ("assistant", 200), ("user", 100), ("assistant", 102)];
        assert_eq!(split(COMPACTION, &turns), Some((2, 2, 198)));
        assert_eq!(split(Compaction { over: 602, ..COMPACTION }, &turns), None, "short enough");
        assert_eq!(split(Compaction { keep: 2, ..COMPACTION }, &turns), None, "nothing is older");
        assert_eq!(split(Compaction { keep: 9, ..COMPACTION }, &turns), None);
    }

    #[test]
    fn a_call_stays_with_its_result() {
        let turns = [
            ("user", 300),
            ("assistant", 100),
            ("tool", 100),
            ("user", 50),
            ("assistant", 50),
            ("tool", 50),
            ("assistant", 50),
        ];
        assert_eq!(split(COMPACTION, &turns), Some((3, 4, 200)));
    }

    #[test]
    fn turns_longer_than_the_target_leave_the_smallest_room() {
        let turns = [("user", 200), ("assistant", 200), ("user", 500)];
        assert_eq!(split(COMPACTION, &turns), Some((2, 1, SUMMARY_TOKENS_MIN)));
        let turns = [("user", 50), ("assistant", 50), ("user", 900)];
        assert_eq!(split(COMPACTION, &turns), None, "a summary would not be shorter");
    }

    #[test]
    fn a_summary_takes_the_place_of_the_oldest_message() {
        let messages = history(&[("user", 300), ("assistant", 300), ("user", 10)]);
        let excess = COMPACTION.excess(&messages).unwrap();
        let field = ChannelName::parse("chat").unwrap();
        let compacted = excess.replaced_by("They met.", &field).unwrap();
        let first = json!({"id": "m0", "role": "user", "content": "Summary of 2 earlier messages:\n\nThey met."});
        assert_eq!(compacted.changes, [first.clone(), json!({"id": "m1", "remove": true})]);
        assert_eq!(compacted.messages, [first, messages[2].clone()]);
        let nameless = [json!({"role": "user", "content": "x".repeat(3_000)}), messages[2].clone()];
        assert!(COMPACTION.excess(&nameless).unwrap().replaced_by("x", &field).is_err());
    }

    #[test]
    fn other_fields_of_a_message_are_part_of_its_text() {
        let message = json!({"id": "1", "role": "assistant", "content": "I look.", "calls": [{"name": "ls"}], "at": null});
        assert_eq!(transcribed(&message), "assistant:\nI look.\n{\"calls\":[{\"name\":\"ls\"}]}");
    }
}
