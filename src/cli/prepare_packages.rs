//! `graphrun prepare WORKFLOW`.

use std::path::PathBuf;

use serde::Serialize;

use super::{
    dependencies::{self, Dependency, Installer},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    input::{self, InputFlag},
    json::to_json,
    prepare, run_folders,
    runtime::block_on,
    terminal::{print_message, print_result},
    words::{clean, count, table},
};
use crate::{id::RunId, sandbox::NetworkHost};

/// The characters of a commit that are shown.
const COMMIT_CHARACTERS: usize = 12;

/// Install the packages that lock files of the repository name, before a run needs them
///
/// The lock files are those of the current commit of each folder with `dependencies`. pip and npm run in a sandbox that
/// reaches their registries, and run no code of a package. The packages go into the cache.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow whose sandboxes have `dependencies`
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// A field of the input, as for `execute`: the repositories depend on it
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<InputFlag>,
    /// Let pip and npm reach this host, too, if a registry keeps its files there; can be given several times
    #[arg(long, value_name = "HOST")]
    allow_network: Vec<NetworkHost>,
    /// The same, also for a host on this machine or in a private network, and for the registry itself
    #[arg(long, value_name = "HOST")]
    allow_network_private: Vec<NetworkHost>,
}

/// A lock file whose packages are installed now.
#[derive(Debug, Serialize)]
struct Row {
    folder: String,
    path: String,
    commit: String,
    installer: &'static str,
    packages: usize,
    /// Whether this command has installed them.
    new: bool,
    /// The folder with the packages.
    location: PathBuf,
}

impl Args {
    /// Installs the missing packages, and prints all of them.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("prepare", &[Output::Text, Output::Json])?;
        let workflow = prepare::load(&self.workflow)?.workflow;
        let input = input::read(&self.input, &workflow.schema, &workflow.input)?;
        block_on(async {
            let run = RunId::generate();
            let folders = run_folders::find_bases(&workflow, &input, &run).await?;
            let found = dependencies::find(&workflow, (&run, &folders)).await?;
            let installer = Installer::of_person(&self.allow_network, &self.allow_network_private)?;
            let mut rows = Vec::new();
            for dependency in found {
                let location = match &dependency.location {
                    Some(location) => location.clone(),
                    None => installer.install(&dependency).await?,
                };
                rows.push(Row::of(dependency, location));
            }
            if rows.is_empty() {
                print_message("no sandbox of the workflow has `dependencies`");
            }
            let text = match globals.output {
                Output::Json => to_json(&rows)?,
                _ => draw(&rows),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}

impl Row {
    fn of(
        Dependency { used, lock, commit, location: known }: Dependency,
        location: PathBuf,
    ) -> Self {
        Self {
            folder: used.folder,
            path: used.path,
            commit,
            installer: used.installer.as_str(),
            packages: lock.package_count(),
            new: known.is_none(),
            location,
        }
    }
}

fn draw(rows: &[Row]) -> String {
    let row = |it: &Row| {
        let place = format!("{}/{}", it.folder, it.path);
        let commit = it.commit.chars().take(COMMIT_CHARACTERS).collect();
        let packages = format!("{} of {}", count(it.packages as u64, "package"), it.installer);
        let state = if it.new { "installed" } else { "installed already" };
        vec![clean(&place), commit, packages, state.to_owned()]
    };
    table(&rows.iter().map(row).collect::<Vec<_>>())
}
