//! The terminals of the process, and the environment variables that affect output.

use std::{
    env,
    io::{self, IsTerminal},
};

use crate::cli::process::log;

/// The properties of the environment that decide how to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TerminalEnv {
    /// Whether a person can type.
    pub(crate) stdin_is_terminal: bool,
    /// Whether a person reads results.
    pub(crate) stdout_is_terminal: bool,
    /// Whether a person reads progress.
    pub(crate) stderr_is_terminal: bool,
    /// Whether `CI` is set.
    pub(crate) is_ci: bool,
    /// Whether `TERM` is `dumb`.
    pub(crate) is_dumb: bool,
    /// Whether `NO_COLOR` is set.
    pub(crate) no_color: bool,
    /// Whether a log is written to stderr.
    pub(crate) is_logging: bool,
}

impl TerminalEnv {
    /// Reads the environment of the process.
    pub(crate) fn look() -> Self {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            stdin_is_terminal: io::stdin().is_terminal(),
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            is_ci: is_set("CI"),
            is_dumb: env::var_os("TERM").is_some_and(|value| value == "dumb"),
            no_color: is_set("NO_COLOR"),
            is_logging: log::is_wanted(None),
        }
    }
}
