//! The flags that every command takes, and what they mean in these surroundings.

use std::{cell::OnceCell, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    config::{Config, Withheld},
    database::Database,
    error::CliError,
    known_databases::Stranger,
    options::{RunOptions, Settings},
    surroundings::Surroundings,
    terminal::Paint,
    trust,
    values::parse_duration,
};
use crate::{checkpoint::Checkpointer, compile::CompiledGraph, engine::Engine};

/// A shorter lease would be over whenever a machine is busy.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// The variables that `--help` of the program tells of.
pub(super) const VARIABLES: &str = "\
Environment:
  GRAPHRUN_DB     where runs are kept, if `--db` does not say so
  GRAPHRUN_LEASE  how long a run stays with a process that is silent, as in `15s`, which it is
                  unless said; every process of one database should say the same
  GRAPHRUN_LOG    what to log on stderr, as in `graphrun=debug`
  GRAPHRUN_MODEL, GRAPHRUN_MAX_STEPS, GRAPHRUN_MAX_TOKENS, GRAPHRUN_MAX_COST, GRAPHRUN_TIMEOUT
                  as the flags of `execute` that are called so, where no flag says otherwise
  GRAPHRUN_LIMIT_VALUE_DEPTH, GRAPHRUN_LIMIT_INPUT_BYTES and others
                  limits on the size of data (docs/configuration.md)

What neither a flag nor the environment says is read from `graphrun.toml` in the current folder,
and then from your own `~/.config/graphrun/config.toml`: where runs are kept, the model, limits,
and what models cost (docs/configuration.md). `graphrun trust` lets a folder's file set the rest.";

/// The flags that may stand before or after the command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct GlobalArgs {
    /// Where runs are kept: `sqlite:PATH`, `postgres://…` or `memory:`
    ///
    /// Without it `GRAPHRUN_DB` says so, and without that runs are kept in
    /// `sqlite:.graphrun/runs.db`.
    #[arg(long, global = true, value_name = "URL")]
    db: Option<String>,
    /// How progress is shown on stderr
    #[arg(long, global = true, value_enum, value_name = "HOW", default_value_t)]
    progress: ProgressFlag,
    /// In which form the result is printed on stdout
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t)]
    output: Output,
    /// When to use colours; `auto` honours `NO_COLOR`
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: ColorFlag,
}

/// In which form the result is printed on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line: the events, as they happen.
    Jsonl,
    /// Findings as a SARIF 2.1.0 log, for code scanning (`validate`).
    Sarif,
    /// Findings as workflow commands of GitHub Actions (`validate`).
    Github,
}

/// How progress is to be shown.
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

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A live tree.
    Tree,
    /// One line per event.
    Plain,
    /// Not at all.
    Silent,
}

/// What the flags mean here.
#[derive(Debug)]
pub(super) struct Globals {
    /// In which form the result is printed.
    pub(super) output: Output,
    /// How progress is shown.
    pub(super) progress: Progress,
    /// The colours of results.
    pub(super) stdout: Paint,
    /// The colours of everything else.
    pub(super) stderr: Paint,
    surroundings: Surroundings,
    db: Option<String>,
    config: OnceCell<Config>,
    /// The configuration as it is since the user trusted the folder at the terminal.
    trusted: OnceCell<Config>,
}

impl Globals {
    /// Reads the flags in these surroundings.
    pub(super) fn new(args: GlobalArgs, surroundings: Surroundings) -> Self {
        let paint = |is_terminal| Paint::new(colours(args.color, is_terminal, surroundings));
        Self {
            output: args.output,
            progress: progress(args.progress, args.output, surroundings),
            stdout: paint(surroundings.stdout_is_terminal),
            stderr: paint(surroundings.stderr_is_terminal),
            surroundings,
            db: args.db,
            config: OnceCell::new(),
            trusted: OnceCell::new(),
        }
    }

    /// What the environment and the files say, read when it is first asked for.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong with a file.
    pub(super) fn config(&self) -> Result<&Config, CliError> {
        if let Some(config) = self.trusted.get().or_else(|| self.config.get()) {
            return Ok(config);
        }
        let config = Config::read()?;
        Ok(self.config.get_or_init(|| config))
    }

    /// The same, for a use that these settings of the folder's file would change. At a terminal the user is asked whether
    /// to trust the folder.
    ///
    /// # Errors
    ///
    /// Fails also when one of the settings needs trust that the user does not give.
    fn config_for(&self, uses: impl Fn(&Withheld) -> bool) -> Result<&Config, CliError> {
        let config = self.config()?;
        let Err(refused) = config.check_trust(uses) else { return Ok(config) };
        if !self.can_ask() || !trust::ask(config.withheld())? {
            return Err(refused);
        }
        let config = Config::read()?;
        config.check_trust(|_| true)?;
        Ok(self.trusted.get_or_init(|| config))
    }

    /// The place of runs, for a command that only shows them.
    ///
    /// # Errors
    ///
    /// Fails when the flag, or else the environment or the file, names something this version does not know.
    pub(super) fn database_to_read(&self) -> Result<Database, CliError> {
        if let Some(url) = &self.db {
            return Database::parse(url, "--db");
        }
        Ok(match self.config_for(|it| it.name == "db")?.get("db") {
            Some(it) => Database::parse(&it.text, &it.layer)?.implied(it.is_untrusted),
            None => Database::of_the_folder()?,
        })
    }

