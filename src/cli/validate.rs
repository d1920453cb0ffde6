//! `graphrun validate WORKFLOW…`.

use std::path::PathBuf;

use super::{
    diagnostics::{Finding, draw},
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    prepare::{check, refuse},
    terminal::{columns, print_result},
    words::count,
};
use crate::{diagnostic::Diagnostics, workflow::LoadError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflows to check
    #[arg(required = true, value_name = "WORKFLOW.yaml")]
    workflows: Vec<PathBuf>,
    /// Take warnings as errors
    #[arg(long)]
    strict: bool,
}

/// Makes every static check of every workflow; a broken one does not hide the next.
pub(super) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("validate", &[Output::Text, Output::Json])?;
    let mut exit = Exit::Done;
    let mut list = Vec::new();
    let mut text = String::new();
    for path in &args.workflows {
        let findings = match check(path) {
            Ok((_, warnings)) => warnings,
            Err(LoadError::Invalid(findings)) => findings,
            Err(unreadable) => {
                super::report(&refuse(path, unreadable), globals.stderr);
                exit = Exit::Usage;
                continue;
            }
        };
        if findings.has_errors() || (args.strict && !findings.is_empty()) {
            exit = Exit::Usage;
        }
        text += &draw(&findings, globals.stdout, columns());
        text.extend([path.display().to_string(), ": ".into(), verdict(&findings), "\n".into()]);
        list.extend(Finding::all(&findings, path));
    }
    let result = if globals.output == Output::Json { to_json(&list)? } else { text };
    print_result(&result).map_err(CliError::write)?;
    Ok(exit)
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
