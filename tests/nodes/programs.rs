//! Agents whose work is done by a program, with fakes that speak the protocols of coding agents.

use std::{fs, path::Path, sync::Arc, time::Instant};

use graphrun::{
    event::{Event, Report, Status},
    models::{Prices, TokenPrice},
    nodes::Services,
    registry,
    sandbox::NetworkAccess,
    workflow::{Approval, HostAccess, HostPermission},
};
use serde_json::{Value, json};

use super::{Ended, folders::Home, run_prepared, services};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodes/programs/fake.py");

/// A workflow of one agent, which is the fake.
struct Coder {
    /// The arguments of the fake.
    arguments: String,
    agent: &'static str,
    node: &'static str,
    /// The time limit of the place.
    time: &'static str,
}

impl Coder {
    fn new(arguments: impl Into<String>) -> Self {
        Self { arguments: arguments.into(), agent: "", node: "", time: "20s" }
    }

    fn text(&self, place: &str, program: &str) -> String {
        let Self { arguments, agent, node, .. } = self;
        format!(
            "graphrun: 1\nname: w\nstate:\n  path: {{ type: string, default: unused }}\n  answer: {{ colour: string, count: int \
             }}\n{place}\nfolders: {{ repo: {{ from: path, git: true }} }}\nagents:\n  coder: {{ command: [python3, {program}, \
             {arguments}], system: {{ text: You mend things. }}, {agent} }}\nstart: it\nnodes:\n  it: {{ agent: coder, folder: \
             repo, prompt: {{ text: Mend it. }}, writes: answer, repair: 0, {node} then: end }}\n"
        )
    }

    async fn in_sandbox(&self, home: &Home) -> Ended {
        let place = format!("sandboxes: {{ box: {{ time: {} }} }}", self.time);
        let text = self.text(&place, "programs/fake.py");
        let text = text.replace("system:", "in: box, scripts: programs/fake.py, system:");
        self.run(home, &text, services()).await
    }

    async fn on_host(&self, home: &Home) -> Ended {
        let place =
            format!("hosts: {{ here: {{ allow: python3, approve: never, time: {} }} }}", self.time);
        let text = self.text(&place, FAKE).replace("system:", "in: here, system:");
        let all = HostPermission { commands: None, secrets: None, approve: Approval::Never };
        let hosts = Arc::new(HostAccess::default().allow("here", all));
        self.run(home, &text, Services { hosts, ..services() }).await
    }

    async fn run(&self, home: &Home, text: &str, services: Services) -> Ended {
        let folders = home.folders().await;
        let folder = Path::new("tests/nodes");
        run_prepared(folder, text, json!({}), services, registry(), |it| it.provide(folders)).await
    }
}

/// Whether a process with this text among its arguments lives.
fn lives(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok()).any(|command| {
        let is_sleep = command.starts_with(b"sleep\0");
        is_sleep && command.split(|it| *it == 0).any(|it| it == argument.as_bytes())
    })
}

fn reports(ended: &Ended) -> impl Iterator<Item = &Report> {
    ended.events.iter().filter_map(|event| match &event.event {
        Event::TaskReported { report, .. } => Some(report),
        _ => None,
    })
}

fn teal() -> Value {
    json!({"colour": "teal", "count": 2})
}

