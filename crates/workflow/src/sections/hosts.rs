//! `hosts`: commands on this machine, outside of any sandbox.
//!
//! A command runs only if the workflow declares the shape of its arguments *and* the operator allows the host. The
//! declaration is read here; [`HostAccess`] is what the operator allows. No text of a workflow, of a file beside it or of
//! the state can extend it.

use std::{collections::BTreeMap, time::Duration};

use graphrun_core::diagnostic::Diagnostic;
use graphrun_sandbox::is_harmless_variable;
use serde_json::json;

use super::{approval::read_approval, entries, program::ProgramSandbox};
use crate::{
    Approval,
    format::HostKeys,
    source::{
        reader::{Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The default time limit of a command.
const TIME: Duration = Duration::from_secs(60);

/// Programs that make a command of their arguments, or of their input. Behind one of these the shape of the arguments
/// would decide nothing.
const LAUNCHERS: [&str; 80] = [
    "ash",
    "at",
    "bash",
    "batch",
    "busybox",
    "bwrap",
    "capsh",
    "catchsegv",
    "cgexec",
    "chpst",
    "chroot",
    "chrt",
    "command",
    "csh",
    "dash",
    "dbus-launch",
    "dbus-run-session",
    "doas",
    "entr",
    "env",
    "eval",
    "exec",
    "expect",
    "fakeroot",
    "faketime",
    "firejail",
    "fish",
    "flock",
    "gdb",
    "gosu",
    "i386",
    "ionice",
    "ksh",
    "linux32",
    "linux64",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "prlimit",
    "proot",
    "rbash",
    "rlwrap",
    "run-parts",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "setuidgid",
    "sg",
    "sh",
    "ssh-agent",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "su-exec",
    "sudo",
    "systemd-inhibit",
    "systemd-run",
    "taskset",
    "tcsh",
    "time",
    "timeout",
    "tmux",
    "uname26",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "x86_64",
    "xargs",
    "xvfb-run",
    "zsh",
];

/// The beginning of a command: a program and the arguments that it must begin with.
pub type CommandShape = Vec<String>;

/// A place on this machine where commands run outside of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Its name in the workflow.
    pub name: String,
    /// The beginnings of the commands that may run.
    pub allow: Vec<CommandShape>,
    /// The folder of the run in which commands start; `None` is the current folder of graphrun.
    pub folder: Option<String>,
    /// When a person is asked.
    pub approve: Approval,
    /// The variables of graphrun's own environment that commands get, too.
    pub secrets: Vec<String>,
    /// The time limit of a command.
    pub time: Duration,
}

/// The command of a node on a host.
#[derive(Clone, Copy, Debug)]
pub struct HostUse<'a> {
    /// The host.
    pub host: &'a HostSettings,
    /// The program and the constant arguments before the first value of the state.
    pub shape: &'a [String],
}

/// What the operator allows on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPermission {
    /// The beginnings of commands; `None` allows those that the workflow declares.
    pub commands: Option<Vec<CommandShape>>,
    /// The secrets that commands may get; `None` allows those that the workflow declares.
    pub secrets: Option<Vec<String>>,
    /// The least strict approval.
    pub approve: Approval,
}

/// What the operator allows on this machine. By default nothing.
#[derive(Debug, Default)]
pub struct HostAccess {
    permissions: BTreeMap<String, HostPermission>,
    variables: BTreeMap<String, String>,
}

/// Why the operator's permission does not cover a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostRefusal {
    /// The host is not allowed.
    #[error("the operator does not allow the host `{host}`")]
    Host {
        /// The host.
        host: String,
    },
    /// The host is allowed, and this command is not.
    #[error("the operator does not allow `{command}` on the host `{host}`")]
    Command {
        /// The host.
        host: String,
        /// The command.
        command: String,
    },
    /// The host is allowed without this secret.
    #[error("the operator does not allow the secret `{secret}` on the host `{host}`")]
    Secret {
        /// The host.
        host: String,
        /// The name of the variable.
        secret: String,
    },
    /// A secret has no value.
    #[error("the host `{host}` needs the environment variable `{secret}`, which is not set")]
    Unset {
        /// The host.
        host: String,
        /// The name of the variable.
        secret: String,
    },
    /// A secret of a program in a sandbox has no value.
    #[error(
        "a program in the sandbox `{sandbox}` needs the environment variable `{secret}`, which is not set"
    )]
    UnsetInSandbox {
        /// The sandbox.
        sandbox: String,
        /// The name of the variable.
        secret: String,
    },
}

