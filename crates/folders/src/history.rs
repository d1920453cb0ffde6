//! Commits, differences and merges of a folder.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use serde::Serialize;

use super::{
    error::FolderError,
    git::{Git, TOO_MUCH},
    git_folder::is_in_progress,
    patch::redact_patch,
    secrets::{PATCH, refuse_removed_keys, refuse_secret, refuse_secrets_of},
    worktree::{ExclusiveFolder, RunFolder},
};

/// The line of a commit that names the run.
const RUN_TRAILER: &str = "Graphrun-Run: ";
/// The last line of a commit, which names the task: a repeated task finds its commit by it.
const TASK_TRAILER: &str = "Graphrun-Task: ";
/// The longest message of a commit, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 10_000;
/// How often a merge is attempted while other processes move the branch.
const MERGES_MAX: u32 = 20;
/// The most bytes of a difference that are returned.
const DIFF_BYTES_MAX: usize = 256 << 10;
/// A commit to make.
#[derive(Clone, Copy, Debug)]
pub struct CommitRequest<'a> {
    /// The message.
    pub message: &'a str,
    /// The idempotency key of the task.
    pub task: &'a str,
}

/// The last commit of a folder, after an attempt to make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The hash.
    pub id: String,
    /// Whether the task made it. Otherwise nothing had changed since the last commit of a task.
    pub changed: bool,
}

/// The older side of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The commit from which the run started.
    Base,
    /// The last commit of the run.
    LastCommit,
}

/// A merge of commits that is not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedMerge {
    /// The last commit of the branch after the merge.
    pub id: String,
    /// The commits that do not fit, which the merge leaves out.
    pub conflicts: Vec<MergeConflict>,
}

/// The result of a merge that changes nothing.
enum MergedTree {
    /// The id of the tree.
    Whole(String),
    /// The files that both sides changed.
    Conflicts(Vec<String>),
}

/// A commit that conflicts with the commits before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeConflict {
    /// The hash of the commit.
    pub commit: String,
    /// The files that both sides changed.
    pub files: Vec<String>,
}

impl Against {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Base, Self::LastCommit];

    /// Returns the word for it in a workflow.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::LastCommit => "last_commit",
        }
    }
}

impl ExclusiveFolder {
    /// Commits all changes of the folder. A task that runs again gets the commit that it made before.
    ///
    /// Changes that a program has committed by itself count, too. If there are no others, the commit is empty.
    ///
    /// # Errors
    ///
    /// Fails when the changes, the message or a commit of another program contain a secret, when git cannot stage the files, and
    /// when git fails.
    pub async fn commit(&self, request: CommitRequest<'_>) -> Result<Commit, FolderError> {
        if let Some(id) = self.commit_of_task(request.task).await? {
            return Ok(Commit { id, changed: true });
        }
        let last = self.last_commit().await?;
        self.stage().await?;
        self.search_commits(&self.head().await?).await?;
        let difference =
            [&["diff", "--cached"], &PATCH[..], &["--text", "--unified=0", &last, "--"]].concat();
        let difference = self.run_difference(&difference, &last).await?;
        let is_changed = ["diff", "--cached", "--quiet", "--no-ext-diff", &last, "--"];
        if self.git.end("compare the files", &is_changed).await?.code == 0 {
            return Ok(Commit { id: self.head().await?, changed: false });
        }
        refuse_secret("the message", request.message)?;
        refuse_secrets_of(&difference)?;
        refuse_removed_keys(&difference)?;
        let message = self.message(request);
        let arguments = [
            "commit",
            "--quiet",
            "--allow-empty",
            "--no-verify",
            "--no-gpg-sign",
            "--cleanup=verbatim",
            &format!("--message={message}"),
        ];
        self.git.run("commit", &arguments).await?;
        let id = self.head().await?;
        self.note_searched(&id).await?;
        Ok(Commit { id, changed: true })
    }

