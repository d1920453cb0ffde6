//! `graphrun mcp lock WORKFLOW`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::{AllowedAccess, look_at_all};
use crate::{
    beneath::{read_named, write_beside},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{print_message, print_result},
            words::{count, escaped},
        },
    },
    data_limit::{DataLimit, DataLimitReached},
    workflow::{LockedServer, LockedTool, McpLock},
};

/// Start the servers of a workflow, and write their tools and prompts to its lock file
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow
    workflow: PathBuf,
    #[command(flatten)]
    allowed: AllowedAccess,
    /// Write nothing; fail if a tool or a prompt differs from the lock file
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Prints each tool and prompt that the lock file does not have in this form, with its description, and writes the
    /// file.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("mcp lock", &[Output::Text])?;
        let offers = look_at_all(&self.workflow, self.allowed, globals)?;
        let servers: BTreeMap<String, LockedServer> =
            offers.into_iter().map(|(server, offer)| (server.name, offer.locked)).collect();
        let lock = to_json(&McpLock::new(servers.clone()))?;
        DataLimit::FileBytes
            .check(lock.len() as u64)
            .map_err(|reached| too_large(&servers, lock.len(), &reached))?;
        let path = McpLock::path(&self.workflow);
        let old = read(&path);
        let text = differences(&old, &servers);
        let tools = servers.values().map(|it| it.tools.len() as u64).sum();
        let prompts: u64 = servers.values().map(|it| it.prompts.len() as u64).sum();
        print_result(&text).map_err(CliError::write)?;
        if self.check {
            return Ok(if old == servers { Exit::Done } else { Exit::Failed });
        }
        write_beside(&path, lock.as_bytes()).map_err(|error| {
            CliError::usage(format!("cannot write `{}`", path.display())).because(error)
        })?;
        let mut locked = count(tools, "tool");
        if prompts > 0 {
            locked = format!("{locked} and {}", count(prompts, "prompt"));
        }
        print_message(&format!("locked {locked} in {}", path.display()));
        Ok(Exit::Done)
    }
}

/// Returns the error of a lock file that no workflow could load, with its largest part.
fn too_large(
    servers: &BTreeMap<String, LockedServer>,
    bytes: usize,
    reached: &DataLimitReached,
) -> CliError {
    let parts = servers.iter().flat_map(|(server, it)| {
        let tools = it.tools.iter().map(|it| ("tool", it));
        let prompts = it.prompts.iter().map(|it| ("prompt", it));
        tools.chain(prompts).map(move |(part, (name, tool))| {
            let bytes = serde_json::to_string(tool).unwrap_or_default().len();
            (bytes, format!(", {bytes} of them for the {part} `{server}.{name}`"))
        })
    });
    let largest = parts.max().map(|(_, text)| text).unwrap_or_default();
    let message = format!("the lock file would have {bytes} bytes{largest}; that is {reached}");
    let help = "name the tools that the workflow uses with `tools` of the server, without this one";
    CliError::new(Exit::Unusable, message).with_help(help)
}

/// Returns the servers of a lock file; none of a missing or damaged one.
fn read(path: &Path) -> BTreeMap<String, LockedServer> {
    let text = read_named(path, DataLimit::FileBytes).unwrap_or_default();
    McpLock::parse(&text).map(|it| it.servers).unwrap_or_default()
}

/// Returns the tools and prompts that are new, changed or gone.
fn differences(
    old: &BTreeMap<String, LockedServer>,
    new: &BTreeMap<String, LockedServer>,
) -> String {
    let mut text = String::new();
    let none = LockedServer::default();
    for (name, server) in new {
        let known = old.get(name).unwrap_or(&none);
        text += &differences_of(name, "", &known.tools, &server.tools);
        text += &differences_of(name, " (prompt)", &known.prompts, &server.prompts);
    }
    text
}

fn differences_of(
    server: &str,
    part: &str,
    old: &BTreeMap<String, LockedTool>,
    new: &BTreeMap<String, LockedTool>,
) -> String {
    let mut text = String::new();
    for (tool, locked) in new {
        let what = match old.get(tool) {
            Some(before) if before == locked => continue,
            Some(_) => "changed",
            None => "new",
        };
        let about = escaped(&locked.about);
        let input = escaped(&locked.input.to_string());
        let _ = writeln!(text, "{what}: {server}.{tool}{part}\n  {about}\n  {input}");
    }
    for tool in old.keys().filter(|it| !new.contains_key(*it)) {
        let _ = writeln!(text, "gone: {server}.{tool}{part}");
    }
    text
}