#[tokio::test]
async fn each_protocol_has_an_answer_and_counts() {
    for (protocol, model, cost, tool) in [
        ("claude", "claude/claude-test", Some(0.25), Some("Write")),
        ("codex", "codex/coder", None, Some("file_change")),
        ("gemini", "gemini/gemini-test", None, Some("write_file")),
        ("json", "json/own", Some(0.25), None),
    ] {
        let home = Home::new(&[("a.txt", "a\n")]);
        let agent = Box::leak(format!("protocol: {protocol}").into_boxed_str());
        let coder = Coder { agent, node: "changes: made.txt,", ..Coder::new(protocol) };
        let ended = coder.in_sandbox(&home).await;
        assert_eq!(ended.end.status, Status::Done, "{protocol}: {}", ended.reason());
        assert_eq!(ended.state("answer"), &teal(), "{protocol}");
        let mut calls = reports(&ended).filter_map(|report| match report {
            Report::ModelCall { model, usage, .. } => Some((model.as_str(), usage)),
            _ => None,
        });
        let (asked, usage) = calls.next().unwrap();
        assert!(calls.next().is_none(), "{protocol}");
        assert_eq!((asked, usage.cost_usd), (model, cost), "{protocol}");
        let tokens = usage.tokens;
        let counts = (tokens.input_tokens, tokens.cached_input_tokens, tokens.output_tokens);
        assert_eq!(
            (counts, tokens.calls, tokens.estimated),
            ((150, 50, 7), 1, false),
            "{protocol}"
        );
        let called = reports(&ended).find_map(|report| match report {
            Report::ToolCall { tool, .. } => Some(tool.as_str()),
            _ => None,
        });
        assert_eq!(called, tool, "{protocol}");
        assert_eq!(home.read("made.txt").unwrap(), "You mend things.\n", "{protocol}");
        assert_eq!(home.read("lost.txt"), None, "it is not among `changes`");
    }
}

#[tokio::test]
async fn a_price_under_the_name_of_the_program_applies() {
    let home = Home::new(&[]);
    let coder = Coder { agent: "protocol: codex", ..Coder::new("codex") };
    let text = coder.text("sandboxes: { box: { time: 20s } }", "programs/fake.py");
    let text = text.replace("system:", "in: box, scripts: programs/fake.py, system:");
    let price = TokenPrice { input: 1.0, output: 1.0, ..TokenPrice::default() };
    let prices = Arc::new(Prices::from_iter([("codex/coder".to_owned(), price.into())]));
    let ended = coder.run(&home, &text, Services { prices, ..services() }).await;
    let cost = reports(&ended).find_map(|it| it.usage()?.cost_usd).unwrap();
    assert!(cost > 0.0 && cost < 0.001, "{cost}");
}

/// Checks the kind and the message of a failure, and that the folder is as before.
async fn check_failure(coder: &Coder, kind: &str, message: &str) {
    let home = Home::new(&[("a.txt", "a\n")]);
    let ended = coder.in_sandbox(&home).await;
    assert_eq!(ended.end.status, Status::Failed, "{message}");
    let told = ended.told();
    assert!(told.contains(&format!("\"kind\":\"{kind}\"")), "{kind}: {told}");
    assert!(ended.reason().contains(message), "{message}: {}", ended.reason());
    assert_eq!(home.read("a.txt").unwrap(), "a\n");
}

#[tokio::test]
async fn a_program_that_hangs_is_stopped_with_its_processes() {
    let coder = Coder { time: "2s", agent: "protocol: claude", ..Coder::new("hang, 86401.5") };
    let message = "`python3` was stopped after 2s, the time limit of its place";
    check_failure(&coder, "timeout", message).await;
    assert!(!lives("86401.5"));
}

#[tokio::test]
async fn a_program_that_floods_is_stopped() {
    check_failure(&Coder::new("flood"), "command", "it wrote too much output, more than 64 MiB")
        .await;
    let home = Home::new(&[]);
    let ended = Coder::new("flood").on_host(&home).await;
    assert!(
        ended.reason().contains("it wrote too much output, more than 64 MiB"),
        "{}",
        ended.reason()
    );
}

#[tokio::test]
async fn a_program_that_prints_half_a_value_or_a_wrong_one_fails() {
    check_failure(&Coder::new("half"), "invalid_output", "does not fit the request").await;
    check_failure(&Coder::new("wrong"), "invalid_output", "7 is not of type \"string\"").await;
    for (protocol, missing) in [
        (
            "protocol: claude",
            "no whole `result` event; its options must include `-p --output-format",
        ),
        (
            "protocol: codex",
            "no whole `turn.completed` event; its arguments must be those of `codex exec",
        ),
        ("protocol: gemini", "no whole `result` event; its options must include `--output-format"),
    ] {
        let coder = Coder { agent: protocol, ..Coder::new("half") };
        check_failure(&coder, "invalid_output", missing).await;
    }
}

