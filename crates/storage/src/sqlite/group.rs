//! Groups of writes in one transaction.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun_engine::checkpoint::{CheckpointError, Entry, LeaseRequest, LeaseToken, RunInfo};

use super::{
    database::Database,
    fault::Fault,
    write::{NewRun, Write},
};
use crate::group::Job;

/// A write that a run waits for.
#[derive(Debug)]
pub(super) enum GroupedWrite {
    Run { info: Box<RunInfo>, json: Vec<u8>, request: LeaseRequest, first: Entry },
    Entry(LeaseToken, Entry),
    Renewal(LeaseToken, Duration),
}

impl GroupedWrite {
    fn of(write: Write<'_>) -> Self {
        match write {
            Write::Run(NewRun { info, json, request, first }) => Self::Run {
                info: Box::new(info.clone()),
                json: json.to_vec(),
                request: request.clone(),
                first: first.clone(),
            },
            Write::Entry(token, entry) => Self::Entry(token.clone(), entry.clone()),
            Write::Renewal(token, ttl) => Self::Renewal(token.clone(), ttl),
        }
    }

    fn write(&self) -> Write<'_> {
        match self {
            Self::Run { info, json, request, first } => {
                Write::Run(NewRun { info, json, request, first })
            }
            Self::Entry(token, entry) => Write::Entry(token, entry),
            Self::Renewal(token, ttl) => Write::Renewal(token, *ttl),
        }
    }
}

/// Saves a write: on this thread, or together with those of other runs.
pub(super) async fn save(
    database: &Arc<Database>,
    write: Write<'_>,
) -> Result<LeaseToken, CheckpointError> {
    let start = || {
        let writer = Writer { database: Arc::clone(database), is_finished: false };
        tokio::task::spawn_blocking(move || writer.write_all());
    };
    if database.lone_run().note_next(write.run(), write.stops_run())
        && let Some(Some(saved)) = database.group().write_here(|| save_here(database, write), start)
    {
        return saved;
    }
    database.group().add(GroupedWrite::of(write), start).await
}

/// Saves one, unless it would have to wait.
fn save_here(database: &Database, write: Write<'_>) -> Option<Result<LeaseToken, CheckpointError>> {
    let began = Instant::now();
    let saved = database.save_if_free(write);
    database.lone_run().note_duration(began.elapsed());
    saved
}

/// The thread that writes.
struct Writer {
    database: Arc<Database>,
    /// Whether no job was left. Another writer may be at work by now.
    is_finished: bool,
}

impl Writer {
    fn write_all(mut self) {
        let mut jobs = self.next();
        while !jobs.is_empty() {
            let results = save_all(&self.database, &jobs);
            let replies = jobs.into_iter().map(|it| it.done).zip(results);
            jobs = self.next();
            if jobs.is_empty() {
                // A storage that is dropped after the last reply closes its database at once.
                drop(self);
                return replies.for_each(|(done, result)| done.send(result));
            }
            replies.for_each(|(done, result)| done.send(result));
        }
    }

    fn next(&mut self) -> Vec<Job<GroupedWrite, LeaseToken>> {
        let jobs = self.database.group().next();
        self.is_finished = jobs.is_empty();
        jobs
    }
}

impl Drop for Writer {
    /// Lets the next save start another writer, if this one panicked, or never ran because its runtime ended.
    fn drop(&mut self) {
        if !self.is_finished {
            self.database.group().abandon();
        }
    }
}

fn save_all(
    database: &Database,
    jobs: &[Job<GroupedWrite, LeaseToken>],
) -> Vec<Result<LeaseToken, CheckpointError>> {
    let writes = || jobs.iter().map(|it| it.work.write());
    if jobs.len() > 1
        && let Ok(saved) = database.save_all(writes())
    {
        let explain = |(saved, write): (Result<_, _>, Write<'_>)| {
            saved.map_err(|fault: Fault| fault.explain(database.path(), write.action()))
        };
        return saved.into_iter().zip(writes()).map(explain).collect();
    }
    // If a group cannot be saved, each is saved alone, to find out which ones can be.
    let save = |write| {
        let began = Instant::now();
        let saved = database.save(write);
        database.lone_run().note_duration(began.elapsed());
        saved
    };
    writes().map(save).collect()
}