    /// Returns all changes since a commit, as a patch of at most 256 KiB without keys.
    ///
    /// # Errors
    ///
    /// Fails when git fails.
    pub async fn diff(&self, against: Against) -> Result<String, FolderError> {
        let commit = match against {
            Against::Base => self.folder.base.clone(),
            Against::LastCommit => self.last_commit().await?,
        };
        self.stage().await?;
        let arguments =
            [&["diff", "--cached"], &PATCH[..], &["--unified=3", &commit, "--"]].concat();
        let patch = self.run_difference(&arguments, &commit).await?;
        let patch = String::from_utf8_lossy(&patch);
        let patch = redact_patch(&patch);
        if patch.len() <= DIFF_BYTES_MAX {
            return Ok(patch);
        }
        let is_end = |it: &usize| patch.is_char_boundary(*it);
        let end = (0..=DIFF_BYTES_MAX).rev().find(is_end).unwrap_or_default();
        let end = patch[..end].rfind('\n').map_or(end, |it| it + 1);
        Ok(format!("{}… cut after 256 KiB\n", &patch[..end]))
    }

    /// Shows the staged changes since a commit.
    async fn run_difference(
        &self,
        arguments: &[&str],
        since: &str,
    ) -> Result<Vec<u8>, FolderError> {
        let names = ["diff", "--cached", "--name-only", "--no-renames", "-z", since, "--"];
        match self.git.run("compare the files", arguments).await {
            Err(error) => Err(self.with_largest(error, &names).await),
            shown => shown,
        }
    }

    /// Returns the error of a command that shows changes. If they are too large, it names the largest changed file, by a
    /// command that lists them.
    pub(crate) async fn with_largest(&self, error: FolderError, names: &[&str]) -> FolderError {
        let FolderError::Stopped { limit: TOO_MUCH, .. } = error else { return error };
        let names = self.git.run("list the changed files", names).await.unwrap_or_default();
        let size_of = |name: &[u8]| {
            let path = Path::new(OsStr::from_bytes(name));
            let data = fs::symlink_metadata(self.path().join(path)).ok()?;
            data.is_file().then(|| (data.len(), path.to_string_lossy().into_owned()))
        };
        let largest = names.split(|it| *it == 0).filter_map(size_of).max();
        FolderError::ChangesTooLarge { largest: largest.map(|(bytes, path)| (path, bytes)) }
    }

    /// Resets the files to the last commit.
    ///
    /// # Errors
    ///
    /// Fails when git fails.
    pub async fn discard(&self) -> Result<(), FolderError> {
        self.reset_index().await?;
        self.git.run("reset the files", &["reset", "--hard", "--quiet", "HEAD"]).await?;
        self.git.run("remove new files", &["clean", "-ffdxq"]).await?;
        Ok(())
    }

    /// Merges the commits of the run into a branch, and returns the commit of that branch. Changes no checkout.
    ///
    /// # Errors
    ///
    /// Fails when the branches conflict, when the target is missing or is checked out, and when a commit or the message contains
    /// a secret.
    pub async fn merge(
        &self,
        into: &str,
        request: CommitRequest<'_>,
    ) -> Result<String, FolderError> {
        let mut attempt = 1;
        loop {
            match self.merge_once(into, request).await? {
                Some(commit) => return Ok(commit),
                None if attempt < MERGES_MAX => attempt += 1,
                None => {
                    let limit = "other processes moved the branch each time";
                    return Err(FolderError::Stopped { attempt: "merge", limit });
                }
            }
        }
    }

