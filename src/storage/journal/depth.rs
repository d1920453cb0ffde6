//! Every written entry must be readable: this check is the pair of the reader's.

use std::io;

/// The levels of lists and records at which a reader of JSON gives up.
const UNREADABLE: usize = 128;

/// Checks that JSON which is about to be stored can be read again.
///
/// The limits on values are far below, so that only a mistake of ours, or of a library user who writes entries of
/// their own, is found here. It must be found before it is stored: the run could never be opened again.
pub(in crate::storage) fn check_depth(json: &[u8]) -> io::Result<()> {
    let is_open = |it: &&u8| matches!(it, b'[' | b'{');
    // Most entries have few brackets at all, and need not be looked at more closely.
    if json.iter().filter(is_open).count() < UNREADABLE || depth(json) < UNREADABLE {
        return Ok(());
    }
    let message = "a value is nested so deeply that it could not be read again";
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// How deep lists and records are in each other, in JSON that is well formed.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut max, mut is_string) = (0_usize, 0, false);
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
    fn what_passes_is_what_can_be_read_again() {
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
