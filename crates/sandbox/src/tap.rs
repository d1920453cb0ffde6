//! A report in the Test Anything Protocol, reduced to counts.

use super::command_tests::TestCounts;

/// Counts the tests of a report at its outermost level; `None` if it has no plan, or not as many tests as it plans.
pub(super) fn read(report: &[u8]) -> Option<TestCounts> {
    let text = std::str::from_utf8(report).ok()?;
    let mut counts = TestCounts::default();
    let mut plans = Vec::new();
    for line in text.lines() {
        if line.starts_with("Bail out!") {
            return None;
        } else if let Some(plan) = line.strip_prefix("1..") {
            plans.push(plan.split_whitespace().next()?.parse::<u32>().ok()?);
        } else if let Some(rest) = line.strip_prefix("not ok") {
            count(&mut counts, rest, false);
        } else if let Some(rest) = line.strip_prefix("ok").filter(|it| is_end_of_word(it)) {
            count(&mut counts, rest, true);
        }
    }
    let [planned] = plans.as_slice() else { return None };
    (*planned == counts.total()).then_some(counts)
}

fn count(counts: &mut TestCounts, rest: &str, is_ok: bool) {
    let directive = rest.rsplit_once(" # ").map_or("", |(_, it)| it).to_ascii_lowercase();
    if directive.starts_with("skip") || directive.starts_with("todo") {
        counts.skipped += 1;
    } else if is_ok {
        counts.passed += 1;
    } else {
        counts.failed += 1;
    }
}

fn is_end_of_word(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_at_the_outermost_level() {
        let report = b"TAP version 13\n# Subtest: a\n    not ok 1 - inner\n    1..1\nok 1 - a\n\
            not ok 2 - b\nok 3 - c # SKIP later\nnot ok 4 - d # TODO\nokay\n1..4\n";
        let counts = TestCounts { passed: 1, failed: 1, skipped: 2 };
        assert_eq!(read(report), Some(counts));
    }

    #[test]
    fn a_report_without_its_plan_counts_nothing() {
        for report in
            ["", "ok 1\n", "1..2\nok 1\n", "1..1\nok 1\n1..1\n", "1..1\nok 1\nBail out!\n"]
        {
            assert_eq!(read(report.as_bytes()), None, "{report}");
        }
    }
}
