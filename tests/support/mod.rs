//! Helpers for several test files.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod disturbed;
pub(crate) mod git;
pub(crate) mod packages;
pub(crate) mod postgres;
pub(crate) mod ran;
pub(crate) mod registry;
pub(crate) mod subscriber;
pub(crate) mod team;

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

use graphrun::{
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    graph::NodeContext,
    id::TaskId,
    models::{ChatModel, ModelError, Replay},
    nodes::{ModelSource, Services, factory},
    sandbox::default_cache_dir,
    workflow::parse,
};

/// Returns the graph of a workflow that needs no services, if it loads without errors.
pub(crate) fn loaded(text: &str) -> Option<CompiledGraph> {
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text: text.to_owned() });
    let (workflow, _) = parse(file, Path::new(""), &graphrun::registry()).ok()?;
    let factory = factory(Services::offline(), graphrun::registry());
    compile(workflow.into_graph(&factory)).ok()
}

/// Returns a new loopback address with a free port. Limits and breakers of models hold for an address as long as
/// the process lives, and a port is soon used again.
pub(crate) fn new_loopback() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    SocketAddr::from(([127, 77, high, low], 0))
}

/// Counts outside the engine how often each task did its work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<TaskId, u32>>>);

impl Ledger {
    pub(crate) fn done(&self, ctx: &NodeContext) {
        *self.0.lock().unwrap().entry(ctx.task).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<TaskId, u32> {
        self.0.lock().unwrap().clone()
    }
}

/// One recording that replaces every model.
#[derive(Debug)]
pub(crate) struct RecordedModels(pub(crate) Arc<Replay>);

impl ModelSource for RecordedModels {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }

    fn in_place_of_programs(&self) -> Option<Arc<dyn ChatModel>> {
        Some(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}

/// Returns a child process that runs only this test of the given module.
pub(crate) fn child_test(module: &str, test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", &test_name(module, test), "--nocapture"]);
    command
}

/// Copies this program to a path, where another user may start it. A separate process does the copy: if this one
/// held the file open, programs that other tests start at that moment would hold it too, and it could not be started.
pub(crate) fn copy_own_program(to: &Path) {
    let own = env::current_exe().expect("this program has a path");
    let status = Command::new("cp").args([&*own, to]).status().expect("`cp` starts");
    assert!(status.success(), "`cp` ended with {status}");
}

/// Returns the name under which this program runs a test of the given module.
pub(crate) fn test_name(module: &str, test: &str) -> String {
    let (_program, module) = module.split_once("::").expect("tests are in modules");
    format!("{module}::{test}")
}

/// Returns some of the cases of a long test: about one of `of`, drawn at random each time, and all of them with
/// `GRAPHRUN_TEST_ALL`.
pub(crate) fn some_of<T>(of: u64, cases: impl IntoIterator<Item = T>) -> Vec<T> {
    if takes_all() {
        return cases.into_iter().collect();
    }
    let mut cases: Vec<(u64, T)> =
        cases.into_iter().map(|it| (RandomState::new().build_hasher().finish(), it)).collect();
    let count = (cases.len() as u64).div_ceil(of);
    let mut drawn: Vec<u64> = cases.iter().map(|it| it.0).collect();
    drawn.sort_unstable();
    drawn.truncate(usize::try_from(count).expect("cases are few"));
    cases.retain(|it| drawn.contains(&it.0));
    cases.into_iter().map(|it| it.1).collect()
}

/// Returns whether tests with a short and a long form take the long one.
pub(crate) fn takes_all() -> bool {
    env::var_os("GRAPHRUN_TEST_ALL").is_some()
}

/// Returns the folder of the environments for generated code, which all test runs share.
pub(crate) fn cache_dir() -> PathBuf {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let home = variable("HOME");
    let cache = variable("XDG_CACHE_HOME");
    default_cache_dir(home.as_deref(), cache.as_deref()).expect("HOME is set")
}
