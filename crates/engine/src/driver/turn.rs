//! Control over the scheduling turns of a runtime thread.
//!
//! Tokio wakes a thread for the second task that a task starts, and for the third in a chain of tasks that wake each other,
//! which took a fifth of a step. So a step starts one task, and the driver then ends its turn. The program drives and
//! writes on a thread that also runs nodes, and the runtime has one extra thread, because one may wait for the disk.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use tokio::task::coop;

/// The largest budget of operations that Tokio gives to a turn:
/// <https://docs.rs/tokio/latest/tokio/task/coop/index.html>.
const BUDGET_MAX: usize = 128;

/// Awaits a future, and ends the turn of this thread if the future is not ready yet.
///
/// In one turn, a thread runs a task, then the one that it woke last, and so on. For the third task in such a
/// row, the thread wakes another thread, which may take longer than a step of a run whose tasks only wake
/// each other. Ending the turn ends the row: the next task begins a new one.
///
/// The function does this once only, since other futures of the same task would otherwise never get a turn.
pub(super) async fn ending_with<T>(work: impl Future<Output = T>) -> T {
    let (mut work, mut is_ended) = (pin!(work), false);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() && !std::mem::replace(&mut is_ended, true) {
            use_up(context);
        }
        polled
    })
    .await
}

/// Uses up the remaining budget of this turn.
fn use_up(context: &mut Context<'_>) {
    for _ in 0..BUDGET_MAX {
        if !coop::has_budget_remaining() {
            return;
        }
        if let Poll::Ready(unit) = coop::poll_proceed(context) {
            unit.made_progress();
        }
    }
}
