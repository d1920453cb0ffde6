//! `graphrun memory list`.

use jiff::Timestamp;

use super::{draw, find};
use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            values::parse_count,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{print_message, print_result},
        },
        process::runtime::block_on,
    },
    memory::{ENTRIES_MAX, Listing},
};

/// List entries, the newest first
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List only this tier
    tier: Option<String>,
    /// List only entries that wait for approval
    #[arg(long)]
    pending: bool,
    /// List at most this many entries
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true,
        value_parser = parse_count::<usize>)]
    limit: usize,
    /// List only entries after this one, by its id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl Args {
    /// Lists entries that have not expired; prints none if there is no memory.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory list", &[Output::Text, Output::Json])?;
            let memory = globals.memory_to_read()?;
            let limit = self.limit.min(ENTRIES_MAX - 1);
            let mut entries = Vec::new();
            if let Some(store) = memory.open_memory()? {
                let after = match &self.after {
                    Some(id) => Some(find(store.as_ref(), id).await?),
                    None => None,
                };
                let listing = Listing {
                    tier: self.tier,
                    pending: self.pending,
                    after: after.map(|it| (it.updated, it.id)),
                    // One more than the limit shows whether there are more.
                    limit: limit + 1,
                    now: Timestamp::now(),
                };
                entries = store.list(&listing).await?;
            } else {
                print_message(&memory.memory_absence());
            }
            let more = entries.len() > limit;
            entries.truncate(limit);
            let text = match globals.output {
                Output::Json => to_json(&entries)?,
                _ if entries.is_empty() => "no entries\n".to_owned(),
                _ => draw(&entries, globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            if let Some(last) = entries.last().filter(|_| more) {
                print_message(&format!("there are more: graphrun memory list --after {}", last.id));
            }
            Ok(Exit::Done)
        })
    }
}
