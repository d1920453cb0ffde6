//! Folders of the host that lie in the work folder without a copy.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use graphrun::sandbox::{
    Collect, FolderContent, FolderFile, Job, JobError, JobResult, Limits, ProgramEnd, Sandbox,
    SandboxError, SourceFile,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A folder like a worktree of git, which only its user can enter.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["src/deep", "gone"] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    for (name, content) in [
        ("kept.txt", "kept"),
        ("src/a.txt", "one"),
        ("src/deep/b.txt", "two"),
        ("gone/c.txt", "three"),
        ("gone/d.txt", "four"),
        (".git", "gitdir: /the/repository"),
    ] {
        fs::write(path.join(name), content).unwrap();
    }
    fs::write(path.join("tool.sh"), "echo ran").unwrap();
    fs::set_permissions(path.join("tool.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("kept.txt", path.join("link")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Everything about the entries below a folder that a program could change.
fn state(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        let content = if data.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            String::new()
        } else if data.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        let times = (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
        let owner = (data.uid(), data.gid(), data.mode(), data.nlink(), data.ino());
        found.insert(path, format!("{owner:?} {times:?} {content}"));
    }
    found
}

fn job(folder: &Path, script: &str) -> Job {
    Job {
        argv: ["bash", "-c", script].map(str::to_owned).into(),
        mounted: Some(folder.to_owned()),
        ..Job::default()
    }
}

async fn try_run(job: &Job) -> Result<JobResult, SandboxError> {
    Sandbox::probe().unwrap().run(job, &CancellationToken::new()).await
}

async fn run(job: &Job) -> JobResult {
    let finished = try_run(job).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0), "{}", finished.output);
    finished
}

#[tokio::test]
async fn a_mounted_folder_lies_below_the_files_of_the_job() {
    let folder = folder();
    let script =
        "pwd; find . -mindepth 1 | LC_ALL=C sort; cat kept.txt link src/a.txt; echo; ./tool.sh";
    let file = SourceFile { path: "src/a.txt".to_owned(), content: "above".to_owned() };
    let finished = run(&Job { files: vec![file], ..job(folder.path(), script) }).await;
    assert_eq!(
        finished.output,
        "/box\n./.home\n./gone\n./gone/c.txt\n./gone/d.txt\n./kept.txt\n./link\n./src\n./src/a.txt\n\
         ./src/deep\n./src/deep/b.txt\n./tool.sh\nkeptkeptabove\nran\n"
    );
}

/// Each line changes something that a copy would let a program change.
const CHANGES: &str = r"
set -e
echo more >>kept.txt
chmod 0777 src/a.txt tool.sh .
chmod 0500 src/deep
truncate --size=1 src/a.txt
touch --date=2001-01-01 src/deep/b.txt
mv src/a.txt src/moved.txt
ln src/moved.txt src/hard.txt
ln --symbolic --force kept.txt src/new-link
rm link; ln --symbolic /etc/passwd link
rm -r gone; mkdir gone; [[ -z $(ls gone) ]]
mkdir new; echo new >new/e.txt
mknod fifo p
chmod 0700 src/deep
rm tool.sh
mkdir .git; echo forged >.git/config; rm -r .git
[[ ! -e .git ]]
cat kept.txt src/hard.txt
";

#[tokio::test]
async fn no_change_of_a_program_reaches_a_mounted_folder() {
    let folder = folder();
    let before = state(folder.path());
    let collect = ["new", "kept.txt", "gone", "link"].map(str::to_owned).to_vec();
    let collect = Collect { below: collect, ..Collect::default() };
    let finished = run(&Job { collect, ..job(folder.path(), CHANGES) }).await;
    assert_eq!(finished.output, "keptmore\no");
    let came: Vec<&str> = finished.collected.keys().map(String::as_str).collect();
    assert_eq!(came, ["kept.txt", "new/e.txt"], "regular files, and no link");
    assert_eq!(state(folder.path()), before);
    // The next program finds the folder as it is on the host.
    let finished = run(&job(folder.path(), "ls gone; cat kept.txt")).await;
    assert_eq!(finished.output, "c.txt\nd.txt\nkept");
}

