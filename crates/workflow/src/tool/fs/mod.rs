//! The built-in tools for files: reading, listing and searching below a folder, and changing files of a folder of the run.

mod context;
mod edit;
mod folder;
mod grep;
mod list;
mod patch;
mod read;
mod remove;
mod write;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use graphrun_guard::beneath::is_of_git;
use graphrun_sandbox::{SourceFile, WriteError, replace_files};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use self::folder::{PATH_CHARACTERS_MAX, ToolFolder};
use super::{BuiltIn, Tool, ToolContext, ToolError, tool_fn};

/// The tools of this folder.
pub(super) const TOOLS: &[BuiltIn] = &[
    read::TOOL,
    list::TOOL,
    grep::TOOL,
    context::TOOL,
    write::TOOL,
    edit::TOOL,
    patch::TOOL,
    remove::TOOL,
];

/// The most bytes of a text in a result, and of a file that is weighed for a context.
const READ_BYTES_MAX: u64 = 256 << 10;
/// The most bytes in which lines of one file are looked for.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The most files and folders that a search visits.
const VISITED_MAX: usize = 20_000;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
struct FolderEntry {
    /// Its path, for `fs.read`.
    path: String,
    /// The kind of the entry.
    kind: EntryKind,
    /// The size of a file.
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EntryKind {
    File,
    Folder,
    /// A link, a pipe or a device.
    Other,
}

/// Makes a tool of work on the files below a folder. The work may block its thread.
fn file_tool<I, O>(
    tool: &BuiltIn,
    root: Arc<Path>,
    work: fn(&ToolFolder, &I) -> Result<O, ToolError>,
) -> Arc<dyn Tool>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + Send + 'static,
{
    let call = move |input: I, ctx: ToolContext| {
        let root = ctx.folder.unwrap_or_else(|| Arc::clone(&root));
        let work = move || work(&ToolFolder::open(&root)?, &input);
        async move { tokio::task::spawn_blocking(work).await.map_err(ToolError::permanent)? }
    };
    Arc::new(tool_fn(tool.name, tool.about, call))
}

/// Makes a tool of work that changes files of a folder of the run. The work may block its thread.
fn writing_tool<I>(
    tool: &BuiltIn,
    work: fn(&Path, &I) -> Result<ChangeOutput, ToolError>,
) -> Arc<dyn Tool>
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
{
    let call = move |input: I, ctx: ToolContext| async move {
        // The folder of the tools is that of the user, so there is no default.
        let folder = ctx.folder.ok_or_else(|| {
            ToolError::permanent("the node names no folder of the run, so nothing can be changed")
        })?;
        let work = move || {
            // A change reads the file before it writes it, so changes of parallel tasks wait for each other.
            let _turn = ONE_CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
            work(&folder, &input)
        };
        tokio::task::spawn_blocking(work).await.map_err(ToolError::permanent)?
    };
    Arc::new(tool_fn(tool.name, tool.about, call))
}

/// Held while a file changes.
static ONE_CHANGE: Mutex<()> = Mutex::new(());

/// The result of a change.
#[derive(Serialize, JsonSchema)]
struct ChangeOutput {
    /// The file.
    path: String,
    /// Its size; 0 if it was removed.
    bytes: usize,
}

/// Writes one file of a folder of the run, under the rules for all generated files.
fn write_one(root: &Path, path: &str, content: String) -> Result<ChangeOutput, ToolError> {
    let bytes = content.len();
    let file = SourceFile { path: path.to_owned(), content };
    replace_files(root, &[file]).map_err(|error| refused(path, &error))?;
    Ok(ChangeOutput { path: path.to_owned(), bytes })
}

fn refused(path: &str, error: &WriteError) -> ToolError {
    let shown: String = path.chars().take(PATH_CHARACTERS_MAX).collect();
    ToolError::permanent(match error {
        WriteError::Refused(refused) => format!("the file was not accepted: {refused}"),
        WriteError::InTheWay { expected, .. } => format!("`{shown}` is not a regular {expected}"),
        // The paths of the host are none of the model's business.
        WriteError::Root { source, .. } | WriteError::Write { source, .. } => {
            format!("`{shown}` cannot be changed: {source}")
        }
        error => format!("`{shown}` cannot be changed: {error}"),
    })
}

fn here() -> String {
    ".".to_owned()
}

/// Returns the entries of a folder by name, without `.git`: at most one more than a list may have.
fn sorted(files: &ToolFolder, folder: &str) -> Result<Vec<FolderEntry>, ToolError> {
    let mut entries = Vec::new();
    for entry in files.entries(folder)?.take(VISITED_MAX) {
        let entry = entry.map_err(|error| ToolError::permanent(format!("`{folder}`: {error}")))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_of_git(name.as_ref()) {
            continue;
        }
        // The metadata of a link itself, not of its target.
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = match metadata.file_type() {
            it if it.is_file() => EntryKind::File,
            it if it.is_dir() => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        let bytes = if kind == EntryKind::File { metadata.len() } else { 0 };
        entries.push(FolderEntry { path: joined(folder, &name), kind, bytes });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn joined(folder: &str, name: &str) -> String {
    match folder {
        "." | "" => name.to_owned(),
        folder => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}
