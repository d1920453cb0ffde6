//! The worktree and the branch of a run.

use super::*;

#[tokio::test]
async fn a_run_works_on_its_own_branch_and_leaves_the_checkout_alone() {
    let home = Home::new();
    home.write("b.txt", "of the user, not committed\n");
    let before = home.git(&["status", "--porcelain", "--branch"]);
    let (folder, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
async fn the_worktree_of_a_bare_repository_keeps_its_changes() {
    let home = Home::new();
    let bare = home.folder.path().join("bare.git");
    home.git(&["clone", "--quiet", "--bare", ".", &bare.to_string_lossy()]);
    let asked = NewFolder { from: bare.clone(), ..home.asked("r1", "graphrun/r1") };
    let folder = asked.find().await.unwrap();
    assert!(!folder.has_uncommitted_changes().await.unwrap());
    let folders = RunFolders::new("r1", [folder]);
    let kept = folders.lock_shared("repo").await.unwrap();
    assert_eq!(fs::read_to_string(kept.path().join("a.txt")).unwrap(), "one\n");
    drop(kept);
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("new.txt", "two\n")]).unwrap();
    drop(open);
    let open = folders.lock_exclusive("repo").await.unwrap();
    assert!(!open.was_recreated(), "the worktree is thrown away");
    assert!(open.commit(request("Add a file", "r1/1/commit/0")).await.unwrap().changed);
    assert_eq!(git(&bare, &["show", "graphrun/r1:new.txt"]), "two");
}

#[tokio::test]
async fn readers_share_a_folder_and_keep_writers_out() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let one = folders.lock_shared("repo").await.unwrap();
    let other = folders.lock_shared("repo").await.unwrap();
    assert_eq!(fs::read_to_string(one.path().join("a.txt")).unwrap(), "one\n");
    let writers = folders.clone();
    let mut writer = tokio::spawn(async move { writers.lock_exclusive("repo").await.map(drop) });
    drop(one);
    // The lock is the kernel's, so a writer that could pass would do so without a wait.
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut writer).await;
    assert!(waits.is_err(), "a writer has the folder of a reader");
    drop(other);
    writer.await.unwrap().unwrap();
    // A folder with a writer is not kept for a reader.
    let open = folders.lock_exclusive("repo").await.unwrap();
    let mut reader = tokio::spawn(async move { folders.lock_shared("repo").await.map(drop) });
    let waits = tokio::time::timeout(Duration::from_millis(300), &mut reader).await;
    assert!(waits.is_err(), "a reader has the folder of a writer");
    drop(open);
    reader.await.unwrap().unwrap();
}

#[tokio::test]
async fn only_a_folder_without_a_nested_git_is_mounted() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let kept = folders.lock_shared("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    let (one, two) =
        (one.lock_exclusive("repo").await.unwrap(), two.lock_exclusive("repo").await.unwrap());
    replace_files(one.path(), &[file("x", "1")]).unwrap();
    assert!(!two.path().join("x").exists());
    one.commit(request("x", "r1/1/commit/0")).await.unwrap();
    assert!(!two.commit(request("x", "r2/1/commit/0")).await.unwrap().changed);
    let taken = home.asked("r3", "graphrun/r1").find().await.unwrap_err();
    assert!(matches!(taken, FolderError::BranchTaken { .. }), "{taken}");
}

#[tokio::test]
async fn a_branch_above_or_below_that_of_a_run_is_found_early() {
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

#[tokio::test]
async fn two_runs_do_not_share_the_name_of_a_branch() {
    let home = Home::new();
    let one = RunFolders::new("r1", [home.asked("r1", "auto").find().await.unwrap()]);
    let two = RunFolders::new("r2", [home.asked("r2", "auto").find().await.unwrap()]);
    one.lock_exclusive("repo").await.unwrap();
    let taken = two.lock_exclusive("repo").await.unwrap_err();
    assert!(matches!(taken, FolderError::BranchTaken { .. }), "{taken}");
    one.lock_exclusive("repo").await.unwrap();
}

#[tokio::test]
async fn a_lost_worktree_is_made_again_from_the_branch() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    drop(open);
    fs::remove_dir_all(folder.worktree.parent().unwrap()).unwrap();
    let again = RunFolders::new("r1", [folder.clone()]);
    assert_eq!(
        fs::read_to_string(again.lock_exclusive("repo").await.unwrap().path().join("x")).unwrap(),
        "1"
    );
    // A checkout that a kill has interrupted: its missing files must not look removed.
    fs::remove_file(folder.worktree.with_extension("ready")).unwrap();
    fs::remove_file(folder.worktree.join("x")).unwrap();
    let open = again.lock_exclusive("repo").await.unwrap();
    assert!(!open.commit(request("x", "r1/2/commit/0")).await.unwrap().changed);
    drop(open);
    // The lock of a killed git.
    let own = home.repository().join(".git/worktrees/repo/index.lock");
    fs::write(&own, "").unwrap();
    let open = again.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "2")]).unwrap();
    assert!(open.commit(request("x", "r1/3/commit/0")).await.unwrap().changed);
    drop(open);
    fs::remove_dir_all(&folder.worktree).unwrap();
    home.git(&["worktree", "prune"]);
    home.git(&["branch", "-D", "graphrun/r1"]);
    let gone = again.lock_exclusive("repo").await.unwrap_err();
    assert!(matches!(gone, FolderError::BranchGone { .. }), "{gone}");
}

