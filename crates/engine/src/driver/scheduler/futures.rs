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
    task::{NodeReturn, Supervisor},
};

/// The futures that produce the next events. A dropped future produces none.
///
/// The set always contains one future that never completes. `FuturesUnordered` wakes its poller again after it has polled
/// every future in a row, and that wake-up costs another thread.
#[derive(Debug)]
pub(super) struct EventFutures {
    futures: FuturesUnordered<BoxFuture<'static, Option<TaskEvent>>>,
    /// The events of attempts that ended in their first poll.
    inline_events: VecDeque<Box<TaskEvent>>,
}

impl Default for EventFutures {
    fn default() -> Self {
        Self { futures: [pending().boxed()].into_iter().collect(), inline_events: VecDeque::new() }
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
        supervisor: Supervisor,
    ) {
        let has_timeout = supervisor.has_timeout();
        let supervision = supervisor.supervise(AbortOnDropHandle::new(tokio::spawn(work)));
        if !has_timeout {
            self.add(supervision);
            return;
        }
        let supervision = AbortOnDropHandle::new(tokio::spawn(supervision));
        self.add(supervision.map(|ended| {
            ended.unwrap_or_else(|error| {
                assert!(error.is_cancelled(), "a supervisor does not panic");
                None
            })
        }));
    }

    /// Adds the event of an attempt that ended in its first poll.
    pub(super) fn add_inline(&mut self, event: Box<TaskEvent>) {
        self.inline_events.push_back(event);
    }

    /// Returns the event of an attempt that ended in its first poll.
    pub(super) fn take_inline_event(&mut self) -> Option<Box<TaskEvent>> {
        self.inline_events.pop_front()
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
        if let Some(event) = self.inline_events.pop_front() {
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
    pub(super) fn try_next(&mut self) -> Option<Box<TaskEvent>> {
        if self.inline_events.is_empty() && self.futures.len() <= 1 {
            return None;
        }
        self.next().now_or_never().flatten()
    }
}
