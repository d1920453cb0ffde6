//! Ctrl-C and SIGTERM: the first ends the run in order, the second at once.

use std::io;

use tokio::signal::unix::{self, SignalKind};

use super::exit::Exit;

/// A wish to end, from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C, or SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// The signals this process was sent. While this lives they do not end the process.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    ///
    /// # Cancel safety
    ///
    /// A signal that arrives while nobody waits is told to the next who does.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

impl Signal {
    /// The exit code of a program that it ended.
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }

    /// What the program says when it comes.
    pub(super) fn announcement(self) -> &'static str {
        match self {
            Self::Interrupt => {
                "interrupted: nothing new starts, what runs has 10 s to finish; once more to stop at once"
            }
            Self::Terminate => "terminated: nothing new starts, what runs has 10 s to finish",
        }
    }
}
