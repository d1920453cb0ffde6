//! Checks of the environment that hold for all commands.

use std::{env, ffi::OsStr};

use crate::cli::{error::CliError, exit::Exit};

/// The beginnings of the names of variables that set something.
const BEGINNINGS: [&str; 1] = ["GRAPHRUN_"];

/// The endings of such names: addresses and keys of providers, and of registries.
const ENDINGS: [&str; 5] = ["_BASE_URL", "_API_KEY", "_INDEX_URL", "_REGISTRY", "PROXY"];

/// Checks that the variables which set something are texts. A reader would take another value for an unset variable, and
/// use a default in its place.
///
/// # Errors
///
/// Fails with the names of all others.
pub(crate) fn check() -> Result<(), CliError> {
    let mut wrong: Vec<String> = env::vars_os()
        .filter(|(name, value)| sets_something(name) && value.to_str().is_none())
        .map(|(name, _)| format!("{} is not UTF-8", name.to_string_lossy()))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    wrong.sort();
    let message = "the environment cannot be used; nothing was started";
    Err(CliError::new(Exit::Unusable, message)
        .with_problems(wrong)
        .with_help("write their values as UTF-8, or unset them"))
}

/// Returns whether a variable of this name sets something.
fn sets_something(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    BEGINNINGS.iter().any(|it| name.starts_with(it)) || ENDINGS.iter().any(|it| name.ends_with(it))
}
