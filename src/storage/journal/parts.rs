//! Long histories are read by several threads, each a part of it.

use std::{
    num::NonZero,
    panic,
    thread::{self, available_parallelism},
};

/// The items that are worth a thread.
const PART_MIN: usize = 500;

/// More threads than this gain little: the rows themselves are read by one.
const PARTS_MAX: usize = 4;

/// Does the same work on parts of a list that follow each other, and gives what each made, in order.
pub(super) fn in_parts<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    let threads = available_parallelism().map_or(1, NonZero::get).min(PARTS_MAX);
    let parts = (items.len() / PART_MIN).clamp(1, threads);
    let mut chunks = items.chunks(items.len().div_ceil(parts).max(1));
    let first = chunks.next().unwrap_or_default();
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = chunks.map(|part| scope.spawn(move || work(part))).collect();
        let mut made = vec![work(first)];
        for other in others {
            made.push(other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        made
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_done_once_and_in_their_order() {
        for length in [0, 1, PART_MIN, 2 * PART_MIN, 2 * PART_MIN + 1, 10_007] {
            let items: Vec<usize> = (0..length).collect();
            let made = in_parts(&items, <[usize]>::to_vec);
            assert!(made.len() <= PARTS_MAX);
            assert_eq!(made.concat(), items);
        }
    }
}
