//! The built-in tools: reading, listing and searching the files below a folder.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_guard::redact::{Cut, redact_part};
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Tool, ToolContext, ToolError, folder::ToolFolder, tool_fn};
/// The names of the built-in tools.
pub const BUILT_IN: [&str; 3] = ["fs.read", "fs.list", "fs.grep"];

/// The most bytes read of one file; a search reads as many.
const READ_BYTES_MAX: u64 = 256 << 10;
/// The most entries of a list.
const ENTRIES_MAX: usize = 1_000;
/// The most matches of a search.
const MATCHES_MAX: usize = 200;
/// The most files and folders that a search visits.
const VISITED_MAX: usize = 20_000;
/// The most bytes that a search reads.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;
/// The most characters shown of a line.
const LINE_CHARACTERS_MAX: usize = 400;
/// The size of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What `fs.read` takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, below the folder of the tools.
    path: String,
    /// The first line, from one.
    #[serde(default = "first_line")]
    from: usize,
    /// How many lines; all if nothing is said.
    lines: Option<usize>,
}

/// What `fs.read` gives.
#[derive(Serialize, JsonSchema)]
struct FileText {
    /// The text.
    text: String,
    /// How many lines it has.
    lines: usize,
    /// Whether the file has more than was read of it.
    truncated: bool,
}

/// What `fs.list` takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The folder, below the folder of the tools.
    #[serde(default = "here")]
    path: String,
}

/// What `fs.list` gives.
#[derive(Serialize, JsonSchema)]
struct Listing {
    /// The entries of the folder, by name.
    entries: Vec<FolderEntry>,
    /// Whether there is more.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
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

/// What `fs.grep` takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Grep {
    /// A regular expression, which is looked for line by line.
    pattern: String,
    /// The folder or file to look in, below the folder of the tools.
    #[serde(default = "here")]
    path: String,
}

/// What `fs.grep` gives.
#[derive(Serialize, JsonSchema)]
struct Found {
    /// The lines, by path and number.
    matches: Vec<TextMatch>,
    /// Whether there may be more.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct TextMatch {
    /// The file, for `fs.read`.
    path: String,
    /// The number of the line, from one.
    line: usize,
    /// The line.
    text: String,
}

/// The built-in tool of that name, for the files below a folder.
pub fn built_in(name: &str, root: PathBuf) -> Option<Arc<dyn Tool>> {
    let root: Arc<Path> = root.into();
    Some(match name {
        "fs.read" => {
            let tool = move |input: Read, _: ToolContext| {
                blocking(Arc::clone(&root), move |it| it.text(&input))
            };
            Arc::new(tool_fn(name, "Reads a text file.", tool))
        }
        "fs.list" => {
            let tool = move |input: List, _: ToolContext| {
                blocking(Arc::clone(&root), move |it| it.list(&input))
            };
            Arc::new(tool_fn(name, "Lists a folder.", tool))
        }
        "fs.grep" => {
            let tool = move |input: Grep, _: ToolContext| {
                blocking(Arc::clone(&root), move |it| it.grep(&input))
            };
            Arc::new(tool_fn(name, "Finds the lines that match a regular expression.", tool))
        }
        _ => return None,
    })
}

/// Runs the work in a thread that may block.
async fn blocking<O: Send + 'static>(
    root: Arc<Path>,
    work: impl FnOnce(&ToolFolder) -> Result<O, ToolError> + Send + 'static,
) -> Result<O, ToolError> {
    let working = tokio::task::spawn_blocking(move || work(&ToolFolder::open(&root)?));
    working.await.map_err(ToolError::permanent)?
}

fn first_line() -> usize {
    1
}

fn here() -> String {
    ".".to_owned()
}

impl ToolFolder {
    fn text(&self, input: &Read) -> Result<FileText, ToolError> {
        let (bytes, size) = self.read(&input.path, READ_BYTES_MAX)?;
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

    fn list(&self, input: &List) -> Result<Listing, ToolError> {
        let mut entries = self.sorted(&input.path)?;
        let truncated = entries.len() > ENTRIES_MAX;
        entries.truncate(ENTRIES_MAX);
        Ok(Listing { entries, truncated })
    }

    /// Returns the entries of a folder by name: at most one more than a list may have.
    fn sorted(&self, folder: &str) -> Result<Vec<FolderEntry>, ToolError> {
        let mut entries = Vec::new();
        for entry in self.entries(folder)?.take(VISITED_MAX) {
            let entry =
                entry.map_err(|error| ToolError::permanent(format!("`{folder}`: {error}")))?;
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

    fn grep(&self, input: &Grep) -> Result<Found, ToolError> {
        let pattern = RegexBuilder::new(&input.pattern).size_limit(PATTERN_BYTES_MAX).build();
        let pattern =
            pattern.map_err(|error| ToolError::permanent(format!("the pattern: {error}")))?;
        let is_folder = self.open_any(&input.path)?.metadata().is_ok_and(|it| it.is_dir());
        let mut search = TextSearch {
            pattern,
            matches: Vec::new(),
            bytes_left: SEARCHED_BYTES_MAX,
            is_partial: false,
        };
        if !is_folder {
            search.file(self, &input.path)?;
            return Ok(search.found(false));
        }
        let mut open = VecDeque::from([input.path.clone()]);
        let mut visited = 0;
        while let Some(folder) = open.pop_front() {
            // A folder that disappeared or cannot be read does not stop the search elsewhere.
            for entry in self.sorted(&folder).unwrap_or_default() {
                visited += 1;
                if visited > VISITED_MAX || search.is_full() {
                    return Ok(search.found(true));
                }
                match entry.kind {
                    EntryKind::Folder if !entry.path.ends_with("/.git") && entry.path != ".git" => {
                        open.push_back(entry.path);
                    }
                    EntryKind::File => drop(search.file(self, &entry.path)),
                    EntryKind::Folder | EntryKind::Other => (),
                }
            }
        }
        Ok(search.found(false))
    }
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
        let (bytes, size) = files.read(path, self.bytes_left.min(READ_BYTES_MAX))?;
        self.is_partial |= size > bytes.len() as u64;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        if bytes.contains(&0) {
            return Ok(());
        }
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

    fn found(mut self, mut truncated: bool) -> Found {
        truncated |= self.is_partial || self.matches.len() > MATCHES_MAX;
        self.matches.truncate(MATCHES_MAX);
        self.matches.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        Found { matches: self.matches, truncated }
    }
}

fn joined(folder: &str, name: &str) -> String {
    match folder {
        "." | "" => name.to_owned(),
        folder => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}
