//! Delivers generated files to a folder of the host.
//!
//! The folder may hold an earlier delivery, or anything else that grew there since. Every step is taken relative to an
//! open folder and follows no symbolic link, so nothing that lies in the folder can lead a write out of it.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat},
    sys::stat::{Mode, SFlag, fstatat, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};
use thiserror::Error;

use super::{
    job::SourceFile,
    path::{FilesRefused, check_files},
};

/// Why files were not delivered. Those before the failing one are in place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The files are not acceptable; nothing was written.
    #[error("the files are refused")]
    Refused(#[from] FilesRefused),
    /// The folder itself cannot be made or opened.
    #[error("cannot open the folder `{}`", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// In the way lies a symbolic link, a folder in the place of a file, or something stranger; it was left alone.
    #[error("`{}` is in the way: it is no regular {expected}", path.display())]
    InTheWay {
        /// What is in the way.
        path: PathBuf,
        /// What should be there: a file or a folder.
        expected: &'static str,
    },
    /// A file could not be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file, or a folder on the way to it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes generated files below `root`, which is made if it does not exist, and returns their paths in order.
///
/// A regular file of the same name is replaced as a whole, so to deliver twice is harmless, also when the first time was
/// cut short by the end of the process. What is there and is not named stays. Symbolic links below `root` are neither
/// followed nor replaced; `root` itself is the caller's word. Deliveries to one folder wait for each other.
///
/// # Errors
/// Everything is checked before the first write: unacceptable names deliver nothing.
pub fn write_files(root: &Path, files: &[SourceFile]) -> Result<Vec<PathBuf>, WriteError> {
    check_files(files)?;
    let failed = |source| WriteError::Root { path: root.to_owned(), source };
    fs::create_dir_all(root).map_err(failed)?;
    let folder = File::open(root).map_err(failed)?;
    // Where the file system knows no locks, whoever delivers must see to it that nobody else does.
    let _ = folder.lock();
    let folder = OwnedFd::from(folder);
    files.iter().map(|file| write_file(root, &folder, file)).collect()
}

fn write_file(root: &Path, folder: &OwnedFd, file: &SourceFile) -> Result<PathBuf, WriteError> {
    let target = root.join(&file.path);
    let (parents, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let mut parent =
        folder.as_fd().try_clone_to_owned().map_err(|source| write_error(&target, source))?;
    let mut path = root.to_owned();
    for component in parents.split('/').filter(|component| !component.is_empty()) {
        path.push(component);
        parent = enter(&parent, component, &path)?;
    }
    // Asked first for the sake of the message: the rename below would replace a link, and never follow it.
    match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG => {
            return Err(WriteError::InTheWay { path: target, expected: "file" });
        }
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(error) => return Err(write_error(&target, error.into())),
    }
    replace(&parent, name, file.content.as_bytes())
        .map_err(|source| write_error(&target, source))?;
    Ok(target)
}

/// Opens a folder inside a folder, and makes it if it is not there.
fn enter(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, WriteError> {
    match mkdirat(parent, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(write_error(path, error.into())),
    }
    open(parent, name, OFlag::O_DIRECTORY | OFlag::O_RDONLY).map_err(|error| match error {
        Errno::ELOOP | Errno::ENOTDIR => {
            WriteError::InTheWay { path: path.to_owned(), expected: "folder" }
        }
        error => write_error(path, error.into()),
    })
}

/// Puts a file with this content in the place of whatever has the name: a reader sees the old file or the new one.
fn replace(parent: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    // The name is one that generated files may not have, and always the same: what a killed process left is found, and
    // nobody else is at work on it, since the folder is locked.
    let temporary = temporary_name(name);
    // Mostly there is nothing; if it cannot be removed, making the new one fails and says why.
    let _ = unlinkat(parent, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    let written = open(parent, &temporary, OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY)
        .map_err(io::Error::from)
        .and_then(|descriptor| {
            let mut file = File::from(descriptor);
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| renameat(parent, temporary.as_str(), parent, name).map_err(io::Error::from));
    if written.is_err() {
        // It may not exist; the first error is the one to report.
        let _ = unlinkat(parent, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written
}

/// What a file is called until it is whole.
fn temporary_name(name: &str) -> String {
    format!(".graphrun-{name}.tmp")
}

fn open(parent: &OwnedFd, name: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    let mut how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    if flags.contains(OFlag::O_CREAT) {
        how = how.mode(Mode::from_bits_truncate(0o644));
    }
    openat2(parent, name, how)
}

fn write_error(path: &Path, source: io::Error) -> WriteError {
    WriteError::Write { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn file(path: &str, content: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), content: content.to_owned() }
    }

    #[test]
    fn files_and_their_folders_are_written() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("new/out");
        let written = write_files(&out, &[file("a.py", "1"), file("src/deep/b.py", "2")]).unwrap();
        assert_eq!(written, [out.join("a.py"), out.join("src/deep/b.py")]);
        assert_eq!(fs::read_to_string(out.join("src/deep/b.py")).unwrap(), "2");
    }

    #[test]
    fn delivering_twice_replaces_files_and_leaves_others_alone() {
        let root = tempfile::tempdir().unwrap();
        write_files(root.path(), &[file("src/a.py", "old and longer")]).unwrap();
        fs::write(root.path().join("mine.txt"), "kept").unwrap();
        let before = fs::metadata(root.path().join("src/a.py")).unwrap().ino();
        write_files(root.path(), &[file("src/a.py", "new")]).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("src/a.py")).unwrap(), "new");
        assert_ne!(
            fs::metadata(root.path().join("src/a.py")).unwrap().ino(),
            before,
            "was written in place"
        );
        assert_eq!(fs::read_to_string(root.path().join("mine.txt")).unwrap(), "kept");
        let names: Vec<_> = fs::read_dir(root.path().join("src"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["a.py"], "a temporary file was left");
    }

    #[test]
    fn what_a_killed_delivery_left_is_gone_after_the_next() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("src")).unwrap();
        let left = root.path().join("src").join(temporary_name("a.py"));
        fs::write(&left, "cut sho").unwrap();
        write_files(root.path(), &[file("src/a.py", "whole")]).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("src/a.py")).unwrap(), "whole");
        assert!(!left.exists());
    }

    #[test]
    fn a_link_in_the_place_of_an_unfinished_file_is_removed_and_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, root.path().join(temporary_name("x"))).unwrap();
        write_files(root.path(), &[file("x", "new")]).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(root.path().join("x")).unwrap(), "new");
    }

    #[test]
    fn deliveries_to_one_folder_wait_for_each_other() {
        let root = tempfile::tempdir().unwrap();
        let contents = ["1".repeat(100_000), "2".repeat(100_000)];
        std::thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| {
                    for _ in 0..20 {
                        write_files(root.path(), &[file("x", content)]).unwrap();
                    }
                });
            }
        });
        assert!(contents.contains(&fs::read_to_string(root.path().join("x")).unwrap()));
    }

    #[test]
    fn a_planted_link_leads_no_write_out_of_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("victim"), "untouched").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(outside.path().join("victim"), root.path().join("file")).unwrap();
        symlink(outside.path(), root.path().join("folder")).unwrap();
        symlink(outside.path().join("nothing"), root.path().join("dangling")).unwrap();
        symlink("real", root.path().join("inner")).unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        for path in ["file", "folder/victim", "folder/new", "dangling", "inner/x"] {
            let error = write_files(root.path(), &[file(path, "evil")]).unwrap_err();
            assert!(matches!(error, WriteError::InTheWay { .. }), "{path}: {error}");
        }
        assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "untouched");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_hard_link_is_replaced_and_not_written_through() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        fs::hard_link(&victim, root.path().join("x")).unwrap();
        write_files(root.path(), &[file("x", "new")]).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    }

    #[test]
    fn a_pipe_or_a_folder_in_the_way_is_reported() {
        let root = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&root.path().join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        for path in ["pipe", "folder", "pipe/x"] {
            let error = write_files(root.path(), &[file(path, "x")]).unwrap_err();
            assert!(matches!(error, WriteError::InTheWay { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn one_unacceptable_name_keeps_all_files_out() {
        let root = tempfile::tempdir().unwrap();
        assert!(write_files(root.path(), &[file("ok", "x"), file("../evil", "x")]).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
