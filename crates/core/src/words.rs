//! Words in messages.

/// Returns a number with its noun.
///
/// ```
/// use graphrun_core::words::count;
///
/// assert_eq!([count(1, "visit"), count(2, "visit")], ["1 visit", "2 visits"]);
/// ```
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
