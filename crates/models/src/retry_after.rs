//! The wait that a provider asks for, in the forms in use.

use std::time::Duration;

use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use serde_json::Value;

/// The longest accepted wait: quotas are counted by the day. One misconfigured proxy asks for 27 hours.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads `retry-after-ms: 1500`, `retry-after: 2`, `retry-after: 1.5` and
/// `retry-after: Wed, 21 Oct 2015 07:28:00 GMT` (RFC 9110, section 10.2.3), clamped to a day. The two older forms of dates are
/// read, too, and seconds with a unit or in quotation marks, as some gateways write them.
///
/// The milliseconds win where both headers are present, because they are the finer of the two.
pub fn read_retry_after(
    seconds_or_date: Option<&str>,
    milliseconds: Option<&str>,
    now: Timestamp,
) -> Option<Duration> {
    let milliseconds = milliseconds.and_then(number).map(|ms| ms / 1000.0);
    let seconds = milliseconds.or_else(|| {
        let text = seconds_or_date?.trim().trim_matches('"');
        let seconds = number(text).or_else(|| number(text.strip_suffix('s')?));
        seconds.or_else(|| seconds_until(text, now))
    })?;
    Some(clamp(seconds))
}

/// Reads the `retryDelay` of a `google.rpc.RetryInfo`: `"34.07s"`, or its seconds as a number or text in an object.
pub(super) fn read_retry_delay(delay: &Value) -> Option<Duration> {
    let seconds = match delay {
        Value::String(text) => number(text.trim().strip_suffix('s')?)?,
        Value::Object(parts) => {
            let seconds = parts.get("seconds")?;
            seconds.as_f64().or_else(|| number(seconds.as_str()?))?
        }
        _ => return None,
    };
    Some(clamp(seconds))
}

fn clamp(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

fn seconds_until(date: &str, now: Timestamp) -> Option<f64> {
    // RFC 850 and asctime are the older forms.
    let older = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let in_utc = |form: &&str| strtime::parse(form, date).ok()?.to_datetime().ok();
    let then = jiff::fmt::rfc2822::parse(date).map(|it| it.timestamp()).ok();
    let then = then.or_else(|| {
        let date = older.iter().find_map(in_utc)?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    Some(then.duration_since(now).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_forms_are_read_and_clamped() {
        let now: Timestamp = "2015-10-21T07:27:30Z".parse().unwrap();
        let cases = [
            (Some("2"), None, Some(2000)),
            (Some("1.5"), None, Some(1500)),
            (None, Some("250"), Some(250)),
            (Some("9"), Some("250"), Some(250)),
            (Some("Wed, 21 Oct 2015 07:28:00 GMT"), None, Some(30_000)),
            (Some("Wed, 21 Oct 2015 07:00:00 GMT"), None, Some(0)),
            (Some("Wednesday, 21-Oct-15 07:28:00 GMT"), None, Some(30_000)),
            (Some("Wed Oct 21 07:28:00 2015"), None, Some(30_000)),
            (Some("Thu Nov  5 07:28:00 2015"), None, Some(86_400_000)),
            (Some("2s"), None, Some(2000)),
            (Some("\"2\""), None, Some(2000)),
            (Some("s"), None, None),
            (Some("99999"), None, Some(86_400_000)),
            (Some("1e300"), None, Some(86_400_000)),
            (Some("-5"), None, Some(0)),
            (Some("NaN"), None, None),
            (Some("soon"), None, None),
            (Some(""), Some("x"), None),
            (None, None, None),
        ];
        for (seconds, milliseconds, expected) in cases {
            let read = read_retry_after(seconds, milliseconds, now);
            assert_eq!(
                read,
                expected.map(Duration::from_millis),
                "retry-after {seconds:?}, retry-after-ms {milliseconds:?}"
            );
        }
    }

    #[test]
    fn the_delay_of_google_is_read() {
        let cases = [
            (json!("34s"), Some(34_000)),
            (json!("0.5s"), Some(500)),
            (json!({"seconds": "7"}), Some(7000)),
            (json!({"seconds": 7, "nanos": 5}), Some(7000)),
            (json!("soon"), None),
            (json!(null), None),
        ];
        for (delay, expected) in cases {
            assert_eq!(read_retry_delay(&delay), expected.map(Duration::from_millis), "{delay}");
        }
    }
}
