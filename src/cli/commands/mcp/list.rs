//! `graphrun mcp list WORKFLOW`.

use std::path::PathBuf;

use serde::Serialize;

use super::{AllowedAccess, look_at_all};
use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::print_result,
            words::{clean, escaped, table},
        },
    },
    workflow::McpServer,
};

/// Start the servers of a workflow, and list their tools, resources and prompts
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow
    workflow: PathBuf,
    #[command(flatten)]
    allowed: AllowedAccess,
}

/// A tool, a resource or a prompt of a server.
#[derive(Serialize)]
struct Line<'a> {
    server: &'a str,
    kind: &'static str,
    name: &'a str,
    about: &'a str,
}

impl Args {
    /// Prints what the servers offer. It compares nothing with the lock file.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("mcp list", &[Output::Text, Output::Json])?;
        let offers = look_at_all(&self.workflow, self.allowed, globals)?;
        let mut lines = Vec::new();
        for (McpServer { name: server, .. }, offer) in &offers {
            let mut add = |kind, name, about| lines.push(Line { server, kind, name, about });
            offer.locked.tools.iter().for_each(|(name, it)| add("tool", name, &it.about));
            offer.resources.iter().for_each(|it| add("resource", &it.uri, &it.name));
            offer.prompts.iter().for_each(|it| add("prompt", &it.name, &it.about));
        }
        let text = if globals.output == Output::Json {
            to_json(&lines)?
        } else {
            let header = ["server", "kind", "name", "description"];
            let header = header.map(|it| globals.stdout.faint(it)).to_vec();
            let row = |Line { server, kind, name, about }: &Line<'_>| {
                let shown = |it: &str| clean(&escaped(it));
                vec![(*server).to_owned(), (*kind).to_owned(), shown(name), shown(about)]
            };
            table(&std::iter::once(header).chain(lines.iter().map(row)).collect::<Vec<_>>())
        };
        print_result(&text).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}
