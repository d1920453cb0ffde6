//! The files that a workflow names: prompts, schemas, other workflows. All of them lie beneath its project.
//!
//! The root of the project is determined once, for the file that the user named ([`Project`] has the rule). It applies
//! to every workflow that this one uses. A path starts at the folder of the file that names it, or at the folder above
//! if that is still in the project. Links that stay in the project are followed; only regular files are read.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use graphrun_guard::{
    beneath::{BeneathError, Folder, Project, without_mark},
    data_limit::DataLimit,
};

/// The texts of files in an editor, which may be unsaved. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<BTreeMap<PathBuf, Arc<str>>>);

impl Buffers {
    /// Returns the text of a file that is open.
    pub fn get(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(AsRef::as_ref)
    }
}

impl FromIterator<(PathBuf, Arc<str>)> for Buffers {
    fn from_iter<T: IntoIterator<Item = (PathBuf, Arc<str>)>>(texts: T) -> Self {
        Self(Arc::new(texts.into_iter().collect()))
    }
}

/// A folder from which the paths of a workflow start.
#[derive(Clone, Debug)]
pub(crate) struct SourceFolder {
    root: Arc<Root>,
    /// The folder as shown in messages.
    shown: PathBuf,
    /// The folder, relative to the root.
    within: PathBuf,
}

/// The folder that paths cannot leave.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// `None` if it cannot be opened: then only the buffers have files.
    folder: Option<Folder>,
    buffers: Buffers,
}

/// A file beneath the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourcePath {
    /// The path as shown in messages.
    pub(crate) shown: PathBuf,
    /// The path, relative to the root.
    within: PathBuf,
}

impl SourceFolder {
    /// The folder of the workflow that the user named.
    pub(crate) fn of(folder: &Path, buffers: Buffers) -> Self {
        let project = Project::around(folder);
        let Project { root, within } =
            project.unwrap_or_else(|_| Project { root: folder.to_owned(), within: PathBuf::new() });
        let opened = Folder::open(&root).ok();
        let root = Arc::new(Root { path: root, folder: opened, buffers });
        Self { root, shown: folder.to_owned(), within }
    }

    /// Returns the folder as shown in messages.
    pub(crate) fn path(&self) -> &Path {
        &self.shown
    }

    /// The folder of a file.
    pub(crate) fn of_file(&self, file: &SourcePath) -> Self {
        let parent = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let root = Arc::clone(&self.root);
        Self { root, shown: parent(&file.shown), within: parent(&file.within) }
    }

    /// Returns the possible files of a path: in this folder, or in the one above.
    pub(crate) fn candidates(&self, relative: &Path) -> Vec<SourcePath> {
        let own =
            SourcePath { shown: self.shown.join(relative), within: self.within.join(relative) };
        let above = self.within.parent().map(|within| SourcePath {
            shown: above(&self.shown).join(relative),
            within: within.join(relative),
        });
        [own].into_iter().chain(above).collect()
    }

    /// Returns the file that a path names. If there is no regular file, it is the pipe, folder or link of this name:
    /// reading it fails with the reason.
    pub(crate) fn find(&self, relative: &Path) -> Option<SourcePath> {
        let candidates = self.candidates(relative);
        let is_file = |it: &&SourcePath| self.has_file(it);
        let is_anything = |path: &&SourcePath| match self.open(path) {
            Err(BeneathError::Missing | BeneathError::NotFolder) => false,
            Ok(_) | Err(_) => true,
        };
        candidates.iter().find(is_file).or_else(|| candidates.iter().find(is_anything)).cloned()
    }

    /// Returns the file in this folder that a path names, whether it exists or not.
    pub(crate) fn own(&self, relative: &Path) -> SourcePath {
        SourcePath { shown: self.shown.join(relative), within: self.within.join(relative) }
    }

    /// Reads a file, without its byte order mark.
    pub(crate) fn read(&self, file: &SourcePath) -> Result<String, BeneathError> {
        if let Some(text) = self.root.buffers.get(&file.shown) {
            return Ok(without_mark(text.to_owned()));
        }
        let folder = self.root.folder.as_ref().ok_or(BeneathError::Missing)?;
        folder.read_text(&file.within, DataLimit::FileBytes).map(without_mark)
    }

