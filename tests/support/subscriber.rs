//! Subscribers of `tracing` for one test of several that run at once.

use std::sync::LazyLock;

use tracing::{Dispatch, subscriber::DefaultGuard};

/// Shows a subscriber what this thread does.
pub(crate) fn subscribe(subscriber: impl Into<Dispatch>) -> DefaultGuard {
    // As long as `tracing` has a single subscriber, a thread without one that reaches a span first disables that span
    // for all threads. With another subscriber, each is asked.
    static OTHER: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&OTHER);
    tracing::dispatcher::set_default(&subscriber.into())
}
