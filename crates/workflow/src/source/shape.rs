//! Reads the values of the format by the type expected at their place.

use std::{fmt::Display, str::FromStr, time::Duration};

use graphrun_core::{
    diagnostic::{Diagnostic, did_you_mean},
    graph::Target,
    id::{ChannelName, NodeName},
    state::Schema,
};
use graphrun_expressions::problem::suggestion;

use super::{
    reader::{Data, Entry, SpannedText, Yaml},
    report::Report,
};
use crate::format::MappingKeys;

/// Keys of later versions of the format.
const LATER: &[&str] = &["worktree"];

/// The most keys that are listed for an unknown one; a node has far more.
const KEYS_SHOWN_MAX: usize = 8;

/// Keys and words of other formats, and their names in this one.
const ELSEWHERE: &[(&str, &str)] = &[
    ("backstory", "system"),
    ("condition", "when"),
    ("conditional_edges", "then"),
    ("continue-on-error", "catch"),
    ("depends_on", "join"),
    ("description", "about"),
    ("edges", "then"),
    ("else", "to"),
    ("entry", "start"),
    ("entry_point", "start"),
    ("entrypoint", "start"),
    ("expected_output", "writes"),
    ("goto", "then"),
    ("human_input", "ask"),
    ("if", "when"),
    ("inputs", "input"),
    ("instructions", "system"),
    ("jobs", "nodes"),
    ("llm", "model"),
    ("max_iter", "max_tool_rounds"),
    ("max_iterations", "max_visits"),
    ("max_retries", "retry"),
    ("needs", "join"),
    ("next", "then"),
    ("on_error", "catch"),
    ("output", "writes"),
    ("outputs", "output"),
    ("outputs", "writes"),
    ("question", "ask"),
    ("recursion_limit", "limits"),
    ("reducer", "merge"),
    ("retries", "retry"),
    ("role", "system"),
    ("routes", "then"),
    ("state_schema", "state"),
    ("steps", "nodes"),
    ("system_prompt", "system"),
    ("tasks", "nodes"),
    ("timeout-minutes", "timeout"),
    ("uses", "use"),
    ("variables", "state"),
    ("vars", "state"),
];

/// Keys of other formats without a name in this one: the key, a known key beside it, and what stands for it.
const IN_OTHER_WORDS: &[(&str, &str, &str)] = &[
    (
        "conditional_edges",
        "nodes",
        "each node leads on itself: `then: [{ when: CONDITION, to: NODE }, { to: NODE }]`",
    ),
    ("edges", "nodes", "each node leads on itself: `then: NODE`"),
    ("else", "to", "the last case has no `when`: `{ to: NODE }`"),
    (
        "with",
        "use",
        "`use: { workflow: FILE, in: { … } }` has the inputs of the workflow, and `args` those of a tool",
    ),
];

/// A mapping whose keys are known.
///
/// An optional key is read by `get`, a method of the [`Report`], and the default behind both. A value that is not valid is
/// reported by then, and the default takes its place:
///
/// ```text
/// let time = section.get("time").and_then(|it| report.duration(it, "`time`")).unwrap_or(TIME);
/// ```
#[derive(Debug)]
pub struct Section<'a> {
    what: String,
    yaml: &'a Yaml,
    entries: Vec<&'a Entry>,
    /// The unknown keys, each with the one that may be meant.
    misspelt: Vec<String>,
}

impl<'a> Section<'a> {
    /// Reads a mapping with the keys that a struct describes, and reports every unknown key.
    pub(crate) fn read<K: MappingKeys>(
        report: &mut Report,
        yaml: &'a Yaml,
        what: &str,
    ) -> Option<Self> {
        Self::read_known(report, yaml, what, K::keys())
    }

    /// Like `read`, for keys that depend on a kind of node, or are some of those of a struct.
    pub(crate) fn read_known(
        report: &mut Report,
        yaml: &'a Yaml,
        what: &str,
        known: &[&str],
    ) -> Option<Self> {
        Self::read_hinted(report, yaml, what, known, |_| None)
    }

