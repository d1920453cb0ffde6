//! Parses durations, amounts and counts of the command line and the environment.

use std::{str::FromStr, time::Duration};

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Parses a positive duration. A day has 24 hours here.
///
/// # Errors
///
/// The error describes the expected form.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<SignedDuration>().or_else(|_| {
        let span: Span = text.parse()?;
        span.to_duration(SpanRelativeTo::days_are_24_hours())
    });
    match duration.ok().and_then(|it| Duration::try_from(it).ok()) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("expected a time above zero, as in `90s`, `1h 30m` or `30d`".to_owned()),
    }
}

/// Parses a positive amount of US dollars.
///
/// # Errors
///
/// The error describes the expected form.
pub(crate) fn parse_dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd > 0.0 => Ok(usd),
        _ => Err("expected an amount above zero, as in `2.50`".to_owned()),
    }
}

/// Parses a positive whole number, which may have groups as in a workflow: `200_000`.
///
/// # Errors
///
/// The error describes the expected form.
pub(crate) fn parse_count<T: FromStr + Default + PartialOrd>(text: &str) -> Result<T, String> {
    let is_grouped = text.starts_with(|it: char| it.is_ascii_digit()) && !text.ends_with('_');
    let number = if is_grouped { text.replace('_', "").parse().ok() } else { None };
    number
        .filter(|it| *it > T::default())
        .ok_or_else(|| "expected a whole number above zero, as in `200000`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_above_zero_and_days_have_24_hours() {
        for (text, seconds) in [
            ("90s", 90),
            ("1h 30m", 5400),
            ("1.5h", 5400),
            ("PT5M", 300),
            ("30d", 30 * 86_400),
            ("30 days", 30 * 86_400),
            ("1d12h", 36 * 3600),
            ("2w", 14 * 86_400),
            ("P1D", 86_400),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "5", "0", "-1m", "0s", "-2d", "d", "old", "1y", "1mo", "99999999999w"] {
            let error = parse_duration(wrong).unwrap_err();
            assert!(error.starts_with("expected a time above zero"), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn amounts_are_above_zero() {
        assert_eq!(parse_dollars("2.50"), Ok(2.5));
        for wrong in ["", "0", "-1", "NaN", "inf", "five"] {
            assert!(parse_dollars(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn counts_are_above_zero_and_may_be_grouped() {
        assert_eq!((parse_count("7"), parse_count::<u64>("200_000")), (Ok(7_u64), Ok(200_000)));
        for wrong in ["", "0", "-1", "1e3", "_1", "1_", "+1", "99999999999999999999", "many"] {
            assert!(parse_count::<u64>(wrong).is_err(), "{wrong:?}");
        }
    }
}