impl HostSettings {
    /// Returns whether a command that begins with these words may run.
    pub fn allows(&self, words: &[String]) -> bool {
        allows(&self.allow, words)
    }

    /// Returns the name of a person's approval of its commands for the rest of a run. A changed host has another one.
    pub fn grant(&self) -> String {
        let Self { name, allow, folder, secrets, .. } = self;
        let hash = blake3::hash(json!([allow, folder, secrets]).to_string().as_bytes()).to_hex();
        format!("host {name} {}", &hash[..12])
    }

    /// Adds the secrets of a command that gets more than others.
    pub(crate) fn add_secrets(&mut self, secrets: &[String]) {
        let more = secrets.iter().filter(|it| !self.secrets.contains(it));
        let more: Vec<String> = more.cloned().collect();
        self.secrets.extend(more);
    }

    /// Returns what another host of this name may do and this one may not, if there is anything.
    fn exceeded_by(&self, other: &Self) -> Option<String> {
        if let Some(shape) = other.allow.iter().find(|it| !self.allows(it)) {
            return Some(format!("it allows `{}`", shape.join(" ")));
        }
        if let Some(secret) = other.secrets.iter().find(|it| !self.secrets.contains(it)) {
            return Some(format!("its commands get `{secret}`"));
        }
        let own = self.approve;
        let others = other.approve;
        (others > own).then(|| format!("it says `approve: {}`", others.as_str()))
    }
}

impl HostAccess {
    /// Allows a host.
    #[must_use]
    pub fn allow(mut self, host: impl Into<String>, permission: HostPermission) -> Self {
        self.permissions.insert(host.into(), permission);
        self
    }

    /// Gives commands a variable: a secret for the hosts and programs that declare it, or one of [`Self::COMMON`] for all
    /// hosts.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The variables that every command gets, as far as they are given.
    pub const COMMON: [&str; 4] = ["HOME", "PATH", "USER", "XDG_CONFIG_HOME"];

    /// Checks that the operator allows a command. Returns when a person is asked.
    ///
    /// # Errors
    ///
    /// Fails with the part that is not allowed.
    pub fn check(&self, used: HostUse<'_>) -> Result<Approval, HostRefusal> {
        let HostUse { host, shape } = used;
        let name = || host.name.clone();
        let permission =
            self.permissions.get(&host.name).ok_or_else(|| HostRefusal::Host { host: name() })?;
        let commands = permission.commands.as_ref();
        if !host.allows(shape) || commands.is_some_and(|it| !allows(it, shape)) {
            return Err(HostRefusal::Command { host: name(), command: shape.join(" ") });
        }
        for secret in &host.secrets {
            let allowed = permission.secrets.as_ref();
            let host = name();
            let secret = secret.clone();
            if allowed.is_some_and(|it| !it.contains(&secret)) {
                return Err(HostRefusal::Secret { host, secret });
            }
            if !self.variables.contains_key(&secret) {
                return Err(HostRefusal::Unset { host, secret });
            }
        }
        Ok(host.approve.min(permission.approve))
    }

    /// Returns the variables of the commands of a host.
    pub fn variables_of<'a>(
        &'a self,
        host: &'a HostSettings,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let names = Self::COMMON.into_iter().chain(host.secrets.iter().map(String::as_str));
        names.filter_map(|name| Some((name, self.variables.get(name)?.as_str())))
    }

    /// Returns the secrets of a program in a sandbox. The operator's permission for the hosts of the sandbox covers them.
    ///
    /// # Errors
    ///
    /// Fails with the first secret that has no value.
    pub fn secrets_of<'a>(
        &'a self,
        sandbox: &'a ProgramSandbox,
    ) -> Result<BTreeMap<&'a str, &'a str>, HostRefusal> {
        let value = |name: &'a String| {
            let value = self.variables.get(name).ok_or_else(|| HostRefusal::UnsetInSandbox {
                sandbox: sandbox.name.clone(),
                secret: name.clone(),
            })?;
            Ok((name.as_str(), value.as_str()))
        };
        sandbox.secrets.iter().map(value).collect()
    }
}

/// Splits the beginning of a command into words.
///
/// # Errors
///
/// Fails with the reason if it cannot decide which commands are allowed.
pub fn parse_shape(text: &str) -> Result<CommandShape, String> {
    let words: CommandShape = text.split_whitespace().map(str::to_owned).collect();
    let Some(program) = words.first() else { return Err("it names no program".to_owned()) };
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-+.".contains(it);
    if program.starts_with(['-', '.']) || !program.chars().all(plain) {
        return Err(format!(
            "`{program}` is not the name of a program; it is looked up in the folders of `PATH`"
        ));
    }
    if LAUNCHERS.contains(&program.as_str()) {
        return Err(format!(
            "`{program}` runs its arguments as a command, so it would allow every command"
        ));
    }
    Ok(words)
}

