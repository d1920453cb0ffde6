//! `graphrun runs rm RUN…`.

use std::time::Duration;

use super::removal::Removal;
use crate::{
    checkpoint::{CheckpointError, Checkpointer, LeaseRequest, Presence, RunSummary},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        process::runtime::block_on,
        run::run_folders,
    },
    id::RunId,
};

/// The duration of the lease for the removal of a run.
const LEASE: Duration = Duration::from_secs(15);

/// Remove runs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The names or ids of the runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
}

/// Removes a run, also one whose process is known to be gone before its lease expires.
pub(super) async fn forget(
    checkpointer: &dyn Checkpointer,
    run: &RunId,
) -> Result<(), CheckpointError> {
    match checkpointer.remove(run).await {
        Err(CheckpointError::Owned { lease, .. }) if lease.owner.is_dead() => {
            let presence = Presence::new();
            let owner = presence.owner().clone();
            let replaces_fence = Some(lease.fence);
            // If several processes see that, only one of them replaces this lease.
            let request = LeaseRequest { owner, ttl: LEASE, replaces_fence };
            let token = checkpointer.acquire(run, &request).await?;
            checkpointer.release(&token).await?;
            checkpointer.remove(run).await
        }
        result => result,
    }
}

impl Args {
    /// Removes runs without an owner. All of them are looked up before the first is removed.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs rm", &[Output::Text, Output::Json])?;
            let first = self.runs.first().map_or("", String::as_str);
            let database = globals.database()?;
            let checkpointer = database.open_to_remove()?.ok_or_else(|| database.without(first))?;
            let mut found = Vec::new();
            for run in &self.runs {
                let run = checkpointer.find(run).await?;
                if found.iter().all(|it: &RunSummary| it.info.id != run.info.id) {
                    found.push(run);
                }
            }
            let mut removal = Removal::new(globals, false);
            for RunSummary { info, status, .. } in &found {
                removal.check(forget(checkpointer.as_ref(), &info.id).await)?;
                run_folders::remove(info, &database).await;
                removal.add(info, *status)?;
            }
            checkpointer.compact().await?;
            removal.close()?;
            Ok(Exit::Done)
        })
    }
}
