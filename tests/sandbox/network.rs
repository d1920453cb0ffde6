//! Sandboxes with a network: the hosts that programs inside reach, and the attempts that fail.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, UdpSocket},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use graphrun::sandbox::{
    Answer, Job, JobResult, Limits, Network, NetworkAccess, NetworkHost, ProgramEnd, Sandbox,
    SourceFile,
};
use tokio_util::sync::CancellationToken;

use super::host::leftovers;

/// Functions of the programs: a request for a tunnel, and a plain connection.
const PROGRAM: &str = r#"
import errno, os, socket, sys

def proxy():
    host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 10)

def ask(head):
    s = proxy()
    s.sendall(head.encode())
    s.settimeout(10)
    return s

def tunnel(target):
    s = ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        piece = s.recv(1)
        if not piece:
            break
        answer += piece
    return s, answer.decode().splitlines()[0].split(" ")[1] if answer else "closed"

"#;

/// A server on this machine that answers each connection with its text in capitals, when the client has ended.
fn serve(connections: usize) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        }
    });
    (port, serving)
}

fn host(text: &str) -> NetworkHost {
    text.parse().unwrap()
}

/// The network of a sandbox that may reach these hosts, also at private addresses.
fn private(hosts: &[String]) -> Arc<Network> {
    let hosts: Vec<NetworkHost> = hosts.iter().map(|it| host(it)).collect();
    let access = hosts.iter().cloned().fold(NetworkAccess::default(), NetworkAccess::allow_private);
    access.open(&hosts).unwrap()
}

fn job(program: &str) -> Job {
    let content = format!("{PROGRAM}{program}");
    Job {
        argv: ["python3", "main.py"].map(str::to_owned).into(),
        files: vec![SourceFile { path: "main.py".to_owned(), content }],
        limits: Limits { wall: Duration::from_secs(40), ..Limits::default() },
        ..Job::default()
    }
}

async fn run(network: &Arc<Network>, program: &str) -> JobResult {
    let sandbox = Sandbox::probe().unwrap().with_network(Arc::clone(network));
    let finished = sandbox.run(&job(program), &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0), "{}", finished.output);
    finished
}

/// The noted connections, as texts.
fn noted(network: &Network) -> Vec<String> {
    network
        .connections()
        .iter()
        .map(|it| format!("{:?} {} {}", it.answer, it.host, it.count))
        .collect()
}

#[tokio::test]
async fn a_declared_host_is_reached_through_the_proxy() {
    let (port, serving) = serve(1);
    let network = private(&[format!("localhost:{port}")]);
    let program = format!(
        "s, status = tunnel('LocalHost:{port}')\ns.sendall(b'hello')\ns.shutdown(socket.SHUT_WR)\n\
         print(status, s.makefile().read())"
    );
    let finished = run(&network, &program).await;
    assert_eq!(finished.output, "200 HELLO\n");
    serving.join().unwrap();
    let [connections] = &network.connections()[..] else { panic!("{:?}", noted(&network)) };
    assert_eq!(connections.answer, Answer::Opened);
    assert_eq!((connections.sent, connections.received), (5, 5));
    assert_eq!(
        connections.to_string(),
        format!("`localhost:{port}` was connected: 5 bytes sent, 5 received")
    );
}

#[tokio::test]
async fn programs_check_hosts_with_the_certificates_of_the_system() {
    let network = private(&["localhost:1".to_owned()]);
    let program = "import os, ssl\n\
         file = os.environ.get('SSL_CERT_FILE')\n\
         print(file == os.environ.get('CURL_CA_BUNDLE'), bool(file) and os.path.getsize(file), \
         ssl.create_default_context().cert_store_stats()['x509'] > 0)";
    let sizes = ["ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt", "ssl/cert.pem"]
        .iter()
        .filter_map(|it| std::fs::metadata(format!("/etc/{it}")).ok());
    let size = sizes.map(|it| it.len()).next();
    let expected = size.map_or("True False False\n".to_owned(), |it| format!("True {it} True\n"));
    assert_eq!(run(&network, program).await.output, expected);
    // Without a network, there is nothing to check.
    let alone = Sandbox::probe().unwrap().run(&job(program), &CancellationToken::new()).await;
    assert_eq!(alone.unwrap().output, "True False False\n");
}

