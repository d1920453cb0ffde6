//! A server that graphrun starts: a program on a host or in a sandbox, with its standard streams.
//!
//! When a program is dropped, all of its processes are killed.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use graphrun_core::graph::{with_causes, with_hint};
use graphrun_sandbox::{
    Channel, HostCommand, HostProcess, Job, JobResult, JobStreams, Limits, Network, ProgramEnd,
    PythonEnvironment, SHELL, Sandbox, SandboxError, SourceFile, clean_output, clean_text,
};
use graphrun_workflow::{HostUse, McpServer, SandboxSettings};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{McpError, ServerAccess};

/// The most bytes of the standard error of a server that are kept: the last ones.
const STDERR_BYTES_MAX: usize = 2_000;
/// How long a server may take to end after its input has ended.
pub(super) const STOP_TIME: Duration = Duration::from_secs(2);
/// How long a server in a sandbox may run. The `time` of a sandbox is meant for one command, and a server stays until the
/// end of the run.
const LIFE_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The most bytes that a server in a sandbox writes to its standard error.
const ERROR_BYTES_MAX: u64 = 64 << 20;

/// Runs the server in a sandbox, with descriptor 3 of the job as its standard output.
const SCRIPT: &str = r#"exec "$@" >&3 3>&-"#;

/// A running program.
#[derive(Debug)]
pub(super) struct Program {
    running: Running,
    end: End,
    /// Reads the standard error of a command, or runs the job of a sandbox.
    tasks: JoinSet<()>,
}

/// The streams of a program: its output and its input.
pub(super) type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

#[derive(Debug)]
enum Running {
    Host(Box<HostProcess>),
    Sandbox(CancellationToken),
}

/// The details of the end of a program. They are complete a moment after the end.
#[derive(Clone, Debug)]
pub(super) struct End {
    known: Arc<Mutex<EndDetails>>,
    is_complete: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct EndDetails {
    /// Why it ended, if something else than the program decided that.
    reason: String,
    /// The end of its standard error.
    stderr: Vec<u8>,
}

impl Program {
    /// Starts a command on a host, in a folder.
    pub(super) fn on_host(
        server: &McpServer,
        HostUse { host, shape }: HostUse<'_>,
        access: &ServerAccess,
        folder: Option<PathBuf>,
    ) -> Result<(Self, Streams), McpError> {
        let variables = access.hosts.variables_of(host);
        let command = HostCommand {
            argv: shape.to_vec(),
            folder,
            env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..HostCommand::default()
        };
        let mut process = command.start().map_err(|it| cannot_start(server, it))?;
        let streams = process.take_streams();
        let (stdin, stdout, stderr) = streams.expect("the streams of a new process are not taken");
        let known = Arc::new(Mutex::default());
        let mut tasks = JoinSet::new();
        let (complete, is_complete) = watch::channel(false);
        tasks.spawn(keep_end(stderr, Arc::clone(&known), complete));
        let running = Running::Host(Box::new(process));
        let end = End { known, is_complete };
        Ok((Self { running, end, tasks }, (Box::new(stdout), Box::new(stdin))))
    }

    /// Starts a program in a sandbox. A program that does not start ends at once, and its end has the reason.
    pub(super) async fn in_sandbox(
        server: &McpServer,
        settings: &SandboxSettings,
        scripts: &[SourceFile],
        access: &ServerAccess,
    ) -> Result<(Self, Streams), McpError> {
        let sandbox =
            spawn_blocking(Sandbox::probe).await.map_err(|it| cannot_start(server, it))?;
        let sandbox = sandbox.map_err(|error| {
            cannot_start(server, with_hint(with_causes(&error), error.hint().as_deref()))
        })?;
        let environment = match settings.requirements.as_slice() {
            [] => None,
            some => {
                let prepared = PythonEnvironment::prepare(some, &access.cache_dir).await;
                Some(prepared.map_err(|error| {
                    cannot_start(server, with_hint(with_causes(&error), error.hint()))
                })?)
            }
        };
        let network = match settings.network.as_slice() {
            [] => None,
            some => {
                let refused = |host| format!("the sandbox may not reach `{host}`");
                let opened = access.network.open(some);
                Some(opened.map_err(|it| cannot_start(server, refused(it)))?)
            }
        };
        let (streams, to, from) = JobStreams::new().map_err(|it| cannot_start(server, it))?;
        let wrapper = [SHELL, "-c", SCRIPT, "server"].map(str::to_owned);
        let command = server.command();
        let job = Job {
            argv: wrapper.into_iter().chain(command.iter().cloned()).collect(),
            files: scripts.to_vec(),
            read_only: environment.as_ref().map(|it| it.mounts().to_vec()).unwrap_or_default(),
            limits: Limits {
                wall: LIFE_TIME_MAX,
                output_bytes: ERROR_BYTES_MAX,
                ..settings.limits()
            },
            required: command.first().cloned().into_iter().collect(),
            channel: Channel::Streams(streams),
            ..Job::default()
        };
        let sandbox = match &network {
            Some(network) => sandbox.with_network(Arc::clone(network)),
            None => sandbox,
        };
        let known = Arc::new(Mutex::default());
        let mut tasks = JoinSet::new();
        let (complete, is_complete) = watch::channel(false);
        let cancel = CancellationToken::new();
        let noted = Arc::clone(&known);
        let cancelled = cancel.clone();
        tasks.spawn(async move {
            let ended = sandbox.run(&job, &cancelled).await;
            // The ends of a job that did not start are closed with it.
            drop(job);
            *noted.lock().unwrap_or_else(PoisonError::into_inner) =
                EndDetails::of(ended, network.as_deref());
            complete.send_replace(true);
        });
        let running = Running::Sandbox(cancel);
        let end = End { known, is_complete };
        Ok((Self { running, end, tasks }, (Box::new(from), Box::new(to))))
    }

