//! What the standard variables of OpenTelemetry ask for. The SDK itself reads those about its batches, its sampler and its
//! resource.

use std::time::Duration;

use thiserror::Error;

/// The variables that this module reads. A signal has its own form of some of them, which comes first.
const DISABLED: &str = "OTEL_SDK_DISABLED";
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

const HEADERS: &str = "HEADERS";
const MILLISECONDS: &str = "write a whole number of milliseconds";
const NUMBER: &str = "write a whole number";

/// A variable or the end of its name, a check of its value, and a description of the values that pass.
type Check = (&'static str, fn(&str) -> bool, &'static str);

/// The variables of the exporter, each also for one signal.
const EXPORTER_CHECKS: [Check; 5] = [
    ("COMPRESSION", |it| it == "none", "nothing is compressed: write `none`"),
    (HEADERS, is_list, "write `name=value`, with commas between several"),
    ("CERTIFICATE", |_| false, "the certificates of the system are used"),
    ("CLIENT_KEY", |_| false, "graphrun sends no certificate of a client"),
    ("CLIENT_CERTIFICATE", |_| false, "graphrun sends no certificate of a client"),
];

/// The variables that only the SDK reads.
const SDK_CHECKS: &[Check] = &[
    (
        "OTEL_TRACES_SAMPLER",
        |it| SAMPLERS.contains(&it),
        "the samplers are `always_on`, `always_off`, `traceidratio`, and each with `parentbased_` before it",
    ),
    (
        "OTEL_TRACES_SAMPLER_ARG",
        |it| it.parse::<f64>().is_ok_and(|it| (0.0..=1.0).contains(&it)),
        "write a number from 0 to 1",
    ),
    ("OTEL_RESOURCE_ATTRIBUTES", is_list, "write `name=value`, with commas between several"),
    ("OTEL_BSP_SCHEDULE_DELAY", is_whole, MILLISECONDS),
    ("OTEL_BSP_EXPORT_TIMEOUT", is_whole, MILLISECONDS),
    ("OTEL_BSP_MAX_QUEUE_SIZE", is_whole, NUMBER),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", is_whole, NUMBER),
    ("OTEL_METRIC_EXPORT_INTERVAL", is_whole, MILLISECONDS),
    ("OTEL_METRIC_EXPORT_TIMEOUT", is_whole, MILLISECONDS),
];
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// The settings of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    /// How spans are sent, if they are.
    pub(super) traces: Option<Signal>,
    /// How metrics are sent, if they are.
    pub(super) metrics: Option<Signal>,
    /// Whether the content of calls is sent with the spans.
    pub(super) content: bool,
}

/// How the data of one kind is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    /// The whole address.
    pub(super) address: String,
    /// The limit of a request with its repetitions.
    pub(super) timeout: Duration,
}

/// A variable asks for something that this program does not have, so nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable} is `{value}`; {expected}")]
pub struct UnsupportedVariable {
    variable: String,
    value: String,
    expected: &'static str,
}

impl Config {
    /// Reads the variables.
    ///
    /// # Errors
    ///
    /// Fails when a variable has a value that is not supported.
    pub(super) fn read(
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UnsupportedVariable> {
        // An empty variable counts as one that is not set, as in the specification.
        let variable = |name: &str| variable(name).filter(|it| !it.trim().is_empty());
        if is_disabled(variable(DISABLED))? {
            return Ok(Self::default());
        }
        let config = Self {
            traces: Signal::read("TRACES", "/v1/traces", &variable)?,
            metrics: Signal::read("METRICS", "/v1/metrics", &variable)?,
            content: captures_content(variable(CAPTURE_CONTENT))?,
        };
        if config.traces.is_some() || config.metrics.is_some() {
            check_for_sdk(&variable)?;
        }
        Ok(config)
    }
}

impl Signal {
    /// Reads the variables of a signal, which has this path at the address of a collector.
    fn read(
        name: &str,
        path: &str,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, UnsupportedVariable> {
        let either = |suffix: &str| {
            let names = [
                format!("OTEL_EXPORTER_OTLP_{name}_{suffix}"),
                format!("OTEL_EXPORTER_OTLP_{suffix}"),
            ];
            names.into_iter().find_map(|it| variable(&it).map(|value| (it, value)))
        };
        let exporter = format!("OTEL_{name}_EXPORTER");
        let is_chosen = match variable(&exporter) {
            None => false,
            Some(value) => {
                let mut chosen = value.split(',').map(str::trim);
                match value.trim() {
                    "none" => return Ok(None),
                    _ if chosen.any(|it| it == "otlp") => true,
                    _ => {
                        let expected = "the exporters are `otlp` and `none`";
                        return Err(UnsupportedVariable { variable: exporter, value, expected });
                    }
                }
            }
        };
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let own = variable(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT"));
        if base.is_none() && own.is_none() && !is_chosen {
            return Ok(None);
        }
        if let Some((variable, value)) = either("PROTOCOL")
            && value.trim() != "http/protobuf"
        {
            let expected = "the protocol is `http/protobuf`, at port 4318 of most collectors";
            return Err(UnsupportedVariable { variable, value, expected });
        }
        let timeout = match either("TIMEOUT") {
            None => None,
            Some((variable, value)) => match value.trim().parse() {
                Ok(milliseconds) => Some(milliseconds),
                Err(_) => {
                    return Err(UnsupportedVariable { variable, value, expected: MILLISECONDS });
                }
            },
        };
        for (suffix, is_supported, expected) in EXPORTER_CHECKS {
            if let Some((variable, value)) = either(suffix)
                && !is_supported(value.trim())
            {
                // The value of a header is a key, also if it is not written as one.
                let value = if suffix == HEADERS { "[redacted]".to_owned() } else { value };
                return Err(UnsupportedVariable { variable, value, expected });
            }
        }
        let address = own.unwrap_or_else(|| {
            let base = base.as_deref().unwrap_or("http://localhost:4318");
            format!("{}{path}", base.trim().trim_end_matches('/'))
        });
        Ok(Some(Self {
            address: address.trim().to_owned(),
            timeout: timeout.map_or(TIMEOUT_DEFAULT, Duration::from_millis),
        }))
    }
}

/// Returns whether nothing is sent.
fn is_disabled(value: Option<String>) -> Result<bool, UnsupportedVariable> {
    let Some(value) = value else { return Ok(false) };
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let expected = "write `true` to send nothing, or `false`";
            Err(UnsupportedVariable { variable: DISABLED.to_owned(), value, expected })
        }
    }
}

/// Checks the variables that the SDK reads. It would take a default in place of a wrong value, and say nothing.
fn check_for_sdk(variable: &impl Fn(&str) -> Option<String>) -> Result<(), UnsupportedVariable> {
    for (name, is_supported, expected) in SDK_CHECKS {
        if let Some(value) = variable(name)
            && !is_supported(value.trim())
        {
            return Err(UnsupportedVariable { variable: (*name).to_owned(), value, expected });
        }
    }
    Ok(())
}

fn is_whole(value: &str) -> bool {
    value.parse::<u32>().is_ok_and(|it| it > 0)
}

/// Returns whether a text has the form `name=value,name=value`.
fn is_list(value: &str) -> bool {
    let parts = || value.split(',').map(str::trim).filter(|it| !it.is_empty());
    parts().all(|it| it.split_once('=').is_some_and(|(name, _)| is_name(name.trim())))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_graphic() && it != ':')
}

