//! A job for a sandbox: the program, its limits, and its result.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::{
    error::JobError,
    folder_file::FolderFile,
    job_streams::JobStreams,
    output_reader::OutputReader,
    path::{check_files, check_path},
    source_file::SourceFile,
};

/// A program to run in the sandbox, with its files.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The program and its arguments. Only programs below `/usr` and in `read_only` exist.
    pub argv: Vec<String>,
    /// The files of the work folder `/box`, where the program starts.
    pub files: Vec<SourceFile>,
    /// The copy of a folder, which lies in the work folder below `files`.
    pub folder: Arc<[FolderFile]>,
    /// A folder of the host that lies in the work folder below everything else, without a copy. Programs can change it there,
    /// and the folder of the host stays as it is. `.git` in it does not appear. Nothing else may change it meanwhile.
    pub mounted: Option<PathBuf>,
    /// Variables in addition to the fixed ones. Variables that change how programs are found or loaded are refused.
    pub env: BTreeMap<String, String>,
    /// Folders of the host that appear inside, read-only.
    pub read_only: Vec<Mount>,
    /// A folder of the host that the program fills. It belongs to the user inside, and its size is not limited here.
    pub writable: Option<Mount>,
    /// A folder of the host that is the home of the program, instead of an empty one. It is made if it is missing, stays
    /// as the program leaves it, and has the same room as the work folder; one that is too large is removed.
    pub home: Option<PathBuf>,
    /// The limits of the program.
    pub limits: Limits,
    /// The files that are returned afterwards.
    pub collect: Collect,
    /// Files that appear below `/graphrun`, read-only: nothing inside can change, replace or hide them.
    pub fixed: Vec<FixedFile>,
    /// Further programs that the job needs to start.
    pub required: Vec<String>,
    /// The input and the descriptor 3 of the program.
    pub channel: Channel,
}

/// What the program reads from its standard input, and what becomes of its writes to descriptor 3.
#[derive(Debug, Clone, Default)]
pub enum Channel {
    /// The input is empty, and there is no descriptor 3.
    #[default]
    None,
    /// The program reads a secret to the end, and writes records. Other processes inside can also write there, so records
    /// need a proof of the secret. The secret is on no command line, in no file and in no environment.
    Records {
        /// The secret: at most [`Job::SECRET_BYTES_MAX`].
        secret: Vec<u8>,
        /// Takes the records as they arrive. The result then has none of them, and they count as output.
        reader: Option<OutputReader>,
    },
    /// A caller talks with the program while it works.
    Streams(JobStreams),
}

impl Channel {
    /// A channel with this secret, whose records are a part of the result.
    pub fn with_secret(secret: Vec<u8>) -> Self {
        Self::Records { secret, reader: None }
    }
}

/// The files that a job returns.
#[derive(Debug, Clone, Default)]
pub struct Collect {
    /// Files of the work folder that are returned, if they are regular files.
    pub work: Vec<String>,
    /// Files and folders of the work folder. The files, and all regular files below the folders, are returned; those with
    /// a path that [`check_path`](super::check_path) refuses are returned separately.
    pub below: Vec<String>,
    /// The regular files of the work folder at the start. Those at or below `below` that are gone are returned as removed.
    pub known: Arc<[PathBuf]>,
    /// Files in `/tmp` that are returned like those of `work`. A program that fills its work folder leaves room for them.
    pub temporary: Vec<String>,
}

impl Collect {
    /// Returns the paths of single files.
    pub(super) fn files(&self) -> impl Iterator<Item = &String> {
        self.work.iter().chain(&self.temporary)
    }
}

/// A file that nothing inside the sandbox can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedFile {
    /// Path below `/graphrun`, under the rules of [`check_path`](super::check_path).
    pub path: String,
    /// The content.
    pub content: Vec<u8>,
}

/// A folder of the host that appears, read-only, inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder on the host. The user inside must be able to read it: if graphrun runs as root, that is `nobody`.
    pub host: PathBuf,
    /// The mount point inside.
    pub inside: PathBuf,
}

/// The resources of a program in the sandbox. A program that exceeds a limit is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time from the start of the program to its end, including the transfer of the files. Default: 60 s.
    pub wall: Duration,
    /// Memory of one process, and of all of them together. Default: 1 GiB.
    pub memory_bytes: u64,
    /// Processes and threads at a time. Default: 256.
    pub processes: u64,
    /// Size of one file. Default: 64 MiB.
    pub file_bytes: u64,
    /// Room in the work folder, and again in `/tmp` and in `/dev/shm`. Default: 128 MiB each.
    pub work_bytes: u64,
    /// Bytes of standard output and error together. Default: 16 MiB; 128 KiB of it are kept.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(60),
            memory_bytes: 1 << 30,
            processes: 256,
            file_bytes: 64 << 20,
            work_bytes: 128 << 20,
            output_bytes: 16 << 20,
        }
    }
}

