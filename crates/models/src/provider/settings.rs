//! The settings of a provider as a table of TOML, in the built-in table and in configurations.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use graphrun_core::diagnostic::did_you_mean;
use graphrun_guard::redact::{names_a_secret, redact};
use toml_edit::{Item, TableLike};

use super::{
    Provider,
    profile::{OutputMode, Parameter, Protocol, SystemRole, TokenLimit},
};
use crate::RequestSettings;

/// The settings of a provider that are given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The address, up to and including the version. A query behind it is sent with each request.
    pub base_url: Option<String>,
    /// The form of an address that differs from account to account.
    pub address_form: Option<String>,
    /// The environment variable with the key.
    pub key_variable: Option<String>,
    /// Whether it answers without a key, too.
    pub key_optional: Option<bool>,
    /// The header that has the key alone.
    pub key_header: Option<String>,
    /// Headers of every request.
    pub headers: Option<BTreeMap<String, String>>,
    /// The form of its requests, replies and streams.
    pub protocol: Option<Protocol>,
    /// That form at other addresses.
    pub protocol_elsewhere: Option<Protocol>,
    /// The form of structured output that is tried first.
    pub output: Option<OutputMode>,
    /// The name of the limit on the answer's length.
    pub token_limit: Option<TokenLimit>,
    /// The role of the instructions.
    pub system_role: Option<SystemRole>,
    /// Whether it requires the model's reasoning before a tool call in later requests.
    pub wants_reasoning: Option<bool>,
    /// The parameters that it rejects or ignores.
    pub unsupported: Option<BTreeSet<Parameter>>,
    /// The provider's own names of parameters.
    pub rename: Option<BTreeMap<Parameter, String>>,
}

/// A mistake in a table of TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableProblem {
    /// Its place in the text.
    pub span: Option<Range<usize>>,
    /// The mistake and its remedy.
    pub message: String,
}

impl ProviderSettings {
    /// The keys of the table.
    pub const KEYS: &'static [&'static str] = &[
        "base_url",
        "address_form",
        "key_variable",
        "key_optional",
        "key_header",
        "headers",
        "protocol",
        "protocol_elsewhere",
        "output",
        "token_limit",
        "system_role",
        "wants_reasoning",
        "unsupported",
        "rename",
    ];

    /// Reads a table, and adds its mistakes to `problems`.
    pub fn read(table: &dyn TableLike, problems: &mut Vec<TableProblem>) -> Self {
        let mut reader = TableReader::new(problems);
        let mut settings = Self::default();
        for (key, item) in table.iter() {
            match key {
                "base_url" => settings.base_url = reader.address(key, item),
                "address_form" => settings.address_form = reader.text(key, item),
                "key_variable" => settings.key_variable = reader.variable(key, item),
                "key_optional" => settings.key_optional = reader.flag(key, item),
                "key_header" => settings.key_header = reader.header_name(key, item),
                "headers" => settings.headers = reader.headers(key, item),
                "protocol" => {
                    settings.protocol = reader.word(key, item, Protocol::ALL, Protocol::as_str);
                }
                "protocol_elsewhere" => {
                    settings.protocol_elsewhere =
                        reader.word(key, item, Protocol::ALL, Protocol::as_str);
                }
                "output" => {
                    settings.output = reader.word(key, item, OutputMode::ALL, OutputMode::as_str);
                }
                "token_limit" => {
                    settings.token_limit =
                        reader.word(key, item, TokenLimit::ALL, TokenLimit::as_str);
                }
                "system_role" => {
                    settings.system_role =
                        reader.word(key, item, SystemRole::ALL, SystemRole::as_str);
                }
                "wants_reasoning" => settings.wants_reasoning = reader.flag(key, item),
                "unsupported" => settings.unsupported = reader.parameters(key, item),
                "rename" => settings.rename = reader.renamed(key, item),
                _ => {
                    let span = table.get_key_value(key).and_then(|(key, _)| key.span());
                    if ["key", "api_key", "apikey", "token", "api_token"].contains(&key) {
                        let message = format!(
                            "a key does not stand in the file, as in `{key}`: put it into an environment variable, and \
                             name the variable, as in `key_variable = \"LAB_API_KEY\"`"
                        );
                        reader.problem(span, message);
                    } else {
                        reader.unknown(span, "setting of a provider", key, Self::KEYS);
                    }
                }
            }
        }
        settings
    }

    /// Returns the given settings that decide where requests and their key are sent, and with which headers.
    pub fn destination(&self) -> Vec<&'static str> {
        [
            ("base_url", self.base_url.is_some()),
            ("key_variable", self.key_variable.is_some()),
            ("key_header", self.key_header.is_some()),
            ("headers", self.headers.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
        .collect()
    }

    /// Replaces the settings of a provider by those that are given.
    pub(super) fn apply(self, provider: &mut Provider) {
        let elsewhere = match (self.protocol, &self.base_url) {
            // A given protocol holds at every address, and the address of the table is a new one's own.
            (Some(_), _) => None,
            (None, Some(address)) if !provider.is_at(address) => {
                replace(&mut provider.profile.protocol, provider.protocol_elsewhere.take());
                None
            }
            (None, _) => provider.protocol_elsewhere,
        };
        provider.protocol_elsewhere = self.protocol_elsewhere.or(elsewhere);
        let Provider { base_url, address_form, key_variable, key_optional, profile, .. } = provider;
        *base_url = self.base_url.or(base_url.take());
        *address_form = self.address_form.or(address_form.take());
        *key_variable = self.key_variable.or(key_variable.take());
        *key_optional = self.key_optional.unwrap_or(*key_optional);
        profile.key_header = self.key_header.or(profile.key_header.take());
        replace(&mut profile.headers, self.headers);
        replace(&mut profile.protocol, self.protocol);
        replace(&mut profile.output, self.output);
        replace(&mut profile.token_limit, self.token_limit);
        replace(&mut profile.system_role, self.system_role);
        replace(&mut profile.wants_reasoning, self.wants_reasoning);
        replace(&mut profile.unsupported, self.unsupported);
        replace(&mut profile.rename, self.rename);
    }
}

