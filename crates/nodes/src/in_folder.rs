//! The folders of a run, for the nodes that work in them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
};
use graphrun_folders::{ExclusiveFolder, FolderError, RunFolders, SharedFolder};
use graphrun_sandbox::{FolderContent, FolderFile, WriteError};
use graphrun_workflow::{
    kind::{NodeReader, Section},
    tool::Needs,
};

/// Opens a folder of the run. No other task uses it until it is dropped.
pub(super) async fn open_folder(
    ctx: &NodeContext,
    name: &str,
) -> Result<ExclusiveFolder, NodeError> {
    let folder = folders_of(ctx)?.lock_exclusive(name).await.map_err(|it| failure(&it))?;
    if folder.was_recreated() {
        report_lost_worktree(ctx, folder.path()).await;
    }
    Ok(folder)
}

/// Reports that the worktree of a folder was gone.
async fn report_lost_worktree(ctx: &NodeContext, path: &Path) {
    let message = format!(
        "the worktree `{}` was gone or replaced; it is made again from its branch, without changes that were not committed",
        path.display()
    );
    ctx.report(Report::Warning { message }).await;
}

/// Returns the folders of the run.
pub(super) fn folders_of(ctx: &NodeContext) -> Result<Arc<RunFolders>, NodeError> {
    let folders = ctx.get::<RunFolders>().map_err(|_| {
        let message = "the program that started the run gave it no folders";
        Failure::new(ErrorKind::Folder, message)
    })?;
    Ok(folders)
}

/// Returns the failure of a node.
pub(super) fn failure(error: &FolderError) -> NodeError {
    let kind = match error {
        FolderError::Conflict { .. } => ErrorKind::Conflict,
        FolderError::Secret { .. }
        | FolderError::SecretInCommit { .. }
        | FolderError::RemovedKey { .. } => ErrorKind::Secret,
        FolderError::Write(error) => return refused_write(error),
        FolderError::NoCommit { .. }
        | FolderError::Uncommitted { .. }
        | FolderError::Repository { .. }
        | FolderError::Submodule { .. }
        | FolderError::Content { .. }
        | FolderError::ChangesTooLarge { .. }
        | FolderError::TooLarge { .. } => ErrorKind::Other,
        _ => ErrorKind::Folder,
    };
    let failure = Failure::of(kind, error);
    let hint = match error {
        FolderError::NoBranch { .. } => {
            Some("make it with `git branch`, then resume, or correct `into`")
        }
        error => error.hint(),
    };
    failure.with_hint(hint).into()
}

/// Returns the failure of a node that could not write files.
pub(super) fn refused_write(error: &WriteError) -> NodeError {
    // A bad name from a model is a failure of the work; an unwritable folder is not.
    let kind = match error {
        WriteError::Refused(_) | WriteError::Below { .. } | WriteError::InTheWay { .. } => {
            ErrorKind::Other
        }
        _ => ErrorKind::Folder,
    };
    let failure = Failure::of(kind, error);
    let message = format!("the files could not be written: {}", failure.message);
    Failure { message, ..failure }.into()
}

/// Reads the `folder` of a node, if it has one.
pub(super) fn read_folder(reader: &mut NodeReader<'_>) -> Option<String> {
    let yaml = reader.get("folder")?;
    reader.run_folder(yaml)
}

/// Reads the `folder` that a kind needs, in the mapping under its key.
pub(super) fn require_folder(reader: &mut NodeReader<'_>, parts: &Section<'_>) -> Option<String> {
    let folder = parts.require(reader.report(), "folder", "name one of `folders`")?;
    reader.run_folder(folder)
}

/// Reports tools that change files, where the node names no folder of the run.
pub(super) fn check_writing_tools(reader: &mut NodeReader<'_>, tools: &[String]) {
    if reader.get("folder").is_some() {
        return;
    }
    let writes =
        |name: &&String| reader.built_in_tool(name).is_some_and(|it| it.needs == Needs::Folder);
    if let Some(tool) = tools.iter().find(writes) {
        let message = format!("`{tool}` changes files, and `{}` names no folder", reader.name());
        let range = reader.value().range.clone();
        let span = reader.report().span(&range);
        let diagnostic = Diagnostic::error("GR006", message).at(span, "without `folder`");
        reader.report().push(diagnostic.help("name one of `folders` with `folder:`"));
    }
}

