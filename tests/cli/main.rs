//! What the command line adds to the library: messages, streams, exit codes, signals.

mod cache;
mod cases;
mod changed;
mod config;
mod damaged;
mod events;
mod failure;
mod formats;
mod graph;
mod history;
mod init;
#[cfg(feature = "failpoints")]
mod killed;
mod migrate;
mod people;
mod plan;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
mod prune;
mod retry;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod server;
mod signals;
mod used;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::program::{Place, Running, keys, workflow};

#[test]
fn help_and_the_check_of_fifty_nodes_say_nothing_on_stderr() {
    let place = Place::new();
    fs::write(place.path("fifty.yaml"), chain(50)).unwrap();
    for args in [&["--help"][..], &["validate", "fifty.yaml"]] {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended}");
    }
}

#[test]
fn wrong_usage_is_said_on_stderr_with_exit_2() {
    let place = Place::new();
    for args in [&["fly"][..], &["execute"], &["execute", "w.yaml", "-i", "brief"], &["resume"]] {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ended.stderr.starts_with("error: "), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_missing_workflow_is_exit_2() {
    let ended = Place::new().run(["execute", "nowhere.yaml"]);
    insta::assert_snapshot!(ended, @r"
    exit 2
    stdout:
    stderr:
    error: cannot read `nowhere.yaml`
      because: No such file or directory (os error 2)
    help: a relative path starts at the current folder; check both
    ");
}

#[test]
fn input_that_does_not_fit_is_exit_2_and_starts_nothing() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("two_steps"), "-i", "brif=x"]);
    insta::assert_snapshot!(ended, @r"
    exit 2
    stdout:
    stderr:
    error: the input does not fit the workflow; nothing was started
      - `brif` is no input of the workflow; did you mean `brief`?
      - `brief` is missing (it is a text (string))
    help: give a field with `-i KEY=VALUE` or `-i KEY=@FILE`, several with `-i @FILE.json`
    ");
    assert!(place.is_empty());
}

#[test]
fn a_private_field_is_not_in_the_result() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("private"), "-i", "brief=x", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["state"], json!({"brief": "x", "answer": "x!"}));
}

#[test]
fn a_missing_key_is_exit_5_and_starts_nothing() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("agent"), "-i", "brief=x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""));
    for part in ["`write`", "OPENAI_API_KEY", "help: "] {
        assert!(ended.stderr.contains(part), "{part} is missing in: {}", ended.stderr);
    }
    assert!(place.is_empty());
}

#[test]
fn a_recording_that_is_none_is_exit_2_and_starts_nothing() {
    let place = Place::new();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "nowhere.jsonl"];
    let ended = place.run(args);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    assert!(ended.stderr.contains("nowhere.jsonl"), "{ended}");
    assert!(place.is_empty());
}

#[test]
fn a_recording_answers_without_a_key() {
    let place = Place::new();
    let entry = json!({"v": 1, "node": "write", "when": {"contains": ["Answer this: x"]},
        "reply": {"text": "42", "usage": {"input_tokens": 3, "output_tokens": 4}}});
    fs::write(place.path("run.jsonl"), format!("{entry}\n")).unwrap();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "run.jsonl"];
    let ended = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"answer": "42"})), "{ended}");
    let usage = json!({"input_tokens": 3, "output_tokens": 4, "calls": 1, "cost_usd": null});
    assert_eq!(ended.json()["usage"], usage);
}