    /// Merges, unless another process moves the branch meanwhile.
    async fn merge_once(
        &self,
        into: &str,
        request: CommitRequest<'_>,
    ) -> Result<Option<String>, FolderError> {
        let RunFolder { branch, .. } = &self.folder;
        let no_branch = || FolderError::NoBranch { branch: into.to_owned() };
        // One branch may be a name of another one, which git would move.
        let arguments = ["rev-parse", "--symbolic-full-name", &format!("refs/heads/{into}")];
        let resolved = self.git.end("find the branch", &arguments).await?;
        let target = String::from_utf8_lossy(&resolved.output).trim_end().to_owned();
        if resolved.code != 0 || !target.starts_with("refs/heads/") {
            return Err(no_branch());
        }
        let old = self.git.commit_of(&target).await?.ok_or_else(no_branch)?;
        let head = self.head().await?;
        if self.git.is_ancestor(&head, &old).await? {
            return Ok(Some(old));
        }
        self.search_commits(&head).await?;
        let git = Git::new(&self.folder.repository, None).await?.alone().await?;
        if let Some(path) = checkout_of(&git, &target).await? {
            return Err(FolderError::CheckedOut { branch: into.to_owned(), path: path.into() });
        }
        let new = if self.git.is_ancestor(&old, &head).await? {
            head
        } else {
            refuse_secret("the message", request.message)?;
            match self.merged_tree(&old, &head).await? {
                MergedTree::Whole(tree) => {
                    self.merge_commit(&old, &head, &self.message(request), &tree).await?
                }
                MergedTree::Conflicts(files) => {
                    let branch = branch.clone();
                    let into = into.to_owned();
                    return Err(FolderError::Conflict { branch, into, files });
                }
            }
        };
        // Git compares the old commit, so a new commit of another process is not lost.
        let arguments = ["update-ref", "-m", "graphrun: merge", &target, &new, &old];
        let attempt = "move the branch";
        let ended = self.git.end(attempt, &arguments).await?;
        if ended.code == 0 {
            return Ok(Some(new));
        }
        let is_moved = self.git.commit_of(&target).await?.is_some_and(|it| it != old);
        if is_moved { Ok(None) } else { Err(ended.refusal(attempt)) }
    }

    /// Prepares a merge of commits into the branch of the run, in this order. Changes nothing.
    ///
    /// # Errors
    ///
    /// Fails when the folder has changes that are not committed, when there is no such commit, when one of them contains a
    /// secret, and when git fails.
    pub async fn prepare_merge(
        &self,
        commits: &[String],
        request: CommitRequest<'_>,
    ) -> Result<PreparedMerge, FolderError> {
        self.reset_index().await?;
        self.check_new_files().await?;
        let attempt = "look for changes";
        let status = ["status", "--porcelain", "--ignore-submodules=all"];
        let ended = self.git.end(attempt, &status).await?;
        if ended.code != 0 {
            return Err(self.refusal(attempt, &ended).await);
        }
        if !ended.output.is_empty() {
            return Err(FolderError::Uncommitted { branch: self.folder.branch.clone() });
        }
        refuse_secret("the message", request.message)?;
        let message = self.message(request);
        let mut id = self.head().await?;
        let mut conflicts = Vec::new();
        for commit in commits {
            let no_commit = || FolderError::NoCommit { commit: commit.clone() };
            // A name of a branch could mean another commit when the task runs again.
            let is_hash =
                matches!(commit.len(), 40 | 64) && commit.bytes().all(|it| it.is_ascii_hexdigit());
            let found = if is_hash { self.git.commit_of(commit).await? } else { None };
            let commit = found.ok_or_else(no_commit)?;
            if self.git.is_ancestor(&commit, &id).await? {
                continue;
            }
            self.search_commits(&commit).await?;
            if self.git.is_ancestor(&id, &commit).await? {
                id = commit;
                continue;
            }
            match self.merged_tree(&id, &commit).await? {
                MergedTree::Whole(tree) => {
                    id = self.merge_commit(&id, &commit, &message, &tree).await?;
                }
                MergedTree::Conflicts(files) => conflicts.push(MergeConflict { commit, files }),
            }
        }
        Ok(PreparedMerge { id, conflicts })
    }

    /// Makes a prepared merge: moves the branch of the run and its files. Branches of tasks that are in it now are removed.
    ///
    /// # Errors
    ///
    /// Fails when git fails. The next operation on the folder completes a merge that was interrupted.
    pub async fn merge_commits(&self, merge: &PreparedMerge) -> Result<(), FolderError> {
        self.note_merge(&merge.id).map_err(FolderError::io("note the merge"))?;
        self.complete_merge().await?;
        self.remove_merged_tasks().await
    }

    fn note_merge(&self, id: &str) -> io::Result<()> {
        let noted = self.folder.beside("merge.new");
        let mut file = File::create(&noted)?;
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
        fs::rename(&noted, self.folder.beside("merge"))
    }

