//! The output of `cargo test`, reduced to counts.

use super::{
    report_error::ReportError,
    test_item::{ItemOutcome, Tally, TestCounts, TestItem},
};

/// Sums the results of all test programs.
///
/// # Errors
///
/// Fails if there is no result, or if a started program has no result or another number of tests
/// than it announced.
pub(super) fn read(report: &[u8]) -> Result<Tally, ReportError> {
    let text = std::str::from_utf8(report)?;
    let no_result = || ReportError::form("a test program has no result");
    let mut total = TestCounts::default();
    let mut targets = 0_u32;
    let mut results = 0_u32;
    let mut announced = None;
    let mut program = "";
    let mut items = Vec::new();
    for line in text.lines() {
        if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") {
            targets += 1;
            program = line.trim_start().split(" (").next().unwrap_or_default();
        } else if let Some(number) = announced_tests(line) {
            if announced.replace(number).is_some() {
                return Err(no_result());
            }
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let wrong = || ReportError::form(format!("the result `{result}` contradicts itself"));
            let (counts, number) = counts_of(result).ok_or_else(wrong)?;
            if announced.take() != Some(number) {
                let detail = "a result has another number of tests than its program announced";
                return Err(ReportError::form(detail));
            }
            results += 1;
            total = total.plus(counts).ok_or_else(wrong)?;
        } else if let Some(item) = item_of(line, program) {
            items.push(item);
        }
    }
    // Cargo prints the name of each program before it starts, but not with `--quiet`.
    if results == 0 && targets == 0 {
        return Err(ReportError::form("it has no result of a test program"));
    }
    if announced.is_some() || targets > results {
        return Err(no_result());
    }
    Ok(Tally { counts: total, items, ..Tally::default() })
}

/// Returns the test of `test tests::adds ... ok`. A program that prints between the name and the end hides it. A
/// documentation test has its line in its name, which changes with each line before it.
fn item_of(line: &str, program: &str) -> Option<TestItem> {
    let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let outcome = match end.split([' ', ',']).next()? {
        "ok" => ItemOutcome::Passed,
        "FAILED" => ItemOutcome::Failed,
        "ignored" => ItemOutcome::Skipped,
        _ => return None,
    };
    let name = name.split(" (line ").next().unwrap_or(name);
    Some(TestItem { file: String::new(), name: format!("{program} {name}"), outcome })
}

/// Returns the number in `running 3 tests`.
fn announced_tests(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("running ")?;
    rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test"))?.parse().ok()
}

/// Returns the counts of `ok. 1 passed; 0 failed; …`, and the number of tests that were announced.
fn counts_of(result: &str) -> Option<(TestCounts, u32)> {
    let (status, numbers) = result.split_once(". ")?;
    let mut numbers = numbers.split("; ");
    let mut next = |name: &str| -> Option<u32> {
        numbers.next()?.strip_suffix(name)?.strip_suffix(' ')?.parse().ok()
    };
    let passed = next("passed")?;
    let failed = next("failed")?;
    let (ignored, measured, filtered) =
        (next("ignored")?, next("measured")?, next("filtered out")?);
    let is_consistent = match status {
        "ok" => failed == 0,
        "FAILED" => failed > 0,
        _ => false,
    };
    let announced = passed.checked_add(failed)?.checked_add(ignored)?.checked_add(measured)?;
    let skipped = ignored.checked_add(filtered)?;
    is_consistent.then_some((TestCounts { passed, failed, skipped }, announced))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "   Compiling ct v0.1.0 (/box)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 1.14s
     Running unittests src/lib.rs (target/debug/deps/ct-c4066ebb79ee0019)

running 2 tests
test tests::adds ... ok
test tests::later ... ignored

test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/it.rs (target/debug/deps/it-eba39656af3a16ca)

running 1 test
test fails ... FAILED

failures:

---- fails stdout ----

thread 'fails' (31096) panicked at tests/it.rs:1:22:
assertion `left == right` failed
  left: 3
 right: 4


failures:
    fails

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.53s

error: test failed, to rerun pass `--test it`
   Doc-tests ct

running 1 test
test src/lib.rs - (line 1) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.23s
";

    #[test]
    fn the_results_of_all_programs_are_summed() {
        let Tally { counts, items, .. } = read(OUTPUT.as_bytes()).unwrap();
        assert_eq!(counts, TestCounts { passed: 2, failed: 1, skipped: 4 });
        let names: Vec<&str> = items.iter().map(|it| it.name.as_str()).collect();
        let unit = "Running unittests src/lib.rs tests::";
        let expected = [
            &format!("{unit}adds"),
            &format!("{unit}later"),
            "Running tests/it.rs fails",
            "Doc-tests ct src/lib.rs -",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_program_without_its_result_counts_nothing() {
        let without = |line: &str| OUTPUT.replacen(line, "", 1);
        let of = |result: &str| format!("running 1 test\ntest result: {result}; finished in 0s\n");
        let ok = "ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert!(read(of(ok).as_bytes()).is_ok());
        let cut = OUTPUT.rfind("test result").unwrap_or_default();
        for report in [
            String::new(),
            OUTPUT[..cut].to_owned(),
            without("running 1 test\n"),
            without("test result: FAILED"),
            format!("{OUTPUT}     Running tests/other.rs (target/debug/deps/other)\n"),
            of("ok. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("FAILED. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("ok. 99999999999 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("ok. 4294967295 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("ok. -1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"),
            of("ok. 1 passed"),
        ] {
            assert!(read(report.as_bytes()).is_err(), "{report}");
        }
        assert!(read(b"\xff").is_err());
    }
}
