//! A command that a person trusts, on this machine and outside of the sandbox.
//!
//! Only its surroundings are controlled: the environment is given, the program is in a folder of `PATH`, time and output
//! are limited, and all of its processes are killed when it is stopped. A process is one of the command if it descends
//! from it, is in its process group, or has inherited a variable with a random value. So a process that has left its
//! parent and its group is found, too, as long as it keeps its environment. A command that leaves nothing behind also has
//! a [`HostGuard`].

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::spawn_blocking,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    host_guard::HostGuard,
    job::ProgramEnd,
    output_reader::OutputReader,
    process_tree::{children, has_ended},
};

/// The variable that marks the processes of a command.
const MARK: &str = "GRAPHRUN_COMMAND";

/// The variables of every command, before those that are given. Hooks of a repository do not run: files of the folder,
/// which a model may have written, can be among them.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("LANG", "C.UTF-8"),
    ("NO_COLOR", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_COUNT", "2"),
    ("GIT_CONFIG_KEY_0", "core.hooksPath"),
    ("GIT_CONFIG_VALUE_0", "/dev/null"),
    ("GIT_CONFIG_KEY_1", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_1", "false"),
];

/// The variable with the folders in which programs are looked up.
const PATH: &str = "PATH";
/// Its value where none is given.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The most bytes that are read of a stream before the command is stopped.
const STREAM_BYTES_MAX: u64 = 64 << 20;
/// The time to read the rest of the output after the end of the command; a process that it left may keep the pipe.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// How often the processes of a command are looked for and killed.
const KILL_ROUNDS: u32 = 100;

/// A command to run.
#[derive(Clone, Debug, Default)]
pub struct HostCommand {
    /// The program, a name without a path, and its arguments.
    pub argv: Vec<String>,
    /// The folder in which it starts; `None` is the current one.
    pub folder: Option<PathBuf>,
    /// The variables that it gets besides a few harmless ones. `PATH` is the one of the system, unless it is given.
    pub env: Vec<(String, String)>,
    /// Its standard input.
    pub stdin: Option<String>,
    /// Its time limit.
    pub time: Duration,
    /// The bytes that are kept of each stream.
    pub kept_bytes: usize,
    /// Takes its standard output as it arrives.
    pub reader: Option<OutputReader>,
    /// Whether the processes that it leaves behind are killed, too, when it has ended, and all of them when this process is
    /// killed. A control group holds them, where this process can make one.
    pub ends_all: bool,
}

/// The result of a command.
#[derive(Debug)]
pub struct HostResult {
    /// How it ended.
    pub end: ProgramEnd,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
}

/// A command that has started. When it is dropped, all of its processes are killed.
#[derive(Debug)]
pub struct HostProcess {
    // Dropped after the processes are killed, which find it by its id.
    processes: Processes,
    child: Child,
}

/// A command could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostCommandError {
    /// There is no such program.
    #[error("there is no program `{program}` in `{path}`, the absolute folders of `PATH`")]
    ProgramNotFound {
        /// Its name.
        program: String,
        /// The folders where it was looked up.
        path: String,
    },
    /// It did not start, or its end could not be waited for.
    #[error("`{program}` cannot be run")]
    Io {
        /// Its name.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The attempt was aborted.
    #[error("the command was aborted, and its processes were killed")]
    Aborted,
}

/// Finds the program of a command, a name without a path, in the absolute folders of a `PATH`; without one, in those of
/// the system.
pub fn find_program(name: &str, path: Option<&str>) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|it| it.is_file() && it.mode() & 0o111 != 0);
    let folders = env::split_paths(path.unwrap_or(SYSTEM_PATH)).filter(|it| it.is_absolute());
    let mut found = folders.map(|it| it.join(name)).filter(is_program);
    // A name with a path would lead out of these folders.
    if name.is_empty() || name.contains('/') { None } else { found.next() }
}

fn absolute_folders(path: &str) -> String {
    path.split(':').filter(|it| it.starts_with('/')).collect::<Vec<_>>().join(":")
}

