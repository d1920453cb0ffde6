//! Installs the packages of lock files into the cache, before any run needs them.
//!
//! The installer runs in a sandbox, which reaches the registry and has the checked parts of the lock file, and nothing
//! else of the repository. No code of a package runs: pip takes wheels only, npm runs no scripts, and crates and modules of
//! Go are only unpacked. The packages go into a folder of the cache that is mounted writable there, and read-only in every
//! sandbox later.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::lchown,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use graphrun_guard::redact::redact;
use nix::unistd::{getegid, geteuid};
use tokio::{process::Command, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{
    error::{BYTES_MAX, PackagesError},
    lock_file::{LockFile, PackageInstaller},
    registries::Registries,
    toolchain::Toolchain,
};
use crate::{
    cache_entry::{CacheEntry, PACKAGES, fault, key_of, make_readable},
    host_tool::run_tool,
    interpreter::{Interpreter, is_readable_inside},
    job::{Channel, FixedFile, Job, JobResult, Limits, Mount, ProgramEnd},
    launch::SHELL,
    mounts::{CERTIFICATES_ENVIRONMENT, find_tool},
    network::{Answer, Connections, Network},
    probe::Sandbox,
    python_error::PythonError,
    room::{RoomError, RoomLimit},
};

/// The version of the installation; a part of the key of an entry. Raise it when the installation changes.
const FORMAT: &str = "graphrun-packages-1";

/// The folder of Python packages inside a sandbox. Each Python environment searches it.
pub(crate) const PYTHON_INSIDE: &str = "/dependencies/python";
/// The folder of JavaScript packages inside a sandbox. Node looks there last for a file in the work folder.
pub(crate) const NODE_INSIDE: &str = "/node_modules";
/// The folder of crates inside a sandbox, with settings that cargo finds from every folder.
const CARGO_INSIDE: &str = "/.cargo";
/// The folder of modules of Go inside a sandbox.
const GO_INSIDE: &str = "/dependencies/go";
/// The variables with which go finds them, and nothing else.
const GO_ENVIRONMENT: [(&str, &str); 3] =
    [("GOMODCACHE", GO_INSIDE), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")];
/// The folder that an installer fills.
const FILLED_INSIDE: &str = "/packages";

const INSTALL_PIP: &str = include_str!("install_pip.sh");
const INSTALL_NPM: &str = include_str!("install_npm.sh");
const INSTALL_CARGO: &str = include_str!("install_cargo.sh");
const INSTALL_GO: &str = include_str!("install_go.sh");
/// The name of the file with certificates inside, below `/graphrun`.
const CERTIFICATES: &str = "certificates.pem";

/// The longest duration of an installation, with its downloads.
const TIME_MAX: Duration = Duration::from_secs(600);
/// The room of the packages.
const ROOM: RoomLimit = RoomLimit { bytes: BYTES_MAX, entries: 400_000 };
/// The memory of an installer.
const MEMORY_BYTES: u64 = 2 << 30;
/// The most bytes of a single file.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The lines of the output of an installer in its error.
const LAST_LINES: usize = 8;

/// The installed packages of lock files, below the folder of the cache.
#[derive(Clone, Debug)]
pub struct PackageCache {
    folder: PathBuf,
}

/// Packages that are installed, for the sandboxes that use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledPackages {
    installer: PackageInstaller,
    folder: PathBuf,
    /// The compiler for them, if they need one.
    toolchain: Option<Toolchain>,
}

/// The programs of this machine that an installation needs.
struct Tools {
    /// Everything in which two machines differ for the packages.
    identity: Vec<Vec<u8>>,
    /// The interpreter of Python, for packages of Python.
    python: Option<Interpreter>,
    /// The compiler, for packages of Rust and Go.
    toolchain: Option<Toolchain>,
}

impl InstalledPackages {
    /// Returns the mounts that a job with the packages needs.
    pub fn mounts(&self) -> Vec<Mount> {
        let inside = match self.installer {
            PackageInstaller::Pip => PYTHON_INSIDE,
            PackageInstaller::Npm => NODE_INSIDE,
            PackageInstaller::Cargo => CARGO_INSIDE,
            PackageInstaller::Go => GO_INSIDE,
        };
        let packages = Mount { host: self.folder.clone(), inside: inside.into() };
        let toolchain = self.toolchain.iter().filter_map(|it| it.mount.clone());
        [packages].into_iter().chain(toolchain).collect()
    }

    /// Returns the variables that a job with the packages needs.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let variables = match self.installer {
            PackageInstaller::Go => GO_ENVIRONMENT.as_slice(),
            PackageInstaller::Pip | PackageInstaller::Npm | PackageInstaller::Cargo => &[],
        };
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Returns their installer.
    pub fn installer(&self) -> PackageInstaller {
        self.installer
    }

    /// Returns the folder on the host.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl PackageCache {
    /// Returns the packages in a cache. [`default_cache_dir`](crate::default_cache_dir) is the usual one.
    pub fn new(cache: &Path) -> Self {
        Self { folder: cache.join(PACKAGES) }
    }

    /// Returns the packages of a lock file if they are installed. Installs nothing.
    ///
    /// # Errors
    ///
    /// Fails when the programs that decide about the packages are missing.
    pub async fn find(&self, lock: &LockFile) -> Result<Option<InstalledPackages>, PackagesError> {
        let tools = Tools::find(lock.installer).await?;
        let found = self.entry(lock, &tools)?.find();
        Ok(found.map(|folder| tools.installed(lock, folder)))
    }

    /// Installs the packages of a lock file, unless they are installed. `network` leads to the hosts of the registry.
    /// Processes that want the same packages at the same time install them once.
    ///
    /// # Errors
    ///
    /// Fails when the registry lacks a package, a hash differs, a limit is exceeded or `cancel` fires. Nothing is installed
    /// then.
    ///
    /// # Cancel safety
    ///
    /// The next installation removes the rest of a dropped one.
    pub async fn install(
        &self,
        lock: &LockFile,
        sandbox: &Sandbox,
        network: Arc<Network>,
        registries: &Registries,
        cancel: &CancellationToken,
    ) -> Result<InstalledPackages, PackagesError> {
        let tools = Tools::find(lock.installer).await?;
        let entry = self.entry(lock, &tools)?;
        let sandbox = sandbox.with_network(Arc::clone(&network));
        let folder = entry
            .ensure(async |unfinished: &Path| {
                let user = sandbox.user();
                let made = sandbox.make_private_folder(unfinished);
                made.map_err(fault("make a folder in the cache"))?;
                let job = job(lock, &tools, registries, unfinished).await?;
                let finished = run(&sandbox, &job, unfinished, cancel).await;
                let finished = finished.map_err(|error| match error {
                    InstallFailure::Sandbox(source) => {
                        PackagesError::Sandbox { installer: lock.installer, source }
                    }
                    InstallFailure::Room(error) => of_room(error),
                })?;
                check(lock.installer, &finished, &network)?;
                let tree = tree_of(lock.installer, unfinished)?;
                let taken = tree.clone();
                let take = spawn_blocking(move || take_over(&taken, user.is_some())).await;
                take.map_err(|it| fault("read the packages")(it.into()))??;
                Ok::<_, PackagesError>(tree)
            })
            .await?;
        Ok(tools.installed(lock, folder))
    }

    fn entry(&self, lock: &LockFile, tools: &Tools) -> Result<CacheEntry, PackagesError> {
        let cache = CacheEntry::cache(&self.folder)?;
        if !is_readable_inside(&cache) {
            return Err(PythonError::Cache { cache }.into());
        }
        let first = [FORMAT.as_bytes(), lock.installer.as_str().as_bytes()];
        let files = lock.files.iter().map(|it| &it.content[..]);
        let parts = first.into_iter().chain(tools.identity.iter().map(Vec::as_slice)).chain(files);
        Ok(CacheEntry::new(&cache, key_of(parts)))
    }
}

