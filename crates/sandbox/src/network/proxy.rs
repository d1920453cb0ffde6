//! The proxy: it opens tunnels (`CONNECT` of RFC 9110) and does nothing else.
//!
//! What goes through a tunnel is encrypted between the program and the host, so the proxy sees neither requests nor
//! redirects. It does not speak plain HTTP: such a request could be changed on its way, and a program that needs it can
//! ask for a tunnel to port 80.

use std::{
    future::pending,
    io,
    net::TcpListener as StdTcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use graphrun_guard::address::{ResolveError, resolve};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

use super::{
    Answer, Counts, Network,
    host::{NetworkHostError, check_name, read_port},
};

/// The most connections at a time. Further ones wait to be accepted.
const AT_A_TIME: usize = 64;
/// The most bytes of a request, and the time for it.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time to resolve a name, and to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The time after which a tunnel is closed if nothing goes through it.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// The bytes that are moved at once.
const BUFFER_BYTES: usize = 32 << 10;
/// The wait after a failed `accept`, as when this process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Stands for a target that is no host.
const NO_HOST: &str = "a request without a host";

/// Answers the connections of a listener, by tasks in `answering`. Never returns.
pub(crate) async fn serve(
    network: &Arc<Network>,
    listener: StdTcpListener,
    answering: &mut JoinSet<io::Result<()>>,
) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let Ok(listener) = listener else { return pending().await };
    loop {
        tokio::select! {
            accepted = listener.accept(), if answering.len() < AT_A_TIME => match accepted {
                Ok((client, _)) => {
                    let network = Arc::clone(network);
                    answering.spawn(async move { answer(&network, client).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            // A program that leaves, or breaks the protocol, needs no answer.
            Some(_) = answering.join_next() => {}
        }
    }
}

async fn refuse(client: &mut TcpStream, host: &str, answer: Answer) -> io::Result<()> {
    let status = match answer {
        Answer::NotATunnel => "405 Method Not Allowed",
        Answer::Unreachable => "502 Bad Gateway",
        _ => "403 Forbidden",
    };
    let text = format!("graphrun: `{host}`: {}\n", answer.reason());
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all((head + &text).as_bytes()).await?;
    client.shutdown().await
}

async fn answer(network: &Network, mut client: TcpStream) -> io::Result<()> {
    let line = timeout(REQUEST_TIME, read_request(&mut client)).await??;
    let target = target_of(&line);
    let host = match &target {
        Ok((name, port)) => format!("{name}:{port}"),
        Err(_) => NO_HOST.to_owned(),
    };
    let opened = match target {
        Ok((name, port)) => open(network, &name, port).await,
        Err(answer) => Err(answer),
    };
    match opened {
        Ok(server) => {
            network.note(&host, Answer::Opened);
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            move_bytes(network, &host, client, server).await
        }
        Err(answer) => {
            network.note(&host, answer);
            refuse(&mut client, &host, answer).await
        }
    }
}

/// Reads a request up to its empty line, and returns its first line. Byte by byte is slow, and it is short; so nothing is
/// read of what goes through the tunnel.
async fn read_request(client: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() >= REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(client.read_u8().await?);
    }
    let line = head.split(|it| matches!(it, b'\r' | b'\n')).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// Returns the name and the port that a request asks for. An address is none, because no network declares one.
fn target_of(line: &str) -> Result<(String, u16), Answer> {
    let mut words = line.split(' ');
    let (Some("CONNECT"), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Answer::NotATunnel);
    };
    let (name, port) = target.rsplit_once(':').ok_or(Answer::NotATunnel)?;
    let port = read_port(port).map_err(|_| Answer::NotATunnel)?;
    let name = name.to_ascii_lowercase();
    match check_name(&name) {
        Ok(()) => Ok((name, port)),
        Err(NetworkHostError::Address) if is_plain(&name) => Ok((name, port)),
        Err(_) => Err(Answer::NotATunnel),
    }
}

/// Returns whether an address can be shown in a message.
fn is_plain(address: &str) -> bool {
    address.len() <= 64
        && address.bytes().all(|it| it.is_ascii_alphanumeric() || b".:[]-_".contains(&it))
}

async fn open(network: &Network, name: &str, port: u16) -> Result<TcpStream, Answer> {
    let scope = network.scope_of(name, port).ok_or(Answer::NotDeclared)?;
    if !network.transfers(0) {
        return Err(Answer::TooMuch);
    }
    let host = name.to_owned();
    let resolve = spawn_blocking(move || resolve(&host, port, scope));
    let addresses = match timeout(CONNECT_TIME, resolve).await {
        Ok(Ok(Ok(addresses))) => addresses,
        Ok(Ok(Err(ResolveError::Inside(_)))) => return Err(Answer::Inside),
        Ok(_) | Err(_) => return Err(Answer::Unreachable),
    };
    let connected = timeout(CONNECT_TIME, TcpStream::connect(&addresses[..])).await;
    connected.ok().and_then(Result::ok).ok_or(Answer::Unreachable)
}

/// Moves bytes in both directions until both have ended, one fails, or nothing has moved for too long.
async fn move_bytes(
    network: &Network,
    host: &str,
    mut client: TcpStream,
    mut server: TcpStream,
) -> io::Result<()> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let activity = AtomicU64::new(0);
    let tunnel = Tunnel { network, host, activity: &activity };
    let up = tunnel.pump(from_client, to_server, |it, bytes| it.sent += bytes);
    let down = tunnel.pump(from_server, to_client, |it, bytes| it.received += bytes);
    tokio::try_join!(up, down).map(drop)
}

#[derive(Clone, Copy)]
struct Tunnel<'a> {
    network: &'a Network,
    host: &'a str,
    /// Grows with each piece in either direction: a long download is not idle because nothing is sent.
    activity: &'a AtomicU64,
}

impl Tunnel<'_> {
    async fn pump(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        count: impl Fn(&mut Counts, u64),
    ) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let before = self.activity.load(Relaxed);
            let length = match timeout(IDLE_TIME, from.read(&mut buffer)).await {
                Ok(read) => read?,
                Err(_) if self.activity.load(Relaxed) != before => continue,
                Err(idle) => return Err(idle.into()),
            };
            if length == 0 {
                return to.shutdown().await;
            }
            if !self.network.transfers(length) {
                self.network.note(self.host, Answer::TooMuch);
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            self.activity.fetch_add(1, Relaxed);
            timeout(IDLE_TIME, to.write_all(&buffer[..length])).await??;
            self.network.with_counts(self.host, Answer::Opened, |it| count(it, length as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_for_a_tunnel_has_a_target() {
        let named = |name: &str, port| Ok((name.to_owned(), port));
        for (line, expected) in [
            ("CONNECT api.example.com:443 HTTP/1.1", named("api.example.com", 443)),
            ("CONNECT API.Example.com:8443 HTTP/1.0", named("api.example.com", 8443)),
            ("CONNECT 127.0.0.1:80 HTTP/1.1", named("127.0.0.1", 80)),
            ("CONNECT [::1]:80 HTTP/1.1", named("[::1]", 80)),
            ("CONNECT 2130706433:80 HTTP/1.1", named("2130706433", 80)),
            ("GET http://api.example.com/ HTTP/1.1", Err(Answer::NotATunnel)),
            ("connect api.example.com:443 HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT api.example.com HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT api.example.com:x HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT api.example.com.:443 HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT a@b:443 HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT a\u{1b}b:443 HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT  a:443 HTTP/1.1", Err(Answer::NotATunnel)),
            ("CONNECT a:443 HTTP/2", Err(Answer::NotATunnel)),
            ("", Err(Answer::NotATunnel)),
        ] {
            assert_eq!(target_of(line), expected, "{line:?}");
        }
    }
}
