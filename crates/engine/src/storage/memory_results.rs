//! Results of nodes in memory, and the limits of every result store.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey, ResultStore},
};

/// Keeps results as long as its process lives.
#[derive(Debug, Default)]
pub struct MemoryResults(Mutex<BTreeMap<ResultKey, Row>>);

#[derive(Debug)]
struct Row {
    bytes: usize,
    result: CachedResult,
}

/// The limits of a result store.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// The most results.
    pub results: usize,
    /// The most bytes of all results together, as JSON.
    pub bytes: usize,
    /// The most bytes of one result.
    pub bytes_each: usize,
}

/// Enough for a year of one team's work, and far less than a disk has.
pub const RESULT_LIMITS: ResultLimits =
    ResultLimits { results: 10_000, bytes: 256 << 20, bytes_each: 4 << 20 };

/// A result exceeds the size limit.
#[derive(Debug, Error)]
#[error("it has {bytes} bytes, more than the limit of {limit}")]
struct TooLarge {
    bytes: usize,
    limit: usize,
}

impl ResultLimits {
    /// Returns the size of a result if it is within the limit.
    pub fn check(&self, bytes: usize) -> Result<usize, CheckpointError> {
        let limit = self.bytes_each;
        if bytes <= limit {
            return Ok(bytes);
        }
        let action = "cache a result".to_owned();
        Err(CheckpointError::Storage { action, source: TooLarge { bytes, limit }.into() })
    }

    /// Returns the error for a result that cannot be serialised as JSON.
    pub fn unwritable(error: serde_json::Error) -> CheckpointError {
        CheckpointError::Storage { action: "cache a result".to_owned(), source: error.into() }
    }
}

#[async_trait]
impl ResultStore for MemoryResults {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rows.get(key).map(|it| it.result.clone()))
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        let json = serde_json::to_string(&result.update).map_err(ResultLimits::unwritable)?;
        let row = Row { bytes: RESULT_LIMITS.check(json.len())?, result: result.clone() };
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.insert(*key, row);
        forget_oldest(&mut rows, &RESULT_LIMITS);
        Ok(())
    }
}

/// Removes the oldest results until the others are within limits.
fn forget_oldest(rows: &mut BTreeMap<ResultKey, Row>, limits: &ResultLimits) {
    let mut bytes: usize = rows.values().map(|it| it.bytes).sum();
    while rows.len() > limits.results || bytes > limits.bytes {
        let oldest = rows.iter().min_by_key(|(key, it)| (it.result.at, **key));
        let Some(gone) = oldest.map(|(key, _)| *key).and_then(|it| rows.remove(&it)) else { break };
        bytes -= gone.bytes;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use graphrun_core::state::Update;

    use super::*;
    #[test]
    fn when_there_is_too_much_the_oldest_goes() {
        let left = |results, bytes| {
            let row = |second: i64| {
                let at = Timestamp::from_second(second).unwrap();
                Row { bytes: 10, result: CachedResult { update: Update::default(), at } }
            };
            let key = |second: i64| ResultKey::of(&json!(second));
            let mut rows = [3, 1, 4, 2, 5].map(|it| (key(it), row(it))).into();
            forget_oldest(&mut rows, &ResultLimits { results, bytes, ..RESULT_LIMITS });
            (1..=5).filter(|it| rows.contains_key(&key(*it))).collect::<Vec<i64>>()
        };
        assert_eq!(left(5, 50), [1, 2, 3, 4, 5]);
        assert_eq!(left(4, 50), [2, 3, 4, 5]);
        assert_eq!(left(5, 30), [3, 4, 5]);
        assert_eq!(left(5, 29), [4, 5]);
        assert_eq!(left(0, 0), [0; 0]);
    }
}
