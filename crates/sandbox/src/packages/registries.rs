//! The registries from which packages come. Only the operator names them, by the usual variables and files of the
//! installers; neither a workflow nor a lock file can.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use graphrun_guard::redact::{learn, learn_url};
use thiserror::Error;
use toml_edit::Document;

use super::{
    lock_file::{LockFile, PackageInstaller},
    npm_config::NpmConfig,
};
use crate::{
    mounts::system_certificates,
    network::{NetworkHost, NetworkHostError},
};

/// The registries, if the operator names no others.
const PYPI: &str = "https://pypi.org/simple";
const NPM: &str = "https://registry.npmjs.org/";
const CRATES_IO: &str = "https://index.crates.io/";
const GO_PROXY: &str = "https://proxy.golang.org";
/// The hosts of the files of two default registries.
const PYPI_FILES: &str = "files.pythonhosted.org";
const CRATES_IO_FILES: &str = "static.crates.io";

/// The most bytes of a file of certificates.
const CERTIFICATES_BYTES_MAX: u64 = 8 << 20;
/// The most bytes of a file with settings.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// The registries of the operator.
#[derive(Clone, Debug)]
pub struct Registries {
    pip: Registry,
    npm: Registry,
    /// The registries of scopes of npm, such as `@scope`.
    npm_scopes: BTreeMap<String, Registry>,
    cargo: Registry,
    go: Registry,
}

/// One registry.
#[derive(Clone)]
struct Registry {
    /// The address, which may contain a password.
    url: String,
    hosts: Vec<NetworkHost>,
    /// What else gives access to it: lines of `.npmrc`, or a token of cargo.
    credentials: String,
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
        /// The variable, or the file with its key.
        variable: String,
    },
    /// Its address names no host.
    #[error("the registry in `{variable}` has no usable host")]
    Host {
        /// The variable, or the file with its key.
        variable: String,
        /// The reason.
        source: NetworkHostError,
    },
    /// A file with settings cannot be used.
    #[error("`{}` cannot be read: {problem}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Its token cannot be sent.
    #[error("the token in `{variable}` has characters that no token has")]
    Token {
        /// The variable or the file.
        variable: String,
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
    /// Reads the settings of the operator from variables, and from `.npmrc` and the files of cargo in the home that they
    /// name. `docs/sandbox.md` lists them.
    ///
    /// # Errors
    ///
    /// Fails when an address is not one of a named host over `https`, and when a file cannot be read.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, RegistryError> {
        let variables = Variables(&variable);
        let of_pip = variables.first(&["PIP_INDEX_URL"]);
        let of_pip = of_pip.unwrap_or_else(|| Setting::new("PIP_INDEX_URL", PYPI));
        let mut pip = variables.registry(of_pip, &["PIP_CERT"])?;
        if pip.url.trim_end_matches('/') == PYPI {
            pip.hosts.extend(PYPI_FILES.parse::<NetworkHost>());
        }
        let (npm, npm_scopes) = variables.npm()?;
        let cargo = variables.cargo()?;
        // A list, of which only an address is used: `direct` would lead to any host.
        let of_go = variables.first(&["GOPROXY"]).and_then(|Setting { place, value }| {
            let mut urls = value.split([',', '|']).map(str::trim);
            let url = urls.find(|it| !["", "direct", "off"].contains(it))?;
            Some(Setting::new(place, url))
        });
        let of_go = of_go.unwrap_or_else(|| Setting::new("GOPROXY", GO_PROXY));
        let go = variables.registry(of_go, &[])?;
        Ok(Self { pip, npm, npm_scopes, cargo, go })
    }

    /// Returns the hosts of the registries that the packages of a lock file come from.
    pub fn hosts(&self, lock: &LockFile) -> Vec<NetworkHost> {
        let mut hosts: Vec<NetworkHost> = Vec::new();
        for host in self.registries(lock).flat_map(|it| &it.hosts) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts
    }

    /// Returns the hosts of all registries.
    pub fn all_hosts(&self) -> impl Iterator<Item = &NetworkHost> {
        let Self { pip, npm, npm_scopes, cargo, go } = self;
        [pip, npm, cargo, go].into_iter().chain(npm_scopes.values()).flat_map(|it| &it.hosts)
    }

    /// Returns the variables with which the script of an installer finds the registries. They may contain secrets.
    pub(super) fn settings(&self, lock: &LockFile) -> Vec<(&'static str, String)> {
        let url = self.registry(lock.installer).url.clone();
        match lock.installer {
            PackageInstaller::Pip => vec![("PIP_INDEX_URL", url)],
            PackageInstaller::Npm => {
                let scopes =
                    self.scopes(lock).map(|(scope, it)| format!("{scope}:registry={}\n", it.url));
                let mut credentials: Vec<&str> =
                    self.registries(lock).map(|it| it.credentials.as_str()).collect();
                credentials.dedup();
                let text = scopes.collect::<String>() + &credentials.concat();
                vec![("npm_config_registry", url), ("NPM_USER_CONFIG", text)]
            }
            PackageInstaller::Cargo => {
                vec![("REGISTRY_INDEX", url), ("REGISTRY_TOKEN", self.cargo.credentials.clone())]
            }
            // Go asks no proxy for a host of this spelling, and so not that of the sandbox.
            PackageInstaller::Go => {
                let authority = authority_of(&url);
                let host = authority.rsplit('@').next().unwrap_or_default();
                let is_local = host.split(':').next() == Some("localhost");
                let spelt = authority.replace("localhost", "LOCALHOST");
                vec![("GOPROXY", if is_local { url.replacen(authority, &spelt, 1) } else { url })]
            }
        }
    }

    /// Reads the certificates that a registry is checked with; `None` if this system has none.
    pub(super) fn certificates(
        &self,
        installer: PackageInstaller,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let Some(path) = &self.registry(installer).certificates else { return Ok(None) };
        let fail = |source| RegistryError::Certificates { path: path.clone(), source };
        read_limited(path, CERTIFICATES_BYTES_MAX).map(Some).map_err(fail)
    }

    fn registry(&self, installer: PackageInstaller) -> &Registry {
        match installer {
            PackageInstaller::Pip => &self.pip,
            PackageInstaller::Npm => &self.npm,
            PackageInstaller::Cargo => &self.cargo,
            PackageInstaller::Go => &self.go,
        }
    }

    fn registries(&self, lock: &LockFile) -> impl Iterator<Item = &Registry> {
        [self.registry(lock.installer)].into_iter().chain(self.scopes(lock).map(|(_, it)| it))
    }

    /// Returns the registries of the scopes that a lock file has packages of.
    fn scopes(&self, lock: &LockFile) -> impl Iterator<Item = (&String, &Registry)> {
        self.npm_scopes.iter().filter(|(scope, _)| lock.scopes.contains(*scope))
    }
}

