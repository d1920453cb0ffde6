//! Folders with a history: a workflow that changes a repository, in a worktree of the run. These tests need git.

use std::fs;

use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place, workflow},
    support::git::git,
};

const FILES: &str = r#"files=[{"path": "src/new.txt", "content": "new\n"}]"#;

/// Makes a repository with a branch `review` that is not checked out.
fn repository(place: &Place) {
    let folder = place.path("repo");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/kept.txt"), "kept\n").unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "first"]);
    git(&folder, &["branch", "review"]);
}

fn execute<'a>(workflow: &'a str, run: &'a str) -> Vec<&'a str> {
    let input = ["-i", "repo_path=repo", "-i", FILES];
    [&["execute", workflow, "--run-id", run, "--output", "json"][..], &input].concat()
}

fn in_repository(place: &Place, arguments: &[&str]) -> String {
    git(&place.path("repo"), arguments)
}

/// The result of a run that must be done.
pub(crate) fn done(ended: &Ended) -> Value {
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    report["state"].clone()
}

fn worktrees(place: &Place) -> usize {
    in_repository(place, &["worktree", "list"]).lines().count() - 1
}

#[test]
fn a_run_changes_a_repository_on_its_own_branch() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    let state = done(&place.run(execute(&workflow, "one")));
    assert_eq!(state["listing"], "./src/kept.txt\n./src/new.txt\nkept.txt\nnew.txt\n");
    let patch = state["patch"].as_str().unwrap();
    assert!(patch.contains("+NEW") && patch.contains("+new"), "{patch}");
    let changed = in_repository(&place, &["diff", "--name-status", "main", "graphrun/one"]);
    let expected = "D\tsrc/kept.txt\nA\tsrc/new.txt\nA\tsrc/upper.txt";
    assert_eq!(changed, expected, "only declared changes come back");
    let tip = in_repository(&place, &["rev-parse", "graphrun/one"]);
    assert_eq!(state["id"], tip);
    assert_eq!((&state["changed"], &state["merged"]), (&json!(true), &json!(tip)));
    assert_eq!(in_repository(&place, &["rev-parse", "review"]), tip);
    let message = in_repository(&place, &["log", "-1", "--format=%B", "review"]);
    assert!(message.starts_with("Add src/new.txt\n\nGraphrun-Run: one\n"), "{message}");
    // The checkout of the user is as it was.
    assert_eq!(in_repository(&place, &["status", "--porcelain", "--branch"]), "## main");

    // A second run starts from the same commit, and its target has moved on.
    let state = done(&place.run(execute(&workflow, "two")));
    assert_eq!(state["outcome"], "merged");
    let other = FILES.replace("new\\n", "other\\n");
    let args = [&execute(&workflow, "three")[..4], &["--output", "json", "-i", "repo_path=repo"]];
    let state = done(&place.run([&args.concat()[..], &["-i", &other]].concat()));
    assert_eq!(state["outcome"], "conflict");
}

#[test]
fn a_removed_run_takes_its_worktree_with_it() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    for run in ["one", "two"] {
        done(&place.run(execute(&workflow, run)));
    }
    assert_eq!(worktrees(&place), 2);
    let removed = place.run(["runs", "rm", "one"]);
    assert_eq!((removed.code, worktrees(&place)), (0, 1), "{removed}");
    in_repository(&place, &["rev-parse", "--verify", "graphrun/one"]);
    let pruned = place.run(["runs", "prune", "--older-than", "0"]);
    assert_eq!((pruned.code, worktrees(&place)), (0, 0), "{pruned}");
    let doctor = || place.run(["doctor"]).stdout;
    assert!(!doctor().contains("worktrees without a run"), "{}", doctor());

    done(&place.run(execute(&workflow, "three")));
    fs::remove_dir_all(place.path(".graphrun")).unwrap();
    let told = doctor();
    assert!(told.contains("worktrees without a run") && told.contains("run-three/repo"), "{told}");

    done(&place.run(execute(&workflow, "four")));
    fs::rename(place.path("repo"), place.path("moved")).unwrap();
    let removed = place.run(["runs", "rm", "four"]);
    assert_eq!(removed.code, 0, "{removed}");
    let expected = "does not exist, so its branch `graphrun/four` stays";
    assert!(removed.stderr.replace("\n  ", " ").contains(expected), "{removed}");
}

