//! The files that cases of a workflow are kept in: `NAME.test.yaml` beside `NAME.yaml`.
//!
//! They are read with the same places and findings as workflows. A [`Draft`] knows which workflow
//! its cases are for; with the graph of that workflow, [`Draft::check`] makes a [`CaseFile`] of
//! it, in which every name is known and every value fits. Running it is the business of others.

mod answers;
mod expect;
mod read;
mod sights;
mod values;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

pub use self::sights::{Computed, computed, sights};
use super::{
    LoadError,
    reader::{self, Yaml},
    report::Report,
    source::{Buffers, SourceFolder},
};
use crate::{
    beneath::{BeneathError, read_named},
    data_limit::DataLimit,
    diagnostic::{Diagnostic, Diagnostics, Place, SourceFile},
    event::Status,
    graph::Failure,
    id::{ChannelName, NodeName},
    state::Update,
};

/// How the name of such a file ends.
pub const SUFFIX: &str = ".test.yaml";

/// A file of cases that is read, but not checked against its workflow yet.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    report: Report,
    /// `None` where the file is hopeless; then it has findings.
    root: Option<Yaml>,
}

/// The cases of a workflow.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// The cases in the order of the file; at least one.
    pub cases: Vec<Case>,
}

/// One run that is to go as it says.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// Where it begins.
    pub place: Place,
    /// What the run is given.
    pub input: Update,
    /// What nodes answer in place of doing their work.
    pub answers: BTreeMap<NodeName, Answers>,
    /// A recording that answers for models.
    pub replay: Option<PathBuf>,
    /// How the run must go.
    pub expect: Expectation,
}

/// What a node answers.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Where they are written.
    pub place: Place,
    /// When they are given.
    pub turns: Turns,
}

/// When the answers of a node are given.
#[derive(Clone, Debug)]
pub enum Turns {
    /// The same one on every visit.
    Always(Answer),
    /// One a visit, neither more nor less; each with its attempts, of which the last is final.
    Visits(Vec<Vec<Answer>>),
}

/// What a node answers once.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It writes this.
    Writes(Update),
    /// It fails.
    Fails(Failure),
    /// A person answers its question with this.
    Says(Value),
}

/// How a run must go. What is not named may be as it likes, but for the status.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// How it comes to rest.
    pub status: Expected<Status>,
    /// What its reason contains.
    pub reason: Option<Expected<String>>,
    /// What runs, step by step.
    pub route: Option<Expected<Vec<Stage>>>,
    /// What is in its state at the end: a path, and a value, of which a record may name some
    /// fields only.
    pub state: Vec<Expected<(Vec<String>, Value)>>,
    /// The fields that hold nothing at the end.
    pub unset: Vec<Expected<ChannelName>>,
    /// How often nodes run.
    pub visits: Vec<Expected<(NodeName, usize)>>,
    /// What is told of it by `emits`, in this order; others may come between.
    pub events: Vec<Expected<String>>,
    /// The nodes that do not run.
    pub never: Vec<Expected<NodeName>>,
}

/// Something that must be so, and where that is written.
#[derive(Clone, Debug)]
pub struct Expected<T> {
    /// What must be so.
    pub value: T,
    /// Where it is written.
    pub place: Place,
}

/// A part of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One step, in which these nodes run, in the order of their names.
    Step(Vec<NodeName>),
    /// Any number of steps.
    Any,
}

impl Draft {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be read. What is wrong in it is said by [`Draft::check`].
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let text = read_named(path, DataLimit::FileBytes)
            .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
        let file = Arc::new(SourceFile { name: path.display().to_string(), text });
        let mut report = Report::new(file);
        let root = reader::read(&mut report);
        Ok(Self { path: path.to_owned(), report, root })
    }

    /// The workflow that the cases are for: as the file says, or the one of the same name.
    pub fn workflow(&self) -> PathBuf {
        let named = self.root.as_ref().and_then(|it| it.get("workflow")).and_then(Yaml::text);
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let own = format!("{}.yaml", name.strip_suffix(SUFFIX).unwrap_or(&name));
        self.path.with_file_name(named.unwrap_or(&own))
    }

    /// Checks that the workflow lies in the project of the file.
    ///
    /// # Errors
    ///
    /// Fails when it leads out, or is not a regular file.
    pub fn check_workflow(&self) -> Result<(), BeneathError> {
        let path = self.workflow();
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let relative = path.strip_prefix(folder).unwrap_or(&path);
        SourceFolder::of(folder, Buffers::default()).check_file(relative)
    }

    /// The findings of a file whose workflow does not load, for this reason.
    pub fn without_workflow(mut self, reason: &str) -> Diagnostics {
        if !self.report.has_errors() {
            let written = self.root.as_ref().map(|it| it.get("workflow").unwrap_or(it));
            let start = written.map_or(0, |it| it.range.start);
            let line = self.report.file.text.get(start..).unwrap_or_default();
            let end = start + line.find('\n').unwrap_or(line.len());
            let message = format!("`{}` does not load: {reason}", self.workflow().display());
            let place = self.report.place(&(start..end));
            let finding = Diagnostic::error("GR080", message).at(place, "the cases are for it");
            self.report.push(finding.help("name another with `workflow: FILE.yaml`, or mend it"));
        }
        self.report.into_findings()
    }
}
