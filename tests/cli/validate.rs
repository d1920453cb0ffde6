//! `graphrun validate` and `graphrun explain`: diagnostics, for people and for programs.

use std::fs;

use serde_json::json;

use crate::cli::program::{Place, keys, workflow};

#[test]
fn diagnostics_are_drawn_at_their_place_or_listed_as_json() {
    let place = Place::new();
    let drawn = place.run(["validate", &workflow("wrong"), &workflow("two_steps")]);
    // One line for all diagnostics of all workflows, outside of the result.
    assert_eq!(drawn.stderr, "help: every code is explained: `graphrun explain GR010`\n");
    assert_eq!(drawn.code, 2, "{drawn}");
    for part in ["secnd", "wrong.yaml:9:", "did you mean `second`", "two_steps.yaml: ok"] {
        assert!(drawn.stdout.contains(part), "{part} is missing in: {}", drawn.stdout);
    }
    let listed = place.run(["validate", &workflow("wrong"), "--output", "json"]).json();
    let diagnostic = listed.as_array().unwrap().iter().find(|it| it["line"] == 9).unwrap();
    let expected = ["code", "severity", "message", "file", "line", "column", "help"];
    assert_eq!((keys(diagnostic), &diagnostic["severity"]), (expected.to_vec(), &json!("error")));
    let refused = place.run(["execute", &workflow("wrong"), "-i", "brief=x"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("secnd"), "{refused}");
    assert!(refused.stderr.ends_with("`graphrun explain GR010`\n"), "{refused}");
    let missing = place.run(["validate", "nowhere.yaml", &workflow("two_steps")]);
    assert!(missing.code == 2 && missing.stdout.contains("two_steps.yaml: ok"), "{missing}");
}

#[test]
fn services_read_paths_below_the_current_folder() {
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
    fs::write(place.path("latin.yaml"), b"graphrun: 1\nname: caf\xe9\n").unwrap();
    for form in ["json", "sarif", "github"] {
        let unread = place.run(["validate", "latin.yaml", "--output", form]);
        assert!(unread.code == 2 && unread.stdout.contains("cannot be read"), "{unread}");
    }
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
    insta::assert_snapshot!(place.run(["explain", "GR043"]), @r"
    exit 2
    stdout:
    stderr:
    error: there is no code `GR043`
    help: did you mean `GR040`?
    ");
}

#[test]
fn a_folder_gives_its_workflows_and_test_cases() {
    let place = Place::new();
    for folder in ["flows/deep", "flows/.hidden", "flows/node_modules"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    let right = fs::read_to_string(workflow("two_steps")).unwrap();
    let wrong = fs::read_to_string(workflow("wrong")).unwrap();
    for (name, text) in [
        ("a.yaml", right.as_str()),
        ("deep/b.yml", wrong.as_str()),
        (".hidden/c.yaml", wrong.as_str()),
        ("node_modules/d.yaml", wrong.as_str()),
        ("compose.yaml", "services: [\n"),
        ("notes.txt", "graphrun: 1\n"),
        ("a.test.yaml", "graphrun_test: 1\ncases:\n  - nmae: it runs\n"),
        ("deep/b.test.yaml", "graphrun_test: 1\nworkflow: b.yml\ncases: [{ name: x }]\n"),
    ] {
        fs::write(place.path(&format!("flows/{name}")), text).unwrap();
    }
    let checked = place.run(["validate", "flows"]);
    assert_eq!(checked.code, 2, "{checked}");
    let verdicts: Vec<&str> =
        checked.stdout.lines().filter(|it| it.starts_with("flows/")).collect();
    assert_eq!(verdicts.len(), 4, "{checked}");
    assert!(checked.stdout.contains("flows/a.yaml: ok\n"), "{checked}");
    assert!(checked.stdout.contains("nmae"), "{checked}");
    // The mistakes of a workflow are listed once, although its cases do not load either.
    assert_eq!(checked.stdout.matches("there is no node `secnd`").count(), 1, "{checked}");
    let summary = checked.stdout.lines().last().unwrap();
    assert!(summary.starts_with("4 files: ") && summary.contains(" errors"), "{checked}");
    let alone = place.run(["validate", "flows/deep/b.test.yaml"]);
    assert!(alone.stdout.contains("secnd"), "{alone}");
    fs::create_dir(place.path("empty")).unwrap();
    let empty = place.run(["validate", "empty"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (2, ""));
    assert!(empty.stderr.contains("there is no workflow below `empty`"), "{empty}");
}

#[test]
fn a_hint_fails_nothing() {
    let place = Place::new();
    let page = graphrun::diagnostic::Code::find("GR139").unwrap();
    fs::write(place.path("twice.yaml"), page.wrong()).unwrap();
    let checked = place.run(["validate", "--strict", "twice.yaml"]);
    assert_eq!(checked.code, 0, "{checked}");
    assert!(checked.stdout.ends_with("twice.yaml: 1 hint\n"), "{checked}");
    let level = |form: &str| place.run(["validate", "twice.yaml", "--output", form]).stdout;
    assert!(level("github").starts_with("::notice "));
    assert!(level("sarif").contains("\"level\": \"note\""));
    assert!(level("json").contains("\"severity\": \"hint\""));
}

/// A server in place of OpenAI has the protocol `chat`, which has these settings.
#[test]
fn a_provider_at_another_address_keeps_its_protocol() {
    let place = Place::new();
    let text = r#"
graphrun: 1
name: seeded
state: { question: string, answer: string }
input: question
output: answer
agents: { x: { model: openai/gpt-4.1, seed: 3, stop: END } }
start: a
nodes:
  a: { agent: x, prompt: { text: "{{ question }}" }, writes: answer, then: end }
"#;
    fs::write(place.path("seeded.yaml"), text).unwrap();
    let own = place.run(["validate", "--strict", "seeded.yaml"]);
    assert!(own.code == 2 && own.stdout.contains("GR045"), "{own}");
    let elsewhere = place.run_with(
        ["validate", "--strict", "seeded.yaml"],
        [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")],
    );
    assert_eq!(elsewhere.code, 0, "{elsewhere}");
}
