//! Removes parts of a text that vary between two otherwise identical runs.
//!
//! Recorded requests contain the output of tests, with durations, temporary paths, addresses,
//! timestamps and random ids. Both sides of a comparison are normalised, so the rules need not be
//! exact. They keep values that a person may have meant (a limit of 30 seconds, a date, the path
//! `/box`).

use std::sync::LazyLock;

use graphrun_guard::redact::redact;
use regex::Regex;

/// One kind of varying text.
struct Rule {
    pattern: Regex,
    replacement: &'static str,
}

/// Returns the text with placeholders for what varies, without keys, and with `\n` line ends.
///
/// | what | becomes |
/// |---|---|
/// | `2025-01-31T12:00:00.5Z` and the like | `<time>` |
/// | UUIDs and ULIDs | `<id>` |
/// | `0x7f3a2c1b` (six digits and more) | `<address>` |
/// | `/tmp/pytest-of-me/pytest-3`, `/tmp/x81`, `/var/folders/…` | `<tmp>`, the rest of the path stays |
/// | `"duration_seconds": 0.12`, `elapsed=3`, `duration_ms 9` | the number becomes `<duration>` |
/// | `0.03s`, `1.2 seconds`, `in 3s`, `(0:01:05)` | `<duration>` |
///
/// ```
/// use graphrun_models::normalise;
///
/// assert_eq!(normalise("20 passed in 0.31s"), normalise("20 passed in 12.7 seconds"));
/// assert_ne!(normalise("20 passed"), normalise("21 passed"));
/// ```
pub fn normalise(text: &str) -> String {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(rules);
    let mut text = redact(&text.replace("\r\n", "\n")).into_owned();
    for rule in &*RULES {
        // Most texts match few rules, so unchanged texts are not copied.
        if let std::borrow::Cow::Owned(replaced) = rule.pattern.replace_all(&text, rule.replacement)
        {
            text = replaced;
        }
    }
    text
}

#[rustfmt::skip]
fn rules() -> Vec<Rule> {
    // The order matters: a timestamp ends in something like a duration, and a path may contain an
    // id.
    [
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<id>"),
        (r"\b0x[0-9a-fA-F]{6,}\b", "<address>"),
        (r"(?:/private)?/var/folders/[^/\s]+/[^/\s]+/T/[^/\s\x22'`:,;)\]}]+", "<tmp>"),
        (r"(?:/var)?/tmp/pytest-of-[^/\s]+/pytest-\d+", "<tmp>"),
        (r"(?:/var)?/tmp/[^/\s\x22'`:,;)\]}\\]+", "<tmp>"),
        (r#"(?i)(\bduration_ms |\w*(?:duration|elapsed)\w*\\?"?\s*[:=]\s*)\d+(?:\.\d+)?(?:e-?\d+)?"#, "${1}<duration>"),
        (r"(?i)\b(in|took) \d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|secs?|seconds?|m|min|minutes?)\b", "${1} <duration>"),
        (r"(?i)\b\d+\.\d+\s?(?:ns|µs|us|ms|s|secs?|seconds?|minutes?)\b", "<duration>"),
        (r" \(\d+:\d\d:\d\d\)", ""),
    ]
    .into_iter()
    .map(|(pattern, replacement)| Rule {
        pattern: Regex::new(pattern).expect("the patterns are constants, compiled by the tests"),
        replacement,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_parts_are_normalised() {
        let cases = [
            ("3 failed, 21 passed in 0.03s", "3 failed, 21 passed in <duration>"),
            ("1 passed in 65.32s (0:01:05)", "1 passed in <duration>"),
            ("took 3 seconds", "took <duration>"),
            ("slowest: 1.2 seconds call", "slowest: <duration> call"),
            (
                r#"{"duration_seconds": 0.12, "x": 1}"#,
                r#"{"duration_seconds": <duration>, "x": 1}"#,
            ),
            ("ℹ duration_ms 90.204061", "ℹ duration_ms <duration>"),
            (r#"{\"duration_seconds\": 7}"#, r#"{\"duration_seconds\": <duration>}"#),
            ("elapsed=1e-5", "elapsed=<duration>"),
            ("/tmp/x8f2/tests/a.py:3", "<tmp>/tests/a.py:3"),
            ("'/tmp/pytest-of-root/pytest-12/test_a0/db'", "'<tmp>/test_a0/db'"),
            ("/private/var/folders/zz/abc/T/q1/f.txt", "<tmp>/f.txt"),
            ("<Store object at 0x7f3a2c1b9d10>", "<Store object at <address>>"),
            ("at 2025-01-31T12:00:00.123Z:", "at <time>:"),
            ("at 2025-01-31 12:00:00,123", "at <time>"),
            ("id 550e8400-e29b-41d4-a716-446655440000", "id <id>"),
            ("run 01ARZ3NDEKTSV4RRFFQ69G5FAV", "run <id>"),
            ("a\r\nb", "a\nb"),
            ("key sk-abcdefghijklmnop0123", "key [redacted]"),
        ];
        for (text, expected) in cases {
            assert_eq!(normalise(text), expected);
            assert_eq!(normalise(expected), expected, "normalising twice changes nothing");
        }
    }

    #[test]
    fn intended_values_are_kept() {
        let kept = [
            "answer within 30 seconds",
            "timeout_seconds: 60",
            "due on 2025-01-31",
            "/box/app/main.py",
            "mask 0xFF00",
            "version 1.2.3",
            "20 of 24 cases",
            "price 1.5",
        ];
        for text in kept {
            assert_eq!(normalise(text), text);
        }
    }
}
