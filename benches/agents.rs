//! 1,000 agents at once against a server that streams: time, requests in flight, memory and processor time, and what a
//! collector of OpenTelemetry that does not answer adds.
//!
//! `cargo bench --bench agents`, or with `--profile dev`. Each row is a separate process with 1,000 runs of one agent, saved in SQLite, first with a new
//! client and then again; the server is another process. An answer has 40 pieces and takes a second. The program fails if a
//! figure is beyond its bound.

use std::{
    convert::Infallible,
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::State, response::Response};
use futures_util::stream;
use graphrun::{
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::Engine,
    event::Status,
    models::{ChatModel, ClientConfig, ModelError, ProviderClient, Secret},
    nodes::{ModelSource, Services, factory},
    registry,
    storage::SqliteStorage,
    telemetry::Telemetry,
    workflow,
};
use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit},
    time::TimeValLike as _,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing_subscriber::layer::SubscriberExt as _;

const AGENTS: usize = 1_000;
const PIECES: usize = 40;
const PIECE_EVERY: Duration = Duration::from_millis(25);

/// The bounds. They hold for a build without optimisation on two busy cores, which spends ten milliseconds of CPU on an agent.
/// A new client learns the concurrency of its server: it begins with 8 requests, and doubles them with each round of answers up
/// to 512.
const FIRST_SECONDS_MAX: f64 = 45.0;
const AGAIN_SECONDS_MAX: f64 = 45.0;
const IN_FLIGHT_MAX: u64 = 512;
/// More than a process without agents has.
const MEMORY_MB_MAX: f64 = 200.0;
/// How much longer the same runs may take with a collector that does not answer. Other work on the machine makes a difference
/// of this size.
const SLOWER_MAX: f64 = 1.5;

const WORKFLOW: &str = r#"
graphrun: 1
name: crowd
state: { answer: string }
output: answer
models: { m: lab/small }
agents: { writer: { model: m } }
start: write
nodes:
  write: { agent: writer, prompt: { text: "Describe a lighthouse." }, writes: answer, then: end }
"#;

/// The rows: their names, and their collectors.
const ROWS: [(&str, &str); 3] = [
    ("no telemetry", ""),
    ("no collector at its address", "gone"),
    ("a silent collector", "silent"),
];

fn main() -> ExitCode {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let args: Vec<String> = env::args().filter(|it| !it.starts_with('-')).skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve"] => serve(),
        ["run", server, collector] => run_agents(server, collector),
        _ => return measure(),
    }
    ExitCode::SUCCESS
}

/// Runs all rows and prints them.
fn measure() -> ExitCode {
    println!(
        "{:<30} {:>9} {:>9} {:>10} {:>10} {:>12}",
        "1,000 agents", "first, s", "again, s", "in flight", "MB more", "CPU, ms"
    );
    let mut exceeded = Vec::new();
    let mut again_alone = f64::INFINITY;
    for (name, collector) in ROWS {
        let (ran, in_flight) = measure_row(collector);
        let figure = |name: &str| ran[name].as_f64().unwrap();
        let first = figure("first");
        let again = figure("again");
        let memory = figure("memory");
        let cpu = figure("cpu");
        println!("{name:<30} {first:>9.2} {again:>9.2} {in_flight:>10} {memory:>10.1} {cpu:>12.0}");
        if collector.is_empty() {
            again_alone = again;
        }
        let is_slow = again > again_alone * SLOWER_MAX;
        for (is_beyond, bound) in [
            (first > FIRST_SECONDS_MAX, format!("first at most {FIRST_SECONDS_MAX} s")),
            (again > AGAIN_SECONDS_MAX, format!("again at most {AGAIN_SECONDS_MAX} s")),
            (in_flight > IN_FLIGHT_MAX, format!("at most {IN_FLIGHT_MAX} in flight")),
            (memory > MEMORY_MB_MAX, format!("at most {MEMORY_MB_MAX} MB more")),
            (is_slow, format!("again at most {SLOWER_MAX} times as long as without telemetry")),
        ] {
            if is_beyond {
                exceeded.push(format!("{name}: {bound}"));
            }
        }
    }
    for bound in &exceeded {
        eprintln!("beyond its bound: {bound}");
    }
    if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the agents in a separate process. Returns its figures, and the most requests that the server had at once.
fn measure_row(collector: &str) -> (Value, u64) {
    let this = env::current_exe().unwrap();
    let mut server = Command::new(&this)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = said.next().unwrap();
    let ran = Command::new(&this)
        .args(["run", &address, if collector.is_empty() { "none" } else { collector }])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", ran.status);
    // The server ends with its input.
    drop(server.stdin.take());
    let in_flight = said.next().unwrap().parse().unwrap();
    server.wait().unwrap();
    (serde_json::from_slice(&ran.stdout).unwrap(), in_flight)
}

/// The requests that the server answers now, and the most of them so far.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Counts a request as long as its answer is open.
struct Counted(Arc<InFlight>);

impl Counted {
    fn new(in_flight: Arc<InFlight>) -> Self {
        let now = in_flight.now.fetch_add(1, Ordering::Relaxed) + 1;
        in_flight.most.fetch_max(now, Ordering::Relaxed);
        Self(in_flight)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Prints the address of a server of models, and at the end of its input the most requests that it had at once.
#[tokio::main]
async fn serve() {
    let in_flight = Arc::new(InFlight::default());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&in_flight));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/v1", listener.local_addr().unwrap());
    let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served.unwrap(),
        _ = closed => println!("{}", in_flight.most.load(Ordering::Relaxed)),
    }
}

