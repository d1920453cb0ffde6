//! Long histories are read by several threads, each a part of it.

use std::{
    num::NonZero,
    panic,
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self, available_parallelism},
};

/// The items of a part.
const PART: usize = 256;

/// More threads than this gain little: the rows themselves are read by one.
const THREADS_MAX: usize = 4;

/// Does the same work on parts of a list that follow each other, and gives what each made, in order.
///
/// Each thread begins with what `begin` gives it, and takes the next part when it is done with one:
/// so none waits long for another that was slow to start.
pub(super) fn in_parts<T: Sync, S, R: Send>(
    items: &[T],
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &[T]) -> R + Sync,
) -> Vec<R> {
    let parts: Vec<&[T]> = items.chunks(PART).collect();
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let next = AtomicUsize::new(0);
    let take = || {
        let (mut state, mut made) = (begin(), Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(at) else { return made };
            made.push((at, work(&mut state, part)));
        }
    };
    let mut made = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(parts.len())).map(|_| scope.spawn(take)).collect();
        let mut made = take();
        for other in others {
            made.extend(other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        made
    });
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
