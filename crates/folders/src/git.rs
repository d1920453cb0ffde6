//! Runs git on untrusted repositories.
//!
//! A repository can name programs in its configuration and in its files: hooks, filters, file system monitors, merge
//! drivers, signers, editors. None of them runs. Known settings are replaced by harmless ones; settings whose names the
//! repository chooses (`filter.NAME.clean`) are listed first, which runs nothing, and then replaced as well. The
//! replacements are passed in the environment, where a name may contain any character. Configuration of the user and of
//! the system does not apply, and git contacts no other machine. Time and output are limited.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use command_fds::CommandFdExt as _;
use graphrun_sandbox::{clean_output, find_tool};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::Command,
};

use super::{error::FolderError, lock::lock};

/// The longest duration of one command. The checkout of a large repository is the longest one.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The most bytes of output that are read.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// The limit of a command that was stopped at that.
pub(crate) const TOO_MUCH: &str = "it wrote too much";
/// The most bytes of an error that are read.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// The lines of an error that are shown.
const ERROR_LINES_MAX: usize = 5;

/// Git's words for a repository of another user. Its advice is left out, because it would have no effect here.
const OTHER_OWNER: &str = "detected dubious ownership";

/// The whole environment of git.
const ENVIRONMENT: [(&str, &str); 19] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_EDITOR", "/bin/false"),
    ("GIT_SSH_COMMAND", "/bin/false"),
    // No protocol has this name, so none is allowed.
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_AUTHOR_NAME", "graphrun"),
    ("GIT_AUTHOR_EMAIL", "graphrun@localhost"),
    ("GIT_COMMITTER_NAME", "graphrun"),
    ("GIT_COMMITTER_EMAIL", "graphrun@localhost"),
];

