//! The folders whose `graphrun.toml` the user trusts: a list in the user's state folder.
//!
//! A folder is trusted with the content that its file had. Another content is not trusted.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{error::CliError, exit::Exit, user_folders::UserFolders};
use crate::{
    beneath::{BeneathError, Folder, read_named},
    data_limit::DataLimit,
};

/// The version of its form.
const VERSION: u32 = 1;

/// The list.
#[derive(Debug)]
pub(super) struct TrustedFolders {
    /// None without a state folder: then no folder can be trusted.
    path: Option<PathBuf>,
    content: Content,
}

/// The list as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    v: u32,
    /// Each folder with the hash of its file.
    folders: BTreeMap<String, String>,
}

impl TrustedFolders {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// Fails when it is there and cannot be read.
    pub(super) fn load(user: &UserFolders) -> Result<Self, CliError> {
        let path = user.trust_file();
        let content = path.as_deref().map_or(Ok(Content::default()), Content::read)?;
        Ok(Self { path, content })
    }

    /// Returns whether a folder is trusted with a file of this text.
    pub(super) fn trusts(&self, folder: &Path, text: &str) -> bool {
        folder
            .to_str()
            .and_then(|it| self.content.folders.get(it))
            .is_some_and(|known| *known == hash_of(text))
    }

    /// Returns whether a folder is in the list, even if its file changed since.
    pub(super) fn lists(&self, folder: &Path) -> bool {
        folder.to_str().is_some_and(|it| self.content.folders.contains_key(it))
    }

    /// The folders in the list.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.content.folders.keys().map(Path::new)
    }

    /// Trusts a folder with a file of this text, from now on.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be written.
    pub(super) fn trust(&mut self, folder: &Path, text: &str) -> Result<(), CliError> {
        let name = folder.to_str().ok_or_else(|| {
            CliError::usage(format!("`{}` cannot be trusted", folder.display()))
                .because("its path is not UTF-8")
        })?;
        let entry = (name.to_owned(), hash_of(text));
        self.change(|folders| drop(folders.insert(entry.0, entry.1)))
    }

    /// Trusts a folder no longer.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be written.
    pub(super) fn revoke(&mut self, folder: &Path) -> Result<(), CliError> {
        let name = folder.to_string_lossy().into_owned();
        self.change(|folders| drop(folders.remove(&name)))
    }

    /// Changes the list as it is now, while no other process does.
    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Result<(), CliError> {
        let Some(path) = &self.path else {
            return Err(CliError::new(
                Exit::Unusable,
                "there is no place for the list of trusted folders",
            )
            .with_help("set `HOME`, or `XDG_STATE_HOME` to an absolute path"));
        };
        let refused = |error: io::Error| {
            let message =
                format!("the list of trusted folders `{}` cannot be written", path.display());
            CliError::new(Exit::Unusable, message).because(error)
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refused)?;
        let open = Folder::open(folder).map_err(|it| refused(it.into()))?;
        open.lock().map_err(refused)?;
        let mut content = Content::read(path)?;
        change(&mut content.folders);
        content.write(path).map_err(refused)?;
        self.content = content;
        Ok(())
    }
}

impl Default for Content {
    fn default() -> Self {
        Self { v: VERSION, folders: BTreeMap::new() }
    }
}

impl Content {
    fn read(path: &Path) -> Result<Self, CliError> {
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| {
            let message =
                format!("the list of trusted folders `{}` cannot be read", path.display());
            CliError::new(Exit::Unusable, message)
                .because(source)
                .with_help("remove the file; no folder is trusted then")
        };
        let text = match read_named(path, DataLimit::FileBytes) {
            Ok(text) => text,
            Err(BeneathError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(refused(error.into())),
        };
        let content: Self = serde_json::from_str(&text).map_err(|it| refused(it.into()))?;
        if content.v == VERSION {
            return Ok(content);
        }
        Err(refused(
            format!("it has version {}, and this program reads {VERSION}", content.v).into(),
        ))
    }

    /// Writes the list as a whole: a reader sees the old one or the new one.
    fn write(&self, path: &Path) -> io::Result<()> {
        let temporary = path.with_extension("tmp");
        drop(fs::remove_file(&temporary));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    }
}

fn hash_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