#[tokio::test]
async fn a_removed_run_leaves_its_branch_only_if_it_has_commits() {
    let home = Home::new();
    for (run, commits) in [("r1", false), ("r2", true)] {
        let (folder, folders) = home.start(run).await;
        let open = folders.lock_exclusive("repo").await.unwrap();
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
async fn a_text_in_place_of_a_removed_key_is_not_committed() {
    let home = Home::new();
    home.write("log.txt", "printed [redacted]\n");
    home.commit("a text that was there before");
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("log.txt", "now printed [redacted]\n")]).unwrap();
    assert!(open.commit(request("Change a line", "r1/1/commit/0")).await.unwrap().changed);
    // A moved line is not new, and one that goes makes no room for another.
    fs::rename(open.path().join("log.txt"), open.path().join("moved.txt")).unwrap();
    assert!(open.commit(request("Move a file", "r1/1/commit/1")).await.unwrap().changed);
    fs::remove_file(open.path().join("moved.txt")).unwrap();
    replace_files(open.path(), &[file("key.py", "KEY = \"[redacted]\"\n")]).unwrap();
    let refused = open.commit(request("Add a key", "r1/2/commit/0")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`key.py` has `[redacted]` in place of a key that was removed; nothing was committed"
    );
}

/// A git that ran into a limit is killed, and leaves its locks.
#[tokio::test]
async fn locks_that_a_killed_git_left_stop_no_resumed_run() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let own = home.repository().join(".git/worktrees/repo");
    let shared = home.repository().join(".git");
    let of_run =
        ["refs/heads/graphrun/r1.lock", "refs/graphrun/r1/repo.lock"].map(|it| shared.join(it));
    let lock = |path: &PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    };
    // It was killed while it made the branch.
    of_run.iter().for_each(lock);
    let path = folders.lock_exclusive("repo").await.unwrap().path().to_owned();
    for is_relative in [false, true] {
        if is_relative {
            let relative = "gitdir: ../../../repository/.git/worktrees/repo\n";
            fs::write(path.join(".git"), relative).unwrap();
        }
        let of_worktree = ["HEAD.lock", "index.lock", "ORIG_HEAD.lock"].map(|it| own.join(it));
        let searched = shared.join("refs/graphrun-searched/r1/repo.lock");
        let of_run = of_run.iter().filter(|it| it.starts_with(shared.join("refs/heads")));
        of_worktree.iter().chain(of_run).chain([&searched]).for_each(lock);
        let open = folders.lock_exclusive("repo").await.unwrap();
        replace_files(open.path(), &[file("b.txt", &is_relative.to_string())]).unwrap();
        let task = format!("r1/{is_relative}/commit/0");
        assert!(open.commit(request("x", &task)).await.unwrap().changed);
    }
    // The branch of a person with the name that a run would have had is none of the run.
    let (_, other) = home.start("r2").await;
    home.git(&["branch", "graphrun/r2"]);
    let foreign = shared.join("refs/heads/graphrun/r2.lock");
    lock(&foreign);
    other.lock_exclusive("repo").await.unwrap_err();
    assert!(foreign.exists());
    folder.remove("r1").await.unwrap();
}