    /// The place of runs.
    ///
    /// # Errors
    ///
    /// Fails as [`database_to_read`](Self::database_to_read) does, and when the folder has a database that is not the
    /// user's.
    pub(super) fn database(&self) -> Result<Database, CliError> {
        let database = self.database_to_read()?;
        if let Some(path) = database.file_of_folder()
            && let Some(stranger) = Stranger::find(path)?
            && !(self.can_ask() && trust::ask_about_database(path, stranger)?)
        {
            return Err(stranger.refusal(path));
        }
        Ok(database)
    }

    /// How a run runs: its options, and where they say nothing, what the environment and the file say.
    ///
    /// # Errors
    ///
    /// Fails with every value that cannot be, and the layer it came from.
    pub(super) fn settings(&self, options: &RunOptions) -> Result<Settings, CliError> {
        // A flag may have replaced the database; `database` checks it where none has.
        let config = self.config_for(|it| it.name != "db")?;
        let is_cost_limited = options.max_cost.is_some() || config.is_cost_limited;
        Ok(Settings {
            untrusted: config.untrusted_limits(options),
            trusted_prices: is_cost_limited.then(|| config.trusted_prices.clone().into()),
            options: config.complete(options)?,
            prices: config.prices.clone().into(),
            base_url: config.get("base_url").map(|it| it.text.clone()),
        })
    }

    /// The settings of a run that is planned and not started: nothing needs trust.
    ///
    /// # Errors
    ///
    /// Fails with every value that cannot be, and the layer it came from.
    pub(super) fn settings_to_plan(&self) -> Result<Settings, CliError> {
        let config = self.config()?;
        Ok(Settings {
            options: config.complete(&RunOptions::default())?,
            prices: config.prices.clone().into(),
            ..Settings::default()
        })
    }

    /// The engine of a command, with what is set for all of them.
    ///
    /// # Errors
    ///
    /// Fails when the lease that is set is none.
    pub(super) fn engine(
        &self,
        graph: CompiledGraph,
        checkpointer: Arc<dyn Checkpointer>,
    ) -> Result<Engine, CliError> {
        let engine = Engine::new(graph, checkpointer);
        Ok(self.lease()?.into_iter().fold(engine, Engine::with_lease))
    }

    /// How long a run stays with a process that is silent, if somebody says so.
    ///
    /// # Errors
    ///
    /// Fails when the environment or the file names no duration, or one that is too short.
    fn lease(&self) -> Result<Option<Duration>, CliError> {
        let Some(said) = self.config()?.get("lease") else { return Ok(None) };
        match parse_duration(&said.text) {
            Ok(lease) if lease >= LEASE_MIN => Ok(Some(lease)),
            _ => {
                let message =
                    format!("{} is `{}`, which is no time for a lease", said.layer, said.text);
                Err(CliError::usage(message)
                    .with_help("write a duration of 100ms or more, as in `15s` or `1m`"))
            }
        }
    }

    /// Whether somebody can be asked right here.
    pub(super) fn can_ask(&self) -> bool {
        self.surroundings.stdin_is_terminal && self.progress == Progress::Tree
    }

    /// Whether a person types at a terminal.
    pub(super) fn can_type(&self) -> bool {
        self.surroundings.stdin_is_terminal && self.surroundings.stderr_is_terminal
    }

    /// Whether drawings should do without line-drawing characters.
    pub(super) fn is_ascii_only(&self) -> bool {
        self.surroundings.is_dumb
    }

    /// Refuses a form of output that a command does not have.
    ///
    /// # Errors
    ///
    /// Fails when `--output` is not among `forms`.
    pub(super) fn expect_output(&self, command: &str, forms: &[Output]) -> Result<(), CliError> {
        if forms.contains(&self.output) {
            return Ok(());
        }
        let names: Vec<String> = forms.iter().map(|it| format!("`{}`", it.name())).collect();
        Err(CliError::usage(format!("`graphrun {command}` has no output `{}`", self.output.name()))
            .with_help(format!("it prints {}", names.join(" or "))))
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

fn progress(flag: ProgressFlag, output: Output, around: Surroundings) -> Progress {
    let is_live = around.stderr_is_terminal && !around.is_dumb && !around.is_logging;
    match flag {
        ProgressFlag::None => Progress::Silent,
        ProgressFlag::Plain => Progress::Plain,
        // A tree cannot be drawn on what is no terminal, whoever asks for it.
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

fn colours(flag: ColorFlag, is_terminal: bool, around: Surroundings) -> bool {
    match flag {
        ColorFlag::Always => true,
        ColorFlag::Never => false,
        ColorFlag::Auto => is_terminal && !around.no_color && !around.is_dumb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERSON: Surroundings = Surroundings {
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
        let piped = Surroundings { stderr_is_terminal: false, ..PERSON };
        let result_piped = Surroundings { stdout_is_terminal: false, ..PERSON };
        let ci = Surroundings { is_ci: true, ..PERSON };
        let dumb = Surroundings { is_dumb: true, ..PERSON };
        let logging = Surroundings { is_logging: true, ..PERSON };
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
        let no_color = Surroundings { no_color: true, ..PERSON };
        assert!(colours(ColorFlag::Auto, true, PERSON));
        assert!(!colours(ColorFlag::Auto, false, PERSON));
        assert!(!colours(ColorFlag::Auto, true, no_color));
        assert!(!colours(ColorFlag::Never, true, PERSON));
        assert!(colours(ColorFlag::Always, false, no_color));
    }

    #[test]
    fn nobody_is_asked_where_nobody_can_type_or_see() {
        let globals = |around| Globals::new(GlobalArgs::default(), around);
        assert!(globals(PERSON).can_ask());
        assert!(!globals(Surroundings { stdin_is_terminal: false, ..PERSON }).can_ask());
        assert!(!globals(Surroundings { stderr_is_terminal: false, ..PERSON }).can_ask());
    }
}
