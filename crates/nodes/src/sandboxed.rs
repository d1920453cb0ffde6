//! The sandbox and the packages of a workflow, for the nodes that run code.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
};
use graphrun_sandbox::{
    InstalledPackages, Job, JobResult, Mount, Network, NetworkAccess, NetworkHost, PackageCache,
    PackageInstaller, PythonEnvironment, Sandbox, SandboxError,
};
use graphrun_workflow::{LockFileUse, SandboxSettings, kind::Services, tool::ToolContext};

use crate::{dependencies, in_folder::SandboxFolder};

/// The services of sandboxes.
#[derive(Debug)]
pub(super) struct SandboxServices {
    /// The folder for environments.
    cache_dir: PathBuf,
    /// The hosts that the operator allows.
    network: Arc<NetworkAccess>,
}

/// A sandbox with its packages.
#[derive(Debug)]
pub(super) struct PreparedSandbox {
    sandbox: Sandbox,
    /// The packages; `None` if none are declared.
    environment: Option<PythonEnvironment>,
    /// The lock files of the repository, whose packages differ from run to run.
    dependencies: Vec<LockFileUse>,
    packages: PackageCache,
    /// The hosts that programs may reach.
    hosts: Vec<NetworkHost>,
    access: Arc<NetworkAccess>,
    /// Whether folders are mounted, until this machine refuses it once.
    can_mount: AtomicBool,
}

/// A sandbox for one attempt, with its network and its packages.
#[derive(Debug)]
pub(super) struct OpenSandbox {
    pub(super) sandbox: Sandbox,
    network: Option<Arc<Network>>,
    /// The Python environment; `None` if no packages of Python are declared.
    pub(super) environment: Option<PythonEnvironment>,
    /// The mounts of all packages.
    pub(super) mounts: Vec<Mount>,
    /// The variables with which programs find packages.
    pub(super) env: BTreeMap<String, String>,
}

/// The end of a job in a sandbox with its network.
#[derive(Debug)]
pub(super) struct SandboxRun {
    pub(super) result: Result<JobResult, SandboxError>,
    /// The connections that were refused, as a text, if there are any.
    pub(super) refused: Option<String>,
}

impl SandboxServices {
    pub(super) fn of(services: &Services) -> Self {
        Self { cache_dir: services.cache_dir.clone(), network: Arc::clone(&services.network) }
    }
}

impl PreparedSandbox {
    /// Checks that a sandbox is available, and installs the declared packages.
    pub(super) async fn prepare(
        settings: &SandboxSettings,
        services: &SandboxServices,
    ) -> Result<Self, NodeError> {
        let sandbox = probe().await?;
        let environment = if settings.has_python() {
            Some(python(&settings.requirements, &services.cache_dir).await?)
        } else {
            None
        };
        let dependencies = settings.dependencies.clone();
        let packages = PackageCache::new(&services.cache_dir);
        let hosts = settings.network.clone();
        let access = Arc::clone(&services.network);
        let can_mount = AtomicBool::new(true);
        Ok(Self { sandbox, environment, dependencies, packages, hosts, access, can_mount })
    }

    /// Returns whether folders are mounted; otherwise their files are copied.
    pub(super) fn can_mount(&self) -> bool {
        self.can_mount.load(Relaxed)
    }

    /// Returns whether the error is that this machine mounts no folders. From then on their files are copied.
    pub(super) fn copies_after(&self, error: &SandboxError) -> bool {
        let is_refused = matches!(error, SandboxError::Mount { .. });
        if is_refused {
            self.can_mount.store(false, Relaxed);
        }
        is_refused
    }

    /// Opens the sandbox for an attempt of a node, with the packages of the repository of its run.
    pub(super) async fn open_for(&self, ctx: &NodeContext) -> Result<OpenSandbox, NodeError> {
        let mut open = self.open()?;
        if !self.dependencies.is_empty() {
            for found in dependencies::find(ctx, &self.dependencies, &self.packages).await? {
                open.add(&found);
            }
        }
        Ok(open)
    }

