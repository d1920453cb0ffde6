//! The threads of the program.

use std::{future::Future, io, num::NonZero, thread::available_parallelism};

use tokio::runtime::Builder;

use super::{resources::check_threads, signals::survive_large_files};
use crate::{
    cli::{error::CliError, exit::Exit},
    mcp::end_sessions,
};

/// The threads besides those that run nodes: for the lease, the terminal, and blocking work.
const MORE_THREADS: usize = 3;

/// Runs the future of a command, and then ends the sessions of its MCP servers. Does not wait for other background work.
pub(crate) fn block_on<F, T>(command: F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, CliError>>,
{
    // One more, because one may be waiting for the disk.
    let threads = available_parallelism().map_or(1, NonZero::get) + 1;
    let unusable = |error: io::Error| {
        CliError::new(Exit::Unusable, "cannot start the threads of the program")
            .because(error)
            .with_help("allow this user more processes and memory, or close other programs")
    };
    check_threads(threads + MORE_THREADS).map_err(unusable)?;
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).enable_all().build().map_err(unusable)?;
    let exit = runtime.block_on(async {
        survive_large_files().map_err(unusable)?;
        let exit = command.await;
        end_sessions().await;
        exit
    });
    // A thread may still wait for a line from the terminal, which is no longer needed.
    runtime.shutdown_background();
    exit
}
