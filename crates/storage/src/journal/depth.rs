//! Every stored entry must be readable: this check before writing mirrors the limit of the reader.

use std::io;

/// The nesting depth at which a JSON parser fails.
const UNREADABLE: usize = 128;

/// Checks that JSON to be stored can be parsed again.
///
/// The limits on values are far below. So this only finds a bug of ours, or of a library user who
/// writes own entries. It must be found before storing: the run could never be opened again.
pub(crate) fn check_depth(json: &[u8]) -> io::Result<()> {
    let is_open = |it: &&u8| matches!(it, b'[' | b'{');
    // Most entries have few brackets in total and need no closer check.
    if json.iter().filter(is_open).count() < UNREADABLE || depth(json) < UNREADABLE {
        return Ok(());
    }
    let message = "a value is nested too deeply to be read again";
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Returns the nesting depth of well-formed JSON.
fn depth(json: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut max = 0;
    let mut is_string = false;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => {
                depth += 1;
                max = max.max(depth);
            }
            b']' | b'}' if !is_string => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    max
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn accepted_values_can_be_read_again() {
        for depth in [1, 64, 126, 127, 128, 129, 1_000] {
            for (open, close) in [("[", "]"), ("{\"[\\\"[\":", "}")] {
                let json = format!("{}0{}", open.repeat(depth), close.repeat(depth));
                let is_readable = serde_json::from_str::<Value>(&json).is_ok();
                assert_eq!(check_depth(json.as_bytes()).is_ok(), is_readable, "{depth} of {open}");
            }
        }
        let wide = format!("[{}0]", "[[]],{\"a\":\"[[[{\"},".repeat(500));
        assert!(check_depth(wide.as_bytes()).is_ok());
    }
}