#[tokio::test]
async fn a_program_that_fails_shows_its_code_and_last_words() {
    let message = "`python3` ended with 3: no such branch";
    check_failure(&Coder::new("fail"), "command", message).await;
}

#[tokio::test]
async fn nothing_outside_of_the_folder_is_written() {
    let home = Home::new(&[("a.txt", "a\n")]);
    let outside = home.0.path().join("escaped.txt");
    let paths =
        ["../escaped.txt", "/tmp/graphrun-escaped.txt", outside.to_str().unwrap(), "in.txt"];
    let coder =
        Coder { node: "changes: in.txt,", ..Coder::new(format!("outside, {}", paths.join(", "))) };
    let ended = coder.in_sandbox(&home).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(home.read("in.txt").unwrap(), "written\n");
    for path in [outside.as_path(), Path::new("/tmp/graphrun-escaped.txt")] {
        assert!(!path.exists(), "{}", path.display());
    }
    assert_eq!(home.read("../escaped.txt"), None);
}

#[tokio::test]
async fn a_stated_usage_that_cannot_be_right_is_estimated() {
    for (usage, expected, ignored) in [
        (
            r#"{"input_tokens": 7, "output_tokens": 2, "cost_usd": -100}"#,
            Some((7, 2)),
            "`cost_usd` -100",
        ),
        (
            r#"{"input_tokens": "many", "output_tokens": -5}"#,
            None,
            "`input_tokens` \"many\", `output_tokens` -5",
        ),
    ] {
        let home = Home::new(&[]);
        let coder = Coder::new(format!("states, {}", serde_json::to_string(usage).unwrap()));
        let ended = coder.in_sandbox(&home).await;
        assert_eq!(ended.state("answer"), &teal(), "{}", ended.reason());
        let used = reports(&ended).find_map(Report::usage).unwrap();
        assert_eq!((used.tokens.estimated, used.cost_usd), (expected.is_none(), None), "{usage}");
        match expected {
            Some(counts) => {
                assert_eq!((used.tokens.input_tokens, used.tokens.output_tokens), counts);
            }
            None => assert!(used.tokens.input_tokens > 0 && used.tokens.output_tokens > 0),
        }
        let warning = format!("`python3` states usage that cannot be right; ignored: {ignored}");
        assert_eq!(ended.warnings(), [warning]);
    }
}

#[tokio::test]
async fn changes_that_are_too_large_are_a_failure() {
    let message =
        "`python3` was stopped: the files in its `changes` are larger than 8 MiB together";
    let coder = Coder { node: "changes: made.log,", ..Coder::new("large") };
    check_failure(&coder, "command", message).await;
}

#[tokio::test]
async fn changed_files_with_unacceptable_names_fail_the_node() {
    let message = "2 changed files of `python3` cannot be written back, because their names are not acceptable: \"src/-dash\" \
                   (`-dash` may not start with `-`, `~` or a space, nor end with a dot or a space), \"src/a:b\" (the character \
                   ':' is not allowed in a path)";
    let coder = Coder { node: "changes: src,", ..Coder::new("names") };
    check_failure(&coder, "command", message).await;
}

#[tokio::test]
async fn deep_files_and_names_of_other_languages_come_back() {
    let deep = "src/main/java/com/acme/app/service/impl/Größe.java";
    let home = Home::new(&[(deep, "first\n")]);
    let coder = Coder { node: "changes: src,", ..Coder::new("deep") };
    let ended = coder.in_sandbox(&home).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    // Two names of one file.
    for path in [deep, "src/plain.md", "src/second.md"] {
        assert_eq!(home.read(path).unwrap(), "written\n", "{path}");
    }
}

/// The files of a repository before a refactoring.
const OLD: [(&str, &str); 4] = [
    ("src/old.py", "1\n"),
    ("src/gone/a.py", "2\n"),
    ("src/gone/b.py", "3\n"),
    ("kept.txt", "4\n"),
];

