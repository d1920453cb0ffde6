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
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        let authority = self.folder.path().join("authority.pem");
        [
            ("PIP_INDEX_URL", format!("https://{}/simple", self.host())),
            ("npm_config_registry", format!("https://{}/", self.host())),
            ("SSL_CERT_FILE", authority.display().to_string()),
        ]
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
