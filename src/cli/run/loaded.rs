//! Loads, checks and connects a workflow.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::unistd::{AccessFlags, access};

use super::{
    models,
    needs::{Needs, servers},
    report_files::ReportFiles,
};
use crate::{
    cli::{
        allow::network,
        arguments::globals::Globals,
        error::CliError,
        exit::Exit,
        recording,
        settings::{database::Database, run_settings::Settings, user_folders::cache_dir},
    },
    compile::{CompiledGraph, compile},
    diagnostic::Diagnostics,
    mcp::{ServerAccess, Servers},
    memory::Memory,
    nodes::{self, Cache, ModelSource, Services},
    sandbox::Replace,
    tool::McpCaller,
    workflow::{self, LoadError, NodeDefinition, Workflow, case_file::unknown_nodes},
};

/// A loaded workflow with its warnings.
#[derive(Clone, Debug)]
pub(crate) struct LoadedWorkflow {
    path: PathBuf,
    /// The workflow.
    pub(crate) workflow: Workflow,
    warnings: Diagnostics,
    settings: Settings,
}

/// The services that a run of a workflow needs.
pub(crate) struct RunServices {
    models: Arc<dyn ModelSource>,
    /// The cache for results, if a node uses one.
    results: Option<Cache>,
    memory: Memory,
}

/// Makes all static checks, without connecting anything.
///
/// # Errors
///
/// Fails when the workflow cannot be read, or with all diagnostics if one of them is an error.
pub(crate) fn check(path: &Path) -> Result<CompiledGraph, LoadError> {
    let (workflow, warnings) = workflow::load(path, &crate::cli::registry())?;
    let services = services(models::unconnected(), PathBuf::new());
    assemble(workflow, warnings, services, None).map_err(LoadError::Invalid)
}

/// Reads a workflow.
///
/// # Errors
///
/// Fails when it cannot be read, or with all diagnostics if one of them is an error.
pub(crate) fn load(path: &Path) -> Result<LoadedWorkflow, CliError> {
    let (workflow, warnings) =
        workflow::load(path, &crate::cli::registry()).map_err(|it| refuse(path, it))?;
    let settings = Settings::default();
    Ok(LoadedWorkflow { path: path.to_owned(), workflow, warnings, settings })
}

/// Returns the error for a workflow that does not load.
pub(crate) fn refuse(path: &Path, error: LoadError) -> CliError {
    match error {
        LoadError::Read { path, source } => CliError::read(&path, source),
        LoadError::Invalid(diagnostics) => CliError::invalid(path, diagnostics),
    }
}

impl LoadedWorkflow {
    /// Replaces values of the workflow by those of the settings.
    ///
    /// # Errors
    ///
    /// Fails when an untrusted file raises a limit.
    pub(crate) fn with(mut self, settings: Settings) -> Result<Self, CliError> {
        settings.check_limits(&self.workflow.limits)?;
        self.workflow.declared_limits = Some(self.workflow.limits.clone());
        settings.options.limit(&mut self.workflow.limits);
        if let Some(model) = &settings.options.model {
            self.workflow.replace_models(std::slice::from_ref(model));
        }
        Ok(Self { settings, ..self })
    }

