//! A proxy between a program and its PostgreSQL server that loses connections at chosen moments.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    thread,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime,
    sync::oneshot,
};

use crate::support::postgres::{Schema, server};

/// The fault at the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No fault.
    None = 0,
    /// The commit never reaches the server.
    Before = 1,
    /// The server commits, and its response is lost.
    After = 2,
}

/// The proxy; it stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    next: Arc<AtomicU8>,
    lost: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
    _stop: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Way {
    to: String,
    next: Arc<AtomicU8>,
    lost: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
}

impl Proxy {
    /// Starts a proxy before the test server.
    pub(crate) fn before_test_server() -> Self {
        let url = server();
        let (_, host, _) = parts(&url);
        Self::before(&if host.contains(':') { host.to_owned() } else { format!("{host}:5432") })
    }

    /// Returns the URL of a schema through the proxy.
    pub(crate) fn url(&self, schema: &Schema) -> String {
        let url = server();
        let (user, _, rest) = parts(&url);
        // Without encryption, since the proxy parses the messages.
        schema.url_at(&format!("{user}@{}{rest}", self.address)) + "&sslmode=disable"
    }

    /// Starts a proxy before the server at this address, on separate threads.
    fn before(to: &str) -> Self {
        let next = Arc::new(AtomicU8::new(0));
        let lost = Arc::new(AtomicU32::new(0));
        let requests = Arc::new(AtomicU32::new(0));
        let way_next = Arc::clone(&next);
        let way_lost = Arc::clone(&lost);
        let way_requests = Arc::clone(&requests);
        let way = Way { to: to.to_owned(), next: way_next, lost: way_lost, requests: way_requests };
        let (stop, stopped) = oneshot::channel::<()>();
        let (told, heard) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    _ = stopped => (),
                    () = serve(listener, way) => (),
                }
            });
        });
        Self { address: heard.recv().unwrap(), next, lost, requests, _stop: stop }
    }

    /// Loses the connection at the next commit.
    pub(crate) fn lose(&self, loss: Loss) {
        self.next.store(loss as u8, Ordering::SeqCst);
    }

    /// Returns how many commits lost their connection.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Returns how many requests the server got that it answers with one round trip.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Splits a URL into the part before its host, the host, and the rest.
fn parts(url: &str) -> (&str, &str, &str) {
    let (user, rest) = url.split_once('@').expect("the URL of the test server names a user");
    let (host, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (user, host, rest)
}

async fn serve(listener: TcpListener, way: Way) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let way = way.clone();
        tokio::spawn(async move {
            let server = TcpStream::connect(&way.to).await.unwrap();
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            let commits = AtomicBool::new(false);
            // When one direction ends, both do.
            tokio::select! {
                _ = requests(from_client, to_server, &way, &commits) => (),
                _ = answers(from_server, to_client, &way, &commits) => (),
            }
        });
    }
}

/// Forwards messages of the client:
/// <https://www.postgresql.org/docs/current/protocol-message-formats.html>. `commits` is set when the next answer ends a
/// statement that is a whole transaction.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    way: &Way,
    commits: &AtomicBool,
) -> std::io::Result<()> {
    // Only the first message has no type byte.
    let length = client.read_u32().await?;
    let mut body = vec![0; length as usize - 4];
    client.read_exact(&mut body).await?;
    server.write_all(&[&length.to_be_bytes()[..], &body].concat()).await?;
    // The names of the prepared statements that are a whole transaction.
    let mut statements = BTreeSet::new();
    loop {
        let letter = client.read_u8().await?;
        let length = client.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await?;
        let mut texts = body.split(|it| *it == 0);
        let is_commit = match letter {
            b'Q' => body == b"COMMIT\0",
            b'P' => {
                let name = texts.next().unwrap();
                let sql = texts.next().unwrap().trim_ascii_start();
                let writes = sql.windows(12).any(|it| it == b"INSERT INTO ");
                if sql.starts_with(b"WITH ") && writes {
                    statements.insert(name.to_vec());
                }
                false
            }
            // The portal, which is unnamed, comes before the statement.
            b'B' => statements.contains(texts.nth(1).unwrap()),
            _ => false,
        };
        if is_commit && take(way, Loss::Before) {
            return Ok(());
        }
        commits.fetch_or(is_commit && letter == b'B', Ordering::SeqCst);
        way.requests.fetch_add(u32::from(matches!(letter, b'Q' | b'S')), Ordering::SeqCst);
        server.write_all(&[&[letter][..], &length.to_be_bytes(), &body].concat()).await?;
    }
}

/// Forwards messages of the server. A commit is done when its tag arrives, and a statement that is a transaction when the
/// server is ready for the next one.
async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    way: &Way,
    commits: &AtomicBool,
) -> std::io::Result<()> {
    loop {
        let letter = server.read_u8().await?;
        let length = server.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        server.read_exact(&mut body).await?;
        let is_commit = (letter == b'C' && body == b"COMMIT\0")
            || (letter == b'Z' && commits.swap(false, Ordering::SeqCst));
        if is_commit && take(way, Loss::After) {
            return Ok(());
        }
        client.write_all(&[&[letter][..], &length.to_be_bytes(), &body].concat()).await?;
    }
}

/// Returns whether to lose the connection now; each requested loss happens once.
fn take(way: &Way, loss: Loss) -> bool {
    let none = Loss::None as u8;
    let taken = way.next.compare_exchange(loss as u8, none, Ordering::SeqCst, Ordering::SeqCst);
    way.lost.fetch_add(u32::from(taken.is_ok()), Ordering::SeqCst);
    taken.is_ok()
}
