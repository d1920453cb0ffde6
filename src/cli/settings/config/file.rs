//! Reads a configuration file; reports every mistake with line and column.

use std::{collections::BTreeMap, ops::Range};

use toml_edit::{Document, Item, Key as Name, TableLike};

use super::{ConfigValue, KEYS, ValueKind};
use crate::{
    cli::settings::database::shown_setting,
    diagnostic::did_you_mean,
    models::{Price, ProviderSettings},
    workflow::{Approval, HostPermission, parse_shape},
};

/// The tables whose keys are names of models, providers or hosts.
const BY_NAME: [&str; 4] = ["prices", "context", "providers", "hosts"];

/// The keys of a host.
const HOST_KEYS: [&str; 3] = ["commands", "secrets", "approve"];

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct ParsedFile {
    pub(super) settings: BTreeMap<&'static str, ConfigValue>,
    /// The prices and context windows of models, each with its place in the file.
    pub(super) prices: BTreeMap<String, (Price, String)>,
    pub(super) context: BTreeMap<String, (u64, String)>,
    pub(super) providers: BTreeMap<String, ConfiguredProvider>,
    /// The permissions on hosts, each with its place in the file.
    pub(super) hosts: BTreeMap<String, (HostPermission, String)>,
}

/// The settings of a provider, with their place in the file.
#[derive(Debug)]
pub(super) struct ConfiguredProvider {
    pub(super) settings: ProviderSettings,
    pub(super) place: String,
}

/// Parses the text of a file; `name` is its name in messages.
///
/// # Errors
///
/// Returns every mistake, with its position.
pub(super) fn parse(text: &str, name: &str) -> Result<ParsedFile, Vec<String>> {
    let mut reading = FileReader { text, name, problems: Vec::new() };
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            reading.problem(error.span(), &message);
            let line =
                error.span().and_then(|it| text.get(..it.start)).map(|it| it.lines().count());
            let line = line.and_then(|it| text.lines().nth(it.saturating_sub(1)));
            if line.is_some_and(|it| it.contains('/')) {
                let hint = "the name of a model is quoted: `[prices.\"lab/model\"]`";
                reading.problems.push(hint.to_owned());
            }
            return Err(reading.problems);
        }
    };
    let mut config = ParsedFile::default();
    reading.table(document.as_table(), "", &mut config);
    if reading.problems.is_empty() { Ok(config) } else { Err(reading.problems) }
}

/// The state of reading a file.
struct FileReader<'a> {
    text: &'a str,
    name: &'a str,
    problems: Vec<String>,
}

