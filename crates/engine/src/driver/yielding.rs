//! Ends the poll of the driver after it has started a task.
//!
//! A worker thread of Tokio runs a task, and then the task that it woke last. If one poll wakes two tasks, or the woken task
//! wakes a third one, Tokio wakes another thread. In measurements that took a fifth of the time of a step. So the driver starts one
//! task, and then gives up its turn.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use tokio::task::coop;

/// The largest budget of operations that Tokio gives to a task between two polls:
/// <https://docs.rs/tokio/latest/tokio/task/coop/index.html>.
const COOP_BUDGET_MAX: usize = 128;

/// Awaits a future, and lets this thread run other tasks if the future is not ready yet.
///
/// The function yields only once, since other futures of the same task would otherwise never be polled.
pub(super) async fn yield_if_pending<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut has_yielded = false;
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() && !std::mem::replace(&mut has_yielded, true) {
            exhaust_coop_budget(context);
        }
        polled
    })
    .await
}

/// Uses the remaining cooperative budget of this poll, so that Tokio regards the task as one that yields.
fn exhaust_coop_budget(context: &mut Context<'_>) {
    for _ in 0..COOP_BUDGET_MAX {
        if !coop::has_budget_remaining() {
            return;
        }
        if let Poll::Ready(unit) = coop::poll_proceed(context) {
            unit.made_progress();
        }
    }
}
