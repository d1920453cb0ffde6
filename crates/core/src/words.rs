//! Words in messages.

use std::{fmt, time::Duration};

/// Returns names in backticks, with commas between them.
///
/// ```
/// use graphrun_core::words::quoted_list;
///
/// assert_eq!(quoted_list(["draft", "judge"]), "`draft`, `judge`");
/// ```
pub fn quoted_list(names: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let names: Vec<String> = names.into_iter().map(|it| format!("`{it}`")).collect();
    names.join(", ")
}

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

/// Returns a duration as a workflow writes it: in milliseconds below a minute, else in seconds.
///
/// ```
/// use std::time::Duration;
///
/// use graphrun_core::words::duration;
///
/// let times = [3_612_043, 1_500, 43, 0].map(|ms| duration(Duration::from_millis(ms)));
/// assert_eq!(times, ["1h 12s", "1.5s", "43ms", "0s"]);
/// ```
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        let ms = Duration::from_millis(u64::from(duration.subsec_millis()));
        let brief = Duration::from_secs(seconds) + ms;
        return match brief {
            Duration::ZERO if duration.is_zero() => "0s".to_owned(),
            Duration::ZERO => "less than 1ms".to_owned(),
            brief => format!("{brief:?}"),
        };
    }
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, unit)| format!("{number}{unit}")).collect();
    parts.join(" ")
}

/// Returns an amount of US dollars with two decimals, or with the first two digits of a smaller one.
///
/// ```
/// use graphrun_core::words::usd;
///
/// assert_eq!([usd(0.0), usd(0.05), usd(12.5), usd(0.000_52)], ["0.00", "0.05", "12.50", "0.00052"]);
/// ```
pub fn usd(amount: f64) -> String {
    let is_precise = |decimals: &i32| amount * 10_f64.powi(*decimals) >= 9.5;
    let decimals = (3..12).find(is_precise).filter(|_| amount < 0.01).unwrap_or(2);
    let shown = format!("{amount:.*}", usize::try_from(decimals).unwrap_or(2));
    match shown.strip_suffix('0') {
        Some(shorter) if decimals > 2 => shorter.to_owned(),
        _ => shown,
    }
}
