//! The error of a command: message, causes, exit code and remedy.

use std::{error::Error, io, path::Path};

use super::{
    exit::Exit,
    output::{diagnostics, terminal::Paint, words::clean},
};
use crate::{
    diagnostic::{Diagnostics, Severity},
    engine::{ReviseError, RunError},
    event::LeftRun,
};

/// The most causes that are shown of one error.
const CAUSES_MAX: usize = 8;

/// The error of a command.
#[derive(Debug)]
pub(super) struct CliError {
    exit: Exit,
    message: Box<str>,
    problems: Vec<String>,
    diagnostics: Diagnostics,
    help: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    concerns: Option<Box<ConcernedRun>>,
}

/// The run that an error is about, where that makes a difference.
#[derive(Debug)]
enum ConcernedRun {
    /// Another process owns it.
    OwnedElsewhere,
    /// This process leaves it without an event.
    Left(LeftRun),
}

impl CliError {
    /// Returns an error with this exit code.
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into().into_boxed_str(),
            problems: Vec::new(),
            diagnostics: Diagnostics::default(),
            help: Vec::new(),
            source: None,
            concerns: None,
        }
    }

    /// Returns an error of usage: the command line, or a file it names, is invalid.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns the error for a wrong setting: of usage, if a flag gave it, or else of the configuration.
    pub(super) fn setting(layer: &str, message: impl Into<String>) -> Self {
        let exit = if layer.starts_with("--") { Exit::Usage } else { Exit::Unusable };
        Self::new(exit, message)
    }

    /// Returns the error for a file on the command line that cannot be read.
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        let help = match source.kind() {
            io::ErrorKind::NotFound if path.is_relative() => {
                Some("a relative path starts at the current folder; check both")
            }
            io::ErrorKind::IsADirectory => Some("name a file in it"),
            io::ErrorKind::InvalidData => Some("name a text file; texts are saved as UTF-8"),
            io::ErrorKind::PermissionDenied => Some("let this user read it"),
            _ => None,
        };
        let refused = Self::usage(format!("cannot read `{}`", path.display())).because(source);
        help.into_iter().fold(refused, Self::with_help)
    }

    /// Returns the error for a result that cannot be written to stdout. Its exit code is not that of a failed run.
    pub(super) fn write(source: io::Error) -> Self {
        Self::new(Exit::Unusable, "cannot write the result").because(source)
    }

    /// Returns the error for an invalid workflow.
    pub(super) fn invalid(path: &Path, diagnostics: Diagnostics) -> Self {
        let errors = diagnostics.count(Severity::Error);
        let what = if errors == 1 { "an error".to_owned() } else { format!("{errors} errors") };
        let message = format!("`{}` has {what}; nothing was started", path.display());
        let hint = diagnostics::hint([&diagnostics]);
        let invalid = Self { diagnostics, ..Self::usage(message) };
        hint.into_iter().fold(invalid, Self::with_help)
    }

    /// Adds the cause.
    #[must_use]
    pub(super) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds a list of problems, one line each.
    #[must_use]
    pub(super) fn with_problems(mut self, problems: Vec<String>) -> Self {
        self.problems = problems;
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Returns the same error with another exit code.
    #[must_use]
    pub(super) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Returns the same error, as one about a run that another process owns.
    #[must_use]
    pub(super) fn owned_elsewhere(mut self) -> Self {
        self.concerns = Some(Box::new(ConcernedRun::OwnedElsewhere));
        self
    }

    /// Returns whether another process owns the run.
    pub(super) fn is_owned_elsewhere(&self) -> bool {
        matches!(self.concerns.as_deref(), Some(ConcernedRun::OwnedElsewhere))
    }

    /// Returns the same error, as the end of the output for a run.
    #[must_use]
    pub(super) fn leaving(mut self, left: LeftRun) -> Self {
        self.concerns = Some(Box::new(ConcernedRun::Left(left)));
        self
    }

    /// Returns the end of the output for the run, if the error is one.
    pub(super) fn left(&self) -> Option<&LeftRun> {
        match self.concerns.as_deref() {
            Some(ConcernedRun::Left(left)) => Some(left),
            Some(ConcernedRun::OwnedElsewhere) | None => None,
        }
    }

    /// Returns the message with its causes, in one line.
    pub(super) fn in_one_line(&self) -> String {
        [vec![self.message.to_string()], self.causes()].concat().join(": ")
    }

    /// Returns the same error without its remedies, and the remedies.
    pub(super) fn split_help(mut self) -> (Self, Vec<String>) {
        let help = std::mem::take(&mut self.help);
        (self, help)
    }

    /// Returns the single mistakes of which the error consists.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the message, without causes and remedies.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit code.
    pub(super) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the whole message, as it is printed on stderr.
    pub(super) fn draw(&self, paint: Paint, columns: usize) -> String {
        let mut lines = vec![format!("{} {}", paint.bad("error:"), clean(&self.message))];
        lines.extend(self.problems.iter().map(|it| format!("  - {}", clean(it))));
        lines.extend(self.causes().into_iter().map(|it| format!("  because: {}", clean(&it))));
        lines.extend(self.help.iter().map(|it| format!("{} {it}", paint.command("help:"))));
        diagnostics::draw(&self.diagnostics, paint, columns) + &lines.join("\n")
    }

    /// Returns the texts of the causes, the nearest first, without duplicates.
    fn causes(&self) -> Vec<String> {
        let mut causes: Vec<String> = Vec::new();
        let mut next = self.source.as_deref().map(|it| it as &dyn Error);
        while let Some(cause) = next.filter(|_| causes.len() < CAUSES_MAX) {
            let text = cause.to_string();
            // SQLite and other libraries repeat the text after a number.
            let last = causes.last().map_or(&*self.message, String::as_str);
            if !text.ends_with(last) {
                causes.push(text);
            }
            next = cause.source();
        }
        causes
    }
}