    /// Like `read_known`, with additional suggestions for unknown keys.
    pub(crate) fn read_hinted(
        report: &mut Report,
        yaml: &'a Yaml,
        what: &str,
        known: &[&str],
        hint: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let Data::Map(entries) = &yaml.data else {
            let diagnostic = report.of_wrong_kind(yaml, what, "a mapping");
            report.push(match known.len() {
                0..=KEYS_SHOWN_MAX => {
                    diagnostic.help(format!("its keys are: {}", known.join(", ")))
                }
                _ => diagnostic,
            });
            return None;
        };
        let is_known = |entry: &&Entry| known.contains(&entry.key.text.as_str());
        let (entries, others): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(is_known);
        let mut misspelt = Vec::new();
        for Entry { key, .. } in others {
            report.unknown_key(key, what, known, hint(&key.text));
            misspelt.extend(meant_by(&key.text, known).map(str::to_owned));
        }
        Some(Self { what: what.to_owned(), yaml, entries, misspelt })
    }

    /// Returns the whole mapping, with unknown keys.
    pub(crate) fn yaml(&self) -> &'a Yaml {
        self.yaml
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&'a Yaml> {
        self.entries.iter().find(|it| it.key.text == key).map(|it| &it.value)
    }

    /// Returns a key with its place.
    pub fn key(&self, key: &str) -> Option<&'a SpannedText> {
        self.entries.iter().find(|it| it.key.text == key).map(|it| &it.key)
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a SpannedText> {
        self.entries.iter().map(|it| &it.key)
    }

    /// Returns whether the mapping has a key, or a reported one that may have been meant for it.
    pub fn has_or_means(&self, key: &str) -> bool {
        self.get(key).is_some() || self.misspelt.iter().any(|it| it == key)
    }

    /// Returns the value of a required key; reported if there is none. `help` is what to write.
    pub fn require(&self, report: &mut Report, key: &str, help: &str) -> Option<&'a Yaml> {
        let found = self.get(key);
        if !self.has_or_means(key) {
            // The place is the first key: the section may be as long as the file.
            let span = self.entries.first().map_or(&self.yaml.range, |it| &it.key.range);
            report.push(
                Diagnostic::error("GR006", format!("{} has no `{key}`", self.what))
                    .at(report.span(span), "here")
                    .help(help),
            );
        }
        found
    }
}

impl Report {
    fn unknown_key(&mut self, key: &SpannedText, what: &str, known: &[&str], hint: Option<String>) {
        if is_later(&key.text) {
            let message = format!("this version does not support `{}` yet", key.text);
            self.push(Diagnostic::error("GR004", message).at(self.span(&key.range), "not yet"));
            return;
        }
        let merge =
            (key.text == "<<").then(|| "there are no merge keys; write the keys out".to_owned());
        let sentence = IN_OTHER_WORDS.iter().find(|it| it.0 == key.text && known.contains(&it.1));
        let called = || match sentence {
            Some((_, _, sentence)) => Some((*sentence).to_owned()),
            None => Some(format!("this format calls it `{}`", elsewhere(&key.text, known)?)),
        };
        let near = || suggestion(&key.text, known.iter().copied());
        let help = hint.or(merge).or_else(called).or_else(near).unwrap_or_default();
        self.push(
            Diagnostic::error("GR003", format!("{what} takes no key `{}`", key.text))
                .at(self.span(&key.range), "not a key here")
                .help(help),
        );
    }

    /// Reports a value of another kind; `what` is the subject of the message, `wanted` what was
    /// expected.
    pub fn wrong_kind(&mut self, yaml: &Yaml, what: &str, wanted: &str) {
        let diagnostic = self.of_wrong_kind(yaml, what, wanted);
        self.push(diagnostic);
    }

