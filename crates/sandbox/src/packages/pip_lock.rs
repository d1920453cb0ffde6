//! Files of requirements, in the part of pip's format that pins packages.

use std::collections::BTreeSet;

use super::lock_file::{LockFile, LockFileError, PACKAGES_MAX, PackageInstaller, text_of};
use crate::job::FixedFile;

/// The name of the file inside, below `/graphrun`.
pub(super) const REQUIREMENTS: &str = "requirements.txt";

const NOT_PINNED: &str =
    "is not pinned; write `NAME==VERSION`, as `pip-compile` and `uv pip compile` do";
const OPTION: &str = "is an option, and a lock file has only packages; registries are chosen by the variables of the operator";
const OTHER_SOURCE: &str =
    "names a file, a folder or an address in place of a package of the registry";
const BAD_HASH: &str = "is not followed only by hashes as in `--hash=sha256:…`";
const BAD_MARKER: &str = "has a condition with characters that no condition needs";
const NO_HASH: &str = "has no hash, and other packages have one";

/// The hash functions that pip accepts, with the digits of a hash.
const HASHES: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// A line that pins a package.
struct PinLine {
    line: usize,
    /// The package with its version and its condition.
    text: String,
    hashes: Vec<String>,
}

impl LockFile {
    /// Reads a file of requirements for pip: `NAME==VERSION` in each line, with hashes for all of them or for none.
    ///
    /// # Errors
    ///
    /// Fails with the first line that is anything else.
    ///
    /// ```
    /// use graphrun_sandbox::LockFile;
    ///
    /// assert_eq!(LockFile::pip(b"click==8.1.7\n").unwrap().package_count(), 1);
    /// let error = LockFile::pip(b"click==8.1.7\n-r ../other.txt\n").unwrap_err();
    /// assert!(error.to_string().starts_with("line 2: `-r ../other.txt` is an option"));
    /// ```
    pub fn pip(bytes: &[u8]) -> Result<Self, LockFileError> {
        read(text_of(bytes)?)
    }
}

fn read(text: &str) -> Result<LockFile, LockFileError> {
    let mut all = Vec::new();
    for (line, text) in logical_lines(text) {
        if all.len() == PACKAGES_MAX {
            return Err(LockFileError::TooManyPackages);
        }
        let refuse = |problem| LockFileError::entry(line, &text, problem);
        let (requirement, hashes) = split(&text).map_err(refuse)?;
        all.push(PinLine { line, text: requirement, hashes });
    }
    let has_hashes = all.iter().any(|it| !it.hashes.is_empty());
    if let Some(bare) = all.iter().find(|it| has_hashes && it.hashes.is_empty()) {
        return Err(LockFileError::entry(bare.line, &bare.text, NO_HASH));
    }
    let written = |line: &PinLine| {
        let hashes = line.hashes.iter().map(|hash| format!("--hash={hash}"));
        [line.text.clone()].into_iter().chain(hashes).collect::<Vec<_>>().join(" ") + "\n"
    };
    let content: String = all.iter().map(written).collect();
    Ok(LockFile {
        installer: PackageInstaller::Pip,
        package_count: all.len(),
        has_hashes,
        scopes: BTreeSet::new(),
        files: vec![FixedFile { path: REQUIREMENTS.to_owned(), content: content.into_bytes() }],
    })
}

/// Returns the lines without comments, with those that end with `\` joined to the next one, and with the number of the first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut joined: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with('#');
        let (number, mut text) = joined.take().unwrap_or((at + 1, String::new()));
        if let Some(part) = line.strip_suffix('\\').filter(|_| !is_comment) {
            text.push_str(part);
            joined = Some((number, text));
        } else {
            text.push_str(line);
            lines.push((number, without_comment(&text).trim().to_owned()));
        }
    }
    lines.extend(joined.map(|(number, text)| (number, without_comment(&text).trim().to_owned())));
    lines.retain(|(_, text)| !text.is_empty());
    lines
}

/// A comment begins at the start of a line or behind white space.
fn without_comment(line: &str) -> &str {
    let is_start = |at: &usize| *at == 0 || line[..*at].ends_with(char::is_whitespace);
    let at = line.match_indices('#').map(|(at, _)| at).find(is_start);
    at.map_or(line, |it| &line[..it])
}

/// Splits a line into the pinned package and its hashes.
fn split(line: &str) -> Result<(String, Vec<String>), &'static str> {
    if line.starts_with('-') {
        return Err(OPTION);
    }
    let (requirement, options) = match line.find(" -").or_else(|| line.find("\t-")) {
        Some(at) => line.split_at(at),
        None => (line, ""),
    };
    let hashes = options.split_whitespace().map(hash_of).collect::<Option<Vec<_>>>();
    let hashes = hashes.ok_or(BAD_HASH)?;
    let (package, marker) = match requirement.split_once(';') {
        Some((package, marker)) => (package.trim(), Some(marker.trim())),
        None => (requirement.trim(), None),
    };
    if package.contains(['/', '\\', '@', ':']) || package.starts_with('.') {
        return Err(OTHER_SOURCE);
    }
    let (name, version) = package.split_once("==").ok_or(NOT_PINNED)?;
    let name = name.trim();
    let version = version.trim();
    if !is_name(name) || !is_version(version) {
        return Err(NOT_PINNED);
    }
    let Some(marker) = marker else { return Ok((format!("{name}=={version}"), hashes)) };
    let is_of_marker =
        |letter: char| letter.is_ascii_alphanumeric() || " _.'\"<>=!~()+*,-".contains(letter);
    if marker.is_empty() || !marker.chars().all(is_of_marker) {
        return Err(BAD_MARKER);
    }
    Ok((format!("{name}=={version} ; {marker}"), hashes))
}

