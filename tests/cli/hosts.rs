//! Commands on this machine, outside of a sandbox: permission, approval and environment.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt as _},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place, workflow},
    docs::page::Page,
    support::git::git,
};

/// Runs a workflow with this configuration of the user.
fn run_configured(place: &Place, text: &str) -> Ended {
    let folder = place.path("own/graphrun");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text).unwrap();
    let own = place.path("own").display().to_string();
    place.run_with(execute("hosts", "x", &[]), [("XDG_CONFIG_HOME", own.as_str())])
}

fn execute(name: &str, brief: &str, more: &[&str]) -> Vec<String> {
    let workflow = workflow(name);
    let brief = format!("brief={brief}");
    let args = ["execute", &workflow, "-i", &brief, "--output", "json"];
    args.into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
}

const ALLOWED: &[&str] = &["--allow-host", "here"];

/// Checks that a command was refused before anything started.
fn refused(place: &Place, ended: &Ended, expected: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    for expected in expected {
        assert!(ended.stderr.contains(expected), "{expected}: {ended}");
    }
    assert!(!place.path(".graphrun").exists(), "something was started");
}

/// The only open question of a run that is paused.
fn question(ended: &Ended) -> Value {
    let report = ended.json();
    assert_eq!((ended.code, report["questions"].as_array().unwrap().len()), (3, 1), "{ended}");
    report["questions"][0].clone()
}

