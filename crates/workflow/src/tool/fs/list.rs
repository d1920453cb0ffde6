//! `fs.list`: lists a folder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FolderEntry, file_tool, folder::ToolFolder, here, sorted};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

/// The most entries of a list.
const ENTRIES_MAX: usize = 1_000;

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.list",
    about: "Lists a folder.",
    needs: Needs::Files,
    make: Make::OfFiles(|root| file_tool(&TOOL, root, list)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The folder, below the folder of the tools.
    #[serde(default = "here")]
    path: String,
}

/// The output.
#[derive(Serialize, JsonSchema)]
struct Listing {
    /// The entries of the folder, by name.
    entries: Vec<FolderEntry>,
    /// Whether there is more.
    truncated: bool,
}

fn list(folder: &ToolFolder, input: &List) -> Result<Listing, ToolError> {
    let mut entries = sorted(folder, &input.path)?;
    let truncated = entries.len() > ENTRIES_MAX;
    entries.truncate(ENTRIES_MAX);
    Ok(Listing { entries, truncated })
}
