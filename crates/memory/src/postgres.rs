//! A store in a PostgreSQL database, which several machines may share.
//!
//! It ranks by BM25 with the stems and numbers of SQLite, so that both stores find the same entries in the same order.
//! The ranking of the server itself does not know which words are rare. A search does a bounded amount of work, as in
//! SQLite. Each call of the trait is one transaction; `graphrun_storage::postgres_server` retries it.

mod vectors;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::Arc,
};

use async_trait::async_trait;
use graphrun_core::fault::{Point, hit};
use graphrun_engine::checkpoint::CheckpointError;
use graphrun_storage::postgres_server::{
    Fault, Missing, Mode, Row, Server, Session, Tables, ToSql, Work, get,
};
use jiff::Timestamp;

use super::{
    Approval, Batch, Embedding, Entry, EntryId, Listing, NewEntry, Search, Store, StoreError,
    rules::{self, B, COMMON, EXPIRED_MAX, K1, all_words, rare, words},
    store::{CANDIDATES_MAX, ENTRIES_MAX},
};

/// The tables, in their first format.
static TABLES: Tables = Tables::new(
    "graphrun_memory",
    "graphrun_memory_format",
    &["entries", "words", "vectors", "totals", "batches"],
    include_str!("postgres.sql"),
);

/// The characters of a word that count. An index of the server refuses long texts.
const WORD_CHARS_MAX: usize = 64;

/// The entries that a search with a condition reads at once.
const READ_AT_ONCE: usize = 256;

/// Keeps entries in a PostgreSQL database.
///
/// Clones share their connections: a few, opened on demand. Several processes on several machines may use one database at
/// the same time.
#[derive(Clone)]
pub struct PostgresStore(Arc<Server>);

impl PostgresStore {
    /// Opens the database of a libpq URL, as in `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, and creates missing
    /// tables.
    ///
    /// The tables are in the schema `graphrun_memory`, or in that of the URL parameter `schema=NAME`.
    ///
    /// This call blocks until the server answers.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Unusable`] when the server does not answer or rejects this user, when the tables cannot
    /// be created or have a newer format, and when the schema has other tables. No error shows the password.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let (server, _) = Server::open(url, &TABLES, Missing::Make)?;
        Ok(Self(server))
    }

    /// Opens a database to look at it. Returns none if it has no tables, and creates none.
    ///
    /// # Errors
    ///
    /// Same as [`PostgresStore::open`].
    pub fn open_existing(url: &str) -> Result<Option<Self>, StoreError> {
        let (server, traits) = Server::open(url, &TABLES, Missing::Leave)?;
        Ok(traits.map(|_| Self(server)))
    }

    async fn run<W: Work>(&self, action: &str, work: W) -> Result<W::Output, StoreError> {
        Ok(self.0.run(action.to_owned(), work).await?)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn put(&self, batch: &Batch) -> Result<Vec<EntryId>, StoreError> {
        rules::check_batch(batch)?;
        self.run("remember", Put(batch.clone())).await?;
        hit(Point::MemoryAfterCommit)?;
        Ok(batch.entries.iter().map(NewEntry::id).collect())
    }

    async fn search(&self, search: &Search) -> Result<Vec<Entry>, StoreError> {
        self.run("search the memory", search.clone()).await?
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Entry>, StoreError> {
        self.run("list the memory", listing.clone()).await
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.run("look for an entry", Find(prefix.to_owned())).await
    }

    async fn approve(&self, id: &EntryId, by: &str, now: Timestamp) -> Result<(), StoreError> {
        let work = Approve { id: id.clone(), by: by.to_owned(), now };
        let found = self.run("approve an entry", work).await?;
        if found { Ok(()) } else { Err(StoreError::Unknown(id.clone())) }
    }

    async fn remove(&self, id: &EntryId) -> Result<(), StoreError> {
        let found = self.run("remove an entry", Remove(id.clone())).await?;
        if found { Ok(()) } else { Err(StoreError::Unknown(id.clone())) }
    }

    async fn import(&self, entries: &[Entry]) -> Result<(), StoreError> {
        rules::check_entries(entries)?;
        self.run("import entries", Import(entries.to_vec())).await
    }

    async fn without_vector(
        &self,
        tier: &str,
        model: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let tier = tier.to_owned();
        let model = model.to_owned();
        let work = vectors::Missing { tier, model, limit: limit.min(ENTRIES_MAX) };
        self.run("look for entries without a vector", work).await
    }

    async fn set_vectors(&self, vectors: &[(EntryId, Embedding)]) -> Result<(), StoreError> {
        self.run("save vectors", vectors::Set(vectors.to_vec())).await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({:?})", self.0)
    }
}

/// Writes a batch.
struct Put(Batch);

/// Looks for the first two entries whose ids begin with a text.
struct Find(String);

/// Approves an entry, if there is one.
struct Approve {
    id: EntryId,
    by: String,
    now: Timestamp,
}

/// Removes an entry, if there is one.
struct Remove(EntryId);

/// Writes whole entries.
struct Import(Vec<Entry>);

#[async_trait]
impl Work for Put {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let Batch { key, entries, now } = &self.0;
        lock(session).await?;
        let sql = "INSERT INTO batches (key, written) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        if session.execute(sql, &[&key.as_bytes(), &now.as_microsecond()]).await? == 0 {
            return Ok(());
        }
        let sql = "SELECT seq FROM entries WHERE expires <= $1 ORDER BY expires LIMIT $2";
        let rows = session.query(sql, &[&now.as_microsecond(), &signed(EXPIRED_MAX)]).await?;
        forget(session, &seqs(&rows)?).await?;
        let ids: Vec<EntryId> = entries.iter().map(NewEntry::id).collect();
        let mut changes = Changes::new(by_ids(session, &ids).await?);
        for new in entries {
            if let Some(entry) = rules::written(changes.get(&new.id()), new, *now) {
                changes.add(entry);
            }
        }
        save(session, changes).await?;
        let with_vectors = entries.iter().filter_map(|it| Some((it.id(), it.embedding.clone()?)));
        vectors::set(session, &with_vectors.collect::<Vec<_>>()).await?;
        hit(Point::MemoryInTransaction).map_err(CheckpointError::injected)?;
        Ok(())
    }
}

