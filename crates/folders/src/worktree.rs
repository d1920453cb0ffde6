//! The worktree and the branch of a run.
//!
//! A run saves its [`RunFolder`] before its first step, so any process can find the worktree again, or make it again from
//! the branch. The branch is made together with a reference below `refs/graphrun`, in one transaction, which distinguishes
//! the branch of the run from a branch of another run or of the user. A file beside the worktree marks a complete checkout. Without
//! it, as after a kill, the checkout is made anew, because missing files would look like removed ones.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use graphrun_guard::beneath::Folder;
use graphrun_sandbox::remove_folder;
use serde::{Deserialize, Serialize};

use super::{
    error::FolderError,
    git::Git,
    git_folder::{own_git_folder, shared_git_folder},
    lock::{lock, lock_shared},
};

/// How often a worktree that something else changes at once is made again.
const LOCK_TRIES_MAX: u32 = 5;

/// A folder of a run, as it is saved with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFolder {
    /// The name in the workflow.
    pub name: String,
    /// The repository of the user.
    pub repository: PathBuf,
    /// The worktree of the run.
    pub worktree: PathBuf,
    /// The branch of the run.
    pub branch: String,
    /// The commit from which the branch starts.
    pub base: String,
}

/// A folder that a new run asks for.
#[derive(Clone, Debug)]
pub struct NewFolder {
    /// The name in the workflow.
    pub name: String,
    /// The top folder of a repository.
    pub from: PathBuf,
    /// The name of the branch to make.
    pub branch: String,
    /// Where the worktree will be.
    pub worktree: PathBuf,
}

/// The folders of a run. Its nodes find them by `NodeContext::get`.
#[derive(Clone, Debug)]
pub struct RunFolders {
    pub(crate) run: String,
    pub(crate) folders: BTreeMap<String, RunFolder>,
    /// The same, or for a task with separate branches those of the run.
    pub(crate) of_run: BTreeMap<String, RunFolder>,
}

/// A folder with its worktree, which no other operation uses meanwhile.
#[derive(Debug)]
pub struct ExclusiveFolder {
    pub(crate) run: String,
    pub(crate) folder: RunFolder,
    pub(crate) git: Git,
    was_recreated: bool,
}

/// A folder with its worktree, which no operation changes meanwhile. Others may read it.
#[derive(Debug)]
pub struct SharedFolder {
    pub(crate) path: PathBuf,
    was_recreated: bool,
    _lock: fs::File,
}

impl NewFolder {
    /// Finds the repository and its current commit. Changes nothing.
    ///
    /// # Errors
    ///
    /// Fails when there is no repository with a commit, or the branch cannot be made.
    pub async fn find(self) -> Result<RunFolder, FolderError> {
        let Self { name, from, branch, worktree } = self;
        let refuse = |detail: String| FolderError::NotRepository { path: from.clone(), detail };
        let from = fs::canonicalize(&from).map_err(|it| refuse(it.to_string()))?;
        if !from.is_dir() {
            return Err(refuse("it is not a folder".to_owned()));
        }
        let git = Git::new(&from, None).await?;
        let arguments = ["rev-parse", "--show-prefix"];
        match git.text("find the repository", &arguments).await {
            Ok(prefix) if prefix.is_empty() => (),
            Ok(_) => return Err(refuse("it is below the top folder of one".to_owned())),
            Err(FolderError::Git { detail, .. }) => return Err(refuse(detail)),
            Err(error) => return Err(error),
        }
        let base = git.commit_of("HEAD").await?;
        let base = base.ok_or_else(|| refuse("it has no commit yet".to_owned()))?;
        let reference = format!("refs/heads/{branch}");
        // Git takes these for something else than the branch of that name.
        let is_ambiguous = matches!(branch.as_str(), "HEAD" | "@")
            || ["refs/", "heads/", "tags/", "remotes/"].iter().any(|it| branch.starts_with(it));
        let is_argument = !is_ambiguous && !branch.starts_with('-') && !branch.contains('\0');
        let arguments = ["check-ref-format", if is_argument { &reference } else { "" }];
        if git.end("check the name of the branch", &arguments).await?.code != 0 {
            return Err(FolderError::BadBranch { branch });
        }
        if git.commit_of(&reference).await?.is_some() {
            return Err(FolderError::BranchTaken { branch });
        }
        if let Some(existing) = git.branch_in_the_way(&branch).await? {
            return Err(FolderError::BranchInTheWay { branch, existing });
        }
        Ok(RunFolder { name, repository: from, worktree, branch, base })
    }
}

