//! Waits for a provider: the run pauses if they are too long, and `resume --due` continues it.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::cli::{
    program::{Place, workflow},
    provider::{answer, read_request},
};

#[test]
fn a_long_wait_pauses_a_run_until_it_is_due() {
    const WAIT: Duration = Duration::from_secs(4);
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let variables = [("OPENAI_BASE_URL", &*url)];
    let place = Place::new();
    let agent = workflow("agent");
    let limited = thread::spawn(move || {
        let (mut call, _) = provider.accept().unwrap();
        read_request(&mut call);
        let head = format!("HTTP/1.1 429 Too Many Requests\r\nretry-after: {}", WAIT.as_secs());
        write!(call, "{head}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
        (provider, Instant::now())
    });
    let execute = ["execute", &agent, "-i", "brief=x", "--run-id", "run-1", "--output", "json"];
    let paused = place.run_with(execute.into_iter().chain(["--wait", "1s"]), variables);
    let (provider, refused) = limited.join().unwrap();
    let report = paused.json();
    assert_eq!((paused.code, &report["status"]), (3, &"paused".into()), "{paused}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("waits until") && reason.contains("limits the rate"), "{reason}");
    assert!(report["due"].is_string() && report["questions"] == serde_json::json!([]), "{report}");

    // Before the time, neither form makes a request.
    let named = place.run_with(["resume", "run-1", "--due"], variables);
    assert_eq!(named.code, 3, "{named}");
    assert!(named.stderr.contains("waits until"), "{named}");
    let all = place.run_with(["resume", "--due"], variables);
    assert_eq!(all.code, 0, "{all}");
    assert!(all.stderr.contains("no run is due"), "{all}");
    assert!(refused.elapsed() < WAIT, "this machine is too slow for the test");
    provider.set_nonblocking(true).unwrap();
    assert!(provider.accept().is_err(), "the provider was asked too early");
    provider.set_nonblocking(false).unwrap();

    // The provider's wait and the jitter above it.
    thread::sleep((WAIT + Duration::from_secs(1)).saturating_sub(refused.elapsed()));
    let answered = thread::spawn(move || answer(&mut provider.accept().unwrap().0));
    let done = place.run_with(["resume", "--due", "--output", "json"], variables);
    let report = done.json()["runs"][0]["report"].clone();
    assert_eq!((done.code, &report["state"]["answer"]), (0, &"42".into()), "{done}");
    assert_eq!(report.get("due"), None);
    answered.join().unwrap();
    let none = place.run_with(["resume", "run-1", "--due"], variables);
    assert!(none.stderr.contains("is done and waits for no time"), "{none}");
}

#[test]
fn a_node_that_waits_pauses_its_run_while_other_branches_end() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), WAITING).unwrap();
    let execute = |id: &str, pause: &str, until: &str| {
        let pause = format!("pause={pause}");
        let until = format!("until={until}");
        let input = ["-i", &pause, "-i", &until];
        let args = ["execute", "w.yaml", "--run-id", id, "--output", "json"];
        place.run(args.into_iter().chain(input))
    };
    let short = execute("run-1", "1ms", "2020-01-01T00:00:00Z");
    assert_eq!((short.code, &short.json()["state"]["log"]), (0, &serde_json::json!(["a", "b"])));
    let long = execute("run-2", "48h", "2020-01-01T00:00:00Z");
    let report = long.json();
    assert_eq!((long.code, &report["status"]), (3, &"paused".into()), "{long}");
    assert!(report["reason"].as_str().unwrap().starts_with("`pause` waits until 20"), "{long}");
    assert!(report["due"].is_string(), "{long}");
    assert_eq!(report["trace"][0]["node"], "other", "{long}");
    assert!(long.stderr.contains("pause waits until 20"), "{long}");
    let listed = place.run(["runs", "list"]);
    assert!(listed.stdout.contains("waits until 20"), "{listed}");
    let none = place.run(["resume", "--due"]);
    assert!(none.stderr.contains("no run is due"), "{none}");
    let wrong = execute("run-3", "1ms", "tomorrow");
    let failure = &wrong.json()["failures"][0];
    let error = "`until` is \"tomorrow\", which is no day or time";
    assert_eq!((wrong.code, &failure["error"]), (1, &error.into()), "{wrong}");
}