fn allows(shapes: &[CommandShape], words: &[String]) -> bool {
    shapes.iter().any(|it| words.starts_with(it))
}

/// Reads `hosts`. `find_folder` resolves the name of a folder.
pub(crate) fn read_hosts(
    report: &mut Report,
    top: &Section<'_>,
    is_sandbox: impl Fn(&str) -> bool,
    mut find_folder: impl FnMut(&mut Report, SpannedText) -> Option<String>,
) -> BTreeMap<String, HostSettings> {
    let mut hosts = BTreeMap::new();
    for Entry { key, value } in entries(report, top, "hosts") {
        if is_sandbox(&key.text) {
            let message = format!("`{}` is a sandbox already", key.text);
            report.bad_value(key, message, "give the host another name; `in` names one of both");
        }
        hosts.insert(key.text.clone(), read_host(report, key, value, &mut find_folder));
    }
    hosts
}

fn read_host(
    report: &mut Report,
    key: &SpannedText,
    yaml: &Yaml,
    find_folder: &mut impl FnMut(&mut Report, SpannedText) -> Option<String>,
) -> HostSettings {
    let what = format!("the host `{}`", key.text);
    let section = Section::read::<HostKeys>(report, yaml, &what);
    let help = "name the beginnings of commands, as in `allow: [git push]`";
    let allow = section.as_ref().and_then(|it| it.require(report, "allow", help));
    let get = |key| section.as_ref().and_then(|it| it.get(key));
    let folder = get("folder").and_then(|it| report.word(it, "`folder`"));
    let approve = get("approve").and_then(|it| read_approval(report, it));
    let secrets = get("secrets").map(|it| read_secrets(report, it));
    let time = get("time").and_then(|it| report.duration(it, "`time`"));
    HostSettings {
        name: key.text.clone(),
        allow: allow.map(|it| read_shapes(report, it)).unwrap_or_default(),
        folder: folder.and_then(|it| find_folder(report, it)),
        approve: approve.unwrap_or_default(),
        secrets: secrets.unwrap_or_default(),
        time: time.unwrap_or(TIME),
    }
}

/// Reads the beginnings of the commands of a host.
fn read_shapes(report: &mut Report, yaml: &Yaml) -> Vec<CommandShape> {
    let mut shapes = Vec::new();
    for word in report.words(yaml, "`allow`") {
        match parse_shape(&word.text) {
            Ok(shape) => shapes.push(shape),
            Err(reason) => {
                let message = format!("`{}` cannot be allowed: {reason}", word.text);
                let span = report.span(&word.range);
                let diagnostic = Diagnostic::error("GR053", message).at(span, "decides nothing");
                report
                    .push(diagnostic.help("name a program and the arguments that it begins with"));
            }
        }
    }
    shapes
}

/// Reads the names of variables with secrets.
pub(crate) fn read_secrets(report: &mut Report, yaml: &Yaml) -> Vec<String> {
    let mut secrets = Vec::new();
    for word in report.words(yaml, "`secrets`") {
        if is_harmless_variable(&word.text) {
            secrets.push(word.text);
        } else {
            let message = format!("a command cannot get the variable `{}`", word.text);
            let diagnostic = Diagnostic::error("GR048", message);
            let diagnostic = diagnostic.at(report.span(&word.range), "not allowed");
            report.push(diagnostic.help("name a variable with a secret, such as `GH_TOKEN`"));
        }
    }
    secrets
}

/// Reports a command of a declaration that its host does not allow. `word` names the host.
pub(crate) fn check_allowed(
    report: &mut Report,
    word: &SpannedText,
    host: &HostSettings,
    command: &[String],
) {
    // Without a valid `allow` there is an error already.
    if host.allow.is_empty() || host.allows(command) {
        return;
    }
    let message = format!("the host `{}` does not allow `{}`", host.name, command.join(" "));
    let span = report.span(&word.range);
    let diagnostic = Diagnostic::error("GR053", message).at(span, "not allowed");
    report.push(diagnostic.help("add the beginning of the command to `allow` of the host"));
}

