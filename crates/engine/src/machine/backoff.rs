//! The waits of a task: before its next attempt, or for a time.

use std::time::Duration;

use graphrun_core::graph::Backoff;
use jiff::{SignedDuration, Timestamp};

/// A wait of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// When it is due to end.
    pub wake: Timestamp,
    /// Its duration in milliseconds, which no change of the clock extends.
    pub duration_ms: u64,
}

impl Wait {
    /// Returns a wait that begins at this moment. Its end is a representable one.
    pub(super) fn from(moment: Timestamp, duration_ms: u64) -> Self {
        let duration = SignedDuration::from_millis(i64::try_from(duration_ms).unwrap_or(i64::MAX));
        let wake = moment.checked_add(duration).unwrap_or(Timestamp::MAX);
        Self { wake, duration_ms }
    }

    /// Returns the wait from this moment until a time.
    pub(super) fn until(wake: Timestamp, moment: Timestamp) -> Self {
        let duration = Duration::try_from(wake.duration_since(moment)).unwrap_or_default();
        // Rounded up: a task that wakes too early would wait again.
        let duration_ms = duration.as_nanos().div_ceil(1_000_000);
        Self { wake, duration_ms: u64::try_from(duration_ms).unwrap_or(u64::MAX) }
    }

    /// Returns the rest of the wait. A clock that was set back makes it no longer.
    pub(crate) fn left(&self, now: Timestamp) -> Duration {
        let left = Duration::try_from(self.wake.duration_since(now)).unwrap_or_default();
        left.min(Duration::from_millis(self.duration_ms))
    }
}

/// Returns the wait after a failed attempt, in milliseconds: the one that the provider asks for, and a random one above
/// it, so that many runs do not retry at the same moment. A hash of `seed` provides the randomness, so that the rules
/// stay pure.
pub(super) fn wait_ms(
    backoff: &Backoff,
    seed: &str,
    attempt: u32,
    retry_after_ms: Option<u64>,
) -> u64 {
    let doubled = backoff.initial.saturating_mul(1 << (attempt - 1).min(16)).min(backoff.max);
    let whole = u64::try_from(doubled.as_millis()).unwrap_or(u64::MAX);
    let hash = blake3::hash(seed.as_bytes());
    let drawn = hash.as_bytes().iter().take(2).fold(0, |sum, &it| sum << 8 | u64::from(it));
    let jitter = whole.saturating_mul(drawn) / u64::from(u16::MAX);
    retry_after_ms.unwrap_or(0).saturating_add(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_makes_no_wait_longer() {
        let began = Timestamp::UNIX_EPOCH;
        let hour = Duration::from_hours(1);
        let wait = Wait::from(began, 60_000);
        assert_eq!(wait.left(began + Duration::from_secs(20)), Duration::from_secs(40));
        assert_eq!(wait.left(began - hour), Duration::from_mins(1));
        assert_eq!(wait.left(began + hour), Duration::ZERO);
    }

    /// One seed draws the same share of each wait, so only the growth is left.
    #[test]
    fn the_wait_doubles_with_each_attempt_up_to_its_maximum() {
        let initial = Duration::from_mins(1);
        let max = Duration::from_mins(6);
        let backoff = Backoff { initial, max, ..Backoff::default() };
        let waits = [1, 2, 3, 4, 5].map(|attempt| wait_ms(&backoff, "run", attempt, None));
        let first = waits[0];
        assert!(first > 0 && first <= 60_000, "{waits:?}");
        for (wait, factor) in waits.into_iter().zip([1, 2, 4, 6, 6]) {
            // A millisecond is lost to rounding in each minute.
            assert!(wait.abs_diff(first * factor) <= factor, "{waits:?}");
        }
    }
}
