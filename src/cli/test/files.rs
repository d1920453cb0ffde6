//! Which files hold the cases that are to run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{cli::error::CliError, workflow::case_file::SUFFIX};

/// Folders that hold what others made.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// How deep folders are looked into.
const DEPTH_MAX: usize = 32;

/// A workflow, the cases of one, or both.
#[derive(Debug)]
pub(super) struct Found {
    /// The workflow, where it was named; else the cases name it.
    pub(super) workflow: Option<PathBuf>,
    /// The file of its cases.
    pub(super) cases: Option<PathBuf>,
}

/// The files of cases of these workflows; of none, those below the current folder, by path.
///
/// # Errors
///
/// Fails when a workflow has no cases, or there are none at all.
pub(super) fn find_cases(workflows: &[PathBuf]) -> Result<Vec<Found>, CliError> {
    let found = find(workflows)?;
    match found.iter().find(|it| it.cases.is_none()).and_then(|it| it.workflow.as_ref()) {
        Some(workflow) => Err(CliError::usage(format!("`{}` has no cases", workflow.display()))
            .with_help(format!("they are kept beside it, in `{}`", beside(workflow).display()))),
        None => Ok(found),
    }
}

/// These workflows, with their cases if they have any; of none, those of the cases below the
/// current folder.
///
/// # Errors
///
/// Fails when a workflow is not there, or there are no cases below the current folder.
pub(super) fn find(workflows: &[PathBuf]) -> Result<Vec<Found>, CliError> {
    if !workflows.is_empty() {
        return workflows.iter().map(|it| found(it)).collect();
    }
    let mut paths = Vec::new();
    collect(Path::new("."), 0, &mut paths).map_err(|error| {
        CliError::usage("cannot look through the current folder").because(error)
    })?;
    paths.sort();
    if paths.is_empty() {
        return Err(CliError::usage(format!("there is no `*{SUFFIX}` below the current folder"))
            .with_help(format!("cases of `flow.yaml` are kept in `flow{SUFFIX}`")));
    }
    Ok(paths.into_iter().map(|it| Found { workflow: None, cases: Some(it) }).collect())
}

fn found(named: &Path) -> Result<Found, CliError> {
    let name = named.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(SUFFIX) {
        return Ok(Found { workflow: None, cases: Some(named.to_owned()) });
    }
    let metadata = fs::metadata(named).map_err(|error| CliError::read(named, error))?;
    if metadata.is_dir() {
        return Err(CliError::read(named, io::ErrorKind::IsADirectory.into()));
    }
    let cases = Some(beside(named)).filter(|it| it.exists());
    Ok(Found { workflow: Some(named.to_owned()), cases })
}

/// Where the cases of a workflow are kept.
fn beside(workflow: &Path) -> PathBuf {
    let stem = workflow.file_stem().unwrap_or_default().to_string_lossy();
    workflow.with_file_name(format!("{stem}{SUFFIX}"))
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && depth < DEPTH_MAX && !name.starts_with('.') && !SKIPPED.contains(&&*name) {
            // What may not be looked into holds no cases of ours.
            match collect(&path, depth + 1, found) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => (),
            }
        } else if !is_folder && name.ends_with(SUFFIX) {
            found.push(path);
        }
    }
    Ok(())
}
