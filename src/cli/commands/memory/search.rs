//! `graphrun memory search TIER WORDS…`.

use jiff::Timestamp;

use super::draw;
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
    memory::Search,
};

/// Search a tier, as a node with `recall` does
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The tier
    tier: String,
    /// The words to look for; an entry needs one of them
    #[arg(required = true)]
    words: Vec<String>,
    /// Find only entries of this module
    #[arg(long)]
    module: Option<String>,
    /// Find at most this many entries
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true,
        value_parser = parse_count::<usize>)]
    limit: usize,
}

impl Args {
    /// Prints the entries, the best first.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory search", &[Output::Text, Output::Json])?;
            let memory = globals.memory_to_read()?;
            let mut entries = Vec::new();
            if let Some(store) = memory.open_memory()? {
                let search = Search::of(self.tier, Timestamp::now()).query(self.words.join(" "));
                let search = Search { module: self.module, limit: self.limit, ..search };
                entries = store.search(&search).await?;
            } else {
                print_message(&memory.memory_absence());
            }
            let text = match globals.output {
                Output::Json => to_json(&entries)?,
                _ if entries.is_empty() => "no entries\n".to_owned(),
                _ => draw(&entries, globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}
