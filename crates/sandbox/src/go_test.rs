//! The events of `go test -json`, reduced to counts.
//!
//! The form is that of `go doc test2json`: one event a line. Messages of the go command may come
//! between them.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{
    report_error::ReportError,
    test_item::{ItemOutcome, Tally},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    /// The package of a build.
    #[serde(default)]
    import_path: String,
    test: Option<String>,
}

/// Reads the tests of all packages.
///
/// # Errors
///
/// Fails if a line is not an event, or if a package or test that started has no end.
pub(super) fn read(report: &[u8]) -> Result<Tally, ReportError> {
    let text = std::str::from_utf8(report)?;
    let mut tally = Tally::default();
    let mut open = BTreeSet::new();
    // Packages of which a test failed.
    let mut failed_tests: BTreeSet<String> = BTreeSet::new();
    for line in text.lines().filter(|it| it.starts_with('{')) {
        let Event { action, package, import_path, test } = serde_json::from_str(line)?;
        let key = (package.clone(), test.clone());
        match (action.as_str(), &test) {
            ("start", None) | ("run", Some(_)) => {
                open.insert(key);
            }
            ("pass" | "fail" | "skip", Some(test)) => {
                if !open.remove(&key) {
                    return Err(ReportError::form(format!("the test `{test}` has no start")));
                }
                let outcome = match action.as_str() {
                    "pass" => ItemOutcome::Passed,
                    "skip" => ItemOutcome::Skipped,
                    _ => ItemOutcome::Failed,
                };
                tally.add("", format!("{package}.{test}"), outcome);
                if outcome == ItemOutcome::Failed {
                    failed_tests.insert(package);
                }
            }
            ("pass" | "skip", None) => {
                open.remove(&key);
            }
            // A package that does not build or that panics fails without a failed test.
            ("fail", None) => {
                open.remove(&key);
                if !failed_tests.contains(&package) {
                    tally.add_other_failure(format!(
                        "the package `{package}` failed, and no test of it"
                    ));
                }
            }
            ("build-fail", _) => {
                tally.add_other_failure(format!("`{import_path}` does not build"));
            }
            _ => {}
        }
    }
    if let Some((package, test)) = open.first() {
        let name = test.iter().fold(package.clone(), |package, it| format!("{package}.{it}"));
        return Err(ReportError::form(format!("`{name}` has a start and no end")));
    }
    if tally.counts.total() == 0 {
        return Err(ReportError::form("it has no test"));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_item::TestCounts;

    const EVENTS: &str = r#"{"Time":"2026-01-05T10:00:00Z","Action":"start","Package":"example.com/calc"}
{"Time":"2026-01-05T10:00:00Z","Action":"run","Package":"example.com/calc","Test":"TestAdd"}
{"Time":"2026-01-05T10:00:00Z","Action":"output","Package":"example.com/calc","Test":"TestAdd","Output":"=== RUN   TestAdd\n"}
{"Time":"2026-01-05T10:00:00Z","Action":"run","Package":"example.com/calc","Test":"TestAdd/small"}
{"Time":"2026-01-05T10:00:00Z","Action":"pass","Package":"example.com/calc","Test":"TestAdd/small","Elapsed":0}
{"Time":"2026-01-05T10:00:00Z","Action":"pass","Package":"example.com/calc","Test":"TestAdd","Elapsed":0}
{"Time":"2026-01-05T10:00:00Z","Action":"run","Package":"example.com/calc","Test":"TestLater"}
{"Time":"2026-01-05T10:00:00Z","Action":"skip","Package":"example.com/calc","Test":"TestLater","Elapsed":0}
{"Time":"2026-01-05T10:00:00Z","Action":"run","Package":"example.com/calc","Test":"TestSub"}
{"Time":"2026-01-05T10:00:00Z","Action":"fail","Package":"example.com/calc","Test":"TestSub","Elapsed":0}
{"Time":"2026-01-05T10:00:00Z","Action":"output","Package":"example.com/calc","Output":"FAIL\n"}
{"Time":"2026-01-05T10:00:00Z","Action":"fail","Package":"example.com/calc","Elapsed":0.01}
# example.com/broken [example.com/broken.test]
{"ImportPath":"example.com/broken","Action":"build-output","Output":"./a.go:3: undefined\n"}
{"Time":"2026-01-05T10:00:00Z","Action":"start","Package":"example.com/broken"}
{"Time":"2026-01-05T10:00:00Z","Action":"fail","Package":"example.com/broken","Elapsed":0}
{"Time":"2026-01-05T10:00:00Z","Action":"start","Package":"example.com/empty"}
{"Time":"2026-01-05T10:00:00Z","Action":"skip","Package":"example.com/empty","Elapsed":0}
"#;

    #[test]
    fn tests_and_packages_that_fail_are_counted() {
        let Tally { counts, items, other_failures } = read(EVENTS.as_bytes()).unwrap();
        let broken = "the package `example.com/broken` failed, and no test of it";
        assert_eq!(other_failures, [broken]);
        assert_eq!(counts, TestCounts { passed: 2, failed: 2, skipped: 1 });
        assert_eq!(items[0].name, "example.com/calc.TestAdd/small");
        assert_eq!(items.len(), 4, "a package that does not build has no name of a test");
    }

    #[test]
    fn events_without_their_end_count_nothing() {
        let without = |part: &str| {
            EVENTS.lines().filter(|it| !it.contains(part)).collect::<Vec<_>>().join("\n")
        };
        let deep = format!("{{\"Action\":{}1", "[".repeat(100_000));
        for report in [
            String::new(),
            "ok  example.com/calc 0.01s\n".to_owned(),
            without(r#""Action":"pass","Package":"example.com/calc","Test":"TestAdd","#),
            without(r#""Action":"run","Package":"example.com/calc","Test":"TestLater""#),
            without(r#""Action":"fail","Package":"example.com/calc","Elapsed":0.01"#),
            format!("{EVENTS}{{\"Action\":"),
            format!("{EVENTS}{{\"Package\":\"a\"}}\n"),
            deep,
        ] {
            assert!(read(report.as_bytes()).is_err(), "{report:.200}");
        }
    }
}