impl From<ReviseError> for CliError {
    fn from(error: ReviseError) -> Self {
        let help = match &error {
            ReviseError::NotNext { .. } => Some(
                "name one of these nodes with `--as`, or fork an earlier step to take another \
                 route",
            ),
            ReviseError::Route { .. } => Some(
                "set values on which they can be evaluated; with `--as`, only the routes of that node \
                 read them",
            ),
            ReviseError::PartlyDone { .. } => {
                Some("resume or retry the run until the map has ended, or fork the step before it")
            }
            _ => None,
        };
        let message = error.to_string();
        let refused = Self::usage(format!("{message}; nothing was changed"));
        let refused = match error {
            ReviseError::State(source) => refused.because(source),
            _ => refused,
        };
        help.into_iter().fold(refused, Self::with_help)
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(error) => Self::from(error),
            RunError::Input(_)
            | RunError::UnfitCheckpoint(_)
            | RunError::MissingInput { .. }
            | RunError::Fields(_)
            | RunError::Name(_)
            | RunError::WrongAnswer { .. }
            | RunError::UnknownQuestion { .. } => Self::usage(error.to_string()),
            RunError::Broken { ref differences, .. } => {
                let problems = differences.iter().map(ToString::to_string).collect();
                Self::new(Exit::NotResumable, error.to_string())
                    .with_problems(problems)
                    .with_help("restore the workflow to resume the run")
            }
            RunError::NoCounterpart { ref differences, .. } => {
                let breaks = differences.iter().filter(|it| it.breaks.is_some());
                Self::new(Exit::NotResumable, format!("{error}; nothing was changed"))
                    .with_problems(breaks.map(ToString::to_string).collect())
            }
            RunError::Changed { .. } => Self::new(Exit::NotResumable, error.to_string())
                .with_help("restore the workflow to resume the run, or start a new run"),
            RunError::Closed { .. }
            | RunError::TurnOpen { .. }
            | RunError::NotThread { .. }
            | RunError::NotBegun { .. }
            | RunError::AlreadyEnded(_)
            | RunError::NotFailed(_) => Self::new(Exit::NotResumable, error.to_string()),
            RunError::NotDone { .. } | RunError::Output(_) | RunError::Dropped { .. } => {
                Self::new(Exit::Failed, error.to_string())
            }
            RunError::Revise(error) => Self::from(error),
            RunError::NothingFailed { ref failed, .. } => {
                let help = if failed.is_empty() {
                    "a route of the workflow ended it; start a new run"
                } else {
                    "without `--node`, all failed tasks run again"
                };
                Self::new(Exit::NotResumable, error.to_string()).with_help(help)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let source = io::Error::other("Error code 13: disk is full");
        let source = CausedError { text: "disk is full", source };
        let error = CliError::usage("cannot save").because(source);
        assert_eq!(
            error.draw(Paint::new(false), 80),
            "error: cannot save\n  because: disk is full"
        );
    }

    /// An error with a cause.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct CausedError {
        text: &'static str,
        source: io::Error,
    }

    #[test]
    fn an_error_shows_its_problems_causes_and_help() {
        let error = CliError::read(Path::new("w.yaml"), io::Error::other("no such file"))
            .with_problems(vec!["one".into(), "two \u{1b}[31mred".into()])
            .with_help("try another path");
        insta::assert_snapshot!(error.draw(Paint::new(false), 80), @r"
        error: cannot read `w.yaml`
          - one
          - two red
          because: no such file
        help: try another path
        ");
        assert_eq!(error.exit(), Exit::Usage);
    }
}
