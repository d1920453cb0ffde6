//! A file of a folder that a sandbox gets as a copy.

use std::{path::PathBuf, sync::Arc};

use super::source_file::SourceFile;

/// The files of a project under test: the copy of a folder, and files above it, which replace others of their paths.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// The copy of a folder.
    pub folder: Arc<[FolderFile]>,
    /// A folder of the host that lies below all of them, without a copy. A runner that chooses among the files cannot have it.
    pub mounted: Option<PathBuf>,
    /// The paths of the regular files of the mounted folder, for a runner that looks for tests.
    pub mounted_paths: Arc<[PathBuf]>,
    /// The files above it.
    pub files: Vec<SourceFile>,
}

impl Project {
    /// Returns the project without the files of some paths, and whether there were any.
    pub(super) fn without(&self, is_left_out: impl Fn(&str) -> bool) -> (Self, bool) {
        let kept = |it: &&FolderFile| !it.path.to_str().is_some_and(&is_left_out);
        let folder: Arc<[FolderFile]> = self.folder.iter().filter(kept).cloned().collect();
        let files: Vec<SourceFile> =
            self.files.iter().filter(|it| !is_left_out(&it.path)).cloned().collect();
        let is_less = folder.len() < self.folder.len() || files.len() < self.files.len();
        (Self { folder, files, ..self.clone() }, is_less)
    }

    /// Returns the paths of the regular files. A path that is not UTF-8 names no test.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let is_file = |it: &&FolderFile| matches!(it.content, FolderContent::File { .. });
        let folder = self.folder.iter().filter(is_file).filter_map(|it| it.path.to_str());
        let mounted = self.mounted_paths.iter().filter_map(|it| it.to_str());
        folder.chain(mounted).chain(self.files.iter().map(|it| it.path.as_str()))
    }
}

/// A file of a folder of the host, with its path. The sandbox gets a copy, so its path may be any path that exists there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderFile {
    /// The path from the folder.
    pub path: PathBuf,
    /// The content.
    pub content: FolderContent,
}

/// The content of a file of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderContent {
    /// A regular file.
    File {
        /// The bytes.
        bytes: Arc<[u8]>,
        /// Whether it is a program.
        is_executable: bool,
    },
    /// A symbolic link. Nothing outside of the sandbox follows it.
    Link(PathBuf),
}
