//! Folders of runs, with real repositories. These tests need git.

#[path = "../../../tests/support/git.rs"]
mod git;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use git::git;
use graphrun_folders::{
    Against, CommitRequest, FolderError, MergeConflict, NewFolder, RunFolder, RunFolders,
};
use graphrun_sandbox::{FolderContent, SourceFile, remove_files, replace_files};

/// A repository of a user, and the place for the worktrees of runs.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(home.repository()).unwrap();
        home.git(&["init", "--quiet", "--initial-branch=main"]);
        home.write("a.txt", "one\n");
        home.commit("first");
        home
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.repository().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Runs git as the user does, without the configuration of this machine.
    fn git(&self, arguments: &[&str]) -> String {
        git(&self.repository(), arguments)
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    fn asked(&self, run: &str, branch: &str) -> NewFolder {
        NewFolder {
            name: "repo".into(),
            from: self.repository(),
            branch: branch.into(),
            worktree: self.folder.path().join("runs").join(run).join("repo"),
        }
    }

    async fn start(&self, run: &str) -> (RunFolder, RunFolders) {
        let folder = self.asked(run, &format!("graphrun/{run}")).find().await.unwrap();
        (folder.clone(), RunFolders::new(run, [folder]))
    }
}

fn file(path: &str, content: &str) -> SourceFile {
    SourceFile { path: path.into(), content: content.into() }
}

fn request<'a>(message: &'a str, task: &'a str) -> CommitRequest<'a> {
    CommitRequest { message, task }
}

#[tokio::test]
async fn a_run_works_on_its_own_branch_and_leaves_the_checkout_alone() {
    let home = Home::new();
    home.write("b.txt", "of the user, not committed\n");
    let before = home.git(&["status", "--porcelain", "--branch"]);
    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    assert_eq!(fs::read_to_string(open.path().join("a.txt")).unwrap(), "one\n");
    assert!(!open.path().join("b.txt").exists());
    replace_files(open.path(), &[file("src/new.txt", "two\n")]).unwrap();
    let commit = open.commit(request("Add a file", "r1/1/commit/0")).await.unwrap();
    assert!(commit.changed);
    assert_eq!(home.git(&["rev-parse", "graphrun/r1"]), commit.id);
    assert_eq!(home.git(&["show", "graphrun/r1:src/new.txt"]), "two");
    let message = home.git(&["log", "-1", "--format=%an%n%B", "graphrun/r1"]);
    assert_eq!(message, "graphrun\nAdd a file\n\nGraphrun-Run: r1\nGraphrun-Task: r1/1/commit/0");
    assert_eq!(home.git(&["rev-parse", "main"]), folder.base);
    assert_eq!(home.git(&["status", "--porcelain", "--branch"]), before);
}

#[tokio::test]
async fn readers_share_a_folder_and_keep_writers_out() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let one = folders.keep("repo").await.unwrap();
    let other = folders.keep("repo").await.unwrap();
    assert_eq!(fs::read_to_string(one.path().join("a.txt")).unwrap(), "one\n");
    let writers = folders.clone();
    let mut writer = tokio::spawn(async move { writers.open("repo").await.map(drop) });
    drop(one);
    // The lock is the kernel's, so a writer that could pass would do so without a wait.
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut writer).await;
    assert!(waits.is_err(), "a writer has the folder of a reader");
    drop(other);
    writer.await.unwrap().unwrap();
    // A folder with a writer is not kept for a reader.
    let open = folders.open("repo").await.unwrap();
    let mut reader = tokio::spawn(async move { folders.keep("repo").await.map(drop) });
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut reader).await;
    assert!(waits.is_err(), "a reader has the folder of a writer");
    drop(open);
    reader.await.unwrap().unwrap();
}

#[tokio::test]
async fn only_a_folder_without_a_nested_git_is_mounted() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let kept = folders.keep("repo").await.unwrap();
    assert!(kept.path().join(".git").exists() && kept.is_mountable().await.unwrap());
    for nested in ["below/.git", ".Git", "below/deep/.GIT"] {
        let path = kept.path().join(nested);
        fs::create_dir_all(&path).unwrap();
        assert!(!kept.is_mountable().await.unwrap(), "{nested}");
        fs::remove_dir(path).unwrap();
    }
    assert!(kept.is_mountable().await.unwrap());
    symlink("/etc", kept.path().join("link")).unwrap();
    assert!(kept.is_mountable().await.unwrap());
    assert!(kept.has(Path::new("a.txt"), b"one\n"));
    assert!(!kept.has(Path::new("a.txt"), b"one") && !kept.has(Path::new("link/passwd"), b""));
}

