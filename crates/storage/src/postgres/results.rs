//! Results of nodes for later runs, in a separate table.

use async_trait::async_trait;
use graphrun_engine::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey, ResultStore},
};
use jiff::Timestamp;
use thiserror::Error;
use tokio_postgres::types::ToSql;

use super::{
    PostgresStorage,
    fault::Fault,
    run::get,
    session::{Mode, Session, Work},
};
use graphrun_engine::storage::{RESULT_LIMITS, ResultLimits};

/// A damaged row. It is ignored: the node runs, and the row is replaced.
#[derive(Debug, Error)]
#[error("its content does not match its checksum; the next result replaces it")]
struct Damaged;

/// A row of the table, without its checksum.
#[derive(Debug)]
struct Row {
    key: ResultKey,
    saved_at: i64,
    json: String,
}

struct Find(ResultKey);

pub(super) struct Keep {
    row: Row,
    limits: ResultLimits,
}

#[async_trait]
impl ResultStore for PostgresStorage {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let found = self.transact("look up a cached result".to_owned(), Find(*key)).await?;
        let Some((row, checksum)) = found else { return Ok(None) };
        let result = row.result().filter(|_| row.checksum().as_slice() == checksum);
        let damaged = || CheckpointError::Storage {
            action: "read a cached result".to_owned(),
            source: Damaged.into(),
        };
        result.map(Some).ok_or_else(damaged)
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        self.transact("cache a result".to_owned(), Keep::new(key, result, RESULT_LIMITS)?).await
    }
}

#[async_trait]
impl Work for Find {
    type Output = Option<(Row, Vec<u8>)>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session, _: bool) -> Result<Self::Output, Fault> {
        let sql = "SELECT saved_at, payload, checksum FROM results WHERE key = $1";
        let Some(row) = session.first(sql, &[&self.0.as_bytes()]).await? else { return Ok(None) };
        let checksum = get(&row, "checksum")?;
        let row =
            Row { key: self.0, saved_at: get(&row, "saved_at")?, json: get(&row, "payload")? };
        Ok(Some((row, checksum)))
    }
}

#[async_trait]
impl Work for Keep {
    type Output = ();

    async fn attempt(&self, session: &Session, _: bool) -> Result<(), Fault> {
        let Self { row, limits } = self;
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        // The index has both columns, so that no payload is read.
        let sql = "SELECT count(*) >= $1 OR coalesce(sum(bytes), 0)::bigint + $3 > $2 AS is_over
                   FROM results";
        let (results, bytes) = (limit(limits.results), limit(limits.bytes));
        let added = limit(row.json.len());
        let is_over = match session.first(sql, &[&results, &bytes, &added]).await? {
            Some(row) => get(&row, "is_over")?,
            None => false,
        };
        let sql = "INSERT INTO results (key, saved_at, bytes, payload, checksum)
                   VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (key) DO UPDATE SET saved_at = excluded.saved_at, bytes = excluded.bytes,
                       payload = excluded.payload, checksum = excluded.checksum";
        let sum = row.checksum();
        let values: [&(dyn ToSql + Sync); 5] =
            [&row.key.as_bytes(), &row.saved_at, &added, &row.json, &sum.as_slice()];
        session.execute(sql, &values).await?;
        if is_over {
            let sql = "DELETE FROM results WHERE key IN (
                           SELECT key FROM (
                               SELECT key, row_number() OVER newest AS place,
                                   sum(bytes) OVER newest AS total
                               FROM results WINDOW newest AS (ORDER BY saved_at DESC, key DESC)
                           ) AS placed WHERE place > $1 OR total > $2::bigint
                       )";
            session.execute(sql, &[&results, &bytes]).await?;
        }
        Ok(())
    }
}

impl Keep {
    pub(super) fn new(
        key: &ResultKey,
        result: &CachedResult,
        limits: ResultLimits,
    ) -> Result<Self, CheckpointError> {
        let json = serde_json::to_string(&result.update).map_err(ResultLimits::unwritable)?;
        limits.check(json.len())?;
        let row = Row { key: *key, saved_at: result.at.as_millisecond(), json };
        Ok(Self { row, limits })
    }
}

impl Row {
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
