//! Traces of others, as W3C Trace Context writes them: that of the caller, and that of the first process of a run.

use std::cell::RefCell;

use opentelemetry::{
    Context, ContextGuard,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Subscriber, span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, layer};

/// The names of the fields in the environment of a program.
const FIELDS: [(&str, &str); 2] = [("traceparent", "TRACEPARENT"), ("tracestate", "TRACESTATE")];

/// Puts spans without a parent below the span of the caller.
#[derive(Clone, Debug)]
pub(super) struct Caller(Context);

impl Caller {
    /// Reads `TRACEPARENT` and `TRACESTATE`; `None` if they are missing or invalid.
    pub(super) fn read(variable: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let fields = Fields(FIELDS.map(|(name, it)| (name, variable(it))));
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
        context.has_active_span().then_some(Self(context))
    }
}

impl<S: Subscriber> Layer<S> for Caller {
    fn on_new_span(&self, _: &span::Attributes<'_>, _: &span::Id, _: layer::Context<'_, S>) {
        thread_local! {
            /// Below all other contexts of the thread, and as long as it lives: the next layer takes the current context as
            /// the parent of a span that has no other.
            static ATTACHED: RefCell<Option<ContextGuard>> = const { RefCell::new(None) };
        }
        if !Context::map_current(Context::has_active_span) {
            ATTACHED.set(Some(self.0.clone().attach()));
        }
    }
}

/// Returns the context of a span as `traceparent`, unless its trace is not sent.
pub fn trace_context(span: &tracing::Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let span = span.span_context();
    let trace = span.trace_id();
    let id = span.span_id();
    let flags = span.trace_flags().to_u8();
    (span.is_valid() && span.is_sampled()).then(|| format!("00-{trace}-{id}-{flags:02x}"))
}

/// Reads a `traceparent`.
pub(super) fn read_trace_context(text: &str) -> Option<SpanContext> {
    let fields = Fields([(FIELDS[0].0, Some(text.to_owned())), (FIELDS[1].0, None)]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
    context.has_active_span().then(|| context.span().span_context().clone())
}

struct Fields([(&'static str, Option<String>); 2]);

impl Extractor for Fields {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.as_deref())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_caller_counts() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |value: Option<&str>| {
            Caller::read(&|name: &str| (name == "TRACEPARENT").then(|| value.map(str::to_owned))?)
        };
        let caller = read(Some(PARENT)).unwrap();
        let span = caller.0.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(span.is_remote() && span.is_sampled());
        for invalid in [None, Some(""), Some("00-0-0-01"), Some("hello")] {
            assert!(read(invalid).is_none(), "{invalid:?}");
        }
    }
}