/// Settings that replace those of the repository.
const SETTINGS: [(&str, &str); 28] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.sshCommand", "false"),
    ("core.editor", "false"),
    ("core.pager", "cat"),
    ("core.askPass", "false"),
    ("core.alternateRefsCommand", "false"),
    ("sequence.editor", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    // A search of the commits must see all of each and find what graphrun wrote, and staging and a status all changes.
    ("log.showRoot", "true"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
    ("commit.verbose", "false"),
    ("status.showUntrackedFiles", "normal"),
    ("core.ignoreStat", "false"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("diff.external", ""),
    // The journal may name a commit, so a power failure must not lose it.
    ("core.fsync", "all"),
];

/// Runs git in one folder.
#[derive(Debug)]
pub(crate) struct Git {
    program: PathBuf,
    folder: PathBuf,
    settings: Vec<(String, String)>,
    /// The locks of the run's folder and of its repository. Each command inherits them, so that they end only with the
    /// last command, also after the process of the run was killed.
    locks: Vec<File>,
}

/// The result of a command that ended by itself.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) code: i32,
    pub(crate) output: Vec<u8>,
    errors: Vec<u8>,
}

/// Returns the version of the installed git.
///
/// # Errors
///
/// Fails when git is missing or does not start.
pub async fn version() -> Result<String, FolderError> {
    let git =
        Git { folder: "/".into(), program: program()?, settings: Vec::new(), locks: Vec::new() };
    let version = git.text("print its version", &["version"]).await?;
    Ok(version.trim_start_matches("git version ").to_owned())
}

impl Git {
    /// Prepares git for a folder: replaces every setting there that names a program.
    pub(crate) async fn new(folder: &Path, lock: Option<File>) -> Result<Self, FolderError> {
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let program = program()?;
        let folder = folder.to_owned();
        let locks = lock.into_iter().collect();
        let mut git = Self { program, folder, settings: settings.into(), locks };
        git.replace_programs().await?;
        Ok(git)
    }

    /// Continues in another folder, whose settings may differ by conditional includes. The locks are kept.
    pub(crate) async fn in_folder(mut self, folder: &Path) -> Result<Self, FolderError> {
        self.folder = folder.to_owned();
        self.replace_programs().await?;
        Ok(self)
    }

    /// Replaces every setting of the folder that names a program.
    async fn replace_programs(&mut self) -> Result<(), FolderError> {
        let attempt = "list its settings";
        let list = ["config", "--list", "--includes", "--name-only", "-z"];
        let names = String::from_utf8(self.run(attempt, &list).await?).map_err(|_| {
            let detail = "the name of a setting is not UTF-8".to_owned();
            FolderError::Git { attempt, detail }
        })?;
        self.settings.extend(names.split('\0').flat_map(harmless));
        Ok(())
    }

    /// Waits until no other operation changes the worktrees and the branches of the repository, and keeps others from it.
    ///
    /// Commands of git that list the worktrees fail if another process makes or removes one at this moment.
    pub(crate) async fn alone(mut self) -> Result<Self, FolderError> {
        let arguments = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let common = PathBuf::from(self.text("find the repository", &arguments).await?);
        self.locks.push(lock(&common.join("graphrun.lock")).await?);
        Ok(self)
    }

    /// Runs a command that must succeed.
    pub(crate) async fn run(
        &self,
        attempt: &'static str,
        arguments: &[&str],
    ) -> Result<Vec<u8>, FolderError> {
        let ended = self.end(attempt, arguments).await?;
        if ended.code == 0 { Ok(ended.output) } else { Err(ended.refusal(attempt)) }
    }

    /// Runs a command that must succeed, and returns its output without the end of its last line.
    pub(crate) async fn text(
        &self,
        attempt: &'static str,
        arguments: &[&str],
    ) -> Result<String, FolderError> {
        let output = self.run(attempt, arguments).await?;
        let text = String::from_utf8_lossy(&output);
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Returns the commit of a name, if there is one.
    pub(crate) async fn commit_of(&self, name: &str) -> Result<Option<String>, FolderError> {
        let name = format!("{name}^{{commit}}");
        let arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
        let ended = self.end("look up a commit", &arguments).await?;
        let found = String::from_utf8_lossy(&ended.output).trim().to_owned();
        Ok((ended.code == 0 && !found.is_empty()).then_some(found))
    }

    /// Returns a branch that keeps git from making a branch of this name: git stores branches like files in folders.
    pub(crate) async fn branch_in_the_way(
        &self,
        branch: &str,
    ) -> Result<Option<String>, FolderError> {
        for (end, _) in branch.match_indices('/') {
            let above = &branch[..end];
            if self.commit_of(&format!("refs/heads/{above}")).await?.is_some() {
                return Ok(Some(above.to_owned()));
            }
        }
        let below = format!("refs/heads/{branch}/");
        let arguments = ["for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", &below];
        let found = self.text("look for branches", &arguments).await?;
        Ok(Some(found).filter(|it| !it.is_empty()))
    }

    /// Returns whether a commit is an ancestor of another one, or the same.
    pub(crate) async fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, FolderError> {
        let attempt = "compare two commits";
        let ended = self.end(attempt, &["merge-base", "--is-ancestor", old, new]).await?;
        match ended.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(ended.refusal(attempt)),
        }
    }

    /// Creates several references, or none.
    pub(crate) async fn create_references(
        &self,
        names: &[&str],
        commit: &str,
    ) -> Result<(), FolderError> {
        let attempt = "make the branch";
        let create = |it: &&str| format!("create {it}\0{commit}\0");
        let commands = names.iter().map(create).collect::<Vec<_>>().concat();
        let arguments = ["update-ref", "--stdin", "-z"];
        let ended = self.end_with(attempt, &arguments, Some(commands.as_bytes())).await?;
        if ended.code == 0 { Ok(()) } else { Err(ended.refusal(attempt)) }
    }

    /// Runs a command to its end, with any exit code.
    pub(crate) async fn end(
        &self,
        attempt: &'static str,
        arguments: &[&str],
    ) -> Result<GitOutput, FolderError> {
        self.end_with(attempt, arguments, None).await
    }

    /// Runs a command with an input to its end, with any exit code.
    pub(crate) async fn end_with(
        &self,
        attempt: &'static str,
        arguments: &[&str],
        input: Option<&[u8]>,
    ) -> Result<GitOutput, FolderError> {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(&self.folder).args(arguments).env_clear().envs(ENVIRONMENT);
        command.env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (at, (name, value)) in self.settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), name);
            command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        let locks: io::Result<Vec<File>> = self.locks.iter().map(File::try_clone).collect();
        let locks = locks.map_err(FolderError::io("start git"))?;
        command.preserved_fds(locks.into_iter().map(Into::into).collect());
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        // A terminal sends Ctrl-C to its whole process group, which must not end a commit.
        command.process_group(0).kill_on_drop(true).stdin(stdin);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(FolderError::io("start git"))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let output = async {
            let (written, output, errors) = tokio::join!(
                write(stdin, input.unwrap_or_default()),
                read(stdout, OUTPUT_BYTES_MAX),
                read_and_drain(stderr, ERROR_BYTES_MAX),
            );
            written?;
            let output = output?;
            if output.len() as u64 > OUTPUT_BYTES_MAX {
                return Ok(None);
            }
            let status = child.wait().await?;
            Ok(Some(GitOutput { code: status.code().unwrap_or(-1), output, errors: errors? }))
        };
        let stopped = |limit| FolderError::Stopped { attempt, limit };
        tokio::time::timeout(TIME_MAX, output)
            .await
            .map_err(|_| stopped("it took too long"))?
            .map_err(FolderError::io("read the output of git"))?
            .ok_or_else(|| stopped(TOO_MUCH))
    }
}

