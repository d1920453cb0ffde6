//! The built-in tools for files: reading, listing and searching below a folder.

mod folder;
mod grep;
mod list;
mod read;

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use self::folder::ToolFolder;
use super::{BuiltIn, Tool, ToolContext, ToolError, tool_fn};

/// The tools of this folder.
pub(super) const TOOLS: [BuiltIn; 3] = [read::TOOL, list::TOOL, grep::TOOL];

/// The most bytes read of one file; a search reads as many.
const READ_BYTES_MAX: u64 = 256 << 10;
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
    let call = move |input: I, _: ToolContext| {
        let root = Arc::clone(&root);
        let work = move || work(&ToolFolder::open(&root)?, &input);
        async move { tokio::task::spawn_blocking(work).await.map_err(ToolError::permanent)? }
    };
    Arc::new(tool_fn(tool.name, tool.about, call))
}

fn here() -> String {
    ".".to_owned()
}

/// Returns the entries of a folder by name: at most one more than a list may have.
fn sorted(files: &ToolFolder, folder: &str) -> Result<Vec<FolderEntry>, ToolError> {
    let mut entries = Vec::new();
    for entry in files.entries(folder)?.take(VISITED_MAX) {
        let entry = entry.map_err(|error| ToolError::permanent(format!("`{folder}`: {error}")))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
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
