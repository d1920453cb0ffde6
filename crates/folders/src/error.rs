//! Why a folder of a run cannot be used.

use std::{io, path::PathBuf};

use graphrun_guard::{beneath::BeneathError, redact::REDACTED};
use graphrun_sandbox::WriteError;
use thiserror::Error;

use super::git::OUTPUT_BYTES_MAX;

/// The most files in conflict that an error names.
const NAMED_MAX: usize = 10;

/// Why a folder of a run cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There is no git on this machine.
    #[error("there is no program `git` in /usr/bin, /bin or /usr/local/bin")]
    NoGit,
    /// The path is not the top folder of a repository with a commit.
    #[error("`{}` is not the top folder of a git repository with a commit: {detail}", path.display())]
    NotRepository {
        /// The path.
        path: PathBuf,
        /// The reason.
        detail: String,
    },
    /// The text is not the name of a branch.
    #[error("{branch:?} is not the name of a branch")]
    BadBranch {
        /// The text.
        branch: String,
    },
    /// A branch of this name exists, and the run did not make it.
    #[error("the branch `{branch}` exists already, and this run did not make it")]
    BranchTaken {
        /// The branch.
        branch: String,
    },
    /// A branch of the repository has the name of a folder of the branch, or the other way round.
    #[error(
        "the branch `{branch}` cannot be made: there is the branch `{existing}`, and git keeps no branch below another one"
    )]
    BranchInTheWay {
        /// The branch of the run.
        branch: String,
        /// The branch in its way.
        existing: String,
    },
    /// The repository belongs to another user, so git refuses to work in it.
    #[error("the repository{} belongs to another user", path.as_ref().map(|it| format!(" `{it}`")).unwrap_or_default())]
    OtherOwner {
        /// The repository, as git names it.
        path: Option<String>,
    },
    /// The repository of the run is gone.
    #[error("the repository `{}` of the run does not exist", path.display())]
    RepositoryGone {
        /// The repository.
        path: PathBuf,
    },
    /// The branch of the run is gone.
    #[error("the branch `{branch}` of the run was deleted")]
    BranchGone {
        /// The branch.
        branch: String,
    },
    /// Another branch is checked out in the worktree of the run.
    #[error("the worktree `{}` is no longer on its branch `{branch}`", worktree.display())]
    OtherBranch {
        /// The worktree.
        worktree: PathBuf,
        /// The branch of the run.
        branch: String,
    },
    /// The worktree of the run does not stay complete.
    #[error("the worktree `{}` was made again several times, and is still incomplete", worktree.display())]
    Incomplete {
        /// The worktree.
        worktree: PathBuf,
    },
    /// There is no such branch.
    #[error("there is no branch `{branch}`")]
    NoBranch {
        /// The branch.
        branch: String,
    },
    /// The target of a merge is checked out.
    #[error("the branch `{branch}` is checked out in `{}`, and a merge would change those files", path.display())]
    CheckedOut {
        /// The branch.
        branch: String,
        /// The checkout.
        path: PathBuf,
    },
    /// The changes of both branches do not fit together. Nothing was merged.
    #[error("`{branch}` cannot be merged into `{into}`, both changed: {}", listed(files))]
    Conflict {
        /// The branch of the run.
        branch: String,
        /// The target.
        into: String,
        /// The files in conflict.
        files: Vec<String>,
    },
    /// There is no such commit.
    #[error("there is no commit {commit:?}")]
    NoCommit {
        /// The text that is no commit.
        commit: String,
    },
    /// The folder has changes that a merge would lose.
    #[error("`{branch}` has changes that are not committed, and a merge would lose them")]
    Uncommitted {
        /// The branch of the run.
        branch: String,
    },
    /// A secret would become a part of the history. Nothing was committed.
    #[error("{place} contains {what}; nothing was committed")]
    Secret {
        /// The file with the secret, or the message.
        place: String,
        /// The kind of secret.
        what: &'static str,
    },
    /// A file would be committed with a text in place of a key. Nothing was committed.
    #[error("{place} has `{REDACTED}` in place of a key that was removed; nothing was committed")]
    RemovedKey {
        /// The file.
        place: String,
    },
    /// A commit of another program contains a secret. Nothing was committed or merged.
    #[error("{place} of the commit {commit} contains {what}; nothing was committed or merged")]
    SecretInCommit {
        /// The file with the secret, or the message.
        place: String,
        /// The kind of secret.
        what: &'static str,
        /// The first digits of the commit.
        commit: String,
    },
    /// A folder within the folder is a repository. Nothing was staged.
    #[error(
        "{path:?} is a git repository within the folder, and a commit would not contain its files"
    )]
    Repository {
        /// The folder within the folder.
        path: String,
    },
    /// The folder of a submodule has files. Nothing was staged.
    #[error(
        "{path:?} is the folder of a submodule, and a commit would not contain the files in it"
    )]
    Submodule {
        /// The folder of the submodule.
        path: String,
    },
    /// Git cannot read the files as they are.
    #[error("git failed to {attempt}, because of the files: {detail}")]
    Content {
        /// The attempt.
        attempt: &'static str,
        /// The end of git's output.
        detail: String,
    },
    /// The run was started without this folder.
    #[error("the run has no folder `{name}`: it was started without one")]
    Unknown {
        /// The name of the folder.
        name: String,
    },
    /// The folder is larger than what a sandbox gets.
    #[error("the folder has more than {what}")]
    TooLarge {
        /// The limit.
        what: String,
    },
    /// The changes are too large to be shown or searched. Nothing was committed.
    #[error("the changes have more than {} MiB{}", OUTPUT_BYTES_MAX >> 20, shown_largest(largest.as_ref()))]
    ChangesTooLarge {
        /// The largest changed file, from the folder, and its size.
        largest: Option<(String, u64)>,
    },
    /// A commit has no file that can be used.
    #[error("`{path}` of the commit {} cannot be used: {problem}", commit.get(..12).unwrap_or(commit))]
    NoBaseFile {
        /// The path.
        path: String,
        /// The commit.
        commit: String,
        /// The problem.
        problem: String,
    },
    /// The files are not acceptable, or cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file of the folder cannot be read.
    #[error("`{path}` cannot be read")]
    Read {
        /// The file, from the folder.
        path: String,
        /// The reason.
        source: BeneathError,
    },
    /// Git failed.
    #[error("git failed to {attempt}: {detail}")]
    Git {
        /// The attempt.
        attempt: &'static str,
        /// The end of git's output.
        detail: String,
    },
    /// Git took too long, or wrote too much.
    #[error("git was stopped in the attempt to {attempt}: {limit}")]
    Stopped {
        /// The attempt.
        attempt: &'static str,
        /// The limit.
        limit: &'static str,
    },
    /// A lock that all processes use cannot be taken.
    #[error("cannot lock `{}`", path.display())]
    Lock {
        /// The file of the lock.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused.
    #[error("cannot {attempt}")]
    Io {
        /// The attempt.
        attempt: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl FolderError {
    pub(crate) fn io(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { attempt, source }
    }

    /// Returns the remedy, if it is not obvious.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoGit => "install git",
            Self::NotRepository { .. } => {
                "name the folder that contains `.git`, and commit something there first"
            }
            Self::BranchTaken { .. } => {
                "use `run.id` in the name of the branch, or delete that branch"
            }
            Self::BranchInTheWay { .. } => {
                "choose another name with `branch` of the folder, or rename that branch (`git branch -m`)"
            }
            Self::OtherOwner { .. } => {
                "start graphrun as its owner, or make this user the owner (`chown -R`); `safe.directory` has no effect, because \
                 the configuration of the user does not apply"
            }
            Self::RepositoryGone { .. } => "put the repository back at this path, then resume",
            Self::BranchGone { .. } => {
                "`git fsck --lost-found` in the repository finds its last commit; make the branch there again"
            }
            Self::BadBranch { .. } => {
                "`branch` is an expression; its value is a name as in `auto/fix-1`"
            }
            Self::OtherBranch { .. } => {
                "check out the branch of the run there (`git switch`), then resume"
            }
            Self::NoCommit { .. } => "a commit has a hash of 40 hexadecimal digits",
            Self::Uncommitted { .. } => {
                "put a `commit` or a `discard` of the folder before the merge"
            }
            Self::SecretInCommit { .. } => {
                "a later commit does not remove it from the history: take the commit back with `git reset --soft` to the one \
                 before it, remove the secret, and commit again"
            }
            Self::Repository { .. } => {
                "remove the `.git` in that folder, or add the folder to `.gitignore`"
            }
            Self::Submodule { .. } => {
                "remove these files or move them elsewhere: submodules stay empty in a run"
            }
            Self::Content { .. } => {
                "correct or remove the file that git names; `.gitattributes` can be the reason, too"
            }
            Self::CheckedOut { .. } => {
                "check out another branch there, end a rebase or bisection of it, or merge by hand"
            }
            Self::ChangesTooLarge { .. } => {
                "a commit is searched for keys as a whole: keep large files elsewhere, or out of commits with `.gitignore`"
            }
            Self::Lock { .. } => {
                "each part of this path is a folder that this user can write; worktrees are below `XDG_STATE_HOME`"
            }
            Self::TooLarge { .. } => {
                "commands and pytest get a larger folder without a copy where the kernel mounts it; \
                 `graphrun doctor` shows that"
            }
            _ => return None,
        })
    }
}

fn shown_largest(largest: Option<&(String, u64)>) -> String {
    largest
        .map(|(path, bytes)| format!("; the largest file is {path:?} with {} MiB", bytes >> 20))
        .unwrap_or_default()
}

fn listed(files: &[String]) -> String {
    let named: Vec<String> = files.iter().take(NAMED_MAX).map(|it| format!("{it:?}")).collect();
    let more = files.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}
