//! The user's folders for the files of the program.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use crate::sandbox::default_cache_dir;

/// The name of the subfolder in each of them.
const OWN: &str = "graphrun";
/// The configuration of the user.
const CONFIG_FILE: &str = "config.toml";
/// The list of trusted folders.
const TRUST_FILE: &str = "trusted.json";
/// The list of known databases.
const DATABASES_FILE: &str = "databases.json";

/// The folder of the worktrees of runs.
const WORKTREES: &str = "folders";

/// The user's folders, as far as the environment defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserFolders {
    config: Option<PathBuf>,
    state: Option<PathBuf>,
}

impl UserFolders {
    /// Reads `XDG_CONFIG_HOME`, `XDG_STATE_HOME` and `HOME`.
    pub(crate) fn find() -> Self {
        Self::of(&|name| env::var_os(name).map(PathBuf::from))
    }

    fn of(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        // A relative path would name a folder that may have come with a repository.
        let absolute = |name| variable(name).filter(|it| it.is_absolute());
        let home = absolute("HOME");
        let below_home = |path: &str| home.as_ref().map(|it| it.join(path));
        Self {
            config: absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
            state: absolute("XDG_STATE_HOME").or_else(|| below_home(".local/state")),
        }
    }

    /// Returns the path of the user's configuration, which may be missing.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.config.as_deref().map(|it| own(it, CONFIG_FILE))
    }

    /// Returns the path of the list of trusted folders, which may be missing.
    pub(crate) fn trust_file(&self) -> Option<PathBuf> {
        self.state.as_deref().map(|it| own(it, TRUST_FILE))
    }

    /// Returns the folder of the worktrees of runs, which may be missing.
    pub(crate) fn worktrees(&self) -> Option<PathBuf> {
        self.state.as_deref().map(|it| own(it, WORKTREES))
    }

    /// Returns the path of the list of known databases, which may be missing.
    pub(crate) fn databases_file(&self) -> Option<PathBuf> {
        self.state.as_deref().map(|it| own(it, DATABASES_FILE))
    }
}

/// Returns whether an error means that there is no such file: also if a part of its path is no folder, as with the home
/// `/dev/null`, since then there cannot be one.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn own(folder: &Path, name: &str) -> PathBuf {
    folder.join(OWN).join(name)
}

/// Returns the folder of the environments for generated code; without a home, a folder beside the
/// runs.
pub(crate) fn cache_dir() -> PathBuf {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let home = variable("HOME");
    let cache = variable("XDG_CACHE_HOME");
    default_cache_dir(home.as_deref(), cache.as_deref())
        .unwrap_or_else(|| PathBuf::from(".graphrun/cache"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(variables: &[(&str, &str)]) -> UserFolders {
        UserFolders::of(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, it)| PathBuf::from(it))
        })
    }

    #[test]
    fn the_variables_name_the_folders_and_home_is_the_default() {
        let home = folders(&[("HOME", "/home/me")]);
        assert_eq!(home.config_file(), Some("/home/me/.config/graphrun/config.toml".into()));
        assert_eq!(home.trust_file(), Some("/home/me/.local/state/graphrun/trusted.json".into()));
        let named = folders(&[("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(named.config_file(), Some("/c/graphrun/config.toml".into()));
        assert_eq!(named.trust_file(), Some("/s/graphrun/trusted.json".into()));
    }

    #[test]
    fn a_relative_folder_is_ignored() {
        let relative = folders(&[("XDG_CONFIG_HOME", "config"), ("HOME", ".")]);
        assert_eq!(relative, UserFolders::default());
    }
}
