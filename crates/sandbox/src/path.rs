//! Checks the names of generated files, one by one and together.
//!
//! Models invent paths, and may be talked into evil ones. An accepted path means the same file on
//! every file system, inside its folder, and no tool gives the name a special meaning.

use std::{collections::BTreeMap, fmt};

use thiserror::Error;
use unicode_normalization::UnicodeNormalization as _;

use super::source_file::SourceFile;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 200;
/// The most components of a path: folders and the file.
const COMPONENTS_MAX: usize = 32;
/// The most files of one set.
const FILES_MAX: usize = 200;
/// Largest file.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Largest set, in bytes.
const SET_BYTES_MAX: usize = 8 << 20;

/// The problem with the name or the size of a generated file. The text is also for the model that
/// wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// There is no name.
    #[error("the path is empty")]
    Empty,
    /// Longer than 200 bytes.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// More than 32 components.
    #[error("the path is deeper than {COMPONENTS_MAX} levels")]
    TooDeep,
    /// Starts at the root of the file system.
    #[error("the path is not relative")]
    Absolute,
    /// A component that is empty, `.` or `..`.
    #[error("the path has an empty, `.` or `..` component")]
    Traversal,
    /// A character other than letters, digits and a few signs.
    #[error("the character {0:?} is not allowed in a path")]
    Character(char),
    /// A component whose first or last character has a special meaning for shells or file systems.
    #[error("`{0}` may not start with `-`, `~` or a space, nor end with a dot or a space")]
    Edge(String),
    /// A device of Windows.
    #[error("`{0}` is the name of a device on Windows")]
    Device(String),
    /// A name with a special meaning for tools.
    #[error("`{0}` is reserved: tools read it as their configuration")]
    Reserved(String),
    /// The name of another file.
    #[error("another file has the same path")]
    Repeated,
    /// Two names that are equal on a file system that ignores case.
    #[error("the path is the same as `{0}`, upper and lower case apart")]
    Duplicate(String),
    /// The name of a file that is also a folder of another file.
    #[error("the path is a file here and a folder in `{0}`")]
    FileAndFolder(String),
    /// Larger than 1 MiB.
    #[error("the file is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
}

/// A generated file that is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The path as generated.
    pub path: String,
    /// The problem with the path.
    pub error: PathError,
}

/// A set of generated files that is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilesRefused {
    /// More than 200 files.
    #[error("there are {0} files, more than {FILES_MAX}")]
    TooMany(usize),
    /// More than 8 MiB.
    #[error("the files have {0} bytes together, more than {SET_BYTES_MAX}")]
    TooLarge(usize),
    /// All invalid names and sizes, in the order of the files.
    #[error("{}", ProblemLines(.0))]
    Files(Vec<FileProblem>),
}

/// Checks the path of one generated file.
///
/// Outside ASCII, only composed letters and digits are allowed, so that a path has one spelling: no marks, and no signs that
/// are invisible or change the direction.
///
/// # Errors
/// Names the first rule that the path breaks.
///
/// ```
/// use graphrun_sandbox::{PathError, check_path};
///
/// assert!(check_path("src/app/[id]/page.tsx").is_ok());
/// assert_eq!(check_path("../etc/passwd"), Err(PathError::Traversal));
/// ```
pub fn check_path(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    if path.starts_with('/') {
        return Err(PathError::Absolute);
    }
    let is_allowed =
        |letter: &char| is_plain_letter(*letter) || "/._-+@=,~ ()[]{}$#".contains(*letter);
    let refused = path.chars().find(|letter| !is_allowed(letter));
    if let Some(character) = refused.or_else(|| respelled(path)) {
        return Err(PathError::Character(character));
    }
    let components: Vec<&str> = path.split('/').collect();
    if components.len() > COMPONENTS_MAX {
        return Err(PathError::TooDeep);
    }
    for component in &components {
        check_component(component)?;
    }
    match reserved(&components) {
        Some(name) => Err(PathError::Reserved(name)),
        None => Ok(()),
    }
}

/// Returns whether it is a letter or digit and no part of another one: no mark, no letter of a decomposed Hangul
/// syllable, and no filler, which is an invisible letter.
fn is_plain_letter(letter: char) -> bool {
    let is_part = matches!(
        letter,
        '\u{300}'..='\u{36f}'
            | '\u{610}'..='\u{61a}'
            | '\u{64b}'..='\u{65f}'
            | '\u{1100}'..='\u{11ff}'
            | '\u{a960}'..='\u{a97f}'
            | '\u{d7b0}'..='\u{d7ff}'
    );
    letter.is_alphanumeric() && !is_part
}

/// Returns the first character with another spelling: a decomposed letter, or a form that looks like another, such as a
/// full-width letter.
fn respelled(path: &str) -> Option<char> {
    let mut normal = path.nfkc();
    path.chars().find(|letter| normal.next() != Some(*letter))
}

