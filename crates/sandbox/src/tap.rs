//! A report in the Test Anything Protocol, reduced to counts.

use super::{
    report_error::ReportError,
    test_item::{ItemOutcome, Tally},
};

/// Reads the tests of a report at its outermost level.
///
/// # Errors
///
/// Fails if the report has no plan, or not as many tests as it plans.
pub(super) fn read(report: &[u8]) -> Result<Tally, ReportError> {
    let text = std::str::from_utf8(report)?;
    let mut tally = Tally::default();
    let mut plans = Vec::new();
    for line in text.lines() {
        if line.starts_with("Bail out!") {
            return Err(ReportError::form("it bails out"));
        } else if let Some(plan) = line.strip_prefix("1..") {
            let number = plan.split_whitespace().next().and_then(|it| it.parse::<u32>().ok());
            plans.push(number.ok_or_else(|| ReportError::form("its plan has no number"))?);
        } else if let Some(rest) = line.strip_prefix("not ok") {
            add(&mut tally, rest, false);
        } else if let Some(rest) = line.strip_prefix("ok").filter(|it| is_end_of_word(it)) {
            add(&mut tally, rest, true);
        }
    }
    let found = tally.counts.total();
    match plans.as_slice() {
        [planned] if *planned == found => Ok(tally),
        [planned] => {
            Err(ReportError::form(format!("it plans {planned} tests, and reports {found}")))
        }
        [] => Err(ReportError::form("it has no plan, as in `1..3`")),
        _ => Err(ReportError::form("it has several plans")),
    }
}

/// Adds the test of ` 3 - its name # SKIP`.
fn add(tally: &mut Tally, rest: &str, is_ok: bool) {
    let directive = directive_start(rest);
    let described = directive.map_or(rest, |start| &rest[..start]);
    let name = described.trim_start().trim_start_matches(|it: char| it.is_ascii_digit());
    let name = name.trim_start().strip_prefix("- ").unwrap_or(name).trim();
    let outcome = match (directive, is_ok) {
        (Some(_), _) => ItemOutcome::Skipped,
        (None, true) => ItemOutcome::Passed,
        (None, false) => ItemOutcome::Failed,
    };
    tally.add("", name, outcome);
}

/// Returns where the directive begins that ends a name. A `#` after a backslash is a part of the name, and so is one without
/// the word of a directive. The reason after that word can have a `#`, too.
fn directive_start(described: &str) -> Option<usize> {
    described.match_indices('#').map(|(start, _)| start).find(|start| {
        let (before, after) = (&described[..*start], described[start + 1..].trim_start());
        let is_word = |word: &str| {
            after.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        before.ends_with(char::is_whitespace) && (is_word("skip") || is_word("todo"))
    })
}

fn is_end_of_word(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_item::TestCounts;

    #[test]
    fn tests_are_counted_at_the_outermost_level() {
        let report = b"TAP version 13\n# Subtest: a\n    not ok 1 - inner\n    1..1\nok 1 - a\n\
            not ok 2 - b\nok 3 - c # SKIP later\nnot ok 4 - d # TODO\nokay\n1..4\n";
        let Tally { counts, items, .. } = read(report).unwrap();
        assert_eq!(counts, TestCounts { passed: 1, failed: 1, skipped: 2 });
        assert_eq!(
            items.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "c", "d"]
        );
    }

    #[test]
    fn a_directive_begins_at_the_first_sign_with_its_word() {
        use ItemOutcome::{Failed, Passed, Skipped};
        for (line, name, outcome) in [
            ("ok 2 - b # SKIP broken, see ticket # 12", "b", Skipped),
            ("not ok 3 - x # TODO see # 5", "x", Skipped),
            ("ok 4 - see # 5 # skip", "see # 5", Skipped),
            ("ok 5 #Todo", "", Skipped),
            ("ok 6 - counts \\# skip", "counts \\# skip", Passed),
            ("not ok 7 - a#skip # 8", "a#skip # 8", Failed),
            ("ok 8 - a # é", "a # é", Passed),
        ] {
            let Tally { items, .. } = read(format!("{line}\n1..1\n").as_bytes()).unwrap();
            assert_eq!((items[0].name.as_str(), items[0].outcome), (name, outcome), "{line}");
        }
    }

    #[test]
    fn a_report_without_its_plan_counts_nothing() {
        for report in
            ["", "ok 1\n", "1..2\nok 1\n", "1..1\nok 1\n1..1\n", "1..1\nok 1\nBail out!\n"]
        {
            assert!(read(report.as_bytes()).is_err(), "{report}");
        }
    }
}
