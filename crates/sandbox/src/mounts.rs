//! The parts of the host that are visible inside: its programs and libraries, read-only, and
//! nothing else.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// How the host's system folders appear inside: arguments of bubblewrap, found once.
#[derive(Debug, Clone)]
pub(super) struct SystemMounts {
    arguments: Vec<OsString>,
}

/// Folders beside `/usr`. Merged systems have links there, others have real folders.
const BESIDE_USR: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Files of `/etc` that programs and libraries need to be found, and that say nothing about the host.
const HARMLESS_ETC: [&str; 2] = ["/etc/ld.so.cache", "/etc/alternatives"];

/// Small files of `/etc` that libraries expect, with their content.
pub(super) const SYNTHETIC_ETC: [(&str, &str); 4] = [
    ("/etc/passwd", "root:x:0:0:root:/:/bin/false\nbox:x:1000:1000:box:/box/.home:/bin/sh\n"),
    ("/etc/group", "root:x:0:\nbox:x:1000:\n"),
    ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// Where distributions keep the certificates that a system trusts.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Where the certificates are inside.
pub(super) const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Where programs look for the certificates by which they know a host.
pub(super) const CERTIFICATES_ENVIRONMENT: [&str; 6] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];

/// Where `python` is if the system has only `python3`.
const PYTHON: &str = "/aliases/python";

impl SystemMounts {
    /// Finds the layout of this host's system folders.
    pub(super) fn of_this_host() -> Self {
        let mut arguments: Vec<OsString> = ["--ro-bind", "/usr", "/usr"].map(OsString::from).into();
        for folder in BESIDE_USR {
            let folder = Path::new(folder);
            if let Ok(target) = fs::read_link(folder) {
                arguments.extend(["--symlink".into(), target.into_os_string(), folder.into()]);
            } else if folder.is_dir() {
                arguments.extend(["--ro-bind".into(), folder.into(), folder.into()]);
            }
        }
        // Distributions without `python` have `python3`.
        if let (None, Some(python)) = (find_tool("python"), find_tool("python3")) {
            let folder = ["--perms", "0755", "--dir", "/aliases"].map(OsString::from);
            arguments.extend(folder);
            arguments.extend(["--symlink".into(), python.into_os_string(), PYTHON.into()]);
        }
        for path in HARMLESS_ETC.iter().map(Path::new).filter(|path| path.exists()) {
            arguments.extend(["--ro-bind".into(), path.into(), path.into()]);
        }
        Self { arguments }
    }

    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

/// Returns the file of the certificates that this system trusts.
pub(super) fn system_certificates() -> Option<&'static Path> {
    SYSTEM_CERTIFICATES.into_iter().map(Path::new).find(|it| it.is_file())
}

/// Finds a program where distributions install it. `PATH` is ignored: an attacker who can set it
/// could replace the program that guards everything.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}