#[tokio::test]
async fn what_a_killed_writer_left_is_not_committed() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("src/a.py", "1")]).unwrap();
    for path in [".graphrun-b.py.tmp", "src/.graphrun-a.py.tmp"] {
        fs::write(open.path().join(path), "half").unwrap();
    }
    let commit = open.commit(request("x", "r1/1/commit/0")).await.unwrap();
    let names = home.git(&["show", "--format=", "--name-only", &commit.id]);
    assert_eq!(names, "src/a.py");
    // Nor is it a change that a merge would lose.
    fs::write(open.path().join(".graphrun-c.py.tmp"), "half").unwrap();
    open.prepare_merge(&[commit.id], request("x", "r1/2/merge/0")).await.unwrap();
    assert_eq!(git(open.path(), &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_secret_is_not_committed() {
    let home = Home::new();
    home.write("old.txt", "key = sk-abcdefghij1234567890klmnop\nend\n");
    home.commit("a key of the user");
    let (folder, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    for content in ["fine", ""] {
        open.discard().await.unwrap();
        replace_files(open.path(), &[file("sk-abcdefghij1234567890klmnop.txt", content)]).unwrap();
        let refused = open.commit(request("x", "r1/3/commit/0")).await.unwrap_err();
        assert!(refused.to_string().starts_with("the name of a file contains"), "{refused}");
    }
    assert_eq!(home.git(&["rev-list", "--count", &format!("{}..graphrun/r1", folder.base)]), "1");
}

#[tokio::test]
async fn changes_that_are_too_large_name_the_largest_file() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    fs::write(open.path().join("small.txt"), "x\n").unwrap();
    fs::write(open.path().join("large.txt"), format!("{}\n", "x".repeat(1 << 20)).repeat(66))
        .unwrap();
    let shown = "the changes have more than 64 MiB; the largest file is \"large.txt\" with 66 MiB";
    let refused = open.commit(request("x", "r1/1/commit/0")).await.unwrap_err();
    assert_eq!(refused.to_string(), shown);
    assert!(refused.hint().unwrap().contains(".gitignore"));
    // A program can commit it, too.
    git(open.path(), &["commit", "--quiet", "--message", "large"]);
    let refused = open.commit(request("x", "r1/1/commit/0")).await.unwrap_err();
    assert_eq!(refused.to_string(), shown);
}

#[tokio::test]
async fn a_file_in_place_of_a_folder_of_locks_is_named() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    fs::write(home.folder.path().join("runs"), "").unwrap();
    let refused = folders.lock_exclusive("repo").await.unwrap_err();
    let path = format!("{}.lock", folder.worktree.display());
    assert_eq!(refused.to_string(), format!("cannot lock `{path}`"));
    assert!(refused.hint().unwrap().contains("XDG_STATE_HOME"));
}

#[tokio::test]
async fn differences_and_discarded_changes() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    drop(open);
    for switch in
        [&["checkout", "--quiet", "-b", "other"][..], &["checkout", "--quiet", "--detach"]]
    {
        git(&folder.worktree, switch);
        let refused = folders.lock_exclusive("repo").await.unwrap_err();
        assert!(matches!(refused, FolderError::OtherBranch { .. }), "{refused}");
    }
    git(&folder.worktree, &["checkout", "--quiet", &folder.branch]);
    let open = folders.lock_exclusive("repo").await.unwrap();
    assert_eq!(fs::read_to_string(open.path().join("x")).unwrap(), "1");
}

#[tokio::test]
async fn a_file_of_the_base_is_that_of_the_first_commit() {
    let home = Home::new();
    home.write("locks/app.txt", "locked\n");
    home.write("large.txt", "12345");
    symlink("/etc/passwd", home.repository().join("link.txt")).unwrap();
    symlink("locks", home.repository().join("linked")).unwrap();
    home.commit("second");
    home.write("locks/app.txt", "of the user, not committed\n");
    let (folder, folders) = home.start("a").await;
    let read = async |folders: &RunFolders, path: &str| {
        let read = folders.base_file("repo", path, 20).await;
        read.map(|it| String::from_utf8(it).unwrap()).map_err(|it| it.to_string())
    };
    assert_eq!(read(&folders, "locks/app.txt").await.unwrap(), "locked\n");

    // A commit of the run changes nothing, also for a task whose branch starts there.
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("locks/app.txt", "of an agent\n")]).unwrap();
    open.commit(request("change", "1")).await.unwrap();
    drop(open);
    home.commit("third");
    let task = folders.of_task("a", "7", &["repo".to_owned()]).await.unwrap();
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
    assert!(folders.base_file("other", "a.txt", 9).await.is_err());
}
