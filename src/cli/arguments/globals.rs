//! The flags of every command, resolved in the environment of the process.

use std::{cell::OnceCell, ffi::OsString, io, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};

use super::{options::RunOptions, values::parse_duration};
use crate::{
    checkpoint::Checkpointer,
    cli::{
        allow::{
            ask,
            known_databases::{DatabaseKind, UntrustedFile},
        },
        error::CliError,
        exit::Exit,
        output::{terminal::Paint, terminal_env::TerminalEnv, words::alternatives},
        settings::{
            config::{Config, WithheldSetting},
            database::Database,
            run_settings::Settings,
        },
    },
    compile::CompiledGraph,
    engine::Engine,
    event::Status,
};

/// A shorter lease would expire whenever a machine is busy.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// The environment variables in `--help`.
pub(crate) const VARIABLES: &str = "\
Environment:
  GRAPHRUN_DB     the database of runs, unless `--db` names one
  GRAPHRUN_MEMORY the memory across runs, unless `--memory` names one
  GRAPHRUN_LEASE  how long a silent process keeps a run, as in `30s` [default: 15s]; use the same
                  value in every process of one database
  RUST_LOG        what to log on stderr, unless `--log` is given
  OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS and others, TRACEPARENT
                  an OpenTelemetry collector for spans and metrics (docs/telemetry.md)
  GRAPHRUN_MODEL, GRAPHRUN_MAX_STEPS, GRAPHRUN_MAX_CALLS, GRAPHRUN_MAX_TOKENS, GRAPHRUN_MAX_COST, GRAPHRUN_TIMEOUT
                  the values of the `execute` flags with these names, unless a flag is given
  GRAPHRUN_LIMIT_VALUE_DEPTH, GRAPHRUN_LIMIT_INPUT_BYTES and others
                  limits on the size of data (docs/configuration.md)

Without a flag or a variable, a setting comes from `graphrun.toml` in the current folder, then
from `~/.config/graphrun/config.toml`: the database, the model, limits, and prices of models
(docs/configuration.md). `graphrun trust` allows a folder's file to set the rest.";

/// The flags that may stand before or after the command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// The database of runs: `sqlite:PATH`, `postgres://…` or `memory:`
    ///
    /// Without it, the database is `GRAPHRUN_DB`, or else `sqlite:.graphrun/runs.db`.
    #[arg(long, global = true, value_name = "URL")]
    db: Option<String>,
    /// The memory across runs: `sqlite:PATH`, `postgres://…` or `memory:`
    ///
    /// Without it, the memory is `GRAPHRUN_MEMORY`, or else `sqlite:.graphrun/memory.db`.
    #[arg(long, global = true, value_name = "URL")]
    memory: Option<String>,
    /// How progress is shown on stderr
    #[arg(long, global = true, value_enum, value_name = "HOW", default_value_t)]
    progress: ProgressFlag,
    /// The format of the result on stdout
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t)]
    output: Output,
    /// When to use colours; `auto` honours `NO_COLOR`
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: ColorFlag,
    /// What to log on stderr, as in `graphrun=debug`; without it, `RUST_LOG`
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

/// The format of the result on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line: the events, as they happen.
    Jsonl,
    /// Diagnostics as a SARIF 2.1.0 log, for code scanning (`validate`).
    Sarif,
    /// Diagnostics as workflow commands of GitHub Actions (`validate`).
    Github,
}

/// The form of progress output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ProgressFlag {
    /// `tty` on a terminal, else `plain`.
    #[default]
    Auto,
    /// A live tree.
    Tty,
    /// One line per event.
    Plain,
    /// Not at all.
    None,
}

