//! The connections from a sandbox to named hosts.
//!
//! The network namespace of a sandbox has only its loopback, also with a [`Network`]. A socket there, made from outside
//! by [`enter`](super::enter), listens for connections, and the [`proxy`] that accepts them runs in this process. It
//! opens tunnels to the hosts of the network and to no others, resolves their names itself, and counts.

mod access;
mod host;
pub(super) mod proxy;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use graphrun_guard::address::Scope;

pub use self::{
    access::NetworkAccess,
    host::{NetworkHost, NetworkHostError},
};

/// The port of the proxy on the loopback of a sandbox. Nothing else listens there when the proxy starts.
pub(super) const PROXY_PORT: u16 = 3128;

/// The variables that lead programs to the proxy. Programs ask for their own servers directly.
pub(super) const PROXY_ENVIRONMENT: [(&str, &str); 6] = [
    ("HTTPS_PROXY", PROXY),
    ("https_proxy", PROXY),
    ("HTTP_PROXY", PROXY),
    ("http_proxy", PROXY),
    ("NO_PROXY", OWN_HOSTS),
    ("no_proxy", OWN_HOSTS),
];
const PROXY: &str = "http://127.0.0.1:3128";
const OWN_HOSTS: &str = "localhost,127.0.0.1,::1";

/// The most bytes in both directions of all connections.
const BYTES_MAX: u64 = 1 << 30;
/// The most hosts that are noted one by one. A program can ask for any number.
const NOTED_HOSTS_MAX: usize = 100;
/// Stands for all hosts beyond these.
const OTHER_HOSTS: &str = "other hosts";

/// The hosts that the programs of a sandbox may reach, and the connections that they asked for.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<(NetworkHost, Scope)>,
    bytes: AtomicU64,
    connections: Mutex<BTreeMap<(String, Answer), Counts>>,
}

/// The connections to a host that got the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The host and the port, as the program wrote them.
    pub host: String,
    /// What became of them.
    pub answer: Answer,
    /// Their number.
    pub count: u64,
    /// The bytes from the program to the host.
    pub sent: u64,
    /// The bytes from the host to the program.
    pub received: u64,
}

/// The answer to a program that asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It was opened.
    Opened,
    /// The host cannot be reached.
    Unreachable,
    /// The network has no such host.
    NotDeclared,
    /// The host has an address that is not public.
    Inside,
    /// The request was not one for a tunnel.
    NotATunnel,
    /// All connections together have transferred too much.
    TooMuch,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    count: u64,
    sent: u64,
    received: u64,
}

impl Network {
    fn new(hosts: Vec<(NetworkHost, Scope)>) -> Self {
        Self { hosts, bytes: AtomicU64::new(0), connections: Mutex::default() }
    }

    /// Returns the connections that the programs have asked for, by host.
    pub fn connections(&self) -> Vec<Connections> {
        let noted = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |((host, answer), it): (&(String, Answer), &Counts)| {
            let Counts { count, sent, received } = *it;
            Connections { host: host.clone(), answer: *answer, count, sent, received }
        };
        noted.iter().map(one).collect()
    }

    /// Returns the scope of the addresses of a host, if the network has it.
    fn scope_of(&self, name: &str, port: u16) -> Option<Scope> {
        let fits = self.hosts.iter().filter(|(host, _)| host.matches(name, port));
        fits.map(|(_, scope)| *scope).max_by_key(|it| *it == Scope::Any)
    }

    fn note(&self, host: &str, answer: Answer) {
        self.with_counts(host, answer, |it| it.count += 1);
    }

    fn with_counts(&self, host: &str, answer: Answer, change: impl FnOnce(&mut Counts)) {
        let mut noted = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_owned(), answer);
        let is_full = noted.len() >= NOTED_HOSTS_MAX && !noted.contains_key(&key);
        let key = if is_full { (OTHER_HOSTS.to_owned(), answer) } else { key };
        change(noted.entry(key).or_default());
    }

    /// Counts transferred bytes. Returns whether there may be so many.
    fn transfers(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) <= BYTES_MAX
    }
}

impl std::fmt::Display for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, answer, count, sent, received } = self;
        let times = if *count == 1 { String::new() } else { format!(", {count} times") };
        match answer {
            Answer::Opened => {
                write!(f, "`{host}` was connected{times}: {sent} bytes sent, {received} received")
            }
            Answer::Unreachable => write!(f, "`{host}` could not be reached{times}"),
            refused => write!(f, "`{host}` was refused{times}: {}", refused.reason()),
        }
    }
}

impl Answer {
    /// Returns whether the program was refused.
    pub fn is_refused(self) -> bool {
        !matches!(self, Self::Opened | Self::Unreachable)
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Opened => "it is connected",
            Self::Unreachable => "it cannot be reached",
            Self::NotDeclared => "`network` of the sandbox has no such host",
            Self::Inside => "it has an address that is not public",
            Self::NotATunnel => "only `CONNECT` is answered, as for `https`",
            Self::TooMuch => "the connections of the sandbox have transferred more than 1 GiB",
        }
    }
}
