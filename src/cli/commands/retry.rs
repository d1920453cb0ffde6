//! `graphrun retry RUN [--node NODE]`.

use super::resume::ResumedRun;
use crate::{
    checkpoint::CheckpointError,
    cli::{
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        people::stdin_lines::StdinLines,
        run::{
            drive::{Begin, explain_refusal},
            origin::Origin,
        },
    },
    engine::check_retry,
    event::Status,
    id::NodeName,
};

/// Run the failed tasks of a run again; finished tasks are kept
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name or the id of the run
    run: String,
    /// Retry only this node, and leave the other failed nodes as they are
    #[arg(long, value_name = "NODE", value_parser = NodeName::parse_path)]
    node: Option<NodeName>,
    #[command(flatten)]
    options: RunOptions,
}

impl Args {
    /// Retries the failed tasks of a run; finished work is kept.
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("retry", &[Output::Text, Output::Json, Output::Jsonl])?;
        let Self { run, node, options } = self;
        let wanted = |origin: Origin| origin.with_options(options);
        let resumed = ResumedRun { run: &run, globals, lines: &mut StdinLines::default() };
        let stopped = resumed.drive(wanted, |saved, _, database| {
            // Errors are reported before anything is connected.
            let name = &saved.summary.info.name;
            let lease = saved.summary.lease.clone().filter(|it| !it.owner.is_dead());
            if let (Status::Running, Some(lease)) = (saved.summary.status, lease) {
                let run = saved.summary.info.id.clone();
                return Err(CheckpointError::Owned { run, lease: Box::new(lease) }.into());
            }
            check_retry(saved, node.as_ref()).map_err(|it| explain_refusal(it, name, database))?;
            Ok((Begin::Retry(node), Vec::new()))
        })?;
        stopped.print(globals)
    }
}
