//! Ctrl-C and SIGTERM: the first signal drains the run, the second aborts it.

use std::io;

use tokio::signal::unix::{self, SignalKind};

use super::exit::Exit;

/// A signal to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C, or SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// The signals sent to this process. While this value exists, they do not end the process.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Installs the signal handlers.
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

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// A signal that arrives while no call waits is returned by the next call.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

impl Signal {
    /// Returns the exit code after this signal.
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }

    /// Returns the message that announces the stop.
    pub(super) fn announcement(self) -> &'static str {
        match self {
            Self::Interrupt => {
                "interrupted: no new node starts, running nodes have 10 s to finish; press Ctrl-C \
                 again to stop at once"
            }
            Self::Terminate => "terminated: no new node starts, running nodes have 10 s to finish",
        }
    }
}
