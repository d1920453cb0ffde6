//! What flags leave open: the environment says it, or else `graphrun.toml` in the current folder.
//!
//! [`KEYS`] is the list of what can be set. A value is kept as the text it was written as, with the
//! layer it came from, and is read by the code that reads the flag; so an error names its layer, and a
//! command that does not use a value does not fail by it. The file is read as a whole, in [`file`].

mod file;

use std::{collections::BTreeMap, env, fs, io, path::Path};

use super::{
    database::without_secrets,
    error::CliError,
    exit::Exit,
    options::RunOptions,
    values::{parse_count, parse_dollars, parse_duration},
};
use crate::llm::Prices;

/// The file, in the folder in which the program is started.
pub(super) const FILE: &str = "graphrun.toml";

/// The largest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Something that can be set.
#[derive(Debug)]
pub(super) struct Key {
    /// Its name in the file, with that of its table.
    pub(super) name: &'static str,
    /// The variable that says it before the file does.
    variable: &'static str,
    /// How the file writes it.
    kind: Kind,
    /// Says what is wrong with a value.
    check: fn(&str) -> Result<(), String>,
}

/// How a value is written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
}

/// Everything that can be set, prices and sizes of models aside.
#[rustfmt::skip] // a line for each
const KEYS: &[Key] = &[
    Key { name: "db", variable: "GRAPHRUN_DB", kind: Kind::Text, check: anything },
    Key { name: "model", variable: "GRAPHRUN_MODEL", kind: Kind::Text, check: anything },
    Key { name: "base_url", variable: "OPENAI_BASE_URL", kind: Kind::Text, check: address },
    Key { name: "lease", variable: "GRAPHRUN_LEASE", kind: Kind::Text, check: |it| parse_duration(it).map(drop) },
    Key { name: "limits.steps", variable: "GRAPHRUN_MAX_STEPS", kind: Kind::Number, check: |it| parse_count::<u64>(it).map(drop) },
    Key { name: "limits.tokens", variable: "GRAPHRUN_MAX_TOKENS", kind: Kind::Number, check: |it| parse_count::<u64>(it).map(drop) },
    Key { name: "limits.usd", variable: "GRAPHRUN_MAX_COST", kind: Kind::Number, check: |it| parse_dollars(it).map(drop) },
    Key { name: "limits.time", variable: "GRAPHRUN_TIMEOUT", kind: Kind::Text, check: |it| parse_duration(it).map(drop) },
];

/// What the environment and the file say.
#[derive(Debug, Default)]
pub(super) struct Config {
    said: BTreeMap<&'static str, Said>,
    /// What models cost.
    pub(super) prices: Prices,
    /// The most tokens that a request to a model and its reply can have together.
    pub(super) context: BTreeMap<String, u64>,
    /// Whether the file is there.
    pub(super) has_file: bool,
}

/// A value, and who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    /// A variable, or a place in the file.
    pub(super) layer: String,
}

impl Config {
    /// Reads the environment and the file of the current folder.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong with the file, each at its place.
    pub(super) fn read() -> Result<Self, CliError> {
        Self::of(Path::new("."), &|name| env::var(name).ok())
    }

