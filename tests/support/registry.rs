//! A registry of packages, which `registry.py` serves on this machine over TLS with the certificate of the tests.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The certificates, which are part of this program because an ordinary user may not read the project.
const FILES: [(&str, &str); 3] = [
    ("server.pem", include_str!("../storage/tls/server.pem")),
    ("server.key", include_str!("../storage/tls/server.key")),
    ("authority.pem", include_str!("../storage/tls/authority.pem")),
];

/// A running registry.
pub(crate) struct Registry {
    process: Child,
    /// The files with certificates.
    folder: TempDir,
    port: u16,
    about: Value,
    requests: Arc<Mutex<Vec<String>>>,
    arrivals: Mutex<Receiver<()>>,
}

impl Registry {
    /// Starts a registry, whose name is `localhost`.
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        for (name, content) in FILES {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let mut process = Command::new("python3")
            .args(["-c", include_str!("registry.py"), "server.pem", "server.key", "127.0.0.1"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need Python");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let about: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (noted, (arrived, arrivals)) = (Arc::clone(&requests), mpsc::channel());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                noted.lock().unwrap().push(line);
                let _ = arrived.send(());
            }
        });
        let port = about["port"].as_u64().unwrap().try_into().unwrap();
        Self { process, folder, port, about, requests, arrivals: Mutex::new(arrivals) }
    }

    /// Returns the host as a permission names it.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Returns the variables of an operator who uses this registry.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        self.variables_of("", "")
    }

    /// Returns the variables of an operator who uses the part of this registry that asks for a password, with the right ones.
    pub(crate) fn private_variables(&self) -> Vec<(&'static str, String)> {
        self.variables_of("/private", "me:hunter2-of-the-index@")
    }

    fn variables_of(&self, folder: &str, user: &str) -> Vec<(&'static str, String)> {
        let origin = |user: &str| format!("https://{user}{}{folder}", self.host());
        let home = self.folder.path().join(format!("home{}", folder.replace('/', "-")));
        fs::create_dir_all(home.join(".cargo")).unwrap();
        let cargo = home.join(".cargo");
        let npm = home.join(".npmrc");
        let config = format!(
            "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+{}/crates/\"\n",
            origin("")
        );
        fs::write(cargo.join("config.toml"), config).unwrap();
        let scope = format!("@team:registry={}/\n", origin(""));
        let token = format!("//{}{folder}/:_authToken=${{NPM_TOKEN}}\n", self.host());
        if user.is_empty() {
            fs::write(npm, scope).unwrap();
        } else {
            fs::write(npm, scope + &token).unwrap();
            let token = "[registries.mirror]\ntoken = \"token-of-the-crates-0123\"\n";
            fs::write(cargo.join("credentials.toml"), token).unwrap();
        }
        vec![
            ("PIP_INDEX_URL", format!("{}/simple", origin(user))),
            ("npm_config_registry", format!("https://{}/", self.host())),
            ("npm_config_userconfig", home.join(".npmrc").display().to_string()),
            ("NPM_TOKEN", "token-of-the-scope-0123".to_owned()),
            ("CARGO_HOME", cargo.display().to_string()),
            ("GOPROXY", format!("{}/go,direct", origin(user))),
            ("SSL_CERT_FILE", self.folder.path().join("authority.pem").display().to_string()),
        ]
    }

    /// Returns a `Cargo.lock` with these crates, each as `NAME VERSION`.
    pub(crate) fn cargo_lock(&self, crates: &[&str]) -> String {
        let entry = |name: &&str| {
            let (name, version) = name.split_once(' ').unwrap();
            let hash = self.about["crates"][format!("{name}-{version}")].as_str().unwrap();
            let needs = if name == "doubler" { "dependencies = [\"adder\"]\n" } else { "" };
            format!(
                "\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \
                 \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{hash}\"\n{needs}"
            )
        };
        let app =
            "\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\"doubler\"]\n";
        let (before, after): (Vec<&str>, Vec<&str>) = crates.iter().partition(|it| **it < "app");
        let all = |it: Vec<&str>| it.iter().map(entry).collect::<String>();
        format!("version = 3\n{}{app}{}", all(before), all(after))
    }

    /// Returns a `go.sum` with the modules `example.com/Halver` and the one that it needs, and a `go.mod`.
    pub(crate) fn go_files(&self) -> (String, String) {
        let sums = self.about["sums"].as_array().unwrap().iter();
        let sums = sums.flat_map(|it| [it.as_str().unwrap(), "\n"]).collect();
        let manifest = "module example.com/app\n\ngo 1.18\n\nrequire (\n\texample.com/Halver v1.0.0\n\t\
                        example.com/divider v1.1.0 // indirect\n)\n";
        (sums, manifest.to_owned())
    }

    /// Returns a `package-lock.json` with the package `@team/left-step`, and its `package.json`.
    pub(crate) fn scoped_npm_files(&self) -> (String, String) {
        let (lock, manifest) = self.npm_files();
        let public = "https://registry.npmjs.org/left-step/-/left-step-1.0.0.tgz";
        let team = format!("https://{}/private/@team/left-step/-/left-step-1.0.0.tgz", self.host());
        let scoped =
            |text: &str| text.replace(public, &team).replace("left-step\"", "@team/left-step\"");
        let program = "\"@team/left-step\": \"bin.js\"";
        (scoped(&lock).replace(program, "\"left-step\": \"bin.js\""), scoped(&manifest))
    }

    /// Returns the line that pins a wheel.
    pub(crate) fn pinned(&self, name: &str, version: &str) -> String {
        let hash = &self.about["wheels"][format!("{name}-{version}-py3-none-any.whl")];
        format!("{name}=={version} --hash=sha256:{}\n", hash.as_str().unwrap())
    }

    /// Returns a `package-lock.json` with the package `left-step`, and its `package.json`.
    pub(crate) fn npm_files(&self) -> (String, String) {
        let dependencies = json!({ "left-step": "^1.0.0" });
        let integrity = &self.about["integrity"];
        let lock = json!({
            "name": "app", "version": "0.1.0", "lockfileVersion": 3, "requires": true,
            "packages": {
                "": { "name": "app", "version": "0.1.0", "dependencies": dependencies },
                "node_modules/left-step": {
                    "version": "1.0.0",
                    "resolved": "https://registry.npmjs.org/left-step/-/left-step-1.0.0.tgz",
                    "integrity": integrity,
                    "hasInstallScript": true,
                    "bin": { "left-step": "bin.js" },
                },
            },
        });
        let manifest = json!({
            "name": "app", "dependencies": dependencies, "scripts": { "prepare": "touch ran" },
        });
        (serde_json::to_string_pretty(&lock).unwrap(), manifest.to_string())
    }

    /// Returns the paths of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits for a request.
    pub(crate) fn wait_for(&self, path: &str) {
        while !self.requests().iter().any(|it| it == path) {
            self.arrivals.lock().unwrap().recv().expect("the registry runs");
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an empty cache that the user of a sandbox can read.
pub(crate) fn empty_cache() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}