fn run_of(ended: &Ended) -> String {
    ended.json()["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_declared_command_needs_the_operator() {
    let place = Place::new();
    let expected = [
        "hosts.yaml` runs commands on this machine",
        "here: `printf %s|%s|%s …` (asks each time)",
        "`--allow-host here`",
    ];
    refused(&place, &place.run(execute("hosts", "x", &[])), &expected);
    let other = execute("hosts", "x", &["--allow-host", "there"]);
    refused(&place, &place.run(other), &expected);
    // Neither the environment nor an environment file of the folder allows a host.
    fs::write(place.path(".env"), "GRAPHRUN_ALLOW_HOST=here\n").unwrap();
    let ended = place.run_with(execute("hosts", "x", &[]), [("GRAPHRUN_ALLOW_HOST", "here")]);
    refused(&place, &ended, &expected);
}

#[test]
fn a_file_of_the_folder_allows_no_host_even_if_it_is_trusted() {
    let place = Place::new();
    fs::write(place.path("graphrun.toml"), "[hosts.here]\ncommands = [\"printf\"]\n").unwrap();
    let expected =
        ["graphrun.toml:1:8: only your own configuration allows commands on this machine"];
    refused(&place, &place.run(execute("hosts", "x", ALLOWED)), &expected);
    let trusted = place.run(["trust", "--yes"]);
    assert_eq!(trusted.code, 0, "{trusted}");
    refused(&place, &place.run(execute("hosts", "x", ALLOWED)), &expected);
}

#[test]
fn the_own_configuration_allows_single_commands() {
    let place = Place::new();
    let run = |text: &str| run_configured(&place, text);
    refused(
        &place,
        &run("[hosts.here]\ncommands = [\"git push\"]\n"),
        &["the operator does not allow `printf %s|%s|%s` on the host `here`", "`[hosts.here]`"],
    );
    refused(
        &place,
        &run("[hosts.here]\ncommands = [\"sudo printf\"]\nsecret = []\n"),
        &["`sudo` runs its arguments as a command", "did you mean `secrets`?"],
    );
    question(&run("[hosts.here]\ncommands = [\"printf\"]\n"));
    // `approve` of the configuration does not make a workflow less strict.
    question(&run("[hosts.here]\ncommands = [\"printf\"]\napprove = \"never\"\n"));
}

#[test]
fn a_person_sees_the_exact_arguments_and_approves_one_call() {
    let place = Place::new();
    let asked = place.run(execute("hosts", "it's a b", ALLOWED));
    let question = question(&asked);
    assert_eq!(
        question["show"],
        json!({ "host": "here", "command": ["printf", "%s|%s|%s", "it's a b", "--", "it's a b"] })
    );
    let prompt = question["prompt"].as_str().unwrap();
    assert!(prompt.ends_with("\nprintf '%s|%s|%s' 'it'\\''s a b' -- 'it'\\''s a b'"), "{prompt}");
    let run = run_of(&asked);
    // No run keeps the permission.
    let without = place.run(["approve", &run]);
    assert_eq!(without.code, 5, "{without}");
    assert!(without.stderr.contains("`--allow-host here`"), "{without}");
    let done = place.run(["approve", &run, "--output", "json", "--allow-host", "here"]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.json()["state"]["printed"], "it's a b|--|it's a b");
    let events = place.run(["runs", "events", &run, "--output", "jsonl"]).stdout;
    assert!(events.contains("runs on the host `here`: printf"), "{events}");
}

#[test]
fn a_person_sees_the_whole_command_without_a_terminal() {
    let place = Place::new();
    let repository = place.path("repo");
    fs::create_dir(&repository).unwrap();
    fs::write(repository.join("kept.txt"), "kept\n").unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    git(&repository, &["add", "--all"]);
    git(&repository, &["commit", "--quiet", "--message", "first"]);
    let text = "graphrun: 1\nname: feeding\nstate: { out: string, from: string }\ninput: from\noutput: out\n\
                folders: { repo: { from: from, git: true, branch: '\"work/\" + run.id' } }\n\
                hosts: { here: { allow: [cat], folder: repo, secrets: [FEED_TOKEN], approve: each } }\n\
                start: feed\nnodes:\n  \
                feed: { run: [cat], in: here, stdin: '\"to be printed\"', writes: { out: stdout }, then: end }\n";
    fs::write(place.path("w.yaml"), text).unwrap();
    let secret = [("FEED_TOKEN", "canary-of-feeds-83b0")];
    let args = ["execute", "w.yaml", "-i", "from=repo", "--run-id", "one", "--output", "json"];
    let asked = place.run_with(args.iter().chain(ALLOWED), secret);
    let folder = question(&asked)["show"]["folder"].clone();
    let shown = format!(
        "Run this command on this machine? cat\n  {{\n    \"host\": \"here\",\n    \"command\": [\n      \
         \"cat\"\n    ],\n    \"folder\": {folder},\n    \"stdin\": \"to be printed\",\n    \"secrets\": [\n      \
         \"FEED_TOKEN\"\n    ]\n  }}\n"
    );
    let question = format!("? feed asks: {shown}");
    assert!(asked.stderr.contains(&question), "{asked}");
    let listed = place.run(["runs", "show", "one"]);
    assert!(listed.stdout.contains(&question), "{listed}");
    let done = place.run_with(["approve", "one"].iter().chain(ALLOWED), secret);
    assert_eq!(done.code, 0, "{done}");
    let answered = format!("! feed asked: {shown}  your answer: true\n");
    assert!(done.stderr.contains(&answered), "{done}");
    assert!(!done.to_string().contains("canary"), "{done}");
}

#[test]
fn a_declined_command_does_not_run() {
    let place = Place::new();
    let run = run_of(&place.run(execute("hosts", "x", ALLOWED)));
    let done = place.run(["reject", &run, "--output", "json", "--allow-host", "here"]);
    assert_eq!(done.json()["state"], json!({ "printed": "", "reason": "declined" }), "{done}");
    let events = place.run(["runs", "events", &run, "--output", "jsonl"]).stdout;
    assert!(!events.contains("runs on the host"), "{events}");
}

/// The state can change while a question is open. The answer belongs to the arguments that were shown.
#[test]
fn an_answer_approves_no_other_arguments() {
    let place = Place::new();
    let asked = place.run(execute("hosts", "shown", ALLOWED));
    let run = run_of(&asked);
    let first = question(&asked)["key"].clone();
    let changed = place.run(["runs", "update", &run, "--set", "brief=\"other\""]);
    assert_eq!(changed.code, 0, "{changed}");
    let answer = format!("{}=true", first.as_str().unwrap());
    let late = place.run(["resume", &run, "--answer", &answer, "--allow-host", "here"]);
    assert_eq!(late.code, 2, "{late}");
    let again = place.run(["resume", &run, "--output", "json", "--allow-host", "here"]);
    let second = question(&again);
    assert_ne!(second["key"], first);
    assert_eq!(second["show"]["command"][2], "other");
}

/// An approval belongs to the host as it was declared, and to one run.
#[test]
fn an_approval_for_a_run_holds_for_nothing_else() {
    let place = Place::new();
    let text = "graphrun: 1\nname: twice\nstate: { a: string, b: string }\noutput: [a, b]\n\
                hosts: { here: { allow: [printf], approve: once } }\nstart: first\nnodes:\n  \
                first: { run: [printf, x], in: here, writes: { a: stdout }, then: second }\n  \
                second: { run: [printf, y], in: here, writes: { b: stdout }, then: end }\n";
    fs::write(place.path("w.yaml"), text).unwrap();
    let begun = |id: &str| {
        let args = ["execute", "w.yaml", "--run-id", id, "--output", "json"];
        question(&place.run(args.iter().chain(ALLOWED)));
        let args = ["approve", id, "--pause-before", "second", "--output", "json"];
        let paused = place.run(args.iter().chain(ALLOWED));
        assert_eq!((paused.code, &paused.json()["questions"]), (3, &json!([])), "{paused}");
    };
    let resume = |id: &str| place.run(["resume", id, "--output", "json"].iter().chain(ALLOWED));
    begun("one");
    let forked =
        place.run(["fork", "one", "--run-id", "two", "--output", "json"].iter().chain(ALLOWED));
    question(&forked);
    assert_eq!(resume("one").json()["state"], json!({ "a": "x", "b": "y" }));
    begun("three");
    fs::write(place.path("w.yaml"), text.replace("[printf]", "[printf, date]")).unwrap();
    question(&resume("three"));
}

#[test]
fn a_value_is_no_option() {
    let place = Place::new();
    let done = place.run(execute("hosts", "-v", ALLOWED));
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(
        done.json()["state"],
        json!({
            "printed": "",
            "reason": "the value of `brief` is no argument: it begins with `-`, so the program would take it for an option",
        })
    );
}

/// A repository with a commit on `main`, and a bare one that it pushes to.
fn repository_with_remote(place: &Place) -> (PathBuf, PathBuf) {
    let folder = place.path("repo");
    let remote = place.path("remote.git");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("kept.txt"), "kept\n").unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "first"]);
    git(&folder, &["clone", "--quiet", "--bare", ".", remote.to_str().unwrap()]);
    git(&folder, &["remote", "add", "origin", remote.to_str().unwrap()]);
    (folder, remote)
}