/// Checks all files of a set: every path and size, and that they do not conflict.
///
/// # Errors
/// Returns all problems, not only the first one.
pub fn check_files(files: &[SourceFile]) -> Result<(), FilesRefused> {
    if files.len() > FILES_MAX {
        return Err(FilesRefused::TooMany(files.len()));
    }
    let bytes: usize = files.iter().map(|file| file.content.len()).sum();
    if bytes > SET_BYTES_MAX {
        return Err(FilesRefused::TooLarge(bytes));
    }
    let mut taken = UsedNames::default();
    let problems: Vec<FileProblem> = files
        .iter()
        .filter_map(|file| {
            let error = check_path(&file.path).and_then(|()| taken.take(&file.path)).err();
            let error = error
                .or_else(|| (file.content.len() > FILE_BYTES_MAX).then_some(PathError::TooLarge))?;
            Some(FileProblem { path: file.path.clone(), error })
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(FilesRefused::Files(problems)) }
}

/// The used names, without case, with the path that uses them.
#[derive(Debug, Default)]
struct UsedNames<'a> {
    files: BTreeMap<String, &'a str>,
    folders: BTreeMap<String, &'a str>,
}

impl<'a> UsedNames<'a> {
    fn take(&mut self, path: &'a str) -> Result<(), PathError> {
        let folded = path.to_lowercase();
        if let Some(other) = self.files.get(&folded) {
            let is_same = *other == path;
            let duplicate = || PathError::Duplicate((*other).to_owned());
            return Err(if is_same { PathError::Repeated } else { duplicate() });
        }
        if let Some(other) = self.folders.get(&folded) {
            return Err(PathError::FileAndFolder((*other).to_owned()));
        }
        let folders = || folded.match_indices('/').map(|(end, _)| &folded[..end]);
        if let Some(other) = folders().find_map(|folder| self.files.get(folder)) {
            return Err(PathError::FileAndFolder((*other).to_owned()));
        }
        for folder in folders() {
            self.folders.entry(folder.to_owned()).or_insert(path);
        }
        self.files.insert(folded, path);
        Ok(())
    }
}

fn check_component(component: &str) -> Result<(), PathError> {
    // Names of dots alone are legal on Unix and have another meaning elsewhere.
    if component.bytes().all(|byte| byte == b'.') {
        return Err(PathError::Traversal);
    }
    if component.starts_with(['-', '~', ' ']) || component.ends_with(['.', ' ']) {
        return Err(PathError::Edge(component.to_owned()));
    }
    // Windows ignores everything after the first dot: `aux.py` is the device too.
    let stem = component.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let numbered = |prefix| {
        stem.strip_prefix(prefix)
            .is_some_and(|number: &str| matches!(number.as_bytes(), [b'0'..=b'9']))
    };
    if matches!(stem.as_str(), "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
    {
        return Err(PathError::Device(component.to_owned()));
    }
    Ok(())
}

/// Names that tools load or obey automatically: hooks, code that an interpreter loads at its start,
/// registries and credentials of package tools, and the sandbox's own names. `conftest.py` is
/// allowed: it is loaded like every test module, and can do no more.
fn reserved(components: &[&str]) -> Option<String> {
    let folded: Vec<String> =
        components.iter().map(|component| component.to_ascii_lowercase()).collect();
    let is_reserved_anywhere = |name: &&String| {
        // `git~1` is the short name of `.git` on NTFS, and git refuses it everywhere. It refuses other spellings, too: those
        // with a dot, a space, a colon, a backslash or an ignorable character are refused above.
        matches!(name.as_str(), ".git" | "git~1" | ".hg" | ".svn" | ".home" | ".ssh" | ".cargo")
    };
    let is_own = |name: &&String| name.starts_with(".graphrun");
    if let Some(name) = folded.iter().find(|it| is_reserved_anywhere(it) || is_own(it)) {
        return Some(name.clone());
    }
    let file = folded.last()?;
    let is_reserved_file = matches!(
        file.as_str(),
        "sitecustomize.py" | "usercustomize.py" | "pyvenv.cfg" | ".npmrc" | ".pypirc" | ".netrc"
    ) || file
        .rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "pth");
    is_reserved_file.then(|| file.clone())
}

/// Problems, one a line.
struct ProblemLines<'a>(&'a [FileProblem]);