/// Returns whether a text is the name of a package, with or without extras.
fn is_name(text: &str) -> bool {
    let (name, extras) = match text.split_once('[') {
        Some((name, rest)) => (name.trim_end(), rest.strip_suffix(']')),
        None => (text, Some("x")),
    };
    let is_plain = |name: &str| {
        let is_inner = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        let is_end = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
        name.chars().all(is_inner) && is_end(name.chars().next()) && is_end(name.chars().last())
    };
    is_plain(name) && extras.is_some_and(|extras| extras.split(',').all(|it| is_plain(it.trim())))
}

fn is_version(text: &str) -> bool {
    let is_of_version = |it: char| it.is_ascii_alphanumeric() || "._+!-".contains(it);
    text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.chars().all(is_of_version)
}

fn hash_of(option: &str) -> Option<String> {
    let hash = option.strip_prefix("--hash=")?;
    let (function, digits) = hash.split_once(':')?;
    let is_known = |(name, length): &(&str, usize)| *name == function && *length == digits.len();
    let is_hash = HASHES.iter().any(is_known) && digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_hash.then(|| hash.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let lock = read(text).unwrap();
        String::from_utf8(lock.files[0].content.clone()).unwrap()
    }

    #[test]
    fn only_the_pinned_packages_are_written() {
        let hash = format!("sha256:{}", "0a".repeat(32));
        let text = format!(
            "# by pip-compile\r\nclick==8.1.7 \\\r\n    --hash={hash} \\\n    --hash={hash}\n    # via app\n\n\
             uvicorn[standard, extra] == 0.30.1 ; python_version >= '3.9' --hash={hash} # why\n\tx==1!2.0+local.1 --hash={hash}"
        );
        let expected = format!(
            "click==8.1.7 --hash={hash} --hash={hash}\n\
             uvicorn[standard, extra]==0.30.1 ; python_version >= '3.9' --hash={hash}\n\
             x==1!2.0+local.1 --hash={hash}\n"
        );
        assert_eq!(written(&text), expected);
        assert!(read(&text).unwrap().has_hashes);
        assert_eq!(written("\n# nothing\n"), "");
        assert!(!read("a==1\n").unwrap().has_hashes);
    }

    #[test]
    fn every_other_line_is_refused_with_its_number() {
        let hash = format!("--hash=sha256:{}", "0".repeat(64));
        let digits = "0".repeat(64);
        for (line, problem) in [
            ("-r ../../etc/passwd", OPTION),
            ("--requirement=other.txt", OPTION),
            ("-c constraints.txt", OPTION),
            ("-e .", OPTION),
            ("-e git+https://example.com/x.git#egg=x", OPTION),
            ("--index-url https://evil.example/simple", OPTION),
            ("--extra-index-url=https://evil.example", OPTION),
            ("-f /wheels", OPTION),
            ("--trusted-host evil.example", OPTION),
            ("--pre", OPTION),
            ("git+https://example.com/x.git", OTHER_SOURCE),
            ("https://evil.example/x-1-py3-none-any.whl", OTHER_SOURCE),
            ("x @ https://evil.example/x-1-py3-none-any.whl", OTHER_SOURCE),
            ("x@file:///etc/passwd", OTHER_SOURCE),
            ("./x", OTHER_SOURCE),
            (".", OTHER_SOURCE),
            ("/etc/passwd", OTHER_SOURCE),
            ("dist/x-1.whl", OTHER_SOURCE),
            ("C:\\x", OTHER_SOURCE),
            ("x", NOT_PINNED),
            ("x>=1", NOT_PINNED),
            ("x==1.*", NOT_PINNED),
            ("x===1", NOT_PINNED),
            ("x==1,<2", NOT_PINNED),
            ("x==${VERSION}", NOT_PINNED),
            ("x[a==1", NOT_PINNED),
            ("x==", NOT_PINNED),
            ("==1", NOT_PINNED),
            ("x==1 ; ${MARKER}", BAD_MARKER),
            ("x==1 ;", BAD_MARKER),
            ("x==1 --global-option=build", BAD_HASH),
            ("x==1 --hash=md5:0", BAD_HASH),
            ("x==1 --hash=sha256:0", BAD_HASH),
            (&format!("x==1 {hash} --config-settings=a"), BAD_HASH),
            (&format!("x==1 --hash sha256:{digits}"), BAD_HASH),
            (&format!("x==1 {hash} https://evil.example"), BAD_HASH),
        ] {
            let error = read(&format!("# first\n\na==1\n{line}\n"))
                .err()
                .unwrap_or_else(|| panic!("{line}"));
            assert_eq!(error, LockFileError::entry(4, line, problem), "{line}");
        }
        let error = read(&format!("a==1 {hash}\nb==1 \\\n # x\nc==1\n")).err().unwrap();
        assert_eq!(error, LockFileError::entry(2, "b==1", NO_HASH));
        let error = read("a==1 \\\n  \\\n  -r x\n").err().unwrap();
        assert_eq!(error.to_string().split(' ').nth(1), Some("1:"));
    }
}
