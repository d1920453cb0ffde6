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
