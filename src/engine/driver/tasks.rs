//! The tasks at work, and the waits between their attempts.

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::{
    superstep::Event,
    task::{Returned, Watch},
};

/// What will be told of tasks. Nothing comes of what is dropped.
///
/// The first of them never tells anything: where all there are were polled in a row, the set wakes
/// whoever polls it once more, and the runtime another thread for that.
#[derive(Debug)]
pub(super) struct Tasks(FuturesUnordered<BoxFuture<'static, Option<Event>>>);

impl Default for Tasks {
    fn default() -> Self {
        Self([pending().boxed()].into_iter().collect())
    }
}

impl Tasks {
    /// Adds an attempt: the work begins, in a task of its own.
    ///
    /// The watch over it is done by whoever asks for the next event, which wakes nobody else. One that
    /// keeps time must not wait until it is asked.
    pub(super) fn begin(
        &mut self,
        work: impl Future<Output = Returned> + Send + 'static,
        watch: Watch,
    ) {
        let keeps_time = watch.keeps_time();
        let over = watch.over(AbortOnDropHandle::new(tokio::spawn(work)));
        if !keeps_time {
            self.add(over);
            return;
        }
        let over = AbortOnDropHandle::new(tokio::spawn(over));
        self.add(over.map(|ended| {
            ended.unwrap_or_else(|error| {
                assert!(error.is_cancelled(), "a watch does not panic");
                None
            })
        }));
    }

    /// Adds what will tell an event, or nothing.
    pub(super) fn add(&mut self, told: impl Future<Output = Option<Event>> + Send + 'static) {
        self.0.push(told.boxed());
    }

    /// The next event; nothing when no more will be told.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn next(&mut self) -> Option<Event> {
        while self.0.len() > 1 {
            if let Some(event) = self.0.next().await.flatten() {
                return Some(event);
            }
        }
        None
    }

    /// The next event, if it is there already.
    pub(super) fn next_now(&mut self) -> Option<Event> {
        self.next().now_or_never().flatten()
    }
}
