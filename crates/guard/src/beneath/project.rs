//! Which folder bounds the files that a workflow names.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The names that mark the top folder of a project.
const MARKERS: [&str; 2] = ["graphrun.toml", ".git"];

/// The permission of everyone to write.
const EVERYONE_WRITES: u32 = 0o002;

/// The folder that bounds the files which a workflow names, and a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The folder that bounds, as an absolute path without links.
    pub root: PathBuf,
    /// The folder in it, from the root. It is empty where the folder is the root.
    pub within: PathBuf,
}

impl Project {
    /// Finds the project of a folder.
    ///
    /// The root is the nearest folder, from this one upwards, that has a `graphrun.toml` or a `.git`; without one it is
    /// the folder itself. So a workflow can share prompts within its project, a cloned repository cannot reach out of its
    /// checkout, and a single downloaded file cannot reach out of the folder that it lies in. The home folder of the
    /// user, a folder that everyone can write and the root of the file system bound the search: a `.git` there marks no
    /// project, because it would open all of the user's files to every workflow below.
    ///
    /// The folder does not have to exist: an editor may hold a workflow that is not saved yet.
    ///
    /// # Errors
    ///
    /// Fails when the folder cannot be looked up.
    pub fn around(folder: &Path) -> io::Result<Self> {
        let own = without_links(folder)?;
        let home = env::home_dir().and_then(|it| fs::canonicalize(it).ok());
        let ends_search =
            |it: &Path| it.parent().is_none() || Some(it) == home.as_deref() || is_shared(it);
        let mut candidates = own.ancestors().take_while(|it| !ends_search(it));
        let root = candidates.find(|it| is_marked(it)).unwrap_or(&own);
        let within = own.strip_prefix(root).unwrap_or(Path::new("")).to_owned();
        Ok(Self { root: root.to_owned(), within })
    }
}

/// Returns the absolute path of a folder, without links as far as it exists.
fn without_links(folder: &Path) -> io::Result<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (fs::canonicalize(folder), folder.parent(), folder.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(without_links(parent)?.join(name))
        }
        (found, ..) => found,
    }
}

/// Returns whether everyone can put a marker there.
fn is_shared(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|it| it.permissions().mode() & EVERYONE_WRITES != 0)
}

fn is_marked(folder: &Path) -> bool {
    MARKERS.iter().any(|it| folder.join(it).exists())
}
