use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    thread,
};

use nix::{
    sys::stat::Mode,
    unistd::{Uid, setfsuid},
};

use super::*;

fn deliver(root: &Path, files: &[SourceFile]) -> Result<Vec<PathBuf>, WriteError> {
    write_files(root, "", files, Replace::Delivered)
}

fn file(path: &str, content: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), content: content.to_owned() }
}

#[test]
fn files_and_their_folders_are_written() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("new/out");
    let written = deliver(&out, &[file("a.py", "1"), file("src/deep/b.py", "2")]).unwrap();
    assert_eq!(written, [out.join("a.py"), out.join("src/deep/b.py")]);
    assert_eq!(fs::read_to_string(out.join("src/deep/b.py")).unwrap(), "2");
}

#[test]
fn delivering_twice_replaces_files_and_leaves_others_alone() {
    let root = tempfile::tempdir().unwrap();
    deliver(root.path(), &[file("src/a.py", "old and longer")]).unwrap();
    fs::write(root.path().join("mine.txt"), "kept").unwrap();
    let before = fs::metadata(root.path().join("src/a.py")).unwrap().ino();
    deliver(root.path(), &[file("src/a.py", "new")]).unwrap();
    assert_eq!(fs::read_to_string(root.path().join("src/a.py")).unwrap(), "new");
    assert_ne!(
        fs::metadata(root.path().join("src/a.py")).unwrap().ino(),
        before,
        "was written in place"
    );
    assert_eq!(fs::read_to_string(root.path().join("mine.txt")).unwrap(), "kept");
    let names: Vec<_> = fs::read_dir(root.path().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["a.py"], "a temporary file was left");
}

#[test]
fn deliveries_of_one_file_from_two_folders_wait_for_each_other() {
    let root = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for (below, path) in [("", "r/a.txt"), ("r", "a.txt")].repeat(2) {
            let root = root.path();
            scope.spawn(move || {
                for turn in 0..100 {
                    let files = [file(path, &turn.to_string())];
                    write_files(root, below, &files, Replace::Anything).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(root.path().join("r/a.txt")).unwrap(), "99");
}

#[test]
fn the_next_delivery_removes_rests_of_a_killed_one() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("src")).unwrap();
    let left = root.path().join("src").join(temporary_name("a.py"));
    fs::write(&left, "cut sho").unwrap();
    deliver(root.path(), &[file("src/a.py", "whole")]).unwrap();
    assert_eq!(fs::read_to_string(root.path().join("src/a.py")).unwrap(), "whole");
    assert!(!left.exists());
}

#[test]
fn the_next_change_removes_rests_of_a_killed_one() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("src")).unwrap();
    let rests = [".graphrun-old.py.tmp", "src/.graphrun-old.py.tmp"];
    for name in rests.into_iter().chain(["src/.graphrun-x", "src/x.tmp"]) {
        fs::write(root.path().join(name), "half").unwrap();
    }
    change_files(root.path(), &[file("a.py", "1"), file("src/b.py", "2")], &[]).unwrap();
    assert!(!rests.iter().any(|it| root.path().join(it).exists()));
    assert!(root.path().join("src/.graphrun-x").exists() && root.path().join("src/x.tmp").exists());
}

#[test]
fn a_link_at_a_temporary_name_is_removed_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, root.path().join(temporary_name("x"))).unwrap();
    deliver(root.path(), &[file("x", "new")]).unwrap();
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(root.path().join("x")).unwrap(), "new");
}

#[test]
fn deliveries_to_one_folder_wait_for_each_other() {
    let root = tempfile::tempdir().unwrap();
    let contents = ["1".repeat(100_000), "2".repeat(100_000)];
    std::thread::scope(|scope| {
        for content in &contents {
            scope.spawn(|| {
                for _ in 0..20 {
                    deliver(root.path(), &[file("x", content)]).unwrap();
                }
            });
        }
    });
    assert!(contents.contains(&fs::read_to_string(root.path().join("x")).unwrap()));
}

#[test]
fn a_planted_link_leads_no_write_out_of_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    let root = tempfile::tempdir().unwrap();
    symlink(outside.path().join("victim"), root.path().join("file")).unwrap();
    symlink(outside.path(), root.path().join("folder")).unwrap();
    symlink(outside.path().join("nothing"), root.path().join("dangling")).unwrap();
    symlink("real", root.path().join("inner")).unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    for path in ["file", "folder/victim", "folder/new", "dangling", "inner/x"] {
        let error = deliver(root.path(), &[file(path, "evil")]).unwrap_err();
        assert!(matches!(error, WriteError::InTheWay { .. }), "{path}: {error}");
        // Models read it, and paths of the host do not concern them.
        assert!(!error.to_string().contains(&*root.path().to_string_lossy()), "{path}: {error}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("victim")).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_hard_link_is_replaced_and_not_written_through() {
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::hard_link(&victim, root.path().join("x")).unwrap();
    write_files(root.path(), "", &[file("x", "new")], Replace::Anything).unwrap();
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn a_pipe_or_a_folder_at_the_target_is_reported() {
    let root = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&root.path().join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
    fs::create_dir(root.path().join("folder")).unwrap();
    for path in ["pipe", "folder", "pipe/x"] {
        let error = deliver(root.path(), &[file(path, "x")]).unwrap_err();
        assert!(matches!(error, WriteError::InTheWay { .. }), "{path}: {error}");
    }
}

#[test]
fn one_unacceptable_name_keeps_all_files_out() {
    let root = tempfile::tempdir().unwrap();
    assert!(deliver(root.path(), &[file("ok", "x"), file("../evil", "x")]).is_err());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_foreign_file_stops_the_delivery_unless_forced() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("b.py"), "mine").unwrap();
    let files = [file("a.py", "1"), file("b.py", "2")];
    let error = deliver(root.path(), &files).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a file exists that is not from an earlier delivery, or changed since: `b.py`; nothing \
         was written"
    );
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "half of it was delivered");
    write_files(root.path(), "", &files, Replace::Anything).unwrap();
    assert_eq!(text(&root.path().join("b.py")), "2");
    deliver(root.path(), &[file("b.py", "3")]).unwrap();
}