/// How a program in the sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it, or it exited with 128 and more, which a shell cannot distinguish.
    Signaled(i32),
    /// It was stopped at its time limit.
    TimedOut,
    /// It was stopped because all its processes together used too much memory, or made too many files.
    OutOfMemory,
    /// It was stopped because it wrote too much output.
    OutputLimit,
}

/// The result of a program that ran.
#[derive(Debug, Clone)]
pub struct JobResult {
    /// How it ended.
    pub end: ProgramEnd,
    /// Standard output and error in the order they were written: the first and the last 64 KiB, in valid UTF-8, without
    /// control characters and escape sequences, no line above 4 KiB. The text is still untrusted.
    pub output: String,
    /// Whether the program wrote more than is kept of its output.
    pub is_output_cut: bool,
    /// The declared files that exist and are regular, by path. Above 8 MiB in total, all are dropped.
    pub collected: BTreeMap<String, Vec<u8>>,
    /// The regular files below [`Collect::below`] with a path that [`check_path`](super::check_path) refuses. They count
    /// towards the same 8 MiB.
    pub refused: BTreeMap<PathBuf, Vec<u8>>,
    /// The [known](Collect::known) files that are gone, or have become folders. `None` if that is not sure: the program did not
    /// exit with 0, the work folder was full or not readable as a whole, or the declared files were too large.
    pub removed: Option<Vec<PathBuf>>,
    /// Whether the declared files had more than 8 MiB, so that all are dropped.
    pub is_too_large: bool,
    /// The bytes on the channel, if the job has one. Empty if there were more than 8 MiB.
    pub records: Vec<u8>,
    /// Time from the start of the program to its end.
    pub wall: Duration,
}

#[cfg(test)]
impl JobResult {
    /// Returns the result of a program that ended in this way, and left nothing.
    pub(super) fn of(end: ProgramEnd) -> Self {
        Self {
            end,
            output: String::new(),
            is_output_cut: false,
            collected: BTreeMap::new(),
            refused: BTreeMap::new(),
            removed: None,
            is_too_large: false,
            records: Vec::new(),
            wall: Duration::ZERO,
        }
    }
}

impl ProgramEnd {
    /// Reads the exit code that the shell inside reports.
    pub(super) fn from_code(code: i32) -> Self {
        match code {
            129..=192 => Self::Signaled(code - 128),
            code => Self::Exited(code),
        }
    }

    /// Returns the exit code, if the program ended by exiting.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Signaled(_) | Self::TimedOut | Self::OutOfMemory | Self::OutputLimit => None,
        }
    }
}

impl Job {
    /// The most bytes of the secret of a channel. They fit into a pipe, which nothing reads before the program starts.
    pub const SECRET_BYTES_MAX: usize = 32 << 10;

    /// Checks everything about the job that could weaken the sandbox.
    pub(super) fn check(&self) -> Result<(), JobError> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(JobError::NoProgram);
        }
        if self
            .argv
            .iter()
            .chain(&self.required)
            .chain(self.env.values())
            .any(|text| text.contains('\0'))
        {
            return Err(JobError::NulByte);
        }
        if let Some(name) = self.env.keys().find(|name| !is_harmless_variable(name)) {
            return Err(JobError::Variable { name: name.clone() });
        }
        let mut mounts = self.read_only.iter().chain(&self.writable);
        if let Some(mount) = mounts.find(|mount| !mount.is_harmless()) {
            return Err(JobError::Mount { inside: mount.inside.clone() });
        }
        let mut folders = self.mounted.iter().chain(&self.home);
        if let Some(folder) = folders.find(|it| !it.is_absolute()) {
            return Err(JobError::Folder { path: folder.clone() });
        }
        if let Channel::Records { secret, .. } = &self.channel
            && secret.len() > Self::SECRET_BYTES_MAX
        {
            return Err(JobError::Secret { bytes: secret.len() });
        }
        for path in self.collect.files().chain(&self.collect.below) {
            check_path(path).map_err(|source| JobError::Collect { path: path.clone(), source })?;
        }
        for FixedFile { path, .. } in &self.fixed {
            check_path(path).map_err(|source| JobError::Collect { path: path.clone(), source })?;
        }
        Ok(check_files(&self.files)?)
    }
}

