//! The order in which queued turns of one thread begin.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checkpoint::Checkpointer;

/// The queues of this process, by the address of the storage and the name of the thread. Engines that share a storage
/// share its queues. A storage that takes the address of a dropped one finds only empty queues.
static QUEUES: LazyLock<Mutex<Queues>> = LazyLock::new(Mutex::default);

type Queues = BTreeMap<(usize, String), Weak<Semaphore>>;

/// A turn that is the next one of its thread in this process. Dropping it lets the turn after it try.
#[derive(Debug)]
pub(super) struct NextTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Waits until all queued turns of the thread that came before have begun. The semaphore is fair.
pub(super) async fn wait_for_others(storage: &Arc<dyn Checkpointer>, thread: &str) -> NextTurn {
    let storage = Arc::as_ptr(storage).cast::<()>().addr();
    let queue = {
        let mut queues = queues();
        queues.retain(|_, it| it.strong_count() > 0);
        let place = queues.entry((storage, thread.to_owned())).or_default();
        place.upgrade().unwrap_or_else(|| {
            let queue = Arc::new(Semaphore::new(1));
            *place = Arc::downgrade(&queue);
            queue
        })
    };
    // The queue is never closed.
    NextTurn { _permit: queue.acquire_owned().await.ok() }
}

/// No holder of the lock can panic half-way through a change.
fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}
