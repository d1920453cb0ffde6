//! The parts of a Markdown page that the tests look at: headings, links and blocks of code.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The pages beside the folder `docs` that people read.
const AT_THE_ROOT: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "COMPATIBILITY.md"];

pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A fenced block of code.
pub(crate) struct Block<'p> {
    /// The word behind the opening fence.
    pub(crate) language: &'p str,
    pub(crate) code: &'p str,
    /// The name of the file that the sentence before the block gives it, as in "Write this into `a.yaml`:".
    pub(crate) file: Option<&'p str>,
}

impl Page {
    pub(crate) fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Returns whether the page explains one diagnostic code. `tests/codes.rs` checks its examples.
    pub(crate) fn is_of_a_code(&self) -> bool {
        self.path.starts_with("docs/codes") && !self.path.ends_with("README.md")
    }

    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut rest = self.text.as_str();
        while let Some((before, after)) = split_at_fence(rest) {
            let (language, after) = after.split_once('\n').expect("a fence ends its line");
            let (code, after) = split_at_fence(after)
                .unwrap_or_else(|| panic!("a block is not closed in {}", self.path.display()));
            blocks.push(Block { language: language.trim(), code, file: file_named_before(before) });
            rest = after;
        }
        blocks
    }

    /// Returns the text without its blocks of code.
    pub(crate) fn prose(&self) -> String {
        let mut prose = String::new();
        let mut is_code = false;
        for line in self.text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// Returns the texts between backticks, outside of blocks.
    pub(crate) fn inline_code(&self) -> Vec<String> {
        let prose = self.prose();
        prose
            .split("\n\n")
            .flat_map(|it| it.split('`').skip(1).step_by(2))
            .map(|it| it.replace('\n', " "))
            .collect()
    }

    /// Returns the targets of its links.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let mut text = String::new();
        for (at, part) in prose.split('`').enumerate() {
            // Brackets in code are no links.
            if at % 2 == 0 {
                text.push_str(part);
            }
        }
        let targets = text.split("](").skip(1).filter_map(|it| it.split_once(')'));
        targets.map(|(target, _)| target.to_owned()).collect()
    }

    /// Returns the names by which links reach its headings.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for line in self.prose().lines() {
            let title = line.trim_start_matches('#');
            if title.len() == line.len() || !title.starts_with(' ') {
                continue;
            }
            let anchor = anchor_of(title.trim());
            let numbered = (1..).map(|at| format!("{anchor}-{at}"));
            let mut names = std::iter::once(anchor.clone()).chain(numbered);
            anchors.insert(names.find(|it| !anchors.contains(it)).expect("numbers do not end"));
        }
        anchors
    }
}

/// Returns the name of a heading, as GitHub and mdBook make it.
fn anchor_of(title: &str) -> String {
    let kept = title.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it.to_ascii_lowercase() }).collect()
}

/// Splits a text at the next fence that begins a line.
fn split_at_fence(text: &str) -> Option<(&str, &str)> {
    if let Some(after) = text.strip_prefix("```") {
        return Some(("", after));
    }
    let at = text.find("\n```")?;
    Some((&text[..=at], &text[at + 4..]))
}

/// Returns the name in a last sentence such as "Write this into `a.yaml`:".
fn file_named_before(text: &str) -> Option<&str> {
    let sentence = text.trim_end().rsplit("\n\n").next()?.strip_suffix(':')?;
    let name = sentence.strip_suffix('`')?.rsplit('`').next()?;
    (name.contains('.') && !name.contains(' ')).then_some(name)
}

/// Returns every page, sorted by path.
pub(crate) fn all() -> Vec<Page> {
    let mut paths = below(Path::new("docs"));
    paths.extend(AT_THE_ROOT.iter().map(PathBuf::from));
    paths.into_iter().map(Page::read).collect()
}

/// Returns the Markdown files below a folder.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}