#[tokio::test]
async fn a_task_that_runs_again_makes_no_second_commit() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    // A message that pretends to be the commit of the next task.
    let lie = request("x\n\nGraphrun-Task: r1/2/commit/0\nend", "r1/1/commit/0");
    let first = open.commit(lie).await.unwrap();
    replace_files(open.path(), &[file("x", "2")]).unwrap();
    assert_eq!(open.commit(lie).await.unwrap(), first);
    let second = open.commit(request("x", "r1/2/commit/0")).await.unwrap();
    assert!(second.changed && second.id != first.id);
    assert_eq!(home.git(&["rev-list", "--count", "main..graphrun/r1"]), "2");
    let third = open.commit(request("x", "r1/3/commit/0")).await.unwrap();
    assert_eq!((third.id, third.changed), (second.id, false));
}

#[tokio::test]
async fn two_runs_do_not_meet() {
    let home = Home::new();
    let (_, one) = home.start("r1").await;
    let (_, two) = home.start("r2").await;
    let (one, two) = (one.open("repo").await.unwrap(), two.open("repo").await.unwrap());
    replace_files(one.path(), &[file("x", "1")]).unwrap();
    assert!(!two.path().join("x").exists());
    one.commit(request("x", "r1/1/commit/0")).await.unwrap();
    assert!(!two.commit(request("x", "r2/1/commit/0")).await.unwrap().changed);
    let taken = home.asked("r3", "graphrun/r1").find().await.unwrap_err();
    assert!(matches!(taken, FolderError::BranchTaken { .. }), "{taken}");
}

#[tokio::test]
async fn a_branch_above_or_below_the_branch_of_a_run_is_found_before_the_start() {
    let home = Home::new();
    home.git(&["branch", "lifecycle"]);
    home.git(&["branch", "auto/one"]);
    for (branch, in_the_way) in [
        ("lifecycle/task-1", "lifecycle"),
        ("lifecycle/a/b", "lifecycle"),
        ("auto", "auto/one"),
        ("auto/one/x", "auto/one"),
    ] {
        match home.asked("r1", branch).find().await {
            Err(FolderError::BranchInTheWay { existing, .. }) => assert_eq!(existing, in_the_way),
            other => panic!("{branch}: {other:?}"),
        }
    }
    for branch in ["lifecycles/x", "life", "auto/two", "au"] {
        home.asked("r1", branch).find().await.unwrap();
    }
}

/// Only root can give a repository away.
#[tokio::test]
async fn a_repository_of_another_user_is_named_as_one() {
    let home = Home::new();
    let given = std::process::Command::new("chown")
        .args(["-R", "65534"])
        .arg(home.repository())
        .status()
        .is_ok_and(|it| it.success());
    if !given {
        return;
    }
    let refused = home.asked("r1", "b").find().await.unwrap_err();
    let repository = fs::canonicalize(home.repository()).unwrap();
    let expected = format!("the repository `{}` belongs to another user", repository.display());
    assert_eq!(refused.to_string(), expected);
    assert!(refused.hint().unwrap().starts_with("start graphrun as its owner"));
}

#[tokio::test]
async fn two_runs_that_start_with_one_name_of_a_branch_do_not_share_it() {
    let home = Home::new();
    let one = RunFolders::new("r1", [home.asked("r1", "auto").find().await.unwrap()]);
    let two = RunFolders::new("r2", [home.asked("r2", "auto").find().await.unwrap()]);
    one.open("repo").await.unwrap();
    let taken = two.open("repo").await.unwrap_err();
    assert!(matches!(taken, FolderError::BranchTaken { .. }), "{taken}");
    one.open("repo").await.unwrap();
}

#[tokio::test]
async fn a_lost_worktree_is_made_again_from_the_branch() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    drop(open);
    fs::remove_dir_all(folder.worktree.parent().unwrap()).unwrap();
    let again = RunFolders::new("r1", [folder.clone()]);
    assert_eq!(
        fs::read_to_string(again.open("repo").await.unwrap().path().join("x")).unwrap(),
        "1"
    );
    // A checkout that a kill has interrupted: its missing files must not look removed.
    fs::remove_file(folder.worktree.with_extension("ready")).unwrap();
    fs::remove_file(folder.worktree.join("x")).unwrap();
    let open = again.open("repo").await.unwrap();
    assert!(!open.commit(request("x", "r1/2/commit/0")).await.unwrap().changed);
    drop(open);
    // The lock of a killed git.
    let own = home.repository().join(".git/worktrees/repo/index.lock");
    fs::write(&own, "").unwrap();
    let open = again.open("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "2")]).unwrap();
    assert!(open.commit(request("x", "r1/3/commit/0")).await.unwrap().changed);
    drop(open);
    fs::remove_dir_all(&folder.worktree).unwrap();
    home.git(&["worktree", "prune"]);
    home.git(&["branch", "-D", "graphrun/r1"]);
    let gone = again.open("repo").await.unwrap_err();
    assert!(matches!(gone, FolderError::BranchGone { .. }), "{gone}");
}

