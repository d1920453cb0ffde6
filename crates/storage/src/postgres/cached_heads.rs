//! The heads that this process has written, so that the next entry of a run need not read its head first.
//!
//! A cached head may be out of date. A statement that relies on it saves nothing unless the run still has that head: see
//! `statements`.

use std::collections::BTreeMap;

use graphrun_core::id::RunId;

use super::run::Run;
use crate::head::StoredHead;

/// Heads that need not be read again.
#[derive(Debug, Default)]
pub(super) struct CachedHeads(BTreeMap<RunId, CachedHead>);

/// A run, and its head after the last entry of this process.
#[derive(Debug)]
pub(super) struct CachedHead {
    pub(super) run: Run,
    pub(super) stored: StoredHead,
}

/// At most this number of heads is kept; the others are read again when needed.
const HEADS_MAX: usize = 4096;

impl CachedHeads {
    /// Removes and returns the head of a run, until it is noted again.
    pub(super) fn take(&mut self, run: &RunId) -> Option<CachedHead> {
        self.0.remove(run)
    }

    /// Notes the head of a run that this process owns.
    pub(super) fn note(&mut self, run: Run, stored: StoredHead) {
        if !stored.lease.is_held() {
            return;
        }
        if self.0.len() >= HEADS_MAX {
            self.0.pop_first();
        }
        self.0.insert(run.id.clone(), CachedHead { run, stored });
    }
}
