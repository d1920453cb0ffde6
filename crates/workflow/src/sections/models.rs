//! `models`: names for models, or for lists of them in order of fallback.

use graphrun_core::diagnostic::{Diagnostic, did_you_mean};
use graphrun_models::Providers;

use super::Sections;
use crate::source::{
    reader::{SpannedText, Yaml},
    report::Report,
};

impl Sections {
    /// Resolves one of `models`, or a literal model name.
    pub(crate) fn find_model(
        &self,
        report: &mut Report,
        yaml: &Yaml,
        providers: &Providers,
    ) -> Vec<String> {
        let Some(word) = report.word(yaml, "`model`") else { return Vec::new() };
        report.references.add("models", &word.text);
        if let Some(models) = self.models.get(&word.text) {
            return models.clone();
        }
        if word.text.contains('/') {
            return read_model(report, yaml, providers);
        }
        let known = self.models.keys().map(String::as_str);
        report.unknown("GR012", "model", &word, known);
        Vec::new()
    }
}

pub(super) fn read_model(report: &mut Report, yaml: &Yaml, providers: &Providers) -> Vec<String> {
    let mut models = Vec::new();
    report.refuse_empty(yaml, "a model", "`provider/model`, or a list of them");
    for word in report.words(yaml, "a model") {
        let parts = word.text.split_once('/');
        let whole = parts.is_some_and(|(provider, model)| {
            !provider.is_empty() && !model.is_empty() && !word.text.contains(char::is_whitespace)
        });
        if whole {
            check_provider(report, &word, providers);
            models.push(word.text);
        } else {
            let message = format!("`{}` is not `provider/model`", word.text);
            report.bad_value(&word, message, "write `openai/gpt-5-mini`");
        }
    }
    models
}

/// Warns about a misspelt provider. A program may have providers that are not known here.
fn check_provider(report: &mut Report, word: &SpannedText, providers: &Providers) {
    let Some((provider, _)) = word.text.split_once('/') else { return };
    let near = did_you_mean(provider, providers.names());
    if let Some(near) = near.filter(|_| providers.get(provider).is_none()) {
        let message = format!("there is no built-in provider `{provider}`");
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::warning("GR012", message).at(span, "not known");
        report.push(diagnostic.help(format!("did you mean `{near}`?")));
    }
}
