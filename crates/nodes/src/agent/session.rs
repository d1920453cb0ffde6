//! `session`: the session of a program, such as a coding agent, which a later visit continues.
//!
//! The id of the session is a field of the state. So it is saved with the visit, a resumed or forked run has it, and nodes
//! that name the same field share the session.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::NodeContext,
    id::ChannelName,
    state::{Channel, Reducer, Type},
};
use graphrun_models::{ChatModel, ChatReply, ChatRequest, ModelError};
use graphrun_workflow::kind::{Agent as DeclaredAgent, NodeReader, Yaml};
use serde_json::Value;

/// The most characters of an id.
const ID_CHARACTERS_MAX: usize = 200;

/// The session of an attempt, which changes with each answer.
#[derive(Debug, Default)]
pub(super) struct Session(Mutex<Option<String>>);

/// A model that notes the session of each reply, also of one that was saved or recorded.
#[derive(Debug)]
pub(super) struct WithSession<'a> {
    pub(super) model: &'a dyn ChatModel,
    pub(super) session: &'a Session,
}

impl Session {
    /// Returns the session that a field of the state names. An empty field names none.
    pub(super) async fn of(ctx: &NodeContext, field: &ChannelName) -> Self {
        let id = ctx.state.get(field.as_str()).and_then(Value::as_str).unwrap_or_default();
        if id.is_empty() {
            return Self::default();
        }
        if !is_id(id) {
            let message =
                format!("`{field}` is not the id of a session; the program starts a new one");
            ctx.report(Report::Warning { message }).await;
            return Self::default();
        }
        Self(Mutex::new(Some(id.to_owned())))
    }

    pub(super) fn id(&self) -> Option<String> {
        self.lock().clone()
    }

    fn note(&self, id: Option<String>) {
        *self.lock() = id;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ChatModel for WithSession<'_> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let reply = self.model.chat(request).await?;
        self.session.note(reply.session.clone());
        Ok(reply)
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

/// Returns whether a text can be the id of a session. It becomes an argument of a program, so it must be no option.
pub(super) fn is_id(text: &str) -> bool {
    let allowed = |it: char| it.is_ascii_alphanumeric() || "-_.:".contains(it);
    text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.len() <= ID_CHARACTERS_MAX
        && text.chars().all(allowed)
}

/// Reads the field of `session`, beside the fields that the answer is written to.
pub(super) fn read(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    agents: &[&DeclaredAgent],
    writes: &[ChannelName],
) -> Option<ChannelName> {
    let key = reader.key("session").cloned()?;
    let word = reader.report().word(yaml, "`session`")?;
    let field = reader.channel(&word)?;
    let refused = match agents {
        _ if agents.iter().all(|it| it.program.is_none()) => {
            Some(("a model keeps no session", "use `history`, or remove it"))
        }
        [_, _, ..] => Some(("a session belongs to one agent", "name one agent, or remove it")),
        _ if reader.get("history").is_some() => {
            Some(("a session has the whole history already", "remove `history` or `session`"))
        }
        _ => None,
    };
    if let Some((message, help)) = refused {
        reader.report().bad_value(&key, message, help);
        return None;
    }
    let span = reader.report().span(&yaml.range);
    if writes.contains(&field) {
        let message = format!("`{field}` is the session of this agent and also in `writes`");
        let diagnostic = Diagnostic::error("GR022", message).at(span, "written twice");
        let help = "omit it from `writes`: the agent writes the id of its session there";
        reader.report().push(diagnostic.help(help));
        return None;
    }
    let channel = reader.schema().channel(field.as_str());
    let holds = |channel: &Channel| {
        *channel.ty().required() == Type::String && matches!(channel.reducer(), Reducer::Replace)
    };
    if !channel.is_some_and(holds) {
        let message = format!("`{field}` cannot hold the id of a session");
        let diagnostic = Diagnostic::error("GR022", message).at(span, "not a string");
        let help = format!("declare it as `{field}: {{ type: string, default: \"\" }}`");
        reader.report().push(diagnostic.help(help));
        return None;
    }
    Some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_no_option_and_has_no_spaces() {
        for id in ["0199a213-4e5f-7000-8000-1b2c3d4e5f60", "ses_1.a:b", "7"] {
            assert!(is_id(id), "{id}");
        }
        for text in ["", "-", "--dangerously-skip-permissions", "a b", "a\nb", "$(x)", "a/b", "é"]
        {
            assert!(!is_id(text), "{text}");
        }
        assert!(!is_id(&"a".repeat(201)));
    }
}
