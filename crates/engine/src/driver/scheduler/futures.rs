//! The running attempts, and the waits between attempts, as futures.

use std::collections::VecDeque;

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    machine::TaskEvent,
    task::{NodeReturn, Watch},
};

/// The futures that produce the next events. A dropped future produces none.
///
/// The first future never completes: if all futures of the set were polled in a row, the set would wake its
/// poller once more, and the runtime would wake another thread for that.
#[derive(Debug)]
pub(super) struct EventFutures {
    futures: FuturesUnordered<BoxFuture<'static, Option<TaskEvent>>>,
    /// The events of attempts that were ready at once.
    ready: VecDeque<Box<TaskEvent>>,
}

impl Default for EventFutures {
    fn default() -> Self {
        Self { futures: [pending().boxed()].into_iter().collect(), ready: VecDeque::new() }
    }
}

impl EventFutures {
    /// Adds an attempt: its work starts in a separate task.
    ///
    /// The caller of `next` polls the supervision, which wakes no other thread. Supervision with a timeout
    /// must not depend on that, so it gets its own task.
    pub(super) fn start(
        &mut self,
        work: impl Future<Output = NodeReturn> + Send + 'static,
        watch: Watch,
    ) {
        let has_timeout = watch.has_timeout();
        let supervision = watch.supervise(AbortOnDropHandle::new(tokio::spawn(work)));
        if !has_timeout {
            self.add(supervision);
            return;
        }
        let supervision = AbortOnDropHandle::new(tokio::spawn(supervision));
        self.add(supervision.map(|ended| {
            ended.unwrap_or_else(|error| {
                assert!(error.is_cancelled(), "a watch does not panic");
                None
            })
        }));
    }

    /// Adds the event of an attempt that was ready at once.
    pub(super) fn add_ready(&mut self, event: Box<TaskEvent>) {
        self.ready.push_back(event);
    }

    /// Returns the event of an attempt that was ready at once.
    pub(super) fn take_instant_event(&mut self) -> Option<Box<TaskEvent>> {
        self.ready.pop_front()
    }

    /// Adds a future that produces an event or none.
    pub(super) fn add(&mut self, event: impl Future<Output = Option<TaskEvent>> + Send + 'static) {
        self.futures.push(event.boxed());
    }

    /// Returns the next event, or `None` when no more will come.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn next(&mut self) -> Option<Box<TaskEvent>> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        while self.futures.len() > 1 {
            if let Some(event) = self.futures.next().await.flatten() {
                return Some(Box::new(event));
            }
        }
        None
    }

    /// Returns the next event, if it is available now.
    pub(super) fn next_now(&mut self) -> Option<Box<TaskEvent>> {
        if self.ready.is_empty() && self.futures.len() <= 1 {
            return None;
        }
        self.next().now_or_never().flatten()
    }
}
