//! The homes of programs in sandboxes, which keep their sessions there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphrun_core::graph::NodeContext;

/// The folder in the cache with the homes of all runs.
const FOLDER: &str = "homes";
/// The start of the name of a run's folder. An id alone may be `..`.
const RUN_PREFIX: &str = "run-";

/// The homes of a run, one for each agent of each of its nested runs. The program that starts the run provides it, and
/// removes the folder with the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHomes {
    folder: PathBuf,
}

impl RunHomes {
    /// Returns the homes of a run in a cache, by a name that no other run has.
    pub fn new(cache: &Path, run: &str) -> Self {
        Self { folder: cache.join(FOLDER).join(format!("{RUN_PREFIX}{run}")) }
    }

    /// Returns the homes in a cache, each with the name of its run.
    pub fn all(cache: &Path) -> impl Iterator<Item = (String, Self)> {
        let entries = fs::read_dir(cache.join(FOLDER)).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name();
            let run = name.to_str()?.strip_prefix(RUN_PREFIX)?.to_owned();
            Some((run, Self { folder: entry.path() }))
        })
    }

    /// Returns the folder with all of them. It may be missing.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the home of an agent in the run of a task.
    pub(super) fn home_of(ctx: &NodeContext, agent: &str, cache: &Path) -> PathBuf {
        let run = ctx.run.as_str();
        let folder = match ctx.get::<Self>() {
            Ok(provided) => provided.folder.clone(),
            Err(_) => Self::new(cache, run).folder,
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(run.len() as u64).to_le_bytes());
        hasher.update(run.as_bytes()).update(agent.as_bytes());
        folder.join(&hasher.finalize().to_hex()[..32])
    }
}