#[async_trait]
impl Work for Search {
    type Output = Result<Vec<Entry>, StoreError>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Self::Output, Fault> {
        let limit = self.limit.min(ENTRIES_MAX);
        let mut best = if self.is_for_newest() {
            None
        } else {
            let words = words(self.query.as_deref().unwrap_or_default());
            Some(best(session, self, words).await?.into_iter())
        };
        let mut found = Vec::new();
        let mut seen = 0;
        let mut after = None;
        // Without a condition, the first entries are the result.
        let mut at_once = limit;
        while found.len() < limit && seen < CANDIDATES_MAX {
            let next = if let Some(best) = &mut best {
                let seqs: Vec<i64> = best.by_ref().take(at_once).collect();
                by_seqs(session, &seqs).await?
            } else {
                let page = Page { module: self.module(), ..Page::of(&self.tier) };
                let page = Page { after: after.as_ref(), now: self.now, limit: at_once, ..page };
                page.read(session).await?
            };
            let Some(last) = next.last() else { break };
            after = Some((last.updated, last.id.clone()));
            seen += next.len();
            for entry in next {
                match self.filter.accepts(&entry) {
                    Ok(true) if found.len() < limit => found.push(entry),
                    Ok(_) => (),
                    Err(error) => return Ok(Err(error)),
                }
            }
            at_once = READ_AT_ONCE.min(CANDIDATES_MAX.saturating_sub(seen));
        }
        Ok(Ok(found))
    }
}

#[async_trait]
impl Work for Listing {
    type Output = Vec<Entry>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let Self { tier, pending, after, limit, now } = self;
        let tier = tier.as_deref();
        let limit = (*limit).min(ENTRIES_MAX);
        let module = None;
        let pending = *pending;
        Page { tier, module, pending, after: after.as_ref(), limit, now: *now }.read(session).await
    }
}

#[async_trait]
impl Work for Find {
    type Output = Vec<Entry>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let prefix = &self.0;
        if !prefix.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Ok(Vec::new());
        }
        // The end is above every id that begins with the text.
        let sql = "SELECT entry FROM entries WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 2";
        entries(&session.query(sql, &[prefix, &format!("{prefix}g")]).await?)
    }
}

#[async_trait]
impl Work for Approve {
    type Output = bool;

    async fn attempt(&self, session: &Session) -> Result<bool, Fault> {
        lock(session).await?;
        let mut changes = Changes::new(by_ids(session, std::slice::from_ref(&self.id)).await?);
        let Some(mut entry) = changes.get(&self.id).cloned() else { return Ok(false) };
        rules::approve(&mut entry, &self.by, self.now);
        changes.add(entry);
        save(session, changes).await?;
        Ok(true)
    }
}

#[async_trait]
impl Work for Remove {
    type Output = bool;

