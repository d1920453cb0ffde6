//! Proof that a run is what was saved: its journal, read from the first entry to the last.

use std::collections::BTreeSet;

use thiserror::Error;

use super::rules::{Head, finished_by};
use crate::{
    checkpoint::{Basis, CheckpointError, Checkpointer, Link, Logged, SavedRun},
    id::{RunId, Step, TaskId},
};

/// How many entries are read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// What the journal of a run proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The entries.
    pub entries: u64,
    /// The committed steps.
    pub steps: Step,
    /// The link of the last entry. Noted down elsewhere, it proves all of this history.
    pub link: Link,
    /// The entry with the link that was asked for, if there is one.
    pub expected_at: Option<u64>,
}

/// How the run stands is not what its entries say.
#[derive(Debug, Error)]
#[error("it is not what entry {0} says")]
struct Differs(u64);

/// Reads all of a run: computes every link anew, and checks that each entry follows from those
/// before it by the rules of a run, and that the run stands as the last one says.
///
/// `expected` is a link that was noted down earlier; an entry that has it shows that the history up
/// to there is the one of then. Without one, a run from whose end entries were taken by somebody who
/// knows how to write the rest anew looks like one that has not gone on yet.
///
/// # Errors
///
/// Fails with [`CheckpointError::Damaged`], which names the first entry that is missing, changed
/// or in another place, and when the run cannot be read.
pub async fn prove(
    storage: &dyn Checkpointer,
    run: &RunId,
    expected: Option<Link>,
) -> Result<Proof, CheckpointError> {
    let (head, basis, proof) = (None, None, None);
    let mut reading = Reading { run, expected, head, finished: BTreeSet::new(), basis, proof };
    loop {
        let number = reading.number();
        let entries = storage.journal(run, number, ENTRIES_AT_ONCE).await?;
        if !entries.is_empty() {
            entries.iter().try_for_each(|it| reading.take(it))?;
            continue;
        }
        let saved = storage.load(run).await?;
        // A process may be at work on it.
        if storage.journal(run, number, 1).await?.is_empty() {
            return reading.end(&saved);
        }
    }
}

struct Reading<'a> {
    run: &'a RunId,
    expected: Option<Link>,
    head: Option<Head>,
    /// The tasks of the open step whose records are final.
    finished: BTreeSet<TaskId>,
    /// What the last migration says that the run goes by.
    basis: Option<Basis>,
    proof: Option<Proof>,
}

impl Reading<'_> {
    fn number(&self) -> u64 {
        self.head.as_ref().map_or(0, |it| it.number)
    }

    fn take(&mut self, logged: &Logged) -> Result<(), CheckpointError> {
        let Logged { number, link, entry } = logged;
        let next = match &self.head {
            None => Head::first(entry),
            Some(head) => head.after(entry, |task| self.finished.contains(&task)),
        };
        let head = next.map_err(|refusal| self.damaged(format!("entry {number}"), refusal))?;
        if entry.commit.is_some() {
            self.finished.clear();
        }
        self.finished.extend(finished_by(entry));
        if let Some(migration) = &entry.migration {
            self.basis = Some(migration.is.clone());
        }
        let before = self.proof.and_then(|it| it.expected_at);
        let expected_at = before.or((self.expected == Some(*link)).then_some(*number));
        self.proof = Some(Proof { entries: *number, steps: head.step, link: *link, expected_at });
        self.head = Some(head);
        Ok(())
    }

    fn end(self, saved: &SavedRun) -> Result<Proof, CheckpointError> {
        let (Some(head), Some(proof)) = (&self.head, self.proof) else {
            return Err(self.damaged("entry 1".to_owned(), Differs(1)));
        };
        let stands = (saved.summary.status, &saved.summary.reason);
        let said = (head.standing.status, &head.standing.reason);
        let info = &saved.summary.info;
        let is_same = stands == said
            && self.basis.as_ref().is_none_or(|it| *it == info.basis())
            && (saved.position.step, saved.last_seq) == (head.step, head.seq)
            && saved.summary.step == head.step;
        if is_same {
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
