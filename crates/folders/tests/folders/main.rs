//! Folders of runs, with real repositories. These tests need git.

#[path = "../../../../tests/support/git.rs"]
mod git;
mod merges;
mod programs;
mod worktrees;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use git::git;
use graphrun_folders::{
    Against, CommitRequest, FolderError, MergeConflict, NewFolder, RunFolder, RunFolders,
};
use graphrun_sandbox::{FolderContent, SourceFile, remove_files, replace_files};

/// A repository of a user, and the place for the worktrees of runs.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(home.repository()).unwrap();
        home.git(&["init", "--quiet", "--initial-branch=main"]);
        home.write("a.txt", "one\n");
        home.commit("first");
        home
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.repository().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Runs git as the user does, without the configuration of this machine.
    fn git(&self, arguments: &[&str]) -> String {
        git(&self.repository(), arguments)
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    fn asked(&self, run: &str, branch: &str) -> NewFolder {
        NewFolder {
            name: "repo".into(),
            from: self.repository(),
            branch: branch.into(),
            worktree: self.folder.path().join("runs").join(run).join("repo"),
        }
    }

    async fn start(&self, run: &str) -> (RunFolder, RunFolders) {
        let folder = self.asked(run, &format!("graphrun/{run}")).find().await.unwrap();
        (folder.clone(), RunFolders::new(run, [folder]))
    }
}

fn file(path: &str, content: &str) -> SourceFile {
    SourceFile { path: path.into(), content: content.into() }
}

fn request<'a>(message: &'a str, task: &'a str) -> CommitRequest<'a> {
    CommitRequest { message, task }
}
