//! Single flight: of several tasks that want the same result at the same time, one computes it.
//!
//! The first task has the flight; the others wait for it to land. A flight that is dropped without a result (its task
//! failed, asked, was aborted, or has a result that cannot be shared) wakes all waiting tasks, and the first of them to
//! come begins the next flight.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use graphrun_core::graph::NodeContext;
use graphrun_engine::results::{CachedResult, ResultKey};
use tokio::{sync::watch, time::timeout};

/// How often a waiting task shows that it is alive. The task with the flight has the idle timeout of the node, too.
const BEAT: Duration = Duration::from_millis(500);

/// The results that are being computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<InTheAir>>);

type InTheAir = BTreeMap<ResultKey, watch::Receiver<Option<CachedResult>>>;

/// The role of a task that wants a result.
pub(super) enum Role {
    /// It computes the result.
    First(Flight),
    /// Another task computes it.
    Waiting(OtherFlight),
}

/// The computation of a result by this task.
pub(super) struct Flight {
    flights: Flights,
    key: ResultKey,
    landing: watch::Sender<Option<CachedResult>>,
}

/// The computation of a result by another task.
pub(super) struct OtherFlight(watch::Receiver<Option<CachedResult>>);

impl Flights {
    /// Joins the computation of a result, or begins it.
    pub(super) fn join(&self, key: ResultKey) -> Role {
        let mut in_the_air = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = in_the_air.get(&key) {
            return Role::Waiting(OtherFlight(flight.clone()));
        }
        let (landing, flight) = watch::channel(None);
        in_the_air.insert(key, flight);
        Role::First(Flight { flights: self.clone(), key, landing })
    }
}

impl Flight {
    /// Gives the result to the waiting tasks.
    pub(super) fn land(self, result: CachedResult) {
        self.landing.send_replace(Some(result));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Before the sender is dropped, so that a task that it wakes does not find this flight again.
        let mut in_the_air = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        in_the_air.remove(&self.key);
    }
}

impl OtherFlight {
    /// Waits for the result. Returns `None` if the flight ended without one.
    ///
    /// # Cancel safety
    ///
    /// A dropped wait changes nothing.
    pub(super) async fn landed(mut self, ctx: &NodeContext) -> Option<CachedResult> {
        loop {
            match timeout(BEAT, self.0.wait_for(Option::is_some)).await {
                Ok(Ok(result)) => return result.clone(),
                Ok(Err(_)) => return None,
                Err(_) => ctx.heartbeat(),
            }
        }
    }
}
