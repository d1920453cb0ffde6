//! The software team against a model server that others wrote: `@copilotkit/aimock`, pinned in `tests/aimock`.
//!
//! It is installed from npm once, into the cache of the tests. Only it decides what a valid request is here.

use std::{fs, process::Stdio};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    program::{Ended, Home, RUN, in_repository, recording_path, timeless},
    support::packages,
};

#[tokio::test]
async fn the_team_delivers_the_same_as_from_its_recording() {
    let recorded = Home::new();
    let expected = Ended::of(recorded.replay("retry")).await.done();

    let home = Home::new();
    let server = Aimock::start(&team("retry"), None, &[]).await;
    let report = Ended::of(home.execute(&server.base_url())).await.done();
    assert_eq!(home.delivered(), recorded.delivered());
    assert_eq!(timeless(report["state"].clone()), timeless(expected["state"].clone()));
    // The model has no list price, unlike those of the file.
    let tokens = |line: &Value| {
        ["input_tokens", "output_tokens", "calls"].map(|key| line["usage"][key].clone())
    };
    assert_eq!(tokens(&report), tokens(&expected), "tokens are counted as the server counts them");

    let mut asked: Vec<Value> = server.journal().await.iter().map(shape_of).collect();
    // QC and TA ask at the same time.
    asked[1..3].sort_by_key(Value::to_string);
    let nodes = ["ba", "qc", "ta", "sse", "sse", "tl", "qa"];
    assert_eq!(asked, nodes.map(|node| json!([200, "json_schema", true, node])));
}

#[tokio::test]
async fn a_refused_key_stops_a_run_that_another_key_resumes() {
    let answer = json!({"text": "Good morning, Ada.", "mood": "warm"});
    let fixtures = json!([fixture("Greet Ada.", &answer)]);
    let home = Home::new();
    let server = Aimock::start(&fixtures, Some("right"), &[]).await;
    let with_key = |key: &str, arguments: &[&str]| {
        let mut program = home.program(arguments);
        program.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", key);
        program
    };
    let workflow = in_repository("tests/aimock/greeting.yaml");
    let execute = ["execute", &workflow, "-i", "guest=Ada", "--run-id", RUN];

    let refused = Ended::of(with_key("wrong", &execute)).await;
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    let report = refused.report();
    assert_eq!(report["status"], "failed");
    let reason =
        "`greet` failed: openai/stand-in: the provider refuses the credentials: Invalid API key";
    assert_eq!(report["reason"], reason);
    assert_eq!(report["trace"][0]["attempt"], 1, "a key does not get better by waiting");

    let resumed = Ended::of(with_key("right", &["resume", RUN])).await.done();
    assert_eq!(resumed["state"]["greeting"], answer);
}

#[tokio::test]
async fn a_refused_key_does_not_send_the_team_to_its_failure_route() {
    let home = Home::new();
    let server = Aimock::start(&team("retry"), Some("right"), &[]).await;
    let mut program = home.execute(&server.base_url());
    program.env("OPENAI_API_KEY", "wrong");
    let ended = Ended::of(program).await;
    // `catch: { any: flush }` would end the run for good, and another key could not mend it.
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    let trace = ended.report()["trace"].as_array().unwrap().clone();
    let ran: Vec<&str> = trace.iter().filter_map(|it| it["node"].as_str()).collect();
    assert_eq!(ran, ["ba"]);
}

#[tokio::test]
async fn an_outage_leaves_a_team_that_can_be_resumed() {
    let home = Home::new();
    // Nothing listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = Ended::of(home.execute(&format!("http://{free}/v1"))).await;
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    let report = ended.report();
    assert_eq!(report["failures"][0]["class"], "retryable");
    assert_eq!(report["trace"].as_array().unwrap().len(), 1, "`catch: any` takes no outage");

    let server = Aimock::start(&team("retry"), None, &[]).await;
    let report = Ended::of(home.resume(&server.base_url())).await.done();
    assert!(report["state"]["code_artifact"].is_object(), "{report}");
}

/// How many runs meet faults: a few, or as many as `GRAPHRUN_TEST_FAULTY_RUNS` says.
fn faulty_runs() -> usize {
    let asked = std::env::var("GRAPHRUN_TEST_FAULTY_RUNS").ok();
    asked.map_or(2, |it| it.parse().expect("it is a number"))
}

/// Three of ten requests fail, in four ways, after a delay.
const FAULTS: [&str; 7] = [
    "--chaos-drop=0.08",
    "--chaos-malformed=0.08",
    "--chaos-disconnect=0.07",
    "--chaos-ratelimit=0.07",
    "--chaos-latency=20",
    "--latency=1",
    "--chunk-size=200",
];

