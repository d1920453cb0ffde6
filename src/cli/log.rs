//! The log for developers of graphrun: off, unless `GRAPHRUN_LOG` sets a filter.

use std::{
    env,
    io::{self, Write},
};

use tracing_subscriber::EnvFilter;

use super::{error::CliError, terminal::print_message};

/// The filter, for example `graphrun=debug`.
const VARIABLE: &str = "GRAPHRUN_LOG";

/// Returns whether there is a log on stderr, so that no live view should be drawn there.
pub(super) fn is_wanted() -> bool {
    env::var_os(VARIABLE).is_some_and(|it| !it.is_empty())
}

/// Starts the log, if the variable is set.
///
/// # Errors
///
/// Fails when the variable cannot be parsed.
pub(super) fn start() -> Result<(), CliError> {
    if !is_wanted() {
        return Ok(());
    }
    let filter = EnvFilter::try_from_env(VARIABLE).map_err(|error| {
        CliError::usage(format!("{VARIABLE} is not a valid log filter"))
            .because(error)
            .with_help("write a target and a level, as in `GRAPHRUN_LOG=graphrun=debug`")
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LogWriter)
        .with_ansi(false);
    // Only a host that embeds this program can have started another subscriber; that one stays.
    drop(subscriber.try_init());
    Ok(())
}

/// Writes the log to stderr with redacted keys, like all output.
struct LogWriter;

impl Write for LogWriter {
    /// Each call is a whole line: the subscriber writes an event at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        print_message(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
