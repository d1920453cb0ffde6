//! Decides whether a run of tests passed, from what the runner recorded and how its process ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        job::ProgramEnd,
        test_item::{ItemOutcome, TestItem, from_box},
    },
    TestOutcome,
    records::{Kind, Record},
    settings::{Allowed, Proof, TestSettings},
};

/// How many reasons are listed one by one.
const REASONS_MAX: usize = 10;

/// What came of the tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    /// Failures and errors, files that could not be loaded, and tests that are declared and did not run.
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    pub(crate) expected_to_fail: u32,
}

impl Counts {
    /// Returns why the tests without a result are not accepted. Without a reason, they are accepted.
    pub(crate) fn refusals(self, settings: &TestSettings) -> Vec<String> {
        [
            (self.skipped, "skipped", Allowed::Skip),
            (self.expected_to_fail, "expected to fail", Allowed::Xfail),
        ]
        .into_iter()
        .filter(|(count, _, allowed)| *count > 0 && !settings.allows(*allowed))
        .map(|(count, what, allowed)| {
            let name = allowed.as_str();
            format!(
                "{count} tests are {what}; a run passes with them only if the workflow has `allow: [{name}]`"
            )
        })
        .collect()
    }
}

/// The decision about a run.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) outcome: TestOutcome,
    pub(crate) counts: Counts,
    pub(crate) items: Vec<TestItem>,
    pub(crate) proof: Proof,
    /// What the output of pytest does not show: why the run did not pass all the same.
    pub(crate) reasons: Vec<String>,
}

/// The records of one item.
#[derive(Debug, Default)]
struct Item {
    test: String,
    passed_phases: BTreeSet<String>,
    has_failed: bool,
    is_skipped: bool,
    is_expected_to_fail: bool,
    has_raised: bool,
    /// Its own frame returned, or, if the test was not known before, its call did.
    returned: BTreeSet<String>,
}

/// Declared tests that did not run, although their files were loaded.
#[derive(Debug, Default)]
struct Unrun {
    /// Those that had to run.
    certain: Vec<String>,
    /// Those in a block, which count as skipped.
    conditional: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Passed,
    Failed,
    Skipped,
    ExpectedToFail,
}

/// Judges a run. `records` is `None` if something on the channel was not the runner's.
pub(super) fn judge(
    end: ProgramEnd,
    records: Option<&[Record]>,
    settings: &TestSettings,
) -> Verdict {
    let mut facts = Facts::default();
    let is_in_order = records.is_some_and(|records| facts.read(records));
    let mut verdict = Verdict {
        outcome: TestOutcome::Passed,
        counts: Counts::default(),
        items: Vec::new(),
        proof: facts.proof.unwrap_or_default(),
        reasons: Vec::new(),
    };
    let unrun = verdict.count(&facts);
    let code = end.exit_code();
    verdict.outcome = match end {
        ProgramEnd::TimedOut => {
            verdict.explain("the time of the sandbox is over");
            TestOutcome::TimedOut
        }
        ProgramEnd::OutOfMemory => {
            verdict.explain("the memory of the sandbox is used up");
            TestOutcome::OutOfMemory
        }
        ProgramEnd::OutputLimit => {
            verdict.explain("the tests printed too much");
            TestOutcome::OutputLimit
        }
        _ if !is_in_order => {
            verdict.explain("the channel of the test runner has records that it did not write");
            TestOutcome::Tampered
        }
        _ if !facts.tampered.is_empty() => {
            for what in &facts.tampered {
                verdict.explain(what);
            }
            TestOutcome::Tampered
        }
        _ if facts.end.is_none() => {
            verdict.explain("the process ended before the test runner had finished");
            TestOutcome::Crashed
        }
        _ if facts.end != code => {
            verdict.explain("the exit code differs from that of the test runner");
            TestOutcome::Tampered
        }
        _ => verdict.weigh(&facts, code, unrun, settings),
    };
    verdict
}

impl Verdict {
    fn explain(&mut self, reason: &str) {
        self.reasons.push(reason.to_owned());
    }

