//! Watches over one sandbox from its start to the end of its last process.
//!
//! One thread a run, blocking, because bubblewrap dies with the thread that started it: a pool's thread may end at any
//! time. The thread reads everything the sandbox writes, so nothing inside can block it, and checks the clock and the
//! memory in between. The caller holds a pipe; when its other end is closed, the run is stopped.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    mem,
    net::TcpListener,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    process::ExitStatus,
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::oneshot;

use super::{
    archive::{self, COLLECT_BYTES_MAX, UnpackedFiles},
    error::SandboxError,
    job::{Channel, Job, JobResult, ProgramEnd},
    launch::{Launch, StartedSandbox},
    output::Output,
    output_reader::OutputReader,
    process_tree::ProcessTree,
};

/// The time for the namespaces to start and the files to arrive; normally tens of milliseconds.
const SETUP_TIME_MAX: Duration = Duration::from_secs(20);
/// The interval of memory checks. A program fills some hundred megabytes in this time.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The interval of checks for the end once it must be near.
const END_INTERVAL: Duration = Duration::from_millis(1);
/// The most bytes of records that are kept.
const RECORDS_BYTES_MAX: usize = 8 << 20;
/// The time for the kernel to end a killed sandbox before the monitor is killed as well.
const DEATH_TIME_MAX: Duration = Duration::from_secs(5);

/// Runs one job to its end. Blocks. The calling thread must live until then. `door` gets the socket that listens inside,
/// before the program starts.
pub(super) fn supervise(
    launch: &Launch,
    stop: &PipeReader,
    door: Option<oneshot::Sender<TcpListener>>,
) -> Result<JobResult, SandboxError> {
    let StartedSandbox { child, output, report, files, mut go, collected, records } =
        launch.start()?;
    let fixed = [output.as_fd(), report.as_fd(), files.as_fd(), collected.as_fd()];
    for descriptor in fixed.into_iter().chain(records.as_ref().map(AsFd::as_fd)) {
        do_not_block(descriptor)?;
    }
    let mut supervisor = Supervisor {
        tree: ProcessTree::below(child.id()),
        child,
        output: Stream::new(output),
        collected: Stream::new(collected),
        records: records.map(Stream::new),
        shown: Output::default(),
        collected_bytes: Vec::new(),
        records_bytes: Vec::new(),
        records_total: 0,
        reader: match &launch.job.channel {
            Channel::Records { reader, .. } => reader.clone(),
            Channel::None | Channel::Streams(_) => None,
        },
        stop,
    };
    supervisor.set_up(launch, SetupPipes { report, files, go: &mut go })?;
    if let Some(door) = door {
        // If it is not taken, the run has been dropped, and the loop below notices that.
        let _ = door.send(supervisor.listen(launch)?);
    }
    supervisor.watch(go, &launch.job)
}

/// The supervisor of one sandbox.
#[derive(Debug)]
struct Supervisor<'a> {
    child: std::process::Child,
    tree: ProcessTree,
    output: Stream,
    collected: Stream,
    records: Option<Stream>,
    shown: Output,
    collected_bytes: Vec<u8>,
    records_bytes: Vec<u8>,
    /// The bytes of the records that the reader has taken.
    records_total: u64,
    reader: Option<OutputReader>,
    stop: &'a PipeReader,
}

/// The pipes to the script inside, until the program starts.
struct SetupPipes<'a> {
    /// The reports of the script.
    report: PipeReader,
    /// Takes the archive of the files.
    files: PipeWriter,
    /// Lets the script start the program.
    go: &'a mut PipeWriter,
}

