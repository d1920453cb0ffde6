//! The report of `jest --json` and of `vitest --reporter=json`, reduced to counts.

use serde::Deserialize;

use super::{
    report_error::ReportError,
    test_item::{ItemOutcome, Tally, from_box},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    num_total_tests: u32,
    success: bool,
    test_results: Vec<File>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    name: String,
    status: String,
    assertion_results: Vec<Test>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    #[serde(default)]
    full_name: String,
    status: String,
}

/// Reads the tests of all files. A file that failed without a failed test counts as one failure.
///
/// # Errors
///
/// Fails if the number of tests differs from the stated one, or if the stated success contradicts
/// the tests.
pub(super) fn read(report: &[u8]) -> Result<Tally, ReportError> {
    let report: Report = serde_json::from_slice(report)?;
    let mut tally = Tally::default();
    let mut unloaded = Vec::new();
    for file in &report.test_results {
        let before = tally.counts.failed;
        for test in &file.assertion_results {
            let outcome = match test.status.as_str() {
                "passed" => ItemOutcome::Passed,
                "failed" => ItemOutcome::Failed,
                "pending" | "skipped" | "todo" | "disabled" => ItemOutcome::Skipped,
                other => {
                    return Err(ReportError::form(format!("a test has the status {other:?}")));
                }
            };
            tally.add(&file.name, &test.full_name, outcome);
        }
        if file.status == "failed" && tally.counts.failed == before {
            unloaded.push(format!("`{}` failed, and no test of it", from_box(&file.name)));
        }
    }
    let (stated, found) = (report.num_total_tests, tally.counts.total());
    if stated != found {
        return Err(ReportError::form(format!("it states {stated} tests, and reports {found}")));
    }
    for failure in unloaded {
        tally.add_other_failure(failure);
    }
    if report.success != (tally.counts.failed == 0) {
        return Err(ReportError::form("its `success` contradicts its tests"));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_item::TestCounts;

    /// From jest 30, without the texts of the failures.
    const JEST: &str = r#"{"numFailedTestSuites":2,"numFailedTests":1,"numPassedTestSuites":0,"numPassedTests":1,
        "numPendingTestSuites":0,"numPendingTests":1,"numRuntimeErrorTestSuites":1,"numTodoTests":1,"numTotalTestSuites":2,
        "numTotalTests":4,"openHandles":[],"startTime":1795400605578,"success":false,"testResults":[{"assertionResults":[
        {"ancestorTitles":[],"duration":3,"fullName":"adds","status":"passed","title":"adds"},
        {"ancestorTitles":["group"],"duration":1,"fullName":"group fails","status":"failed","title":"fails"},
        {"ancestorTitles":["group"],"duration":null,"fullName":"group later","status":"pending","title":"later"},
        {"ancestorTitles":["group"],"duration":null,"fullName":"group todo","status":"todo","title":"todo"}],
        "endTime":1795400606020,"message":"x","name":"/box/a.test.js","startTime":1795400605648,"status":"failed","summary":""},
        {"assertionResults":[],"coverage":{},"endTime":0,"message":"x","name":"/box/b.test.js","status":"failed","summary":""}],
        "wasInterrupted":false}"#;

    /// From vitest 4, without the texts of the failures.
    const VITEST: &str = r#"{"numTotalTestSuites":1,"numPassedTestSuites":1,"numFailedTestSuites":0,"numTotalTests":2,
        "numPassedTests":1,"numFailedTests":0,"numPendingTests":1,"numTodoTests":0,"snapshot":{"added":0},
        "startTime":1795400606892,"success":true,"testResults":[{"assertionResults":[
        {"ancestorTitles":[],"fullName":"adds","status":"passed","title":"adds","duration":2.1,"failureMessages":[],"meta":{}},
        {"ancestorTitles":["group"],"fullName":"group later","status":"skipped","title":"later","failureMessages":[]}],
        "startTime":1795400607083,"endTime":1795400607085.1,"status":"passed","message":"","name":"/box/a.test.js"}]}"#;

    #[test]
    fn the_tests_of_all_files_are_counted() {
        // A file that was not loaded is the second failure.
        let Tally { counts, items, other_failures } = read(JEST.as_bytes()).unwrap();
        assert_eq!(other_failures, ["`b.test.js` failed, and no test of it"]);
        assert_eq!(counts, TestCounts { passed: 1, failed: 2, skipped: 2 });
        let second = ("a.test.js", "group fails", ItemOutcome::Failed);
        assert_eq!((items[1].file.as_str(), items[1].name.as_str(), items[1].outcome), second);
        let counts = read(VITEST.as_bytes()).unwrap().counts;
        assert_eq!(counts, TestCounts { passed: 1, failed: 0, skipped: 1 });
    }

    #[test]
    fn a_report_that_contradicts_itself_counts_nothing() {
        let deep = "[".repeat(100_000);
        for report in [
            String::new(),
            deep,
            "{}".to_owned(),
            VITEST.replace("\"numTotalTests\":2", "\"numTotalTests\":3"),
            VITEST.replace("\"numTotalTests\":2", "\"numTotalTests\":-1"),
            VITEST.replace("\"numTotalTests\":2", "\"numTotalTests\":1e99"),
            VITEST.replace("\"success\":true", "\"success\":false"),
            VITEST.replace("\"skipped\"", "\"fine\""),
            JEST.replace("\"success\":false", "\"success\":true"),
            format!("{VITEST}{VITEST}"),
        ] {
            assert!(read(report.as_bytes()).is_err(), "{report:.200}");
        }
    }
}
