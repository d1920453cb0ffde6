//! Group commit: one transaction saves the entries of all runs that wait.
//!
//! A commit costs a wait for the disk, for any number of entries. While one group is written, the next one collects. Each run
//! still waits until its own entry is durable, and a refused entry affects no other one.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use graphrun_engine::checkpoint::{CheckpointError, Entry, LeaseToken};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::{database::Database, fault::Fault};
use crate::journal::Codec;

/// The largest number of entries in one transaction. The first of them waits until the last one is written.
const GROUP_MAX: usize = 256;

/// The entries that wait for the next transaction.
#[derive(Default)]
pub(super) struct Group(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// Whether a thread writes, which then writes these jobs as well.
    has_writer: bool,
}

/// An entry that waits, and its run.
struct Job {
    hold: LeaseToken,
    entry: Entry,
    done: oneshot::Sender<Result<(), CheckpointError>>,
}

impl Group {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next jobs; without any, the caller writes no longer.
    fn next(&self) -> Vec<Job> {
        let mut waiting = self.waiting();
        let count = waiting.jobs.len().min(GROUP_MAX);
        let rest = waiting.jobs.split_off(count);
        waiting.has_writer = count > 0;
        mem::replace(&mut waiting.jobs, rest)
    }
}

/// Appends an entry to a run, together with those of other runs.
pub(super) async fn append(
    database: &Arc<Database>,
    hold: LeaseToken,
    entry: Entry,
) -> Result<(), CheckpointError> {
    let (done, is_done) = oneshot::channel();
    let had_writer = {
        let mut waiting = database.group().waiting();
        waiting.jobs.push(Job { hold, entry, done });
        mem::replace(&mut waiting.has_writer, true)
    };
    if !had_writer {
        let writer = Writer(Arc::clone(database));
        tokio::task::spawn_blocking(move || writer.write_all());
    }
    is_done.await.unwrap_or_else(|error| {
        let action = "finish a transaction".to_owned();
        Err(CheckpointError::Storage { action, source: error.into() })
    })
}

/// The thread that writes. If it panics, the jobs that wait fail, and the next one starts another writer.
struct Writer(Arc<Database>);

/// The result of a job, and the sender for it.
type Reply = (oneshot::Sender<Result<(), CheckpointError>>, Result<(), CheckpointError>);

impl Writer {
    fn write_all(self) {
        let mut jobs = self.0.group().next();
        while !jobs.is_empty() {
            let replies = write(&self.0, jobs);
            jobs = self.0.group().next();
            if jobs.is_empty() {
                // A storage that is dropped after the last reply closes its database at once.
                drop(self);
                return reply(replies);
            }
            reply(replies);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.group().waiting() = Waiting::default();
        }
    }
}

fn reply(replies: Vec<Reply>) {
    for (done, result) in replies {
        // A run whose driver was dropped meanwhile no longer waits.
        drop(done.send(result));
    }
}

fn write(database: &Database, jobs: Vec<Job>) -> Vec<Reply> {
    let results = match jobs.as_slice() {
        [_] => None,
        several => write_together(database, several),
    };
    let Some(results) = results else {
        let alone = |it: Job| (it.done, database.append(&it.hold, &it.entry));
        return jobs.into_iter().map(alone).collect();
    };
    let explained = |(Job { hold, entry, done }, result): (Job, Result<(), Fault>)| {
        let explain = |it: Fault| it.explain(database.path(), entry.action(&hold.run));
        (done, result.map_err(explain).and_then(|()| database.check_identity()))
    };
    jobs.into_iter().zip(results).map(explained).collect()
}

/// Writes all jobs in one transaction, and returns the result of each. None if the transaction failed: then none
/// is saved, and each has to be written alone, to find out which one can be.
fn write_together(database: &Database, jobs: &[Job]) -> Option<Vec<Result<(), Fault>>> {
    let write = |connection: &Connection, codec: &mut Codec| {
        let mut results = Vec::with_capacity(jobs.len());
        for job in jobs {
            connection.prepare_cached("SAVEPOINT entry")?.execute([])?;
            let result = database.append_in(connection, codec, &job.hold, &job.entry);
            if let Err(Fault::Sqlite(error)) = result {
                return Err(error.into());
            }
            if result.is_err() {
                connection.prepare_cached("ROLLBACK TO entry")?.execute([])?;
            }
            connection.prepare_cached("RELEASE entry")?.execute([])?;
            results.push(result);
        }
        Ok(results)
    };
    let action = "save a group of entries".to_owned();
    database.transact(TransactionBehavior::Immediate, action, write).ok()
}