impl Supervisor<'_> {
    /// Sends the files in and waits until the script inside has unpacked them.
    ///
    /// Closing the pipes is enough to give up: without the files and the final `go`, the script ends by itself. That
    /// also holds when this process is killed, at any stage of bubblewrap's setup.
    fn set_up(
        &mut self,
        launch: &Launch,
        SetupPipes { report, files, go }: SetupPipes<'_>,
    ) -> Result<(), SandboxError> {
        let deadline = Instant::now() + SETUP_TIME_MAX;
        let mut report = Stream::new(report);
        let mut files = Some(files);
        let mut unsent = &launch.archive[..];
        let mut word = Vec::new();
        let failure = loop {
            match word.as_slice() {
                b"unpacked" => return Ok(()),
                b"ready\n" => {
                    if let Err(error) = self.script().and_then(|it| launch.mount_folder(it)) {
                        break error;
                    }
                    // If the script has ended, the end of its reports shows that.
                    let _ = go.write_all(b"mounted\n");
                    word.clear();
                }
                [b'm', .., b'\n'] => {
                    break SandboxError::ProgramNotFound { program: missing(&word) };
                }
                _ if report.is_at_end() => break SandboxError::Setup { detail: String::new() },
                _ if Instant::now() >= deadline => {
                    break SandboxError::Setup { detail: "it took too long".to_owned() };
                }
                _ => {}
            }
            let readable = [Some(self.stop.as_fd()), report.open(), self.output.open()];
            if wait(&readable, files.as_ref().map(AsFd::as_fd), WATCH_INTERVAL)? {
                break SandboxError::Cancelled;
            }
            report.read(|bytes| word.extend_from_slice(bytes));
            self.output.read(|bytes| self.shown.push(bytes));
            if let Some(pipe) = &mut files {
                unsent = send(pipe, unsent);
            }
            if unsent.is_empty() {
                files = None;
            }
        };
        drop(files);
        Err(self.give_up(failure))
    }

    /// Listens inside. The script there waits for the word to go.
    fn listen(&mut self, launch: &Launch) -> Result<TcpListener, SandboxError> {
        let listener = self.script().and_then(|it| launch.listen(it));
        listener.map_err(|error| self.give_up(error))
    }

    /// Returns the script inside, while it waits for a word.
    fn script(&mut self) -> Result<u32, SandboxError> {
        self.tree.find_init();
        let lost = || SandboxError::Setup { detail: "its first process is gone".to_owned() };
        self.tree.script().ok_or_else(lost)
    }

    /// Ends a sandbox whose program has not run, and adds the messages of the tools to the failure.
    fn give_up(&mut self, failure: SandboxError) -> SandboxError {
        if let Err(error) = self.kill() {
            return error;
        }
        while self.read() {}
        match failure {
            SandboxError::Setup { detail } if detail.is_empty() => {
                let said = mem::take(&mut self.shown).into_text();
                SandboxError::Setup { detail: said.trim_end().replace('\n', "; ") }
            }
            failure => failure,
        }
    }

    /// Lets the program run, and watches until the last process is gone.
    fn watch(mut self, mut go: PipeWriter, job: &Job) -> Result<JobResult, SandboxError> {
        self.tree.find_init();
        self.tree.offer_first();
        // Earlier messages of the tools are not the program's output.
        self.shown = Output::default();
        let started = Instant::now();
        // If the script has ended, the loop below notices it.
        let _ = go.write_all(b"go\n");
        drop(go);
        let mut next_look = started + WATCH_INTERVAL;
        let end = loop {
            if let Some(status) = self.try_wait()? {
                self.wait_until_empty()?;
                break ProgramEnd::from_code(code_of(status));
            }
            let interval = if self.collected.is_at_end() { END_INTERVAL } else { WATCH_INTERVAL };
            let stopped = wait(
                &[
                    Some(self.stop.as_fd()),
                    self.output.open(),
                    self.collected.open(),
                    self.records.as_ref().and_then(Stream::open),
                ],
                None,
                interval,
            )?;
            if stopped {
                self.kill()?;
                return Err(SandboxError::Cancelled);
            }
            self.read();
            let now = Instant::now();
            let passed = if now >= started + job.limits.wall {
                Some(ProgramEnd::TimedOut)
            } else if self.shown.total() + self.records_total > job.limits.output_bytes {
                Some(ProgramEnd::OutputLimit)
            } else if now >= next_look {
                next_look = now + WATCH_INTERVAL;
                self.tree.is_beyond(job.limits.memory_bytes).then_some(ProgramEnd::OutOfMemory)
            } else {
                None
            };
            if let Some(limit) = passed {
                self.kill()?;
                break limit;
            }
        };
        let wall = started.elapsed();
        // All writers have ended, so the pipes contain everything that is left.
        while self.read() {}
        let collected_bytes = mem::take(&mut self.collected_bytes);
        let is_too_large = collected_bytes.len() > COLLECT_BYTES_MAX;
        let UnpackedFiles { collected, refused, left } = if is_too_large {
            UnpackedFiles::default()
        } else {
            let declared: Vec<String> = job.collect.files().cloned().collect();
            archive::unpack(&collected_bytes, &declared, &job.collect.below)
        };
        let left = left.filter(|_| end == ProgramEnd::Exited(0));
        let removed = match &job.collect.below[..] {
            [] => Some(Vec::new()),
            below => left.map(|it| it.missing(&job.collect.known, below)),
        };
        let records = match mem::take(&mut self.records_bytes) {
            bytes if bytes.len() > RECORDS_BYTES_MAX => Vec::new(),
            bytes => bytes,
        };
        let output = mem::take(&mut self.shown);
        let is_output_cut = output.is_cut();
        Ok(JobResult {
            end,
            output: output.into_text(),
            is_output_cut,
            collected,
            refused,
            removed,
            is_too_large,
            records,
            wall,
        })
    }

    /// Reads the available bytes, at most a buffer of each stream. Returns whether there were any.
    fn read(&mut self) -> bool {
        let read_output = self.output.read(|bytes| self.shown.push(bytes));
        let read_collected = self.collected.read(|bytes| {
            keep(&mut self.collected_bytes, bytes, COLLECT_BYTES_MAX);
        });
        let read_records = self.records.as_mut().is_some_and(|records| {
            records.read(|bytes| match &self.reader {
                Some(reader) => {
                    self.records_total += bytes.len() as u64;
                    reader.take(bytes);
                }
                None => keep(&mut self.records_bytes, bytes, RECORDS_BYTES_MAX),
            })
        });
        read_output || read_collected || read_records
    }

    /// Ends the sandbox and returns when it is gone completely.
    fn kill(&mut self) -> Result<(), SandboxError> {
        let deadline = Instant::now() + DEATH_TIME_MAX;
        while self.try_wait()?.is_none() {
            // The kill is repeated, because process 1 may only have started now.
            if Instant::now() < deadline {
                self.tree.kill();
            } else {
                self.tree.kill_monitor();
            }
            thread::sleep(END_INTERVAL);
        }
        self.wait_until_empty()
    }

    /// Waits for the last processes. The monitor has ended, and they are dying.
    fn wait_until_empty(&self) -> Result<(), SandboxError> {
        let deadline = Instant::now() + DEATH_TIME_MAX;
        while !self.tree.is_empty() {
            if Instant::now() >= deadline {
                // The processes are killed, but the kernel does not end them: nothing more can be
                // done here.
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(SandboxError::Io { attempt: "end every process", source });
            }
            thread::sleep(END_INTERVAL);
        }
        Ok(())
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, SandboxError> {
        self.child.try_wait().map_err(SandboxError::io("wait for bwrap"))
    }
}