impl GlobalArgs {
    /// Returns the flags that matter for a line that cannot be parsed, such as the help.
    pub(crate) fn of_unparsed(line: impl IntoIterator<Item = OsString>) -> Self {
        let words: Vec<String> =
            line.into_iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let separate = words.iter().position(|it| it == "--color").and_then(|it| words.get(it + 1));
        let joined = words.iter().find_map(|it| it.strip_prefix("--color="));
        let color = joined.or(separate.map(String::as_str));
        let color = color.and_then(|it| ColorFlag::from_str(it, true).ok()).unwrap_or_default();
        Self { color, ..Self::default() }
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorFlag {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The resolved form of progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A live tree.
    Tree,
    /// One line per event.
    Plain,
    /// Not at all.
    Silent,
}

/// The resolved flags.
#[derive(Debug)]
pub(crate) struct Globals {
    /// The format of the result.
    pub(crate) output: Output,
    /// The form of progress output.
    pub(crate) progress: Progress,
    /// The colours of results.
    pub(crate) stdout: Paint,
    /// The colours of all other output.
    pub(crate) stderr: Paint,
    terminal_env: TerminalEnv,
    db: Option<String>,
    memory: Option<String>,
    config: OnceCell<Config>,
    /// The configuration after the user trusted the folder at the terminal.
    trusted: OnceCell<Config>,
}

impl Globals {
    /// Resolves the flags in this environment.
    pub(crate) fn new(args: GlobalArgs, mut terminal_env: TerminalEnv) -> Self {
        terminal_env.is_logging |= args.log.is_some();
        let paint = |is_terminal| Paint::new(colours(args.color, is_terminal, terminal_env));
        Self {
            output: args.output,
            progress: progress(args.progress, args.output, terminal_env),
            stdout: paint(terminal_env.stdout_is_terminal),
            stderr: paint(terminal_env.stderr_is_terminal),
            terminal_env,
            db: args.db,
            memory: args.memory,
            config: OnceCell::new(),
            trusted: OnceCell::new(),
        }
    }

    /// Returns the settings of the environment and the files; reads them on the first call.
    ///
    /// # Errors
    ///
    /// Fails with all mistakes in a file.
    pub(crate) fn config(&self) -> Result<&Config, CliError> {
        if let Some(config) = self.trusted.get().or_else(|| self.config.get()) {
            return Ok(config);
        }
        let config = Config::read()?;
        Ok(self.config.get_or_init(|| config))
    }

    /// Returns the settings for a command; `uses` selects the withheld settings that would affect
    /// it. At a terminal, it asks the user whether to trust the folder.
    ///
    /// # Errors
    ///
    /// Also fails when one of the settings needs trust and the user denies it.
    fn config_for(&self, uses: impl Fn(&WithheldSetting) -> bool) -> Result<&Config, CliError> {
        let config = self.config()?;
        let Err(refused) = config.check_trust(uses) else { return Ok(config) };
        if !self.can_ask() || !ask::ask_about_folder(config.withheld())? {
            return Err(refused);
        }
        let config = Config::read()?;
        config.check_trust(|_| true)?;
        Ok(self.trusted.get_or_init(|| config))
    }

    /// Returns the database, for a command that only shows runs.
    ///
    /// # Errors
    ///
    /// Fails when the flag, or else the environment or the file, names an unsupported database.
    pub(crate) fn database_to_read(&self) -> Result<Database, CliError> {
        self.named_database().map(Database::read_only)
    }

    /// Returns the database that is named, as [`database_to_read`](Self::database_to_read) does, without a check.
    fn named_database(&self) -> Result<Database, CliError> {
        let database = match &self.db {
            Some(url) => Database::parse(url, "--db")?,
            None => match self.config_for(|it| it.name == "db")?.get("db") {
                Some(it) => Database::parse(&it.text, &it.layer)?.implied(it.is_untrusted),
                None => Database::of_the_folder()?,
            },
        };
        Ok(database.with_memory_flag(self.memory.as_ref()))
    }

    /// Returns the memory across runs, for a command that only shows it.
    ///
    /// # Errors
    ///
    /// Fails when the flag, or else the environment or the file, names an unsupported database.
    pub(crate) fn memory_to_read(&self) -> Result<Database, CliError> {
        self.named_memory().map(Database::read_only)
    }

    /// Returns the memory that is named, as [`memory_to_read`](Self::memory_to_read) does, without a check.
    fn named_memory(&self) -> Result<Database, CliError> {
        if let Some(url) = &self.memory {
            return Database::parse(url, "--memory");
        }
        Ok(match self.config_for(|it| it.name == "memory")?.get("memory") {
            Some(it) => Database::parse(&it.text, &it.layer)?.implied(it.is_untrusted),
            None => Database::memory_of_the_folder()?,
        })
    }

    /// Returns the memory across runs.
    ///
    /// # Errors
    ///
    /// Fails as [`memory_to_read`](Self::memory_to_read) does, and when the memory of the folder is not the user's.
    pub(crate) fn memory(&self) -> Result<Database, CliError> {
        let memory = self.named_memory()?;
        if let Some(path) = memory.file_of_folder()
            && let Some(untrusted) = UntrustedFile::find(path)?
            && !(self.can_ask() && ask::ask_about_database(path, untrusted, DatabaseKind::Memory)?)
        {
            return Err(untrusted.refusal(path, DatabaseKind::Memory));
        }
        Ok(memory)
    }

    /// Returns the database.
    ///
    /// # Errors
    ///
    /// Fails as [`database_to_read`](Self::database_to_read) does, and when the database of the
    /// folder is not the user's.
    pub(crate) fn database(&self) -> Result<Database, CliError> {
        let database = self.named_database()?;
        if let Some(path) = database.file_of_folder()
            && let Some(untrusted) = UntrustedFile::find(path)?
            && !(self.can_ask() && ask::ask_about_database(path, untrusted, DatabaseKind::Runs)?)
        {
            return Err(untrusted.refusal(path, DatabaseKind::Runs));
        }
        Ok(database)
    }

    /// Returns the settings of a run: its options, completed by the environment and the file.
    ///
    /// # Errors
    ///
    /// Fails with every invalid value, and the layer it came from.
    pub(crate) fn settings(&self, options: &RunOptions) -> Result<Settings, CliError> {
        // A flag may replace the database; otherwise, `database` checks it.
        let config = self.config_for(|it| !["db", "memory"].contains(&it.name.as_str()))?;
        let is_cost_limited = options.max_cost.is_some() || config.is_cost_limited;
        Ok(Settings {
            untrusted: config.untrusted_limits(options),
            trusted_prices: is_cost_limited.then(|| config.trusted_prices.clone().into()),
            options: config.complete(options)?,
            // An untrusted file could set prices that are too low for the limit.
            prices: if is_cost_limited {
                config.trusted_prices.clone().or(&config.prices).into()
            } else {
                config.prices.clone().into()
            },
            windows: config.windows.clone().into(),
            providers: Arc::clone(&config.providers),
            base_url: config.get("base_url").map(|it| it.text.clone()),
            hosts: config.hosts.clone(),
        })
    }

    /// Returns the settings of a run that is planned and not started: nothing needs trust.
    ///
    /// # Errors
    ///
    /// Fails with every invalid value, and the layer it came from.
    pub(crate) fn settings_to_plan(&self) -> Result<Settings, CliError> {
        let config = self.config()?;
        Ok(Settings {
            options: config.complete(&RunOptions::default())?,
            prices: config.prices.clone().into(),
            windows: config.windows.clone().into(),
            providers: Arc::clone(&config.providers),
            base_url: config.get("base_url").map(|it| it.text.clone()),
            ..Settings::default()
        })
    }

    /// Returns the engine of a command, with the configured lease.
    ///
    /// # Errors
    ///
    /// Fails when the configured lease is invalid.
    pub(crate) fn engine(
        &self,
        graph: CompiledGraph,
        checkpointer: Arc<dyn Checkpointer>,
    ) -> Result<Engine, CliError> {
        let engine = Engine::new(graph).with_storage(checkpointer);
        #[cfg(feature = "otel")]
        let engine = engine.with_trace_context(crate::telemetry::trace_context);
        Ok(self.lease()?.into_iter().fold(engine, Engine::with_lease_duration))
    }

    /// Returns the duration of a lease, if it is configured.
    ///
    /// # Errors
    ///
    /// Fails when the value of the environment or the file is not a duration, or too short.
    fn lease(&self) -> Result<Option<Duration>, CliError> {
        let Some(said) = self.config()?.get("lease") else { return Ok(None) };
        match parse_duration(&said.text) {
            Ok(lease) if lease >= LEASE_MIN => Ok(Some(lease)),
            _ => {
                let message = format!(
                    "{} is `{}`, which is not a duration for a lease",
                    said.layer, said.text
                );
                Err(CliError::setting(&said.layer, message)
                    .with_help("write a duration of 100ms or more, as in `15s` or `1m`"))
            }
        }
    }

    /// Returns the error for the result of a run that cannot be written to stdout. The run itself is saved, so the
    /// error names the command that prints the result.
    pub(crate) fn unwritten(
        &self,
        name: &str,
        status: Status,
        database: &Database,
        source: io::Error,
    ) -> CliError {
        let is = status.as_str();
        let message = format!("run {name} is {is}, but its result cannot be written to stdout");
        let (verb, flag) = match self.output {
            Output::Json => ("runs show", " --output json"),
            Output::Jsonl => ("runs events", " --output jsonl"),
            _ => ("runs show", ""),
        };
        let help = database.command(verb, name).map(|it| format!("to print it: {it}{flag}"));
        let unwritten = CliError::new(Exit::Unusable, message).because(source);
        help.into_iter().fold(unwritten, CliError::with_help)
    }

    /// Returns whether a person can answer a question at the terminal. The form of progress does not matter.
    pub(crate) fn can_ask(&self) -> bool {
        self.can_type() && !self.terminal_env.is_ci
    }

    /// Returns whether a person types at a terminal.
    pub(crate) fn can_type(&self) -> bool {
        self.terminal_env.stdin_is_terminal && self.terminal_env.stderr_is_terminal
    }

    /// Returns whether drawings must avoid line-drawing characters.
    pub(crate) fn is_ascii_only(&self) -> bool {
        self.terminal_env.is_dumb
    }

    /// Refuses a format that a command does not support.
    ///
    /// # Errors
    ///
    /// Fails when `--output` is not among `forms`.
    pub(crate) fn expect_output(&self, command: &str, forms: &[Output]) -> Result<(), CliError> {
        if forms.contains(&self.output) {
            return Ok(());
        }
        let names: Vec<String> = forms.iter().map(|it| format!("`{}`", it.name())).collect();
        Err(CliError::usage(format!("`graphrun {command}` has no output `{}`", self.output.name()))
            .with_help(format!("it prints {}", alternatives(&names))))
    }
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Sarif => "sarif",
            Self::Github => "github",
        }
    }
}