/// Returns the path of the folder in which the tools of a node work, if it names one.
pub(super) async fn tools_folder(
    ctx: &NodeContext,
    name: Option<&String>,
) -> Result<Option<Arc<Path>>, NodeError> {
    let Some(name) = name else { return Ok(None) };
    Ok(Some(open_folder(ctx, name).await?.path().into()))
}

/// The folder of a node, for its sandbox.
pub(super) enum SandboxFolder {
    /// A copy of its files.
    Copy(Arc<[FolderFile]>),
    /// The folder itself, which nothing changes meanwhile.
    Mounted(SharedFolder),
}

impl SandboxFolder {
    /// No folder.
    pub(super) fn none() -> Self {
        Self::Copy(Arc::default())
    }

    /// Opens the folder that a node names, if it names one. Without `can_mount`, and if the folder cannot be mounted, its
    /// files are read.
    pub(super) async fn open(
        ctx: &NodeContext,
        name: Option<&String>,
        can_mount: bool,
    ) -> Result<Self, NodeError> {
        let Some(name) = name.filter(|_| can_mount) else {
            return files_of(ctx, name).await.map(Self::Copy);
        };
        let kept = folders_of(ctx)?.lock_shared(name).await.map_err(|it| failure(&it))?;
        if kept.was_recreated() {
            report_lost_worktree(ctx, kept.path()).await;
        }
        if kept.is_mountable().await.map_err(|it| failure(&it))? {
            return Ok(Self::Mounted(kept));
        }
        drop(kept);
        files_of(ctx, Some(name)).await.map(Self::Copy)
    }

    /// Returns its files, if they are copied.
    pub(super) fn files(&self) -> Arc<[FolderFile]> {
        match self {
            Self::Copy(files) => Arc::clone(files),
            Self::Mounted(_) => Arc::default(),
        }
    }

    /// Returns its path, if it is mounted.
    pub(super) fn mounted(&self) -> Option<PathBuf> {
        match self {
            Self::Copy(_) => None,
            Self::Mounted(folder) => Some(folder.path().to_owned()),
        }
    }

    /// Returns the paths of its regular files.
    pub(super) async fn paths(&self) -> Result<Arc<[PathBuf]>, NodeError> {
        let regular = |it: &&FolderFile| matches!(it.content, FolderContent::File { .. });
        match self {
            Self::Copy(files) => {
                Ok(files.iter().filter(regular).map(|it| it.path.clone()).collect())
            }
            Self::Mounted(_) => self.mounted_paths().await,
        }
    }

    /// Returns the paths of its regular files, if it is mounted.
    pub(super) async fn mounted_paths(&self) -> Result<Arc<[PathBuf]>, NodeError> {
        match self {
            Self::Copy(_) => Ok(Arc::default()),
            Self::Mounted(folder) => Ok(folder.paths().await.map_err(|it| failure(&it))?.into()),
        }
    }

    /// Returns whether it has a regular file with this content.
    pub(super) fn has(&self, path: &Path, content: &[u8]) -> bool {
        match self {
            Self::Copy(files) => files.binary_search_by(|it| it.path.as_path().cmp(path)).is_ok_and(
                |at| matches!(&files[at].content, FolderContent::File { bytes, .. } if bytes[..] == *content),
            ),
            Self::Mounted(folder) => folder.has(path, content),
        }
    }
}

/// Reads the files of the folder that a node names, for its sandbox.
async fn files_of(
    ctx: &NodeContext,
    name: Option<&String>,
) -> Result<Arc<[FolderFile]>, NodeError> {
    let Some(name) = name else { return Ok(Arc::default()) };
    let folder = open_folder(ctx, name).await?;
    Ok(folder.files().await.map_err(|it| failure(&it))?.into())
}
