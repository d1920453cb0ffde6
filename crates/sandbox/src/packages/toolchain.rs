//! The compilers of Rust and Go, for the sandboxes with packages of these languages.
//!
//! One below `/usr` is there in every sandbox. One of a version manager is mounted, if the user inside can read it: the user
//! inside the sandboxes of root is `nobody`, who cannot enter root's home.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::{error::PackagesError, lock_file::PackageInstaller};
use crate::{host_tool::run_tool, interpreter::is_readable_inside, job::Mount, mounts::find_tool};

/// Where they are mounted. Both folders are on the `PATH` of every sandbox.
const RUST_INSIDE: &str = "/dependencies/rust";
const GO_INSIDE: &str = "/dependencies/go-root";
/// Where the installer of Go puts it.
const GO_OFFICIAL: &str = "/usr/local/go/bin/go";
/// The manager of versions, which Debian has below `/usr`. Its programs start others in the home.
const RUSTUP: &str = "rustup";

/// A compiler with its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// `None` if it is below `/usr`.
    pub(super) mount: Option<Mount>,
}

impl Toolchain {
    /// Finds the toolchain for the packages of an installer, if they need one.
    pub(super) async fn find(installer: PackageInstaller) -> Result<Option<Self>, PackagesError> {
        let (tool, inside, question) = match installer {
            PackageInstaller::Cargo => ("cargo", RUST_INSIDE, ["rustc", "--print", "sysroot"]),
            PackageInstaller::Go => ("go", GO_INSIDE, ["go", "env", "GOROOT"]),
            PackageInstaller::Pip | PackageInstaller::Npm => return Ok(None),
        };
        let is_manager = |path: &Path| {
            path.canonicalize().is_ok_and(|it| it.file_name().is_some_and(|name| name == RUSTUP))
        };
        let of_system = find_tool(tool).or_else(|| {
            let official = Path::new(GO_OFFICIAL);
            (installer == PackageInstaller::Go && official.is_file()).then(|| official.to_owned())
        });
        if of_system.is_some_and(|it| !is_manager(&it)) {
            return Ok(Some(Self { mount: None }));
        }
        let mut command = Command::new(question[0]);
        // A file of the current folder could choose another version, and have it installed.
        command.args(&question[1..]).current_dir("/");
        let root = run_tool("ask for the toolchain", command).await;
        let root = PathBuf::from(root.map_err(|_| PackagesError::NoToolchain { tool })?.trim_end());
        if !root.join("bin").join(tool).is_file() {
            return Err(PackagesError::NoToolchain { tool });
        }
        if !root.starts_with("/usr") && !is_readable_inside(&root) {
            return Err(PackagesError::UnreadableToolchain { tool, root });
        }
        Ok(Some(Self { mount: Some(Mount { host: root, inside: inside.into() }) }))
    }
}
