//! `graphrun doctor`: checks the requirements of runs on this machine. It tries everything and
//! guesses nothing.

use std::{
    env,
    error::Error,
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    config::{Config, FILE, Withheld},
    database::Database,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    prepare::cache_dir,
    runtime::block_on,
    terminal::{Paint, print_result},
    words::{clean, count, table},
};
use crate::{
    graph::{ErrorKind, Failure},
    llm::{PROVIDERS, Provider},
    sandbox::{Job, Outcome, PythonEnvironment, Sandbox},
};

/// The time limit for connecting to a model server on this machine.
const CONNECT_TIME: Duration = Duration::from_millis(200);

/// Check the sandbox, Python, models and the database on this machine
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// The check of one requirement of `execute`.
#[derive(Debug, PartialEq, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// The version or the location, or the problem.
    detail: String,
    /// The remedy.
    help: Option<String>,
}

impl Args {
    /// Runs all checks and prints a table; the exit code tells whether `execute` can run.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        let Self {} = self;
        globals.expect_output("doctor", &[Output::Text, Output::Json])?;
        block_on(async {
            let probed = Sandbox::probe();
            let python = match &probed {
                Ok(sandbox) => python(sandbox).await,
                Err(_) => Check::bad("python", "not checked without a sandbox"),
            };
            let config = globals.config();
            let base_url = config.as_ref().is_ok_and(|it| it.get("base_url").is_some());
            let is_set = |name: &str| {
                let is_said = name == "OPENAI_BASE_URL" && base_url;
                is_said || env::var_os(name).is_some_and(|it| !it.is_empty())
            };
            let checks = [
                sandbox(&probed),
                python,
                models(&is_set, &listens),
                database(globals.database_to_read()),
                configuration(config),
            ];
            let text = match globals.output {
                Output::Json => to_json(&checks)?,
                Output::Text | Output::Jsonl | Output::Sarif | Output::Github => {
                    draw(&checks, globals.stdout)
                }
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(if checks.iter().all(|it| it.ok) { Exit::Done } else { Exit::Unusable })
        })
    }
}

impl Check {
    fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), help: None }
    }

    fn bad(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), help: None }
    }

    fn help(self, help: Option<impl Into<String>>) -> Self {
        Self { help: help.map(Into::into), ..self }
    }
}

fn sandbox(probed: &Result<Sandbox, crate::sandbox::SandboxError>) -> Check {
    match probed {
        Ok(_) => Check::good("sandbox", "namespaces, no network, system call filter, limits"),
        Err(error) => Check::bad("sandbox", error.to_string()).help(error.hint()),
    }
}

/// Creates an environment and runs its interpreter in the sandbox for generated code.
async fn python(sandbox: &Sandbox) -> Check {
    let cache = cache_dir();
    let environment = match PythonEnvironment::prepare(&[], &cache).await {
        Ok(environment) => environment,
        Err(error) => {
            let problem = format!("{} (the cache is `{}`)", causes(&error), cache.display());
            return Check::bad("python", problem).help(error.hint());
        }
    };
    let job = Job {
        argv: vec![environment.python().to_owned(), "--version".to_owned()],
        read_only: environment.mounts().to_vec(),
        ..Job::default()
    };
    match sandbox.run(&job, &CancellationToken::new()).await {
        Ok(finished) if finished.outcome == Outcome::Passed => {
            Check::good("python", format!("{} in the sandbox", finished.output.trim()))
        }
        Ok(finished) => Check::bad("python", format!("it does not start: {}", finished.output)),
        Err(error) => Check::bad("python", causes(&error)).help(error.hint()),
    }
}

/// Returns an error with all of its causes, in one line.
fn causes(error: &dyn Error) -> String {
    Failure::of(ErrorKind::Sandbox, error).message
}

/// Checks which providers have a key, and which local servers accept connections. Keys are never
/// shown.
fn models(is_set: &dyn Fn(&str) -> bool, listens: &dyn Fn(&Provider) -> bool) -> Check {
    let found: Vec<String> = PROVIDERS
        .iter()
        .filter_map(|provider| {
            let Provider { name, key_variable, .. } = provider;
            if provider.is_own {
                return listens(provider).then(|| format!("{name} (reachable)"));
            }
            is_set(key_variable).then(|| format!("{name} ({key_variable} is set)"))
        })
        .collect();
    if !found.is_empty() {
        return Check::good("models", found.join(", "));
    }
    if is_set("OPENAI_BASE_URL") {
        return Check::good("models", "your own server (its address is set)");
    }
    Check::bad(
        "models",
        "no provider has a key, and no model server on this machine is \
                          reachable",
    )
    .help(Some(
        "set OPENAI_API_KEY or the variable of another provider; recordings need none \
              (`--replay`)",
    ))
}

