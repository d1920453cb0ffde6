//! The stored run info after a migration to another workflow.

use std::borrow::Cow;

use graphrun_engine::{
    checkpoint::{Entry, Migration, RunInfo},
    storage::rules::Head,
};
use serde::{Deserialize, Serialize};

/// The beginning of the stored info of a migrated run.
const MIGRATED: &[u8] = b"{\"first\":";

/// The stored info of a migrated run. It keeps the original info byte for byte, because the parent
/// hash of the first entry covers those bytes.
#[derive(Serialize)]
struct MigratedInfo<'a> {
    first: &'a str,
    #[serde(flatten)]
    info: &'a RunInfo,
}

#[derive(Deserialize)]
struct FirstInfo {
    first: String,
}

/// Returns the stored info from the creation of the run, byte for byte.
pub(crate) fn info_at_first(info: &[u8]) -> Cow<'_, [u8]> {
    if info.starts_with(MIGRATED)
        && let Ok(FirstInfo { first }) = serde_json::from_slice(info)
    {
        return Cow::Owned(first.into_bytes());
    }
    Cow::Borrowed(info)
}

/// Returns the info to store after a migration.
pub(crate) fn info_after(info: &[u8], migration: &Migration) -> serde_json::Result<Vec<u8>> {
    let first = info_at_first(info);
    let first = String::from_utf8_lossy(&first);
    let info = serde_json::from_slice::<RunInfo>(info)?.on(migration.to.clone());
    serde_json::to_vec(&MigratedInfo { first: &first, info: &info })
}

/// Returns the number of the last entry before the records of the open step; `before` is that
/// number before this entry.
pub(crate) fn committed(entry: &Entry, head: &Head, before: u64) -> u64 {
    match entry.commit {
        None => before,
        // A migration also contains records of the step that it opens.
        Some(_) if !entry.carried().is_empty() => head.number - 1,
        Some(_) => head.number,
    }
}
