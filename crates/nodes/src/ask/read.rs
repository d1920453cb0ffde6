//! The kind `ask`: its keys, and how a node is read.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
    id::ChannelName,
    state::Type,
};
use graphrun_workflow::{
    Prompt, Registry,
    kind::{
        CacheRefusal, Computation, Keys, Kind, MakeContext, NodeReader, NodeSettings, SpannedText,
        Yaml, suggestion,
        values::{FieldName, OneOrMany, Scalar, Template},
        values_of,
    },
};
use schemars::JsonSchema;

use super::Ask;

/// The kind `ask`.
#[derive(Debug)]
pub(crate) struct AskKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct AskKeys {
    /// Asks a person this question, which is a template. The run is saved and waits.
    ask: Template,
    /// The fields that are shown to the person.
    show: Option<OneOrMany<FieldName>>,
    /// The answers to choose from.
    choices: Option<OneOrMany<Scalar>>,
    /// The field that receives the answer.
    writes: Option<FieldName>,
}

/// A node that asks a person.
#[derive(Clone, Debug)]
pub struct AskSettings {
    /// The question.
    pub prompt: Prompt,
    /// The fields the person sees.
    pub show: Vec<ChannelName>,
    /// The answers to choose from. If empty, every value that fits the written field is accepted.
    pub choices: Vec<String>,
    /// The field the answer is written to.
    pub writes: Option<ChannelName>,
    /// How long the question waits for its answer.
    pub timeout: Option<Duration>,
}

impl Kind for AskKind {
    fn key(&self) -> &'static str {
        "ask"
    }

    fn keys(&self) -> Keys {
        Keys::of::<AskKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let prompt = reader.load_inline_prompt(reader.value(), "`ask`");
        if let Some(prompt) = &prompt {
            reader.check_prompt(prompt);
        }
        let show = reader.get("show");
        if let Some(show) = show {
            reader.refuse_private(show, "`show`");
        }
        let show = show.map(|it| reader.channels(it, "`show`"));
        let writes = reader.get("writes").and_then(|it| reader.report().word(it, "`writes`"));
        let writes = writes.and_then(|it| reader.channel(&it));
        let choices = reader.get("choices").map(|it| {
            reader.report().refuse_empty(it, "`choices`", "a list of answers");
            reader.report().words(it, "`choices`")
        });
        let choices = choices.unwrap_or_default();
        let mut named = BTreeSet::new();
        for again in choices.iter().filter(|it| !named.insert(it.text.as_str())) {
            reader.report().named_twice(again, "`choices`");
        }
        if let Some(channel) = &writes {
            check_choices(reader, &choices, channel);
        }
        Some(Arc::new(AskSettings {
            prompt: reader.finish_prompt(prompt?),
            show: show.unwrap_or_default(),
            choices: choices.into_iter().map(|it| it.text).collect(),
            writes,
            timeout: reader.timeout(),
        }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: a person is asked every time"))
    }

    fn asks(&self) -> bool {
        true
    }
}

impl NodeSettings for AskSettings {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(Ask(self.clone())))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(self.timeout.map(|_| ErrorKind::Timeout).into_iter().collect())
    }

    fn choices(&self) -> Option<&[String]> {
        Some(&self.choices)
    }

    /// It computes nothing: the values that a person sees do not decide the answer.
    fn computes(&self) -> Option<Vec<Computation>> {
        Some(Vec::new())
    }
}

fn check_choices(reader: &mut NodeReader<'_>, choices: &[SpannedText], channel: &ChannelName) {
    let ty = reader.type_of(channel).clone();
    let field = reader.schema().channel(channel.as_str());
    let ty = match ty {
        // Each answer is an item.
        Type::List(item) if field.is_some_and(|it| it.reducer().grows_list()) => *item,
        ty => ty,
    };
    for choice in choices {
        if Type::Enum(vec![choice.text.clone()]).fits(&ty) {
            continue;
        }
        let span = reader.report().span(&choice.range);
        let diagnostic = if let Some(values) = values_of(&ty) {
            let message = format!("\"{}\" is never a value of `{ty}`", choice.text);
            let help = suggestion(&choice.text, values.iter().map(String::as_str));
            let diagnostic = Diagnostic::error("GR023", message).at(span, "no such value");
            Diagnostic { help, ..diagnostic }
        } else {
            let message = format!("a choice is a text, and `{channel}` is `{ty}`");
            Diagnostic::error("GR022", message).at(span, "another type")
        };
        reader.report().push(diagnostic);
    }
}