/// No later command finds the worktree of such a run.
#[test]
fn a_run_in_memory_leaves_its_commits_and_no_worktree() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    let in_memory = |run| [&execute(&workflow, run)[..], &["--db", "memory:"]].concat();
    let ended = place.run(in_memory("one"));
    done(&ended);
    assert_eq!(ended.json()["branches"][0]["branch"], "graphrun/one");
    assert_eq!(worktrees(&place), 0, "{ended}");
    in_repository(&place, &["rev-parse", "--verify", "graphrun/one"]);

    // Without a commit there is no branch either. The files of a run that failed may be all that is left of its work.
    let run = |command: &str| {
        fs::write(place.path("w.yaml"), COMMAND.replace("COMMAND", command)).unwrap();
        let arguments = ["execute", "w.yaml", "-i", "repo_path=repo", "--run-id", "two"];
        place.run([&arguments[..], &["--db", "memory:", "--output", "json"]].concat())
    };
    let ended = run("true");
    done(&ended);
    assert_eq!((&ended.json()["branches"], worktrees(&place)), (&Value::Null, 0));
    let branches = ["for-each-ref", "--format=%(refname:short)", "refs/heads/graphrun"];
    assert_eq!(in_repository(&place, &branches), "graphrun/one");
    let failed = run("false");
    assert_eq!((failed.code, worktrees(&place)), (1, 1), "{failed}");
    let remedy = "the worktree of `repo` stays; remove it by: git -C ";
    assert!(failed.stderr.replace("\n  ", " ").contains(remedy), "{failed}");
}

/// A command in a repository.
const COMMAND: &str = "graphrun: 1
name: command
state: { repo_path: string }
input: repo_path
sandboxes: { box: { time: 20s } }
folders: { repo: { from: repo_path, git: true } }
start: only
nodes:
  only: { run: [COMMAND], in: box, folder: repo, then: end }
";

#[test]
fn changes_that_are_not_committed_are_no_part_of_a_run() {
    let place = Place::new();
    repository(&place);
    let clean = place.run(execute(&workflow("repository"), "one"));
    assert!(!clean.stderr.contains("not committed"), "{clean}");
    let changed = in_repository(&place, &["ls-files"]).lines().next().unwrap().to_owned();
    fs::write(place.path("repo").join(&changed), "mine\n").unwrap();
    let noted = place.run(execute(&workflow("repository"), "two"));
    done(&noted);
    let commit = &in_repository(&place, &["rev-parse", "HEAD"])[..12];
    let expected =
        format!("changes that are not committed; the run starts from the commit {commit}");
    assert!(noted.stderr.replace("\n  ", " ").contains(&expected), "{noted}");
    assert_eq!(fs::read_to_string(place.path("repo").join(&changed)).unwrap(), "mine\n");
    let changed = in_repository(&place, &["diff", "--name-only", "main", "graphrun/two"]);
    assert!(!changed.contains("mine"), "{changed}");
}

/// A copy has at most 64 MiB.
#[test]
fn a_command_gets_a_large_repository_without_a_copy() {
    let place = Place::new();
    repository(&place);
    let large = fs::File::create(place.path("repo/large")).unwrap();
    large.set_len(80 << 20).unwrap();
    in_repository(&place, &["add", "--all"]);
    in_repository(&place, &["commit", "--quiet", "--message", "large"]);
    let state = done(&place.run(execute(&workflow("repository"), "one")));
    let listing = state["listing"].as_str().unwrap();
    assert!(listing.contains("./large\n"), "{listing}");
    let changed = in_repository(&place, &["diff", "--name-status", "main", "graphrun/one"]);
    assert_eq!(changed, "D\tsrc/kept.txt\nA\tsrc/new.txt\nA\tsrc/upper.txt");
}

#[test]
fn a_repository_that_cannot_be_used_starts_nothing() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    fs::create_dir(place.path("repo/below")).unwrap();
    for (path, reason) in [
        ("none", "No such file"),
        ("repo/below", "below the top folder"),
        (".", "not a git repository"),
    ] {
        let path = format!("repo_path={path}");
        let args = ["execute", &workflow, "-i", &path, "-i", FILES];
        let refused = place.run(args);
        assert_eq!(refused.code, 2, "{refused}");
        assert!(refused.stderr.contains(reason), "{refused}");
    }
    in_repository(&place, &["branch", "graphrun/taken"]);
    let refused = place.run(execute(&workflow, "taken"));
    assert!(refused.stderr.contains("`graphrun/taken` exists already"), "{refused}");
    in_repository(&place, &["branch", "graphrun/above/below"]);
    let refused = place.run(execute(&workflow, "above"));
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("`graphrun/above/below`"), "{refused}");
    let listed = place.run(["runs", "list", "--output", "json"]);
    assert_eq!(listed.stdout.trim(), "[]", "{listed}");
}

