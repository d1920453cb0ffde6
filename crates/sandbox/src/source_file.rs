//! A file of generated code.

/// A file of generated code with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path relative to the work folder; see [`check_path`](super::check_path) for the rules.
    pub path: String,
    /// The text of the file.
    pub content: String,
}
