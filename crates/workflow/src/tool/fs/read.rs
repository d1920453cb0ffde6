//! `fs.read`: reads a text file.

use graphrun_guard::redact::{Cut, redact_part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{READ_BYTES_MAX, file_tool, folder::ToolFolder};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.read",
    about: "Reads a text file: all of it, or as many lines as `lines` from line `from` on.",
    needs: Needs::Files,
    make: Make::OfFiles(|root| file_tool(&TOOL, root, read)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, below the folder of the tools.
    path: String,
    /// The first line, from one.
    #[serde(default = "first_line")]
    from: usize,
    /// The number of lines. Default: all.
    lines: Option<usize>,
}

/// The output.
#[derive(Serialize, JsonSchema)]
struct FileText {
    /// The text.
    text: String,
    /// The number of its lines.
    lines: usize,
    /// Whether the file has more.
    truncated: bool,
}

fn first_line() -> usize {
    1
}

fn read(folder: &ToolFolder, input: &Read) -> Result<FileText, ToolError> {
    let (bytes, size) = folder.read(&input.path, READ_BYTES_MAX)?;
    if bytes.contains(&0) {
        return Err(ToolError::permanent(format!("`{}` is not a text file", input.path)));
    }
    let cut = size > READ_BYTES_MAX;
    let text = String::from_utf8_lossy(&bytes);
    // The truncated text may end in half a character.
    let text = if cut { text.trim_end_matches('\u{fffd}') } else { &text };
    // Keys are removed before lines are chosen, because a part of a key would not be recognised
    // later.
    let text = redact_part(text, Cut { start: false, end: cut });
    let skipped = text.split_inclusive('\n').skip(input.from.saturating_sub(1));
    let mut rest = skipped.peekable();
    let lines: Vec<&str> = rest.by_ref().take(input.lines.unwrap_or(usize::MAX)).collect();
    let truncated = cut || rest.peek().is_some();
    Ok(FileText { text: lines.concat(), lines: lines.len(), truncated })
}
