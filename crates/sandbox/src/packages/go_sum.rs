//! `go.sum`, and the `go.mod` beside it.
//!
//! `go.sum` has the hashes of all modules, and `go.mod` says which of them count. Both are written anew: only modules of a
//! proxy are left.

use std::collections::BTreeSet;

use super::lock_file::{LockFile, LockFileError, PACKAGES_MAX, PackageInstaller, text_of};
use crate::job::FixedFile;

/// The names of the files inside, below `/graphrun`.
const SUMS: &str = "go.sum";
const MANIFEST: &str = "go.mod";
/// The modules to install, each as `PATH@VERSION`.
const MODULES: &str = "modules";

/// The directives of `go.mod` that decide about modules, with the numbers of words that they can have.
const KEPT: [(&str, &[usize]); 5] =
    [("module", &[1]), ("go", &[1]), ("require", &[2]), ("exclude", &[2]), ("replace", &[3, 4, 5])];
/// Those that do not.
const LEFT_OUT: [&str; 5] = ["toolchain", "godebug", "retract", "tool", "ignore"];

const NO_SUM: &str = "is not a module, its version and a hash that begins with `h1:`";
const LOCAL: &str = "is replaced by a folder, and only modules of a proxy are installed";
const UNKNOWN: &str = "is no directive that is known here";
const BAD_WORD: &str = "has characters that no path and no version of a module has";

impl LockFile {
    /// Reads a `go.sum`, and the `go.mod` beside it.
    ///
    /// # Errors
    ///
    /// Fails with the first line that is no module of a proxy.
    pub fn go(sums: &[u8], manifest: &[u8]) -> Result<Self, LockFileError> {
        read(text_of(sums)?, text_of(manifest)?)
    }
}

fn read(sums: &str, manifest: &str) -> Result<LockFile, LockFileError> {
    let mut kept = Vec::new();
    let mut modules = BTreeSet::new();
    for (at, text) in sums.lines().enumerate().filter(|(_, it)| !it.trim().is_empty()) {
        let refuse = |problem| LockFileError::entry(at + 1, text.trim(), problem);
        let words: Vec<&str> = text.split_whitespace().collect();
        let [path, version, hash] = words[..] else { return Err(refuse(NO_SUM)) };
        let of_module = version.strip_suffix("/go.mod");
        let plain = of_module.unwrap_or(version);
        if !is_word(path) || !is_word(plain) || !plain.starts_with('v') || !is_hash(hash) {
            return Err(refuse(NO_SUM));
        }
        if of_module.is_none() {
            modules.insert(format!("{path}@{version}"));
        }
        if modules.len() > PACKAGES_MAX {
            return Err(LockFileError::TooManyPackages);
        }
        kept.push(format!("{path} {version} {hash}"));
    }
    let file = |path: &str, lines: Vec<String>| FixedFile {
        path: path.to_owned(),
        content: lines.into_iter().map(|it| it + "\n").collect::<String>().into_bytes(),
    };
    Ok(LockFile {
        installer: PackageInstaller::Go,
        package_count: modules.len(),
        has_hashes: true,
        scopes: BTreeSet::new(),
        files: vec![
            file(SUMS, kept),
            file(MANIFEST, read_manifest(manifest)?),
            file(MODULES, modules.into_iter().collect()),
        ],
    })
}

/// Returns the directives of `go.mod` that decide about modules, one in each line.
fn read_manifest(text: &str) -> Result<Vec<String>, LockFileError> {
    let mut kept = Vec::new();
    let mut block = None;
    for (at, text) in text.lines().enumerate() {
        let line = text.split("//").next().unwrap_or_default();
        let refuse =
            |problem| LockFileError::entry(at + 1, &format!("go.mod: {}", line.trim()), problem);
        let mut words: Vec<&str> = line.split_whitespace().collect();
        match (block, &words[..]) {
            (_, []) => continue,
            (Some(_), [")"]) => {
                block = None;
                continue;
            }
            (None, [verb, "("]) => {
                block = Some(*verb);
                if !is_known(verb) {
                    return Err(refuse(UNKNOWN));
                }
                continue;
            }
            (Some(verb), _) => words.insert(0, verb),
            (None, _) => {}
        }
        if LEFT_OUT.contains(&words[0]) {
            continue;
        }
        let counts = KEPT.iter().find(|it| it.0 == words[0]).map(|it| it.1);
        if !counts.is_some_and(|it| it.contains(&(words.len() - 1))) {
            return Err(refuse(UNKNOWN));
        }
        if words[0] == "replace" {
            let target = words.iter().position(|it| *it == "=>").map(|it| &words[it + 1..]);
            let Some([path, _]) = target else {
                return Err(refuse(if target.is_some() { LOCAL } else { UNKNOWN }));
            };
            if path.starts_with(['.', '/']) {
                return Err(refuse(LOCAL));
            }
        }
        if !words[1..].iter().all(|it| *it == "=>" || is_word(it)) {
            return Err(refuse(BAD_WORD));
        }
        kept.push(words.join(" "));
    }
    Ok(kept)
}

