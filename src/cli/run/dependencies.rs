//! The packages of the sandboxes of a workflow, and their installation before a run: those of Python that a sandbox names, and
//! those of the lock files of the repositories that a workflow works on.
//!
//! Only the operator lets an installer of a lock file reach a registry: by `graphrun prepare`, or by `--allow-network` for a run.

use std::{collections::BTreeSet, env, path::PathBuf};

use tokio_util::sync::CancellationToken;

use super::{loaded::LoadedWorkflow, needs::Needs, origin::Origin};
use crate::{
    cli::{
        allow::{network, refusals::Refusals},
        error::CliError,
        exit::Exit,
        output::{
            terminal::print_message,
            words::{count, shell_word},
        },
        settings::user_folders::cache_dir,
    },
    folders::{FolderError, RunFolder, RunFolders},
    id::RunId,
    nodes::{LockFileReadError, read_lock_file},
    sandbox::{
        LockFile, NetworkAccess, NetworkHost, PackageCache, PackagesError, PythonEnvironment,
        PythonError, Registries, Sandbox,
    },
    workflow::{LockFileUse, Workflow},
};

/// A lock file of a repository.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) used: LockFileUse,
    pub(crate) lock: LockFile,
    /// The commit that has the lock file.
    pub(crate) commit: String,
    /// Where its packages are, if they are installed.
    pub(crate) location: Option<PathBuf>,
}

/// Installs packages, from the registries of the operator.
pub(crate) struct Installer {
    registries: Registries,
    access: NetworkAccess,
    /// Hosts beside those of the registries.
    more_hosts: Vec<NetworkHost>,
    cache: PackageCache,
}

/// Reads the lock files that a workflow names, from the commits that a run with these folders starts from.
///
/// # Errors
///
/// Fails when a lock file is missing or refused, or the programs that decide about the packages are missing.
pub(crate) async fn find(
    workflow: &Workflow,
    run: &RunId,
    folders: &[RunFolder],
) -> Result<Vec<Dependency>, CliError> {
    let cache = PackageCache::new(&cache_dir());
    let of_run = RunFolders::new(run.as_str(), folders.to_vec());
    let mut found = Vec::new();
    for used in workflow.lock_files() {
        let lock = read_lock_file(&of_run, &used).await.map_err(|error| refused(&used, error))?;
        let installed = cache.find(&lock).await.map_err(|it| not_installed(&used, it))?;
        let location = installed.map(|it| it.folder().to_owned());
        let base = folders.iter().find(|it| it.name == used.folder).map(|it| it.base.clone());
        found.push(Dependency { used, lock, commit: base.unwrap_or_default(), location });
    }
    Ok(found)
}

/// The Python packages of a sandbox.
#[derive(Debug)]
pub(crate) struct PythonPackages {
    pub(crate) requirements: Vec<String>,
    /// Whether they were installed now.
    pub(crate) is_new: bool,
    /// Where they are.
    pub(crate) location: PathBuf,
}

/// Installs the Python packages that the sandboxes of a run name and that are not installed.
///
/// # Errors
///
/// Fails when there is no interpreter, or the packages cannot be installed.
pub(crate) async fn provide_python(needs: &Needs<'_>) -> Result<Vec<PythonPackages>, CliError> {
    let sandboxes = needs.sandboxes().into_iter().filter(|it| it.has_python());
    let all: BTreeSet<&Vec<String>> = sandboxes.map(|it| &it.requirements).collect();
    let cache = cache_dir();
    let mut provided = Vec::new();
    for requirements in all {
        let names = requirements.join(", ");
        let refused = |error: PythonError| {
            let message = format!("the packages of a sandbox are not installed: {names}");
            let help = error.hint();
            let failed = CliError::new(Exit::Unusable, message).because(error);
            help.into_iter().fold(failed, CliError::with_help)
        };
        let found = PythonEnvironment::find(requirements, &cache).await.map_err(refused)?;
        let is_new = found.is_none();
        let environment = if let Some(environment) = found {
            environment
        } else {
            if !requirements.is_empty() {
                print_message(&format!("pip installs {names}"));
            }
            PythonEnvironment::prepare(requirements, &cache).await.map_err(refused)?
        };
        let location = environment.folder().to_owned();
        provided.push(PythonPackages { requirements: requirements.clone(), is_new, location });
    }
    Ok(provided)
}

/// Installs the packages that a run needs and that are not installed, those of lock files if the operator allows the
/// registries. `remedy` is another way to install these.
///
/// # Errors
///
/// Fails with each lock file whose packages are missing, and the commands that install them.
pub(crate) async fn provide(
    loaded: &LoadedWorkflow,
    run: &RunId,
    origin: &Origin,
    remedy: Option<String>,
) -> Result<(), CliError> {
    let mut missing = find(&loaded.workflow, run, &origin.folders).await?;
    missing.retain(|it| it.location.is_none());
    if !missing.is_empty() {
        let installer = Installer::of(network::access(&origin.options))?;
        installer.check_access(&missing, remedy)?;
        for dependency in &missing {
            installer.install(dependency).await?;
        }
    }
    provide_python(&loaded.needs()).await?;
    Ok(())
}

