//! `fs.edit`: replaces a part of a text file.

use std::path::Path;

use graphrun_guard::beneath::{BeneathError, Folder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ChangeOutput, write_one, writing_tool};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

/// The largest file that is edited, in bytes.
const BYTES_MAX: u64 = 1 << 20;

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.edit",
    about: "Replaces a text that occurs exactly once in a file of the folder of the node.",
    needs: Needs::Folder,
    make: Make::OfFiles(|_| writing_tool(&TOOL, edit)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The file, below the folder.
    path: String,
    /// The text to replace, exactly as it is in the file. Include lines around it, so that it occurs once.
    old: String,
    /// The text in its place.
    new: String,
}

fn edit(root: &Path, input: &Edit) -> Result<ChangeOutput, ToolError> {
    let Edit { path, old, new } = input;
    let text = read(root, path)?;
    let refuse = |why: &str| Err(ToolError::permanent(format!("`{path}` is not changed: {why}")));
    if old.is_empty() {
        return refuse("`old` is empty; `fs.write` makes a file");
    }
    match text.matches(old.as_str()).count() {
        0 => refuse("it does not contain `old`; read the file again"),
        1 => write_one(root, path, text.replacen(old.as_str(), new, 1)),
        count => refuse(&format!("it contains `old` {count} times; include more lines")),
    }
}

/// Reads a whole file. Keys in it stay: they are written back, and are not shown.
pub(super) fn read(root: &Path, path: &str) -> Result<String, ToolError> {
    let failed = |error: BeneathError| {
        ToolError::permanent(match error {
            BeneathError::Missing => format!("there is no `{path}`"),
            error => format!("`{path}` cannot be read: {error}"),
        })
    };
    let (bytes, size) = Folder::open(root)
        .and_then(|it| it.read_start(path.as_ref(), BYTES_MAX))
        .map_err(failed)?;
    if size > BYTES_MAX {
        return Err(ToolError::permanent(format!("`{path}` is larger than {BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| failed(BeneathError::NotText))
}