/// A program on an allowed host can use git in the worktree.
#[tokio::test]
async fn commits_of_other_programs_are_changes_of_the_run() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    let commits = |content: &str| {
        fs::write(open.path().join("own.txt"), content).unwrap();
        git(open.path(), &["add", "--all"]);
        git(open.path(), &["commit", "--quiet", "--message", "Of the program"])
    };
    commits("one\n");
    assert!(open.diff(Against::LastCommit).await.unwrap().contains("+one"));
    let first = open.commit(request("Keep it", "r1/1/commit/0")).await.unwrap();
    assert!(first.changed);
    assert_eq!(home.git(&["log", "-1", "--format=%s", &first.id]), "Keep it");
    assert_eq!(open.diff(Against::LastCommit).await.unwrap(), "");
    let again = open.commit(request("Keep it", "r1/2/commit/0")).await.unwrap();
    assert_eq!((again.changed, &again.id), (false, &first.id), "it has seen that commit");

    commits("AKIAIOSFODNN7EXAMPLQ\n");
    let refused = open.commit(request("Keep it", "r1/3/commit/0")).await.unwrap_err();
    assert!(matches!(refused, FolderError::SecretInCommit { .. }), "{refused}");
    git(open.path(), &["reset", "--quiet", "--hard", "HEAD~"]);
    // Changes that add up to none are none.
    commits("two\n");
    commits("one\n");
    let none = open.commit(request("Keep it", "r1/4/commit/0")).await.unwrap();
    assert!(!none.changed);
    assert!(
        home.git(&["log", "--format=%s", &format!("{}..graphrun/r1", folder.base)])
            .contains("Keep it")
    );
}

#[tokio::test]
async fn a_removed_run_leaves_its_branch_only_if_it_has_commits() {
    let home = Home::new();
    for (run, commits) in [("r1", false), ("r2", true)] {
        let (folder, folders) = home.start(run).await;
        let open = folders.open("repo").await.unwrap();
        replace_files(open.path(), &[file("x", "1")]).unwrap();
        if commits {
            open.commit(request("x", &format!("{run}/1/commit/0"))).await.unwrap();
        }
        drop(open);
        folder.remove(run).await.unwrap();
        assert!(!folder.worktree.parent().unwrap().exists());
        let branches = home.git(&["branch", "--list", &folder.branch]);
        assert_eq!(!branches.is_empty(), commits, "{run}");
    }
    assert_eq!(home.git(&["for-each-ref", "refs/graphrun"]), "");
    assert_eq!(home.git(&["worktree", "list"]).lines().count(), 1);
    // A branch of the user with the name that a run would have had.
    let (folder, _) = home.start("r3").await;
    home.git(&["branch", "graphrun/r3"]);
    folder.remove("r3").await.unwrap();
    home.git(&["rev-parse", "--verify", "graphrun/r3"]);
}

#[tokio::test]
async fn a_secret_is_not_committed() {
    let home = Home::new();
    home.write("old.txt", "key = sk-abcdefghij1234567890klmnop\nend\n");
    home.commit("a key of the user");
    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    let old = "key = sk-abcdefghij1234567890klmnop\nend\nmore\n";
    replace_files(open.path(), &[file("old.txt", old)]).unwrap();
    assert!(open.commit(request("An old key stays", "r1/1/commit/0")).await.unwrap().changed);
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n";
    for (content, message) in [(key, "x"), ("fine", "use ghp_abcdefghijklmnopqrstuvwxyz0123456789")]
    {
        replace_files(open.path(), &[file("new.pem", content)]).unwrap();
        let refused = open.commit(request(message, "r1/2/commit/0")).await.unwrap_err();
        assert!(matches!(refused, FolderError::Secret { .. }), "{refused}");
    }
    open.discard().await.unwrap();
    replace_files(open.path(), &[file("sk-abcdefghij1234567890klmnop.txt", "fine")]).unwrap();
    let refused = open.commit(request("x", "r1/3/commit/0")).await.unwrap_err();
    assert!(refused.to_string().starts_with("the name of a file contains"), "{refused}");
    assert_eq!(home.git(&["rev-list", "--count", &format!("{}..graphrun/r1", folder.base)]), "1");
}

#[tokio::test]
async fn differences_and_discarded_changes() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("a.txt", "two\n")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    replace_files(open.path(), &[file("b.txt", "new\n"), file("a.txt", "three\n")]).unwrap();
    let all = open.diff(Against::Base).await.unwrap();
    assert!(all.contains("-one") && all.contains("+three") && all.contains("+new"), "{all}");
    let last = open.diff(Against::LastCommit).await.unwrap();
    assert!(last.contains("-two") && !last.contains("-one"), "{last}");
    replace_files(open.path(), &[file("b.txt", &"0123456789\n".repeat(50_000))]).unwrap();
    let cut = open.diff(Against::LastCommit).await.unwrap();
    assert!(cut.len() < 300_000 && cut.ends_with("\n… cut after 256 KiB\n"), "{}", cut.len());
    open.discard().await.unwrap();
    assert_eq!(open.diff(Against::LastCommit).await.unwrap(), "");
    assert_eq!(fs::read_to_string(open.path().join("a.txt")).unwrap(), "two\n");
    assert!(!open.path().join("b.txt").exists());
}

