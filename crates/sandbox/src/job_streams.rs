//! The streams between a program in the sandbox and a caller that talks with it while it works.

use std::{
    io::{self, PipeReader, PipeWriter},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::net::unix::pipe::{Receiver, Sender};

/// The program's ends of two pipes. The first job with them takes them, and they are closed with its program.
///
/// The kernel makes a program wait that writes faster than the caller reads, so nothing is collected here.
#[derive(Debug, Clone)]
pub struct JobStreams(Arc<Mutex<Option<Ends>>>);

/// The ends of a program: of its input and of its output.
pub(super) type Ends = (PipeReader, PipeWriter);

impl JobStreams {
    /// Makes the ends of a program, and those of its caller: one to write to it, and one to read from it.
    ///
    /// # Errors
    ///
    /// Fails when this process has no descriptor left.
    pub fn new() -> io::Result<(Self, Sender, Receiver)> {
        let (inside, to) = io::pipe()?;
        let (from, outside) = io::pipe()?;
        let to = Sender::from_owned_fd(OwnedFd::from(to))?;
        let from = Receiver::from_owned_fd(OwnedFd::from(from))?;
        Ok((Self(Arc::new(Mutex::new(Some((inside, outside))))), to, from))
    }

    pub(super) fn take(&self) -> Option<Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
