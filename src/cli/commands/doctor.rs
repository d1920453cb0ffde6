//! `graphrun doctor`: checks the requirements of runs on this machine. It tries everything and
//! guesses nothing.

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, count, table},
        },
        process::runtime::block_on,
        run::{
            loaded::{self, LoadedWorkflow},
            run_folders,
        },
        settings::{
            config::{Config, FILE, WithheldSetting},
            database::Database,
            user_folders::{UserFolders, cache_dir},
        },
    },
    folders,
    graph::{ErrorKind, Failure},
    models::Providers,
    sandbox::{Job, ProgramEnd, PythonEnvironment, Sandbox, find_program, find_tool},
    workflow::Program,
};

/// The time limit for connecting to a model server on this machine.
const CONNECT_TIME: Duration = Duration::from_millis(200);

/// Check the sandbox, Python, models, the database and git on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A workflow whose needs are checked, too: programs, hosts, requests, networks, secrets and models
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
}

/// The check of the models of a workflow.
const AGENTS: &str = "agents";

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
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("doctor", &[Output::Text, Output::Json])?;
        block_on(async {
            let probed = Sandbox::probe();
            let python = match &probed {
                Ok(sandbox) => python(sandbox).await,
                Err(_) => Check::bad("python", "not checked without a sandbox"),
            };
            let config = globals.config();
            let providers = config.as_ref().map(|it| Arc::clone(&it.providers)).unwrap_or_default();
            let base_url = config.as_ref().is_ok_and(|it| it.get("base_url").is_some());
            let is_set = |name: &str| {
                let is_said = name == "OPENAI_BASE_URL" && base_url;
                is_said || env::var_os(name).is_some_and(|it| !it.is_empty())
            };
            let mut checks = vec![
                sandbox(&probed).await,
                python,
                models(&providers, &is_set, &listens),
                database(globals.database_to_read()),
                folders(globals.database_to_read()).await,
                configuration(config),
            ];
            if let Some(path) = &self.workflow {
                let more = of_workflow(path, &self.options, globals);
                let has_models = more.iter().any(|it| it.name == AGENTS && it.ok);
                for models in checks.iter_mut().filter(|it| it.name == "models" && has_models) {
                    // The workflow needs the models of its agents, and no others.
                    (models.ok, models.help) = (true, None);
                }
                checks.extend(more);
            }
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

async fn sandbox(probed: &Result<Sandbox, crate::sandbox::SandboxError>) -> Check {
    match probed {
        Ok(sandbox) => {
            let parts = "namespaces, no network, system call filter, limits";
            Check::good("sandbox", format!("{parts}; {}", folders_inside(sandbox).await))
        }
        Err(error) => Check::bad("sandbox", error.to_string()).help(error.hint()),
    }
}

/// Returns how commands get folders: mounted, or as a copy where the kernel or the file system refuses that.
async fn folders_inside(sandbox: &Sandbox) -> String {
    let worktrees = UserFolders::find().worktrees();
    let existing =
        worktrees.as_deref().into_iter().flat_map(Path::ancestors).find(|it| it.is_dir());
    let argv = vec!["/usr/bin/true".to_owned()];
    let mounted = Some(existing.unwrap_or(Path::new("/")).to_owned());
    let job = Job { argv, mounted, ..Job::default() };
    match sandbox.run(&job, &CancellationToken::new()).await {
        Ok(_) => "folders are mounted".to_owned(),
        Err(error) => format!("folders are copied, because {}", causes(&error)),
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
        Ok(finished) if finished.end == ProgramEnd::Exited(0) => {
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
fn models(
    providers: &Providers,
    is_set: &dyn Fn(&str) -> bool,
    listens: &dyn Fn(&str) -> bool,
) -> Check {
    let found: Vec<String> = providers
        .iter()
        .filter_map(|(name, provider)| {
            if !provider.needs_key() {
                let address = provider.base_url.as_deref()?;
                return listens(address).then(|| format!("{name} (reachable)"));
            }
            let key = provider.key_variable.as_deref()?;
            is_set(key).then(|| format!("{name} ({key} is set)"))
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
        "no provider has a key, and no model server on this machine is reachable",
    )
    .help(Some(
        "set OPENAI_API_KEY or the variable of another provider; recordings need none (`--replay`)",
    ))
}

/// Returns whether a server on this machine accepts a connection.
fn listens(address: &str) -> bool {
    let authority = address.split('/').nth(2).unwrap_or_default();
    let addresses = authority.to_socket_addrs().into_iter().flatten();
    let mut addresses = addresses.filter(|it| it.ip().is_loopback());
    addresses.any(|it| TcpStream::connect_timeout(&it, CONNECT_TIME).is_ok())
}

/// Checks whether runs can be saved. Creates nothing.
fn database(database: Result<Database, CliError>) -> Check {
    match database.and_then(|it| it.survey()) {
        Ok(found) => Check::good("database", found),
        Err(error) => refused("database", error),
    }
}

/// Checks git, which only workflows with `folders` need, and names the worktrees and homes without a run.
async fn folders(database: Result<Database, CliError>) -> Check {
    let git = match folders::version().await {
        Ok(version) => format!("git {version}"),
        Err(error) => return Check::good("folders", format!("only without `folders`: {error}")),
    };
    let left_over = async {
        let database = database?;
        let checkpointer = database.open()?;
        run_folders::left_over(&database, checkpointer.as_deref()).await
    };
    // The check of the database reports the reason of an error.
    let left_over = left_over.await.unwrap_or_default();
    let mut details = vec![git];
    let mut help = Vec::new();
    for (what, paths, remedy) in [
        ("worktrees", left_over.worktrees, "git worktree remove --force PATH` in its repository"),
        ("homes of programs", left_over.homes, "chmod -R u+rwX PATH; rm -r PATH`"),
    ] {
        if !paths.is_empty() {
            let list: Vec<String> = paths.iter().map(|it| format!("`{}`", it.display())).collect();
            details.push(format!("{what} without a run: {}", list.join(", ")));
            help.push(format!("remove {what} without a run by `{remedy}"));
        }
    }
    Check::good("folders", details.join("; ")).help((!help.is_empty()).then(|| help.join("; ")))
}

/// Checks what a workflow needs of this machine and of its operator. It starts nothing and records nothing.
fn of_workflow(path: &Path, options: &RunOptions, globals: &Globals) -> Vec<Check> {
    let options = RunOptions { record: None, ..options.clone() };
    let settings = globals.settings(&options);
    let loaded = loaded::load(path).and_then(|it| it.with(settings?));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return vec![refused("workflow", error)],
    };
    let needs = loaded.needs();
    let check = |name, found: Result<BTreeSet<String>, CliError>| match found {
        Ok(found) if found.is_empty() => Check::good(name, "it needs none"),
        Ok(found) => Check::good(name, found.into_iter().collect::<Vec<_>>().join(", ")),
        Err(error) => refused(name, error),
    };
    let hosts = needs.commands().into_iter().map(|it| it.host.name.clone()).collect();
    let requests = needs.requests().into_iter().map(|(_, it)| it.url.origin().to_owned());
    let network = needs.sandboxes().into_iter().flat_map(|it| it.network.iter());
    vec![
        programs(&loaded),
        check("hosts", needs.check_hosts().map(|()| hosts)),
        check("requests", needs.check_requests().map(|()| requests.collect())),
        check(
            "network",
            needs.check_network().map(|()| network.map(ToString::to_string).collect()),
        ),
        check(AGENTS, needs.connect_models().map(|it| it.usable().clone())),
    ]
}

/// Checks that the programs of the agents of a workflow are installed where their places look for them.
fn programs(loaded: &LoadedWorkflow) -> Check {
    let nodes = loaded.workflow.all_nodes();
    let all = || nodes.values().flat_map(|it| it.settings.programs());
    let shown = |program: &Program| {
        let (_, agent) = program.name.split_once('/').unwrap_or_default();
        format!("`{}` of `{agent}`", program.command())
    };
    let named = |programs: BTreeSet<String>| programs.into_iter().collect::<Vec<_>>().join(", ");
    let missing = all().filter(|it| !is_installed(it)).map(shown);
    let missing = named(missing.collect());
    if !missing.is_empty() {
        return Check::bad("programs", format!("not installed: {missing}")).help(Some(
            "install those of a sandbox below `/usr`, those of a host in a folder of `PATH`, or change `command` of the agents",
        ));
    }
    let found = named(all().map(shown).collect());
    let detail = if found.is_empty() { "no agent is a program".to_owned() } else { found };
    Check::good("programs", detail)
}

/// Returns whether the place of a program has it. The packages of a sandbox may have any program before they are
/// installed.
fn is_installed(program: &Program) -> bool {
    let name = program.command();
    let Some(sandbox) = program.sandbox() else {
        return find_program(name, env::var("PATH").ok().as_deref()).is_some();
    };
    let path = Path::new(name);
    let is_tool = !name.contains('/') && find_tool(name).is_some();
    is_tool
        || path.starts_with("/usr") && path.is_file()
        || !sandbox.settings.requirements.is_empty()
}

/// Checks the settings of the environment and the files, and whether the folder is trusted.
fn configuration(config: Result<&Config, CliError>) -> Check {
    let config = match config {
        Ok(config) => config,
        Err(error) => return refused("settings", error),
    };
    if !config.withheld().is_empty() {
        let list: Vec<String> = config.withheld().iter().map(WithheldSetting::shown).collect();
        return Check::bad("settings", format!("`{FILE}` is not trusted: {}", list.join("; ")))
            .help(Some("remove it from the file, or read the file and run `graphrun trust`"));
    }
    let mut parts = config.files().to_vec();
    if parts.is_empty() {
        parts.push(format!("no `{FILE}` here"));
    }
    parts.extend(config.shown());
    let prices = config.price_places.len();
    let context = config.window_places.len();
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
        .map(|check| {
            let verdict = if check.ok { paint.good("ok") } else { paint.bad("missing") };
            vec![check.name.to_owned(), verdict, clean(&check.detail)]
        })
        .collect();
    let remedies = checks.iter().filter_map(|check| {
        Some(format!("{} {}: {}\n", paint.command("help:"), check.name, check.help.as_ref()?))
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
        let providers = Providers::built_in();
        let nothing = |_: &str| false;
        assert!(!models(providers, &nothing, &nothing).ok);
        assert!(models(providers, &|name| name == "GROQ_API_KEY", &nothing).ok);
        assert!(models(providers, &|name| name == "OPENAI_BASE_URL", &nothing).ok);
        assert!(models(providers, &nothing, &|address| address.contains(":11434")).ok);
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
