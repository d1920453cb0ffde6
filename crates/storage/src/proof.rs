//! Proves that a run is intact by reading its journal from the first entry to the last.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::id::{ChannelName, RunId, Step, TaskId};
use graphrun_engine::checkpoint::{
    Basis, CheckpointError, Checkpointer, Detail, EntryHash, JournalEntry, SavedRun,
};
use serde_json::Value;
use thiserror::Error;

use graphrun_engine::storage::rules::{Head, apply, finished_after, misfit};

/// How many entries are read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// What the journal of a run proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The number of entries.
    pub entries: u64,
    /// The committed steps.
    pub steps: Step,
    /// The hash of the last entry. Noted elsewhere, it proves the whole history.
    pub hash: EntryHash,
    /// The number of the entry with the expected hash, if there is one.
    pub expected_at: Option<u64>,
}

/// The stored head differs from the entries.
#[derive(Debug, Error)]
#[error("it contradicts entry {0}")]
struct Differs(u64);

/// Reads a whole run and computes every hash again. Checks that each entry follows the rules after
/// those before it, and that the stored head matches the last entry.
///
/// `expected` is a hash that was noted earlier; if an entry has it, the history up to that entry is
/// unchanged. Without it, truncation stays undetected: an attacker who can compute hashes can
/// remove entries from the end and rewrite the rest.
///
/// # Errors
///
/// Fails with [`CheckpointError::Damaged`], which names the first entry that is missing, changed or
/// in another place, and when the run cannot be read.
pub async fn prove(
    storage: &dyn Checkpointer,
    run: &RunId,
    expected: Option<EntryHash>,
) -> Result<Proof, CheckpointError> {
    let head = None;
    let basis = None;
    let proof = None;
    let finished = BTreeSet::new();
    let values = BTreeMap::new();
    let mut reading = Reading { run, expected, head, finished, values, basis, proof };
    loop {
        let number = reading.number();
        let entries = storage.entries(run, number, ENTRIES_AT_ONCE, Detail::Whole).await?;
        if !entries.is_empty() {
            entries.iter().try_for_each(|it| reading.take(it))?;
            continue;
        }
        let saved = storage.load(run).await?;
        // A process may be writing the run.
        if storage.entries(run, number, 1, Detail::Whole).await?.is_empty() {
            return reading.end(&saved);
        }
    }
}

struct Reading<'a> {
    run: &'a RunId,
    expected: Option<EntryHash>,
    head: Option<Head>,
    /// The tasks of the open step whose records are final.
    finished: BTreeSet<TaskId>,
    /// The values of the channels after these entries.
    values: BTreeMap<ChannelName, Value>,
    /// The workflow and version according to the last migration.
    basis: Option<Basis>,
    proof: Option<Proof>,
}

impl Reading<'_> {
    fn number(&self) -> u64 {
        self.head.as_ref().map_or(0, |it| it.number)
    }

    fn take(&mut self, logged: &JournalEntry) -> Result<(), CheckpointError> {
        let JournalEntry { number, hash, entry } = logged;
        let next = match &self.head {
            None => Head::first(entry),
            Some(head) => head.after(entry, |task| self.finished.contains(&task)),
        };
        let head = next.map_err(|refusal| self.damaged(format!("entry {number}"), refusal))?;
        self.finished = finished_after(std::mem::take(&mut self.finished), entry);
        for change in entry.commit.iter().flat_map(|it| &it.changes) {
            apply(&mut self.values, change.clone())
                .map_err(|error| misfit(self.run, &change.channel, head.step, error))?;
        }
        if let Some(migration) = &entry.migration {
            self.basis = Some(migration.to.clone());
        }
        let before = self.proof.and_then(|it| it.expected_at);
        let expected_at = before.or((self.expected == Some(*hash)).then_some(*number));
        self.proof = Some(Proof { entries: *number, steps: head.step, hash: *hash, expected_at });
        self.head = Some(head);
        Ok(())
    }

    fn end(self, saved: &SavedRun) -> Result<Proof, CheckpointError> {
        let (Some(head), Some(proof)) = (&self.head, self.proof) else {
            return Err(self.damaged("entry 1".to_owned(), Differs(1)));
        };
        let stands = (saved.summary.status, &saved.summary.reason);
        let said = (head.run_status.status, &head.run_status.reason);
        let info = &saved.summary.info;
        let summary = (&saved.summary.updated, saved.summary.turns);
        let is_same = stands == said
            && summary == (&head.updated, info.is_thread.then_some(head.turns))
            && self.basis.as_ref().is_none_or(|it| *it == info.basis())
            && (saved.position.step, saved.last_seq) == (head.step, head.seq)
            && saved.summary.step == head.step;
        if saved.values != self.values {
            // A load may have begun with kept values, which no hash covers.
            Err(self.damaged("the kept values".to_owned(), Differs(head.number)))
        } else if is_same {
            Ok(proof)
        } else {
            Err(self.damaged("the status".to_owned(), Differs(head.number)))
        }
    }

    fn damaged(
        &self,
        what: String,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> CheckpointError {
        CheckpointError::Damaged { run: self.run.to_string(), what, source: source.into() }
    }
}
