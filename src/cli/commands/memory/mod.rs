//! `graphrun memory …`: shows and manages the memory across runs. Reading creates no database.

mod add;
mod approve;
mod export;
mod import;
mod list;
mod rm;
mod search;
mod show;

use std::sync::Arc;

use crate::{
    cli::{
        arguments::globals::Globals,
        error::CliError,
        exit::Exit,
        output::{
            terminal::Paint,
            words::{clean, table},
        },
    },
    memory::{Approval, Entry, Source, Store},
};

/// List, search, approve and remove what runs have learnt
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        List(list::Args),
        Search(search::Args),
        Show(show::Args),
        Add(add::Args),
        Approve(approve::Args),
        Rm(rm::Args),
        Export(export::Args),
        Import(import::Args),
    }
}

impl Args {
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        self.command.run(globals)
    }
}

/// Opens the memory for a command that changes an entry, which needs an existing one.
fn open_to_change(globals: &Globals) -> Result<Arc<dyn Store>, CliError> {
    let memory = globals.memory()?;
    memory.open_memory()?.ok_or_else(|| absent(memory.memory_absence()))
}

fn absent(reason: String) -> CliError {
    CliError::usage(reason).with_help(
        "change to the folder where the runs were started, or name the memory with `--memory`",
    )
}

/// Returns the entry whose id begins with a text.
async fn find(store: &dyn Store, id: &str) -> Result<Entry, CliError> {
    let help = "`graphrun memory list` lists the entries with their ids";
    let mut found = if id.is_empty() { Vec::new() } else { store.find(id).await? };
    match (found.pop(), found.pop()) {
        (Some(entry), None) => Ok(entry),
        (None, _) => Err(CliError::usage(format!("there is no entry `{id}`")).with_help(help)),
        (Some(_), Some(_)) => {
            let message = format!("the ids of several entries begin with `{id}`");
            Err(CliError::usage(message).with_help("give more digits of the id"))
        }
    }
}

/// Returns the entries whose ids begin with these texts, each once, or an error for the first text without exactly one entry.
async fn find_all(store: &dyn Store, ids: &[String]) -> Result<Vec<Entry>, CliError> {
    let mut found: Vec<Entry> = Vec::new();
    for id in ids {
        let entry = find(store, id).await?;
        if found.iter().all(|it| it.id != entry.id) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Returns entries as a table.
fn draw(entries: &[Entry], paint: Paint) -> String {
    let header = ["id", "tier", "module", "status", "updated", "text"];
    let header = header.map(|it| paint.faint(it)).to_vec();
    let row = |entry: &Entry| {
        vec![
            entry.id.to_string(),
            clean(&entry.tier),
            clean(entry.module.as_deref().unwrap_or("-")),
            status(entry),
            format!("{:.0}", entry.updated),
            clean(&entry.text),
        ]
    };
    table(&std::iter::once(header).chain(entries.iter().map(row)).collect::<Vec<_>>())
}

/// Returns whether an entry is approved, and when it ends.
fn status(entry: &Entry) -> String {
    let until = entry.expires.map(|it| format!("until {it:.0}"));
    match (entry.approval, until) {
        (Approval::Approved, _) => "approved".to_owned(),
        (Approval::Pending, Some(until)) => format!("pending, {until}"),
        (Approval::Pending, None) => "pending".to_owned(),
        (Approval::None, until) => until.unwrap_or_else(|| "kept".to_owned()),
    }
}

/// Returns the writer of an entry.
fn source(entry: &Entry) -> String {
    match &entry.source {
        Source::Person { name } => name.clone(),
        Source::Run { workflow, run, node } => format!("{node} of {workflow}, run {run}"),
    }
}
