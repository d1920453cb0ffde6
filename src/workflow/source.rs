//! Reads a text file that a person wrote, up to a size, or is just writing.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The texts of files as an editor shows them, which may not be saved yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Arc<BTreeMap<PathBuf, Arc<str>>>);

impl Buffers {
    /// The text of a file that is open.
    pub fn get(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(AsRef::as_ref)
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

/// The whole text of a file.
///
/// # Errors
///
/// Fails when the file cannot be read, is larger than `bytes_max` or is not UTF-8.
pub(super) fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    // The size is not asked for first: a device has none, and goes on for ever.
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let message = format!("it is larger than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
