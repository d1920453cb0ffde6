//! `sandboxes`: where commands and tests run.

use std::time::Duration;

use graphrun_core::diagnostic::Diagnostic;
use graphrun_sandbox::{NetworkHost, PackageInstaller, check_path};

use crate::{
    LockFileUse, SandboxSettings,
    format::{DependenciesKeys, PythonKeys, SandboxKeys},
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The default memory of a sandbox.
const MEMORY_BYTES: u64 = 2 << 30;

/// The default time limit of a sandbox.
const TIME: Duration = Duration::from_secs(60);

/// Reads a sandbox. `find_folder` resolves one of `folders`.
pub(crate) fn read_sandbox(
    report: &mut Report,
    Entry { key, value }: &Entry,
    find_folder: impl Fn(&mut Report, SpannedText) -> Option<String>,
) -> SandboxSettings {
    let what = format!("the sandbox `{}`", key.text);
    let section = Section::read::<SandboxKeys>(report, value, &what);
    let get = |key| section.as_ref().and_then(|it| it.get(key));
    let memory = get("memory").and_then(|it| report.bytes(it, "`memory`"));
    let time = get("time").and_then(|it| report.duration(it, "`time`"));
    let room = get("room").and_then(|it| report.bytes(it, "`room`"));
    let network = get("network").map(|it| read_network(report, it));
    let requirements = get("python").map(|it| read_requirements(report, it));
    let dependencies = get("dependencies").map(|it| read_dependencies(report, it, find_folder));
    SandboxSettings {
        memory_bytes: memory.unwrap_or(MEMORY_BYTES),
        time: time.unwrap_or(TIME),
        room_bytes: room.unwrap_or(graphrun_sandbox::Limits::default().work_bytes),
        requirements: requirements.unwrap_or_default(),
        network: network.unwrap_or_default(),
        dependencies: dependencies.unwrap_or_default(),
    }
}

/// Reads the lock files of `dependencies`.
fn read_dependencies(
    report: &mut Report,
    yaml: &Yaml,
    find_folder: impl Fn(&mut Report, SpannedText) -> Option<String>,
) -> Vec<LockFileUse> {
    let what = "`dependencies`";
    let Some(section) = Section::read::<DependenciesKeys>(report, yaml, what) else {
        return Vec::new();
    };
    let help = "name one of `folders`: the lock files are those of its repository";
    let folder = section.require(report, "folder", help);
    let folder = folder.and_then(|it| report.word(it, "`folder`"));
    let folder = folder.and_then(|it| find_folder(report, it));
    let mut locks = Vec::new();
    for installer in PackageInstaller::ALL {
        let path = section.get(installer.as_str());
        let path = path.and_then(|it| report.word(it, &format!("`{installer}`")));
        let path = path.and_then(|it| check_lock_path(report, installer, it));
        locks.extend(folder.clone().zip(path).map(|(folder, path)| LockFileUse {
            folder,
            installer,
            path,
        }));
    }
    if PackageInstaller::ALL.iter().all(|it| section.get(it.as_str()).is_none()) {
        let span = report.span(&yaml.range);
        let diagnostic = Diagnostic::error("GR006", "`dependencies` names no lock file");
        let help = "write `pip: requirements.txt`, `npm: package-lock.json`, `cargo: Cargo.lock` or `go: go.sum`";
        report.push(diagnostic.at(span, "nothing to install").help(help));
    }
    locks
}

/// Checks the path of a lock file in its folder.
fn check_lock_path(
    report: &mut Report,
    installer: PackageInstaller,
    word: SpannedText,
) -> Option<String> {
    if let Err(error) = check_path(&word.text) {
        let message = format!("`{}` is no path in the folder: {error}", word.text);
        report.bad_value(&word, message, "write a path as in `service/requirements.txt`");
        return None;
    }
    let name = word.text.rsplit('/').next().unwrap_or_default();
    if let Some(expected) = installer.lock_name().filter(|it| *it != name) {
        let message = format!("`{}` is no lock file of {installer}", word.text);
        report.bad_value(&word, message, &format!("name a `{expected}`"));
        return None;
    }
    Some(word.text)
}

/// Reports a sandbox with `dependencies` for a program that belongs to no node, and so to no folder of a run.
pub(crate) fn refuse_dependencies(
    report: &mut Report,
    word: &SpannedText,
    sandbox: &SandboxSettings,
    what: &str,
) {
    if !sandbox.dependencies.is_empty() {
        let message = format!("{what} cannot use `{}`, which has `dependencies`", word.text);
        report.bad_value(word, message, "declare another sandbox without them for it");
    }
}

/// Reads the packages of `python`.
fn read_requirements(report: &mut Report, yaml: &Yaml) -> Vec<String> {
    let python = Section::read::<PythonKeys>(report, yaml, "`python`");
    let list = python.and_then(|it| it.get("requirements"));
    let words = list.map(|it| report.words(it, "`requirements`")).unwrap_or_default();
    words.into_iter().filter_map(|it| check_requirement(report, it)).collect()
}

/// Reads the hosts that a sandbox may reach: a list, or `off`.
fn read_network(report: &mut Report, yaml: &Yaml) -> Vec<NetworkHost> {
    let help = "write `network: off`, or the hosts as in `network: [api.example.com]`";
    match &yaml.data {
        Data::List(_) => {}
        Data::Scalar { .. } => {
            if let Some(word) = yaml.word().filter(|it| it.text != "off") {
                let message = "a sandbox reaches no network except the hosts in a list";
                report.bad_value(&word, message, help);
            }
            return Vec::new();
        }
        Data::Null | Data::Map(_) => {
            report.wrong_kind(yaml, "`network`", "`off` or a list of hosts");
            return Vec::new();
        }
    }
    let mut hosts: Vec<NetworkHost> = Vec::new();
    for word in report.words(yaml, "`network`") {
        match word.text.parse() {
            Ok(host) if hosts.contains(&host) => report.named_twice(&word, "`network`"),
            Ok(host) => hosts.push(host),
            Err(error) => {
                let message = format!("`{}` {error}", word.text);
                let help = "write a name, as in `api.example.com`, `*.example.com` or \
                            `api.example.com:8443`; the port is 443 by default";
                report.bad_value(&word, message, help);
            }
        }
    }
    hosts
}

/// Checks a requirement, because it becomes an argument of an installer.
fn check_requirement(report: &mut Report, word: SpannedText) -> Option<String> {
    if word.text.contains("{{") || word.text.contains("${") {
        let message = "a text of the state must not become part of a command";
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::error("GR046", message).at(span, "not filled in");
        report.push(diagnostic.help("name the package here"));
        return None;
    }
    let allowed = |it: char| it.is_ascii_alphanumeric() || "._-[]<>=!~,*+ ".contains(it);
    if !word.text.starts_with(|it: char| it.is_ascii_alphanumeric())
        || !word.text.chars().all(allowed)
    {
        let message = format!("`{}` is not the name of a package", word.text);
        report.bad_value(&word, message, "write `pytest` or `pytest>=8`");
        return None;
    }
    Some(word.text)
}
