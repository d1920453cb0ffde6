//! `package-lock.json`, in its versions 2 and 3.
//!
//! npm reads the lock together with `package.json`, and installs nothing if they disagree. Both are written anew: the
//! manifest has only dependencies, and so no scripts, and the lock keeps no address of a registry that it chose.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::lock_file::{LockFile, LockFileError, PACKAGES_MAX, PackageInstaller, line_at, text_of};
use crate::job::FixedFile;

/// The names of the files inside, below `/graphrun`.
const LOCK: &str = "package-lock.json";
const MANIFEST: &str = "package.json";

/// The only registry whose addresses stay: npm replaces its name by that of the registry that the operator chose. Other
/// addresses are left out, and npm asks the registry.
const PUBLIC_REGISTRY: &str = "https://registry.npmjs.org/";

/// The keys of `package.json` that decide which packages are installed.
const MANIFEST_KEYS: [&str; 7] = [
    "name",
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "overrides",
];

const OUTSIDE: &str =
    "is not below `node_modules`: workspaces and folders of the repository are not installed";
const LINK: &str = "is a link to a folder, and only packages of a registry are installed";
const NO_VERSION: &str = "has no plain `version`, and only packages of a registry are installed";
const OTHER_SOURCE: &str = "is resolved to something else than an `https` address of a registry";
const NO_HASH: &str =
    "has no `integrity` with sha256, sha384 or sha512; let npm write the lock file again";
const NO_OBJECT: &str = "is no object";

/// The parts of the file that are read. The rest is left out.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lock<'a> {
    lockfile_version: Option<Value>,
    /// In the text of the file, so that an entry has a line.
    #[serde(borrow)]
    packages: Option<BTreeMap<String, &'a RawValue>>,
}

impl LockFile {
    /// Reads a `package-lock.json`, and the `package.json` beside it.
    ///
    /// # Errors
    ///
    /// Fails with the first entry that is no package of a registry.
    pub fn npm(lock: &[u8], manifest: &[u8]) -> Result<Self, LockFileError> {
        read(text_of(lock)?, text_of(manifest)?)
    }
}

fn read(text: &str, manifest: &str) -> Result<LockFile, LockFileError> {
    let lock: Lock<'_> = serde_json::from_str(text).map_err(|it| form("package-lock.json", &it))?;
    let version = lock.lockfile_version.as_ref().and_then(Value::as_u64);
    let (Some(2 | 3), Some(packages)) = (version, lock.packages) else {
        let problem =
            "`lockfileVersion` is not 2 or 3; let npm 7 or later write the lock file again";
        return Err(LockFileError::Form { line: 1, problem: problem.to_owned() });
    };
    if packages.len() > PACKAGES_MAX {
        return Err(LockFileError::TooManyPackages);
    }
    let mut kept = Map::new();
    for (path, raw) in &packages {
        let offset = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        let refuse =
            |problem| LockFileError::entry(line_at(text.as_bytes(), offset), path, problem);
        let Ok(Value::Object(entry)) = serde_json::from_str(raw.get()) else {
            return Err(refuse(NO_OBJECT));
        };
        let entry = if path.is_empty() { entry } else { check(path, entry).map_err(refuse)? };
        kept.insert(path.clone(), Value::Object(entry));
    }
    let package_count = kept.keys().filter(|it| !it.is_empty()).count();
    let lock = json!({ "lockfileVersion": 3, "requires": true, "packages": &kept });
    let file = |path: &str, content: &Value| FixedFile {
        path: path.to_owned(),
        content: content.to_string().into_bytes(),
    };
    let files = vec![file(LOCK, &lock), file(MANIFEST, &read_manifest(manifest)?)];
    let installer = PackageInstaller::Npm;
    let scopes = kept.keys().filter_map(|it| scope_of(it)).collect();
    Ok(LockFile { installer, package_count, has_hashes: true, scopes, files })
}

/// Checks the entry of a package, and returns what npm reads of it.
fn check(path: &str, mut entry: Map<String, Value>) -> Result<Map<String, Value>, &'static str> {
    if !is_below_node_modules(path) {
        return Err(OUTSIDE);
    }
    if entry.get("link").is_some_and(|it| *it != json!(false)) {
        return Err(LINK);
    }
    let is_version = |version: &str| {
        let is_of_version = |it: char| it.is_ascii_alphanumeric() || ".+-".contains(it);
        version.starts_with(|it: char| it.is_ascii_digit()) && version.chars().all(is_of_version)
    };
    if !entry.get("version").and_then(Value::as_str).is_some_and(is_version) {
        return Err(NO_VERSION);
    }
    match entry.get("resolved") {
        None => {}
        Some(Value::String(address)) if address.starts_with(PUBLIC_REGISTRY) => {}
        Some(Value::String(address)) if address.starts_with("https://") => {
            entry.shift_remove("resolved");
        }
        Some(_) => return Err(OTHER_SOURCE),
    }
    // A bundled package is in the archive of another one, which has the hash.
    let is_bundled = entry.get("inBundle") == Some(&json!(true)) && !entry.contains_key("resolved");
    if !is_bundled && !entry.get("integrity").and_then(Value::as_str).is_some_and(is_integrity) {
        return Err(NO_HASH);
    }
    entry.shift_remove("hasInstallScript");
    Ok(entry)
}

