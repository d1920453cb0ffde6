//! `graphrun memory rm ID…`.

use super::{find_all, open_to_change};
use crate::cli::{
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::terminal::print_message,
    process::runtime::block_on,
};

/// Remove entries
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The ids of the entries, or their first digits
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Args {
    /// Removes entries. All of them are looked up before the first is removed.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory rm", &[Output::Text])?;
            let store = open_to_change(globals)?;
            for entry in find_all(store.as_ref(), &self.ids).await? {
                store.remove(&entry.id).await?;
                print_message(&format!("removed {}", entry.id));
            }
            Ok(Exit::Done)
        })
    }
}
