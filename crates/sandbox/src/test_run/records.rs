//! The records of the runner inside. They are accepted only if each record proves the secret.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::settings::Proof;

/// One record of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The runner is ready; no code of the project has run.
    Start(Proof),
    /// A test that a file declares, found without running it.
    Expected { test: String },
    /// A test that a file declares in a block, which need not run: that of an `if`, a `for`, a `try` or a `with`.
    Conditional { test: String },
    /// An item that pytest collected, and the test it belongs to.
    Collected { item: String, test: String },
    /// A file without items.
    Uncollected { path: String, is_skipped: bool },
    /// The body of an item returned; `test` is empty if only its call did.
    Returned { item: String, test: String },
    /// The body of an item ended with an exception.
    Raised { item: String },
    /// The report of pytest about a phase of an item.
    Phase { item: String, phase: String, kind: Kind },
    /// A part of the runner or of a test file was replaced.
    Tampered { what: String },
    /// All checks are done; the process is about to exit with this code.
    End { code: i32 },
}

/// How a phase ended, as pytest reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Passed,
    Failed,
    Skipped,
    ExpectedToFail,
}

/// Reads the records; each proves itself and all before it. `None` if one does not, or has another
/// form.
///
/// A truncated last record is left out: the process ended while it was written.
pub(super) fn read(bytes: &[u8], secret: &[u8]) -> Option<Vec<Record>> {
    let mut last = Vec::new();
    let mut records = Vec::new();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n")?;
        let space = line.iter().position(|byte| *byte == b' ')?;
        let code = &line[..space];
        let text = &line[space + 1..];
        let mut expected = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        expected.update(&last);
        expected.update(text);
        expected.verify_slice(&bytes_of_hex(code)?).ok()?;
        records.push(Record::parse(std::str::from_utf8(text).ok()?)?);
        last = code.to_vec();
    }
    Some(records)
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('\t').collect();
        let owned = |text: &str| text.to_owned();
        Some(match fields.as_slice() {
            ["start", proof] => Self::Start(Proof::parse(proof)?),
            ["expected", test] => Self::Expected { test: owned(test) },
            ["conditional", test] => Self::Conditional { test: owned(test) },
            ["collected", item, test] => Self::Collected { item: owned(item), test: owned(test) },
            ["uncollected", path, kind] => {
                Self::Uncollected { path: owned(path), is_skipped: *kind == "skipped" }
            }
            ["returned", item, test] => Self::Returned { item: owned(item), test: owned(test) },
            ["raised", item, _] => Self::Raised { item: owned(item) },
            ["phase", item, phase, kind] => {
                Self::Phase { item: owned(item), phase: owned(phase), kind: Kind::parse(kind)? }
            }
            ["tampered", what] => Self::Tampered { what: owned(what) },
            ["end", code] => Self::End { code: code.parse().ok()? },
            _ => return None,
        })
    }
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "passed" => Self::Passed,
            "failed" => Self::Failed,
            "skipped" => Self::Skipped,
            "xfailed" => Self::ExpectedToFail,
            _ => return None,
        })
    }
}

fn bytes_of_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Write as _;

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    /// Records as the runner writes them.
    fn written(secret: &[u8], texts: &[&str]) -> Vec<Vec<u8>> {
        let mut last = String::new();
        let line = |text: &&str| {
            let mut code = Hmac::<Sha256>::new_from_slice(secret).unwrap();
            code.update(last.as_bytes());
            code.update(text.as_bytes());
            let bytes = code.finalize().into_bytes();
            last = bytes.iter().fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            });
            format!("{last} {text}\n").into_bytes()
        };
        texts.iter().map(line).collect()
    }

    #[test]
    fn records_of_the_runner_are_read_in_order() {
        let lines =
            written(SECRET, &["start\tin_process", "expected\t/box/test_a.py::test_a", "end\t0"]);
        let records = [
            Record::Start(Proof::InProcess),
            Record::Expected { test: "/box/test_a.py::test_a".to_owned() },
            Record::End { code: 0 },
        ];
        assert_eq!(read(&lines.concat(), SECRET).unwrap(), records);
        assert_eq!(read(b"", SECRET), Some(Vec::new()));
    }

    #[test]
    fn changed_records_are_refused() {
        let texts = ["start\tin_process", "expected\tx", "end\t0"];
        let lines = written(SECRET, &texts);
        let dropped = [&lines[0][..], &lines[2]].concat();
        let moved = [&lines[1][..], &lines[0], &lines[2]].concat();
        let repeated = [&lines[0][..], &lines[0]].concat();
        let changed =
            lines.concat().iter().map(|it| if *it == b'x' { b'y' } else { *it }).collect();
        let foreign = written(b"another", &texts).concat();
        let added = [&lines.concat()[..], b"end\t0\n"].concat();
        let unknown = written(SECRET, &["passed\tall"]).concat();
        for bytes in [dropped, moved, repeated, changed, foreign, added, unknown] {
            assert_eq!(read(&bytes, SECRET), None, "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_record_that_was_cut_short_is_left_out() {
        let lines = written(SECRET, &["start\tin_process", "end\t0"]).concat();
        let records = read(&lines[..lines.len() - 1], SECRET);
        assert_eq!(records, Some(vec![Record::Start(Proof::InProcess)]));
    }
}
