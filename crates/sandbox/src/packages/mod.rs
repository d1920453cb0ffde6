//! The packages of a repository, installed from its lock files.

mod cargo_lock;
mod error;
mod go_sum;
mod install;
mod lock_file;
mod npm_config;
mod npm_lock;
mod pip_lock;
mod registries;
mod toolchain;

pub(crate) use self::install::PYTHON_INSIDE;
pub use self::{
    error::PackagesError,
    install::{InstalledPackages, PackageCache},
    lock_file::{LockFile, LockFileError, PackageInstaller},
    registries::{Registries, RegistryError},
};
