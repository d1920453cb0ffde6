//! The threads of the program.

use std::{future::Future, num::NonZero, thread::available_parallelism};

use tokio::runtime::Builder;

use super::{error::CliError, exit::Exit};

/// Runs a command that waits for things, and leaves nothing behind that it would wait for.
pub(super) fn block_on<F>(command: F) -> Result<Exit, CliError>
where
    F: Future<Output = Result<Exit, CliError>>,
{
    // One may be waiting for the disk.
    let threads = available_parallelism().map_or(1, NonZero::get) + 1;
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).enable_all().build().map_err(|error| {
        CliError::new(Exit::Unusable, "cannot start the threads of the program").because(error)
    })?;
    let exit = runtime.block_on(command);
    // A thread may still wait for a line from the terminal; nobody needs it any more.
    runtime.shutdown_background();
    exit
}
