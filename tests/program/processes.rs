//! The descendants of a process, and whether they have ended.

use std::{fs, time::Duration};

use nix::unistd::Pid;
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

use super::pid_of;

/// The maximum wait for processes to start or end, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// The polling interval: the system does not notify about processes that are no children.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A process that existed at some time.
#[derive(Debug)]
pub(crate) struct Process {
    id: Pid,
    /// The clock tick of its start: a later process with the same id has another one.
    began: u64,
    pub(crate) name: String,
}

/// Returns every descendant of a program.
pub(crate) fn below(program: &Child) -> Vec<Process> {
    let mut found = children(pid_of(program));
    let mut next = 0;
    while let Some(&id) = found.get(next) {
        found.extend(children(id));
        next += 1;
    }
    found.into_iter().filter_map(Process::find).collect()
}

/// Waits until a program has a descendant of that name.
pub(crate) async fn until_below(program: &Child, name: &str) {
    let is_there = until(|| below(program).iter().any(|it| it.name == name)).await;
    assert!(is_there, "no {name} comes to life: {:?}", below(program));
}

/// Waits until generated code runs: Python, started by the script inside the sandbox.
pub(crate) async fn until_code_runs_below(program: &Child) {
    let runs_python = |bash: &Process| {
        let mut inside = children(bash.id).into_iter().filter_map(Process::find);
        bash.name == "bash" && inside.any(|it| it.name == "python3")
    };
    let runs = until(|| below(program).iter().any(runs_python)).await;
    assert!(runs, "no code comes to run: {:?}", below(program));
}

/// Waits until all of them have ended. Fails with those that remain.
pub(crate) async fn assert_gone(mut processes: Vec<Process>) {
    let are_gone = until(|| {
        processes.retain(Process::is_alive);
        processes.is_empty()
    });
    let are_gone = are_gone.await;
    assert!(are_gone, "these outlive the program that started them: {processes:?}");
}

/// Polls until a condition holds, and returns whether it did.
async fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let looked = timeout(WAIT_MAX, async {
        while !is_so() {
            sleep(LOOK_INTERVAL).await;
        }
    });
    looked.await.is_ok()
}

impl Process {
    fn find(id: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name is in brackets and may itself contain brackets.
        let (begin, rest) = stat.rsplit_once(") ")?;
        let (_, name) = begin.split_once('(')?;
        let mut fields = rest.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        // The 22nd field of the line, of which the first three are already read.
        let began = fields.nth(18)?.parse().ok()?;
        Some(Self { id, began, name: name.to_owned() })
    }

    fn is_alive(&self) -> bool {
        Self::find(self.id).is_some_and(|now| now.began == self.began)
    }
}

/// Returns the children of all threads of a process; none if it has ended.
fn children(process: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("children")).ok());
    let ids = |list: String| list.split_whitespace().map(str::parse).collect::<Vec<_>>();
    lists.flat_map(ids).map(|id| Pid::from_raw(id.unwrap())).collect()
}