fn progress(flag: ProgressFlag, output: Output, around: TerminalEnv) -> Progress {
    let is_live = around.stderr_is_terminal && !around.is_dumb && !around.is_logging;
    match flag {
        ProgressFlag::None => Progress::Silent,
        ProgressFlag::Plain => Progress::Plain,
        // A tree needs a terminal, even if the flag requests it.
        ProgressFlag::Tty if is_live => Progress::Tree,
        ProgressFlag::Tty => Progress::Plain,
        // The events themselves are on the screen already.
        ProgressFlag::Auto
            if output == Output::Jsonl
                && around.stdout_is_terminal
                && around.stderr_is_terminal =>
        {
            Progress::Silent
        }
        ProgressFlag::Auto if is_live && !around.is_ci => Progress::Tree,
        ProgressFlag::Auto => Progress::Plain,
    }
}

fn colours(flag: ColorFlag, is_terminal: bool, around: TerminalEnv) -> bool {
    match flag {
        ColorFlag::Always => true,
        ColorFlag::Never => false,
        ColorFlag::Auto => is_terminal && !around.no_color && !around.is_dumb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERSON: TerminalEnv = TerminalEnv {
        stdin_is_terminal: true,
        stdout_is_terminal: true,
        stderr_is_terminal: true,
        is_ci: false,
        is_dumb: false,
        no_color: false,
        is_logging: false,
    };

    #[test]
    fn progress_is_a_tree_only_where_a_person_watches() {
        use ProgressFlag::{Auto, None, Plain, Tty};
        let piped = TerminalEnv { stderr_is_terminal: false, ..PERSON };
        let result_piped = TerminalEnv { stdout_is_terminal: false, ..PERSON };
        let ci = TerminalEnv { is_ci: true, ..PERSON };
        let dumb = TerminalEnv { is_dumb: true, ..PERSON };
        let logging = TerminalEnv { is_logging: true, ..PERSON };
        let cases = [
            (Auto, Output::Text, PERSON, Progress::Tree),
            (Auto, Output::Json, result_piped, Progress::Tree),
            (Auto, Output::Text, piped, Progress::Plain),
            (Auto, Output::Text, ci, Progress::Plain),
            (Auto, Output::Text, dumb, Progress::Plain),
            (Tty, Output::Text, logging, Progress::Plain),
            (Auto, Output::Jsonl, PERSON, Progress::Silent),
            (Auto, Output::Jsonl, result_piped, Progress::Tree),
            (Tty, Output::Text, ci, Progress::Tree),
            (Tty, Output::Text, piped, Progress::Plain),
            (Plain, Output::Text, PERSON, Progress::Plain),
            (None, Output::Text, PERSON, Progress::Silent),
        ];
        for (flag, output, around, expected) in cases {
            assert_eq!(progress(flag, output, around), expected, "{flag:?} {output:?} {around:?}");
        }
    }

    #[test]
    fn no_color_turns_colours_off_unless_they_are_asked_for() {
        let no_color = TerminalEnv { no_color: true, ..PERSON };
        assert!(colours(ColorFlag::Auto, true, PERSON));
        assert!(!colours(ColorFlag::Auto, false, PERSON));
        assert!(!colours(ColorFlag::Auto, true, no_color));
        assert!(!colours(ColorFlag::Never, true, PERSON));
        assert!(colours(ColorFlag::Always, false, no_color));
    }

    #[test]
    fn questions_need_a_terminal_on_both_sides() {
        let globals = |around| Globals::new(GlobalArgs::default(), around);
        assert!(globals(PERSON).can_ask());
        assert!(!globals(TerminalEnv { stdin_is_terminal: false, ..PERSON }).can_ask());
        assert!(!globals(TerminalEnv { stderr_is_terminal: false, ..PERSON }).can_ask());
    }
}
