//! Statements that are a whole transaction: they save new runs, or entries of runs whose heads are cached.
//!
//! A transaction of several statements waits for the server once for each. One statement waits once, and the server commits
//! it at its end. It names the head that each run must still have, by its hash and its fencing token. It skips a run
//! with another head, and a run that another transaction has locked; these are saved by a transaction that reads their
//! heads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use graphrun_core::fault::{self, Point};
use graphrun_engine::{
    checkpoint::{CheckpointError, LeaseToken},
    storage::rules::{Head, beginning, stops_run},
};
use tokio_postgres::types::ToSql;

use super::{
    cached_heads::CachedHead,
    entries::RowValues,
    fault::Fault,
    run::{HeadValues, NOW, NewHead, Run, signed},
    run_server::RunServer,
    session::{Mode, Session, Work, get},
    work::{Append, Create},
};
use crate::{
    head::{EncodedEntry, NextEntry, StoredHead},
    journal::{Codec, Reader, Row, checksum::of_info, encode},
    lease::Lease,
};

/// Saves the entries of runs that still have the cached heads.
///
/// Each part hands all columns to the next one, because the server would compare each entry with each other one to join them
/// again.
const APPEND: &str = "
    WITH free AS MATERIALIZED (
        SELECT e.* FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[],
            $6::bigint[], $7::bigint[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[],
            $12::text[], $13::bytea[], $14::boolean[], $15::bigint[], $16::bytea[])
            AS e (run, fence, before, number, before_open, step, seq, changes, meta, data, hash,
                run_status, checksum, stops, until, lease_checksum)
        JOIN heads h ON h.run = e.run
        WHERE h.hash = e.before AND h.fence = e.fence AND h.owner IS NOT NULL
        FOR UPDATE OF h SKIP LOCKED
    ), saved AS (
        UPDATE heads h SET number = e.number, before_open = e.before_open, step = e.step, seq = e.seq,
            hash = e.hash, run_status = e.run_status, checksum = e.checksum,
            owner = CASE WHEN e.stops THEN NULL ELSE h.owner END,
            until = CASE WHEN e.stops THEN e.until ELSE h.until END,
            lease_checksum = CASE WHEN e.stops THEN e.lease_checksum ELSE h.lease_checksum END
        FROM free e WHERE h.run = e.run
        RETURNING h.run, h.number, h.step, h.seq, e.changes, e.meta, e.data, h.hash
    )
    INSERT INTO journal (run, number, step, seq, changes, meta, data, hash)
    SELECT * FROM saved RETURNING run";

/// Saves new runs with ids and names that no other run has.
const CREATE: &str = "
    WITH new AS (
        SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[],
            $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::text[], $11::bytea[],
            $12::bigint[], $13::text[], $14::bigint[], $15::bytea[])
            AS n (id, name, info, info_checksum, seq, changes, meta, data, hash, run_status, checksum,
                fence, owner, until, lease_checksum)
    ), made AS (
        INSERT INTO runs (id, name, info, info_checksum)
        SELECT id, name, info, info_checksum FROM new
        ON CONFLICT DO NOTHING
        RETURNING key, id
    ), entry AS (
        INSERT INTO journal (run, number, step, seq, changes, meta, data, hash)
        SELECT m.key, 1, 0, n.seq, n.changes, n.meta, n.data, n.hash
        FROM made m JOIN new n ON n.id = m.id
    ), head AS (
        INSERT INTO heads (run, number, before_open, step, seq, hash, run_status, checksum, fence, owner,
            until, lease_checksum)
        SELECT m.key, 1, 1, 0, n.seq, n.hash, n.run_status, n.checksum, n.fence, n.owner, n.until,
            n.lease_checksum
        FROM made m JOIN new n ON n.id = m.id
    )
    SELECT key, id FROM made";

/// An entry that waits, and its encoded form after the cached head of its run.
pub(super) struct CachedAppend {
    pub(super) append: Append,
    run: Run,
    stored: StoredHead,
    encoded: EncodedEntry,
}

/// Appends entries to runs that still have the cached heads. Returns the keys of the runs whose entries are saved.
pub(super) struct AppendCached(pub(super) Vec<CachedAppend>);

/// Creates runs. Returns the keys and the leases of those that are new.
pub(super) struct CreateAll {
    pub(super) server: Arc<RunServer>,
    pub(super) creates: Vec<Create>,
}

