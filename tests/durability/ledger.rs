//! The ledger: a file outside any database that records the work of nodes. Each line is whole or absent, also
//! after a kill.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::Path,
    process,
};

use graphrun::graph::NodeContext;

/// The lines that nodes have written, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ledger(Vec<Line>);

/// A line: a node began its work, or ended it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) word: String,
    pub(crate) task: String,
    pub(crate) attempt: u32,
    pub(crate) process: u32,
}

/// Adds a whole line.
pub(crate) fn write(path: &Path, word: &str, ctx: &NodeContext) {
    let line = format!("{word} {} {} {}\n", ctx.task, ctx.attempt, process::id());
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut it| it.write_all(line.as_bytes())).expect("the ledger can be written");
}

impl Ledger {
    pub(crate) fn read(path: &Path) -> Self {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.expect("the ledger can be read"),
        };
        Self(text.lines().map(Line::parse).collect())
    }

    /// Returns how often each attempt of each task began.
    pub(crate) fn begun(&self) -> BTreeMap<(&str, u32), usize> {
        let mut begun = BTreeMap::new();
        for line in self.0.iter().filter(|it| it.word == "begin") {
            *begun.entry((line.task.as_str(), line.attempt)).or_default() += 1;
        }
        begun
    }

    /// Returns how often a part of a task was done.
    pub(crate) fn done(&self, part: &str, task: &str) -> usize {
        self.0.iter().filter(|it| it.word == part && it.task == task).count()
    }

    /// Returns how often each task began.
    pub(crate) fn begun_of(&self, task: &str) -> usize {
        self.0.iter().filter(|it| it.word == "begin" && it.task == task).count()
    }
}

impl Line {
    fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.split(' ').collect();
        let [word, task, attempt, process] = parts[..] else { panic!("`{text}` is no line") };
        let number = |it: &str| it.parse().expect("it was written as a number");
        Self {
            word: word.to_owned(),
            task: task.to_owned(),
            attempt: number(attempt),
            process: number(process),
        }
    }
}
