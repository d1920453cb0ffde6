//! Nested runs that work side by side in separate worktrees, and the merge of their commits.

use std::fs;

use serde_json::{Value, json};

use crate::{
    cli::{
        folders::done,
        program::{Place, workflow},
    },
    support::{git::git, some_of, takes_all},
};

fn repository(place: &Place) {
    let folder = place.path("repo");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("kept.txt"), "kept\n").unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "first"]);
}

fn changes(paths: &[&str]) -> String {
    let change = |(at, path): (usize, &&str)| json!({"path": path, "content": format!("{at}\n")});
    let changes: Vec<Value> = paths.iter().enumerate().map(change).collect();
    format!("changes={}", json!(changes))
}

fn execute(workflow: &str, paths: &[&str]) -> Vec<String> {
    let changes = changes(paths);
    let words = ["execute", workflow, "--output", "json", "--run-id", "one"];
    let input = ["-i", "repo_path=repo", "-i", &changes];
    words.into_iter().chain(input).map(str::to_owned).collect()
}

/// The tree of the branch, and the messages of its commits without the lines about the run.
fn history(place: &Place) -> String {
    let repo = place.path("repo");
    let tree = git(&repo, &["rev-parse", "graphrun/one^{tree}"]);
    let log = git(&repo, &["log", "--first-parent", "--format=%s", "main..graphrun/one"]);
    format!("{tree}\n{log}")
}

/// Nothing of a task is left: no worktree, no branch.
fn assert_nothing_left(place: &Place, about: &str) {
    let repo = place.path("repo");
    let worktrees = git(&repo, &["worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 2, "{about}: {worktrees}");
    let branches =
        git(&repo, &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/graphrun"]);
    let expected = "refs/graphrun/one/repo\nrefs/heads/graphrun/one\nrefs/heads/main";
    assert_eq!(branches, expected, "{about}");
}

#[test]
fn items_have_separate_files_and_merge_in_their_order() {
    let place = Place::new();
    repository(&place);
    let state = done(&place.run(execute(&workflow("worktrees"), &["b.txt", "a.txt", "c/d.txt"])));
    assert_eq!(state["conflicts"], json!([]));
    let repo = place.path("repo");
    assert_eq!(state["head"], git(&repo, &["rev-parse", "graphrun/one"]));
    let log = git(&repo, &["log", "--first-parent", "--format=%s", "main..graphrun/one"]);
    assert_eq!(log, "Merge a part\nMerge a part\nAdd b.txt, beside b.txt kept.txt");
    let subjects = git(&repo, &["log", "--no-merges", "--format=%s", "main..graphrun/one"]);
    assert!(subjects.contains("Add a.txt, beside a.txt kept.txt"), "{subjects}");
    assert_nothing_left(&place, "done");
    assert_eq!(place.run(["runs", "rm", "one"]).code, 0);
    assert_eq!(git(&repo, &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_commit_in_conflict_is_left_out_and_kept() {
    let place = Place::new();
    repository(&place);
    let state = done(&place.run(execute(&workflow("worktrees"), &["a.txt", "a.txt", "b.txt"])));
    let conflict = &state["conflicts"][0];
    assert_eq!(
        (&conflict["commit"], &conflict["files"]),
        (&state["commits"][1], &json!(["a.txt"]))
    );
    let repo = place.path("repo");
    assert_eq!(git(&repo, &["show", "graphrun/one:a.txt"]), "0");
    assert_eq!(git(&repo, &["show", "graphrun/one:b.txt"]), "2");
    let branches = git(&repo, &["branch", "--list", "--format=%(objectname)", "graphrun/one-*"]);
    assert_eq!(state["commits"][1], branches, "its branch is kept");
}

#[test]
fn a_conflict_that_no_field_takes_is_a_failure() {
    let place = Place::new();
    repository(&place);
    let text = fs::read_to_string(workflow("worktrees")).unwrap();
    let text = text.replace(", conflicts: conflicts }", " }");
    fs::create_dir(place.path("parts")).unwrap();
    fs::copy(workflow("parts/change"), place.path("parts/change.yaml")).unwrap();
    fs::write(place.path("worktrees.yaml"), text).unwrap();
    let ended = place.run(execute("worktrees.yaml", &["a.txt", "a.txt", "b.txt"]));
    let report = ended.json();
    let reason = report["reason"].as_str().unwrap();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(reason.contains("cannot be merged into `repo`, both changed: \"a.txt\""), "{reason}");
    let base = git(&place.path("repo"), &["rev-list", "--count", "main..graphrun/one"]);
    assert_eq!(base, "0", "nothing is merged");
}

#[test]
fn a_killed_run_repeats_no_commit_and_leaves_no_worktree() {
    let workflow = workflow("worktrees");
    let paths = ["b.txt", "a.txt", "c.txt", "d.txt"];
    let undisturbed = Place::new();
    repository(&undisturbed);
    done(&undisturbed.run(execute(&workflow, &paths)));
    // After the work of nodes and of nested ones, before their results are durable, and after these.
    let after_work = (1..=14).step_by(2).map(|it| format!("task.after_run=abort@{it}"));
    let after_commit = (1..=16).step_by(3).map(|it| format!("task.after_commit=abort@{it}"));
    let mut killed = 0;
    let faults = some_of(3, after_work.chain(after_commit));
    for fault in &faults {
        let place = Place::new();
        repository(&place);
        let arguments = execute(&workflow, &paths);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = place.command(&arguments).env("GRAPHRUN_FAIL", fault).output().unwrap();
        if output.status.success() {
            continue;
        }
        killed += 1;
        let state = done(&place.run(["resume", "one", "--output", "json"]));
        assert_eq!(state["commits"].as_array().unwrap().len(), 4, "{fault}");
        assert_eq!(history(&place), history(&undisturbed), "{fault}");
        let count =
            git(&place.path("repo"), &["rev-list", "--count", "--no-merges", "main..graphrun/one"]);
        assert_eq!(count, "4", "{fault}");
        assert_nothing_left(&place, fault);
    }
    let least = if takes_all() { 8 } else { 1 };
    assert!(killed >= least, "{killed} kills of {faults:?}");
}
