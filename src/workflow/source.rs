//! The text of a file that a person wrote, or is just writing.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::data_limit::DataLimit;

/// The texts of files as an editor shows them, which may not be saved yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<BTreeMap<PathBuf, Arc<str>>>);

impl Buffers {
    /// The text of a file that is open.
    pub fn get(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(AsRef::as_ref)
    }

    /// The text of a file, open or on the disk.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be read, is larger than a file may be or is not UTF-8.
    pub(super) fn read(&self, path: &Path) -> io::Result<String> {
        self.get(path)
            .map_or_else(|| DataLimit::FileBytes.read_to_string(path), |it| Ok(it.to_owned()))
    }

    /// Whether there is such a file, open or on the disk.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        self.0.contains_key(path) || path.is_file()
    }
}

impl FromIterator<(PathBuf, Arc<str>)> for Buffers {
    fn from_iter<T: IntoIterator<Item = (PathBuf, Arc<str>)>>(texts: T) -> Self {
        Self(Arc::new(texts.into_iter().collect()))
    }
}
