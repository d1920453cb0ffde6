//! The registries from which packages come. Only the operator names them, by the usual variables of pip and npm; neither a
//! workflow nor a lock file can.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::lock_file::PackageInstaller;
use crate::network::{HostError, NetworkHost};

/// The registries of Python and JavaScript packages, if the operator names no others.
const PYPI: &str = "https://pypi.org/simple";
const NPM: &str = "https://registry.npmjs.org/";
/// The host of the files of the default registry of Python packages.
const PYPI_FILES: &str = "files.pythonhosted.org";

/// Where distributions keep the certificates that a system trusts.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The most bytes of a file of certificates.
const CERTIFICATES_BYTES_MAX: u64 = 8 << 20;

/// The registries of the operator.
#[derive(Clone, Debug)]
pub struct Registries {
    pip: Registry,
    npm: Registry,
}

/// One registry.
#[derive(Clone)]
struct Registry {
    /// The address, which may contain a password.
    url: String,
    hosts: Vec<NetworkHost>,
    /// The file of the certificates that it is checked with.
    certificates: Option<PathBuf>,
}

/// A registry cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Its address is not encrypted.
    #[error("the registry in `{variable}` has no address that begins with `https://`")]
    NotEncrypted {
        /// The variable.
        variable: String,
    },
    /// Its address names no host.
    #[error("the registry in `{variable}` has no usable host")]
    Host {
        /// The variable.
        variable: String,
        /// The reason.
        source: HostError,
    },
    /// The file of certificates cannot be read.
    #[error("the certificates in `{}` cannot be read", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Registries {
    /// Reads the variables of the operator: `PIP_INDEX_URL` and `PIP_CERT`, `npm_config_registry`, `npm_config_cafile` and
    /// `NODE_EXTRA_CA_CERTS`, and `SSL_CERT_FILE`.
    ///
    /// # Errors
    ///
    /// Fails when an address is not one of a named host over `https`.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, RegistryError> {
        let first = |names: &[&'static str]| {
            let found = names.iter().find_map(|it| Some((*it, variable(it)?)));
            found.filter(|(_, value)| !value.is_empty())
        };
        let certificates = |names: &[&'static str]| {
            let named = first(&[names, &["SSL_CERT_FILE"]].concat());
            let of_system =
                || SYSTEM_CERTIFICATES.map(PathBuf::from).into_iter().find(|it| it.is_file());
            named.map(|(_, path)| PathBuf::from(path)).or_else(of_system)
        };
        let registry = |names: &[&'static str], default: &str, of_certificates: &[&'static str]| {
            let (name, url) = first(names).unwrap_or((names[0], default.to_owned()));
            let host = host_of(name, &url)?;
            let hosts = vec![host];
            Ok(Registry { url, hosts, certificates: certificates(of_certificates) })
        };
        let mut pip = registry(&["PIP_INDEX_URL"], PYPI, &["PIP_CERT"])?;
        if pip.url.trim_end_matches('/') == PYPI {
            pip.hosts.extend(PYPI_FILES.parse::<NetworkHost>());
        }
        let npm = registry(
            &["npm_config_registry", "NPM_CONFIG_REGISTRY"],
            NPM,
            &["npm_config_cafile", "NPM_CONFIG_CAFILE", "NODE_EXTRA_CA_CERTS"],
        )?;
        Ok(Self { pip, npm })
    }

    /// Returns the hosts of the registry of an installer.
    pub fn hosts(&self, installer: PackageInstaller) -> &[NetworkHost] {
        &self.registry(installer).hosts
    }

    pub(super) fn url(&self, installer: PackageInstaller) -> &str {
        &self.registry(installer).url
    }

    /// Reads the certificates that a registry is checked with; `None` if this system has none.
    pub(super) fn certificates(
        &self,
        installer: PackageInstaller,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let Some(path) = &self.registry(installer).certificates else { return Ok(None) };
        let fail = |source| RegistryError::Certificates { path: path.clone(), source };
        read_limited(path).map(Some).map_err(fail)
    }

    fn registry(&self, installer: PackageInstaller) -> &Registry {
        match installer {
            PackageInstaller::Pip => &self.pip,
            PackageInstaller::Npm => &self.npm,
        }
    }
}

/// Without the address, because it may contain a password.
impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hosts, certificates, .. } = self;
        f.debug_struct("Registry")
            .field("hosts", hosts)
            .field("certificates", certificates)
            .finish_non_exhaustive()
    }
}

fn host_of(variable: &str, url: &str) -> Result<NetworkHost, RegistryError> {
    let variable = variable.to_owned();
    let Some(rest) = url.strip_prefix("https://").filter(|it| !it.contains(char::is_control))
    else {
        return Err(RegistryError::NotEncrypted { variable });
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.parse().map_err(|source| RegistryError::Host { variable, source })
}

fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(CERTIFICATES_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > CERTIFICATES_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registries(set: &[(&str, &str)]) -> Result<Registries, RegistryError> {
        let set: Vec<(String, String)> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Registries::of(|name| set.iter().find(|it| it.0 == name).map(|it| it.1.clone()))
    }

    fn hosts(registries: &Registries, installer: PackageInstaller) -> Vec<String> {
        registries.hosts(installer).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_operator_names_the_registries() {
        let usual = registries(&[]).unwrap();
        assert_eq!(hosts(&usual, PackageInstaller::Pip), ["pypi.org", "files.pythonhosted.org"]);
        assert_eq!(hosts(&usual, PackageInstaller::Npm), ["registry.npmjs.org"]);
        let named = registries(&[
            ("PIP_INDEX_URL", "https://me:hunter2@mirror.example:8443/simple"),
            ("NPM_CONFIG_REGISTRY", "https://npm.example"),
            ("SSL_CERT_FILE", "/own.pem"),
            ("NODE_EXTRA_CA_CERTS", "/node.pem"),
        ])
        .unwrap();
        assert_eq!(hosts(&named, PackageInstaller::Pip), ["mirror.example:8443"]);
        assert_eq!(hosts(&named, PackageInstaller::Npm), ["npm.example"]);
        assert_eq!(named.pip.certificates, Some("/own.pem".into()));
        assert_eq!(named.npm.certificates, Some("/node.pem".into()));
        assert!(!format!("{named:?}").contains("hunter2"));
    }

    #[test]
    fn a_registry_is_a_named_host_over_https() {
        for (url, message) in [
            ("http://mirror.example/simple", "has no address that begins with `https://`"),
            ("file:///wheels", "has no address that begins with `https://`"),
            ("https://a\n", "has no address that begins with `https://`"),
            ("https://127.0.0.1/simple", "has no usable host"),
            ("https:///simple", "has no usable host"),
        ] {
            let error = registries(&[("PIP_INDEX_URL", url)]).unwrap_err().to_string();
            assert_eq!(error, format!("the registry in `PIP_INDEX_URL` {message}"), "{url:?}");
        }
    }
}
