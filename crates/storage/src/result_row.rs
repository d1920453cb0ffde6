//! A cached result of a node, as SQL databases store it.

use graphrun_engine::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey},
    storage::ResultLimits,
};
use jiff::Timestamp;
use thiserror::Error;

/// A row of the table of results, without its checksum.
#[derive(Debug)]
pub(crate) struct ResultRow {
    pub(crate) key: ResultKey,
    pub(crate) saved_at: i64,
    pub(crate) json: String,
}

/// A damaged row. It is ignored: the node runs, and the row is replaced.
#[derive(Debug, Error)]
#[error("its content does not match its checksum; the next result replaces it")]
struct DamagedRow;

impl ResultRow {
    /// Returns the row of a result that is within the limits.
    pub(crate) fn new(
        key: &ResultKey,
        result: &CachedResult,
        limits: &ResultLimits,
    ) -> Result<Self, CheckpointError> {
        let json = serde_json::to_string(&result.update).map_err(ResultLimits::unwritable)?;
        limits.check(json.len())?;
        Ok(Self { key: *key, saved_at: result.at.as_millisecond(), json })
    }

    /// Returns the result, if the row is not damaged.
    pub(crate) fn result(&self, checksum: &[u8]) -> Result<CachedResult, CheckpointError> {
        let parsed = (self.checksum().as_slice() == checksum).then(|| {
            let update = serde_json::from_str(&self.json).ok()?;
            Some(CachedResult { update, at: Timestamp::from_millisecond(self.saved_at).ok()? })
        });
        parsed.flatten().ok_or_else(|| CheckpointError::Storage {
            action: "read a cached result".to_owned(),
            source: DamagedRow.into(),
        })
    }

    /// Covers the key as well, so that a row with the key of another result is detected.
    pub(crate) fn checksum(&self) -> [u8; blake3::OUT_LEN] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.key.as_bytes()).update(&self.saved_at.to_le_bytes());
        hasher.update(self.json.as_bytes()).finalize().into()
    }
}
