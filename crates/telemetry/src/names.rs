//! Every name that leaves this program: spans, attributes and metrics. The left of each row is the name in `tracing`.
//!
//! They follow the [conventions for generative AI](https://github.com/open-telemetry/semantic-conventions-genai) of
//! OpenTelemetry, which may still change; names with `graphrun.` are our own, where the conventions have none.

use opentelemetry::trace::SpanKind;

/// The prefix of the targets of our spans and events.
pub(super) const TARGET_PREFIX: &str = "graphrun";

/// The service, unless `OTEL_SERVICE_NAME` names another one, and the scope of our spans and metrics.
pub(super) const SERVICE: &str = "graphrun";

/// The attribute with the version of the service.
pub(super) const SERVICE_VERSION: &str = "service.version";

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(super) const ERROR_TYPE: &str = "error.type";

/// The operation of a call to a model.
pub(super) const CHAT: &str = "chat";

/// The operation of a call to a model for embeddings.
pub(super) const EMBEDDINGS: &str = "embeddings";

/// Returns the operation of the span of a call to a model.
pub(super) fn model_operation(span: &str) -> Option<&'static str> {
    [CHAT, EMBEDDINGS].into_iter().find(|it| *it == span)
}

/// An error without a kind.
pub(super) const OTHER_ERROR: &str = "_OTHER";

/// A span.
#[derive(Debug)]
pub(super) struct SpanNames {
    /// Its name in `tracing`.
    pub(super) span: &'static str,
    /// A field and the value that it must have.
    pub(super) only: Option<(&'static str, &'static str)>,
    /// The operation; the name of the span begins with it.
    pub(super) operation: &'static str,
    /// Whether the conventions know the operation.
    pub(super) is_standard: bool,
    /// The field with which the name of the span ends.
    pub(super) subject: Option<&'static str>,
    pub(super) kind: SpanKind,
    pub(super) fields: &'static [FieldName],
}

/// A field of a span, and the attribute that it becomes.
#[derive(Debug)]
pub(super) struct FieldName {
    pub(super) field: &'static str,
    pub(super) attribute: &'static str,
    pub(super) form: Form,
}

/// The form of the value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Integer,
    Number,
    /// A list of one text.
    Texts,
    /// The model of `provider/model`.
    Model,
    /// The provider of `provider/model`.
    Provider,
    /// The kind of an error, which also is the status of the span.
    Error,
    /// The status of a run. A failure also is the status of the span.
    Status,
}

const fn row(field: &'static str, attribute: &'static str, form: Form) -> FieldName {
    FieldName { field, attribute, form }
}

/// The fields of an attempt at a task.
const TASK: &[FieldName] = &[
    row("node", "graphrun.node.name", Form::Text),
    row("kind", "graphrun.node.kind", Form::Text),
    row("task", "graphrun.task.id", Form::Text),
    row("visit", "graphrun.task.visit", Form::Integer),
    row("attempt", "graphrun.task.attempt", Form::Integer),
    row("outcome", "graphrun.task.outcome", Form::Text),
    row("error", ERROR_TYPE, Form::Error),
];

/// The fields of an attempt of an agent.
const AGENT: &[FieldName] = &[
    row("agent", "gen_ai.agent.name", Form::Text),
    row("node", "graphrun.node.name", Form::Text),
    row("task", "graphrun.task.id", Form::Text),
    row("visit", "graphrun.task.visit", Form::Integer),
    row("attempt", "graphrun.task.attempt", Form::Integer),
    row("outcome", "graphrun.task.outcome", Form::Text),
    row("error", ERROR_TYPE, Form::Error),
];

