//! Runs the program on a bomb.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use nix::sys::resource::{Resource, setrlimit};

use super::generator::{Bomb, Expected};

/// The memory of the program.
const MEMORY_BYTES: u64 = 300_000_000;
/// The exit code of a panic.
const PANICKED: i32 = 101;

/// What came of a bomb.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    output: Output,
}

/// Limits the memory of this process and of those that it starts.
pub(crate) fn limit_memory() {
    setrlimit(Resource::RLIMIT_DATA, MEMORY_BYTES, MEMORY_BYTES).expect("a limit can be lowered");
}

/// Writes the files of a bomb into a folder and runs its command there.
pub(crate) fn run(bomb: &Bomb) -> ProgramRun {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, text) in &bomb.files {
        fs::write(folder.path().join(name), text).expect("a file can be written");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(&bomb.command)
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started");
    ProgramRun { output }
}

impl ProgramRun {
    /// The difference from the expectation, if there is one.
    pub(crate) fn problem(&self, bomb: &Bomb) -> Option<String> {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let told = text(&self.output.stdout) + &text(&self.output.stderr);
        let contains = |part: &str| !self.output.status.success() && told.contains(part);
        let is_whole = self.output.status.code().is_some_and(|it| it != PANICKED);
        let is_right = is_whole
            && match bomb.expected {
                Expected::Limit(limit) => contains(&format!("limit `{limit}`")),
                Expected::Refused(part) => contains(part),
                Expected::Answer => true,
            };
        let shown: String = told.chars().take(600).collect();
        (!is_right).then(|| {
            format!(
                "{}: {:?}, expected {:?}: {shown}",
                bomb.name, self.output.status, bomb.expected
            )
        })
    }
}