    fn of(folder: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, CliError> {
        let mut config = match text_of(&folder.join(FILE))? {
            Some(text) => file::parse(&text).map_err(|problems| {
                CliError::new(Exit::Unusable, format!("`{FILE}` cannot be used"))
                    .with_problems(problems)
                    .with_help("docs/configuration.md tells what it may say; nothing was started")
            })?,
            None => Self::default(),
        };
        for key in KEYS {
            let text = variable(key.variable).filter(|it| !it.trim().is_empty());
            if let Some(text) = text {
                let layer = key.variable.to_owned();
                config.said.insert(key.name, Said { text, layer });
            }
        }
        Ok(config)
    }

    /// What is said of a key, by the environment or else the file.
    pub(super) fn get(&self, name: &str) -> Option<&Said> {
        self.said.get(name)
    }

    /// The most tokens that a request to a model and its reply can have together, if it is said. A name
    /// without a provider is one of OpenAI, as everywhere.
    pub(super) fn context_of(&self, model: &str) -> Option<u64> {
        let by_default =
            || self.context.get(&format!("openai/{model}")).filter(|_| !model.contains('/'));
        self.context.get(model).or_else(by_default).copied()
    }

    /// Everything that is said, without what may be secret in it.
    pub(super) fn shown(&self) -> Vec<String> {
        let line = |(name, it): (&&str, &Said)| {
            format!("{name} = {} ({})", without_secrets(&it.text), it.layer)
        };
        self.said.iter().map(line).collect()
    }

    /// The options of a run, filled with what is said here where no flag says it.
    ///
    /// # Errors
    ///
    /// Fails with every value that cannot be, and the layer it came from.
    pub(super) fn complete(&self, options: &RunOptions) -> Result<RunOptions, CliError> {
        let mut problems = Vec::new();
        let options = RunOptions {
            model: options.model.clone().or_else(|| self.get("model").map(|it| it.text.clone())),
            max_steps: options
                .max_steps
                .or_else(|| self.value("limits.steps", parse_count, &mut problems)),
            max_tokens: options
                .max_tokens
                .or_else(|| self.value("limits.tokens", parse_count, &mut problems)),
            max_cost: options
                .max_cost
                .or_else(|| self.value("limits.usd", parse_dollars, &mut problems)),
            timeout: options
                .timeout
                .or_else(|| self.value("limits.time", parse_duration, &mut problems)),
            ..options.clone()
        };
        if problems.is_empty() {
            return Ok(options);
        }
        Err(CliError::new(Exit::Unusable, "the configuration cannot be used; nothing was started")
            .with_problems(problems))
    }

    fn value<T>(
        &self,
        name: &str,
        read: fn(&str) -> Result<T, String>,
        problems: &mut Vec<String>,
    ) -> Option<T> {
        let Said { text, layer } = self.get(name)?;
        let wrong = |error| problems.push(format!("{layer} is `{text}`: {error}"));
        read(text).map_err(wrong).ok()
    }
}

/// The text of the file, if there is one.
fn text_of(path: &Path) -> Result<Option<String>, CliError> {
    let too_large = |it: &fs::Metadata| it.len() > BYTES_MAX;
    let read = fs::metadata(path).and_then(|it| {
        if too_large(&it) {
            let message = format!("it is larger than {BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        fs::read_to_string(path)
    });
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("`{FILE}` cannot be read; nothing was started");
            Err(CliError::new(Exit::Unusable, message).because(error))
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a check")]
fn anything(_: &str) -> Result<(), String> {
    Ok(())
}

fn address(text: &str) -> Result<(), String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(());
    }
    Err("expected an address, as in `http://localhost:8000/v1`".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::terminal::Paint, *};

    const FULL: &str = r#"
db = "sqlite:a.db"
model = "ollama/q"
base_url = "http://box:1/v1"
lease = "1m"
[limits]
steps = 7
tokens = 1_000
usd = 2.5
time = "45m"
"#;

    fn config(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), text).unwrap();
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
        };
        Config::of(folder.path(), &variable).map_err(|it| it.draw(Paint::new(false), 80))
    }

    #[test]
    fn a_flag_is_before_the_environment_and_that_before_the_file() {
        let config =
            config(FULL, &[("GRAPHRUN_MAX_STEPS", "8"), ("GRAPHRUN_MAX_TOKENS", "9")]).unwrap();
        let flags = RunOptions { max_steps: Some(1), ..RunOptions::default() };
        let options = config.complete(&flags).unwrap();
        assert_eq!((options.max_steps, options.max_tokens), (Some(1), Some(9)));
        assert_eq!(options.max_cost, Some(2.5));
        assert_eq!(options.timeout, Some(Duration::from_secs(2700)));
        assert_eq!(options.model.as_deref(), Some("ollama/q"));
    }

    #[test]
    fn what_is_set_is_shown_with_its_layer_and_without_passwords() {
        let db = ("GRAPHRUN_DB", "postgres://me:secret@db/app");
        let shown = config(FULL, &[db]).unwrap().shown();
        insta::assert_snapshot!(shown.join("\n"), @r"
        base_url = http://box:1/v1 (graphrun.toml:4:12)
        db = postgres://me:…@db/app (GRAPHRUN_DB)
        lease = 1m (graphrun.toml:5:9)
        limits.steps = 7 (graphrun.toml:7:9)
        limits.time = 45m (graphrun.toml:10:8)
        limits.tokens = 1000 (graphrun.toml:8:10)
        limits.usd = 2.5 (graphrun.toml:9:7)
        model = ollama/q (graphrun.toml:3:9)
        ");
    }

    #[test]
    fn a_wrong_value_of_the_environment_names_its_variable() {
        let config = config("", &[("GRAPHRUN_MAX_COST", "much"), ("GRAPHRUN_TIMEOUT", "5")]);
        let error = config.unwrap().complete(&RunOptions::default()).unwrap_err();
        assert_eq!(error.exit(), Exit::Unusable);
        let text = error.draw(Paint::new(false), 80);
        assert!(text.contains("GRAPHRUN_MAX_COST is `much`: expected an amount"), "{text}");
        assert!(text.contains("GRAPHRUN_TIMEOUT is `5`: "), "{text}");
    }

    #[test]
    fn a_flag_hides_what_is_wrong_behind_it() {
        let config = config("", &[("GRAPHRUN_MAX_STEPS", "x")]).unwrap();
        let flags = RunOptions { max_steps: Some(1), ..RunOptions::default() };
        assert_eq!(config.complete(&flags).unwrap().max_steps, Some(1));
    }

    #[test]
    fn every_mistake_of_a_file_is_found_at_once_each_at_its_place() {
        let text = config(
            r#"modle = "x"
base_url = "box:1"
db = 5
limits = { step = 1, tokens = "many", usd = -1, time = "0s" }
[prices."a/b"]
input_per_million = "cheap"
output = 3
[prices.c]
input_per_million = -1
output_per_million = 1
[context]
"a/b" = 0
[limit]
"#,
            &[],
        );
        insta::assert_snapshot!(text.unwrap_err(), @r#"
        error: `graphrun.toml` cannot be used
          - graphrun.toml:1:1: there is no setting `modle`; did you mean `model`?
          - graphrun.toml:2:12: `base_url` is `box:1`: expected an address, as in `http://localhost:8000/v1`
          - graphrun.toml:3:6: `db` is a text in quotes, and this is a number
          - graphrun.toml:4:12: there is no setting `limits.step`; did you mean `steps`?
          - graphrun.toml:4:31: `limits.tokens` is a number, and this is a text
          - graphrun.toml:4:45: `limits.usd` is `-1`: expected an amount above zero, as in `2.50`
          - graphrun.toml:4:56: `limits.time` is `0s`: expected a time above zero, as in `90s`, `1h 30m` or `30d`
          - graphrun.toml:7:1: there is no setting `output`; there is input_per_million, output_per_million, cached_input_per_million
          - graphrun.toml:6:21: `input_per_million` is a number, and this is a text
          - graphrun.toml:5:9: the price of `a/b` has no `output_per_million`
          - graphrun.toml:9:21: `input_per_million` is a number of 0 or more
          - graphrun.toml:12:9: `a/b` is a number of 1 or more
          - graphrun.toml:13:2: there is no setting `limit`; did you mean `limits`?
        help: docs/configuration.md tells what it may say; nothing was started
        "#);
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_place() {
        let text = config("db = \"a\"\n[prices.openai/gpt-5]\ninput_per_million = 1\n", &[]);
        insta::assert_snapshot!(text.unwrap_err(), @r#"
        error: `graphrun.toml` cannot be used
          - graphrun.toml:2:15: invalid unquoted key, expected letters, numbers, `-`, `_`
          - the name of a model is quoted: `[prices."lab/model"]`
        help: docs/configuration.md tells what it may say; nothing was started
        "#);
    }

    #[test]
    fn without_a_file_nothing_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::of(folder.path(), &|_| None).unwrap();
        assert!(!config.has_file && config.shown().is_empty() && config.prices.is_empty());
    }
}
