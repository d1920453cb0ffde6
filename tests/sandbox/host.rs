//! What the attacks aim at: services, secrets and processes of the host.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::{TcpListener, UdpSocket},
    os::{
        fd::AsFd as _,
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Mutex,
    thread,
};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tempfile::TempDir;

const SECRET: &str = "the secret of the host";

/// Targets on the host, all of them open to any program that reaches them.
#[derive(Debug)]
pub(crate) struct Host {
    folder: TempDir,
    tcp: TcpListener,
    udp_port: u16,
    abstract_name: String,
    _listeners: [UnixListener; 2],
    /// Open, and passed on to every child that does not close it.
    _leaked: Vec<File>,
    victim: Mutex<Child>,
}

impl Host {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("packages")).unwrap();
        for (name, content) in [("secret", SECRET), ("runs.db", SECRET), ("packages/module.py", "")]
        {
            fs::write(path(name), content).unwrap();
            fs::set_permissions(path(name), PermissionsExt::from_mode(0o666)).unwrap();
        }
        // Open even to `nobody`: it is the sandbox that must keep the program out, not the mode.
        for name in ["", "packages"] {
            fs::set_permissions(path(name), PermissionsExt::from_mode(0o777)).unwrap();
        }
        // Many, so that some have the low numbers that the sandbox uses itself.
        let leaked: Vec<File> = (0..32).map(|_| File::open(path("secret")).unwrap()).collect();
        for it in &leaked {
            fcntl(it.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        }

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp_port = udp.local_addr().unwrap().port();
        thread::spawn(move || {
            let mut buffer = [0; 100];
            while let Ok((length, from)) = udp.recv_from(&mut buffer) {
                udp.send_to(&buffer[..length], from).unwrap();
            }
        });
        let abstract_name = format!("graphrun-test-{}", folder.path().display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp_port,
            abstract_name,
            _listeners: [
                UnixListener::bind_addr(&address).unwrap(),
                UnixListener::bind(path("socket")).unwrap(),
            ],
            _leaked: leaked,
            victim: Mutex::new(Command::new("/usr/bin/sleep").arg("600").spawn().unwrap()),
            folder,
        }
    }

    /// The paths that the attacks receive.
    pub(crate) fn targets(&self) -> BTreeMap<String, String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        [
            ("HOST_PORT", self.tcp.local_addr().unwrap().port().to_string()),
            ("HOST_UDP_PORT", self.udp_port.to_string()),
            ("HOST_ABSTRACT", self.abstract_name.clone()),
            ("HOST_SOCKET", path("socket")),
            ("HOST_SECRET", path("secret")),
            ("HOST_DATABASE", path("runs.db")),
            ("HOST_VICTIM", self.victim.lock().unwrap().id().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// A folder of packages that is shown to the attacks.
    pub(crate) fn packages(&self) -> PathBuf {
        self.folder.path().join("packages")
    }

    /// Fails if anything was changed.
    pub(crate) fn assert_unharmed(&self) {
        assert!(self.victim.lock().unwrap().try_wait().unwrap().is_none(), "the victim was killed");
        for name in ["secret", "runs.db"] {
            assert_eq!(
                fs::read_to_string(self.folder.path().join(name)).unwrap(),
                SECRET,
                "{name} was changed"
            );
        }
        let mut names: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["packages", "runs.db", "secret", "socket"]);
        assert_eq!(
            fs::read_dir(self.packages()).unwrap().count(),
            1,
            "something was planted in the packages"
        );
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let victim = self.victim.get_mut().unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

/// Processes of the whole host that carry a marker in their arguments or their environment.
pub(crate) fn leftovers(marker: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    processes.filter(|path| carries(path, marker)).map(|path| describe(&path)).collect()
}

fn carries(process: &Path, marker: &str) -> bool {
    let contains = |file: &str| {
        let bytes = fs::read(process.join(file)).unwrap_or_default();
        bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
    };
    contains("cmdline") || contains("environ")
}

fn describe(process: &Path) -> String {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.split(' ').take(4).collect::<Vec<_>>().join(" ")
}
