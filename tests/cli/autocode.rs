//! From a task to a specification, its implementation and QA: `graphs/autocode.yaml`. The models are recordings; git,
//! the worktrees, the sandbox and pytest are real.

use std::fs;

use serde_json::{Value, json};

use crate::{
    cli::{
        folders::done,
        greeting::{performed, repository_of},
        killed::killed,
        program::{Ended, Place},
    },
    support::{git::git, some_of},
};

const SMALL: &str = "Add discounts and a receipt.";
/// Long enough for the heuristic to see a standard task.
const STANDARD: &str = "Add discounts and a receipt to the shop: a module that takes a discount off a price, a module for \
    one line of a receipt, and a module that prints the whole receipt of a customer with the total in its last line.";
const APPROVED: &str = r#"approve={"decision":"approved"}"#;

fn repository(place: &Place) {
    repository_of(place, "autocode/shop", &["prices.py", "conftest.py", "tests/test_prices.py"]);
}

/// Starts a run `one` with a recording, up to its first question.
fn start(place: &Place, recording: &str, task: &str) -> Ended {
    repository(place);
    let root = env!("CARGO_MANIFEST_DIR");
    let graph = format!("{root}/graphs/autocode.yaml");
    let replay = format!("{root}/tests/recordings/autocode/{recording}.jsonl");
    let task = format!("task={task}");
    let args = ["execute", &graph, "-i", "repo_path=repo", "-i", &task, "--replay", &replay];
    place.run([&args[..], &["--run-id", "one", "--out", "out", "--output", "json"]].concat())
}

fn answer(place: &Place, answer: &str) -> Ended {
    place.run(["resume", "one", "--answer", answer, "--output", "json"])
}

/// Returns the key of the only open question of a paused run.
fn asked(ended: &Ended) -> String {
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (3, &json!("paused")), "{ended}");
    assert_eq!(report["questions"].as_array().map(Vec::len), Some(1), "{ended}");
    report["questions"][0]["key"].as_str().unwrap().to_owned()
}

/// Returns the events of the run, and in place of the reports of nested runs the events in them.
fn events(place: &Place) -> Vec<Value> {
    let ended = place.run(["runs", "events", "one", "--output", "jsonl"]);
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let is_nested = event["report"]["kind"] == "nested";
        if is_nested { event["report"]["event"].clone() } else { event }
    };
    ended.stdout.lines().map(event).collect()
}

/// Returns the names that nodes emitted, those of nested runs as well, in the order of the log.
fn emitted(place: &Place) -> Vec<String> {
    let events = events(place).into_iter();
    let names = events.filter(|it| it["type"] == "task.emitted");
    names.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|it| *it == name).count()
}

/// Returns the messages of the commits of the run, without merges, and the tree of its branch.
fn history(place: &Place) -> (Vec<String>, String) {
    let repo = place.path("repo");
    let log = git(&repo, &["log", "--no-merges", "--reverse", "--format=%s", "main..autocode/one"]);
    let mut subjects: Vec<String> = log.lines().map(str::to_owned).collect();
    subjects.sort();
    (subjects, git(&repo, &["rev-parse", "autocode/one^{tree}"]))
}

/// Nothing of a sub-task is left: no worktree, no branch.
fn assert_nothing_left(place: &Place, about: &str) {
    let repo = place.path("repo");
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 2, "{about}");
    let refs = git(&repo, &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/graphrun"]);
    assert_eq!(refs, "refs/graphrun/one/repo\nrefs/heads/autocode/one\nrefs/heads/main", "{about}");
}

