//! Starts bubblewrap for one job: the command line, the descriptors, the user.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, PipeReader, PipeWriter, Seek as _, Write as _},
    net::{Shutdown, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use command_fds::{CommandFdExt as _, FdMapping};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use super::{
    archive,
    enter::Namespaces,
    error::SandboxError,
    job::{Channel, Job, Limits},
    job_streams::Ends,
    mounts::{
        CERTIFICATES, CERTIFICATES_ENVIRONMENT, SYNTHETIC_ETC, SystemMounts, system_certificates,
    },
    network::PROXY_ENVIRONMENT,
};

/// The script inside: it unpacks the files, runs the program and packs the declared files.
/// The shell inside, by its path: a package of an environment may bring another one.
pub const SHELL: &str = "/usr/bin/bash";

const INSIDE: &str = include_str!("inside.sh");

/// The numbers of the descriptors of the script inside.
const REPORT: i32 = 3;
const FILES: i32 = 4;
const COLLECTED: i32 = 5;
const STDIN: i32 = 6;
const RECORDS: i32 = 7;
/// Descriptors for bubblewrap itself start here.
const FIRST_FREE: i32 = 10;

/// The home of a program that keeps it.
const HOME_INSIDE: &str = "/agent";

/// Size of the address space. Loose: runtimes reserve far more than they use, and `RLIMIT_DATA` counts actual use.
const ADDRESS_SPACE_BYTES: u64 = 64 << 30;

/// The common parts of every start, found by the probe.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) bwrap: PathBuf,
    pub(super) mounts: SystemMounts,
    /// The compiled filter programs.
    pub(super) filters: Vec<Vec<u8>>,
    /// The user and group to switch to first, if this process is root's.
    pub(super) become_user: Option<u32>,
}

/// A job, ready for its supervisor thread.
#[derive(Debug)]
pub(super) struct Launch {
    launcher: Arc<Launcher>,
    pub(super) job: Job,
    pub(super) archive: Vec<u8>,
    /// Whether programs find a proxy.
    has_proxy: bool,
}

/// A starting sandbox, with the host's ends of its pipes.
#[derive(Debug)]
pub(super) struct StartedSandbox {
    /// Bubblewrap's monitor.
    pub(super) child: Child,
    /// Standard output and error of everything inside.
    pub(super) output: PipeReader,
    /// The reports of the script inside.
    pub(super) report: PipeReader,
    /// The pipe for the files.
    pub(super) files: PipeWriter,
    /// The pipe for `go`. The script reads it only after all files.
    pub(super) go: PipeWriter,
    /// The declared files. Only the script inside can write to it, so its end is the end of the script.
    pub(super) collected: PipeReader,
    /// The records of a program with a channel. Everything inside can write to it.
    pub(super) records: Option<UnixStream>,
}

impl Launch {
    /// Checks the job and packs its files; nothing is started.
    pub(super) fn prepare(
        launcher: &Arc<Launcher>,
        job: &Job,
        has_proxy: bool,
    ) -> Result<Self, SandboxError> {
        job.check()?;
        let archive =
            archive::pack(&job.folder, &job.files).map_err(SandboxError::io("pack the files"))?;
        Ok(Self { launcher: Arc::clone(launcher), job: job.clone(), archive, has_proxy })
    }

    /// Listens on the loopback of a sandbox, of which this process waits inside.
    pub(super) fn listen(&self, inside: u32) -> Result<TcpListener, SandboxError> {
        let listener = Namespaces::of(inside).and_then(|it| it.listen(self.launcher.become_user));
        listener.map_err(SandboxError::io("listen in the sandbox"))
    }

    /// Starts bubblewrap. It dies with the *thread* that calls this, so that thread must live until it has ended.
    pub(super) fn start(&self) -> Result<StartedSandbox, SandboxError> {
        self.try_start().map_err(SandboxError::io("start bwrap"))
    }

    fn try_start(&self) -> io::Result<StartedSandbox> {
        let (go_inside, go) = io::pipe()?;
        let (output, output_inside) = io::pipe()?;
        let (report, report_inside) = io::pipe()?;
        let (files_inside, files) = io::pipe()?;
        let (collected, collected_inside) = io::pipe()?;
        let mut descriptors = Descriptors::default();
        descriptors.pass_as(REPORT, report_inside);
        descriptors.pass_as(FILES, files_inside);
        descriptors.pass_as(COLLECTED, collected_inside);
        let records = match &self.job.channel {
            Channel::None => None,
            Channel::Records { secret, .. } => Some(descriptors.pass_secret(secret)?),
            Channel::Streams(streams) => {
                if let Some(ends) = streams.take() {
                    descriptors.pass_streams(ends);
                }
                None
            }
        };

        let mut command = Command::new(&self.launcher.bwrap);
        command
            .args(self.arguments(&mut descriptors)?)
            .env_clear()
            .current_dir("/")
            // A terminal sends Ctrl-C to its whole process group, which must not end a run of tests.
            .process_group(0)
            .stdin(Stdio::from(go_inside))
            .stdout(Stdio::from(output_inside.try_clone()?))
            .stderr(Stdio::from(output_inside));
        if let Some(user) = self.launcher.become_user {
            // The standard library also drops all supplementary groups here, before the user.
            command.uid(user).gid(user);
        }
        command.fd_mappings(descriptors.mappings).map_err(io::Error::other)?;
        let child = command.spawn()?;
        // `command`, dropped here, held the sandbox's ends of the pipes.
        Ok(StartedSandbox { child, output, report, files, go, collected, records })
    }

