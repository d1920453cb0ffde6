//! Settings that no flag gives: from the environment, the `graphrun.toml` of the current folder,
//! and the user's configuration.
//!
//! [`KEYS`] lists all settings. A value is stored as text with the layer it came from, and the code
//! that parses the flag parses it too. So an error names its layer, and a command that does not use
//! a value does not fail on it. [`file`] reads whole files. [`trust`] decides which settings of a
//! folder's file require that the user trusts the folder.

mod file;
mod layers;
mod trust;

use std::{collections::BTreeMap, sync::Arc};

use self::trust::{Amount, Trust};
pub(crate) use self::{layers::FolderFile, trust::WithheldSetting};
use super::{database::shown_setting, run_settings::UntrustedLimits};
use crate::{
    cli::{
        arguments::{
            options::RunOptions,
            values::{parse_count, parse_dollars, parse_duration},
        },
        error::CliError,
        exit::Exit,
    },
    models::{ContextWindows, Prices, Providers},
    workflow::HostPermission,
};

/// The file, in the working directory.
pub(crate) const FILE: &str = "graphrun.toml";

/// A setting.
#[derive(Debug)]
pub(crate) struct Key {
    /// The name in the file, including its table.
    pub(crate) name: &'static str,
    /// The environment variable, which takes precedence over the file.
    variable: &'static str,
    /// How the file writes the value.
    kind: ValueKind,
    /// Checks a value; the error describes the problem.
    check: fn(&str) -> Result<(), String>,
    /// Whether the file of a folder may set it only if the user trusts the folder.
    trust: Trust,
}

/// The TOML type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Text,
    Number,
}

/// Why a base URL of models needs trust.
const KEYS_GO_THERE: &str = "it receives every request to a model, with your key";

/// All settings besides the prices and context sizes of models.
#[rustfmt::skip] // a line for each
const KEYS: &[Key] = &[
    Key { name: "db", variable: "GRAPHRUN_DB", kind: ValueKind::Text, check: anything, trust: Trust::Database },
    Key { name: "memory", variable: "GRAPHRUN_MEMORY", kind: ValueKind::Text, check: anything, trust: Trust::Database },
    Key { name: "model", variable: "GRAPHRUN_MODEL", kind: ValueKind::Text, check: anything, trust: Trust::Harmless },
    Key { name: "base_url", variable: "OPENAI_BASE_URL", kind: ValueKind::Text, check: address, trust: Trust::Needed(KEYS_GO_THERE) },
    Key { name: "lease", variable: "GRAPHRUN_LEASE", kind: ValueKind::Text, check: |it| parse_duration(it).map(drop), trust: Trust::Harmless },
    Key { name: "limits.steps", variable: "GRAPHRUN_MAX_STEPS", kind: ValueKind::Number, check: |it| parse_count::<u64>(it).map(drop), trust: Trust::Limit(Amount::Number) },
    Key { name: "limits.calls", variable: "GRAPHRUN_MAX_CALLS", kind: ValueKind::Number, check: |it| parse_count::<u64>(it).map(drop), trust: Trust::Limit(Amount::Number) },
    Key { name: "limits.tokens", variable: "GRAPHRUN_MAX_TOKENS", kind: ValueKind::Number, check: |it| parse_count::<u64>(it).map(drop), trust: Trust::Limit(Amount::Number) },
    Key { name: "limits.usd", variable: "GRAPHRUN_MAX_COST", kind: ValueKind::Number, check: |it| parse_dollars(it).map(drop), trust: Trust::Limit(Amount::Number) },
    Key { name: "limits.time", variable: "GRAPHRUN_TIMEOUT", kind: ValueKind::Text, check: |it| parse_duration(it).map(drop), trust: Trust::Limit(Amount::Time) },
];

