//! The transaction of each call of the trait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join;
use graphrun_core::{
    fault::{self, Point},
    id::{RunId, Step},
};
use graphrun_engine::{
    checkpoint::{CheckpointError, Entry, EntryHash, LeaseRequest, LeaseToken, RunInfo},
    storage::rules::{Head, beginning, check_fence, stops_run},
};

use super::{
    entries::{Begin, Journal, NewRow, Pages, insert, keep_values},
    fault::Fault,
    run::{LockedRun, NOW, NewHead, Run, StoredRun, put, put_leases, unknown},
    run_server::RunServer,
    session::{Mode, Session, Work, get},
};
use crate::{
    head::{EncodedEntry, NextEntry, StoredHead},
    journal::{Reader, Row, damaged, encode},
    lease::Lease,
};

/// Creates a run.
pub(super) struct Create {
    pub(super) info: RunInfo,
    /// `info`, as it is stored.
    pub(super) json: Vec<u8>,
    pub(super) request: LeaseRequest,
    pub(super) first: Entry,
    pub(super) server: Arc<RunServer>,
}

/// Acquires the lease of a run.
pub(super) struct Acquire {
    pub(super) run: RunId,
    pub(super) request: LeaseRequest,
}

/// Releases a run.
pub(super) struct Release(pub(super) LeaseToken);

/// Appends an entry.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) token: LeaseToken,
    pub(super) entry: Entry,
    server: Arc<RunServer>,
    /// The number and the hash of the row that an earlier attempt may have saved.
    in_doubt: Mutex<Option<(u64, EntryHash)>>,
}

/// Removes a run.
pub(super) struct Remove(pub(super) RunId);

/// Reads the rows that give the checkpoint of a run after a step.
#[derive(Clone, Debug)]
pub(super) struct UpToStep {
    pub(super) run: RunId,
    /// The step; none for the last one.
    pub(super) step: Option<Step>,
    pub(super) begin: Begin,
}

/// Keeps the values of a run.
pub(super) struct KeepValues {
    pub(super) token: LeaseToken,
    pub(super) step: Step,
    /// The packed values.
    pub(super) content: Vec<u8>,
}

/// Reads entries of a run.
pub(super) struct Entries {
    pub(super) run: RunId,
    pub(super) after: u64,
    pub(super) limit: usize,
}

/// Searches a run.
pub(super) struct Search(pub(super) String);

/// Lists runs.
pub(super) struct Newest {
    pub(super) before: Option<RunId>,
    pub(super) limit: usize,
}

/// Lists the ids of all runs.
pub(super) struct Ids;

/// Checks for rows that belong to no run.
pub(super) struct Check;

#[async_trait]
impl Work for Create {
    type Output = LeaseToken;

    async fn attempt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        let Self { info, json, request, first, server } = self;
        let sql = format!(
            "SELECT {NOW} AS now, (SELECT CASE WHEN $1 IN (id, name) THEN $1 ELSE $2 END FROM runs
             WHERE id IN ($1, $2) OR name IN ($1, $2)
             ORDER BY $1 IN (id, name) DESC LIMIT 1) AS taken"
        );
        let look = async || {
            let row = session.first(&sql, &[&info.id.as_str(), &info.name]).await?;
            let row = row.ok_or_else(|| unknown(info.id.as_str()))?;
            Ok::<_, Fault>((get(&row, "now")?, get::<Option<String>>(&row, "taken")?))
        };
        let (now, taken) = look().await?;
        if taken.is_some() {
            return Err(self.exists(taken).into());
        }
        let head = Head::first(first)?;
        let row = server.with_codec(|codec| {
            let open = Reader::trusted(&info.id, Vec::new());
            encode(codec, first, &head, beginning(&info.id, json), &open)
        })?;
        let Some(run) = Run::insert(session, info, json).await? else {
            // Since the check, another process was faster, or an earlier attempt of this
            // transaction.
            let (_, taken) = look().await?;
            return Err(self.exists(taken).into());
        };
        let lease = Lease::next(0, request, now).map_err(Fault::Unwritable)?;
        insert(session, &[NewRow { run: run.key, row: &row }]).await?;
        run.begin(session, &head, row.hash, &lease).await?;
        fault::hit(Point::AcceptBeforeCommit).map_err(CheckpointError::injected)?;
        Ok(LeaseToken { run: run.id, fence: lease.fence })
    }

    async fn attempt_after_doubt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        match self.attempt(session).await {
            Err(Fault::Known(CheckpointError::Exists(taken))) => {
                self.made_before(session, taken).await
            }
            created => created,
        }
    }
}

