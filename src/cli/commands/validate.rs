//! `graphrun validate WORKFLOW|FOLDER…`.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    cases::Suite,
    cli::{
        arguments::{
            globals::{Globals, Output},
            workflow_files::{FoundFile, find},
        },
        error::CliError,
        exit::Exit,
        output::{
            diagnostics::{CheckedWorkflow, Finding, draw, github, hint, sarif},
            json::to_json,
            terminal::{columns, print_message, print_result},
            words::count,
        },
        run::loaded::{check, refuse},
    },
    diagnostic::{Diagnostic, Diagnostics, Severity},
    workflow::LoadError,
};

/// Check workflows and their test cases, and report all errors together
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflows and files of test cases to check; of a folder, all below it
    #[arg(required = true, value_name = "WORKFLOW.yaml|FOLDER")]
    workflows: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// Makes all static checks of every workflow; a broken workflow does not hide errors of the next.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        let forms = [Output::Text, Output::Json, Output::Sarif, Output::Github];
        globals.expect_output("validate", &forms)?;
        let mut checked = Vec::new();
        let mut are_read = true;
        let files = find(&self.workflows)?;
        for FoundFile { path, is_cases } in &files {
            let diagnostics =
                match if *is_cases { check_cases(path, &files) } else { diagnostics(path) } {
                    Ok(diagnostics) => diagnostics,
                    Err(unreadable) => {
                        are_read = false;
                        let diagnostic = unread(&unreadable);
                        crate::cli::report(&refuse(path, unreadable), globals.stderr);
                        // The text shows it above; a program reads only the diagnostics.
                        if globals.output == Output::Text {
                            continue;
                        }
                        diagnostic
                    }
                };
            checked.push(CheckedWorkflow { workflow: path.clone(), diagnostics });
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
            (globals.output, hint(checked.iter().map(|it| &it.diagnostics)))
        {
            print_message(&format!("{} {hint}", globals.stderr.command("help:")));
        }
        let refused = |checked: &CheckedWorkflow| {
            fails(&checked.diagnostics, Severity::Error)
                || self.strict && fails(&checked.diagnostics, Severity::Warning)
        };
        let is_fine = are_read && !checked.iter().any(refused);
        Ok(if is_fine { Exit::Done } else { Exit::Usage })
    }
}

fn drawn(checked: &[CheckedWorkflow], globals: &Globals) -> String {
    let mut text = String::new();
    for CheckedWorkflow { workflow, diagnostics } in checked {
        text += &draw(diagnostics, globals.stdout, columns());
        text.extend([
            workflow.display().to_string(),
            ": ".into(),
            verdict(diagnostics),
            "\n".into(),
        ]);
    }
    if let several @ [_, _, ..] = checked {
        let mut all = Diagnostics::default();
        for it in several {
            all.extend(it.diagnostics.clone());
        }
        let files = count(several.len() as u64, "file");
        text.extend([files, ": ".into(), verdict(&all), "\n".into()]);
    }
    text
}

/// Returns the diagnostics of a workflow.
fn diagnostics(path: &Path) -> Result<Diagnostics, LoadError> {
    or_diagnostics(check(path).map(|it| it.warnings().clone()))
}

/// Returns the diagnostics of a file of test cases. Those of its workflow are left out if that is checked as well.
fn check_cases(path: &Path, files: &[FoundFile]) -> Result<Diagnostics, LoadError> {
    let loaded = Suite::load(path, &crate::cli::registry()).map(|(_, warnings)| warnings);
    let all = or_diagnostics(loaded)?;
    let is_checked = |name: &str| files.iter().any(|it| !it.is_cases && it.path == Path::new(name));
    let is_own = |diagnostic: &Diagnostic| {
        diagnostic.labels.first().is_none_or(|it| !is_checked(&it.span.file.name))
    };
    let mut own = Diagnostics::default();
    own.extend(all.into_iter().filter(is_own));
    Ok(own)
}

/// Returns the diagnostic that a file cannot be read. Its text is unknown, so it has no place in the file.
fn unread(error: &LoadError) -> Diagnostics {
    let reason = std::error::Error::source(error).map(|it| format!(": {it}")).unwrap_or_default();
    Diagnostic::error("GR001", format!("the file cannot be read{reason}")).into()
}

fn or_diagnostics(loaded: Result<Diagnostics, LoadError>) -> Result<Diagnostics, LoadError> {
    match loaded {
        Err(LoadError::Invalid(diagnostics)) => Ok(diagnostics),
        other => other,
    }
}

fn fails(diagnostics: &Diagnostics, severity: Severity) -> bool {
    diagnostics.count(severity) > 0
}

fn verdict(diagnostics: &Diagnostics) -> String {
    let severities =
        [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Hint, "hint")];
    let counted = severities
        .into_iter()
        .map(|(severity, word)| (diagnostics.count(severity), word))
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| count(number as u64, word));
    match counted.collect::<Vec<_>>() {
        none if none.is_empty() => "ok".to_owned(),
        some => some.join(", "),
    }
}
