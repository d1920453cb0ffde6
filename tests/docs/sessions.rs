//! Runs the `console` blocks of pages whose files are all on the page.

use std::{
    fmt::Write,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::docs::{
    check_generated,
    page::{self, Page},
};

/// The names that runs have on a page, in the order in which they begin.
const NAMES: &[&str] = &["calm-otter", "brave-turtle", "keen-heron", "quiet-lynx", "warm-finch"];

/// The other pages that show sessions need files which are not on the page.
fn has_sessions(page: &Page) -> bool {
    page.path == Path::new("docs/getting-started.md")
        || page.path == Path::new("docs/models.md")
        || page.path == Path::new("docs/sandbox.md")
        || page.path.starts_with("docs/cookbook")
}

#[test]
fn sessions_have_the_output_that_the_page_shows() {
    let mut count = 0;
    for page in page::all().iter().filter(|it| has_sessions(it)) {
        let (text, commands) = performed(page);
        check_generated(&page.path, &text);
        count += commands;
    }
    assert!(count > 20, "only {count}");
}

/// A folder in which the commands of a page run.
struct Session {
    folder: TempDir,
    /// The real names of its runs.
    runs: Vec<String>,
}

/// Returns the page with the real output of its commands, and the number of commands.
fn performed(page: &Page) -> (String, usize) {
    let mut session = Session::new();
    let mut text = page.text.clone();
    let mut commands = 0;
    for block in page.blocks() {
        if let Some(name) = block.file {
            let path = session.folder.path().join("work").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, block.code).unwrap();
        }
        if block.language == "console" {
            let mut code = String::new();
            for line in block.code.lines().filter_map(|it| it.strip_prefix("$ ")) {
                let shown = session.run(line);
                write!(code, "$ {line}\n{shown}").unwrap();
                commands += 1;
            }
            if !is_alike(block.code, &code) {
                text = text.replacen(block.code, &code, 1);
            }
        }
    }
    (text, commands)
}

/// Returns whether two outputs differ only in the widths of columns.
fn is_alike(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        text.lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>()
    };
    words(one) == words(other)
}

impl Session {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["work", "home", "bin"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        // A page leaves the progress out, because it has times.
        let program = folder.path().join("bin/graphrun");
        let script =
            format!("#!/bin/sh\nexec {} --progress none \"$@\"\n", env!("CARGO_BIN_EXE_graphrun"));
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, runs: Vec::new() }
    }

    /// Runs a line of a page, and returns its output as the page shows it.
    fn run(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (real, shown) in self.runs.iter().zip(NAMES) {
            line = line.replace(shown, real);
        }
        let mut output = self.shell(&format!("{{ {line}\n}} 2>&1"));
        self.look_for_runs();
        for (real, shown) in self.runs.iter().zip(NAMES) {
            output = output.replace(real, shown);
        }
        let output = output.replace(&*self.folder.path().join("work").to_string_lossy(), ".");
        steady(&output)
    }

    fn shell(&self, line: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let ended = Command::new("sh")
            .args(["-c", line])
            .current_dir(self.folder.path().join("work"))
            .env_clear()
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()))
            .env("HOME", self.folder.path().join("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(ended.stdout).unwrap()
    }

    /// Adds the runs that have begun since the last time.
    fn look_for_runs(&mut self) {
        if !self.folder.path().join("work/.graphrun").exists() {
            return;
        }
        let listed = self.shell("graphrun runs list --output json");
        let listed: Value = serde_json::from_str(&listed).unwrap();
        for run in listed.as_array().unwrap().iter().rev() {
            let name = run["name"].as_str().unwrap().to_owned();
            if !self.runs.contains(&name) {
                self.runs.push(name);
            }
        }
        assert!(self.runs.len() <= NAMES.len(), "the page has more runs than names for them");
    }
}

/// Replaces what differs from run to run: ids, times of day and durations.
fn steady(output: &str) -> String {
    let mut text = String::new();
    for line in output.lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            let bare = words[at].trim_matches(|it: char| !it.is_ascii_alphanumeric()).to_owned();
            if is_run_id(&bare) {
                words[at] = words[at].replace(&bare, "01K…");
            } else if is_time(&bare) {
                words[at] = words[at].replace(&bare, "12:00:00");
            } else if bare.parse::<jiff::Timestamp>().is_ok() {
                words[at] = words[at].replace(&bare, "2026-01-31T12:00:00Z");
            } else if bare == "ms" && at > 0 && words[at - 1].parse::<u64>().is_ok() {
                "1".clone_into(&mut words[at - 1]);
            }
        }
        text.push_str(words.join(" ").trim_end());
        text.push('\n');
    }
    text
}

fn is_run_id(word: &str) -> bool {
    word.len() == 26 && word.starts_with("01") && word.chars().all(|it| it.is_ascii_alphanumeric())
}

fn is_time(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    parts.len() == 3 && parts.iter().all(|it| it.len() == 2 && it.parse::<u8>().is_ok())
}
