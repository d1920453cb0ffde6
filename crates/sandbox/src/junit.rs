//! The `JUnit` report of a test run, reduced to the names and outcomes of its tests.
//!
//! Generated code can write the report, so the reader trusts nothing in it, and the result counts
//! only together with the exit code.

use roxmltree::{Document, Node, ParsingOptions};

use super::{
    report_error::ReportError,
    test_item::{ItemOutcome, Tally},
};

/// The most elements, attributes and texts that are read.
const NODES_MAX: u32 = 200_000;

/// The values of `status` and `result` of a test that did not run, as `GoogleTest` and `CTest` write them.
const UNRUN: [&str; 4] = ["notrun", "disabled", "suppressed", "skipped"];

/// Reads the test cases of a report. A test suite that states failures, of which no test shows one, is a failure.
pub(super) fn read(report: &[u8]) -> Result<Tally, ReportError> {
    let text = std::str::from_utf8(report)?;
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)?;
    if !matches!(document.root_element().tag_name().name(), "testsuites" | "testsuite") {
        return Err(ReportError::form("its root element is no `testsuites` or `testsuite`"));
    }
    let mut tally = Tally::default();
    for case in document.descendants().filter(is_case) {
        let text = |name| case.attribute(name).unwrap_or_default();
        let name = format!("{}::{}", text("classname"), text("name"));
        tally.add(text("file"), name, outcome_of(case));
    }
    // The numbers of a suite with suites in it are sums, so they are judged last.
    let suites = document.descendants().filter(|node| is_suite(node) && states_failures(*node));
    let (sums, own): (Vec<Node<'_, '_>>, Vec<Node<'_, '_>>) =
        suites.partition(|suite| suite.children().any(|it| is_suite(&it)));
    let shows_failure = |suite: &Node<'_, '_>| {
        suite.children().any(|it| is_case(&it) && outcome_of(it) == ItemOutcome::Failed)
    };
    for suite in own.into_iter().filter(|it| !shows_failure(it)) {
        tally.add_other_failure(unshown(suite));
    }
    if let (0, Some(suite)) = (tally.counts.failed, sums.first()) {
        tally.add_other_failure(unshown(*suite));
    }
    Ok(tally)
}

fn is_case(node: &Node<'_, '_>) -> bool {
    node.has_tag_name("testcase")
}

fn is_suite(node: &Node<'_, '_>) -> bool {
    node.has_tag_name("testsuite") || node.has_tag_name("testsuites")
}

fn outcome_of(case: Node<'_, '_>) -> ItemOutcome {
    let has = |name| case.children().any(|child| child.has_tag_name(name));
    let is_unrun = |name| {
        let value = case.attribute(name);
        value.is_some_and(|it| UNRUN.iter().any(|unrun| it.eq_ignore_ascii_case(unrun)))
    };
    if has("failure") || has("error") {
        ItemOutcome::Failed
    } else if has("skipped") || is_unrun("status") || is_unrun("result") {
        ItemOutcome::Skipped
    } else {
        ItemOutcome::Passed
    }
}

/// Returns whether a suite states that tests failed.
fn states_failures(suite: Node<'_, '_>) -> bool {
    ["failures", "errors"].iter().any(|name| {
        suite.attribute(*name).is_some_and(|it| it.trim().parse().is_ok_and(|it: u64| it > 0))
    })
}

fn unshown(suite: Node<'_, '_>) -> String {
    let name = suite.attribute("name").unwrap_or_default();
    format!("the suite `{name}` states failures or errors that no test of it shows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_item::TestCounts;

    #[test]
    fn cases_are_counted_by_their_content() {
        let report = br#"<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite tests="99" failures="0">
            <testcase classname="tests.test_a" name="a" file="tests/test_a.py"/>
            <testcase name="b"><system-out>text</system-out></testcase>
            <testcase name="c"><failure message="x">trace</failure></testcase>
            <testcase name="d"><error message="x"/></testcase>
            <testcase name="e"><failure/><error/></testcase>
            <testcase name="f"><skipped/></testcase>
            </testsuite></testsuites>"#;
        let Tally { counts, items, .. } = read(report).unwrap();
        let first = ("tests/test_a.py", "tests.test_a::a");
        assert_eq!((items[0].file.as_str(), items[0].name.as_str()), first);
        assert_eq!((items[5].file.as_str(), items[5].name.as_str()), ("", "::f"));
        assert_eq!(counts, TestCounts { passed: 2, failed: 3, skipped: 1 });
        assert_eq!(counts.total(), 6);
    }

    #[test]
    fn a_test_that_did_not_run_is_skipped() {
        let report = br#"<testsuite tests="5" disabled="1">
            <testcase name="a" status="run" result="completed"/>
            <testcase name="b" status="notrun" result="suppressed"/>
            <testcase name="c" status="run" result="skipped"/>
            <testcase name="d" status="Disabled"/>
            <testcase name="e" status="notrun"><error message="x"/></testcase>
            </testsuite>"#;
        let counts = read(report).unwrap().counts;
        assert_eq!(counts, TestCounts { passed: 1, failed: 1, skipped: 3 });
    }

    #[test]
    fn stated_failures_that_no_test_shows_are_failures() {
        let case = r#"<testcase name="a"/>"#;
        let failing = r#"<testcase name="b"><failure/></testcase>"#;
        for (attributes, cases, failed) in [
            (r#"name="s" errors="1""#, case.to_owned(), 1),
            (r#"name="s" failures="2""#, String::new(), 1),
            (r#"name="s" failures="2" errors="1""#, format!("{case}{failing}"), 1),
            (r#"errors="0" failures="""#, case.to_owned(), 0),
            (r#"errors="none" failures="-1""#, case.to_owned(), 0),
        ] {
            let suite = format!("<testsuite {attributes}>{cases}</testsuite>");
            let beside = format!("<testsuite failures=\"1\">{failing}</testsuite>");
            let sums = format!("<testsuites errors=\"1\">{suite}{beside}</testsuites>");
            let alone = read(suite.as_bytes()).unwrap();
            assert_eq!(alone.counts.failed, failed, "{suite}");
            assert_eq!(read(sums.as_bytes()).unwrap().counts.failed, failed + 1, "{sums}");
            let is_unshown = failed == 1 && !cases.contains("failure");
            let unshown = "the suite `s` states failures or errors that no test of it shows";
            assert_eq!(alone.other_failures, vec![unshown; usize::from(is_unshown)], "{suite}");
        }
        let sums = format!("<testsuites failures=\"1\"><testsuite>{case}</testsuite></testsuites>");
        assert_eq!(read(sums.as_bytes()).unwrap().counts.failed, 1);
    }

    #[test]
    fn an_invalid_report_counts_nothing() {
        let bomb = br#"<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuites><testcase name="&b;"/></testsuites>"#;
        let many = format!("<testsuites>{}</testsuites>", "<testcase/>".repeat(NODES_MAX as usize));
        let other = [&b""[..], b"<html/>", b"<testsuites>", b"\xff\xfe", bomb, many.as_bytes()];
        for report in other {
            assert!(read(report).is_err());
        }
    }
}
