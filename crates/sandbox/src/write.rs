//! Delivers generated files to a folder of the host.
//!
//! The folder may contain an earlier delivery, or any other files. Every step is relative to an open [`Folder`] and
//! follows no symbolic link, so nothing in the folder can redirect a write out of it. A delivery changes nothing before
//! it has checked that every file can be written.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use graphrun_guard::beneath::{BeneathError, Folder, Kind};
use thiserror::Error;

use super::{
    delivered::{self, DeliveredFiles},
    path::{FilesRefused, PathError, check_files, check_path},
    source_file::SourceFile,
};

/// The largest file that a delivery can have written; a larger one has another origin.
const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// The start and the end of a temporary name.
const TEMPORARY_START: &str = ".graphrun-";
const TEMPORARY_END: &str = ".tmp";
/// The most files in the way that an error names.
const NAMED_MAX: usize = 10;

/// Which files a delivery may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replace {
    /// The unchanged files of earlier deliveries.
    #[default]
    Delivered,
    /// Any regular file.
    Anything,
}

/// The reason why files were not delivered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The files are not acceptable; nothing was written.
    #[error("the files are refused")]
    Refused(#[from] FilesRefused),
    /// The folder below the root is not acceptable; nothing was written.
    #[error("the folder {path:?} is refused: {error}")]
    Below {
        /// The folder, from the root.
        path: String,
        /// The rule that it breaks.
        error: PathError,
    },
    /// The folder itself cannot be made or opened.
    #[error("cannot open the folder `{}`", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A symbolic link, a folder in place of a file, or another special file is in the way; it was left unchanged.
    #[error("`{}` is not a regular {expected}", path.display())]
    InTheWay {
        /// The path in the way.
        path: PathBuf,
        /// The expected kind: a file or a folder.
        expected: &'static str,
    },
    /// Files of the same names exist, and they are not unchanged files of an earlier delivery; nothing was written.
    #[error("{} not from an earlier delivery, or changed since: {}; nothing was written", are(paths.len()), listed(paths))]
    Foreign {
        /// The files.
        paths: Vec<String>,
    },
    /// A file could not be written or removed.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file, or a folder above it.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Writes generated files to the folder `below` a root, and returns their paths in order. Both folders are made if they
/// do not exist; an empty `below` is the root itself.
///
/// A regular file of the same name is replaced as a whole if it already has the new content, if it is an unchanged file
/// of an earlier delivery, or if `replace` allows it. Delivering twice is harmless, also after the process died in the
/// first delivery. Files without a new version stay. A person chose the path of the root. Everything below it is
/// checked by the same rules ([`check_path`]), and symbolic links there are neither followed nor replaced. Deliveries
/// to one folder wait for each other.
///
/// # Errors
/// Everything is checked, and every file is written under a temporary name, before the first file gets its own name. So
/// refused files and a full disk deliver nothing.
pub fn write_files(
    root: &Path,
    below: &str,
    files: &[SourceFile],
    replace: Replace,
) -> Result<Vec<PathBuf>, WriteError> {
    check_files(files)?;
    if !below.is_empty() {
        let refused = |error| WriteError::Below { path: below.to_owned(), error };
        check_path(below).map_err(refused)?;
    }
    let outer = Folder::create(root)
        .map_err(|error| WriteError::Root { path: root.to_owned(), source: error.into() })?;
    // Deliveries from two folders above a file use the same temporary name.
    // On a file system without locks, the caller must prevent concurrent deliveries.
    let _ = outer.lock();
    let (root, folder) = descend(root, &outer, below)?;
    if !below.is_empty() {
        let _ = folder.lock();
    }
    let mut list = DeliveredFiles::parse(&known(&folder).unwrap_or_default());
    let mut places = Vec::new();
    let mut foreign = Vec::new();
    for file in files {
        let place = Place::find(&root, &folder, file)?;
        if let Some(content) = place.content()? {
            let is_ours = content == file.content.as_bytes() || list.knows(&file.path, &content);
            if !is_ours && replace == Replace::Delivered {
                foreign.push(file.path.clone());
            }
            list.expect(&file.path, &content);
        }
        list.expect(&file.path, file.content.as_bytes());
        places.push(place);
    }
    if !foreign.is_empty() {
        return Err(WriteError::Foreign { paths: foreign });
    }
    stage(&places, files)?;
    let keep = |list: &DeliveredFiles| {
        let path = root.join(delivered::LIST);
        put(&folder, delivered::LIST, &list.to_text()).map_err(|it| write_error(&path, it))
    };
    keep(&list).inspect_err(|_| places.iter().for_each(Place::unstage))?;
    for (place, file) in places.iter().zip(files) {
        place.take_name()?;
        list.settle(&file.path, file.content.as_bytes());
    }
    keep(&list)?;
    Ok(places.into_iter().map(|it| it.path).collect())
}

/// Writes files into a folder of a run, and returns their paths in order. Regular files of the same names are replaced and
/// stay programs if they are. There is no list of earlier deliveries: the history of the folder tells what changed.
///
/// # Errors
/// As [`write_files`]: refused files and a full disk change nothing.
pub fn replace_files(root: &Path, files: &[SourceFile]) -> Result<Vec<PathBuf>, WriteError> {
    change_files(root, files, &[])
}

/// Removes regular files and links from a folder of a run, and then the folders that are empty without them, as git does.
/// A file that is not there is removed already.
///
/// # Errors
/// Fails when a path is not acceptable, leads through a link or names a folder, and then removes nothing; and when the system
/// does not allow the removal.
pub fn remove_files(root: &Path, paths: &[String]) -> Result<(), WriteError> {
    change_files(root, &[], paths).map(drop)
}

/// Writes files as [`replace_files`] does, and then removes others as [`remove_files`] does. Returns the paths of the written
/// files in order.
///
/// # Errors
/// As [`replace_files`] and [`remove_files`]: everything is checked before the first change.
pub fn change_files(
    root: &Path,
    files: &[SourceFile],
    removed: &[String],
) -> Result<Vec<PathBuf>, WriteError> {
    check_files(files)?;
    let empty = |path: &String| SourceFile { path: path.clone(), content: String::new() };
    check_files(&removed.iter().map(empty).collect::<Vec<_>>())?;
    let folder = Folder::open(root)
        .map_err(|error| WriteError::Root { path: root.to_owned(), source: error.into() })?;
    let _ = folder.lock();
    let removals = removed.iter().map(|it| Removal::find(&folder, it));
    let removals: Vec<Removal<'_>> =
        removals.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let find = |file: &SourceFile| Place::find(root, &folder, file);
    let places: Vec<Place> = files.iter().map(find).collect::<Result<_, _>>()?;
    let folders: BTreeMap<_, _> = places.iter().map(|it| (it.path.parent(), &it.parent)).collect();
    folders.into_values().for_each(remove_remains);
    stage(&places, files)?;
    for place in &places {
        let keep_mode = |it| write_error(&place.path, it);
        place
            .parent
            .copy_execution(&place.name, &temporary_name(&place.name))
            .map_err(keep_mode)?;
        place.take_name()?;
    }
    for removal in &removals {
        removal.perform(&folder)?;
    }
    Ok(places.into_iter().map(|it| it.path).collect())
}

/// Opens the folder at a path below another one, and makes missing folders.
fn descend(root: &Path, outer: &Folder, below: &str) -> Result<(PathBuf, Folder), WriteError> {
    let mut path = root.to_owned();
    let mut folder = outer.again().map_err(|it| write_error(root, it))?;
    for component in below.split('/').filter(|component| !component.is_empty()) {
        path.push(component);
        folder = folder.enter(component).map_err(|error| match error {
            BeneathError::Link | BeneathError::NotFolder => {
                WriteError::InTheWay { path: path.clone(), expected: "folder" }
            }
            error => write_error(&path, error),
        })?;
    }
    Ok((path, folder))
}

/// Writes all files under temporary names, or none.
fn stage(places: &[Place], files: &[SourceFile]) -> Result<(), WriteError> {
    for (place, file) in places.iter().zip(files) {
        let staged = write_temporary(&place.parent, &place.name, file.content.as_bytes());
        if let Err(source) = staged {
            places.iter().for_each(Place::unstage);
            return Err(write_error(&place.path, source));
        }
    }
    Ok(())
}

/// The destination of a file.
struct Place {
    path: PathBuf,
    parent: Folder,
    name: String,
}

impl Place {
    /// Finds the destination, and makes missing folders.
    fn find(root: &Path, folder: &Folder, file: &SourceFile) -> Result<Self, WriteError> {
        let (parents, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        // Models read the errors of these paths, so they start below the root.
        let (_, parent) = descend(Path::new(""), folder, parents)?;
        let shown = Path::new(&file.path);
        // Checked first for a better message: a rename would replace a link, and never follow it.
        match parent.kind(name).map_err(|it| write_error(shown, it))? {
            Some(Kind::File) | None => {
                Ok(Self { path: root.join(shown), parent, name: name.to_owned() })
            }
            Some(_) => Err(WriteError::InTheWay { path: shown.to_owned(), expected: "file" }),
        }
    }

    /// Returns the content of the existing file.
    fn content(&self) -> Result<Option<Vec<u8>>, WriteError> {
        let content = self.parent.read_own(&self.name, CONTENT_BYTES_MAX);
        content.map_err(|it| write_error(&self.path, it))
    }

    /// Renames the temporary file to its own name.
    fn take_name(&self) -> Result<(), WriteError> {
        let renamed = self.parent.rename(temporary_name(&self.name), &self.name);
        renamed.map_err(|it| write_error(&self.path, it))
    }

    fn unstage(&self) {
        // The next delivery removes a temporary file that stays.
        let _ = self.parent.remove(temporary_name(&self.name));
    }
}

/// A file that is removed.
struct Removal<'a> {
    path: &'a str,
    parent: Folder,
    name: &'a str,
}

impl<'a> Removal<'a> {
    /// Finds the file. Without its folder there is nothing to remove.
    fn find(folder: &Folder, path: &'a str) -> Result<Option<Self>, WriteError> {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let shown = Path::new(path);
        let parent = match folder.open_plain(parents.as_ref()) {
            Err(BeneathError::Missing) => return Ok(None),
            opened => opened.map_err(|it| write_error(shown, it))?,
        };
        if parent.kind(name).map_err(|it| write_error(shown, it))? == Some(Kind::Folder) {
            return Err(WriteError::InTheWay { path: shown.to_owned(), expected: "file" });
        }
        Ok(Some(Self { path, parent, name }))
    }

    fn perform(&self, folder: &Folder) -> Result<(), WriteError> {
        self.parent.remove(self.name).map_err(|it| write_error(Path::new(self.path), it))?;
        let mut path = self.path;
        while let Some((parents, _)) = path.rsplit_once('/') {
            let (above, name) = parents.rsplit_once('/').unwrap_or(("", parents));
            let above = folder.open_plain(above.as_ref());
            // A folder that is not empty stays.
            if above.and_then(|it| it.remove_empty(name)).is_err() {
                break;
            }
            path = parents;
        }
        Ok(())
    }
}

/// Returns the list of a folder, if it has one.
fn known(folder: &Folder) -> Option<Vec<u8>> {
    folder.read_own(delivered::LIST, delivered::BYTES_MAX).ok().flatten()
}

/// Puts a file with this content in the place of an existing one: a reader sees the old file or the new one.
fn put(parent: &Folder, name: &str, content: &[u8]) -> Result<(), BeneathError> {
    write_temporary(parent, name, content)?;
    parent.rename(temporary_name(name), name)
}

/// Writes a file under its temporary name. Generated files cannot have this name, and it is always the same: the
/// remains of a killed process are found, and no other delivery uses it, because the folder is locked.
fn write_temporary(parent: &Folder, name: &str, content: &[u8]) -> Result<(), BeneathError> {
    parent.write_new(temporary_name(name), content)
}

/// Removes the temporary files that a killed process has left in a folder. Nothing else writes to it now.
fn remove_remains(folder: &Folder) {
    for entry in folder.entries(Path::new("")).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name()) {
            let _ = folder.remove(entry.file_name());
        }
    }
}

/// Returns the temporary name of a file.
fn temporary_name(name: &str) -> String {
    format!("{TEMPORARY_START}{name}{TEMPORARY_END}")
}

/// Returns whether a file has a temporary name, so that a killed process has left it, or another one writes it.
pub fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(TEMPORARY_START.as_bytes()) && name.ends_with(TEMPORARY_END.as_bytes())
}

fn are(many: usize) -> &'static str {
    if many == 1 { "a file exists that is" } else { "files exist that are" }
}

fn listed(paths: &[String]) -> String {
    let named: Vec<String> = paths.iter().take(NAMED_MAX).map(|it| format!("`{it}`")).collect();
    let more = paths.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

fn write_error(path: &Path, error: BeneathError) -> WriteError {
    WriteError::Write { path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
#[path = "write/tests.rs"]
mod tests;