impl RunFolders {
    /// Returns the folders of a run, by its id.
    pub fn new(run: impl Into<String>, folders: impl IntoIterator<Item = RunFolder>) -> Self {
        let folders: BTreeMap<_, _> = folders.into_iter().map(|it| (it.name.clone(), it)).collect();
        Self { run: run.into(), of_run: folders.clone(), folders }
    }

    /// Opens a folder, and makes its worktree and its branch at the first use. Waits until no other operation uses it.
    ///
    /// # Errors
    ///
    /// Fails when the run has no such folder, and when git fails.
    pub async fn lock_exclusive(&self, name: &str) -> Result<ExclusiveFolder, FolderError> {
        let unknown = || FolderError::Unknown { name: name.to_owned() };
        let folder = self.folders.get(name).ok_or_else(unknown)?;
        let held = lock(&folder.beside("lock")).await?;
        folder.check_repository()?;
        folder.remove_stale_locks(&self.run, &held).await?;
        let mut was_recreated = false;
        if !folder.is_complete() || !folder.check_branch(held.try_clone().ok()).await? {
            let held = held.try_clone().map_err(FolderError::io("lock the folder"))?;
            was_recreated = folder.make(&self.run, held).await?;
        }
        let git = Git::new(&folder.worktree, Some(held)).await?;
        let run = self.run.clone();
        let folder = folder.clone();
        let open = ExclusiveFolder { run, folder, git, was_recreated };
        open.complete_merge().await?;
        Ok(open)
    }

    /// Opens a folder that stays as it is, also for several readers at a time. Waits until no operation changes it.
    ///
    /// # Errors
    ///
    /// As [`lock_exclusive`](Self::lock_exclusive).
    pub async fn lock_shared(&self, name: &str) -> Result<SharedFolder, FolderError> {
        let unknown = || FolderError::Unknown { name: name.to_owned() };
        let folder = self.folders.get(name).ok_or_else(unknown)?;
        let mut was_recreated = false;
        for _ in 0..LOCK_TRIES_MAX {
            let lock = lock_shared(&folder.beside("lock")).await?;
            folder.check_repository()?;
            let is_whole = folder.is_complete() && !folder.beside("merge").exists();
            if is_whole && folder.check_branch(lock.try_clone().ok()).await? {
                let path = folder.worktree.clone();
                return Ok(SharedFolder { path, was_recreated, _lock: lock });
            }
            drop(lock);
            // This makes the worktree, and completes a merge that a killed process has begun.
            was_recreated |= self.lock_exclusive(name).await?.was_recreated;
        }
        Err(FolderError::Incomplete { worktree: folder.worktree.clone() })
    }
}

impl SharedFolder {
    /// Returns the path of the worktree.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the worktree was gone or replaced, and is made again. Changes that were not committed are lost then.
    pub fn was_recreated(&self) -> bool {
        self.was_recreated
    }
}

impl ExclusiveFolder {
    /// Returns the path of the worktree.
    pub fn path(&self) -> &Path {
        &self.folder.worktree
    }

    /// Returns whether the worktree was gone or replaced, and is made again. Changes that were not committed are lost then.
    pub fn was_recreated(&self) -> bool {
        self.was_recreated
    }
}

impl RunFolder {
    /// Returns whether the checkout of the user has changes of known files that are not committed. They are no part of the run.
    /// Files that git does not know are left out: some of them are ignored only by the settings of the user.
    ///
    /// # Errors
    ///
    /// Fails when git fails.
    pub async fn has_uncommitted_changes(&self) -> Result<bool, FolderError> {
        let git = Git::new(&self.repository, None).await?;
        let is_bare = ["rev-parse", "--is-bare-repository"];
        if git.text("find the checkout", &is_bare).await? == "true" {
            return Ok(false);
        }
        let arguments = [
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--ignore-submodules=all",
        ];
        Ok(!git.text("look for changes", &arguments).await?.is_empty())
    }