/// A new run and its first entry.
struct NewRun<'a> {
    create: &'a Create,
    row: Row,
    head: Head,
    lease: Lease,
}

impl CachedAppend {
    /// Encodes an entry that needs nothing of the database but a cached head. Gives back any other one, also one that
    /// does not follow the cached head, which may be out of date.
    pub(super) fn encode(server: &RunServer, append: Append) -> Result<Self, Box<Append>> {
        if append.entry.migration.is_some() {
            return Err(Box::new(append));
        }
        let Some(CachedHead { run, stored }) = server.heads().take(&append.token.run) else {
            return Err(Box::new(append));
        };
        let next =
            NextEntry::new(&append.token, &stored, &append.entry, &mut server.open_steps()).ok();
        let next = next.filter(|it| it.needed_rows().is_none());
        let encoded = next
            .and_then(|entry| server.with_codec(|codec| entry.encode::<Fault>(None, codec)).ok());
        match encoded {
            Some(encoded) => Ok(Self { append, run, stored, encoded }),
            None => Err(Box::new(append)),
        }
    }

    /// Returns the key of its run.
    pub(super) fn key(&self) -> i64 {
        self.run.key
    }

    /// Notes that it is saved, and returns the lease of its run.
    pub(super) fn note_saved(self, server: &RunServer) -> LeaseToken {
        let lease = self.lease();
        let Self { append: Append { token, entry, .. }, run, encoded, .. } = self;
        let EncodedEntry { row, head, before_open, finished } = encoded;
        server.open_steps().note(&run.id, row.hash, &entry, finished);
        server.heads().note(run, StoredHead { head, before_open, hash: row.hash, lease });
        token
    }

    /// Returns the lease after the entry.
    fn lease(&self) -> Lease {
        let lease = self.stored.lease.clone();
        if stops_run(&self.append.entry) { lease.released() } else { lease }
    }
}

#[async_trait]
impl Work for AppendCached {
    type Output = BTreeSet<i64>;

    const MODE: Mode = Mode::Statement;

    async fn attempt(&self, session: &Session) -> Result<BTreeSet<i64>, Fault> {
        let Self(appends) = self;
        for CachedAppend { append, encoded, .. } in appends {
            let points = append.entry.points_in_transaction();
            fault::hit_each(points).map_err(CheckpointError::injected)?;
            append.note_in_doubt(&encoded.row);
        }
        let leases: Vec<Lease> = appends.iter().map(CachedAppend::lease).collect();
        let heads = appends.iter().zip(&leases).map(|(it, lease)| {
            let EncodedEntry { row, head, before_open, .. } = &it.encoded;
            NewHead { run: &it.run, head, before_open: *before_open, hash: row.hash, lease }
        });
        let heads = HeadValues::of(heads)?;
        let rows = RowValues::of(appends.iter().map(|it| &it.encoded.row))?;
        let fences = appends.iter().map(|it| signed(it.append.token.fence));
        let values: [&(dyn ToSql + Sync); 16] = [
            &appends.iter().map(CachedAppend::key).collect::<Vec<_>>(),
            &fences.collect::<Result<Vec<_>, _>>()?,
            &appends.iter().map(|it| it.stored.hash.0.as_slice()).collect::<Vec<_>>(),
            &rows.numbers,
            &heads.before_open,
            &rows.steps,
            &rows.seqs,
            &rows.changes,
            &rows.metas,
            &rows.data,
            &rows.hashes,
            &heads.statuses,
            &heads.checksums,
            &appends.iter().map(|it| stops_run(&it.append.entry)).collect::<Vec<_>>(),
            &heads.untils,
            &heads.lease_checksums,
        ];
        let saved = session.query(APPEND, &values).await?;
        saved.iter().map(|row| get(row, "run")).collect()
    }
}

impl CreateAll {
    /// Returns the time of the server, and the words of these runs that are an id or a name of another run.
    async fn look(&self, session: &Session) -> Result<(i64, BTreeSet<String>), Fault> {
        let sql = format!(
            "SELECT {NOW} AS now, ARRAY(SELECT unnest(ARRAY[id, name]) FROM runs
             WHERE id = ANY($1) OR name = ANY($1)) AS taken"
        );
        let words = self.creates.iter().flat_map(|it| [it.info.id.as_str(), it.info.name.as_str()]);
        let row = session.first(&sql, &[&words.collect::<Vec<_>>()]).await?;
        let row = row.ok_or_else(|| Fault::Unusable("it returned no time".to_owned()))?;
        let taken: Vec<String> = get(&row, "taken")?;
        Ok((get(&row, "now")?, taken.into_iter().collect()))
    }
}

