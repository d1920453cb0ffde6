//! Input of people to runs: answers, approvals, breakpoints.

use std::{
    fs,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::cli::program::{Place, workflow};

/// Starts a workflow that suspends with exit code 3, and returns its report.
fn paused(place: &Place, name: &str, more: &[&str]) -> Value {
    let workflow = workflow(name);
    let mut args = vec!["execute", &workflow, "-i", "brief=x", "--output", "json"];
    args.extend(more);
    let ended = place.run(args);
    assert_eq!(ended.code, 3, "{ended}");
    ended.json()
}

fn name(object: &Value) -> String {
    object["name"].as_str().unwrap().to_owned()
}

/// Returns the keys of the open questions.
fn open(object: &Value) -> Vec<&str> {
    object["questions"].as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect()
}

fn show(place: &Place, run: &str) -> Value {
    place.run(["runs", "show", run, "--output", "json"]).json()
}

#[test]
fn questions_are_answered_in_any_order() {
    let place = Place::new();
    let asked = paused(&place, "approvals", &[]);
    let run = name(&asked);
    assert_eq!(open(&asked), ["legal", "money"]);

    let which = place.run(["approve", &run]);
    assert_eq!(which.code, 2, "{which}");
    assert!(which.stderr.contains("2 questions are open"), "{which}");
    assert!(which.stderr.contains("`legal`, `money`"), "{which}");

    let comment = ["--comment", "too dear", "--output", "json"];
    let rejected = place.run(["reject", &run, "money"].into_iter().chain(comment));
    assert_eq!((rejected.code, open(&rejected.json())), (3, vec!["legal"]), "{rejected}");
    let done = place.run(["approve", &run, "--output", "json"]);
    assert_eq!(done.code, 0, "{done}");
    let state =
        json!({"legal": "approve", "money": {"verdict": "rejected", "comment": "too dear"}});
    assert_eq!((&done.json()["state"], &done.json()["resume"]), (&state, &Value::Null));
}

/// A workflow whose nested run asks a person.
fn nested_question(place: &Place) {
    let inner = "graphrun: 1\nname: inner\nstate: { brief: string, ok: bool }\ninput: brief\noutput: ok\nstart: sign\n\
                 nodes:\n  sign: { ask: \"Is it right?\", writes: ok, then: end }\n";
    let outer = "graphrun: 1\nname: outer\nstate: { brief: string, ok: bool }\ninput: brief\noutput: ok\nstart: review\n\
                 nodes:\n  review: { use: { workflow: inner.yaml, nested: true, in: { brief: brief }, out: { ok: ok } }, then: end }\n";
    fs::write(place.path("inner.yaml"), inner).unwrap();
    fs::write(place.path("outer.yaml"), outer).unwrap();
}

#[test]
fn a_question_of_a_nested_run_has_the_name_that_is_shown() {
    for answer in [&["approve", "review.sign"][..], &["resume", "--answer", "review.sign=true"]] {
        let place = Place::new();
        nested_question(&place);
        let shown = place.run(["execute", "outer.yaml", "-i", "brief=x"]).to_string();
        assert!(shown.contains("review.sign asks") && shown.contains("=true"), "{shown}");
        let asked = place.run(["execute", "outer.yaml", "-i", "brief=x", "--output", "json"]);
        let run = name(&asked.json());
        let (verb, rest) = answer.split_first().unwrap();
        let done = place.run([*verb, &run].into_iter().chain(rest.iter().copied()));
        assert_eq!(done.code, 0, "{done}");
    }
}

#[test]
fn a_breakpoint_within_a_nested_run_names_the_node_that_runs_it() {
    let place = Place::new();
    nested_question(&place);
    let refused =
        place.run(["execute", "outer.yaml", "-i", "brief=x", "--pause-before", "review.sign"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("`review` runs it: name `review`"), "{refused}");
}

#[test]
fn a_question_prints_the_fields_that_it_shows() {
    let place = Place::new();
    let asked = place.run(["execute", &workflow("approvals"), "-i", "brief=Two pages."]);
    assert_eq!(asked.code, 3, "{asked}");
    let legal = "Is it legal?\n  {\n    \"brief\": \"Two pages.\"\n  }\n";
    let money = "Can we pay for it?\n";
    let questions = [
        format!("? legal asks: {legal}  answer it with: "),
        format!("? money asks: {money}  answer it with: "),
    ];
    assert!(questions.iter().all(|it| asked.stderr.contains(it)), "{asked}");

    let runs = place.run(["runs", "list", "--output", "json"]).json();
    let run = runs[0]["name"].as_str().unwrap();
    let listed = place.run(["runs", "show", run]);
    assert!(questions.iter().all(|it| listed.stdout.contains(it)), "{listed}");
    let answers = ["--answer", "legal=approve", "--answer", "money={\"verdict\": \"rejected\"}"];
    let done = place.run(["resume", run].into_iter().chain(answers));
    assert_eq!(done.code, 0, "{done}");
    let legal = format!("! legal asked: {legal}  your answer: \"approve\"\n");
    let money = format!("! money asked: {money}  your answer: {{\"verdict\":\"rejected\"}}\n");
    assert!(done.stderr.contains(&legal) && done.stderr.contains(&money), "{done}");
}

#[test]
fn shown_fields_cannot_control_the_terminal_and_are_cut() {
    let place = Place::new();
    let hostile = "brief=a\n? legal asks: \u{1b}[2J\u{7}\u{202e}\u{9b}b";
    let asked = place.run(["execute", &workflow("approvals"), "-i", hostile]);
    let shown = r#""brief": "a\n? legal asks: \u001b[2J\u0007\u202e\u009bb""#;
    assert!(asked.stderr.contains(shown), "{asked}");

    let long = format!("brief={}", "x".repeat(5_000));
    let asked =
        place.run(["execute", &workflow("approvals"), "-i", &long, "--output", "json"]).json();
    let run = name(&asked);
    let listed = place.run(["runs", "show", &run]);
    let cut = format!(
        "x\n  … 1017 more characters; all of them are printed by: graphrun runs show {run} --output json\n"
    );
    assert!(listed.stdout.contains(&cut), "{listed}");
    let answered = place.run(["approve", &run, "legal"]);
    let cut = format!("printed by: graphrun runs export {run}\n  your answer: \"approve\"\n");
    assert!(answered.stderr.contains(&cut), "{answered}");
}

/// A person answers for one item, also where the answers grow a list.
#[test]
fn each_answer_to_a_growing_list_is_an_item() {
    let place = Place::new();
    let votes = workflow("votes");
    let asked = place.run(["execute", &votes, "-i", "brief=ann,bob", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    let run = name(&asked.json());
    let asked = asked.json();
    let [ann, bob] = open(&asked)[..] else { panic!("{asked}") };
    let whole = format!("{ann}=[true]");
    let list = place.run(["resume", &run, "--answer", &whole]);
    assert_eq!(list.code, 2, "{list}");
    let first = place.run(["approve", &run, ann]);
    assert_eq!(first.code, 3, "{first}");
    let second = format!("{bob}=false");
    let next = place.run(["resume", &run, "--answer", &second, "--output", "json"]);
    assert_eq!((next.code, open(&next.json())), (3, vec!["why"]), "{next}");
    let done = place.run(["resume", &run, "--answer", "why=price", "--output", "json"]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.json()["state"]["yes"], 1, "{done}");
    assert_eq!(done.json()["state"]["reasons"], json!(["price"]), "{done}");
}

#[test]
fn a_late_or_second_answer_is_exit_6_with_the_first_author() {
    let place = Place::new();
    let run = name(&paused(&place, "approvals", &[]));
    let first = place.run_with(["approve", &run, "legal"], [("USER", "ann")]);
    assert_eq!(first.code, 3, "{first}");
    for again in [
        &["resume", &run, "--answer", "legal=reject"][..],
        &["reject", &run, "legal"],
        &["resume", &run, "--answer", "legal@1.0=reject"],
    ] {
        let refused = place.run(again);
        assert_eq!((refused.code, refused.stdout.as_str()), (6, ""), "{refused}");
        assert!(refused.stderr.contains("no longer accepts an answer: ann@"), "{refused}");
    }
    assert_eq!(open(&show(&place, &run)), ["money"], "the other one is open");

    let done = place.run(["resume", &run, "--answer", "money={\"verdict\": \"approved\"}"]);
    assert_eq!(done.code, 0, "{done}");
    let after = place.run(["approve", &run, "legal"]);
    assert!(after.code == 6 && after.stderr.contains("ann@"), "{after}");
    assert_eq!(place.run(["approve", &run]).code, 6);
}

#[test]
fn a_wrong_answer_is_exit_2_and_the_question_stays_open() {
    let place = Place::new();
    let run = name(&paused(&place, "approvals", &[]));
    let answers = ["--answer", "legal=perhaps", "--answer", "money=1", "--answer", "monye=1"];
    let refused = place.run(["resume", &run].into_iter().chain(answers));
    assert_eq!(refused.code, 2, "{refused}");
    for part in ["`legal`: ", "`money`: ", "no open question `monye`; did you mean `money`?"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    let comment = place.run(["reject", &run, "legal", "--comment", "no"]);
    assert!(comment.code == 2 && comment.stderr.contains("takes no comment"), "{comment}");
    assert!(comment.stderr.contains(r#"--answer 'legal="reject"'"#), "{comment}");
    let nobody = place.run(["approve", &run, "nobody"]);
    assert!(
        nobody.code == 2 && nobody.stderr.contains("`nobody` has no open question"),
        "{nobody}"
    );
    assert_eq!(open(&show(&place, &run)), ["legal", "money"]);
}

#[test]
fn an_answer_that_is_not_saved_is_not_announced() {
    let place = Place::new();
    fs::copy(workflow("approvals"), place.path("w.yaml")).unwrap();
    let paused = place.run(["execute", "w.yaml", "-i", "brief=x", "--run-id", "run-1"]);
    assert_eq!(paused.code, 3, "{paused}");
    fs::rename(place.path("w.yaml"), place.path("gone.yaml")).unwrap();
    let refused = place.run(["approve", "run-1", "legal"]);
    assert!(refused.code == 6 && !refused.stderr.contains("Is it legal?"), "{refused}");
    fs::rename(place.path("gone.yaml"), place.path("w.yaml")).unwrap();
    let saved = place.run(["approve", "run-1", "legal"]);
    assert!(saved.code == 3 && saved.stderr.contains("Is it legal?"), "{saved}");
}

#[test]
fn an_answer_to_the_last_visit_is_never_taken_for_this_one() {
    let place = Place::new();
    let asked = paused(&place, "again", &[]);
    let run = name(&asked);
    assert_eq!(open(&asked), ["help"]);
    let again = place.run(["reject", &run, "--output", "json"]);
    assert_eq!((again.code, open(&again.json())), (3, vec!["help@3.0"]), "{again}");

    let stale = place.run(["resume", &run, "--answer", "help=true"]);
    assert_eq!(stale.code, 6, "{stale}");
    assert!(stale.stderr.contains("open: `help@3.0`"), "{stale}");
    let done = place.run(["resume", &run, "--answer", "help@3.0=true", "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]["log"]), (0, &json!([false, true])), "{done}");
}

#[test]
fn of_two_processes_with_the_same_answer_one_is_taken() {
    for round in 0..20 {
        let place = Place::new();
        let run = name(&paused(&place, "again", &[]));
        let submit = || -> Child {
            let mut command = place.command(["resume", &run, "--answer", "help=false"]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ended = [submit(), submit()].map(|it| it.wait_with_output().unwrap());
        let mut codes = [0, 1].map(|it: usize| ended[it].status.code().unwrap());
        codes.sort_unstable();
        let said = ended.map(|it| String::from_utf8(it.stderr).unwrap());
        assert_eq!(codes, [3, 6], "round {round}: {said:?}");
        let shown = show(&place, &run);
        assert_eq!(shown["state"]["log"], json!([false]), "round {round}");
        assert_eq!(shown["answers"].as_array().unwrap().len(), 1, "round {round}");
        assert_eq!(open(&shown), ["help@3.0"], "round {round}");
    }
}

#[test]
fn of_two_processes_with_different_answers_one_wins() {
    for round in 0..20 {
        let place = Place::new();
        let run = name(&paused(&place, "again", &[]));
        let submit = |answer: &str| -> Child {
            let answer = format!("help={answer}");
            let mut command = place.command(["resume", &run, "--answer", &answer]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ended = [submit("true"), submit("false")].map(|it| it.wait_with_output().unwrap());
        let codes = [0, 1].map(|it: usize| ended[it].status.code().unwrap());
        let said = ended.map(|it| String::from_utf8(it.stderr).unwrap());
        let shown = show(&place, &run);
        // A sufficient answer ends the run; an insufficient one leads to another question. A late
        // answer changes nothing.
        let heard = match codes {
            [0, 6] => json!([true]),
            [6, 3] => json!([false]),
            _ => panic!("round {round}: {codes:?} {said:?}"),
        };
        assert_eq!(shown["state"]["log"], heard, "round {round}: {said:?}");
        assert_eq!(shown["answers"].as_array().unwrap().len(), 1, "round {round}");
    }
}

#[test]
fn an_answer_names_the_entry_that_asked() {
    let place = Place::new();
    let run = name(&paused(&place, "again", &[]));
    place.run_with(["reject", &run], [("USER", "ann")]);
    let shown = show(&place, &run);
    let answer = &shown["answers"][0];
    assert_eq!((&answer["key"], &answer["answer"]), (&json!("help@1.0"), &json!(false)));
    assert!(answer["by"].as_str().unwrap().starts_with("ann@"), "{answer}");
    let hash = answer["question_hash"].as_str().unwrap();
    assert_eq!(hash.len(), 64, "{answer}");
    let text = place.run(["runs", "show", &run]);
    for shown in ["help@1.0  false", "ann@", &hash[..12]] {
        assert!(text.stdout.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn an_unanswered_question_takes_the_route_for_its_deadline() {
    let place = Place::new();
    let asked = paused(&place, "late", &[]);
    let run = name(&asked);
    assert!(asked["questions"][0]["deadline"].is_string(), "{asked}");
    for late in [&["resume", &run, "--answer", "help=go_on"][..], &["approve", &run]] {
        let refused = place.run(late);
        assert_eq!(refused.code, 6, "{refused}");
        assert!(!refused.stderr.contains("your answer"), "{refused}");
        assert_eq!(open(&show(&place, &run)), ["help"], "{refused}");
    }
    let late = place.run(["resume", &run, "--answer", "help=go_on"]);
    assert_eq!(late.code, 6, "{late}");
    assert!(late.stderr.contains("its deadline passed at "), "{late}");

    let done = place.run(["resume", &run, "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]), (0, &json!({"note": "no answer"})), "{done}");
    let after = place.run(["resume", &run, "--answer", "help=go_on"]);
    assert!(after.code == 6 && after.stderr.contains("its deadline passed at "), "{after}");
}

/// Returns the list that the run has written so far, and why it is suspended.
fn log(object: &Value) -> (Vec<&str>, &str) {
    let log = object["state"]["log"].as_array().unwrap();
    let reason = object["reason"].as_str().unwrap_or_default();
    (log.iter().map(|it| it.as_str().unwrap()).collect(), reason)
}

#[test]
fn a_breakpoint_holds_at_every_visit_and_never_twice_at_one() {
    let place = Place::new();
    let first = paused(&place, "three_steps", &["--pause-before", "check"]);
    assert_eq!(log(&first), (vec!["draft"], "breakpoint before `check`"));
    let run = name(&first);
    let second = place.run(["resume", &run, "--output", "json"]);
    assert_eq!(second.code, 3, "{second}");
    let expected = (vec!["draft", "check", "draft"], "breakpoint before `check`");
    assert_eq!(log(&second.json()), expected);
    let done = place.run(["resume", &run, "--output", "json"]);
    let all = vec!["draft", "check", "draft", "check", "publish"];
    assert_eq!((done.code, log(&done.json())), (0, (all, "")), "{done}");
}

#[test]
fn flags_of_resume_replace_the_breakpoints_of_execute() {
    let place = Place::new();
    let first = paused(&place, "three_steps", &["--pause-after", "draft"]);
    assert_eq!(log(&first), (vec!["draft"], "breakpoint after `draft`"));
    let run = name(&first);
    let args = ["resume", &run, "--pause-before", "publish", "--output", "json"];
    let second = place.run(args).json();
    let expected = (vec!["draft", "check", "draft", "check"], "breakpoint before `publish`");
    assert_eq!(log(&second), expected);
    let done = place.run(["resume", &run, "--no-pause", "--output", "json"]);
    assert_eq!(done.code, 0, "{done}");
}

#[test]
fn a_breakpoint_at_no_node_is_exit_2_and_starts_nothing() {
    let place = Place::new();
    let args = ["-i", "brief=x", "--pause-before", "chekc", "--pause-after", "nothing"];
    let refused = place.run(["execute", &workflow("three_steps")].into_iter().chain(args));
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("did you mean `check`?"), "{refused}");
    assert!(refused.stderr.contains("--pause-after nothing: no such node"), "{refused}");
}

#[test]
fn a_message_is_read_once_before_the_next_step() {
    let place = Place::new();
    let run = name(&paused(&place, "steered", &["--pause-before", "second"]));
    let said = place.run_with(["message", &run, "be brief"], [("USER", "ann")]);
    assert_eq!(said.code, 0, "{said}");
    assert!(said.stdout.contains(&format!("continue with: graphrun resume {run}")), "{said}");
    let more = place.run(["message", &run, "7", "--to", "scores", "--output", "json"]);
    assert_eq!((more.code, &more.json()["to"]), (0, &json!("scores")), "{more}");

    let done = place.run(["resume", &run, "--output", "json"]);
    let heard = json!({"guidance": ["be brief"], "scores": [7], "log": [0, 1]});
    assert_eq!((done.code, &done.json()["state"]), (0, &heard), "{done}");
    assert!(done.stderr.contains("ann@"), "{done}");
    let events = place.run(["runs", "events", &run, "--output", "jsonl"]).stdout;
    assert_eq!(events.matches(r#""type":"message.received""#).count(), 2, "{events}");
    let late = place.run(["message", &run, "too late"]);
    assert_eq!(late.code, 6, "{late}");
}

#[test]
fn a_message_that_no_step_reads_is_named_at_the_end() {
    let place = Place::new();
    let workflow = "graphrun: 1\nname: last\nstate: { v: { type: '[string]', merge: append } }\ninbox: v\n\
                    start: b\nnodes: { b: { ask: 'B?', writes: v, then: end } }\n";
    fs::write(place.path("last.yaml"), workflow).unwrap();
    assert_eq!(place.run(["execute", "last.yaml", "--run-id", "m"]).code, 3);
    assert_eq!(place.run(["message", "m", "hello"]).code, 0);
    let done = place.run(["resume", "m", "--answer", r#"b="2""#]);
    assert_eq!(done.code, 0, "{done}");
    let warning = "1 message came during the last step, and no step reads it";
    assert!(done.stderr.contains(warning), "{done}");
}

#[test]
fn an_invalid_message_is_exit_2_and_changes_nothing() {
    let place = Place::new();
    let run = name(&paused(&place, "steered", &["--pause-before", "second"]));
    for (args, part) in [
        (&["message", &run, "x", "--to", "guidence"][..], "did you mean `guidance`?"),
        (&["message", &run, "x", "--to", "scores"], "takes JSON"),
        (&["message", &run, "1.5", "--to", "scores"], "does not fit `scores`"),
    ] {
        let refused = place.run(args);
        assert!(refused.code == 2 && refused.stderr.contains(part), "{refused}");
    }
    let deaf = name(&paused(&place, "again", &[]));
    let refused = place.run(["message", &deaf, "hello"]);
    assert!(refused.code == 2 && refused.stderr.contains("has no inbox"), "{refused}");
    let done = place.run(["resume", &run, "--output", "json"]);
    assert_eq!(done.json()["state"]["log"], json!([0, 0]), "{done}");
}