    /// Counts how the items ended, and returns the declared tests that did not run.
    fn count(&mut self, facts: &Facts) -> Unrun {
        let mut seen = BTreeSet::new();
        for (id, item) in &facts.items {
            seen.insert(item.test.as_str());
            let ending = item.ending(facts);
            // A hook that failed has an item and was not collected: it is no test.
            if !item.test.is_empty() {
                self.items.push(item_of(&item.test, id, ending.into()));
            }
            match ending {
                Ending::Passed => self.counts.passed += 1,
                Ending::Failed => self.counts.failed += 1,
                Ending::Skipped => self.counts.skipped += 1,
                Ending::ExpectedToFail => self.counts.expected_to_fail += 1,
            }
        }
        let mut unrun = Unrun::default();
        for (test, is_certain) in facts.declared.iter().filter(|it| !seen.contains(it.0.as_str())) {
            let uncollected = facts.uncollected.get(test.split("::").next().unwrap_or_default());
            let outcome = match (uncollected, is_certain) {
                (Some(true), _) | (None, false) => ItemOutcome::Skipped,
                (Some(false), _) | (None, true) => ItemOutcome::Failed,
            };
            self.items.push(item_of(test, test, outcome));
            match uncollected {
                Some(true) => self.counts.skipped += 1,
                // The file counts as one failure.
                Some(false) => {}
                None if *is_certain => unrun.certain.push(test.clone()),
                None => unrun.conditional.push(test.clone()),
            }
        }
        let unloaded = facts.uncollected.values().filter(|is_skipped| !**is_skipped).count();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.counts.failed += number(unloaded + unrun.certain.len());
        self.counts.skipped += number(unrun.conditional.len());
        unrun
    }

    /// Decides about a run whose records are genuine and complete.
    fn weigh(
        &mut self,
        facts: &Facts,
        code: Option<i32>,
        unrun: Unrun,
        settings: &TestSettings,
    ) -> TestOutcome {
        let Counts { passed, failed, .. } = self.counts;
        let unloaded = facts.uncollected.iter().filter(|(_, is_skipped)| !**is_skipped);
        let unloaded: Vec<&String> = unloaded.map(|(path, _)| path).collect();
        if !unloaded.is_empty() || code == Some(4) {
            for path in unloaded.into_iter().take(REASONS_MAX) {
                self.explain(&format!("`{}` could not be loaded", from_box(path)));
            }
            return TestOutcome::CollectionFailed;
        }
        if passed == 0 && failed == 0 {
            return TestOutcome::NoTests;
        }
        self.explain_all(unrun.certain, "is declared but did not run");
        self.explain_items(facts);
        if !settings.allows(Allowed::Skip) {
            let what = "is declared in a block that did not run, or is gone, and counts as skipped";
            self.explain_all(unrun.conditional, what);
        }
        self.reasons.extend(self.counts.refusals(settings));
        if self.proof < settings.proof {
            let proof = self.proof.as_str();
            let wanted = settings.proof.as_str();
            self.explain(&format!("the result is `{proof}`, and `{wanted}` is required"));
        }
        if let (0, Some(code)) = (failed, code.filter(|it| *it != 0)) {
            self.explain(&format!(
                "the process of the tests ended with {code}, and no test failed"
            ));
        }
        let is_passed = code == Some(0) && failed == 0 && self.reasons.is_empty();
        if is_passed { TestOutcome::Passed } else { TestOutcome::Failed }
    }

    fn explain_all(&mut self, tests: Vec<String>, why: &str) {
        let rest = tests.len().saturating_sub(REASONS_MAX);
        for test in tests.into_iter().take(REASONS_MAX) {
            self.reasons.push(format!("the test {test} {why}"));
        }
        if rest > 0 {
            self.reasons.push(format!("{rest} further tests did not run"));
        }
    }

    fn explain_items(&mut self, facts: &Facts) {
        for (name, item) in &facts.items {
            if item.has_not_run() && self.reasons.len() < 2 * REASONS_MAX {
                self.reasons.push(format!("{name} was collected and did not run"));
            }
            if item.is_contradicted(facts) && self.reasons.len() < 2 * REASONS_MAX {
                self.reasons
                    .push(format!("{name} is reported as passed, but its body did not return"));
            }
        }
    }
}

/// Returns a test. The name of an item has the parameters of the test, too.
fn item_of(test: &str, id: &str, outcome: ItemOutcome) -> TestItem {
    let file = from_box(test.split("::").next().unwrap_or_default());
    let name = id.split_once("::").map_or(id, |(_, name)| name).to_owned();
    TestItem { file, name, outcome }
}

impl From<Ending> for ItemOutcome {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Passed => Self::Passed,
            Ending::Failed => Self::Failed,
            Ending::Skipped | Ending::ExpectedToFail => Self::Skipped,
        }
    }
}

impl Item {
    fn has_returned(&self, facts: &Facts) -> bool {
        if facts.declared.contains_key(&self.test) {
            self.returned.contains(&self.test)
        } else {
            !self.returned.is_empty()
        }
    }

    fn has_not_run(&self) -> bool {
        let is_without_pass = self.passed_phases.is_empty();
        is_without_pass && !self.has_failed && !self.is_skipped && !self.is_expected_to_fail
    }

