//! The two streams the program writes to, and their colours.
//!
//! Results go to stdout, everything else to stderr. A reader that went away (`graphrun … | head`)
//! is no error: what is left to say is dropped.

use std::io::{self, ErrorKind, Write};

use console::Style;

use crate::event::Status;

/// The width of lines where the terminal does not tell.
const COLUMNS_DEFAULT: usize = 100;

/// Colours for one stream, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    enabled: bool,
}

impl Paint {
    /// Paints, or leaves everything as it is.
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled }
    }

    /// Whether it paints.
    pub(super) fn is_enabled(self) -> bool {
        self.enabled
    }

    /// What went well.
    pub(super) fn good(self, text: &str) -> String {
        self.apply(&Style::new().green(), text)
    }

    /// What went wrong.
    pub(super) fn bad(self, text: &str) -> String {
        self.apply(&Style::new().red().bold(), text)
    }

    /// What should be looked at.
    pub(super) fn loud(self, text: &str) -> String {
        self.apply(&Style::new().yellow().bold(), text)
    }

    /// What carries the line.
    pub(super) fn strong(self, text: &str) -> String {
        self.apply(&Style::new().bold(), text)
    }

    /// What is there for whoever looks for it.
    pub(super) fn faint(self, text: &str) -> String {
        self.apply(&Style::new().dim(), text)
    }

    /// What can be typed.
    pub(super) fn command(self, text: &str) -> String {
        self.apply(&Style::new().cyan(), text)
    }

    /// The word for how a run stands.
    pub(super) fn status(self, status: Status) -> String {
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

/// Writes a result to stdout.
///
/// # Errors
///
/// Fails when stdout cannot be written for another reason than that nobody reads it any more.
pub(super) fn print_result(text: &str) -> io::Result<()> {
    print_while_read(text).map(drop)
}

/// Writes a part of a result to stdout, and says whether somebody still reads it.
///
/// # Errors
///
/// As [`print_result`].
pub(super) fn print_while_read(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// Writes lines to stderr. Where even that fails there is nobody left to tell.
pub(super) fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "{text}").and_then(|()| stderr.flush()));
}

/// Writes a line to the terminal behind stderr, in the place of the last one.
pub(super) fn say_over(text: &str) {
    let terminal = console::Term::stderr();
    drop(terminal.clear_line().and_then(|()| terminal.write_str(text)));
}

/// The columns of the terminal behind stderr.
pub(super) fn columns() -> usize {
    console::Term::stderr()
        .size_checked()
        .map_or(COLUMNS_DEFAULT, |(_, columns)| usize::from(columns))
}
