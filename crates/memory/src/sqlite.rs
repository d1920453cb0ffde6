//! A store in a SQLite database, whose full-text index ranks by BM25.
//!
//! A search does a bounded amount of work, however many entries there are. BM25 gives words that many
//! entries have almost no weight, so a search drops them as long as rarer words are left; and it looks
//! at the newest [`CANDIDATES_MAX`] of the entries with one of its words.

mod vectors;

use std::{
    fmt,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use graphrun_core::fault::{InjectedFault, Point, hit};
use graphrun_storage::sqlite_file::{FileConnection, FileKind, explain};
use jiff::Timestamp;
use rusqlite::{
    Connection, OptionalExtension, Row, TransactionBehavior, named_params, params,
    types::{FromSqlError, Type},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::spawn_blocking;

use super::{
    Batch, Embedding, Entry, EntryId, Listing, NewEntry, Search, Store, StoreError,
    rules::{self, COMMON, EXPIRED_MAX, rare, words},
    store::{CANDIDATES_MAX, ENTRIES_MAX},
};

/// The kind of file: "grme" in its header.
const KIND: FileKind =
    FileKind::new(*b"grme", include_str!("schema.sql"), "let a run remember something");

/// The memory for pages of the file.
const CACHE_KILOBYTES: i32 = 16_000;

const COLUMNS: &str = "id, tier, module, updated, expires, created, approval, approved_by, \
                       confidence, source, text, value";

/// Keeps entries in a SQLite database.
///
/// Clones share one connection. Several processes may use one database at the same time.
#[derive(Clone)]
pub struct SqliteStore(Arc<Database>);

struct Database {
    path: PathBuf,
    connection: Mutex<FileConnection>,
}

/// Why a transaction failed.
enum Fault {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl SqliteStore {
    /// Opens a database and creates it if it is missing, whole or not at all. Only its owner can
    /// read the file, and its folder if that is created as well.
    ///
    /// This blocks on file access.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Unusable`], and leaves the file unchanged, when something else is at
    /// that path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), |_| ())
    }

    /// Same as `open`, and passes a new file to `announce` before the file gets its name.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStore::open`].
    pub fn open_with(path: &Path, announce: impl FnOnce(&File)) -> Result<Self, StoreError> {
        Self::new(path, KIND.open(path, announce)?)
    }

    /// Opens a database to look at it. It never creates one.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStore::open`], and when there is no file or it is empty.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        Self::new(path, KIND.open_existing(path)?)
    }

    /// Opens a database to look at it; returns none if there is no file. It never creates one.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStore::open_existing`], and when only the log of a database is there.
    pub fn find(path: impl AsRef<Path>) -> Result<Option<Self>, StoreError> {
        let path = path.as_ref();
        KIND.find(path)?.map(|it| Self::new(path, it)).transpose()
    }

    /// Opens a database to read, as `find` does, also one that this user may not write.
    ///
    /// # Errors
    ///
    /// Same as [`SqliteStore::find`].
    pub fn find_to_read(path: impl AsRef<Path>) -> Result<Option<Self>, StoreError> {
        let path = path.as_ref();
        KIND.find_to_read(path)?.map(|it| Self::new(path, it)).transpose()
    }

    fn new(path: &Path, connection: FileConnection) -> Result<Self, StoreError> {
        // The indexes of a large memory fit into it.
        let set = connection.pragma_update(None, "cache_size", -CACHE_KILOBYTES);
        set.map_err(|error| explain(error, path, format!("open {}", path.display())))?;
        Ok(Self(Arc::new(Database { path: path.to_owned(), connection: Mutex::new(connection) })))
    }

    async fn transact<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        action: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.0);
        let done = spawn_blocking(move || database.transact(behavior, action, work)).await;
        done.unwrap_or_else(|error| {
            let source = Box::new(error);
            Err(StoreError::Failed { action: action.to_owned(), is_transient: false, source })
        })
    }

    async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.transact(TransactionBehavior::Deferred, action, work).await
    }

    async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.transact(TransactionBehavior::Immediate, action, work).await
    }
}

