use std::os::unix::fs::symlink;

use nix::sys::stat::Mode;

use super::*;

/// Returns a folder `root` with a file and a folder in it, beside a secret.
fn folder() -> tempfile::TempDir {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    fs::write(root.join("file"), "text").unwrap();
    fs::write(root.join("sub/inner"), "inner").unwrap();
    outer
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    let folder = Folder::open(root).unwrap();
    folder.read_text(Path::new(path), DataLimit::FileBytes).map_err(|it| it.to_string())
}

#[test]
fn reading_follows_links_that_stay_beneath_and_no_others() {
    let outer = folder();
    let root = outer.path().join("root");
    symlink("sub/inner", root.join("near")).unwrap();
    symlink("sub", root.join("near_folder")).unwrap();
    symlink("../secret", root.join("far")).unwrap();
    symlink("..", root.join("far_folder")).unwrap();
    symlink(outer.path(), root.join("absolute")).unwrap();
    symlink("far", root.join("chain")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    for (path, expected) in [
        ("file", Ok("text")),
        ("sub/../file", Ok("text")),
        ("near", Ok("inner")),
        ("near_folder/inner", Ok("inner")),
        ("../secret", Err("it leads out of the folder")),
        ("sub/../../secret", Err("it leads out of the folder")),
        ("/etc/hostname", Err("it leads out of the folder")),
        ("far", Err("it leads out of the folder")),
        ("far_folder/secret", Err("it leads out of the folder")),
        ("absolute/secret", Err("it leads out of the folder")),
        ("chain", Err("it leads out of the folder")),
        ("loop", Err("the path contains a symbolic link")),
        ("nothing", Err("there is no such file or folder")),
        ("sub", Err("it is a folder and not a file")),
        ("file/x", Err("it is not a folder")),
    ] {
        assert_eq!(read(&root, path), expected.map(str::to_owned).map_err(str::to_owned), "{path}");
    }
}

#[test]
fn pipes_sockets_and_devices_are_refused_at_once() {
    let outer = folder();
    let root = outer.path().join("root");
    nix::unistd::mkfifo(&root.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    for path in ["pipe", "socket"] {
        assert_eq!(read(&root, path), Err("it is not a regular file".to_owned()), "{path}");
        let error = read_named(&root.join(path), DataLimit::FileBytes).unwrap_err();
        assert!(!matches!(error, BeneathError::Missing), "{path}: {error}");
    }
    symlink("/dev/zero", root.join("device")).unwrap();
    for device in [Path::new("/dev/zero"), &root.join("device")] {
        let error = read_named(device, DataLimit::FileBytes).unwrap_err();
        assert!(matches!(error, BeneathError::NotRegular), "{device:?}: {error}");
    }
    assert_eq!(read_named(Path::new("/dev/null"), DataLimit::FileBytes).unwrap(), "");
}

#[test]
fn a_file_above_the_limit_is_refused() {
    let outer = folder();
    let root = outer.path().join("root");
    let max = usize::try_from(DataLimit::FileBytes.value()).unwrap();
    fs::write(root.join("most"), vec![b'x'; max]).unwrap();
    fs::write(root.join("more"), vec![b'x'; max + 1]).unwrap();
    assert_eq!(read(&root, "most").unwrap().len(), max);
    let error = read(&root, "more").unwrap_err();
    assert!(error.contains("larger than the limit `file_bytes`"), "{error}");
    let folder = Folder::open(&root).unwrap();
    let (start, size) = folder.read_start(Path::new("more"), 3).unwrap();
    assert_eq!((start, size), (b"xxx".to_vec(), max as u64 + 1));
}

#[test]
fn writing_follows_no_link_even_one_that_stays() {
    let outer = folder();
    let root = outer.path().join("root");
    symlink("sub", root.join("near_folder")).unwrap();
    symlink("file", root.join("near")).unwrap();
    let folder = Folder::open(&root).unwrap();
    assert!(folder.enter("near_folder").is_err());
    assert!(folder.read_own("near", 9).is_err());
    assert_eq!(folder.kind("near").unwrap(), Some(Kind::Other));
    folder.write_new("near", b"new").unwrap();
    assert_eq!(read(&root, "file").unwrap(), "text");
    assert_eq!(read(&root, "near").unwrap(), "new");
}

#[test]
fn the_root_is_the_nearest_folder_with_a_marker() {
    let outer = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(outer.path()).unwrap();
    let deep = top.join("clone/graphs/deep");
    let project = |folder: &Path| {
        let Project { root, within } = Project::around(folder).unwrap();
        assert_eq!(root.join(&within).components().collect::<std::path::PathBuf>(), folder);
        root
    };
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(project(&deep), deep, "without a marker");
    fs::create_dir(top.join("clone/.git")).unwrap();
    assert_eq!(project(&deep), top.join("clone"));
    fs::write(top.join("clone/graphs/graphrun.toml"), "").unwrap();
    assert_eq!(project(&deep), top.join("clone/graphs"));
    assert_eq!(project(&top.join("clone")), top.join("clone"));
    assert_eq!(project(&top.join("clone/not/there")), top.join("clone"), "not saved yet");
    assert!(Project::around(&top.join("clone/not/../there")).is_err());
}

#[test]
fn a_folder_that_everyone_can_write_is_no_project() {
    use std::os::unix::fs::PermissionsExt as _;
    let outer = tempfile::tempdir().unwrap();
    let shared = fs::canonicalize(outer.path()).unwrap().join("shared");
    let own = shared.join("own");
    fs::create_dir_all(&own).unwrap();
    fs::create_dir(shared.join(".git")).unwrap();
    assert_eq!(Project::around(&own).unwrap().root, shared);
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(Project::around(&own).unwrap().root, own);
}
