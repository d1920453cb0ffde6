//! The Python of this host that runs generated code.
//!
//! Not every Python will do. The sandbox shows only `/usr` and its mounts, and a sandbox of root
//! runs as `nobody`, who cannot enter root's home, where version managers put theirs.

use std::{
    env::consts::ARCH,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;
use serde::Deserialize;
use tokio::process::Command;

use super::{host_tool::run_tool, job::Mount, python_error::PythonError};

/// The candidates in order: distributions' interpreters first, which need no mount, then the
/// operator's `PATH`.
const CANDIDATES: [&str; 4] = ["/usr/bin/python3", "/usr/local/bin/python3", "python3", "python"];

/// The oldest version with all required features.
const OLDEST: (u32, u32) = (3, 9);

/// The program that prints the properties of an interpreter.
const QUESTION: &str = "import json, platform, sys
print(json.dumps({
    'executable': sys.executable, 'prefix': sys.base_prefix, 'version': platform.python_version(),
    'major': sys.version_info[0], 'minor': sys.version_info[1], 'cache_tag': sys.implementation.cache_tag,
}))";

/// A Python that works inside the sandbox.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interpreter {
    /// The program.
    pub(super) executable: PathBuf,
    /// The folder with its library.
    prefix: PathBuf,
    /// Full version, such as `3.12.1`.
    pub(super) version: String,
    major: u32,
    minor: u32,
    /// Kind and version of its compiled files.
    pub(super) cache_tag: String,
}

impl Interpreter {
    /// Finds the first suitable Python.
    pub(super) async fn find() -> Result<Self, PythonError> {
        let mut rejected = Vec::new();
        for candidate in CANDIDATES {
            match Self::ask(candidate).await {
                Ok(interpreter) => match interpreter.objection() {
                    None => return Ok(interpreter),
                    Some(objection) => {
                        rejected.push(format!("{}: {objection}", interpreter.executable.display()));
                    }
                },
                Err(_) => rejected.push(format!("{candidate}: does not run")),
            }
        }
        Err(PythonError::NoInterpreter { rejected: rejected.join("; ") })
    }

    async fn ask(program: &str) -> Result<Self, PythonError> {
        let mut command = Command::new(program);
        command.args(["-I", "-c", QUESTION]);
        let answer = run_tool("ask Python for its version", command).await?;
        serde_json::from_str(&answer).map_err(|error| PythonError::Tool {
            attempt: "ask Python for its version",
            detail: error.to_string(),
        })
    }

    /// Everything in which two interpreters of one machine differ, for the packages that are installed for them.
    pub(super) fn identity(&self) -> [&[u8]; 4] {
        let executable = self.executable.as_os_str().as_bytes();
        [ARCH.as_bytes(), executable, self.version.as_bytes(), self.cache_tag.as_bytes()]
    }

    /// Returns the folder of packages, below an environment's folder.
    pub(super) fn site_packages(&self) -> PathBuf {
        format!("lib/python{}.{}/site-packages", self.major, self.minor).into()
    }

    /// Returns the mount that makes the interpreter exist inside.
    pub(super) fn mount(&self) -> Option<Mount> {
        let is_visible = self.prefix.starts_with("/usr");
        (!is_visible).then(|| Mount { host: self.prefix.clone(), inside: self.prefix.clone() })
    }

    fn objection(&self) -> Option<&'static str> {
        if (self.major, self.minor) < OLDEST {
            return Some("is too old");
        }
        (self.mount().is_some() && !is_readable_inside(&self.prefix))
            .then_some("cannot be read from inside the sandbox")
    }
}

/// Returns whether the user inside the sandbox can read a folder of the host: this user, or `nobody` instead of root.
pub(super) fn is_readable_inside(folder: &Path) -> bool {
    if !geteuid().is_root() {
        return fs::read_dir(folder).is_ok();
    }
    let Ok(folder) = folder.canonicalize() else { return false };
    let others_may = |path: &Path, bits| {
        fs::metadata(path).is_ok_and(|it| it.permissions().mode() & bits == bits)
    };
    others_may(&folder, 0o005) && folder.ancestors().skip(1).all(|parent| others_may(parent, 0o001))
}
