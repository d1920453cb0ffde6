//! The files with test cases of a workflow: `NAME.test.yaml` beside `NAME.yaml`.
//!
//! They are read with the same places and diagnostics as workflows. A [`Draft`] contains the path of
//! the workflow under test. With the graph of that workflow, [`Draft::check`] turns it into a
//! [`CaseFile`], in which every name is known and every value fits. Other modules run it.

mod access;
mod answers;
mod beginning;
mod calls;
mod expect;
mod read;
mod table;
mod values;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceFile, SourceSpan},
    event::Status,
    graph::Failure,
    id::{ChannelName, NodeName},
    state::Update,
};
use graphrun_guard::{
    beneath::{BeneathError, read_named, without_mark},
    data_limit::DataLimit,
};
use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::expect::STATUSES;
pub use self::{
    access::{ComputedField, accesses, computed},
    beginning::Beginning,
    calls::{ScriptedAgent, ScriptedCall},
    read::unknown_nodes,
    table::{Row, read_table},
};
use super::{
    LoadError,
    source::{
        files::{Buffers, SourceFolder},
        reader::{self, Yaml},
        report::Report,
    },
};

/// The suffix of the name of such a file.
pub const SUFFIX: &str = ".test.yaml";

/// The time at which a case runs that names none.
const NOW: &str = "2025-01-01T00:00:00Z";

/// A file of cases that is parsed, but not yet checked against its workflow.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    report: Report,
    /// `None` if the file cannot be parsed; then it has diagnostics.
    root: Option<Yaml>,
}

/// The cases of a workflow.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// The cases in the order of the file; at least one.
    pub cases: Vec<Case>,
}

/// One test case: the input of a run, its scripted answers, and the expectations.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the case: the claim that it tests.
    pub name: String,
    /// The place where it begins.
    pub span: SourceSpan,
    /// The input of the run.
    pub input: Update,
    /// The start of the run, apart from its input.
    pub beginning: Beginning,
    /// The time at which it takes place.
    pub now: Timestamp,
    /// The nodes before which the run stops.
    pub until: Vec<ExpectedValue<NodeName>>,
    /// The scripted answers of nodes, used instead of running them.
    pub answers: BTreeMap<NodeName, Answers>,
    /// A recording that answers for models.
    pub replay: Option<PathBuf>,
    /// The limit of steps of the run, in place of that of the workflow.
    pub steps: Option<u64>,
    /// The expectations.
    pub expect: Expectation,
}

/// The scripted answers of a node.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The place in the file.
    pub span: SourceSpan,
    /// Whether they are for every case of the file. Then a case may need fewer of them.
    pub is_common: bool,
    /// The visits they are for.
    pub turns: Turns,
}

/// The visits that the answers of a node are for.
#[derive(Clone, Debug)]
pub enum Turns {
    /// The same one on every visit.
    Always(Answer),
    /// One a visit. Each lists its attempts, of which the last is final.
    Visits(Vec<Vec<Answer>>),
}

/// The scripted answer of one attempt.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The node writes this update.
    Writes(Update),
    /// The node, an agent, runs with a scripted model.
    Calls(Arc<ScriptedAgent>),
    /// The node fails.
    Fails(Failure),
    /// A person gives this answer to its question.
    Says(Value),
}

/// The expectations of a run. Only the status is always checked; the rest is checked if given.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The status of the run at its end.
    pub status: ExpectedValue<Status>,
    /// A part of the reason.
    pub reason: Option<ExpectedValue<String>>,
    /// The nodes that run, step by step.
    pub route: Option<ExpectedValue<Vec<Stage>>>,
    /// The values in the final state, each by its path. A record may list only some of its fields.
    pub state: Vec<ExpectedValue<(Vec<String>, Value)>>,
    /// The fields that hold nothing at the end.
    pub unset: Vec<ExpectedValue<ChannelName>>,
    /// How often nodes run.
    pub visits: Vec<ExpectedValue<(NodeName, usize)>>,
    /// The events that `emits` reports, in this order; other events may come between.
    pub events: Vec<ExpectedValue<String>>,
    /// The nodes that do not run.
    pub never: Vec<ExpectedValue<NodeName>>,
    /// Parts of the prompts of nodes.
    pub prompts: Vec<ExpectedValue<(NodeName, PromptParts)>>,
}

/// The expected parts of the prompts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptParts {
    /// A text that the prompt of each visit contains.
    Each(String),
    /// A text for each visit, in their order.
    Visits(Vec<String>),
}

/// An expected value and its place in the file.
#[derive(Clone, Debug)]
pub struct ExpectedValue<T> {
    /// The value.
    pub value: T,
    /// The place in the file.
    pub span: SourceSpan,
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
    /// Fails when the file cannot be read. [`Draft::check`] reports the mistakes in its content.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let text = read_named(path, DataLimit::FileBytes)
            .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
        let text = without_mark(text);
        Ok(Self::of(path, Arc::new(SourceFile { name: path.display().to_string(), text })))
    }

    /// Reads the text of a file, which may be unsaved.
    pub fn of(path: &Path, file: Arc<SourceFile>) -> Self {
        let mut report = Report::new(file);
        let root = reader::read(&mut report);
        Self { path: path.to_owned(), report, root }
    }

    /// Returns the workflow under test: as the file says, or the one of the same name.
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

    /// Returns the diagnostics of a file whose workflow fails to load for this reason.
    pub fn without_workflow(mut self, reason: &str) -> Diagnostics {
        if !self.report.has_errors() {
            let written = self.root.as_ref().map(|it| it.get("workflow").unwrap_or(it));
            let start = written.map_or(0, |it| it.range.start);
            let line = self.report.file.text.get(start..).unwrap_or_default();
            let end = start + line.find('\n').unwrap_or(line.len());
            let message = format!("`{}` does not load: {reason}", self.workflow().display());
            let span = self.report.span(&(start..end));
            let diagnostic = Diagnostic::error("GR080", message).at(span, "the cases are for it");
            self.report.push(diagnostic.help("name another with `workflow: FILE.yaml`, or fix it"));
        }
        self.report.into_diagnostics()
    }
}
