//! `graphrun memory export`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::terminal::{print_message, print_while_read},
        process::runtime::block_on,
    },
    memory::{Entry, Listing},
};

/// The version of the lines.
pub(super) const VERSION: u32 = 1;

/// An entry in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryLine {
    pub(super) v: u32,
    pub(super) entry: Entry,
}

/// Print entries, one JSON object a line, for `memory import`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Export only this tier
    tier: Option<String>,
}

impl Args {
    /// Prints all entries that have not expired, the newest first.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            // The format is always JSON lines.
            globals.expect_output("memory export", &[Output::Text, Output::Jsonl])?;
            let memory = globals.memory_to_read()?;
            let Some(store) = memory.open_memory()? else {
                print_message(&memory.memory_absence());
                return Ok(Exit::Done);
            };
            let mut listing = Listing { tier: self.tier, ..Listing::all(Timestamp::now()) };
            loop {
                let page = store.list(&listing).await?;
                let Some(last) = page.last() else { return Ok(Exit::Done) };
                listing.after = Some((last.updated, last.id.clone()));
                for entry in page {
                    let line = serde_json::to_string(&EntryLine { v: VERSION, entry })
                        .expect("entries can always be written as JSON");
                    if !print_while_read(&format!("{line}\n")).map_err(CliError::write)? {
                        return Ok(Exit::Done);
                    }
                }
            }
        })
    }
}
