//! Runs whose process is gone.

use crate::{checkpoint::RunSummary, event::Status};

/// Why a run that is `running` makes no progress.
pub(crate) const PROCESS_GONE: &str = "its process is gone; resume it";

/// Returns why a run makes no progress, if its process is gone.
pub(crate) fn process_gone(summary: &RunSummary) -> Option<&'static str> {
    let is_owned = summary.lease.as_ref().is_some_and(|it| !it.owner.is_dead());
    (summary.status == Status::Running && !is_owned).then_some(PROCESS_GONE)
}