    /// Removes the worktree. Also removes the branch if it has no commit of the run and is not checked out elsewhere. Returns
    /// whether the branch stays.
    ///
    /// # Errors
    ///
    /// Fails when git fails or a file cannot be removed. Without the repository, the worktree is removed, and the error says
    /// that the branch is not.
    pub async fn remove(&self, run: &str) -> Result<bool, FolderError> {
        let mut stays = true;
        let held = lock(&self.beside("lock")).await?;
        if self.repository.is_dir() {
            self.remove_stale_locks(run, &held).await?;
            let git = Git::new(&self.repository, Some(held)).await?.alone().await?;
            self.remove_tasks(&git, run).await?;
            self.forget_worktree(&git).await?;
            let has_no_commit =
                git.commit_of(&self.reference()).await?.as_deref() == Some(self.base.as_str());
            if has_no_commit && git.commit_of(&self.mark(run)).await?.is_some() {
                self.forget_branch(&git, run).await?;
            } else {
                self.forget_mark(&git, run).await?;
            }
            stays = git.commit_of(&self.reference()).await?.is_some();
        } else {
            self.clear_tasks();
            self.clear()?;
        }
        self.remove_files_beside();
        // The folder of the run goes with its last folder.
        if let Some(parent) = self.worktree.parent() {
            let _ = fs::remove_dir(parent);
        }
        self.check_repository()?;
        Ok(stays)
    }

    /// Removes the branch and its mark.
    pub(crate) async fn forget_branch(&self, git: &Git, run: &str) -> Result<(), FolderError> {
        // Git refuses to remove a branch that is checked out, which is right.
        let arguments = ["branch", "--quiet", "-D", "--", &self.branch];
        git.end("remove the branch", &arguments).await?;
        self.forget_mark(git, run).await
    }

    pub(crate) async fn forget_mark(&self, git: &Git, run: &str) -> Result<(), FolderError> {
        for reference in [self.searched(run), self.mark(run)] {
            git.end("remove a reference", &["update-ref", "-d", &reference]).await?;
        }
        Ok(())
    }

    pub(crate) fn remove_files_beside(&self) {
        for what in ["lock", "ready", "merge"] {
            let _ = fs::remove_file(self.beside(what));
        }
    }

    /// Makes the branch, unless this run has made it, and checks it out. Returns whether the run
    /// had a worktree that is lost.
    async fn make(&self, run: &str, held: fs::File) -> Result<bool, FolderError> {
        let git = Git::new(&self.repository, Some(held)).await?.alone().await?;
        // Without the mark, a kill has interrupted the checkout, and there were no changes yet.
        let is_lost = !self.worktree.exists() || self.beside("ready").is_file();
        self.forget_worktree(&git).await?;
        let reference = self.reference();
        let mark = self.mark(run);
        let branch = || self.branch.clone();
        let is_own = git.commit_of(&mark).await?.is_some();
        match (is_own, git.commit_of(&reference).await?) {
            (true, Some(_)) => (),
            (true, None) => return Err(FolderError::BranchGone { branch: branch() }),
            (false, Some(_)) => return Err(FolderError::BranchTaken { branch: branch() }),
            (false, None) => git.create_references(&[&mark, &reference], &self.base).await?,
        }
        let path = self.worktree.to_string_lossy();
        let attempt = "check out the branch";
        let arguments = ["worktree", "add", "--quiet", "--no-checkout", "--", &path, &self.branch];
        git.run(attempt, &arguments).await?;
        // A conditional include may name a filter in the worktree alone.
        let git = git.in_folder(&self.worktree).await?;
        git.run(attempt, &["reset", "--hard", "--quiet"]).await?;
        fs::write(self.beside("ready"), b"").map_err(FolderError::io("mark the worktree"))?;
        Ok(is_own && is_lost)
    }

    fn check_repository(&self) -> Result<(), FolderError> {
        if self.repository.is_dir() {
            return Ok(());
        }
        Err(FolderError::RepositoryGone { path: self.repository.clone() })
    }

    /// Removes the worktree, also an incomplete one, and its entry in the list of the repository.
    pub(crate) async fn forget_worktree(&self, git: &Git) -> Result<(), FolderError> {
        // Git removes no folder that has become another repository, but the entry of a folder that does not exist.
        self.clear()?;
        let path = self.worktree.to_string_lossy();
        let arguments = ["worktree", "remove", "--force", "--force", "--", &path];
        // It fails when there is no entry.
        git.end("remove the worktree", &arguments).await?;
        Ok(())
    }

