//! `graphrun memory show ID`.

use super::{absent, find, source, status};
use crate::cli::{
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::{
        json::to_json,
        terminal::{print_result, shown},
        words::{clean, table},
    },
    process::runtime::block_on,
};

/// Show an entry with its source
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The id of the entry, or its first digits
    id: String,
}

impl Args {
    /// Prints everything that is known about an entry.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory show", &[Output::Text, Output::Json])?;
            let memory = globals.memory_to_read()?;
            let store = memory.open_memory()?.ok_or_else(|| absent(memory.memory_absence()))?;
            let entry = find(store.as_ref(), &self.id).await?;
            let text = if globals.output == Output::Json {
                to_json(&entry)?
            } else {
                let confidence = entry.confidence.map(|it| it.to_string());
                let rows = [
                    ("id", Some(entry.id.to_string())),
                    ("tier", Some(entry.tier.clone())),
                    ("module", entry.module.clone()),
                    ("status", Some(status(&entry))),
                    ("approved by", entry.approved_by.clone()),
                    ("confidence", confidence),
                    ("written by", Some(source(&entry))),
                    ("created", Some(format!("{:.0}", entry.created))),
                    ("updated", Some(format!("{:.0}", entry.updated))),
                    ("value", entry.value.as_ref().map(ToString::to_string)),
                ];
                let row = |(name, it): (&str, Option<String>)| {
                    Some(vec![globals.stdout.faint(name), clean(&it?)])
                };
                let rows: Vec<Vec<String>> = rows.into_iter().filter_map(row).collect();
                format!("{}\n{}\n", table(&rows), shown(&entry.text))
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}
