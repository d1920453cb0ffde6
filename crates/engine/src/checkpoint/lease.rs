//! Ownership of a run: one process at a time, by a lease with a fencing token.
//!
//! A lease expires if its owner does not renew it. Each lease has a higher number than those
//! before, and every write carries the number. Thus an owner that lost its lease can no longer
//! write.

use std::{
    collections::BTreeSet,
    fmt, fs, process,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use graphrun_core::id::RunId;
use jiff::Timestamp;
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use serde::{Deserialize, Serialize};

/// The owner of a run: a process, and a token for one of its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// The name of its machine.
    pub host: String,
    /// The scope in which the process number is unique: a boot of a machine and a PID namespace.
    /// Not available on every system.
    pid_scope: Option<String>,
    /// The start time of the process in units of the system, because process numbers are reused.
    started: Option<u64>,
    /// The token of the run within the process.
    token: u64,
    /// Since when the process has the run.
    pub since: Timestamp,
}

/// The owner of a run, and when its lease expires unless it is renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The owner.
    pub owner: Owner,
    /// The number of the lease.
    pub fence: u64,
    /// When the lease expires, by the clock of the storage.
    pub until: Timestamp,
}

impl LeaseInfo {
    /// Returns whether the owner still has the run: its lease has not expired, or its process certainly
    /// exists.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.until > now || self.owner.is_alive()
    }
}

/// A request for the lease of a run.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The process that requests the lease.
    pub owner: Owner,
    /// The duration of the lease unless it is renewed.
    pub ttl: Duration,
    /// The fencing token of a lease that counts as expired early, because its owner is dead.
    pub replaces_fence: Option<u64>,
}

/// The right to write a run: its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseToken {
    /// The run.
    pub run: RunId,
    /// The number of the lease.
    pub fence: u64,
}

/// Marks an owner in this process as present until it is dropped.
#[derive(Debug)]
pub struct Presence {
    owner: Owner,
}

/// The tokens of the owners that are present in this process.
static PRESENT: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

static SELF: LazyLock<Owner> = LazyLock::new(|| Owner {
    pid: process::id(),
    host: nix::unistd::gethostname()
        .ok()
        .and_then(|it| it.into_string().ok())
        .unwrap_or_else(|| "localhost".to_owned()),
    pid_scope: pid_scope(),
    started: start_time(process::id()),
    token: 0,
    since: Timestamp::now(),
});

impl Owner {
    /// Returns whether the owner is certainly dead.
    ///
    /// This is possible only for owners on this machine. For others only an expired lease proves
    /// it.
    pub fn is_dead(&self) -> bool {
        let here = &*SELF;
        if self.pid_scope.is_none() || self.pid_scope != here.pid_scope || self.host != here.host {
            return false;
        }
        if (self.pid, self.started) == (here.pid, here.started) {
            return !present().contains(&self.token);
        }
        // A process that exists, but does not show when it started, may be the owner.
        self.started.is_some() && start_time(self.pid) != self.started && !is_hidden(self.pid)
    }

    /// Returns whether the owner is certainly alive.
    ///
    /// Its run is then not free, even if the lease looks expired: setting a clock ahead ends no process. As
    /// with [`is_dead`](Self::is_dead), this is possible only for owners on this machine. A stopped process
    /// may never continue, so for it the end of its lease decides.
    pub fn is_alive(&self) -> bool {
        let here = &*SELF;
        let is_near =
            self.pid_scope.is_some() && self.pid_scope == here.pid_scope && self.host == here.host;
        let is_it = || self.started.is_some() && start_time(self.pid) == self.started;
        is_near && is_it() && !self.is_dead() && !is_stopped(self.pid)
    }
}

impl fmt::Display for LeaseInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner: Owner { pid, host, since, .. }, until, .. } = self;
        write!(f, "process {pid} on {host} since {since:.0}; its lease expires at {until:.0}")
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.host)
    }
}