#[tokio::test]
async fn a_worktree_on_another_branch_keeps_its_files() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    drop(open);
    for switch in
        [&["checkout", "--quiet", "-b", "other"][..], &["checkout", "--quiet", "--detach"]]
    {
        git(&folder.worktree, switch);
        let refused = folders.open("repo").await.unwrap_err();
        assert!(matches!(refused, FolderError::OtherBranch { .. }), "{refused}");
    }
    git(&folder.worktree, &["checkout", "--quiet", &folder.branch]);
    let open = folders.open("repo").await.unwrap();
    assert_eq!(fs::read_to_string(open.path().join("x")).unwrap(), "1");
}

#[tokio::test]
async fn runs_that_merge_at_once_all_merge() {
    let home = Home::new();
    home.git(&["branch", "target"]);
    let runs = ["r1", "r2", "r3", "r4"];
    let mut merges = tokio::task::JoinSet::new();
    for run in runs {
        let (_, folders) = home.start(run).await;
        let open = folders.open("repo").await.unwrap();
        replace_files(open.path(), &[file(run, "1")]).unwrap();
        open.commit(request("x", &format!("{run}/1/commit/0"))).await.unwrap();
        drop(open);
        merges.spawn(async move {
            let open = folders.open("repo").await.unwrap();
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
    let open = folders.open("repo").await.unwrap();
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
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("a.txt", "of the run\n")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let before = home.git(&["rev-parse", "target"]);
    match open.merge("target", request("m", "r1/2/merge/0")).await {
        Err(FolderError::Conflict { files, .. }) => assert_eq!(files, ["a.txt"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(home.git(&["rev-parse", "target"]), before);
    let missing = open.merge("nowhere", request("m", "r1/3/merge/0")).await.unwrap_err();
    assert!(matches!(missing, FolderError::NoBranch { .. }), "{missing}");
}

/// Every program that a repository can name leaves a mark if it runs.
#[tokio::test]
async fn a_hostile_repository_runs_no_program() {
    let home = Home::new();
    let mark = home.folder.path().join("mark");
    let program = home.folder.path().join("program");
    fs::write(&program, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    home.write(
        ".gitattributes",
        "*.txt filter=evil diff=evil merge=evil\n*.odd filter=a=b\n*.long filter=long\n",
    );
    home.write("b.odd", "odd\n");
    home.write("c.long", "long\n");
    home.commit("attributes");
    home.git(&["branch", "target"]);
    let hooks = home.repository().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "post-checkout",
        "post-merge",
        "pre-merge-commit",
        "post-index-change",
        "reference-transaction",
        "post-rewrite",
    ] {
        fs::copy(program, hooks.join(hook)).unwrap();
    }
    // In a file, as the repository of an archive has it: git itself would run some of them meanwhile.
    let config = format!(
        "[core]\n\tfsmonitor = {program}\n\tsshCommand = {program}\n\teditor = {program}\n\tpager = {program}\n\
         \tworktree = /\n\
         [filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n\
         [filter \"a=b\"]\n\tclean = {program}\n\tsmudge = {program}\n\
         [filter \"long\"]\n\tprocess = {program}\n\trequired = true\n\
         [diff \"evil\"]\n\tcommand = {program}\n\ttextconv = {program}\n\
         [diff]\n\texternal = {program}\n[merge \"evil\"]\n\tdriver = {program}\n\
         [gpg]\n\tprogram = {program}\n[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n\
         [credential]\n\thelper = {program}\n[gc]\n\tauto = 1\n[include]\n\tpath = more\n"
    );
    let file_of_config = home.repository().join(".git/config");
    let before = fs::read_to_string(&file_of_config).unwrap();
    fs::write(
        home.repository().join(".git/more"),
        format!("[filter \"evil\"]\n\tprocess = {program}\n"),
    )
    .unwrap();
    fs::write(&file_of_config, before.clone() + &config.replace("\tworktree = /\n", "")).unwrap();

    let (folder, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    replace_files(
        open.path(),
        &[file("a.txt", "two\n"), file("d.odd", "1\n"), file("e.long", "1")],
    )
    .unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    replace_files(open.path(), &[file("a.txt", "three\n")]).unwrap();
    assert!(open.diff(Against::Base).await.unwrap().contains("+three"));
    open.discard().await.unwrap();
    open.merge("target", request("m", "r1/2/merge/0")).await.unwrap();
    // A merge that asks the driver.
    replace_files(open.path(), &[file("a.txt", "four\n")]).unwrap();
    open.commit(request("x", "r1/3/commit/0")).await.unwrap();
    fs::write(&file_of_config, before).unwrap();
    fs::remove_dir_all(&hooks).unwrap();
    home.git(&["checkout", "--quiet", "target"]);
    home.write("a.txt", "five\n");
    home.commit("five");
    home.git(&["checkout", "--quiet", "main"]);
    fs::write(&file_of_config, fs::read_to_string(&file_of_config).unwrap() + &config).unwrap();
    let conflict = open.merge("target", request("m", "r1/4/merge/0")).await;
    assert!(matches!(conflict, Err(FolderError::Conflict { .. })), "{conflict:?}");
    drop(open);
    folder.remove("r1").await.unwrap();
    let ran = fs::read_to_string(&mark).unwrap_or_default();
    assert_eq!(ran, "", "a program of the repository ran");
}

#[tokio::test]
async fn strange_files_reach_a_sandbox_as_they_are_and_links_are_not_followed() {
    let home = Home::new();
    home.write("a\nb \"ä\".txt", "strange\n");
    home.write("run.sh", "#!/bin/sh\n");
    let script = home.repository().join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", home.repository().join("outside")).unwrap();
    symlink("/etc", home.repository().join("folder")).unwrap();
    home.commit("strange");
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    let files = open.files().await.unwrap();
    let paths: Vec<&str> = files.iter().map(|it| it.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["a\nb \"ä\".txt", "a.txt", "folder", "outside", "run.sh"]);
    assert_eq!(files[3].content, FolderContent::Link("/etc/passwd".into()));
    assert!(matches!(files[4].content, FolderContent::File { is_executable: true, .. }));
    for path in ["outside", "folder/x", ".git", ".git/config", "../x"] {
        assert!(replace_files(open.path(), &[file(path, "x")]).is_err(), "{path}");
    }
    for path in ["folder/passwd", ".git", "../a", "folder/../a.txt"] {
        assert!(remove_files(open.path(), &[path.to_owned()]).is_err(), "{path}");
    }
    replace_files(open.path(), &[file("run.sh", "#!/bin/sh\ntrue\n")]).unwrap();
    remove_files(open.path(), &["outside".into(), "missing".into(), "no/folder".into()]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let changed = home.git(&["diff", "--summary", "main", "graphrun/r1"]);
    assert_eq!(changed.trim(), "delete mode 120000 outside");
    assert!(Path::new("/etc/passwd").exists());
}

#[tokio::test]
async fn a_submodule_is_neither_fetched_nor_entered() {
    let home = Home::new();
    let other = Home::new();
    let from = other.repository();
    let from = from.to_str().unwrap();
    home.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, "sub"]);
    home.git(&["config", "submodule.recurse", "true"]);
    home.git(&["config", "protocol.file.allow", "always"]);
    home.commit("a submodule");
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    assert_eq!(fs::read_dir(open.path().join("sub")).unwrap().count(), 0);
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    assert!(open.commit(request("x", "r1/1/commit/0")).await.unwrap().changed);
    assert_eq!(home.git(&["diff", "--name-only", "main", "graphrun/r1"]), "x");
}

#[tokio::test]
async fn only_the_top_folder_of_a_repository_with_a_commit_is_one() {
    let home = Home::new();
    home.write("sub/x", "1");
    let empty = tempfile::tempdir().unwrap();
    for from in [home.repository().join("sub"), empty.path().to_owned(), empty.path().join("none")]
    {
        let refused = NewFolder { from, ..home.asked("r1", "b") }.find().await.unwrap_err();
        assert!(matches!(refused, FolderError::NotRepository { .. }), "{refused}");
    }
    git(empty.path(), &["init", "--quiet"]);
    let from = empty.path().to_owned();
    let refused = NewFolder { from, ..home.asked("r1", "b") }.find().await.unwrap_err();
    assert!(refused.to_string().ends_with("it has no commit yet"), "{refused}");
    for branch in
        ["", "-x", "a..b", "a b", "x.lock", "@{-1}", "a\0b", "HEAD", "refs/heads/x", "tags/x"]
    {
        let refused = home.asked("r1", branch).find().await.unwrap_err();
        assert!(matches!(refused, FolderError::BadBranch { .. }), "{branch:?}: {refused}");
    }
}

/// Writes one file in the folder of a task, commits it and closes the folder.
async fn work(folders: &RunFolders, task: &str, path: &str, content: &str) -> String {
    let own = ["repo".to_owned()];
    let of_task = folders.of_task(task, &own).await.unwrap();
    let open = of_task.open("repo").await.unwrap();
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
        folders.of_task("2-0", &own).await.unwrap().open("repo").await.unwrap(),
        folders.of_task("2-1", &own).await.unwrap().open("repo").await.unwrap(),
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
    let open = folders.open("repo").await.unwrap();
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

#[tokio::test]
async fn an_interrupted_merge_is_completed_at_the_next_use() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let commit = work(&folders, "2-0", "a.txt", "two\n").await;
    let open = folders.open("repo").await.unwrap();
    let merge = open.prepare_merge(&[commit], request("Merge", "m")).await.unwrap();
    drop(open);
    // The process was killed after it had noted the merge and written some of the files.
    fs::write(format!("{}.merge", folder.worktree.display()), &merge.id).unwrap();
    fs::write(folder.worktree.join("a.txt"), "tw").unwrap();
    let open = folders.open("repo").await.unwrap();
    assert_eq!(fs::read_to_string(open.path().join("a.txt")).unwrap(), "two\n");
    assert_eq!(home.git(&["rev-parse", "graphrun/r1"]), merge.id);
    assert_eq!(open.commit(request("nothing", "c")).await.unwrap().id, merge.id);
}

#[tokio::test]
async fn a_merge_loses_no_changes_and_takes_only_commits() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let commit = work(&folders, "2-0", "b.txt", "two\n").await;
    let open = folders.open("repo").await.unwrap();
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
    let of_task = folders.of_task("2-0", &own).await.unwrap();
    let open = of_task.open("repo").await.unwrap();
    replace_files(open.path(), &[file("b.txt", "1\n")]).unwrap();
    let commit = open.commit(request("one", "t")).await.unwrap();
    replace_files(open.path(), &[file("c.txt", "not committed\n")]).unwrap();
    drop(open);
    // Meanwhile the branch of the run has moved.
    let run = folders.open("repo").await.unwrap();
    replace_files(run.path(), &[file("d.txt", "1\n")]).unwrap();
    run.commit(request("of the run", "u")).await.unwrap();
    drop(run);
    let open = folders.of_task("2-0", &own).await.unwrap().open("repo").await.unwrap();
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
    let open = folders.open("repo").await.unwrap();
    let merge = open.prepare_merge(&commits, request("Merge", "m")).await.unwrap();
    open.merge_commits(&merge).await.unwrap();
    assert_eq!(fs::read_dir(open.path()).unwrap().count(), 16 + 2);
    drop(open);
    folder.remove("r1").await.unwrap();
}

#[tokio::test]
async fn a_file_of_the_base_is_that_of_the_commit_that_the_run_started_from() {
    let home = Home::new();
    home.write("locks/app.txt", "locked\n");
    home.write("large.txt", "12345");
    symlink("/etc/passwd", home.repository().join("link.txt")).unwrap();
    symlink("locks", home.repository().join("linked")).unwrap();
    home.commit("second");
    home.write("locks/app.txt", "of the user, not committed\n");
    let (folder, folders) = home.start("a").await;
    let read = async |folders: &RunFolders, path: &str| {
        let read = folders.base_file("repo", (path, 20)).await;
        read.map(|it| String::from_utf8(it).unwrap()).map_err(|it| it.to_string())
    };
    assert_eq!(read(&folders, "locks/app.txt").await.unwrap(), "locked\n");

    // A commit of the run changes nothing, also for a task whose branch starts there.
    let open = folders.open("repo").await.unwrap();
    replace_files(open.path(), &[file("locks/app.txt", "of an agent\n")]).unwrap();
    open.commit(request("change", "1")).await.unwrap();
    drop(open);
    home.commit("third");
    let task = folders.of_task("7", &["repo".to_owned()]).await.unwrap();
    for folders in [&folders, &task] {
        assert_eq!(read(folders, "locks/app.txt").await.unwrap(), "locked\n");
    }

    let commit = &folder.base[..12];
    for (path, problem) in [
        ("absent.txt", "it does not exist there"),
        ("linked/app.txt", "it does not exist there"),
        ("../repository/a.txt", "it does not exist there"),
        ("*.txt", "it does not exist there"),
        ("link.txt", "it is no regular file"),
        ("locks", "it is no regular file"),
    ] {
        let error = read(&folders, path).await.unwrap_err();
        assert!(error.contains(problem) || error.contains("outside"), "{path}: {error}");
        assert!(error.contains(path) || error.contains(commit), "{path}: {error}");
    }
    let error = folder.base_file("large.txt", 4).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("`large.txt` of the commit {commit} cannot be used: it is larger than 0 MiB")
    );
    assert!(folders.base_file("other", ("a.txt", 9)).await.is_err());
}

/// A key in a commit, also one that a later commit removes, is in the history for ever.
#[tokio::test]
async fn a_secret_in_the_history_of_a_program_is_found() {
    const KEY: &str = "AKIAIOSFODNN7EXAMPLQ\n";
    type Act = fn(&Path);
    fn commit(path: &Path, content: &str, message: &str) {
        fs::write(path.join("own.txt"), content).unwrap();
        git(path, &["add", "--all"]);
        git(path, &["commit", "--quiet", "--message", message]);
    }
    let acts: [(&str, Act, &str); 5] = [
        (
            "removed",
            |path| {
                commit(path, KEY, "one");
                commit(path, "fine\n", "two");
            },
            "`own.txt` of the commit ",
        ),
        (
            "reverted",
            |path| {
                commit(path, KEY, "one");
                git(path, &["rm", "--quiet", "own.txt"]);
                git(path, &["commit", "--quiet", "--message", "two"]);
            },
            "`own.txt` of the commit ",
        ),
        ("message", |path| commit(path, "fine\n", KEY), "the message of the commit "),
        (
            "amended",
            |path| {
                fs::write(path.join("own.txt"), KEY).unwrap();
                git(path, &["add", "--all"]);
                git(path, &["commit", "--quiet", "--amend", "--no-edit"]);
                commit(path, "fine\n", "two");
            },
            "`own.txt` of the commit ",
        ),
        (
            "root",
            |path| {
                git(path, &["checkout", "--quiet", "--orphan", "alone"]);
                commit(path, KEY, "one");
                commit(path, "fine\n", "two");
                git(path, &["checkout", "--quiet", "graphrun/root"]);
                git(path, &["merge", "--quiet", "--allow-unrelated-histories", "alone"]);
            },
            "`own.txt` of the commit ",
        ),
    ];
    for (run, act, place) in acts {
        let home = Home::new();
        home.git(&["branch", "target"]);
        let (_, folders) = home.start(run).await;
        let open = folders.open("repo").await.unwrap();
        replace_files(open.path(), &[file("x", "1")]).unwrap();
        open.commit(request("x", "1/commit")).await.unwrap();
        act(open.path());
        let refused = open.commit(request("x", "2/commit")).await.unwrap_err();
        let is_found = matches!(refused, FolderError::SecretInCommit { .. });
        assert!(is_found && refused.to_string().starts_with(place), "{run}: {refused}");
        let refused = open.merge("target", request("x", "3/merge")).await.unwrap_err();
        assert!(matches!(refused, FolderError::SecretInCommit { .. }), "{run}: {refused}");
        let head = [git(open.path(), &["rev-parse", "HEAD"])];
        drop(open);
        // Another branch of the repository, as that of an item, cannot bring it in, either.
        let (_, other) = home.start("other").await;
        let open = other.open("repo").await.unwrap();
        let refused = open.prepare_merge(&head, request("x", "4/merge")).await.unwrap_err();
        assert!(matches!(refused, FolderError::SecretInCommit { .. }), "{run}: {refused}");
    }
}

#[tokio::test]
async fn a_repository_within_the_folder_is_refused_until_its_git_is_gone() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    let mut task = 0;
    for (name, act) in [("empty", 0), ("committed", 1), ("staged", 2), ("of/a/commit", 3)] {
        let inner = open.path().join(name);
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("f"), "x").unwrap();
        git(&inner, &["init", "--quiet"]);
        if act > 0 {
            git(&inner, &["add", "--all"]);
            git(&inner, &["commit", "--quiet", "--message", "inner"]);
        }
        if act > 1 {
            git(open.path(), &["add", "--all"]);
        }
        if act > 2 {
            git(open.path(), &["commit", "--quiet", "--message", "of the program"]);
        }
        task += 1;
        let again = format!("r1/{task}/commit/0");
        for _ in 0..2 {
            let refused = open.commit(request("x", &again)).await.unwrap_err();
            let is_named = matches!(&refused, FolderError::Repository { path } if path == name);
            assert!(is_named, "{name}: {refused}");
            open.diff(Against::Base).await.unwrap_err();
        }
        fs::remove_dir_all(inner.join(".git")).unwrap();
        let made = open.commit(request("x", &again)).await.unwrap();
        assert_eq!(home.git(&["show", &format!("{}:{name}/f", made.id)]), "x");
    }
    // An ignored one is no part of the commit.
    fs::write(open.path().join(".gitignore"), "modules\n").unwrap();
    fs::create_dir(open.path().join("modules")).unwrap();
    git(&open.path().join("modules"), &["init", "--quiet"]);
    assert!(open.commit(request("x", "r1/9/commit/0")).await.unwrap().changed);
}

/// Attributes are content, which a model can write.
#[tokio::test]
async fn files_that_git_cannot_stage_are_a_fault_of_the_content() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.open("repo").await.unwrap();
    for encoding in ["NOSUCH", "UTF-16"] {
        let attributes = format!("*.txt working-tree-encoding={encoding}\n");
        replace_files(open.path(), &[file(".gitattributes", &attributes), file("b.txt", "x\n")])
            .unwrap();
        for refused in [
            open.commit(request("x", "r1/1/commit/0")).await.unwrap_err(),
            open.diff(Against::Base).await.unwrap_err(),
        ] {
            assert!(matches!(refused, FolderError::Content { .. }), "{encoding}: {refused}");
            assert!(refused.to_string().contains(".txt' "), "{refused}");
        }
        let refused = open.prepare_merge(&[], request("x", "r1/2/merge/0")).await.unwrap_err();
        let is_of_content =
            matches!(refused, FolderError::Content { .. } | FolderError::Uncommitted { .. });
        assert!(is_of_content, "{encoding}: {refused}");
        open.discard().await.unwrap();
        assert!(!open.commit(request("x", "r1/3/commit/0")).await.unwrap().changed);
    }
    // Only the operator can mend the repository.
    replace_files(open.path(), &[file("b.txt", "x\n")]).unwrap();
    let index = home.repository().join(".git/worktrees/repo/index");
    let good = fs::read(&index).unwrap();
    fs::write(&index, "broken").unwrap();
    let refused = open.commit(request("x", "r1/4/commit/0")).await.unwrap_err();
    assert!(matches!(refused, FolderError::Git { .. }), "{refused}");
    fs::write(&index, good).unwrap();
    assert!(open.commit(request("x", "r1/4/commit/0")).await.unwrap().changed);
}

#[tokio::test]
async fn marks_in_the_index_hide_no_changes() {
    let home = Home::new();
    home.write("b.txt", "one\n");
    home.commit("second");
    for (run, mark) in [("r1", "--assume-unchanged"), ("r2", "--skip-worktree")] {
        let (_, folders) = home.start(run).await;
        let open = folders.open("repo").await.unwrap();
        let change = |content: &str| {
            git(open.path(), &["update-index", mark, "a.txt", "b.txt"]);
            fs::write(open.path().join("a.txt"), content).unwrap();
            fs::remove_file(open.path().join("b.txt")).unwrap();
        };
        change("two\n");
        assert!(open.diff(Against::Base).await.unwrap().contains("+two"), "{mark}");
        open.discard().await.unwrap();
        change("three\n");
        let refused = open.prepare_merge(&[], request("x", "1/merge")).await.unwrap_err();
        assert!(matches!(refused, FolderError::Uncommitted { .. }), "{mark}: {refused}");
        open.discard().await.unwrap();
        assert_eq!(fs::read_to_string(open.path().join("a.txt")).unwrap(), "one\n", "{mark}");
        change("four\n");
        let made = open.commit(request("x", "2/commit")).await.unwrap();
        let changed = home.git(&["diff", "--name-status", "main", &made.id]);
        assert_eq!(changed, "M\ta.txt\nD\tb.txt", "{mark}");
    }
    // The marks of a sparse checkout stay: the files are absent, not removed.
    let (_, folders) = home.start("r3").await;
    let open = folders.open("repo").await.unwrap();
    git(open.path(), &["sparse-checkout", "set", "--no-cone", "a.txt"]);
    assert!(!open.path().join("b.txt").exists());
    replace_files(open.path(), &[file("a.txt", "two\n")]).unwrap();
    let patch = open.diff(Against::Base).await.unwrap();
    assert!(patch.contains("+two") && !patch.contains("b.txt"), "{patch}");
}

/// A program on a host can replace the worktree.
#[tokio::test]
async fn a_replaced_worktree_is_made_again_from_the_branch() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    drop(folders.open("repo").await.unwrap());
    let path = &folder.worktree;
    let elsewhere = tempfile::tempdir().unwrap();
    let acts: [(&str, &dyn Fn()); 5] = [
        ("another repository", &|| {
            fs::remove_file(path.join(".git")).unwrap();
            git(path, &["init", "--quiet"]);
        }),
        ("a repository beside it", &|| {
            fs::remove_file(path.join(".git")).unwrap();
            let separate = format!("--separate-git-dir={}", elsewhere.path().join("git").display());
            git(path, &["init", "--quiet", &separate]);
        }),
        ("a link", &|| {
            fs::rename(path, elsewhere.path().join("moved")).unwrap();
            symlink(elsewhere.path().join("moved"), path).unwrap();
        }),
        ("a file", &|| {
            fs::remove_dir_all(path).unwrap();
            fs::write(path, "x").unwrap();
        }),
        ("no git", &|| fs::remove_file(path.join(".git")).unwrap()),
    ];
    for (name, act) in acts {
        act();
        let open = folders.open("repo").await.unwrap();
        assert!(open.is_made_again(), "{name}");
        assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "one\n", "{name}");
        drop(open);
        assert!(!folders.open("repo").await.unwrap().is_made_again(), "{name}");
    }
    assert!(elsewhere.path().join("moved/a.txt").exists(), "a link is not followed");
}