/// A setting of the operator.
struct Setting {
    /// The variable or the file that has it, for errors.
    place: String,
    value: String,
}

impl Setting {
    fn new(place: impl Into<String>, value: impl Into<String>) -> Self {
        Self { place: place.into(), value: value.into() }
    }
}

/// The variables of the operator.
struct Variables<'v, F>(&'v F);

impl<F: Fn(&str) -> Option<String>> Variables<'_, F> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|it| !it.is_empty())
    }

    /// Returns the first of these variables that has a value.
    fn first(&self, names: &[&str]) -> Option<Setting> {
        names.iter().find_map(|it| Some(Setting::new(*it, self.get(it)?)))
    }

    /// Returns the path of a file in the folder that a variable names, or else in a folder of the home.
    fn file(&self, folder: &str, below_home: &str, name: &str) -> Option<PathBuf> {
        let named = self.get(folder).map(PathBuf::from);
        let folder = named.or_else(|| Some(Path::new(&self.get("HOME")?).join(below_home)))?;
        Some(folder.join(name))
    }

    /// Returns the registry at an address.
    fn registry(
        &self,
        Setting { place, value: url }: Setting,
        certificates: &[&str],
    ) -> Result<Registry, RegistryError> {
        learn_password(&url);
        let hosts = vec![host_of(&place, &url)?];
        let named = self.first(certificates).or_else(|| self.first(&["SSL_CERT_FILE"]));
        let certificates = named
            .map(|it| PathBuf::from(it.value))
            .or_else(|| system_certificates().map(PathBuf::from));
        Ok(Registry { url, hosts, credentials: String::new(), certificates })
    }

    /// Returns the registry of npm, and those of scopes.
    fn npm(&self) -> Result<(Registry, BTreeMap<String, Registry>), RegistryError> {
        let path = self.get("npm_config_userconfig").or_else(|| self.get("NPM_CONFIG_USERCONFIG"));
        let path = path.map(PathBuf::from);
        let path = path.or_else(|| Some(Path::new(&self.get("HOME")?).join(".npmrc")));
        let text = path.as_deref().map(read_settings).transpose()?.flatten().unwrap_or_default();
        let config = NpmConfig::read(&text, self.0);
        let place = |key: &str| {
            let file = path.as_deref().unwrap_or(Path::new(".npmrc"));
            format!("{key} of {}", file.display())
        };
        let certificates =
            ["npm_config_cafile", "NPM_CONFIG_CAFILE", "NODE_EXTRA_CA_CERTS"].as_slice();
        let has_named = self.first(certificates).is_some();
        let of = |address: Setting| {
            let mut registry = self.registry(address, certificates)?;
            let authority = authority_of(&registry.url).rsplit('@').next().unwrap_or_default();
            registry.credentials = config.credentials_of(authority);
            if let Some(path) = config.certificates.as_ref().filter(|_| !has_named) {
                registry.certificates = Some(path.into());
            }
            Ok(registry)
        };
        let named = self.first(&["npm_config_registry", "NPM_CONFIG_REGISTRY"]);
        let in_file = || Some(Setting::new(place("registry"), config.registry.clone()?));
        let default = Setting::new("npm_config_registry", NPM);
        let registry = of(named.or_else(in_file).unwrap_or(default))?;
        let scopes = config.scopes.iter().map(|(scope, url)| {
            let address = Setting::new(place(&format!("{scope}:registry")), url);
            Ok((scope.clone(), of(address)?))
        });
        Ok((registry, scopes.collect::<Result<_, RegistryError>>()?))
    }

    /// Returns the registry that replaces crates.io in the settings of cargo.
    fn cargo(&self) -> Result<Registry, RegistryError> {
        let read = |name: &str| -> Result<Option<(PathBuf, String)>, RegistryError> {
            let Some(path) = self.file("CARGO_HOME", ".cargo", name) else { return Ok(None) };
            Ok(read_settings(&path)?.map(|text| (path, text)))
        };
        let config = match read("config.toml")? {
            None => read("config")?,
            some => some,
        };
        let certificates = ["CARGO_HTTP_CAINFO"].as_slice();
        let mirror =
            config.as_ref().map(|(path, text)| mirror_of(path, text)).transpose()?.flatten();
        let Some((name, index)) = mirror else {
            let default = Setting::new("CARGO_HOME", CRATES_IO);
            let mut registry = self.registry(default, certificates)?;
            registry.hosts.extend(CRATES_IO_FILES.parse::<NetworkHost>());
            return Ok(registry);
        };
        let path = config.map(|it| it.0).unwrap_or_default();
        let place = format!("source.{name} of {}", path.display());
        let url = index.strip_prefix("sparse+").unwrap_or_default();
        let url = format!("{}/", url.trim_end_matches('/'));
        let mut registry = self.registry(Setting::new(place, url), certificates)?;
        let in_variable = name.to_uppercase().replace('-', "_");
        let variable = format!("CARGO_REGISTRIES_{in_variable}_TOKEN");
        let token = match self.get(&variable) {
            None => match read("credentials.toml")? {
                Some((path, text)) => {
                    let token = token_of(&path, &text, &name)?;
                    token.map(|it| Setting::new(path.display().to_string(), it))
                }
                None => None,
            },
            Some(token) => Some(Setting::new(variable, token)),
        };
        if let Some(Setting { place: variable, value: token }) = token {
            // It becomes a part of a file for curl.
            if token.contains(|it: char| it.is_control() || "\"\\".contains(it)) {
                return Err(RegistryError::Token { variable });
            }
            learn(&token);
            registry.credentials = token;
        }
        Ok(registry)
    }
}