    async fn attempt(&self, session: &Session) -> Result<bool, Fault> {
        lock(session).await?;
        let sql = "SELECT seq FROM entries WHERE id = $1";
        let found = seqs(&session.query(sql, &[&self.0.as_str()]).await?)?;
        forget(session, &found).await?;
        Ok(!found.is_empty())
    }

    async fn attempt_after_doubt(&self, session: &Session) -> Result<bool, Fault> {
        // The attempt in doubt may have removed it.
        self.attempt(session).await.map(|_| true)
    }
}

#[async_trait]
impl Work for Import {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        lock(session).await?;
        let ids: Vec<EntryId> = self.0.iter().map(|it| it.id.clone()).collect();
        let mut changes = Changes::new(by_ids(session, &ids).await?);
        self.0.iter().for_each(|it| changes.add(it.clone()));
        save(session, changes).await
    }
}

/// Entries that one transaction writes, in the order in which each was first written.
struct Changes {
    /// The entries that the database has.
    saved: BTreeMap<EntryId, Entry>,
    written: Vec<Entry>,
    /// Where they are in `written`.
    places: BTreeMap<EntryId, usize>,
}

impl Changes {
    fn new(saved: Vec<Entry>) -> Self {
        let saved = saved.into_iter().map(|it| (it.id.clone(), it)).collect();
        Self { saved, written: Vec::new(), places: BTreeMap::new() }
    }

    fn get(&self, id: &EntryId) -> Option<&Entry> {
        let written = self.places.get(id).map(|it| &self.written[*it]);
        written.or_else(|| self.saved.get(id))
    }

    fn add(&mut self, entry: Entry) {
        let entry = in_microseconds(entry);
        if let Some(place) = self.places.get(&entry.id) {
            self.written[*place] = entry;
        } else {
            self.places.insert(entry.id.clone(), self.written.len());
            self.written.push(entry);
        }
    }
}

/// A page of entries, the newest first.
#[derive(Clone, Copy)]
struct Page<'a> {
    tier: Option<&'a str>,
    module: Option<&'a str>,
    pending: bool,
    after: Option<&'a (Timestamp, EntryId)>,
    limit: usize,
    now: Timestamp,
}

impl<'a> Page<'a> {
    fn of(tier: &'a str) -> Self {
        let tier = Some(tier);
        let module = None;
        let pending = false;
        let after = None;
        Self { tier, module, pending, after, limit: 0, now: Timestamp::UNIX_EPOCH }
    }

    async fn read(self, session: &Session) -> Result<Vec<Entry>, Fault> {
        let (updated, id) = match self.after {
            Some((updated, id)) => (updated.as_microsecond(), id.as_str()),
            None => (i64::MAX, ""),
        };
        let now = self.now.as_microsecond();
        let limit = signed(self.limit);
        let tier = self.tier.map(str::as_bytes);
        let module = self.module.map(str::as_bytes);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&now, &updated, &id, &limit];
        // Each combination of conditions is a separate statement, with the index that fits it.
        let mut conditions = String::new();
        for (column, value) in [("tier", &tier), ("module", &module)] {
            if let Some(value) = value {
                values.push(value);
                let _ = write!(conditions, " AND {column} = ${}", values.len());
            }
        }
        if self.pending {
            conditions.push_str(" AND pending");
        }
        let sql = format!(
            "SELECT entry FROM entries
             WHERE (expires IS NULL OR expires > $1) AND (updated, id) < ($2, $3){conditions}
             ORDER BY updated DESC, id DESC LIMIT $4"
        );
        entries(&session.query(&sql, &values).await?)
    }
}

/// Waits until no other transaction writes.
async fn lock(session: &Session) -> Result<(), Fault> {
    session.execute("SELECT FROM totals FOR UPDATE", &[]).await?;
    Ok(())
}

/// Returns the numbers of the entries that fit these words and the vector of the search, the best first.
async fn best(session: &Session, search: &Search, words: Vec<String>) -> Result<Vec<i64>, Fault> {
    let by_words = ranked_by_words(session, search, words).await?;
    let Some(embedding) = &search.embedding else { return Ok(by_words) };
    let groups = rules::fused(&by_words, &vectors::nearest(session, search, embedding).await?);
    vectors::by_id_in_groups(session, groups).await
}

