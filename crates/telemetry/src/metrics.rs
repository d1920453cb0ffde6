//! The metrics of model calls, from their spans. All calls count, whether or not their trace is sampled.

use std::{fmt, time::Instant};

use opentelemetry::{
    KeyValue,
    metrics::{Histogram, Meter},
};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use crate::names::{
    ERROR_TYPE, OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, metric, model_operation,
    split_model,
};

/// Measures calls.
#[derive(Debug)]
pub(super) struct CallMetrics {
    duration: Histogram<f64>,
    tokens: Histogram<u64>,
}

/// A call that runs.
#[derive(Debug)]
struct Call {
    started: Instant,
    operation: &'static str,
    fields: CallFields,
}

#[derive(Debug, Default)]
struct CallFields {
    model: String,
    answered_by: Option<String>,
    error: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
}

impl CallMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        let duration = meter
            .f64_histogram(metric::DURATION)
            .with_unit("s")
            .with_description("Duration of calls to models")
            .with_boundaries(metric::DURATION_BOUNDS.to_vec());
        let tokens = meter
            .u64_histogram(metric::TOKENS)
            .with_unit("{token}")
            .with_description("Tokens of calls to models")
            .with_boundaries(metric::TOKENS_BOUNDS.to_vec());
        Self { duration: duration.build(), tokens: tokens.build() }
    }

    fn record(&self, call: &Call) {
        let CallFields { model, answered_by, error, input_tokens, output_tokens } = &call.fields;
        let (provider, model) = split_model(model);
        let mut attributes = vec![
            KeyValue::new(OPERATION, call.operation),
            KeyValue::new(REQUEST_MODEL, model.to_owned()),
        ];
        attributes.extend(provider.map(|it| KeyValue::new(PROVIDER, it.to_owned())));
        attributes.extend(answered_by.as_ref().map(|it| KeyValue::new(RESPONSE_MODEL, it.clone())));
        for (kind, count) in [("input", *input_tokens), ("output", *output_tokens)] {
            // A call that failed has none, and an answer that needed none has no size.
            if count > 0 {
                let mut attributes = attributes.clone();
                attributes.push(KeyValue::new(metric::TOKEN_TYPE, kind));
                self.tokens.record(count, &attributes);
            }
        }
        attributes.extend(error.as_ref().map(|it| KeyValue::new(ERROR_TYPE, it.clone())));
        self.duration.record(call.started.elapsed().as_secs_f64(), &attributes);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for CallMetrics {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(operation) = model_operation(span.name()) else { return };
        let mut fields = CallFields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Call { started: Instant::now(), operation, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(call) = span.extensions_mut().get_mut::<Call>() {
            values.record(&mut call.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let call = context.span(&id).and_then(|it| it.extensions_mut().remove::<Call>());
        if let Some(call) = call {
            self.record(&call);
        }
    }
}

impl Visit for CallFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "model" => value.clone_into(&mut self.model),
            "answered_by" => self.answered_by = Some(value.to_owned()),
            "error" => self.error = Some(value.to_owned()),
            _ => (),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "input_tokens" => self.input_tokens = value,
            "output_tokens" => self.output_tokens = value,
            _ => (),
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
