//! The processes of one sandbox, seen from the host: their resource usage and their end.
//!
//! They are descendants of bubblewrap's monitor, whose one child is process 1 of the sandbox. A process inside that
//! loses its parent becomes a child of process 1, so no process leaves the tree.

use std::{fmt::Write as _, fs};

use nix::{
    sys::{
        signal::{Signal, kill},
        statvfs::statvfs,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

/// The most files that a program may make in one of its folders. An empty file takes about a kilobyte of the kernel's
/// memory, which belongs to no process.
const FILES_MAX: u64 = 50_000;

/// The addition to this process's OOM score for the processes of a sandbox, and the highest score.
const OOM_SCORE_MORE: i32 = 500;
const OOM_SCORE_MAX: i32 = 1000;

/// The field of the page tables of a process in its status.
const PAGE_TABLES: &str = "VmPTE:";

/// Folders the program may write to, as the sandbox sees them.
const WRITABLE: [&str; 3] = ["/box", "/tmp", "/dev/shm"];

/// The processes of one sandbox.
#[derive(Debug)]
pub(super) struct ProcessTree {
    monitor: u32,
    /// Process 1 of the sandbox, once it is known.
    init: Option<u32>,
}

impl ProcessTree {
    /// The tree below bubblewrap's monitor. The monitor must be a child of this process and not yet reaped: then its
    /// number cannot mean another process.
    pub(super) fn below(monitor: u32) -> Self {
        Self { monitor, init: None }
    }

    /// Remembers process 1 while the monitor lives, to be able to see its end afterwards.
    pub(super) fn find_init(&mut self) {
        self.init = self.init.or_else(|| children(self.monitor).first().copied());
    }

    /// Returns the script inside, the child of process 1, before the program starts.
    pub(super) fn script(&self) -> Option<u32> {
        children(self.init?).first().copied()
    }

    /// Makes the kernel end these processes rather than this one when memory runs out. Their children inherit the
    /// setting, and they cannot undo it, for their `/proc` is read-only. A kernel that refuses the setting chooses by
    /// size.
    pub(super) fn offer_first(&self) {
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        let own: i32 = own.trim().parse().unwrap_or_default();
        let first = (own + OOM_SCORE_MORE).min(OOM_SCORE_MAX).to_string();
        for process in self.processes() {
            let _ = fs::write(format!("/proc/{process}/oom_score_adj"), &first);
        }
    }

    /// Kills process 1 of the sandbox, if it is there yet. The kernel then kills every other one, and the monitor ends.
    pub(super) fn kill(&mut self) {
        self.find_init();
        for init in children(self.monitor) {
            send_kill(init);
        }
    }

    /// Kills the monitor too, if killing process 1 was not enough.
    pub(super) fn kill_monitor(&mut self) {
        self.kill();
        send_kill(self.monitor);
    }

    /// Returns whether the sandbox is empty. The monitor ends a moment before process 1, and process 1 becomes a
    /// zombie, or vanishes, only after the kernel has ended every other process of its namespace.
    pub(super) fn is_empty(&self) -> bool {
        let Some(init) = self.init else { return true };
        if let Ok(init) = i32::try_from(init) {
            // If this process adopts orphans (as process 1 of a container does), it has to reap the zombie.
            let _ = waitpid(Pid::from_raw(init), Some(WaitPidFlag::WNOHANG));
        }
        has_ended(init)
    }

    /// Returns whether all processes together exceed the memory limit, or have made too many files.
    pub(super) fn is_beyond(&self, memory_bytes: u64) -> bool {
        let processes = self.processes();
        // Resident pages shared by several processes count once for each. That is cheap and never too low, so only a
        // sum above the limit needs the exact and slow figure.
        let resident: u64 = processes.iter().map(|process| resident_bytes(*process)).sum();
        if resident > memory_bytes {
            let exact: u64 = processes.iter().map(|process| proportional_bytes(*process)).sum();
            if exact > memory_bytes {
                return true;
            }
        }
        processes.get(1).is_some_and(|process| made_too_many_files(*process))
    }

    /// Process 1 of the sandbox and all below it.
    fn processes(&self) -> Vec<u32> {
        let mut found = children(self.monitor);
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children(*process));
            next += 1;
        }
        found
    }
}

/// Returns whether this kernel lists children, which the tree needs.
pub(super) fn is_supported() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

/// Returns whether a process is gone, or is a zombie until its parent waits for it.
pub(super) fn has_ended(process: u32) -> bool {
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // The name before the state is in brackets and may contain anything, even brackets.
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// Returns the children of all threads of a process; none if it is gone.
pub(super) fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the touched memory of a process that no file on disk backs, and its page tables, which also grow where a process
/// only reads memory that it has never written.
fn resident_bytes(process: u32) -> u64 {
    sum_of_fields(&status_of(process), &["RssAnon:", "RssShmem:", PAGE_TABLES])
}

/// Returns the same, with shared pages divided among their users. If the kernel lacks or hides this figure, the coarse
/// one is used. Processes share no page tables.
fn proportional_bytes(process: u32) -> u64 {
    match fs::read_to_string(format!("/proc/{process}/smaps_rollup")) {
        Ok(rollup) if rollup.contains("Pss_Anon:") => {
            let pages = sum_of_fields(&rollup, &["Pss_Anon:", "Pss_Shmem:"]);
            pages + sum_of_fields(&status_of(process), &[PAGE_TABLES])
        }
        _ => resident_bytes(process),
    }
}

fn status_of(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

/// Adds up fields of the form `Name:   123 kB`.
fn sum_of_fields(text: &str, names: &[&str]) -> u64 {
    text.lines()
        .filter_map(|line| names.iter().find_map(|name| line.strip_prefix(name)))
        .filter_map(|value| value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .sum::<u64>()
        * 1024
}

/// Checks the number of files on the mounts of the sandbox. The paths are the sandbox's own mount points below a
/// read-only root, so the program cannot replace them.
fn made_too_many_files(process: u32) -> bool {
    let mut path = String::new();
    WRITABLE.iter().any(|folder| {
        path.clear();
        let _ = write!(path, "/proc/{process}/root{folder}");
        statvfs(path.as_str())
            .is_ok_and(|stat| stat.files().saturating_sub(stat.files_free()) > FILES_MAX)
    })
}

fn send_kill(process: u32) {
    if let Ok(process) = i32::try_from(process) {
        // The process may have ended already; then there is nothing to do.
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_and_its_memory_is_counted() {
        let mut child = std::process::Command::new("/usr/bin/sleep").arg("60").spawn().unwrap();
        let found = children(std::process::id());
        let memory = resident_bytes(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
        assert!(memory > 100_000, "{memory}");
    }

    #[test]
    fn fields_of_proc_are_added_up() {
        let status = "Name:\tx\nRssAnon:\t     100 kB\nRssFile:\t 7 kB\nRssShmem:\t      20 kB\n";
        assert_eq!(sum_of_fields(status, &["RssAnon:", "RssShmem:"]), 120 * 1024);
    }

    #[test]
    fn a_process_that_is_gone_counts_nothing() {
        assert!(!ProcessTree::below(u32::MAX).is_beyond(0));
    }
}
