//! Packages of lock files: how they are installed, and what programs see of them.

use std::{fs, path::Path, sync::Arc};

use graphrun::sandbox::{
    Finished, InstalledPackages, Job, LockFile, Network, NetworkAccess, NetworkHost, PackageCache,
    PackagesError, PythonEnvironment, Registries, Sandbox,
};
use tokio_util::sync::CancellationToken;

use crate::support::registry::{Registry, empty_cache};

fn registries(registry: &Registry) -> Registries {
    let variables = registry.variables();
    Registries::of(|name| variables.iter().find(|it| it.0 == name).map(|it| it.1.clone())).unwrap()
}

/// A network that leads to the registry.
fn network(registry: &Registry) -> Arc<Network> {
    let host: NetworkHost = registry.host().parse().unwrap();
    NetworkAccess::default().allow_private(host.clone()).open(&[host]).unwrap()
}

async fn install(
    registry: &Registry,
    cache: &Path,
    lock: &LockFile,
) -> Result<InstalledPackages, PackagesError> {
    let (sandbox, cancel) = (Sandbox::probe().unwrap(), CancellationToken::new());
    let cache = PackageCache::new(cache);
    cache.install(lock, (&sandbox, network(registry)), &registries(registry), &cancel).await
}

async fn run(packages: &InstalledPackages, cache: &Path, argv: &[&str]) -> Finished {
    let environment = PythonEnvironment::prepare(&[], cache).await.unwrap();
    let environment = environment.with_packages(packages);
    let job = Job {
        argv: argv.iter().map(|it| (*it).to_owned()).collect(),
        read_only: environment.mounts().to_vec(),
        ..Job::default()
    };
    Sandbox::probe().unwrap().run(&job, &CancellationToken::new()).await.unwrap()
}

fn both(registry: &Registry) -> LockFile {
    let text = registry.pinned("greeter", "1.0") + &registry.pinned("shouter", "2.0");
    LockFile::pip(text.as_bytes()).unwrap()
}

/// Returns the names in a cache of packages, without those of locks.
fn entries(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache.join("packages")).into_iter().flatten();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|it| it.strip_suffix(".lock").is_none()).collect()
}

#[tokio::test]
async fn programs_import_the_locked_packages() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let lock = both(&registry);
    assert_eq!(PackageCache::new(&cache).find(&lock).await.unwrap(), None);
    let packages = install(&registry, &cache, &lock).await.unwrap();
    assert_eq!(PackageCache::new(&cache).find(&lock).await.unwrap().as_ref(), Some(&packages));
    let program = "import greeter, os\nprint(greeter.greet('you'), os.environ['SHOUTER_PTH'])\n\
                   print(greeter.__cached__, os.path.exists(greeter.__cached__))\n\
                   print(bool(os.statvfs(greeter.__file__).f_flag & os.ST_RDONLY))";
    let finished = run(&packages, &cache, &["/env/bin/python3", "-c", program]).await;
    let lines: Vec<&str> = finished.output.lines().collect();
    assert_eq!((lines[0], lines[2]), ("HELLO YOU read", "True"), "{}", finished.output);
    assert!(
        lines[1].starts_with("/dependencies/python/__pycache__/greeter.")
            && lines[1].ends_with(" True")
    );
    let environment = PythonEnvironment::prepare(&[], &cache).await.unwrap();
    assert!(!environment.has_module("greeter"));
    assert!(environment.with_packages(&packages).has_module("greeter"));

    let asked = registry.requests().len();
    assert_eq!(install(&registry, &cache, &lock).await.unwrap(), packages);
    assert_eq!(registry.requests().len(), asked, "installed packages need no registry");
}

#[tokio::test]
async fn node_finds_the_locked_packages_and_no_script_of_them_runs() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let (lock, manifest) = registry.npm_files();
    let lock = LockFile::npm(lock.as_bytes(), manifest.as_bytes()).unwrap();
    let packages = install(&registry, &cache, &lock).await.unwrap();
    let program = "console.log(require('left-step')('xyz'), require('fs').readdirSync('/node_modules').join(' '))";
    let finished = run(&packages, &cache, &["node", "-e", program]).await;
    assert_eq!(finished.output, "yz .bin .package-lock.json left-step\n");
    assert_eq!(run(&packages, &cache, &["left-step"]).await.output, "stepped\n");
    let expected = ["/left-step/-/left-step-1.0.0.tgz"];
    assert_eq!(registry.requests(), expected, "the name of the public registry is replaced");
}

