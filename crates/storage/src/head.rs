//! The head of a run, as SQL databases store it, and the entry that follows it.

use std::{collections::BTreeSet, ops::RangeInclusive};

use graphrun_core::id::{RunId, Step, TaskId};
use graphrun_engine::{
    checkpoint::{CheckpointError, Entry, EntryHash, LeaseToken, RunStatus, RunSummary},
    storage::rules::{Head, Refusal, check_fence},
};

use crate::{
    journal::{
        Codec, Reader, Row, Span, before_open, checksum::of_head, damaged, encode, parse_info,
    },
    lease::{Lease, LeaseColumns},
    open_steps::OpenSteps,
};

/// The head of a run, the end of its journal, and its lease.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub(crate) head: Head,
    /// The number of the last entry before the records of the open step.
    pub(crate) before_open: u64,
    pub(crate) hash: EntryHash,
    pub(crate) lease: Lease,
}

/// The columns of a head.
pub(crate) struct HeadColumns<'a> {
    pub(crate) number: u64,
    pub(crate) before_open: u64,
    pub(crate) step: u64,
    pub(crate) seq: u64,
    pub(crate) hash: &'a [u8],
    pub(crate) run_status: &'a str,
    pub(crate) checksum: &'a [u8],
    pub(crate) lease: LeaseColumns<'a>,
}

impl StoredHead {
    /// Reads the head of a run from its columns.
    pub(crate) fn read(run: &RunId, columns: HeadColumns<'_>) -> Result<Self, CheckpointError> {
        let HeadColumns { number, before_open, step, seq, hash, run_status, checksum, lease } =
            columns;
        let id = run.as_str();
        let damage = |how: &'static str| damaged(id, "the status", how);
        let head = Head::of_stored(number, Step(step), seq, run_status);
        let head = head.map_err(|error| damaged(id, "the status", error))?;
        if of_head(id, &head, before_open, hash, run_status) != checksum {
            return Err(damage("its checksum does not match"));
        }
        let hash = EntryHash(hash.try_into().map_err(|_| damage("its hash is too short"))?);
        Ok(Self { head, before_open, hash, lease: Lease::read(run, lease)? })
    }

    /// Returns the run for a list.
    pub(crate) fn summary(&self, run: &RunId, info: &[u8]) -> Result<RunSummary, CheckpointError> {
        let info =
            parse_info(info).map_err(|error| damaged(run.as_str(), "the description", error))?;
        let lease = self.lease.info();
        let Head { step, run_status, updated, turns, .. } = self.head.clone();
        let RunStatus { status, reason } = run_status;
        let turns = info.is_thread.then_some(turns);
        Ok(RunSummary { info, status, reason, step, lease, updated, turns })
    }
}

/// An entry that follows the head of a locked run.
pub(crate) struct NextEntry<'a> {
    run: &'a RunId,
    stored: &'a StoredHead,
    entry: &'a Entry,
    /// The tasks of the open step that have finished, if they are cached.
    finished: Option<BTreeSet<TaskId>>,
}

/// An entry that is ready to be saved.
pub(crate) struct EncodedEntry {
    pub(crate) row: Row,
    /// The head after the entry.
    pub(crate) head: Head,
    /// The number of the last entry before the records of the open step.
    pub(crate) before_open: u64,
    /// The tasks that had finished before the entry.
    pub(crate) finished: BTreeSet<TaskId>,
}

impl<'a> NextEntry<'a> {
    /// Checks the fencing token of the writer.
    pub(crate) fn new(
        token: &'a LeaseToken,
        stored: &'a StoredHead,
        entry: &'a Entry,
        open_steps: &mut OpenSteps,
    ) -> Result<Self, Refusal> {
        let LeaseToken { run, fence } = token;
        check_fence(stored.lease.info().as_ref(), *fence)?;
        let has_open = stored.head.number > stored.before_open;
        let finished =
            if has_open { open_steps.take(run, stored.hash) } else { Some(BTreeSet::new()) };
        Ok(Self { run, stored, entry, finished })
    }

    /// Returns the numbers of the rows that it needs: the last commit, and those after it.
    pub(crate) fn needed_rows(&self) -> Option<RangeInclusive<u64>> {
        let StoredHead { head, before_open, .. } = self.stored;
        let is_needed = self.entry.commit.is_some() || self.finished.is_none();
        (head.number > *before_open && is_needed).then_some(*before_open..=head.number)
    }

    /// Checks the entry and encodes it. `open` are the needed rows.
    pub(crate) fn encode<F>(
        self,
        open: Option<Vec<Row>>,
        codec: &mut Codec,
    ) -> Result<EncodedEntry, F>
    where
        F: From<Refusal> + From<CheckpointError>,
    {
        let Self { run, stored: StoredHead { head, before_open: before, hash, .. }, entry, .. } =
            self;
        let span = Span { first: *before + 1, last: head.number, end: Some(*hash) };
        let open = match open {
            Some(rows) => Reader::check_open(run, rows, span)?,
            None => Reader::trusted(run, Vec::new()),
        };
        let finished = self.finished.map_or_else(|| open.finished(codec), Ok)?;
        let head = head.after(entry, |task| finished.contains(&task))?;
        let row = encode(codec, entry, &head, *hash, &open)?;
        let before_open = before_open(entry, &head, *before);
        Ok(EncodedEntry { row, head, before_open, finished })
    }
}
