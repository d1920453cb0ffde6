//! The finished tasks of open steps, cached in this process.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::id::{RunId, TaskId};
use graphrun_engine::checkpoint::{Entry, EntryHash};

use graphrun_engine::storage::rules::finished_after;

/// The content of the entries since the last commit of some runs.
///
/// The key is the hash of the last of these entries. A hash proves all entries before it, so cached
/// content need not be read again. Entries that were not saved in the end, or that another process
/// has saved since, have another hash.
#[derive(Debug, Default)]
pub(super) struct OpenSteps(BTreeMap<RunId, OpenStep>);

#[derive(Debug)]
struct OpenStep {
    hash: EntryHash,
    finished: BTreeSet<TaskId>,
}

/// The cache holds at most this number of runs; the others are read again when needed.
const RUNS_MAX: usize = 256;

impl OpenSteps {
    /// Removes and returns the finished tasks of the open step after the entry with this hash, if
    /// they are cached.
    pub(super) fn take(&mut self, run: &RunId, hash: EntryHash) -> Option<BTreeSet<TaskId>> {
        self.0.remove(run).filter(|it| it.hash == hash).map(|it| it.finished)
    }

    /// Caches an entry under its hash; `finished` are the tasks that had finished before it.
    pub(super) fn note(
        &mut self,
        run: &RunId,
        hash: EntryHash,
        entry: &Entry,
        finished: BTreeSet<TaskId>,
    ) {
        if entry.commit.is_some() && entry.carried().is_empty() {
            self.0.remove(run);
            return;
        }
        if self.0.len() >= RUNS_MAX && !self.0.contains_key(run) {
            self.0.pop_first();
        }
        let finished = finished_after(finished, entry);
        self.0.insert(run.clone(), OpenStep { hash, finished });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphrun_core::{
        event::Usage,
        id::{NodeName, Step},
    };
    use graphrun_engine::checkpoint::{Commit, Outcome, Position, TaskRecord};
    fn run(number: usize) -> RunId {
        RunId::parse(&format!("R{number}")).unwrap()
    }

    fn task(index: u32) -> TaskId {
        TaskId { step: Step(1), index }
    }

    fn skipped(index: u32) -> Entry {
        Entry::from(TaskRecord {
            task: task(index),
            node: NodeName::parse("a").unwrap(),
            attempt: 1,
            ms: 0,
            usage: Usage::default(),
            outcome: Outcome::Skipped { condition: "x".into(), transitions: Vec::new() },
        })
    }

    #[test]
    fn an_open_step_is_found_only_by_its_hash() {
        let (mut open, [a, b]) = (OpenSteps::default(), [1, 2].map(|it| EntryHash([it; 32])));
        open.note(&run(1), a, &skipped(0), BTreeSet::new());
        let before = open.take(&run(1), a).unwrap();
        assert_eq!(before, [task(0)].into());
        open.note(&run(1), b, &skipped(1), before);
        assert_eq!(open.take(&run(2), b), None, "another run");
        assert_eq!(open.take(&run(1), b), Some([task(0), task(1)].into()));
        open.note(&run(1), b, &skipped(1), BTreeSet::new());
        assert_eq!(open.take(&run(1), a), None, "it was not saved after all");
        let commit = Commit { position: Position::default(), changes: Vec::new() };
        open.note(&run(1), a, &commit.into(), BTreeSet::new());
        assert_eq!(open.take(&run(1), a), None, "nothing is open");
    }

    #[test]
    fn no_more_is_kept_than_that() {
        let mut open = OpenSteps::default();
        for number in 0..2 * RUNS_MAX {
            open.note(&run(number), EntryHash([0; 32]), &skipped(0), BTreeSet::new());
        }
        assert_eq!(open.0.len(), RUNS_MAX);
    }
}