    /// Opens the folder itself, for files that must lie in it and not only in the project.
    pub(crate) fn open_folder(&self) -> Result<Folder, BeneathError> {
        let root = self.root.folder.as_ref().ok_or(BeneathError::Missing)?;
        root.open_folder(&self.within)
    }

    /// Returns the names in the folder of a file.
    pub(crate) fn names_beside(&self, file: &SourcePath) -> Vec<String> {
        let folder = file.within.parent().unwrap_or(Path::new(""));
        let entries = self.root.folder.as_ref().map(|it| it.entries(folder));
        let entries = entries.into_iter().flatten().flatten();
        entries.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect()
    }

    /// Checks that a folder which the workflow names lies beneath the root. It does not have to exist.
    pub(crate) fn check_folder(&self, path: &Path) -> Result<(), BeneathError> {
        let within = if path.is_absolute() {
            let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let within = resolved.strip_prefix(&self.root.path);
            within.map(Path::to_owned).map_err(|_| BeneathError::LeadsOut)?
        } else {
            self.within.join(path)
        };
        self.check(&within, |root, path| root.open_folder(path).map(drop))
    }

    /// Checks that a file which is named from this folder lies beneath the root. It does not have to exist.
    pub(crate) fn check_file(&self, path: &Path) -> Result<(), BeneathError> {
        self.check(&self.within.join(path), |root, path| root.open_file(path).map(drop))
    }

    fn check(
        &self,
        within: &Path,
        open: impl FnOnce(&Folder, &Path) -> Result<(), BeneathError>,
    ) -> Result<(), BeneathError> {
        if climbs_out(within) {
            return Err(BeneathError::LeadsOut);
        }
        match self.root.folder.as_ref().map(|it| open(it, within)) {
            None | Some(Ok(()) | Err(BeneathError::Missing)) => Ok(()),
            Some(Err(error)) => Err(error),
        }
    }

    /// Returns the advice for a file that cannot be read.
    pub(crate) fn help_for(&self, error: &BeneathError) -> Option<String> {
        let root = self.root.path.display();
        matches!(error, BeneathError::LeadsOut).then(|| {
            format!(
                "a workflow reads files beneath `{root}` only: the nearest folder with a \
                 `graphrun.toml` or a `.git`, or else its own"
            )
        })
    }

    /// Returns the advice about the start of a path.
    pub(crate) fn help(&self) -> &'static str {
        if self.within.as_os_str().is_empty() {
            "a path starts at the folder of the workflow (the one above is outside of its project, \
             the nearest folder with a `graphrun.toml` or a `.git`)"
        } else {
            "a path starts at the folder of the workflow or the one above"
        }
    }

    fn has_file(&self, file: &SourcePath) -> bool {
        self.root.buffers.get(&file.shown).is_some()
            || self.open(file).and_then(|it| Ok(it.metadata()?)).is_ok_and(|it| it.is_file())
    }

    fn open(&self, file: &SourcePath) -> Result<std::fs::File, BeneathError> {
        self.root.folder.as_ref().ok_or(BeneathError::Missing)?.open_any(&file.within)
    }
}

/// Returns the folder above, because `graphs/x.yaml` and `prompts/y.md` have the same parent folder.
fn above(folder: &Path) -> PathBuf {
    match folder.components().next_back() {
        Some(Component::Normal(_)) => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.join(".."),
    }
}

/// Returns whether a path leaves its start folder, without regard to links.
fn climbs_out(path: &Path) -> bool {
    let mut depth = 0_usize;
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => (),
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

/// Returns the possible files of a path in a workflow, for an editor.
pub fn source_paths(folder: &Path, relative: &Path) -> Vec<PathBuf> {
    let folder = SourceFolder::of(folder, Buffers::default());
    folder.candidates(relative).into_iter().map(|it| it.shown).collect()
}
