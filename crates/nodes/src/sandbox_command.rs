//! A command in a sandbox, with standard streams that begin and end as files.

use std::{collections::BTreeMap, time::Duration};

use graphrun_core::{
    graph::{ErrorKind, Failure},
    id::unique_id,
    words::duration,
};
use graphrun_sandbox::{Collect, FixedFile, Job, JobResult, Limits, ProgramEnd, SHELL, SourceFile};

use crate::{changes::Changes, in_folder::SandboxFolder};

/// The most bytes of each stream that are kept.
pub(super) const STREAM_BYTES_MAX: usize = 1 << 20;

/// Runs the command with its streams in files, which are returned when it has ended.
///
/// Arguments: the path of the input, the names of the files for output and errors, the bytes of a stream that are kept,
/// then the command. No value of the state is among them. The streams are in `/tmp`, so that the command finds only its own
/// files. They are cut and renamed there, which needs no room: the command may have used all of it.
const SCRIPT: &str = r#"
input=$1 output=$2 errors=$3 bytes=$4
shift 4
exec 8</dev/null
if [[ -e $input ]]; then exec 8<"$input"; fi
"$@" <&8 >/tmp/.stdout 2>/tmp/.stderr 8<&-
status=$?
cd /tmp
truncate --size="<$bytes" .stdout .stderr
mv .stdout "$output"
mv .stderr "$errors"
exit "$status"
"#;

/// A command with its input and its files.
#[derive(Debug, Default)]
pub(super) struct SandboxCommand {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// Its standard input; `None` is an empty one.
    pub(super) stdin: Option<String>,
    /// Its files, above those of the folder.
    pub(super) files: Vec<SourceFile>,
    /// Its variables.
    pub(super) env: BTreeMap<String, String>,
    pub(super) limits: Limits,
    /// The files and folders that come back.
    pub(super) changes: Vec<String>,
    pub(super) streams: StreamFiles,
}

/// The names of the files for input and output. They cannot be guessed, so a file of the command is never taken for a
/// stream.
#[derive(Debug)]
pub(super) struct StreamFiles {
    input: String,
    output: String,
    errors: String,
}

impl StreamFiles {
    /// Returns the file of the input. It is none of the work folder, so that the limits on generated files, which are
    /// smaller than a value of the state may be, are not its own.
    pub(super) fn input_file(&self, text: &str) -> FixedFile {
        FixedFile { path: self.input.clone(), content: text.as_bytes().to_vec() }
    }

    /// Returns its path inside.
    pub(super) fn input_path(&self) -> String {
        format!("/graphrun/{}", self.input)
    }
}

/// The result of a command that ended by itself.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// Its exit code, or 128 and the signal that ended it.
    pub(super) code: i32,
    /// The beginning of its standard output, at most one byte more than [`STREAM_BYTES_MAX`].
    pub(super) stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub(super) stderr: Vec<u8>,
    pub(super) changes: Changes,
}

/// Why a command has no result.
#[derive(Debug)]
pub(super) enum CommandStop {
    /// Its time was over.
    TimedOut(Duration),
    /// Something else ended it.
    Ended(&'static str),
}

impl SandboxCommand {
    /// Returns the job that runs the command in a folder.
    pub(super) fn job(&self, folder: &SandboxFolder) -> Job {
        let StreamFiles { output, errors, .. } = &self.streams;
        // One byte more shows that a stream was longer.
        let bytes = (STREAM_BYTES_MAX + 1).to_string();
        let input = self.streams.input_path();
        let wrapper = [SHELL, "-c", SCRIPT, "run", &input, output, errors, &bytes];
        let stdin = self.stdin.as_deref().map(|it| self.streams.input_file(it));
        Job {
            argv: wrapper.map(str::to_owned).into_iter().chain(self.argv.iter().cloned()).collect(),
            files: self.files.clone(),
            fixed: stdin.into_iter().collect(),
            folder: folder.files(),
            mounted: folder.mounted(),
            env: self.env.clone(),
            limits: self.limits.clone(),
            collect: Collect {
                below: self.changes.clone(),
                temporary: vec![output.clone(), errors.clone()],
                ..Collect::default()
            },
            // The program is looked up before any code of the command runs, so that no command can make it seem absent.
            required: self.argv.first().cloned().into_iter().collect(),
            ..Job::default()
        }
    }

    /// Returns the output of the command.
    ///
    /// # Errors
    ///
    /// Fails when it was stopped, and when its output is lost.
    pub(super) fn output(&self, mut result: JobResult) -> Result<CommandOutput, CommandStop> {
        let code = exit_code(result.end, self.limits.wall)?;
        // The shell around the program brings the output out, and a program can kill all processes.
        let lost = CommandStop::Ended(if result.is_too_large {
            "its output and its changes together are larger than 8 MiB"
        } else if code > 128 {
            "a signal ended it together with the shell that keeps its output"
        } else {
            "it removed the files that keep its output"
        });
        let mut stream = |name| result.collected.remove(name);
        let streams = (stream(&self.streams.output), stream(&self.streams.errors));
        let (Some(stdout), Some(stderr)) = streams else { return Err(lost) };
        Ok(CommandOutput { code, stdout, stderr, changes: Changes::of(result) })
    }
}

/// Returns the exit code of a command that was not stopped.
pub(super) fn exit_code(end: ProgramEnd, time: Duration) -> Result<i32, CommandStop> {
    match end {
        ProgramEnd::Exited(code) => Ok(code),
        ProgramEnd::Signaled(signal) => Ok(128 + signal),
        ProgramEnd::TimedOut => Err(CommandStop::TimedOut(time)),
        ProgramEnd::OutOfMemory => Err(CommandStop::Ended("it used too much memory")),
        ProgramEnd::OutputLimit => Err(CommandStop::Ended("it wrote too much output")),
    }
}

impl Default for StreamFiles {
    fn default() -> Self {
        let id = unique_id();
        let name = |what: &str| format!("{what}-{id}");
        Self { input: name("stdin"), output: name("stdout"), errors: name("stderr") }
    }
}

impl CommandStop {
    /// Returns the sentence about a command.
    pub(super) fn message(&self, command: &str) -> String {
        match self {
            Self::TimedOut(time) => format!("{command} was stopped after {}", duration(*time)),
            Self::Ended(why) => format!("{command} was stopped: {why}"),
        }
    }

    /// Returns the failure of a node that ran a program.
    pub(super) fn failure(&self, program: &str) -> Failure {
        let kind = match self {
            Self::TimedOut(_) => ErrorKind::Timeout,
            Self::Ended(_) => ErrorKind::Command,
        };
        Failure::new(kind, self.message(&format!("`{program}`")))
    }
}