#[tokio::test]
async fn a_refactoring_removes_and_renames_files_of_the_folder() {
    let home = Home::new(&OLD);
    let coder = Coder { node: "changes: src,", ..Coder::new("refactor") };
    let ended = coder.in_sandbox(&home).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!((home.read("src/new.py").as_deref(), home.read("src/old.py")), (Some("1\n"), None));
    assert!(!home.0.path().join("run/repo/src/gone").exists(), "the folder is empty and stays");
    assert_eq!(home.read("kept.txt").unwrap(), "4\n", "it is not among `changes`");
    let removed = "`python3` removed `src/gone/a.py`, `src/gone/b.py`, `src/old.py`";
    let is_note =
        |report: &Report| matches!(report, Report::Note { message } if message == removed);
    assert!(reports(&ended).any(is_note), "{}", ended.told());
}

#[tokio::test]
async fn a_program_that_does_not_succeed_removes_nothing() {
    for (how, kind) in [("fails", "command"), ("hangs", "timeout")] {
        let home = Home::new(&OLD);
        let arguments = format!("refactor, {how}");
        let coder = Coder { node: "changes: src,", time: "2s", ..Coder::new(arguments) };
        let ended = coder.in_sandbox(&home).await;
        assert!(ended.told().contains(&format!("\"kind\":\"{kind}\"")), "{}", ended.told());
        for (path, content) in OLD {
            assert_eq!(home.read(path).unwrap(), content, "{how} {path}");
        }
    }
}

#[tokio::test]
async fn a_program_leaves_no_process_behind() {
    let home = Home::new(&[]);
    let ended = Coder::new("fork, 86403.5").in_sandbox(&home).await;
    assert_eq!(ended.state("answer"), &teal(), "{}", ended.reason());
    assert!(!lives("86403.5"));
    let home = Home::new(&[]);
    let ended = Coder::new("fork, 86404.5").on_host(&home).await;
    assert_eq!(ended.state("answer"), &teal(), "{}", ended.reason());
    assert!(!lives("86404.5"));
}

#[tokio::test]
async fn the_timeout_of_the_node_ends_a_program_on_a_host() {
    let home = Home::new(&[]);
    let began = Instant::now();
    let coder = Coder { node: "timeout: 2s,", time: "1s", ..Coder::new("hang, 86405.5") };
    let ended = coder.on_host(&home).await;
    assert!(ended.told().contains("\"kind\":\"timeout\""), "{}", ended.told());
    assert!(began.elapsed().as_secs_f64() > 1.9, "the time of the host came first");
    assert!(!lives("86405.5"));
}

#[tokio::test]
async fn a_program_on_a_host_works_in_the_folder_of_the_node() {
    let home = Home::new(&[("a.txt", "a\n")]);
    let coder = Coder { agent: "protocol: codex", ..Coder::new("codex") };
    let ended = coder.on_host(&home).await;
    assert_eq!(ended.state("answer"), &teal(), "{}", ended.reason());
    assert_eq!(home.read("made.txt").unwrap(), "You mend things.\n");
    let note = reports(&ended).find_map(|report| match report {
        Report::Note { message } => Some(message.clone()),
        _ => None,
    });
    let note = note.unwrap();
    assert!(note.starts_with("runs on the host `here` in `"), "{note}");
}

#[tokio::test]
async fn a_program_mends_an_answer_that_does_not_fit() {
    let home = Home::new(&[]);
    let coder = Coder { node: "changes: runs.txt,", ..Coder::new("mend") };
    let place = "sandboxes: { box: { time: 20s } }";
    let text = coder.text(place, "programs/fake.py");
    let text = text.replace("system:", "in: box, scripts: programs/fake.py, system:");
    let ended = coder.run(&home, &text.replace("repair: 0", "repair: 1"), services()).await;
    assert_eq!(ended.state("answer"), &teal(), "{}", ended.reason());
    assert_eq!(home.read("runs.txt").unwrap(), "run\nrun\n", "the changes of both runs are kept");
}