/// Writes a program that the tests put in place of another one.
fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A `gh` that keeps one request for a branch, and kills graphrun once it has made it.
const GH: &str = r#"#!/bin/sh
cd "$HOME" || exit 1
case "$1 $2" in
  "pr create")
    if test -e request; then echo "a pull request already exists" >&2; exit 1; fi
    echo "$4" >> request
    kill -9 "$PPID"
    sleep 60 ;;
  "pr view") test -e request && echo "https://example.org/pull/1" ;;
esac
"#;

/// The example of `docs/workflow.md`.
#[test]
fn a_pull_request_is_opened_once_also_after_a_kill() {
    let place = Place::new();
    let (_, remote) = repository_with_remote(&place);
    let page = Page::read("docs/workflow.md");
    let blocks = page.blocks();
    let example = blocks.iter().find(|it| it.code.contains("[gh, pr, create,")).unwrap().code;
    let change = "  change: { write_files: { folder: repo, files: '[{ path: \"new.txt\", content: title }]' }, then: commit }";
    let text = example
        .replace("start: commit\nnodes:\n", &format!("start: change\nnodes:\n{change}\n"))
        .replace("folder: repo, secrets", "folder: repo, approve: once, secrets");
    fs::write(place.path("publish.yaml"), text).unwrap();
    let programs = place.path("programs");
    fs::create_dir(&programs).unwrap();
    write_program(&programs.join("gh"), GH);
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    let secret = ("GH_TOKEN", "canary-of-requests-7c21");
    let variables = [("PATH", path.as_str()), ("HOME", home.to_str().unwrap()), secret];

    let inputs = ["-i", "repo_path=repo", "-i", "title=Add a file", "--run-id", "one"];
    let allowed = ["--output", "json", "--allow-host", "here"];
    let asked =
        place.run_with([&["execute", "publish.yaml"][..], &inputs, &allowed].concat(), variables);
    assert_eq!(question(&asked)["show"]["command"], json!(["git", "push", "origin", "HEAD"]));
    let mut approve = place.command([&["approve", "one"][..], &allowed].concat());
    let killed = approve.envs(variables).output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let done = place.run_with([&["resume", "one"][..], &allowed].concat(), variables);
    let report = done.json();
    assert_eq!((done.code, &report["state"]["url"]), (0, &json!("https://example.org/pull/1\n")));
    assert_eq!(report["state"]["reason"], "published");
    assert_eq!(fs::read_to_string(home.join("request")).unwrap(), "Add a file\n");
    let pushed = git(&remote, &["log", "--branches", "--format=%s", "--max-count=1"]);
    assert_eq!(pushed, "Add a file");
}

