//! `graphrun validate WORKFLOW|FOLDER…`.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{
    diagnostics::{Checked, Finding, draw, github, hint, sarif},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    prepare::{check, refuse},
    terminal::{columns, print_message, print_result},
    words::count,
    workflow_files::{FoundFile, find},
};
use crate::{
    cases::Suite,
    diagnostic::{Diagnostic, Diagnostics, Severity},
    workflow::LoadError,
};

/// Check workflows and their test cases, and report all errors together
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflows and files of test cases to check; of a folder, all below it
    #[arg(required = true, value_name = "WORKFLOW.yaml|FOLDER")]
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
        let mut are_read = true;
        let files = find(&self.workflows)?;
        for FoundFile { path, is_cases } in &files {
            let findings = match if *is_cases { check_cases(path, &files) } else { findings(path) }
            {
                Ok(findings) => findings,
                Err(unreadable) => {
                    are_read = false;
                    let finding = unread(&unreadable);
                    super::report(&refuse(path, unreadable), globals.stderr);
                    // The text shows it above; a program reads only the findings.
                    if globals.output == Output::Text {
                        continue;
                    }
                    finding
                }
            };
            checked.push(Checked { workflow: path.clone(), findings });
        }
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
        let refused = |it: &Checked| {
            fails(&it.findings, Severity::Error)
                || self.strict && fails(&it.findings, Severity::Warning)
        };
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
    if let several @ [_, _, ..] = checked {
        let mut all = Diagnostics::default();
        for it in several {
            all.extend(it.findings.clone());
        }
        let files = count(several.len() as u64, "file");
        text.extend([files, ": ".into(), verdict(&all), "\n".into()]);
    }
    text
}

/// Returns the findings of a workflow.
fn findings(path: &Path) -> Result<Diagnostics, LoadError> {
    or_findings(check(path).map(|it| it.warnings().clone()))
}

/// Returns the findings of a file of test cases. Those of its workflow are left out if that is checked as well.
fn check_cases(path: &Path, files: &[FoundFile]) -> Result<Diagnostics, LoadError> {
    let loaded = Suite::load(path, &super::registry()).map(|(_, warnings)| warnings);
    let all = or_findings(loaded)?;
    let is_checked = |name: &str| files.iter().any(|it| !it.is_cases && it.path == Path::new(name));
    let is_own =
        |it: &Diagnostic| it.labels.first().is_none_or(|it| !is_checked(&it.place.file.name));
    let mut own = Diagnostics::default();
    own.extend(all.into_iter().filter(is_own));
    Ok(own)
}

/// Returns the finding that a file cannot be read. Its text is unknown, so it has no place in the file.
fn unread(error: &LoadError) -> Diagnostics {
    let reason = std::error::Error::source(error).map(|it| format!(": {it}")).unwrap_or_default();
    Diagnostic::error("GR001", format!("the file cannot be read{reason}")).into()
}

fn or_findings(loaded: Result<Diagnostics, LoadError>) -> Result<Diagnostics, LoadError> {
    match loaded {
        Err(LoadError::Invalid(findings)) => Ok(findings),
        other => other,
    }
}

fn fails(findings: &Diagnostics, severity: Severity) -> bool {
    findings.count(severity) > 0
}

fn verdict(findings: &Diagnostics) -> String {
    let severities =
        [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Hint, "hint")];
    let counted = severities
        .into_iter()
        .map(|(severity, word)| (findings.count(severity), word))
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| count(number as u64, word));
    match counted.collect::<Vec<_>>() {
        none if none.is_empty() => "ok".to_owned(),
        some => some.join(", "),
    }
}
