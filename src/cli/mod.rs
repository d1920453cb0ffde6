//! The `graphrun` program. Only this module prints.
//!
//! Start with [`main`], then read `commands::execute`. `run::prepare` loads and connects a workflow, `run::new_run` makes its
//! engine, and `run::drive` runs it at a terminal.
//!
//! - `commands`: a file for each command.
//! - `arguments`: flags and values of the command line, and `settings`: the configuration file, the environment, the database.
//! - `run`: a run from the choice of its models to its end, and `recording`: the parts of a run that is recorded or
//!   replayed.
//! - `people`: questions and answers.
//! - `allow`: what the operator allows a workflow.
//! - `output`: all that is printed.
//! - `process`: the threads, signals, limits and logs of the process.

mod allow;
mod arguments;
mod commands;
mod error;
mod exit;
mod output;
mod people;
mod process;
mod recording;
mod run;
mod settings;

use std::{env, process::ExitCode, sync::OnceLock};

use clap::{CommandFactory, Parser};
use graphrun_workflow::Registry;

use self::{
    arguments::globals::{GlobalArgs, Globals},
    error::CliError,
    exit::Exit,
    output::{
        terminal::{Paint, columns, print_message},
        terminal_env::TerminalEnv,
    },
};

/// Runs graphs of agents over a typed state, checked before the first token and saved at every step
#[derive(Debug, Parser)]
#[command(name = "graphrun", version, after_help = format!("{}\n\n{}", exit::TABLE, arguments::globals::VARIABLES))]
struct Cli {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(subcommand)]
    command: commands::Command,
}

/// Returns the definition of the command line, for tools such as generators of pages.
///
/// ```
/// let line = ["graphrun", "validate", "review.yaml"];
/// assert!(graphrun::cli::command().try_get_matches_from(line).is_ok());
/// ```
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line with the [built-in](crate::registry) nodes, tools, reducers and states.
pub fn main() -> ExitCode {
    main_with(crate::registry())
}

/// Runs the command line of a program of your own: every command, with the nodes, tools, reducers and states that you
/// registered.
///
/// ```no_run
/// use std::{process::ExitCode, sync::Arc};
///
/// use graphrun::{graph::node_fn, prelude::*};
///
/// async fn nothing(_: (), _: NodeContext) -> Result<(), NodeError> {
///     Ok(())
/// }
///
/// fn main() -> ExitCode {
///     graphrun::cli::main_with(graphrun::registry().node("nothing", Arc::new(node_fn(nothing))))
/// }
/// ```
pub fn main_with(registry: Registry) -> ExitCode {
    if let Err(error) = process::resources::check_limits() {
        return report(&error, Paint::new(false)).into();
    }
    process::secrets::protect_secrets();
    let terminal_env = TerminalEnv::look();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, terminal_env).into(),
    };
    let log_filter = cli.globals.log.clone();
    let globals = Globals::new(cli.globals, terminal_env);
    output::terminal::allow_colours(globals.stdout, globals.stderr);
    #[cfg(feature = "otel")]
    let connection = process::telemetry::connect(globals.stderr);
    #[cfg(feature = "otel")]
    let layer = connection.as_ref().map(process::telemetry::layer);
    #[cfg(not(feature = "otel"))]
    let layer = None;
    let begun = begin(log_filter.as_deref(), layer).and_then(|()| register(registry, &globals));
    let exit = match begun.and_then(|()| cli.command.run(&globals)) {
        Ok(exit) => exit,
        Err(error) => {
            let exit = report(&error, globals.stderr);
            // The exit code is that of the first error.
            if let Err(unwritten) = output::left::print_left(&error, globals.output) {
                report(&unwritten, globals.stderr);
            }
            exit
        }
    };
    #[cfg(feature = "otel")]
    process::telemetry::close(connection, globals.stderr);
    exit.into()
}

/// Keeps the parts of this program, with the providers that the user configured.
///
/// # Errors
///
/// Fails if the command line runs already in this process.
fn register(registry: Registry, globals: &Globals) -> Result<(), CliError> {
    // A command that needs the configuration reports its mistakes.
    let configured = globals.config().ok().map(run::models::providers_at_their_addresses);
    let registry = match configured {
        Some(providers) => registry.providers(providers),
        None => registry,
    };
    let set = REGISTRY.set(registry);
    set.map_err(|_| CliError::usage("the command line runs already in this process"))
}

/// The nodes, tools, reducers and states of this program.
static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Returns the nodes, tools, reducers and states of this program.
fn registry() -> Registry {
    REGISTRY.get_or_init(crate::registry).clone()
}

/// Prints help, or an error of the command line, which may contain a key.
fn refuse(error: &clap::Error, terminal_env: TerminalEnv) -> Exit {
    let globals = Globals::new(GlobalArgs::of_unparsed(env::args_os()), terminal_env);
    output::terminal::allow_colours(globals.stdout, globals.stderr);
    let draw = |paint: Paint| {
        let text = error.render();
        if paint.is_enabled() { text.ansi().to_string() } else { text.to_string() }
    };
    if error.use_stderr() {
        print_message(draw(globals.stderr).trim_end());
        return Exit::Usage;
    }
    match output::terminal::print_result(&draw(globals.stdout)) {
        Ok(()) => Exit::Done,
        Err(error) => report(&CliError::write(error), globals.stderr),
    }
}

/// Sets up what the environment asks for, for every command.
fn begin(
    log_filter: Option<&str>,
    telemetry: Option<process::log::BoxedLayer>,
) -> Result<(), CliError> {
    #[cfg(feature = "failpoints")]
    process::faults::plan()?;
    settings::environment::check()?;
    process::data_limits::set_from_environment()?;
    process::log::start(log_filter, telemetry)
}

/// Prints an error and returns its exit code.
fn report(error: &CliError, paint: Paint) -> Exit {
    print_message(&error.draw(paint, columns()));
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in [
            "graphrun --db memory: --output json execute w.yaml",
            "graphrun execute w.yaml --db memory: --output json",
            "graphrun runs --db memory: list --output json",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let globals = Globals::new(cli.globals, TerminalEnv::default());
            assert_eq!(globals.output, arguments::globals::Output::Json, "{line}");
            assert_eq!(
                globals.database().unwrap(),
                settings::database::Database::parse("memory:", "--db").unwrap()
            );
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "graphrun",
            "graphrun fly",
            "graphrun execute",
            "graphrun execute w.yaml --record a --replay b",
            "graphrun execute w.yaml -i brief",
            "graphrun execute w.yaml --max-steps 0",
            "graphrun execute w.yaml --timeout soon",
            "graphrun execute w.yaml --run-id a/b",
            "graphrun execute w.yaml --output yaml",
            "graphrun resume",
            "graphrun resume x --answer key",
            "graphrun validate",
            "graphrun fmt",
            "graphrun plan",
            "graphrun schema",
            "graphrun schema state",
            "graphrun init nothing",
            "graphrun runs state x@last",
            "graphrun runs diff",
            "graphrun fork",
            "graphrun migrate x",
            "graphrun migrate x w.yaml --map a",
            "graphrun migrate x w.yaml --map a=",
            "graphrun migrate x w.yaml --drop 1",
            "graphrun fork x@y",
            "graphrun fork x --set brief",
            "graphrun runs update x --set brief",
            "graphrun runs diff x@1 x@",
            "graphrun runs verify x --expect abc",
            "graphrun runs verify --expect 00",
            "graphrun trust --list --yes",
            "graphrun trust --revoke --yes",
            "graphrun trust . --list",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert!(error.use_stderr() && error.exit_code() == 2, "{line}");
        }
    }
}
