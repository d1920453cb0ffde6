//! The heads that this connection has written, so that the next entry of a run need not read and check its head again.
//!
//! SQLite counts the commits of other connections (`data_version`). While the count is the same, each row is as this
//! connection left it. A write that is not committed forgets all heads, since it may have noted some, and so does each write of
//! this connection that saves no entry.

use std::collections::BTreeMap;

use graphrun_core::id::RunId;
use rusqlite::Connection;

use super::{
    fault::Fault,
    run::{Run, RunKey},
};
use crate::head::StoredHead;

/// Heads that need not be read again.
#[derive(Debug, Default)]
pub(super) struct HeadCache {
    known: BTreeMap<RunId, (RunKey, StoredHead)>,
    /// The count of commits by other connections when they were written.
    version: i64,
}

/// At most this number of heads is kept; the others are read again when needed.
const HEADS_MAX: usize = 4096;

impl HeadCache {
    /// Begins a transaction that saves entries.
    pub(super) fn begin(&mut self, database: &Connection) -> Result<(), Fault> {
        let mut count = database.prepare_cached("PRAGMA data_version")?;
        let version = count.query_row([], |row| row.get(0))?;
        if self.version != version {
            self.forget();
        }
        self.version = version;
        Ok(())
    }

    /// Forgets all heads.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Returns the run with exactly this id, and its head. It is forgotten until it is noted again.
    pub(super) fn take(
        &mut self,
        database: &Connection,
        id: &RunId,
    ) -> Result<(Run, StoredHead), Fault> {
        match self.known.remove_entry(id) {
            Some((id, (key, stored))) => Ok((Run { key, id }, stored)),
            None => Run::find_with_head(database, id),
        }
    }

    /// Notes the head that was written for a run.
    pub(super) fn note(&mut self, run: Run, stored: StoredHead) {
        if self.known.len() >= HEADS_MAX {
            self.known.pop_first();
        }
        self.known.insert(run.id, (run.key, stored));
    }
}
