//! `Cargo.lock`. Only its list of crates is used: their names, versions and checksums.
//!
//! cargo itself is not asked. `cargo vendor` reads all manifests of a repository, and each release of it needs other parts
//! of them; the archives of the registry need only what the lock file has.

use std::collections::BTreeSet;

use toml_edit::{Document, Table};

use super::lock_file::{LockFile, LockFileError, PACKAGES_MAX, PackageInstaller, line_at, text_of};
use crate::job::FixedFile;

/// The name of the list inside, below `/graphrun`: a name, a version and a checksum in each line.
const CRATES: &str = "crates";

/// The two names of crates.io.
const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

const OTHER_SOURCE: &str = "comes from something else than crates.io, such as git or another registry, and only crates of \
                            crates.io are installed; the operator can replace it by a mirror";
const NO_NAME: &str = "has no plain `name` and `version`";
const NO_HASH: &str = "has no `checksum` with sha256; let cargo write the lock file again";

impl LockFile {
    /// Reads a `Cargo.lock`.
    ///
    /// # Errors
    ///
    /// Fails with the first package that is none of the repository and none of crates.io.
    pub fn cargo(bytes: &[u8]) -> Result<Self, LockFileError> {
        read(text_of(bytes)?)
    }
}

fn read(text: &str) -> Result<LockFile, LockFileError> {
    let document = Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |it| line_at(text.as_bytes(), it.start));
        let problem = format!("`Cargo.lock` cannot be read: {}", error.message());
        LockFileError::Form { line, problem }
    })?;
    let tables = document.get("package").and_then(|it| it.as_array_of_tables());
    let mut content = String::new();
    let mut package_count = 0;
    for table in tables.into_iter().flatten() {
        let of = |key: &str| table.get(key).and_then(|it| it.as_str());
        // Without a source, it is a package of the repository.
        let Some(source) = of("source") else { continue };
        if package_count == PACKAGES_MAX {
            return Err(LockFileError::TooManyPackages);
        }
        let line = table.span().map_or(1, |it| line_at(text.as_bytes(), it.start));
        let entry = of("name").unwrap_or_default();
        content += &check(table, source).map_err(|it| LockFileError::entry(line, entry, it))?;
        package_count += 1;
    }
    Ok(LockFile {
        installer: PackageInstaller::Cargo,
        package_count,
        has_hashes: true,
        scopes: BTreeSet::new(),
        files: vec![FixedFile { path: CRATES.to_owned(), content: content.into_bytes() }],
    })
}

/// Returns the line of a crate.
fn check(table: &Table, source: &str) -> Result<String, &'static str> {
    let of = |key: &str| table.get(key).and_then(|it| it.as_str()).unwrap_or_default();
    if !CRATES_IO.contains(&source) {
        return Err(OTHER_SOURCE);
    }
    let name = of("name");
    let version = of("version");
    let hash = of("checksum");
    let is_name = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    let is_version = |it: char| it.is_ascii_alphanumeric() || ".+-".contains(it);
    if !name.starts_with(|it: char| it.is_ascii_alphabetic())
        || !name.chars().all(is_name)
        || !version.starts_with(|it: char| it.is_ascii_digit())
        || !version.chars().all(is_version)
    {
        return Err(NO_NAME);
    }
    if hash.len() != 64 || !hash.chars().all(|it| matches!(it, '0'..='9' | 'a'..='f')) {
        return Err(NO_HASH);
    }
    Ok(format!("{name} {version} {hash}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(name: &str, more: &str) -> String {
        format!("\n[[package]]\nname = {name:?}\nversion = \"1.0.0\"\n{more}")
    }

    #[test]
    fn crates_are_those_of_the_registry() {
        let hash = "0123456789abcdef".repeat(4);
        let of = |source: &str| format!("source = \"{source}\"\nchecksum = \"{hash}\"\n");
        let text = format!(
            "# by Cargo\nversion = 4\n{}{}{}",
            locked("app", "dependencies = [\"serde\"]\n"),
            locked("serde", &of(CRATES_IO[0])),
            locked("zstd-sys", &of(CRATES_IO[1])).replace("1.0.0", "2.0.1+zstd.1.5.2"),
        );
        let read_lock = read(&text).unwrap();
        let expected = format!("serde 1.0.0 {hash}\nzstd-sys 2.0.1+zstd.1.5.2 {hash}\n");
        assert_eq!(str::from_utf8(&read_lock.files[0].content), Ok(expected.as_str()));
        assert_eq!(read_lock.package_count, 2);
        assert_eq!(read("version = 4\n").unwrap().package_count, 0);
    }

    #[test]
    fn crates_of_other_sources_are_refused_with_their_line() {
        let hash = "0123456789abcdef".repeat(4);
        let of = |source: &str| format!("source = \"{source}\"\nchecksum = \"{hash}\"\n");
        let known = of(CRATES_IO[0]);
        for (name, entry, problem) in [
            ("a", of("git+https://example.com/a#12"), OTHER_SOURCE),
            ("a", of("registry+https://example.com/index"), OTHER_SOURCE),
            ("../a", known.clone(), NO_NAME),
            ("-a", known.clone(), NO_NAME),
            ("", known.clone(), NO_NAME),
            ("a", format!("source = \"{}\"\n", CRATES_IO[0]), NO_HASH),
            ("a", known.replace('f', "F"), NO_HASH),
        ] {
            let text = format!("version = 4\n{}{}", locked("good", &known), locked(name, &entry));
            let error = read(&text).err().unwrap_or_else(|| panic!("{name} {entry}"));
            assert_eq!(error, LockFileError::entry(9, name, problem), "{entry}");
        }
        let text = locked("a", &known).replace("1.0.0", "1.0.0 x");
        assert_eq!(read(&text).err(), Some(LockFileError::entry(2, "a", NO_NAME)));
        let error = read("version = 4\n[[package]\n").err().unwrap().to_string();
        assert!(error.starts_with("line 2: `Cargo.lock` cannot be read: "), "{error}");
    }
}
