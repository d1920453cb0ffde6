//! The vectors of entries in SQLite. A search reads the newest ones of its tier and compares each.

use rusqlite::{Connection, named_params, params};

use super::{COLUMNS, Fault, read};
use crate::{Embedding, Entry, EntryId, Search, rules, store::VECTORS_MAX};

/// Gives an entry its vector, if there is the entry.
pub(super) fn set(database: &Connection, id: &EntryId, it: &Embedding) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO vectors (seq, id, vector)
               SELECT seq, id, ? FROM entries WHERE id = ?";
    database.prepare_cached(sql)?.execute(params![it.vector.as_bytes(), id.as_str()])?;
    let sql = "UPDATE entries SET model = ? WHERE id = ?";
    database.prepare_cached(sql)?.execute(params![it.model, id.as_str()])?;
    Ok(())
}

/// Returns the numbers of the entries whose vectors are similar, the nearest first.
pub(super) fn nearest(
    database: &Connection,
    search: &Search,
    embedding: &Embedding,
) -> Result<Vec<i64>, Fault> {
    // The entries come in the order of the index, so only the vectors of those that fit are read.
    let sql = "SELECT vectors.seq, vectors.id, vector
         FROM entries INDEXED BY entries_by_model CROSS JOIN vectors ON vectors.seq = entries.seq
         WHERE tier = :tier AND model = :model AND (:module IS NULL OR module = :module)
             AND (expires IS NULL OR expires > :now)
         ORDER BY entries.seq DESC LIMIT :vectors";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(named_params! {
        ":tier": search.tier,
        ":model": embedding.model,
        ":module": search.module(),
        ":now": search.now.as_microsecond(),
        ":vectors": VECTORS_MAX,
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let vector = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let similarity = embedding.vector.similarity_to(vector);
        found.push((similarity, row.get::<_, String>(1)?, row.get(0)?));
    }
    Ok(rules::nearest(found))
}

/// Returns entries of a tier that have no vector of a model.
pub(super) fn missing(
    database: &Connection,
    tier: &str,
    model: &str,
    limit: usize,
) -> Result<Vec<Entry>, Fault> {
    let mut found: Vec<Entry> = Vec::new();
    // Each range of the index by itself: with `OR`, SQLite would read all entries of the tier.
    for condition in ["model IS NULL AND :model NOT NULL", "model < :model", "model > :model"] {
        let sql = format!(
            "SELECT {COLUMNS} FROM entries WHERE tier = :tier AND {condition} LIMIT :limit"
        );
        let mut statement = database.prepare_cached(&sql)?;
        let limit = limit - found.len();
        let values = named_params! {":tier": tier, ":model": model, ":limit": limit};
        let rows = statement.query_map(values, read)?;
        found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    Ok(found)
}