/// Streams an answer.
async fn answer(State(in_flight): State<Arc<InFlight>>) -> Response {
    let counted = Counted::new(in_flight);
    let pieces = stream::unfold((0, counted), |(at, counted)| async move {
        let piece = match at {
            0..PIECES => {
                json!({"choices": [{"index": 0, "delta": {"content": "A light by the sea. "}}]})
            }
            PIECES => json!({
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 200},
            }),
            _ => return None,
        };
        tokio::time::sleep(PIECE_EVERY).await;
        let end = if at == PIECES { "data: [DONE]\n\n" } else { "" };
        Some((Ok::<_, Infallible>(format!("data: {piece}\n\n{end}")), (at + 1, counted)))
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from_stream(pieces))
        .unwrap()
}

/// One client for every model.
#[derive(Debug)]
struct Only(Arc<ProviderClient>);

impl ModelSource for Only {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn ChatModel>)
    }
}

fn graph(server: &str) -> CompiledGraph {
    let client = ProviderClient::new(ClientConfig {
        api_key: Secret::new("lighthouse-key-7"),
        ..ClientConfig::new(server, "small")
    });
    let models = Arc::new(Only(Arc::new(client.unwrap())));
    let file = Arc::new(SourceFile { name: "crowd.yaml".into(), text: WORKFLOW.to_owned() });
    let (workflow, _) = workflow::parse(file, Path::new("."), &registry()).unwrap();
    let services = Services { models, ..Services::offline() };
    compile(workflow.into_graph(&factory(services, registry()))).unwrap()
}

/// Runs the agents, and prints the figures of this process as JSON.
fn run_agents(server: &str, collector: &str) {
    let telemetry = connect(collector);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
    let engine = Engine::new(graph(server)).with_storage(Arc::new(storage));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let memory = memory_mb("VmRSS:");
    let cpu = cpu_ms();
    let first = runtime.block_on(all_at_once(&engine));
    let again = runtime.block_on(all_at_once(&engine));
    let figures = json!({
        "first": first,
        "again": again,
        "memory": memory_mb("VmHWM:") - memory,
        "cpu": cpu_ms() - cpu,
    });
    println!("{figures}");
    if let Some((telemetry, listener)) = telemetry {
        let loss = telemetry.shut_down(Duration::ZERO).unwrap_err();
        assert_eq!(loss.lost, loss.spans, "the collector answers nothing: {loss}");
        drop(listener);
    }
    std::io::stdout().flush().unwrap();
}

/// Starts telemetry for a collector that does not answer.
fn connect(collector: &str) -> Option<(Telemetry, Option<TcpListener>)> {
    if collector == "none" {
        return None;
    }
    // The system accepts connections to a listener that nothing serves.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let listener = (collector == "silent").then_some(listener);
    let variable = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| address.clone());
    let telemetry = Telemetry::from_variables(variable).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(telemetry.layer(|_| false));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    Some((telemetry, listener))
}

/// Runs all agents, and returns the seconds until the last one has answered.
async fn all_at_once(engine: &Engine) -> f64 {
    let began = Instant::now();
    let mut runs = JoinSet::new();
    for _ in 0..AGENTS {
        let engine = engine.clone();
        runs.spawn(async move { engine.run(&()).await.unwrap().status });
    }
    assert!(runs.join_all().await.into_iter().all(|it| it == Status::Done));
    began.elapsed().as_secs_f64()
}

/// Returns a figure of this process from the system.
fn memory_mb(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
    let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kib / 1024.0
}

fn cpu_ms() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64() * 1e3
}
