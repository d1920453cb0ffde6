//! `graphrun.toml`, the environment, and the prices of models.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use crate::cli::{
    program::{Ended, Place, Running, workflow},
    provider::{answer, read_request, reply},
};

const PRICES: &str = "
[prices.\"openai/tiny\"]
input_per_million = 1_000_000
output_per_million = 2_000_000.0
cached_input_per_million = 0

[context]
\"openai/tiny\" = 1_000
";

/// Two consecutive calls of one model.
const TWICE: &str = r#"
graphrun: 1
name: twice
state: { brief: string, first: string, second: string }
input: brief
output: [first, second]
models: { small: openai/tiny }
agents: { writer: { model: small } }
limits: { usd: 10 }
start: one
nodes:
  one: { agent: writer, prompt: { text: "One: {{ brief }}" }, writes: first, then: two }
  two: { agent: writer, prompt: { text: "Two: {{ first }}" }, writes: second, then: end }
"#;

/// Creates a folder with the workflow, a recording of its replies, and the configuration.
fn place(config: &str) -> Place {
    let place = Place::new();
    let entry = |node: &str| {
        json!({"v": 1, "node": node, "when": {"contains": [":"]},
            "reply": {"text": "x", "usage": {"input_tokens": 3, "output_tokens": 4}}})
    };
    fs::write(place.path("twice.yaml"), TWICE).unwrap();
    fs::write(place.path("twice.jsonl"), format!("{}\n{}\n", entry("one"), entry("two"))).unwrap();
    fs::write(place.path("graphrun.toml"), config).unwrap();
    place
}

/// Trusts the folder, so that its prices count for a limit of a flag.
fn trusted(place: Place) -> Place {
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    place
}

fn replayed(place: &Place, more: &[&str]) -> Ended {
    let args = ["execute", "twice.yaml", "-i", "brief=x", "--replay", "twice.jsonl"];
    place.run([&args[..], more, &["--output", "json"]].concat())
}

#[test]
fn a_request_beyond_the_configured_context_is_not_made() {
    let config = PRICES.replace("1_000\n", "1\n");
    let ended = replayed(&place(&config), &[]);
    let reason = ended.json()["reason"].clone();
    let expected = "it has at least 1 tokens, and the context of openai/tiny has 1";
    assert!(reason.as_str().is_some_and(|it| it.ends_with(expected)), "{ended}");
}

#[test]
fn the_cost_of_a_run_is_unknown_without_prices() {
    let ended = replayed(&trusted(place(PRICES)), &["--max-cost", "100"]);
    let usage = &ended.json()["usage"];
    assert_eq!((ended.code, &usage["cost_usd"]), (0, &json!(22.0)), "{ended}");
    assert!(ended.stderr.contains("$22.00"), "{ended}");
    let ended = replayed(&place(""), &[]);
    assert_eq!((ended.code, &ended.json()["usage"]["cost_usd"]), (0, &Value::Null));
    assert!(ended.stderr.contains("cost ?"), "{ended}");
}

#[test]
fn a_list_price_is_known_without_configuration() {
    let place = place("");
    fs::write(place.path("twice.yaml"), TWICE.replace("openai/tiny", "openai/gpt-5-mini")).unwrap();
    // 0.25 and 2.00 US dollars for a million tokens.
    let ended = replayed(&place, &["--max-cost", "1"]);
    let cost = ended.json()["usage"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 2.0 * (3.0 * 0.25 + 4.0 * 2.0) / 1e6).abs() < 1e-12, "{ended}");
}

#[test]
fn a_limit_of_cost_stops_a_run_wherever_it_is_written() {
    let of_the_workflow = replayed(&place(PRICES), &[]);
    let of_the_file = replayed(&place(&format!("limits = {{ usd = 9 }}\n{PRICES}")), &[]);
    for (ended, usd) in [(of_the_workflow, "10.00"), (of_the_file, "9.00")] {
        let report = ended.json();
        assert_eq!((ended.code, &report["status"]), (4, &json!("limit")), "{ended}");
        let reason = format!("the limit of {usd} USD is reached: 11.00 are used");
        assert_eq!(report["reason"], json!(reason));
    }
    let place = trusted(place(PRICES));
    let name = replayed(&place, &["--max-cost", "5"]).json()["name"].as_str().unwrap().to_owned();
    let ended = place.run(["resume", &name, "--max-cost", "50", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["usage"]["cost_usd"]), (0, &json!(22.0)), "{ended}");
}

