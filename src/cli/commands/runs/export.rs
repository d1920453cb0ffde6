//! `graphrun runs export RUN`.

use serde_json::{Value, json};

use crate::{
    checkpoint::{Detail, Entry, JournalEntry, RunInfo},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::terminal::print_result,
        process::runtime::block_on,
    },
};

/// The version of the lines.
const VERSION: u32 = 1;

/// How many entries are read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// Print all saved data of a run, one JSON object per entry
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
}

impl Args {
    /// Prints everything that is saved of a run as JSON: first its info, then one line per entry.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            // The format is always JSON lines.
            globals.expect_output("runs export", &[Output::Text, Output::Jsonl])?;
            let checkpointer = globals.database_to_read()?.open_for(&self.run)?;
            let info = checkpointer.find(&self.run).await?.info;
            print(&head(&info))?;
            let mut number = 0;
            loop {
                let entries =
                    checkpointer.entries(&info.id, number, ENTRIES_AT_ONCE, Detail::Whole).await?;
                let Some(last) = entries.last() else { return Ok(Exit::Done) };
                number = last.number;
                entries.iter().try_for_each(|it| print(&line(it)))?;
            }
        })
    }
}

fn print(line: &Value) -> Result<(), CliError> {
    print_result(&format!("{line}\n")).map_err(CliError::write)
}

fn head(info: &RunInfo) -> Value {
    json!({"v": VERSION, "entry": 0, "run": info})
}

fn line(logged: &JournalEntry) -> Value {
    let JournalEntry { number, hash, entry } = logged;
    let Entry { records, commit, migration, run_status, events } = entry;
    let commit = commit.as_ref().map(|it| json!({"position": it.position, "changes": it.changes}));
    let mut line = json!({
        "v": VERSION,
        "entry": number,
        "hash": hash,
        "records": records,
        "commit": commit,
        "run_status": run_status,
        "events": events,
    });
    if let Some(migration) = migration {
        line["migration"] = json!(migration);
    }
    line
}