impl fmt::Display for ProblemLines<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FileProblem { path, error }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            // Debug escapes the path, which may contain anything. It is truncated, because it may
            // be long.
            let shown: String = path.chars().take(80).collect();
            write!(formatter, "{separator}{shown:?}: {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), content: String::new() }
    }

    #[test]
    fn evil_paths_are_refused() {
        let long = "x".repeat(4096);
        let deep = "d/".repeat(300) + "f";
        let many_folders = "d/".repeat(32) + "f";
        #[rustfmt::skip]
        let vectors = [
            "../../etc/x", "/etc/x", "a/../../x", "a//b", "./a", "", ".", "..", "C:\\x", "\\\\srv\\x", "a\0b", "a/\u{200b}b",
            "a/b/", &long, &deep, &many_folders, "con", "aux.py", "src/NUL.txt", "com1", "LPT9.log", "~/.ssh/id", "-rf",
            "a\nb", "..%2f", "\u{ff0e}\u{ff0e}/x", ".git/hooks/pre-commit", "sub/.GIT/config", "/proc/self/root/x",
            "a/.../b", "%00", "a.", "a ", " a", "a./b", "a\u{301}.py", "\u{202e}a", "\u{3164}", "\u{ff41}.py", "\u{1112}\u{1161}", "a\u{a0}b", "\u{1f71}", "\u{9c7}\u{9be}", "com\u{b9}", "☃", "a:b", "a\tb", "a\u{7f}",
            "sitecustomize.py", "lib/usercustomize.py", "x.pth", "a/.PTH", ".home/x", ".cargo/config.toml", ".npmrc",
            "GIT~1", "git~1/config", "a/Git~1/hooks/x", ".git.", ".git...", ".git ", ".git::$INDEX_ALLOCATION", ".git:x/config",
            ".git\\config", ".g\u{200c}it/config", ".\u{2060}git", ".git\u{feff}/config",
            ".graphrun/runs.db", "a/.Graphrun-x", "con .txt", "a*b", "a?b", "a|b", "a<b", "a\"b", "a'b", "a`b", "a;b", "a&b", "a!b", "-", "a/-b",
        ];
        for path in vectors {
            assert!(check_path(path).is_err(), "{path:?} was accepted");
        }
    }

    #[test]
    fn ordinary_paths_are_accepted() {
        for path in [
            "main.py",
            "src/app/__init__.py",
            "tests/test_app.py",
            "conftest.py",
            "pyproject.toml",
            "README.md",
            ".gitignore",
            ".github/workflows/ci.yml",
            "web/src/routes/[id]/+page.svelte",
            "app/(group)/page.tsx",
            "@types/x.d.ts",
            "a b/c.txt",
            "Dockerfile",
            "console.py",
            "com10.py",
            "nullable.py",
            "a..b",
            "..a",
            "git~2",
            "src/main/java/com/acme/app/service/impl/Foo.java",
            "Übersicht.md",
            "docs/日本語/説明.md",
            "é.py",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn files_of_a_set_must_not_exclude_each_other() {
        let refused = |paths: &[&str]| -> Vec<PathError> {
            let files: Vec<_> = paths.iter().copied().map(file).collect();
            match check_files(&files) {
                Err(FilesRefused::Files(problems)) => {
                    problems.into_iter().map(|problem| problem.error).collect()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&["a.py", "a.py"]), [PathError::Repeated]);
        assert_eq!(refused(&["A.py", "a.py"]), [PathError::Duplicate("A.py".to_owned())]);
        assert_eq!(refused(&["É.py", "é.py"]), [PathError::Duplicate("É.py".to_owned())]);
        assert_eq!(refused(&["x", "x/y"]), [PathError::FileAndFolder("x".to_owned())]);
        assert_eq!(refused(&["X/y", "x"]), [PathError::FileAndFolder("X/y".to_owned())]);
        assert_eq!(refused(&["../a", "b", "/c"]), [PathError::Traversal, PathError::Absolute]);
        assert_eq!(check_files(&[file("x"), file("y/x"), file("y/z")]), Ok(()));
    }

    #[test]
    fn sets_have_a_size() {
        let sized =
            |bytes: usize| SourceFile { path: format!("f{bytes}"), content: "x".repeat(bytes) };
        assert_eq!(check_files(&[sized(FILE_BYTES_MAX)]), Ok(()));
        assert!(matches!(check_files(&[sized(FILE_BYTES_MAX + 1)]), Err(FilesRefused::Files(_))));
        let many: Vec<_> = (0..=FILES_MAX).map(|index| file(&index.to_string())).collect();
        assert_eq!(check_files(&many), Err(FilesRefused::TooMany(FILES_MAX + 1)));
        let large: Vec<_> = (0..9).map(|less| sized(FILE_BYTES_MAX - less)).collect();
        assert!(matches!(check_files(&large), Err(FilesRefused::TooLarge(_))));
    }

    #[test]
    fn every_problem_is_listed() {
        let error = check_files(&[file("../a"), file("ok"), file("a\nb")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"../a\": the path has an empty, `.` or `..` component\n\"a\\nb\": the character '\\n' is not allowed in a path"
        );
    }
}
