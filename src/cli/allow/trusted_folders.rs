//! The folders whose `graphrun.toml` the user trusts: a list in the user's state folder.
//!
//! A folder is trusted with the current content of its file. Other content is not trusted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::state_file::{self, Stored};
use crate::cli::{error::CliError, settings::user_folders::UserFolders};

/// The list.
#[derive(Debug)]
pub(crate) struct TrustedFolders {
    /// None without a state folder: then no folder can be trusted.
    path: Option<PathBuf>,
    content: TrustFile,
}

/// The stored list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    v: u32,
    /// Each folder with the hash of its file.
    folders: BTreeMap<String, String>,
}

impl TrustedFolders {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// Fails when it exists and cannot be read.
    pub(crate) fn load(user: &UserFolders) -> Result<Self, CliError> {
        let path = user.trust_file();
        let content = state_file::read(path.as_deref())?;
        Ok(Self { path, content })
    }

    /// Returns whether a folder is trusted with a file of this text.
    pub(crate) fn trusts(&self, folder: &Path, text: &str) -> bool {
        folder
            .to_str()
            .and_then(|it| self.content.folders.get(it))
            .is_some_and(|known| *known == hash_of(text))
    }

    /// Returns whether a folder is in the list, even if its file changed since.
    pub(crate) fn lists(&self, folder: &Path) -> bool {
        folder.to_str().is_some_and(|it| self.content.folders.contains_key(it))
    }

    /// Returns the folders in the list.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.content.folders.keys().map(Path::new)
    }

    /// Trusts a folder with a file of this text from now on.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be written.
    pub(crate) fn trust(&mut self, folder: &Path, text: &str) -> Result<(), CliError> {
        let name = folder.to_str().ok_or_else(|| {
            CliError::usage(format!("`{}` cannot be trusted", folder.display()))
                .because("its path is not UTF-8")
        })?;
        let entry = (name.to_owned(), hash_of(text));
        self.change(|folders| drop(folders.insert(entry.0, entry.1)))
    }

    /// Removes the trust in a folder.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be written.
    pub(crate) fn revoke(&mut self, folder: &Path) -> Result<(), CliError> {
        let name = folder.to_string_lossy().into_owned();
        self.change(|folders| drop(folders.remove(&name)))
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Result<(), CliError> {
        let path = self.path.as_deref();
        self.content = state_file::change(path, |it: &mut TrustFile| change(&mut it.folders))?;
        Ok(())
    }
}

impl Default for TrustFile {
    fn default() -> Self {
        Self { v: Self::VERSION, folders: BTreeMap::new() }
    }
}

impl Stored for TrustFile {
    const NAME: &'static str = "trusted folders";
    const VERSION: u32 = 1;
    const REMOVED: &'static str = "no folder is trusted";

    fn version(&self) -> u32 {
        self.v
    }
}

fn hash_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
