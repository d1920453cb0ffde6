//! `history`: a conversation that an agent continues from visit to visit, and from turn to turn of a thread.

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::NodeError,
    id::ChannelName,
    state::{Channel, Reducer, State, Type, Update},
};
use graphrun_models::{Message, Role};
use graphrun_workflow::kind::{
    Data, NodeReader, Yaml,
    values::{Count, FieldName},
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::compaction::{Compaction, CompactionParts, check_replaceable, is_summary};

/// The form of `history` with a limit.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct HistoryParts {
    /// The field with the messages.
    field: FieldName,
    /// How many of the last messages are sent at most. Default: all of them.
    last: Option<Count>,
    /// When older turns are replaced by a summary, which the model of the agent writes.
    compact: Option<CompactionParts>,
}

/// The field with the messages of a conversation.
#[derive(Clone, Debug)]
pub struct History {
    /// The field, a list of messages with `role` and `content`.
    pub field: ChannelName,
    /// How many of the last messages are sent at most.
    pub last: Option<u32>,
    /// When its older turns are replaced by a summary.
    pub compaction: Option<Compaction>,
}

impl History {
    /// Reads the value of `history`, beside the fields that the answer is written to.
    pub(super) fn read(
        reader: &mut NodeReader<'_>,
        yaml: &Yaml,
        writes: &[ChannelName],
    ) -> Option<Self> {
        let (field, last, compaction) = if matches!(yaml.data, Data::Map(_)) {
            let parts = reader.parts_of("history")?;
            let field = parts.require(reader.report(), "field", "the field with the messages")?;
            let last = match parts.get("last") {
                Some(last) => Some(reader.report().count(last, "`last`", 2)?),
                None => None,
            };
            let compaction = match parts.get("compact") {
                Some(compact) => Some(Compaction::read_within(reader, compact)?),
                None => None,
            };
            if let (Some(key), Some(_)) = (parts.key("last"), compaction) {
                let message = "`last` would leave the summary out that `compact` writes";
                reader.report().bad_value(key, message, "remove one of them");
                return None;
            }
            (field, last, compaction)
        } else {
            (yaml, None, None)
        };
        let word = reader.report().word(field, "`history`")?;
        let channel = reader.channel(&word)?;
        check(reader, field, &channel, writes)?;
        if compaction.is_some() {
            check_replaceable(reader, field, &channel)?;
        }
        Some(Self { field: channel, last, compaction })
    }

    /// Returns the messages that are sent.
    pub(super) fn messages(&self, state: &State) -> Result<Vec<Message>, NodeError> {
        let list = state.get(self.field.as_str()).and_then(Value::as_array);
        self.sent(list.map_or(&[][..], Vec::as_slice))
    }

    /// Returns those of a list of messages that are sent. The first one is of the user, because some providers refuse
    /// others. For the same reason, a summary becomes a part of the message of the user behind it.
    pub(super) fn sent(&self, list: &[Value]) -> Result<Vec<Message>, NodeError> {
        let last = self.last.and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX);
        let sent = &list[list.len().saturating_sub(last)..];
        let is_user = |it: &&Value| it["role"] == "user";
        let is_cut = sent.len() < list.len();
        let sent = sent.iter().skip_while(|it| is_cut && !is_user(it));
        let mut sent: Vec<Message> = sent.map(|it| self.message(it)).collect::<Result<_, _>>()?;
        if let [summary, next, ..] = sent.as_mut_slice()
            && is_summary(summary)
            && next.role == Role::User
        {
            next.content = format!("{}\n\n{}", summary.content, next.content);
            sent.remove(0);
        }
        Ok(sent)
    }

    fn message(&self, value: &Value) -> Result<Message, NodeError> {
        let content = value["content"].as_str().unwrap_or_default();
        let Some(role) = value["role"].as_str().and_then(role) else {
            let message = format!("`{}` has a message with the role {}", self.field, value["role"]);
            return Err(NodeError::permanent(message));
        };
        Ok(Message::new(role, content))
    }

    /// Adds the prompt and the answer to the conversation, behind other changes of its messages.
    pub(super) fn extend(&self, mut messages: Vec<Value>, prompt: &str, answer: Update) -> Update {
        let text = match answer.writes.as_slice() {
            [(_, only)] => text(only),
            several => {
                let fields = several.iter().map(|(name, it)| (name.to_string(), Value::clone(it)));
                Value::Object(fields.collect::<Map<_, _>>()).to_string()
            }
        };
        messages.push(json!({"role": "user", "content": prompt}));
        messages.push(json!({"role": "assistant", "content": text}));
        answer.write(self.field.clone(), messages)
    }
}

/// Reports a field that cannot hold a conversation.
pub(crate) fn check(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    field: &ChannelName,
    writes: &[ChannelName],
) -> Option<()> {
    let span = reader.report().span(&yaml.range);
    if writes.contains(field) {
        let message = format!("`{field}` is the history of this agent and also in `writes`");
        let diagnostic = Diagnostic::error("GR022", message).at(span, "written twice");
        let help = "omit it from `writes`: the agent adds its prompt and its answer to the history";
        reader.report().push(diagnostic.help(help));
        return None;
    }
    let holds = reader.schema().channel(field.as_str()).is_some_and(holds_messages);
    if !holds {
        let message = format!("`{field}` cannot hold the messages of a conversation");
        let diagnostic = Diagnostic::error("GR022", message).at(span, "not a list of messages");
        let help = format!("declare it as `{field}: {{ type: [message], merge: messages }}`");
        reader.report().push(diagnostic.help(help));
        return None;
    }
    Some(())
}

/// Returns whether a channel takes the messages that an agent adds, and has no messages that it cannot send.
fn holds_messages(channel: &Channel) -> bool {
    let Type::List(item) = channel.ty().required() else { return false };
    let sends = match item.field("role").map(Type::required) {
        Some(Type::Enum(roles)) => roles.iter().all(|it| role(it).is_some()),
        _ => false,
    };
    let sample = |role: &str| json!([{"role": role, "content": "", "id": "m1"}]);
    let bare = |role: &str| json!([{"role": role, "content": ""}]);
    let takes = |role: &str| match channel.reducer() {
        Reducer::Messages => channel.check(&sample(role)).is_ok(),
        Reducer::Append => channel.check(&bare(role)).is_ok(),
        _ => false,
    };
    sends && item.field("content") == Some(&Type::String) && takes("user") && takes("assistant")
}

fn role(name: &str) -> Option<Role> {
    match name {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        "system" => Some(Role::System),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
