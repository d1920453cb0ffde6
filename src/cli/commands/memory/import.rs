//! `graphrun memory import FILE`.

use std::path::PathBuf;

use serde_json::json;

use super::export::{EntryLine, VERSION};
use crate::{
    beneath::read_named,
    cli::{
        arguments::{
            globals::{Globals, Output},
            keys::redact_given,
        },
        error::CliError,
        exit::Exit,
        output::{terminal::print_message, words::count},
        process::runtime::block_on,
    },
    data_limit::DataLimit,
    memory::{ENTRIES_MAX, Entry, EntryId},
};

/// The most invalid lines that are reported.
const PROBLEMS_MAX: usize = 20;

/// Add the entries of a file that `memory export` wrote; they replace entries with the same ids
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file, with one JSON object a line
    file: PathBuf,
}

impl Args {
    /// Imports a file whose lines are all valid, and creates the memory if it is missing.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory import", &[Output::Text])?;
            let text = read_named(&self.file, DataLimit::InputBytes)
                .map_err(|error| CliError::read(&self.file, error.into()))?;
            let mut entries = Vec::new();
            let mut problems = Vec::new();
            for (number, line) in (1..).zip(text.lines()).filter(|(_, it)| !it.trim().is_empty()) {
                match read(line) {
                    Ok(entry) => entries.push(without_keys(number, entry)),
                    Err(problem) => problems.push(format!("line {number}: {problem}")),
                }
            }
            if !problems.is_empty() {
                let more = problems.len().saturating_sub(PROBLEMS_MAX);
                problems.truncate(PROBLEMS_MAX);
                if more > 0 {
                    problems.push(format!("and {more} more"));
                }
                let message = format!(
                    "`{}` has lines that are no entries; nothing was imported",
                    self.file.display()
                );
                return Err(CliError::usage(message)
                    .with_problems(problems)
                    .with_help("import a file that `graphrun memory export` wrote"));
            }
            let store = globals.memory()?.create_memory()?;
            for some in entries.chunks(ENTRIES_MAX) {
                store.import(some).await?;
            }
            let imported = count(entries.len() as u64, "line");
            print_message(&format!("imported {imported} of {}", self.file.display()));
            Ok(Exit::Done)
        })
    }
}

/// Reads a line. The id must be that of the text, so that a later write finds the entry.
fn read(line: &str) -> Result<Entry, String> {
    let value: serde_json::Value =
        serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    match value.get("v").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => (),
        Some(version) => {
            return Err(format!("version {version} is not known; this program reads 1"));
        }
        None => return Err("the version is missing: expected {\"v\":1,\"entry\":…}".to_owned()),
    }
    let EntryLine { entry, .. } =
        serde_json::from_value(value).map_err(|error| error.to_string())?;
    let id = EntryId::of(&entry.tier, entry.module.as_deref(), &entry.text);
    if id != entry.id {
        return Err(format!("the id is {}, and the id of this text is {id}", entry.id));
    }
    entry.check().map_err(|error| error.to_string())?;
    Ok(entry)
}

/// Redacts keys in an entry, as `memory add` does. The id follows the text.
fn without_keys(line: usize, mut entry: Entry) -> Entry {
    let mut texts = json!([entry.text, entry.value]);
    redact_given(&format!("line {line}"), &mut texts);
    if let Some(text) = texts[0].as_str() {
        text.clone_into(&mut entry.text);
    }
    entry.value = entry.value.map(|_| texts[1].take());
    entry.id = EntryId::of(&entry.tier, entry.module.as_deref(), &entry.text);
    entry
}
