//! Worktrees of single tasks.
//!
//! Tasks that run side by side would overwrite the files of each other. A task with a separate worktree works on a
//! branch that starts at the last commit of the run's branch, and the run later [merges](ExclusiveFolder::merge_commits) the
//! commits of its tasks in an order that does not depend on their speed. The names of everything that belongs to the task
//! begin like those of the folder, so they are found again without the run, and removed with it.

use std::fs;

use graphrun_sandbox::remove_folder;

use super::{
    error::FolderError,
    git::Git,
    lock::lock,
    worktree::{ExclusiveFolder, RunFolder, RunFolders},
};

/// Stands between the name of a folder and that of a task. The name of a folder contains none.
const SEPARATOR: char = '@';

impl RunFolders {
    /// Returns the folders as one task sees them: those of `own` have a worktree and a branch of the task. `run` is the run
    /// of the task: that of the folders, or one that is nested in it. `task` is the same whenever the task runs again, and
    /// distinguishes it from all others of its run.
    ///
    /// # Errors
    ///
    /// Fails when the run has no such folder, and when git fails.
    pub async fn of_task(
        &self,
        run: &str,
        task: &str,
        own: &[String],
    ) -> Result<Self, FolderError> {
        // The id of a nested run is that of the outer one and its task, unless it would be too long.
        let task = match run.strip_prefix(&self.run) {
            Some("") => task.to_owned(),
            nested => format!("{}-{task}", nested.map_or(run, |it| it.trim_start_matches('-'))),
        };
        let mut folders = self.clone();
        for name in own {
            let open = self.lock_exclusive(name).await?;
            folders.folders.insert(name.clone(), open.of_task(&task).await?);
        }
        Ok(folders)
    }

    /// Removes the worktrees of a task that is done, and the branches that have no commit of it. Everything that it has
    /// not committed is lost.
    ///
    /// # Errors
    ///
    /// Fails when the run has no such folder, and when git fails.
    pub async fn close(&self, own: &[String]) -> Result<(), FolderError> {
        for name in own {
            let unknown = || FolderError::Unknown { name: name.clone() };
            self.folders.get(name).ok_or_else(unknown)?.close(&self.run).await?;
        }
        Ok(())
    }
}

impl ExclusiveFolder {
    async fn of_task(&self, task: &str) -> Result<RunFolder, FolderError> {
        // Within another task that has the folder, its name is known.
        let outer = self.folder.task().and_then(|it| task.strip_prefix(&it)?.strip_prefix('-'));
        let mut folder = self.folder.of_task(outer.unwrap_or(task));
        // The branch of a task that runs again may have commits already.
        folder.base = match self.git.commit_of(&folder.mark(&self.run)).await? {
            Some(base) => base,
            None => self.head().await?,
        };
        Ok(folder)
    }

    /// Removes the branches of finished tasks whose commits are in the branch of the run.
    pub(crate) async fn remove_merged_tasks(&self) -> Result<(), FolderError> {
        let head = self.head().await?;
        let git = Git::new(&self.folder.repository, None).await?.alone().await?;
        for task in self.folder.tasks(&git, &self.run).await? {
            let tip = git.commit_of(&task.reference()).await?;
            let Some(tip) = tip.filter(|_| !task.worktree.exists()) else { continue };
            // A branch without a commit may belong to a task that begins at this moment.
            if tip != task.base && git.is_ancestor(&tip, &head).await? {
                task.forget_branch(&git, &self.run).await?;
            }
        }
        Ok(())
    }
}

impl RunFolder {
    /// Returns the task that has the folder, unless the run has it.
    fn task(&self) -> Option<String> {
        self.name.split_once(SEPARATOR).map(|(_, task)| task.replace(SEPARATOR, "-"))
    }

    /// Returns the folder of a task, with the base of this one.
    fn of_task(&self, task: &str) -> Self {
        let mut worktree = self.worktree.clone().into_os_string();
        worktree.push(format!("{SEPARATOR}{task}"));
        Self {
            name: format!("{}{SEPARATOR}{task}", self.name),
            repository: self.repository.clone(),
            worktree: worktree.into(),
            branch: format!("{}-{}", self.branch, task.replace(SEPARATOR, "-")),
            base: self.base.clone(),
        }
    }

    /// Returns the folders of its tasks that have a branch.
    pub(crate) async fn tasks(&self, git: &Git, run: &str) -> Result<Vec<Self>, FolderError> {
        let mark = format!("{}{SEPARATOR}", self.mark(run));
        let Some((folder, _)) = mark.rsplit_once('/') else { return Ok(Vec::new()) };
        let arguments = ["for-each-ref", "--format=%(refname) %(objectname)", folder];
        let list = git.text("list the branches of tasks", &arguments).await?;
        let task = |line: &str| {
            let (reference, base) = line.split_once(' ')?;
            Some(Self { base: base.to_owned(), ..self.of_task(reference.strip_prefix(&mark)?) })
        };
        Ok(list.lines().filter_map(task).collect())
    }

    /// Removes the worktree of a task, and its branch if that has no commit.
    async fn close(&self, run: &str) -> Result<(), FolderError> {
        let held = lock(&self.beside("lock")).await?;
        let git = Git::new(&self.repository, Some(held)).await?.alone().await?;
        self.forget_worktree(&git).await?;
        if git.commit_of(&self.reference()).await?.as_ref() == Some(&self.base) {
            self.forget_branch(&git, run).await?;
        }
        self.remove_files_beside();
        Ok(())
    }

    /// Removes the worktrees of its tasks, and the branches that have no commit or are in the branch of the run.
    pub(crate) async fn remove_tasks(&self, git: &Git, run: &str) -> Result<(), FolderError> {
        for task in self.tasks(git, run).await? {
            let _held = lock(&task.beside("lock")).await?;
            let tip = git.commit_of(&task.reference()).await?;
            task.forget_worktree(git).await?;
            let is_merged = match (&tip, git.commit_of(&self.reference()).await?) {
                (Some(tip), Some(head)) => git.is_ancestor(tip, &head).await?,
                _ => false,
            };
            if is_merged || tip.as_ref() == Some(&task.base) {
                task.forget_branch(git, run).await?;
            } else {
                task.forget_mark(git, run).await?;
            }
            task.remove_files_beside();
        }
        Ok(())
    }

    /// Removes the worktrees of its tasks where the repository is gone.
    pub(crate) fn clear_tasks(&self) {
        let (Some(parent), Some(name)) = (self.worktree.parent(), self.worktree.file_name()) else {
            return;
        };
        let prefix = format!("{}{SEPARATOR}", name.to_string_lossy());
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = remove_folder(&entry.path());
            }
        }
    }
}