/// The settings from the environment and the files.
#[derive(Debug, Default)]
pub(crate) struct Config {
    settings: BTreeMap<&'static str, ConfigValue>,
    /// The prices of models.
    pub(crate) prices: Prices,
    /// The prices without those of an untrusted file.
    pub(crate) trusted_prices: Prices,
    /// Whether the user limits the cost of runs, apart from flags.
    pub(crate) is_cost_limited: bool,
    /// The most tokens of a request to a model together with its reply.
    pub(crate) windows: ContextWindows,
    /// The providers of models.
    pub(crate) providers: Arc<Providers>,
    /// What the user allows on hosts. The file of a folder cannot extend it.
    pub(crate) hosts: BTreeMap<String, HostPermission>,
    /// The places that set prices and context windows of models. Those of other models are built in.
    pub(crate) price_places: BTreeMap<String, String>,
    pub(crate) window_places: BTreeMap<String, String>,
    /// The last place that configures each provider.
    pub(crate) provider_places: BTreeMap<String, String>,
    /// The files that were read, as they are shown.
    files: Vec<String>,
    /// The ignored settings of an untrusted file.
    withheld: Vec<WithheldSetting>,
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigValue {
    pub(crate) text: String,
    /// The environment variable, or a position in a file.
    pub(crate) layer: String,
    /// Whether it comes from a folder that the user does not trust.
    pub(crate) is_untrusted: bool,
}

impl Config {
    /// Returns the value of a key from the first layer that sets it.
    pub(crate) fn get(&self, name: &str) -> Option<&ConfigValue> {
        self.settings.get(name)
    }

    /// Returns the settings that are ignored because the user does not trust the folder.
    pub(crate) fn withheld(&self) -> &[WithheldSetting] {
        &self.withheld
    }

    /// Checks that none of the selected settings requires the user's trust.
    ///
    /// # Errors
    ///
    /// Fails with each of them, its position and the remedies.
    pub(crate) fn check_trust(
        &self,
        needs: impl Fn(&WithheldSetting) -> bool,
    ) -> Result<(), CliError> {
        let problems: Vec<String> =
            self.withheld.iter().filter(|it| needs(it)).map(WithheldSetting::shown).collect();
        if problems.is_empty() { Ok(()) } else { Err(untrusted(problems)) }
    }

    /// Returns the files that were read, as they are shown.
    pub(crate) fn files(&self) -> &[String] {
        &self.files
    }

    /// Returns the limits of an untrusted file that no flag replaces, each with its position.
    pub(crate) fn untrusted_limits(&self, options: &RunOptions) -> UntrustedLimits {
        let place = |name: &str, is_replaced: bool| {
            self.get(name).filter(|it| it.is_untrusted && !is_replaced).map(|it| it.layer.clone())
        };
        UntrustedLimits {
            steps: place("limits.steps", options.max_steps.is_some()),
            calls: place("limits.calls", options.max_calls.is_some()),
            tokens: place("limits.tokens", options.max_tokens.is_some()),
            usd: place("limits.usd", options.max_cost.is_some()),
            time: place("limits.time", options.timeout.is_some()),
        }
    }

    /// Returns all settings, without secrets.
    pub(crate) fn shown(&self) -> Vec<String> {
        let line = |(name, it): (&&str, &ConfigValue)| {
            format!("{name} = {} ({})", shown_setting(&it.text), it.layer)
        };
        self.settings.iter().map(line).collect()
    }

    /// Completes the options of a run with settings where no flag is given.
    ///
    /// # Errors
    ///
    /// Fails with every invalid value and the layer it came from.
    pub(crate) fn complete(&self, options: &RunOptions) -> Result<RunOptions, CliError> {
        let mut problems = Vec::new();
        let options = RunOptions {
            model: options.model.clone().or_else(|| self.get("model").map(|it| it.text.clone())),
            max_steps: options
                .max_steps
                .or_else(|| self.value("limits.steps", parse_count, &mut problems)),
            max_calls: options
                .max_calls
                .or_else(|| self.value("limits.calls", parse_count, &mut problems)),
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
        let ConfigValue { text, layer, .. } = self.get(name)?;
        let wrong = |error| problems.push(format!("{layer} is `{text}`: {error}"));
        read(text).map_err(wrong).ok()
    }
}

/// Returns the error for settings of a file in an untrusted folder.
pub(crate) fn untrusted(problems: Vec<String>) -> CliError {
    let message =
        format!("`{FILE}` has settings that need your trust in this folder; nothing was started");
    CliError::new(Exit::Unusable, message)
        .with_problems(problems)
        .with_help("remove it from the file, or read the file and run `graphrun trust`")
        .with_help("flags, the environment and your own configuration need no trust")
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
mod tests;
