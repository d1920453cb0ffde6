//! The running attempts, and the waits between attempts, as futures.

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    superstep::Event,
    task::{Returned, Watch},
};

/// The futures that produce the next events. A dropped future produces none.
///
/// The first future never completes: if all futures of the set were polled in a row, the set would wake its
/// poller once more, and the runtime would wake another thread for that.
#[derive(Debug)]
pub(super) struct EventFutures(FuturesUnordered<BoxFuture<'static, Option<Event>>>);

impl Default for EventFutures {
    fn default() -> Self {
        Self([pending().boxed()].into_iter().collect())
    }
}

impl EventFutures {
    /// Adds an attempt: its work starts in a separate task.
    ///
    /// The caller of `next` polls the supervision, which wakes no other thread. Supervision with a timeout
    /// must not depend on that, so it gets its own task.
    pub(super) fn start(
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

    /// Adds a future that produces an event or none.
    pub(super) fn add(&mut self, event: impl Future<Output = Option<Event>> + Send + 'static) {
        self.0.push(event.boxed());
    }

    /// Returns the next event, or `None` when no more will come.
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

    /// Returns the next event, if it is available now.
    pub(super) fn next_now(&mut self) -> Option<Event> {
        self.next().now_or_never().flatten()
    }
}