impl GitOutput {
    pub(crate) fn refusal(&self, attempt: &'static str) -> FolderError {
        let stderr = clean_output(&self.errors, false);
        let lines: Vec<&str> = stderr.lines().filter(|it| !it.trim().is_empty()).collect();
        if let Some(line) = lines.iter().find(|it| it.contains(OTHER_OWNER)) {
            let path = line.split_once('\'').and_then(|(_, rest)| rest.rsplit_once('\''));
            return FolderError::OtherOwner { path: path.map(|(path, _)| path.to_owned()) };
        }
        let last = &lines[lines.len().saturating_sub(ERROR_LINES_MAX)..];
        let detail =
            if last.is_empty() { format!("exit code {}", self.code) } else { last.join("; ") };
        FolderError::Git { attempt, detail }
    }
}

/// Writes the input of a command, and closes it. A command that ends before it has read all of it has an exit code.
async fn write(stream: Option<impl AsyncWrite + Unpin>, input: &[u8]) -> Result<(), io::Error> {
    let Some(mut stream) = stream else { return Ok(()) };
    match stream.write_all(input).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Reads a stream up to one byte above a limit.
async fn read(stream: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(bytes_max + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Reads a stream to its end, and keeps its first bytes. Otherwise git waits until the rest of its errors is read.
async fn read_and_drain(
    mut stream: Option<impl AsyncRead + Unpin>,
    bytes_max: u64,
) -> io::Result<Vec<u8>> {
    let bytes = read(stream.as_mut(), bytes_max).await?;
    if let Some(stream) = &mut stream {
        tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

fn program() -> Result<PathBuf, FolderError> {
    find_tool("git").ok_or(FolderError::NoGit)
}

/// Returns the settings that make one of the repository's own names harmless.
fn harmless(name: &str) -> Vec<(String, String)> {
    let Some((section, rest)) = name.split_once('.') else { return Vec::new() };
    let Some((own, key)) = rest.rsplit_once('.') else { return Vec::new() };
    let set = |key: &str, value: &str| (format!("{section}.{own}.{key}"), value.to_owned());
    match (section, key) {
        // Without a command, a filter passes the content on.
        ("filter", _) => {
            vec![set("clean", ""), set("smudge", ""), set("process", ""), set("required", "false")]
        }
        ("diff", "command" | "textconv") => vec![set(key, "")],
        // A driver that fails is a conflict.
        ("merge", "driver") => vec![set(key, "false")],
        ("hook", _) => vec![set("command", "false"), set("enabled", "false")],
        ("gpg", "program") => vec![set(key, "false")],
        ("credential", "helper") => vec![set(key, "")],
        _ => Vec::new(),
    }
}
