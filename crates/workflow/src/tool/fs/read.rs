//! `fs.read`: reads a text file.

use std::iter::Peekable;

use graphrun_guard::redact::{Cut, redact_part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FILE_BYTES_MAX, READ_BYTES_MAX, file_tool, folder::ToolFolder};
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
    let refuse = |why: &str| Err(ToolError::permanent(format!("`{}` {why}", input.path)));
    let (bytes, size) = folder.read(&input.path, FILE_BYTES_MAX)?;
    if bytes.contains(&0) {
        return refuse("is not a text file");
    }
    let cut = size > FILE_BYTES_MAX;
    let text = String::from_utf8_lossy(&bytes);
    // The truncated text may end in half a character.
    let text = if cut { text.trim_end_matches('\u{fffd}') } else { &text };
    // Keys are removed before lines are chosen, because a part of a key would not be recognised
    // later.
    let text = redact_part(text, Cut { start: false, end: cut });
    let mut rest = text.split_inclusive('\n').skip(input.from.saturating_sub(1)).peekable();
    if cut && rest.peek().is_none() {
        let mib = FILE_BYTES_MAX >> 20;
        return refuse(&format!(
            "is read to its first {mib} MiB, and line {} is behind",
            input.from
        ));
    }
    let room = usize::try_from(READ_BYTES_MAX).unwrap_or(usize::MAX);
    let count = input.lines.unwrap_or(usize::MAX);
    let FileText { text, lines, truncated } = first_lines(&mut rest, count, room);
    Ok(FileText { text, lines, truncated: cut || truncated })
}

/// Takes lines while there is room for them, and as much of the first one as there is.
fn first_lines<'t>(
    rest: &mut Peekable<impl Iterator<Item = &'t str>>,
    count: usize,
    room: usize,
) -> FileText {
    let mut text = String::new();
    let mut lines = 0;
    let mut is_cut = false;
    while lines < count {
        let fits = |it: &&str| lines == 0 || text.len() + it.len() <= room;
        let Some(line) = rest.next_if(fits) else { break };
        let end = (0..=line.len().min(room)).rev().find(|it| line.is_char_boundary(*it));
        let end = end.unwrap_or_default();
        is_cut |= end < line.len();
        text.push_str(&line[..end]);
        lines += 1;
    }
    FileText { text, lines, truncated: is_cut || rest.peek().is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_while_there_is_room() {
        let of = |text: &'static str, count, room| {
            let mut rest = text.split_inclusive('\n').peekable();
            let FileText { text, lines, truncated } = first_lines(&mut rest, count, room);
            (text, lines, truncated)
        };
        assert_eq!(of("ab\ncd\nef\n", 2, 100), ("ab\ncd\n".to_owned(), 2, true));
        assert_eq!(of("ab\ncd\nef\n", 9, 6), ("ab\ncd\n".to_owned(), 2, true));
        assert_eq!(of("ab\ncd\nef\n", 9, 8), ("ab\ncd\n".to_owned(), 2, true));
        assert_eq!(of("ab\ncd\nef\n", 9, 9), ("ab\ncd\nef\n".to_owned(), 3, false));
        // A letter of two bytes does not fit, and nothing else follows the cut line.
        assert_eq!(of("aéb\n", 9, 2), ("a".to_owned(), 1, true));
        assert_eq!(of("", 9, 2), (String::new(), 0, false));
    }
}