impl HostCommand {
    /// Runs the command to its end, to its time limit, or until `cancel`.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started, and when it is aborted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, all processes of the command are killed.
    pub async fn run(&self, cancel: &CancellationToken) -> Result<HostResult, HostCommandError> {
        let stdin = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut process = self.spawn(stdin)?;
        let failed = |source| HostCommandError::Io { program: self.program(), source };
        let output = self.read_to_end(&mut process);
        let ended = tokio::select! {
            () = cancel.cancelled() => None,
            ended = timeout(self.time, output) => Some(ended),
        };
        process.end().await;
        let ended = ended.ok_or(HostCommandError::Aborted)?;
        let stopped =
            || HostResult { end: ProgramEnd::TimedOut, stdout: Vec::new(), stderr: Vec::new() };
        ended.map_or_else(|_| Ok(stopped()), |it| it.map_err(failed))
    }

    /// Starts the command for a caller that talks with it over its streams. Its time limit does not apply, and it leaves
    /// nothing behind.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started.
    pub fn start(&self) -> Result<HostProcess, HostCommandError> {
        Self { ends_all: true, ..self.clone() }.spawn(Stdio::piped())
    }

    /// Returns the absolute folders of its `PATH`. A relative one would lead into the folder in which it starts, where a
    /// model may have written a program.
    fn path(&self) -> String {
        let given = self.env.iter().rfind(|(name, _)| name == PATH);
        absolute_folders(given.map_or(SYSTEM_PATH, |(_, value)| value))
    }

    fn program(&self) -> String {
        self.argv.first().cloned().unwrap_or_default()
    }

    fn spawn(&self, stdin: Stdio) -> Result<HostProcess, HostCommandError> {
        let program = self.program();
        let folders = self.path();
        let path = find_program(&program, Some(&folders)).ok_or_else(|| {
            HostCommandError::ProgramNotFound { program: program.clone(), path: folders.clone() }
        })?;
        let mark = format!("{:032x}", rand::random::<u128>());
        let failed = |source| HostCommandError::Io { program: program.clone(), source };
        let (guard, mut command) = if self.ends_all {
            let mark = format!("{MARK}={mark}");
            let guarded = HostGuard::new(&path, &self.argv[1..], &mark);
            let (guard, command) = guarded.map_err(failed)?;
            (Some(guard), Command::from(command))
        } else {
            let mut command = Command::new(path);
            command.args(&self.argv[1..]);
            (None, command)
        };
        command.env_clear().envs(ENVIRONMENT);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env(PATH, folders).env(MARK, &mark);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        // A terminal sends Ctrl-C to its whole process group. The driver stops the command instead.
        command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(failed)?;
        let processes = Processes { id: child.id(), mark, is_ended: false, guard };
        Ok(HostProcess { processes, child })
    }

    async fn read_to_end(
        &self,
        HostProcess { processes, child }: &mut HostProcess,
    ) -> io::Result<HostResult> {
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let (Some(mut stdin), Some(text)) = (stdin, &self.stdin) {
                // A command need not read its input.
                let _ = stdin.write_all(text.as_bytes()).await;
            }
            Ok(())
        };
        let reader = self.reader.clone();
        let mut out = Stream { reader, ..Stream::new(self.kept_bytes) };
        let mut err = Stream::new(self.kept_bytes);
        let status = {
            let read = async { tokio::try_join!(write, out.read(stdout), err.read(stderr)) };
            let mut read = std::pin::pin!(read);
            let mut is_read = false;
            let status = loop {
                tokio::select! {
                    result = &mut read, if !is_read => match result {
                        Ok(_) => is_read = true,
                        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => break None,
                        Err(error) => return Err(error),
                    },
                    status = child.wait() => break Some(status?),
                }
            };
            if status.is_some() {
                if self.ends_all {
                    // The id may soon be that of another process; the mark is not.
                    processes.id = None;
                } else {
                    processes.is_ended = true;
                }
                if !is_read {
                    let _ = timeout(DRAIN_TIME, read).await;
                }
            }
            status
        };
        let end = status.map_or(ProgramEnd::OutputLimit, end_of);
        Ok(HostResult { end, stdout: out.kept, stderr: err.kept })
    }
}