/// Returns whether a path consists of `node_modules/NAME` and `node_modules/@SCOPE/NAME`.
fn is_below_node_modules(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_name = |part: Option<&str>| {
        let is_of_name = |it: char| it.is_ascii_alphanumeric() || "._-~".contains(it);
        part.is_some_and(|name| {
            !name.starts_with('.') && !name.is_empty() && name.chars().all(is_of_name)
        })
    };
    loop {
        match parts.next() {
            None => return true,
            Some("node_modules") => {}
            Some(_) => return false,
        }
        let name = parts.next();
        let is_package = match name.and_then(|it| it.strip_prefix('@')) {
            Some(scope) => is_name(Some(scope)) && is_name(parts.next()),
            None => is_name(name),
        };
        if !is_package {
            return false;
        }
    }
}

/// Returns the scope of the package at a path.
fn scope_of(path: &str) -> Option<String> {
    let name = path.rsplit_once("node_modules/")?.1;
    name.starts_with('@').then(|| name.split('/').next().unwrap_or_default().to_owned())
}

/// Returns whether a text has hashes, separated by spaces, and one of them is strong. npm checks the strongest.
fn is_integrity(text: &str) -> bool {
    let is_strong = |integrity: &str| {
        let hash =
            ["sha256-", "sha384-", "sha512-"].iter().find_map(|name| integrity.strip_prefix(name));
        let is_base64 = |it: char| it.is_ascii_alphanumeric() || "+/=".contains(it);
        hash.is_some_and(|it| it.len() >= 43 && it.chars().all(is_base64))
    };
    text.split(' ').any(is_strong)
}

fn read_manifest(text: &str) -> Result<Value, LockFileError> {
    let manifest: Map<String, Value> =
        serde_json::from_str(text).map_err(|it| form("package.json", &it))?;
    let is_kept = |it: &(String, Value)| MANIFEST_KEYS.contains(&it.0.as_str());
    Ok(Value::Object(manifest.into_iter().filter(is_kept).collect()))
}