#[tokio::test]
async fn a_missing_program_is_named_with_a_remedy() {
    let home = Home::new(&[]);
    let coder = Coder::new("json");
    let text = |place: &str, within: &str| {
        let text = coder.text(place, "x").replace("[python3,", "[no-such-coder,");
        text.replace("system:", &format!("in: {within}, system:"))
    };
    let in_box = text("sandboxes: { box: { time: 20s } }", "box");
    let ended = coder.run(&home, &in_box, services()).await;
    let expected = "there is no program `no-such-coder` inside the sandbox, which has those below /usr; install it there";
    assert!(ended.reason().contains(expected), "{}", ended.reason());
    let on_host = text("hosts: { here: { allow: no-such-coder, approve: never } }", "here");
    let all = HostPermission { commands: None, secrets: None, approve: Approval::Never };
    let hosts = Arc::new(HostAccess::default().allow("here", all));
    let home = Home::new(&[]);
    let ended = coder.run(&home, &on_host, Services { hosts, ..services() }).await;
    let expected = "there is no program `no-such-coder` in `/usr/local/bin:/usr/bin:/bin`, the absolute folders of `PATH`; install it there";
    assert!(ended.reason().contains(expected), "{}", ended.reason());
}

#[tokio::test]
async fn a_program_that_writes_its_secret_into_a_file_fails() {
    // The name of the last file is not acceptable.
    for (arguments, place) in [
        ("leaks, CODER_KEY", "`made.txt`"),
        ("leaks, CODER_KEY, \"src/{}.txt\"", "the name of a file"),
        ("leaks, CODER_KEY, \"src/{}:b\"", "the name of a file"),
    ] {
        let home = Home::new(&[("made.txt", "a\n")]);
        let coder = Coder {
            agent: "secrets: CODER_KEY,",
            node: "changes: [made.txt, src],",
            ..Coder::new(arguments)
        };
        let boxes = "sandboxes: { box: { time: 20s, network: [api.example.com] } }";
        let text = coder.text(boxes, "programs/fake.py");
        let text = text.replace("system:", "in: box, scripts: programs/fake.py, system:");
        let host = "api.example.com".parse().unwrap();
        let network = Arc::new(NetworkAccess::default().allow(host));
        let secret = "a-value-of-some-length";
        let hosts = Arc::new(HostAccess::default().with_variable("CODER_KEY", secret));
        let ended = coder.run(&home, &text, Services { hosts, network, ..services() }).await;
        let expected = format!(
            "`python3` wrote the secret `CODER_KEY` into {place}; no file was written back"
        );
        assert!(ended.reason().contains(&expected), "{}", ended.reason());
        assert!(!ended.reason().contains(secret), "{}", ended.reason());
        assert_eq!(home.read("made.txt").unwrap(), "a\n");
        assert!(!home.0.path().join("run/repo/src").exists(), "{arguments}");
    }
}

/// A program has no model that could summarise, and takes the conversation as it is.
#[tokio::test]
async fn a_program_beside_a_model_does_not_compact_its_history() {
    let home = Home::new(&[("a.txt", "a\n")]);
    let coder = Coder::new("json");
    let text = coder.text("sandboxes: { box: { time: 20s } }", "programs/fake.py");
    let text = text.replace("system:", "in: box, scripts: programs/fake.py, system:");
    let turn = |number| {
        let text = "x".repeat(2_000);
        format!(
            "{{ id: u{number}, role: user, content: {text} }}, {{ id: a{number}, role: assistant, content: {text} }}"
        )
    };
    let chat = [1, 2, 3].map(turn).join(", ");
    let state = format!(
        "state:\n  kind: {{ type: bug | question, default: bug }}\n  chat: {{ type: [message], merge: messages, default: [{chat}] }}\n"
    );
    let text = text.replace("state:\n", &state);
    let text = text.replace("agents:\n", "models: { m: [lab/a] }\nagents:\n  chat: { model: m }\n");
    let node = "agent: { match: kind, to: { bug: coder, question: chat } }, history: { field: chat, compact: { to: 100, over: 200, \
                keep: 1 } }";
    let text = text.replace("agent: coder", node);
    let ended = coder.run(&home, &text, services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(ended.state("answer"), &teal());
}
