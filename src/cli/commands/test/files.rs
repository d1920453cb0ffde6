//! Finds the files with the test cases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cli::{
        arguments::workflow_files::{below, is_cases},
        error::CliError,
    },
    workflow::case_file::SUFFIX,
};

/// A workflow, a file of test cases, or both.
#[derive(Debug)]
pub(super) struct TestFiles {
    /// The workflow, if it was named; otherwise, the test cases name it.
    pub(super) workflow: Option<PathBuf>,
    /// The file of its test cases.
    pub(super) cases: Option<PathBuf>,
}

/// Returns the files of test cases of these workflows; without workflows, those below the working
/// directory, ordered by path.
///
/// # Errors
///
/// Fails when a workflow has no test cases, or there are none at all.
pub(super) fn find_cases(workflows: &[PathBuf]) -> Result<Vec<TestFiles>, CliError> {
    let found = find(workflows)?;
    match found.iter().find(|it| it.cases.is_none()).and_then(|it| it.workflow.as_ref()) {
        Some(workflow) => {
            Err(CliError::usage(format!("`{}` has no test cases", workflow.display()))
                .with_help(format!("write them into `{}`", beside(workflow).display())))
        }
        None => Ok(found),
    }
}

/// Returns these workflows, with their test cases if there are any, and the test cases below folders; without workflows,
/// the test cases below the working directory.
///
/// # Errors
///
/// Fails when a workflow does not exist, or there are no test cases below a folder.
pub(super) fn find(workflows: &[PathBuf]) -> Result<Vec<TestFiles>, CliError> {
    if workflows.is_empty() {
        return found_below(Path::new("."), "the current folder");
    }
    let mut all = Vec::new();
    for named in workflows {
        if named.is_dir() {
            all.extend(found_below(named, &format!("`{}`", named.display()))?);
        } else {
            all.push(found(named)?);
        }
    }
    Ok(all)
}

/// Returns the files of test cases below a folder.
fn found_below(folder: &Path, shown: &str) -> Result<Vec<TestFiles>, CliError> {
    let paths = below(folder, &is_cases)?;
    if paths.is_empty() {
        return Err(CliError::usage(format!("there is no `*{SUFFIX}` below {shown}"))
            .with_help(format!("the test cases of `flow.yaml` are in `flow{SUFFIX}`")));
    }
    Ok(paths.into_iter().map(|it| TestFiles { workflow: None, cases: Some(it) }).collect())
}

fn found(named: &Path) -> Result<TestFiles, CliError> {
    if is_cases(named) {
        return Ok(TestFiles { workflow: None, cases: Some(named.to_owned()) });
    }
    fs::metadata(named).map_err(|error| CliError::read(named, error))?;
    let cases = Some(beside(named)).filter(|it| it.exists());
    Ok(TestFiles { workflow: Some(named.to_owned()), cases })
}

/// Returns whether two paths lead to the same file.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one)
            .ok()
            .zip(fs::canonicalize(other).ok())
            .is_some_and(|(one, other)| one == other)
}

/// Returns the path of a workflow's test cases.
fn beside(workflow: &Path) -> PathBuf {
    let stem = workflow.file_stem().unwrap_or_default().to_string_lossy();
    workflow.with_file_name(format!("{stem}{SUFFIX}"))
}
