//! Stages the changes of a folder.
//!
//! Programs and models of the run choose the content of the folder, and a program on a host can also change the index.
//! So marks that hide changes are removed first, and a repository within the folder is refused, because git would
//! commit only its name. A failure that comes from the content is a [`FolderError::Content`], which a workflow can catch.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use graphrun_guard::beneath::{BeneathError, Folder};
use graphrun_sandbox::is_temporary;

use super::{
    error::FolderError,
    git::{Git, GitOutput},
    worktree::ExclusiveFolder,
};

const STAGE: &str = "stage the changes";
const LIST: &str = "list the files";
/// The mode of a submodule in an index or a tree.
const SUBMODULE: &str = "160000";
/// The words of git for a disk that is full. The largest file of the folder can fill it, yet only the operator can empty it.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

impl ExclusiveFolder {
    /// Stages all changes.
    pub(crate) async fn stage(&self) -> Result<(), FolderError> {
        let submodules = self.reset_index().await?;
        self.refuse_files_of(&submodules)?;
        self.check_new_files().await?;
        let ended = self.git.end(STAGE, &["add", "--all", "--sparse", "--", "."]).await?;
        if ended.code == 0 { Ok(()) } else { Err(self.refusal(STAGE, &ended).await) }
    }

    /// Removes what a program has put into the index and what would hide changes: marks of files that git then takes
    /// for unchanged, and submodules that the run did not start with. Returns the paths of the others.
    pub(crate) async fn reset_index(&self) -> Result<Vec<PathBuf>, FolderError> {
        let list = self.git.run(LIST, &["ls-files", "--stage", "-v", "-z"]).await?;
        let mut assumed = Vec::new();
        let mut skipped = Vec::new();
        let mut submodules = Vec::new();
        for entry in list.split(|it| *it == 0) {
            let (Some(&[tag, _]), Some(tab)) =
                (entry.get(..2), entry.iter().position(|it| *it == b'\t'))
            else {
                continue;
            };
            let path = &entry[tab + 1..];
            if tag.is_ascii_lowercase() {
                assumed.push(path);
            }
            if tag.eq_ignore_ascii_case(&b'S') {
                skipped.push(path);
            }
            if entry[2..].starts_with(SUBMODULE.as_bytes()) {
                submodules.push(path);
            }
        }
        self.update_index(&["--no-assume-unchanged"], &assumed).await?;
        // In a sparse checkout the mark belongs to files that are not there, and git removes it from those that are.
        if !skipped.is_empty() && !self.is_sparse().await? {
            self.update_index(&["--no-skip-worktree"], &skipped).await?;
        }
        let mut own = Vec::new();
        if !submodules.is_empty() {
            let known = submodules_of(&self.git, &self.folder.base).await?;
            let (kept, removed): (Vec<&[u8]>, Vec<&[u8]>) =
                submodules.into_iter().partition(|it| known.contains(*it));
            self.update_index(&["--force-remove"], &removed).await?;
            own.extend(kept.into_iter().map(|it| PathBuf::from(OsStr::from_bytes(it))));
        }
        Ok(own)
    }

    /// Fails if the folder of a submodule has files and is no repository: git takes them for files of the submodule, and
    /// does not stage them.
    fn refuse_files_of(&self, submodules: &[PathBuf]) -> Result<(), FolderError> {
        let is_refused = |path: &&PathBuf| {
            // Git stages a file or a link that is there in place of the folder.
            let path = self.path().join(path);
            let is_folder = fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir());
            let mut entries = fs::read_dir(&path).into_iter().flatten().flatten().peekable();
            is_folder && entries.peek().is_some() && !entries.any(|it| it.file_name() == ".git")
        };
        let Some(path) = submodules.iter().find(is_refused) else { return Ok(()) };
        Err(FolderError::Submodule { path: path.to_string_lossy().into_owned() })
    }

    /// Removes the temporary files of a writer that was killed. Fails if git would stage a repository within the folder,
    /// which it does by the name of its last commit alone.
    pub(crate) async fn check_new_files(&self) -> Result<(), FolderError> {
        let arguments = ["ls-files", "--others", "--exclude-standard", "-z"];
        let list = self.git.run(LIST, &arguments).await?;
        for path in list.split(|it| *it == 0) {
            // Folders are listed by their files, except a repository.
            if let Some(path) = path.strip_suffix(b"/") {
                let path = String::from_utf8_lossy(path).into_owned();
                return Err(FolderError::Repository { path });
            }
            let path = Path::new(OsStr::from_bytes(path));
            if path.file_name().is_some_and(is_temporary) {
                self.remove(path).map_err(|it| {
                    FolderError::io("remove a file that a killed process left")(it.into())
                })?;
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), BeneathError> {
        let parent = Folder::open(self.path())?.open_plain(path.parent().unwrap_or(path))?;
        parent.remove(path.file_name().unwrap_or_default())
    }

    /// Returns the error of a command that reads the files of the folder.
    ///
    /// Git has one exit code for all failures. If it can still write an object and the index, then the files are the
    /// reason.
    pub(crate) async fn refusal(&self, attempt: &'static str, ended: &GitOutput) -> FolderError {
        match ended.refusal(attempt) {
            FolderError::Git { attempt, detail }
                if !FULL.iter().any(|it| detail.contains(it)) && self.is_writable().await =>
            {
                FolderError::Content { attempt, detail }
            }
            error => error,
        }
    }

    async fn is_writable(&self) -> bool {
        // An object that exists would not be written.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let new = format!("{now} {}", process::id());
        let object = ["hash-object", "-w", "--stdin"];
        let object = self.git.end_with("write an object", &object, Some(new.as_bytes())).await;
        let index = self.git.end("write the index", &["update-index", "--force-write-index"]).await;
        [object, index].iter().all(|ended| ended.as_ref().is_ok_and(|it| it.code == 0))
    }

    async fn is_sparse(&self) -> Result<bool, FolderError> {
        let arguments = ["config", "--type=bool", "--get", "core.sparseCheckout"];
        let ended = self.git.end("read a setting", &arguments).await?;
        Ok(ended.output.starts_with(b"true"))
    }

    async fn update_index(&self, flags: &[&str], paths: &[&[u8]]) -> Result<(), FolderError> {
        if paths.is_empty() {
            return Ok(());
        }
        let arguments = [&["update-index"], flags, &["-z", "--stdin"]].concat();
        let ended = self.git.end_with(STAGE, &arguments, Some(&paths.join(&0))).await?;
        if ended.code == 0 { Ok(()) } else { Err(ended.refusal(STAGE)) }
    }
}

/// Returns the paths of the submodules of a commit.
async fn submodules_of(git: &Git, commit: &str) -> Result<BTreeSet<Vec<u8>>, FolderError> {
    let list = git.run(LIST, &["ls-tree", "-r", "-z", "--full-tree", commit]).await?;
    let submodule = |entry: &[u8]| {
        let tab = entry.iter().position(|it| *it == b'\t')?;
        entry.starts_with(SUBMODULE.as_bytes()).then(|| entry[tab + 1..].to_vec())
    };
    Ok(list.split(|it| *it == 0).filter_map(submodule).collect())
}
