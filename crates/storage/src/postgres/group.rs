//! Groups of entries in one transaction.
//!
//! The transaction locks the heads of all runs with one statement, and writes all rows with two. It skips a run that another
//! transaction has locked: its entry is saved alone, so that no other run waits for that lock.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use graphrun_core::{fault, id::RunId};
use graphrun_engine::{checkpoint::CheckpointError, storage::rules::stops_run};

use super::{
    entries::{Journal, NewRow, insert},
    fault::Fault,
    run::{Locked, NewHead, Run, put},
    run_server::RunServer,
    session::{Earlier, Session, Work},
    work::Append,
};
use crate::{
    group::Job,
    head::{EncodedEntry, NextEntry},
};

/// Appends an entry to a run, together with those of other runs.
pub(super) async fn append(server: &Arc<RunServer>, append: Append) -> Result<(), CheckpointError> {
    let start = || {
        let writer = Writer(Arc::clone(server));
        server.server.detach(writer.write_all());
    };
    server.group().add(append, start).await
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
            self.write(jobs).await;
        }
    }

    /// Saves together what can be, and starts a task for each of the others.
    async fn write(&self, jobs: Vec<Job<Append, ()>>) {
        let since = Instant::now();
        let (appends, replies): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|it| (it.work, it.done)).unzip();
        let group = AppendAll { server: Arc::clone(&self.0), appends };
        let (saved, in_doubt) = match self.0.server.attempt_once(&group, false).await {
            Ok(saved) => (saved, false),
            Err((fault, _)) if group.appends.len() == 1 && !fault.is_passing() => {
                (vec![Saved::Refused(fault)], false)
            }
            // If a group cannot be saved, each is saved alone, to find out which ones can be.
            Err((_, in_doubt)) => (group.appends.iter().map(|_| Saved::Alone).collect(), in_doubt),
        };
        for ((append, done), saved) in group.appends.into_iter().zip(replies).zip(saved) {
            match saved {
                Saved::Done => done.send(Ok(())),
                Saved::Refused(fault) => {
                    done.send(Err(fault.explain(&self.0.server.place, append.action())));
                }
                Saved::Alone => {
                    let (server, earlier) = (Arc::clone(&self.0), Earlier { since, in_doubt });
                    self.0.server.detach(async move {
                        let action = append.action();
                        done.send(server.server.transact_after(earlier, action, &append).await);
                    });
                }
            }
        }
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
enum Saved {
    Done,
    Refused(Fault),
    /// A transaction for it alone has to save it.
    Alone,
}

#[async_trait]
impl Work for AppendAll {
    type Output = Vec<Saved>;

    async fn attempt(&self, session: &Session, _: bool) -> Result<Vec<Saved>, Fault> {
        let Self { server, appends } = self;
        let mut saved: Vec<Saved> = appends.iter().map(|_| Saved::Alone).collect();
        let ids: Vec<&str> = appends.iter().map(|it| it.hold.run.as_str()).collect();
        let locked = Run::lock_unlocked(session, &ids).await?;
        // Of two entries of a run, the second one follows when the first one is saved.
        let mut locked: BTreeMap<&RunId, &Locked> =
            locked.iter().map(|it| (&it.run.id, it)).collect();
        let mut next = Vec::new();
        for (at, append) in appends.iter().enumerate() {
            if append.entry.migration.is_some() {
                continue;
            }
            let Some(Locked { run, stored, .. }) = locked.remove(&append.hold.run) else {
                continue;
            };
            let (hold, entry) = (&append.hold, &append.entry);
            match NextEntry::new(hold, stored, entry, &mut server.open_steps()) {
                Ok(entry) => next.push((at, run, stored, entry)),
                Err(refusal) => saved[at] = Saved::Refused(refusal.into()),
            }
        }
        let open = next.iter().map(|(_, run, _, entry)| {
            let (journal, needed) = (Journal { session, run }, entry.needed_rows());
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
                Err(refused) => saved[at] = Saved::Refused(refused),
            }
        }
        if encoded.is_empty() {
            return Ok(saved);
        }
        let rows = encoded.iter().map(|(_, run, it, _)| NewRow { run: run.key, row: &it.row });
        let heads = encoded.iter().map(|(_, run, it, lease)| NewHead {
            run,
            head: &it.head,
            committed: it.committed,
            hash: it.row.hash,
            lease,
        });
        let (rows, heads): (Vec<_>, Vec<_>) = (rows.collect(), heads.collect());
        // Both are sent together.
        try_join(insert(session, &rows), put(session, &heads)).await?;
        for (at, run, EncodedEntry { row, finished, .. }, _) in encoded {
            let append = &appends[at];
            server.open_steps().note(&run.id, row.hash, &append.entry, finished);
            let points = append.entry.points_in_transaction();
            fault::hit_each(points).map_err(CheckpointError::injected)?;
            append.note_sent(&row);
            saved[at] = Saved::Done;
        }
        Ok(saved)
    }
}