fn replace<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|it| name(*it)).collect()
}

/// Reads the values of a table, and collects its mistakes.
pub(crate) struct TableReader<'a> {
    problems: &'a mut Vec<TableProblem>,
}

impl<'a> TableReader<'a> {
    pub(crate) fn new(problems: &'a mut Vec<TableProblem>) -> Self {
        Self { problems }
    }

    pub(crate) fn problem(&mut self, span: Option<Range<usize>>, message: String) {
        self.problems.push(TableProblem { span, message });
    }

    pub(crate) fn unknown(
        &mut self,
        span: Option<Range<usize>>,
        what: &str,
        word: &str,
        known: &[&str],
    ) {
        let hint = did_you_mean(word, known.iter().copied()).map_or_else(
            || format!("there is {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        self.problem(span, format!("there is no {what} `{word}`; {hint}"));
    }

    fn text(&mut self, key: &str, item: &Item) -> Option<String> {
        let text = item.as_str().map(str::trim).filter(|it| !it.is_empty());
        if text.is_none() {
            self.problem(item.span(), format!("`{key}` must be a text in quotes"));
        }
        text.map(str::to_owned)
    }

    /// Reads a number of at least `least`.
    #[expect(clippy::cast_precision_loss, reason = "no price and no model is as large as 2^52")]
    pub(crate) fn number(&mut self, key: &str, item: &Item, least: f64) -> Option<f64> {
        let number = item.as_float().or_else(|| item.as_integer().map(|it| it as f64));
        let fits = number.filter(|it| it.is_finite() && *it >= least);
        if fits.is_none() {
            self.problem(item.span(), format!("`{key}` must be a number of {least} or more"));
        }
        fits
    }

    /// Reads a number of tokens.
    pub(crate) fn whole(&mut self, key: &str, item: &Item) -> Option<u64> {
        let number = item.as_integer().and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0);
        if number.is_none() {
            self.problem(item.span(), format!("`{key}` must be a whole number above zero"));
        }
        number
    }

    fn flag(&mut self, key: &str, item: &Item) -> Option<bool> {
        if item.as_bool().is_none() {
            self.problem(item.span(), format!("`{key}` must be true or false"));
        }
        item.as_bool()
    }

    fn address(&mut self, key: &str, item: &Item) -> Option<String> {
        let text = self.text(key, item)?;
        if text.starts_with("http://") || text.starts_with("https://") {
            return Some(text);
        }
        let shown = redact(text.split(['?', '#']).next().unwrap_or_default());
        let message =
            format!("`{key}` is `{shown}`: expected an address, as in `http://localhost:8000/v1`");
        self.problem(item.span(), message);
        None
    }

    /// Reads the name of a variable. A key in its place is refused, and not repeated.
    fn variable(&mut self, key: &str, item: &Item) -> Option<String> {
        let text = self.text(key, item)?;
        let is_name =
            text.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_');
        if is_name && !text.starts_with(|it: char| it.is_ascii_digit()) {
            return Some(text);
        }
        let message = format!(
            "`{key}` must name an environment variable in capitals, such as `LAB_API_KEY`; the key itself stands in \
             the variable"
        );
        self.problem(item.span(), message);
        None
    }

    fn header_name(&mut self, key: &str, item: &Item) -> Option<String> {
        let text = self.text(key, item)?;
        if is_header_name(&text) {
            return Some(text.to_ascii_lowercase());
        }
        self.problem(item.span(), format!("`{key}` is `{text}`, which is no name of a header"));
        None
    }

    fn headers(&mut self, key: &str, item: &Item) -> Option<BTreeMap<String, String>> {
        let table = self.table(key, item)?;
        let mut headers = BTreeMap::new();
        for (name, item) in table.iter() {
            let Some(value) = self.text(name, item) else { continue };
            match header_problem(name, &value) {
                Some(problem) => self.problem(item.span(), problem),
                None => drop(headers.insert(name.to_ascii_lowercase(), value)),
            }
        }
        Some(headers)
    }

    fn word<T: Copy>(
        &mut self,
        key: &str,
        item: &Item,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Option<T> {
        let text = self.text(key, item)?;
        let value = known.iter().copied().find(|it| name(*it) == text);
        if value.is_none() {
            let known: Vec<&str> = known.iter().map(|it| name(*it)).collect();
            self.unknown(item.span(), &format!("`{key}`"), &text, &known);
        }
        value
    }

    fn parameters(&mut self, key: &str, item: &Item) -> Option<BTreeSet<Parameter>> {
        let Some(array) = item.as_array() else {
            let message = format!("`{key}` must be a list of parameters, as in `[\"seed\"]`");
            self.problem(item.span(), message);
            return None;
        };
        let mut parameters = BTreeSet::new();
        for value in array {
            let word = value.as_str().unwrap_or_default();
            parameters.extend(self.parameter(value.span(), word));
        }
        Some(parameters)
    }

    fn renamed(&mut self, key: &str, item: &Item) -> Option<BTreeMap<Parameter, String>> {
        let table = self.table(key, item)?;
        let mut renamed = BTreeMap::new();
        for (name, item) in table.iter() {
            let parameter = self.parameter(item.span(), name);
            let to = self.text(name, item);
            // Both names of the limit of tokens are graphrun's own, and one of them is sent.
            let is_limit =
                name.ends_with("_tokens") && to.as_ref().is_some_and(|it| it.ends_with("_tokens"));
            if let Some(taken) =
                to.as_deref().filter(|it| RequestSettings::OWN_PARAMETERS.contains(it) && !is_limit)
            {
                let message = format!("`{name}` cannot be sent as `{taken}`, which graphrun sets");
                self.problem(item.span(), message);
                continue;
            }
            renamed.extend(parameter.zip(to));
        }
        Some(renamed)
    }

    fn parameter(&mut self, span: Option<Range<usize>>, word: &str) -> Option<Parameter> {
        let parameter = Parameter::parse(word);
        if parameter.is_none() {
            self.unknown(span, "parameter", word, &names(Parameter::ALL, Parameter::as_str));
        }
        parameter
    }

    pub(crate) fn table<'i>(&mut self, key: &str, item: &'i Item) -> Option<&'i dyn TableLike> {
        let table = item.as_table_like();
        if table.is_none() {
            self.problem(item.span(), format!("`{key}` must be a table"));
        }
        table
    }
}

