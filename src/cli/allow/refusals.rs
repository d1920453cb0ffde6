//! What a workflow needs and the operator has not allowed, with the flags that allow it.

use crate::cli::{error::CliError, exit::Exit};

/// The refused parts of a workflow, each once.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    problems: Vec<String>,
    help: Vec<String>,
}

impl Refusals {
    /// Adds a refused part and its remedy.
    pub(crate) fn add(&mut self, problem: String, help: String) {
        add_once(&mut self.problems, problem);
        add_once(&mut self.help, help);
    }

    /// Adds a refused part whose remedy is that of the next one.
    pub(crate) fn add_problem(&mut self, problem: String) {
        add_once(&mut self.problems, problem);
    }

    /// Adds a remedy.
    pub(crate) fn add_help(&mut self, help: String) {
        add_once(&mut self.help, help);
    }

    /// Returns an error with all of them, if there are any.
    ///
    /// # Errors
    ///
    /// Fails with `message` if anything was refused.
    pub(crate) fn or_ok(self, message: String) -> Result<(), CliError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let refused = CliError::new(Exit::Unusable, message).with_problems(self.problems);
        Err(self.help.into_iter().fold(refused, CliError::with_help))
    }
}

fn add_once(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}