#[tokio::test]
async fn the_layers_of_a_mounted_folder_are_out_of_reach() {
    let folder = folder();
    let script = r#"
for path in /proc/1/cwd /proc/self/cwd /proc/$PPID/cwd /box /box/..; do
  for name in upper lower work; do [[ ! -e $path/$name ]] || echo "$path/$name"; done
done
for path in $(find / -xdev -name .git 2>/dev/null) /box/.git; do [[ ! -e $path ]] || echo "$path"; done
grep --count "$HOST" /proc/self/mountinfo
umount /box 2>/dev/null || echo kept
mount -t tmpfs none /box 2>/dev/null || echo kept
for fd in /proc/*/fd/*; do [[ ! -e $fd/upper ]] || echo "$fd"; done
"#;
    let env = [("HOST".to_owned(), folder.path().display().to_string())].into();
    let finished = run(&Job { env, ..job(folder.path(), script) }).await;
    assert_eq!(finished.output, "0\nkept\nkept\n");
}

#[tokio::test]
async fn a_mounted_folder_needs_no_room_for_its_files() {
    let folder = folder();
    let large = fs::File::create(folder.path().join("large")).unwrap();
    large.set_len(400 << 20).unwrap();
    let script = "stat --format=%s large; tail --bytes=1000000 large | wc --bytes; \
                  { (echo x >>large); } 2>/dev/null || echo refused; echo x >small && cat small";
    let finished = run(&job(folder.path(), script)).await;
    // A changed file is in the upper layer as a whole, under the limit on the size of a file.
    assert_eq!(finished.output, "419430400\n1000000\nrefused\nx\n");
}

#[tokio::test]
async fn a_mounted_folder_has_a_path_from_the_root() {
    let refused = try_run(&job(Path::new("folder"), "true")).await.unwrap_err();
    assert!(matches!(refused, SandboxError::Refused(JobError::Folder { .. })), "{refused:?}");
}

/// Runs a script in a folder, mounted or copied, and returns its end and the files of `src` that it removed.
async fn removed_by(script: &str, is_mounted: bool) -> (ProgramEnd, Option<Vec<String>>) {
    let folder = folder();
    let known = ["kept.txt", "src/a.txt", "src/deep/b.txt"].map(PathBuf::from);
    let file = |path: &PathBuf| FolderFile {
        path: path.clone(),
        content: FolderContent::File { bytes: b"x".as_slice().into(), is_executable: false },
    };
    let copied = known.iter().map(file).collect();
    let collect = Collect {
        below: vec!["src".to_owned()],
        known: known.to_vec().into(),
        ..Collect::default()
    };
    let limits = Limits { wall: Duration::from_secs(3), work_bytes: 8 << 20, ..Limits::default() };
    let job = Job { collect, limits, ..job(folder.path(), script) };
    let job = if is_mounted { job } else { Job { mounted: None, folder: copied, ..job } };
    let finished = try_run(&job).await.unwrap();
    let shown = |it: &PathBuf| it.display().to_string();
    (finished.end, finished.removed.map(|it| it.iter().map(shown).collect()))
}

#[tokio::test]
async fn files_are_removed_only_at_a_whole_end() {
    let a = "src/a.txt";
    let b = "src/deep/b.txt";
    let ended = ProgramEnd::Exited(0);
    for (script, end, expected) in [
        ("true", ended, Some(&[][..])),
        ("rm kept.txt src/a.txt", ended, Some(&[a][..])),
        ("rm -r src", ended, Some(&[a, b])),
        ("mv src/a.txt src/new.txt", ended, Some(&[a])),
        ("mv src/deep/b.txt src/deep/B.txt; mv src/deep src/Deep", ended, Some(&[b])),
        ("rm src/a.txt; mkdir src/a.txt", ended, Some(&[a])),
        ("chmod 0 src/a.txt src/deep src", ended, Some(&[])),
        // A link does not come back, so the file in its place stays.
        ("ln --symbolic --force /etc/passwd src/a.txt", ended, Some(&[])),
        ("mv src new; ln --symbolic new src", ended, Some(&[])),
        ("mv src/deep new; ln --symbolic ../nowhere src/deep; rm src/a.txt", ended, Some(&[a])),
        ("rm src/a.txt; mknod src/a.txt p", ended, Some(&[])),
        ("rm -r src; exit 3", ProgramEnd::Exited(3), None),
        ("rm -r src; kill -KILL $PPID; sleep 60", ProgramEnd::Signaled(9), None),
        ("rm -r src; sleep 60", ProgramEnd::TimedOut, None),
        ("rm -r src; cat /dev/zero >full 2>/tmp/errors; true", ended, None),
    ] {
        for is_mounted in [true, false] {
            let (found, removed) = removed_by(script, is_mounted).await;
            let removed =
                removed.as_ref().map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!((found, removed.as_deref()), (end, expected), "{script} {is_mounted}");
        }
    }
}

/// The program is at fault, and not the operator.
#[tokio::test]
async fn a_home_that_is_too_large_and_stays_is_the_fault_of_its_program() {
    let sandbox = Sandbox::probe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let set = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    let home = folder.path().join("home");
    let run = async |script: &str| {
        let job = Job {
            argv: ["bash", "-c", script].map(str::to_owned).into(),
            home: Some(home.clone()),
            limits: Limits { work_bytes: 1 << 20, ..Limits::default() },
            ..Job::default()
        };
        sandbox.run(&job, &CancellationToken::new()).await
    };
    set(0o755);
    run("true").await.unwrap();
    // An ordinary user cannot remove the home any more.
    set(0o555);
    let failed = run("head -c 4M /dev/urandom > ~/large").await;
    set(0o755);
    assert!(matches!(failed, Err(SandboxError::HomeTooLarge { .. })), "{failed:?}");
}