/// Beside a wait, another branch ends.
const WAITING: &str = r#"
graphrun: 1
name: waiting
state:
  pause: duration
  until: string
  log: { type: "[string]", merge: append, default: [] }
input: [pause, until]
output: log
start: both
nodes:
  both: { parallel: [pause, other], then: open }
  pause: { wait: pause }
  other: { set: { log: '["a"]' } }
  open: { wait: { until: until }, then: last }
  last: { set: { log: '["b"]' }, then: end }
"#;

#[test]
fn a_wait_of_a_nested_run_is_a_wait_of_its_task() {
    let place = Place::new();
    for (file, text) in [("inner.yaml", INNER), ("outer.yaml", OUTER)] {
        fs::write(place.path(file), text).unwrap();
    }
    let execute = ["execute", "outer.yaml", "--run-id", "run-1", "-i", "pause=1s", "--wait", "1ms"];
    let paused = place.run(execute.into_iter().chain(["--output", "json"]));
    let report = paused.json();
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.starts_with("`sub` waits until 20"), "{paused}");
    assert!(reason.contains("Z: `pause` waits until 20"), "the inner reason: {paused}");
    assert!(report["due"].is_string() && report["trace"] == serde_json::json!([]), "{paused}");
    assert!(paused.stderr.contains("sub waits until 20"), "{paused}");
    assert!(!paused.stderr.contains("failed"), "{paused}");
    let events = place.run(["runs", "events", "run-1", "--output", "jsonl"]);
    let events = events.stdout.lines().map(|it| serde_json::from_str(it).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    assert!(events.iter().all(|it| it["type"] != "task.retrying"), "{events:#?}");
    let timer = events.iter().find(|it| it["type"] == "timer.set").unwrap();
    assert!(timer["reason"].as_str().unwrap().starts_with("`pause` waits until"), "{timer}");

    thread::sleep(Duration::from_secs(1));
    let done = place.run(["resume", "run-1", "--output", "json"]);
    let attempts = &done.json()["trace"][0]["attempt"];
    assert_eq!((done.code, attempts), (0, &1.into()), "{done}");
}

/// A workflow that waits.
const INNER: &str = r#"
graphrun: 1
name: inner
state: { pause: duration, ended: bool? }
input: [pause]
output: [ended]
start: pause
nodes:
  pause: { wait: pause, then: last }
  last: { set: { ended: "true" }, then: end }
"#;

/// Runs it as a nested run.
const OUTER: &str = "
graphrun: 1
name: outer
state: { pause: duration, ended: bool? }
input: [pause]
output: [ended]
start: sub
nodes:
  sub: { use: { workflow: inner.yaml, nested: true, in: { pause: pause }, out: { ended: ended } }, then: end }
";

#[test]
fn a_name_or_due_is_needed_to_resume() {
    let ended = Place::new().run(["resume"]);
    assert_eq!(ended.code, 2, "{ended}");
}

#[test]
fn twelve_items_ask_a_dead_provider_a_few_times() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for call in provider.incoming() {
            let mut call = call.unwrap();
            read_request(&mut call);
            count.fetch_add(1, Ordering::SeqCst);
            let head = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close";
            write!(call, "{head}\r\n\r\n").unwrap();
        }
    });
    let place = Place::new();
    fs::write(place.path("map.yaml"), MAP).unwrap();
    let args = ["execute", "map.yaml", "--run-id", "run-1", "--output", "json"];
    let ended = place.run_with(args, [("OPENAI_BASE_URL", &*url)]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (5, &"failed".into()), "{ended}");
    assert_eq!(report["failures"].as_array().unwrap().len(), 12);
    let asked = asked.load(Ordering::SeqCst);
    assert!((5..=20).contains(&asked), "{asked} requests");
}

/// Three attempts of each of twelve items are 36 requests without a breaker.
const MAP: &str = r#"
graphrun: 1
name: map
state:
  items: { type: "[int]", default: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] }
  words: { type: "[string]", merge: append, default: [] }
output: words
models: { small: openai/gpt-5-mini }
agents: { writer: { model: small } }
start: each
nodes:
  each: { map: { over: items, do: write, width: 12 }, then: end }
  write: { agent: writer, prompt: { text: "A word for {{ item }}" }, writes: words, retry: 3 }
"#;
