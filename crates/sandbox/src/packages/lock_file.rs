//! Lock files: the packages that a repository depends on, each in one version.
//!
//! A lock file is text of others. Only entries that name a package, its version and its hashes are accepted. An entry that
//! names another place, such as an address, a path or another file, is refused with its line. The installers never read
//! the original: each reader writes a new file of the accepted parts.

use std::{collections::BTreeSet, fmt};

use thiserror::Error;

use crate::job::FixedFile;

/// The most packages of a lock file.
pub(super) const PACKAGES_MAX: usize = 5_000;
/// The most characters of a refused text that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A program that installs packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageInstaller {
    /// Installs Python packages from a file of requirements.
    Pip,
    /// Installs JavaScript packages from a `package-lock.json`.
    Npm,
    /// Installs crates of Rust from a `Cargo.lock`.
    Cargo,
    /// Installs modules of Go from a `go.sum`.
    Go,
}

/// A checked lock file.
#[derive(Clone, Debug)]
pub struct LockFile {
    pub(super) installer: PackageInstaller,
    /// The files that the installer reads.
    pub(super) files: Vec<FixedFile>,
    pub(super) package_count: usize,
    /// Whether each package has a hash.
    pub(super) has_hashes: bool,
    /// The scopes of its JavaScript packages, as in `@scope`. Each can have a registry.
    pub(super) scopes: BTreeSet<String>,
}

/// A lock file is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LockFileError {
    /// The file is too large.
    #[error("the file is larger than {} MiB", LockFile::BYTES_MAX >> 20)]
    TooLarge,
    /// The file has too many packages.
    #[error("the file has more than {PACKAGES_MAX} packages")]
    TooManyPackages,
    /// The file is not a text.
    #[error("line {line}: the text is not UTF-8, or has a control character")]
    NoText {
        /// The line.
        line: usize,
    },
    /// The file has the wrong form.
    #[error("line {line}: {problem}")]
    Form {
        /// The line.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// An entry names another source than a package of the registry.
    #[error("line {line}: `{entry}` {problem}")]
    Entry {
        /// The line.
        line: usize,
        /// The entry, cut.
        entry: String,
        /// The problem.
        problem: &'static str,
    },
}

impl PackageInstaller {
    /// Every installer.
    pub const ALL: [Self; 4] = [Self::Pip, Self::Npm, Self::Cargo, Self::Go];

    /// Returns the name of the program.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Cargo => "cargo",
            Self::Go => "go",
        }
    }

    /// Returns the only name that its lock files can have; `None` for those of pip, which can have any.
    pub fn lock_name(self) -> Option<&'static str> {
        match self {
            Self::Pip => None,
            Self::Npm => Some("package-lock.json"),
            Self::Cargo => Some("Cargo.lock"),
            Self::Go => Some("go.sum"),
        }
    }

    /// Returns the name of the file that is read together with a lock file, if there is one.
    pub fn manifest_name(self) -> Option<&'static str> {
        match self {
            Self::Npm => Some("package.json"),
            Self::Go => Some("go.mod"),
            Self::Pip | Self::Cargo => None,
        }
    }
}

impl fmt::Display for PackageInstaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl LockFile {
    /// The most bytes of a lock file.
    pub const BYTES_MAX: usize = 16 << 20;

    /// Returns the installer of its packages.
    pub fn installer(&self) -> PackageInstaller {
        self.installer
    }

    /// Returns the number of its packages.
    pub fn package_count(&self) -> usize {
        self.package_count
    }
}

impl LockFileError {
    pub(super) fn entry(line: usize, entry: &str, problem: &'static str) -> Self {
        let is_cut = entry.chars().count() > SHOWN_CHARACTERS_MAX;
        let shown: String = entry.chars().take(SHOWN_CHARACTERS_MAX).collect();
        Self::Entry { line, entry: if is_cut { shown + "…" } else { shown }, problem }
    }
}

pub(super) fn text_of(bytes: &[u8]) -> Result<&str, LockFileError> {
    if bytes.len() > LockFile::BYTES_MAX {
        return Err(LockFileError::TooLarge);
    }
    let (text, bad) = match str::from_utf8(bytes) {
        Ok(text) => (text, text.find(|it: char| it.is_control() && !"\n\r\t".contains(it))),
        Err(error) => ("", Some(error.valid_up_to())),
    };
    match bad {
        None => Ok(text),
        Some(at) => Err(LockFileError::NoText { line: line_at(bytes, at) }),
    }
}

/// Returns the number of the line at an offset.
pub(super) fn line_at(bytes: &[u8], offset: usize) -> usize {
    bytes[..offset].split(|it| *it == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_is_a_text_of_limited_size() {
        let error = |bytes: &[u8]| LockFile::pip(bytes).unwrap_err().to_string();
        assert_eq!(error(&vec![b'\n'; LockFile::BYTES_MAX + 1]), "the file is larger than 16 MiB");
        let no_text = "line 2: the text is not UTF-8, or has a control character";
        for bytes in [&b"a==1\nb\0==1\n"[..], b"a==1\n\xff\n", b"a==1\n\x1b[31mb==1\n"] {
            assert_eq!(error(bytes), no_text, "{bytes:?}");
        }
        let many = "p==1\n".repeat(PACKAGES_MAX + 1);
        assert_eq!(error(many.as_bytes()), "the file has more than 5000 packages");
    }
}