#[tokio::test]
async fn the_set_of_packages_is_that_of_the_lock_file() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let error = async |text: &str| {
        let lock = LockFile::pip(text.as_bytes()).unwrap();
        install(&registry, &cache, &lock).await.unwrap_err().to_string()
    };
    let hash = format!("greeter==1.0 --hash=sha256:{}\n", "0".repeat(64));
    assert!(error(&hash).await.contains("DO NOT MATCH THE HASHES"));
    for text in [registry.pinned("greeter", "1.0"), "greeter==1.0\n".to_owned()] {
        let error = error(&text).await;
        assert!(
            error.starts_with("pip cannot install the packages: ") && error.contains("shouter"),
            "{error}"
        );
    }
    // No code of a package runs, so there is nothing to build one with.
    assert!(
        error("sourced==1.0\n").await.contains("No matching distribution found for sourced==1.0")
    );
    let (lock, manifest) = registry.npm_files();
    let lock = lock.replace("sha512-", "sha512-AAAA");
    let lock = LockFile::npm(lock.as_bytes(), manifest.as_bytes()).unwrap();
    let refused = install(&registry, &cache, &lock).await.unwrap_err().to_string();
    assert!(refused.contains("EINTEGRITY"), "{refused}");
    let (lock, manifest) = registry.npm_files();
    let manifest = manifest.replace("left-step", "another");
    let lock = LockFile::npm(lock.as_bytes(), manifest.as_bytes()).unwrap();
    let refused = install(&registry, &cache, &lock).await.unwrap_err().to_string();
    assert!(refused.starts_with("npm cannot install the packages: "), "{refused}");
    assert_eq!(entries(&cache), [""; 0]);

    let lock = LockFile::pip(b"shouter==2.0\n").unwrap();
    install(&registry, &cache, &lock).await.unwrap();
    assert_eq!(entries(&cache).len(), 1, "hashes are optional");
}

#[tokio::test]
async fn an_installer_reaches_the_registry_and_nothing_else() {
    let (registry, other, (_folder, cache)) = (Registry::start(), Registry::start(), empty_cache());
    let host: NetworkHost = other.host().parse().unwrap();
    let network = NetworkAccess::default().allow_private(host.clone()).open(&[host]).unwrap();
    let (sandbox, cancel) = (Sandbox::probe().unwrap(), CancellationToken::new());
    let place = (&sandbox, network);
    let lock = LockFile::npm(registry.npm_files().0.as_bytes(), registry.npm_files().1.as_bytes())
        .unwrap();
    let cache_of_packages = PackageCache::new(&cache);
    let installed = cache_of_packages.install(&lock, place, &registries(&registry), &cancel).await;
    let error = installed.unwrap_err().to_string();
    let expected = format!("`{}` was refused", registry.host());
    assert!(error.contains(&expected), "{error}");
    assert_eq!((registry.requests(), other.requests()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn two_installations_of_the_same_packages_are_one() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let lock = both(&registry);
    let (one, other) =
        tokio::join!(install(&registry, &cache, &lock), install(&registry, &cache, &lock));
    assert_eq!(one.unwrap(), other.unwrap());
    let downloads = registry.requests().iter().filter(|it| it.starts_with("/files/")).count();
    assert_eq!((downloads, entries(&cache).len()), (2, 1), "{:?}", registry.requests());
}

#[tokio::test]
async fn a_cancelled_installation_leaves_nothing() {
    let (registry, (_folder, cache)) = (Arc::new(Registry::start()), empty_cache());
    let lock = LockFile::pip(b"slow==1.0\n").unwrap();
    let (sandbox, cancel) = (Sandbox::probe().unwrap(), CancellationToken::new());
    let (packages, registries) = (PackageCache::new(&cache), registries(&registry));
    let installing = packages.install(&lock, (&sandbox, network(&registry)), &registries, &cancel);
    let (installed, ()) = tokio::join!(installing, async {
        let asked = Arc::clone(&registry);
        tokio::task::spawn_blocking(move || asked.wait_for("/simple/slow/")).await.unwrap();
        cancel.cancel();
    });
    let error = installed.unwrap_err();
    assert!(matches!(error, PackagesError::Sandbox { .. }), "{error:?}");
    assert_eq!(entries(&cache), [""; 0]);
}
