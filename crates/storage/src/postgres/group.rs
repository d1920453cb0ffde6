//! Groups of new runs and entries that are saved together.
//!
//! One statement saves the entries of all runs whose heads are cached, and two create all new runs: see `statements`. The
//! rest is one transaction, which locks the heads of its runs with one statement, and writes all rows with two. It
//! skips a run that another transaction has locked: its entry is saved alone, so that no other run waits for that lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use futures_util::future::{join, try_join, try_join_all};
use graphrun_core::{fault, id::RunId};
use graphrun_engine::{
    checkpoint::{CheckpointError, LeaseToken, RunInfo},
    storage::rules::stops_run,
};

use super::{
    entries::{Journal, NewRow, insert},
    fault::Fault,
    run::{LockedRun, NewHead, Run, put},
    run_server::RunServer,
    session::{Earlier, Session, Work},
    statements::{AppendCached, CachedAppend, CreateAll},
    work::{Append, Create},
};
use crate::{
    group::{Done, Job},
    head::{EncodedEntry, NextEntry, StoredHead},
};

/// A write that a run waits for.
pub(super) enum GroupedWrite {
    Run(Box<Create>),
    Entry(Box<Append>),
}

/// A write, and the sender of its result.
struct Pending<W> {
    work: W,
    done: Done<LeaseToken>,
}

/// Saves a new run or an entry, together with those of other runs. Returns the lease of the run.
pub(super) async fn save(
    server: &Arc<RunServer>,
    waiting: GroupedWrite,
) -> Result<LeaseToken, CheckpointError> {
    let start = || {
        let writer = Writer(Arc::clone(server));
        server.server.detach(writer.write_all());
    };
    server.group().add(waiting, start).await
}

/// The task that writes.
struct Writer(Arc<RunServer>);

impl Writer {
    async fn write_all(self) {
        loop {
            let jobs = self.0.group().next();
            if jobs.is_empty() {
                return;
            }
            let since = Instant::now();
            let mut runs = Vec::new();
            let mut entries = Vec::new();
            for Job { work, done } in jobs {
                match work {
                    GroupedWrite::Run(work) => runs.push(Pending { work: *work, done }),
                    GroupedWrite::Entry(work) => entries.push(Pending { work: *work, done }),
                }
            }
            join(self.create(since, runs), self.append(since, entries)).await;
        }
    }

    /// Creates together what can be, and starts a task for each of the others.
    async fn create(&self, since: Instant, pending: Vec<Pending<Create>>) {
        let earlier = Earlier { since, in_doubt: false };
        // Of two runs with one id or name, the second one follows when the first one is saved.
        let mut words = BTreeSet::new();
        let (together, later): (Vec<_>, Vec<_>) = pending.into_iter().partition(|waiting| {
            let RunInfo { id, name, .. } = &waiting.work.info;
            let is_new = words.insert(id.to_string());
            (name == id.as_str() || words.insert(name.clone())) && is_new
        });
        if !together.is_empty() {
            let (creates, replies): (Vec<_>, Vec<_>) =
                together.into_iter().map(|it| (it.work, it.done)).unzip();
            let group = CreateAll { server: Arc::clone(&self.0), creates };
            let (made, in_doubt) = match self.0.server.attempt_once(&group, false).await {
                Ok(made) => (made, false),
                Err((_, in_doubt)) => (group.creates.iter().map(|_| None).collect(), in_doubt),
            };
            for ((work, done), made) in group.creates.into_iter().zip(replies).zip(made) {
                match made {
                    Some(token) => done.send(Ok(token)),
                    None => self.save_alone(
                        Earlier { in_doubt, ..earlier },
                        work.action(),
                        Pending { work, done },
                    ),
                }
            }
        }
        for it in later {
            self.save_alone(earlier, it.work.action(), it);
        }
    }

    /// Appends together what can be, and starts a task for each of the others.
    async fn append(&self, since: Instant, pending: Vec<Pending<Append>>) {
        let rest = self.append_cached(since, pending).await;
        if !rest.is_empty() {
            self.append_locked(since, rest).await;
        }
    }

    /// Appends the entries of runs whose heads are cached, and returns those that need a transaction.
    async fn append_cached(
        &self,
        since: Instant,
        pending: Vec<Pending<Append>>,
    ) -> Vec<Pending<Append>> {
        let mut appends = Vec::new();
        let mut replies = Vec::new();
        let mut rest = Vec::new();
        for Pending { work, done } in pending {
            match CachedAppend::encode(&self.0, work) {
                Ok(append) => {
                    appends.push(append);
                    replies.push(done);
                }
                Err(work) => rest.push(Pending { work: *work, done }),
            }
        }
        if appends.is_empty() {
            return rest;
        }
        let group = AppendCached(appends);
        let attempted = self.0.server.attempt_once(&group, false).await;
        let AppendCached(appends) = group;
        match attempted {
            Ok(saved) => {
                for (append, done) in appends.into_iter().zip(replies) {
                    if saved.contains(&append.key()) {
                        done.send(Ok(append.note_saved(&self.0)));
                    } else {
                        rest.push(Pending { work: append.append, done });
                    }
                }
            }
            Err((fault, in_doubt)) => {
                let pending = appends.into_iter().zip(replies);
                let pending = pending.map(|(it, done)| Pending { work: it.append, done }).collect();
                self.save_each_alone(since, pending, fault, in_doubt);
            }
        }
        rest
    }

