//! Runs the program on a bomb.

use std::{
    env, fs,
    io::{self, BufWriter, Write},
    process::{Command, Output, Stdio},
};

use super::generator::{Bomb, Expected};

/// The memory of the program: 300 MB.
const MEMORY_KB: u64 = 300_000_000 / 1024;
/// The exit code of a panic.
const PANICKED: i32 = 101;

/// What came of a bomb.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    output: Output,
}

/// Writes the files of a bomb into a folder and runs its command there.
pub(crate) fn run(bomb: &Bomb) -> ProgramRun {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, text) in &bomb.files {
        fs::write(folder.path().join(name), text).expect("a file can be written");
    }
    if let Some((count, part)) = bomb.list {
        let write = || -> io::Result<()> {
            let mut file = BufWriter::new(fs::File::create(folder.path().join("list.json"))?);
            for at in 0..count {
                let before = if at == 0 { "[" } else { ", " };
                write!(file, "{before}{}", part(at))?;
            }
            write!(file, "]")?;
            file.flush()
        };
        write().expect("a list can be written");
    }
    let program = env::var_os("BOMBED_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_graphrun").into());
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("ulimit -d {MEMORY_KB}; exec \"$0\" \"$@\"")])
        .arg(program)
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
            String::from_utf8_lossy(bytes)
                .split_whitespace()
                .filter(|it| *it != "│")
                .collect::<Vec<_>>()
                .join(" ")
        };
        let told = text(&self.output.stdout) + &text(&self.output.stderr);
        let contains = |part: &str| !self.output.status.success() && told.contains(part);
        let is_whole = self.output.status.code().is_some_and(|it| it != PANICKED);
        let is_right = is_whole
            && match bomb.expected {
                Expected::Limit(limit) => contains(&format!("limit `{limit}`")),
                Expected::Refused(part) => contains(part),
                Expected::Done => self.output.status.success(),
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
