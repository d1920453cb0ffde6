//! `fs.grep`: searches files.

use std::collections::VecDeque;

use graphrun_guard::redact::{Cut, redact_part};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    EntryKind, FILE_BYTES_MAX, READ_BYTES_MAX, VISITED_MAX, file_tool, folder::ToolFolder, here,
    sorted,
};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

/// The most matches of a search.
const MATCHES_MAX: usize = 200;
/// The most bytes that a search reads.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;
/// The most characters shown of a line.
const LINE_CHARACTERS_MAX: usize = 400;
/// The size of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.grep",
    about: "Finds the lines that match a regular expression.",
    needs: Needs::Files,
    make: Make::OfFiles(|root| file_tool(&TOOL, root, grep)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Grep {
    /// A regular expression, which is looked for line by line.
    pattern: String,
    /// The folder or file to look in, below the folder of the tools.
    #[serde(default = "here")]
    path: String,
}

/// The output.
#[derive(Serialize, JsonSchema)]
struct Matches {
    /// The lines, by path and number.
    matches: Vec<TextMatch>,
    /// Whether there may be more.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Match")]
struct TextMatch {
    /// The file, for `fs.read`.
    path: String,
    /// The number of the line, from one.
    line: usize,
    /// The line.
    text: String,
}

fn grep(files: &ToolFolder, input: &Grep) -> Result<Matches, ToolError> {
    let pattern = RegexBuilder::new(&input.pattern).size_limit(PATTERN_BYTES_MAX).build();
    let pattern = pattern.map_err(|error| ToolError::permanent(format!("the pattern: {error}")))?;
    let path = if input.path.is_empty() { here() } else { input.path.clone() };
    let is_folder = files.open_any(&path)?.metadata().is_ok_and(|it| it.is_dir());
    let mut search = TextSearch {
        pattern,
        matches: Vec::new(),
        bytes_left: SEARCHED_BYTES_MAX,
        is_partial: false,
    };
    if !is_folder {
        search.file(files, &path)?;
        return Ok(search.found(false));
    }
    let mut open = VecDeque::from([path]);
    let mut visited = 0;
    while let Some(folder) = open.pop_front() {
        // A folder that disappeared or cannot be read does not stop the search elsewhere.
        for entry in sorted(files, &folder).unwrap_or_default() {
            visited += 1;
            if visited > VISITED_MAX || search.is_full() {
                return Ok(search.found(true));
            }
            match entry.kind {
                EntryKind::Folder => open.push_back(entry.path),
                EntryKind::File => drop(search.file(files, &entry.path)),
                EntryKind::Other => (),
            }
        }
    }
    Ok(search.found(false))
}

/// The state of a search.
struct TextSearch {
    pattern: Regex,
    /// The matches, at most one more than the result may have, to detect further ones.
    matches: Vec<TextMatch>,
    bytes_left: u64,
    /// Whether a file has more than was read of it.
    is_partial: bool,
}

impl TextSearch {
    fn is_full(&self) -> bool {
        self.matches.len() > MATCHES_MAX || self.bytes_left == 0
    }

    fn file(&mut self, files: &ToolFolder, path: &str) -> Result<(), ToolError> {
        let (mut bytes, size) = files.read(path, self.bytes_left.min(READ_BYTES_MAX))?;
        // The start shows that a file is no text, so that the search does not read large ones in vain.
        if !bytes.contains(&0) && size > bytes.len() as u64 {
            bytes = files.read(path, self.bytes_left.min(FILE_BYTES_MAX))?.0;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        if bytes.contains(&0) {
            return Ok(());
        }
        self.is_partial |= size > bytes.len() as u64;
        // Keys are removed before lines are matched and truncated, because a part of a key would
        // not be recognised later.
        let text = String::from_utf8_lossy(&bytes);
        let cut = Cut { start: false, end: size > bytes.len() as u64 };
        for (at, line) in redact_part(&text, cut).lines().enumerate() {
            if self.pattern.is_match(line) {
                let text = line.chars().take(LINE_CHARACTERS_MAX).collect();
                self.matches.push(TextMatch { path: path.to_owned(), line: at + 1, text });
            }
            if self.matches.len() > MATCHES_MAX {
                break;
            }
        }
        Ok(())
    }

    fn found(mut self, mut truncated: bool) -> Matches {
        truncated |= self.is_partial || self.matches.len() > MATCHES_MAX;
        self.matches.truncate(MATCHES_MAX);
        self.matches.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        Matches { matches: self.matches, truncated }
    }
}
