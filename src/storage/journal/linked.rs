//! Rows whose links are checked by other threads while more rows are read.

use std::{convert::Infallible, iter, mem};

use super::{
    Row,
    parts::{PART, meanwhile, threads},
};
use crate::checkpoint::Link;

/// Rows in the order they were read, and the first of them that its link does not prove.
#[derive(Clone, Debug)]
pub(crate) struct Linked {
    /// The link before the first.
    pub(super) before: Link,
    pub(super) rows: Vec<Row>,
    /// The number of that row.
    pub(super) wrong: Option<u64>,
}

/// Rows that were read one after the other, and the link before them.
#[derive(Debug)]
struct Part {
    before: Link,
    rows: Vec<Row>,
}

impl Linked {
    /// Takes what `read` gives; `before` is the link before the first row.
    ///
    /// # Errors
    ///
    /// Fails as `read` does. A link that is wrong is no error yet: a row that cannot be read, or is
    /// missing, is told first.
    pub(crate) fn read<E>(
        before: Link,
        read: impl FnOnce(&mut dyn FnMut(Row)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let parts = meanwhile(threads() - 1, Part::check, |check| {
            let mut part = Part::after(before);
            read(&mut |row| {
                let link = row.link;
                part.rows.push(row);
                if part.rows.len() == PART {
                    check(mem::replace(&mut part, Part::after(link)));
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

    /// Takes rows that are there already.
    pub(crate) fn of(before: Link, rows: Vec<Row>) -> Self {
        let Ok(linked) = Self::read::<Infallible>(before, |take| {
            rows.into_iter().for_each(take);
            Ok(())
        });
        linked
    }
}

impl Part {
    fn after(before: Link) -> Self {
        Self { before, rows: Vec::with_capacity(PART) }
    }

    fn check(self) -> Linked {
        let Self { before, rows } = self;
        let links = iter::once(before).chain(rows.iter().map(|it| it.link));
        let wrong =
            rows.iter().zip(links).find(|(row, before)| row.link_after(*before) != row.link);
        let wrong = wrong.map(|(row, _)| row.number);
        Linked { before, rows, wrong }
    }
}
