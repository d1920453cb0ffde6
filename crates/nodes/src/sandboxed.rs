//! The sandbox and the packages of a workflow, for the nodes that run code.

use std::{
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
    Finished, Job, Mount, Network, NetworkAccess, NetworkHost, PythonEnvironment, Sandbox,
    SandboxError,
};
use graphrun_workflow::{SandboxSettings, kind::Services};

use crate::in_folder::SandboxFolder;

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
pub(super) struct Bench {
    sandbox: Sandbox,
    /// The packages; `None` if none are declared.
    environment: Option<PythonEnvironment>,
    /// The hosts that programs may reach.
    hosts: Vec<NetworkHost>,
    access: Arc<NetworkAccess>,
    /// Whether folders are mounted, until this machine refuses it once.
    can_mount: AtomicBool,
}

/// A sandbox for one attempt, with its network.
#[derive(Debug)]
pub(super) struct OpenBench {
    pub(super) sandbox: Sandbox,
    network: Option<Arc<Network>>,
}

impl SandboxServices {
    pub(super) fn of(services: &Services) -> Self {
        Self { cache_dir: services.cache_dir.clone(), network: Arc::clone(&services.network) }
    }
}

impl Bench {
    /// Checks that a sandbox is available, and installs the declared packages.
    pub(super) async fn prepare(
        settings: &SandboxSettings,
        services: &SandboxServices,
    ) -> Result<Self, NodeError> {
        let sandbox = probe().await?;
        let environment = match settings.requirements.as_slice() {
            [] => None,
            some => Some(python(some, &services.cache_dir).await?),
        };
        let (hosts, access) = (settings.network.clone(), Arc::clone(&services.network));
        let can_mount = AtomicBool::new(true);
        Ok(Self { sandbox, environment, hosts, access, can_mount })
    }

    /// Whether folders are mounted; otherwise their files are copied.
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

    /// Opens the network of the sandbox, if it has one.
    pub(super) fn open(&self) -> Result<OpenBench, NodeError> {
        if self.hosts.is_empty() {
            return Ok(OpenBench { sandbox: self.sandbox.clone(), network: None });
        }
        let network = self.access.open(&self.hosts).map_err(|host| {
            let message = format!(
                "the operator does not allow the sandbox to reach `{host}` (pass \
                 `--allow-network {host}` to allow it in this process)"
            );
            Failure::new(ErrorKind::Sandbox, message)
        })?;
        let sandbox = self.sandbox.with_network(Arc::clone(&network));
        Ok(OpenBench { sandbox, network: Some(network) })
    }

    /// Runs a job in the folder that a node names, if it names one: mounted, or copied where this machine mounts none. The
    /// files below `collect_below` that the job has not changed are left out of the result.
    pub(super) async fn run_in_folder(
        &self,
        ctx: &NodeContext,
        name: Option<&String>,
        job: impl Fn(&SandboxFolder) -> Result<Job, NodeError>,
    ) -> Result<Result<Finished, SandboxError>, NodeError> {
        let open = self.open()?;
        let (ran, folder) = loop {
            let folder = SandboxFolder::open(ctx, name, self.can_mount()).await?;
            match open.sandbox.run(&job(&folder)?, &ctx.cancel).await {
                Err(error) if self.copies_after(&error) => {}
                ran => break (ran, folder),
            }
        };
        open.report(ctx).await;
        Ok(ran.map(|mut finished| {
            finished.collected.retain(|path, content| !folder.has(Path::new(path), content));
            finished
        }))
    }

    pub(super) fn environment(&self) -> Option<&PythonEnvironment> {
        self.environment.as_ref()
    }

    pub(super) fn mounts(&self) -> Vec<Mount> {
        self.environment.as_ref().map(|it| it.mounts().to_vec()).unwrap_or_default()
    }
}

impl OpenBench {
    /// Reports the connections of the programs that have run.
    pub(super) async fn report(&self, ctx: &NodeContext) {
        for connections in self.network.iter().flat_map(|it| it.connections()) {
            let message = format!("network: {connections}");
            ctx.report(Report::Note { message }).await;
        }
    }

    /// Returns a text about the connections that were refused, if there are any.
    pub(super) fn refused(&self) -> Option<String> {
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
        .map_err(|error| hinted(Failure::of(ErrorKind::Sandbox, &error), error.hint()))
}

/// The machine is the cause, not the code, so no model sees this error.
pub(super) fn unusable(error: &SandboxError) -> NodeError {
    let hint = error.hint();
    hinted(Failure::of(ErrorKind::Sandbox, error), hint.as_deref())
}

fn hinted(failure: Failure, hint: Option<&str>) -> NodeError {
    let message = match hint {
        Some(hint) => format!("{} ({hint})", failure.message),
        None => failure.message,
    };
    Failure { message, ..failure }.into()
}