/// Returns the name and the address of the registry that replaces crates.io.
fn mirror_of(path: &Path, text: &str) -> Result<Option<(String, String)>, RegistryError> {
    let fail = |problem: &str| RegistryError::Settings {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    let document = Document::parse(text).map_err(|it| fail(it.message()))?;
    let of = |keys: [&str; 3]| {
        let item = keys.iter().try_fold(document.as_item(), |item, key| item.get(key));
        item.and_then(|it| it.as_str()).map(str::to_owned)
    };
    let mut name = "crates-io".to_owned();
    let mut chain = 0;
    while let Some(next) = of(["source", &name, "replace-with"]) {
        chain += 1;
        if chain > 10 {
            return Err(fail("the sources replace each other"));
        }
        name = next;
    }
    if chain == 0 {
        return Ok(None);
    }
    let index = of(["source", &name, "registry"]).or_else(|| of(["registries", &name, "index"]));
    match index.filter(|it| it.starts_with("sparse+")) {
        Some(index) => Ok(Some((name, index))),
        None => Err(fail(
            "the source that replaces crates.io has no `registry` that begins with `sparse+https://`",
        )),
    }
}

fn token_of(path: &Path, text: &str, name: &str) -> Result<Option<String>, RegistryError> {
    let document = Document::parse(text).map_err(|error| RegistryError::Settings {
        path: path.to_owned(),
        problem: error.message().to_owned(),
    })?;
    let token = document.get("registries").and_then(|it| it.get(name)?.get("token")?.as_str());
    Ok(token.map(str::to_owned))
}

/// Without the address and the credentials, because they may contain a password.
impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hosts, certificates, .. } = self;
        f.debug_struct("Registry")
            .field("hosts", hosts)
            .field("certificates", certificates)
            .finish_non_exhaustive()
    }
}

