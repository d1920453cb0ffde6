//! The home of a program that keeps files from one job to the next, such as the sessions of a coding agent.
//!
//! It is a folder of the host that only the user of the sandbox can use. Programs write there without a copy, so its size
//! is watched while they work.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, chown},
    path::Path,
    pin::pin,
};

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    interpreter::is_readable_inside,
    job::{Job, JobResult},
    probe::Sandbox,
    remove::remove_folder,
    room::{RoomError, RoomLimit},
};

/// The most files and folders of a home.
const ENTRIES_MAX: u64 = 100_000;

impl Sandbox {
    /// Makes a folder that only the user of the sandbox can use.
    pub(super) fn make_private_folder(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(folder)?;
        chown(folder, self.user(), self.user())
    }

    /// Runs a job with a home, and stops it when the home becomes too large.
    pub(super) async fn run_at_home(
        &self,
        job: &Job,
        home: &Path,
        cancel: &CancellationToken,
    ) -> Result<JobResult, SandboxError> {
        self.prepare_home(home)?;
        let limit = RoomLimit { bytes: job.limits.work_bytes, entries: ENTRIES_MAX };
        let stop = cancel.child_token();
        let mut running = pin!(self.run_watched(job, &stop));
        let finished = tokio::select! {
            finished = &mut running => finished,
            error = limit.exceeded(home) => {
                stop.cancel();
                let _ = running.await;
                Err(refuse(limit, error))
            }
        };
        // It may have grown since it was measured.
        let finished = match finished {
            Ok(result) => {
                limit.check_beside(home).await.map(|()| result).map_err(|it| refuse(limit, it))
            }
            Err(error) => Err(error),
        };
        if let Err(SandboxError::HomeTooLarge { .. } | SandboxError::HomeUnmeasured { .. }) =
            &finished
        {
            let folder = home.to_owned();
            let removed = spawn_blocking(move || remove_folder(&folder)).await;
            if let Err(error) = removed.unwrap_or_else(|error| Err(error.into())) {
                // The program is at fault all the same. The next one there is stopped, too.
                tracing::warn!(home = %home.display(), %error, "a home cannot be removed");
            }
        }
        finished
    }

    fn prepare_home(&self, home: &Path) -> Result<(), SandboxError> {
        let around = home.parent().unwrap_or(home);
        fs::create_dir_all(around).map_err(SandboxError::io("make the home"))?;
        if !is_readable_inside(around) {
            return Err(SandboxError::Home { path: around.to_owned() });
        }
        match self.make_private_folder(home) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(SandboxError::io("make the home")),
        }
    }
}

/// Returns the error of a home that is not within its limit. Folders without permissions, and those that move, are the work
/// of the program; other errors are those of the host.
fn refuse(limit: RoomLimit, error: RoomError) -> SandboxError {
    match error {
        RoomError::TooLarge => {
            SandboxError::HomeTooLarge { bytes: limit.bytes, entries: limit.entries }
        }
        RoomError::Unmeasured(source) => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy => {
                SandboxError::HomeUnmeasured { source }
            }
            _ => SandboxError::io("measure the home")(source),
        },
    }
}
