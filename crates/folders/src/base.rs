//! Files of the commit that the branch of a run starts from. Nothing that the run does changes them.

use super::{
    error::FolderError,
    git::Git,
    worktree::{RunFolder, RunFolders},
};

/// The modes of regular files in a commit. Others are links, folders and submodules.
const REGULAR: [&str; 2] = ["100644", "100755"];

impl RunFolders {
    /// Returns a file of the commit that the run started from, also for a task with a separate branch, which starts later.
    ///
    /// # Errors
    ///
    /// Fails when the run has no such folder, and as [`RunFolder::base_file`].
    pub async fn base_file(
        &self,
        name: &str,
        path: &str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, FolderError> {
        let unknown = || FolderError::Unknown { name: name.to_owned() };
        self.of_run.get(name).ok_or_else(unknown)?.base_file(path, bytes_max).await
    }
}

impl RunFolder {
    /// Returns a file of the commit that the branch starts from.
    ///
    /// # Errors
    ///
    /// Fails when the commit has no regular file of this path, or one that is too large.
    pub async fn base_file(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, FolderError> {
        let git = Git::new(&self.repository, None).await?;
        let attempt = "read a file of a commit";
        let arguments = ["ls-tree", "-z", "--long", "--full-tree", &self.base, "--", path];
        let listed = git.text(attempt, &arguments).await?;
        let words: Vec<&str> =
            listed.split(['\t', '\0']).next().unwrap_or_default().split_whitespace().collect();
        let refuse = |problem: String| FolderError::NoBaseFile {
            path: path.to_owned(),
            commit: self.base.clone(),
            problem,
        };
        let [mode, _, object, bytes] = words[..] else {
            return Err(refuse("it does not exist there".to_owned()));
        };
        if !REGULAR.contains(&mode) {
            return Err(refuse("it is no regular file".to_owned()));
        }
        if bytes.parse::<u64>().map_or(true, |it| it > bytes_max) {
            return Err(refuse(format!("it is larger than {} MiB", bytes_max >> 20)));
        }
        git.run(attempt, &["cat-file", "blob", object]).await
    }
}