    /// Returns the needs of its nodes.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs::of(&self.path, &self.workflow, &self.settings)
    }

    /// Returns the MCP servers; with a recording, its results.
    ///
    /// # Errors
    ///
    /// Fails when the recording cannot be used.
    fn mcp(&self, access: ServerAccess) -> Result<Arc<dyn McpCaller>, CliError> {
        let nodes = self.workflow.all_nodes();
        if servers(nodes.values().copied()).is_empty() {
            return Ok(Services::offline().mcp);
        }
        let servers = || Arc::new(Servers::new(access));
        match (&self.settings.options.replay, &self.settings.options.record) {
            (Some(path), _) => recording::mcp::replayed(path),
            (None, Some(path)) => recording::mcp::recorded(servers(), path),
            (None, None) => Ok(servers()),
        }
    }

    /// Connects the models and the sandbox that its nodes need, before the first node runs.
    ///
    /// # Errors
    ///
    /// Fails when a model or the sandbox cannot be used, or a cost limit cannot be enforced.
    pub(crate) fn connect(&self) -> Result<Arc<dyn ModelSource>, CliError> {
        let needs = self.needs();
        needs.check_sandbox()?;
        needs.check_hosts()?;
        needs.check_requests()?;
        needs.check_network()?;
        Ok(needs.connect_models()?.source)
    }

    /// Checks that the output folder is usable, before the run costs anything.
    ///
    /// # Errors
    ///
    /// Fails when the workflow delivers files and the folder for them cannot be created or written.
    pub(crate) fn check_out(&self, out: &Path) -> Result<(), CliError> {
        let delivers = |it: &NodeDefinition| it.settings.needs_output_dir();
        if !self.workflow.all_nodes().into_values().any(delivers) {
            return Ok(());
        }
        let nearest = out.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
        let problem = if nearest.is_dir() {
            access(nearest, AccessFlags::W_OK | AccessFlags::X_OK).err().map(io::Error::from)
        } else {
            Some(io::Error::from(io::ErrorKind::NotADirectory))
        };
        let Some(problem) = problem else { return Ok(()) };
        let message =
            format!("the run writes files, and `{}` cannot be written", nearest.display());
        Err(CliError::new(Exit::Unusable, message)
            .because(problem)
            .with_help("name another folder with `--out`, or repair this one; nothing was started"))
    }

    /// Makes the remaining checks of a workflow that does not run.
    ///
    /// # Errors
    ///
    /// Fails with all diagnostics if one of them is an error.
    pub(crate) fn compile_only(self) -> Result<CompiledGraph, CliError> {
        let memory = Services::offline().memory;
        let unused = RunServices { models: models::unconnected(), results: None, memory };
        self.compile(unused, Path::new(""))
    }

    /// Returns the services of a run with connected models.
    ///
    /// # Errors
    ///
    /// Fails when the database, the memory or the recording cannot be used.
    pub(crate) fn services(
        &self,
        models: Arc<dyn ModelSource>,
        database: &Database,
        globals: &Globals,
    ) -> Result<RunServices, CliError> {
        let results = self.cache(database)?;
        let memory = self.memory(globals)?;
        Ok(RunServices { models, results, memory })
    }

    /// Returns the cache for results, if a node uses one.
    ///
    /// Results from a replay are not cached, since they would then answer runs without the
    /// recording. While recording, cached results are not used, because the recording must contain
    /// every reply.
    ///
    /// # Errors
    ///
    /// Fails when the database cannot be used.
    fn cache(&self, database: &Database) -> Result<Option<Cache>, CliError> {
        let options = &self.settings.options;
        let is_wanted = self.workflow.all_nodes().values().any(|it| it.cache.is_some());
        if options.replay.is_some() || !is_wanted {
            return Ok(None);
        }
        let cache = Cache::new(database.results()?);
        let is_renewed = options.no_cache || options.record.is_some();
        Ok(Some(if is_renewed { cache.renewed() } else { cache }))
    }

    /// Returns the memory across runs; one that ends with the process, if no node uses it.
    ///
    /// A replay reads the recorded entries, and writes to a memory that ends with the process.
    ///
    /// # Errors
    ///
    /// Fails when the memory or the recording cannot be used.
    fn memory(&self, globals: &Globals) -> Result<Memory, CliError> {
        let options = &self.settings.options;
        let offline = || Services::offline().memory;
        if !self.workflow.needs_memory() {
            return Ok(offline());
        }
        let store = match (&options.replay, &options.record) {
            (Some(path), _) => recording::memory::replayed(offline().store, path)?,
            (None, Some(path)) => {
                recording::memory::recorded(globals.memory()?.create_memory()?, path)?
            }
            (None, None) => globals.memory()?.create_memory()?,
        };
        Ok(Memory::new(store))
    }

    /// Returns the reports of a run with this output folder.
    pub(crate) fn reports(&self, out: &Path) -> ReportFiles {
        ReportFiles::of(&self.workflow, out, self.replace())
    }

    /// Returns which files in the output folder may be replaced.
    fn replace(&self) -> Replace {
        if self.settings.options.force { Replace::Anything } else { Replace::Delivered }
    }

    /// Makes the remaining checks; returns the warnings of all checks.
    ///
    /// # Errors
    ///
    /// Fails with all diagnostics if one of them is an error.
    pub(crate) fn compile(
        self,
        RunServices { models, results, memory }: RunServices,
        out: &Path,
    ) -> Result<CompiledGraph, CliError> {
        let prices = Arc::clone(&self.settings.prices);
        let windows = Arc::clone(&self.settings.windows);
        let replace = self.replace();
        let needs = self.needs();
        let hosts = Arc::new(needs.host_access());
        let web = Arc::new(needs.web_access());
        let network = Arc::new(network::access(&self.settings.options));
        let mcp = self.mcp(ServerAccess {
            hosts: Arc::clone(&hosts),
            web: Arc::clone(&web),
            network: Arc::clone(&network),
            cache_dir: cache_dir(),
        })?;
        let mut services = services(models, out.to_owned());
        let mut warnings = self.warnings;
        if let Some(path) = &self.settings.options.replay {
            let nodes = || self.workflow.nodes.keys();
            let recording = models::load_recording(path)?;
            let file = path.to_string_lossy();
            warnings.extend(unknown_nodes(&self.workflow.nested, nodes, &recording, &file));
            services.tool_results = Some(recording::tools::replayed(recording));
        }
        let services =
            Services { prices, windows, replace, hosts, web, network, mcp, memory, ..services };
        assemble(self.workflow, warnings, services, results)
            .map_err(|diagnostics| CliError::invalid(&self.path, diagnostics))
    }
}

fn assemble(
    workflow: Workflow,
    warnings: Diagnostics,
    services: Services,
    results: Option<Cache>,
) -> Result<CompiledGraph, Diagnostics> {
    let factory = nodes::factory(services, crate::cli::registry()).with_cache(results);
    let mut made = workflow.into_graph(&factory);
    made.diagnostics.extend(warnings);
    compile(made)
}

fn services(models: Arc<dyn ModelSource>, output_dir: PathBuf) -> Services {
    Services { models, cache_dir: cache_dir(), output_dir, ..Services::offline() }
}
