//! Results of nodes for later runs, in a separate table.

use async_trait::async_trait;
use graphrun_engine::{
    checkpoint::CheckpointError,
    results::{CachedResult, ResultKey, ResultStore},
    storage::{RESULT_LIMITS, ResultLimits},
};
use tokio_postgres::types::ToSql;

use super::{
    PostgresStorage,
    fault::Fault,
    session::{Mode, Session, Work, get},
};
use crate::result_row::ResultRow;

struct Find(ResultKey);

pub(super) struct Keep {
    row: ResultRow,
    limits: ResultLimits,
}

#[async_trait]
impl ResultStore for PostgresStorage {
    async fn find(&self, key: &ResultKey) -> Result<Option<CachedResult>, CheckpointError> {
        let found = self.transact("look up a cached result".to_owned(), Find(*key)).await?;
        found.map(|(row, checksum)| row.result(&checksum)).transpose()
    }

    async fn keep(&self, key: &ResultKey, result: &CachedResult) -> Result<(), CheckpointError> {
        self.transact("cache a result".to_owned(), Keep::new(key, result, RESULT_LIMITS)?).await
    }
}

#[async_trait]
impl Work for Find {
    type Output = Option<(ResultRow, Vec<u8>)>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Self::Output, Fault> {
        let sql = "SELECT saved_at, payload, checksum FROM results WHERE key = $1";
        let Some(row) = session.first(sql, &[&self.0.as_bytes()]).await? else { return Ok(None) };
        let checksum = get(&row, "checksum")?;
        let saved_at = get(&row, "saved_at")?;
        let json = get(&row, "payload")?;
        Ok(Some((ResultRow { key: self.0, saved_at, json }, checksum)))
    }
}

#[async_trait]
impl Work for Keep {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let Self { row, limits } = self;
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        // The index has both columns, so that no payload is read.
        let sql = "SELECT count(*) >= $1 OR coalesce(sum(bytes), 0)::bigint + $3 > $2 AS is_over
                   FROM results";
        let results = limit(limits.results);
        let bytes = limit(limits.bytes);
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
        Ok(Self { row: ResultRow::new(key, result, &limits)?, limits })
    }
}
