//! The sandbox: checks that this machine supports one, and runs jobs in it.

use std::{future::pending, io, sync::Arc, thread};

use nix::unistd::geteuid;
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, field, info, info_span};

use super::{
    error::SandboxError,
    filter,
    job::{Job, JobResult, ProgramEnd},
    launch::{Launch, Launcher},
    mounts::{SystemMounts, find_tool},
    network::{Network, proxy},
    process_tree,
    supervisor::supervise,
};

/// The user and group of a sandbox that root starts: `nobody`. In namespaces made by root, the kernel would treat the
/// program as the owner of `/proc/sys`.
const UNPRIVILEGED_USER: u32 = 65534;

/// The programs that the sandbox needs, with Debian's packages.
const TOOLS: [(&str, &str); 4] =
    [("bwrap", "bubblewrap"), ("prlimit", "util-linux"), ("bash", "bash"), ("tar", "tar")];

/// The required lines of `/proc/self/status` of a program inside: no capabilities, no way to get any, a filter.
const REQUIRED_STATUS: [(&str, &str); 7] = [
    ("CapInh:", "0000000000000000"),
    ("CapPrm:", "0000000000000000"),
    ("CapEff:", "0000000000000000"),
    ("CapBnd:", "0000000000000000"),
    ("CapAmb:", "0000000000000000"),
    ("NoNewPrivs:", "1"),
    ("Seccomp:", "2"),
];

/// A sandbox in which generated code can do no harm. Cheap to clone.
///
/// Inside there is an empty file system with the host's `/usr` (read-only), the job's mounts (read-only) and three
/// writable folders of limited size in memory: the work folder `/box`, `/tmp` and `/dev/shm`. The only network is the
/// sandbox's loopback, where a proxy leads to named hosts if there is a [`Network`]. The only processes are its own, and
/// there are no capabilities. Every run gets a new sandbox, and nothing of it remains.
#[derive(Debug, Clone)]
pub struct Sandbox {
    launcher: Arc<Launcher>,
    network: Option<Arc<Network>>,
}

impl Sandbox {
    /// Checks whether this machine supports a sandbox, by running a program in one. Blocks for some ten milliseconds.
    ///
    /// # Errors
    /// Fails with the missing part; [`SandboxError::hint`] says what to do. There is no weaker sandbox to fall back to.
    pub fn probe() -> Result<Self, SandboxError> {
        for (tool, package) in TOOLS {
            find_tool(tool).ok_or(SandboxError::MissingTool { tool, package })?;
        }
        if !process_tree::is_supported() {
            return Err(SandboxError::NoChildLists);
        }
        let launcher = Launcher {
            bwrap: find_tool("bwrap")
                .ok_or(SandboxError::MissingTool { tool: "bwrap", package: "bubblewrap" })?,
            mounts: SystemMounts::of_this_host(),
            filters: filter::compile()?,
            become_user: geteuid().is_root().then_some(UNPRIVILEGED_USER),
        };
        let sandbox = Self { launcher: Arc::new(launcher), network: None };
        sandbox.examine()?;
        Ok(sandbox)
    }

    /// Returns a sandbox whose programs reach the hosts of a network, by a proxy.
    #[must_use]
    pub fn with_network(&self, network: Arc<Network>) -> Self {
        Self { launcher: Arc::clone(&self.launcher), network: Some(network) }
    }

    /// Returns the user that the programs inside are on the host, if it is another one than this process.
    pub(super) fn user(&self) -> Option<u32> {
        self.launcher.become_user
    }