    fn is_reported_passed(&self) -> bool {
        ["setup", "call", "teardown"].iter().all(|it| self.passed_phases.contains(*it))
    }

    /// Returns whether pytest reports a pass that its body does not confirm.
    fn is_contradicted(&self, facts: &Facts) -> bool {
        let is_clean = !self.has_failed && !self.is_skipped && !self.is_expected_to_fail;
        is_clean && self.is_reported_passed() && (self.has_raised || !self.has_returned(facts))
    }

    fn ending(&self, facts: &Facts) -> Ending {
        if self.has_failed {
            Ending::Failed
        } else if self.is_expected_to_fail {
            Ending::ExpectedToFail
        } else if self.is_skipped {
            Ending::Skipped
        } else if self.is_reported_passed() && !self.is_contradicted(facts) {
            Ending::Passed
        } else {
            Ending::Failed
        }
    }
}

/// The records, put together.
#[derive(Debug, Default)]
struct Facts {
    proof: Option<Proof>,
    /// The tests that the files declare, and whether each is certain. Those in a block are not.
    declared: BTreeMap<String, bool>,
    items: BTreeMap<String, Item>,
    /// Files that gave no items, and whether they were skipped.
    uncollected: BTreeMap<String, bool>,
    tampered: BTreeSet<String>,
    end: Option<i32>,
}

impl Facts {
    /// Puts the records together. Says whether they come in an order that the runner can have written them in.
    fn read(&mut self, records: &[Record]) -> bool {
        for (place, record) in records.iter().enumerate() {
            let is_start = matches!(record, Record::Start(_));
            if (place == 0) != is_start || self.end.is_some() {
                return false;
            }
            self.add(record);
        }
        true
    }

    fn add(&mut self, record: &Record) {
        match record {
            Record::Start(proof) => self.proof = Some(*proof),
            Record::Expected { test } => {
                self.declared.insert(test.clone(), true);
            }
            Record::Conditional { test } => {
                self.declared.entry(test.clone()).or_default();
            }
            Record::Collected { item, test } => self.item(item).test.clone_from(test),
            Record::Uncollected { path, is_skipped } => {
                let all_skipped = self.uncollected.get(path).copied().unwrap_or(true);
                self.uncollected.insert(path.clone(), all_skipped && *is_skipped);
            }
            Record::Returned { item, test } => {
                self.item(item).returned.insert(test.clone());
            }
            Record::Raised { item } => self.item(item).has_raised = true,
            Record::Phase { item, phase, kind } => self.item(item).add(phase, *kind),
            Record::Tampered { what } => {
                self.tampered.insert(what.clone());
            }
            Record::End { code } => self.end = Some(*code),
        }
    }

    fn item(&mut self, name: &str) -> &mut Item {
        self.items.entry(name.to_owned()).or_default()
    }
}

