//! The sandbox against programs that try to break out of it, and for programs that only want to work.
//!
//! Each file in `attacks` is an attempt that says itself whether it was held; what a run must look like from outside stands
//! in its head. A new attack is a new file. Run as root, everything is done a second time by an ordinary user.

#![expect(clippy::unwrap_used, reason = "a test fails where its setup fails")]

mod attack;
mod folder;
pub(crate) mod host;
mod network;
mod packages;
mod supervision;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use attack::Attack;
use graphrun::sandbox::{Job, ProgramEnd, Sandbox, SourceFile};
use host::Host;
use nix::unistd::geteuid;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::support::{copy_own_program, some_of, test_name};

/// Attacks that run at a time. They mostly wait.
const AT_A_TIME: usize = 3;

/// A user that owns nothing.
const ORDINARY_USER: u32 = 4242;

/// Names the folder with the corpora to a test process that cannot read the project.
const CORPORA: &str = "GRAPHRUN_TEST_CORPORA";

fn corpora() -> PathBuf {
    std::env::var_os(CORPORA)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox"), PathBuf::from)
}

fn programs(corpus: &str) -> Vec<PathBuf> {
    let folder = corpora().join(corpus);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|extension| extension == "py") && !path.ends_with("attack.py")
    });
    paths.sort();
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_is_held() {
    let sandbox = Sandbox::probe().unwrap();
    let host = Arc::new(Host::start());
    let attacks: Vec<Attack> = programs("attacks").iter().map(|path| Attack::read(path)).collect();
    assert!(attacks.len() >= 50, "only {} attacks were found", attacks.len());
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut running = JoinSet::new();
    for attack in attacks {
        let sandbox = sandbox.clone();
        let host = Arc::clone(&host);
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            let complaints = attack.run(&sandbox, &host).await;
            (attack, complaints)
        });
    }
    let mut complaints = Vec::new();
    for (attack, mut found) in running.join_all().await {
        // Another attack may have had the processor meanwhile. One that outlives its limit does so again, alone.
        if !found.is_empty() && found.iter().all(|it| it.starts_with("took ")) {
            found = attack.run(&sandbox, &host).await;
        }
        complaints.extend(found.iter().map(|it| format!("{}: {it}", attack.name)));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    host.assert_unharmed();
}

/// An attack that is held everywhere proves nothing.
#[test]
fn attacks_break_out_where_there_is_no_sandbox() {
    let host = Host::start();
    let attacks: Vec<Attack> = programs("attacks")
        .iter()
        .map(|path| Attack::read(path))
        .filter(|attack| attack.breaks_out)
        .collect();
    assert!(attacks.len() >= 10, "only {} attacks say that they break out", attacks.len());
    for attack in attacks {
        let output = attack.run_outside(&host);
        assert!(output.contains("BREACH"), "{} is held without a sandbox: {output}", attack.name);
    }
}

#[tokio::test]
async fn ordinary_programs_work() {
    let sandbox = Sandbox::probe().unwrap();
    for path in programs("compat") {
        let content = fs::read_to_string(&path).unwrap();
        let job = Job {
            argv: ["python3", "program.py"].map(str::to_owned).into(),
            files: vec![SourceFile { path: "program.py".to_owned(), content }],
            ..Job::default()
        };
        let finished = sandbox.run(&job, &CancellationToken::new()).await.unwrap();
        assert_eq!(finished.end, ProgramEnd::Exited(0), "{}: {}", path.display(), finished.output);
    }
}

/// Root gives up its rights before the sandbox is made, an ordinary user has none to give up: two ways in, and both must
/// hold. Where the tests are not root's, the other tests have shown this already.
#[test]
fn everything_holds_for_an_ordinary_user_too() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open_to_all =
        |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    open_to_all(folder.path());
    let program = folder.path().join("tests");
    copy_own_program(&program);
    open_to_all(&program);
    for corpus in ["attacks", "compat"] {
        let copy = folder.path().join(corpus);
        fs::create_dir(&copy).unwrap();
        open_to_all(&copy);
        for path in programs(corpus).into_iter().chain([corpora().join("attacks/attack.py")]) {
            fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
    }
    let mut list = Command::new(&program);
    list.args([&test_name(module_path!(), ""), "--list", "--format", "terse"]);
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let tests: Vec<&str> = listed.lines().filter_map(|it| it.strip_suffix(": test")).collect();
    assert!(tests.len() >= 30, "{tests:?}");
    let output = Command::new(program)
        .arg("--exact")
        .args(some_of(3, tests))
        .env(CORPORA, folder.path())
        .current_dir("/")
        .uid(ORDINARY_USER)
        .gid(ORDINARY_USER)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