#[test]
fn a_command_pushes_with_its_secret_and_without_hooks() {
    let place = Place::new();
    let (folder, remote) = repository_with_remote(&place);
    write_program(&folder.join(".git/hooks/pre-push"), "#!/bin/sh\necho hooked >&2\nexit 1\n");

    let allowed = ["--run-id", "one", "--allow-host", "remote", "--allow-host", "keys"];
    let unset = place.run(execute("pushes", "x", &allowed));
    refused(&place, &unset, &["needs the environment variable `PUSH_TOKEN`", "set `PUSH_TOKEN`"]);
    let secret = [("PUSH_TOKEN", "canary-of-pushes-51f2")];
    let asked = place.run_with(execute("pushes", "x", &allowed), secret);
    let show = question(&asked)["show"].clone();
    assert_eq!(show["command"], json!(["git", "push", "--quiet", "origin", "work/one"]));
    assert!(show["folder"].as_str().unwrap().ends_with("/repo"), "{show}");
    // The printed command repeats what holds for one process only.
    let shown = asked.json()["resume"].as_str().unwrap().to_owned();
    let flags = " --allow-host remote --allow-host keys";
    assert!(shown.ends_with(flags), "{shown}");
    // A process without them knows them from the run.
    let shown = place.run(["runs", "show", "one", "--output", "json"]);
    assert!(shown.json()["resume"].as_str().unwrap().ends_with(flags), "{shown}");
    // `once`: the second command of the host needs no answer, also in another process.
    let args =
        |verb| [verb, "one", "--output", "json", "--allow-host", "remote", "--allow-host", "keys"];
    let paused =
        place.run_with(args("approve").into_iter().chain(["--pause-before", "find"]), secret);
    assert_eq!((paused.code, &paused.json()["questions"]), (3, &json!([])), "{paused}");
    let done = place.run_with(args("resume"), secret);
    assert_eq!(
        done.json()["state"],
        json!({ "branch": "work/one\n", "code": 0, "token": "[redacted]\n" }),
        "{done}"
    );
    assert!(!done.to_string().contains("canary"), "{done}");
    let pushed = git(&remote, &["log", "-1", "--format=%s", "work/one"]);
    assert_eq!(pushed, "Add new.txt");
}
