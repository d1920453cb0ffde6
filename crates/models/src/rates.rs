//! The rates that a provider allows, from the headers of its replies.
//!
//! OpenAI and many others send `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, Anthropic
//! `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`. The reset is the time at which the whole limit is
//! available again: the allowance grows back continuously until then.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The rest of a rate, as a reply states it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) limit: f64,
    pub(super) remaining: f64,
    /// The time until the whole limit is available.
    pub(super) reset: Duration,
}

/// The rates of a reply, as far as it states them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests: Option<Rate>,
    pub(super) tokens: Option<Rate>,
}

impl Rates {
    /// Reads the headers, each by its name.
    pub(super) fn read<'h>(header: impl Fn(&str) -> Option<&'h str>, now: Timestamp) -> Self {
        let rate = |what: &str| {
            let part = |part: &str| {
                header(&format!("x-ratelimit-{part}-{what}"))
                    .or_else(|| header(&format!("anthropic-ratelimit-{what}-{part}")))
            };
            let number = |text: &str| text.trim().parse::<f64>().ok().filter(|it| *it >= 0.0);
            let limit = number(part("limit")?)?;
            let remaining = number(part("remaining")?)?;
            let reset = read_reset(part("reset")?, now)?;
            (limit.is_finite() && limit >= 1.0).then_some(Rate { limit, remaining, reset })
        };
        Self { requests: rate("requests"), tokens: rate("tokens") }
    }
}

/// Reads `6m0s`, `120ms`, `1.5` seconds and a time in RFC 3339.
fn read_reset(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(Duration::try_from(at.duration_since(now)).unwrap_or_default());
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().ok()?;
        let unit = &rest[end..];
        let unit_end = unit.find(|it: char| it.is_ascii_digit()).unwrap_or(unit.len());
        seconds += number
            * match &unit[..unit_end] {
                "ms" => 0.001,
                "" | "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = &unit[unit_end..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// The longest reset that is believed: providers count by the minute and by the day. A longer one is a time in another form.
const RESET_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The allowance of a rate, which grows back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    level: f64,
    limit: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    /// Returns the bucket of a rate, less the requests sent since; `None` for a rate whose whole limit is available, and for
    /// one that is not believed. It grows by `per_second_min` at least: a wrong header costs little, and to a request that
    /// comes too early the provider says when it may come.
    pub(super) fn of(
        rate: Rate,
        sent_since: f64,
        per_second_min: f64,
        now: Instant,
    ) -> Option<Self> {
        let Rate { limit, remaining, reset } = rate;
        if reset > RESET_MAX {
            return None;
        }
        let stated = (limit - remaining) / reset.as_secs_f64();
        let level = remaining - sent_since;
        // Those that are under way are counted twice if the provider has counted them.
        let (per_second, level) = if 0.0 < stated && stated < per_second_min {
            (per_second_min, level.max(0.0))
        } else {
            (stated, level)
        };
        let bucket = Self { level, limit, per_second, at: now };
        (per_second.is_finite() && per_second > 0.0).then_some(bucket)
    }

    /// Returns how long a request of this size has to wait. One larger than the limit waits for the whole limit.
    pub(super) fn wait(&mut self, size: f64, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.level = (self.level + passed * self.per_second).min(self.limit);
        let lack = size.min(self.limit) - self.level;
        if lack <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(lack / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Takes a request of this size.
    pub(super) fn take(&mut self, size: f64) {
        self.level -= size.min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(headers: &[(&str, &str)]) -> Rates {
        let header = |name: &str| headers.iter().find(|it| it.0 == name).map(|it| it.1);
        Rates::read(header, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn both_families_of_headers_are_read() {
        let reset = |text: &str| {
            let headers = [
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", text),
            ];
            rates(&headers).requests.map(|it| it.reset.as_millis())
        };
        for (text, expected) in [
            ("1s", Some(1000)),
            ("6m0s", Some(360_000)),
            ("120ms", Some(120)),
            ("2m59.56s", Some(179_560)),
            ("7.5", Some(7500)),
            ("1h2m3s", Some(3_723_000)),
            ("", None),
            ("soon", None),
            ("-1s", None),
            ("1e999s", None),
        ] {
            assert_eq!(reset(text), expected, "{text}");
        }
        let anthropic = rates(&[
            ("anthropic-ratelimit-tokens-limit", "80000"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-tokens-reset", "2026-01-01T00:00:30Z"),
        ]);
        let reset = Duration::from_secs(30);
        let tokens = Some(Rate { limit: 80_000.0, remaining: 0.0, reset });
        assert_eq!(anthropic, Rates { requests: None, tokens });
    }

    #[test]
    fn an_allowance_grows_back() {
        let now = Instant::now();
        let rate = Rate { limit: 60.0, remaining: 1.0, reset: Duration::from_secs(59) };
        let mut bucket = Bucket::of(rate, 0.0, 1.0 / 60.0, now).unwrap();
        assert_eq!(bucket.wait(1.0, now), Duration::ZERO);
        bucket.take(1.0);
        assert_eq!(bucket.wait(1.0, now), Duration::from_secs(1));
        assert_eq!(bucket.wait(9000.0, now), Duration::from_secs(60), "the whole limit");
        assert_eq!(bucket.wait(1.0, now + Duration::from_secs(1)), Duration::ZERO);
        let full = Rate { remaining: 60.0, ..rate };
        assert!(Bucket::of(full, 0.0, 1.0 / 60.0, now).is_none());
        // An allowance of a day, and a time that is none.
        let day = Rate { remaining: 0.0, reset: Duration::from_secs(86_400), ..rate };
        let mut bucket = Bucket::of(day, 40.0, 1.0 / 60.0, now).unwrap();
        assert_eq!(bucket.wait(1.0, now), Duration::from_secs(60));
        let month = Rate { reset: Duration::from_secs(30 * 86_400), ..day };
        assert!(Bucket::of(month, 0.0, 1.0 / 60.0, now).is_none());
    }
}
