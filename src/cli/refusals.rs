//! What a workflow needs and the operator has not allowed, with the ways to allow it.

use super::{error::CliError, exit::Exit};

/// The refused parts of a workflow, each once.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    problems: Vec<String>,
    help: Vec<String>,
}

impl Refusals {
    /// Adds a refused part and its remedy.
    pub(super) fn add(&mut self, problem: String, help: String) {
        for (list, text) in [(&mut self.problems, problem), (&mut self.help, help)] {
            if !list.contains(&text) {
                list.push(text);
            }
        }
    }

    /// Returns an error with all of them, if there are any.
    ///
    /// # Errors
    ///
    /// Fails with `message` if anything was refused.
    pub(super) fn or_ok(self, message: String) -> Result<(), CliError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let refused = CliError::new(Exit::Unusable, message).with_problems(self.problems);
        Err(self.help.into_iter().fold(refused, CliError::with_help))
    }
}
