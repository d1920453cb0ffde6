//! Files below a folder, and no others, whatever a path or a link says.
//!
//! The kernel resolves the paths (`openat2` with `RESOLVE_BENEATH`): it follows links as long as
//! they stay below the folder, and there is no moment between a check and its use.

use std::{
    fs::{self, File, ReadDir},
    io::{self, Read},
    os::fd::AsRawFd,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};

use super::ToolError;

/// A folder that nothing is read outside of.
#[derive(Debug)]
pub(super) struct Beneath(File);

impl Beneath {
    pub(super) fn open(root: &Path) -> Result<Self, ToolError> {
        let failed = |error: io::Error| {
            ToolError::permanent(format!("the folder of the tools cannot be opened: {error}"))
        };
        let folder = File::open(root).map_err(failed)?;
        if !folder.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self(folder))
    }

    /// Opens a file or a folder below it.
    pub(super) fn file(&self, path: &str) -> Result<File, ToolError> {
        // Not blocking, so that a pipe that lies there does not hold the thread for ever.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&self.0, path, how).map(File::from).map_err(|errno| refusal(path, errno))
    }

    /// The names in a folder below it.
    pub(super) fn entries(&self, path: &str) -> Result<ReadDir, ToolError> {
        let folder = self.file(path)?;
        // The folder that is open, whatever its path has come to mean by now.
        let opened = format!("/proc/self/fd/{}", folder.as_raw_fd());
        fs::read_dir(opened)
            .map_err(|error| ToolError::permanent(format!("`{path}` is no folder: {error}")))
    }

    /// The first bytes of a regular file, at most so many, and how many there are.
    pub(super) fn read(&self, path: &str, bytes_max: u64) -> Result<(Vec<u8>, u64), ToolError> {
        let file = self.file(path)?;
        let failed = |error: io::Error| ToolError::permanent(format!("`{path}`: {error}"));
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ToolError::permanent(format!("`{path}` is no regular file")));
        }
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
        Ok((bytes, metadata.len()))
    }
}

fn refusal(path: &str, errno: Errno) -> ToolError {
    let shown: String = path.chars().take(200).collect();
    ToolError::permanent(match errno {
        Errno::EXDEV => format!("`{shown}` leads out of the folder of the tools"),
        Errno::ENOENT => format!("there is no `{shown}`"),
        Errno::ENOSYS => "this kernel cannot keep a tool inside a folder (openat2)".to_owned(),
        other => format!("`{shown}` cannot be opened: {}", other.desc()),
    })
}
