//! The common setup of every new run, from an input or from a checkpoint of another run.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{error::CliError, names, options::RunOptions, origin::Origin};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    id::RunId,
    workflow::Workflow,
};

/// The parent folder of the output folders, if there is no `--out`.
const OUT_DEFAULT: &str = "out";

#[derive(Debug, clap::Args)]
pub(super) struct NewRunArgs {
    /// The folder for the files that the run writes [default: out/NAME of the run]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The id of the run [default: a new one]
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    run_id: Option<RunId>,
}

impl NewRunArgs {
    /// Gives the run a name and an id, and saves how it was started.
    pub(super) async fn begin(
        self,
        (path, workflow): (&Path, &Workflow),
        options: RunOptions,
        checkpointer: &dyn Checkpointer,
    ) -> Result<(Origin, RunInfo), CliError> {
        let name = free_name(checkpointer).await?;
        let out = match self.out {
            Some(out) => out,
            None => default_out(&name)?,
        };
        let origin = Origin::new(path, &out, options)?.with_fields_of(workflow);
        let info = RunInfo {
            id: self.run_id.unwrap_or_else(RunId::generate),
            name,
            created: Timestamp::now().to_string(),
            origin: origin.to_json()?,
            ..RunInfo::new(workflow.name.clone())
        };
        Ok((origin, info))
    }
}

/// Returns the default output folder of a run. A symbolic link of this name may have come with the
/// folder, so only the user may choose its target.
fn default_out(name: &str) -> Result<PathBuf, CliError> {
    let parent = Path::new(OUT_DEFAULT);
    if parent.is_symlink() {
        return Err(CliError::usage(format!(
            "`{OUT_DEFAULT}` is a symbolic link; nothing was started"
        ))
        .with_help("name a folder for the files of the run with `--out`"));
    }
    Ok(parent.join(name))
}

/// Returns an unused name. If another process takes it meanwhile, the creation of the run fails.
async fn free_name(checkpointer: &dyn Checkpointer) -> Result<String, CliError> {
    let mut attempt = 0;
    loop {
        let name = names::speakable(attempt);
        match checkpointer.find(&name).await {
            Err(CheckpointError::UnknownRun(_)) => return Ok(name),
            // A damaged run also uses its name.
            Ok(_) | Err(CheckpointError::Damaged { .. }) => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn parse_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text)
        .map_err(|error| format!("{error}; an id has up to 64 letters, digits, `_`, `-` or `.`"))
}