impl Database {
    fn transact<T>(
        &self,
        behavior: TransactionBehavior,
        action: &str,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        // A panic while the lock was held rolled its transaction back, so the connection is usable.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let is_write = matches!(behavior, TransactionBehavior::Immediate);
        let work = || -> Result<T, Fault> {
            if is_write {
                connection.check_files().map_err(StoreError::from)?;
            }
            let transaction = connection.transaction_with_behavior(behavior)?;
            let made = work(&transaction)?;
            transaction.commit()?;
            if is_write {
                // An entry of another file would be lost.
                connection.check_files().map_err(StoreError::from)?;
            }
            Ok(made)
        };
        work().map_err(|fault| match fault {
            Fault::Sqlite(error) => explain(error, &self.path, action.to_owned()).into(),
            Fault::Store(error) => error,
        })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn put(&self, batch: &Batch) -> Result<Vec<EntryId>, StoreError> {
        rules::check_batch(batch)?;
        let batch = batch.clone();
        self.write("remember", move |database| {
            let ids = batch.entries.iter().map(NewEntry::id).collect();
            let sql = "INSERT OR IGNORE INTO batches (key, written) VALUES (?, ?)";
            let written = params![batch.key, batch.now.as_microsecond()];
            if database.prepare_cached(sql)?.execute(written)? == 0 {
                return Ok(ids);
            }
            remove_expired(database, batch.now)?;
            for new in &batch.entries {
                let known = entry_of(database, &new.id())?;
                if let Some(entry) = rules::written(known.as_ref(), new, batch.now) {
                    save(database, &entry)?;
                }
                if let Some(embedding) = &new.embedding {
                    vectors::set(database, &new.id(), embedding)?;
                }
            }
            hit(Point::MemoryInTransaction)?;
            Ok(ids)
        })
        .await
        .and_then(|ids| hit(Point::MemoryAfterCommit).map(|()| ids).map_err(StoreError::from))
    }

    async fn search(&self, search: &Search) -> Result<Vec<Entry>, StoreError> {
        let search = search.clone();
        self.read("search the memory", move |database| {
            if search.is_for_newest() {
                newest(database, &search)
            } else {
                let words = words(search.query.as_deref().unwrap_or_default());
                best(database, &search, &words)
            }
        })
        .await
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Entry>, StoreError> {
        let listing = listing.clone();
        self.read("list the memory", move |database| {
            let sql = format!(
                "SELECT {COLUMNS} FROM entries
                 WHERE (expires IS NULL OR expires > :now) AND (:tier IS NULL OR tier = :tier)
                     AND (:pending = 0 OR approval = 'pending') AND (updated, id) < (:updated, :id)
                 ORDER BY updated DESC, id DESC LIMIT :limit"
            );
            let (updated, id) = match &listing.after {
                Some((updated, id)) => (updated.as_microsecond(), id.as_str()),
                None => (i64::MAX, ""),
            };
            let values = named_params! {
                ":now": listing.now.as_microsecond(),
                ":tier": listing.tier,
                ":pending": listing.pending,
                ":updated": updated,
                ":id": id,
                ":limit": listing.limit.min(ENTRIES_MAX),
            };
            let mut statement = database.prepare_cached(&sql)?;
            let rows = statement.query_map(values, read)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        // The end is above every id that begins with the text.
        let from = prefix.to_owned();
        let to = format!("{prefix}g");
        self.read("look for an entry", move |database| {
            let sql = format!("SELECT {COLUMNS} FROM entries WHERE id BETWEEN ? AND ? LIMIT 2");
            let mut statement = database.prepare_cached(&sql)?;
            let rows = statement.query_map(params![from, to], read)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn approve(&self, id: &EntryId, by: &str, now: Timestamp) -> Result<(), StoreError> {
        let id = id.clone();
        let by = by.to_owned();
        self.write("approve an entry", move |database| {
            let mut entry = entry_of(database, &id)?.ok_or(StoreError::Unknown(id))?;
            rules::approve(&mut entry, &by, now);
            save(database, &entry)
        })
        .await
    }

    async fn remove(&self, id: &EntryId) -> Result<(), StoreError> {
        let id = id.clone();
        self.write("remove an entry", move |database| {
            if forget(database, &id)? { Ok(()) } else { Err(StoreError::Unknown(id).into()) }
        })
        .await
    }

    async fn import(&self, entries: &[Entry]) -> Result<(), StoreError> {
        rules::check_entries(entries)?;
        let entries = entries.to_vec();
        self.write("import entries", move |database| {
            entries.iter().try_for_each(|it| save(database, it))
        })
        .await
    }

    async fn without_vector(
        &self,
        tier: &str,
        model: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let tier = tier.to_owned();
        let model = model.to_owned();
        self.read("look for entries without a vector", move |database| {
            vectors::missing(database, &tier, &model, limit.min(ENTRIES_MAX))
        })
        .await
    }

    async fn set_vectors(&self, vectors: &[(EntryId, Embedding)]) -> Result<(), StoreError> {
        let vectors = vectors.to_vec();
        self.write("save vectors", move |database| {
            vectors.iter().try_for_each(|(id, it)| vectors::set(database, id, it))
        })
        .await
    }
}

/// Returns the newest entries that fit.
fn newest(database: &Connection, search: &Search) -> Result<Vec<Entry>, Fault> {
    // With `OR`, SQLite would not use the index of modules.
    let module = if search.module().is_some() { "module = :module" } else { ":module IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM entries
         WHERE tier = :tier AND {module} AND (expires IS NULL OR expires > :now)
         ORDER BY updated DESC, id DESC LIMIT :candidates"
    );
    let mut statement = database.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":tier": search.tier,
        ":module": search.module(),
        ":now": search.now.as_microsecond(),
        ":candidates": CANDIDATES_MAX,
    })?;
    let mut found = Vec::new();
    while found.len() < search.limit.min(ENTRIES_MAX)
        && let Some(row) = rows.next()?
    {
        let entry = read(row)?;
        if search.filter.accepts(&entry)? {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Returns the entries that fit the words and the vector best.
fn best(database: &Connection, search: &Search, words: &[String]) -> Result<Vec<Entry>, Fault> {
    let by_words = ranked_by_words(database, search, words)?;
    let groups = match &search.embedding {
        None => by_words.into_iter().map(|it| vec![it]).collect(),
        Some(embedding) => rules::fused(&by_words, &vectors::nearest(database, search, embedding)?),
    };
    let sql = format!("SELECT {COLUMNS} FROM entries WHERE seq = ?");
    let mut statement = database.prepare_cached(&sql)?;
    let mut found = Vec::new();
    let limit = search.limit.min(ENTRIES_MAX);
    for group in groups {
        if found.len() >= limit {
            break;
        }
        let entries = group.into_iter().map(|seq| statement.query_row([seq], read));
        let mut entries = entries.collect::<rusqlite::Result<Vec<Entry>>>()?;
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        for entry in entries {
            if found.len() < limit && search.filter.accepts(&entry)? {
                found.push(entry);
            }
        }
    }
    Ok(found)
}

/// Returns the numbers of the entries with some of the words, the best first.
fn ranked_by_words(
    database: &Connection,
    search: &Search,
    words: &[String],
) -> Result<Vec<i64>, Fault> {
    let rare = rare(counted(database, words)?);
    let query: Vec<String> = rare.into_iter().map(|(word, _)| quoted(word)).collect();
    if query.is_empty() {
        return Ok(Vec::new());
    }
    // The candidates are ranked by their numbers alone; texts are read one after the other.
    let sql = "SELECT found FROM (
             SELECT words.rowid AS found, bm25(words) AS score
             FROM words CROSS JOIN entries INDEXED BY entries_in_short ON entries.seq = words.rowid
             WHERE words MATCH :query AND tier = :tier
                 AND (:module IS NULL OR module = :module) AND (expires IS NULL OR expires > :now)
             ORDER BY words.rowid DESC LIMIT :candidates
         ) ORDER BY score, found DESC";
    let mut statement = database.prepare_cached(sql)?;
    let values = named_params! {
        ":query": query.join(" OR "),
        ":tier": search.tier,
        ":module": search.module(),
        ":now": search.now.as_microsecond(),
        ":candidates": CANDIDATES_MAX,
    };
    let ranked = statement.query_map(values, |row| row.get::<_, i64>(0))?;
    Ok(ranked.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Returns the words with the numbers of their entries.
fn counted<'w>(database: &Connection, words: &'w [String]) -> Result<Vec<(&'w str, usize)>, Fault> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)";
    let mut statement = database.prepare_cached(sql)?;
    let count = |word: &'w String| {
        let count = statement.query_row(params![quoted(word), COMMON], |row| row.get(0))?;
        Ok((word.as_str(), count))
    };
    words.iter().map(count).collect()
}

/// Returns a word as a string of the query language.
fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

fn entry_of(database: &Connection, id: &EntryId) -> Result<Option<Entry>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM entries WHERE id = ?");
    Ok(database.prepare_cached(&sql)?.query_row([id.as_str()], read).optional()?)
}

/// Writes an entry in place of the one with its id. The text of an id never changes, so the index only gets new ones.
fn save(database: &Connection, entry: &Entry) -> Result<(), Fault> {
    let sql = format!(
        "INSERT INTO entries ({COLUMNS}) VALUES (:id, :tier, :module, :updated, :expires, :created,
             :approval, :approved_by, :confidence, :source, :text, :value)
         ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, expires = excluded.expires,
             created = excluded.created, approval = excluded.approval,
             approved_by = excluded.approved_by, confidence = excluded.confidence,
             source = excluded.source, value = excluded.value"
    );
    let is_new = entry_seq(database, &entry.id)?.is_none();
    database.prepare_cached(&sql)?.execute(named_params! {
        ":id": entry.id.as_str(),
        ":tier": entry.tier,
        ":module": entry.module,
        ":updated": entry.updated.as_microsecond(),
        ":expires": entry.expires.map(Timestamp::as_microsecond),
        ":created": entry.created.as_microsecond(),
        ":approval": word(&entry.approval),
        ":approved_by": entry.approved_by,
        ":confidence": entry.confidence,
        ":source": json(&entry.source),
        ":text": entry.text,
        ":value": entry.value.as_ref().map(json),
    })?;
    if is_new {
        let sql = "INSERT INTO words (rowid, text) VALUES (?, ?)";
        database.prepare_cached(sql)?.execute(params![database.last_insert_rowid(), entry.text])?;
    }
    Ok(())
}

fn entry_seq(database: &Connection, id: &EntryId) -> Result<Option<i64>, Fault> {
    let sql = "SELECT seq FROM entries WHERE id = ?";
    Ok(database.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0)).optional()?)
}

/// Removes an entry. Returns whether there was one.
fn forget(database: &Connection, id: &EntryId) -> Result<bool, Fault> {
    let Some(seq) = entry_seq(database, id)? else { return Ok(false) };
    let sql = "INSERT INTO words (words, rowid, text)
               SELECT 'delete', seq, text FROM entries WHERE seq = ?";
    database.prepare_cached(sql)?.execute([seq])?;
    database.prepare_cached("DELETE FROM entries WHERE seq = ?")?.execute([seq])?;
    database.prepare_cached("DELETE FROM vectors WHERE seq = ?")?.execute([seq])?;
    Ok(true)
}

fn remove_expired(database: &Connection, now: Timestamp) -> Result<(), Fault> {
    let sql = "SELECT id FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?";
    let mut statement = database.prepare_cached(sql)?;
    let values = params![now.as_microsecond(), EXPIRED_MAX];
    let rows = statement.query_map(values, |row| row.get::<_, String>(0))?;
    let ids = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    for id in ids.iter().filter_map(|it| EntryId::parse(it)) {
        forget(database, &id)?;
    }
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let id: String = row.get("id")?;
    let value: Option<String> = row.get("value")?;
    Ok(Entry {
        id: EntryId::parse(&id).ok_or_else(|| unreadable("an id"))?,
        tier: row.get("tier")?,
        module: row.get("module")?,
        text: row.get("text")?,
        value: value.map(|it| parsed(&it)).transpose()?,
        confidence: row.get("confidence")?,
        approval: parsed(&json(&row.get::<_, String>("approval")?))?,
        approved_by: row.get("approved_by")?,
        source: parsed(&row.get::<_, String>("source")?)?,
        created: time(row.get("created")?)?,
        updated: time(row.get("updated")?)?,
        expires: row.get::<_, Option<i64>>("expires")?.map(time).transpose()?,
    })
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("entries can always be written as JSON")
}

/// Returns an enum's word without the quotes of JSON.
fn word<T: Serialize>(value: &T) -> String {
    json(value).trim_matches('"').to_owned()
}

fn parsed<T: DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

fn time(microseconds: i64) -> rusqlite::Result<Timestamp> {
    Timestamp::from_microsecond(microseconds).map_err(|_| unreadable("a time"))
}

fn unreadable(what: &str) -> rusqlite::Error {
    let error = FromSqlError::Other(format!("{what} is invalid").into());
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<InjectedFault> for Fault {
    fn from(error: InjectedFault) -> Self {
        Self::Store(error.into())
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.0.path.display())
    }
}
