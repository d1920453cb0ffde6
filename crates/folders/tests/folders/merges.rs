//! Merges: into a branch of the user, and of the tasks of a run.

use super::*;

#[tokio::test]
async fn runs_that_merge_at_once_all_merge() {
    let home = Home::new();
    home.git(&["branch", "target"]);
    let runs = ["r1", "r2", "r3", "r4"];
    let mut merges = tokio::task::JoinSet::new();
    for run in runs {
        let (_, folders) = home.start(run).await;
        let open = folders.lock_exclusive("repo").await.unwrap();
        replace_files(open.path(), &[file(run, "1")]).unwrap();
        open.commit(request("x", &format!("{run}/1/commit/0"))).await.unwrap();
        drop(open);
        merges.spawn(async move {
            let open = folders.lock_exclusive("repo").await.unwrap();
            open.merge("target", request("Merge", &format!("{run}/2/merge/0"))).await.map(drop)
        });
    }
    for merged in merges.join_all().await {
        merged.unwrap();
    }
    for run in runs {
        assert_eq!(home.git(&["show", &format!("target:{run}")]), "1");
    }
}

#[tokio::test]
async fn a_merge_moves_a_branch_that_nobody_has_checked_out() {
    let home = Home::new();
    home.git(&["branch", "target"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    let merge = request("Merge", "r1/9/merge/0");
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    let first = open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    assert_eq!(open.merge("target", merge).await.unwrap(), first.id);
    assert_eq!(open.merge("target", merge).await.unwrap(), first.id);

    home.git(&["checkout", "--quiet", "target"]);
    let refused = open.merge("target", merge).await;
    assert_eq!(refused.unwrap(), first.id, "there is nothing to do");
    home.write("y", "of the user");
    home.commit("y");
    replace_files(open.path(), &[file("x", "2")]).unwrap();
    open.commit(request("x", "r1/2/commit/0")).await.unwrap();
    let refused = open.merge("target", merge).await.unwrap_err();
    assert!(matches!(refused, FolderError::CheckedOut { .. }), "{refused}");
    home.git(&["checkout", "--quiet", "main"]);
    let merged = open.merge("target", merge).await.unwrap();
    assert_eq!(home.git(&["rev-list", "--parents", "-1", "target"]).split(' ').count(), 3);
    assert_eq!(home.git(&["show", "target:x"]), "2");
    assert_eq!(home.git(&["show", "target:y"]), "of the user");
    assert_eq!(open.merge("target", merge).await.unwrap(), merged);
    assert_eq!(home.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_conflict_merges_nothing_and_names_the_files() {
    let home = Home::new();
    home.git(&["branch", "target"]);
    home.git(&["checkout", "--quiet", "target"]);
    home.write("a.txt", "of the user\n");
    home.commit("a");
    home.git(&["checkout", "--quiet", "main"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("a.txt", "of the run\n")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let before = home.git(&["rev-parse", "target"]);
    match open.merge("target", request("m", "r1/2/merge/0")).await {
        Err(FolderError::Conflict { files, .. }) => assert_eq!(files, ["a.txt"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(home.git(&["rev-parse", "target"]), before);
    for nowhere in ["nowhere", "target~0", "target^{commit}", "-x"] {
        let missing = open.merge(nowhere, request("m", "r1/3/merge/0")).await.unwrap_err();
        assert!(matches!(missing, FolderError::NoBranch { .. }), "{nowhere}: {missing}");
    }
}

#[tokio::test]
async fn another_name_of_a_checked_out_branch_is_not_moved() {
    let home = Home::new();
    home.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let refused = open.merge("alias", request("m", "r1/2/merge/0")).await.unwrap_err();
    assert!(matches!(refused, FolderError::CheckedOut { .. }), "{refused}");
    assert_eq!(home.git(&["status", "--porcelain"]), "");
}

/// Git takes a branch for checked out while it is rebased or bisected, although `HEAD` is detached.
#[tokio::test]
async fn a_branch_in_a_rebase_or_bisection_is_not_moved() {
    let home = Home::new();
    for branch in ["target", "other"] {
        home.git(&["checkout", "--quiet", "-b", branch, "main"]);
        home.write("a.txt", branch);
        home.commit(branch);
    }
    home.git(&["checkout", "--quiet", "main"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let merge = request("Merge", "r1/2/merge/0");
    for (begin, abort) in [
        // A rebase stops at the conflict, with an exit code that is not of interest here.
        ("rebase --quiet other target", &["rebase", "--abort"]),
        ("rebase --quiet --apply other target", &["rebase", "--abort"]),
        ("bisect start target main", &["bisect", "reset"]),
    ] {
        home.git(&["checkout", "--quiet", "target"]);
        home.git(&["-c", &format!("alias.begin=!git {begin} || true"), "begin"]);
        home.git(&["checkout", "--quiet", "--detach", "--force"]);
        let refused = open.merge("target", merge).await.unwrap_err();
        assert!(matches!(refused, FolderError::CheckedOut { .. }), "{begin}: {refused}");
        home.git(abort);
    }
    home.git(&["checkout", "--quiet", "main"]);
    open.merge("target", merge).await.unwrap();
}

/// Writes one file in the folder of a task, commits it and closes the folder.
async fn work(folders: &RunFolders, task: &str, path: &str, content: &str) -> String {
    let own = ["repo".to_owned()];
    let of_task = folders.of_task("r1", task, &own).await.unwrap();
    let open = of_task.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file(path, content)]).unwrap();
    let commit = open.commit(request(&format!("{task}: {path}"), task)).await.unwrap();
    drop(open);
    of_task.close(&own).await.unwrap();
    commit.id
}

#[tokio::test]
async fn tasks_work_side_by_side_and_are_merged_in_the_given_order() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let own = ["repo".to_owned()];
    let (one, two) = (
        folders.of_task("r1", "2-0", &own).await.unwrap().lock_exclusive("repo").await.unwrap(),
        folders.of_task("r1", "2-1", &own).await.unwrap().lock_exclusive("repo").await.unwrap(),
    );
    assert_ne!(one.path(), two.path());
    replace_files(two.path(), &[file("b.txt", "of two\n")]).unwrap();
    assert!(!one.path().join("b.txt").exists() && !folder.worktree.join("b.txt").exists());
    drop((one, two));

    // The second task ends first, and both conflict with a third one.
    let second = work(&folders, "2-1", "b.txt", "of two\n").await;
    let first = work(&folders, "2-0", "b.txt", "of one\n").await;
    let third = work(&folders, "2-2", "c.txt", "of three\n").await;
    assert_eq!(home.git(&["branch", "--list", "graphrun/r1-2-1"]).trim(), "graphrun/r1-2-1");
    let open = folders.lock_exclusive("repo").await.unwrap();
    let commits = [first.clone(), second.clone(), third.clone()];
    let merge = open.prepare_merge(&commits, request("Merge", "r1/3/merge/0")).await.unwrap();
    let conflict = MergeConflict { commit: second.clone(), files: vec!["b.txt".into()] };
    assert_eq!(merge.conflicts, [conflict]);
    assert_eq!(home.git(&["rev-parse", "graphrun/r1"]), folder.base, "nothing is changed yet");
    open.merge_commits(&merge).await.unwrap();
    assert_eq!(home.git(&["rev-parse", "graphrun/r1"]), merge.id);
    let text = |path: &str| fs::read_to_string(open.path().join(path)).unwrap();
    assert_eq!((text("b.txt"), text("c.txt")), ("of one\n".into(), "of three\n".into()));
    let subjects = home.git(&["log", "--format=%s", "--first-parent", "main..graphrun/r1"]);
    assert_eq!(subjects, "Merge\n2-0: b.txt");
    let branches = home.git(&["branch", "--list", "--format=%(refname:short)", "graphrun/*"]);
    assert_eq!(branches, "graphrun/r1\ngraphrun/r1-2-1", "merged branches of tasks are gone");

    // The same merge again changes nothing but for the conflict.
    let again = open.prepare_merge(&commits, request("Merge", "r1/3/merge/0")).await.unwrap();
    assert_eq!(again, merge);
    drop(open);
    folder.remove("r1").await.unwrap();
    assert_eq!(home.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(home.git(&["for-each-ref", "refs/graphrun"]), "");
    let branches = home.git(&["branch", "--list", "--format=%(refname:short)", "graphrun/*"]);
    assert_eq!(branches, "graphrun/r1\ngraphrun/r1-2-1", "work that is nowhere else is kept");
}

/// The nested runs of two items have the same steps and tasks.
#[tokio::test]
async fn tasks_of_different_nested_runs_share_no_worktree() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let own = ["repo".to_owned()];
    let mut worktrees = std::collections::BTreeSet::new();
    for (run, task) in [("r1", "1-0"), ("r1-2-0", "1-0"), ("r1-2-1", "1-0"), ("0af3", "1-0")] {
        let of_task = folders.of_task(run, task, &own).await.unwrap();
        let open = of_task.lock_exclusive("repo").await.unwrap();
        worktrees.insert(open.path().to_owned());
    }
    assert_eq!(worktrees.len(), 4);
    let branches = "--format=%(refname:lstrip=3)";
    let list = home.git(&["for-each-ref", branches, "refs/heads/graphrun"]);
    assert_eq!(list, "r1\nr1-0af3-1-0\nr1-1-0\nr1-2-0-1-0\nr1-2-1-1-0");
    folder.remove("r1").await.unwrap();
    assert_eq!(home.git(&["for-each-ref", branches, "refs/heads/graphrun"]), "");
}

#[tokio::test]
async fn the_branches_of_tasks_within_tasks_are_removed() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let own = ["repo".to_owned()];
    let outer = folders.of_task("r1", "2-0", &own).await.unwrap();
    let inner = outer.of_task("r1-2-0", "1-0", &own).await.unwrap();
    let open = inner.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("b.txt", "1\n")]).unwrap();
    let commit = open.commit(request("inner", "r1-2-0/1/commit/0")).await.unwrap().id;
    assert_eq!(home.git(&["rev-parse", "graphrun/r1-2-0-1-0"]), commit);
    drop(open);
    // Both tasks fail, and the run merges the commit.
    let open = folders.lock_exclusive("repo").await.unwrap();
    let merge = open.prepare_merge(&[commit], request("Merge", "m")).await.unwrap();
    open.merge_commits(&merge).await.unwrap();
    drop(open);
    folder.remove("r1").await.unwrap();
    assert_eq!(home.git(&["worktree", "list"]).lines().count(), 1);
    let branches = home.git(&["branch", "--list", "--format=%(refname:short)", "graphrun/*"]);
    assert_eq!(branches, "graphrun/r1");
}

#[tokio::test]
async fn an_interrupted_merge_is_completed_at_the_next_use() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let commit = work(&folders, "2-0", "a.txt", "two\n").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    let merge = open.prepare_merge(&[commit], request("Merge", "m")).await.unwrap();
    drop(open);
    // The process was killed after it had noted the merge and written some of the files.
    fs::write(format!("{}.merge", folder.worktree.display()), &merge.id).unwrap();
    fs::write(folder.worktree.join("a.txt"), "tw").unwrap();
    let open = folders.lock_exclusive("repo").await.unwrap();
    assert_eq!(fs::read_to_string(open.path().join("a.txt")).unwrap(), "two\n");
    assert_eq!(home.git(&["rev-parse", "graphrun/r1"]), merge.id);
    assert_eq!(open.commit(request("nothing", "c")).await.unwrap().id, merge.id);
}

#[tokio::test]
async fn a_merge_loses_no_changes_and_takes_only_commits() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let commit = work(&folders, "2-0", "b.txt", "two\n").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    for text in ["", "main", "--all", "0000000000000000000000000000000000000000", &commit[..39]] {
        let refused = open.prepare_merge(&[text.to_owned()], request("x", "m")).await;
        assert!(matches!(refused, Err(FolderError::NoCommit { .. })), "{text}: {refused:?}");
    }
    replace_files(open.path(), &[file("new.txt", "1")]).unwrap();
    let refused = open.prepare_merge(&[commit], request("x", "m")).await;
    assert!(matches!(refused, Err(FolderError::Uncommitted { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_task_that_runs_again_finds_its_worktree_and_its_commits() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let own = ["repo".to_owned()];
    let of_task = folders.of_task("r1", "2-0", &own).await.unwrap();
    let open = of_task.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("b.txt", "1\n")]).unwrap();
    let commit = open.commit(request("one", "t")).await.unwrap();
    replace_files(open.path(), &[file("c.txt", "not committed\n")]).unwrap();
    drop(open);
    // Meanwhile the branch of the run has moved.
    let run = folders.lock_exclusive("repo").await.unwrap();
    replace_files(run.path(), &[file("d.txt", "1\n")]).unwrap();
    run.commit(request("of the run", "u")).await.unwrap();
    drop(run);
    let open =
        folders.of_task("r1", "2-0", &own).await.unwrap().lock_exclusive("repo").await.unwrap();
    assert!(open.path().join("c.txt").exists() && !open.path().join("d.txt").exists());
    assert_eq!(open.commit(request("one", "t")).await.unwrap(), commit);
    assert!(open.diff(Against::Base).await.unwrap().contains("+++ b/b.txt"));
    drop(open);
    // A run that is removed takes the worktrees of its tasks along.
    folder.remove("r1").await.unwrap();
    assert_eq!(home.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(fs::read_dir(home.folder.path().join("runs")).unwrap().count(), 0);
}

/// Git fails to list worktrees while another process makes one.
#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_begin_and_end_at_once() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let folders = folders.clone();
        tasks.spawn(async move {
            let path = format!("{task}.txt");
            work(&folders, &format!("2-{task}"), &path, "1\n").await
        });
    }
    let commits = tasks.join_all().await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    let merge = open.prepare_merge(&commits, request("Merge", "m")).await.unwrap();
    open.merge_commits(&merge).await.unwrap();
    assert_eq!(fs::read_dir(open.path()).unwrap().count(), 16 + 2);
    drop(open);
    folder.remove("r1").await.unwrap();
}