impl HostProcess {
    /// Returns its standard input, output and error, at the first call.
    pub fn take_streams(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        let Child { stdin, stdout, stderr, .. } = &mut self.child;
        Some((stdin.take()?, stdout.take()?, stderr.take()?))
    }

    /// Waits for its end, at most this long. Then all processes that are left of it are killed.
    pub async fn stop(mut self, patience: Duration) {
        let _ = timeout(patience, self.child.wait()).await;
        self.end().await;
    }

    /// Kills its remaining processes. The search in `/proc` and its pauses need a thread that may block.
    async fn end(self) {
        if !self.processes.is_ended {
            let _ = spawn_blocking(move || drop(self)).await;
        }
    }
}

fn end_of(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, signal) => ProgramEnd::Signaled(signal.unwrap_or_default()),
    }
}

/// The beginning of a stream.
struct Stream {
    kept: Vec<u8>,
    kept_bytes: usize,
    reader: Option<OutputReader>,
}

impl Stream {
    fn new(kept_bytes: usize) -> Self {
        Self { kept: Vec::new(), kept_bytes, reader: None }
    }

    /// Reads to the end, so that the command does not wait for its reader. Fails with `FileTooLarge` above the limit.
    async fn read(&mut self, stream: Option<impl AsyncRead + Unpin>) -> io::Result<()> {
        let Some(mut stream) = stream else { return Ok(()) };
        let mut buffer = vec![0; 64 << 10];
        let mut total = 0;
        loop {
            let count = stream.read(&mut buffer).await?;
            total += count as u64;
            if count == 0 {
                return Ok(());
            }
            if total > STREAM_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if let Some(reader) = &self.reader {
                reader.take(&buffer[..count]);
            }
            let room = self.kept_bytes.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&buffer[..count.min(room)]);
        }
    }
}

/// The processes of a command, which are killed unless it has ended by itself.
#[derive(Debug)]
struct Processes {
    /// The first process; `None` after its end.
    id: Option<u32>,
    mark: String,
    is_ended: bool,
    guard: Option<HostGuard>,
}