/// Returns why a header cannot be written into a file: it has an impossible name or value, or is a secret.
pub fn header_problem(name: &str, value: &str) -> Option<String> {
    if !is_header_name(name) {
        return Some(format!("`{name}` is no name of a header"));
    }
    if !value.chars().all(|it| it == '\t' || (' '..='~').contains(&it)) {
        return Some(format!("the header `{name}` has characters that headers do not have"));
    }
    let lower = name.to_ascii_lowercase();
    let is_own = [
        "content-type",
        "content-length",
        "host",
        "transfer-encoding",
        "connection",
        "idempotency-key",
    ];
    if is_own.contains(&lower.as_str()) {
        return Some(format!("graphrun sets the header `{name}` itself"));
    }
    let holds_key = ["authorization", "api-key", "cookie"];
    if holds_key.contains(&lower.as_str()) || names_a_secret(&lower) || redact(value) != value {
        return Some(format!(
            "the header `{name}` is not set here: a key stands in the environment variable of its provider"
        ));
    }
    None
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || "-_".contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml_edit::Document;

    fn problems(text: &str) -> Vec<String> {
        let document = Document::parse(text).unwrap();
        let mut problems = Vec::new();
        ProviderSettings::read(document.as_table(), &mut problems);
        let start = |it: &TableProblem| it.span.clone().expect("it has a place").start;
        problems.iter().map(|it| format!("{}: {}", start(it), it.message)).collect()
    }

    #[test]
    fn every_mistake_has_its_place_and_a_remedy() {
        for (text, expected) in [
            (
                "base_ulr = 'http://x'",
                "0: there is no setting of a provider `base_ulr`; did you mean `base_url`?",
            ),
            (
                "base_url = 'localhost'",
                "11: `base_url` is `localhost`: expected an address, as in `http://localhost:8000/v1`",
            ),
            ("base_url = 7", "11: `base_url` must be a text in quotes"),
            (
                "output = 'json_scheme'",
                "9: there is no `output` `json_scheme`; did you mean `json_schema`?",
            ),
            ("key_optional = 'yes'", "15: `key_optional` must be true or false"),
            (
                "protocol = 'claude'",
                "11: there is no `protocol` `claude`; there is chat, responses, anthropic, gemini",
            ),
            ("unsupported = ['sed']", "15: there is no parameter `sed`; did you mean `seed`?"),
            (
                "unsupported = 'seed'",
                "14: `unsupported` must be a list of parameters, as in `[\"seed\"]`",
            ),
            (
                "rename = { top_p = 'model' }",
                "19: `top_p` cannot be sent as `model`, which graphrun sets",
            ),
            ("rename = { sed = 'x' }", "17: there is no parameter `sed`; did you mean `seed`?"),
            ("headers = 'x'", "10: `headers` must be a table"),
            ("headers = { 'a b' = 'x' }", "20: `a b` is no name of a header"),
        ] {
            assert_eq!(problems(text), [expected], "{text}");
        }
    }

    #[test]
    fn a_key_in_the_table_is_refused_and_not_repeated() {
        let key = "sk-abcdefghijklmnop0123";
        for text in [
            format!("key_variable = '{key}'"),
            format!("headers = {{ x-note = '{key}' }}"),
            format!("headers = {{ authorization = 'Bearer {key}' }}"),
            "headers = { x-api-key = 'hunter2' }".to_owned(),
            format!("api_key = '{key}'"),
        ] {
            let found = problems(&text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(
                !found[0].contains(key) && found[0].contains("environment variable"),
                "{found:?}"
            );
        }
    }
}
