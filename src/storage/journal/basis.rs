//! What is known of a run besides its journal, once the run goes by another workflow.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::{Entry, Migration, RunInfo},
    storage::rules::Head,
};

/// How the text of what is known of a run begins once it goes by another workflow.
const MIGRATED: &[u8] = b"{\"first\":";

/// What is known of a run that was carried over to another workflow, as it is stored: what was
/// known at first stays with it, as its history hangs on that to the byte.
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

/// What was known of a run at first, as it was written then.
pub(crate) fn info_at_first(info: &[u8]) -> Cow<'_, [u8]> {
    if info.starts_with(MIGRATED)
        && let Ok(FirstInfo { first }) = serde_json::from_slice(info)
    {
        return Cow::Owned(first.into_bytes());
    }
    Cow::Borrowed(info)
}

/// What is known of a run, as it is to be stored once it goes by something else.
pub(crate) fn info_after(info: &[u8], migration: &Migration) -> serde_json::Result<Vec<u8>> {
    let first = info_at_first(info);
    let first = String::from_utf8_lossy(&first);
    let info = serde_json::from_slice::<RunInfo>(info)?.on(migration.is.clone());
    serde_json::to_vec(&MigratedInfo { first: &first, info: &info })
}

/// The last entry before those that tell of the step that is open after an entry; `before` is
/// that of the step that was open.
pub(crate) fn committed(entry: &Entry, head: &Head, before: u64) -> u64 {
    match entry.commit {
        None => before,
        // It tells of that step itself.
        Some(_) if !entry.carried().is_empty() => head.number - 1,
        Some(_) => head.number,
    }
}
