//! The log on stderr: spans and events of `tracing`, off unless `--log` or `RUST_LOG` sets a filter. The same subscriber
//! passes them to the layer of the telemetry.

use std::{
    env,
    io::{self, Write},
};

use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::Directive,
    fmt::{self, format::FmtSpan},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    cli::{error::CliError, output::terminal::print_message},
    event::CONTENT_TARGET,
};

/// A further reader of spans.
pub(crate) type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The variable with the filter.
const VARIABLE: &str = "RUST_LOG";

/// Returns whether there is a log on stderr, so that no live view should be drawn there.
pub(crate) fn is_wanted(flag: Option<&str>) -> bool {
    flag.is_some() || env::var_os(VARIABLE).is_some_and(|it| !it.is_empty())
}

/// Starts the log, if it is wanted, and the telemetry, if there is any.
///
/// # Errors
///
/// Fails when the filter of the flag cannot be parsed. The variable may be meant for other programs, so its invalid parts
/// are ignored.
pub(crate) fn start(flag: Option<&str>, telemetry: Option<BoxedLayer>) -> Result<(), CliError> {
    let log = if is_wanted(flag) { Some(filter(flag)?) } else { None };
    // Without a subscriber, a span costs a comparison.
    if log.is_none() && telemetry.is_none() {
        return Ok(());
    }
    let log = log.map(|filter| {
        fmt::layer()
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(|| LogWriter)
            .with_ansi(false)
            .with_filter(filter)
    });
    // Only a host that embeds this program can have started another subscriber; that one stays.
    drop(tracing_subscriber::registry().with(telemetry).with(log).try_init());
    Ok(())
}

fn filter(flag: Option<&str>) -> Result<EnvFilter, CliError> {
    let filter = match flag {
        Some(filter) => EnvFilter::try_new(filter).map_err(|error| {
            CliError::usage(format!("`{filter}` is not a valid log filter"))
                .because(error)
                .with_help("write a target and a level, as in `--log graphrun=debug`")
        })?,
        None => EnvFilter::builder().parse_lossy(env::var(VARIABLE).unwrap_or_default()),
    };
    // No filter brings prompts and answers into the log.
    let without: Directive =
        format!("{CONTENT_TARGET}=off").parse().expect("a target and a level are a directive");
    Ok(filter.add_directive(without))
}

/// Writes the log to stderr with redacted keys, like all output.
struct LogWriter;

impl Write for LogWriter {
    /// Each call is a whole line: the subscriber writes an event at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        print_message(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