impl Presence {
    /// Makes a new owner in this process.
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        let mut present = present();
        loop {
            let token = rand::random();
            if present.insert(token) {
                return Self { owner: Owner { token, since: Timestamp::now(), ..SELF.clone() } };
            }
        }
    }

    /// Returns the owner.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        present().remove(&self.owner.token);
    }
}

fn present() -> MutexGuard<'static, BTreeSet<u64>> {
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the boot of this machine and the PID namespace of this process.
fn pid_scope() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let numbers = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), numbers.display()))
}

/// Returns the start time of a process in ticks since the boot; `None` if the process does not
/// exist or is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let fields = stat(pid)?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Returns whether a process exists whose status line cannot be read: the system hides it from this user, or this process has
/// no free descriptor.
fn is_hidden(pid: u32) -> bool {
    let exists = |pid| kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH);
    stat(pid).is_none() && i32::try_from(pid).is_ok_and(exists)
}

/// Returns whether a signal or a debugger has stopped a process.
fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields.trim_start().starts_with(['T', 't']))
}

/// Returns the system's status line of a process, from the state field on.
fn stat(pid: u32) -> Option<String> {
    // The second field is a name and may hold anything: <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, fields)| fields.to_owned())
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn an_owner_is_there_until_its_presence_ends() {
        let one = Presence::new();
        let other = Presence::new();
        let owner = one.owner().clone();
        assert_ne!(owner, *other.owner());
        assert!(!owner.is_dead() && owner.is_alive());
        drop(one);
        assert!(owner.is_dead() && !owner.is_alive() && !other.owner().is_dead());
    }

    #[test]
    fn an_owner_in_a_process_that_ended_is_dead() {
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let owner = Owner { pid, started: start_time(pid), ..SELF.clone() };
        assert!(!owner.is_dead() && owner.is_alive());
        let process = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGSTOP).unwrap();
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        assert!(!owner.is_dead() && !owner.is_alive(), "a stopped process may never continue");
        child.kill().unwrap();
        // The process is dead, but still a zombie.
        while start_time(pid).is_some() {
            std::thread::yield_now();
        }
        assert!(owner.is_dead());
        child.wait().unwrap();
        assert!(owner.is_dead());
    }

    #[test]
    fn a_process_with_a_number_that_was_used_before_is_another_one() {
        let owner = Presence::new().owner().clone();
        let earlier = Owner { started: owner.started.map(|it| it - 1), ..owner };
        assert!(earlier.is_dead());
    }

    /// Set for the process in which the test below runs without descriptors.
    const OWNER: &str = "GRAPHRUN_TEST_OWNER";

    #[test]
    fn nothing_is_certain_of_an_owner_whose_status_cannot_be_read() {
        let Ok(owner) = std::env::var(OWNER) else {
            let unknown = Owner { pid: 1, started: None, ..SELF.clone() };
            assert!(!unknown.is_dead() && !unknown.is_alive());
            let owner = serde_json::to_string(Presence::new().owner()).unwrap();
            let test = "checkpoint::lease::tests::nothing_is_certain_of_an_owner_whose_status_cannot_be_read";
            let mut child = process::Command::new(std::env::current_exe().unwrap());
            let child = child.args([test, "--exact", "--nocapture"]).env(OWNER, owner);
            let ended = child.output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"));
            return;
        };
        let owner: Owner = serde_json::from_str(&owner).unwrap();
        let earlier = Owner { started: owner.started.map(|it| it - 1), ..owner.clone() };
        assert!(!owner.is_dead() && owner.is_alive() && earlier.is_dead());
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let certain = [owner.is_dead(), owner.is_alive(), earlier.is_dead(), earlier.is_alive()];
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(certain, [false; 4]);
    }

    #[test]
    fn nothing_is_certain_of_owners_elsewhere() {
        let gone = Presence::new().owner().clone();
        assert!(gone.is_dead());
        for elsewhere in [
            Owner { pid_scope: Some("another boot".into()), ..gone.clone() },
            Owner { pid_scope: None, ..gone.clone() },
            Owner { host: "elsewhere".into(), ..gone },
        ] {
            assert!(!elsewhere.is_dead() && !elsewhere.is_alive(), "{elsewhere:?}");
        }
    }
}