    fn arguments(&self, descriptors: &mut Descriptors) -> io::Result<Vec<OsString>> {
        let limits = &self.job.limits;
        let room = limits.work_bytes.to_string();
        let mut arguments = Arguments::default();
        // All namespaces, with the network's; no means to make new ones; no inherited environment.
        arguments.add(&[
            "--unshare-all",
            "--unshare-user",
            "--disable-userns",
            "--new-session",
            "--die-with-parent",
        ]);
        arguments.add(&[
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--hostname",
            "sandbox",
            "--cap-drop",
            "ALL",
            "--clearenv",
        ]);
        for (name, value) in FIXED_ENVIRONMENT {
            arguments.add(&["--setenv", name, value]);
        }
        let certificates = system_certificates().filter(|_| self.has_proxy);
        for name in CERTIFICATES_ENVIRONMENT.iter().filter(|_| certificates.is_some()) {
            arguments.add(&["--setenv", name, CERTIFICATES]);
        }
        for (name, value) in &self.job.env {
            arguments.add(&["--setenv", name, value]);
        }
        // The last value of a variable counts.
        for (name, value) in PROXY_ENVIRONMENT.iter().filter(|_| self.has_proxy) {
            arguments.add(&["--setenv", name, value]);
        }
        arguments.0.extend_from_slice(self.launcher.mounts.arguments());
        if let Some(certificates) = certificates {
            arguments.0.extend(["--ro-bind".into(), certificates.into(), CERTIFICATES.into()]);
        }
        for (path, content) in SYNTHETIC_ETC {
            let number = descriptors.pass_bytes(content.as_bytes())?.to_string();
            arguments.add(&["--perms", "0444", "--file", &number, path]);
        }
        for file in &self.job.fixed {
            let number = descriptors.pass_bytes(&file.content)?.to_string();
            let path = format!("/graphrun/{}", file.path);
            arguments.add(&["--perms", "0444", "--file", &number, &path]);
        }
        let read_only = self.job.read_only.iter().map(|it| ("--ro-bind", it));
        for (kind, mount) in read_only.chain(self.job.writable.iter().map(|it| ("--bind", it))) {
            let (host, inside) =
                (mount.host.clone().into_os_string(), mount.inside.clone().into_os_string());
            arguments.0.extend([kind.into(), host, inside]);
        }
        if let Some(home) = &self.job.home {
            arguments.0.extend(["--bind".into(), home.into(), HOME_INSIDE.into()]);
            arguments.add(&["--setenv", "HOME", HOME_INSIDE]);
        }
        arguments.add(&["--proc", "/proc", "--dev", "/dev"]);
        for folder in ["/dev/shm", "/tmp", "/box"] {
            arguments.add(&["--perms", "0700", "--size", &room, "--tmpfs", folder]);
        }
        match &self.job.mounted {
            Some(folder) => self.add_layers(&mut arguments, folder),
            None => arguments.add(&["--perms", "0700", "--dir", "/box/.home"]),
        }
        // Bubblewrap's own tmpfs mounts have no size, so they are read-only. So is `/proc`: these processes must not
        // change their settings there, such as being killed first when memory runs out.
        arguments.add(&["--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/"]);
        // A process in the work folder would keep the one below a mounted folder.
        let start = if self.job.mounted.is_some() { "/" } else { "/box" };
        arguments.add(&["--chdir", start]);
        for filter in &self.launcher.filters {
            let number = descriptors.pass_bytes(filter)?.to_string();
            arguments.add(&["--add-seccomp-fd", &number]);
        }
        arguments.add(&["--", "/usr/bin/prlimit"]);
        arguments.0.extend(resource_limits(limits).map(OsString::from));
        arguments.add(&["--", SHELL, "--norc", "--noprofile", "-c", INSIDE, "inside"]);
        let last = match self.job.channel {
            Channel::None => COLLECTED,
            Channel::Records { .. } | Channel::Streams(_) => RECORDS,
        };
        let is_mounted = if self.job.mounted.is_some() { "mounted" } else { "plain" };
        arguments.add(&[&last.to_string(), is_mounted]);
        let collect = [&self.job.collect.work[..], &self.job.collect.below].concat();
        for names in [&self.job.required, &collect, &self.job.collect.temporary] {
            arguments.add(&[&names.len().to_string()]);
            arguments.0.extend(names.iter().map(OsString::from));
        }
        arguments.0.extend(self.job.argv.iter().map(OsString::from));
        Ok(arguments.0)
    }
}

