//! `graphrun runs prune`.

use std::time::Duration;

use jiff::Timestamp;

use super::{list::some_damaged, removal::Removal, rm::forget};
use crate::{
    checkpoint::{CheckpointError, RunSummary},
    cli::{
        arguments::{
            globals::{Globals, Output},
            values::parse_duration,
        },
        error::CliError,
        exit::Exit,
        output::terminal::print_message,
        process::runtime::block_on,
        run::{process_gone::process_gone, run_folders},
    },
    event::Status,
};

/// The word for runs that are `running`, but whose process is gone.
const PROCESS_GONE: &str = "process-gone";

/// The runs that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrunedStatus {
    Of(Status),
    /// They are `running`, and their process is gone.
    ProcessGone,
}

/// Remove old runs without an owner, and free their space
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Remove runs in which nothing has happened for longer than this, as in `30d` or `12h`
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_age)]
    older_than: Duration,
    /// Remove runs of these statuses only; `process-gone` are those that are `running` without a process
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = parse_status, default_value = "done,failed")]
    status: Vec<PrunedStatus>,
    /// Keep this many of the newest runs, however old they are
    #[arg(long, value_name = "N", default_value_t)]
    keep: usize,
    /// Only print the runs that would be removed
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Removes old runs without an owner, and returns their space.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs prune", &[Output::Text, Output::Json])?;
            let database = globals.database()?;
            let mut removal = Removal::new(globals, self.dry_run);
            let checkpointer = if self.dry_run {
                database.clone().read_only().open()?
            } else {
                database.open_to_remove()?
            };
            let Some(checkpointer) = checkpointer else {
                print_message(&database.absence());
                removal.close()?;
                return Ok(Exit::Done);
            };
            let now = Timestamp::now();
            let runs = checkpointer.page(None, usize::MAX).await?;
            let damaged = runs.iter().filter(|it| it.is_err()).count();
            let old =
                runs.into_iter().skip(self.keep).flatten().filter(|it| self.includes(it, now));
            for RunSummary { info, status, .. } in old {
                if !self.dry_run {
                    match forget(checkpointer.as_ref(), &info.id).await {
                        // Another process has just acquired or removed it.
                        Err(CheckpointError::Owned { .. } | CheckpointError::UnknownRun(_)) => {
                            continue;
                        }
                        result => removal.check(result)?,
                    }
                    run_folders::remove(&info, &database).await;
                }
                removal.add(&info, status)?;
            }
            if !self.dry_run && !removal.is_empty() {
                checkpointer.compact().await?;
            }
            removal.close()?;
            // Damaged runs are kept, because their age is unknown.
            some_damaged(damaged)
        })
    }

    /// A run is as old as its last event: a thread takes new turns, and a run may wait for days. A run whose time cannot
    /// be read is kept.
    fn includes(&self, run: &RunSummary, now: Timestamp) -> bool {
        // A run has no event before its first step.
        let last = if run.updated.is_empty() { &run.info.created } else { &run.updated };
        let last = last.parse::<Timestamp>().ok();
        let is_old = last.is_some_and(|updated| {
            Duration::try_from(now.duration_since(updated)).is_ok_and(|age| age >= self.older_than)
        });
        let is_meant = |wanted: &PrunedStatus| match wanted {
            PrunedStatus::Of(status) => run.status == *status,
            PrunedStatus::ProcessGone => process_gone(run).is_some(),
        };
        is_old && self.status.iter().any(is_meant)
    }
}

/// Parses an age; zero matches any age.
fn parse_age(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

fn parse_status(text: &str) -> Result<PrunedStatus, String> {
    if text == PROCESS_GONE {
        return Ok(PrunedStatus::ProcessGone);
    }
    let all = [Status::Done, Status::Failed, Status::Paused, Status::Limit, Status::Interrupted];
    let found = all.into_iter().find(|it| it.as_str() == text).map(PrunedStatus::Of);
    found.ok_or_else(|| {
        let names = all.map(Status::as_str).join(", ");
        format!("expected one of {names}, {PROCESS_GONE}; a run with an owner is never removed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checkpoint::RunInfo, id::Step};

    #[test]
    fn ages_are_times_or_zero() {
        assert_eq!(parse_age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_age("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert_eq!(parse_age("0"), Ok(Duration::ZERO));
        for wrong in ["", "d", "-1d", "old", "30"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_is_as_old_as_its_last_event() {
        let now: Timestamp = "2025-06-30T00:00:00Z".parse().unwrap();
        let args = Args {
            older_than: Duration::from_secs(30 * 86_400),
            status: vec![PrunedStatus::Of(Status::Done)],
            keep: 0,
            dry_run: false,
        };
        let run = |created: &str, updated: &str| RunSummary {
            info: RunInfo { created: created.to_owned(), ..RunInfo::new("w") },
            status: Status::Done,
            reason: None,
            step: Step(1),
            lease: None,
            updated: updated.to_owned(),
            turns: None,
        };
        let old = "2025-01-01T00:00:00Z";
        let new = "2025-06-29T00:00:00Z";
        for (created, updated, is_old) in [
            (old, old, true),
            (old, new, false),
            (old, "", true),
            (new, "", false),
            (old, "?", false),
        ] {
            assert_eq!(args.includes(&run(created, updated), now), is_old, "{created} {updated}");
        }
    }
}