#[test]
fn a_run_with_folders_is_not_forked() {
    let place = Place::new();
    repository(&place);
    done(&place.run(execute(&workflow("repository"), "one")));
    let refused = place.run(["fork", "one@1"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("`fork` and `chat` do not support"), "{refused}");
}

#[test]
fn a_secret_stops_the_run_before_the_commit() {
    let place = Place::new();
    repository(&place);
    // Keys are removed from inputs and answers; a command can still make one.
    let text = fs::read_to_string(workflow("repository")).unwrap();
    let text = text.replace("ls src;", "printf sk-%s abcdefghij1234567890klmnop >src/key;");
    fs::write(place.path("w.yaml"), text).unwrap();
    let failed = place.run(execute("w.yaml", "one"));
    assert_eq!(failed.code, 1, "{failed}");
    let reason = failed.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("contains an API key; nothing was committed"), "{reason}");
    let commits = in_repository(&place, &["rev-list", "--count", "main..graphrun/one"]);
    assert_eq!(commits, "0");
}

#[test]
fn a_killed_run_makes_no_second_commit() {
    let workflow = workflow("repository");
    // After the work of each node, before its result is durable; and between steps.
    let after_work = (1..=5).map(|it| format!("task.after_run=abort@{it}"));
    let between = [1, 3, 5].map(|it| format!("barrier.after_commit=abort@{it}"));
    for fault in after_work.chain(between) {
        let place = Place::new();
        repository(&place);
        crate::cli::killed::killed(&place, &execute(&workflow, "one"), &fault);
        // Another process finds the worktree, or makes it again once it is lost.
        let state = done(&place.run(["resume", "one", "--output", "json"]));
        let commits = in_repository(&place, &["rev-list", "main..graphrun/one"]);
        assert_eq!(
            (state["id"].as_str(), &state["changed"]),
            (Some(&*commits), &json!(true)),
            "{fault}"
        );
        assert_eq!(in_repository(&place, &["rev-parse", "review"]), commits, "{fault}");
        assert_eq!(worktrees(&place), 1);
    }
}

#[test]
fn a_lost_worktree_and_a_lost_repository_are_named() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    let pause = [&execute(&workflow, "one")[..], &["--pause-before", "commit"]].concat();
    assert_eq!(place.run(pause).code, 3);
    fs::rename(place.path("repo"), place.path("moved")).unwrap();
    let resume = ["resume", "one", "--output", "json"];
    let gone = place.run(resume);
    let reason = gone.json()["reason"].as_str().unwrap().to_owned();
    let expected =
        format!("the repository `{}` of the run does not exist", place.path("repo").display());
    assert!(gone.code == 5 && reason.contains(&expected), "{gone}");
    assert!(reason.contains("put the repository back at this path, then resume"), "{gone}");

    fs::rename(place.path("moved"), place.path("repo")).unwrap();
    let list = in_repository(&place, &["worktree", "list"]);
    let worktree = list.lines().last().unwrap().split(' ').next().unwrap().to_owned();
    fs::remove_dir_all(&worktree).unwrap();
    let resumed = place.run(resume);
    done(&resumed);
    let warned = resumed.stderr.replace("\n  ", " ");
    assert!(
        warned.contains("was gone or replaced; it is made again from its branch")
            && warned.contains(&worktree),
        "{resumed}"
    );
}

#[test]
fn a_lost_worktree_is_made_again_at_resume() {
    let place = Place::new();
    repository(&place);
    let workflow = workflow("repository");
    crate::cli::killed::killed(&place, &execute(&workflow, "one"), "task.after_run=abort@4");
    fs::remove_dir_all(place.path(".XDG_STATE_HOME/graphrun/folders")).unwrap();
    let state = done(&place.run(["resume", "one", "--output", "json"]));
    let commits = in_repository(&place, &["rev-list", "main..graphrun/one"]);
    assert_eq!(state["id"], commits);
}
