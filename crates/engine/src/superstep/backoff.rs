//! The wait before the next attempt at a task.

use graphrun_core::graph::Backoff;
use jiff::{SignedDuration, Timestamp};

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

/// Returns the later moment, or the last representable one.
pub(super) fn after(moment: Timestamp, ms: u64) -> Timestamp {
    let wait = SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    moment.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One seed draws the same share of each wait, so only the growth is left.
    #[test]
    fn the_wait_doubles_with_each_attempt_up_to_its_maximum() {
        let (initial, max) = (Duration::from_mins(1), Duration::from_mins(6));
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
