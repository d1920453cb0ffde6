//! Sends the `tracing` spans of runs, and metrics of model calls, to an OpenTelemetry collector over OTLP/HTTP.
//!
//! Start with [`Telemetry`]. The spans stay those of `tracing`; nothing else in graphrun knows of OpenTelemetry.
//! - `names`: every name that leaves the program; `convention` translates a span into them.
//! - `config`: the standard variables; `caller`: the traces of the caller and of a run's first process.
//! - `export`, `client`: batches, their count, and the requests.
//!
//! A run never waits for the collector: a span that ends goes into a queue of limited length, and what does not fit there is
//! dropped and counted.

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod caller;
mod client;
mod config;
mod convention;
mod export;
mod metrics;
mod names;

use std::{
    fmt, io,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use graphrun_core::event::CONTENT_TARGET;
use graphrun_guard::redact::redact;
use opentelemetry::{Key, KeyValue, metrics::MeterProvider as _, trace::TracerProvider as _};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, RetryPolicy, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{BatchSpanProcessor, SdkTracerProvider},
};
use percent_encoding::percent_decode_str;
use thiserror::Error;
use tokio::time::Instant;
use tracing::{Level, Metadata, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use self::{
    caller::Caller,
    client::{Client, Line},
    config::{Config, Signal},
    export::{CountingMetricExporter, CountingProcessor, Counts, TranslatingExporter},
    metrics::CallMetrics,
    names::{SERVICE, SERVICE_VERSION, TARGET_PREFIX, model_operation},
};
pub use self::{caller::trace_context, config::UnsupportedVariable};

/// The connection of a process to its collector.
///
/// ```no_run
/// use std::time::Duration;
///
/// use graphrun_telemetry::Telemetry;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let telemetry = Telemetry::from_variables(|name| std::env::var(name).ok())?;
/// let subscriber = tracing_subscriber::registry()
///     .with(telemetry.as_ref().map(|it| it.layer(|span| span.target().starts_with("my_server"))));
/// tracing::subscriber::set_global_default(subscriber)?;
/// // … runs …
/// if let Some(telemetry) = telemetry
///     && let Err(loss) = telemetry.shut_down(Duration::from_secs(2))
/// {
///     eprintln!("warning: {loss}");
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    /// The address for messages.
    address: String,
    sends_content: bool,
    caller: Option<Caller>,
    line: Arc<Line>,
    counts: Arc<Counts>,
}

/// The reason why nothing is sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A variable asks for something that this program does not have.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedVariable),
    /// A variable has an invalid value.
    #[error("the variables of OpenTelemetry cannot be used")]
    Exporter(#[from] ExporterBuildError),
    /// The system has no resources left.
    #[error("the connection to the collector cannot be set up")]
    Io(#[from] io::Error),
}

/// Data that did not reach the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The spans that ended.
    pub spans: u64,
    /// Those of them that did not reach the collector.
    pub lost: u64,
    /// The spans and the values of metrics that reached it and were rejected.
    pub rejected: u64,
    /// The address of the collector.
    pub address: String,
    /// The last failure; none if spans were dropped only because too many waited.
    pub reason: Option<String>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spans, lost, rejected, address, reason } = self;
        match (lost, rejected) {
            (0, 0) => write!(f, "the metrics did not reach {address}")?,
            (0, _) => write!(f, "{rejected} spans or values were not accepted by {address}")?,
            _ => write!(f, "{lost} of {spans} spans did not reach {address}")?,
        }
        match reason {
            Some(reason) => write!(f, ": {reason}"),
            None => write!(f, ": too many waited at once; raise OTEL_BSP_MAX_QUEUE_SIZE"),
        }
    }
}

impl std::error::Error for Loss {}

impl Telemetry {
    /// Connects to the collector that the standard variables of OpenTelemetry name; `None` if they name none.
    ///
    /// `TRACEPARENT` and `TRACESTATE` name the span of the caller, below which spans without a parent belong. The SDK itself reads
    /// the variables about headers, batches, sampling and the resource, from the environment of the process. Nothing is sent
    /// yet, and an unreachable collector is no error.
    ///
    /// # Errors
    ///
    /// Fails when a variable is invalid or asks for something that is not supported.
    ///
    /// # Panics
    ///
    /// Panics if the system refuses to start a thread.
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TelemetryError> {
        let Config { traces, metrics, content } = Config::read(&variable)?;
        let Some(first) = traces.as_ref().or(metrics.as_ref()) else { return Ok(None) };
        let address = shown_address(&first.address);
        let line = Line::new()?;
        let counts = Arc::new(Counts::default());
        let resource = resource(&variable);
        let traces = traces.map(|it| tracer_provider(it, &resource, &line, &counts));
        let metrics = metrics.map(|it| meter_provider(it, &resource, &line, &counts));
        Ok(Some(Self {
            traces: traces.transpose()?,
            metrics: metrics.transpose()?,
            address,
            sends_content: content,
            caller: Caller::read(&variable),
            line,
            counts,
        }))
    }

