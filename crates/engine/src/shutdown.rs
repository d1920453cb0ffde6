//! Stopping runs from outside.

use tokio_util::sync::CancellationToken;

/// Stops runs from outside. They end as interrupted and can be resumed.
#[derive(Clone, Debug, Default)]
pub struct ShutdownHandle {
    pub(super) drain: CancellationToken,
    pub(super) abort: CancellationToken,
}

impl ShutdownHandle {
    /// Starts no further node. Running nodes have ten seconds to finish, or as long as
    /// [`Engine::with_grace`](super::Engine::with_grace) allows; their results are saved.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Returns whether a shutdown was requested.
    pub fn is_requested(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Drops the running nodes at once. The last checkpoint and every finished task are kept.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }
}
