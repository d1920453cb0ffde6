//! `graphrun eval`: a workflow over a table, its results, and what continues an evaluation.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::cli::{
    killed::killed,
    program::{Ended, Place, workflow},
    provider::{answer, read_request, reply},
};

const TABLE: &str = r#"
{"name": "one", "input": {"first": 1, "goal": 3}, "expect": {"state": {"total": 3}, "visits": {"add": 3}}}
{"name": "two", "input": {"first": 2, "goal": 3}, "expect": {"state": {"total": 3}}}
{"name": "zero", "input": {"first": 0, "goal": 1}}
"#;

/// Creates a folder with the workflow `grade` and its table.
fn graded() -> Place {
    let place = Place::new();
    fs::copy(workflow("grade"), place.path("grade.yaml")).unwrap();
    fs::write(place.path("table.jsonl"), TABLE).unwrap();
    place
}

fn eval(place: &Place, more: &[&str]) -> Ended {
    let args = ["eval", "grade.yaml", "table.jsonl", "--progress", "none"];
    place.run(args.iter().chain(more))
}

fn runs(place: &Place) -> usize {
    place.run(["runs", "list", "--output", "json"]).json().as_array().unwrap().len()
}

#[test]
fn a_row_may_end_with_a_question_that_has_a_deadline() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: asks
state: { text: string, ok: bool }
input: text
start: approve
nodes:
  approve: { ask: \"Publish {{ text }}?\", timeout: 1h, writes: ok, then: end }
";
    fs::write(place.path("grade.yaml"), workflow).unwrap();
    let rows = "\u{feff}".to_owned()
        + r#"{"name": "asked", "input": {"text": "x"}, "expect": {"status": "paused"}}"#;
    fs::write(place.path("table.jsonl"), rows).unwrap();
    let ended = eval(&place, &["--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let results = &ended.json()["results"];
    assert_eq!((&results[0]["passed"], &results[0]["status"]), (&true.into(), &"paused".into()));
}

#[test]
fn a_score_that_is_no_number_starts_nothing() {
    let place = graded();
    for (score, expected) in
        [("scroe", "there is no `scroe`"), ("score.mean", "`score`, a float, has no `mean`")]
    {
        let ended = eval(&place, &["--score", score]);
        assert!(ended.code == 2 && ended.stderr.contains(expected), "{expected}: {ended}");
    }
    assert!(!place.path("grade.eval.jsonl").exists());
}

#[test]
fn results_are_not_written_through_a_link_that_nobody_named() {
    let place = graded();
    let (results, outside) = (place.path("grade.eval.jsonl"), place.path("outside"));
    symlink(&outside, &results).unwrap();
    let ended = eval(&place, &[]);
    assert!(ended.code == 5 && ended.stderr.contains("symbolic link"), "{ended}");
    assert!(!outside.exists());
    assert_ne!(eval(&place, &["--results", "grade.eval.jsonl"]).code, 5);
    assert!(outside.exists());
}

#[test]
fn only_a_regular_file_has_results() {
    let place = graded();
    nix::unistd::mkfifo(&place.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in ["/dev/full", "/dev/zero", "pipe"] {
        let ended = eval(&place, &["--results", path]);
        assert!(ended.code == 5 && ended.stderr.contains("not a regular file"), "{path}: {ended}");
        let ended = place.run(["eval", "compare", path, path]);
        assert!(ended.code == 2 && ended.stderr.contains("not a regular file"), "{path}: {ended}");
    }
    assert_eq!(runs(&place), 0);
    // A large file of another kind is refused at its first line.
    fs::File::create(place.path("zeros")).unwrap().set_len(1 << 40).unwrap();
    let ended = place.run_with(
        ["eval", "compare", "zeros", "zeros"],
        [("GRAPHRUN_LIMIT_INPUT_BYTES", "1000000")],
    );
    assert!(
        ended.code == 2 && ended.stderr.contains("zeros:1: this is no file of results"),
        "{ended}"
    );
}

#[test]
fn each_row_is_run_and_compared_with_its_expectation() {
    let place = graded();
    let ended = eval(&place, &["--repeat", "2", "--score", "score", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report = ended.json();
    let results = report["results"].as_array().unwrap();
    let of = |row: &str| -> Vec<&Value> { results.iter().filter(|it| it["row"] == row).collect() };
    assert_eq!(results.len(), 6);
    for one in of("one") {
        assert_eq!((&one["passed"], &one["rounds"]), (&true.into(), &3.into()), "{one}");
    }
    for two in of("two") {
        assert_eq!(two["problems"], json!(["`total` differs; expected 3; got 4"]));
        assert_eq!((&two["score"], &two["status"]), (&0.5.into(), &"done".into()));
    }
    for zero in of("zero") {
        let problem = zero["problems"][0].as_str().unwrap();
        assert!(zero["status"] == "failed" && problem.contains("division by zero"), "{zero}");
    }
    let model = &report["models"][0];
    assert_eq!(
        (&model["runs"], &model["passed"], &model["rows"]),
        (&6.into(), &2.into(), &3.into())
    );
    assert_eq!((&model["rows_passed_once"], &model["rows_passed_always"]), (&1.into(), &1.into()));
    let third = 1.0 / 3.0;
    assert_eq!(model["pass_rate"], json!(third));
    assert_eq!(model["pass_rate_deviation"], json!(0.0));
    assert_eq!(model["pass_rate_by_rounds"], json!([0.0, 0.0, third]));
    assert_eq!(model["score_mean"], json!(0.75));

    let shown = eval(&place, &["--repeat", "2", "--score", "score"]);
    for text in ["2/6 passed, 33 % ± 0 %", "3 rows: 1 once, 1 always", "score 0.75 ± 0.29"] {
        assert!(shown.stdout.contains(text), "{text}: {shown}");
    }
    assert!(shown.stdout.contains("two with the models of the workflow: 0 of 2 passed"), "{shown}");
    assert_eq!(eval(&place, &["--repeat", "2", "--pass-min", "34"]).code, 1);
    assert_eq!(eval(&place, &["--repeat", "2", "--pass-min", "33"]).code, 0);
}

#[test]
fn what_has_a_result_is_not_run_again() {
    let place = graded();
    assert_eq!(eval(&place, &[]).code, 0);
    let results = || fs::read_to_string(place.path("grade.eval.jsonl")).unwrap();
    let first = results();
    let count = runs(&place);
    assert_eq!(count, 3);
    assert_eq!((eval(&place, &[]).code, results() == first, runs(&place)), (0, true, 3));

    // More repetitions add their runs only.
    assert_eq!((eval(&place, &["--repeat", "2"]).code, runs(&place)), (0, 6));

    // Another expectation is compared with the run that is there; another input is another run.
    let table = TABLE.replace(r#""total": 3}}"#, r#""total": 4}}"#);
    fs::write(place.path("table.jsonl"), table).unwrap();
    let ended = eval(&place, &["--output", "json"]);
    assert_eq!(ended.json()["models"][0]["passed"], 2, "{ended}");
    assert_eq!(runs(&place), 6);
    fs::write(place.path("table.jsonl"), TABLE.replace("\"first\": 0", "\"first\": 5")).unwrap();
    assert_eq!((eval(&place, &[]).code, runs(&place)), (0, 7));

    // After a crash in the middle of a line, the result is read from the database.
    fs::write(place.path("grade.eval.jsonl"), &first[..first.len() - 9]).unwrap();
    fs::write(place.path("table.jsonl"), TABLE).unwrap();
    let ended = eval(&place, &["--output", "json"]);
    assert_eq!(
        (ended.json()["results"].as_array().unwrap().len(), runs(&place)),
        (3, 7),
        "{ended}"
    );
}

#[test]
fn results_of_another_version_are_not_mixed_with_new_ones() {
    let place = graded();
    assert_eq!(eval(&place, &[]).code, 0);
    let changed = fs::read_to_string(place.path("grade.yaml")).unwrap();
    let changed = changed.replace("total: total + first", "total: total + first * 3");
    fs::write(place.path("grade.yaml"), changed).unwrap();
    let refused = eval(&place, &[]);
    assert_eq!(refused.code, 2, "{refused}");
    // A file without results is of no version.
    let first = fs::read_to_string(place.path("grade.eval.jsonl")).unwrap();
    let head = first.lines().next().unwrap().to_owned() + "\n";
    fs::write(place.path("begun.jsonl"), head).unwrap();
    assert_eq!(eval(&place, &["--results", "begun.jsonl"]).code, 0);
    assert_eq!(fs::read_to_string(place.path("begun.jsonl")).unwrap().lines().count(), 4);
    let help = "compare both with `graphrun eval compare`";
    assert!(
        refused.stderr.contains("which was different") && refused.stderr.contains(help),
        "{refused}"
    );
    assert_eq!(runs(&place), 6);

    assert_eq!(eval(&place, &["--results", "after.jsonl"]).code, 0);
    let compare = ["eval", "compare", "grade.eval.jsonl", "after.jsonl"];
    let text = place.run(compare);
    assert!(text.stdout.contains("one  100 % → 0 %: `add` ran a different number"), "{text}");
    let found = place.run(compare.iter().chain(&["--output", "json"])).json();
    let before = &found["models"][0]["before"];
    let after = &found["models"][0]["after"];
    assert_eq!((&before["passed"], &after["passed"]), (&1.into(), &0.into()));
    assert_eq!((&found["changed"][0]["row"], &found["only_after"]), (&"one".into(), &json!([])));

    let other = place.run(["eval", "compare", "grade.yaml", "after.jsonl"]);
    assert_eq!(other.code, 2, "{other}");
    assert!(other.stderr.contains("grade.yaml:1: this is no file of results"), "{other}");
}

#[test]
fn results_of_another_nested_workflow_are_not_mixed() {
    let place = graded();
    fs::rename(place.path("grade.yaml"), place.path("inner.yaml")).unwrap();
    let outer = "graphrun: 1
name: outer
state: { first: int, goal: int, total: int }
input: [first, goal]
output: total
start: sub
nodes:
  sub:
    use: { workflow: inner.yaml, nested: true, in: { first: first, goal: goal }, out: { total: total } }
    then: end
";
    fs::write(place.path("grade.yaml"), outer).unwrap();
    let table = r#"{"name": "one", "input": {"first": 1, "goal": 3}}"#;
    fs::write(place.path("table.jsonl"), table).unwrap();
    assert_eq!((eval(&place, &[]).code, eval(&place, &[]).code, runs(&place)), (0, 0, 1));
    let inner = fs::read_to_string(place.path("inner.yaml")).unwrap();
    let changed = [
        ("inner.yaml", inner.as_str(), "total: total + first", "total: total + first * 3"),
        ("grade.yaml", outer, "goal: goal }", "goal: goal + 1 }"),
    ];
    for (file, text, old, new) in changed {
        assert!(text.contains(old), "{old}");
        fs::write(place.path(file), text.replace(old, new)).unwrap();
        let refused = eval(&place, &[]);
        assert!(refused.code == 2 && refused.stderr.contains("which was different"), "{refused}");
        fs::write(place.path(file), text).unwrap();
    }
    assert_eq!((eval(&place, &[]).code, runs(&place)), (0, 1));
}

#[test]
fn a_file_of_others_is_not_changed() {
    let place = graded();
    for text in ["my only copy", "a line\nanother", "{\"v\": 1}\nmine\n"] {
        fs::write(place.path("precious.txt"), text).unwrap();
        let refused = eval(&place, &["--results", "precious.txt"]);
        assert!(refused.code == 2 && refused.stderr.contains("no file of results"), "{refused}");
        assert_eq!(fs::read_to_string(place.path("precious.txt")).unwrap(), text);
    }
    assert_eq!(runs(&place), 0);
}

#[test]
fn a_run_is_shown_where_it_is_kept() {
    let place = graded();
    let shown = eval(&place, &["--db", "sqlite:other.db", "--results", "a.jsonl"]);
    let command = shown.stdout.lines().find(|it| it.contains("runs show")).expect("a row failed");
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert_eq!(words[3..], ["--db", "sqlite:other.db"], "{shown}");
    assert_eq!(place.run(words).code, 0);
    let shown = eval(&place, &["--db", "memory:", "--results", "b.jsonl"]);
    assert!(!shown.stdout.contains("runs show"), "{shown}");
}

#[test]
fn models_that_differ_are_not_said_to_be_equal() {
    let place = graded();
    assert_eq!(eval(&place, &["--models", "x/a,x/b", "--results", "a.jsonl"]).code, 0);
    assert_eq!(eval(&place, &["--models", "x/c,x/d", "--results", "b.jsonl"]).code, 0);
    let compared = place.run(["eval", "compare", "a.jsonl", "b.jsonl"]);
    let text = "the two have no model in common, so no row is compared";
    assert!(compared.stdout.contains(text), "{compared}");
    assert!(!compared.stdout.contains("more or less often"), "{compared}");
}

#[test]
fn a_table_is_checked_before_the_first_run() {
    let place = graded();
    let bad = [
        ("nonsense", "GR001", "the line is not a JSON object"),
        ("[]", "GR005", "a row"),
        (r#"{"inputs": {}}"#, "GR003", "calls it `input`"),
        (r#"{"name": "a"}"#, "GR006", "give the row the input of its run"),
        (r#"{"input": 1}"#, "GR005", "a mapping from fields to values"),
        (r#"{"input": {}, "expect": {"status": "dun"}}"#, "GR009", "no run stops as `dun`"),
        (r#"{"input": {}, "expect": {"state": {"totl": 1}}}"#, "GR021", "did you mean `total`"),
        (r#"{"input": {}, "expect": {"never": ["ad"]}}"#, "GR010", "did you mean `add`"),
        (r#"{"input": {}, "expect": {"prompts": {"add": "x"}}}"#, "GR003", "a case of"),
        (
            "{\"name\": \"a\", \"input\": {}}\n{\"name\": \"a\", \"input\": {}}",
            "GR002",
            "the same name",
        ),
        ("\n", "GR006", "the table has no rows"),
    ];
    for (table, code, text) in bad {
        fs::write(place.path("table.jsonl"), table).unwrap();
        let refused = eval(&place, &[]);
        assert_eq!(refused.code, 2, "{table}: {refused}");
        assert!(
            refused.stderr.contains(code) && refused.stderr.contains(text),
            "{table}: {refused}"
        );
    }
    let inputs = "{\"input\": {\"first\": \"x\", \"goal\": 1}}\n{\"input\": {\"gaol\": 1}}";
    fs::write(place.path("table.jsonl"), inputs).unwrap();
    let refused = eval(&place, &[]);
    for text in [
        "table.jsonl:1: `first`",
        "table.jsonl:2: `gaol` is not an input",
        "table.jsonl:2: `goal` is missing",
    ] {
        assert!(refused.stderr.contains(text), "{text}: {refused}");
    }
    assert!(!place.path("grade.eval.jsonl").exists() && !place.path(".graphrun").exists());
}

#[test]
fn a_killed_evaluation_is_continued_by_the_same_command() {
    let place = graded();
    let args = ["eval", "grade.yaml", "table.jsonl", "--repeat", "3", "--jobs", "2"];
    for round in 0..4 {
        killed(&place, &args, &format!("barrier.after_commit=abort@{}", 2 + round * 2));
    }
    let ended = place.run(args.iter().chain(&["--output", "json"]));
    assert_eq!(ended.code, 0, "{ended}");
    let report = ended.json();
    let results = report["results"].as_array().unwrap();
    assert_eq!((results.len(), runs(&place)), (9, 9), "{ended}");
    assert_eq!(report["models"][0]["passed"], 3);
    for one in results.iter().filter(|it| it["row"] == "one") {
        let id = one["run"].as_str().unwrap();
        let shown = place.run(["runs", "show", id, "--output", "json"]).json();
        let nodes: Vec<&str> = shown["trace"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["node"].as_str().unwrap())
            .collect();
        assert_eq!(nodes, ["begin", "add", "add", "add"], "nothing was done twice");
    }
}

/// Starts a provider whose answer is always 42, and that counts the requests to it.
fn provider() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for call in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            answer(&mut call.unwrap());
        }
    });
    (url, count)
}

#[test]
fn models_are_compared_on_the_same_rows() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let rows = [("sum", "6 * 7", "42"), ("capital", "the capital of France", "Paris")];
    let rows = rows.map(|(name, brief, answer)| {
        json!({"name": name, "input": {"brief": brief}, "expect": {"state": {"answer": answer}}})
            .to_string()
            + "\n"
    });
    fs::write(place.path("table.jsonl"), rows.concat()).unwrap();
    let (url, count) = provider();
    let models = "ollama/strong,ollama/weak";
    let args = ["eval", "agent.yaml", "table.jsonl", "--models", models, "--output", "json"];
    let ended = place.run_with(args, [("OLLAMA_HOST", &*url), ("OLLAMA_BASE_URL", &*url)]);
    assert_eq!(ended.code, 0, "{ended}");
    let report = ended.json();
    let models: Vec<_> = report["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["model"], &it["passed"]))
        .collect();
    let one = Value::from(1);
    assert_eq!(models, [(&"ollama/strong".into(), &one), (&"ollama/weak".into(), &one)]);
    assert_eq!(report["models"][0]["usage"]["calls"], 2);
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

#[test]
fn a_run_that_a_dead_provider_stops_has_no_result_yet() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    fs::write(place.path("table.jsonl"), "{\"input\": {\"brief\": \"x\"}}\n").unwrap();
    // A port without a listener.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    // The first wait has a random part, and is longer than this.
    let args = ["eval", "agent.yaml", "table.jsonl", "--model", "ollama/x", "--wait", "1ms"];
    let ended = place.run_with(args, [("OLLAMA_BASE_URL", &*url)]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stderr.contains("`1` has no result yet"), "{ended}");
    assert!(ended.stderr.contains("the same command continues the evaluation"), "{ended}");
    let results = fs::read_to_string(place.path("agent.eval.jsonl")).unwrap();
    assert_eq!(results.lines().count(), 1, "{results}");
}

/// Every further run would end as the first ones: with a dead provider, each takes minutes.
#[test]
fn an_evaluation_without_results_is_given_up() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let row = |number: u8| json!({"input": {"brief": number.to_string()}}).to_string() + "\n";
    fs::write(place.path("table.jsonl"), (0..12).map(row).collect::<String>()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for call in listener.incoming() {
            let mut call = call.unwrap();
            read_request(&mut call);
            call.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let eval = |url: &str| {
        let args = ["eval", "agent.yaml", "table.jsonl", "--model", "ollama/x", "--jobs", "2"];
        place.run_with(args, [("OLLAMA_BASE_URL", url)])
    };
    let given_up = eval(&refusing);
    assert_eq!(given_up.code, 5, "{given_up}");
    let without = given_up.stderr.matches("has no result yet").count();
    assert!((5..=6).contains(&without), "the other run was under way: {given_up}");
    let rest = format!("{} runs not started: the last 5 runs have no result", 12 - without);
    assert!(given_up.stderr.contains(&rest), "{given_up}");
    let (url, count) = provider();
    let continued = eval(&url);
    assert_eq!(continued.code, 0, "{continued}");
    assert!(continued.stdout.contains("12/12 passed"), "{continued}");
    assert_eq!(count.load(Ordering::SeqCst), 12);
}

#[test]
fn an_evaluation_runs_offline_with_a_recording() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let table =
        "{\"input\": {\"brief\": \"6 * 7\"}, \"expect\": {\"state\": {\"answer\": \"42\"}}}\n";
    fs::write(place.path("table.jsonl"), table).unwrap();
    let (url, count) = provider();
    let args = ["eval", "agent.yaml", "table.jsonl", "--model", "ollama/x"];
    let record = args.iter().chain(&["--record", "all.jsonl", "--results", "a.jsonl"]);
    let recorded = place.run_with(record, [("OLLAMA_BASE_URL", &*url)]);
    assert_eq!(recorded.code, 0, "{recorded}");
    let replay =
        ["--replay", "all.jsonl", "--results", "b.jsonl", "--repeat", "3", "--output", "json"];
    let replayed = place.run(args.iter().chain(&replay));
    assert_eq!(replayed.json()["models"][0]["passed"], 3, "{replayed}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// A workflow whose second agent judges the answer of the first one.
const JUDGED: &str = r#"
graphrun: 1
name: judged
types: { Grade: { score: float } }
state: { brief: string, answer: string, grade: Grade }
input: brief
output: [answer, grade]
models: { small: openai/gpt-5-mini }
agents: { writer: { model: small }, judge: { model: small } }
start: write
nodes:
  write: { agent: writer, prompt: { text: "Answer this: {{ brief }}" }, writes: answer, then: judge }
  judge: { agent: judge, prompt: { text: "Grade this: {{ answer }}" }, writes: grade, then: end }
"#;

#[test]
fn an_agent_judges_and_results_have_their_cost_and_time() {
    let place = Place::new();
    fs::write(place.path("judged.yaml"), JUDGED).unwrap();
    fs::write(place.path("table.jsonl"), "{\"input\": {\"brief\": \"x\"}}\n").unwrap();
    let usage = json!({"input_tokens": 4_000, "output_tokens": 500});
    let entry = |node: &str, reply: (&str, Value)| {
        let mut line =
            json!({"v": 1, "node": node, "when": {"contains": [":"]}, "reply": {"usage": usage}});
        line["reply"][reply.0] = reply.1;
        format!("{line}\n")
    };
    let recording =
        entry("write", ("text", json!("42"))) + &entry("judge", ("json", json!({"score": 0.75})));
    fs::write(place.path("all.jsonl"), recording).unwrap();
    let args = ["eval", "judged.yaml", "table.jsonl", "--repeat", "3", "--replay", "all.jsonl"];
    let more = ["--score", "grade.score", "--output", "json"];
    let ended = place.run(args.iter().chain(&more));
    assert_eq!(ended.code, 0, "{ended}");
    let report = ended.json();
    let results = report["results"].as_array().unwrap();
    let model = &report["models"][0];
    assert!(results.iter().all(|it| it["score"] == 0.75), "{report}");
    assert_eq!(model["score_mean"], 0.75);
    // 0.25 and 2 dollars for a million tokens, of two calls in each of three runs.
    for (usage, runs) in [(&results[0]["usage"], 1.0), (&model["usage"], 3.0)] {
        let cost = usage["cost_usd"].as_f64().unwrap();
        assert!((cost - runs * 0.004).abs() < 1e-9, "{report}");
    }
    let mut times: Vec<u64> = results.iter().map(|it| it["ms"].as_u64().unwrap()).collect();
    times.sort_unstable();
    assert_eq!(model["ms_median"], times[1]);
    let shown = place.run(args.iter().chain(&["--score", "grade.score"]));
    assert!(shown.stdout.contains("$0.01") && shown.stdout.contains("a run"), "{shown}");
}

/// Starts a provider that answers when `width` requests wait for it, and returns how many waited at the first answer.
fn waiting_provider(width: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(crate::support::new_loopback()).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (waiting, first) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let result = Arc::clone(&first);
    thread::spawn(move || {
        for call in listener.incoming() {
            let waiting = Arc::clone(&waiting);
            let first = Arc::clone(&first);
            thread::spawn(move || {
                let mut call = call.unwrap();
                read_request(&mut call);
                waiting.fetch_add(1, Ordering::SeqCst);
                let begun = Instant::now();
                while waiting.load(Ordering::SeqCst) < width
                    && begun.elapsed() < Duration::from_secs(30)
                {
                    thread::sleep(Duration::from_millis(5));
                }
                // Time for one more than allowed.
                thread::sleep(Duration::from_millis(300));
                let count = waiting.load(Ordering::SeqCst);
                let _ = first.compare_exchange(0, count, Ordering::SeqCst, Ordering::SeqCst);
                let choice = json!({"message": {"content": "42"}, "finish_reason": "stop"});
                reply(&mut call, &json!({"choices": [choice]}));
            });
        }
    });
    (url, result)
}

#[test]
fn runs_are_parallel_up_to_the_width_and_share_one_gate() {
    let place = Place::new();
    fs::copy(workflow("agent"), place.path("agent.yaml")).unwrap();
    let row = |it: u8| json!({"input": {"brief": it.to_string()}}).to_string() + "\n";
    fs::write(place.path("table.jsonl"), (0..16).map(row).collect::<String>()).unwrap();
    // A new gate sends eight requests at once, also for sixteen runs.
    for (jobs, expected) in [("3", 3), ("16", 8)] {
        let (url, first) = waiting_provider(expected);
        let args = ["eval", "agent.yaml", "table.jsonl", "--model", "ollama/x", "--jobs", jobs];
        let results = format!("{jobs}.jsonl");
        let args = args.iter().copied().chain(["--results", &results]);
        let ended = place.run_with(args, [("OLLAMA_BASE_URL", &*url)]);
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(first.load(Ordering::SeqCst), expected, "--jobs {jobs}");
    }
}
