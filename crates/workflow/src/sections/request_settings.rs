//! The settings of requests to models, in an agent or in a node that asks one.

use graphrun_core::{diagnostic::Diagnostic, state::Type};
use graphrun_models::{Parameter, Providers, RequestSettings, header_problem};

use super::types::value_of;
use crate::{
    format::{MappingKeys as _, values::RequestKeys},
    source::{
        reader::{Entry, Yaml},
        report::Report,
    },
};

/// Reads the settings, and warns of those that none of the models supports.
pub(crate) fn read<'y>(
    report: &mut Report,
    get: impl Fn(&str) -> Option<&'y Yaml>,
    models: &[String],
    providers: &Providers,
) -> RequestSettings {
    let settings = RequestSettings {
        temperature: get("temperature").and_then(|yaml| {
            let fits = |it: &f64| (0.0..=2.0).contains(it);
            report.number(yaml, "`temperature`", "a number from 0 to 2", fits)
        }),
        top_p: get("top_p").and_then(|yaml| {
            let fits = |it: &f64| *it > 0.0 && *it <= 1.0;
            report.number(yaml, "`top_p`", "a number above 0, up to 1", fits)
        }),
        seed: get("seed")
            .and_then(|it| report.number(it, "`seed`", "a whole number", |_: &i64| true)),
        stop: get("stop").map(|it| read_stop(report, it)).unwrap_or_default(),
        effort: get("effort").and_then(|it| read_effort(report, it)),
        max_tokens: get("max_tokens").and_then(|it| report.count(it, "`max_tokens`", 1)),
        // Only an agent has these keys: tools are its own, and `cache` of a node is about its results.
        parallel_tools: None,
        cache_prompt: false,
        headers: read_mapping(report, get("headers"), "`headers`", read_header).collect(),
        extra_body: read_mapping(report, get("extra_body"), "`extra_body`", read_extra).collect(),
    };
    for (parameter, _) in settings.parameters() {
        if let Some(yaml) = get(key_of(parameter)) {
            check_support(report, yaml, parameter, models, providers);
        }
    }
    settings
}

/// Returns the key of a parameter in a workflow.
pub(crate) fn key_of(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::ReasoningEffort => "effort",
        Parameter::ParallelTools => "parallel_tools",
        parameter => parameter.as_str(),
    }
}

/// Reads `cache: prompt`.
pub(crate) fn read_cache(report: &mut Report, yaml: &Yaml) -> bool {
    let Some(word) = report.word(yaml, "`cache`") else { return false };
    let is_known = word.text == "prompt";
    if !is_known {
        let message = format!("`cache` of an agent cannot be `{}`", word.text);
        let help = "write `cache: prompt`; results are cached by `cache` of a node";
        report.bad_value(&word, message, help);
    }
    is_known
}

/// Reads the entries of a mapping, each by `read`.
fn read_mapping<T>(
    report: &mut Report,
    yaml: Option<&Yaml>,
    what: &str,
    read: fn(&mut Report, &Entry) -> Option<T>,
) -> impl Iterator<Item = T> {
    let entries = yaml.map(Yaml::entries).unwrap_or_default();
    if let Some(yaml) = yaml.filter(|_| entries.is_empty()) {
        report.wrong_kind(yaml, what, "a mapping");
    }
    entries.iter().filter_map(move |it| read(report, it))
}

fn read_stop(report: &mut Report, yaml: &Yaml) -> Vec<String> {
    let words = report.words(yaml, "`stop`");
    for empty in words.iter().filter(|it| it.text.is_empty()) {
        report.bad_value(
            empty,
            "an empty text in `stop` would end every answer at once",
            "remove it",
        );
    }
    words.into_iter().map(|it| it.text).collect()
}

fn read_effort(report: &mut Report, yaml: &Yaml) -> Option<String> {
    let word = report.word(yaml, "`effort`")?;
    if RequestSettings::EFFORTS.contains(&word.text.as_str()) {
        return Some(word.text);
    }
    let message = format!("`effort` cannot be `{}`", word.text);
    let help = format!("write one of {}", RequestSettings::EFFORTS.join(", "));
    report.bad_value(&word, message, &help);
    None
}

fn read_header(report: &mut Report, Entry { key, value }: &Entry) -> Option<(String, String)> {
    let word = report.word(value, "a header")?;
    match header_problem(&key.text, &word.text) {
        Some(problem) => {
            report.bad_value(key, problem, "remove it");
            None
        }
        None => Some((key.text.to_ascii_lowercase(), word.text)),
    }
}

fn read_extra(
    report: &mut Report,
    Entry { key, value }: &Entry,
) -> Option<(String, serde_json::Value)> {
    if RequestSettings::OWN_PARAMETERS.contains(&key.text.as_str()) {
        let message = format!("`{}` is not part of `extra_body`: graphrun sets it", key.text);
        let help =
            format!("remove it; the settings of requests are {}", RequestKeys::keys().join(", "));
        report.bad_value(key, message, &help);
        return None;
    }
    Some((key.text.clone(), value_of(report, value, &Type::Any)?))
}

/// Warns of a parameter that no request has. In a list of models, it may be meant for one that supports it.
pub(crate) fn check_support(
    report: &mut Report,
    yaml: &Yaml,
    parameter: Parameter,
    models: &[String],
    providers: &Providers,
) {
    let refuses = |model: &&String| {
        let found = providers.split(model);
        found.is_some_and(|(_, provider, model)| !provider.profile.supports(model, parameter))
    };
    if models.is_empty() || !models.iter().all(|it| refuses(&it)) {
        return;
    }
    let names: Vec<String> = models.iter().map(|it| format!("`{it}`")).collect();
    let names = names.join(" and ");
    let message = format!("`{}` has no effect: {names} does not support it", key_of(parameter));
    let diagnostic = Diagnostic::warning("GR045", message);
    let diagnostic = diagnostic.at(report.span(&yaml.range), "not sent");
    let by_other_protocol = models.iter().find_map(|model| {
        let (name, provider, model) = providers.split(model)?;
        let profile = provider.profile_elsewhere()?;
        profile.supports(model, parameter).then(|| (name, profile.protocol.as_str()))
    });
    report.push(diagnostic.help(match by_other_protocol {
        None => "remove it, or choose another model".to_owned(),
        Some((name, protocol)) => format!(
            "remove it, choose another model, or set `protocol = \"{protocol}\"` in `[providers.{name}]` of the configuration"
        ),
    }));
}