/// Returns whether spans have content. The names are those of the instrumentations in Python; events are not sent.
fn captures_content(value: Option<String>) -> Result<bool, UnsupportedVariable> {
    let Some(value) = value else { return Ok(false) };
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "span_only" | "span_and_event" => Ok(true),
        "false" | "no_content" | "event_only" => Ok(false),
        _ => {
            let expected = "write `true` to send prompts and answers, or `false`";
            Err(UnsupportedVariable { variable: CAPTURE_CONTENT.to_owned(), value, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
        };
        Config::read(&variable).map_err(|it| it.to_string())
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    #[test]
    fn nothing_is_sent_without_an_address() {
        assert_eq!(read(&[]), Ok(Config::default()));
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "team")]), Ok(Config::default()));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(Config::default()));
        assert_eq!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(Config::default()));
    }

    #[test]
    fn each_signal_can_be_chosen_on_its_own() {
        for (variables, traces, metrics) in [
            (&[ENDPOINT][..], true, true),
            (&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")], true, false),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], false, true),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true, false),
            (&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://x/m")], false, true),
        ] {
            let config = read(variables).unwrap();
            let found = (config.traces.is_some(), config.metrics.is_some());
            assert_eq!(found, (traces, metrics), "{variables:?}");
        }
    }

    #[test]
    fn the_variable_of_a_signal_comes_first() {
        let config = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/v1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "300"),
        ]);
        let config = config.unwrap();
        let traces = config.traces.unwrap();
        assert_eq!(traces.address, "http://traces/v1");
        assert_eq!(traces.timeout, Duration::from_millis(300));
        let metrics = config.metrics.unwrap();
        assert_eq!(metrics.address, "http://collector:4318/v1/metrics");
        assert_eq!(metrics.timeout, Duration::from_secs(2));
    }

    #[test]
    fn without_an_address_the_collector_is_on_this_machine() {
        let config = read(&[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap();
        assert_eq!(config.traces.unwrap().address, "http://localhost:4318/v1/traces");
    }

    #[test]
    fn what_is_not_supported_is_named_with_what_is() {
        let cases = [
            ("OTEL_TRACES_EXPORTER", "zipkin", "the exporters are `otlp` and `none`"),
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "grpc",
                "the protocol is `http/protobuf`, at port 4318 of most collectors",
            ),
            (CAPTURE_CONTENT, "yes", "write `true` to send prompts and answers, or `false`"),
            (DISABLED, "1", "write `true` to send nothing, or `false`"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", MILLISECONDS),
            (
                "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
                "gzip",
                "nothing is compressed: write `none`",
            ),
            (
                "OTEL_EXPORTER_OTLP_CERTIFICATE",
                "/ca.pem",
                "the certificates of the system are used",
            ),
            (
                "OTEL_TRACES_SAMPLER",
                "traceid",
                "the samplers are `always_on`, `always_off`, `traceidratio`, and each with `parentbased_` before it",
            ),
            ("OTEL_TRACES_SAMPLER_ARG", "10%", "write a number from 0 to 1"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-3", NUMBER),
            ("OTEL_RESOURCE_ATTRIBUTES", "team", "write `name=value`, with commas between several"),
        ];
        for (name, value, expected) in cases {
            let error = read(&[ENDPOINT, (name, value)]).unwrap_err();
            assert_eq!(error, format!("{name} is `{value}`; {expected}"));
        }
        // A key may be written in another form than that of a header.
        let header = ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer 0123456789");
        let error = read(&[ENDPOINT, header]).unwrap_err();
        assert!(error.contains("name=value") && !error.contains("0123456789"), "{error}");
    }

    #[test]
    fn content_is_off_unless_it_is_asked_for() {
        for (value, content) in
            [("true", true), ("SPAN_ONLY", true), ("false", false), ("EVENT_ONLY", false)]
        {
            let config = read(&[ENDPOINT, (CAPTURE_CONTENT, value)]).unwrap();
            assert_eq!(config.content, content, "{value}");
        }
        assert!(!read(&[ENDPOINT]).unwrap().content);
    }
}