impl Processes {
    fn kill(&self) {
        let group = self.id.and_then(|it| i32::try_from(it).ok()).map(Pid::from_raw);
        for _ in 0..KILL_ROUNDS {
            if let Some(group) = group {
                let _ = killpg(group, Signal::SIGKILL);
            }
            let mut found = self.find();
            found.extend(self.guard.iter().flat_map(HostGuard::kill));
            // The first process is a zombie until it is waited for.
            if found.iter().all(|it| has_ended(*it)) {
                return;
            }
            for process in found.into_iter().filter_map(|it| i32::try_from(it).ok()) {
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn find(&self) -> BTreeSet<u32> {
        let mark = format!("{MARK}={}", self.mark);
        let is_marked = |process: &u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|it| *it == 0).any(|it| it == mark.as_bytes())
        };
        let all = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let ids = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        let mut next: Vec<u32> = ids.filter(is_marked).chain(self.id).collect();
        let mut found = BTreeSet::new();
        while let Some(process) = next.pop() {
            if found.insert(process) {
                next.extend(children(process));
            }
        }
        found
    }
}

impl Drop for Processes {
    /// Blocks, which only a dropped future does on a thread of the runtime.
    fn drop(&mut self) {
        if !self.is_ended {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, time::Instant};

    use super::*;
    use crate::host_guard::has_groups;

    fn shell(script: &str) -> HostCommand {
        HostCommand {
            argv: ["bash", "-c", script].map(str::to_owned).into(),
            time: Duration::from_secs(20),
            kept_bytes: 1 << 20,
            ..HostCommand::default()
        }
    }

    async fn run(command: &HostCommand) -> HostResult {
        command.run(&CancellationToken::new()).await.unwrap()
    }

    /// Returns whether a process with this text among its arguments lives.
    fn lives(argument: &str) -> bool {
        let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        all.filter(|entry| entry.file_name().to_str().is_some_and(|it| it.parse::<u32>().is_ok()))
            .any(|process| {
                let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
                command.split(|it| *it == 0).any(|it| it == argument.as_bytes())
            })
    }

    #[tokio::test]
    async fn streams_codes_and_input_arrive() {
        let command =
            HostCommand { stdin: Some("in".to_owned()), ..shell("cat; echo err >&2; exit 7") };
        let result = run(&command).await;
        assert!(matches!(result.end, ProgramEnd::Exited(7)));
        assert_eq!((&result.stdout[..], &result.stderr[..]), (&b"in"[..], &b"err\n"[..]));
        let result = run(&shell("kill -9 $$")).await;
        assert!(matches!(result.end, ProgramEnd::Signaled(9)));
    }

    #[tokio::test]
    async fn the_environment_is_clean() {
        let command =
            HostCommand { env: vec![("GH_TOKEN".to_owned(), "x".to_owned())], ..shell("env") };
        let result = run(&command).await;
        let text = String::from_utf8(result.stdout).unwrap();
        let mut names: Vec<&str> =
            text.lines().filter_map(|it| Some(it.split_once('=')?.0)).collect();
        names.sort_unstable();
        let own = ["GH_TOKEN", MARK, "PWD", "SHLVL", "_"];
        let mut expected: Vec<&str> = ENVIRONMENT.iter().map(|it| it.0).chain(own).collect();
        expected.push(PATH);
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[tokio::test]
    async fn a_program_with_a_path_is_not_found() {
        for program in ["/usr/bin/true", "./true", "no-such-program-here", ""] {
            let command = HostCommand { argv: vec![program.to_owned()], ..shell("") };
            let error = command.run(&CancellationToken::new()).await.unwrap_err();
            assert!(
                matches!(error, HostCommandError::ProgramNotFound { .. }),
                "{program}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn programs_are_looked_up_in_the_absolute_folders_of_path() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, mode) in
            [("installed", "#!/bin/sh\necho \"$PATH\"\n", 0o755), ("a-text", "", 0o644)]
        {
            fs::write(folder.path().join(name), text).unwrap();
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(folder.path().join(name), mode).unwrap();
        }
        let absolute = format!("/usr/bin:{}", folder.path().display());
        let command = |name: &str, path: &str| HostCommand {
            argv: vec![name.to_owned()],
            folder: Some(folder.path().to_owned()),
            env: vec![(PATH.to_owned(), path.to_owned())],
            ..shell("")
        };
        let run =
            async |name: &str, path: &str| command(name, path).run(&CancellationToken::new()).await;
        let ended = run("installed", &format!(".::bin:{absolute}")).await.unwrap();
        assert_eq!(String::from_utf8(ended.stdout).unwrap(), format!("{absolute}\n"));
        for (name, path) in [("installed", "."), ("installed", ""), ("a-text", &*absolute)] {
            let error = run(name, path).await.unwrap_err();
            assert!(matches!(error, HostCommandError::ProgramNotFound { .. }), "{name}: {error}");
        }
    }

    /// A child, one in another session, and a daemon that has lost its parent.
    const TREE: &str = "sleep {} & setsid sleep {} & (setsid bash -c 'sleep {} & exit' &) ; wait";

    #[tokio::test]
    async fn a_time_limit_kills_the_whole_tree() {
        let script = TREE.replace("{}", "86391.5");
        let command = HostCommand { time: Duration::from_millis(400), ..shell(&script) };
        assert!(matches!(run(&command).await.end, ProgramEnd::TimedOut));
        assert!(!lives("86391.5"));
    }

    #[tokio::test]
    async fn an_abort_kills_the_whole_tree() {
        let cancel = CancellationToken::new();
        let command = shell(&TREE.replace("{}", "86392.5"));
        let abort = async {
            while !lives("86392.5") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(command.run(&cancel), abort);
        assert!(matches!(result, Err(HostCommandError::Aborted)));
        assert!(!lives("86392.5"));
    }

    #[tokio::test]
    async fn a_dropped_command_leaves_no_process() {
        let command = shell(&TREE.replace("{}", "86393.5"));
        let cancel = CancellationToken::new();
        let seen = async {
            while !lives("86393.5") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = command.run(&cancel) => panic!("it ended"),
            () = seen => {}
        }
        assert!(!lives("86393.5"));
    }

    #[tokio::test]
    async fn a_command_may_leave_processes_only_if_it_is_meant_to() {
        let script =
            "setsid sleep 86394.5 >/dev/null 2>&1 & (sleep 86394.5 >/dev/null 2>&1 &) ; echo done";
        let command = HostCommand { ends_all: true, ..shell(script) };
        assert_eq!(run(&command).await.stdout, b"done\n");
        assert!(!lives("86394.5"));
    }

    /// A process without a parent, a session, a process group and an environment of the command.
    #[tokio::test]
    async fn a_control_group_holds_each_process() {
        let escape = "(setsid env -i /usr/bin/sleep 86396.5 >/dev/null 2>&1 &)";
        for (script, end) in [
            (format!("{escape}; while true; do sleep 1; done"), ProgramEnd::TimedOut),
            (format!("{escape}; exit 3"), ProgramEnd::Exited(3)),
        ] {
            let time = Duration::from_millis(600);
            let command = HostCommand { ends_all: true, time, ..shell(&script) };
            assert_eq!(run(&command).await.end, end);
            assert_eq!(lives("86396.5"), !has_groups(), "{script}");
        }
    }

    #[tokio::test]
    async fn a_guarded_command_has_its_own_streams_and_end() {
        let script = "cat; echo $# \"$1\"; ls /proc/self/fd | wc -l; kill -9 $$";
        let mut command = HostCommand { ends_all: true, stdin: Some("in".into()), ..shell(script) };
        command.argv.extend(["name".to_owned(), "a 'b' $c".to_owned()]);
        let guarded = run(&command).await;
        let plain = run(&HostCommand { ends_all: false, ..command }).await;
        assert_eq!(guarded.end, ProgramEnd::Signaled(9));
        assert_eq!(guarded.stdout, plain.stdout);
        let started = String::from_utf8(guarded.stdout).unwrap();
        assert!(started.starts_with("in1 a 'b' $c\n"), "{started}");
    }

    #[tokio::test]
    async fn a_reader_gets_the_output_while_the_command_works() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let reader = OutputReader::new(move |bytes| drop(sender.send(bytes.to_vec())));
        let cancel = CancellationToken::new();
        let command = HostCommand { reader: Some(reader), ..shell("echo first; sleep 86395.5") };
        let first = async {
            assert_eq!(receiver.recv().await.unwrap(), b"first\n");
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(command.run(&cancel), first);
        assert!(matches!(result, Err(HostCommandError::Aborted)));
    }

    #[tokio::test]
    async fn output_is_kept_up_to_a_limit() {
        let command =
            HostCommand { kept_bytes: 10, ..shell("head -c 3000000 /dev/zero | tr '\\0' x") };
        let result = run(&command).await;
        assert!(matches!(result.end, ProgramEnd::Exited(0)));
        assert_eq!(result.stdout, b"xxxxxxxxxx");
        let result = run(&shell("cat /dev/zero")).await;
        assert!(matches!(result.end, ProgramEnd::OutputLimit));
    }

    #[tokio::test]
    async fn a_process_that_keeps_the_output_does_not_delay_the_end() {
        let began = Instant::now();
        let result = run(&shell("setsid sleep 15 & echo done")).await;
        assert_eq!(result.stdout, b"done\n");
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