impl Dependency {
    /// Returns how many packages it names.
    pub(crate) fn packages(&self) -> String {
        count(self.lock.package_count() as u64, "package")
    }
}

impl Installer {
    /// Returns an installer that may reach these hosts.
    ///
    /// # Errors
    ///
    /// Fails when the environment names a registry that cannot be used.
    pub(crate) fn of(access: NetworkAccess) -> Result<Self, CliError> {
        let registries = Registries::of(|name| env::var(name).ok()).map_err(|error| {
            let error = PackagesError::from(error);
            let help = error.hint();
            let refused = CliError::usage("packages cannot be installed; nothing was started");
            help.into_iter().fold(refused.because(error), CliError::with_help)
        })?;
        let cache = PackageCache::new(&cache_dir());
        Ok(Self { registries, access, more_hosts: Vec::new(), cache })
    }

    /// Returns an installer of a person who asks for packages: it may reach the registries and these hosts.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn of_person(
        public: &[NetworkHost],
        private: &[NetworkHost],
    ) -> Result<Self, CliError> {
        let mut installer = Self::of(NetworkAccess::default())?;
        installer.more_hosts = [public, private].concat();
        let access = installer.registries.all_hosts().chain(public).cloned();
        let access = access.fold(NetworkAccess::default(), NetworkAccess::allow);
        installer.access = private.iter().cloned().fold(access, NetworkAccess::allow_private);
        Ok(installer)
    }

    /// Checks that it may reach the registries of these packages.
    fn check_access(&self, missing: &[Dependency], remedy: Option<String>) -> Result<(), CliError> {
        let mut refusals = Refusals::default();
        for dependency in missing {
            let Dependency { used, lock, .. } = dependency;
            let hosts = self.registries.hosts(lock).into_iter();
            let hosts: Vec<NetworkHost> = hosts.filter(|it| !self.access.allows(it)).collect();
            if !hosts.is_empty() {
                let problem = format!("{} of `{}`", dependency.packages(), used.path);
                refusals.add_problem(format!("{problem} in the folder `{}`", used.folder));
            }
            for host in hosts {
                let help = format!(
                    "let {} reach its registry by `--allow-network {}`",
                    used.installer,
                    shell_word(&host.to_string())
                );
                refusals.add_help(help);
            }
        }
        if let Some(remedy) = remedy {
            refusals.add_help(remedy);
        }
        refusals
            .or_ok("packages of the repository are not installed; nothing was started".to_owned())
    }

    /// Installs the packages of a lock file, and returns where they are.
    ///
    /// # Errors
    ///
    /// Fails when the registry lacks a package, a hash differs, or a limit is exceeded.
    pub(crate) async fn install(&self, dependency: &Dependency) -> Result<PathBuf, CliError> {
        let Dependency { used, lock, .. } = dependency;
        print_message(&format!(
            "{} installs {} of `{}`",
            used.installer,
            dependency.packages(),
            used.path
        ));
        let hosts = [&self.registries.hosts(lock)[..], &self.more_hosts].concat();
        let network = self.access.open(&hosts).map_err(|host| {
            CliError::new(Exit::Unusable, format!("the registry at `{host}` is not allowed"))
        })?;
        let sandbox = tokio::task::spawn_blocking(Sandbox::probe).await;
        let sandbox =
            sandbox.map_err(|it| CliError::new(Exit::Unusable, "no sandbox").because(it))?;
        let sandbox = sandbox.map_err(|source| {
            not_installed(used, PackagesError::Sandbox { installer: used.installer, source })
        })?;
        let registries = &self.registries;
        let cancel = CancellationToken::new();
        let installed = self.cache.install(lock, &sandbox, network, registries, &cancel).await;
        installed.map(|it| it.folder().to_owned()).map_err(|it| not_installed(used, it))
    }
}

fn refused(used: &LockFileUse, error: LockFileReadError) -> CliError {
    let help = match &error {
        LockFileReadError::Folder(FolderError::NoBaseFile { .. }) => {
            Some("commit the file; a run reads it from the commit that its branch starts from")
        }
        LockFileReadError::Folder(error) => error.hint(),
        _ => None,
    };
    let message = format!("`{}` cannot be used as a lock file; nothing was started", used.path);
    let refused = CliError::new(Exit::Unusable, message).because(error);
    help.into_iter().fold(refused, CliError::with_help)
}

fn not_installed(used: &LockFileUse, error: PackagesError) -> CliError {
    let help = error.hint();
    let message = format!("the packages of `{}` are not installed; nothing was started", used.path);
    let failed = CliError::new(Exit::Unusable, message).because(error);
    help.into_iter().fold(failed, CliError::with_help)
}