fn host_of(place: &str, url: &str) -> Result<NetworkHost, RegistryError> {
    let variable = place.to_owned();
    if !url.starts_with("https://") || url.contains(char::is_control) {
        return Err(RegistryError::NotEncrypted { variable });
    }
    let host = authority_of(url).rsplit('@').next().unwrap_or_default();
    host.parse().map_err(|source| RegistryError::Host { variable, source })
}

/// Returns the host of an address, with its port and the user before it.
fn authority_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |it| it.1);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Removes the user and the password of an address from all outputs.
fn learn_password(url: &str) {
    learn_url(url);
    // Without a password, the name of the user is one.
    if let Some((user, _)) = authority_of(url).rsplit_once('@')
        && !user.contains(':')
    {
        learn(user);
    }
}

/// Reads a file of the operator; `None` if there is none.
fn read_settings(path: &Path) -> Result<Option<String>, RegistryError> {
    let fail = |problem: String| RegistryError::Settings { path: path.to_owned(), problem };
    match read_limited(path, SETTINGS_BYTES_MAX) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|it| fail(it.to_string())),
        // A folder of this name has no settings either.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::IsADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(fail(error.to_string())),
    }
}

fn read_limited(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
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

    fn lock(installer: PackageInstaller, scopes: &[&str]) -> LockFile {
        let scopes = scopes.iter().map(|it| (*it).to_owned()).collect();
        LockFile { installer, scopes, files: Vec::new(), package_count: 0, has_hashes: true }
    }

    fn hosts(registries: &Registries, installer: PackageInstaller) -> Vec<String> {
        registries.hosts(&lock(installer, &[])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_operator_names_the_registries() {
        let usual = registries(&[]).unwrap();
        assert_eq!(hosts(&usual, PackageInstaller::Pip), ["pypi.org", "files.pythonhosted.org"]);
        assert_eq!(hosts(&usual, PackageInstaller::Npm), ["registry.npmjs.org"]);
        assert_eq!(hosts(&usual, PackageInstaller::Cargo), ["index.crates.io", "static.crates.io"]);
        assert_eq!(hosts(&usual, PackageInstaller::Go), ["proxy.golang.org"]);
        let named = registries(&[
            ("PIP_INDEX_URL", "https://me:hunter2@mirror.example:8443/simple"),
            ("NPM_CONFIG_REGISTRY", "https://npm.example"),
            ("GOPROXY", "off,https://me:hunter2@go.example|direct"),
            ("SSL_CERT_FILE", "/own.pem"),
            ("NODE_EXTRA_CA_CERTS", "/node.pem"),
        ])
        .unwrap();
        assert_eq!(hosts(&named, PackageInstaller::Pip), ["mirror.example:8443"]);
        assert_eq!(hosts(&named, PackageInstaller::Npm), ["npm.example"]);
        assert_eq!(hosts(&named, PackageInstaller::Go), ["go.example"]);
        assert_eq!(named.pip.certificates, Some("/own.pem".into()));
        assert_eq!(named.npm.certificates, Some("/node.pem".into()));
        assert!(!format!("{named:?}").contains("hunter2"));
        let direct = registries(&[("GOPROXY", "direct")]).unwrap();
        assert_eq!(hosts(&direct, PackageInstaller::Go), ["proxy.golang.org"]);
    }

    #[test]
    fn only_the_registries_of_the_scopes_of_a_lock_file_are_used() {
        let home = tempfile::tempdir().unwrap();
        let text = "registry=https://npm.example/\n@team:registry=https://team.example/npm/\n@other:registry=https://other.example/\n\
                    //team.example/npm/:_authToken=team-token\n//other.example/:_authToken=other-token\ncafile=/ca.pem\n";
        std::fs::write(home.path().join(".npmrc"), text).unwrap();
        let of = registries(&[("HOME", home.path().to_str().unwrap())]).unwrap();
        assert_eq!(hosts(&of, PackageInstaller::Npm), ["npm.example"]);
        assert_eq!(of.npm.certificates, Some("/ca.pem".into()));
        assert!(!format!("{of:?}").contains("team-token"));
        let of_team = lock(PackageInstaller::Npm, &["@team", "@unknown"]);
        let hosts: Vec<String> = of.hosts(&of_team).iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["npm.example", "team.example"]);
        let file =
            "@team:registry=https://team.example/npm/\n//team.example/npm/:_authToken=team-token\n";
        let expected = [("npm_config_registry", "https://npm.example/"), ("NPM_USER_CONFIG", file)];
        assert_eq!(of.settings(&of_team), expected.map(|(name, it)| (name, it.to_owned())));
    }

    #[test]
    fn a_mirror_replaces_crates_io() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        let of = |config: &str, variables: &[(&str, &str)]| {
            std::fs::write(home.path().join("config.toml"), config).unwrap();
            registries(&[&[("CARGO_HOME", path)], variables].concat())
        };
        let config = "[source.crates-io]\nreplace-with = \"my-mirror\"\n[source.my-mirror]\nregistry = \"sparse+https://crates.example/index\"\n";
        let named = of(config, &[("CARGO_REGISTRIES_MY_MIRROR_TOKEN", "in-a-variable")]).unwrap();
        assert_eq!(hosts(&named, PackageInstaller::Cargo), ["crates.example"]);
        let settings = |it: &Registries| it.settings(&lock(PackageInstaller::Cargo, &[]));
        let expected = |token: &str| {
            let index = "https://crates.example/index/".to_owned();
            vec![("REGISTRY_INDEX", index), ("REGISTRY_TOKEN", token.to_owned())]
        };
        assert_eq!(settings(&named), expected("in-a-variable"));
        let credentials = "[registries.my-mirror]\ntoken = \"in-a-file\"\n";
        std::fs::write(home.path().join("credentials.toml"), credentials).unwrap();
        assert_eq!(settings(&of(config, &[]).unwrap()), expected("in-a-file"));

        for (config, problem) in [
            ("[source.crates-io]\nreplace-with = \"a\"\n", "begins with `sparse+https://`"),
            ("[source.crates-io]\nreplace-with = \"crates-io\"\n", "replace each other"),
            ("[source", "cannot be read"),
        ] {
            let error = of(config, &[]).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(path), "{config}: {error}");
        }
        let of_git = config.replace("sparse+https", "https");
        assert!(of(&of_git, &[]).is_err());

        let file = home.path().join("credentials.toml").display().to_string();
        for (credentials, problem) in [
            ("[registries.my-mirror]\ntoken = 'a\"b'\n", "has characters that no token has"),
            ("[registries", "cannot be read"),
        ] {
            std::fs::write(home.path().join("credentials.toml"), credentials).unwrap();
            let error = of(config, &[]).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(&file), "{credentials}: {error}");
        }
        let variable = "CARGO_REGISTRIES_MY_MIRROR_TOKEN";
        let error = of(config, &[(variable, "a\nb")]).unwrap_err().to_string();
        assert_eq!(error, format!("the token in `{variable}` has characters that no token has"));
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
