//! The folders in which git keeps the data of a worktree and of its repository. Their content is untrusted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphrun_guard::beneath::Folder;

/// The most bytes of a file that names branches.
const BYTES_MAX: u64 = 64 << 10;
/// Files of a rebase that name branches, one a line.
const OF_REBASE: [&str; 3] =
    ["rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs"];
/// The file of a bisection. It has the short name of the branch, or a commit.
const OF_BISECTION: &str = "BISECT_START";

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

/// Returns whether the worktree with this top folder has begun a rebase or a bisection of a branch. Git lists its `HEAD` as
/// detached meanwhile, and moves the branch at the end.
pub(crate) fn is_in_progress(top: &Path, reference: &str) -> bool {
    let Some(own) = own_git_folder(top).and_then(|it| Folder::open(&it).ok()) else { return false };
    let has_line = |name: &str, line: &str| {
        let text = own.read_start(name.as_ref(), BYTES_MAX).map(|(bytes, _)| bytes);
        text.is_ok_and(|it| it.split(|byte| *byte == b'\n').any(|it| it == line.as_bytes()))
    };
    let short = reference.strip_prefix("refs/heads/").unwrap_or(reference);
    OF_REBASE.iter().any(|name| has_line(name, reference)) || has_line(OF_BISECTION, short)
}
