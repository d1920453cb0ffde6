//! The folders in which git keeps the data of a worktree and of its repository. Their content is untrusted.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the folder of git for the worktree with this top folder. A bare repository is this folder itself.
pub(crate) fn own_git_folder(top: &Path) -> Option<PathBuf> {
    let own = top.join(".git");
    let is_bare = !own.exists() && top.join("HEAD").is_file() && top.join("objects").is_dir();
    let own = match fs::read_to_string(&own) {
        Ok(text) => top.join(text.strip_prefix("gitdir: ")?.trim_end_matches('\n')),
        Err(_) if is_bare => top.to_owned(),
        Err(_) => own,
    };
    fs::canonicalize(own).ok()
}

/// Returns the folder that all worktrees of a repository share, by the top folder of one of them.
pub(crate) fn shared_git_folder(top: &Path) -> Option<PathBuf> {
    let own = own_git_folder(top)?;
    let shared = match fs::read_to_string(own.join("commondir")) {
        Ok(text) => own.join(text.trim_end_matches('\n')),
        Err(_) => own,
    };
    fs::canonicalize(shared).ok()
}