impl Item {
    fn add(&mut self, phase: &str, kind: Kind) {
        match kind {
            Kind::Passed => {
                self.passed_phases.insert(phase.to_owned());
            }
            Kind::Failed => self.has_failed = true,
            Kind::Skipped => self.is_skipped = true,
            Kind::ExpectedToFail => self.is_expected_to_fail = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the records of a run of one declared test that passes.
    fn clean() -> Vec<Record> {
        let item = "test_a.py::test_a".to_owned();
        let test = "/box/test_a.py::test_a".to_owned();
        let phase = |phase: &str| Record::Phase {
            item: item.clone(),
            phase: phase.to_owned(),
            kind: Kind::Passed,
        };
        vec![
            Record::Start(Proof::InProcess),
            Record::Expected { test: test.clone() },
            Record::Collected { item: item.clone(), test: test.clone() },
            phase("setup"),
            Record::Returned { item: item.clone(), test },
            phase("call"),
            phase("teardown"),
            Record::End { code: 0 },
        ]
    }

    fn outcome(records: &[Record]) -> TestOutcome {
        judge(ProgramEnd::Exited(0), Some(records), &TestSettings::default()).outcome
    }

    #[test]
    fn a_run_passes_only_with_every_record_of_every_test() {
        assert_eq!(outcome(&clean()), TestOutcome::Passed);
        for left_out in 0..clean().len() {
            // Without its declaration the test counts as one that was found besides.
            if left_out == 1 {
                continue;
            }
            let mut records = clean();
            records.remove(left_out);
            assert_ne!(outcome(&records), TestOutcome::Passed, "without {left_out}");
        }
    }

    #[test]
    fn one_further_record_can_take_the_pass_away() {
        let item = "test_a.py::test_a".to_owned();
        let phase = |kind| Record::Phase { item: item.clone(), phase: "call".to_owned(), kind };
        for (record, expected) in [
            (phase(Kind::Failed), TestOutcome::Failed),
            (phase(Kind::Skipped), TestOutcome::NoTests),
            (phase(Kind::ExpectedToFail), TestOutcome::NoTests),
            (Record::Raised { item: item.clone() }, TestOutcome::Failed),
            (Record::Expected { test: "/box/test_b.py::test_b".to_owned() }, TestOutcome::Failed),
            (Record::Tampered { what: "x".to_owned() }, TestOutcome::Tampered),
            (Record::Start(Proof::Isolated), TestOutcome::Tampered),
            (Record::End { code: 0 }, TestOutcome::Tampered),
            (
                Record::Uncollected { path: "/box/test_b.py".to_owned(), is_skipped: false },
                TestOutcome::CollectionFailed,
            ),
        ] {
            let mut records = clean();
            records.insert(records.len() - 1, record.clone());
            assert_eq!(outcome(&records), expected, "{record:?}");
        }
    }

    #[test]
    fn a_test_in_a_block_counts_as_skipped_unless_it_runs() {
        let judged = |records: &[Record], allow: &[Allowed]| {
            let allow = allow.iter().copied().collect();
            let settings = TestSettings { allow, ..TestSettings::default() };
            judge(ProgramEnd::Exited(0), Some(records), &settings)
        };
        let mut records = clean();
        records[1] = Record::Conditional { test: "/box/test_a.py::test_a".to_owned() };
        assert_eq!(judged(&records, &[]).outcome, TestOutcome::Passed);
        records.insert(1, Record::Conditional { test: "/box/test_a.py::test_b".to_owned() });
        let verdict = judged(&records, &[]);
        assert_eq!((verdict.outcome, verdict.counts.skipped), (TestOutcome::Failed, 1));
        assert!(verdict.reasons[0].contains("test_b is declared in a block"), "{verdict:?}");
        assert_eq!(verdict.items[1].outcome, ItemOutcome::Skipped);
        assert_eq!(judged(&records, &[Allowed::Skip]).outcome, TestOutcome::Passed);
        // Another function in its place does not count as the test.
        records.retain(|it| !matches!(it, Record::Returned { .. }));
        let item = "test_a.py::test_a".to_owned();
        records.insert(5, Record::Returned { item, test: String::new() });
        assert_eq!(judged(&records, &[Allowed::Skip]).outcome, TestOutcome::Failed);
    }

    #[test]
    fn the_end_of_the_process_must_be_that_of_the_runner() {
        let settings = TestSettings::default();
        for (end, expected) in [
            (ProgramEnd::Exited(1), TestOutcome::Tampered),
            (ProgramEnd::Signaled(9), TestOutcome::Tampered),
            (ProgramEnd::TimedOut, TestOutcome::TimedOut),
            (ProgramEnd::OutOfMemory, TestOutcome::OutOfMemory),
            (ProgramEnd::OutputLimit, TestOutcome::OutputLimit),
        ] {
            assert_eq!(judge(end, Some(&clean()), &settings).outcome, expected, "{end:?}");
        }
        assert_eq!(judge(ProgramEnd::Exited(0), None, &settings).outcome, TestOutcome::Tampered);
    }

    #[test]
    fn a_process_that_fails_without_a_failed_test_is_named() {
        let mut records = clean();
        records.pop();
        records.push(Record::End { code: 7 });
        let verdict = judge(ProgramEnd::Exited(7), Some(&records), &TestSettings::default());
        assert_eq!(verdict.outcome, TestOutcome::Failed);
        assert_eq!(verdict.reasons, ["the process of the tests ended with 7, and no test failed"]);
        let path = "/box/test_b.py".to_owned();
        records.insert(1, Record::Uncollected { path, is_skipped: false });
        let verdict = judge(ProgramEnd::Exited(7), Some(&records), &TestSettings::default());
        assert_eq!(verdict.outcome, TestOutcome::CollectionFailed);
        assert_eq!(verdict.reasons, ["`test_b.py` could not be loaded"]);
    }

    #[test]
    fn a_result_below_the_required_proof_does_not_pass() {
        let settings = TestSettings { proof: Proof::Isolated, ..TestSettings::default() };
        let verdict = judge(ProgramEnd::Exited(0), Some(&clean()), &settings);
        assert_eq!(verdict.outcome, TestOutcome::Failed);
        assert_eq!(verdict.reasons, ["the result is `in_process`, and `isolated` is required"]);
    }
}
