//! `graphrun validate WORKFLOW…`.

use std::{env, path::PathBuf};

use super::{
    diagnostics::{Checked, Finding, draw, github, hint, sarif},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    prepare::{check, refuse},
    terminal::{columns, print_message, print_result},
    words::count,
};
use crate::{diagnostic::Diagnostics, workflow::LoadError};

/// Check workflows and report all errors together
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflows to check
    #[arg(required = true, value_name = "WORKFLOW.yaml")]
    workflows: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// Makes all static checks of every workflow; a broken workflow does not hide errors of the next.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        let forms = [Output::Text, Output::Json, Output::Sarif, Output::Github];
        globals.expect_output("validate", &forms)?;
        let mut checked = Vec::new();
        for path in &self.workflows {
            let findings = match check(path) {
                Ok(compiled) => compiled.warnings().clone(),
                Err(LoadError::Invalid(findings)) => findings,
                Err(unreadable) => {
                    super::report(&refuse(path, unreadable), globals.stderr);
                    continue;
                }
            };
            checked.push(Checked { workflow: path.clone(), findings });
        }
        let are_read = checked.len() == self.workflows.len();
        // Without a working directory, paths stay as they were given.
        let folder = env::current_dir().unwrap_or_default();
        let result = match globals.output {
            Output::Json => to_json(&Finding::all(&checked))?,
            Output::Sarif => to_json(&sarif::log(&checked, &folder, are_read))?,
            Output::Github => github::commands(&checked, &folder),
            Output::Text | Output::Jsonl => drawn(&checked, globals),
        };
        print_result(&result).map_err(CliError::write)?;
        if let (Output::Text, Some(hint)) =
            (globals.output, hint(checked.iter().map(|it| &it.findings)))
        {
            print_message(&format!("{} {hint}", globals.stderr.command("help:")));
        }
        let refused =
            |it: &Checked| it.findings.has_errors() || self.strict && !it.findings.is_empty();
        let is_fine = are_read && !checked.iter().any(refused);
        Ok(if is_fine { Exit::Done } else { Exit::Usage })
    }
}

fn drawn(checked: &[Checked], globals: &Globals) -> String {
    let mut text = String::new();
    for Checked { workflow, findings } in checked {
        text += &draw(findings, globals.stdout, columns());
        text.extend([workflow.display().to_string(), ": ".into(), verdict(findings), "\n".into()]);
    }
    text
}

fn verdict(findings: &Diagnostics) -> String {
    let (errors, warnings) = findings.counts();
    let counted = [(errors, "error"), (warnings, "warning")]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| count(number as u64, word));
    match counted.collect::<Vec<_>>() {
        none if none.is_empty() => "ok".to_owned(),
        some => some.join(", "),
    }
}