    /// Returns the facts about its end, which can be read later.
    pub(super) fn end(&self) -> End {
        self.end.clone()
    }

    /// Ends it: its input has ended already, so it may end by itself for a moment.
    pub(super) async fn stop(mut self) {
        match self.running {
            Running::Host(process) => process.stop(STOP_TIME).await,
            Running::Sandbox(cancel) => {
                let mut is_complete = self.end.is_complete.clone();
                if timeout(STOP_TIME, is_complete.wait_for(|it| *it)).await.is_err() {
                    cancel.cancel();
                    // The kill of a sandbox ends within its own limits.
                    while self.tasks.join_next().await.is_some() {}
                }
            }
        }
        self.tasks.abort_all();
    }
}

impl EndDetails {
    /// Returns the facts about the end of a sandbox.
    fn of(ended: Result<JobResult, SandboxError>, network: Option<&Network>) -> Self {
        let finished = match ended {
            Ok(finished) => finished,
            Err(error) => {
                let reason = match &error {
                    SandboxError::ProgramNotFound { program } => format!(
                        "there is no program `{program}` inside the sandbox, which has those below /usr, `python` \
                         packages and `scripts`"
                    ),
                    _ => with_causes(&error),
                };
                return Self { reason, ..Self::default() };
            }
        };
        let reason = match finished.end {
            ProgramEnd::OutOfMemory => "it used too much memory",
            ProgramEnd::OutputLimit => "it wrote too much to its standard error",
            ProgramEnd::TimedOut => "it ran for a day",
            ProgramEnd::Exited(_) | ProgramEnd::Signaled(_) => "",
        };
        let refused = network.iter().flat_map(|it| it.connections());
        let refused = refused.filter(|it| it.answer.is_refused()).map(|it| it.to_string());
        let reasons =
            Some(reason.to_owned()).filter(|it| !it.is_empty()).into_iter().chain(refused);
        let mut stderr = finished.output.into_bytes();
        stderr.drain(..stderr.len().saturating_sub(STDERR_BYTES_MAX));
        Self { reason: reasons.collect::<Vec<_>>().join("; "), stderr }
    }
}

impl End {
    /// Returns the end of a message about it. The server explains its end on its standard error, which may arrive later.
    pub(super) async fn text(&self) -> String {
        let mut is_complete = self.is_complete.clone();
        let _ = timeout(STOP_TIME, is_complete.wait_for(|it| *it)).await;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = clean_text(&known.reason);
        let stderr = clean_output(&known.stderr, false);
        let part = |before, text: String| {
            if text.is_empty() { text } else { format!("{before}{text}") }
        };
        part(": ", reason) + &part("; it wrote: ", stderr.trim().to_owned())
    }
}

fn cannot_start(
    server: &McpServer,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> McpError {
    McpError::Start { server: server.name.clone(), source: source.into() }
}

/// Reads a stream to its end and keeps its last bytes.
async fn keep_end(
    mut stream: impl AsyncRead + Unpin,
    known: Arc<Mutex<EndDetails>>,
    complete: watch::Sender<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let kept = &mut known.lock().unwrap_or_else(PoisonError::into_inner).stderr;
        kept.extend_from_slice(&buffer[..count]);
        let more = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..more);
    }
    complete.send_replace(true);
}