#[test]
fn a_limit_of_calls_stops_a_run_and_a_higher_one_resumes_it() {
    let place = place("[limits]\ncalls = 9");
    fs::write(place.path("twice.yaml"), TWICE.replace("usd: 10", "calls: 1")).unwrap();
    let ended = replayed(&place, &["--max-calls", "1"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (4, &json!("limit")), "{ended}");
    assert_eq!(report["reason"], "the limit of 1 model call is reached: the run has made 1");
    let shown = place.run(["runs", "show", report["name"].as_str().unwrap()]);
    assert!(shown.stdout.contains("--max-steps, --max-calls, --max-tokens,"), "{shown}");
    let name = report["name"].as_str().unwrap();
    let ended = place.run(["resume", name, "--max-calls", "2", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["usage"]["calls"]), (0, &json!(2)), "{ended}");
    let ended = replayed(&place, &["--max-calls", "0"]);
    assert!(ended.code == 2 && ended.stderr.contains("--max-calls"), "{ended}");

    let ended = replayed(&place, &[]);
    assert!(ended.stderr.contains("`limits.calls` raises the limit of the workflow"), "{ended}");
    // A plan has the settings of the file.
    let plan = place.run(["plan", "twice.yaml"]).stdout;
    for expected in [
        "model calls  36  mostly `one`  limit: 9",
        "the worst case exceeds `limits.calls`: after 9 model calls a run stops",
    ] {
        assert!(plan.contains(expected), "{plan}");
    }
}

#[test]
fn an_unenforceable_cost_limit_is_refused_before_the_run() {
    let place = place("db = \"sqlite:runs.db\"\n");
    let run = |args: &[&str]| {
        let args = [&["execute", "twice.yaml", "-i", "brief=x"], args].concat();
        place.run_with(args, [("OPENAI_API_KEY", "none")])
    };
    insta::assert_snapshot!(run(&[]), @r#"
    exit 5
    stdout:
    stderr:
    error: a cost limit cannot be enforced, because prices are unknown; nothing was started
      - the run: 10.00 USD, with `openai/tiny`
    help: write `[prices."openai/tiny"]` with `input_per_million` and `output_per_million` in `graphrun.toml`, or limit the run with `--max-tokens` and remove `usd` from its limits
    "#);
    let other = run(&["--model", "ollama/own", "--max-cost", "1"]);
    assert!(other.code == 5 && other.stderr.contains("[prices.\"ollama/own\"]"), "{other}");
    assert!(!place.path("runs.db").exists(), "nothing was started");
}

#[test]
fn all_cost_limits_are_refused_together() {
    let place = place("db = \"sqlite:runs.db\"\n");
    let inner = TWICE.replace("name: twice", "name: inner").replace("usd: 10", "usd: 2");
    fs::write(place.path("inner.yaml"), inner).unwrap();
    let outer = TWICE.replace("writes: second, then: end }", "writes: second, then: call }")
        + "  call: { use: { workflow: inner.yaml, in: { brief: second }, out: { first: second } }, then: end }\n";
    fs::write(place.path("twice.yaml"), outer).unwrap();
    let args = ["execute", "twice.yaml", "-i", "brief=x"];
    insta::assert_snapshot!(place.run_with(args, [("OPENAI_API_KEY", "none")]), @r#"
    exit 5
    stdout:
    stderr:
    error: a cost limit cannot be enforced, because prices are unknown; nothing was started
      - the run: 10.00 USD, with `openai/tiny`
      - a run of `call`: 2.00 USD, with `openai/tiny`
    help: write `[prices."openai/tiny"]` with `input_per_million` and `output_per_million` in `graphrun.toml`, or limit the run with `--max-tokens` and remove `usd` from its limits
    "#);
}

#[test]
fn cached_tokens_have_a_separate_price() {
    let place = place(&PRICES.replace("cached_input_per_million = 0", ""));
    let entry = json!({"v": 1, "node": "write", "when": {"contains": ["x"]},
        "reply": {"text": "42", "usage":
            {"input_tokens": 3, "cached_input_tokens": 2, "output_tokens": 4}}});
    fs::write(place.path("run.jsonl"), format!("{entry}\n")).unwrap();
    let cost = |place: &Place| {
        let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "run.jsonl"];
        place.run([&args[..], &["--model", "openai/tiny", "--output", "json"]].concat()).json()["usage"]["cost_usd"].clone()
    };
    assert_eq!(cost(&place), json!(11.0));
    fs::write(place.path("graphrun.toml"), PRICES).unwrap();
    assert_eq!(cost(&place), json!(9.0));
}

#[test]
fn an_error_names_the_layer_that_a_value_came_from() {
    let place = place("db = \"mysql://x\"\n");
    let error = |place: &Place, variables| place.run_with(["runs", "list"], variables).stderr;
    let none: [(&str, &str); 0] = [];
    let text = place.run_with(["runs", "list"], none).stderr;
    assert!(text.starts_with("error: graphrun.toml:1:6 is `mysql://x`, which is not"), "{text}");
    let text = error(&place, [("GRAPHRUN_DB", "nowhere")]);
    assert!(text.starts_with("error: GRAPHRUN_DB is `nowhere`, which is not"), "{text}");
    let text = place.run(["runs", "list", "--db", "flag"]).stderr;
    assert!(text.starts_with("error: --db is `flag`, which is not the URL"), "{text}");
}

#[test]
fn a_file_with_mistakes_is_exit_5_and_starts_nothing() {
    let place = place("modle = \"x\"\n");
    let ended = replayed(&place, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""));
    let hint = "graphrun.toml:1:1: there is no setting `modle`; did you mean `model`?";
    assert!(ended.stderr.contains(hint), "{ended}");
    assert!(!place.path(".graphrun").exists());
}

#[test]
fn models_are_asked_at_the_address_of_a_trusted_file() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = provider.local_addr().unwrap();
    let place = place(&format!("base_url = \"http://{address}/v1\"\nmodel = \"own\"\n{PRICES}"));
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--output", "json"];
    let run = Running::of(place.command(args));
    let (mut call, _) = provider.accept().unwrap();
    answer(&mut call);
    let (code, report) = run.end();
    assert_eq!((code, &report["state"]["answer"]), (Some(0), &json!("42")));
    assert_eq!(report["usage"]["cost_usd"], Value::Null, "another model has another price");
}

