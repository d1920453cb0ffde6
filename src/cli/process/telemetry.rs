//! Spans and metrics for an OpenTelemetry collector, if the variables of OpenTelemetry name one.
//!
//! No command fails because of it: what goes wrong is a warning, one at most.

use std::{env, time::Duration};

use super::{log::BoxedLayer, resources::check_threads};
use crate::{
    cli::output::terminal::{Paint, print_message},
    graph::with_causes,
    telemetry::{Telemetry, TelemetryError},
};

/// How long the end of a command may wait for the collector.
const END_MAX: Duration = Duration::from_secs(2);

/// Those of the batches of spans and of the metrics, and one that resolves names.
const THREADS: usize = 3;

/// Connects to the collector, if there is one.
pub(crate) fn connect(paint: Paint) -> Option<Telemetry> {
    // The SDK panics if it gets no thread.
    let is_configured =
        env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(b"OTEL_"));
    if !is_configured {
        return None;
    }
    let connected = check_threads(THREADS).map_err(TelemetryError::from);
    match connected.and_then(|()| Telemetry::from_variables(|name| env::var(name).ok())) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            warn(&format!("no telemetry is sent: {}", with_causes(&error)), paint);
            None
        }
    }
}

/// Returns the layer that takes the spans of this program.
pub(crate) fn layer(telemetry: &Telemetry) -> BoxedLayer {
    Box::new(telemetry.layer(|_| false))
}

/// Sends what waits.
pub(crate) fn close(telemetry: Option<Telemetry>, paint: Paint) {
    if let Some(Err(loss)) = telemetry.map(|it| it.shut_down(END_MAX)) {
        warn(&loss.to_string(), paint);
    }
}

fn warn(problem: &str, paint: Paint) {
    print_message(&paint.loud(&format!("warning: {problem}")));
}
