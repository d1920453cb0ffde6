//! Whether a write is made on the thread of its run.
//!
//! To hand a write to another thread and to be woken by it can take longer than the write. So a run that writes alone does
//! not, if the last writes were quick: other tasks of its thread then wait no longer than for a node that computes.
//! Runs that take turns use the writer, which saves several entries at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use graphrun_core::id::RunId;

/// The longest duration, in the mean of the last writes, for which a thread of nodes waits.
const QUICK_MAX: Duration = Duration::from_micros(500);

/// The weight of the writes before in the mean; that of the last one is one.
const BEFORE: u32 = 7;

/// The last writes.
#[derive(Debug)]
pub(super) struct LoneRun(Mutex<LastWrites>);

#[derive(Debug)]
struct LastWrites {
    /// The run of the last write, unless that ended or suspended it.
    run: Option<RunId>,
    /// The mean duration, in which each write counts less than the next one.
    mean: Duration,
}

impl LoneRun {
    /// Notes a write that waits. Returns whether it is the next one of the run that has written last, or the first one of
    /// the only run, and the last writes were quick.
    pub(super) fn note_next(&self, run: &RunId, stops: bool) -> bool {
        let mut last = self.last();
        let is_alone = last.run.as_ref().is_none_or(|it| it == run);
        if stops {
            last.run = None;
        } else if !is_alone || last.run.is_none() {
            last.run = Some(run.clone());
        }
        is_alone && last.mean <= QUICK_MAX
    }

    /// Notes the duration of the write of one run.
    pub(super) fn note_duration(&self, duration: Duration) {
        let mut last = self.last();
        last.mean = (last.mean * BEFORE + duration) / (BEFORE + 1);
    }

    fn last(&self) -> MutexGuard<'_, LastWrites> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LoneRun {
    fn default() -> Self {
        // The first writes show whether the disk is quick.
        Self(Mutex::new(LastWrites { run: None, mean: 2 * QUICK_MAX }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> RunId {
        RunId::parse(id).unwrap()
    }

    fn quick() -> LoneRun {
        let lone = LoneRun::default();
        (0..20).for_each(|_| lone.note_duration(Duration::from_micros(50)));
        lone
    }

    #[test]
    fn only_a_run_that_has_written_last_is_alone() {
        let lone = quick();
        let a = run("A");
        let b = run("B");
        assert!(lone.note_next(&a, false) && lone.note_next(&a, false));
        assert!(!lone.note_next(&b, false), "they take turns");
        assert!(!lone.note_next(&a, false) && lone.note_next(&a, true));
        assert!(lone.note_next(&b, false), "the other one has ended");
    }

    #[test]
    fn a_thread_waits_only_after_quick_writes() {
        let lone = LoneRun::default();
        let a = run("A");
        assert!(!lone.note_next(&a, false), "the disk is not known yet");
        let lone = quick();
        assert!(lone.note_next(&a, false));
        lone.note_duration(Duration::from_millis(20));
        assert!(!lone.note_next(&a, false));
        (0..20).for_each(|_| lone.note_duration(Duration::from_micros(50)));
        assert!(lone.note_next(&a, false));
    }
}