#[test]
fn the_doctor_names_settings_and_their_layers() {
    let place = place(&format!("model = \"ollama/q\"\n{PRICES}"));
    let ended = place.run_with(["doctor"], [("GRAPHRUN_DB", "memory:")]);
    let settings = "`graphrun.toml`; db = memory: (GRAPHRUN_DB); model = ollama/q \
                    (graphrun.toml:1:9); prices of 1 model; the context of 1 model";
    assert!(ended.stdout.contains(settings), "{ended}");
}

#[test]
fn a_plan_compares_tokens_and_cost_with_the_limits() {
    let place = place(PRICES);
    insta::assert_snapshot!(place.run(["plan", "twice.yaml"]), @r"
    exit 0
    stdout:
    NODE  RUNS  ATTEMPTS  MODEL CALLS  WHY
    one   1     6         18           the start leads to it once
    two   1     6         18           after `one` (1)

    super-steps  2             mostly `one`  limit: 100
    model calls  36            mostly `one`
    tokens       36.0k tokens  mostly `one`
    cost         $72000.00     mostly `one`  limit: $10.00
    time         ?

    openai/tiny  1.0k tokens, $1000000.00 / $2000000.00 per million (graphrun.toml:8:1; graphrun.toml:2:9)
    not known: time: `one`, `two` without `timeout`
    warning: the worst case exceeds `limits.usd`: after $10.00 a run stops, and can be resumed with a higher limit
    stderr:
    ");
}

#[test]
fn reasoning_tokens_have_a_separate_price() {
    let place = place(PRICES);
    let entry = json!({"v": 1, "node": "write", "when": {"contains": ["x"]},
        "reply": {"text": "42", "usage":
            {"input_tokens": 3, "output_tokens": 4, "reasoning_output_tokens": 1}}});
    fs::write(place.path("run.jsonl"), format!("{entry}\n")).unwrap();
    let cost = || {
        let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "run.jsonl"];
        place.run([&args[..], &["--model", "openai/tiny", "--output", "json"]].concat()).json()["usage"]["cost_usd"].clone()
    };
    assert_eq!(cost(), json!(11.0));
    let price = "reasoning_output_per_million = 5_000_000";
    let prices = PRICES.replace("cached_input_per_million = 0", price);
    fs::write(place.path("graphrun.toml"), prices).unwrap();
    assert_eq!(cost(), json!(14.0));
}

#[test]
fn a_stated_cost_is_before_the_price_and_all_counts_are_shown() {
    let provider = TcpListener::bind(crate::support::new_loopback()).unwrap();
    let address = provider.local_addr().unwrap();
    let place =
        trusted(place(&format!("base_url = \"http://{address}/v1\"\nmodel = \"tiny\"\n{PRICES}")));
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--output", "json"];
    let counts = json!({
        "prompt_tokens": 9, "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    });
    for (stated, expected) in [(None, 15.0), (Some(0.5), 0.5)] {
        let mut usage = counts.clone();
        if let Some(cost) = stated {
            usage["cost"] = json!(cost);
        }
        let run = Running::of(place.command(args));
        let (mut call, _) = provider.accept().unwrap();
        read_request(&mut call);
        let choice = json!({"message": {"content": "42"}, "finish_reason": "stop"});
        reply(&mut call, &json!({"choices": [choice], "usage": usage}));
        let (code, report) = run.end();
        let usage = json!({
            "input_tokens": 9, "cached_input_tokens": 2, "cache_write_input_tokens": 3,
            "output_tokens": 4, "reasoning_output_tokens": 1, "calls": 1, "cost_usd": expected,
        });
        assert_eq!((code, &report["usage"]), (Some(0), &usage));
    }
}