impl Tools {
    async fn find(installer: PackageInstaller) -> Result<Self, PackagesError> {
        let toolchain = Toolchain::find(installer).await?;
        let system =
            || [std::env::consts::ARCH, std::env::consts::OS].map(|it| it.as_bytes().to_vec());
        let (identity, python) = match installer {
            PackageInstaller::Pip => {
                let python = Interpreter::find().await?;
                (python.identity().map(<[u8]>::to_vec).into(), Some(python))
            }
            // Without scripts, the packages depend on the system, and not on the version of node or npm.
            PackageInstaller::Npm => (system().into(), None),
            PackageInstaller::Cargo | PackageInstaller::Go => (Vec::new(), None),
        };
        Ok(Self { identity, python, toolchain })
    }

    /// Returns the mounts that make them exist inside.
    fn mounts(&self) -> Vec<Mount> {
        let toolchain = self.toolchain.iter().filter_map(|it| it.mount.clone());
        self.python.iter().filter_map(Interpreter::mount).chain(toolchain).collect()
    }

    fn installed(&self, lock: &LockFile, folder: PathBuf) -> InstalledPackages {
        InstalledPackages { installer: lock.installer, folder, toolchain: self.toolchain.clone() }
    }
}

/// Returns the job of an installer that fills a folder.
async fn job(
    lock: &LockFile,
    tools: &Tools,
    registries: &Registries,
    folder: &Path,
) -> Result<Job, PackagesError> {
    let mut fixed = lock.files.clone();
    let certificates = registries.certificates(lock.installer)?;
    // They may have passwords, which must be on no command line.
    let settings = registries.settings(lock).into_iter();
    let mut settings: Vec<String> = settings.map(|(name, it)| format!("{name}={it}\0")).collect();
    if let Some(content) = certificates {
        // Those of the registry take the place of the system's: pip, for one, obeys the variables of its HTTP library, too.
        let names = CERTIFICATES_ENVIRONMENT.iter().chain(&["PIP_CERT"]);
        settings.extend(names.map(|name| format!("{name}=/graphrun/{CERTIFICATES}\0")));
        fixed.push(FixedFile { path: CERTIFICATES.to_owned(), content });
    }
    let (script, arguments, required) = match lock.installer {
        PackageInstaller::Pip => {
            let python = tools.python.as_ref().expect("packages of Python have an interpreter");
            let program = python.executable.to_string_lossy().into_owned();
            let hashes = if lock.has_hashes { "--require-hashes" } else { "" };
            let mut arguments = vec![hashes.to_owned(), program.clone(), "-I".to_owned()];
            arguments.extend(pip_of(python).await?);
            (INSTALL_PIP, arguments, program)
        }
        PackageInstaller::Npm => (INSTALL_NPM, Vec::new(), "npm".to_owned()),
        PackageInstaller::Cargo => (INSTALL_CARGO, Vec::new(), "curl".to_owned()),
        PackageInstaller::Go => (INSTALL_GO, Vec::new(), "go".to_owned()),
    };
    for (installer, tool) in [(PackageInstaller::Npm, "npm"), (PackageInstaller::Cargo, "curl")] {
        if lock.installer == installer && find_tool(tool).is_none() {
            return Err(PackagesError::MissingTool(tool));
        }
    }
    let wrapper = [SHELL, "-c", script, "install"].map(str::to_owned);
    Ok(Job {
        argv: wrapper.into_iter().chain(arguments).collect(),
        fixed,
        read_only: tools.mounts(),
        writable: Some(Mount { host: folder.to_owned(), inside: FILLED_INSIDE.into() }),
        limits: Limits {
            wall: TIME_MAX,
            memory_bytes: MEMORY_BYTES,
            file_bytes: FILE_BYTES_MAX,
            ..Limits::default()
        },
        required: vec![required],
        channel: Channel::with_secret(settings.concat().into_bytes()),
        ..Job::default()
    })
}

