//! The lease of a run, as SQL databases store it.

use std::time::Duration;

use graphrun_core::id::RunId;
use graphrun_engine::checkpoint::{CheckpointError, LeaseInfo, LeaseRequest, Owner};
use jiff::Timestamp;

use crate::journal::{
    checksum::{Checksum, of_lease},
    damaged,
};

/// A lease ends after a century at the latest: the year 9999 is the last that can be parsed again.
const TTL_MAX_MS: i64 = 100 * 365 * 86_400_000;

/// The last lease of a run; it may have expired.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// The fencing token; zero if there was no lease.
    pub(crate) fence: u64,
    /// The stored owner; none if the lease was released.
    pub(crate) json: Option<String>,
    owner: Option<Owner>,
    until: Timestamp,
}

/// The columns of a lease.
pub(crate) struct LeaseColumns<'a> {
    pub(crate) fence: u64,
    pub(crate) owner: Option<String>,
    pub(crate) until_ms: i64,
    pub(crate) checksum: &'a [u8],
}

impl Lease {
    /// Reads the lease from its columns.
    pub(crate) fn read(run: &RunId, columns: LeaseColumns<'_>) -> Result<Self, CheckpointError> {
        let LeaseColumns { fence, owner: json, until_ms, checksum } = columns;
        let run = run.as_str();
        if of_lease(run, fence, json.as_deref(), until_ms) != checksum {
            return Err(damaged(run, "the lease", "its checksum does not match"));
        }
        let owner = json.as_ref().map(|it| serde_json::from_str(it)).transpose();
        let owner = owner.map_err(|error| damaged(run, "the lease", error))?;
        let until = Timestamp::from_millisecond(until_ms);
        let until = until.map_err(|error| damaged(run, "the lease", error))?;
        Ok(Self { fence, json, owner, until })
    }

    /// Returns the next lease for this request; `last` is the last fencing token.
    pub(crate) fn next(last: u64, request: &LeaseRequest, now_ms: i64) -> serde_json::Result<Self> {
        let json = serde_json::to_string(&request.owner)?;
        let json = Some(json);
        let owner = Some(request.owner.clone());
        Ok(Self { fence: last + 1, json, owner, until: end_of(now_ms, request.ttl) })
    }

    /// Returns whether it was not released; it may have expired.
    pub(crate) fn is_held(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns the owner; the lease may have expired.
    pub(crate) fn info(&self) -> Option<LeaseInfo> {
        let fence = self.fence;
        let until = self.until;
        self.owner.clone().map(|owner| LeaseInfo { owner, fence, until })
    }

    /// Returns the owner, if the lease has not expired.
    pub(crate) fn current_info(&self, now_ms: i64) -> Option<LeaseInfo> {
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::MAX);
        self.info().filter(|it| it.is_current(now))
    }

    /// Fails if the run has an owner, unless the owner has the lease with the number `replaces_fence`.
    pub(crate) fn require_free(
        &self,
        run: &RunId,
        now_ms: i64,
        replaces_fence: Option<u64>,
    ) -> Result<(), CheckpointError> {
        match self.current_info(now_ms).filter(|it| Some(it.fence) != replaces_fence) {
            Some(lease) => Err(CheckpointError::Owned { run: run.clone(), lease: Box::new(lease) }),
            None => Ok(()),
        }
    }

    /// Returns the same lease, extended from now.
    pub(crate) fn renewed(self, now_ms: i64, ttl: Duration) -> Self {
        Self { until: end_of(now_ms, ttl), ..self }
    }

    /// Returns the same lease, released.
    pub(crate) fn released(self) -> Self {
        Self { json: None, owner: None, ..self }
    }

    pub(crate) fn until_ms(&self) -> i64 {
        self.until.as_millisecond()
    }

    pub(crate) fn checksum(&self, run: &RunId) -> Checksum {
        of_lease(run.as_str(), self.fence, self.json.as_deref(), self.until_ms())
    }
}

fn end_of(now_ms: i64, ttl: Duration) -> Timestamp {
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(TTL_MAX_MS).min(TTL_MAX_MS);
    Timestamp::from_millisecond(now_ms.saturating_add(ttl)).unwrap_or(Timestamp::MAX)
}
