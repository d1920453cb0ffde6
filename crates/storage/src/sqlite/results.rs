//! Results of nodes for later runs, in a separate table.

use async_trait::async_trait;
use graphrun_engine::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey, ResultStore},
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, named_params, params};
use thiserror::Error;

use super::{Fault, SqliteStorage};
use graphrun_engine::storage::{RESULT_LIMITS, ResultLimits};

/// A damaged row. It is ignored: the node runs, and the row is replaced.
#[derive(Debug, Error)]
#[error("its content does not match its checksum; the next result replaces it")]
struct Damaged;

#[async_trait]
impl ResultStore for SqliteStorage {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let wanted = *key;
        let found = self.read("look up a cached result".to_owned(), move |database, _| {
            let sql = "SELECT saved_at, payload, checksum FROM results WHERE key = ?";
            let mut statement = database.prepare_cached(sql)?;
            let row = statement.query_row([wanted.as_bytes()], |row| {
                let checksum: Vec<u8> = row.get("checksum")?;
                Ok((
                    Row { key: wanted, saved_at: row.get("saved_at")?, json: row.get("payload")? },
                    checksum,
                ))
            });
            Ok(row.optional()?)
        });
        let Some((row, checksum)) = found.await? else { return Ok(None) };
        let result = row.result().filter(|_| row.checksum().as_slice() == checksum);
        let damaged = || CheckpointError::Storage {
            action: "read a cached result".to_owned(),
            source: Damaged.into(),
        };
        result.map(Some).ok_or_else(damaged)
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        let json = serde_json::to_string(&result.update).map_err(ResultLimits::unwritable)?;
        RESULT_LIMITS.check(json.len())?;
        let row = Row { key: *key, saved_at: result.at.as_millisecond(), json };
        self.write("cache a result".to_owned(), move |database, _| {
            row.insert(database)?;
            forget_oldest(database, &RESULT_LIMITS)
        })
        .await
    }
}

/// A row of the table, without its checksum.
struct Row {
    key: ResultKey,
    saved_at: i64,
    json: String,
}

impl Row {
    fn insert(&self, database: &Connection) -> Result<(), Fault> {
        database
            .prepare_cached(
                "INSERT OR REPLACE INTO results (key, saved_at, bytes, payload, checksum)
                 VALUES (:key, :saved_at, :bytes, :payload, :checksum)",
            )?
            .execute(named_params! {
                ":key": self.key.as_bytes(),
                ":saved_at": self.saved_at,
                ":bytes": self.json.len(),
                ":payload": self.json,
                ":checksum": self.checksum(),
            })?;
        Ok(())
    }

    fn result(&self) -> Option<CachedResult> {
        let update = serde_json::from_str(&self.json).ok()?;
        Some(CachedResult { update, at: Timestamp::from_millisecond(self.saved_at).ok()? })
    }

    /// Covers the key as well, so that a row with the key of another result is detected.
    fn checksum(&self) -> [u8; blake3::OUT_LEN] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.key.as_bytes()).update(&self.saved_at.to_le_bytes());
        hasher.update(self.json.as_bytes()).finalize().into()
    }
}

/// Removes the oldest results until the others are within limits.
fn forget_oldest(database: &Connection, limits: &ResultLimits) -> Result<(), Fault> {
    // The index has both columns, so that no payload is read.
    let sql = "SELECT count(*) > ?1 OR ifnull(sum(bytes), 0) > ?2 FROM results";
    let limits = params![limits.results, limits.bytes];
    let is_over = database.prepare_cached(sql)?.query_row(limits, |row| row.get::<_, bool>(0))?;
    if is_over {
        database
            .prepare_cached(
                "DELETE FROM results WHERE key IN (
                    SELECT key FROM (
                        SELECT key, row_number() OVER newest AS place, sum(bytes) OVER newest AS total
                        FROM results WINDOW newest AS (ORDER BY saved_at DESC, key DESC)
                    ) WHERE place > ?1 OR total > ?2
                )",
            )?
            .execute(limits)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use graphrun_core::{id::ChannelName, state::Update};

    use super::*;
    fn key(name: i64) -> ResultKey {
        ResultKey::of(&json!(name))
    }

    fn result(text: &str, second: i64) -> CachedResult {
        let update = Update::default().write(ChannelName::parse("text").unwrap(), text);
        CachedResult { update, at: Timestamp::from_second(second).unwrap() }
    }

    /// Returns the remaining results after storing some in another order than that of their names.
    async fn left(limits: ResultLimits) -> Vec<i64> {
        let folder = TempDir::new().unwrap();
        let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
        for name in [3, 1, 4, 2, 5] {
            storage.keep(&key(name), &result("0123456789", name)).await.unwrap();
        }
        storage.database.with_connection(|it| forget_oldest(it, &limits).unwrap());
        let mut left = Vec::new();
        for name in 1..=5 {
            if storage.find(&key(name)).await.unwrap().is_some() {
                left.push(name);
            }
        }
        left
    }

    #[tokio::test]
    async fn when_there_is_too_much_the_oldest_goes() {
        let bytes = serde_json::to_string(&result("0123456789", 1).update).unwrap().len();
        let limits = |results, bytes| ResultLimits { results, bytes, ..RESULT_LIMITS };
        assert_eq!(left(limits(5, 5 * bytes)).await, [1, 2, 3, 4, 5]);
        assert_eq!(left(limits(4, 5 * bytes)).await, [2, 3, 4, 5]);
        assert_eq!(left(limits(5, 3 * bytes)).await, [3, 4, 5]);
        assert_eq!(left(limits(5, 3 * bytes - 1)).await, [4, 5]);
        assert_eq!(left(limits(1, 3 * bytes)).await, [5]);
        assert_eq!(left(limits(0, 0)).await, [0; 0]);
    }

    #[tokio::test]
    async fn a_damaged_result_is_an_error_until_it_is_replaced() {
        let folder = TempDir::new().unwrap();
        let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
        for change in [
            "UPDATE results SET payload = replace(payload, 'one', 'two')",
            "UPDATE results SET payload = 'no JSON'",
            "UPDATE results SET checksum = x''",
            "UPDATE results SET saved_at = saved_at + 1",
        ] {
            storage.keep(&key(1), &result("one", 1)).await.unwrap();
            storage.database.with_connection(|it| it.execute_batch(change).unwrap());
            let error = storage.find(&key(1)).await.unwrap_err();
            assert_eq!(error.to_string(), "could not read a cached result", "{change}");
        }
        storage.keep(&key(1), &result("one", 1)).await.unwrap();
        assert_eq!(storage.find(&key(1)).await.unwrap(), Some(result("one", 1)));
    }

    #[tokio::test]
    async fn a_result_under_the_key_of_another_is_damaged() {
        let folder = TempDir::new().unwrap();
        let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
        storage.keep(&key(1), &result("one", 1)).await.unwrap();
        storage.database.with_connection(|it| {
            it.execute("UPDATE results SET key = ?", [key(2).as_bytes()]).unwrap();
        });
        storage.find(&key(2)).await.unwrap_err();
        assert_eq!(storage.find(&key(1)).await.unwrap(), None);
    }
}