    fn clear(&self) -> Result<(), FolderError> {
        let _ = fs::remove_file(self.beside("ready"));
        // A program may have taken permissions from its folders.
        remove_folder(&self.worktree).map_err(FolderError::io("remove the worktree"))
    }

    /// Returns whether the worktree is a complete checkout of the repository. A program on a host can have replaced it.
    fn is_complete(&self) -> bool {
        let is_folder = fs::symlink_metadata(&self.worktree).is_ok_and(|it| it.is_dir());
        let is_whole = is_folder && self.beside("ready").is_file();
        is_whole
            && shared_git_folder(&self.worktree)
                .is_some_and(|it| shared_git_folder(&self.repository) == Some(it))
    }

    /// Returns whether the worktree is one of the repository.
    ///
    /// # Errors
    ///
    /// Fails when another branch is checked out in it: a person has done so, and its files are not to be thrown away.
    async fn check_branch(&self, held: Option<fs::File>) -> Result<bool, FolderError> {
        let git = Git::new(&self.worktree, held).await?;
        let ended = git.end("find the branch", &["symbolic-ref", "--quiet", "HEAD"]).await?;
        let found = String::from_utf8_lossy(&ended.output);
        let is_own = ended.code == 0 && found.trim_end() == self.reference();
        // Without a branch the code is 1. Other codes are those of a folder that git does not know.
        if !is_own && matches!(ended.code, 0 | 1) {
            let worktree = self.worktree.clone();
            let branch = self.branch.clone();
            return Err(FolderError::OtherBranch { worktree, branch });
        }
        Ok(is_own)
    }

    /// Removes the locks that a killed git left: those of the worktree, and those of the references of the run. A git process
    /// of a run inherits the lock of its folder or of the repository, so none works on them now.
    async fn remove_stale_locks(&self, run: &str, held: &fs::File) -> Result<(), FolderError> {
        let Some(shared) = shared_git_folder(&self.repository) else { return Ok(()) };
        if let Some(own) = own_git_folder(&self.worktree)
            && own.starts_with(shared.join("worktrees"))
        {
            for entry in fs::read_dir(own).into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|it| it == "lock") {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        let (branch, mark) = (self.reference(), self.mark(run));
        let lock_of = |reference: &str| shared.join(format!("{reference}.lock"));
        let references = [&mark, &self.searched(run), &branch];
        if !references.iter().any(|it| lock_of(it).exists()) {
            return Ok(());
        }
        let held = held.try_clone().map_err(FolderError::io("lock the folder"))?;
        let git = Git::new(&self.repository, Some(held)).await?.alone().await?;
        // Both references are made together, so a lock of the mark shows that the run makes its branch.
        let is_own = lock_of(&mark).exists() || git.commit_of(&mark).await?.is_some();
        for reference in references.into_iter().filter(|it| is_own || **it != branch) {
            remove_beneath(&shared, &format!("{reference}.lock"));
        }
        Ok(())
    }

    /// Returns the path of a file beside the worktree.
    pub(crate) fn beside(&self, what: &str) -> PathBuf {
        let mut path = self.worktree.clone().into_os_string();
        path.push(".");
        path.push(what);
        path.into()
    }

    /// Returns the reference of the branch.
    pub(crate) fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Returns the reference that marks the branch as one of the run. `.` is not allowed everywhere in a reference, and
    /// `%` is not allowed in the id of a run.
    pub(crate) fn mark(&self, run: &str) -> String {
        format!("refs/graphrun/{}/{}", run.replace('.', "%"), self.name)
    }

    /// Returns the reference of the last commit that was [searched](ExclusiveFolder::search_commits) for secrets.
    pub(crate) fn searched(&self, run: &str) -> String {
        format!("refs/graphrun-searched/{}/{}", run.replace('.', "%"), self.name)
    }
}

/// Removes a file beneath a folder, through no link, if it is there.
fn remove_beneath(folder: &Path, path: &str) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = Folder::open(folder).and_then(|it| it.open_plain(parent.as_ref()));
    let _ = parent.and_then(|it| it.remove(name));
}
