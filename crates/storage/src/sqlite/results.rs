//! Results of nodes for later runs, in a separate table.

use async_trait::async_trait;
use graphrun_engine::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey, ResultStore},
    storage::{RESULT_LIMITS, ResultLimits},
};
use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::{Fault, SqliteStorage};
use crate::result_row::ResultRow;

#[async_trait]
impl ResultStore for SqliteStorage {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let wanted = *key;
        let found = self.read("look up a cached result".to_owned(), move |database, _| {
            let sql = "SELECT saved_at, payload, checksum FROM results WHERE key = ?";
            let mut statement = database.prepare_cached(sql)?;
            let row = statement.query_row([wanted.as_bytes()], |row| {
                let checksum: Vec<u8> = row.get("checksum")?;
                let saved_at = row.get("saved_at")?;
                let json = row.get("payload")?;
                Ok((ResultRow { key: wanted, saved_at, json }, checksum))
            });
            Ok(row.optional()?)
        });
        let found = found.await?;
        found.map(|(row, checksum)| row.result(&checksum)).transpose()
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        let row = ResultRow::new(key, result, &RESULT_LIMITS)?;
        self.write("cache a result".to_owned(), move |database, _| {
            insert(&row, database)?;
            forget_oldest(database, &RESULT_LIMITS)
        })
        .await
    }
}

fn insert(row: &ResultRow, database: &Connection) -> Result<(), Fault> {
    database
        .prepare_cached(
            "INSERT OR REPLACE INTO results (key, saved_at, bytes, payload, checksum)
             VALUES (:key, :saved_at, :bytes, :payload, :checksum)",
        )?
        .execute(named_params! {
            ":key": row.key.as_bytes(),
            ":saved_at": row.saved_at,
            ":bytes": row.json.len(),
            ":payload": row.json,
            ":checksum": row.checksum(),
        })?;
    Ok(())
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
    use jiff::Timestamp;
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
        storage.database.with_connection(|database| {
            database.execute("UPDATE results SET key = ?", [key(2).as_bytes()]).unwrap();
        });
        storage.find(&key(2)).await.unwrap_err();
        assert_eq!(storage.find(&key(1)).await.unwrap(), None);
    }
}
