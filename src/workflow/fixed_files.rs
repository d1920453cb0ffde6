//! Reads the fixed tests of a person: files beneath the folder of a workflow, and no others.
//!
//! The kernel resolves the paths and follows no link out of the folder, and there is no moment between a check and its use.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::fd::AsRawFd as _,
    path::Path,
};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::{
    data_limit::DataLimit,
    sandbox::{FixedFile, check_path},
};

/// Most files of one path. Each takes a descriptor when the sandbox starts.
const FILES_MAX: usize = 200;

/// Reads a file, or all files of a folder and the folders in it. Hidden ones and `__pycache__` are left out.
///
/// # Errors
/// Says why a file cannot be read or is not accepted, as a part of a sentence.
pub(super) fn read_fixed(folder: &Path, path: &str) -> Result<Vec<FixedFile>, String> {
    let root = File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        .map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    let mut total = 0;
    let mut open = vec![path.trim_end_matches('/').to_owned()];
    while let Some(path) = open.pop() {
        check_path(&path).map_err(|error| format!("`{path}`: {error}"))?;
        let file = open_beneath(&root, &path).map_err(|error| format!("`{path}`: {error}"))?;
        if file.metadata().map_err(|error| error.to_string())?.is_dir() {
            open.extend(entries(&file, &path).map_err(|error| format!("`{path}`: {error}"))?);
        } else {
            let content = read_file(file).map_err(|error| format!("`{path}`: {error}"))?;
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

/// Opens a file or folder beneath another.
fn open_beneath(root: &File, path: &str) -> io::Result<File> {
    // Not blocking, so that a pipe that lies there does not hold the thread.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    Ok(File::from(openat2(root, path, how)?))
}

/// The paths of what lies in an open folder.
fn entries(folder: &File, path: &str) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && name != "__pycache__" {
            paths.push(format!("{path}/{name}"));
        }
    }
    Ok(paths)
}

fn read_file(file: File) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    file.take(DataLimit::FileBytes.value().saturating_add(1)).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        assert_eq!(read_fixed(folder.path(), "tests/"), Ok(vec![file("tests/test_a.py", "a")]));
        assert_eq!(read_fixed(folder.path(), "data.json"), Ok(vec![file("data.json", "{}")]));
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let (folder, outside) = (folder(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), folder.path().join("tests/link.py")).unwrap();
        for path in ["out", "out/secret", "tests", "../x", "/etc/passwd", "missing", ""] {
            assert!(read_fixed(folder.path(), path).is_err(), "{path}");
        }
    }
}