#[test]
fn a_small_task_is_specified_built_and_approved() {
    let place = Place::new();
    let ended = start(&place, "simple", SMALL);
    assert_eq!(asked(&ended), "approve");
    assert_eq!(
        fs::read_to_string(place.path("out/spec.md")).unwrap().lines().next(),
        Some("# Discounts and a receipt")
    );
    let log = git(&place.path("repo"), &["log", "--format=%s", "main..autocode/one"]);
    assert_eq!(log, "", "no code is written before a person approves the specification");

    let ended = answer(&place, APPROVED);
    let state = done(&ended);
    let repo = place.path("repo");
    let (subjects, _) = history(&place);
    assert_eq!(
        subjects,
        ["S1: Add discounts", "S2: Add a line of a receipt", "S3: Add the receipt"]
    );
    assert_eq!(state["head"], git(&repo, &["rev-parse", "autocode/one"]));
    assert_eq!(git(&repo, &["status", "--porcelain", "--branch"]), "## main");
    assert_nothing_left(&place, "done");
    let work = ["build", "merge", "reviewer", "deliver"];
    let performed = performed(&ended.json(), &work);
    assert_eq!(
        performed, "build build merge build merge reviewer deliver",
        "S3 waits for both others"
    );
    assert_eq!(state["warnings"], json!(["`S3` has commands that are not allowed: rm -rf tests"]));

    let names = emitted(&place);
    let phases = (count(&names, "phase_started"), count(&names, "phase_completed"));
    assert_eq!((phases, count(&names, "subtask_completed")), ((3, 3), 3), "{names:?}");
    let ends: Vec<&str> = names.iter().rev().take(3).rev().map(String::as_str).collect();
    assert_eq!(ends, ["build_completed", "qa_started", "qa_completed"]);
    let progress = fs::read_to_string(place.path("out/build-progress.txt")).unwrap();
    assert!(progress.contains("Done:\n- S1 Take discounts off\n- S2"), "{progress}");
}

