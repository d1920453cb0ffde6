//! `ask`: asks a person.

use graphrun_core::{diagnostic::Diagnostic, id::ChannelName, state::Type};

use super::Reading;
use crate::{
    AskNode,
    lower::Lowering,
    prompt::LoadedPrompt,
    reader::{SpannedText, Yaml},
    report::suggestion,
    types::refuse_private,
    typing::{fits, values_of},
};

impl Lowering<'_> {
    pub(super) fn read_ask(
        &mut self,
        reading: Reading<'_, '_>,
        question: &Yaml,
        bounded: bool,
    ) -> Option<AskNode> {
        let Reading { name, section, .. } = reading;
        let prompt = LoadedPrompt::inline(&mut self.report, question, "`ask`");
        if let Some(prompt) = &prompt {
            self.check_prompt(prompt, name, bounded);
        }
        let show = section.get("show");
        if let Some(show) = show {
            refuse_private(&mut self.report, show, "`show`", &self.schema);
        }
        let show = show.map(|it| self.report.channels(it, "`show`", &self.schema));
        let writes = section.get("writes").and_then(|it| self.report.word(it, "`writes`"));
        let writes = writes.and_then(|it| self.report.channel(&it, &self.schema));
        let choices = section.get("choices").map(|it| self.report.words(it, "`choices`"));
        let choices = choices.unwrap_or_default();
        if let Some(channel) = &writes {
            self.check_choices(&choices, channel);
        }
        Some(AskNode {
            prompt: self.prompt_of(prompt?),
            show: show.unwrap_or_default(),
            choices: choices.into_iter().map(|it| it.text).collect(),
            writes,
            timeout: None,
        })
    }

    fn check_choices(&mut self, choices: &[SpannedText], channel: &ChannelName) {
        let ty = self.schema.channel(channel.as_str()).map_or(Type::Any, |it| it.ty().clone());
        for choice in choices {
            if fits(&Type::Enum(vec![choice.text.clone()]), &ty) {
                continue;
            }
            let place = self.report.place(&choice.range);
            let finding = if let Some(values) = values_of(&ty) {
                let message = format!("\"{}\" is never a value of `{ty}`", choice.text);
                let help = suggestion(&choice.text, values.iter().map(String::as_str));
                let finding = Diagnostic::error("GR023", message).at(place, "no such value");
                Diagnostic { help, ..finding }
            } else {
                let message = format!("a choice is a text, and `{channel}` is `{ty}`");
                Diagnostic::error("GR022", message).at(place, "another type")
            };
            self.report.push(finding);
        }
    }
}
