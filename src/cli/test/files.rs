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

/// The files of cases of these workflows; of none, those below the current folder, by path.
///
/// # Errors
///
/// Fails when a workflow has no cases, or there are none at all.
pub(super) fn find(workflows: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    if !workflows.is_empty() {
        return workflows.iter().map(|it| beside(it)).collect();
    }
    let mut found = Vec::new();
    collect(Path::new("."), 0, &mut found).map_err(|error| {
        CliError::usage("cannot look through the current folder").because(error)
    })?;
    found.sort();
    if found.is_empty() {
        return Err(CliError::usage(format!("there is no `*{SUFFIX}` below the current folder"))
            .with_help(format!("cases of `flow.yaml` are kept in `flow{SUFFIX}`")));
    }
    Ok(found)
}

/// The file of cases of a workflow.
fn beside(workflow: &Path) -> Result<PathBuf, CliError> {
    let name = workflow.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(SUFFIX) {
        return Ok(workflow.to_owned());
    }
    if !workflow.exists() {
        return Err(CliError::read(workflow, io::ErrorKind::NotFound.into()));
    }
    let stem = workflow.file_stem().unwrap_or_default().to_string_lossy();
    let cases = workflow.with_file_name(format!("{stem}{SUFFIX}"));
    if cases.exists() {
        return Ok(cases);
    }
    Err(CliError::usage(format!("`{}` has no cases", workflow.display()))
        .with_help(format!("they are kept beside it, in `{}`", cases.display())))
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