#[test]
fn each_failure_on_the_way_of_a_standard_task_is_recovered_from() {
    let place = Place::new();
    let ended = start(&place, "standard", &format!("{STANDARD} Be careful."));
    assert_eq!(asked(&ended), "reply", "the interview");
    assert_eq!(asked(&answer(&place, r#"reply={"answers":"Down"}"#)), "approve");
    let ended = answer(&place, APPROVED);
    let state = done(&ended);
    let work = ["guess", "compact", "requirements", "skip", "mend", "build", "fixer", "deliver"];
    let order = "guess compact requirements skip mend build build build fixer deliver";
    assert_eq!(performed(&ended.json(), &work), order);
    let warnings = state["warnings"].as_array().unwrap();
    assert!(
        warnings[0]
            .as_str()
            .unwrap()
            .starts_with("the complexity is a guess: openai/gpt-5-mini: the provider refuses"),
        "{ended}"
    );
    assert!(
        warnings[1]
            .as_str()
            .unwrap()
            .starts_with("the phase context is skipped: openai/gpt-5: the model refuses"),
        "{ended}"
    );

    let names = emitted(&place);
    assert_eq!(
        (count(&names, "subtask_failed"), count(&names, "recovery_started")),
        (3, 1),
        "{names:?}"
    );
    let expected = [
        "QA: Print nothing for nothing",
        "S1: Add discounts that leave a share",
        "S2: Add a line of a receipt",
        "S3: Add the receipt",
    ];
    assert_eq!(history(&place).0, expected, "failed attempts leave no commit");
    assert_nothing_left(&place, "done");
}

#[test]
fn a_person_decides_where_recovery_and_qa_do_not_settle() {
    let place = Place::new();
    start(&place, "standard", &format!("{STANDARD} Be bold."));
    answer(&place, r#"reply={"answers":"Down"}"#);
    let ended = answer(&place, APPROVED);
    assert_eq!(asked(&ended), "help", "the recovery agent failed, too");
    let progress = fs::read_to_string(place.path("out/build-progress.txt")).unwrap();
    assert!(
        progress.contains("In progress:\n- S1") && progress.contains("Pending:\n- S3"),
        "{progress}"
    );

    let ended = answer(&place, r#"help={"choice":"retry","guidance":"Multiply by what is left."}"#);
    assert_eq!(asked(&ended), "decide", "one issue came back twice");
    assert_eq!(
        performed(&ended.json(), &["reviewer", "fixer"]),
        "reviewer fixer reviewer fixer reviewer"
    );
    assert_eq!(count(&emitted(&place), "escalated"), 1);
    let reason = &ended.json()["questions"][0]["prompt"];
    assert!(
        reason
            .as_str()
            .unwrap()
            .contains("issues came back: shop.py: an empty receipt has a total"),
        "{reason}"
    );

    done(&answer(&place, r#"decide={"choice":"accept"}"#));
    let text = fs::read_to_string(place.path("out/report.md")).unwrap();
    assert!(
        text.contains("Done, in commit") && text.contains("- shop.py: An empty receipt"),
        "{text}"
    );
    assert_nothing_left(&place, "done");
}

#[test]
fn a_rejected_specification_leaves_no_code() {
    let place = Place::new();
    start(&place, "simple", SMALL);
    let ended = answer(&place, r#"approve={"decision":"rejected","comment":"Too much."}"#);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (1, &json!("failed")), "{ended}");
    assert!(report["reason"].as_str().unwrap().contains("rejected: Too much."), "{ended}");
    assert_eq!(history(&place).0, Vec::<String>::new());
}

#[test]
fn earlier_specifications_and_insights_reach_a_later_run() {
    let place = Place::new();
    repository(&place);
    for (tier, text) in [
        ("specs", "Add discounts to the till."),
        ("insights", "gotcha: a discount is a percentage"),
    ] {
        assert_eq!(place.run(["memory", "add", tier, text]).code, 0);
    }
    let graph = format!("{}/graphs/autocode.yaml", env!("CARGO_MANIFEST_DIR"));
    let args =
        ["execute", &graph, "-i", "repo_path=repo", "-i", "task=Add a discount", "--run-id", "one"];
    // The run stops behind the recalls, before it asks a model.
    let ended =
        place.run([&args[..], &["--pause-before", "assess", "--model", "ollama/none"]].concat());
    assert_eq!(ended.code, 3, "{ended}");
    let state = place.run(["runs", "state", "one", "--output", "json"]);
    assert!(
        state.stdout.contains("to the till") && state.stdout.contains("is a percentage"),
        "{state}"
    );
}

#[test]
fn each_phase_has_the_effort_of_its_agent() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |name: &str| fs::read_to_string(format!("{root}/graphs/{name}.yaml")).unwrap();
    let whole = read("autocode");
    let part = read("autocode_subtask");
    let with = |text: &str, name: &str, effort: &str| {
        let lines = text.lines().skip_while(|it| !it.starts_with(&format!("  {name}:")));
        let first = lines.clone().take(1);
        let rest = lines.skip(1);
        let section: Vec<&str> = first.chain(rest.take_while(|it| it.starts_with("   "))).collect();
        assert!(section.join("\n").contains(effort), "{name}: {section:?}");
    };
    for (agent, effort) in [("planner", "high"), ("reviewer", "high"), ("fixer", "medium")] {
        with(&whole, agent, &format!("effort: {effort},"));
    }
    with(&part, "coder", "effort: none,");
    with(&whole, "plan", "agent: planner");
}

/// The moments at which a run is killed, after the work of tasks before it is durable, and after it is. Most are while
/// sub-tasks are built side by side. A few are enough each time.
fn moments() -> Vec<String> {
    let after_work = (7..=30).map(|it| format!("task.after_run=abort@{it}"));
    let after_commit = (6..=40).step_by(3).map(|it| format!("task.after_commit=abort@{it}"));
    some_of(12, after_work.chain(after_commit))
}

#[test]
fn a_killed_run_repeats_no_subtask_and_leaves_nothing() {
    let undisturbed = Place::new();
    start(&undisturbed, "simple", SMALL);
    done(&answer(&undisturbed, APPROVED));
    for moment in moments() {
        let place = Place::new();
        start(&place, "simple", SMALL);
        killed(&place, &["resume", "one", "--answer", APPROVED, "--output", "json"], &moment);
        let state = done(&place.run(["resume", "one", "--output", "json"]));
        assert_eq!(history(&place), history(&undisturbed), "{moment}");
        let log = state["events"].as_array().unwrap().iter();
        let completed =
            log.filter_map(|it| it["what"].as_str()?.strip_prefix("subtask completed: "));
        assert_eq!(completed.collect::<Vec<_>>(), ["S1", "S2", "S3"], "{moment}");
        // An event of a nested run may be lost with the process, and is never there twice.
        let log = events(&place);
        for node in ["build.code", "build.keep", "build.done"] {
            let finished = |it: &&Value| it["type"] == "task.finished" && it["node"] == node;
            assert!(log.iter().filter(finished).count() <= 3, "{moment}: {node} ran again");
        }
        assert_nothing_left(&place, &moment);
        assert_eq!(place.run(["runs", "verify", "one"]).code, 0, "{moment}");
    }
}