impl Mount {
    /// Returns whether the mount hides no part of the sandbox itself.
    fn is_harmless(&self) -> bool {
        let text = self.inside.to_str().unwrap_or_default();
        let plain = text.starts_with('/')
            && text[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..")
            && !text.contains('\0');
        let first = text.get(1..).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        plain && !SYSTEM_FOLDERS.contains(&first)
    }
}

/// Folders that the sandbox makes itself; a job's mount may not be in, on or above them.
const SYSTEM_FOLDERS: [&str; 14] = [
    "agent", "bin", "box", "dev", "etc", "graphrun", "lib", "lib32", "lib64", "libx32", "proc",
    "sbin", "tmp", "usr",
];

/// Variables that a loader, shell or runtime obeys before the program's first line, by prefix.
const DANGEROUS_PREFIXES: [&str; 10] =
    ["LD_", "PYTHON", "PYTEST_", "BASH", "SHELL", "NODE_", "RUBY", "PERL", "GCONV_", "JAVA_"];

/// Names of the same kind, and the variables that the sandbox sets itself.
const DANGEROUS_NAMES: [&str; 12] = [
    "ENV",
    "IFS",
    "PATH",
    "HOME",
    "TMPDIR",
    "CDPATH",
    "GLOBIGNORE",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "PS4",
    "POSIXLY_CORRECT",
    "TAR_OPTIONS",
];

/// Returns whether a job may set a variable of this name: neither a loader, a shell, a runtime nor the sandbox obeys
/// it.
pub fn is_harmless_variable(name: &str) -> bool {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    is_name
        && !DANGEROUS_NAMES.contains(&name)
        && !DANGEROUS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { argv: vec!["true".to_owned()], ..Job::default() }
    }

    #[test]
    fn variables_that_load_code_are_refused() {
        for name in [
            "LD_PRELOAD",
            "PYTHONPATH",
            "BASH_ENV",
            "ENV",
            "PATH",
            "NODE_OPTIONS",
            "A=B",
            "",
            "1A",
            "BASH_FUNC_x%%",
        ] {
            let job = Job { env: [(name.to_owned(), "x".to_owned())].into(), ..job() };
            assert!(matches!(job.check(), Err(JobError::Variable { .. })), "{name:?} was accepted");
        }
        let job = Job { env: [("APP_MODE".to_owned(), "test".to_owned())].into(), ..job() };
        assert!(job.check().is_ok());
    }

    #[test]
    fn mounts_cannot_hide_a_part_of_the_sandbox() {
        for inside in [
            "/usr",
            "/usr/bin",
            "/box/x",
            "/",
            "/etc",
            "relative",
            "/opt/../etc",
            "/opt//x",
            "/proc/self",
            "/opt/",
            "/graphrun/boot",
        ] {
            let mount = Mount { host: "/srv".into(), inside: inside.into() };
            let job = Job { read_only: vec![mount], ..job() };
            assert!(matches!(job.check(), Err(JobError::Mount { .. })), "{inside:?} was accepted");
        }
        let mount = Mount { host: "/srv".into(), inside: "/env".into() };
        assert!(Job { read_only: vec![mount], ..job() }.check().is_ok());
    }

    #[test]
    fn the_secret_of_a_channel_fits_into_a_pipe() {
        let of = |bytes| Job { channel: Channel::with_secret(vec![b'x'; bytes]), ..job() };
        assert!(of(Job::SECRET_BYTES_MAX).check().is_ok());
        let error = of(Job::SECRET_BYTES_MAX + 1).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the secrets have 32769 bytes, and at most 32768 reach a program"
        );
    }

    #[test]
    fn an_empty_job_is_refused() {
        assert!(matches!(Job::default().check(), Err(JobError::NoProgram)));
        let job = Job { argv: vec!["a\0b".to_owned()], ..Job::default() };
        assert!(matches!(job.check(), Err(JobError::NulByte)));
    }

    #[test]
    fn files_are_collected_only_from_the_work_folder() {
        for path in ["../x", "/etc/passwd", "-x"] {
            let paths = || vec![path.to_owned()];
            for collect in [
                Collect { work: paths(), ..Collect::default() },
                Collect { below: paths(), ..Collect::default() },
                Collect { temporary: paths(), ..Collect::default() },
            ] {
                let checked = Job { collect, ..job() }.check();
                assert!(matches!(checked, Err(JobError::Collect { .. })), "{path:?} was accepted");
            }
        }
    }

    #[test]
    fn exit_codes_are_read_as_shells_write_them() {
        assert_eq!(ProgramEnd::from_code(0), ProgramEnd::Exited(0));
        assert_eq!(ProgramEnd::from_code(1), ProgramEnd::Exited(1));
        assert_eq!(ProgramEnd::from_code(128), ProgramEnd::Exited(128));
        assert_eq!(ProgramEnd::from_code(137), ProgramEnd::Signaled(9));
        assert_eq!(ProgramEnd::from_code(255), ProgramEnd::Exited(255));
    }
}
