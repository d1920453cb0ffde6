//! Finds the workflows and the test cases in folders. Files of other programs are left alone.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    beneath::read_named,
    cli::error::CliError,
    data_limit::DataLimit,
    workflow::{FileKind, case_file::SUFFIX},
};

/// Folders with generated or third-party files.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// The maximum depth of folders.
const DEPTH_MAX: usize = 32;

/// A file with its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// Whether it contains test cases.
    pub(crate) is_cases: bool,
}

/// Returns the named files, and the workflows and test cases below the named folders, ordered by path.
///
/// # Errors
///
/// Fails if a folder cannot be searched or contains none.
pub(crate) fn find(named: &[PathBuf]) -> Result<Vec<FoundFile>, CliError> {
    let mut found: Vec<FoundFile> = Vec::new();
    for path in named {
        if !path.is_dir() {
            found.push(FoundFile { path: path.clone(), is_cases: is_cases(path) });
            continue;
        }
        let below =
            below(path, &|path| path.extension().is_some_and(|it| it == "yaml" || it == "yml"))?;
        let files: Vec<FoundFile> = below.into_iter().filter_map(of_kind).collect();
        if files.is_empty() {
            let message = format!("there is no workflow below `{}`", path.display());
            return Err(CliError::usage(message).with_help("a workflow has the key `graphrun: 1`"));
        }
        found.extend(files);
    }
    let mut known = BTreeSet::new();
    found.retain(|it| known.insert(it.path.clone()));
    Ok(found)
}

/// Returns the files below a folder that are wanted, ordered by path.
///
/// # Errors
///
/// Fails if the folder cannot be searched.
pub(crate) fn below(
    folder: &Path,
    is_wanted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, CliError> {
    let mut paths = Vec::new();
    collect(folder, 0, is_wanted, &mut paths).map_err(|error| {
        CliError::usage(format!("cannot search `{}`", folder.display())).because(error)
    })?;
    paths.sort();
    Ok(paths)
}

/// Returns whether a file has the name of a file of test cases.
pub(crate) fn is_cases(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().ends_with(SUFFIX)
}

/// Returns the kind of a file; `None` if another program reads it, or it cannot be read as a text.
fn of_kind(path: PathBuf) -> Option<FoundFile> {
    let text = read_named(&path, DataLimit::FileBytes).ok()?;
    match FileKind::of(&text)? {
        FileKind::Workflow => Some(FoundFile { path, is_cases: false }),
        FileKind::Cases => Some(FoundFile { path, is_cases: true }),
    }
}

fn collect(
    folder: &Path,
    depth: usize,
    is_wanted: &dyn Fn(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && depth < DEPTH_MAX && !name.starts_with('.') && !SKIPPED.contains(&&*name) {
            // A folder that cannot be read contains no files of ours.
            match collect(&path, depth + 1, is_wanted, found) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => (),
            }
        } else if !is_folder && is_wanted(&path) {
            found.push(path);
        }
    }
    Ok(())
}