#[test]
fn an_unknown_run_is_exit_6_with_and_without_a_database() {
    let place = Place::new();
    insta::assert_snapshot!(place.run(["resume", "calm-otter"]), @r"
    exit 6
    stdout:
    stderr:
    error: there is no run `calm-otter`: there is no database `.graphrun/runs.db`
    help: run this where the run was started, or name its database with `--db`
    ");
    assert!(place.is_empty());
    place.execute("two_steps");
    insta::assert_snapshot!(place.run(["runs", "show", "calm-otterrr"]), @r"
    exit 6
    stdout:
    stderr:
    error: there is no run `calm-otterrr`
    help: `graphrun runs list` shows what there is
    ");
}

#[test]
fn a_database_that_is_none_is_refused_with_the_layer_it_was_named_by() {
    let place = Place::new();
    let by_flag = place.run(["runs", "list", "--db", "mysql://host/db"]);
    let by_variable = place.run_with(["runs", "list"], [("GRAPHRUN_DB", "runs.db")]);
    assert!(by_flag.stderr.starts_with("error: --db is `mysql://host/db`"), "{by_flag}");
    assert!(by_variable.stderr.starts_with("error: GRAPHRUN_DB is `runs.db`"), "{by_variable}");
    assert_eq!((by_flag.code, by_variable.code), (2, 2));
}

#[test]
fn the_result_is_the_object_of_the_contract_and_nothing_else_is_on_stdout() {
    let place = Place::new();
    let ended =
        place.run(["execute", &workflow("two_steps"), "-i", "brief=Hello", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let object = ended.json();
    let expected = [
        "run",
        "name",
        "workflow",
        "status",
        "reason",
        "steps",
        "state",
        "usage",
        "trace",
        "questions",
        "artifacts",
        "resume",
    ];
    assert_eq!(keys(&object), expected);
    assert_eq!(keys(&object["usage"]), ["input_tokens", "output_tokens", "calls", "cost_usd"]);
    assert_eq!(keys(&object["trace"][0]), ["step", "node", "attempt", "outcome", "ms"]);
    assert_eq!(object["status"], "done");
    assert_eq!(object["state"], json!({"answer": "Hello"}));
    let name = object["name"].as_str().unwrap();
    assert_eq!(object["resume"], format!("graphrun resume {name}"));
    // Who reads the log can resume the run by its first line.
    let first = ended.stderr.lines().next().unwrap();
    for part in [name, object["run"].as_str().unwrap(), &format!("graphrun resume {name}")] {
        assert!(first.contains(part), "{part} is missing in: {first}");
    }
    let shown = place.run(["runs", "show", name, "--output", "json"]);
    assert_eq!(shown.json(), object);
}

#[test]
fn a_stream_has_every_event_and_ends_with_the_end_of_the_run() {
    let place = Place::new();
    let ended =
        place.run(["execute", &workflow("two_steps"), "-i", "brief=x", "--output", "jsonl"]);
    let events: Vec<Value> =
        ended.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    for (event, seq) in events.iter().zip(1u64..) {
        assert_eq!((&event["v"], &event["seq"]), (&json!(1), &json!(seq)));
    }
    assert_eq!(events.first().unwrap()["type"], "run.started");
    assert_eq!(events.last().unwrap()["type"], "run.finished");
    let run = events[0]["run"].as_str().unwrap();
    let saved = place.run(["runs", "events", run, "--output", "jsonl"]);
    assert_eq!(saved.stdout, ended.stdout);
}

#[test]
fn a_question_without_a_terminal_is_exit_3_with_the_command_that_answers_it() {
    let place = Place::new();
    let asked = place.run(["execute", &workflow("asks"), "-i", "brief=x", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    let object = asked.json();
    let (name, question) = (object["name"].as_str().unwrap(), &object["questions"][0]);
    assert_eq!(keys(question)[..4], ["key", "node", "prompt", "schema"]);
    let key = question["key"].as_str().unwrap();
    let command = format!("graphrun resume {name} --answer '{key}=\"go_on\"'");
    assert!(asked.stderr.contains(&command), "{asked}");

    let refused = place.run(["resume", name, "--answer", &format!("{key}=perhaps")]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused}");
    let unknown = place.run(["resume", name, "--answer", "nobody=stop"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("no open question `nobody`"), "{unknown}");
    let again = place.run(["resume", name]);
    assert_eq!(again.code, 3, "{again}");

    let done = place.run(["resume", name, "--answer", &format!("{key}=stop"), "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &json!("stop")), "{done}");
    assert_eq!(place.run(["resume", name]).code, 0, "a run that is done stays done");
}

#[test]
fn a_limit_is_exit_4_and_a_higher_one_lets_the_run_go_on() {
    let place = Place::new();
    let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--max-steps", "1"];
    let stopped = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((stopped.code, &stopped.json()["status"]), (4, &json!("limit")), "{stopped}");
    let name = stopped.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(place.run(["resume", &name]).code, 4);
    let done = place.run(["resume", &name, "--max-steps", "5", "--output", "json"]);
    assert_eq!((done.code, &done.json()["steps"]), (0, &json!(2)), "{done}");
    let trace = done.json()["trace"].as_array().unwrap().len();
    assert_eq!(trace, 2, "finished work was done again");
}

#[test]
fn a_failed_run_is_exit_1() {
    let ended = Place::new().run(["execute", &workflow("fails"), "-i", "brief=x"]);
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stdout.starts_with("failed"), "{ended}");
}

#[test]
fn a_recording_that_cannot_be_written_is_told_with_its_cause() {
    let place = Place::new();
    fs::write(place.path("notes.md"), "the last line has no end").unwrap();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--record", "notes.md"];
    let refused = place.run_with(args, [("OPENAI_API_KEY", "sk-test")]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("something else than a recording"), "{refused}");
}

#[test]
fn a_run_that_could_not_deliver_is_not_started() {
    let place = Place::new();
    fs::write(place.path("in_the_way"), "").unwrap();
    let execute =
        |out: &str| place.run(["execute", &workflow("delivers"), "-i", "brief=x", "--out", out]);
    let refused = execute("in_the_way/out");
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    assert!(refused.stderr.contains("in_the_way` cannot be written"), "{refused}");
    assert!(refused.stderr.contains("`--out`"), "{refused}");
    let delivered = execute("new/out");
    assert_eq!(delivered.code, 0, "{delivered}");
    assert_eq!(fs::read_to_string(place.path("new/out/brief.json")).unwrap(), "\"x\"\n");
}

#[test]
fn a_delivery_replaces_its_like_and_nothing_that_somebody_else_wrote() {
    let place = Place::new();
    let execute = |brief: &str, more: &[&str]| {
        let brief = format!("brief={brief}");
        let args = ["execute", &workflow("delivers"), "-i", &brief, "--out", "out"];
        place.run([&args[..], more, &["--output", "json"]].concat())
    };
    let file = place.path("out/brief.json");
    for brief in ["one", "two"] {
        let ended = execute(brief, &[]);
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("\"{brief}\"\n"));
    }
    fs::write(&file, "mended by hand").unwrap();
    let refused = execute("three", &[]);
    let report = refused.json();
    assert_eq!((refused.code, &report["status"]), (5, &json!("failed")), "{refused}");
    for part in ["changed since: `brief.json`; nothing was written", "`resume --force`"] {
        assert!(report["reason"].as_str().unwrap().contains(part), "{refused}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mended by hand");
    let name = report["name"].as_str().unwrap();
    let forced = place.run(["resume", name, "--force", "--output", "json"]);
    assert_eq!(forced.code, 0, "{forced}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"three\"\n");
    assert_eq!(execute("four", &["--force"]).code, 0);
}

#[test]
fn a_second_run_under_the_same_id_is_exit_2() {
    let place = Place::new();
    let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--run-id", "mine"];
    assert_eq!(place.run(args).code, 0);
    let refused = place.run(args);
    assert!(
        refused.code == 2 && refused.stderr.contains("there is a run `mine` already"),
        "{refused}"
    );
    // The refused one was never saved, so there is nothing to go on with.
    assert!(!refused.stderr.contains("graphrun resume"), "{refused}");
}

#[test]
fn a_run_in_memory_leaves_nothing_and_promises_nothing() {
    let place = Place::new();
    let args = ["--db", "memory:", "execute", &workflow("two_steps"), "-i", "brief=x"];
    let ended = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((ended.code, &ended.json()["resume"]), (0, &Value::Null), "{ended}");
    assert!(place.is_empty());
}

#[test]
fn looking_at_runs_makes_no_database() {
    let place = Place::new();
    let ended = place.run(["runs", "list"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "no runs yet\n"));
    assert!(place.is_empty());
}

#[test]
fn the_state_can_be_seen_after_each_step() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let state = |at: &str| place.run(["runs", "state", &format!("{name}{at}")]).json();
    assert_eq!(state("@0"), json!({"brief": "x"}));
    assert_eq!(state("@1"), json!({"brief": "x", "draft": "x"}));
    assert_eq!(state(""), json!({"brief": "x", "draft": "x", "answer": "x"}));
    assert_eq!(place.run(["runs", "state", &format!("{name}@9")]).code, 2);
}

#[test]
fn findings_are_drawn_at_their_place_or_listed_as_json() {
    let place = Place::new();
    let drawn = place.run(["validate", &workflow("wrong"), &workflow("two_steps")]);
    // One line for all findings of all workflows, and not among the result.
    assert_eq!(drawn.stderr, "help: every code is explained: `graphrun explain GR010`\n");
    assert_eq!(drawn.code, 2, "{drawn}");
    for part in ["secnd", "wrong.yaml:9:", "did you mean `second`", "two_steps.yaml: ok"] {
        assert!(drawn.stdout.contains(part), "{part} is missing in: {}", drawn.stdout);
    }
    let listed = place.run(["validate", &workflow("wrong"), "--output", "json"]).json();
    let finding = listed.as_array().unwrap().iter().find(|it| it["line"] == 9).unwrap();
    let expected = ["code", "severity", "message", "file", "line", "column", "help"];
    assert_eq!((keys(finding), &finding["severity"]), (expected.to_vec(), &json!("error")));
    let refused = place.run(["execute", &workflow("wrong"), "-i", "brief=x"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("secnd"), "{refused}");
    assert!(refused.stderr.ends_with("`graphrun explain GR010`\n"), "{refused}");
    let missing = place.run(["validate", "nowhere.yaml", &workflow("two_steps")]);
    assert!(missing.code == 2 && missing.stdout.contains("two_steps.yaml: ok"), "{missing}");
}

#[test]
fn services_read_findings_with_paths_below_the_current_folder() {
    let place = Place::new();
    fs::create_dir(place.path("graphs")).unwrap();
    fs::copy(workflow("wrong"), place.path("graphs/wrong.yaml")).unwrap();
    let validate = |form: &str| place.run(["validate", "./graphs/wrong.yaml", "--output", form]);
    let github = validate("github");
    insta::assert_snapshot!(github, @r"
    exit 2
    stdout:
    ::error file=graphs/wrong.yaml,line=9,endLine=9,col=43,endColumn=48,title=GR010::there is no node `secnd`%0Adid you mean `second`?
    stderr:
    ");
    let sarif = validate("sarif");
    assert_eq!((sarif.code, sarif.stderr.as_str()), (2, ""), "{sarif}");
    let run = &sarif.json()["runs"][0];
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let at = &run["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(at["artifactLocation"]["uri"], "graphs/wrong.yaml");
    let unread = place.run(["validate", "nowhere.yaml", "--output", "sarif"]);
    assert_eq!(unread.json()["runs"][0]["invocations"][0]["executionSuccessful"], false);
    let refused = place.run(["graph", &workflow("two_steps"), "--output", "sarif"]);
    assert!(refused.code == 2 && refused.stdout.is_empty(), "{refused}");
}

#[test]
fn a_warning_is_refused_only_if_that_is_asked_for() {
    let place = Place::new();
    let unused = fs::read_to_string(workflow("two_steps")).unwrap() + "models: { m: a/b }\n";
    fs::write(place.path("unused.yaml"), unused).unwrap();
    let lenient = place.run(["validate", "unused.yaml", "--output", "github"]);
    assert!(lenient.stdout.starts_with("::warning file=unused.yaml,"), "{lenient}");
    let strict = place.run(["validate", "unused.yaml", "--output", "github", "--strict"]);
    assert_eq!((lenient.code, strict.code), (0, 2));
    assert_eq!(strict.stdout, lenient.stdout, "a warning stays one");
}

#[test]
fn a_code_is_explained() {
    let place = Place::new();
    let page = place.run(["explain", "gr10"]);
    assert_eq!((page.code, page.stderr.as_str()), (0, ""));
    assert!(page.stdout.starts_with("GR010: there is no such node\n"), "{page}");
    let object = place.run(["explain", "10", "--output", "json"]).json();
    assert_eq!(keys(&object), ["code", "title", "meaning", "reason", "wrong", "right"]);
    let list = place.run(["explain"]);
    assert!(list.stdout.contains("\nGR010  there is no such node\n"), "{list}");
    let listed = place.run(["explain", "--output", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), list.stdout.lines().count());
    insta::assert_snapshot!(place.run(["explain", "GR042"]), @r"
    exit 2
    stdout:
    stderr:
    error: there is no code `GR042`
    help: did you mean `GR040`?
    ");
}

#[test]
fn a_graph_is_drawn_for_terminals_and_for_markdown() {
    let place = Place::new();
    let ascii = place.run(["graph", &workflow("two_steps")]);
    assert!(ascii.code == 0 && ascii.stdout.contains("second"), "{ascii}");
    let mermaid = place.run(["graph", &workflow("two_steps"), "--format", "mermaid"]);
    assert!(mermaid.stdout.contains("flowchart TD\n"), "{mermaid}");
}

#[test]
fn the_doctor_tries_everything_and_its_exit_code_says_what_it_found() {
    let ended = Place::new().run(["doctor", "--output", "json"]);
    let checks = ended.json();
    let names: Vec<&Value> = checks.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["sandbox", "python", "models", "database", "settings"]);
    // The tests run without any key.
    assert_eq!((&checks[2]["ok"], ended.code), (&json!(false), 5), "{ended}");
    assert!(checks[2]["help"].as_str().unwrap().contains("OPENAI_API_KEY"));
}

#[test]
fn colours_are_only_where_they_are_asked_for() {
    let place = Place::new();
    let run = |color: &str| {
        let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--color", color];
        place.run(args).stdout.contains('\u{1b}')
    };
    assert!(run("always") && !run("auto") && !run("never"));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let place = Place::new();
    for args in [
        vec!["--help".to_owned()],
        vec!["execute".into(), workflow("two_steps"), "-i".into(), "brief=x".into()],
        vec!["completions".into(), "bash".into()],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(&args);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("panic"), "{args:?}: {stderr}");
    }
}

/// Reads the call of a model to its end, as a client takes no answer before that, and answers it.
fn answer(call: &mut TcpStream) {
    answer_with(call, "42");
}

/// Reads a request, answers it with a text, and gives it back.
fn answer_with(call: &mut TcpStream, text: &str) -> String {
    let request = read_request(call);
    let body = json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]});
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    write!(call, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    request
}

/// Reads a request to its end, and gives back its body.
fn read_request(call: &mut TcpStream) -> String {
    let mut request = BufReader::new(&*call);
    let mut length = 0;
    for line in request.by_ref().lines().map(Result::unwrap).take_while(|it| !it.is_empty()) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = String::new();
    request.take(length).read_to_string(&mut body).unwrap();
    body
}

#[test]
fn the_first_signal_lets_what_runs_finish() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let mut run = Running::start(&place, &provider);
    // The call is there before the signal, and the answer comes after it.
    let (mut call, _) = provider.accept().unwrap();
    run.signal(Signal::SIGINT);
    run.wait_for("nothing new starts");
    answer(&mut call);
    let (code, object) = run.end();
    assert_eq!(object["trace"][0]["outcome"], "finished", "what ran was dropped");
    assert_eq!((code, &object["state"]["answer"]), (Some(0), &json!("42")));
}

#[test]
fn the_second_signal_leaves_a_run_that_can_go_on() {
    // A provider that takes the call and never answers.
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let place = Place::new();
        let mut run = Running::start(&place, &provider);
        run.wait_for("write started");
        run.signal(signal);
        run.wait_for("nothing new starts");
        run.signal(signal);
        run.wait_for("graphrun resume");
        let (ended, object) = run.end();
        assert_eq!((ended, &object["status"]), (Some(code), &json!("interrupted")));
        // It is found, and what it needs is looked for: a key, which is not there any more.
        let resumed = place.run(["resume", object["name"].as_str().unwrap()]);
        assert!(resumed.code == 5 && resumed.stderr.contains("OPENAI_API_KEY"), "{resumed}");
    }
}

#[test]
fn of_two_processes_that_go_on_with_one_run_the_second_is_told_who_has_it() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let first = Running::start(&place, &provider);
    let (mut call, _) = provider.accept().unwrap();
    let listed = place.run(["runs", "list", "--output", "json"]);
    let name = listed.json()[0]["name"].as_str().unwrap().to_owned();
    let owner = listed.json()[0]["owner"].as_str().unwrap().to_owned();
    assert_eq!(owner.split('@').next(), Some(first.id().to_string().as_str()));
    let other = place.run(["resume", &name, "--replay", "/dev/null"]);
    assert!(
        other.code == 6 && other.stderr.contains(&format!("in the hands of {owner}")),
        "{other}"
    );
    answer(&mut call);
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn every_shell_gets_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let ended = place.run(["completions", shell]);
        assert!(ended.code == 0 && ended.stdout.contains("execute"), "{shell}: {ended}");
    }
}

#[test]
fn a_workflow_that_is_gone_cannot_be_resumed() {
    let place = Place::new();
    let copy = place.path("asks.yaml");
    fs::copy(workflow("asks"), &copy).unwrap();
    let asked = place.run(["execute", "asks.yaml", "-i", "brief=x", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    fs::remove_file(copy).unwrap();
    let ended = place.run(["resume", asked.json()["name"].as_str().unwrap()]);
    assert!(ended.code == 6 && ended.stderr.contains("asks.yaml"), "{ended}");
    assert!(ended.stderr.contains("with the file as it was, it goes on"), "{ended}");
}

/// A workflow of so many nodes, one after the other.
fn chain(length: usize) -> String {
    let mut text = "graphrun: 1\nname: chain\nstate: { brief: string, answer: string }\n\
        input: [brief]\noutput: [answer]\nstart: n1\nnodes:\n"
        .to_owned();
    for at in 1..=length {
        let next = if at == length { "end".to_owned() } else { format!("n{}", at + 1) };
        text.extend([format!("  n{at}: {{ set: {{ answer: brief }}, then: {next} }}\n")]);
    }
    text
}