impl Drop for Supervisor<'_> {
    /// If an error of the host ends the watch early, the sandbox ends too.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.tree.kill_monitor();
            let _ = self.child.wait();
        }
    }
}

/// Adds bytes up to one more than the limit; that one shows that there were too many.
fn keep(kept: &mut Vec<u8>, bytes: &[u8], bytes_max: usize) {
    let room = (bytes_max + 1).saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Returns the missing program, as reported by the script inside.
fn missing(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let text = text.trim_end();
    text.strip_prefix("missing ").unwrap_or(text).to_owned()
}

/// The reading end of a pipe or a socket whose other end is inside.
#[derive(Debug)]
struct Stream {
    /// `None` after the end.
    file: Option<File>,
    buffer: Box<[u8]>,
}

impl Stream {
    fn new(end: impl Into<OwnedFd>) -> Self {
        Self { file: Some(File::from(end.into())), buffer: vec![0; 64 << 10].into() }
    }

    /// Returns the descriptor to wait for, unless the stream has ended.
    fn open(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    fn is_at_end(&self) -> bool {
        self.file.is_none()
    }

    /// Reads at most one buffer, without waiting. Returns whether there was anything.
    fn read(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let Some(file) = &mut self.file else { return false };
        match file.read(&mut self.buffer) {
            Ok(0) => self.file = None,
            Ok(length) => {
                take(&self.buffer[..length]);
                return true;
            }
            Err(error) if is_not_now(&error) => {}
            Err(_) => self.file = None,
        }
        false
    }
}

/// Writes as much as fits and returns the rest. If the reader is gone, the rest is empty.
fn send<'a>(pipe: &mut PipeWriter, bytes: &'a [u8]) -> &'a [u8] {
    match pipe.write(bytes) {
        Ok(sent) => &bytes[sent..],
        Err(error) if is_not_now(&error) => bytes,
        Err(_) => &[],
    }
}

/// Waits until a descriptor is ready, or the time is over. Returns whether the first of `readable`,
/// the stop pipe, ended the wait.
fn wait(
    readable: &[Option<BorrowedFd<'_>>],
    writable: Option<BorrowedFd<'_>>,
    time: Duration,
) -> Result<bool, SandboxError> {
    let mut waiting: Vec<PollFd<'_>> = readable
        .iter()
        .flatten()
        .map(|descriptor| PollFd::new(*descriptor, PollFlags::POLLIN))
        .chain(writable.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLOUT)))
        .collect();
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    match poll(&mut waiting, timeout) {
        Ok(_) => Ok(waiting.first().and_then(PollFd::any).unwrap_or(false)),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(SandboxError::Io { attempt: "wait for output", source: error.into() }),
    }
}

fn do_not_block(descriptor: BorrowedFd<'_>) -> Result<(), SandboxError> {
    fcntl(descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(|error| SandboxError::Io { attempt: "prepare a pipe", source: error.into() })
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns the exit code, as a shell would report it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
