//! The program as a shell starts it: a child process in a separate folder, with a model server
//! instead of a provider.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod processes;
pub(crate) mod provider;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use graphrun::{checkpoint::CheckpointError, storage::SqliteStorage};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

/// The id of every run in these tests; each run has a separate database.
pub(crate) const RUN: &str = "run-1";

/// The output folder of a run, in its folder.
const OUT: &str = "out";

/// A folder in which the program runs, with its database and its output files.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the program with these arguments, not started yet. It has no access to keys and
    /// databases of the user who runs the tests.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
        command
            .args(arguments)
            .args(["--output", "json", "--progress", "plain"])
            .current_dir(self.0.path())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for kept in ["PATH", "HOME", "XDG_CACHE_HOME"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        // Isolates the program from the configuration and the trust of the user who runs the tests.
        for own in ["XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
            command.env(own, self.0.path().join(format!(".{own}")));
        }
        command
    }

    /// Returns the program that runs the software team, with models at this address.
    pub(crate) fn execute(&self, base_url: &str) -> Command {
        let mut command = self.team(&["--model", "openai/stand-in"]);
        command.env("OPENAI_BASE_URL", base_url);
        command
    }

    /// Returns the program that runs the software team with the models of its file, with one key, at this address.
    pub(crate) fn execute_as_written(&self, base_url: &str) -> Command {
        let mut command = self.team(&[]);
        command.env("OPENAI_BASE_URL", base_url).env("OPENAI_API_KEY", "sk-one");
        command
    }

    /// Returns the program that runs the software team from a recording, without any model server.
    pub(crate) fn replay(&self, recording: &str) -> Command {
        self.team(&["--replay", &recording_path(recording)])
    }

    /// Returns the program that resumes the run, with one key, at this address.
    pub(crate) fn resume_as_written(&self, base_url: &str) -> Command {
        let mut command = self.resume(base_url);
        command.env("OPENAI_API_KEY", "sk-one");
        command
    }

    /// Returns the program that resumes the run, with models at this address.
    pub(crate) fn resume(&self, base_url: &str) -> Command {
        let mut command = self.program(&["resume", RUN]);
        command.env("OPENAI_BASE_URL", base_url);
        command
    }

    fn team(&self, models: &[&str]) -> Command {
        let workflow = in_repository("graphs/dev_team.yaml");
        let brief = brief();
        let mut arguments = vec!["execute", &workflow, "-i", &brief, "--out", OUT, "--run-id", RUN];
        arguments.extend(models);
        self.program(&arguments)
    }

    /// Opens a copy of the database: opening the original would repair the state that the next
    /// process must find.
    pub(crate) fn storage(&self) -> Result<SqliteStorage, CheckpointError> {
        let copy = tempfile::tempdir_in(self.0.path()).unwrap().keep();
        for file in fs::read_dir(self.0.path().join(".graphrun")).into_iter().flatten() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        SqliteStorage::open_existing(copy.join("runs.db"))
    }

    /// Returns every delivered file with its content.
    pub(crate) fn delivered(&self) -> BTreeMap<PathBuf, String> {
        let root = self.0.path().join(OUT);
        let mut files = BTreeMap::new();
        let mut open = vec![root.clone()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let name = path.strip_prefix(&root).unwrap().to_owned();
                    files.insert(name, fs::read_to_string(path).unwrap());
                }
            }
        }
        files
    }
}

/// The result of the program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code; none after a signal.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// Runs the program and waits for its end.
    pub(crate) async fn of(mut program: Command) -> Self {
        program.output().await.unwrap().into()
    }

    /// Returns the printed JSON object. Without one, it fails with the other output.
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the printed JSON object of a run that must be done.
    pub(crate) fn done(&self) -> Value {
        let report = self.report();
        assert_eq!((self.code, &report["status"]), (Some(0), &"done".into()), "{}", self.stderr);
        report
    }
}

/// The lines of a program's stderr.
pub(crate) struct StderrLines {
    lines: Lines<BufReader<ChildStderr>>,
    heard: String,
}

impl StderrLines {
    pub(crate) fn by(program: &mut Child) -> Self {
        let stderr = program.stderr.take().expect("stderr is piped and not taken yet");
        Self { lines: BufReader::new(stderr).lines(), heard: String::new() }
    }

    /// Waits for a line with this text. Fails if the program ends without it.
    pub(crate) async fn until(&mut self, words: &str) {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            self.heard += &line;
            self.heard.push('\n');
            if line.contains(words) {
                return;
            }
        }
        panic!("it ended and never said `{words}`:\n{}", self.heard);
    }

    /// Returns all lines after the program has ended.
    pub(crate) async fn all(mut self) -> String {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            self.heard += &line;
            self.heard.push('\n');
        }
        self.heard
    }
}

/// Sends a signal to a program that has not been waited for.
pub(crate) fn send(program: &Child, signal: Signal) {
    signal::kill(pid_of(program), signal).unwrap();
}

/// Returns the id of a program that has not been waited for.
pub(crate) fn pid_of(program: &Child) -> Pid {
    let id = program.id().expect("it has not been waited for");
    Pid::from_raw(i32::try_from(id).unwrap())
}

/// Returns a value without measured durations, which differ from run to run.
pub(crate) fn timeless(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "duration_seconds");
            fields.values_mut().for_each(|it| *it = timeless(it.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| *it = timeless(it.take())),
        _ => (),
    }
    value
}

pub(crate) fn recording_path(recording: &str) -> String {
    in_repository(&format!("tests/recordings/dev_team/{recording}.jsonl"))
}

pub(crate) fn in_repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).to_str().unwrap().to_owned()
}

fn brief() -> String {
    format!("brief=@{}", in_repository("tests/recordings/dev_team/brief.md"))
}