#[test]
fn a_file_that_was_changed_since_its_delivery_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    deliver(root.path(), &[file("a.py", "1"), file("b.py", "1")]).unwrap();
    fs::write(root.path().join("a.py"), "1, mended by hand").unwrap();
    let next = [file("a.py", "2"), file("b.py", "2")];
    let error = deliver(root.path(), &next).unwrap_err();
    assert!(matches!(&error, WriteError::Foreign { paths } if paths == &["a.py"]), "{error}");
    assert_eq!(text(&root.path().join("a.py")), "1, mended by hand");
    assert_eq!(text(&root.path().join("b.py")), "1");
    fs::remove_file(root.path().join("a.py")).unwrap();
    deliver(root.path(), &next).unwrap();
    assert_eq!(text(&root.path().join("b.py")), "2");
}

#[test]
fn unchanged_files_need_no_list() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.py"), "1").unwrap();
    deliver(root.path(), &[file("a.py", "1")]).unwrap();
    deliver(root.path(), &[file("a.py", "2")]).unwrap();
    assert_eq!(text(&root.path().join("a.py")), "2");
}

/// The list is written before the first file gets its name.
#[test]
fn the_next_delivery_completes_an_interrupted_one() {
    let root = tempfile::tempdir().unwrap();
    deliver(root.path(), &[file("a", "1"), file("b", "1")]).unwrap();
    let mut list = DeliveredFiles::parse(&fs::read(root.path().join(delivered::LIST)).unwrap());
    for name in ["a", "b"] {
        list.expect(name, b"2");
    }
    fs::write(root.path().join(delivered::LIST), list.to_text()).unwrap();
    fs::write(root.path().join("a"), "2").unwrap();
    deliver(root.path(), &[file("a", "3"), file("b", "3")]).unwrap();
    assert_eq!(
        (text(&root.path().join("a")), text(&root.path().join("b"))),
        ("3".into(), "3".into())
    );
}

#[test]
fn an_unwritable_file_prevents_the_whole_delivery() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("b")).unwrap();
    assert!(deliver(root.path(), &[file("a", "1"), file("b", "1")]).is_err());
    assert!(!root.path().join("a").exists());
}

#[test]
fn many_existing_files_are_counted() {
    let paths: Vec<String> = (0..12).map(|it| format!("f{it}")).collect();
    let shown = WriteError::Foreign { paths }.to_string();
    assert!(shown.ends_with("`f9` and 2 more; nothing was written"), "{shown}");
}

#[test]
fn a_folder_below_the_root_has_the_rules_of_generated_paths() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("out");
    let deliver = |below: &str| write_files(&root, below, &[file("x", "1")], Replace::Delivered);
    for below in [
        "..",
        "../victim",
        "a/../../victim",
        "/abs",
        "a//b",
        ".git/hooks",
        "A/.GIT",
        ".graphrun/x",
        "a\0b",
    ] {
        let error = deliver(below).unwrap_err();
        assert!(matches!(error, WriteError::Below { .. }), "{below}: {error}");
    }
    assert!(!root.exists(), "a refused folder makes nothing");
    assert_eq!(deliver("site/docs").unwrap(), [root.join("site/docs/x")]);
    symlink(outer.path(), root.join("far")).unwrap();
    symlink("site", root.join("near")).unwrap();
    for below in ["far", "far/site", "near", "site/docs/x"] {
        let error = deliver(below).unwrap_err();
        assert!(matches!(error, WriteError::InTheWay { .. }), "{below}: {error}");
    }
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "something was written outside");
}

#[test]
fn a_file_that_cannot_be_removed_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("kept"), "1").unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let remove = |path: &str| remove_files(root.path(), &[path.to_owned()]);
    // Root may remove everything; a thread with another user's rights to files may not.
    let (kept, missing) = thread::scope(|scope| {
        let without_rights = || {
            setfsuid(Uid::from_raw(65_534));
            (remove("kept"), remove("missing"))
        };
        scope.spawn(without_rights).join().unwrap()
    });
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = kept.unwrap_err();
    assert!(
        matches!(&error, WriteError::Write { source, .. } if source.kind() == io::ErrorKind::PermissionDenied),
        "{error:?}"
    );
    missing.unwrap();
    assert!(root.path().join("kept").exists());
}