    /// Returns the layer of a subscriber that takes the spans of graphrun, from the level info, and those of the program that
    /// `own` selects.
    pub fn layer<S, F>(&self, own: F) -> impl Layer<S> + Send + Sync + use<S, F>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
        F: Fn(&Metadata<'_>) -> bool + Send + Sync + 'static,
    {
        let sends_content = self.sends_content;
        let is_sent = move |metadata: &Metadata<'_>| {
            if !metadata.target().starts_with(TARGET_PREFIX) {
                return own(metadata);
            }
            // The texts of errors are at the level debug, because they may quote content.
            let level =
                if sends_content && metadata.is_event() { Level::DEBUG } else { Level::INFO };
            *metadata.level() <= level || sends_content && metadata.target() == CONTENT_TARGET
        };
        let spans = self.traces.as_ref().map(|provider| {
            let spans = OpenTelemetryLayer::new(provider.tracer(SERVICE))
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false);
            Layer::<S>::and_then(self.caller.clone(), spans).with_filter(filter_fn(is_sent))
        });
        let calls = self.metrics.as_ref().map(|provider| {
            let is_call = |metadata: &Metadata<'_>| {
                model_operation(metadata.name()).is_some()
                    && metadata.is_span()
                    && metadata.target().starts_with(TARGET_PREFIX)
            };
            // A hint of its level would become that of both layers.
            CallMetrics::new(&provider.meter(SERVICE)).with_filter(filter_fn(is_call))
        });
        Layer::<S>::and_then(spans, calls)
    }

    /// Sends what waits, for at most this time, and ends the connection. It blocks.
    ///
    /// # Errors
    ///
    /// Fails if data did not reach the collector, at any time since the start.
    pub fn shut_down(self, limit: Duration) -> Result<(), Loss> {
        self.line.end_at(Instant::now() + limit);
        // Both at once: each waits for its last request.
        thread::scope(|scope| {
            if let Some(metrics) = &self.metrics {
                scope.spawn(|| metrics.shutdown());
            }
            if let Some(traces) = &self.traces {
                // A provider that is shut down twice says so; nothing else is in its result that `counts` does not have.
                drop(traces.shutdown_with_timeout(limit));
            }
        });
        let lost = self.counts.lost();
        let rejected = self.line.rejected();
        if lost + rejected == 0 && self.counts.metrics_failed.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let spans = self.counts.spans.load(Ordering::Relaxed);
        let reason = self.line.failure().map(|it| redact(&it).into_owned());
        Err(Loss { spans, lost, rejected, address: self.address, reason })
    }
}

/// Returns the service, and what the variables say about it.
fn resource(variable: &impl Fn(&str) -> Option<String>) -> Resource {
    let version = KeyValue::new(SERVICE_VERSION, env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    // The builder reads the variables, and a name that is set here wins. It prefers the attribute to the variable of the
    // name, which the specification puts first.
    let name = variable("OTEL_SERVICE_NAME").filter(|it| !it.is_empty());
    let is_named = name.is_some();
    let is_attribute = |it: &str| it.trim_start().starts_with("service.name=");
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let resource = match name {
        Some(name) => builder.with_service_name(name).build(),
        None if attributes.split(',').any(is_attribute) => builder.build(),
        None => builder.with_service_name(SERVICE).build(),
    };
    let clean = |(key, value): (&Key, &opentelemetry::Value)| {
        let value = value.as_str();
        // Attributes have commas and equals signs percent-encoded, and the builder decodes nothing.
        let is_encoded = !(is_named && key.as_str() == "service.name");
        let decoded = percent_decode_str(&value).decode_utf8_lossy();
        let value = if is_encoded { &decoded } else { &value };
        KeyValue::new(key.clone(), redact(value).into_owned())
    };
    Resource::builder_empty().with_attributes(resource.iter().map(clean)).build()
}

/// Returns an address for messages: without a user, a password and parameters, each of which may be a key.
fn shown_address(address: &str) -> String {
    let before = address.split(['?', '#']).next().unwrap_or_default();
    let host = before.split_once("://").and_then(|(scheme, rest)| {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (_, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{host}{path}"))
    });
    redact(host.as_deref().unwrap_or(before)).into_owned()
}

fn tracer_provider(
    signal: Signal,
    resource: &Resource,
    line: &Arc<Line>,
    counts: &Arc<Counts>,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(signal.address.clone())
        .with_http_client(Client::new(line, signal))
        .with_retry_policy(RetryPolicy::disabled())
        .build()?;
    let exporter = TranslatingExporter { counts: Arc::clone(counts), inner: exporter };
    let batches = BatchSpanProcessor::builder(exporter).build();
    let processor = CountingProcessor { counts: Arc::clone(counts), batches };
    let provider = SdkTracerProvider::builder().with_resource(resource.clone());
    Ok(provider.with_span_processor(processor).build())
}

fn meter_provider(
    signal: Signal,
    resource: &Resource,
    line: &Arc<Line>,
    counts: &Arc<Counts>,
) -> Result<SdkMeterProvider, ExporterBuildError> {
    let exporter = MetricExporter::builder()
        .with_http()
        .with_endpoint(signal.address.clone())
        .with_http_client(Client::new(line, signal))
        .with_retry_policy(RetryPolicy::disabled())
        .build()?;
    let exporter = CountingMetricExporter { counts: Arc::clone(counts), inner: exporter };
    let provider = SdkMeterProvider::builder().with_resource(resource.clone());
    Ok(provider.with_reader(PeriodicReader::builder(exporter).build()).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_a_key() {
        for (address, shown) in [
            ("http://127.0.0.1:9/v1/traces", "http://127.0.0.1:9/v1/traces"),
            ("http://q8Zk3@127.0.0.1:9/v1?x=1", "http://127.0.0.1:9/v1"),
            ("https://me:secret@host", "https://host"),
            ("https://host/a@b?token=abcdef#c", "https://host/a@b"),
            ("not an address", "not an address"),
        ] {
            assert_eq!(shown_address(address), shown);
        }
    }
}
