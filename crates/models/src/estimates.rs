//! Estimates of the tokens of requests, corrected by the counts of providers.
//!
//! How many characters a token has depends on the model and on the texts that it gets: prose has more than code. The
//! estimate is the least that the last counted requests to the model would give, so it rarely exceeds the count.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::provider::full_name;

/// The requests of each model that count, the last ones.
const COUNTED_MAX: usize = 16;
/// The counted requests from which an estimate follows them.
const COUNTED_MIN: usize = 3;
/// The characters of a request that counts. In a shorter one, the tokens around its texts weigh too much.
const CHARACTERS_MIN: u64 = 1_000;

/// What the providers have counted in this process.
///
/// ```
/// use graphrun_models::TokenEstimates;
///
/// let estimates = TokenEstimates::default();
/// assert_eq!(estimates.tokens("lab/small", 12_000), None);
/// for tokens in [3_000, 4_000, 3_100] {
///     estimates.note("lab/small", 12_000, tokens);
/// }
/// assert_eq!(estimates.tokens("lab/small", 6_000), Some(1_500));
/// assert_eq!(estimates.tokens("lab/large", 6_000), None);
/// ```
#[derive(Debug, Default)]
pub struct TokenEstimates(Mutex<BTreeMap<String, VecDeque<f64>>>);

impl TokenEstimates {
    /// Notes the tokens that a provider has counted for a request with this many characters.
    #[expect(clippy::cast_precision_loss, reason = "no request is as long as 2^52 characters")]
    pub fn note(&self, model: &str, characters: u64, tokens: u64) {
        if characters < CHARACTERS_MIN || tokens == 0 {
            return;
        }
        let mut models = self.models();
        let counted = models.entry(full_name(model).into_owned()).or_default();
        if counted.len() == COUNTED_MAX {
            counted.pop_front();
        }
        counted.push_back(characters as f64 / tokens as f64);
    }

    /// Returns the fewest tokens that a request with this many characters is likely to have; `None` if too few requests
    /// to the model are counted.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an estimate, which is not negative and far below 2^52"
    )]
    pub fn tokens(&self, model: &str, characters: u64) -> Option<u64> {
        let models = self.models();
        let counted = models.get(full_name(model).as_ref()).filter(|it| it.len() >= COUNTED_MIN)?;
        let most = counted.iter().copied().fold(0.0, f64::max);
        Some((characters as f64 / most) as u64)
    }

    /// A poisoned lock is no problem: no code panics while it holds the lock, and each change is complete.
    fn models(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<f64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
