//! `graphrun memory approve ID…`.

use jiff::Timestamp;

use super::{find_all, open_to_change};
use crate::cli::{
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::terminal::print_message,
    people::person::who,
    process::runtime::block_on,
};

/// Approve entries: they stay, and runs do not change them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The ids of the entries, or their first digits
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Args {
    /// Approves entries. All of them are looked up before the first is approved.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("memory approve", &[Output::Text])?;
            let store = open_to_change(globals)?;
            let found = find_all(store.as_ref(), &self.ids).await?;
            let now = Timestamp::now();
            if let Some(entry) = found.iter().find(|it| it.is_expired(now)) {
                return Err(CliError::usage(format!("the entry `{}` has expired", entry.id))
                    .with_help("add it again with `graphrun memory add`"));
            }
            for entry in found {
                store.approve(&entry.id, &who(), now).await?;
                print_message(&format!("approved {}", entry.id));
            }
            Ok(Exit::Done)
        })
    }
}
