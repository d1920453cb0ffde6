//! Checks the resources of the machine at the start: descriptors, memory and threads.
//!
//! If one of them runs out later, libraries panic or wait forever, and the allocator aborts the
//! process. So the program checks its limits first and refuses to start with too little.

use std::{fs::File, io, sync::RwLock, thread};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::cli::{error::CliError, exit::Exit};

/// A run without a sandbox has 14 files open: its streams, the database, signals and threads. A
/// command has 8 more.
const FILES_MIN: u64 = 32;

/// As many of them must be left, as a process may inherit open files from its parent.
const FILES_LEFT_MIN: usize = 22;

/// The address space holds the program itself, and two megabytes for the stack of each thread.
const ADDRESS_SPACE_BYTES_MIN: u64 = 128 << 20;

/// What the program allocates for a small run, with room for a model's reply.
const DATA_BYTES_MIN: u64 = 32 << 20;

/// Checks the limits of this process.
///
/// # Errors
///
/// Fails with the limit that is too low, and the remedy.
pub(crate) fn check_limits() -> Result<(), CliError> {
    let files = limit(Resource::RLIMIT_NOFILE).unwrap_or(RLIM_INFINITY);
    if files < FILES_MIN {
        let message = format!("this process may open only {files} files, and needs {FILES_MIN}");
        return Err(CliError::new(Exit::Unusable, message)
            .with_help("allow it more, such as with `ulimit -n 256`"));
    }
    let (left, refused) = files_left();
    if let Some(error) = refused {
        let message =
            format!("this process can open only {left} more files, and needs {FILES_LEFT_MIN}");
        return Err(CliError::new(Exit::Unusable, message).because(error).with_help(
            "allow it more, such as with `ulimit -n 256`, or start it without the open files of its parent",
        ));
    }
    let memory = [
        (Resource::RLIMIT_AS, ADDRESS_SPACE_BYTES_MIN, "address space", "v"),
        (Resource::RLIMIT_DATA, DATA_BYTES_MIN, "memory", "d"),
    ];
    for (resource, bytes_min, what, flag) in memory {
        let bytes = limit(resource).unwrap_or(RLIM_INFINITY);
        if bytes < bytes_min {
            let has = bytes >> 10;
            let needs = bytes_min >> 10;
            let message =
                format!("this process may use only {has} KiB of {what}, and needs {needs}");
            let help = format!("allow it more, such as with `ulimit -{flag} unlimited`");
            return Err(CliError::new(Exit::Unusable, message).with_help(help));
        }
    }
    Ok(())
}

/// Checks that this many threads can be started at once. A runtime panics when it cannot start one
/// of its threads.
///
/// # Errors
///
/// Fails with the error of the first thread that cannot be started.
pub(crate) fn check_threads(count: usize) -> io::Result<()> {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        // Threads wait at the gate, so that all of them exist at the same time.
        let closed = gate.write();
        let started: io::Result<Vec<_>> = (0..count)
            .map(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.read())))
            .collect();
        drop(closed);
        started.map(drop)
    })
}

/// Returns how many files can be opened, up to the required number, and the error that limits them.
fn files_left() -> (usize, Option<io::Error>) {
    let mut open = Vec::with_capacity(FILES_LEFT_MIN);
    while open.len() < FILES_LEFT_MIN {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => return (open.len(), Some(error)),
        }
    }
    (open.len(), None)
}

fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_has_enough() {
        assert!(check_threads(8).is_ok());
        assert!(check_limits().is_ok());
    }
}
