//! The built program, run in a separate folder and without the keys of the user who runs the tests.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, BufRead, BufReader, Lines, Write as _},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder in which programs run.
pub(crate) struct Place(TempDir);

/// A run of the workflow `agent` that waits for its provider.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

/// The output and the exit code of a program.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    /// Creates a new, empty folder.
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder can be made"))
    }

    /// Returns a path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns whether programs left nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(self.0.path()).expect("the folder is there").next().is_none()
    }

    /// Returns the command, not started yet.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null()).env_clear();
        // Programs need to find their tools, and `doctor` needs a folder for its cache.
        for kept in ["PATH", "HOME"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.envs(self.own_folders());
        command
    }

    /// Returns the variables that isolate programs from the configuration and trust of the user who
    /// runs the tests.
    pub(crate) fn own_folders(&self) -> [(&'static str, PathBuf); 2] {
        ["XDG_CONFIG_HOME", "XDG_STATE_HOME"].map(|it| (it, self.path(&format!(".{it}"))))
    }

    /// Runs the program and waits for its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        self.run_with(args, [])
    }

    /// Runs the program with some variables and waits for its end.
    pub(crate) fn run_with<S: AsRef<OsStr>, const N: usize>(
        &self,
        args: impl IntoIterator<Item = S>,
        variables: [(&str, &str); N],
    ) -> Ended {
        Ended::of(self.command(args).envs(variables))
    }

    /// Runs a workflow that finishes, and returns the name of the run.
    pub(crate) fn execute(&self, name: &str) -> String {
        let args = ["execute", &workflow(name), "-i", "brief=x", "--output", "json"];
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{ended}");
        ended.json()["name"].as_str().expect("a run has a name").to_owned()
    }
}

impl Running {
    /// Starts the run, with a provider of the test.
    pub(crate) fn start(place: &Place, provider: &TcpListener) -> Self {
        let address = provider.local_addr().expect("the provider listens");
        let args = ["execute", &workflow("agent"), "-i", "brief=x", "--output", "json"];
        let mut command = place.command(args);
        command.env("OPENAI_BASE_URL", format!("http://{address}/v1"));
        Self::of(with_default_hangup(&command))
    }

    /// Starts the program.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        Self { child, lines: BufReader::new(stderr).lines() }
    }

    /// Reads progress until a line contains this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        assert!(lines.any(|it| it.contains(text)), "`{text}` never came");
    }

    /// Writes lines to stdin, which is a pipe, and closes it.
    pub(crate) fn write(&mut self, lines: &str) {
        let mut stdin = self.child.stdin.take().expect("stdin is a pipe");
        stdin.write_all(lines.as_bytes()).expect("the program reads stdin");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.child.id()).expect("ids of processes are small");
        kill(Pid::from_raw(process), signal).expect("the program runs");
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and returns all unread output.
    pub(crate) fn rest(mut self) -> Ended {
        let stderr = self
            .lines
            .by_ref()
            .map_while(Result::ok)
            .fold(String::new(), |all, it| all + &it + "\n");
        let stdout = self.child.stdout.take().expect("stdout is a pipe");
        let stdout = io::read_to_string(stdout).expect("the program writes UTF-8");
        let status = self.child.wait().expect("the program ends");
        Ended { code: status.code().expect("no signal ended it"), stdout, stderr }
    }

    /// Waits for the end, and returns the exit code and the result.
    pub(crate) fn end(mut self) -> (Option<i32>, Value) {
        let stdout = self.child.stdout.take().expect("stdout is a pipe");
        let result = io::read_to_string(stdout).expect("the program writes UTF-8");
        let status = self.child.wait().expect("the program ends");
        let result = serde_json::from_str(&result);
        (status.code(), result.expect("the result is JSON"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test must not leave a program that waits forever.
        drop(self.child.kill());
    }
}

impl Ended {
    /// Runs a program and waits for its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the program starts");
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Returns the result as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit {code}\nstdout:\n{stdout}stderr:\n{stderr}")
    }
}

/// Returns a command whose program does not ignore SIGHUP, even if the tests run under `nohup`.
fn with_default_hangup(program: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(program.get_program()).args(program.get_args());
    command.current_dir(program.get_current_dir().expect("the program has a folder"));
    command.env_clear().envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
    command
}

/// Returns the path of a workflow beside this file.
pub(crate) fn workflow(name: &str) -> String {
    format!("{}/tests/cli/workflows/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the keys of an object, in order.
pub(crate) fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the program writes UTF-8")
}
