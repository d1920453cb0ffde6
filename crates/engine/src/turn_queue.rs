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

/// Waits until all queued turns of the thread that came before have begun. The semaphore is fair; dropping the permit lets the turn
/// after it try.
pub(super) async fn wait_for_others(
    storage: &Arc<dyn Checkpointer>,
    thread: &str,
) -> OwnedSemaphorePermit {
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
    queue.acquire_owned().await.expect("the queue is never closed")
}

/// No holder of the lock can panic half-way through a change.
fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}