/// Returns the numbers of the entries with some of these words, the best first.
async fn ranked_by_words(
    session: &Session,
    search: &Search,
    words: Vec<String>,
) -> Result<Vec<i64>, Fault> {
    let sql = "
        SELECT q.word, t.entries, t.words,
            (SELECT count(*) FROM (SELECT FROM words w WHERE w.word = q.word LIMIT $2) AS counted) AS count
        FROM (SELECT stem(word) AS word, at FROM unnest($1::text[]) WITH ORDINALITY AS u (word, at)) AS q,
            totals AS t
        ORDER BY q.at";
    let words: Vec<String> = words.iter().map(|it| cut(it)).collect();
    let rows = session.query(sql, &[&words, &signed(COMMON)]).await?;
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (count, length): (i64, i64) = (get(first, "entries")?, get(first, "words")?);
    let count = float(count);
    let length = float(length);
    let counted = rows.iter().map(|row| {
        let count = usize::try_from(get::<i64>(row, "count")?).unwrap_or(0);
        Ok((get::<String>(row, "word")?, count))
    });
    let rare = rare(counted.collect::<Result<Vec<_>, Fault>>()?);
    let weight = |having: usize| {
        let having = float(i64::try_from(having).unwrap_or(i64::MAX));
        // SQLite does so: a word that most entries have counts a little.
        ((count - having + 0.5) / (having + 0.5)).ln().max(1e-6)
    };
    let weights: Vec<f64> = rare.iter().map(|(_, count)| weight(*count)).collect();
    let words: Vec<&str> = rare.iter().map(|(word, _)| word.as_str()).collect();
    let tier = search.tier.as_bytes();
    let now = search.now.as_microsecond();
    let average = (length / count.max(1.0)).max(1.0);
    let candidates = signed(CANDIDATES_MAX);
    let module = search.module().map(str::as_bytes);
    let mut values: Vec<&(dyn ToSql + Sync)> =
        vec![&words, &weights, &average, &tier, &now, &candidates];
    let mut of_module = "";
    if let Some(module) = &module {
        values.push(module);
        of_module = "AND w.module = $7";
    }
    // Of each word the newest entries, of these the newest, and of these the best. The parts of a score are added in
    // one order, so that equal texts have equal scores.
    let sql = format!(
        "SELECT seq FROM (
             SELECT hit.entry AS seq, sum(hit.part ORDER BY hit.part) AS score
             FROM unnest($1::text[], $2::float8[]) AS q (word, weight)
             CROSS JOIN LATERAL (
                 SELECT w.entry,
                     q.weight * w.count * ({K1} + 1)
                         / (w.count + {K1} * (1 - {B} + {B} * w.length / $3::float8)) AS part
                 FROM words AS w
                 WHERE w.word = q.word AND w.tier = $4 AND (w.expires IS NULL OR w.expires > $5) {of_module}
                 ORDER BY w.entry DESC LIMIT $6
             ) AS hit
             GROUP BY hit.entry ORDER BY hit.entry DESC LIMIT $6
         ) AS found ORDER BY score DESC, seq DESC"
    );
    seqs(&session.query(&sql, &values).await?)
}

async fn by_ids(session: &Session, ids: &[EntryId]) -> Result<Vec<Entry>, Fault> {
    let ids: Vec<&str> = ids.iter().map(EntryId::as_str).collect();
    entries(&session.query("SELECT entry FROM entries WHERE id = ANY($1)", &[&ids]).await?)
}

/// Returns entries in the order of these numbers.
async fn by_seqs(session: &Session, seqs: &[i64]) -> Result<Vec<Entry>, Fault> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT entry FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (seq, at)
               JOIN entries USING (seq) ORDER BY at";
    entries(&session.query(sql, &[&seqs]).await?)
}

