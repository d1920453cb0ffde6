//! The stored run info after a migration to another workflow.

use std::borrow::Cow;

use graphrun_engine::{
    checkpoint::{Basis, Entry, Migration, RunInfo},
    storage::rules::Head,
};
use serde::{Deserialize, Serialize};

/// The beginning of the stored info of a migrated run.
const MIGRATED: &[u8] = b"{\"first\":";

/// The stored info of a migrated run: the original info byte for byte, because the parent hash of the first entry covers those
/// bytes, and the basis of the last migration, which its entry covers.
#[derive(Serialize, Deserialize)]
struct MigratedInfo {
    first: String,
    basis: Basis,
}

/// Returns the info from its stored form.
pub(crate) fn parse_info(info: &[u8]) -> serde_json::Result<RunInfo> {
    if info.starts_with(MIGRATED) {
        let MigratedInfo { first, basis } = serde_json::from_slice(info)?;
        return Ok(serde_json::from_str::<RunInfo>(&first)?.on(basis));
    }
    serde_json::from_slice(info)
}

/// Returns the stored info from the creation of the run, byte for byte.
pub(crate) fn info_at_first(info: &[u8]) -> Cow<'_, [u8]> {
    if info.starts_with(MIGRATED)
        && let Ok(MigratedInfo { first, .. }) = serde_json::from_slice(info)
    {
        return Cow::Owned(first.into_bytes());
    }
    Cow::Borrowed(info)
}

/// Returns the info to store after a migration.
pub(crate) fn info_after(info: &[u8], migration: &Migration) -> serde_json::Result<Vec<u8>> {
    let first = String::from_utf8_lossy(&info_at_first(info)).into_owned();
    serde_json::to_vec(&MigratedInfo { first, basis: migration.to.clone() })
}

/// Returns the number of the last entry before the records of the open step; `before` is that
/// number before this entry.
pub(crate) fn before_open(entry: &Entry, head: &Head, before: u64) -> u64 {
    match entry.commit {
        None => before,
        // A migration also contains records of the step that it opens.
        Some(_) if !entry.carried().is_empty() => head.number - 1,
        Some(_) => head.number,
    }
}