    /// Completes a merge that was begun: its files may be those of the old commit, or partly those of the new one.
    pub(crate) async fn complete_merge(&self) -> Result<(), FolderError> {
        let begun = self.folder.beside("merge");
        let Ok(id) = fs::read_to_string(&begun) else { return Ok(()) };
        self.git.run("move the branch", &["reset", "--hard", "--quiet", &id]).await?;
        fs::remove_file(&begun).map_err(FolderError::io("note the merge"))
    }

    async fn merge_commit(
        &self,
        old: &str,
        new: &str,
        message: &str,
        tree: &str,
    ) -> Result<String, FolderError> {
        let arguments = ["commit-tree", "--no-gpg-sign", "-p", old, "-p", new, "-m", message, tree];
        self.git.text("make the merge commit", &arguments).await
    }

    /// Merges two commits without changing anything.
    async fn merged_tree(&self, old: &str, head: &str) -> Result<MergedTree, FolderError> {
        let attempt = "merge";
        let arguments =
            ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", old, head];
        let ended = self.git.end(attempt, &arguments).await?;
        let output = String::from_utf8_lossy(&ended.output);
        let mut parts = output.split('\0').filter(|it| !it.is_empty()).map(str::to_owned);
        match (ended.code, parts.next()) {
            (0, Some(tree)) => Ok(MergedTree::Whole(tree.trim().to_owned())),
            (1, Some(_)) => Ok(MergedTree::Conflicts(parts.collect())),
            _ => Err(ended.refusal(attempt)),
        }
    }

    pub(crate) async fn head(&self) -> Result<String, FolderError> {
        self.git.text("find the last commit", &["rev-parse", "--verify", "HEAD"]).await
    }

    /// Returns the commit that a task has made, if it has.
    async fn commit_of_task(&self, task: &str) -> Result<Option<String>, FolderError> {
        let last = format!("{TASK_TRAILER}{task}");
        self.commit_that_ends(&last, |it| it == last).await
    }

    /// Returns the last commit of a task; the commit from which the run started, if there is none. Commits after it are
    /// those of other programs.
    async fn last_commit(&self) -> Result<String, FolderError> {
        let commit = self.commit_that_ends(TASK_TRAILER, |it| it.starts_with(TASK_TRAILER)).await?;
        Ok(commit.unwrap_or_else(|| self.folder.base.clone()))
    }

    /// Returns the last commit since the start of the run whose message contains a text and has such a last line.
    async fn commit_that_ends(
        &self,
        text: &str,
        is_last_line: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, FolderError> {
        let range = format!("{}..HEAD", self.folder.base);
        let grep = format!("--grep={text}");
        let arguments = ["log", "-z", "--format=%H%n%B", "--fixed-strings", &grep, &range, "--"];
        let found = self.git.text("search the commits", &arguments).await?;
        // A message can contain such a line as well, but the last line is ours.
        let ends_so = |it: &&str| it.trim_end().lines().last().is_some_and(&is_last_line);
        let commit = found.split('\0').find(ends_so).and_then(|it| it.lines().next());
        Ok(commit.map(str::to_owned))
    }

    fn message(&self, request: CommitRequest<'_>) -> String {
        let cut: String = request.message.chars().take(MESSAGE_CHARACTERS_MAX).collect();
        let cut = cut.replace('\0', " ");
        let text = match cut.trim() {
            "" => "Changes of a run",
            text => text,
        };
        let run = &self.run;
        let task = request.task;
        format!("{text}\n\n{RUN_TRAILER}{run}\n{TASK_TRAILER}{task}\n")
    }
}

/// Returns the path of the worktree that has checked out a branch, or rebases or bisects it, if there is one.
async fn checkout_of(git: &Git, reference: &str) -> Result<Option<String>, FolderError> {
    let list = git.text("list the worktrees", &["worktree", "list", "--porcelain", "-z"]).await?;
    let mut path = None;
    for line in list.split('\0') {
        if let Some(found) = line.strip_prefix("worktree ") {
            path = Some(found.to_owned());
            if is_in_progress(found.as_ref(), reference) {
                return Ok(path);
            }
        } else if line.strip_prefix("branch ") == Some(reference) {
            return Ok(path);
        }
    }
    Ok(None)
}
