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

use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    interpreter::is_readable_inside,
    job::{Job, JobResult},
    probe::Sandbox,
    room::RoomLimit,
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
            () = limit.exceeded(home) => {
                stop.cancel();
                let _ = running.await;
                Err(too_large(limit))
            }
        };
        // It may have grown since it was measured.
        let finished =
            finished.and_then(|job| limit.check(home).map(|()| job).map_err(|_| too_large(limit)));
        if let Err(SandboxError::HomeTooLarge { .. }) = &finished {
            fs::remove_dir_all(home).map_err(SandboxError::io("remove the home"))?;
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

fn too_large(limit: RoomLimit) -> SandboxError {
    SandboxError::HomeTooLarge { bytes: limit.bytes, entries: limit.entries }
}
