//! Group commit: one transaction saves the entries of all runs of a process that wait.
//!
//! A commit costs a wait for the disk, for any number of entries. While one group is written, the next one collects. Each run
//! still waits until its own entry is durable, and a refused entry affects no other one.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use graphrun_engine::checkpoint::CheckpointError;
use tokio::sync::oneshot;

/// The largest number of jobs in one transaction. The first of them waits until the last one is written.
const GROUP_MAX: usize = 256;

/// The jobs that wait for the next transaction.
#[derive(Debug)]
pub(crate) struct Group<W, R>(Mutex<GroupQueue<W, R>>);

#[derive(Debug)]
struct GroupQueue<W, R> {
    jobs: Vec<Job<W, R>>,
    /// Whether a writer is at work, which then writes these jobs as well.
    has_writer: bool,
}

/// Work that waits, and the sender of its result.
#[derive(Debug)]
pub(crate) struct Job<W, R> {
    pub(crate) work: W,
    pub(crate) done: Done<R>,
}

/// The sender of the result of a job.
#[derive(Debug)]
pub(crate) struct Done<R>(oneshot::Sender<Result<R, CheckpointError>>);

impl<W, R> Group<W, R> {
    /// Adds work and waits for its result. Without a writer, `start` starts one.
    pub(crate) async fn add(&self, work: W, start: impl FnOnce()) -> Result<R, CheckpointError> {
        let (done, is_done) = oneshot::channel();
        let had_writer = {
            let mut waiting = self.waiting();
            waiting.jobs.push(Job { work, done: Done(done) });
            mem::replace(&mut waiting.has_writer, true)
        };
        if !had_writer {
            start();
        }
        is_done.await.unwrap_or_else(|error| {
            let action = "finish a transaction".to_owned();
            Err(CheckpointError::Storage { action, source: error.into() })
        })
    }

    /// Writes on the calling thread, if no writer is at work. Jobs that come meanwhile wait for the writer that `start`
    /// starts afterwards.
    #[cfg(feature = "sqlite")]
    pub(crate) fn write_here<T>(
        &self,
        write: impl FnOnce() -> T,
        start: impl FnOnce(),
    ) -> Option<T> {
        if mem::replace(&mut self.waiting().has_writer, true) {
            return None;
        }
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
        let has_jobs = {
            let mut waiting = self.waiting();
            waiting.has_writer = !waiting.jobs.is_empty();
            waiting.has_writer
        };
        if has_jobs {
            start();
        }
        Some(written.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Takes the next jobs; without any, the caller writes no longer.
    pub(crate) fn next(&self) -> Vec<Job<W, R>> {
        let mut waiting = self.waiting();
        let count = waiting.jobs.len().min(GROUP_MAX);
        let rest = waiting.jobs.split_off(count);
        waiting.has_writer = count > 0;
        mem::replace(&mut waiting.jobs, rest)
    }

    /// Fails the jobs that wait, because their writer has ended too early. The next one starts another writer.
    pub(crate) fn abandon(&self) {
        *self.waiting() = GroupQueue::default();
    }

    fn waiting(&self) -> MutexGuard<'_, GroupQueue<W, R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Done<R> {
    /// Sends the result. A run whose driver was dropped meanwhile no longer waits.
    pub(crate) fn send(self, result: Result<R, CheckpointError>) {
        drop(self.0.send(result));
    }
}

impl<W, R> Default for Group<W, R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W, R> Default for GroupQueue<W, R> {
    fn default() -> Self {
        Self { jobs: Vec::new(), has_writer: false }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::{
        cell::Cell,
        task::{Context, Waker},
    };

    use super::*;

    #[tokio::test]
    async fn jobs_that_come_while_a_thread_writes_get_a_writer() {
        let group = Group::<u32, u32>::default();
        let started = Cell::new(0);
        let start = || started.set(started.get() + 1);
        assert_eq!(group.write_here(|| 1, start), Some(1));
        assert_eq!(started.get(), 0, "nothing waits");
        let mut waiting = None;
        let written = group.write_here(
            || {
                assert_eq!(group.write_here(|| 0, start), None, "a writer is at work");
                let mut job = Box::pin(group.add(7, start));
                let mut cx = Context::from_waker(Waker::noop());
                assert!(job.as_mut().poll(&mut cx).is_pending());
                waiting = Some(job);
            },
            start,
        );
        assert_eq!((written, started.get()), (Some(()), 1));
    }
}
