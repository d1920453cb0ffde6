//! Reads a table for an evaluation: one JSON object a line, each with the input and the expectation of a run.
//!
//! An expectation has the form that it has in a case, and is checked in the same way.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceFile, SourceSpan},
    graph::Graph,
    state::read_json,
};
use graphrun_guard::{
    beneath::{read_named, without_mark},
    data_limit::DataLimit,
};
use serde_json::{Map, Value};

use super::{Expectation, accesses, read::Reading};
use crate::{
    LoadError, Workflow,
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The keys of a row, which are some of those of a case.
const ROW_KEYS: &[&str] = &["name", "about", "input", "expect"];

/// A row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name; without one, the number of the line.
    pub name: String,
    /// The input of the run.
    pub input: Map<String, Value>,
    /// The expectation; without one, the run should be done.
    pub expect: Option<Expectation>,
    /// The line in the file.
    pub span: SourceSpan,
}

/// Reads a table for a workflow and its graph. The returned diagnostics are warnings.
///
/// # Errors
///
/// Fails when the file cannot be read, or with all diagnostics if one of them is an error.
pub fn read_table(
    path: &Path,
    workflow: &Workflow,
    graph: &Graph,
) -> Result<(Vec<Row>, Diagnostics), LoadError> {
    let text = read_named(path, DataLimit::InputBytes)
        .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
    let text = without_mark(text);
    let file = Arc::new(SourceFile { name: path.display().to_string(), text });
    let report = Report::new(Arc::clone(&file));
    let accesses = accesses(workflow, graph);
    let mut reading = Reading { report, workflow, graph, accesses, folder: path.into() };
    let mut names = BTreeMap::new();
    let mut rows = Vec::new();
    let mut start = 0;
    for (at, line) in file.text.split_inclusive('\n').enumerate() {
        let range = start..start + line.trim_end().len();
        start += line.len();
        if !line.trim().is_empty() {
            rows.extend(reading.row(&file.text[range.clone()], &range, at + 1, &mut names));
        }
    }
    if rows.is_empty() && !reading.report.has_errors() {
        let diagnostic = Diagnostic::error("GR006", "the table has no rows");
        let help = "write one JSON object a line, as in `{\"input\": {}}`";
        reading.report.push(diagnostic.at(reading.report.span(&(0..0)), "here").help(help));
    }
    reading.report.into_diagnostics().or_ok(rows).map_err(LoadError::Invalid)
}

impl Reading<'_> {
    fn row(
        &mut self,
        line: &str,
        range: &Range<usize>,
        number: usize,
        names: &mut BTreeMap<String, SpannedText>,
    ) -> Option<Row> {
        let value = match read_json(line) {
            Ok(value) => value,
            Err(error) => {
                let message = format!("the line is not a JSON object: {error}");
                let span = self.report.span(range);
                let diagnostic = Diagnostic::error("GR001", message).at(span, "this line");
                self.report.push(diagnostic.help("write each row as one JSON object in one line"));
                return None;
            }
        };
        let yaml = with_range(&value, range);
        let section = Section::read_known(&mut self.report, &yaml, "a row", ROW_KEYS)?;
        let name = match section.get("name") {
            Some(name) => self.report.word(name, "`name`")?,
            None => SpannedText { text: number.to_string(), range: range.clone() },
        };
        self.refuse_name_twice(&name, names);
        let help = "give the row the input of its run: `\"input\": {}`";
        let written = section.require(&mut self.report, "input", help)?;
        let Some(Value::Object(input)) = value.get("input") else {
            self.report.wrong_kind(written, "`input`", "a mapping from fields to values");
            return None;
        };
        let expect = match section.get("expect") {
            Some(expect) => {
                self.refuse_prompts(expect);
                Some(self.expectation(expect, &[])?)
            }
            None => None,
        };
        Some(Row { name: name.text, input: input.clone(), expect, span: self.report.span(range)? })
    }

    /// A run keeps no prompts, so only a case can expect parts of them.
    fn refuse_prompts(&mut self, expect: &Yaml) {
        if let Some(prompts) = expect.get("prompts") {
            let span = self.report.span(&prompts.range);
            let diagnostic = Diagnostic::error("GR003", "a row of a table expects no `prompts`");
            let help = "test prompts in a case of `WORKFLOW.test.yaml`";
            self.report.push(diagnostic.at(span, "in this row").help(help));
        }
    }
}

/// Turns JSON into the tree that cases are read from. Each part has the place of its line.
fn with_range(value: &Value, range: &Range<usize>) -> Yaml {
    let scalar = |text: String, plain| Data::Scalar { text, plain };
    let data = match value {
        Value::Null => Data::Null,
        Value::Bool(value) => scalar(value.to_string(), true),
        Value::Number(value) => scalar(value.to_string(), true),
        Value::String(text) => scalar(text.clone(), false),
        Value::Array(items) => Data::List(items.iter().map(|it| with_range(it, range)).collect()),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| Entry {
                key: SpannedText { text: key.clone(), range: range.clone() },
                value: with_range(value, range),
            };
            Data::Map(entries.iter().map(entry).collect())
        }
    };
    Yaml { range: range.clone(), data }
}