/// Returns the mistake that a host of a used workflow may do more than this one says: the file that a person starts lists
/// all that runs on this machine.
pub(crate) fn check_used_host(
    workflow: &str,
    used: &HostSettings,
    own: Option<&HostSettings>,
) -> Option<Diagnostic> {
    let host = &used.name;
    let (message, help) = match own {
        None => (
            format!("`{workflow}` runs commands on the host `{host}`, which is not declared here"),
            format!("declare `{host}` under `hosts`, with the commands that it may run"),
        ),
        Some(own) => {
            let more = own.exceeded_by(used)?;
            (
                format!("the host `{host}` of `{workflow}` may do more than the one here: {more}"),
                "make both declarations agree".to_owned(),
            )
        }
    };
    Some(Diagnostic::error("GR077", message).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn host() -> HostSettings {
        HostSettings {
            name: "here".to_owned(),
            allow: vec![words("git push"), words("gh pr create")],
            folder: None,
            approve: Approval::Never,
            secrets: vec!["GH_TOKEN".to_owned()],
            time: TIME,
        }
    }

    fn check(access: HostAccess, command: &str) -> Result<Approval, HostRefusal> {
        let access = access.with_variable("GH_TOKEN", "value");
        access.check(HostUse { host: &host(), shape: &words(command) })
    }

    fn permission(commands: Option<&str>) -> HostPermission {
        let commands = commands.map(|it| vec![words(it)]);
        HostPermission { commands, secrets: None, approve: Approval::Never }
    }

    #[test]
    fn a_command_needs_the_workflow_and_the_operator() {
        let allowed = |it| HostAccess::default().allow("here", permission(it));
        let refused = |it: Result<_, HostRefusal>| it.unwrap_err().to_string();
        assert_eq!(
            refused(check(HostAccess::default(), "git push")),
            "the operator does not allow the host `here`"
        );
        assert_eq!(check(allowed(None), "git push origin"), Ok(Approval::Never));
        for command in ["git", "git fetch", "gitpush", "gh pr", "git -c x push"] {
            assert!(check(allowed(None), command).is_err(), "{command}");
        }
        assert_eq!(check(allowed(Some("git push")), "git push"), Ok(Approval::Never));
        assert_eq!(
            refused(check(allowed(Some("git push origin")), "git push")),
            "the operator does not allow `git push` on the host `here`"
        );
        // The operator cannot allow more than the workflow declares.
        assert!(check(allowed(Some("git")), "git fetch").is_err());
    }

    #[test]
    fn the_stricter_approval_applies() {
        for (allowed, expected) in [
            (Approval::Each, Approval::Each),
            (Approval::Once, Approval::Once),
            (Approval::Never, Approval::Never),
        ] {
            let permission = HostPermission { approve: allowed, ..permission(None) };
            let access = HostAccess::default().allow("here", permission);
            assert_eq!(check(access, "git push"), Ok(expected));
        }
    }

    #[test]
    fn a_secret_needs_the_operator_and_a_value() {
        let without = HostPermission { secrets: Some(Vec::new()), ..permission(None) };
        let access = HostAccess::default().allow("here", without);
        assert!(matches!(check(access, "git push"), Err(HostRefusal::Secret { .. })));
        let access = HostAccess::default().allow("here", permission(None));
        let unset = access.check(HostUse { host: &host(), shape: &words("git push") });
        assert!(matches!(unset, Err(HostRefusal::Unset { .. })));
    }

    #[test]
    fn a_command_gets_only_its_own_secrets() {
        let access = HostAccess::default()
            .with_variable("HOME", "/home/me")
            .with_variable("GH_TOKEN", "one")
            .with_variable("OTHER_TOKEN", "two");
        let given: Vec<_> =
            access.variables_of(&host()).map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
        assert_eq!(
            given,
            [("HOME", "/home/me"), ("GH_TOKEN", "one")]
                .map(|it| (it.0.to_owned(), it.1.to_owned()))
        );
    }

    #[test]
    fn a_shape_names_a_program_that_is_no_launcher() {
        assert_eq!(parse_shape(" git  push "), Ok(words("git push")));
        for text in [
            "",
            " ",
            "sh -c",
            "sudo git push",
            "env X=1 git",
            "./run",
            "../git",
            "/bin/sh",
            "-x",
            "$GIT",
            "g{t",
        ] {
            assert!(parse_shape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_approval_for_a_run_is_named_after_all_that_a_command_may_do() {
        let host = host();
        let more = HostSettings { allow: vec![words("git push")], ..host.clone() };
        let secret = HostSettings { secrets: Vec::new(), ..host.clone() };
        let folder = HostSettings { folder: Some("repo".to_owned()), ..host.clone() };
        let names = [&host, &more, &secret, &folder].map(HostSettings::grant);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{names:?}");
        assert_eq!(host.grant(), HostSettings { time: Duration::ZERO, ..host.clone() }.grant());
    }
}
