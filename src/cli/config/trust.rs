//! What a `graphrun.toml` may set in a folder that the user does not trust.
//!
//! Such a file may come with a repository of another author. It may not send a key anywhere, name a place outside
//! of its folder, or raise a limit of the user.

use std::path::{Component, Path};

use super::{Key, Said};
use crate::{
    beneath::{BeneathError, Folder},
    cli::{database::without_secrets, values::parse_duration},
};

/// Whether a setting of a folder's file needs the trust of the user.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust {
    /// It can do no harm.
    Harmless,
    /// It needs trust, for this reason.
    Needed(&'static str),
    /// A database: it needs trust unless it lies in the folder.
    Database,
    /// A limit: it needs trust if it is above another one.
    Limit(Amount),
}

/// How much a limit allows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// A number.
    Number,
    /// A time.
    Time,
}

/// A setting of a file that is not trusted, which has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Withheld {
    /// The key.
    pub(in crate::cli) name: &'static str,
    text: String,
    place: String,
    reason: String,
}

impl Withheld {
    /// The setting, its place, and why it needs trust.
    pub(in crate::cli) fn shown(&self) -> String {
        let Self { name, text, place, reason } = self;
        format!("{place}: `{name}` is `{}`: {reason}", without_secrets(text))
    }
}

/// Returns the setting as a withheld one if it needs trust.
pub(super) fn withhold(
    key: &Key,
    said: &Said,
    own: Option<&Said>,
    folder: &Path,
) -> Option<Withheld> {
    let reason = match key.trust {
        Trust::Harmless => None,
        Trust::Needed(reason) => Some(reason.to_owned()),
        Trust::Database => leads_out(folder, &said.text)
            .then(|| "it names a place for runs outside of the folder".to_owned()),
        Trust::Limit(amount) => {
            own.filter(|own| amount.is_above(&said.text, &own.text)).map(|own| {
                format!("it raises a limit of yours, which is `{}` ({})", own.text, own.layer)
            })
        }
    };
    let (text, place) = (said.text.clone(), said.layer.clone());
    reason.map(|reason| Withheld { name: key.name, text, place, reason })
}

impl Amount {
    /// Whether the first text allows more than the second. A text that is no amount is refused elsewhere.
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

/// Whether a database lies outside of a folder. A text that names no database is refused by the code that opens it.
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