    /// Runs a job to its end, and returns when no process of it is left.
    ///
    /// # Errors
    /// Fails only for reasons outside the program; nothing the program does is an error.
    ///
    /// # Cancel safety
    /// When `cancel` fires, every process is killed before this returns [`SandboxError::Cancelled`]. When the future is
    /// dropped, or this process dies, they are killed at once, but without waiting for their end.
    pub async fn run(
        &self,
        job: &Job,
        cancel: &CancellationToken,
    ) -> Result<JobResult, SandboxError> {
        let span = info_span!("sandbox", exit_code = field::Empty);
        let running = async {
            match &job.home {
                Some(home) => self.run_at_home(job, home, cancel).await,
                None => self.run_watched(job, cancel).await,
            }
        };
        let finished = running.instrument(span.clone()).await;
        for it in self.network.iter().flat_map(|it| it.connections()) {
            info!(parent: &span, host = it.host, answer = ?it.answer, count = it.count, "{it}");
        }
        if let Some(code) = finished.as_ref().ok().and_then(|it| it.end.exit_code()) {
            span.record("exit_code", code);
        }
        finished
    }

    /// Runs a job whose home, if it has one, is there.
    pub(super) async fn run_watched(
        &self,
        job: &Job,
        cancel: &CancellationToken,
    ) -> Result<JobResult, SandboxError> {
        let launch = Launch::prepare(&self.launcher, job, self.network.is_some())?;
        let (stop, stopper) = io::pipe().map_err(SandboxError::io("make a pipe"))?;
        let (sender, mut receiver) = oneshot::channel();
        let (door, opened) = oneshot::channel();
        let door = self.network.as_ref().map(|_| door);
        thread::Builder::new()
            .name("sandbox".to_owned())
            .spawn(move || {
                // Sending fails if the future was dropped; then the result is not needed.
                let _ = sender.send(supervise(&launch, &stop, door));
            })
            .map_err(SandboxError::io("start a thread"))?;
        // Dropping the other end of the stop pipe, here or with the future, ends the run.
        let stopper = Some(stopper);
        let mut answering = JoinSet::new();
        let proxy = async {
            match (&self.network, opened.await) {
                (Some(network), Ok(listener)) => {
                    proxy::serve(network, listener, &mut answering).await;
                }
                _ => pending().await,
            }
        };
        let finished = tokio::select! {
            () = proxy => Err(SandboxError::SupervisorLost),
            finished = &mut receiver => finished.unwrap_or(Err(SandboxError::SupervisorLost)),
            () = cancel.cancelled() => {
                drop(stopper);
                receiver.await.unwrap_or(Err(SandboxError::SupervisorLost)).and(Err(SandboxError::Cancelled))
            }
        };
        // No program is left that could use a connection.
        answering.shutdown().await;
        finished
    }

    /// Runs a program inside that prints its rights, and checks that it has none.
    fn examine(&self) -> Result<(), SandboxError> {
        let job = Job {
            argv: vec!["/usr/bin/cat".to_owned(), "/proc/self/status".to_owned()],
            ..Job::default()
        };
        let launch = Launch::prepare(&self.launcher, &job, false)?;
        let (stop, _stopper) = io::pipe().map_err(SandboxError::io("make a pipe"))?;
        let finished = supervise(&launch, &stop, None).map_err(diagnose)?;
        if finished.end != ProgramEnd::Exited(0) {
            return Err(SandboxError::Setup { detail: finished.output });
        }
        for (field, required) in REQUIRED_STATUS {
            let line =
                finished.output.lines().find(|line| line.starts_with(field)).unwrap_or(field);
            if line[field.len()..].trim() != required {
                return Err(SandboxError::TooWeak { found: line.to_owned() });
            }
        }
        Ok(())
    }
}

/// Distinguishes a kernel that denies namespaces from other failures, by the message of bubblewrap.
fn diagnose(error: SandboxError) -> SandboxError {
    const DENIALS: [&str; 4] = [
        "No permissions to create",
        "setting up uid map",
        "Creating new namespace failed",
        "Failed to make / slave",
    ];
    match error {
        SandboxError::Setup { detail } if DENIALS.iter().any(|denial| detail.contains(denial)) => {
            SandboxError::NamespacesDenied { detail }
        }
        error => error,
    }
}