fn form(file: &str, error: &serde_json::Error) -> LockFileError {
    let problem = format!("`{file}` cannot be read: {error}");
    LockFileError::Form { line: error.line().max(1), problem }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HASH: &str = "sha512-6FlzubTLZG3J2a/NVCAleEhjzq5oxgHyaCU9yYXvcLsvoVaHJq/s5xXI6/XXP6tz7R9xAOtHnSO/tXtF3WRTlA==";

    fn lock(path: &str, entry: &str) -> String {
        let good =
            format!("\"node_modules/good\": {{\"version\": \"1.0.0\", \"integrity\": \"{HASH}\"}}");
        format!(
            "{{\n\"lockfileVersion\": 3,\n\"packages\": {{\n\"\": {{\"dependencies\": {{}}}},\n{good},\n{path:?}:\n{entry}\n}}\n}}"
        )
    }

    fn content(lock: &LockFile, at: usize) -> Value {
        serde_json::from_slice(&lock.files[at].content).unwrap()
    }

    #[test]
    fn scripts_and_addresses_of_other_registries_are_left_out() {
        let entry = |more: &str| {
            format!("{{\"version\": \"1.2.3-rc.1\", \"integrity\": \"sha1-x {HASH}\"{more}}}")
        };
        let manifest = "{\"name\": \"x\", \"scripts\": {\"postinstall\": \"evil\"}, \"overrides\": {\"a\": \"1\"}, \
                        \"workspaces\": [\"a\"], \"dependencies\": {\"a\": \"^1\"}}";
        let text = lock(
            "node_modules/@s/a/node_modules/b.js",
            &entry(
                ", \"resolved\": \"https://mirror.example/b.tgz\", \"hasInstallScript\": true, \"bin\": {\"b\": \"b.js\"}",
            ),
        );
        let read_lock = read(&text, manifest).unwrap();
        let found = &content(&read_lock, 0)["packages"]["node_modules/@s/a/node_modules/b.js"];
        let integrity = format!("sha1-x {HASH}");
        assert_eq!(
            found,
            &json!({"version": "1.2.3-rc.1", "integrity": integrity, "bin": {"b": "b.js"}})
        );
        let expected = json!({"name": "x", "overrides": {"a": "1"}, "dependencies": {"a": "^1"}});
        assert_eq!((content(&read_lock, 1), read_lock.package_count), (expected, 2));

        let public = "https://registry.npmjs.org/b/-/b-1.tgz";
        let text = lock("node_modules/b", &entry(&format!(", \"resolved\": \"{public}\"")));
        let read_lock = read(&text, "{}").unwrap();
        assert_eq!(content(&read_lock, 0)["packages"]["node_modules/b"]["resolved"], public);
        assert_eq!(read_lock.scopes, BTreeSet::new());
        let text = lock("node_modules/b/node_modules/@s/a", &entry(""));
        assert_eq!(read(&text, "{}").unwrap().scopes, ["@s".to_owned()].into());
        let bundled = "{\"version\": \"1.0.0\", \"inBundle\": true}";
        assert!(read(&lock("node_modules/a/node_modules/b", bundled), "{}").is_ok());
    }

    #[test]
    fn entries_that_are_no_packages_of_a_registry_are_refused() {
        let integrity = format!("\"integrity\": \"{HASH}\"");
        let with = |more: &str| format!("{{\"version\": \"1.0.0\", {integrity}{more}}}");
        let resolved = |address: &str| with(&format!(", \"resolved\": {address:?}"));
        for (path, entry, problem) in [
            ("packages/a", with(""), OUTSIDE),
            ("../a", with(""), OUTSIDE),
            ("/etc", with(""), OUTSIDE),
            ("node_modules", with(""), OUTSIDE),
            ("node_modules/..", with(""), OUTSIDE),
            ("node_modules/.bin", with(""), OUTSIDE),
            ("node_modules/@s", with(""), OUTSIDE),
            ("node_modules/@/a", with(""), OUTSIDE),
            ("node_modules/a/b", with(""), OUTSIDE),
            ("node_modules/a//", with(""), OUTSIDE),
            ("node_modules/a\\b", with(""), OUTSIDE),
            ("node_modules/a", "{\"resolved\": \"../a\", \"link\": true}".to_owned(), LINK),
            ("node_modules/a", format!("{{{integrity}}}"), NO_VERSION),
            ("node_modules/a", format!("{{\"version\": \"file:../a\", {integrity}}}"), NO_VERSION),
            (
                "node_modules/a",
                format!("{{\"version\": \"git+ssh://x\", {integrity}}}"),
                NO_VERSION,
            ),
            ("node_modules/a", resolved("file:../a.tgz"), OTHER_SOURCE),
            ("node_modules/a", resolved("git+ssh://git@example.com/a.git#1"), OTHER_SOURCE),
            ("node_modules/a", resolved("git+https://example.com/a.git"), OTHER_SOURCE),
            ("node_modules/a", resolved("http://registry.npmjs.org/a.tgz"), OTHER_SOURCE),
            ("node_modules/a", with(", \"resolved\": true"), OTHER_SOURCE),
            ("node_modules/a", "{\"version\": \"1.0.0\"}".to_owned(), NO_HASH),
            (
                "node_modules/a",
                "{\"version\": \"1.0.0\", \"integrity\": \"sha1-x\"}".to_owned(),
                NO_HASH,
            ),
            (
                "node_modules/a",
                "{\"version\": \"1.0.0\", \"integrity\": \"sha512-x\"}".to_owned(),
                NO_HASH,
            ),
            ("node_modules/a", "[]".to_owned(), NO_OBJECT),
        ] {
            let error =
                read(&lock(path, &entry), "{}").err().unwrap_or_else(|| panic!("{path} {entry}"));
            assert_eq!(error, LockFileError::entry(7, path, problem), "{entry}");
        }
    }

    #[test]
    fn files_of_another_form_are_refused_with_a_line() {
        let error = |lock: &str, manifest: &str| read(lock, manifest).err().unwrap().to_string();
        assert_eq!(
            error("{\"lockfileVersion\": 1, \"dependencies\": {}}", "{}"),
            "line 1: `lockfileVersion` is not 2 or 3; let npm 7 or later write the lock file again"
        );
        assert!(
            error("{\n\"packages\": }", "{}")
                .starts_with("line 2: `package-lock.json` cannot be read: ")
        );
        let lock = "{\"lockfileVersion\": 2, \"packages\": {}}";
        assert!(
            error(lock, "{\n\n\"a\" 1}").starts_with("line 3: `package.json` cannot be read: ")
        );
        assert!(read(lock, "{}").is_ok());
    }
}