fn is_known(verb: &str) -> bool {
    LEFT_OUT.contains(&verb) || KEPT.iter().any(|it| it.0 == verb)
}

/// Returns whether a text has only characters of paths and versions of modules.
fn is_word(text: &str) -> bool {
    let is_of_word = |it: char| it.is_ascii_alphanumeric() || "-._~/+".contains(it);
    text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.chars().all(is_of_word)
}

fn is_hash(text: &str) -> bool {
    let is_base64 = |it: char| it.is_ascii_alphanumeric() || "+/=".contains(it);
    text.strip_prefix("h1:").is_some_and(|it| it.len() == 44 && it.chars().all(is_base64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    fn content(lock: &LockFile, at: usize) -> &str {
        str::from_utf8(&lock.files[at].content).unwrap()
    }

    #[test]
    fn only_what_decides_about_modules_is_left() {
        let sums = format!(
            "example.com/a v1.0.0 {HASH}\nexample.com/a v1.0.0/go.mod {HASH}\n\n\
             example.com/b/v2 v2.0.0-2024+incompatible/go.mod {HASH}\n"
        );
        let manifest = "module example.com/app // the app\n\ngo 1.21\ntoolchain go1.22\n\nrequire (\n\
                        \texample.com/a v1.0.0 // indirect\n)\nretract (\n\tv1.0.0\n)\n\
                        replace example.com/c v1.0.0 => example.com/d v1.1.0\n";
        let lock = read(&sums, manifest).unwrap();
        let kept = "module example.com/app\ngo 1.21\nrequire example.com/a v1.0.0\n\
                    replace example.com/c v1.0.0 => example.com/d v1.1.0\n";
        assert_eq!(content(&lock, 1), kept);
        assert_eq!(content(&lock, 0).lines().count(), 3);
        assert_eq!((content(&lock, 2), lock.package_count), ("example.com/a@v1.0.0\n", 1));
        assert_eq!(read("", "module a\n").unwrap().package_count, 0);
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for (line, problem) in [
            (format!("../a v1.0.0 {HASH}"), NO_SUM),
            (format!("example.com/a 1.0.0 {HASH}"), NO_SUM),
            (format!("example.com/a v1.0.0;x {HASH}"), NO_SUM),
            (format!("-x v1.0.0 {HASH}"), NO_SUM),
            ("example.com/a v1.0.0 h1:x".to_owned(), NO_SUM),
            ("example.com/a v1.0.0".to_owned(), NO_SUM),
        ] {
            let sums = format!("example.com/g v1.0.0 {HASH}\n{line}\n");
            let error = read(&sums, "module a\n").err().unwrap_or_else(|| panic!("{line}"));
            assert_eq!(error, LockFileError::entry(2, &line, problem), "{line}");
        }
        for (line, problem) in [
            ("replace example.com/a => ./a", LOCAL),
            ("replace example.com/a v1.0.0 => ../a", LOCAL),
            ("replace example.com/a => /a v1.0.0", LOCAL),
            ("replace a b c d", UNKNOWN),
            ("require example.com/a", UNKNOWN),
            ("exec true", UNKNOWN),
            ("unknown (", UNKNOWN),
            ("require \"example.com/a\" v1.0.0", BAD_WORD),
            ("require -x v1.0.0", BAD_WORD),
        ] {
            let error = read("", &format!("module a\n{line}\n")).err();
            let error = error.unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                error,
                LockFileError::entry(2, &format!("go.mod: {line}"), problem),
                "{line}"
            );
        }
    }
}
