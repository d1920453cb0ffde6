//! The turns that a thread of the runtime takes.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use tokio::task::coop;

/// The most that tokio lets be done in a turn:
/// <https://docs.rs/tokio/latest/tokio/task/coop/index.html>.
const BUDGET_MAX: usize = 128;

/// Waits for something, and lets the turn of this thread end if it is not there yet.
///
/// In one turn a thread does a task, then the one that it woke last, and so on. For the third in such a
/// row it wakes another thread, which may take longer than a step of a run, whose tasks do nothing
/// else but wake each other. With the turn, the row ends: the next task begins a new one.
///
/// That is done once, since others may be polled in the same task, and would never get a turn.
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

/// Uses up what may still be done in this turn.
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
