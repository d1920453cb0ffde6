//! The kind `ask`: its keys, and how a node is read.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
    id::ChannelName,
    state::Type,
};
use graphrun_workflow::{
    Expression, Prompt, Registry,
    kind::{
        CacheRefusal, Computation, Data, Keys, Kind, MakeContext, NodeReader, NodeSettings,
        SpannedText, Yaml, suggestion,
        values::{self, Either, FieldName, OneOrMany, Scalar, Template},
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
    /// The answers to choose from: a list of two at least, or an expression that is a list of texts, such as `plan.options`.
    choices: Option<Either<values::Expression, Vec<Scalar>>>,
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
    /// The expression that gives the answers to choose from, in place of `choices`.
    pub choice_list: Option<Expression>,
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
        let choices = reader.get("choices");
        let choice_list = choices.filter(|it| matches!(it.data, Data::Scalar { .. }));
        let choice_list = choice_list.map(|it| read_choice_list(reader, it, writes.as_ref()));
        let choices = choices.filter(|it| !matches!(it.data, Data::Scalar { .. })).map(|yaml| {
            reader.report().refuse_empty(yaml, "`choices`", "a list of answers");
            reader.report().words(yaml, "`choices`")
        });
        let choices = choices.unwrap_or_default();
        if let [only] = choices.as_slice() {
            let help = "name two at least, or write an expression without brackets that is a list of texts";
            reader.report().bad_value(only, "`choices` leaves nothing to choose", help);
        }
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
            choice_list: match choice_list {
                Some(list) => Some(list?),
                None => None,
            },
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
        let late = self.timeout.map(|_| ErrorKind::Timeout);
        // A list without a text leaves nothing to choose.
        let empty = self.choice_list.as_ref().map(|_| ErrorKind::Other);
        Some(late.into_iter().chain(empty).collect())
    }

    fn choices(&self) -> Option<&[String]> {
        Some(&self.choices)
    }

    fn choice_list(&self) -> Option<&Expression> {
        self.choice_list.as_ref()
    }

    /// It computes nothing: the values that a person sees do not decide the answer.
    fn computes(&self) -> Option<Vec<Computation>> {
        Some(Vec::new())
    }
}

/// Reads the expression of the answers to choose from; each of them must be a value of the written field.
fn read_choice_list(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    writes: Option<&ChannelName>,
) -> Option<Expression> {
    let word = yaml.word()?;
    let is_plain = word.text.chars().all(|it| it.is_alphanumeric() || " _-".contains(it));
    if is_plain && !reader.has_value(&word.text) {
        let message = format!("`{}` is neither a list of answers nor a field", word.text);
        let help = format!(
            "write the answers as a list, `[{}, …]`, or name a field that is a list of texts",
            word.text
        );
        reader.report().bad_value(&word, message, &help);
        return None;
    }
    let list = reader.expression(yaml)?;
    reader.expect_type(yaml, list.ty(), &Type::List(Box::new(Type::String)), "`choices`");
    if let (Some(channel), Type::List(item)) = (writes, list.ty())
        && !item.fits(&answer_type(reader, channel))
        && item.fits(&Type::String)
    {
        let message =
            format!("a choice is `{item}`, and `{channel}` is `{}`", reader.type_of(channel));
        let span = reader.report().span(&yaml.range);
        reader.report().push(Diagnostic::error("GR022", message).at(span, "another type"));
    }
    Some(list)
}

/// Returns the type of an answer that is written to a field.
fn answer_type(reader: &NodeReader<'_>, channel: &ChannelName) -> Type {
    match reader.type_of(channel).clone() {
        // Each answer is an item.
        Type::List(item) if reader.is_list_that_grows(channel) => *item,
        ty => ty,
    }
}

fn check_choices(reader: &mut NodeReader<'_>, choices: &[SpannedText], channel: &ChannelName) {
    let ty = answer_type(reader, channel);
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