/// Writes entries in place of those with their ids. The text of an id never changes, so only new ones have new words.
async fn save(session: &Session, changes: Changes) -> Result<(), Fault> {
    let Changes { saved, written, .. } = changes;
    if written.is_empty() {
        return Ok(());
    }
    let counts: Vec<BTreeMap<String, i32>> = written.iter().map(|it| counts(&it.text)).collect();
    let lengths: Vec<i32> = counts.iter().map(|it| it.values().sum()).collect();
    let json = written.iter().map(serde_json::to_string);
    let json: Vec<String> = json.collect::<Result<_, _>>().map_err(Fault::Unwritable)?;
    let values: [&(dyn ToSql + Sync); 8] = [
        &written.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        &written.iter().map(|it| it.tier.as_bytes()).collect::<Vec<_>>(),
        &written.iter().map(|it| it.module.as_deref().map(str::as_bytes)).collect::<Vec<_>>(),
        &written.iter().map(|it| it.updated.as_microsecond()).collect::<Vec<_>>(),
        &written.iter().map(|it| it.expires.map(Timestamp::as_microsecond)).collect::<Vec<_>>(),
        &written.iter().map(|it| it.approval == Approval::Pending).collect::<Vec<_>>(),
        &lengths,
        &json,
    ];
    let sql = "INSERT INTO entries (id, tier, module, updated, expires, pending, length, entry)
               SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[],
                   $6::boolean[], $7::integer[], $8::text[])
               ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, expires = excluded.expires,
                   pending = excluded.pending, entry = excluded.entry";
    session.execute(sql, &values).await?;
    let is_new = |it: &&(&Entry, (&BTreeMap<String, i32>, &i32))| !saved.contains_key(&it.0.id);
    let all: Vec<_> = written.iter().zip(counts.iter().zip(&lengths)).collect();
    let new: Vec<_> = all.iter().filter(is_new).collect();
    let mut ids = Vec::new();
    let mut words = Vec::new();
    let mut numbers = Vec::new();
    for (entry, (counts, _)) in &new {
        for (word, count) in *counts {
            ids.push(entry.id.as_str());
            words.push(word.as_str());
            numbers.push(*count);
        }
    }
    let sql = "INSERT INTO words (word, entry, count, length, tier, module, expires)
               SELECT stem(w.word), e.seq, sum(w.count), e.length, e.tier, e.module, e.expires
               FROM unnest($1::text[], $2::text[], $3::integer[]) AS w (id, word, count)
                   JOIN entries AS e ON e.id = w.id
               GROUP BY 1, e.seq";
    session.execute(sql, &[&ids, &words, &numbers]).await?;
    let is_moved =
        |entry: &&Entry| saved.get(&entry.id).is_some_and(|old| old.expires != entry.expires);
    let moved: Vec<&str> = written.iter().filter(is_moved).map(|it| it.id.as_str()).collect();
    if !moved.is_empty() {
        let sql = "UPDATE words AS w SET expires = e.expires FROM entries AS e
                   WHERE e.id = ANY($1) AND w.entry = e.seq";
        session.execute(sql, &[&moved]).await?;
    }
    let length = new.iter().map(|(_, (_, length))| i64::from(**length)).sum();
    add_to_totals(session, signed(new.len()), length).await
}

/// Removes entries, and their words.
async fn forget(session: &Session, seqs: &[i64]) -> Result<(), Fault> {
    if seqs.is_empty() {
        return Ok(());
    }
    let sql = "DELETE FROM entries WHERE seq = ANY($1) RETURNING length";
    let rows = session.query(sql, &[&seqs]).await?;
    for table in ["vectors", "words"] {
        session.execute(&format!("DELETE FROM {table} WHERE entry = ANY($1)"), &[&seqs]).await?;
    }
    let lengths = rows.iter().map(|row| get::<i32>(row, "length").map(i64::from));
    let length = lengths.sum::<Result<i64, _>>()?;
    add_to_totals(session, -signed(rows.len()), -length).await
}

async fn add_to_totals(session: &Session, entries: i64, words: i64) -> Result<(), Fault> {
    if entries != 0 {
        let sql = "UPDATE totals SET entries = entries + $1, words = words + $2";
        session.execute(sql, &[&entries, &words]).await?;
    }
    Ok(())
}

/// Cuts the times of an entry to microseconds, as SQLite keeps them, so that a copy in another place is the same entry.
fn in_microseconds(entry: Entry) -> Entry {
    let cut = |time: Timestamp| Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time);
    let created = cut(entry.created);
    let updated = cut(entry.updated);
    Entry { created, updated, expires: entry.expires.map(cut), ..entry }
}

/// Returns how often a text has each of its words.
fn counts(text: &str) -> BTreeMap<String, i32> {
    let mut counts = BTreeMap::new();
    for word in all_words(text) {
        *counts.entry(cut(&word)).or_default() += 1;
    }
    counts
}

fn cut(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect()
}

fn entries(rows: &[Row]) -> Result<Vec<Entry>, Fault> {
    let read = |row: &Row| {
        serde_json::from_str(get(row, "entry")?).map_err(|error| {
            Fault::Unusable(format!("an entry cannot be read ({error}); restore a backup"))
        })
    };
    rows.iter().map(read).collect()
}

fn seqs(rows: &[Row]) -> Result<Vec<i64>, Fault> {
    rows.iter().map(|it| get(it, "seq")).collect()
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(number: i64) -> f64 {
    number as f64
}
