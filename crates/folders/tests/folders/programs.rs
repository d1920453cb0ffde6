//! What a repository, and programs and models of a run, may leave in a folder.

use super::*;

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

/// A program on an allowed host can use git in the worktree.
#[tokio::test]
async fn commits_of_other_programs_are_changes_of_the_run() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
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

/// The settings of a worktree may differ from those of the repository.
#[tokio::test]
async fn a_filter_of_a_conditional_include_does_not_run() {
    for condition in ["onbranch:graphrun/**", "gitdir:worktrees/**"] {
        let home = Home::new();
        let mark = home.folder.path().join("mark");
        home.write(".gitattributes", "* filter=evil\n");
        home.commit("attributes");
        let git = home.repository().join(".git");
        let filter = format!("[filter \"evil\"]\n\tsmudge = touch {}; cat\n", mark.display());
        fs::write(git.join("more"), filter).unwrap();
        let config = fs::read_to_string(git.join("config")).unwrap();
        let include =
            format!("[includeIf \"{condition}\"]\n\tpath = {}\n", git.join("more").display());
        fs::write(git.join("config"), config + &include).unwrap();
        let (_, folders) = home.start("r1").await;
        let open = folders.lock_exclusive("repo").await.unwrap();
        assert!(open.path().join("a.txt").is_file());
        assert!(!mark.exists(), "{condition}");
    }
}

/// A name that is read as another text could not be replaced.
#[tokio::test]
async fn a_setting_with_a_name_that_is_no_text_is_refused() {
    let home = Home::new();
    let config = home.repository().join(".git/config");
    let before = fs::read(&config).unwrap();
    let filter = b"[filter \"\xff\"]\n\tsmudge = cat\n";
    fs::write(&config, [&before[..], filter].concat()).unwrap();
    let refused = home.asked("r1", "graphrun/r1").find().await.unwrap_err();
    assert!(refused.to_string().contains("not UTF-8"), "{refused}");
}

/// Git finds commits by their text, and writes texts in the encoding that a setting names.
#[tokio::test]
async fn a_commit_is_found_again_whatever_the_settings_of_the_repository() {
    let home = Home::new();
    home.git(&["config", "i18n.logOutputEncoding", "UTF-16LE"]);
    home.git(&["config", "commit.verbose", "true"]);
    home.git(&["config", "status.showUntrackedFiles", "no"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("a.txt", "two\n")]).unwrap();
    let scissors = "x\n# ------------------------ >8 ------------------------\ny";
    let made = open.commit(request(scissors, "r1/1/commit/0")).await.unwrap();
    assert_eq!(open.commit(request(scissors, "r1/1/commit/0")).await.unwrap(), made);
    replace_files(open.path(), &[file("new", "1")]).unwrap();
    let refused = open.prepare_merge(&[made.id], request("m", "r1/2/merge/0")).await.unwrap_err();
    assert!(matches!(refused, FolderError::Uncommitted { .. }), "{refused}");
}

#[tokio::test]
async fn strange_files_reach_a_sandbox_and_links_are_not_followed() {
    let home = Home::new();
    home.write("a\nb \"ä\".txt", "strange\n");
    home.write("run.sh", "#!/bin/sh\n");
    let script = home.repository().join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", home.repository().join("outside")).unwrap();
    symlink("/etc", home.repository().join("folder")).unwrap();
    home.commit("strange");
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
    assert_eq!(fs::read_dir(open.path().join("sub")).unwrap().count(), 0);
    replace_files(open.path(), &[file("x", "1")]).unwrap();
    assert!(open.commit(request("x", "r1/1/commit/0")).await.unwrap().changed);
    assert_eq!(home.git(&["diff", "--name-only", "main", "graphrun/r1"]), "x");
}

#[tokio::test]
async fn files_in_the_folder_of_a_submodule_are_not_lost() {
    let home = Home::new();
    let commit = home.git(&["rev-parse", "HEAD"]);
    let entry = format!("160000,{commit},of/sub");
    home.git(&["update-index", "--add", "--cacheinfo", &entry]);
    home.git(&["commit", "--quiet", "--message", "a submodule"]);
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
    replace_files(open.path(), &[file("x", "1"), file("of/sub/y", "1")]).unwrap();
    let refused = open.commit(request("x", "r1/1/commit/0")).await.unwrap_err();
    let is_named = matches!(&refused, FolderError::Submodule { path } if path == "of/sub");
    assert!(is_named, "{refused}");
    assert!(refused.hint().unwrap().contains("remove these files"));
    fs::remove_file(open.path().join("of/sub/y")).unwrap();
    assert!(open.commit(request("x", "r1/1/commit/0")).await.unwrap().changed);
    // A file in place of the folder is a change like others.
    fs::remove_dir(open.path().join("of/sub")).unwrap();
    fs::write(open.path().join("of/sub"), "text").unwrap();
    assert!(open.commit(request("x", "r1/2/commit/0")).await.unwrap().changed);
    assert_eq!(home.git(&["show", "graphrun/r1:of/sub"]), "text");
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
        let open = folders.lock_exclusive("repo").await.unwrap();
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
        let open = other.lock_exclusive("repo").await.unwrap();
        let refused = open.prepare_merge(&head, request("x", "4/merge")).await.unwrap_err();
        assert!(matches!(refused, FolderError::SecretInCommit { .. }), "{run}: {refused}");
    }
}

#[tokio::test]
async fn a_repository_within_the_folder_is_refused() {
    let home = Home::new();
    let (_, folders) = home.start("r1").await;
    let open = folders.lock_exclusive("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
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
        let open = folders.lock_exclusive("repo").await.unwrap();
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
    let open = folders.lock_exclusive("repo").await.unwrap();
    git(open.path(), &["sparse-checkout", "set", "--no-cone", "a.txt"]);
    assert!(!open.path().join("b.txt").exists());
    replace_files(open.path(), &[file("a.txt", "two\n")]).unwrap();
    let patch = open.diff(Against::Base).await.unwrap();
    assert!(patch.contains("+two") && !patch.contains("b.txt"), "{patch}");
    // A file that should be absent, and is written, is a change.
    replace_files(open.path(), &[file("b.txt", "two\n"), file("new.txt", "1\n")]).unwrap();
    let made = open.commit(request("x", "r3/1/commit/0")).await.unwrap();
    let changed = home.git(&["diff", "--name-status", "main", &made.id]);
    assert_eq!(changed, "M\ta.txt\nM\tb.txt\nA\tnew.txt");
}

/// A program on a host can replace the worktree.
#[tokio::test]
async fn a_replaced_worktree_is_made_again_from_the_branch() {
    let home = Home::new();
    let (folder, folders) = home.start("r1").await;
    drop(folders.lock_exclusive("repo").await.unwrap());
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
        let open = folders.lock_exclusive("repo").await.unwrap();
        assert!(open.was_recreated(), "{name}");
        assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "one\n", "{name}");
        drop(open);
        assert!(!folders.lock_exclusive("repo").await.unwrap().was_recreated(), "{name}");
    }
    assert!(elsewhere.path().join("moved/a.txt").exists(), "a link is not followed");
}