/// Returns whether a local server accepts a connection.
fn listens(provider: &Provider) -> bool {
    let authority = provider.base_url.split('/').nth(2).unwrap_or_default();
    let addresses = authority.to_socket_addrs().into_iter().flatten();
    addresses.into_iter().any(|it| TcpStream::connect_timeout(&it, CONNECT_TIME).is_ok())
}

/// Checks whether runs can be saved. Creates nothing.
fn database(database: Result<Database, CliError>) -> Check {
    match database.and_then(|it| it.survey()) {
        Ok(found) => Check::good("database", found),
        Err(error) => refused("database", error),
    }
}

/// Checks the settings of the environment and the files, and whether the folder is trusted.
fn configuration(config: Result<&Config, CliError>) -> Check {
    let config = match config {
        Ok(config) => config,
        Err(error) => return refused("settings", error),
    };
    if !config.withheld().is_empty() {
        let list: Vec<String> = config.withheld().iter().map(Withheld::shown).collect();
        return Check::bad("settings", format!("`{FILE}` is not trusted: {}", list.join("; ")))
            .help(Some("remove it from the file, or read the file and run `graphrun trust`"));
    }
    let mut parts = config.files().to_vec();
    if parts.is_empty() {
        parts.push(format!("no `{FILE}` here"));
    }
    parts.extend(config.shown());
    let (prices, context) = (config.prices.len(), config.context.len());
    let models = |many: usize| count(many.try_into().unwrap_or(u64::MAX), "model");
    parts.extend((prices > 0).then(|| format!("prices of {}", models(prices))));
    parts.extend((context > 0).then(|| format!("the context of {}", models(context))));
    Check::good("settings", parts.join("; "))
}

/// Converts the error of a command into a failed check; the remedy goes into the help column.
fn refused(name: &'static str, error: CliError) -> Check {
    let (error, help) = error.split_help();
    let text = error.draw(Paint::new(false), usize::MAX);
    let help = (!help.is_empty()).then(|| help.join("; "));
    Check::bad(name, text.trim_start_matches("error: ").to_owned()).help(help)
}

fn draw(checks: &[Check], paint: Paint) -> String {
    let rows: Vec<Vec<String>> = checks
        .iter()
        .map(|it| {
            let verdict = if it.ok { paint.good("ok") } else { paint.bad("missing") };
            vec![it.name.to_owned(), verdict, clean(&it.detail)]
        })
        .collect();
    let remedies = checks.iter().filter_map(|it| {
        Some(format!("{} {}: {}\n", paint.command("help:"), it.name, it.help.as_ref()?))
    });
    table(&rows) + &remedies.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::SandboxError;

    #[test]
    fn a_problem_is_shown_with_its_remedy() {
        let checks = [
            Check::good("sandbox", "namespaces"),
            Check::bad("models", "no key").help(Some("set OPENAI_API_KEY")),
        ];
        insta::assert_snapshot!(draw(&checks, Paint::new(false)), @r"
        sandbox  ok       namespaces
        models   missing  no key
        help: models: set OPENAI_API_KEY
        ");
    }

    #[test]
    fn a_problem_is_shown_with_its_causes() {
        let source = std::io::Error::other("permission denied");
        let error = SandboxError::Io { attempt: "make the cache", source };
        assert_eq!(causes(&error), "the sandbox failed to make the cache: permission denied");
    }

    #[test]
    fn one_usable_model_is_enough() {
        let nothing = |_: &Provider| false;
        assert!(!models(&|_| false, &nothing).ok);
        assert!(models(&|name| name == "GROQ_API_KEY", &nothing).ok);
        assert!(models(&|name| name == "OPENAI_BASE_URL", &nothing).ok);
        assert!(models(&|_| false, &|provider| provider.name == "ollama").ok);
    }

    #[test]
    fn reading_a_missing_database_does_not_create_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/runs.db");
        let found = Database::parse(&format!("sqlite:{}", path.display()), "--db");
        assert!(database(found).ok);
        assert!(!folder.path().join("deep").exists());
    }
}
