//! Ctrl-C, SIGTERM and SIGHUP: the first signal drains the run, the second aborts it.

use std::{fs, io};

use tokio::signal::unix::{self, SignalKind};

use crate::cli::exit::Exit;

/// A signal to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C, or SIGINT.
    Interrupt,
    /// SIGTERM, or SIGHUP: the terminal was closed.
    Terminate,
}

/// The signals sent to this process. While this value exists, they do not end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    /// None if the program was started so that it outlives its terminal, as `nohup` does.
    hangup: Option<unix::Signal>,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        let hangup = SignalKind::hangup();
        // A handler would replace the request to ignore the signal.
        let hangup = (!is_ignored(hangup)).then(|| unix::signal(hangup)).transpose()?;
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// A signal that arrives while no call waits is returned by the next call.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            () = received(self.hangup.as_mut()) => Signal::Terminate,
        }
    }
}

/// Lets a write that exceeds the largest file of this process (`ulimit -f`) fail, like one on a full disk. Otherwise its
/// signal ends the process. Programs that this one starts do not inherit the handler.
///
/// # Errors
///
/// Fails when the system refuses.
pub(crate) fn survive_large_files() -> io::Result<()> {
    let exceeded = SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32);
    // The handler stays after this value.
    unix::signal(exceeded).map(drop)
}

/// Waits for a signal; forever if none is listened to.
async fn received(signal: Option<&mut unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether this process ignores a signal. Reading the action of a signal needs `unsafe`, so the answer comes
/// from the system's description of the process; without one, the signal is listened to.
fn is_ignored(signal: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or_default();
    let bit = signal.as_raw_value() - 1;
    mask >> bit & 1 == 1
}

impl Signal {
    /// Returns the exit code after this signal.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }

    /// Returns the message that announces the stop.
    pub(crate) fn announcement(self) -> &'static str {
        match self {
            Self::Interrupt => {
                "interrupted: no new node starts, running nodes have 10 s to finish; press Ctrl-C \
                 again to stop at once"
            }
            Self::Terminate => "terminated: no new node starts, running nodes have 10 s to finish",
        }
    }
}