/// Returns the arguments of an interpreter for a pip that exists inside, too: its own one, or the wheel of its standard
/// library.
async fn pip_of(python: &Interpreter) -> Result<Vec<String>, PythonError> {
    const WHEEL: &str = "import ensurepip, glob, os
folders = [os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'), '/usr/share/python-wheels']
print(next(path for folder in folders for path in sorted(glob.glob(folder + '/pip-*.whl'))))";
    let ask = async |arguments: &[&str]| {
        let mut command = Command::new(&python.executable);
        command.arg("-I").args(arguments);
        run_tool("look for pip", command).await
    };
    if ask(&["-m", "pip", "--version"]).await.is_ok() {
        return Ok(vec!["-m".to_owned(), "pip".to_owned()]);
    }
    let wheel = ask(&["-c", WHEEL]).await;
    let no_pip = |_| PythonError::NoPip { python: python.executable.clone() };
    Ok(vec![format!("{}/pip", wheel.map_err(no_pip)?.trim_end())])
}

/// Why an installer has no result.
enum InstallFailure {
    Sandbox(crate::SandboxError),
    Room(RoomError),
}

/// Runs an installer, and stops it when its folder becomes too large.
async fn run(
    sandbox: &Sandbox,
    job: &Job,
    folder: &Path,
    cancel: &CancellationToken,
) -> Result<JobResult, InstallFailure> {
    let stop = cancel.child_token();
    let mut running = pin!(sandbox.run(job, &stop));
    tokio::select! {
        finished = &mut running => finished.map_err(InstallFailure::Sandbox),
        error = ROOM.exceeded(folder) => {
            stop.cancel();
            let _ = running.await;
            Err(InstallFailure::Room(error))
        }
    }
}

fn of_room(error: RoomError) -> PackagesError {
    match error {
        RoomError::TooLarge => PackagesError::TooLarge,
        RoomError::Unmeasured(source) => fault("measure the packages")(source).into(),
    }
}

/// Fails unless an installer has done its work.
fn check(
    installer: PackageInstaller,
    finished: &JobResult,
    network: &Network,
) -> Result<(), PackagesError> {
    let stopped = |reason| Err(PackagesError::Stopped { installer, reason });
    match finished.end {
        ProgramEnd::Exited(0) => return Ok(()),
        ProgramEnd::TimedOut => return stopped("it took more than 10 minutes"),
        ProgramEnd::OutOfMemory => return stopped("it used too much memory"),
        ProgramEnd::OutputLimit => return stopped("it wrote too much output"),
        ProgramEnd::Exited(_) | ProgramEnd::Signaled(_) => {}
    }
    let lines: Vec<&str> = finished.output.lines().filter(|it| !it.trim().is_empty()).collect();
    let last =
        lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|it| it.trim().to_owned());
    let connections = network.connections();
    let refused: Vec<_> = connections.iter().filter(|it| it.answer != Answer::Opened).collect();
    let is_refused = !refused.is_empty();
    let shown = |connections: &Connections| match connections.answer {
        Answer::Inside => {
            let host = connections.host.trim_end_matches(":443");
            format!("{connections} (pass `--allow-network-private {host}` if you trust it)")
        }
        _ => connections.to_string(),
    };
    // The connections come first: what an installer prints about them is long, and does not name the cause.
    let detail: Vec<String> = refused.into_iter().map(shown).chain(last).collect();
    // An installer may print the address of its registry, with a password.
    let detail = redact(&detail.join("; ")).into_owned();
    Err(PackagesError::Install { installer, detail, is_refused })
}