impl Launch {
    /// Adds the folders that become the layers of the work folder.
    fn add_layers(&self, arguments: &mut Arguments, folder: &Path) {
        for layer in ["/box/work", "/box/upper", "/box/upper/.home"] {
            arguments.add(&["--perms", "0700", "--dir", layer]);
        }
        match self.launcher.become_user {
            Some(_) => arguments.add(&["--perms", "0700", "--dir", "/box/lower"]),
            None => {
                arguments.0.extend(["--ro-bind".into(), folder.into(), "/box/lower".into()]);
            }
        }
    }

    /// Mounts the folder of the job in a sandbox, of which this process waits inside.
    pub(super) fn mount_folder(&self, inside: u32) -> Result<(), SandboxError> {
        let Some(folder) = &self.job.mounted else { return Ok(()) };
        let mounted = Namespaces::of(inside)
            .and_then(|it| it.mount_folder(self.launcher.become_user, folder));
        mounted.map_err(|source| SandboxError::Mount { source })
    }
}

/// The whole environment of every program. Fixed seeds and no colours, so that the same code prints the same output; no
/// buffering, so that the output of a stopped program is not lost. The folders of `/dependencies` and `/node_modules` exist
/// with packages of their languages only. `/usr/local/go` is where the installer of Go puts it.
const FIXED_ENVIRONMENT: [(&str, &str); 10] = [
    (
        "PATH",
        "/dependencies/rust/bin:/dependencies/go-root/bin:/usr/local/bin:/usr/bin:/bin:/aliases:\
         /usr/local/go/bin:/node_modules/.bin",
    ),
    ("HOME", "/box/.home"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("CI", "1"),
    ("NO_COLOR", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONUNBUFFERED", "1"),
    ("PYTHONNOUSERSITE", "1"),
];

/// Limits of each process. They are hard limits: no process inside can raise them.
fn resource_limits(limits: &Limits) -> [String; 9] {
    // Twice the wall time, as a fallback for the host's clock.
    let cpu_seconds = limits.wall.as_secs().saturating_add(1).saturating_mul(2);
    [
        "--core=0".to_owned(),
        "--msgqueue=0".to_owned(),
        "--memlock=65536".to_owned(),
        "--nofile=1024".to_owned(),
        format!("--nproc={}", limits.processes),
        format!("--fsize={}", limits.file_bytes),
        format!("--data={}", limits.memory_bytes),
        format!("--as={}", ADDRESS_SPACE_BYTES.max(limits.memory_bytes)),
        format!("--cpu={cpu_seconds}"),
    ]
}

/// A command line under construction.
#[derive(Debug, Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, arguments: &[&str]) {
        self.0.extend(arguments.iter().map(OsString::from));
    }
}

/// The inherited descriptors, each with its number inside.
#[derive(Debug, Default)]
struct Descriptors {
    mappings: Vec<FdMapping>,
}

impl Descriptors {
    fn pass_as(&mut self, child_fd: i32, descriptor: impl Into<OwnedFd>) {
        self.mappings.push(FdMapping { parent_fd: descriptor.into(), child_fd });
    }

    /// Passes a content as a file in memory and returns the number.
    fn pass_bytes(&mut self, content: &[u8]) -> io::Result<i32> {
        let mut file = File::from(memfd_create(c"graphrun", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(content)?;
        file.rewind()?;
        let number =
            self.mappings.last().map_or(FIRST_FREE, |last| (last.child_fd + 1).max(FIRST_FREE));
        self.pass_as(number, file);
        Ok(number)
    }

    /// Passes the ends of a program that its caller talks with.
    fn pass_streams(&mut self, (stdin, records): Ends) {
        self.pass_as(STDIN, stdin);
        self.pass_as(RECORDS, records);
    }

    /// Passes a secret, and an end for records; returns the other one. The secret is in the pipe, whose other end is closed,
    /// before anything starts.
    ///
    /// The records go over a socket: `/proc` cannot open one again, so only those who inherit it can write there.
    fn pass_secret(&mut self, secret: &[u8]) -> io::Result<UnixStream> {
        let (secret_inside, mut sender) = io::pipe()?;
        // A user with very many pipes gets shorter ones. A write would then wait for a reader that never starts.
        fcntl(&sender, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        sender.write_all(secret)?;
        let (records, records_inside) = UnixStream::pair()?;
        records.shutdown(Shutdown::Write)?;
        self.pass_as(STDIN, secret_inside);
        self.pass_as(RECORDS, records_inside);
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_no_pipe_holds_is_an_error() {
        let refused = Descriptors::default().pass_secret(&vec![b'x'; 4 << 20]);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