#[tokio::test]
async fn among_faults_every_run_is_done_or_rests_until_it_is_resumed() {
    let recorded = Home::new();
    let expected = Ended::of(recorded.replay("retry")).await.done();
    // They wait for most of their time, so they run side by side.
    let runs = (0..faulty_runs()).map(|it| finish_among_faults(it, &recorded, &expected));
    join_all(runs).await;
}

/// Runs the team among faults until it is done. Every second run is killed once, each after another number of requests.
async fn finish_among_faults(run: usize, recorded: &Home, expected: &Value) {
    let home = Home::new();
    let server = Aimock::start(&team("retry"), None, &FAULTS).await;
    let is_killed = run % 2 == 1;
    let mut program = home.execute_as_written(&server.base_url());
    if is_killed {
        let mut child = program.spawn().unwrap();
        while server.journal().await.len() < 2 + run % 7 && child.try_wait().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        child.kill().await.unwrap();
        program = home.resume_as_written(&server.base_url());
    }
    let mut ended = Ended::of(program).await;
    let mut rests = 0;
    while ended.code != Some(0) {
        let status = ended.report()["status"].clone();
        let can_go_on = matches!(
            (ended.code, status.as_str()),
            (Some(3), Some("paused")) | (Some(5), Some("failed"))
        );
        rests += 1;
        assert!(can_go_on && rests < 20, "{ended:?}");
        ended = Ended::of(home.resume_as_written(&server.base_url())).await;
    }
    let report = ended.done();
    assert_eq!(home.delivered(), recorded.delivered());
    assert_eq!(timeless(report["state"].clone()), timeless(expected["state"].clone()));

    let journal = server.journal().await;
    let is_answer = |entry: &&Value| {
        entry["response"]["status"] == 200 && entry["response"]["chaosAction"].is_null()
    };
    let answers = journal.iter().filter(is_answer).count();
    // QC and TA, which ask at the same time, may both have been in flight when it was killed.
    let repeated_max = if is_killed { 2 } else { 0 };
    assert!((7..=7 + repeated_max).contains(&answers), "{answers} answers: {journal:?}");
    println!("{} requests, {answers} answers, {rests} rests", journal.len());
}

/// The answers of a recorded run as fixtures. The system message tells agents apart, and the first words that an entry
/// asks for tell the attempts of one.
fn team(recording: &str) -> Value {
    let lines = fs::read_to_string(recording_path(recording)).unwrap();
    let fixtures = lines.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let node = entry["node"].as_str().unwrap();
        let system = in_repository(&format!("prompts/dev_team/{node}.system.md"));
        let system = fs::read_to_string(system).unwrap();
        let reply = &entry["reply"];
        let mut fixture = fixture(entry["when"]["contains"][0].as_str().unwrap(), &reply["json"]);
        fixture["match"]["systemMessage"] = system.lines().next().into();
        fixture["response"]["usage"] = json!({
            "prompt_tokens": reply["usage"]["input_tokens"],
            "completion_tokens": reply["usage"]["output_tokens"],
        });
        fixture
    });
    fixtures.collect()
}

/// An answer to a request for structured output with these words.
fn fixture(words: &str, answer: &Value) -> Value {
    json!({
        "match": {"userMessage": words, "responseFormat": "json_schema"},
        "response": {"content": answer.to_string()},
    })
}

/// What matters of a request in the journal: how it was answered, and what form the answer was to have.
fn shape_of(entry: &Value) -> Value {
    let format = &entry["body"]["response_format"];
    let schema = &format["json_schema"];
    json!([entry["response"]["status"], format["type"], schema["strict"], schema["name"]])
}

/// The server; it ends when it is dropped.
struct Aimock {
    address: String,
    _server: Child,
    _fixtures: TempDir,
}

impl Aimock {
    /// Starts it with these fixtures and flags; with a key, only its owner gets answers.
    async fn start(fixtures: &Value, key: Option<&str>, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("team.json"), json!({"fixtures": fixtures}).to_string())
            .unwrap();
        let mut server =
            Command::new(packages::npm("tests/aimock").join("node_modules/.bin/llmock"))
                .args(["--port", "0", "--strict", "--validate-on-load", "--log-level", "info"])
                .arg("--fixtures")
                .arg(folder.path())
                .args(flags)
                .env_clear()
                .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
                .envs(key.map(|key| ("AIMOCK_API_KEYS", key)))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap_or_else(|error| panic!("cannot start aimock: {error}"));
        let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, address)) = line.split_once("listening on ") {
                let address = address.to_owned();
                return Self { address, _server: server, _fixtures: folder };
            }
        }
        let mut said = String::new();
        server.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        panic!("aimock does not start; is Node.js 20.15 or newer installed?\n{said}");
    }

    fn base_url(&self) -> String {
        format!("{}/v1", self.address)
    }

    /// The requests that it reports.
    async fn journal(&self) -> Vec<Value> {
        let address = self.address.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /__aimock/journal HTTP/1.0\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        let (_, text) = reply.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(text).unwrap()
    }
}