/// Returns the folder with the packages. A link in its place would lead to other files.
fn tree_of(installer: PackageInstaller, unfinished: &Path) -> Result<PathBuf, PackagesError> {
    let below: &[&str] = match installer {
        PackageInstaller::Npm => &["tree", "node_modules"],
        PackageInstaller::Pip | PackageInstaller::Cargo | PackageInstaller::Go => &["tree"],
    };
    let mut folder = unfinished.to_owned();
    for name in below {
        folder.push(name);
        let found = fs::symlink_metadata(&folder).map_err(fault("find the packages"))?;
        if !found.is_dir() {
            return Err(PackagesError::SpecialFile);
        }
    }
    Ok(folder)
}

/// Takes the packages from the user of the sandbox, checks them and lets everyone read them.
fn take_over(tree: &Path, is_of_other: bool) -> Result<(), PackagesError> {
    ROOM.check(tree).map_err(of_room)?;
    take(tree, is_of_other)?;
    make_readable(tree).map_err(fault("make the packages readable")).map_err(Into::into)
}

fn take(path: &Path, is_of_other: bool) -> Result<(), PackagesError> {
    let kind = fs::symlink_metadata(path).map_err(fault("read the packages"))?.file_type();
    if !kind.is_dir() && !kind.is_file() && !kind.is_symlink() {
        return Err(PackagesError::SpecialFile);
    }
    if is_of_other {
        let user = geteuid().as_raw();
        let group = getegid().as_raw();
        lchown(path, Some(user), Some(group)).map_err(fault("take the packages"))?;
    }
    if kind.is_dir() {
        for entry in fs::read_dir(path).map_err(fault("read the packages"))? {
            take(&entry.map_err(fault("read the packages"))?.path(), is_of_other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn packages_are_files_folders_and_links() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/a"), "a").unwrap();
        // A link is never followed: this one has no target that could be taken.
        std::os::unix::fs::symlink("/nonexistent", folder.path().join("link")).unwrap();
        take_over(folder.path(), false).unwrap();
        mkfifo(&folder.path().join("inner/pipe"), Mode::S_IRWXU).unwrap();
        let refused = take_over(folder.path(), false);
        assert!(matches!(refused, Err(PackagesError::SpecialFile)), "{refused:?}");
    }

    #[test]
    fn a_link_in_place_of_the_packages_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("real/node_modules")).unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("tree")).unwrap();
        for installer in PackageInstaller::ALL {
            let refused = tree_of(installer, folder.path());
            assert!(matches!(refused, Err(PackagesError::SpecialFile)), "{refused:?}");
        }
    }
}
