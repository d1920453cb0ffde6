//! The processes below another one, and whether they are gone.

use std::{fs, time::Duration};

use tokio::time::{sleep, timeout};

/// How long the kernel may take to end the processes of a killed program.
const END_MAX: Duration = Duration::from_secs(20);

/// A process that was there once.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    /// The tick of the clock at which it began: another process with the same number began at another.
    began: u64,
    pub(crate) name: String,
}

/// Every process below this one.
pub(crate) fn below(process: u32) -> Vec<Process> {
    let mut found = children(process);
    let mut next = 0;
    while let Some(&id) = found.get(next) {
        found.extend(children(id));
        next += 1;
    }
    found.into_iter().filter_map(Process::find).collect()
}

/// Waits until all of them are gone. Fails with those that stay.
pub(crate) async fn assert_gone(mut processes: Vec<Process>) {
    let gone = timeout(END_MAX, async {
        loop {
            processes.retain(Process::is_alive);
            if processes.is_empty() {
                break;
            }
            // Nobody tells of the end of a process that is no child.
            sleep(Duration::from_millis(10)).await;
        }
    });
    let is_gone = gone.await.is_ok();
    assert!(is_gone, "these outlive the program that started them: {processes:?}");
}

impl Process {
    fn find(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name is in brackets and may contain anything, brackets too.
        let (begin, rest) = stat.rsplit_once(") ")?;
        let (_, name) = begin.split_once('(')?;
        let mut fields = rest.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        // The 22nd field of the line, of which the first three are read.
        let began = fields.nth(18)?.parse().ok()?;
        Some(Self { id, began, name: name.to_owned() })
    }

    fn is_alive(&self) -> bool {
        Self::find(self.id).is_some_and(|now| now.began == self.began)
    }
}

/// The children of all threads of a process; none if it is gone.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("children")).ok());
    lists
        .flat_map(|it| it.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}
