//! Reads the fixed tests and the scripts of a person: files beneath the folder of a workflow, and no others.

use std::path::Path;

use graphrun_core::diagnostic::Diagnostic;
use graphrun_guard::{
    beneath::{BeneathError, Folder},
    data_limit::DataLimit,
};
use graphrun_sandbox::{FixedFile, SourceFile, check_path};

use crate::source::{reader::Yaml, report::Report};

/// The most files of one path. Each takes a descriptor when the sandbox starts.
const FILES_MAX: usize = 200;

/// Reads a file, or all files of a folder and its subfolders. Hidden files and `__pycache__` are
/// left out.
///
/// # Errors
///
/// Fails with the reason, as a part of a sentence, if a file cannot be read or is not accepted.
pub fn read_fixed(root: &Folder, path: &str) -> Result<Vec<FixedFile>, String> {
    let mut files = Vec::new();
    let mut total = 0;
    let mut open = vec![path.trim_end_matches('/').to_owned()];
    while let Some(path) = open.pop() {
        let refused = |error: BeneathError| format!("`{path}`: {error}");
        check_path(&path).map_err(|error| format!("`{path}`: {error}"))?;
        if root.open_folder(Path::new(&path)).is_ok() {
            open.extend(entries(root, &path).map_err(refused)?);
        } else {
            let limit = DataLimit::FileBytes.value().saturating_add(1);
            let (content, _) = root.read_start(Path::new(&path), limit).map_err(refused)?;
            total += content.len() as u64;
            files.push(FixedFile { path, content });
        }
        DataLimit::FileBytes
            .check(total)
            .map_err(|reached| format!("together they are {reached}"))?;
        if files.len() + open.len() > FILES_MAX {
            return Err(format!("there are more than {FILES_MAX} files"));
        }
    }
    if files.is_empty() {
        return Err("the folder has no files".to_owned());
    }
    Ok(files)
}

/// Reads the scripts of a command. A text of the state never becomes one: their paths are constants.
pub(crate) fn read_scripts(
    report: &mut Report,
    folder: &Result<Folder, BeneathError>,
    yaml: &Yaml,
) -> Vec<SourceFile> {
    let mut scripts: Vec<SourceFile> = Vec::new();
    for word in report.words(yaml, "`scripts`") {
        let read = match folder {
            Ok(folder) => read_fixed(folder, &word.text),
            Err(error) => Err(error.to_string()),
        };
        let as_text = |FixedFile { path, content }| match String::from_utf8(content) {
            Ok(content) => Ok(SourceFile { path, content }),
            Err(_) => Err(format!("`{path}`: it is not UTF-8")),
        };
        let read = read.and_then(|it| it.into_iter().map(as_text).collect::<Result<Vec<_>, _>>());
        match read {
            Ok(read) => scripts.extend(read),
            Err(reason) => {
                let message = format!("the script `{}` cannot be read: {reason}", word.text);
                let span = report.span(&word.range);
                let diagnostic = Diagnostic::error("GR052", message).at(span, "named here");
                let help = "name a file or a folder in the folder of the workflow";
                report.push(diagnostic.help(help));
            }
        }
    }
    scripts.sort_by(|one, other| one.path.cmp(&other.path));
    scripts.dedup_by(|one, other| one.path == other.path);
    scripts
}

/// Returns the paths of the entries of a folder.
fn entries(root: &Folder, path: &str) -> Result<Vec<String>, BeneathError> {
    let mut paths = Vec::new();
    for entry in root.entries(Path::new(path))? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && name != "__pycache__" {
            paths.push(format!("{path}/{name}"));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("tests/__pycache__")).unwrap();
        for (path, text) in [
            ("tests/test_a.py", "a"),
            ("tests/.hidden", "h"),
            ("tests/__pycache__/a.pyc", "c"),
            ("data.json", "{}"),
        ] {
            fs::write(folder.path().join(path), text).unwrap();
        }
        folder
    }

    #[test]
    fn folders_are_read_with_the_files_in_them() {
        let folder = folder();
        let file = |path: &str, text: &str| FixedFile { path: path.into(), content: text.into() };
        assert_eq!(
            read_fixed(&Folder::open(folder.path()).unwrap(), "tests/"),
            Ok(vec![file("tests/test_a.py", "a")])
        );
        assert_eq!(
            read_fixed(&Folder::open(folder.path()).unwrap(), "data.json"),
            Ok(vec![file("data.json", "{}")])
        );
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = folder();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), folder.path().join("tests/link.py")).unwrap();
        for path in ["out", "out/secret", "tests", "../x", "/etc/passwd", "missing", ""] {
            assert!(read_fixed(&Folder::open(folder.path()).unwrap(), path).is_err(), "{path}");
        }
    }
}