    /// Appends entries with one transaction that locks their runs.
    async fn append_locked(&self, since: Instant, pending: Vec<Pending<Append>>) {
        let (appends, replies): (Vec<_>, Vec<_>) =
            pending.into_iter().map(|it| (it.work, it.done)).unzip();
        let group = AppendAll { server: Arc::clone(&self.0), appends };
        let attempted = self.0.server.attempt_once(&group, false).await;
        let pending = group.appends.into_iter().zip(replies);
        let pending = pending.map(|(work, done)| Pending { work, done });
        let saved = match attempted {
            Ok(saved) => saved,
            Err((fault, in_doubt)) => {
                return self.save_each_alone(since, pending.collect(), fault, in_doubt);
            }
        };
        for (it, saved) in pending.zip(saved) {
            match saved {
                EntryResult::Done => it.done.send(Ok(it.work.token)),
                EntryResult::Refused(fault) => {
                    let refused = fault.explain(&self.0.server.place, it.work.action());
                    it.done.send(Err(refused));
                }
                EntryResult::Alone => {
                    self.save_alone(Earlier { since, in_doubt: false }, it.work.action(), it);
                }
            }
        }
    }

    /// Saves the entries of a group that failed: each alone, to find out which ones can be saved.
    fn save_each_alone(
        &self,
        since: Instant,
        pending: Vec<Pending<Append>>,
        fault: Fault,
        in_doubt: bool,
    ) {
        match <[_; 1]>::try_from(pending) {
            Ok([only]) if !fault.is_passing() => {
                let action = only.work.action();
                only.done.send(Err(fault.explain(&self.0.server.place, action)));
            }
            Ok(only) => self.save_all_alone(Earlier { since, in_doubt }, only),
            Err(pending) => self.save_all_alone(Earlier { since, in_doubt }, pending),
        }
    }

    fn save_all_alone(&self, earlier: Earlier, pending: impl IntoIterator<Item = Pending<Append>>) {
        for it in pending {
            self.save_alone(earlier, it.work.action(), it);
        }
    }

    /// Starts a task that saves a run or an entry in a separate transaction.
    fn save_alone<W: Work<Output = LeaseToken>>(
        &self,
        earlier: Earlier,
        action: String,
        Pending { work, done }: Pending<W>,
    ) {
        let server = Arc::clone(&self.0);
        self.0.server.detach(async move {
            done.send(server.server.transact_after(earlier, action, &work).await);
        });
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.group().abandon();
        }
    }
}

/// Appends the entries of several runs.
struct AppendAll {
    server: Arc<RunServer>,
    appends: Vec<Append>,
}

/// The result of an entry of a group.
enum EntryResult {
    Done,
    Refused(Fault),
    /// A transaction for it alone has to save it.
    Alone,
}

#[async_trait]
impl Work for AppendAll {
    type Output = Vec<EntryResult>;

    async fn attempt(&self, session: &Session) -> Result<Vec<EntryResult>, Fault> {
        let Self { server, appends } = self;
        let mut saved: Vec<EntryResult> = appends.iter().map(|_| EntryResult::Alone).collect();
        let ids: Vec<&str> = appends.iter().map(|it| it.token.run.as_str()).collect();
        let locked = Run::lock_unlocked(session, &ids).await?;
        // Of two entries of a run, the second one follows when the first one is saved.
        let mut locked: BTreeMap<&RunId, &LockedRun> =
            locked.iter().map(|it| (&it.run.id, it)).collect();
        let mut next = Vec::new();
        for (at, append) in appends.iter().enumerate() {
            if append.entry.migration.is_some() {
                continue;
            }
            let Some(LockedRun { run, stored, .. }) = locked.remove(&append.token.run) else {
                continue;
            };
            let token = &append.token;
            let entry = &append.entry;
            match NextEntry::new(token, stored, entry, &mut server.open_steps()) {
                Ok(entry) => next.push((at, run, stored, entry)),
                Err(refusal) => saved[at] = EntryResult::Refused(refusal.into()),
            }
        }
        let open = next.iter().map(|(_, run, _, entry)| {
            let journal = Journal { session, run };
            let needed = entry.needed_rows();
            async move {
                match needed {
                    Some(numbers) => journal.rows(numbers).await.map(Some),
                    None => Ok(None),
                }
            }
        });
        let open = try_join_all(open).await?;
        let mut encoded = Vec::new();
        for ((at, run, stored, entry), open) in next.into_iter().zip(open) {
            match server.with_codec(|codec| entry.encode::<Fault>(open, codec)) {
                Ok(entry) => {
                    let lease = stored.lease.clone();
                    let stops = stops_run(&appends[at].entry);
                    let lease = if stops { lease.released() } else { lease };
                    encoded.push((at, run, entry, lease));
                }
                Err(refused) => saved[at] = EntryResult::Refused(refused),
            }
        }
        if encoded.is_empty() {
            return Ok(saved);
        }
        let rows = encoded.iter().map(|(_, run, it, _)| NewRow { run: run.key, row: &it.row });
        let heads = encoded.iter().map(|(_, run, it, lease)| NewHead {
            run,
            head: &it.head,
            before_open: it.before_open,
            hash: it.row.hash,
            lease,
        });
        let (rows, heads): (Vec<_>, Vec<_>) = (rows.collect(), heads.collect());
        // Both are sent together.
        try_join(insert(session, &rows), put(session, &heads)).await?;
        for (at, run, EncodedEntry { row, head, before_open, finished }, lease) in encoded {
            let append = &appends[at];
            server.open_steps().note(&run.id, row.hash, &append.entry, finished);
            let stored = StoredHead { head, before_open, hash: row.hash, lease };
            server.heads().note(run.clone(), stored);
            let points = append.entry.points_in_transaction();
            fault::hit_each(points).map_err(CheckpointError::injected)?;
            append.note_in_doubt(&row);
            saved[at] = EntryResult::Done;
        }
        Ok(saved)
    }
}