impl Create {
    /// Returns the name of saving it for messages.
    pub(super) fn action(&self) -> String {
        format!("create run `{}`", self.info.id)
    }

    /// Returns the lease of an earlier attempt, if that created the run: no other process has this
    /// owner.
    async fn made_before(&self, session: &Session, taken: String) -> Result<LeaseToken, Fault> {
        let made = match Run::lock(session, &self.info.id).await {
            Err(Fault::Known(CheckpointError::UnknownRun(_))) => {
                return Err(CheckpointError::Exists(taken).into());
            }
            made => made?,
        };
        match made.stored.lease.info() {
            Some(lease) if lease.owner == self.request.owner => {
                Ok(LeaseToken { run: self.info.id.clone(), fence: lease.fence })
            }
            _ => Err(self.exists(Some(self.info.id.to_string())).into()),
        }
    }

    /// Returns the error for a new run whose id or name is taken.
    fn exists(&self, taken: Option<String>) -> CheckpointError {
        CheckpointError::Exists(taken.unwrap_or_else(|| self.info.name.clone()))
    }
}

#[async_trait]
impl Work for Acquire {
    type Output = LeaseToken;

    async fn attempt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        let locked = Run::lock(session, &self.run).await?;
        let last = &locked.stored.lease;
        last.require_free(&self.run, locked.now, self.request.replaces_fence)?;
        let lease =
            Lease::next(last.fence, &self.request, locked.now).map_err(Fault::Unwritable)?;
        let token = LeaseToken { run: locked.run.id.clone(), fence: lease.fence };
        put_leases(session, &[(locked.run, lease)]).await?;
        Ok(token)
    }

    async fn attempt_after_doubt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        let owned = match self.attempt(session).await {
            Err(owned @ Fault::Known(CheckpointError::Owned { .. })) => owned,
            attempted => return attempted,
        };
        // The attempt in doubt may have acquired the lease.
        let locked = Run::lock(session, &self.run).await?;
        let lease = locked.stored.lease.current_info(locked.now);
        let own = lease.filter(|it| it.owner == self.request.owner);
        let own = own.map(|it| LeaseToken { run: self.run.clone(), fence: it.fence });
        own.ok_or(owned)
    }
}

#[async_trait]
impl Work for Release {
    type Output = ();

    const MODE: Mode = Mode::Lease;

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let locked = Run::lock(session, &self.0.run).await?;
        let lease = locked.stored.lease.clone();
        if lease.fence != self.0.fence {
            return Ok(());
        }
        put_leases(session, &[(locked.run, lease.released())]).await
    }
}

impl Append {
    pub(super) fn new(token: LeaseToken, entry: Entry, server: Arc<RunServer>) -> Self {
        Self { token, entry, server, in_doubt: Mutex::new(None) }
    }

    /// Returns the name of saving it for messages.
    pub(super) fn action(&self) -> String {
        self.entry.action(&self.token.run)
    }

    /// Notes that the row may be saved soon.
    pub(super) fn note_in_doubt(&self, row: &Row) {
        *self.in_doubt() = Some((row.number, row.hash));
    }

    fn in_doubt(&self) -> MutexGuard<'_, Option<(u64, EntryHash)>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Work for Append {
    type Output = LeaseToken;

