//! Decides what a `graphrun.toml` may set in a folder that the user does not trust.
//!
//! Such a file may come with a repository of another author. It must not send a key anywhere, name
//! a path outside of its folder, or raise a limit of the user.

use std::path::{Component, Path};

use super::{ConfigValue, Key, file::ConfiguredProvider};
use crate::{
    beneath::{BeneathError, Folder},
    cli::{arguments::values::parse_duration, settings::database::shown_setting},
};

/// Whether a setting of a folder's file requires the user's trust.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust {
    /// Never: it is harmless.
    Harmless,
    /// Always, for this reason.
    Needed(&'static str),
    /// A database: trust is required unless it is in the folder.
    Database,
    /// A limit: trust is required if it is above another limit.
    Limit(Amount),
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// A number.
    Number,
    /// A time.
    Time,
}

/// An ignored setting of an untrusted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WithheldSetting {
    /// The key.
    pub(crate) name: String,
    text: String,
    place: String,
    reason: String,
}

impl WithheldSetting {
    /// Returns the setting, its position, and why it requires trust.
    pub(crate) fn shown(&self) -> String {
        let Self { name, text, place, reason } = self;
        format!("{place}: `{name}` is `{}`: {reason}", shown_setting(text))
    }
}

/// Returns the setting as a withheld one if it requires trust.
pub(super) fn withhold(
    key: &Key,
    value: &ConfigValue,
    own: Option<&ConfigValue>,
    folder: &Path,
) -> Option<WithheldSetting> {
    let reason = match key.trust {
        Trust::Harmless => None,
        Trust::Needed(reason) => Some(reason.to_owned()),
        Trust::Database => leads_out(folder, &value.text)
            .then(|| "it names a database outside of the folder".to_owned()),
        Trust::Limit(amount) => own
            .filter(|own| amount.is_above(&value.text, &own.text))
            .map(|own| format!("it raises your limit of `{}` ({})", own.text, own.layer)),
    };
    let text = value.text.clone();
    let place = value.layer.clone();
    reason.map(|reason| WithheldSetting { name: key.name.to_owned(), text, place, reason })
}

/// Returns the settings of a provider that require trust: those that decide where the requests to a known provider, or
/// a key, are sent. A provider that only this file names, without a key, receives nothing that the author of the file
/// could not send elsewhere.
pub(super) fn withhold_provider(
    name: &str,
    configured: &ConfiguredProvider,
    is_known: bool,
) -> Option<WithheldSetting> {
    let settings = &configured.settings;
    let is_harmless = !is_known && settings.key_variable.is_none();
    let destination = settings.destination();
    if is_harmless || destination.is_empty() {
        return None;
    }
    Some(WithheldSetting {
        name: format!("providers.{name}"),
        text: destination.iter().map(|it| shown_setting(it)).collect::<Vec<_>>().join(", "),
        place: configured.place.clone(),
        reason: "it decides where requests to a model, with your key, are sent".to_owned(),
    })
}

impl Amount {
    /// Returns whether the first text allows more than the second. Other code reports a text that
    /// is no amount.
    fn is_above(self, text: &str, other: &str) -> bool {
        self.read(text).zip(self.read(other)).is_some_and(|(this, other)| this > other)
    }

    fn read(self, text: &str) -> Option<f64> {
        match self {
            Self::Number => text.trim().parse().ok(),
            Self::Time => parse_duration(text).ok().map(|it| it.as_secs_f64()),
        }
    }
}

/// Returns whether a database is outside of a folder. The code that opens databases reports an
/// invalid URL.
fn leads_out(folder: &Path, url: &str) -> bool {
    match url.split_once(':') {
        Some(("sqlite", path)) => {
            let path = Path::new(path.strip_prefix("//").unwrap_or(path));
            let climbs = |it| !matches!(it, Component::Normal(_) | Component::CurDir);
            path.components().any(climbs)
                || Folder::open(folder).and_then(|it| it.open_any(path)).is_err_and(|error| {
                    !matches!(error, BeneathError::Missing | BeneathError::NotFolder)
                })
        }
        Some(("postgres" | "postgresql", _)) => true,
        _ => false,
    }
}