impl FileReader<'_> {
    /// Reads a table of settings; `above` is the prefix of its keys, with a dot at the end.
    fn table(&mut self, table: &dyn TableLike, above: &str, config: &mut ParsedFile) {
        for (name, item) in entries(table) {
            let full = format!("{above}{}", name.get());
            if let Some(key) = KEYS.iter().find(|it| it.name == full) {
                let text = self.plain(&full, key.kind, item);
                let checked = text.and_then(|text| match (key.check)(&text) {
                    Ok(()) => Some(text),
                    Err(error) => {
                        let shown = shown_setting(&text);
                        self.problem(item.span(), &format!("`{full}` is `{shown}`: {error}"));
                        None
                    }
                });
                if let Some(text) = checked {
                    let layer = self.place(item.span());
                    config
                        .settings
                        .insert(key.name, ConfigValue { text, layer, is_untrusted: false });
                }
            } else if above.is_empty() && full == "limits" {
                self.inner(&full, item, |reading, table| reading.table(table, "limits.", config));
            } else if above.is_empty() && full == "prices" {
                let mut prices = Vec::new();
                self.inner(&full, item, |reading, table| prices = reading.prices(table));
                config.prices = prices.into_iter().collect();
            } else if above.is_empty() && full == "context" {
                self.inner(&full, item, |reading, table| {
                    for (name, item) in entries(table) {
                        let place = reading.place(name.span());
                        let size = reading.number(name.get(), item, 1.0);
                        let size = size.map(|it| (name.get().to_owned(), (whole(it), place)));
                        config.context.extend(size);
                    }
                });
            } else if above.is_empty() && full == "providers" {
                self.inner(&full, item, |reading, table| {
                    for (name, item) in entries(table) {
                        let provider = reading.provider(name, item);
                        config.providers.extend(provider.map(|it| (name.get().to_owned(), it)));
                    }
                });
            } else if above.is_empty() && full == "hosts" {
                self.inner(&full, item, |reading, table| {
                    for (name, item) in entries(table) {
                        let place = reading.place(name.span());
                        let host = reading.host(name.get(), item);
                        config.hosts.extend(host.map(|it| (name.get().to_owned(), (it, place))));
                    }
                });
            } else {
                let inner = |name: &'static str| match name.strip_prefix(above) {
                    Some(rest) => rest.split('.').next(),
                    None => None,
                };
                let known = KEYS.iter().filter_map(|it| inner(it.name));
                let known = known.chain(BY_NAME.into_iter().filter(|_| above.is_empty()));
                self.unknown(name, &full, known);
            }
        }
    }

    fn provider(&mut self, name: &Name, item: &Item) -> Option<ConfiguredProvider> {
        let word = name.get();
        let fits = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        if word.is_empty() || !word.chars().all(fits) {
            let message =
                format!("`{word}` is no name of a provider: use letters, digits, `-` and `_`");
            self.problem(name.span(), &message);
            return None;
        }
        let place = self.place(name.span());
        let mut settings = None;
        self.inner(&format!("providers.{word}"), item, |reading, table| {
            let mut problems = Vec::new();
            settings = Some(ProviderSettings::read(table, &mut problems));
            for problem in problems {
                reading.problem(problem.span, &problem.message);
            }
        });
        Some(ConfiguredProvider { settings: settings?, place })
    }

    fn host(&mut self, host: &str, item: &Item) -> Option<HostPermission> {
        let mut permission = None;
        self.inner(&format!("hosts.{host}"), item, |reading, table| {
            for (name, _) in entries(table).filter(|(name, _)| !HOST_KEYS.contains(&name.get())) {
                let full = format!("hosts.{host}.{}", name.get());
                reading.unknown(name, &full, HOST_KEYS.into_iter());
            }
            let (commands, secrets, approve) =
                (table.get("commands"), table.get("secrets"), table.get("approve"));
            let commands = if let Some(item) = commands {
                reading.commands(host, item)
            } else {
                let message = format!("`hosts.{host}` has no `commands`, as in `[\"git push\"]`");
                reading.problem(item.span(), &message);
                None
            };
            let secrets = secrets.map_or(Some(Vec::new()), |it| reading.texts("secrets", it));
            let approve = approve.map_or(Some(Approval::Each), |it| reading.approval(it));
            permission =
                commands.zip(secrets).zip(approve).map(|((commands, secrets), approve)| {
                    HostPermission { commands: Some(commands), secrets: Some(secrets), approve }
                });
        });
        permission
    }

    fn commands(&mut self, host: &str, item: &Item) -> Option<Vec<Vec<String>>> {
        let texts = self.texts("commands", item)?;
        let mut shapes = Vec::new();
        for text in texts {
            match parse_shape(&text) {
                Ok(shape) => shapes.push(shape),
                Err(reason) => {
                    let message = format!("`{text}` cannot be allowed on `{host}`: {reason}");
                    self.problem(item.span(), &message);
                    return None;
                }
            }
        }
        Some(shapes)
    }

    fn approval(&mut self, item: &Item) -> Option<Approval> {
        let found = item.as_str().and_then(Approval::named);
        if found.is_none() {
            self.wrong_kind("approve", item, "\"each\", \"once\" or \"never\"");
        }
        found
    }

    /// Returns a list of texts.
    fn texts(&mut self, name: &str, item: &Item) -> Option<Vec<String>> {
        let items = item.as_array();
        let texts =
            items.and_then(|list| list.iter().map(|it| it.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.wrong_kind(name, item, "a list of texts");
        }
        texts
    }

    fn prices(&mut self, table: &dyn TableLike) -> Vec<(String, (Price, String))> {
        let mut prices = Vec::new();
        for (name, item) in entries(table) {
            let model = name.get();
            let place = self.place(name.span());
            let mut price = None;
            self.inner(&format!("prices.\"{model}\""), item, |reading, table| {
                let mut problems = Vec::new();
                price = Price::read(model, table, &mut problems);
                for problem in problems {
                    reading.problem(problem.span.or(name.span()), &problem.message);
                }
            });
            prices.extend(price.map(|it| (model.to_owned(), (it, place))));
        }
        prices
    }

    /// Returns a text, or a number as text.
    fn plain(&mut self, name: &str, kind: ValueKind, item: &Item) -> Option<String> {
        let wanted = match kind {
            ValueKind::Text if item.is_str() => return item.as_str().map(str::to_owned),
            ValueKind::Number if item.is_integer() => {
                return item.as_integer().map(|it| it.to_string());
            }
            ValueKind::Number if item.is_float() => {
                return item.as_float().map(|it| it.to_string());
            }
            ValueKind::Text => "a text in quotes",
            ValueKind::Number => "a number",
        };
        self.wrong_kind(name, item, wanted);
        None
    }

    #[expect(clippy::cast_precision_loss, reason = "no price and no model is as large as 2^52")]
    fn number(&mut self, name: &str, item: &Item, least: f64) -> Option<f64> {
        let number = item.as_float().or_else(|| item.as_integer().map(|it| it as f64));
        match number {
            Some(number) if number.is_finite() && number >= least => Some(number),
            Some(_) => {
                let message = format!("`{name}` must be a number of {least} or more");
                self.problem(item.span(), &message);
                None
            }
            None => {
                self.wrong_kind(name, item, "a number");
                None
            }
        }
    }

    fn inner(&mut self, name: &str, item: &Item, read: impl FnOnce(&mut Self, &dyn TableLike)) {
        match item.as_table_like() {
            Some(table) => read(self, table),
            None => self.wrong_kind(name, item, "a table"),
        }
    }

    fn wrong_kind(&mut self, name: &str, item: &Item, wanted: &str) {
        let found = match item.type_name() {
            "string" => "a text",
            "integer" | "float" => "a number",
            "boolean" => "true or false",
            "array" | "array of tables" => "a list",
            "table" | "inline table" => "a table",
            _ => "a time",
        };
        let message = format!("`{name}` must be {wanted}, not {found}");
        self.problem(item.span(), &message);
    }

    fn unknown(&mut self, name: &Name, full: &str, known: impl Iterator<Item = &'static str>) {
        let mut known: Vec<&str> = known.collect();
        known.dedup();
        let near = did_you_mean(name.get(), known.iter().copied());
        let hint = near.map_or_else(
            || format!("; there is {}", known.join(", ")),
            |near| format!("; did you mean `{near}`?"),
        );
        self.problem(name.span(), &format!("there is no setting `{full}`{hint}"));
    }

    fn problem(&mut self, at: Option<Range<usize>>, message: &str) {
        self.problems.push(format!("{}: {message}", self.place(at)));
    }

    fn place(&self, at: Option<Range<usize>>) -> String {
        let before = at.and_then(|it| self.text.get(..it.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |it| it + 1);
        format!("{}:{line}:{}", self.name, before[start..].chars().count() + 1)
    }
}

/// Returns the entries of a table in order.
fn entries(table: &dyn TableLike) -> impl Iterator<Item = (&Name, &Item)> {
    table.iter().filter_map(|(name, _)| table.get_key_value(name))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is 1 or more, and larger values saturate"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
