//! `graphrun prepare WORKFLOW`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            input::{self, InputFlag},
            values::parse_duration,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{print_message, print_result},
            words::{clean, count, table},
        },
        process::runtime::block_on,
        run::{
            dependencies::{self, Dependency, Installer, PythonPackages},
            loaded, run_folders,
        },
        settings::user_folders::cache_dir,
    },
    id::RunId,
    sandbox::{NetworkHost, PackageInstaller, prune_cache},
};

/// Programs in sandboxes end within a day.
const UNUSED_MIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The characters of a commit that are shown.
const COMMIT_CHARACTERS: usize = 12;

/// Install the packages of the sandboxes of a workflow, before a run needs them
///
/// These are the `requirements` of sandboxes, by pip, and the packages that lock files of the repository name. The lock
/// files are those of the current commit of each folder with `dependencies`. Their installers run in a sandbox that
/// reaches their registries, and run no code of a package. The packages go into the cache. `--prune` removes packages
/// from there.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workflow whose sandboxes have `requirements` or `dependencies`
    #[arg(value_name = "WORKFLOW.yaml", required_unless_present = "prune")]
    workflow: Option<PathBuf>,
    /// A field of the input, as for `execute`: the repositories depend on it
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<InputFlag>,
    /// Let the installers reach this host, too, if a registry keeps its files there; can be given several times
    #[arg(long, value_name = "HOST")]
    allow_network: Vec<NetworkHost>,
    /// Let the installers reach this host, also on this machine or in a private network, and also if it is the registry
    /// itself; can be given several times
    #[arg(long, value_name = "HOST")]
    allow_network_private: Vec<NetworkHost>,
    /// Install nothing, and remove the packages and Python environments that no run has used for this time, as in `30d`; at
    /// least a day
    #[arg(long, value_name = "DURATION", value_parser = parse_unused, conflicts_with_all = ["workflow", "input"])]
    prune: Option<Duration>,
}

/// A folder of the cache that was removed.
#[derive(Debug, Serialize)]
struct RemovedFolder {
    location: PathBuf,
    bytes: u64,
}

/// Packages that are installed now.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    source: Source,
    installer: &'static str,
    packages: usize,
    /// Whether this command has installed them.
    new: bool,
    /// The folder with the packages.
    location: PathBuf,
}

/// What names the packages.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Source {
    /// The `requirements` of a sandbox.
    Sandbox { requirements: Vec<String> },
    /// A lock file.
    LockFile { folder: String, path: String, commit: String },
}

impl Args {
    /// Installs the missing packages, and prints all of them.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("prepare", &[Output::Text, Output::Json])?;
        if let Some(unused_for) = self.prune {
            return prune(unused_for, globals);
        }
        let path = self.workflow.as_deref().unwrap_or(Path::new(""));
        let loaded = loaded::load(path)?;
        let workflow = &loaded.workflow;
        let input = input::read(&self.input, &workflow.schema, &workflow.input)?;
        block_on(async {
            let run = RunId::generate();
            let folders = run_folders::find_bases(workflow, &input, &run).await?;
            let found = dependencies::find(workflow, &run, &folders).await?;
            let installer = Installer::of_person(&self.allow_network, &self.allow_network_private)?;
            let python = dependencies::provide_python(&loaded.needs()).await?;
            let named = python.into_iter().filter(|it| !it.requirements.is_empty());
            let mut rows: Vec<Row> = named.map(Row::from).collect();
            for dependency in found {
                let location = match &dependency.location {
                    Some(location) => location.clone(),
                    None => installer.install(&dependency).await?,
                };
                rows.push(Row::of(dependency, location));
            }
            if rows.is_empty() {
                print_message("no sandbox of the workflow has `requirements` or `dependencies`");
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

/// Removes what no run has used, and prints it.
fn prune(unused_for: Duration, globals: &Globals) -> Result<Exit, CliError> {
    let cache = cache_dir();
    let pruned = prune_cache(&cache, unused_for).map_err(|error| {
        let message = format!("the cache `{}` cannot be pruned", cache.display());
        CliError::new(Exit::Unusable, message).because(error)
    })?;
    let removed: Vec<RemovedFolder> = pruned
        .into_iter()
        .map(|it| RemovedFolder { location: it.folder, bytes: it.bytes })
        .collect();
    let text = if globals.output == Output::Json {
        to_json(&removed)?
    } else {
        let lines = removed.iter().map(|it| format!("removed {}\n", it.location.display()));
        lines.collect::<Vec<_>>().concat()
    };
    print_result(&text).map_err(CliError::write)?;
    let bytes: u64 = removed.iter().map(|it| it.bytes).sum();
    let folders = count(removed.len() as u64, "folder");
    print_message(&format!("removed {folders} of {} MiB from {}", bytes >> 20, cache.display()));
    Ok(Exit::Done)
}

/// Parses the time since the last use. A program may work with its packages for a day.
fn parse_unused(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(unused) if unused >= UNUSED_MIN => Ok(unused),
        _ => Err("expected a duration of a day or more, as in `30d`".to_owned()),
    }
}

impl Row {
    fn of(
        Dependency { used, lock, commit, location: known }: Dependency,
        location: PathBuf,
    ) -> Self {
        Self {
            installer: used.installer.as_str(),
            source: Source::LockFile { folder: used.folder, path: used.path, commit },
            packages: lock.package_count(),
            new: known.is_none(),
            location,
        }
    }
}

impl From<PythonPackages> for Row {
    fn from(PythonPackages { requirements, is_new, location }: PythonPackages) -> Self {
        let packages = requirements.len();
        let source = Source::Sandbox { requirements };
        let installer = PackageInstaller::Pip.as_str();
        Self { source, installer, packages, new: is_new, location }
    }
}

fn draw(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let (place, commit) = match &row.source {
            Source::Sandbox { requirements } => (requirements.join(", "), String::new()),
            Source::LockFile { folder, path, commit } => {
                (format!("{folder}/{path}"), commit.chars().take(COMMIT_CHARACTERS).collect())
            }
        };
        let packages = format!("{} of {}", count(row.packages as u64, "package"), row.installer);
        let state = if row.new { "installed" } else { "installed already" };
        vec![clean(&place), commit, packages, state.to_owned()]
    };
    table(&rows.iter().map(row).collect::<Vec<_>>())
}
