//! Splits work on long histories among several threads.

use std::{
    num::NonZero,
    panic,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle, available_parallelism},
};

/// The number of items of a part.
pub(super) const PART: usize = 256;

/// More threads gain little: one thread reads the rows themselves.
const THREADS_MAX: usize = 4;

/// Runs `work` on parts in up to `others` other threads while `give` produces more parts. Returns
/// the results in order.
///
/// The other threads start with the second part, since a short history has only one. The producing
/// thread helps after it has produced the last part.
pub(super) fn meanwhile<T: Send, R: Send, E>(
    others: usize,
    work: impl Fn(T) -> R + Sync,
    give: impl FnOnce(&mut dyn FnMut(T)) -> Result<(), E>,
) -> Result<Vec<R>, E> {
    let (sender, receiver) = mpsc::channel();
    let queue = Mutex::new(receiver);
    let take = || {
        let mut made = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((at, part)) = next else { return made };
            made.push((at, work(part)));
        }
    };
    let made = thread::scope(|scope| {
        // The sender is dropped when this closure ends in any way, so that no thread waits for
        // more.
        let sender = sender;
        let mut helpers = Vec::new();
        let mut given = 0_usize;
        give(&mut |part| {
            if (1..=others).contains(&given) {
                helpers.push(scope.spawn(take));
            }
            // The receiver exists until all threads have ended.
            drop(sender.send((given, part)));
            given += 1;
        })?;
        drop(sender);
        let mut made = take();
        made.extend(helpers.into_iter().flat_map(joined));
        Ok(made)
    })?;
    Ok(in_order(made))
}

/// Does the same work on consecutive parts of a list, and returns the results in order.
///
/// Each thread starts with a value from `begin` and takes the next part when it has finished one.
/// So no thread waits long for another that started slowly.
pub(super) fn in_parts<T: Sync, S, R: Send>(
    items: &[T],
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &[T]) -> R + Sync,
) -> Vec<R> {
    let parts: Vec<&[T]> = items.chunks(PART).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let mut state = begin();
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(at) else { return made };
            made.push((at, work(&mut state, part)));
        }
    };
    let made = thread::scope(|scope| {
        let others: Vec<_> = (1..threads().min(parts.len())).map(|_| scope.spawn(take)).collect();
        let mut made = take();
        made.extend(others.into_iter().flat_map(joined));
        made
    });
    in_order(made)
}

/// Returns the number of threads for long histories.
pub(super) fn threads() -> usize {
    // Asking the system costs more than reading a short history.
    static THREADS: LazyLock<usize> =
        LazyLock::new(|| available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX));
    *THREADS
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn in_order<R>(mut made: Vec<(usize, R)>) -> Vec<R> {
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_items_are_done_once_and_in_order() {
        for (others, length) in [(0, 100), (1, 0), (1, 1), (1, 100), (3, 2), (3, 100)] {
            let give = |give: &mut dyn FnMut(usize)| {
                (0..length).for_each(give);
                Ok::<_, ()>(())
            };
            let made = meanwhile(others, |it| it * 2, give);
            assert_eq!(made, Ok((0..length).map(|it| it * 2).collect()));
        }
    }

    #[test]
    fn an_error_of_the_source_is_returned() {
        for others in [0, 1, 3] {
            let give = |give: &mut dyn FnMut(usize)| {
                (0..100).for_each(give);
                Err("the disk")
            };
            assert_eq!(meanwhile(others, drop, give), Err("the disk"));
        }
    }

    #[test]
    fn parts_are_done_once_and_in_their_order() {
        for length in [0, 1, PART, 2 * PART, 2 * PART + 1, 10_007] {
            let items: Vec<usize> = (0..length).collect();
            let begun = AtomicUsize::new(0);
            let begin = || begun.fetch_add(1, Ordering::Relaxed);
            let made = in_parts(&items, begin, |_, part| part.to_vec());
            assert!(begun.into_inner() <= THREADS_MAX);
            assert_eq!(made.concat(), items);
        }
    }
}
