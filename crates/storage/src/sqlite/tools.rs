//! What transactions use besides the connection.

use super::head_cache::HeadCache;
use crate::{journal::Codec, open_steps::OpenSteps};

/// The tools of transactions, besides the connection.
pub(super) struct Tools {
    pub(super) codec: Codec,
    pub(super) heads: HeadCache,
    pub(super) open_steps: OpenSteps,
}