    /// Returns the diagnostic that a value does not have the expected kind.
    pub(crate) fn of_wrong_kind(&self, yaml: &Yaml, what: &str, wanted: &str) -> Diagnostic {
        let found = match &yaml.data {
            Data::Null => "nothing".to_owned(),
            Data::Scalar { text, plain: true } if text.chars().count() <= 20 => format!("`{text}`"),
            Data::Scalar { text, plain: true } if text.parse::<f64>().is_ok() => {
                format!("a number of {} digits", text.chars().filter(char::is_ascii_digit).count())
            }
            Data::Scalar { text, plain: false } if text.chars().count() <= 20 => {
                format!("the text \"{text}\"")
            }
            Data::Scalar { .. } => "a text".to_owned(),
            Data::List(items) if items.is_empty() => "an empty list".to_owned(),
            Data::List(_) => "a list".to_owned(),
            Data::Map(entries) if entries.is_empty() => "an empty mapping".to_owned(),
            Data::Map(_) => "a mapping".to_owned(),
        };
        let source = self.file.text.get(yaml.range.clone()).unwrap_or_default();
        let braces = matches!(yaml.data, Data::Map(_)) && source.starts_with('{');
        let diagnostic = Diagnostic::error("GR005", format!("{what} is {wanted}, not {found}"))
            .at(self.span(&yaml.range), format!("expected {wanted}"));
        if braces && wanted.contains("text") {
            diagnostic.help("a text that starts with `{` must be quoted")
        } else if matches!(yaml.data, Data::List(_)) && wanted.contains("mapping") {
            diagnostic.help("write `NAME: …` for each, without `- `")
        } else if let (Data::Null, Some((key, value))) = (&yaml.data, self.split_key(yaml)) {
            diagnostic.help(format!("write a blank after the colon: `{key}: {value}`"))
        } else {
            diagnostic
        }
    }

    /// Returns the parts of the key before a missing value, if a value was meant to follow its colon: `{a:int}`.
    fn split_key(&self, missing: &Yaml) -> Option<(&str, &str)> {
        let before = self.file.text.get(..missing.range.start)?;
        let key = before.rsplit(['\n', '{', ',']).next()?.trim();
        key.split_once(':').filter(|(_, value)| !value.is_empty())
    }

    /// Reports a value that is not accepted.
    pub fn bad_value(&mut self, word: &SpannedText, message: impl Into<String>, help: &str) {
        let diagnostic = Diagnostic::error("GR009", message).at(self.span(&word.range), "here");
        self.push(if help.is_empty() { diagnostic } else { diagnostic.help(help) });
    }

    /// Reads a text.
    pub fn word(&mut self, yaml: &Yaml, what: &str) -> Option<SpannedText> {
        let word = yaml.word();
        if word.is_none() {
            self.wrong_kind(yaml, what, "a text");
        }
        word
    }

    /// Reads one text, or a list of texts.
    pub fn words(&mut self, yaml: &Yaml, what: &str) -> Vec<SpannedText> {
        match &yaml.data {
            Data::List(items) => {
                let item = format!("each item of {what}");
                items.iter().filter_map(|it| self.word(it, &item)).collect()
            }
            Data::Scalar { .. } => yaml.word().into_iter().collect(),
            Data::Null | Data::Map(_) => {
                self.wrong_kind(yaml, what, "a name or a list of names");
                Vec::new()
            }
        }
    }

    /// Reports an empty list or mapping where a value is needed.
    pub fn refuse_empty(&mut self, yaml: &Yaml, what: &str, wanted: &str) {
        let is_empty = match &yaml.data {
            Data::List(items) => items.is_empty(),
            Data::Map(entries) => entries.is_empty(),
            Data::Null | Data::Scalar { .. } => false,
        };
        if is_empty {
            self.wrong_kind(yaml, what, wanted);
        }
    }

    /// Reads a number within bounds.
    pub fn number<T>(
        &mut self,
        yaml: &Yaml,
        what: &str,
        wanted: &str,
        fits: impl Fn(&T) -> bool,
    ) -> Option<T>
    where
        T: FromStr,
    {
        let number = match &yaml.data {
            // YAML readers differ on `010`: eight, or ten.
            Data::Scalar { text, plain: true } if !has_leading_zero(text) => {
                text.replace('_', "").parse().ok()
            }
            _ => None,
        };
        let number = number.filter(fits);
        if number.is_none() {
            self.wrong_kind(yaml, what, wanted);
        }
        number
    }

    /// Reads `true` or `false`.
    pub fn bool(&mut self, yaml: &Yaml, what: &str) -> Option<bool> {
        let value = match &yaml.data {
            Data::Scalar { text, plain: true } => text.parse().ok(),
            _ => None,
        };
        if value.is_none() {
            self.wrong_kind(yaml, what, "`true` or `false`");
        }
        value
    }

