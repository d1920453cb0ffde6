//! The two output streams and their colours: all output passes through this module.
//!
//! Results go to stdout, everything else to stderr. A closed pipe (`graphrun … | head`) is not an
//! error: the remaining output is dropped.

use std::{
    io::{self, ErrorKind, IsTerminal as _, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use console::Style;

use super::visible::visible;
use crate::{
    event::Status,
    redact::{redact, redact_known},
};

/// The width of lines if the width of the terminal is unknown.
const COLUMNS_DEFAULT: usize = 100;

/// Colours for one stream, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    enabled: bool,
}

impl Paint {
    /// Creates a painter that adds colours or does nothing.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled }
    }

    /// Returns whether it adds colours.
    pub(crate) fn is_enabled(self) -> bool {
        self.enabled
    }

    /// Paints success.
    pub(crate) fn good(self, text: &str) -> String {
        self.apply(&Style::new().green(), text)
    }

    /// Paints failure.
    pub(crate) fn bad(self, text: &str) -> String {
        self.apply(&Style::new().red().bold(), text)
    }

    /// Paints a warning.
    pub(crate) fn loud(self, text: &str) -> String {
        self.apply(&Style::new().yellow().bold(), text)
    }

    /// Paints the most important part of a line.
    pub(crate) fn strong(self, text: &str) -> String {
        self.apply(&Style::new().bold(), text)
    }

    /// Paints a detail.
    pub(crate) fn faint(self, text: &str) -> String {
        self.apply(&Style::new().dim(), text)
    }

    /// Paints a command to type.
    pub(crate) fn command(self, text: &str) -> String {
        self.apply(&Style::new().cyan(), text)
    }

    /// Returns the painted name of a status.
    pub(crate) fn status(self, status: Status) -> String {
        match status {
            Status::Done => self.good(status.as_str()),
            Status::Failed => self.bad(status.as_str()),
            Status::Running | Status::Paused | Status::Limit | Status::Interrupted => {
                self.loud(status.as_str())
            }
        }
    }

    fn apply(self, style: &Style, text: &str) -> String {
        style.clone().force_styling(self.enabled).apply_to(text).to_string()
    }
}

/// Whether colour sequences may reach stdout.
static STDOUT_IS_COLOURED: AtomicBool = AtomicBool::new(false);

/// Whether colour sequences may reach stderr.
static STDERR_IS_COLOURED: AtomicBool = AtomicBool::new(false);

/// Enables the colours of each stream.
pub(crate) fn allow_colours(stdout: Paint, stderr: Paint) {
    STDOUT_IS_COLOURED.store(stdout.is_enabled(), Ordering::Relaxed);
    STDERR_IS_COLOURED.store(stderr.is_enabled(), Ordering::Relaxed);
}

/// Returns a text as it may be written to stderr: without keys, and with control characters made
/// visible.
pub(crate) fn shown(text: &str) -> String {
    visible(&redact(text), STDERR_IS_COLOURED.load(Ordering::Relaxed)).into_owned()
}

/// Writes a result to stdout.
///
/// # Errors
///
/// Fails when stdout cannot be written for another reason than a closed pipe.
pub(crate) fn print_result(text: &str) -> io::Result<()> {
    print_while_read(text).map(drop)
}

/// Writes a text of the user to stdout as it is. At a terminal, its control characters are made visible.
///
/// # Errors
///
/// Same as [`print_result`].
pub(crate) fn print_unchanged(text: &str) -> io::Result<()> {
    if io::stdout().is_terminal() {
        return print_result(text);
    }
    let mut stdout = io::stdout().lock();
    unless_closed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())).map(drop)
}

/// Writes a part of a result to stdout, and returns whether the pipe is still open.
///
/// # Errors
///
/// Same as [`print_result`].
pub(crate) fn print_while_read(text: &str) -> io::Result<bool> {
    // Values were redacted when they were saved. A text that only looks like a key may be an
    // example here.
    let text = redact_known(text);
    let text = visible(&text, STDOUT_IS_COLOURED.load(Ordering::Relaxed));
    let mut stdout = io::stdout().lock();
    unless_closed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Returns whether the pipe is still open. A reader that has closed it wants no more, which is no error.
fn unless_closed(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// Writes lines to stderr. Errors are ignored: there is no other stream to report them.
pub(crate) fn print_message(text: &str) {
    let text = shown(text);
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "{text}").and_then(|()| stderr.flush()));
}

/// Writes a line to the terminal on stderr, over the last one.
pub(crate) fn print_over(text: &str) {
    let terminal = console::Term::stderr();
    drop(terminal.clear_line().and_then(|()| terminal.write_str(&shown(text))));
}

/// Returns the columns of the terminal on stderr.
pub(crate) fn columns() -> usize {
    console::Term::stderr()
        .size_checked()
        .map_or(COLUMNS_DEFAULT, |(_, columns)| usize::from(columns))
}
