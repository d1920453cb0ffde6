//! The process: its threads, signals, resources, limits, secrets and logs.

pub(super) mod data_limits;
#[cfg(feature = "failpoints")]
pub(super) mod faults;
pub(super) mod log;
pub(super) mod resources;
pub(super) mod runtime;
pub(super) mod secrets;
pub(super) mod signals;
#[cfg(feature = "otel")]
pub(super) mod telemetry;