    /// Reads a whole number that is at least `min`.
    pub fn count<T>(&mut self, yaml: &Yaml, what: &str, min: T) -> Option<T>
    where
        T: Copy + FromStr + PartialOrd + Display,
    {
        let wanted = format!("a whole number from {min} on");
        self.number(yaml, what, &wanted, |it| *it >= min)
    }

    /// Reads a duration such as `90s`, `10m` or `1h30m`.
    pub fn duration(&mut self, yaml: &Yaml, what: &str) -> Option<Duration> {
        let duration = duration_of(yaml);
        if duration.is_none() {
            self.wrong_kind(yaml, what, "a span of time such as `90s`, `10m` or `24h`");
        }
        duration
    }

    /// Reads a number of bytes such as `512M` or `2G`.
    pub fn bytes(&mut self, yaml: &Yaml, what: &str) -> Option<u64> {
        let parse = |text: &str| {
            let units = [("K", 10), ("M", 20), ("G", 30)];
            let (unit, shift) = units.into_iter().find(|(unit, _)| text.ends_with(unit))?;
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(1 << shift).filter(|it| *it > 0)
        };
        let bytes = yaml.text().and_then(parse);
        if bytes.is_none() {
            self.wrong_kind(yaml, what, "an amount of memory such as `512M` or `2G`");
        }
        bytes
    }

    /// Resolves a field of the state.
    pub(crate) fn channel(&mut self, word: &SpannedText, schema: &Schema) -> Option<ChannelName> {
        let found = schema.channel(&word.text).map(|it| it.name().clone());
        if found.is_none() {
            let known = schema.channels().iter().map(|it| it.name().as_str());
            self.unknown("GR021", "field of the state", word, known);
        }
        found
    }

    pub(crate) fn channels(
        &mut self,
        yaml: &Yaml,
        what: &str,
        schema: &Schema,
    ) -> Vec<ChannelName> {
        let words = self.words(yaml, what);
        let mut channels = Vec::new();
        for word in words {
            match self.channel(&word, schema) {
                Some(channel) if channels.contains(&channel) => {
                    self.named_twice(&word, what);
                }
                channel => channels.extend(channel),
            }
        }
        channels
    }

    /// Reports a word of a list that stands there already.
    pub fn named_twice(&mut self, word: &SpannedText, what: &str) {
        let diagnostic = Diagnostic::error("GR002", format!("{what} names `{}` twice", word.text));
        self.push(diagnostic.at(self.span(&word.range), "again"));
    }

    pub(crate) fn node_name(&mut self, word: &SpannedText) -> Option<NodeName> {
        match NodeName::parse(&word.text) {
            Ok(name) => Some(name),
            Err(error) => {
                let help = "letters from a to z, digits, `_` and `-`, not starting with a digit";
                self.bad_value(word, error.to_string(), help);
                None
            }
        }
    }
}

/// Returns whether a key belongs to a later version of the format.
pub(crate) fn is_later(key: &str) -> bool {
    LATER.contains(&key)
}

/// Returns the known key that may be meant by an unknown one.
fn meant_by<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    elsewhere(key, known).or_else(|| did_you_mean(key, known.iter().copied()))
}

/// Returns the known key for a key of another format.
fn elsewhere<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let mut own = ELSEWHERE.iter().filter(|(other, _)| *other == key).map(|it| it.1);
    own.find_map(|own| known.iter().copied().find(|it| *it == own))
}

/// Returns the duration of a value, if it is one.
pub(crate) fn duration_of(yaml: &Yaml) -> Option<Duration> {
    let parsed = yaml.text().and_then(|it| it.parse::<jiff::SignedDuration>().ok());
    parsed.and_then(|it| Duration::try_from(it).ok()).filter(|it| !it.is_zero())
}

/// Returns the built-in target of a name.
pub(crate) fn built_in(name: &str) -> Option<Target> {
    match name {
        "end" => Some(Target::End),
        "fail" => Some(Target::Fail),
        _ => None,
    }
}

fn has_leading_zero(number: &str) -> bool {
    let digits = number.trim_start_matches(['-', '+']).as_bytes();
    digits.first() == Some(&b'0') && digits.get(1).is_some_and(u8::is_ascii_digit)
}