    /// Opens the sandbox with its network, if it has one, and without packages of a repository.
    pub(super) fn open(&self) -> Result<OpenSandbox, NodeError> {
        let environment = self.environment.clone();
        let mounts = environment.iter().flat_map(|it| it.mounts().to_vec()).collect();
        let env = BTreeMap::new();
        if self.hosts.is_empty() {
            let sandbox = self.sandbox.clone();
            return Ok(OpenSandbox { sandbox, network: None, environment, mounts, env });
        }
        let network = self.access.open(&self.hosts).map_err(|host| {
            let message = format!(
                "the operator does not allow the sandbox to reach `{host}` (pass \
                 `--allow-network {host}` to allow it in this process)"
            );
            Failure::new(ErrorKind::Sandbox, message)
        })?;
        let sandbox = self.sandbox.with_network(Arc::clone(&network));
        Ok(OpenSandbox { sandbox, network: Some(network), environment, mounts, env })
    }

    /// Runs a job, with the packages of the sandbox, in the folder that a node names, if it names one: mounted, or copied
    /// where this machine mounts none. The files below [`Collect::below`](graphrun_sandbox::Collect) that the job has not changed are left out of the result,
    /// also those with an unacceptable name.
    pub(super) async fn run_in_folder(
        &self,
        ctx: &NodeContext,
        name: Option<&String>,
        job: impl Fn(&SandboxFolder) -> Job,
    ) -> Result<SandboxRun, NodeError> {
        let open = self.open_for(ctx).await?;
        let (ran, folder) = loop {
            let folder = SandboxFolder::open(ctx, name, self.can_mount()).await?;
            let mut job = Job { read_only: open.mounts.clone(), ..job(&folder) };
            if !job.collect.below.is_empty() {
                job.collect.known = folder.paths().await?;
            }
            // A variable of the node counts more.
            for (name, value) in &open.env {
                job.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            match open.sandbox.run(&job, &ctx.cancel).await {
                Err(error) if self.copies_after(&error) => {}
                ran => break (ran, folder),
            }
        };
        open.report(ctx).await;
        let result = ran.map(|mut result| {
            result.collected.retain(|path, content| !folder.has(Path::new(path), content));
            result.refused.retain(|path, content| !folder.has(path, content));
            result
        });
        Ok(SandboxRun { result, refused: open.refused() })
    }

    /// Runs a job, with the packages of the sandbox, without a folder and without packages of a repository.
    pub(super) async fn run(&self, job: Job, ctx: &ToolContext) -> Result<SandboxRun, NodeError> {
        let open = self.open()?;
        let job = Job { read_only: open.mounts.clone(), ..job };
        let result = open.sandbox.run(&job, &ctx.cancel).await;
        Ok(SandboxRun { result, refused: open.refused() })
    }
}

impl OpenSandbox {
    fn add(&mut self, packages: &InstalledPackages) {
        self.mounts.extend(packages.mounts());
        self.env.extend(packages.environment());
        if packages.installer() == PackageInstaller::Pip {
            self.environment = self.environment.take().map(|it| it.with_packages(packages));
        }
    }

    /// Reports the connections of the programs that have run.
    pub(super) async fn report(&self, ctx: &NodeContext) {
        for connections in self.network.iter().flat_map(|it| it.connections()) {
            let message = format!("network: {connections}");
            ctx.report(Report::Note { message }).await;
        }
    }

    /// Returns a text about the connections that were refused, if there are any.
    fn refused(&self) -> Option<String> {
        let connections = self.network.as_ref()?.connections();
        let refused = connections.iter().filter(|it| it.answer.is_refused());
        let texts: Vec<String> = refused.map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

async fn probe() -> Result<Sandbox, NodeError> {
    tokio::task::spawn_blocking(Sandbox::probe).await?.map_err(|it| unusable(&it))
}

async fn python(requirements: &[String], cache_dir: &Path) -> Result<PythonEnvironment, NodeError> {
    PythonEnvironment::prepare(requirements, cache_dir)
        .await
        .map_err(|error| Failure::of(ErrorKind::Sandbox, &error).with_hint(error.hint()).into())
}

/// The machine is the cause, not the code, so no model sees this error.
pub(super) fn unusable(error: &SandboxError) -> NodeError {
    let hint = error.hint();
    Failure::of(ErrorKind::Sandbox, error).with_hint(hint.as_deref()).into()
}
