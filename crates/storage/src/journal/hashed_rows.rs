//! Rows whose hashes other threads check while more rows are read.

use std::{convert::Infallible, iter, mem};

use graphrun_engine::checkpoint::EntryHash;

use super::{
    Row,
    parts::{PART, meanwhile, threads},
};

/// Rows in reading order, and the first row whose hash is wrong.
#[derive(Clone, Debug)]
pub(crate) struct HashedRows {
    /// The hash before the first row.
    pub(super) before: EntryHash,
    pub(super) rows: Vec<Row>,
    /// The number of the first row with a wrong hash.
    pub(super) wrong: Option<u64>,
}

/// Consecutive rows and the hash before them.
#[derive(Debug)]
struct RowBatch {
    before: EntryHash,
    rows: Vec<Row>,
}

impl HashedRows {
    /// Takes the rows that `read` passes on; `before` is the hash before the first row.
    ///
    /// # Errors
    ///
    /// Fails as `read` does. A wrong hash is no error yet: an unreadable or missing row is reported
    /// first.
    pub(crate) fn read<E>(
        before: EntryHash,
        read: impl FnOnce(&mut dyn FnMut(Row)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let parts = meanwhile(threads() - 1, RowBatch::check, |check| {
            let mut part = RowBatch::after(before);
            read(&mut |row| {
                let hash = row.hash;
                part.rows.push(row);
                if part.rows.len() == PART {
                    check(mem::replace(&mut part, RowBatch::after(hash)));
                }
            })?;
            check(part);
            Ok(())
        })?;
        let wrong = parts.iter().find_map(|it| it.wrong);
        let mut rows = Vec::with_capacity(parts.iter().map(|it| it.rows.len()).sum());
        rows.extend(parts.into_iter().flat_map(|it| it.rows));
        Ok(Self { before, rows, wrong })
    }

    /// Takes rows that are already in memory.
    pub(crate) fn of(before: EntryHash, rows: Vec<Row>) -> Self {
        let Ok(linked) = Self::read::<Infallible>(before, |take| {
            rows.into_iter().for_each(take);
            Ok(())
        });
        linked
    }
}

impl RowBatch {
    fn after(before: EntryHash) -> Self {
        Self { before, rows: Vec::with_capacity(PART) }
    }

    fn check(self) -> HashedRows {
        let Self { before, rows } = self;
        let hashes = iter::once(before).chain(rows.iter().map(|it| it.hash));
        let wrong =
            rows.iter().zip(hashes).find(|(row, before)| row.hash_after(*before) != row.hash);
        let wrong = wrong.map(|(row, _)| row.number);
        HashedRows { before, rows, wrong }
    }
}
