//! The export of a span: counted when it ends, translated and sent in a batch by a thread of the SDK.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor},
};

use crate::convention::translate;

/// What became of the data of this process.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The spans that ended.
    pub(super) spans: AtomicU64,
    /// Those of them that the collector has.
    pub(super) delivered: AtomicU64,
    /// The transmissions of metrics that failed since the last one that did not. Each contains all values.
    pub(super) metrics_failed: AtomicU64,
}

impl Counts {
    /// Returns the number of spans that the collector does not have: their queue was full, or sending failed.
    pub(super) fn lost(&self) -> u64 {
        let delivered = self.delivered.load(Ordering::Relaxed);
        self.spans.load(Ordering::Relaxed).saturating_sub(delivered)
    }
}

/// Counts spans as they end. The queue behind it drops what does not fit, and never waits.
#[derive(Debug)]
pub(super) struct CountingProcessor {
    pub(super) counts: Arc<Counts>,
    pub(super) batches: BatchSpanProcessor,
}

impl SpanProcessor for CountingProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.counts.spans.fetch_add(1, Ordering::Relaxed);
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Translates spans and sends them.
#[derive(Debug)]
pub(super) struct TranslatingExporter<E> {
    pub(super) counts: Arc<Counts>,
    pub(super) inner: E,
}

impl<E: SpanExporter> SpanExporter for TranslatingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        self.inner.export(batch.into_iter().map(translate).collect()).await?;
        self.counts.delivered.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Counts the transmissions of metrics that fail.
#[derive(Debug)]
pub(super) struct CountingMetricExporter<E> {
    pub(super) counts: Arc<Counts>,
    pub(super) inner: E,
}

impl<E: PushMetricExporter> PushMetricExporter for CountingMetricExporter<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let sent = self.inner.export(metrics).await;
        match sent {
            Ok(()) => self.counts.metrics_failed.store(0, Ordering::Relaxed),
            Err(_) => drop(self.counts.metrics_failed.fetch_add(1, Ordering::Relaxed)),
        }
        sent
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        mpsc::{self, Receiver},
    };

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{BatchConfigBuilder, SdkTracerProvider};

    use super::*;

    /// Signals when it has a batch, and sends it when it may.
    #[derive(Debug)]
    struct Gate {
        begun: mpsc::Sender<()>,
        may_send: Mutex<Receiver<()>>,
    }

    impl SpanExporter for Gate {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            self.begun.send(()).unwrap();
            self.may_send.lock().unwrap().recv().unwrap();
            Ok(())
        }
    }

    #[test]
    fn what_the_queue_does_not_hold_is_dropped_and_counted() {
        let counts = Arc::new(Counts::default());
        let ((begun, begins), (allow, may_send)) = (mpsc::channel(), mpsc::channel());
        let inner = Gate { begun, may_send: may_send.into() };
        let exporter = TranslatingExporter { counts: Arc::clone(&counts), inner };
        let config =
            BatchConfigBuilder::default().with_max_queue_size(2).with_max_export_batch_size(1);
        let batches =
            BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build();
        let processor = CountingProcessor { counts: Arc::clone(&counts), batches };
        let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
        let tracer = provider.tracer("test");
        drop(tracer.start("sent"));
        begins.recv().unwrap();
        // The thread of the exporter is busy, so these meet a queue with two places.
        for name in ["queued", "queued", "dropped", "dropped", "dropped"] {
            drop(tracer.start(name));
        }
        (0..3).for_each(|_| allow.send(()).unwrap());
        provider.shutdown().unwrap();
        assert_eq!(counts.spans.load(Ordering::Relaxed), 6);
        assert_eq!(counts.delivered.load(Ordering::Relaxed), 3);
        assert_eq!(counts.lost(), 3);
    }
}
