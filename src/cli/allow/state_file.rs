//! A list in the user's state folder: read as a whole, and changed by one process at a time.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    beneath::{BeneathError, Folder, read_named},
    cli::{error::CliError, exit::Exit, settings::user_folders::is_absent},
    data_limit::DataLimit,
};

/// A stored list.
pub(crate) trait Stored: Default + Serialize + DeserializeOwned {
    /// Its name in messages.
    const NAME: &'static str;
    /// The version of its format.
    const VERSION: u32;
    /// The effect of removing the file, for a remedy.
    const REMOVED: &'static str;

    /// Returns the version of the format that was read.
    fn version(&self) -> u32;
}

/// Reads a list; without a file or a state folder, it is empty.
///
/// # Errors
///
/// Fails when the file exists and cannot be read.
pub(crate) fn read<T: Stored>(path: Option<&Path>) -> Result<T, CliError> {
    let Some(path) = path else { return Ok(T::default()) };
    let refused = |source: Box<dyn std::error::Error + Send + Sync>| {
        let message = format!("the list of {} `{}` cannot be read", T::NAME, path.display());
        CliError::new(Exit::Unusable, message)
            .because(source)
            .with_help(format!("remove the file; {} then", T::REMOVED))
    };
    let text = match read_named(path, DataLimit::FileBytes) {
        Ok(text) => text,
        Err(BeneathError::Io(error)) if is_absent(&error) => {
            return Ok(T::default());
        }
        Err(error) => return Err(refused(error.into())),
    };
    let content: T = serde_json::from_str(&text).map_err(|it| refused(it.into()))?;
    let found = content.version();
    let known = T::VERSION;
    if found == known {
        return Ok(content);
    }
    Err(refused(format!("it has version {found}, and this program reads {known}").into()))
}

/// Returns whether a list can be stored: this needs a writable home.
pub(crate) fn can_be_kept(path: Option<&Path>) -> bool {
    let Some(path) = path else { return false };
    let nearest = path.ancestors().find(|it| it.exists()).unwrap_or(path);
    // A home such as `/dev/null` takes no files.
    (nearest == path || nearest.is_dir()) && access(nearest, AccessFlags::W_OK).is_ok()
}

/// Changes the current list under a lock, and returns it.
///
/// # Errors
///
/// Fails when there is no state folder, or the file cannot be read or written.
pub(crate) fn change<T: Stored>(
    path: Option<&Path>,
    change: impl FnOnce(&mut T),
) -> Result<T, CliError> {
    let Some(path) = path else {
        let message = format!("there is no folder for the list of {}", T::NAME);
        return Err(CliError::new(Exit::Unusable, message)
            .with_help("set `HOME`, or `XDG_STATE_HOME` to an absolute path"));
    };
    let refused = |error: io::Error| {
        let message = format!("the list of {} `{}` cannot be written", T::NAME, path.display());
        CliError::new(Exit::Unusable, message).because(error)
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refused)?;
    let open = Folder::open(folder).map_err(|it| refused(it.into()))?;
    open.lock().map_err(refused)?;
    let mut content = read(Some(path))?;
    change(&mut content);
    write(&content, path).map_err(refused)?;
    Ok(content)
}

/// Writes a list atomically: a reader sees the old one or the new one.
fn write(content: &impl Stored, path: &Path) -> io::Result<()> {
    let temporary: PathBuf = path.with_extension("tmp");
    drop(fs::remove_file(&temporary));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}