/// The spans; of two rows with one name, the first one that fits.
pub(super) const SPANS: &[SpanNames] = &[
    SpanNames {
        span: "run",
        only: None,
        operation: "invoke_workflow",
        is_standard: true,
        subject: Some("workflow"),
        kind: SpanKind::Internal,
        fields: &[
            row("workflow", "gen_ai.workflow.name", Form::Text),
            // It stays the same when a run is resumed, and in all turns of a thread.
            row("run", "gen_ai.conversation.id", Form::Text),
            row("run", "graphrun.run.id", Form::Text),
            row("status", "graphrun.run.status", Form::Status),
            row("steps", "graphrun.run.steps", Form::Integer),
        ],
    },
    SpanNames {
        span: "step",
        only: None,
        operation: "step",
        is_standard: false,
        subject: Some("step"),
        kind: SpanKind::Internal,
        fields: &[row("step", "graphrun.step", Form::Integer)],
    },
    SpanNames {
        span: "task",
        only: Some(("kind", "agent")),
        operation: "invoke_agent",
        is_standard: true,
        subject: Some("node"),
        kind: SpanKind::Internal,
        fields: AGENT,
    },
    SpanNames {
        span: "task",
        only: None,
        operation: "task",
        is_standard: false,
        subject: Some("node"),
        kind: SpanKind::Internal,
        fields: TASK,
    },
    SpanNames {
        span: "chat",
        only: None,
        operation: CHAT,
        is_standard: true,
        subject: Some("model"),
        kind: SpanKind::Client,
        fields: &[
            row("model", PROVIDER, Form::Provider),
            row("model", REQUEST_MODEL, Form::Model),
            row("temperature", "gen_ai.request.temperature", Form::Number),
            row("max_tokens", "gen_ai.request.max_tokens", Form::Integer),
            row("answered_by", RESPONSE_MODEL, Form::Text),
            row("finish", "gen_ai.response.finish_reasons", Form::Texts),
            row("input_tokens", "gen_ai.usage.input_tokens", Form::Integer),
            row("cached_input_tokens", "gen_ai.usage.cache_read.input_tokens", Form::Integer),
            row("output_tokens", "gen_ai.usage.output_tokens", Form::Integer),
            row("reasoning_output_tokens", "gen_ai.usage.reasoning.output_tokens", Form::Integer),
            row("error", ERROR_TYPE, Form::Error),
        ],
    },
    SpanNames {
        span: EMBEDDINGS,
        only: None,
        operation: EMBEDDINGS,
        is_standard: true,
        subject: Some("model"),
        kind: SpanKind::Client,
        fields: &[
            row("model", PROVIDER, Form::Provider),
            row("model", REQUEST_MODEL, Form::Model),
            row("answered_by", RESPONSE_MODEL, Form::Text),
            row("input_tokens", "gen_ai.usage.input_tokens", Form::Integer),
            row("error", ERROR_TYPE, Form::Error),
        ],
    },
    SpanNames {
        span: "tool",
        only: None,
        operation: "execute_tool",
        is_standard: true,
        subject: Some("tool"),
        kind: SpanKind::Internal,
        fields: &[
            row("tool", "gen_ai.tool.name", Form::Text),
            row("error", ERROR_TYPE, Form::Error),
        ],
    },
    SpanNames {
        span: "sandbox",
        only: None,
        operation: "sandbox",
        is_standard: false,
        subject: None,
        kind: SpanKind::Internal,
        fields: &[row("exit_code", "process.exit.code", Form::Integer)],
    },
];

/// The content of calls, which is sent only if the user asks for it.
pub(super) mod content {
    pub(in super::super) const INPUT: &str = "gen_ai.input.messages";
    pub(in super::super) const OUTPUT: &str = "gen_ai.output.messages";
    pub(in super::super) const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    pub(in super::super) const RESULT: &str = "gen_ai.tool.call.result";
}

/// The metrics, with the bounds of the conventions.
pub(super) mod metric {
    pub(in super::super) const DURATION: &str = "gen_ai.client.operation.duration";
    pub(in super::super) const DURATION_BOUNDS: &[f64] =
        &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
    pub(in super::super) const TOKENS: &str = "gen_ai.client.token.usage";
    pub(in super::super) const TOKENS_BOUNDS: &[f64] = &[
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1024.0,
        4096.0,
        16384.0,
        65536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
        67_108_864.0,
    ];
    pub(in super::super) const TOKEN_TYPE: &str = "gen_ai.token.type";
}

/// Our names of providers for which the conventions have another one.
const PROVIDERS: &[(&str, &str)] = &[
    ("azure", "azure.ai.openai"),
    ("bedrock", "aws.bedrock"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("xai", "x_ai"),
];

/// Splits `provider/model` into the provider, as the conventions name it, and the model.
pub(super) fn split_model(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((provider, model)) => {
            let known = PROVIDERS.iter().find(|(ours, _)| *ours == provider);
            (Some(known.map_or(provider, |(_, theirs)| theirs)), model)
        }
        None => (None, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_has_its_name_in_the_conventions() {
        assert_eq!(split_model("openai/gpt-5"), (Some("openai"), "gpt-5"));
        assert_eq!(split_model("gemini/gemini-3/pro"), (Some("gcp.gemini"), "gemini-3/pro"));
        assert_eq!(split_model("scripted"), (None, "scripted"));
    }
}
