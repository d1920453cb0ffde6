//! The sandbox and the packages of a workflow, for the nodes that run code.

use std::path::Path;

use graphrun_core::graph::{ErrorKind, Failure, NodeError};
use graphrun_sandbox::{Mount, PythonEnvironment, Sandbox, SandboxError};
use graphrun_workflow::SandboxSettings;

/// A sandbox with its packages.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) sandbox: Sandbox,
    /// The packages; `None` if none are declared.
    environment: Option<PythonEnvironment>,
}

impl Bench {
    /// Checks that a sandbox is available, and installs the declared packages.
    pub(super) async fn prepare(
        settings: &SandboxSettings,
        cache_dir: &Path,
    ) -> Result<Self, NodeError> {
        let sandbox = probe().await?;
        let environment = match settings.requirements.as_slice() {
            [] => None,
            some => Some(python(some, cache_dir).await?),
        };
        Ok(Self { sandbox, environment })
    }

    pub(super) fn environment(&self) -> Option<&PythonEnvironment> {
        self.environment.as_ref()
    }

    pub(super) fn mounts(&self) -> Vec<Mount> {
        self.environment.as_ref().map(|it| it.mounts().to_vec()).unwrap_or_default()
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