    async fn attempt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        let Self { token, entry, server, .. } = self;
        let LockedRun { run, stored, .. } = Run::lock(session, &token.run).await?;
        let journal = Journal { session, run: &run };
        let append = NextEntry::new(token, &stored, entry, &mut server.open_steps())?;
        let open = match append.needed_rows() {
            Some(numbers) => Some(journal.rows(numbers).await?),
            None => None,
        };
        let appended = server.with_codec(|codec| append.encode::<Fault>(open, codec))?;
        let EncodedEntry { row, head, before_open, finished } = appended;
        if let Some(migration) = &entry.migration {
            run.migrate(session, migration).await?;
        }
        let lease = stored.lease.clone();
        let lease = if stops_run(entry) { lease.released() } else { lease };
        let new_row = NewRow { run: run.key, row: &row };
        let hash = row.hash;
        let new_head = NewHead { run: &run, head: &head, before_open, hash, lease: &lease };
        // Both are sent together.
        try_join(insert(session, &[new_row]), put(session, &[new_head])).await?;
        server.open_steps().note(&run.id, row.hash, entry, finished);
        fault::hit_each(entry.points_in_transaction()).map_err(CheckpointError::injected)?;
        self.note_in_doubt(&row);
        server.heads().note(run, StoredHead { head, before_open, hash, lease });
        Ok(token.clone())
    }

    async fn attempt_after_doubt(&self, session: &Session) -> Result<LeaseToken, Fault> {
        // The attempt in doubt had this lock, too, and kept it until its end.
        let LockedRun { run, .. } = Run::lock(session, &self.token.run).await?;
        let in_doubt = *self.in_doubt();
        if let Some((number, hash)) = in_doubt
            && (Journal { session, run: &run }).has(number, hash).await?
        {
            return Ok(self.token.clone());
        }
        self.attempt(session).await
    }
}

#[async_trait]
impl Work for Remove {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let locked = Run::lock(session, &self.0).await?;
        locked.stored.lease.require_free(&locked.run.id, locked.now, None)?;
        locked.run.remove(session).await
    }

    async fn attempt_after_doubt(&self, session: &Session) -> Result<(), Fault> {
        match self.attempt(session).await {
            // The attempt in doubt has removed it.
            Err(Fault::Known(CheckpointError::UnknownRun(_))) => Ok(()),
            removed => removed,
        }
    }
}

#[async_trait]
impl Work for UpToStep {
    type Output = (StoredRun, Pages);

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<(StoredRun, Pages), Fault> {
        let found = StoredRun::by_id(session, &self.run).await?;
        let pages = Pages::up_to_step(session, &found, self.step, self.begin).await?;
        Ok((found, pages))
    }
}

#[async_trait]
impl Work for KeepValues {
    type Output = ();

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let LockedRun { run, stored, .. } = Run::lock(session, &self.token.run).await?;
        check_fence(stored.lease.info().as_ref(), self.token.fence)?;
        keep_values(session, &run, self.step, &self.content).await
    }
}

#[async_trait]
impl Work for Entries {
    type Output = (StoredRun, Pages);

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<(StoredRun, Pages), Fault> {
        let found = StoredRun::by_id(session, &self.run).await?;
        let pages = Pages::after(session, &found, self.after, self.limit).await?;
        Ok((found, pages))
    }
}

#[async_trait]
impl Work for Search {
    type Output = StoredRun;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<StoredRun, Fault> {
        StoredRun::search(session, &self.0).await
    }
}

#[async_trait]
impl Work for Newest {
    type Output = Vec<Result<StoredRun, CheckpointError>>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Self::Output, Fault> {
        StoredRun::newest(session, self.before.as_ref(), self.limit).await
    }
}

#[async_trait]
impl Work for Ids {
    type Output = Vec<RunId>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Vec<RunId>, Fault> {
        let rows = session.query("SELECT id FROM runs ORDER BY key DESC", &[]).await?;
        let ids = rows.iter().map(|row| {
            let text: &str = get(row, "id")?;
            Ok(RunId::parse(text).map_err(|error| damaged(text, "the id", error))?)
        });
        ids.collect()
    }
}

#[async_trait]
impl Work for Check {
    type Output = ();

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<(), Fault> {
        let sql = "SELECT FROM heads h WHERE NOT EXISTS (SELECT FROM runs r WHERE r.key = h.run)
                   LIMIT 1";
        match session.first(sql, &[]).await? {
            None => Ok(()),
            Some(_) => {
                Err(Fault::Unusable("`heads` has a row without a run; restore a backup".to_owned()))
            }
        }
    }
}