#[async_trait]
impl Work for CreateAll {
    type Output = Vec<Option<LeaseToken>>;

    const MODE: Mode = Mode::Statement;

    async fn attempt(&self, session: &Session) -> Result<Self::Output, Fault> {
        let Self { server, creates } = self;
        let (now, taken) = self.look(session).await?;
        let is_new = |create: &&Create| {
            !taken.contains(create.info.id.as_str()) && !taken.contains(create.info.name.as_str())
        };
        let new = creates.iter().filter(is_new);
        // A separate transaction reports a run that cannot be encoded.
        let new = new.filter_map(|it| server.with_codec(|codec| NewRun::of(it, now, codec)));
        let new: Vec<NewRun<'_>> = new.collect();
        if new.is_empty() {
            return Ok(creates.iter().map(|_| None).collect());
        }
        fault::hit(Point::AcceptBeforeCommit).map_err(CheckpointError::injected)?;
        let mut keys = insert(session, &new).await?;
        let mut tokens = BTreeMap::new();
        for NewRun { create, row, head, lease } in new {
            let id = &create.info.id;
            let Some(key) = keys.remove(id.as_str()) else { continue };
            tokens.insert(id, LeaseToken { run: id.clone(), fence: lease.fence });
            let stored = StoredHead { before_open: head.number, hash: row.hash, head, lease };
            server.heads().note(Run { key, id: id.clone() }, stored);
        }
        Ok(creates.iter().map(|it| tokens.remove(&it.info.id)).collect())
    }
}

impl<'a> NewRun<'a> {
    fn of(create: &'a Create, now: i64, codec: &mut Codec) -> Option<Self> {
        let Create { info, json, request, first, .. } = create;
        let head = Head::first(first).ok()?;
        let before = beginning(&info.id, json);
        let open = Reader::trusted(&info.id, Vec::new());
        let row = encode(codec, first, &head, before, &open).ok()?;
        let lease = Lease::next(0, request, now).ok()?;
        Some(Self { create, row, head, lease })
    }
}

/// Inserts new runs. Returns the keys of those whose id and name no other run has taken meanwhile, by their ids.
async fn insert(session: &Session, new: &[NewRun<'_>]) -> Result<BTreeMap<String, i64>, Fault> {
    // The key is not known yet, and no column depends on it.
    let runs: Vec<Run> =
        new.iter().map(|it| Run { key: 0, id: it.create.info.id.clone() }).collect();
    let heads = new.iter().zip(&runs).map(|(it, run)| {
        let NewRun { row, head, lease, .. } = it;
        NewHead { run, head, before_open: head.number, hash: row.hash, lease }
    });
    let heads = HeadValues::of(heads)?;
    let rows = RowValues::of(new.iter().map(|it| &it.row))?;
    let info = |new: &NewRun<'_>| {
        let Create { info, json, .. } = new.create;
        of_info(info.id.as_str(), &info.name, json).to_vec()
    };
    let fences = new.iter().map(|it| signed(it.lease.fence));
    let values: [&(dyn ToSql + Sync); 15] = [
        &new.iter().map(|it| it.create.info.id.as_str()).collect::<Vec<_>>(),
        &new.iter().map(|it| it.create.info.name.as_str()).collect::<Vec<_>>(),
        &new.iter().map(|it| it.create.json.as_slice()).collect::<Vec<_>>(),
        &new.iter().map(info).collect::<Vec<_>>(),
        &rows.seqs,
        &rows.changes,
        &rows.metas,
        &rows.data,
        &rows.hashes,
        &heads.statuses,
        &heads.checksums,
        &fences.collect::<Result<Vec<_>, _>>()?,
        &new.iter().map(|it| it.lease.json.as_deref()).collect::<Vec<_>>(),
        &heads.untils,
        &heads.lease_checksums,
    ];
    let made = session.query(CREATE, &values).await?;
    made.iter().map(|row| Ok((get(row, "id")?, get(row, "key")?))).collect()
}