#[tokio::test]
async fn other_hosts_ports_and_forms_of_the_host_are_refused() {
    let (port, _serving) = serve(1);
    let network = private(&[format!("localhost:{port}")]);
    let other = port.wrapping_add(1).max(1);
    let targets = [
        format!("example.com:{port}"),
        format!("localhost:{other}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f.1:{port}"),
        format!("localhost.:{port}"),
        format!("localhost.example.com:{port}"),
        format!("x@localhost:{port}"),
    ];
    let program = format!(
        "for target in {targets:?}:\n    print(tunnel(target)[1])\n\
         s = ask('GET http://localhost:{port}/ HTTP/1.1\\r\\n\\r\\n')\n\
         print(s.makefile().readline().split(' ')[1])"
    );
    let finished = run(&network, &program).await;
    let statuses: Vec<&str> = finished.output.lines().collect();
    assert_eq!(
        statuses,
        ["403", "403", "403", "403", "403", "403", "405", "403", "405", "405"],
        "{:?}",
        noted(&network)
    );
    assert!(network.connections().iter().all(|it| it.answer.is_refused()), "{:?}", noted(&network));
    let shown = network.connections().iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected =
        format!("`127.0.0.1:{port}` was refused: `network` of the sandbox has no such host");
    assert!(shown.contains(&expected), "{shown:#?}");
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    let (port, _serving) = serve(1);
    let declared = [host(&format!("localhost:{port}"))];
    let network = NetworkAccess::default().allow(declared[0].clone()).open(&declared).unwrap();
    let finished = run(&network, &format!("print(tunnel('localhost:{port}')[1])")).await;
    assert_eq!(finished.output, "403\n");
    assert_eq!(noted(&network), [format!("Inside localhost:{port} 1")]);
}

#[tokio::test]
async fn nothing_is_reached_without_the_proxy() {
    let (port, _serving) = serve(1);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    let network = private(&[format!("localhost:{port}")]);
    let program = format!(
        r#"
def attempt(name, action):
    try:
        action()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt("loopback", lambda: socket.create_connection(("127.0.0.1", {port}), 5))
attempt("internet", lambda: socket.create_connection(("192.0.2.1", 443), 5))
attempt("internet6", lambda: socket.create_connection(("2001:db8::1", 443), 5))
attempt("udp", lambda: udp.sendto(b"x", ("192.0.2.1", 53)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
udp.sendto(b"x", ("127.0.0.1", {udp_port}))
print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])
"#
    );
    let finished = run(&network, &program).await;
    assert_eq!(
        finished.output,
        "loopback ECONNREFUSED\ninternet ENETUNREACH\ninternet6 ENETUNREACH\nudp ENETUNREACH\n\
         raw EPERM\n['lo']\n"
    );
    assert!(udp.recv(&mut [0; 8]).is_err(), "a datagram left the sandbox");
    assert!(noted(&network).is_empty());
}

#[tokio::test]
async fn a_sandbox_without_a_network_has_no_proxy() {
    let program = "print(os.environ.get('HTTPS_PROXY'))\n\
                   try:\n    socket.create_connection(('127.0.0.1', 3128), 5)\n\
                   except OSError as error:\n    print(errno.errorcode[error.errno])";
    let sandbox = Sandbox::probe().unwrap();
    let finished = sandbox.run(&job(program), &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.output, "None\nECONNREFUSED\n");
}

#[tokio::test]
async fn a_job_cannot_lead_around_the_proxy() {
    let network = private(&["localhost:1".to_owned()]);
    let sandbox = Sandbox::probe().unwrap().with_network(network);
    let env = [("HTTPS_PROXY".to_owned(), "http://192.0.2.1:1".to_owned())].into();
    let job = Job { env, ..job("print(os.environ['HTTPS_PROXY'])") };
    let finished = sandbox.run(&job, &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.output, "http://127.0.0.1:3128\n");
}

#[tokio::test]
async fn broken_requests_get_no_tunnel_and_stop_nothing() {
    let (port, serving) = serve(1);
    let network = private(&[format!("localhost:{port}")]);
    let program = format!(
        r#"
for head in ["\r\n\r\n", "CONNECT\r\n\r\n", "\x00\x01\n\n", "CONNECT localhost:{port}\r\n\r\n", "x" * 20000]:
    s = ask(head)
    try:
        print(s.recv(12))
    except ConnectionError:
        print(b"")
    s.close()
held = [proxy() for _ in range(40)]
s, status = tunnel('localhost:{port}')
s.shutdown(socket.SHUT_WR)
print(status)
"#
    );
    let finished = run(&network, &program).await;
    let refused = "b'HTTP/1.1 405'\n".repeat(4);
    assert_eq!(finished.output, format!("{refused}b''\n200\n"));
    serving.join().unwrap();
}

#[tokio::test]
async fn nothing_of_a_network_remains_after_the_run() {
    let (port, serving) = serve(1);
    let network = private(&[format!("localhost:{port}")]);
    let program = format!("s, status = tunnel('localhost:{port}')\ns.sendall(b'x')\nos._exit(0)");
    let marker = format!("graphrun-network-{}", std::process::id());
    let env = [("RUN_MARKER".to_owned(), marker.clone())].into();
    let sandbox = Sandbox::probe().unwrap().with_network(Arc::clone(&network));
    let job = Job { env, ..job(&program) };
    let finished = sandbox.run(&job, &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0), "{}", finished.output);
    // The server reads to the end of the tunnel, which ends with the sandbox.
    serving.join().unwrap();
    assert_eq!(leftovers(&marker), [""; 0]);
}
