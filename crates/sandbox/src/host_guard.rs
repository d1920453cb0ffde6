//! The guard of a command on this machine: it kills the processes of the command if this process is gone, and a control
//! group holds all of them.
//!
//! A killed process cannot end its commands, and one that reads no input does not notice. So a small shell, in a session of
//! its own, waits for the end of a pipe of which this process has the other end. A signal at the death of the parent
//! (`PR_SET_PDEATHSIG`) would not do: it comes when the *thread* that started the command ends.
//!
//! A process can leave its session, its parent and its environment, and never its control group. The groups of version 2
//! need write access to the group of this process, which root and the services of a user have. Without it, `host_command` finds
//! processes by their parent, their process group and their environment.

use std::{
    ffi::OsString,
    fs,
    io::{self, PipeWriter, Write as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};

/// Starts the guard, joins the control group and becomes the command, so that its id and its end are those of the command.
/// The guard is no child of the command, which may wait for all of its children. Arguments: the guard, the control group or
/// nothing, the mark, then the command. Descriptor 3 is the pipe.
const START: &str = r#"
guard=$0 group=$1 mark=$2
shift 2
(/usr/bin/env -u "${mark%%=*}" /usr/bin/setsid /bin/sh -c "$guard" guard "$group" "$mark" $$ <&3 3<&- >/dev/null 2>&1 &)
if [ -n "$group" ]; then echo $$ >"$group/cgroup.procs"; fi 2>/dev/null
exec "$@" 3<&-
"#;

/// Waits for the word that all is done, or for the end of the pipe. Then all processes are killed; while some are found, they
/// may have made others. Arguments: the control group or nothing, the mark, and the process group.
const GUARD: &str = r#"
read -r word
if [ "$word" = done ]; then exit; fi
for round in 1 2 3 4 5; do
  if [ -n "$1" ]; then echo 1 >"$1/cgroup.kill"; fi
  kill -s KILL -- "-$3"
  for path in $(grep -lszxF "$2" /proc/[0-9]*/environ); do
    path=${path#/proc/}
    kill -s KILL "${path%%/*}"
  done
  sleep 0.05
done
if [ -n "$1" ]; then rmdir "$1"; fi
"#;

/// How often an empty control group is removed, a millisecond apart. Killed processes leave it a moment later.
const REMOVALS_MAX: u32 = 100;

/// The guard of one command. When it is dropped, the guard ends and leaves the processes that are left alone.
#[derive(Debug)]
pub(super) struct HostGuard {
    pipe: PipeWriter,
    group: Option<PathBuf>,
}

impl HostGuard {
    /// Returns a guard, and the command that starts it together with a program. `mark` is a variable with its value, which the
    /// processes of the command inherit.
    ///
    /// # Errors
    ///
    /// Fails when this process has too many open files.
    pub(super) fn new(
        program: &Path,
        arguments: &[String],
        mark: &str,
    ) -> io::Result<(Self, Command)> {
        let (inside, pipe) = io::pipe()?;
        let group = new_group();
        let shown = group.as_ref().map_or_else(OsString::new, |it| it.clone().into_os_string());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", START, GUARD]).arg(shown).arg(mark).arg(program).args(arguments);
        let mapping = FdMapping { parent_fd: inside.into(), child_fd: 3 };
        command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        Ok((Self { pipe, group }, command))
    }

    /// Kills the processes in the control group, if there is one. Returns those that were there.
    pub(super) fn kill(&self) -> Vec<u32> {
        let Some(group) = &self.group else { return Vec::new() };
        let found = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let _ = fs::write(group.join("cgroup.kill"), "1");
        found.lines().filter_map(|it| it.parse().ok()).collect()
    }
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        // A guard that was killed needs no word.
        let _ = self.pipe.write_all(b"done\n");
        let Some(group) = &self.group else { return };
        for _ in 0..REMOVALS_MAX {
            if fs::remove_dir(group).is_ok() || !group.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes a control group below the one of this process, where that is possible.
fn new_group() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|it| it.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let group = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut parts = place.split(' ').skip(3);
        let root = parts.next()?;
        let mount = parts.next()?;
        let below = Path::new(own).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ").then(|| Path::new(mount).join(below))
    })?;
    let group = group.join(format!("graphrun-{:016x}", rand::random::<u64>()));
    fs::create_dir(&group).ok()?;
    // Linux before 5.14 kills no groups.
    if group.join("cgroup.kill").exists() {
        return Some(group);
    }
    let _ = fs::remove_dir(&group);
    None
}

#[cfg(test)]
pub(super) fn has_groups() -> bool {
    new_group().is_some_and(|it| fs::remove_dir(it).is_ok())
}
