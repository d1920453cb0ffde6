//! Packages of lock files: how they are installed, and what programs see of them.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use graphrun::sandbox::{
    InstalledPackages, Job, JobResult, Limits, LockFile, Network, NetworkAccess, NetworkHost,
    PackageCache, PackagesError, ProgramEnd, PythonEnvironment, Registries, Sandbox, SourceFile,
};
use tokio_util::sync::CancellationToken;

use crate::support::registry::{Registry, empty_cache};

fn registries(registry: &Registry) -> Registries {
    of_variables(&registry.variables())
}

fn of_variables(variables: &[(&'static str, String)]) -> Registries {
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
    install_from(registry, &registries(registry), cache, lock).await
}

async fn install_from(
    registry: &Registry,
    registries: &Registries,
    cache: &Path,
    lock: &LockFile,
) -> Result<InstalledPackages, PackagesError> {
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let cache = PackageCache::new(cache);
    cache.install(lock, &sandbox, network(registry), registries, &cancel).await
}

/// Runs a program on a project of these files, with packages that need a compiler.
async fn build(packages: &InstalledPackages, files: &[(&str, &str)], argv: &[&str]) -> JobResult {
    let file = |(path, content): &(&str, &str)| SourceFile {
        path: (*path).to_owned(),
        content: (*content).to_owned(),
    };
    let job = Job {
        argv: argv.iter().map(|it| (*it).to_owned()).collect(),
        files: files.iter().map(file).collect(),
        read_only: packages.mounts(),
        env: packages.environment(),
        limits: Limits { wall: Duration::from_secs(300), ..Limits::default() },
        ..Job::default()
    };
    Sandbox::probe().unwrap().run(&job, &CancellationToken::new()).await.unwrap()
}

async fn run(packages: &InstalledPackages, cache: &Path, argv: &[&str]) -> JobResult {
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
async fn cargo_builds_with_the_locked_crates() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let text = registry.cargo_lock(&["adder 1.2.0", "doubler 1.0.0"]);
    let lock = LockFile::cargo(text.as_bytes()).unwrap();
    assert_eq!(PackageCache::new(&cache).find(&lock).await.unwrap(), None);
    let packages = install(&registry, &cache, &lock).await.unwrap();
    let asked = [
        "/crates/config.json",
        "/crates/dl/adder/1.2.0/download",
        "/crates/dl/doubler/1.0.0/download",
    ];
    let mut requests = registry.requests();
    requests.sort();
    assert_eq!(requests, asked);

    let manifest =
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\n[dependencies]\ndoubler = \"1\"\n";
    let code = "#[test]\nfn it_doubles() {\n    assert_eq!(doubler::double(21), 42);\n    \
                assert_eq!(doubler::BUILT, \"in-the-sandbox\");\n}\n";
    let files = [("Cargo.toml", manifest), ("Cargo.lock", &text), ("src/lib.rs", code)];
    let built = build(&packages, &files, &["cargo", "test", "--locked"]).await;
    assert_eq!(built.end, ProgramEnd::Exited(0), "{}", built.output);
    assert!(built.output.contains("test it_doubles ... ok"), "{}", built.output);

    // A crate that is not locked is not there, and no registry is asked.
    let more = manifest.to_owned() + "serde = \"1\"\n";
    let files = [("Cargo.toml", &more[..]), ("Cargo.lock", &text), ("src/lib.rs", code)];
    let refused = build(&packages, &files, &["cargo", "test"]).await;
    assert!(
        refused.output.contains("no matching package named `serde` found"),
        "{}",
        refused.output
    );
    assert_eq!(registry.requests().len(), asked.len());
}

#[tokio::test]
async fn go_builds_with_the_locked_modules() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let (sums, manifest) = registry.go_files();
    let lock = LockFile::go(sums.as_bytes(), manifest.as_bytes()).unwrap();
    let packages = install(&registry, &cache, &lock).await.unwrap();
    let asked = registry.requests();
    assert!(asked.contains(&"/go/example.com/%21halver/@v/v1.0.0.zip".to_owned()), "{asked:?}");

    let code = "package app\n\nimport (\n\t\"testing\"\n\n\t\"example.com/Halver\"\n)\n\n\
                func TestHalf(t *testing.T) {\n\tif halver.Half(8) != 4 {\n\t\tt.Fail()\n\t}\n}\n";
    let files = [("go.mod", &manifest[..]), ("go.sum", &sums), ("app_test.go", code)];
    let built = build(&packages, &files, &["go", "test", "-v", "./..."]).await;
    assert_eq!(built.end, ProgramEnd::Exited(0), "{}", built.output);
    assert!(built.output.contains("--- PASS: TestHalf"), "{}", built.output);

    let more =
        manifest.replace("example.com/Halver v1.0.0", "example.com/Halver v2.0.0+incompatible");
    let files = [("go.mod", &more[..]), ("go.sum", &sums), ("app_test.go", code)];
    let refused = build(&packages, &files, &["go", "test", "./..."]).await;
    assert!(refused.end != ProgramEnd::Exited(0), "{}", refused.output);
    assert_eq!(registry.requests(), asked);
}

#[tokio::test]
async fn crates_and_modules_with_other_hashes_are_refused() {
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let error =
        async |lock: LockFile| install(&registry, &cache, &lock).await.unwrap_err().to_string();
    let cargo = |text: &str| LockFile::cargo(text.as_bytes()).unwrap();
    let text = registry.cargo_lock(&["adder 1.2.0"]);
    let at = text.find("checksum = \"").unwrap() + "checksum = \"".len();
    let changed = format!("{}{}{}", &text[..at], "0".repeat(64), &text[at + 64..]);
    let refused = error(cargo(&changed)).await;
    assert!(refused.contains("adder-1.2.0.crate: FAILED"), "{refused}");
    // The archive of one crate has the folder of another one.
    let refused = error(cargo(&registry.cargo_lock(&["thief 1.0.0"]))).await;
    assert!(refused.contains("the archive of thief 1.0.0 has other files"), "{refused}");
    let refused = error(cargo(&text.replace("1.2.0", "1.2.1"))).await;
    assert!(
        refused.starts_with("cargo cannot install the packages: ") && refused.contains("404"),
        "{refused}"
    );

    let (sums, manifest) = registry.go_files();
    let lines: Vec<&str> = sums.lines().collect();
    // The hash of another file.
    let first = lines[0];
    let other = lines[2].split(' ').nth(2).unwrap();
    let changed = sums.replacen(first.split(' ').nth(2).unwrap(), other, 1);
    let refused = error(LockFile::go(changed.as_bytes(), manifest.as_bytes()).unwrap()).await;
    assert!(refused.contains("checksum mismatch"), "{refused}");
    assert_eq!(entries(&cache), [""; 0]);
}

/// Everything of `cache` as text, without what no text is.
fn contains(folder: &Path, secret: &str) -> bool {
    let found = Command::new("grep").args(["-rqF", secret]).arg(folder).status().unwrap();
    found.success()
}

#[tokio::test]
async fn keys_of_registries_stay_with_the_installer() {
    const SECRETS: [&str; 3] =
        ["hunter2-of-the-index", "token-of-the-scope-0123", "token-of-the-crates-0123"];
    let (registry, (_folder, cache)) = (Registry::start(), empty_cache());
    let (scoped, manifest) = registry.scoped_npm_files();
    let (sums, go_manifest) = registry.go_files();
    let locks = [
        LockFile::pip(registry.pinned("shouter", "2.0").as_bytes()).unwrap(),
        LockFile::npm(scoped.as_bytes(), manifest.as_bytes()).unwrap(),
        LockFile::cargo(registry.cargo_lock(&["adder 1.2.0"]).as_bytes()).unwrap(),
        LockFile::go(sums.as_bytes(), go_manifest.as_bytes()).unwrap(),
    ];
    let right = registry.private_variables();
    // The same addresses, with other passwords and tokens.
    let wrong: Vec<(&'static str, String)> = right
        .iter()
        .map(|(name, value)| {
            let value = value.replace("hunter2-of-the-index", "hunter3-of-the-index");
            (*name, if *name == "NPM_TOKEN" { "another-token-0123".to_owned() } else { value })
        })
        .collect();
    let wrong = {
        let mut registries = wrong;
        registries.push(("CARGO_REGISTRIES_MIRROR_TOKEN", "another-token-of-crates".to_owned()));
        of_variables(&registries)
    };
    for lock in &locks {
        let refused = install_from(&registry, &wrong, &cache, lock).await.unwrap_err().to_string();
        let other = ["hunter3-of-the-index", "another-token-0123", "another-token-of-crates"];
        assert!(!other.iter().any(|it| refused.contains(it)), "{refused}");
        assert!(
            refused.contains("401") || refused.contains("E401") || refused.contains("No matching"),
            "{refused}"
        );
    }
    assert_eq!(entries(&cache), [""; 0]);
    let right = of_variables(&right);
    for lock in &locks {
        let packages = install_from(&registry, &right, &cache, lock).await.unwrap();
        for secret in SECRETS {
            assert!(!contains(packages.folder(), secret), "{secret} in {:?}", lock.installer());
        }
        let printed =
            build(&packages, &[], &["bash", "-c", "env; cat /.cargo/config.toml || true"]).await;
        assert!(!SECRETS.iter().any(|it| printed.output.contains(it)), "{}", printed.output);
    }
    assert!(
        registry.requests().contains(&"/private/@team/left-step/-/left-step-1.0.0.tgz".to_owned())
    );
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
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let lock = LockFile::npm(registry.npm_files().0.as_bytes(), registry.npm_files().1.as_bytes())
        .unwrap();
    let packages = PackageCache::new(&cache);
    let registries = registries(&registry);
    let installed = packages.install(&lock, &sandbox, network, &registries, &cancel).await;
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
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let packages = PackageCache::new(&cache);
    let registries = registries(&registry);
    let network = network(&registry);
    let installing = packages.install(&lock, &sandbox, network, &registries, &cancel);
    let (installed, ()) = tokio::join!(installing, async {
        let asked = Arc::clone(&registry);
        tokio::task::spawn_blocking(move || asked.wait_for("/simple/slow/")).await.unwrap();
        cancel.cancel();
    });
    let error = installed.unwrap_err();
    assert!(matches!(error, PackagesError::Sandbox { .. }), "{error:?}");
    assert_eq!(entries(&cache), [""; 0]);
}
