//! The vectors of entries in PostgreSQL. A search reads the newest ones of its tier and compares each, as in SQLite.

use async_trait::async_trait;
use graphrun_storage::postgres_server::{Fault, Mode, Session, ToSql, Work, get};

use super::{entries, lock, signed};
use crate::{Embedding, Entry, EntryId, Search, rules, store::VECTORS_MAX};

/// Looks for entries of a tier that have no vector of a model.
pub(super) struct Missing {
    pub(super) tier: String,
    pub(super) model: String,
    pub(super) limit: usize,
}

/// Gives entries their vectors.
pub(super) struct Set(pub(super) Vec<(EntryId, Embedding)>);

#[async_trait]
impl Work for Missing {
    type Output = Vec<Entry>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let Self { tier, model, limit } = self;
        // Each range of the index by itself: with `OR`, the server would read all entries of the tier.
        let sql = "(SELECT entry FROM entries WHERE tier = $1 AND model IS NULL LIMIT $3)
                   UNION ALL (SELECT entry FROM entries WHERE tier = $1 AND model < $2 LIMIT $3)
                   UNION ALL (SELECT entry FROM entries WHERE tier = $1 AND model > $2 LIMIT $3)
                   LIMIT $3";
        let values: [&(dyn ToSql + Sync); 3] =
            [&tier.as_bytes(), &model.as_bytes(), &signed(*limit)];
        entries(&session.query(sql, &values).await?)
    }
}

#[async_trait]
impl Work for Set {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        lock(session).await?;
        set(session, &self.0).await
    }
}

/// Gives entries their vectors. Of several for one entry, the last one counts.
pub(super) async fn set(session: &Session, vectors: &[(EntryId, Embedding)]) -> Result<(), Fault> {
    if vectors.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = vectors.iter().map(|(id, _)| id.as_str()).collect();
    let models: Vec<&[u8]> = vectors.iter().map(|(_, it)| it.model.as_bytes()).collect();
    let bytes: Vec<&[u8]> = vectors.iter().map(|(_, it)| it.vector.as_bytes()).collect();
    let sql = "WITH given AS (
                   SELECT DISTINCT ON (id) id, model, vector
                   FROM unnest($1::text[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS u (id, model, vector, at)
                   ORDER BY id, at DESC
               ), changed AS (
                   UPDATE entries AS e SET model = given.model FROM given WHERE e.id = given.id
                   RETURNING e.seq, e.id, given.vector
               )
               INSERT INTO vectors (entry, id, vector) SELECT seq, id, vector FROM changed
               ON CONFLICT (entry) DO UPDATE SET vector = excluded.vector";
    session.execute(sql, &[&ids, &models, &bytes]).await?;
    Ok(())
}

/// Returns the numbers of the entries whose vectors are similar, the nearest first.
pub(super) async fn nearest(
    session: &Session,
    search: &Search,
    embedding: &Embedding,
) -> Result<Vec<i64>, Fault> {
    let tier = search.tier.as_bytes();
    let now = search.now.as_microsecond();
    let model = embedding.model.as_bytes();
    let limit = signed(VECTORS_MAX);
    let module = search.module().map(str::as_bytes);
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&tier, &model, &now, &limit];
    let mut of_module = "";
    if let Some(module) = &module {
        values.push(module);
        of_module = "AND module = $5";
    }
    let sql = format!(
        "SELECT v.entry, v.id, v.vector FROM (
             SELECT seq FROM entries
             WHERE tier = $1 AND model = $2 AND (expires IS NULL OR expires > $3) {of_module}
             ORDER BY seq DESC LIMIT $4
         ) AS e JOIN vectors AS v ON v.entry = e.seq"
    );
    let mut found = Vec::new();
    for row in session.query(&sql, &values).await? {
        let similarity = embedding.vector.similarity_to(get(&row, "vector")?);
        found.push((similarity, get::<String>(&row, "id")?, get(&row, "entry")?));
    }
    Ok(rules::nearest(found))
}

/// Returns the numbers in the order of their groups, and in each group in the order of the ids.
pub(super) async fn by_id_in_groups(
    session: &Session,
    groups: Vec<Vec<i64>>,
) -> Result<Vec<i64>, Fault> {
    let mut seqs = Vec::new();
    let mut numbers = Vec::new();
    for (number, group) in (0_i64..).zip(groups) {
        numbers.extend(group.iter().map(|_| number));
        seqs.extend(group);
    }
    let sql = "SELECT e.seq FROM unnest($1::bigint[], $2::bigint[]) AS u (seq, number)
               JOIN entries AS e USING (seq) ORDER BY u.number, e.id";
    super::seqs(&session.query(sql, &[&seqs, &numbers]).await?)
}
