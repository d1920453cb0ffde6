//! The `JUnit` report of a test run, reduced to the names and outcomes of its tests.
//!
//! Generated code can write the report, so the reader trusts nothing in it, and the result counts
//! only together with the exit code.

use roxmltree::{Document, ParsingOptions};

use super::test_item::{ItemOutcome, Tally};

/// The most elements, attributes and texts that are read.
const NODES_MAX: u32 = 200_000;

/// Reads the test cases of a report; `None` if it is invalid.
pub(super) fn read(report: &[u8]) -> Option<Tally> {
    let text = std::str::from_utf8(report).ok()?;
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok()?;
    if !matches!(document.root_element().tag_name().name(), "testsuites" | "testsuite") {
        return None;
    }
    let mut tally = Tally::default();
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let has = |name| case.children().any(|child| child.has_tag_name(name));
        let outcome = if has("failure") || has("error") {
            ItemOutcome::Failed
        } else if has("skipped") {
            ItemOutcome::Skipped
        } else {
            ItemOutcome::Passed
        };
        let text = |name| case.attribute(name).unwrap_or_default();
        tally.add(text("file"), format!("{}::{}", text("classname"), text("name")), outcome);
    }
    Some(tally)
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
        let Tally { counts, items } = read(report).unwrap();
        let first = ("tests/test_a.py", "tests.test_a::a");
        assert_eq!((items[0].file.as_str(), items[0].name.as_str()), first);
        assert_eq!((items[5].file.as_str(), items[5].name.as_str()), ("", "::f"));
        assert_eq!(counts, TestCounts { passed: 2, failed: 3, skipped: 1 });
        assert_eq!(counts.total(), 6);
    }

    #[test]
    fn an_invalid_report_counts_nothing() {
        let bomb = br#"<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuites><testcase name="&b;"/></testsuites>"#;
        let many = format!("<testsuites>{}</testsuites>", "<testcase/>".repeat(NODES_MAX as usize));
        let other = [&b""[..], b"<html/>", b"<testsuites>", b"\xff\xfe", bomb, many.as_bytes()];
        for report in other {
            assert_eq!(read(report), None);
        }
    }
}
